"""Measures delays by client and server: on the network, in the server, in the client.

Round trips are measured in handshakes, seen from the place of the capture: SYN to SYN-ACK is the round trip to the
server, SYN-ACK to the client's next segment the round trip to the client. A handshake with a retransmitted SYN is left
out. Client think time runs from a reply to the next request on the connection.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import single_array
from mqpcap.statistics.groups import SumCounter, Sums
from mqpcap.statistics.keys import OF_CONNECTIONS
from mqpcap.statistics.latencies import Latencies, LatencySummary
from mqpcap.statistics.report_columns import Cells
from mqpcap.tcp.flags import ACK, SYN
from mqpcap.tcp.headers import Segments, address_text
from mqpcap.wording import endpoint

MAX_TRACKED_FLOWS = 1 << 16
"""Handshakes, and connections with a reply, that are remembered; beyond it the oldest are forgotten."""
PERCENTS = (50, 95, 100)
EARLIER, PENDING, RETRANSMITTED = -1, -2, -3
DELAY_KINDS = ("to_server", "to_client", "reply", "sending", "server", "client")


@dataclass(slots=True)
class _Opening:
    """A handshake that is not complete.

    ts_ns: time of the SYN, then of the SYN-ACK.
    answered: the row of the SYN-ACK among the segments of this batch, EARLIER if it came in an earlier batch, PENDING,
    or RETRANSMITTED if the SYN-ACK may answer several SYNs.
    """

    ends: tuple[str, str]
    client_port: int
    ts_ns: int
    seq: int
    answered: int


class Delays(SumCounter):
    """Round trips, reply times and the clients' own times."""

    def __init__(self) -> None:
        self.sums = Sums(("client", "server"), ("connections",))
        self._delays = {kind: Latencies() for kind in DELAY_KINDS}
        self._openings: dict[int, _Opening] = {}
        self._replied_ns: dict[int, int] = {}

    # -- handshakes ---------------------------------------------------------------------------------------

    def take_segments(self, segments: Segments) -> None:
        """Find handshakes among segments."""
        is_syn = (segments.flags & SYN) != 0
        for row in np.flatnonzero(is_syn).tolist():
            self._take_syn(segments, row)
        waiting = {key: opening for key, opening in self._openings.items() if opening.answered >= EARLIER}
        if waiting:
            self._take_next(segments, ~is_syn, waiting)

    def _take_syn(self, segments: Segments, row: int) -> None:
        key, ts_ns, seq = int(segments.key[row]), int(segments.ts_ns[row]), int(segments.seq[row])
        opening = self._openings.get(key)
        if not segments.flags[row] & ACK:
            ends, client_port = _ends(segments, row), int(segments.sport[row])
            answered = RETRANSMITTED if opening is not None and opening.seq == seq else PENDING
            self._openings[key] = _Opening(ends, client_port, ts_ns, seq, answered)
            if len(self._openings) > MAX_TRACKED_FLOWS:
                del self._openings[next(iter(self._openings))]
        elif opening is not None and opening.answered == PENDING and segments.ack[row] == (opening.seq + 1) % (1 << 32):
            self._add("to_server", opening, ts_ns)
            opening.ts_ns, opening.answered = ts_ns, row

    def _take_next(self, segments: Segments, is_other: NDArray[np.bool_], waiting: dict[int, _Opening]) -> None:
        """Find the first segment of each client after the SYN-ACK; ``is_other``: segments without SYN."""
        keys = np.array(sorted(waiting), np.int64)
        answered = np.array([waiting[key].answered for key in keys.tolist()])
        rows = np.flatnonzero(is_other & np.isin(segments.key, keys))
        rows = rows[rows > answered[np.searchsorted(keys, segments.key[rows])]]
        _, row_indices = np.unique(segments.key[rows] ^ segments.sport[rows], return_index=True)
        for row in rows[np.sort(row_indices)].tolist():
            key = int(segments.key[row])
            if int(segments.sport[row]) == waiting[key].client_port:
                self._add("to_client", waiting[key], int(segments.ts_ns[row]))
                del self._openings[key]
        for opening in waiting.values():
            opening.answered = EARLIER

    def _add(self, kind: str, opening: _Opening, until_ns: int) -> None:
        group = np.array([self.sums.number(opening.ends)])
        self._delays[kind].add(group, np.array([until_ns - opening.ts_ns]))
        if kind == "to_server":
            self.sums.add("connections", group)

    # -- exchanges ----------------------------------------------------------------------------------------

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count rows of ``exchanges``."""
        rows = rows.filter(pc.is_valid(rows["latency_ns"]))
        if not rows.num_rows:
            return
        groups = self.sums.groups(OF_CONNECTIONS, rows)
        latency_ns = rows["latency_ns"].to_numpy()
        self._delays["reply"].add(groups, latency_ns)
        # A client that waits with its last segment, for example for a delayed ACK, spends its own time.
        server_ns = pc.coalesce(single_array(rows["server_ns"]), pa.array(latency_ns)).to_numpy()
        self._delays["server"].add(groups, server_ns)
        self._delays["sending"].add(groups, latency_ns - server_ns)
        ids, asked, replied = (rows[name].to_numpy() for name in ("connection_id", "request_ts_ns", "reply_ts_ns"))
        order = np.lexsort((asked, ids))
        ids, asked, replied, groups = ids[order], asked[order], replied[order], groups[order]
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        replied_before_ns = np.append(0, replied[:-1])
        firsts = zip(ids[starts].tolist(), asked[starts].tolist(), strict=True)
        replied_before_ns[starts] = [
            self._replied_ns.get(connection_id, asked_ns) for connection_id, asked_ns in firsts
        ]
        think_ns = asked - replied_before_ns
        has_reply = np.flatnonzero(think_ns > 0)  # pipelined requests wait for no reply
        self._delays["client"].add(groups[has_reply], think_ns[has_reply])
        ends = np.append(starts[1:], len(ids)) - 1
        self._replied_ns.update(zip(ids[ends].tolist(), replied[ends].tolist(), strict=True))
        while len(self._replied_ns) > MAX_TRACKED_FLOWS:
            del self._replied_ns[next(iter(self._replied_ns))]

    def summaries(self) -> dict[str, list[LatencySummary]]:
        """The delays of each group, by kind."""
        return {kind: delays.summaries(PERCENTS, len(self.sums)) for kind, delays in self._delays.items()}

    def cells(self, rows: Sequence[Cells]) -> Iterator[Cells]:
        """Medians of each group.

        The server's part is the time from a request's last byte to its reply, without the round trip.
        """
        summaries = self.summaries()
        for i in range(len(rows)):
            medians = {kind: kind_summaries[i].percentiles[50] for kind, kind_summaries in summaries.items()}
            server, trip = medians["server"], medians["to_server"]
            yield {
                "rtt_to_client_ns": medians["to_client"], "rtt_to_server_ns": trip, "reply_p50_ns": medians["reply"],
                "answered": summaries["reply"][i].count, "reply_p95_ns": summaries["reply"][i].percentiles[95],
                "sending_p50_ns": medians["sending"],
                "server_p50_ns": None if server is None or trip is None else max(server - trip, 0),
                "client_p50_ns": medians["client"],
            }  # fmt: skip


def _ends(segments: Segments, row: int) -> tuple[str, str]:
    """The address of the sender, and address and port of the receiver."""
    version = int(segments.version[row])
    source = address_text(version, int(segments.src_hi[row]), int(segments.src_lo[row]))
    target = address_text(version, int(segments.dst_hi[row]), int(segments.dst_lo[row]))
    return source, endpoint(target, int(segments.dport[row]))
