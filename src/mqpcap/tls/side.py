"""One direction of a TLS connection: ciphertext chunks to plaintext, record by record.

In: chunks of the side, in order. Out: `OpenedRecords`, with the place of each in the ciphertext, and problems. A side
waits where its keys are not known yet, or where its record is not complete.

The hard part is what is missing. A record with a hole is lost; where its header was captured, the next one begins at
its end. Else the side searches: it tries each header that is plausible with the sequence numbers and, in TLS 1.3, the
keys that may follow. In the plaintext stream a lost record is as long as its content (TLS 1.2 with AEAD), else as what
may be content; a lost range of unknown records is as long as its bytes. Such a length is an *estimate*: the reader
must not conclude from it where a message ends.
"""

import re
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.records import dataclass
from mqpcap.tls import handshake
from mqpcap.tls.handshake import HandshakeReader
from mqpcap.tls.record_ciphers import (
    HEADER_BYTES,
    MAX_FRAGMENT_BYTES,
    PREVIOUS_BYTES,
    Opened,
    RecordCipher,
    Shape,
)
from mqpcap.tls.session import LATE_RECORDS, Session, State

CHANGE_CIPHER_SPEC, HANDSHAKE, APPLICATION_DATA, MAX_TYPE = 20, 22, 23, 24
MAX_KEY_UPDATES = 4
"""Key updates that are tried after missing records."""
MAX_TRIAL_BYTES = 16 << 20
"""Bytes of records that are decrypted on trial after a gap; what a longer gap holds may not be found again."""
MAX_BAD_RECORDS = 16
"""Records in a row that do not open; after them the side is given up."""
MAX_PLACES = 1 << 11
"""Records of earlier windows whose place in both streams is remembered."""
MAX_PROXY_BYTES = 4 << 10
"""Bytes of a first packet that are searched for a hello after a PROXY header."""
_INFINITE = 1 << 62
_HEADER = re.compile(rb"[\x14-\x17]\x03[\0-\x04][\0-\x48][\0-\xff]", re.DOTALL)
_HELLO = re.compile(rb"\x16\x03[\0-\x04][\0-\x48].[\x01\x02]", re.DOTALL)
PROXY_BYTES = b"P\r"


class Chunk(NamedTuple):
    """Contiguous bytes of a side; ``packets``: rows as in `StreamChunks`, a column for each piece."""

    offset: int
    data: memoryview | bytes
    packets: Int64Array
    ended: bool

    def __reduce__(self) -> tuple[object, ...]:
        return Chunk, (self.offset, bytes(self.data), self.packets, self.ended)

    def copied(self) -> "Chunk":
        """A copy that does not need the buffer of the window."""
        return Chunk(self.offset, bytes(self.data), self.packets.copy(), self.ended)


class LostRange(NamedTuple):
    """Captured bytes that could not be opened, with their first packet.

    ``offset``: in the plaintext stream. ``at``: in the ciphertext.
    """

    offset: int
    length: int
    reason: str
    at: int
    ts_ns: int
    packet: int


@dataclass(slots=True)
class OpenedRecords:
    """Plaintext in order: ``places`` has for each record its plaintext offset, length, and in the ciphertext the place
    of its first content byte, its own first byte and its end. ``contents``: the bytes. ``estimated``: plaintext
    offsets that follow a gap of unknown length."""

    places: list[tuple[int, int, int, int, int]]
    contents: list[bytes | memoryview]
    estimated: set[int]

    def take(self, count: int) -> tuple[list[bytes | memoryview], list[int]]:
        """Remove the first records: their contents, and the offsets that are estimated."""
        taken = self.contents[:count]
        self.places, self.contents = self.places[count:], self.contents[count:]
        estimated = [*self.estimated]
        self.estimated = self.estimated if self.places else set()
        return taken, estimated


PLACE_END = 4
"""The end of a record in its place."""


