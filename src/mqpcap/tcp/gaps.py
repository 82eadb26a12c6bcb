"""Gaps: the holes of each side that were given up."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.ranges import RangeList, outside

MAX_GAP_TIMES = 1 << 16
"""Gaps of all sides whose times are kept; with more, all times up to then are forgotten."""


class Gap(NamedTuple):
    """A hole that was given up, as far as it is still missing; ts_ns and packet as in `StreamRange`."""

    low: int
    high: int
    ts_ns: int = 0
    packet: int = 0
    snapped: bool = False

    def part(self, low: int, high: int) -> "Gap":
        """The gap from offset low to below high."""
        return self._replace(low=low, high=high)

    def without(self, low: int, high: int, packet: int) -> list["Gap"]:
        """What is left when a packet has brought the bytes from low to below high."""
        return [gap if gap.low < low else gap._replace(packet=packet) for gap in outside(self, low, high)]


class GapTimes:
    """When a packet first showed the bytes of each gap: a later packet of its side, or an acknowledgement.

    Sides are named by the number of the connection * 2 + side. A gap that late bytes fill keeps its time.
    """

    def __init__(self) -> None:
        self._gaps: dict[int, list[tuple[int, int, int]]] = {}
        """By side: end, length and time of each gap, in order."""
        self._count = 0

    def add(self, side: int, end: int, length: int, ns: int) -> None:
        """Add the next gap of a side."""
        if self._count >= MAX_GAP_TIMES:
            self._gaps, self._count = {}, 0
        self._gaps.setdefault(side, []).append((end, length, ns))
        self._count += 1

    def forget(self, sides: set[int]) -> None:
        """Drop the times of sides."""
        for side in self._gaps.keys() & sides:
            self._count -= len(self._gaps.pop(side))

    def shown_ns(
        self, side: Int64Array, offset: Int64Array, gap_before: Int64Array, is_truncated: NDArray[np.bool_]
    ) -> Int64Array:
        """The time of the first gap before each message or, if it is truncated, in it; 0 if there is none."""
        shown_ns = np.zeros(len(side), np.int64)
        for k in np.flatnonzero((gap_before > 0) | is_truncated).tolist():
            gaps = self._gaps.get(int(side[k]), [])
            index = end = bisect_right(gaps, int(offset[k]), key=lambda gap: gap[0])
            missing = int(gap_before[k])
            while missing > 0 and index > 0:
                index -= 1
                missing -= gaps[index][1]
            if index < (len(gaps) if is_truncated[k] else end):
                shown_ns[k] = gaps[index][2]
        return shown_ns


class Gaps:
    """The gaps of all sides, by index of the side in the flow table.

    ``trailing``: sides that ended with a gap in this feed.
    """

    def __init__(self) -> None:
        self.by_side: dict[int, RangeList[Gap]] = {}
        self.trailing: set[int] = set()
        self.times = GapTimes()

    def add(self, side: int, gap: Gap) -> None:
        """Add a gap that touches no other gap of its side."""
        self.by_side.setdefault(side, RangeList()).add(gap)

    def overlapping(self, side: int, low: int, high: int) -> list[Gap]:
        """The gaps of a side with a byte from low to below high."""
        return self.by_side[side].overlapping(low, high) if side in self.by_side else []

    def reset_feed(self) -> None:
        """Clear the state of this feed."""
        self.trailing.clear()

    def __iter__(self) -> Iterator[StreamRange]:
        for side, gaps in self.by_side.items():
            for gap in gaps:
                yield StreamRange(side >> 1, side & 1, gap.low, gap.high - gap.low, gap.ts_ns, gap.snapped, gap.packet)
