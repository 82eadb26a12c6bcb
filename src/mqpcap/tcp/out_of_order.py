# cython: language_level=3, annotation_typing=False
"""Buffers segments that arrive early, and decides when a hole in a side becomes a gap.

A hole becomes a gap for good when it is acknowledged and SETTLE_PACKETS more packets of the connection followed, when a
buffer limit is reached, or when the flow ends. Acknowledged bytes were sent, and mere reordering would have delivered
them within that number of packets. The start of a side without a SYN waits by the same rule.

A damaged segment (`Segment.is_damaged`) is a hole with bytes in reserve: its receiver drops it, so a good copy of the
same bytes replaces it. If the hole would become a gap, the damage happened at the tap, and the reserve fills the hole.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

from mqpcap.tcp.flow_records import NONE, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import FlowTable
from mqpcap.tcp.gaps import Gap, Gaps
from mqpcap.tcp.history import History, Original
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, ahead, unwrapped, wrapped

HELD_BYTES = 4 * 1024 * 1024
"""Bytes that one side may buffer after a hole; beyond it the hole becomes a gap without proof."""
HELD_SEGMENTS = 4096
"""Segments that one side may buffer after a hole."""
HELD_OVERHEAD = 192
"""Memory for a buffered segment in addition to its bytes."""
SETTLE_PACKETS = 32
"""Packets of the connection to wait for after an acknowledgement covers a hole: captures are a bit out of order."""
START_BYTES = 256 * 1024
START_SEGMENTS = 64
START_PACKETS = 256
"""How much of a side without a SYN waits for a lower sequence number: bytes, segments, packets of the connection."""


class HeldSegment(NamedTuple):
    """Bytes of a segment that wait for earlier bytes, or for a good copy."""

    offset: int
    body: bytes
    ts_ns: int
    number: int
    file: int
    ack: int
    ident: int
    is_damaged: bool = False

    def part(self, low: int, high: int) -> "HeldSegment":
        """Its bytes from stream offset low to below high."""
        return self._replace(offset=low, body=self.body[low - self.offset : high - self.offset])

    @property
    def end(self) -> int:
        """The stream offset after its last byte."""
        return self.offset + len(self.body)


class OutOfOrderQueue:
    """What one side holds while it is not in order.

    held: segments by offset, not overlapping, all at or after the next byte.
    snaps: holes (from, to) that the snap length cut.
    acks: (packets of the connection, acknowledged offset) as they came.
    settled: the offset that was acknowledged SETTLE_PACKETS ago.
    low: the lowest sequence number seen, while starting.
    began, since_ns: packet count of the connection, and capture time, when the queue was opened.
    """

    __slots__ = ("acks", "began", "bytes", "held", "last_ack", "low", "settled", "since_ns", "snaps", "starting")

    def __init__(self, began: int, since_ns: int, starting: bool) -> None:
        self.held: list[HeldSegment] = []
        self.bytes = 0
        self.snaps: list[tuple[int, int]] = []
        self.acks: deque[tuple[int, int]] = deque()
        self.last_ack = NONE
        self.settled = NONE
        self.starting = starting
        self.low = 0
        self.began, self.since_ns = began, since_ns

    def snap(self, low: int, high: int) -> None:
        """Note a hole that the snap length cut; neighbours become one."""
        snaps = self.snaps
        index = end_index = bisect_left(snaps, low, key=lambda hole: hole[1])
        while end_index < len(snaps) and snaps[end_index][0] <= high:
            low, high = min(low, snaps[end_index][0]), max(high, snaps[end_index][1])
            end_index += 1
        snaps[index:end_index] = [(low, high)]
        if len(snaps) > HELD_SEGMENTS:
            snaps[:2] = [(snaps[0][0], snaps[1][1])]

    def is_snapped(self, offset: int) -> bool:
        """Whether the snap length cut the byte at an offset."""
        index = bisect_right(self.snaps, offset, key=lambda hole: hole[1])
        return index < len(self.snaps) and self.snaps[index][0] <= offset

    def rebase(self, delta: int) -> None:
        """Count offsets from delta on."""
        self.held = [entry._replace(offset=entry.offset - delta) for entry in self.held]
        self.snaps = [(low - delta, high - delta) for low, high in self.snaps]
        self.acks = deque((count, ack - delta) for count, ack in self.acks)
        if self.last_ack != NONE:
            self.last_ack -= delta
        if self.settled != NONE:
            self.settled -= delta
        self.low -= delta


class OutOfOrder:
    """The queues of all sides that are not in order, by place of the side in the flow table."""

    def __init__(self, table: FlowTable, history: History, gaps: Gaps, counts: dict[str, int], cap: int) -> None:
        self._table = table
        self._history = history
        self._gaps = gaps
        self._counts = counts
        self._cap = cap
        self.queues: dict[int, OutOfOrderQueue] = {}
        self.held_bytes = 0
        """Bytes of segments that came too early and wait, with their cost."""

    def is_starting(self, side: int) -> bool:
        """Whether offset 0 of a side is not fixed yet."""
        queue = self.queues.get(side)
        return queue is not None and queue.starting

    def packets(self, flow: int) -> int:
        """Captured packets of a connection."""
        return int(self._table.sides[flow * 2].packets + self._table.sides[flow * 2 + 1].packets)

    def begin(self, side: int, ts_ns: int, starting: bool = False) -> OutOfOrderQueue:
        """Open the queue of a side, with its first packet's time."""
        queue = self.queues[side] = OutOfOrderQueue(self.packets(side >> 1), ts_ns, starting)
        self._note_ack(side, queue)
        return queue

    def hold(self, packet: Segment, side: int, queue: OutOfOrderQueue, offset: int, body: bytes) -> None:
        """Put a segment among the held ones; bytes already there stay."""
        side_record: SideRecord = self._table.sides[side]
        held = queue.held
        new = HeldSegment(
            offset, body, packet.ts_ns, packet.number, packet.file, packet.sent_ack, packet.ident, packet.is_damaged
        )
        if not packet.is_damaged:
            self._drop_damaged(side, queue, offset, new.end)
        index = _first_ending_after(held, offset)
        position = offset
        while position < new.end:
            free = min(new.end, held[index].offset) if index < len(held) else new.end
            if free > position:
                held.insert(index, new.part(position, free))
                self._count_held(side, queue, held[index], 1)
                position = free
            else:
                old, end = held[index], min(new.end, held[index].end)
                if packet.is_damaged:
                    side_record.retransmitted += end - position
                else:
                    self._compare(packet, side, old, new, position, end)
                position = end
            index += 1

    def _compare(self, packet: Segment, side: int, old: HeldSegment, new: HeldSegment, low: int, high: int) -> None:
        """Compare the bytes from low to below high of a new segment with those of a held one."""
        side_record: SideRecord = self._table.sides[side]
        original = Original(old.offset, len(old.body), old.ident, old.ts_ns)
        is_copy = self._history.is_copy(packet, side, new.offset, original)
        old_body, new_body = old.part(low, high).body, new.part(low, high).body
        is_copy &= self._history.compare(packet, side, low, old_body, new_body, is_copy)
        if is_copy:
            side_record.has_copies = 1
            side_record.duplicates += (new.offset, new.end) == (low, high)

    def _count_held(self, side: int, queue: OutOfOrderQueue, segment: HeldSegment, sign: int) -> None:
        """Count the bytes of a segment that enters (1) or leaves (-1) the buffer."""
        size = len(segment.body)
        queue.bytes += sign * size
        self.held_bytes += sign * (size + HELD_OVERHEAD)
        self._table.sides[side].bytes += sign * size

    def _drop_damaged(self, side: int, queue: OutOfOrderQueue, low: int, high: int) -> None:
        """Let a good copy of the bytes from low to below high replace damaged ones."""
        held = queue.held
        index = _first_ending_after(held, low)
        while index < len(held) and held[index].offset < high:
            old = held[index]
            if not old.is_damaged:
                index += 1
                continue
            cut = old.part(max(old.offset, low), min(old.end, high))
            remainders = [part for part in (old.part(old.offset, cut.offset), old.part(cut.end, old.end)) if part.body]
            self._count_held(side, queue, old, -1)
            for part in remainders:
                self._count_held(side, queue, part, 1)
            held[index : index + 1] = remainders
            index += len(remainders)
            self._table.sides[side].retransmitted += len(cut.body)

    # After a packet

    def settle(self, flow: int) -> None:
        """Decide what can be decided about the holes of a flow."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._resolve_holes(side, queue)
        if self.held_bytes > self._cap:
            self._shed_load()
        self._mark(flow)

    def _shed_load(self) -> None:
        """Give up the holes of the sides that are out of order for longest until what is held fits again."""
        for side, queue in list(self.queues.items()):
            if self.held_bytes <= self._cap // 2:
                break
            if queue.held:
                self._counts["held_cap"] += 1
                self._resolve_holes(side, queue, give_up=True)
                self._mark(side >> 1)

    def _mark(self, flow: int) -> None:
        self._table.flows[flow].out_of_order = flow * 2 in self.queues or flow * 2 + 1 in self.queues

    def _note_ack(self, side: int, queue: OutOfOrderQueue) -> None:
        """Remember the latest acknowledgement of the other side."""
        side_record: SideRecord = self._table.sides[side]
        raw = self._table.sides[side ^ 1].ack
        if raw >= 0:
            ack = unwrapped(raw, side_record.base_seq, side_record.next_offset)
            if ack > queue.last_ack:
                queue.last_ack = ack
                queue.acks.append((self.packets(side >> 1), ack))

    def _resolve_holes(self, side: int, queue: OutOfOrderQueue, give_up: bool = False) -> None:
        """Release the segments in order, and turn due holes, or all holes, into gaps."""
        self._note_ack(side, queue)
        packet_count = self.packets(side >> 1)
        while queue.acks and packet_count - queue.acks[0][0] >= SETTLE_PACKETS:
            queue.settled = queue.acks.popleft()[1]
        if queue.starting:
            safe = queue.settled >= queue.low or packet_count - queue.began >= START_PACKETS
            full = queue.bytes > START_BYTES or len(queue.held) > START_SEGMENTS
            if not (safe or full or give_up):
                return
            self.release_start(side, queue)
            peer_queue = self.queues.get(side ^ 1)
            if peer_queue is not None and peer_queue.starting:
                # What one side acknowledges is counted from offset 0 of the other.
                self.release_start(side ^ 1, peer_queue)
                self._resolve_holes(side ^ 1, peer_queue)
        self._drain(side, queue)
        while queue.held:
            head = queue.held[0]
            if not give_up and (head.end if head.is_damaged else head.offset) > queue.settled:
                if queue.bytes <= HELD_BYTES and len(queue.held) <= HELD_SEGMENTS:
                    break
                self._counts["held_cap"] += 1
            self._give_up(side, queue)
            self._drain(side, queue)
        self._close_if_in_order(side, queue)

    def _close_if_in_order(self, side: int, queue: OutOfOrderQueue) -> None:
        """Drop the queue of a side that is in order again."""
        side_record: SideRecord = self._table.sides[side]
        del queue.snaps[: bisect_right(queue.snaps, side_record.next_offset, key=lambda hole: hole[1])]
        if not queue.held and not queue.snaps:
            self.queues.pop(side, None)
            if side_record.fin_offset == side_record.next_offset and not side_record.ended:
                self._table.end(side)

    def release_start(self, side: int, queue: OutOfOrderQueue) -> None:
        """Fix offset 0 of a side without a SYN at the lowest sequence number captured."""
        side_record: SideRecord = self._table.sides[side]
        delta = queue.low
        side_record.base_seq = wrapped(side_record.base_seq + delta)
        side_record.known_end -= delta
        if side_record.fin_offset != NONE:
            side_record.fin_offset -= delta
        queue.rebase(delta)
        queue.starting = False
        first_ack = self._table.sides[side ^ 1].first_ack
        side_record.acked_from = NONE if first_ack < 0 else ahead(first_ack, side_record.base_seq)

    def _drain(self, side: int, queue: OutOfOrderQueue) -> None:
        """Give out what is held and in order now."""
        side_record: SideRecord = self._table.sides[side]
        count = 0
        for segment in queue.held:
            if segment.offset != side_record.next_offset or segment.is_damaged or side_record.ended:
                break
            count += 1
            start = -1 - len(self._history.released)
            self._history.released += segment.body
            queue.bytes -= len(segment.body)
            self.held_bytes -= len(segment.body) + HELD_OVERHEAD
            self._table.accept(
                side, start, len(segment.body), segment.ts_ns, segment.number, segment.file, segment.ack, segment.ident
            )
        del queue.held[:count]
        if queue.held and side_record.ended:
            for segment in queue.held:
                self._history.add_late(side, segment.offset, len(segment.body), segment.ts_ns, segment.number)
                self._table.advance(side, segment.end - side_record.next_offset)
                self.held_bytes -= len(segment.body) + HELD_OVERHEAD
            queue.held.clear()
            queue.bytes = 0

    # Holes that are given up

    def _give_up(self, side: int, queue: OutOfOrderQueue) -> None:
        """Let the first hole of a side be a gap, or let the damaged segment in it count."""
        side_record: SideRecord = self._table.sides[side]
        low = side_record.next_offset
        head = queue.held[0]
        high = head.offset
        if high == low:
            queue.held[0] = head._replace(is_damaged=False)
            return
        if head.is_damaged and high > max(queue.last_ack, side_record.known_end):
            # Nothing else shows that bytes up to its sequence number exist: that may be damaged, too.
            self._count_held(side, queue, queue.held.pop(0), -1)
            return
        side_record.missing += high - low
        self._gaps.add(side, Gap(low, high, head.ts_ns, side_record.last_packet or head.number, queue.is_snapped(low)))
        side_record.resume_at = 0
        self._table.advance(side, high - low)

    def give_up_flow(self, flow: int) -> None:
        """Give up all holes of a flow that was silent for long."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._resolve_holes(side, queue, give_up=True)
                self.settle(flow)

    def hurry_flow(self, flow: int) -> None:
        """Take what was acknowledged, and the start of a side, as if SETTLE_PACKETS more had come."""
        for side in (flow * 2, flow * 2 + 1):
            queue = self.queues.get(side)
            if queue is not None:
                self._note_ack(side, queue)
                queue.settled = queue.last_ack
                queue.acks.clear()
                if queue.starting:
                    self.release_start(side, queue)
        self.settle(flow)

    def end_flow(self, flow: int) -> None:
        """Nothing more comes on either side."""
        self.end_side(flow * 2)
        self.end_side(flow * 2 + 1)
        self._mark(flow)
        self._table.stop_comparing(flow)

    def end_side(self, side: int) -> None:
        """Nothing more comes on a side."""
        flow: FlowRecord = self._table.flows[side >> 1]
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        queue = self.queues.get(side)
        if queue is not None:
            self._resolve_holes(side, queue, give_up=True)
            self.queues.pop(side, None)
        if side_record.ended:
            return
        if side_record.base_seq < 0 and peer_record.first_ack >= 0:
            # No packet of this side: what the other side acknowledged was never captured.
            side_record.base_seq = peer_record.first_ack
        if side_record.base_seq >= 0:
            low, high = side_record.next_offset, self._known_end(side_record, peer_record)
            if high > low:
                snapped = queue is not None and any(start <= low < end for start, end in queue.snaps)
                side_record.missing += high - low
                packet = side_record.last_packet or flow.first_packet
                self._gaps.add(side, Gap(low, high, flow.last_ts_ns, packet, snapped))
                self._gaps.trailing.add(side)
        self._table.end(side)

    def _known_end(self, side_record: SideRecord, peer_record: SideRecord) -> int:
        """The stream offset where the bytes end that a side is known to have sent."""
        low, high = side_record.next_offset, side_record.known_end
        if NONE < side_record.fin_offset < low + MAX_WINDOW:
            return int(side_record.fin_offset)
        ack = unwrapped(peer_record.ack, side_record.base_seq, low) if peer_record.ack >= 0 else low
        # An acknowledgement of one more is as likely that of a FIN which was not captured.
        return ack if high + 1 < ack < low + MAX_WINDOW else int(high)


def _first_ending_after(held: list[HeldSegment], offset: int) -> int:
    """The index of the first held segment with a byte at or after an offset."""
    return bisect_right(held, offset, key=lambda segment: segment.end)
