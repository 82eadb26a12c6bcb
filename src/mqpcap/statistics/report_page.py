"""A report as one HTML file: no script, no network, readable in light and dark.

Everything that comes from a capture or a command line passes ``escaped``.
"""

import html
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from mqpcap import __version__
from mqpcap.capture import Capture
from mqpcap.errors import OutputError
from mqpcap.listing.extraction import created_file
from mqpcap.reading import Meter, Outcome, background, size_bytes
from mqpcap.statistics.capture_quality import CaptureQuality, quality_of
from mqpcap.statistics.charts import WIDTHS, Width, latencies, timeline
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.report_columns import Cells, Column, cell, shown_columns, with_files
from mqpcap.statistics.reports import READY, by_group, drawn_latencies
from mqpcap.statistics.timeline import Timeline, Total
from mqpcap.wording import clock, plural, shown

MOST_BARS = 160
MOST_ROWS = 50
"""Rows of a table that are shown; further rows are counted."""
MOST_LINES = 20
"""Operations in the drawing of latencies."""
LABEL_LENGTHS: Mapping[Width, int] = {"wide": 40, "narrow": 22}
"""Characters of a name in a drawing."""
MOST_COLUMNS = 7
"""Columns of a table that fits a window of 800 pixels."""
SLOWEST = 20
LEFT_OUT = ("server_p95_ns", "server_p99_ns", "messages_c2s", "messages_s2c", "state")
"""Columns of latencies and requests that a page has no room for."""

MARK = "<!doctype html>\n<!-- made by mqpcap report -->\n"
"""How every report begins: only such a file is replaced."""
TEXT_LENGTH = 200
"""Characters of a value that are shown."""
FREE_TEXT = frozenset({"op", "topic", "destination", "name", "error_text", "what", "told"})
"""Columns that break where the line ends: what stands in them may be long."""
_HEAD = """<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""
_STYLE = """<style>
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --card: #f6f8fa;
  --messages: #0969da; --errors: #cf222e; --good: #1a7f37; --p50: #0969da; --p95: #9a6700; --p99: #cf222e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1117; --ink: #f0f6fc; --soft: #9198a1; --line: #3d444d; --card: #151b23;
    --messages: #4493f8; --errors: #f85149; --good: #3fb950; --p50: #4493f8; --p95: #d29922; --p99: #f85149;
  }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; }
