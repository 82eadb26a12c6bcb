"""Ordered bytes to message spans.

``streams`` feeds it stretches of stream bytes; it decides which protocol a connection speaks, by evidence,
and where each message begins and ends. It promises that every captured byte ends up in exactly one message or in
one `undecoded` problem, whatever the bytes are.

The hard part is a direction's state, :class:`_Side`. It is in step (``SYNC``), searching (``SEARCH``: after a gap, at a
late start, after bad framing where the protocol allows it) or given up (``STOP``). A message cut by a gap is
``pending``: where its length is known the bytes behind the gap still belong to it, and the next message begins
at its end without a search. A connection nobody has claimed yet is *held*: its first bytes are copied until a
protocol claims it or none can.

Rows must not depend on how the input was cut into windows. So the protocols are asked at places that the stream alone
decides: piece by piece in the order in which ``streams`` gave them out, and once more when both sides have ended.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from typing import Protocol as Shape

import numpy as np
from numpy.typing import NDArray

from mqpcap.decode import bytecode as ip
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
"""Up to here the protocols are asked with every piece; beyond it each time half as much again has come."""
HELD_BYTES = 128 << 20
"""So much is held of all connections together; above it a connection is decided by what there is of it."""
PIECE_BYTES = 256
"""What a held piece costs besides its bytes, as it counts where a connection has more than FEW_PIECES of them."""
FEW_PIECES = 64
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
    """A stretch of stream that did not become a message; ``ts_ns`` is when its first byte was captured."""

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
class _Piece:
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

    def part(self, one: int, two: int) -> "_Piece":
        """A copy of the bytes from ``one`` to ``two``, which more may follow."""
        own = self.buffer[self.start + one : self.start + two].copy()
        packets = PacketIndex(self.packets.part(self.one, self.two).copy())
        return _Piece(self.side, own, 0, two - one, self.offset + one, packets, 0, self.two - self.one, False, False)

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
class _Side:
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

    def take(self, piece: _Piece, k: int) -> None:
        """Take the bytes of the k-th packet of a piece in."""
        offset, length = piece.packets.value(AT, k), piece.packets.value(SIZE, k)
        self.seen_bytes += length
        if self.first < 0:
            self.first, self._run = offset, self.data
        elif offset != self._at:
            self.closed, self._run = True, bytearray()
        self._at = offset + length
        self._run += piece.bytes_of(k, OPENING_BYTES - len(self._run))
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

    ``weak`` are the claims of protocols it fits but whose port it does not use: good if its server turns out to
    speak one. Two with either side as the client are there if content does not say who is; the better guess is first.
    ts_ns is the time of the last packet looked at; ``full`` when no more bytes are looked at.
    """

    pieces: list[_Piece] = field(default_factory=list)
    began: tuple[_Began, _Began] = field(default_factory=lambda: (_Began(), _Began()))
    ended: list[bool] = field(default_factory=lambda: [False, False])
    ask_at_bytes: int = 1
    weak: list[_Choice] = field(default_factory=list)
    ts_ns: int = 0
    full: bool = False
    held_bytes: int = 0
    """What the pieces count for."""


class ConnectionView(Shape):
    """What tables say of a connection: who speaks, as what, and how often."""

    @property
    def protocol(self) -> MessageQueue | None:
        """Whose messages it carries, None if nobody's."""
        ...

    @property
    def identified_by(self) -> str | None:
        """By what it was told; None if it was not."""
        ...

    @property
    def client(self) -> int:
        """The side (0 or 1) that speaks as the client."""
        ...

    @property
    def messages(self) -> tuple[int, int]:
        """How many messages each side sent."""
        ...


@dataclass(slots=True)
class ConnectionState:
    """A connection as this room sees it; ``client`` is the side (0 or 1) that speaks as the client."""

    flow: int
    protocol: MessageQueue | None = None
    identified_by: str | None = None
    decided: bool = False
    client: int = 0
    reason: str = ""
    sides: tuple[_Side, _Side] = field(default_factory=lambda: (_Side(), _Side()))
    hold: _Hold | None = None
    """Before the decision, unless the first look brings it."""
    left: list[_Piece] = field(default_factory=list)
    """After the decision: the beginning of a message whose rest comes later."""
    connection: Evidence | None = None

    @property
    def messages(self) -> tuple[int, int]:
        """How many messages each side sent so far."""
        return self.sides[0].messages, self.sides[1].messages

    def direction(self, side: int) -> Direction:
        """The direction in which a side's bytes flow."""
        return DIRECTIONS[side != self.client]


