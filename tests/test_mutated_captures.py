"""Captures changed at random, or with packets missing: no traceback, nothing lost, the same rows in any windows.

``tests/bench/captures.py`` tries thousands.
"""

import random
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from dissection import dissect
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from mutated_captures import (
    ALL_CHANGES,
    PCAPS,
    Record,
    capture_bytes,
    differences,
    mutant,
    one_packet_windows,
    records,
    side_by_side,
)
from torture import ACK, SYN, Segment, pcap, read

from mqpcap.capture import captures, windows
from mqpcap.decode import evidence
from mqpcap.tcp.out_of_order import SETTLE_PACKETS

CAPTURES = sorted(path for path in PCAPS.glob("*/*.pcap") if path.parent.name != "strangers")


@examples(8, shrink=False)
@given(st.sampled_from(CAPTURES), st.sampled_from((1, 1, 2, 7)), st.sampled_from((0.0, 0.05)), st.integers(0, 1 << 32))
def test_any_packets_give_the_same_rows_in_any_windows_and_lose_no_byte(
    path: Path, window_packets: int, loss: float, seed: int
) -> None:
    """Packets of a sample capture are lost, changed, truncated, repeated, swapped or overwritten with random bytes."""
    with TemporaryDirectory() as folder:
        capture = Path(folder) / "capture.pcap"
        capture.write_bytes(mutant(path.read_bytes(), random.Random(seed), loss, ALL_CHANGES))
        assert differences(capture, window_packets) == {}


def test_the_first_word_of_fq_is_read_before_its_answer_where_a_window_ends_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word (packet 4, 4 bytes) comes in two segments, the second of which begins the second window."""
    head, packets, expected = session(tmp_path)
    ts, _, word = packets[3]
    tcp = 34
    seq = (int.from_bytes(word[tcp + 4 : tcp + 8], "big") + 2).to_bytes(4, "big")
    shorter = word[:16] + (int.from_bytes(word[16:18], "big") - 2).to_bytes(2, "big") + word[18:]
    halves = shorter[:-2], shorter[: tcp + 4] + seq + shorter[tcp + 8 : -4] + shorter[-2:]
    split = [(ts, 0, b"")] * 996 + [*packets[:3], *((ts, len(half), half) for half in halves), *packets[4:]]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(head, split))

    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1000)
    assert client_names(capture) == expected


def session(folder: Path) -> tuple[bytes, list[Record], list[tuple[str, str]]]:
    """The first packets of a capture of fq, with logins and data connections: file header, packets, and names."""
    data, whole = (PCAPS / "fq" / "session.pcap").read_bytes(), folder / "whole.pcap"
    whole.write_bytes(capture_bytes(data[:24], records(data)[:250]))
    return data[:24], records(data)[:250], client_names(whole)


def client_names(path: Path) -> list[tuple[str, str]]:
    """Client and group of each message, sorted."""
    rows = read(path).messages
    return sorted((m["client_name"] or "", m["group_name"] or "") for m in rows)


def test_a_login_of_fq_captured_after_its_reply_names_the_connection_in_any_windows(tmp_path: Path) -> None:
    """The login's first packet comes 55 packets late, after the key that answers it."""
    head, packets, expected = session(tmp_path)
    login = next(k for k, (_, _, body) in enumerate(packets) if body[66:] == b"\xaa\xaa")
    packets.insert(login + 55, packets.pop(login))
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(head, packets))

    assert client_names(capture) == expected
    with one_packet_windows():
        assert client_names(capture) == expected


@pytest.mark.parametrize("is_on_time", [True, False])
def test_a_key_that_is_granted_late_names_its_data_connection_in_any_windows(tmp_path: Path, is_on_time: bool) -> None:
    """The packet with the key comes after the data connection that uses it, with its own time or a late one.

    Its connection has later packets in front of it, so that it waits for bytes. The times do not matter: the grant has
    that of its first byte.
    """
    head, packets, expected = session(tmp_path)
    grant = next(k for k, (_, _, body) in enumerate(packets) if len(body) == 66 + 127)
    ts, wire, body = packets.pop(grant)
    used = next(k for k, (_, _, other) in enumerate(packets) if other[66:] == body[66:])
    packets.insert(used + 3, (ts if is_on_time else packets[used + 2][0], wire, body))
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(head, packets))

    assert client_names(capture) == expected
    with one_packet_windows():
        assert client_names(capture) == expected


