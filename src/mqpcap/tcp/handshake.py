# cython: language_level=3, annotation_typing=False
"""Finds the connection that a packet belongs to, by its sequence and acknowledgement numbers, and judges SYNs.

Several connections may use one 5-tuple: ports are used again, networks (VLAN, VNI) use the same addresses, and devices
rewrite numbers. A packet belongs to the connection whose numbers it continues. A packet that fits none is counted at
the newest connection and changes nothing, unless it carries payload: then it opens a connection of its own.

A SYN with new numbers inside a living connection is pending until a packet continues it; a challenge ACK does not.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mqpcap.tcp.flags import ACK, RST, SYN
from mqpcap.tcp.flow_records import CHALLENGED, NO_OFFSET, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import CLOSED_TIMEOUT_NS, MAX_HOLE, MAX_RIVALS, NEAR_BYTES, STALE_NS, FastPath, FlowTable
from mqpcap.tcp.out_of_order import OutOfOrder
from mqpcap.tcp.sequence_numbers import ahead, unwrapped, wrapped

SYN_NEAR_BYTES = 64 * 1024
SYN_LATE_PACKETS = 16
"""A SYN captured after its own first data belongs to that flow within these bounds."""
STRAY = -1
"""No connection of the 5-tuple fits a packet that opens none: it is counted and changes nothing."""
NEW = -2
"""A packet of a connection that is not in the table yet."""


class PendingSyn(NamedTuple):
    """A SYN with new numbers inside a living connection: a new connection begins only if it is answered."""

    side: int
    base: int
    ack: int
    ts_ns: int
    packet_number: int
    packets: int = 0
    """Its copies, all counted at the living connection until its owner is known."""
    duplicates: int = 0
    last_ts_ns: int = 0
    earlier_ns: int = 0
    """The latest time of the living connection without the SYN."""


class Fit(NamedTuple):
    """How well a packet fits a side; greater is better.

    ``level``: 0 if it does not fit, 4 if sequence and acknowledgement number are close to the expected numbers.
    ``hole``: minus the bytes between the known bytes of the side and the packet.
    ``distance``: minus the bytes between the expected and the packet's numbers; it decides where streams overlap.
    """

    level: int
    hole: int
    distance: int = 0


class Handshakes:
    """Finds the connection that a packet fits, judges SYNs, and opens a new flow if a 5-tuple is used again."""

    def __init__(self, table: FlowTable, out_of_order: OutOfOrder, fast_path: FastPath) -> None:
        self._table = table
        self._fast_path = fast_path
        self._out_of_order = out_of_order
        self._duplicates: dict[int, dict[bytes, int]] = {}
        """By newest flow of a 5-tuple whose first times do not ascend: the last `duplicate` by first time."""
        self._pending: dict[int, PendingSyn] = {}
        """By newest flow of a 5-tuple: the last unanswered SYN."""

    # The connection of a packet

    def owner(self, packet: Segment, side: int) -> int:
        """The side of the connection that a packet without SYN fits best; STRAY or NEW if it fits none.

        ``side``: the sender's side in the newest connection on the 5-tuple.
        """
        pending = self._pending.get(side >> 1)
        if pending is not None and self._answers(packet, side, pending):
            return NEW
        best_side, best_rank = STRAY, (False, Fit(0, 0))
        for candidate in self._candidates(packet, side):
            fit = self.fit(packet, candidate)
            rank = fit.level > 2 and -fit.hole <= NEAR_BYTES, fit
            if fit.level and rank > best_rank:
                best_side, best_rank = candidate, rank
        if best_side == STRAY and packet.wire_length and not packet.flags & RST and not packet.is_damaged:
            return NEW
        return best_side

    def _candidates(self, packet: Segment, side: int) -> Iterator[int]:
        """The sender's side in each connection on a 5-tuple, newest first, down to the first that is over."""
        sides = self._table.sides
        sender = sides[side].hi, sides[side].lo, sides[side].port
        receiver = sides[side ^ 1].hi, sides[side ^ 1].lo, sides[side ^ 1].port
        flow = side >> 1
        for _ in range(MAX_RIVALS + 1):
            if flow < 0:
                return
            side_a = sides[flow * 2]
            is_first = (side_a.hi, side_a.lo, side_a.port) == sender and (sender != receiver or not side & 1)
            yield flow * 2 + (not is_first)
            flow = self._table.flows[flow].previous
            if flow >= 0 and packet.ts_ns - self._table.flows[flow].last_ts_ns > CLOSED_TIMEOUT_NS:
                return

    def fit(self, packet: Segment, side: int) -> Fit:
        """Rate how well the numbers of a packet fit a side."""
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        ack = 1
        if packet.flags & ACK and (peer_record.base_seq >= 0 or side_record.ack >= 0):
            ack = 2 if self._fast_path.is_near(side, packet.ack, MAX_HOLE) else 0
        if side_record.base_seq < 0:
            return Fit(ack, 0)
        offset = unwrapped(packet.seq, side_record.base_seq, side_record.next_offset)
        queue = self._out_of_order.queues.get(side)
        lowest = queue.lowest if queue is not None and queue.start_unknown else side_record.lowest_offset
        earliest = lowest - (NEAR_BYTES if side_record.base_known else MAX_HOLE)
        highest = max(side_record.next_offset, side_record.known_end)
        if peer_record.ack >= 0:
            highest = max(highest, unwrapped(peer_record.ack, side_record.base_seq, side_record.next_offset))
        if not earliest <= offset <= highest + MAX_HOLE or not (packet.wire_length or ack):
            return Fit(0, 0)
        distance = abs(offset - side_record.next_offset)
        if ack == 2 and side_record.ack >= 0:
            distance += abs(ahead(packet.ack, side_record.ack))
        return Fit(2 + ack, min(highest - offset, offset - lowest, 0), -distance)

    # Resets

    def reset_state(self, packet: Segment, side: int) -> int:
        """Whether the other side accepts a RST: 0 no, 1 yes, 2 yes unless its sender continues (RFC 5961, 3)."""
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        if side_record.base_seq < 0:
            if packet.flags & ACK and peer_record.base_seq >= 0:
                return int(0 <= ahead(packet.ack, peer_record.base_seq) <= peer_record.known_end + 1)
            return int(peer_record.ack < 0 or abs(ahead(packet.seq, peer_record.ack)) <= NEAR_BYTES)
        offset = unwrapped(packet.seq, side_record.base_seq, side_record.next_offset)
        expected = {side_record.next_offset, side_record.known_end, side_record.fin_offset + 1}
        acked = side_record.next_offset
        if peer_record.ack >= 0:
            acked = unwrapped(peer_record.ack, side_record.base_seq, side_record.next_offset)
            expected.add(acked)
        if offset in expected:
            return 1
        low, high = min(acked, side_record.next_offset), max(side_record.next_offset, side_record.known_end, acked)
        return 2 if low <= offset <= high + NEAR_BYTES else 0

    # SYNs

    def is_over(self, side: int) -> bool:
        """Whether a connection was reset, or both of its sides sent a FIN."""
        flow: FlowRecord = self._table.flows[side >> 1]
        sides = self._table.sides
        return bool(flow.is_closed) or (sides[side].fin_offset != NO_OFFSET and sides[side ^ 1].fin_offset != NO_OFFSET)

    def choose_syn_ack(self, packet: Segment, side: int) -> None:
        """Choose between two SYN-ACKs, by the client's acknowledgement, or else by the server's first data."""
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        if packet.flags & (SYN | RST):
            return
        if peer_record.syn_seen == 2 and packet.flags & ACK:
            peer_record.base_seq, peer_record.syn_seen = packet.ack, 1
        if side_record.syn_seen == 2 and packet.wire_length:
            side_record.base_seq, side_record.syn_seen = packet.seq, 1

    def syn_owner(self, packet: Segment, side: int) -> int:
        """The side of the connection that a SYN belongs to; STRAY, or NEW if it opens a connection."""
        for candidate in self._candidates(packet, side):
            verdict = self._syn_verdict(packet, candidate)
            if verdict is not None:
                return candidate if verdict else STRAY
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        is_over = self.is_over(side) or packet.ts_ns - self._table.flows[side >> 1].last_ts_ns > STALE_NS
        is_unanswered = (
            peer_record.packets == 0 and side_record.syn_seen and not side_record.bytes and not packet.flags & ACK
        )
        pending = self._pending.get(side >> 1)
        is_pending = pending is not None and (pending.side, pending.base) == (side, wrapped(packet.seq + 1))
        if is_pending and side_record.has_copies:
            return STRAY
        if is_over or is_unanswered or (pending is not None and self._answers(packet, side, pending)):
            return NEW
        if not is_pending:
            self._pending[side >> 1] = PendingSyn(
                side, wrapped(packet.seq + 1), packet.sent_ack, packet.ts_ns, packet.packet_number
            )
        return STRAY

    def _syn_verdict(self, packet: Segment, side: int) -> bool | None:
        """Whether a SYN counts for a connection; None if it belongs to another connection."""
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        queue = self._out_of_order.queues.get(side)
        base = wrapped(packet.seq + 1)
        is_answer = bool(packet.flags & ACK)
        is_over = self.is_over(side)
        idle_ns = packet.ts_ns - self._table.flows[side >> 1].last_ts_ns
        if idle_ns > (CLOSED_TIMEOUT_NS if is_over else STALE_NS):
            return None
        if (
            is_answer
            and peer_record.base_known
            and not 0 <= ahead(packet.ack, peer_record.base_seq) <= peer_record.known_end
        ):
            return None
        if side_record.base_seq == base and (side_record.syn_seen or side_record.base_known):
            return True
        has_held = queue is not None and (not queue.start_unknown or bool(queue.buffered))
        if side_record.base_seq < 0 or not (side_record.syn_seen or side_record.bytes or has_held):
            acked = peer_record.first_ack
            if acked >= 0 and not 0 <= ahead(acked, base) <= SYN_NEAR_BYTES:
                return False if is_answer and peer_record.base_known else None
            return None if is_over and not (is_answer and peer_record.base_known) else True
        low = side_record.base_seq + (queue.lowest if queue is not None and queue.start_unknown else 0)
        is_near = 0 <= ahead(wrapped(low), base) <= SYN_NEAR_BYTES
        is_first = not (side_record.syn_seen or side_record.base_known) and is_near  # after data of its side
        if is_answer and peer_record.base_known and not is_first:
            # There are two SYN-ACKs to one SYN: the client's acknowledgement chooses.
            if peer_record.first_ack < 0 and not side_record.bytes and queue is None:
                side_record.syn_seen = 2
            elif peer_record.first_ack == base and not side_record.bytes and queue is None:
                side_record.base_seq = base
                return True
            return False
        if side_record.syn_seen or is_over:
            return None
        return True if is_near and self._out_of_order.packets(side >> 1) <= SYN_LATE_PACKETS else None

    def _answers(self, packet: Segment, side: int, pending: PendingSyn) -> bool:
        """Whether a packet belongs to the connection that a pending SYN would open."""
        if side == pending.side:
            distance, fit = ahead(packet.seq, pending.base), self.fit(packet, side)
            if packet.flags & SYN or not 0 <= distance <= SYN_NEAR_BYTES:
                return False
            return fit.level <= 2 or -fit.hole > distance
        distance, fit = ahead(packet.ack, pending.base), self.fit(packet, side)
        if not packet.flags & ACK or not 0 <= distance <= SYN_NEAR_BYTES:
            return False
        if packet.flags & SYN:
            return pending.ack < 0
        if pending.ack >= 0 and not 0 <= ahead(packet.seq, pending.ack) <= SYN_NEAR_BYTES:
            return False  # the SYN-ACK was damaged: its sender did not ask for these bytes
        return bool(packet.flags & RST) or fit.level < 4 or -fit.hole > distance

    def note_stray(self, packet: Segment, side: int) -> None:
        """Note a packet that fits no connection. The receiver of a SYN may repeat its last packet: a challenge."""
        pending, flow = self._pending.get(side >> 1), self._table.flows[side >> 1]
        is_copy = bool(self._table.is_same_empty(side, packet.flags, packet.ts_ns, packet.ident))
        if packet.flags & SYN and pending is not None and pending.base == wrapped(packet.seq + 1):
            is_copy |= pending.packets > 0 and bool(self._table.sides[side].has_copies)
            is_latest = pending.packets > 0 and flow.last_ts_ns == pending.last_ts_ns
            self._pending[side >> 1] = pending._replace(
                packets=pending.packets + 1,
                duplicates=pending.duplicates + is_copy,
                last_ts_ns=max(packet.ts_ns, flow.last_ts_ns),
                earlier_ns=pending.earlier_ns if is_latest else flow.last_ts_ns,
            )
        self._table.set_empty(side, packet.flags, packet.ts_ns, packet.ident)
        self._table.sides[side].duplicates += is_copy
        if packet.flags & SYN and not is_copy:
            self._table.sides[side ^ 1].empty_flags = CHALLENGED

    def note_copy(self, packet: Segment, side: int) -> None:
        """Count a SYN as duplicate if its side has sent it before and would not send it again."""
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        if side_record.syn_seen and side_record.base_seq == wrapped(packet.seq + 1):
            is_copy = bool(side_record.has_copies or peer_record.has_copies or side_record.bytes)
            is_copy |= side_record.empty_flags & (SYN | RST | ACK) == ACK  # its sender is past the handshake
            if is_copy or self._table.is_same_empty(side, packet.flags, packet.ts_ns, packet.ident):
                side_record.duplicates += 1
                side_record.has_copies = 1

    def apply_syn(self, packet: Segment, side: int) -> int:
        """Apply a SYN to its flow. Returns the packet's side, which changes if the client becomes endpoint A."""
        base = wrapped(packet.seq + 1)
        is_answer = bool(packet.flags & ACK)
        flow: FlowRecord = self._table.flows[side >> 1]
        client = side ^ 1 if is_answer else side
        if not flow.a_is_client:
            if client & 1 == 0:
                flow.a_is_client = 1
            elif self._swap_sides(side >> 1):
                side ^= 1
                flow.a_is_client = 1
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        self._start_at(side, base)
        if not side_record.base_known and side_record.base_seq == base and side_record.next_offset == 0:
            side_record.base_known = 2 if peer_record.next_offset else 1
        side_record.syn_seen = 1
        if side_record.next_offset == 0:
            side_record.last_packet = packet.packet_number
        if (
            is_answer
            and not peer_record.base_known
            and (peer_record.base_seq < 0 or self._out_of_order.is_start_unknown(side ^ 1))
        ):
            self._start_at(side ^ 1, packet.ack)
            peer_record.base_known = 2 if side_record.next_offset else 1
        return side

    def _start_at(self, side: int, base: int) -> None:
        """Set offset 0 of a side that has emitted nothing to a sequence number."""
        side_record: SideRecord = self._table.sides[side]
        if side_record.base_seq < 0:
            side_record.base_seq = base
            return
        queue = self._out_of_order.queues.get(side)
        if queue is not None and queue.start_unknown:
            # Empty segments in front of the SYN (a split handshake, a refusal) are no bytes.
            offset = ahead(base, side_record.base_seq)
            queue.lowest = min(queue.lowest, offset) if queue.buffered else offset
            if not queue.buffered:
                side_record.known_end = offset
            if side_record.fin_offset != NO_OFFSET and side_record.fin_offset < queue.lowest:
                side_record.fin_offset = NO_OFFSET
            self._out_of_order.release_start(side, queue)

    def start_other(self, side: int, seq: int, ack: int) -> None:
        """Fix the start of a server whose packets were recorded first, by the client's acknowledgement of its SYN-ACK.

        As `FlowTable.begin_other`; the number must be that of the first byte that was captured.
        """
        side_record: SideRecord = self._table.sides[side]
        peer_record: SideRecord = self._table.sides[side ^ 1]
        queue = self._out_of_order.queues.get(side ^ 1)
        if queue is None or not queue.start_unknown or not side_record.syn_seen or side_record.base_seq != seq:
            return
        if ahead(ack, peer_record.base_seq) == queue.lowest and side_record.first_ack < 0:
            self._start_at(side ^ 1, ack)
            peer_record.base_known = 1

    def _swap_sides(self, flow: int) -> bool:
        """Exchange the sides of a flow; False if it has emitted bytes, which makes that impossible."""
        a: SideRecord = self._table.sides[flow * 2]
        b: SideRecord = self._table.sides[flow * 2 + 1]
        if a.next_offset or b.next_offset or a.ended or b.ended:
            return False
        self._table.side_array[[flow * 2, flow * 2 + 1]] = self._table.side_array[[flow * 2 + 1, flow * 2]]
        record: FlowRecord = self._table.flows[flow]
        record.fin_by, record.reset_by = (3 - end if end else 0 for end in (record.fin_by, record.reset_by))
        queues = self._out_of_order.queues
        taken = [(side, queues.pop(side)) for side in (flow * 2, flow * 2 + 1) if side in queues]
        for side, queue in taken:
            queue.conflicts = [row._replace(side=side & 1 ^ 1) for row in queue.conflicts]
            queues[side ^ 1] = queue
        return True

    def open(self, packet: Segment, side: int) -> None:
        """Open a new flow on a 5-tuple for a packet of its newest connection's side, or for the SYN it answers."""
        pending = self._pending.pop(side >> 1, None)
        if pending is not None and not self._answers(packet, side, pending):
            pending = None
        if pending is None:
            is_answer = packet.flags & SYN and packet.flags & ACK
            new = self._replace(side >> 1, (side ^ 1 if is_answer else side) & 1, packet.ts_ns, packet.packet_number)
            self._table.flows[new].a_is_client = bool(packet.flags & SYN)
            return
        client = pending.side if pending.ack < 0 else pending.side ^ 1
        new = self._replace(side >> 1, client & 1, pending.ts_ns, pending.packet_number)
        self._table.sides[pending.side].packets -= pending.packets
        self._table.sides[pending.side].duplicates -= pending.duplicates
        if self._table.flows[side >> 1].last_ts_ns == pending.last_ts_ns:
            self._table.flows[side >> 1].last_ts_ns = pending.earlier_ns
        self._table.flows[new].last_ts_ns = max(pending.last_ts_ns, pending.ts_ns)
        side_record: SideRecord = self._table.sides[new * 2 + (pending.side != client)]
        side_record.base_seq, side_record.base_known, side_record.syn_seen = pending.base, 1, 1
        side_record.packets, side_record.duplicates = pending.packets, pending.duplicates
        side_record.last_packet = pending.packet_number
        if pending.ack >= 0:
            client_record: SideRecord = self._table.sides[new * 2]
            client_record.base_seq, client_record.base_known = pending.ack, 1

    def _replace(self, flow: int, client: int, ts_ns: int, packet_number: int) -> int:
        """Open a new flow on the 5-tuple of a flow; sets `duplicate` if an earlier flow has the same first time."""
        duplicates = self._duplicates.pop(flow, None)
        if duplicates is None and ts_ns <= self._table.flows[flow].first_ts_ns:
            duplicates = self._duplicates_of(flow)
        new = self._fast_path.replace(flow, client, ts_ns, packet_number)
        if duplicates is not None:
            time_key = _time_key(ts_ns)
            self._table.flows[new].duplicate = duplicates[time_key] = duplicates.get(time_key, -1) + 1
            self._duplicates[new] = duplicates
        return new

    def _duplicates_of(self, flow: int) -> dict[bytes, int]:
        """The last `duplicate` by first time, of a flow and the previous flows on its 5-tuple."""
        duplicates: dict[bytes, int] = {}
        while flow >= 0:
            record: FlowRecord = self._table.flows[flow]
            duplicates.setdefault(_time_key(record.first_ts_ns), record.duplicate)
            flow = record.previous
        return duplicates

    def forget(self, flows: list[int]) -> None:
        """Drop the state of flows that were released."""
        released = {*flows}
        for by_flow in (self._pending, self._duplicates):
            for flow in by_flow.keys() & released:
                del by_flow[flow]
        self._duplicates = {flow: self._duplicates_of(flow) for flow in self._duplicates}


def _time_key(ts_ns: int) -> bytes:
    """A time as a key of a dictionary: Python hashes bytes with a secret, numbers without."""
    return ts_ns.to_bytes(8, "big", signed=True)
