"""Packets of a chunk, and the messages found in them."""

import io
import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

from mqpcap.decode.framing import Framer
from mqpcap.decode.message_buffer import (
    INITIAL_CAPACITY,
    NAMES,
    NUMBER,
    ChunkPackets,
    MessageBuffer,
    PacketIndex,
    ScanHits,
)
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tcp.reassembly import Reassembler

# Offset, size, time, number, file, order, acknowledgement of four packets; the third came last.
PACKETS = np.array(
    [
        [100, 110, 120, 130],
        [10, 10, 10, 10],
        [1, 2, 9, 4],
        [11, 12, 19, 14],
        [0, 0, 0, 0],
        [0, 1, 3, 2],
        [-7, 0, 90, 50],
        [0, 0, 0, 0],
    ],
    np.int64,
)


def view(*values: int) -> memoryview:
    return memoryview(np.array(values, np.int64))


def put(rows: MessageBuffer, spans: list[tuple[int, int]], gap: int = 0, resynced: bool = False) -> None:
    """Messages from and to stream offsets: 1000 less in the buffer they were found in, 5 more in that of the rows."""
    n = len(spans)
    starts, ends = ([at - 1000 for at in side] for side in zip(*spans, strict=True))
    cells = np.array([starts, ends, range(n), range(7, 7 + n), [0] * n], np.int64)
    found = ScanHits(memoryview(cells), view(*range(40, 40 + n)))
    rows.put(found, n, packets(PACKETS), -1000, 5, 3, 1)
    rows.mark(len(rows) - n, gap, resynced)


def packets(array: NDArray[np.int64], first: int = 0, count: int = 4) -> ChunkPackets:
    return ChunkPackets(PacketIndex(array), first, count)


def test_packet_of_an_offset() -> None:
    assert [packets(PACKETS).packet_at(at) for at in (90, 100, 109, 110, 139, 500)] == [0, 0, 0, 1, 3, 3]
    assert [packets(PACKETS, 1, 2).packet_at(at) for at in (100, 110, 139)] == [0, 0, 1]


def test_newest_is_the_packet_that_came_last_by_file_and_number() -> None:
    some = packets(PACKETS)
    assert (some.last_captured(0, 3), some.last_captured(0, 1), some.last_captured(3, 3)) == (2, 1, 3)
    assert packets(PACKETS, 1, 3).last_captured(0, 2) == 1

    later_file = PACKETS.copy()
    later_file[4, 0] = 1
    assert packets(later_file).last_captured(0, 3) == 0


def test_a_message_is_complete_with_the_packet_that_completes_its_record() -> None:
    """The first two packets and a third without bytes of its own, which has the end of the record, are one record."""
    of_record = PACKETS.copy()
    of_record[0, 2], of_record[1, 2] = 120, 0
    of_record[7] = 2, 1, 0, 0
    rows = MessageBuffer()
    cells = np.array([[100, 105], [105, 118], [0, 0], [7, 7], [0, 0]], np.int64)
    rows.put(ScanHits(memoryview(cells), view(40)), 2, packets(of_record), 0, 0, 3, 1)
    found = rows.take_all()

    assert found["first_packet"].tolist() == [11, 11]
    assert found["last_packet"].tolist() == [19, 19]
    assert found["last_ack"].tolist() == [90, 90]
    assert packets(of_record).completing(119) == 2


def test_messages_say_where_they_are_and_when_they_came() -> None:
    rows = MessageBuffer()
    put(rows, [(100, 105), (105, 115), (115, 140)], gap=8, resynced=True)
    found = rows.take_all()

    assert list(found) == list(NAMES)
    assert {name: column.tolist() for name, column in found.items()} == {
        "start": [-895, -890, -880], "end": [-890, -880, -855], "layout": [40, 41, 42], "op": [7, 8, 9],
        "flaw": [0, 0, 0], "flow": [3, 3, 3], "side": [1, 1, 1], "offset": [100, 105, 115], "captured": [5, 10, 25],
        "ts_ns": [1, 1, 2], "end_ts_ns": [1, 2, 9], "first_packet": [11, 11, 12], "last_packet": [11, 12, 19],
        "first_file": [0, 0, 0], "gap_before": [8, 0, 0], "resynced": [True, False, False],
        "first_ack": [-7, -7, 0], "last_ack": [-7, 0, 50],
    }  # fmt: skip


def test_room_grows_and_what_was_taken_stays() -> None:
    rows = MessageBuffer()
    for k in range(1000):
        put(rows, [(100 + k % 20, 101 + k % 20)])
    rows.add(dict(zip(NAMES, range(len(NAMES)), strict=True)))
    first = rows.take_all()
    put(rows, [(130, 140)])

    assert (len(rows), len(first["offset"])) == (1, 1001)
    assert first["offset"].tolist() == [*sorted(100 + k % 20 for k in range(1000)), 7]  # which came last
    assert rows.take_all()["offset"].tolist() == [130]


def test_packets_survive_pickling() -> None:
    again = pickle.loads(pickle.dumps(packets(PACKETS, 1, 2)))

    assert again.value(NUMBER, 1) == 19
    assert again.array().tolist() == PACKETS[:, 1:3].tolist()


def test_packets_outside_the_index_are_refused() -> None:
    with pytest.raises(IndexError):
        packets(PACKETS, 2, 3)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return obj.name if isinstance(obj, MessageQueue) else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> MessageQueue:
        return protocols()[pid]


def test_a_framer_that_has_found_messages_survives_pickling() -> None:
    """A stream over finished files keeps its state between them."""
    framer = Framer(protocols())
    rows, _ = framer.output.buffer_for("flymq", memoryview(b""))
    put(rows, [(100, 110)])
    assert [len(found.start) for found in framer.output.take_all(np.empty(0, np.uint8))] == [1]

    out = io.BytesIO()
    _Pickler(out).dump(framer)
    again = _Unpickler(io.BytesIO(out.getvalue())).load()

    assert isinstance(again, Framer)
    assert again.finish(Reassembler().flows) == []


def test_messages_that_are_added_one_by_one_make_room() -> None:
    rows = MessageBuffer()
    for k in range(2 * INITIAL_CAPACITY + 1):
        rows.add(dict.fromkeys(NAMES, k))

    assert rows.take_all()["gap_before"].tolist() == [*range(2 * INITIAL_CAPACITY + 1)]
