"""Ended connections to the facts that decide their open requests.

In: ranges of streams without messages, the records of ended connections. Out: `ConnectionEnds`, a protocol each.
Called by: ``pipeline``.
"""

from collections.abc import Collection, Mapping

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.correlate.batch import ConnectionEnds
from mqpcap.decode.frames import Problem
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.proxy_header import REASON as PROXY_HEADER
from mqpcap.tcp.flow_records import NO_OFFSET
from mqpcap.tcp.flows import Flows
from mqpcap.websocket import REASON as WEBSOCKET

NO_MESSAGE = ("bad_framing", "truncated", PROXY_HEADER, WEBSOCKET)
"""Reasons of undecoded ranges that hide no message: the last bytes of a side, a header before the first, frames of
WebSocket."""


class Closings:
    """Ranges without messages, of live connections; ``connections``: those of the `Framer`."""

    def __init__(self, connections: Mapping[int, ConnectionState]) -> None:
        self._connections = connections
        self._missing_at: dict[int, list[int]] = {}
        """By connection the last stream offset of client and server where bytes hold no message, -1 if all do."""

    def add_problems(self, problems: Collection[Problem]) -> None:
        """Add ranges of streams without messages."""
        for problem in problems:
            is_harmless = problem.kind == "undecoded" and problem.reason in NO_MESSAGE
            state = self._connections.get(problem.flow)
            if problem.kind == "conflict" or is_harmless or state is None:
                continue
            side = int(problem.side != state.client)
            offsets = self._missing_at.setdefault(problem.flow, [-1, -1])
            offsets[side] = max(offsets[side], problem.offset)

    def forget(self, flows: Int64Array) -> None:
        """Drop ended connections."""
        for flow in self._missing_at.keys() & {*flows.tolist()}:
            del self._missing_at[flow]

    def by_protocol(self, numbers: Int64Array, flows: Flows) -> list[tuple[str, ConnectionEnds]]:
        """How connections ended, for each protocol with a rule for requests."""
        numbers_by_protocol: dict[str, list[int]] = {}
        for number, state in zip(numbers.tolist(), map(self._connections.get, numbers.tolist()), strict=True):
            if state is not None and state.protocol is not None and state.protocol.rule is not None:
                numbers_by_protocol.setdefault(state.protocol.name, []).append(number)
        return [
            (protocol, self._closing(np.array(of_protocol, np.int64), flows))
            for protocol, of_protocol in numbers_by_protocol.items()
        ]

    def _closing(self, flows: Int64Array, table: Flows) -> ConnectionEnds:
        columns, row = table.columns(flows), np.arange(len(flows))
        client = np.array([self._connections[flow].client for flow in flows.tolist()], np.int64)
        server = 1 - client
        fin, server_fin = columns.fin_offset[row, client], columns.fin_offset[row, server]
        acked = columns.acked[row, client]
        is_reset, has_server_fin = columns.rst[row].any(1), server_fin != NO_OFFSET
        end = np.where(fin == NO_OFFSET, columns.end_offset[row, client], fin)
        is_orderly = has_server_fin & (fin != NO_OFFSET) & (columns.fin_acked[row, server] == fin + 1) & ~is_reset
        missing = np.full((len(flows), 2), -1)
        for i in np.flatnonzero(np.isin(flows, list(self._missing_at))).tolist():
            missing[i] = self._missing_at[int(flows[i])]
        return ConnectionEnds(
            flow=flows,
            client_ended=columns.ended[row, client],
            server_ended=columns.ended[row, server],
            all_acknowledged=has_server_fin & (acked != NO_OFFSET) & (acked >= end),
            requests_missing_at=missing[:, 0],
            replies_missing_at=missing[:, 1],
            last_ns=columns.last_ts_ns[row],
            orderly=is_orderly,
            requests_extent=columns.extent[row, client],
            replies_extent=columns.extent[row, server],
        )
