"""A Scapy session that yields messages: ``sniff(offline="a.pcap", session=MqSession)``.

Scapy reads the packets; from there they go through the same rooms as a capture does for the tables, so messages
come whole and once, whatever order their segments had, and gaps stay gaps. Scapy's own ``TCPSession`` fills gaps with
zeros and loses messages where a segment holds several.

Only messages come out: a packet that completes none yields nothing, nor does what is no message. Each is its
header layer with its body behind it (``BlipMQ / BlipMQPublish``), read in the direction and layout of its connection;
one with a flaw is its header with ``Raw`` behind it. ``packet.time`` is when its first byte was captured,
``packet.mq`` says the rest (:class:`Seen`). At the end of each file everything still open comes out. A live capture
has no end: keep the session and call ``flush``.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scapy.config import conf
from scapy.data import MTU
from scapy.packet import Packet
from scapy.sessions import DefaultSession
from scapy.supersocket import IterSocket, SuperSocket
from scapy.utils import EDecimal

from mqpcap.capture import Window
from mqpcap.decode.columns import Records
from mqpcap.decode.framing import Frames
from mqpcap.pipeline import Options, Pipeline
from mqpcap.schema.fields import Broken, Message
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ANY, Direction, Layout, MessageQueue

BATCH_PACKETS = 512
"""So many packets of a file are read before their messages come out; a live capture gives each as it comes."""
MAX_PACKET_BYTES = 4 * MTU
"""As Scapy's readers bound it; a capture on a host has packets above Scapy's usual 65535 bytes."""
RAW_IP = 101
"""LINKTYPE_RAW: the packet begins with its IP header."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a message was found: the columns of ``messages`` of the same names.

    first_packet and last_packet count from 1 as the session got the packets. ``dialect`` is as the connection is
    known by then. ``op`` is the name of ``op_code``, None without one.
    """

    protocol: str
    dialect: str | None
    op_code: int | None
    op: str | None
    flaw: str | None
    connection_id: int
    direction: Direction
    stream_offset: int
    frame_len: int
    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int
    ts_ns: int
    end_ts_ns: int
    first_packet: int
    last_packet: int
    gap_before_bytes: int
    resynced: bool


class MqSession(DefaultSession):
    """Messages instead of packets; see the module.

    Each source (file, interface) is a capture of its own: packets of two never meet in one connection.
    ``options`` are those of a dissection: ports to decode as, memory. A ``supersession`` sees the packets first.
    """

    def __init__(self, options: Options | None = None, **scapy: Any) -> None:
        super().__init__(**scapy)
        self.options = options or Options()
        self._sources: dict[int, _Source] = {}

    def recv(self, sock: SuperSocket) -> Iterator[Packet]:
        """The messages that the next packets of ``sock`` complete; at its end those that were still open."""
        source = self._sources.setdefault(id(sock), _Source(self.options, sock))
        # A whole file waits for nobody; a live capture must not wait for packets to come.
        many = getattr(sock, "nonblocking_socket", False)
        packets = []
        try:
            for _ in range(BATCH_PACKETS if many else 1):
                packet = self._packet(sock)
                if packet is not None:
                    packets.append(packet)
                elif self.supersession is None:
                    break
        except EOFError:
            del self._sources[id(sock)]
            yield from source.messages(packets)
            yield from source.last_messages()
            raise
        yield from source.messages(packets)

    def _packet(self, sock: SuperSocket) -> Packet | None:
        if self.supersession is not None:
            packet = sock.recv()
            return None if packet is None else self.process(packet)
        if isinstance(sock, IterSocket):
            return _next(sock)
        # The rooms read the headers; to Scapy the first class is enough.
        return sock.recv(MAX_PACKET_BYTES, stop_dissection_after=Packet)

    def flush(self) -> list[Packet]:
        """The messages still open, as at the end of a file; after it the session begins anew."""
        sources, self._sources = self._sources, {}
        return [message for source in sources.values() for message in source.last_messages()]


class _Source:
    """One capture on its way through the rooms."""

    def __init__(self, options: Options, sock: SuperSocket) -> None:
        self.sock = sock  # kept, so that no other gets its id
        self.rooms = Pipeline(options)
        self.packet_count = 0

    def messages(self, packets: list[Packet]) -> list[Packet]:
        """What the packets complete, in the order of the packets that did."""
        window = self._window(packets)
        return self._told(self.rooms.messages(window)) if len(packets) else []

    def last_messages(self) -> list[Packet]:
        return self._told(self.rooms.last_messages())

    def _window(self, packets: list[Packet]) -> Window:
        """The packets' bytes as a file would hold them."""
        read = [_bytes(packet) for packet in packets]
        lengths = np.array([len(raw) for raw, _ in read], np.int64)
        first = self.packet_count + 1
        self.packet_count += len(packets)
        wire = [packet.wirelen or 0 for packet in packets]
        return Window(
            buffer=np.frombuffer(b"".join(raw for raw, _ in read), np.uint8),
            offset=np.cumsum(lengths) - lengths,
            caplen=lengths,
            wirelen=np.maximum(np.array(wire, np.int64), lengths),
            ts_ns=np.array([_nanoseconds(packet.time) for packet in packets], np.int64),
            link_type=np.array([link for _, link in read], np.int32),
            number=np.arange(first, first + len(packets), dtype=np.int64),
            file=0,
        )

    def _told(self, found: Iterator[tuple[Frames, Records]]) -> list[Packet]:
        rows = [row for frames, records in found for row in self._rows(frames, records)]
        rows.sort(key=lambda packet: (packet.mq.last_packet, packet.mq.first_packet, packet.mq.stream_offset))
        return rows

    def _rows(self, frames: Frames, records: Records) -> Iterator[Packet]:
        protocol = self.rooms.protocols[frames.protocol]
        program = self.rooms.reader(protocol).program
        dialects: dict[int, str | None] = {}
        for i in range(len(frames.start)):
            flow = int(frames.flow[i])
            if flow not in dialects:
                dialects[flow] = self._dialect(protocol, flow)
            layout = protocol.layout(program.layouts[int(frames.layout[i])].name)
            raw = frames.buffer[int(frames.start[i]) : int(frames.end[i])].tobytes()
            reading = int(records.reading[i])
            flaw = Flaw(int(records.flaw[i]))
            packet = flawed(layout, raw) if flaw else whole(layout, raw, program.alt_class[reading])
            said = (program.alt_dialect[reading] if reading >= 0 else None) or dialects[flow] or layout.dialect
            packet.mq = self._seen(protocol, frames, i, layout, flaw, said)
            packet.time = EDecimal(packet.mq.ts_ns) / 1_000_000_000
            packet.original = raw
            yield packet

    def _dialect(self, protocol: MessageQueue, flow: int) -> str | None:
        """What the connection's evidence says of it so far."""
        connection = self.rooms.framer.talks[flow].connection
        if protocol.evidence is None or connection is None:
            return None
        return protocol.evidence.resolve([connection])[0].dialect

    def _seen(
        self, protocol: MessageQueue, frames: Frames, i: int, layout: Layout, flaw: Flaw, dialect: str | None
    ) -> Seen:
        flow = self.rooms.assembler.flows[int(frames.flow[i])]
        side = int(frames.side[i])
        ends = (flow.a_ip, flow.a_port), (flow.b_ip, flow.b_port)
        op = int(frames.op[i])
        return Seen(
            protocol=protocol.name,
            dialect=dialect,
            op_code=None if op == ANY else op,
            op=layout.names.get(op),
            flaw=flaw.text,
            connection_id=flow.connection_id,
            direction=self.rooms.framer.talks[flow.index].direction(side),
            stream_offset=int(frames.offset[i]),
            frame_len=int(frames.captured[i]),
            src_ip=ends[side][0],
            src_port=ends[side][1],
            dst_ip=ends[1 - side][0],
            dst_port=ends[1 - side][1],
            ts_ns=int(frames.ts_ns[i]),
            end_ts_ns=int(frames.end_ts_ns[i]),
            first_packet=int(frames.first_packet[i]),
            last_packet=int(frames.last_packet[i]),
            gap_before_bytes=int(frames.gap_before[i]),
            resynced=bool(frames.resynced[i]),
        )


