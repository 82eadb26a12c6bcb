# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""The table of TCP connections, with the fast path for segments in order.

In: the `Segments` of a window. Out: records of connections, sides and accepted payload (``flow_records``).
Called by: `Reassembler`, which handles every segment that the fast path refuses.

`FastPath` processes segments up to the first that needs the slow path. That is a segment out of order,
damaged, or truncated by the snap length. A RST, an unusual SYN, and the first segment after a long pause need it, too,
and so does a segment that may belong to an older connection of its 5-tuple. The fast path changes nothing for that
segment. Both ways note what a packet shows by
the same methods. So each decision is made per packet, and results do not depend on how the input is split into windows.
Flows are found by 5-tuple in an open-addressing hash table. The hash key is random for each process, so that a crafted
capture cannot force collisions. Payload is referenced by offset, and no Python object is made per packet.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import cython
import numpy as np

from mqpcap.tcp.flow_records import CHALLENGED, FLOW, NO_OFFSET, PIECE, SIDE, FlowRecord, PieceRecord, SideRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mqpcap.tcp.headers import Segments

    State = tuple[int, int, int, NDArray[np.void], NDArray[np.void]]

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED = cython.compiled

STALE_NS = 3600 * 1_000_000_000
"""A flow without packets for this time loses its history and gives up its holes."""
CLOSED_TIMEOUT_NS = 60 * 1_000_000_000
"""A flow that was closed, or whose 5-tuple is in use again, is over after this time without packets."""
MAX_HOLE = 16 * 1024 * 1024
"""The largest hole in front of a segment; a segment further ahead belongs to another connection.

Captured windows and acknowledgements allow no larger hole: this is the largest receive window that systems set by
default, and the next acknowledgement allows as much again.
"""
NEAR_BYTES = 64 * 1024
"""The same limit if another connection on the 5-tuple may be meant."""
COPY_NS = 1_000_000
"""Without an IP identification, an equal packet within this time was captured twice, not sent twice."""
IP_ID = 0xFFFF0000
"""The IPv4 identification in Segments.ident."""
MAX_CHECKSUM_BALANCE = 16
"""Bound of `SideRecord.checksum_balance`, so that it follows what the latest segments of a side show."""
MAX_RIVALS = 8
"""Connections on one 5-tuple, the newest first, that a packet may belong to."""
INITIAL_CAPACITY = 1024
"""Flows, and pieces, that a new table has capacity for."""
HASH_KEY = np.frombuffer(os.urandom(11 * 8), np.uint64)
"""Random key of the hash, so that a crafted capture cannot force collisions."""

NEW_TABLE = 0, 0, 0, np.zeros(0, FLOW), np.zeros(0, SIDE)

# The constants for C.
_NO_OFFSET = cython.declare(cython.longlong, NO_OFFSET)
_CHALLENGED = cython.declare(cython.longlong, CHALLENGED)
_NEAR = cython.declare(cython.longlong, NEAR_BYTES)
_MAX_HOLE = cython.declare(cython.longlong, MAX_HOLE)
_MAX_CHECKSUM_BALANCE = cython.declare(cython.longlong, MAX_CHECKSUM_BALANCE)
_DAMAGED_HEADER = cython.declare(cython.const[cython.longlong], -2)
_MAX_WINDOW = cython.declare(cython.const[cython.longlong], 1073741824)
_MASK_32 = cython.declare(cython.const[cython.longlong], 0xFFFFFFFF)
_STALE_NS = cython.declare(cython.longlong, STALE_NS)
_COPY_NS = cython.declare(cython.longlong, COPY_NS)
# C constants: the bits in tcp.flags.
_FIN = cython.declare(cython.const[cython.longlong], 1)
_SYN = cython.declare(cython.const[cython.longlong], 2)
_RST = cython.declare(cython.const[cython.longlong], 4)
_ACK = cython.declare(cython.const[cython.longlong], 16)

