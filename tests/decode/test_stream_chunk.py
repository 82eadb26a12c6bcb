"""Chunks of stream bytes: copies that outlive the window, and chunks made one."""

import numpy as np
from segments import ACK, FIN, SYN, a, b, segments

from mqpcap.decode.framing import Framer
from mqpcap.decode.message_buffer import ChunkPackets, PacketIndex
from mqpcap.decode.stream_chunk import StreamChunk, copies, join, joined
from mqpcap.protocols import protocols
from mqpcap.tcp.reassembly import Reassembler

# Offset, size, time, number, file, order, acknowledgement of three packets that carry the stream bytes 100 to 130; each
# is complete by itself.
PACKETS = np.array(
    [[100, 110, 120], [10, 10, 10], [1, 2, 3], [11, 12, 13], [0, 0, 0], [0, 1, 2], [5, 5, 8], [0, 0, 0]], np.int64
)
DATA = bytes(range(30))


def chunk(one: int = 0, two: int = 30, side: int = 0, is_last: bool = False) -> StreamChunk:
    """The bytes from ``one`` to ``two``, whole packets, in a buffer that has four bytes in front."""
    packets = ChunkPackets(PacketIndex(PACKETS), one // 10, (two - one) // 10)
    return StreamChunk(side, memoryview(bytes(4) + DATA), 4 + one, two - one, 100 + one, packets, is_last, False)


def test_copy_has_the_packets_of_its_bytes_and_no_others() -> None:
    """A copy is joined with the chunk that goes on behind it: packets that both had would be out of order."""
    copy = chunk().copy(5, 15)

    assert (copy.offset, bytes(copy.data)) == (105, DATA[5:15])
    assert copy.packets.array()[3].tolist() == [11, 12]

    again = join([chunk().copy(0, 10), chunk(10, 30, is_last=True)])
    assert (again.offset, bytes(again.data), again.is_last) == (100, DATA, True)
    assert again.packets.array()[3].tolist() == [11, 12, 13]


def test_chunks_of_a_window_share_one_copy() -> None:
    some = copies([chunk(0, 10), chunk(20, 30, is_last=True)])

    assert [bytes(x.data) for x in some] == [DATA[:10], DATA[20:]]
    assert some[0].buffer is some[1].buffer
    assert [x.packets.array()[3].tolist() for x in some] == [[11], [13]]


def test_chunks_that_follow_each_other_are_made_one() -> None:
    found = joined([chunk(0, 10), chunk(0, 10, side=1), chunk(10, 20)])

    assert [(x.side, x.offset, x.length) for x in found] == [(0, 100, 20), (1, 100, 10)]


def test_packets_of_a_range() -> None:
    """Time, number and file: of the packet with the first byte, and of the one captured last among those of a range."""
    late = PACKETS.copy()
    late[2:4, 0] = 9, 19  # the first packet came again, last
    shown = StreamChunk(0, memoryview(DATA), 0, 30, 100, ChunkPackets(PacketIndex(late), 0, 3), False, False)

    assert shown.first_packet(115) == (2, 12, 0)
    assert shown.last_packet(105, 130) == (9, 19, 0)
    assert shown.last_packet(110, 130) == (3, 13, 0)


def test_copies_keep_the_bytes_in_front_of_an_end_without_any() -> None:
    """Nobody knows the connection yet (fq's word begins so): the client goes on in the window that ends the server."""
    framer, assembler = Framer(protocols()), Reassembler()
    said = [a(999, flags=SYN), b(4999, ack=1000, flags=SYN | ACK), a(1000, b"\xcc", ack=5000), b(5000, b"x", ack=1001)]
    for window in (said, [a(1001, b"\x50", ack=5001), b(5001, ack=1002, flags=FIN | ACK)]):
        framer.feed(assembler.feed(segments(window, len(said))), assembler.flows)

    hold = framer.connections[0].pending
    assert hold is not None
    assert [(x.side, bytes(x.data), len(x.packets), x.ended) for x in hold.chunks[2:]] == [
        (0, b"\x50", 1, False),
        (1, b"", 0, True),
    ]
