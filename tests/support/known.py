"""Captures of which the numbers are known: what clients logged, and a session with delays of the test's own."""

import json
import struct
from collections.abc import Sequence
from typing import Any

from running import ROOT
from torture import ACK, SYN, Segment, pcap

from mqpcap.schema.gzip_body import deflate

HELLO, AUTH, PUBLISH, POSITIVE, PING, PONG = 1, 2, 3, 5, 7, 8


def truth(name: str) -> dict[str, Any]:
    """What is known of a capture, as ``flymq/core``."""
    return json.loads((ROOT / "tests" / "truth" / f"{name}.truth.json").read_text())  # type: ignore[no-any-return]


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload


def pings(delays_ms: Sequence[int], topics: Sequence[str] = (), key: bytes = b"key") -> bytes:
    """A capture of a BlipMQ session with a PING for each delay, answered so much later: a packet is a millisecond.

    Then a PUBLISH of each topic. ``key`` is the secret of the login.
    """
    out = [Segment(seq=0, flags=SYN), Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True)]
    seq, ack = 1, 1

    def say(asked: bytes, answer: bytes, delay_ms: int) -> None:
        nonlocal seq, ack
        out.append(Segment(asked, seq, ack))
        seq += len(asked)
        out.extend(Segment(b"", seq, ack, ACK) for _ in range(delay_ms - 1))
        out.append(Segment(answer, ack, seq, from_server=True))
        ack += len(answer)

    say(frame(HELLO, 1, b"\0\1"), frame(POSITIVE, 1, bytes(8)), 1)
    say(frame(AUTH, 2, struct.pack(">H", len(key)) + key), frame(POSITIVE, 2, bytes(8)), 1)
    for number, delay_ms in enumerate(delays_ms, 3):
        say(frame(PING, number), frame(PONG, number), delay_ms)
    for number, topic in enumerate(topics, 3 + len(delays_ms)):
        name = topic.encode()
        body = frame(PUBLISH, number, b"\0" + struct.pack(">H", len(name)) + name + b"body")
        out.append(Segment(body, seq, ack))
        seq += len(body)
    return pcap(out, 5555)


def topic_of(number: int, length: int) -> str:
    """The topic of a message of ``inflating``."""
    return f"{number:06d}".ljust(length, "a")


def inflating(count: int, topic_len: int) -> bytes:
    """A capture of FlyMQ requests, a packet each, whose bodies inflate to topics of their own."""
    segments, seq = [Segment(b"", 1000, 0, SYN), Segment(b"", 5000, 1001, SYN | ACK, from_server=True)], 1001
    for number in range(count):
        topic = topic_of(number, topic_len).encode()
        body = deflate(struct.pack(">H", topic_len) + topic + bytes(4) + struct.pack(">I", 1) + b"v" + b"\xff" * 4)
        message = struct.pack(">BBBBI", 0xAF, 1, 1, 3, len(body)) + body
        segments.append(Segment(message, seq, 5001))
        seq += len(message)
    return pcap(segments, 9092)
