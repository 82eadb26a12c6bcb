"""Reads small captures together: each is framed by itself, then the messages of all become rows in one step.

In: captures of one file and one window each. Out: the rows that each has if it is read by itself. Called by:
``parallel_export``. Decoding, pairing and tables cost about 15 ms a capture, whatever its size, if it is read by
itself.

Captures share nothing. In the group each connection has a number, which stands in for its id, and the upper bits of its
ports are the number of its capture, so that no two captures have the same server. Rows get ids, ports and the name of
their capture at the end. A capture that the group could change is read by itself: see `_is_plain`.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array, file_text
from mqpcap.capture import Capture
from mqpcap.correlate import Correlation
from mqpcap.decode.frames import Frames, Problem
from mqpcap.decode.framing import ConnectionState, Framer
from mqpcap.errors import CaptureError
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.pipeline import MAX_JOINED_BYTES, CapturePipeline, Pipeline
from mqpcap.reading import Meter, Outcome, limit_notes, size_bytes, wired
from mqpcap.records import dataclass
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.output import Emit, Output
from mqpcap.tcp.flow_table import FlowTable
from mqpcap.tcp.flows import FlowColumns, Flows

MAX_CAPTURES = 256
"""Captures of a group; their number has to fit into the upper bits of a port."""
MIN_CAPTURES = 8
"""Captures of the smallest group. The halves of a group that cannot be read together are tried again."""
PORT_BITS = 16
LAST_PORT = (1 << PORT_BITS) - 1
PORTS = ("client_port", "server_port", "src_port", "dst_port")
IDS = ("connection_id", "publish_connection_id", "deliver_connection_id")


def small_groups(captures: Sequence[Capture]) -> Iterator[list[Capture]]:
    """The captures in order, small neighbours in groups."""
    group: list[Capture] = []
    room_bytes = MAX_JOINED_BYTES
    for capture in captures:
        is_small = len(capture.files) == 1 and not capture.is_pipe and capture.next_file is None
        capture_bytes = size_bytes([capture]) if is_small else room_bytes + 1
        if group and (capture_bytes > room_bytes or len(group) == MAX_CAPTURES):
            yield group
            group, room_bytes = [], MAX_JOINED_BYTES
        group.append(capture)
        room_bytes -= capture_bytes
    if group:
        yield group


@dataclass(slots=True)
class FramedCapture:
    """A capture whose messages are framed; ``flows``: its connections; ``counts``: of notes."""

    capture: Capture
    rows: CaptureRows | None
    frames: list[Frames]
    problems: list[Problem]
    states: Mapping[int, ConnectionState]
    flows: FlowColumns
    counts: Counter[str]


def framed(capture: Capture, options: Options) -> FramedCapture | None:
    """The capture up to its framed messages; None if it must be read by itself."""
    pipeline = wired(capture, options, lambda output, first_ns: None)
    stages, framer = pipeline.stages, pipeline.stages.framer
    try:
        frames = pipeline.frames()
    except CaptureError:
        return None
    if frames is None or not _is_plain(pipeline):
        return None
    flows = stages.assembler.flows.columns(stages.assembler.live)
    counts = Counter(stages.counts)
    return FramedCapture(capture, pipeline.rows, frames, framer.output.problems, framer.connections, flows, counts)


def _is_plain(pipeline: CapturePipeline) -> bool:
    """Whether the rows of a capture are the same in a group.

    No byte is missing, repeated with other bytes or in a stream inside another, nothing was cut short, no limit was
    reached, and no protocol lets connections share what other servers said. NAT shows at most one side.
    """
    stages, capture = pipeline.stages, pipeline.capture
    assembler, states = stages.assembler, stages.framer.connections
    if (
        capture.notes
        or capture.doubts
        or any(assembler.counts.values())
        or assembler.gaps()
        or assembler.unreported_count
    ):
        return False
    if any(stage.connections for stage in stages.derivations) or [*stages.server_notes()]:
        return False
    return not any(state.protocol is not None and _shares_facts(state.protocol) for state in states.values())


def _shares_facts(protocol: MessageQueue) -> bool:
    deliveries = None if protocol.rule is None else protocol.rule.deliveries
    is_shared = protocol.evidence is not None and protocol.evidence.shares_facts
    return is_shared or (deliveries is not None and deliveries.across_servers)


class GroupFlows(Flows):
    """The connections of a group of captures, by their numbers in the group."""

    def __init__(self, parts: Sequence[FlowColumns]) -> None:
        super().__init__(FlowTable())
        self.capture_index = np.repeat(np.arange(len(parts)), [*map(len, parts)])
        joined = {x.name: np.concatenate([getattr(part, x.name) for part in parts]) for x in fields(FlowColumns)}
        self.ids: Int64Array = joined["cached_id"]
        numbers = np.arange(1, len(self.ids) + 1)  # 0 stands for no id
        ports = joined["port"] + (self.capture_index << PORT_BITS)[:, np.newaxis]
        self._columns = FlowColumns(**joined | {"cached_id": numbers, "port": ports})

    def columns(self, numbers: Int64Array) -> FlowColumns:
        """Connections as columns."""
        return FlowColumns(**{x.name: getattr(self._columns, x.name)[numbers] for x in fields(FlowColumns)})


def rows_of(group: Sequence[FramedCapture], options: Options) -> list[Output] | None:
    """The rows of framed captures; None if there is a note on a capture that cannot be named.

    Ambiguous deliveries are added to the counts of the captures.
    """
    names = [part.capture.files[0] for part in group]
    flows = GroupFlows([part.flows for part in group])
    outputs: list[Output] = []
    ambiguous_ids: list[Int64Array] = []

    def set_up(_: str, correlation: Correlation) -> None:
        if correlation.deliveries is not None:
            correlation.deliveries.ambiguous_ids = ambiguous_ids

    stages = Pipeline(options, outputs.append, "", names.__getitem__, StageHooks(correlation=set_up))
    stages.assembler.flows = flows
    messages = stages.decoded_to_the_end(_joined(group, stages.framer))
    for _ in stages.finish_with(messages, np.arange(len(flows.ids))):
        pass
    if limit_notes("", stages.counts | {"ambiguous_deliveries": 0}) or [*stages.server_notes()]:
        return None
    for ids in ambiguous_ids:
        for index in flows.capture_index[ids - 1].tolist():
            group[index].counts["ambiguous_deliveries"] += 1
    texts = pa.array([file_text(name) for name in names])
    outputs = [
        replace(x, rows=_named(x.rows, flows, texts, PORTS), fields=x.fields and _named(x.fields, flows, texts, ()))
        for x in outputs
    ]
    for rows in (part.rows for part in group if part.rows is not None):
        for messages_of in (x.rows for x in outputs if x.table == "messages"):
            rows.count(messages_of["capture_file"])
        outputs.append(Output("captures", rows.table(None)))
    return outputs


def _joined(group: Sequence[FramedCapture], framer: Framer) -> list[Frames]:
    """The messages of all captures, by protocol; their connections and problems go to the framer of the group."""
    parts: dict[str, list[Frames]] = {}
    first_flow = 0
    for index, part in enumerate(group):
        framer.connections.update({first_flow + flow: state for flow, state in part.states.items()})
        framer.output.problems += [problem._replace(flow=first_flow + problem.flow) for problem in part.problems]
        for frames in part.frames:
            flow, files = frames.flow + first_flow, np.full(len(frames.flow), index)
            parts.setdefault(frames.protocol, []).append(replace(frames, flow=flow, first_file=files))
        first_flow += len(part.flows)
    return [Frames.merged(frames) for frames in parts.values()]


def _named(table: pa.Table, flows: GroupFlows, names: pa.StringArray, ports: Collection[str]) -> pa.Table:
    """Rows with the ids of their connections, the true ports, and the names of their captures."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    indexes = {name: columns[name].to_numpy() - 1 for name in IDS if name in columns}
    capture_index = flows.capture_index[next(iter(indexes.values()))].astype(np.int32)
    columns |= {name: pa.array(flows.ids[index]) for name, index in indexes.items()}
    columns |= {name: pa.array(columns[name].to_numpy() & LAST_PORT) for name in ports if name in columns}
    columns["capture"] = pa.DictionaryArray.from_arrays(pa.array(capture_index), names)
    return pa.table(columns).cast(table.schema)


def read_together(captures: Sequence[Capture], outcome: Outcome, emit: Emit, meter: Meter) -> list[Capture]:
    """Emit the rows of small captures; returns the captures that must be read by themselves."""
    if len(captures) < MIN_CAPTURES or outcome.choices.wanted is not None:
        return [*captures]
    options = outcome.choices.dissection()
    group: dict[tuple[str, ...], FramedCapture] = {}
    try:
        group = {capture.files: part for capture in captures if (part := framed(capture, options)) is not None}
        outputs = rows_of([*group.values()], options) if group else []
    except Exception:  # the capture at fault raises it again when it is read by itself, and is named
        outputs = None
    alone = [capture for capture in captures if capture.files not in group]
    if outputs is None:
        tried = [part.capture for part in group.values()]
        for half in (tried[: len(tried) // 2], tried[len(tried) // 2 :]):
            alone += read_together(half, outcome, emit, meter)
        return alone
    for output in outputs:
        emit(output)
    for files, part in group.items():
        outcome.notes += limit_notes(files[0], part.counts)
        outcome.dissected_count += 1
        meter(size_bytes([part.capture]))
    return alone
