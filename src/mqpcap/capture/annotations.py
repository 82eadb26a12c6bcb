"""Reads the comments of a pcapng file, and its names of addresses (blocks of name resolution).

In: a `PeekableStream`. Out: `Annotations`. Called by: the command ``info``. This is a pass of its own over the file, as
the reader of packets skips these blocks.
"""

import io
import ipaddress
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field

from mqpcap.capture.pcapng import INTERFACE, JOURNAL, NAMES, OLD_PACKET, PACKET, SECTION, SIMPLE_PACKET
from mqpcap.capture.sources import PeekableStream, PythonFile
from mqpcap.capture.windows import MAX_RECORD_BYTES, options
from mqpcap.records import dataclass

MAX_ANNOTATIONS = 1000
"""Comments of a file, and addresses with names, that are returned; the search ends there."""
MAX_TEXT_BYTES = 1 << 16
READ_BYTES = 1 << 20
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
# Block types that Wireshark counts as packets: the old packet block, simple, enhanced, and a systemd journal entry.
_COUNTED = {OLD_PACKET, SIMPLE_PACKET, PACKET, JOURNAL}
_FIXED = {SECTION: 24, INTERFACE: 16}
_COMMENT = 1


@dataclass(slots=True)
class Annotations:
    """comments: place in the file, and text. names: names by address."""

    comments: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)


def annotations(source: PeekableStream) -> Annotations:
    """The comments and names in the plain bytes of a capture, none in a pcap; ends where the file is damaged."""
    result, packets, order = Annotations(), 0, "<"
    with suppress(struct.error):
        for order, kind, block in _blocks(source):
            packets += kind in _COUNTED
            if len(result.comments) >= MAX_ANNOTATIONS or len(result.names) >= MAX_ANNOTATIONS:
                break
            if kind == NAMES:
                _add_names(result, block[8:-4], order)
                continue
            options_offset = _FIXED.get(kind)
            if kind == PACKET:
                options_offset = 28 + (struct.unpack_from(order + "I", block, 20)[0] + 3) // 4 * 4
            if options_offset is not None:
                where = {SECTION: "file", INTERFACE: "interface"}.get(kind, f"packet {packets}")
                texts = (
                    text[:MAX_TEXT_BYTES] for code, text in options(block[options_offset:-4], order) if code == _COMMENT
                )
                result.comments += [(where, text.decode("utf-8", "replace")) for text in texts]
    return result


def ip_text(packed: bytes) -> str:
    """An address in the form of RFC 5952, whatever the version of Python.

    >>> ip_text(bytes((192, 0, 2, 10))), ip_text(bytes(10) + bytes((255, 255, 192, 0, 2, 10)))
    ('192.0.2.10', '::ffff:192.0.2.10')
    """
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return f"::ffff:{mapped}" if mapped is not None else str(address)


def _blocks(source: PeekableStream) -> Iterator[tuple[str, int, bytes]]:
    """Byte order, type and bytes of each block."""
    file, order = io.BufferedReader(PythonFile(source), READ_BYTES), "<"
    while len(head := file.read(12)) == 12:
        if head[:4] == b"\n\r\r\n":  # a section, in either order
            order = _ORDERS.get(head[8:], order)
        kind, length = struct.unpack_from(order + "II", head)
        block = head + file.read(length - 12) if 12 <= length <= MAX_RECORD_BYTES else b""
        if len(block) != length:
            return
        yield order, kind, block


def _add_names(result: Annotations, area: bytes, order: str) -> None:
    """Records of a block of names: an address of IPv4 (1) or IPv6 (2), and names that end in a zero each."""
    for kind, record in options(area, order):
        address_len = {1: 4, 2: 16}.get(kind)
        if address_len is not None and len(record) > address_len:
            address = ip_text(record[:address_len])
            names = [text.decode("utf-8", "replace") for text in record[address_len:].split(b"\0") if text]
            result.names.setdefault(address, []).extend(names)
