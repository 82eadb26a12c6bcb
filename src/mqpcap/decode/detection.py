"""Decides which protocol a connection speaks, and which side is the client.

In: the first bytes of both sides, without a PROXY header. Out: a `Detection`, or None while more bytes are needed.
Called by: `Framer`.

Each protocol rates the bytes (``MessageQueue.claims``): YES decides; LIKELY decides on the protocol's own port, or if
another connection has proved that the server speaks the protocol. Nearly all connections are decided by their first
packet, without a copy. Undecided connections are buffered, OPENING_BYTES a side at most, until a protocol claims them
or none can.

The hard part: the result must not depend on windows or Spark shares. Protocols are asked at byte counts that the
stream alone determines, and a proved server counts from the capture time of its proof on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.decode import foreign_protocols
from mqpcap.decode.message_buffer import LENGTH, OFFSET, ORDER, TS_NS
from mqpcap.decode.openings import clients_first
from mqpcap.decode.proxy_header import ProxyHeader, consent_length, may_begin_header, proxy_header
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.stream_chunk import Packet, StreamChunk, copies
from mqpcap.decode.trial import MANY_MESSAGES, read_on_trial
from mqpcap.records import dataclass
from mqpcap.schema.protocol import Claim, Direction, MessageQueue, Opening, Verdict
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flows
from mqpcap.tcp.headers import address_text

OPENING_BYTES = 256 << 10
"""Bytes of each side that are buffered to detect the protocol. Beyond them an unclaimed connection is foreign."""
ASK_DIVISOR = 4
"""The protocols are asked again when the captured bytes have grown by this part of them."""
MAX_PENDING_BYTES = 128 << 20
"""Buffered bytes of all connections; beyond it a connection is decided at once."""
CHUNK_OVERHEAD = 256
"""Memory of a buffered chunk besides its bytes; it counts for connections with more than FEW_CHUNKS chunks."""
FEW_CHUNKS = 64
TRIAL_BYTES = 4 << 10
"""Bytes of both sides that a claim by the port is tried on."""
MAX_CACHED_BYTES = 1500
"""First packets up to this size are cached: connections that start with the same bytes share one decision."""
MAX_CACHED = 512
"""First packets in the cache; a full cache is emptied."""
MAX_SERVERS = 1 << 16
"""Proved servers, and as many missing servers; beyond it the oldest are dropped."""
YES, LIKELY, WAIT = Verdict.YES, Verdict.LIKELY, Verdict.WAIT

ServerProtocol = tuple[str, str, int]
"""A protocol, and address and port of a server that speaks it."""
ProvenServer = tuple[ServerProtocol, int]
"""A server, and the time of the packet that proved its protocol."""


class DecodeAs(NamedTuple):
    """``-d tcp.port==9092,flymq``: connections to that server port are read as that protocol.

    ``-d udp.port==4799,vxlan``: UDP packets of that port are read as that tunnel (`wrappings.TUNNELS`).
    """

    port: int
    protocol: str


class Detection(NamedTuple):
    """The result: the protocol of a connection (None: no supported protocol), its claim, and the client's side."""

    protocol: MessageQueue | None
    claim: Claim
    client: int
    identified_by: str | None
    is_guess: bool = False
    """Content fits with either side as the client, and the server is unknown: the port numbers decided."""
    foreign_protocol: str | None = None
    """The foreign protocol of an unclaimed connection, None if it is not known."""
    proxied: ProxyHeader | None = None
    """The header, or the request to a proxy, in front of the client's stream."""

    def after_gap(self) -> "Detection":
        """The detection, if the bytes that it read are not the first of the connection."""
        return self._replace(claim=self.claim._replace(opens=False))


_NOT_CACHED = Detection(None, Claim(Verdict.NO), 0, None)


