"""Where time goes, by client and server: on the network, in the server, in the client.

The handshake of a connection tells the round trip from where the capture was taken: from SYN to SYN-ACK to the server
and back, from SYN-ACK to the client's next segment to the client and back. A handshake with a SYN sent twice tells
nothing. A client thinks from a reply to its next request on the connection.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.statistics.groups import Sums
from mqpcap.statistics.keys import OF_EXCHANGES, endpoint
from mqpcap.statistics.latencies import Latencies, LatencySummary
from mqpcap.tcp.headers import Segments, address_text

MAX_OPEN = 1 << 16
"""Handshakes, and connections with a reply, that are remembered; of the oldest beyond nothing is told."""
PERCENTS = (50, 95, 100)
SYN, ACK = 2, 16
BEFORE, NOT_YET, SENT_AGAIN = -1, -2, -3
WHAT = ("to_server", "to_client", "reply", "client")


@dataclass(slots=True)
class _Opening:
    """A handshake that is not complete.

    ts_ns: of the SYN, then of the SYN-ACK. answered: the SYN-ACK's row among the segments at hand, BEFORE if it came
    with earlier ones, NOT_YET, or SENT_AGAIN where it may answer several SYNs.
    """

    ends: tuple[str, str]
    client_port: int
    ts_ns: int
    seq: int
    answered: int


class Delays:
    """Round trips, reply times and the clients' own times."""

    def __init__(self) -> None:
        self.sums = Sums(("client", "server"), ("connections",))
        self._delays = {what: Latencies() for what in WHAT}
        self._openings: dict[int, _Opening] = {}
        self._replied_ns: dict[int, int] = {}

    # -- handshakes ---------------------------------------------------------------------------------------

    def take_segments(self, segments: Segments) -> None:
        """Look for handshakes among segments."""
        is_syn = (segments.flags & SYN) != 0
        for row in np.flatnonzero(is_syn).tolist():
            self._take_syn(segments, row)
        waiting = {key: opening for key, opening in self._openings.items() if opening.answered >= BEFORE}
        if waiting:
            self._take_next(segments, ~is_syn, waiting)

    def _take_syn(self, segments: Segments, row: int) -> None:
        key, ts_ns, seq = int(segments.key[row]), int(segments.ts_ns[row]), int(segments.seq[row])
        opening = self._openings.get(key)
        if not segments.flags[row] & ACK:
            ends, client_port = _ends(segments, row), int(segments.sport[row])
            answered = SENT_AGAIN if opening is not None and opening.seq == seq else NOT_YET
            self._openings[key] = _Opening(ends, client_port, ts_ns, seq, answered)
            if len(self._openings) > MAX_OPEN:
                del self._openings[next(iter(self._openings))]
        elif opening is not None and opening.answered == NOT_YET and segments.ack[row] == (opening.seq + 1) % (1 << 32):
            self._add("to_server", opening, ts_ns)
            opening.ts_ns, opening.answered = ts_ns, row

    def _take_next(self, segments: Segments, others: NDArray[np.bool_], waiting: dict[int, _Opening]) -> None:
        """The first segment of each client behind the SYN-ACK, among those that are ``others`` than SYNs."""
        keys = np.array(sorted(waiting), np.int64)
        answered = np.array([waiting[key].answered for key in keys.tolist()])
        rows = np.flatnonzero(others & np.isin(segments.key, keys))
        rows = rows[rows > answered[np.searchsorted(keys, segments.key[rows])]]
        _, first = np.unique(segments.key[rows] ^ segments.sport[rows], return_index=True)
        for row in rows[np.sort(first)].tolist():
            key = int(segments.key[row])
            if int(segments.sport[row]) == waiting[key].client_port:
                self._add("to_client", waiting[key], int(segments.ts_ns[row]))
                del self._openings[key]
        for opening in waiting.values():
            opening.answered = BEFORE

    def _add(self, what: str, opening: _Opening, until_ns: int) -> None:
        group = np.array([self.sums.number(opening.ends)])
        self._delays[what].add(group, np.array([until_ns - opening.ts_ns]))
        if what == "to_server":
            self.sums.add("connections", group)

    # -- exchanges ----------------------------------------------------------------------------------------

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count rows of ``exchanges``."""
        rows = rows.filter(pc.is_valid(rows["latency_ns"]))
        if not rows.num_rows:
            return
        groups = self.sums.groups(OF_EXCHANGES, rows)
        self._delays["reply"].add(groups, rows["latency_ns"].to_numpy())
        ids, asked, replied = (rows[name].to_numpy() for name in ("connection_id", "request_ts_ns", "reply_ts_ns"))
        order = np.lexsort((asked, ids))
        ids, asked, replied, groups = ids[order], asked[order], replied[order], groups[order]
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        before = np.append(0, replied[:-1])
        firsts = zip(ids[starts].tolist(), asked[starts].tolist(), strict=True)
        before[starts] = [self._replied_ns.get(one, asked_ns) for one, asked_ns in firsts]
        thought = asked - before
        known = np.flatnonzero(thought > 0)  # requests sent in a row wait for no reply
        self._delays["client"].add(groups[known], thought[known])
        ends = np.append(starts[1:], len(ids)) - 1
        self._replied_ns.update(zip(ids[ends].tolist(), replied[ends].tolist(), strict=True))
        while len(self._replied_ns) > MAX_OPEN:
            del self._replied_ns[next(iter(self._replied_ns))]

    def summaries(self) -> dict[str, list[LatencySummary]]:
        """By what it is of, the delays of each group."""
        return {what: delays.summaries(PERCENTS, len(self.sums)) for what, delays in self._delays.items()}


def _ends(segments: Segments, row: int) -> tuple[str, str]:
    """The address of the sender, and address and port of the receiver."""
    version = int(segments.version[row])
    source = address_text(version, int(segments.src_hi[row]), int(segments.src_lo[row]))
    target = address_text(version, int(segments.dst_hi[row]), int(segments.dst_lo[row]))
    return source, endpoint(target, int(segments.dport[row]))
