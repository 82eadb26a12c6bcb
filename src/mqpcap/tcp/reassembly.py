# cython: language_level=3, annotation_typing=False
"""TCP segments to ordered byte streams.

Fed by ``headers``, read by ``framing``. Each side of each connection becomes runs of stream bytes (chunks); bytes the
capture did not see are recorded as gaps, nothing here fills one, and no byte is given out twice. The first copy of a
byte is kept; what a later copy says otherwise is recorded as a conflict.

Theory of operation. ``flow_table.walk`` takes every packet that is in order, in C when compiled. A side that is not in
order has an ``OutOfOrderQueue`` holding copies of what came too early, and while it has one every packet of its
connection is judged here. A hole is given up, for good, when the other side's acknowledgement covers it and
SETTLE_PACKETS more packets of the connection have come (the bytes existed, and a capture that is only slightly out of
order would have shown them), when too much is held, or when the flow ends. The start of a side without a SYN waits by
the same rule. Bytes that come after their hole was given up are counted and recorded as late. All of this is decided
per packet, never per call of feed, so results do not depend on how the input was cut into windows. Under the memory
caps (counts say when they bite) results depend on what other connections are in the same Reassembler.

Connections are numbered in the order of their first packets; a number stays theirs for ever, also when they are over
and forgotten. Inside, flows are records in a table, whose places are taken again.

Stream offsets are int64 and never wrap. Without a SYN offset 0 is the lowest sequence number known when the side's
first byte was given out; if lower ones come later, add Flow.shift[side] to get the offset the contract speaks of.
"""

import base64
import hashlib
import ipaddress
import os
import tempfile
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from mqpcap.tcp import flow_table
from mqpcap.tcp.headers import ADDRESSES, Segments, address_text

MAX_BYTES = 512 * 1024 * 1024
"""Memory for held segments, kept chunks and history together, unless the caller says otherwise."""
HELD_SHARE = 2
"""One part in this of the memory may hold segments that came too early, over all connections."""
HISTORY_SHARE = 4
"""One part in this may hold bytes to compare retransmissions with."""
KEPT_SHARE = 4
"""One part in this may hold what readers left over; above it those bytes live in a temporary file."""
HISTORY_BYTES = 64 * 1024
"""A retransmission is compared with at most this many of the latest bytes of its side."""
HELD_BYTES = 4 * 1024 * 1024
"""Bytes one side may hold behind a hole before the hole is given up without proof."""
HELD_SEGMENTS = 4096
"""Segments one side may hold behind a hole."""
HELD_OVERHEAD = 192
"""What a held segment costs besides its bytes."""
SETTLE_PACKETS = 32
"""Packets of the connection to wait for after an acknowledgement covers a hole: captures are a bit out of order."""
START_BYTES = 256 * 1024
START_SEGMENTS = 64
START_PACKETS = 256
"""How much of a side without a SYN waits for a lower sequence number: bytes, segments, packets of the connection."""
SYN_NEAR_BYTES = 64 * 1024
SYN_LATE_PACKETS = 16
"""A SYN captured behind its own first data belongs to that flow within these bounds."""
IDLE_NS: int = flow_table.LAYOUT["IDLE"]
"""A flow without packets for so long loses its history and gives up its holes."""
CLOSED_NS = 60 * 1_000_000_000
"""The same for a flow that was closed."""
SILENT_NS = 25 * 3600 * 1_000_000_000
"""A flow that carried payload and was not closed is over after so long without packets.

A consumer may wait a night or a day for the next message on the same connection, and nothing need be sent meanwhile:
Linux by default probes after two hours, and only if asked to. With summer time the longest day has 25 hours.
"""
CLOSED_FLOW_ROWS = 1 << 12
"""Records of closed connections that are read at once from their file."""
CONFLICT_ROWS = 64
"""Rows of one retransmission with other bytes; the last row spans what is left."""

_L = flow_table.LAYOUT
_MARKS, _FIRST_TS, _LAST_TS, _BEFORE, _EQUAL = (
    _L[name] for name in ("MARKS", "FIRST_TS", "LAST_TS", "BEFORE", "EQUAL")
)
_KEY, _SIDE, _SIDE_WORDS, _WORDS = _L["KEY"], _L["SIDE"], _L["SIDE_WORDS"], _L["WORDS"]
_BASE, _NEXT, _PACKETS, _BYTES, _RETRANSMITTED, _CONFLICT, _MISSING = (
    _L[name] for name in ("BASE", "NEXT", "PACKETS", "BYTES", "RETRANSMITTED", "CONFLICT", "MISSING")
)
_ACK, _FIRST_ACK, _FIN, _MAX_SEEN, _FLOOR, _DELIVERED, _SHIFT, _WAKE_AT, _HISTORY_END = (
    _L[name]
    for name in ("ACK", "FIRST_ACK", "FIN", "MAX_SEEN", "FLOOR", "DELIVERED", "SHIFT", "WAKE_AT", "HISTORY_END")
)
_HARD, _ORIENTED, _CLOSED, _SYN_SEEN, _RST_SEEN, _ENDED, _SURE = (
    _L[name] for name in ("HARD", "ORIENTED", "CLOSED", "SYN_SEEN", "RST_SEEN", "ENDED", "SURE")
)
_FLOWS, _PIECES, _PIECE_FIRST, _TOUCHED, _ENDS, _PACKETS_ALL = (
    _L[name] for name in ("FLOWS", "PIECES", "PIECE_FIRST", "TOUCHED", "ENDS", "PACKETS_ALL")
)
_PIECE, _P_SIDE, _P_OFFSET, _P_LENGTH, _P_START, _P_FILE, _P_SLOT = (
    _L[name] for name in ("PIECE", "P_SIDE", "P_OFFSET", "P_LENGTH", "P_START", "P_FILE", "P_SLOT")
)
_NONE, _OLDEST = _L["NONE"], _L["OLDEST"]
_SEED, _SEEDS = _L["SEED"], _L["SEEDS"]
_SECRET = np.frombuffer(os.urandom(_SEEDS * 8), np.int64)
"""What places flows in the table of this process."""
GAP_BLOCK = 512
"""Gaps of a side that are moved together when one is split or filled."""
_FLAG_FIN, _FLAG_SYN, _FLAG_RST, _FLAG_ACK = 1, 2, 4, 16
_SEQ_MASK = 0xFFFFFFFF
_KEPT_COLUMNS = 7  # the first seven of a piece: side, offset, length, start, time, number, file
_FIRST_ROOM = 1024

EndState = Literal["reset", "closed", "open"]
_Known = TypeVar("_Known")
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection. Pairs are (side 0, side 1); side 0 is sent by endpoint A, side 1 by endpoint B.

    oriented: A is the client, known from a SYN; else A is the sender of the first packet captured. fin_offset: stream
    offset behind the last byte, if a FIN was captured. acked: the highest acknowledgement of this side's bytes that the
    OTHER side sent, as an offset of this side's stream (fin_offset + 1 if its FIN is acknowledged), None if unknown.
    end_offset: behind the last byte given out. shift: add it to every offset of the side (0 unless bytes below offset 0
    came late).
    """

    index: int
    version: int
    a_ip: str
    a_port: int
    b_ip: str
    b_port: int
    first_ts_ns: int
    last_ts_ns: int
    oriented: bool
    syn_seen: bool
    end_state: EndState
    syn: tuple[bool, bool]
    rst: tuple[bool, bool]
    fin_offset: tuple[int | None, int | None]
    acked: tuple[int | None, int | None]
    end_offset: tuple[int, int]
    packets: tuple[int, int]
    bytes: tuple[int, int]
    retransmitted: tuple[int, int]
    conflict: tuple[int, int]
    missing: tuple[int, int]
    shift: tuple[int, int]
    equal: int

    @property
    def connection_id(self) -> int:
        """The connection_id of the tables; equal is its number among flows of the same tuple and first time."""
        one = (_address_bytes(self.version, self.a_ip), self.a_port)
        two = (_address_bytes(self.version, self.b_ip), self.b_port)
        return connection_id(self.version, one, two, self.first_ts_ns, self.equal)

    @property
    def community_id(self) -> str:
        """The Community ID of the connection, version 1 with seed 0."""
        one = (_address_bytes(self.version, self.a_ip), self.a_port)
        two = (_address_bytes(self.version, self.b_ip), self.b_port)
        return _community_id(min(one, two), max(one, two))


@lru_cache(ADDRESSES)
def _address_bytes(version: int, text: str) -> bytes:
    return bytes(map(int, text.split("."))) if version == 4 else ipaddress.IPv6Address(text).packed


def _community_id(low: tuple[bytes, int], high: tuple[bytes, int]) -> str:
    said = b"\0\0" + low[0] + high[0] + b"\x06\0" + low[1].to_bytes(2, "big") + high[1].to_bytes(2, "big")
    return "1:" + base64.b64encode(hashlib.sha1(said, usedforsecurity=False).digest()).decode()


def connection_id(version: int, one: tuple[bytes, int], two: tuple[bytes, int], first_ts_ns: int, equal: int) -> int:
    """A positive number of 63 bits: of the endpoints in either order, the first packet's time, the number among equals.

    >>> a, b = (bytes([10, 0, 0, 1]), 5555), (bytes([10, 0, 0, 2]), 40000)
    >>> connection_id(4, a, b, 7, 0) == connection_id(4, b, a, 7, 0) != connection_id(4, a, b, 7, 1)
    True
    """
    said = bytes([version])
    for address, port in sorted((one, two)):
        said += address + port.to_bytes(2, "big")
    said += (first_ts_ns & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + equal.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "big") & 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """Connections as arrays, one row each, with the names and meanings of Flow; what is a pair there has shape (n, 2).

    hi and lo (int64, n by 2: endpoint A, endpoint B) are the halves of the addresses; port their ports. end_state is an
    index into END_STATES. fin_offset and acked are NONE where Flow has None.
    """

    version: NDArray[np.int64]
    hi: NDArray[np.int64]
    lo: NDArray[np.int64]
    port: NDArray[np.int64]
    first_ts_ns: NDArray[np.int64]
    last_ts_ns: NDArray[np.int64]
    equal: NDArray[np.int64]
    oriented: NDArray[np.bool_]
    end_state: NDArray[np.int64]
    syn: NDArray[np.bool_]
    rst: NDArray[np.bool_]
    fin_offset: NDArray[np.int64]
    acked: NDArray[np.int64]
    end_offset: NDArray[np.int64]
    packets: NDArray[np.int64]
    bytes: NDArray[np.int64]
    retransmitted: NDArray[np.int64]
    conflict: NDArray[np.int64]
    missing: NDArray[np.int64]
    shift: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.version)

    def ips(self, side: NDArray[np.integer]) -> list[str]:
        """The address as text of one endpoint of each row: A where side is 0, B where it is 1."""
        row = np.arange(len(self))
        hi, lo = self.hi[row, side], self.lo[row, side]
        return [address_text(v, h, x) for v, h, x in zip(self.version.tolist(), hi.tolist(), lo.tolist(), strict=True)]

    def ports(self, side: NDArray[np.integer]) -> NDArray[np.int64]:
        """The port of the same endpoint."""
        return self.port[np.arange(len(self)), side]

    def connection_ids(self) -> NDArray[np.int64]:
        """Flow.connection_id of each row."""
        out = np.zeros(len(self), np.int64)
        for version, rows, one, two, ports in self._endpoints():
            tail = np.column_stack([self.first_ts_ns[rows], self.equal[rows]]).astype(">i8").view(np.uint8)
            head = np.full((len(rows), 1), version, np.uint8)
            said = np.hstack([head, one, ports[:, :2], two, ports[:, 2:], tail.reshape(-1, 16)])
            digests = b"".join([hashlib.blake2b(x, digest_size=8).digest() for x in _rows(said)])
            out[rows] = np.frombuffer(digests, ">u8").astype(np.int64) & 0x7FFFFFFFFFFFFFFF
        return out

    def community_ids(self) -> list[str]:
        """Flow.community_id of each row."""
        out = np.empty(len(self), object)
        for _, rows, one, two, ports in self._endpoints():
            fixed = np.zeros((len(rows), 2), np.uint8)
            said = np.hstack([fixed, one, two, fixed + np.array([6, 0], np.uint8), ports])
            digests = (hashlib.sha1(x, usedforsecurity=False).digest() for x in _rows(said))
            out[rows] = ["1:" + base64.b64encode(x).decode() for x in digests]
        return list(out)

    def _endpoints(self) -> Iterator[tuple[int, NDArray[np.int64], *tuple[NDArray[np.uint8], ...]]]:
        """By IP version: rows, the bytes of the lower and the higher endpoint's address, and of both their ports."""
        for version, size in ((4, 4), (6, 16)):
            rows = np.flatnonzero(self.version == version)
            if not len(rows):
                continue
            hi, lo = self.hi[rows].view(np.uint64), self.lo[rows].view(np.uint64)
            port = self.port[rows]
            same_hi, same = hi[:, 0] == hi[:, 1], (hi[:, 0] == hi[:, 1]) & (lo[:, 0] == lo[:, 1])
            b_first = (hi[:, 1] < hi[:, 0]) | (same_hi & (lo[:, 1] < lo[:, 0])) | (same & (port[:, 1] < port[:, 0]))
            row, low = np.arange(len(rows)), b_first.astype(np.int64)
            one, two = (
                np.column_stack([hi[row, x], lo[row, x]]).astype(">u8").view(np.uint8).reshape(-1, 16)[:, 16 - size :]
                for x in (low, 1 - low)
            )
            ports = np.column_stack([port[row, low], port[row, 1 - low]]).astype(">u2").view(np.uint8).reshape(-1, 4)
            yield version, rows, one, two, ports


