"""Reads what stands in front of a client's stream: the PROXY header of a load balancer, or a request to a proxy.

``detection`` skips the header, whatever protocol follows; ``framing`` makes its bytes a row of ``problems`` and its
source address two columns of ``connections``.

Source: HAProxy's proxy-protocol.txt, sections 2.1 (version 1, one line of text) and 2.2 (version 2, binary). Its TLVs
(TLS, AWS, GCP) are skipped. Unix addresses, LOCAL and UNKNOWN name no client. Requests are those of SOCKS 4 and 4a,
SOCKS 5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110, 9.3.6). They name the server, and the proxy's consent stands in
front of its stream.
"""

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.tcp.headers import address_text

REASON = "proxy protocol"
"""``problems.reason`` of a header. Its bytes are not lost: nothing of a message is missing."""
MAX_LINE_BYTES = 107
"""Longest header of version 1, with its CRLF (2.1)."""
MAX_HEADERS = 8
"""Headers in a row that are read; further bytes are the client's."""
MAX_BEHIND = 1 << 16
"""Connections from a proxy to its servers; the oldest are forgotten."""
NAMED_PROXIED = 8
"""Connections that notes name; further ones are counted."""
ENDS = ("client_ip", "client_port", "server_ip", "server_port")
_LINE_START, _SIGNATURE = b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"
_FIXED_BYTES = 16
"""Header of version 2 in front of the addresses; the length that it ends with is 16 bits, and so is bounded."""
_LINE = re.compile(rb"PROXY (?:UNKNOWN(?: [ -~]*)?|TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5}))\r\n")
_LOCAL, _PROXY = 0x20, 0x21
_FAMILIES = {0x00: 0, 0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}
"""Bytes of the addresses by family and transport (2.2)."""


MAX_REQUEST_BYTES = 8 << 10
"""Longest request to a proxy, and longest consent: those of HTTP, with their fields."""
_CONNECT = re.compile(rb"CONNECT \[?([^\s\]]+)\]?:(\d{1,5}) HTTP/1\.[01]\r\n(?:[ -~\t]+\r\n)*\r\n")
_CONSENTS = {
    b"C": re.compile(rb"HTTP/1\.[01] 2\d\d[^\r\n]*\r\n(?:[ -~\t]+\r\n)*\r\n"),
    b"\x04": re.compile(rb"\0\x5a.{6}", re.DOTALL),
    b"\x05": re.compile(rb"\x05(?:\0|\x02\x01\0)\x05\0\0(?:\x01.{4}|\x04.{16})..", re.DOTALL),
}
"""By the first byte of a request: the bytes that grant it."""


class ProxyHeader(NamedTuple):
    """A whole header: its length in bytes, and the client that it names (None, None for no client).

    ``request``: the first byte of a request to a proxy, which names the server; ``consent_length``: of its consent.
    """

    length: int
    ip: str | None
    port: int | None
    request: bytes = b""
    consent_length: int = 0


def may_begin_header(data: bytes) -> bool:
    """Whether more bytes may make these the header that they are not yet.

    >>> may_begin_header(b"PRO"), may_begin_header(b"PRI"), may_begin_header(b"")
    (True, False, False)
    """
    if data[:1] == b"P":
        size = len(_LINE_START)
        return data[:size] == _LINE_START[: len(data)] and len(data) < MAX_LINE_BYTES and b"\n" not in data
    if data[:1] in _CONSENTS:
        return len(data) < MAX_REQUEST_BYTES and _may_begin_request(data)
    size = len(_SIGNATURE)
    return bool(data) and data[:size] == _SIGNATURE[: len(data)] and len(data) < _end_of_version_2(data)


def proxy_header(data: bytes) -> ProxyHeader | None:
    """The headers that a stream begins with, as one; None if it begins with no whole header.

    A balancer that does not read the header of an earlier one puts its own in front of it, with the earlier balancer as
    the source. So the last header names the original client.

    >>> proxy_header(b"PROXY TCP4 203.0.113.9 198.51.100.20 51234 5555\\r\\n...")
    ProxyHeader(length=49, ip='203.0.113.9', port=51234)
    """
    headers, end = None, 0
    for _ in range(MAX_HEADERS):
        header = _single_header(data[end:])
        if header is None:
            break
        end += header.length
        headers = header._replace(length=end)
    return headers


