"""The torture table of reassembly: everything recoverable is found, nothing is invented, nothing comes twice."""

from functools import cache

import pytest
from torture import MAKERS, Case, Result, broken_laws, cases, pcap, places, read_together, toy_layer

MANY = 300
NAMES = [case.name for case in cases("toy", MANY)]


def case_of(protocol: str, name: str) -> Case:
    return next(case for case in cases(protocol, MANY) if case.name == name)


@cache
def results(protocol: str) -> dict[str, Result]:
    """The rows of each case."""
    with toy_layer():
        return read_together({case.name: pcap(case.segments, MAKERS[protocol][0]) for case in cases(protocol, MANY)})


@pytest.mark.parametrize("protocol", MAKERS)
@pytest.mark.parametrize("name", NAMES)
def test_recovers_all_and_invents_nothing(protocol: str, name: str) -> None:
    result = results(protocol)[name]

    with toy_layer():
        broken = broken_laws(result)

    assert result.whole() == case_of(protocol, name).recoverable
    assert {m["protocol"] for m in result.messages} == {protocol}
    assert broken == []


@pytest.mark.parametrize("name", [n for n in NAMES if "swapped" not in n])
def test_messages_come_in_order_of_the_stream(name: str) -> None:
    result = results("blipmq")[name]

    keys = [(c["first_ts_ns"], m["stream_offset"]) for m in result.messages for c in result.connections
            if c["connection_id"] == m["connection_id"]]  # fmt: skip
    assert keys == sorted(keys)


def test_the_table_says_what_was_measured() -> None:
    """The recoverable column of the table for messages of 24 bytes, as counted by hand."""
    counted = [5, 5, 5, 5, 5, 5, 5, 3, 5, 5, 5, 5, 3, 4, MANY, MANY, MANY, MANY, 4, 4]

    assert [len(case.recoverable) for case in cases("toy", MANY)] == counted
    assert places([bytes(24)] * 2) == [(0, 24), (24, 24)]


def test_the_message_with_the_hole_is_a_truncated_row() -> None:
    """Bytes 34 to 51 are lost: message 1 (24 to 48) keeps its first 10, message 2 its last 21."""
    result = results("toy")["one segment lost"]

    names = ("stream_offset", "frame_len", "flaw", "gap_before_bytes", "resynced")
    assert [tuple(m[name] for name in names) for m in result.messages] == [
        (0, 24, None, 0, True),
        (24, 10, "truncated", 0, False),
        (72, 24, None, 3, True),
        (96, 24, None, 0, False),
    ]
    problems = [(p["stream_offset"], p["length"], p["kind"], p["reason"]) for p in result.problems]
    assert sorted(problems) == [(34, 17, "gap", "lost"), (51, 21, "undecoded", "search")]
