"""Pairs the deliveries of all shares of a capture with their publishes.

A delivery comes from an earlier publish to the same server, and the connection of the publish may be in another share.
So each share gives the columns that the lookup needs, some 60 bytes a row, and Spark brings the rows of a key (which
includes the server) to one task. `deliveries` then runs `mqpcap.correlate.deliveries.Deliveries` over the rows of all
shares, in order of time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import numpy as np
import pyarrow as pa

from mqpcap.arrays import single_array
from mqpcap.correlate.batch import END_NS, Watermarks
from mqpcap.correlate.deliveries import MISSING_RANGE, Delivered, Deliveries, Published
from mqpcap.protocols import protocols
from mqpcap.schema.requests import DeliveryRule, Fingerprints

MAX_ROWS = 1 << 17
"""Rows that a share buffers before it gives them away."""

Keys = Published | Delivered


class KeyBuffer(Deliveries):
    """Buffers the keys of one protocol, where a whole capture would look publishes up."""

    def __init__(self, protocol: str, prints: Fingerprints) -> None:
        super().__init__(protocol, _rule(protocol), prints)
        self._publishes: list[Published] = []
        self._row_count = 0
        self.delivers = False
        """Whether there was a delivery."""

    def _publish(self, published: Published) -> None:
        self._publishes.append(published)
        self._row_count += len(published)

    def ready(self, watermarks: Watermarks) -> None:
        """Keeps deliveries for `flush`; gives no rows."""

    def flush(self, target_count: int, at_end: bool) -> Iterator[tuple[int, int, pa.Table]]:
        """The buffered rows, if they are many or all there are: target, earliest time, rows."""
        if self._row_count + sum(map(len, self._waiting)) < (1 if at_end else MAX_ROWS):
            return
        parts: list[Keys] = [Published.joined(self._publishes)] if self._publishes else []
        parts += [Delivered.joined(self._waiting)] if self._waiting else []
        self.delivers |= bool(self._waiting)
        self._publishes, self._row_count, self._waiting = [], 0, []
        for keys in parts:
            # A missing range may hide a publish of any key of its server.
            is_common = keys.offset == MISSING_RANGE if isinstance(keys, Published) else np.zeros(len(keys), np.bool_)
            for target in range(target_count):
                rows = keys.taken(np.flatnonzero(is_common | (keys.key % target_count == target)))
                columns = {x.name: getattr(rows, x.name) for x in fields(rows) if x.name != "carried"}
                if len(rows):
                    yield target, int(rows.ts_ns.min()), pa.table(columns)


def _rule(protocol: str) -> DeliveryRule:
    rule = protocols()[protocol].rule
    assert rule is not None and rule.deliveries is not None
    return rule.deliveries


def deliveries(protocol: str, parts: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
    """The rows of ``deliveries`` of a protocol, without ``capture``; parts of keys come by their earliest times."""
    lookup = Deliveries(protocol, _rule(protocol), lambda column: np.empty(0, np.int64))
    empty, texts = np.empty(0, np.int64), pa.array([], pa.string())
    no_publishes = Published(empty, empty, empty, empty, empty, empty)
    waiting = Delivered(empty, empty, empty, empty, empty, texts, texts)
    for rows, until_ns in _with_next_time(parts):
        keys = _read(rows)
        if isinstance(keys, Delivered):
            waiting = Delivered.joined([waiting, keys])
        ready = waiting.ts_ns < until_ns
        published = keys if isinstance(keys, Published) else no_publishes
        pairs = lookup.look_up(published, waiting.taken(np.flatnonzero(ready)))
        waiting = waiting.taken(np.flatnonzero(~ready))
        if pairs is not None:
            yield pairs
    if (late := lookup.stamped_early()) is not None:
        yield late


def _with_next_time(parts: Iterable[tuple[int, pa.Table]]) -> Iterator[tuple[pa.Table, int]]:
    """Each part with the earliest time of the parts that follow."""
    previous: pa.Table | None = None
    for begin_ns, rows in parts:
        if previous is not None:
            yield previous, begin_ns
        previous = rows
    if previous is not None:
        yield previous, END_NS


def _read(rows: pa.Table) -> Keys:
    columns = {name: single_array(rows[name]) for name in rows.column_names}
    kind: type[Keys] = Delivered if "text" in columns else Published
    return kind(**{name: x if pa.types.is_string(x.type) else x.to_numpy() for name, x in columns.items()})
