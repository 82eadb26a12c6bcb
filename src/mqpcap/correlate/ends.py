"""Where each connection's captured messages end, and what its client sent that was not captured.

:class:`Ends` is fed with messages as they come. A publish may lie in bytes of a client that nobody saw: with
``early_ns`` it gives a row for each stretch of such bytes, as STRETCHES. They were sent between ``since_ns`` and
``until_ns``. What a client sent before the capture began counts, too, from ``early_ns`` before its first message on:
earlier nobody knows of that client.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.correlate.batch import Batch, Closing

ANY_LENGTH = (1 << 63) - 1
"""Of bytes that may be as many as they like: nobody saw how many."""
STRETCHES = pa.schema(
    [
        ("connection_id", pa.int64()), ("server_ip", pa.string()), ("server_port", pa.int64()),
        ("since_ns", pa.int64()), ("until_ns", pa.int64()), ("length", pa.int64()),
    ]
)  # fmt: skip
_WHERE = STRETCHES.names[:3]


@dataclass(slots=True)
class Ended:
    """Where the last message of the client ends and when it came, and where that of the server ends, -1 without one."""

    client: int = 0
    client_ns: int = 0
    server: int = -1
    where: dict[str, object] | None = None


class Ends:
    """The ends of live connections; see the module."""

    def __init__(self, early_ns: int | None) -> None:
        self._early_ns = early_ns
        self._known: dict[int, Ended] = {}

    def feed(self, batch: Batch) -> pa.Table:
        """Take messages in; gives the stretches in front of them."""
        order, until = batch.by_side, batch.side_ends
        first = np.append(0, until)[:-1]
        rows = order[first]
        stretches = self._begun(batch, rows)
        start, cut = batch.offset[order], batch.cut[order]
        # What was not captured whole is not captured.
        end, end_ns = np.where(cut, start, start + batch.length[order]), batch.end_ns[order]
        before, before_ns = (np.append(0, x)[: len(order)] for x in (end, end_ns))
        columns = (batch.flow[rows], batch.from_client[rows], first, np.maximum.reduceat(end, first), end_ns[until - 1])
        for flow, from_client, at, last, last_ns in zip(*(x.tolist() for x in columns), strict=True):
            known = self._known[flow]
            if from_client:
                before[at], before_ns[at] = known.client, known.client_ns
                known.client, known.client_ns = max(known.client, last), last_ns
            else:
                known.server = max(known.server, last)
        if self._early_ns is not None:
            client = batch.from_client[order]
            for at in np.flatnonzero(client & (start > before)).tolist():
                missing = int(start[at] - before[at])
                stretches.append(self._stretch(batch.flow[order[at]], before_ns[at], end_ns[at], missing))
            for at in np.flatnonzero(client & cut).tolist():  # before the connection is over: a delivery may be due
                stretches.append(self._stretch(batch.flow[order[at]], before_ns[at], end_ns[at], ANY_LENGTH))
        return pa.Table.from_pylist(stretches, STRETCHES)

    def _begun(self, batch: Batch, rows: NDArray[np.intp]) -> list[dict[str, object]]:
        """Get to know new connections by the first row of each side; what late ones sent before the capture."""
        stretches = []
        new: dict[int, int] = {}
        for flow, row, ts_ns in zip(batch.flow[rows].tolist(), rows.tolist(), batch.ts_ns[rows].tolist(), strict=True):
            if flow in new:
                self._known[flow].client_ns = min(self._known[flow].client_ns, ts_ns)
            elif flow not in self._known:
                new[flow] = row
                self._known[flow] = Ended(client_ns=ts_ns)
        flows, rows = list(new), np.array([*new.values()], np.intp)
        if self._early_ns is not None:
            where = batch.table.select(_WHERE).take(pa.array(rows)).to_pylist()
            for flow, one, started in zip(flows, where, batch.started[rows].tolist(), strict=True):
                known = self._known[flow]
                known.where = one
                if not started:
                    since_ns = known.client_ns - self._early_ns
                    stretches.append(self._stretch(flow, since_ns, known.client_ns, ANY_LENGTH))
        return stretches

    def _stretch(self, flow: int, since_ns: int, until_ns: int, length: int) -> dict[str, object]:
        times = {"since_ns": int(since_ns), "until_ns": max(int(since_ns), int(until_ns)), "length": length}
        return (self._known[int(flow)].where or {}) | times

    def close(self, closing: Closing) -> tuple[list[Ended], pa.Table]:
        """Let connections go; gives the ends of each, and what their clients sent behind the last message."""
        stretches, ended = [], []
        columns = (closing.flow, closing.requests_missing_at, closing.last_ns)
        for flow, missing_at, last_ns in zip(*(x.tolist() for x in columns), strict=True):
            known = self._known.get(flow) or Ended()
            if known.where is not None and missing_at >= known.client:
                stretches.append(self._stretch(flow, known.client_ns, last_ns, ANY_LENGTH))
            self._known.pop(flow, None)
            ended.append(known)
        return ended, pa.Table.from_pylist(stretches, STRETCHES)