def _next(packets: IterSocket) -> Packet:
    """The next of a list of packets, which Scapy would give a new time; its bytes are as it would be sent now."""
    given = next(packets.iter, None)
    if given is None:
        raise EOFError
    if isinstance(given, bytes):
        return conf.raw_layer(given)
    packet = type(given)(bytes(given), stop_dissection_after=Packet)
    packet.time, packet.wirelen = given.time, given.wirelen
    return packet


def _bytes(packet: Packet) -> tuple[bytes, int]:
    """A packet as it was captured and its link type, -1 for one that neither has nor carries IP."""
    link: int | None = _links().get(type(packet))
    if link is not None:
        return packet.original or bytes(packet), link
    whole_packet = type(packet)(packet.original or bytes(packet))
    for layer in ("IP", "IPv6"):
        if layer in whole_packet:
            return bytes(whole_packet[layer]), RAW_IP
    return b"", -1


def _links() -> Mapping[type[Packet], int]:
    numbers: Mapping[type[Packet], int] = conf.l2types.layer2num
    return numbers


def _nanoseconds(time: Any) -> int:
    """Scapy's time, a decimal of what the file held or a float, as the tables have it."""
    return round(EDecimal(time) * 1_000_000_000)


def bodies(layout: Layout) -> list[type[Message]]:
    """The classes that may read a body of the layout, whatever its operation."""
    return [r if isinstance(r, type) else r.message for readings in layout.bodies.values() for r in readings]


def top(header: type) -> type[Message]:
    """The class people know a header by: the one that those with narrower bounds derive from.

    A class that dispatches (Kokaq) stands for headers of other shapes and reads none itself.
    """
    above = header.__mro__[: header.__mro__.index(Message)]
    return [cls for cls in above if "dispatch_hook" not in cls.__dict__][-1]


def whole(layout: Layout, raw: bytes, reading: str) -> Message:
    """A message that has no flaw, read as its layout says; ``reading`` is the body's class."""
    if layout.header is not None:
        return top(layout.header).read(raw, layout.direction, layout.name)
    return next(r for r in bodies(layout) if r.__name__ == reading)(raw)


def flawed(layout: Layout, raw: bytes) -> Message:
    """A message with a flaw: its header and ``Raw`` behind it, as in the tables only the header has columns."""
    header = top(layout.header) if layout.header is not None else bodies(layout)[0]
    packet: Message = header()
    behind = raw
    if layout.header is not None:
        with suppress(Broken):
            packet, behind = header.begin(raw)
    packet.add_payload(conf.raw_layer(behind))
    return packet
