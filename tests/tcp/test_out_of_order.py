"""What a side holds while it is not in order: bytes and holes, against a dictionary and a set."""

from itertools import pairwise

import pytest
from flows import flows_of
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, SYN, B, Packet, a, b, segments
from streams import HANDSHAKE, read, rows

from mqpcap.tcp import out_of_order
from mqpcap.tcp.flow_records import Segment
from mqpcap.tcp.out_of_order import OutOfOrder, ReorderQueue
from mqpcap.tcp.reassembly import Reassembler

HOLES = st.lists(st.tuples(st.integers(-2, 25), st.integers(1, 5)), max_size=12)
PARTS = st.lists(st.tuples(st.integers(1, 40), st.binary(min_size=1, max_size=12)), max_size=12)


def opened() -> Reassembler:
    """After a handshake: A's next byte has the sequence number 1000, as offset 0."""
    assembler = Reassembler()
    assembler.feed(segments(HANDSHAKE))
    return assembler


def hold(waiting: OutOfOrder, queue: ReorderQueue, offset: int, body: bytes, number: int = 9) -> None:
    segment = Segment(1000 + offset, 5000, ACK, 0, len(body), len(body), number * 1_000_000_000, number, 0)
    waiting.add(segment, 0, queue, offset, body)


@given(HOLES)
def test_holes_of_the_snap_length_are_those_of_a_set(holes: list[tuple[int, int]]) -> None:
    queue, cut = ReorderQueue(0, 0, start_unknown=False), set[int]()
    for low, length in holes:
        queue.add_snapped(low, low + length)
        cut.update(range(low, low + length))

    assert [offset for offset in range(-9, 80) if queue.is_snapped(offset)] == sorted(cut)
    assert all(one.high < other.low for one, other in pairwise(queue.snaps))


def test_too_many_holes_of_the_snap_length_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_order, "MAX_BUFFERED_SEGMENTS", 2)
    queue = ReorderQueue(0, 0, start_unknown=False)
    for low in (0, 10, 20):
        queue.add_snapped(low, low + 5)

    assert [(gap.low, gap.high) for gap in queue.snaps] == [(0, 15), (20, 25)]


def test_a_hole_waits_until_it_is_acknowledged_and_settled(window: int) -> None:
    lost = [*HANDSHAKE, a(1000, b"one"), a(1006, b"two")]
    """For a second, which is 1,000 packets of the test, and for 32 packets more where these come later."""
    acks = [b(5000, ack=1009)] * 1001
    reassembler = Reassembler()
    shown: list[tuple[int, int]] = []
    packets = [*lost, *acks]
    for i, packet in enumerate(packets):
        chunks = reassembler.feed(segments([packet], i))
        shown += [(i, int(offset)) for offset in chunks.offset]

    assert shown == [(3, 0), (len(lost) + 1000, 6)]
    assert rows(reassembler.gaps()) == [(0, 0, 3, 3)]
    later = [b(5000, ack=1009, ts_ns=5 * 10**9 + k) for k in range(33)]
    reassembler = Reassembler()
    offsets = [
        reassembler.feed(segments([packet], i)).offset.tolist() for i, packet in enumerate([*lost, acks[0], *later])
    ]
    assert [i for i, found in enumerate(offsets) if found] == [3, len(lost) + 32]


def test_an_acknowledged_hole_does_not_wait_for_ever() -> None:
    """4 MB of the other side pass, all in one millisecond."""
    body = bytes(64 * 1024)
    packets = [*HANDSHAKE, a(1000, b"one"), a(1006, b"two"), b(5000, ack=1009)]
    packets += [b(5000 + k * len(body), body, ack=1009) for k in range(64)]
    reassembler = Reassembler()
    counts = [len(reassembler.feed(segments([packet.but(ts_ns=9)], i)).offset) for i, packet in enumerate(packets)]

    assert [i for i, packet in enumerate(packets) if counts[i] > 1] == [len(packets) - 1]


@pytest.mark.parametrize("late_by", [100, 900])
def test_bytes_that_a_recorder_writes_late_fill_their_hole(late_by: int) -> None:
    """Up to a second: 900 packets of the test, or a second tap that saw it a second later."""
    packets = [*HANDSHAKE, a(1000, b"one"), a(1006, b"two"), *[b(5000, ack=1009)] * late_by]
    late = a(1003, b"mid", ts_ns=5 * 10**6)

    assert read([*packets, late], 50).side() == [(0, b"onemidtwo")]
    assert read([*packets[:5], packets[-1], late.but(ts_ns=10**9 + 5 * 10**6)], 1).side() == [(0, b"onemidtwo")]


def test_a_hole_that_is_not_acknowledged_stays_open() -> None:
    packets = [*HANDSHAKE, a(1000, b"one"), a(1006, b"two"), *[b(5000, ack=1003)] * 500, a(1003, b"mid")]
    seen = read(packets, 50)

    assert seen.side() == [(0, b"onemidtwo")]


def test_a_full_buffer_gives_the_hole_up() -> None:
    packets = [*HANDSHAKE, *(a(1010 + i, b"x") for i in range(out_of_order.MAX_BUFFERED_SEGMENTS * 2))]
    reassembler = Reassembler()
    chunks = reassembler.feed(segments(packets))

    assert chunks.offset.tolist() == [10]
    assert chunks.gap_before.tolist() == [10]
    assert reassembler.counts["reorder_cap"] == 1


def test_the_memory_cap_gives_up_the_oldest_holes() -> None:
    clients = [("10.1.0.1", 1000 + i) for i in range(100)]
    packets: list[Packet] = []
    for client in clients:
        packets.append(Packet(client, B, 99, 0, SYN))
        packets.append(Packet(client, B, 200, 1, ACK, b"z" * 5000))
    reassembler = Reassembler(max_bytes=400_000)
    reassembler.feed(segments(packets))

    assert reassembler.buffered_bytes <= 200_000
    assert reassembler.counts["reorder_cap"] > 0
    reassembler.finish()
    assert sum(flow.bytes[0] for flow in flows_of(reassembler)) == 500_000
    assert reassembler.buffered_bytes == 0


def test_an_acknowledgement_releases_a_start_without_syn() -> None:
    packets = [a(1000, b"ask", ack=5000), *[b(5000, ack=1003)] * 40]
    reassembler = Reassembler()
    shown = [len(reassembler.feed(segments([packet], i))) for i, packet in enumerate(packets)]

    assert sum(shown) == 1


def test_a_flush_releases_a_start_and_bytes_after_an_acknowledged_hole() -> None:
    """A hole that nobody acknowledged may be filled yet."""
    reassembler = Reassembler()
    reassembler.feed(segments([a(1000, b"ask"), a(1010, b"more"), b(5000, ack=1003)], 0))

    assert reassembler.flush_reordering(reassembler.live).buffer.tobytes() == b"ask"
    reassembler.feed(segments([b(5000, ack=1014)], 3))
    assert reassembler.flush_reordering(reassembler.live).buffer.tobytes() == b"more"
    assert rows(reassembler.gaps()) == [(0, 0, 3, 7)]


def test_a_start_without_syn_and_without_acknowledgements_is_released_by_its_bounds() -> None:
    reassembler = Reassembler()
    chunks = reassembler.feed(segments([a(1000 + 10 * i, b"0123456789") for i in range(100)]))

    assert chunks.length.tolist() == [1000]
