"""Rows to Parquet files, by table and UTC day.

In: record batches of tables. Out: files, created by the subclasses of :class:`RowFiles` in ``export`` and ``spark``.
Rows are buffered per table and day until they fill a row group. A day's file is closed when it is full, or when too
many files are open; later rows of that day begin the next part. Equal rows in equal order give equal bytes: the files
contain no clock, no random name and no name of a machine.
"""

import base64
import inspect
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mqpcap import __version__
from mqpcap.arrays import unify_dictionaries
from mqpcap.errors import OutputError, RowError
from mqpcap.records import dataclass

SCHEMA_VERSION: Final = 1
"""Grows when a table or column changes its name or meaning."""

MAX_GROUP_ROW_COUNT: Final = 256 * 1024
MAX_GROUP_BYTES: Final = 16 * 1024 * 1024
"""A row group is written when either limit is reached: Spark and DuckDB read such a group at once.

Groups of 24 MB make files 4 % smaller. They take 10 to 50 MB more memory, at the same speed."""
MAX_BUFFERED_BYTES: Final = 128 * 1024 * 1024
"""Buffered rows of all tables and days; beyond it the day with the most bytes is written early."""
SMALL_BATCHES: Final = 64
"""Buffered batches of a day that are merged if they are small: the columns of a batch take 20 kB beside its rows."""
MAX_MERGED_ROW_COUNT: Final = 16 * 1024
"""More rows in SMALL_BATCHES batches are not merged."""
MAX_SORTED_RUNS: Final = 256
"""A row group with more runs of sorted and unsorted rows is sorted as a whole."""
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""A part is closed past it; Spark splits at 128 MB."""
MAX_OPEN_FILES: Final = 48
MAX_CACHED_SCHEMAS: Final = 64
MAX_OPEN_DAYS: Final = 256
"""Days of tables with buffered rows or an open file; beyond it the day that got rows the longest ago is closed."""

VERSION: Final = b"mqpcap.version"
"""Key of the version in every file's footer."""

SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Key of the schema for Spark, which otherwise derives it from the types."""
SPARK_TYPES: Final = {
    "string": "string", "binary": "binary", "bool": "boolean", "int32": "integer", "int64": "long", "double": "double",
}  # fmt: skip
_WRITER_PARAMETERS: Final = inspect.signature(pq.ParquetWriter).parameters
ZSTD_LEVEL: Final = 3  # 9 costs 1.5 times the time and is no smaller
DAY_NS: Final = 86_400 * 1_000_000_000

PAGE_ROW_COUNT: Final = MAX_GROUP_ROW_COUNT
"""A page of a table without bodies holds a row group: a quarter of it takes a tenth more of the time to write, and a
sixth more room."""

CODES: Final = frozenset({"op_code", "error_code", "flags", "qos", "type", "subscription_id"})
"""Few values, many rows. Other int64 columns count or grow, so they are stored as differences."""
IDS: Final = frozenset({"message_id", "correlation_id"})
"""Strings that count or hardly repeat: stored as differences to the previous string."""
BLOOM_IDS: Final = ("message_id",)
"""Random ids have Bloom filters, of about 6 bits a row: bounds of a row group exclude none of them."""
DOCUMENTS: Final = frozenset({"msg", "document"})
"""Long strings that hardly repeat: a dictionary of them is work for nothing."""

DateColumn = str | tuple[str | int, ...]
"""A column of nanoseconds, or several columns: the first value that is not null counts, a number if all are null."""

DATES: Final[Mapping[str, DateColumn]] = {
    "exchanges": ("request_ts_ns", "reply_ts_ns"),
    "deliveries": "publish_ts_ns",
    "connections": "first_ts_ns",
    "problems": "ts",
    "captures": ("first_ts_ns", 0),
}
"""The column that decides a row's day, if it is not ``ts_ns``."""


