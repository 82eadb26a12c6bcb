# cython: language_level=3, annotation_typing=False
"""Contiguous stream bytes as objects, with the packets that carried them.

``framing`` gets the chunks of a window from here. Bytes that must outlive the window are copied: the bytes of a
connection whose protocol is not known yet, and the beginning of a message that later bytes continue.
"""

from collections.abc import Iterator, Sequence

import cython
import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.decode.message_buffer import ACK, FILE, LENGTH, NUMBER, OFFSET, ORDER, TS_NS, ChunkPackets, PacketIndex
from mqpcap.tcp.chunks import StreamChunks

Packet = tuple[int, int, int]
"""Time, number and file of a packet."""


@cython.cclass
class StreamChunk:
    """Contiguous bytes of one side: ``length`` bytes from ``start`` of ``buffer``, at ``offset`` of the stream.

    A buffer of type bytes is a copy; any other buffer belongs to the window and is freed with it. ``is_last``: no later
    chunk continues at its end, because bytes are missing there or the side has ended (``ended``). ``start_known``:
    offset 0 of the side is the first byte of its connection. ``is_estimated``: as in `StreamChunks`.
    """

    def __init__(
        self,
        side: int,
        buffer: bytes | memoryview,
        start: int,
        length: int,
        offset: int,
        packets: ChunkPackets,
        is_last: bool,
        ended: bool,
        start_known: bool = True,
        is_estimated: bool = False,
    ) -> None:
        self.side, self.buffer, self.start, self.length, self.offset = side, buffer, start, length, offset
        self.packets, self.is_last, self.ended = packets, is_last, ended
        self.start_known, self.is_estimated = start_known, is_estimated

    @property
    def data(self) -> bytes | memoryview:
        """The bytes."""
        return self.buffer[self.start : self.start + self.length]

    def copy(self, begin: int, stop: int) -> "StreamChunk":
        """A copy of the bytes from ``begin`` to ``stop``, which later bytes may continue."""
        data = bytes(self.buffer[self.start + begin : self.start + stop])
        first_index, last_index = (
            self.packets.packet_at(self.offset + begin),
            self.packets.completing(self.offset + stop - 1),
        )
        index = PacketIndex(self.packets.array()[:, first_index : last_index + 1].copy())
        packets = ChunkPackets(index, 0, last_index + 1 - first_index)
        return StreamChunk(
            self.side, data, 0, stop - begin, self.offset + begin, packets, False, False, self.start_known
        )

    def payload(self, k: int, at_most: int) -> bytes:
        """The first ``at_most`` bytes of its k-th packet."""
        start = self.start + self.packets.value(OFFSET, k) - self.offset
        return bytes(self.buffer[start : start + min(self.packets.value(LENGTH, k), at_most)])

    def order(self, k: int = 0) -> int:
        """The index of its k-th packet among all packets of the input."""
        first_index: int = self.packets.value(ORDER, k)
        return first_index

    def packet(self, k: int) -> Packet:
        """Time, number and file of its k-th packet."""
        packets = self.packets
        return packets.value(TS_NS, k), packets.value(NUMBER, k), packets.value(FILE, k)

    def first_packet(self, offset: int) -> Packet:
        """The packet with the byte at a stream offset."""
        return self.packet(self.packets.packet_at(offset))

    def ack(self, offset: int) -> int:
        """The acknowledgement number of the packet with the byte at a stream offset, as an offset of the other side."""
        packets = self.packets
        acknowledged: int = packets.value(ACK, packets.packet_at(offset))
        return acknowledged

    def last_packet(self, begin: int, stop: int) -> Packet:
        """The packet captured last among those with the bytes from one stream offset to another."""
        packets = self.packets
        return self.packet(packets.last_captured(packets.packet_at(begin), packets.completing(stop - 1)))


def by_connection(chunks: StreamChunks, chunk_rows: Int64Array) -> Iterator[tuple[int, list[StreamChunk]]]:
    """These chunks of a window, those of each connection together, with its number."""
    if not len(chunk_rows):
        return
    rows = (chunks.piece_offset, chunks.piece_length, chunks.piece_ts_ns, chunks.piece_packet_number, chunks.piece_file)
    index = PacketIndex(np.stack([*rows, chunks.piece_order, chunks.piece_ack, chunks.piece_last]))
    buffer = memoryview(chunks.buffer)
    bounds = chunks.piece_first
    columns = (
        chunks.flow, chunks.side, chunks.start, chunks.length, chunks.offset, bounds[:-1], bounds[1:] - bounds[:-1],
        chunks.gap_after | chunks.ended, chunks.ended, chunks.start_known, chunks.is_estimated,
    )  # fmt: skip
    new: list[StreamChunk] = []
    number = -1
    for flow, side, start, length, offset, piece_index, count, is_last, ended, start_known, is_estimated in zip(
        *(x[chunk_rows].tolist() for x in columns), strict=True
    ):
        if flow != number:
            if new:
                yield number, new
            number, new = flow, []
        packets = ChunkPackets(index, piece_index, count)
        new.append(StreamChunk(side, buffer, start, length, offset, packets, is_last, ended, start_known, is_estimated))
    if new:
        yield number, new


def copies(new: Sequence[StreamChunk]) -> list[StreamChunk]:
    """Copies of one connection's chunks of a window, without chunks that are empty and continue."""
    # Chunks of a connection are adjacent in the buffer, and so are their packets.
    first_chunk, last_chunk = new[0], new[-1]
    buffer = bytes(first_chunk.buffer[first_chunk.start : last_chunk.start + last_chunk.length])
    first_index = first_chunk.packets.first_index()
    index = PacketIndex(
        first_chunk.packets.array(last_chunk.packets.first_index() + len(last_chunk.packets) - first_index).copy()
    )

    def moved(chunk: StreamChunk) -> StreamChunk:
        packets = ChunkPackets(index, chunk.packets.first_index() - first_index, len(chunk.packets))
        return StreamChunk(
            chunk.side, buffer, chunk.start - first_chunk.start, chunk.length, chunk.offset, packets, chunk.is_last,
            chunk.ended, chunk.start_known, chunk.is_estimated,
        )  # fmt: skip

    return [moved(chunk) for chunk in new if chunk.length or chunk.is_last]


def joined(buffered: Sequence[StreamChunk]) -> list[StreamChunk]:
    """The chunks of side 0, then those of side 1; chunks that continue each other are joined."""
    runs: list[list[StreamChunk]] = []
    for chunk in sorted(buffered, key=lambda chunk: chunk.side):
        previous = runs[-1][-1] if runs else None
        if previous is not None and previous.side == chunk.side and previous.offset + previous.length == chunk.offset:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [run[0] if len(run) == 1 else join(run) for run in runs]


def join(run: Sequence[StreamChunk]) -> StreamChunk:
    """Joins chunks that continue each other."""
    data = b"".join(chunk.data for chunk in run)
    packets = np.concatenate([chunk.packets.array() for chunk in run], axis=1)
    newest = run[-1]
    return StreamChunk(
        newest.side, data, 0, len(data), run[0].offset, ChunkPackets(PacketIndex(packets), 0, packets.shape[1]),
        newest.is_last, newest.ended, newest.start_known, run[0].is_estimated,
    )  # fmt: skip
