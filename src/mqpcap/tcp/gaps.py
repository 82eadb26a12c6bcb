"""Gaps: the holes of each side that were given up."""

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.records import dataclass
from mqpcap.tcp.chunks import StreamRange

MAX_GAP_TIMES = 1 << 16
"""Gaps of all sides whose times are kept; with more, all times up to then are forgotten."""
GAP_BLOCK = 512
"""Gaps in a block of a list: a split moves only the gaps of its block."""


@dataclass(slots=True)
class Gap:
    """A hole that was given up, as far as it is still missing; ts_ns and packet as in `StreamRange`."""

    low: int
    high: int
    ts_ns: int
    packet: int
    snapped: bool = False


class SideGaps:
    """The gaps of one side, in order and apart, in blocks, so that a side may have many."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[list[Gap]] = [[]]

    def __iter__(self) -> Iterator[Gap]:
        return (gap for block in self._blocks for gap in block)

    def _find(self, low: int) -> tuple[int, int]:
        """Block and index of the first gap that ends after an offset; after the last gap if there is none."""
        block = bisect_right(self._blocks, low, 0, len(self._blocks) - 1, key=lambda gaps: gaps[-1].high)
        return block, bisect_right(self._blocks[block], low, key=lambda gap: gap.high)

    def first(self, low: int, high: int) -> Gap | None:
        """The first gap with a byte from low to below high."""
        block, index = self._find(low)
        gaps = self._blocks[block]
        return gaps[index] if index < len(gaps) and gaps[index].low < high else None

    def add(self, gap: Gap) -> None:
        """Add a gap that touches no other gap."""
        block, index = self._find(gap.low)
        self._put(block, index, index, [gap])

    def fill(self, gap: Gap, low: int, high: int, packet: int) -> None:
        """Remove the range [low, high), which a late packet brought, from a gap; up to two smaller gaps remain."""
        block, index = self._find(gap.low)
        remainders = []
        if gap.low < low:
            remainders.append(Gap(gap.low, low, gap.ts_ns, gap.packet, gap.snapped))
        if high < gap.high:
            remainders.append(Gap(high, gap.high, gap.ts_ns, packet, gap.snapped))
        self._put(block, index, index + 1, remainders)

    def drop(self, high: int) -> bool:
        """Remove the gaps that end at or before an offset; returns whether none is left."""
        block, index = self._find(high)
        del self._blocks[:block], self._blocks[0][:index]
        return not self._blocks[0]

    def _put(self, block: int, index: int, end_index: int, new: list[Gap]) -> None:
        gaps = self._blocks[block]
        gaps[index:end_index] = new
        if len(gaps) > GAP_BLOCK:
            self._blocks[block : block + 1] = [gaps[: GAP_BLOCK // 2], gaps[GAP_BLOCK // 2 :]]
        elif not gaps and len(self._blocks) > 1:
            del self._blocks[block]


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

    def forget(self, side: int) -> None:
        """Drop the times of a side."""
        self._count -= len(self._gaps.pop(side, ()))

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
        self.by_side: dict[int, SideGaps] = {}
        self.trailing: set[int] = set()
        self.times = GapTimes()

    def add(self, side: int, gap: Gap) -> None:
        """Add a gap that touches no other gap of its side."""
        self.by_side.setdefault(side, SideGaps()).add(gap)

    def reset_feed(self) -> None:
        """Clear the state of this feed."""
        self.trailing.clear()

    def __iter__(self) -> Iterator[StreamRange]:
        for side, gaps in self.by_side.items():
            for gap in gaps:
                yield StreamRange(side >> 1, side & 1, gap.low, gap.high - gap.low, gap.ts_ns, gap.snapped, gap.packet)