@pytest.mark.parametrize("before", [2, 30])
def test_messages_beyond_the_limit_are_no_evidence_in_any_windows(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BlipMQ connection whose begin is missing names its version after so many messages, of which 10 may wait."""
    monkeypatch.setattr(evidence, "MAX_UNRESOLVED_MESSAGES", 10)
    publish = struct.pack(">IBQ", 9 + 9, 3, 7) + b"\0\0\x06orders"
    hello, ack = struct.pack(">IBQ", 11, 1, 1) + b"\0\2", struct.pack(">IBQ", 17, 5, 1) + bytes(8)
    bodies = [*[publish] * before, hello, *[publish] * 30]
    ends = [5000, 6000]
    segments = []
    for body in bodies:
        segments.append(Segment(body, ends[0], ends[1]))
        ends[0] += len(body)
        if body == hello:
            segments.append(Segment(ack, ends[1], ends[0], from_server=True))
            ends[1] += len(ack)
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(pcap(segments, 5555))

    assert differences(capture) == {}
    dialect = "v2" if before == 2 else "unknown"
    assert {row["dialect"] for row in read(capture).messages} == {dialect}


def test_a_copy_of_the_begin_of_a_message_is_a_copy_in_any_windows(tmp_path: Path) -> None:
    """Packet 62 has 8 bytes of a PRODUCE, which wait for the rest when its copy comes."""
    data = (PCAPS / "flymq" / "core.pcap").read_bytes()
    packets = records(data)
    packets.insert(62, packets[61])
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], packets))

    assert sum(row["duplicate_packets_c2s"] for row in read(capture).connections) == 1
    assert differences(capture) == {}


def test_a_packet_with_a_malformed_ip_header_may_be_the_first(tmp_path: Path) -> None:
    """Its header says version 4 and a length of no byte."""
    data = (PCAPS / "flymq" / "core.pcap").read_bytes()
    ts, wire, body = records(data)[0]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], [(ts, wire, body[:14] + b"\x40" + body[15:])]))

    assert read(capture).connections == []


def test_a_reply_that_acknowledges_too_much_settles_no_request_in_any_windows(tmp_path: Path) -> None:
    """It waits for bytes that never come, so the request after the pause says nothing of what was open before.

    BlipMQ's second POLL of a queue (packet 149) comes last, with its own time: its reply is before it.
    """
    data = (PCAPS / "blipmq" / "qos1.pcap").read_bytes()
    packets = records(data)
    ts, wire, reply = packets[149]
    ack_at = 34 + 8
    ack = int.from_bytes(reply[ack_at : ack_at + 4], "big") + 4096
    packets[149] = ts, wire, reply[:ack_at] + ack.to_bytes(4, "big") + reply[ack_at + 4 :]
    packets.append(packets.pop(148))
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], packets))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    exchanges = [row for row in exchanges if row["request_packet"] == len(packets)]
    assert [(row["op"], row["state"], row["reply_packet"]) for row in exchanges] == [("POLL", "answered", 149)]


def test_pauses_are_measured_in_the_order_of_tcp_in_any_windows(tmp_path: Path) -> None:
    """Client bytes in a hole that no acknowledgement gives up: all that follow them are read after the server's.

    BlipMQ's connection to the queue ``order`` without its three PUBLISHes; the POLLs come 0.65 s after them.
    """
    data = (PCAPS / "blipmq" / "qos1.pcap").read_bytes()
    rows = [row for row in read(PCAPS / "blipmq" / "qos1.pcap").messages if row["destination"] == "order"]
    port = rows[0]["src_port"].to_bytes(2, "big")
    lost = {row["first_packet"] for row in rows if row["op"] == "PUBLISH" and row["direction"] == "c2s"}
    packets = [x for k, x in enumerate(records(data), 1) if port in (x[2][34:36], x[2][36:38]) and k not in lost]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], packets))

    assert lost
    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert {row["how"] for row in exchanges if row["state"] == "likely"} == {"pause"}


def _blipmq(kind: int, number: int, payload: bytes) -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload


HELLO, ANSWER = _blipmq(1, 1, b"\0\1"), _blipmq(5, 1, bytes(8))
PUBLISH, POLL = _blipmq(3, 2, b"\0\0\6ordersbody"), _blipmq(9, 3, bytes(7) + b"\1")


@pytest.mark.parametrize("flags", [ACK, 0])
def test_a_reply_without_a_usable_acknowledgement_answers_what_was_captured_before_it(
    flags: int, tmp_path: Path
) -> None:
    """A login is missing, so that the POLL after it is read after its reply, whose number is 2 GB too high."""
    to_poll = 1 + len(HELLO) + 22
    end, reply = to_poll + len(POLL), 1 + 2 * len(ANSWER)
    segments = [
        Segment(seq=0, flags=SYN),
        Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True),
        Segment(HELLO, 1, 1),
        Segment(ANSWER, 1, 1 + len(HELLO), from_server=True),
        Segment(_blipmq(5, 2, bytes(8)), 1 + len(ANSWER), to_poll, from_server=True),
        Segment(POLL, to_poll, reply),
        Segment(_blipmq(3, 3, PUBLISH[13:]), reply, end + 2**31, flags=flags, from_server=True),
        Segment(_blipmq(9, 4, POLL[13:]), end, reply + len(PUBLISH)),
    ]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(pcap(segments, 5555))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert [(row["state"], row["reply_packet"]) for row in exchanges if row["request_packet"] == 6] == [("answered", 7)]


def test_a_hole_after_what_a_reply_acknowledges_does_not_change_the_evidence(tmp_path: Path) -> None:
    """A client's packet far ahead is captured before its PING, and read after the PONG in windows of one packet."""
    login, accepted = _blipmq(2, 2, b"\0\7dev-key"), _blipmq(5, 2, bytes(8))
    ping, pong = _blipmq(7, 5, b""), _blipmq(8, 5, b"")
    to_poll, reply = 1 + len(HELLO + login), 1 + len(ANSWER + accepted)
    to_ping = to_poll + len(POLL)
    segments = [
        Segment(seq=0, flags=SYN),
        Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True),
        Segment(HELLO, 1, 1),
        Segment(ANSWER, 1, 1 + len(HELLO), from_server=True),
        Segment(login, 1 + len(HELLO), 1 + len(ANSWER)),
        Segment(accepted, 1 + len(ANSWER), to_poll, from_server=True),
        Segment(POLL, to_poll, reply),
        Segment(POLL, to_ping + 1024, reply),
        Segment(ping, to_ping, reply),
        Segment(pong, reply, to_ping + len(ping), from_server=True),
    ]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(pcap(segments, 5555))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert [row["how"] for row in exchanges if row["op"] == "PING"] == ["echo"]


