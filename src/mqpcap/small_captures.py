"""Reads small captures together: a pipeline for all their packets.

In: captures of one file and one window each. Out: the rows that each has if it is read by itself. Called by:
``parallel_export``, ``delta`` and Spark's tasks. A pipeline costs about 20 ms a capture, whatever its size, if each
has its own.

Captures share nothing. While packets become messages, the upper bits of their addresses are the number of their
capture. From then on each connection has a number, which stands in for its id, and the upper bits of its ports are the
number of its capture, so that no two captures have the same server. Rows get ids, ports and the name of their capture
at the end. A capture that the group could change is read by itself: see `packets_of` and `_odd_flows`.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array, file_text
from mqpcap.capture import Capture, Window
from mqpcap.correlate import Correlation
from mqpcap.decode.frames import Frames
from mqpcap.decode.framing import Framer
from mqpcap.errors import CaptureError
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.pipeline import MAX_JOINED_BYTES, Pipeline, one_window, without_room
from mqpcap.reading import limit_notes, size_bytes
from mqpcap.records import dataclass
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.output import Emit, Output
from mqpcap.tcp.flags import ACK, SYN
from mqpcap.tcp.flow_table import FlowTable
from mqpcap.tcp.flows import FlowColumns, Flows
from mqpcap.tcp.headers import Dissector, Segments, endpoint_pairs, keys_of

MAX_CAPTURES = 256
"""Captures of a group; their number has to fit into the upper bits of a port."""
MIN_CAPTURES = 8
"""Captures of the smallest group. The halves of a group that cannot be read together are tried again."""
PORT_BITS = 16
LAST_PORT = (1 << PORT_BITS) - 1
PORTS = ("client_port", "server_port", "src_port", "dst_port")
ADDRESS_BITS = 40
IDS = ("connection_id", "publish_connection_id", "deliver_connection_id")


def small_groups(
    captures: Sequence[Capture], size_of: Callable[[Capture], int] = lambda capture: size_bytes([capture])
) -> Iterator[list[Capture]]:
    """The captures in order, small neighbours in groups."""
    group: list[Capture] = []
    room_bytes = MAX_JOINED_BYTES
    for capture in captures:
        is_small = len(capture.files) == 1 and not capture.is_pipe and capture.next_file is None
        capture_bytes = size_of(capture) if is_small else room_bytes + 1
        if group and (capture_bytes > room_bytes or len(group) == MAX_CAPTURES):
            yield group
            group, room_bytes = [], MAX_JOINED_BYTES
        group.append(capture)
        room_bytes -= capture_bytes
    if group:
        yield group


@dataclass(slots=True)
class SmallCapture:
    """The packets of a capture; ``rows``: of ``captures``; ``counts``: of notes."""

    capture: Capture
    rows: CaptureRows
    window: Window
    segments: Segments
    counts: Counter[str]

    def notes(self) -> list[str]:
        """Notes on limits, and on packets that were not read."""
        return limit_notes(self.capture.files[0], self.counts)


def packets_of(capture: Capture, options: Options) -> SmallCapture | None:
    """The packets of a capture; None if it must be read by itself."""
    dissector, rows = Dissector(options.decode_as), CaptureRows(capture)
    try:
        windows = [*islice(capture.windows(), 2)]
    except CaptureError:
        return None
    if len(windows) != 1 or windows[0].size_bytes > MAX_JOINED_BYTES or capture.notes or capture.doubts:
        return None
    window, segments = windows[0], dissector.segments(windows[0])
    if window.secrets or segments.buffer is not window.buffer or _may_have_both_sides_of_nat(segments):
        return None
    rows.take(window, segments.counts)
    lost = dissector.finish()
    rows.count_lost(lost)
    counts = Counter(segments.counts) + Counter(lost)
    return SmallCapture(capture, rows, *without_room(window, segments), counts)


def _may_have_both_sides_of_nat(segments: Segments) -> bool:
    """Whether two connections have the same numbers in their SYN-ACKs."""
    rows = np.flatnonzero(segments.flags & (SYN | ACK) == SYN | ACK)
    if len(rows) < 2:
        return False
    answers = np.unique(np.column_stack([x[rows] for x in (segments.seq, segments.ack, segments.key)]), axis=0)
    return bool((answers[1:, :2] == answers[:-1, :2]).all(axis=1).any())


@dataclass(slots=True)
class FramedGroup:
    """Captures whose messages are framed: their connections, by number, and the capture of each.

    ``odd``: those that must be read by themselves.
    """

    parts: Sequence[SmallCapture]
    frames: list[Frames]
    framer: Framer
    flows: FlowColumns
    capture_index: Int64Array
    odd: set[int]


def framed(parts: Sequence[SmallCapture], options: Options, ends: bool) -> FramedGroup | None:
    """The captures up to their framed messages; None if a limit was reached: in which capture is not known."""
    window, segments, index = _numbered(parts)
    stages = Pipeline(options, lambda output: None)
    frames = [x for step in stages.frames(window, segments) for x in step]
    assembler = stages.assembler
    frames += stages.last_frames(assembler.finish(), None) if ends else []
    keys, rows, inverse = np.unique(segments.key, return_index=True, return_inverse=True)
    has_collision = bool((index[rows][inverse] != index).any())
    if has_collision or any(assembler.counts.values()) or [*stages.server_notes()]:
        return None
    flow_keys, _ = assembler.flows.anchors(assembler.live)
    capture_index = index[rows[np.searchsorted(keys, flow_keys)]]
    odd = {*capture_index[_odd_flows(stages)].tolist()}
    columns = assembler.flows.columns(assembler.live)
    hi, no_id = columns.hi ^ _mark(capture_index)[:, np.newaxis], np.zeros_like(columns.cached_id)
    flows = replace(columns, hi=hi, cached_id=no_id)
    return FramedGroup(parts, frames, stages.framer, flows, capture_index, odd)


def _mark(capture_index: Int64Array) -> Int64Array:
    """What distinguishes the addresses of captures, to be combined with the upper half of each by exclusive or."""
    return capture_index << ADDRESS_BITS


def _numbered(parts: Sequence[SmallCapture]) -> tuple[Window, Segments, Int64Array]:
    """The packets of all captures as one window, with addresses of their own; and the capture of each segment."""
    window, segments = one_window([(part.window, part.segments) for part in parts])
    index = np.repeat(np.arange(len(parts)), [len(part.segments.key) for part in parts])
    ends = {name: getattr(segments, name) ^ _mark(index) for name in ("src_hi", "dst_hi")}
    segments = replace(segments, **ends, file=index.astype(np.int32), counts={})
    return window, replace(segments, key=keys_of(endpoint_pairs(segments))), index


def _odd_flows(stages: Pipeline) -> list[int]:
    """Connections whose rows may depend on another connection, or with bytes that are missing, changed or in TLS."""
    assembler, states = stages.assembler, stages.framer.connections
    ranges = (*assembler.gaps(), *assembler.conflicts(), *assembler.late())
    derived = (stage.connections for stage in stages.derivations)
    odd = {x.flow for x in ranges}.union(stages.opener.facts(assembler.live), *derived)
    odd.update(flow for flow, _ in stages.progress.stalled_sides())  # their rows are held back while it may go on
    for number, state in states.items():
        if state.identified_by == "peer" or (state.protocol is not None and _shares_facts(state.protocol)):
            odd.add(number)
    return [*odd]


def _shares_facts(protocol: MessageQueue) -> bool:
    deliveries = None if protocol.rule is None else protocol.rule.deliveries
    is_shared = protocol.evidence is not None and protocol.evidence.shares_facts
    return is_shared or (deliveries is not None and deliveries.across_servers)


class GroupFlows(Flows):
    """The connections of a group of captures, by their numbers in the group."""

    def __init__(self, group: FramedGroup) -> None:
        super().__init__(FlowTable())
        self.capture_index, self.ids = group.capture_index, group.flows.connection_ids()
        numbers = np.arange(1, len(self.ids) + 1)  # 0 stands for no id
        ports = group.flows.port + (self.capture_index << PORT_BITS)[:, np.newaxis]
        self._columns = replace(group.flows, cached_id=numbers, port=ports)

    def columns(self, numbers: Int64Array) -> FlowColumns:
        """Connections as columns."""
        return FlowColumns(**{x.name: getattr(self._columns, x.name)[numbers] for x in fields(FlowColumns)})


def rows_of(group: FramedGroup, options: Options, ends: bool) -> list[Output] | None:
    """The rows of framed captures; None if there is a note on a capture that cannot be named.

    Ambiguous deliveries are added to the counts of the captures.
    """
    names = [part.capture.files[0] for part in group.parts]
    flows = GroupFlows(group)
    outputs: list[Output] = []
    ambiguous_ids: list[Int64Array] = []

    def set_up(_: str, correlation: Correlation) -> None:
        if correlation.deliveries is not None:
            correlation.deliveries.ambiguous_ids = ambiguous_ids

    stages = Pipeline(options, outputs.append, "", names.__getitem__, StageHooks(correlation=set_up))
    stages.assembler.flows = flows
    stages.framer.connections.update(group.framer.connections)
    stages.framer.output.problems += group.framer.output.problems
    stages.framer.output.foreign += group.framer.output.foreign
    by_protocol: dict[str, list[Frames]] = {}
    for frames in group.frames:
        by_protocol.setdefault(frames.protocol, []).append(frames)
    merged = [Frames.merged(x) for x in by_protocol.values()]
    deque(
        stages.finish_with(stages.decoded_to_the_end(merged), np.arange(len(flows.ids)))
        if ends
        else stages.rows(merged)
    )
    if limit_notes("", stages.counts | {"ambiguous_deliveries": 0}) or [*stages.server_notes()]:
        return None
    for ids in ambiguous_ids:
        for index in flows.capture_index[ids - 1].tolist():
            group.parts[index].counts["ambiguous_deliveries"] += 1
    texts = pa.array([file_text(name) for name in names])
    outputs = [
        replace(x, rows=_named(x.rows, flows, texts, PORTS), fields=x.fields and _named(x.fields, flows, texts, ()))
        for x in outputs
    ]
    messages = [x.rows["capture_file"] for x in outputs if x.table == "messages"]
    for part in group.parts:
        for files in messages:
            part.rows.count(files)
        if "captures" in options.optional_tables:
            outputs.append(Output("captures", part.rows.table(None)))
    return outputs


def _named(table: pa.Table, flows: GroupFlows, names: pa.StringArray, ports: Collection[str]) -> pa.Table:
    """Rows with the ids of their connections, the true ports, and the names of their captures."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    indexes = {name: columns[name].to_numpy() - 1 for name in IDS if name in columns}
    capture_index = flows.capture_index[next(iter(indexes.values()))].astype(np.int32)
    columns |= {name: pa.array(flows.ids[index]) for name, index in indexes.items()}
    columns |= {name: pa.array(columns[name].to_numpy() & LAST_PORT) for name in ports if name in columns}
    columns["capture"] = pa.DictionaryArray.from_arrays(pa.array(capture_index), names)
    return pa.table(columns).cast(table.schema)


