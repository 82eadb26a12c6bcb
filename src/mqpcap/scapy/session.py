"""A Scapy session that yields messages: ``sniff(offline="a.pcap", session=MqSession)``.

Scapy reads the packets; from there they go through the same stages as a capture does for the tables. Only messages
come out: a packet that completes none yields nothing, nor does what is no message. Each is its header layer with its
body behind it (``BlipMQ / BlipMQPublish``), read in the direction and layout of its connection; one with a flaw is its
header with ``Raw`` behind it. ``packet.time`` is when its first byte was captured, ``packet.mq`` says the rest
(:class:`Seen`). Messages of a file come in the order of the tables; at its end everything still open comes out. A live
capture has no end: keep the session and call ``flush``.

The pairs of the table ``exchanges`` are all known at the end of the file, or when flushed; of a request whose pair is
not known yet any message of the other direction of its connection may be the answer, if the protocol's rule lets it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from heapq import heappop, heappush
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from scapy.config import conf
from scapy.data import MTU
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet
from scapy.sessions import DefaultSession
from scapy.supersocket import IterSocket, SuperSocket
from scapy.utils import EDecimal, GenericRawPcapWriter

from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.packet_locator import CapturedPacket, window_of
from mqpcap.pipeline import FLOW_BYTES, OPEN_SHARE, Options, Output, Tables
from mqpcap.schema.fields import Broken
from mqpcap.schema.message import Message, above
from mqpcap.schema.protocol import DIRECTIONS, Direction, Layout, MessageQueue
from mqpcap.tcp.headers import Segments, address_text

BATCH_PACKETS = 512
"""So many packets of a file are read at once; a live capture gives each as it comes."""
HELD_MESSAGES = 16384
"""So many messages of a file wait, so that one which was long incomplete still comes in order of time."""
HELD_PACKETS = 16384
"""So many packets of a source are kept, so that a message has those that carried it."""
KEPT_CONNECTIONS = 1024
"""So many connections that closed are remembered; of those before nothing more is expected."""
MAX_PACKET_BYTES = 4 * MTU
"""As Scapy's readers bound it; a capture on a host has packets above Scapy's usual 65535 bytes."""
RAW_IP = 101
"""LINKTYPE_RAW: the packet begins with its IP header."""

_NO_FILES = ("",)
_EXCHANGE = ["connection_id", "request_direction", "request_offset", "reply_offset"]

Key = tuple[int, Direction, int]
"""connection_id, direction and stream_offset: the key of a message within its capture."""


class Pair:
    """The key of the message that answers another, as far as the exchanges have told, or looked up when it is asked."""

    def __init__(self, find: Callable[[], Key | None] | None = None) -> None:
        self._find = find
        self._reply: Key | None = None
        self._is_known = False

    def tell(self, reply: Key | None) -> None:
        """It is decided: this message answers, or none does."""
        self._reply, self._is_known, self._find = reply, True, None

    def told(self) -> tuple[Key | None, bool]:
        """The key, and whether it is decided."""
        if self._find is not None:
            self.tell(self._find())
        return self._reply, self._is_known

    def __getstate__(self) -> dict[str, Any]:
        self.told()
        return self.__dict__


def as_scapy(packet: CapturedPacket) -> Packet:
    """A captured packet as Scapy reads it."""
    made: Packet = conf.l2types.num2layer.get(packet.link_type, conf.raw_layer)(packet.raw)
    made.time, made.wirelen = EDecimal(packet.ts_ns) / 1_000_000_000, packet.wire_len
    return made


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a message was found: its columns of ``messages``.

    first_packet and last_packet count from 1 as the session got the packets.
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
    destination: str | None
    group_name: str | None
    client_name: str | None
    message_id: str | None
    correlation_id: str | None
    partition_id: int | None
    body_len: int | None
    status: str | None
    error_code: int | None
    error_text: str | None
    carriers: tuple[CapturedPacket, ...] = field(default=(), repr=False, compare=False)
    pair: Pair = field(default_factory=Pair, repr=False, compare=False)

    @property
    def packets(self) -> list[Packet]:
        """The packets that carried the message, as far as they were still there when it was whole."""
        return [as_scapy(carrier) for carrier in self.carriers]

    @property
    def key(self) -> Key:
        """The key of the message in the tables of its capture."""
        return self.connection_id, self.direction, self.stream_offset

    @property
    def reply(self) -> Key | None:
        """The key of the message that answers this one, None if there is none or it is not known yet."""
        return self.pair.told()[0]

    def answers(self, asked: "Seen") -> bool | None:
        """Whether this message answers another; None where only the protocol's rule can say."""
        reply, is_known = asked.pair.told()
        if is_known:
            return reply == self.key
        return None if self.connection_id == asked.connection_id and self.direction != asked.direction else False


