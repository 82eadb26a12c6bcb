"""Publishes and deliveries of the shares of a capture, brought together.

A delivery comes from an earlier publish to the same server, whose connection may be in another share. So a share leaves
what a lookup needs of each, some 60 bytes a row, in Parquet files of its task. `deliveries` then runs
`mqpcap.correlate.deliveries.Deliveries` over the files of all shares, in order of time.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap.arrays import whole
from mqpcap.correlate.batch import END_NS, Behind
from mqpcap.correlate.deliveries import Delivered, Deliveries, Published
from mqpcap.protocols import protocols
from mqpcap.schema.requests import DeliveryRule, Prints
from mqpcap.spark.storage import Storage
from mqpcap.tables.export import TableFile

PUBLISHED, DELIVERED = "published", "delivered"
_KINDS: dict[str, type[Published] | type[Delivered]] = {PUBLISHED: Published, DELIVERED: Delivered}


class KeyWriter(Deliveries):
    """Stands where a share would look publishes up; leaves the keys of one protocol in files instead.

    ``write`` takes rows of tables, which are called ``PROTOCOL.published`` and ``PROTOCOL.delivered``.
    """

    def __init__(self, protocol: str, prints: Prints, write: Callable[[str, pa.Table], None]) -> None:
        super().__init__(protocol, _rule(protocol), prints)
        self._write = write

    def _publish(self, published: Published) -> None:
        self._leave(PUBLISHED, published)

    def ready(self, behind: Behind) -> None:
        """No rows: deliveries are left, too."""
        for delivered in self._held:
            self._leave(DELIVERED, delivered)
        self._held.clear()

    def _leave(self, kind: str, some: Published | Delivered) -> None:
        rows = pa.table({x.name: getattr(some, x.name) for x in fields(some)})
        self._write(f"{self.protocol}.{kind}", rows)


def _rule(protocol: str) -> DeliveryRule:
    rule = protocols()[protocol].rule
    assert rule is not None and rule.deliveries is not None
    return rule.deliveries


def deliveries(protocol: str, files: Sequence[TableFile], storage: Storage) -> Iterator[pa.Table]:
    """The rows of ``deliveries`` of a protocol, without ``capture``."""
    made = Deliveries(protocol, _rule(protocol), lambda column: np.empty(0, np.int64))
    none, texts = np.empty(0, np.int64), pa.array([], pa.string())
    no_publishes = Published(none, none, none, none, none, none)
    waiting = Delivered(none, none, none, none, none, none, texts, texts)
    for some, until_ns in _in_time(files, storage):
        if isinstance(some, Delivered):
            waiting = Delivered.joined([waiting, some])
        ready = waiting.ts_ns < until_ns
        published = some if isinstance(some, Published) else no_publishes
        found = made.look_up(published, waiting.taken(np.flatnonzero(ready)))
        waiting = waiting.taken(np.flatnonzero(~ready))
        if found is not None:
            yield found


def _in_time(files: Sequence[TableFile], storage: Storage) -> Iterator[tuple[Published | Delivered, int]]:
    """The row groups of all files, and each time the time before which no later group has a row."""
    opened = [pq.ParquetFile(storage.input(file.path)) for file in files]
    # The earliest of each group and all behind it, from the last one on.
    lows = [[*accumulate(reversed(_begins(file)), min)] for file in opened]
    queue = [(low.pop(), k) for k, low in enumerate(lows)]
    heapq.heapify(queue)
    while queue:
        _, k = heapq.heappop(queue)
        number = opened[k].num_row_groups - 1 - len(lows[k])
        if lows[k]:
            heapq.heappush(queue, (lows[k].pop(), k))
        yield _read(opened[k].read_row_group(number), files[k]), queue[0][0] if queue else END_NS


def _begins(file: pq.ParquetFile) -> list[int]:
    """The earliest time of each row group."""
    told = file.metadata
    column = told.schema.names.index("ts_ns")
    return [told.row_group(i).column(column).statistics.min for i in range(told.num_row_groups)]


def _read(rows: pa.Table, file: TableFile) -> Published | Delivered:
    kind = _KINDS[file.table.rpartition(".")[2]]
    columns = {name: whole(rows[name]) for name in rows.column_names}
    texts = ("destination", "text")
    return kind(**{name: x if name in texts else x.to_numpy() for name, x in columns.items()})