def _together(
    parts: Sequence[SmallCapture], options: Options, ends: bool
) -> tuple[Sequence[SmallCapture], list[Output] | None]:
    """The captures that can be read together, and their rows; None if a limit was reached."""
    while parts:
        group = framed(parts, options, ends)
        if group is None or not group.odd:
            return parts, None if group is None else rows_of(group, options, ends)
        parts = [part for number, part in enumerate(parts) if number not in group.odd]
    return (), []


def read_together(
    captures: Sequence[Capture], options: Options, emit: Emit, note: Callable[[SmallCapture], None], ends: bool = True
) -> list[Capture]:
    """Emit the rows of small captures; returns the captures that must be read by themselves.

    ``note`` is called with each capture whose rows were emitted. Without ``ends`` each capture may go on: only those
    rows are emitted that a pipeline emits which saw no time pass.
    """
    if len(captures) < MIN_CAPTURES:
        return [*captures]
    group: Sequence[SmallCapture] = ()
    outputs: list[Output] | None = None
    try:
        group = [part for capture in captures if (part := packets_of(capture, options)) is not None]
        group, outputs = _together(group, options, ends)
    except Exception:  # the capture at fault raises it again when it is read by itself, and is named
        outputs = None
    tried = [part.capture for part in group]
    names = {capture.files for capture in tried}
    alone = [capture for capture in captures if capture.files not in names]
    if outputs is None:
        for half in (tried[: len(tried) // 2], tried[len(tried) // 2 :]):
            alone += read_together(half, options, emit, note, ends)
        return alone
    for output in outputs:
        emit(output)
    for part in group:
        note(part)
    return alone
