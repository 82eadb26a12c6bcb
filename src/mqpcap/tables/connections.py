"""Ended connections to rows of the table ``connections``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array, append_columns, file_text
from mqpcap.decode.foreign_protocols import TLS
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.proxy_header import ProxyHeader
from mqpcap.decode.side import Side
from mqpcap.records import dataclass
from mqpcap.schema.protocol import DIRECTIONS, MessageQueue
from mqpcap.tables.schemas import CONNECTIONS, SIDES, TLS_FACTS
from mqpcap.tables.unrecognised_servers import UnrecognisedServers
from mqpcap.tcp.flows import END_STATES, TCP_STATES, Flows
from mqpcap.tls import TlsFacts

_Value = TypeVar("_Value")
CONNECTION_ROWS = 1 << 14
"""Rows that are made at once: a flood may leave millions."""


@dataclass(frozen=True, slots=True)
class EndedConnections:
    """Connections that ended, before they leave memory: their numbers, and their states (None if never framed).

    By number, of those that have any: ``tls``, the facts of hellos; ``same_as``, ``subflow_of``: ids of connections.
    """

    numbers: Int64Array
    states: Sequence[ConnectionState | None]
    tls: Mapping[int, TlsFacts]
    same_as: Mapping[int, int]
    subflow_of: Mapping[int, int]
    flows: Flows

    @property
    def client(self) -> Int64Array:
        """The side of each that is the client, 0 or 1."""
        return np.array([0 if state is None else state.client for state in self.states], np.int64)


class ConnectionRows:
    """Makes the rows of a capture's connections as they end; ``servers``: their counts by server."""

    def __init__(self, capture: str) -> None:
        self._capture = capture
        self.servers = UnrecognisedServers()

    def rows(self, ended: EndedConnections, more_columns: Mapping[str, pa.Array]) -> Iterator[pa.Table]:
        """The rows of ended connections, a block at a time, with further columns."""
        for start in range(0, len(ended.numbers), CONNECTION_ROWS):
            part = slice(start, start + CONNECTION_ROWS)
            block_of = replace(ended, numbers=ended.numbers[part], states=ended.states[part])
            states = _StateColumns(*zip(*(_STATE(state or _SILENT) for state in block_of.states), strict=True))
            block = _rows(self._capture, block_of, states)
            self.servers.add(block, states.foreign_protocol)
            yield append_columns(block, {name: x[part] for name, x in more_columns.items()})


class _StateColumns(NamedTuple):
    """The states of connections, a column for each property."""

    client: tuple[int, ...]
    protocol: tuple[MessageQueue | None, ...]
    foreign_protocol: tuple[str | None, ...]
    identified_by: tuple[str | None, ...]
    proxied: tuple[ProxyHeader | None, ...]
    sides: tuple[tuple[Side, Side], ...]


_STATE = attrgetter(*_StateColumns._fields)
_SILENT = ConnectionState(-1, (Side(-1, 0), Side(-1, 1)))
"""Counts of a connection without messages."""


def _by_number(numbers: list[int], values: Mapping[int, _Value]) -> list[_Value | None]:
    """The value of each connection, None if it has none."""
    return [*map(values.get, numbers)] if values else [None] * len(numbers)


def _rows(capture: str, ended: EndedConnections, states: _StateColumns) -> pa.Table:
    flow_columns, numbers = ended.flows.columns(ended.numbers), ended.numbers.tolist()
    client = np.array(states.client, np.int64)
    tls = _by_number(numbers, ended.tls)
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
        "protocol": [protocol and protocol.name for protocol in states.protocol],
        "tls": [
            "opened" if facts is not None and facts.is_opened else "closed" if name == TLS else None
            for name, facts in zip(states.foreign_protocol, tls, strict=True)
        ],
        **{f"tls_{name}": [getattr(facts, name, None) for facts in tls] if ended.tls else tls for name in TLS_FACTS},
        "identified_by": states.identified_by,
        "proxied_ip": [proxied and proxied.ip for proxied in states.proxied],
        "proxied_port": [proxied and proxied.port for proxied in states.proxied],
        "same_as": _by_number(numbers, ended.same_as),
        "subflow_of": _by_number(numbers, ended.subflow_of),
        "syn_seen": flow_columns.syn.any(axis=1),
        "end_state": pa.array(END_STATES, pa.string()).take(pa.array(flow_columns.end_state)),
    }
    is_open = flow_columns.closed_by < 0
    closer = pa.array(np.where(flow_columns.closed_by == client, 0, 1), pa.int64(), mask=is_open)
    columns |= {
        "tcp_state": pa.array(TCP_STATES, pa.string()).take(pa.array(flow_columns.tcp_state)),
        "closed_by": pa.array(DIRECTIONS, pa.string()).take(closer),
        "idle_before_close_ns": pa.array(flow_columns.idle_before_close_ns, mask=is_open),
    }
    overhead = np.array([facts.overhead_bytes if facts is not None else (0, 0) for facts in tls], np.int64)
    messages = np.array([(a.messages, b.messages) for a, b in states.sides], np.int64)
    row = np.arange(len(flow_columns))
    for side, d in ((client, DIRECTIONS[0]), (1 - client, DIRECTIONS[1])):
        counts = (
            flow_columns.packets,
            flow_columns.bytes,
            flow_columns.retransmitted,
            flow_columns.conflict,
            flow_columns.missing,
            messages,
            flow_columns.duplicates,
            overhead,
            flow_columns.closed_window_ns,
        )
        columns |= {f"{measure}_{d}": count[row, side] for measure, count in zip(SIDES, counts, strict=True)}
    return pa.Table.from_arrays([pa.array(columns[f.name]).cast(f.type) for f in CONNECTIONS], schema=CONNECTIONS)
