"""Opens TLS connections: chunks of ciphertext to chunks of plaintext of the same connection and side.

In: `StreamChunks` of ``tcp``. Out: `StreamChunks`, where bytes of opened connections are plaintext. Other connections
pass as they are, those without keys too, once it is known that no key opens them. Called by: the pipeline. Promise:
captured bytes of an opened side are plaintext, lost ranges (problems) or overhead, each once.
"""

from collections.abc import Collection, Iterable

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.errors import CaptureError
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.derived_streams import MAX_HELD_BYTES, DerivedConnection, DerivedStreams, State
from mqpcap.tls.key_log import KeyLog
from mqpcap.tls.record_ciphers import HEADER_BYTES, MAX_FRAGMENT_BYTES
from mqpcap.tls.session import Session, TlsFacts
from mqpcap.tls.side import HANDSHAKE_RECORD, PROXY_BYTES, TlsSide, facts_of_hellos, hello_at

MAX_LATE_BYTES = 2 * (HEADER_BYTES + MAX_FRAGMENT_BYTES)
"""Bytes of a side that began before the capture: if it is TLS, a record begins and ends in them."""


class TlsConnection(DerivedConnection[TlsSide]):
    """A TLS connection; it passes if there are no keys, and its hellos are read."""

    def __init__(self, number: int, keys: KeyLog | None, is_late: bool) -> None:
        self.session = Session(keys, is_late)
        super().__init__(number)
        self.passes, self.is_counted = keys is None, False
        """``is_counted``: whether it is counted as not opened."""

    def new_sides(self) -> tuple[TlsSide, TlsSide]:
        """Both sides, without bytes."""
        return TlsSide(self.session, 0), TlsSide(self.session, 1)

    @property
    def state(self) -> State:
        """Whether its keys are known."""
        return self.session.state

    def close(self, why: str) -> None:
        """Let its bytes pass."""
        self.session.close(f"tls_{why}")

    def advance(self) -> None:
        """Open what both sides have; each may wait for the other."""
        session, (a, b) = self.session, self.sides
        if session.state is State.CLOSED and not self.passes:
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
        is_read = not self.passes or self.session.has_hellos or is_long
        return is_read and super().is_over()


class Opener(DerivedStreams[TlsConnection]):
    """Opens the TLS connections of a capture with the secrets of ``keys``; without keys it reads their hellos."""

    def __init__(self, keys: KeyLog | None) -> None:
        super().__init__()
        self.keys = keys
        self._facts = dict[int, TlsFacts]()
        """Of connections whose hellos came together, without keys: they need no objects."""

    def __getstate__(self) -> dict[str, object]:
        """The state without secrets, between two windows."""
        return super().__getstate__() | {"keys": None}

    def use_keys(self, keys: KeyLog | None) -> None:
        """Go on with a key log, after the state was loaded."""
        self.keys = keys
        for connection in self.connections.values():
            connection.session.use_keys(keys)

    def add_secrets(self, lines: bytes) -> None:
        """Add the lines of a key log that the capture holds."""
        try:
            self.keys = KeyLog.opened(None) if self.keys is None else self.keys
        except CaptureError:
            self.counts["tls_no_library"] += 1
        else:
            self.keys.add(lines.split(b"\n"))

    def note(self, connection: TlsConnection) -> None:
        """Count a connection that is not opened."""
        session = connection.session
        if session.why_closed and not connection.is_counted:
            self.counts[session.why_closed] += 1
            connection.is_counted = True

    def facts(self, numbers: Int64Array) -> dict[int, TlsFacts]:
        """By number, the facts of hellos of those connections that are TLS."""
        found = {number: self._facts[number] for number in numbers.tolist() if number in self._facts}
        for number in numbers.tolist() if self.connections else ():
            if (connection := self.connections.get(number)) is not None:
                facts, is_opened = connection.session.facts, connection.session.state is State.OPENED
                a, b = (side.overhead_bytes if is_opened else 0 for side in connection.sides)
                facts.is_opened, facts.overhead_bytes = is_opened, (a, b)
                found[number] = facts
        return found

    def find(self, chunks: StreamChunks) -> Iterable[TlsConnection]:
        """The connections that begin with a hello, or whose hello begins a packet and has secrets in the key log."""
        has_keys = self.keys is not None
        # Without keys only hellos that begin a side matter.
        is_long = (chunks.piece_length > HEADER_BYTES) & (has_keys | (chunks.piece_offset == 0))
        rows = np.repeat(np.arange(len(chunks)), np.diff(chunks.piece_first))[is_long]
        offsets = chunks.piece_offset[is_long]
        places = offsets + (chunks.start - chunks.offset)[rows]
        first_byte = chunks.buffer[places]
        may_begin = (first_byte == HANDSHAKE_RECORD) | ((offsets == 0) & np.isin(first_byte, [*PROXY_BYTES]))
        is_late = ~chunks.start_known & (chunks.offset == 0) & (self.keys is not None and self.keys.has_traffic)
        lateness = dict.fromkeys(chunks.flow[is_late].tolist(), True)
        rows, buffer = rows[may_begin], memoryview(chunks.buffer)
        columns = chunks.flow[rows], places[may_begin], (chunks.start + chunks.length)[rows], offsets[may_begin]
        for number, place, end, offset in zip(*(x.tolist() for x in columns), strict=True):
            data = buffer[place:end]
            begin = hello_at(data)
            if begin >= 0 and (offset == 0 or self._has_secrets(bytes(data[begin + 11 : begin + 43]))):
                lateness[number] = False
        if self.keys is not None and self.keys.forgotten_count:
            self.counts["tls_forgotten"] = self.keys.forgotten_count
        new = lateness.keys() - self.connections.keys() - self._facts.keys()
        if not has_keys:
            self._facts |= _facts_together(chunks, new)
        return [TlsConnection(x, self.keys, lateness[x]) for x in new - self._facts.keys()]

    def forget(self, numbers: Int64Array) -> None:
        """Drop connections that ended."""
        super().forget(numbers)
        for number in numbers.tolist() if self._facts else ():
            self._facts.pop(number, None)

    def _has_secrets(self, key: bytes) -> bool:
        """Whether the key log has secrets for a client random."""
        return self.keys is not None and bool(
            self.keys.secrets(key) or (self.keys.refresh() and self.keys.secrets(key))
        )


def _facts_together(chunks: StreamChunks, numbers: Collection[int]) -> dict[int, TlsFacts]:
    """The facts of those connections whose sides begin, in these chunks, with their hellos."""
    facts, wanted = dict[int, TlsFacts](), np.array([*numbers], np.int64)
    rows = np.searchsorted(chunks.flow, wanted)
    others = np.minimum(rows + 1, len(chunks) - 1)
    begins = (chunks.flow[others] == wanted) & (chunks.offset[rows] == 0) & (chunks.offset[others] == 0)
    begins &= (chunks.side[rows] == 0) & (chunks.side[others] == 1)
    buffer, ends = memoryview(chunks.buffer), chunks.start + chunks.length
    places = (x[y[begins]].tolist() for y in (rows, others) for x in (chunks.start, ends))
    for number, a_start, a_end, b_start, b_end in zip(wanted[begins].tolist(), *places, strict=True):
        of_hellos = facts_of_hellos((buffer[a_start:a_end], buffer[b_start:b_end]))
        if of_hellos is not None:
            facts[number] = of_hellos
    return facts
