"""What a reader is given: runs of stream bytes, and places of streams."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array


@dataclass(frozen=True, slots=True)
class StreamChunks:
    """Runs of contiguous stream bytes with news, in order of flow, side and offset.

    buffer holds the bytes of all. Per chunk, int64: flow; offset, stream offset of the first byte; start and length
    in buffer; gap_before, bytes missing just before it. side: int8. bool: gap_after, bytes are missing behind it and
    nothing will extend it; ended, nothing follows on this side; start_known, offset 0 of the side is the first byte of
    its connection.

    Pieces piece_first[s] to piece_first[s + 1] make up chunk s: piece_offset (in the stream), piece_length, and time,
    number and file of the packet they came in. piece_ack: the other side's stream offset up to which that packet
    acknowledges, NONE without an ACK or where that side's offset 0 was not known. piece_order ascends in the order in
    which new pieces were given out, over all sides and calls of feed. A chunk may be empty: its side ended and there
    was nothing new.
    """

    buffer: NDArray[np.uint8]
    flow: Int64Array
    side: NDArray[np.int8]
    offset: Int64Array
    start: Int64Array
    length: Int64Array
    gap_before: Int64Array
    gap_after: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    start_known: NDArray[np.bool_]
    piece_first: Int64Array
    piece_offset: Int64Array
    piece_length: Int64Array
    piece_ts_ns: Int64Array
    piece_number: Int64Array
    piece_file: Int64Array
    piece_ack: Int64Array
    piece_order: Int64Array

    def __len__(self) -> int:
        return len(self.flow)


class Range(NamedTuple):
    """A place of a stream.

    flow is the number of the connection; its place in the flow table until the range is told. ts_ns of a gap is that of
    the first byte captured behind it, or of the flow's last packet; else of the packet with the bytes. packet is the
    number of the packet at or before the first byte: that with the bytes; of a gap that with the byte (or the SYN)
    before it, or if none was captured there the first one behind it, or the first of the flow. snapped: a gap cut by
    the snap length.
    """

    flow: int
    side: int
    offset: int
    length: int
    ts_ns: int
    snapped: bool
    packet: int


def run_starts(pieces: NDArray[np.void]) -> Int64Array:
    """The first of each run of pieces that continue each other."""
    if len(pieces) == 0:
        return np.zeros(0, np.int64)
    side, offset = pieces["side"], pieces["offset"]
    goes_on = (side[1:] == side[:-1]) & (offset[1:] == offset[:-1] + pieces["length"][:-1])
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(~goes_on) + 1])