def _single_header(data: bytes) -> ProxyHeader | None:
    if data.startswith(_LINE_START):
        return _line(data[:MAX_LINE_BYTES])
    if data[:1] in _CONSENTS:
        return _request(data[:MAX_REQUEST_BYTES])
    return _version_2(data) if data.startswith(_SIGNATURE) else None


def consent_length(request: bytes, data: bytes) -> int:
    """The length of the consent that a server's stream begins with; 0 if it has none, -1 if more bytes may show it."""
    consent = _CONSENTS[request].match(data[:MAX_REQUEST_BYTES])
    if consent is not None:
        return consent.end()
    begin = {b"C": b"HTTP/1.", b"\x04": b"\0\x5a", b"\x05": b"\x05"}[request]
    return -1 if begin[: len(data)] == data[: len(begin)] and len(data) < MAX_REQUEST_BYTES else 0


def _may_begin_request(data: bytes) -> bool:
    if data[:1] == b"C":
        return b"CONNECT "[: len(data)] == data[:8] and b"\r\n\r\n" not in data
    if data[:1] == b"\x04":
        return data[1:2] in (b"", b"\x01") and len(data) < 8 + 2 * 256
    request = data[_end_of_greeting(data) :]
    return data[1:2] != b"\0" and len(request) < 7 + 255 and b"\x05\x01\0"[: len(request)] == request[:3]


def _end_of_greeting(data: bytes) -> int:
    """The offset of the request of SOCKS 5, after the methods and the login of RFC 1929."""
    end = 2 + int.from_bytes(data[1:2], "big")
    if data[end : end + 1] == b"\x01":
        end += 2 + int.from_bytes(data[end + 1 : end + 2], "big")
        end += 1 + int.from_bytes(data[end : end + 1], "big")
    return end


def _request(data: bytes) -> ProxyHeader | None:
    """A request to connect, of HTTP or SOCKS."""
    if data[:1] != b"C":
        return _socks_4(data) if data[:1] == b"\x04" else _socks_5(data)
    line = _CONNECT.match(data)
    return None if line is None else ProxyHeader(line.end(), _name(line[1]), int(line[2]), b"C")


def _name(text: bytes) -> str:
    return text.decode("ascii", "replace")


def _socks_4(data: bytes) -> ProxyHeader | None:
    """The request of version 4: a user follows; of 4a a name, where the address is 0.0.0.x."""
    port, host, end = int.from_bytes(data[2:4], "big"), data[4:8], data.find(b"\0", 8, 8 + 256) + 1
    if data[1:2] != b"\x01" or not end:
        return None
    if host[:3] != bytes(3):
        return ProxyHeader(end, _text(host), port, b"\x04")
    name_end = data.find(b"\0", end, end + 256)
    return None if name_end < 0 else ProxyHeader(name_end + 1, _name(data[end:name_end]), port, b"\x04")


def _socks_5(data: bytes) -> ProxyHeader | None:
    start = _end_of_greeting(data)
    kind, host_start = data[start + 3 : start + 4], start + 4
    size = {b"\x01": 4, b"\x04": 16}.get(kind, 0)
    if kind == b"\x03":
        size, host_start = int.from_bytes(data[host_start : host_start + 1], "big"), host_start + 1
    host, end = data[host_start : host_start + size], host_start + size + 2
    if data[start : start + 3] != b"\x05\x01\0" or not size or len(data) < end:
        return None
    port = int.from_bytes(data[end - 2 : end], "big")
    return ProxyHeader(end, _name(host) if kind == b"\x03" else _text(host), port, b"\x05")


def _line(data: bytes) -> ProxyHeader | None:
    line = _LINE.match(data)
    if line is None:
        return None
    family, source, target, *ports = line.groups()
    if family is None:
        return ProxyHeader(line.end(), None, None)
    texts = [_address(text.decode("ascii", "replace"), is_version_6=family == b"6") for text in (source, target)]
    numbers = [int(port) for port in ports]
    if None in texts or max(numbers) > 0xFFFF:
        return None
    return ProxyHeader(line.end(), texts[0], numbers[0])


