"""Rows of a task to Parquet files under names of its own.

A task may be done twice at the same time, and a Python worker can outlive its executor: so no two attempts ever
write the same name, and a file counts only when the driver takes it.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap.spark.storage import Storage
from mqpcap.tables.export import TableFile
from mqpcap.tables.parquet import DATES, MAX_GROUP_ROW_COUNT, DayPart, RowFiles, by_date, parquet_writer

GROUP_BYTES = 16 << 20
"""A row group is written past it; tasks run side by side, so they hold less than an export does."""
WAITING_BYTES = 48 << 20
"""Rows waiting for their row group, over all tables and days."""


class TaskFiles(RowFiles):
    """The files of one attempt of one task."""

    def __init__(self, storage: Storage, stem: str) -> None:
        super().__init__(GROUP_BYTES, WAITING_BYTES)
        self._storage = storage
        self.stem = stem
        self._streams: dict[str, pa.NativeFile] = {}
        self._files: list[TableFile] = []

    def write(self, table: str, rows: pa.Table) -> None:
        """Adds rows to a table, each to its day."""
        # A row group is encoded at once, so what is large comes in pieces; rows.slice copies nothing.
        piece_count = max(1, -(-rows.nbytes // GROUP_BYTES), -(-rows.num_rows // MAX_GROUP_ROW_COUNT))
        each = max(1, -(-rows.num_rows // piece_count))
        date_column = DATES.get(table, "ts_ns")
        for start in range(0, rows.num_rows, each):
            for date, batch in by_date(table, rows.slice(start, each), date_column):
                self._add(table, date, date_column, batch)

    def close(self) -> list[TableFile]:
        """All files, finished, by their paths in the staging directory."""
        self._close_all()
        return self._files

    def _create(self, part: DayPart, schema: pa.Schema) -> pq.ParquetWriter:
        part.path = f"data/{part.table}/date={part.date}/part-{self.stem}-{part.number:05d}.parquet"
        self._streams[part.path] = stream = self._storage.output(part.path)
        return parquet_writer(stream, schema)

    def _close_file(self, part: DayPart, writer: pq.ParquetWriter) -> None:
        writer.close()
        with self._streams.pop(part.path) as stream:
            size_bytes = stream.tell()
        self._files.append(TableFile(part.path, part.table, part.row_count, size_bytes))
