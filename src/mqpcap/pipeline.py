"""Runs one capture through all stages: windows of packets in, table rows out.

In: the windows of a `Capture`. Out: `Output` batches, passed to the caller's ``emit`` as soon as they are final.
Called by: the commands, ``recording``, ``scapy.session``, the Spark tasks. They select and observe with `StageHooks`.

Order of stages: `Dissector` (headers), `Reassembler` (byte streams), `Opener` (TLS), `WebSockets`, `Framer` (message
spans), `EvidenceCollector` (dialects), `ColumnReader` (fields), ``message_rows`` (tables), `Correlation` (exchanges,
deliveries).

The packets of a window are read in *parts* of about PART_MESSAGES. The messages of a part are paired in *steps* of
about MAX_PAIRED_BYTES; between steps the caller may do other work.

The hard part is to finish early, so that memory stays flat. A message row is final when the message is complete, unless
the connection's dialect or login is still unknown; then it waits for later messages, within MAX_UNRESOLVED_*. An
exchange is final when its state is certain, at the latest when its connection ends.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mqpcap.arrays import Int64Array, append_columns, factorize
from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.correlate import Batch
from mqpcap.correlate.closings import Closings
from mqpcap.correlate.progress import ReadingProgress
from mqpcap.decode.columns import Records
from mqpcap.decode.decoded_messages import AFTER_ALL, MessageDecoder
from mqpcap.decode.evidence import EvidenceCollector
from mqpcap.decode.frames import Decoded, Frames, TimeKey
from mqpcap.decode.framing import Framer
from mqpcap.errors import CaptureError
from mqpcap.hooks import SegmentFilter, StageHooks
from mqpcap.options import OPTIONAL_TABLES, Options
from mqpcap.protocols import protocols
from mqpcap.schema.flaws import Flaw
from mqpcap.selection import StageSelection
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.connections import ConnectionRows, EndedConnections
from mqpcap.tables.messages import BatchConnections, fields_read, message_rows
from mqpcap.tables.output import Emit, Output, carried_columns
from mqpcap.tables.pairing import Pairing
from mqpcap.tables.problems import problems, undelivered_ranges
from mqpcap.tcp.chunks import StreamChunks, StreamRange
from mqpcap.tcp.derived_streams import DerivedStreams
from mqpcap.tcp.headers import Dissector, Segments
from mqpcap.tcp.reassembly import Reassembler
from mqpcap.tcp.relatives import Relatives
from mqpcap.tls import KeyLog, Opener
from mqpcap.websocket import WebSockets

__all__ = ["OPTIONAL_TABLES", "CapturePipeline", "Options", "Pipeline"]

PART_MESSAGES = 1 << 16
"""Messages of a part, estimated from the size of earlier messages. A window with more is split."""
PART_BYTES = 4 << 20
"""Bytes of streams in a part before the size of messages is known."""
MAX_PAIRED_BYTES = 8 << 20
"""Bytes of decoded fields (inflated bodies included) that are paired in one step; one batch may pass the limit."""
FLOW_BYTES = 640
"""Memory of a connection in the flow table: its record, those of its sides, its place in the index."""
FRAMED_BYTES = 1536
"""Memory of a connection with payload besides."""
PAIRED_BYTES = 3072
"""Memory of a connection of a supported protocol besides: evidence, open requests."""
QUEUE_BYTES = 1792
"""Memory of a side that waits for a hole, besides its segments."""
DERIVED_BYTES = 6656
"""Memory of a connection in TLS or WebSocket besides."""
PACKET_BYTES = 4096
"""Memory that a packet may take until connections are evicted: a part has at most a packet for each of it."""
CLOSED_DIVISOR = 16
"""Closed connections are evicted if all connections take more than this part of the memory."""
OPEN_DIVISOR = 2
"""The longest idle open connections are evicted, too, if all connections take more than this part."""
MAX_PROBLEMS = 1 << 16
"""Problems of live connections that are buffered, about 600 bytes each; beyond it final problems are emitted."""
FLUSH_INTERVAL_NS = 50_000_000
"""Interval of flushes in a live capture, by our own clock: an unresolved message waits two intervals at most."""
MAX_JOINED_BYTES = 1 << 20
"""Bytes of small files that are read as one window: each window has a cost of its own, about 10 ms."""
MAX_DISORDER_NS = 1_000_000_000
"""Reading stops this long after the end of the selected time range, as packets may be out of order."""


class Pipeline:
    """The stages from windows to rows, with the state of one capture on its way through them.

    ``feed`` takes windows, ``end`` and ``evict`` end connections, ``finish`` ends the capture. ``file_name`` maps the
    index of a file to its name.
    """

    def __init__(
        self,
        options: Options,
        emit: Emit,
        capture: str = "",
        file_name: Callable[[int], str] = str,
        hooks: StageHooks | None = None,
        background: Background | None = None,
    ) -> None:
        self.options, self.emit, self.hooks = options, emit, hooks or StageHooks()
        self.capture, self.file_name = capture, file_name
        self.background = background or Background()
        self.protocols = protocols()
        self.dissector = Dissector(options.decode_as)
        self.assembler = Reassembler(options.max_memory_bytes)
        self._relatives = Relatives()
        self.opener = Opener(options.keys)
        self.derivations: Sequence[DerivedStreams[Any]] = (self.opener, WebSockets())
        """Stages that make streams of streams, in order."""
        self.framer = Framer(self.protocols, options.decode_as, options.servers)
        self.evidence = EvidenceCollector(self.framer.connections)
        policy, pairs = options.row_policy, options.pairs_requests
        fields = {name: fields_read(protocol, policy, pairs) for name, protocol in self.protocols.items()}
        self.decoder = MessageDecoder(self.protocols, fields, policy.bodies, self.evidence)
        self.pairing = Pairing(
            capture, self.protocols, policy, options.optional_tables, self.framer.proxied, self.hooks.correlation,
            options.carried_by_deliveries,
        )  # fmt: skip
        self.counts: dict[str, int] = {}
        """Packets that are not TCP, and limits that were reached."""
        self.span_ns = 0, 0
        """The earliest and the latest time of the packets of the current part."""
        self.newest_ns = 0
        """The latest time of all packets read; packets may be out of order."""
        self.read_ns = 0
        """All messages that were complete before this time have been emitted."""
        self._selection = StageSelection(options, self.hooks, self.assembler, self.evidence)
        self.progress = ReadingProgress(self.assembler, self.derivations, self.framer, self.evidence)
        self._closings = Closings(self.framer.connections)
        self._connection_rows = ConnectionRows(capture)
        self._part_bytes = PART_BYTES
        self._flushed_ns = 0
        self._waited = frozenset[int]()
        """Connections that had unresolved messages at the flush before."""

    def __getstate__(self) -> dict[str, object]:
        """The state between two windows, without callbacks, thread and keys: the caller sets them again."""
        left_out = ("background", "emit", "file_name")
        replaced = {"hooks": StageHooks(), "options": replace(self.options, keys=None)}
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | replaced

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, background=Background())

    def use_keys(self, keys: KeyLog | None) -> None:
        """Open TLS with these keys, after the state was loaded."""
        self.options = replace(self.options, keys=keys)
        self.opener.use_keys(keys)

    # -- windows -------------------------------------------------------------------------------------------

    def feed(self, window: Window, segments: Segments | None = None) -> None:
        """Read the packets of a window, and emit the rows that become final."""
        for _ in self.steps(window, segments):
            pass

    def steps(self, window: Window, segments: Segments | None = None) -> Iterator[None]:
        """``feed`` in steps; pauses after each.

        ``segments``: the segments of the window, if they are dissected already.
        """
        for parts in self.frames(window, segments):
            yield from self.rows(parts)

    def rows(self, parts: Sequence[Frames]) -> Iterator[None]:
        """Emit the rows that become final with framed messages; pauses as ``steps`` does."""
        yield from self._emit_rows(self._decoded(parts))

    def frames(self, window: Window, segments: Segments | None = None) -> Iterator[list[Frames]]:
        """The messages that the packets of a window complete, framed, part by part."""
        for received in self.streams(window, segments):
            yield self._framed(received)
        self.read_ns = self.span_ns[1]

    def streams(
        self, window: Window, segments: Segments | None = None, is_wanted: SegmentFilter | None = None
    ) -> Iterator[StreamChunks]:
        """The new bytes of streams in a window, part by part; of connections that are wanted, None for all."""
        segments = self.dissector.segments(window) if segments is None else segments
        for lines in window.secrets:
            self.opener.add_secrets(lines)
        self._add_counts(segments.counts)
        segments = self._selection.segments(window, segments)
        for rows in segments.parts(self._part_bytes, max(self.options.max_memory_bytes // PACKET_BYTES, 1)):
            # The last part has the time of all packets of the window: those that are not TCP show time passing, too.
            ts_ns = window.ts_ns if rows.stop == len(segments.ts_ns) else segments.ts_ns[rows]
            if len(ts_ns):
                self.span_ns = int(ts_ns.min()), int(ts_ns.max())
                self.newest_ns = max(self.newest_ns, self.span_ns[1])
            part = self._relatives.moved(segments.taken(rows))
            received = self.assembler.feed(part if is_wanted is None else part.taken(np.flatnonzero(is_wanted(part))))
            self._relatives.resolve(self.assembler)
            yield received

    def _framed(self, received: StreamChunks) -> list[Frames]:
        """The messages in the new bytes of streams; unconsumed bytes go back to the reassembler."""
        chunks = self.derived(received)
        frames, consumed, wanted = self.framer.feed(chunks, self.assembler.flows)
        for stage in reversed(self.derivations):
            consumed, wanted = stage.retain(consumed, wanted)
        self.assembler.retain(received, consumed, wanted)
        message_count = sum(len(part.start) for part in frames)
        if message_count:
            # At least a byte for each message: the bytes of messages that were buffered are not in these chunks.
            self._part_bytes = max(int(chunks.length.sum()) * PART_MESSAGES // message_count, PART_MESSAGES)
        self.progress.note_flows(factorize(chunks.flow)[0].tolist())
        self._selection.exclude(chunks.flow)
        return frames

    def derived(self, chunks: StreamChunks, ending: Collection[int] | None = ()) -> StreamChunks:
        """The chunks for the framer; ``ending``: connections that end now, None for all."""
        for stage in self.derivations:
            chunks = stage.feed(chunks, ending)
        if self.hooks.chunks is not None:
            self.hooks.chunks(chunks)
        return chunks

    def _decoded(self, parts: Sequence[Frames]) -> Iterator[Decoded]:
        """The columns of framed messages whose reading is final."""
        parts = self._selection.of_protocols(parts)
        return self.decoder.decode(parts, self._selection.frames, partial(self.progress.for_evidence, self.newest_ns))

    # -- rows ----------------------------------------------------------------------------------------------

    def _emit_rows(self, messages: Iterator[Decoded]) -> Iterator[None]:
        """Make rows of messages and pair them, in steps; pauses between two steps."""
        batches: dict[str, list[Batch]] = {}
        size_bytes = 0
        next_key = "", AFTER_ALL
        for decoded in messages:
            if size_bytes > MAX_PAIRED_BYTES:
                # More messages of this part follow, from next_key on. Until they are decoded only the earliest packet
                # of the part counts as read.
                batches = self._pair(batches, self.span_ns[0], next_key)
                size_bytes = 0
                self.read_ns = self.span_ns[0]
                yield
            frames, records = decoded.frames, decoded.records
            size_bytes += records.table.nbytes
            next_key = frames.protocol, decoded.next_key
            connections = self._batch_connections(frames)
            self.background.submit(partial(self._make_rows, frames, records, connections, batches))
        self._pair(batches, self.newest_ns)

    def _batch_connections(self, frames: Frames) -> BatchConnections:
        flows, index = factorize(frames.flow)
        client = np.array([self.framer.connections[flow].client for flow in flows.tolist()], np.int64)
        facts, places = self.evidence.facts(self.protocols[frames.protocol], flows.tolist())
        missing_ns = self.assembler.gap_times.shown_ns(
            frames.flow * 2 + frames.side, frames.offset, frames.gap_before, frames.flaw == Flaw.TRUNCATED
        )
        return BatchConnections(index, self.assembler.flows.columns(flows), client, facts, places, missing_ns)

    def _make_rows(
        self, frames: Frames, records: Records, connections: BatchConnections, batches: dict[str, list[Batch]]
    ) -> None:
        """Emit the rows of a batch of messages; adds the batch to those that are paired together."""
        protocol, program = self.protocols[frames.protocol], self.decoder.reader(frames.protocol).program
        policy, pairs_requests = self.options.row_policy, self.options.pairs_requests
        tables, batch = message_rows(
            protocol, program, frames, records, connections, self.capture, self.file_name, policy, pairs_requests
        )
        rows = tables.messages
        for make_columns in self.hooks.message_columns:
            rows = append_columns(rows, make_columns(program, frames, records))
        output = Output("messages", rows, protocol.name, tables.fields)
        self.emit(output)
        if batch is not None:
            carried = carried_columns(output, protocol, self.options.carried_by_pairs)
            batch = replace(batch, table=append_columns(batch.table, carried)) if carried else batch
            batches.setdefault(protocol.name, []).append(batch)

    def _pair(
        self, batches: dict[str, list[Batch]], now_ns: int, next_key: tuple[str, TimeKey] = ("", AFTER_ALL)
    ) -> dict[str, list[Batch]]:
        """Pair the messages of a step; returns those from ``next_key`` on, which are paired in the next step.

        now_ns: the time of the newest packet that counts as read. next_key: see `Pairing.feed`.
        """
        later: dict[str, list[Batch]] = {}
        if self.options.pairs_requests:
            watermarks = self.progress.watermarks(self.span_ns[0], now_ns)
            self._emit_in_background(self.pairing.feed(batches, watermarks, next_key, later))
        return later

    def _emit_in_background(self, outputs: Iterable[Output]) -> None:
        """Make outputs and emit them, after all that was submitted before."""

        def emit() -> None:
            for output in outputs:
                self.emit(output)

        self.background.submit(emit)

    def flush_live(self) -> None:
        """Emit messages of a live capture that have waited FLUSH_INTERVAL_NS for evidence of their connection."""
        if time.monotonic_ns() - self._flushed_ns < FLUSH_INTERVAL_NS:
            return
        self._flushed_ns = time.monotonic_ns()
        waiting = self.progress.unresolved_flows()
        if early := self._waited & waiting:
            self.flush_unresolved(sorted(early))
            waiting = self.progress.unresolved_flows()
        self._waited = waiting

    def flush_unresolved(self, flows: Collection[int]) -> None:
        """Emit the messages of these connections that wait, decoded with the evidence collected up to now."""
        for _ in self._emit_rows(self._flushed(flows)):
            pass

    def _flushed(self, flows: Collection[int]) -> Iterator[Decoded]:
        stalled = sorted({flow for flow, _ in self.assembler.stalled_sides() if flow in flows})
        if stalled:
            yield from self._decoded(self._framed(self.assembler.flush_reordering(np.array(stalled, np.int64))))
        yield from self.decoder.flush(flows, self._selection.frames, have_ended=False)

    # -- ends ----------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """The connections that fit into the memory, each of the size that present ones have on average."""
        count = max(self.assembler.flow_count, 1)
        framed, paired = len(self.framer.connections), self.framer.claimed_count
        size_bytes = count * FLOW_BYTES + framed * FRAMED_BYTES + paired * PAIRED_BYTES
        size_bytes += self.assembler.queue_count * QUEUE_BYTES
        size_bytes += sum(len(stage.connections) for stage in self.derivations) * DERIVED_BYTES
        return self.options.max_memory_bytes * count // size_bytes

    def evict(self, max_closed: int, max_open: int) -> None:
        """End connections that closed or timed out, if there are more than fit; emit problems that are too many."""
        ended = self.assembler.eviction_candidates(max_closed, max_open)
        if len(ended) or self.assembler.unreported_count + self.framer.output.problem_count >= MAX_PROBLEMS:
            self.end(ended)

    def end(self, flows: Int64Array) -> None:
        """End connections: emit their last rows and all final problems, and drop their state."""
        if len(flows):
            for _ in self._emit_rows(self._last_messages(self.assembler.end(flows), flows.tolist())):
                pass
        self._close(flows, self.assembler.final_gaps(flows))
        self.assembler.forget(flows)

    def finish(self) -> Iterator[None]:
        """End the capture; pauses as ``steps`` does."""
        messages = self._last_messages(self.assembler.finish(), None)
        yield from self.finish_with(messages, self.assembler.live, self.assembler.gaps())

    def finish_with(
        self, messages: Iterator[Decoded], flows: Int64Array, gaps: Sequence[StreamRange] = ()
    ) -> Iterator[None]:
        """End the capture with its last messages, its live connections and their gaps; pauses as ``steps`` does."""
        yield from self._emit_rows(messages)
        self._close(flows, gaps)
        self._emit_in_background(self.pairing.finish())
        self.background.wait()
        self.counts.update({name: count for name, count in self.assembler.counts.items() if count})
        for stage in self.derivations:
            self._add_counts(stage.counts)
        for correlation in self.pairing.correlations.values():
            self._add_counts(correlation.counts)
        for facts in self.evidence.shared.values():
            self._add_counts({"forgotten_facts": facts.forgotten_count})

    def lost_fragments(self) -> dict[str, int]:
        """Counts of the fragments that never became a datagram; adds them to ``counts``."""
        lost = self.dissector.finish()
        self._add_counts(lost)
        return lost

    def _add_counts(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            total = self.counts.get(name, 0)
            self.counts[name] = max(total, count) if name == "clock_difference_ns" else total + count

    def last_frames(self, chunks: StreamChunks, flows: list[int] | None) -> list[Frames]:
        """The open messages of connections that end (None: of all), framed."""
        frames, _, _ = self.framer.feed(self.derived(chunks, flows), self.assembler.flows)
        return [*frames, *self.framer.finish(self.assembler.flows, flows)]

    def decoded_to_the_end(self, parts: Sequence[Frames], flows: list[int] | None = None) -> Iterator[Decoded]:
        """Messages of connections that end (None: of all), and those of theirs that waited."""
        yield from self._decoded(parts)
        yield from self.decoder.flush(flows, self._selection.frames)

    def _last_messages(self, chunks: StreamChunks, flows: list[int] | None) -> Iterator[Decoded]:
        """The open messages of connections that end (None: of all)."""
        return self.decoded_to_the_end(self.last_frames(chunks, flows), flows)

    def _close(self, numbers: Int64Array, gaps: Sequence[StreamRange]) -> None:
        """Emit the rows of ended connections and of problems, and end their requests."""
        flows, states = self.assembler.flows, self.framer.connections
        new_problems, foreign = self.framer.output.take_problems()
        new_problems += undelivered_ranges(self.assembler, self.derivations, gaps)
        self._closings.add_problems(new_problems)
        ended = EndedConnections(
            numbers,
            [states.get(number) for number in numbers.tolist()],
            self.opener.facts(numbers),
            *self._relatives.origins,
            flows,
        )
        if self.hooks.ended is not None:
            self.hooks.ended(ended)
        columns = {} if self.hooks.connection_columns is None else self.hooks.connection_columns(ended)
        blocks = list(self._connection_rows.rows(ended, columns))
        self.framer.proxied.end(blocks)
        if self.options.pairs_requests:
            self._emit_in_background(self.pairing.close(self._closings.by_protocol(numbers, flows)))
        self._emit_in_background(Output("connections", block) for block in blocks)
        for table in problems(self.capture, new_problems, foreign, flows, states):
            self._emit_in_background([Output("problems", table)])
        self.progress.forget(numbers)
        self._closings.forget(numbers)
        self.framer.forget(numbers)
        for stage in self.derivations:
            stage.forget(numbers)
        self._relatives.forget(numbers)

    @property
    def missing_relatives(self) -> int:
        """Connections that name another connection that was not seen."""
        return self._relatives.multipath.missing_count + self.framer.proxied.missing_count

    def server_notes(self) -> Iterator[str]:
        """Notes on other views of connections, and on recognised servers with many unrecognised connections."""
        yield from self._relatives.notes()
        yield from self.framer.proxied.notes()
        yield from self._connection_rows.servers.notes({rule.port for rule in self.options.decode_as})


class CapturePipeline:
    """Reads one capture through the stages; ``failure``: the reason why it could not be read to its end."""

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        background: Background | None = None,
        hooks: StageHooks | None = None,
    ) -> None:
        self.capture = capture
        self.failure: CaptureError | None = None
        self.first_ns: int | None = None
        """The time of the first packet."""
        self.rows = CaptureRows(capture) if "captures" in options.optional_tables else None
        self.emit = emit
        # A followed capture gets more files while it is read.
        self.stages = Pipeline(
            options, self._count_and_emit, capture.files[0], lambda index: capture.files[index], hooks, background
        )

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Read the capture to its end. Raises CaptureError if nothing of it could be read."""
        for _ in self.steps(progress):
            pass

    def steps(self, progress: Callable[[int], None] | None = None) -> Iterator[None]:
        """``run`` in steps: a window each, or less if its messages inflate to much.

        ``progress`` gets the number of bytes of the capture that a step read.
        """
        stages = self.stages
        any_read = False
        try:
            for window, segments in self._windows():
                any_read = True
                self.first_ns = int(window.ts_ns[0]) if self.first_ns is None else self.first_ns
                for parts in stages.frames(window, segments):
                    yield from stages.rows(parts)
                    stages.evict(stages.capacity // CLOSED_DIVISOR, stages.capacity // OPEN_DIVISOR)
                if progress is not None:
                    progress(window.size_bytes)
                yield
                if self._is_complete(int(window.ts_ns.min())):
                    break
        except CaptureError as error:
            if not any_read:
                raise
            self.failure = error
        yield from self._finish()
        yield

    def _windows(self) -> Iterator[tuple[Window, Segments]]:
        """The capture's windows with their segments; those of a file that is complete are read ahead."""
        grows = self.capture.is_pipe or self.capture.next_file is not None
        dissected = ((window, self.stages.dissector.segments(window)) for window in self.capture.windows())
        counted = self._counted(dissected if grows else self.stages.background.prefetch(dissected))
        # An observer of packets asks a window for the file of its packets.
        return counted if grows or self.stages.hooks.packets is not None else _with_small_files_joined(counted)

    def _counted(self, windows: Iterator[tuple[Window, Segments]]) -> Iterator[tuple[Window, Segments]]:
        """The windows; their packets are counted by file."""
        for window, segments in windows:
            if self.rows is not None:
                self.rows.take(window, segments.counts)
            yield window, segments

    def _is_complete(self, now_ns: int) -> bool:
        """Whether no selected message can follow; ``now_ns``: the time of packets that were read."""
        until = self.stages.options.until
        until_ns = None if until is None else until(self.first_ns or 0)
        if until_ns is None or now_ns <= until_ns + MAX_DISORDER_NS:
            return False
        return not self.stages.progress.has_open_message(until_ns, self.stages.options.connections)

    def _count_and_emit(self, output: Output) -> None:
        """Emit rows; counts the messages of each file."""
        if self.rows is not None and output.table == "messages":
            self.rows.count(output.rows["capture_file"])
        self.emit(output)

    def _count_lost(self) -> None:
        lost = self.stages.lost_fragments()
        if self.rows is not None:
            self.rows.count_lost(lost)

    def _finish(self) -> Iterator[None]:
        self._count_lost()
        yield from self.stages.finish()
        if self.rows is not None:
            rows = self.rows.table(self.failure)
            if rows.num_rows:
                self.emit(Output("captures", rows))
        # Else this pipeline, whose caller may refer to it in ``emit``, stays until garbage is collected, with 4 MB.
        self.emit = self.stages.emit = _discard


def _with_small_files_joined(windows: Iterator[tuple[Window, Segments]]) -> Iterator[tuple[Window, Segments]]:
    """The windows, in order; small windows of several files are joined, up to MAX_JOINED_BYTES."""
    small: list[tuple[Window, Segments]] = []
    size_bytes = 0
    failure: CaptureError | None = None
    try:
        for window, segments in windows:
            is_small = window.size_bytes < MAX_JOINED_BYTES and segments.buffer is window.buffer
            is_next_file = not small or window.file != small[-1][0].file
            if small and not (is_small and is_next_file and size_bytes + window.size_bytes <= MAX_JOINED_BYTES):
                yield one_window(small)
                small, size_bytes = [], 0
            if is_small:
                small.append(without_room(window, segments))
                size_bytes += window.size_bytes
            else:
                yield window, segments
    except CaptureError as error:
        failure = error  # of the next file; the windows before it count
    if small:
        yield one_window(small)
    if failure is not None:
        raise failure


def without_room(window: Window, segments: Segments) -> tuple[Window, Segments]:
    """The same with the used bytes of their buffer, which has room for a large window."""
    used = window.buffer[: int((window.offset + window.caplen).max())].copy()
    return replace(window, buffer=used), replace(segments, buffer=used)


def one_window(parts: Sequence[tuple[Window, Segments]]) -> tuple[Window, Segments]:
    """One window with the packets of several files, in order; its ``file`` is that of the last packet."""
    if len(parts) == 1:
        return parts[0]
    buffer = np.concatenate([window.buffer for window, _ in parts])
    starts = np.cumsum([0, *(len(window.buffer) for window, _ in parts[:-1])]).tolist()
    counts: Counter[str] = Counter()
    for _, segments in parts:
        counts.update(segments.counts)
    moved = [replace(segments, start=segments.start + base) for base, (_, segments) in zip(starts, parts, strict=True)]
    offset = [window.offset + base for base, (window, _) in zip(starts, parts, strict=True)]
    names = "caplen", "wirelen", "ts_ns", "link_type", "packet_number"
    columns: dict[str, Any] = {name: np.concatenate([getattr(window, name) for window, _ in parts]) for name in names}
    columns["secrets"] = tuple(lines for window, _ in parts for lines in window.secrets)
    window = replace(parts[-1][0], buffer=buffer, offset=np.concatenate(offset), **columns)
    return window, replace(Segments.joined(moved), buffer=buffer, counts=dict(counts))


def _discard(output: Output) -> None:
    """The ``emit`` of a pipeline that was loaded, until it gets another."""
