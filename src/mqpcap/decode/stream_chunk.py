"""Runs of stream bytes, one object each, with the packets that carried them.

``framing`` gets the chunks of a window from here. Bytes that must outlive the window are copied: those of a connection
whose protocol is not known yet, and a message that goes on behind them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mqpcap.decode.message_buffer import ACK, AT, FILE, NUMBER, ORDER, SIZE, TS_NS, ChunkPackets, PacketIndex
from mqpcap.tcp.chunks import StreamChunks

Packet = tuple[int, int, int]
"""Time, number and file of a packet."""


@dataclass(slots=True)
class StreamChunk:
    """Contiguous bytes of one side: ``length`` bytes from ``start`` of ``buffer``, at ``offset`` of the stream.

    A buffer of type bytes is a copy; else it is that of the window and gone with it. ``is_last``: no later chunk goes
    on where this one ends, as bytes are missing there or the side has ended (``ended``). ``start_known``: offset 0 of
    the side is the first byte of its connection.
    """

    side: int
    buffer: bytes | memoryview
    start: int
    length: int
    offset: int
    packets: ChunkPackets
    is_last: bool
    ended: bool
    start_known: bool = True

    @property
    def data(self) -> bytes | memoryview:
        """The bytes."""
        return self.buffer[self.start : self.start + self.length]

    def copy(self, one: int, two: int) -> "StreamChunk":
        """A copy of the bytes from ``one`` to ``two``, which more may follow."""
        data = bytes(self.buffer[self.start + one : self.start + two])
        first, last = self.packets.holding(self.offset + one), self.packets.holding(self.offset + two - 1)
        index = PacketIndex(self.packets.array()[:, first : last + 1].copy())
        packets = ChunkPackets(index, 0, last + 1 - first)
        return StreamChunk(self.side, data, 0, two - one, self.offset + one, packets, False, False, self.start_known)

    def payload(self, k: int, at_most: int) -> bytes:
        """The first ``at_most`` bytes of its k-th packet."""
        start = self.start + self.packets.value(AT, k) - self.offset
        return bytes(self.buffer[start : start + min(self.packets.value(SIZE, k), at_most)])

    def order(self, k: int = 0) -> int:
        """The place of its k-th packet among all packets of the input."""
        place: int = self.packets.value(ORDER, k)
        return place

    def packet(self, k: int) -> Packet:
        """Time, number and file of its k-th packet."""
        packets = self.packets
        return packets.value(TS_NS, k), packets.value(NUMBER, k), packets.value(FILE, k)

    def first_packet(self, offset: int) -> Packet:
        """The packet with the byte at a stream offset."""
        return self.packet(self.packets.holding(offset))

    def ack(self, offset: int) -> int:
        """What the packet with the byte at a stream offset acknowledges, as an offset of the other side."""
        packets = self.packets
        acknowledged: int = packets.value(ACK, packets.holding(offset))
        return acknowledged

    def last_packet(self, one: int, two: int) -> Packet:
        """The packet captured last among those with the bytes from one stream offset to another."""
        packets = self.packets
        return self.packet(packets.newest(packets.holding(one), packets.holding(two - 1)))


def by_connection(chunks: StreamChunks) -> Iterator[tuple[int, list[StreamChunk]]]:
    """The chunks of a window, those of each connection together, with its number."""
    rows = (chunks.piece_offset, chunks.piece_length, chunks.piece_ts_ns, chunks.piece_number, chunks.piece_file)
    index = PacketIndex(np.stack([*rows, chunks.piece_order, chunks.piece_ack]))
    buffer = memoryview(chunks.buffer)
    bounds = chunks.piece_first
    columns = (
        chunks.flow, chunks.side, chunks.start, chunks.length, chunks.offset, bounds[:-1], bounds[1:] - bounds[:-1],
        chunks.gap_after | chunks.ended, chunks.ended, chunks.start_known,
    )  # fmt: skip
    new: list[StreamChunk] = []
    number = -1
    for flow, side, start, length, offset, first, count, is_last, ended, start_known in zip(
        *(x.tolist() for x in columns), strict=True
    ):
        if flow != number:
            if new:
                yield number, new
            number, new = flow, []
        packets = ChunkPackets(index, first, count)
        new.append(StreamChunk(side, buffer, start, length, offset, packets, is_last, ended, start_known))
    if new:
        yield number, new


def copies(new: Sequence[StreamChunk]) -> list[StreamChunk]:
    """The chunks of one window and connection over a buffer of their own, without those that are empty and go on."""
    # Chunks of a connection are side by side in the buffer, and so are their packets.
    first, last = new[0], new[-1]
    buffer = bytes(first.buffer[first.start : last.start + last.length])
    place = first.packets.place()
    index = PacketIndex(first.packets.array(last.packets.place() + len(last.packets) - place).copy())

    def moved(chunk: StreamChunk) -> StreamChunk:
        packets = ChunkPackets(index, chunk.packets.place() - place, len(chunk.packets))
        return replace(chunk, buffer=buffer, start=chunk.start - first.start, packets=packets)

    return [moved(chunk) for chunk in new if chunk.length or chunk.is_last]


def joined(held: Sequence[StreamChunk]) -> list[StreamChunk]:
    """Chunks in order of capture, those of a side that go on where the last one ends made one; side by side."""
    runs: list[list[StreamChunk]] = []
    for chunk in sorted(held, key=lambda chunk: chunk.side):
        before = runs[-1][-1] if runs else None
        if before is not None and before.side == chunk.side and before.offset + before.length == chunk.offset:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [run[0] if len(run) == 1 else join(run) for run in runs]


def join(run: Sequence[StreamChunk]) -> StreamChunk:
    """Chunks that follow each other made one."""
    data = b"".join(chunk.data for chunk in run)
    packets = np.concatenate([chunk.packets.array() for chunk in run], axis=1)
    return replace(
        run[-1], buffer=data, start=0, length=len(data), offset=run[0].offset,
        packets=ChunkPackets(PacketIndex(packets), 0, packets.shape[1]),
    )  # fmt: skip
