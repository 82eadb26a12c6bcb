"""``mqpcap info``: what a capture is, and how far it can be trusted."""

import sys

import click

from mqpcap.cli.command import command
from mqpcap.cli.console import coloured, put, width_of, wrapped
from mqpcap.cli.options import color_option, common, utc_option
from mqpcap.cli.reading import finish, reading
from mqpcap.reading import Choices, Outcome

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
    from mqpcap.api.quality import info as informed
    from mqpcap.tables.json_lines import json_text, with_exact_numbers

    outcome = Outcome(choices)
    with reading(inputs, outcome) as opened:
        reports = informed(opened)
    for report in reports:
        if max_loss is not None and report.loss_percent > max_loss:
            problem = f"{report.loss_percent:.3g} % lost, more than --max-loss {max_loss:g}"
            outcome.unreadable.append((report.files[0].file, problem))
        for line in report.lines(utc, coloured(sys.stdout, color), width_of(sys.stdout)) if not as_json else ():
            put(wrapped(line, sys.stdout, 16))
    if as_json:
        unread_files = {
            name: [{"file": file, "reason": reason} for file, reason in named_files]
            for name, named_files in (("skipped", outcome.skipped), ("unreadable", outcome.unreadable))
        }
        put(json_text(with_exact_numbers({"captures": [report.as_json() for report in reports], **unread_files})))
    finish(outcome, has_notes=False)
