"""Rows of answers as aligned text, CSV or JSON lines.

On a terminal lines fit its width: dates are left out, and constant columns are written once above the rows. Texts are
cut, never numbers. Spare columns are left out last, and a line below the rows names them. Elsewhere only text of more
than MAX_CELL characters is cut.
"""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from mqpcap.cli.console import coloured, width_of
from mqpcap.errors import QueryError
from mqpcap.statistics.report_columns import Cells, Column, cell, shown_columns
from mqpcap.wording import shown

LEAST_CELL = 8
"""A column of text is not cut below this width."""
ROOMY_CELL = 16
"""Columns of text are cut to this width before other columns are left out."""
LONG_CELL = 40
"""Nor is it wider than this, or a third of a terminal: one long name would pull the others' columns apart."""
GAP = "  "
ONCE = ("protocol", "server", "client", "name")
"""Columns that are written once above the rows if all rows have the same value and lines would not fit."""
Form = Literal["text", "csv", "tsv", "json"]


def chosen_columns(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """The columns of some names, in the order of the names, all columns without names; raises QueryError."""
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise QueryError(f"there is no column {name!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(columns)


def write(columns: Sequence[Column], rows: Sequence[Cells], form: Form, utc: bool = False, header: bool = True) -> None:
    """Write the rows to stdout; ``header``: tab-separated values have a line of names."""
    if form == "text":
        sys.stdout.writelines(f"{line}\n" for line in text_lines(columns, rows, utc, width_of(sys.stdout)))
    else:
        _json(columns, rows) if form == "json" else _separated(columns, rows, form, header or form == "csv")


def _json(columns: Sequence[Column], rows: Sequence[Cells]) -> None:
    from mqpcap.tables.json_lines import json_object, json_text

    for row in rows:
        sys.stdout.write(json_text(json_object({column.name: row.get(column.name) for column in columns})) + "\n")


def _separated(columns: Sequence[Column], rows: Sequence[Cells], form: Form, header: bool) -> None:
    """Values with commas or tabs between; those with tabs and on a terminal have no control characters."""
    import csv

    plain = shown if form == "tsv" or sys.stdout.isatty() else str
    by_comma = csv.writer(sys.stdout, lineterminator="\n").writerow
    put = by_comma if form == "csv" else lambda values: sys.stdout.write("\t".join(values) + "\n")
    if header:
        put([column.name for column in columns])
    for row in rows:
        values = [row.get(column.name) for column in columns]
        put(["" if value is None else plain(str(value)) for value in values])


def text_lines(
    columns: Sequence[Column], rows: Sequence[Cells], utc: bool = False, room: int | None = None
) -> Iterator[str]:
    """The titles and the rows, columns aligned; ``room``: how wide a line may be."""
    if not rows:
        return
    columns = shown_columns(columns, rows)
    for left, dated in _narrower(columns, rows):
        cells = ([_cell(row, column, utc, dated) for column in left] for row in rows)
        lines = [[column.title for column in left], *cells]
        widths = [max(map(cell_width, texts)) for texts in zip(*lines, strict=True)]
        if room is None or _line_width(fit_width(left, widths, room, ROOMY_CELL)) <= room:
            break
    if constant := [column for column in columns if column not in left and not column.is_spare]:
        yield f"all: {', '.join(f'{column.title} {cell(column, rows[0][column.name], utc)}' for column in constant)}"
    widths = widths if room is None else fit_width(left, widths, room)
    for i, line in enumerate(lines):
        words = GAP.join(map(_aligned, line, widths, left)).rstrip()
        yield f"\x1b[1m{words}\x1b[0m" if i == 0 and coloured(sys.stdout) else words
    if missing := [column.title for column in columns if column not in left and column.is_spare]:
        yield from textwrap.wrap(f"left out at this width: {', '.join(missing)}", room or 100, subsequent_indent="  ")


def _narrower(columns: Sequence[Column], rows: Sequence[Cells]) -> Iterator[tuple[Sequence[Column], bool]]:
    """Ever fewer columns, and whether times have dates: constant columns are left out first, then spare ones."""
    yield columns, True
    yield columns, False
    first_row = rows[0]
    once = {name for name in ONCE if first_row.get(name) is not None and len({row.get(name) for row in rows}) == 1}
    columns = [column for column in columns if column.name not in once]
    yield columns, False
    for spare in [column for column in reversed(columns) if column.is_spare]:
        columns = [column for column in columns if column is not spare]
        yield columns, False


def _cell(row: Cells, column: Column, utc: bool, dated: bool) -> str:
    """The text of a cell, with a sign where a percentile is from a histogram."""
    text = cell(column, row.get(column.name), utc, dated)
    about = column.kind == "ms" and row.get("latency_exact") is False and not column.name.endswith("max_ns")
    return f"~{text}" if about and text != "-" else text


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def fit_width(columns: Sequence[Column], widths: Sequence[int], room: int, least: int = LEAST_CELL) -> list[int]:
    """The widths, those of the widest columns of text made less so that a line fits; none below ``least``."""
    texts = [i for i, column in enumerate(columns) if column.kind in ("text", "file")]
    max_width = max(LONG_CELL, room // 3)
    fitted_widths = [min(width, max_width) if i in texts else width for i, width in enumerate(widths)]
    while _line_width(fitted_widths) > room:
        widest = max(texts, key=lambda i: fitted_widths[i], default=None)
        if widest is None or fitted_widths[widest] <= max(least, cell_width(columns[widest].title)):
            break
        fitted_widths[widest] -= 1
    return fitted_widths


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _aligned(text: str, width: int, column: Column) -> str:
    excess = cell_width(text) - width
    if excess > 0:
        while cell_width(text) > width - 1:
            text = text[:-1]
        text += "…"
    pad = " " * (width - cell_width(text))
    return text + pad if column.kind in ("text", "clock", "packet", "plain", "file") else pad + text


BARS = " ▁▂▃▄▅▆▇█"
BARS_ASCII = " .:-=+*#@"


def sparkline(values: Sequence[int], is_ascii: bool = False, largest: int | None = None) -> str:
    """A bar for each value, as high as the largest allows; a blank for nothing.

    largest: that of a scale which several lines have in common.

    >>> sparkline([0, 1, 4, 8]), sparkline([4], largest=8)
    (' ▁▄█', '▄')
    """
    bars, largest = BARS_ASCII if is_ascii else BARS, max(values, default=0) if largest is None else largest
    return "".join(bars[0 if value <= 0 else max(1, value * 8 // largest)] for value in values)
