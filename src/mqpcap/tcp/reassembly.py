# cython: language_level=3, annotation_typing=False
"""TCP segments to ordered byte streams.

Each side of each connection becomes runs of stream bytes (chunks); bytes the capture did not see are recorded as gaps,
nothing here fills one, and no byte is given out twice. The first copy of a byte is kept; what a later copy says
otherwise is recorded as a conflict.

Theory of operation. ``FlowTable.walk`` takes every packet that is in order, in C when compiled. A side that is not in
order has an ``OutOfOrderQueue`` holding copies of what came too early, and while it has one every packet of its
connection is judged here. Bytes that come after their hole was given up are counted and recorded as late. All of this
is decided per packet, never per call of feed, so results do not depend on how the input was cut into windows. Under
the memory caps (counts say when they bite) results depend on what other connections are in the same Reassembler, and
that of histories is looked at once a window.

Connections are numbered in the order of their first packets; a number stays theirs for ever, also when they are over
and forgotten. Inside, a flow and a side go by their places in the flow table: side 2 * flow is sent by endpoint A, side
2 * flow + 1 by endpoint B.

Stream offsets are int64 and never wrap. Without a SYN offset 0 is the lowest sequence number known when the side's
first byte was given out; bytes below that come later have negative offsets, and are in gaps and late bytes only.
"""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp import eviction
from mqpcap.tcp.chunks import Range, StreamChunks, run_starts
from mqpcap.tcp.flow_records import NONE, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import CLOSED_NS, IDLE_NS, FlowTable, gather
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.gaps import Gap, Gaps
from mqpcap.tcp.handshake import FIN, NEW, RST, STRAY, SYN, Handshakes
from mqpcap.tcp.headers import Segments
from mqpcap.tcp.history import History
from mqpcap.tcp.leftovers import Leftovers
from mqpcap.tcp.out_of_order import OutOfOrder
from mqpcap.tcp.sequence_numbers import MAX_WINDOW, unwrapped, wrapped

MAX_BYTES = 512 * 1024 * 1024
"""Memory for held segments, kept chunks and history together, unless the caller says otherwise."""
HELD_SHARE = 2
"""One part in this of the memory may hold segments that came too early, over all connections."""
HISTORY_SHARE = 4
"""One part in this may hold bytes to compare retransmissions with."""
KEPT_SHARE = 4
"""One part in this may hold what readers left over; above it those bytes live in a temporary file."""
SWEEP_PACKETS = 1 << 20
"""Packets between two searches for idle flows."""

_Known = TypeVar("_Known")


