"""Ranges in order: the six ways in which two may lie, and many of them against a dictionary of offsets."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.tcp.ranges import BLOCK_RANGES, Block, RangeList, outside

OLD = Block(10, b"abcdefgh")
"""The range of the list in the drawing of ``ranges``: offsets 10 to 17."""
CASES = {
    "1 the same": (10, b"ABCDEFGH", [], [OLD], []),
    "2 inside": (12, b"CDEF", [], [OLD], [(10, b"ab"), (16, b"gh")]),
    "3 around": (8, b"<<ABCDEFGH>>", [(8, b"<<"), (18, b">>")], [OLD], []),
    "4 over its begin": (8, b"<<ABCD", [(8, b"<<")], [OLD], [(14, b"efgh")]),
    "5 over its end": (14, b"EFGH>>", [(18, b">>")], [OLD], [(10, b"abcd")]),
    "6 beside": (18, b">>", [(18, b">>")], [], [OLD]),
    "6 in front": (8, b"<<", [(8, b"<<")], [], [OLD]),
}
"""Offset and bytes of a new range; its parts that are new, the ranges that it overlaps, and what it leaves of OLD."""
BLOCKS = st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=9)), max_size=20)


@pytest.mark.parametrize("case", CASES)
def test_the_six_ways_to_lie_to_a_range(case: str) -> None:
    low, body, free, known, left = CASES[case]
    ranges, new = RangeList([OLD]), Block(low, body)

    assert (ranges.free(new), ranges.overlapping(low, new.high)) == (free, known)
    assert outside(OLD, low, new.high) == left


@pytest.mark.parametrize("case", CASES)
def test_the_first_copy_stays_in_each_of_the_six_ways(case: str) -> None:
    low, body, *_ = CASES[case]
    ranges, new = RangeList([OLD]), Block(low, body)
    for part in ranges.free(new):
        ranges.add(part)

    assert b"".join(each.body for each in ranges).decode() in "<<abcdefgh>>"
    assert OLD in [*ranges]


@given(BLOCKS, st.integers(0, 70))
def test_ranges_hold_the_first_copy_of_each_offset(new: list[tuple[int, bytes]], drop_below: int) -> None:
    ranges, bytes_by_offset = RangeList[Block](), dict[int, int]()
    for low, body in new:
        known = ranges.overlapping(low, low + len(body))
        assert {x for each in known for x in range(each.low, each.high)} & {*range(low, low + len(body))} == {
            *range(low, low + len(body))
        } & bytes_by_offset.keys()
        for part in ranges.free(Block(low, body)):
            ranges.add(part)
        bytes_by_offset = {low + k: byte for k, byte in enumerate(body)} | bytes_by_offset

    assert {each.low + k: byte for each in ranges for k, byte in enumerate(each.body)} == bytes_by_offset
    assert [each.low for each in ranges] == sorted(each.low for each in ranges)
    dropped = ranges.drop_below(drop_below)
    assert all(each.high <= drop_below for each in dropped)
    assert all(each.high > drop_below for each in ranges)
    assert len(ranges) + len(dropped) > 0 or not new
    assert bool(ranges) == (len(ranges) > 0)


def test_many_ranges_are_those_of_a_list() -> None:
    """Against the plain way: a sorted list of (low, high)."""
    dice = Random(3)
    plain = [(10 * k, 10 * k + 8) for k in range(2000)]
    ranges = RangeList[Block]()
    for low, high in plain:
        ranges.add(Block(low, bytes(high - low)))
    for _ in range(6000):
        low = dice.randrange(20_000)
        high = low + dice.randrange(1, 14)
        found = ranges.overlapping(low, high)
        fits = [old for old in plain if old[0] < high and old[1] > low]
        assert [(each.low, each.high) for each in found] == fits
        for each in found:
            ranges.replace(each, outside(each, low, high))
        parts = [part for old in fits for part in ((old[0], min(low, old[1])), (max(high, old[0]), old[1]))]
        plain = sorted([old for old in plain if old not in fits] + [part for part in parts if part[0] < part[1]])

    assert [(each.low, each.high) for each in ranges] == plain
    assert (len(ranges), ranges.head.low) == (len(plain), plain[0][0])
    assert max(map(len, ranges._blocks)) <= BLOCK_RANGES
    assert [(each.low, each.high) for each in ranges.drop_below(5000)] == [old for old in plain if old[1] <= 5000]
    assert [(each.low, each.high) for each in ranges] == [old for old in plain if old[1] > 5000]
    ranges.drop_below(20_000)
    assert not ranges
