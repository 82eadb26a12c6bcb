"""Whose connection it is, for BlipMQ: frame types, lengths and first bytes, typed by hand."""

import struct

import pytest
from torture import ACK, SYN, Segment, pcap, read_bytes

from mqpcap.decode.detection import DecodeAs
from mqpcap.pipeline import Options

POLL = bytes.fromhex("00000011 09 0000000000000006 0000000000000002")
DELIVERY = bytes.fromhex("00000012 03 0000000000000001 01 0004 64656d6f 6869")
CLIENT_ACK = bytes.fromhex("00000011 05 0000000000000001 0000000000000002")
PING = bytes.fromhex("00000009 07 0000000000000005")
PONG = bytes.fromhex("00000009 08 0000000000000005")
HELLO_ACK = bytes.fromhex("00000011 05 0000000000000001 0000000000000000")
UNAUTHENTICATED = bytes.fromhex("0000001c 06 0000000000000009 0191 000f 756e61757468656e74696361746564")
PUSHED = bytes.fromhex("0000001a 0a 0000000000000001 01 0000000000000001 0004 64656d6f 6869")
SERVER = "10.0.0.1"
"""Who speaks as the server below: the side that segments which are not ``from_server`` come from."""


def late(turns: list[tuple[str, bytes]], port: int) -> list[Segment]:
    """A connection without its SYN, ``client`` and ``server`` in turn; it is the client that has ``port``."""
    at = {"client": 5001, "server": 1001}
    out = []
    for who, body in turns:
        other = at["server" if who == "client" else "client"]
        out.append(Segment(body, at[who], other, ACK, from_server=who == "client"))
        at[who] += len(body)
    return out


@pytest.mark.parametrize(
    "turns",
    [
        [("server", DELIVERY), *[("client", CLIENT_ACK + POLL), ("server", DELIVERY)] * 4],
        [("server", PONG), *[("client", PING), ("server", PONG)] * 3],
        [("server", HELLO_ACK + UNAUTHENTICATED + PONG)],
        [("server", PUSHED * 4), ("client", CLIENT_ACK)],
        [("client", POLL * 3)],
    ],
    ids=["polls", "pings", "answers only", "pushes", "polls only"],
)
def test_without_a_syn_the_types_show_the_client(turns: list[tuple[str, bytes]]) -> None:
    """Only clients send types 1, 2, 4, 7 and 9; PONG, NACK and an ACK of subscription 0 are evidence for the server."""
    result = read_bytes(pcap(late(turns, 40000), 40000))

    (connection,) = result.connections
    assert (connection["protocol"], connection["server_ip"]) == ("blipmq", SERVER)
    ops = {(m["direction"], m["op"]) for m in result.messages}
    assert ops <= {("c2s", op) for op in ("POLL", "ACK", "PING")} | {
        ("s2c", op) for op in ("PUBLISH", "PONG", "ACK", "NACK", "DELIVER")
    }


def protobuf(tag: int, body: bytes) -> bytes:
    """What clients and servers of August 2025 sent: a length and a message that begins with a field tag."""
    return struct.pack(">IB", 1 + len(body), tag) + body


@pytest.mark.parametrize("port", [5555, 7878])
@pytest.mark.parametrize("answers", [b"", protobuf(0x0A, b"\4okay"), protobuf(0x12, b"\7message")])
def test_the_older_protocol_that_begins_like_a_pong_is_refused(port: int, answers: bytes) -> None:
    """Byte 4 of the older protocol is 08 or 12 from the client, 0a or 12 from the server; a PONG has length 9."""
    commands = protobuf(0x08, b"\1\x12\x06orders") * 3
    opened = [
        Segment(b"", 1000, 0, SYN),
        Segment(b"", 5000, 1001, SYN | ACK, from_server=True),
        Segment(commands, 1001, 5001),
        Segment(answers, 5001, 1001 + len(commands), from_server=True),
    ]

    result = read_bytes(pcap(opened, port))

    assert [(c["protocol"], c["identified_by"]) for c in result.connections] == [(None, None)]
    assert result.messages == []


def test_one_chance_frame_on_an_unknown_port_is_unclaimed() -> None:
    """Three chained frames are evidence. A length and a 7 are a foreign protocol's message."""
    result = read_bytes(pcap([Segment(struct.pack(">IB", 32, 7) + bytes(31), 1001, 5001)], 31337))

    assert [c["protocol"] for c in result.connections] == [None]


def test_decode_as_reads_what_no_answer_confirms() -> None:
    """An answer under another id is no server's, but who names the protocol wants it read."""
    opened = [Segment(b"", 5000, 0, SYN, from_server=True), Segment(b"", 1000, 5001, SYN | ACK)]
    capture = pcap([*opened, *late([("client", PING), ("server", UNAUTHENTICATED)], 31337)], 31337)

    alone = read_bytes(capture)
    told = read_bytes(capture, Options(decode_as=(DecodeAs(40000, "blipmq"),)))

    assert [c["protocol"] for c in alone.connections] == [None]
    assert [(c["protocol"], c["identified_by"]) for c in told.connections] == [("blipmq", "decode_as")]
    assert [m["op"] for m in told.messages] == ["PING", "NACK"]
