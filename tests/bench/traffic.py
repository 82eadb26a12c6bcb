"""Captures to measure with, made as large as asked and written to disk a piece at a time.

Bulk shapes, one per protocol, on a handful of connections with full segments: ``publishes`` (small BlipMQ messages,
the shape most quoted), ``flymq_fetches`` (replies that are lists), ``fq_messages`` (full frames), ``msgq_typed``
(trees of typed values), ``kokaq_pushes`` (metadata), and ``mqtt_publishes``, the first as MQTT. Hard shapes: ``large``
sends messages of many megabytes, ``short`` connections of one message each, ``foreign`` connections of protocols that
are not ours. ``sessions`` repeats a captured session
of any protocol between ever new addresses. Each returns how many messages, or sessions, it wrote; as a program:
``python traffic.py MAKER CAPTURE NUMBER...``.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

START_US = 1_795_238_649 * 1_000_000
SEGMENT_BYTES = 1448
PIECE_SESSIONS = 512
PIPELINED = 16
"""Messages that one side sends before the other answers."""
HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
SYN, FIN_ACK, ACK, PUSH_ACK, SYN_ACK = 2, 17, 16, 24, 18
TEXT = bytes(range(48, 112)) * 4


Tree = None | bool | int | str | bytes | dict[bytes, "Tree"] | list["Tree"]
"""A value of msgq's typed encoding."""


class _Capture:
    """A pcap file being written: packets of connections to one server."""

    def __init__(self, path: Path, port: int = 5555, step_us: int = 5) -> None:
        self.file = path.open("wb", buffering=1 << 20)
        self.file.write(HEADER)
        self.now_us, self.step_us, self.port = START_US, step_us, port
        self.next: dict[int, list[int]] = {}
        self.message_count = 0

    def packet(self, flow: int, from_client: bool, body: bytes, flags: int) -> None:
        seq = self.next.setdefault(flow, [1000, 5000])
        one, two = struct.pack(">I", (10 << 24) + (flow >> 15)), b"\x0a\xff\0\1"
        ends = one + two if from_client else two + one
        ports = (20_000 + (flow & 0x7FFF), self.port)
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

    def say(self, flow: int, from_client: bool, *messages: bytes) -> None:
        """Messages in one write: full segments, the last one pushed."""
        data = b"".join(messages)
        for at in range(0, len(data), SEGMENT_BYTES):
            last = at + SEGMENT_BYTES >= len(data)
            self.packet(flow, from_client, data[at : at + SEGMENT_BYTES], PUSH_ACK if last else ACK)
        self.message_count += len(messages)

    def end(self, *flows: int) -> int:
        """Close the connections and the file; the messages there are."""
        for flow in flows:
            self.close(flow)
        self.file.close()
        return self.message_count

    def close(self, flow: int) -> None:
        self.packet(flow, True, b"", FIN_ACK)
        self.packet(flow, False, b"", FIN_ACK)
        self.packet(flow, True, b"", ACK)


def _rounds(count: int, flow_count: int) -> Iterator[tuple[int, range]]:
    """Whose turn it is, and the numbers of the messages it sends."""
    for turn, first in enumerate(range(0, count, PIPELINED)):
        yield turn % flow_count, range(first, min(first + PIPELINED, count))


def _text(k: int) -> bytes:
    """A body of 60 to 149 bytes."""
    return TEXT[k % 100 : k % 100 + 60 + k % 90]


