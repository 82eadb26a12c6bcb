"""Opens TLS connections: chunks of ciphertext to chunks of plaintext of the same connection and side.

In: `StreamChunks` of ``tcp``. Out: `StreamChunks` for ``decode``: bytes of opened connections are plaintext,
each with the packet that carried it. Other connections pass as they are, those without keys too, once it is
known that no key opens them. Called by: the pipeline. Promise: captured bytes of an opened side are plaintext, lost
ranges (problems) or overhead, each once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.errors import CaptureError
from mqpcap.records import dataclass
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.record_ciphers import HEADER_BYTES, MAX_FRAGMENT_BYTES
from mqpcap.tls.session import Session, State, TlsFacts
from mqpcap.tls.side import (
    ACK,
    FILE,
    LAST,
    LENGTH,
    NUMBER,
    OFFSET,
    ORDER,
    PROXY_BYTES,
    TS_NS,
    LostRange,
    Run,
    TlsSide,
    hello_at,
)

CHUNK_ROWS = (
    "flow", "side", "offset", "start", "length", "gap_before", "gap_after", "ended", "start_known", "is_estimated",
)  # fmt: skip
PIECE_ROWS = ("offset", "length", "ts_ns", "packet_number", "file", "order", "ack", "last")
MAX_HELD_BYTES = 256 << 10
"""Bytes of a side that wait for the hellos or the keys."""
MAX_ALL_HELD_BYTES = 64 << 20
"""The same limit for all connections together: what more connections hold is read as if there was no key log."""
MAX_LATE_BYTES = 2 * (HEADER_BYTES + MAX_FRAGMENT_BYTES)
"""Bytes of a side that began before the capture: if it is TLS, a record begins and ends in them."""
MAX_RETAINED_BYTES = 128 << 20
"""Plaintext of all connections that the reader did not consume; beyond it a message is read as one with a hole."""


@dataclass(slots=True)
class _Given:
    """The reader's view of a side: ``runs`` are those that it gets now, ``retained`` those that it did not consume.

    It gets the latter again when the side reaches ``resume_at``. ``given_to``: end of the bytes in clear that it got.
    ``is_over``: it knows that the side ended. ``is_cut``: too many bytes are retained.
    """

    flow: int
    side: int
    runs: Sequence[Run] = ()
    retained: list[Run] = field(default_factory=list)
    resume_at: int = 0
    given_to: int = 0
    start_known: bool = False
    has_gap_after: bool = False
    has_ended: bool = False
    is_over: bool = False
    is_cut: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes that are retained."""
        return sum(len(run.data) for run in self.retained)

    def give(self, new: Sequence[Run], next_offset: int, has_ended: bool) -> None:
        """Give out new runs after those that are retained; ``next_offset``: of what is given out next."""
        runs = [*self.retained, *new] if self.is_cut else _joined([*self.retained, *new])
        self.has_gap_after, self.has_ended = bool(runs) and next_offset > runs[-1].end, has_ended and not self.is_over
        if len(runs) == 1 and runs[0].end < self.resume_at and not (self.has_ended or self.has_gap_after):
            self.retained, runs = [*self.retained, *new], []
        elif self.has_ended and not runs:
            runs = [Run(next_offset, b"", np.zeros((len(PIECE_ROWS), 0), np.int64))]
        if runs:
            self.retained, self.resume_at, self.is_over = [], 0, self.is_over or self.has_ended
        self.runs, self.is_cut = runs, False

    def retain(self, consumed: int, wanted: int) -> None:
        """Keep the bytes of the last run that the reader did not consume."""
        run = self.runs[-1]
        if consumed < len(run.data) and not (self.has_gap_after or self.has_ended):
            first = run.offset + consumed
            packets = run.packets[:, run.packets[OFFSET] + run.packets[LENGTH] > first].copy()
            skipped = max(first - int(packets[OFFSET, 0]), 0)
            packets[:2, 0] += skipped, -skipped
            self.retained = [Run(first, bytes(run.data[consumed:]), packets)]
            self.resume_at = first + wanted if wanted else 0


