"""Writes selected packets without addresses, bodies, names and secrets, so that they still decode to the same messages.

In: packets that an `Extraction` selected, and a key. Out: packets of raw IP, made anew. Called by: ``extraction``.

No byte of the capture is copied unless it is known to be harmless. Link headers, tunnels, options and packets that are
not TCP are left out. Addresses are replaced prefix-preserving: if two addresses share their first n bits, so do their
replacements. The scheme is that of Xu, Fan, Ammar and Moon (Prefix-Preserving IP Address Anonymization, 2002), with
BLAKE2 in place of AES. The library yacryptopan 1.0.2 was rejected: it needs a library of ciphers for these ten lines.
Ports, times, sequence numbers and all lengths stay.

A message keeps the numbers and lengths of its fields, and texts that are the protocol's own (`MessageQueue.words`,
``keys``): they say nothing of a user. A secret becomes ``*``. A body becomes text of the same length that the
key derives from it. All other text is a name: so is it, but its punctuation stays. Bytes that are no text become other
bytes. Equal values stay equal. A message that does not decode keeps only its fixed header. Bytes outside of messages
become ``x``.
"""

import hashlib
import ipaddress
import json
import os
import re
import struct
import tempfile
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.capture import Capture
from mqpcap.decode.proxy_header import MAX_LINE_BYTES
from mqpcap.decode.proxy_header import REASON as PROXY_REASON
from mqpcap.errors import MqpcapError, OutputError, let_go
from mqpcap.hooks import StageHooks
from mqpcap.listing.explanation import secret_spans
from mqpcap.listing.extra_columns import LAYOUT, WITH_BYTES
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.row_bytes import best_attempt, operation
from mqpcap.protocols import protocols
from mqpcap.reading import Meter, Outcome, read, wired
from mqpcap.schema import fields
from mqpcap.schema.field_items import Attempt, FieldItem
from mqpcap.schema.gzip_body import inflate
from mqpcap.schema.json_parts import json_parts
from mqpcap.schema.protocol import DIRECTIONS, MessageQueue
from mqpcap.schema.secrets import NO_SECRETS, SecretSpans, holds_secrets, is_hidden, stars
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.output import Output
from mqpcap.tcp.flags import SYN
from mqpcap.tcp.headers import Dissector, Segments, endpoint_pairs, endpoints
from mqpcap.tcp.sequence_numbers import unwrapped

KEY_BYTES = 32
RAW_IP = 101
"""Link type of packets that begin with their IP header."""
MAX_CACHED_ADDRESSES = 1 << 16
BodyForm = Literal["hash", "mask", "keep"]
NameForm = Literal["hash", "keep"]
MODES: tuple[BodyForm | None, ...] = (None, "mask")
"""How bodies are replaced in a compressed message: x gets shorter."""
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_ALNUM = bytes((_LETTERS + b"0123456789")[i % 36] for i in range(256))
_LOWER = bytes(_LETTERS[i % 26] for i in range(256))
_UPPER = _LOWER.upper()
_DIGITS = bytes(b"0123456789"[i % 10] for i in range(256))
_FIRST_DIGITS = bytes(b"123456789"[i % 9] for i in range(256))
_HIGH = bytes(0x80 | i for i in range(0x80)) * 2
"""No byte of these begins a message of any protocol, and they are seldom text."""
_BLOCK_BYTES = 8
"""Bytes of fixed size are replaced in blocks: a disk queue of fq rewrites the second half of an id."""
_WORD = re.compile(rb"[A-Za-z0-9]+|[\x80-\xff]+")
_ADDRESS = re.compile(
    rb"(?<![0-9A-Za-z.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9A-Za-z]|\.[0-9])"
    rb"|(?<![0-9A-Za-z:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![0-9A-Za-z:])"
)
"""A likely IPv4 or IPv6 address in text."""


@dataclass(frozen=True, slots=True)
class Anonymisation:
    """How packets are anonymised: the key, and the forms of bodies and names."""

    key: bytes
    bodies: BodyForm = "hash"
    names: NameForm = "hash"

    def words(self) -> str:
        """The changes, in a sentence for people."""
        forms = {"hash": "replaced by derived text", "mask": "x", "keep": "as captured"}
        return (
            f"addresses mapped prefix-preserving; bodies {forms[self.bodies]}; names {forms[self.names]}; secrets *; "
            "bytes outside of messages x; link headers, tunnels, IP and TCP options left out; "
            "kept: ports, times, sequence numbers, lengths, numbers and the protocols' own words"
        )


