"""Keeps rows that are too many for memory in an unnamed temporary file.

In: tables of rows, as a capture is read. Out: a single table. Called by: ``recording``.

``append`` writes rows to the file. ``table`` returns a table over a memory map of the file, so pages are loaded on
access and can be evicted by the system.
"""

import mmap
import tempfile
import weakref
from typing import BinaryIO

import pyarrow as pa

from mqpcap.errors import let_go


class SpilledRows:
    """The rows of one table.

    >>> rows = SpilledRows(pa.schema([("n", pa.int64())]))
    >>> rows.append(pa.table({"n": [1, 2]}))
    >>> rows.table()["n"].to_pylist()
    [1, 2]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._file: BinaryIO | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def append(self, rows: pa.Table) -> None:
        """Adds rows; their columns must be those of the schema."""
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="mqpcap-rows-")  # noqa: SIM115 - as long as this lives
            weakref.finalize(self, let_go, self._file)
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._writer.write_table(rows)

    def table(self) -> pa.Table:
        """All rows as a table; afterwards no rows can be added."""
        if self._writer is None or self._file is None:
            return self._schema.empty_table()
        self._writer.close()
        self._file.flush()
        with self._file as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()
