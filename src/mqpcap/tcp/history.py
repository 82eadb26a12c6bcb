# cython: language_level=3, annotation_typing=False
"""The latest bytes of each side: compares retransmissions with them, and records conflicts."""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.flow_records import PieceRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import COPY_NS, IP_ID, FlowTable
from mqpcap.tcp.ranges import Block, RangeList
from mqpcap.tcp.sequence_numbers import ahead

HISTORY_BYTES = 64 * 1024
"""The latest bytes of a side that retransmissions are compared with."""
HISTORY_OVERHEAD = 256
"""Memory for the history of a side in addition to its bytes."""
CONFLICT_ROWS = 64
"""Conflicts of one retransmission; the last row spans all that are left."""


class Original(NamedTuple):
    """The first copy of a byte: the range of its packet in the stream, and the packet's `Segments.ident` and time."""

    offset: int
    length: int
    ident: int
    ts_ns: int


class History:
    """Compares second copies of bytes with the first copies.

    ``conflicts``, ``late``: ranges that were not reported yet.
    ``cap``: memory for all sides; beyond it the sides that were added first are dropped.
    ``window``, ``reordered_bytes``: the bytes of the pieces of this feed; the latter of buffered segments that came
    into order.
    """

    def __init__(self, table: FlowTable, counts: dict[str, int], cap: int) -> None:
        self._table = table
        self._counts = counts
        self._cap = cap
        self.blocks: dict[int, RangeList[Block]] = {}
        """By side."""
        self.packets: dict[int, bytes] = {}
        """By side: the packets of these bytes, as columns of `Original`, one after the other."""
        self.byte_count = self._packet_bytes = 0
        self.conflicts: list[StreamRange] = []
        self.late: list[StreamRange] = []
        self._indexed: dict[int, tuple[list[int], list[int]]] = {}
        """By side: the offsets and the rows of the pieces of this feed."""
        self.window: memoryview | bytes = b""
        self.reordered_bytes = bytearray()

    def add_late(self, side: int, offset: int, length: int, ts_ns: int, packet: int) -> None:
        """Record bytes that arrived after their hole became a gap, or after a FIN."""
        self.late.append(StreamRange(side >> 1, side & 1, offset, length, ts_ns, False, packet))

    def add(self, side: int, offset: int, body: bytes) -> None:
        """Store late bytes, unless they are below the horizon."""
        if offset + len(body) > self._horizon(side):
            self.blocks.setdefault(side, RangeList()).add(Block(offset, body))
            self.byte_count += len(body)

    def _horizon(self, side: int) -> int:
        """The stream offset below which bytes are not compared."""
        side_record: SideRecord = self._table.sides[side]
        return max(side_record.compare_from, side_record.next_offset - HISTORY_BYTES)

    def original(self, side: int, offset: int) -> Original | None:
        """The packet that brought a byte; None for bytes below the horizon, however windows were cut."""
        if offset < self._horizon(side):
            return None
        for row in self._indexed_rows(side, offset, offset + 1):
            piece: PieceRecord = self._table.pieces[row]
            if piece.offset <= offset < piece.offset + piece.length:
                return Original(piece.offset, piece.length, piece.ident, piece.ts_ns)
        columns = self._packet_columns(side)
        row = int(np.searchsorted(columns[0], offset, "right")) - 1
        if row < 0:
            return None
        original = Original(*columns[:, row].tolist())
        return original if offset < original.offset + original.length else None

    def _packet_columns(self, side: int) -> NDArray[np.int64]:
        return np.frombuffer(self.packets.get(side, b""), np.int64).reshape(len(Original._fields), -1)

    def has_sent(self, packet: Segment, side: int, offset: int) -> bool:
        """Whether a one-byte packet repeats an earlier packet; if not, it is a probe with a garbage byte."""
        original = self.original(side, offset)
        return (
            original is not None and original.length == packet.length and self.is_copy(packet, side, offset, original)
        )

    def is_copy(self, packet: Segment, side: int, offset: int, original: Original | None) -> bool:
        """Whether a packet with repeated bytes was captured again, not sent again.

        Evidence, strongest first:
        1. The IP identification.
        2. A TCP header that changed, as its checksum shows.
        3. Less than COPY_NS between both packets.
        4. An older acknowledgement than its sender had sent.
        5. Earlier copies on this side.
        """
        side_record: SideRecord = self._table.sides[side]
        is_copy = bool(side_record.has_copies)
        lag_ns = COPY_NS if original is None else abs(packet.ts_ns - original.ts_ns)
        is_whole = original is not None and (original.offset, original.length) == (offset, packet.length)
        if packet.sent_ack >= 0 and side_record.ack >= 0 and ahead(packet.ack, side_record.first_ack) >= 0:
            is_copy |= ahead(packet.ack, side_record.ack) < 0
        is_copy |= lag_ns < COPY_NS
        if original is not None and packet.ident & IP_ID and original.ident & IP_ID:
            ahead_of = ((packet.ident >> 16) - (original.ident >> 16)) & 0xFFFF
            # If the sender's network card cut a packet, its segments have IP identifications of their run_packets.
            is_part = offset > original.offset and lag_ns < COPY_NS and ahead_of <= offset - original.offset
            is_copy = ahead_of == 0 or is_part
        elif original is not None and is_whole and (packet.ident ^ original.ident) & 0xFFFF:
            is_copy = False
        return is_copy

    def compare_retransmission(
        self, packet: Segment, side: int, offset: int, body: bytes, is_copy: bool = False
    ) -> bool:
        """Compare a second copy with the stored bytes of the first; whether they are equal."""
        low = self._horizon(side)
        if offset < low:
            unknown = min(low - offset, len(body))
            if not is_copy:
                self._table.sides[side].retransmitted += unknown
                self._counts["uncompared_bytes"] += unknown
            offset, body = offset + unknown, body[unknown:]
        if not body:
            return True
        high = offset + len(body)
        original_body, is_remembered = bytearray(body), bytearray(len(body))
        for row in self._indexed_rows(side, offset, high):
            piece: PieceRecord = self._table.pieces[row]
            source, start = (self.window, piece.start) if piece.start >= 0 else (self.reordered_bytes, -1 - piece.start)
            _overlay(original_body, is_remembered, offset, piece.offset, source[start : start + piece.length])
        for block in self.blocks[side].overlapping(offset, high) if side in self.blocks else ():
            _overlay(original_body, is_remembered, offset, block.low, block.body)
        unknown = len(body) - sum(is_remembered)
        if unknown:
            self._counts["uncompared_bytes"] += unknown
        return self.compare(packet, side, offset, bytes(original_body), body, is_copy)

    def _indexed_rows(self, side: int, low: int, high: int) -> list[int]:
        """The rows of this feed's pieces of a side with stream offsets from low to below high."""
        offsets, rows = self._indexed.setdefault(side, ([], []))
        new = self._table.pieces_since(side, rows[-1] if rows else -1)[::-1]
        offsets += [self._table.pieces[row].offset for row in new]
        rows += new
        return rows[max(bisect_right(offsets, low) - 1, 0) : bisect_left(offsets, high)]

    def compare(
        self,
        packet: Segment,
        side: int,
        offset: int,
        original_body: bytes,
        copied_body: bytes,
        is_copy: bool = False,
        conflicts: list[StreamRange] | None = None,
    ) -> bool:
        """Count bytes that came twice, and add conflicts to a list (None: ``conflicts``); whether they are equal."""
        side_record: SideRecord = self._table.sides[side]
        if original_body == copied_body:
            side_record.retransmitted += 0 if is_copy else len(copied_body)
            return True
        differ = np.frombuffer(original_body, np.uint8) != np.frombuffer(copied_body, np.uint8)
        edges = np.flatnonzero(np.diff(differ, prepend=False, append=False))
        count = int(differ.sum())
        side_record.conflict += count
        side_record.retransmitted += len(copied_body) - count
        lows, highs = edges[::2].tolist(), edges[1::2].tolist()
        if len(lows) > CONFLICT_ROWS:
            highs[CONFLICT_ROWS - 1] = highs[-1]
            del lows[CONFLICT_ROWS:], highs[CONFLICT_ROWS:]
        for low, high in zip(lows, highs, strict=True):
            span = side >> 1, side & 1, offset + low, high - low
            conflict = StreamRange(*span, packet.ts_ns, False, packet.packet_number)
            (self.conflicts if conflicts is None else conflicts).append(conflict)
        return False

    def remember(self, pieces: NDArray[np.void], runs: NDArray[np.int64], buffer: NDArray[np.uint8]) -> None:
        """Store the latest bytes of each side, from runs of pieces in buffer."""
        if len(runs) == 0:
            return
        ends = np.append(pieces["start"][runs[1:]], len(buffer))
        side, offsets, starts = pieces["side"][runs], pieces["offset"][runs], pieces["start"][runs]
        records = self._table.side_array
        reached = records["next_offset"][side]
        horizons = np.maximum(records["compare_from"][side], reached - HISTORY_BYTES)
        lows = np.maximum(np.maximum(offsets, horizons), records["history_to"][side])
        live = np.flatnonzero(offsets + ends - starts > lows)
        records["history_to"][side] = reached
        bounds = np.append(runs, len(pieces))
        # Packets of unconsumed bytes are stored already.
        is_new = pieces["offset"] + pieces["length"] > np.repeat(lows, np.diff(bounds))
        packets = np.stack([pieces[name][is_new] for name in Original._fields])
        bounds = np.append(0, np.cumsum(is_new))[bounds]
        first_runs = np.flatnonzero(np.diff(side[live], prepend=-1))
        last_runs = np.append(first_runs[1:], len(live))[: len(first_runs)] - 1
        first_rows, last_rows = live[first_runs], live[last_runs]
        of_sides = side[first_rows], bounds[first_rows], bounds[last_rows + 1], horizons[first_rows]
        for side_index, first, last, horizon in zip(*(x.tolist() for x in of_sides), strict=True):
            # Once for a side: a hole ends a run, and there may be thousands of holes.
            self._append_packets(side_index, packets[:, first:last], horizon)
        columns = side, lows, starts + lows - offsets, ends, horizons
        for side_index, low, start, end, horizon in zip(*(x[live].tolist() for x in columns), strict=True):
            self._append(side_index, low, buffer[start:end].tobytes(), horizon)
        while self.byte_count + self._packet_bytes + len(self.blocks) * HISTORY_OVERHEAD > self._cap:
            self._counts["history_shrunk"] += 1
            oldest = next(iter(self.blocks))
            records["compare_from"][oldest] = records["next_offset"][oldest]
            self.drop(oldest)

    def _append(self, side: int, low: int, new: bytes, horizon: int) -> None:
        """Store new bytes of a side, and drop bytes below the horizon."""
        blocks = self.blocks.setdefault(side, RangeList())
        self.byte_count += len(new) - sum(len(block.body) for block in blocks.drop_below(horizon))
        for old in blocks.overlapping(low - 1, low):  # it is continued
            cut = max(horizon - old.low, 0)
            self.byte_count -= cut
            blocks.replace(old, [])
            new, low = old.body[cut:] + new, old.low + cut
        blocks.add(Block(low, new))

    def _append_packets(self, side: int, packets: NDArray[np.int64], horizon: int) -> None:
        """Store the packets of new bytes of a side, and drop packets below the horizon."""
        stored = self.packets.get(side)
        if stored is not None:
            columns = self._packet_columns(side)
            packets = np.concatenate([columns[:, columns[0] + columns[1] > horizon], packets], axis=1)
            self._packet_bytes -= len(stored)
        self.packets[side] = stored = packets.tobytes()
        self._packet_bytes += len(stored)

    def drop(self, side: int) -> None:
        """Drop the history of a side."""
        self.byte_count -= sum(len(block.body) for block in self.blocks.pop(side, ()))
        self._packet_bytes -= len(self.packets.pop(side, b""))

    def forget(self, sides: set[int]) -> None:
        """Drop the history of sides."""
        for kept in (self.blocks, self.packets):
            for side in kept.keys() & sides:
                self.drop(side)

    def drop_idle(self, before_ns: int) -> None:
        """Drop the history of connections whose last packet is older: their next packet is not compared."""
        for side in [side for side in self.blocks if self._table.flows[side >> 1].last_ts_ns < before_ns]:
            self.drop(side)

    def reset_feed(self) -> None:
        """Clear the state of this feed."""
        self._indexed.clear()
        self.window, self.reordered_bytes = b"", bytearray()


def _overlay(
    original_body: bytearray,
    is_remembered: bytearray,
    offset: int,
    body_offset: int,
    body: memoryview | bytearray | bytes,
) -> None:
    """Copy the part of a body that overlaps original_body, which begins at offset, and mark it."""
    low, high = max(offset, body_offset), min(offset + len(original_body), body_offset + len(body))
    if low < high:
        original_body[low - offset : high - offset] = body[low - body_offset : high - body_offset]
        is_remembered[low - offset : high - offset] = b"\1" * (high - low)
