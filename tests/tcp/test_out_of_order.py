"""What a side holds while it is not in order: bytes and holes, against a dictionary and a set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, SYN, a, b, segments

from mqpcap.tcp import out_of_order
from mqpcap.tcp.flow_records import Segment
from mqpcap.tcp.out_of_order import HELD_OVERHEAD, OutOfOrder, OutOfOrderQueue
from mqpcap.tcp.reassembly import Reassembler

HOLES = st.lists(st.tuples(st.integers(-2, 25), st.integers(1, 5)), max_size=12)
PARTS = st.lists(st.tuples(st.integers(1, 40), st.binary(min_size=1, max_size=12)), max_size=12)


def opened() -> Reassembler:
    """After a handshake: A's next byte has the sequence number 1000, as offset 0."""
    assembler = Reassembler()
    assembler.feed(segments([a(999, flags=SYN), b(4999, flags=SYN | ACK, ack=1000), a(1000, ack=5000)]))
    return assembler


def hold(waiting: OutOfOrder, queue: OutOfOrderQueue, offset: int, body: bytes, number: int = 9) -> None:
    segment = Segment(1000 + offset, 5000, ACK, 0, len(body), len(body), number, number, 0)
    waiting.hold(segment, 0, queue, offset, body)


@given(HOLES)
def test_holes_of_the_snap_length_are_those_of_a_set(holes: list[tuple[int, int]]) -> None:
    queue, cut = OutOfOrderQueue(0, 0, starting=False), set[int]()
    for low, length in holes:
        queue.snap(low, low + length)
        cut.update(range(low, low + length))

    assert [offset for offset in range(-9, 80) if queue.is_snapped(offset)] == sorted(cut)
    assert all(one[1] < other[0] for one, other in zip(queue.snaps, queue.snaps[1:], strict=False))


def test_too_many_holes_of_the_snap_length_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_order, "HELD_SEGMENTS", 2)
    queue = OutOfOrderQueue(0, 0, starting=False)
    for low in (0, 10, 20):
        queue.snap(low, low + 5)

    assert queue.snaps == [(0, 15), (20, 25)]


@given(PARTS)
def test_the_first_copy_of_a_held_byte_stays(parts: list[tuple[int, bytes]]) -> None:
    assembler = opened()
    waiting = assembler._out_of_order
    queue, first = waiting.begin(0, 5), dict[int, int]()
    conflicts = again = 0
    for offset, body in parts:
        hold(waiting, queue, offset, body)
        for at, byte in enumerate(body, offset):
            conflicts += first.get(at, byte) != byte
            again += first.get(at) == byte
            first.setdefault(at, byte)

    assert {at: byte for entry in queue.held for at, byte in enumerate(entry[1], entry[0])} == first
    assert [entry[0] for entry in queue.held] == sorted(entry[0] for entry in queue.held)
    assert queue.bytes == len(first) == waiting.held_bytes - HELD_OVERHEAD * len(queue.held)
    side = assembler._table.sides[0]
    assert (side.bytes, side.conflict, side.retransmitted) == (len(first), conflicts, again)


def test_held_bytes_come_out_when_the_hole_is_filled() -> None:
    assembler = opened()
    waiting = assembler._out_of_order
    queue = waiting.begin(0, 5)
    hold(waiting, queue, 3, b"two")
    hold(waiting, queue, 9, b"four")
    waiting.settle(0)
    assert (assembler._table.sides[0].next, assembler.out_of_order()) == (0, {(0, 0): 5})

    hold(waiting, queue, 0, b"one")
    waiting.settle(0)
    assert (assembler._table.sides[0].next, bytes(assembler._history.released)) == (6, b"onetwo")
    assert (waiting.held_bytes, assembler._table.flows[0].out_of_order) == (4 + HELD_OVERHEAD, 1)

    hold(waiting, queue, 6, b"thr")
    waiting.settle(0)
    assert (assembler.out_of_order(), waiting.held_bytes, assembler._table.flows[0].out_of_order) == ({}, 0, 0)


def test_more_held_than_the_cap_allows_gives_up_the_oldest_holes() -> None:
    assembler = opened()
    waiting = OutOfOrder(assembler._table, assembler._history, assembler._gaps, assembler.counts, cap=2 * HELD_OVERHEAD)
    hold(waiting, waiting.begin(0, 5), 100, b"x")
    hold(waiting, waiting.queues[0], 102, b"y")
    waiting.settle(0)

    assert (waiting.held_bytes, assembler.counts["held_cap"]) == (0, 1)
    assert assembler._table.sides[0].missing == 100 + 1


def test_offsets_are_counted_anew_from_a_lower_start() -> None:
    queue = OutOfOrderQueue(0, 0, starting=True)
    queue.held = [(-4, b"ab", 1, 2, 0), (0, b"c", 3, 4, 0)]
    queue.snaps, queue.low, queue.last_ack = [(-2, 0)], -4, 1
    queue.acks.append((7, 1))
    queue.rebase(-4)

    assert [entry[0] for entry in queue.held] == [0, 4]
    assert (queue.snaps, queue.low, [*queue.acks]) == ([(2, 4)], 0, [(7, 5)])
    assert (queue.last_ack, queue.settled) == (5, out_of_order.NONE)