class TlsSide:
    """A side; ``at``: ciphertext before this offset is done, and ``plain_at`` is its plaintext offset.

    ``begun``: TLS begins at ``at``; else it begins with the hello that begins a packet.
    """

    def __init__(self, session: Session, index: int, begun: bool) -> None:
        self.session, self.index, self.at, self.plain_at = session, index, 0, 0
        self.records = OpenedRecords([], [], set())
        self.lost: list[LostRange] = []
        self.packets: list[Int64Array] = []
        self.ended = False
        self.overhead_bytes = 0
        self._begun = begun
        self._queue: deque[Chunk] = deque()
        self._ends_after_queue = False
        self._data = memoryview(b"")
        self._base = 0
        self._handshake = HandshakeReader()
        self._ciphers: list[RecordCipher] = []
        self._is_encrypted = False
        self._seq = 0
        self._nonce_shift = 0
        self._previous = b""
        self._broken_to = 0
        self._content = (0, 0)
        self._is_exact = True
        self._searching_from: int | None = None
        self._plain_before = 0
        self._trial_bytes = 0
        self._late_from = 0
        """Bytes from ``at`` on in which no record was found by trial."""
        self._why_lost = ""
        self._is_stopped = False
        self._bad_count = 0
        self._ends, self._plain_ends = array("q"), array("q")
        self._gaps: list[tuple[int, int]] = []

    def __getstate__(self) -> dict[str, object]:
        """The state without keys, between two windows."""
        generation = len(self._ciphers), self._ciphers[-1].updates if self._ciphers else 0
        return self.__dict__ | {"_data": bytes(self._data), "_ciphers": [], "_generation": generation}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._data = memoryview(self._data)

    def use_keys(self) -> None:
        """Go on with the keys of the session, after the state was loaded."""
        count, updates = self.__dict__.pop("_generation")
        ciphers = [*self.session.ciphers(self.index, memoryview(b""))]
        for _ in range(updates):
            ciphers = [x for cipher in ciphers[-1:] if (x := cipher.updated()) is not None]
        self._ciphers = ciphers[len(ciphers) - count :] if count else []
        if count and not ciphers:
            self._stop("tls")

    # -- input ---------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The end of the bytes that are read; more may be queued."""
        return self._base + len(self._data)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for keys or for the end of a record."""
        return self.end - self.at + sum(len(chunk.data) for chunk in self._queue)

    def add(self, chunk: Chunk, gap_before: int) -> None:
        """Queue a chunk; the bytes before the first, and before its gap, were given out in clear."""
        if not self._ends:
            self.at = self.plain_at = self._base = chunk.offset - gap_before
            self._note_place()
            if self.session.is_late:
                self._begin_search("tls: began before the capture")
        self._queue.append(chunk)

    def advance(self, is_final: bool) -> bool:
        """Open what can be opened; whether anything was done. ``is_final``: no key will come."""
        began = self.at, len(self._queue), len(self._ciphers)
        while self._open_records(is_final) and self._queue and not self.ended:
            chunk = self._queue.popleft()
            if chunk.offset != self.end:
                self._pass_gap(chunk.offset)
            rest = self._data[self.at - self._base :]
            self._data = memoryview(b"".join((rest, chunk.data)) if len(rest) else chunk.data)
            self._base = self.at
            self.packets.append(chunk.packets)
            self._ends_after_queue = chunk.ended
        if self._ends_after_queue and not self._queue and not self.ended and self._open_records(is_final):
            self._break_record()
            self.ended = True
        return began != (self.at, len(self._queue), len(self._ciphers))

    def take_lost(self) -> list[LostRange]:
        """The lost ranges; while the side searches, what was lost may turn out to be no data."""
        if self._searching_from is not None and not self.ended:
            return []
        lost, self.lost = self.lost, []
        return lost

    @property
    def known_to(self) -> int:
        """Acknowledgements up to this offset have a place in the plaintext: whole records, and a part of the next."""
        head = self._data[self.at - self._base :][:HEADER_BYTES]
        is_record = len(head) == HEADER_BYTES and self._searching_from is None and is_plausible(head)
        return self.at + (record_size(head) - 1 if is_record else 0)

    @property
    def next_plain(self) -> int:
        """The plaintext offset of what is given out next."""
        return self.records.places[0][0] if self.records.places else self.plain_at

    def keep(self) -> None:
        """Copy what is not done, as the buffer of the window is freed."""
        kept_from = self.records.places[0][3] if self.records.places else self.at
        self._data = memoryview(bytes(self._data[self.at - self._base :]))
        self._base = self.at
        self._queue = deque(chunk.copied() for chunk in self._queue)
        del self._ends[:-MAX_PLACES], self._plain_ends[:-MAX_PLACES]
        if self.packets:
            packets = np.concatenate(self.packets, axis=1)
            self.packets = [packets[:, packets[0] + packets[1] > kept_from]] if kept_from < self.end else []

    # -- records -------------------------------------------------------------------------------------------

    def _open_records(self, is_final: bool) -> bool:
        """Open records up to the end of the data; False if keys are missing."""
        while self.at < self.end:
            start = self.at - self._base
            if not self._begun:
                self._pass_plain()
            elif self._is_stopped:
                self._lose(self.end)
            elif self._broken_to > self.at:
                self._lose(min(self._broken_to, self.end))
            elif self._searching_from is not None:
                if not self.session.has_keys and not is_final:
                    if not self._search_late():
                        return False
                elif not self._search(self._searching_from):
                    return True
            elif not is_plausible(head := self._data[start : start + HEADER_BYTES]):
                self._begin_search("tls: not a record")
            elif not self._open_data():
                size = record_size(head)
                if size > len(self._data) - start:
                    return True
                if not self._take(self._data[start : start + size]):
                    if not is_final:
                        return False
                    self._stop("tls")
        return True

    def _open_data(self) -> bool:
        """Open records of application data that follow each other, the usual case; False if there is none."""
        if len(self._ciphers) != 1 or self.session.state is not State.OPENED:
            return False
        cipher, data, base, records = self._ciphers[0], self._data, self._base, self.records
        begin = end = self.at - base
        plain_at, head_len, size = self.plain_at, cipher.shape.head_len, 0
        while len(data) - end >= HEADER_BYTES and data[end] == APPLICATION_DATA and data[end + 1] == 3:
            size = HEADER_BYTES + (data[end + 3] << 8 | data[end + 4])
            opened = cipher.open(self._seq, data[end : end + size], self._previous) if end + size <= len(data) else None
            if opened is None or opened[0] != APPLICATION_DATA:
                break
            start, end, content = end, end + size, opened[1]
            if content:
                records.places.append((plain_at, len(content), base + start + head_len, base + start, base + end))
                records.contents.append(content)
                plain_at += len(content)
                self._ends.append(base + end)
                self._plain_ends.append(plain_at)
            if cipher.is_chained:
                self._previous = bytes(data[max(end - PREVIOUS_BYTES, 0) : end])
            self._nonce_shift = cipher.nonce(data[start:end]) - self._seq
            self._seq += 1
        if end == begin:
            return False
        self._bad_count = 0
        self.overhead_bytes += end - begin - (plain_at - self.plain_at)
        self.at, self.plain_at = base + end, plain_at
        self._note_place()
        return True

    def _take(self, record: memoryview) -> bool:
        """Take a whole record; False if its keys are not known yet."""
        kind, session = record[0], self.session
        if kind == APPLICATION_DATA or (self._is_encrypted and not session.is_1_3):
            if not self._ciphers:
                self._ciphers = [*session.ciphers(self.index, record)]
            return bool(self._ciphers) and self._open(record)
        if kind == HANDSHAKE:
            for message, body in self._handshake.messages(record[HEADER_BYTES:]):
                session.note(self.index, message, body)
        elif kind == CHANGE_CIPHER_SPEC:
            # Without meaning in TLS 1.3, where it may be anywhere (RFC 8446, 5).
            if session.server_hello is None and not session.has_retry:
                return False
            self._is_encrypted = not session.has_retry
        self._pass(len(record), 0)
        return True

    def _open(self, record: memoryview) -> bool:
        """Open a protected record; False if what it means is not known yet."""
        session, cipher = self.session, self._ciphers[0]
        opened = cipher.open(self._seq, record, self._previous)
        if opened is None:
            opened, cipher = self._with_later_keys(record)
            if opened is None:
                return self._fail(record)
        if session.awaits_answer_to_early_data(cipher, self.index):
            return False
        session.state = State.OPENED
        self._bad_count = 0
        self._nonce_shift = cipher.nonce(record) - self._seq
        self._seq += 1
        self._previous = bytes(record[-PREVIOUS_BYTES:])
        kind, content = opened
        plain_bytes = 0
        if kind == APPLICATION_DATA:
            plain_bytes = len(content) if session.is_taken(cipher) else 0
            if plain_bytes:
                place = self.at + cipher.shape.head_len
                self.records.places.append((self.plain_at, plain_bytes, place, self.at, self.at + len(record)))
                self.records.contents.append(content)
        elif kind == HANDSHAKE:
            for message, body in self._handshake.messages(content):
                self._note(message, body)
        elif kind == CHANGE_CIPHER_SPEC:
            self._pass(len(record), 0)
            self._stop("tls: renegotiated")
            return True
        self._pass(len(record), plain_bytes)
        return True

    def _note(self, message: int, body: bytes) -> None:
        """Note a handshake message that was encrypted; it may change the keys (RFC 8446, 4.4.4 and 4.6.3)."""
        updated = self._ciphers[0].updated()
        if updated is None:
            return  # Finished, or a renegotiation, which is not read
        if message in (handshake.FINISHED, handshake.END_OF_EARLY_DATA) and len(self._ciphers) > 1:
            self._ciphers, self._seq = self._ciphers[1:], 0
        elif message == handshake.KEY_UPDATE:
            self._ciphers, self._seq = [updated], 0
        else:
            self.session.note(self.index, message, body)

    def _later_ciphers(self) -> Iterator[RecordCipher]:
        """The ciphers that may follow the current one, in order."""
        yield from self._ciphers[1:]
        cipher: RecordCipher | None = self._ciphers[-1]
        for _ in range(MAX_KEY_UPDATES):
            cipher = cipher.updated() if cipher is not None else None
            if cipher is not None:
                yield cipher

    def _with_later_keys(self, record: memoryview) -> tuple[Opened, RecordCipher]:
        """The record as the first of later keys: the server refused early data, or a message was passed over."""
        for cipher in self._later_ciphers():
            opened = cipher.open(0, record, b"")
            if opened is not None:
                self._use(cipher, 0)
                return opened, cipher
        return None, self._ciphers[0]

    def _use(self, cipher: RecordCipher, seq: int) -> None:
        """Go on with a cipher and a sequence number."""
        later = self._ciphers[self._ciphers.index(cipher) :] if cipher in self._ciphers else [cipher]
        self._ciphers, self._seq = later, seq

    def _fail(self, record: memoryview) -> bool:
        """Lose a record that does not open; False if no record of the connection did: its keys are wrong."""
        session = self.session
        if session.offers_early and self.index == session.client and self._seq == 0 and len(self._ciphers) > 1:
            if session.takes_early is None and not session.has_retry:
                return False
            self._break(record, "tls: no key of early data", is_content=bool(session.takes_early))
            return True
        if session.state is State.HELD:
            session.close("tls_wrong_keys")
            return False
        self._break(record, "tls: does not open", is_content=True)
        self._seq += 1
        self._bad_count += 1
        if self._bad_count > MAX_BAD_RECORDS:
            self._stop("tls: does not open")
        return True

    # -- what is missing -----------------------------------------------------------------------------------

    def _pass_gap(self, offset: int) -> None:
        """Pass bytes up to ``offset`` that were not captured, and the record that misses them."""
        self._break_record()
        if self.at < self._broken_to:
            self._lose(min(self._broken_to, offset), is_captured=False)
        if self.at < offset:
            self._begun = self._begun or self.session.client_hello is not None
            if self._begun:
                self._begin_search("tls: records before it are missing")
            self._lose(offset, is_captured=False)
        self._data, self._base = memoryview(b""), offset

    def _break_record(self) -> None:
        """Lose the captured part of a record that misses bytes."""
        head = self._data[self.at - self._base :][:HEADER_BYTES]
        is_searching = self._is_stopped or self._searching_from is not None
        if len(head) == HEADER_BYTES and self._begun and not is_searching and self._broken_to <= self.at:
            self._break(head, "tls: record with a hole", self._is_content(head[0]))
            self._seq += 1
        if self.at < self.end:
            self._lose(self.end)

    def _is_content(self, kind: int) -> bool:
        """Whether a record of a type may hold application data."""
        return kind == APPLICATION_DATA and len(self._ciphers) != 2  # handshake keys, and those after them

    def _break(self, record: memoryview, why: str, is_content: bool) -> None:
        """Let the record that begins here be lost up to its end."""
        self._broken_to = end = self.at + record_size(record)
        shape = self._ciphers[0].shape if self._ciphers else Shape(HEADER_BYTES, 0, False)
        self._content = (self.at + shape.head_len, end - shape.tail_len) if is_content else (end, end)
        self._is_exact, self._why_lost = shape.is_exact, why
        self._handshake.reset()

    def _begin_search(self, why: str) -> None:
        if self._searching_from is None:
            self._searching_from, self._trial_bytes, self._plain_before = self.at, 0, self.plain_at
        self._content, self._is_exact, self._why_lost, self._broken_to = (0, _INFINITE), False, why, 0
        self._handshake.reset()

    def _stop(self, why: str) -> None:
        """Open nothing more of this side."""
        self._begin_search(why)
        self._is_stopped = True

    def _lose(self, to: int, is_captured: bool = True) -> None:
        """Pass lost bytes; those that may be content have a place in the plaintext stream."""
        low, high = max(self.at, self._content[0]), min(to, self._content[1])
        if not self._begun:
            low, high = self.at, to
        length = max(high - low, 0)
        if is_captured:
            self.overhead_bytes += to - self.at - length
            last = self.lost[-1] if self.lost else None
            if last is not None and (last.at + last.length, last.reason) == (low, self._why_lost):
                self.lost[-1] = last._replace(length=last.length + length)
            elif length:
                packets = np.concatenate(self.packets, axis=1)
                _, _, ts_ns, number = packets[:4, max(int(np.searchsorted(packets[0], low, "right")) - 1, 0)].tolist()
                self.lost.append(LostRange(self.plain_at, length, self._why_lost, low, ts_ns, number))
            self._previous = bytes(self._data[max(to - self._base - PREVIOUS_BYTES, 0) : to - self._base])
        else:
            self._gaps.append((self.at, self.plain_at))
        self.at = to
        self.plain_at += length
        self._note_place()
        if length and not self._is_exact:
            self.records.estimated.add(self.plain_at)

    def _search(self, since: int) -> bool:
        """Find a record that opens; False if more bytes are needed."""
        data = bytes(self._data[self.at - self._base :])
        match = _HEADER.search(data)
        if match is None:
            self._lose(max(self.end - HEADER_BYTES + 1, self.at))
            return False
        if match.start():
            self._lose(self.at + match.start())
            return True
        size = record_size(memoryview(data))
        if size > len(data):
            return False
        record = self._data[self.at - self._base :][:size]
        if not self._ciphers:
            self._ciphers = [*self.session.ciphers(self.index, record)]
        found = self._tried(record, (self.at - since)) if self._ciphers else None
        if found is None:
            self._lose(self.at + 1)
            return True
        if not self._is_encrypted and (found[1] == 0 or (len(self._ciphers) == 2 and found[0] is self._ciphers[0])):
            self._forget_lost()
        self._use(*found)
        self._searching_from, self._is_encrypted = None, True
        return True

    def _search_late(self) -> bool:
        """Find a record of a connection without hellos by trial; its session has keys then."""
        start = self.at - self._base
        for match in _HEADER.finditer(self._data, start + self._late_from):
            size = record_size(self._data[match.start() : match.start() + HEADER_BYTES])
            if match.start() + size > len(self._data):
                break
            self._late_from = match.end() - start
            if self._data[match.start()] == APPLICATION_DATA:
                record = self._data[match.start() : match.start() + size]
                seq = self.session.open_late(self.index, record)
                if seq >= 0:
                    self._lose(self._base + match.start())
                    self._ciphers, self._seq = [*self.session.ciphers(self.index, record)], seq
                    self._searching_from, self._is_encrypted = None, True
                    return True
        return False

    def _forget_lost(self) -> None:
        """Count lost bytes as those of the handshake: no earlier record had data."""
        since = self._plain_before
        self.overhead_bytes += sum(lost.length for lost in self.lost if lost.offset >= since)
        self.lost = [lost for lost in self.lost if lost.offset < since]
        self.plain_at = since
        self._plain_ends = array("q", (min(plain_end, since) for plain_end in self._plain_ends))
        self._gaps = [(at, min(plain_at, since)) for at, plain_at in self._gaps]
        self.records.estimated.discard(since)

    def _tried(self, record: memoryview, lost_bytes: int) -> tuple[RecordCipher, int] | None:
        """The cipher and sequence number that open a record, of those that may follow what is lost."""
        current = self._ciphers[0]
        self._previous = bytes(self._data[max(self.at - self._base - PREVIOUS_BYTES, 0) : self.at - self._base])
        count = lost_bytes // current.min_record_bytes + 2 + (LATE_RECORDS if self.session.is_late else 0)
        numbered = current.nonce(record) - self._nonce_shift
        trials = chain(
            ((current, seq) for seq in (numbered,) if self._seq <= numbered < self._seq + count),
            ((current, seq) for seq in range(self._seq, self._seq + count)),
            ((cipher, seq) for cipher in self._later_ciphers() for seq in range(count)),
        )
        for cipher, seq in trials:
            self._trial_bytes += len(record)
            if self._trial_bytes > MAX_TRIAL_BYTES:
                return None
            if cipher.open(seq, record, self._previous) is not None:
                return cipher, seq
        return None

    # -- places --------------------------------------------------------------------------------------------

    def _pass(self, length: int, plain_bytes: int) -> None:
        """Pass a record with this number of bytes of plaintext."""
        self.at += length
        self.plain_at += plain_bytes
        self.overhead_bytes += length - plain_bytes
        self._note_place()

    def _note_place(self) -> None:
        self._ends.append(self.at)
        self._plain_ends.append(self.plain_at)

    def _pass_plain(self) -> None:
        """Pass bytes before TLS begins, packet by packet."""
        packets = np.concatenate(self.packets, axis=1)
        self.packets = [packets]
        for offset, length in packets[:2, packets[0] + packets[1] > self.at].T.tolist():
            start, end = max(offset, self.at), offset + length
            data = self._data[start - self._base : end - self._base]
            at = hello_at(data)
            if at == 0:
                self._begun = True
                return
            end = start + at if at > 0 else end
            self.records.places.append((self.plain_at, end - start, start, start, end))
            self.records.contents.append(bytes(data[: end - start]))
            self._pass(end - start, end - start)
            if at > 0:
                return

    def acknowledged(self, offset: int) -> int:
        """The plaintext that is acknowledged with the ciphertext before an offset: that of whole records."""
        if offset > self.at:
            start = self.at - self._base
            head = self._data[start : start + HEADER_BYTES]
            is_inside = len(head) == HEADER_BYTES and offset < self.at + record_size(head)
            return self.plain_at + (0 if is_inside else offset - self.at)
        i = bisect_right(self._ends, offset) - 1
        return self._plain_ends[i] if i >= 0 else offset - self._ends[0] + self._plain_ends[0]

    def plain_offset(self, offset: int) -> int:
        """The place in the plaintext stream of a byte of ciphertext, of a lost one its own."""
        i = bisect_right(self._gaps, (offset, _INFINITE)) - 1
        j = bisect_right(self._ends, offset) - 1
        if i >= 0 and (j < 0 or self._gaps[i][0] >= self._ends[j]):
            at, plain_at = self._gaps[i]
        elif j >= 0:
            at, plain_at = self._ends[j], self._plain_ends[j]
        else:
            return offset - self._ends[0] + self._plain_ends[0]
        most = self._plain_ends[j + 1] - plain_at if j + 1 < len(self._ends) else _INFINITE
        return plain_at + min(offset - at, max(most, 0))


def hello_at(data: memoryview) -> int:
    """The place of a ClientHello or ServerHello: the first byte, or after a PROXY header. -1 without a hello."""
    if len(data) > HEADER_BYTES and data[0] in PROXY_BYTES:
        match = _HELLO.search(bytes(data[:MAX_PROXY_BYTES]))
        return match.start() if match is not None else -1
    return 0 if len(data) > HEADER_BYTES and _HELLO.match(bytes(data[: HEADER_BYTES + 1])) else -1


def is_plausible(head: memoryview) -> bool:
    """Whether bytes may begin a record; fewer than its header if no more were captured."""
    n = len(head)
    return (
        CHANGE_CIPHER_SPEC <= head[0] <= MAX_TYPE
        and (n < 2 or head[1] == 3)
        and (n < 3 or head[2] <= 4)
        and (n < HEADER_BYTES or record_size(head) <= HEADER_BYTES + MAX_FRAGMENT_BYTES)
    )


def record_size(head: memoryview) -> int:
    """The size of the record that a header begins; endless for a part of a header."""
    return HEADER_BYTES + (head[3] << 8 | head[4]) if len(head) >= HEADER_BYTES else _INFINITE
