"""Handshake messages of TLS: what both sides agreed on, read from bytes that nobody vouches for.

In: the content of handshake records of a side. Out: whole messages, and the facts of hellos. Wrong lengths give
nothing.
"""

import hashlib
import struct
from collections.abc import Iterator
from contextlib import suppress

from mqpcap.records import dataclass
from mqpcap.tls.record_ciphers import TLS_1_3

CLIENT_HELLO, SERVER_HELLO, NEW_TICKET, END_OF_EARLY_DATA, ENCRYPTED_EXTENSIONS = 1, 2, 4, 5, 8
FINISHED, KEY_UPDATE = 20, 24
_READ = frozenset((CLIENT_HELLO, SERVER_HELLO, NEW_TICKET, ENCRYPTED_EXTENSIONS))
_SERVER_NAME, _ALPN, _ENCRYPT_FIRST, _TICKET, _EARLY_DATA, _VERSIONS = 0, 16, 22, 35, 42, 43
_RETRY_RANDOM = hashlib.sha256(b"HelloRetryRequest").digest()  # RFC 8446, 4.1.3
MAX_MESSAGE_BYTES = 64 << 10
"""A longer message is passed over: certificates, mostly, whose content is not read."""
MAX_SHORT_BYTES = 256
"""A longer message whose content is not read is passed over, too: Finished and KeyUpdate are short."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A ClientHello or ServerHello. ``version``: as negotiated by a server, TLS 1.3 included.

    ``cipher``: the server's choice. ``ticket``: hash of the ticket that a client offers.
    """

    random: bytes
    session_id: bytes
    version: int
    cipher: int
    server_name: str | None
    alpn: tuple[str, ...]
    encrypts_first: bool
    ticket: bytes | None
    has_early_data: bool

    @property
    def is_retry(self) -> bool:
        """Whether it is a HelloRetryRequest."""
        return self.random == _RETRY_RANDOM


class HandshakeReader:
    """The handshake messages of a side, which lie in records as they like."""

    def __init__(self) -> None:
        self._data = b""
        self._passed_bytes = 0
        """Bytes of a long message that are still to come."""

    def reset(self) -> None:
        """Begin anew with the next record, after bytes that are missing."""
        self._data, self._passed_bytes = b"", 0

    def messages(self, content: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
        """The type and body of each message that is complete; the body is empty if it is not read."""
        passed = min(self._passed_bytes, len(content))
        self._passed_bytes -= passed
        data = self._data + bytes(content[passed:])
        begin = 0
        while len(data) - begin >= 4:
            kind, end = data[begin], begin + 4 + int.from_bytes(data[begin + 1 : begin + 4])
            if end > len(data):
                if end - begin > (MAX_MESSAGE_BYTES if kind in _READ else MAX_SHORT_BYTES):
                    self._passed_bytes, begin = end - len(data), len(data)
                break
            yield kind, data[begin + 4 : end] if kind in _READ else b""
            begin = end
        self._data = data[begin:]


def hello(kind: int, body: bytes) -> Hello | None:
    """The facts of a ClientHello or ServerHello, None if it is none."""
    with suppress(struct.error, IndexError):
        (version,) = struct.unpack_from(">H", body)
        random, id_len = body[2:34], body[34]
        session_id, at = body[35 : 35 + id_len], 35 + id_len
        cipher = 0
        if kind == SERVER_HELLO:
            (cipher,) = struct.unpack_from(">H", body, at)
            at += 3
        else:
            at += 2 + struct.unpack_from(">H", body, at)[0]
            at += 1 + body[at]
        if version >> 8 != 3 or len(random) < 32 or at > len(body):
            return None
        extensions = dict(_extensions(body[at:]))
        if kind == SERVER_HELLO and len(extensions.get(_VERSIONS, b"")) == 2:
            (version,) = struct.unpack(">H", extensions[_VERSIONS])
            version = TLS_1_3 if version >> 8 in (3, 0x7F) and version >= TLS_1_3 else version
        ticket = extensions.get(_TICKET)
        return Hello(
            random, session_id, version, cipher, _server_name(extensions.get(_SERVER_NAME, b"")),
            alpn(extensions.get(_ALPN, b"")), _ENCRYPT_FIRST in extensions,
            hashlib.sha256(ticket).digest() if ticket else None, _EARLY_DATA in extensions,
        )  # fmt: skip
    return None


def encrypted_extensions(body: bytes) -> tuple[tuple[str, ...], bool]:
    """The choices in a server's EncryptedExtensions: the protocol of ALPN, and whether it takes early data."""
    extensions = dict(_extensions(body))
    return alpn(extensions.get(_ALPN, b"")), _EARLY_DATA in extensions


def ticket_hash(body: bytes) -> bytes:
    """The hash of the ticket in a NewSessionTicket of TLS 1.2 (RFC 5077, 3.3)."""
    return hashlib.sha256(body[6 : 6 + int.from_bytes(body[4:6])]).digest()


def _extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    at, end = 2, min(2 + int.from_bytes(data[:2]), len(data))
    while at + 4 <= end:
        kind, length = struct.unpack_from(">HH", data, at)
        yield kind, data[at + 4 : at + 4 + length]
        at += 4 + length


def _server_name(data: bytes) -> str | None:
    """The host name of a list of server names (RFC 6066, 3); bytes that are not ASCII are escaped."""
    name = data[5 : 5 + int.from_bytes(data[3:5])] if data[2:3] == b"\0" else b""
    return name.decode("ascii", "backslashreplace") or None


def alpn(data: bytes) -> tuple[str, ...]:
    """The names in a list of protocols (RFC 7301, 3.1)."""
    names, at = [], 2
    while at < len(data):
        names.append(data[at + 1 : at + 1 + data[at]].decode("ascii", "backslashreplace"))
        at += 1 + data[at]
    return tuple(names)