def key_of_file(name: str) -> bytes:
    """The key in a file, which is made if it does not exist. Raises OutputError, or MqpcapError if it has no key."""
    try:
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            key = os.urandom(KEY_BYTES)
            file.write(key.hex() + "\n")
            return key
    except FileExistsError:
        pass
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}") from error
    try:
        with open(name, encoding="ascii") as file:
            key = bytes.fromhex(file.read(4 * KEY_BYTES))
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise MqpcapError(f"{name} is no key: {2 * KEY_BYTES} hexadecimal digits")
    return key


class AddressMap:
    """Addresses to addresses, prefix-preserving, by a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.mapped = lru_cache(MAX_CACHED_ADDRESSES)(self._mapped)

    def _mapped(self, address: bytes) -> bytes:
        bits, number = 8 * len(address), int.from_bytes(address)
        flips = 0
        for length in range(bits):
            prefix = struct.pack(">BB16s", bits, length, (number >> bits - length << bits - length).to_bytes(16))
            flips = flips << 1 | hashlib.blake2b(prefix, key=self._key, digest_size=1).digest()[0] & 1
        return (number ^ flips).to_bytes(len(address))


@dataclass(frozen=True, slots=True)
class Masker:
    """Replaces values by values of the same length; equal values become equal."""

    how: Anonymisation

    def _digest(self, value: bytes) -> bytes:
        return hashlib.shake_256(self.how.key + value).digest(len(value))

    def body(self, value: bytes, mode: BodyForm | None = None, keys: frozenset[str] = frozenset()) -> bytes:
        """A body: JSON keeps its structure and some ``keys``, text becomes letters and digits, others other bytes."""
        mode = mode or self.how.bodies
        if mode == "keep":
            return value
        if value[:1] in (b"{", b"[", b'"') and _is_json(value):
            result = bytearray(b"x" * len(value))
            for part in json_parts(value):
                start, end = part.offset, part.offset + part.length
                is_own = part.form == "key" and value[start:end].decode() in keys
                result[start:end] = value[start:end] if is_own else self.part(value[start:end], part.form, mode)
            return bytes(result)
        if mode == "mask":
            return b"x" * len(value)
        return self.letters(value) if _is_text(value) else self.opaque(value)

    def part(self, value: bytes, form: fields.Form, mode: BodyForm | None = None) -> bytes:
        """A part of a body that has parts."""
        mode = mode or self.how.bodies
        if mode == "keep" or form == "structure":
            return value
        if form == "number":
            return self.number(value)
        return b"x" * len(value) if mode == "mask" else self.letters(value)

    def letters(self, value: bytes) -> bytes:
        """Letters and digits."""
        return self._digest(value).translate(_ALNUM)

    def opaque(self, value: bytes) -> bytes:
        """Bytes that are no text; the zeros at their end stay."""
        start = value.rstrip(b"\0")
        return self._digest(start).translate(_HIGH) + value[len(start) :]

    def number(self, value: bytes) -> bytes:
        """The text of a number, as another number; zeros before others and small exponents stay."""
        digits, exponent, power = value.partition(b"e" if b"e" in value else b"E")
        digest, is_first, result = self._digest(value), True, bytearray(value)
        for i, c in enumerate(digits):
            if 0x30 <= c <= 0x39 and not (is_first and c == 0x30):
                result[i] = (_FIRST_DIGITS if is_first else _DIGITS)[digest[i]]
                is_first = False
        if len(power) > 3:
            result[len(digits) + len(exponent) :] = self.number(power)
        return bytes(result)

    def name(self, value: bytes, is_text: bool = True) -> bytes:
        """A name: punctuation stays, and each word becomes a word of the same kinds of characters."""
        if self.how.names == "keep":
            return _ADDRESS.sub(_hidden_address, value)
        if not _is_text(value):
            letters = self.letters(value) if is_text else self.opaque(value)
            # NUL stays, as a server refuses a topic with one.
            return bytes(x if c else 0 for c, x in zip(value, letters, strict=True)) if is_text else letters
        return _WORD.sub(lambda word: self._word(word[0]), value)

    def _word(self, value: bytes) -> bytes:
        digest = self._digest(value)
        lower, upper, digits = (digest.translate(table) for table in (_LOWER, _UPPER, _DIGITS))
        return bytes(
            digits[i] if 0x30 <= c <= 0x39 else upper[i] if 0x41 <= c <= 0x5A else lower[i] for i, c in enumerate(value)
        )


def _hidden_address(match: re.Match[bytes]) -> bytes:
    """A likely address, with x for the digits if it is one."""
    for text in (match[0], match[0].removesuffix(b":")):  # a colon may follow it
        with suppress(ValueError):
            ipaddress.ip_address(text.decode())
            return re.sub(rb"[0-9A-Fa-f]", b"x", match[0])
    return match[0]


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode())
    except (ValueError, RecursionError):
        return False
    return True


@cache
def _own_words(protocol: MessageQueue) -> Mapping[str, re.Pattern[bytes]]:
    return {column: re.compile(words.encode()) for column, words in protocol.words.items()}


def _is_own(protocol: MessageQueue, column: str, value: bytes) -> bool:
    """Whether a text of a column is the protocol's own."""
    words = _own_words(protocol).get(column)
    return words is not None and words.fullmatch(value) is not None


