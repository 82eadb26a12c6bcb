"""Publishes and deliveries of the shares of a capture, brought together.

A delivery comes from an earlier publish to the same server, whose connection may be in another share. So a share leaves
what a lookup needs of each, some 60 bytes a row, in files of the staging directory: Arrow batches, one file for each
group of servers. `deliveries` then runs `mqpcap.correlate.deliveries.Deliveries` over the files of a group,
in order of time.
"""

import heapq
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import factorize, whole
from mqpcap.correlate import Batch, Closing
from mqpcap.correlate.batch import END_NS
from mqpcap.correlate.deliveries import Delivered, Deliveries, Published
from mqpcap.correlate.exchanges import Pairs
from mqpcap.protocols import protocols
from mqpcap.schema.requests import I64, Prints
from mqpcap.spark.storage import Storage

BATCH_ROW_COUNT = 1 << 16
"""So many rows of a group wait in the memory of a share before they go to its file."""
MAX_GROUPS = 12
"""Groups of servers, at most: a share keeps a file open for each, and in an object store that takes 5 MB or more."""
_PUBLISHED = tuple(x.name for x in fields(Published))
_NUMBERS = *_PUBLISHED, "server", "length"
_TEXTS = ("destination", "text")
"""Of deliveries: what `DeliveryRule.text` says, and where they were sent to."""
_SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in _NUMBERS), ("delivers", pa.bool_()), *((name, pa.string()) for name in _TEXTS)]
)
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The keys of a group of servers in one share. begins: of each batch the earliest time in it."""

    protocol: str
    group: int
    name: str
    delivers: bool
    begins: tuple[int, ...]


@dataclass(slots=True)
class _Group:
    """A file in the making."""

    rows: list[pa.Table] = field(default_factory=list)
    row_count: int = 0
    name: str = ""
    file: pa.NativeFile | None = None
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    delivers: bool = False
    begins: list[int] = field(default_factory=list)


class KeyWriter(Deliveries):
    """Stands where a share would look publishes up; leaves the keys of one protocol instead.

    share_count: how many shares the capture has.
    """

    def __init__(self, protocol: str, prints: Prints, storage: Storage, folder: str, share_count: int) -> None:
        rule = protocols()[protocol].rule
        assert rule is not None and rule.deliveries is not None
        super().__init__(protocol, rule.deliveries, prints)
        self._storage, self._folder = storage, folder
        self._group_count = min(share_count, MAX_GROUPS)
        self._groups: dict[int, _Group] = {}

    def feed(self, batch: Batch | None, pairs: Pairs | None, closing: Closing | None = None) -> None:
        """Leave what publishes and delivers."""
        found = self.keyed(batch, pairs, closing)
        if found is None:
            return
        published, delivered, out, back = found
        for some, of, delivers in ((published, out, False), (delivered, back, True)):
            if len(some.key):
                self._add(_table(some), self._groups_of(of), delivers)

    def _groups_of(self, rows: pa.Table) -> I64:
        if self.rule.across_servers or self._group_count == 1:
            return np.zeros(rows.num_rows, np.int64)
        ips = whole(rows["server_ip"].cast(pa.string()).dictionary_encode())
        server, place = factorize(ips.indices.to_numpy().astype(np.int64) << 16 | rows["server_port"].to_numpy())
        names = [f"{ips.dictionary[x >> 16]} {x & 0xFFFF}" for x in server.tolist()]
        return np.array([zlib.crc32(name.encode()) % self._group_count for name in names])[place]

    def _add(self, rows: pa.Table, groups: I64, delivers: bool) -> None:
        numbers = np.unique(groups).tolist()
        for number in numbers:
            group = self._groups.setdefault(number, _Group())
            some = rows if len(numbers) == 1 else rows.filter(pa.array(groups == number))
            group.rows.append(some)
            group.row_count += some.num_rows
            group.delivers |= delivers
            if group.row_count >= BATCH_ROW_COUNT:
                self._write(number, group)

    def _write(self, number: int, group: _Group) -> None:
        if not group.rows:
            return
        rows = pa.concat_tables(group.rows).combine_chunks()
        if group.writer is None:
            group.name = f"{self._folder}/{self.protocol}.{number}"
            group.file = self._storage.output(group.name)
            group.writer = pa.ipc.new_stream(group.file, _SCHEMA, options=_LZ4)
        group.writer.write_table(rows)
        group.begins.append(int(rows["ts_ns"].to_numpy().min()))
        group.rows, group.row_count = [], 0

    def close(self) -> list[KeyFile]:
        """The files, finished."""
        for number, group in self._groups.items():
            self._write(number, group)
            assert group.writer is not None and group.file is not None
            group.writer.close()
            group.file.close()
        return [
            KeyFile(self.protocol, number, group.name, group.delivers, tuple(group.begins))
            for number, group in sorted(self._groups.items())
        ]


def deliveries(files: Sequence[KeyFile], storage: Storage) -> Iterator[pa.Table]:
    """The rows of ``deliveries`` of one group of servers of a protocol, without ``capture``."""
    rule = protocols()[files[0].protocol].rule
    assert rule is not None and rule.deliveries is not None
    made = Deliveries(files[0].protocol, rule.deliveries, lambda column: np.empty(0, np.int64))
    waiting = _SCHEMA.empty_table()
    for rows, until_ns in _in_time(files, storage):
        delivers = rows["delivers"]
        waiting = pa.concat_tables([waiting, rows.filter(delivers)])
        ready = pc.less(waiting["ts_ns"], until_ns)
        found = made.look_up(_published(rows.filter(pc.invert(delivers))), _delivered(waiting.filter(ready)))
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


def _published(rows: pa.Table) -> Published:
    return Published(*(_numbers(rows, name) for name in _PUBLISHED))


def _delivered(rows: pa.Table) -> Delivered:
    numbers = {x.name: _numbers(rows, x.name) for x in fields(Delivered) if x.name in _NUMBERS}
    return Delivered(**numbers, destination=whole(rows["destination"]), text=whole(rows["text"]))


def _numbers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    column: NDArray[np.int64] = whole(rows[name]).to_numpy()
    return column
