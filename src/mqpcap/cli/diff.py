"""``mqpcap diff``: what is new, gone or slower from one capture to another."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mqpcap.cli.completion import files
from mqpcap.cli.console import metered, plural, shown
from mqpcap.cli.options import Choices, common
from mqpcap.cli.reading import Outcome, finish, found, size_bytes, told_of_speed
from mqpcap.cli.rows import Cells, Column, milliseconds, write
from mqpcap.cli.stats import counted

if TYPE_CHECKING:
    from mqpcap.statistics.changes import Change
    from mqpcap.statistics.groups import GroupRow
    from mqpcap.statistics.overview import Overview
    from mqpcap.tables.json_lines import Json

PERCENTS = {50: "p50", 95: "p95", 99: "p99", 100: "max"}
COUNTS = (Column("messages", "messages", "plain"), Column("errors", "errors", "plain"))
LATENCIES = tuple(Column(word, f"{word} ms", "plain", is_spare=word != "p95") for word in ("p50", "p95", "p99"))


@click.command(epilog="Example: mqpcap diff pcaps/flymq/core.pcap pcaps/flymq/fetch.pcap")
@click.argument("before", metavar="A", shell_complete=files)
@click.argument("after", metavar="B", shell_complete=files)
@click.option("--all", "every", is_flag=True, help="What did not change, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; times in nanoseconds.")
@common
def diff(before: str, after: str, every: bool, as_json: bool, choices: Choices) -> None:
    """Compare captures: operations, errors, latencies, topics and clients.

    A and B are a capture or a directory of them each; cells say A -> B. An operation is slower where its 95th
    percentile is at least 1.5 times what it was and 1 ms more, with 20 or more answered requests on both sides; faster
    is the same the other way round. It fails where there are errors and were none. A difference is no failure: exit 0.
    """
    from mqpcap.cli.questions import beyond
    from mqpcap.statistics.changes import changed, changes
    from mqpcap.statistics.counters import Counters
    from mqpcap.statistics.overview import Overview

    if before == after == "-":
        raise click.UsageError("only one of A and B can be standard input")
    outcome = Outcome(choices)
    told_of_speed(outcome)
    sides = [(name, found([name], outcome).captures) for name in (before, after)]
    with metered(size_bytes([x for _, some in sides for x in some]), choices.quiet) as meter:
        a, b = Overview(), Overview()
        for overview, (_, captures) in zip((a, b), sides, strict=True):
            counted(captures, outcome, Counters(overview, *overview.groups), meter)
    if outcome.unreadable and not (a.messages and b.messages):
        finish(outcome)  # half of a comparison would say that all is gone
    for side, overview in (("A", a), ("B", b)):
        for groups in overview.groups:
            outcome.notes += [f"{side}: {note}" for note in beyond(groups.sums)]
    parts = {name: changes(getattr(a, name), getattr(b, name)) for name in ("operations", "topics", "clients")}
    if as_json:
        from mqpcap.tables.json_lines import json_text

        click.echo(json_text(_as_json(parts, {"a": (before, a), "b": (after, b)}, every)))
    else:
        for side, name, overview in (("A", before, a), ("B", after, b)):
            click.echo(f"{side}  {shown(name)}: {_size(overview)}")
        for name, some in parts.items():
            _tell(name, some if every else changed(some), len(some), getattr(a, name).sums.by)
    finish(outcome)


def _size(overview: "Overview") -> str:
    if overview.first_ns is None or overview.last_ns is None:
        return "no messages"
    seconds = (overview.last_ns - overview.first_ns) / 1e9
    return f"{plural(overview.messages, 'message')} in {seconds:,.3f} s"


def _tell(name: str, some: "Sequence[Change]", count: int, by: Sequence[str]) -> None:
    """A part as text: a line above, then a row for each change."""
    from mqpcap.cli.questions import key_columns

    changed = sum(bool(change.words) for change in some)
    click.echo(f"\n{name}: {changed:,} changed, {count - changed:,} alike")
    latencies = LATENCIES if name == "operations" else ()
    columns = [Column("change", "change", "plain"), *key_columns(by), *COUNTS, *latencies]
    write(columns, [_cells(by, change, bool(latencies)) for change in some], "text")


def _cells(by: Sequence[str], change: "Change", with_latencies: bool) -> Cells:
    cells: dict[str, object] = dict(zip(by, change.key, strict=False))
    cells["change"] = ", ".join(change.words) or None
    for name in ("messages", "errors"):
        cells[name] = _both(*(None if row is None else f"{row.sums[name]:,}" for row in (change.a, change.b)))
    for percent, word in PERCENTS.items() if with_latencies else ():
        cells[word] = _both(*(_ms(row, percent) for row in (change.a, change.b)))
    return cells


def _ms(row: "GroupRow | None", percent: int) -> str | None:
    value = None if row is None else row.latency.percentiles[percent]
    return None if value is None else milliseconds(value)


def _both(before: str | None, after: str | None) -> str | None:
    """A value of both sides; once where it is the same."""
    return before if before == after else f"{before or '-'} -> {after or '-'}"


def _as_json(
    parts: "Mapping[str, Sequence[Change]]", sides: "Mapping[str, tuple[str, Overview]]", every: bool
) -> "Mapping[str, Json]":
    from mqpcap.statistics.changes import SLOWER_LEAST, SLOWER_NS, SLOWER_PERCENT, SLOWER_RATIO

    out: dict[str, Json] = {
        side: {"input": name, "messages": x.messages, "first_ts_ns": x.first_ns, "last_ts_ns": x.last_ns}
        for side, (name, x) in sides.items()
    }
    out["slower"] = {
        "percent": SLOWER_PERCENT, "ratio": SLOWER_RATIO, "more_ns": SLOWER_NS, "answered_at_least": SLOWER_LEAST,
    }  # fmt: skip
    for name, some in parts.items():
        by = getattr(sides["a"][1], name).sums.by
        out[name] = [_change_as_json(by, change) for change in some if every or change.words]
    return out


def _change_as_json(by: Sequence[str], change: "Change") -> "Mapping[str, Json]":
    out: dict[str, Json] = {name: value for name, value in zip(by, change.key, strict=False) if value is not None}
    out["change"] = list(change.words)
    for side, row in (("a", change.a), ("b", change.b)):
        if row is not None:
            latencies = {
                f"latency_{w}_ns": x for p, w in PERCENTS.items() if (x := row.latency.percentiles[p]) is not None
            }
            out[side] = {**row.sums, "answered": row.latency.count, **latencies}
    return out
