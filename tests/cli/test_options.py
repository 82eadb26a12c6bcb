"""The options that commands share: what is misuse, and what each does."""

import fnmatch
import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import ROOT, objects, run

from mqpcap.cli import main
from mqpcap.cli.options import common, period_s
from mqpcap.errors import MisuseError, QueryError
from mqpcap.query.shortcuts import any_glob
from mqpcap.reading import SMALLEST_MEMORY_BYTES, Choices
from mqpcap.wording import misuse_of

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


def choices(*words: str) -> Choices:
    """What a command is given."""

    @click.command()
    @common
    def command(choices: Choices) -> Choices:
        return choices

    return command.main(list(words), standalone_mode=False)  # type: ignore[no-any-return]


def test_words_become_values() -> None:
    assert choices() == Choices()
    assert [choices("--bodies", word).bodies for word in ("full", "none", "17", "9" * 20)] == [None, 0, 17, 2**31 - 1]
    sizes = [choices("--max-memory", word).max_memory_bytes for word in ("2GiB", "512MB", "1048576")]
    assert sizes == [2 << 30, 512_000_000, 1 << 20]
    assert choices("--jobs", "3").core_count == 3
    rules = choices("-d", "tcp.port == 1 , FQ", "-d", "tcp.port==65535,msgq").decode_as
    assert [(rule.port, rule.protocol) for rule in rules] == [(1, "fq"), (65535, "msgq")]


def test_dissections_side_by_side_share_the_memory() -> None:
    options = Choices(max_memory_bytes=12 << 20, bodies=5, show_secrets=True).dissection(3, only=frozenset())

    assert options.max_memory_bytes == 4 << 20
    assert Choices(max_memory_bytes=12 << 20).dissection(100).max_memory_bytes == SMALLEST_MEMORY_BYTES
    assert options.optional_tables == frozenset()


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("90s", 90), ("15 m", 900), ("1H", 3600), ("2d", 172_800), ("0s", None), ("1w", None), ("", None)],
)
def test_a_period_is_a_number_with_a_unit(word: str, seconds: int | None) -> None:
    if seconds is not None:
        assert period_s(word) == seconds
        return
    with pytest.raises(ValueError, match="is no period like 1h"):
        period_s(word)


def test_what_a_filter_says_is_misuse_of_the_option_without_the_column() -> None:
    said = r"^--connection: 'seven' is no connection$"

    with pytest.raises(MisuseError, match=said), misuse_of("--connection", "connection"):
        raise QueryError("connection: 'seven' is\n no connection")


@given(st.lists(st.text("ab.*?", min_size=1), min_size=1, max_size=3), st.text("ab.\n"))
def test_a_glob_selects_as_the_shell_does(globs: list[str], topic: str) -> None:
    _, relation, words = any_glob("topic", globs)

    if relation == "in":
        selected = topic in words
    else:  # $ is the end of the text alone to Arrow, as \Z is to Python
        selected = re.search(words[0].removesuffix("$") + r"\Z", topic) is not None
    assert selected == any(fnmatch.fnmatchcase(topic, glob) for glob in globs)
