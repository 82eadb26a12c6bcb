"""Lines of messages: their words, times and widths."""

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import lines_on_terminal, run
from torture import SYN, Segment, pcap

from mqpcap.listing.message_lines import fit_width, tree
from mqpcap.listing.message_words import LinePart

QOS1 = "pcaps/blipmq/qos1.pcap"
CORE = "pcaps/flymq/core.pcap"
SAMPLES = [QOS1, "pcaps/kokaq/doc_session.pcap", "pcaps/fq/session.pcap", "pcaps/faults/fq_snapped.pcap"]


def test_a_line_has_endpoints_operation_and_outcome() -> None:
    said = run("show", "-q", "-u", "--op", "nack", QOS1).stdout.splitlines()[0]

    assert re.match(r"05:24:[\d.]+Z  #\d+ +c1 +127\.0\.0\.1:\d+ <- 127\.0\.0\.1:5555  blipmq/v1  NACK  id=\d+", said)
    assert "error 404" in said


def test_a_flaw_is_said_in_words() -> None:
    said = run("show", "-q", "pcaps/blipmq/errors.pcap").stdout

    assert "[flaw: malformed]" in said
    assert "\x1b" not in said


def line_of(topic: str) -> str:
    """The line of a PUBLISH to a topic."""
    payload = b"\0" + struct.pack(">H", len(topic.encode())) + topic.encode() + b"x"
    hello = struct.pack(">IBQH", 11, 1, 1, 1)
    publish = struct.pack(">IBQ", 9 + len(payload), 3, 2) + payload
    parts = [(hello + publish)[i : i + 1400] for i in range(0, len(hello + publish), 1400)]
    segments = [Segment(b"", 1000, 0, SYN), *(Segment(part, 1001 + 1400 * i, 5001) for i, part in enumerate(parts))]
    return run("show", "-q", "-", stdin=pcap(segments, 5555)).stdout.splitlines()[-1]


def test_a_topic_with_a_blank_and_a_control_character_is_escaped_once() -> None:
    assert '  "a b\\x1b[31m"  ' in line_of("a b\x1b[31m")
    assert '  "a \\"b\\" \\\\ c"  ' in line_of('a "b" \\ c')
    assert "  a\\x1b[31m  " in line_of("a\x1b[31m")


def test_a_long_topic_is_shortened_with_its_length() -> None:
    said = line_of("t" * 65_535)

    assert f"  {'t' * 120}... (65,535 characters)  " in said
    assert len(said) < 400


def test_one_rule_for_times() -> None:
    """Local time with how far it is ahead; with -u UTC, marked Z. India is 5:30 ahead, and 2026-11-21 has no other."""
    for zone, option, time_of_day in (
        ("Asia/Kolkata", (), "10:54:09.420161+05:30"),
        ("Etc/GMT-1", (), "06:24:09.420161+01"),
        ("Asia/Kolkata", ("-u",), "05:24:09.420161Z"),
    ):
        shown_ = run("show", "-q", *option, "--op", "PUBLISH", "-c", "1", QOS1, TZ=zone)
        assert shown_.stdout.startswith(f"{time_of_day}  #12 ")
        explained = run("explain", "-q", *option, "--at", "4", QOS1, TZ=zone).stdout
        assert re.match(rf"2026-11-21 {time_of_day[:8]}\.\d{{6}}{re.escape(time_of_day[15:])}  #4 ", explained)
        about = run("info", "-q", *option, QOS1, TZ=zone).stdout
        assert f"2026-11-21 {time_of_day[:5]}" in about
        assert time_of_day[15:] + " to 2026-11-21 " in about


def test_a_line_without_room_has_no_half_of_a_latency() -> None:
    parts = [LinePart("12:00", is_fixed=True), LinePart("bind"), LinePart("=> #110 ok in 100.658 ms")]

    assert [part.text for part in fit_width(parts, 30)] == ["12:00", "bind", "=> #110 ok"]


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", SAMPLES)
def test_lines_fit_a_terminal_and_are_all_there(name: str, width: int) -> None:
    piped = run("show", "-q", "-u", name).stdout.splitlines()

    heading, *said = lines_on_terminal(width, "show", "-q", "-u", name)

    assert len(said) == len(piped)
    assert max(map(len, said)) <= width
    assert heading.endswith(", where a line says no other")
    for line, whole in zip(said, piped, strict=True):
        assert line[:29] == whole[:29]  # time, packet and connection stay
        words = re.findall(r"\S+", line)
        assert all(word.endswith("...") or word in whole for word in words), "nothing is cut inside a word"


