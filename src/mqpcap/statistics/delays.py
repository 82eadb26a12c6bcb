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
from mqpcap.statistics.latencies import Latencies, Summary
from mqpcap.tcp.headers import Segments, address_text

MAX_OPEN = 1 << 16
"""Handshakes, and connections with a reply, that are remembered; of the oldest beyond nothing is told."""
PERCENTS = (50, 95, 100)
SYN, ACK = 2, 16
WHAT = ("to_server", "to_client", "reply", "client")


@dataclass(slots=True)
class _Opening:
    """A handshake that is not complete: of the SYN time and sequence number (-1: sent twice), then of the SYN-ACK."""

    syn_ns: int
    seq: int
    client: tuple[str, int]
    server: str
    answer_ns: int = -1
    answer_number: int = -1


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
        waiting = [key for key, opening in self._openings.items() if opening.answer_ns >= 0]
        if waiting:
            rows = np.flatnonzero(np.isin(segments.key, waiting) & ~is_syn)
            self._take_next(segments, rows)

    def _take_syn(self, segments: Segments, row: int) -> None:
        key, ts_ns = int(segments.key[row]), int(segments.ts_ns[row])
        opening = self._openings.get(key)
        if not segments.flags[row] & ACK:
            again = opening is not None and opening.seq == int(segments.seq[row])
            self._openings[key] = _opening(segments, row, is_again=again)
            if len(self._openings) > MAX_OPEN:
                del self._openings[next(iter(self._openings))]
        elif opening is not None and opening.answer_ns < 0 and _follows(int(segments.ack[row]), opening.seq):
            opening.answer_ns, opening.answer_number = ts_ns, int(segments.number[row])
            self._add("to_server", opening, ts_ns - opening.syn_ns)

    def _take_next(self, segments: Segments, rows: NDArray[np.intp]) -> None:
        """The first segment of each client behind the SYN-ACK."""
        ends = segments.key[rows] ^ segments.sport[rows]
        _, first = np.unique(ends, return_index=True)
        for row in rows[np.sort(first)].tolist():
            opening = self._openings.get(int(segments.key[row]))
            if opening is None or int(segments.sport[row]) != opening.client[1]:
                continue
            if int(segments.number[row]) > opening.answer_number >= 0:
                self._add("to_client", opening, int(segments.ts_ns[row]) - opening.answer_ns)
                del self._openings[int(segments.key[row])]

    def _add(self, what: str, opening: _Opening, delay_ns: int) -> None:
        group = np.array([self.sums.number((opening.client[0], opening.server))], np.int64)
        self._delays[what].add(group, np.array([delay_ns], np.int64))
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

    def summaries(self) -> dict[str, list[Summary]]:
        """By what it is of, the delays of each group."""
        return {what: delays.summaries(PERCENTS, len(self.sums)) for what, delays in self._delays.items()}


def _opening(segments: Segments, row: int, is_again: bool) -> _Opening:
    version = int(segments.version[row])
    source = address_text(version, int(segments.src_hi[row]), int(segments.src_lo[row]))
    target = address_text(version, int(segments.dst_hi[row]), int(segments.dst_lo[row]))
    seq = -1 if is_again else int(segments.seq[row])
    client = source, int(segments.sport[row])
    return _Opening(int(segments.ts_ns[row]), seq, client, endpoint(target, int(segments.dport[row])))


def _follows(ack: int, seq: int) -> bool:
    return seq >= 0 and ack == (seq + 1) % (1 << 32)
