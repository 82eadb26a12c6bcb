"""Streams that are made of other streams: the plaintext of TLS, the messages in WebSocket.

In: `StreamChunks`. Out: `StreamChunks` of the same connections and sides. A side makes *records* of its bytes, each
with its place in the stream below. Each byte has the packet that carried it, and a message is complete with the packet
that completed its records. Records stay until the reader consumed them. Other connections pass as they are.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.tcp.chunks import (
    ACK,
    FILE,
    LAST,
    LENGTH,
    NUMBER,
    OFFSET,
    ORDER,
    PIECE_NAMES,
    PIECE_ROWS,
    TS_NS,
    Chunk,
    StreamChunks,
    spliced,
)  # fmt: skip
from mqpcap.tcp.flow_records import NO_OFFSET

NO_LIMIT = 1 << 62
MAX_HELD_BYTES = 256 << 10
"""Bytes of a side that wait until its connection is known: for the hellos or keys of TLS."""
MAX_ALL_HELD_BYTES = 64 << 20
"""The same limit for all connections together: what more connections hold is read as it came."""
MAX_RETAINED_BYTES = 128 << 20
"""Made bytes of all connections that the reader did not consume; beyond it a message is read as if it had a hole."""
MAX_PLACES = 1 << 11
"""Records of earlier windows whose place in both streams is remembered."""


class State(IntEnum):
    """Whether a connection is known: its bytes wait, are made anew, or pass."""

    HELD = 0
    OPENED = 1
    CLOSED = 2


class Run(NamedTuple):
    """Contiguous bytes of a side, from an offset to another."""

    offset: int
    end: int
    data: memoryview | bytes


class LostRange(NamedTuple):
    """Captured bytes that made none, with their first packet.

    ``offset``: in the derived stream. ``below``: in the stream below.
    """

    offset: int
    length: int
    reason: str
    below: int
    ts_ns: int
    packet: int


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


class DerivedSide(ABC):
    """A side that is made up to the offset ``made_to``; ``records`` are those that the reader did not consume.

    ``at``: bytes below before this offset are done. ``runs``: bytes that are not. ``places``: offsets in both streams,
    at the ends of records and of lost bytes; True if a gap, or the stream, begins. ``lost``: lost ranges that are not
    taken yet. ``pieces``: of the stream below, from the first record on. ``has_end``: nothing follows below.
    ``has_estimate``: bytes are missing, and how many is not known. ``ended``: no record follows. ``resume_at``: offset
    that the side must reach before the reader gets the records again. ``is_cut``: too many bytes are kept, so the
    reader gets them as if a gap followed. ``is_ahead``: records wait, as they acknowledge unread bytes of the other
    side.
    """

    previous_bytes = 0
    """Bytes that are kept though they are done."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.at = self.made_to = self.resume_at = self.overhead_bytes = 0
        self.runs, self.records, self.lost = list[Run](), list[Record](), list[LostRange]()
        self.places = [(0, 0, True)]
        self.has_end = self._is_placed = self.has_estimate = False
        self.pieces = np.zeros((len(PIECE_ROWS), 0), np.int64)
        self.start_known = self.ended = self.is_cut = self.is_ahead = False
        self._is_over = False
        self.given: tuple[Sequence[Record], Sequence[Chunk]] = (), ()
        """Records and chunks that the reader has now."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"given": ((), ())}

    # -- input -------------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for keys or for the end of a record."""
        return sum(run.end - max(run.offset, self.at) for run in self.runs if run.end > self.at)

    def add(self, offset: int, data: memoryview, pieces: Int64Array, gap_before: int, is_end: bool) -> None:
        """Add bytes; those before the first, and before its gap, were given out in clear."""
        if not self._is_placed:
            self.at = self.made_to = offset - gap_before
            self._is_placed, self.places = True, [(self.at, self.at, True)]
        end, joined = offset + len(data), self.runs.pop() if self.runs and self.runs[-1].end == offset else None
        self.runs.append(Run(joined.offset, end, b"".join((joined.data, data))) if joined else Run(offset, end, data))
        self.pieces = np.concatenate((self.pieces, pieces), axis=1)
        self.has_end = is_end

    @property
    def position(self) -> tuple[int, ...]:
        """What changes if anything is done."""
        return self.at, self.ended

    def advance(self, is_final: bool) -> bool:
        """Make what can be made; whether anything was done. ``is_final``: nothing that it waits for will come."""
        began = self.position
        for run in self.runs:
            if self.at < run.offset:
                self.pass_gap(run.offset)
            is_done: bool | None = True
            data = memoryview(run.data)
            while self.at < run.end and is_done:
                is_done = self.step(data, run.offset, is_final)
            if self.at < run.end:
                if is_done is None or (run is self.runs[-1] and not self.has_end):
                    break
                self.break_record(data[self.at - run.offset :])
        else:
            self.ended = self.has_end
        return began != self.position

    @abstractmethod
    def step(self, data: memoryview, base: int, is_final: bool) -> bool | None:
        """Pass a record or lost bytes of a run; False if it is not complete, None if the side must wait."""

    @abstractmethod
    def pass_gap(self, offset: int) -> None:
        """Pass bytes up to ``offset`` that were not captured."""

    @abstractmethod
    def break_record(self, data: memoryview) -> None:
        """Pass the captured part of a record that misses bytes."""

    def pass_in_clear(self) -> None:
        """Give out all bytes as they came."""
        for run in self.runs:
            for offset, length in self.pieces[:2].T.tolist():
                if run.offset <= offset < run.end:
                    content = bytes(run.data[offset - run.offset :][:length])
                    self.records.append(Record(offset, length, offset, offset, offset + length, content=content))
            self.at = self.made_to = run.end
        self.runs, self.ended = [], self.has_end

    def keep(self, is_held: bool) -> None:
        """Copy what is not done, as the buffer of the window is freed. ``is_held``: nothing was given out yet."""
        kept_from = 0 if is_held else self.at - self.previous_bytes
        self.runs = [
            Run(max(run.offset, kept_from), run.end, bytes(run.data[max(kept_from - run.offset, 0) :]))
            for run in self.runs
            if is_held or run.end >= self.at
        ]
        if not is_held:
            self.trim(self.at)
        self.places[:-MAX_PLACES] = [place for place in self.places[:-MAX_PLACES] if place[2]]

    def lose_captured(self, place: int, length: int, reason: str) -> None:
        """Note captured bytes below that make none, at the end of the stream as it is now."""
        newest = self.lost[-1] if self.lost else None
        if newest is not None and (newest.below + newest.length, newest.reason) == (place, reason):
            self.lost[-1] = newest._replace(length=newest.length + length)
        elif length:
            i = max(int(np.searchsorted(self.pieces[OFFSET], place, "right")) - 1, 0)
            ts_ns, number = self.pieces[[TS_NS, NUMBER], i].tolist()
            self.lost.append(LostRange(self.made_to, length, reason, place, ts_ns, number))

    def take_lost(self) -> list[LostRange]:
        """The lost ranges that are final."""
        lost, self.lost = self.lost, []
        return lost

    @property
    @abstractmethod
    def known_to(self) -> int:
        """Acknowledgements up to this offset below have a place in the derived stream."""

    @abstractmethod
    def acknowledged(self, offset: int) -> int:
        """The offset in the derived stream that is acknowledged with the bytes before an offset below."""

    def derived_offset(self, offset: int) -> int:
        """The place in the derived stream of a byte below, of a lost one its own."""
        i = bisect_right(self.places, (offset, NO_LIMIT))
        begin, made_at, _ = self.places[max(i - 1, 0)]
        return min(made_at + offset - begin, self.places[i][1] if 0 < i < len(self.places) else NO_LIMIT)

    # -- output ------------------------------------------------------------------------------------------------

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
    completing = high + pieces[LAST, high]
    for i in np.flatnonzero(low < high).tolist():
        of_range = slice(low[i], high[i] + 1)
        completing[i] = low[i] + np.lexsort((pieces[NUMBER, of_range], pieces[FILE, of_range]))[-1]
    is_split = (low < high) | (low < completing)
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


