"""The torture table: the same segmentations and faults over messages of the toy protocol and of ours.

``python tests/support/torture.py`` prints the score. What is recoverable is arithmetic over the message lengths alone:
a message is, if none of its bytes is missing; the search after a hole or at a late start finds the first of them
because another follows or the stream ends there.
"""

import hashlib
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from dissection import Dissection, dissect

from mqpcap import protocols
from mqpcap.capture import Capture, captures
from mqpcap.pipeline import Options
from mqpcap.query.filter_columns import column

CLIENT, SERVER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
CLIENT_PORT = 40000
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
Key = TypeVar("Key")
TOY = Path(__file__).parent / "protocols_toy"


@contextmanager
def toy_layer() -> Iterator[None]:
    """The toy module in the folder of the layers, for as long as it lasts."""
    column("body")  # names of filters are made once in a process: not with those of the toy
    protocols.__path__.append(str(TOY))
    try:
        yield
    finally:
        protocols.__path__.remove(str(TOY))


# -- captures by hand --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """One TCP segment; ``wire_bytes`` is set when the snap length cut it."""

    body: bytes = b""
    seq: int = 0
    ack: int = 0
    flags: int = PSH | ACK
    from_server: bool = False
    wire_bytes: int = -1
    client_port: int = CLIENT_PORT


def packet(segment: Segment, port: int) -> tuple[bytes, int]:
    """An Ethernet frame and its length on the wire."""
    ends = [(CLIENT, segment.client_port), (SERVER, port)]
    if segment.from_server:
        ends.reverse()
    (src, sport), (dst, dport) = ends
    cut = max(segment.wire_bytes - len(segment.body), 0)
    tcp = struct.pack(
        ">HHIIBBHHH", sport, dport, segment.seq % 2**32, segment.ack % 2**32, 0x50, segment.flags, 65535, 0, 0
    )
    total = 20 + len(tcp) + len(segment.body) + cut
    ip = struct.pack(">BBHHHBBH", 0x45, 0, total, 0, 0x4000, 64, 6, 0) + src + dst
    frame = bytes(12) + b"\x08\0" + ip + tcp + segment.body
    return frame, len(frame) + cut


def pcap(segments: Sequence[Segment], port: int, first: int = 0) -> bytes:
    """A classic capture, packets one millisecond apart; ``first`` packets came before."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)]
    for i, segment in enumerate(segments, first):
        frame, wire = packet(segment, port)
        out.append(struct.pack("<IIII", 1_700_000_000 + i // 1000, i % 1000 * 1000, len(frame), wire) + frame)
    return b"".join(out)


@dataclass(frozen=True)
class Result:
    """A dissected capture as plain rows; messages have their ``fields``."""

    messages: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    problems: list[dict[str, Any]]
    counts: dict[str, int]

    def whole(self) -> list[tuple[int, int]]:
        """(offset, length) of the messages without a flaw, in order of the stream."""
        rows = [m for m in self.messages if m["flaw"] is None]
        return sorted((m["stream_offset"], m["frame_len"]) for m in rows)


def read(path: Path | str, options: Options | None = None) -> Result:
    """The rows of the one capture at a path, messages in order of time."""
    (capture,) = captures([str(path)]).captures
    return rows_of(capture, options)


def rows_of(capture: Capture, options: Options | None = None) -> Result:
    """The rows of a capture."""
    return result_of(dissect(capture, options))


def result_of(found: Dissection) -> Result:
    """The rows of a dissection."""
    messages = [
        m | {"fields": f}
        for chunk in found.chunks
        for m, f in zip(chunk.messages.to_pylist(), chunk.fields.to_pylist(), strict=True)
    ]
    messages.sort(key=lambda m: (m["ts_ns"], m["first_packet"], m["stream_offset"]))
    return Result(messages, found.connections.to_pylist(), found.problems.to_pylist(), found.counts)


def read_bytes(data: bytes, options: Options | None = None) -> Result:
    """The same of a capture in memory."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcap"
        path.write_bytes(data)
        return read(path, options)


