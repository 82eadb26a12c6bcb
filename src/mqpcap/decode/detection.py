"""Decides which protocol a connection speaks, and which side is the client.

In: the first bytes of both sides, without a PROXY header. Out: a ``Choice``, or None while more bytes are needed.
Called by ``framing``.

Each protocol rates the bytes (``MessageQueue.claims``): YES decides; LIKELY decides on the protocol's own port, or if
another connection has proved that the server speaks the protocol. Nearly all connections are decided by their first
packet, without a copy. Unclaimed connections are held, OPENING_BYTES of a side at most, until a protocol claims them or
none can.

The hard part: the choice must not depend on windows or Spark shares. Protocols are asked at byte counts that the stream
alone determines, and a proved server counts from the capture time of its proof on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mqpcap.decode.foreign_protocols import foreign_protocol
from mqpcap.decode.message_buffer import LENGTH, OFFSET, TS_NS
from mqpcap.decode.proxy_header import ProxyHeader, may_begin_header, proxy_header
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.stream_chunk import Packet, StreamChunk, copies
from mqpcap.schema.protocol import Claim, Direction, MessageQueue, Opening, Verdict
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.headers import address_text

OPENING_BYTES = 256 << 10
"""Bytes of each side that are held to recognise a connection. Beyond them an unclaimed connection is foreign."""
EAGER_BYTES = 4 << 10
"""Up to here the protocols are asked with every packet; beyond it each time half as much again has come."""
HELD_BYTES = 128 << 20
"""Bytes held of all connections together; above it a connection is decided by what there is of it."""
CHUNK_BYTES = 256
"""Memory of a held chunk besides its bytes; it counts where a connection has more than FEW_CHUNKS of them."""
FEW_CHUNKS = 64
ALIKE_BYTES = 1500
"""First packets up to this size are cached: connections that start with the same bytes share one decision."""
MAX_ALIKE = 512
"""First packets in the cache; a full cache is emptied."""
MAX_SERVERS = 1 << 16
"""Servers that are remembered, and missing ones that are noted; beyond it the oldest are forgotten."""
YES, LIKELY, WAIT = Verdict.YES, Verdict.LIKELY, Verdict.WAIT

Server = tuple[str, str, int]
"""A protocol, and address and port of a server known to speak it."""
Told = tuple[Server, int]
"""A server, and the time of the packet that proved it."""


@dataclass(frozen=True, slots=True)
class DecodeAs:
    """``-d tcp.port==9092,flymq``: connections to that server port are read as that protocol."""

    port: int
    protocol: str


class Choice(NamedTuple):
    """Who takes a connection (None: nobody), as what, and which side is the client."""

    protocol: MessageQueue | None
    claim: Claim
    client: int
    identified_by: str | None
    is_guess: bool = False
    """Content fits with either side as the client, and no server is known: only the port numbers say which."""
    stranger: str | None = None
    """The foreign protocol of an unclaimed connection, None if it is not known."""
    proxied: ProxyHeader | None = None
    """The PROXY header in front of the client's stream."""


_UNASKED = Choice(None, Claim(Verdict.NO), 0, None)


class Origin(NamedTuple):
    """How a connection began: its endpoints (A, B), and whether each side's start is known.

    ``a_is_client``: the handshake says that A is the client. hi and lo are the halves of the addresses.
    """

    connection_id: int
    first_ts_ns: int
    a_is_client: bool
    version: int
    hi: tuple[int, int]
    lo: tuple[int, int]
    ports: tuple[int, int]
    start_known: tuple[bool, bool]

    def starts(self, first_a: int, first_b: int) -> tuple[bool, bool]:
        """Whether what each side begins with is the start of the connection, by the offsets of their first bytes.

        A side without a byte (-1) begins as the other does: its SYN may be recorded after the other's bytes.
        """
        is_known = self.start_known
        starts_a, starts_b = is_known[0] and first_a <= 0, is_known[1] and first_b <= 0
        return starts_a or (first_a < 0 and is_known[1]), starts_b or (first_b < 0 and is_known[0])

    def server(self, choice: Choice) -> Server:
        """The server as a choice has it."""
        assert choice.protocol is not None
        side = 1 - choice.client
        return choice.protocol.name, address_text(self.version, self.hi[side], self.lo[side]), self.ports[side]


