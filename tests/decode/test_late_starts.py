"""Connections whose start was not captured, to a server that another connection of the capture tells."""

import random
import struct
from collections import Counter
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from examples import one_in
from rows import records, rotated
from torture import (
    ACK,
    MAKERS,
    SYN,
    Result,
    Segment,
    broken_laws,
    flymq_message,
    fq_message,
    msgq_message,
    pcap,
    read,
    read_bytes,
)

from mqpcap.capture import windows
from mqpcap.decode import detection

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
PORT = 31337
"""A port of nobody's."""
SAMPLES = [
    f"{folder.name}/{path.stem}"
    for folder in sorted(PCAPS.iterdir()) if folder.name in MAKERS
    for path in sorted(folder.glob("*.pcap"))
    if path.stem not in ("midstream", "go1_midstream", "split_midstream", "grpc_negative", "tls")
]  # fmt: skip
KINDS_EACH = 4
ODD = {("LIST_SCHEMAS", b"\xaf\1\x12\1"), ("WHOAMI", b"\xaf\1\x72\1"), ("REPLAY_DLQ", b"\xaf\1\x21\1")}
"""FlyMQ requests with too few or too many bytes: a search does not take them for messages."""


def ports(record: bytes) -> tuple[int, int, int]:
    """Where TCP begins in a record, and the ports; Ethernet and IPv4."""
    at = 16 + 14 + (record[16 + 14] & 15) * 4
    return at, *struct.unpack_from(">HH", record, at)


def with_ports(record: bytes, source: int, target: int) -> bytes:
    at, _, _ = ports(record)
    return record[:at] + struct.pack(">HH", source, target) + record[at + 4 :]


def payload(record: bytes) -> bytes:
    at, _, _ = ports(record)
    total = struct.unpack_from(">H", record, 16 + 16)[0]
    return record[at + (record[at + 12] >> 4) * 4 : 16 + 14 + total]


def moved(name: str, lone_port: int) -> tuple[bytes, list[bytes], list[bytes], list[dict[str, Any]]]:
    """A sample on ports of nobody's: file header, its packets, lone packets of one message each, and those messages.

    Of every kind of message there are some; each lone packet has a client port of its own, from ``lone_port`` on.
    """
    path = PCAPS / f"{name}.pcap"
    whole, (head, packets) = read(path), records(path)
    servers = {c["server_port"] for c in whole.connections if c["protocol"]}
    kinds: Counter[tuple[Any, ...]] = Counter()
    lone, expected = [], []
    for m in whole.messages:
        packet, kind = packets[m["first_packet"] - 1], (m["direction"], m["op"], m["dialect"])
        alone = m["first_packet"] == m["last_packet"] and len(payload(packet)) == m["frame_len"]
        odd = (m["op"], payload(packet)[:4]) in ODD or (m["op"] == "PONG" and m["direction"] == "c2s")
        if m["flaw"] is None and alone and not odd and kinds[kind] < KINDS_EACH:
            kinds[kind] += 1
            expected.append(m)
            _, source, target = ports(packet)
            client = lone_port + len(lone)
            ends = (client, target + 20000) if m["direction"] == "c2s" else (source + 20000, client)
            lone.append(with_ports(packet, *ends))
    proof = []
    for packet in packets:
        _, source, target = ports(packet)
        proof.append(with_ports(packet, source + 20000 * (source in servers), target + 20000 * (target in servers)))
    return head, proof, lone, expected


