"""Connections as arrays, with their ids, their numbers, and their indexes in the flow table."""

import base64
import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.records import dataclass
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tcp.flow_table import FlowTable, live_flows
from mqpcap.tcp.headers import address_text
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, unwrapped

_Bytes = NDArray[np.uint8]
END_STATES = ("reset", "closed", "open")
TCP_STATES = ("opened", "refused", "not answered", "inside")


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """TCP connections as arrays, one row each.

    Columns of both sides have the shape (n, 2): side 0 is sent by endpoint A, side 1 by endpoint B.
    ``hi``, ``lo``: halves of the address.
    ``a_is_client``: A is the client, known from a SYN. If not, A is the sender of the first packet captured.
    ``duplicate``: index among flows of the same 5-tuple and first time. ``cached_id``: connection_id or 0.
    ``end_state``: index into END_STATES.
    ``tcp_state``: index into TCP_STATES: a handshake; a RST, or nothing, to a SYN; no SYN, it began before the capture.
    ``closed_by``: the side of the first FIN or accepted RST, -1 without one; ``idle_before_close_ns``: time without
    packets before it. ``closed_window_ns``: for how long the other side, which receives, announced no room.
    ``start_known``: the initial sequence number of the side is known, from its SYN or an acknowledgement of it.
    ``started``: that of both sides was known before the first byte of the connection was emitted.
    ``acked_from``: 0 if start_known. If not, the first offset that the other side acknowledged.
    ``rst``: the side sent a RST that the other side accepted. ``ended``: the end of its bytes was captured: a FIN, or
    such a RST right after its known bytes; the peer's RST says nothing of bytes that were on their way.
    ``fin_offset``: stream offset after the last byte, if a FIN was captured.
    ``fin_acked``: offset of the other side that the packet with the FIN acknowledges.
    ``acked``: highest offset of this side that the OTHER side acknowledged (fin_offset + 1 with the FIN).
    ``end_offset``: after the last byte emitted.
    ``extent``: after the highest byte that was sent or acknowledged, without the FIN.
    Unknown offsets are NO_OFFSET.
    """

    version: Int64Array
    hi: Int64Array
    lo: Int64Array
    port: Int64Array
    first_ts_ns: Int64Array
    last_ts_ns: Int64Array
    duplicate: Int64Array
    cached_id: Int64Array
    a_is_client: NDArray[np.bool_]
    end_state: Int64Array
    tcp_state: Int64Array
    closed_by: Int64Array
    idle_before_close_ns: Int64Array
    closed_window_ns: Int64Array
    syn: NDArray[np.bool_]
    start_known: NDArray[np.bool_]
    started: NDArray[np.bool_]
    acked_from: Int64Array
    rst: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    fin_offset: Int64Array
    fin_acked: Int64Array
    acked: Int64Array
    end_offset: Int64Array
    extent: Int64Array
    packets: Int64Array
    bytes: Int64Array
    retransmitted: Int64Array
    conflict: Int64Array
    missing: Int64Array
    duplicates: Int64Array

    def __len__(self) -> int:
        return len(self.version)

    def ips(self, side: NDArray[np.integer]) -> list[str]:
        """The address as text of one endpoint of each row: A where side is 0, B where it is 1."""
        row = np.arange(len(self))
        hi, lo = self.hi[row, side], self.lo[row, side]
        order = np.lexsort((lo, hi, self.version))
        keys = np.stack((self.version, hi, lo))[:, order]
        is_first = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))[: len(order)]
        texts = np.array([address_text(*key) for key in keys[:, is_first].T.tolist()], object)
        row_texts = np.empty(len(order), object)
        row_texts[order] = texts[np.cumsum(is_first) - 1]
        ips: list[str] = row_texts.tolist()
        return ips

    def ports(self, side: NDArray[np.integer]) -> Int64Array:
        """The port of that endpoint of each row."""
        port: Int64Array = self.port[np.arange(len(self)), side]
        return port

    def connection_ids(self) -> Int64Array:
        """The connection_id of each row, of 63 bits.

        It is a hash of the endpoints in either order, the time of the first packet, and `duplicate`.
        """
        for version, rows, address_a, address_b, ports in self._endpoints(self.cached_id == 0):
            tail = np.column_stack([self.first_ts_ns[rows], self.duplicate[rows]]).astype(">i8").view(np.uint8)
            head = np.full((len(rows), 1), version, np.uint8)
            hash_input = np.hstack([head, address_a, ports[:, :2], address_b, ports[:, 2:], tail.reshape(-1, 16)])
            digests = b"".join([hashlib.blake2b(x, digest_size=8).digest() for x in _rows(hash_input)])
            self.cached_id[rows] = np.frombuffer(digests, ">u8").astype(np.int64) & 0x7FFFFFFFFFFFFFFF
        return self.cached_id

    def community_ids(self) -> pa.Array:
        """The Community ID of each row, version 1 with seed 0."""
        texts = np.zeros((len(self), 30), np.uint8)
        texts[:, :2] = [*b"1:"]
        for _, rows, address_a, address_b, ports in self._endpoints(np.ones(len(self), np.bool_)):
            fixed = np.zeros((len(rows), 2), np.uint8)
            hash_input = np.hstack([fixed, address_a, address_b, fixed + np.array([6, 0], np.uint8), ports])
            # A digest of 20 bytes and a zero are 28 characters in base64; without the zero the last is padding.
            digests = b"\0".join([hashlib.sha1(x, usedforsecurity=False).digest() for x in _rows(hash_input)]) + b"\0"
            texts[rows, 2:] = np.frombuffer(base64.b64encode(digests), np.uint8).reshape(-1, 28)
            texts[rows, 29] = ord("=")
        return pa.array(texts.view("S30").reshape(-1), pa.binary()).cast(pa.string())

    def _endpoints(self, wanted: NDArray[np.bool_]) -> Iterator[tuple[int, Int64Array, _Bytes, _Bytes, _Bytes]]:
        """By IP version: the wanted rows, the bytes of the lower and the higher address, and of both ports."""
        for version, size in ((4, 4), (6, 16)):
            rows = np.flatnonzero(wanted & (self.version == version))
            if not len(rows):
                continue
            hi, lo = self.hi[rows].view(np.uint64), self.lo[rows].view(np.uint64)
            port = self.port[rows]
            same_hi, same_address = hi[:, 0] == hi[:, 1], (hi[:, 0] == hi[:, 1]) & (lo[:, 0] == lo[:, 1])
            b_first = (hi[:, 1] < hi[:, 0]) | (same_hi & (lo[:, 1] < lo[:, 0]))
            b_first |= same_address & (port[:, 1] < port[:, 0])
            row, low = np.arange(len(rows)), b_first.astype(np.int64)
            low_address, high_address = (
                np.column_stack([hi[row, x], lo[row, x]]).astype(">u8").view(np.uint8).reshape(-1, 16)[:, 16 - size :]
                for x in (low, 1 - low)
            )
            ports = np.column_stack([port[row, low], port[row, 1 - low]]).astype(">u2").view(np.uint8).reshape(-1, 4)
            yield version, rows, low_address, high_address, ports