def _short16(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _short8(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def _blipmq(kind: int, number: int, payload: bytes) -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload


def _publish(number: int, body: bytes, qos: int = 0) -> bytes:
    return _blipmq(3, number, bytes([qos]) + _short16(b"orders.%d" % (number % 40)) + body)


def _log_in(capture: _Capture, flow: int) -> None:
    """The opening of a BlipMQ connection."""
    capture.open(flow)
    capture.say(flow, True, _blipmq(1, 1, b"\0\1"), _blipmq(2, 2, _short16(b"dev-key")))
    capture.say(flow, False, _blipmq(5, 1, bytes(8)), _blipmq(5, 2, bytes(8)))


def publishes(path: Path, count: int, flow_count: int = 8) -> int:
    """BlipMQ: that many publishes of 60 to 150 bytes, ten to a segment."""
    capture = _Capture(path)
    for flow in range(flow_count):
        _log_in(capture, flow)
    return _packed(capture, count, flow_count, lambda k: _publish(k + 3, _text(k), k & 1))


def mqtt_publishes(path: Path, count: int, flow_count: int = 8) -> int:
    """MQTT 3.1.1: the publishes of `publishes`, same topics, bodies and segments."""
    capture = _Capture(path, port=1883)
    for flow in range(flow_count):
        capture.open(flow)
        capture.say(flow, True, b"\x10\x10\0\4MQTT\4\2\0\x3c" + _short16(b"c%03d" % flow))
        capture.say(flow, False, b"\x20\2\0\0")
    return _packed(capture, count, flow_count, _mqtt_publish)


def _mqtt_publish(k: int) -> bytes:
    packet_id = struct.pack(">H", k % 65_535 + 1) if k & 1 else b""
    rest = _short16(b"orders.%d" % ((k + 3) % 40)) + packet_id + _text(k)
    length = bytes([len(rest)]) if len(rest) < 128 else bytes([len(rest) & 127 | 128, len(rest) >> 7])
    return bytes([0x30 | (k & 1) << 1]) + length + rest


def _packed(capture: _Capture, count: int, flow_count: int, message: Callable[[int], bytes]) -> int:
    """Messages of clients in turns, each connection's cut into full segments; a bare ACK now and then."""
    waiting = [b""] * flow_count
    for k in range(count):
        flow = k % flow_count
        waiting[flow] += message(k)
        if len(waiting[flow]) > SEGMENT_BYTES:
            capture.packet(flow, True, waiting[flow][:SEGMENT_BYTES], PUSH_ACK)
            waiting[flow] = waiting[flow][SEGMENT_BYTES:]
            if k % 3 == 0:
                capture.packet(flow, False, b"", ACK)
    for flow, rest in enumerate(waiting):
        capture.packet(flow, True, rest, PUSH_ACK)
    capture.message_count += count
    return capture.end(*range(flow_count))


def flymq_fetches(path: Path, count: int, flow_count: int = 8) -> int:
    """FlyMQ: that many messages, half of them FETCH requests, half replies of 1 to 5 records."""
    capture, offset = _Capture(path, port=9092), 0
    for flow in range(flow_count):
        capture.open(flow)
    for flow, numbers in _rounds(count // 2, flow_count):
        requests, replies = [], []
        for k in numbers:
            asked = _short16(b"orders.%d" % (k % 40)) + struct.pack(">iQiH", k % 4, offset, 10, 0)
            records = [_record(offset + n) for n in range(1 + k % 5)]
            offset += len(records)
            requests.append(_flymq(7, asked))
            replies.append(_flymq(7, struct.pack(">IQ", len(records), offset) + b"".join(records)))
        capture.say(flow, True, *requests)
        capture.say(flow, False, *replies)
    return capture.end(*range(flow_count))


def _flymq(op: int, payload: bytes) -> bytes:
    return struct.pack(">BBBBI", 0xAF, 1, op, 1, len(payload)) + payload


def _record(offset: int) -> bytes:
    key, value = b"key-%d" % (offset % 1000), _text(offset)
    return struct.pack(">QI", offset, len(key)) + key + struct.pack(">I", len(value)) + value


def fq_messages(path: Path, count: int, flow_count: int = 8) -> int:
    """Fq: that many messages as a broker delivers them (full frames, two hops), to subscribers that logged in."""
    capture = _Capture(path, port=8765)
    for flow in range(flow_count):
        key = _short16(bytes([flow + 1]) * 127)
        login = b"\xaa\xaa\0\0" + _short16(b"user%d" % flow) + _short16(b"q%d\0mem" % flow) + _short16(b"nopass")
        for connection in (flow + flow_count, flow):
            capture.open(connection)
        capture.say(flow + flow_count, True, b"\xcc\x50\xca\xfe", login)
        capture.say(flow + flow_count, False, b"\xaa\0" + key, b"\xbe\xa7")
        capture.say(flow, True, b"\xcc\x50\xfa\xce" + key)
    for flow, numbers in _rounds(count, flow_count):
        capture.say(flow, False, *map(_fq_message, numbers))
    return capture.end(*range(2 * flow_count))


def _fq_message(k: int) -> bytes:
    body = _text(k)
    names = _short8(b"logs") + _short8(b"app.web.%d" % (k % 40)) + struct.pack("<QQ", k + 1, 0) + _short8(b"bob")
    return names + b"\2\x0a\xfe\xfe\1\x0a\0\0\2" + struct.pack(">I", len(body)) + body


def msgq_typed(path: Path, count: int, flow_count: int = 8) -> int:
    """BIND 10 msgq, typed: that many sends whose embedded message is a tree of every type."""
    capture = _Capture(path, port=9912)
    lnames = [b"6b010a8b_%d@mqhost" % flow for flow in range(flow_count)]
    for flow, lname in enumerate(lnames):
        capture.open(flow)
        capture.say(flow, True, _msgq({b"type": "getlname"}))
        capture.say(flow, False, _msgq({b"lname": lname.decode(), b"type": "getlname"}))
    for flow, numbers in _rounds(count, flow_count):
        capture.say(flow, True, *(_send(lnames[flow].decode(), k) for k in numbers))
    return capture.end(*range(flow_count))


def _send(lname: str, k: int) -> bytes:
    said = {
        b"command": ["set", {b"zone": f"example{k % 40}.org", b"ttl": k}],
        b"enabled": k % 2 == 0, b"note": None, b"servers": ["192.0.2.1", "192.0.2.2", k % 9],
    }  # fmt: skip
    envelope = {b"type": "send", b"from": lname, b"to": "*", b"group": f"Zones{k % 40}", b"instance": "*", b"seq": k}
    return _msgq(envelope | {b"msg": b"Skan" + _pairs(said)})


def _msgq(tree: "dict[bytes, Tree]") -> bytes:
    data = b"Skan" + _pairs(tree)
    return struct.pack(">I", len(data)) + data


def _pairs(tree: "dict[bytes, Tree]") -> bytes:
    return b"".join(_short8(tag) + _item(value) for tag, value in tree.items())


def _item(value: "Tree") -> bytes:
    """A value as the typed libraries write it: type and length code, length, data."""
    match value:
        case None:
            return b"\4"
        case bool():
            kind, data = 5, b"1" if value else b"0"
        case int():
            kind, data = 6, b"%d" % value
        case str():
            kind, data = 8, value.encode()
        case bytes():
            kind, data = 1, value
        case dict():
            kind, data = 2, _pairs(value)
        case list():
            kind, data = 3, b"".join(map(_item, value))
    return bytes([0x20 | kind]) + _short8(data) if len(data) < 256 else bytes([0x10 | kind]) + _short16(data)


def kokaq_pushes(path: Path, count: int, flow_count: int = 8) -> int:
    """Kokaq: that many messages, half of them pushes with five metadata entries, half answers with two."""
    capture = _Capture(path, port=9944)
    for flow in range(flow_count):
        capture.open(flow)
    for flow, numbers in _rounds(count // 2, flow_count):
        pushes, answers = [], []
        for k in numbers:
            times = [(tag, struct.pack(">Q", 1_795_238_649_000 + k)) for tag in (3, 4)]
            uuid = struct.pack(">QQ", k, 0x8000 << 48)
            asked = [(1, struct.pack(">I", 60_000)), *times, (5, uuid), (9, b"order-%d" % k)]
            pushes.append(_kokaq(6, k, 0, asked))
            answers.append(_kokaq(5, k, 1, [(2, b"\0\1"), (10, struct.pack(">I", k % 900))]))
        capture.say(flow, True, *pushes)
        capture.say(flow, False, *answers)
    return capture.end(*range(flow_count))


def _kokaq(kind: int, number: int, client_or_status: int, entries: list[tuple[int, bytes]]) -> bytes:
    """A Push with metadata as the document has it: client 0 asks, status 0 and reason 1 (ok) answer."""
    head = struct.pack(">HBBIBBBB", 0x0420, 1, kind, number, 7, client_or_status, number & 0xFF, 1)
    metadata = b"".join(bytes([tag]) + _short8(value) for tag, value in entries)
    return head + struct.pack(">BHBI", 1, 0x0420, 0, len(entries)) + metadata


def large(path: Path, count: int, body_bytes: int) -> int:
    """BlipMQ: that many publishes of one size, on one connection (frames end at 16 MiB, frame.rs)."""
    capture, body = _Capture(path), np.random.default_rng(1).bytes(body_bytes)
    _log_in(capture, 0)
    for k in range(count):
        capture.say(0, True, _publish(k + 3, body))
    return capture.end(0)


def short(path: Path, flow_count: int) -> int:
    """BlipMQ: that many connections of one publish each."""
    capture = _Capture(path)
    for flow in range(flow_count):
        _log_in(capture, flow)
        capture.say(flow, True, _publish(3, b"once"))
        capture.close(flow)
        capture.next.pop(flow)
    return capture.end()


def foreign(path: Path, size_bytes: int) -> int:
    """Connections of foreign protocols, each with EXCHANGES requests and replies; returns how many connections."""
    capture, flow, written = _Capture(path), 0, 0
    while written < size_bytes:
        capture.port, hello, exchange = FOREIGN[flow % len(FOREIGN)]
        capture.open(flow)
        messages = [hello, *(exchange(k) for k in range(flow, flow + EXCHANGES))]
        for request, reply in messages:
            capture.say(flow, True, request)
            capture.say(flow, False, reply)
            written += len(request) + len(reply)
        capture.close(flow)
        flow += 1
    capture.end()
    return flow


EXCHANGES = 20
"""Requests of a foreign connection, after its greeting."""


def _http(k: int) -> tuple[bytes, bytes]:
    body = b"<p>%d</p>" % k + TEXT * (k % 12)
    request = b"GET /orders/%d HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n" % k
    return request, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _tls(k: int) -> tuple[bytes, bytes]:
    noise = np.random.default_rng(k).bytes(200 + 2500 * (k & 1))
    return b"\x17\3\3" + _short16(noise[:200]), b"\x17\3\3" + _short16(noise)


def _dns(k: int) -> tuple[bytes, bytes]:
    question = b"\4host\7example\0\0\1\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4\xc0\0\2" + bytes([k & 255])
    ask = struct.pack(">6H", k & 0xFFFF, 0x0100, 1, 0, 0, 0) + question
    return _short16(ask), _short16(struct.pack(">6H", k & 0xFFFF, 0x8180, 1, 1, 0, 0) + question + answer)


def _modbus(k: int) -> tuple[bytes, bytes]:
    count = 1 + k % 100
    ask = struct.pack(">HHHBBHH", k & 0xFFFF, 0, 6, 1, 3, k & 0xFF, count)
    return ask, struct.pack(">HHHBBB", k & 0xFFFF, 0, 3 + 2 * count, 1, 3, 2 * count) + bytes(2 * count)


def _thrift(k: int) -> tuple[bytes, bytes]:
    """Framed binary calls, on the port that is kokaq's, too."""
    name = struct.pack(">I", 8) + b"getOrder"
    call = b"\x80\1\0\1" + name + struct.pack(">I", k) + b"\x08\0\1" + struct.pack(">I", k) + b"\0"
    value = b"\x0b\0\0" + struct.pack(">I", len(_text(k))) + _text(k) + b"\0"
    reply = b"\x80\1\0\2" + name + struct.pack(">I", k) + value
    return struct.pack(">I", len(call)) + call, struct.pack(">I", len(reply)) + reply


_HELLO = b"\3\3" + bytes(range(32)) + b"\0\0\2\x13\1\1\0"
FOREIGN: list[tuple[int, tuple[bytes, bytes], Callable[[int], tuple[bytes, bytes]]]] = [
    (80, _http(0), _http),
    (
        443,
        (b"\x16\3\1" + _short16(b"\1\0" + _short16(_HELLO)), b"\x16\3\3" + _short16(b"\2\0" + _short16(_HELLO))),
        _tls,
    ),
    (53, _dns(0), _dns),
    (502, _modbus(0), _modbus),
    (9090, _thrift(0), _thrift),
]
"""Port, greeting and exchanges of foreign protocols."""


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


MAKERS = {
    x.__name__: x
    for x in (
        publishes, mqtt_publishes, flymq_fetches, fq_messages, msgq_typed, kokaq_pushes, large, short, foreign,
        sessions,
    )
}  # fmt: skip

if __name__ == "__main__":
    maker, capture, *numbers = sys.argv[1:]
    print(MAKERS[maker](Path(capture), *(int(x) if x.isdecimal() else Path(x) for x in numbers)))
