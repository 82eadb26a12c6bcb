"""Names the foreign protocol of a connection from its first bytes. For people: no row depends on the name."""

import re
import struct

from mqpcap.websocket import UPGRADE, frames_begin

TLS, HTTP_1, HTTP_2, GRPC, KAFKA, WEBSOCKET = "TLS", "HTTP/1", "HTTP/2", "gRPC", "Kafka", "WebSocket"
_BEGINS = (
    (TLS, rb"[\x16\x17]\x03[\0-\4]"),  # handshake and application data, version 3.x (RFC 8446, 5.1)
    (HTTP_2, rb"PRI \* HTTP/2\.0\r\n\r\nSM\r\n\r\n"),  # RFC 9113, 3.4
    (WEBSOCKET, rb"(?i:" + UPGRADE.pattern + rb")"),
    (
        HTTP_1,
        rb"(?:GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH) [!-~]{1,8192} HTTP/1\.[01]\r\n"
        rb"|HTTP/1\.[01] [1-5]\d\d",
    ),
)
"""Names of protocols, and how a side of each begins, the name that wins first."""
_NAMED = re.compile(b"|".join(b"(%s)" % begin for _, begin in _BEGINS))
_GRPC = b"application/grpc", bytes.fromhex("1d75d0620d263d4c4d6564")  # as it is, and in HPACK's Huffman code
MAX_KAFKA_BYTES = 100 << 20  # socket.request.max.bytes
MAX_KAFKA_KEY, MAX_KAFKA_VERSION = 100, 20


def foreign_protocol(side_a: bytes, side_b: bytes) -> str | None:
    """The protocol of a connection with these first bytes of its sides, None if it is not known.

    >>> foreign_protocol(b"GET / HTTP/1.1\\r\\n", b"")
    'HTTP/1'
    """
    sides = side_a, side_b
    ranks = [match.lastindex or 0 for data in sides if (match := _NAMED.match(data))]
    if ranks:
        name, _ = _BEGINS[min(ranks) - 1]
        return GRPC if name == HTTP_2 and any(map(is_grpc, sides)) else name
    if _is_kafka(side_a, side_b) or _is_kafka(side_b, side_a):
        return KAFKA
    is_framed = [data[0] > 0x80 and frames_begin(memoryview(data), 0) for data in sides if data]  # the bit FIN
    return WEBSOCKET if is_framed and all(is_framed) else None


def is_grpc(data: bytes) -> bool:
    """Whether bytes of an HTTP/2 connection say that it carries gRPC."""
    return any(word in data for word in _GRPC)


def _is_kafka(request: bytes, response: bytes) -> bool:
    """A request header (kafka.apache.org/protocol: size, api key and version, correlation id, client id) and, where
    there is a response, its correlation id."""
    if len(request) < 14:
        return False
    size, key, version, _, name_len = struct.unpack_from(">ihhih", request)
    if not (10 <= size <= MAX_KAFKA_BYTES and 0 <= key <= MAX_KAFKA_KEY and 0 <= version <= MAX_KAFKA_VERSION):
        return False
    name = request[14 : 14 + max(name_len, 0)]
    if not (-1 <= name_len <= size - 10 and all(0x20 <= byte < 0x7F for byte in name)):
        return False
    return len(response) < 8 or response[4:8] == request[8:12]
