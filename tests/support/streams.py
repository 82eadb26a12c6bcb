"""Packets to what a reader of streams saw, leaving the last bytes of each chunk for later."""

from dataclasses import dataclass, field

import numpy as np
from flows import Flow, flows_of
from segments import ACK, SYN, Packet, a, b, segments

from mqpcap.tcp import reassembly
from mqpcap.tcp.chunks import StreamChunks, StreamRange
from mqpcap.tcp.reassembly import Reassembler

HANDSHAKE = [a(999, flags=SYN), b(4999, flags=SYN | ACK, ack=1000), a(1000, ack=5000)]


@dataclass
class Seen:
    """What a reader saw: per (flow, side) its runs, byte by byte the packet, and the reassembler."""

    reassembler: Reassembler
    runs: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=dict)
    packet_of: dict[tuple[int, int, int], int] = field(default_factory=dict)
    ended: set[tuple[int, int]] = field(default_factory=set)
    broken: set[tuple[int, int, int]] = field(default_factory=set)

    @property
    def flows(self) -> list[Flow]:
        return flows_of(self.reassembler)

    def side(self, side: int = 0, flow: int = 0) -> list[tuple[int, bytes]]:
        return self.runs.get((flow, side), [])

    def gaps(self) -> list[tuple[int, int, int, int]]:
        return rows(self.reassembler.gaps())

    def late(self) -> list[tuple[int, int, int, int]]:
        return rows(self.reassembler.late())

    def conflicts(self) -> list[tuple[int, int, int, int]]:
        return rows(self.reassembler.conflicts())


def rows(ranges: list[StreamRange]) -> list[tuple[int, int, int, int]]:
    return [(row.flow, row.side, row.offset, row.length) for row in ranges]


def read(
    packets: list[Packet],
    window: int = 1000,
    left_over: int = 0,
    wanted: int = 0,
    max_bytes: int = reassembly.MAX_BYTES,
) -> Seen:
    """Feed the packets in windows and read as frames would, leaving the last bytes of each chunk for later."""
    seen = Seen(Reassembler(max_bytes))
    for first in range(0, len(packets), window):
        chunks = seen.reassembler.feed(segments(packets[first : first + window], first))
        _take(seen, chunks, np.maximum(chunks.length - left_over, 0), wanted)
    chunks = seen.reassembler.finish()
    assert all(chunks.ended | chunks.gap_after)
    _take(seen, chunks, chunks.length, 0)
    for flow in seen.flows:
        for side in (0, 1):
            delivered = sum(len(body) for _, body in seen.side(side, flow.index))
            late = sum(row[3] for row in seen.late() if row[:2] == (flow.index, side))
            assert delivered + late == flow.bytes[side]
            assert flow.missing[side] == sum(row[3] for row in seen.gaps() if row[:2] == (flow.index, side))
    return seen


def _take(seen: Seen, chunks: StreamChunks, consumed: np.ndarray, wanted: int) -> None:
    order = list(zip(chunks.flow.tolist(), chunks.side.tolist(), chunks.offset.tolist(), strict=True))
    assert order == sorted(order)
    for i in range(len(chunks)):
        key = (int(chunks.flow[i]), int(chunks.side[i]))
        assert key not in seen.ended
        offset, start, length = int(chunks.offset[i]), int(chunks.start[i]), int(chunks.length[i])
        whole = bool(chunks.gap_after[i] or chunks.ended[i])
        done = length if whole else int(consumed[i])
        body = chunks.buffer[start : start + length].tobytes()
        runs = seen.runs.setdefault(key, []) if done else seen.runs.get(key, [])
        end = runs[-1][0] + len(runs[-1][1]) if runs else 0
        assert offset - end == chunks.gap_before[i]
        first, last = int(chunks.piece_first[i]), int(chunks.piece_first[i + 1])
        pieces = chunks.piece_offset[first:last].tolist()
        lengths = chunks.piece_length[first:last].tolist()
        assert sum(lengths) == length
        assert pieces == [offset + sum(lengths[:j]) for j in range(len(lengths))]
        for at, size, number in zip(pieces, lengths, chunks.piece_packet_number[first:last].tolist(), strict=True):
            for position in range(at, min(at + size, offset + done)):
                seen.packet_of[(*key, position)] = number
        if done:
            if runs and end == offset:
                assert (*key, offset) not in seen.broken
                runs[-1] = (runs[-1][0], runs[-1][1] + body[:done])
            else:
                runs.append((offset, body[:done]))
        if chunks.gap_after[i]:
            seen.broken.add((*key, offset + length))
        if chunks.ended[i]:
            seen.ended.add(key)
    more = np.full(len(chunks), wanted, np.int64) if wanted else None
    seen.reassembler.retain(chunks, consumed, more)


def cut(body: bytes, size: int, seq: int = 1000) -> list[Packet]:
    """A body in segments from A to B."""
    return [a(seq + i, body[i : i + size]) for i in range(0, len(body), size)]
