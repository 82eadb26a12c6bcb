"""FlyMQ messages typed from its document, and captures of them: a connection for each list of messages."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from combined_cases import SECOND_NS, START_NS, conversation, write

Call = tuple[bool, bytes]
"""A message, and whether the client sent it."""
PORT, FIRST_CLIENT_PORT = 9092, 40001


def short(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def long(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def message(op: int, payload: bytes) -> bytes:
    return struct.pack(">BBBBI", 0xAF, 1, op, 0, len(payload)) + payload


def produce(topic: str, value: bytes, offset: int) -> list[Call]:
    """A publish, and the place that it got."""
    stored = short(topic) + struct.pack(">iQqii", 0, offset, 0, -1, len(value))
    return [(True, message(1, short(topic) + long(b"") + long(value) + bytes(4))), (False, message(1, stored))]


def fetch(topic: str, offset: int, *values: bytes, next_offset: int | None = None) -> list[Call]:
    """A request of messages from an offset on, and the reply with them."""
    places = enumerate(values, offset)
    reached = offset + len(values) if next_offset is None else next_offset
    records = b"".join(struct.pack(">Q", place) + long(b"") + long(value) for place, value in places)
    request = short(topic) + struct.pack(">iQi", 0, offset, 10) + short("")
    return [(True, message(7, request)), (False, message(7, struct.pack(">IQ", len(values), reached) + records))]


def commit(topic: str, group: str, offset: int) -> list[Call]:
    """A group stores its offset."""
    return [(True, message(6, short(topic) + short(group) + struct.pack(">iq", 0, offset))), (False, message(6, b"\1"))]


def capture(path: Path, *connections: Sequence[Call]) -> Path:
    """A capture of connections of one client from several ports, one a second after the other."""
    packets = []
    for k, calls in enumerate(connections):
        made = conversation(calls, client=1000 * (k + 1), ts_ns=START_NS + k * SECOND_NS)
        packets += [replace(packet, client_port=FIRST_CLIENT_PORT + k) for packet in made]
    write(path, packets, PORT)
    return path
