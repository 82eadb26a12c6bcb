"""``mqpcap report``: a capture as one HTML file for a colleague without the tool."""

import sys

import click

from mqpcap.cli.command import command
from mqpcap.cli.options import common
from mqpcap.cli.process import allow_pandas
from mqpcap.cli.reading import finish, print_summary, reading
from mqpcap.reading import Choices, Outcome
from mqpcap.wording import size


@command(epilog="Example: mqpcap report pcaps/fq/session.pcap --out report.html")
@click.argument("capture", metavar="CAPTURE", type=click.Path(readable=False))
@click.option("--out", "out_path", required=True, metavar="FILE", type=click.Path(readable=False),
              help="Write the HTML here, replacing an earlier report; - is stdout.")  # fmt: skip
@common
def report(capture: str, out_path: str, choices: Choices) -> None:
    """Write an HTML page about the traffic of a capture.

    Verdict of how far it can be trusted, messages and errors over time, latencies by operation, producers and
    consumers by topic, errors, the slowest requests. The file needs no network and no script, and fits light and
    dark. FILE is new, or an earlier report; anything else there is refused.
    """
    allow_pandas()  # matplotlib imports dateutil
    from mqpcap.api.quality import report as reported

    outcome = Outcome(choices)
    with reading([capture], outcome) as inputs:
        size_bytes = reported(inputs, sys.stdout.buffer if out_path == "-" else out_path)
    if out_path != "-":
        print_summary(outcome, f"{out_path}: {size(size_bytes)}")
    finish(outcome)
