"""Rows of a task to Parquet files under names of its own.

A task may be done twice at the same time, and a Python worker can outlive its executor: so no two attempts ever
write the same name, and a file counts only when the driver takes it.
"""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap.arrays import unified
from mqpcap.spark.storage import Storage
from mqpcap.tables.parquet import DATES, MAX_FILE_BYTES, MAX_GROUP_ROW_COUNT, by_date, in_time, parquet_writer

GROUP_BYTES = 16 << 20
"""A row group is written past it; tasks run side by side, so they hold less than an export does."""
WAITING_BYTES = 48 << 20
"""Rows waiting for their row group, over all tables and days."""
MAX_OPEN_FILES = 48


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A finished Parquet file of a table: its day, its name in the staging directory, rows and bytes."""

    table: str
    date: str
    name: str
    row_count: int
    size_bytes: int


@dataclass(slots=True)
class _OpenFile:
    table: str
    date: str
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_row_count: int = 0
    number: int = 0
    name: str = ""
    stream: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    row_count: int = 0
    written_bytes: int = 0


class TaskFiles:
    """The files of one attempt of one task."""

    def __init__(self, storage: Storage, stem: str) -> None:
        self._storage = storage
        self.stem = stem
        self._parts: dict[tuple[str, str], _OpenFile] = {}
        self._waiting_bytes = 0
        self._files: list[TaskFile] = []

    def write(self, table: str, rows: pa.Table) -> None:
        """Adds rows to a table, each to its day."""
        # A row group is encoded at once, so what is large comes in pieces; rows.slice copies nothing.
        piece_count = max(1, -(-rows.nbytes // GROUP_BYTES), -(-rows.num_rows // MAX_GROUP_ROW_COUNT))
        each = max(1, -(-rows.num_rows // piece_count))
        for start in range(0, rows.num_rows, each):
            for date, batch in by_date(table, rows.slice(start, each), DATES.get(table, "ts_ns")):
                self._add(table, date, batch)

    def _add(self, table: str, date: str, batch: pa.RecordBatch) -> None:
        part = self._parts.setdefault((table, date), _OpenFile(table, date))
        part.waiting.append(batch)
        part.waiting_bytes += batch.nbytes
        part.waiting_row_count += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if part.waiting_bytes >= GROUP_BYTES or part.waiting_row_count >= MAX_GROUP_ROW_COUNT:
            self._write(part)
        while self._waiting_bytes > WAITING_BYTES:
            self._write(max(self._parts.values(), key=lambda other: other.waiting_bytes))

    def close(self) -> list[TaskFile]:
        """All files, finished."""
        for part in self._parts.values():
            self._write(part)
            self._close(part)
        return self._files

    def _write(self, part: _OpenFile) -> None:
        if not part.waiting:
            return
        rows = in_time(unified(pa.Table.from_batches(part.waiting)), DATES.get(part.table, "ts_ns"))
        self._waiting_bytes -= part.waiting_bytes
        part.waiting, part.waiting_bytes, part.waiting_row_count = [], 0, 0
        if part.written_bytes >= MAX_FILE_BYTES:
            self._close(part)
        if part.writer is None:
            self._open(part, rows.schema)
        assert part.writer is not None
        part.writer.write_table(rows, row_group_size=rows.num_rows)
        part.row_count += rows.num_rows
        part.written_bytes += rows.nbytes

    def _open(self, part: _OpenFile, schema: pa.Schema) -> None:
        open_parts = [other for other in self._parts.values() if other.writer is not None]
        if len(open_parts) >= MAX_OPEN_FILES:
            self._close(open_parts[0])
        part.name = f"data/{part.table}/date={part.date}/part-{self.stem}-{part.number:05d}.parquet"
        part.number += 1
        part.stream = self._storage.output(part.name)
        part.writer = parquet_writer(part.stream, schema)

    def _close(self, part: _OpenFile) -> None:
        if part.writer is None or part.stream is None:
            return
        part.writer.close()
        size_bytes = part.stream.tell()
        part.stream.close()
        self._files.append(TaskFile(part.table, part.date, part.name, part.row_count, size_bytes))
        part.writer = part.stream = None
        part.row_count = part.written_bytes = 0
