"""Handshake messages of TLS: what both sides agreed on, read from bytes that nobody vouches for.

In: the content of handshake records of a side. Out: whole messages, and the facts of hellos. Wrong lengths give
nothing.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from mqpcap.tls.record_ciphers import TLS_1_3

CLIENT_HELLO, SERVER_HELLO, NEW_TICKET, END_OF_EARLY_DATA, ENCRYPTED_EXTENSIONS = 1, 2, 4, 5, 8
FINISHED, KEY_UPDATE = 20, 24
_READ = frozenset((CLIENT_HELLO, SERVER_HELLO, NEW_TICKET, ENCRYPTED_EXTENSIONS))
_SERVER_NAME, _ALPN, _ENCRYPT_FIRST, _TICKET, _EARLY_DATA, _VERSIONS = 0, 16, 22, 35, 42, 43
RETRY_RANDOM = hashlib.sha256(b"HelloRetryRequest").digest()
"""The random of a HelloRetryRequest (RFC 8446, 4.1.3)."""
MAX_MESSAGE_BYTES = 64 << 10
"""A longer message is passed over: certificates, mostly, whose content is not read."""
MAX_SHORT_BYTES = 256
"""A longer message whose content is not read is passed over, too: Finished and KeyUpdate are short."""


class Hello(NamedTuple):
    """A ClientHello or ServerHello. ``version``: as negotiated by a server, TLS 1.3 included.

    ``cipher``: the server's choice. ``ticket``: hash of the ticket that a client offers.
    """

    random: bytes = b""
    session_id: bytes = b""
    version: int = 0
    cipher: int = 0
    server_name: str | None = None
    alpn: str | None = None
    encrypts_first: bool = False
    ticket: bytes = b""
    has_early_data: bool = False


class HandshakeReader:
    """The handshake messages of a side, which lie in records as they like."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._passed_bytes = 0
        """Bytes of a long message that are still to come."""

    def messages(self, content: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
        """The type and body of each message that is complete; the body is empty if it is not read."""
        passed = min(self._passed_bytes, len(content))
        self._passed_bytes -= passed
        self._data += content[passed:]
        data, begin = self._data, 0
        while len(data) - begin >= 4:
            kind, end = data[begin], begin + 4 + int.from_bytes(data[begin + 1 : begin + 4])
            if end > len(data):
                if end - begin > (MAX_MESSAGE_BYTES if kind in _READ else MAX_SHORT_BYTES):
                    self._passed_bytes, begin = end - len(data), len(data)
                break
            yield kind, bytes(data[begin + 4 : end]) if kind in _READ else b""
            begin = end
        del data[:begin]


def hello(kind: int, body: bytes) -> Hello:
    """The facts of a ClientHello or ServerHello; an empty one if it is none."""
    id_end = 35 + int.from_bytes(body[34:35])
    cipher = body[id_end : id_end + 2] if kind == SERVER_HELLO else b""
    begin = id_end + 3
    if kind == CLIENT_HELLO:  # suites, then methods of compression
        begin = id_end + 2 + int.from_bytes(body[id_end : id_end + 2])
        begin += 1 + int.from_bytes(body[begin : begin + 1])
    if body[:1] != b"\3" or begin > len(body):
        return Hello()
    extensions = _extensions(body[begin:])
    chosen, version = extensions.get(_VERSIONS, b""), int.from_bytes(body[:2])
    if kind == SERVER_HELLO and len(chosen) == 2:
        # A draft of TLS 1.3 is 0x7F and its number.
        version = TLS_1_3 if chosen[0] == 0x7F or chosen >= b"\3\4" else int.from_bytes(chosen)
    name, ticket = extensions.get(_SERVER_NAME, b""), extensions.get(_TICKET)
    return Hello(
        body[2:34], body[35:id_end], version, int.from_bytes(cipher),
        # RFC 6066, 3: a list, whose first entry is a host name.
        (_text(name[5 : 5 + int.from_bytes(name[3:5])]) or None) if name[2:3] == b"\0" else None,
        _alpn(extensions), _ENCRYPT_FIRST in extensions, hashlib.sha256(ticket).digest() if ticket else b"",
        _EARLY_DATA in extensions,
    )  # fmt: skip


def encrypted_extensions(body: bytes) -> tuple[str | None, bool]:
    """The choices in a server's EncryptedExtensions: the protocol of ALPN, and whether it takes early data."""
    return _alpn(extensions := _extensions(body)), _EARLY_DATA in extensions


def ticket_hash(body: bytes) -> bytes:
    """The hash of the ticket in a NewSessionTicket of TLS 1.2 (RFC 5077, 3.3)."""
    return hashlib.sha256(body[6 : 6 + int.from_bytes(body[4:6])]).digest()


def _extensions(data: bytes) -> dict[int, bytes]:
    extensions, begin, end = {}, 2, min(2 + int.from_bytes(data[:2]), len(data))
    while begin + 4 <= end:
        length = int.from_bytes(data[begin + 2 : begin + 4])
        extensions[int.from_bytes(data[begin : begin + 2])] = data[begin + 4 : begin + 4 + length]
        begin += 4 + length
    return extensions


def _alpn(extensions: dict[int, bytes]) -> str | None:
    """The first name in a list of protocols (RFC 7301, 3.1); a server has one."""
    names = extensions.get(_ALPN, b"")
    return _text(names[3 : 3 + names[2]]) if len(names) > 2 else None


def _text(name: bytes) -> str:
    """A name; bytes that are not ASCII are escaped."""
    return name.decode("ascii", "backslashreplace")
