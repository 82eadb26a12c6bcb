"""Opens TLS connections: chunks of ciphertext to chunks of plaintext of the same connection and side.

In: `StreamChunks` of ``tcp``. Out: `StreamChunks` for ``decode``: bytes of opened connections are plaintext,
each with the packet that carried it. Other connections pass as they are, those without keys too, once it is
known that no key opens them. Called by: the pipeline. Promise: captured bytes of an opened side are plaintext, lost
ranges (problems) or overhead, each once.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.errors import CaptureError
from mqpcap.tcp.chunks import PIECE_NAMES, PIECE_ROWS, Chunk, StreamChunks, spliced
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.record_ciphers import HEADER_BYTES, MAX_FRAGMENT_BYTES
from mqpcap.tls.session import Session, State, TlsFacts
from mqpcap.tls.side import PROXY_BYTES, LostRange, Record, TlsSide, hello_at

OFFSET, LENGTH, TS_NS, NUMBER, FILE, ORDER, ACK, LAST = PIECE_ROWS
MAX_HELD_BYTES = 256 << 10
"""Bytes of a side that wait for the hellos or the keys."""
MAX_ALL_HELD_BYTES = 64 << 20
"""The same limit for all connections together: what more connections hold is read as if there was no key log."""
MAX_LATE_BYTES = 2 * (HEADER_BYTES + MAX_FRAGMENT_BYTES)
"""Bytes of a side that began before the capture: if it is TLS, a record begins and ends in them."""
MAX_RETAINED_BYTES = 128 << 20
"""Plaintext of all connections that the reader did not consume; beyond it a message is read as if it had a hole."""


class _Given(NamedTuple):
    """The chunks of a side that the reader gets, and their records."""

    side: TlsSide
    records: Sequence[Record]
    chunks: Sequence[Chunk]

    def retain(self, consumed: int, wanted: int) -> None:
        """Keep the records of the last chunk that the reader did not consume."""
        chunk = self.chunks[-1]
        first = chunk.offset + consumed
        if consumed < len(chunk.data) and not (chunk.gap_after or chunk.ended):
            self.side.records[:0] = [x.after(first) for x in self.records if x.offset + x.length > first]
            self.side.resume_at = first + wanted if wanted else 0


class _Connection:
    """A TLS connection; ``is_read``: there are no keys, so its hellos are read and its bytes pass."""

    def __init__(self, number: int, keys: KeyLog | None, is_late: bool) -> None:
        self.number, self.session, self.is_read = number, Session(keys, is_late), keys is None
        self.sides = TlsSide(self.session, 0), TlsSide(self.session, 1)
        self.kept_bytes = 0
        """As they were counted last."""
        self.is_counted = False

    def advance(self, is_final: bool) -> None:
        """Open what both sides have; each may wait for the other. ``is_final``: no byte follows."""
        session, (a, b) = self.session, self.sides
        if session.state is State.CLOSED and not self.is_read:
            return
        while a.advance(False) | b.advance(False):
            pass
        is_final |= max(a.held_bytes, b.held_bytes) > (MAX_LATE_BYTES if session.is_late else MAX_HELD_BYTES)
        if session.state is State.HELD:
            session.find_keys()
            if is_final:
                session.close()
        while session.state is State.OPENED and is_final and a.advance(True) | b.advance(True):
            pass

    def is_over(self) -> bool:
        """Whether its bytes pass from now on."""
        session, has_records = self.session, any(side.records for side in self.sides)
        has_hellos = session.server_hello is not None and session.client_hello is not None
        read_bytes = max(side.held_bytes + side.overhead_bytes for side in self.sides)
        return session.state is State.CLOSED and not has_records and (
            not self.is_read or has_hellos or read_bytes > MAX_HELD_BYTES
        )  # fmt: skip

    def give(self, side: TlsSide, is_final: bool) -> _Given | None:
        """Give out the opened records of a side; those that acknowledge unread bytes of its peer wait."""
        side.is_ahead = False
        if self.is_read or self.session.state is State.HELD or (side.plain_at < side.resume_at and not side.ended):
            return None
        other, records, packets = self.sides[1 - side.index], side.records, side.packets
        ahead = np.flatnonzero(packets[ACK] > other.known_to)
        if len(ahead) and not (is_final or other.ended or side.plain_at - side.plain_from > MAX_HELD_BYTES):
            records = [record for record in records if record.end <= packets[OFFSET, ahead[0]]]
        side.records = side.records[len(records) :]
        side.is_ahead = bool(side.records)
        ended = side.ended and not side.is_ahead and not side.is_over
        if not records and not ended:
            return None
        chunks = self._chunks(side, records or [Record(side.plain_at, 0, side.at, side.at, side.at)])
        side.resume_at, side.is_over, last = 0, side.is_over or ended, chunks[-1]
        has_gap = side.is_cut or side.plain_from > last.offset + len(last.data)
        chunks[-1] = last._replace(gap_after=has_gap, ended=ended)
        return _Given(side, records, chunks)

    def _chunks(self, side: TlsSide, records: Sequence[Record]) -> list[Chunk]:
        places = np.array([record[:5] for record in records], np.int64).T
        packets = _plain_packets(places, side.packets, self.sides[1 - side.index])
        follows = places[0, 1:] == places[0, :-1] + places[1, :-1]
        is_estimated = np.array([record.is_estimated for record in records])
        breaks = np.flatnonzero(np.append(True, ~follows) | is_estimated).tolist()
        bounds = [*np.searchsorted(packets[OFFSET], places[0, breaks]).tolist(), packets.shape[1]]
        return [
            Chunk(
                self.number, side.index, records[i].offset, b"".join(record.content for record in records[i:j]),
                packets[:, bounds[k] : bounds[k + 1]], True, False, side.start_known, records[i].is_estimated,
            )
            for k, (i, j) in enumerate(zip(breaks, [*breaks[1:], len(records)], strict=True))
        ]  # fmt: skip

    def facts(self) -> TlsFacts:
        """The facts of its hellos."""
        facts = self.session.facts
        facts.is_opened = self.session.state is State.OPENED
        if facts.is_opened:
            facts.overhead_bytes = self.sides[0].overhead_bytes, self.sides[1].overhead_bytes
        return facts


def _plain_packets(places: Int64Array, packets: Int64Array, other: TlsSide) -> Int64Array:
    """The packets of the plaintext of records: rows OFFSET to LAST.

    A record that came in several packets has a column for each, and one without bytes for the packet that completed it:
    a message is complete with its records.
    """
    plain_at, length, content, start, end = places
    if not length.any():
        return packets[:, :0]
    first, last, low, high = (
        np.searchsorted(packets[OFFSET], x, "right") - 1 for x in (content, content + length - 1, start, end - 1)
    )
    completing, is_split = high.copy(), low < high
    for i in np.flatnonzero(is_split).tolist():
        of_record = slice(low[i], high[i] + 1)
        completing[i] = low[i] + np.lexsort((packets[NUMBER, of_record], packets[FILE, of_record]))[-1]
    counts = last - first + 1 + is_split
    record = np.repeat(np.arange(len(counts)), counts)
    k = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
    after = counts[record] - 1 - k
    is_mark = (after == 0) & is_split[record]
    columns = packets[:, np.where(is_mark, completing[record], first[record] + k)]
    begin = np.maximum(columns[OFFSET], content[record])
    until = np.minimum(columns[OFFSET] + columns[LENGTH], (content + length)[record])
    columns[LENGTH] = np.where(is_mark, 0, until - begin)
    columns[OFFSET] = plain_at[record] + np.where(is_mark, length[record], begin - content[record])
    columns[ORDER] = packets[ORDER, completing[record]]
    columns[LAST] = np.where(is_split[record], after, 0)
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
        """Connections whose bytes are still read."""
        self._waiting: dict[tuple[int, int], int] = {}
        self._kept_bytes = 0
        self._given_out: tuple[Int64Array, list[_Given], list[_Connection]] | None = None

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
        self._keep()
        self._find(chunks)
        if self.keys is not None and self.keys.forgotten_count:
            self.counts["tls_forgotten"] = self.keys.forgotten_count
        starts = np.flatnonzero(np.append(True, np.diff(chunks.flow) != 0)[: len(chunks)]).tolist()
        rows = dict(zip(chunks.flow[starts].tolist(), map(range, starts, [*starts[1:], len(chunks)]), strict=True))
        last = {*self._watched} if ending is None else {*ending}
        connections = [self._watched[x] for x in {**rows, **dict.fromkeys(last)} if x in self._watched]
        if not connections:
            return chunks
        pieces = np.stack([getattr(chunks, f"piece_{name}") for name in PIECE_NAMES])
        passes, given, added = np.ones(len(chunks), np.bool_), [], []
        for connection in connections:
            own_rows, is_last = rows.get(connection.number, range(len(chunks), len(chunks))), connection.number in last
            self._advance(connection, chunks, pieces, own_rows, is_last)
            passes[own_rows.start : own_rows.stop] = connection.is_read
            for side in connection.sides:
                part = connection.give(side, is_last)
                if part is not None:
                    given.append(part)
                    added += [(own_rows.start, chunk) for chunk in part.chunks]
                self._waiting.pop((connection.number, side.index), None)
                if (side.is_ahead or connection.session.state is State.HELD) and side.packets.shape[1]:
                    self._waiting[connection.number, side.index] = int(side.packets[TS_NS, 0])
        result, source = spliced(chunks, passes, added)
        self._given_out = source, given, connections
        return result

    def _advance(
        self, connection: _Connection, chunks: StreamChunks, pieces: Int64Array, rows: range, is_last: bool
    ) -> None:
        """Give a connection its new chunks, and open what can be opened."""
        session, buffer = connection.session, memoryview(chunks.buffer)
        for row in rows:
            side, start = connection.sides[int(chunks.side[row])], int(chunks.start[row])
            data, of_row = buffer[start : start + int(chunks.length[row])], slice(*chunks.piece_first[row : row + 2])
            gap_before, is_end = int(chunks.gap_before[row]), bool(chunks.ended[row])
            side.add(int(chunks.offset[row]), data, pieces[:, of_row], gap_before, is_end)
            side.start_known = bool(chunks.start_known[row])
        connection.advance(is_last)
        kept_bytes = self._kept_bytes - connection.kept_bytes + sum(side.held_bytes for side in connection.sides)
        if kept_bytes > MAX_ALL_HELD_BYTES and session.state is State.HELD:
            session.close("tls_no_room")
        if session.state is State.CLOSED and session.why_closed and not connection.is_counted:
            self._count(session.why_closed)
            connection.is_counted = True
        for side in connection.sides:
            if session.state is State.CLOSED and not connection.is_read:
                side.pass_in_clear()
            if session.state is State.OPENED:
                self.lost += [(connection.number, side.index, lost_range) for lost_range in side.take_lost()]

    def retain(self, chunks: StreamChunks, consumed: Int64Array, wanted: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The arrays for ``Reassembler.retain`` of what `feed` got; keeps plaintext that the reader did not consume."""
        if self._given_out is None:
            return consumed, wanted
        source, given, _ = self._given_out
        all_consumed, all_wanted = np.zeros((2, len(chunks) + sum(len(part.chunks) for part in given)), np.int64)
        all_consumed[: len(chunks)] = chunks.length
        all_consumed[source], all_wanted[source] = consumed, wanted
        last = len(chunks) - 1
        for part in given:
            last += len(part.chunks)
            part.retain(int(all_consumed[last]), int(all_wanted[last]))
        self._keep()
        return all_consumed[: len(chunks)], all_wanted[: len(chunks)]

    def _keep(self) -> None:
        """Copy what the connections of the last feed keep, as its buffer is freed; drop those that are over."""
        for connection in self._given_out[2] if self._given_out is not None else ():
            if connection.is_over():
                self._watched.pop(connection.number, None)
                connection.sides = TlsSide(connection.session, 0), TlsSide(connection.session, 1)
            for side in connection.sides:
                side.keep(connection.session.state is State.HELD)
            kept_bytes = sum(side.held_bytes + side.plain_at - side.plain_from for side in connection.sides)
            self._kept_bytes += kept_bytes - connection.kept_bytes
            connection.kept_bytes = kept_bytes
            for side in connection.sides:
                side.is_cut = self._kept_bytes > MAX_RETAINED_BYTES
        self._given_out = None

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
            self._kept_bytes -= 0 if connection is None else connection.kept_bytes
            for side in (0, 1):
                self._waiting.pop((number, side), None)

    def _find(self, chunks: StreamChunks) -> None:
        """Find connections that begin with a hello, or whose hello begins a packet and has secrets in the key log."""
        is_long = chunks.piece_length > HEADER_BYTES
        rows = np.repeat(np.arange(len(chunks)), np.diff(chunks.piece_first))[is_long]
        offsets = chunks.piece_offset[is_long]
        places = offsets + (chunks.start - chunks.offset)[rows]
        first = chunks.buffer[places]
        may_begin = (first == 0x16) & (chunks.buffer[places + 1] == 3)
        may_begin |= (offsets == 0) & np.isin(first, [*PROXY_BYTES])
        is_late = ~chunks.start_known & (chunks.offset == 0) & (self.keys is not None and self.keys.has_traffic)
        found = dict.fromkeys(chunks.flow[is_late].tolist(), True)
        for row, place, offset in zip(*(x[may_begin].tolist() for x in (rows, places, offsets)), strict=True):
            data = memoryview(chunks.buffer)[place : int(chunks.start[row] + chunks.length[row])]
            begin = hello_at(data)
            if begin >= 0 and (offset == 0 or self._has_secrets(bytes(data[begin + 11 : begin + 43]))):
                found[int(chunks.flow[row])] = False
        for number in found.keys() - self._connections.keys():
            self._connections[number] = self._watched[number] = _Connection(number, self.keys, found[number])

    def _has_secrets(self, random: bytes) -> bool:
        """Whether the key log has secrets for a client random."""
        keys = self.keys
        return keys is not None and bool(keys.secrets(random) or (keys.refresh() and keys.secrets(random)))