def _rows(matrix: NDArray[np.uint8]) -> Iterator[bytes]:
    """The rows of a matrix as bytes."""
    whole, width = matrix.tobytes(), matrix.shape[1]
    return (whole[at : at + width] for at in range(0, len(whole), width))


END_STATES: tuple[EndState, ...] = ("reset", "closed", "open")
NONE: int = _NONE
"""No offset, in FlowColumns."""


@dataclass(frozen=True, slots=True)
class StreamRanges:
    """Places of streams, one row each, in order of flow, side and offset.

    flow, offset, length, ts_ns: int64, side: int8, snapped: bool (a gap cut by the snap length). ts_ns of a gap is that
    of the first byte captured behind it, or of the flow's last packet; else of the packet with the bytes.
    """

    flow: NDArray[np.int64]
    side: NDArray[np.int8]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    snapped: NDArray[np.bool_]
    packet: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.flow)


def _ranges(rows: list[tuple[int, int, int, int, bool]], numbers: Callable[[I64], I64]) -> StreamRanges:
    """Rows that begin with the place of a side; ``numbers`` of the connections at places."""
    rows.sort(key=lambda row: row[:2])
    table = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4)
    return StreamRanges(
        flow=numbers(table[:, 0] >> 1),
        side=(table[:, 0] & 1).astype(np.int8),
        offset=table[:, 1].copy(),
        length=table[:, 2].copy(),
        ts_ns=table[:, 3].copy(),
        snapped=np.array([row[4] for row in rows], np.bool_),
        packet=np.zeros(len(rows), np.int64),
    )


@dataclass(frozen=True, slots=True)
class StreamChunks:
    """Runs of contiguous stream bytes with news, in order of flow, side and offset: the chunks.

    buffer holds the bytes of all. Per chunk, int64: flow; offset, stream offset of the first byte; start and length
    in buffer; gap_before, bytes missing just before it. side: int8. bool: gap_after, bytes are missing behind it and
    nothing will extend it; ended, nothing follows on this side; snapped, the snap length cut the gap behind it.

    Pieces piece_first[s] to piece_first[s + 1] make up chunk s: piece_offset (in the stream), piece_length, and time,
    number and file of the packet they came in. piece_order ascends in the order in which new pieces were given out,
    over all sides and calls of feed. A chunk may be empty: its side ended and there was nothing new.
    """

    buffer: NDArray[np.uint8]
    flow: NDArray[np.int64]
    side: NDArray[np.int8]
    offset: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    gap_before: NDArray[np.int64]
    gap_after: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    snapped: NDArray[np.bool_]
    piece_first: NDArray[np.int64]
    piece_offset: NDArray[np.int64]
    piece_length: NDArray[np.int64]
    piece_ts_ns: NDArray[np.int64]
    piece_number: NDArray[np.int64]
    piece_file: NDArray[np.int64]
    piece_order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.flow)

    @property
    def piece_chunk(self) -> NDArray[np.int64]:
        """The chunk of each piece."""
        return np.repeat(np.arange(len(self.flow), dtype=np.int64), np.diff(self.piece_first))


class OutOfOrderQueue:
    """What one side holds while it is not in order.

    held: (offset, bytes, ts_ns, number, file) by offset, not overlapping, all at or behind the next byte. snaps: holes
    (from, to) that the snap length cut. acks: (packets of the connection, acknowledged offset) as they came; settled:
    the offset that was acknowledged SETTLE_PACKETS ago. low: the lowest sequence number seen, while starting.
    """

    __slots__ = ("acks", "began", "bytes", "held", "last_ack", "low", "settled", "snaps", "starting")

    def __init__(self, began: int, starting: bool) -> None:
        self.held: list[tuple[int, bytes, int, int, int]] = []
        self.bytes = 0
        self.snaps: list[tuple[int, int]] = []
        self.acks: deque[tuple[int, int]] = deque()
        self.last_ack = _NONE
        self.settled = _NONE
        self.starting = starting
        self.low = 0
        self.began = began

    def snap(self, low: int, high: int) -> None:
        """Note a hole that the snap length cut; neighbours become one."""
        snaps = self.snaps
        at = until = bisect_left(snaps, low, key=lambda hole: hole[1])
        while until < len(snaps) and snaps[until][0] <= high:
            low, high = min(low, snaps[until][0]), max(high, snaps[until][1])
            until += 1
        snaps[at:until] = [(low, high)]
        if len(snaps) > HELD_SEGMENTS:
            snaps[:2] = [(snaps[0][0], snaps[1][1])]

    def rebase(self, delta: int) -> None:
        """Count offsets from delta on."""
        self.held = [(entry[0] - delta, *entry[1:]) for entry in self.held]
        self.snaps = [(low - delta, high - delta) for low, high in self.snaps]
        self.acks = deque((count, ack - delta) for count, ack in self.acks)
        if self.last_ack != _NONE:
            self.last_ack -= delta
        if self.settled != _NONE:
            self.settled -= delta
        self.low -= delta


class _Gap:
    """A hole that was given up: where it was, and what is still missing of it."""

    __slots__ = ("high", "low", "snapped", "ts_ns")

    def __init__(self, low: int, high: int, ts_ns: int, snapped: bool) -> None:
        self.low = low
        self.high = high
        self.ts_ns = ts_ns
        self.snapped = snapped


class _Gaps:
    """The gaps of one side, in order and apart, in blocks: one filled or split costs no more where there are many."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[list[_Gap]] = [[]]

    def __iter__(self) -> Iterator[_Gap]:
        return (gap for block in self._blocks for gap in block)

    def _place(self, low: int) -> tuple[int, int]:
        """Block and place in it of the first gap that ends behind an offset; behind the last one if there is none."""
        block = bisect_right(self._blocks, low, 0, len(self._blocks) - 1, key=lambda gaps: gaps[-1].high)
        return block, bisect_right(self._blocks[block], low, key=lambda gap: gap.high)

    def first(self, low: int, high: int) -> _Gap | None:
        """The first gap with a byte from low to below high."""
        block, at = self._place(low)
        gaps = self._blocks[block]
        return gaps[at] if at < len(gaps) and gaps[at].low < high else None

    def add(self, gap: _Gap) -> None:
        """Take in a gap apart from the others."""
        block, at = self._place(gap.low)
        self._put(block, at, at, [gap])

    def replace(self, gap: _Gap, left: list[_Gap]) -> None:
        """Let parts of a gap, or nothing, be left of it."""
        block, at = self._place(gap.low)
        self._put(block, at, at + 1, left)

    def drop(self, high: int) -> bool:
        """Leave out those that end at an offset or before; whether none is left."""
        block, at = self._place(high)
        del self._blocks[:block], self._blocks[0][:at]
        return not self._blocks[0]

    def _put(self, block: int, at: int, until: int, new: list[_Gap]) -> None:
        gaps = self._blocks[block]
        gaps[at:until] = new
        if len(gaps) > GAP_BLOCK:
            self._blocks[block : block + 1] = [gaps[: GAP_BLOCK // 2], gaps[GAP_BLOCK // 2 :]]
        elif not gaps and len(self._blocks) > 1:
            del self._blocks[block]


@dataclass(slots=True)
class _Packet:
    """One segment taken out of the arrays."""

    seq: int
    ack: int
    flags: int
    start: int
    length: int
    wire_length: int
    ts_ns: int
    number: int
    file: int


class Flows(Sequence[Flow]):
    """The connections of a Reassembler, in order of their first packet; each record is made when asked for.

    Of those that are forgotten without being remembered there is none: KeyError.
    """

    def __init__(self, reassembler: "Reassembler") -> None:
        self._reassembler = reassembler

    def __len__(self) -> int:
        return self._reassembler.flow_count

    @overload
    def __getitem__(self, index: int) -> Flow: ...
    @overload
    def __getitem__(self, index: slice) -> list[Flow]: ...
    def __getitem__(self, index: int | slice) -> Flow | list[Flow]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"flow {index} of {len(self)}")
        return self._reassembler._flow(index)

    def __iter__(self) -> Iterator[Flow]:
        return (self[i] for i in range(len(self)))

    def columns(self, rows: I64 | slice = slice(None)) -> FlowColumns:
        """Many of them at once, all unless told which."""
        return self._reassembler._columns(np.arange(len(self))[rows] if isinstance(rows, slice) else rows)


def columns(flows: "Sequence[Flow] | Mapping[int, Flow]", rows: NDArray[np.int64]) -> FlowColumns:
    """Some of the connections as arrays, whatever holds them."""
    if isinstance(flows, Flows):
        return flows.columns(rows)
    taken = [flows[row] for row in rows.tolist()]
    addresses = [[_halves(f.version, ip) for ip in (f.a_ip, f.b_ip)] for f in taken]
    halves = np.array(addresses, np.int64).reshape(-1, 2, 2)

    def number(name: str) -> NDArray[np.int64]:
        return np.array([getattr(f, name) for f in taken], np.int64)

    def pair(name: str) -> NDArray[np.int64]:
        said = [[_NONE if x is None else x for x in getattr(f, name)] for f in taken]
        return np.array(said, np.int64).reshape(-1, 2)

    return FlowColumns(
        version=number("version"), hi=halves[:, :, 0].copy(), lo=halves[:, :, 1].copy(),
        port=np.array([[f.a_port, f.b_port] for f in taken], np.int64).reshape(-1, 2),
        first_ts_ns=number("first_ts_ns"), last_ts_ns=number("last_ts_ns"), equal=number("equal"),
        oriented=number("oriented").astype(np.bool_),
        end_state=np.array([END_STATES.index(f.end_state) for f in taken], np.int64), syn=pair("syn").astype(np.bool_),
        rst=pair("rst").astype(np.bool_), fin_offset=pair("fin_offset"), acked=pair("acked"),
        end_offset=pair("end_offset"), packets=pair("packets"), bytes=pair("bytes"),
        retransmitted=pair("retransmitted"), conflict=pair("conflict"), missing=pair("missing"), shift=pair("shift"),
    )  # fmt: skip


def _halves(version: int, ip: str) -> tuple[int, int]:
    """The halves of an address, signed."""
    whole = _address_bytes(version, ip).rjust(16, b"\0")
    return int.from_bytes(whole[:8], "big", signed=True), int.from_bytes(whole[8:], "big", signed=True)


class _ClosedFlows:
    """The words of connections that are over, in a temporary file, each at the place of its number."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="mqpcap-flows-")  # noqa: SIM115 - closed with this
        weakref.finalize(self, self._file.close)

    def put(self, numbers: I64, words: I64) -> None:
        """Take connections in; their numbers ascend."""
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1).tolist()
        for one, two in pairwise([*starts, len(numbers)]):
            os.pwrite(self._file.fileno(), words[one:two].tobytes(), int(numbers[one]) * _WORDS * 8)

    def words(self, numbers: I64) -> I64:
        """The words of some, a row each; zeros for one that is not here."""
        out = np.zeros((len(numbers), _WORDS), np.int64)
        block = numbers // CLOSED_FLOW_ROWS
        for one in _distinct(block).tolist():
            read = os.pread(self._file.fileno(), CLOSED_FLOW_ROWS * _WORDS * 8, one * CLOSED_FLOW_ROWS * _WORDS * 8)
            there = np.frombuffer(read, np.int64).reshape(-1, _WORDS)
            rows = np.flatnonzero(block == one)
            rows = rows[numbers[rows] - one * CLOSED_FLOW_ROWS < len(there)]
            out[rows] = there[numbers[rows] - one * CLOSED_FLOW_ROWS]
        return out


