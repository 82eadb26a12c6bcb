"""What selects messages, as users of tshark, grep and kcat write it."""

import pytest
from running import objects, run

QOS1 = "pcaps/blipmq/qos1.pcap"


def _ops(*words: str) -> set[object]:
    return {row["op"] for row in objects(run("show", "-q", "--json", *words, QOS1))}


def test_operations_are_globs_and_lists_in_any_case() -> None:
    assert _ops("--op", "PUB*") == {"PUBLISH"}
    assert _ops("--op", "p?ng,Poll") == {"PING", "PONG", "POLL"}
    assert _ops("--op", "ping", "--op", "POLL") == {"PING", "POLL"}


def test_a_number_is_a_port() -> None:
    by_port = run("show", "-q", "--client", "39304", QOS1).stdout

    assert by_port == run("show", "-q", "--client", "127.0.0.1:39304", QOS1).stdout != ""
    assert run("show", "-q", "-Y", "client == 39304", QOS1).stdout == by_port
    assert run("show", "-q", "--client", "99999", QOS1).exit_code == 2


def test_follow_takes_its_connection_by_position() -> None:
    assert run("follow", "-q", QOS1, "c2").stdout == run("follow", "-q", QOS1, "--connection", "c2").stdout


def test_follow_without_a_name_lists_the_connections() -> None:
    lines = run("follow", "-q", QOS1).stdout.splitlines()

    assert lines[2].split()[:5] == ["c2", "127.0.0.1:39304", "127.0.0.1:5555", "blipmq", "11"]
    assert len(lines) == 16, "15 connections"


def test_explain_takes_packets_as_lines_write_them() -> None:
    assert run("explain", "-q", QOS1, "--at", "#6").stdout == run("explain", "-q", QOS1, "--at", "6").stdout


@pytest.mark.parametrize("command", ["show", "stats"])
def test_no_match_is_1_under_e(command: str) -> None:
    assert run(command, "-e", "--op", "PING", QOS1).exit_code == 0
    assert run(command, "-e", "--op", "NOTHING", QOS1).exit_code == 1
    assert run(command, "--op", "NOTHING", QOS1).exit_code == 0