.soft { color: var(--soft); }
.verdict { padding: .7rem 1rem; border-left: .4rem solid var(--p95); background: var(--card); margin: 1rem 0; }
.verdict.whole { border-color: var(--good); }
figure { margin: 0; }
svg { width: 100%; height: auto; }
svg.narrow { display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92em; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.word, th.word { white-space: nowrap; }
td.free { min-width: 6.5rem; overflow-wrap: anywhere; }
figcaption { margin: .2rem 0 .8rem; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) {
  body { padding: 1rem; }
  svg.wide { display: none; }
  svg.narrow { display: block; }
}
"""


def _stacked(window: str, which: str) -> str:
    """Style of tables in a narrow window: a row is a paragraph of names and values."""
    return f"""@media (max-width: {window}) {{
  {which}, {which} tbody {{ display: block; }}
  {which} thead, {which} td.none {{ display: none; }}
  {which} tr {{ display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .35rem 0;
    border-bottom: 1px solid var(--line); }}
  {which} td[class] {{ border: 0; padding: 0; white-space: normal; min-width: 0; overflow-wrap: anywhere; }}
  {which} td[data-title]::before {{ content: attr(data-title) " "; color: var(--soft); }}
}}
"""


_STYLE += _stacked("68rem", "table.many") + _stacked("40rem", "table") + "</style>\n"


class Page:
    """Counts captures for a report, and makes its file."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        self._name, self._outcome = name, outcome
        self._timeline, self._total = Timeline(), Total()
        self._operations = by_group(("protocol", "op"), ("latency", "count", "errors"))
        self._topics = by_group(("protocol", "topic", "op"), ("latency",))
        slowest = READY["slowest"].report((), SLOWEST)
        self._reports = [
            ("Producers", "Who publishes what.", READY["producers"].report()),
            ("Consumers", "Who asks for messages, and gets them.", READY["consumers"].report()),
            (
                "Errors",
                "What failed, by request, code and text, and the packet of the first.",
                READY["errors"].report(),
            ),
            ("Slowest requests", "With the packets of request and reply, as Wireshark counts them.", slowest),
        ]
        self._counters = Counters(self._timeline, self._total)
        for report in (self._operations, self._topics, *(report for _, _, report in self._reports)):
            self._counters += report.counters
        self.qualities: list[CaptureQuality] = []

    def take(self, capture: Capture, meter: Meter) -> None:
        """Read a capture."""
        with background(self._outcome.choices, size_bytes([capture])) as worker:
            quality = quality_of(capture, self._outcome, meter, worker, self._counters)
        if quality is not None:
            self.qualities.append(quality)

    def parts(self) -> Iterator[str]:
        """The parts of the file."""
        title, first_ns, last_ns = escaped(self._name), self._total.first_ns, self._total.last_ns
        facts = plural(self._total.messages, "message")
        if first_ns is not None and last_ns is not None:
            facts += f" from {clock(first_ns, True, True)} to {clock(last_ns, True, True)}"
            facts += f", {(last_ns - first_ns) / 1e9:,.3f} s"
        yield MARK + _HEAD
        yield f"<title>{title}: mqpcap report</title>\n{_STYLE}</head>\n<body>\n<h1>{title}</h1>\n"
        yield f'<p class="soft">{escaped(facts)}</p>\n'
        for quality in self.qualities[:MOST_ROWS]:
            verdict, named = quality.verdict(), f"{quality.files[0].file}: " if len(self.qualities) > 1 else ""
            css_class = " whole" if verdict.startswith("whole") else ""
            yield f'<p class="verdict{css_class}">{escaped(named + verdict)}</p>\n'
        for heading, about, body in self._sections():
            if not body:
                continue
            about = f'<p class="soft">{escaped(about)}</p>\n' if about else ""
            yield f"<h2>{escaped(heading)}</h2>\n{about}{body}\n"
        yield f'<p class="soft">Made by mqpcap {escaped(__version__)}. Times are UTC.</p>\n</body>\n</html>\n'

    def _sections(self) -> Iterator[tuple[str, str, str]]:
        """The sections: title, meaning, drawings and tables; a section without rows is empty."""
        yield "Messages over time", "", self._drawn_timeline()
        about = "From a request to its reply, by operation of the request. Percentiles are values that were measured."
        operations = self._operations.rows()
        about = " ".join([about, *self._operations.notes()])
        columns = [column for column in self._operations.columns if column.name not in LEFT_OUT]
        yield "Latencies", about, _drawn_latencies(operations) + table(columns, operations)
        topics = [row for row in self._topics.rows() if row["answered"] and row["topic"] is not None]
        columns = [column for column in self._topics.columns if column.name not in LEFT_OUT]
        yield "Latencies by topic", "Topics, queues and exchanges that requests name.", table(columns, topics)
        for title, about, report in self._reports:
            columns = [x for x in with_files(report.columns, self._outcome.file_count) if x.name not in LEFT_OUT]
            yield title, " ".join([about, *report.notes()]), table(columns, report.rows())
        columns = [Column("what", "what"), Column("told", "in this capture")]
        trust = ""
        for quality in self.qualities[:MOST_ROWS]:
            facts = [("capture", ", ".join(x.file for x in quality.files)), *quality.facts(utc=True)]
            trust += table(columns, [{"what": fact_name, "told": words} for fact_name, words in facts])
        yield "Trust", "What was lost, cut, sent again or not understood.", trust

    def _drawn_timeline(self) -> str:
        step_ns, (messages, errors) = self._timeline.series(MOST_BARS)
        if not len(messages):
            return ""
        counts = plural(int(messages.sum()), "message"), plural(int(errors.sum()), "error")
        drawings = (timeline(self._timeline.first_ns, step_ns, messages, errors, width) for width in WIDTHS)
        return figure("".join(drawings), f"{', '.join(counts)}; a bar is {step_ns / 1e6:,g} ms")


def _drawn_latencies(operations: Sequence[Cells]) -> str:
    answered = [row for row in operations if row["answered"]][:MOST_LINES]
    if not answered:
        return ""
    drawings = (latencies(drawn_latencies(answered, length), width) for width, length in LABEL_LENGTHS.items())
    return figure("".join(drawings), "in brackets: requests with a reply")


def escaped(text: object) -> str:
    """Text that a browser shows and does not obey; what is long is cut."""
    plain = str(text)
    plain = plain if len(plain) <= TEXT_LENGTH else plain[: TEXT_LENGTH - 1] + "…"
    return html.escape(shown(plain))


def table(columns: Sequence[Column], rows: Sequence[Cells]) -> str:
    """A table of the first rows, empty without rows; what is left out is counted.

    Each cell names its column: on a narrow screen a row is a paragraph of names and values.
    """
    columns = [x for x in shown_columns(columns, rows) if any(row.get(x.name) is not None for row in rows)]
    if not rows:
        return ""
    head = "".join(f"<th{_class(column)}>{escaped(column.title)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(column, row)}{_title(column)}>{_value(column, row)}</td>" for column in columns)
        + "</tr>\n"
        for row in rows[:MOST_ROWS]
    )
    more_rows = f'<p class="soft">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    rows_html = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n"
    many = ' class="many"' if len(columns) > MOST_COLUMNS else ""
    return f'<div class="scroll"><table{many}>\n{rows_html}</table></div>{more_rows}'


def _value(column: Column, row: Cells) -> str:
    value = row.get(column.name)
    if column.kind == "text" and value:  # an empty text is shown as ""
        return escaped(value)
    return escaped(cell(column, value, utc=True))


def _class(column: Column, row: Cells | None = None) -> str:
    name = "word"
    if column.kind in ("number", "ms", "rare"):
        name = "number"
    elif column.name in FREE_TEXT or column.kind == "clock":
        name = "free"
    return f' class="{name} none"' if row is not None and row.get(column.name) is None else f' class="{name}"'


def _title(column: Column) -> str:
    """The column's name for narrow screens; facts and their names need none."""
    return "" if column.name in ("what", "told") else f' data-title="{escaped(column.title)}"'


def figure(svg: str, caption: str) -> str:
    """A drawing."""
    return f'<figure>\n{svg}\n<figcaption class="soft">{escaped(caption)}</figcaption>\n</figure>'


def check_target(out_path: str) -> None:
    """Raises OutputError unless a report may be written there: only an earlier report is replaced."""
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


def write_page(out_path: str, parts: Iterator[str]) -> int:
    """Write a report and return its size in bytes. A complete report replaces an earlier report."""
    folder, name = os.path.split(out_path)
    temporary = os.path.join(folder, f".{name[:100]}.{os.getpid()}.tmp")
    with created_file(temporary) as file:
        file.writelines(encoded(parts))
        file.flush()
        size = file.tell()
        check_target(out_path)
        os.replace(temporary, out_path)
    return size


def encoded(parts: Iterator[str]) -> Iterator[bytes]:
    """The parts as UTF-8; a name that is not UTF-8 has question marks."""
    return (part.encode("utf-8", "replace") for part in parts)
