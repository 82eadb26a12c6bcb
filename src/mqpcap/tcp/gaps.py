"""Bytes that were never captured: the holes of each side that were given up."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from mqpcap.tcp.chunks import Range

GAP_BLOCK = 512
"""Gaps of a side that are moved together when one is split or filled."""


@dataclass(slots=True)
class Gap:
    """A hole that was given up, as far as it is still missing; ts_ns and packet are those of `Range`."""

    low: int
    high: int
    ts_ns: int
    packet: int
    snapped: bool = False


class SideGaps:
    """The gaps of one side, in order and apart, in blocks: one filled or split costs no more where there are many."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[list[Gap]] = [[]]

    def __iter__(self) -> Iterator[Gap]:
        return (gap for block in self._blocks for gap in block)

    def _place(self, low: int) -> tuple[int, int]:
        """Block and place in it of the first gap that ends behind an offset; behind the last one if there is none."""
        block = bisect_right(self._blocks, low, 0, len(self._blocks) - 1, key=lambda gaps: gaps[-1].high)
        return block, bisect_right(self._blocks[block], low, key=lambda gap: gap.high)

    def first(self, low: int, high: int) -> Gap | None:
        """The first gap with a byte from low to below high."""
        block, index = self._place(low)
        gaps = self._blocks[block]
        return gaps[index] if index < len(gaps) and gaps[index].low < high else None

    def add(self, gap: Gap) -> None:
        """Take in a gap apart from the others."""
        block, index = self._place(gap.low)
        self._put(block, index, index, [gap])

    def fill(self, gap: Gap, low: int, high: int, packet: int) -> None:
        """Let only those parts be left of a gap that a packet with its bytes from low to below high did not bring."""
        block, index = self._place(gap.low)
        left = []
        if gap.low < low:
            left.append(Gap(gap.low, low, gap.ts_ns, gap.packet, gap.snapped))
        if high < gap.high:
            left.append(Gap(high, gap.high, gap.ts_ns, packet, gap.snapped))
        self._put(block, index, index + 1, left)

    def drop(self, high: int) -> bool:
        """Leave out those that end at an offset or before; whether none is left."""
        block, index = self._place(high)
        del self._blocks[:block], self._blocks[0][:index]
        return not self._blocks[0]

    def _put(self, block: int, index: int, end_index: int, new: list[Gap]) -> None:
        gaps = self._blocks[block]
        gaps[index:end_index] = new
        if len(gaps) > GAP_BLOCK:
            self._blocks[block : block + 1] = [gaps[: GAP_BLOCK // 2], gaps[GAP_BLOCK // 2 :]]
        elif not gaps and len(self._blocks) > 1:
            del self._blocks[block]


class Gaps:
    """The gaps of all sides, by place of the side in the flow table.

    ``trailing``: sides that ended with a gap in this feed.
    """

    def __init__(self) -> None:
        self.of: dict[int, SideGaps] = {}
        self.trailing: set[int] = set()

    def add(self, side: int, gap: Gap) -> None:
        """Take in a gap apart from the others of its side."""
        self.of.setdefault(side, SideGaps()).add(gap)

    def clear_news(self) -> None:
        """Go on to the next feed."""
        self.trailing.clear()

    def __iter__(self) -> Iterator[Range]:
        for side, gaps in self.of.items():
            for gap in gaps:
                yield Range(side >> 1, side & 1, gap.low, gap.high - gap.low, gap.ts_ns, gap.snapped, gap.packet)