def test_a_single_protocol_and_server_are_printed_once() -> None:
    heading, *said = lines_on_terminal(160, "show", "-q", "-u", QOS1)

    assert heading == "2026-11-21  blipmq/v1 at 127.0.0.1:5555, where a line says no other"
    assert not [line for line in said if "blipmq" in line or ":5555" in line]
    ways = {re.search(r" (->|<-) ", line).start() for line in said}  # type: ignore[union-attr]  # each has one
    assert len(ways) == 1, "columns align"


def test_a_line_with_another_server_says_so() -> None:
    """doc_session: the second connection's server is on port 4242."""
    said = lines_on_terminal(200, "show", "-q", "-u", "pcaps/kokaq/doc_session.pcap")

    others = [line for line in said if "127.0.0.1:4242  kokaq/doc" in line]
    assert others and all(" c2 " in line for line in others)


def test_a_body_goes_before_the_status_and_the_latency() -> None:
    """core.pcap, packet 26: a PRODUCE of 5 bytes, answered by packet 27 after 0.756 ms."""
    (line,) = [
        x
        for x in lines_on_terminal(80, "show", "-q", "-u", "--op", "PRODUCE", CORE)
        if "->  PRODUCE" in x and "#27" in x
    ]

    assert "  5 B  " in line and line.endswith("=> #27 ok in 0.756 ms")


def test_fitting_leaves_out_the_least_telling_first() -> None:
    parts = [
        LinePart("12:00", is_fixed=True),
        LinePart("PUBLISH"),
        LinePart("id=7", rank=6),
        LinePart("body", rank=2),
        LinePart("a b c d"),
    ]

    assert [part.text for part in fit_width(parts, 40)] == ["12:00", "PUBLISH", "id=7", "body", "a b c d"]
    assert [part.text for part in fit_width(parts, 30)] == ["12:00", "PUBLISH", "body", "a b c d"]
    assert [part.text for part in fit_width(parts, 23)] == ["12:00", "PUBLISH", "a b c d"]


PARTS = st.lists(st.builds(LinePart, st.text("ab ", min_size=1), rank=st.integers(0, 3), is_fixed=st.just(False)))


def test_a_wide_character_takes_two_columns() -> None:
    parts = [LinePart("PUBLISH", keep=2), LinePart("\u6771\u4eac" * 6), LinePart("5 B", keep=1)]

    assert [part.text for part in fit_width(parts, 38)] == [part.text for part in parts]
    assert [part.text for part in fit_width(parts, 30)] == ["PUBLISH", "\u6771\u4eac" * 3 + "...", "5 B"]


@given(st.lists(st.text("ab", min_size=1)), PARTS, st.integers(10, 60))
def test_a_fitted_line_keeps_what_is_fixed_and_has_room_for_the_rest(
    fixed: list[str], parts: list[LinePart], width: int
) -> None:
    first = [LinePart(text, is_fixed=True) for text in fixed]

    left = fit_width([*first, *parts], width)

    assert left[: len(first)] == first
    taken = sum(len(part.text) for part in left) + 2 * (len(left) - 1)
    assert taken <= width or left == first
    ranks = [part.rank for part in left if part.rank]
    gone = sorted(part.rank for part in parts if part.rank)[len(ranks) :]
    assert sorted(ranks) + gone == sorted(part.rank for part in parts if part.rank)  # the highest go first


def test_a_tree_has_a_line_for_each_field_that_is_there() -> None:
    fields = {"a": 1, "none": None, "part": {"b": b"x", "none": None}, "list": [{"k": 1, "v": None}, 2], "empty": []}

    assert list(tree(fields, {"a": {1: "ONE"}, "b": {1: "no"}})) == [
        "    a: 1 (ONE)",
        "    part",
        '      b: "x"',
        "    list: 2 in the list",
        "      [0] k=1",
        "      [1] 2",
        "    empty: 0 in the list",
    ]


def test_error_texts_and_bodies_are_shortened_not_dropped() -> None:
    """errors.truth.json: the first refusal says "invalid PUBLISH payload"; qos1.truth.json: "published as 1"."""
    refused = lines_on_terminal(80, "show", "-q", "-Y", "status == error", "-c", "1", "pcaps/blipmq/errors.pcap")[-1]
    published = lines_on_terminal(80, "show", "-q", "--topic", "low", "--op", "PUBLISH", "-c", "1", QOS1)[-1]

    assert 'error 400 "invalid' in refused and refused.endswith("<= #10")
    assert '"pub' in published and published.endswith("=> silent")
