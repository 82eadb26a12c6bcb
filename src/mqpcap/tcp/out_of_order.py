# cython: language_level=3, annotation_typing=False
"""Buffers segments that arrive early, and decides when a hole in a side becomes a gap.

A hole waits for its acknowledgement. It becomes a gap when LOOKAHEAD_NS and SETTLE_PACKETS more packets of the
connection, or LOOKAHEAD_BYTES, have passed since then. A buffer limit and the end of the flow decide it, too.
Acknowledged bytes were sent; a second tap, or a recorder with several queues, may write them that much later. The start
of a side without a SYN waits for SETTLE_PACKETS after an acknowledgement.

A damaged segment (`Segment.is_damaged`) is a hole with bytes in reserve: its receiver drops it, so a good copy of the
same bytes replaces it. If the hole would become a gap, the damage happened at the tap, and the reserve fills the hole.
So is an unproven segment, until an acknowledgement confirms it. If no checksum decides between two copies of buffered
bytes, the last copy before the acknowledgement of their receiver moves counts.
"""

from collections import deque
from itertools import islice
from typing import NamedTuple

from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.flow_records import NO_OFFSET, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import MAX_HOLE, FlowTable
from mqpcap.tcp.gaps import Gap, Gaps
from mqpcap.tcp.history import History, Original
from mqpcap.tcp.ranges import RangeList, outside
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, ahead, unwrapped, wrapped

MAX_BUFFERED_BYTES = 4 * 1024 * 1024
"""Bytes that a side may buffer after a hole; beyond it the hole becomes a gap without proof."""
MAX_BUFFERED_SEGMENTS = 4096
"""Segments that a side may buffer after a hole."""
SEGMENT_OVERHEAD = 192
"""Memory for a buffered segment in addition to its bytes."""
SETTLE_PACKETS = 32
"""Packets of the connection to wait for after an acknowledgement covers a hole: captures are a bit out of order."""
LOOKAHEAD_NS = 1_000_000_000
"""Time of the capture to wait for after an acknowledgement covers a hole."""
LOOKAHEAD_BYTES = 4 * 1024 * 1024
"""Payload of the connection after which an acknowledged hole waits no longer."""
LOOKAHEAD_STEPS = 64
"""Acknowledgements within this part of LOOKAHEAD_NS or LOOKAHEAD_BYTES count as one: memory stays bounded."""
MAX_COPIES = 64
"""Later copies with other bytes that a side may buffer; of further ones the first copy counts."""
UNSCALED_WINDOW = 0xFFFF
"""Largest window without a scale, also that of a SYN."""
START_BYTES = 256 * 1024
START_SEGMENTS = 64
START_PACKETS = 256
"""How much of a side without a SYN waits for a lower sequence number: bytes, segments, packets of the connection."""


class BufferedSegment(NamedTuple):
    """Bytes of a segment that wait for earlier bytes, or for a good copy."""

    low: int
    body: bytes
    ts_ns: int
    packet_number: int
    file: int
    ack: int
    ident: int
    is_damaged: bool = False
    is_unproven: bool = False

    def part(self, low: int, high: int) -> "BufferedSegment":
        """Its bytes from stream offset low to below high."""
        return self._replace(low=low, body=self.body[low - self.low : high - self.low])

    @property
    def high(self) -> int:
        """The stream offset after its last byte."""
        return self.low + len(self.body)


