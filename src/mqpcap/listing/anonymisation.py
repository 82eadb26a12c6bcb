"""Writes selected packets without addresses, bodies, names and secrets, so that they still decode to the same messages.

In: packets that an `Extraction` selected, and a key. Out: packets of raw IP, made anew. Called by: ``extraction``.

No byte of the capture is copied unless it is known to be harmless. Link headers, tunnels, options and packets that are
not TCP are left out. Addresses are replaced prefix-preserving: if two addresses share their first n bits, so do their
replacements. The scheme is that of Xu, Fan, Ammar and Moon (Prefix-Preserving IP Address Anonymization, 2002), with
BLAKE2 in place of AES. The library yacryptopan 1.0.2 was rejected: it needs a library of ciphers for these ten lines.
Ports, times, sequence numbers and all lengths stay.

Numbers, lengths and the protocol's own words (`MessageQueue.words`) stay in a message. A secret becomes ``*``. A body
becomes text of the same length that the key derives from it. All other text is a name: so is it, but its punctuation
stays. Equal values stay equal. Addresses in text become ``x``. A message that does not decode keeps only its fixed
header. Bytes outside of messages become ``x``.
"""

import hashlib
import os
import re
import struct
import tempfile
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import BinaryIO, Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.capture import Capture
from mqpcap.decode.proxy_header import MAX_LINE_BYTES
from mqpcap.decode.proxy_header import REASON as PROXY_REASON
from mqpcap.errors import MqpcapError, OutputError, let_go
from mqpcap.hooks import StageHooks
from mqpcap.listing.explanation import FieldItem, SecretSpans, holds_secrets, secret_spans
from mqpcap.listing.extra_columns import LAYOUT, WITH_BYTES
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.row_bytes import best_attempt, operation
from mqpcap.pipeline import CapturePipeline
from mqpcap.protocols import protocols
from mqpcap.reading import Meter, Outcome, read
from mqpcap.schema import fields
from mqpcap.schema.gzip_body import inflate
from mqpcap.schema.protocol import DIRECTIONS, MessageQueue
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.output import Output
from mqpcap.tcp.flags import SYN
from mqpcap.tcp.headers import Dissector, Segments, endpoint_pairs, endpoints
from mqpcap.tcp.sequence_numbers import unwrapped

KEY_BYTES = 32
MAX_NAMES = 1 << 16
"""Names that are recognised inside other text."""
RAW_IP = 101
"""Link type of packets that begin with their IP header."""
MAX_CACHED_ADDRESSES = 1 << 16
BodyForm = Literal["hash", "mask", "keep"]
NameForm = Literal["hash", "keep"]
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_ALNUM = bytes((_LETTERS + b"0123456789")[i % 36] for i in range(256))
_LOWER = bytes(_LETTERS[i % 26] for i in range(256))
_UPPER = _LOWER.upper()
_DIGITS = bytes(b"123456789"[i % 9] for i in range(256))
_WORD = re.compile(rb"[A-Za-z0-9]+|[\x80-\xff]+")
_TOKEN = re.compile(rb"[A-Za-z0-9_.:@/\x80-\xff-]+")
_ADDRESS = re.compile(
    rb"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])"
    rb"|(?<![0-9A-Za-z:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![0-9A-Za-z:])"
)
"""An IPv4 or IPv6 address in text; a time of day looks like one, too."""
_JSON_PART = re.compile(rb'"((?:[^"\\]|\\.)*)"|-?[0-9][0-9.eE+-]*|\\.')
_ESCAPE = re.compile(rb"(\\u[0-9a-fA-F]{4}|\\.)")


