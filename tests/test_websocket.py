"""MQTT in WebSocket: frames that are joined to one stream, whatever their limits, with the packet of each byte."""

import json
import os
import random
import ssl
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from made_tls import contexts, conversation
from running import ROOT, run, run_bytes
from torture import ACK, SYN, Result, Segment, broken_laws, pcap, read, read_bytes

from mqpcap import websocket
from mqpcap.options import Options
from mqpcap.tls import KeyLog

HEAD = (
    "GET /mqtt HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: 9So3qB3/SLOt\r\n"
)
REQUEST = f"{HEAD}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
RESPONSE = (
    b"HTTP/1.1 101 Switching\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
CONNECT = bytes.fromhex("1010 0004 4d515454 04 02 003c 0004 6e616d65".replace(" ", ""))
CONNACK = bytes.fromhex("20020000")
SUBSCRIBE, SUBACK = b"\x82\x06\0\1\0\1#\0", b"\x90\3\0\1\0"


def publish(i: int, size: int = 30) -> bytes:
    """A PUBLISH of QoS 0."""
    return b"\x30" + _varuint(size + 7) + struct.pack(">H", 5) + b"t%04d" % i + bytes([97 + i % 26]) * size


def _varuint(n: int) -> bytes:
    out = b""
    while True:
        n, low = n >> 7, n & 127
        out += bytes([low | 128 * (n > 0)])
        if not n:
            return out


PUBLISHES = [publish(i) for i in range(40)]


def frame(payload: bytes, opcode: int = 2, key: bytes = b"", fin: bool = True, bits: int = 0) -> bytes:
    """A frame (RFC 6455, 5.2); with a key it is masked."""
    n = len(payload)
    size = bytes([n]) if n < 126 else b"\x7e" + n.to_bytes(2) if n < 65536 else b"\x7f" + n.to_bytes(8)
    size = bytes([size[0] | 128 * bool(key)]) + size[1:]
    masked = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload)) if key else payload
    return bytes([fin << 7 | bits | opcode]) + size + key + masked


def cuts(data: bytes, chance: random.Random, most: int) -> list[bytes]:
    """Bytes in parts of any size, some of them empty."""
    parts = []
    while data:
        n = chance.randrange(most + 1)
        parts.append(data[:n])
        data = data[n:]
    return parts


def framed(data: bytes, chance: random.Random, masked: bool, most: int = 90) -> bytes:
    """A stream in frames of any size: whole, fragmented and empty ones, with control frames between."""
    out, continues = b"", False
    for part in cuts(data, chance, most):
        fin = chance.random() < 0.7
        key = chance.randbytes(4) if masked else b""
        out += frame(part, 0 if continues else 2, key, fin)
        continues = not fin
        if chance.random() < 0.2:
            out += frame(b"p" * chance.randrange(126), chance.choice([9, 10]), key)
    return out


def connection(parts: Sequence[tuple[bool, bytes]], syn: bool = True) -> list[Segment]:
    """The segments of a connection: (from the server, payload) in order; ``parts`` with None bytes are lost."""
    seqs = [1000, 5000]
    segments = [Segment(seq=999, flags=SYN), Segment(b"", 4999, 1000, SYN | ACK, from_server=True)] if syn else []
    for from_server, data in parts:
        segments.append(Segment(data, seqs[from_server], seqs[1 - from_server], from_server=from_server))
        seqs[from_server] += len(data)
    return segments


def opened(
    frames: Iterable[bytes] = (), request: bytes = REQUEST, response: bytes = RESPONSE
) -> list[tuple[bool, bytes]]:
    """An upgrade, a session of MQTT, and frames of the server."""
    return [
        (False, request), (True, response), (False, frame(CONNECT, key=b"abcd")), (True, frame(CONNACK)),
        (False, frame(SUBSCRIBE, key=b"\0\xff01")), (True, frame(SUBACK)), *((True, data) for data in frames),
    ]  # fmt: skip


def topics(result: Result) -> list[str]:
    return [m["destination"] for m in result.messages if m["op"] == "PUBLISH" and m["flaw"] is None]


TOPICS = [f"t{i:04d}" for i in range(len(PUBLISHES))]