class ReorderQueue:
    """State of a side while it is not in order.

    ``buffered``: segments, all at or after the next byte.
    ``snaps``: holes that the snap length cut.
    ``acks``: (packet count, time and payload bytes of the connection, acknowledged offset), in order.
    ``settled``: holes before this offset are gaps.
    ``start_unknown``: offset 0 is not fixed yet. ``lowest``: the lowest offset captured until then.
    ``conflicts``: conflicts that were found until then.
    ``rivals``: later copies of buffered bytes, with other bytes, in order of capture.
    ``opened_at``, ``since_ns``: packet count of the connection, and capture time, when the queue was opened.
    """

    __slots__ = (
        "acks", "buffered", "bytes", "conflicts", "last_ack", "lowest", "opened_at",
        "rivals", "settled", "since_ns", "snaps", "start_unknown",
    )  # fmt: skip

    def __init__(self, opened_at: int, since_ns: int, start_unknown: bool) -> None:
        self.buffered = RangeList[BufferedSegment]()
        self.bytes = self.lowest = 0
        self.snaps = RangeList[Gap]()
        self.acks: deque[tuple[int, int, int, int]] = deque()
        self.last_ack = self.settled = NO_OFFSET
        self.start_unknown = start_unknown
        self.conflicts: list[StreamRange] = []
        self.rivals: list[BufferedSegment] = []
        self.opened_at, self.since_ns = opened_at, since_ns

    def add_snapped(self, low: int, high: int) -> None:
        """Note a hole that the snap length cut; neighbours become one."""
        snaps = self.snaps
        for each in snaps.overlapping(low - 1, high + 1):
            low, high = min(low, each.low), max(high, each.high)
            snaps.replace(each, [])
        snaps.add(Gap(low, high))
        if len(snaps) > MAX_BUFFERED_SEGMENTS:
            lowest, neighbour = islice(snaps, 2)
            snaps.replace(neighbour, [])
            snaps.replace(lowest, [lowest.part(lowest.low, neighbour.high)])

    def is_snapped(self, offset: int) -> bool:
        """Whether the snap length cut the byte at an offset."""
        return bool(self.snaps.overlapping(offset, offset + 1))

    def differs(self, offset: int, body: bytes) -> bool:
        """Whether other bytes are buffered from an offset on."""
        overlaps = self.buffered.overlapping(offset, offset + 1)
        return bool(overlaps) and overlaps[0].part(offset, offset + len(body)).body != body

    def rebase(self, delta: int) -> None:
        """Move offset 0 to the offset delta."""
        self.buffered = RangeList(entry._replace(low=entry.low - delta) for entry in self.buffered)
        self.rivals = [entry._replace(low=entry.low - delta) for entry in self.rivals]
        self.snaps = RangeList(gap.part(gap.low - delta, gap.high - delta) for gap in self.snaps)
        self.acks = deque((packets, ns, size, ack - delta) for packets, ns, size, ack in self.acks)
        if self.last_ack != NO_OFFSET:
            self.last_ack -= delta
        if self.settled != NO_OFFSET:
            self.settled -= delta
        self.lowest -= delta


