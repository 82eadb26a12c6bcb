# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the offsets, lengths and times of packet records in the bytes of a capture file.

In: a piece of a file, from ``windows``. Out: arrays of the caller, filled, and why the walk stopped. Promises: no byte
outside ``start`` to ``end`` is read, no memory is allocated, no bytes raise.

A walk stops for a reason of the list below. Some pcapng blocks change the meaning of later blocks (section headers,
interface descriptions) or are for people (statistics). They are rare, so the walk stops before them, once they are
complete and sound, and the caller reads them in Python.
"""

import cython

from mqpcap.capture import pcapng

FULL = 0
"""The arrays are full; the next walk starts at the position."""
MORE = 1
"""The record at the position is incomplete; it has `need` bytes."""
TOO_LONG = 2
"""The record at the position claims `need` bytes, over the limit."""
SPECIAL = 3
"""A section header, interface description, statistics or secrets block of `need` bytes starts at the position."""
BAD_LENGTH = 4
"""The block's length is no multiple of four, or too short for its type."""
UNEQUAL_LENGTHS = 5
"""The lengths at the start and the end of the block differ."""
NO_INTERFACE = 6
"""The packet names an interface that was not described."""
OVERRUN = 7
"""The packet's captured length passes its block."""
FILE_HEADER = 8
"""The header of another pcap file begins at the position: files that were joined by ``cat``."""

_SECTION = cython.declare(cython.longlong, pcapng.SECTION)
_INTERFACE = cython.declare(cython.longlong, pcapng.INTERFACE)
_OLD_PACKET = cython.declare(cython.longlong, pcapng.OLD_PACKET)
_SIMPLE_PACKET = cython.declare(cython.longlong, pcapng.SIMPLE_PACKET)
_STATISTICS = cython.declare(cython.longlong, pcapng.STATISTICS)
_PACKET = cython.declare(cython.longlong, pcapng.PACKET)
_JOURNAL = cython.declare(cython.longlong, pcapng.JOURNAL)
_SECRETS = cython.declare(cython.longlong, pcapng.SECRETS)

LINES = ("offset", "caplen", "wirelen", "ts_ns", "packet_number", "link_type")
"""Properties of a packet, a line of the arrays each."""
INTERFACE_WIDTH = 6
"""Numbers in a row of the interface table: link type, multiplier, divisor, shift, offset in ns, snap length."""

LONGEST_BYTES = 1 << 18
"""A record in a chain is not longer: what tcpdump captures of a packet at most."""
SEARCH_BYTES = 1 << 20
"""Bytes searched for a record boundary."""
CHAIN_BYTES = 2 * LONGEST_BYTES
"""Length of a chain; a longer chain cannot lie within a single packet."""
CHAIN_RECORDS = 4
"""Records of a chain at least."""
MAX_PACKET_OPTIONS = 64
"""Options read of one packet, to find its count of lost packets."""
STEP_S = 86_400
"""Seconds between neighbouring packets of a chain in a pcap file, at most."""

# The same for C.
_INTERFACE_WIDTH = cython.declare(cython.longlong, INTERFACE_WIDTH)
_LONGEST_BYTES = cython.declare(cython.longlong, LONGEST_BYTES)
_SEARCH_BYTES = cython.declare(cython.Py_ssize_t, SEARCH_BYTES)
_CHAIN_BYTES = cython.declare(cython.Py_ssize_t, CHAIN_BYTES)
_CHAIN_RECORDS = cython.declare(cython.Py_ssize_t, CHAIN_RECORDS)
_OPTION_LIMIT = cython.declare(cython.int, MAX_PACKET_OPTIONS)
_STEP_S = cython.declare(cython.longlong, STEP_S)
# Numbers over 31 bits are Python objects in compiled code unless they are declared.
_HALF_RANGE = cython.declare(cython.longlong, 0x80000000)
_RANGE = cython.declare(cython.longlong, 0x100000000)
_MICROSECONDS = cython.declare(cython.longlong, 0xA1B2C3D4)
_NANOSECONDS = cython.declare(cython.longlong, 0xA1B23C4D)
_SECONDS_MAX = cython.declare(cython.longlong, 9223372035)
_TIME_MAX = cython.declare(cython.longlong, 9223372036854775807)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _u32(buffer: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, big: cython.bint) -> cython.longlong:
    a: cython.longlong = buffer[position]
    b: cython.longlong = buffer[position + 1]
    c: cython.longlong = buffer[position + 2]
    d: cython.longlong = buffer[position + 3]
    if big:
        return ((a * 256 + b) * 256 + c) * 256 + d
    return ((d * 256 + c) * 256 + b) * 256 + a


