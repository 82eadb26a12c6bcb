"""Two overviews compared: what is new, what is gone, what became slower.

A request is slower where its 95th percentile is ``SLOWER_RATIO`` times what it was and ``SLOWER_NS`` more, out of at
least ``SLOWER_LEAST`` answered ones on either side; faster is the same the other way round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqpcap.statistics.groups import GroupRow, Groups, Key

SLOWER_RATIO = 1.5
SLOWER_NS = 1_000_000
SLOWER_LEAST = 20
SLOWER_PERCENT = 95


@dataclass(frozen=True, slots=True)
class Change:
    """One group on both sides, None where it is not there, and in words what changed; nothing where nothing did."""

    key: Key
    a: GroupRow | None
    b: GroupRow | None
    words: tuple[str, ...]


def changes(a: Groups, b: Groups) -> list[Change]:
    """Every group of either side, in order of its key."""
    one, two = _there(a), _there(b)
    keys = sorted({*one, *two}, key=lambda key: [(value is None, str(value)) for value in key])
    return [Change(key, one.get(key), two.get(key), _words(one.get(key), two.get(key))) for key in keys]


def _there(groups: Groups) -> Mapping[Key, GroupRow]:
    return {row.key: row for row in groups.rows() if row.sums["messages"] or row.sums["errors"]}


def _words(a: GroupRow | None, b: GroupRow | None) -> tuple[str, ...]:
    if a is None or b is None:
        return ("new",) if a is None else ("gone",)
    before, after = a.sums["errors"], b.sums["errors"]
    words = {
        "slower": is_slower(a, b),
        "faster": is_slower(b, a),
        "fails": after and not before,
        "fails no more": before and not after,
    }
    return tuple(word for word, is_true in words.items() if is_true)


def is_slower(a: GroupRow, b: GroupRow) -> bool:
    """Whether b took longer than a, beyond what the thresholds allow."""
    before, after = (row.latency.percentiles[SLOWER_PERCENT] for row in (a, b))
    if before is None or after is None or min(a.latency.count, b.latency.count) < SLOWER_LEAST:
        return False
    return after >= before * SLOWER_RATIO and after - before >= SLOWER_NS


def changed(some: Sequence[Change]) -> list[Change]:
    """Those that changed."""
    return [change for change in some if change.words]
