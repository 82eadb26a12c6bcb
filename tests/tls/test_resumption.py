"""Resumed connections of TLS 1.2 that have no line of their own in the key log, as Go's clients leave them."""

import ssl
from pathlib import Path

import pytest
from made_tls import capture, contexts, conversation
from opened_tls import opened, stream
from torture import Segment, broken_laws, flymq_message, read

from mqpcap.options import Options
from mqpcap.tls import KeyLog, session

TURNS = [(flymq_message(0), b"first"), (flymq_message(1), b"second")]


def resumed(folder: Path, has_tickets: bool) -> tuple[list[Segment], list[Segment]]:
    """A connection and one that resumes it; ``keys.log`` has the line of the first."""
    client, server = contexts(folder, ssl.TLSVersion.TLSv1_2)
    if not has_tickets:
        client.options |= ssl.OP_NO_TICKET
        server.options |= ssl.OP_NO_TICKET
    first, before = conversation(client, server, TURNS, ends=True)
    line = next(x for x in (folder / "keys.log").read_bytes().splitlines() if x[:1] != b"#")
    second, after = conversation(client, server, TURNS, session=before)
    assert before is not None and after is not None and before.has_ticket == has_tickets
    (folder / "keys.log").write_bytes(line + b"\n")
    return first, second


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("has_tickets", [True, False])
def test_a_resumed_connection_opens_by_the_line_of_the_first(
    has_tickets: bool, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first was captured, no other master secret is tried."""
    first, second = resumed(tmp_path, has_tickets)
    keys = KeyLog(str(tmp_path / "keys.log"))
    monkeypatch.setattr(session, "MAX_TRIED_MASTERS", 0 if is_whole else 4096)
    for i, segments in enumerate((first, second) if is_whole else (second,)):
        path = tmp_path / f"{i}.pcap"
        path.write_bytes(capture(segments))
        streams, rows = opened(path, keys)

        assert rows["connections"][0]["tls"] == "opened"
        assert stream(streams[0, 0]) == flymq_message(0) + flymq_message(1)
        assert stream(streams[0, 1]) == b"firstsecond"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_connection_whose_client_hello_is_lost_opens_by_one_of_the_lines(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    """The ServerHello has all but the client random, and each line of the key log has one."""
    client, server = contexts(tmp_path, version, is_rsa=True)
    conversation(client, server, TURNS)
    segments, _ = conversation(client, server, TURNS)
    conversation(client, server, TURNS)
    del segments[next(i for i, segment in enumerate(segments) if segment.body)]
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(segments))
    options = Options(keys=KeyLog(str(tmp_path / "keys.log")))
    result = read(path, options)

    assert [c["tls"] for c in result.connections] == ["opened"]
    assert [m["frame_len"] for m in result.messages] == [len(flymq_message(i)) for i in range(2)]
    assert broken_laws(result) == []
    streams, _ = opened(path, KeyLog(str(tmp_path / "keys.log")))
    assert stream(streams[0, 1]) == b"firstsecond"