class Reassembler:
    """Ordered streams out of the segments of one capture.

    feed the segments of one window after the other, keep what the reader is not done with, finish at the end. counts
    say what happened that a row does not: held_cap (holes given up for want of memory, in bytes or segments),
    crowded_out (connections ended for want of memory that may not have been over), uncompared_bytes (retransmitted, but
    the first copy was no longer there), history_shrunk, rst_payload_bytes.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        words = ("held_cap", "crowded_out", "uncompared_bytes", "history_shrunk", "rst_payload_bytes")
        self.counts: dict[str, int] = dict.fromkeys(words, 0)
        self._table = FlowTable()
        self._gaps = Gaps()
        self._history = History(self._table, self.counts, max_bytes // HISTORY_SHARE)
        self._out_of_order = OutOfOrder(self._table, self._history, self._gaps, self.counts, max_bytes // HELD_SHARE)
        self._handshakes = Handshakes(self._table, self._out_of_order)
        self._leftovers = Leftovers(max_bytes // KEPT_SHARE, self.counts)
        self._finished = False
        self._now_ns = 0
        self._packets_unswept = 0
        self.flows = Flows(self._table)

    @property
    def live(self) -> Int64Array:
        """The numbers of the connections that are not forgotten."""
        return self.flows.numbers(np.arange(self._table.flow_count))

    @property
    def held_bytes(self) -> int:
        """Bytes of segments that came too early and wait, with their cost."""
        return self._out_of_order.held_bytes

    def out_of_order(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) with bytes that came too early, and since when (ns) they wait for those before."""
        queues = self._out_of_order.queues
        flows = self.flows.numbers(np.array([side >> 1 for side in queues], np.int64)).tolist()
        return {(flow, side & 1): queue.since_ns for flow, (side, queue) in zip(flows, queues.items(), strict=True)}

    # The way of a window

    def feed(self, segments: Segments) -> StreamChunks:
        """The chunks with news after the segments of one window, which are in order of capture.

        Each holds what keep left over before. If keep is not called with the result before the next feed, the reader is
        done with all of it.
        """
        if self._finished:
            raise ValueError("segments came after finish()")
        table, row, count = self._table, 0, len(segments.key)
        self._history.window = memoryview(segments.buffer)
        if count:
            self._now_ns = int(segments.ts_ns[-1])
        self._packets_unswept += count
        if self._packets_unswept >= SWEEP_PACKETS:
            self._sweep(int(segments.ts_ns[0]))
        table.begin(segments)
        while (row := table.walk(row)) < count:
            if table.is_full:
                table.grow()
            elif self._judge(_packet(segments, row), table.at_flow * 2 + table.at_side):
                row += 1
            table.make_room(count - row)
        return self._chunks(segments.buffer)

    def hurry(self, flows: Int64Array) -> StreamChunks:
        """The chunks with news where nobody waits longer for packets that may have been captured out of order."""
        for flow in self.flows.places(flows).tolist():
            self._out_of_order.hurry_flow(flow)
        return self._chunks(np.zeros(0, np.uint8))

    def finish(self) -> StreamChunks:
        """The chunks with news at the end of the capture: everything held, every side ended."""
        self._finished = True
        return self._ended(np.ones(self._table.flow_count, np.bool_))

    def end(self, flows: Int64Array) -> StreamChunks:
        """The same where nothing more comes of some connections, before they are forgotten."""
        wanted = np.zeros(self._table.flow_count, np.bool_)
        wanted[self.flows.places(flows)] = True
        return self._ended(wanted)

    def _ended(self, wanted: NDArray[np.bool_]) -> StreamChunks:
        for side in sorted(self._out_of_order.queues):
            if side in self._out_of_order.queues and wanted[side >> 1]:
                self._out_of_order.end_flow(side >> 1)
        table = self._table
        sides = table.both_sides()
        for side_bit in (0, 1):
            records, ack = sides[:, side_bit], sides["ack"][:, 1 - side_bit]
            # A side that may miss bytes at its end is examined; every other side just ends.
            ack_ahead = wrapped(ack - records["base_seq"] - records["next_offset"])
            odd = (
                (records["known_end"] > records["next_offset"])
                | (records["fin_offset"] != NONE)
                | (records["base_seq"] < 0)
            )
            odd |= (ack >= 0) & (ack_ahead > 0) & (ack_ahead < MAX_WINDOW)
            for flow in np.flatnonzero(wanted & (records["ended"] == 0) & odd).tolist():
                self._out_of_order.end_side(flow * 2 + side_bit)
        for side_bit in (0, 1):
            left = np.flatnonzero(wanted & (sides["ended"][:, side_bit] == 0))
            table.make_room(len(left))
            end_count = table.ended_count
            table.ended[end_count : end_count + len(left)] = left * 2 + side_bit
            table.ended_count = end_count + len(left)
            sides["ended"][left, side_bit] = 1
        return self._chunks(np.zeros(0, np.uint8))

    # One packet that walk did not take

    def _judge(self, packet: Segment, side: int) -> bool:
        """Take one packet; False if it opened a new flow, which walk takes now."""
        table, waiting, handshakes = self._table, self._out_of_order, self._handshakes
        newest = side
        packet.is_damaged = packet.length > 0 and bool(table.is_damaged(side, packet.checksum))
        handshakes.settle_start(packet, side)
        side = handshakes.syn_owner(packet, side) if packet.flags & SYN else handshakes.owner(packet, side)
        if side == NEW:
            if handshakes.is_over(newest) or packet.ts_ns - table.flows[newest >> 1].last_ts_ns > IDLE_NS:
                waiting.end_flow(newest >> 1)
            handshakes.open(packet, newest)
            return False
        is_stray = side == STRAY
        side = newest if is_stray else side
        packet.is_damaged = packet.length > 0 and bool(table.is_damaged(side, packet.checksum))
        flow: FlowRecord = table.flows[side >> 1]
        idle_ns = packet.ts_ns - flow.last_ts_ns
        if idle_ns > (CLOSED_NS if flow.is_closed else IDLE_NS):
            # What a sweep does: a result must not depend on how many packets other flows had.
            if idle_ns > IDLE_NS:
                table.stop_comparing(side >> 1)
            waiting.give_up_flow(side >> 1)
        if packet.flags & RST:
            self._take_reset(packet, side)
            return True
        if is_stray:
            self._count(packet, side)
            table.set_empty(side, packet.flags, packet.ts_ns, packet.ident)
            waiting.settle(side >> 1)
            return True
        seq = packet.seq
        if packet.flags & SYN:
            handshakes.note_copy(packet, side)
            side = self._handshakes.take_syn(packet, side)
            seq = wrapped(seq + 1)
        ack = packet.sent_ack
        if ack >= 0 and self._handshakes.is_far_ack(packet, side):
            ack = packet.ack = -1
        if table.sides[side ^ 1].base_seq < 0:
            table.begin_other(side >> 1, side, seq, ack)
        self._count(packet, side)
        table.note_checksum(side, packet.checksum)
        self._take(packet, side, seq)
        if ack >= 0:
            table.acknowledge(side, ack)
            table.close(side >> 1)
        waiting.settle(side >> 1)
        return True

    def _take_reset(self, packet: Segment, side: int) -> None:
        """Take a RST; it ends the connection only if the other side accepts its number."""
        side_record: SideRecord = self._table.sides[side]
        state = self._handshakes.reset_state(packet, side)
        self.counts["rst_payload_bytes"] += packet.length
        self._count(packet, side)
        self._table.note_reset(side, packet.flags, packet.ts_ns, packet.ident)
        side_record.rst_seen = 1 if side_record.rst_seen == 1 else state or side_record.rst_seen
        if side_record.rst_seen == 1:
            self._table.flows[side >> 1].is_closed = 1
            self._table.stop_comparing(side >> 1)
        self._out_of_order.settle(side >> 1)

    def _count(self, packet: Segment, side: int) -> None:
        side_record: SideRecord = self._table.sides[side]
        flow: FlowRecord = self._table.flows[side >> 1]
        side_record.packets += 1
        if side_record.rst_seen == 2 and not packet.flags & RST:
            side_record.rst_seen = 0  # the sender goes on: the other side did not accept the RST
        flow.last_ts_ns = max(flow.last_ts_ns, packet.ts_ns)

    def _take(self, packet: Segment, side: int, seq: int) -> None:
        """Take the payload and the FIN of a packet."""
        side_record: SideRecord = self._table.sides[side]
        other_ack = self._table.sides[side ^ 1].ack
        queue = self._out_of_order.queues.get(side)
        if side_record.base_seq < 0:
            side_record.base_seq = seq
            queue = self._out_of_order.begin(side, packet.ts_ns, starting=True)
        offset = unwrapped(seq, side_record.base_seq, side_record.next_offset)
        if packet.wire_length > 0:
            self._take_payload(packet, side, offset)
        elif other_ack < 0 or wrapped(other_ack - seq) != 1:  # else a probe that keeps alive
            if queue is not None and queue.starting:
                queue.low = min(queue.low, offset)
            if not packet.flags & SYN:
                self._table.note_empty(side, offset, packet.sent_ack, packet.flags, packet.ts_ns, packet.ident)
            if side_record.known_end < offset < side_record.next_offset + MAX_WINDOW:
                side_record.known_end = offset
        if packet.flags & FIN and side_record.fin_offset == NONE:
            side_record.fin_offset = fin = offset + packet.wire_length
            side_record.fin_ack = packet.sent_ack
            if side_record.known_end < fin < side_record.next_offset + MAX_WINDOW:
                side_record.known_end = fin
            if fin == side_record.next_offset and side not in self._out_of_order.queues and not side_record.ended:
                self._table.end(side)

    def _take_payload(self, packet: Segment, side: int, offset: int) -> None:
        """Sort the bytes of one segment into given out, held, late and seen before."""
        side_record: SideRecord = self._table.sides[side]
        waiting = self._out_of_order
        queue = waiting.queues.get(side)
        starting = queue is not None and queue.starting
        body = self._history.window[packet.start : packet.start + packet.length]
        high, wire_high, expected = offset + packet.length, offset + packet.wire_length, side_record.next_offset
        if queue is not None and starting:
            queue.low = min(queue.low, offset)
        elif offset < expected:
            if packet.wire_length == 1 and offset + 1 == expected and not self._history.has_sent(packet, side, offset):
                # The probe that keeps a connection alive.
                is_acked = self._table.sides[side ^ 1].ack == wrapped(side_record.base_seq + expected)
                side_record.retransmitted += 0 if is_acked else packet.length
                return
            cut = min(high, expected) - offset
            if packet.is_damaged:
                side_record.retransmitted += min(cut, packet.length)
            else:
                self._take_old(packet, side, offset, bytes(body[:cut]))
            body = body[cut:]
            offset += cut
        if side_record.ended:
            if body:  # bytes behind a FIN are captured, but belong to no stream any more
                side_record.bytes += len(body)
                self._history.add_late(side, offset, len(body), packet.ts_ns, packet.number)
                self._table.advance(side, offset + len(body) - side_record.next_offset)
            return
        if body and queue is None and offset == expected and not packet.is_damaged:
            side_record.bytes += len(body)
            start = packet.start + packet.length - len(body)
            self._table.accept(
                side, start, len(body), packet.ts_ns, packet.number, packet.file, packet.sent_ack, packet.ident
            )
        elif body:
            queue = queue or waiting.begin(side, packet.ts_ns)
            waiting.hold(packet, side, queue, offset, bytes(body))
            side_record.known_end = side_record.known_end if packet.is_damaged else max(side_record.known_end, high)
        if wire_high > high and (starting or wire_high > side_record.next_offset):
            queue = queue or waiting.begin(side, packet.ts_ns)
            queue.snap(high if starting else max(high, side_record.next_offset), wire_high)
            side_record.known_end = max(side_record.known_end, wire_high)

    def _take_old(self, packet: Segment, side: int, offset: int, body: bytes) -> None:
        """Fill gaps with late bytes, and compare retransmitted bytes with the first copy."""
        side_record: SideRecord = self._table.sides[side]
        if offset < side_record.lowest_offset:
            below = side_record.lowest_offset - offset
            if side_record.base_known:
                below = min(len(body), below)  # nobody ever had bytes below a SYN
                offset, body = offset + below, body[below:]
            else:
                side_record.missing += below
                self._gaps.add(side, Gap(offset, side_record.lowest_offset, packet.ts_ns, packet.number))
                side_record.lowest_offset = offset
        gaps = self._gaps.of.get(side)
        position, high = offset, offset + len(body)
        is_copy = bool(body) and self._history.is_copy(packet, side, offset, self._history.original(side, offset))
        is_new = high - offset < packet.length
        while position < high:
            gap = gaps.first(position, high) if gaps is not None else None
            until = high if gap is None else max(gap.low, position)
            if until > position:
                part = body[position - offset : until - offset]
                is_copy &= self._history.compare_copy(packet, side, position, part, is_copy)
                position = until
            if gap is not None and gaps is not None:
                end, is_new = min(gap.high, high), True
                gaps.fill(gap, position, end, packet.number)
                side_record.bytes += end - position
                side_record.missing -= end - position
                self._history.add_late(side, position, end - position, packet.ts_ns, packet.number)
                self._history.add(side, position, body[position - offset : end - offset])
                position = end
        if is_copy:
            side_record.has_copies = 1
            side_record.duplicates += not is_new

    # Chunks

    def _chunks(self, window: NDArray[np.uint8]) -> StreamChunks:
        """Group the pieces of this feed by flow and side, after their unconsumed bytes, in one copy."""
        table, kept = self._table, self._leftovers.pieces
        pieces = table.piece_array[: table.piece_count]
        is_news = np.zeros(table.flow_count * 2, np.bool_)
        is_news[pieces["side"]] = is_news[table.ended[: table.ended_count]] = True
        news = np.flatnonzero(is_news)
        reached = table.side_array["next_offset"][news]
        show = (table.side_array["ended"][news] != 0) | (table.side_array["resume_at"][news] <= reached)
        shown = news[show]

        rank_of = np.full(len(is_news), len(news))
        rank_of[np.append(shown, news[~show])] = np.arange(len(news))
        taken = rank_of[kept["side"]] < len(shown)
        rank = rank_of[np.append(kept["side"][taken], pieces["side"])]
        narrow = rank.astype(np.uint16) if len(news) <= 0xFFFF else rank  # numpy sorts 16 bits in linear time
        order = np.argsort(narrow, kind="stable")
        rows = np.concatenate([kept[taken], pieces])
        kept_count = int(np.count_nonzero(taken))
        buffer = self._gathered(window, rows, order, kept_count)
        rows = rows[order]
        rows["start"] = np.cumsum(rows["length"]) - rows["length"]
        self._leftovers.pieces = kept[~taken]

        runs = run_starts(rows)
        self._history.remember(rows, runs, buffer)
        closed = news[table.side_array["compare_from"][news] >= reached]
        for side in self._history.blocks.keys() & closed.tolist():
            self._history.drop(side)
        shown_rows = int(np.searchsorted(rank[order], len(shown)))
        self._leftovers.put(rows[shown_rows:], buffer)
        runs = runs[: int(np.searchsorted(runs, shown_rows))]
        given_out = order[:shown_rows] + (table.piece_first - kept_count)
        result = self._shown(rows[:shown_rows], runs, buffer, shown, given_out)
        for part in (table, self._gaps, self._history):
            part.clear_news()
        return result

    def _gathered(
        self, window: NDArray[np.uint8], rows: NDArray[np.void], order: Int64Array, kept_count: int
    ) -> NDArray[np.uint8]:
        """The bytes of pieces in an order; the first kept_count are among the leftovers."""
        starts, lengths = np.ascontiguousarray(rows["start"]), np.ascontiguousarray(rows["length"])
        buffer = np.empty(int(lengths.sum()), np.uint8)
        released, left = self._history.released, self._leftovers.bytes
        gather(
            memoryview(buffer), memoryview(window), memoryview(released), memoryview(left), memoryview(order),
            kept_count, memoryview(starts), memoryview(lengths),
        )  # fmt: skip
        return buffer

    def _shown(
        self,
        rows: NDArray[np.void],
        runs: Int64Array,
        buffer: NDArray[np.uint8],
        shown: Int64Array,
        given_out: Int64Array,
    ) -> StreamChunks:
        """The runs of pieces as chunks; and an empty one for each side that ended without a byte left."""
        sides = self._table.side_array
        side, offset, start = rows["side"][runs], rows["offset"][runs], rows["start"][runs]
        bounds = np.append(runs, len(rows))
        total = np.append(rows["start"], rows["length"].sum())
        length = total[bounds[1:]] - start
        trailing = np.fromiter(self._gaps.trailing, np.int64)
        empty = shown[(sides["ended"][shown] != 0) & ~np.isin(shown, side)]
        empty = empty[(sides["next_offset"][empty] > 0) | np.isin(empty, trailing)]
        if len(empty):
            insert_rows = np.searchsorted(side, empty)
            offset, start = (
                np.insert(offset, insert_rows, sides["next_offset"][empty]),
                np.insert(start, insert_rows, total[bounds[insert_rows]]),
            )
            length, bounds = np.insert(length, insert_rows, 0), np.insert(bounds, insert_rows, bounds[insert_rows])
            side = np.insert(side, insert_rows, empty)
        is_first = np.append(True, side[1:] != side[:-1])[: len(side)]
        is_last = np.append(side[1:] != side[:-1], True)[: len(side)]
        end = offset + length
        previous_end = np.append(np.int64(0), end[:-1])[: len(side)]
        gap_before = offset - np.where(is_first, sides["consumed_to"][side], previous_end)
        gap_after = ~is_last | np.isin(side, trailing)
        sides["consumed_to"][side[is_last]] = end[is_last]
        sides["resume_at"][side[is_last]] = 0
        return StreamChunks(
            buffer=buffer,
            flow=self.flows.numbers(side >> 1),
            side=(side & 1).astype(np.int8),
            offset=offset,
            start=start,
            length=length,
            gap_before=gap_before,
            gap_after=gap_after,
            ended=is_last & (sides["ended"][side] != 0),
            start_known=sides["base_known"][side] != 0,
            piece_first=bounds,
            piece_offset=rows["offset"].copy(),
            piece_length=rows["length"].copy(),
            piece_ts_ns=rows["ts_ns"].copy(),
            piece_number=rows["number"].copy(),
            piece_file=rows["file"].copy(),
            piece_ack=rows["ack"].copy(),
            piece_order=given_out,
        )

    def keep(self, chunks: StreamChunks, consumed: Int64Array, wanted: Int64Array | None = None) -> None:
        """Store the bytes that the reader did not consume, to return them in front of the next bytes of their side.

        consumed: int64 for each chunk, bytes from its start that the reader is done with; not looked at where
        gap_after or ended. wanted, if given: int64 for each chunk, bytes that what is kept must reach before it is
        worth showing again (0: any news; shown at once when a gap or the end follows), so that a long message is not
        copied again with each of its segments.
        """
        rows = np.flatnonzero(~(chunks.gap_after | chunks.ended) & (consumed < chunks.length))
        if len(rows) == 0:
            return
        side = self.flows.places(chunks.flow[rows]) * 2 + chunks.side[rows]
        done = consumed[rows]
        cut = chunks.offset[rows] + done
        self._table.side_array["consumed_to"][side] = np.where(done == 0, cut - chunks.gap_before[rows], cut)
        if wanted is not None:
            self._table.side_array["resume_at"][side] = np.where(wanted[rows] > 0, cut + wanted[rows], 0)
        self._leftovers.left_of(chunks, rows, side, cut)

    # Connections that are over

    def expired(self) -> Int64Array:
        """Connections that expect no more packets, by the time of the newest packet; see eviction."""
        return self.flows.numbers(np.flatnonzero(eviction.expired(self._table, self._now_ns)))

    def eviction_candidates(self, few: int, most: int) -> Int64Array:
        """Connections to be ended so that those in the table stay few; see eviction."""
        candidates, crowded_out = eviction.eviction_candidates(self._table, self._now_ns, few, most)
        self.counts["crowded_out"] += crowded_out
        return self.flows.numbers(np.flatnonzero(candidates))

    def _sweep(self, now_ns: int) -> None:
        """Drop the heavy state of flows that are idle or closed for long."""
        self._packets_unswept = 0
        self._history.drop_silent(now_ns - IDLE_NS)
        for side in list(self._out_of_order.queues):
            flow: FlowRecord = self._table.flows[side >> 1]
            limit_ns = CLOSED_NS if flow.is_closed else IDLE_NS
            if flow.last_ts_ns < now_ns - limit_ns:
                self._out_of_order.give_up_flow(side >> 1)

    def forget(self, flows: Int64Array) -> None:
        """Know nothing more of connections that are over and were ended.

        Never tell a range again: of the others, too, what was late or in conflict by now and gaps that are `final_gaps`
        are forgotten, and the history of those that are idle, which their next packet would not look at.
        """
        table, history, gaps = self._table, self._history, self._gaps.of
        history.conflicts.clear()
        history.late.clear()
        for side in [side for side, side_gaps in gaps.items() if side_gaps.drop(self._final_below(side))]:
            del gaps[side]
        history.drop_silent(self._now_ns - IDLE_NS)
        if len(flows) == 0:
            return
        places = self.flows.places(flows)
        for flow in places.tolist():
            table.stop_comparing(flow)
            for side in (flow * 2, flow * 2 + 1):
                gaps.pop(side, None)
                history.drop(side)
        self._leave_out(places)

    def _leave_out(self, places: Int64Array) -> None:
        """Move the other flows together in the table."""
        count = self._table.flow_count
        stays = np.ones(count, np.bool_)
        stays[places] = False
        flows = self._table.flow_array[:count][stays]
        previous = flows["previous"]
        flows["previous"] = np.where((previous >= 0) & stays[previous], _moved(previous, places), -1)
        self._table.set_flows(flows, self._table.side_array[: count * 2][np.repeat(stays, 2)])
        self._handshakes.leave_out(stays, lambda flow: int(_moved(np.array([flow]), places)[0]))
        self._out_of_order.queues = _moved_sides(self._out_of_order.queues, places)
        self._gaps.of = _moved_sides(self._gaps.of, places)
        self._history.blocks = _moved_sides(self._history.blocks, places)
        self._history.packets = _moved_sides(self._history.packets, places)
        kept = self._leftovers.pieces
        kept["side"] = _moved(kept["side"] >> 1, places) * 2 + (kept["side"] & 1)

    # What was not captured, or not as it was sent

    def gaps(self) -> list[Range]:
        """The gaps so far; final after finish."""
        return self._told(self._gaps)

    def final_gaps(self, flows: Int64Array) -> list[Range]:
        """Those of some connections, which are over, and of the others those that no packet can fill any more."""
        ended_flows = {*self.flows.places(flows).tolist()}
        below = self._final_below
        return self._told(
            r for r in self._gaps if r.flow in ended_flows or r.offset + r.length <= below(r.flow * 2 + r.side)
        )

    def conflicts(self) -> list[Range]:
        """Where a retransmission had other bytes than the first copy."""
        return self._told(self._history.conflicts)

    def late(self) -> list[Range]:
        """Bytes captured after their gap had been given up, or behind a FIN: counted, but in no chunk."""
        return self._told(self._history.late)

    @property
    def untold_count(self) -> int:
        """How many rows `conflicts` and `late` have."""
        return len(self._history.conflicts) + len(self._history.late)

    def _told(self, rows: Iterable[Range]) -> list[Range]:
        """Ranges in order of flow, side and offset, with the numbers of their connections."""
        rows = sorted(rows, key=lambda row: row[:3])
        numbers = self.flows.numbers(np.array([row.flow for row in rows], np.int64)).tolist()
        return [row._replace(flow=number) for row, number in zip(rows, numbers, strict=True)]

    def _final_below(self, side: int) -> int:
        """Up to where no packet can fill a gap of a side any more: it lies further back than TCP sends again."""
        return int(self._table.sides[side].next_offset) - MAX_WINDOW


def _packet(segments: Segments, row: int) -> Segment:
    """One segment as a record."""
    columns = (
        segments.seq, segments.ack, segments.flags, segments.start, segments.length, segments.wire_length,
        segments.ts_ns, segments.number, segments.file, segments.ident, segments.checksum,
    )  # fmt: skip
    return Segment(*(int(column[row]) for column in columns))


def _moved(places: Int64Array, forgotten: Int64Array) -> Int64Array:
    """Places of flows once others, in order, are left out.

    >>> _moved(np.array([0, 3, 5]), np.array([1, 2, 4])).tolist()
    [0, 1, 2]
    """
    return places - np.searchsorted(forgotten, places)


def _moved_sides(of: dict[int, _Known], forgotten: Int64Array) -> dict[int, _Known]:
    """The values of a dictionary by side, under the new indexes of the sides."""
    sides = np.fromiter(of, np.int64, len(of))
    return dict(zip((_moved(sides >> 1, forgotten) * 2 + (sides & 1)).tolist(), of.values(), strict=True))