@dataclass(slots=True)
class DayPart:
    """One table and day: buffered rows and the open file."""

    table: str
    date: str
    date_column: DateColumn
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_row_count: int = 0
    buffered_bytes: int = 0
    merged_count: int = 0
    """Batches of ``buffered`` that stay as they are."""
    number: int = 0
    writer: pq.ParquetWriter | None = None
    path: str = ""
    row_count: int = 0
    written_bytes: int = 0
    writing: "Future[None] | None" = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A finished Parquet file of a table, by its path below the directory of tables."""

    path: str
    table: str
    row_count: int
    size_bytes: int


class RowFiles:
    """Buffers rows by table and day, and writes them as row groups to the open file of their day.

    Subclasses publish the ``files``; they name them (`_root`, `_new_name`), or create and close them.
    """

    def __init__(self, group_bytes: int, max_buffered_bytes: int, threads: int = 1) -> None:
        self._group_bytes, self._max_buffered_bytes = group_bytes, max_buffered_bytes
        self._pool = ThreadPoolExecutor(threads, "mqpcap-write") if threads > 1 else None
        self.files: list[TableFile] = []
        """The finished files."""
        self._parts: dict[tuple[str, str], DayPart] = {}
        """By table and day, in order of their last rows."""
        self._file_counts: dict[tuple[str, str], int] = {}
        """Files of the days that are not in ``_parts``."""
        self._buffered_bytes = 0
        self._schemas: dict[str, pa.Schema] = {}

    def _root(self, table: str) -> Path:
        """The folder below which a table's files are named."""
        raise NotImplementedError

    def _new_name(self, part: DayPart) -> str:
        """The name of the part's next file."""
        raise NotImplementedError

    def _create(self, part: DayPart, rows: pa.Table) -> pq.ParquetWriter:
        """The writer of the part's next file, which begins with these rows and whose name goes to ``path``."""
        path = self._root(part.table) / self._new_name(part)
        part.path = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return parquet_writer(path, rows, part.date_column)

    def _close_file(self, part: DayPart, writer: pq.ParquetWriter) -> None:
        """Closes a file, whose rows are in the part."""
        writer.close()
        name = Path(part.path).relative_to(self._root(part.table)).as_posix()
        self.files.append(TableFile(name, part.table, part.row_count, os.stat(part.path).st_size))

    def stop(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def write(self, table: str, rows: pa.RecordBatch | pa.Table, date_column: DateColumn) -> None:
        """Adds rows to the days of a table. Raises RowError for rows without a date or with other columns."""
        schema = self._schemas.setdefault(table, rows.schema)
        if not schema.equals(rows.schema):
            raise RowError(f"table {table} goes on with other columns than it began with")
        for date, batch in by_date(table, rows, date_column):
            self._add(table, date, date_column, batch)

    def _add(self, table: str, date: str, date_column: DateColumn, rows: pa.RecordBatch) -> None:
        key = table, date
        part = self._parts.pop(key, None)
        if part is None:
            part = DayPart(table, date, date_column, number=self._file_counts.pop(key, 0))
        self._parts[key] = part
        part.buffered.append(rows)
        part.buffered_row_count += rows.num_rows
        size_bytes = rows.nbytes
        part.buffered_bytes += size_bytes
        self._buffered_bytes += size_bytes
        if len(part.buffered) - part.merged_count >= SMALL_BATCHES:
            self._merge(part)
        if part.buffered_row_count >= MAX_GROUP_ROW_COUNT or part.buffered_bytes >= self._group_bytes:
            self._write_buffered(part)
        while self._buffered_bytes > self._max_buffered_bytes:
            self._write_buffered(max(self._parts.values(), key=lambda part: part.buffered_bytes))
        while len(self._parts) > MAX_OPEN_DAYS:
            self._close_oldest()

    def _merge(self, part: DayPart) -> None:
        """Make one batch of the last SMALL_BATCHES, if they are small."""
        batches = part.buffered[part.merged_count :]
        if sum(rows.num_rows for rows in batches) <= MAX_MERGED_ROW_COUNT:
            merged = unify_dictionaries(pa.Table.from_batches(batches)).combine_chunks().to_batches()
            part.buffered[part.merged_count :] = merged
            change = sum(rows.nbytes for rows in merged) - sum(rows.nbytes for rows in batches)
            part.buffered_bytes += change
            self._buffered_bytes += change
        part.merged_count = len(part.buffered)

    def _close_oldest(self) -> None:
        """Write and forget the day that got rows the longest ago; only the count of its files is kept."""
        oldest = next(iter(self._parts))
        self._write_buffered(self._parts[oldest])
        self._close(self._parts[oldest])
        self._file_counts[oldest] = self._parts.pop(oldest).number

    def _close_all(self) -> None:
        for part in self._parts.values():
            self._write_buffered(part)
        for part in self._parts.values():
            self._close(part)

    def _drop_all(self) -> None:
        """Closes all files without the rows that are buffered."""
        for part in self._parts.values():
            if part.writer is not None:
                with suppress(OSError, pa.ArrowException):
                    part.writer.close()

    def _write_buffered(self, part: DayPart) -> None:
        if not part.buffered:
            return
        self._finish(part)
        if part.written_bytes >= MAX_FILE_BYTES:
            self._close(part)
        rows = unify_dictionaries(pa.Table.from_batches(part.buffered))
        self._buffered_bytes -= part.buffered_bytes
        part.buffered = []
        part.buffered_row_count = part.buffered_bytes = part.merged_count = 0
        if part.writer is None:
            self._open(part, rows)
        if self._pool is None:
            _write_group(part, rows)
        else:
            part.writing = self._pool.submit(_write_group, part, rows)

    def _open(self, part: DayPart, rows: pa.Table) -> None:
        open_parts = [part_ for part_ in self._parts.values() if part_.writer is not None]
        if len(open_parts) >= MAX_OPEN_FILES:
            self._close(open_parts[0])
        try:
            part.writer = self._create(part, rows)
        except OSError as error:
            raise OutputError(f"cannot write {part.path}: {error.strerror or error}") from error
        part.number += 1

    def _finish(self, part: DayPart) -> None:
        """Waits for the row group being written, and raises what went wrong with it."""
        if part.writing is not None:
            writing, part.writing = part.writing, None
            writing.result()

    def _close(self, part: DayPart) -> None:
        self._finish(part)
        if part.writer is None:
            return
        writer, part.writer = part.writer, None
        try:
            self._close_file(part, writer)
        except OSError as error:
            raise OutputError(f"cannot write {part.path}: {error.strerror or error}") from error
        part.row_count = part.written_bytes = 0


def by_date(
    table: str, batch: pa.RecordBatch | pa.Table, date_column: DateColumn
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each UTC day, with the day as text; see `Export.write`."""
    if isinstance(batch, pa.Table):
        for rows in batch.to_batches():
            yield from by_date(table, rows, date_column)
        return
    if batch.num_rows == 0:
        return
    time = _times(batch, date_column)
    if time.null_count:
        names = (date_column,) if isinstance(date_column, str) else date_column
        raise RowError(f"table {table} has a row without {' or '.join(map(str, names))}, so without a date")
    if pa.types.is_timestamp(time.type):
        time = pc.multiply(time.cast(pa.timestamp("us")).cast(pa.int64()), 1000)
    days: NDArray[np.int64] = time.to_numpy(zero_copy_only=False) // DAY_NS
    first_day = int(days[0])
    if bool((days == first_day).all()):
        yield _date(first_day), batch
        return
    order = np.argsort(days, kind="stable")
    starts = [0, *(np.flatnonzero(np.diff(days[order])) + 1).tolist(), len(order)]
    rows_by_day = batch.take(order)
    for start, end in pairwise(starts):
        yield _date(int(days[order[start]])), rows_by_day.slice(start, end - start)


def _times(rows: pa.RecordBatch | pa.Table, date_column: DateColumn) -> pa.Array | pa.ChunkedArray:
    """The first of the columns that is not null."""
    names = (date_column,) if isinstance(date_column, str) else date_column
    time = rows.column(names[0])
    if not time.null_count or len(names) == 1:
        return time
    return pc.coalesce(*(rows.column(name) if isinstance(name, str) else pa.scalar(name, time.type) for name in names))


def sort_by_time(rows: pa.Table, date_column: DateColumn) -> pa.Table:
    """The rows of a row group, sorted by the time that decides their day; rows of equal time keep their order.

    A message arrives with the window that completes it, and captures follow one another. Only unsorted runs are copied.
    """
    times: NDArray[np.int64] = _times(rows, date_column).cast(pa.int64()).to_numpy()
    if (times[1:] >= times[:-1]).all():
        return rows
    # A row is in its place if no earlier row has a later time, and no later row an earlier time.
    fixed = (np.maximum.accumulate(times) == times) & (np.minimum.accumulate(times[::-1])[::-1] == times)
    bounds = [0, *(np.flatnonzero(np.diff(fixed)) + 1).tolist(), len(times)]
    if len(bounds) > MAX_SORTED_RUNS:
        return rows.take(pa.array(np.argsort(times, kind="stable")))
    pieces = [rows.slice(a, b - a) for a, b in pairwise(bounds)]
    for k, (a, b) in enumerate(pairwise(bounds)):
        if not fixed[a]:
            pieces[k] = pieces[k].take(pa.array(np.argsort(times[a:b], kind="stable")))
    return pa.concat_tables(pieces)


def _date(day: int) -> str:
    return str(np.datetime64(day, "D"))


def _write_group(part: DayPart, rows: pa.Table) -> None:
    assert part.writer is not None
    rows = sort_by_time(rows, part.date_column)
    try:
        # A batch may be a whole table: even groups of about the greatest size.
        group_count = max(1, round(rows.num_rows / MAX_GROUP_ROW_COUNT))
        part.writer.write_table(rows, row_group_size=-(-rows.num_rows // group_count))
    except OSError as error:
        raise OutputError(f"cannot write {part.path}: {error.strerror or error}") from error
    part.row_count += rows.num_rows
    part.written_bytes += rows.nbytes


def parquet_writer(path: "Path | pa.NativeFile", rows: pa.Table, date_column: DateColumn) -> pq.ParquetWriter:
    """A writer whose columns are stored as their values ask for, for row groups in order of ``date_column``.

    ``rows``: its first row group.

    Times and numbers are stored as differences, and only strings that repeat have dictionaries. A million message rows
    then take 17.5 MB (24.0 MB with plain zstd), and Spark scans them a third faster. Differences for ids, and larger
    pages than pyarrow's 20,000 rows, save another third of the size and of the time to write.
    """
    schema = rows.schema
    options, metadata = _writer_options(schema, date_column if isinstance(date_column, str) else None)
    id_counts = {name: rows.num_rows - rows[name].null_count for name in BLOOM_IDS if name in schema.names}
    if any(id_counts.values()) and "bloom_filter_options" in _WRITER_PARAMETERS:
        options = options | {"bloom_filter_options": {name: {"ndv": n} for name, n in id_counts.items() if n}}
    # As bytes: pyarrow takes text for UTF-8, which a path need not be.
    sink = path if isinstance(path, pa.NativeFile) else pa.OSFile(os.fsencode(path), "wb")
    writer = pq.ParquetWriter(sink, schema, **options)
    if sink is not path:
        writer.file_handle = sink  # closed with the writer
    writer.add_key_value_metadata(metadata)
    return writer


@lru_cache(MAX_CACHED_SCHEMAS)
def _writer_options(schema: pa.Schema, sorted_by: str | None) -> tuple[dict[str, Any], dict[bytes, bytes]]:
    """Options of the writer, and the metadata of its file: the same for all files of a table."""
    leaves = [leaf for column in schema for leaf in _leaves(column.name, column.type)]
    encodings = {name: encoding for name, kind in leaves if (encoding := _encoding(name, kind))}
    metadata = {
        **(schema.metadata or {}),
        b"ARROW:schema": base64.b64encode(_plain(schema).serialize()),
        SPARK_SCHEMA: json.dumps(_spark_struct(_plain(schema)), separators=(",", ":")).encode(),
        VERSION: __version__.encode(),
        b"mqpcap.schema_version": str(SCHEMA_VERSION).encode(),
    }
    options = {
        "version": "2.6",
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": [name for name, _ in leaves if name not in encodings],
        "column_encoding": encodings,
        # Bounds of bodies help nobody; they would be copied into every page index.
        "write_statistics": [name for name, kind in leaves if not pa.types.is_binary(kind)],
        "write_page_index": True,
        "sorting_columns": pq.SortingColumn.from_ordering(schema, [(sorted_by, "ascending")]) if sorted_by else None,
        **_pages("DELTA_LENGTH_BYTE_ARRAY" in encodings.values()),
        "store_schema": False,  # it would say that dictionaries are wanted back
    }
    return options, metadata


def _pages(bodies: bool) -> dict[str, int]:
    """How many rows make a page; with bodies their size decides, looked at every thousand rows as is pyarrow's way."""
    pages = {} if bodies else {"write_batch_size": PAGE_ROW_COUNT}
    # Older versions of pyarrow put no limit to the rows of a page.
    limited = "max_rows_per_page" in _WRITER_PARAMETERS
    return pages | {"max_rows_per_page": PAGE_ROW_COUNT} if limited else pages


def _spark_struct(fields: Iterable[pa.Field]) -> dict[str, Any]:
    """A schema as Spark writes it into its own files, so that Spark shows the columns' comments."""
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _spark_type(field.type),
                "nullable": True,
                "metadata": {key.decode(): text.decode() for key, text in (field.metadata or {}).items()},
            }
            for field in fields
        ],
    }