@pytest.mark.parametrize("first", [POLL, b""], ids=["POLL", ""])
def test_requests_after_a_hole_come_before_a_later_reply_that_acknowledges_the_hole(
    first: bytes, tmp_path: Path
) -> None:
    """The sequence number of POLL and PING, or of PING, is 4 kB too high; the PONG acknowledges the true one.

    The PING has the id of the PONG and is older, so that the PONG may be its reply: it is no orphan.
    """
    login, accepted = _blipmq(2, 2, b"\0\7dev-key"), _blipmq(5, 2, bytes(8))
    ping, pong = _blipmq(7, 5, b""), _blipmq(8, 5, b"")
    requests, replies = 1 + len(HELLO + login), 1 + len(ANSWER + accepted)
    end = requests + len(first + ping)
    segments = [
        Segment(seq=0, flags=SYN),
        Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True),
        Segment(HELLO, 1, 1),
        Segment(ANSWER, 1, 1 + len(HELLO), from_server=True),
        Segment(login, 1 + len(HELLO), 1 + len(ANSWER)),
        Segment(accepted, 1 + len(ANSWER), requests, from_server=True),
        Segment(first + ping, requests + 4096, replies),
        Segment(pong, replies, end, from_server=True),
        Segment(seq=end, ack=replies + len(pong)),
    ]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(pcap(segments, 5555))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert [row["state"] for row in exchanges if row["op"] == "PONG"] == ["unknown"]


def test_a_hole_and_a_reply_that_wait_go_on_in_order_of_time(tmp_path: Path) -> None:
    """A late start of the server is read late, behind a client's hole, though its first reply came before the hole.

    FlyMQ's session without one acknowledgement (packet 76), and with a request (packet 74) that is 64 kB too far ahead.
    """
    data = (PCAPS / "flymq" / "dlq_delayed_txn.pcap").read_bytes()
    packets = records(data)[67:127]
    ts, wire, request = packets[6]
    packets[6] = ts, wire, request[:39] + bytes([request[39] ^ 1]) + request[40:]
    del packets[8]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], packets))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert {row["how"] for row in exchanges if row["state"] == "likely"} == {"alternation"}


def test_requests_that_were_handled_before_the_state_showed_are_so_in_any_windows(tmp_path: Path) -> None:
    """The delivery that answers the POLL is captured before the handshake, but has the time at which it was sent."""
    login, subscribe = _blipmq(2, 2, b"\0\7dev-key"), _blipmq(4, 3, b"\0\6orders\1")
    answers = [ANSWER, _blipmq(5, 2, bytes(8)), _blipmq(5, 3, bytes(7) + b"\x09")]
    publishes = b"".join(_blipmq(3, number, b"\1\0\6orders%d" % number) for number in (4, 5, 6))
    poll, delivery = _blipmq(9, 3, bytes(7) + b"\x09"), _blipmq(3, 1, b"\1\0\6orders4")
    segments = [Segment(seq=0, flags=SYN), Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True)]
    sent, received = 1, 1
    for request, answer in zip((HELLO, login, subscribe), answers, strict=True):
        segments += [
            Segment(request, sent, received),
            Segment(answer, received, sent + len(request), from_server=True),
        ]
        sent, received = sent + len(request), received + len(answer)
    segments.append(Segment(publishes + poll, sent, received))
    segments.append(Segment(delivery, received, sent + len(publishes + poll), from_server=True))
    data = pcap(segments, 5555)
    packets = records(data)
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], [packets[-1], *packets[:-1]]))

    assert differences(capture) == {}
    exchanges = dissect(captures([str(capture)]).captures[0]).exchanges.to_pylist()
    assert [row["state"] for row in exchanges if row["op"] == "PUBLISH" and row["request_packet"]] == ["silent"] * 3
    assert [row["state"] for row in exchanges if row["op"] == "POLL"] == ["answered"]


