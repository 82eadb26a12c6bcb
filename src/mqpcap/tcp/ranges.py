# cython: language_level=3, annotation_typing=False
"""Ranges of a stream, in order and apart: gaps, early segments, bytes to compare with, fragments of a datagram.

A new range lies to a range of a list in one of six ways. Tests name them by their numbers::

      a range of the list         |=======|
    1 the same                    |-------|
    2 inside                        |---|
    3 around                    |-----------|
    4 over its begin            |-----|
    5 over its end                    |-----|
    6 beside                              |-----|

`RangeList.overlapping` gives the ranges of 1 to 5, `RangeList.free` the parts of the new range that are in none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

BLOCK_RANGES = 512
"""Ranges in a block of a list: a change moves only the ranges of its block."""

R = TypeVar("R", bound="Range")


class Range(Protocol):
    """Offsets from low to below high, and what belongs to them."""

    @property
    def low(self) -> int:
        """Its first offset."""

    @property
    def high(self) -> int:
        """The offset after its last one."""

    def part(self: R, low: int, high: int) -> R:
        """The range from an offset in it to below another."""


class Block(NamedTuple):
    """Bytes of a stream."""

    low: int
    body: bytes

    @property
    def high(self) -> int:
        """The offset after its last byte."""
        return self.low + len(self.body)

    def part(self, low: int, high: int) -> "Block":
        """Its bytes from offset low to below high."""
        return Block(low, self.body[low - self.low : high - self.low])


class RangeList(Generic[R]):
    """Ranges in order, none of which overlap, in blocks, so that there may be many."""

    __slots__ = ("_blocks",)

    def __init__(self, ranges: Iterable[R] = ()) -> None:
        self._blocks: list[list[R]] = [[*ranges]]

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self._blocks)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __bool__(self) -> bool:
        return bool(self._blocks[0])

    @property
    def head(self) -> R:
        """The first range. There must be one."""
        return self._blocks[0][0]

    def _find(self, low: int) -> tuple[int, int]:
        """Block and index of the first range that ends after an offset; after the last range if there is none."""
        block = bisect_right(self._blocks, low, 0, len(self._blocks) - 1, key=lambda ranges: ranges[-1].high)
        return block, bisect_right(self._blocks[block], low, key=lambda each: each.high)

    def overlapping(self, low: int, high: int) -> list[R]:
        """The ranges with an offset from low to below high."""
        block, index = self._find(low)
        overlaps: list[R] = []
        while block < len(self._blocks):
            ranges = self._blocks[block]
            while index < len(ranges):
                if ranges[index].low >= high:
                    return overlaps
                overlaps.append(ranges[index])
                index += 1
            block, index = block + 1, 0
        return overlaps

    def free(self, new: R) -> list[R]:
        """The parts of a range that overlap none of the list."""
        low, parts = new.low, []
        for old in self.overlapping(new.low, new.high):
            if low < old.low:
                parts.append(new.part(low, old.low))
            low = old.high
        return [*parts, new.part(low, new.high)] if low < new.high else parts

    def add(self, new: R) -> None:
        """Add a range that overlaps none of the list."""
        block, index = self._find(new.low)
        self._put(block, index, index, [new])

    def replace(self, old: R, new: list[R]) -> None:
        """Put parts of a range in its place."""
        block, index = self._find(old.low)
        self._put(block, index, index + 1, new)

    def drop_below(self, offset: int) -> list[R]:
        """Remove the ranges that end at or before an offset, and return them."""
        block, index = self._find(offset)
        dropped = [*chain.from_iterable(self._blocks[:block]), *self._blocks[block][:index]]
        del self._blocks[:block], self._blocks[0][:index]
        return dropped

    def _put(self, block: int, index: int, end_index: int, new: list[R]) -> None:
        ranges = self._blocks[block]
        ranges[index:end_index] = new
        if len(ranges) > BLOCK_RANGES:
            self._blocks[block : block + 1] = [ranges[: BLOCK_RANGES // 2], ranges[BLOCK_RANGES // 2 :]]
        elif not ranges and len(self._blocks) > 1:
            del self._blocks[block]


def outside(old: R, low: int, high: int) -> list[R]:
    """The parts of a range before ``low``, and from ``high`` on."""
    bounds = (old.low, min(low, old.high)), (max(high, old.low), old.high)
    return [old.part(begin, end) for begin, end in bounds if begin < end]
