"""Makes `pcaps/strangers`: other people's protocols on the ports of ours.

    python pcaps/strangers.py [FOLDER]

Synthetic: no program spoke here. Scapy builds the packets around byte strings that follow the protocols'
documents: HTTP/1.1, the Kafka protocol, TLS 1.3 and gRPC over HTTP/2. Nothing in these files is a message of
fq, kokaq, FlyMQ, BlipMQ or msgq.
"""

import hashlib
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapWriter

HERE = Path(__file__).resolve().parent
BEGIN_S = 1795230000  # 2026-11-21 03:00:00 UTC
MAX_SEGMENT_LEN = 1448
STEP = Decimal("0.000125")
C2S, S2C = "c2s", "s2c"


@dataclass
class End:
    """One end of a connection: addresses and how far it has sent."""

    mac: str
    ip: str
    port: int
    sequence: int
    packet_id: int = 1


def connection(port: int, client_port: int, begin_s: int, turns: list[tuple[str, bytes]]) -> Iterator[Packet]:
    """A whole TCP connection in which the two ends say these byte strings in turn."""
    client = End("02:00:00:00:00:01", "192.0.2.10", client_port, 1_000_000 + client_port)
    server = End("02:00:00:00:00:02", "192.0.2.20", port, 5_000_000 + port)
    time = Decimal(begin_s)

    def packet(sender: End, receiver: End, flags: str, body: bytes = b"") -> Packet:
        nonlocal time
        made = (
            Ether(src=sender.mac, dst=receiver.mac)
            / IP(src=sender.ip, dst=receiver.ip, id=sender.packet_id, flags="DF", ttl=64)
            / TCP(
                sport=sender.port,
                dport=receiver.port,
                seq=sender.sequence,
                ack=receiver.sequence if "A" in flags else 0,
                flags=flags,
                window=64240,
            )
        )
        if body:
            made = made / Raw(body)
        made.time = time
        time += STEP
        sender.packet_id += 1
        sender.sequence += len(body) + ("S" in flags) + ("F" in flags)
        return made

    yield packet(client, server, "S")
    yield packet(server, client, "SA")
    yield packet(client, server, "A")
    for direction, said in turns:
        sender, receiver = (client, server) if direction == C2S else (server, client)
        for start in range(0, len(said), MAX_SEGMENT_LEN):
            yield packet(sender, receiver, "PA", said[start : start + MAX_SEGMENT_LEN])
            yield packet(receiver, sender, "A")
    yield packet(client, server, "FA")
    yield packet(server, client, "FA")
    yield packet(client, server, "A")


def noise(name: str, length: int) -> bytes:
    """Bytes that look random and are the same every time."""
    return hashlib.shake_256(name.encode()).digest(length)


# HTTP/1.1 (RFC 9112)


def http() -> list[tuple[str, bytes]]:
    page = b"<html><body><h1>It works</h1>" + b"<p>a line of text</p>" * 150 + b"</body></html>"
    host = b"Host: broker.example\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n"
    form = b'{"topic":"orders","payload":"hello"}'
    return [
        (C2S, b"GET /metrics HTTP/1.1\r\n" + host + b"\r\n"),
        (S2C, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page) + page),
        (C2S, b"POST /publish HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n\r\n" % len(form) + form),
        (S2C, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    ]


# Kafka: 4-byte big-endian size, then a header; "A Guide To The Kafka Protocol"


