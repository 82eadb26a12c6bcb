"""Compares groups of two captures: new, gone, more, fewer, slower, failing, alike, or in doubt.

A group is slower if its median or its 95th percentile is at least ``SLOWER_RATIO`` times the earlier value and
``SLOWER_NS`` more. Each side needs ``SLOWER_LEAST`` answered requests. Faster is the reverse. A group has more messages
if it has ``MORE_RATIO`` times as many and ``MORE_LEAST`` more; fewer is the reverse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SLOWER_RATIO = 1.5
SLOWER_NS = 1_000_000
SLOWER_LEAST = 20
SLOWER_PERCENTS = (50, 95)
MORE_RATIO = 2
MORE_LEAST = 20
Judgement = Literal["different", "alike", "too few to judge", "not to be trusted"]
ChangeRow = Mapping[str, Any]
"""A group: its key by name, ``messages``, ``errors``, ``answered``, and percentiles as ``latency_p95_ns``."""


@dataclass(frozen=True, slots=True)
class Change:
    """One group on both sides, None where it does not occur; ``words`` name what changed."""

    key: Mapping[str, object]
    a: ChangeRow | None
    b: ChangeRow | None
    words: tuple[str, ...]
    judgement: Judgement


def changes(
    key_names: Sequence[str], a: Sequence[ChangeRow], b: Sequence[ChangeRow], compares_latencies: bool, is_trusted: bool
) -> list[Change]:
    """Every group of either side, in order of its key, which ``by`` names.

    ``compares_latencies``: groups are operations; the latencies of a topic or a client depend on their mix of
    operations. ``is_trusted``: both captures are whole enough that a difference is none of the capture's.
    """
    rows_a, rows_b = ({tuple(row.get(name) for name in key_names): row for row in rows} for rows in (a, b))
    keys = sorted({*rows_a, *rows_b}, key=lambda key: [(value is None, str(value)) for value in key])
    return [
        _change(
            dict(zip(key_names, key, strict=True)), rows_a.get(key), rows_b.get(key), compares_latencies, is_trusted
        )
        for key in keys
    ]


def _change(
    key: Mapping[str, object], a: ChangeRow | None, b: ChangeRow | None, compares_latencies: bool, is_trusted: bool
) -> Change:
    if a is None or b is None:
        words: tuple[str, ...] = ("new",) if a is None else ("gone",)
        are_few = False
    else:
        words = _words(a, b, compares_latencies)
        answered = a["answered"], b["answered"]
        are_few = _differs(a, b) or (compares_latencies and max(answered) > 0 and min(answered) < SLOWER_LEAST)
    if not is_trusted:
        return Change(key, a, b, words, "not to be trusted")
    return Change(key, a, b, words, "different" if words else "too few to judge" if are_few else "alike")


def _words(a: ChangeRow, b: ChangeRow, compares_latencies: bool) -> tuple[str, ...]:
    words = {
        "more": _has_more(a, b),
        "fewer": _has_more(b, a),
        "slower": compares_latencies and _is_slower(a, b),
        "faster": compares_latencies and _is_slower(b, a),
        "fails": b["errors"] and not a["errors"],
        "fails no more": a["errors"] and not b["errors"],
    }
    return tuple(word for word, is_true in words.items() if is_true)


def _differs(a: ChangeRow, b: ChangeRow) -> bool:
    """Whether numbers of messages differ by MORE_RATIO."""
    low, high = sorted((a["messages"], b["messages"]))
    return bool(high >= low * MORE_RATIO and high > low)


def _has_more(a: ChangeRow, b: ChangeRow) -> bool:
    return bool(_differs(a, b) and b["messages"] - a["messages"] >= MORE_LEAST)


def _is_slower(a: ChangeRow, b: ChangeRow) -> bool:
    """Whether b took longer than a, beyond the thresholds."""
    if min(a["answered"], b["answered"]) < SLOWER_LEAST:
        return False
    pairs = [(a[f"latency_p{percent}_ns"], b[f"latency_p{percent}_ns"]) for percent in SLOWER_PERCENTS]
    return any(b_ns >= a_ns * SLOWER_RATIO and b_ns - a_ns >= SLOWER_NS for a_ns, b_ns in pairs)
