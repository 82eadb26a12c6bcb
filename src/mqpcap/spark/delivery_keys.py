"""Publishes and deliveries of the shares of a capture, brought together.

A delivery comes from an earlier publish to the same server, whose connection may be in another share. So a share leaves
what a lookup needs of each, some 60 bytes a row, in a file of the staging directory: Arrow batches. `deliveries` then
runs `mqpcap.correlate.deliveries.Deliveries` over the files of all shares, in order of time.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import whole
from mqpcap.correlate.batch import END_NS, Behind
from mqpcap.correlate.deliveries import Delivered, Deliveries, Published
from mqpcap.protocols import protocols
from mqpcap.schema.requests import Prints
from mqpcap.spark.storage import Storage

BATCH_ROW_COUNT = 1 << 16
"""So many rows wait in the memory of a share before they go to its file."""
_TEXTS = ("destination", "text")
"""Of deliveries: what `DeliveryRule.text` says, and where they were sent to."""
_NUMBERS = *(x.name for x in fields(Published)), "server", "length"
_SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in _NUMBERS), ("delivers", pa.bool_()), *((name, pa.string()) for name in _TEXTS)]
)
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
Kind = TypeVar("Kind", Published, Delivered)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The keys of a protocol in one share. begins: of each batch the earliest time in it."""

    protocol: str
    name: str
    delivers: bool
    begins: tuple[int, ...]


class KeyWriter(Deliveries):
    """Stands where a share would look publishes up; leaves the keys of one protocol in a file instead."""

    def __init__(self, protocol: str, prints: Prints, storage: Storage, folder: str) -> None:
        rule = protocols()[protocol].rule
        assert rule is not None and rule.deliveries is not None
        super().__init__(protocol, rule.deliveries, prints)
        self._storage, self._name = storage, f"{folder}/{protocol}"
        self._file: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._left: list[pa.Table] = []
        self._delivers = False
        self._begins: list[int] = []

    def _publish(self, published: Published) -> None:
        self._leave(published)

    def ready(self, behind: Behind) -> None:
        """No rows: deliveries are left, too."""
        for delivered in self._held:
            self._delivers = True
            self._leave(delivered)
        self._held.clear()

    def _leave(self, some: Published | Delivered) -> None:
        if len(some):
            self._left.append(_table(some))
        if sum(rows.num_rows for rows in self._left) >= BATCH_ROW_COUNT:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._left).combine_chunks()
        if self._writer is None:
            self._file = self._storage.output(self._name)
            self._writer = pa.ipc.new_stream(self._file, _SCHEMA, options=_LZ4)
        self._writer.write_table(rows)
        self._begins.append(int(rows["ts_ns"].to_numpy().min()))
        self._left = []

    def close(self) -> list[KeyFile]:
        """The file, finished; none if there was nothing to leave."""
        if self._left:
            self._write()
        if self._writer is None or self._file is None:
            return []
        self._writer.close()
        self._file.close()
        return [KeyFile(self.protocol, self._name, self._delivers, tuple(self._begins))]


def deliveries(files: Sequence[KeyFile], storage: Storage) -> Iterator[pa.Table]:
    """The rows of ``deliveries`` of a protocol, without ``capture``."""
    rule = protocols()[files[0].protocol].rule
    assert rule is not None and rule.deliveries is not None
    made = Deliveries(files[0].protocol, rule.deliveries, lambda column: np.empty(0, np.int64))
    waiting = _SCHEMA.empty_table()
    for rows, until_ns in _in_time(files, storage):
        delivers = rows["delivers"]
        waiting = pa.concat_tables([waiting, rows.filter(delivers)])
        ready = pc.less(waiting["ts_ns"], until_ns)
        published = _read(rows.filter(pc.invert(delivers)), Published)
        found = made.look_up(published, _read(waiting.filter(ready), Delivered))
        waiting = waiting.filter(pc.invert(ready))
        if found is not None:
            yield found


def _in_time(files: Sequence[KeyFile], storage: Storage) -> Iterator[tuple[pa.Table, int]]:
    """The batches of all files, and each time the time before which no later batch has a row."""
    opened = [pa.ipc.open_stream(storage.input(file.name)) for file in files]
    # The earliest of each batch and all behind it, from the last one on.
    lows = [[*accumulate(reversed(file.begins), min)] for file in files]
    queue = [(low.pop(), k) for k, low in enumerate(lows)]
    heapq.heapify(queue)
    while queue:
        _, k = heapq.heappop(queue)
        if lows[k]:
            heapq.heappush(queue, (lows[k].pop(), k))
        yield pa.Table.from_batches([opened[k].read_next_batch()]), queue[0][0] if queue else END_NS


def _table(some: Published | Delivered) -> pa.Table:
    """Publishes or deliveries as rows of a file."""
    n = len(some.key)
    columns: dict[str, Any] = {name: getattr(some, name, np.zeros(n, np.int64)) for name in _NUMBERS}
    columns |= {name: getattr(some, name, pa.nulls(n, pa.string())) for name in _TEXTS}
    return pa.table(columns | {"delivers": np.full(n, isinstance(some, Delivered))}, _SCHEMA)


def _read(rows: pa.Table, kind: type[Kind]) -> Kind:
    """Rows of a file as publishes or deliveries."""
    columns = {x.name: whole(rows[x.name]) for x in fields(kind)}
    return kind(**{name: column if name in _TEXTS else column.to_numpy() for name, column in columns.items()})
