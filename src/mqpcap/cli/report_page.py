"""A report as one HTML file: no script, no network, readable in light and dark.

Everything that comes from a capture or a command line passes ``escaped``.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqpcap.cli.console import shown
from mqpcap.cli.rows import Cells, Column, cell, shown_columns

MARK = "<!doctype html>\n<!-- made by mqpcap report -->\n"
"""How every report begins: only such a file is replaced."""
TEXT_LENGTH = 200
"""So many characters of one value are shown."""
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
figure { margin: 0; overflow-x: auto; }
svg { width: 100%; min-width: 40rem; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.word, th.word { white-space: nowrap; }
td.free { min-width: 10rem; overflow-wrap: anywhere; }
figcaption { margin: .2rem 0 .8rem; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
</style>
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: a title, what it means, then a drawing or a table, or what to say where there is none."""

    title: str
    about: str
    body: str


def page(title: str, verdicts: Sequence[str], facts: str, sections: Sequence[Section], version: str) -> Iterator[str]:
    """The parts of the file."""
    yield MARK + _HEAD
    yield f"<title>{escaped(title)}: mqpcap report</title>\n{_STYLE}</head>\n<body>\n<h1>{escaped(title)}</h1>\n"
    yield f'<p class="soft">{escaped(facts)}</p>\n'
    for verdict in verdicts:
        whole = " whole" if verdict.startswith("whole") else ""
        yield f'<p class="verdict{whole}">{escaped(verdict)}</p>\n'
    for section in sections:
        about = f'<p class="soft">{escaped(section.about)}</p>\n' if section.about else ""
        yield f"<h2>{escaped(section.title)}</h2>\n{about}{section.body}\n"
    yield f'<p class="soft">Made by mqpcap {escaped(version)}. Times are UTC.</p>\n</body>\n</html>\n'


def escaped(text: object) -> str:
    """Text that a browser shows and does not obey; what is long is cut."""
    plain = str(text)
    plain = plain if len(plain) <= TEXT_LENGTH else plain[: TEXT_LENGTH - 1] + "…"
    return html.escape(shown(plain))


def table(columns: Sequence[Column], rows: Sequence[Cells], most: int) -> str:
    """A table of the first rows; what is left out is counted."""
    columns = shown_columns(columns, rows)
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th{_class(column)}>{escaped(column.title)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_class(column)}>{_value(column, row)}</td>" for column in columns) + "</tr>\n"
        for row in rows[:most]
    )
    more = f'<p class="soft">and {len(rows) - most:,} more</p>' if len(rows) > most else ""
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>{more}'


def _value(column: Column, row: Cells) -> str:
    value = row.get(column.name)
    if column.kind == "text" and value:  # an empty one is shown as ""
        return escaped(value)
    return escaped(cell(column, value, utc=True))


def _class(column: Column) -> str:
    if column.kind in ("number", "ms"):
        return ' class="number"'
    return ' class="free"' if column.name in FREE_TEXT else ' class="word"'


def figure(svg: str, caption: str) -> str:
    """A drawing."""
    return f'<figure>\n{svg}\n<figcaption class="soft">{escaped(caption)}</figcaption>\n</figure>'