def _rows(matrix: NDArray[np.uint8]) -> Iterator[bytes]:
    """The rows of a matrix as bytes."""
    content, width = matrix.tobytes(), matrix.shape[1]
    return (content[offset : offset + width] for offset in range(0, len(content), width))


def _columns(table: FlowTable, indexes: Int64Array) -> FlowColumns:
    """Records of the flow table as columns."""
    # Whole records first: NumPy takes these as bytes, and fields row by row.
    flows, sides = table.flow_array.take(indexes), table.both_sides().take(indexes, axis=0)
    names = "fin_offset", "rst_seen", "base_seq", "next_offset", "known_end", "fin_ack", "base_known"
    fin_offset, rst, base_seq, reached, sent_end, fin_ack, start_known = (sides[name] for name in names)
    acked = _offsets(sides["ack"][:, ::-1], base_seq, reached)
    is_reset, is_last = rst != 0, rst != 2
    rst = is_reset & ~((rst == 3) & (acked > fin_offset))
    fin_by, reset_by, last_ts_ns = (flows[name].astype(np.int64) for name in ("fin_by", "reset_by", "last_ts_ns"))
    by_reset = (reset_by > 0) & rst[np.arange(len(indexes)), reset_by - 1]
    closed_ns = sides["closed_window_ns"][:, ::-1]
    has_fin = (fin_offset != NO_OFFSET) & (fin_offset < reached + MAX_WINDOW)
    known_end = np.where(has_fin, fin_offset, np.maximum(sent_end, reached))
    # An acknowledgement of one byte more probably covers a FIN that was not captured.
    is_more = ~has_fin & (acked > known_end + 1) & (acked < reached + MAX_WINDOW)
    return FlowColumns(
        version=flows["version"].astype(np.int64),
        hi=sides["hi"],
        lo=sides["lo"],
        port=sides["port"].astype(np.int64),
        first_ts_ns=flows["first_ts_ns"],
        last_ts_ns=last_ts_ns,
        duplicate=flows["duplicate"],
        cached_id=flows["connection_id"],
        a_is_client=flows["a_is_client"] != 0,
        end_state=np.where(rst.any(axis=1), 0, np.where((fin_offset != NO_OFFSET).any(axis=1), 1, 2)),
        tcp_state=_tcp_states(sides, is_reset),
        closed_by=np.where(by_reset, reset_by, fin_by) - 1,
        idle_before_close_ns=np.where(by_reset, flows["reset_idle_ns"], flows["fin_idle_ns"]),
        closed_window_ns=np.where(closed_ns < 0, closed_ns + last_ts_ns[:, None] + 1, closed_ns),
        syn=sides["syn_seen"] != 0,
        start_known=start_known != 0,
        started=(start_known == 1).all(axis=1),
        acked_from=np.where(start_known != 0, 0, sides["acked_from"]),
        rst=rst,
        ended=rst & is_last | (fin_offset != NO_OFFSET),
        fin_offset=fin_offset,
        fin_acked=_offsets(fin_ack, base_seq[:, ::-1], reached[:, ::-1]),
        acked=acked,
        end_offset=reached,
        extent=np.where(is_more, acked, known_end),
        packets=sides["packets"],
        bytes=sides["bytes"],
        retransmitted=sides["retransmitted"],
        duplicates=sides["duplicates"].astype(np.int64),
        conflict=sides["conflict"],
        missing=sides["missing"],
    )


