"""Captures that someone made to keep a reader busy: ``python tests/bench/hostile.py [--only SHAPE ...] [--scale X]``.

Not a test: run it by hand. Each shape is written at two sizes, the second twice the first, and each of its commands
(COMMANDS, else an export) runs as a process of its own. Compared are CPU seconds (user + system) above those of an
export of nothing: twice the input may take MOST_RATIO times the time, and no process may hold more than MOST_MB, else
the run fails. A process may take LIMIT_MB. The docstring of each shape says what it tries.
"""

import argparse
import gzip
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MOST_RATIO = 2.2
MOST_MB = 600
LIMIT_MB = 6000
START_NS = 1_795_238_649 * 1_000_000_000
STEP_NS = 10_000
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
MASK = (1 << 64) - 1
DAY_NS = 86_400 * 1_000_000_000
HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 101)
Address = tuple[int, int]
"""The halves of an IPv6 address, or 0 and an IPv4 address."""
End = tuple[Address, int]
CLIENT: End = (0, 0x0A000001), 40_000
SERVER: End = (0, 0x0A000002), 5555
FQ: End = (0, 0x0A000002), 8765
KOKAQ: End = (0, 0x0A000002), 9090
MSGQ: End = (0, 0x0A000002), 9912


class Capture:
    """A capture of raw IP in memory; time goes on by itself unless told."""

    def __init__(self) -> None:
        self.parts = [HEADER]
        self.files = [self.parts]
        self.are_rotated = True
        """Whether the files are one recording, by their names."""
        self.now_ns = START_NS

    def next_file(self) -> None:
        """What comes now is in a further file."""
        self.parts = [HEADER]
        self.files.append(self.parts)

    def record(self, packet: bytes, at_ns: int | None = None, wire: int = 0) -> None:
        self.now_ns += STEP_NS
        seconds, rest = divmod(self.now_ns if at_ns is None else at_ns, 1_000_000_000)
        self.parts.append(struct.pack("<IIII", seconds, rest, len(packet), max(len(packet), wire)))
        self.parts.append(packet)

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def tcp(
        self, src: End, dst: End, seq: int, ack: int, flags: int, body: bytes = b"", at_ns: int | None = None,
        uncaptured: int = 0,
    ) -> None:  # fmt: skip
        """A segment; ``uncaptured`` more bytes were sent than captured."""
        head = struct.pack(
            ">HHIIBBHHH", src[1], dst[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, 0x50, flags, 65_535, 0, 0
        )  # fmt: skip
        size = 20 + len(body) + uncaptured
        if src[0][0]:
            ip = struct.pack(">IHBB4Q", 0x60000000, size, 6, 64, *src[0], *dst[0])
        else:
            ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + size, 0, 0, 64, 6, 0, src[0][1], dst[0][1])
        self.record(ip + head + body, at_ns, len(ip) + size)

    def opened(self, client: End, server: End) -> None:
        """A handshake; both sides begin at sequence number 1."""
        self.tcp(client, server, 0, 0, SYN)
        self.tcp(server, client, 0, 1, SYN | ACK)