def origins(flows: Flows, numbers: list[int]) -> dict[int, Origin]:
    """How some connections began, by number, all made at once."""
    if not numbers:
        return {}
    flow = flows.columns(np.array(numbers, np.int64))
    columns = (
        flow.cached_id,
        flow.first_ts_ns,
        flow.a_is_client,
        flow.version,
        flow.hi,
        flow.lo,
        flow.port,
        flow.start_known,
    )
    return dict(zip(numbers, map(Origin._make, zip(*(x.tolist() for x in columns), strict=True)), strict=True))


Looked = dict[tuple[str, str, int], tuple[int, bool, tuple[int, bool]]]
"""Searches by protocol, layout and messages in a row: place, whether found, in how many bytes, whether ended there."""


@dataclass(slots=True)
class _SideOpening:
    """The first contiguous bytes of one side, without a PROXY header.

    looked: results of earlier searches in these bytes. is_header_cut: more bytes may complete a PROXY header.
    """

    data: bytes
    start: bool
    ended: bool
    looked: Looked = field(default_factory=dict)
    proxied: ProxyHeader | None = None
    is_header_cut: bool = False

    def without_header(self) -> "_SideOpening":
        """The opening without its PROXY header. A header proves the start of the stream, with or without a SYN."""
        header = proxy_header(self.data)
        data = self.data if header is None else self.data[header.length :]
        is_cut = not self.ended and may_begin_header(data)
        if header is not None:
            return replace(self, data=data, start=True, proxied=header, is_header_cut=is_cut)
        return replace(self, is_header_cut=True) if is_cut else self


Openings = tuple[_SideOpening, _SideOpening]


def _openings(origin: "Origin", sides: Iterable[_SideOpening], begins: Sequence[bool]) -> Openings:
    """How the sides began; ``begins``: whether each has the first byte of its stream. Only a client's has a header."""
    side_a, side_b = (
        side.without_header()
        if begins[i] and not (origin.a_is_client and i == 1) and side.data[:1] in _HEADER_STARTS
        else side
        for i, side in enumerate(sides)
    )
    return side_a, side_b


_HEADER_STARTS = frozenset((b"P", b"\r"))


@dataclass(slots=True)
class _HeldSide:
    """How a side began: its bytes up to the first gap, and the longest later run of bytes between gaps.

    At most OPENING_BYTES of a run are kept. ``is_closed``: nothing more can come to the first run.
    """

    data: bytearray = field(default_factory=bytearray)
    later: bytearray = field(default_factory=bytearray)
    first_offset: int = -1
    first_packet: Packet | None = None
    is_closed: bool = False
    seen_bytes: int = 0
    looked: Looked = field(default_factory=dict)
    _at: int = -1
    _run: bytearray = field(default_factory=bytearray)

    def take(self, chunk: StreamChunk, k: int) -> None:
        """Add the bytes of the k-th packet of a chunk."""
        offset, length = chunk.packets.value(OFFSET, k), chunk.packets.value(LENGTH, k)
        self.seen_bytes += length
        if self.first_offset < 0:
            self.first_offset, self.first_packet, self._run = offset, chunk.packet(k), self.data
        elif offset != self._at:
            self.is_closed, self._run = True, bytearray()
        self._at = offset + length
        self._run += chunk.payload(k, OPENING_BYTES - len(self._run))
        if self._run is self.data:
            self.is_closed = len(self.data) >= OPENING_BYTES
        elif len(self._run) > len(self.later):
            self.later = self._run


@dataclass(slots=True)
class Hold:
    """The captured bytes of an unclaimed connection, and how its sides began.

    chunks      copies, in order of capture
    ask_at_bytes   bytes of both sides after which the protocols are asked again
    likely      claims of protocols that it fits and whose port it does not use: good if its server turns out to speak
                one. Two with either side as the client, the better guess first, where content does not say who it is
    ts_ns       time of the last packet looked at
    is_full     no more bytes are looked at
    held_bytes  memory that the chunks count for
    """

    ask_at_bytes: int = 1
    chunks: list[StreamChunk] = field(default_factory=list)
    sides: tuple[_HeldSide, _HeldSide] = field(default_factory=lambda: (_HeldSide(), _HeldSide()))
    ended: list[bool] = field(default_factory=lambda: [False, False])
    likely: list[Choice] = field(default_factory=list)
    ts_ns: int = 0
    is_full: bool = False
    held_bytes: int = 0

    def openings(self, origin: Origin, final: bool) -> Openings:
        """The first bytes of each side, up to the first gap."""
        starts = origin.starts(self.sides[0].first_offset, self.sides[1].first_offset)
        sides = (
            _SideOpening(bytes(x.data), start, x.is_closed or final, x.looked)
            for start, x in zip(starts, self.sides, strict=True)
        )
        return _openings(origin, sides, [x.first_offset == 0 for x in self.sides])

    def later_openings(self, final: bool) -> Openings:
        """The longest run of bytes after the first gap of each side; the first bytes of a side without a gap."""
        side_a, side_b = (_SideOpening(bytes(x.later or x.data), False, final) for x in self.sides)
        return side_a, side_b


