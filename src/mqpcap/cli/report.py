"""``mqpcap report``: a capture as one HTML file for a colleague without the tool."""

import os
import stat
import sys
from collections.abc import Iterator

import click

from mqpcap.cli.console import metered, print_note
from mqpcap.cli.extract import new_file
from mqpcap.cli.options import common
from mqpcap.cli.process import NoPandas
from mqpcap.cli.reading import finish, found
from mqpcap.errors import OutputError
from mqpcap.reading import Choices, Outcome, size_bytes
from mqpcap.wording import shown, size

NO_DRAWING = "there is no matplotlib to draw with: pip install 'mqpcap[report]'"


@click.command(epilog="Example: mqpcap report pcaps/fq/session.pcap --out report.html")
@click.argument("capture", metavar="CAPTURE", type=click.Path(readable=False))
@click.option(
    "--out",
    "out_path",
    required=True,
    metavar="FILE",
    type=click.Path(readable=False),
    help="The HTML file; an earlier report there is replaced. - is standard output.",
)
@common
def report(capture: str, out_path: str, choices: Choices) -> None:
    """Write an HTML file with the traffic of a capture, and how far it can be trusted.

    Verdict, messages and errors over time, latencies by operation, producers and consumers by topic, errors, the
    slowest requests. The file needs no network and no script, and fits light and dark. FILE is new, or an earlier
    report; anything else there is refused.
    """
    refuse(out_path)
    _drawn()
    from mqpcap.cli.report_page import Page

    outcome = Outcome(choices)
    captures = found([capture], outcome)
    with metered(size_bytes(captures), choices.quiet) as meter:
        page = Page(capture, outcome)
        for recording in captures:
            page.take(recording, meter)
    if not page.reports:
        finish(outcome)
    write(out_path, page.parts())
    if not choices.quiet and out_path != "-":
        print_note(f"{out_path}: {size(os.stat(out_path).st_size)}")
    finish(outcome)


def refuse(out_path: str) -> None:
    """Raises OutputError unless a report may be written there: nothing is replaced but a report of ours."""
    from mqpcap.cli.report_page import MARK

    if out_path == "-":
        return
    try:
        status = os.lstat(out_path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a link or no file"
        raise OutputError(f"{shown(out_path)} is {kind}; name a file that is new or an earlier report")
    with open(out_path, "rb") as file:
        if file.read(len(MARK)) != MARK.encode():
            raise OutputError(f"{shown(out_path)} is no report of ours; it stays as it is")


def write(out_path: str, parts: Iterator[str]) -> None:
    """Write the file beside its place, then put it there: a report that was there stays until then."""
    if out_path == "-":
        with new_file(out_path) as file:
            file.writelines(_encoded(parts))
        return
    folder, name = os.path.split(out_path)
    temporary = os.path.join(folder, f".{name[:100]}.{os.getpid()}.tmp")
    with new_file(temporary) as file:
        file.writelines(_encoded(parts))
        file.flush()
        refuse(out_path)
        os.replace(temporary, out_path)


def _encoded(parts: Iterator[str]) -> Iterator[bytes]:
    return (part.encode("utf-8", "replace") for part in parts)


def _drawn() -> None:
    """Raises OutputError before any work where nothing can be drawn."""
    if NoPandas in sys.meta_path:
        sys.meta_path.remove(NoPandas)  # matplotlib needs dateutil, which the other commands are spared
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise OutputError(NO_DRAWING) from error
