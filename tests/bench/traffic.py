"""Captures to measure with, made as large as asked and written to disk a piece at a time.

``publishes`` is the shape most quoted: small BlipMQ messages packed into full segments of a few connections.
``sessions`` repeats a captured session of any protocol between ever new addresses. ``large`` sends messages of
many megabytes, ``short`` connections of one message each.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

START_US = 1_795_238_649 * 1_000_000
SEGMENT_BYTES = 1448
PIECE_SESSIONS = 512
HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
SYN, FIN_ACK, ACK, PUSH_ACK, SYN_ACK = 2, 17, 16, 24, 18


class _Capture:
    """A pcap file being written: packets of connections to one server."""

    def __init__(self, path: Path, step_us: int = 5) -> None:
        self.file = path.open("wb", buffering=1 << 20)
        self.file.write(HEADER)
        self.now_us, self.step_us = START_US, step_us
        self.next: dict[int, list[int]] = {}

    def packet(self, flow: int, from_client: bool, body: bytes, flags: int) -> None:
        seq = self.next.setdefault(flow, [1000, 5000])
        one, two = struct.pack(">I", (10 << 24) + (flow >> 15)), b"\x0a\xff\0\1"
        ends = one + two if from_client else two + one
        ports = (20_000 + (flow & 0x7FFF), 5555)
        me = 0 if from_client else 1
        tcp = struct.pack(">HHIIBBHHH", ports[me], ports[1 - me], seq[me], seq[1 - me], 0x50, flags, 65_535, 0, 0)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(body), 0, 0, 64, 6, 0) + ends
        frame = b"\0" * 12 + b"\x08\0" + ip + tcp + body
        self.file.write(struct.pack("<IIII", self.now_us // 1_000_000, self.now_us % 1_000_000, len(frame), len(frame)))
        self.file.write(frame)
        self.now_us += self.step_us
        seq[me] = (seq[me] + len(body) + (1 if flags & 3 else 0)) & 0xFFFFFFFF

    def open(self, flow: int) -> None:
        self.packet(flow, True, b"", SYN)
        self.packet(flow, False, b"", SYN_ACK)
        self.packet(flow, True, _frame(1, 1, b"\0\1") + _frame(2, 2, b"\0\7dev-key"), PUSH_ACK)
        self.packet(flow, False, _frame(5, 1, bytes(8)) + _frame(5, 2, bytes(8)), PUSH_ACK)

    def close(self, flow: int) -> None:
        self.packet(flow, True, b"", FIN_ACK)
        self.packet(flow, False, b"", FIN_ACK)


def _frame(kind: int, number: int, payload: bytes) -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload


def _publish(number: int, body: bytes, qos: int = 0) -> bytes:
    topic = b"orders.%d" % (number % 40)
    return _frame(3, number, bytes([qos]) + struct.pack(">H", len(topic)) + topic + body)


def publishes(path: Path, count: int, flow_count: int = 8) -> int:
    """BlipMQ: that many publishes of 60 to 150 bytes, ten to a segment."""
    capture, body = _Capture(path), bytes(range(48, 112)) * 4
    for flow in range(flow_count):
        capture.open(flow)
    waiting = [b""] * flow_count
    for k in range(count):
        flow = k % flow_count
        waiting[flow] += _publish(k + 3, body[k % 100 : k % 100 + 60 + k % 90], k & 1)
        if len(waiting[flow]) > SEGMENT_BYTES:
            capture.packet(flow, True, waiting[flow][:SEGMENT_BYTES], PUSH_ACK)
            waiting[flow] = waiting[flow][SEGMENT_BYTES:]
            if k % 3 == 0:
                capture.packet(flow, False, b"", ACK)
    for flow, rest in enumerate(waiting):
        capture.packet(flow, True, rest, PUSH_ACK)
        capture.close(flow)
    capture.file.close()
    return count


def large(path: Path, count: int, body_bytes: int) -> int:
    """BlipMQ: that many publishes of one size, on one connection (frames end at 16 MiB, frame.rs)."""
    capture, body = _Capture(path), np.random.default_rng(1).bytes(body_bytes)
    capture.open(0)
    for k in range(count):
        data = _publish(k + 3, body)
        for at in range(0, len(data), SEGMENT_BYTES):
            capture.packet(0, True, data[at : at + SEGMENT_BYTES], ACK)
    capture.close(0)
    capture.file.close()
    return count


def short(path: Path, flow_count: int) -> int:
    """BlipMQ: that many connections of one publish each."""
    capture = _Capture(path)
    for flow in range(flow_count):
        capture.open(flow)
        capture.packet(flow, True, _publish(3, b"once"), PUSH_ACK)
        capture.close(flow)
        capture.next.pop(flow)
    capture.file.close()
    return flow_count


def sessions(path: Path, template: Path, size_bytes: int) -> int:
    """A captured session (pcap, Ethernet, IPv4) again and again; returns how often."""
    session, places, times_us = _template(template)
    last = int(times_us.max()) + 1000
    repeat_count = max(size_bytes // len(session), 1)
    if repeat_count >= 1 << 16:
        raise ValueError(f"{template} is so small that {size_bytes} bytes need more than 65,535 sessions")
    with path.open("wb") as file:
        file.write(HEADER)
        for first in range(0, repeat_count, PIECE_SESSIONS):
            number = np.arange(first, min(first + PIECE_SESSIONS, repeat_count), dtype=np.int64)
            piece = np.repeat(session[None, :], len(number), axis=0)
            for at in places:
                # Octets two and three of both addresses.
                for octet in (at + 16 + 14 + 12, at + 16 + 14 + 16):
                    piece[:, octet + 1], piece[:, octet + 2] = number >> 8, number & 0xFF
            stamps = START_US + times_us[None, :] + number[:, None] * last
            seconds, rest = (stamps // 1_000_000).astype("<u4"), (stamps % 1_000_000).astype("<u4")
            for k, at in enumerate(places):
                piece[:, at : at + 4] = np.ascontiguousarray(seconds[:, k]).view(np.uint8).reshape(-1, 4)
                piece[:, at + 4 : at + 8] = np.ascontiguousarray(rest[:, k]).view(np.uint8).reshape(-1, 4)
            file.write(piece.tobytes())
    return repeat_count


def _template(path: Path) -> "tuple[np.ndarray, list[int], np.ndarray]":
    """The records of a capture, where each begins, and its time from the first one on."""
    data = path.read_bytes()
    if data[:4] != HEADER[:4] or struct.unpack_from("<I", data, 20)[0] & 0xFFFF != 1:
        raise ValueError(f"{path} is no little-endian pcap of Ethernet with microseconds")
    places, times = [], []
    for at, seconds, microseconds in _records(data):
        places.append(at - 24)
        times.append(seconds * 1_000_000 + microseconds)
    return np.frombuffer(data, np.uint8)[24:].copy(), places, np.array(times, np.int64) - min(times)


def _records(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = 24
    while at + 16 <= len(data):
        seconds, microseconds, length, _ = struct.unpack_from("<IIII", data, at)
        if data[at + 16 + 12 : at + 16 + 15] != b"\x08\0\x45":
            raise ValueError("a packet is no plain IPv4")
        yield at, seconds, microseconds
        at += 16 + length
