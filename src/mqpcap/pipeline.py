"""One capture through all stages, as it is read.

The only place that knows their order: windows of packets become segments, stream chunks, frames, columns, rows, and
exchanges and deliveries. Everything a row says is decided when its message is complete, from what was captured before
it and a bounded look-ahead on its own connection; nothing waits for the end of the input. Memory stays flat: a window
is gone when the next is read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import constant, factorize, file_text
from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.correlate import Batch, Behind, Closing, Correlation
from mqpcap.decode.columns import ColumnReader, Records
from mqpcap.decode.detection import DecodeAs, ProvenServer
from mqpcap.decode.evidence import EvidenceCollector, Progress
from mqpcap.decode.frames import Frames, Problem
from mqpcap.decode.framing import Framer
from mqpcap.decode.proxy_header import REASON as PROXY_HEADER
from mqpcap.errors import CaptureError
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.connections import connections
from mqpcap.tables.messages import BatchConnections, MessageTables, RowPolicy, fields_read, fingerprints, message_rows
from mqpcap.tables.problems import problems
from mqpcap.tables.schemas import TABLES
from mqpcap.tables.unrecognised_servers import UnrecognisedServers
from mqpcap.tcp.chunks import StreamChunks, StreamRange
from mqpcap.tcp.exclusion import ConnectionTest, ExcludedConnections, selected_flows
from mqpcap.tcp.flow_records import NONE
from mqpcap.tcp.headers import Dissector, Segments
from mqpcap.tcp.reassembly import MAX_BYTES, Reassembler
from mqpcap.tcp.wrappings import unread_text

PART_MESSAGES = 1 << 16
"""Messages that are read, made into rows and paired together, as far as the bytes of those before tell."""
PART_BYTES = 4 << 20
"""Bytes of streams that are read together before the first message."""
MAX_PAIRED_BYTES = 16 << 20
"""Bytes of decoded fields, inflated ones included, that are paired together, and those of one batch more."""
FLOW_BYTES = 2048
"""What a live connection takes in all stages."""
CLOSED_SHARE = 16
"""Connections that closed leave when all that are in memory take more than one part in this of it."""
OPEN_SHARE = 2
"""The longest silent of those that did not close leave, too, when they take more than one part in this."""
MAX_PROBLEMS = 1 << 16
"""Problems of live connections that wait to be told, about 600 bytes each; gaps wait while a packet may fill them."""
DISORDER_NS = 1_000_000_000
"""Reading ends so much behind the time from which on nothing is wanted: packets may be out of order."""
RECORD_BYTES = 16
"""What a packet takes in a file beside its bytes: pcap's header of a record."""
OPTIONAL_TABLES = frozenset({"exchanges", "deliveries", "captures"})
"""Tables of which the work is not done where nobody wants them."""
_CAPS = {
    "reorder_cap": "out-of-order data passed the memory cap {} times; holes were given up early",
    "evicted_open": "{} open connections were ended to make room; what follows of them are connections of their own",
    "history_shrunk": "the history of sent bytes was shortened {} times; older retransmissions were not compared",
    "missed_deliveries": "{} deliveries may be of publishes that were forgotten to make room; they have no row",
    "hurried_deliveries": "{} deliveries did not wait for publishes that were read later; some have no row",
    "clock_contradictions": "{} replies are stamped before their requests, so these have no latency",
    "clock_difference_ns": "the clocks of two interfaces differ by {} ms or more",
}
"""Of counts that say a cap bit: what is said of it, given the count."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose about a dissection."""

    decode_as: tuple[DecodeAs, ...] = ()
    policy: RowPolicy = field(default_factory=RowPolicy)
    max_memory_bytes: int = MAX_BYTES
    servers: frozenset[ProvenServer] = frozenset()
    """Servers known from other parts of the same capture, for connections recognised by them."""
    connections: ConnectionTest | None = None
    """Which connections have rows, None for all: the others are read only for what they tell of these."""
    until: Callable[[int], int | None] | None = None
    """Given the time of the first packet, from when on no message that begins is wanted. Reading ends when all that
    began before are complete; replies to them may not have been read."""
    optional_tables: frozenset[str] = OPTIONAL_TABLES
    """Which of OPTIONAL_TABLES are made."""

    @property
    def row_policy(self) -> RowPolicy:
        """The policy of rows, with the columns that other tables are made of."""
        policy = self.policy.with_pairing_columns() if self.pairs_up else self.policy
        return policy.with_columns(("capture_file",)) if "captures" in self.optional_tables else policy

    @property
    def pairs_up(self) -> bool:
        """Whether requests and replies are brought together."""
        return not self.optional_tables.isdisjoint(("exchanges", "deliveries"))