class _Room:
    """Where a scan puts what it found; ``alike`` says of all messages that they have the only form, or no flaw."""

    def __init__(self) -> None:
        arrays = (memoryview(np.zeros(SCAN_ROOM, np.int64)) for _ in range(6))
        self.starts, self.ends, self.forms, self.ops, self.flaws, self.alike = arrays
        self.split = self.starts, self.ends, self.forms, self.ops, self.flaws

    def found(self, split: bool, layouts: memoryview) -> ScanHits:
        """The same for rows of some layouts."""
        forms, flaws = (self.forms, self.flaws) if split else (self.alike, self.alike)
        return ScanHits(self.starts, self.ends, forms, self.ops, flaws, layouts)


class _Entry:
    """A layout as the framing uses it: the compiled one, the description, and what follows an operation."""

    def __init__(
        self, protocol: MessageQueue, program: Program, compiled_: CompiledLayout, index: Mapping[str, int], room: _Room
    ) -> None:
        self.compiled = compiled_
        self.described = protocol.layout(compiled_.name)
        self.table = memoryview(compiled_.table)
        self.then = {op: index[name] for op, name in self.described.then.items()}
        splitter = self.described.splitter
        names = [compiled_.name] if splitter is None else splitter.layouts
        self.layouts = [index[name] for name in names]
        self.target = program.target(compiled_.name, room.starts, room.ends, room.ops)
        self.found = room.found(splitter is not None, memoryview(np.array(self.layouts, np.int64)))


class _Known:
    """A protocol's Program as the framing uses it."""

    def __init__(self, protocol: MessageQueue, room: _Room) -> None:
        program = compiled(protocol)
        self.machine = program.interpreter()
        self.alternatives = memoryview(program.alt_pc)
        self.index = {layout.name: i for i, layout in enumerate(program.layouts)}
        self.entries = [_Entry(protocol, program, layout, self.index, room) for layout in program.layouts]