class OutOfOrder:
    """The queues of all sides that are not in order, by index of the side in the flow table."""

    def __init__(self, table: FlowTable, history: History, gaps: Gaps, counts: dict[str, int], cap: int) -> None:
        self._table = table
        self._history = history
        self._gaps = gaps
        self._counts = counts
        self._cap = cap
        self.queues: dict[int, ReorderQueue] = {}
        self.buffered_bytes = 0
        """Memory of early segments: their bytes and SEGMENT_OVERHEAD each."""

    def is_start_unknown(self, side: int) -> bool:
        """Whether offset 0 of a side is not fixed yet."""
        queue = self.queues.get(side)
        return queue is not None and queue.start_unknown

    def packets(self, flow: int) -> int:
        """Captured packets of a connection."""
        return int(self._table.sides[flow * 2].packets + self._table.sides[flow * 2 + 1].packets)

    def open_queue(self, side: int, ts_ns: int, start_unknown: bool = False) -> ReorderQueue:
        """Open the queue of a side at the time of a packet."""
        queue = self.queues[side] = ReorderQueue(self.packets(side >> 1), ts_ns, start_unknown)
        self._note_ack(side, queue)
        return queue

    def add(self, packet: Segment, side: int, queue: ReorderQueue, offset: int, body: bytes) -> None:
        """Buffer a segment; bytes that are buffered already stay."""
        side_record: SideRecord = self._table.sides[side]
        buffered = queue.buffered
        ack = packet.sent_ack if packet.sent_ack >= 0 else self._table.captured_end(side ^ 1)
        new = BufferedSegment(
            offset, body, packet.ts_ns, packet.packet_number, packet.file, ack, packet.ident, packet.is_damaged,
            packet.is_unproven,
        )  # fmt: skip
        if not packet.is_damaged:
            self._cut(side, queue, offset, new.high, only_damaged=True)
        overlaps = buffered.overlapping(offset, new.high)
        for part in buffered.free(new):
            buffered.add(part)
            self._count_buffered(side, queue, part, 1)
        for old in overlaps:
            low, high = max(offset, old.low), min(new.high, old.high)
            if packet.is_damaged:
                side_record.retransmitted += high - low
            elif not self._compare(packet, side, old, new, low, high) or queue.rivals:
                if NO_OFFSET < queue.last_ack <= low and len(queue.rivals) < MAX_COPIES:
                    queue.rivals.append(new.part(low, high))
                    buffered.replace(old, [old._replace(is_unproven=True)])

    def _compare(
        self, packet: Segment, side: int, old: BufferedSegment, new: BufferedSegment, low: int, high: int
    ) -> bool:
        """Compare the bytes from low to below high of a new segment with a buffered segment; whether they are equal."""
        side_record: SideRecord = self._table.sides[side]
        original = Original(old.low, len(old.body), old.ident, old.ts_ns)
        is_copy = self._history.is_copy(packet, side, new.low, original)
        old_body, new_body = old.part(low, high).body, new.part(low, high).body
        queue = self.queues[side]
        conflicts = queue.conflicts if queue.start_unknown else self._history.conflicts
        is_equal = self._history.compare(packet, side, low, old_body, new_body, is_copy, conflicts)
        if is_copy and is_equal:
            side_record.has_copies = 1
            side_record.duplicates += (new.low, new.high) == (low, high)
        return is_equal

    def _count_buffered(self, side: int, queue: ReorderQueue, segment: BufferedSegment, sign: int) -> None:
        """Count the bytes of a segment that enters (1) or leaves (-1) the buffer."""
        size = len(segment.body)
        queue.bytes += sign * size
        self.buffered_bytes += sign * (size + SEGMENT_OVERHEAD)
        self._table.sides[side].bytes += sign * size

    def _cut(self, side: int, queue: ReorderQueue, low: int, high: int, only_damaged: bool) -> None:
        """Drop the buffered bytes, or the damaged ones, from low to below high."""
        for old in queue.buffered.overlapping(low, high):
            if only_damaged and not old.is_damaged:
                continue
            remainders = outside(old, low, high)
            self._count_buffered(side, queue, old, -1)
            for part in remainders:
                self._count_buffered(side, queue, part, 1)
            queue.buffered.replace(old, remainders)
            if old.is_damaged:
                self._table.sides[side].retransmitted += min(old.high, high) - max(old.low, low)

    def _choose_copies(self, side: int, queue: ReorderQueue, ack: int) -> None:
        """Let the latest copies count of bytes that were acknowledged now."""
        chosen = [rival for rival in queue.rivals if self._table.sides[side].next_offset <= rival.low < ack]
        queue.rivals = [rival for rival in queue.rivals if rival.low >= ack]
        for rival in chosen:
            self._cut(side, queue, rival.low, rival.high, only_damaged=False)
            queue.buffered.add(rival)
            self._count_buffered(side, queue, rival, 1)

    # After a packet

    def update(self, flow: int) -> None:
        """Decide the holes of a flow that can be decided."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._resolve_holes(side, queue)
        if self.buffered_bytes > self._cap:
            self._enforce_cap()
        self._mark(flow)
        self._table.note_ahead(flow * 2)
        self._table.note_ahead(flow * 2 + 1)

    def _enforce_cap(self) -> None:
        """Give up the holes of the sides that have waited longest, until half of the cap is free."""
        for side, queue in list(self.queues.items()):
            if self.buffered_bytes <= self._cap // 2:
                break
            if queue.buffered:
                self._counts["reorder_cap"] += 1
                self._resolve_holes(side, queue, give_up=True)
                self._mark(side >> 1)

    def _mark(self, flow: int) -> None:
        self._table.flows[flow].out_of_order = flow * 2 in self.queues or flow * 2 + 1 in self.queues

    def _note_ack(self, side: int, queue: ReorderQueue) -> None:
        """Remember the latest acknowledgement of the other side."""
        side_record: SideRecord = self._table.sides[side]
        raw = self._table.sides[side ^ 1].ack
        if raw >= 0:
            ack = unwrapped(raw, side_record.base_seq, side_record.next_offset)
            if ack > queue.last_ack:
                queue.last_ack = ack
                if queue.rivals:
                    self._choose_copies(side, queue, ack)
                if ack <= side_record.next_offset and not queue.start_unknown:
                    return  # no hole before it
                packets, now_ns, byte_count = self._passed(side >> 1)
                if queue.acks:
                    _, since_ns, since_bytes, _ = queue.acks[-1]
                    is_near = now_ns - since_ns < LOOKAHEAD_NS // LOOKAHEAD_STEPS
                    if is_near and byte_count - since_bytes < LOOKAHEAD_BYTES // LOOKAHEAD_STEPS:
                        queue.acks.pop()
                        now_ns, byte_count = since_ns, since_bytes
                queue.acks.append((packets, now_ns, byte_count, ack))

    def _passed(self, flow: int) -> tuple[int, int, int]:
        """Packets, latest time and payload bytes of a connection."""
        a, b = self._table.sides[flow * 2], self._table.sides[flow * 2 + 1]
        return int(a.packets + b.packets), int(self._table.flows[flow].last_ts_ns), int(a.bytes + b.bytes)

    def _settle(self, side: int, queue: ReorderQueue) -> None:
        """Set ``settled`` after the holes that have waited long enough."""
        packets, now_ns, byte_count = self._passed(side >> 1)
        while queue.acks:
            ack_packets, ack_ns, ack_bytes, ack = queue.acks[0]
            has_waited = now_ns - ack_ns >= LOOKAHEAD_NS and packets - ack_packets >= SETTLE_PACKETS
            if not has_waited and byte_count - ack_bytes < LOOKAHEAD_BYTES:
                break
            queue.settled = ack
            queue.acks.popleft()

    def _resolve_holes(self, side: int, queue: ReorderQueue, give_up: bool = False, is_end: bool = False) -> None:
        """Release the segments in order, and turn due holes, or all holes, into gaps."""
        self._note_ack(side, queue)
        self._settle(side, queue)
        if queue.start_unknown:
            packet_count = self.packets(side >> 1)
            safe = queue.settled >= queue.lowest or packet_count - queue.opened_at >= START_PACKETS
            safe |= any(packet_count - ack[0] >= SETTLE_PACKETS and ack[3] >= queue.lowest for ack in queue.acks)
            full = queue.bytes > START_BYTES or len(queue.buffered) > START_SEGMENTS
            if not (safe or full or give_up):
                return
            self.release_start(side, queue)
            peer_queue = self.queues.get(side ^ 1)
            if peer_queue is not None and peer_queue.start_unknown:
                # What one side acknowledges is counted from offset 0 of the other.
                self.release_start(side ^ 1, peer_queue)
                self._release_starts({side: queue, side ^ 1: peer_queue})
                self._resolve_holes(side ^ 1, peer_queue)
        self._release_in_order(side, queue)
        while queue.buffered:
            head = queue.buffered.head
            due = head.high if head.is_damaged or head.is_unproven else head.low
            if not give_up and due > queue.settled:
                if queue.bytes <= MAX_BUFFERED_BYTES and len(queue.buffered) <= MAX_BUFFERED_SEGMENTS:
                    break
                self._counts["reorder_cap"] += due > queue.last_ack
            if is_end and head.low > max(queue.last_ack, self._sendable_end(side)):
                self._drop_buffered(side, queue)
                break
            self._give_up(side, queue)
            self._release_in_order(side, queue)
        self._close_if_in_order(side, queue)

    def _close_if_in_order(self, side: int, queue: ReorderQueue) -> None:
        """Drop the queue of a side that is in order again."""
        side_record: SideRecord = self._table.sides[side]
        queue.snaps.drop_below(side_record.next_offset)
        if not queue.buffered and not queue.snaps:
            self.queues.pop(side, None)
            if side_record.fin_offset == side_record.next_offset and not side_record.ended:
                self._table.end(side)

    def release_start(self, side: int, queue: ReorderQueue) -> None:
        """Fix offset 0 of a side without a SYN at the lowest sequence number captured."""
        side_record: SideRecord = self._table.sides[side]
        delta = queue.lowest
        side_record.base_seq = wrapped(side_record.base_seq + delta)
        side_record.known_end -= delta
        if side_record.fin_offset != NO_OFFSET:
            side_record.fin_offset -= delta
        queue.rebase(delta)
        queue.start_unknown = False
        self._history.conflicts.extend(row._replace(offset=row.offset - delta) for row in queue.conflicts)
        queue.conflicts = []
        first_ack = self._table.sides[side ^ 1].first_ack
        side_record.acked_from = NO_OFFSET if first_ack < 0 else ahead(first_ack, side_record.base_seq)

    def _release_starts(self, queues: dict[int, ReorderQueue]) -> None:
        """Accept the segments of both sides in order of capture: detection reads the first of a connection first."""
        while heads := [
            (x.buffered.head.file, x.buffered.head.packet_number, side)
            for side, x in queues.items()
            if x.buffered and self._is_next(side, x, x.buffered.head)
        ]:
            side = min(heads)[-1]
            self._release_in_order(side, queues[side], 1)

    def _is_next(self, side: int, queue: ReorderQueue, segment: BufferedSegment) -> bool:
        side_record: SideRecord = self._table.sides[side]
        is_doubtful = segment.is_damaged or (segment.is_unproven and segment.high > queue.last_ack)
        return segment.low == side_record.next_offset and not is_doubtful and not side_record.ended

    def _release_in_order(self, side: int, queue: ReorderQueue, max_count: int = -1) -> None:
        """Accept buffered segments that are in order now, ``max_count`` at most; -1: all."""
        side_record: SideRecord = self._table.sides[side]
        while max_count and queue.buffered and self._is_next(side, queue, queue.buffered.head):
            max_count -= 1
            segment = queue.buffered.head
            queue.buffered.replace(segment, [])
            start = -1 - len(self._history.reordered_bytes)
            self._history.reordered_bytes += segment.body
            queue.bytes -= len(segment.body)
            self.buffered_bytes -= len(segment.body) + SEGMENT_OVERHEAD
            self._table.accept(
                side, start, len(segment.body), segment.ts_ns, segment.packet_number, segment.file, segment.ack,
                segment.ident,
            )  # fmt: skip
        if side_record.ended:
            self._drop_buffered(side, queue)

    # Holes that are given up

    def _give_up(self, side: int, queue: ReorderQueue) -> None:
        """Let the first hole of a side be a gap, or let the damaged segment in it count."""
        side_record: SideRecord = self._table.sides[side]
        low = side_record.next_offset
        head = queue.buffered.head
        high = head.low
        if high == low:
            queue.buffered.replace(head, [head._replace(is_damaged=False, is_unproven=False)])
            return
        if head.is_damaged and high > max(queue.last_ack, side_record.known_end):
            # Nothing else shows that bytes up to its sequence number exist: that may be damaged, too.
            queue.buffered.replace(head, [])
            self._count_buffered(side, queue, head, -1)
            return
        flow: FlowRecord = self._table.flows[side >> 1]
        side_record.missing += high - low
        self._gaps.add(
            side, Gap(low, high, head.ts_ns, side_record.last_packet or head.packet_number, queue.is_snapped(low))
        )
        shown_ns = side_record.ahead_ns or flow.last_ts_ns
        self._gaps.times.add(flow.connection_number * 2 + (side & 1), high, high - low, shown_ns)
        side_record.resume_at = 0
        self._table.advance(side, high - low)

    def give_up_flow(self, flow: int) -> None:
        """Give up all holes of a flow that was idle for long."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._resolve_holes(side, queue, give_up=True)
                self.update(flow)

    def flush_flow(self, flow: int) -> None:
        """Decide acknowledged holes, and the start of a side, as if SETTLE_PACKETS more packets had come."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._note_ack(side, queue)
                queue.settled = queue.last_ack
                queue.acks.clear()
                if queue.start_unknown:
                    self.release_start(side, queue)
        self.update(flow)

    def end_flow(self, flow: int) -> None:
        """End both sides: no packet follows."""
        self.end_side(flow * 2)
        self.end_side(flow * 2 + 1)
        self._mark(flow)
        self._table.stop_comparing(flow)

    def end_side(self, side: int) -> None:
        """End a side: no packet follows."""
        flow: FlowRecord = self._table.flows[side >> 1]
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        queue = self.queues.get(side)
        if queue is not None:
            self._resolve_holes(side, queue, give_up=True, is_end=True)
            self.queues.pop(side, None)
        if side_record.ended:
            return
        if side_record.base_seq < 0 and peer_record.first_ack >= 0:
            # No packet of this side: the bytes that the other side acknowledged were never captured.
            side_record.base_seq = peer_record.first_ack
        if side_record.base_seq >= 0:
            low, high = side_record.next_offset, self._known_end(side)
            if high > low:
                snapped = queue is not None and queue.is_snapped(low)
                side_record.missing += high - low
                packet = side_record.last_packet or flow.first_packet
                self._gaps.add(side, Gap(low, high, flow.last_ts_ns, packet, snapped))
                self._gaps.trailing.add(side)
        self._table.end(side)

    def _known_end(self, side: int) -> int:
        """The stream offset after the last byte that a side is known to have sent."""
        side_record: SideRecord = self._table.sides[side]
        low, high = side_record.next_offset, side_record.known_end
        acked = self._acked_end(side)
        if NO_OFFSET < side_record.fin_offset < low + MAX_WINDOW:
            high = side_record.fin_offset
        elif high + 1 < acked:
            # An acknowledgement of one byte more probably covers a FIN that was not captured.
            high = acked
        return int(high) if high <= self._sendable_end(side) else acked

    def _acked_end(self, side: int) -> int:
        """The end of the bytes that the other side acknowledged, at least the offset of the next byte in order."""
        side_record: SideRecord = self._table.sides[side]
        raw = self._table.sides[side ^ 1].ack
        acked = unwrapped(raw, side_record.base_seq, side_record.next_offset) if raw >= 0 else NO_OFFSET
        return max(int(side_record.next_offset), acked)

    def _sendable_end(self, side: int) -> int:
        """The end of the bytes that a side may have sent, by the acknowledgements and windows of the other side.

        Windows are scaled if both SYNs say so; if a SYN is not captured, the limit is MAX_HOLE.
        """
        scale, other_scale = (self._table.sides[each].window >> 16 for each in (side, side ^ 1))
        if not scale or not other_scale:
            return self._acked_end(side) + MAX_HOLE
        window = (self._table.sides[side ^ 1].window & 0xFFFF) << (
            other_scale - 2 if min(scale, other_scale) > 1 else 0
        )
        return int(self._acked_end(side) + max(window, UNSCALED_WINDOW))

    def _drop_buffered(self, side: int, queue: ReorderQueue) -> None:
        """Count segments after a FIN, or beyond all windows of their receiver, as late bytes: of another stream."""
        for segment in queue.buffered:
            self._history.add_late(side, segment.low, len(segment.body), segment.ts_ns, segment.packet_number)
            if self._table.sides[side].ended:
                self._table.advance(side, segment.high - self._table.sides[side].next_offset)
            self.buffered_bytes -= len(segment.body) + SEGMENT_OVERHEAD
        queue.buffered = RangeList()
        queue.bytes = 0
