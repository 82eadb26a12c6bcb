"""Stream bytes as the reader gets them (chunks), and ranges of a stream."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.records import dataclass


@dataclass(frozen=True, slots=True)
class StreamChunks:
    """Runs of contiguous stream bytes with new pieces or an end, in order of flow, side and offset.

    ``buffer``: the bytes of all chunks. ``start``, ``length``: the bytes of a chunk in it.
    ``flow``: number of the connection. ``side``: 0 or 1 (int8).
    ``offset``: stream offset of the first byte. ``gap_before``: missing bytes just before it.
    ``gap_after``: bytes are missing after the chunk, and nothing will extend it.
    ``ended``: nothing follows on this side. A chunk is empty if its side ended without new bytes.
    ``start_known``: offset 0 of the side is the first byte of its connection.
    ``is_estimated``: how many bytes are missing before it is not known; ``offset`` follows from an estimate.

    Pieces piece_first[s] to piece_first[s + 1] make up chunk s.
    ``piece_offset``: stream offset.
    ``piece_ts_ns``, ``piece_packet_number``, ``piece_file``: of the packet with the piece.
    ``piece_ack``: the acknowledgement number of that packet as stream offset of the other side. It is NO_OFFSET
    without an ACK, or if that side's offset 0 was unknown.
    ``piece_order``: ascends as pieces are accepted, over all sides and calls of feed.
    ``piece_last``: how many pieces further on its bytes are complete, as those of a TLS record are with its last.
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
    is_estimated: NDArray[np.bool_]
    piece_first: Int64Array
    piece_offset: Int64Array
    piece_length: Int64Array
    piece_ts_ns: Int64Array
    piece_packet_number: Int64Array
    piece_file: Int64Array
    piece_ack: Int64Array
    piece_order: Int64Array
    piece_last: Int64Array

    def __len__(self) -> int:
        return len(self.flow)


class StreamRange(NamedTuple):
    """A range of stream offsets.

    ``flow``: number of the connection; inside ``tcp``, its index in the flow table.
    ``snapped``: a gap cut by the snap length.
    ``ts_ns``: time of the packet with the bytes. For a gap: of the first byte captured after it, else of the flow's
    last packet.
    ``packet``: number of the packet with the bytes. For a gap: of the packet with the byte (or the SYN) before it, else
    of the first packet after it, else of the flow's first packet.
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
    continues = (side[1:] == side[:-1]) & (offset[1:] == offset[:-1] + pieces["length"][:-1])
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(~continues) + 1])