def kafka_text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def kafka_request(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", key, version, correlation_id) + kafka_text(b"console-producer")
    return struct.pack(">i", len(header + body)) + header + body


def kafka_reply(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = b""
    while rest > 0x7F:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


def record_batch(values: list[bytes], time_ms: int) -> bytes:
    """Record batch, magic 2."""
    records = b""
    for number, value in enumerate(values):
        record = b"\x00" + varint(0) + varint(number) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values)) + records
    after_length = struct.pack(">ibI", 0, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


def kafka() -> list[tuple[str, bytes]]:
    topic, broker = kafka_text(b"orders"), kafka_text(b"broker.example")
    versions = b"".join(struct.pack(">hhh", key, 0, 7 if key < 2 else 3) for key in range(19))
    partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
    batch = record_batch([b"first order", b"second order", noise("order", 900)], BEGIN_S * 1000)
    produce = struct.pack(">hhii", -1, 1, 30000, 1) + topic
    produce += struct.pack(">iii", 1, 0, len(batch)) + batch
    fetch = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + topic + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    fetched = struct.pack(">ii", 0, 1) + topic + struct.pack(">iihqqii", 1, 0, 0, 3, 3, -1, len(batch)) + batch
    return [
        (C2S, kafka_request(18, 0, 1, b"")),  # ApiVersions
        (S2C, kafka_reply(1, struct.pack(">hi", 0, 19) + versions)),
        (C2S, kafka_request(3, 1, 2, struct.pack(">i", 1) + topic)),  # Metadata
        (
            S2C,
            kafka_reply(
                2,
                struct.pack(">ii", 1, 1)
                + broker
                + struct.pack(">ihi", 9092, -1, 1)
                + struct.pack(">ih", 1, 0)
                + topic
                + struct.pack(">bi", 0, 1)
                + partition,
            ),
        ),
        (C2S, kafka_request(0, 3, 3, produce)),
        (S2C, kafka_reply(3, struct.pack(">i", 1) + topic + struct.pack(">iihqqi", 1, 0, 0, 0, -1, 0))),
        (C2S, kafka_request(1, 4, 4, fetch)),
        (S2C, kafka_reply(4, fetched)),
    ]


# TLS 1.3 (RFC 8446)


def tls_record(kind: int, body: bytes, version: int = 0x0303) -> bytes:
    return struct.pack(">BHH", kind, version, len(body)) + body


def tls_handshake(kind: int, body: bytes) -> bytes:
    return struct.pack(">B", kind) + len(body).to_bytes(3, "big") + body


def tls_extension(kind: int, body: bytes) -> bytes:
    return struct.pack(">HH", kind, len(body)) + body


def tls() -> list[tuple[str, bytes]]:
    handshake, change, application = 22, 20, 23
    name = b"broker.example"
    server_name = struct.pack(">HBH", len(name) + 3, 0, len(name)) + name
    offered = (
        tls_extension(0, server_name)
        + tls_extension(10, struct.pack(">HHH", 4, 29, 23))  # x25519, secp256r1
        + tls_extension(13, struct.pack(">HHHH", 6, 0x0403, 0x0804, 0x0401))
        + tls_extension(43, b"\x04\x03\x04\x03\x03")
        + tls_extension(51, struct.pack(">HHH", 36, 29, 32) + noise("client key share", 32))
    )
    client_hello = (
        b"\x03\x03"
        + noise("client random", 32)
        + b"\x20"
        + noise("session", 32)
        + struct.pack(">HHHH", 6, 0x1301, 0x1302, 0x1303)
        + b"\x01\x00"
        + struct.pack(">H", len(offered))
        + offered
    )
    chosen = tls_extension(43, b"\x03\x04")
    chosen += tls_extension(51, struct.pack(">HH", 29, 32) + noise("server key share", 32))
    server_hello = (
        b"\x03\x03"
        + noise("server random", 32)
        + b"\x20"
        + noise("session", 32)
        + b"\x13\x01\x00"
        + struct.pack(">H", len(chosen))
        + chosen
    )
    return [
        (C2S, tls_record(handshake, tls_handshake(1, client_hello), 0x0301)),
        (
            S2C,
            tls_record(handshake, tls_handshake(2, server_hello))
            + tls_record(change, b"\x01")
            + tls_record(application, noise("certificate", 2100)),
        ),
        (C2S, tls_record(change, b"\x01") + tls_record(application, noise("finished", 53))),
        (C2S, tls_record(application, noise("request", 120))),
        (S2C, tls_record(application, noise("reply", 3000))),
        (C2S, tls_record(application, noise("close", 19))),
    ]


# gRPC over HTTP/2 (RFC 9113, RFC 7541)


def http2_frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body


def hpack(name: bytes, value: bytes) -> bytes:
    """A literal header field without indexing, new name; short strings only."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def grpc() -> list[tuple[str, bytes]]:
    data, headers, settings, window = 0, 1, 4, 8
    end_stream, end_headers, ack = 1, 4, 1
    asked = b"\x83\x86"  # :method POST, :scheme http, from the static table
    asked += hpack(b":path", b"/kokaq.v1.Queue/Push") + hpack(b":authority", b"broker.example:9944")
    asked += hpack(b"content-type", b"application/grpc") + hpack(b"te", b"trailers")
    message = b"\x0a\x06orders\x12\x05hello"  # protobuf: field 1 and 2, strings
    answer = b"\x08\x01"
    said_first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(settings, 0, 0, b"")
    request = http2_frame(headers, end_headers, 1, asked)
    request += http2_frame(data, end_stream, 1, struct.pack(">BI", 0, len(message)) + message)
    reply = http2_frame(headers, end_headers, 1, b"\x88" + hpack(b"content-type", b"application/grpc"))
    reply += http2_frame(data, 0, 1, struct.pack(">BI", 0, len(answer)) + answer)
    reply += http2_frame(headers, end_headers | end_stream, 1, hpack(b"grpc-status", b"0"))
    return [
        (C2S, said_first),
        (S2C, http2_frame(settings, 0, 0, struct.pack(">HI", 5, 16384)) + http2_frame(settings, ack, 0, b"")),
        (C2S, http2_frame(settings, ack, 0, b"") + request),
        (S2C, http2_frame(window, 0, 0, struct.pack(">I", len(message) + 5)) + reply),
    ]


STRANGERS = {
    "http_8765": (8765, http),
    "http_5555": (5555, http),
    "kafka_9092": (9092, kafka),
    "tls_9092": (9092, tls),
    "grpc_9944": (9944, grpc),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (port, turns)) in enumerate(STRANGERS.items()):
        with PcapWriter(str(folder / f"{name}.pcap"), linktype=1, sync=True) as writer:
            for packet in connection(port, 40000 + number, BEGIN_S + 60 * number, turns()):
                writer.write(packet)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "strangers")
