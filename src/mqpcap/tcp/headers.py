# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Windows of packets to TCP segments: addresses, ports, sequence numbers and the place of the payload.

Fed by ``capture``; feeds ``reassembly``. One pass over the headers of each packet, through VLAN tags, tunnels
(VXLAN, Geneve, GRE, IP in IP) and IPv6 extension headers. Promises: no bytes of any packet raise; every packet
is counted under one word of COUNTS; payload ends where the IP header says, so link padding is never payload;
checksums are not looked at.

IP fragments are held until their datagram is whole (:mod:`mqpcap.tcp.fragments`). The datagram is then written behind a
plain IP header and walked like a packet of its own, with the time and number of the packet that completed it.
"""

import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache

import cython
import numpy as np
from numpy.typing import NDArray

from mqpcap.capture.windows import Window
from mqpcap.tcp.fragments import Fragment, Fragments, plain_packet

MAX_TUNNEL_DEPTH = 8
"""IP headers within IP headers; a packet with more is counted as too_deep."""
MAX_VLAN_TAGS = 8
"""VLAN tags in a row."""
MAX_EXTENSION_HEADERS = 16
"""IPv6 extension headers of one packet."""
ADDRESSES = 1 << 16
"""So many addresses are remembered in both their spellings."""

COUNTS = (
    "tcp",
    "fragment",
    "not_tcp",
    "not_ip",
    "unknown_link_type",
    "truncated_header",
    "bad_header",
    "too_deep",
    "fragment_malformed",
    "datagram",
    "datagram_dropped",
)
"""Words of Segments.counts. A packet counts under one of the first eight; a datagram that became whole counts
again, under what it holds."""

_TCP = cython.declare(cython.const[cython.int], 0)
_FRAGMENT = cython.declare(cython.const[cython.int], 1)
_NOT_TCP = cython.declare(cython.const[cython.int], 2)
_NOT_IP = cython.declare(cython.const[cython.int], 3)
_UNKNOWN_LINK = cython.declare(cython.const[cython.int], 4)
_TRUNCATED = cython.declare(cython.const[cython.int], 5)
_BAD = cython.declare(cython.const[cython.int], 6)
_TOO_DEEP = cython.declare(cython.const[cython.int], 7)
_WALKED_COUNT = 8

# The limits as C integers.
_DEPTH_LIMIT = cython.declare(cython.int, MAX_TUNNEL_DEPTH)
_VLAN_LIMIT = cython.declare(cython.int, MAX_VLAN_TAGS)
_EXTENSION_LIMIT = cython.declare(cython.int, MAX_EXTENSION_HEADERS)

# Numbers over 31 bits are Python objects in compiled code unless they are declared.
_HALF_RANGE = cython.declare(cython.const[cython.longlong], 0x80000000)
_RANGE = cython.declare(cython.const[cython.longlong], 0x100000000)
_SNAP = cython.declare(cython.const[cython.longlong], 0xAAAA0300)

# What the walk takes next is an Ethernet type or one of these, which are none.
_IP = cython.declare(cython.const[cython.longlong], 0x10001)
_ETHERNET = cython.declare(cython.const[cython.longlong], 0x10002)
_NONE = cython.declare(cython.const[cython.longlong], 0x10003)
_NO_LINK = cython.declare(cython.const[cython.longlong], 0x10004)
_CUT = cython.declare(cython.const[cython.longlong], 0x10005)


@dataclass(frozen=True, slots=True)
class Segments:
    """One row for each captured TCP segment, in order of capture.

    buffer holds the payloads. src_hi .. dst_lo: int64, the big-endian halves of a 16-byte address as signed bits,
    IPv4 in the low 32 bits of lo. version: int8, 4 or 6. seq, ack: int64, 0 to 2**32-1. flags: FIN 1, SYN 2,
    RST 4, PSH 8, ACK 16.
    start, length: int64, the payload captured, in buffer; wire_length: int64, the payload sent.
    ts_ns, number, file: of the packet. key: int64, equal for both directions of a connection.
    counts: packets under the words of COUNTS.
    """

    buffer: NDArray[np.uint8]
    src_hi: NDArray[np.int64]
    src_lo: NDArray[np.int64]
    dst_hi: NDArray[np.int64]
    dst_lo: NDArray[np.int64]
    version: NDArray[np.int8]
    sport: NDArray[np.int32]
    dport: NDArray[np.int32]
    seq: NDArray[np.int64]
    ack: NDArray[np.int64]
    flags: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    wire_length: NDArray[np.int64]
    ts_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    file: NDArray[np.int32]
    key: NDArray[np.int64]
    counts: dict[str, int]


Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The source and the destination of rows, each as `endpoints` has it."""


