"""One direction: in step, after a gap, and a message with a hole."""

import numpy as np
import pytest

from mqpcap.decode import side as side_module
from mqpcap.decode.frames import FoundMessages
from mqpcap.decode.message_buffer import ChunkPackets, PacketIndex
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.side import SYNC, Side
from mqpcap.decode.stream_chunk import StreamChunk
from mqpcap.protocols import protocols
from mqpcap.schema.flaws import Flaw

POLL = bytes.fromhex("00000011 09 0000000000000009 00000000 00000003")
STREAM = POLL * 4
BLIPMQ = Scanners().scanners_for(protocols()["blipmq"])
LAYOUTS = [*BLIPMQ.values()]


def begun() -> Side:
    side = Side(7, 0)
    side.begin(BLIPMQ["c2s"].layout_index, is_at_start=True)
    return side


def chunk(one: int, two: int, gap_after: bool = False) -> StreamChunk:
    """Bytes of the stream, which came in one packet, numbered by the offset."""
    cells = np.array([[one], [two - one], [1000 + one], [one], [0], [one], [0], [0]], np.int64)
    packets = ChunkPackets(PacketIndex(cells), 0, 1)
    return StreamChunk(0, memoryview(STREAM), one, two - one, one, packets, gap_after, False)


def test_what_is_no_whole_message_comes_again() -> None:
    side, found = begun(), FoundMessages()

    assert side.take(chunk(0, 36), LAYOUTS, found) == 21
    assert (side.messages, side.message_end) == (1, 42)
    assert side.since_ns(chunk(0, 36), 21) == 1000


def test_message_with_a_hole_ends_where_its_length_says_and_the_next_is_in_step() -> None:
    side, found = begun(), FoundMessages()

    side.take(chunk(0, 36, gap_after=True), LAYOUTS, found)
    side.take(chunk(40, 84), LAYOUTS, found)

    (in_window, in_copies) = found.take_all(np.frombuffer(STREAM, np.uint8))
    assert in_window.offset.tolist() == [0, 42, 63]
    assert (in_copies.offset.tolist(), in_copies.captured.tolist()) == ([21], [17])
    assert (in_copies.flaw.tolist(), in_copies.op.tolist()) == ([Flaw.TRUNCATED], [9])
    assert (in_copies.first_packet.tolist(), in_copies.last_packet.tolist()) == ([0], [40])
    assert (side.step, found.problems, in_window.resynced.any()) == (SYNC, [], False)


def test_bytes_of_messages_with_a_hole_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 15 bytes before the hole: all, then no more than the head while another message has its 15 bytes."""
    monkeypatch.setattr(side_module, "MAX_PARTIAL_BYTES", 14)
    monkeypatch.setattr(side_module, "HEAD_BYTES", 13)
    sides, found = [begun(), begun(), begun()], FoundMessages()

    for side in sides[:2]:
        side.take(chunk(0, 36, gap_after=True), LAYOUTS, found)
    sides[0].end(found)
    sides[1].end(found)
    sides[2].take(chunk(0, 36, gap_after=True), LAYOUTS, found)
    sides[2].end(found)

    _, in_copies = found.take_all(np.frombuffer(STREAM, np.uint8))
    assert (in_copies.end - in_copies.start).tolist() == [15, 13, 15]
    assert in_copies.captured.tolist() == [15, 15, 15]
    assert found.partial_bytes == 0


def test_after_a_gap_between_messages_a_message_is_searched_for() -> None:
    side, found = begun(), FoundMessages()

    side.take(chunk(0, 21, gap_after=True), LAYOUTS, found)
    side.take(chunk(30, 84), LAYOUTS, found)

    (frames,) = found.take_all(np.frombuffer(STREAM, np.uint8))
    assert frames.offset.tolist() == [0, 42, 63]
    assert frames.gap_before.tolist() == [0, 9, 0]
    assert frames.resynced.tolist() == [False, True, False]
    (problem,) = found.problems
    assert (problem.offset, problem.length, problem.reason, problem.ts_ns) == (30, 12, "search", 1030)


def test_where_the_start_is_not_known_a_message_is_searched_for() -> None:
    """The first bytes say whether it is: its SYN may be recorded between the other side's bytes and them."""
    for start_known in (True, False):
        side, found = Side(7, 0), FoundMessages()
        side.begin(BLIPMQ["c2s"].layout_index)
        first_chunk = chunk(0, 42)
        first_chunk.start_known = start_known
        side.take(first_chunk, LAYOUTS, found)

        (frames,) = found.take_all(np.frombuffer(STREAM, np.uint8))
        assert frames.resynced.tolist() == [not start_known, False]


def test_a_side_given_up_skips_all_and_says_why() -> None:
    side, found = Side(7, 0), FoundMessages()
    side.give_up("foreign")

    assert side.take(chunk(0, 30), [], found) == 30
    side.end(found)

    assert [(p.offset, p.length, p.reason) for p in found.problems] == [(0, 30, "foreign")]