@dataclass(frozen=True, slots=True)
class Anonymisation:
    """How packets are anonymised: the key, and the forms of bodies and names."""

    key: bytes
    bodies: BodyForm = "hash"
    names: NameForm = "hash"

    def words(self) -> str:
        """The changes, in a sentence for people."""
        forms = {"hash": "replaced by derived text", "mask": "x", "keep": "as captured"}
        kept = sorted({name for protocol in protocols().values() for name in protocol.words})
        return (
            f"addresses mapped prefix-preserving; bodies {forms[self.bodies]}; names {forms[self.names]}; secrets *; "
            "bytes outside of messages x; link headers, tunnels, IP and TCP options left out; "
            f"kept: ports, times, sequence numbers, lengths, numbers and the columns {', '.join(kept)}"
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


@dataclass(slots=True)
class Masker:
    """Replaces values by values of the same length; equal values become equal."""

    how: Anonymisation
    names: set[bytes] = field(default_factory=set)
    """Names that were replaced, to find them in other text."""

    def _digest(self, value: bytes, length: int) -> bytes:
        return hashlib.shake_256(self.how.key + value).digest(length)

    def body(self, value: bytes, mode: BodyForm | None = None) -> bytes:
        """A body: JSON keeps its structure, text becomes letters and digits, other bytes become bytes."""
        mode = mode or self.how.bodies
        if mode == "keep":
            return value
        if value[:1] in (b"{", b"[", b'"') and _is_json(value):
            return _JSON_PART.sub(lambda part: self._json_part(part, mode), value)
        if mode == "mask":
            return b"x" * len(value)
        digest = self._digest(value, len(value))
        return digest.translate(_ALNUM) if _is_text(value) else digest

    def _json_part(self, part: re.Match[bytes], mode: BodyForm) -> bytes:
        if part[1] is None:
            return self.number(part[0])
        pieces = _ESCAPE.split(part[1])
        return b'"' + b"".join(x if i % 2 else self._plain(x, mode) for i, x in enumerate(pieces)) + b'"'

    def _plain(self, value: bytes, mode: BodyForm) -> bytes:
        return b"x" * len(value) if mode == "mask" else self._digest(value, len(value)).translate(_ALNUM)

    def number(self, value: bytes) -> bytes:
        """The text of a number: zeros and signs stay, so that it is one."""
        digest = self._digest(value, len(value)).translate(_DIGITS)
        return bytes(d if 0x31 <= c <= 0x39 else c for c, d in zip(value, digest, strict=True))

    def name(self, value: bytes) -> bytes:
        """A name: punctuation stays, and each word becomes a word of the same kinds of characters."""
        if self.how.names == "keep":
            return value
        if len(self.names) < MAX_NAMES:
            self.names.add(value)
        return _WORD.sub(lambda word: self._word(word[0]), value)

    def _word(self, value: bytes) -> bytes:
        digest = self._digest(value, len(value))
        lower, upper, digits = (digest.translate(table) for table in (_LOWER, _UPPER, _DIGITS))
        return bytes(
            digits[i] if 0x31 <= c <= 0x39 else upper[i] if 0x41 <= c <= 0x5A else c if c == 0x30 else lower[i]
            for i, c in enumerate(value)
        )

    def text(self, value: bytes) -> bytes:
        """Other text: addresses become x, known names are replaced."""
        value = _ADDRESS.sub(lambda address: re.sub(rb"[0-9A-Fa-f]", b"x", address[0]), value)
        return _TOKEN.sub(lambda token: self._token(token[0]), value)

    def _token(self, token: bytes) -> bytes:
        if token in self.names:
            return self.name(token)
        return b":".join(self.name(x) if x in self.names else x for x in token.split(b":"))


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _is_json(value: bytes) -> bool:
    import json

    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


@cache
def _kinds(protocol: MessageQueue) -> Mapping[str, fields.Kind]:
    """The kinds of a protocol's fields by column or name, as far as these decide what is replaced."""
    classes = [message for layout in protocol.layouts for message in layout.messages()]
    classes += [layout.header for layout in protocol.layouts if layout.header is not None]
    every = [kind for message in classes for kind in fields.every_field(message)]
    return {kind.column or kind.name: kind for kind in every if isinstance(kind, fields.Late | fields.Span)}


@cache
def _body_names(protocol: MessageQueue) -> frozenset[str]:
    return frozenset(derived.name for derived in protocol.derived if derived.body)


class MessageMasker:
    """Replaces what a message has of bodies, names, addresses and secrets. ``unreadable_count``: no more decodable."""

    def __init__(self, how: Anonymisation) -> None:
        self.masker, self.addresses = Masker(how), AddressMap(how.key)
        self.unreadable_count = 0

    def masked(self, row: MessageRow) -> bytes:
        """The bytes of a message, as many as there were."""
        protocol, data = protocols()[row.protocol], row.data
        best = best_attempt(row)
        is_whole = row.message["flaw"] is None and len(data) == row.message["frame_len"]
        if row.message["flaw"] == "truncated" and best is not None and not any(x.inflated for x in best.items):
            return self._truncated(protocol, row, [item for item in best.items if item.name])
        if best is None or not best.fits or not is_whole or not all(item.name for item in best.items):
            self.unreadable_count += row.message["flaw"] is None
            return self._header(protocol, row)
        secrets = SecretSpans()
        if holds_secrets(protocol, operation(row)) or any(item.secret for item in best.items):
            secrets = secret_spans(protocol, data, best)
        outside = [item for item in best.items if not item.inflated]
        inside = [item for item in best.items if item.inflated]
        result = bytearray(data)
        self._replace(protocol, result, outside, None)
        if inside:
            start = max((item.offset + item.length for item in outside), default=0)
            packed = self._packed(protocol, data[start:], inside, [*secrets.inflated])
            if packed is None:
                self.unreadable_count += 1
                return self._header(protocol, row)
            result[start:] = packed
        else:
            # Secrets up to any end: bytes that no field has. All text was replaced above.
            _mask_secrets(result, [(start, end) for start, end in secrets.spans if end <= len(data)])
        return bytes(result)

    def _header(self, protocol: MessageQueue, row: MessageRow) -> bytes:
        """A message with nothing but its fixed header."""
        headers = [x.header for x in protocol.layouts if x.name == row.message[LAYOUT]]
        kept = min((0 if header is None else fields.smallest(header) for header in headers), default=0)
        return row.data[:kept] + b"x" * (len(row.data) - kept)

    def _truncated(self, protocol: MessageQueue, row: MessageRow, items: list[FieldItem]) -> bytes:
        """A message up to its last whole field: its lengths say where the next message begins."""
        result = bytearray(row.data)
        self._replace(protocol, result, items, None)
        end = max((item.offset + item.length for item in items), default=0)
        result[end:] = b"x" * (len(result) - end)
        return bytes(result)

    def _packed(
        self, protocol: MessageQueue, data: bytes, items: list[FieldItem], secrets: list[tuple[int, int]]
    ) -> bytes | None:
        """A compressed body with its values replaced, as long as before; None if it does not get as short."""
        body, _ = inflate(data)
        if body is None:
            return None
        for mode in (None, "mask"):
            result = bytearray(body)
            self._replace(protocol, result, items, mode)
            _mask_secrets(result, secrets)
            if (packed := _gzip(bytes(result), len(data))) is not None:
                return packed
        return None

    def _replace(
        self, protocol: MessageQueue, result: bytearray, items: list[FieldItem], mode: BodyForm | None
    ) -> None:
        kinds, late_end = _kinds(protocol), 0
        for item in items:
            start, end = item.offset, item.offset + item.length
            if start == end or start < late_end or not isinstance(item.value, bytes | str):
                continue
            column = item.column or item.name
            kind, value = kinds.get(column), bytes(result[start:end])
            if isinstance(kind, fields.Late):
                late_end = end
                for word in kind.inner_values(value):
                    self._replace_word(protocol, result, start, word, mode)
            elif item.secret:
                result[start:end] = b"*" * item.length
            elif item.body:
                result[start:end] = self.masker.body(value, mode)
            elif isinstance(kind, fields.Address):
                result[start:end] = self.addresses.mapped(value)
            elif column in protocol.words:
                result[start:end] = self.masker.text(value)
            else:
                result[start:end] = self.masker.name(value)

    def _replace_word(
        self, protocol: MessageQueue, result: bytearray, offset: int, word: fields.InnerValue, mode: BodyForm | None
    ) -> None:
        start, end = offset + word.offset, offset + word.offset + word.length
        value = bytes(result[start:end])
        if word.name in _body_names(protocol):
            is_number = word.form == "number" and self.masker.how.bodies != "keep"
            result[start:end] = self.masker.number(value) if is_number else self.masker.body(value, mode)
        elif word.name in protocol.words:
            result[start:end] = self.masker.text(value)
        else:
            result[start:end] = self.masker.name(value)


def _mask_secrets(result: bytearray, spans: Sequence[tuple[int, int]]) -> None:
    for start, end in spans:
        stop = min(end, len(result))
        result[start:stop] = b"*" * max(stop - start, 0)


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


@dataclass(slots=True)
class _MaskedSide:
    """The masked messages of a side, in order: starts and lengths in the stream, and positions in the file."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    near: int = 0


class AnonymousPackets:
    """The anonymised packets of a capture: a pass over it collects masked messages in a temporary file."""

    def __init__(self, capture: Capture, how: Anonymisation) -> None:
        self._capture, self.messages = capture, MessageMasker(how)
        self._sides: dict[tuple[int, str], _MaskedSide] = {}
        self._connections: dict[int, list[tuple[int, int, tuple[_Side, ...]]]] = {}
        """By key of segments: first and last time, and both sides."""
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="mqpcap-")  # noqa: SIM115  # as long as this object
        weakref.finalize(self, let_go, self._file)
        self._position = 0

    def read(self, outcome: Outcome, meter: Meter) -> None:
        """Read the capture, and mask its messages."""
        options = outcome.choices.dissection(only=frozenset())
        hooks: StageHooks = replace(WITH_BYTES, ended=self._take_ended)
        options = replace(options, policy=replace(options.policy, bodies=0))  # messages have their bytes
        read(CapturePipeline(self._capture, options, self._take, hooks=hooks), Outcome(outcome.choices), meter)

    def _take(self, output: Output) -> None:
        if output.table == "problems":
            for row in output.rows.filter(pc.equal(output.rows["reason"], PROXY_REASON)).to_pylist():
                self._add(row["connection_id"], row["direction"], row["stream_offset"], _proxy_line(row["length"]))
        if output.fields is None or output.protocol is None:
            return
        for start in range(0, output.rows.num_rows, 1024):
            rows, values = output.rows.slice(start, 1024).to_pylist(), output.fields.slice(start, 1024).to_pylist()
            for message, own_fields in zip(rows, values, strict=True):
                data = self.messages.masked(MessageRow(0, output.protocol, message, own_fields))
                self._add(message["connection_id"], message["direction"], message["stream_offset"], data)

    def _add(self, connection_id: int, direction: str, offset: int, data: bytes) -> None:
        """Bytes that replace those of a stream."""
        side = self._sides.setdefault((connection_id, direction), _MaskedSide())
        side.starts.append(offset)
        side.lengths.append(len(data))
        side.positions.append(self._position)
        self._file.write(data)
        self._position += len(data)

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
            times = int(columns.first_ts_ns[i]), int(columns.last_ts_ns[i])
            self._connections.setdefault(key, []).append((*times, both))

    def packets(
        self, is_taken: Callable[[int, Int64Array], NDArray[np.bool_]], meter: Meter
    ) -> Iterator[tuple[int, int, bytes, int, list[str], int, int]]:
        """The packets as `PacketFile` takes them, with their files and numbers; ``is_taken``: a mask of numbers."""
        dissector = Dissector()
        for side in self._sides.values():
            order = np.argsort(np.frombuffer(side.starts, np.int64), kind="stable")
            for name in ("starts", "lengths", "positions"):
                values = np.frombuffer(getattr(side, name), np.int64)[order]
                setattr(side, name, array("q", values.tobytes()))
        for window in self._capture.windows():
            segments = dissector.segments(window)
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
        return bytes(result)

    def _side(self, key: int, ts_ns: int, sender: int) -> _Side | None:
        for first_ns, last_ns, sides in reversed(self._connections.get(key, [])):
            if first_ns <= ts_ns <= last_ns:
                return next((side for side in sides if side.sender == sender), None)
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
