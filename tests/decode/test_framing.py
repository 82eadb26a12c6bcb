"""The rules of framing, each by hand arithmetic over the toy protocol or bytes typed from a document."""

import struct
from pathlib import Path

import pytest
from torture import (
    ACK,
    FIN,
    SYN,
    Result,
    Segment,
    blipmq_message,
    broken_laws,
    flymq_message,
    fq_message,
    msgq_message,
    pcap,
    read,
    read_bytes,
    toy_layer,
    toy_message,
)

from mqpcap.capture import windows
from mqpcap.decode.detection import DecodeAs
from mqpcap.pipeline import Options

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
START = 1001
OPEN = [
    Segment(b"", START - 1, 0, SYN),
    Segment(b"", 5000, START, SYN | ACK, from_server=True),
    Segment(b"", START, 5001, ACK),
]


def sent(*parts: bytes, at: int = 0) -> list[Segment]:
    """Client segments one after the other."""
    out = []
    for part in parts:
        out.append(Segment(part, START + at, 5001))
        at += len(part)
    return out


def answered(*parts: bytes, at: int = 0) -> list[Segment]:
    """Server segments one after the other."""
    out = []
    for part in parts:
        out.append(Segment(part, 5001 + at, START, from_server=True))
        at += len(part)
    return out


def toy(segments: list[Segment], options: Options | None = None, port: int = 5000) -> Result:
    with toy_layer():
        result = read_bytes(pcap(segments, port), options)
        assert broken_laws(result) == []
    return result


def spans(result: Result, direction: str = "c2s") -> list[tuple[int, int, str | None]]:
    rows = [m for m in result.messages if m["direction"] == direction]
    return sorted((m["stream_offset"], m["frame_len"], m["flaw"]) for m in rows)


def undecoded(result: Result, direction: str = "c2s") -> list[tuple[int, int, str]]:
    rows = [p for p in result.problems if p["kind"] == "undecoded" and p["direction"] == direction]
    return sorted((p["stream_offset"], p["length"], p["reason"]) for p in rows)


FIVE = b"".join(toy_message(i) for i in range(5))


def test_bytes_after_a_hole_belong_to_the_message_and_need_no_search() -> None:
    """24-byte messages; bytes 30 to 40 of message 1 (24 to 48) are lost: 6 + 8 of it are captured."""
    segments = [*OPEN, *sent(FIVE[:30]), *sent(FIVE[40:], at=40)]

    result = toy(segments)

    assert spans(result) == [(0, 24, None), (24, 14, "truncated"), (48, 24, None), (72, 24, None), (96, 24, None)]
    assert not any(m["resynced"] for m in result.messages)
    assert [m["gap_before_bytes"] for m in result.messages] == [0, 0, 0, 0, 0]
    assert undecoded(result) == []


def test_a_message_with_a_hole_ends_in_the_packet_of_its_last_byte() -> None:
    segments = [*OPEN, *sent(FIVE[:30]), *sent(FIVE[40:44], at=40), *sent(FIVE[44:], at=44)]

    truncated = toy(segments).messages[1]

    # Packets 1 to 3 open the connection; 30 bytes are packet 4, byte 44 to 48 is in packet 6.
    assert (truncated["first_packet"], truncated["last_packet"]) == (4, 6)
    assert truncated["end_ts_ns"] - truncated["ts_ns"] == 2_000_000


def test_less_than_a_header_before_a_hole_is_undecoded() -> None:
    """Three of the four length bytes of message 1 are captured; the search finds message 2 at 48."""
    segments = [*OPEN, *sent(FIVE[:27]), *sent(FIVE[40:], at=40)]

    result = toy(segments)

    assert spans(result) == [(0, 24, None), (48, 24, None), (72, 24, None), (96, 24, None)]
    assert undecoded(result) == [(24, 3, "truncated"), (40, 8, "search")]
    assert [m["resynced"] for m in result.messages] == [False, True, False, False]
    assert [m["gap_before_bytes"] for m in result.messages] == [0, 13, 0, 0]


def test_a_hole_of_whole_messages_is_bridged_by_a_search() -> None:
    segments = [*OPEN, *sent(FIVE[:24]), *sent(FIVE[72:], at=72)]

    result = toy(segments)

    assert spans(result) == [(0, 24, None), (72, 24, None), (96, 24, None)]
    assert [(m["resynced"], m["gap_before_bytes"]) for m in result.messages] == [(False, 0), (True, 48), (False, 0)]