def read_together(parts: Mapping[Key, bytes], options: Options | None = None) -> dict[Key, Result]:
    """The rows of captures of `pcap`, read as one capture in which each has hosts of its own; counts are of all.

    A capture of a few packets takes thirty times as long to set up as to read.
    """
    records: list[bytes] = []
    for number, data in enumerate(parts.values(), 1):
        at, own = 24, number.to_bytes(2, "big")
        while at < len(data):
            record = data[at : at + 16 + int.from_bytes(data[at + 8 : at + 12], "little")]
            time = struct.pack("<II", 1_700_000_000 + len(records) // 1000, len(records) % 1000 * 1000)
            records.append(time + record[8:43] + own + record[45:47] + own + record[49:])  # 10.0.0.1, 10.0.0.2
            at += len(record)
    whole = read_bytes(next(iter(parts.values()))[:24] + b"".join(records), options)
    key_by_host = {f"10.{number >> 8}.{number & 255}": key for number, key in enumerate(parts, 1)}
    keys = {c["connection_id"]: key_by_host[c["server_ip"].rpartition(".")[0]] for c in whole.connections}
    results = {key: Result([], [], [], whole.counts) for key in parts}
    for name in ("messages", "connections", "problems"):
        for row in getattr(whole, name):
            getattr(results[keys[row["connection_id"]]], name).append(row)
    return results


def broken_laws(result: Result) -> list[str]:
    """What contradicts the contract's laws; empty when nothing is lost."""
    broken: list[str] = []
    sums: dict[tuple[int, str], list[int]] = {}
    for m in result.messages:
        side = sums.setdefault((m["connection_id"], m["direction"]), [0, 0, 0])
        side[0] += m["frame_len"]
        side[1] += 1
    for p in result.problems:
        side = sums.setdefault((p["connection_id"], p["direction"]), [0, 0, 0])
        side[0] += p["length"] * (p["kind"] == "undecoded")
        side[2] += p["length"] * (p["kind"] == "gap")
    for c in result.connections:
        for d in ("c2s", "s2c"):
            expected = [c[f"bytes_{d}"], c[f"messages_{d}"], c[f"missing_bytes_{d}"]]
            found = sums.pop((c["connection_id"], d), [0, 0, 0])
            found[0] += c[f"tls_bytes_{d}"]
            if found != expected:
                broken.append(f"{c['connection_id']} {d}: bytes, messages, missing {expected}, in rows {found}")
    broken += [f"rows of no connection: {key}" for key in sums]
    return broken + _overlaps(result) + _oddities(result)


def _overlaps(result: Result) -> list[str]:
    """Messages and undecoded bytes in the same place; a message with a hole has late bytes inside."""
    spans: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for m in result.messages:
        spans.setdefault((m["connection_id"], m["direction"]), []).append((m["stream_offset"], m["frame_len"]))
    for p in result.problems:
        if p["kind"] == "undecoded" and p["reason"] != "late":
            spans.setdefault((p["connection_id"], p["direction"]), []).append((p["stream_offset"], p["length"]))
    broken = []
    for key, side in spans.items():
        side.sort()
        for (one, length), (two, _) in pairwise(side):
            # A message with a hole counts the bytes captured: it may end later than that, never earlier.
            if one + length > two:
                broken.append(f"{key}: {one}+{length} runs into {two}")
    return broken


def _oddities(result: Result) -> list[str]:
    broken = []
    keys = [(m["connection_id"], m["direction"], m["stream_offset"]) for m in result.messages]
    if len(keys) != len(set(keys)):
        broken.append("a key is there twice")
    ids = [c["connection_id"] for c in result.connections]
    if len(ids) != len(set(ids)):
        broken.append("a connection_id is there twice")
    known = protocols.protocols()
    for m in result.messages:
        if m["dialect"] not in known[m["protocol"]].dialects:
            broken.append(f"dialect {m['dialect']} of {m['protocol']}")
        if m["frame_len"] <= 0 or m["stream_offset"] < 0:
            broken.append(f"a message of {m['frame_len']} bytes at {m['stream_offset']}")
        shared = ("capture", "connection_id", "direction", "stream_offset", "ts_ns", "op", "flaw")
        if any(m[name] != m["fields"][name] for name in shared):
            broken.append("the two tables differ in a key")
    return broken


# -- messages ----------------------------------------------------------------------------------------------


def toy_message(i: int) -> bytes:
    """24 bytes, as in the table's own measurements."""
    return struct.pack(">I", 20) + b"message number %05d" % i


def blipmq_message(i: int) -> bytes:
    """HELLO of version 1, then PUBLISH: length, type, id; qos, topic, body."""
    kind, payload = (1, b"\0\1") if i == 0 else (3, b"\0\0\6orders" + b"body %05d" % i)
    return struct.pack(">IBQ", 9 + len(payload), kind, i + 1) + payload


def flymq_message(i: int) -> bytes:
    """PRODUCE: AF 01, opcode, flags, length; topic, no key, value, partition."""
    value = b"value %05d" % i
    payload = b"\0\6orders" + bytes(4) + struct.pack(">I", len(value)) + value + b"\xff\xff\xff\xff"
    return struct.pack(">BBBBI", 0xAF, 1, 1, 1, len(payload)) + payload


def fq_message(i: int) -> bytes:
    """The word and key of a data connection, then short messages: exchange, route, id, body."""
    if i == 0:
        return b"\xcc\x50\xfa\xce\0\x04key!"
    return b"\2ex\3a.b" + hashlib.md5(b"%d" % i).digest() + struct.pack(">I", 10) + b"body %05d" % i


def kokaq_message(i: int) -> bytes:
    """A request of the document with a payload component: namespace, queue, body."""
    head = b"\x04\x20\x01\x06" + struct.pack(">I", i + 1) + b"\x07\x00" + bytes([i % 256, 2])
    return head + b"\x02\x04\x20" + bytes([i % 256, 2, 5]) + struct.pack(">H", 10) + b"nsqueue" + b"body %05d" % i


def msgq_message(i: int) -> bytes:
    """A header of typed items and a body, each with its length."""
    header = b"Skan\x04type\x28\x04send\x05group\x28\x03abc\x03seq\x28\x05%05d" % i
    body = b'{"n": %05d}' % (10000 + i)
    return struct.pack(">IH", 2 + len(header) + len(body), len(header)) + header + body


def mqtt_message(i: int) -> bytes:
    """A CONNECT of 3.1.1, then PUBLISHes: remaining length in two bytes, topic, body."""
    if not i:
        return b"\x10\x0f\0\4MQTT\4\2\0\x3c\0\3abc"
    body = b"%05d" % i * 30
    return struct.pack(">BBBH", 0x30, 0x80 | (5 + len(body)) % 128, (5 + len(body)) // 128, 3) + b"t/o" + body


MAKERS = {
    "toy": (5000, toy_message),
    "blipmq": (5555, blipmq_message),
    "flymq": (9092, flymq_message),
    "fq": (8765, fq_message),
    "kokaq": (9944, kokaq_message),
    "msgq": (9912, msgq_message),
    "mqtt": (1883, mqtt_message),
}


# -- cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Segments, and (offset, length) of what can be recovered, in order."""

    name: str
    segments: list[Segment]
    recoverable: list[tuple[int, int]]


def cut(stream: bytes, size: int, seq: int) -> list[Segment]:
    """The stream in segments of one size."""
    return [Segment(stream[i : i + size], seq + i) for i in range(0, len(stream), size)]


def places(messages: Sequence[bytes], start: int = 0) -> list[tuple[int, int]]:
    """(offset, length) of each message in a stream that begins ``start`` bytes into the first."""
    out, at = [], -start
    for message in messages:
        out.append((at, len(message)))
        at += len(message)
    return out


def without(where: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """The messages with no byte from low to high."""
    return [(at, n) for at, n in where if at + n <= low or at >= high]


@cache
def cases(protocol: str, many: int = 3000) -> list[Case]:
    """Every case of the table for one protocol."""
    _, make = MAKERS[protocol]
    five = [make(i) for i in range(5)]
    stream, where, seq = b"".join(five), places(five), 1000
    one_each = [Segment(m, seq + at) for m, (at, _) in zip(five, where, strict=True)]
    small = cut(stream, 17, seq)
    # The segment that holds the end of message 1: bytes of 1 and 2 are missing, the header of 1 is there.
    end = where[2][0]
    lost = (end - 1) // 17
    lone = Segment(stream, seq)
    wrap = 2**32 - where[2][0] - 5
    long = [make(i) for i in range(many)]
    four = places(five[:4])
    two = four[2][0]
    part = [make(i) for i in range(3)]
    syn = Segment(b"", seq - 1, 0, SYN)
    again = Segment(b"", 90_000 - 1, 0, SYN)
    found = [
        Case("clean, one per segment", one_each, where),
        Case("exact retransmission of one", [*one_each[:3], one_each[2], *one_each[3:]], where),
        Case("two whole messages swapped", [*one_each[:2], one_each[3], one_each[2], one_each[4]], where),
        Case("17-byte segments", small, where),
        Case("17-byte segments, two swapped", [*small[:2], small[3], small[2], *small[4:]], where),
        Case("first two segments swapped, no SYN", [small[1], small[0], *small[2:]], where),
        Case("one segment late duplicate", [*small, small[2]], where),
        Case(
            "one segment lost", small[:lost] + small[lost + 1 :],
            without(where, lost * 17, min(lost * 17 + 17, len(stream))),
        ),
        Case("five in one segment", [lone], where),
        Case("same, segment retransmitted", [lone, lone], where),
        Case("msg 1+2 resent in one overlapping segment", [*one_each[:2], Segment(five[1] + five[2], seq + where[1][0]),
             *one_each[3:]], where),
        Case("sequence wrap, 17-byte segments", cut(stream, 17, wrap), where),
        Case(
            "port reuse with a stale partial buffer",
            [syn, Segment(part[0][:9], seq), again, *cut(b"".join(part), 17, 90_000)], places(part),
        ),
        Case("capture starts inside message 0", cut(stream[7:], 17, seq + 7), places(five, 7)[1:]),
        *(
            Case(f"{many} messages, {size}-byte segments", cut(b"".join(long), size, seq), places(long))
            for size in (1400, 536, 100, 240)
        ),
        *(
            Case(
                f"4 messages, first segment = 2 messages + {more} bytes",
                [Segment(stream[: two + more], seq), Segment(stream[two + more : where[4][0]], seq + two + more)], four,
            )
            for more in (6, 2)
        ),
    ]  # fmt: skip
    return found


def score(protocol: str, case: Case) -> tuple[int, int, int]:
    """(recoverable, of these found, invented or twice) of one case."""
    port, _ = MAKERS[protocol]
    found = read_bytes(pcap(case.segments, port)).whole()
    right = sum(place in found for place in case.recoverable)
    return len(case.recoverable), right, len(found) - right


def main() -> None:
    """Print the table."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    with toy_layer():
        table = {protocol: cases(protocol, many) for protocol in MAKERS}
        print(f"{'case':46}" + "".join(f"{protocol:>12}" for protocol in MAKERS))
        for row in zip(*table.values(), strict=True):
            scores = [score(protocol, case) for protocol, case in zip(MAKERS, row, strict=True)]
            cells = (f"{right}/{n}" + (f" +{false}" if false else "") for n, right, false in scores)
            print(f"{row[0].name:46}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
