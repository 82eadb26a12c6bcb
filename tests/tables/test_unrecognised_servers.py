"""Notes on recognised servers with many unrecognised connections."""

import pyarrow as pa
import pytest

from mqpcap.tables import unrecognised_servers
from mqpcap.tables.unrecognised_servers import UnrecognisedServers


def rows(*connections: tuple[str | None, bool, str, int]) -> pa.Table:
    """Connections to port 7777 with a protocol, whether a SYN was seen, the server's address, and payload bytes."""
    protocols, has_syn, servers, sizes = zip(*connections, strict=True)
    count = len(connections)
    return pa.table({
        "protocol": pa.array(protocols, pa.string()), "syn_seen": has_syn, "server_ip": servers,
        "server_port": [7777] * count, "client_ip": ["10.0.0.1"] * count, "client_port": range(50_000, 50_000 + count),
        "bytes_c2s": sizes, "bytes_s2c": [0] * count,
    })  # fmt: skip


OURS, OTHER = ("flymq", True, "fe80::1", 9), (None, True, "fe80::1", 9)


def test_the_note_names_the_server_and_the_option() -> None:
    servers = UnrecognisedServers()
    servers.add(rows(OURS, OTHER, OTHER), [None] * 3)
    assert [*servers.notes(())] == []

    servers.add(rows(OTHER), [None])

    assert [*servers.notes(())] == [
        "3 connections of [fe80::1]:7777 are not recognised, 1 of the same server are flymq: "
        "-d tcp.port==7777,flymq reads them all"
    ]
    assert [*servers.notes({7777})] == []


@pytest.mark.parametrize("foreign", [(None, True, "fe80::1", 0), (None, True, "fe80::2", 9)])
def test_connections_without_payload_and_of_other_servers_do_not_count(foreign: tuple[None, bool, str, int]) -> None:
    servers = UnrecognisedServers()
    servers.add(rows(OURS, *[foreign] * 5), [None] * 6)

    assert [*servers.notes(())] == []


def test_connections_of_a_named_foreign_protocol_do_not_count() -> None:
    servers = UnrecognisedServers()
    servers.add(rows(OURS, *[OTHER] * 5), [None, *["TLS"] * 5])

    assert [*servers.notes(())] == []


def test_servers_that_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecognised_servers, "MAX_SERVERS", 1)
    servers = UnrecognisedServers()
    servers.add(rows((None, True, "fe80::2", 9), OURS, *[OTHER] * 5), [None] * 7)

    assert [*servers.notes(())] == []
