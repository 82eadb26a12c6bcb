"""The options that commands share: what is misuse, and what each does."""

import pytest
from running import ROOT, objects, run

from mqpcap.cli import main

QOS1 = "pcaps/blipmq/qos1.pcap"


@pytest.mark.parametrize(
    "rule", ["9092,flymq", "tcp.port==9092", "udp.port==1,flymq", "tcp.port==0,flymq", "tcp.port==70000,flymq"]
)
def test_a_rule_that_is_none_is_misuse(rule: str) -> None:
    result = run("show", "-d", rule, QOS1)

    assert result.exit_code == 2
    assert result.stdout == ""


def test_an_unknown_protocol_is_misuse_and_the_known_are_named() -> None:
    result = run("show", "-d", "tcp.port==9092,kafka", QOS1)

    assert result.exit_code == 2
    assert "'kafka' is no protocol" in result.stderr
    assert "flymq" in result.stderr


@pytest.mark.parametrize(
    "option",
    [("--bodies", "some"), ("--bodies", "-1"), ("--max-memory", "lots"), ("--max-memory", "1k"), ("--jobs", "0")],
)
def test_a_value_that_is_none_is_misuse(option: tuple[str, str]) -> None:
    assert run("show", *option, QOS1).exit_code == 2


def test_decode_as_reads_a_port_that_is_not_the_protocols() -> None:
    # qos1 with the server on port 7777, and its connections' begins taken away so that only the port can tell.
    data = bytearray((ROOT / "pcaps/faults/blipmq_no_syn.pcap").read_bytes())
    at = 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        tcp = at + 16 + 14 + 20
        for port in (tcp, tcp + 2):
            if data[port : port + 2] == (5555).to_bytes(2, "big"):
                data[port : port + 2] = (7777).to_bytes(2, "big")
        at += 16 + length

    found = run("show", "-q", "-d", "tcp.port==7777,blipmq", "-", stdin=bytes(data))
    original = run("show", "-q", "pcaps/faults/blipmq_no_syn.pcap")

    assert len(found.stdout.splitlines()) == len(original.stdout.splitlines()) > 0
    assert ":7777" in found.stdout


def test_bodies_can_be_cut_or_left_out_and_their_length_stays() -> None:
    def bodies(keep: str) -> list[tuple[object, object]]:
        rows = objects(run("show", "-q", "--json", "--bodies", keep, "--op", "PUBLISH", "-c", "1", QOS1))
        return [(row["fields"].get("body"), row["body_len"]) for row in rows]  # type: ignore[attr-defined]

    assert bodies("full") == [("first", 5)]
    assert bodies("2") == [("fi", 5)]
    assert bodies("none") == [(None, 5)]


def test_every_command_that_reads_captures_has_the_common_options() -> None:
    for name in ("export", "show", "stats", "diff", "report", "info", "explain"):
        options = {o for p in main.commands[name].params for o in p.opts}
        assert {"-d", "--show-secrets", "--bodies", "--jobs", "--max-memory", "--strict", "-q"} <= options
