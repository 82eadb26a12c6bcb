"""``mqpcap report``: a capture as one HTML file for a colleague without the tool."""

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mqpcap.cli.completion import files
from mqpcap.cli.console import Meter, metered, plural, say, shown, size
from mqpcap.cli.options import Choices, common
from mqpcap.cli.process import NoPandas
from mqpcap.cli.reading import Outcome, background, finish, found, size_bytes, told_of_speed
from mqpcap.errors import OutputError

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.cli.info import Report
    from mqpcap.cli.report_page import Section

MOST_BARS = 160
MOST_ROWS = 50
"""So many rows of a table are shown; the rest is counted."""
MOST_LINES = 20
"""Operations in the drawing of latencies."""
LABEL_LENGTH = 40
SLOWEST = 20
NO_DRAWING = "there is no matplotlib to draw with: pip install 'mqpcap[report]'"


@click.command(epilog="Example: mqpcap report pcaps/fq/session.pcap --out report.html")
@click.argument("capture", metavar="CAPTURE", shell_complete=files)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    shell_complete=files,
    help="The HTML file; an earlier report there is replaced.",
)
@common
def report(capture: str, out: str, choices: Choices) -> None:
    """Write one HTML file that tells what was going on in a capture, and how far it can be trusted.

    Verdict, messages and errors over time, latencies by operation, producers and consumers by topic, errors, the
    slowest requests. The file needs no network and no script, and fits light and dark. FILE is new, or an earlier
    report; anything else there is refused.
    """
    refuse(out)
    _drawn()
    outcome = Outcome(choices)
    captures = found([capture], outcome).captures
    told_of_speed(outcome)
    with metered(size_bytes(captures), choices.quiet) as meter:
        made = _Made(outcome)
        for one in captures:
            made.take(one, meter)
    if not made.reports:
        finish(outcome)
    write(out, made.page(capture))
    if not choices.quiet:
        say(f"{out}: {size(os.stat(out).st_size)}")
    finish(outcome)


def refuse(out: str) -> None:
    """Raises OutputError unless a report may be written there: nothing is replaced but a report of ours."""
    from mqpcap.cli.report_page import MARK

    try:
        found = os.lstat(out)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a link or no file"
        raise OutputError(f"{shown(out)} is {kind}; name a file that is new or an earlier report")
    with open(out, "rb") as file:
        if file.read(len(MARK)) != MARK.encode():
            raise OutputError(f"{shown(out)} is no report of ours; it stays as it is")


