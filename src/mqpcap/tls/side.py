"""One direction of a TLS connection: ciphertext to plaintext, record by record.

In: runs of the side's bytes, in order. Out: records, with the place of each in the ciphertext, and lost ranges. A side
waits where its keys are not known yet, or where its record is not complete.

The hard part is what is missing. A record with a hole is lost; where its header was captured, the next one begins at
its end. Else the side searches: it tries each header that is plausible with the sequence numbers and, in TLS 1.3, the
keys that may follow. In the plaintext stream a lost record is as long as its content (TLS 1.2 with AEAD), else as
long as its content may be; a lost range of unknown records is as long as its bytes. These lengths are *estimates*: the
reader must not conclude from them where a message ends.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.tcp.chunks import LENGTH, OFFSET
from mqpcap.tcp.derived_streams import NO_LIMIT, DerivedSide, LostRange, Record, State
from mqpcap.tls import handshake
from mqpcap.tls.key_log import TRAFFIC
from mqpcap.tls.record_ciphers import HEADER_BYTES, PREVIOUS_BYTES, RecordCipher
from mqpcap.tls.session import EARLY, HANDSHAKE, LATE_RECORDS, Session, TlsFacts

CHANGE_CIPHER_SPEC, HANDSHAKE_RECORD, APPLICATION_DATA = 20, 22, 23
MAX_KEY_UPDATES = 4
"""Key updates that are tried after missing records."""
MAX_TRIAL_BYTES = 16 << 20
"""Bytes of records that are decrypted on trial after a gap; what a longer gap holds may not be found again."""
MAX_PROXY_BYTES = 4 << 10
"""Bytes of a first packet that are searched for a hello after a PROXY header."""
_HEADER = re.compile(rb"[\x14-\x18]\x03[\0-\x04][\0-\x48][\0-\xff]", re.DOTALL)
_HELLO = re.compile(rb"\x16\x03[\0-\x04][\0-\x48].[\x01\x02]", re.DOTALL)
PROXY_BYTES = b"P\r"
Found = tuple[int, RecordCipher | None, int] | None
"""Generation, cipher and sequence number of a record; None if no key opens it."""


class _Loss(NamedTuple):
    """Bytes up to ``end`` are lost; those from ``low`` to ``high`` may be content, and are if it is exact."""

    end: int = NO_LIMIT
    low: int = 0
    high: int = NO_LIMIT
    is_exact: bool = True
    reason: str = ""


class TlsSide(DerivedSide):
    """A side; ``at``: ciphertext before this offset is done, and ``made_to`` is its plaintext offset."""

    previous_bytes = PREVIOUS_BYTES

    def __init__(self, session: Session, index: int) -> None:
        super().__init__(index)
        self.session = session
        self._begun = self._has_changed = self._is_estimated = False
        self._handshake = handshake.HandshakeReader()
        self._cipher: RecordCipher | None = None
        self._generation, self._seq, self._nonce_shift = -1, 0, 0
        self._loss: _Loss | None = None
        self._since: tuple[int, int] | None = None
        """The place where a search began."""
        self._trial_bytes = self._tried_to = 0

    def __getstate__(self) -> dict[str, object]:
        """The state without keys, between two windows."""
        return super().__getstate__() | {"_cipher": None}

    # -- input and output ----------------------------------------------------------------------------------

    def add(self, offset: int, data: memoryview, pieces: Int64Array, gap_before: int, is_end: bool) -> None:
        """Add bytes; a side that began before the capture searches for its first record."""
        is_first = not self._is_placed
        super().add(offset, data, pieces, gap_before, is_end)
        if is_first and self.session.is_late:
            self._begun = True
            self._search_from_here("tls: began before the capture")

    @property
    def position(self) -> tuple[int, ...]:
        """Keys may change without a byte."""
        return *super().position, self._generation

    def take_lost(self) -> list[LostRange]:
        """The lost ranges; while the side searches, what was lost may turn out to be no data."""
        return super().take_lost() if self._since is None or self.ended else []

    @property
    def known_to(self) -> int:
        """Acknowledgements up to this offset have a place in the plaintext: whole records, and a part of the next."""
        run = next((run for run in self.runs if run.offset <= self.at < run.end), None)
        head = _HEADER.match(run.data, self.at - run.offset) if run is not None and self._loss is None else None
        return self.at + (record_size(head[0]) - 1 if head is not None else 0)

    def acknowledged(self, offset: int) -> int:
        """The plaintext that is acknowledged with the ciphertext before an offset: that of whole records."""
        if offset > self.at:
            return self.made_to + (0 if offset <= self.known_to else offset - self.at)
        begin, plain_at, _ = self.places[max(bisect_right(self.places, (offset, NO_LIMIT)) - 1, 0)]
        return plain_at + min(offset - begin, 0)

    # -- records -------------------------------------------------------------------------------------------

    def step(self, data: memoryview, base: int, is_final: bool) -> bool | None:
        """Pass a record or lost bytes of a run; False if it is not complete, None if keys are missing."""
        if self._seq >= 2 and self._since is None and self._loss is None and self.session.state is State.OPENED:
            self._open_data(data, base)
        start, loss = self.at - base, self._loss
        head = _HEADER.match(data, start)
        if not self._begun:
            self._pass_plain(data, base)
        elif self._since is not None:
            return self._search(data, base, self.session.has_keys or is_final)
        elif loss is not None:
            self._lose(min(loss.end, base + len(data)))
            self._loss = None if loss.end == self.at else loss
        elif head is None and start + HEADER_BYTES <= len(data):
            self._search_from_here("tls: not a record")
        elif head is None or (end := start + record_size(head[0])) > len(data):
            return False
        elif data[start] == APPLICATION_DATA or (
            self._has_changed and not (self.session.is_1_3 or self.session.has_retry)
        ):
            return self._open(data[start:end], data[max(start - PREVIOUS_BYTES, 0) : start], is_final)
        else:
            content = data[start + HEADER_BYTES : end]
            for message, body in self._handshake.messages(content) if data[start] == HANDSHAKE_RECORD else ():
                self.session.note(self.index, message, body)
            # Without meaning in TLS 1.3, where it may be anywhere (RFC 8446, 5).
            self._has_changed |= data[start] == CHANGE_CIPHER_SPEC
            self._pass(end - start)
        return True

    def _open_data(self, data: memoryview, base: int) -> None:
        """Open records of data in a row, as most are; the first that is anything else is left."""
        cipher, start = self._cipher if self._generation >= TRAFFIC else None, self.at - base
        while cipher is not None and start + HEADER_BYTES <= len(data) and data[start] == APPLICATION_DATA:
            end = start + HEADER_BYTES + (data[start + 3] << 8 | data[start + 4])
            if end > len(data):
                return
            opened = cipher.open(self._seq, data[start:end], data[max(start - PREVIOUS_BYTES, 0) : start])
            if opened is None or opened[0] != APPLICATION_DATA:
                return
            self._seq += 1
            self._pass(end - start, cipher.head_len, opened[1])
            start = end

    def _open(self, record: memoryview, previous: memoryview, is_final: bool) -> bool | None:
        """Open a protected record; None if its keys, or what it means, is not known yet."""
        session, is_opened = self.session, self.session.state is State.OPENED
        cipher = self._cipher or self._loaded_cipher(record)
        opened = cipher and cipher.open(self._seq, record, previous)
        is_early = self._generation < TRAFFIC and not is_final and session.awaits_answer(self.index)
        if is_early or not (opened or is_opened):
            return None
        if not opened or not cipher:
            self._search_from_here("tls: does not open" if cipher else "tls")
            return True
        session.state = State.OPENED
        self._nonce_shift = cipher.nonce(record) - self._seq if self._seq < 2 else self._nonce_shift
        self._seq += 1
        kind, content = opened
        for message, body in self._handshake.messages(content) if kind == HANDSHAKE_RECORD and session.is_1_3 else ():
            session.note(self.index, message, body)
            is_next = message in (handshake.FINISHED, handshake.END_OF_EARLY_DATA) and self._generation < TRAFFIC
            if is_next or message == handshake.KEY_UPDATE:  # RFC 8446, 4.4.4 and 4.6.3
                self._cipher = self._next_cipher(self._generation, cipher)
                self._generation, self._seq = self._generation + 1, 0
        is_data = kind == APPLICATION_DATA and (self._generation != EARLY or session.takes_early is not False)
        self._pass(len(record), cipher.head_len, content if is_data else b"")
        if kind == CHANGE_CIPHER_SPEC:
            self._search_from_here("tls: renegotiated")
            self._trial_bytes = NO_LIMIT  # nothing more is tried
        return True

    def _loaded_cipher(self, record: memoryview) -> RecordCipher | None:
        """The current cipher: the first, or after the state was loaded."""
        if self._cipher is None:
            self._generation, self._cipher = self.session.loaded_cipher(self.index, self._generation, record)
        return self._cipher

    def _next_cipher(self, generation: int, cipher: RecordCipher) -> RecordCipher | None:
        return cipher.updated() if generation >= TRAFFIC else self.session.cipher(self.index, generation + 1)

    def _pass(self, size: int, head_len: int = 0, content: bytes = b"") -> None:
        """Pass a record, and give out its content."""
        if content:
            place = self.made_to, len(content), self.at + head_len, self.at, self.at + size
            self.records.append(Record(*place, self._is_estimated, content))
            self._is_estimated = False
        self.at += size
        self.made_to += len(content)
        self.overhead_bytes += size - len(content)
        self.places.append((self.at, self.made_to, False))

    def _pass_plain(self, data: memoryview, base: int) -> None:
        """Pass a packet before TLS begins, or its bytes in front of the hello."""
        i = int(np.searchsorted(self.pieces[OFFSET], self.at, "right")) - 1
        payload = data[self.at - base : int(self.pieces[OFFSET, i] + self.pieces[LENGTH, i]) - base]
        length = 0 if self.at == 0 and payload[0] == HANDSHAKE_RECORD else hello_at(payload)
        self._begun = length == 0
        content = bytes(payload[:length] if length >= 0 else payload)
        self._pass(len(content), 0, content)

    # -- what is missing -----------------------------------------------------------------------------------

    def pass_gap(self, offset: int) -> None:
        """Pass bytes up to ``offset`` that were not captured."""
        if self._loss is not None:
            self._lose(min(self._loss.end, offset), is_captured=False)
        if self.at < offset:
            self._begun = True
            self._search_from_here("tls: records before it are missing")
            self._lose(offset, is_captured=False)

    def break_record(self, data: memoryview) -> None:
        """Lose the captured part of a record that misses bytes."""
        if self._loss is None and len(data) >= HEADER_BYTES:
            end, cipher = self.at + record_size(data), self._cipher or RecordCipher()
            is_content = data[0] == APPLICATION_DATA and self._generation != HANDSHAKE
            low, high = (self.at + cipher.head_len, end - cipher.tail_len) if is_content else (end, end)
            self._loss = _Loss(end, low, high, cipher.is_exact, "tls: record with a hole")
            self._handshake = handshake.HandshakeReader()
            self._seq += 1
        elif self._loss is None:
            self._search_from_here("tls: records before it are missing")
        self._lose(self.at + len(data))

    def _search_from_here(self, why: str) -> None:
        if self._since is None:
            self._since, self._trial_bytes = (self.at, self.made_to), 0
        self._loss = _Loss(is_exact=False, reason=why)
        self._handshake = handshake.HandshakeReader()

    def _lose(self, to: int, is_captured: bool = True) -> None:
        """Pass lost bytes; those that may be content have a place in the plaintext."""
        loss = self._loss or _Loss()
        low = max(self.at, loss.low)
        length = max(min(to, loss.high) - low, 0)
        if is_captured:
            self.overhead_bytes += to - self.at - length
            self.lose_captured(low, length, loss.reason)
        else:
            self.places.append((self.at, self.made_to, True))
        self.at, self.made_to, self.resume_at = to, self.made_to + length, 0
        self.places.append((self.at, self.made_to, False))
        self._is_estimated |= length > 0 and not loss.is_exact

    def _search(self, data: memoryview, base: int, has_keys: bool) -> bool | None:
        """Find a record that opens; False if more bytes are needed, None if keys are."""
        lost_to = max(len(data) - HEADER_BYTES + 1, self.at - base)
        for match in _HEADER.finditer(data, max(self.at, 0 if has_keys else self._tried_to) - base):
            begin = match.start()
            end = begin + record_size(match[0])
            if end > len(data):
                lost_to = begin
                break
            self._tried_to = base + match.end()
            keys = self._found(data[begin:end], data[max(begin - PREVIOUS_BYTES, 0) : begin], base + begin, has_keys)
            if keys is not None:
                self._lose(base + begin)
                self._generation, self._cipher, self._seq = keys
                self._end_search()
                return True
        if not has_keys:
            return None
        self._lose(base + lost_to)
        return False

    def _found(self, record: memoryview, previous: memoryview, begin: int, has_keys: bool) -> Found:
        """The generation, cipher and sequence number that open a record, of those that may follow what is lost."""
        if not has_keys:
            seq = self.session.open_late(self.index, record) if record[0] == APPLICATION_DATA else -1
            return (TRAFFIC, self.session.cipher(self.index, TRAFFIC), seq) if seq >= 0 else None
        current = self._loaded_cipher(record)
        if current is None or self._since is None:
            return None
        count = (begin - self._since[0]) // current.min_record_bytes + 2 + LATE_RECORDS * self.session.is_late
        numbered = current.nonce(record) - self._nonce_shift
        generation, cipher, first_seq = self._generation, self._cipher, self._seq
        while cipher is not None and generation <= max(self._generation, TRAFFIC) + MAX_KEY_UPDATES:
            numbers = range(first_seq, first_seq + count)
            for seq in chain((numbered,) if numbered in numbers else (), numbers):
                self._trial_bytes += len(record)
                if self._trial_bytes > MAX_TRIAL_BYTES:
                    return None
                if cipher.open(seq, record, previous) is not None:
                    return generation, cipher, seq
            generation, cipher, first_seq = generation + 1, self._next_cipher(generation, cipher), 0
        return None

    def _end_search(self) -> None:
        """Go on with a record that opens. Lost bytes were of the handshake if no earlier record can have data."""
        begin, plain_at = self._since or (0, 0)
        session, self._since, self._loss, self._has_changed = self.session, None, None, True
        has_early = self.index == session.client and session.offers_early and session.takes_early is not False
        if (self._generation, self._seq) <= (TRAFFIC, 0) and not has_early:
            self.overhead_bytes += sum(lost.length for lost in self.lost if lost.below >= begin)
            self.lost = [lost for lost in self.lost if lost.below < begin]
            self.made_to, self._is_estimated = plain_at, False
            self.places = [(end, min(plain_end, plain_at), is_gap) for end, plain_end, is_gap in self.places]


def hello_at(data: memoryview) -> int:
    """The place of a ClientHello or ServerHello: the first byte, or after a PROXY header. -1 without a hello."""
    is_proxied = len(data) > 0 and data[0] in PROXY_BYTES
    match = _HELLO.search(data[:MAX_PROXY_BYTES]) if is_proxied else _HELLO.match(data)
    return -1 if match is None else match.start()


def facts_of_hellos(sides: Sequence[memoryview]) -> TlsFacts | None:
    """The facts of a connection whose sides begin with these bytes.

    None unless each side begins with a record that has a whole hello, or if the server asked for another one.
    """
    hellos: dict[int, handshake.Hello] = {}
    for data in sides:
        body = HEADER_BYTES + 4
        end = body + int.from_bytes(data[body - 3 : body])
        if hello_at(data) != 0 or not end <= record_size(data) <= len(data):
            return None
        hellos[data[HEADER_BYTES]] = handshake.hello(data[HEADER_BYTES], bytes(data[body:end]))
    client, server = (hellos.get(kind) for kind in (handshake.CLIENT_HELLO, handshake.SERVER_HELLO))
    if client is None or server is None or not client.random or server.random in (b"", handshake.RETRY_RANDOM):
        return None
    facts = TlsFacts(server_name=client.server_name)
    facts.add_choices(server)
    return facts


def record_size(head: memoryview | bytes) -> int:
    """The size of the record that a header begins."""
    return HEADER_BYTES + (head[3] << 8 | head[4])
