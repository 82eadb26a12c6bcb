"""Ordered bytes to message spans.

``reassembly`` feeds it chunks of stream bytes; it decides which protocol a connection speaks, by evidence,
and where each message begins and ends. It promises that every captured byte ends up in exactly one message or in
one `undecoded` problem, whatever the bytes are.

The hard part is a direction's state, :class:`_SideState`. It is in step (``SYNC``), searching (``SEARCH``: after a
gap, at a late start, after bad framing where the protocol allows it) or given up (``STOP``). A message cut by a gap is
``pending``: where its length is known the bytes behind the gap still belong to it, and the next message begins
at its end without a search. A connection nobody has claimed yet is *held*: its first bytes are copied until a
protocol claims it or none can.

Rows must not depend on how the input was cut into windows. So the protocols are asked at places that the stream alone
decides: chunk by chunk in the order in which ``reassembly`` gave them out, and once more when both sides have ended.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.decode import bytecode
from mqpcap.decode.message_buffer import AT, FILE, NUMBER, ORDER, SIZE, TS_NS, MessageBuffer, PacketIndex, ScanHits
from mqpcap.schema.compiler import CompiledLayout, Program, compiled
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import (
    DIRECTIONS,
    Claim,
    Direction,
    Evidence,
    Layout,
    MessageQueue,
    Opening,
    Verdict,
)
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flows

OPENING_BYTES = 256 << 10
"""So much of each side is held for recognition; then what has not been claimed is not ours."""
EAGER_BYTES = 4 << 10
"""Up to here the protocols are asked with every chunk; beyond it each time half as much again has come."""
HELD_BYTES = 128 << 20
"""So much is held of all connections together; above it a connection is decided by what there is of it."""
CHUNK_BYTES = 256
"""What a held chunk costs besides its bytes, as it counts where a connection has more than FEW_CHUNKS of them."""
FEW_CHUNKS = 64
HEAD_BYTES = 64 << 10
"""So much of a message with a hole is kept to read its header."""
SCAN_ROOM = 4096
"""Messages per call of the scanner."""
I64 = NDArray[np.int64]
Server = tuple[str, str, int]
"""A protocol, and address and port of a server told to speak it."""
Told = tuple[Server, int]
"""A server, and the time of the packet that told it."""


class Step(IntEnum):
    """What a direction is doing."""

    SYNC = 0
    SEARCH = 1
    STOP = 2


# A name of its own is read five times as fast as a member of its class (Python 3.11).
SYNC, SEARCH, STOP = Step
YES, LIKELY, WAIT = Verdict.YES, Verdict.LIKELY, Verdict.WAIT


@dataclass(frozen=True, slots=True)
class Problem:
    """A range of a stream that did not become a message; ``ts_ns`` is when its first byte was captured."""

    flow: int
    side: int
    offset: int
    length: int
    kind: str
    reason: str
    ts_ns: int
    first_packet: int
    """The packet at or before its first byte."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Messages of one protocol over one buffer: n rows.

    start, end (int64) in ``buffer``; layout (int32) index into the Program's layouts; op (int64); flaw (uint8);
    flow (int64); side (int8: 0 = endpoint A); offset (int64) in the stream; captured (int64) bytes of the message
    captured; ts_ns, end_ts_ns, first_packet, last_packet, first_file, last_file, gap_before (int64); resynced (bool).
    """

    protocol: str
    buffer: NDArray[np.uint8]
    start: I64
    end: I64
    layout: NDArray[np.int32]
    op: I64
    flaw: NDArray[np.uint8]
    flow: I64
    side: NDArray[np.int8]
    offset: I64
    captured: I64
    ts_ns: I64
    end_ts_ns: I64
    first_packet: I64
    last_packet: I64
    first_file: I64
    last_file: I64
    gap_before: I64
    resynced: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DecodeAs:
    """``-d tcp.port==9092,flymq``: connections of that server port are read as that protocol."""

    port: int
    protocol: str


class _Origin(NamedTuple):
    """What recognition asks of a connection: its ends (A, B), and how it began."""

    connection_id: int
    first_ts_ns: int
    oriented: bool
    ips: tuple[str, str]
    ports: tuple[int, int]
    syn: tuple[bool, bool]


@dataclass(slots=True)
class _StreamChunk:
    """Contiguous stream bytes of a side, and from ``one`` to ``two`` the packets they came in."""

    side: int
    buffer: NDArray[np.uint8]
    start: int
    length: int
    offset: int
    packets: PacketIndex
    one: int
    two: int
    gap_after: bool
    ended: bool

    def part(self, one: int, two: int) -> "_StreamChunk":
        """A copy of the bytes from ``one`` to ``two``, which more may follow."""
        own = self.buffer[self.start + one : self.start + two].copy()
        packets = PacketIndex(self.packets.part(self.one, self.two).copy())
        return _StreamChunk(
            self.side, own, 0, two - one, self.offset + one, packets, 0, self.two - self.one, False, False
        )

    def bytes_of(self, k: int, most: int) -> bytes:
        """The first bytes of its k-th packet, ``most`` of them."""
        start = self.start + self.packets.value(AT, k) - self.offset
        return self.buffer[start : start + min(self.packets.value(SIZE, k), most)].tobytes()

    def order(self) -> int:
        """The place of its first packet among all packets of the input."""
        place: int = self.packets.value(ORDER, self.one)
        return place

    def when(self, offset: int) -> int:
        """The packet that holds the byte at a stream offset."""
        k: int = self.packets.when(offset, self.one, self.two)
        return k

    def ts_ns(self, k: int) -> int:
        """When a packet was captured."""
        ts_ns: int = self.packets.value(TS_NS, k)
        return ts_ns

    def brought(self, first: int, last: int) -> tuple[int, int, int]:
        """Time, number and file of the packet that came last among those from ``first`` to ``last``."""
        packets = self.packets
        k = packets.newest(first, last)
        return packets.value(TS_NS, k), packets.value(NUMBER, k), packets.value(FILE, k)


_NO_PACKETS = PacketIndex(np.empty((6, 0), np.int64))


@dataclass(slots=True)
class _Pending:
    """A message with a hole, until its end has gone by."""

    offset: int
    end: int
    head: bytes
    captured: int
    layout: int
    op: int
    first: tuple[int, int, int]
    """Time, number and file of the packet it began in; ``last`` of the one that came last."""
    last: tuple[int, int, int]
    gap_before: int
    resynced: bool


@dataclass(slots=True)
class _SideState:
    """One direction of a connection."""

    layout: int = -1
    step: Step = SYNC
    at: int = 0
    gap: int = 0
    resynced: bool = False
    pending: _Pending | None = None
    skip_from: int = -1
    skip_length: int = 0
    skip_ts_ns: int = 0
    skip_packet: int = 0
    skip_reason: str = ""
    messages: int = 0
    until: int = 0
    """Where the message ends whose beginning is left over, if that is known."""
    open_since_ns: int | None = None
    """When the first byte came of what is left over and may be a whole message, as the next bytes tell."""


@dataclass(slots=True)
class _Began:
    """How a side began: its bytes up to the first gap, and the longest run of bytes between gaps behind that.

    No more than OPENING_BYTES of a run count; ``closed`` when no more can come to the first.
    """

    data: bytearray = field(default_factory=bytearray)
    later: bytearray = field(default_factory=bytearray)
    first: int = -1
    closed: bool = False
    seen_bytes: int = 0
    searched: "_Searched" = field(default_factory=dict)
    _at: int = -1
    _run: bytearray = field(default_factory=bytearray)

    def take(self, chunk: _StreamChunk, k: int) -> None:
        """Take the bytes of the k-th packet of a chunk in."""
        offset, length = chunk.packets.value(AT, k), chunk.packets.value(SIZE, k)
        self.seen_bytes += length
        if self.first < 0:
            self.first, self._run = offset, self.data
        elif offset != self._at:
            self.closed, self._run = True, bytearray()
        self._at = offset + length
        self._run += chunk.bytes_of(k, OPENING_BYTES - len(self._run))
        if self._run is self.data:
            self.closed = len(self.data) >= OPENING_BYTES
        elif len(self._run) > len(self.later):
            self.later = self._run


class _Choice(NamedTuple):
    """Who takes a connection (None: nobody), as what, and which side is the client."""

    protocol: MessageQueue | None
    claim: Claim
    client: int
    identified_by: str | None
    guess: bool = False
    """Content fits with either side as the client, and no server is known: only the port numbers say which."""


@dataclass(slots=True)
class _Hold:
    """A connection nobody has claimed yet: what was captured of it, and how its sides began.

    ``likely`` are the claims of protocols it fits but whose port it does not use: good if its server turns out to
    speak one. Two with either side as the client are there if content does not say who is; the better guess is first.
    ts_ns is the time of the last packet looked at; ``full`` when no more bytes are looked at.
    """

    chunks: list[_StreamChunk] = field(default_factory=list)
    began: tuple[_Began, _Began] = field(default_factory=lambda: (_Began(), _Began()))
    ended: list[bool] = field(default_factory=lambda: [False, False])
    ask_at_bytes: int = 1
    likely: list[_Choice] = field(default_factory=list)
    ts_ns: int = 0
    full: bool = False
    held_bytes: int = 0
    """What the chunks count for."""


@dataclass(slots=True)
class ConnectionState:
    """A connection while it lives; ``client`` is the side (0 or 1) that speaks as the client."""

    flow: int
    protocol: MessageQueue | None = None
    identified_by: str | None = None
    decided: bool = False
    client: int = 0
    reason: str = ""
    sides: tuple[_SideState, _SideState] = field(default_factory=lambda: (_SideState(), _SideState()))
    hold: _Hold | None = None
    """Before the decision, unless the first look brings it."""
    left: list[_StreamChunk] = field(default_factory=list)
    """After the decision: the beginning of a message whose rest comes later."""
    connection: Evidence | None = None

    @property
    def messages(self) -> tuple[int, int]:
        """How many messages each side sent so far."""
        return self.sides[0].messages, self.sides[1].messages

    def direction(self, side: int) -> Direction:
        """The direction in which a side's bytes flow."""
        return DIRECTIONS[side != self.client]