COLUMNS = [f.name for f in fields(Seen) if f.name not in ("carriers", "pair")]


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
        packets = []
        try:
            for _ in range(BATCH_PACKETS if source.is_file else 1):
                packet = self._packet(sock)
                if packet is not None:
                    packets.append(packet)
                elif self.supersession is None:
                    break
        except EOFError:
            del self._sources[id(sock)]
            yield from source.completed(packets)
            yield from source.finished()
            raise
        yield from source.completed(packets)

    def _packet(self, sock: SuperSocket) -> Packet | None:
        if self.supersession is not None:
            packet = sock.recv()
            return None if packet is None else self.process(packet)
        if isinstance(sock, IterSocket):
            return _next(sock)
        # The stages read the headers; to Scapy the first class is enough.
        return sock.recv(MAX_PACKET_BYTES, stop_dissection_after=Packet)

    def flush(self) -> list[Packet]:
        """The messages still open, as at the end of a file; after it the session begins anew."""
        sources, self._sources = self._sources, {}
        return [message for source in sources.values() for message in source.finished()]


class _Source(Tables):
    """One capture on its way through the stages: its rows of ``messages`` and ``exchanges`` say what packets say."""

    def __init__(self, options: Options, sock: SuperSocket) -> None:
        super().__init__(options, self._take)
        self.sock = sock  # kept, so that no other gets its id
        # A whole file waits for nobody; a live capture must not wait for packets to come.
        self.is_file = bool(getattr(sock, "nonblocking_socket", False))
        self.packet_count = 0
        self.ends: dict[int, tuple[str, int, str, int]] = {}
        """By number, sender and receiver of the latest packets that have payload."""
        self._carriers: dict[int, CapturedPacket] = {}
        """The latest packets, by number."""
        self._held: list[tuple[int, int, Key, Packet]] = []
        self._pairs: WeakValueDictionary[Key, Pair] = WeakValueDictionary()
        """Of messages that somebody has, what is not known yet."""

    def completed(self, packets: list[Packet]) -> list[Packet]:
        """The messages that the packets complete; of a file those that no earlier message is likely to follow."""
        if len(packets):
            carriers = [_captured(packet) for packet in packets]
            numbers = np.arange(len(packets), dtype=np.int64) + self.packet_count + 1
            self._carriers.update(zip(numbers.tolist(), carriers, strict=True))
            self.packet_count += len(packets)
            for part in self.messages(window_of(carriers, numbers)):
                self.take(part, _NO_FILES)
            self._make_room(self.packet_count - len(packets))
        return self._given(HELD_MESSAGES if self.is_file else 0)

    def _make_room(self, before: int) -> None:
        """Forget connections that are over, and packets of long ago; looked at once every BATCH_PACKETS."""
        if self.packet_count // BATCH_PACKETS == before // BATCH_PACKETS:
            return
        room = max(KEPT_CONNECTIONS, self.options.max_memory_bytes // FLOW_BYTES // OPEN_SHARE)
        over = self.assembler.eviction_candidates(KEPT_CONNECTIONS, room)
        if len(over):
            self.take(self.last_of(over), _NO_FILES)
            self.close(over, _NO_FILES, of_others=True)
            self.assembler.forget(over)
        for kept in (self._carriers, self.ends):
            for number in list(kept)[: max(0, len(kept) - HELD_PACKETS)]:
                del kept[number]

    def finished(self) -> list[Packet]:
        """The messages still open, at the end."""
        self.take(self.last_messages(), _NO_FILES)
        self.close(self.assembler.live, _NO_FILES, of_others=False)
        for pair in self._pairs.values():
            pair.tell(None)
        return self._given(0)

    def _segments(self, segments: Segments) -> Segments:
        for i in np.flatnonzero(segments.length).tolist():
            version, number = int(segments.version[i]), int(segments.number[i])
            self.ends[number] = (
                address_text(version, int(segments.src_hi[i]), int(segments.src_lo[i])), int(segments.sport[i]),
                address_text(version, int(segments.dst_hi[i]), int(segments.dst_lo[i])), int(segments.dport[i]),
            )  # fmt: skip
        return super()._segments(segments)

    def _rows_made(self, protocol: MessageQueue, frames: Frames, records: Records, *rest: Any) -> None:
        self._at_hand = protocol, frames, records
        super()._rows_made(protocol, frames, records, *rest)

    def _take(self, output: Output) -> None:
        if output.table == "messages":
            for packet in self._packets(output.rows.select(COLUMNS).to_pylist(), *self._at_hand):
                heappush(self._held, (packet.mq.ts_ns, packet.mq.first_packet, packet.mq.key, packet))
        elif output.table == "exchanges":
            for row in output.rows.select(_EXCHANGE).to_pylist():
                flow, asked, request, reply = (row[name] for name in _EXCHANGE)
                pair = self._pairs.pop((flow, asked, request), None)
                if pair is not None:
                    pair.tell(None if reply is None else (flow, DIRECTIONS[asked == DIRECTIONS[0]], reply))

    def _given(self, keep: int) -> list[Packet]:
        """The earliest of those held, all but so many."""
        return [heappop(self._held)[-1] for _ in range(len(self._held) - keep)]

    def _packets(
        self, rows: list[dict[str, Any]], protocol: MessageQueue, frames: Frames, records: Records
    ) -> Iterator[Packet]:
        program = self.reader(protocol).program
        for i, row in enumerate(rows):
            layout = protocol.layout(program.layouts[int(frames.layout[i])].name)
            raw = frames.buffer[int(frames.start[i]) : int(frames.end[i])].tobytes()
            seen = Seen(**row, carriers=self._carried(row))
            packet = message(layout, raw, program.variant_class[records.variant[i]], seen)
            self._pairs[packet.mq.key] = packet.mq.pair
            yield packet

    def _carried(self, row: Mapping[str, Any]) -> tuple[CapturedPacket, ...]:
        """The packets from the first to the last of a message that its sender sent."""
        first, last = row["first_packet"], row["last_packet"]
        numbers: Iterable[int] = range(first, last + 1)
        if last - first > len(self._carriers):
            numbers = [number for number in self._carriers if first <= number <= last]
        ends = row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]
        return tuple(self._carriers[n] for n in numbers if self.ends.get(n) == ends and n in self._carriers)


