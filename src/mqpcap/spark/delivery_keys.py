"""Pairs the deliveries of all shares of a capture with their publishes.

A delivery comes from an earlier publish to the same server, and the connection of the publish may be in another share.
So each share writes the columns that the lookup needs, some 60 bytes a row, into Parquet files of its task.
`deliveries` then runs `mqpcap.correlate.deliveries.Deliveries` over the files of all shares, in order of time.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap.arrays import single_array
from mqpcap.correlate.batch import END_NS, Watermarks
from mqpcap.correlate.deliveries import Delivered, Deliveries, Published
from mqpcap.protocols import protocols
from mqpcap.schema.requests import DeliveryRule, Fingerprints
from mqpcap.spark.storage import Storage
from mqpcap.tables.export import TableFile

PUBLISHED, DELIVERED = "published", "delivered"
_KINDS: dict[str, type[Published] | type[Delivered]] = {PUBLISHED: Published, DELIVERED: Delivered}


class KeyWriter(Deliveries):
    """Writes the keys of one protocol to files, where a whole capture would look publishes up.

    ``write`` gets the name of a table, ``PROTOCOL.published`` or ``PROTOCOL.delivered``, and its rows.
    """

    def __init__(self, protocol: str, prints: Fingerprints, write: Callable[[str, pa.Table], None]) -> None:
        super().__init__(protocol, _rule(protocol), prints)
        self._write = write

    def _publish(self, published: Published) -> None:
        self._write_keys(PUBLISHED, published)

    def ready(self, watermarks: Watermarks) -> None:
        """Writes the keys of all deliveries; gives no rows."""
        for delivered in self._waiting:
            self._write_keys(DELIVERED, delivered)
        self._waiting.clear()

    def _write_keys(self, kind: str, keys: Published | Delivered) -> None:
        rows = pa.table({x.name: getattr(keys, x.name) for x in fields(keys)})
        self._write(f"{self.protocol}.{kind}", rows)


def _rule(protocol: str) -> DeliveryRule:
    rule = protocols()[protocol].rule
    assert rule is not None and rule.deliveries is not None
    return rule.deliveries


def deliveries(protocol: str, files: Sequence[TableFile], storage: Storage) -> Iterator[pa.Table]:
    """The rows of ``deliveries`` of a protocol, without ``capture``."""
    lookup = Deliveries(protocol, _rule(protocol), lambda column: np.empty(0, np.int64))
    empty, texts = np.empty(0, np.int64), pa.array([], pa.string())
    no_publishes = Published(empty, empty, empty, empty, empty, empty)
    waiting = Delivered(empty, empty, empty, empty, empty, texts, texts)
    for keys, until_ns in _by_time(files, storage):
        if isinstance(keys, Delivered):
            waiting = Delivered.joined([waiting, keys])
        ready = waiting.ts_ns < until_ns
        published = keys if isinstance(keys, Published) else no_publishes
        rows = lookup.look_up(published, waiting.taken(np.flatnonzero(ready)))
        waiting = waiting.taken(np.flatnonzero(~ready))
        if rows is not None:
            yield rows


def _by_time(files: Sequence[TableFile], storage: Storage) -> Iterator[tuple[Published | Delivered, int]]:
    """The row groups of all files in order of time, each with the earliest time of the groups that follow."""
    opened = [pq.ParquetFile(storage.input(file.path)) for file in files]
    # By group, from the last to the first: the earliest time of the group and all later groups.
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
    metadata = file.metadata
    column = metadata.schema.names.index("ts_ns")
    return [metadata.row_group(i).column(column).statistics.min for i in range(metadata.num_row_groups)]


def _read(rows: pa.Table, file: TableFile) -> Published | Delivered:
    kind = _KINDS[file.table.rpartition(".")[2]]
    columns = {name: single_array(rows[name]) for name in rows.column_names}
    texts = ("destination", "text")
    return kind(**{name: x if name in texts else x.to_numpy() for name, x in columns.items()})