class _ScanArrays:
    """Where a scan puts what it found; ``alike`` says of all messages that they have the only form, or no flaw."""

    def __init__(self) -> None:
        arrays = (memoryview(np.zeros(SCAN_ROOM, np.int64)) for _ in range(6))
        self.starts, self.ends, self.forms, self.ops, self.flaws, self.alike = arrays
        self.split = self.starts, self.ends, self.forms, self.ops, self.flaws

    def hits(self, split: bool, layouts: memoryview) -> ScanHits:
        """The arrays as hits of some layouts."""
        forms, flaws = (self.forms, self.flaws) if split else (self.alike, self.alike)
        return ScanHits(self.starts, self.ends, forms, self.ops, flaws, layouts)


class _Entry:
    """A layout as the framing uses it: the compiled one, the description, and what follows an operation."""

    def __init__(
        self,
        protocol: MessageQueue,
        program: Program,
        compiled_: CompiledLayout,
        index: Mapping[str, int],
        arrays: _ScanArrays,
    ) -> None:
        self.compiled = compiled_
        self.described = protocol.layout(compiled_.name)
        self.table = memoryview(compiled_.table)
        self.then = {op: index[name] for op, name in self.described.then.items()}
        splitter = self.described.splitter
        names = [compiled_.name] if splitter is None else splitter.layouts
        self.layouts = [index[name] for name in names]
        self.target = program.target(compiled_.name, arrays.starts, arrays.ends, arrays.ops)
        self.hits = arrays.hits(splitter is not None, memoryview(np.array(self.layouts, np.int64)))


