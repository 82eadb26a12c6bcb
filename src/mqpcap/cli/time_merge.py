"""Chunks of many captures to rows in order of time.

Rows wait in memory up to a bound, then in one temporary file, a slice at a time; the merge opens a slice
when its first row is due. A row's place is fixed by time, capture, packet, connection, direction and offset.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

import pyarrow as pa

from mqpcap.tables.arrow import Chunk

SLICE_ROWS = 1024
"""Rows that are opened at a time."""
HELD_BYTES = 128 << 20
"""So much waits in memory."""

Value = object
Key = tuple[int, int, int, int, str, int]
_KEY = ("ts_ns", "first_packet", "connection_id", "direction", "stream_offset")


@dataclass(frozen=True, slots=True)
class Row:
    """One message: its columns of ``messages``, those of its protocol's table, and the capture it is of."""

    capture: int
    protocol: str
    message: Mapping[str, Value]
    fields: Mapping[str, Value]


@dataclass(slots=True)
class _Slice:
    """Some rows of a chunk, as tables or as their place in the file."""

    capture: int
    protocol: str
    tables: tuple[pa.Table, pa.Table] | None
    place: tuple[int, int, int] = (0, 0, 0)


class Ordered:
    """Takes chunks in, gives their rows in order of time; a context manager that lets the file go."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._room_bytes = held_bytes
        self._chunks: list[tuple[Key, list[_Slice]]] = []
        self._file: IO[bytes] | None = None
        self.span_ns: tuple[int, int] | None = None
        """Times of the first and last row."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, capture: int, chunk: Chunk) -> None:
        """Take a chunk in; its rows are sorted."""
        if not chunk.messages.num_rows:
            return
        self._room_bytes -= chunk.messages.nbytes + chunk.fields.nbytes
        slices = []
        for start in range(0, chunk.messages.num_rows, SLICE_ROWS):
            tables = chunk.messages.slice(start, SLICE_ROWS), chunk.fields.slice(start, SLICE_ROWS)
            if self._room_bytes >= 0:
                slices.append(_Slice(capture, chunk.protocol, tables))
            else:
                slices.append(_Slice(capture, chunk.protocol, None, self._written(tables)))
        first = {name: chunk.messages[name][0].as_py() for name in _KEY}
        span_ns = chunk.messages["ts_ns"][0].as_py(), chunk.messages["ts_ns"][-1].as_py()
        known = self.span_ns or span_ns
        self.span_ns = min(known[0], span_ns[0]), max(known[1], span_ns[1])
        self._chunks.append((_key(capture, first), slices))

    def _written(self, tables: tuple[pa.Table, pa.Table]) -> tuple[int, int, int]:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile(prefix="mqpcap-rows-")  # noqa: SIM115 - closed on exit
        ends = [self._file.tell()]
        for table in tables:
            with pa.ipc.new_stream(self._file, table.schema) as writer:
                writer.write_table(table)
            ends.append(self._file.tell())
        return ends[0], ends[1] - ends[0], ends[2] - ends[1]

    def _opened(self, one: _Slice) -> tuple[pa.Table, pa.Table]:
        if one.tables is not None:
            return one.tables
        assert self._file is not None
        start, messages_bytes, fields_bytes = one.place
        self._file.seek(start)
        both = [self._file.read(n) for n in (messages_bytes, fields_bytes)]
        messages, fields = (pa.ipc.open_stream(x).read_all() for x in both)
        return messages, fields

    def rows(self) -> Iterator[Row]:
        """Every row, earliest first; may be asked again."""
        # (key, chunk, iterator): a chunk whose turn has not come has no iterator, only the key of its first row.
        heap: list[tuple[Key, int, Row | None]] = [(key, i, None) for i, (key, _) in enumerate(self._chunks)]
        heapq.heapify(heap)
        iterators: dict[int, Iterator[Row]] = {}
        while heap:
            _, i, row = heap[0]
            if row is None:
                iterators[i] = self._rows(self._chunks[i][1])
                row = next(iterators[i])
            yield row
            following = next(iterators[i], None)
            if following is None:
                heapq.heappop(heap)
                del iterators[i]
            else:
                heapq.heapreplace(heap, (_key(following.capture, following.message), i, following))

    def _rows(self, slices: list[_Slice]) -> Iterator[Row]:
        for one in slices:
            messages, fields = self._opened(one)
            for message, values in zip(_dicts(messages), _dicts(fields), strict=True):
                yield Row(one.capture, one.protocol, message, values)


def _dicts(table: pa.Table) -> Iterator[dict[str, Value]]:
    """What ``to_pylist`` gives."""
    names = table.column_names
    return (dict(zip(names, row, strict=True)) for row in zip(*map(_values, table.columns), strict=True))


def _values(column: pa.ChunkedArray) -> list[Value]:
    """What ``to_pylist`` gives, without a scalar object for each value where that can be spared."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]  # pyarrow is untyped
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _key(capture: int, row: Mapping[str, object]) -> Key:
    ts_ns, first_packet, connection_id, direction, stream_offset = (row[name] for name in _KEY)
    return ts_ns, capture, first_packet, connection_id, direction, stream_offset  # type: ignore[return-value]  # of MESSAGES