@cache
def _body_names(protocol: MessageQueue) -> frozenset[str]:
    return frozenset(derived.name for derived in protocol.derived if derived.body)


class MessageMasker:
    """Replaces what a message has of bodies, names, addresses and secrets. ``unreadable_count``: no more decodable."""

    def __init__(self, how: Anonymisation) -> None:
        self.masker, self.addresses = Masker(how), AddressMap(how.key)
        self.unreadable_count = 0
        self._keeps = "keep" in (how.bodies, how.names)

    def masked(self, row: MessageRow) -> bytes:
        """The bytes of a message, as many as there were."""
        protocol, data = protocols()[row.protocol], row.data
        best = best_attempt(row)
        is_whole = row.message["flaw"] is None and len(data) == row.message["frame_len"]
        if row.message["flaw"] == "truncated" and best is not None and best.frame_len is None:
            # No length says where the next message begins, but the lengths of its fields do.
            return self._replaced(protocol, data, [x for x in best.items if not (x.is_rest or x.inflated)])
        if best is None or not best.fits or not is_whole or any(item.is_rest for item in best.items):
            self.unreadable_count += row.message["flaw"] is None
            return self._header(protocol, row, best)
        outside = [item for item in best.items if not item.inflated]
        inside = [item for item in best.items if item.inflated]
        secrets = NO_SECRETS
        if self._keeps and (holds_secrets(protocol, operation(row)) or any(map(is_hidden, best.items))):
            secrets = secret_spans(protocol, data, best)  # of other readings, too
        result = bytearray(self._replaced(protocol, data, outside, secrets))
        start = max((item.offset + item.length for item in outside), default=0)
        if start < len(data):  # compressed
            packed = self._packed(protocol, data[start:], inside, secrets)
            if packed is None:
                self.unreadable_count += 1
                return self._header(protocol, row, best)
            result[start:] = packed
        return bytes(result)

    def _header(self, protocol: MessageQueue, row: MessageRow, best: Attempt | None) -> bytes:
        """A message with nothing but its header."""
        headers = [x.header for x in protocol.layouts if x.name == row.message[LAYOUT]]
        kept = min((0 if header is None else fields.smallest(header) for header in headers), default=0)
        sized = {
            f.name
            for header in headers
            if header is not None
            for f in fields.wire_fields(header)
            if fields.is_variable(f)
        }
        kept = max([kept, *(x.offset + x.length for x in best.items if x.name in sized)]) if sized and best else kept
        return row.data[:kept] + b"x" * (len(row.data) - kept)

    def _packed(
        self, protocol: MessageQueue, data: bytes, items: list[FieldItem], secrets: SecretSpans
    ) -> bytes | None:
        """A compressed body with its values replaced, as long as before; None if it does not get as short."""
        body, _ = inflate(data)
        if body is None:
            return None
        for mode in MODES:
            packed = _gzip(self._replaced(protocol, body, items, secrets, mode), len(data))
            if packed is not None:
                return packed
        return None

    def _replaced(
        self, protocol: MessageQueue, data: bytes, items: list[FieldItem], secrets: SecretSpans = NO_SECRETS,
        mode: BodyForm | None = None,
    ) -> bytes:  # fmt: skip
        """Bytes with the values of their fields replaced; x for bytes that no field has."""
        result, late_end = bytearray(b"x" * len(data)), 0
        for item in items:
            start, end = item.offset, item.offset + item.length
            if start == end or start < late_end:
                continue
            if isinstance(item.value, int):
                result[start:end] = data[start:end]
            elif isinstance(item.kind, fields.Late):
                late_end = end
                for part in item.kind.inner_parts(data[start:end]):
                    low, high = start + part.offset, start + part.offset + part.length
                    result[low:high] = self._part(protocol, part, data[low:high], mode)
            elif isinstance(item.value, bytes):
                delimiter = data[start + len(item.value) : end]
                is_secret = not is_hidden(item) and secrets.covers(item)
                value = stars(len(item.value)) if is_secret else self._value(protocol, item, item.value, mode)
                result[start:end] = value + delimiter
        return bytes(result)

    def _value(self, protocol: MessageQueue, item: FieldItem, value: bytes, mode: BodyForm | None) -> bytes:
        """The text or bytes that replace those of a field."""
        kind, column = item.kind, item.column or item.name
        if is_hidden(item):
            is_key = isinstance(kind, fields.Bytes) and is_hidden(kind)  # it joins connections
            return self.masker.opaque(value) if is_key else stars(len(value))
        if item.body:
            return self.masker.body(value, mode)
        if isinstance(kind, fields.Span) and kind.among is not None:
            return value  # one of the words of the protocol
        if isinstance(kind, fields.Address):
            return self.addresses.mapped(value)
        if isinstance(kind, fields.Text):
            return value if _is_own(protocol, column, value) else self.masker.name(value)
        if isinstance(kind, fields.Span) and kind.size is not None:
            blocks = (value[i : i + _BLOCK_BYTES] for i in range(0, len(value), _BLOCK_BYTES))
            return b"".join(map(self.masker.opaque, blocks))
        is_name = kind is not None and not isinstance(kind, fields.GreedyBytes)
        return self.masker.name(value, False) if is_name else self.masker.opaque(value)

    def _part(self, protocol: MessageQueue, part: fields.InnerPart, value: bytes, mode: BodyForm | None) -> bytes:
        """The bytes that replace those of a part of a late kind."""
        is_own = part.form == "key" and value.decode("utf-8", "replace") in protocol.keys
        if is_own or part.form == "structure" or _is_own(protocol, part.name, value):
            return value
        if part.name in _body_names(protocol):
            if part.form == "text":
                return self.masker.body(value, mode, protocol.keys)
            return self.masker.part(value, part.form, mode)
        if part.form == "number":
            return self.masker.number(value)
        # After an escape of JSON a letter has a meaning.
        return self.masker.name(value) if b"\\" not in value else self.masker.letters(value)