class _Connection:
    """A TLS connection. ``is_watched``: its bytes are read, for its hellos at least."""

    def __init__(self, number: int, keys: KeyLog | None, begun: Sequence[bool], is_late: bool = False) -> None:
        self.session = Session(keys, is_late)
        self.sides = TlsSide(self.session, 0, begun[0]), TlsSide(self.session, 1, begun[1])
        self.given = _Given(number, 0), _Given(number, 1)
        self.is_counted, self.is_watched = False, True
        self.held_bytes = self.retained_bytes = 0

    def advance(self, is_final: bool) -> None:
        """Open what both sides have; each may wait for the other. ``is_final``: no byte follows."""
        session, (a, b) = self.session, self.sides
        while a.advance(False) | b.advance(False):
            pass
        self.held_bytes = sum(side.held_bytes for side in self.sides)
        is_final |= max(side.held_bytes for side in self.sides) > (
            MAX_LATE_BYTES if session.is_late else MAX_HELD_BYTES
        )
        if session.state is State.HELD:
            session.find_keys()
            if is_final:
                session.close()
        elif session.state is State.OPENED and is_final:
            while a.advance(True) | b.advance(True):
                pass

    def give(self, index: int, is_final: bool, passes: bool) -> None:
        """Give out the new bytes of a side: plaintext, or those that were held and that no key opens."""
        side, given = self.sides[index], self.given[index]
        given.runs = ()
        if self.session.state is State.HELD:
            return
        if passes:
            given.given_to = side.runs[-1].end if side.runs else given.given_to
            return
        if self.session.state is State.OPENED:
            new = self._plain_runs(side, self.sides[1 - index], is_final)
            next_offset = side.records[0].offset if side.records else side.plain_at
            given.give(new, next_offset, side.ended and not side.records)
            return
        new = []
        for run in side.runs:
            first = max(run.offset, given.given_to)
            if first < run.end:
                is_of_run = (side.packets[OFFSET] >= first) & (side.packets[OFFSET] < run.end)
                new.append(Run(first, run.data[first - run.offset :], side.packets[:, is_of_run]))
                given.given_to = run.end
        given.give(new, given.given_to, side.has_end)

    def settle(self, is_final: bool) -> None:
        """Copy what is not done; bytes of a connection that no key opens are no longer read after its hellos."""
        session = self.session
        if session.state is State.CLOSED:
            is_read = session.server_hello is not None and session.client_hello is not None
            read_bytes = max(side.held_bytes + side.overhead_bytes for side in self.sides)
            is_too_long = read_bytes > MAX_HELD_BYTES or session.why_closed == "tls_no_room"
            self.is_watched = any(x.retained for x in self.given) or not (is_read or is_final or is_too_long)
            if not self.is_watched:
                self.sides, self.held_bytes = (TlsSide(session, 0, True), TlsSide(session, 1, True)), 0
        for side in self.sides:
            side.keep(session.state is State.HELD)

    def waiting(self) -> Iterator[tuple[int, int]]:
        """Sides with bytes that are not given out yet, and the time of the first (ns)."""
        for i, side in enumerate(self.sides):
            if (side.records or self.session.state is State.HELD) and side.packets.shape[1]:
                yield i, int(side.packets[TS_NS, 0])

    def facts(self) -> TlsFacts:
        """The facts of its hellos."""
        facts = self.session.facts
        facts.is_opened = self.session.state is State.OPENED
        if facts.is_opened:
            facts.overhead_bytes = self.sides[0].overhead_bytes, self.sides[1].overhead_bytes
        return facts

    def _plain_runs(self, side: TlsSide, other: TlsSide, is_final: bool) -> list[Run]:
        """The opened records of a side, without those that acknowledge what is not read yet of the other side."""
        records, packets = side.records, side.packets
        ahead = np.flatnonzero(packets[ACK] > other.known_to)
        if len(ahead) and not (is_final or other.ended or sum(x.length for x in records) > MAX_HELD_BYTES):
            first = packets[OFFSET, ahead[0]]
            records = [record for record in records if record.end <= first]
        side.records = side.records[len(records) :]
        if not records:
            return []
        places = np.array([record[:6] for record in records], np.int64).T
        packets = _plain_packets(places[:5], packets, other)
        follows = places[0, 1:] != places[0, :-1] + places[1, :-1]
        breaks = np.flatnonzero(np.append(True, follows) | (places[5] != 0)).tolist()
        bounds = [*np.searchsorted(packets[OFFSET], places[0, breaks]).tolist(), packets.shape[1]]
        return [
            Run(
                records[i].offset, b"".join(record.content for record in records[i:j]),
                packets[:, bounds[k] : bounds[k + 1]], records[i].is_estimated,
            )
            for k, (i, j) in enumerate(zip(breaks, [*breaks[1:], len(records)], strict=True))
        ]  # fmt: skip


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Runs in order, joined where they continue each other."""
    groups: list[list[Run]] = []
    for run in runs:
        if groups and groups[-1][-1].end == run.offset and not run.is_estimated:
            groups[-1].append(run)
        else:
            groups.append([run])
    return [
        Run(
            group[0].offset, b"".join(run.data for run in group),
            np.concatenate([run.packets for run in group], axis=1), group[0].is_estimated,
        )
        for group in groups
    ]  # fmt: skip


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
    columns = packets[:, np.where(is_mark, completing[record], first[record] + k)]
    begin = np.maximum(columns[OFFSET], content[record])
    until = np.minimum(columns[OFFSET] + columns[LENGTH], (content + length)[record])
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
        self._retained_bytes = self._held_bytes = 0
        self._given_out: tuple[Int64Array, list[_Given]] | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state without secrets, between two windows."""
        return self.__dict__ | {"keys": None, "_given_out": None}

    def use_keys(self, keys: KeyLog | None) -> None:
        """Go on with a key log, after the state was loaded."""
        self.keys = keys
        for connection in self._connections.values():
            connection.session.use_keys(keys)

    def add_secrets(self, lines: bytes) -> None:
        """Add the lines of a key log that the capture holds."""
        try:
            self.keys = self.keys or KeyLog.opened(None)
        except CaptureError:
            self._count("tls_no_library")
        else:
            self.keys.add(lines.split(b"\n"))

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def feed(self, chunks: StreamChunks, ending: Collection[int] | None = ()) -> StreamChunks:
        """The chunks to read, with TLS opened; ``ending``: connections that end now, None for all."""
        self._find(chunks)
        self._given_out = None
        if self.keys is not None and self.keys.forgotten_count:
            self.counts["tls_forgotten"] = self.keys.forgotten_count
        watched = self._watched
        starts = np.flatnonzero(np.append(True, np.diff(chunks.flow) != 0)[: len(chunks)]).tolist()
        rows = dict(zip(chunks.flow[starts].tolist(), map(range, starts, [*starts[1:], len(chunks)]), strict=True))
        last = {*watched} if ending is None else {*ending}
        numbers = [number for number in {**rows, **dict.fromkeys(last)} if number in watched]
        if not numbers:
            return chunks
        packets = np.stack([getattr(chunks, f"piece_{name}") for name in PIECE_ROWS])
        passes, given = np.ones(len(chunks), np.bool_), []
        for number in numbers:
            connection, own_rows = watched[number], rows.get(number, range(len(chunks), len(chunks)))
            if not self._advance(number, connection, chunks, packets, own_rows, number in last):
                passes[own_rows.start : own_rows.stop] = False
                given += [(own_rows.start, part) for part in connection.given]
        result, source = _assembled(chunks, passes, given)
        self._given_out = source, [part for _, part in given]
        return result

    def _advance(
        self,
        number: int,
        connection: _Connection,
        chunks: StreamChunks,
        packets: Int64Array,
        rows: range,
        is_last: bool,
    ) -> bool:
        """Give a connection its new chunks; whether they pass as they are."""
        session, buffer = connection.session, memoryview(chunks.buffer)
        passes = session.state is State.CLOSED and not any(given.retained for given in connection.given)
        self._retained_bytes -= sum(given.size_bytes for given in connection.given)
        self._held_bytes -= connection.held_bytes
        for row in rows:
            side, start = int(chunks.side[row]), int(chunks.start[row])
            pieces = packets[:, chunks.piece_first[row] : chunks.piece_first[row + 1]]
            run = Run(int(chunks.offset[row]), buffer[start : start + int(chunks.length[row])], pieces)
            connection.sides[side].add(run, int(chunks.gap_before[row]), bool(chunks.ended[row]))
            connection.given[side].start_known = bool(chunks.start_known[row])
        connection.advance(is_last)
        self._held_bytes += connection.held_bytes
        if self._held_bytes > MAX_ALL_HELD_BYTES and session.state is State.HELD:
            session.close("tls_no_room")
        if session.state is State.CLOSED and session.why_closed and not connection.is_counted:
            self._count(session.why_closed)
            connection.is_counted = True
        for index in (0, 1):
            connection.give(index, is_last, passes)
            if session.state is State.OPENED:
                self.lost += [(number, index, lost_range) for lost_range in connection.sides[index].take_lost()]
        self._held_bytes -= connection.held_bytes
        connection.settle(is_last)
        self._held_bytes += connection.held_bytes
        if not connection.is_watched:
            del self._watched[number]
        self._forget_waiting(number)
        for index, ts_ns in connection.waiting():
            self._waiting[number, index] = ts_ns
        return passes

    def _forget_waiting(self, number: int) -> None:
        for side in (0, 1):
            self._waiting.pop((number, side), None)

    def retain(self, chunks: StreamChunks, consumed: Int64Array, wanted: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The arrays for ``Reassembler.retain`` of what `feed` got; keeps plaintext that the reader did not consume."""
        if self._given_out is None:
            return consumed, wanted
        source, given = self._given_out
        consumed_here, wanted_here, is_row = chunks.length.copy(), np.zeros(len(chunks), np.int64), source < len(chunks)
        consumed_here[source[is_row]], wanted_here[source[is_row]] = consumed[is_row], wanted[is_row]
        ends = np.cumsum([len(chunks) - 1, *(len(part.runs) for part in given)])[1:]  # the last run of each
        row_of = dict(zip(source.tolist(), range(len(source)), strict=True))
        for part, end in zip(given, ends.tolist(), strict=True):
            if part.runs:
                part.retain(int(consumed[row_of[end]]), int(wanted[row_of[end]]))
            self._retained_bytes += part.size_bytes
            part.is_cut = self._retained_bytes > MAX_RETAINED_BYTES
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
        return connection.sides[side].places.plain_offset(offset)

    def forget(self, numbers: Int64Array) -> None:
        """Drop connections that ended."""
        for number in numbers.tolist():
            connection = self._connections.pop(number, None)
            self._watched.pop(number, None)
            self._forget_waiting(number)
            self._held_bytes -= 0 if connection is None else connection.held_bytes

    def _find(self, chunks: StreamChunks) -> None:
        """Find connections that begin with a hello, or whose hello begins a packet and has secrets in the key log."""
        is_long = chunks.piece_length > HEADER_BYTES
        rows = np.repeat(np.arange(len(chunks)), np.diff(chunks.piece_first))[is_long]
        offsets = chunks.piece_offset[is_long]
        places = offsets + (chunks.start - chunks.offset)[rows]
        first = chunks.buffer[places]
        may_begin = (first == 0x16) & (chunks.buffer[places + 1] == 3)
        may_begin |= (offsets == 0) & np.isin(first, [*PROXY_BYTES])
        buffer = memoryview(chunks.buffer)
        for i in np.flatnonzero(may_begin).tolist():
            row, place = int(rows[i]), int(places[i])
            number, side = int(chunks.flow[row]), int(chunks.side[row])
            end = int(chunks.start[row] + chunks.length[row])
            at = hello_at(buffer[place:end]) if number not in self._connections else -1
            if at >= 0 and (offsets[i] == 0 or self._has_secrets(bytes(buffer[place + at + 11 : place + at + 43]))):
                # With a PROXY header that side alone begins in clear.
                begun = [bool(offsets[i] == 0) and (at == 0 or side != index) for index in (0, 1)]
                self._connections[number] = self._watched[number] = _Connection(number, self.keys, begun)
        if self.keys is not None and self.keys.has_traffic:
            late = np.unique(chunks.flow[~chunks.start_known & (chunks.offset == 0)]).tolist()
            for number in [number for number in late if number not in self._connections]:
                self._connections[number] = self._watched[number] = _Connection(number, self.keys, (True, True), True)

    def _has_secrets(self, random: bytes) -> bool:
        """Whether the key log has secrets for a client random."""
        keys = self.keys
        return keys is not None and bool(keys.secrets(random) or (keys.refresh() and keys.secrets(random)))


def _assembled(
    chunks: StreamChunks, passes: NDArray[np.bool_], given: Sequence[tuple[int, _Given]]
) -> tuple[StreamChunks, Int64Array]:
    """Chunks that pass and runs that are given out, each at its row; and where each came from: a row, or a run."""
    runs = [(row, part, run) for row, part in given for run in part.runs]
    new = np.array(
        [
            (
                part.flow, part.side, run.offset, 0, len(run.data), 0, run is not part.runs[-1] or part.has_gap_after,
                run is part.runs[-1] and part.has_ended, part.start_known, run.is_estimated,
            )
            for _, part, run in runs
        ], np.int64,
    ).reshape(-1, len(CHUNK_ROWS)).T  # fmt: skip
    new[3] = len(chunks.buffer) + np.cumsum(new[4]) - new[4]
    source = np.concatenate((np.flatnonzero(passes), len(chunks) + np.arange(len(runs))))
    order = np.argsort(np.append(np.flatnonzero(passes), [row for row, _, _ in runs]), kind="stable")
    source = source[order].astype(np.int64)
    parts = [run.packets for *_, run in runs]
    packets = np.concatenate((np.zeros((len(PIECE_ROWS), 0), np.int64), *parts), axis=1)
    firsts = np.cumsum([0, *np.diff(chunks.piece_first).tolist(), *(part.shape[1] for part in parts)])
    counts = np.diff(firsts)[source]
    bounds = np.cumsum([0, *counts.tolist()])
    pieces = np.repeat(firsts[source] - bounds[:-1], counts) + np.arange(bounds[-1])

    def merged(name: str, added: Int64Array) -> NDArray[Any]:
        column = getattr(chunks, name)
        return np.concatenate((column, added.astype(column.dtype)))

    return StreamChunks(
        buffer=np.concatenate((chunks.buffer, np.frombuffer(b"".join(run.data for *_, run in runs), np.uint8))),
        piece_first=bounds,
        **{name: merged(name, new[i])[source] for i, name in enumerate(CHUNK_ROWS)},
        **{f"piece_{name}": merged(f"piece_{name}", packets[i])[pieces] for i, name in enumerate(PIECE_ROWS)},
    ), source
