"""Reads a capture file as windows: arrays of packet offsets over a buffer.

In: a `PeekableStream`. Out: `Window`, `Note` and `FileFacts`. Called by: ``inputs``, which feeds ``tcp.headers``.

Promises: a window has about WINDOW_BYTES of one file. A claimed length takes no memory before the bytes have arrived. A
file that is truncated, damaged or still being written ends with a note, never with an exception.

Each window is read into a fresh buffer, after the bytes of a record that was incomplete at the end of the previous
window. A record longer than the buffer doubles the buffer, as long as bytes arrive.

A part of a file starts at a `ResumePoint`, which ``boundaries`` finds in the middle of the file. It ends before the
first record that starts at or after a byte. Its packets are numbered from 1; the caller adds those of earlier parts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mqpcap.capture import records_index
from mqpcap.capture.pcapng import INTERFACE, SECRETS, SECTION, TLS_KEY_LOG
from mqpcap.capture.sources import InputWait, PeekableStream
from mqpcap.errors import CaptureError
from mqpcap.records import dataclass

WINDOW_BYTES = 8 << 20
"""File bytes in a window. Half of it takes 25 MB less and 10 % more time."""
RECORD_BYTES = 16
"""Bytes of a packet's record header in a pcap file."""
MAX_RECORD_BYTES = 256 << 20
"""Longest packet record or block; a longer claim ends its file."""
MAX_WINDOW_PACKETS = 1 << 16
"""Packets in a window; the arrays of a packet take three times the bytes of a small packet."""
MAX_INTERFACES = 1 << 16
"""Interface descriptions in a pcapng section."""
MAX_OPTIONS = 1 << 10
"""Options read of one pcapng block."""

NoteKind = Literal["cut_short", "damaged"]

Order = Literal["little", "big"]
_ORDERS: dict[Order, str] = {"little": "<", "big": ">"}

# magic number as the file holds it: byte order, nanoseconds in a tick
_PCAP_MAGICS: dict[bytes, tuple[Order, int]] = {
    b"\xd4\xc3\xb2\xa1": ("little", 1000),
    b"\xa1\xb2\xc3\xd4": ("big", 1000),
    b"\x4d\x3c\xb2\xa1": ("little", 1),
    b"\xa1\xb2\x3c\x4d": ("big", 1),
    b"\x34\xcd\xb2\xa1": ("little", 1000),
    b"\xa1\xb2\xcd\x34": ("big", 1000),
    b"\x12\xcb\xe2\xa1": ("little", 1),
    b"\xa1\xe2\xcb\x12": ("big", 1),
}
_RECORD_HEADER_BYTES = {0xA1B2C3D4: (16, 24, 20), 0xA1B23C4D: (16,), 0xA1B2CD34: (24, 28), 0xA1E2CB12: (24,)}
"""By magic number the lengths that a record's header may have, the usual one first.

Kuznetsov's patches to libpcap (magic a1b2cd34) added an interface, a protocol and a direction; Red Hat 6.1 and Nokia
added fields without another magic number (wiretap/libpcap.c of Wireshark). netsniff-ng has a magic number of its own
(pcap_io.h, BORKMANN_TCPDUMP_MAGIC). Its times are nanoseconds.
"""
MAX_PROBED_STEP_S = 366 * 86_400
"""Seconds between the first two packets of a file, at most, if they are to show its format."""
MAX_PROBED_BYTES = 1 << 18
"""Captured bytes of the first packet, at most, if the second is to show the format of the file."""
# CommView has a date in place of a magic number: year, month, day, hour, minute, second and microseconds.
_COMMVIEW_DATE = rb"(?:[\xd0-\xff]\x07|[\0-\x33]\x08)[\x01-\x0c][\x01-\x1f][\0-\x17][\0-\x3b][\0-\x3b]..[\0-\x0f]\0"
_OTHER_FORMATS: dict[bytes, str] = {
    rb"snoop\0\0\0": "snoop", rb"GMBU": "Network Monitor", rb"RTSS": "Network Monitor", rb"XCP\0": "Sniffer",
    rb"TRSNIFF data    \x1a": "Sniffer", rb"\x05VNF": "Shomiti Surveyor", rb"iptrace ": "iptrace",
    rb"btsnoop\0": "btsnoop", rb"\x7fver": "EtherPeek", rb"5VIEW": "5View", rb"\xaa\xaa\xaa\xaa \0\0\0": "5View",
    rb"ObserverPktBuffe": "Observer", rb"TR\0d\0|\0\0\0\x01\0{5}\x07\xd0\0": "HP-UX nettl",
    rb"[\0\x01]\x10..\x01[\x04\x05]Trace": "LANalyzer", rb"\+-{9}\+-{12}": "K12 text",
    rb"(..)\1\0" + _COMMVIEW_DATE: "CommView", rb"..[\0-\x03]\0" + _COMMVIEW_DATE: "CommView",
}  # fmt: skip
"""By a regular expression of the first 24 bytes."""
ERF_RECORDS = 3
"""Records of an ERF file that are compared."""
ERF_SECONDS = 631_152_000, 4_102_444_800
"""Times that a file without a magic number may have if it has fewer records: 1990 to 2100."""
_SECTION_HEADER = SECTION.to_bytes(4, "big")
_SECTION_ORDERS: dict[bytes, Order] = {b"\x4d\x3c\x2b\x1a": "little", b"\x1a\x2b\x3c\x4d": "big"}
_PCAP_HEADER_BYTES = 24
_UNKNOWN_COUNT = b"\xff" * 8
_MAX_COUNT = (1 << 63) - 1


