"""Reassembly forgets connections that are over: the rest is read as before."""

import pickle
from dataclasses import fields
from random import Random

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, FIN, RST, SYN, B, Packet, segments

from mqpcap.tcp import eviction, out_of_order
from mqpcap.tcp.chunks import StreamChunks, StreamRange
from mqpcap.tcp.eviction import IDLE_TIMEOUT_NS
from mqpcap.tcp.flow_table import CLOSED_TIMEOUT_NS, MAX_HOLE, STALE_NS
from mqpcap.tcp.flows import FlowColumns
from mqpcap.tcp.reassembly import Reassembler

WINDOW_NS = 20 * 1_000_000_000
LEFT_OVER = 3

Rows = dict[int, list[object]]


def session(random: Random, number: int, shared: bool) -> list[Packet]:
    """A connection: with or without its beginning and end, some segments lost, twice, changed or out of order.

    One with shared addresses and ports has its SYN, as without one it would go on with the connection before.
    """
    client = ("10.2.0.1", 40_000) if shared else (f"10.1.{number >> 8}.{number & 255}", 40_000 + number % 3)
    first = seq = 1000 + number * 100_000
    sent: list[Packet] = []
    if shared or random.random() < 0.8:
        sent += [Packet(client, B, seq - 1, 0, SYN), Packet(B, client, 4999, seq, SYN | ACK)]
    for k in range(random.randrange(12)):
        body = bytes([k]) * random.randrange(1, 9)
        sent.append(Packet(client, B, seq, 5000, ACK, body))
        if random.random() < 0.1:
            sent[-1] = sent[-1].but(wire_length=len(body) + 5)
        seq += len(body)
        if random.random() < 0.3:
            sent.append(Packet(B, client, 5000, seq, ACK))
        if random.random() < 0.2:
            again = random.choice(sent)
            sent.append(again.but(body=bytes(len(again.body))))
    end = random.random()
    if end < 0.4:
        sent += [Packet(client, B, seq, 5000, FIN | ACK), Packet(B, client, 5000, seq + 1, FIN | ACK)]
    elif end < 0.6:
        sent.append(Packet(client, B, seq, 5000, RST))
    sent = [packet for packet in sent if packet.seq == first - 1 or random.random() > 0.1]
    for _ in range(len(sent) // 4):
        i = random.randrange(1, max(len(sent) - 1, 2))
        sent[i : i + 2] = sent[i : i + 2][::-1]
    return sent


def windows(random: Random, count: int) -> list[list[Packet]]:
    """Connections begin in every window and last for up to three; then two days pass, and the same again."""
    found: list[list[Packet]] = []
    for half in (0, 1):
        part: list[list[Packet]] = [[] for _ in range(count + 3)]
        for number in range(half * count * 6, (half + 1) * count * 6):
            packets = session(random, number, shared=random.random() < 0.1)
            each = max(1, -(-len(packets) // random.randrange(1, 4)))
            for k in range(0, len(packets), each):
                part[number // 6 - half * count + k // each] += packets[k : k + each]
        for i, window in enumerate(part):
            begin_ns = half * 2 * IDLE_TIMEOUT_NS + i * WINDOW_NS
            found.append([packet.but(ts_ns=begin_ns + k * 1_000_000) for k, packet in enumerate(window)])
    return found


def timed_out(reassembler: Reassembler) -> np.ndarray:
    """Connections that passed their timeout, and all before them with the same addresses and ports."""
    table = reassembler._table
    is_over = eviction._is_idle(table, reassembler._now_ns)
    for ancestor in eviction.ancestors(table.flow_array["previous"][: table.flow_count]):
        is_over &= (ancestor < 0) | is_over[ancestor]
    numbers = np.sort(reassembler.flows.numbers(np.flatnonzero(is_over)))
    return numbers[numbers >= 0]


class Reader:
    """What is read of an Reassembler, by connection_id."""

    def __init__(self) -> None:
        self.reassembler = Reassembler()
        self.packet_count = 0
        self.found: Rows = {}

    def feed(self, window: list[Packet]) -> None:
        self._take(self.reassembler.feed(segments(window, self.packet_count)))
        self.packet_count += len(window)

    def _take(self, chunks: StreamChunks) -> None:
        ids = self.ids()
        hard = chunks.gap_after | chunks.ended
        done = np.where(hard, chunks.length, np.maximum(chunks.length - LEFT_OVER, 0))
        for i, length in enumerate(done.tolist()):
            at, side = int(chunks.start[i]), int(chunks.side[i])
            rows = self.found.setdefault(int(ids[chunks.flow[i]]), [])
            for k in range(length):
                rows.append((side, int(chunks.offset[i]) + k, int(chunks.buffer[at + k])))
        self.reassembler.retain(chunks, done)

    def ids(self) -> dict[int, int]:
        """Connection ids by number."""
        live = self.reassembler.live
        return dict(zip(live.tolist(), self.reassembler.flows.columns(live).connection_ids().tolist(), strict=True))

    def finish(self) -> Rows:
        """All that there is to know in the end."""
        self._take(self.reassembler.finish())
        self._tell(self.reassembler.live)
        return {number: sorted(map(repr, rows)) for number, rows in self.found.items()}

    def forget(self) -> None:
        over = timed_out(self.reassembler)
        self._take(self.reassembler.end(over))
        self._tell(over)
        self.reassembler.forget(over)
        self.reassembler = pickle.loads(pickle.dumps(self.reassembler))

    def _tell(self, over: np.ndarray) -> None:
        columns = self.reassembler.flows.columns(over)
        ids = self.ids()
        for k, flow in enumerate(over.tolist()):
            self.found.setdefault(ids[flow], []).append(_row(columns, k))
        for name, ranges in (
            ("gap", self.reassembler.final_gaps(over)),
            ("late", self.reassembler.late()),
            ("conflict", self.reassembler.conflicts()),
        ):
            for flow, row in _spots(ranges):
                self.found.setdefault(int(ids[flow]), []).append((name, *row))


def _row(columns: FlowColumns, flow: int) -> tuple[object, ...]:
    return tuple(getattr(columns, field.name)[flow].tolist() for field in fields(columns))


def _spots(ranges: list[StreamRange]) -> list[tuple[int, tuple[object, ...]]]:
    return [(row.flow, row[1:]) for row in ranges]


@examples(20)
@given(st.integers(0, 1 << 30))
def test_forgotten_connections_change_no_other_connection(seed: int) -> None:
    """Connections of every kind, forgotten when over, the state through a pickle after each window."""
    traffic = windows(Random(seed), 5)
    one, two = Reader(), Reader()
    most = 0
    for window in traffic:
        one.feed(window)
        two.feed(window)
        two.forget()
        most = max(most, len(two.reassembler.live))

    assert most < len(one.reassembler.flows)
    assert two.finish() == one.finish()


@pytest.mark.parametrize(
    ("one", "two", "silent_ns"),
    [
        (FIN, FIN, CLOSED_TIMEOUT_NS),
        (RST, ACK, CLOSED_TIMEOUT_NS),
        (FIN, ACK, IDLE_TIMEOUT_NS),
        (ACK, ACK, IDLE_TIMEOUT_NS),
    ],
)
@pytest.mark.parametrize("bodies", [(b"", b""), (b"x", b""), (b"", b"y")])
def test_when_a_connection_is_over(one: int, two: int, silent_ns: int, bodies: tuple[bytes, bytes]) -> None:
    """Without a byte of payload an hour is enough."""
    limit_ns = silent_ns if any(bodies) else min(silent_ns, STALE_NS)
    client, seq, ack = ("10.0.0.9", 1), 10 + len(bodies[0]), 100 + len(bodies[1])
    opening = [Packet(client, B, 9, 0, SYN), Packet(B, client, 99, 10, SYN | ACK)]
    spoken = [Packet(client, B, 10, 100, ACK, bodies[0]), Packet(B, client, 100, seq, ACK, bodies[1])]
    ending = [Packet(client, B, seq, ack, one | ACK), Packet(B, client, ack, seq + 1, two | ACK)]
    reassembler = Reassembler()
    reassembler.feed(segments([packet.but(ts_ns=0) for packet in opening + spoken + ending]))

    reassembler.feed(segments([Packet(("10.0.0.8", 1), B, 9, 0, SYN, ts_ns=limit_ns)]))
    assert timed_out(reassembler).tolist() == []
    reassembler.feed(segments([Packet(("10.0.0.8", 1), B, 9, 0, ACK, ts_ns=limit_ns + 1)]))
    assert timed_out(reassembler).tolist() == [0]


def test_connections_of_one_tuple_and_time_stay_apart_when_one_is_forgotten() -> None:
    """Two with the same first time: the second is number 1 among equals, also without the first."""
    client = ("10.0.0.9", 1)
    packets = [Packet(client, B, 9, 0, SYN, ts_ns=5), Packet(client, B, 9 << 20, 0, SYN, ts_ns=5)]
    reassembler = Reassembler()
    reassembler.feed(segments([*packets, Packet(client, B, (9 << 20) + 1, 0, ACK, b"x", ts_ns=CLOSED_TIMEOUT_NS)]))
    reassembler.feed(segments([Packet(("10.0.0.8", 1), B, 9, 0, SYN, ts_ns=CLOSED_TIMEOUT_NS + 6)]))
    ids = reassembler.flows.columns(reassembler.live).connection_ids().tolist()

    over = timed_out(reassembler)
    reassembler.end(over)
    reassembler.forget(over)

    assert over.tolist() == [0]
    assert reassembler.live.tolist() == [1, 2]
    assert reassembler.flows.columns(reassembler.live).connection_ids().tolist() == ids[1:]
    reassembler.feed(segments([Packet(client, B, (9 << 20) + 2, 0, ACK, b"y", ts_ns=CLOSED_TIMEOUT_NS + 7)]))
    assert reassembler.flows.columns(np.array([1, 2])).bytes[:, 0].tolist() == [2, 0]
    with pytest.raises(KeyError):
        reassembler.flows.columns(np.array([0]))


def test_a_connection_is_evicted_with_those_it_replaced() -> None:
    """The clock was set back between them: evicted alone, it would leave the tuple to the older one."""
    client, other = ("10.0.0.9", 1), ("10.0.0.8", 1)
    older = Packet(client, B, 9, 0, SYN, ts_ns=CLOSED_TIMEOUT_NS)
    newer = Packet(client, B, 9 << 20, 0, SYN, ts_ns=0)
    reset = newer.but(seq=(9 << 20) + 1, flags=RST)
    reassembler = Reassembler()

    reassembler.feed(segments([older, newer, reset, Packet(other, B, 9, 0, SYN, ts_ns=2 * CLOSED_TIMEOUT_NS)]))

    assert timed_out(reassembler).tolist() == []
    assert reassembler.eviction_candidates(0, 100).tolist() == [0, 1]


def test_forgotten_connections_take_their_history_along() -> None:
    """Bytes to compare retransmissions with count against a cap that all share: they are given back."""
    reassembler = Reassembler()
    for k in range(20):
        client = (f"10.0.1.{k}", 1)
        packets = [Packet(client, B, 9, 0, SYN), Packet(client, B, 10, 0, ACK, bytes(1000))]
        reassembler.feed(segments([packet.but(ts_ns=k * (IDLE_TIMEOUT_NS + 1)) for packet in packets]))
        over = timed_out(reassembler)
        reassembler.end(over)
        reassembler.forget(over)
        assert (len(reassembler.live), reassembler._history.byte_count, len(reassembler._history.blocks)) == (
            1,
            1000,
            1,
        )


@pytest.mark.parametrize("pause_ns", [STALE_NS, STALE_NS + 1])
def test_history_of_a_silent_connection_waits_for_an_hour(pause_ns: int) -> None:
    """What comes again later with other bytes, and after a hole, reads as if nothing had been forgotten."""
    client, other = ("10.0.0.9", 1), ("10.0.0.8", 1)
    opening = [Packet(client, B, 9, 0, SYN), Packet(B, client, 99, 10, SYN | ACK)]
    before = [Packet(client, B, 10, 100, ACK, bytes(1000)), Packet(client, B, 1030, 100, ACK, b"behind a hole")]
    meanwhile = [Packet(other, B, 9, 0, SYN, ts_ns=pause_ns)]
    again = [Packet(client, B, 510, 100, ACK, b"other" * 100), Packet(client, B, 1010, 100, ACK, b"into the hole, on")]
    one, two = Reader(), Reader()
    for window in ([packet.but(ts_ns=0) for packet in opening + before], meanwhile):
        one.feed(window)
        two.feed(window)
        two.forget()
    kept_bytes = two.reassembler._history.byte_count
    for reader in (one, two):
        reader.feed([packet.but(ts_ns=pause_ns) for packet in again])

    assert kept_bytes == (1000 if pause_ns == STALE_NS else 0)
    assert (two.reassembler.counts["uncompared_bytes"] > 0) == (pause_ns > STALE_NS)
    assert two.reassembler.counts == one.reassembler.counts
    assert two.finish() == one.finish()


def test_gaps_of_a_live_connection_are_reported_once_nothing_can_fill_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP sends nothing again that lies 2**30 bytes back."""
    monkeypatch.setattr(out_of_order, "LOOKAHEAD_NS", 0)
    client = ("10.0.0.9", 1)

    def at(offset: int) -> Packet:
        return Packet(client, B, (10 + offset) & 0xFFFFFFFF, 100, ACK, b"z")

    def acknowledged(offset: int) -> list[Packet]:
        return [Packet(B, client, 100, (10 + offset) & 0xFFFFFFFF, ACK)] * 40

    reassembler = Reassembler()
    start = [Packet(client, B, 9, 0, SYN), Packet(B, client, 99, 10, SYN | ACK)]
    reassembler.feed(segments([*start, at(1), *acknowledged(2)]))
    none = np.zeros(0, np.int64)
    assert len(reassembler.gaps()) == 1
    assert len(reassembler.final_gaps(none)) == 0
    reassembler.forget(none)
    for end in range(MAX_HOLE, (1 << 30) + 1, MAX_HOLE):
        reassembler.feed(segments([at(end), *acknowledged(end + 1)]))
    final = reassembler.final_gaps(none)
    reassembler.forget(none)

    assert [(row.offset, row.length) for row in final] == [(0, 1)]
    left = reassembler.gaps()
    assert [(row.offset, row.length) for row in left[:2]] == [(2, MAX_HOLE - 2), (MAX_HOLE + 1, MAX_HOLE - 1)]