class _Known:
    """A protocol's Program as the framing uses it."""

    def __init__(self, protocol: MessageQueue, arrays: _ScanArrays) -> None:
        program = compiled(protocol)
        self.interpreter = program.interpreter()
        self.alternatives = memoryview(program.alt_pc)
        self.index = {layout.name: i for i, layout in enumerate(program.layouts)}
        self.entries = [_Entry(protocol, program, layout, self.index, arrays) for layout in program.layouts]


class Framer:
    """The state of framing: every connection's two directions.

    ``feed`` takes what ``reassembly`` has ready and returns the messages found and how many bytes of each chunk are
    done with; ``finish`` decides what is still open. ``problems`` grows with the ranges that are no message.
    """

    def __init__(
        self, protocols: Mapping[str, MessageQueue], decode_as: Sequence[DecodeAs] = (), servers: Iterable[Told] = ()
    ) -> None:
        self.protocols = protocols
        self.decode_as = decode_as
        self.talks: dict[int, ConnectionState] = {}
        self.problems: list[Problem] = []
        self._make_room()
        self._replay: list[NDArray[np.uint8]] = []
        self._replay_bytes = 0
        self._held_bytes = 0
        self.servers: dict[Server, int] = {}
        """Servers told to speak a protocol, and the time of the first packet that told so.

        `doubted` are those that a connection asked for and were not among them.
        """
        for server, ts_ns in servers:
            self._tell(server, ts_ns)
        self.doubted: set[Server] = set()
        self._full: list[tuple[ConnectionState, _Origin]] = []
        self.counts = {"opening_cap": 0}
        self.unsettled: dict[int, int] = {}
        """By connection, since when (ns) a side holds bytes that may become a message older than others given out."""
        self.ports = frozenset(port for p in protocols.values() for port in p.ports)
        self._known_ports = self.ports | {d.port for d in decode_as}
        self._asking: dict[tuple[int, int, bool], list[tuple[MessageQueue, int, bool, bool]]] = {}

    def __getstate__(self) -> dict[str, object]:
        """All but what can be made anew; between two calls no row is here."""
        anew = ("_programs", "_scan_arrays", "_main", "_replayed")
        return {name: value for name, value in self.__dict__.items() if name not in anew}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._make_room()

    def _make_room(self) -> None:
        """What only serves to work: Programs, and where a scan puts what it found and rows are collected."""
        self._programs: dict[str, _Known] = {}
        self._main: dict[str, MessageBuffer] = {}
        self._replayed: dict[str, MessageBuffer] = {}
        self._scan_arrays = _ScanArrays()

    def _of(self, protocol: MessageQueue) -> _Known:
        """What is known of a protocol."""
        known = self._programs.get(protocol.name)
        if known is None:
            known = self._programs[protocol.name] = _Known(protocol, self._scan_arrays)
        return known

    # -- what comes in ---------------------------------------------------------------------------------

    def feed(self, chunks: StreamChunks, flows: Flows) -> tuple[list[Frames], I64, I64]:
        """Messages in the new bytes, grouped by protocol and buffer; per chunk the bytes done with, and how many are
        wanted behind them before it is worth showing again (``Reassembler.keep``)."""
        view = memoryview(chunks.buffer)
        origins = self._origins(chunks.flow, flows)
        consumed: list[int] = []
        wanted: list[int] = []
        for number, new in _stream_chunks(chunks):
            state = self.talks.get(number)
            if state is None:
                state = self.talks[number] = ConnectionState(number)
            if state.decided or self._recognised(state, origins[number], new):
                for chunk in new:
                    done = self._walk(state, chunk, view, self._main, 0)
                    consumed.append(done)
                    wanted.append(max(state.sides[chunk.side].until - chunk.offset - done, 0))
                    is_open = done < chunk.length and not wanted[-1]
                    state.sides[chunk.side].open_since_ns = _since_ns(state, chunk, done) if is_open else None
                self._note_unsettled(state)
            else:
                consumed += [chunk.length for chunk in new]
                wanted += [0] * len(new)
        # Servers that other connections of this window told earlier count, whichever connection was looked at first.
        for state, of in self._full:
            assert state.hold is not None
            self._decide(state, of, self._by_peer(state, of, until_ns=state.hold.ts_ns))
        self._full = []
        return self._collect(chunks.buffer), np.array(consumed, np.int64), np.array(wanted, np.int64)

    def finish(self, flows: Flows, only: Iterable[int] | None = None) -> list[Frames]:
        """Messages that were still open; after it every byte is accounted for. ``only``: of these connections."""
        states = [*self.talks.values()] if only is None else [self.talks[n] for n in only if n in self.talks]
        waiting = [state for state in states if not state.decided]
        origins = _origins(flows, [state.flow for state in waiting])
        for state in waiting:
            choice = self._claimed(state, origins[state.flow], final=True)
            if choice is not None:
                self._decide(state, origins[state.flow], choice)
        for state in waiting:
            if not state.decided:
                self._decide(state, origins[state.flow], self._by_peer(state, origins[state.flow]))
        for state in states:
            for number, side in enumerate(state.sides):
                if side.pending is not None or side.skip_from >= 0:
                    self._give_up_pending(state, number, side)
                    self._end_skip(state, number, side)
            self.unsettled.pop(state.flow, None)
        return self._collect(np.empty(0, np.uint8))

    def _note_unsettled(self, state: ConnectionState) -> None:
        times = [s.open_since_ns for s in state.sides if s.open_since_ns is not None]
        times += [s.pending.first[0] for s in state.sides if s.pending is not None]
        if state.protocol is not None and times:
            self.unsettled[state.flow] = min(times)
        else:
            self.unsettled.pop(state.flow, None)

    def forget(self, flows: I64) -> None:
        """Know nothing more of connections that were finished. Servers stay known: others are recognised by them."""
        for number in flows.tolist():
            self.talks.pop(number, None)
            self.unsettled.pop(number, None)

    def _collect(self, buffer: NDArray[np.uint8]) -> list[Frames]:
        found = [Frames(name, buffer, **rows.taken()) for name, rows in self._main.items() if len(rows)]
        if self._replay:
            joined = np.concatenate(self._replay)
            found += [Frames(name, joined, **rows.taken()) for name, rows in self._replayed.items() if len(rows)]
        self._replay, self._replay_bytes = [], 0
        return found

    # -- whose connection it is ------------------------------------------------------------------------

    def _origins(self, numbers: I64, flows: Flows) -> dict[int, _Origin]:
        """Of the connections that nobody took yet."""
        known = self.talks
        open_ = [n for n in dict.fromkeys(numbers.tolist()) if n not in known or not known[n].decided]
        return _origins(flows, open_) if open_ else {}

    def _recognised(self, state: ConnectionState, of: _Origin, new: list[_StreamChunk]) -> bool:
        """Ask the protocols about a connection with these new chunks; when False they are held."""
        choice = self._at_sight(state, of, new) if state.hold is None else None
        if choice is None:
            choice = self._looked_at(state, of, new)
        if choice is None:
            return False
        first = _earliest(new) if state.hold is None else None
        self._decide(state, of, choice, first.ts_ns(first.one) if first is not None else 0)
        return True

    def _at_sight(self, state: ConnectionState, of: _Origin, new: list[_StreamChunk]) -> _Choice | None:
        """Who takes a connection by its very first packet; None: it is to be held and looked at.

        Nearly all are told by that, and connections may be very many: so nothing is copied or noted for it.
        """
        chunk = _earliest(new)
        length = 0 if chunk is None else chunk.packets.value(SIZE, chunk.one)
        if chunk is None or not 0 < length < OPENING_BYTES:
            state.hold = _Hold()
            return None
        openings = _SideOpening(b"", of.syn[0], False), _SideOpening(b"", of.syn[1], False)
        spoke = openings[chunk.side]
        spoke.data = chunk.bytes_of(chunk.one, length)
        spoke.start = spoke.start and chunk.packets.value(AT, chunk.one) <= 0
        choice = self._claim(of, openings, [], False)
        if choice is None:
            state.hold = _Hold(ask_at_bytes=_next_look(length))
            for began, held in zip(state.hold.began, openings, strict=True):
                began.searched = held.searched
        return choice

    def _looked_at(self, state: ConnectionState, of: _Origin, new: list[_StreamChunk]) -> _Choice | None:
        """Who takes a connection by all that is known of it; None: nobody yet, and the new chunks are held."""
        hold = state.hold
        assert hold is not None
        choice: _Choice | None = None
        for chunk, k in _events(new):
            hold.ts_ns = chunk.ts_ns(k)
            began = hold.began[chunk.side]
            closed = began.closed
            began.take(chunk, k)
            full = began.seen_bytes >= OPENING_BYTES
            so_far = hold.began[0].seen_bytes + hold.began[1].seen_bytes
            if full or so_far >= hold.ask_at_bytes or began.closed != closed:
                hold.ask_at_bytes = _next_look(so_far)
                choice = self._claimed(state, of, full)
                if choice is None and full and not hold.likely:
                    choice = self._nobody(of, _openings(hold, of, True))
                if choice is not None:
                    return choice
                if full:
                    hold.full = True
                    break
        for chunk in new:
            hold.ended[chunk.side] = hold.ended[chunk.side] or chunk.ended
        if all(hold.ended) and not hold.full:
            choice = self._claimed(state, of, final=True)
        if choice is None and not self._held(hold, new):
            return self._claimed(state, of, final=True) or self._by_peer(state, of)
        if hold.full:
            self._full.append((state, of))
        return choice

    def _held(self, hold: _Hold, new: Sequence[_StreamChunk]) -> bool:
        """Copy what is new of a connection; False when too much is held already."""
        size = sum(chunk.length for chunk in new)
        if len(hold.chunks) > FEW_CHUNKS:
            size += CHUNK_BYTES * len(new)
        if self._held_bytes + size > HELD_BYTES:
            self.counts["opening_cap"] += 1
            return False
        self._held_bytes += size
        hold.held_bytes += size
        hold.chunks += _copies(new)
        return True

    def _decide(self, state: ConnectionState, of: _Origin, choice: _Choice, ts_ns: int = 0) -> None:
        """Give the connection to a protocol or to nobody, and take in what was held of it.

        ``ts_ns`` is the time of the packet that decided a connection of which nothing was held.
        """
        hold, state.hold = state.hold, None
        state.decided, state.client = True, choice.client
        if choice.protocol is not None:
            state.protocol, state.identified_by = choice.protocol, choice.identified_by
            self._begin(state, of, choice.protocol, choice.claim)
            if choice.identified_by != "peer" and not choice.guess:
                server = 1 - choice.client
                told = choice.protocol.name, of.ips[server], of.ports[server]
                self._tell(told, hold.ts_ns if hold is not None else ts_ns)
        else:
            state.reason = choice.claim.reason
        if hold is None:
            return
        self._held_bytes -= hold.held_bytes
        buffer, shift = np.empty(0, np.uint8), 0
        for chunk in _joined(hold.chunks):
            if chunk.buffer is not buffer:
                buffer, shift = chunk.buffer, self._keep(chunk.buffer)
            done = self._walk(state, chunk, memoryview(buffer), self._replayed, shift)
            if done < chunk.length:
                state.left.append(chunk.part(done, chunk.length))

    def _begin(self, state: ConnectionState, of: _Origin, protocol: MessageQueue, claim: Claim) -> None:
        index = self._of(protocol).index
        server = 1 - state.client
        ip, port = of.ips[server], of.ports[server]
        began = [claim.c2s or "", claim.s2c or ""]
        state.connection = Evidence(of.connection_id, ip, port, of.syn[0] or of.syn[1], of.first_ts_ns, layouts=began)
        for number, side in enumerate(state.sides):
            side.layout = index.get(began[number != state.client], -1)
            if side.layout < 0:
                side.step = STOP
            elif not of.syn[number]:
                side.step = SEARCH

    def _tell(self, server: Server, ts_ns: int) -> None:
        self.servers[server] = min(self.servers.get(server, ts_ns), ts_ns)

    def _claimed(self, state: ConnectionState, of: _Origin, final: bool) -> _Choice | None:
        """Who takes a connection by what is known of it; None to wait. ``final``: nothing follows."""
        hold = state.hold
        assert hold is not None
        hold.likely = []
        return self._claim(of, _openings(hold, of, final), hold.likely, final, hold)

    def _claim(
        self,
        of: _Origin,
        openings: "tuple[_SideOpening, _SideOpening]",
        likely: list[_Choice],
        final: bool,
        hold: _Hold | None = None,
    ) -> _Choice | None:
        """The same by how its sides began, and by what a hold knows of the bytes behind a gap."""
        choice, waits = self._asked(likely, of, openings, final)
        if choice is None and not waits and hold is not None and any(x.later for x in hold.began):
            # Nothing at the beginning; what comes behind a gap is as good as a late start.
            choice, waits = self._asked(likely, of, _later(hold, final), final)
        if choice is not None:
            return choice
        if (likely or not final) and (likely or waits or not any(x.data for x in openings)):
            return None
        return self._nobody(of, openings)

    def _asked(
        self, likely: list[_Choice], of: _Origin, openings: "tuple[_SideOpening, _SideOpening]", final: bool
    ) -> tuple[_Choice | None, bool]:
        """The best claim good enough to decide, and whether a protocol wants more bytes first."""
        best: _Choice | None = None
        best_rank = 0, False, False
        waits = False
        sure: list[_Choice] = []
        for protocol, client, on_port, forced in self._candidates(of):
            if best_rank >= (YES, on_port, True) and (of.oriented or on_port or best_rank[1]):
                break  # Those to come are not better: who is on its own port was asked first.
            claim = protocol.claims(self._opening(protocol, openings, client, on_port, forced))
            verdict = claim.verdict
            if verdict is WAIT:
                waits = not final
            elif verdict is YES or (verdict is LIKELY and on_port):
                rank = verdict, on_port, client == self._client_by_port(of)
                if rank > best_rank:
                    how = "decode_as" if forced else "content" if verdict is YES else "port"
                    best_rank, best = rank, _Choice(protocol, claim, client, how)
                if verdict is YES and not on_port:
                    sure.append(_Choice(protocol, claim, client, "content", guess=True))
            elif verdict is LIKELY:
                likely.append(_Choice(protocol, claim, client, "peer"))
        if best_rank[0] is YES and not best_rank[1] and best is not None:
            either = [x for x in sure if x.protocol is best.protocol]
            if len(either) > 1:
                likely += sorted(either, key=lambda x: x.client != self._client_by_port(of))
                return None, False
        if best_rank[0] is YES or not waits:
            return best, False
        return None, waits

    def _candidates(self, of: _Origin) -> list[tuple[MessageQueue, int, bool, bool]]:
        """Who may be asked about a connection: protocol, client, whether on its port, whether told to.

        Those on their own port come first.
        """
        (a, b), known_ports = of.ports, self._known_ports
        ports = a if a in known_ports else -1, b if b in known_ports else -1
        key = ports[0], ports[1], of.oriented
        if key not in self._asking:
            found = []
            for protocol in self.protocols.values():
                for client in range(1 if of.oriented else 2):
                    server_port = ports[1 - client]
                    forced = {d.protocol for d in self.decode_as if d.port == server_port}
                    if not forced or protocol.name in forced:
                        found.append((protocol, client, bool(forced) or server_port in protocol.ports, bool(forced)))
            self._asking[key] = sorted(found, key=lambda asked: not asked[2])
        return self._asking[key]

    def _nobody(self, of: _Origin, openings: "tuple[_SideOpening, _SideOpening]") -> _Choice:
        """The connection is not ours."""
        return _Choice(None, Claim(Verdict.NO, reason=_stranger(openings)), self._client_by_port(of), None)

    def _by_peer(self, state: ConnectionState, of: _Origin, until_ns: int | None = None) -> _Choice:
        """A connection that fits a protocol is taken if another one to the same server was told to be of it.

        ``until_ns``: servers told later do not count, so that windows and shares of the input change no row.
        """
        assert state.hold is not None
        for choice in state.hold.likely:
            assert choice.protocol is not None
            server = choice.protocol.name, of.ips[1 - choice.client], of.ports[1 - choice.client]
            if server in self.servers and (until_ns is None or self.servers[server] <= until_ns):
                return choice
            self.doubted.add(server)
        guesses = (choice for choice in state.hold.likely if choice.guess)
        return next(guesses, None) or self._nobody(of, _openings(state.hold, of, True))

    def _client_by_port(self, of: _Origin) -> int:
        """The client where content does not say: the SYN's sender, else the side whose port is no server's."""
        if of.oriented:
            return 0
        a, b = of.ports
        if (a in self.ports) != (b in self.ports):
            return int(a in self.ports)
        return int(a < b)

    def _opening(
        self,
        protocol: MessageQueue,
        openings: "tuple[_SideOpening, _SideOpening]",
        client: int,
        on_port: bool,
        forced: bool,
    ) -> Opening:
        c2s, s2c = openings[client], openings[1 - client]

        def find_run(direction: Direction, layout: str, n: int) -> int | None:
            side = c2s if direction == "c2s" else s2c
            return self._first(side, protocol, layout, n)

        return Opening(c2s.data, s2c.data, c2s.start, s2c.start, c2s.ended, s2c.ended, on_port, forced, find_run)

    def _first(self, side: "_SideOpening", protocol: MessageQueue, layout: str, in_a_row: int) -> int | None:
        """Where messages first follow each other; what was looked at before is not looked at again."""
        key, now = (protocol.name, layout, in_a_row), (len(side.data), side.ended)
        at, found, before = side.searched.get(key, (0, False, (0, False)))
        if not found and before != now:
            start = at if now > before and not before[1] else 0
            at, found = self._search(protocol, layout, memoryview(side.data), start, now[0], side.ended, in_a_row)
            side.searched[key] = at, found, now
        return at if found else None

    # -- where the messages are ------------------------------------------------------------------------

    def _search(
        self, protocol: MessageQueue, layout: str, view: memoryview, at: int, limit: int, ended: bool, in_a_row: int
    ) -> tuple[int, bool]:
        """The first position where messages follow each other; not found: where one may begin yet."""
        known = self._of(protocol)
        entry = known.entries[known.index[layout]]
        if entry.described.splitter is not None:
            return entry.described.splitter.search(view, at, limit, ended, in_a_row)
        if not limit - at:
            return at, False
        compiled_, interpreter = entry.compiled, known.interpreter
        interpreter.packing(compiled_.packed_at, compiled_.packed_mask)
        found: tuple[int, bool] = interpreter.search(
            view, at, limit, compiled_.header_pc, compiled_.op_reg, entry.table, known.alternatives, ended, in_a_row
        )
        return found

    def _walk(
        self, state: ConnectionState, chunk: _StreamChunk, view: memoryview, into: dict[str, MessageBuffer], shift: int
    ) -> int:
        """Take a chunk in; returns how many of its bytes are done with."""
        number = chunk.side
        side = state.sides[number]
        ours = 0
        if state.left:
            chunk, ours = self._with_held(state, chunk)
        if ours:
            view, into, shift = memoryview(chunk.buffer), self._replayed, self._keep(chunk.buffer)
        if chunk.offset > side.at:
            self._gap(state, number, side, chunk.offset)
        stop = chunk.offset + chunk.length
        hard = chunk.gap_after or chunk.ended
        base = chunk.start - chunk.offset
        side.until = 0
        if side.pending is not None:
            self._through_pending(state, number, side, chunk)
        while side.at < stop:
            if state.protocol is None or side.step is STOP:
                reason = state.reason if state.protocol is None else "bad_framing"
                self._skip(side, side.at, stop - side.at, chunk, reason)
                side.at = stop
            elif side.step is SEARCH:
                if not self._resync(state, side, chunk, view, base, stop, hard):
                    break
            elif not self._scan(state, side, chunk, view, base, stop, hard, into, shift):
                break
        if chunk.ended and (side.pending is not None or side.skip_from >= 0):
            self._give_up_pending(state, number, side)
            self._end_skip(state, number, side)
        done = (stop if hard else side.at) - chunk.offset
        if done < ours:
            state.left.append(chunk.part(done, ours))
        return done - ours if done > ours else 0

    def _keep(self, buffer: NDArray[np.uint8]) -> int:
        """Put bytes behind the replay buffer; returns where they begin in it."""
        shift = self._replay_bytes
        self._replay.append(buffer)
        self._replay_bytes += len(buffer)
        return shift

    def _with_held(self, state: ConnectionState, chunk: _StreamChunk) -> tuple[_StreamChunk, int]:
        """The chunk with what was held of the same side in front of it, and how many bytes that was."""
        mine = [p for p in state.left if p.side == chunk.side]
        if not mine:
            return chunk, 0
        state.left = [p for p in state.left if p.side != chunk.side]
        held = _join(mine)
        if held.offset + held.length != chunk.offset:
            # A gap behind what was held: nothing can extend it.
            held = replace(held, gap_after=True)
            self._walk(state, held, memoryview(held.buffer), self._replayed, self._keep(held.buffer))
            return chunk, 0
        return _join([held, chunk]), held.length

    def _gap(self, state: ConnectionState, number: int, side: _SideState, offset: int) -> None:
        """Bytes up to ``offset`` were never captured."""
        missing = offset - side.at
        self._end_skip(state, number, side)
        if side.pending is not None:
            pending = side.pending
            if pending.end > offset:
                side.at = offset
                return
            self._give_up_pending(state, number, side)
            if pending.end == offset:
                side.at = offset
                return
            missing = offset - (pending.end if pending.end > side.at else side.at)
        side.gap += missing
        side.at = offset
        if side.step is SYNC:
            side.step = SEARCH

    def _resync(
        self,
        state: ConnectionState,
        side: _SideState,
        chunk: _StreamChunk,
        view: memoryview,
        base: int,
        stop: int,
        hard: bool,
    ) -> bool:
        """Search for a message; False when the bytes to tell are not here yet."""
        protocol = state.protocol
        assert protocol is not None
        layout = self._of(protocol).entries[side.layout].described
        wanted = layout.searched or layout.name
        at, found = self._search(protocol, wanted, view, base + side.at, base + stop, hard, layout.in_a_row)
        skipped = at - base - side.at
        if not found and hard:
            skipped = stop - side.at
        if skipped:
            self._skip(side, side.at, skipped, chunk, "search")
            side.at += skipped
        if not found:
            return False
        self._end_skip(state, chunk.side, side)
        side.step, side.resynced = SYNC, True
        return True

    def _scan(
        self,
        state: ConnectionState,
        side: _SideState,
        chunk: _StreamChunk,
        view: memoryview,
        base: int,
        stop: int,
        hard: bool,
        into: dict[str, MessageBuffer],
        shift: int,
    ) -> bool:
        """Frame what is in step; False when the rest of the chunk is no whole message yet."""
        assert state.protocol is not None
        known = self._of(state.protocol)
        layout = side.layout
        entry = known.entries[layout]
        splitter = entry.described.splitter
        if splitter is None:
            n, code, at, known_end = known.interpreter.scan(
                entry.target, view, base + side.at, base + stop, hard, bool(entry.then)
            )
        else:
            rows = self._scan_arrays.split
            n, code, at, known_end, form = splitter.scan(view, base + side.at, base + stop, hard, rows)
            layout = entry.layouts[form] if form >= 0 else layout
        if n:
            self._put(state, side, chunk, base, entry.hits, n, into, shift)
            side.at = at - base
            if entry.then:
                side.layout = entry.then.get(self._scan_arrays.ops[n - 1], side.layout)
        if code == bytecode.SCAN_FULL:
            return True
        if code == bytecode.SCAN_BAD:
            self._bad_framing(side, entry.described)
            return True
        if hard and side.at < stop:
            self._cut(state, side, layout, chunk, view, base, known_end)
        side.until = known_end - base
        return False

    def _bad_framing(self, side: _SideState, layout: Layout) -> None:
        if layout.on_bad == "stop":
            side.step = STOP
        else:
            side.step = SEARCH

    def _put(
        self,
        state: ConnectionState,
        side: _SideState,
        chunk: _StreamChunk,
        base: int,
        hits: ScanHits,
        n: int,
        into: dict[str, MessageBuffer],
        shift: int,
    ) -> None:
        """Rows for the first ``n`` whole messages that were found in a chunk."""
        assert state.protocol is not None
        rows = into.get(state.protocol.name)
        if rows is None:
            rows = into[state.protocol.name] = MessageBuffer()
        rows.put(
            hits, n, chunk.packets, chunk.one, chunk.two, base, shift, state.flow, chunk.side, side.gap, side.resynced
        )
        side.messages += n
        side.gap, side.resynced = 0, False

    def _cut(
        self,
        state: ConnectionState,
        side: _SideState,
        layout: int,
        chunk: _StreamChunk,
        view: memoryview,
        base: int,
        known_end: int,
    ) -> None:
        """A message ends in a hole or with the stream: a row if its header was captured, else undecoded bytes."""
        assert state.protocol is not None
        known = self._of(state.protocol)
        entry = known.entries[layout]
        compiled_, interpreter = entry.compiled, known.interpreter
        stop = chunk.offset + chunk.length
        left = stop - side.at
        op = -1
        whole = known_end >= 0
        if compiled_.header_pc >= 0:
            whole = interpreter.header(view, base + side.at, base + stop, compiled_.header_pc) == bytecode.DONE
            op = interpreter.register(compiled_.op_reg) if compiled_.op_reg >= 0 else -1
        if not whole:
            self._skip(side, side.at, left, chunk, "truncated")
            side.at = stop
            return
        first = chunk.when(side.at)
        head = bytes(view[base + side.at : base + min(stop, side.at + HEAD_BYTES)])
        side.pending = _Pending(
            side.at, known_end - base if known_end >= 0 else -1, head, left, layout, op,
            chunk.brought(first, first), chunk.brought(first, chunk.when(stop - 1)), side.gap, side.resynced,
        )  # fmt: skip
        side.gap, side.resynced = 0, False
        side.at = stop
        side.layout = entry.then.get(op, side.layout)

    def _through_pending(self, state: ConnectionState, number: int, side: _SideState, chunk: _StreamChunk) -> None:
        """Bytes behind the hole that still belong to the message with it."""
        pending = side.pending
        assert pending is not None
        to = min(pending.end, chunk.offset + chunk.length)
        if to > side.at:
            new = chunk.brought(chunk.when(side.at), chunk.when(to - 1))
            pending.last = max(pending.last, new, key=lambda x: (x[2], x[1]))
            pending.captured += to - side.at
            side.at = to
        if side.at >= pending.end:
            self._give_up_pending(state, number, side)

    def _give_up_pending(self, state: ConnectionState, number: int, side: _SideState) -> None:
        """The row of a message with a hole."""
        pending, side.pending = side.pending, None
        if pending is None:
            return
        assert state.protocol is not None
        start = self._keep(np.frombuffer(pending.head, np.uint8))
        side.messages += 1
        rows = self._replayed.setdefault(state.protocol.name, MessageBuffer())
        (ts_ns, packet, file), (end_ts_ns, last_packet, last_file) = pending.first, pending.last
        rows.add(
            (
                start, start + len(pending.head), pending.layout, pending.op, int(Flaw.TRUNCATED), state.flow, number,
                pending.offset, pending.captured, ts_ns, end_ts_ns, packet, last_packet, file, last_file,
                pending.gap_before, pending.resynced,
            )
        )  # fmt: skip

    # -- what is no message ----------------------------------------------------------------------------

    def _skip(self, side: _SideState, offset: int, length: int, chunk: _StreamChunk, reason: str) -> None:
        if side.skip_from < 0:
            side.skip_from, side.skip_length = offset, 0
            k = chunk.when(offset)
            side.skip_ts_ns, side.skip_packet = chunk.ts_ns(k), chunk.packets.value(NUMBER, k)
            side.skip_reason = reason
        side.skip_length += length

    def _end_skip(self, state: ConnectionState, number: int, side: _SideState) -> None:
        if side.skip_from >= 0:
            self.problems.append(
                Problem(
                    state.flow,
                    number,
                    side.skip_from,
                    side.skip_length,
                    "undecoded",
                    side.skip_reason,
                    side.skip_ts_ns,
                    side.skip_packet,
                )
            )
        side.skip_from = -1


