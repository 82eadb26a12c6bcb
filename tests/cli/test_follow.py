"""``mqpcap follow``: one connection as a conversation, and the bytes of a side."""

import json
import re
import shutil
import subprocess

import pytest
from running import COMMAND, ROOT, environment, run

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
        ((QOS1,), 2, "name the connection"),
        ((QOS1, "--connection", "x"), 2, "'x' is no connection; say c7, IP:PORT or a connection_id"),
        ((QOS1, "--connection", "c99"), 1, "none of 15 connections matches"),
        ((QOS1, "--op", "PIN"), 1, "operations here: ACK, AUTH"),
        ((QOS1, "--connection", "c1", "--raw", "c2s", "--json"), 2, "--raw writes bytes"),
        (("missing.pcap", "--connection", "c1"), 1, "missing.pcap: no such file"),
        (("-", "--connection", "c1"), 1, "save it to a file"),
    ],
)
def test_what_cannot_be_followed_is_told(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run("follow", *arguments, stdin=(ROOT / QOS1).read_bytes())

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in " ".join(result.stderr.split())
    assert code == 2 or len(result.stderr.splitlines()) == 1


def test_a_connection_that_is_not_ours_is_told_so() -> None:
    said = run("follow", "-u", "pcaps/flymq/tls.pcap", "--connection", "c1").stdout

    assert "encrypted (TLS)" in said.splitlines()[0]


# -- raw -------------------------------------------------------------------------------------------------


def raw(*arguments: str) -> tuple[bytes, str]:
    ended = subprocess.run(
        [*COMMAND, "follow", *arguments], cwd=ROOT, env=environment(), capture_output=True, check=True
    )
    return ended.stdout, ended.stderr.decode()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark on PATH")
@pytest.mark.parametrize("path", [QOS1, CORE, "pcaps/faults/fq_reordered.pcap", "pcaps/faults/msgq_reordered.pcap"])
def test_raw_bytes_are_those_that_tshark_follows(path: str) -> None:
    told = subprocess.run(
        ["tshark", "-r", path, "-q", "-z", "follow,tcp,raw,0", "-o", "tcp.reassemble_out_of_order:TRUE"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = told.stdout.split("Node 1:")[1].splitlines()[1:-1]
    sides = {
        "c2s": b"".join(bytes.fromhex(line) for line in lines if not line.startswith("\t")),
        "s2c": b"".join(bytes.fromhex(line) for line in lines if line.startswith("\t")),
    }
    for direction, data in sides.items():
        assert raw(path, "--connection", "c1", "--raw", direction, "--show-secrets")[0] == data
        assert data


def test_raw_bytes_hide_secrets_unless_asked() -> None:
    veiled, said = raw(QOS1, "--connection", "c1", "--raw", "c2s")
    bare, _ = raw(QOS1, "--connection", "c1", "--raw", "c2s", "--show-secrets")

    assert b"dev-key" in bare
    assert veiled == bare.replace(b"dev-key", b"*******")
    assert "7 bytes may be secret" in said


def test_raw_bytes_behind_a_gap_go_on_and_it_is_told() -> None:
    rows = [
        json.loads(line)
        for line in run(
            "show", "-q", "--json", "-Y", "gap_before_bytes > 0", "pcaps/faults/blipmq_lost.pcap"
        ).stdout.splitlines()
    ]
    (row,) = rows

    data, said = raw(
        "pcaps/faults/blipmq_lost.pcap",
        "--connection",
        row["connection_id"],
        "--raw",
        row["direction"],
        "--show-secrets",
    )

    assert "21 bytes were never captured" in said
    whole, _ = raw(
        "pcaps/blipmq/qos1.pcap", "--client", f"{row['src_ip']}:{row['src_port']}", "--raw", row["direction"],
        "--show-secrets",
    )  # fmt: skip
    at = row["stream_offset"]
    assert data == whole[: at - 21] + whole[at:]
