"""What a connection that is not ours speaks, by its first bytes."""

import struct

import pytest

from mqpcap.decode.foreign_protocols import foreign_protocol, is_grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01"  # RFC 8446, 5.1: handshake, version, length


def kafka_request(key: int = 18, version: int = 3, correlation_id: int = 7, name: bytes = b"rdkafka") -> bytes:
    """ApiVersions, as kafka.apache.org/protocol has its header."""
    body = struct.pack(">hhih", key, version, correlation_id, len(name)) + name
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("one", "two", "name"),
    [
        (CLIENT_HELLO, b"", "TLS"),
        (b"", b"\x17\x03\x03\x00\x10", "TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"", "HTTP/1"),
        (b"", b"HTTP/1.1 200 OK\r\n", "HTTP/1"),
        (PREFACE, b"", "HTTP/2"),
        (PREFACE, b"\x00content-type\x10application/grpc", "gRPC"),
        (kafka_request(), b"", "Kafka"),
        (kafka_request(), struct.pack(">ii", 30, 7), "Kafka"),
        (struct.pack(">ii", 30, 7), kafka_request(), "Kafka"),
    ],
)
def test_first_bytes_name_the_protocol(one: bytes, two: bytes, name: str) -> None:
    assert foreign_protocol(one, two) == name


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"", b""),
        (b"\x16\x03", b""),
        (b"\x16\x03\x05\x00\x10", b""),  # no version of TLS
        (b"GET /metrics\r\n", b""),  # HTTP/0.9
        (PREFACE[:-1], b""),
        (kafka_request()[:13], b""),
        (kafka_request(key=101), b""),
        (kafka_request(version=21), b""),
        (kafka_request(name=b"\x00\x01"), b""),
        (kafka_request(), struct.pack(">ii", 30, 8)),  # the answer to another request
    ],
)
def test_anything_else_has_no_name(one: bytes, two: bytes) -> None:
    assert foreign_protocol(one, two) is None


def test_grpc_is_seen_in_plain_and_in_compressed_headers() -> None:
    """The Huffman code of RFC 7541, appendix B: a 00011, p 101011, l 101000, i 00110, c 00100, t 01001, o 00111,
    n 101010, / 011000, g 100110, r 101100."""
    codes = {
        "a": "00011", "p": "101011", "l": "101000", "i": "00110", "c": "00100", "t": "01001", "o": "00111",
        "n": "101010", "/": "011000", "g": "100110", "r": "101100",
    }  # fmt: skip
    bits = "".join(codes[letter] for letter in "application/grpc")
    compressed = int(bits[:88], 2).to_bytes(11, "big")

    assert is_grpc(b"xapplication/grpcx")
    assert is_grpc(b"\x5f\x8b" + compressed)
    assert not is_grpc(b"application/json")