def _proxy_line(length: int) -> bytes:
    """A PROXY header of a length that names no client; x if no header is as long."""
    line = b"PROXY UNKNOWN ".ljust(length - 2, b"x") + b"\r\n" if length > 15 else b"PROXY UNKNOWN\r\n"
    return line if len(line) == length <= MAX_LINE_BYTES else b"x" * length


def _gzip(data: bytes, length: int) -> bytes | None:
    """A gzip stream of a length: the name of a file in its header fills it. None if it would be longer."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    fill = length - 18 - len(packed)
    if fill < 0:
        return None
    head = struct.pack("<BBBBIBB", 0x1F, 0x8B, 8, 8 if fill else 0, 0, 0, 255)
    name = b"x" * (fill - 1) + b"\0" if fill else b""
    return head + name + packed + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of a connection: its sender, the sequence number of offset 0, and its masked messages."""

    sender: int
    base: int
    key: tuple[int, str]


class _Connection(NamedTuple):
    """The time of a connection, the latest time of it and those begun before, and its sides."""

    first_ns: int
    last_ns: int
    latest_ns: int
    sides: tuple[_Side, ...]


_BY_BEGIN = attrgetter("first_ns")


@dataclass(slots=True)
class _MaskedSide:
    """The masked messages of a side, in order: starts and lengths in the stream, and positions in the file."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    near: int = 0
    conflicts: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    """By number and time (in microseconds) of a packet: ranges where its bytes differ from those captured before."""


class AnonymousPackets:
    """The anonymised packets of a capture: a pass over it collects masked messages in a temporary file."""

    def __init__(self, capture: Capture, how: Anonymisation) -> None:
        self._capture, self.messages = capture, MessageMasker(how)
        self._sides: dict[tuple[int, str], _MaskedSide] = {}
        self._connections: dict[int, list[_Connection]] = {}
        """By key of segments."""
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="mqpcap-")  # noqa: SIM115  # as long as this object
        weakref.finalize(self, let_go, self._file)
        self._position = 0
        self._dissector = Dissector()

    def read(self, outcome: Outcome, meter: Meter) -> None:
        """Read the capture, and mask its messages."""
        self._dissector = Dissector(outcome.choices.decode_as)
        # Ciphertext and WebSocket are replaced as a whole: messages are not where those of the stream made of them are.
        options = replace(outcome.choices, keys=None).dissection(only=frozenset())
        hooks: StageHooks = replace(WITH_BYTES, ended=self._take_ended)
        options = replace(options, policy=replace(options.policy, bodies=0))  # messages have their bytes
        pipeline = wired(self._capture, options, lambda output, _: self._take(output), hooks)
        pipeline.stages.derivations = ()
        read(pipeline, Outcome(outcome.choices), meter)

    def _take(self, output: Output) -> None:
        if output.table == "problems":
            for row in output.rows.filter(pc.equal(output.rows["reason"], PROXY_REASON)).to_pylist():
                self._add(row["connection_id"], row["direction"], row["stream_offset"], _proxy_line(row["length"]))
            is_conflict = pc.equal(output.rows["kind"], "conflict")
            times_us = output.rows["ts"].cast(pa.int64())
            for row in output.rows.set_column(0, "ts_us", times_us).filter(is_conflict).to_pylist():
                conflicts = self._masked_side(row["connection_id"], row["direction"]).conflicts
                span = row["stream_offset"], row["stream_offset"] + row["length"]
                conflicts.setdefault((row["first_packet"], row["ts_us"]), []).append(span)
        if output.fields is None or output.protocol is None:
            return
        for start in range(0, output.rows.num_rows, 1024):
            rows, values = output.rows.slice(start, 1024).to_pylist(), output.fields.slice(start, 1024).to_pylist()
            for message, own_fields in zip(rows, values, strict=True):
                data = self.messages.masked(MessageRow(0, output.protocol, message, own_fields))
                self._add(message["connection_id"], message["direction"], message["stream_offset"], data)

    def _add(self, connection_id: int, direction: str, offset: int, data: bytes) -> None:
        """Bytes that replace those of a stream."""
        side = self._masked_side(connection_id, direction)
        side.starts.append(offset)
        side.lengths.append(len(data))
        side.positions.append(self._position)
        self._file.write(data)
        self._position += len(data)

    def _masked_side(self, connection_id: int, direction: str) -> "_MaskedSide":
        return self._sides.setdefault((connection_id, direction), _MaskedSide())

    def _take_ended(self, ended: EndedConnections) -> None:
        columns, (keys, bases) = ended.flows.columns(ended.numbers), ended.flows.anchors(ended.numbers)
        senders = [
            endpoints(columns.hi[:, side].copy(), columns.lo[:, side].copy(), columns.port[:, side]) for side in (0, 1)
        ]
        ids, clients = columns.connection_ids().tolist(), ended.client.tolist()
        for i, (key, connection_id, client) in enumerate(zip(keys.tolist(), ids, clients, strict=True)):
            both = tuple(
                _Side(int(senders[side][i]), int(bases[i, side]), (connection_id, DIRECTIONS[side != client]))
                for side in (0, 1)
            )
            last_ns = int(columns.last_ts_ns[i])
            connection = _Connection(int(columns.first_ts_ns[i]), last_ns, last_ns, both)
            self._connections.setdefault(key, []).append(connection)

    def packets(
        self, is_taken: Callable[[int, Int64Array], NDArray[np.bool_]], meter: Meter
    ) -> Iterator[tuple[int, int, bytes, int, list[str], int, int]]:
        """The packets as `PacketFile` takes them, with their files and numbers; ``is_taken``: a mask of numbers."""
        for connections in self._connections.values():
            connections.sort(key=_BY_BEGIN)
            latest_ns = accumulate((x.last_ns for x in connections), max)
            connections[:] = [x._replace(latest_ns=ns) for x, ns in zip(connections, latest_ns, strict=True)]
        for side in self._sides.values():
            order = np.argsort(np.frombuffer(side.starts, np.int64), kind="stable")
            for name in ("starts", "lengths", "positions"):
                values = np.frombuffer(getattr(side, name), np.int64)[order]
                setattr(side, name, array("q", values.tobytes()))
        for window in self._capture.windows():
            segments = self._dissector.segments(window)
            senders = endpoint_pairs(segments)[0]
            for i in np.flatnonzero(is_taken(window.file, segments.packet_number)).tolist():
                payload = self._payload(segments, i, int(senders[i]))
                data, wire_len = _packet(segments, i, payload, self.messages.addresses)
                number = int(segments.packet_number[i])
                yield int(segments.ts_ns[i]), RAW_IP, data, wire_len, [], window.file, number
            meter(int(window.caplen.sum()))

    def _payload(self, segments: Segments, i: int, sender: int) -> bytes:
        """The payload of a segment with what its messages are replaced by; x for all else."""
        length = int(segments.length[i])
        result = bytearray(b"x" * length)
        side = self._side(int(segments.key[i]), int(segments.ts_ns[i]), sender) if length else None
        masked = None if side is None else self._sides.get(side.key)
        if side is None or masked is None or side.base < 0:
            return bytes(result)
        is_syn = int(segments.flags[i]) & SYN != 0
        masked.near = begin = unwrapped(int(segments.seq[i]) + is_syn, side.base, masked.near)
        index = max(bisect_right(masked.starts, begin) - 1, 0)
        while index < len(masked.starts) and masked.starts[index] < begin + length:
            start, stop = masked.starts[index], masked.starts[index] + masked.lengths[index]
            low, high = max(start, begin), min(stop, begin + length)
            if low < high:
                self._file.seek(masked.positions[index] + low - start)
                result[low - begin : high - begin] = self._file.read(high - low)
            index += 1
        when = int(segments.packet_number[i]), int(segments.ts_ns[i]) // 1000
        for low, high in masked.conflicts.get(when, []) if masked.conflicts else ():
            span = slice(max(low - begin, 0), min(high - begin, length))
            result[span] = bytes(c ^ 1 for c in result[span])
        return bytes(result)

    def _side(self, key: int, ts_ns: int, sender: int) -> _Side | None:
        connections = self._connections.get(key, [])
        index = bisect_right(connections, ts_ns, key=_BY_BEGIN) - 1
        while index >= 0 and connections[index].latest_ns >= ts_ns:
            if connections[index].last_ns >= ts_ns:
                return next((side for side in connections[index].sides if side.sender == sender), None)
            index -= 1
        return None


def _packet(segments: Segments, i: int, payload: bytes, addresses: AddressMap) -> tuple[bytes, int]:
    """A packet of raw IP made of a segment, and its length on the wire."""
    version = int(segments.version[i])
    halves = ((segments.src_hi, segments.src_lo), (segments.dst_hi, segments.dst_lo))
    src, dst = (addresses.mapped(_address(version, int(hi[i]), int(lo[i]))) for hi, lo in halves)
    flags, window, ident = (int(getattr(segments, name)[i]) for name in ("flags", "window", "ident"))
    scale = window >> 16
    options = bytes([3, 3, scale - 2, 1]) if flags & SYN and scale >= 2 else b""
    words = int(segments.sport[i]), int(segments.dport[i]), int(segments.seq[i]), int(segments.ack[i])
    words = *words, (5 + len(options) // 4) << 12 | flags & 0xFFF, window & 0xFFFF  # type: ignore[assignment]  # longer
    tcp = struct.pack(">HHIIHHHH", *words, 0, 0) + options
    wire_length = int(segments.wire_length[i])
    tcp_length = len(tcp) + wire_length
    if len(payload) == wire_length:
        checksum = _checksum(src + dst + struct.pack(">IHH", tcp_length, 0, 6) + tcp + payload)
        # A segment that its receiver dropped is dropped by readers, too.
        checksum ^= int(segments.checksum[i]) < 0
        tcp = tcp[:16] + struct.pack(">H", checksum) + tcp[18:]
    if version == 4:
        total = 20 + tcp_length if 20 + tcp_length < 1 << 16 else 0  # 0: segmentation offload
        head = struct.pack(">BBHHHBBH", 0x45, 0, total, ident >> 16 & 0xFFFF, 0x4000, 64, 6, 0) + src + dst
        head = head[:10] + struct.pack(">H", _checksum(head)) + head[12:]
    else:
        head = struct.pack(">IHBB", 6 << 28, tcp_length if tcp_length < 1 << 16 else 0, 6, 64) + src + dst
    return head + tcp + payload, len(head) + tcp_length


def _address(version: int, hi: int, lo: int) -> bytes:
    return struct.pack(">I", lo & 0xFFFFFFFF) if version == 4 else struct.pack(">qq", hi, lo)


def _checksum(data: bytes) -> int:
    """The ones' complement of the sum of 16-bit words (RFC 1071)."""
    total = int.from_bytes(data + bytes(len(data) % 2)) % 0xFFFF
    return 0xFFFF - total
