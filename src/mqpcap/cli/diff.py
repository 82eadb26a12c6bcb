"""``mqpcap diff``: what is new, gone or slower from one capture to another, a section for each kind of change."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import metered, print_note, put
from mqpcap.cli.options import Parsed, common, filter_options, utc_option
from mqpcap.cli.reading import finish, found
from mqpcap.cli.rows import write
from mqpcap.reading import Choices, Outcome, background, size_bytes
from mqpcap.statistics.report_columns import Cells, Column, cell
from mqpcap.wording import plural, shown

if TYPE_CHECKING:
    from mqpcap.query import Query
    from mqpcap.statistics.changes import Change
    from mqpcap.statistics.timeline import Total

MOST_NAMED = 5
"""Changed groups that --fail-on names."""
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


def _failure(word: str) -> tuple[str, float | None]:
    """``slower:20%`` as a kind and a percentage."""
    from mqpcap.statistics.changes import KINDS, MEASURED

    match = re.fullmatch(r"([a-z ]+?)(?::(\d{1,6}(?:\.\d{1,3})?)\s*%?)?", word.strip().lower())
    if match is None or match[1] not in KINDS or (match[2] and match[1] not in MEASURED):
        raise ValueError(f"{word!r} is no change like slower:20% or new; there are {', '.join(KINDS)}")
    return match[1], float(match[2]) if match[2] else None


@command(epilog="Example: mqpcap diff pcaps/flymq/core.pcap pcaps/flymq/fetch.pcap")
@click.argument("before_path", metavar="A", type=click.Path(readable=False))
@click.argument("after_path", metavar="B", type=click.Path(readable=False))
@click.option("--all", "every", is_flag=True, help="Write the groups that are alike, too.")
@click.option("--fail-on", "fail_on", multiple=True, type=Parsed(_failure), metavar="KIND[:N%]",
              help="Exit 1 if there is such a change: new, gone, more, fewer, slower, faster or fails; slower:20% "
                   "is any operation whose median or 95th percentile grew by 20 % (repeatable).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object, with times in nanoseconds.")
@utc_option
@filter_options
@common
def diff(
    before_path: str, after_path: str, every: bool, fail_on: "Sequence[tuple[str, float | None]]", as_json: bool,
    utc: bool, wanted: "Query | None", choices: Choices,
) -> None:  # fmt: skip
    """Compare captures: what is new, gone, slower or fails.

    Operations, errors, latencies, topics and clients are compared. A and B are a capture or a directory of captures
    each. Sections are new, gone, more, fewer, slower, faster, fails, fails no more and too few to judge; cells are
    A -> B. An operation is slower if its median or its 95th percentile is at least 1.5 times the
    earlier value and 1 ms more; each side needs 20 answered requests. A group has more messages if it has twice as
    many and 20 more. It fails if it has errors in B and had none in A. Faster and fewer are the reverse. If 1 % or
    more of a capture is missing, no group is called alike or different: it is not to be trusted. A difference is no
    failure, exit 0, unless --fail-on names it.
    """
    from mqpcap.statistics.changes import compared, count_side, new_side
    from mqpcap.tables.json_lines import json_text

    if before_path == after_path == "-":
        raise click.UsageError("only one of A and B can be standard input")
    outcome = Outcome(choices)
    sides = [new_side(x, name, found([name], outcome)) for x, name in (("A", before_path), ("B", after_path))]
    total_bytes = size_bytes([x for side in sides for x in side.captures])
    with metered(total_bytes, choices.quiet) as meter, background(choices, total_bytes) as worker:
        for side in sides:
            count_side(side, outcome, meter, worker, wanted)
    if outcome.unreadable and not all(side.total.messages for side in sides):
        finish(outcome)  # half of a comparison would say that all is gone
    comparison = compared(sides)
    outcome.notes += comparison.notes()
    if as_json:
        put(json_text(comparison.as_json(every)))
    else:
        for side in sides:
            put(f"{side.letter}  {shown(side.name)}: {_size(side.total)}")
            for doubt in side.doubts:
                put(f"   {shown(doubt)}")
        for name, groups in comparison.sections().items():
            _write_section(name, groups, every or name not in UNCHANGED)
    for kind, percent in fail_on:
        if failures := comparison.failures(kind, percent):
            words = f"{kind} by {percent:g} % or more" if percent is not None else kind
            print_note(
                f"mqpcap: --fail-on: {plural(len(failures), 'group is', 'groups are')} {words}: {_names(failures)}"
            )
            outcome.is_failed = True
    finish(outcome)


def _names(failures: "Sequence[Change]") -> str:
    names = [" ".join(str(value) for value in change.key.values() if value is not None) for change in failures]
    return ", ".join(map(shown, names[:MOST_NAMED])) + (" ..." if len(names) > MOST_NAMED else "")


def _size(total: "Total") -> str:
    if total.first_ns is None or total.last_ns is None:
        return "no messages"
    return f"{plural(total.messages, 'message')} in {(total.last_ns - total.first_ns) / 1e9:,.3f} s"


def _write_section(name: str, groups: "Sequence[tuple[str, Change]]", has_rows: bool) -> None:
    """How many operations, topics and clients are in a section, then a row for each."""
    counts = Counter(part[:-1] for part, _ in groups)
    is_doubtful = name != UNTRUSTED and any(change.judgement == UNTRUSTED for _, change in groups)
    title = f"{name} ({UNTRUSTED})" if is_doubtful else name
    put(f"\n{title}: " + ", ".join(plural(count, part) for part, count in counts.items()))
    values = (*COUNTS, *(LATENCIES if "operation" in counts else ()))
    keys = [key for key in KEYS if key.name != "name" or any(change.key.get("name") for _, change in groups)]
    has_two = any(change.a and change.b for _, change in groups)
    columns = [*keys, *(replace(column, kind="plain") for column in values)] if has_two else [*keys, *values]
    if has_rows:
        write(columns, [_cells(part[:-1], change, values, has_two) for part, change in groups], "text")


def _cells(part: str, change: "Change", columns: Sequence[Column], has_two: bool) -> Cells:
    """A group and the values of both sides, once where they are the same; or those of the only side."""
    sides = [row for row in (change.a, change.b) if row is not None]
    cells = {**change.key, "part": part, "group": change.key[_GROUPS.get(part, part)]}
    for column in columns if part == "operation" else COUNTS:  # latencies of others depend on their mix of operations
        texts = dict.fromkeys(cell(column, row[column.name], utc=True) for row in sides)
        cells[column.name] = " -> ".join(texts) if has_two else sides[0][column.name]
    return cells
