"""``mqpcap diff``: what is new, gone or slower from one capture to another, a section for each kind of change."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import coloured, print_note, put, put_lines, width_of
from mqpcap.cli.options import Parsed, common, filter_options, utc_option
from mqpcap.cli.reading import finish, reading
from mqpcap.reading import Choices, Outcome
from mqpcap.wording import plural, shown

if TYPE_CHECKING:
    from mqpcap.query import Query
    from mqpcap.statistics.changes import Change

MOST_NAMED = 5
"""Changed groups that --fail-on names."""


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
    from mqpcap.api.comparison import diff as compared
    from mqpcap.tables.json_lines import json_text

    if before_path == after_path == "-":
        raise click.UsageError("only one of A and B can be standard input")
    outcome = Outcome(choices)
    with reading([before_path], outcome, wanted, 2) as a_inputs, reading([after_path], outcome, wanted, 0) as b_inputs:
        b_inputs.progress = lambda read_bytes: a_inputs.progress(read_bytes)  # one bar for both
        comparison = compared(a_inputs, b_inputs)
    if as_json:
        put(json_text(comparison.as_json(every)))
    else:
        put_lines(comparison.lines(every, width_of(sys.stdout), coloured(sys.stdout)))
    is_failed = False
    for kind, percent in fail_on:
        if failures := comparison.failures(kind, percent):
            words = f"{kind} by {percent:g} % or more" if percent is not None else kind
            print_note(
                f"mqpcap: --fail-on: {plural(len(failures), 'group is', 'groups are')} {words}: {_names(failures)}"
            )
            is_failed = True
    finish(outcome, is_failed)


def _names(failures: "Sequence[Change]") -> str:
    names = [" ".join(str(value) for value in change.key.values() if value is not None) for change in failures]
    return ", ".join(map(shown, names[:MOST_NAMED])) + (" ..." if len(names) > MOST_NAMED else "")