def install() -> None:
    """Have Scapy's writers (``wrpcap``, ``wireshark``) write the packets that carried the messages of a session."""
    GenericRawPcapWriter.write = _write


_write_packets = GenericRawPcapWriter.write


def _write(writer: GenericRawPcapWriter, packets: Any) -> None:
    """Scapy's ``write``; a message of a session is written as the packets that carried it, each once.

    A message that was changed is one packet, with the headers of its first.
    """
    if isinstance(packets, bytes):
        _write_packets(writer, packets)
        return
    written: dict[CapturedPacket | int, Packet] = {}
    for number, packet in enumerate(IterSocket(packets).iter):
        seen = packet.mq if isinstance(packet, Message) else None
        if seen is None or not seen.carriers:
            written[number] = packet
        elif bytes(packet) != packet.original:
            written[number] = _edited(packet)
        else:
            written.update({carrier: as_scapy(carrier) for carrier in seen.carriers if carrier not in written})
    _write_packets(writer, list(written.values()))


def _edited(message: Message) -> Packet:
    """A message of a session that was changed, in the headers of its first packet."""
    packet = as_scapy(message.mq.carriers[0])
    if TCP in packet:
        packet[TCP].remove_payload()
        for layer, name in ((IP, "len"), (IP, "chksum"), (IPv6, "plen"), (TCP, "chksum")):
            if layer in packet:
                packet[layer].delfieldval(name)
        packet[TCP].add_payload(conf.raw_layer(bytes(message)))
        packet = type(packet)(bytes(packet))
        packet.time = message.time
    return packet


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


def _captured(packet: Packet) -> CapturedPacket:
    """A packet as it was captured, its link type -1 where it neither has one nor carries IP."""
    raw, link = b"", -1
    if type(packet) in conf.l2types:
        raw, link = packet.original or bytes(packet), conf.l2types[type(packet)]
    else:
        whole_packet = type(packet)(packet.original or bytes(packet))
        for layer in ("IPv6", "IP"):
            if layer in whole_packet:
                raw, link = bytes(whole_packet[layer]), RAW_IP
    return CapturedPacket(raw, max(packet.wirelen or 0, len(raw)), round(EDecimal(packet.time) * 1_000_000_000), link)


def top(header: type[Message]) -> type[Message]:
    """The class people know a header by: the one that those with narrower bounds derive from.

    A class that dispatches (Kokaq) stands for headers of other shapes and reads none itself.
    """
    return [cls for cls in above(header) if "dispatch_hook" not in cls.__dict__][-1]


def message(layout: Layout, raw: bytes, reading: str, seen: Seen) -> Message:
    """A message as it was seen; ``reading`` is the body's class."""
    if seen.flaw:
        packet = _flawed(layout, raw)
    elif layout.header is not None:
        packet = top(layout.header).read(raw, layout.direction, layout.name)
    else:
        packet = next(cls for cls in layout.messages() if cls.__name__ == reading)(raw)
    packet.mq = seen
    packet.time = EDecimal(seen.ts_ns) / 1_000_000_000
    packet.original = raw
    return packet


def _flawed(layout: Layout, raw: bytes) -> Message:
    """A message with a flaw: its header and ``Raw`` behind it, as in the tables only the header has columns."""
    header = top(layout.header) if layout.header is not None else layout.messages()[0]
    packet: Message = header()
    packet.raw_packet_cache, packet.raw_packet_cache_fields = b"", {}  # it has no bytes of its own
    behind = raw
    if layout.header is not None:
        with suppress(Broken):
            packet, behind = header.begin(raw)
    packet.add_payload(conf.raw_layer(behind))
    return packet