@pytest.mark.parametrize("seed", range(8))
def test_frames_mean_nothing_and_each_byte_keeps_its_packet(seed: int) -> None:
    chance = random.Random(seed)
    data = framed(b"".join(PUBLISHES), chance, masked=False, most=(3, 20, 90, 5000)[seed % 4])
    parts = opened(part for part in cuts(data, chance, 200) if part)
    result = read_bytes(pcap(connection(parts), 8080))

    assert broken_laws(result) == []
    assert topics(result) == TOPICS
    assert [p["reason"] for p in result.problems] == ["websocket", "websocket"]
    # Where the payload of each byte is among the packets, by arithmetic over the frames.
    packet_of, number = [], 8
    at, left, is_data, stream = 0, 0, True, b"".join(part for _, part in parts[6:])
    limits = [len(part) for _, part in parts[6:]]
    for i in range(len(stream)):
        while limits and i >= sum(limits[: number - 7]):
            number += 1
        if left:
            packet_of += [number + 1] if is_data else []
            left -= 1
        elif i >= at:
            head, n = stream[i], stream[i + 1]
            size = 2 if n < 126 else 4 if n == 126 else 10
            n = n if n < 126 else int.from_bytes(stream[i + 2 : i + size])
            at, left_after, is_data = i + size, n, head & 8 == 0
        if i == at - 1:
            left = left_after
    firsts, offset = [], 0
    for message in PUBLISHES:
        firsts.append((packet_of[offset], packet_of[offset + len(message) - 1]))
        offset += len(message)
    assert [(m["first_packet"], m["last_packet"]) for m in result.messages if m["op"] == "PUBLISH"] == firsts


@pytest.mark.parametrize("seed", range(3))
def test_masked_frames_of_the_client_are_joined(seed: int) -> None:
    chance = random.Random(seed)
    data = framed(b"".join(PUBLISHES), chance, masked=True)
    parts = [*opened(), *((False, part) for part in cuts(data, chance, 100) if part)]
    result = read_bytes(pcap(connection(parts), 8080), Options())

    assert broken_laws(result) == []
    assert topics(result) == TOPICS
    assert [m["op"] for m in result.messages[:4]] == ["CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK"]


def test_a_window_of_one_packet_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mqpcap.capture import windows

    chance = random.Random(1)
    path = tmp_path / "ws.pcap"
    path.write_bytes(pcap(connection(opened(cuts(framed(b"".join(PUBLISHES), chance, False), chance, 50))), 8080))
    whole = read(path)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)

    assert read(path) == whole


def test_websocket_inside_tls(tmp_path: Path) -> None:
    client, server = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    frames = framed(b"".join(PUBLISHES), random.Random(3), masked=False)
    turns = [(a[1], b[1]) for a, b in zip(opened()[::2], opened()[1::2], strict=True)] + [
        (frame(b"", 9, b"0000"), frames)
    ]
    segments, _ = conversation(client, server, turns)
    result = read_bytes(pcap(segments, 8443), Options(keys=KeyLog(str(tmp_path / "keys.log"))))

    assert broken_laws(result) == []
    assert topics(result) == TOPICS
    assert [c["tls"] for c in result.connections] == ["opened"]
    assert {m["last_packet"] - m["first_packet"] for m in result.messages if m["op"] == "CONNECT"} == {0}


@pytest.mark.parametrize("lost", range(6, 26))
def test_a_lost_packet_costs_the_messages_in_it_and_no_more_than_two_frames(lost: int) -> None:
    """A frame that follows is found by those after it."""
    parts = opened(frame(message) for message in PUBLISHES)
    segments = connection(parts)
    del segments[2 + lost]
    result = read_bytes(pcap(segments, 8080))

    assert broken_laws(result) == []
    assert topics(result) == [topic for i, topic in enumerate(TOPICS) if i != lost - 6]


def test_a_hole_inside_a_frame_is_a_hole_of_its_message() -> None:
    """The frame says where it ends, so that nothing is searched for."""
    large = frame(publish(0, 9000))
    parts = opened([large[:3000], large[3000:6000], large[6000:], *map(frame, PUBLISHES[1:])])
    segments = connection(parts)
    del segments[2 + 7]
    result = read_bytes(pcap(segments, 8080))

    assert broken_laws(result) == []
    assert topics(result) == TOPICS[1:]
    assert [m["frame_len"] for m in result.messages if m["flaw"] == "truncated"] == [len(publish(0, 9000)) - 3000]


