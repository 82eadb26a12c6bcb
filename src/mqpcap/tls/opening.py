"""Opens TLS connections: chunks of ciphertext to chunks of plaintext of the same connection and side.

In: `StreamChunks` of ``tcp``. Out: `StreamChunks` for ``decode``: bytes of opened connections are plaintext,
each with the packet that carried it. Other connections pass as they are, those without keys too, once it is
known that no key opens them. Called by: the pipeline. Promise: captured bytes of an opened side are plaintext, lost
ranges (problems) or overhead, each once.
"""

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.errors import CaptureError
from mqpcap.records import dataclass
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.record_ciphers import HEADER_BYTES, MAX_FRAGMENT_BYTES
from mqpcap.tls.session import Session, State, TlsFacts
from mqpcap.tls.side import PLACE_END, PROXY_BYTES, Chunk, LostRange, TlsSide, hello_at

OFFSET, LENGTH, TS_NS, NUMBER, FILE, ORDER, ACK, LAST = range(8)
PIECE_ROWS = ("offset", "length", "ts_ns", "packet_number", "file", "order", "ack", "last")
MAX_HELD_BYTES = 256 << 10
"""Bytes of a side that wait for the hellos or the keys."""
MAX_ALL_HELD_BYTES = 64 << 20
"""The same limit for all connections together: what more connections hold is read as if there was no key log."""
MAX_LATE_BYTES = 2 * (HEADER_BYTES + MAX_FRAGMENT_BYTES)
"""Bytes of a side that began before the capture: if it is TLS, a record begins and ends in them."""
MAX_RETAINED_BYTES = 128 << 20
"""Plaintext of all connections that the reader did not consume; beyond it a message is read as one with a hole."""


class Run(NamedTuple):
    """Contiguous bytes of a side to give out: plaintext, or ciphertext that no key opens.

    ``packets``: rows OFFSET to LAST, a column for each piece. ``is_estimated``: as in `StreamChunks`.
    """

    offset: int
    data: bytes | memoryview
    packets: Int64Array
    is_estimated: bool = False

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.offset + len(self.data)