# Keys that a capture chooses: Python hashes bytes with a secret of the process, but numbers without one.
_ADDRESS_KEY = struct.Struct(">bqq").pack


def address_text(version: int, hi: int, lo: int) -> str:
    """The address as people write it.

    >>> address_text(4, 0, 0x0A000001)
    '10.0.0.1'
    """
    return _address_text(_ADDRESS_KEY(version, hi, lo))


@lru_cache(ADDRESSES)
def _address_text(key: bytes) -> str:
    version, hi, lo = struct.unpack(">bqq", key)
    if version == 4:
        return f"{lo >> 24 & 255}.{lo >> 16 & 255}.{lo >> 8 & 255}.{lo & 255}"
    halves = (int(hi) & 0xFFFFFFFFFFFFFFFF, int(lo) & 0xFFFFFFFFFFFFFFFF)
    return str(ipaddress.IPv6Address((halves[0] << 64) | halves[1]))


@cython.cclass
class _Walk:
    """The headers of one packet after the other; the fields hold what the last packet had.

    at is where the walk stands, end where the captured bytes of the innermost packet end, wire_end where they
    would end had all been captured.
    """

    buf: cython.const[cython.uchar][::1]
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    wire_end: cython.Py_ssize_t
    version: cython.int
    proto: cython.longlong
    src_hi: cython.longlong
    src_lo: cython.longlong
    dst_hi: cython.longlong
    dst_lo: cython.longlong
    fragment_id: cython.longlong
    fragment_offset: cython.longlong
    fragment_more: cython.longlong
    sport: cython.longlong
    dport: cython.longlong
    seq: cython.longlong
    ack: cython.longlong
    flags: cython.longlong

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _u16(self, p: cython.Py_ssize_t) -> cython.longlong:
        high: cython.longlong = self.buf[p]
        return high * 256 + self.buf[p + 1]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _u32(self, p: cython.Py_ssize_t) -> cython.longlong:
        high: cython.longlong = self.buf[p]
        return ((high * 256 + self.buf[p + 1]) * 256 + self.buf[p + 2]) * 256 + self.buf[p + 3]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=True)
    def _s64(self, p: cython.Py_ssize_t) -> cython.longlong:
        high: cython.longlong = self._u32(p)
        if high >= _HALF_RANGE:
            high -= _RANGE
        return high * _RANGE + self._u32(p + 4)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _short(self, need: cython.Py_ssize_t) -> cython.int:
        """0 if need bytes are there; else what is wrong: cut by the capture, or sent too short."""
        if self.end - self.at >= need:
            return 0
        if self.wire_end - self.at >= need:
            return _TRUNCATED
        return _BAD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _link(self, link_type: cython.int) -> cython.longlong:
        """What follows the link header, which is passed over."""
        family: cython.longlong
        head: cython.Py_ssize_t
        kind: cython.longlong
        if link_type == 1:
            return _ETHERNET
        if link_type == 101 or link_type == 12 or link_type == 14 or link_type == 228 or link_type == 229:
            return _IP
        if link_type == 113 or link_type == 276:
            head = 16 if link_type == 113 else 20
            if self.end - self.at < head:
                return _CUT
            kind = self._u16(self.at + 14 if link_type == 113 else self.at)
            self.at += head
            return kind
        if link_type == 0 or link_type == 108:
            if self.end - self.at < 4:
                return _CUT
            family = self._u32(self.at)
            if family > 0xFFFF:
                # The address family is in the byte order of the machine that captured.
                family = self.buf[self.at] + 256 * self.buf[self.at + 1]
            self.at += 4
            # AF_INET; AF_INET6 of Linux, NetBSD, FreeBSD and Darwin.
            if family == 2 or family == 10 or family == 24 or family == 28 or family == 30:
                return _IP
            return _NONE
        if link_type == 9:
            if self.end - self.at < 4:
                return _CUT
            if self.buf[self.at] == 0xFF and self.buf[self.at + 1] == 3:
                self.at += 2
            kind = self._u16(self.at)
            self.at += 2
            if kind == 0x0021 or kind == 0x0057:
                return _IP
            return _NONE
        return _NO_LINK

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def packet(self, link_type: cython.int) -> cython.int:
        """Walk from `at` to the TCP payload; the index into COUNTS of what was found."""
        depth: cython.int = 0
        found: cython.int
        next_is: cython.longlong = self._link(link_type)
        if next_is == _NO_LINK:
            return _UNKNOWN_LINK
        if next_is == _CUT:
            return _TRUNCATED
        while True:
            found = self._network(next_is)
            if found != _TCP:
                return found
            if self.fragment_offset != 0 or self.fragment_more != 0:
                return _FRAGMENT
            if self.proto == 6:
                return self._tcp()
            next_is = self._tunnel()
            if next_is == _NONE:
                return _NOT_TCP
            if next_is == _CUT:
                return _TRUNCATED
            depth += 1
            if depth > _DEPTH_LIMIT:
                return _TOO_DEEP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _network(self, next_is: cython.longlong) -> cython.int:
        """Pass over Ethernet, VLAN and IP headers; _TCP (0) for any IP packet whose headers are sound."""
        _tag: cython.int
        first: cython.longlong
        found: cython.int
        if next_is == _ETHERNET:
            found = self._short(14)
            if found != 0:
                return found
            next_is = self._u16(self.at + 12)
            self.at += 14
            if next_is <= 1500 and self.end - self.at >= 8 and self._u32(self.at) == _SNAP:
                # IEEE 802.3 with LLC and SNAP: the type stands behind them.
                next_is = self._u16(self.at + 6)
                self.at += 8
        for _tag in range(_VLAN_LIMIT):
            if next_is != 0x8100 and next_is != 0x88A8 and next_is != 0x9100:
                break
            found = self._short(4)
            if found != 0:
                return found
            next_is = self._u16(self.at + 2)
            self.at += 4
        if next_is != 0x0800 and next_is != 0x86DD and next_is != _IP:
            return _NOT_IP
        found = self._short(1)
        if found != 0:
            return found
        first = self.buf[self.at]
        if first >> 4 == 4 and next_is != 0x86DD:
            return self._ipv4()
        if first >> 4 == 6 and next_is != 0x0800:
            return self._ipv6()
        return _BAD if next_is != _IP else _NOT_IP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _bound(self, until: cython.Py_ssize_t) -> cython.void:
        """The innermost packet ends there, whatever the link carries behind it."""
        self.wire_end = until
        if self.end > until:
            self.end = until

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _ipv4(self) -> cython.int:
        p: cython.Py_ssize_t = self.at
        head: cython.longlong
        total: cython.longlong
        bits: cython.longlong
        found: cython.int = self._short(20)
        if found != 0:
            return found
        head = (self.buf[p] & 15) * 4
        total = self._u16(p + 2)
        if head < 20:
            return _BAD
        # A total length of 0 is a packet captured before the network card cut it: it is as long as the record.
        if total != 0:
            if total < head:
                return _BAD
            self._bound(p + total)
        found = self._short(head)
        if found != 0:
            return found
        bits = self._u16(p + 6)
        self.version = 4
        self.fragment_id = self._u16(p + 4)
        self.fragment_more = bits & 0x2000
        self.fragment_offset = (bits & 0x1FFF) * 8
        self.proto = self.buf[p + 9]
        self.src_hi = 0
        self.dst_hi = 0
        self.src_lo = self._u32(p + 12)
        self.dst_lo = self._u32(p + 16)
        self.at = p + head
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _ipv6(self) -> cython.int:
        p: cython.Py_ssize_t = self.at
        payload: cython.longlong
        bits: cython.longlong
        size: cython.longlong
        _header: cython.int
        found: cython.int = self._short(40)
        if found != 0:
            return found
        payload = self._u16(p + 4)
        # 0 is a jumbogram, or a packet captured before the network card cut it.
        if payload != 0:
            self._bound(p + 40 + payload)
        self.version = 6
        self.fragment_id = 0
        self.fragment_more = 0
        self.fragment_offset = 0
        self.proto = self.buf[p + 6]
        self.src_hi = self._s64(p + 8)
        self.src_lo = self._s64(p + 16)
        self.dst_hi = self._s64(p + 24)
        self.dst_lo = self._s64(p + 32)
        self.at = p + 40
        for _header in range(_EXTENSION_LIMIT):
            # Hop-by-hop, routing, destination options, fragment, authentication, mobility, HIP, shim6.
            if (
                self.proto != 0
                and self.proto != 43
                and self.proto != 60
                and self.proto != 44
                and self.proto != 51
                and self.proto != 135
                and self.proto != 139
                and self.proto != 140
            ):
                return 0
            found = self._short(8)
            if found != 0:
                return found
            p = self.at
            if self.proto == 44:
                bits = self._u16(p + 2)
                self.fragment_offset = bits & 0xFFF8
                self.fragment_more = bits & 1
                self.fragment_id = self._u32(p + 4)
                self.proto = self.buf[p]
                self.at = p + 8
                if self.fragment_offset != 0 or self.fragment_more != 0:
                    return 0
                continue
            size = self.buf[p + 1]
            size = (size + 2) * 4 if self.proto == 51 else (size + 1) * 8
            found = self._short(size)
            if found != 0:
                return found
            self.proto = self.buf[p]
            self.at = p + size
        return _TOO_DEEP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _tunnel(self) -> cython.longlong:
        """What the transport header carries if it is a tunnel's, which is passed over; else _NONE."""
        p: cython.Py_ssize_t = self.at
        left: cython.Py_ssize_t = self.end - p
        # Too short a tunnel header that was wholly captured is no tunnel.
        missing: cython.longlong = _CUT if self.wire_end > self.end else _NONE
        port: cython.longlong
        bits: cython.longlong
        kind: cython.longlong
        size: cython.longlong
        if self.proto == 4 or self.proto == 41:
            return _IP
        if self.proto == 17:
            if left < 8:
                return missing
            port = self._u16(p + 2)
            if port != 4789 and port != 8472 and port != 6081:
                return _NONE
            if left < 16:
                return missing
            if port == 6081:
                # Geneve version 0; the options' length counts in four bytes.
                bits = self.buf[p + 8]
                size = 16 + (bits & 63) * 4
                if bits >> 6 != 0:
                    return _NONE
                if left < size:
                    return missing
                kind = self._u16(p + 10)
            else:
                # VXLAN says with one bit that its network number is valid.
                bits = self.buf[p + 8]
                if bits & 8 == 0:
                    return _NONE
                size = 16
                kind = 0x6558
        elif self.proto == 47:
            if left < 4:
                return missing
            bits = self._u16(p)
            # Version 0 without source routes (RFC 2784, RFC 2890); version 1 carries PPP.
            if bits & 0x4007 != 0:
                return _NONE
            kind = self._u16(p + 2)
            size = 4
            if bits & 0x8000 != 0:
                size += 4
            if bits & 0x2000 != 0:
                size += 4
            if bits & 0x1000 != 0:
                size += 4
            if left < size:
                return missing
        else:
            return _NONE
        self.at = p + size
        return _ETHERNET if kind == 0x6558 else kind

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _tcp(self) -> cython.int:
        p: cython.Py_ssize_t = self.at
        head: cython.longlong
        found: cython.int = self._short(20)
        if found != 0:
            return found
        head = (self.buf[p + 12] >> 4) * 4
        if head < 20 or head > self.wire_end - p:
            return _BAD
        self.sport = self._u16(p)
        self.dport = self._u16(p + 2)
        self.seq = self._u32(p + 4)
        self.ack = self._u32(p + 8)
        self.flags = self.buf[p + 13]
        self.at = p + head
        # Options cut off by the snap length: the segment is known, no byte of its payload is.
        if self.end < self.at:
            self.end = self.at
        return _TCP