@dataclass(frozen=True, slots=True)
class Output:
    """Rows that are final. Of ``messages`` ``fields`` has the rows of the protocol's table, row for row."""

    table: str
    rows: pa.Table
    protocol: str | None = None
    fields: pa.Table | None = None


Emit = Callable[[Output], None]


class Pipeline:
    """The stages from packets to rows, with the state of one capture on its way through them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.protocols = protocols()
        self.dissector = Dissector()
        self.assembler = Reassembler(options.max_memory_bytes)
        self.framer = Framer(self.protocols, options.decode_as, options.servers)
        self.readers: dict[str, ColumnReader] = {}
        self.counts: dict[str, int] = {}
        self._excluded = ExcludedConnections()
        self.evidence = EvidenceCollector(self.framer.connections)
        self._part_bytes = PART_BYTES
        self.span_ns = 0, 0
        """The times of the first and the last packet of the part of a window at hand."""
        self.newest_ns = 0
        """The latest time of a packet so far: later packets may be of earlier times."""
        self.read_ns = 0
        """Messages that were complete before this time are given out."""
        self._unrecognised: set[int] = set()
        self._late_since: dict[int, int] = {}

    # -- packets to frames ---------------------------------------------------------------------------------

    def messages(self, window: Window) -> Iterator[Iterator[tuple[Frames, Records]]]:
        """The messages that the packets of a window complete, by protocol, each as soon as its reading is final.

        In parts of about PART_MESSAGES: a window of tiny messages has half a million.
        """
        segments = self._dissected(window)
        for name, count in segments.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        segments = self._segments(segments)
        end_bytes = np.cumsum(segments.length)
        size_bytes = int(end_bytes[-1]) if len(end_bytes) else 0
        part_count = max(1, round(size_bytes / self._part_bytes))
        inner = np.searchsorted(end_bytes, [size_bytes * k // part_count for k in range(1, part_count)])
        for one, two in pairwise([0, *inner.tolist(), len(end_bytes)]):
            ts_ns = window.ts_ns if two == len(end_bytes) else segments.ts_ns[one:two]
            if len(ts_ns):
                self.span_ns = int(ts_ns.min()), int(ts_ns.max())
                self.newest_ns = max(self.newest_ns, self.span_ns[1])
            yield self._framed(self.assembler.feed(segments.taken(np.s_[one:two])))

    def _dissected(self, window: Window) -> Segments:
        """The segments of a window."""
        return self.dissector.segments(window)

    def _framed(self, chunks: StreamChunks) -> Iterator[tuple[Frames, Records]]:
        found, consumed, wanted = self.framer.feed(self._chunks(chunks), self.assembler.flows)
        self.assembler.retain(chunks, consumed, wanted)
        messages = sum(len(frames.start) for frames in found)
        if messages:
            # A message has a byte at least, but those that were held may come with fewer.
            self._part_bytes = max(int(chunks.length.sum()) * PART_MESSAGES // messages, PART_MESSAGES)
        self._unrecognised.update(factorize(chunks.flow)[0].tolist())
        known = self.framer.connections
        self._unrecognised = {f for f in self._unrecognised if f in known and not known[f].decided}
        self._mute(chunks.flow)
        del chunks  # not needed while rows are made, which takes memory
        yield from self._read(found)

    def _segments(self, segments: Segments) -> Segments:
        """The segments that are read."""
        if self.options.connections is None:
            return segments
        rows = self._excluded.kept_rows(segments, self.options.connections)
        return segments if len(rows) == len(segments.key) else segments.taken(rows)

    def _chunks(self, chunks: StreamChunks) -> StreamChunks:
        """The bytes that are read."""
        return chunks

    def _mute(self, flows: NDArray[np.int64]) -> None:
        """Leave connections out that are not wanted and have told what they can."""
        if self.options.connections is None or not len(flows):
            return
        numbers = np.array([f for f in np.unique(flows).tolist() if self.evidence.is_complete(f)], np.int64)
        of = self.assembler.flows.columns(numbers)
        unwanted = numbers[~selected_flows(self.options.connections, of)]
        if len(unwanted):
            self._excluded.add(self.assembler.flows.columns(unwanted))

    def last_messages(self) -> Iterator[tuple[Frames, Records]]:
        """What was still open at the end of the input."""
        found, _, _ = self.framer.feed(self._chunks(self.assembler.finish()), self.assembler.flows)
        yield from self._read([*found, *self.framer.finish(self.assembler.flows)])
        yield from self._decoded(self.evidence.flush(self._reader_of))

    def last_of(self, flows: NDArray[np.int64]) -> Iterator[tuple[Frames, Records]]:
        """What was still open of connections that are over."""
        found, _, _ = self.framer.feed(self._chunks(self.assembler.end(flows)), self.assembler.flows)
        yield from self._read([*found, *self.framer.finish(self.assembler.flows, flows.tolist())])
        yield from self._decoded(self.evidence.flush(self._reader_of, flows.tolist()))

    def behind(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) that wait for bytes, and since when (ns): from then on the other is ahead."""
        since = self.assembler.stalled_sides()
        for side, ns in self.framer.undecided.items():
            since[side] = min(ns, since.get(side, ns))
        return since

    def late(self, behind: Mapping[tuple[int, int], int]) -> dict[int, int]:
        """Connections of which messages may be read later than what others sent behind them, and since when (ns)."""
        unseen = (f for f, side in self.assembler.flows.unseen_sides() if self._may_be_client(f, side))
        late = {*self._unrecognised, *self.evidence.unresolved_since_ns(), *unseen}
        self._late_since = {flow: self._late_since.get(flow, self.span_ns[0]) for flow in late}
        since = dict(self._late_since)
        for (flow, _), ns in behind.items():
            since[flow] = min(ns, since.get(flow, ns))
        return since

    def _may_be_client(self, flow: int, side: int) -> bool:
        state = self.framer.connections.get(flow)
        return state is None or not state.decided or (state.protocol is not None and state.client == side)

    # -- frames to records ---------------------------------------------------------------------------------

    def _read(self, found: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        parts_by_protocol: dict[str, list[Frames]] = {name: [] for name in self.evidence.waiting_protocols}
        for frames in found:
            parts_by_protocol.setdefault(frames.protocol, []).append(frames)
        for name, parts in sorted(parts_by_protocol.items()):
            yield from self._decoded(self.evidence.resolved(self._reader_of(name), parts, self._progress))

    def _progress(self) -> Progress:
        """How far the capture was read, without undecided connections of ports at which nobody asks for a fact."""
        since_ns: dict[int, int] = {}
        for (flow, _), ns in self.behind().items():
            since_ns[flow] = min(ns, since_ns.get(flow, ns))
        connections, ports = self.framer.connections, list(self.evidence.asked_ports)
        undecided = [flow for flow in since_ns if flow not in connections or not connections[flow].decided]
        if undecided and ports:
            is_asked = np.isin(self.assembler.flows.columns(np.array(undecided)).port, ports).any(axis=1)
            for i in np.flatnonzero(~is_asked).tolist():
                del since_ns[undecided[i]]
        return Progress(self.newest_ns, since_ns)

    def _reader_of(self, protocol: str) -> ColumnReader:
        return self.reader(self.protocols[protocol])

    def _wanted(self, frames: Frames) -> Frames:
        """The messages that are read: all, unless a face says otherwise."""
        if self.options.connections is None:
            return frames
        flows, place = factorize(frames.flow)
        wanted = selected_flows(self.options.connections, self.assembler.flows.columns(flows))
        return frames if wanted.all() else frames.taken(np.flatnonzero(wanted[place]))

    def _decoded(self, resolved: Iterator[Frames]) -> Iterator[tuple[Frames, Records]]:
        """The messages that are read, with their columns."""
        for frames in map(self._wanted, resolved):
            if not len(frames.start):
                continue
            protocol = self.protocols[frames.protocol]
            reader, row = self.reader(protocol), 0
            frames = self.evidence.with_layouts(reader, frames)
            spans = frames.spans()
            if protocol.evidence is not None and protocol.derive is not None:
                flows, index = factorize(frames.flow)
                spans = replace(spans, connection_index=index, facts=self.evidence.facts(protocol, flows.tolist()))
            for records in reader.batches(spans, self.options.policy.bodies):
                yield frames.taken(np.s_[row : row + len(records.flaw)]), records
                row += len(records.flaw)

    def reader(self, protocol: MessageQueue) -> ColumnReader:
        """The reader of a protocol, one for all its messages."""
        if protocol.name not in self.readers:
            self.readers[protocol.name] = ColumnReader(
                protocol, fields_read(protocol, self.options.row_policy, self.options.pairs_up)
            )
        return self.readers[protocol.name]

    def waiting_flows(self) -> frozenset[int]:
        """Connections whose messages wait until more is known of them, or for packets that may be out of order."""
        return frozenset(self.evidence.unresolved_since_ns()).union(flow for flow, _ in self.assembler.stalled_sides())

    def early_messages(self, flows: Collection[int]) -> Iterator[tuple[Frames, Records]]:
        """The messages of these connections that wait, read with the evidence at that time."""
        late = sorted({flow for flow, _ in self.assembler.stalled_sides() if flow in flows})
        if late:
            yield from self._framed(self.assembler.flush_reordering(np.array(late, np.int64)))
        yield from self._decoded(self.evidence.flush(self._reader_of, flows, have_ended=False))


class Tables(Pipeline):
    """A pipeline whose rows become those of all tables; ``emit`` is given them as they are final."""

    def __init__(self, options: Options, emit: Emit, background: Background | None = None) -> None:
        super().__init__(options)
        self.emit = emit
        self.background = background or Background()
        self.correlations: dict[str, Correlation] = {}
        self._missing_at: dict[int, list[int]] = {}
        """By connection, the stream offset behind which each side holds no message, -1 for none."""
        self._servers = UnrecognisedServers()

    def __getstate__(self) -> dict[str, object]:
        left_out = ("emit", "background", "readers")
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | {"readers": {}}

    def take(self, found: Iterator[tuple[Frames, Records]], files: Sequence[str]) -> None:
        """Have the messages of a window made into rows, exchanges and deliveries, and given out."""
        for _ in self.pieces(found, files):
            pass

    def pieces(self, found: Iterator[tuple[Frames, Records]], files: Sequence[str]) -> Iterator[None]:
        """The same; pauses where the fields are so many that the messages read so far are paired."""
        batches: dict[str, list[Batch]] = {}
        size_bytes = 0
        for frames, records in found:
            if size_bytes > MAX_PAIRED_BYTES:
                # As if the window ended here; of what is in it only the begin counts as read.
                if self.options.pairs_up:
                    behind = replace(self._behind(), now_ns=self.span_ns[0])
                    self.background.submit(partial(self._correlated, batches, behind, files))
                batches, size_bytes = {}, 0
                self.read_ns = self.span_ns[0]
                yield
            size_bytes += records.table.nbytes
            protocol = self.protocols[frames.protocol]
            known = self._connections(protocol, frames)
            self.background.submit(partial(self._rows_made, protocol, frames, records, known, files, batches))
        if self.options.pairs_up:
            self.background.submit(partial(self._correlated, batches, self._behind(), files))

    def _behind(self) -> Behind:
        """How far the capture was read, server by server."""
        behind, known = self.behind(), self.framer.connections
        late = self.late(behind)
        since_ns: dict[tuple[str, int], int] = {}
        of = self.assembler.flows.columns(np.fromiter(late, np.int64))
        for side in (0, 1):
            which = np.full(len(of), side)
            ends = zip(late.items(), of.ips(which), of.ports(which).tolist(), strict=True)
            for (flow, since), *end in ends:
                if self._may_be_client(flow, 1 - side):
                    server = end[0], end[1]
                    since_ns[server] = min(since_ns.get(server, since), since)
        sides = {(f, f in known and side == known[f].client): since for (f, side), since in behind.items()}
        return Behind(sides, since_ns, self.newest_ns)

    def _rows_made(
        self,
        protocol: MessageQueue,
        frames: Frames,
        records: Records,
        known: BatchConnections,
        files: Sequence[str],
        batches: dict[str, list[Batch]],
    ) -> None:
        program = self.readers[protocol.name].program
        chunk, batch = message_rows(
            protocol, program, frames, records, known, files, self.options.row_policy, self.options.pairs_up
        )
        for name, column in self.more_columns(frames, records).items():
            chunk = replace(chunk, messages=chunk.messages.append_column(name, column))
        self.give_messages(chunk)
        if batch is not None:
            batches.setdefault(protocol.name, []).append(batch)

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """What rows of ``messages`` have beside the usual columns: nothing, unless a pipeline adds to it."""
        return {}

    def _correlated(self, batches: Mapping[str, list[Batch]], behind: Behind, files: Sequence[str]) -> None:
        """All of a window together: messages with a hole come behind others of their connection."""
        for name in {**self.correlations, **batches}:
            batch = Batch.joined(batches[name]) if name in batches else None
            self.give(self.correlation(self.protocols[name]).feed(batch, behind), files)

    def give_messages(self, chunk: MessageTables) -> None:
        """Rows of ``messages`` are final."""
        self.emit(Output("messages", chunk.messages, chunk.protocol, chunk.fields))

    def give(self, found: Iterator[tuple[str, pa.Table]], files: Sequence[str]) -> None:
        """Rows of ``exchanges`` and ``deliveries`` are final."""
        for name, rows in found:
            if name in self.options.optional_tables:
                self.emit(Output(name, with_capture(name, rows, files[0])))

    def correlation(self, protocol: MessageQueue) -> Correlation:
        """The exchanges and deliveries of a protocol in the making."""
        if protocol.name not in self.correlations:
            assert protocol.rule is not None
            made = fingerprints(self.options.policy.seeds)
            delivers = "deliveries" in self.options.optional_tables
            self.correlations[protocol.name] = Correlation(protocol.name, protocol.rule, made, delivers)
        return self.correlations[protocol.name]

    def _connections(self, protocol: MessageQueue, frames: Frames) -> BatchConnections:
        numbers, place = factorize(frames.flow)
        of = self.assembler.flows.columns(numbers)
        client = np.array([self.framer.connections[f].client for f in numbers.tolist()], np.int64)
        return BatchConnections(place, of, client, self.evidence.facts(protocol, numbers.tolist()))

    def close(self, flows: NDArray[np.int64], files: Sequence[str], of_others: bool) -> None:
        """Connections are over: what is known of them becomes rows, and they leave memory.

        ``of_others``: problems of other connections that can change no more are given out, too.
        """
        gaps = self.assembler.final_gaps(flows) if of_others else self.assembler.gaps()
        found = [*self.framer.output.problems, *not_read(self.assembler, gaps)]
        self.framer.output.problems = []
        for problem in found:
            if problem.kind != "conflict":
                self._note_missing(problem)
        blocks = list(connections(files[0], self.assembler.flows, self.framer.connections, flows))
        states = map(self.framer.connections.get, flows.tolist())
        foreign_names = [None if state is None else state.foreign_protocol for state in states]
        for block in blocks:
            self._servers.add(block, foreign_names[: block.num_rows])
            del foreign_names[: block.num_rows]
        closings = self._closings(flows) if self.options.pairs_up else []

        def made() -> None:
            for protocol, closing in closings:
                self.give(self.correlation(protocol).close(closing), files)
            for block in blocks:
                self.emit(Output("connections", block))

        self.background.submit(made)
        for table in problems(files[0], found, self.assembler.flows, self.framer.connections):
            self.background.submit(partial(self.emit, Output("problems", table)))
        self._unrecognised.difference_update(flows.tolist())
        for flow in self._missing_at.keys() & {*flows.tolist()}:
            del self._missing_at[flow]
        self.framer.forget(flows)

    def server_notes(self) -> Iterator[str]:
        """Notes on recognised servers with many unrecognised connections."""
        return self._servers.notes({rule.port for rule in self.options.decode_as})

    def _note_missing(self, problem: Problem) -> None:
        if problem.kind == "undecoded" and problem.reason in ("bad_framing", "truncated", PROXY_HEADER):
            return  # bytes at the end that are no message miss nothing, nor does a header in front of them
        state = self.framer.connections.get(problem.flow)
        if state is None:
            return
        side = int(problem.side != state.client)
        at = self._missing_at.setdefault(problem.flow, [-1, -1])
        at[side] = max(at[side], problem.offset)

    def _closings(self, flows: NDArray[np.int64]) -> list[tuple[MessageQueue, Closing]]:
        """How connections ended, by protocol."""
        by_protocol: dict[str, list[int]] = {}
        for flow in flows.tolist():
            state = self.framer.connections.get(flow)
            if state is not None and state.protocol is not None and state.protocol.rule is not None:
                by_protocol.setdefault(state.protocol.name, []).append(flow)
        return [(self.protocols[name], self._closing(np.array(some))) for name, some in by_protocol.items()]

    def _closing(self, numbers: NDArray[np.int64]) -> Closing:
        of = self.assembler.flows.columns(numbers)
        client = np.array([self.framer.connections[f].client for f in numbers.tolist()], np.int64)
        row, server = np.arange(len(numbers)), 1 - client
        fin, acked = of.fin_offset[row, client], of.acked[row, client]
        is_reset = of.rst.any(1)
        server_fin = of.fin_offset[row, server] != NONE
        covered = server_fin & (acked != NONE) & (acked >= np.where(fin == NONE, of.end_offset[row, client], fin))
        missing = np.full((len(numbers), 2), -1)
        for i in np.flatnonzero(np.isin(numbers, list(self._missing_at))).tolist():
            missing[i] = self._missing_at[int(numbers[i])]
        orderly = server_fin & (fin != NONE) & (of.fin_acked[row, server] == fin + 1) & ~is_reset
        return Closing(
            numbers, is_reset | server_fin, covered, missing[:, 0], missing[:, 1], of.last_ts_ns, orderly,
            of.extent[row, client], of.extent[row, server], fin, of.fin_offset[row, server],
        )  # fmt: skip


class CapturePipeline(Tables):
    """One capture made into tables."""

    def __init__(self, capture: Capture, options: Options, emit: Emit, background: Background | None = None) -> None:
        super().__init__(options, emit, background)
        self.capture = capture
        self.failure: CaptureError | None = None
        self.first_ns: int | None = None
        """The time of the first packet."""
        self._segments_read: Segments | None = None
        """Of the window at hand; those of the next are made on the background thread."""
        self.rows_of_captures = CaptureRows(capture) if "captures" in options.optional_tables else None

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Read the capture to its end. Raises CaptureError where nothing of it could be read."""
        for _ in self.steps(progress):
            pass

    def steps(self, progress: Callable[[int], None] | None = None) -> Iterator[None]:
        """The same window by window; a window whose messages inflate to much in pieces."""
        any_read = False
        try:
            for window, segments in self._windows():
                any_read = True
                self._segments_read = segments
                if self.first_ns is None:
                    self.first_ns = int(window.ts_ns[0])
                if self.rows_of_captures is not None:
                    self.rows_of_captures.take(window, segments.counts)
                for part in self.messages(window):
                    yield from self.pieces(part, self.capture.files)
                self._make_room()
                self.read_ns = self.span_ns[1]
                if progress is not None:
                    progress(int(window.caplen.sum()) + RECORD_BYTES * len(window.caplen))
                yield
                if self._is_enough(int(window.ts_ns.min())):
                    break
        except CaptureError as error:
            if not any_read:
                raise
            self.failure = error
        yield from self._finish()
        yield

    def _windows(self) -> Iterator[tuple[Window, Segments]]:
        """The capture's windows with their segments; those of a file that is whole are read ahead."""
        grows = self.capture.is_pipe or self.capture.next_file is not None
        windows = self.capture.windows()
        dissected = ((window, self.dissector.segments(window)) for window in windows)
        return dissected if grows else self.background.prefetch(dissected)

    def _dissected(self, window: Window) -> Segments:
        assert self._segments_read is not None
        return self._segments_read

    def _is_enough(self, now_ns: int) -> bool:
        """Whether nothing that is wanted can follow; ``now_ns``: the time of packets."""
        until_ns = None if self.options.until is None else self.options.until(self.first_ns or 0)
        return until_ns is not None and now_ns > until_ns + DISORDER_NS and not self._open_before(until_ns)

    def _open_before(self, time_ns: int) -> bool:
        """Whether a message that began before a time may still come."""
        late = {flow for (flow, _), since_ns in self.behind().items() if since_ns < time_ns}
        late |= {flow for flow, since_ns in self.evidence.unresolved_since_ns().items() if since_ns < time_ns}
        late |= {flow for flow, state in self.framer.connections.items() if not state.decided}
        if not late:
            return False
        of = self.assembler.flows.columns(np.array(sorted(late), np.int64))
        begun = of.first_ts_ns < time_ns
        if self.options.connections is not None:
            begun &= selected_flows(self.options.connections, of)
        return bool(begun.any())

    def give_messages(self, chunk: MessageTables) -> None:
        """Count the messages of each file, too."""
        if self.rows_of_captures is not None:
            self.rows_of_captures.count(chunk.messages["capture_file"])
        super().give_messages(chunk)

    def _make_room(self) -> None:
        """Let connections go that are over, or have to be, so that those in memory are no more than fit.

        Problems go where they are too many.
        """
        room = self.options.max_memory_bytes // FLOW_BYTES
        over = self.assembler.eviction_candidates(room // CLOSED_SHARE, room // OPEN_SHARE)
        if len(over):
            self.take(self.last_of(over), self.capture.files)
        elif self.assembler.unreported_count + len(self.framer.output.problems) < MAX_PROBLEMS:
            return
        self.close(over, self.capture.files, of_others=True)
        self.assembler.forget(over)

    def _finish(self) -> Iterator[None]:
        lost_fragments = self.dissector.finish()
        for name, count in lost_fragments.items():
            self.counts[name] = self.counts.get(name, 0) + count
        if self.rows_of_captures is not None:
            self.rows_of_captures.count_lost(lost_fragments)
        yield from self.pieces(self.last_messages(), self.capture.files)
        self.close(self.assembler.live, self.capture.files, of_others=False)
        self.background.wait()
        for correlation in self.correlations.values():
            self.give(correlation.finish(), self.capture.files)
        self.counts.update({k: v for k, v in self.assembler.counts.items() if v})
        for correlation in self.correlations.values():
            for name, count in correlation.counts.items():
                total = self.counts.get(name, 0)
                self.counts[name] = max(total, count) if name == "clock_difference_ns" else total + count
        if self.rows_of_captures is not None:
            table = self.rows_of_captures.table(self.failure)
            if table.num_rows:
                self.emit(Output("captures", table))


class NamedTables:
    """What has tables by name has the common ones as attributes, too."""

    def table(self, name: str) -> pa.Table:
        """A table by its name."""
        raise NotImplementedError

    @property
    def messages(self) -> pa.Table:
        """One row per message of any protocol."""
        return self.table("messages")

    @property
    def exchanges(self) -> pa.Table:
        """One row per request, and per reply without one."""
        return self.table("exchanges")

    @property
    def deliveries(self) -> pa.Table:
        """One row per delivery whose publish was found."""
        return self.table("deliveries")

    @property
    def connections(self) -> pa.Table:
        """One row per TCP connection."""
        return self.table("connections")

    @property
    def problems(self) -> pa.Table:
        """One row per stretch of stream that became no message."""
        return self.table("problems")

    @property
    def captures(self) -> pa.Table:
        """One row per file."""
        return self.table("captures")


@dataclass(slots=True)
class Dissection(NamedTables):
    """A dissected capture in memory: every table, and what was met on the way that no row tells.

    counts: packets that are no TCP, memory caps that bit. failure: why the rest of the capture could not be read.
    """

    capture: Capture
    counts: dict[str, int] = field(default_factory=dict)
    failure: CaptureError | None = None
    chunks: list[MessageTables] = field(default_factory=list)
    _tables: dict[str, list[pa.Table]] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """A table that is not a protocol's, whole."""
        if name == "messages":
            parts = [chunk.messages for chunk in self.chunks]
        else:
            parts = self._tables.get(name, [])
        return pa.concat_tables([TABLES[name].empty_table(), *parts])

    def take(self, output: Output) -> None:
        """Take rows in."""
        if output.fields is not None and output.protocol is not None:
            self.chunks.append(MessageTables(output.protocol, output.rows, output.fields))
        else:
            self._tables.setdefault(output.table, []).append(output.rows)


def dissect(
    capture: Capture, options: Options | None = None, progress: Callable[[int], None] | None = None
) -> Dissection:
    """A capture's tables, all in memory.

    ``progress`` is told how many bytes of capture were read since it was last called. Raises CaptureError if a file is
    gone or a pipe was read already, so that nothing could be read; whatever the bytes are, they are a result.
    """
    made = Dissection(capture)
    run = CapturePipeline(capture, options or Options(), made.take)
    run.run(progress)
    made.counts, made.failure = run.counts, run.failure
    return made


def caps(name: str, counts: Mapping[str, int]) -> list[str]:
    """Notes on a capture: what was lost on the way to a bound, and packets that were not read."""
    notes = [words.format(f"{n / 1e6:.3f}" if key.endswith("_ns") else n) for key, words in _CAPS.items()
             if (n := counts.get(key, 0))]  # fmt: skip
    return [f"{name}: {note}" for note in (*notes, unread_text(counts)) if note]


def with_capture(table: str, rows: pa.Table, capture: str) -> pa.Table:
    """Rows of a table with the name of their capture, and the columns in their order."""
    schema, whole = TABLES[table], rows.append_column("capture", constant(file_text(capture), rows.num_rows))
    return pa.table({name: whole[name] for name in schema.names}).cast(schema)


def not_read(assembler: Reassembler, gaps: list[StreamRange]) -> list[Problem]:
    """What never came to a reader: these gaps, and what was late or in conflict since connections were forgotten."""
    found = _problems(gaps, "gap", "lost")
    found += _problems(assembler.conflicts(), "conflict", "retransmitted with other bytes")
    return found + _problems(assembler.late(), "undecoded", "late")


def _problems(ranges: list[StreamRange], kind: str, reason: str) -> list[Problem]:
    return [
        Problem(r.flow, r.side, r.offset, r.length, kind, "snap length" if r.snapped else reason, r.ts_ns, r.packet)
        for r in ranges
    ]
