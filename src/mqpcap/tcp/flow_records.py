"""The records of the flow table: a connection, one of its two sides, a run of accepted payload.

Each record is a C structure without padding. Compiled code, Python (``table.sides[n].next_offset``) and NumPy
(``table.side_array["next_offset"]``) read the same memory. ``flow_table`` declares the structures a second time, for C;
a test compares both declarations.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast, get_type_hints

import numpy as np

NONE = -(1 << 62)
"""No stream offset."""
ACK = 16
"""The bit of Segment.flags that says that ack counts."""

Wide = Annotated[int, ctypes.c_int64]
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
    """A connection; its sides are the records 2 * place and 2 * place + 1 of the table's sides."""

    key: Wide
    connection_number: Wide  # connections are numbered in the order of their first packets
    connection_id: Wide  # connection_id, 0 before somebody asked for it
    first_ts_ns: Wide
    last_ts_ns: Wide
    first_packet: Wide
    previous: Wide  # place of the flow that used the tuple before, -1
    duplicate: Wide  # number among flows of this tuple and first time
    version: Flag
    a_is_client: Flag  # A is the client
    is_closed: Flag  # by RST, or both FINs are acknowledged
    out_of_order: Flag  # a side is: the caller judges every packet


@_record
class SideRecord(ctypes.Structure):
    """One end of a connection, and what it sent."""

    hi: Wide  # of its address, as Segments has it
    lo: Wide
    port: Wide
    base_seq: Wide  # sequence number of stream offset 0, -1 unknown
    next_offset: Wide  # stream offset of the next byte in order
    known_end: Wide  # bytes are known to exist below this stream offset
    lowest_offset: Wide  # the lowest stream offset captured: below 0 if such bytes came after offset 0 was fixed
    fin_offset: Wide  # stream offset of the FIN, NONE
    ack: Wide  # highest acknowledgement number this side sent, -1 none
    first_ack: Wide
    fin_ack: Wide  # acknowledgement number of the packet with its FIN, -1 none
    acked_from: Wide  # first stream offset that the other side acknowledged; NONE unknown, 0 after a handshake
    packets: Wide
    bytes: Wide
    retransmitted: Wide
    duplicates: Wide  # packets captured again
    empty_ts_ns: Wide  # time of its last packet without payload
    conflict: Wide
    missing: Wide
    compare_from: Wide  # bytes below are no longer compared with what comes again
    history_to: Wide  # bytes below are in the history or gone from it
    consumed_to: Wide  # the reader is done with bytes below
    resume_at: Wide  # not shown to the reader before it reaches this stream offset
    last_packet: Wide  # number of the packet with the byte before next, or with the SYN; 0 none
    last_piece: Wide  # number of its last piece
    checksum_balance: Small  # segments with a right checksum minus those with a wrong one, up to MAX_CHECKSUM_BALANCE
    ended: Small
    syn_seen: Flag  # 2: SYN-ACKs with different numbers, none acknowledged yet
    rst_seen: Flag  # 1: accepted by the other side; 2: in its window, accepted unless the sender goes on
    base_known: Flag  # from a handshake: no byte is below; 2 if the other side had given out bytes by then, else 1
    has_copies: Flag  # packets of this side are known to be captured twice
    empty_id: Flag  # of its last packet without payload: IPv4 identification, TCP checksum, TCP flags
    empty_checksum: Flag
    empty_flags: Flag


@_record
class PieceRecord(ctypes.Structure):
    """A run of payload that was accepted, or left over by the reader."""

    side: Wide  # flow * 2 + side
    offset: Wide
    length: Wide
    start: Wide  # in the window; below 0: -1 - place in the held bytes
    ts_ns: Wide
    number: Wide
    file: Wide
    ack: Wide  # stream offset of the other side up to which its packet acknowledges, NONE unknown
    ident: Wide  # of its packet, as Segments has it
    before: Wide  # number of the piece before, of the same side


FLOW, SIDE, PIECE = (cast("np.dtype[np.void]", np.dtype(record)) for record in (FlowRecord, SideRecord, PieceRecord))


@dataclass(slots=True)
class Segment:
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
    ident: int = 0
    checksum: int = 0
    is_damaged: bool = field(default=False, init=False)  # its checksum is wrong on a side whose checksums are right

    @property
    def sent_ack(self) -> int:
        """Its acknowledgement number, -1 without one."""
        return self.ack if self.flags & ACK else -1
