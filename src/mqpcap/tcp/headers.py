# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Windows of packets to TCP segments: addresses, ports, sequence numbers and the offset of the payload.

In: windows of ``capture``. Out: `Segments`. Called by: `Pipeline`, which feeds `Reassembler`.

One pass over the headers of each packet: those of the table in ``wrappings``, IPv4, IPv6 and UDP. Promises: no bytes of
any packet raise. Every packet is counted under one word of COUNTS, and by name if its headers do not lead to TCP.
Payload ends where the IP header says, so link padding is never payload. The TCP checksum of a segment
that is captured whole is compared.

IP fragments are buffered until their datagram is complete (``fragments``). The datagram then gets a plain IP header and
is walked like a packet, with the time and number of the packet that completed it.
"""

import struct
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

import cython
import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch
from mqpcap.capture.annotations import ip_text
from mqpcap.capture.windows import Window
from mqpcap.records import dataclass
from mqpcap.tcp import wrappings
from mqpcap.tcp.flags import MULTIPATH
from mqpcap.tcp.fragments import Fragment, Fragments, plain_packet
from mqpcap.tcp.wrappings import fragments_name

if cython.compiled:
    from cython.cimports.libc.string import memcpy

MAX_HEADERS = 40
"""Headers of one packet; a packet with more is counted as too_deep."""
MAX_NESTED_DATAGRAMS = 8
"""Fragmented datagrams within fragmented datagrams; deeper ones are not joined."""
MAX_OPTIONS_BYTES = 40
"""Bytes of TCP options: the length of a header has four bits (RFC 9293)."""
MULTIPATH_OPTION = 30
"""The kind of the TCP options of Multipath TCP."""
MAX_SUBFRAMES = 256
"""Subframes of an aggregated frame (A-MSDU) that are read; 11,454 bytes (IEEE 802.11) hold fewer TCP segments."""
MAX_KINDS = 256
"""Names of packets counted in one window; packets of further names are counted under the last."""
TRUSTED_IP_HEADERS = 16
"""Right IP header checksums, four for each wrong checksum, after which a wrong checksum means damage."""
RAW_IP = 101
"""Link type of joined datagrams."""
ADDRESSES = 1 << 16
"""Addresses whose text is cached."""

COUNTS = (
    "tcp", "fragment", "not_tcp", "not_ip", "unknown_link_type",
    "truncated_header", "bad_header", "too_deep", "fragment_malformed", "datagram", "datagram_dropped",
)  # fmt: skip
"""Words of Segments.counts. Each packet counts under a word of the first eight. A completed datagram counts again, by
its content."""

_TCP = cython.declare(cython.const[cython.int], 0)
_FRAGMENT = cython.declare(cython.const[cython.int], 1)
_NOT_TCP = cython.declare(cython.const[cython.int], 2)
_NOT_IP = cython.declare(cython.const[cython.int], 3)
_UNKNOWN_LINK = cython.declare(cython.const[cython.int], 4)
_TRUNCATED = cython.declare(cython.const[cython.int], 5)
_BAD = cython.declare(cython.const[cython.int], 6)
_TOO_DEEP = cython.declare(cython.const[cython.int], 7)
_WALKED_COUNT = 8

# The same for C. Numbers over 31 bits are Python objects in compiled code unless they are declared.
_HEADER_LIMIT = cython.declare(cython.int, MAX_HEADERS)
_SUBFRAME_LIMIT = cython.declare(cython.Py_ssize_t, MAX_SUBFRAMES)
_KIND_LIMIT = cython.declare(cython.Py_ssize_t, MAX_KINDS)
_TRUSTED = cython.declare(cython.longlong, TRUSTED_IP_HEADERS)
_HALF_RANGE = cython.declare(cython.const[cython.longlong], 0x80000000)
_RANGE = cython.declare(cython.const[cython.longlong], 0x100000000)
_IP = cython.declare(cython.longlong, wrappings.IP)
_IPV4 = cython.declare(cython.longlong, wrappings.IPV4)
_IPV6 = cython.declare(cython.longlong, wrappings.IPV6)
_IP_PROTOCOL = cython.declare(cython.longlong, wrappings.IP_PROTOCOL)
_MASK_32 = cython.declare(cython.const[cython.ulonglong], 0xFFFFFFFF)
_SYN = cython.declare(cython.const[cython.longlong], 2)
_MULTIPATH = cython.declare(cython.longlong, MULTIPATH)
_MULTIPATH_KIND = cython.declare(cython.longlong, MULTIPATH_OPTION)
_OPTION_LIMIT = cython.declare(cython.Py_ssize_t, MAX_OPTIONS_BYTES)
_TCP_PROTOCOL = cython.declare(cython.const[cython.longlong], 6)
_SWAP = cython.declare(cython.ulonglong, 256 if sys.byteorder == "little" else 1)
_TCP_KIND = cython.declare(cython.longlong, wrappings.TCP)
_UDP = cython.declare(cython.longlong, wrappings.UDP)
_UDP_PORT = cython.declare(cython.longlong, wrappings.UDP_PORT)
_LLC_KIND = cython.declare(cython.longlong, wrappings.LLC)
_SUBFRAME = cython.declare(cython.longlong, wrappings.SUBFRAME)
_ANY_UDP = cython.declare(cython.longlong, wrappings.ANY_UDP)
_WHOLE_IP = cython.declare(cython.longlong, wrappings.WHOLE_IP)
_ESP = cython.declare(cython.longlong, wrappings.IP_PROTOCOL + 50)
_ESP_CONTENT = cython.declare(cython.longlong, wrappings.ESP_CONTENT)
_TUNNEL_GUESS = cython.declare(cython.longlong, wrappings.TUNNEL_GUESS)
_TUNNEL_HINT = cython.declare(cython.longlong, wrappings.TUNNEL_HINT)
_SUBFRAME_LINK = cython.declare(cython.longlong, wrappings.LINK_TYPE + wrappings.SUBFRAMES_LINK_TYPE)
_IPV6_FRAGMENT = cython.declare(cython.longlong, wrappings.IPV6_FRAGMENT)
_PPP_PROTOCOL = cython.declare(cython.longlong, wrappings.PPP_PROTOCOL)
_LINK_TYPE = cython.declare(cython.longlong, wrappings.LINK_TYPE)
_FAMILY = cython.declare(cython.longlong, wrappings.FAMILY)
_RULES = memoryview(wrappings.RULES)


@dataclass(frozen=True, slots=True)
class Segments(ColumnBatch):
    """One row for each captured TCP segment, in order of capture.

    ``buffer``: the bytes of the packets.
    ``src_hi`` .. ``dst_lo``: the big-endian halves of a 16-byte address as signed bits; IPv4 in the low 32 bits of lo.
    ``version``: 4 or 6. ``seq``, ``ack``: 0 to 2**32-1. ``flags``: bits of ``tcp.flags``.
    ``start``, ``length``: the captured payload in buffer. ``wire_length``: length of the payload that was sent.
    ``ident``: distinguishes a packet that was sent again from a second capture of the packet. It has the TCP checksum
    in the low 16 bits, the IPv4 identification in the next 16 (0 without one).
    ``checksum``: 1 if it is right, or unfinished because sender or receiver left it to the network card. It is -1 if it
    is wrong, -2 if that of the IP header is, in a capture whose IP headers are right otherwise. It is 0 if the segment
    is not captured whole.
    ``window``: the advertised window, not scaled, in the low 16 bits. The upper bits of a SYN: its window scale plus 2,
    or 1 without that option, or 0 if its options are not captured.
    ``ts_ns``, ``packet_number``, ``file``: of the packet.
    ``key``: equal for both directions of a connection.
    ``counts``: packets by the words of COUNTS, and packets that are not TCP also by name (see ``wrappings``).
    """

    SHARED: ClassVar[frozenset[str]] = frozenset(("buffer", "counts"))

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
    ident: NDArray[np.int64]
    checksum: NDArray[np.int32]
    window: NDArray[np.int32]
    ts_ns: NDArray[np.int64]
    packet_number: NDArray[np.int64]
    file: NDArray[np.int32]
    key: NDArray[np.int64]
    counts: dict[str, int]

    def parts(self, part_bytes: int, max_packets: int) -> Iterator[slice]:
        """The rows in one or more parts of about this number of payload bytes, or at most this number of packets."""
        end_bytes = np.cumsum(self.length)
        size_bytes = int(end_bytes[-1]) if len(end_bytes) else 0
        part_count = max(1, round(size_bytes / part_bytes))
        # The first segment of each part but the first.
        cuts = np.searchsorted(end_bytes, [size_bytes * k // part_count for k in range(1, part_count)]).tolist()
        if len(end_bytes) > part_count * max_packets:
            cuts = list(range(max_packets, len(end_bytes), max_packets))
        return map(slice, [0, *cuts], [*cuts, len(end_bytes)])


EndpointPair = tuple[NDArray[np.int64], NDArray[np.int64]]
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
    version, _, lo = struct.unpack(">bqq", key)
    if version == 4:
        return f"{lo >> 24 & 255}.{lo >> 16 & 255}.{lo >> 8 & 255}.{lo & 255}"
    return ip_text(key[1:])


@cython.cfunc
@cython.nogil
@cython.exceptval(-1, check=False)
def _word_sum(
    buf: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The sum of big-endian words of 16 bits, modulo 65535."""
    word: cython.ulonglong = 0
    total: cython.ulonglong = 0
    position: cython.Py_ssize_t = start
    if cython.compiled:
        if start < 0 or end > buf.shape[0]:
            return 0
        while end - position >= 8:
            memcpy(cython.address(word), cython.address(buf[position]), 8)
            total += (word & _MASK_32) + (word >> 32)
            position += 8
        if position < end:
            word = 0
            memcpy(cython.address(word), cython.address(buf[position]), end - position)
            total += (word & _MASK_32) + (word >> 32)
        return cython.cast(cython.longlong, total % 65535 * _SWAP % 65535)
    return int.from_bytes(bytes(buf[start:end]) + bytes((end - start) & 1), "big") % 65535