def _walk_packets(
    buffer: cython.const[cython.uchar][::1],
    places: cython.longlong[:, ::1],
    link_type: cython.int[::1],
    wide: cython.longlong[:, ::1],
    narrow: cython.int[:, ::1],
    counts: cython.longlong[::1],
    fragments: list,
) -> int:
    """Rows filled. places: offset, caplen and wirelen of packets. wide and narrow get a line for each of WIDE and
    NARROW; fragments gets a tuple for each fragment."""
    walk: _Walk = _Walk()
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = buffer.shape[0]
    found: cython.int
    walk.buf = buffer
    with cython.nogil:
        for i in range(places.shape[1]):
            walk.at = places[0, i]
            walk.end = walk.at + places[1, i]
            walk.wire_end = walk.at + places[2, i]
            if walk.at < 0 or walk.end < walk.at or walk.end > size:
                counts[_BAD] += 1
                continue
            if walk.wire_end < walk.end:
                walk.wire_end = walk.end
            found = walk.packet(link_type[i])
            counts[found] += 1
            if found == _TCP:
                wide[0, row] = walk.src_hi
                wide[1, row] = walk.src_lo
                wide[2, row] = walk.dst_hi
                wide[3, row] = walk.dst_lo
                wide[4, row] = walk.seq
                wide[5, row] = walk.ack
                wide[6, row] = walk.at
                wide[7, row] = walk.end - walk.at
                wide[8, row] = walk.wire_end - walk.at
                wide[9, row] = i
                narrow[0, row] = walk.version
                narrow[1, row] = cython.cast(cython.int, walk.sport)
                narrow[2, row] = cython.cast(cython.int, walk.dport)
                narrow[3, row] = cython.cast(cython.int, walk.flags)
                row += 1
            elif found == _FRAGMENT:
                with cython.gil:
                    datagram = (
                        walk.version, walk.src_hi, walk.src_lo, walk.dst_hi, walk.dst_lo, walk.fragment_id, walk.proto,
                    )  # fmt: skip
                    more = walk.fragment_more != 0
                    fragments.append((i, datagram, walk.fragment_offset, more, walk.at, walk.end, walk.wire_end))
    return row


