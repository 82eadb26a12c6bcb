"""The end of each connection's captured messages, and the times when its client sent bytes that were not captured.

In: batches of messages, and ended connections. Out: the ends of both sides, and rows of MISSING_RANGES.
Called by: `Correlation`.

A publish may lie in bytes of a client that were not captured. With ``early_ns`` each range of such bytes gives a row:
the client sent it between ``since_ns`` and ``until_ns``. That is after its previous message, and at most ``early_ns``
before a packet showed that bytes are missing. So deliveries that were decided before that packet need no second look.
The bytes before a late start count, too, from ``early_ns`` before the first message of the connection: before that
nothing is known of the client.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array
from mqpcap.correlate.batch import END_NS, Batch, ConnectionEnds
from mqpcap.records import dataclass

MISSING_RANGES = pa.schema(
    [
        ("connection_id", pa.int64()), ("server_ip", pa.string()), ("server_port", pa.int64()),
        ("since_ns", pa.int64()), ("until_ns", pa.int64()),
    ]
)  # fmt: skip
_NO_RANGES = MISSING_RANGES.empty_table()
_PLACE = MISSING_RANGES.names[:3]
_PLACE_TYPES = pa.schema([MISSING_RANGES.field(name) for name in _PLACE])


@dataclass(frozen=True)
class MessageEnds(ColumnBatch):
    """Live connections in order of flow: ends of the last messages, and the columns _PLACE.

    client, client_ns    end of the client's last message, and its time.
    server               end of the server's last message, -1 without a message.
    """

    flow: Int64Array
    client: Int64Array
    client_ns: Int64Array
    server: Int64Array
    places: pa.Table


class Ends:
    """The ends of live connections; see the module."""

    def __init__(self, early_ns: int | None) -> None:
        self._early_ns = early_ns
        self._live: MessageEnds | None = None

    def feed(self, batch: Batch) -> pa.Table:
        """Add messages; returns the missing ranges before them."""
        order, side_ends = batch.by_side
        starts = np.append(0, side_ends)[:-1]
        rows, is_client = order[starts], batch.from_client[order[starts]]
        ranges = [self._add_connections(batch, rows)]
        live = self._live
        assert live is not None
        captured = np.where(batch.truncated, 0, batch.length)  # what follows is missing
        start, end, end_ns = (x.take(order) for x in (batch.offset, batch.offset + captured, batch.end_ns))
        previous_end, previous_ns = (np.append(0, x)[: len(order)] for x in (end, end_ns))
        last_end, last_ns = np.maximum.reduceat(end, starts), end_ns[side_ends - 1]
        index = live.flow.searchsorted(batch.flow[rows])
        clients, servers = index[is_client], index[~is_client]
        previous_end[starts[is_client]] = live.client[clients]
        previous_ns[starts[is_client]] = live.client_ns[clients]
        live.client[clients] = np.maximum(live.client[clients], last_end[is_client])
        live.client_ns[clients] = last_ns[is_client]
        live.server[servers] = np.maximum(live.server[servers], last_end[~is_client])
        if self._early_ns is not None:
            of_client = np.repeat(is_client, side_ends - starts)
            # A truncated message counts before the connection is over: a delivery may be due. The next message begins
            # after all of it, without a gap.
            is_missing = (start > previous_end) & batch.after_gap.take(order) | batch.truncated.take(order)
            is_missing &= of_client
            missing = np.flatnonzero(is_missing)
            # The server acknowledges bytes within this time: then they were not sent long before they showed. Without a
            # gap before it a truncated message ends with its stream, and no later than itself.
            is_unfinished = batch.truncated & ~batch.after_gap & (batch.missing_ns == 0)
            shown_ns = np.where(is_unfinished, batch.ts_ns, batch.missing_ns)[order[missing]]
            sent_ns = shown_ns - self._early_ns
            since_ns = np.maximum(previous_ns[missing], sent_ns)
            ranges.append(_missing_ranges(batch.table, order[missing], since_ns, end_ns[missing]))
        return pa.concat_tables([x for x in ranges if x.num_rows] or [_NO_RANGES])

    def _add_connections(self, batch: Batch, rows: NDArray[np.intp]) -> pa.Table:
        """Add new connections by the first row of each side; returns ranges before late starts."""
        live = self._live
        if live is not None:
            rows = rows[~np.isin(batch.flow[rows], live.flow)]
            if not len(rows):
                return _NO_RANGES
        flow, first_rows, codes = np.unique(batch.flow[rows], return_index=True, return_inverse=True)
        since_ns = np.full(len(flow), END_NS)
        np.minimum.at(since_ns, codes.reshape(-1), batch.ts_ns[rows])
        rows = rows[first_rows]
        zeros = np.zeros(len(flow), np.int64)
        # As plain text: the dictionaries of all windows would add up.
        places = batch.table.select(_PLACE).take(pa.array(rows)).cast(_PLACE_TYPES)
        new = MessageEnds(flow, zeros, since_ns, zeros - 1, places)
        if live is not None:
            both = MessageEnds.joined([live, new])
            self._live = both.taken(np.argsort(both.flow))
        else:
            self._live = new
        late = np.flatnonzero(~batch.start_seen[rows]) if self._early_ns is not None else rows[:0]
        return _missing_ranges(new.places, late, since_ns[late] - (self._early_ns or 0), since_ns[late])

    def close(self, ends: ConnectionEnds) -> tuple[Int64Array, Int64Array, pa.Table]:
        """Drop ended connections; returns the ends of their clients and servers, and missing ranges after those."""
        client, server = np.zeros(len(ends.flow), np.int64), np.full(len(ends.flow), -1)
        live = self._live
        if live is None or not len(live.flow):
            return client, server, _NO_RANGES
        index = np.minimum(live.flow.searchsorted(ends.flow), len(live.flow) - 1)
        present = np.flatnonzero(live.flow[index] == ends.flow)
        client[present], server[present] = live.client[index[present]], live.server[index[present]]
        late = present[ends.requests_missing_at[present] >= client[present]]
        late = late if self._early_ns is not None else late[:0]
        ranges = _missing_ranges(live.places, index[late], live.client_ns[index[late]], ends.last_ns[late])
        is_live = np.ones(len(live.flow), np.bool_)
        is_live[index[present]] = False
        self._live = live.taken(np.flatnonzero(is_live))
        return client, server, ranges


def _missing_ranges(
    places: pa.Table, rows: NDArray[np.intp], since_ns: Int64Array, until_ns: Int64Array
) -> pa.Table:  # fmt: skip
    """Ranges of bytes that the clients of some rows sent between two times."""
    if not len(rows):
        return _NO_RANGES
    columns = [*places.select(_PLACE).take(pa.array(rows)).columns, since_ns, np.maximum(since_ns, until_ns)]
    return pa.table(columns, MISSING_RANGES.names).cast(MISSING_RANGES)
