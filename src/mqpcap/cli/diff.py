"""``mqpcap diff``: what is new, gone or slower from one capture to another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import click

from mqpcap.cli.console import Meter, metered, plural, put, shown
from mqpcap.cli.options import Choices, common
from mqpcap.cli.reading import Outcome, background, finish, found, size_bytes
from mqpcap.cli.rows import Cells, Column, cell, write

if TYPE_CHECKING:
    from mqpcap.background import Background
    from mqpcap.capture import Capture
    from mqpcap.cli.info import Report
    from mqpcap.cli.questions import Question
    from mqpcap.statistics.changes import Change
    from mqpcap.statistics.timeline import Total
    from mqpcap.tables.json_lines import Json

UNTRUSTED_LOSS_PERCENT = 1.0
"""Loss of a capture from which on its differences may come from the loss."""
JUDGEMENTS = ("different", "alike", "too few to judge", "not to be trusted")
PARTS = {"operations": ("protocol", "op"), "topics": ("protocol", "topic"), "clients": ("protocol", "client", "name")}
COUNTS = (Column("messages", "messages", "number"), Column("errors", "errors", "number"))
LATENCIES = tuple(Column(f"latency_{x}_ns", f"{x} ms", "ms", is_spare=x != "p95") for x in ("p50", "p95", "p99"))


@dataclass(frozen=True, slots=True)
class Side:
    """A or B: its input, what is counted of it, and how far it can be trusted."""

    letter: str
    name: str
    captures: "Sequence[Capture]"
    total: "Total"
    questions: "Mapping[str, Question]"
    reports: "list[Report]" = field(default_factory=list)

    @property
    def loss_percent(self) -> float:
        """The loss of its worst capture."""
        return max((report.loss_percent for report in self.reports), default=0.0)

    @property
    def doubts(self) -> list[str]:
        """The verdicts on captures that are not whole."""
        verdicts = [report.verdict() for report in self.reports]
        return [verdict for verdict in verdicts if verdict.startswith("with care")]


@click.command(epilog="Example: mqpcap diff pcaps/flymq/core.pcap pcaps/flymq/fetch.pcap")
@click.argument("before_path", metavar="A", type=click.Path(readable=False))
@click.argument("after_path", metavar="B", type=click.Path(readable=False))
@click.option("--all", "every", is_flag=True, help="What did not change, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; times in nanoseconds.")
@common
def diff(before_path: str, after_path: str, every: bool, as_json: bool, choices: Choices) -> None:
    """Compare captures: operations, errors, latencies, topics and clients.

    A and B are a capture or a directory of captures each; cells say A -> B. An operation is slower if its median or
    its 95th percentile is at least 1.5 times the earlier value and 1 ms more; each side needs 20 answered requests. A
    group has more messages if it has twice as many and 20 more. It fails if it has errors in B and had none in A.
    Faster and fewer are the reverse. If 1 % or more of a capture is missing, no group is called alike or different: it
    is not to be trusted. A difference is no failure: exit 0.
    """
    from mqpcap.cli.questions import METRICS, by_group
    from mqpcap.statistics.changes import changes
    from mqpcap.statistics.timeline import Total

    if before_path == after_path == "-":
        raise click.UsageError("only one of A and B can be standard input")
    outcome = Outcome(choices)
    sides = [
        Side(x, name, found([name], outcome), Total(), {part: by_group(keys, METRICS) for part, keys in PARTS.items()})
        for x, name in (("A", before_path), ("B", after_path))
    ]
    total_bytes = size_bytes([x for side in sides for x in side.captures])
    with metered(total_bytes, choices.quiet) as meter, background(choices, total_bytes) as worker:
        for side in sides:
            _count(side, outcome, meter, worker)
    if outcome.unreadable and not all(side.total.messages for side in sides):
        finish(outcome)  # half of a comparison would say that all is gone
    outcome.notes += [f"{x.letter}: {note}" for x in sides for part in x.questions.values() for note in part.notes()]
    is_trusted = all(side.loss_percent < UNTRUSTED_LOSS_PERCENT for side in sides)
    parts = {}
    for name, key_names in PARTS.items():
        a, b = (side.questions[name].rows() for side in sides)
        parts[name] = changes(key_names, a, b, name == "operations", is_trusted)
    if as_json:
        from mqpcap.tables.json_lines import json_text

        put(json_text(_as_json(parts, sides, every)))
    else:
        for side in sides:
            put(f"{side.letter}  {shown(side.name)}: {_size(side.total)}")
            for doubt in side.doubts:
                put(f"   {shown(doubt)}")
        for name, part in parts.items():
            _write_part(name, part, every)
    finish(outcome)


def _count(side: Side, outcome: Outcome, meter: Meter, worker: "Background") -> None:
    """Read the captures of a side."""
    from mqpcap.cli.info import report_of
    from mqpcap.statistics.counters import Counters

    counters = sum((x.counters for x in side.questions.values()), Counters(side.total))
    for capture in side.captures:
        report = report_of(capture, outcome, meter, worker, counters.take, counters.optional_tables)
        counters.end_of_capture(capture.facts)
        if report is not None:
            side.reports.append(report)


def _size(total: "Total") -> str:
    if total.first_ns is None or total.last_ns is None:
        return "no messages"
    return f"{plural(total.messages, 'message')} in {(total.last_ns - total.first_ns) / 1e9:,.3f} s"


def _write_part(name: str, part: "Sequence[Change]", every: bool) -> None:
    """A part as text: how many groups are different, alike and in doubt, then a row for each change."""
    from mqpcap.cli.questions import key_columns

    counts = Counter[str](change.judgement for change in part)
    put(f"\n{name}: " + ", ".join(f"{counts[x]:,} {x}" for x in JUDGEMENTS if counts[x] or x in JUDGEMENTS[:2]))
    compared = (*COUNTS, *(LATENCIES if name == "operations" else ()))
    columns = [
        Column("change", "change", "plain"), *key_columns(PARTS[name]),
        *(replace(column, kind="plain") for column in compared),
    ]  # fmt: skip
    write(columns, [_cells(change, compared) for change in part if every or change.words], "text")


def _cells(change: "Change", columns: Sequence[Column]) -> Cells:
    """Values of both sides; once where they are the same."""
    words = ", ".join(change.words)
    if change.judgement in ("too few to judge", "not to be trusted"):
        words = f"{words}: {change.judgement}" if words else change.judgement
    cells = {**change.key, "change": words or None}
    for column in columns:
        values = [cell(column, row and row[column.name], utc=True) for row in (change.a, change.b)]
        cells[column.name] = " -> ".join(dict.fromkeys(values))
    return cells


def _as_json(parts: "Mapping[str, Sequence[Change]]", sides: Sequence[Side], every: bool) -> "Mapping[str, Json]":
    from mqpcap.statistics.changes import SLOWER_LEAST, SLOWER_NS, SLOWER_PERCENTS, SLOWER_RATIO
    from mqpcap.tables.json_lines import json_object

    result: dict[str, Json] = {
        x.letter.lower(): {
            "input": x.name, "messages": x.total.messages,
            **json_object({"first_ts_ns": x.total.first_ns, "last_ts_ns": x.total.last_ns}),
            "verdicts": [report.verdict() for report in x.reports], "loss_percent": x.loss_percent,
        } for x in sides
    }  # fmt: skip
    result["slower"] = {
        "percents": list(SLOWER_PERCENTS), "ratio": SLOWER_RATIO, "more_ns": SLOWER_NS,
        "answered_at_least": SLOWER_LEAST,
    }  # fmt: skip
    for name, part in parts.items():
        result[name] = [_change_as_json(change) for change in part if every or change.words]
    return result


def _change_as_json(change: "Change") -> "Mapping[str, Json]":
    from mqpcap.tables.json_lines import json_object

    result = {**json_object(change.key), "change": list(change.words), "judgement": change.judgement}
    for side, row in (("a", change.a), ("b", change.b)):
        if row is not None:
            left_out = (*change.key, "latency_exact")
            result[side] = json_object({name: value for name, value in row.items() if name not in left_out})
    return result
