"""``mqpcap diff``: what is new, gone or slower from one capture to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from mqpcap.cli.console import metered, plural, put, shown
from mqpcap.cli.options import Choices, common
from mqpcap.cli.reading import Outcome, finish, found, size_bytes
from mqpcap.cli.rows import Cells, Column, cell, write
from mqpcap.cli.stats import counted

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.cli.questions import Question
    from mqpcap.statistics.changes import Change
    from mqpcap.statistics.timeline import Total
    from mqpcap.tables.json_lines import Json

PARTS = {"operations": ("protocol", "op"), "topics": ("protocol", "topic"), "clients": ("protocol", "client", "name")}
COUNTS = (Column("messages", "messages", "number"), Column("errors", "errors", "number"))
LATENCIES = tuple(Column(f"latency_{x}_ns", f"{x} ms", "ms", is_spare=x != "p95") for x in ("p50", "p95", "p99"))


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: A or B, its input, and what is counted of it."""

    letter: str
    name: str
    captures: "Sequence[Capture]"
    total: "Total"
    questions: "Mapping[str, Question]"


@click.command(epilog="Example: mqpcap diff pcaps/flymq/core.pcap pcaps/flymq/fetch.pcap")
@click.argument("before", metavar="A", type=click.Path(readable=False))
@click.argument("after", metavar="B", type=click.Path(readable=False))
@click.option("--all", "every", is_flag=True, help="What did not change, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; times in nanoseconds.")
@common
def diff(before: str, after: str, every: bool, as_json: bool, choices: Choices) -> None:
    """Compare captures: operations, errors, latencies, topics and clients.

    A and B are a capture or a directory of them each; cells say A -> B. An operation is slower where its 95th
    percentile is at least 1.5 times what it was and 1 ms more, with 20 or more answered requests on both sides; faster
    is the same the other way round. It fails where there are errors and were none. A difference is no failure: exit 0.
    """
    from mqpcap.cli.questions import METRICS, by_group
    from mqpcap.statistics.changes import changes
    from mqpcap.statistics.counters import Counters
    from mqpcap.statistics.timeline import Total

    if before == after == "-":
        raise click.UsageError("only one of A and B can be standard input")
    outcome = Outcome(choices)
    sides = [
        Side(x, name, found([name], outcome), Total(), {p: by_group(by, METRICS) for p, by in PARTS.items()})
        for x, name in (("A", before), ("B", after))
    ]
    with metered(size_bytes([x for side in sides for x in side.captures]), choices.quiet) as meter:
        for side in sides:
            counters = sum((x.counters for x in side.questions.values()), Counters(side.total))
            counted(side.captures, outcome, counters, meter)
    if outcome.unreadable and not all(side.total.messages for side in sides):
        finish(outcome)  # half of a comparison would say that all is gone
    outcome.notes += [f"{x.letter}: {note}" for x in sides for part in x.questions.values() for note in part.notes()]
    parts = {name: changes(by, *(side.questions[name].rows() for side in sides)) for name, by in PARTS.items()}
    if as_json:
        from mqpcap.tables.json_lines import json_text

        put(json_text(_as_json(parts, sides, every)))
    else:
        for side in sides:
            put(f"{side.letter}  {shown(side.name)}: {_size(side.total)}")
        for name, some in parts.items():
            _tell(name, some, every)
    finish(outcome)


def _size(total: "Total") -> str:
    if total.first_ns is None or total.last_ns is None:
        return "no messages"
    return f"{plural(total.messages, 'message')} in {(total.last_ns - total.first_ns) / 1e9:,.3f} s"


def _tell(name: str, some: "Sequence[Change]", every: bool) -> None:
    """A part as text: a line above, then a row for each change."""
    from mqpcap.cli.questions import key_columns

    changed = [change for change in some if change.words]
    put(f"\n{name}: {len(changed):,} changed, {len(some) - len(changed):,} alike")
    told = (*COUNTS, *(LATENCIES if name == "operations" else ()))
    beside = [replace(column, kind="plain") for column in told]
    columns = [Column("change", "change", "plain"), *key_columns(PARTS[name]), *beside]
    write(columns, [_cells(change, told) for change in (some if every else changed)], "text")


def _cells(change: "Change", columns: Sequence[Column]) -> Cells:
    """Values of both sides; once where they are the same."""
    cells = {**change.key, "change": ", ".join(change.words) or None}
    for column in columns:
        values = [cell(column, row and row[column.name], utc=True) for row in (change.a, change.b)]
        cells[column.name] = " -> ".join(dict.fromkeys(values))
    return cells


def _as_json(parts: "Mapping[str, Sequence[Change]]", sides: Sequence[Side], every: bool) -> "Mapping[str, Json]":
    from mqpcap.statistics.changes import SLOWER_LEAST, SLOWER_NS, SLOWER_PERCENT, SLOWER_RATIO

    out: dict[str, Json] = {
        x.letter.lower(): {
            "input": x.name, "messages": x.total.messages, "first_ts_ns": x.total.first_ns,
            "last_ts_ns": x.total.last_ns,
        } for x in sides
    }  # fmt: skip
    out["slower"] = {
        "percent": SLOWER_PERCENT, "ratio": SLOWER_RATIO, "more_ns": SLOWER_NS, "answered_at_least": SLOWER_LEAST,
    }  # fmt: skip
    for name, some in parts.items():
        out[name] = [_change_as_json(change) for change in some if every or change.words]
    return out


def _change_as_json(change: "Change") -> "Mapping[str, Json]":
    from mqpcap.tables.json_lines import json_object

    out = {**json_object(change.key), "change": list(change.words)}
    for side, row in (("a", change.a), ("b", change.b)):
        if row is not None:
            left_out = (*change.key, "latency_exact")
            out[side] = json_object({name: value for name, value in row.items() if name not in left_out})
    return out
