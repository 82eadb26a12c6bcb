# cython: language_level=3, annotation_typing=False
"""SYNs: which connection one belongs to, who is the client, where a stream begins."""

from mqpcap.tcp.flow_records import NONE, FlowRecord, Segment, SideRecord
from mqpcap.tcp.flow_table import FlowTable
from mqpcap.tcp.out_of_order import OutOfOrder
from mqpcap.tcp.sequence_numbers import ahead, wrapped

SYN_NEAR_BYTES = 64 * 1024
SYN_LATE_PACKETS = 16
"""A SYN captured behind its own first data belongs to that flow within these bounds."""
FIN, SYN, RST, ACK = 1, 2, 4, 16
"""Bits of Packet.flags."""


class Handshakes:
    """Judges SYNs, and opens a new flow where a tuple is used anew."""

    def __init__(self, table: FlowTable, out_of_order: OutOfOrder) -> None:
        self._table = table
        self._out_of_order = out_of_order
        self._times: dict[int, dict[bytes, int]] = {}
        """Of the newest flow of a tuple whose first times do not ascend: the last `equal` by first time."""

    def is_same_connection(self, packet: Segment, side: int) -> bool:
        """Whether a SYN belongs to the flow that uses its tuple."""
        flow: FlowRecord = self._table.flows[side >> 1]
        mine: SideRecord = self._table.sides[side]
        other: SideRecord = self._table.sides[side ^ 1]
        queue = self._out_of_order.queues.get(side)
        base = wrapped(packet.seq + 1)
        is_answer = bool(packet.flags & ACK)
        over = bool(flow.closed) or (mine.fin != NONE and other.fin != NONE)
        if is_answer and other.base_known and not 0 <= ahead(packet.ack, other.base) <= other.max_seen:
            return False
        if mine.syn_seen:
            if mine.base == base:
                return is_answer or not over
            if not is_answer or over or mine.bytes or queue is not None:
                return False
            mine.base = base  # the SYN was answered twice; nothing was sent on the first answer
            return True
        if mine.base == base and mine.base_known:
            return not over
        if mine.base < 0:
            return not over and (other.ack < 0 or other.ack == base)
        low = mine.base + (queue.low if queue is not None and queue.starting else 0)
        near = 0 <= ahead(wrapped(low), base) <= SYN_NEAR_BYTES
        return near and not over and self._out_of_order.packets(side >> 1) <= SYN_LATE_PACKETS

    def take_syn(self, packet: Segment, side: int) -> int:
        """Take a SYN into its flow, which has none of this side yet or the same; the side it is on now."""
        base = wrapped(packet.seq + 1)
        is_answer = bool(packet.flags & ACK)
        flow: FlowRecord = self._table.flows[side >> 1]
        client = side ^ 1 if is_answer else side
        if not flow.oriented:
            if client & 1 == 0:
                flow.oriented = 1
            elif self._flip(side >> 1):
                side ^= 1
                flow.oriented = 1
        mine: SideRecord = self._table.sides[side]
        self._start_at(side, base)
        if mine.base == base:
            mine.base_known = 1
        mine.syn_seen = 1
        if mine.next == 0:
            mine.last_packet = packet.number
        other: SideRecord = self._table.sides[side ^ 1]
        if is_answer and not other.base_known and (other.base < 0 or self._out_of_order.is_starting(side ^ 1)):
            self._start_at(side ^ 1, packet.ack)
            other.base_known = 1
        return side

    def _start_at(self, side: int, base: int) -> None:
        """Let a side that has given out nothing begin at this sequence number."""
        mine: SideRecord = self._table.sides[side]
        if mine.base < 0:
            mine.base = base
            return
        queue = self._out_of_order.queues.get(side)
        if queue is not None and queue.starting:
            queue.low = min(queue.low, ahead(base, mine.base))
            self._out_of_order.release_start(side, queue)

    def _flip(self, flow: int) -> bool:
        """Exchange the sides of a flow that has given out nothing; False if it has."""
        a: SideRecord = self._table.sides[flow * 2]
        b: SideRecord = self._table.sides[flow * 2 + 1]
        if a.next or b.next or a.ended or b.ended:
            return False
        self._table.side_array[[flow * 2, flow * 2 + 1]] = self._table.side_array[[flow * 2 + 1, flow * 2]]
        queues = self._out_of_order.queues
        one, two = queues.pop(flow * 2, None), queues.pop(flow * 2 + 1, None)
        if two is not None:
            queues[flow * 2] = two
        if one is not None:
            queues[flow * 2 + 1] = one
        return True

    def replace(self, flow: int, client: int, packet: Segment) -> None:
        """Open a new flow on the tuple of one; it is told from others of the same first time by their number."""
        times = self._times.pop(flow, None)
        if times is None and packet.ts_ns <= self._table.flows[flow].first_ts_ns:
            times = self._times_of(flow)
        new = self._table.replace(flow, client, packet.ts_ns, packet.number)
        if times is not None:
            at = _time_key(packet.ts_ns)
            self._table.flows[new].equal = times[at] = times.get(at, -1) + 1
            self._times[new] = times

    def _times_of(self, flow: int) -> dict[bytes, int]:
        """The last `equal` by first time of a flow and those that used its tuple before."""
        times: dict[bytes, int] = {}
        while flow >= 0:
            of: FlowRecord = self._table.flows[flow]
            times.setdefault(_time_key(of.first_ts_ns), of.equal)
            flow = of.before
        return times

    @property
    def newest(self) -> list[int]:
        """Flows whose times are known."""
        return list(self._times)

    def keep_only(self, newest: list[int]) -> None:
        """Find the times of these anew, and those of no others: flows have moved in the table."""
        self._times = {flow: self._times_of(flow) for flow in newest}


def _time_key(ts_ns: int) -> bytes:
    """A time as a key of a dictionary: Python hashes bytes with a secret, numbers without."""
    return ts_ns.to_bytes(8, "big", signed=True)
