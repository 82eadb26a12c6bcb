"""Streams that are made of other streams, for example the plaintext of TLS.

In: records, with their places in the stream that they came in, and the pieces of that stream. Out: chunks for the
reader. Each byte has the packet that carried it, and a message is complete with the packet that completed its records.
Records stay until the reader consumed them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.tcp.chunks import ACK, FILE, LAST, LENGTH, NUMBER, OFFSET, ORDER, PIECE_ROWS, Chunk
from mqpcap.tcp.flow_records import NO_OFFSET

NO_LIMIT = 1 << 62


class Record(NamedTuple):
    """Bytes at an offset, and in the stream below the places of the first byte, and of the record's begin and end.

    ``is_estimated``: the offset follows a gap of unknown length.
    """

    offset: int
    length: int
    content_at: int
    start: int
    end: int
    is_estimated: bool = False
    content: bytes = b""

    def after(self, offset: int) -> "Record":
        """The part from an offset on, whose begin the reader knows."""
        n = max(offset - self.offset, 0)
        place = self.offset + n, self.length - n, self.content_at + n, self.start, self.end
        return Record(*place, content=self.content[n:])


class DerivedSide:
    """A side that is made up to the offset ``made_to``; ``records`` are those that the reader did not consume.

    ``pieces``: of the stream below, from the first record on. ``ended``: no record follows. ``resume_at``: offset that
    the side must reach before the reader gets the records again. ``is_cut``: too many bytes are kept, so the reader
    gets them as if a gap followed. ``is_ahead``: records wait, as they acknowledge unread bytes of the other side.
    """

    def __init__(self) -> None:
        self.made_to = self.resume_at = 0
        self.records = list[Record]()
        self.pieces = np.zeros((len(PIECE_ROWS), 0), np.int64)
        self.start_known = self.ended = self.is_cut = self.is_ahead = False
        self._is_over = False
        self.given: tuple[Sequence[Record], Sequence[Chunk]] = (), ()
        """Records and chunks that the reader has now."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"given": ((), ())}

    @property
    def kept_bytes(self) -> int:
        """Bytes from the first record on, gaps included."""
        return self.made_to - self.records[0].offset if self.records else 0

    def give(self, flow: int, side: int, known_to: int, acknowledged: Callable[[int], int]) -> Sequence[Chunk]:
        """The chunks that the reader gets now. ``known_to``: records that acknowledge later bytes wait.

        ``acknowledged``: from an acknowledgement number below to the offset in the derived stream of the other side.
        """
        self.is_ahead, self.given = False, ((), ())
        if self.made_to < self.resume_at and not self.ended:
            return ()
        records, ahead = self.records, np.flatnonzero(self.pieces[ACK] > known_to)
        if len(ahead):
            records = [record for record in records if record.end <= self.pieces[OFFSET, ahead[0]]]
        self.records = self.records[len(records) :]
        self.is_ahead = bool(self.records)
        ends = self.ended and not self.is_ahead and not self._is_over
        if not records and not ends:
            return ()
        chunks = self._chunks(records or [Record(self.made_to, 0, 0, 0, 0)], flow, side, acknowledged)
        self.resume_at, self._is_over, tail = 0, self._is_over or ends, chunks[-1]
        has_gap = self.is_cut or self.made_to - self.kept_bytes > tail.offset + len(tail.data)
        chunks[-1] = tail._replace(gap_after=has_gap, ended=ends)
        self.given = records, chunks
        return chunks

    def _chunks(
        self, records: Sequence[Record], flow: int, side: int, acknowledged: Callable[[int], int]
    ) -> list[Chunk]:
        places = np.array([record[:5] for record in records], np.int64).T
        pieces = _derived_pieces(self.pieces, places)
        acks, codes = np.unique(pieces[ACK], return_inverse=True)
        mapped = [acknowledged(ack) if ack != NO_OFFSET else ack for ack in acks.tolist()]
        pieces[ACK] = np.array(mapped, np.int64)[codes.reshape(-1)]
        follows = places[0, 1:] == places[0, :-1] + places[1, :-1]
        is_estimated = np.array([record.is_estimated for record in records])
        breaks = np.flatnonzero(np.append(True, ~follows) | is_estimated).tolist()
        bounds = [*np.searchsorted(pieces[OFFSET], places[0, breaks]).tolist(), pieces.shape[1]]
        return [
            Chunk(
                flow, side, records[i].offset, b"".join(record.content for record in records[i:j]),
                pieces[:, bounds[k] : bounds[k + 1]], True, False, self.start_known, records[i].is_estimated,
            )
            for k, (i, j) in enumerate(zip(breaks, [*breaks[1:], len(records)], strict=True))
        ]  # fmt: skip

    def retain(self, consumed: int, wanted: int) -> None:
        """Keep the records of the last chunk that the reader did not consume; ``wanted`` as in Reassembler.retain."""
        (records, chunks), self.given = self.given, ((), ())
        kept_from = chunks[-1].offset + consumed
        if consumed < len(chunks[-1].data) and not (chunks[-1].gap_after or chunks[-1].ended):
            self.records[:0] = [x.after(kept_from) for x in records if x.offset + x.length > kept_from]
            self.resume_at = kept_from + wanted if wanted else 0

    def trim(self, done_to: int) -> None:
        """Drop the pieces of bytes below that are done, as far as no record needs them."""
        if self.made_to >= self.resume_at:
            kept_from = self.records[0].start if self.records else done_to
            self.pieces = self.pieces[:, self.pieces[OFFSET] + self.pieces[LENGTH] > kept_from]


def _derived_pieces(pieces: Int64Array, places: Int64Array) -> Int64Array:
    """The pieces of bytes that were made of ranges of a stream: rows OFFSET to LAST.

    ``pieces``: of the stream. ``places``: for each range the new offset and length, and in the stream the places of its
    first byte that was taken, of its begin and of its end. A range that came in several packets has a piece for each,
    and one without bytes for the packet that completed it: a message is complete with its ranges.
    """
    offset, length, content, start, end = places
    if not length.any():
        return pieces[:, :0]
    content_low, content_high, low, high = (
        np.searchsorted(pieces[OFFSET], x, "right") - 1 for x in (content, content + length - 1, start, end - 1)
    )
    completing, is_split = high.copy(), low < high
    for i in np.flatnonzero(is_split).tolist():
        of_range = slice(low[i], high[i] + 1)
        completing[i] = low[i] + np.lexsort((pieces[NUMBER, of_range], pieces[FILE, of_range]))[-1]
    counts = content_high - content_low + 1 + is_split
    row = np.repeat(np.arange(len(counts)), counts)
    k = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    following = counts[row] - 1 - k
    is_mark = (following == 0) & is_split[row]
    columns = pieces[:, np.where(is_mark, completing[row], content_low[row] + k)]
    begin = np.maximum(columns[OFFSET], content[row])
    until = np.minimum(columns[OFFSET] + columns[LENGTH], (content + length)[row])
    columns[LENGTH] = np.where(is_mark, 0, until - begin)
    columns[OFFSET] = offset[row] + np.where(is_mark, length[row], begin - content[row])
    columns[ORDER] = pieces[ORDER, completing[row]]
    columns[LAST] = np.where(is_split[row], following, 0)
    return columns