# The records of flow_records, field by field.
_Flow = cython.struct(
    key=cython.longlong,
    connection_number=cython.longlong,
    connection_id=cython.longlong,
    first_ts_ns=cython.longlong,
    last_ts_ns=cython.longlong,
    first_packet=cython.longlong,
    previous=cython.longlong,
    duplicate=cython.longlong,
    fin_idle_ns=cython.longlong,
    reset_idle_ns=cython.longlong,
    version=cython.short,
    a_is_client=cython.short,
    is_closed=cython.schar,
    out_of_order=cython.schar,
    fin_by=cython.schar,
    reset_by=cython.schar,
)
_Side = cython.struct(
    hi=cython.longlong,
    lo=cython.longlong,
    base_seq=cython.longlong,
    next_offset=cython.longlong,
    known_end=cython.longlong,
    lowest_offset=cython.longlong,
    fin_offset=cython.longlong,
    ack=cython.longlong,
    first_ack=cython.longlong,
    fin_ack=cython.longlong,
    acked_from=cython.longlong,
    ahead_ns=cython.longlong,
    packets=cython.longlong,
    bytes=cython.longlong,
    retransmitted=cython.longlong,
    empty_ts_ns=cython.longlong,
    conflict=cython.longlong,
    missing=cython.longlong,
    compare_from=cython.longlong,
    history_to=cython.longlong,
    consumed_to=cython.longlong,
    closed_window_ns=cython.longlong,
    resume_at=cython.longlong,
    last_packet=cython.longlong,
    last_piece=cython.longlong,
    port=cython.int,
    duplicates=cython.int,
    window=cython.int,
    checksum_balance=cython.schar,
    ended=cython.schar,
    syn_seen=cython.schar,
    rst_seen=cython.schar,
    base_known=cython.schar,
    has_copies=cython.schar,
    empty_id=cython.short,
    empty_checksum=cython.short,
    empty_flags=cython.short,
)
_Piece = cython.struct(
    side=cython.longlong,
    offset=cython.longlong,
    length=cython.longlong,
    start=cython.longlong,
    ts_ns=cython.longlong,
    packet_number=cython.longlong,
    file=cython.longlong,
    ack=cython.longlong,
    ident=cython.longlong,
    previous=cython.longlong,
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _ahead(seq: cython.longlong, expected: cython.longlong) -> cython.longlong:
    """sequence_numbers.ahead for C."""
    return ((seq - expected + _MAX_WINDOW) & _MASK_32) - _MAX_WINDOW


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _unwrapped(seq: cython.longlong, base: cython.longlong, near: cython.longlong) -> cython.longlong:
    """sequence_numbers.unwrapped for C."""
    return near + _ahead(seq, base + near)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _as_short(number: cython.longlong) -> cython.short:
    """The low 16 bits of a number, signed."""
    return cython.cast(cython.short, ((number + 0x8000) & 0xFFFF) - 0x8000)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _product(
    secret_a: cython.ulonglong, word_a: cython.ulonglong, secret_b: cython.ulonglong, word_b: cython.ulonglong
) -> cython.ulonglong:
    return (secret_a + word_a) * (secret_b + word_b)


@cython.final
@cython.cclass
class FlowTable:
    """Connections, and the pieces and ended sides of one feed; what a packet shows is noted by these methods.

    ``flows``, ``sides``, ``pieces``: the records for Python. ``flow_array``, ...: the same memory for NumPy. A record
    must not be used once the table has grown. ``opened_count``: connections, including forgotten ones. ``stray_count``:
    packets with a damaged IP header that belong to no connection.

    A flow keeps its index until it is released; then another flow may take it. ``connection_number`` tells them apart:
    it is never used again, and -1 in a free record. ``flow_count``: records, ``free_count`` of them are free.

    In methods, q and o are the sides of a packet's sender and receiver, off is a stream offset.
    """

    flows = cython.declare(object, visibility="public")
    sides = cython.declare(object, visibility="public")
    pieces = cython.declare(object, visibility="public")
    flow_array = cython.declare(object, visibility="public")
    side_array = cython.declare(object, visibility="public")
    piece_array = cython.declare(object, visibility="public")
    ended = cython.declare(object, visibility="public")
    flow_count = cython.declare(cython.longlong, visibility="public")
    free_count = cython.declare(cython.longlong, visibility="public")
    opened_count = cython.declare(cython.longlong, visibility="public")
    piece_count = cython.declare(cython.longlong, visibility="public")
    piece_first = cython.declare(cython.longlong, visibility="public")
    ended_count = cython.declare(cython.longlong, visibility="public")
    stray_count = cython.declare(cython.longlong, visibility="public")
    # The same memory for C.
    _flows: _Flow[::1]
    _sides: _Side[::1]
    _pieces: _Piece[::1]
    _ended: cython.longlong[::1]
    _free: cython.longlong[::1]

    def __init__(self, state: State = NEW_TABLE) -> None:
        self.piece_first, self.opened_count, self.stray_count, flows, sides = state
        self.piece_count = self.ended_count = self.free_count = 0
        self.piece_array, self.ended = np.zeros(INITIAL_CAPACITY, PIECE), np.zeros(INITIAL_CAPACITY, np.int64)
        self.flow_count = len(flows)
        capacity: int = self.flow_count + INITIAL_CAPACITY
        self.flow_array, self.side_array = _extended(flows, capacity), _extended(sides, capacity * 2)
        self._bind_pieces()
        self._bind_flows()

    def __reduce__(self) -> tuple[object, ...]:
        """State between two feeds, without spare capacity."""
        flows, sides = self.flow_array[: self.flow_count].copy(), self.side_array[: self.flow_count * 2].copy()
        return FlowTable, ((int(self.piece_first), int(self.opened_count), int(self.stray_count), flows, sides),)

    @property
    def live_count(self) -> int:
        """Flows that were not released."""
        return int(self.flow_count - self.free_count)

    def both_sides(self) -> NDArray[np.void]:
        """The sides of each flow, two in a row."""
        sides: NDArray[np.void] = self.side_array[: self.flow_count * 2].reshape(-1, 2)
        return sides

    # Capacity

    def reserve(self, rows: int) -> None:
        """Reserve capacity for the pieces and ended sides of this number of packets."""
        pieces: int = self.piece_count + rows + 2
        sides: int = self.ended_count + rows + 4
        if pieces <= len(self.piece_array) and sides <= len(self.ended):
            return
        self.piece_array, self.ended = _extended(self.piece_array, pieces), _extended(self.ended, sides)
        self._bind_pieces()

    def _bind_flows(self) -> None:
        self.flows = (FlowRecord * len(self.flow_array)).from_buffer(self.flow_array)
        self.sides = (SideRecord * len(self.side_array)).from_buffer(self.side_array)
        if cython.compiled:
            self._flows, self._sides = self.flow_array, self.side_array
        else:
            self._flows, self._sides = self.flows, self.sides

    def _bind_pieces(self) -> None:
        self.pieces = (PieceRecord * len(self.piece_array)).from_buffer(self.piece_array)
        if cython.compiled:
            self._pieces, self._ended = self.piece_array, self.ended
        else:
            self._pieces, self._ended = self.pieces, memoryview(self.ended)

    def grow(self) -> None:
        """Reserve capacity for more flows: an eighth more, as new memory is zeroed at once."""
        capacity: int = len(self.flow_array)
        capacity += max(capacity // 8, INITIAL_CAPACITY)
        self.flows = self.sides = None
        self.flow_array.resize(capacity, refcheck=False)
        self.side_array.resize(capacity * 2, refcheck=False)
        self._bind_flows()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _new(
        self, previous: cython.longlong, ts_ns: cython.longlong, packet_number: cython.longlong
    ) -> cython.longlong:
        """The index of a new flow, still without its 5-tuple. The caller has reserved capacity."""
        flow: cython.longlong = self.flow_count
        q: cython.longlong
        if self.free_count > 0:
            self.free_count -= 1
            flow = self._free[self.free_count]
        else:
            self.flow_count += 1
        self._flows[flow].connection_number = self.opened_count
        self._flows[flow].first_ts_ns = self._flows[flow].last_ts_ns = ts_ns
        self._flows[flow].first_packet = packet_number
        self._flows[flow].previous = previous
        for q in range(flow * 2, flow * 2 + 2):
            self._sides[q].base_seq = self._sides[q].last_piece = -1
            self._sides[q].ack = self._sides[q].first_ack = self._sides[q].fin_ack = -1
            self._sides[q].fin_offset = _NO_OFFSET
        self.opened_count += 1
        return flow

    # Facts that a packet shows

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_fin(
        self, q: cython.longlong, off: cython.longlong, ack: cython.longlong, is_in_order: cython.bint
    ) -> cython.longlong:
        """Note the first FIN of a side at a stream offset; ack: the acknowledgement number of its packet."""
        if self._sides[q].fin_offset != _NO_OFFSET:
            return 0
        self._sides[q].fin_offset = off
        self._sides[q].fin_ack = ack
        self.see(q, off)
        if is_in_order and off == self._sides[q].next_offset and not self._sides[q].ended:
            self._end(q)
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def count(self, q: cython.longlong, flag: cython.longlong, ts_ns: cython.longlong) -> cython.longlong:
        """Count a packet of a side, and note its FIN. A RST that was not certain is void if its sender continues."""
        flow: cython.longlong = q >> 1
        self._sides[q].packets += 1
        if self._sides[q].rst_seen == 2 and not flag & _RST:
            self._sides[q].rst_seen = 0
        if flag & _FIN and self._sides[q].fin_offset == _NO_OFFSET:
            if self._sides[q].rst_seen == 1:
                self._sides[q].rst_seen = 3
            if self._flows[flow].fin_by == 0:
                self._flows[flow].fin_by = 2 if q & 1 else 1
                self._flows[flow].fin_idle_ns = max(ts_ns - self._flows[flow].last_ts_ns, 0)
        if ts_ns > self._flows[flow].last_ts_ns:
            self._flows[flow].last_ts_ns = ts_ns
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def see(self, q: cython.longlong, off: cython.longlong) -> cython.longlong:
        """Note that bytes exist below a stream offset, unless it is more than MAX_WINDOW ahead."""
        if off > self._sides[q].known_end and off - self._sides[q].next_offset < _MAX_WINDOW:
            self._sides[q].known_end = off
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _other_offset(self, q: cython.longlong, ack: cython.longlong) -> cython.longlong:
        """The other side's stream offset of an acknowledgement number that a side sent."""
        o: cython.longlong = q ^ 1
        if ack < 0 or self._sides[o].base_seq < 0:
            return _NO_OFFSET
        return _unwrapped(ack, self._sides[o].base_seq, self._sides[o].next_offset)

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def captured_end(self, q: cython.longlong) -> cython.longlong:
        """The sequence number after the last captured byte of a side, -1 if its start is unknown.

        A packet of the other side acknowledges it if its own number is missing, or far from all known bytes. So its
        place among them depends on the order of capture, not on how long either side waits for missing bytes.
        """
        end: cython.longlong = self._sides[q].next_offset
        if self._sides[q].base_seq < 0:
            return -1
        if self._sides[q].known_end > end:
            end = self._sides[q].known_end
        return (self._sides[q].base_seq + end) & _MASK_32

    # Changes of a record

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def begin_other(
        self, flow: cython.longlong, q: cython.longlong, seq: cython.longlong, ack: cython.longlong
    ) -> cython.longlong:
        """Fix the start of a server without packets by the first acknowledgement of its client, if that sent a SYN.

        Until the client sends its first byte (seq), it can have acknowledged only the SYN-ACK.
        """
        o: cython.longlong = q ^ 1
        if ack >= 0 and self._flows[flow].a_is_client and self._sides[q].syn_seen and q & 1 == 0:
            if self._sides[q].base_seq == seq and self._sides[o].base_seq < 0 and self._sides[o].packets == 0:
                self._sides[o].base_seq = ack
                self._sides[o].base_known = 1 if self._sides[q].next_offset == 0 else 2
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def stop_comparing(self, flow: cython.longlong) -> cython.longlong:
        """Exclude the bytes captured until now from comparison with retransmissions."""
        q: cython.longlong
        for q in range(flow * 2, flow * 2 + 2):
            self._sides[q].compare_from = self._sides[q].next_offset
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def advance(self, q: cython.longlong, length: cython.longlong) -> cython.longlong:
        """Advance a side over bytes that are emitted or given up."""
        self._sides[q].next_offset += length
        if self._sides[q].known_end < self._sides[q].next_offset:
            self._sides[q].known_end = self._sides[q].next_offset
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _end(self, q: cython.longlong) -> cython.longlong:
        """Mark a side as ended in this feed."""
        self._sides[q].ended = 1
        self._ended[self.ended_count] = q
        self.ended_count += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _accept(
        self,
        q: cython.longlong,
        start: cython.longlong,
        length: cython.longlong,
        ts_ns: cython.longlong,
        packet_number: cython.longlong,
        file: cython.longlong,
        ack: cython.longlong,
        ident: cython.longlong,
    ) -> cython.longlong:
        """Append a piece at a side's next offset; the side ends if its FIN is reached. ack: -1 without one."""
        p: cython.longlong = self.piece_count
        self._pieces[p].side = q
        self._pieces[p].offset = self._sides[q].next_offset
        self._pieces[p].length = length
        self._pieces[p].start = start
        self._pieces[p].ts_ns = ts_ns
        self._pieces[p].packet_number = packet_number
        self._pieces[p].file = file
        self._pieces[p].ack = self._other_offset(q, ack if ack >= 0 else self.captured_end(q ^ 1))
        self._pieces[p].ident = ident
        self._pieces[p].previous = self._sides[q].last_piece
        self._sides[q].last_piece = self.piece_first + p
        self._sides[q].last_packet = packet_number
        self.piece_count += 1
        self.advance(q, length)
        if self._sides[q].fin_offset == self._sides[q].next_offset and not self._sides[q].ended:
            self._end(q)
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def acknowledge(self, q: cython.longlong, ack: cython.longlong) -> cython.longlong:
        """Record an acknowledgement number that a side sent, unless it is of bytes that cannot have been sent."""
        o: cython.longlong = q ^ 1
        advance_bytes: cython.longlong
        if self._sides[q].ack < 0:
            if (
                self._sides[o].base_seq >= 0
                and not -_MAX_HOLE <= _ahead(ack, self._sides[o].base_seq + self._sides[o].known_end) <= _MAX_HOLE
            ):
                return 0
            self._sides[q].first_ack = self._sides[q].ack = ack
            return 0
        advance_bytes = _ahead(ack, self._sides[q].ack)
        if advance_bytes <= 0:
            return 0
        if advance_bytes > _MAX_HOLE and (
            self._sides[o].base_seq < 0 or _ahead(ack, self._sides[o].base_seq + self._sides[o].known_end) > _MAX_HOLE
        ):
            return 0
        self._sides[q].ack = ack
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_ahead(self, q: cython.longlong) -> cython.longlong:
        """Note whether a packet shows missing bytes of a side, with the time of the connection's latest packet.

        An acknowledgement of one byte more probably covers a FIN that was not captured.
        """
        next_offset: cython.longlong = self._sides[q].next_offset
        ack: cython.longlong = self._sides[q ^ 1].ack
        if self._sides[q].base_seq < 0 or self._sides[q].ended:
            self._sides[q].ahead_ns = 0
        elif self._sides[q].known_end > next_offset or (
            ack >= 0 and _ahead(ack, self._sides[q].base_seq + next_offset) > 1
        ):
            if self._sides[q].ahead_ns == 0:
                self._sides[q].ahead_ns = self._flows[q >> 1].last_ts_ns
        else:
            self._sides[q].ahead_ns = 0
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def is_damaged(self, q: cython.longlong, checksum: cython.longlong) -> cython.longlong:
        """Whether a wrong checksum means damage: most of the latest checksums of the side are right."""
        return 1 if checksum == _DAMAGED_HEADER or (checksum < 0 and self._sides[q].checksum_balance > 0) else 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_checksum(self, q: cython.longlong, checksum: cython.longlong) -> cython.longlong:
        """Count a right (1) or wrong (-1) checksum of a side."""
        balance: cython.longlong = self._sides[q].checksum_balance + checksum
        if -_MAX_CHECKSUM_BALANCE <= balance <= _MAX_CHECKSUM_BALANCE:
            self._sides[q].checksum_balance = cython.cast(cython.schar, balance)
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_window(self, q: cython.longlong, window: cython.longlong, ack: cython.longlong) -> cython.longlong:
        """Remember the largest window of a side, and for how long it was closed; that of a SYN is over 16 bits.

        The packet is counted already. The window of an acknowledgement that is older than the latest does not count.
        """
        largest: cython.longlong = self._sides[q].window & 0xFFFF
        is_closed: cython.bint = window & 0xFFFF == 0 and largest > 0  # some writers know no windows
        since_ns: cython.longlong
        if is_closed != (self._sides[q].closed_window_ns < 0) and ack >= 0:
            if self._sides[q].ack < 0 or _ahead(ack, self._sides[q].ack) >= 0:
                since_ns = self._flows[q >> 1].last_ts_ns + 1
                self._sides[q].closed_window_ns += -since_ns if is_closed else since_ns
        if window > 0xFFFF:
            if largest == 0 and window & 0xFFFF != 0:
                largest = 1
            self._sides[q].window = (window & ~0xFFFF) | largest
        elif window > largest:
            self._sides[q].window += window - largest
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_empty(
        self,
        q: cython.longlong,
        off: cython.longlong,
        ack: cython.longlong,
        flag: cython.longlong,
        ts_ns: cython.longlong,
        ident: cython.longlong,
    ) -> cython.longlong:
        """Note a packet without payload; 0 if it only asks whether the connection is alive.

        It is a duplicate if it repeats the last one, identity included. An acknowledgement that a receiver repeats has
        another IP identification, answers a SYN, or comes later than a copy. It stands at the end of what its sender
        has sent: an acknowledgement before that end, beside copies of the peer, is a copy. A keep-alive
        probe repeats the last acknowledged byte again and again, so only its identity shows a copy.
        """
        other_ack: cython.longlong = self._sides[q ^ 1].ack
        is_probe: cython.bint = other_ack >= 0 and _ahead(other_ack, self._sides[q].base_seq + off) == 1
        is_old: cython.bint = off <= self._sides[q].known_end and self._sides[q].empty_flags != _CHALLENGED
        is_probe = is_probe and not flag & _FIN and self._sides[q].fin_offset != off
        if flag & _SYN:
            is_old = False  # a copy of a SYN is known by its number
        if ack >= 0:
            is_old = is_old and self._sides[q].ack >= 0 and _ahead(ack, self._sides[q].ack) <= 0
        if flag & _FIN:
            is_old = is_old and self._sides[q].fin_offset == off
        if is_probe:
            is_old = is_old and self.is_same_empty(q, flag, ts_ns, ident) != 0
        elif is_old and off < self._sides[q].known_end - 1 and self._sides[q ^ 1].has_copies:
            self._sides[q].has_copies = 1
        self.note_identity(q, is_old, flag, ts_ns, ident)
        if not is_probe:
            self.see(q, off)
        return not is_probe

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def note_identity(
        self,
        q: cython.longlong,
        is_old: cython.bint,
        flag: cython.longlong,
        ts_ns: cython.longlong,
        ident: cython.longlong,
    ) -> cython.longlong:
        """Store the identity of a packet without payload; counts a packet that is not new and has the last identity."""
        if is_old and (self._sides[q].has_copies or self.is_same_empty(q, flag, ts_ns, ident)):
            self._sides[q].duplicates += 1
        self.set_empty(q, flag, ts_ns, ident)
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def is_same_empty(
        self, q: cython.longlong, flag: cython.longlong, ts_ns: cython.longlong, ident: cython.longlong
    ) -> cython.longlong:
        """Whether a packet without payload is a second capture of the side's last one."""
        lag: cython.longlong = ts_ns - self._sides[q].empty_ts_ns
        number: cython.longlong = ident >> 16 & 0xFFFF
        if number != self._sides[q].empty_id & 0xFFFF or (ident & 0xFFFF) != self._sides[q].empty_checksum & 0xFFFF:
            return 0
        if flag != self._sides[q].empty_flags:
            return 0
        return 1 if number != 0 or -_COPY_NS < lag < _COPY_NS else 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def set_empty(
        self, q: cython.longlong, flag: cython.longlong, ts_ns: cython.longlong, ident: cython.longlong
    ) -> cython.longlong:
        """Store the identity of a packet without payload."""
        self._sides[q].empty_ts_ns = ts_ns
        self._sides[q].empty_id = _as_short(ident >> 16)
        self._sides[q].empty_checksum = _as_short(ident)
        self._sides[q].empty_flags = _as_short(flag)
        return 0

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def close(self, flow: cython.longlong) -> cython.longlong:
        """Mark the flow closed if both FINs are acknowledged, and stop comparing its bytes."""
        a: cython.longlong = flow * 2
        b: cython.longlong = a + 1
        if (
            self._sides[a].fin_offset == _NO_OFFSET
            or self._sides[b].fin_offset == _NO_OFFSET
            or self._flows[flow].is_closed
            or self._sides[a].ack < 0
            or self._sides[b].ack < 0
            or self._sides[a].base_seq < 0
            or self._sides[b].base_seq < 0
        ):
            return 0
        if (
            _ahead(self._sides[b].ack, self._sides[a].base_seq + self._sides[a].fin_offset + 1) >= 0
            and _ahead(self._sides[a].ack, self._sides[b].base_seq + self._sides[b].fin_offset + 1) >= 0
        ):
            self._flows[flow].is_closed = 1
            self.stop_comparing(flow)
        return 0

    # For Python callers

    def accept(
        self, q: int, start: int, length: int, ts_ns: int, packet_number: int, file: int, ack: int, ident: int
    ) -> None:
        """`_accept`, with capacity for the piece."""
        self.reserve(0)
        self._accept(q, start, length, ts_ns, packet_number, file, ack, ident)

    def end(self, q: int) -> None:
        """`_end`, with capacity for the side."""
        self.reserve(0)
        self._end(q)

    # Pieces of this feed

    def pieces_since(self, q: int, last_known: int) -> list[int]:
        """The rows, newest first, of this feed's pieces of a side after the last known row, -1 for all."""
        rows: list[int] = []
        last_row: cython.longlong = last_known
        side: cython.longlong = q
        row: cython.longlong = self._sides[side].last_piece - self.piece_first
        while row > last_row:
            rows.append(int(row))
            row = self._pieces[row].previous - self.piece_first
        return rows

    def reset_feed(self) -> None:
        """Drop the pieces and ended sides of this feed."""
        self.piece_first += self.piece_count
        self.piece_count = self.ended_count = 0


@cython.final
@cython.cclass
class FastPath:
    """Finds the connection of each packet, opens connections, and processes segments that are in order.

    ``is_full``: the fast path stopped because a packet opens a connection and no capacity is left. Otherwise it stopped
    at a packet that needs the slow path, with ``stopped_flow`` and ``stopped_side`` as connection and sender.
    Until it stops both are those of the current packet. ``only_slow``: every packet takes the slow path, for tests.
    ``slots``: a hash table by 5-tuple, of the newest flow of each.

    In methods, i is the row of a packet, q and o are the sides of its sender and receiver, off is a stream offset.
    """

    slots = cython.declare(object, visibility="public")
    is_full = cython.declare(cython.bint, visibility="public")
    only_slow = cython.declare(cython.bint, visibility="public")
    stopped_flow = cython.declare(cython.longlong, visibility="public")
    stopped_side = cython.declare(cython.longlong, visibility="public")
    _table: FlowTable
    # The memory of the table for C, the columns of the segments, and the key of the hash.
    _flows: _Flow[::1]
    _sides: _Side[::1]
    _slots: cython.longlong[::1]
    _hash_key: cython.const[cython.ulonglong][::1]
    _mask: cython.longlong
    _capacity: cython.longlong
    _rows: cython.longlong
    _key: cython.const[cython.longlong][::1]
    _src_hi: cython.const[cython.longlong][::1]
    _src_lo: cython.const[cython.longlong][::1]
    _dst_hi: cython.const[cython.longlong][::1]
    _dst_lo: cython.const[cython.longlong][::1]
    _version: cython.const[cython.schar][::1]
    _sport: cython.const[cython.int][::1]
    _dport: cython.const[cython.int][::1]
    _seq: cython.const[cython.longlong][::1]
    _ack: cython.const[cython.longlong][::1]
    _flags: cython.const[cython.int][::1]
    _start: cython.const[cython.longlong][::1]
    _length: cython.const[cython.longlong][::1]
    _wire_length: cython.const[cython.longlong][::1]
    _ts_ns: cython.const[cython.longlong][::1]
    _packet_number: cython.const[cython.longlong][::1]
    _file: cython.const[cython.int][::1]
    _ident: cython.const[cython.longlong][::1]
    _checksum: cython.const[cython.int][::1]
    _window: cython.const[cython.int][::1]

    def __init__(self, table: FlowTable) -> None:
        self._table = table
        self.is_full = self.only_slow = self.stopped_flow = self.stopped_side = self._rows = 0
        self._hash_key = HASH_KEY if cython.compiled else memoryview(HASH_KEY)
        self.rebuild()

    def __reduce__(self) -> tuple[object, ...]:
        """Its table: the index is built anew."""
        return FastPath, (self._table,)

    def load_segments(self, segments: Segments) -> None:
        """Set the segments of a window as input of `run`."""
        self._key, self._version = memoryview(segments.key), memoryview(segments.version)
        self._src_hi, self._src_lo = memoryview(segments.src_hi), memoryview(segments.src_lo)
        self._dst_hi, self._dst_lo = memoryview(segments.dst_hi), memoryview(segments.dst_lo)
        self._sport, self._dport = memoryview(segments.sport), memoryview(segments.dport)
        self._seq, self._ack = memoryview(segments.seq), memoryview(segments.ack)
        self._flags, self._window = memoryview(segments.flags), memoryview(segments.window)
        self._start, self._length = memoryview(segments.start), memoryview(segments.length)
        self._wire_length, self._ts_ns = memoryview(segments.wire_length), memoryview(segments.ts_ns)
        self._packet_number, self._file = memoryview(segments.packet_number), memoryview(segments.file)
        self._ident, self._checksum = memoryview(segments.ident), memoryview(segments.checksum)
        self._rows = len(segments.key)
        self._table.reserve(self._rows)

    def release(self, flows: NDArray[np.int64]) -> None:
        """Free the records of flows, and build the hash table anew without them."""
        records = self._table.flow_array[: self._table.flow_count]
        self._table.side_array[flows * 2] = self._table.side_array[flows * 2 + 1] = records[flows] = 0
        records["connection_number"][flows] = -1
        records["previous"][np.isin(records["previous"], flows) | (records["connection_number"] < 0)] = -1
        self.rebuild()

    def rebuild(self) -> None:
        """Find the free records, of which the last ones are none any more, and build the hash table anew."""
        is_used = self._table.flow_array["connection_number"][: self._table.flow_count] >= 0
        self._table.flow_count = int(np.append(0, np.flatnonzero(is_used) + 1)[-1])
        free = np.flatnonzero(~is_used[: self._table.flow_count])
        self._table._free, self._table.free_count = memoryview(free), len(free)
        self.slots = np.zeros(INITIAL_CAPACITY, np.int64)
        self._bind()

    def grow(self) -> None:
        """Reserve capacity for more flows."""
        self._table.grow()
        self._bind()

    def _bind(self) -> None:
        """Rebuild the hash table if it is too small, with the newest flow of every 5-tuple."""
        size: int = len(self.slots)
        capacity: int = len(self._table.flow_array)
        while size < capacity * 3 // 2:
            size *= 2
        is_new: bool = size > len(self.slots)
        if is_new:
            self.slots = np.zeros(size, np.int64)
        self._capacity, self._mask = capacity, len(self.slots) - 1
        if cython.compiled:
            self._flows, self._sides, self._slots = self._table.flow_array, self._table.side_array, self.slots
        else:
            self._flows, self._sides, self._slots = self._table.flows, self._table.sides, memoryview(self.slots)
        flow: cython.longlong
        slot: cython.longlong
        row: cython.longlong
        if not is_new:
            return
        oldest_first: cython.longlong[::1] = memoryview(live_flows(self._table))
        for row in range(len(oldest_first)):
            flow = oldest_first[row]
            slot = self._slot_of(flow)
            # Replaces the previous flow on the 5-tuple, whose number is lower.
            while self._slots[slot] != 0 and self._slots[slot] != self._flows[flow].previous + 1:
                slot = (slot + 1) & self._mask
            self._slots[slot] = flow + 1

    # The connection of a packet

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _find(self, i: cython.longlong) -> cython.longlong:
        """Set stopped_flow and stopped_side to the newest flow of a packet's 5-tuple and to its sender.

        Opens a flow if there is none; 0 if the capacity for flows is used up. stopped_flow is -1 for a packet whose IP
        header is damaged: it opens none.
        """
        flow: cython.longlong
        slot: cython.longlong = self._slot(
            self._src_hi[i], self._src_lo[i], self._dst_hi[i], self._dst_lo[i], self._sport[i], self._dport[i],
            self._version[i],
        )  # fmt: skip
        while self._slots[slot] != 0:
            flow = self._slots[slot] - 1
            if self._flows[flow].key == self._key[i] and self._flows[flow].version == self._version[i]:
                self.stopped_flow = flow
                self.stopped_side = 0
                if self._is_sent_by(i, flow * 2):
                    return 1
                self.stopped_side = 1
                if self._is_sent_by(i, flow * 2 + 1):
                    return 1
            slot = (slot + 1) & self._mask
        if self._checksum[i] == _DAMAGED_HEADER:
            self.stopped_flow = -1
            self._table.stray_count += 1
            return 1
        if self._table.flow_count >= self._capacity and self._table.free_count == 0:
            return 0
        self._open(i, slot)
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _is_sent_by(self, i: cython.longlong, q: cython.longlong) -> cython.bint:
        """Whether addresses and ports of a packet are those of a side and of the other side as the receiver."""
        o: cython.longlong = q ^ 1
        return (
            self._sides[q].lo == self._src_lo[i]
            and self._sides[o].lo == self._dst_lo[i]
            and self._sides[q].port == self._sport[i]
            and self._sides[o].port == self._dport[i]
            and self._sides[q].hi == self._src_hi[i]
            and self._sides[o].hi == self._dst_hi[i]
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _slot(
        self,
        a_hi: cython.longlong,
        a_lo: cython.longlong,
        b_hi: cython.longlong,
        b_lo: cython.longlong,
        a_port: cython.longlong,
        b_port: cython.longlong,
        version: cython.longlong,
    ) -> cython.longlong:
        """The first slot to look for a flow, whichever endpoint is A.

        Multilinear-HM of Lemire and Kaser (Strongly universal string hashing is fast, 2014). It is the upper half of a
        sum of products, each of two words of 32 bits and two words of the key. Two flows share a slot only by chance.
        """
        h: cython.ulonglong = self._hash_key[0]
        if a_lo > b_lo or (a_lo == b_lo and (a_hi > b_hi or (a_hi == b_hi and a_port > b_port))):
            a_hi, a_lo, a_port, b_hi, b_lo, b_port = b_hi, b_lo, b_port, a_hi, a_lo, a_port
        h += _product(self._hash_key[1], (a_hi >> 32) & _MASK_32, self._hash_key[2], a_hi & _MASK_32)
        h += _product(self._hash_key[3], (a_lo >> 32) & _MASK_32, self._hash_key[4], a_lo & _MASK_32)
        h += _product(self._hash_key[5], (b_hi >> 32) & _MASK_32, self._hash_key[6], b_hi & _MASK_32)
        h += _product(self._hash_key[7], (b_lo >> 32) & _MASK_32, self._hash_key[8], b_lo & _MASK_32)
        h += _product(self._hash_key[9], (a_port << 16) | b_port, self._hash_key[10], version)
        return (h >> 32) & self._mask

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _slot_of(self, flow: cython.longlong) -> cython.longlong:
        """`_slot` of a flow of the table."""
        a: cython.longlong = flow * 2
        b: cython.longlong = a + 1
        return self._slot(
            self._sides[a].hi, self._sides[a].lo, self._sides[b].hi, self._sides[b].lo, self._sides[a].port,
            self._sides[b].port, self._flows[flow].version,
        )  # fmt: skip

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _open(self, i: cython.longlong, slot: cython.longlong) -> cython.longlong:
        """Open a flow for a packet. Endpoint A is the sender; for a SYN-ACK it is the receiver."""
        flow: cython.longlong = self._table._new(-1, self._ts_ns[i], self._packet_number[i])
        q: cython.longlong
        o: cython.longlong
        self._slots[slot] = flow + 1
        self.stopped_flow = flow
        self.stopped_side = 1 if self._flags[i] & _SYN and self._flags[i] & _ACK else 0
        self._flows[flow].a_is_client = 1 if self._flags[i] & _SYN else 0
        self._flows[flow].key = self._key[i]
        self._flows[flow].version = self._version[i]
        q = flow * 2 + self.stopped_side
        o = q ^ 1
        self._sides[q].hi, self._sides[q].lo, self._sides[q].port = self._src_hi[i], self._src_lo[i], self._sport[i]
        self._sides[o].hi, self._sides[o].lo, self._sides[o].port = self._dst_hi[i], self._dst_lo[i], self._dport[i]
        return 0

    def replace(self, flow: int, side: int, ts_ns: int, packet_number: int) -> int:
        """Open a new flow on the 5-tuple of a flow; the given side of the old flow is endpoint A of the new.

        The caller sets `duplicate`.
        """
        if self._table.flow_count >= self._capacity and self._table.free_count == 0:
            self.grow()
        old: cython.longlong = flow
        client_side: cython.longlong = side
        slot: cython.longlong = self._slot_of(old)
        new: cython.longlong
        new_side: cython.longlong
        old_side: cython.longlong
        while self._slots[slot] != old + 1:
            if self._slots[slot] == 0:
                raise KeyError(flow)
            slot = (slot + 1) & self._mask
        new = self._table._new(old, ts_ns, packet_number)
        self._slots[slot] = new + 1
        self._flows[new].key = self._flows[old].key
        self._flows[new].version = self._flows[old].version
        self._flows[new].a_is_client = 1
        for new_side in range(new * 2, new * 2 + 2):
            old_side = old * 2 + ((new_side & 1) ^ client_side)
            self._sides[new_side].hi, self._sides[new_side].lo = self._sides[old_side].hi, self._sides[old_side].lo
            self._sides[new_side].port = self._sides[old_side].port
        return int(new)

    # The fast path

    def run(self, first_row: int) -> int:
        """The row of the first packet that needs the slow path (or another flow: `is_full`), else the number of rows.

        The caller has reserved capacity for all rows that are left, and two pieces more.
        """
        row: cython.longlong = first_row
        with cython.nogil:
            row = self._run(row)
        return int(row)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _run(self, row: cython.longlong) -> cython.longlong:
        while row < self._rows:
            self.is_full = self._find(row) == 0
            if self.is_full:
                return row
            if self.stopped_flow < 0:
                row += 1
                continue
            if self.only_slow or self._fast_segment(row, self.stopped_flow * 2 + self.stopped_side) == 0:
                return row
            row += 1
        return row

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _fast_segment(self, i: cython.longlong, q: cython.longlong) -> cython.longlong:
        """Process a packet of a side; 0 if it needs the slow path. It then changes nothing."""
        o: cython.longlong = q ^ 1
        flow: cython.longlong = q >> 1
        flag: cython.longlong = self._flags[i]
        seq: cython.longlong = self._seq[i]
        length: cython.longlong = self._length[i]
        ack: cython.longlong = self._ack[i] if flag & _ACK else -1
        off: cython.longlong
        near: cython.longlong
        if flag & _RST or self._flows[flow].out_of_order or self._ts_ns[i] - self._flows[flow].last_ts_ns > _STALE_NS:
            return 0
        if self._sides[q].syn_seen == 2 or self._sides[o].syn_seen == 2:
            return 0  # SYN-ACKs with different numbers: the slow path finds out which of them counts
        if self._checksum[i] < 0 and (length > 0 or self._table.is_damaged(q, self._checksum[i])):
            return 0
        if flag & _SYN:
            seq = (seq + 1) & _MASK_32
            if self._apply_syn(i, flow, q, seq) == 0:
                return 0
        elif self._sides[q].base_seq < 0 or (self._sides[o].base_seq < 0 and self._flows[flow].previous >= 0):
            return 0
        if length != self._wire_length[i]:
            return 0
        # The limit is narrow if the packet may belong to an older connection of the 5-tuple.
        near = _NEAR if self._flows[flow].previous >= 0 else _MAX_HOLE
        if ack >= 0 and not flag & _SYN and self.is_near(q, ack, near) == 0:
            # It acknowledges bytes far from all known bytes: a payload in order counts, its acknowledgement does not.
            if length == 0 or near == _NEAR:
                return 0
            ack = -1
        if self._sides[o].base_seq < 0:
            self._table.begin_other(flow, q, seq, ack)
        off = _unwrapped(seq, self._sides[q].base_seq, self._sides[q].next_offset)
        if length > 0:
            if off != self._sides[q].next_offset or self._sides[q].ended:
                return 0
            self._sides[q].bytes += length
            self._table._accept(
                q, self._start[i], length, self._ts_ns[i], self._packet_number[i], self._file[i], ack, self._ident[i]
            )
        elif near == _NEAR and not self._sides[q].lowest_offset <= off <= self._sides[q].known_end:
            return 0  # another connection may fit better
        elif (self._sides[q].base_known and off < self._sides[q].lowest_offset - _NEAR) or not self._sides[
            q
        ].next_offset - near <= off <= self._sides[q].known_end + near:
            return 0
        else:
            self._table.note_empty(q, off, ack, flag, self._ts_ns[i], self._ident[i])
        self._table.count(q, flag, self._ts_ns[i])
        self._table.note_checksum(q, self._checksum[i])
        self._table.note_window(q, self._window[i], ack)
        if flag & _FIN:
            self._table.note_fin(q, off + length, ack, True)
        if ack >= 0:
            self._table.acknowledge(q, ack)
            if self._sides[q].fin_offset != _NO_OFFSET or self._sides[o].fin_offset != _NO_OFFSET:
                self._table.close(flow)
        self._table.note_ahead(q)
        self._table.note_ahead(o)
        return 1

    @cython.ccall
    @cython.nogil
    @cython.exceptval(-1)
    def is_near(self, q: cython.longlong, ack: cython.longlong, near: cython.longlong) -> cython.longlong:
        """Whether a side may acknowledge a number: at most ``near`` bytes beyond the known bytes of the other side.

        With NEAR_BYTES the number is also close to the bytes in order; else it may be that of any captured byte.
        """
        o: cython.longlong = q ^ 1
        off: cython.longlong
        lowest: cython.longlong
        if self._sides[q].ack >= 0 and -near <= _ahead(ack, self._sides[q].ack) <= near:
            return 1
        if self._sides[o].base_seq < 0:
            return self._sides[q].ack < 0
        off = _unwrapped(ack, self._sides[o].base_seq, self._sides[o].next_offset)
        lowest = self._sides[o].next_offset if near == _NEAR else self._sides[o].lowest_offset
        if near != _NEAR and not self._sides[o].base_known:
            lowest -= near
        return lowest - _NEAR <= off <= max(self._sides[o].next_offset, self._sides[o].known_end) + near

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1)
    def _apply_syn(
        self, i: cython.longlong, flow: cython.longlong, q: cython.longlong, seq: cython.longlong
    ) -> cython.longlong:
        """Apply a SYN; the stream of the side starts at seq. 0 if the packet needs the slow path."""
        o: cython.longlong = q ^ 1
        flag: cython.longlong = self._flags[i]
        if (
            not self._flows[flow].a_is_client
            or self._flows[flow].is_closed
            or self._sides[q].packets != 0
            or self._sides[q].base_seq >= 0
            or (self._sides[o].ack >= 0 and self._sides[o].ack != seq)
        ):
            return 0
        if flag & _ACK:
            if self._sides[o].base_seq < 0 and self._sides[o].packets == 0:
                self._sides[o].base_seq = self._ack[i]
                self._sides[o].base_known = 1
            elif (
                _ahead(self._ack[i], self._sides[o].base_seq) < 0
                or _ahead(self._ack[i], self._sides[o].base_seq) > self._sides[o].known_end
            ):
                return 0
        self._sides[q].base_seq = seq
        self._sides[q].syn_seen = 1
        self._sides[q].base_known = 1 if self._sides[o].next_offset == 0 else 2
        self._sides[q].last_packet = self._packet_number[i]
        return 1


def live_flows(table: FlowTable) -> NDArray[np.int64]:
    """The indexes of the flows that were not released, in order of their connections."""
    numbers = table.flow_array["connection_number"][: table.flow_count]
    return np.argsort(numbers, kind="stable")[table.free_count :]


def _extended(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a larger copy if it has fewer elements than needed."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, len(array) * 2), array.dtype)
    longer[: len(array)] = array
    return longer


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _copy(
    target: cython.uchar[::1],
    to: cython.longlong,
    source: cython.const[cython.uchar][::1],
    start: cython.longlong,
    length: cython.longlong,
) -> cython.longlong:
    if length <= 0:
        return 0
    if cython.compiled:
        if to < 0 or start < 0 or length > target.shape[0] - to or length > source.shape[0] - start:
            with cython.gil:
                raise IndexError(f"{length} bytes from {start} of {source.shape[0]} to {to} of {target.shape[0]}")
        memcpy(cython.address(target[to]), cython.address(source[start]), length)
    else:
        target[to : to + length] = source[start : start + length]
    return 0


def gather_pieces(
    target: cython.uchar[::1],
    window: cython.const[cython.uchar][::1],
    reordered: cython.const[cython.uchar][::1],
    unconsumed: cython.const[cython.uchar][::1],
    order: cython.const[cython.longlong][::1],
    unconsumed_count: int,
    start: cython.const[cython.longlong][::1],
    length: cython.const[cython.longlong][::1],
) -> None:
    """Copy pieces into target without space between them, in the given order of their rows.

    The first unconsumed_count rows start in unconsumed, the later rows in window, or if below 0 in reordered.
    """
    i: cython.longlong
    j: cython.longlong
    n: cython.longlong = order.shape[0] if cython.compiled else len(order)
    to: cython.longlong = 0
    unconsumed_rows: cython.longlong = unconsumed_count
    with cython.nogil:
        for i in range(n):
            j = order[i]
            if j < unconsumed_rows:
                _copy(target, to, unconsumed, start[j], length[j])
            elif start[j] >= 0:
                _copy(target, to, window, start[j], length[j])
            else:
                _copy(target, to, reordered, -1 - start[j], length[j])
            to += length[j]
