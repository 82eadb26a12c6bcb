"""Stretches of stream that became no message to rows of the table ``problems``.

``decode.side`` finds captured bytes that are not a message, `undelivered_ranges` bytes that never reached it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array, factorize, file_text
from mqpcap.decode.frames import FOREIGN_COLUMNS, Problem
from mqpcap.decode.framing import ConnectionState
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.tables.schemas import PROBLEMS
from mqpcap.tcp.chunks import StreamRange
from mqpcap.tcp.derived_streams import DerivedStreams
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.reassembly import Reassembler

_NUMBERS = FOREIGN_COLUMNS[:-1]
BLOCK_ROWS = 1 << 14
"""Rows that are made at a time: a retransmission with other bytes alone may have dozens."""


def problems(
    capture: str, stretches: Sequence[Problem], foreign: Int64Array, flows: Flows, states: Mapping[int, ConnectionState]
) -> Iterator[pa.Table]:
    """The rows, in order of time, in blocks; ``foreign``: rows of FOREIGN_COLUMNS."""
    numbers = np.array([(*p[:4], *p[6:]) for p in stretches], np.int64).reshape(-1, len(_NUMBERS))
    numbers = np.concatenate([numbers, foreign[:, : len(_NUMBERS)]])
    kinds = pa.array([*(p.kind for p in stretches), *["undecoded"] * len(foreign)], pa.string())
    reasons = pa.array([*(p.reason for p in stretches)], pa.string())
    reasons = pa.concat_arrays([reasons, pa.array(["foreign", "tls"]).take(pa.array(foreign[:, -1]))])
    columns = dict(zip(_NUMBERS, numbers.T, strict=True))
    kind_ranks = pc.rank(kinds, tiebreaker="dense").to_numpy()
    order = np.lexsort((kind_ranks, *(columns[name] for name in ("offset", "side", "flow", "ts_ns"))))
    for start in range(0, len(order), BLOCK_ROWS):
        rows = order[start : start + BLOCK_ROWS]
        block = {name: column[rows] for name, column in columns.items()}
        yield _block(capture, block, kinds.take(pa.array(rows)), reasons.take(pa.array(rows)), flows, states)


def _block(
    capture: str,
    numbers: Mapping[str, Int64Array],
    kinds: pa.Array,
    reasons: pa.Array,
    flows: Flows,
    states: Mapping[int, ConnectionState],
) -> pa.Table:
    side = numbers["side"]
    flow, place = factorize(numbers["flow"])
    connection_states = [states.get(number) for number in flow.tolist()]
    client = np.array([state.client if state else 0 for state in connection_states], np.int64)[place]
    names = pa.array(
        [state.protocol.name if state and state.protocol else None for state in connection_states], pa.string()
    )
    flow_columns = flows.columns(flow)
    both = np.repeat(np.arange(2), len(flow)).reshape(2, -1)
    ips = [pa.array(flow_columns.ips(ends), pa.string()) for ends in both]
    sender = [np.where(side == 0, 0, 1), np.where(side == 0, 1, 0)]
    rows = pa.array(place)
    ip = [ips[0].take(rows), ips[1].take(rows)]
    first_is_a = pa.array(side == 0)
    columns = {
        "capture": pa.array([file_text(capture)] * len(side), pa.string()),
        "connection_id": pa.array(flow_columns.connection_ids()[place]),
        "direction": pa.array(DIRECTIONS, pa.string()).take(pa.array((side != client).astype(np.int8))),
        "stream_offset": numbers["offset"],
        "length": numbers["length"],
        "kind": kinds,
        "reason": reasons,
        "protocol": names.take(rows),
        "ts": pa.array(numbers["ts_ns"] // 1000).cast(PROBLEMS.field("ts").type),
        "src_ip": pc.if_else(first_is_a, ip[0], ip[1]),
        "src_port": pa.array(flow_columns.port[place, sender[0]].astype(np.int32)),
        "dst_ip": pc.if_else(first_is_a, ip[1], ip[0]),
        "dst_port": pa.array(flow_columns.port[place, sender[1]].astype(np.int32)),
        "first_packet": numbers["first_packet"],
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
