"""Percentiles of latencies by group: exact for few values, from a histogram for many.

A percentile is the nearest rank: value number ceil(n * percent / 100) of n sorted values. The percentiles of a group
are exact up to ``EXACT_VALUES`` values, while all groups together hold at most ``MAX_EXACT_VALUES``. Beyond it values
are rounded to the middle of a bucket, which is at most ``HISTOGRAM_ERROR`` of the value wide; the largest stays exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mqpcap.arrays import Int64Array

EXACT_VALUES = 1 << 16
"""Values of a group that are kept exactly."""
MAX_EXACT_VALUES = 1 << 22
"""The same limit for all groups, 16 bytes a value; beyond it groups are rounded."""
STEP_BITS = 7
"""There are ``2 ** STEP_BITS`` buckets from a power of two to the next."""
PERCENTS = (50, 95, 99, 100)
"""Percentiles that reports have; 100 is the largest value."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """The values of a group: count, percentiles in nanoseconds by percent, and whether these are measured values."""

    count: int
    percentiles: Mapping[int, int | None]
    is_exact: bool = True

    def cells(self) -> dict[str, object]:
        """The percentiles as cells of a report."""
        names = (f"latency_{f'p{percent}' if percent < 100 else 'max'}_ns" for percent in PERCENTS)
        percentiles = map(self.percentiles.get, PERCENTS)
        return {**dict(zip(names, percentiles, strict=True)), "latency_exact": None if self.is_exact else False}


class Latencies:
    """Values in nanoseconds by the number of their group."""

    def __init__(self) -> None:
        self._fresh: list[tuple[Int64Array, Int64Array]] = []
        self._merged = np.empty((3, 0), np.int64)
        """Group, value and count."""
        self._rounded = np.empty(0, np.int64)
        """Groups whose values are not exact."""
        self._held = 0

    def add(self, groups: Int64Array, values_ns: Int64Array) -> None:
        """Add values, each with its group."""
        self._fresh.append((groups, values_ns))
        self._held += len(groups)
        if self._held > MAX_EXACT_VALUES:
            self._round()

    def summaries(self, percents: Sequence[int], group_count: int) -> "list[LatencySummary]":
        """The number of values of each group, and its percentiles."""
        groups, values, counts = self._in_order()
        up_to = np.append(0, np.cumsum(counts))
        bounds = up_to[np.searchsorted(groups, np.arange(group_count + 1))]
        counts = np.diff(bounds)
        ranks = [bounds[:-1] + (counts * percent + 99) // 100 for percent in percents]
        columns = [np.append(0, values)[np.searchsorted(up_to, rank)].tolist() for rank in ranks]
        is_exact = ~np.isin(np.arange(group_count), self._rounded)
        return [
            LatencySummary(count, {p: x[i] if count else None for p, x in zip(percents, columns, strict=True)}, exact)
            for i, (count, exact) in enumerate(zip(counts.tolist(), is_exact.tolist(), strict=True))
        ]

    def _in_order(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Groups, their sorted values, and the count of each value."""
        groups = np.concatenate([self._merged[0], *(groups for groups, _ in self._fresh)])
        values = np.concatenate([self._merged[1], *(values for _, values in self._fresh)])
        counts = np.append(self._merged[2], np.ones(len(groups) - self._merged.shape[1], np.int64))
        order = np.lexsort((values, groups))
        return groups[order], values[order], counts[order]

    def _round(self) -> None:
        """Round groups with many values, all groups if that is not enough, and merge equal values."""
        groups, values, counts = self._in_order()
        goes = np.bincount(groups, counts) > EXACT_VALUES
        goes[self._rounded] = True
        if len(groups) - goes[groups].sum() > MAX_EXACT_VALUES // 2:
            goes[:] = True
        self._rounded = np.flatnonzero(goes)
        largest = values[np.searchsorted(groups, groups, "right") - 1]
        values = np.where(goes[groups] & (values < largest), np.minimum(rounded(values), largest), values)
        starts = np.flatnonzero(np.diff(groups, prepend=-1) | np.diff(values, prepend=-1))
        self._merged = np.array([groups[starts], values[starts], np.add.reduceat(counts, starts)])
        self._fresh = []
        self._held = int((~goes[self._merged[0]]).sum())


def rounded(values_ns: Int64Array) -> Int64Array:
    """The middle of each value's bucket: a bucket each below ``2 ** STEP_BITS``, then wider ones.

    >>> rounded(np.array([0, 127, 255, 256, 257, 258])).tolist()
    [0, 127, 255, 257, 257, 259]
    """
    values = np.maximum(values_ns, 0)
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - 1 - STEP_BITS, 0).astype(np.int64)
    middles: Int64Array = (values >> shift << shift) + (1 << shift >> 1)
    return middles
