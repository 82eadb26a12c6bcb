"""The records of the flow table: a connection, a side of it, a run of accepted payload.

Each record is a C structure without padding. Compiled code, Python (``table.sides[n].next_offset``) and NumPy
(``table.side_array["next_offset"]``) read the same memory. ``flow_table`` declares the structures a second time, for C;
a test compares both declarations.
"""

import ctypes
from dataclasses import field
from typing import Annotated, TypeVar, cast, get_type_hints

import numpy as np

from mqpcap.records import dataclass
from mqpcap.tcp.flags import ACK

NO_OFFSET = -(1 << 62)
"""No stream offset, or an unknown one: below all others."""
CHALLENGED = -1
"""`SideRecord.empty_flags` of a side that may repeat its last packet: a SYN challenged it (RFC 5961, section 4)."""

Wide = Annotated[int, ctypes.c_int64]
Half = Annotated[int, ctypes.c_int32]
Flag = Annotated[int, ctypes.c_int16]
Small = Annotated[int, ctypes.c_int8]

_Record = TypeVar("_Record", bound=type[ctypes.Structure])


def _record(record: _Record) -> _Record:
    """Lay the annotated names of a class out as its fields."""
    record._fields_ = [
        (name, hint.__metadata__[0]) for name, hint in get_type_hints(record, include_extras=True).items()
    ]
    return record


@_record
class FlowRecord(ctypes.Structure):
    """A connection; its sides are the records 2 * index and 2 * index + 1 of the table's sides."""

    key: Wide
    connection_number: Wide
    """Connections are numbered in the order of their first packets."""
    connection_id: Wide
    """0 until it is computed."""
    first_ts_ns: Wide
    last_ts_ns: Wide
    first_packet: Wide
    previous: Wide
    """Index of the previous flow on the 5-tuple, -1 for none."""
    duplicate: Wide
    """Index among flows of this 5-tuple and first time."""
    fin_idle_ns: Wide
    """Time without packets before the first FIN; reset_idle_ns: before the RST."""
    reset_idle_ns: Wide
    version: Flag
    a_is_client: Flag
    is_closed: Small
    """By RST, or both FINs are acknowledged."""
    out_of_order: Small
    """Set while a side is out of order: all packets of the connection need the slow path."""
    fin_by: Small
    """1 or 2: the first FIN came from side A or B."""
    reset_by: Small
    """1 or 2: a RST that fits came from side A or B, before any FIN."""


@_record
class SideRecord(ctypes.Structure):
    """One endpoint of a connection, and the stream that it sent; offsets are stream offsets."""

    hi: Wide
    """The halves of the address, as Segments has them."""
    lo: Wide
    base_seq: Wide
    """Sequence number of offset 0, -1 unknown."""
    next_offset: Wide
    """Offset of the next byte in order."""
    known_end: Wide
    """Bytes are known to exist below this offset."""
    lowest_offset: Wide
    """The lowest offset captured: below 0 if such bytes came after offset 0 was fixed."""
    fin_offset: Wide
    """Offset of the FIN, NO_OFFSET."""
    ack: Wide
    """Highest acknowledgement number that this side sent, -1 none."""
    first_ack: Wide
    fin_ack: Wide
    """Acknowledgement number of the packet with its FIN, -1 none."""
    acked_from: Wide
    """First offset that the other side acknowledged; NO_OFFSET unknown, 0 after a handshake."""
    ahead_ns: Wide
    """Since when packets show that bytes from next_offset on were sent, and none of them came; 0 if none shows it."""
    packets: Wide
    bytes: Wide
    retransmitted: Wide
    empty_ts_ns: Wide
    """Time of its last packet without payload."""
    conflict: Wide
    missing: Wide
    compare_from: Wide
    """Retransmissions are not compared below this offset."""
    history_to: Wide
    """Bytes below this offset were added to the history."""
    consumed_to: Wide
    """The reader consumed the bytes below this offset."""
    closed_window_ns: Wide
    """For how long it announced no room; if it announces none now, less the time since when, and 1: below 0."""
    resume_at: Wide
    """The reader gets nothing until next_offset reaches this offset."""
    last_packet: Wide
    """Number of the packet with the byte before next_offset, or with the SYN; 0 none."""
    last_piece: Wide
    """Index of its last piece."""
    port: Half
    duplicates: Half
    """Packets captured again."""
    window: Half
    """The largest window it advertised, not scaled; in the upper bits what its SYN says, as `Segments.window`."""
    checksum_balance: Small
    """Segments with a right checksum minus those with a wrong checksum, up to MAX_CHECKSUM_BALANCE."""
    ended: Small
    syn_seen: Small
    """1: a SYN was captured. 2: SYN-ACKs with different numbers, none acknowledged yet."""
    rst_seen: Small
    """1: the other side accepted the RST. 2: it is in its window, accepted unless the sender continues.
    3: as 1, but its sender sent a FIN later. If that is acknowledged, the RST was not accepted."""
    base_known: Small
    """A handshake shows that no byte is below offset 0; 2 if the other side had emitted bytes before it."""
    has_copies: Small
    """Packets of this side are known to be captured twice."""
    empty_id: Flag
    """Its last packet without payload: IPv4 identification, TCP checksum, TCP flags."""
    empty_checksum: Flag
    empty_flags: Flag


@_record
class PieceRecord(ctypes.Structure):
    """A run of payload that was accepted, or that the reader did not consume."""

    side: Wide
    """Index of the flow * 2 + side."""
    offset: Wide
    length: Wide
    start: Wide
    """Offset in the window; below 0: -1 - offset in the reordered bytes."""
    ts_ns: Wide
    packet_number: Wide
    file: Wide
    ack: Wide
    """The acknowledgement number of its packet as stream offset of the other side, NO_OFFSET unknown."""
    ident: Wide
    """Segments.ident of its packet."""
    previous: Wide
    """Index of the previous piece of the side."""


FLOW, SIDE, PIECE = (cast("np.dtype[np.void]", np.dtype(record)) for record in (FlowRecord, SideRecord, PieceRecord))


@dataclass(slots=True)
class Segment:
    """One segment of the arrays of `Segments`."""

    seq: int
    ack: int
    flags: int
    start: int
    length: int
    wire_length: int
    ts_ns: int
    packet_number: int
    file: int
    ident: int = 0
    checksum: int = 0
    window: int = 0
    is_damaged: bool = field(default=False, init=False)  # its checksum is wrong on a side whose checksums are right
    is_unproven: bool = field(default=False, init=False)  # its checksum is wrong, and only an ACK can confirm it

    @property
    def sent_ack(self) -> int:
        """Its acknowledgement number, -1 without one."""
        return self.ack if self.flags & ACK else -1