_MADE_ANEW = frozenset(
    {
        "_table", "_piece_words", "_touched_sides", "_ended_sides", "_window", "_arena_used", "_s", "_f", "_h", "_p",
        "_t", "_e", "_indexed",
    }
)  # fmt: skip
"""What a Reassembler can make anew, or only needs during a feed."""


class Reassembler:
    """Ordered streams out of the segments of one capture.

    feed the segments of one window after the other, keep what the reader is not done with, finish at the end. counts
    say what happened that a row does not: held_cap (holes given up for want of memory, in bytes or segments),
    crowded_out (connections ended for want of memory that may not have been over), uncompared_bytes (retransmitted, but
    the first copy was no longer there), history_shrunk, rst_payload_bytes.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._state = np.zeros(_L["STATE"], np.int64)
        self._flow_words = np.zeros(_FIRST_ROOM * _WORDS, np.int64)
        self._table = np.zeros(_FIRST_ROOM * 2, np.int64)
        self._make_lists()
        self._views()
        self._s[_L["ALLOWANCE"]] = HISTORY_BYTES
        self._s[_L["HISTORY_CAP"]] = max_bytes // HISTORY_SHARE
        self._held_cap = max_bytes // HELD_SHARE
        self._kept_cap = max_bytes // KEPT_SHARE
        self._queues: dict[int, OutOfOrderQueue] = {}
        self._held_bytes = 0
        self._extra = bytearray()
        self._history: dict[int, list[tuple[int, bytes]]] = {}
        self._history_bytes = 0
        self._gaps: dict[int, _Gaps] = {}
        self._times: dict[int, dict[bytes, int]] = {}
        """Of the newest flow of a tuple whose first times do not ascend: the last EQUAL by first time."""
        self._indexed: dict[int, tuple[list[int], list[int]]] = {}
        """Of some sides the offsets and the rows of this feed's pieces."""
        self._conflicts: list[tuple[int, int, int, int, bool]] = []
        self._late: list[tuple[int, int, int, int, bool]] = []
        self._snapped: set[tuple[int, int]] = set()
        self._trailing: set[int] = set()
        self._kept = np.zeros((0, _KEPT_COLUMNS), np.int64)
        self._arena: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._arena_used = 0
        self._finished = False
        self._window = memoryview(b"")
        self.counts: dict[str, int] = {
            "held_cap": 0,
            "crowded_out": 0,
            "uncompared_bytes": 0,
            "history_shrunk": 0,
            "rst_payload_bytes": 0,
        }
        self._now_ns = 0
        self._left = np.zeros(0, np.int64)
        """The numbers of the first flows of the table, where some before them are forgotten."""
        self._forgotten = 0
        self._closed_flows: _ClosedFlows | None = None
        self.flows = Flows(self)

    def __getstate__(self) -> dict[str, object]:
        """What must be kept between two feeds: no room, and nothing that can be made anew."""
        state = {name: value for name, value in self.__dict__.items() if name not in _MADE_ANEW}
        state["_flow_words"] = self._flow_words[: self._s[_FLOWS] * _WORDS].copy()
        state["_state"] = self._state.copy()
        state["_state"][_SEED : _SEED + _SEEDS] = 0  # another process has its own
        live = self._kept.copy()
        live[:, _P_START] = np.cumsum(live[:, _P_LENGTH]) - live[:, _P_LENGTH]
        state |= {"_kept": live, "_arena": self._live(np.empty(int(live[:, _P_LENGTH].sum()), np.uint8))}
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._arena_used = len(self._arena)
        self._window = memoryview(b"")
        self._indexed = {}
        self._make_lists()
        self._set_flows(self._flow_words)

    def _make_lists(self) -> None:
        """Lists of news, empty."""
        self._piece_words = np.zeros(_FIRST_ROOM * _PIECE, np.int64)
        self._touched_sides = np.zeros(_FIRST_ROOM, np.int64)
        self._ended_sides = np.zeros(_FIRST_ROOM, np.int64)

    def _set_flows(self, words: NDArray[np.int64]) -> None:
        """Let these be the flows, with little room for more; the table that finds them is made anew."""
        count, room, size = len(words) // _WORDS, _FIRST_ROOM, _FIRST_ROOM * 2
        room += count + count // 8
        while size < room * 3 // 2:
            size *= 2
        self._flow_words = np.zeros(room * _WORDS, np.int64)
        self._flow_words[: len(words)] = words
        self._table = np.zeros(size, np.int64)
        self._views()
        self._s[_FLOWS] = count
        flow_table.rehash(self._s, self._f, self._h)

    def _views(self) -> None:
        self._state[_SEED : _SEED + _SEEDS] = _SECRET
        self._s = memoryview(self._state)
        self._f = memoryview(self._flow_words)
        self._h = memoryview(self._table)
        self._p = memoryview(self._piece_words)
        self._t = memoryview(self._touched_sides)
        self._e = memoryview(self._ended_sides)

    @property
    def flow_count(self) -> int:
        """How many connections there are so far."""
        return self._s[_FLOWS] + self._forgotten

    @property
    def live(self) -> I64:
        """The numbers of those that are not forgotten."""
        return self._numbers(np.arange(self._s[_FLOWS]))

    def out_of_order_flows(self) -> set[int]:
        """Connections with bytes that came too early and wait for those before them."""
        places = np.array(sorted({side >> 1 for side in self._queues}), np.int64)
        return {*self._numbers(places).tolist()}

    @property
    def held_bytes(self) -> int:
        """Bytes of segments that came too early and wait, with their cost."""
        return self._held_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes the reader has left over for later."""
        return int(self._kept[:, _P_LENGTH].sum())

    # The way of a window

    def feed(self, segments: Segments) -> StreamChunks:
        """The chunks with news after the segments of one window, which are in order of capture.

        Each holds what keep left over before. If keep is not called with the result before the next feed, the reader is
        done with all of it.
        """
        if self._finished:
            raise ValueError("segments came after finish()")
        columns = tuple(
            memoryview(column)
            for column in (
                segments.key, segments.src_hi, segments.src_lo, segments.dst_hi, segments.dst_lo, segments.version,
                segments.sport, segments.dport, segments.seq, segments.ack, segments.flags, segments.start,
                segments.length, segments.wire_length, segments.ts_ns, segments.number, segments.file,
            )
        )  # fmt: skip
        self._window = memoryview(segments.buffer)
        count = len(columns[0])
        if count:
            self._now_ns = columns[14][count - 1]
        s, row = self._s, 0
        while True:
            self._make_room(count - row)
            row = flow_table.walk(s, self._f, self._h, self._p, self._t, self._e, columns, row)
            why = s[_L["WHY"]]
            if why == _L["DONE"]:
                break
            if why == _L["GROW"]:
                self._grow()
            elif why == _L["SWEEP"]:
                self._sweep(columns[14][row])
            else:
                packet = _Packet(*(columns[i][row] for i in (8, 9, 10, 11, 12, 13, 14, 15, 16)))
                if self._judge(packet, s[_L["FLOW"]], s[_L["FLOW_SIDE"]]):
                    row += 1
        return self._chunks(segments.buffer)

    def finish(self) -> StreamChunks:
        """The chunks with news at the end of the capture: everything held, every side ended."""
        self._finished = True
        return self._ended(np.ones(self._s[_FLOWS], np.bool_))

    def end(self, flows: NDArray[np.int64]) -> StreamChunks:
        """The same where nothing more comes of some connections, before they are forgotten."""
        wanted = np.zeros(self._s[_FLOWS], np.bool_)
        wanted[self._places(flows)] = True
        return self._ended(wanted)

    def _ended(self, wanted: NDArray[np.bool_]) -> StreamChunks:
        for side in sorted(self._queues):
            if side in self._queues and wanted[side >> 1]:
                self._end_flow(side >> 1)
        f = self._flow_table()
        marks = f[:, _MARKS]
        ends = f[:, _SIDE:].reshape(-1, 2, _SIDE_WORDS)
        for side in (0, 1):
            other = ends[:, 1 - side]
            mine = ends[:, side]
            # Whatever may miss bytes behind the last one is judged alone; the others just end.
            ack_ahead = (other[:, _ACK] - mine[:, _BASE] - mine[:, _NEXT]) & _SEQ_MASK
            odd = (mine[:, _MAX_SEEN] > mine[:, _NEXT]) | (mine[:, _FIN] != _NONE) | (mine[:, _BASE] < 0)
            odd |= (other[:, _ACK] >= 0) & (ack_ahead > 0) & (ack_ahead < _OLDEST)
            for flow in np.flatnonzero(wanted & (marks & (_ENDED << side) == 0) & odd).tolist():
                self._end_side(flow, side)
        for side in (0, 1):
            left = np.flatnonzero(wanted & (marks & (_ENDED << side) == 0))
            self._make_room(len(left))
            first = self._s[_ENDS]
            self._ended_sides[first : first + len(left)] = left * 2 + side
            self._s[_ENDS] = first + len(left)
            f[left, _MARKS] |= _ENDED << side
        self._window = memoryview(b"")
        return self._chunks(np.zeros(0, np.uint8))

    # Connections that are over

    def expired(self) -> I64:
        """Connections of which nothing more is expected, by the time of the newest packet.

        They are closed on both sides, reset, or their addresses and ports are used anew, for CLOSED_NS; or they are
        silent for SILENT_NS, where no byte of payload was captured (floods, scans) for IDLE_NS. Of connections with the
        same addresses and ports the older are over before the newer.
        """
        expired = self._expired()
        for before in _earlier(self._flow_table()[:, _BEFORE]):
            expired &= (before < 0) | expired[before]
        return self._numbers(np.flatnonzero(expired))

    def _expired(self) -> NDArray[np.bool_]:
        """The same by place in the table, each by itself."""
        f = self._flow_table()
        open_ns = np.where(_spoke(f), SILENT_NS, IDLE_NS)
        expired: NDArray[np.bool_] = self._now_ns - f[:, _LAST_TS] > np.where(_closed(f), CLOSED_NS, open_ns)
        return expired

    def eviction_candidates(self, few: int, most: int) -> I64:
        """Connections to be ended so that those in the table stay few; none unless that is worth the work.

        With more than ``few`` they are those that are `expired` or whose end was acknowledged, but not the last
        ``few`` / 4 of these: packets that were under way come yet. With more than ``most`` they are others too, until
        half of it is left: first those that closed, then those that never spoke, then the longest silent.
        """
        count = self._s[_FLOWS]
        if count <= few:
            return np.zeros(0, np.int64)
        f = self._flow_table()
        last, marks, before = f[:, _LAST_TS], f[:, _MARKS], f[:, _BEFORE]
        # A connection that begins now may have the id of another that did, if that one is no longer known.
        earlier = f[:, _FIRST_TS] < self._now_ns
        over = self._expired() | (marks & _CLOSED != 0)
        over[before[before >= 0]] = True
        done = np.flatnonzero(over & earlier & (marks & _HARD == 0))
        done = done[np.argsort(last[done], kind="stable")][: max(len(done) - few // 4, 0)]
        candidates = np.zeros(count, np.bool_)
        if len(done) >= few // 4:
            candidates[done] = True
        if count - np.count_nonzero(candidates) > most:
            others = np.flatnonzero(earlier & ~candidates)
            others = others[np.lexsort((last[others], _spoke(f)[others], ~_closed(f)[others]))]
            others = others[: count - np.count_nonzero(candidates) - most // 2]
            candidates[others] = True
            self.counts["crowded_out"] += int(np.count_nonzero(~_closed(f)[others]))
        for one in _earlier(before):
            candidates[one[candidates & (one >= 0)]] = True
        return self._numbers(np.flatnonzero(candidates))

    def forget(self, flows: I64, remember: bool = False) -> None:
        """Know nothing more of connections that are over and were ended; if told to `remember` them, but in `flows`.

        A range is reported once: late data, conflicts and `final_gaps` of the other connections are forgotten too, and
        the history of idle ones, which their next packet would not look at.
        """
        self._conflicts.clear()
        self._late.clear()
        for number, gaps in list(self._gaps.items()):
            if gaps.drop(self._final_below(number)):
                del self._gaps[number]
        flow_table.forget_idle(self._s, self._f, self._now_ns - IDLE_NS)
        idle = self._now_ns - self._flow_table()[:, _LAST_TS] > IDLE_NS
        for number in [number for number in self._history if idle[number >> 1]]:
            self._drop_history(number)
        if len(flows) == 0:
            return
        places = self._places(flows)
        if remember:
            self._closed_flows = self._closed_flows or _ClosedFlows()
            self._closed_flows.put(flows, self._flow_table()[places])
        for flow in places.tolist():
            flow_table.forget(self._s, self._f, flow)
            for number in (flow * 2, flow * 2 + 1):
                self._gaps.pop(number, None)
                self._drop_history(number)
        self._leave_out(places)

    def _leave_out(self, places: I64) -> None:
        """Move the other flows together in the table."""
        table = self._flow_table()
        stays = np.ones(len(table), np.bool_)
        stays[places] = False
        self._left = self._numbers(np.flatnonzero(stays))
        self._forgotten += len(places)
        table = table[stays]
        before = table[:, _BEFORE]
        table[:, _BEFORE] = np.where((before >= 0) & stays[before], _moved(before, places), -1)
        self._set_flows(table.reshape(-1))
        heads = np.fromiter(self._times, np.int64, len(self._times))
        self._times = {head: self._times_of(head) for head in _moved(heads[stays[heads]], places).tolist()}
        self._queues = _moved_sides(self._queues, places)
        self._gaps = _moved_sides(self._gaps, places)
        self._history = _moved_sides(self._history, places)
        self._kept[:, 0] = _moved(self._kept[:, 0] >> 1, places) * 2 + (self._kept[:, 0] & 1)

    def _numbers(self, places: I64) -> I64:
        """The numbers of the flows at some places of the table."""
        if not self._forgotten:
            return places
        numbers = places + self._forgotten
        old = np.flatnonzero(places < len(self._left))
        numbers[old] = self._left[places[old]]
        return numbers

    def _places(self, numbers: I64) -> I64:
        """Where in the table connections are, -1 if they are forgotten."""
        if not self._forgotten:
            return numbers
        places = numbers - self._forgotten
        old = np.flatnonzero(places < len(self._left))
        if len(old):
            at = np.searchsorted(self._left, numbers[old])
            places[old] = np.where(np.append(self._left, -1)[at] == numbers[old], at, -1)
        return places

    def _final_below(self, number: int) -> int:
        """Up to where no packet can fill a gap of a side any more: it lies further back than TCP sends again."""
        return self._f[(number >> 1) * _WORDS + _SIDE + (number & 1) * _SIDE_WORDS + _NEXT] - _OLDEST

    def _make_room(self, rows: int) -> None:
        """Room for so many more packets in the lists of news."""
        s = self._s
        grown = False
        if (s[_PIECES] + rows + 2) * _PIECE > len(self._piece_words):
            self._piece_words = _longer(self._piece_words, (s[_PIECES] + rows + 2) * _PIECE)
            grown = True
        if s[_TOUCHED] + rows + 4 > len(self._touched_sides):
            self._touched_sides = _longer(self._touched_sides, s[_TOUCHED] + rows + 4)
            grown = True
        if s[_ENDS] + rows + 4 > len(self._ended_sides):
            self._ended_sides = _longer(self._ended_sides, s[_ENDS] + rows + 4)
            grown = True
        if grown:
            self._views()

    def _grow(self) -> None:
        """Room for more flows; little more than needed, as the room is filled with zeros at once."""
        room = len(self._flow_words) // _WORDS
        room += max(room // 8, _FIRST_ROOM)
        self._f.release()
        self._flow_words.resize(room * _WORDS, refcheck=False)
        if len(self._table) < room * 3 // 2:
            self._table = np.zeros(len(self._table) * 2, np.int64)
            self._views()
            flow_table.rehash(self._s, self._f, self._h)
        else:
            self._views()

    def _sweep(self, now_ns: int) -> None:
        """Drop the heavy state of flows that are idle or closed for long."""
        self._s[_L["SWEPT"]] = self._s[_PACKETS_ALL]
        flow_table.forget_idle(self._s, self._f, now_ns - IDLE_NS)
        for side in list(self._queues):
            queue = self._queues.get(side)
            r = (side >> 1) * _WORDS
            limit_ns = CLOSED_NS if self._f[r + _MARKS] & _CLOSED else IDLE_NS
            if queue is not None and self._f[r + _LAST_TS] < now_ns - limit_ns:
                self._give_up_all(side >> 1, side & 1, queue)
                self._settle(side >> 1)

    # One packet out of order

    def _expire(self, flow: int, idle_ns: int) -> None:
        """What a sweep does, for one flow that was idle: a result must not depend on how many packets others had."""
        if idle_ns > IDLE_NS:
            flow_table.forget(self._s, self._f, flow)
        for side in (0, 1):
            queue = self._queues.get(flow * 2 + side)
            if queue is not None:
                self._give_up_all(flow, side, queue)
                self._settle(flow)

    def _judge(self, packet: _Packet, flow: int, side: int) -> bool:
        """Take one packet that walk did not; False if it opened a new flow, which walk takes now."""
        f, r = self._f, flow * _WORDS
        q = r + _SIDE + side * _SIDE_WORDS
        idle_ns = packet.ts_ns - f[r + _LAST_TS]
        if idle_ns > (CLOSED_NS if f[r + _MARKS] & _CLOSED else IDLE_NS):
            self._expire(flow, idle_ns)
        if packet.flags & _FLAG_RST:
            f[r + _MARKS] |= (_RST_SEEN << side) | _CLOSED
            flow_table.forget(self._s, f, flow)
            self._seen(packet, r, q)
            self.counts["rst_payload_bytes"] += packet.length
            self._settle(flow)
            return True
        seq = packet.seq
        if packet.flags & _FLAG_SYN:
            if not self._same_connection(packet, flow, side):
                self._end_flow(flow)
                self._replace(flow, side ^ 1 if packet.flags & _FLAG_ACK else side, packet.ts_ns)
                return False
            side = self._orient(packet, flow, side)
            q = r + _SIDE + side * _SIDE_WORDS
            seq = (seq + 1) & _SEQ_MASK
        other = r + _SIDE + (1 - side) * _SIDE_WORDS
        self._seen(packet, r, q)
        queue = self._queues.get(flow * 2 + side)
        if f[q + _BASE] < 0:
            f[q + _BASE] = seq
            queue = self._queues[flow * 2 + side] = OutOfOrderQueue(self._packets(r), starting=True)
            self._note_ack(flow, side, queue)
        offset = f[q + _NEXT] + flow_table.ahead(seq, f[q + _BASE] + f[q + _NEXT])
        if packet.wire_length > 0:
            self._payload(packet, flow, side, offset)
        elif f[other + _ACK] < 0 or (f[other + _ACK] - seq) & _SEQ_MASK != 1:  # else a probe that keeps alive
            if queue is not None and queue.starting:
                queue.low = min(queue.low, offset)
            if f[q + _MAX_SEEN] < offset < f[q + _NEXT] + _OLDEST:
                f[q + _MAX_SEEN] = offset
        if packet.flags & _FLAG_FIN and f[q + _FIN] == _NONE:
            self._fin(flow, side, offset + packet.wire_length)
        if packet.flags & _FLAG_ACK:
            flow_table.acknowledge(f, q, packet.ack)
            flow_table.close(self._s, f, flow)
        self._settle(flow)
        return True

    def _seen(self, packet: _Packet, r: int, q: int) -> None:
        self._f[q + _PACKETS] += 1
        self._f[r + _LAST_TS] = packet.ts_ns
        self._s[_PACKETS_ALL] += 1

    def _packets(self, r: int) -> int:
        return self._f[r + _SIDE + _PACKETS] + self._f[r + _SIDE + _SIDE_WORDS + _PACKETS]

    def _fin(self, flow: int, side: int, offset: int) -> None:
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        f[q + _FIN] = offset
        if f[q + _MAX_SEEN] < offset < f[q + _NEXT] + _OLDEST:
            f[q + _MAX_SEEN] = offset
        ended = f[flow * _WORDS + _MARKS] & (_ENDED << side)
        if offset == f[q + _NEXT] and flow * 2 + side not in self._queues and not ended:
            self._make_room(0)
            flow_table.end(self._s, f, self._e, flow, side)

    def _same_connection(self, packet: _Packet, flow: int, side: int) -> bool:
        """Whether a SYN belongs to the flow that uses its tuple."""
        f, r = self._f, flow * _WORDS
        q = r + _SIDE + side * _SIDE_WORDS
        other = r + _SIDE + (1 - side) * _SIDE_WORDS
        marks = f[r + _MARKS]
        base = (packet.seq + 1) & _SEQ_MASK
        with_ack = bool(packet.flags & _FLAG_ACK)
        closed = bool(marks & _CLOSED) or (f[q + _FIN] != _NONE and f[other + _FIN] != _NONE)
        other_sure = marks & (_SURE << (1 - side))
        if with_ack and other_sure and not 0 <= flow_table.ahead(packet.ack, f[other + _BASE]) <= f[other + _MAX_SEEN]:
            return False
        if marks & (_SYN_SEEN << side):
            if f[q + _BASE] == base:
                return with_ack or not closed
            if not with_ack or closed or f[q + _BYTES] or flow * 2 + side in self._queues:
                return False
            f[q + _BASE] = base  # the SYN was answered twice; nothing was sent on the first answer
            return True
        if f[q + _BASE] == base and marks & (_SURE << side):
            return not closed
        if f[q + _BASE] < 0:
            return not closed and (f[other + _ACK] < 0 or f[other + _ACK] == base)
        queue = self._queues.get(flow * 2 + side)
        low = f[q + _BASE] + (queue.low if queue is not None and queue.starting else 0)
        near = 0 <= flow_table.ahead(low & _SEQ_MASK, base) <= SYN_NEAR_BYTES
        return near and not closed and self._packets(r) <= SYN_LATE_PACKETS

    def _orient(self, packet: _Packet, flow: int, side: int) -> int:
        """Take a SYN into its flow, which has none of this side yet or the same; the side it is on now."""
        f, r = self._f, flow * _WORDS
        base = (packet.seq + 1) & _SEQ_MASK
        client = 1 - side if packet.flags & _FLAG_ACK else side
        if f[r + _MARKS] & _ORIENTED == 0:
            if client == 0:
                f[r + _MARKS] |= _ORIENTED
            elif self._flip(flow):
                side = 1 - side
                f[r + _MARKS] |= _ORIENTED
        q = r + _SIDE + side * _SIDE_WORDS
        other = r + _SIDE + (1 - side) * _SIDE_WORDS
        self._start_at(flow, side, base)
        if f[q + _BASE] == base:
            f[r + _MARKS] |= _SURE << side
        f[r + _MARKS] |= _SYN_SEEN << side
        if packet.flags & _FLAG_ACK and f[r + _MARKS] & (_SURE << (1 - side)) == 0:
            waiting = self._queues.get(flow * 2 + 1 - side)
            if f[other + _BASE] < 0 or (waiting is not None and waiting.starting):
                self._start_at(flow, 1 - side, packet.ack)
                f[r + _MARKS] |= _SURE << (1 - side)
        return side

    def _start_at(self, flow: int, side: int, base: int) -> None:
        """Let a side that has given out nothing begin at this sequence number."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        if f[q + _BASE] < 0:
            f[q + _BASE] = base
            return
        queue = self._queues.get(flow * 2 + side)
        if queue is not None and queue.starting:
            queue.low = min(queue.low, flow_table.ahead(base, f[q + _BASE]))
            self._release_start(flow, side, queue)

    def _flip(self, flow: int) -> bool:
        """Exchange the sides of a flow that has given out nothing; False if it has."""
        f, r = self._f, flow * _WORDS
        a, b = r + _SIDE, r + _SIDE + _SIDE_WORDS
        if f[a + _NEXT] or f[b + _NEXT] or f[r + _MARKS] & (_ENDED | _ENDED << 1):
            return False
        for i in range(_SIDE_WORDS):
            f[a + i], f[b + i] = f[b + i], f[a + i]
        return self._flip_ends(flow)

    def _flip_ends(self, flow: int) -> bool:
        f, r = self._f, flow * _WORDS
        for word in ("HI", "LO", "PORT"):
            i, j = r + _L[f"A_{word}"], r + _L[f"B_{word}"]
            f[i], f[j] = f[j], f[i]
        marks = f[r + _MARKS]
        for mark in (_SYN_SEEN, _RST_SEEN, _ENDED, _SURE):
            one, two = bool(marks & mark), bool(marks & mark << 1)
            marks = (marks & ~(mark | mark << 1)) | mark * two | (mark << 1) * one
        f[r + _MARKS] = marks
        a, b = self._queues.pop(flow * 2, None), self._queues.pop(flow * 2 + 1, None)
        if b is not None:
            self._queues[flow * 2] = b
        if a is not None:
            self._queues[flow * 2 + 1] = a
        return True

    def _replace(self, flow: int, side: int, ts_ns: int) -> None:
        """Open a new flow on the tuple of one; it is told from others of the same first time by their number."""
        if (self._s[_FLOWS] + 1) * _WORDS > len(self._flow_words):
            self._grow()
        times = self._times.pop(flow, None)
        if times is None and ts_ns <= self._f[flow * _WORDS + _FIRST_TS]:
            times = self._times_of(flow)
        flow_table.replace(self._s, self._f, self._h, flow, side, ts_ns)
        if times is not None:
            new, at = self._s[_FLOWS] - 1, _time_key(ts_ns)
            self._f[new * _WORDS + _EQUAL] = times[at] = times.get(at, -1) + 1
            self._times[new] = times

    def _times_of(self, flow: int) -> dict[bytes, int]:
        """The last EQUAL by first time of a flow and those that used its tuple before."""
        times: dict[bytes, int] = {}
        while flow >= 0:
            r = flow * _WORDS
            times.setdefault(_time_key(self._f[r + _FIRST_TS]), self._f[r + _EQUAL])
            flow = self._f[r + _BEFORE]
        return times

    # Payload

    def _payload(self, packet: _Packet, flow: int, side: int, offset: int) -> None:
        """Sort the bytes of one segment into given out, held, late and seen before."""
        f, number = self._f, flow * 2 + side
        q = flow * _WORDS + _SIDE + side * _SIDE_WORDS
        queue = self._queues.get(number)
        starting = queue is not None and queue.starting
        body = self._window[packet.start : packet.start + packet.length]
        high, wire_high = offset + packet.length, offset + packet.wire_length
        expected = f[q + _NEXT]
        if starting:
            assert queue is not None
            queue.low = min(queue.low, offset)
        elif offset < expected:
            if packet.wire_length == 1 and offset + 1 == expected:  # the probe that keeps a connection alive
                f[q + _RETRANSMITTED] += packet.length
                return
            cut = min(high, expected) - offset
            self._old(packet, flow, side, offset, bytes(body[:cut]))
            body = body[cut:]
            offset += cut
        if f[flow * _WORDS + _MARKS] & (_ENDED << side):
            if body:
                self._behind_end(packet, flow, side, offset, len(body))
            return
        if body:
            if queue is None and offset == expected:
                f[q + _BYTES] += len(body)
                self._accept(flow, side, packet.start + packet.length - len(body), len(body), packet)
            else:
                if queue is None:
                    queue = self._begin(flow, side)
                self._hold(packet, flow, side, queue, offset, bytes(body))
        if wire_high > high and (starting or wire_high > f[q + _NEXT]):
            if queue is None:
                queue = self._begin(flow, side)
            queue.snap(high if starting else max(high, f[q + _NEXT]), wire_high)
            f[q + _MAX_SEEN] = max(f[q + _MAX_SEEN], wire_high)

    def _begin(self, flow: int, side: int) -> OutOfOrderQueue:
        queue = self._queues[flow * 2 + side] = OutOfOrderQueue(self._packets(flow * _WORDS), starting=False)
        self._note_ack(flow, side, queue)
        return queue

    def _accept(self, flow: int, side: int, start: int, length: int, packet: _Packet) -> None:
        self._make_room(0)
        flow_table.accept(
            self._s, self._f, self._p, self._t, self._e, flow, side, start, length, packet.ts_ns, packet.number,
            packet.file,
        )  # fmt: skip

    def _behind_end(self, packet: _Packet, flow: int, side: int, offset: int, length: int) -> None:
        """Bytes behind a FIN are captured, but belong to no stream any more."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        f[q + _BYTES] += length
        self._late.append((flow * 2 + side, offset, length, packet.ts_ns, False))
        flow_table.advance(self._s, f, q, offset + length - f[q + _NEXT])

    def _hold(self, packet: _Packet, flow: int, side: int, queue: OutOfOrderQueue, offset: int, body: bytes) -> None:
        """Put a segment among the held ones; bytes already there stay."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        held = queue.held
        at = max(bisect_right(held, offset, key=lambda entry: entry[0]) - 1, 0)
        high = offset + len(body)
        position = offset
        while position < high:
            if at < len(held) and held[at][0] + len(held[at][1]) <= position:
                at += 1
                continue
            free = min(high, held[at][0]) if at < len(held) else high
            if free > position:
                part = body[position - offset : free - offset]
                held.insert(at, (position, part, packet.ts_ns, packet.number, packet.file))
                queue.bytes += len(part)
                self._held_bytes += len(part) + HELD_OVERHEAD
                f[q + _BYTES] += len(part)
                position = free
            else:
                low, first = held[at][0], held[at][1]
                end = min(high, low + len(first))
                self._compare(
                    packet,
                    flow,
                    side,
                    position,
                    first[position - low : end - low],
                    body[position - offset : end - offset],
                )
                position = end
            at += 1

    def _old(self, packet: _Packet, flow: int, side: int, offset: int, body: bytes) -> None:
        """Bytes below the next one in order: late ones fill their gap, others are compared."""
        f, number = self._f, flow * 2 + side
        q = flow * _WORDS + _SIDE + side * _SIDE_WORDS
        lowest = -f[q + _SHIFT]
        if offset < lowest:
            if f[flow * _WORDS + _MARKS] & (_SURE << side):
                below = min(len(body), lowest - offset)  # not bytes of this stream: nothing is below a SYN
                f[q + _RETRANSMITTED] += below
                offset, body = offset + below, body[below:]
            else:
                f[q + _MISSING] += lowest - offset
                f[q + _SHIFT] = -offset
                self._gaps.setdefault(number, _Gaps()).add(_Gap(offset, lowest, packet.ts_ns, False))
        gaps = self._gaps.get(number)
        position, high = offset, offset + len(body)
        while position < high:
            gap = gaps.first(position, high) if gaps is not None else None
            until = high if gap is None else max(gap.low, position)
            if until > position:
                self._compare_copy(packet, flow, side, position, body[position - offset : until - offset])
                position = until
            if gap is not None and gaps is not None:
                end = min(gap.high, high)
                self._fill(packet, flow, side, gap, gaps, position, body[position - offset : end - offset])
                position = end

    def _fill(self, packet: _Packet, flow: int, side: int, gap: _Gap, gaps: _Gaps, offset: int, body: bytes) -> None:
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        end = offset + len(body)
        self._late.append((flow * 2 + side, offset, len(body), packet.ts_ns, False))
        f[q + _BYTES] += len(body)
        f[q + _MISSING] -= len(body)
        left = [
            _Gap(low, high, gap.ts_ns, gap.snapped) for low, high in ((gap.low, offset), (end, gap.high)) if low < high
        ]
        gaps.replace(gap, left)
        if end > max(f[q + _FLOOR], f[q + _NEXT] - self._s[_L["ALLOWANCE"]]):
            insort(self._history.setdefault(flow * 2 + side, []), (offset, body))
            self._history_bytes += len(body)

    def _compare_copy(self, packet: _Packet, flow: int, side: int, offset: int, body: bytes) -> None:
        """Compare a second copy with the first one, as far as it is remembered."""
        f, s = self._f, self._s
        q = flow * _WORDS + _SIDE + side * _SIDE_WORDS
        low = max(f[q + _FLOOR], f[q + _NEXT] - s[_L["ALLOWANCE"]])
        if offset < low:
            unknown = min(low - offset, len(body))
            f[q + _RETRANSMITTED] += unknown
            self.counts["uncompared_bytes"] += unknown
            offset, body = offset + unknown, body[unknown:]
        if not body:
            return
        high = offset + len(body)
        first, known = bytearray(body), bytearray(len(body))
        rows = flow_table.recent(s, f, self._p, q, offset, high)
        for row in self._far(flow * 2 + side, q, offset, high) if rows is None else rows:
            p = row * _PIECE
            at, length, start = self._p[p + _P_OFFSET], self._p[p + _P_LENGTH], self._p[p + _P_START]
            source: memoryview | bytearray = self._window if start >= 0 else self._extra
            start = start if start >= 0 else -1 - start
            _overlay(first, known, offset, at, source, start, length)
        blocks = self._history.get(flow * 2 + side, [])
        for at, block in blocks[max(bisect_left(blocks, (offset,)) - 1, 0) : bisect_left(blocks, (high,))]:
            _overlay(first, known, offset, at, block, 0, len(block))
        unknown = len(body) - sum(known)
        if unknown:
            self.counts["uncompared_bytes"] += unknown
        self._compare(packet, flow, side, offset, bytes(first), body)

    def _far(self, number: int, q: int, low: int, high: int) -> list[int]:
        """The rows of this feed's pieces that hold stream offsets from low to below high, however many came since."""
        offsets, rows = self._indexed.setdefault(number, ([], []))
        new = flow_table.since(self._s, self._f, self._p, q, rows[-1] if rows else -1)[::-1]
        offsets += [self._p[row * _PIECE + _P_OFFSET] for row in new]
        rows += new
        return rows[max(bisect_right(offsets, low) - 1, 0) : bisect_left(offsets, high)]

    def _compare(self, packet: _Packet, flow: int, side: int, offset: int, first: bytes, second: bytes) -> None:
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        if first == second:
            f[q + _RETRANSMITTED] += len(second)
            return
        differ = np.frombuffer(first, np.uint8) != np.frombuffer(second, np.uint8)
        edges = np.flatnonzero(np.diff(differ, prepend=False, append=False))
        count = int(differ.sum())
        f[q + _CONFLICT] += count
        f[q + _RETRANSMITTED] += len(second) - count
        lows, highs = edges[::2].tolist(), edges[1::2].tolist()
        if len(lows) > CONFLICT_ROWS:
            highs[CONFLICT_ROWS - 1] = highs[-1]
            del lows[CONFLICT_ROWS:], highs[CONFLICT_ROWS:]
        for low, high in zip(lows, highs, strict=True):
            self._conflicts.append((flow * 2 + side, offset + low, high - low, packet.ts_ns, False))

    # Holes

    def _settle(self, flow: int) -> None:
        """Decide what can be decided about the holes of a flow after a packet."""
        for number in (flow * 2, flow * 2 + 1):
            queue = self._queues.get(number)
            if queue is not None:
                self._resolve_holes(flow, number & 1, queue)
        if self._held_bytes > self._held_cap:
            self._shed_load()
        self._mark(flow)

    def _shed_load(self) -> None:
        """Give up the holes of the sides that are out of order for longest until what is held fits again."""
        for number, queue in list(self._queues.items()):
            if self._held_bytes <= self._held_cap // 2:
                break
            if queue.held:
                self.counts["held_cap"] += 1
                self._give_up_all(number >> 1, number & 1, queue)
                self._mark(number >> 1)

    def _mark(self, flow: int) -> None:
        hard = flow * 2 in self._queues or flow * 2 + 1 in self._queues
        marks = self._f[flow * _WORDS + _MARKS]
        self._f[flow * _WORDS + _MARKS] = marks | _HARD if hard else marks & ~_HARD

    def _note_ack(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        """Remember how far the other side has acknowledged by now."""
        f, r = self._f, flow * _WORDS
        q = r + _SIDE + side * _SIDE_WORDS
        raw = f[r + _SIDE + (1 - side) * _SIDE_WORDS + _ACK]
        if raw >= 0:
            ack = f[q + _NEXT] + flow_table.ahead(raw, f[q + _BASE] + f[q + _NEXT])
            if ack > queue.last_ack:
                queue.last_ack = ack
                queue.acks.append((self._packets(r), ack))

    def _resolve_holes(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        self._note_ack(flow, side, queue)
        now = self._packets(flow * _WORDS)
        while queue.acks and now - queue.acks[0][0] >= SETTLE_PACKETS:
            queue.settled = queue.acks.popleft()[1]
        if queue.starting:
            safe = queue.settled >= queue.low
            full = queue.bytes > START_BYTES or len(queue.held) > START_SEGMENTS
            if not safe and not full and now - queue.began < START_PACKETS:
                return
            self._release_start(flow, side, queue)
        self._drain(flow, side, queue)
        while queue.held:
            full = queue.bytes > HELD_BYTES or len(queue.held) > HELD_SEGMENTS
            if queue.held[0][0] > queue.settled and not full:
                break
            if queue.held[0][0] > queue.settled:
                self.counts["held_cap"] += 1
            self._give_up(flow, side, queue)
            self._drain(flow, side, queue)
        self._done(flow, side, queue)

    def _done(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        """Drop the queue of a side that is in order again."""
        expected = self._f[flow * _WORDS + _SIDE + side * _SIDE_WORDS + _NEXT]
        del queue.snaps[: bisect_right(queue.snaps, expected, key=lambda hole: hole[1])]
        if not queue.held and not queue.snaps:
            self._queues.pop(flow * 2 + side, None)
            f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
            if f[q + _FIN] == f[q + _NEXT] and not f[flow * _WORDS + _MARKS] & (_ENDED << side):
                self._make_room(0)
                flow_table.end(self._s, f, self._e, flow, side)

    def _release_start(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        """Fix offset 0 of a side without a SYN at the lowest sequence number captured."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        delta = queue.low
        f[q + _BASE] = (f[q + _BASE] + delta) & _SEQ_MASK
        f[q + _MAX_SEEN] -= delta
        if f[q + _FIN] != _NONE:
            f[q + _FIN] -= delta
        queue.rebase(delta)
        queue.starting = False

    def _drain(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        """Give out what is held and in order now."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        count = 0
        for offset, body, ts_ns, number, file in queue.held:
            if offset != f[q + _NEXT] or f[flow * _WORDS + _MARKS] & (_ENDED << side):
                break
            count += 1
            place = -1 - len(self._extra)
            self._extra += body
            queue.bytes -= len(body)
            self._held_bytes -= len(body) + HELD_OVERHEAD
            self._make_room(0)
            flow_table.accept(self._s, f, self._p, self._t, self._e, flow, side, place, len(body), ts_ns, number, file)
        del queue.held[:count]
        if queue.held and f[flow * _WORDS + _MARKS] & (_ENDED << side):
            for offset, body, ts_ns, _, _ in queue.held:
                self._late.append((flow * 2 + side, offset, len(body), ts_ns, False))
                flow_table.advance(self._s, f, q, offset + len(body) - f[q + _NEXT])
                self._held_bytes -= len(body) + HELD_OVERHEAD
            queue.held.clear()
            queue.bytes = 0

    def _give_up(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        """Let the first hole of a side be a gap."""
        f, q = self._f, flow * _WORDS + _SIDE + side * _SIDE_WORDS
        low, high = f[q + _NEXT], queue.held[0][0]
        at = bisect_right(queue.snaps, low, key=lambda hole: hole[1])
        snapped = at < len(queue.snaps) and queue.snaps[at][0] <= low
        self._gap(flow, side, low, high, queue.held[0][2], snapped)
        f[q + _WAKE_AT] = 0
        flow_table.advance(self._s, f, q, high - low)

    def _gap(self, flow: int, side: int, low: int, high: int, ts_ns: int, snapped: bool) -> None:
        self._f[flow * _WORDS + _SIDE + side * _SIDE_WORDS + _MISSING] += high - low
        self._gaps.setdefault(flow * 2 + side, _Gaps()).add(_Gap(low, high, ts_ns, snapped))
        if snapped:
            self._snapped.add((flow * 2 + side, low))

    def _give_up_all(self, flow: int, side: int, queue: OutOfOrderQueue) -> None:
        if queue.starting:
            self._release_start(flow, side, queue)
        self._drain(flow, side, queue)
        while queue.held:
            self._give_up(flow, side, queue)
            self._drain(flow, side, queue)
        self._done(flow, side, queue)

    def _end_flow(self, flow: int) -> None:
        """Nothing more comes on either side."""
        for side in (0, 1):
            self._end_side(flow, side)
        self._mark(flow)
        flow_table.forget(self._s, self._f, flow)

    def _end_side(self, flow: int, side: int) -> None:
        f, r, number = self._f, flow * _WORDS, flow * 2 + side
        q = r + _SIDE + side * _SIDE_WORDS
        other = r + _SIDE + (1 - side) * _SIDE_WORDS
        queue = self._queues.get(number)
        snaps: list[tuple[int, int]] = []
        if queue is not None:
            self._give_up_all(flow, side, queue)
            snaps = queue.snaps
            self._queues.pop(number, None)
        if f[r + _MARKS] & (_ENDED << side):
            return
        if f[q + _BASE] < 0 and f[other + _FIRST_ACK] >= 0:
            # No packet of this side: what the other side acknowledged was never captured.
            f[q + _BASE] = f[other + _FIRST_ACK]
        if f[q + _BASE] >= 0:
            low, high = f[q + _NEXT], f[q + _MAX_SEEN]
            ack = low + flow_table.ahead(f[other + _ACK], f[q + _BASE] + low) if f[other + _ACK] >= 0 else low
            if f[q + _FIN] != _NONE:
                ack = min(ack, f[q + _FIN])
            elif ack == high + 1:
                ack = high  # as likely a FIN that was not captured
            if high < ack < low + _OLDEST:
                high = ack
            if high > low:
                self._gap(flow, side, low, high, f[r + _LAST_TS], any(a <= low < b for a, b in snaps))
                self._trailing.add(number)
        self._make_room(0)
        flow_table.end(self._s, f, self._e, flow, side)

    # What the reader gets

    def _flow_table(self) -> NDArray[np.int64]:
        return self._flow_words[: self._s[_FLOWS] * _WORDS].reshape(-1, _WORDS)

    def _chunks(self, window: NDArray[np.uint8]) -> StreamChunks:
        """Group the pieces of this feed by flow and side, behind what was kept of theirs, in one copy."""
        s = self._s
        pieces = self._piece_words[: s[_PIECES] * _PIECE].reshape(-1, _PIECE)
        touched = self._touched_sides[: s[_TOUCHED]]
        ends = self._ended_sides[: s[_ENDS]]
        table = self._flow_table()
        news = _distinct(np.concatenate([touched, ends]))
        words = _SIDE + (news & 1) * _SIDE_WORDS
        flow = news >> 1
        reached = table[flow, words + _NEXT]
        ended = (table[flow, _MARKS] >> (news & 1)) & _ENDED != 0
        show = ended | (table[flow, words + _WAKE_AT] <= reached)
        shown, back = news[show], news[~show]

        kept_rank = np.searchsorted(shown, self._kept[:, 0])
        taken = _member(self._kept[:, 0], shown)
        slot_rank = np.searchsorted(shown, touched)
        held_back = _member(touched, back)
        slot_rank[held_back] = len(shown) + np.searchsorted(back, touched[held_back])
        rank = np.concatenate([kept_rank[taken], slot_rank[pieces[:, _P_SLOT]]])
        rows = np.concatenate([self._kept[taken], pieces[:, :_KEPT_COLUMNS]])
        narrow = rank.astype(np.uint16) if len(news) <= 0xFFFF else rank  # numpy sorts 16 bits in linear time
        order = np.argsort(narrow, kind="stable")
        kept_count = int(np.count_nonzero(taken))
        starts, lengths = np.ascontiguousarray(rows[:, _P_START]), np.ascontiguousarray(rows[:, _P_LENGTH])
        buffer = np.empty(int(lengths.sum()), np.uint8)
        flow_table.gather(
            memoryview(buffer), memoryview(window), memoryview(self._extra), memoryview(self._arena),
            memoryview(order), kept_count, memoryview(starts), memoryview(lengths),
        )  # fmt: skip
        rows = rows[order]
        rows[:, _P_START] = np.cumsum(rows[:, _P_LENGTH]) - rows[:, _P_LENGTH]
        self._kept = self._kept[~taken]
        runs = _runs(rows)
        self._remember(rows, runs, buffer)
        for number in news[table[flow, words + _FLOOR] >= reached].tolist():  # a closed connection's
            self._drop_history(number)
        shown_rows = int(np.searchsorted(rank[order], len(shown)))
        self._put_back(rows[shown_rows:], buffer)
        result = self._shown(
            rows[:shown_rows], runs[: int(np.searchsorted(runs, shown_rows))], buffer, shown, ended[show],
            order[:shown_rows] + (s[_PIECE_FIRST] - kept_count),
        )  # fmt: skip
        s[_PIECE_FIRST] += s[_PIECES]
        s[_PIECES] = s[_TOUCHED] = s[_ENDS] = 0
        self._extra = bytearray()
        self._indexed.clear()
        self._snapped.clear()
        self._trailing.clear()
        self.counts["history_shrunk"] = s[_L["SHRUNK"]]
        return result

    def _shown(
        self,
        rows: NDArray[np.int64],
        runs: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        shown: NDArray[np.int64],
        ended: NDArray[np.bool_],
        given_out: NDArray[np.int64],
    ) -> StreamChunks:
        table = self._flow_table()
        number, offset, start = rows[runs, 0], rows[runs, _P_OFFSET], rows[runs, _P_START]
        bounds = np.append(runs, len(rows))
        total = np.append(rows[:, _P_START], int(rows[:, _P_LENGTH].sum()) if len(rows) else 0)
        length = total[bounds[1:]] - start
        # Sides that ended without a byte left: an empty chunk, if they ever had one.
        empty = shown[ended & ~_member(shown, number)]
        reached = table[empty >> 1, _SIDE + (empty & 1) * _SIDE_WORDS + _NEXT]
        trailing = np.isin(empty, np.fromiter(self._trailing, np.int64))
        empty, reached = empty[(reached > 0) | trailing], reached[(reached > 0) | trailing]
        if len(empty):
            at = np.searchsorted(number, empty)
            offset, start = np.insert(offset, at, reached), np.insert(start, at, 0)
            length, bounds = np.insert(length, at, 0), np.insert(bounds, at, bounds[at])
            number = np.insert(number, at, empty)
        flow, side = number >> 1, number & 1
        words = _SIDE + side * _SIDE_WORDS
        first = np.append(True, number[1:] != number[:-1])[: len(number)]
        last = np.append(number[1:] != number[:-1], True)[: len(number)]
        end = offset + length
        before = np.append(np.int64(0), end[:-1])[: len(number)]
        gap_before = offset - np.where(first, table[flow, words + _DELIVERED], before)
        side_ended = (table[flow, _MARKS] >> side) & _ENDED != 0
        gap_after = ~last
        snapped = np.zeros(len(number), np.bool_)
        if self._trailing:
            gap_after |= last & np.isin(number, np.fromiter(self._trailing, np.int64))
        if self._snapped:
            snapped = np.array(
                [key in self._snapped for key in zip(number.tolist(), end.tolist(), strict=True)], np.bool_
            )
        table[flow[last], words[last] + _DELIVERED] = end[last]
        table[flow[last], words[last] + _WAKE_AT] = 0
        return StreamChunks(
            buffer=buffer,
            flow=self._numbers(flow),
            side=side.astype(np.int8),
            offset=offset,
            start=start,
            length=length,
            gap_before=gap_before,
            gap_after=gap_after,
            ended=last & side_ended,
            snapped=snapped & gap_after,
            piece_first=bounds,
            piece_offset=rows[:, _P_OFFSET].copy(),
            piece_length=rows[:, _P_LENGTH].copy(),
            piece_ts_ns=rows[:, _L["P_TS"]].copy(),
            piece_number=rows[:, _L["P_NUMBER"]].copy(),
            piece_file=rows[:, _P_FILE].copy(),
            piece_order=given_out,
        )

    def _remember(self, rows: NDArray[np.int64], runs: NDArray[np.int64], buffer: NDArray[np.uint8]) -> None:
        """Copy the latest bytes of each side, to compare retransmissions with later."""
        f, allowance = self._f, self._s[_L["ALLOWANCE"]]
        if len(runs) == 0:
            return
        ends = np.append(rows[runs[1:], _P_START], len(buffer))
        numbers, offsets, starts = rows[runs, 0], rows[runs, _P_OFFSET], rows[runs, _P_START]
        table = self._flow_table()
        flow, words = numbers >> 1, _SIDE + (numbers & 1) * _SIDE_WORDS
        horizons = np.maximum(table[flow, words + _FLOOR], table[flow, words + _NEXT] - allowance)
        lows = np.maximum(np.maximum(offsets, horizons), table[flow, words + _HISTORY_END])
        live = np.flatnonzero(offsets + ends - starts > lows)
        table[flow, words + _HISTORY_END] = table[flow, words + _NEXT]
        for number, low, start, end, horizon in zip(
            *(column[live].tolist() for column in (numbers, lows, starts + lows - offsets, ends, horizons)), strict=True
        ):
            blocks = self._history.setdefault(number, [])
            new = buffer[start:end].tobytes()
            self._history_bytes += len(new)
            gone = bisect_right(blocks, horizon, key=lambda block: block[0] + len(block[1]))
            self._history_bytes -= sum(len(block) for _, block in blocks[:gone])
            del blocks[:gone]
            at = bisect_left(blocks, (low,))
            if at and blocks[at - 1][0] + len(blocks[at - 1][1]) == low:
                old_at, old = blocks.pop(at - 1)
                cut = max(horizon - old_at, 0)
                self._history_bytes -= cut
                new, low, at = old[cut:] + new, old_at + cut, at - 1
            blocks.insert(at, (low, new))
        if self._history_bytes + len(self._history) * 256 > self._s[_L["HISTORY_CAP"]]:
            for number in list(self._history):
                q = (number >> 1) * _WORDS + _SIDE + (number & 1) * _SIDE_WORDS
                horizon = max(f[q + _FLOOR], f[q + _NEXT] - allowance)
                self._trim(number, horizon)

    def _drop_history(self, number: int) -> None:
        self._history_bytes -= sum(len(block) for _, block in self._history.pop(number, ()))

    def _trim(self, number: int, horizon: int) -> None:
        left: list[tuple[int, bytes]] = []
        for at, block in self._history.pop(number):
            self._history_bytes -= len(block)
            if at + len(block) > horizon:
                cut = max(horizon - at, 0)
                left.append((at + cut, block[cut:]))
                self._history_bytes += len(block) - cut
        if left:
            self._history[number] = left

    # What the reader leaves over

    def keep(self, chunks: StreamChunks, consumed: NDArray[np.int64], wanted: NDArray[np.int64] | None = None) -> None:
        """Keep what the reader is not done with, to be shown again with the next bytes of its side.

        consumed: int64 for each chunk, bytes from its start that the reader is done with; not looked at where
        gap_after or ended. wanted, if given: int64 for each chunk, bytes that what is kept must reach before it is
        worth showing again (0: any news; shown at once when a gap or the end follows), so that a long message is not
        copied again with each of its segments.
        """
        open_ = np.flatnonzero(~(chunks.gap_after | chunks.ended) & (consumed < chunks.length))
        if len(open_) == 0:
            return
        table = self._flow_table()
        flow, side = self._places(chunks.flow[open_]), chunks.side[open_].astype(np.int64)
        words = _SIDE + side * _SIDE_WORDS
        done = consumed[open_]
        cut = chunks.offset[open_] + done
        table[flow, words + _DELIVERED] = np.where(done == 0, cut - chunks.gap_before[open_], cut)
        if wanted is not None:
            table[flow, words + _WAKE_AT] = np.where(wanted[open_] > 0, cut + wanted[open_], 0)
        counts = chunks.piece_first[open_ + 1] - chunks.piece_first[open_]
        owner = np.repeat(np.arange(len(open_)), counts)
        piece = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        piece += chunks.piece_first[open_][owner]
        offset, length = chunks.piece_offset[piece], chunks.piece_length[piece]
        left = offset + length > cut[owner]
        owner, piece, offset, length = owner[left], piece[left], offset[left], length[left]
        skip = np.maximum(cut[owner] - offset, 0)
        offset, length = offset + skip, length - skip
        start = chunks.start[open_][owner] + offset - chunks.offset[open_][owner]
        rows = np.column_stack(
            [
                flow[owner] * 2 + side[owner], offset, length, start, chunks.piece_ts_ns[piece],
                chunks.piece_number[piece], chunks.piece_file[piece],
            ]
        )  # fmt: skip
        self._put_back(rows, chunks.buffer)

    def _put_back(self, rows: NDArray[np.int64], buffer: NDArray[np.uint8]) -> None:
        """Copy the bytes of these pieces to the kept ones."""
        if len(rows) == 0:
            if len(self._kept) == 0:
                self._arena_used = 0
            return
        length = np.ascontiguousarray(rows[:, _P_LENGTH])
        total = int(length.sum())
        self._arena_room(total)
        order = np.arange(len(rows), dtype=np.int64)
        start = np.ascontiguousarray(rows[:, _P_START])
        empty = memoryview(b"")
        flow_table.gather(
            memoryview(self._arena[self._arena_used : self._arena_used + total]), memoryview(buffer), empty, empty,
            memoryview(order), 0, memoryview(start), memoryview(length),
        )  # fmt: skip
        rows = rows.copy()
        rows[:, _P_START] = self._arena_used + np.cumsum(length) - length
        self._arena_used += total
        self._kept = np.concatenate([self._kept, rows])

    def _arena_room(self, more: int) -> None:
        """Room for so many more kept bytes; above the cap they live in a temporary file."""
        if self._arena_used + more <= len(self._arena):
            return
        used = int(self._kept[:, _P_LENGTH].sum())
        size = max((used + more) * 2, 65536)
        arena: NDArray[np.uint8]
        if size > self._kept_cap:
            self.counts["kept_in_file"] = self.counts.get("kept_in_file", 0) + 1
            with tempfile.TemporaryFile(prefix="mqpcap-") as file:
                arena = np.memmap(file, np.uint8, "w+", shape=(size,))
        else:
            arena = np.empty(size, np.uint8)
        self._live(arena[:used])
        self._kept[:, _P_START] = np.cumsum(self._kept[:, _P_LENGTH]) - self._kept[:, _P_LENGTH]
        self._arena, self._arena_used = arena, used

    def _live(self, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The kept bytes, one piece behind the other."""
        empty = memoryview(b"")
        start, length = (np.ascontiguousarray(self._kept[:, word]) for word in (_P_START, _P_LENGTH))
        flow_table.gather(
            memoryview(out), memoryview(self._arena), empty, empty,
            memoryview(np.arange(len(start), dtype=np.int64)), 0, memoryview(start), memoryview(length),
        )  # fmt: skip
        return out

    # What is known about connections

    def gaps(self) -> StreamRanges:
        """What was never captured, as far as it is given up; final after finish."""
        return _ranges(
            [
                (number, gap.low, gap.high - gap.low, gap.ts_ns, gap.snapped)
                for number, gaps in self._gaps.items()
                for gap in gaps
            ],
            self._numbers,
        )

    def final_gaps(self, flows: I64) -> StreamRanges:
        """Those of some connections, which are over, and of the others those that no packet can fill any more."""
        closed = {*self._places(flows).tolist()}
        return _ranges(
            [
                (number, gap.low, gap.high - gap.low, gap.ts_ns, gap.snapped)
                for number, gaps in self._gaps.items()
                for gap in gaps
                if number >> 1 in closed or gap.high <= self._final_below(number)
            ],
            self._numbers,
        )

    def conflicts(self) -> StreamRanges:
        """Where a retransmission had other bytes than the first copy."""
        return _ranges(list(self._conflicts), self._numbers)

    def late(self) -> StreamRanges:
        """Bytes captured after their gap had been given up, or behind a FIN: counted, but in no chunk."""
        return _ranges(list(self._late), self._numbers)

    def _words(self, numbers: I64) -> I64:
        """The words of connections, a row each. Raises KeyError where one is forgotten."""
        places = self._places(numbers)
        gone = np.flatnonzero(places < 0)
        if not len(gone):
            return self._flow_table()[places]
        if self._closed_flows is None:
            raise KeyError(int(numbers[gone[0]]))
        words = np.empty((len(numbers), _WORDS), np.int64)
        words[gone] = self._closed_flows.words(numbers[gone])
        words[places >= 0] = self._flow_table()[places[places >= 0]]
        return words

    def _columns(self, numbers: I64) -> FlowColumns:
        words = self._words(numbers)
        marks = words[:, _MARKS]
        sides = words[:, _SIDE : _SIDE + 2 * _SIDE_WORDS].reshape(-1, 2, _SIDE_WORDS)

        def two(*names: str) -> NDArray[np.int64]:
            return words[:, [_L[name] for name in names]]

        def marked(mark: int) -> NDArray[np.bool_]:
            return np.column_stack([marks & mark, marks & mark << 1]) != 0

        fin, rst = sides[:, :, _FIN].copy(), marked(_RST_SEEN)
        ack, base, reached = sides[:, ::-1, _ACK], sides[:, :, _BASE], sides[:, :, _NEXT]
        ahead = ((ack - base - reached + _OLDEST) & _SEQ_MASK) - _OLDEST  # as flow_table.ahead
        return FlowColumns(
            version=words[:, _L["VERSION"]].copy(), hi=two("A_HI", "B_HI"), lo=two("A_LO", "B_LO"),
            port=two("A_PORT", "B_PORT"), first_ts_ns=words[:, _FIRST_TS].copy(), last_ts_ns=words[:, _LAST_TS].copy(),
            equal=words[:, _EQUAL].copy(), oriented=marks & _ORIENTED != 0,
            end_state=np.where(rst.any(axis=1), 0, np.where((fin != _NONE).any(axis=1), 1, 2)),
            syn=marked(_SYN_SEEN), rst=rst, fin_offset=fin,
            acked=np.where((base < 0) | (ack < 0), _NONE, reached + ahead), end_offset=reached.copy(),
            packets=sides[:, :, _PACKETS].copy(), bytes=sides[:, :, _BYTES].copy(),
            retransmitted=sides[:, :, _RETRANSMITTED].copy(), conflict=sides[:, :, _CONFLICT].copy(),
            missing=sides[:, :, _MISSING].copy(), shift=sides[:, :, _SHIFT].copy(),
        )  # fmt: skip

    def _flow(self, index: int) -> Flow:
        f, r = self._f, index * _WORDS
        if self._forgotten:
            f, r = memoryview(self._words(np.array([index]))[0]), 0
        marks, version = f[r + _MARKS], f[r + _L["VERSION"]]
        a_hi, a_lo, b_hi, b_lo = (f[r + _L[name]] for name in ("A_HI", "A_LO", "B_HI", "B_LO"))
        a_port, b_port = f[r + _L["A_PORT"]], f[r + _L["B_PORT"]]
        sides = [f[r + _SIDE + side * _SIDE_WORDS : r + _SIDE + (side + 1) * _SIDE_WORDS] for side in (0, 1)]
        fins = [words[_FIN] != _NONE for words in sides]
        reset = bool(marks & (_RST_SEEN | _RST_SEEN << 1))
        a_ip, b_ip = address_text(version, a_hi, a_lo), address_text(version, b_hi, b_lo)

        def pair(word: int) -> tuple[int, int]:
            return (sides[0][word], sides[1][word])

        def acked(side: int) -> int | None:
            mine, ack = sides[side], sides[1 - side][_ACK]
            if mine[_BASE] < 0 or ack < 0:
                return None
            return int(mine[_NEXT] + flow_table.ahead(ack, mine[_BASE] + mine[_NEXT]))

        return Flow(
            index=index,
            version=version,
            a_ip=a_ip,
            a_port=a_port,
            b_ip=b_ip,
            b_port=b_port,
            first_ts_ns=f[r + _FIRST_TS],
            last_ts_ns=f[r + _LAST_TS],
            oriented=bool(marks & _ORIENTED),
            syn_seen=bool(marks & (_SYN_SEEN | _SYN_SEEN << 1)),
            end_state="reset" if reset else "closed" if any(fins) else "open",
            syn=(bool(marks & _SYN_SEEN), bool(marks & _SYN_SEEN << 1)),
            rst=(bool(marks & _RST_SEEN), bool(marks & _RST_SEEN << 1)),
            fin_offset=(sides[0][_FIN] if fins[0] else None, sides[1][_FIN] if fins[1] else None),
            acked=(acked(0), acked(1)),
            end_offset=pair(_NEXT),
            packets=pair(_PACKETS),
            bytes=pair(_BYTES),
            retransmitted=pair(_RETRANSMITTED),
            conflict=pair(_CONFLICT),
            missing=pair(_MISSING),
            shift=pair(_SHIFT),
            equal=f[r + _EQUAL],
        )


def _closed(f: I64) -> NDArray[np.bool_]:
    """Which flows are closed on both sides or reset, or their addresses and ports used anew."""
    marks = f[:, _MARKS]
    closed = (marks & (_RST_SEEN | _RST_SEEN << 1) != 0) | (marks & (_ENDED | _ENDED << 1) == _ENDED | _ENDED << 1)
    both: NDArray[np.bool_] = closed | (f[:, _SIDE + _FIN] != _NONE) & (f[:, _SIDE + _SIDE_WORDS + _FIN] != _NONE)
    return both


def _spoke(f: I64) -> NDArray[np.bool_]:
    """Which flows carried payload."""
    spoke: NDArray[np.bool_] = (f[:, _SIDE + _BYTES] != 0) | (f[:, _SIDE + _SIDE_WORDS + _BYTES] != 0)
    return spoke


def _earlier(before: I64) -> Iterator[I64]:
    """For each flow the place of the one that used its tuple 1, 2, 4 ... flows before, -1 for none, while any did.

    What holds for all that came before is so found in few steps, however often one tuple is used.
    """
    while (before >= 0).any():
        yield before
        before = np.where(before >= 0, before[before], -1)


def _moved(places: I64, forgotten: I64) -> I64:
    """Places of flows once others, in order, are left out.

    >>> _moved(np.array([0, 3, 5]), np.array([1, 2, 4])).tolist()
    [0, 1, 2]
    """
    return places - np.searchsorted(forgotten, places)


def _moved_sides(of: dict[int, _Known], forgotten: I64) -> dict[int, _Known]:
    """What is known by the place of a side."""
    sides = np.fromiter(of, np.int64, len(of))
    return dict(zip((_moved(sides >> 1, forgotten) * 2 + (sides & 1)).tolist(), of.values(), strict=True))


def _longer(array: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    longer = np.zeros(max(least, len(array) * 2), np.int64)
    longer[: len(array)] = array
    return longer


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers in order, each once."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]]


def _member(numbers: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each number is among the ordered ones."""
    if len(ordered) == 0:
        return np.zeros(len(numbers), np.bool_)
    at = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    return ordered[at] == numbers


def _runs(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each run of pieces that continue each other."""
    if len(rows) == 0:
        return np.zeros(0, np.int64)
    goes_on = (rows[1:, 0] == rows[:-1, 0]) & (rows[1:, _P_OFFSET] == rows[:-1, _P_OFFSET] + rows[:-1, _P_LENGTH])
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(~goes_on) + 1])


def _time_key(ts_ns: int) -> bytes:
    """A time as a key of a dictionary: Python hashes bytes with a secret, numbers without."""
    return ts_ns.to_bytes(8, "big", signed=True)


def _overlay(
    first: bytearray,
    known: bytearray,
    offset: int,
    at: int,
    source: memoryview | bytearray | bytes,
    start: int,
    length: int,
) -> None:
    """Copy into first, which begins at offset, the bytes of a piece at that are not known yet."""
    low, high = max(offset, at), min(offset + len(first), at + length)
    if low < high:
        first[low - offset : high - offset] = source[start + low - at : start + high - at]
        known[low - offset : high - offset] = b"\1" * (high - low)
