"""Rows of answers as aligned text, CSV or JSON lines.

On a terminal lines fit its width: dates are left out, constant columns are written once above the rows, and long titles
take several lines. Texts are cut, never numbers. Keys and spare columns are left out last: a line below the rows names
them, or lines below each row have their values. Elsewhere only text of more than MAX_CELL characters is cut.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from mqpcap.statistics.report_columns import Cells, Column, cell, shown_columns
from mqpcap.tables.value_lines import LineForm, value_line
from mqpcap.wording import cell_width, cut, shown

LEAST_CELL = 8
"""A column of text is not cut below this width."""
ROOMY_CELL = 16
"""Columns of text are cut to this width before other columns are left out."""
LONG_CELL = 40
"""Nor is it wider than this, or a third of a terminal: one long name would pull the others' columns apart."""
GAP = "  "
FOLD = "  "
"""The start of a line below its row."""
ONCE = ("protocol", "server", "client", "client_ip", "name")
"""Columns that are written once above the rows if all rows have the same value and lines would not fit."""
Form = Literal["text", "csv", "tsv", "json"]


def value_lines(
    columns: Sequence[Column],
    rows: Sequence[Cells],
    form: LineForm,
    header: bool,
    escaped: Callable[[str], str] = shown,
) -> Iterator[str]:
    """The rows as lines for tools, after a line of names where that is asked for; CSV always has one."""
    names = [column.name for column in columns]
    if form != "json" and (header or form == "csv"):
        yield value_line((), names, form, escaped)
    for row in rows:
        yield value_line(names, [row.get(name) for name in names], form, escaped)


def text_lines(
    columns: Sequence[Column],
    rows: Sequence[Cells],
    utc: bool = False,
    room: int | None = None,
    is_folded: bool = False,
    has_bold: bool = False,
) -> Iterator[str]:
    """The titles and the rows, columns aligned; ``room``: how wide a line may be. has_bold: titles are in bold.

    is_folded: values of columns without room are on lines below their row, with their titles; keys are left out.
    """
    if not rows:
        return
    columns = shown_columns(columns, rows)
    texts_by_column: dict[tuple[str, bool], tuple[list[str], int]] = {}
    for left, dated, is_broken in _narrower(columns, rows):
        titles = [column.title.split() if is_broken else [column.title] for column in left]
        bodies, widths = [], []
        for column, title in zip(left, titles, strict=True):
            key = column.name, dated or column.kind != "clock"
            if key not in texts_by_column:
                texts = [_cell(row, column, utc, dated) for row in rows]
                texts_by_column[key] = texts, max(map(cell_width, texts))
            texts, width = texts_by_column[key]
            bodies.append(texts)
            widths.append(max(width, *map(cell_width, title)))
        if room is None or _line_width(fit_width(left, widths, room, ROOMY_CELL, titles)) <= room:
            break
    height = max(map(len, titles), default=1)
    heads = zip(*([""] * (height - len(words)) + words for words in titles), strict=True)
    dropped = [column for column in columns if column not in left]
    if constant := [column for column in dropped if _is_constant(column, rows)]:
        words = ", ".join(f"{column.title} {cell(column, rows[0].get(column.name), utc)}" for column in constant)
        yield from textwrap.wrap(f"all: {words}", room or 100, subsequent_indent="  ")
    left_out = [column for column in dropped if column not in constant]
    folded = [column for column in left_out if is_folded and column.kind != "key"]
    widths = widths if room is None else fit_width(left, widths, room, titles=titles)
    for i, line in enumerate([*heads, *zip(*bodies, strict=True)]):
        words = GAP.join(map(_aligned, line, widths, left)).rstrip()
        yield f"\x1b[1m{words}\x1b[0m" if i < height and has_bold else words
        if i >= height and folded:
            yield from _folded(folded, rows[i - height], utc, room or 100)
    if missing := [column.title for column in left_out if column not in folded]:
        yield from textwrap.wrap(f"left out at this width: {', '.join(missing)}", room or 100, subsequent_indent="  ")


def _folded(columns: Sequence[Column], row: Cells, utc: bool, room: int) -> Iterator[str]:
    """The titles and values of columns, as many on a line as have room; those without a value are left out."""
    line = ""
    for column in columns:
        if row.get(column.name) is not None:
            words = f"{column.title} {_cell(row, column, utc, True)}"
            if line and cell_width(line) + len(GAP) + cell_width(words) > room:
                yield line
                line = ""
            line = f"{line or FOLD}{GAP}{words}"
    if line:
        yield line


