# cython: language_level=3, annotation_typing=False
"""Frames ordered bytes: finds the spans of messages in every stream.

``tcp.reassembly`` feeds it chunks of stream bytes. ``detection`` decides which protocol a connection speaks;
``side`` finds where each message of a direction begins and ends. Every captured byte ends up in exactly one message or
in one ``undecoded`` problem, whatever the bytes are.

Rows must not depend on how the input was split into windows. So protocols are asked at points that only the stream
determines: after each packet, in the order of ``tcp.reassembly``, and when both sides have ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import cython
import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.decode.detection import (
    DecodeAs,
    Detection,
    Detector,
    FlowOrigin,
    PendingDetection,
    ProvenServer,
    origins,
)
from mqpcap.decode.foreign_protocols import GRPC, HTTP_2, TLS, is_grpc
from mqpcap.decode.foreign_streams import ForeignStreams
from mqpcap.decode.frames import FoundMessages, Frames, Problem
from mqpcap.decode.openings import OpeningTable
from mqpcap.decode.proxy_header import REASON, Proxied, ProxyHeader
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.side import STOP
from mqpcap.decode.stream_chunk import Packet, by_connection, joined
from mqpcap.schema.protocol import Claim, Evidence, MessageQueue
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flows

if cython.compiled:
    from cython.cimports.mqpcap.decode.side import Side
    from cython.cimports.mqpcap.decode.stream_chunk import StreamChunk
else:
    from mqpcap.decode.side import Side
    from mqpcap.decode.stream_chunk import StreamChunk

FOREIGN = -1
GRPC_BYTES = 16 << 10
"""First bytes of a side whose headers distinguish gRPC from other HTTP/2."""


@cython.cclass
class ConnectionState:
    """A connection while it lives; ``client`` is the side (0 or 1) that speaks as the client.

    Connections that `OpeningTable` found foreign share a state of flow FOREIGN, by foreign protocol.
    ``foreign_protocol``: the protocol of a connection that is of no supported protocol, if known.
    ``pending``: bytes buffered until the decision; None if the first packet decides.
    """

    protocol: MessageQueue | None
    identified_by: str | None
    proxied: ProxyHeader | None
    foreign_protocol: str | None
    pending: PendingDetection | None
    evidence: Evidence | None

    def __init__(
        self,
        flow: int,
        sides: tuple[Side, Side],
        protocol: MessageQueue | None = None,
        decided: bool = False,
        client: int = 0,
        foreign_protocol: str | None = None,
    ) -> None:
        self.flow, self.sides, self.protocol, self.decided, self.client = flow, sides, protocol, decided, client
        self.foreign_protocol = foreign_protocol
        self.identified_by = self.proxied = self.pending = self.evidence = None


class Framer:
    """Frames both directions of every connection.

    ``feed`` returns the messages of a window; ``finish`` ends connections. ``output.problems`` collects ranges without
    a message; ``detector`` remembers servers.
    """

    def __init__(
        self,
        protocols: Mapping[str, MessageQueue],
        decode_as: Sequence[DecodeAs] = (),
        servers: Iterable[ProvenServer] = (),
    ) -> None:
        self.connections: dict[int, ConnectionState] = {}
        self.claimed_count = 0
        """Connections of a supported protocol."""
        self.proxied = Proxied()
        self.output = FoundMessages()
        self._scanners = Scanners()
        self.detector = Detector(protocols, decode_as, servers, self._scanners)
        self._openings = OpeningTable(protocols, [rule.port for rule in decode_as])
        self._foreign = ForeignStreams()
        self._foreign_states: dict[str | None, ConnectionState] = {}
        self.undecided: dict[tuple[int, int], int] = {}
        """By connection and side: capture time (ns) of bytes that may become a message older than emitted ones."""
        self.after_gaps: set[int] = set()
        """Connections with a gap that has no message after it yet."""

    def feed(self, chunks: StreamChunks, flows: Flows) -> tuple[list[Frames], Int64Array, Int64Array]:
        """The messages in the new bytes by protocol and buffer, and two arrays for ``Reassembler.retain``.

        Per chunk: bytes consumed, and how many more bytes the unconsumed ones need before it is worth returning them
        again (0: any number).
        """
        connections = self.connections
        rows = self._pass_foreign(chunks, flows)
        self._begin_claimed(chunks, flows, rows)
        new_here = (
            n for n in dict.fromkeys(chunks.flow[rows].tolist()) if n not in connections or not connections[n].decided
        )
        origin_by_flow = origins(flows, list(new_here))
        consumed: list[int] = []
        wanted: list[int] = []
        full: list[ConnectionState] = []
        for number, new in by_connection(chunks, rows):
            connection = connections.get(number)
            if connection is None:
                connection = connections[number] = ConnectionState(number, (Side(number, 0), Side(number, 1)))
            if connection.decided or self._detected(connection, origin_by_flow[number], new):
                self._take(connection, new, consumed, wanted)
            else:
                consumed += [chunk.length for chunk in new]
                wanted += [0] * len(new)
                if connection.pending is not None and connection.pending.is_full:
                    full.append(connection)
        # Decided last: a server proved by another connection of this window, at an earlier capture time, must count
        # whatever the order of iteration.
        for connection in full:
            pending, origin = connection.pending, origin_by_flow[connection.flow]
            assert pending is not None
            self._decide(connection, origin, self.detector.detect_by_server(pending, origin, pending.ts_ns))
        all_consumed, all_wanted = chunks.length.copy(), np.zeros(len(chunks), np.int64)
        all_consumed[rows], all_wanted[rows] = consumed, wanted
        return self.output.take_all(chunks.buffer), all_consumed, all_wanted

    def _pass_foreign(self, chunks: StreamChunks, flows: Flows) -> Int64Array:
        """Pass the bytes of connections that no protocol can claim; returns the rows of all other chunks."""
        connections = self.connections
        is_first = np.diff(chunks.flow, prepend=-1) != 0
        numbers = chunks.flow[is_first].tolist()
        new_rows = np.flatnonzero(is_first)[np.array([number not in connections for number in numbers], np.bool_)]
        for number, name in self._openings.foreign(chunks, flows, new_rows) if len(new_rows) else ():
            if name not in self._foreign_states:
                sides = Side(FOREIGN, 0), Side(FOREIGN, 1)
                state = ConnectionState(FOREIGN, sides, decided=True, foreign_protocol=name)
                self._foreign_states[name] = state
            connections[number] = self._foreign_states[name]
        states = map(connections.get, numbers)
        is_foreign = np.array([state is not None and state.flow == FOREIGN for state in states], np.bool_)
        if not is_foreign.any():
            return np.arange(len(chunks))
        place = np.cumsum(is_first) - 1
        of_row = is_foreign[place]
        rows = np.flatnonzero(of_row)
        is_tls = [
            is_own and connections[x].foreign_protocol == TLS for x, is_own in zip(numbers, is_foreign, strict=True)
        ]
        self._foreign.add(chunks, rows, np.array(is_tls)[place[rows]], self.output)
        return np.flatnonzero(~of_row)

    @cython.locals(connection=ConnectionState)  # type: ignore[untyped-decorator]
    def _begin_claimed(self, chunks: StreamChunks, flows: Flows, rows: Int64Array) -> None:
        """Begin the new connections that their first packet decides, all of a window together."""
        first_rows = rows[np.diff(chunks.flow[rows], prepend=-1) != 0]
        is_new = [number not in self.connections for number in chunks.flow[first_rows].tolist()]
        new_rows = first_rows[np.array(is_new, np.bool_)]
        claimed = [*self.detector.first_claims(chunks, flows, new_rows)] if len(new_rows) else []
        if not claimed:
            return
        claimed_rows = np.array([row for row, _, _ in claimed], np.int64)
        numbers = chunks.flow[claimed_rows]
        flow = flows.columns(numbers)
        server = np.ones(len(flow), np.int64)
        packet_ns = chunks.piece_ts_ns[chunks.piece_first[claimed_rows]].tolist()
        columns = flow.cached_id.tolist(), flow.ips(server), flow.ports(server).tolist(), flow.first_ts_ns.tolist()
        origins_of = zip(*columns, strict=True)
        for number, (_, protocol, claim), ts_ns, origin in zip(
            numbers.tolist(), claimed, packet_ns, origins_of, strict=True
        ):
            connection = ConnectionState(number, (Side(number, 0), Side(number, 1)), protocol, True)
            self.connections[number] = connection
            self._begin(connection, claim, "content", origin)
            self.detector.learn((protocol.name, origin[1], origin[2]), ts_ns)

    def finish(self, flows: Flows, only: Collection[int] | None = None) -> list[Frames]:
        """Ends connections (``only``: these); returns their last messages. Afterwards every byte is accounted for."""
        connections = self.connections
        ending = [*connections.values()] if only is None else [connections[n] for n in only if n in connections]
        waiting = [connection for connection in ending if not connection.decided]
        origin_by_flow = origins(flows, [connection.flow for connection in waiting])
        # Two passes: connections decided by content prove servers; the second pass decides the rest by those servers.
        for detect_by_server in (False, True):
            for connection in waiting:
                pending = connection.pending
                if pending is not None:
                    ask = self.detector.detect_by_server if detect_by_server else self.detector.detect_buffered
                    detection = ask(pending, origin_by_flow[connection.flow])
                    if detection is not None:
                        self._decide(connection, origin_by_flow[connection.flow], detection)
        self._foreign.end(only, self.output)
        for connection in ending:
            for side in connection.sides:
                if side.partial is not None or side.skipped_range is not None:
                    side.end(self.output)
            self._settle(connection.flow)
        return self.output.take_all(np.empty(0, np.uint8))

    def forget(self, flows: Int64Array) -> None:
        """Drop finished connections. Their servers are kept, because they identify later connections."""
        for number in flows.tolist():
            connection = self.connections.pop(number, None)
            self.claimed_count -= connection is not None and connection.protocol is not None
            self._settle(number)

    def _settle(self, number: int) -> None:
        self.after_gaps.discard(number)
        for side in (0, 1) if self.undecided else ():
            self.undecided.pop((number, side), None)

    @cython.locals(connection=ConnectionState, chunk=StreamChunk, side=Side, a=Side, b=Side)  # type: ignore[untyped-decorator]
    def _take(
        self, connection: ConnectionState, new: list[StreamChunk], consumed: list[int], wanted: list[int]
    ) -> None:
        """Frame the chunks of a decided connection."""
        protocol = connection.protocol
        layouts = self._scanners.scanners_by_index(protocol)
        for chunk in new:
            if (
                connection.foreign_protocol == HTTP_2
                and chunk.offset < GRPC_BYTES
                and is_grpc(bytes(chunk.data[:GRPC_BYTES]))
            ):
                connection.foreign_protocol = GRPC  # its headers came after the bytes that identified HTTP/2
            side = connection.sides[chunk.side]
            done = side.take(chunk, layouts, self.output)
            missing_bytes = side.message_end - chunk.offset - done
            consumed.append(done)
            wanted.append(missing_bytes if missing_bytes > 0 else 0)
            side.open_since_ns = side.since_ns(chunk, done) if missing_bytes <= 0 and done < chunk.length else None
        for side in connection.sides if protocol is not None else ():
            if side.partial is not None or side.open_since_ns is not None:
                self.undecided[side.flow, side.index] = side.undecided_since_ns
            elif self.undecided:
                self.undecided.pop((side.flow, side.index), None)
        a, b = connection.sides
        if (a.gap and a.step != STOP) or (b.gap and b.step != STOP):
            self.after_gaps.add(connection.flow)
        elif self.after_gaps:
            self.after_gaps.discard(connection.flow)

    def _detected(self, connection: ConnectionState, origin: FlowOrigin, new: list[StreamChunk]) -> bool:
        """Ask the protocols about a connection with new chunks. If False, the chunks are buffered."""
        if connection.pending is None:
            result = self.detector.detect_first(origin, new)
            if not isinstance(result, PendingDetection):
                self._decide(connection, origin, *result)
                return True
            connection.pending = result
        detection = self.detector.detect(connection.pending, origin, new)
        if detection is not None:
            self._decide(connection, origin, detection)
        return detection is not None

    def _decide(
        self, connection: ConnectionState, origin: FlowOrigin, detection: Detection, first_packet: Packet | None = None
    ) -> None:
        """Apply a detection result, and frame the buffered bytes.

        ``first_packet``: the packet that decided a connection without buffered bytes.
        """
        pending, connection.pending = connection.pending, None
        connection.decided, connection.client, connection.protocol = True, detection.client, detection.protocol
        if detection.protocol is None:
            connection.foreign_protocol = detection.foreign_protocol
            for side in connection.sides:
                side.give_up("tls" if detection.foreign_protocol == TLS else "foreign")
        else:
            server = origin.server(detection)
            evidence_of = origin.connection_id, server[1], server[2], origin.first_ts_ns
            self._begin(connection, detection.claim, detection.identified_by, evidence_of, detection.proxied)
            if detection.identified_by != "peer" and not detection.is_guess:
                self.detector.learn(
                    server, first_packet[0] if first_packet is not None else pending.ts_ns if pending else 0
                )
        if detection.proxied is not None:
            lengths = detection.proxied.length, detection.proxied.consent_length
            for number, length in zip((detection.client, 1 - detection.client), lengths, strict=True):
                packet = pending.sides[number].first_packet if pending is not None else first_packet
                if length:
                    self._pass_proxy_header(connection.sides[number], length, packet or (0, 0, 0))
            connection.proxied = detection.proxied
            if detection.protocol is not None:
                self.proxied.add(detection.proxied, origin.ends(detection.client))
        if pending is not None:
            self.detector.release(pending)
            layouts = self._scanners.scanners_by_index(connection.protocol)
            for chunk in joined(pending.chunks):
                connection.sides[chunk.side].take_buffered(chunk, layouts, self.output)

    def _pass_proxy_header(self, side: Side, length: int, packet: Packet) -> None:
        """Emit a header as undecoded bytes; the messages of the side begin after it."""
        side.framed_to = length
        ts_ns, number, _ = packet
        self.output.problems.append(Problem(side.flow, side.index, 0, length, "undecoded", REASON, ts_ns, number))

    @cython.locals(connection=ConnectionState, side=Side)  # type: ignore[untyped-decorator]
    def _begin(
        self,
        connection: ConnectionState,
        claim: Claim,
        identified_by: str | None,
        origin: tuple[int, str, int, int],
        proxied: ProxyHeader | None = None,
    ) -> None:
        """Begin a connection of a protocol: set the first layouts of both directions, as the protocol claimed.

        ``origin``: the first properties of its `Evidence`.
        """
        assert connection.protocol is not None
        self.claimed_count += 1
        began = [claim.c2s or "", claim.s2c or ""]
        connection.identified_by, connection.evidence = identified_by, Evidence(*origin, layouts=began)
        layouts = self._scanners.scanners_for(connection.protocol)
        for number, side in enumerate(connection.sides):
            is_client = number == connection.client
            layout = began[not is_client]
            if layout:
                is_after_header = proxied is not None and (is_client or proxied.consent_length > 0)
                side.begin(layouts[layout].layout_index, is_after_header or (is_client and claim.opens))
            else:
                side.give_up("bad_framing")
