"""Opens TLS connections: chunks of ciphertext to chunks of plaintext of the same connection and side.

In: `StreamChunks` of ``tcp``. Out: `StreamChunks` for ``decode``: bytes of opened connections are plaintext,
each with the packet that carried it. Other connections pass as they are, those without keys too, once it is
known that no key opens them. Called by: the pipeline. Promise: captured bytes of an opened side are plaintext, lost
ranges (problems) or overhead, each once.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from io import BytesIO

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.errors import CaptureError
from mqpcap.tcp.chunks import PIECE_NAMES, TS_NS, Chunk, StreamChunks, spliced
from mqpcap.tcp.derived_streams import NO_LIMIT
from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.record_ciphers import HEADER_BYTES, MAX_FRAGMENT_BYTES
from mqpcap.tls.session import Session, State, TlsFacts
from mqpcap.tls.side import PROXY_BYTES, LostRange, TlsSide, hello_at

MAX_HELD_BYTES = 256 << 10
"""Bytes of a side that wait for the hellos or the keys."""
MAX_ALL_HELD_BYTES = 64 << 20
"""The same limit for all connections together: what more connections hold is read as if there was no key log."""
MAX_LATE_BYTES = 2 * (HEADER_BYTES + MAX_FRAGMENT_BYTES)
"""Bytes of a side that began before the capture: if it is TLS, a record begins and ends in them."""
MAX_RETAINED_BYTES = 128 << 20
"""Plaintext of all connections that the reader did not consume; beyond it a message is read as if it had a hole."""


class _Connection:
    """A TLS connection; ``is_read``: there are no keys, so its hellos are read and its bytes pass."""

    def __init__(self, number: int, keys: KeyLog | None, is_late: bool) -> None:
        self.number, self.session, self.is_read = number, Session(keys, is_late), keys is None
        self.sides = TlsSide(self.session, 0), TlsSide(self.session, 1)
        self.kept_bytes, self.is_counted, self.is_final = 0, False, False
        """Bytes as they were counted last; whether it is counted as not opened; whether no byte follows."""

    def advance(self) -> None:
        """Open what both sides have; each may wait for the other."""
        session, (a, b) = self.session, self.sides
        if session.state is State.CLOSED and not self.is_read:
            return
        while a.advance(False) | b.advance(False):
            pass
        is_final = self.is_final or max(a.held_bytes, b.held_bytes) > (
            MAX_LATE_BYTES if session.is_late else MAX_HELD_BYTES
        )
        if session.state is State.HELD:
            session.find_keys(is_final)
            while is_final and session.suite is not None and a.advance(False) | b.advance(False):
                pass
            if is_final and session.state is State.HELD:
                session.close()
        while session.state is State.OPENED and is_final and a.advance(True) | b.advance(True):
            pass

    def is_over(self) -> bool:
        """Whether its bytes pass from now on."""
        is_long = max(side.held_bytes + side.overhead_bytes for side in self.sides) > MAX_HELD_BYTES
        is_read = not self.is_read or self.session.has_hellos or is_long
        return self.session.state is State.CLOSED and is_read and not any(side.records for side in self.sides)

    def give(self, side: TlsSide) -> Sequence[Chunk]:
        """Give out what is opened of a side, as far as the reader can know what it acknowledges."""
        other = self.sides[1 - side.index]
        if self.is_read or self.session.state is State.HELD:
            return ()
        all_known = self.is_final or other.ended or side.kept_bytes > MAX_HELD_BYTES
        return side.give(self.number, side.index, NO_LIMIT if all_known else other.known_to, other.acknowledged)


class Opener:
    """Opens the TLS connections of a capture with the secrets of ``keys``; without keys it reads their hellos.

    ``counts``: connections that could not be opened, by reason. ``lost``: by connection and side, captured bytes of
    opened connections that could not be opened.
    """

    def __init__(self, keys: KeyLog | None) -> None:
        self.keys, self.counts, self.lost = keys, Counter[str](), list[tuple[int, int, LostRange]]()
        self._connections, self._watched = dict[int, _Connection](), dict[int, _Connection]()
        """All connections, and those whose bytes are still read."""
        self.waiting_since = dict[tuple[int, int], int]()
        """Sides (connection, 0 or 1) with bytes that are not given out yet, and the time of the first (ns)."""
        self._kept_bytes = 0
        self._given_out: tuple[Int64Array, list[_Connection]] | None = None

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
            self.keys = KeyLog.opened(None) if self.keys is None else self.keys
        except CaptureError:
            self.counts["tls_no_library"] += 1
        else:
            self.keys.add(BytesIO(lines))

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
        passes, added = np.ones(len(chunks), np.bool_), []
        for connection in connections:
            own_rows = rows.get(connection.number, range(len(chunks), len(chunks)))
            connection.is_final = connection.number in last
            self._advance(connection, chunks, pieces, own_rows)
            passes[own_rows.start : own_rows.stop] = connection.is_read
            for side in connection.sides:
                added += [(own_rows.start, chunk) for chunk in connection.give(side)]
                self.waiting_since.pop((connection.number, side.index), None)
                if (side.is_ahead or connection.session.state is State.HELD) and side.pieces.shape[1]:
                    self.waiting_since[connection.number, side.index] = int(side.pieces[TS_NS, 0])
        result, source = spliced(chunks, passes, added)
        self._given_out = source, connections
        return result

    def _advance(self, connection: _Connection, chunks: StreamChunks, pieces: Int64Array, rows: range) -> None:
        """Give a connection its new chunks, and open what can be opened."""
        session, buffer = connection.session, memoryview(chunks.buffer)
        for row in rows:
            side, start = connection.sides[int(chunks.side[row])], int(chunks.start[row])
            data, of_row = buffer[start : start + int(chunks.length[row])], slice(*chunks.piece_first[row : row + 2])
            gap_before, is_end = int(chunks.gap_before[row]), bool(chunks.ended[row])
            side.add(int(chunks.offset[row]), data, pieces[:, of_row], gap_before, is_end)
            side.start_known = bool(chunks.start_known[row])
        connection.advance()
        kept_bytes = self._kept_bytes - connection.kept_bytes + sum(side.held_bytes for side in connection.sides)
        if kept_bytes > MAX_ALL_HELD_BYTES and session.state is State.HELD:
            session.close("tls_no_room")
        if session.state is State.CLOSED and session.why_closed and not connection.is_counted:
            self.counts[session.why_closed] += 1
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
        source, n = self._given_out[0], len(chunks)
        all_consumed, all_wanted = np.zeros((2, n + len(source)), np.int64)
        all_consumed[:n], all_consumed[source], all_wanted[source] = chunks.length, consumed, wanted
        last = n - 1
        for side in (side for connection in self._given_out[1] for side in connection.sides if side.given[1]):
            last += len(side.given[1])
            side.retain(int(all_consumed[last]), int(all_wanted[last]))
        self._keep()
        return all_consumed[:n], all_wanted[:n]

    def _keep(self) -> None:
        """Copy what the connections of the last feed keep, as its buffer is freed; drop those that are over."""
        for connection in self._given_out[1] if self._given_out is not None else ():
            if connection.is_over():
                self._watched.pop(connection.number, None)
                connection.sides = TlsSide(connection.session, 0), TlsSide(connection.session, 1)
            kept_bytes = sum(side.held_bytes + side.kept_bytes for side in connection.sides)
            self._kept_bytes += kept_bytes - connection.kept_bytes
            connection.kept_bytes = kept_bytes
            for side in connection.sides:
                side.keep(connection.session.state is State.HELD)
                side.is_cut = self._kept_bytes > MAX_RETAINED_BYTES
        self._given_out = None

    def facts(self, number: int) -> TlsFacts | None:
        """The facts of a connection's hellos; None if it is not TLS."""
        if (connection := self._connections.get(number)) is None:
            return None
        facts, is_opened = connection.session.facts, connection.session.state is State.OPENED
        a, b = (side.overhead_bytes if is_opened else 0 for side in connection.sides)
        facts.is_opened, facts.overhead_bytes = is_opened, (a, b)
        return facts

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
            self._kept_bytes -= 0 if connection is None else connection.kept_bytes
            for side in (0, 1):
                self.waiting_since.pop((number, side), None)

    def _find(self, chunks: StreamChunks) -> None:
        """Find connections that begin with a hello, or whose hello begins a packet and has secrets in the key log."""
        is_long = chunks.piece_length > HEADER_BYTES
        rows = np.repeat(np.arange(len(chunks)), np.diff(chunks.piece_first))[is_long]
        offsets = chunks.piece_offset[is_long]
        places = offsets + (chunks.start - chunks.offset)[rows]
        first = chunks.buffer[places]
        may_begin = (first == 0x16) | ((offsets == 0) & np.isin(first, [*PROXY_BYTES]))
        is_late = ~chunks.start_known & (chunks.offset == 0) & (self.keys is not None and self.keys.has_traffic)
        found = dict.fromkeys(chunks.flow[is_late].tolist(), True)
        for row, place, offset in zip(*(x[may_begin].tolist() for x in (rows, places, offsets)), strict=True):
            data = memoryview(chunks.buffer)[place : int(chunks.start[row] + chunks.length[row])]
            begin = hello_at(data)
            if begin >= 0 and (offset == 0 or self._has_secrets(bytes(data[begin + 11 : begin + 43]))):
                found[int(chunks.flow[row])] = False
        for number in found.keys() - self._connections.keys():
            self._connections[number] = self._watched[number] = _Connection(number, self.keys, found[number])

    def _has_secrets(self, key: bytes) -> bool:
        """Whether the key log has secrets for a client random."""
        return self.keys is not None and bool(
            self.keys.secrets(key) or (self.keys.refresh() and self.keys.secrets(key))
        )
