"""The columns of a report (a name for programs, a title with its unit for people), and their values as text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from mqpcap.errors import QueryError
from mqpcap.records import dataclass
from mqpcap.wording import clock, shown

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CELL = 120
"""Characters of a value that are shown as text; JSON and CSV have all."""
Cells = Mapping[str, object]
BY = ("protocol", "op", "topic", "client", "server", "status", "name", "connection", "direction")
"""Words to group by, in any case; other names are those of filters."""
Metric = Literal["count", "bytes", "errors", "latency", "p50", "p95", "p99", "max"]
METRICS = get_args(Metric)
"""What `stats` counts of each group."""
KEY_ENDS = ("capture", "capture_file", "connection_id", "_offset", "_last_packet", "request_ts_ns", "reply_ts_ns")
"""Ends of the names of columns that identify a row for programs, or say less than a column beside them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``name`` for machines, ``title`` with the unit for people.

    kind: text, number, ms (a number of nanoseconds, shown as milliseconds), clock (nanoseconds since 1970), packet
    (its number), plain (text as it is), key (joins rows of tables; the first to be left out), us (microseconds), file
    (for people only where several were read: see `with_files`), flag (for machines only), rare (a number, for people
    only where a row has one).
    """

    name: str
    title: str
    kind: Literal["text", "number", "ms", "us", "clock", "packet", "plain", "key", "file", "flag", "rare"] = "text"
    is_spare: bool = False
    """Left out where lines would not fit a terminal."""


def table_columns(schema: "pa.Schema") -> list[Column]:
    """The columns of a table of Arrow; on a terminal without room for all, keys go first, then the last one first."""
    return [_table_column(field, is_spare=i > 0) for i, field in enumerate(schema)]


def _table_column(field: "pa.Field", is_spare: bool) -> Column:
    """A column as people read it: times as clock times, counts with separators, ids and ports as they are."""
    import pyarrow as pa

    name = field.name
    title = name.removesuffix("_ns").replace("first_packet", "packet").replace("_", " ")
    if name.endswith(KEY_ENDS):
        return Column(name, title, "key", is_spare)
    if name.endswith("ts_ns") or name == "window_start_ns":
        return Column(name, title, "clock", is_spare)
    if name.endswith("_packet"):
        return Column(name, title, "packet", is_spare)
    if name.endswith(("_id", "_port", "_code")):
        return Column(name, title, "plain", is_spare)
    is_number = any(test(field.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
    return Column(name, title, "us" if name.endswith("_us") else "number" if is_number else "text", is_spare)


def chosen_columns(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """The columns of some names, in the order of the names, all columns without names; raises QueryError."""
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise QueryError(f"there is no column {name!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(columns)


def with_files(columns: Sequence[Column], file_count: int) -> list[Column]:
    """The columns, those that name files for machines only where one file was read: packet numbers go with a file."""
    return [replace(x, kind="flag") if x.kind == "file" and file_count < 2 else x for x in columns]


def shown_columns(columns: Sequence[Column], rows: Sequence[Cells]) -> list[Column]:
    """The columns that people are shown: without those for machines, files that no row names, and rare zeros."""
    named = {column for column in columns if any(row.get(column.name) for row in rows)}
    return [x for x in columns if x.kind != "flag" and (x.kind not in ("file", "rare") or x in named)]


_FORMS: Mapping[str, Callable[[object], str]] = {
    "ms": lambda value: milliseconds(int(str(value))), "us": "{:,.1f}".format, "rare": "{:,}".format,
    "number": lambda value: f"{value:,.3f}" if isinstance(value, float) else f"{value:,}",
    "packet": "#{}".format, "plain": str, "key": str,
}  # fmt: skip


def cell(column: Column, value: object, utc: bool, dated: bool = True) -> str:
    """A value as text."""
    if value is None:
        return "-"
    if column.kind in _FORMS:
        return _FORMS[column.kind](value)
    if column.kind == "clock":
        return clock(int(str(value)), utc, dated)
    text = str(value)
    text = f'"{text}"' if not text or " " in text or text == "-" else text
    text = shown(text)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def milliseconds(time_ns: int) -> str:
    """Nanoseconds as milliseconds, to the microsecond; to the nanosecond where that is all there is.

    >>> milliseconds(1_234_567_890), milliseconds(-51_000), milliseconds(999)
    ('1,234.568', '-0.051', '0.000999')
    """
    return f"{time_ns / 1e6:,.6f}" if 0 < abs(time_ns) < 1000 else f"{time_ns / 1e6:,.3f}"
