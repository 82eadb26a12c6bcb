"""One capture through all the rooms.

The only place that knows their order: windows of packets become segments, stretches, frames, records
and tables. Memory stays flat: a window is gone when the next is read, what waits does so under a cap.

A row is finished as soon as nothing that may still come can change it, and given out then to who asks for it (`ready`);
what depends on its connection as a whole, or on other connections, waits for the end of the input.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import factorize
from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.correlate.exchanges import Ledger, ends, ledger
from mqpcap.correlate.rows import Rows
from mqpcap.decode.closed_connections import ConnectionRegistry
from mqpcap.decode.columns import Reader, Records, Spans, span_array
from mqpcap.decode.framing import ConnectionView, DecodeAs, Framer, Frames, Problem, Server
from mqpcap.errors import CaptureError
from mqpcap.protocols import protocols
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ConnectionFacts, Ends, Evidence, EvidenceRule, MessageQueue, Raw, Seen
from mqpcap.tables import arrow as tables
from mqpcap.tables.arrow import Chunk, Policy, Spool
from mqpcap.tcp.headers import Dissector, Segments
from mqpcap.tcp.reassembly import MAX_BYTES, FlowColumns, Flows, Reassembler, StreamRanges

LATER_BYTES = 64 << 20
"""So much of the messages whose reading is not certain yet waits in memory; beyond it they wait in a temporary file."""
FLOW_BYTES = 2048
"""What a live connection takes in all rooms."""
CLOSED_SHARE = 8
"""Connections that closed are packed away when all that are in memory take more than one part in this of it."""
OPEN_SHARE = 2
"""The longest silent of those that did not close are, too, when they take more than one part in this."""
RECORD_BYTES = 16
"""What a packet takes in a file beside its bytes: pcap's header of a record."""
Ready = Callable[[Chunk], None]
"""Is given chunks whose rows are final."""
LATER_ROWS = 1 << 16
"""Messages read at once when they have waited."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose about a dissection."""

    decode_as: tuple[DecodeAs, ...] = ()
    policy: Policy = field(default_factory=Policy)
    max_memory_bytes: int = MAX_BYTES
    share: tuple[int, int] = (0, 1)
    """(k, n): only the k-th of n shares of the connections is read, told by a hash of their endpoints."""
    servers: frozenset[Server] = frozenset()
    """Servers known from other shares of the same capture, for connections recognised by them."""


@dataclass(slots=True)
class Dissection:
    """A dissected capture: ``chunks`` (those that were not given out before), ``ledgers``, ``connections``, and
    ``problems`` as a table.

    counts says what was met on the way that no row tells: packets that are no TCP, memory caps that bit. failure: why
    the rest of the capture could not be read.
    """

    capture: Capture
    problems: pa.Table
    counts: dict[str, int]
    _flows: Flows = field(repr=False)
    _talks: ConnectionRegistry = field(repr=False)
    _spool: Spool
    _settle: Callable[[str, pa.Table], Chunk] = field(repr=False)
    _edges: Mapping[int, Ends] = field(repr=False)
    _early: dict[str, Rows] = field(default_factory=dict, repr=False)
    _rows: dict[str, Rows] | None = field(default=None, repr=False)
    failure: CaptureError | None = None
    _ledgers: dict[str, Ledger] | None = field(default=None, repr=False)

    def connection_blocks(self) -> Iterator[pa.Table]:
        """The table ``connections`` in pieces: one row per TCP connection, in order of the first packet."""
        return tables.connections(self._flows, self._talks, np.arange(len(self._flows)))

    @property
    def connections(self) -> pa.Table:
        """All of ``connection_blocks``."""
        return pa.concat_tables([tables.CONNECTIONS.empty_table(), *self.connection_blocks()])

    def chunks(self, for_ledgers: bool = True) -> Iterator[Chunk]:
        """The messages, protocol by protocol, each chunk sorted by time.

        Not ``for_ledgers``: what ``ledgers`` needs of them is not kept in memory; it would read them once more.
        """
        keeps = for_ledgers and self._rows is None
        rows = self._early if keeps else {}
        for name, table in self._spool.batches():
            chunk = self._settle(name, table)
            if chunk.narrow is not None and keeps:
                rows.setdefault(name, Rows()).add(chunk.narrow)
            yield chunk
        if keeps and self._rows is None:
            self._rows = rows

    def ledgers(self) -> dict[str, Ledger]:
        """Exchanges and deliveries by protocol. Cheapest once ``chunks`` has been read."""
        if self._ledgers is None:
            if self._rows is None:
                for _ in self.chunks():
                    pass
            assert self._rows is not None
            self._ledgers = {
                name: ledger(protocols()[name], rows, self._edges) for name, rows in sorted(self._rows.items())
            }
            self._rows = {}
        return self._ledgers