def client(k: int) -> End:
    """The k-th client."""
    return (0, 0x0A010000 + k // 40_000), 20_000 + k % 40_000


# -- flows ---------------------------------------------------------------------------------------------------------


def _unshifted(value: int, by: int) -> int:
    """What became ``value`` by x ^= x >> by."""
    found = value
    for _ in range(64 // by):
        found = value ^ found >> by
    return found


def one_key(hi: int, port: int, hashed: int = 12345) -> Address:
    """The address whose hash with the port (``packets.endpoints``) is the one told: the lower half is solved for."""
    mixed = _unshifted(hashed, 32) * pow(0x94D049BB133111EB, -1, 1 << 64) - port & MASK
    mixed = _unshifted(mixed, 29) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK
    return hi, mixed - hi * 0x9E3779B97F4A7C15 & MASK


def same_key(capture: Capture, n: int) -> None:
    """SYNs of n connections whose share hash is the same."""
    for k in range(n):
        port = 1024 + k % 60_000
        hi = 0x20010DB8 << 32 | k
        capture.tcp((one_key(hi, port), port), ((0x20010DB800000000, 1), 5555), 0, 0, SYN)


def _reused(capture: Capture, times: "range | list[int]") -> None:
    for at in times:
        at_ns = START_NS + at * 1_000_000
        capture.tcp(CLIENT, SERVER, at * 7919, 0, SYN, at_ns=at_ns)
        capture.tcp(CLIENT, SERVER, at * 7919 + 1, 0, RST, at_ns=at_ns)


def reused_forward(capture: Capture, n: int) -> None:
    """One pair of addresses and ports for n connections."""
    _reused(capture, range(n))


def reused_backward(capture: Capture, n: int) -> None:
    """The same with time that runs backwards."""
    _reused(capture, range(n, 0, -1))


def reused_zigzag(capture: Capture, n: int) -> None:
    """The same with time that jumps."""
    times = list(range(n))
    random.Random(1).shuffle(times)
    _reused(capture, times)


def syn_again(capture: Capture, n: int) -> None:
    """A SYN n times, each with another sequence number."""
    for k in range(n):
        capture.tcp(CLIENT, SERVER, k * 7919, 0, SYN)


# -- holes ---------------------------------------------------------------------------------------------------------


def holes(capture: Capture, n: int) -> None:
    """Segments of one byte, every other of them missing."""
    capture.opened(CLIENT, SERVER)
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 1 + 2 * k, 1, ACK, b"x")


def acknowledged_holes(capture: Capture, n: int) -> None:
    """The same, each acknowledged."""
    capture.opened(CLIENT, SERVER)
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 1 + 2 * k, 1, ACK, b"x")
        capture.tcp(SERVER, CLIENT, 1, 2 + 2 * k, ACK)


def snapped(capture: Capture, n: int) -> None:
    """Segments of which the snap length cut the half, after a hole."""
    capture.opened(CLIENT, SERVER)
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 11 + 4 * k, 1, ACK, b"x", uncaptured=1)


def filled(capture: Capture, n: int, order: "Callable[[int], int]") -> None:
    """Holes given up, and half of each filled late."""
    capture.opened(CLIENT, SERVER)
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 5 + 4 * k, 1, ACK, b"x")
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 3 + 4 * order(k), 1, ACK, b"y")


def filled_forward(capture: Capture, n: int) -> None:
    """n / 2 holes, each split by a late byte."""
    filled(capture, n, lambda k: k)


def filled_backward(capture: Capture, n: int) -> None:
    """The same from the last to the first."""
    filled(capture, n, lambda k: n // 2 - 1 - k)


def below_start(capture: Capture, n: int) -> None:
    """Without a SYN each segment lies below all before."""
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 2_000_000_000 - 2 * k, 1, ACK, b"x")


def reverse(capture: Capture, n: int) -> None:
    """Segments that overlap, the last one first."""
    capture.opened(CLIENT, SERVER)
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 11 + 10 * (n - k), 1, ACK, b"0123456789abcdef")


def again(capture: Capture, n: int) -> None:
    """One-byte segments, and each old byte once more with another value."""
    capture.opened(CLIENT, SERVER)
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 1 + k, 1, ACK, b"x")
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 1 + n // 2 - 2 - k % 60_000, 1, ACK, b"y")


