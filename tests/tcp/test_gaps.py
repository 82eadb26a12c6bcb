"""Gaps of a side, and the packet each range is told with."""

import numpy as np
import pytest
from segments import ACK, SYN, Packet, a, b, segments

from mqpcap.tcp import gaps as gaps_module
from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.gaps import GapTimes
from mqpcap.tcp.reassembly import Reassembler

HANDSHAKE = [a(999, flags=SYN), b(4999, flags=SYN | ACK, ack=1000), a(1000, ack=5000)]


def ends(packets: list[Packet], window: int = 1000) -> Reassembler:
    """After these packets and the end of the capture."""
    reassembler = Reassembler()
    for first in range(0, len(packets), window):
        chunks = reassembler.feed(segments(packets[first : first + window], first))
        reassembler.retain(chunks, chunks.length)
    reassembler.finish()
    return reassembler


def places_of(ranges: list[StreamRange]) -> list[tuple[int, int, int, int]]:
    """Side, offset, length and packet of each."""
    return [(row.side, row.offset, row.length, row.packet) for row in ranges]


@pytest.fixture(params=[1, 2, 1000])
def window(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_gap_names_the_packet_before_it(window: int) -> None:
    reassembler = ends([*HANDSHAKE, a(1000, b"abc"), a(1003, b"de"), a(1010, b"f")], window)

    assert places_of(reassembler.gaps()) == [(0, 5, 5, 5)]


def test_a_gap_after_the_handshake_names_the_syn(window: int) -> None:
    assert places_of(ends([*HANDSHAKE, a(1010, b"f")], window).gaps()) == [(0, 0, 10, 1)]


def test_a_gap_with_nothing_before_it_names_the_first_packet_after_it(window: int) -> None:
    """A keep-alive shows that the stream is older than its first bytes."""
    packets = [b(5000, ack=1000), a(1000), a(1020, b"cd"), a(1010, b"ab")]

    assert places_of(ends(packets, window).gaps()) == [(1, 0, 10, 4), (1, 12, 8, 4)]


def test_a_side_never_captured_names_the_first_packet_of_its_connection(window: int) -> None:
    packets = [a(1000, b"x", ack=5000), a(1001, b"y", ack=5007)]

    assert places_of(ends(packets, window).gaps()) == [(1, 0, 7, 1)]


def test_a_gap_at_the_end_names_the_last_bytes(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"abc"), b(5000, ack=1013), b(5000, ack=1013)]

    assert places_of(ends(packets, window).gaps()) == [(0, 3, 10, 4)]


def test_what_a_late_packet_leaves_of_a_gap_names_that_packet(window: int) -> None:
    acks = [*[b(5000, ack=1011)] * 39, b(5000, ack=1011, ts_ns=3 * 10**9)]
    reassembler = ends([*HANDSHAKE, a(1000, b"a"), a(1010, b"f"), *acks, a(1004, b"xy")], window)

    assert places_of(reassembler.gaps()) == [(0, 1, 3, 4), (0, 6, 4, 46)]
    assert places_of(reassembler.late()) == [(0, 4, 2, 46)]


def test_bytes_below_a_released_start_name_their_packet(window: int) -> None:
    packets = [a(1000 + i, b"x", ack=5000) for i in range(100)] + [a(980, b"early", ack=5000)]
    reassembler = ends(packets, window)

    assert places_of(reassembler.late()) == [(0, -20, 5, 101)]
    assert places_of(reassembler.gaps()) == [(0, -15, 15, 101)]


def test_a_conflict_names_the_second_copy(window: int) -> None:
    reassembler = ends([*HANDSHAKE, a(1000, b"abcd"), a(1000, b"aXYd")], window)

    assert places_of(reassembler.conflicts()) == [(0, 1, 2, 5)]


def test_a_gap_of_the_snap_length_names_the_packet_that_was_cut(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"abc", wire_length=8), a(1008, b"f")]
    reassembler = ends(packets, window)

    assert places_of(reassembler.gaps()) == [(0, 3, 5, 4)]
    assert [row.snapped for row in reassembler.gaps()] == [True]


def shown_ns(times: GapTimes, side: int, offset: int, gap_before: int, is_truncated: bool = False) -> int:
    """The time of one message."""
    columns = np.array([side]), np.array([offset]), np.array([gap_before]), np.array([is_truncated])
    (ns,) = times.shown_ns(*columns).tolist()
    return int(ns)


def test_the_first_gap_before_a_message_or_in_it_shows_first() -> None:
    """Gaps of 20 bytes that end at 120, 320 and 500."""
    times = GapTimes()
    for end, ns in ((120, 1), (320, 2), (500, 3)):
        times.add(7, end, 20, ns)

    assert shown_ns(times, 7, 120, 20) == 1
    assert shown_ns(times, 7, 320, 20) == shown_ns(times, 7, 400, 20) == 2
    assert shown_ns(times, 7, 320, 40) == 1
    assert shown_ns(times, 7, 400, 0, is_truncated=True) == 3
    assert shown_ns(times, 7, 400, 20, is_truncated=True) == 2
    assert shown_ns(times, 7, 600, 0) == shown_ns(times, 7, 600, 0, is_truncated=True) == 0
    assert shown_ns(times, 8, 320, 20) == 0


def test_times_of_gaps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps_module, "MAX_GAP_TIMES", 3)
    times = GapTimes()
    for number in range(1, 6):
        times.add(number, 20, 20, number)
    assert [shown_ns(times, number, 20, 20) for number in range(1, 6)] == [0, 0, 0, 4, 5]
    times.forget({4})
    for number in (8, 9):
        times.add(number, 20, 20, number)
    assert [shown_ns(times, number, 20, 20) for number in (4, 5, 8, 9)] == [0, 5, 8, 9]