Side = TypeVar("Side", bound=DerivedSide)


class DerivedConnection(ABC, Generic[Side]):
    """A connection; ``passes``: its bytes are only looked at. ``is_final``: no byte follows."""

    def __init__(self, number: int) -> None:
        self.number, self.kept_bytes, self.is_final, self.passes = number, 0, False, False
        self.sides = self.new_sides()

    @abstractmethod
    def new_sides(self) -> tuple[Side, Side]:
        """Both sides, without bytes."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Whether it is known."""

    @abstractmethod
    def advance(self) -> None:
        """Make what both sides have."""

    def is_over(self) -> bool:
        """Whether its bytes pass from now on."""
        return self.state is State.CLOSED and not any(side.records for side in self.sides)

    def close(self, why: str) -> None:
        """Let its bytes pass."""

    def give(self, side: Side) -> Sequence[Chunk]:
        """Give out what is made of a side, as far as the reader can know what it acknowledges."""
        opposite = self.sides[1 - side.index]
        if self.passes or self.state is State.HELD:
            return ()
        all_known = self.is_final or opposite.ended or side.kept_bytes > MAX_HELD_BYTES
        return side.give(self.number, side.index, NO_LIMIT if all_known else opposite.known_to, opposite.acknowledged)


Connection = TypeVar("Connection", bound=DerivedConnection)  # type: ignore[type-arg]  # of any side