@dataclass(slots=True)
class _SideOpening:
    """The first contiguous bytes of one side; ``searched``: what was found in them so far."""

    data: bytes
    start: bool
    ended: bool
    searched: "_Searched" = field(default_factory=dict)


_Searched = dict[tuple[str, str, int], tuple[int, bool, tuple[int, bool]]]
"""By protocol, layout and number of messages: place, whether they are there, and in how many bytes, ended or not."""


def _since_ns(state: ConnectionState, chunk: _StreamChunk, done: int) -> int:
    """When the first byte came that is left over of a chunk, or of what is held in front of it."""
    first = next((part for part in state.left if part.side == chunk.side), None)
    return chunk.ts_ns(chunk.when(chunk.offset + done)) if first is None else first.ts_ns(first.one)


def _origins(flows: Flows, numbers: list[int]) -> dict[int, _Origin]:
    """Some connections by number, all made at once."""
    columns = flows.columns(np.array(numbers, np.int64))
    side = np.zeros(len(numbers), np.int64)
    ips, ports, syn = (
        zip(columns.ips(side), columns.ips(1 - side), strict=True),
        columns.port.tolist(),
        columns.syn.tolist(),
    )
    fields = (
        columns.connection_ids().tolist(),
        columns.first_ts_ns.tolist(),
        columns.oriented.tolist(),
        ips,
        ports,
        syn,
    )
    return dict(zip(numbers, map(_Origin._make, zip(*fields, strict=True)), strict=True))