class Framer:
    """The room's state: every connection's two directions.

    ``feed`` takes what ``streams`` has ready and returns the messages found and how many bytes of each stretch
    are done with; ``finish`` settles what is still open. ``problems`` grows with the stretches that are no message.
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
        self._unsettled: set[int] = set()
        self.ports = frozenset(port for p in protocols.values() for port in p.ports)
        self._told_ports = self.ports | {d.port for d in decode_as}
        self._asking: dict[tuple[int, int, bool], list[tuple[MessageQueue, int, bool, bool]]] = {}

    def __getstate__(self) -> dict[str, object]:
        """All but what can be made anew; between two calls no row is here."""
        anew = ("_programs", "_room", "_main", "_replayed")
        return {name: value for name, value in self.__dict__.items() if name not in anew}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._make_room()

    def _make_room(self) -> None:
        """What only serves to work: Programs, and where a scan puts what it found and rows are collected."""
        self._programs: dict[str, _Known] = {}
        self._main: dict[str, MessageBuffer] = {}
        self._replayed: dict[str, MessageBuffer] = {}
        self._room = _Room()

    def _of(self, protocol: MessageQueue) -> _Known:
        """What is known of a protocol."""
        known = self._programs.get(protocol.name)
        if known is None:
            known = self._programs[protocol.name] = _Known(protocol, self._room)
        return known

    # -- what comes in ---------------------------------------------------------------------------------

    def feed(self, stretches: StreamChunks, flows: Flows) -> tuple[list[Frames], I64, I64]:
        """Messages in the new bytes, grouped by protocol and buffer; per stretch the bytes done with, and how many are
        wanted behind them before it is worth showing again (``Reassembler.keep``)."""
        view = memoryview(stretches.buffer)
        origins = self._origins(stretches.flow, flows)
        consumed: list[int] = []
        wanted: list[int] = []
        for number, new in _pieces(stretches):
            talk = self.talks.get(number)
            if talk is None:
                talk = self.talks[number] = ConnectionState(number)
            if talk.decided or self._recognised(talk, origins[number], new):
                for piece in new:
                    done = self._walk(talk, piece, view, self._main, 0)
                    consumed.append(done)
                    wanted.append(max(talk.sides[piece.side].until - piece.offset - done, 0))
                self._note_unsettled(talk)
            else:
                consumed += [piece.length for piece in new]
                wanted += [0] * len(new)
        # Servers that other connections of this window told earlier count, whichever connection was looked at first.
        for talk, of in self._full:
            assert talk.hold is not None
            self._decide(talk, of, self._by_peer(talk, of, until_ns=talk.hold.ts_ns))
        self._full = []
        return self._collect(stretches.buffer), np.array(consumed, np.int64), np.array(wanted, np.int64)

    def finish(self, flows: Flows, over: Iterable[int] | None = None) -> list[Frames]:
        """Messages that were still open; after it every byte is accounted for. ``over``: only of these connections."""
        talks = [*self.talks.values()] if over is None else [self.talks[n] for n in over if n in self.talks]
        waiting = [talk for talk in talks if not talk.decided]
        origins = _origins(flows, [talk.flow for talk in waiting])
        for talk in waiting:
            choice = self._claimed(talk, origins[talk.flow], final=True)
            if choice is not None:
                self._decide(talk, origins[talk.flow], choice)
        for talk in waiting:
            if not talk.decided:
                self._decide(talk, origins[talk.flow], self._by_peer(talk, origins[talk.flow]))
        for talk in talks:
            for number, side in enumerate(talk.sides):
                if side.pending is not None or side.skip_from >= 0:
                    self._give_up_pending(talk, number, side)
                    self._end_skip(talk, number, side)
        return self._collect(np.empty(0, np.uint8))

    def _note_unsettled(self, talk: ConnectionState) -> None:
        if talk.protocol is not None and any(s.pending is not None or s.step is SEARCH for s in talk.sides):
            self._unsettled.add(talk.flow)
        else:
            self._unsettled.discard(talk.flow)

    def unsettled_flows(self) -> frozenset[int]:
        """Connections of which a side holds bytes that may become a message older than others given out."""
        return frozenset(self._unsettled)

    def forget(self, over: I64) -> None:
        """Know nothing more of connections that were finished. Servers stay known: others are recognised by them."""
        for number in over.tolist():
            self.talks.pop(number, None)
            self._unsettled.discard(number)

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

    def _recognised(self, talk: ConnectionState, of: _Origin, new: list[_Piece]) -> bool:
        """Ask the protocols about a connection with these new pieces; when False they are held."""
        choice = self._at_sight(talk, of, new) if talk.hold is None else None
        if choice is None:
            choice = self._looked_at(talk, of, new)
        if choice is None:
            return False
        first = _earliest(new) if talk.hold is None else None
        self._decide(talk, of, choice, first.ts_ns(first.one) if first is not None else 0)
        return True

    def _at_sight(self, talk: ConnectionState, of: _Origin, new: list[_Piece]) -> _Choice | None:
        """Who takes a connection by its very first packet; None: it is to be held and looked at.

        Nearly all are told by that, and connections may be very many: so nothing is copied or noted for it.
        """
        piece = _earliest(new)
        length = 0 if piece is None else piece.packets.value(SIZE, piece.one)
        if piece is None or not 0 < length < OPENING_BYTES:
            talk.hold = _Hold()
            return None
        openings = _Held(b"", of.syn[0], False), _Held(b"", of.syn[1], False)
        spoke = openings[piece.side]
        spoke.data = piece.bytes_of(piece.one, length)
        spoke.start = spoke.start and piece.packets.value(AT, piece.one) <= 0
        choice = self._claim(of, openings, [], False)
        if choice is None:
            talk.hold = _Hold(ask_at_bytes=_next_look(length))
            for began, held in zip(talk.hold.began, openings, strict=True):
                began.searched = held.searched
        return choice

    def _looked_at(self, talk: ConnectionState, of: _Origin, new: list[_Piece]) -> _Choice | None:
        """Who takes a connection by all that is known of it; None: nobody yet, and the new pieces are held."""
        hold = talk.hold
        assert hold is not None
        choice: _Choice | None = None
        for piece, k in _events(new):
            hold.ts_ns = piece.ts_ns(k)
            began = hold.began[piece.side]
            closed = began.closed
            began.take(piece, k)
            full = began.seen_bytes >= OPENING_BYTES
            so_far = hold.began[0].seen_bytes + hold.began[1].seen_bytes
            if full or so_far >= hold.ask_at_bytes or began.closed != closed:
                hold.ask_at_bytes = _next_look(so_far)
                choice = self._claimed(talk, of, full)
                if choice is None and full and not hold.weak:
                    choice = self._nobody(of, _openings(hold, of, True))
                if choice is not None:
                    return choice
                if full:
                    hold.full = True
                    break
        for piece in new:
            hold.ended[piece.side] = hold.ended[piece.side] or piece.ended
        if all(hold.ended) and not hold.full:
            choice = self._claimed(talk, of, final=True)
        if choice is None and not self._held(hold, new):
            return self._claimed(talk, of, final=True) or self._by_peer(talk, of)
        if hold.full:
            self._full.append((talk, of))
        return choice

    def _held(self, hold: _Hold, new: Sequence[_Piece]) -> bool:
        """Copy what is new of a connection; False when too much is held already."""
        size = sum(piece.length for piece in new)
        if len(hold.pieces) > FEW_PIECES:
            size += PIECE_BYTES * len(new)
        if self._held_bytes + size > HELD_BYTES:
            self.counts["opening_cap"] += 1
            return False
        self._held_bytes += size
        hold.held_bytes += size
        hold.pieces += _copies(new)
        return True

    def _decide(self, talk: ConnectionState, of: _Origin, choice: _Choice, ts_ns: int = 0) -> None:
        """Give the connection to a protocol or to nobody, and take in what was held of it.

        ``ts_ns`` is the time of the packet that decided a connection of which nothing was held.
        """
        hold, talk.hold = talk.hold, None
        talk.decided, talk.client = True, choice.client
        if choice.protocol is not None:
            talk.protocol, talk.identified_by = choice.protocol, choice.identified_by
            self._begin(talk, of, choice.protocol, choice.claim)
            if choice.identified_by != "peer" and not choice.guess:
                server = 1 - choice.client
                told = choice.protocol.name, of.ips[server], of.ports[server]
                self._tell(told, hold.ts_ns if hold is not None else ts_ns)
        else:
            talk.reason = choice.claim.reason
        if hold is None:
            return
        self._held_bytes -= hold.held_bytes
        buffer, shift = np.empty(0, np.uint8), 0
        for piece in _joined(hold.pieces):
            if piece.buffer is not buffer:
                buffer, shift = piece.buffer, self._keep(piece.buffer)
            done = self._walk(talk, piece, memoryview(buffer), self._replayed, shift)
            if done < piece.length:
                talk.left.append(piece.part(done, piece.length))

    def _begin(self, talk: ConnectionState, of: _Origin, protocol: MessageQueue, claim: Claim) -> None:
        index = self._of(protocol).index
        server = 1 - talk.client
        ip, port = of.ips[server], of.ports[server]
        began = [claim.c2s or "", claim.s2c or ""]
        talk.connection = Evidence(of.connection_id, ip, port, of.syn[0] or of.syn[1], of.first_ts_ns, layouts=began)
        for number, side in enumerate(talk.sides):
            side.layout = index.get(began[number != talk.client], -1)
            if side.layout < 0:
                side.step = STOP
            elif not of.syn[number]:
                side.step = SEARCH

    def _tell(self, server: Server, ts_ns: int) -> None:
        self.servers[server] = min(self.servers.get(server, ts_ns), ts_ns)

    def _claimed(self, talk: ConnectionState, of: _Origin, final: bool) -> _Choice | None:
        """Who takes a connection by what is known of it; None to wait. ``final``: nothing follows."""
        hold = talk.hold
        assert hold is not None
        hold.weak = []
        return self._claim(of, _openings(hold, of, final), hold.weak, final, hold)

    def _claim(
        self,
        of: _Origin,
        openings: "tuple[_Held, _Held]",
        weak: list[_Choice],
        final: bool,
        hold: _Hold | None = None,
    ) -> _Choice | None:
        """The same by how its sides began, and by what a hold knows of the bytes behind a gap."""
        choice, waits = self._asked(weak, of, openings, final)
        if choice is None and not waits and hold is not None and any(x.later for x in hold.began):
            # Nothing at the beginning; what comes behind a gap is as good as a late start.
            choice, waits = self._asked(weak, of, _later(hold, final), final)
        if choice is not None:
            return choice
        if (weak or not final) and (weak or waits or not any(x.data for x in openings)):
            return None
        return self._nobody(of, openings)

    def _asked(
        self, weak: list[_Choice], of: _Origin, openings: "tuple[_Held, _Held]", final: bool
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
                weak.append(_Choice(protocol, claim, client, "peer"))
        if best_rank[0] is YES and not best_rank[1] and best is not None:
            either = [x for x in sure if x.protocol is best.protocol]
            if len(either) > 1:
                weak += sorted(either, key=lambda x: x.client != self._client_by_port(of))
                return None, False
        if best_rank[0] is YES or not waits:
            return best, False
        return None, waits

    def _candidates(self, of: _Origin) -> list[tuple[MessageQueue, int, bool, bool]]:
        """Who may be asked about a connection: protocol, client, whether on its port, whether told to.

        Those on their own port come first.
        """
        (a, b), told_ports = of.ports, self._told_ports
        ports = a if a in told_ports else -1, b if b in told_ports else -1
        key = ports[0], ports[1], of.oriented
        if key not in self._asking:
            found = []
            for protocol in self.protocols.values():
                for client in range(1 if of.oriented else 2):
                    server_port = ports[1 - client]
                    told = {d.protocol for d in self.decode_as if d.port == server_port}
                    if not told or protocol.name in told:
                        found.append((protocol, client, bool(told) or server_port in protocol.ports, bool(told)))
            self._asking[key] = sorted(found, key=lambda asked: not asked[2])
        return self._asking[key]

    def _nobody(self, of: _Origin, openings: "tuple[_Held, _Held]") -> _Choice:
        """The connection is not ours."""
        return _Choice(None, Claim(Verdict.NO, reason=_stranger(openings)), self._client_by_port(of), None)

    def _by_peer(self, talk: ConnectionState, of: _Origin, until_ns: int | None = None) -> _Choice:
        """A connection that fits a protocol is taken if another one to the same server was told to be of it.

        ``until_ns``: servers told later do not count, so that windows and shares of the input change no row.
        """
        assert talk.hold is not None
        for choice in talk.hold.weak:
            assert choice.protocol is not None
            server = choice.protocol.name, of.ips[1 - choice.client], of.ports[1 - choice.client]
            if server in self.servers and (until_ns is None or self.servers[server] <= until_ns):
                return choice
            self.doubted.add(server)
        guesses = (choice for choice in talk.hold.weak if choice.guess)
        return next(guesses, None) or self._nobody(of, _openings(talk.hold, of, True))

    def _client_by_port(self, of: _Origin) -> int:
        """The client where content does not say: the SYN's sender, else the side whose port is no server's."""
        if of.oriented:
            return 0
        a, b = of.ports
        if (a in self.ports) != (b in self.ports):
            return int(a in self.ports)
        return int(a < b)

    def _opening(
        self, protocol: MessageQueue, openings: "tuple[_Held, _Held]", client: int, on_port: bool, forced: bool
    ) -> Opening:
        c2s, s2c = openings[client], openings[1 - client]

        def find_run(direction: Direction, layout: str, n: int) -> int | None:
            side = c2s if direction == "c2s" else s2c
            return self._first(side, protocol, layout, n)

        return Opening(c2s.data, s2c.data, c2s.start, s2c.start, c2s.ended, s2c.ended, on_port, forced, find_run)

    def _first(self, side: "_Held", protocol: MessageQueue, layout: str, in_a_row: int) -> int | None:
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
        compiled_, machine = entry.compiled, known.machine
        machine.packing(compiled_.packed_at, compiled_.packed_mask)
        found: tuple[int, bool] = machine.search(
            view, at, limit, compiled_.header_pc, compiled_.op_reg, entry.table, known.alternatives, ended, in_a_row
        )
        return found

    def _walk(
        self, talk: ConnectionState, piece: _Piece, view: memoryview, into: dict[str, MessageBuffer], shift: int
    ) -> int:
        """Take a stretch in; returns how many of its bytes are done with."""
        number = piece.side
        side = talk.sides[number]
        ours = 0
        if talk.left:
            piece, ours = self._with_held(talk, piece)
        if ours:
            view, into, shift = memoryview(piece.buffer), self._replayed, self._keep(piece.buffer)
        if piece.offset > side.at:
            self._gap(talk, number, side, piece.offset)
        stop = piece.offset + piece.length
        hard = piece.gap_after or piece.ended
        base = piece.start - piece.offset
        side.until = 0
        if side.pending is not None:
            self._through_pending(talk, number, side, piece)
        while side.at < stop:
            if talk.protocol is None or side.step is STOP:
                reason = talk.reason if talk.protocol is None else "bad_framing"
                self._skip(side, side.at, stop - side.at, piece, reason)
                side.at = stop
            elif side.step is SEARCH:
                if not self._resync(talk, side, piece, view, base, stop, hard):
                    break
            elif not self._scan(talk, side, piece, view, base, stop, hard, into, shift):
                break
        if piece.ended and (side.pending is not None or side.skip_from >= 0):
            self._give_up_pending(talk, number, side)
            self._end_skip(talk, number, side)
        done = (stop if hard else side.at) - piece.offset
        if done < ours:
            talk.left.append(piece.part(done, ours))
        return done - ours if done > ours else 0

    def _keep(self, buffer: NDArray[np.uint8]) -> int:
        """Put bytes behind the replay buffer; returns where they begin in it."""
        shift = self._replay_bytes
        self._replay.append(buffer)
        self._replay_bytes += len(buffer)
        return shift

    def _with_held(self, talk: ConnectionState, piece: _Piece) -> tuple[_Piece, int]:
        """The stretch with what was held of the same side in front of it, and how many bytes that was."""
        mine = [p for p in talk.left if p.side == piece.side]
        if not mine:
            return piece, 0
        talk.left = [p for p in talk.left if p.side != piece.side]
        held = _join(mine)
        if held.offset + held.length != piece.offset:
            # A gap behind what was held: nothing can extend it.
            held = replace(held, gap_after=True)
            self._walk(talk, held, memoryview(held.buffer), self._replayed, self._keep(held.buffer))
            return piece, 0
        return _join([held, piece]), held.length

    def _gap(self, talk: ConnectionState, number: int, side: _Side, offset: int) -> None:
        """Bytes up to ``offset`` were never captured."""
        missing = offset - side.at
        self._end_skip(talk, number, side)
        if side.pending is not None:
            pending = side.pending
            if pending.end > offset:
                side.at = offset
                return
            self._give_up_pending(talk, number, side)
            if pending.end == offset:
                side.at = offset
                return
            missing = offset - (pending.end if pending.end > side.at else side.at)
        side.gap += missing
        side.at = offset
        if side.step is SYNC:
            side.step = SEARCH

    def _resync(
        self, talk: ConnectionState, side: _Side, piece: _Piece, view: memoryview, base: int, stop: int, hard: bool
    ) -> bool:
        """Search for a message; False when the bytes to tell are not here yet."""
        protocol = talk.protocol
        assert protocol is not None
        layout = self._of(protocol).entries[side.layout].described
        wanted = layout.searched or layout.name
        at, found = self._search(protocol, wanted, view, base + side.at, base + stop, hard, layout.in_a_row)
        skipped = at - base - side.at
        if not found and hard:
            skipped = stop - side.at
        if skipped:
            self._skip(side, side.at, skipped, piece, "search")
            side.at += skipped
        if not found:
            return False
        self._end_skip(talk, piece.side, side)
        side.step, side.resynced = SYNC, True
        return True

    def _scan(
        self,
        talk: ConnectionState,
        side: _Side,
        piece: _Piece,
        view: memoryview,
        base: int,
        stop: int,
        hard: bool,
        into: dict[str, MessageBuffer],
        shift: int,
    ) -> bool:
        """Frame what is in step; False when the rest of the stretch is no whole message yet."""
        assert talk.protocol is not None
        known = self._of(talk.protocol)
        entry = known.entries[side.layout]
        if entry.described.splitter is not None:
            return self._scan_split(talk, side, piece, view, base, stop, hard, into, shift, entry)
        n, code, at, known_end = known.machine.scan(
            entry.target, view, base + side.at, base + stop, hard, bool(entry.then)
        )
        if n:
            self._put(talk, side, piece, base, entry.found, n, into, shift)
            side.at = at - base
            if entry.then:
                side.layout = entry.then.get(self._room.ops[n - 1], side.layout)
        if code == ip.SCAN_FULL:
            return True
        if code == ip.SCAN_BAD:
            self._bad_framing(side, entry.described)
            return True
        if hard and side.at < stop:
            self._cut(talk, side, piece, view, base, stop, known_end)
        side.until = known_end - base
        return False

    def _bad_framing(self, side: _Side, layout: Layout) -> None:
        if layout.on_bad == "stop":
            side.step = STOP
        else:
            side.step = SEARCH

    def _scan_split(
        self,
        talk: ConnectionState,
        side: _Side,
        piece: _Piece,
        view: memoryview,
        base: int,
        stop: int,
        hard: bool,
        into: dict[str, MessageBuffer],
        shift: int,
        entry: _Entry,
    ) -> bool:
        """The same for a layout with a splitter."""
        splitter = entry.described.splitter
        assert splitter is not None
        n, at, stopped = splitter.many(view, base + side.at, base + stop, hard, self._room.split)
        if n:
            self._put(talk, side, piece, base, entry.found, n, into, shift)
            side.at = at - base
        if stopped is None:
            return side.at < stop
        if stopped.verdict == "bad":
            self._bad_framing(side, entry.described)
            return True
        if hard:
            layout = side.layout
            if stopped.layout:
                side.layout = entry.layouts[splitter.layouts.index(stopped.layout)]
            self._cut(talk, side, piece, view, base, stop, stopped.known_end)
            side.layout = layout
        side.until = stopped.known_end - base
        return False

    def _put(
        self,
        talk: ConnectionState,
        side: _Side,
        piece: _Piece,
        base: int,
        found: ScanHits,
        n: int,
        into: dict[str, MessageBuffer],
        shift: int,
    ) -> None:
        """Rows for the first ``n`` whole messages that were found in a stretch."""
        assert talk.protocol is not None
        rows = into.get(talk.protocol.name)
        if rows is None:
            rows = into[talk.protocol.name] = MessageBuffer()
        rows.put(
            found, n, piece.packets, piece.one, piece.two, base, shift, talk.flow, piece.side, side.gap, side.resynced
        )
        side.messages += n
        side.gap, side.resynced = 0, False

    def _cut(
        self,
        talk: ConnectionState,
        side: _Side,
        piece: _Piece,
        view: memoryview,
        base: int,
        stop: int,
        known_end: int,
    ) -> None:
        """A message ends in a hole or with the stream: a row if its header was captured, else undecoded bytes."""
        assert talk.protocol is not None
        known = self._of(talk.protocol)
        entry = known.entries[side.layout]
        compiled_, machine = entry.compiled, known.machine
        left = stop - side.at
        op = -1
        whole = known_end >= 0
        if compiled_.header_pc >= 0:
            whole = machine.header(view, base + side.at, base + stop, compiled_.header_pc) == ip.DONE
            op = machine.register(compiled_.op_reg) if compiled_.op_reg >= 0 else -1
        if not whole:
            self._skip(side, side.at, left, piece, "truncated")
            side.at = stop
            return
        first = piece.when(side.at)
        head = bytes(view[base + side.at : base + min(stop, side.at + HEAD_BYTES)])
        side.pending = _Pending(
            side.at, known_end - base if known_end >= 0 else -1, head, left, side.layout, op,
            piece.brought(first, first), piece.brought(first, piece.when(stop - 1)), side.gap, side.resynced,
        )  # fmt: skip
        side.gap, side.resynced = 0, False
        side.at = stop
        side.layout = entry.then.get(op, side.layout)

    def _through_pending(self, talk: ConnectionState, number: int, side: _Side, piece: _Piece) -> None:
        """Bytes behind the hole that still belong to the message with it."""
        pending = side.pending
        assert pending is not None
        to = min(pending.end, piece.offset + piece.length)
        if to > side.at:
            new = piece.brought(piece.when(side.at), piece.when(to - 1))
            pending.last = max(pending.last, new, key=lambda x: (x[2], x[1]))
            pending.captured += to - side.at
            side.at = to
        if side.at >= pending.end:
            self._give_up_pending(talk, number, side)

    def _give_up_pending(self, talk: ConnectionState, number: int, side: _Side) -> None:
        """The row of a message with a hole."""
        pending, side.pending = side.pending, None
        if pending is None:
            return
        assert talk.protocol is not None
        start = self._keep(np.frombuffer(pending.head, np.uint8))
        side.messages += 1
        rows = self._replayed.setdefault(talk.protocol.name, MessageBuffer())
        (ts_ns, packet, file), (end_ts_ns, last_packet, last_file) = pending.first, pending.last
        rows.add(
            (
                start, start + len(pending.head), pending.layout, pending.op, int(Flaw.TRUNCATED), talk.flow, number,
                pending.offset, pending.captured, ts_ns, end_ts_ns, packet, last_packet, file, last_file,
                pending.gap_before, pending.resynced,
            )
        )  # fmt: skip

    # -- what is no message ----------------------------------------------------------------------------

    def _skip(self, side: _Side, offset: int, length: int, piece: _Piece, reason: str) -> None:
        if side.skip_from < 0:
            side.skip_from, side.skip_length = offset, 0
            k = piece.when(offset)
            side.skip_ts_ns, side.skip_packet = piece.ts_ns(k), piece.packets.value(NUMBER, k)
            side.skip_reason = reason
        side.skip_length += length

    def _end_skip(self, talk: ConnectionState, number: int, side: _Side) -> None:
        if side.skip_from >= 0:
            self.problems.append(
                Problem(
                    talk.flow, number, side.skip_from, side.skip_length, "undecoded", side.skip_reason,
                    side.skip_ts_ns, side.skip_packet,
                )
            )
        side.skip_from = -1


@dataclass(slots=True)
class _Held:
    """The first contiguous bytes of one side; ``searched``: what was found in them so far."""

    data: bytes
    start: bool
    ended: bool
    searched: "_Searched" = field(default_factory=dict)


_Searched = dict[tuple[str, str, int], tuple[int, bool, tuple[int, bool]]]
"""By protocol, layout and number of messages: place, whether they are there, and in how many bytes, ended or not."""


def _origins(flows: Flows, numbers: list[int]) -> dict[int, _Origin]:
    """Some connections by number, all made at once."""
    of = flows.columns(np.array(numbers, np.int64))
    side = np.zeros(len(numbers), np.int64)
    ips, ports, syn = zip(of.ips(side), of.ips(1 - side), strict=True), of.port.tolist(), of.syn.tolist()
    fields = (of.connection_ids().tolist(), of.first_ts_ns.tolist(), of.oriented.tolist(), ips, ports, syn)
    return dict(zip(numbers, map(_Origin._make, zip(*fields, strict=True)), strict=True))


def _earliest(new: Sequence[_Piece]) -> _Piece | None:
    """The piece with the first packet of all, None if there are only ends."""
    first: _Piece | None = None
    for piece in new:
        if piece.one < piece.two and (first is None or piece.order() < first.order()):
            first = piece
    return first


def _next_look(so_far: int) -> int:
    """How many bytes of both sides there are to be when the protocols are asked again."""
    return so_far + (1 if so_far < EAGER_BYTES else so_far // 2)


def _openings(hold: _Hold, of: _Origin, final: bool) -> tuple[_Held, _Held]:
    """What each side began with: its bytes up to the first gap."""
    one, two = (
        _Held(bytes(x.data), of.syn[side] and x.first <= 0, x.closed or final, x.searched)
        for side, x in enumerate(hold.began)
    )
    return one, two


def _later(hold: _Hold, final: bool) -> tuple[_Held, _Held]:
    """The longest run of bytes behind the first gap of each side; a side without a gap as it began."""
    one, two = (_Held(bytes(x.later or x.data), False, final) for x in hold.began)
    return one, two


def _events(new: Sequence[_Piece]) -> Iterator[tuple[_Piece, int]]:
    """Piece and place of each packet of some pieces, in the order in which the whole input has them."""
    # Most connections are recognised by their first packets, so no more is looked at than is asked for.
    heap = [(p.order(), i, p.one) for i, p in enumerate(new) if p.one < p.two]
    heapq.heapify(heap)
    while heap:
        _, i, k = heap[0]
        piece = new[i]
        yield piece, k
        if k + 1 < piece.two:
            heapq.heapreplace(heap, (piece.packets.value(ORDER, k + 1), i, k + 1))
        else:
            heapq.heappop(heap)


def _stranger(openings: tuple[_Held, _Held]) -> str:
    """Why nobody claims the connection, for ``problems.reason``."""
    for opening in openings:
        # TLS record types handshake (0x16) and application data (0x17), version 3.x (RFC 8446, 5.1).
        if len(opening.data) >= 3 and opening.data[0] in (0x16, 0x17) and opening.data[1] == 3 and opening.data[2] <= 4:
            return "tls"
    return "foreign"


def _pieces(stretches: StreamChunks) -> Iterator[tuple[int, list[_Piece]]]:
    """The stretches of each connection, each with its packets."""
    packets = PacketIndex(
        np.stack(
            [
                stretches.piece_offset, stretches.piece_length, stretches.piece_ts_ns, stretches.piece_number,
                stretches.piece_file, stretches.piece_order,
            ]
        )
    )  # fmt: skip
    buffer, bounds = stretches.buffer, stretches.piece_first.tolist()
    columns = (
        stretches.flow, stretches.side, stretches.start, stretches.length, stretches.offset, stretches.gap_after,
        stretches.ended,
    )  # fmt: skip
    new: list[_Piece] = []
    number = -1
    rows = zip(*(x.tolist() for x in columns), bounds[:-1], bounds[1:], strict=True)
    for flow, side, start, length, offset, gap_after, ended, one, two in rows:
        if flow != number:
            if new:
                yield number, new
            number, new = flow, []
        new.append(_Piece(side, buffer, start, length, offset, packets, one, two, gap_after, ended))
    if new:
        yield number, new


def _copies(new: Sequence[_Piece]) -> list[_Piece]:
    """The same pieces, all of one feed and connection, over one buffer of their own."""
    some = [piece for piece in new if piece.length or piece.ended or piece.gap_after]
    full = [piece for piece in some if piece.length]
    if not full:
        return [replace(piece, buffer=np.empty(0, np.uint8), packets=_NO_PACKETS, one=0, two=0) for piece in some]
    # Pieces of a connection lie next to each other, and so do their packets.
    low, high, one, two = full[0].start, full[-1].start + full[-1].length, full[0].one, full[-1].two
    buffer, packets = full[0].buffer[low:high].copy(), PacketIndex(full[0].packets.part(one, two).copy())
    return [
        _Piece(
            p.side, buffer, p.start - low if p.length else 0, p.length, p.offset, packets, p.one - one, p.two - one,
            p.gap_after, p.ended,
        )
        for p in some
    ]  # fmt: skip


def _joined(held: list[_Piece]) -> list[_Piece]:
    """Held pieces of a side that follow each other, made one; side by side."""
    runs: list[list[_Piece]] = []
    for piece in sorted(held, key=lambda piece: piece.side):
        before = runs[-1][-1] if runs else None
        if before is not None and before.side == piece.side and before.offset + before.length == piece.offset:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [run[0] if len(run) == 1 else _join(run) for run in runs]


def _join(run: list[_Piece]) -> _Piece:
    data = np.concatenate([p.buffer[p.start : p.start + p.length] for p in run])
    packets = np.concatenate([p.packets.part(p.one, p.two) for p in run], axis=1)
    last = run[-1]
    return _Piece(
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