class DerivedStreams(ABC, Generic[Connection]):
    """A stage between streams and their reader, for those connections that it finds.

    ``counts``: connections that could not be read, by reason. ``lost``: by connection and side, captured bytes that
    made none.
    """

    def __init__(self) -> None:
        self.counts, self.lost = Counter[str](), list[tuple[int, int, LostRange]]()
        self.connections, self.watched = dict[int, Connection](), dict[int, Connection]()
        """All connections, and those whose bytes are still read."""
        self.waiting_since = dict[tuple[int, int], int]()
        """Sides (connection, 0 or 1) with bytes that are not given out yet, and the time of the first (ns)."""
        self._kept_bytes = 0
        self._given_out: tuple[Int64Array, Int64Array, list[Connection]] | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state between two windows."""
        return self.__dict__ | {"_given_out": None}

    @abstractmethod
    def find(self, chunks: StreamChunks) -> Iterable[Connection]:
        """The connections that begin with these chunks, and are not found yet."""

    def note(self, connection: Connection) -> None:
        """Count a connection that advanced."""

    def feed(self, chunks: StreamChunks, ending: Collection[int] | None = ()) -> StreamChunks:
        """The chunks to read; ``ending``: connections that end now, None for all."""
        self._keep()
        for connection in self.find(chunks):
            self.connections[connection.number] = self.watched[connection.number] = connection
        if not self.watched:
            return chunks
        starts = np.flatnonzero(np.append(True, np.diff(chunks.flow) != 0)[: len(chunks)]).tolist()
        rows = dict(zip(chunks.flow[starts].tolist(), map(range, starts, [*starts[1:], len(chunks)]), strict=True))
        final = {*self.watched} if ending is None else {*ending}
        connections = [self.watched[x] for x in {**rows, **dict.fromkeys(final)} if x in self.watched]
        if not connections:
            return chunks
        pieces = np.stack([getattr(chunks, f"piece_{name}") for name in PIECE_NAMES])
        passes, added = np.ones(len(chunks), np.bool_), []
        for connection in connections:
            own_rows = rows.get(connection.number, range(len(chunks), len(chunks)))
            connection.is_final = connection.number in final
            self._advance(connection, chunks, pieces, own_rows)
            passes[own_rows.start : own_rows.stop] = connection.passes
            for side in connection.sides:
                added += [(own_rows.start, chunk) for chunk in connection.give(side)]
                self.waiting_since.pop((connection.number, side.index), None)
                if (side.is_ahead or connection.state is State.HELD) and side.pieces.shape[1]:
                    self.waiting_since[connection.number, side.index] = int(side.pieces[TS_NS, 0])
        result, source = spliced(chunks, passes, added)
        self._given_out = chunks.length, source, connections
        return result

    def _advance(self, connection: Connection, chunks: StreamChunks, pieces: Int64Array, rows: range) -> None:
        """Give a connection its new chunks, and make what can be made."""
        buffer = memoryview(chunks.buffer)
        for row in rows:
            side, start = connection.sides[int(chunks.side[row])], int(chunks.start[row])
            data, of_row = buffer[start : start + int(chunks.length[row])], slice(*chunks.piece_first[row : row + 2])
            side.start_known = bool(chunks.start_known[row])
            side.has_estimate |= bool(chunks.is_estimated[row])
            gap_before, is_end = int(chunks.gap_before[row]), bool(chunks.ended[row])
            side.add(int(chunks.offset[row]), data, pieces[:, of_row], gap_before, is_end)
        connection.advance()
        kept_bytes = self._kept_bytes - connection.kept_bytes + sum(side.held_bytes for side in connection.sides)
        if kept_bytes > MAX_ALL_HELD_BYTES and connection.state is State.HELD:
            connection.close("no_room")
        self.note(connection)
        for side in connection.sides:
            if connection.state is State.CLOSED and not connection.passes:
                side.pass_in_clear()
            if connection.state is State.OPENED:
                self.lost += [(connection.number, side.index, lost_range) for lost_range in side.take_lost()]

    def retain(self, consumed: Int64Array, wanted: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The arrays for ``Reassembler.retain`` of what `feed` got; keeps bytes that the reader did not consume."""
        if self._given_out is None:
            return consumed, wanted
        lengths, source, connections = self._given_out
        n = len(lengths)
        all_consumed, all_wanted = np.zeros((2, n + len(source)), np.int64)
        all_consumed[:n], all_consumed[source], all_wanted[source] = lengths, consumed, wanted
        index = n - 1
        for side in (side for connection in connections for side in connection.sides if side.given[1]):
            index += len(side.given[1])
            side.retain(int(all_consumed[index]), int(all_wanted[index]))
        self._keep()
        return all_consumed[:n], all_wanted[:n]

    def _keep(self) -> None:
        """Copy what the connections of the last feed keep, as its buffer is freed; drop those that are over."""
        for connection in self._given_out[2] if self._given_out is not None else ():
            if connection.is_over():
                self.watched.pop(connection.number, None)
                connection.sides = connection.new_sides()
            kept_bytes = sum(side.held_bytes + side.kept_bytes for side in connection.sides)
            self._kept_bytes += kept_bytes - connection.kept_bytes
            connection.kept_bytes = kept_bytes
            for side in connection.sides:
                side.keep(connection.state is State.HELD)
                side.is_cut = self._kept_bytes > MAX_RETAINED_BYTES
        self._given_out = None

    def derived_offset(self, number: int, side: int, offset: int) -> int:
        """The stream offset of a byte of a connection, in the derived stream if there is one."""
        connection = self.connections.get(number)
        if connection is None or connection.state is not State.OPENED:
            return offset
        sides: tuple[DerivedSide, DerivedSide] = connection.sides
        return sides[side].derived_offset(offset)

    def forget(self, numbers: Int64Array) -> None:
        """Drop connections that ended."""
        for number in filter(self.connections.__contains__, numbers.tolist()):
            self._kept_bytes -= self.connections.pop(number).kept_bytes
            self.watched.pop(number, None)
            for side in (0, 1):
                self.waiting_since.pop((number, side), None)
