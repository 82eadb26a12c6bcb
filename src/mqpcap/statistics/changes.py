"""Groups compared: what is new, what is gone, what became slower.

A request is slower where its 95th percentile is ``SLOWER_RATIO`` times what it was and ``SLOWER_NS`` more, out of at
least ``SLOWER_LEAST`` answered ones on either side; faster is the same the other way round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SLOWER_RATIO = 1.5
SLOWER_NS = 1_000_000
SLOWER_LEAST = 20
SLOWER_PERCENT = 95
Row = Mapping[str, Any]
"""A group: its key by name, ``errors``, ``answered`` and ``latency_p95_ns``."""


@dataclass(frozen=True, slots=True)
class Change:
    """One group on both sides, None where it is not there, and in words what changed; nothing where nothing did."""

    key: Mapping[str, object]
    a: Row | None
    b: Row | None
    words: tuple[str, ...]


def changes(by: Sequence[str], a: Sequence[Row], b: Sequence[Row]) -> list[Change]:
    """Every group of either side, in order of its key, which ``by`` names."""
    one, two = ({tuple(row.get(name) for name in by): row for row in rows} for rows in (a, b))
    keys = sorted({*one, *two}, key=lambda key: [(value is None, str(value)) for value in key])
    both = [(dict(zip(by, key, strict=True)), one.get(key), two.get(key)) for key in keys]
    return [Change(*each, _words(*each[1:])) for each in both]


def _words(a: Row | None, b: Row | None) -> tuple[str, ...]:
    if a is None or b is None:
        return ("new",) if a is None else ("gone",)
    words = {
        "slower": _is_slower(a, b),
        "faster": _is_slower(b, a),
        "fails": b["errors"] and not a["errors"],
        "fails no more": a["errors"] and not b["errors"],
    }
    return tuple(word for word, is_true in words.items() if is_true)


def _is_slower(a: Row, b: Row) -> bool:
    """Whether b took longer than a, beyond what the thresholds allow."""
    if min(a["answered"], b["answered"]) < SLOWER_LEAST:
        return False
    before, after = (row[f"latency_p{SLOWER_PERCENT}_ns"] for row in (a, b))
    return bool(after >= before * SLOWER_RATIO and after - before >= SLOWER_NS)
