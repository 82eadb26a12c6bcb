"""Latencies of groups: percentiles of them, exact as long as there are few, then of rounded values.

A percentile is the nearest rank: of n values in order the one at place ceil(n * percent / 100). A group's percentiles
are exact up to ``EXACT_VALUES`` values, as long as all groups together hold no more than ``MAX_HELD`` of them. Beyond
that its values, but for the largest, are rounded to the middle of a bucket that is at most ``HISTOGRAM_ERROR`` of a
value wide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mqpcap.arrays import I64

EXACT_VALUES = 1 << 16
"""Values of a group that are kept as they are."""
MAX_HELD = 1 << 22
"""The same of all groups, 16 bytes each; with more, groups are rounded."""
STEP_BITS = 7
"""Between a power of two and the next are ``2 ** STEP_BITS`` buckets."""
HISTOGRAM_ERROR = 1 / (1 << STEP_BITS)


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """The values of a group: how many, by percent the percentiles in nanoseconds, and whether they were there."""

    count: int
    percentiles: Mapping[int, int | None]
    is_exact: bool = True


class Latencies:
    """Values in nanoseconds by the number of their group."""

    def __init__(self) -> None:
        self._fresh: list[tuple[I64, I64]] = []
        self._merged = np.empty((3, 0), np.int64)
        """Group, value and how often it came."""
        self._rounded = np.empty(0, np.int64)
        """Groups whose values are not exact."""
        self._held = 0

    def add(self, groups: I64, values_ns: I64) -> None:
        """Take values in, each with its group."""
        self._fresh.append((groups, values_ns))
        self._held += len(groups)
        if self._held > MAX_HELD:
            self._round()

    def summaries(self, percents: Sequence[int], group_count: int) -> "list[LatencySummary]":
        """How many values each group has, and its percentiles."""
        groups, values, counts = self._in_order()
        up_to = np.append(0, np.cumsum(counts))
        bounds = up_to[np.searchsorted(groups, np.arange(group_count + 1))]
        counts = np.diff(bounds)
        ranks = [bounds[:-1] + (counts * percent + 99) // 100 for percent in percents]
        found = [np.append(0, values)[np.searchsorted(up_to, rank)].tolist() for rank in ranks]
        is_exact = ~np.isin(np.arange(group_count), self._rounded)
        return [
            LatencySummary(count, {p: at[i] if count else None for p, at in zip(percents, found, strict=True)}, exact)
            for i, (count, exact) in enumerate(zip(counts.tolist(), is_exact.tolist(), strict=True))
        ]

    def _in_order(self) -> tuple[I64, I64, I64]:
        """Groups, their values in order, and how often each came."""
        groups = np.concatenate([self._merged[0], *(groups for groups, _ in self._fresh)])
        values = np.concatenate([self._merged[1], *(values for _, values in self._fresh)])
        counts = np.append(self._merged[2], np.ones(len(groups) - self._merged.shape[1], np.int64))
        order = np.lexsort((values, groups))
        return groups[order], values[order], counts[order]

    def _round(self) -> None:
        """Round groups with many values, all where that is not enough, and make one of those that are equal."""
        groups, values, counts = self._in_order()
        goes = np.bincount(groups, counts) > EXACT_VALUES
        goes[self._rounded] = True
        if len(groups) - goes[groups].sum() > MAX_HELD // 2:
            goes[:] = True
        self._rounded = np.flatnonzero(goes)
        largest = values[np.searchsorted(groups, groups, "right") - 1]
        values = np.where(goes[groups] & (values < largest), np.minimum(rounded(values), largest), values)
        first = np.flatnonzero(np.diff(groups, prepend=-1) | np.diff(values, prepend=-1))
        self._merged = np.array([groups[first], values[first], np.add.reduceat(counts, first)])
        self._fresh = []
        self._held = int((~goes[self._merged[0]]).sum())


def rounded(values_ns: I64) -> I64:
    """The middle of each value's bucket: values below ``2 ** STEP_BITS`` have their own, then they are ever wider.

    >>> rounded(np.array([0, 127, 255, 256, 257, 258])).tolist()
    [0, 127, 255, 257, 257, 259]
    """
    values = np.maximum(values_ns, 0)
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - 1 - STEP_BITS, 0).astype(np.int64)
    middles: I64 = (values >> shift << shift) + (1 << shift >> 1)
    return middles