@pytest.mark.parametrize(("is_acknowledged", "is_found_late"), [(False, False), (True, False), (True, True)])
def test_bytes_that_are_missing_were_sent_at_most_a_delayed_acknowledgement_before_it_shows(
    is_acknowledged: bool, is_found_late: bool, tmp_path: Path
) -> None:
    """A client publishes, gets its message 0.5 s later, and a lost packet shows with its next packet 1 s after that.

    The lost packet may be an equal publish. The server acknowledges it at once, if at all, before the delivery. After
    the hole a search needs two messages in a row, the second of which may come late.
    """
    to_lost = 1 + len(HELLO) + len(PUBLISH) + len(POLL)
    after, reply = to_lost + len(PUBLISH), 1 + len(ANSWER)
    segments = [
        (0.0, Segment(seq=0, flags=SYN)),
        (0.1, Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True)),
        (0.2, Segment(HELLO, 1, 1)),
        (0.3, Segment(ANSWER, 1, 1 + len(HELLO), from_server=True)),
        (0.4, Segment(PUBLISH + POLL, 1 + len(HELLO), reply)),
        (0.9, Segment(b"", reply, after if is_acknowledged else to_lost, from_server=True)),
        (1.0, Segment(_blipmq(3, 3, PUBLISH[13:]), reply, to_lost, from_server=True)),
        (2.0, Segment(POLL if is_found_late else 2 * POLL, after, reply + len(PUBLISH))),
        # The hole is given up once this many packets, and a second, came after its acknowledgement.
        *[(2.1, Segment(b"", reply + len(PUBLISH), after + len(POLL), from_server=True))] * (SETTLE_PACKETS + 1),
        (3.2, Segment(b"", reply + len(PUBLISH), after + len(POLL), from_server=True)),
    ]
    if is_found_late:
        segments.append((3.3, Segment(POLL, after + len(POLL), reply + len(PUBLISH))))
    data = pcap([segment for _, segment in segments], 5555)
    times = [struct.pack("<II", 1_700_000_000 + int(s), round(s % 1 * 1e6)) for s, _ in segments]
    timed = [(ts, wire, body) for ts, (_, wire, body) in zip(times, records(data), strict=True)]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(capture_bytes(data[:24], timed))

    assert differences(capture) == {}
    deliveries = dissect(captures([str(capture)]).captures[0]).deliveries
    assert len(deliveries) == (not is_acknowledged)


def test_a_frame_of_another_layout_renames_no_frame_before_it_in_any_windows(tmp_path: Path) -> None:
    """The document's answer shows whose numbers its layout has in this connection; the lean NoOp has its own."""
    no_op = bytes.fromhex("042001050000002000000000000309a0000000010000000200000000")
    answer = bytes.fromhex("04203291f2be8bf4487867f8")
    segments = [
        Segment(seq=0, flags=SYN),
        Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True),
        Segment(no_op, 1, 1),
        Segment(answer, 1, 1 + len(no_op), from_server=True),
    ]
    capture = tmp_path / "capture.pcap"
    capture.write_bytes(pcap(segments, 4242))

    assert differences(capture) == {}
    rows = read(capture).messages
    assert [(row["dialect"], row["op"]) for row in rows] == [("lean", "NoOp"), ("doc", None)]


def test_captures_side_by_side_have_the_rows_of_each(tmp_path: Path) -> None:
    """``tests/bench/captures.py`` reads many as one: a packet of each in turn, at other addresses."""
    paths = sorted((PCAPS / "mqtt").glob("*.pcap"))[:4]
    mutants = [mutant(path.read_bytes(), random.Random(k)) for k, path in enumerate(paths)]
    capture = tmp_path / "capture.pcap"

    def messages(data: bytes) -> list[tuple[str, ...]]:
        capture.write_bytes(data)
        names = "direction", "op", "destination", "frame_len", "stream_offset", "flaw", "dialect"
        return sorted(tuple(str(row[name]) for name in names) for row in read(capture).messages)

    apart = sorted(row for data in mutants for row in messages(data))
    assert len(apart) > 20
    assert messages(side_by_side(mutants)) == apart
