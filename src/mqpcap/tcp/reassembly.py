# cython: language_level=3, annotation_typing=False
"""Turns TCP segments into ordered byte streams.

In: the `Segments` of a window. Out: `StreamChunks`, runs of stream bytes of each side of each connection. Called by:
the pipeline. Promise: no byte is emitted twice, and missing bytes are recorded as gaps, never filled. The first copy of
a byte is kept, unless it waits and a checksum or the receiver's acknowledgement shows that a later one counts (see
``out_of_order``). Different bytes are recorded as a conflict.

`FastPath` processes every packet that is in order, in C when compiled. A side that is not in order has a
`ReorderQueue` with copies of early segments; while it exists, every packet of the connection takes the slow path here.
Bytes that come after their hole was given up are counted and recorded as late. Each decision is made per packet, so
results do not depend on how the input was split into windows. Exception: if a memory cap is reached (see ``counts``),
results depend on the other connections, too. The cap on histories is checked once per window.

Connections are numbered in the order of their first packets; a number is never used again. Inside, a flow is named by
its index in the flow table, and side 2 * flow is sent by endpoint A, side 2 * flow + 1 by endpoint B.

Stream offsets are int64 and never wrap. Without a SYN, offset 0 is the lowest sequence number known when the first byte
of the side is emitted. Bytes below it that come later have negative offsets, and appear only in gaps and late bytes.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp import eviction
from mqpcap.tcp.chunks import StreamChunks, StreamRange, chunks_of, run_starts
from mqpcap.tcp.flags import FIN, RST, SYN
from mqpcap.tcp.flow_records import NO_OFFSET, PIECE, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import CLOSED_TIMEOUT_NS, MAX_HOLE, STALE_NS, FastPath, FlowTable, gather_pieces
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.gaps import Gap, Gaps, GapTimes
from mqpcap.tcp.handshake import NEW, STRAY, Handshakes
from mqpcap.tcp.headers import Segments
from mqpcap.tcp.history import History
from mqpcap.tcp.out_of_order import OutOfOrder, ReorderQueue
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, unwrapped, wrapped
from mqpcap.tcp.unconsumed import UnconsumedBytes

MAX_BYTES = 512 * 1024 * 1024
"""Default limit of the memory for early segments, unconsumed bytes and history together."""
REORDERING_DIVISOR = 2
"""Divisor: the share of the memory for early segments of all connections."""
HISTORY_DIVISOR = 4
"""Divisor: the share for bytes that retransmissions are compared with."""
UNCONSUMED_DIVISOR = 4
"""Divisor: the share for unconsumed bytes; beyond it they live in a temporary file."""
SWEEP_PACKETS = 1 << 20
"""Packets between two searches for idle flows."""


class Reassembler:
    """Ordered streams of the segments of one capture.

    Call feed with the segments of one window after the other, retain with the bytes that the reader did not consume,
    and finish at the end.

    ``counts``: events that no row shows.
    ``reorder_cap``: holes given up because a limit of bytes or segments was reached.
    ``evicted_open``: connections evicted while open.
    ``uncompared_bytes``: retransmitted bytes whose first copy was no longer stored.
    ``history_shrunk``: histories dropped to stay below the cap.
    ``damaged_strays``: packets with a damaged IP header that belong to no connection.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        words = ("reorder_cap", "evicted_open", "uncompared_bytes", "history_shrunk", "damaged_strays")
        self.counts: dict[str, int] = dict.fromkeys(words, 0)
        self._table = FlowTable()
        self._fast_path = FastPath(self._table)
        self._gaps = Gaps()
        self._history = History(self._table, self.counts, max_bytes // HISTORY_DIVISOR)
        self._out_of_order = OutOfOrder(
            self._table, self._history, self._gaps, self.counts, max_bytes // REORDERING_DIVISOR
        )
        self._handshakes = Handshakes(self._table, self._out_of_order, self._fast_path)
        self._unconsumed = UnconsumedBytes(max_bytes // UNCONSUMED_DIVISOR, self.counts)
        self._finished = False
        self._now_ns = 0
        self._packets_unswept = 0
        self.flows = Flows(self._table)

    @property
    def live(self) -> Int64Array:
        """The numbers of the connections that are not forgotten."""
        return self.flows.numbers(self.flows.live())

    @property
    def queue_count(self) -> int:
        """Sides that wait for a hole."""
        return len(self._out_of_order.queues)

    @property
    def buffered_bytes(self) -> int:
        """Memory of early segments."""
        return self._out_of_order.buffered_bytes

    def stalled_sides(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) that wait for missing bytes, and since when (ns)."""
        queues = self._out_of_order.queues
        flows = self.flows.numbers(np.array([side >> 1 for side in queues], np.int64)).tolist()
        return {(flow, side & 1): queue.since_ns for flow, (side, queue) in zip(flows, queues.items(), strict=True)}

    # Feeding

    def feed(self, segments: Segments) -> StreamChunks:
        """The chunks with new pieces or ended sides after the segments of one window, which are in order of capture.

        A chunk begins with the bytes that retain stored earlier. If retain is not called with the result before the
        next feed, all its bytes count as consumed.
        """
        if self._finished:
            raise ValueError("segments came after finish()")
        table, fast_path, row, count = self._table, self._fast_path, 0, len(segments.key)
        self._history.window = memoryview(segments.buffer)
        if count:
            self._now_ns = int(segments.ts_ns[-1])
        self._packets_unswept += count
        if self._packets_unswept >= SWEEP_PACKETS:
            self._sweep(int(segments.ts_ns[0]))
        fast_path.load_segments(segments)
        while (row := fast_path.run(row)) < count:
            if fast_path.is_full:
                fast_path.grow()
            elif self._slow_path(_packet(segments, row), fast_path.stopped_flow * 2 + fast_path.stopped_side):
                row += 1
            table.reserve(count - row)
        self.counts["damaged_strays"] = table.stray_count
        return self._chunks(segments.buffer)

    def flush_reordering(self, flows: Int64Array) -> StreamChunks:
        """The new chunks of flows if packets that may have been captured out of order are no longer awaited."""
        for flow in self.flows.indexes(flows).tolist():
            self._out_of_order.flush_flow(flow)
        return self._chunks(np.zeros(0, np.uint8))

    def finish(self) -> StreamChunks:
        """The new chunks at the end of the capture: buffered segments are released, and every side ends."""
        self._finished = True
        return self.end(self.live)

    def end(self, flows: Int64Array) -> StreamChunks:
        """The new chunks of connections that end now, before they are forgotten."""
        table, indexes = self._table, self.flows.indexes(flows)
        is_ending = np.zeros(table.flow_count, np.bool_)
        is_ending[indexes] = True
        waiting = {side >> 1 for side in self._out_of_order.queues}
        for flow in indexes.tolist() if waiting else ():
            if flow in waiting:
                self._out_of_order.end_flow(flow)
        sides = table.both_sides()
        for side_bit in (0, 1):
            records, ack = sides[:, side_bit], sides["ack"][:, 1 - side_bit]
            # A side that may miss bytes at its end is examined; every other side just ends.
            ack_ahead = wrapped(ack - records["base_seq"] - records["next_offset"])
            odd = (
                (records["known_end"] > records["next_offset"])
                | (records["fin_offset"] != NO_OFFSET)
                | (records["base_seq"] < 0)
            )
            odd |= (ack >= 0) & (ack_ahead > 0) & (ack_ahead < MAX_WINDOW)
            for flow in np.flatnonzero(is_ending & (records["ended"] == 0) & odd).tolist():
                self._out_of_order.end_side(flow * 2 + side_bit)
        for side_bit in (0, 1):
            remaining = np.flatnonzero(is_ending & (sides["ended"][:, side_bit] == 0))
            table.reserve(len(remaining))
            end_count = table.ended_count
            table.ended[end_count : end_count + len(remaining)] = remaining * 2 + side_bit
            table.ended_count = end_count + len(remaining)
            sides["ended"][remaining, side_bit] = 1
        return self._chunks(np.zeros(0, np.uint8))

    # The slow path

    def _slow_path(self, packet: Segment, side: int) -> bool:
        """Process one packet; False if it opened a new flow, where the fast path tries it again."""
        table, out_of_order, handshakes = self._table, self._out_of_order, self._handshakes
        newest = side
        self._find_damage(packet, side)
        handshakes.choose_syn_ack(packet, side)
        side = handshakes.syn_owner(packet, side) if packet.flags & SYN else handshakes.owner(packet, side)
        if side == NEW:
            if handshakes.is_over(newest) or packet.ts_ns - table.flows[newest >> 1].last_ts_ns > STALE_NS:
                out_of_order.end_flow(newest >> 1)
            handshakes.open(packet, newest)
            return False
        is_stray = side == STRAY
        side = newest if is_stray else side
        self._find_damage(packet, side)
        self._give_up_if_idle(side >> 1, packet.ts_ns)
        if packet.flags & RST:
            self._apply_reset(packet, side)
            return True
        if is_stray or (packet.is_damaged and not packet.wire_length):
            table.note_checksum(side, packet.checksum)
            handshakes.note_stray(packet, side)
            table.count(side, packet.flags & ~FIN, packet.ts_ns)
            out_of_order.update(side >> 1)
            return True
        seq = packet.seq
        if packet.flags & SYN:
            handshakes.note_copy(packet, side)
            side = self._handshakes.apply_syn(packet, side)
            seq = wrapped(seq + 1)
        ack = packet.sent_ack
        if ack >= 0 and not self._fast_path.is_near(side, ack, MAX_HOLE):
            ack = packet.ack = -1
        if table.sides[side ^ 1].base_seq < 0:
            table.begin_other(side >> 1, side, seq, ack)
        elif ack >= 0 and not table.sides[side ^ 1].base_known:
            handshakes.start_other(side, seq, ack)
        table.count(side, packet.flags, packet.ts_ns)
        table.note_checksum(side, packet.checksum)
        if not packet.is_damaged:
            table.note_window(side, packet.window, ack)
        self._take_segment(packet, side, seq)
        if ack >= 0:
            table.acknowledge(side, ack)
            table.close(side >> 1)
        out_of_order.update(side >> 1)
        return True

    def _find_damage(self, packet: Segment, side: int) -> None:
        """Its receiver drops a damaged segment: but for its bytes, which may be in reserve, it shows nothing."""
        if self._table.is_damaged(side, packet.checksum):
            packet.is_damaged, packet.flags = True, 0

    def _give_up_if_idle(self, flow: int, ts_ns: int) -> None:
        """Give up the holes of a flow that was idle, as a sweep does: packets of other flows must not count."""
        record: FlowRecord = self._table.flows[flow]
        idle_ns = ts_ns - record.last_ts_ns
        if idle_ns > (CLOSED_TIMEOUT_NS if record.is_closed else STALE_NS):
            if idle_ns > STALE_NS:
                self._table.stop_comparing(flow)
            self._out_of_order.give_up_flow(flow)

    def _apply_reset(self, packet: Segment, side: int) -> None:
        """Process a RST; it ends the connection only if the other side accepts its sequence number."""
        table = self._table
        side_record: SideRecord = table.sides[side]
        state = self._handshakes.reset_state(packet, side)
        flow: FlowRecord = table.flows[side >> 1]
        is_reset = flow.reset_by > 0 and table.sides[(side & ~1) + flow.reset_by - 1].rst_seen
        if state and not flow.fin_by and not is_reset:
            flow.reset_by, flow.reset_idle_ns = (side & 1) + 1, max(packet.ts_ns - flow.last_ts_ns, 0)
        table.count(side, packet.flags, packet.ts_ns)
        table.note_identity(side, side_record.rst_seen != 0, packet.flags, packet.ts_ns, packet.ident)
        side_record.rst_seen = 1 if side_record.rst_seen == 1 else state or side_record.rst_seen
        if side_record.rst_seen == 1:
            flow.is_closed = 1
            table.stop_comparing(side >> 1)
        self._out_of_order.update(side >> 1)

    def _take_segment(self, packet: Segment, side: int, seq: int) -> None:
        """Process the payload and the FIN of a packet."""
        side_record: SideRecord = self._table.sides[side]
        queue = self._out_of_order.queues.get(side)
        if side_record.base_seq < 0:
            side_record.base_seq = seq
            queue = self._out_of_order.open_queue(side, packet.ts_ns, start_unknown=True)
        offset = unwrapped(seq, side_record.base_seq, side_record.next_offset)
        if packet.wire_length > 0:
            self._take_payload(packet, side, offset)
        elif self._table.note_empty(side, offset, packet.sent_ack, packet.flags, packet.ts_ns, packet.ident):
            if queue is not None and queue.start_unknown:
                queue.lowest = min(queue.lowest, offset)
        if packet.flags & FIN:
            is_in_order = side not in self._out_of_order.queues
            self._table.note_fin(side, offset + packet.wire_length, packet.sent_ack, is_in_order)

    def _take_payload(self, packet: Segment, side: int, offset: int) -> None:
        """Sort the bytes of one segment into accepted, buffered, late and repeated."""
        side_record: SideRecord = self._table.sides[side]
        out_of_order = self._out_of_order
        queue = out_of_order.queues.get(side)
        start_unknown = queue is not None and queue.start_unknown
        body = self._history.window[packet.start : packet.start + packet.length]
        high, wire_high, expected = offset + packet.length, offset + packet.wire_length, side_record.next_offset
        if packet.wire_length == 1 and self._is_probe(packet, side, offset, queue):
            return
        if queue is not None and start_unknown:
            queue.lowest = min(queue.lowest, offset)
        elif offset < expected:
            cut = min(high, expected) - offset
            if packet.is_damaged:
                side_record.retransmitted += min(cut, packet.length)
            else:
                self._take_repeated(packet, side, offset, bytes(body[:cut]))
            body = body[cut:]
            offset += cut
        if side_record.ended:
            if body:  # bytes after a FIN are captured, but belong to no stream
                side_record.bytes += len(body)
                self._history.add_late(side, offset, len(body), packet.ts_ns, packet.packet_number)
                self._table.advance(side, offset + len(body) - side_record.next_offset)
            return
        # Only an acknowledgement can confirm a segment with a wrong checksum, if its receiver was captured.
        packet.is_unproven = packet.checksum < 0 <= self._table.sides[side ^ 1].ack and not packet.is_damaged
        if body and queue is None and offset == expected and not (packet.is_damaged or packet.is_unproven):
            side_record.bytes += len(body)
            start = packet.start + packet.length - len(body)
            self._table.accept(
                side, start, len(body), packet.ts_ns, packet.packet_number, packet.file, packet.sent_ack, packet.ident
            )
        elif body:
            queue = queue or out_of_order.open_queue(side, packet.ts_ns)
            out_of_order.add(packet, side, queue, offset, bytes(body))
            side_record.known_end = side_record.known_end if packet.is_damaged else max(side_record.known_end, high)
        if wire_high > high and (start_unknown or wire_high > side_record.next_offset):
            queue = queue or out_of_order.open_queue(side, packet.ts_ns)
            queue.add_snapped(high if start_unknown else max(high, side_record.next_offset), wire_high)
            side_record.known_end = max(side_record.known_end, wire_high)

    def _is_probe(self, packet: Segment, side: int, offset: int, queue: ReorderQueue | None) -> bool:
        """Whether a byte that came before asks if the connection is alive: it is alone, and often garbage."""
        side_record: SideRecord = self._table.sides[side]
        other_ack = self._table.sides[side ^ 1].ack
        is_acked = other_ack >= 0 and unwrapped(other_ack, side_record.base_seq, side_record.next_offset) > offset
        if queue is not None and (queue.start_unknown or offset >= side_record.next_offset):
            return is_acked and queue.differs(offset, bytes(self._history.window[packet.start :][: packet.length]))
        is_last = offset + 1 == side_record.next_offset
        is_known = is_last or (is_acked and side_record.lowest_offset <= offset < side_record.next_offset)
        is_missing = bool(self._gaps.overlapping(side, offset, offset + 1))
        is_closed = bool(self._table.flows[side >> 1].is_closed)
        if not is_known or is_missing or is_closed or self._history.has_sent(packet, side, offset):
            return False
        side_record.retransmitted += 0 if is_acked else packet.length
        return True

    def _take_repeated(self, packet: Segment, side: int, offset: int, body: bytes) -> None:
        """Count late bytes that fall in gaps, and compare retransmitted bytes with the first copy."""
        side_record: SideRecord = self._table.sides[side]
        if offset < side_record.lowest_offset:
            below = side_record.lowest_offset - offset
            if side_record.base_known:
                below = min(len(body), below)  # nobody ever had bytes below a SYN
                offset, body = offset + below, body[below:]
            else:
                side_record.missing += below
                self._gaps.add(side, Gap(offset, side_record.lowest_offset, packet.ts_ns, packet.packet_number))
                side_record.lowest_offset = offset
        position, high = offset, offset + len(body)
        is_copy = bool(body) and self._history.is_copy(packet, side, offset, self._history.original(side, offset))
        is_new = high - offset < packet.length
        for gap in [*self._gaps.overlapping(side, offset, high), Gap(high, high)]:
            low, end = max(gap.low, offset), min(gap.high, high)
            if low > position:
                part = body[position - offset : low - offset]
                is_copy &= self._history.compare_retransmission(packet, side, position, part, is_copy)
            if end > low:
                is_new = True
                self._gaps.by_side[side].replace(gap, gap.without(low, end, packet.packet_number))
                side_record.bytes += end - low
                side_record.missing -= end - low
                self._history.add_late(side, low, end - low, packet.ts_ns, packet.packet_number)
                self._history.add(side, low, body[low - offset : end - offset])
            position = end
        if is_copy:
            side_record.has_copies = 1
            side_record.duplicates += not is_new

    # Chunks

    def _chunks(self, window: NDArray[np.uint8]) -> StreamChunks:
        """Group the pieces of this feed by flow and side, after their unconsumed bytes, in one copy."""
        table = self._table
        pieces = table.piece_array[: table.piece_count]
        is_new_side = np.zeros(table.flow_count * 2, np.bool_)
        is_new_side[pieces["side"]] = is_new_side[table.ended[: table.ended_count]] = True
        new_sides = np.flatnonzero(is_new_side)
        # In order of connections, which may have taken the records of others.
        new_sides = new_sides[np.argsort(self.flows.numbers(new_sides >> 1), kind="stable")]
        reached = table.side_array["next_offset"][new_sides]
        show = (table.side_array["ended"][new_sides] != 0) | (table.side_array["resume_at"][new_sides] <= reached)
        shown = new_sides[show]

        rank_of = np.full(len(is_new_side), len(new_sides))
        rank_of[np.append(shown, new_sides[~show])] = np.arange(len(new_sides))
        parts = [*self._unconsumed.take(rank_of < len(shown)), pieces]
        retained_count = sum(map(len, parts)) - len(pieces)
        rank = np.concatenate([rank_of[part["side"]] for part in parts])
        narrow = rank.astype(np.uint16) if len(new_sides) <= 0xFFFF else rank  # numpy sorts 16 bits in linear time
        order = np.argsort(narrow, kind="stable")
        buffer = self._gathered(window, parts, order, retained_count)
        rows = _sorted(parts, order)
        rows["start"] = np.cumsum(rows["length"]) - rows["length"]

        runs = run_starts(rows)
        self._history.remember(rows, runs, buffer)
        closed = new_sides[table.side_array["compare_from"][new_sides] >= reached]
        for side in self._history.blocks.keys() & closed.tolist():
            self._history.drop(side)
        shown_rows = int(np.searchsorted(rank[order], len(shown)))
        hidden = rows[shown_rows:]
        self._unconsumed.add(hidden, np.ones(len(hidden), np.bool_), buffer)
        runs = runs[: int(np.searchsorted(runs, shown_rows))]
        emit_order = order[:shown_rows] + (table.piece_first - retained_count)
        trailing = np.fromiter(self._gaps.trailing, np.int64)
        result = chunks_of(rows[:shown_rows], runs, buffer, table.side_array, shown, rank_of, trailing, emit_order)
        result = replace(result, flow=self.flows.numbers(result.flow))
        for part in (table, self._gaps, self._history):
            part.reset_feed()
        return result

    def _gathered(
        self, window: NDArray[np.uint8], parts: list[NDArray[np.void]], order: Int64Array, retained_count: int
    ) -> NDArray[np.uint8]:
        """The bytes of pieces in an order; the first retained_count are among the unconsumed."""
        starts, lengths = (np.concatenate([part[name] for part in parts]) for name in ("start", "length"))
        buffer = np.empty(int(lengths.sum()), np.uint8)
        reordered, unconsumed = self._history.reordered_bytes, self._unconsumed.bytes
        gather_pieces(
            memoryview(buffer), memoryview(window), memoryview(reordered), memoryview(unconsumed), memoryview(order),
            retained_count, memoryview(starts), memoryview(lengths),
        )  # fmt: skip
        return buffer

    def retain(self, chunks: StreamChunks, consumed: Int64Array, needed: Int64Array | None = None) -> None:
        """Store the bytes that the reader did not consume, to return them in front of the next bytes of their side.

        ``consumed``: bytes consumed at the start of each chunk (int64); ignored where gap_after or ended is set.
        ``needed``: bytes that the unconsumed part of each chunk must reach before it is returned again (0: any). So
        a long message is not copied again with each of its segments. A gap or the end returns it at once.
        """
        rows = np.flatnonzero(~(chunks.gap_after | chunks.ended) & (consumed < chunks.length))
        if len(rows) == 0:
            return
        side = self.flows.indexes(chunks.flow[rows]) * 2 + chunks.side[rows]
        done = consumed[rows]
        rest_offset = chunks.offset[rows] + done
        self._table.side_array["consumed_to"][side] = np.where(
            done == 0, rest_offset - chunks.gap_before[rows], rest_offset
        )
        more = np.zeros(len(rows), np.int64) if needed is None else needed[rows]
        self._table.side_array["resume_at"][side] = np.where(more > 0, rest_offset + more, 0)
        self._unconsumed.add_tails(chunks, rows, side, rest_offset, more > 0)

    # Connections that are over

    @property
    def flow_count(self) -> int:
        """Connections in the table."""
        return self._table.live_count

    def eviction_candidates(self, max_closed: int, max_flows: int) -> Int64Array:
        """Connections to be ended so that the table stays small; see eviction."""
        candidates, evicted_open = eviction.eviction_candidates(self._table, self._now_ns, max_closed, max_flows)
        self.counts["evicted_open"] += evicted_open
        return np.sort(self.flows.numbers(np.flatnonzero(candidates)))

    def _sweep(self, now_ns: int) -> None:
        """Drop the heavy state of flows that are idle or closed for long."""
        self._packets_unswept = 0
        self._history.drop_idle(now_ns - STALE_NS)
        for side in list(self._out_of_order.queues):
            flow: FlowRecord = self._table.flows[side >> 1]
            limit_ns = CLOSED_TIMEOUT_NS if flow.is_closed else STALE_NS
            if flow.last_ts_ns < now_ns - limit_ns:
                self._out_of_order.give_up_flow(side >> 1)

    def forget(self, flows: Int64Array) -> None:
        """Drop all state of connections that are over and were ended, and all ranges that were reported.

        For the other connections, this drops late and conflicting ranges, gaps that `final_gaps` returned, and the
        history of idle connections, which their next packet would not be compared with.
        """
        table, history, gaps = self._table, self._history, self._gaps.by_side
        history.conflicts.clear()
        history.late.clear()
        for side, side_gaps in [*gaps.items()]:
            side_gaps.drop_below(self._final_below(side))
            if not side_gaps:
                del gaps[side]
        history.drop_idle(self._now_ns - STALE_NS)
        if len(flows) == 0:
            return
        indexes = self.flows.indexes(flows)
        self._gaps.times.forget(_sides(flows))
        for flow in indexes.tolist():
            table.stop_comparing(flow)
        sides = _sides(indexes)
        for side in gaps.keys() & sides:
            del gaps[side]
        history.forget(sides)
        self._fast_path.release(indexes)
        self._handshakes.forget(indexes.tolist())

    # Missing, conflicting and late bytes

    def gaps(self) -> list[StreamRange]:
        """The gaps until now; final after finish."""
        return self._reported(self._gaps)

    def final_gaps(self, flows: Int64Array) -> list[StreamRange]:
        """The gaps of connections that are over, and the gaps of other connections that no packet can fill."""
        ended_flows = {*self.flows.indexes(flows).tolist()}
        below = self._final_below
        return self._reported(
            r for r in self._gaps if r.flow in ended_flows or r.offset + r.length <= below(r.flow * 2 + r.side)
        )

    @property
    def gap_times(self) -> GapTimes:
        """When packets first showed the bytes of each gap."""
        return self._gaps.times

    def conflicts(self) -> list[StreamRange]:
        """The ranges where a retransmission had other bytes than the first copy."""
        return self._reported(self._history.conflicts)

    def late(self) -> list[StreamRange]:
        """Bytes captured after their hole was given up, or after a FIN: counted, but in no chunk."""
        return self._reported(self._history.late)

    @property
    def unreported_count(self) -> int:
        """Rows of `conflicts` and `late`."""
        return len(self._history.conflicts) + len(self._history.late)

    def _reported(self, rows: Iterable[StreamRange]) -> list[StreamRange]:
        """Ranges in order of flow, side and offset, with the numbers of their connections."""
        rows = list(rows)
        numbers = self.flows.numbers(np.array([row.flow for row in rows], np.int64)).tolist()
        numbered = (row._replace(flow=number) for row, number in zip(rows, numbers, strict=True))
        return sorted(numbered, key=lambda row: row[:3])

    def _final_below(self, side: int) -> int:
        """The stream offset below which no packet can fill a gap: TCP does not retransmit that far back."""
        return int(self._table.sides[side].next_offset) - MAX_WINDOW


def _sides(flows: Int64Array) -> set[int]:
    """Both sides of connections, by number or by index."""
    return {*(flows * 2).tolist(), *(flows * 2 + 1).tolist()}


def _packet(segments: Segments, row: int) -> Segment:
    """One segment as a record."""
    columns = (
        segments.seq, segments.ack, segments.flags, segments.start, segments.length, segments.wire_length,
        segments.ts_ns, segments.packet_number, segments.file, segments.ident, segments.checksum,
        segments.window,
    )  # fmt: skip
    return Segment(*(int(column[row]) for column in columns))


def _sorted(parts: list[NDArray[np.void]], order: Int64Array) -> NDArray[np.void]:
    """The pieces of parts in an order. Removes each part as it goes: a long message may have a million pieces."""
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    rows = np.empty(len(order), PIECE)
    stop = len(order)
    while parts:
        part = parts.pop()
        rows.put(index[stop - len(part) : stop], part)  # NumPy would copy rows[...] = part field by field
        stop -= len(part)
    return rows
