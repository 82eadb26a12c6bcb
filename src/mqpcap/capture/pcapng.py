"""Writes packets and comments to a pcapng file that Wireshark opens.

One section, times in nanoseconds, an interface for each link type.
"""

import os
import struct
from collections.abc import Sequence
from typing import BinaryIO

from mqpcap.errors import OutputError

SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, NAMES, STATISTICS, PACKET = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
JOURNAL, SECRETS = 9, 10
"""Types of blocks (draft-ietf-opsawg-pcapng; pcap-ng.c of Wireshark)."""
TLS_KEY_LOG = 0x544C534B
_COMMENT, _APPLICATION, _RESOLUTION = 1, 4, 9
_ORDER_MARK = 0x1A2B3C4D
MAX_COMMENT_BYTES = 0xFFF0
"""An option's length has 16 bits."""


class PacketFile:
    """A pcapng file that is being written."""

    def __init__(self, file: BinaryIO, application: str, comment: str | None = None) -> None:
        self._file = file
        self._interfaces: dict[int, int] = {}
        head = struct.pack("<IHHq", _ORDER_MARK, 1, 0, -1)
        comments = [] if comment is None else [(_COMMENT, comment.encode())]
        self._block(SECTION, head + _options([*comments, (_APPLICATION, application.encode())]))

    def write(self, link_type: int, ts_ns: int, data: bytes, wire_len: int, comments: Sequence[str] = ()) -> None:
        """Add a packet: the bytes captured of it, and how many it had."""
        interface = self._interfaces.get(link_type)
        if interface is None:
            interface = self._interfaces[link_type] = len(self._interfaces)
            self._block(INTERFACE, struct.pack("<HHI", link_type, 0, 0) + _options([(_RESOLUTION, b"\x09")]))
        head = struct.pack("<IIIII", interface, ts_ns >> 32 & 0xFFFFFFFF, ts_ns & 0xFFFFFFFF, len(data), wire_len)
        self._block(PACKET, head + _padded(data) + _options([(_COMMENT, text.encode()) for text in comments]))

    def write_secrets(self, lines: bytes) -> None:
        """Add the lines of a key log of TLS."""
        self._block(SECRETS, struct.pack("<II", TLS_KEY_LOG, len(lines)) + _padded(lines))

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)


def new_folder(name: str) -> None:
    """Make a directory for files of packets; raises OutputError if it exists or cannot be made."""
    try:
        os.mkdir(name)
    except OSError as error:
        raise OutputError(f"{name} cannot be made: {error.strerror}") from error


def _options(options: Sequence[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    cut = [(code, value[:MAX_COMMENT_BYTES]) for code, value in options]
    return b"".join(struct.pack("<HH", code, len(value)) + _padded(value) for code, value in cut) + bytes(4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
