"""Input of the request matcher: messages to correlate, progress of reading, ends of connections.

Order on a connection is TCP's: each message carries what its sender had received when it sent the message.

first_ack   acknowledgement number of the segment with the message's first byte, as a stream offset of the other side:
            all bytes below it had arrived. It is negative if it acknowledges bytes before the other side's offset 0.
            It is NO_OFFSET without an ACK, or while that offset 0 is not known.
last_ack    the same for the segment with the last captured byte. Retransmissions do not count, as they acknowledge
            more.
acked_from  the first offset of the side that the other side acknowledged, if the start is not known. Bytes between it
            and the first captured byte are a hole. It is 0 if the start is known, and NO_OFFSET if the other side
            acknowledged nothing by then.
start_seen  the initial sequence numbers of both sides are known, from any two of SYN, SYN-ACK and the client's first
            ACK, in any order. Then offset 0 of both sides is the first byte of the connection.

A reply ``r`` may answer a request ``q`` only if ``q.offset + q.length <= r.first_ack`` and ``q.last_ack <= r.offset``.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array, drop_unused_values, factorize, is_sorted
from mqpcap.records import dataclass

KEPT = (
    "connection_id", "op", "destination", "client_name", "status", "error_code", "first_packet", "client_ip",
    "client_port", "server_ip", "server_port",
)  # fmt: skip
"""Columns of a row that waits, beside its arrays."""
UNREAD = -2
"""Index of a message that was not captured far enough to say its operation: it may be any message."""
END_NS = (1 << 63) - 1
"""A time after all others."""


def sorted_rows(numbers: Int64Array, *keys: NDArray[np.generic]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows in order of a number and then of keys, and the end of each number's rows in that order."""
    distinct, codes = factorize(numbers)
    # NumPy sorts 16 bits in linear time.
    order = np.argsort(codes.astype(np.uint16) if len(distinct) <= 1 << 16 else codes, kind="stable")
    if not is_sorted(key.take(order) for key in (codes, *keys)):
        order = np.lexsort((*keys[::-1], codes))
    return order, np.cumsum(np.bincount(codes))


@dataclass(frozen=True)
class Batch(ColumnBatch):
    """Messages of one protocol: ``table`` has KEPT, ``direction``, ``flaw``, and what the rule needs as ``f.NAME``.

    Each array has an entry a row, and rows are in order of time. See the module for the last four.

    after_gap    bytes are missing before the message, or it was found by a search.
    undecoded    the bytes before the message were captured, and are no message.
    truncated    not all of the message was captured.
    missing_ns   when a packet first showed the missing bytes before the message or in it, 0 if that is not known.
    """

    table: pa.Table
    flow: Int64Array
    from_client: NDArray[np.bool_]
    offset: Int64Array
    length: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array
    after_gap: NDArray[np.bool_]
    undecoded: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    start_seen: NDArray[np.bool_]
    first_ack: Int64Array
    last_ack: Int64Array
    acked_from: Int64Array
    missing_ns: Int64Array

    def __len__(self) -> int:
        return len(self.flow)

    def split(self, ts_ns: int, packet: int, offset: int) -> "tuple[Batch, Batch]":
        """The messages before a place in the order of time, packet and stream offset; and those from it on.

        The latter have only their own texts, so that texts do not add up from step to step.
        """
        packets = self.table["first_packet"].to_numpy()
        is_later = (self.offset >= offset) & (packets == packet) | (packets > packet)
        is_later = (self.ts_ns > ts_ns) | (self.ts_ns == ts_ns) & is_later
        later = self.taken(np.flatnonzero(is_later))
        return self.taken(np.flatnonzero(~is_later)), replace(later, table=drop_unused_values(later.table))

    @cached_property
    def by_side(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows by side of a connection and stream offset, and the end of each side's rows in that order."""
        return sorted_rows(self.flow * 2 + ~self.from_client, self.offset)

    @cached_property
    def monotonic_ts_ns(self) -> Int64Array:
        """Times of the rows; no row is earlier than a row of its side with a lower offset."""
        by_side, ends = self.by_side
        back = np.flatnonzero(np.diff(self.ts_ns.take(by_side)) < 0) + 1
        sides = np.searchsorted(ends, back, "right")
        sides = sides[back != np.append(0, ends)[sides]]  # the first row of a side comes after no other
        monotonic_ts_ns = self.ts_ns.copy() if len(sides) else self.ts_ns
        for k in np.unique(sides).tolist():
            rows = by_side[ends[k - 1] if k else 0 : ends[k]]
            monotonic_ts_ns[rows] = np.maximum.accumulate(monotonic_ts_ns[rows])
        return monotonic_ts_ns


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """What matchers are given of the rows of a batch beside its columns, an entry each.

    order        the rows by connection, in order of time.
    index        number of the row among requests and replies. It is UNREAD if the operation was not captured, and -1
                 for other messages.
    code, echo_key, payload_key, has_id   see `RequestGroup`.
    client       the message is of the side that asks.
    opens        the message is the first of its connection, or the start of the connection is known.
    first_row    the number of the first request or reply.
    """

    batch: Batch
    order: NDArray[np.intp]
    index: Int64Array
    code: Int64Array
    echo_key: Int64Array
    payload_key: Int64Array
    has_id: NDArray[np.bool_]
    client: NDArray[np.bool_]
    opens: NDArray[np.bool_]
    first_row: int


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How far the capture was read; as it stands, to its end.

    lagging_since_ns    by server (address, port): messages of its clients from this time on are still to come.
    newest_ns           the time of the newest packet.
    """

    lagging_since_ns: Mapping[tuple[str, int], int] = field(default_factory=dict)
    newest_ns: int = END_NS


@dataclass(frozen=True, slots=True)
class ConnectionEnds:
    """How connections ended, an entry each."""

    flow: Int64Array
    client_ended: NDArray[np.bool_]
    """Whether the end of the client's bytes was captured; ``server_ended``: of the server's. See `FlowColumns`."""
    server_ended: NDArray[np.bool_]
    all_acknowledged: NDArray[np.bool_]
    """Whether the server closed after it acknowledged all bytes of the client."""
    requests_missing_at: Int64Array
    """Last stream offset of the client with bytes that hold no message, -1 if all do."""
    replies_missing_at: Int64Array
    """The same offset of the server."""
    last_ns: Int64Array
    """Time of the last packet."""
    orderly: NDArray[np.bool_]
    """Whether the packet with the server's FIN acknowledges the client's FIN, without an RST."""
    requests_extent: Int64Array
    """End of the client's bytes that were sent or acknowledged, captured or not, without the FIN."""
    replies_extent: Int64Array
    """The same end of the server's bytes."""
