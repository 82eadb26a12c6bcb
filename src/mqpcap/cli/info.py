"""``mqpcap info``: what a capture is, and how far it can be trusted."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import coloured, metered, put, width_of, wrapped
from mqpcap.cli.options import color_option, common, utc_option
from mqpcap.cli.reading import finish, found
from mqpcap.reading import Choices, Outcome, background, size_bytes
from mqpcap.wording import plural, shown

if TYPE_CHECKING:
    from mqpcap.capture import FileFacts
    from mqpcap.statistics.capture_quality import Report
    from mqpcap.tables.json_lines import Json

FILES_SHOWN = 12
CONNECTIONS_SHOWN = 20
REMARKS_SHOWN = 20


@command(epilog="Example: mqpcap info pcaps/faults/blipmq_lost.pcap")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object with an entry per capture.")
@click.option("--max-loss", type=click.FloatRange(0, 100), metavar="PERCENT",
              help="Exit 1 if more was dropped, missing or not decoded.")  # fmt: skip
@utc_option
@color_option
@common
def info(
    inputs: tuple[str, ...], as_json: bool, max_loss: float | None, utc: bool, color: str, choices: Choices
) -> None:
    """Describe captures, and how far they can be trusted.

    The output has a verdict in one line, files, packets and messages, and the bytes that were lost, truncated,
    retransmitted or not decoded. Comments and names in the file follow, then connections with the short names that show
    and --connection use.
    """
    from mqpcap.statistics.capture_quality import report_of
    from mqpcap.tables.json_lines import json_text, with_exact_numbers

    outcome = Outcome(choices, tells_notes=False)
    reports: list[Json] = []
    captures = found(inputs, outcome)
    total = size_bytes(captures)
    with metered(total, choices.quiet) as meter, background(choices, total) as worker:
        for capture in captures:
            report = report_of(capture, outcome, meter, worker)
            if report is None:
                continue
            if max_loss is not None and report.loss_percent > max_loss:
                problem = f"{report.loss_percent:.3g} % lost, more than --max-loss {max_loss:g}"
                outcome.unreadable.append((capture.files[0], problem))
            if as_json:
                reports.append(report.as_json())
                continue
            with meter.paused():
                for line in _as_text(report, utc, coloured(sys.stdout, color)):
                    put(wrapped(line, sys.stdout, 16))
    if as_json:
        strangers = {
            name: [{"file": file, "reason": reason} for file, reason in named_files]
            for name, named_files in (("skipped", outcome.skipped), ("unreadable", outcome.unreadable))
        }
        put(json_text(with_exact_numbers({"captures": reports, **strangers})))
    finish(outcome)


def _format(facts: "FileFacts") -> str:
    from mqpcap.tcp.wrappings import link_type_name

    ticks = {0: "finer than nanoseconds", 1: "nanoseconds", 1000: "microseconds", 1_000_000: "milliseconds"}
    links = [link_type_name(number) for number in facts.link_types]
    return ", ".join(
        [
            facts.format,
            *([facts.compression] if facts.compression else []),
            f"{facts.byte_order}-endian",
            ticks.get(facts.tick_ns, f"ticks of {facts.tick_ns} ns"),
            f"snap length {facts.snaplen}" if facts.snaplen else "no snap length",
            *(links or ["no interface"]),
        ]
    )


def _as_text(report: "Report", utc: bool, colours: bool) -> Iterator[str]:
    for facts in report.files[:FILES_SHOWN]:
        yield shown(facts.file)
        if facts is report.files[0]:
            yield f"  verdict       {_painted(report.verdict()) if colours else report.verdict()}"
        yield f"  format        {_format(facts)}"
    if len(report.files) > FILES_SHOWN:
        yield f"and {plural(len(report.files) - FILES_SHOWN, 'more file')} of the same capture"
    for name, words in report.facts(utc):
        yield f"  {name:<13} {shown(words)}"
    yield from _remarks_as_text(report)
    yield from _list_as_text(report)


def _painted(verdict: str) -> str:
    """The verdict in green if the capture is whole, in yellow if there is a doubt, in red if it has nothing to read."""
    colour = {"whole": 32, "with care": 33}.get(verdict.split(":")[0], 31)
    return f"\x1b[{colour}m{verdict}\x1b[0m"


def _remarks_as_text(report: "Report") -> Iterator[str]:
    from mqpcap.listing.message_words import value_text

    all_remarks = [file_remarks for _, file_remarks in report.remarks]
    comments = [f"{where}: {value_text(text, 200)}" for remarks in all_remarks for where, text in remarks.comments]
    pairs = (pair for remarks in all_remarks for pair in remarks.names.items())
    names = [f"{address} is {shown(', '.join(names))}" for address, names in pairs]
    for word, lines in (("comment", comments), ("name", names)):
        yield from (f"  {word:<13} {line}" for line in lines[:REMARKS_SHOWN])
    more_count = sum(max(len(lines) - REMARKS_SHOWN, 0) for lines in (comments, names))
    if more_count:
        yield f"  and {more_count:,} more comments and names; --json has them"


def _list_as_text(report: "Report") -> Iterator[str]:
    """A line for each of the first connections, columns aligned."""
    from mqpcap.cli.rows import text_lines
    from mqpcap.statistics.report_columns import Column

    columns = (
        Column("connection", "connection", "plain"), Column("client", "client", "plain"),
        Column("server", "server", "plain"), Column("speaks", "speaks", "plain"), Column("client_name", "as", "plain"),
        Column("messages", "messages", "number"), Column("errors", "errors", "number"),
        Column("community_id", "community id", "plain", is_spare=True),
    )  # fmt: skip
    rows = [
        row if row["client_name"] is None else {**row, "client_name": shown(str(row["client_name"])[:40])}
        for row in islice(report.listed.values(), CONNECTIONS_SHOWN)
    ]
    width = width_of(sys.stdout)
    for line in text_lines(columns, rows, room=None if width is None else width - 2):
        yield f"  {line}"
    total = report.connections.total()
    if total > CONNECTIONS_SHOWN:
        yield f"  and {total - CONNECTIONS_SHOWN:,} more; --json has them"