def conflicts(capture: Capture, n: int) -> None:
    """Segments of 64 bytes, sent again with every other byte changed."""
    capture.opened(CLIENT, SERVER)
    for k in range(n // 2):
        capture.tcp(CLIENT, SERVER, 1 + 64 * k, 1, ACK, b"ab" * 32)
        capture.tcp(CLIENT, SERVER, 1 + 64 * k, 1, ACK, b"aB" * 32)


# -- fragments -----------------------------------------------------------------------------------------------------


MERSENNE = (1 << 61) - 1
"""Python hashes numbers that differ by it alike."""
ALIKE = [k * MERSENNE for k in range(-4, 5)]
"""Numbers of 64 bits, signed, whose hash is that of 0."""


def fragments(capture: Capture, n: int) -> None:
    """Datagrams of fragments of eight bytes, from the last to the first."""
    for k in range(n):
        number, piece = k // 8000, 7999 - k % 8000
        head = struct.pack(
            ">BBHHHBBHII", 0x45, 0, 28, number, piece | (piece < 7999) << 13, 64, 6, 0, 0x0A000001, 0x0A000002
        )
        capture.record(head + b"12345678")


def lone_fragments(capture: Capture, n: int) -> None:
    """One fragment each of datagrams between addresses that Python hashes alike."""
    for k in range(n):
        halves = (ALIKE[k // 9**i % 9] for i in range(4))
        head = struct.pack(">IHBB4q", 0x60000000, 16, 44, 64, *halves)
        capture.record(head + struct.pack(">BBHI", 6, 0, 8 | 1, k // 9**4) + b"12345678")


def one_hash(k: int, hashed: int = 12345) -> Address | None:
    """An address whose key (version, halves) Python 3.8 to 3.13 hashes to the one told, if the k-th try has one."""
    p1, p2, p5 = 11400714785074694791, 14029467366897019727, 2870177450012600261

    def turned(acc: int, by: int) -> int:
        return (acc << by | acc >> 64 - by) & MASK

    acc = p5
    for lane in (6, k + 1):
        acc = turned(acc + lane * p2 & MASK, 31) * p1 & MASK
    wanted = turned(hashed * pow(p1, -1, 1 << 64) & MASK, 33)
    lane = (wanted - acc) * pow(p2, -1, 1 << 64) & MASK
    return (k + 1, lane) if lane < MERSENNE else None


def one_address_hash(capture: Capture, n: int) -> None:
    """SYNs from addresses that Python hashes alike."""
    made, k = 0, 0
    while made < n:
        address = one_hash(k)
        if address is not None:
            capture.tcp((address, 40_000), ((0x20010DB800000000, 1), 5555), 0, 0, SYN)
            made += 1
        k += 1


# -- protocols -----------------------------------------------------------------------------------------------------


def _fq_key(number: int) -> bytes:
    return b"\0\x7f" + b"%0127d" % number


def _fq_login(capture: Capture, k: int, key: bytes) -> None:
    end = client(k)
    capture.opened(end, FQ)
    name = b"\0\4user\0\7queue\0m\0\1p"
    capture.tcp(end, FQ, 1, 1, PUSH | ACK, b"\xcc\x50\xca\xfe\xaa\xaa\0\0" + name)
    capture.tcp(FQ, end, 1, 9 + len(name), PUSH | ACK, b"\xaa\0" + key)


def fq_key(capture: Capture, n: int) -> None:
    """Logins and data connections that all have one key."""
    for k in range(n):
        _fq_login(capture, 2 * k, _fq_key(7))
        end = client(2 * k + 1)
        capture.opened(end, FQ)
        capture.tcp(end, FQ, 1, 1, PUSH | ACK, b"\xcc\x50\xfa\xce" + _fq_key(7))


def _publish(number: int, body: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + 4 + len(body), 3, number) + b"\1\0\1t" + body


def _ack(number: int) -> bytes:
    return struct.pack(">IBQQ", 17, 5, number, 0)


def _blipmq(capture: Capture, end: End) -> None:
    capture.opened(end, SERVER)
    capture.tcp(end, SERVER, 1, 1, PUSH | ACK, struct.pack(">IBQH", 11, 1, 1, 1))
    capture.tcp(SERVER, end, 1, 16, PUSH | ACK, _ack(1))


def lost_answers(capture: Capture, n: int) -> None:
    """BlipMQ: publishes, every other of whose answers is missing."""
    _blipmq(capture, CLIENT)
    size = len(_publish(1))
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 16 + size * k, 1, PUSH | ACK, _publish(k + 2))
        if k % 2:
            capture.tcp(SERVER, CLIENT, 22 + 21 * k, 16 + size * (k + 1), PUSH | ACK, _ack(k + 2))


def _fly(op: int, body: bytes) -> bytes:
    return struct.pack(">BBBBI", 0xAF, 1, op, 0, len(body)) + body


def same_id(capture: Capture, n: int) -> None:
    """BlipMQ: publishes that all have one number, every fourth of whose answers is missing."""
    _blipmq(capture, CLIENT)
    size = len(_publish(1))
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 16 + size * k, 1, PUSH | ACK, _publish(7))
        if k % 4:
            capture.tcp(SERVER, CLIENT, 22 + 21 * k, 16 + size * (k + 1), PUSH | ACK, _ack(7))


def flymq_lost_answers(capture: Capture, n: int) -> None:
    """FlyMQ: produces, every other of whose answers is missing."""
    server = SERVER[0], 9092
    capture.opened(CLIENT, server)
    request = _fly(1, b"\0\1t" + struct.pack(">I", 0) + struct.pack(">I", 1) + b"v" + struct.pack(">i", -1))
    reply = _fly(1, struct.pack(">QI", 5, 0))
    for k in range(n):
        capture.tcp(CLIENT, server, 1 + len(request) * k, 1, PUSH | ACK, request)
        if k % 2:
            capture.tcp(server, CLIENT, 1 + len(reply) * k, 1 + len(request) * (k + 1), PUSH | ACK, reply)


def flymq_lost_both(capture: Capture, n: int) -> None:
    """FlyMQ: produces, of which every seventh is missing, and every eleventh answer."""
    server = SERVER[0], 9092
    capture.opened(CLIENT, server)
    request = _fly(1, b"\0\1t" + struct.pack(">I", 0) + struct.pack(">I", 1) + b"v" + struct.pack(">i", -1))
    reply = _fly(1, struct.pack(">QI", 5, 0))
    for k in range(n):
        if k % 7:
            capture.tcp(CLIENT, server, 1 + len(request) * k, 1 + len(reply) * max(k - 4, 0), PUSH | ACK, request)
        if k >= 4 and k % 11:
            capture.tcp(server, CLIENT, 1 + len(reply) * (k - 4), 1 + len(request) * (k + 1), PUSH | ACK, reply)


def damaged_connections(capture: Capture, n: int) -> None:
    """FlyMQ: n connections, each with a hole in its answers."""
    server = SERVER[0], 9092
    request = _fly(1, b"\0\1t" + struct.pack(">I", 0) + struct.pack(">I", 1) + b"v" + struct.pack(">i", -1))
    reply = _fly(1, struct.pack(">QI", 5, 0))
    for k in range(n):
        end = client(k)
        capture.opened(end, server)
        capture.tcp(end, server, 1, 1, PUSH | ACK, request * 2)
        capture.tcp(server, end, 1 + len(reply), 1 + 2 * len(request), PUSH | ACK, reply)


def kokaq_damaged(capture: Capture, n: int) -> None:
    """Kokaq's captured session over and over, each time without one of its packets."""
    _sessions(capture, "kokaq/go1_session.pcap", n, lose=True)


def msgq_damaged(capture: Capture, n: int) -> None:
    """The same of msgq."""
    _sessions(capture, "msgq/split_session.pcap", n, lose=True)


def fq_damaged(capture: Capture, n: int) -> None:
    """The same of fq."""
    _sessions(capture, "fq/session.pcap", n, lose=True)


def blipmq_damaged(capture: Capture, n: int) -> None:
    """The same of BlipMQ."""
    _sessions(capture, "blipmq/qos1.pcap", n, lose=True)


def _sessions(capture: Capture, name: str, n: int, lose: bool = False) -> None:
    """A capture's packets between ever new addresses; without one of them with payload each time."""
    from mqpcap.capture import captures
    from mqpcap.tcp.headers import Dissector

    path = Path(__file__).resolve().parents[2] / "pcaps" / name
    (found,) = captures([str(path)]).captures
    dissector = Dissector()
    rows = []
    for window in found.windows():
        s = dissector.segments(window)
        for i in range(len(s.seq)):
            body = s.buffer[int(s.start[i]) : int(s.start[i] + s.length[i])].tobytes()
            ends = (int(s.src_lo[i]), int(s.sport[i])), (int(s.dst_lo[i]), int(s.dport[i]))
            rows.append((*ends, int(s.seq[i]), int(s.ack[i]), int(s.flags[i]), body))
    servers = {dst for src, dst, _, _, flags, _ in rows if flags & (SYN | ACK) == SYN}
    full = [i for i, row in enumerate(rows) if row[5]]
    written = turn = 0
    while written < n:
        lost = full[turn % len(full)] if lose else -1
        for i, (src, dst, seq, ack, flags, body) in enumerate(rows):
            if i != lost:
                one, two = (
                    ((0, 0x0AF00001), end[1]) if end in servers else ((0, 0x0B000000 + turn), end[1])
                    for end in (src, dst)
                )
                capture.tcp(one, two, seq, ack, flags, body)
                written += 1
        turn += 1


def kokaq_one_way(capture: Capture, n: int) -> None:
    """Kokaq: requests that all carry one number, a third of them one-way, a sixth of the answers missing."""
    capture.opened(CLIENT, KOKAQ)
    rng = random.Random(3)
    c = s = 1
    for _ in range(n):
        way = rng.random() < 0.3
        request = b"\x04\x20\x01\x06" + bytes(4) + b"\x07\x00\x01" + (b"\x03" if way else b"\x01")
        request += b"\x02\x04\x20\x01" + struct.pack(">I", 0)
        capture.tcp(CLIENT, KOKAQ, c, s, PUSH | ACK, request)
        c += len(request)
        reply = b"\x04\x20\x01\x06" + bytes(4) + b"\x07\x00\x02\x01" + b"\x02\x04\x20\x01" + struct.pack(">I", 0)
        if rng.random() > 0.17:
            capture.tcp(KOKAQ, CLIENT, s, c, PUSH | ACK, reply)
        s += len(reply)


def garbage(capture: Capture, n: int) -> None:
    """Each protocol's port: heads of messages that do not hold what they claim, after a hole."""
    heads = {
        5555: struct.pack(">IBQ", 9 + 100_000, 3, 1) + b"\0\0\1a",
        9092: struct.pack(">BBBBI", 0xAF, 1, 1, 1, 100_000) + b"\0\1a",
        8765: b"\2ex\3a.b" + bytes(16) + struct.pack(">I", 100_000),
        9090: b"\x04\x20\x01\x06" + bytes(4) + b"\7\0\1\2" + b"\2\x04\x20\1\xff\xff\xff\xff",
        9912: struct.pack(">IH", 100_000, 900) + b"Skan\x04type\x28\x04send",
    }
    for port, head in heads.items():
        body = head * (1400 // len(head))
        for k in range(n // 5):
            capture.tcp(CLIENT, (SERVER[0], port), 1 + len(body) * k, 1, ACK, body)


def deep(capture: Capture, n: int) -> None:
    """msgq: lists in lists, deeper than is read."""
    inner = b""
    for _ in range(300):
        inner = b"\x03" + struct.pack(">I", len(inner)) + inner
    header = b"Skan\x01x" + inner
    message = struct.pack(">IH", 2 + len(header), len(header) % 65536) + header
    flat = struct.pack(">I", len(header)) + header
    for which, body in enumerate((message, flat)):
        end = client(which)
        capture.opened(end, MSGQ)
        for k in range(n // 4):
            capture.tcp(end, MSGQ, 1 + len(body) * k, 1, ACK, body[:1400])
            capture.tcp(end, MSGQ, 1 + len(body) * k + 1400, 1, ACK, body[1400:])


def strangers(capture: Capture, n: int) -> None:
    """Connections to nobody's port, each a byte at a time."""
    for k in range(n // 100):
        end, server = client(k), (SERVER[0], 7777)
        capture.opened(end, server)
        for i in range(98):
            capture.tcp(end, server, 1 + i, 1, ACK, b"\x04\x20\x01\x06"[i % 4 : i % 4 + 1])


def drips(capture: Capture, n: int) -> None:
    """A BlipMQ message of n bytes, a byte at a time."""
    _blipmq(capture, CLIENT)
    body = _publish(2, bytes(n))
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 16 + k, 22, ACK, body[k : k + 1])


def framing_errors(capture: Capture, n: int) -> None:
    """FlyMQ answers: a good frame, a bad one, and so on: a problem each."""
    server = SERVER[0], 9092
    capture.opened(CLIENT, server)
    request = _fly(1, b"\0\1t" + struct.pack(">I", 0) + struct.pack(">I", 1) + b"v" + struct.pack(">i", -1))
    capture.tcp(CLIENT, server, 1, 1, PUSH | ACK, request)
    good, bad = _fly(1, struct.pack(">QI", 5, 0)), b"\xaf\x09bad framing"
    for k in range(n):
        capture.tcp(server, CLIENT, 1 + k * len(good * 2 + bad), 1 + len(request), PUSH | ACK, good * 2 + bad)


def interfaces(capture: Capture, n: int) -> None:
    """A pcapng file whose sections have 1000 interfaces each, and a packet on each."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", 12 + len(body))
        return struct.pack("<I", kind) + size + body + size

    packet = struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, 0, 64, 6, 0, 1, 2)
    packet += struct.pack(">HHIIBBHHH", 1, 5555, 0, 0, 0x50, SYN, 65_535, 0, 0)
    capture.parts.clear()
    for _ in range(n // 1000):
        capture.parts.append(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        for k in range(1000):
            capture.parts.append(block(1, struct.pack("<HHI", 101, 0, 0)))
            head = struct.pack("<IIIII", k, 0, 1_000_000, len(packet), len(packet))
            capture.parts.append(block(6, head + packet))


def fetched(capture: Capture, n: int) -> None:
    """FlyMQ: one reply with n messages. A field must not cost what all fields behind it take."""
    server = SERVER[0], 9092
    capture.opened(CLIENT, server)
    request = _fly(7, b"\0\1t" + struct.pack(">IQI", 0, 0, n))
    capture.tcp(CLIENT, server, 1, 1, PUSH | ACK, request)
    records = b"".join(struct.pack(">QII", k, 0, 1) + b"v" for k in range(n))
    reply = _fly(7, struct.pack(">IQ", n, n) + records)
    for start in range(0, len(reply), 60_000):
        capture.tcp(server, CLIENT, 1 + start, 1 + len(request), PUSH | ACK, reply[start : start + 60_000])


def inflating(capture: Capture, n: int) -> None:
    """FlyMQ: n messages of 64 kB that take 200 bytes on the wire."""
    server = SERVER[0], 9092
    body = gzip.compress(b"\0\1t" + struct.pack(">II", 0, 1 << 16) + bytes(1 << 16) + struct.pack(">i", -1), mtime=0)
    message = struct.pack(">BBBBI", 0xAF, 1, 1, 2, len(body)) + body
    capture.opened(CLIENT, server)
    for k in range(n):
        capture.tcp(CLIENT, server, 1 + k * len(message), 1, PUSH | ACK, message)


def inflating_topics(capture: Capture, n: int) -> None:
    """FlyMQ: n different topics of 64 kB that take about 200 bytes on the wire; no request is answered."""
    server, sent = (SERVER[0], 9092), 1
    capture.opened(CLIENT, server)
    for k in range(n):
        topic = b"%08d" % k + b"a" * 65_000
        body = struct.pack(">H", len(topic)) + topic + struct.pack(">II", 0, 1) + b"v" + struct.pack(">i", -1)
        body = gzip.compress(body, mtime=0)
        message = struct.pack(">BBBBI", 0xAF, 1, 1, 2, len(body)) + body
        capture.tcp(CLIENT, server, sent, 1, PUSH | ACK, message)
        sent += len(message)


def days(capture: Capture, n: int) -> None:
    """BlipMQ: a publish a day, so that each is in a file of its own."""
    _blipmq(capture, CLIENT)
    size = len(_publish(1))
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 16 + size * k, 22, PUSH | ACK, _publish(k + 2), at_ns=START_NS + k * DAY_NS)


def rotated_files(capture: Capture, n: int) -> None:
    """BlipMQ: a recording in n files; each request is answered in the next file."""
    _blipmq(capture, CLIENT)
    size = len(_publish(1))
    for k in range(n):
        capture.tcp(CLIENT, SERVER, 16 + size * k, 22 + 21 * k, PUSH | ACK, _publish(k + 2))
        capture.next_file()
        capture.tcp(SERVER, CLIENT, 22 + 21 * k, 16 + size * (k + 1), PUSH | ACK, _ack(k + 2))


def separate_files(capture: Capture, n: int) -> None:
    """BlipMQ: n captures of one connection each."""
    capture.are_rotated = False
    for k in range(n):
        _blipmq(capture, client(k))
        capture.next_file()


def kokaq_heads(capture: Capture, n: int) -> None:
    """Kokaq, begun late: heads that a search finds everywhere, and nothing after them."""
    body = b"\x04\x20\x01\xff" * 350
    for k in range(n // 350):
        capture.tcp(CLIENT, KOKAQ, 1 + len(body) * k, 1, ACK, body)


def damaged_servers(capture: Capture, n: int) -> None:
    """FlyMQ: n servers with a hole each in what they answer, so that deliveries of each wait."""
    request = _fly(1, b"\0\1t" + struct.pack(">I", 0) + struct.pack(">I", 1) + b"v" + struct.pack(">i", -1))
    reply = _fly(1, struct.pack(">QI", 5, 0))
    for k in range(n):
        end = (0, 0x0A020000 + k), 9092
        capture.opened(CLIENT, end)
        capture.tcp(CLIENT, end, 1, 1, PUSH | ACK, request * 2)
        capture.tcp(end, CLIENT, 1 + len(reply), 1 + len(request) * 2, PUSH | ACK, reply)


def few(capture: Capture, n: int) -> None:
    """A thousand publishes; the filter grows instead."""
    lost_answers(capture, 1000)


Shape = Callable[[Capture, int], None]
SHAPES: dict[Shape, int] = {
    same_key: 60_000, reused_forward: 30_000, reused_backward: 30_000, reused_zigzag: 30_000, syn_again: 60_000,
    holes: 150_000, acknowledged_holes: 150_000, snapped: 60_000, filled_forward: 100_000, filled_backward: 100_000,
    below_start: 60_000, reverse: 60_000, again: 60_000, conflicts: 60_000, fragments: 160_000, lone_fragments:
    240_000, one_address_hash: 20_000, fq_key: 20_000, lost_answers: 60_000, same_id: 60_000, flymq_lost_answers:
    60_000, flymq_lost_both: 60_000, damaged_connections: 20_000, kokaq_damaged: 150_000, msgq_damaged: 150_000,
    fq_damaged: 150_000,
    blipmq_damaged: 100_000, kokaq_one_way: 60_000, garbage: 50_000, deep: 100_000, strangers: 60_000, drips:
    600_000, framing_errors: 60_000, interfaces: 60_000, fetched: 20_000, inflating: 2_000, inflating_topics: 2_000,
    days: 300, rotated_files: 150, separate_files: 300, kokaq_heads: 200_000, damaged_servers: 10_000, few: 450,
}  # fmt: skip
"""Each shape and the number it is made with first."""
EXPORT = "export {path} --out {out} -q"
COMMANDS: dict[Shape, tuple[str, ...]] = {
    fetched: (EXPORT, "explain -q {path} --at 4", "show -q -x {path}", "follow -q {path} --connection c1 --raw s2c"),
    inflating: (EXPORT, "stats -q {path}", "show -q --json {path}"),
    inflating_topics: (EXPORT, "stats -q {path}"),
    rotated_files: (EXPORT, "show -q {path}", "explain -q {path} --at 2"),
    separate_files: (EXPORT, "stats -q {path}", "show -q {path}"),
    few: ("show -q -Y {addresses} {path}",),
}
"""The commands that read a shape, where there are others than an export. ``addresses``: a filter of n addresses."""


def cost(command: str, n: int, path: Path, folder: Path) -> tuple[float, int]:
    """The CPU seconds that a command takes, and the megabytes that it holds at most."""
    shutil.rmtree(folder / "out", ignore_errors=True)  # else an export also reads and removes the earlier one
    addresses = " or ".join(f"client_ip == 10.9.{k // 250}.{k % 250}" for k in range(n)) if path.name == "few" else ""
    values = {"path": path, "out": folder / "out", "addresses": addresses}
    words = [word.format(**values) for word in command.split()]
    limits = LIMIT_MB << 20, LIMIT_MB << 20
    running = subprocess.Popen(
        [sys.executable, "-m", "mqpcap", *words], stdout=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
    )  # fmt: skip
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, words)
    return used.ru_utime + used.ru_stime, used.ru_maxrss >> 10


def written(shape: Shape, n: int, folder: Path) -> Path:
    """The file of a shape, or the folder of its files."""
    capture = Capture()
    shape(capture, n)
    path = folder / shape.__name__
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for k, parts in enumerate(capture.files):
        # Only names that differ in a counter are one recording.
        name = f"part_{k:05}" if capture.are_rotated else str(k).translate(str.maketrans("0123456789", "abcdefghij"))
        (path / f"{name}.pcap").write_bytes(b"".join(parts))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[shape.__name__ for shape in SHAPES])
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the usual sizes")
    given = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(prefix="mqpcap-hostile-") as name:
        folder = Path(name)
        # The first export may compile modules.
        nothing_s, nothing_mb = min(cost(EXPORT, 1, written(syn_again, 1, folder), folder) for _ in range(3))
        print(f"an export of nothing: {nothing_s:.2f} s, {nothing_mb} MB")
        for shape, n in SHAPES.items():
            if given.only and shape.__name__ not in given.only:
                continue
            sizes = [int(size * given.scale) for size in (n, 2 * n)]
            results = []
            for size in sizes:
                path = written(shape, size, folder)
                results.append([cost(command, size, path, folder) for command in COMMANDS.get(shape, (EXPORT,))])
            size_mb = sum(file.stat().st_size for file in path.iterdir()) / 1e6
            for command, (one_s, _), (two_s, two_mb) in zip(COMMANDS.get(shape, (EXPORT,)), *results, strict=True):
                ratio = (two_s - nothing_s) / max(one_s - nothing_s, 0.01)
                times = f"{one_s - nothing_s:7.2f} s {two_s - nothing_s:7.2f} s   {ratio:.2f}"
                words = f"{shape.__name__} {command.split()[0]}"
                print(f"{words:28} {times} {two_mb:6} MB, of {size_mb:5.1f} MB", flush=True)
                if ratio > MOST_RATIO or two_mb > MOST_MB:
                    failures.append(words)
    if failures:
        sys.exit(f"more than {MOST_RATIO} times the time, or {MOST_MB} MB: {', '.join(failures)}")


if __name__ == "__main__":
    main()