def _is_constant(column: Column, rows: Sequence[Cells]) -> bool:
    return all(row.get(column.name) == rows[0].get(column.name) for row in rows)


def _narrower(columns: Sequence[Column], rows: Sequence[Cells]) -> Iterator[tuple[Sequence[Column], bool, bool]]:
    """Ever fewer columns, whether times have dates, and whether titles are broken at spaces."""
    yield columns, True, False
    yield columns, False, False
    for constant in (
        [x for x in columns if x.name in ONCE and rows[0].get(x.name) is not None and _is_constant(x, rows)],
        [x for x in columns[1:] if len(rows) > 1 and _is_constant(x, rows)],
    ):
        columns = [column for column in columns if column not in constant]
        yield columns, False, False
    for is_broken, spare in (
        (False, [x for x in reversed(columns) if x.kind == "key"]),
        (True, [x for x in reversed(columns) if x.is_spare and x.kind != "key"]),
    ):
        yield columns, False, is_broken
        for column in spare:
            columns = [x for x in columns if x is not column]
            yield columns, False, is_broken


def _cell(row: Cells, column: Column, utc: bool, dated: bool) -> str:
    """The text of a cell, with a sign where a percentile is from a histogram."""
    text = cell(column, row.get(column.name), utc, dated)
    about = column.kind == "ms" and row.get("latency_exact") is False and not column.name.endswith("max_ns")
    return f"~{text}" if about and text != "-" else text


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def fit_width(
    columns: Sequence[Column], widths: Sequence[int], room: int, least: int = LEAST_CELL,
    titles: Sequence[Sequence[str]] | None = None,
) -> list[int]:  # fmt: skip
    """The widths, those of the widest columns of text made less so that a line fits; none below ``least``.

    titles: the lines of each column's title, whose title is one line otherwise.
    """
    texts = [i for i, column in enumerate(columns) if column.kind in ("text", "file")]
    max_width = max(LONG_CELL, room // 3)
    fitted_widths = [min(width, max_width) if i in texts else width for i, width in enumerate(widths)]
    while _line_width(fitted_widths) > room:
        widest = max(texts, key=lambda i: fitted_widths[i], default=None)
        if widest is None:
            break
        title = titles[widest] if titles else [columns[widest].title]
        if fitted_widths[widest] <= max(least, *map(cell_width, title)):
            break
        fitted_widths[widest] -= 1
    return fitted_widths


def _aligned(text: str, width: int, column: Column) -> str:
    """A text of a width, cut where it is longer; the end of a file's path says more than its beginning."""
    if cell_width(text) > width:
        is_path = column.kind == "file"
        text = f"…{cut(text, width - 1, is_path)}" if is_path else f"{cut(text, width - 1)}…"
    pad = " " * (width - cell_width(text))
    return text + pad if column.kind in ("text", "clock", "packet", "plain", "file") else pad + text


@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """Rows of a report. It has the attributes of a pyarrow table (``to_pandas()``, ``column_names``, ...)."""

    columns: Sequence[Column]
    rows: Sequence[Cells]
    is_folded: bool = False
    arrow: pa.Table | None = None
    """The rows as a table where there is one already."""

    @cached_property
    def table(self) -> pa.Table:
        """The rows as a table; a column without a value has the type of its kind."""
        if self.arrow is not None:
            return self.arrow
        arrays = {}
        for column in self.columns:
            array = pa.array([row.get(column.name) for row in self.rows])
            if pa.types.is_null(array.type):
                array = array.cast(pa.int64() if column.kind in ("number", "ms", "clock", "packet") else pa.string())
            arrays[column.name] = array
        return pa.table(arrays)

    def lines(self, utc: bool = True, width: int | None = None) -> Iterator[str]:
        """The lines that the command prints; width: of a terminal."""
        return text_lines(self.columns, self.rows, utc, width, self.is_folded)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("columns", "rows", "arrow"):
            raise AttributeError(name)
        return getattr(self.table, name)

    def __repr__(self) -> str:
        return repr(self.table)

    def __eq__(self, other: object) -> bool:
        return bool(self.table == (other.table if isinstance(other, Answer) else other))

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)
