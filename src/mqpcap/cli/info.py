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
from mqpcap.wording import shown

if TYPE_CHECKING:
    from mqpcap.statistics.capture_quality import Report
    from mqpcap.tables.json_lines import Json

CONNECTIONS_SHOWN = 20


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
                for line in (*report.lines(utc, coloured(sys.stdout, color)), *_list_as_text(report)):
                    put(wrapped(line, sys.stdout, 16))
    if as_json:
        unread_files = {
            name: [{"file": file, "reason": reason} for file, reason in named_files]
            for name, named_files in (("skipped", outcome.skipped), ("unreadable", outcome.unreadable))
        }
        put(json_text(with_exact_numbers({"captures": reports, **unread_files})))
    finish(outcome)


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
