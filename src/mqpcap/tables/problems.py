"""Stretches of stream that became no message to rows of the table ``problems``.

``decode.side`` finds captured bytes that are not a message, `undelivered_ranges` bytes that never reached it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import factorize, file_text
from mqpcap.decode.frames import Problem
from mqpcap.decode.framing import ConnectionState
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.tables.schemas import PROBLEMS
from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.derived_streams import DerivedStreams
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.reassembly import Reassembler

BLOCK_ROWS = 1 << 14
"""Rows that are made at a time: a retransmission with other bytes alone may have dozens."""


def problems(
    capture: str, stretches: Sequence[Problem], flows: Flows, states: Mapping[int, ConnectionState]
) -> Iterator[pa.Table]:
    """The rows, in order of time, in blocks."""
    stretches = sorted(stretches, key=lambda p: (p.ts_ns, p.flow, p.side, p.offset, p.kind))
    for start in range(0, len(stretches), BLOCK_ROWS):
        yield _block(capture, stretches[start : start + BLOCK_ROWS], flows, states)


def _block(capture: str, stretches: Sequence[Problem], flows: Flows, states: Mapping[int, ConnectionState]) -> pa.Table:
    flow, place = factorize(np.array([p.flow for p in stretches], np.int64))
    connection_states = [states.get(number) for number in flow.tolist()]
    client = np.array([state.client if state else 0 for state in connection_states], np.int64)[place]
    names = pa.array(
        [state.protocol.name if state and state.protocol else None for state in connection_states], pa.string()
    )
    flow_columns = flows.columns(flow)
    side = np.array([p.side for p in stretches], np.int64)
    both = np.repeat(np.arange(2), len(flow)).reshape(2, -1)
    ips = [pa.array(flow_columns.ips(ends), pa.string()) for ends in both]
    sender = [np.where(side == 0, 0, 1), np.where(side == 0, 1, 0)]
    rows = pa.array(place)
    ip = [ips[0].take(rows), ips[1].take(rows)]
    first_is_a = pa.array(side == 0)
    columns = {
        "capture": pa.array([file_text(capture)] * len(stretches), pa.string()),
        "connection_id": pa.array(flow_columns.connection_ids()[place]),
        "direction": pa.array(DIRECTIONS, pa.string()).take(pa.array((side != client).astype(np.int8))),
        "stream_offset": pa.array([p.offset for p in stretches], pa.int64()),
        "length": pa.array([p.length for p in stretches], pa.int64()),
        "kind": pa.array([p.kind for p in stretches], pa.string()),
        "reason": pa.array([p.reason for p in stretches], pa.string()),
        "protocol": names.take(rows),
        "ts": pa.array([p.ts_ns // 1000 for p in stretches], pa.int64()).cast(PROBLEMS.field("ts").type),
        "src_ip": pc.if_else(first_is_a, ip[0], ip[1]),
        "src_port": pa.array(flow_columns.port[place, sender[0]].astype(np.int32)),
        "dst_ip": pc.if_else(first_is_a, ip[1], ip[0]),
        "dst_port": pa.array(flow_columns.port[place, sender[1]].astype(np.int32)),
        "first_packet": pa.array([p.first_packet for p in stretches], pa.int64()),
    }
    return pa.table(columns, PROBLEMS)


def undelivered_ranges(
    assembler: Reassembler, derivations: Sequence[DerivedStreams[Any]], gaps: Sequence[StreamRange]
) -> list[Problem]:
    """Ranges that never reached a reader: gaps, late and conflicting bytes, and those that made none of a stream."""
    result = []
    for i, stage in enumerate(derivations):
        for flow, side, x in stage.lost:
            offset = _derived_offset(derivations[i + 1 :], flow, side, x.offset)
            result.append(Problem(flow, side, offset, x.length, "undecoded", x.reason, x.ts_ns, x.packet))
        stage.lost = []
    return result + [
        Problem(
            r.flow, r.side, _derived_offset(derivations, r.flow, r.side, r.offset), r.length, kind,
            "snap length" if r.snapped else reason, r.ts_ns, r.packet,
        )
        for kind, reason, ranges in (
            ("gap", "lost", gaps),
            ("conflict", "retransmitted with other bytes", assembler.conflicts()),
            ("undecoded", "late", assembler.late()),
        )
        for r in ranges
    ]  # fmt: skip


def _derived_offset(derivations: Sequence[DerivedStreams[Any]], flow: int, side: int, offset: int) -> int:
    for stage in derivations:
        offset = stage.derived_offset(flow, side, offset)
    return offset