def test_missing_bytes_count_for_the_first_message_after_them_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Message 1 is lost and given up; message 4 comes in a window of its own."""
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    acks = [Segment(b"", 5001, START + 96, ACK, from_server=True)] * 40
    segments = [*OPEN, *sent(FIVE[:24]), *sent(FIVE[48:96], at=48), *acks, *sent(FIVE[96:], at=96)]

    result = toy(segments)

    assert [m["stream_offset"] for m in result.messages] == [0, 48, 72, 96]
    assert [(m["resynced"], m["gap_before_bytes"]) for m in result.messages] == [
        (False, 0), (True, 24), (False, 0), (False, 0),
    ]  # fmt: skip


def test_the_end_of_the_stream_cuts_a_message() -> None:
    segments = [*OPEN, *sent(FIVE[:24]), *sent(FIVE[24:34], at=24)]

    assert spans(toy(segments)) == [(0, 24, None), (24, 10, "truncated")]


def test_the_snap_length_cuts_a_message_and_the_next_one_needs_no_search() -> None:
    """Message 1 is cut after 10 of its bytes."""
    cut = Segment(FIVE[24:34], START + 24, 5001, wire_bytes=24)
    segments = [*OPEN, *sent(FIVE[:24]), cut, *sent(FIVE[48:], at=48)]

    result = toy(segments)

    assert spans(result) == [(0, 24, None), (24, 10, "truncated"), (48, 24, None), (72, 24, None), (96, 24, None)]
    assert not any(m["resynced"] for m in result.messages)
    assert [(p["kind"], p["reason"], p["length"]) for p in result.problems] == [("gap", "snap length", 14)]


def test_a_late_start_takes_one_message_that_ends_at_the_end() -> None:
    """Byte 5 of message 0 is the first captured; one whole message follows and the stream ends."""
    segments = [Segment(FIVE[5:48], START + 5, 5001)]

    result = toy(segments)

    assert spans(result) == [(19, 24, None)]
    assert undecoded(result) == [(0, 19, "search")]
    assert [m["resynced"] for m in result.messages] == [True]


def test_a_message_of_two_swapped_packets_ends_with_the_later_one() -> None:
    late, early = sent(FIVE[:10], FIVE[10:24])
    segments = [*OPEN, early, late, *sent(FIVE[24:], at=24)]

    first = toy(segments).messages[0]

    # The first byte is in packet 5, which is also the one by which the last missing byte arrived.
    assert (first["first_packet"], first["last_packet"]) == (5, 5)


def test_after_bad_framing_the_rest_of_a_blipmq_direction_is_undecoded() -> None:
    """A length of 8 is less than type and id need (frame.rs): the server closes."""
    bad = struct.pack(">IBQ", 8, 7, 9)
    good = blipmq_message(1)
    segments = [*OPEN, *sent(blipmq_message(0), good, bad, good, good)]

    result = read_bytes(pcap(segments, 5555))

    end = len(blipmq_message(0)) + len(good)
    assert spans(result) == [(0, 15, None), (15, len(good), None)]
    assert undecoded(result) == [(end, len(bad) + 2 * len(good), "bad_framing")]


def test_after_bad_framing_flymq_requests_stop_and_replies_are_searched_for() -> None:
    """An error reply (op FF) is text; two whole replies after the bad bytes are found again."""
    request = flymq_message(0)
    reply = struct.pack(">BBBBI", 0xAF, 1, 0xFF, 1, 4) + b"oops"
    segments = [*OPEN, *sent(request, b"junk" * 3, request, request), *answered(reply, b"junk" * 3, reply, reply)]

    result = read_bytes(pcap(segments, 9092))

    n = len(request)
    assert spans(result) == [(0, n, None)]
    assert undecoded(result) == [(n, 12 + 2 * n, "bad_framing")]
    assert spans(result, "s2c") == [(0, 12, None), (24, 12, None), (36, 12, None)]
    assert undecoded(result, "s2c") == [(12, 12, "search")]
    replies = sorted((m["stream_offset"], m["resynced"]) for m in result.messages if m["direction"] == "s2c")
    assert replies == [(0, False), (24, True), (36, False)]


def test_tls_is_one_undecoded_row_per_side() -> None:
    hello = b"\x16\x03\x01\0\x10" + bytes(16)
    segments = [*OPEN, *sent(hello, bytes(50)), *answered(hello, bytes(70))]

    result = read_bytes(pcap(segments, 9092))

    assert undecoded(result) == [(0, 71, "tls")]
    assert undecoded(result, "s2c") == [(0, 91, "tls")]
    assert [(c["protocol"], c["identified_by"]) for c in result.connections] == [(None, None)]


def test_foreign_traffic_is_one_row_per_contiguous_range() -> None:
    words = [b"GET / HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n"]
    segments = [*OPEN, *sent(*words), *sent(b"x" * 10, b"y" * 10, at=100), Segment(b"", START + 120, 5001, FIN | ACK)]

    result = read_bytes(pcap(segments, 5555))

    assert undecoded(result) == [(0, 27, "foreign"), (100, 20, "foreign")]


@pytest.mark.parametrize(
    ("port", "options", "how"),
    [(5000, None, "port"), (7777, Options(decode_as=(DecodeAs(7777, "toy"),)), "decode_as")],
)
def test_identified_by_is_how_a_connection_was_recognised(port: int, options: Options | None, how: str) -> None:
    result = toy([*OPEN, *sent(FIVE)], options, port)

    assert [c["identified_by"] for c in result.connections] == [how]
    assert len(spans(result)) == 5


def test_content_identifies_a_connection_on_any_port() -> None:
    result = read_bytes(pcap([*OPEN, *sent(*(fq_message(i) for i in range(3)))], 31337))

    assert [(c["protocol"], c["identified_by"]) for c in result.connections] == [("fq", "content")]


HELLO = struct.pack(">IBQH", 11, 1, 1, 1)
WELCOME = struct.pack(">IBQQ", 17, 5, 1, 0)


@pytest.mark.parametrize("cuts", [(), (1,), (4, 9), (14,), (20,)])
def test_a_hello_identifies_a_connection_in_one_packet_or_several(cuts: tuple[int, ...]) -> None:
    """On a port of nobody's: until all of the HELLO is there, what there is of it is held."""
    said = HELLO + blipmq_message(1) + blipmq_message(2)
    parts = [said[one:two] for one, two in zip((0, *cuts), (*cuts, len(said)), strict=True)]

    result = read_bytes(pcap([*OPEN, *sent(*parts)], 31337))

    assert broken_laws(result) == []
    assert [(c["protocol"], c["identified_by"]) for c in result.connections] == [("blipmq", "content")]
    first = len(blipmq_message(1))
    assert spans(result) == [(0, 15, None), (15, first, None), (15 + first, len(said) - 15 - first, None)]


