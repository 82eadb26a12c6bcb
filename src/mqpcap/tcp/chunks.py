"""Stream bytes as the reader gets them (chunks), and ranges of a stream."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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


def chunks_of(
    rows: NDArray[np.void],
    runs: Int64Array,
    buffer: NDArray[np.uint8],
    sides: NDArray[np.void],
    shown: Int64Array,
    rank_of: Int64Array,
    trailing: Int64Array,
    order: Int64Array,
) -> StreamChunks:
    """Runs of pieces as chunks, and an empty chunk for each side that ended without unconsumed bytes.

    ``sides``: the records, which note what the reader gets. ``shown``: sides with chunks. ``trailing``: sides that
    ended with a gap. ``order``: `StreamChunks.piece_order`. ``flow`` of the result has indexes of the flow table.
    """
    side, offset, start = rows["side"][runs], rows["offset"][runs], rows["start"][runs]
    bounds = np.append(runs, len(rows))
    total = np.append(rows["start"], rows["length"].sum())
    length = total[bounds[1:]] - start
    empty = shown[(sides["ended"][shown] != 0) & ~np.isin(shown, side)]
    empty = empty[(sides["next_offset"][empty] > 0) | np.isin(empty, trailing)]
    if len(empty):
        insert_rows = np.searchsorted(rank_of[side], rank_of[empty])
        offset, start = (
            np.insert(offset, insert_rows, sides["next_offset"][empty]),
            np.insert(start, insert_rows, total[bounds[insert_rows]]),
        )
        length, bounds = np.insert(length, insert_rows, 0), np.insert(bounds, insert_rows, bounds[insert_rows])
        side = np.insert(side, insert_rows, empty)
    is_first = np.append(True, side[1:] != side[:-1])[: len(side)]
    is_last = np.append(side[1:] != side[:-1], True)[: len(side)]
    end = offset + length
    previous_end = np.append(np.int64(0), end[:-1])[: len(side)]
    gap_before = offset - np.where(is_first, sides["consumed_to"][side], previous_end)
    gap_after = ~is_last | np.isin(side, trailing)
    sides["consumed_to"][side[is_last]] = end[is_last]
    sides["resume_at"][side[is_last]] = 0
    return StreamChunks(
        buffer=buffer,
        flow=side >> 1,
        side=(side & 1).astype(np.int8),
        offset=offset,
        start=start,
        length=length,
        gap_before=gap_before,
        gap_after=gap_after,
        ended=is_last & (sides["ended"][side] != 0),
        start_known=sides["base_known"][side] != 0,
        is_estimated=np.zeros(len(side), np.bool_),
        piece_first=bounds,
        piece_order=order,
        piece_last=np.zeros(len(rows), np.int64),
        **{f"piece_{name}": rows[name] for name in ("offset", "length", "ts_ns", "packet_number", "file", "ack")},
    )


CHUNK_COLUMNS = (
    "flow", "side", "offset", "start", "length", "gap_before", "gap_after", "ended", "start_known", "is_estimated",
)  # fmt: skip
PIECE_ROWS = OFFSET, LENGTH, TS_NS, NUMBER, FILE, ORDER, ACK, LAST = range(8)
PIECE_NAMES = ("offset", "length", "ts_ns", "packet_number", "file", "order", "ack", "last")


class Chunk(NamedTuple):
    """A row of `StreamChunks`, with its bytes. ``pieces``: rows OFFSET to LAST, a column for each piece."""

    flow: int
    side: int
    offset: int
    data: bytes
    pieces: Int64Array
    gap_after: bool
    ended: bool
    start_known: bool
    is_estimated: bool


def spliced(
    chunks: StreamChunks, is_kept: NDArray[np.bool_], added: Sequence[tuple[int, Chunk]]
) -> tuple[StreamChunks, Int64Array]:
    """The chunks that are kept, and added ones, each at the place of a row; and the source of each.

    A source is a row, or the number of rows and the index of an added chunk.
    """
    rows = np.flatnonzero(is_kept)
    if len(rows) == len(chunks) and not added:
        return chunks, rows
    order = np.argsort(np.array([*rows.tolist(), *(row for row, _ in added)], np.int64), kind="stable")
    source = np.concatenate((rows, len(chunks) + np.arange(len(added))))[order]
    new = np.array(
        [
            (x.flow, x.side, x.offset, 0, len(x.data), 0, x.gap_after, x.ended, x.start_known, x.is_estimated)
            for _, x in added
        ],
        np.int64,
    ).reshape(-1, len(CHUNK_COLUMNS))
    new[:, 3] = len(chunks.buffer) + np.cumsum(new[:, 4]) - new[:, 4]
    pieces = np.concatenate([np.zeros((len(PIECE_ROWS), 0), np.int64), *(x.pieces for _, x in added)], axis=1)
    firsts = np.cumsum([0, *np.diff(chunks.piece_first).tolist(), *(x.pieces.shape[1] for _, x in added)])
    counts = np.diff(firsts)[source]
    bounds = np.cumsum([0, *counts.tolist()])
    piece_source = np.repeat(firsts[source] - bounds[:-1], counts) + np.arange(bounds[-1])

    def joined(name: str, values: Int64Array) -> NDArray[Any]:
        column = getattr(chunks, name)
        return np.concatenate((column, values.astype(column.dtype)))

    result = StreamChunks(
        buffer=np.concatenate((chunks.buffer, np.frombuffer(b"".join(x.data for _, x in added), np.uint8))),
        piece_first=bounds,
        **{name: joined(name, new[:, i])[source] for i, name in enumerate(CHUNK_COLUMNS)},
        **{f"piece_{name}": joined(f"piece_{name}", pieces[i])[piece_source] for i, name in enumerate(PIECE_NAMES)},
    )
    return result, source