def test_compressed_frames_are_named() -> None:
    deflate = RESPONSE[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    result = read_bytes(pcap(connection(opened([frame(b"\x8b\x01\0" * 9, bits=0x40)], response=deflate)), 8080))

    assert broken_laws(result) == []
    assert [m["op"] for m in result.messages] == ["CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK"]
    assert sorted({p["reason"] for p in result.problems}) == ["websocket", "websocket: compressed"]


def test_a_stream_that_begins_inside_is_named(tmp_path: Path) -> None:
    parts = [(False, frame(SUBSCRIBE, key=b"abcd")), *((True, frame(message)) for message in PUBLISHES)]
    path = tmp_path / "inside.pcap"
    path.write_bytes(pcap(connection(parts, syn=False), 8080))

    assert "1 WebSocket" in run("info", path).stdout


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (REQUEST, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        (REQUEST.replace(b"mqtt\r", b"chat\r"), RESPONSE.replace(b"mqtt\r", b"chat\r")),
        (b"GET / HTTP/1.1\r\nHost: b\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_other_connections_pass_as_they_are(request_: bytes, response: bytes) -> None:
    result = read_bytes(pcap(connection([(False, request_), (True, response), (False, request_)]), 8080))

    assert broken_laws(result) == []
    assert [c["protocol"] for c in result.connections] == [None]
    assert {p["reason"] for p in result.problems} == {"foreign"}
    assert sorted(p["length"] for p in result.problems) == sorted([2 * len(request_), len(response)])


def test_an_upgrade_without_an_end_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_HEAD_BYTES", 2000)
    parts = [(False, HEAD.encode()), *((False, b"X-Header: %099d\r\n" % i) for i in range(40))]
    result = read_bytes(pcap(connection(parts), 8080))

    assert broken_laws(result) == []
    assert [p["reason"] for p in result.problems] == ["foreign"]


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_after_an_upgrade_are_messages_or_problems(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(framed(b"".join(PUBLISHES), chance, masked=False))
    for _ in range(seed):
        data[chance.randrange(len(data))] = chance.randrange(256)
    segments = connection(opened(part for part in cuts(bytes(data), chance, 120) if part))
    for _ in range(seed % 5):
        del segments[chance.randrange(6, len(segments))]

    assert broken_laws(read_bytes(pcap(segments, 8080))) == []


def test_extract_anonymise_replaces_websocket_as_a_whole(tmp_path: Path) -> None:
    path, out = tmp_path / "ws.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap(connection(opened(map(frame, PUBLISHES))), 8080))
    done = run("extract", path, "--anonymise", "--out", out)

    assert done.exit_code == 0, done.stderr
    assert b"mqtt" not in out.read_bytes() and b"t0001" not in out.read_bytes()


def test_the_bytes_of_a_side_are_those_of_mqtt(tmp_path: Path) -> None:
    path = tmp_path / "ws.pcap"
    path.write_bytes(pcap(connection(opened(map(frame, PUBLISHES))), 8080))
    lines = [json.loads(line) for line in run("show", "--json", path).stdout.splitlines()]

    assert lines[0]["fields"]["client_id"] == "name"
    assert lines[0]["exchange"]["state"] == "answered"


SAMPLE = ROOT / "pcaps" / "mqtt" / "ws_v311.pcap"
TRUTH = json.loads((ROOT / "tests" / "truth" / "mqtt" / "ws_v311.truth.json").read_text())


def test_a_lake_that_gets_a_capture_file_by_file_has_its_messages(tmp_path: Path) -> None:
    """Borders lie inside both connections, and inside frames."""
    content, records, at = SAMPLE.read_bytes(), [], 24
    while at < len(content):
        end = at + 16 + int.from_bytes(content[at + 8 : at + 12], "little")
        records.append(content[at:end])
        at = end
    lake, n = tmp_path / "lake", len(records)
    for i, (begin, end) in enumerate(((0, n // 3), (n // 3, n // 2), (n // 2, n))):
        path = tmp_path / f"x_{i:05d}.pcap"
        path.write_bytes(content[:24] + b"".join(records[begin:end]))
        os.utime(path, (1_000_000_000, 1_000_000_000))  # a new file may still grow
        done = run("export", path, "--append", lake)
        assert done.exit_code == 0, done.stderr
    assert run("export", "--append", lake, "--finish").exit_code == 0

    rows = pytest.importorskip("deltalake").DeltaTable(lake / "messages").to_pyarrow_table()
    assert rows.num_rows == sum(map(sum, (x.values() for x in TRUTH["counts"].values())))
    assert rows["flaw"].null_count == rows.num_rows


@pytest.mark.parametrize("direction", ["c2s", "s2c"])
def test_raw_bytes_of_a_side_are_those_of_mqtt(direction: str) -> None:
    done = run_bytes("follow", SAMPLE, "c1", "--raw", direction, "--show-secrets")

    events = TRUTH["connections"][0]["events"]
    assert len(done.stdout) == sum(x["bytes"] for x in events if x["dir"] == direction)
