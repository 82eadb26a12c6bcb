"""Bytes of clients that were not captured, or not read: a publish may lie in them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mqpcap.correlate.batch import Batch, Closing

ANY_LENGTH = (1 << 63) - 1
"""Of bytes that may be as many as they like: nobody saw how many."""
COLUMNS = pa.schema(
    [
        ("connection_id", pa.int64()), ("server_ip", pa.string()), ("server_port", pa.int64()),
        ("since_ns", pa.int64()), ("until_ns", pa.int64()), ("length", pa.int64()),
    ]
)  # fmt: skip


@dataclass(slots=True)
class _Client:
    """A connection: where it leads, and where the last message of the client ends that was captured whole."""

    connection_id: int
    server_ip: str
    server_port: int
    end: int
    end_ns: int


class Unseen:
    """Finds such bytes as messages come; gives a row for each stretch of them, as COLUMNS.

    They were sent between ``since_ns`` and ``until_ns``. What a client sent before the capture began counts, too, from
    ``early_ns`` before its first message on: earlier nobody knows of that client.
    """

    def __init__(self, early_ns: int) -> None:
        self._early_ns = early_ns
        self._clients: dict[int, _Client] = {}

    def feed(self, batch: Batch) -> pa.Table:
        """Take messages in."""
        found = self._begun(batch)
        order = batch.by_side[batch.from_client[batch.by_side]]
        flow, start, length, cut = (x[order] for x in (batch.flow, batch.offset, batch.length, batch.cut))
        # What was not captured whole is not captured.
        end, end_ns = np.where(cut, start, start + length), np.where(cut, batch.ts_ns[order], batch.end_ns[order])
        first = np.flatnonzero(np.diff(flow, prepend=-1))
        before, before_ns = (np.append(0, x)[: len(flow)] for x in (end, end_ns))
        for at, until in zip(first.tolist(), np.append(first, len(flow))[1:].tolist(), strict=True):
            known = self._clients[int(flow[at])]
            before[at], before_ns[at] = known.end, known.end_ns
            known.end, known.end_ns = int(end[until - 1]), int(end_ns[until - 1])
        for at in np.flatnonzero(start > before).tolist():
            until_ns, missing = int(batch.end_ns[order[at]]), int(start[at] - before[at])
            found.append(self._stretch(int(flow[at]), int(before_ns[at]), until_ns, missing))
        for at in np.flatnonzero(cut).tolist():  # known before the connection is over: a delivery may be due by then
            found.append(self._stretch(int(flow[at]), int(before_ns[at]), int(batch.end_ns[order[at]]), ANY_LENGTH))
        return pa.Table.from_pylist(found, COLUMNS)

    def _begun(self, batch: Batch) -> list[dict[str, object]]:
        """Get to know new connections; what those sent that began before the capture."""
        found = []
        flows, rows = np.unique(batch.flow, return_index=True)
        for flow, row in zip(flows.tolist(), rows.tolist(), strict=True):
            if flow in self._clients:
                continue
            connection_id, *server = (batch.table[name][row].as_py() for name in COLUMNS.names[:3])
            ts_ns = int(batch.ts_ns[row])
            self._clients[flow] = _Client(connection_id, server[0], server[1], 0, ts_ns)
            if not batch.started[row]:
                found.append(self._stretch(flow, ts_ns - self._early_ns, ts_ns, ANY_LENGTH))
        return found

    def _stretch(self, flow: int, since_ns: int, until_ns: int, length: int) -> dict[str, object]:
        known = self._clients[flow]
        where = {"connection_id": known.connection_id, "server_ip": known.server_ip, "server_port": known.server_port}
        return where | {"since_ns": since_ns, "until_ns": max(since_ns, until_ns), "length": length}

    def close(self, closing: Closing) -> pa.Table:
        """Let connections go; what their clients sent behind the last message."""
        found = []
        columns = (closing.flow, closing.requests_missing_at, closing.last_ns)
        for flow, missing_at, last_ns in zip(*(x.tolist() for x in columns), strict=True):
            known = self._clients.get(flow)
            if known is not None and missing_at >= known.end:
                found.append(self._stretch(flow, known.end_ns, last_ns, ANY_LENGTH))
            self._clients.pop(flow, None)
        return pa.Table.from_pylist(found, COLUMNS)
