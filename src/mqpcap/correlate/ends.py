"""Where each connection's captured messages end, and what its client sent that was not captured.

:class:`Ends` is fed with messages as they come. A publish may lie in bytes of a client that nobody saw: with
``early_ns`` it gives a row for each stretch of such bytes, as STRETCHES. They were sent between ``since_ns`` and
``until_ns``. What a client sent before the capture began counts, too, from ``early_ns`` before its first message on:
earlier nobody knows of that client.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array
from mqpcap.correlate.batch import Batch, Closing

ANY_LENGTH = (1 << 63) - 1
"""Of bytes that may be as many as they like: nobody saw how many."""
STRETCHES = pa.schema(
    [
        ("connection_id", pa.int64()), ("server_ip", pa.string()), ("server_port", pa.int64()),
        ("since_ns", pa.int64()), ("until_ns", pa.int64()), ("length", pa.int64()),
    ]
)  # fmt: skip
_NONE = STRETCHES.empty_table()
_WHERE = STRETCHES.names[:3]
_WHERE_TYPES = pa.schema([STRETCHES.field(name) for name in _WHERE])


@dataclass(frozen=True)
class Ended(ColumnBatch):
    """Of connections in order of flow: where the last message of the client ends and when it came, where that of the
    server ends, -1 without one, and where they are."""

    flow: Int64Array
    client: Int64Array
    client_ns: Int64Array
    server: Int64Array
    where: pa.Table


class Ends:
    """The ends of live connections; see the module."""

    def __init__(self, early_ns: int | None) -> None:
        self._early_ns = early_ns
        self._known: Ended | None = None

    def feed(self, batch: Batch) -> pa.Table:
        """Take messages in; gives the stretches in front of them."""
        order, until = batch.by_side
        first = np.append(0, until)[:-1]
        rows, of_client = order[first], batch.from_client[order[first]]
        stretches = [self._begun(batch, rows)]
        known = self._known
        assert known is not None
        # What was not captured whole is not captured.
        captured = np.where(batch.cut, 0, batch.length)
        start, end, end_ns = (x.take(order) for x in (batch.offset, batch.offset + captured, batch.end_ns))
        before, before_ns = (np.append(0, x)[: len(order)] for x in (end, end_ns))
        last, last_ns, at = (
            np.maximum.reduceat(end, first),
            end_ns[until - 1],
            known.flow.searchsorted(batch.flow[rows]),
        )
        mine, others = at[of_client], at[~of_client]
        before[first[of_client]], before_ns[first[of_client]] = known.client[mine], known.client_ns[mine]
        known.client[mine] = np.maximum(known.client[mine], last[of_client])
        known.client_ns[mine] = last_ns[of_client]
        known.server[others] = np.maximum(known.server[others], last[~of_client])
        if self._early_ns is not None:
            client = np.repeat(of_client, until - first)
            gaps, cuts = np.flatnonzero(client & (start > before)), np.flatnonzero(client & batch.cut.take(order))
            stretches.append(
                _stretches(batch.table, order[gaps], before_ns[gaps], end_ns[gaps], (start - before)[gaps])
            )
            # Before the connection is over: a delivery may be due.
            stretches.append(_stretches(batch.table, order[cuts], before_ns[cuts], end_ns[cuts]))
        return pa.concat_tables([x for x in stretches if x.num_rows] or [_NONE])

    def _begun(self, batch: Batch, rows: NDArray[np.intp]) -> pa.Table:
        """Get to know new connections by the first row of each side; what late ones sent before the capture."""
        known = self._known
        if known is not None:
            rows = rows[~np.isin(batch.flow[rows], known.flow)]
            if not len(rows):
                return _NONE
        flow, first, of = np.unique(batch.flow[rows], return_index=True, return_inverse=True)
        since_ns = np.full(len(flow), ANY_LENGTH)
        np.minimum.at(since_ns, of.reshape(-1), batch.ts_ns[rows])
        rows = rows[first]
        none = np.zeros(len(flow), np.int64)
        # As plain text: the dictionaries of all windows would add up.
        where = batch.table.select(_WHERE).take(pa.array(rows)).cast(_WHERE_TYPES)
        new = Ended(flow, none, since_ns, none - 1, where)
        if known is None:
            self._known = new
        else:
            both = Ended.joined([known, new])
            self._known = both.taken(np.argsort(both.flow))
        late = np.flatnonzero(~batch.started[rows]) if self._early_ns is not None else rows[:0]
        return _stretches(new.where, late, since_ns[late] - (self._early_ns or 0), since_ns[late])

    def close(self, closing: Closing) -> tuple[Int64Array, Int64Array, pa.Table]:
        """Let connections go; gives the ends of client and server of each, and what clients sent behind them."""
        client, server = np.zeros(len(closing.flow), np.int64), np.full(len(closing.flow), -1)
        known = self._known
        if known is None or not len(known.flow):
            return client, server, _NONE
        at = np.minimum(known.flow.searchsorted(closing.flow), len(known.flow) - 1)
        here = np.flatnonzero(known.flow[at] == closing.flow)
        client[here], server[here] = known.client[at[here]], known.server[at[here]]
        late = here[closing.requests_missing_at[here] >= client[here]] if self._early_ns is not None else here[:0]
        stretches = _stretches(known.where, at[late], known.client_ns[at[late]], closing.last_ns[late])
        lives = np.ones(len(known.flow), np.bool_)
        lives[at[here]] = False
        self._known = known.taken(np.flatnonzero(lives))
        return client, server, stretches


def _stretches(
    where: pa.Table,
    rows: NDArray[np.intp],
    since_ns: Int64Array,
    until_ns: Int64Array,
    length: Int64Array | None = None,
) -> pa.Table:
    """Bytes that clients of some rows sent, of any length if it is not said."""
    if not len(rows):
        return _NONE
    times = since_ns, np.maximum(since_ns, until_ns), np.full(len(rows), ANY_LENGTH) if length is None else length
    columns = [*where.select(_WHERE).take(pa.array(rows)).columns, *times]
    return pa.table(columns, STRETCHES.names).cast(STRETCHES)