def dissect(
    capture: Capture,
    options: Options | None = None,
    progress: Callable[[int], None] | None = None,
    ready: Ready | None = None,
    behind: Background | None = None,
) -> Dissection:
    """A capture's messages, connections and problems.

    ``progress`` is told how many bytes of capture were read since it was last called; ``ready`` is given what is final
    on the way, which is then not in ``chunks``, by who does the work ``behind``. Raises CaptureError if a file is gone
    or a pipe was read already, so that nothing could be read; whatever the bytes are, they are a result.
    """
    return CapturePipeline(capture, options or Options(), ready, behind).run(progress)


class Pipeline:
    """The rooms from packets to records, with the state of one capture on its way through them."""

    def __init__(self, options: Options, patient: bool = False) -> None:
        self.options = options
        self.later = Spool(LATER_BYTES) if patient else None
        self.protocols = protocols()
        self.dissector = Dissector()
        self.assembler = Reassembler(options.max_memory_bytes)
        self.framer = Framer(self.protocols, options.decode_as, options.servers)
        self.readers: dict[str, Reader] = {}
        self.counts: dict[str, int] = {}

    def messages(self, window: Window) -> Iterator[tuple[Frames, Records]]:
        """The messages that the packets of a window complete, by protocol."""
        segments = self.dissector.segments(window)
        for name, count in segments.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        segments = self._segments(segments)
        stretches = self.assembler.feed(segments)
        found, consumed = self.framer.feed(stretches, self.assembler.flows)
        self.assembler.keep(stretches, consumed)
        yield from self._read(found)

    def _segments(self, segments: Segments) -> Segments:
        """The segments that are read."""
        return shared(segments, *self.options.share)

    def last_messages(self) -> Iterator[tuple[Frames, Records]]:
        """What was still open at the end of the input."""
        stretches = self.assembler.finish()
        found, _ = self.framer.feed(stretches, self.assembler.flows)
        yield from self._read(found)
        yield from self._read(self.framer.finish(self.assembler.flows))
        if self.later is not None:
            for name, table in self.later.batches():
                for batch in table.to_batches(LATER_ROWS):
                    yield from self._decoded(_woken(name, batch))

    def last_of(self, flows: NDArray[np.int64]) -> Iterator[tuple[Frames, Records]]:
        """What was still open of connections that are over."""
        stretches = self.assembler.end(flows)
        found, _ = self.framer.feed(stretches, self.assembler.flows)
        yield from self._read(found)
        yield from self._read(self.framer.finish(self.assembler.flows, flows.tolist()))

    def _read(self, found: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        for frames in sorted(found, key=lambda f: f.protocol):
            protocol = self.protocols[frames.protocol]
            if protocol.evidence is not None:
                self._observe(protocol, self.reader(protocol), frames)
            frames = self._wanted(frames)
            ready = self._ready(protocol, frames)
            if self.later is not None and not ready.all():
                for part in _parts(frames, np.flatnonzero(~ready)):
                    self.later.add(protocol.name, _asleep(part))
                frames = _taken(frames, np.flatnonzero(ready))
            if len(frames.start):
                yield from self._decoded(frames)

    def _wanted(self, frames: Frames) -> Frames:
        """The messages that are read: all, unless a face says otherwise."""
        return frames

    def _ready(self, protocol: MessageQueue, frames: Frames) -> NDArray[np.bool_]:
        """The rows whose layout no later evidence can change."""
        evidence = protocol.evidence
        ready = np.ones(len(frames.start), np.bool_)
        if evidence is None or evidence.select_layout is None:
            return ready
        if evidence.layouts is not None:
            names = self.reader(protocol).program.layouts
            ready &= np.isin(frames.layout, [i for i, x in enumerate(names) if x.name not in evidence.layouts])
        if evidence.is_final is None:
            return ready if evidence.layouts is not None else ~ready
        flows, place = factorize(frames.flow)
        known = np.array([evidence.is_final(self._connection(f)) for f in flows.tolist()], np.bool_)[place]
        return known if evidence.layouts is None else ready | known

    def _decoded(self, frames: Frames) -> Iterator[tuple[Frames, Records]]:
        protocol = self.protocols[frames.protocol]
        reader = self.reader(protocol)
        frames = _in_time(self._relaid(protocol, reader, frames))
        at = 0
        for records in reader.batches(_spans(frames), self.options.policy.bodies):
            yield _taken(frames, np.s_[at : at + len(records.flaw)]), records
            at += len(records.flaw)

    def reader(self, protocol: MessageQueue) -> Reader:
        """The reader of a protocol, one for all its messages."""
        if protocol.name not in self.readers:
            self.readers[protocol.name] = Reader(protocol)
        return self.readers[protocol.name]

    def _relaid(self, protocol: MessageQueue, reader: Reader, frames: Frames) -> Frames:
        """The frames with the layouts that the connections' evidence, this batch's included, asks for."""
        evidence = protocol.evidence
        if evidence is None or evidence.select_layout is None:
            return frames
        names = [x.name for x in reader.program.layouts]
        unique, place = factorize(frames.flow * len(names) + frames.layout)
        pairs = [divmod(key, len(names)) for key in unique.tolist()]
        new = [names.index(evidence.select_layout(self._connection(f), names[i])) for f, i in pairs]
        return replace(frames, layout=np.array(new, np.int32)[place])

    def _connection(self, flow: int) -> Evidence:
        connection = self.framer.talks[flow].connection
        assert connection is not None
        return connection

    def speaking(self, name: str) -> list[int]:
        """The flows of a protocol, in order."""
        protocol = self.protocols[name]
        return sorted(f for f, talk in self.framer.talks.items() if talk.protocol is protocol)

    def _said(self, evidence: EvidenceRule, flows: Sequence[int]) -> dict[int, ConnectionFacts]:
        """What flows say as they are known by now."""
        return dict(zip(flows, evidence.resolve([self._connection(f) for f in flows]), strict=True))

    def _observe(self, protocol: MessageQueue, reader: Reader, frames: Frames) -> None:
        evidence = protocol.evidence
        assert evidence is not None
        wanted = frames.flaw == Flaw.NONE
        if evidence.ops is not None:
            wanted &= np.isin(frames.op, list(evidence.ops))
        if evidence.layouts is not None:
            telling = [i for i, x in enumerate(reader.program.layouts) if x.name in evidence.layouts]
            wanted &= np.isin(frames.layout, telling)
        rows = np.flatnonzero(wanted)
        if not len(rows):
            return
        rows = rows[np.lexsort((frames.offset[rows], frames.first_packet[rows], frames.ts_ns[rows]))]
        for raw in reader.raw(_spans(_taken(frames, rows))):
            self._prove(evidence, frames, rows[: raw.n], raw)
            rows = rows[raw.n :]

    def _prove(self, evidence: EvidenceRule, frames: Frames, rows: NDArray[np.intp], raw: Raw) -> None:
        good = np.flatnonzero(raw.flaw == Flaw.NONE)
        rows = rows[good]
        flows, of = factorize(frames.flow[rows])
        client = np.array([self.framer.talks[f].client for f in flows.tolist()], np.int8)
        evidence.observe(
            Seen(
                raw, good, [self._connection(f) for f in flows.tolist()], of, client[of] == frames.side[rows],
                frames.op[rows], frames.ts_ns[rows],
            )
        )  # fmt: skip


class CapturePipeline(Pipeline):
    """One capture made into tables."""

    def __init__(
        self, capture: Capture, options: Options, ready: Ready | None = None, behind: Background | None = None
    ) -> None:
        super().__init__(options, patient=True)
        self.capture = capture
        self.files: Sequence[str] = capture.files
        self.spool = Spool()
        self.ready = ready
        self.behind = behind or Background()
        self.rows: dict[str, Rows] = {}
        self.keep: Callable[[str, pa.Table], None] = self._keep
        """Is given, by protocol, what ``ledgers`` needs of the rows that are given out."""
        self.failure: CaptureError | None = None
        self.talks = ConnectionRegistry(self.framer.talks)
        self.not_read: list[Problem] = []
        """Problems of connections that are over."""
        self._known: dict[str, dict[int, ConnectionFacts]] = {}

    def run(self, progress: Callable[[int], None] | None) -> Dissection:
        any_read = False
        try:
            for window in self.capture.windows(self._window_times()):
                self._take(self.messages(window))
                self._make_room()
                any_read = True
                if progress is not None:
                    progress(int(window.caplen.sum()) + RECORD_BYTES * len(window.caplen))
        except CaptureError as error:
            if not any_read:
                raise
            self.failure = error
        self._take(self.last_messages())
        self.behind.wait()
        return self._result()

    def _window_times(self) -> int:
        """How many times as large as usual windows are."""
        return 1

    def _make_room(self) -> None:
        """Pack connections away that are over, or have to be, so that those in memory are no more than fit."""
        room = self.options.max_memory_bytes // FLOW_BYTES
        over = self.assembler.eviction_candidates(room // CLOSED_SHARE, room // OPEN_SHARE)
        if not len(over):
            return
        self._take(self.last_of(over))
        self.not_read += not_read(self.assembler, self.assembler.final_gaps(over))
        self.talks.end(over.tolist())
        self.framer.forget(over)
        self.assembler.forget(over, remember=True)

    def _take(self, found: Iterator[tuple[Frames, Records]]) -> None:
        for frames, records in found:
            protocol = self.protocols[frames.protocol]
            made = self._made(protocol, frames, records)
            if self.ready is None:
                self.spool.add(protocol.name, made())
            else:
                self._give(protocol, frames, made, self.ready)

    def _made(self, protocol: MessageQueue, frames: Frames, records: Records) -> Callable[[], pa.Table]:
        return partial(
            tables.waiting, protocol, self.reader(protocol).program, frames, records,
            from_client(frames, self.talks), self.files, self.options.policy,
        )  # fmt: skip

    def _give(self, protocol: MessageQueue, frames: Frames, made: Callable[[], pa.Table], ready: Ready) -> None:
        """Give out the rows that are final; the others wait."""
        flows, place = factorize(frames.flow)
        facts, of = self._final(protocol, flows.tolist()), self.assembler.flows.columns(flows)
        final = of.syn[place, frames.side] & np.isin(flows, list(facts))[place]
        if final.all():
            self._finish(protocol, made, facts, of, ready)
            return
        table = made()
        if not final.any():
            self.spool.add(protocol.name, table)
            return
        self.spool.add(protocol.name, table.filter(pa.array(~final)))
        some = table.filter(pa.array(final))
        self._finish(protocol, lambda: some, facts, self.assembler.flows.columns(tables.flows_in(some)), ready)

    def _finish(
        self,
        protocol: MessageQueue,
        made: Callable[[], pa.Table],
        facts: Mapping[int, ConnectionFacts],
        of: FlowColumns,
        ready: Ready,
    ) -> None:
        """Have rows finished behind; nothing that the reading goes on to change may be looked at there."""
        program = self.reader(protocol).program

        def finish() -> None:
            chunk = tables.settled(protocol, program, made(), facts, of)
            if chunk.narrow is not None:
                self.keep(protocol.name, chunk.narrow)
            ready(chunk)

        self.behind.do(finish)

    def _keep(self, name: str, narrow: pa.Table) -> None:
        self.rows.setdefault(name, Rows()).add(narrow)

    def _final(self, protocol: MessageQueue, flows: Sequence[int]) -> dict[int, ConnectionFacts]:
        """What connections say of their rows, of those where that can change no more."""
        evidence = protocol.evidence
        if evidence is None:
            return dict.fromkeys(flows, ConnectionFacts())
        if evidence.joins or evidence.is_final is None:
            return {}
        certain = evidence.is_final
        return self._said(evidence, [f for f in flows if certain(self._connection(f))])

    def _facts(self, name: str, flows: Sequence[int]) -> dict[int, ConnectionFacts]:
        """What some flows of a protocol as a whole say when the input has ended; of all if they know of each other."""
        evidence = self.protocols[name].evidence
        if evidence is None:
            return {}
        if evidence.joins:
            if name not in self._known:
                self._known[name] = self._joined(name)
            return self._known[name]
        return self._said(evidence, flows)

    def _connection(self, flow: int) -> Evidence:
        return self.talks.connection(flow)

    def speaking(self, name: str) -> list[int]:
        """The flows of a protocol, in order; where it does not join, only those that are not over."""
        protocol = self.protocols[name]
        past = [f for f in self.talks.joining if self.talks[f].protocol is protocol]
        return sorted([*past, *super().speaking(name)])

    def _joined(self, name: str) -> dict[int, ConnectionFacts]:
        """What all flows of a protocol say."""
        evidence = self.protocols[name].evidence
        assert evidence is not None
        return self._said(evidence, self.speaking(name))

    def _result(self) -> Dissection:
        flows = self.assembler.flows
        found = self.framer.problems + self.not_read + not_read(self.assembler, self.assembler.gaps())
        self.counts.update({k: v for k, v in (self.assembler.counts | self.framer.counts).items() if v})

        def resolve(name: str, table: pa.Table) -> Chunk:
            protocol = self.protocols[name]
            numbers = tables.flows_in(table)
            facts = self._facts(name, numbers.tolist())
            return tables.settled(protocol, self.reader(protocol).program, table, facts, flows.columns(numbers))

        return Dissection(
            self.capture, tables.problems(found, flows, self.talks), self.counts, flows, self.talks, self.spool, resolve,
            ends(flows, self.talks, found), self.rows, failure=self.failure,
        )  # fmt: skip


class Followed(CapturePipeline):
    """The rooms of a session: each message as it comes, read as its connection is known by then.

    What the exchanges need of the messages is kept, so that a session has the pairs of the table.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(Capture(()), options, ready=lambda chunk: None)
        self.later = None
        self.files = ("",)

    def named(self, found: Iterator[tuple[Frames, Records]]) -> Iterator[tuple[Frames, Records, Sequence[str | None]]]:
        """Messages with their operations' names as far as a message itself says them."""
        for frames, records in found:
            protocol = self.protocols[frames.protocol]
            table = self._made(protocol, frames, records)()
            self._give(protocol, frames, partial(pa.Table.slice, table), lambda chunk: None)
            yield frames, records, table["op"].to_pylist()

    def exchanges(self) -> Iterator[pa.Table]:
        """The table ``exchanges`` in pieces, once the last messages were taken; only once."""
        for one in self._result().ledgers().values():
            yield from one.blocks()


def from_client(frames: Frames, talks: Mapping[int, ConnectionView]) -> NDArray[np.bool_]:
    """Whether each message is from the client of its connection."""
    flows, place = factorize(frames.flow)
    client = np.array([talks[f].client for f in flows.tolist()], np.int8)
    return np.asarray(client[place] == frames.side)


def shared(segments: Segments, share: int, share_count: int) -> Segments:
    """The segments of one share of the connections; every connection is wholly in one."""
    if share_count == 1:
        return segments
    rows = np.flatnonzero(segments.key.view(np.uint64) % np.uint64(share_count) == share)
    return taken(segments, rows)


def taken(segments: Segments, rows: NDArray[np.intp]) -> Segments:
    """Some of the segments, over the same buffer."""
    names = (f.name for f in dataclass_fields(Segments) if f.name not in ("buffer", "counts"))
    return replace(segments, **{name: getattr(segments, name)[rows] for name in names})


_PER_ROW = tuple(f.name for f in dataclass_fields(Frames) if f.name not in ("protocol", "buffer"))


def _spans(frames: Frames) -> Spans:
    return Spans(frames.buffer, frames.start, frames.end, frames.layout, frames.op, frames.flaw)


def _taken(frames: Frames, rows: NDArray[np.intp] | slice) -> Frames:
    """Some of the rows, over the same buffer."""
    return replace(frames, **{name: getattr(frames, name)[rows] for name in _PER_ROW})


def _in_time(frames: Frames) -> Frames:
    """The rows in order of time, so that what is read of them needs no sorting: bytes are moved once."""
    ts_ns, packet = frames.ts_ns, frames.first_packet
    step = np.diff(ts_ns)
    if not ((step < 0) | ((step == 0) & (packet[1:] < packet[:-1]))).any():
        return frames
    return _taken(frames, np.lexsort((packet, ts_ns)))


def _parts(frames: Frames, rows: NDArray[np.intp]) -> Iterator[Frames]:
    """The rows in parts whose bytes fit an Arrow column."""
    size = np.cumsum(frames.end[rows] - frames.start[rows])
    part = size // LATER_BYTES
    for one in np.unique(part).tolist():
        yield _taken(frames, rows[part == one])


def _asleep(frames: Frames) -> pa.Table:
    """Frames with their bytes as a table, so that they can wait in a spool."""
    n = len(frames.start)
    rows = np.arange(n, dtype=np.int32)
    raw = span_array(frames.buffer, n, rows, frames.start, frames.end - frames.start, pa.binary())
    return pa.table({name: pa.array(getattr(frames, name)) for name in _PER_ROW} | {"raw": raw})


def _woken(protocol: str, batch: pa.RecordBatch) -> Frames:
    """The frames of a batch from the spool."""
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False).copy() for name in _PER_ROW}
    _, offsets, values = batch.column("raw").buffers()
    ends = np.frombuffer(offsets, np.int32)[batch.column("raw").offset :][: batch.num_rows + 1].astype(np.int64)
    buffer = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
    return Frames(protocol, buffer, **columns | {"start": ends[:-1].copy(), "end": ends[1:].copy()})


def not_read(assembler: Reassembler, gaps: StreamRanges) -> list[Problem]:
    """What never came to a reader: these gaps, and what was late or in conflict since connections were forgotten."""
    found = _problems(gaps, "gap", "lost")
    found += _problems(assembler.conflicts(), "conflict", "retransmitted with other bytes")
    return found + _problems(assembler.late(), "undecoded", "late")


def _problems(spots: StreamRanges, kind: str, reason: str) -> list[Problem]:
    return [
        Problem(f, s, o, n, kind, "snap length" if snapped else reason, ts)
        for f, s, o, n, ts, snapped in zip(
            spots.flow.tolist(), spots.side.tolist(), spots.offset.tolist(), spots.length.tolist(),
            spots.ts_ns.tolist(), spots.snapped.tolist(), strict=True,
        )
    ]  # fmt: skip