WIDE = ("src_hi", "src_lo", "dst_hi", "dst_lo", "seq", "ack", "start", "length", "wire_length", "packet")
NARROW = ("version", "sport", "dport", "flags")
"""What is known of each row, in 64 and in 32 bits: columns of Segments, and the index of the row's packet."""

_END_COLUMNS = ("src_hi", "src_lo", "sport", "dst_hi", "dst_lo", "dport")

FragmentRow = tuple[int, tuple[int, ...], int, bool, int, int, int]
"""A fragment: its packet, whose datagram it is, offset, more to come, start, end, end on the wire."""


class _Rows:
    """What one walk over packets found."""

    __slots__ = ("buffer", "columns", "fragments", "packet", "row_count")

    def __init__(
        self,
        buffer: NDArray[np.uint8],
        offset: NDArray[np.int64],
        caplen: NDArray[np.int64],
        wirelen: NDArray[np.int64],
        link_type: NDArray[np.int32],
        counts: NDArray[np.int64],
    ) -> None:
        wide, narrow = np.empty((len(WIDE), len(offset)), np.int64), np.empty((len(NARROW), len(offset)), np.int32)
        self.buffer = buffer
        self.fragments: list[FragmentRow] = []
        given = (buffer, np.stack([offset, caplen, wirelen]), np.ascontiguousarray(link_type), wide, narrow, counts)
        count: int = _walk_packets(*map(memoryview, given), self.fragments)
        self.row_count = count
        lines = zip(WIDE + NARROW, (*wide, *narrow), strict=True)
        self.columns: dict[str, np.ndarray] = {name: line[:count] for name, line in lines}
        self.columns["version"] = self.columns["version"].astype(np.int8)
        self.packet = self.columns.pop("packet")


