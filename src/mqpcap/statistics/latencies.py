"""Latencies of groups: percentiles of them, exact as long as there are few, then from a histogram.

A percentile is the nearest rank: of n values in order the one at place ceil(n * percent / 100). A group's percentiles
are exact up to ``EXACT_VALUES`` values, as long as all groups together hold no more than ``MAX_HELD`` of them. Beyond
that they come from a histogram whose buckets are at most ``HISTOGRAM_ERROR`` of a value wide. ``max`` is always exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
EXACT_VALUES = 1 << 16
"""Values of a group that are kept as they are."""
MAX_HELD = 1 << 22
"""The same of all groups, 16 bytes each; with more, groups become histograms."""
STEP_BITS = 7
"""Between a power of two and the next are ``2 ** STEP_BITS`` buckets."""
HISTOGRAM_ERROR = 1 / (1 << STEP_BITS)
_BUCKETS = 64 << STEP_BITS


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of a group: how many, by percent the percentiles in nanoseconds, and whether they were there."""

    count: int
    percentiles: Mapping[int, int | None]
    is_exact: bool = True


class Latencies:
    """Values in nanoseconds by the number of their group."""

    def __init__(self) -> None:
        self._groups: list[I64] = []
        self._values: list[I64] = []
        self._held = 0
        self._cells = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._largest: dict[int, int] = {}
        """Of groups that are histograms."""
        self._sorted: tuple[I64, I64] | None = None

    def add(self, groups: I64, values_ns: I64) -> None:
        """Take values in, each with its group."""
        if len(groups):
            self._groups.append(groups)
            self._values.append(values_ns)
            self._held += len(groups)
            self._sorted = None
            if self._held > MAX_HELD:
                self._shrink()

    def summaries(self, percents: Sequence[int], group_count: int) -> "list[Summary]":
        """How many values each group has, and its percentiles."""
        groups, values = self._in_order()
        bounds = np.searchsorted(groups, np.arange(group_count + 1))
        counts = np.diff(bounds)
        places = [np.maximum(bounds[:-1] + (counts * percent + 99) // 100 - 1, 0) for percent in percents]
        found = [(values[at] if len(values) else at).tolist() for at in np.minimum(places, max(len(values) - 1, 0))]
        out = [
            Summary(count, {percent: at[i] if count else None for percent, at in zip(percents, found, strict=True)})
            for i, count in enumerate(counts.tolist())
        ]
        for group, largest in self._largest.items():
            out[group] = self._of_histogram(percents, group, largest, values[bounds[group] : bounds[group + 1]])
        return out

    def _of_histogram(self, percents: Sequence[int], group: int, largest: int, exact: I64) -> "Summary":
        one, two = np.searchsorted(self._cells, [group * _BUCKETS, (group + 1) * _BUCKETS])
        buckets = np.concatenate([self._cells[one:two] - group * _BUCKETS, bucket(exact)])
        counts = np.concatenate([self._counts[one:two], np.ones(len(exact), np.int64)])
        order = np.argsort(buckets, kind="stable")
        up_to = np.cumsum(counts[order])
        total, largest = int(up_to[-1]), max(largest, int(exact.max(initial=0)))
        places = [int(np.searchsorted(up_to, (total * percent + 99) // 100)) for percent in percents]
        found = [min(middle_ns(int(buckets[order[place]])), largest) for place in places]
        return Summary(total, {p: largest if p == 100 else x for p, x in zip(percents, found, strict=True)}, False)

    def _in_order(self) -> tuple[I64, I64]:
        """The values that are kept, by group and size."""
        if self._sorted is None:
            self._gather()
            order = np.lexsort((self._values[0], self._groups[0]))
            self._sorted = self._groups[0][order], self._values[0][order]
        return self._sorted

    def _gather(self) -> None:
        self._groups = [np.concatenate([np.empty(0, np.int64), *self._groups])]
        self._values = [np.concatenate([np.empty(0, np.int64), *self._values])]

    def _shrink(self) -> None:
        """Make histograms of groups with many values; of all where that is not enough."""
        self._gather()
        groups, values = self._groups[0], self._values[0]
        many = np.bincount(groups) > EXACT_VALUES
        many[[group for group in self._largest if group < len(many)]] = True
        if len(groups) - many[groups].sum() > MAX_HELD // 2:
            many[:] = True
        goes = many[groups]
        for group in np.unique(groups[goes]).tolist():
            self._largest[group] = max(self._largest.get(group, 0), int(values[groups == group].max()))
        cells = np.concatenate([self._cells, groups[goes] * _BUCKETS + bucket(values[goes])])
        counts = np.concatenate([self._counts, np.ones(int(goes.sum()), np.int64)])
        self._cells, place = np.unique(cells, return_inverse=True)
        self._counts = np.bincount(place, counts, len(self._cells)).astype(np.int64)
        self._groups, self._values = [groups[~goes]], [values[~goes]]
        self._held = len(self._groups[0])


def bucket(values_ns: I64) -> I64:
    """The bucket of each value: its own below ``2 ** STEP_BITS``, then ever wider ones.

    >>> bucket(np.array([0, 127, 128, 255, 256, 257, 258])).tolist()
    [0, 127, 128, 255, 256, 256, 257]
    """
    values = np.maximum(values_ns, 0)
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - 1 - STEP_BITS, 0).astype(np.int64)
    buckets: I64 = (shift << STEP_BITS) + (values >> shift)
    return buckets


def middle_ns(number: int) -> int:
    """The middle of a bucket.

    >>> middle_ns(127), middle_ns(256)
    (127, 257)
    """
    shift = max((number >> STEP_BITS) - 1, 0)
    low = (number - (shift << STEP_BITS)) << shift
    return low + (1 << shift >> 1)
