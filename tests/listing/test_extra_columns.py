"""Numbers of connections, and bytes of messages, beside what the tables keep."""

from pathlib import Path
from typing import Any

import pytest
from torture import ACK, SYN, Segment, blipmq_message, pcap
from truths import streams

from mqpcap.capture import captures
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import (
    BYTES,
    LAYOUT,
    NUMBERED,
    OTHER_PROTOCOL,
    VARIANT,
    WITH_BYTES,
    PacketFinder,
    PacketPayload,
)
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.protocols import protocols
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import CONNECTION_NUMBER

PCAPS = Path(__file__).parents[2] / "pcaps"
Rows = list[dict[str, Any]]


def read(path: Path, hooks: StageHooks = NUMBERED) -> tuple[Rows, Rows]:
    """The rows of ``messages`` and of ``connections``."""
    rows: dict[str, Rows] = {"messages": [], "connections": []}

    def take(output: Output) -> None:
        rows.get(output.table, []).extend(output.rows.to_pylist())

    (capture,) = captures([str(path)]).captures
    CapturePipeline(capture, Options(), take, hooks=hooks).run()
    return rows["messages"], rows["connections"]


@pytest.mark.parametrize("name", ["blipmq/qos1", "flymq/tls", "fq/session", "kokaq/doc_session"])
def test_a_number_is_the_place_among_connections_by_their_first_packets(name: str) -> None:
    messages, connections = read(PCAPS / f"{name}.pcap")

    connections.sort(key=lambda row: row["first_ts_ns"])
    numbers = {row["connection_id"]: row[CONNECTION_NUMBER] for row in connections}
    assert list(numbers.values()) == list(range(1, len(connections) + 1))
    assert messages and all(row[CONNECTION_NUMBER] == numbers[row["connection_id"]] for row in messages)


def test_foreign_protocols_are_named_and_supported_are_not() -> None:
    """Four of the five connections are TLS."""
    _, connections = read(PCAPS / "flymq/tls.pcap")

    names = [row[OTHER_PROTOCOL] for row in connections]
    assert sorted(names, key=str) == [None, "TLS", "TLS", "TLS", "TLS"]
    assert [row["protocol"] is None for row in connections] == [name is not None for name in names]


def test_bytes_are_those_of_the_stream() -> None:
    """Beside a naive reassembly; what messages were read as are names of the protocol's layouts and classes."""
    path = PCAPS / "blipmq/qos1.pcap"
    known = {
        (key[0], direction): data
        for key, sides in streams(path.read_bytes()).items()
        for direction, data in zip(("c2s", "s2c"), sides, strict=True)
    }
    layouts = {layout.name for layout in protocols()["blipmq"].layouts}

    messages, _ = read(path, WITH_BYTES)

    for row in messages:
        client = row["src_port"] if row["direction"] == "c2s" else row["dst_port"]
        begin = row["stream_offset"]
        assert row[BYTES] == known[client, row["direction"]][begin : begin + row["frame_len"]]
        assert row[LAYOUT] in layouts and row[VARIANT]


MESSAGES = [blipmq_message(i) for i in range(3)]
STREAM = b"".join(MESSAGES)
FIRST, SECOND = len(MESSAGES[0]), len(MESSAGES[0]) + len(MESSAGES[1])


def session(folder: Path, *spans: tuple[int, int]) -> Path:
    """A handshake, packets 1 and 2, then stretches of the client's stream."""
    packets = [Segment(seq=0, flags=SYN), Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True)]
    packets += [Segment(STREAM[begin:end], 1 + begin, 1) for begin, end in spans]
    path = folder / "session.pcap"
    path.write_bytes(pcap(packets, 5555))
    return path


def test_of_a_message_with_a_hole_there_are_the_bytes_in_front_of_it(tmp_path: Path) -> None:
    hole = FIRST + 15, SECOND - 2
    path = session(tmp_path, (0, hole[0]), (hole[1], len(STREAM)))

    messages, _ = read(path, WITH_BYTES)

    rows = {row["stream_offset"]: row for row in messages}
    assert rows[0][BYTES] == MESSAGES[0]
    assert (rows[FIRST]["flaw"], rows[FIRST][BYTES]) == ("truncated", STREAM[FIRST : hole[0]])
    assert rows[FIRST]["frame_len"] == 15 + 2  # what was captured of it, on both sides of the hole


@pytest.mark.parametrize(("packet", "length"), [(1, 0), (3, 10), (4, len(STREAM) - 10), (5, None)])
def test_a_packet_is_where_it_is(packet: int, length: int | None, tmp_path: Path) -> None:
    """Packets are a millisecond apart; there is no fifth."""
    (capture,) = captures([str(session(tmp_path, (0, 10), (10, len(STREAM))))]).captures
    finder = PacketFinder(packet)

    CapturePipeline(capture, Options(), lambda output: None, hooks=StageHooks(packets=finder.add)).run()

    ts_ns = 1_700_000_000_000_000_000 + (packet - 1) * 1_000_000
    place = PacketPayload(0, ts_ns, "10.0.0.1", 40000, "10.0.0.2", 5555, length or 0)
    assert finder.payloads == ([] if length is None else [place])


def test_a_packet_without_tcp_has_no_ports(tmp_path: Path) -> None:
    path = session(tmp_path, (0, 10))
    data = bytearray(path.read_bytes())
    data[24 + 16 + 14 + 9] = 17  # the first packet's IP header says UDP
    path.write_bytes(data)
    (capture,) = captures([str(path)]).captures
    finder = PacketFinder(1)

    CapturePipeline(capture, Options(), lambda output: None, hooks=StageHooks(packets=finder.add)).run()

    assert finder.payloads == [PacketPayload(0, 1_700_000_000_000_000_000)]