class Dissector:
    """Windows to segments; keeps IP fragments from one window for the next."""

    def __init__(self) -> None:
        self._fragments = Fragments()

    @property
    def fragment_datagrams_held(self) -> int:
        """Datagrams of which fragments are missing; at the end of a capture they are lost."""
        return len(self._fragments)

    def segments(self, window: Window) -> Segments:
        """The TCP segments of a window's packets, in order; see Segments.

        Fragments go into the window that completes their datagram.
        """
        counts = np.zeros(_WALKED_COUNT, np.int64)
        rows = _Rows(window.buffer, window.offset, window.caplen, window.wirelen, window.link_type, counts)
        malformed, dropped, datagrams = self._fragments.malformed, self._fragments.dropped, 0
        if rows.fragments:
            rows, datagrams = self._joined(window, rows, counts)
        words = {word: int(counts[index]) for index, word in enumerate(COUNTS[:_WALKED_COUNT])}
        words["fragment_malformed"] = self._fragments.malformed - malformed
        words["datagram"] = datagrams
        words["datagram_dropped"] = self._fragments.dropped - dropped
        return Segments(
            buffer=rows.buffer,
            **rows.columns,
            ts_ns=window.ts_ns[rows.packet],
            number=window.number[rows.packet],
            file=np.full(rows.row_count, window.file, np.int32),
            key=keys_of(_ends(rows.columns)),
            counts=words,
        )

    def _joined(self, window: Window, rows: _Rows, counts: NDArray[np.int64]) -> tuple[_Rows, int]:
        """The rows and those of datagrams that became whole, in order of their packets, over one buffer."""
        found = [rows]
        buffer = rows.buffer
        datagrams = 0
        newest, packets = rows, np.arange(len(window.offset))
        # A datagram may itself hold a tunnelled fragment; each round opens one more layer.
        for _ in range(MAX_TUNNEL_DEPTH):
            whole = self._whole(window, newest, packets)
            if not whole:
                break
            datagrams += len(whole)
            packets = np.array([packet for packet, _ in whole], np.int64)
            length = np.array([len(packet) for _, packet in whole], np.int64)
            offset = len(buffer) + np.cumsum(length) - length
            added = np.frombuffer(b"".join(packet for _, packet in whole), np.uint8)
            buffer = np.concatenate([buffer, added])
            newest = _Rows(buffer, offset, length, length, np.full(len(whole), 101, np.int32), counts)
            newest.packet = packets[newest.packet]
            found.append(newest)
        order = np.argsort(np.concatenate([each.packet for each in found]), kind="stable")
        rows.columns = {name: np.concatenate([each.columns[name] for each in found])[order] for name in rows.columns}
        rows.packet = np.concatenate([each.packet for each in found])[order]
        rows.row_count = len(order)
        rows.buffer = buffer
        return rows, datagrams

    def _whole(self, window: Window, rows: _Rows, packets: NDArray[np.int64]) -> list[tuple[int, bytes]]:
        """(packet, plain IP packet) for each datagram that the fragments among the rows' packets make whole."""
        whole: list[tuple[int, bytes]] = []
        for index, key, offset, more, start, end, wire_end in rows.fragments:
            packet = int(packets[index])
            captured = rows.buffer[start:end].tobytes()
            fragment = Fragment(offset, offset + wire_end - start, more, captured)
            payload = self._fragments.add(key, int(window.ts_ns[packet]), fragment)
            if payload is not None:
                whole.append((packet, plain_packet(key, payload)))
        return whole


