"""Connections that are named, or found by a filter."""

from collections.abc import Callable
from pathlib import Path

import pytest
from message_rows import PCAPS, capture_of, merged
from running import objects, run

from mqpcap.errors import MqpcapError
from mqpcap.listing.connection_search import ConnectionSearch, SelectedConnection, read_again
from mqpcap.query import query
from mqpcap.reading import Choices, Outcome
from mqpcap.tables.output import Output

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_a_connection_has_three_names() -> None:
    """qos1: the third connection by its first packet is that of port 39314."""
    by_short, by_end = (
        run("show", "-q", "-u", "--connection", name, QOS1).stdout for name in ("c3", "127.0.0.1:39314")
    )
    ids = {row["connection_id"] for row in objects(run("show", "-q", "--json", "--connection", "c3", QOS1))}
    both = run("show", "-q", "--connection", "c3", "--connection", "c1", QOS1).stdout
    by_id = run("show", "-q", "-u", "--connection", ids.pop(), QOS1).stdout

    assert by_short == by_end == by_id != ""
    assert all(" c3   127.0.0.1:39314 " in line for line in by_short.splitlines())
    assert both.count("\n") > by_id.count("\n")
    assert run("show", "--connection", "seven", QOS1).exit_code == 2
    place = ("--connection", "c1", "--direction", "c2s", "--offset", "3")
    assert "HELLO" in run("explain", QOS1, *place).stdout


def chosen(
    name: str, asked: str, keep: Callable[[Output], None] | None = None
) -> tuple[ConnectionSearch, list[SelectedConnection]]:
    search = ConnectionSearch(capture_of(name), query(asked), keep)
    return search, search.run(Outcome(Choices()), lambda count: None)


@pytest.mark.parametrize("asked", ["op == NACK", "op == PUBLISH and latency > 1s", "protocol exists"])
def test_connections_are_those_of_the_messages_in_order_of_their_numbers(asked: str) -> None:
    name, kept = "blipmq/qos1", list[Output]()
    wanted = [row.message for row in merged(name, wanted=query(asked))]

    search, found = chosen(name, asked, kept.append)

    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert {one.id for one in found} == {message["connection_id"] for message in wanted}
    assert sum(output.rows.num_rows for output in kept) == len(wanted)
    assert search.connection_count == 15


def test_a_connection_asks_for_its_own_messages_and_no_other() -> None:
    rows = merged("fq/session")
    _, found = chosen("fq/session", "protocol exists")
    assert len(found) > 1

    for one in found:
        its = [row for row in rows if row.message["connection_id"] == one.id]
        assert len(merged("fq/session", wanted=one.query())) == len(its) > 0


def test_a_filter_on_endpoints_finds_foreign_connections_too() -> None:
    """c1 to c4 are to port 9492, all but the last TLS, and c5 to 9092; a filter on messages finds only c4."""
    _, ours = chosen("flymq/tls", "protocol == flymq")
    _, to_server = chosen("flymq/tls", "server == '127.0.0.1:9492'")

    assert [one.number for one in ours] == [4]
    assert [one.number for one in to_server] == [1, 2, 3, 4]
    assert [one.row["protocol"] for one in to_server] == [None, None, None, "flymq"]


def test_the_connection_that_proved_a_name_is_found_with_it() -> None:
    """fq: the user of a data connection is told by the login on its command connection."""
    rows = merged("fq/session")
    users = {row.message["connection_id"]: row.message["client_name"] for row in rows if row.message["client_name"]}
    login = {row.message["connection_id"] for row in rows if row.message["op"] == "auth"}
    data = next(one for one in users if one not in login)

    search, found = chosen("fq/session", f"connection == {data}")

    (teller,) = search.context_connections(found)
    assert teller.id in login and users[teller.id] == users[data]
    assert search.context_connections([*found, teller]) == []


def test_what_is_a_file_no_more_cannot_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "gone.pcap"
    path.write_bytes((PCAPS / "blipmq/qos1.pcap").read_bytes())
    capture = capture_of(path)
    read_again([capture])

    path.unlink()

    with pytest.raises(MqpcapError, match="is read more than once here; save it to a file"):
        read_again([capture])


def test_ends_of_version_6_stand_in_brackets() -> None:
    one = SelectedConnection({"client_ip": "fe80::1", "client_port": 1, "server_ip": "10.0.0.2", "server_port": 2})

    assert (one.end("client"), one.end("server")) == ("[fe80::1]:1", "10.0.0.2:2")
