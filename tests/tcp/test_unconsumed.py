"""Bytes that the reader left over, shown again with the next bytes of their side."""

import numpy as np
from segments import a, b, segments
from streams import HANDSHAKE, cut, read

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


def test_what_lies_behind_the_cut_is_shown_again() -> None:
    """The reader is done with four bytes of three pieces: the second is cut."""
    assembler = Reassembler()
    chunks = assembler.feed(segments([*HANDSHAKE, *(a(1000 + 3 * k, b"abc", ack=5000) for k in range(3))]))
    assembler.retain(chunks, np.array([4]))
    again = assembler.feed(segments([a(1009, b"d", ack=5000)], 6))

    assert (again.offset.tolist(), again.buffer.tobytes()) == ([4], b"bcabcd")
    assert (again.piece_offset.tolist(), again.piece_packet_number.tolist()) == ([4, 6, 9], [5, 6, 7])