def _tcp_states(sides: NDArray[np.void], rst: NDArray[np.bool_]) -> Int64Array:
    """`FlowColumns.tcp_state` by the sides of connections, and which of them sent a RST that fits."""
    syn = sides["syn_seen"] != 0
    alone = syn & ~syn[:, ::-1] & (sides["ack"] < 0) & (sides["bytes"].sum(axis=1) == 0)[:, None]
    is_refused, is_unanswered = ((alone & x[:, ::-1]).any(axis=1) for x in (rst, sides["packets"] == 0))
    return np.select([is_refused, is_unanswered, syn.any(axis=1)], [1, 2, 0], 3)


def _offsets(number: Int64Array, base: Int64Array, near: Int64Array) -> Int64Array:
    """Stream offsets of sequence numbers close to an offset; NO_OFFSET where the number or that of offset 0 is -1."""
    return np.where((base < 0) | (number < 0), NO_OFFSET, unwrapped(number, base, near))


class Flows:
    """The connections of a Reassembler, in order of their first packet; KeyError for forgotten connections.

    The number of a connection is never used again; its index in the flow table is, once it is forgotten.
    """

    def __init__(self, table: FlowTable) -> None:
        self._table = table
        self._live = (-1, -1), np.zeros(0, np.int64)

    def live(self) -> Int64Array:
        """The indexes of the connections that are not forgotten, in order of their numbers."""
        counts = len(self), self._table.live_count
        if self._live[0] != counts:
            self._live = counts, live_flows(self._table)
        return self._live[1]

    def __len__(self) -> int:
        return int(self._table.opened_count)

    def numbers(self, indexes: Int64Array) -> Int64Array:
        """The numbers of connections, given their indexes in the flow table."""
        numbers: Int64Array = self._table.flow_array["connection_number"][indexes]
        return numbers

    def indexes(self, numbers: Int64Array) -> Int64Array:
        """The indexes of connections in the flow table, -1 for forgotten connections."""
        if self._table.live_count == len(self):
            return numbers
        live = self.live()
        live_numbers = np.append(self.numbers(live), -1)
        rank = np.searchsorted(live_numbers[:-1], numbers)
        return np.where(live_numbers[rank] == numbers, np.append(live, -1)[rank], -1)

    def columns(self, numbers: Int64Array) -> FlowColumns:
        """Connections as columns; computes their ids."""
        indexes = self._live_indexes(numbers)
        flow_columns = _columns(self._table, indexes)
        self._table.flow_array["connection_id"][indexes] = flow_columns.connection_ids()
        return flow_columns

    def beginnings(self, numbers: Int64Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int32]]:
        """``a_is_client``, ``start_known`` and ``port`` of `FlowColumns`, without the other columns."""
        indexes, sides = self._live_indexes(numbers), self._table.both_sides()
        a_is_client = self._table.flow_array["a_is_client"][indexes] != 0
        return a_is_client, sides["base_known"][indexes] != 0, sides["port"][indexes]

    def anchors(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`Segments.key` of connections, and the sequence numbers of stream offset 0 (n by 2, -1 unknown)."""
        indexes = self._live_indexes(numbers)
        return self._table.flow_array["key"][indexes], self._table.both_sides()["base_seq"][indexes]

    def _live_indexes(self, numbers: Int64Array) -> Int64Array:
        indexes = self.indexes(numbers)
        forgotten = np.flatnonzero(indexes < 0)
        if len(forgotten):
            raise KeyError(int(numbers[forgotten[0]]))
        return indexes

    def unseen_sides(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) with bytes that a packet shows and that are not captured yet; since when (ns)."""
        ahead_ns = self._table.both_sides()["ahead_ns"]
        indexes, side_bits = np.nonzero(ahead_ns)
        sides = zip(self.numbers(indexes).tolist(), side_bits.tolist(), strict=True)
        return dict(zip(sides, ahead_ns[indexes, side_bits].tolist(), strict=True))