def connections_of(window: Window) -> tuple[NDArray[np.int64], Ends, NDArray[np.int64]]:
    """(rows, ends, fragments) of a window: its rows that are TCP packets, their endpoints, and rows of fragments.

    Fragments are not joined: whose they are may be said in another window.
    """
    counts = np.zeros(_WALKED_COUNT, np.int64)
    rows = _Rows(window.buffer, window.offset, window.caplen, window.wirelen, window.link_type, counts)
    return rows.packet, _ends(rows.columns), np.array([fragment[0] for fragment in rows.fragments], np.int64)


def endpoints(hi: NDArray[np.int64], lo: NDArray[np.int64], port: NDArray[np.integer]) -> NDArray[np.int64]:
    """A hash of each address, by its halves, and port."""
    mixed = hi.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += lo.view(np.uint64)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed += port.astype(np.uint64)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(32)
    return mixed.view(np.int64)


def ends_of(segments: Segments) -> Ends:
    """The endpoints of each row."""
    return _ends({name: getattr(segments, name) for name in _END_COLUMNS})


def keys_of(ends: Ends) -> NDArray[np.int64]:
    """Segments.key of connections between endpoints: a hash that both directions share."""
    key = ends[0].view(np.uint64) + ends[1].view(np.uint64)
    key *= np.uint64(0x9E3779B97F4A7C15)
    key ^= key >> np.uint64(31)
    return key.view(np.int64)


def _ends(columns: dict[str, np.ndarray]) -> Ends:
    src_hi, src_lo, sport, dst_hi, dst_lo, dport = (columns[name] for name in _END_COLUMNS)
    return endpoints(src_hi, src_lo, sport), endpoints(dst_hi, dst_lo, dport)