@cython.cfunc
@cython.exceptval(-1, check=False)
def _u16(buffer: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, big: cython.bint) -> cython.longlong:
    a: cython.longlong = buffer[position]
    b: cython.longlong = buffer[position + 1]
    if big:
        return a * 256 + b
    return b * 256 + a


def pcap_records(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    big: cython.bint,
    tick_ns: cython.longlong,
    head: cython.Py_ssize_t,
    limit: cython.longlong,
    rows: cython.longlong[:, ::1],
) -> tuple[int, int, int, int]:
    """(rows, position, stop, need) after walking pcap records from start, which is a record boundary.

    head: bytes of a record's header. ``rows`` gets the first four of LINES.
    need is the whole length of the record at the position, 0 where it is not known.
    """
    position: cython.Py_ssize_t = start
    capacity: cython.Py_ssize_t = rows.shape[1]
    row: cython.Py_ssize_t = 0
    captured: cython.longlong
    while row < capacity:
        if end - position < head:
            return row, position, 1, head
        captured = _u32(buffer, position + 8, big)
        if captured == 0 and _is_file_header(buffer, position):
            return row, position, 8, 24
        if captured > limit:
            return row, position, 2, captured + head
        if captured > end - position - head:
            return row, position, 1, captured + head
        rows[0, row] = position + head
        rows[1, row] = captured
        rows[2, row] = _u32(buffer, position + 12, big)
        rows[3, row] = _u32(buffer, position, big) * 1000000000 + _u32(buffer, position + 4, big) * tick_ns
        row += 1
        position += head + captured
    return row, position, 0, 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def _is_file_header(buffer: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.bint:
    """Whether a pcap header of version 2.4 stands there; as a record it would be of 2055 or have impossible times."""
    magic: cython.longlong = _u32(buffer, position, False)
    version: cython.longlong = _u32(buffer, position + 4, False)
    if magic == _MICROSECONDS or magic == _NANOSECONDS:
        return version == 0x00040002
    magic = _u32(buffer, position, True)
    return (magic == _MICROSECONDS or magic == _NANOSECONDS) and version == 0x04000200


@cython.cfunc
@cython.exceptval(-1, check=False)
def _record_bytes(
    buffer: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, is_pcap: cython.bint, big: cython.bint
) -> cython.longlong:
    """The length of the record or block at a position, whose header is complete; 0 if it does not fit a chain."""
    length: cython.longlong
    sent: cython.longlong
    if is_pcap:
        length = _u32(buffer, position + 8, big)
        # Both lengths: if they are equal, a chain by the second length starts four bytes after each boundary.
        sent = _u32(buffer, position + 12, big)
        return 0 if length < 1 or length > sent or sent > _LONGEST_BYTES else length + 16
    length = _u32(buffer, position + 4, big)
    if length < 12 or length % 4 != 0 or length > _LONGEST_BYTES:
        return 0
    if length <= buffer.shape[0] - position and _u32(buffer, position + length - 4, big) != length:
        return 0
    return length


def find_chain(
    buffer: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    is_pcap: cython.bint,
    is_end: cython.bint,
    big: cython.bint,
    steps: cython.longlong,
) -> int:
    """The first position below SEARCH_BYTES where a chain of records (pcap) or blocks (pcapng) starts, -1 for none.

    Records have 1 to LONGEST_BYTES bytes, captured and sent, and neighbours are at most STEP_S seconds apart. Blocks
    repeat their length and start at every fourth byte. A chain has CHAIN_RECORDS records over CHAIN_BYTES, or reaches
    the end of the file if ``is_end``. steps: records tried in all.
    """
    end: cython.Py_ssize_t = buffer.shape[0]
    position: cython.Py_ssize_t
    count: cython.Py_ssize_t
    length: cython.longlong
    seconds: cython.longlong
    previous_s: cython.longlong
    while start < _SEARCH_BYTES and start <= end:
        position = start
        count = 0
        previous_s = 0
        while True:
            if count >= _CHAIN_RECORDS and position - start >= _CHAIN_BYTES:
                return start
            if position == end and is_end:
                return start
            if end - position < (16 if is_pcap else 12):
                # A file that is cut off ends within a record.
                if is_end and count >= _CHAIN_RECORDS:
                    return start
                break
            steps -= 1
            if steps < 0:
                return -1
            length = _record_bytes(buffer, position, is_pcap, big)
            if length == 0:
                break
            if is_pcap:
                seconds = _u32(buffer, position, big)
                if count > 0 and (seconds - previous_s > _STEP_S or previous_s - seconds > _STEP_S):
                    break
                previous_s = seconds
            count += 1
            position += length
        start += 1 if is_pcap else 4
    return -1


@cython.cclass
class BlockWalk:
    """A walk over pcapng blocks: its position, the byte order, and time and number of the last packet.

    Simple packet blocks carry no time and get the time of the previous packet. Blocks of unknown type are skipped.
    Events and custom blocks are skipped, too, but counted, as Wireshark counts them as packets.
    """

    position = cython.declare(cython.Py_ssize_t, visibility="public")
    row = cython.declare(cython.Py_ssize_t, visibility="public")
    need = cython.declare(cython.longlong, visibility="public")
    last_ts_ns = cython.declare(cython.longlong, visibility="public")
    last_number = cython.declare(cython.longlong, visibility="public")
    big = cython.declare(cython.bint, visibility="public")
    dropped = cython.declare(cython.longlong, visibility="public")
    """Packets lost before single packets; -1 as long as no packet has such a count."""
    _buffer: cython.const[cython.uchar][::1]
    _rows: cython.longlong[:, ::1]
    _interfaces: cython.longlong[::1]

    def __init__(
        self, buffer: object, rows: object, position: int, big: bool, last_ts_ns: int, last_number: int
    ) -> None:
        """``rows`` has a line for each of LINES; ``position`` is a block boundary."""
        self._buffer, self._rows = buffer, rows
        self.position, self.big, self.last_ts_ns, self.last_number = position, big, last_ts_ns, last_number
        self.row = self.need = 0
        self.dropped = -1

    def blocks(self, end: cython.Py_ssize_t, limit: cython.longlong, interfaces: object) -> int:
        """Walk on to ``end``; why the walk stopped. The packets are in ``rows``."""
        kind: cython.longlong
        length: cython.longlong
        least: cython.longlong
        stop: cython.longlong
        capacity: cython.Py_ssize_t = self._rows.shape[1]
        self._interfaces = interfaces
        while self.row < capacity:
            self.need = 12
            if end - self.position < 12:
                return 1
            kind = _u32(self._buffer, self.position, self.big)
            least = 12
            if kind == _SECTION:
                least = 28
                self.big = _u32(self._buffer, self.position + 8, True) == 0x1A2B3C4D
                if not self.big and _u32(self._buffer, self.position + 8, False) != 0x1A2B3C4D:
                    self.need = _u32(self._buffer, self.position + 4, False)
                    return 4
            elif kind == _INTERFACE:
                least = 20
            elif kind == _STATISTICS:
                least = 24
            elif kind == _SECRETS:
                least = 20
            length = self.need = _u32(self._buffer, self.position + 4, self.big)
            if length < least or length % 4 != 0:
                return 4
            if length > limit:
                return 2
            if length > end - self.position:
                return 1
            if _u32(self._buffer, self.position + length - 4, self.big) != length:
                return 5
            if kind == _SECTION or kind == _INTERFACE or kind == _STATISTICS or kind == _SECRETS:
                return 3
            stop = 0
            if kind == _PACKET or kind == _OLD_PACKET:
                stop = self._packet(kind, length)
            elif kind == _SIMPLE_PACKET:
                stop = self._simple_packet(length)
            elif (
                kind == 0xBAD
                or kind == 0x40000BAD
                or kind == _JOURNAL
                or kind == 0x204
                or kind == 0x216
                or kind == 0x221
            ):
                self.last_number += 1  # custom blocks, journal entries, sysdig events
            if stop != 0:
                return stop
            self.position += length
        self.need = 0
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _packet(self, kind: cython.longlong, length: cython.longlong) -> cython.longlong:
        """A packet block of the newer or the older kind."""
        position: cython.Py_ssize_t = self.position
        big: cython.bint = self.big
        captured: cython.longlong
        interface: cython.longlong
        entry: cython.Py_ssize_t
        if length < 32:
            return 4
        interface = _u32(self._buffer, position + 8, big) if kind == _PACKET else _u16(self._buffer, position + 8, big)
        captured = _u32(self._buffer, position + 20, big)
        entry = interface * _INTERFACE_WIDTH
        if entry >= self._interfaces.shape[0]:
            self.need = interface
            return 6
        if captured > length - 32:
            self.need = captured
            return 7
        self.last_ts_ns = self._time_ns(
            _u32(self._buffer, position + 12, big), _u32(self._buffer, position + 16, big), entry
        )
        self._add(position + 28, captured, _u32(self._buffer, position + 24, big), entry)
        if kind == _PACKET and length - 32 - captured >= 12:
            self._add_drops(position + 28 + (captured + 3 & ~3), position + length - 4)
        elif kind == _OLD_PACKET and _u16(self._buffer, position + 10, big) != 0xFFFF:
            self.dropped = max(self.dropped, 0) + _u16(self._buffer, position + 10, big)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add_drops(self, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Count the packets that the options of a packet report as lost since the packet before (epb_dropcount)."""
        _option: cython.int
        length: cython.longlong
        high: cython.longlong
        for _option in range(_OPTION_LIMIT):
            if end - position < 12:
                return
            length = _u16(self._buffer, position + 2, self.big)
            if _u16(self._buffer, position, self.big) == 4 and length == 8:
                high = _u32(self._buffer, position + (4 if self.big else 8), self.big)
                # A count beyond 2**32 is damage.
                if high == 0:
                    self.dropped = max(self.dropped, 0) + _u32(
                        self._buffer, position + (8 if self.big else 4), self.big
                    )
                return
            position += 4 + (length + 3 & ~3)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _time_ns(self, high: cython.longlong, low: cython.longlong, entry: cython.Py_ssize_t) -> cython.longlong:
        """Nanoseconds of an interface's 64-bit count of ticks; later times become the last time that fits."""
        multiplier: cython.longlong = self._interfaces[entry + 1]
        shift: cython.longlong = self._interfaces[entry + 3]
        offset_ns: cython.longlong = self._interfaces[entry + 4]
        ticks: cython.longlong
        seconds: cython.longlong
        remainder: cython.longlong
        time_ns: cython.longlong = 0
        if high >= _HALF_RANGE:
            return _TIME_MAX
        ticks = high * _RANGE + low
        if shift >= 0:
            # Binary ticks: whole seconds, then the fraction brought to 32 bits so that the product fits.
            seconds = ticks >> shift
            remainder = ticks - (seconds << shift)
            if shift > 32:
                remainder = (remainder >> (shift - 32)) * 1000000000 >> 32
            else:
                remainder = remainder * 1000000000 >> shift
            if seconds > _SECONDS_MAX:
                return _TIME_MAX
            time_ns = seconds * 1000000000 + remainder
        elif multiplier != 0:
            if ticks > _TIME_MAX // multiplier:
                return _TIME_MAX
            time_ns = ticks * multiplier // self._interfaces[entry + 2]
        if offset_ns > 0 and time_ns > _TIME_MAX - offset_ns:
            return _TIME_MAX
        return time_ns + offset_ns

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _simple_packet(self, length: cython.longlong) -> cython.longlong:
        """A simple packet block; its captured length is the least of content, wire length and snap length."""
        original: cython.longlong
        captured: cython.longlong
        snaplen: cython.longlong
        if length < 16:
            return 4
        if self._interfaces.shape[0] == 0:
            self.need = 0
            return 6
        original = _u32(self._buffer, self.position + 8, self.big)
        snaplen = self._interfaces[5]
        captured = min(length - 16, original)
        if snaplen > 0:
            captured = min(captured, snaplen)
        self._add(self.position + 12, captured, original, 0)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add(
        self, offset: cython.Py_ssize_t, captured: cython.longlong, original: cython.longlong, entry: cython.Py_ssize_t
    ) -> cython.longlong:
        """A packet of the interface whose row of the table begins at ``entry``."""
        self.last_number += 1
        self._rows[0, self.row] = offset
        self._rows[1, self.row] = captured
        self._rows[2, self.row] = original
        self._rows[3, self.row] = self.last_ts_ns
        self._rows[4, self.row] = self.last_number
        self._rows[5, self.row] = self._interfaces[entry]
        self.row += 1
        return 0
