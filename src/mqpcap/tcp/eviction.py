"""Which connections are over, and which are to be ended so that the table stays small."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp.flow_records import NONE
from mqpcap.tcp.flow_table import CLOSED_NS, IDLE_NS, FlowTable

SILENT_NS = 25 * 3600 * 1_000_000_000
"""A flow that carried payload and was not closed is over after so long without packets.

A consumer may wait a night or a day for the next message on the same connection, and nothing need be sent meanwhile:
Linux by default probes after two hours, and only if asked to. With summer time the longest day has 25 hours.
"""

Mask = NDArray[np.bool_]


def expired(table: FlowTable, now_ns: int) -> Mask:
    """By place in the table, connections of which nothing more is expected.

    They are closed on both sides, reset, or their addresses and ports are used anew, for CLOSED_NS; or they are
    silent for SILENT_NS, where no byte of payload was captured (floods, scans) for IDLE_NS. Of connections with the
    same addresses and ports the older are over before the newer.
    """
    over = _silent(table, now_ns)
    for before in earlier(table.flow_array["previous"][: table.flow_count]):
        over &= (before < 0) | over[before]
    return over


def eviction_candidates(table: FlowTable, now_ns: int, few: int, most: int) -> tuple[Mask, int]:
    """By place, connections to be ended so that those in the table stay few; and how many of them may not be over.

    With more than ``few`` they are those that expired or whose end was acknowledged, but not the last ``few`` / 2 of
    these: packets that were under way come yet. With more than ``most`` they are others too, until half of it is left:
    first those that closed, then those that never spoke, then the longest silent. None unless that is worth the work.
    """
    count = table.flow_count
    candidates, crowded_out = np.zeros(count, np.bool_), 0
    if count <= few:
        return candidates, crowded_out
    flows = table.flow_array[:count]
    last, before = flows["last_ts_ns"], flows["previous"]
    # A connection that begins now may have the id of another that did, if that one is no longer known.
    began_before = flows["first_ts_ns"] < now_ns
    over = _silent(table, now_ns) | (flows["is_closed"] != 0)
    done = np.flatnonzero(over & began_before & (flows["out_of_order"] == 0))
    done = done[np.argsort(last[done], kind="stable")][: max(len(done) - few // 2, 0)]
    if len(done) >= few // 4:
        candidates[done] = True
    left = count - np.count_nonzero(candidates)
    if left > most:
        others, closed = np.flatnonzero(began_before & ~candidates), _closed(table)
        others = others[np.lexsort((last[others], _spoke(table)[others], ~closed[others]))][: left - most // 2]
        candidates[others] = True
        crowded_out = int(np.count_nonzero(~closed[others]))
    for one in earlier(before):
        candidates[one[candidates & (one >= 0)]] = True
    return candidates, crowded_out


def _silent(table: FlowTable, now_ns: int) -> Mask:
    """Which connections are silent for long enough, each by itself."""
    limit_ns = np.where(_closed(table), CLOSED_NS, np.where(_spoke(table), SILENT_NS, IDLE_NS))
    silent: Mask = now_ns - table.flow_array["last_ts_ns"][: table.flow_count] > limit_ns
    return silent


def _closed(table: FlowTable) -> Mask:
    """Which connections are closed on both sides or reset, or their addresses and ports used anew."""
    sides = table.both_sides()
    closed: Mask = (sides["rst_seen"] != 0).any(axis=1) | (sides["ended"] != 0).all(axis=1)
    closed |= (sides["fin_offset"] != NONE).all(axis=1)
    before = table.flow_array["previous"][: table.flow_count]
    closed[before[before >= 0]] = True
    return closed


def _spoke(table: FlowTable) -> Mask:
    """Which connections carried payload."""
    spoke: Mask = (table.both_sides()["bytes"] != 0).any(axis=1)
    return spoke


def earlier(before: Int64Array) -> Iterator[Int64Array]:
    """For each flow the place of the one that used its tuple 1, 2, 4 ... flows before, -1 for none, while any did.

    What holds for all that came before is so found in few steps, however often one tuple is used.
    """
    while (before >= 0).any():
        yield before
        before = np.where(before >= 0, before[before], -1)