def write(out: str, parts: Iterator[str]) -> None:
    """Write the file beside its place, then put it there: a report that was there stays until then."""
    folder, name = os.path.split(out)
    temporary = os.path.join(folder, f".{name[:100]}.{os.getpid()}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.writelines(part.encode("utf-8", "replace").decode() for part in parts)
        refuse(out)
        os.replace(temporary, out)
    except FileExistsError as error:
        raise OutputError(f"{shown(temporary)} is in the way") from error
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _drawn() -> None:
    """Raises OutputError before any work where nothing can be drawn."""
    if NoPandas in sys.meta_path:
        sys.meta_path.remove(NoPandas)  # matplotlib needs dateutil, which the other commands are spared
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise OutputError(NO_DRAWING) from error


class _Made:
    """What is counted for a report."""

    def __init__(self, outcome: Outcome) -> None:
        from mqpcap.cli.questions import by_group, of_errors, of_role, of_slowest
        from mqpcap.statistics.counters import Counters
        from mqpcap.statistics.overview import Overview
        from mqpcap.statistics.roles import Consumers, Producers
        from mqpcap.statistics.timeline import Timeline

        self._outcome = outcome
        self._timeline, self._overview = Timeline(), Overview()
        self._operations = by_group(("protocol", "op"), ("latency", "count", "errors"))
        self._producers, self._consumers = of_role(Producers()), of_role(Consumers())
        self._errors, self._slowest = of_errors(), of_slowest(SLOWEST)
        self._counters = Counters(self._timeline, self._overview)
        for question in (self._operations, self._producers, self._consumers, self._errors, self._slowest):
            self._counters += question.counters
        self.reports: list[Report] = []

    def take(self, capture: "Capture", meter: Meter) -> None:
        """Read a capture."""
        from mqpcap.cli.info import report_of

        with background(self._outcome.choices, size_bytes([capture])) as behind:
            told = report_of(capture, self._outcome, meter, behind, self._counters.take, frozenset({"exchanges"}))
        self._counters.end_of_capture()
        if told is not None:
            self.reports.append(told)

    def page(self, name: str) -> Iterator[str]:
        """The parts of the file."""
        from mqpcap import __version__
        from mqpcap.cli.lines import clock
        from mqpcap.cli.report_page import page

        first, last = self._overview.first_ns, self._overview.last_ns
        facts = plural(self._overview.messages, "message")
        if first is not None and last is not None:
            facts += f" from {clock(first, True, True)} to {clock(last, True, True)}, {(last - first) / 1e9:,.3f} s"
        several = len(self.reports) > 1
        verdicts = [
            f"{told.files[0].file}: {told.verdict()}" if several else told.verdict()
            for told in self.reports[:MOST_ROWS]
        ]
        return page(name, verdicts, facts, list(self._sections()), __version__)

    def _sections(self) -> "Iterator[Section]":
        from mqpcap.cli.report_page import Section, table

        operations = self._operations.rows()
        yield self._over_time()
        about = "From a request to its reply, by operation of the request. Percentiles are values that were measured."
        yield Section(
            "Latencies",
            about,
            self._drawn_latencies(operations) + table(self._operations.columns, operations, MOST_ROWS),
        )
        for title, about, question in (
            ("Producers", "Who publishes what.", self._producers),
            ("Consumers", "Who asks for messages, and gets them.", self._consumers),
            ("Errors", "What failed, by request, code and text, and the packet of the first.", self._errors),
            ("Slowest requests", "With the packets of request and reply, as Wireshark counts them.", self._slowest),
        ):
            about = "; ".join([about, *question.notes()])
            yield Section(title, about, table(question.columns, question.rows(), MOST_ROWS))
        yield Section("Trust", "What was lost, cut, sent again or not understood.", self._trust())

    def _over_time(self) -> "Section":
        from mqpcap.cli.charts import timeline
        from mqpcap.cli.report_page import Section, figure

        _, step_ns, (messages, _, errors) = self._timeline.series(MOST_BARS)
        if not len(messages):
            return Section("Messages over time", "", "<p>None.</p>")
        caption = f"{int(messages.sum()):,} messages, {int(errors.sum()):,} errors; a bar is {step_ns / 1e6:,g} ms"
        drawn = timeline(step_ns / 1e9, messages, errors)
        return Section("Messages over time", "", figure(drawn, caption))

    def _drawn_latencies(self, operations: "Sequence[Mapping[str, object]]") -> str:
        from mqpcap.cli.charts import latencies
        from mqpcap.cli.report_page import figure

        names = ("latency_p50_ns", "latency_p95_ns", "latency_p99_ns", "latency_max_ns")
        points = []
        for row in [row for row in operations if row["answered"]][:MOST_LINES]:
            name = shown(f"{row.get('protocol')} {row.get('op')}")
            name = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
            points.append((f"{name} ({row['answered']:,})", [int(str(row[x])) / 1e6 for x in names]))
        return figure(latencies(points), "in brackets: requests with a reply") if points else ""

    def _trust(self) -> str:
        from mqpcap.cli.report_page import table
        from mqpcap.cli.rows import Column

        columns = [Column("what", "what"), Column("told", "told")]
        tables = []
        for one in self.reports[:MOST_ROWS]:
            facts = [("capture", ", ".join(x.file for x in one.files)), *one.facts(utc=True)]
            tables.append(table(columns, [{"what": what, "told": words} for what, words in facts], MOST_ROWS))
        return "".join(tables)
