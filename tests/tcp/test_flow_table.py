"""The table of connections, and the walk over segments: which connection a packet is of, against a dictionary."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, FIN, RST, SYN, A, B, Packet, a, b, segments
from streams import HANDSHAKE, read

from mqpcap.pipeline import FLOW_BYTES
from mqpcap.tcp import flow_table
from mqpcap.tcp.flow_records import FLOW, NO_OFFSET, SIDE
from mqpcap.tcp.flow_table import FastPath, FlowTable, gather_pieces

HOSTS = [("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1), ("10.0.0.2", 2)]
WAYS = st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)), max_size=30)


def walk(packets: list[Packet], table: FlowTable | None = None) -> tuple[FastPath, FlowTable, int]:
    """The walk, its table, and the row that it stopped at."""
    table = table or FlowTable()
    fast_path = FastPath(table)
    fast_path.load_segments(segments(packets))
    return fast_path, table, fast_path.run(0)


def walked(packets: list[Packet], table: FlowTable | None = None) -> tuple[FlowTable, int]:
    """A table after the walk, and the row that it stopped at."""
    return walk(packets, table)[1:]


@given(WAYS, st.integers(0, 30))
def test_packets_find_their_connections_as_in_a_dictionary(
    ways: list[tuple[tuple[str, int], tuple[str, int]]], at: int
) -> None:
    """Both directions are of one connection, whose sides are apart; also after pickling."""
    known: dict[frozenset[tuple[str, int]], tuple[int, tuple[str, int]]] = {}
    expected, found = [], []
    for one, other in ways:
        flow, sender = known.setdefault(frozenset((one, other)), (len(known), one))
        expected.append((flow, int(one != sender)))
    table = FlowTable()
    for part in (ways[:at], ways[at:]):
        fast_path = FastPath(table)
        fast_path.load_segments(segments([Packet(*way, 0, 0, RST) for way in part]))
        for row in range(len(part)):
            assert fast_path.run(row) == row
            found.append((fast_path.stopped_flow, fast_path.stopped_side))
        table = pickle.loads(pickle.dumps(table))

    assert table.flow_count == table.opened_count == len(known)
    assert found == expected


def test_the_fast_path_without_capacity_goes_on_after_the_table_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_table, "INITIAL_CAPACITY", 4)
    packets = [Packet(("10.0.0.1", port), B, 7, flags=SYN) for port in range(1, 12)]
    fast_path, table, row = walk(packets)
    stops = []
    while row < len(packets):
        assert fast_path.is_full
        stops.append(row)
        fast_path.grow()
        row = fast_path.run(row)

    assert stops == [4, 8]
    assert table.flow_array["connection_number"][:11].tolist() == [*range(11)]
    assert walked(packets, table)[0].flow_count == 11


STOPS = {
    "bytes ahead of the next": a(1005, b"x"),
    "bytes that came before": a(999, b"x"),
    "bytes that the snap length cut": a(1000, b"x", wire_length=2),
    "a reset": a(1000, flags=RST),
    "a SYN of another start": a(77, flags=SYN),
    "a packet after an hour": a(1000, b"x", ts_ns=3_600_003_000_001),
    "a side whose start is unknown": Packet(("10.0.0.3", 1), B, 1, 0, ACK, b"x"),
}


@pytest.mark.parametrize("name", STOPS)
def test_the_fast_path_stops_at_a_packet_of_the_slow_path_and_changes_nothing(name: str) -> None:
    fast_path, table, row = walk([*HANDSHAKE, STOPS[name], a(1000, b"abc")])

    assert (row, table.piece_count, table.ended_count, fast_path.is_full) == (3, 0, 0, False)
    assert table.sides[0].packets == 2


def test_bytes_in_order_are_pieces_and_a_fin_after_them_ends_their_side() -> None:
    table, row = walked([*HANDSHAKE, a(1000, b"ab"), a(1002, b"cde"), a(1005, flags=FIN | ACK, ack=5000)])

    assert row == 6
    pieces = table.piece_array[: table.piece_count]
    assert [pieces[x].tolist() for x in ("side", "offset", "length", "start", "packet_number")] == [
        [0, 0], [0, 2], [2, 3], [0, 2], [4, 5]
    ]  # fmt: skip
    assert (table.pieces_since(0, -1), table.pieces_since(0, 0), table.pieces_since(1, -1)) == ([1, 0], [1], [])
    assert (table.ended[: table.ended_count].tolist(), table.sides[0].fin_offset, table.sides[1].fin_offset) == (
        [0],
        5,
        NO_OFFSET,
    )


def test_pieces_of_earlier_feeds_are_not_reported_again() -> None:
    table, _ = walked([*HANDSHAKE, a(1000, b"ab")])
    table.reset_feed()
    table, _ = walked([a(1002, b"c"), a(1003, b"d")], table)

    assert (table.piece_first, table.piece_count, table.pieces_since(0, -1)) == (1, 2, [1, 0])


def test_a_connection_is_closed_when_both_fins_are_acknowledged() -> None:
    ends = [a(1000, flags=FIN | ACK, ack=5000), b(5000, flags=FIN | ACK, ack=1001), a(1001, ack=5001)]

    assert [walked([*HANDSHAKE, *ends[:k]])[0].flows[0].is_closed for k in range(4)] == [0, 0, 0, 1]


def test_the_highest_acknowledgement_is_kept_also_where_numbers_wrap() -> None:
    table, _ = walked([Packet(flags=RST)])
    for ack in (2**32 - 1, 3, 2**32 - 5):
        table.acknowledge(1, ack)

    assert (table.sides[1].ack, table.sides[1].first_ack) == (3, 2**32 - 1)


def test_a_tuple_used_again_is_found_at_its_newest_connection() -> None:
    table, _ = walked(HANDSHAKE)
    new = FastPath(table).replace(0, 1, 99, 4)
    table.sides[new * 2].base_seq, table.sides[new * 2 + 1].base_seq = 7, 9

    assert (table.flows[new].previous, table.sides[new * 2].port, table.sides[new * 2 + 1].port) == (0, B[1], A[1])
    assert walked([b(7, b"x")], table)[1] == 1
    assert table.sides[new * 2].bytes == 1
    with pytest.raises(KeyError):
        FastPath(table).replace(0, 0, 99, 4)


@given(st.lists(st.tuples(st.sampled_from(["window", "held", "kept"]), st.integers(0, 20), st.integers(0, 9))))
def test_pieces_are_gathered_from_where_they_are(pieces: list[tuple[str, int, int]]) -> None:
    sources = {name: bytes(range(k, k + 30)) for k, name in ((0, "window"), (50, "held"), (100, "kept"))}
    pieces = sorted(pieces, key=lambda piece: piece[0] != "kept")
    order = np.argsort([at % 7 for _, at, _ in pieces], kind="stable").astype(np.int64)
    expected = b"".join(sources[pieces[i][0]][pieces[i][1] :][: pieces[i][2]] for i in order)
    start = np.array([-1 - at if name == "held" else at for name, at, _ in pieces], np.int64)
    length = np.array([size for *_, size in pieces], np.int64)
    out = np.zeros(len(expected) + 1, np.uint8)
    views = [memoryview(sources[name]) for name in ("window", "held", "kept")]
    kept_count = sum(name == "kept" for name, *_ in pieces)

    gather_pieces(memoryview(out), *views, memoryview(order), kept_count, memoryview(start), memoryview(length))

    assert out.tobytes() == expected + b"\0"


@pytest.mark.skipif(not flow_table.COMPILED, reason="Python's slices have bounds of their own")
@pytest.mark.parametrize(("start", "length"), [(0, 4), (3, 1), (-9, 2), (0, 3)])
def test_no_byte_is_gathered_from_outside(start: int, length: int) -> None:
    empty, one = memoryview(b""), memoryview(np.zeros(1, np.int64))
    out = np.zeros(2, np.uint8)

    with pytest.raises(IndexError):
        gather_pieces(
            memoryview(out), memoryview(b"abc"), empty, empty, one, 0, memoryview(np.array([start], np.int64)),
            memoryview(np.array([length], np.int64)),
        )  # fmt: skip


def test_a_flow_takes_no_more_memory_than_is_counted_for_it() -> None:
    """Its record, those of its sides, and up to three places in the index."""
    assert FLOW.itemsize + 2 * SIDE.itemsize + 3 * 8 < FLOW_BYTES


def test_many_flows_are_distinguished() -> None:
    clients = [(f"10.1.{i // 250}.{i % 250}", 1000 + i % 7) for i in range(5000)]
    packets = [Packet(client, B, 100, 0, SYN) for client in clients]
    packets += [Packet(client, B, 101, 1, ACK, str(i).encode()) for i, client in enumerate(clients)]
    seen = read(packets, 3333)

    assert len(seen.flows) == 5000
    assert all(seen.side(flow=i) == [(0, str(i).encode())] for i in range(5000))