@cython.ccall
@cython.nogil
@cython.exceptval(-2, check=False)
def find_option(
    buf: cython.const[cython.uchar][::1], p: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.longlong
) -> cython.Py_ssize_t:
    """The offset of the first whole TCP option of a kind between p and the end of the options, -1 without one."""
    limit: cython.Py_ssize_t = p + _OPTION_LIMIT
    while p + 1 < end and p < limit and buf[p] != 0:
        if buf[p] == 1:
            p += 1
        elif buf[p + 1] < 2 or p + buf[p + 1] > end:
            break
        elif buf[p] == kind:
            return p
        else:
            p += buf[p + 1]
    return -1


def option_values(header: bytes, kind: int) -> Iterator[bytes]:
    """The values of the options of a kind in a TCP header, in order."""
    position = int(find_option(header, 20, len(header), kind))
    while position >= 0:
        end = position + header[position + 1]
        yield header[position + 2 : end]
        position = int(find_option(header, end, len(header), kind))


@cython.cclass
class _Walk:
    """The headers of one packet after the other; the fields hold what the last packet had.

    ``kind``: the header that starts at ``position``. ``rule``: the row of the table for the last header.
    ``end``: end of the captured bytes of the innermost packet. ``wire_end``: end of its bytes on the wire.
    """

    buf: cython.const[cython.uchar][::1]
    rules: cython.longlong[:, ::1]
    index: cython.short[::1]
    kinds: cython.longlong[:, ::1]
    kind: cython.longlong
    rule: cython.Py_ssize_t
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    wire_end: cython.Py_ssize_t
    rest: cython.Py_ssize_t  # of an aggregated frame: where its second subframe begins, 0 for none
    rest_end: cython.Py_ssize_t
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
    ident: cython.longlong
    checksum: cython.int
    window: cython.longlong
    header: cython.Py_ssize_t  # where the IPv4 header begins
    trust: cython.longlong  # right IP header checksums, less four for each wrong one

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
        return (high - _RANGE if high >= _HALF_RANGE else high) * _RANGE + self._u32(p + 4)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _short(self, need: cython.Py_ssize_t) -> cython.int:
        """0 if need bytes are there; else what is wrong: cut by the capture, or sent too short."""
        if self.end - self.position >= need:
            return 0
        return _TRUNCATED if self.wire_end - self.position >= need else _BAD

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def packet(self, link_type: cython.int) -> cython.int:
        """Walk from `position` to the TCP payload; the index of a word in COUNTS."""
        _header: cython.int
        result: cython.int = 0
        self.rule = self.rest = 0
        self.kind = _LINK_TYPE + (link_type & 0xFFFF)
        for _header in range(_HEADER_LIMIT):
            if self.kind == _IPV4 or self.kind == _IPV6 or self.kind == _IP:
                result = self._ip()
            elif self.kind == _TCP_KIND:
                return self._tcp()
            elif self.kind == _SUBFRAME or self.kind == _SUBFRAME_LINK:
                result = self._subframe()
            elif self.kind == _IPV6_FRAGMENT:
                result = self._fragment_header()
            elif self.kind == _UDP:
                result = self._udp()
            elif self.kind == _WHOLE_IP:
                result = self._whole_ip()
            elif self.kind == _ESP_CONTENT:
                result = self._esp_content()
            else:
                result = self._wrapping()
            if result != 0:
                return result
        return _TOO_DEEP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _udp(self) -> cython.int:
        """Pass over a UDP header; the kind of its payload is the port that has a row."""
        result: cython.int = self._short(8)
        if result != 0:
            return result
        self.dport = self._u16(self.position + 2)
        self.kind = _UDP_PORT + self.dport
        if self.index[self.kind] == 0:
            self.kind = _UDP_PORT + self._u16(self.position)
        if self.index[self.kind] == 0:
            self.kind = _ANY_UDP
        self.position += 8
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _inner_end(self) -> cython.Py_ssize_t:
        """The end of the IP packet at the position by its length field; 0 without a packet or a right checksum."""
        p: cython.Py_ssize_t = self.position
        head: cython.Py_ssize_t
        if self._short(40) != 0:
            return 0
        if self.buf[p] >> 4 == 4:
            head = (self.buf[p] & 15) * 4
            if head < 20 or self._short(head) != 0 or _word_sum(self.buf, p, p + head) != 0:
                return 0
            return p + self._u16(p + 2)
        # IPv6 has no checksum, so its next header must be TCP or IP.
        if self.buf[p] >> 4 == 6 and (self.buf[p + 6] == 6 or self.buf[p + 6] == 4 or self.buf[p + 6] == 41):
            return p + 40 + self._u16(p + 4)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _whole_ip(self) -> cython.int:
        """IP that no number announces: it must fill the UDP packet exactly."""
        is_whole: cython.bint = self._inner_end() == self.wire_end
        self.kind = _IP if is_whole else _UDP
        return 0 if is_whole else _NOT_TCP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _esp_content(self) -> cython.int:
        """IP or TCP that ESP does not encrypt, as its trailer shows: 1, 2, ..., their number, and the protocol.

        RFC 4303. The length of the integrity value after the trailer is agreed on elsewhere. IP has a length
        field that shows it. For TCP all usual lengths are tried, and the checksum must be right.
        """
        trailer: cython.Py_ssize_t = self._inner_end()
        integrity: cython.Py_ssize_t
        captured_end: cython.Py_ssize_t = self.end
        self.kind = _ESP
        if trailer != 0:
            if self._trailer_protocol(trailer) == 4 or self._trailer_protocol(trailer) == 41:
                self.kind = _IP
                return 0
        if captured_end == self.wire_end:
            for integrity in range(0, 33, 4):
                trailer = captured_end - integrity - 2
                if trailer - self.position < 20:
                    break
                trailer -= self.buf[trailer]
                if trailer - self.position >= 20 and self._trailer_protocol(trailer) == 6:
                    self.end = trailer
                    if self._compare_checksum(self.position) == 1:
                        self.wire_end = trailer
                        self.kind = _TCP_KIND
                        return 0
                    self.end = captured_end
        return _NOT_TCP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _trailer_protocol(self, p: cython.Py_ssize_t) -> cython.int:
        """The protocol that a trailer of ESP at p names; 0 if there is none."""
        pad: cython.Py_ssize_t = 0
        while p + pad < self.end and pad < 255 and self.buf[p + pad] == pad + 1:
            pad += 1
        return self.buf[p + pad + 1] if p + pad + 1 < self.end and self.buf[p + pad] == pad else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _wrapping(self) -> cython.int:
        """Pass over the header that the kind names, by its row of the table; set the kind of the next header."""
        rule: cython.Py_ssize_t = self.index[self.kind]
        size: cython.longlong
        value: cython.longlong
        result: cython.int = 0
        is_guess: cython.bint = self.kind == _ANY_UDP or self.kind == _TUNNEL_GUESS
        is_udp: cython.bint = is_guess or (self.kind >= _UDP_PORT and self.kind < _UDP_PORT + 65536)
        if is_udp:
            self.kind = _UDP
        if rule == 0:
            return self._unread()
        while self.rules[rule, 1] != 0:
            result = self._short(self.rules[rule, 0] + 4)
            if result != 0:
                break
            if self._u32(self.position + self.rules[rule, 0]) & self.rules[rule, 1] == self.rules[rule, 2]:
                break
            self.kind = self.rules[rule, 20]
            rule = self.rules[rule, 19]
            if rule == 0:
                return self._unread()
        size = self.rules[rule, 3]
        if result == 0:
            result = self._short(size)
        if result == 0 and self.rules[rule, 5] != 0:
            value = self._field(self.position + self.rules[rule, 4], self.rules[rule, 5]) & self.rules[rule, 6]
            value = value << self.rules[rule, 7] if self.rules[rule, 7] >= 0 else value >> -self.rules[rule, 7]
            value += self.rules[rule, 8] + self.rules[rule, 9] - 1
            value -= value % self.rules[rule, 9]
            if value < size:
                return _BAD
            size = value
        if result == 0 and self.rules[rule, 13] != 0:
            result = self._short(4)
            if result == 0:
                size += self._flagged_size(rule)
        if result == 0:
            result = self._short(size)
        if result != 0:
            # A datagram that is too short for the tunnel of its port belongs to another protocol.
            return _NOT_TCP if is_guess or (is_udp and result == _BAD) else result
        self.kind = self.rules[rule, 12]
        if self.rules[rule, 11] != 0:
            value = self.rules[rule, 10] if self.rules[rule, 10] >= 0 else size + self.rules[rule, 10]
            self.kind += self._field(self.position + value, self.rules[rule, 11])
        if self.kind != _WHOLE_IP and self.kind != _TUNNEL_GUESS:
            self.rule = rule
        self.position += size
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _flagged_size(self, rule: cython.Py_ssize_t) -> cython.longlong:
        """The bytes of the parts of a header that its flags announce."""
        size: cython.longlong = 0
        part: cython.Py_ssize_t
        for part in range(13, 19, 2):
            if self.rules[rule, part] and self._u32(self.position) & self.rules[rule, part] == self.rules[rule, part]:
                size += self.rules[rule, part + 1]
        return size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _end_of_subframe(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The end of a subframe, after two addresses, a length and its bytes; the next begins at a multiple of 4."""
        size: cython.longlong = 14 + self._u16(p + 12)
        self.rest = p + (size + 3 & ~3) if self.rest_end - p > (size + 3 & ~3) + 14 else 0
        return p + size if p + size < self.rest_end else self.rest_end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _subframe(self) -> cython.int:
        """Pass over the header of a subframe."""
        result: cython.int = self._short(14)
        if result != 0:
            return result
        self.rest_end = self.end
        self._bound(self._end_of_subframe(self.position))
        self.position += 14
        self.kind = _LLC_KIND
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _unread(self) -> cython.int:
        """Under which word a packet counts whose kind has no row."""
        if self.kind == _TUNNEL_HINT:
            self.kind = _UDP_PORT + self.dport
            return _NOT_TCP
        if self.kind >= _LINK_TYPE and self.kind < _FAMILY:
            return _UNKNOWN_LINK
        if self.kind >= _IP_PROTOCOL and self.kind < _PPP_PROTOCOL:
            return _NOT_TCP
        return _NOT_IP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _field(self, p: cython.Py_ssize_t, width: cython.longlong) -> cython.longlong:
        """A number of one byte, or of two; of two little-endian ones for -2."""
        low: cython.longlong = self.buf[p]
        if width == 1:
            return low
        if width == 2:
            return low * 256 + self.buf[p + 1]
        return low + 256 * self.buf[p + 1]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def count_kind(self) -> cython.void:
        """Count the packet under its last kind, and the rule of its last header."""
        k: cython.Py_ssize_t
        code: cython.longlong = self.kind + self.rule * _RANGE
        for k in range(_KIND_LIMIT):
            if k == _KIND_LIMIT - 1 or self.kinds[1, k] == 0:
                self.kinds[0, k] = code
            if self.kinds[0, k] == code:
                self.kinds[1, k] += 1
                return

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _ip(self) -> cython.int:
        """Pass over an IP header; set the kind of the next header."""
        version_nibble: cython.longlong
        result: cython.int = self._short(1)
        if result != 0:
            return result
        version_nibble = self.buf[self.position] >> 4
        # Some writers have the Ethernet type of IPv4 for both versions.
        if version_nibble == 4:
            result = self._ipv4()
        elif version_nibble == 6:
            result = self._ipv6()
        else:
            return _NOT_IP if self.kind == _IP else _BAD
        self.kind = _IP_PROTOCOL + self.proto
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _bound(self, until: cython.Py_ssize_t) -> cython.void:
        """The innermost packet ends there; later bytes are padding of the link."""
        self.wire_end = until
        if self.end > until:
            self.end = until

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _ipv4(self) -> cython.int:
        p: cython.Py_ssize_t = self.position
        head: cython.longlong
        total: cython.longlong
        bits: cython.longlong
        result: cython.int = self._short(20)
        if result != 0:
            return result
        head = (self.buf[p] & 15) * 4
        total = self._u16(p + 2)
        if head < 20:
            return _BAD
        # A total length of 0 is a packet captured before the network card cut it: it is as long as the record.
        if total != 0:
            if total < head:
                return _BAD
            self._bound(p + total)
        result = self._short(head)
        if result != 0:
            return result
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
        self.position = p + head
        self.header = p
        return _FRAGMENT if self.fragment_offset != 0 or self.fragment_more != 0 else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _ipv6(self) -> cython.int:
        p: cython.Py_ssize_t = self.position
        payload: cython.longlong
        result: cython.int = self._short(40)
        if result != 0:
            return result
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
        self.position = p + 40
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _fragment_header(self) -> cython.int:
        """Pass over the fragment header of IPv6. A header that covers the whole datagram makes no fragment."""
        p: cython.Py_ssize_t = self.position
        bits: cython.longlong
        result: cython.int = self._short(8)
        if result != 0:
            return result
        bits = self._u16(p + 2)
        self.fragment_offset = bits & 0xFFF8
        self.fragment_more = bits & 1
        self.fragment_id = self._u32(p + 4)
        self.proto = self.buf[p]
        self.kind = _IP_PROTOCOL + self.proto
        self.position = p + 8
        return _FRAGMENT if bits & 0xFFF9 != 0 else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _tcp(self) -> cython.int:
        p: cython.Py_ssize_t = self.position
        head: cython.longlong
        result: cython.int = self._short(20)
        if result != 0:
            return result
        head = (self.buf[p + 12] >> 4) * 4
        if head < 20 or head > self.wire_end - p:
            return _BAD
        self.sport = self._u16(p)
        self.dport = self._u16(p + 2)
        self.seq = self._u32(p + 4)
        self.ack = self._u32(p + 8)
        self.flags = self.buf[p + 13]
        # Timestamps at the usual place, and nothing else, are the options of most packets.
        if head > 32 or (head > 20 and p + 23 <= self.end and self.buf[p + 22] != 8):
            if find_option(self.buf, p + 20, p + head if p + head < self.end else self.end, _MULTIPATH_KIND) >= 0:
                self.flags |= _MULTIPATH
        self.position = p + head
        self.ident = (self.fragment_id & 0xFFFF) << 16 | self._u16(p + 16)
        self.window = self._u16(p + 14)
        if self.flags & _SYN:
            self.window |= self._window_scale(p + 20, p + head) << 16
        self.checksum = self._compare_checksum(p) if self.end == self.wire_end else 0
        if self.version == 4 and self._u16(self.header + 10) != 0 and self._is_damaged_header(p):
            self.checksum = -2
        # Options cut off by the snap length: the segment is known, no byte of its payload is.
        if self.end < self.position:
            self.end = self.position
        return _TCP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _window_scale(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        """From the TCP options of a SYN: the window scale plus 2, 1 without that option, 0 if options are cut off."""
        option: cython.Py_ssize_t = find_option(self.buf, p, end if end < self.end else self.end, 3)
        if option >= 0 and self.buf[option + 1] == 3:
            return 2 + (self.buf[option + 2] if self.buf[option + 2] < 14 else 14)
        return 1 if self.end >= end else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def _is_damaged_header(self, end: cython.Py_ssize_t) -> cython.bint:
        """Whether the checksum of the IP header before a TCP header is wrong, and most earlier checksums are right."""
        is_right: cython.bint = _word_sum(self.buf, self.header, end) == 0
        is_damaged: cython.bint = not is_right and self.trust == _TRUSTED
        if is_right:
            self.trust += self.trust < _TRUSTED
        else:
            self.trust = self.trust - 4 if self.trust > 4 else 0
        return is_damaged

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=False)
    def _compare_checksum(self, p: cython.Py_ssize_t) -> cython.int:
        """`Segments.checksum` of the segment from p to the end of the packet.

        A sum modulo 65535 does not depend on how wide its words are. Systems that leave the checksum to the network
        card, and those that merge segments on receipt, write 0 or the sum of the pseudo header, with or without length.
        """
        field: cython.longlong = self._u16(p + 16)
        length: cython.longlong = self.end - p
        pseudo: cython.longlong = _TCP_PROTOCOL
        pseudo += (self.src_hi >> 32 & _MASK_32) + (self.src_hi & _MASK_32)
        pseudo += (self.src_lo >> 32 & _MASK_32) + (self.src_lo & _MASK_32)
        pseudo += (self.dst_hi >> 32 & _MASK_32) + (self.dst_hi & _MASK_32)
        pseudo += (self.dst_lo >> 32 & _MASK_32) + (self.dst_lo & _MASK_32)
        if field == 0 or (field - pseudo) % 65535 == 0 or (field - pseudo - length) % 65535 == 0:
            return 1
        return 1 if (pseudo + length + _word_sum(self.buf, p, self.end)) % 65535 == 0 else -1


FragmentRow = tuple[int, tuple[int, ...], int, bool, int, int, int]
"""A fragment: its packet, whose datagram it is, offset, more to come, start, end, end on the wire.

The subframes of an aggregated frame, but for the first, are one with an empty key.
"""


def _walk_packets(
    buffer: cython.const[cython.uchar][::1],
    spans: cython.longlong[:, ::1],
    link_type: cython.int[::1],
    wide: cython.longlong[:, ::1],
    narrow: cython.int[:, ::1],
    counts: cython.longlong[::1],
    kinds: cython.longlong[:, ::1],
    trust: cython.longlong[::1],
    index: cython.short[::1],
    fragments: list[FragmentRow],
) -> int:
    """Fill columns; the number of rows.

    ``spans``: offset, caplen and wirelen of packets. ``wide``, ``narrow``: get a line for each of WIDE and NARROW.
    ``kinds``: gets up to MAX_KINDS kinds and their counts. ``index``: the first rule of each kind.
    ``fragments``: gets a tuple for each fragment.
    """
    walk: _Walk = _Walk()
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = buffer.shape[0]
    result: cython.int
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    walk.buf = buffer
    walk.rules, walk.index, walk.kinds = _RULES, index, kinds
    walk.trust = trust[0]
    walk.proto = 0  # uncompiled code reads it even after a malformed IP header
    with cython.nogil:  # columns are written where the loop has their addresses
        for i in range(spans.shape[1]):
            walk.position = spans[0, i]
            walk.end = walk.position + spans[1, i]
            walk.wire_end = walk.position + spans[2, i]
            if walk.position < 0 or walk.end < walk.position or walk.end > size:
                counts[_BAD] += 1
                continue
            if walk.wire_end < walk.end:
                walk.wire_end = walk.end
            result = walk.packet(link_type[i])
            counts[result] += 1
            if result == _TCP:
                wide[0, row] = walk.src_hi
                wide[1, row] = walk.src_lo
                wide[2, row] = walk.dst_hi
                wide[3, row] = walk.dst_lo
                wide[4, row] = walk.seq
                wide[5, row] = walk.ack
                wide[6, row] = walk.position
                wide[7, row] = walk.end - walk.position
                wide[8, row] = walk.wire_end - walk.position
                wide[9, row] = walk.ident
                wide[10, row] = i
                narrow[0, row] = walk.version
                narrow[1, row] = cython.cast(cython.int, walk.sport)
                narrow[2, row] = cython.cast(cython.int, walk.dport)
                narrow[3, row] = cython.cast(cython.int, walk.flags)
                narrow[4, row] = walk.checksum
                narrow[5, row] = cython.cast(cython.int, walk.window)
                row += 1
            elif result == _FRAGMENT:
                with cython.gil:
                    datagram = (
                        walk.version, walk.src_hi, walk.src_lo, walk.dst_hi, walk.dst_lo, walk.fragment_id, walk.proto,
                    )  # fmt: skip
                    has_more = walk.fragment_more != 0
                    fragments.append(
                        (i, datagram, walk.fragment_offset, has_more, walk.position, walk.end, walk.wire_end)
                    )
            elif result < _TRUNCATED:
                walk.count_kind()
            count = 0
            while walk.rest != 0 and count < _SUBFRAME_LIMIT:
                begin, count = walk.rest, count + 1
                end = walk._end_of_subframe(begin)
                with cython.gil:
                    fragments.append((i, (), 0, False, begin, end, end))
    trust[0] = walk.trust
    return row


WIDE = ("src_hi", "src_lo", "dst_hi", "dst_lo", "seq", "ack", "start", "length", "wire_length", "ident", "packet")
NARROW = ("version", "sport", "dport", "flags", "checksum", "window")
"""Columns of a row in 64 and in 32 bits: those of Segments, and the index of the row's packet."""

_END_COLUMNS = ("src_hi", "src_lo", "sport", "dst_hi", "dst_lo", "dport")


class _Tally:
    """Packets by word of COUNTS, and by kind; ``trust``: `_Walk.trust` of the capture."""

    def __init__(self, trust: NDArray[np.int64]) -> None:
        self.trust = trust
        self.words = np.zeros(_WALKED_COUNT, np.int64)
        self.kinds = np.zeros((2, MAX_KINDS), np.int64)

    def named(self) -> dict[str, int]:
        """The counts of Segments: words, and names of packets that are not TCP."""
        counts = {word: int(self.words[index]) for index, word in enumerate(COUNTS[:_WALKED_COUNT])}
        for code, count in self.kinds.T.tolist():
            if count:
                kind, rule = code & 0xFFFFFFFF, code >> 32
                name = wrappings.count_name(kind, rule)
                counts[name] = counts.get(name, 0) + count
        return counts


class _Rows:
    """The segments and fragments of one walk over packets."""

    __slots__ = ("buffer", "columns", "fragments", "packet", "row_count")

    def __init__(
        self,
        buffer: NDArray[np.uint8],
        offset: NDArray[np.int64],
        caplen: NDArray[np.int64],
        wirelen: NDArray[np.int64],
        link_type: NDArray[np.int32],
        tally: _Tally,
        index: memoryview,
    ) -> None:
        wide, narrow = np.empty((len(WIDE), len(offset)), np.int64), np.empty((len(NARROW), len(offset)), np.int32)
        self.buffer = buffer
        self.fragments: list[FragmentRow] = []
        packets = buffer, np.stack([offset, caplen, wirelen]), np.ascontiguousarray(link_type)
        arrays = *packets, wide, narrow, tally.words, tally.kinds, tally.trust
        count: int = _walk_packets(*map(memoryview, arrays), index, self.fragments)  # type: ignore[arg-type, call-arg]  # as many
        self.row_count = count
        lines = zip(WIDE + NARROW, (*wide, *narrow), strict=True)
        self.columns: dict[str, np.ndarray] = {name: line[:count] for name, line in lines}
        self.columns["version"] = self.columns["version"].astype(np.int8)
        self.packet = self.columns.pop("packet")


class Dissector:
    """Windows to segments; keeps IP fragments from one window for the next. ``rules``: see `wrappings.rule_index`."""

    def __init__(self, rules: Sequence[tuple[int, str]] = ()) -> None:
        self._fragments, self._rules = Fragments(), tuple(rules)
        self._trust = np.zeros(1, np.int64)

    def segments(self, window: Window) -> Segments:
        """The TCP segments of a window's packets, in order; see Segments.

        Fragments go into the window that completes their datagram.
        """
        tally = _Tally(self._trust)
        index = wrappings.rule_index(self._rules)
        rows = _Rows(window.buffer, window.offset, window.caplen, window.wirelen, window.link_type, tally, index)
        malformed, dropped, datagrams = self._fragments.malformed, self._fragments.dropped, 0
        if rows.fragments:
            rows, datagrams = self._joined(window, rows, tally)
        words = tally.named()
        words["fragment_malformed"] = self._fragments.malformed - malformed
        words["datagram"] = datagrams
        words["datagram_dropped"] = self._fragments.dropped - dropped
        words.update(self._dropped_fragments())
        return Segments(
            buffer=rows.buffer,
            **rows.columns,
            ts_ns=window.ts_ns[rows.packet],
            packet_number=window.packet_number[rows.packet],
            file=np.full(rows.row_count, window.file, np.int32),
            key=keys_of(_endpoint_pairs(rows.columns)),
            counts=words,
        )

    def finish(self) -> dict[str, int]:
        """Counts of the fragments that never made a datagram, at the end of a capture."""
        dropped = self._fragments.dropped
        self._fragments.drop_all()
        return {"datagram_dropped": self._fragments.dropped - dropped, **self._dropped_fragments()}

    def _dropped_fragments(self) -> dict[str, int]:
        counts = {fragments_name(number): n for number, n in self._fragments.dropped_packets.items()}
        self._fragments.dropped_packets.clear()
        return counts

    def _joined(self, window: Window, rows: _Rows, tally: _Tally) -> tuple[_Rows, int]:
        """The rows and those of completed datagrams, in order of their packets, over one buffer."""
        parts = [rows]
        buffer = rows.buffer
        datagrams = 0
        newest, packets = rows, np.arange(len(window.offset))
        # A datagram may itself hold a tunnelled fragment; each round opens one more layer.
        for _ in range(MAX_NESTED_DATAGRAMS):
            completed = self._whole(window, newest, packets)
            if not completed:
                break
            datagrams += len(completed)
            packets = np.array([packet for packet, _, _ in completed], np.int64)
            length = np.array([len(content) for _, _, content in completed], np.int64)
            offset = len(buffer) + np.cumsum(length) - length
            added = np.frombuffer(b"".join(content for _, _, content in completed), np.uint8)
            buffer = np.concatenate([buffer, added])
            link_type = np.array([link_type for _, link_type, _ in completed], np.int32)
            index = wrappings.rule_index(self._rules)
            newest = _Rows(buffer, offset, length, length, link_type, tally, index)
            newest.packet = packets[newest.packet]
            parts.append(newest)
        order = np.argsort(np.concatenate([each.packet for each in parts]), kind="stable")
        rows.columns = {name: np.concatenate([each.columns[name] for each in parts])[order] for name in rows.columns}
        rows.packet = np.concatenate([each.packet for each in parts])[order]
        rows.row_count = len(order)
        rows.buffer = buffer
        return rows, datagrams

    def _whole(self, window: Window, rows: _Rows, packets: NDArray[np.int64]) -> list[tuple[int, int, bytes]]:
        """(packet, link type, content) for each datagram that fragments complete, and each further subframe."""
        completed: list[tuple[int, int, bytes]] = []
        for index, key, offset, has_more, start, end, wire_end in rows.fragments:
            packet = int(packets[index])
            captured = rows.buffer[start:end].tobytes()
            if not key:
                completed.append((packet, wrappings.SUBFRAMES_LINK_TYPE, captured))
                continue
            fragment = Fragment(offset, offset + wire_end - start, has_more, captured)
            payload = self._fragments.add(key, int(window.ts_ns[packet]), fragment)
            if payload is not None:
                completed.append((packet, RAW_IP, plain_packet(key, payload)))
        return completed


def connections_of(
    window: Window, rules: Sequence[tuple[int, str]] = ()
) -> tuple[NDArray[np.int64], EndpointPair, NDArray[np.int64]]:
    """(rows, ends, fragments) of a window: its rows that are TCP packets, their endpoints, and rows of fragments.

    Fragments are not joined: whose they are may be said in another window.
    """
    index = wrappings.rule_index(tuple(rules))
    rows = _Rows(
        window.buffer, window.offset, window.caplen, window.wirelen, window.link_type, _Tally(np.zeros(1, np.int64)),
        index,
    )  # fmt: skip
    return rows.packet, _endpoint_pairs(rows.columns), np.array([fragment[0] for fragment in rows.fragments], np.int64)


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


def endpoint_pairs(segments: Segments) -> EndpointPair:
    """The endpoints of each row."""
    return _endpoint_pairs({name: getattr(segments, name) for name in _END_COLUMNS})


def keys_of(ends: EndpointPair) -> NDArray[np.int64]:
    """Segments.key of connections between endpoints: a hash that both directions share."""
    key = ends[0].view(np.uint64) + ends[1].view(np.uint64)
    key *= np.uint64(0x9E3779B97F4A7C15)
    key ^= key >> np.uint64(31)
    return key.view(np.int64)


def _endpoint_pairs(columns: dict[str, np.ndarray]) -> EndpointPair:
    src_hi, src_lo, sport, dst_hi, dst_lo, dport = (columns[name] for name in _END_COLUMNS)
    return endpoints(src_hi, src_lo, sport), endpoints(dst_hi, dst_lo, dport)
