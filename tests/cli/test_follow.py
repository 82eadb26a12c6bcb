"""``mqpcap follow``: one connection as a conversation."""

import json
import re

import pytest
from running import ROOT, lines_on_terminal, run

QOS1 = "pcaps/blipmq/qos1.pcap"
CORE = "pcaps/flymq/core.pcap"


def test_replies_stand_under_their_requests() -> None:
    said = run("follow", "-q", "-u", CORE, "--connection", "c1").stdout.splitlines()[3:]
    lines = [line for line in said if re.match(r" *\d\d:\d\d:\d\d", line)]
    rows = [json.loads(line) for line in run("show", "-q", "--json", CORE).stdout.splitlines()]
    requests = {row["first_packet"]: row["exchange"]["reply_packet"] for row in rows if row["direction"] == "c2s"}

    packets = [(line.startswith("    "), int(line.split("#")[1].split()[0])) for line in lines]

    assert packets == [pair for asked, told in requests.items() for pair in ((False, asked), (True, told))]
    assert all(" <- " in line for line in lines if line.startswith("    "))
    assert all(" -> " in line for line in lines if not line.startswith("    "))


def test_requests_in_one_packet_have_each_its_own_reply() -> None:
    """Of those in packet 210 four are answered, all in packet 213: ids and codes tell which is whose."""
    said = run("follow", "-q", "-u", QOS1, "--connection", "127.0.0.1:39360").stdout.splitlines()

    here = [line.split("Z  ", 1)[1] for line in said if re.search(r"#21[03] ", line) and " => " not in line]

    begin = here.index("#210    -> PING  id=2")
    assert [re.sub(r"  in .*$", "", line) for line in here[begin:]] == [
        "#210    -> PING  id=2",
        "#213    <- PONG  id=2  ok",
        '#210    -> PUBLISH  ""  id=4  0 B',
        '#213    <- NACK  id=4  error 400 "empty topic"',
        "#210    -> ACK  id=4",
        '#213    <- NACK  id=4  error 404 "unknown subscription or delivery tag"',
        "#210    -> PING  id=10",
        "#213    <- PONG  id=10  ok",
    ]


def test_bodies_are_wrapped_and_other_bytes_dumped() -> None:
    said = run("follow", "-q", "-u", CORE, "--connection", "c1").stdout.splitlines()

    assert max(map(len, said)) <= 110
    assert '        {"id":2,"total":19.5}' in said
    assert "        0000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  ................" in said


def test_json_is_what_show_says_of_the_connection() -> None:
    shown = run("show", "-q", "--json", "--client", "127.0.0.1:39304", QOS1).stdout

    assert run("follow", "-q", "--json", QOS1, "--connection", "127.0.0.1:39304").stdout == shown
    assert shown


def test_a_filter_may_name_the_connection() -> None:
    by_filter = run("follow", "-q", "-u", QOS1, "--grep", "first")
    rows = [json.loads(line) for line in run("show", "-q", "--json", "--grep", "first", QOS1).stdout.splitlines()]
    (number,) = {row["connection_id"] for row in rows}

    assert by_filter.stdout == run("follow", "-q", "-u", QOS1, "--connection", number).stdout
    assert len(by_filter.stdout.splitlines()) > 10


def test_several_connections_are_listed() -> None:
    result = run("follow", QOS1, "--op", "PING")

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert (
        "10 connections match; say which with --connection: c1 (127.0.0.1:39290 -> 127.0.0.1:5555), c3 "
        in result.stderr
    )
    assert result.stderr.rstrip().endswith(", and 2 more")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((QOS1, "--json"), 2, "name the connection"),
        ((QOS1, "--connection", "x"), 2, "'x' is no connection; say c7, IP:PORT or a connection_id"),
        ((QOS1, "--connection", "c99"), 1, "none of 15 connections matches"),
        ((QOS1, "--op", "PIN"), 1, "operations here: ACK, AUTH"),
        ((QOS1, "--connection", "c1", "--raw", "c2s", "--json"), 2, "--raw writes bytes"),
        (("missing.pcap", "--connection", "c1"), 1, "missing.pcap: no such file"),
        (("-", "--connection", "c1"), 1, "save it to a file"),
    ],
)
def test_an_input_that_cannot_be_followed_is_reported(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run("follow", *arguments, stdin=(ROOT / QOS1).read_bytes())

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in " ".join(result.stderr.split())
    assert code == 2 or len(result.stderr.splitlines()) == 1


def test_a_connection_of_a_foreign_protocol_is_reported() -> None:
    said = run("follow", "-u", "pcaps/flymq/tls.pcap", "--connection", "c1").stdout

    assert "encrypted (TLS)" in said.splitlines()[0]


def test_the_heading_fits_a_terminal() -> None:
    assert max(map(len, lines_on_terminal(80, "follow", "-q", "pcaps/blipmq/qos1.pcap", "c1")[:4])) <= 80