@pytest.mark.parametrize("server_first", [True, False])
def test_a_connection_is_identified_whichever_side_is_captured_first(server_first: bool) -> None:
    """Packets of two taps cross: the answer may stand before its HELLO."""
    talk = [*sent(HELLO), *answered(WELCOME)]

    result = read_bytes(pcap([*OPEN, *(talk[::-1] if server_first else talk)], 31337))

    assert [(c["protocol"], c["identified_by"]) for c in result.connections] == [("blipmq", "content")]
    assert (spans(result), spans(result, "s2c")) == ([(0, 15, None)], [(0, 21, None)])


def test_decode_as_keeps_other_protocols_away() -> None:
    options = Options(decode_as=(DecodeAs(5555, "flymq"),))

    result = read_bytes(pcap([*OPEN, *sent(*(blipmq_message(i) for i in range(4)))], 5555), options)

    assert result.messages == []
    assert {c["protocol"] for c in result.connections} <= {None, "flymq"}


def test_a_connection_to_a_proved_server_is_identified_by_it() -> None:
    """On a port of nobody's, a HELLO of version 9 fits BlipMQ; another connection there proves who the server is."""
    hello = struct.pack(">IBQH", 11, 1, 1, 9)
    other = [Segment(s.body, s.seq, s.ack, s.flags, s.from_server, client_port=41000) for s in [*OPEN, *sent(hello)]]
    proof = [*OPEN, *sent(*(blipmq_message(i) for i in range(3)))]

    alone = read_bytes(pcap(other, 31337))
    together = read_bytes(pcap([*other, *proof], 31337))

    assert [c["identified_by"] for c in alone.connections] == [None]
    assert [c["identified_by"] for c in together.connections] == ["peer", "content"]


def test_a_late_connection_to_a_proved_server_is_identified_by_it() -> None:
    """fq frames have no magic, so off the port only another connection of the server proves them."""
    late = [
        Segment(s.body, s.seq, s.ack, s.flags, client_port=41000) for s in sent(*(fq_message(i) for i in (5, 6, 7)))
    ]
    proof = [*OPEN, *sent(*(fq_message(i) for i in range(3)))]

    alone = read_bytes(pcap(late, 31337))
    together = read_bytes(pcap([*late, *proof], 31337))

    assert [c["identified_by"] for c in alone.connections] == [None]
    assert [c["identified_by"] for c in together.connections] == ["peer", "content"]
    assert [m["op"] for m in together.messages if m["src_port"] == 41000] == ["message"] * 3


@pytest.mark.parametrize("server_first", [True, False])
def test_without_a_syn_the_port_shows_the_client(server_first: bool) -> None:
    """msgq frames look alike in both directions, and off its port no side is the daemon's by number."""
    segments = [*sent(*(msgq_message(i) for i in range(3))), *answered(*(msgq_message(i) for i in range(3, 6)))]
    if server_first:
        segments = [*segments[3:], *segments[:3]]

    (connection,) = read_bytes(pcap(segments, 31337)).connections

    assert (connection["protocol"], connection["server_port"]) == ("msgq", 31337)


def test_rows_of_blipmq_before_the_version_is_agreed_are_read_by_it() -> None:
    """Pipelined after HELLO 1, a qos byte of 0x80 is a qos, not version 2's flag."""
    publish = struct.pack(">IBQ", 9 + 9, 3, 2) + b"\x80\0\4abcdhi"
    ack = struct.pack(">IBQQ", 17, 5, 1, 0)
    segments = [*OPEN, *sent(blipmq_message(0) + publish), *answered(ack)]

    result = read_bytes(pcap(segments, 5555))

    assert {m["dialect"] for m in result.messages} == {"v1"}
    published = next(m for m in result.messages if m["op"] == "PUBLISH")
    assert (published["destination"], published["fields"]["qos"], published["fields"]["body"]) == ("abcd", 0x80, b"hi")


def test_a_capture_that_holds_nothing_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([], 5555))

    result = read(path)

    assert (result.messages, result.connections, result.problems) == ([], [], [])
