"""Ended connections to rows of the table ``connections``."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import file_text
from mqpcap.decode.foreign_protocols import TLS
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.side import Side
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.tables.schemas import CONNECTIONS, SIDES
from mqpcap.tcp.flows import END_STATES, FlowColumns, Flows

CONNECTION_ROWS = 1 << 14
"""Rows that are made at once: a flood may leave millions."""


def connections(
    capture: str, flows: Flows, states: Mapping[int, ConnectionState], numbers: NDArray[np.int64]
) -> Iterator[pa.Table]:
    """The rows of these connections, a block at a time."""
    for start in range(0, len(numbers), CONNECTION_ROWS):
        block = numbers[start : start + CONNECTION_ROWS]
        yield _rows(capture, flows.columns(block), [states.get(number, _SILENT) for number in block.tolist()])


_SILENT = ConnectionState(-1, (Side(-1, 0), Side(-1, 1)))
"""Counts of a connection without messages."""


def _rows(capture: str, flow_columns: FlowColumns, states: list[ConnectionState]) -> pa.Table:
    client = np.array([state.client for state in states], np.int64)
    columns: dict[str, object] = {
        "capture": pa.array([file_text(capture)]).take(pa.array(np.zeros(len(flow_columns), np.int32))),
        "connection_id": flow_columns.connection_ids(),
        "community_id": flow_columns.community_ids(),
        "client_ip": flow_columns.ips(client),
        "client_port": flow_columns.ports(client),
        "server_ip": flow_columns.ips(1 - client),
        "server_port": flow_columns.ports(1 - client),
        "first_ts": flow_columns.first_ts_ns // 1000,
        "last_ts": flow_columns.last_ts_ns // 1000,
        "first_ts_ns": flow_columns.first_ts_ns,
        "last_ts_ns": flow_columns.last_ts_ns,
        "protocol": [state.protocol and state.protocol.name for state in states],
        "tls": ["closed" if state.foreign_protocol == TLS else None for state in states],
        "identified_by": [state.identified_by for state in states],
        "proxied_ip": [state.proxied and state.proxied.ip for state in states],
        "proxied_port": [state.proxied and state.proxied.port for state in states],
        "syn_seen": flow_columns.syn.any(axis=1),
        "end_state": pa.array(END_STATES, pa.string()).take(pa.array(flow_columns.end_state)),
    }
    messages = np.array([side.messages for state in states for side in state.sides], np.int64)
    row = np.arange(len(flow_columns))
    for side, d in ((client, DIRECTIONS[0]), (1 - client, DIRECTIONS[1])):
        counts = (
            flow_columns.packets,
            flow_columns.bytes,
            flow_columns.retransmitted,
            flow_columns.conflict,
            flow_columns.missing,
            messages.reshape(-1, 2),
            flow_columns.duplicates,
        )
        columns |= {f"{measure}_{d}": count[row, side] for measure, count in zip(SIDES, counts, strict=True)}
    return pa.Table.from_arrays([pa.array(columns[f.name]).cast(f.type) for f in CONNECTIONS], schema=CONNECTIONS)
