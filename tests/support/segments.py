"""Builds Segments for tests: packets as people think of them, arrays as reassembly takes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mqpcap.tcp.headers import Segments

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
A = ("10.0.0.1", 40000)
B = ("10.0.0.2", 5555)


@dataclass(frozen=True)
class Packet:
    """One TCP segment; wire_length is set when the snap length cut it."""

    src: tuple[str, int] = A
    dst: tuple[str, int] = B
    seq: int = 0
    ack: int = 0
    flags: int = ACK
    body: bytes = b""
    ts_ns: int = -1
    wire_length: int = -1
    ident: int = 0
    checksum: int = 0
    window: int = 0

    def but(self, **changes: object) -> "Packet":
        return replace(self, **changes)  # type: ignore[arg-type]


def a(seq: int, body: bytes = b"", ack: int = 0, flags: int = ACK, **more: object) -> Packet:
    """A packet from A to B."""
    return Packet(A, B, seq % 2**32, ack % 2**32, flags, body, **more)  # type: ignore[arg-type]


def b(seq: int, body: bytes = b"", ack: int = 0, flags: int = ACK, **more: object) -> Packet:
    """A packet from B to A."""
    return Packet(B, A, seq % 2**32, ack % 2**32, flags, body, **more)  # type: ignore[arg-type]


def _number(address: str) -> int:
    first, second, third, fourth = (int(part) for part in address.split("."))
    return first << 24 | second << 16 | third << 8 | fourth


def segments(packets: Sequence[Packet], first: int = 0) -> Segments:
    """The arrays of these packets; first packets of the capture came before them."""
    n = len(packets)
    src = np.array([_number(packet.src[0]) for packet in packets], np.int64)
    dst = np.array([_number(packet.dst[0]) for packet in packets], np.int64)
    sport = np.array([packet.src[1] for packet in packets], np.int32)
    dport = np.array([packet.dst[1] for packet in packets], np.int32)
    length = np.array([len(packet.body) for packet in packets], np.int64)
    wire = [len(packet.body) if packet.wire_length < 0 else packet.wire_length for packet in packets]
    numbers = np.arange(first + 1, first + n + 1, dtype=np.int64)
    return Segments(
        buffer=np.frombuffer(b"".join(packet.body for packet in packets), np.uint8),
        src_hi=np.zeros(n, np.int64),
        src_lo=src,
        dst_hi=np.zeros(n, np.int64),
        dst_lo=dst,
        version=np.full(n, 4, np.int8),
        sport=sport,
        dport=dport,
        seq=np.array([packet.seq for packet in packets], np.int64),
        ack=np.array([packet.ack for packet in packets], np.int64),
        flags=np.array([packet.flags for packet in packets], np.int32),
        start=np.cumsum(length) - length,
        length=length,
        wire_length=np.array(wire, np.int64),
        ts_ns=np.array(
            [
                packet.ts_ns if packet.ts_ns >= 0 else number * 1_000_000
                for packet, number in zip(packets, numbers.tolist(), strict=True)
            ],
            np.int64,
        ),
        packet_number=numbers,
        ident=np.array([packet.ident for packet in packets], np.int64),
        checksum=np.array([packet.checksum for packet in packets], np.int32),
        window=np.array([packet.window for packet in packets], np.int32),
        file=np.zeros(n, np.int32),
        key=(src + sport * 7) + (dst + dport * 7),
        counts={},
    )