def _address(text: str, is_version_6: bool) -> str | None:
    try:
        return _text(IPv6Address(text).packed if is_version_6 else IPv4Address(text).packed)
    except AddressValueError:
        return None


def _text(packed: bytes) -> str:
    """An address as the columns of addresses have it."""
    if len(packed) == 4:
        return address_text(4, 0, int.from_bytes(packed, "big"))
    return address_text(6, *(int.from_bytes(half, "big", signed=True) for half in (packed[:8], packed[8:])))


def _end_of_version_2(data: bytes) -> int:
    """End of the header. If more bytes are needed to know it: how many."""
    if len(data) < _FIXED_BYTES:
        return _FIXED_BYTES
    return _FIXED_BYTES + int.from_bytes(data[14:16], "big") if _is_version_2(data) else 0


def _is_version_2(data: bytes) -> bool:
    """Whether version, command and family are of the document, and the addresses fit the length."""
    if data[12] == _LOCAL:
        return True  # The receiver ignores the family (2.2).
    size = _FAMILIES.get(data[13])
    return data[12] == _PROXY and size is not None and int.from_bytes(data[14:16], "big") >= size


def _version_2(data: bytes) -> ProxyHeader | None:
    end = _end_of_version_2(data)
    if not _FIXED_BYTES <= end <= len(data):
        return None
    size = {0x10: 4, 0x20: 16}.get(data[13] & 0xF0)
    if data[12] == _LOCAL or size is None:
        return ProxyHeader(end, None, None)
    ports = _FIXED_BYTES + 2 * size
    return ProxyHeader(
        end, _text(data[_FIXED_BYTES : _FIXED_BYTES + size]), int.from_bytes(data[ports : ports + 2], "big")
    )


class Proxied:
    """Connections that a proxy goes on with, where both sides of the proxy are in the capture.

    The header on the far side names the client of the near side. Both connections count, but what is delivered is
    delivered once: to the far side.
    """

    def __init__(self) -> None:
        self._far: dict[tuple[str, int], tuple[str, int, str, int]] = {}
        """By the client that a header names: the ends of its connection."""
        self._texts: list[str] = []
        self._count = 0

    def add(self, header: ProxyHeader, ends: tuple[str, int, str, int]) -> None:
        """Note a connection of a supported protocol with a PROXY header, by its client and server."""
        if header.ip is not None and header.port is not None and not header.request:
            self._far[header.ip, header.port] = ends
            if len(self._far) > MAX_BEHIND:
                del self._far[next(iter(self._far))]

    def is_near(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Whether the connection of each row with the columns ENDS goes on at the far side."""
        if not self._far:
            return np.zeros(rows.num_rows, np.bool_)
        ends = zip(*(rows[name].to_pylist() for name in ENDS), strict=True)
        return np.array([self._far.get(x[:2], x)[2:] != x[2:] for x in ends], np.bool_)

    def end(self, blocks: Sequence[pa.Table]) -> None:
        """Make a note of ended connections that go on at the far side."""
        near = (rows.filter(pa.array(self.is_near(rows))) for rows in blocks if self._far)
        for row in chain.from_iterable(rows.select(ENDS).to_pylist() for rows in near):
            self._count += 1
            if self._count <= NAMED_PROXIED:
                near_ends = tuple(row[name] for name in ENDS)
                texts = ["{}:{} to {}:{}".format(*ends) for ends in (near_ends, self._far[near_ends[:2]])]
                self._texts.append(" goes on behind a proxy as ".join(texts) + ": both count, deliveries once")

    @property
    def missing_count(self) -> int:
        """Connections on the far side whose near side did not end yet, or is not there."""
        return max(len(self._far) - self._count, 0)

    def notes(self) -> list[str]:
        """Sentences that name the near and the far side."""
        unnamed = self._count - len(self._texts)
        return [*self._texts, *([f"{unnamed:,} more connections go on behind a proxy"] if unnamed else [])]