class _Candidate(NamedTuple):
    """A protocol that may be asked, with one side as the client; ``forced``: the user said so."""

    protocol: MessageQueue
    client: int
    on_port: bool
    forced: bool


class Detector:
    """Asks the protocols about connections, and remembers which servers speak what.

    servers: by server, the time of the first packet that proved it. doubted: servers that a connection asked for and
    that were not known.
    """

    def __init__(
        self,
        protocols: Mapping[str, MessageQueue],
        decode_as: Sequence[DecodeAs],
        servers: Iterable[Told],
        scanners: Scanners,
    ) -> None:
        self.servers: dict[Server, int] = {}
        self.doubted: dict[Server, None] = {}
        self._protocols = protocols
        self._decode_as = decode_as
        self._scanners = scanners
        self._held_bytes = 0
        self._ports = frozenset(port for p in protocols.values() for port in p.ports)
        self._known_ports = self._ports | {d.port for d in decode_as}
        self._candidates_by_ports: dict[tuple[int, int, bool], list[_Candidate]] = {}
        self._alike: dict[tuple[object, ...], Choice | None] = {}
        for server, ts_ns in servers:
            self.learn(server, ts_ns)

    # -- servers ---------------------------------------------------------------------------------------

    def learn(self, server: Server, ts_ns: int) -> None:
        """Remember a server that was proved by a packet of that time."""
        if ts_ns < self.servers.get(server, ts_ns + 1):
            self.servers[server] = ts_ns
            _limit(self.servers)

    def by_peer(self, hold: Hold, origin: Origin, until_ns: int | None = None) -> Choice:
        """Who takes a connection that nobody claimed: a protocol that it fits and its server speaks, else nobody.

        ``until_ns``: servers proved later do not count, so that rows do not depend on windows and shares of the input.
        """
        for choice in hold.likely:
            server = origin.server(choice)
            if server in self.servers and (until_ns is None or self.servers[server] <= until_ns):
                return choice
            self.doubted[server] = None
            _limit(self.doubted)
        guesses = (choice for choice in hold.likely if choice.is_guess)
        return next(guesses, None) or self._nobody(origin, hold.openings(origin, True))

    # -- what is looked at -----------------------------------------------------------------------------

    def first_look(self, origin: Origin, new: Sequence[StreamChunk]) -> tuple[Choice, Packet] | Hold:
        """Who takes a connection by its very first packet, and that packet; else the hold to look at it with.

        There may be very many connections, and nearly all are decided here: so nothing is copied or noted, and what
        was said of one holds for those that begin alike.
        """
        spoke = [x for x in new if len(x.packets)]
        chunk = min(spoke, key=StreamChunk.order) if spoke else None
        length = 0 if chunk is None else chunk.packets.value(LENGTH, 0)
        if chunk is None or not 0 < length < OPENING_BYTES:
            return Hold()
        data, side, offset = chunk.payload(0, length), chunk.side, chunk.packets.value(OFFSET, 0)
        starts = origin.starts(offset, -1) if side == 0 else origin.starts(-1, offset)
        alike = data, side, starts, self._client_by_port(origin), *self._known_of(origin)
        choice = self._alike.get(alike, _UNASKED)
        if choice is _UNASKED:
            is_first = offset == 0
            sides = (_SideOpening(data if i == side else b"", starts[i], False) for i in (0, 1))
            choice = self._choice(origin, _openings(origin, sides, (is_first, is_first)), [], False)
            if length <= ALIKE_BYTES:
                if len(self._alike) >= MAX_ALIKE:
                    self._alike.clear()
                self._alike[alike] = choice
        return Hold(_next_look(length)) if choice is None else (choice, chunk.packet(0))

    def look(self, hold: Hold, origin: Origin, new: Sequence[StreamChunk]) -> Choice | None:
        """Who takes a connection by all that was captured of it; None: nobody yet, and the new chunks are held."""
        # In the order of the input.
        for _, i, k in sorted((x.order(k), i, k) for i, x in enumerate(new) for k in range(len(x.packets))):
            chunk = new[i]
            hold.ts_ns = chunk.packets.value(TS_NS, k)
            side = hold.sides[chunk.side]
            was_closed = side.is_closed
            side.take(chunk, k)
            hold.is_full = side.seen_bytes >= OPENING_BYTES
            so_far = hold.sides[0].seen_bytes + hold.sides[1].seen_bytes
            if hold.is_full or so_far >= hold.ask_at_bytes or side.is_closed != was_closed:
                hold.ask_at_bytes = _next_look(so_far)
                choice = self.held_choice(hold, origin, hold.is_full)
                if choice is None and hold.is_full and not hold.likely:
                    choice = self._nobody(origin, hold.openings(origin, True))
                if choice is not None:
                    return choice
                if hold.is_full:
                    break
        for chunk in new:
            hold.ended[chunk.side] = hold.ended[chunk.side] or chunk.ended
        choice = self.held_choice(hold, origin) if all(hold.ended) and not hold.is_full else None
        if choice is None and not self._keep(hold, new):
            choice = self.held_choice(hold, origin) or self.by_peer(hold, origin)
        return choice

    def release(self, hold: Hold) -> None:
        """Its connection was decided."""
        self._held_bytes -= hold.held_bytes

    def _keep(self, hold: Hold, new: Sequence[StreamChunk]) -> bool:
        """Copy the new chunks of a connection; False when too much is held already."""
        size = sum(chunk.length for chunk in new)
        if len(hold.chunks) > FEW_CHUNKS:
            size += CHUNK_BYTES * len(new)
        if self._held_bytes + size > HELD_BYTES:
            return False
        self._held_bytes += size
        hold.held_bytes += size
        hold.chunks += copies(new)
        return True

    # -- what the protocols say ------------------------------------------------------------------------

    def held_choice(self, hold: Hold, origin: Origin, final: bool = True) -> Choice | None:
        """The choice by the held bytes of a connection; None to wait. ``final``: nothing follows, only its server may
        tell more."""
        hold.likely = []
        return self._choice(origin, hold.openings(origin, final), hold.likely, final, hold)

    def _choice(
        self, origin: Origin, openings: Openings, likely: list[Choice], final: bool, hold: Hold | None = None
    ) -> Choice | None:
        """The choice by the first bytes of the sides, and by the bytes after a gap that a hold has."""
        if any(x.is_header_cut for x in openings):
            return None
        choice = self._choice_behind_header(origin, openings, likely, final, hold)
        proxied = openings[0].proxied or openings[1].proxied
        if proxied is not None:
            likely[:] = [x._replace(proxied=proxied) for x in likely]
        return choice if choice is None or proxied is None else choice._replace(proxied=proxied)

    def _choice_behind_header(
        self, origin: Origin, openings: Openings, likely: list[Choice], final: bool, hold: Hold | None
    ) -> Choice | None:
        choice, waits = self._asked(likely, origin, openings, final)
        if choice is None and not waits and hold is not None and any(x.later for x in hold.sides):
            # The first bytes prove nothing; bytes after a gap are as good as a late start.
            choice, waits = self._asked(likely, origin, hold.later_openings(final), final)
        if choice is not None:
            return choice
        if likely or (not final and (waits or not any(x.data for x in openings))):
            return None
        return self._nobody(origin, openings)

    def _asked(
        self, likely: list[Choice], origin: Origin, openings: Openings, final: bool
    ) -> tuple[Choice | None, bool]:
        """The best claim good enough to decide, and whether a protocol wants more bytes first."""
        best: Choice | None = None
        best_rank = 0, False, False
        waits = False
        anywhere: list[Choice] = []
        client_by_port = self._client_by_port(origin)
        is_proxied = any(x.proxied for x in openings)
        for candidate in self._candidates(origin):
            protocol, client, on_port, forced = candidate
            if is_proxied and openings[client].proxied is None:
                continue  # Only a client's stream has a header.
            if best_rank >= (YES, on_port, True) and (origin.a_is_client or on_port or best_rank[1]):
                break  # Later candidates are not better: protocols on their own port were asked first.
            claim = protocol.claims(self._opening(candidate, openings))
            verdict = claim.verdict
            if verdict is WAIT:
                waits = not final
            elif verdict is YES or (verdict is LIKELY and on_port):
                rank = verdict, on_port, client == client_by_port
                if rank > best_rank:
                    how = "decode_as" if forced else "content" if verdict is YES else "port"
                    best_rank, best = rank, Choice(protocol, claim, client, how)
                if verdict is YES and not on_port:
                    anywhere.append(Choice(protocol, claim, client, "content", is_guess=True))
            elif verdict is LIKELY:
                likely.append(Choice(protocol, claim, client, "peer"))
        if best is not None and best_rank[0] is YES:
            either = [x for x in anywhere if x.protocol is best.protocol]
            if best_rank[1] or len(either) < 2:
                return best, False
            likely += sorted(either, key=lambda x: x.client != client_by_port)
            return None, False
        return (None, True) if waits else (best, False)

    def _candidates(self, origin: Origin) -> list[_Candidate]:
        """Who may be asked about a connection; those on their own port come first."""
        key = self._known_of(origin)
        if key not in self._candidates_by_ports:
            candidates = []
            for protocol in self._protocols.values():
                for client in range(1 if origin.a_is_client else 2):
                    server_port = key[1 - client]
                    named = {d.protocol for d in self._decode_as if d.port == server_port}
                    if not named or protocol.name in named:
                        on_port = bool(named) or server_port in protocol.ports
                        candidates.append(_Candidate(protocol, client, on_port, bool(named)))
            self._candidates_by_ports[key] = sorted(candidates, key=lambda candidate: not candidate.on_port)
        return self._candidates_by_ports[key]

    def _known_of(self, origin: Origin) -> tuple[int, int, bool]:
        """The ports that may be a server's, -1 for others, and whether A is the client: what candidates go by."""
        (a, b), server_ports = origin.ports, self._known_ports
        return a if a in server_ports else -1, b if b in server_ports else -1, origin.a_is_client

    def _opening(self, candidate: _Candidate, openings: Openings) -> Opening:
        """How the sides began, as a protocol is asked about it."""
        protocol, client, on_port, forced = candidate
        c2s, s2c = openings[client], openings[1 - client]

        def find_run(direction: Direction, layout: str, n: int) -> int | None:
            return self._first_run(c2s if direction == "c2s" else s2c, protocol, layout, n)

        return Opening(c2s.data, s2c.data, c2s.start, s2c.start, c2s.ended, s2c.ended, on_port, forced, find_run)

    def _first_run(self, side: _SideOpening, protocol: MessageQueue, layout: str, in_a_row: int) -> int | None:
        """Offset from which messages first follow each other. Earlier searches are continued, not repeated."""
        key, size_now = (protocol.name, layout, in_a_row), (len(side.data), side.ended)
        offset, is_found, size_before = side.looked.get(key, (0, False, (0, False)))
        if not is_found and size_before != size_now:
            start = offset if size_now > size_before and not size_before[1] else 0
            scanner = self._scanners.of(protocol)[layout]
            offset, is_found = scanner.search(side.data, start, size_now[0], side.ended, in_a_row)
            side.looked[key] = offset, is_found, size_now
        return offset if is_found else None

    def _nobody(self, origin: Origin, openings: Openings) -> Choice:
        """The connection is not ours."""
        name = foreign_protocol(openings[0].data, openings[1].data)
        client = (
            int(openings[1].proxied is not None) if any(x.proxied for x in openings) else self._client_by_port(origin)
        )
        proxied = openings[client].proxied
        return Choice(None, Claim(Verdict.NO), client, None, stranger=name, proxied=proxied)

    def _client_by_port(self, origin: Origin) -> int:
        """The client where content does not say: the SYN's sender, else the side whose port is no server's."""
        if origin.a_is_client:
            return 0
        a, b = origin.ports
        if (a in self._ports) != (b in self._ports):
            return int(a in self._ports)
        return int(a < b)


def _limit(servers: dict[Server, Any]) -> None:
    """Forget the oldest of too many servers."""
    while len(servers) > MAX_SERVERS:
        del servers[next(iter(servers))]


def _next_look(so_far: int) -> int:
    """How many bytes of both sides must have been seen when the protocols are asked again."""
    return so_far + (1 if so_far < EAGER_BYTES else so_far // 2)
