"""What was sent already: second copies of bytes against the first ones, as far as they are remembered."""

import pickle

import numpy as np
import pytest
from flows import flows_of
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, SYN, B, Packet, a, b, segments
from streams import HANDSHAKE, cut, read, rows

from mqpcap.tcp import history, out_of_order
from mqpcap.tcp.ranges import Block
from mqpcap.tcp.reassembly import Reassembler

COPIES = st.lists(
    st.tuples(st.integers(0, 99), st.integers(1, 60), st.sets(st.integers(0, 59), max_size=6)), max_size=5
)


def fed(*bodies: bytes) -> Reassembler:
    """After a handshake and these segments of A, each a window of its own."""
    assembler, seq = Reassembler(), 1000
    assembler.feed(segments(HANDSHAKE))
    for k, body in enumerate(bodies):
        assembler.feed(segments([a(seq, body, ack=5000)], 3 + k))
        seq += len(body)
    return assembler


@pytest.mark.parametrize("window", [1, 9])
def test_bytes_of_the_same_window_are_not_remembered_for_longer(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_BYTES", 10)
    said = [*HANDSHAKE, *(a(1000 + 5 * k, b"abcde", ack=5000) for k in range(4)), a(1005, b"?????", ack=5000)]
    said.append(a(1010, b"a?cde", ack=5000))
    assembler = Reassembler()
    for at in range(0, len(said), window):
        assembler.feed(segments(said[at : at + window], at))

    assert [(row.offset, row.length) for row in assembler.conflicts()] == [(11, 1)]
    assert assembler.counts["uncompared_bytes"] == 5


@pytest.mark.parametrize("reach", [30, 1 << 16])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_second_copies_are_compared_as_far_as_bytes_are_remembered(
    reach: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 bytes in windows of some size; what is further back than ``reach`` is counted and not compared."""
    monkeypatch.setattr(history, "HISTORY_BYTES", reach)
    stream = bytes(range(100))
    state = pickle.dumps(fed(*(stream[at : at + size] for at in range(0, 100, size))))

    @given(COPIES)
    def check(copies: list[tuple[int, int, set[int]]]) -> None:
        assembler: Reassembler = pickle.loads(state)
        differ, uncompared = 0, 0
        for k, (offset, length, changed) in enumerate(copies):
            body = bytearray(stream[offset : offset + length])
            for at in changed:
                if at < len(body):
                    body[at] ^= 0xFF
            known = range(max(100 - reach, 0), 100)
            differ += sum(at < len(body) and offset + at in known for at in changed)
            uncompared += sum(offset + at not in known for at in range(len(body)))
            assembler.feed(segments([a(1000 + offset, bytes(body), ack=5000)], 200 + k))

        assert flows_of(assembler)[0].conflict == (differ, 0)
        assert sum(row.length for row in assembler.conflicts()) == differ
        assert assembler.counts["uncompared_bytes"] == uncompared

    check()


def test_no_more_than_the_latest_bytes_of_a_side_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_BYTES", 10)
    assembler = fed(*(bytes([k]) * 4 for k in range(9)))

    assert [*assembler._history.blocks[0]] == [Block(26, bytes([6] * 2 + [7] * 4 + [8] * 4))]
    assert assembler._history.byte_count == 10


def test_late_bytes_are_remembered_where_their_surroundings_are() -> None:
    assembler = fed(b"a" * 100)
    assembler._history.add(0, 140, b"late")
    assembler._table.stop_comparing(0)
    assembler._history.add(0, 50, b"gone")

    assert [block.low for block in assembler._history.blocks[0]] == [0, 140]
    assert assembler._history.byte_count == 104


def test_silent_connections_are_forgotten() -> None:
    assembler = fed(b"abc")
    last_ns = assembler._table.flows[0].last_ts_ns

    assembler._history.drop_idle(last_ns)
    assert assembler._history.byte_count == 3
    assembler._history.drop_idle(last_ns + 1)
    assert (assembler._history.blocks, assembler._history.byte_count) == ({}, 0)


def test_a_copy_within_one_window_is_compared_with_bytes_still_in_it() -> None:
    assembler = Reassembler()
    assembler.feed(segments([*HANDSHAKE, a(1000, b"abcdef"), a(1002, b"cXeY"), a(1006, b"g")]))

    assert [(row.offset, row.length) for row in assembler.conflicts()] == [(3, 1), (5, 1)]
    assert assembler._table.sides[0].retransmitted == 2


def test_a_conflict_before_the_history_is_counted_and_not_compared() -> None:
    body = bytes(1000) * 200
    seen = read([*HANDSHAKE, *cut(body, 1000), a(1000, b"\1" * 1000)], 10)

    assert seen.conflicts() == []
    assert seen.flows[0].retransmitted == (1000, 0)
    assert seen.reassembler.counts["uncompared_bytes"] == 1000


@pytest.mark.parametrize("back", [100, 30_000, history.HISTORY_BYTES])
def test_a_conflict_within_the_history_is_found(back: int, window: int) -> None:
    body = np.random.default_rng(1).bytes(100_000)
    other = bytes([body[-back] ^ 1]) + body[100_000 - back + 1 : 100_000 - back + 50]
    seen = read([*HANDSHAKE, *cut(body, 1000), a(1000 + 100_000 - back, other)], window)

    assert seen.conflicts() == [(0, 0, 100_000 - back, 1)]


def test_rows_of_one_conflict_are_bounded() -> None:
    seen = read([*HANDSHAKE, a(1000, bytes(1000)), a(1000, b"\0\1" * 500)])

    assert len(seen.conflicts()) == history.CONFLICT_ROWS
    assert seen.flows[0].conflict == (500, 0)
    assert seen.conflicts()[-1] == (0, 0, 127, 873)


def test_histories_fit_under_their_cap_and_the_oldest_go_first() -> None:
    """40 sides of 1,000 bytes, of which a quarter of 80,000 bytes may hold history: what is forgotten is told."""
    reassembler = Reassembler(80_000)
    sides = [Packet((f"10.0.1.{k}", 1), B, 10, 0, ACK, bytes(1000)) for k in range(40)]
    for k, packet in enumerate(sides):
        reassembler.feed(segments([packet.but(seq=9, flags=SYN, body=b""), packet], 2 * k))
    held = reassembler._history
    reassembler.feed(segments([sides[0].but(body=b"x" * 1000), sides[-1].but(body=b"x" * 1000)], 80))

    assert held.byte_count + len(held.blocks) * history.HISTORY_OVERHEAD <= 20_000
    assert reassembler.counts["history_shrunk"] == 40 - 20_000 // (1000 + history.HISTORY_OVERHEAD)
    assert reassembler.counts["uncompared_bytes"] == 1000
    assert rows(reassembler.conflicts()) == [(39, 0, 0, 1000)]


def test_the_packets_of_a_side_are_stored_once_a_window_however_many_holes_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 50 holes is acknowledged, so that it is given up: else all packets were copied for each of them."""
    monkeypatch.setattr(out_of_order, "LOOKAHEAD_NS", 0)
    sides: list[int] = []
    append = history.History._append_packets
    monkeypatch.setattr(history.History, "_append_packets", lambda self, *x: (sides.append(x[0]), append(self, *x)))
    packets = [*HANDSHAKE]
    for k in range(1, 51):
        packets += [a(1000 + 10 * k, b"abcde", ack=5000), b(5000, b"", ack=1005 + 10 * k)]
    assembler = Reassembler()
    assembler.feed(segments(packets))

    held = assembler._history
    (blocks,) = held.blocks.values()
    assert len(blocks) > 20
    assert len(sides) == 1
    original = held.original(sides[0], 252)
    assert original is not None and (original.offset, original.length) == (250, 5)
    assert held.original(sides[0], 257) is None