_DAMAGE = {
    records_index.TOO_LONG: "a record claims {need} bytes, more than the limit of {limit}",
    records_index.BAD_LENGTH: "a block has the impossible length {need}",
    records_index.UNEQUAL_LENGTHS: "a block of {need} bytes does not repeat its length at its end",
    records_index.NO_INTERFACE: "a packet names interface {need}, which was not described",
    records_index.OVERRUN: "a packet claims {need} captured bytes, more than its block holds",
}


@dataclass(frozen=True, slots=True)
class Window:
    """Some packets of one file, in file order, over the file's bytes.

    offset: int64, start of the packet in buffer.
    caplen, wirelen: int64, bytes captured and sent.
    ts_ns: int64, nanoseconds since 1970.
    link_type: int32, LINKTYPE number.
    packet_number: int64, from 1 in the file.
    file: index into Capture.files.
    position: offset of buffer in the file's plain bytes.
    secrets: key logs of TLS in the pcapng file, before the last of these packets.
    """

    buffer: NDArray[np.uint8]
    offset: NDArray[np.int64]
    caplen: NDArray[np.int64]
    wirelen: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    link_type: NDArray[np.int32]
    packet_number: NDArray[np.int64]
    file: int
    position: int = 0
    secrets: tuple[bytes, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of the packets with their records, as in a pcap file, for progress."""
        return int(self.caplen.sum()) + RECORD_BYTES * len(self.caplen)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A record boundary, and the state of a reader that starts there.

    pcapng: the section's byte order, its rows of the interface table, the time of the last packet that has a time.
    pcap: the byte order; ``interfaces`` has link type, nanoseconds of a tick and bytes of a record's header.
    """

    position: int
    order: Order = "little"
    interfaces: tuple[int, ...] = ()
    last_ts_ns: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the user on a byte of a file."""

    file: str
    offset: int
    kind: NoteKind
    text: str

    def __str__(self) -> str:
        return f"{self.file}: at byte {self.offset}, {self.text}"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Properties of a file and counts of its packets, for ``info``.

    drop_count is None if the file has no such count. tick_ns: nanoseconds in the coarsest clock tick, 0 if the tick is
    shorter than a nanosecond. snaplen: 0 for no limit.
    """

    file: str
    format: Literal["pcap", "pcapng"]
    byte_order: Order
    compression: str | None
    tick_ns: int
    snaplen: int
    link_types: tuple[int, ...]
    interfaces: tuple[str, ...]
    packet_count: int
    captured_bytes: int
    first_ts_ns: int | None
    last_ts_ns: int | None
    drop_count: int | None


@dataclass(frozen=True, slots=True)
class _Walk:
    """The end of a walk over a buffer, and a line of `records_index.LINES` for each property of the packets."""

    rows: NDArray[np.int64]
    position: int
    stop: int
    need: int


class _Records:
    """A file format: a walk over its records, and the properties of the file."""

    format: Literal["pcap", "pcapng"]

    def __init__(self) -> None:
        self.order: Order = "little"
        self.first_order: Order | None = None
        """Byte order of a pcapng file's first section; later sections may have another."""
        self.number_count = 0
        """Packets so numbered, including blocks that Wireshark counts as packets."""
        self.tick_ns = self.snaplen = 0
        self.link_types: dict[int, None] = {}
        self.names: dict[str, None] = {}
        self.dropped: dict[tuple[int, int], int] = {}
        self.dropped_before_packets: int | None = None
        self.packet_count = self.captured_bytes = 0
        self.secrets: list[bytes] = []
        self.first_ts_ns: int | None = None
        self.last_ts_ns: int | None = None

    def walk(self, buffer: NDArray[np.uint8], start: int, end: int) -> _Walk:
        """The packets after start, which is a record or block boundary."""
        raise NotImplementedError

    def resume(self, point: ResumePoint) -> None:
        """Continue at a point. Names and statistics of earlier interfaces stay unknown."""

    def resume_point(self, position: int) -> ResumePoint:
        """The state at a boundary."""
        return ResumePoint(position)


def capture_format(head: bytes) -> Literal["pcap", "pcapng"] | None:
    """The format of a file that starts with these (up to 12) bytes; None if it is not a capture."""
    if head[:4] in _PCAP_MAGICS:
        return "pcap"
    if head[:4] == _SECTION_HEADER and (len(head) < 12 or head[8:12] in _SECTION_ORDERS):
        return "pcapng"
    return None


def other_format(source: PeekableStream) -> str | None:
    """The program whose capture format a file has that is neither pcap nor pcapng; None if it is not known."""
    head = source.peek(24)
    name = next((name for magic, name in _OTHER_FORMATS.items() if re.match(magic, head, re.DOTALL)), None)
    return name or ("Endace ERF" if _is_erf(source) else None)


def _is_erf(source: PeekableStream) -> bool:
    """Whether a file is a chain of ERF records, which have no magic number.

    A record has its time in 1/2^32 s, type, flags, its length, lost packets, and the length sent.
    """
    start = 0
    times_s: list[int] = []
    while len(times_s) < ERF_RECORDS:
        head = source.peek(start + 16)[start:]
        if len(head) < 16:
            break
        second, kind, length = int.from_bytes(head[4:8], "little"), head[8] & 0x7F, int.from_bytes(head[10:12], "big")
        if not 1 <= kind <= 48 or length < 16 or len(source.peek(start + length)) < start + length:
            return False
        start += length
        times_s.append(second)
    if len(times_s) < ERF_RECORDS and not all(ERF_SECONDS[0] <= second <= ERF_SECONDS[1] for second in times_s):
        return False
    return bool(times_s) and max(times_s) - min(times_s) <= MAX_PROBED_STEP_S


class WindowReader:
    """One pass over a file, or a part of it: windows, and then notes and facts.

    point: reading starts there, not at the first record; the source is seekable. until: reading ends before the first
    record that starts at or after this byte.
    """

    def __init__(
        self, name: str, file: int, source: PeekableStream, point: ResumePoint | None = None, until: int | None = None
    ) -> None:
        self.name = name
        self.notes: list[Note] = []
        self._file = file
        self._source = source
        self._resume_point = point
        self._until = until
        # Bytes are read up to here: the end of the last record, once it is known.
        self._limit = until
        self._base = 0
        self._records: _Records | None = None

    @property
    def facts(self) -> FileFacts | None:
        """The facts of the file as far as it was read; None before reading."""
        records = self._records
        if records is None:
            return None
        return FileFacts(
            file=self.name,
            format=records.format,
            byte_order=records.first_order or records.order,
            compression=self._source.compression,
            tick_ns=records.tick_ns,
            snaplen=records.snaplen,
            link_types=tuple(records.link_types),
            interfaces=tuple(records.names),
            packet_count=records.packet_count,
            captured_bytes=records.captured_bytes,
            first_ts_ns=records.first_ts_ns,
            last_ts_ns=records.last_ts_ns,
            drop_count=max(
                (count for count in (_sum(records.dropped), records.dropped_before_packets) if count is not None),
                default=None,
            ),
        )

    @property
    def end_point(self) -> ResumePoint:
        """The point where reading ended."""
        return ResumePoint(0) if self._records is None else self._records.resume_point(self._base)

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Key logs of TLS after the last packet."""
        return () if self._records is None else tuple(self._records.secrets)

    @property
    def number_count(self) -> int:
        """Packets numbered in this part; later parts add it to their numbers."""
        return 0 if self._records is None else self._records.number_count

    def windows(self, wait: InputWait | None = None) -> Iterator[Window]:
        """The windows, in order.

        ``wait``: callbacks for reading a pipe live. If set, a window ends as soon as the pipe has no more data.
        """
        records = self._opened()
        if records is None:
            return
        self._records = records
        buffer = np.empty(WINDOW_BYTES, np.uint8)
        held = 0
        while True:
            capacity = len(buffer) if self._limit is None else min(len(buffer), max(held, self._limit - self._base))
            asked = buffer[held:capacity].data
            count = self._source.readinto(asked) if wait is None else self._source.read_ready(asked, wait)
            filled = held + count
            position, walk = 0, None
            while walk is None or walk.stop == records_index.FULL:
                walk = records.walk(buffer, position, filled)
                if walk.rows.shape[1]:
                    yield self._window(buffer, walk.rows, records)
                position = walk.position
            self._base += position
            held = filled - position
            if walk.stop != records_index.MORE:
                self._note("damaged", _DAMAGE[walk.stop].format(need=walk.need, limit=MAX_RECORD_BYTES))
                return
            if filled < capacity and (wait is None or not self._source.is_pipe or not count):
                self._end(held, walk)
                return
            if self._until is not None and self._base >= self._until:
                return
            if self._limit is not None and self._base + held >= self._limit:
                self._limit = self._base + walk.need
            # A window that grew for a long record may hold more bytes after it than a usual window has room for.
            size = 2 * len(buffer) if walk.need > len(buffer) else max(WINDOW_BYTES, walk.need, held + 1)
            fresh = np.empty(size, np.uint8)
            fresh[:held] = buffer[position:filled]
            buffer = fresh

    def _opened(self) -> _Records | None:
        if self._resume_point is not None:
            self._source.seek(0)
        head = self._source.peek(_PCAP_HEADER_BYTES)
        kind = capture_format(head[:12])
        if kind is None:
            raise CaptureError(f"{self.name} is not a capture: it begins with {head[:4].hex() or 'nothing'}")
        records = _Pcap(head, _record_header_bytes(self._source, head)) if kind == "pcap" else _Pcapng()
        if kind == "pcap" and len(head) < _PCAP_HEADER_BYTES:
            self._note("cut_short", f"the file ends after {len(head)} of the {_PCAP_HEADER_BYTES} header bytes")
            self._records = records
            return None
        if self._resume_point is None:
            self._base = len(self._source.read(_PCAP_HEADER_BYTES)) if kind == "pcap" else 0
        else:
            self._base = self._resume_point.position
            self._source.seek(self._base)
            records.resume(self._resume_point)
        return records

    def _window(self, buffer: NDArray[np.uint8], rows: NDArray[np.int64], records: _Records) -> Window:
        offset, caplen, wirelen, ts_ns, packet_number, link_type = rows
        records.packet_count += len(caplen)
        records.captured_bytes += int(caplen.sum())
        records.first_ts_ns = int(ts_ns[0]) if records.first_ts_ns is None else records.first_ts_ns
        records.last_ts_ns = int(ts_ns[-1])
        link_types, secrets = link_type.astype(np.int32), tuple(records.secrets)
        records.secrets = []
        return Window(
            buffer, offset, caplen, wirelen, ts_ns, link_types, packet_number, self._file, self._base, secrets
        )

    def _end(self, left: int, walk: _Walk) -> None:
        failure = self._source.failure
        if left:
            because = f" ({failure})" if failure else ""
            self._note("cut_short", f"the last record needs {walk.need} bytes but {left} are left{because}")
        elif failure:
            self._note("cut_short" if "cut off" in failure else "damaged", failure)

    def _note(self, kind: NoteKind, text: str) -> None:
        self.notes.append(Note(self.name, self._base, kind, text))


def _record_header_bytes(source: PeekableStream, head: bytes) -> int:
    """The length of the record headers of a pcap file: with the right one the second record is plausible.

    A pipe has the usual length, as the second record may not have arrived.
    """
    order, tick_ns = _PCAP_MAGICS[head[:4]]
    lengths = _RECORD_HEADER_BYTES[int.from_bytes(head[:4], order)]
    first_header = (
        b"" if source.is_pipe or len(lengths) == 1 else source.peek(_PCAP_HEADER_BYTES + 16)[_PCAP_HEADER_BYTES:]
    )
    if len(first_header) == 16:
        captured = int.from_bytes(first_header[8:12], order)
        for length in lengths if captured <= MAX_PROBED_BYTES else ():
            second_at = _PCAP_HEADER_BYTES + length + captured
            second = source.peek(second_at + 16)[second_at:]
            is_end = not second and len(source.peek(second_at)) == second_at
            if is_end or (len(second) >= 4 and _may_follow(first_header, second, order, tick_ns)):
                return length
    return lengths[0]


def _may_follow(first_header: bytes, second: bytes, order: Order, tick_ns: int) -> bool:
    """Whether bytes can be the header of the second record; the end of the file may cut it off."""
    before_s, after_s, fraction, captured = (
        int.from_bytes(part, order) for part in (first_header[:4], second[:4], second[4:8], second[8:12])
    )
    is_near = abs(after_s - before_s) <= MAX_PROBED_STEP_S
    return is_near and fraction * tick_ns < 1_000_000_000 and captured <= MAX_RECORD_BYTES


def _sum(counts: Mapping[tuple[int, int], int]) -> int | None:
    """The sum of interface counters, at most what tables can hold; None if there is none."""
    return min(sum(counts.values()), _MAX_COUNT) if counts else None


def _fresh_rows(start: int, end: int) -> NDArray[np.int64]:
    """Rows for the packets between two offsets of a buffer."""
    return np.empty((len(records_index.LINES), min(MAX_WINDOW_PACKETS, (end - start) // 16 + 1)), np.int64)


class _Pcap(_Records):
    """The records of a pcap file."""

    format = "pcap"

    def __init__(self, head: bytes, record_header_bytes: int) -> None:
        super().__init__()
        self._record_header_bytes = record_header_bytes
        self._link_type = 0
        self._set_header(head)

    def _set_header(self, head: bytes) -> None:
        """Apply the header of a file; a truncated header sets only the byte order and the tick."""
        self.order, self.tick_ns = _PCAP_MAGICS[head[:4]]
        if len(head) == _PCAP_HEADER_BYTES:
            self.snaplen, network = struct.unpack(_ORDERS[self.order] + "II", head[16:24])
            # The upper half holds the length of the frame check sequence.
            self._link_type = network & 0xFFFF
            self.link_types[self._link_type] = None

    def walk(self, buffer: NDArray[np.uint8], start: int, end: int) -> _Walk:
        rows = _fresh_rows(start, end)
        count, position, stop, need = records_index.pcap_records(
            buffer.data,
            start,
            end,
            self.order == "big",
            self.tick_ns,
            self._record_header_bytes,
            MAX_RECORD_BYTES,
            rows.data,
        )
        rows[4, :count] = np.arange(self.number_count + 1, self.number_count + 1 + count)
        rows[5, :count] = self._link_type
        self.number_count += count
        if stop == records_index.FILE_HEADER:
            stop = records_index.MORE
            if end - position >= need:
                self._set_header(buffer[position : position + need].tobytes())
                position, stop = position + need, records_index.FULL
        return _Walk(rows[:, :count], position, stop, need)

    def resume(self, point: ResumePoint) -> None:
        if point.interfaces:  # else the header of the file applies
            self.order = point.order
            self._link_type, self.tick_ns, self._record_header_bytes = point.interfaces

    def resume_point(self, position: int) -> ResumePoint:
        return ResumePoint(position, self.order, (self._link_type, self.tick_ns, self._record_header_bytes))


class _Pcapng(_Records):
    """The blocks of a pcapng file, over all its sections."""

    format = "pcapng"

    def __init__(self) -> None:
        super().__init__()
        # As large as the limit: untouched pages of zeros take no memory.
        self._table = np.zeros((MAX_INTERFACES, records_index.INTERFACE_WIDTH), np.int64)
        self._count = 0
        self._section = 0
        self._clock_ns = 0

    def walk(self, buffer: NDArray[np.uint8], start: int, end: int) -> _Walk:
        rows = _fresh_rows(start, end)
        is_big = self.order == "big"
        walk = records_index.BlockWalk(buffer.data, rows.data, start, is_big, self._clock_ns, self.number_count)
        stop = records_index.FULL
        while stop == records_index.FULL:
            stop = walk.blocks(end, MAX_RECORD_BYTES, self._table[: self._count].reshape(-1).data)
            self.order = "big" if walk.big else "little"
            if stop != records_index.SPECIAL:
                break
            stop = self._special(bytes(buffer[walk.position : walk.position + walk.need]))
            walk.position += walk.need if stop == records_index.FULL else 0
        self._clock_ns, self.number_count = walk.last_ts_ns, walk.last_number
        if walk.dropped >= 0:
            self.dropped_before_packets = (self.dropped_before_packets or 0) + walk.dropped
        return _Walk(rows[:, : walk.row], walk.position, stop, walk.need)

    def resume(self, point: ResumePoint) -> None:
        self.order = point.order
        self._count = len(point.interfaces) // records_index.INTERFACE_WIDTH
        self._table.reshape(-1)[: len(point.interfaces)] = point.interfaces
        self._clock_ns = point.last_ts_ns

    def resume_point(self, position: int) -> ResumePoint:
        described = self._table[: self._count].reshape(-1).tolist()
        return ResumePoint(position, self.order, tuple(described), self._clock_ns)

    def _special(self, block: bytes) -> int:
        """Read a block that describes packets; FULL if the walk continues after it."""
        order = _ORDERS[self.order]
        kind = struct.unpack(order + "I", block[:4])[0]
        if block[:4] == _SECTION_HEADER:
            self.first_order = self.first_order or self.order
            self._section += 1
            self._count = 0
        elif kind == SECRETS and sum(map(len, self.secrets)) > MAX_RECORD_BYTES:
            return records_index.TOO_LONG
        elif kind == SECRETS:
            secrets_type, length = struct.unpack(order + "II", block[8:16])
            if secrets_type == TLS_KEY_LOG:
                self.secrets.append(block[16 : 16 + length])
        elif kind != INTERFACE:
            self._add_statistics(block, order)
        elif self._count >= MAX_INTERFACES:
            return records_index.TOO_LONG
        else:
            self._add_interface(block, order)
        return records_index.FULL

    def _add_interface(self, block: bytes, order: str) -> None:
        link_type, _, snaplen = struct.unpack(order + "HHI", block[8:16])
        option_values = _first_options(block[16:-4], order)
        resolution = option_values[9][0] if option_values.get(9) else 6
        offset_s = struct.unpack(order + "q", option_values[14])[0] if len(option_values.get(14, b"")) == 8 else 0
        multiplier, divisor, shift = _ticks(resolution)
        # The walk limits times to the range of the column's type.
        offset_ns = max(-(1 << 62), min(offset_s * 1_000_000_000, 1 << 62))
        self._table[self._count] = link_type, multiplier, divisor, shift, offset_ns, snaplen
        name = option_values.get(2, b"").decode("utf-8", "replace") or f"{self._section}:{self._count}"
        self.names.setdefault(name)
        self.link_types.setdefault(link_type)
        self.snaplen = max(self.snaplen, snaplen)
        self.tick_ns = max(self.tick_ns, multiplier if shift < 0 else 1_000_000_000 >> shift)
        self._count += 1

    def _add_statistics(self, block: bytes, order: str) -> None:
        interface = (self._section, struct.unpack(order + "I", block[8:12])[0])
        option_values = _first_options(block[20:-4], order)
        # Counters only grow, so the last block of an interface has the totals.
        for code in (5, 7):  # dropped by the interface, by the operating system
            if len(option_values.get(code, b"")) == 8 and option_values[code] != _UNKNOWN_COUNT:
                count = struct.unpack(order + "Q", option_values[code])[0]
                self.dropped[interface] = max(count, self.dropped.get(interface, 0)) if code == 7 else count


def options(area: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Code and value of each option of a block, or record of a block of names; stops at the first that does not fit."""
    position = 0
    while len(area) - position >= 4:
        code, length = struct.unpack_from(order + "HH", area, position)
        if code == 0 or length > len(area) - position - 4:
            return
        yield code, area[position + 4 : position + 4 + length]
        position += 4 + (length + 3) // 4 * 4


def _first_options(area: bytes, order: str) -> dict[int, bytes]:
    """The first option of each code."""
    return dict(reversed([*islice(options(area, order), MAX_OPTIONS)]))


def _ticks(resolution: int) -> tuple[int, int, int]:
    """(multiplier, divisor, shift) of if_tsresol; shift is -1 for powers of ten, multiplier 0 for ticks too fine."""
    exponent = resolution & 0x7F
    if resolution & 0x80:
        return (0, 1, -1) if exponent > 62 else (1, 1, exponent)
    if exponent <= 9:
        return 10 ** (9 - exponent), 1, -1
    return (0, 1, -1) if exponent > 27 else (1, 10 ** (exponent - 9), -1)
