"""Bytes that the reader left over, shown again with the next bytes of their side."""

import pickle
import tracemalloc

import numpy as np
from segments import SYN, a, b, segments
from streams import HANDSHAKE, cut, read

from mqpcap.tcp.flow_records import PIECE
from mqpcap.tcp.reassembly import Reassembler


def test_a_long_message_is_shown_again_only_when_it_is_whole() -> None:
    body = bytes(range(250)) * 4
    reassembler = Reassembler()
    shown = []
    for i, packet in enumerate([*HANDSHAKE, *cut(body, 100)]):
        chunks = reassembler.feed(segments([packet], i))
        shown += chunks.length.tolist()
        reassembler.retain(chunks, np.zeros(len(chunks), np.int64), np.full(len(chunks), 1000, np.int64))

    assert shown == [100, 1000]
    assert chunks.buffer[chunks.start[0] :][:1000].tobytes() == body


def test_a_gap_shows_what_waits_for_more() -> None:
    packets = [*HANDSHAKE, a(1000, b"abc"), a(1010, b"def"), *[b(5000, ack=1013)] * 40]
    seen = read(packets, 1, left_over=100, wanted=1000)

    assert seen.side() == [(0, b"abc"), (10, b"def")]


def test_kept_bytes_above_the_cap_live_in_a_file() -> None:
    body = np.random.default_rng(2).bytes(400_000)
    seen = read([*HANDSHAKE, *cut(body, 1000)], 20, left_over=10**9, max_bytes=100_000)

    assert seen.side() == [(0, body)]
    assert seen.reassembler.counts["kept_in_file"] > 0


def test_bytes_after_the_consumed_ones_are_returned_again() -> None:
    """The reader is done with four bytes of three pieces: the second is cut."""
    assembler = Reassembler()
    chunks = assembler.feed(segments([*HANDSHAKE, *(a(1000 + 3 * k, b"abc", ack=5000) for k in range(3))]))
    assembler.retain(chunks, np.array([4]))
    again = assembler.feed(segments([a(1009, b"d", ack=5000)], 6))

    assert (again.offset.tolist(), again.buffer.tobytes()) == ([4], b"bcabcd")
    assert (again.piece_offset.tolist(), again.piece_packet_number.tolist()) == ([4, 6, 9], [5, 6, 7])


def test_a_feed_does_not_copy_the_pieces_of_a_message_that_waits() -> None:
    """A message in n packets would cost n in each window. What is bounded stays: the latest 64 kB of each side."""
    assembler = Reassembler()
    packets = [*HANDSHAKE, *(a(1000 + k, b"x", ack=5000) for k in range(80_000))]
    chunks = assembler.feed(segments(packets))
    assembler.retain(chunks, np.zeros(1, np.int64), np.array([90_000]))
    next_packet = segments([a(81_000, b"y", ack=5000)], len(packets))

    tracemalloc.start()
    try:
        hidden = assembler.feed(next_packet)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(hidden) == 0
    assert peak < 80_000 * PIECE.itemsize


def test_messages_that_wait_come_whole_after_another_connection_is_forgotten() -> None:
    """Two sides wait for 3,000 bytes, 30 packets a feed each; halfway an older connection goes: their index changes."""
    assembler = Reassembler()
    assembler.feed(segments([a(7, flags=SYN).but(src=("10.0.0.9", 7)), *HANDSHAKE]))
    shown = []
    for first in range(0, 3000, 30):
        both = [
            packet
            for k in range(first, first + 30)
            for packet in (a(1000 + k, bytes([k % 251]), ack=5000), b(5000 + k, bytes([k % 241]), ack=1000))
        ]
        chunks = assembler.feed(segments(both, 4 + 2 * first))
        shown += chunks.length.tolist()
        assembler.retain(chunks, np.zeros(len(chunks), np.int64), np.full(len(chunks), 3000, np.int64))
        if first == 1500:
            assembler = pickle.loads(pickle.dumps(assembler))
            assembler.end(np.array([0]))
            assembler.forget(np.array([0]))

    assert shown == [30, 30, 3000, 3000]
    assert chunks.buffer.tobytes() == bytes(k % 251 for k in range(3000)) + bytes(k % 241 for k in range(3000))
    assert chunks.piece_packet_number.tolist() == [*range(5, 6005, 2), *range(6, 6006, 2)]
    assert chunks.piece_offset.tolist() == [*range(3000)] * 2