class FlowOrigin(NamedTuple):
    """Endpoints (A, B) of a connection, and whether the start of each side is known.

    ``a_is_client``: known from the handshake. ``hi``, ``lo``: halves of the addresses.
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
        """Whether the first bytes of each side are the start of the connection, given their stream offsets.

        A side without bytes (-1) counts like the other side: its SYN may be recorded after the other side's bytes.
        """
        is_known = self.start_known
        starts_a, starts_b = is_known[0] and first_a <= 0, is_known[1] and first_b <= 0
        return starts_a or (first_a < 0 and is_known[1]), starts_b or (first_b < 0 and is_known[0])

    def server(self, detection: Detection) -> ServerProtocol:
        """The server of a detection."""
        assert detection.protocol is not None
        return detection.protocol.name, *self._end(1 - detection.client)

    def ends(self, client: int) -> tuple[str, int, str, int]:
        """Address and port of the client and of the server."""
        return *self._end(client), *self._end(1 - client)

    def _end(self, side: int) -> tuple[str, int]:
        return address_text(self.version, self.hi[side], self.lo[side]), self.ports[side]


def origins(flows: Flows, numbers: list[int]) -> dict[int, FlowOrigin]:
    """The `FlowOrigin` of each connection, by number."""
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
    return dict(zip(numbers, map(FlowOrigin._make, zip(*(x.tolist() for x in columns), strict=True)), strict=True))


SearchCache = dict[tuple[str, str, int], tuple[int, bool, tuple[int, bool]]]
"""By protocol, layout and consecutive messages: offset reached, whether found, size of the data, whether it ended."""


@dataclass(slots=True)
class _SideOpening:
    """The first contiguous bytes of a side, without a PROXY header.

    ``start``: the first byte is the first of the connection.
    ``ended``: no bytes are added: the side ended, a gap follows, or OPENING_BYTES are there.
    ``searched``: results of earlier searches in these bytes.
    ``is_header_cut``: more bytes may complete a PROXY header.
    """

    data: bytes
    start: bool
    ended: bool
    searched: SearchCache = field(default_factory=dict)
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


def _openings(origin: "FlowOrigin", sides: Iterable[_SideOpening], begins: Sequence[bool]) -> Openings:
    """The openings without PROXY headers, which only clients send.

    ``begins``: whether each side has the first byte of its stream.
    """
    side_a, side_b = plain_a, plain_b = tuple(sides)
    if begins[0] and plain_a.data[:1] in _HEADER_STARTS:
        side_a, side_b = _granted(plain_a.without_header(), plain_a, plain_b)
    if begins[1] and not origin.a_is_client and plain_b.data[:1] in _HEADER_STARTS:
        side_b, side_a = _granted(plain_b.without_header(), plain_b, side_a)
    return side_a, side_b


def _granted(client: _SideOpening, plain: _SideOpening, server: _SideOpening) -> Openings:
    """The openings of client and server; those after a request to a proxy and its consent, unless it was refused."""
    if client.proxied is None or not client.proxied.request:
        return client, server
    length = consent_length(client.proxied.request, server.data)
    if length > 0:
        proxied = client.proxied._replace(consent_length=length)
        return replace(client, proxied=proxied), replace(server, data=server.data[length:], start=True)
    if length < 0 and not server.ended:
        return replace(client, is_header_cut=True), server
    return (plain if server.data else client), server


_HEADER_STARTS = frozenset((b"P", b"\r", b"C", b"\x04", b"\x05"))


@dataclass(slots=True)
class _BufferedSide:
    """The first bytes of a side: up to the first gap, and the longest later run of bytes between gaps.

    At most OPENING_BYTES of a run are buffered. ``is_closed``: the first run is complete.
    """

    data: bytearray = field(default_factory=bytearray)
    later_run: bytearray = field(default_factory=bytearray)
    first_offset: int = -1
    first_packet: Packet | None = None
    is_closed: bool = False
    seen_bytes: int = 0
    searched: SearchCache = field(default_factory=dict)
    _end_offset: int = -1
    _run: bytearray = field(default_factory=bytearray)

    def add(self, chunk: StreamChunk, k: int) -> None:
        """Add the bytes of the k-th packet of a chunk."""
        offset, length = chunk.packets.value(OFFSET, k), chunk.packets.value(LENGTH, k)
        self.seen_bytes += length
        if self.first_offset < 0:
            self.first_offset, self.first_packet, self._run = offset, chunk.packet(k), self.data
        elif offset != self._end_offset:
            self.is_closed, self._run = True, bytearray()
        self._end_offset = offset + length
        self._run += chunk.payload(k, OPENING_BYTES - len(self._run))
        if self._run is self.data:
            self.is_closed = len(self.data) >= OPENING_BYTES
        elif len(self._run) > len(self.later_run):
            self.later_run = self._run


@dataclass(slots=True)
class PendingDetection:
    """The captured bytes of an undecided connection, and the first bytes of its sides.

    ``chunks``: copies, in order of capture.
    ``next_ask_bytes``: the protocols are asked again when both sides together have this number of bytes.
    ``conditional``: detections that hold only if the server turns out to speak the protocol: the content fits, the port
    does not. If the content fits with either side as the client, there are two per protocol, the better guess first.
    ``ts_ns``: time of the last packet added. ``is_full``: no more bytes are added.
    ``pending_bytes``: memory that its chunks count for.
    """

    next_ask_bytes: int = 1
    chunks: list[StreamChunk] = field(default_factory=list)
    sides: tuple[_BufferedSide, _BufferedSide] = field(default_factory=lambda: (_BufferedSide(), _BufferedSide()))
    ended: list[bool] = field(default_factory=lambda: [False, False])
    conditional: list[Detection] = field(default_factory=list)
    ts_ns: int = 0
    is_full: bool = False
    pending_bytes: int = 0

    def openings(self, origin: FlowOrigin, final: bool) -> Openings:
        """The first bytes of each side, up to the first gap."""
        starts = origin.starts(self.sides[0].first_offset, self.sides[1].first_offset)
        sides = (
            _SideOpening(bytes(x.data), start, x.is_closed or final, x.searched)
            for start, x in zip(starts, self.sides, strict=True)
        )
        return _openings(origin, sides, [x.first_offset == 0 for x in self.sides])

    def later_openings(self, final: bool) -> Openings:
        """The longest run of bytes after the first gap of each side; the first bytes of a side without a gap."""
        side_a, side_b = (_SideOpening(bytes(x.later_run or x.data), False, final) for x in self.sides)
        return side_a, side_b


class _Candidate(NamedTuple):
    """A protocol that may be asked, with one side as the client; ``forced``: by ``-d``."""

    protocol: MessageQueue
    client: int
    on_port: bool
    forced: bool


class Detector:
    """Asks the protocols about connections, and collects proved servers.

    ``servers``: by server, the time of the first packet that proved it.
    ``missing_servers``: servers that were looked up and not proved.
    """

    def __init__(
        self,
        protocols: Mapping[str, MessageQueue],
        decode_as: Sequence[DecodeAs],
        servers: Iterable[ProvenServer],
        scanners: Scanners,
    ) -> None:
        self.servers: dict[ServerProtocol, int] = {}
        self.missing_servers: dict[ServerProtocol, None] = {}
        self._protocols = protocols
        self._decode_as = decode_as = [rule for rule in decode_as if rule.protocol in protocols]
        self._scanners = scanners
        self._pending_bytes = 0
        self._ports = frozenset(port for p in protocols.values() for port in p.ports)
        named = {d.port for d in decode_as}
        self._known_ports = self._ports | named
        self._candidates_by_ports: dict[tuple[int, int, bool], list[_Candidate]] = {}
        claimed = Counter(port for p in protocols.values() for port in p.ports)
        self._own_ports = {
            port: p for p in protocols.values() if p.first_claim for port in {*p.ports} - named if claimed[port] == 1
        }
        """By port the only protocol of it, if a first packet may decide."""
        self._cache: dict[tuple[object, ...], Detection | None] = {}
        for server, ts_ns in servers:
            self.learn(server, ts_ns)

    # -- servers ---------------------------------------------------------------------------------------

    def learn(self, server: ServerProtocol, ts_ns: int) -> None:
        """Add a server that was proved by a packet of that time."""
        if ts_ns < self.servers.get(server, ts_ns + 1):
            self.servers[server] = ts_ns
            _limit(self.servers)

    def detect_by_server(self, pending: PendingDetection, origin: FlowOrigin, until_ns: int | None = None) -> Detection:
        """The detection of an unclaimed connection: a protocol that it fits and its server speaks, else none.

        ``until_ns``: servers proved later do not count, so that rows do not depend on windows and shares of the input.
        """
        for detection in pending.conditional:
            server = origin.server(detection)
            if server in self.servers and (until_ns is None or self.servers[server] <= until_ns):
                return detection
            self.missing_servers[server] = None
            _limit(self.missing_servers)
        guesses = (detection for detection in pending.conditional if detection.is_guess)
        return next(guesses, None) or self._unclaimed(origin, pending.openings(origin, True))

    # -- detection -----------------------------------------------------------------------------

    def first_claims(
        self, chunks: StreamChunks, flows: Flows, rows: Int64Array
    ) -> Iterator[tuple[int, MessageQueue, Claim]]:
        """The first chunks of connections that the client's first packet decides on the port of its protocol.

        ``rows``: the first chunk of each new connection. None of them needs `detect_first`.
        """
        rows, _, port = clients_first(chunks, flows, rows)
        sizes = chunks.piece_length[chunks.piece_first[rows]]
        buffer = memoryview(chunks.buffer)
        for row, server_port, start, size in zip(
            rows.tolist(), port[:, 1].tolist(), chunks.start[rows].tolist(), sizes.tolist(), strict=True
        ):
            own = self._own_ports.get(server_port)
            if own is not None and own.first_claim is not None and size < OPENING_BYTES:
                claim = own.first_claim(bytes(buffer[start : start + size]))
                if claim is not None:
                    yield row, own, claim

    def detect_first(
        self, origin: FlowOrigin, new: Sequence[StreamChunk]
    ) -> tuple[Detection, Packet] | PendingDetection:
        """The detection by the first packet, and that packet; else a new `PendingDetection`.

        Nearly all connections are decided here. So nothing is copied, and results are cached by first packet.
        """
        chunks = [x for x in new if len(x.packets)]
        chunk = min(chunks, key=StreamChunk.order) if chunks else None
        length = 0 if chunk is None else chunk.packets.value(LENGTH, 0)
        if chunk is None or not 0 < length < OPENING_BYTES:
            return PendingDetection()
        data, side, offset = chunk.payload(0, length), chunk.side, chunk.packets.value(OFFSET, 0)
        starts = origin.starts(offset, -1) if side == 0 else origin.starts(-1, offset)
        cache_key = data, side, starts, self._client_by_port(origin), *self._port_key(origin)
        detection = self._cache.get(cache_key, _NOT_CACHED)
        if detection is _NOT_CACHED:
            is_first = offset == 0
            sides = (_SideOpening(data if i == side else b"", starts[i], False) for i in (0, 1))
            detection = self._detection(origin, _openings(origin, sides, (is_first, is_first)), [], False)
            if length <= MAX_CACHED_BYTES:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[cache_key] = detection
        return PendingDetection(_next_ask_bytes(length)) if detection is None else (detection, chunk.packet(0))

    def detect(self, pending: PendingDetection, origin: FlowOrigin, new: Sequence[StreamChunk]) -> Detection | None:
        """The detection after these chunks; None if still undecided, and then the chunks are buffered."""
        for chunk, k in _in_order_of_capture(new):
            pending.ts_ns = chunk.packets.value(TS_NS, k)
            side = pending.sides[chunk.side]
            was_closed = side.is_closed
            side.add(chunk, k)
            pending.is_full = side.seen_bytes >= OPENING_BYTES
            seen_bytes = pending.sides[0].seen_bytes + pending.sides[1].seen_bytes
            if pending.is_full or seen_bytes >= pending.next_ask_bytes or side.is_closed != was_closed:
                pending.next_ask_bytes = _next_ask_bytes(seen_bytes)
                detection = self.detect_buffered(pending, origin, pending.is_full)
                if detection is None and pending.is_full and not pending.conditional:
                    detection = self._unclaimed(origin, pending.openings(origin, True))
                if detection is not None:
                    return detection
                if pending.is_full:
                    break
        for chunk in new:
            pending.ended[chunk.side] = pending.ended[chunk.side] or chunk.ended
        detection = self.detect_buffered(pending, origin) if all(pending.ended) and not pending.is_full else None
        if detection is None and not self._buffer(pending, new):
            detection = self.detect_buffered(pending, origin) or self.detect_by_server(pending, origin)
        return detection

    def release(self, pending: PendingDetection) -> None:
        """Release the memory of a connection that was decided."""
        self._pending_bytes -= pending.pending_bytes

    def _buffer(self, pending: PendingDetection, new: Sequence[StreamChunk]) -> bool:
        """Buffer copies of the new chunks of a connection; False if the limit is reached."""
        size = sum(chunk.length for chunk in new)
        if len(pending.chunks) > FEW_CHUNKS:
            size += CHUNK_OVERHEAD * len(new)
        if self._pending_bytes + size > MAX_PENDING_BYTES:
            return False
        self._pending_bytes += size
        pending.pending_bytes += size
        pending.chunks += copies(new)
        return True

    # -- claims ------------------------------------------------------------------------

    def detect_buffered(self, pending: PendingDetection, origin: FlowOrigin, final: bool = True) -> Detection | None:
        """The detection by the buffered bytes; None to wait.

        ``final``: no bytes follow. None then leaves the connection to `detect_by_server`.
        """
        pending.conditional = []
        return self._detection(origin, pending.openings(origin, final), pending.conditional, final, pending)

    def _detection(
        self,
        origin: FlowOrigin,
        openings: Openings,
        conditional: list[Detection],
        final: bool,
        pending: PendingDetection | None = None,
    ) -> Detection | None:
        """The detection by the first bytes of the sides, and by buffered bytes after a gap."""
        if openings[0].is_header_cut or openings[1].is_header_cut:
            return None
        detection = self._detection_after_header(origin, openings, conditional, final, pending)
        proxied = openings[0].proxied or openings[1].proxied
        if proxied is not None:
            conditional[:] = [x._replace(proxied=proxied) for x in conditional]
        return detection if detection is None or proxied is None else detection._replace(proxied=proxied)

    def _detection_after_header(
        self,
        origin: FlowOrigin,
        openings: Openings,
        conditional: list[Detection],
        final: bool,
        pending: PendingDetection | None,
    ) -> Detection | None:
        """The detection by openings without PROXY headers; fills ``conditional`` if only the server may decide."""
        detection, waits = self._best_claim(conditional, origin, openings, final)
        if detection is None and not waits and pending is not None and any(x.later_run for x in pending.sides):
            # The first bytes prove nothing; bytes after a gap count like a mid-stream start.
            detection, waits = self._best_claim(conditional, origin, pending.later_openings(final), final)
            conditional[:] = map(Detection.after_gap, conditional)
            detection = detection and detection.after_gap()
        if detection is not None:
            return detection
        if conditional or (not final and (waits or not any(x.data for x in openings))):
            return None
        return self._unclaimed(origin, openings)

    def _best_claim(
        self, conditional: list[Detection], origin: FlowOrigin, openings: Openings, final: bool
    ) -> tuple[Detection | None, bool]:
        """The best claim that decides, and whether a protocol waits for more bytes."""
        best: Detection | None = None
        # Verdict, whether the protocol's own port is used, and whether the client is the client by the ports.
        best_rank = 0, False, False
        waits = False
        off_port: list[Detection] = []
        client_by_port = self._client_by_port(origin)
        is_proxied = bool(openings[0].proxied or openings[1].proxied)
        for candidate in self._candidates(origin):
            protocol, client, on_port, forced = candidate
            if is_proxied and openings[client].proxied is None:
                continue  # Only a client's stream has a header.
            if best_rank >= (YES, on_port, True) and (origin.a_is_client or on_port or best_rank[1]):
                # Later candidates are not better: protocols on their own port were asked first. Off its port, a
                # protocol is asked with both sides as the client, unless the handshake shows the client.
                break
            claim = protocol.claims(self._opening(candidate, openings))
            verdict = claim.verdict
            if verdict in (YES, LIKELY) and self._is_withdrawn(candidate, claim, openings, final):
                verdict = WAIT
            if verdict is WAIT:
                waits = not final
            elif verdict is YES or (verdict is LIKELY and on_port):
                rank = verdict, on_port, client == client_by_port
                if rank > best_rank:
                    how = "decode_as" if forced else "content" if verdict is YES else "port"
                    best_rank, best = rank, Detection(protocol, claim, client, how)
                if verdict is YES and not on_port:
                    off_port.append(Detection(protocol, claim, client, "content", is_guess=True))
            elif verdict is LIKELY:
                conditional.append(Detection(protocol, claim, client, "peer"))
        if best is not None and best_rank[0] is YES:
            orientations = [x for x in off_port if x.protocol is best.protocol]
            if best_rank[1] or len(orientations) < 2:
                return best, False
            # The content fits with either side as the client: its server decides, else the ports.
            conditional += sorted(orientations, key=lambda x: x.client != client_by_port)
            return None, False
        return (None, True) if waits else (best, False)

    def _is_withdrawn(self, candidate: _Candidate, claim: Claim, openings: Openings, final: bool) -> bool:
        """Whether a claim that neither the start nor the user confirms reads less than half of the bytes.

        A claim that only the port confirms needs MANY_MESSAGES or TRIAL_BYTES, or the end of the connection.
        """
        protocol, client, on_port, forced = candidate
        sides = (openings[client], claim.c2s), (openings[1 - client], claim.s2c)
        is_start = claim.opens or any(side.start for side, _ in sides)
        if forced or is_start or (on_port and claim.verdict is YES):
            return False
        trials = [
            read_on_trial(side.data, protocol, layout, self._scanners, side.start, side.ended)
            for side, layout in sides
            if side.data and layout
        ]
        decoded_bytes, other_bytes, count = (sum(trial[index] for trial in trials) for index in range(3))
        is_short = count < MANY_MESSAGES and sum(len(side.data) for side, _ in sides) < TRIAL_BYTES
        if claim.verdict is LIKELY and is_short and not final:
            return True
        # On the port a side of whole messages is enough: the other may have captured only parts of long ones.
        is_proved = any(trial.is_run or (on_port and trial.message_count and not trial.other_bytes) for trial in trials)
        return decoded_bytes < other_bytes and not is_proved

    def _candidates(self, origin: FlowOrigin) -> list[_Candidate]:
        """The protocols to ask about a connection; protocols on their own port come first."""
        key = self._port_key(origin)
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

    def _port_key(self, origin: FlowOrigin) -> tuple[int, int, bool]:
        """Key of the candidates: ports of A and B if a protocol uses them, else -1, and whether A is the client."""
        (a, b), server_ports = origin.ports, self._known_ports
        return a if a in server_ports else -1, b if b in server_ports else -1, origin.a_is_client

    def _opening(self, candidate: _Candidate, openings: Openings) -> Opening:
        """The openings as input of ``MessageQueue.claims``."""
        protocol, client, on_port, forced = candidate
        c2s, s2c = openings[client], openings[1 - client]

        def find_run(direction: Direction, layout: str, n: int) -> int | None:
            return self._first_run(c2s if direction == "c2s" else s2c, protocol, layout, n)

        return Opening(c2s.data, s2c.data, c2s.start, s2c.start, c2s.ended, s2c.ended, on_port, forced, find_run)

    def _first_run(self, side: _SideOpening, protocol: MessageQueue, layout: str, min_consecutive: int) -> int | None:
        """Offset of the first run of consecutive messages. Earlier searches are continued, not repeated."""
        key, size_now = (protocol.name, layout, min_consecutive), (len(side.data), side.ended)
        offset, is_found, size_before = side.searched.get(key, (0, False, (0, False)))
        if not is_found and size_before != size_now:
            start = offset if size_now > size_before and not size_before[1] else 0
            scanner = self._scanners.scanners_for(protocol)[layout]
            offset, is_found = scanner.search(side.data, start, size_now[0], side.ended, min_consecutive)
            side.searched[key] = offset, is_found, size_now
        return offset if is_found else None

    def _unclaimed(self, origin: FlowOrigin, openings: Openings) -> Detection:
        """The detection of a connection of no supported protocol."""
        name = foreign_protocols.foreign_protocol(openings[0].data, openings[1].data)
        client = (
            int(openings[1].proxied is not None) if any(x.proxied for x in openings) else self._client_by_port(origin)
        )
        proxied = openings[client].proxied
        return Detection(None, Claim(Verdict.NO), client, None, foreign_protocol=name, proxied=proxied)

    def _client_by_port(self, origin: FlowOrigin) -> int:
        """The client if content does not decide: the SYN's sender, else the side whose port is not a server port."""
        if origin.a_is_client:
            return 0
        a, b = origin.ports
        if (a in self._ports) != (b in self._ports):
            return int(a in self._ports)
        return int(a < b)


def _limit(servers: dict[ServerProtocol, Any]) -> None:
    """Drop the oldest servers above the limit."""
    while len(servers) > MAX_SERVERS:
        del servers[next(iter(servers))]


def _in_order_of_capture(chunks: Sequence[StreamChunk]) -> Iterator[tuple[StreamChunk, int]]:
    """The packets of chunks in the order of the input, each as its chunk and its number in it."""
    packets = [(chunk, k) for chunk in chunks for k in range(len(chunk.packets))]
    order = np.concatenate([chunk.packets.array()[ORDER] for chunk in chunks])
    return map(packets.__getitem__, np.argsort(order, kind="stable").tolist())


def _next_ask_bytes(seen_bytes: int) -> int:
    """The number of bytes of both sides that must be captured before the protocols are asked again."""
    return seen_bytes + max(seen_bytes // ASK_DIVISOR, 1)
