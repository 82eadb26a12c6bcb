"""Compares groups of two captures: new, gone, more, fewer, slower, failing, alike, or in doubt.

A group is slower if its median or its 95th percentile is at least ``SLOWER_RATIO`` times the earlier value and
``SLOWER_NS`` more. Each side needs ``SLOWER_LEAST`` answered requests. Faster is the reverse. Mixed is slower by the
median and faster by the percentile, or the reverse. A group has more messages if it has ``MORE_RATIO`` times as many
and ``MORE_LEAST`` more; fewer is the reverse.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mqpcap.background import Background
from mqpcap.capture import Capture
from mqpcap.query import MatchTally, Query
from mqpcap.reading import Meter, Outcome
from mqpcap.statistics.capture_quality import CaptureQuality, quality_of
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.report_columns import Cells, Column, cell
from mqpcap.statistics.reports import METRICS, StatsReport, by_group
from mqpcap.statistics.row_lines import text_lines
from mqpcap.statistics.timeline import Total
from mqpcap.tables.json_lines import Json, json_object
from mqpcap.wording import plural, shown

UNTRUSTED_MISSING_PERCENT = 1.0
"""If this share of a capture is missing, its differences may come from that."""
PARTS = {
    "operations": ("protocol", "op"),
    "topics": ("protocol", "topic"),
    "clients": ("protocol", "client_ip", "name"),
}
SLOWER_RATIO = 1.5
SLOWER_NS = 1_000_000
SLOWER_LEAST = 20
SLOWER_PERCENTS = (50, 95)
MORE_RATIO = 2
MORE_LEAST = 20
KINDS = ("new", "gone", "more", "fewer", "slower", "faster", "mixed", "fails", "fails no more")
MEASURED = ("more", "fewer", "slower", "faster")
"""Kinds of change with an amount."""
Judgement = Literal["different", "alike", "too few to judge", "not to be trusted"]
SECTIONS = (*KINDS, "too few to judge", "not to be trusted", "alike")
UNTRUSTED = "not to be trusted"
UNCHANGED = ("alike", UNTRUSTED)
"""Sections whose rows --all writes."""
KEYS = (
    Column("part", "what", "plain"), Column("protocol", "protocol"), Column("group", "name"),
    Column("name", "client name"),
)  # fmt: skip
_GROUPS = {"operation": "op", "client": "client_ip"}
"""The key that names a group, where it is not the part's name."""
COUNTS = (Column("messages", "messages", "number"), Column("errors", "errors", "number"))
LATENCIES = tuple(Column(f"latency_{x}_ns", f"{x} ms", "ms", is_spare=x != "p95") for x in ("p50", "p95", "p99"))
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
    slower, faster = (compares_latencies and _is_slower(*sides) for sides in ((a, b), (b, a)))
    words = {
        "more": _has_more(a, b),
        "fewer": _has_more(b, a),
        "slower": slower and not faster,
        "faster": faster and not slower,
        "mixed": slower and faster,
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


def _growth(change: Change, kind: str, is_operation: bool) -> float:
    """How many times as slow, fast, many or few a group is on side B; 0 where that cannot be said."""
    if change.a is None or change.b is None:
        return 0.0
    if kind in ("more", "fewer"):
        pairs = [(change.a["messages"], change.b["messages"])]
    elif is_operation and min(change.a["answered"], change.b["answered"]) >= SLOWER_LEAST:
        names = [f"latency_p{percent}_ns" for percent in SLOWER_PERCENTS]
        pairs = [(change.a[name], change.b[name]) for name in names]
    else:
        return 0.0
    pairs = pairs if kind in ("more", "slower") else [pair[::-1] for pair in pairs]
    return max(after / before if before else 0.0 for before, after in pairs)


@dataclass(frozen=True, slots=True)
class Side:
    """A or B: its input, what is counted of it, and how far it can be trusted."""

    letter: str
    name: str
    captures: Sequence[Capture]
    total: Total
    reports: Mapping[str, StatsReport]
    qualities: list[CaptureQuality] = field(default_factory=list)

    @property
    def missing_percent(self) -> float:
        """The share that is missing of its worst capture."""
        return max((quality.missing_percent for quality in self.qualities), default=0.0)

    @property
    def doubts(self) -> list[str]:
        """The verdicts on captures that are not whole."""
        verdicts = [quality.verdict() for quality in self.qualities]
        return [verdict for verdict in verdicts if verdict.startswith("with care")]


def count_side(side: Side, outcome: Outcome, meter: Meter, worker: Background, wanted: Query | None = None) -> None:
    """Read the captures of a side; only selected messages are counted, but all of them judge its quality."""
    counters = sum((x.counters for x in side.reports.values()), Counters(side.total))
    if wanted is not None and outcome.tally is None:
        outcome.tally = MatchTally(wanted)
    for capture in side.captures:
        quality = quality_of(capture, outcome, meter, worker, counters)
        if quality is not None:
            side.qualities.append(quality)


def new_side(letter: str, name: str, captures: Sequence[Capture]) -> Side:
    """A side before anything is counted."""
    return Side(letter, name, captures, Total(), {part: by_group(keys, METRICS) for part, keys in PARTS.items()})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two captures compared: both sides, and by part (operations, topics, clients) every group of either side."""

    sides: Sequence[Side]
    parts: Mapping[str, Sequence[Change]]

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(groups)} {name}" for name, groups in self.sections().items())
        return f"<mqpcap.diff of {' and '.join(side.name for side in self.sides)}: {counts}>"

    def notes(self) -> list[str]:
        """Notes on groups that were too many, and on pairs that are only likely."""
        notes = [f"{x.letter}: {note}" for x in self.sides for part in x.reports.values() for note in part.notes()]
        return list(dict.fromkeys(notes))  # each part of a side counts the same pairs

    def failures(self, kind: str, percent: float | None = None) -> list[Change]:
        """Groups that changed in a way, at least by some percent where that is given; none that cannot be trusted.

        With a percent, slower and faster are judged by the largest ratio of SLOWER_PERCENTS, with SLOWER_LEAST answered
        requests on each side; more and fewer by numbers of messages.
        """
        changes = [change for part in self.parts.values() for change in part if change.judgement != "not to be trusted"]
        if percent is None or kind not in MEASURED:
            kinds = {kind, "mixed"} if kind in ("slower", "faster") else {kind}
            return [change for change in changes if not kinds.isdisjoint(change.words)]
        operations = set(map(id, self.parts["operations"]))
        return [x for x in changes if _growth(x, kind, id(x) in operations) >= 1 + percent / 100]

    def sections(self) -> dict[str, list[tuple[str, Change]]]:
        """Groups by kind of change, then by judgement where nothing changed; each with the name of its part.

        A group that is slower and fails is in both sections. Empty sections are left out.
        """
        sections: dict[str, list[tuple[str, Change]]] = {name: [] for name in SECTIONS}
        for part, groups in self.parts.items():
            for change in groups:
                for name in change.words or (change.judgement,):
                    sections[name].append((part, change))
        return {name: groups for name, groups in sections.items() if groups}

    def lines(self, every: bool = False, width: int | None = None, has_bold: bool = False) -> Iterator[str]:
        """The comparison for people; ``every``: also the rows of sections that did not change."""
        for side in self.sides:
            yield f"{side.letter}  {shown(side.name)}: {_size(side.total)}"
            yield from (f"   {shown(doubt)}" for doubt in side.doubts)
        for name, groups in self.sections().items():
            yield from _section_lines(name, groups, every or name not in UNCHANGED, width, has_bold)

    def as_json(self, every: bool = False) -> Mapping[str, Json]:
        """The object that ``diff --json`` writes; ``every``: also groups that did not change."""
        result: dict[str, Json] = {
            x.letter.lower(): {
                "input": x.name, "messages": x.total.messages,
                **json_object({"first_ts_ns": x.total.first_ns, "last_ts_ns": x.total.last_ns}),
                "verdicts": [quality.verdict() for quality in x.qualities], "missing_percent": x.missing_percent,
                "loss_percent": max((quality.loss_percent for quality in x.qualities), default=0.0),
            } for x in self.sides
        }  # fmt: skip
        result["slower"] = {
            "percents": list(SLOWER_PERCENTS), "ratio": SLOWER_RATIO, "more_ns": SLOWER_NS,
            "answered_at_least": SLOWER_LEAST,
        }  # fmt: skip
        for name, part in self.parts.items():
            result[name] = [_change_as_json(change) for change in part if every or change.words]
        return result


def compared(sides: Sequence[Side]) -> Comparison:
    """The comparison of two sides that were counted."""
    is_trusted = all(side.missing_percent < UNTRUSTED_MISSING_PERCENT for side in sides)
    parts = {}
    for name, key_names in PARTS.items():
        a, b = (side.reports[name].rows() for side in sides)
        parts[name] = changes(key_names, a, b, name == "operations", is_trusted)
    return Comparison(sides, parts)


def _change_as_json(change: Change) -> Mapping[str, Json]:
    result = {**json_object(change.key), "change": list(change.words), "judgement": change.judgement}
    for side, row in (("a", change.a), ("b", change.b)):
        if row is not None:
            left_out = (*change.key, "latency_exact")
            result[side] = json_object({name: value for name, value in row.items() if name not in left_out})
    return result


def _size(total: Total) -> str:
    if total.first_ns is None or total.last_ns is None:
        return "no messages"
    return f"{plural(total.messages, 'message')} in {(total.last_ns - total.first_ns) / 1e9:,.3f} s"


def _section_lines(
    name: str, groups: Sequence[tuple[str, Change]], has_rows: bool, width: int | None, has_bold: bool
) -> Iterator[str]:
    """How many operations, topics and clients are in a section, then a row for each."""
    counts = Counter(part[:-1] for part, _ in groups)
    is_doubtful = name != UNTRUSTED and any(change.judgement == UNTRUSTED for _, change in groups)
    title = f"{name} ({UNTRUSTED})" if is_doubtful else name
    yield ""
    yield f"{title}: " + ", ".join(plural(count, part) for part, count in counts.items())
    values = (*COUNTS, *(LATENCIES if "operation" in counts else ()))
    keys = [key for key in KEYS if key.name != "name" or any(change.key.get("name") for _, change in groups)]
    has_two = any(change.a and change.b for _, change in groups)
    columns = [*keys, *(replace(column, kind="plain") for column in values)] if has_two else [*keys, *values]
    if has_rows:
        rows = [_cells(part[:-1], change, values, has_two) for part, change in groups]
        yield from text_lines(columns, rows, room=width, has_bold=has_bold)


def _cells(part: str, change: Change, columns: Sequence[Column], has_two: bool) -> Cells:
    """A group and the values of both sides, once where they are the same; or those of the only side."""
    sides = [row for row in (change.a, change.b) if row is not None]
    cells = {**change.key, "part": part, "group": change.key[_GROUPS.get(part, part)]}
    for column in columns if part == "operation" else COUNTS:  # latencies of others depend on their mix of operations
        texts = dict.fromkeys(cell(column, row[column.name], utc=True) for row in sides)
        cells[column.name] = " -> ".join(texts) if has_two else sides[0][column.name]
    return cells