def _spark_type(kind: pa.DataType) -> Any:
    if isinstance(kind, pa.ListType):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if isinstance(kind, pa.StructType):
        return _spark_struct(kind)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return "timestamp" if pa.types.is_timestamp(kind) else SPARK_TYPES[str(kind)]


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema], schema.metadata
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns Parquet makes of an Arrow column: itself, or the leaves of a list or struct."""
    if isinstance(kind, pa.ListType):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif isinstance(kind, pa.StructType):
        for inner in kind:
            yield from _leaves(f"{path}.{inner.name}", inner.type)
    else:
        yield path, kind


def _encoding(path: str, kind: pa.DataType) -> str | None:
    """The encoding of one leaf; None is a dictionary."""
    name = path.rpartition(".")[2]
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return "PLAIN"
    if pa.types.is_timestamp(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_int64(kind) and name not in CODES and not name.endswith("connection_id"):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_decimal(kind) and name not in CODES:
        return "PLAIN"  # they count too, but Polars reads no differences of them
    if pa.types.is_string(kind) and name in IDS:
        return "DELTA_BYTE_ARRAY"
    if pa.types.is_binary(kind) or (pa.types.is_string(kind) and name in DOCUMENTS):
        return "DELTA_LENGTH_BYTE_ARRAY"
    return None
