"""Ordered bytes to message spans.

``tcp.reassembly`` feeds it chunks of stream bytes. ``detection`` decides which protocol a connection speaks;
``side`` finds where each message of a direction begins and ends. Every captured byte ends up in exactly one message or
in one ``undecoded`` problem, whatever the bytes are.

Rows must not depend on how the input was cut into windows. So the protocols are asked at places that the stream alone
decides: packet by packet in the order in which ``tcp.reassembly`` gave them out, and once more when both sides have
ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.decode.detection import Choice, DecodeAs, Detector, Hold, Origin, Server, Told, origins
from mqpcap.decode.foreign_protocols import GRPC, HTTP_2, TLS, is_grpc
from mqpcap.decode.frames import FoundMessages, Frames, Problem
from mqpcap.decode.proxy_header import REASON, ProxyHeader
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.side import Side
from mqpcap.decode.stream_chunk import Packet, StreamChunk, by_connection, joined
from mqpcap.schema.protocol import Evidence, MessageQueue
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flows import Flows

GRPC_BYTES = 16 << 10
"""Among so many bytes of a side its headers tell gRPC from other HTTP/2."""


@dataclass(slots=True)
class ConnectionState:
    """A connection while it lives; ``client`` is the side (0 or 1) that speaks as the client."""

    flow: int
    sides: tuple[Side, Side]
    protocol: MessageQueue | None = None
    identified_by: str | None = None
    decided: bool = False
    client: int = 0
    proxied: ProxyHeader | None = None
    stranger: str | None = None
    """What it speaks where no protocol took it, as far as that is known."""
    hold: Hold | None = None
    """Before the decision, unless the first look brings it."""
    evidence: Evidence | None = None


class Framer:
    """Every connection's two directions, from chunks of stream bytes to messages.

    ``feed`` returns the messages of a window; ``finish`` decides what is still open. ``found.problems`` grows with the
    ranges that are no message; ``detector`` knows the servers.
    """

    def __init__(
        self, protocols: Mapping[str, MessageQueue], decode_as: Sequence[DecodeAs] = (), servers: Iterable[Told] = ()
    ) -> None:
        self.connections: dict[int, ConnectionState] = {}
        self.found = FoundMessages()
        self._scanners = Scanners()
        self.detector = Detector(protocols, decode_as, servers, self._scanners)
        self.unsettled: dict[tuple[int, int], int] = {}
        """Sides (connection, 0 or 1) that hold bytes which may become a message older than others given out, and since
        when (ns)."""

    def feed(self, chunks: StreamChunks, flows: Flows) -> tuple[list[Frames], Int64Array, Int64Array]:
        """The messages in the new bytes, by protocol and buffer; and what the reassembly keeps (``Reassembler.keep``).

        That is, per chunk, how many bytes are done with, and how many more must follow the others before it is worth
        giving them out again.
        """
        known = self.connections
        new_here = (n for n in dict.fromkeys(chunks.flow.tolist()) if n not in known or not known[n].decided)
        of = origins(flows, list(new_here))
        consumed: list[int] = []
        wanted: list[int] = []
        full: list[ConnectionState] = []
        for number, new in by_connection(chunks):
            connection = known.get(number)
            if connection is None:
                connection = known[number] = ConnectionState(number, (Side(number, 0), Side(number, 1)))
            if connection.decided or self._detected(connection, of[number], new):
                self._take(connection, new, consumed, wanted)
            else:
                consumed += [chunk.length for chunk in new]
                wanted += [0] * len(new)
                if connection.hold is not None and connection.hold.is_full:
                    full.append(connection)
        # Servers that other connections of this window told earlier count, whichever connection was looked at first.
        for connection in full:
            hold, origin = connection.hold, of[connection.flow]
            assert hold is not None
            self._decide(connection, origin, self.detector.by_peer(hold, origin, hold.ts_ns))
        return self.found.taken(chunks.buffer), np.array(consumed, np.int64), np.array(wanted, np.int64)

    def finish(self, flows: Flows, only: Iterable[int] | None = None) -> list[Frames]:
        """Messages that were still open; after it every byte is accounted for. ``only``: of these connections."""
        known = self.connections
        ending = [*known.values()] if only is None else [known[n] for n in only if n in known]
        waiting = [connection for connection in ending if not connection.decided]
        of = origins(flows, [connection.flow for connection in waiting])
        # Those that content decides tell their servers before others are decided by these.
        for by_peer in (False, True):
            for connection in waiting:
                hold = connection.hold
                if hold is not None:
                    ask = self.detector.by_peer if by_peer else self.detector.held_choice
                    choice = ask(hold, of[connection.flow])
                    if choice is not None:
                        self._decide(connection, of[connection.flow], choice)
        for connection in ending:
            for side in connection.sides:
                if side.cut is not None or side.skipped is not None:
                    side.end(self.found)
            self._settle(connection.flow)
        return self.found.taken(np.empty(0, np.uint8))

    def forget(self, flows: Int64Array) -> None:
        """Drop connections that were finished. Servers stay known: others are recognised by them."""
        for number in flows.tolist():
            self.connections.pop(number, None)
            self._settle(number)

    def _settle(self, number: int) -> None:
        for side in (0, 1) if self.unsettled else ():
            self.unsettled.pop((number, side), None)

    def _take(
        self, connection: ConnectionState, new: list[StreamChunk], consumed: list[int], wanted: list[int]
    ) -> None:
        """Frame chunks of a connection that was decided."""
        protocol = connection.protocol
        layouts = self._scanners.in_order(protocol)
        for chunk in new:
            if connection.stranger == HTTP_2 and chunk.offset < GRPC_BYTES and is_grpc(bytes(chunk.data[:GRPC_BYTES])):
                connection.stranger = GRPC  # its headers came behind the bytes that told HTTP/2
            side = connection.sides[chunk.side]
            done = side.take(chunk, layouts, self.found)
            more = side.until - chunk.offset - done
            consumed.append(done)
            wanted.append(more if more > 0 else 0)
            side.open_since_ns = side.since_ns(chunk, done) if more <= 0 and done < chunk.length else None
        for side in connection.sides if protocol is not None else ():
            if side.cut is not None or side.open_since_ns is not None:
                self.unsettled[side.flow, side.number] = side.unsettled_since_ns
            elif self.unsettled:
                self.unsettled.pop((side.flow, side.number), None)

    def _detected(self, connection: ConnectionState, of: Origin, new: list[StreamChunk]) -> bool:
        """Ask the protocols about a connection with these new chunks; when False they are held."""
        if connection.hold is None:
            found = self.detector.first_look(of, new)
            if not isinstance(found, Hold):
                self._decide(connection, of, *found)
                return True
            connection.hold = found
        choice = self.detector.look(connection.hold, of, new)
        if choice is not None:
            self._decide(connection, of, choice)
        return choice is not None

    def _decide(
        self, connection: ConnectionState, of: Origin, choice: Choice, first_packet: Packet | None = None
    ) -> None:
        """Give the connection to a protocol or to nobody, and frame what was held of it.

        ``first_packet``: the packet that decided a connection without a hold.
        """
        hold, connection.hold = connection.hold, None
        connection.decided, connection.client, connection.protocol = True, choice.client, choice.protocol
        if choice.protocol is None:
            connection.stranger = choice.stranger
            for side in connection.sides:
                side.give_up("tls" if choice.stranger == TLS else "foreign")
        else:
            connection.identified_by = choice.identified_by
            server = of.server(choice)
            self._begin(connection, of, choice, server)
            if choice.identified_by != "peer" and not choice.is_guess:
                self.detector.learn(server, first_packet[0] if first_packet is not None else hold.ts_ns if hold else 0)
        if choice.proxied is not None:
            packet = hold.sides[choice.client].first_packet if hold is not None else first_packet
            self._pass_proxy_header(connection, choice.proxied, packet or (0, 0, 0))
        if hold is not None:
            self.detector.release(hold)
            layouts = self._scanners.in_order(connection.protocol)
            for chunk in joined(hold.chunks):
                connection.sides[chunk.side].take_held(chunk, layouts, self.found)

    def _pass_proxy_header(self, connection: ConnectionState, header: ProxyHeader, packet: Packet) -> None:
        """Give the header out as bytes that are no message: the client's messages begin behind it."""
        side = connection.sides[connection.client]
        side.at, connection.proxied = header.length, header
        ts_ns, number, _ = packet
        self.found.problems.append(
            Problem(side.flow, side.number, 0, header.length, "undecoded", REASON, ts_ns, number)
        )

    def _begin(self, connection: ConnectionState, of: Origin, choice: Choice, server: Server) -> None:
        """Set the layouts that the directions begin with, as the protocol claimed."""
        assert choice.protocol is not None
        began = [choice.claim.c2s or "", choice.claim.s2c or ""]
        connection.evidence = Evidence(of.connection_id, server[1], server[2], of.first_ts_ns, layouts=began)
        layouts, is_proxied = self._scanners.of(choice.protocol), choice.proxied is not None
        for number, side in enumerate(connection.sides):
            layout = began[number != connection.client]
            if layout:
                side.begin(layouts[layout].place, is_proxied and number == connection.client)
            else:
                side.give_up("bad_framing")