@dataclass(slots=True)
class _Given:
    """The reader's view of a side: ``retained`` are bytes that it did not consume.

    It gets them again when the side reaches ``resume_at``. ``is_over``: the reader knows that the side ended.
    """

    retained: list[Run] = field(default_factory=list)
    resume_at: int = 0
    is_over: bool = False
    is_cut: bool = False
    start_known: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes that are retained."""
        return sum(len(run.data) for run in self.retained)

    def retain(self, run: Run, consumed: int, wanted: int) -> None:
        """Keep the bytes of a run that the reader did not consume."""
        first = run.offset + consumed
        packets = run.packets[:, run.packets[OFFSET] + run.packets[LENGTH] > first].copy()
        skipped = max(first - int(packets[OFFSET, 0]), 0)
        packets[OFFSET, 0] += skipped
        packets[LENGTH, 0] -= skipped
        self.retained = [Run(first, bytes(run.data[consumed:]), packets)]
        self.resume_at = first + wanted if wanted else 0


@dataclass(slots=True)
class _Part:
    """Chunks that are given out: those from row ``begin`` to ``end`` as they came, or runs of a side."""

    begin: int = 0
    end: int = 0
    flow: int = 0
    side: int = 0
    given: _Given | None = None
    runs: Sequence[Run] = ()
    has_gap_after: bool = False
    has_ended: bool = False

    def chunks(self, given: StreamChunks) -> StreamChunks:
        """Its chunks over a buffer of their own."""
        if self.given is None or not self.runs:
            return _rows(given, self.begin, self.end)
        runs, n = self.runs, len(self.runs)
        lengths = np.array([len(run.data) for run in runs], np.int64)
        offsets = np.array([run.offset for run in runs], np.int64)
        packets = np.concatenate([run.packets for run in runs], axis=1)
        is_last = np.arange(n) == n - 1
        firsts = np.cumsum([0, *(run.packets.shape[1] for run in runs)])
        return StreamChunks(
            buffer=np.frombuffer(b"".join(run.data for run in runs), np.uint8),
            flow=np.full(n, self.flow),
            side=np.full(n, self.side, np.int8),
            offset=offsets,
            start=np.cumsum(lengths) - lengths,
            length=lengths,
            gap_before=np.zeros(n, np.int64),
            gap_after=~is_last | self.has_gap_after,
            ended=is_last & self.has_ended,
            start_known=np.full(n, self.given.start_known),
            is_estimated=np.array([run.is_estimated for run in runs], np.bool_),
            piece_first=firsts,
            **{f"piece_{name}": packets[row] for row, name in enumerate(PIECE_ROWS)},
        )


class _Connection:
    """A TLS connection. ``held``: its chunks while it is not known whether a key opens them."""

    def __init__(self, number: int, keys: KeyLog | None, begun: Sequence[bool]) -> None:
        self.number = number
        self.session = Session(keys)
        self.sides = TlsSide(self.session, 0, begun[0]), TlsSide(self.session, 1, begun[1])
        self.given = _Given(), _Given()
        self.held: list[tuple[int, Chunk]] = []
        self.is_counted = False
        self.held_bytes = 0
        self.is_watched = True
        """Its bytes are read, for its hellos at least."""

    def advance(self, is_final: bool) -> None:
        """Open what both sides have; each may wait for the other. ``is_final``: no byte follows."""
        session = self.session
        a, b = self.sides
        while a.advance(False) | b.advance(False):
            pass
        if session.state is State.HELD:
            session.retry()
            most = MAX_LATE_BYTES if session.is_late else MAX_HELD_BYTES
            if is_final or max(side.held_bytes for side in self.sides) > most:
                session.close(
                    "tls_no_hello" if session.server_hello is None or session.client_hello is None else "tls_no_key"
                )
        elif session.state is State.OPENED and is_final:
            session.takes_early = session.takes_early is not False
            while a.advance(True) | b.advance(True):
                pass

    def part(self, index: int, is_final: bool) -> _Part:
        """The new chunks of a side: plaintext, or chunks that were held and that no key opens."""
        side, given = self.sides[index], self.given[index]
        if self.session.state is State.OPENED:
            new = self._plain_runs(side, self.sides[1 - index], is_final)
            has_ended = side.ended and not side.records.places
        else:
            held = [chunk for i, chunk in self.held if i == index]
            new = [Run(chunk.offset, chunk.data, chunk.packets) for chunk in held if len(chunk.data)]
            has_ended = any(chunk.ended for chunk in held)
        runs = [*given.retained, *_joined_runs(new)] if given.is_cut else _joined_runs([*given.retained, *new])
        given.is_cut = False
        has_gap_after = self.session.state is State.OPENED and bool(runs) and side.next_plain > runs[-1].end
        has_ended = has_ended and not given.is_over
        if len(runs) == 1 and runs[0].end < given.resume_at and not (has_ended or has_gap_after):
            given.retained, runs = [*given.retained, *new], []
        elif has_ended and not runs:
            runs = [Run(side.plain_at, b"", np.zeros((len(PIECE_ROWS), 0), np.int64))]
        if runs:
            given.retained, given.resume_at, given.is_over = [], 0, has_ended
        return _Part(0, 0, self.number, index, given, runs, has_gap_after, has_ended)

    def settle(self, is_final: bool) -> None:
        """Copy what is not done; bytes of a connection that no key opens are no longer read after its hellos."""
        session = self.session
        if session.state is State.CLOSED:
            is_read = session.server_hello is not None and session.client_hello is not None
            read_bytes = max(side.held_bytes + side.overhead_bytes for side in self.sides)
            retains = any(given.retained for given in self.given)
            is_too_long = read_bytes > MAX_HELD_BYTES or session.why_closed == "tls_no_room"
            self.is_watched = retains or not (is_read or is_final or is_too_long)
            if not self.is_watched:
                self.sides, self.held_bytes = (TlsSide(session, 0, True), TlsSide(session, 1, True)), 0
        for side in self.sides:
            side.keep()

    def waiting(self) -> list[tuple[int, Int64Array]]:
        """Sides with bytes that are not given out yet, and their packets."""
        if self.session.state is State.HELD:
            return [(side, chunk.packets) for side, chunk in self.held if chunk.packets.shape[1]]
        return [(i, side.packets[0]) for i, side in enumerate(self.sides) if side.records.places]

    def facts(self) -> TlsFacts:
        """The facts of its hellos."""
        facts = self.session.facts
        facts.is_opened = self.session.state is State.OPENED
        if facts.is_opened:
            facts.overhead_bytes = self.sides[0].overhead_bytes, self.sides[1].overhead_bytes
        return facts

    def _plain_runs(self, side: TlsSide, other: TlsSide, is_final: bool) -> list[Run]:
        """The opened records of a side, without those that acknowledge what is not read yet of the other side."""
        if not side.records.places:
            return []
        places = np.array(side.records.places, np.int64).T
        packets = np.concatenate(side.packets, axis=1)
        count = places.shape[1]
        is_ahead = packets[ACK] > other.known_to
        if is_ahead.any() and not (is_final or other.ended or places[1].sum() > MAX_HELD_BYTES):
            first = packets[OFFSET, np.flatnonzero(is_ahead)[0]]
            count = int(np.searchsorted(places[PLACE_END], first, "right"))
        places, (contents, estimated) = places[:, :count], side.records.take(count)
        if not count:
            return []
        ends = places[0] + places[1]
        breaks = np.flatnonzero(np.append(True, places[0, 1:] != ends[:-1]) | np.isin(places[0], estimated))
        packets = _plain_packets(places, packets, other)
        bounds = np.searchsorted(packets[OFFSET], places[0, breaks])
        stops = zip([*breaks[1:], count], [*bounds[1:], packets.shape[1]], strict=True)
        return [
            Run(int(places[0, i]), b"".join(contents[i:j]), packets[:, first:last], int(places[0, i]) in estimated)
            for i, first, (j, last) in zip(breaks, bounds, stops, strict=True)
        ]


def _joined_runs(runs: Sequence[Run]) -> list[Run]:
    """Runs in order, joined where they continue each other."""
    groups: list[list[Run]] = []
    for run in runs:
        if groups and groups[-1][-1].end == run.offset and not run.is_estimated:
            groups[-1].append(run)
        else:
            groups.append([run])
    return [
        group[0]
        if len(group) == 1
        else Run(
            group[0].offset,
            b"".join(run.data for run in group),
            np.concatenate([run.packets for run in group], axis=1),
            group[0].is_estimated,
        )
        for group in groups
    ]


def _rows(chunks: StreamChunks, begin: int, end: int) -> StreamChunks:
    """Rows of chunks, over the part of the buffer that they use."""
    pieces = slice(chunks.piece_first[begin], chunks.piece_first[end])
    start = int(chunks.start[begin]) if begin < end else 0
    stop = int(chunks.start[end - 1] + chunks.length[end - 1]) if begin < end else 0
    columns = {
        name: getattr(chunks, name)[pieces if name.startswith("piece_") else slice(begin, end)]
        for name in StreamChunks.__dataclass_fields__
        if name not in ("buffer", "start", "piece_first")
    }
    return StreamChunks(
        **columns,
        buffer=chunks.buffer[start:stop],
        start=chunks.start[begin:end] - start,
        piece_first=chunks.piece_first[begin : end + 1] - chunks.piece_first[begin],
    )


def _plain_packets(places: Int64Array, packets: Int64Array, other: TlsSide) -> Int64Array:
    """The packets of the plaintext of records: rows OFFSET to LAST.

    A record that came in several packets has a column for each, and one without bytes for the packet that completed it:
    a message is complete with its records.
    """
    plain_at, length, content, start, end = places
    first, last, low, high = (
        np.searchsorted(packets[OFFSET], x, "right") - 1 for x in (content, content + length - 1, start, end - 1)
    )
    completing = high.copy()
    for i in np.flatnonzero(low < high).tolist():
        of_record = slice(low[i], high[i] + 1)
        completing[i] = low[i] + np.lexsort((packets[NUMBER, of_record], packets[FILE, of_record]))[-1]
    counts = last - first + 1 + (low < high)
    record = np.repeat(np.arange(len(counts)), counts)
    k = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
    after = counts[record] - 1 - k
    is_mark = (after == 0) & (low < high)[record]
    source = np.where(is_mark, completing[record], first[record] + k)
    columns = packets[:, source]
    stop = content + length
    begin = np.maximum(columns[OFFSET], content[record])
    until = np.minimum(columns[OFFSET] + columns[LENGTH], stop[record])
    columns[LENGTH] = np.where(is_mark, 0, until - begin)
    columns[OFFSET] = plain_at[record] + np.where(is_mark, length[record], begin - content[record])
    columns[ORDER] = packets[ORDER, completing[record]]
    columns[LAST] = np.where((low < high)[record], after, 0)
    acks, codes = np.unique(columns[ACK], return_inverse=True)
    mapped = [other.acknowledged(ack) if ack != NO_OFFSET else ack for ack in acks.tolist()]
    columns[ACK] = np.array(mapped, np.int64)[codes.reshape(-1)]
    return columns


class Opener:
    """Opens the TLS connections of a capture with the secrets of ``keys``; without keys it reads their hellos.

    ``counts``: connections that could not be opened, by reason. ``lost``: by connection and side, captured bytes of
    opened connections that could not be opened.
    """

    def __init__(self, keys: KeyLog | None) -> None:
        self.keys = keys
        self.counts: dict[str, int] = {}
        self.lost: list[tuple[int, int, LostRange]] = []
        self._connections: dict[int, _Connection] = {}
        self._watched: dict[int, _Connection] = {}
        """Those whose bytes are still read."""
        self._waiting: dict[tuple[int, int], int] = {}
        self._retained_bytes = 0
        self._given_out: list[_Part] | None = None
        self._held_bytes = 0

    def __getstate__(self) -> dict[str, object]:
        """The state without secrets, between two windows."""
        return self.__dict__ | {"keys": None, "_given_out": None}

    def use_keys(self, keys: KeyLog | None) -> None:
        """Go on with a key log, after the state was loaded."""
        self.keys = keys
        for connection in self._connections.values():
            connection.session.use_keys(keys)
            for side in connection.sides:
                side.use_keys()

    def add_secrets(self, lines: bytes) -> None:
        """Add the lines of a key log that the capture holds."""
        try:
            keys = self.keys or KeyLog.opened(None)
        except CaptureError:
            self.counts["tls_no_library"] = self.counts.get("tls_no_library", 0) + 1
            return
        self.keys = keys
        keys.add(lines.split(b"\n"))

    def feed(self, chunks: StreamChunks, ending: Collection[int] | None = ()) -> StreamChunks:
        """The chunks to read, with TLS opened; ``ending``: connections that end now, None for all."""
        self._find(chunks)
        self._given_out = None
        if self.keys is not None and self.keys.forgotten_count:
            self.counts["tls_forgotten"] = self.keys.forgotten_count
        watched = self._watched
        last = [*watched] if ending is None else [n for n in ending if n in watched]
        starts = np.flatnonzero(np.append(True, chunks.flow[1:] != chunks.flow[:-1])[: len(chunks)])
        groups = [
            (n, begin, end)
            for n, begin, end in zip(
                chunks.flow[starts].tolist(), starts.tolist(), np.append(starts, len(chunks))[1:].tolist(), strict=True
            )
            if n in watched
        ]  # fmt: skip
        if not groups and not last:
            return chunks
        packets = np.stack([*(getattr(chunks, f"piece_{name}") for name in PIECE_ROWS)])
        parts: list[_Part] = []
        passed = 0
        fed = {n for n, _, _ in groups}
        for number, begin, end in (*groups, *((n, len(chunks), len(chunks)) for n in last if n not in fed)):
            parts.append(_Part(begin=passed, end=begin))
            passed = end
            parts += self._advance(watched[number], chunks, packets, (begin, end), number in last)
        parts.append(_Part(begin=passed, end=len(chunks)))
        self._given_out = parts
        return _joined(chunks, parts)

    def _advance(
        self, connection: _Connection, chunks: StreamChunks, packets: Int64Array, rows: tuple[int, int], is_last: bool
    ) -> list["_Part"]:
        """Give a connection its new chunks; returns what it gives out."""
        session = connection.session
        self._retained_bytes -= sum(given.size_bytes for given in connection.given)
        passes = session.state is State.CLOSED and not any(given.retained for given in connection.given)
        for row in range(*rows):
            side = int(chunks.side[row])
            start, columns = int(chunks.start[row]), slice(chunks.piece_first[row], chunks.piece_first[row + 1])
            data = memoryview(chunks.buffer)[start : start + int(chunks.length[row])]
            chunk = Chunk(int(chunks.offset[row]), data, packets[:, columns], bool(chunks.ended[row]))
            connection.given[side].start_known = bool(chunks.start_known[row])
            connection.sides[side].add(chunk, int(chunks.gap_before[row]))
            connection.held.append((side, chunk))
        connection.advance(is_last)
        self._held_bytes -= connection.held_bytes
        connection.held_bytes = sum(side.held_bytes for side in connection.sides)
        self._held_bytes += connection.held_bytes
        if self._held_bytes > MAX_ALL_HELD_BYTES and session.state is not State.OPENED:
            session.close("tls_no_room")
        if session.state is State.HELD:
            connection.held = [(side, chunk.copied()) for side, chunk in connection.held]
            parts: list[_Part] = []
        else:
            if session.state is State.CLOSED and session.why_closed and not connection.is_counted:
                self.counts[session.why_closed] = self.counts.get(session.why_closed, 0) + 1
                connection.is_counted = True
            for index, tls_side in enumerate(connection.sides):
                lost = tls_side.take_lost() if session.state is State.OPENED else []
                self.lost += [(connection.number, index, lost_range) for lost_range in lost]
            parts = [_Part(*rows)] if passes else [connection.part(side, is_last) for side in (0, 1)]
            connection.held = []
        connection.settle(is_last)
        if not connection.is_watched:
            del self._watched[connection.number]
        self._forget_waiting(connection.number)
        for side, waiting in connection.waiting():
            self._waiting.setdefault((connection.number, side), int(waiting[TS_NS, 0]))
        return parts

    def _forget_waiting(self, number: int) -> None:
        for side in (0, 1):
            self._waiting.pop((number, side), None)

    def retain(self, chunks: StreamChunks, consumed: Int64Array, wanted: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The arrays for ``Reassembler.retain`` of what `feed` got; keeps plaintext that the reader did not consume."""
        if self._given_out is None:
            return consumed, wanted
        consumed_here, wanted_here = chunks.length.copy(), np.zeros(len(chunks), np.int64)
        row = 0
        for part in self._given_out:
            if part.given is None:
                rows, stop = slice(part.begin, part.end), row + part.end - part.begin
                consumed_here[rows], wanted_here[rows] = consumed[row:stop], wanted[row:stop]
                row = stop
            elif part.runs:
                row += len(part.runs)
                if consumed[row - 1] < len(part.runs[-1].data) and not (part.has_gap_after or part.has_ended):
                    part.given.retain(part.runs[-1], int(consumed[row - 1]), int(wanted[row - 1]))
                    part.given.is_cut = self._retained_bytes + part.given.size_bytes > MAX_RETAINED_BYTES
            self._retained_bytes += 0 if part.given is None else part.given.size_bytes
        return consumed_here, wanted_here

    def waiting_since(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) with bytes that are not given out yet, and the time of the first (ns)."""
        return self._waiting

    def facts(self, number: int) -> TlsFacts | None:
        """The facts of a connection's hellos; None if it is not TLS."""
        connection = self._connections.get(number)
        return None if connection is None else connection.facts()

    def plain_offset(self, number: int, side: int, offset: int) -> int:
        """The stream offset of a byte of a connection; it counts plaintext if the connection is opened."""
        connection = self._connections.get(number)
        if connection is None or connection.session.state is not State.OPENED:
            return offset
        return connection.sides[side].plain_offset(offset)

    def forget(self, numbers: Int64Array) -> None:
        """Drop connections that ended."""
        for number in numbers.tolist():
            connection = self._connections.pop(number, None)
            self._watched.pop(number, None)
            self._forget_waiting(number)
            self._held_bytes -= 0 if connection is None else connection.held_bytes

    def _find(self, chunks: StreamChunks) -> None:
        """Find connections that begin with a hello, or whose hello begins a packet and has secrets in the key log."""
        counts = np.diff(chunks.piece_first)
        is_long = chunks.piece_length > HEADER_BYTES
        rows = np.repeat(np.arange(len(chunks)), counts)[is_long]
        places = chunks.piece_offset[is_long] + (chunks.start - chunks.offset)[rows]
        first = chunks.buffer[places]
        may_begin = (first == 0x16) & (chunks.buffer[places + 1] == 3)
        may_begin |= (chunks.offset[rows] == 0) & (chunks.start[rows] == places) & np.isin(first, [*PROXY_BYTES])
        buffer = memoryview(chunks.buffer)
        for place, row in zip(places[may_begin].tolist(), rows[may_begin].tolist(), strict=True):
            number, side = int(chunks.flow[row]), int(chunks.side[row])
            end = int(chunks.start[row] + chunks.length[row])
            at = hello_at(buffer[place:end]) if number not in self._connections else -1
            is_first = place == chunks.start[row] and chunks.offset[row] == 0
            if at < 0 or not (is_first or self._has_secrets(bytes(buffer[place + at + 11 : place + at + 43]))):
                continue
            # With a PROXY header that side alone begins in clear.
            begun = [is_first and (at == 0 or side != index) for index in (0, 1)]
            self._connections[number] = self._watched[number] = _Connection(number, self.keys, begun)
        if self.keys is not None and self.keys.has_traffic:
            for number in np.unique(chunks.flow[~chunks.start_known & (chunks.offset == 0)]).tolist():
                if number not in self._connections:
                    self._connections[number] = connection = _Connection(number, self.keys, (True, True))
                    self._watched[number] = connection
                    connection.session.is_late = True

    def _has_secrets(self, random: bytes) -> bool:
        """Whether the key log has secrets for a client random."""
        keys = self.keys
        return keys is not None and bool(keys.secrets(random) or (keys.refresh() and keys.secrets(random)))


def _joined(chunks: StreamChunks, parts: Sequence[_Part]) -> StreamChunks:
    """The chunks of parts, over one buffer."""
    pieces = [part.chunks(chunks) for part in parts]
    sizes = np.array([len(piece.buffer) for piece in pieces], np.int64)
    counts = np.array([len(piece.piece_offset) for piece in pieces], np.int64)
    columns = {
        name: np.concatenate([getattr(piece, name) for piece in pieces])
        for name in StreamChunks.__dataclass_fields__
        if name != "piece_first"
    }
    rows = [len(piece) for piece in pieces]
    columns["start"] += np.repeat(np.cumsum(sizes) - sizes, rows)
    firsts = np.concatenate([piece.piece_first[:-1] for piece in pieces]) + np.repeat(np.cumsum(counts) - counts, rows)
    return StreamChunks(**columns, piece_first=np.append(firsts, counts.sum()))