def _earliest(new: Sequence[_StreamChunk]) -> _StreamChunk | None:
    """The chunk with the first packet of all, None if there are only ends."""
    first: _StreamChunk | None = None
    for chunk in new:
        if chunk.one < chunk.two and (first is None or chunk.order() < first.order()):
            first = chunk
    return first


def _next_look(so_far: int) -> int:
    """How many bytes of both sides there are to be when the protocols are asked again."""
    return so_far + (1 if so_far < EAGER_BYTES else so_far // 2)


def _openings(hold: _Hold, of: _Origin, final: bool) -> tuple[_SideOpening, _SideOpening]:
    """What each side began with: its bytes up to the first gap."""
    one, two = (
        _SideOpening(bytes(x.data), of.syn[side] and x.first <= 0, x.closed or final, x.searched)
        for side, x in enumerate(hold.began)
    )
    return one, two


def _later(hold: _Hold, final: bool) -> tuple[_SideOpening, _SideOpening]:
    """The longest run of bytes behind the first gap of each side; a side without a gap as it began."""
    one, two = (_SideOpening(bytes(x.later or x.data), False, final) for x in hold.began)
    return one, two


def _events(new: Sequence[_StreamChunk]) -> Iterator[tuple[_StreamChunk, int]]:
    """Chunk and place of each packet of some chunks, in the order in which the whole input has them."""
    # Most connections are recognised by their first packets, so no more is looked at than is asked for.
    heap = [(p.order(), i, p.one) for i, p in enumerate(new) if p.one < p.two]
    heapq.heapify(heap)
    while heap:
        _, i, k = heap[0]
        chunk = new[i]
        yield chunk, k
        if k + 1 < chunk.two:
            heapq.heapreplace(heap, (chunk.packets.value(ORDER, k + 1), i, k + 1))
        else:
            heapq.heappop(heap)


def _stranger(openings: tuple[_SideOpening, _SideOpening]) -> str:
    """Why nobody claims the connection, for ``problems.reason``."""
    for opening in openings:
        # TLS record types handshake (0x16) and application data (0x17), version 3.x (RFC 8446, 5.1).
        if len(opening.data) >= 3 and opening.data[0] in (0x16, 0x17) and opening.data[1] == 3 and opening.data[2] <= 4:
            return "tls"
    return "foreign"


def _stream_chunks(chunks: StreamChunks) -> Iterator[tuple[int, list[_StreamChunk]]]:
    """The chunks of each connection, each with its packets."""
    packets = PacketIndex(
        np.stack(
            [
                chunks.piece_offset, chunks.piece_length, chunks.piece_ts_ns, chunks.piece_number,
                chunks.piece_file, chunks.piece_order,
            ]
        )
    )  # fmt: skip
    buffer, bounds = chunks.buffer, chunks.piece_first.tolist()
    columns = (
        chunks.flow, chunks.side, chunks.start, chunks.length, chunks.offset, chunks.gap_after,
        chunks.ended,
    )  # fmt: skip
    new: list[_StreamChunk] = []
    number = -1
    rows = zip(*(x.tolist() for x in columns), bounds[:-1], bounds[1:], strict=True)
    for flow, side, start, length, offset, gap_after, ended, one, two in rows:
        if flow != number:
            if new:
                yield number, new
            number, new = flow, []
        new.append(_StreamChunk(side, buffer, start, length, offset, packets, one, two, gap_after, ended))
    if new:
        yield number, new


def _copies(new: Sequence[_StreamChunk]) -> list[_StreamChunk]:
    """The same chunks, all of one feed and connection, over one buffer of their own."""
    some = [chunk for chunk in new if chunk.length or chunk.ended or chunk.gap_after]
    full = [chunk for chunk in some if chunk.length]
    if not full:
        return [replace(chunk, buffer=np.empty(0, np.uint8), packets=_NO_PACKETS, one=0, two=0) for chunk in some]
    # Chunks of a connection lie next to each other, and so do their packets.
    low, high, one, two = full[0].start, full[-1].start + full[-1].length, full[0].one, full[-1].two
    buffer, packets = full[0].buffer[low:high].copy(), PacketIndex(full[0].packets.part(one, two).copy())
    return [
        _StreamChunk(
            p.side, buffer, p.start - low if p.length else 0, p.length, p.offset, packets, p.one - one, p.two - one,
            p.gap_after, p.ended,
        )
        for p in some
    ]  # fmt: skip


def _joined(held: list[_StreamChunk]) -> list[_StreamChunk]:
    """Held chunks of a side that follow each other, made one; side by side."""
    runs: list[list[_StreamChunk]] = []
    for chunk in sorted(held, key=lambda chunk: chunk.side):
        before = runs[-1][-1] if runs else None
        if before is not None and before.side == chunk.side and before.offset + before.length == chunk.offset:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [run[0] if len(run) == 1 else _join(run) for run in runs]


def _join(run: list[_StreamChunk]) -> _StreamChunk:
    data = np.concatenate([p.buffer[p.start : p.start + p.length] for p in run])
    packets = np.concatenate([p.packets.part(p.one, p.two) for p in run], axis=1)
    last = run[-1]
    return _StreamChunk(
        last.side,
        data,
        0,
        len(data),
        run[0].offset,
        PacketIndex(packets),
        0,
        packets.shape[1],
        last.gap_after,
        last.ended,
    )