def timed(header: bytes, packets: list[bytes]) -> bytes:
    """A capture of these packets, one millisecond apart."""
    times = (struct.pack("<II", 1_700_000_000 + i // 1000, i % 1000 * 1000) for i in range(len(packets)))
    return header + b"".join(time + packet[8:] for time, packet in zip(times, packets, strict=True))


def lone_packet_rows(result: Result, lone_port: int, n: int) -> list[tuple[Any, ...]]:
    """What rows say of the lone packets, in their order."""
    known = {c["client_port"]: (c["protocol"], c["identified_by"]) for c in result.connections}
    rows: dict[int, list[Any]] = {}
    for m in result.messages:
        client = m["src_port"] if m["direction"] == "c2s" else m["dst_port"]
        rows.setdefault(client, []).append((m["direction"], m["op"], m["frame_len"], m["flaw"]))
    return [(*known.get(port, (None, None)), rows.get(port)) for port in range(lone_port, lone_port + n)]


@pytest.mark.parametrize(("name", "lone_port"), [*zip(one_in(2, SAMPLES), cycle([2000, 60000]), strict=False)])
def test_one_whole_frame_is_enough_at_a_known_server(name: str, lone_port: int) -> None:
    """Each kind of message of a sample, alone on a connection of its own before the sample's and after them.

    Its client's port is below the server's and above it, in turn.
    """
    header, proof, lone, expected = moved(name, lone_port)

    before, after = (read_bytes(timed(header, packets)) for packets in (lone + proof, proof + lone))

    told = {c["server_ip"]: c for c in before.connections if c["identified_by"] == "content" and c["syn_seen"]}
    assert lone and told and broken_laws(before) == broken_laws(after) == []
    found = lone_packet_rows(before, lone_port, len(lone))
    assert found == lone_packet_rows(after, lone_port, len(lone))
    wanted = [(m["protocol"], [(m["direction"], m["op"], m["frame_len"], None)]) for m in expected]
    assert [(protocol, rows) for protocol, _, rows in found] == wanted


@cache
def proof_of(protocol: str, port: int = PORT, count: int = 3) -> list[Segment]:
    """A connection with its SYN whose content tells the server."""
    syn = [Segment(b"", 1000, 0, SYN), Segment(b"", 5000, 1001, SYN | ACK, from_server=True)]
    make, at = MAKERS[protocol][1], 1001
    for i in range(count):
        syn.append(Segment(make(i), at, 5001))
        at += len(make(i))
    return syn


def foreign() -> dict[str, tuple[bytes, bytes]]:
    """What strangers say, client and server."""
    dice = random.Random(7)
    hello = b"\x16\x03\x01\0\xc8\x01\0\0\xc4\x03\x03" + dice.randbytes(194)
    kafka = struct.pack(">IHHIH", 20, 18, 0, 1, 10) + b"producer-1"
    found = {
        "http": (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        "tls": (hello, b"\x16\x03\x03\0\x7a" + dice.randbytes(122) + b"\x17\x03\x03\0\x20" + dice.randbytes(32)),
        "kafka": (kafka, struct.pack(">IIH", 10, 1, 0) + bytes(4)),
        "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", b"\0\0\0\4\0\0\0\0\0"),
        "zeroes": (bytes(300), bytes(300)),
        "ones": (b"\xff" * 300, b""),
    }
    return found | {f"random {i}": (dice.randbytes(dice.randrange(1, 4000)), dice.randbytes(900)) for i in range(60)}


@pytest.mark.parametrize("protocol", [name for name in MAKERS if name != "toy"])
def test_strangers_at_a_known_server_stay_strangers(protocol: str) -> None:
    segments = list(proof_of(protocol))
    for i, (client, server) in enumerate(foreign().values()):
        segments.append(Segment(client, 77, 99, client_port=41000 + i))
        segments.append(Segment(server, 99, 77 + len(client), from_server=True, client_port=41000 + i))

    result = read_bytes(pcap(segments, PORT))

    assert broken_laws(result) == []
    assert [(c["client_port"], c["protocol"]) for c in result.connections if c["protocol"]] == [(40000, protocol)]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("protocol", [name for name in MAKERS if name != "toy"])
def test_without_a_proved_server_few_frames_prove_no_protocol(protocol: str, count: int) -> None:
    """Off the port fq, BlipMQ and MQTT need more than that."""
    late = [Segment(b"".join(MAKERS[protocol][1](i) for i in range(4, 4 + count)), 77, 99)]

    (connection,) = read_bytes(pcap(late, PORT)).connections

    assert connection["protocol"] == (None if protocol in ("fq", "blipmq", "mqtt") else protocol)


def long_one(protocol: str, frames: int) -> list[Segment]:
    """A connection without a start whose client sends so many messages, in segments of 1,400 bytes."""
    stream = b"".join(MAKERS[protocol][1](i) for i in range(5, 5 + frames))
    return [Segment(stream[i : i + 1400], 77 + i, 99, client_port=2000) for i in range(0, len(stream), 1400)]


OPENING_BYTES = 8 << 10
MANY = 400  # 400 messages of fq are 14 kB, and so more than what is held of an opening.


@pytest.fixture
def short_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "OPENING_BYTES", OPENING_BYTES)


@cache
def recordings_of(protocol: str) -> list[tuple[bytes, Result]]:
    """The server is told before and after the bytes that are held: in packets of 1,400 bytes the sixth is the last."""
    late = long_one(protocol, MANY)
    found = [pcap(late[:k] + proof_of(protocol) + late[k:], PORT) for k in (3, 5, 6, 8)]
    return [(data, read_bytes(data)) for data in found]


@pytest.mark.usefixtures("short_opening")
@pytest.mark.parametrize("protocol", ["fq", "msgq"])
def test_a_long_late_connection_is_identified_by_a_server_proved_earlier(protocol: str, tmp_path: Path) -> None:
    """However the input is cut, and whichever connection is the first to have a packet."""
    late = long_one(protocol, MANY)
    recordings = [proof_of(protocol) + late, late[:1] + proof_of(protocol) + late[1:], late[:3] + proof_of(protocol)
                  + late[3:]]  # fmt: skip

    results = [read_bytes(pcap(segments, PORT)) for segments in recordings]

    for result in results:
        assert broken_laws(result) == []
        assert {(c["protocol"], c["server_port"]) for c in result.connections} == {(protocol, PORT)}
        assert len(result.messages) == MANY + 3
    (tmp_path / "x.pcap").write_bytes(pcap(recordings[2], PORT))
    (tmp_path / "parts").mkdir()
    rotated(tmp_path / "x.pcap", tmp_path / "parts", 7)
    assert len(read(tmp_path / "parts").messages) == MANY + 3


@pytest.mark.usefixtures("short_opening")
@pytest.mark.parametrize("protocol", ["fq", "msgq"])
@pytest.mark.parametrize("window_bytes", [1400, 3500])
def test_windows_do_not_change_which_connections_a_server_identifies(
    protocol: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is told after the bytes that are looked at, or before: whichever, in one window as in many."""
    recordings = recordings_of(protocol)

    monkeypatch.setattr(windows, "WINDOW_BYTES", window_bytes)

    for data, result in recordings:
        again = read_bytes(data)
        assert [c["protocol"] for c in again.connections] == [c["protocol"] for c in result.connections]
        assert [c["client_port"] for c in again.connections] == [c["client_port"] for c in result.connections]
        assert len(again.messages) == len(result.messages)


@pytest.mark.parametrize("late_first", [True, False])
def test_a_proved_server_shows_the_client_if_content_does_not(late_first: bool) -> None:
    """Sends of msgq look alike in both directions; the port numbers alone would take 31337 for the client's."""
    late = [Segment(msgq_message(i), 77 + (i - 4) * len(msgq_message(4)), 99, client_port=2000) for i in (4, 5, 6)]
    proof = proof_of("msgq")

    result = read_bytes(pcap(late + proof if late_first else proof + late, PORT))

    assert [(c["client_port"], c["server_port"]) for c in result.connections if c["client_port"] != 40000] == [
        (2000, PORT)
    ]


def test_the_request_of_a_flymq_client_alone_at_a_known_server() -> None:
    late = [Segment(flymq_message(1), 77, 99, client_port=2000)]

    result = read_bytes(pcap(late + proof_of("flymq"), PORT))

    assert {(c["protocol"], c["server_port"]) for c in result.connections} == {("flymq", PORT)}


def test_a_guessed_server_identifies_no_other_connection() -> None:
    """Port numbers alone say who is the daemon on one connection: that is no proof for a connection of another."""
    guessed = [Segment(msgq_message(1), 77, 99, client_port=50000)]
    other = [Segment(fq_message(i), 77 + (i - 1) * len(fq_message(1)), 99, client_port=51000) for i in (1, 2)]

    result = read_bytes(pcap(guessed + other, PORT))

    assert {c["client_port"]: c["protocol"] for c in result.connections} == {50000: "msgq", 51000: None}


def test_one_whole_poll_between_deliveries_cut_at_both_ends_is_read() -> None:
    """21 bytes of the client are a whole POLL, on BlipMQ's port; the server's 87 bytes are no whole message."""
    body = b"\x01\0\1t" + bytes(60)
    delivery = struct.pack(">IBQ", 9 + len(body), 3, 44) + body
    poll = struct.pack(">IBQQ", 17, 9, 44, 1)
    segments = [
        Segment(delivery[20:], 1000, 2000, ACK, True), Segment(poll, 2000, 1057, ACK),
        Segment(delivery[:30], 1057, 2021, ACK, True),
    ]  # fmt: skip

    rows = read_bytes(pcap(segments, 5555)).messages
    assert [(row["protocol"], row["op"], row["stream_offset"]) for row in rows if row["flaw"] is None] == [
        ("blipmq", "POLL", 0)
    ]
