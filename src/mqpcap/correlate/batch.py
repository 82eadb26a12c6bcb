"""Input of the request matcher: messages to correlate, progress of reading, ends of connections.

Order on a connection is TCP's: each message carries what its sender had received when it sent the message.

first_ack   acknowledgement number of the segment that brought the message's first byte, as a stream offset of the other
            side: all bytes of the other side below it had arrived. Signed: below 0 where it acknowledges bytes before
            the other side's offset 0. NO_OFFSET without an ACK, or where that offset 0 was not known by then.
last_ack    the same of the segment that brought the last byte (of a truncated message: the last captured one). A
            segment is the one whose bytes were kept; that of a retransmission acknowledges more.
acked_from  where a side of a connection without a known start was first acknowledged by the other side, as an offset
            of its own stream. Bytes from there to its first captured one are a hole. 0 where the start is known,
            NO_OFFSET where the other side acknowledged nothing before the side's first byte was given out.
started     the initial sequence numbers of both sides are known, from any two of SYN, SYN-ACK and the client's first
            ACK, in any order. Then offset 0 of both sides is the first byte of the connection.

A reply ``r`` may answer a request ``q`` only if ``q.offset + q.length <= r.first_ack`` and ``q.last_ack <= r.offset``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array, factorize, is_sorted
from mqpcap.tcp.flow_records import NONE

KEPT = (
    "connection_id", "op", "destination", "client_name", "status", "error_code", "first_packet", "client_ip",
    "client_port", "server_ip", "server_port",
)  # fmt: skip
"""Columns of a row that waits, beside its arrays."""
NO_OFFSET = NONE
"""A stream offset that is not known: below all others."""
UNREAD = -2
"""Index of a message that was not captured far enough to say its operation: it may be any message."""
END_NS = (1 << 63) - 1
"""A time behind all others."""


def in_order(numbers: Int64Array, *keys: NDArray[np.generic]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows in order of a number, where it is equal of a key, and so on; and where those of each number end."""
    distinct, place = factorize(numbers)
    # NumPy sorts 16 bits in linear time.
    order = np.argsort(place.astype(np.uint16) if len(distinct) <= 1 << 16 else place, kind="stable")
    if not is_sorted(key.take(order) for key in (place, *keys)):
        order = np.lexsort((*keys[::-1], place))
    return order, np.cumsum(np.bincount(place))


@dataclass(frozen=True)
class Batch(ColumnBatch):
    """Messages of one protocol: ``table`` has KEPT, ``direction``, ``flaw``, and what the rule needs as ``f.NAME``.

    flow, offset, length, ts_ns, end_ns (int64), from_client, broken (bytes are missing in front, or it was found by a
    search) and cut (not all of it was captured; bool) have an entry a row; rows are in order of time.
    """

    table: pa.Table
    flow: Int64Array
    from_client: NDArray[np.bool_]
    offset: Int64Array
    length: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array
    broken: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    started: NDArray[np.bool_]
    """Whether the start of the row's connection is known; this and the columns below: see the module."""
    first_ack: Int64Array
    last_ack: Int64Array
    acked_from: Int64Array

    def __len__(self) -> int:
        return len(self.flow)

    @cached_property
    def by_side(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows side by side of each connection, in order of the bytes, and where those of each side end."""
        return in_order(self.flow * 2 + ~self.from_client, self.offset)

    @cached_property
    def when(self) -> Int64Array:
        """When rows came; where bytes of a side came in another order, no row is earlier than those in front of it."""
        by_side, ends = self.by_side
        back = np.flatnonzero(np.diff(self.ts_ns.take(by_side)) < 0) + 1
        sides = np.searchsorted(ends, back, "right")
        sides = sides[back != np.append(0, ends)[sides]]  # the first row of a side comes behind no other
        when = self.ts_ns.copy() if len(sides) else self.ts_ns
        for k in np.unique(sides).tolist():
            rows = by_side[ends[k - 1] if k else 0 : ends[k]]
            when[rows] = np.maximum.accumulate(when[rows])
        return when


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Rows of a window as matchers are given them, an entry each.

    order        the rows by connection, in order of time
    index        of each row among those that take part, UNREAD if its operation was not captured, -1 for others
    code, echo_key, payload_key, has_id   see `RequestGroup`
    first_row    the number of the first row that takes part
    """

    order: NDArray[np.intp]
    index: Int64Array
    flow: Int64Array
    code: Int64Array
    echo_key: Int64Array
    payload_key: Int64Array
    has_id: NDArray[np.bool_]
    ts_ns: Int64Array
    end_ns: Int64Array
    offset: Int64Array
    length: Int64Array
    client: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    start_known: NDArray[np.bool_]
    first_ack: Int64Array
    last_ack: Int64Array
    acked_from: Int64Array
    first_row: int


@dataclass(frozen=True, slots=True)
class Behind:
    """How far the capture was read; as it stands, to its end.

    sides      sides (connection, whether the client's) that wait for bytes, so that the other is ahead, and since when
    since_ns   by server (address, port): from when on messages of its clients are still to come
    now_ns     the time of the newest packet
    """

    sides: Mapping[tuple[int, bool], int] = field(default_factory=dict)
    since_ns: Mapping[tuple[str, int], int] = field(default_factory=dict)
    now_ns: int = END_NS


@dataclass(frozen=True, slots=True)
class Closing:
    """How connections ended, an entry each.

    ended                  the end was captured: an RST, or a FIN of the server
    covered                the server closed after it acknowledged all bytes of the client
    requests_missing_at    last stream offset of the client where bytes hold no message, -1 if all do
    replies_missing_at     the same offset of the server
    last_ns                time of the last packet
    orderly                the packet with the server's FIN acknowledges the client's FIN, and there was no RST
    requests_extent        end of the client's bytes that were sent or acknowledged, captured or not, without the FIN
    replies_extent         the same end of the server's bytes
    requests_fin           stream offset of the client's FIN, NO_OFFSET without one
    replies_fin            stream offset of the server's FIN, NO_OFFSET without one
    """

    flow: Int64Array
    ended: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    requests_missing_at: Int64Array
    replies_missing_at: Int64Array
    last_ns: Int64Array
    orderly: NDArray[np.bool_]
    requests_extent: Int64Array
    replies_extent: Int64Array
    requests_fin: Int64Array
    replies_fin: Int64Array
