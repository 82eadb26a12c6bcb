"""Finds connections that are over, and those to be ended so that the flow table stays small."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tcp.flow_table import CLOSED_TIMEOUT_NS, STALE_NS, FlowTable

IDLE_TIMEOUT_NS = 25 * 3600 * 1_000_000_000
"""A flow that carried payload and was not closed is over after this time without packets.

A consumer may wait a night or a day for the next message on the same connection, and nothing need be sent meanwhile:
Linux by default probes after two hours, and only if asked to. With summer time the longest day has 25 hours.
"""

Mask = NDArray[np.bool_]


def eviction_candidates(table: FlowTable, now_ns: int, max_closed: int, max_flows: int) -> tuple[Mask, int]:
    """By index, the connections to be ended so that the table stays small, and how many of them were still open.

    Above ``max_closed`` connections in the table: those that are over by timeout or whose end was acknowledged, except
    the newest ``max_closed`` / 2 of them, as delayed packets may still come. They are left until they are
    ``max_closed`` / 4, as each eviction looks at the whole table. Above ``max_flows`` remaining connections, others
    follow until ``max_flows`` / 2 are left: closed ones first, then those without payload, then the longest idle.
    """
    flows = table.flow_array[: table.flow_count]
    candidates, evicted_open, count = np.zeros(len(flows), np.bool_), 0, table.live_count
    if count <= max_closed:
        return candidates, evicted_open
    last_ts_ns, previous, number = flows["last_ts_ns"], flows["previous"], flows["connection_number"]
    # A connection that begins now may get the id of an evicted connection that began at the same time.
    began_earlier = (flows["first_ts_ns"] < now_ns) & (number >= 0)
    is_over = _is_idle(table, now_ns) | (flows["is_closed"] != 0)
    done = np.flatnonzero(is_over & began_earlier & (flows["out_of_order"] == 0))
    done = done[np.lexsort((number[done], last_ts_ns[done]))][: max(len(done) - max_closed // 2, 0)]
    if len(done) >= max_closed // 4:
        candidates[done] = True
    remaining = count - np.count_nonzero(candidates)
    if remaining > max_flows:
        surplus, is_closed = np.flatnonzero(began_earlier & ~candidates), _is_closed(table)
        order = np.lexsort((number[surplus], last_ts_ns[surplus], _has_payload(table)[surplus], ~is_closed[surplus]))
        surplus = surplus[order][: remaining - max_flows // 2]
        candidates[surplus] = True
        evicted_open = int(np.count_nonzero(~is_closed[surplus]))
    for ancestor in ancestors(previous):
        candidates[ancestor[candidates & (ancestor >= 0)]] = True
    return candidates, evicted_open


def _is_idle(table: FlowTable, now_ns: int) -> Mask:
    """Which connections passed their timeout.

    It is CLOSED_TIMEOUT_NS if the connection was closed or reset or its 5-tuple is in use again, STALE_NS if it carried
    no payload (SYN floods, scans), else IDLE_TIMEOUT_NS.
    """
    limit_ns = np.where(_is_closed(table), CLOSED_TIMEOUT_NS, np.where(_has_payload(table), IDLE_TIMEOUT_NS, STALE_NS))
    is_idle: Mask = now_ns - table.flow_array["last_ts_ns"][: table.flow_count] > limit_ns
    return is_idle


def _is_closed(table: FlowTable) -> Mask:
    """Which connections are closed on both sides or reset, or have a 5-tuple that is in use again."""
    sides = table.both_sides()
    is_closed: Mask = (sides["rst_seen"] != 0).any(axis=1) | (sides["ended"] != 0).all(axis=1)
    is_closed |= (sides["fin_offset"] != NO_OFFSET).all(axis=1)
    previous = table.flow_array["previous"][: table.flow_count]
    is_closed[previous[previous >= 0]] = True
    return is_closed


def _has_payload(table: FlowTable) -> Mask:
    """Which connections carried payload."""
    has_payload: Mask = (table.both_sides()["bytes"] != 0).any(axis=1)
    return has_payload


def ancestors(previous: Int64Array) -> Iterator[Int64Array]:
    """For each flow, the index of the flow that used its 5-tuple 1, 2, 4 ... flows earlier, -1 for none.

    A property of all earlier flows is found in few steps, however often one 5-tuple is used. Ends when no flow has one.
    """
    while (previous >= 0).any():
        yield previous
        previous = np.where(previous >= 0, previous[previous], -1)
