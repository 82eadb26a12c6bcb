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
from mqpcap.listing.packet_locator import CapturedPacket, window_of
from mqpcap.pipeline import FLOW_BYTES, OPEN_SHARE, Options, Output, Tables
from mqpcap.schema.fields import Broken
from mqpcap.schema.message import Message, above
from mqpcap.schema.protocol import DIRECTIONS, Direction, Layout, MessageQueue
from mqpcap.tcp.headers import Segments, address_text

BATCH_PACKETS = 512
"""So many packets of a file are read at once; a live capture gives each as it comes."""
MAX_BUFFERED_MESSAGES = 16384
"""So many messages of a file wait, so that one which was long incomplete still comes in order of time."""
MAX_BUFFERED_PACKETS = 16384
"""So many packets of a source are kept, so that a message has those that carried it."""
MAX_CLOSED_CONNECTIONS = 1024
"""So many connections that closed are remembered; of those before nothing more is expected."""
MAX_PACKET_BYTES = 4 * MTU
"""As Scapy's readers bound it; a capture on a host has packets above Scapy's usual 65535 bytes."""
RAW_IP = 101
"""LINKTYPE_RAW: the packet begins with its IP header."""

_NO_FILE_NAMES = ("",)
_EXCHANGE_COLUMNS = ["connection_id", "request_direction", "request_offset", "reply_offset"]

Key = tuple[int, Direction, int]
"""connection_id, direction and stream_offset: the key of a message within its capture."""


class ReplyLookup:
    """The key of the message that answers another, as far as the exchanges have told, or looked up when it is asked."""

    def __init__(self, find: Callable[[], Key | None] | None = None) -> None:
        self._find = find
        self._reply: Key | None = None
        self._is_decided = False

    def resolve(self, reply: Key | None) -> None:
        """It is decided: this message answers, or none does."""
        self._reply, self._is_decided, self._find = reply, True, None

    def result(self) -> tuple[Key | None, bool]:
        """The key, and whether it is decided."""
        if self._find is not None:
            self.resolve(self._find())
        return self._reply, self._is_decided

    def __getstate__(self) -> dict[str, Any]:
        self.result()
        return self.__dict__


def as_scapy(packet: CapturedPacket) -> Packet:
    """A captured packet as Scapy reads it."""
    scapy_packet: Packet = conf.l2types.num2layer.get(packet.link_type, conf.raw_layer)(packet.raw)
    scapy_packet.time, scapy_packet.wirelen = EDecimal(packet.ts_ns) / 1_000_000_000, packet.wire_len
    return scapy_packet


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
    packets_raw: tuple[CapturedPacket, ...] = field(default=(), repr=False, compare=False)
    pair: ReplyLookup = field(default_factory=ReplyLookup, repr=False, compare=False)

    @property
    def packets(self) -> list[Packet]:
        """The packets that carried the message, as far as they were still there when it was whole."""
        return [as_scapy(packet) for packet in self.packets_raw]

    @property
    def key(self) -> Key:
        """The key of the message in the tables of its capture."""
        return self.connection_id, self.direction, self.stream_offset

    @property
    def reply(self) -> Key | None:
        """The key of the message that answers this one, None if there is none or it is not known yet."""
        return self.pair.result()[0]

    def answers(self, request: "Seen") -> bool | None:
        """Whether this message answers another; None where only the protocol's rule can say."""
        reply, is_decided = request.pair.result()
        if is_decided:
            return reply == self.key
        return None if self.connection_id == request.connection_id and self.direction != request.direction else False


COLUMNS = [f.name for f in fields(Seen) if f.name not in ("packets_raw", "pair")]


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
        super().__init__(options, self._add_output)
        self.sock = sock  # kept, so that no other gets its id
        # A whole file waits for nobody; a live capture must not wait for packets to come.
        self.is_file = bool(getattr(sock, "nonblocking_socket", False))
        self.packet_count = 0
        self.ends: dict[int, tuple[str, int, str, int]] = {}
        """By number, sender and receiver of the latest packets that have payload."""
        self._packets_by_number: dict[int, CapturedPacket] = {}
        """The latest packets, by number."""
        self._buffered: list[tuple[int, int, Key, Packet]] = []
        self._pairs: WeakValueDictionary[Key, ReplyLookup] = WeakValueDictionary()
        """Of messages that somebody has, what is not known yet."""

    def completed(self, packets: list[Packet]) -> list[Packet]:
        """The messages that the packets complete; of a file those that no earlier message is likely to follow."""
        if len(packets):
            captured = [_captured(packet) for packet in packets]
            numbers = np.arange(len(packets), dtype=np.int64) + self.packet_count + 1
            self._packets_by_number.update(zip(numbers.tolist(), captured, strict=True))
            self.packet_count += len(packets)
            for batch in self.messages(window_of(captured, numbers)):
                self.take(batch, _NO_FILE_NAMES)
            self._evict(self.packet_count - len(packets))
        return self._release(MAX_BUFFERED_MESSAGES if self.is_file else 0)

    def _evict(self, previous_count: int) -> None:
        """Forget connections that are over, and packets of long ago; looked at once every BATCH_PACKETS."""
        if self.packet_count // BATCH_PACKETS == previous_count // BATCH_PACKETS:
            return
        max_open = max(MAX_CLOSED_CONNECTIONS, self.options.max_memory_bytes // FLOW_BYTES // OPEN_SHARE)
        ended = self.assembler.eviction_candidates(MAX_CLOSED_CONNECTIONS, max_open)
        if len(ended):
            self.take(self.last_of(ended), _NO_FILE_NAMES)
            self.close(ended, _NO_FILE_NAMES, of_others=True)
            self.assembler.forget(ended)
        for by_number in (self._packets_by_number, self.ends):
            for number in list(by_number)[: max(0, len(by_number) - MAX_BUFFERED_PACKETS)]:
                del by_number[number]

    def finished(self) -> list[Packet]:
        """The messages still open, at the end."""
        self.take(self.last_messages(), _NO_FILE_NAMES)
        self.close(self.assembler.live, _NO_FILE_NAMES, of_others=False)
        for pair in self._pairs.values():
            pair.resolve(None)
        return self._release(0)

    def _segments(self, segments: Segments) -> Segments:
        for i in np.flatnonzero(segments.length).tolist():
            version, number = int(segments.version[i]), int(segments.number[i])
            self.ends[number] = (
                address_text(version, int(segments.src_hi[i]), int(segments.src_lo[i])), int(segments.sport[i]),
                address_text(version, int(segments.dst_hi[i]), int(segments.dst_lo[i])), int(segments.dport[i]),
            )  # fmt: skip
        return super()._segments(segments)

    def _rows_made(self, protocol: MessageQueue, frames: Frames, records: Records, *arguments: Any) -> None:
        self._batch = protocol, frames, records
        super()._rows_made(protocol, frames, records, *arguments)

    def _add_output(self, output: Output) -> None:
        if output.table == "messages":
            for packet in self._packets(output.rows.select(COLUMNS).to_pylist(), *self._batch):
                heappush(self._buffered, (packet.mq.ts_ns, packet.mq.first_packet, packet.mq.key, packet))
        elif output.table == "exchanges":
            for row in output.rows.select(_EXCHANGE_COLUMNS).to_pylist():
                flow, direction, request, reply = (row[name] for name in _EXCHANGE_COLUMNS)
                pair = self._pairs.pop((flow, direction, request), None)
                if pair is not None:
                    pair.resolve(None if reply is None else (flow, DIRECTIONS[direction == DIRECTIONS[0]], reply))

    def _release(self, buffered_count: int) -> list[Packet]:
        """The earliest of those held, all but so many."""
        return [heappop(self._buffered)[-1] for _ in range(len(self._buffered) - buffered_count)]

    def _packets(
        self, rows: list[dict[str, Any]], protocol: MessageQueue, frames: Frames, records: Records
    ) -> Iterator[Packet]:
        program = self.reader(protocol).program
        for i, row in enumerate(rows):
            layout = protocol.layout(program.layouts[int(frames.layout[i])].name)
            raw = frames.buffer[int(frames.start[i]) : int(frames.end[i])].tobytes()
            mq = Seen(**row, packets_raw=self._packets_of(row))
            packet = message(layout, raw, program.variant_class[records.variant[i]], mq)
            self._pairs[packet.mq.key] = packet.mq.pair
            yield packet

    def _packets_of(self, row: Mapping[str, Any]) -> tuple[CapturedPacket, ...]:
        """The packets from the first to the last of a message that its sender sent."""
        first_packet, last_packet = row["first_packet"], row["last_packet"]
        numbers: Iterable[int] = range(first_packet, last_packet + 1)
        if last_packet - first_packet > len(self._packets_by_number):
            numbers = [number for number in self._packets_by_number if first_packet <= number <= last_packet]
        ends = row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]
        sent = (number for number in numbers if self.ends.get(number) == ends)
        return tuple(self._packets_by_number[number] for number in sent if number in self._packets_by_number)


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
        mq = packet.mq if isinstance(packet, Message) else None
        if mq is None or not mq.packets_raw:
            written[number] = packet
        elif bytes(packet) != packet.original:
            written[number] = _edited(packet)
        else:
            written.update({captured: as_scapy(captured) for captured in mq.packets_raw if captured not in written})
    _write_packets(writer, list(written.values()))


def _edited(message: Message) -> Packet:
    """A message of a session that was changed, in the headers of its first packet."""
    packet = as_scapy(message.mq.packets_raw[0])
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
    source_packet = next(packets.iter, None)
    if source_packet is None:
        raise EOFError
    if isinstance(source_packet, bytes):
        return conf.raw_layer(source_packet)
    packet = type(source_packet)(bytes(source_packet), stop_dissection_after=Packet)
    packet.time, packet.wirelen = source_packet.time, source_packet.wirelen
    return packet


def _captured(packet: Packet) -> CapturedPacket:
    """A packet as it was captured, its link type -1 where it neither has one nor carries IP."""
    raw, link_type = b"", -1
    if type(packet) in conf.l2types:
        raw, link_type = packet.original or bytes(packet), conf.l2types[type(packet)]
    else:
        dissected = type(packet)(packet.original or bytes(packet))
        for layer in ("IPv6", "IP"):
            if layer in dissected:
                raw, link_type = bytes(dissected[layer]), RAW_IP
    ts_ns = round(EDecimal(packet.time) * 1_000_000_000)
    return CapturedPacket(raw, max(packet.wirelen or 0, len(raw)), ts_ns, link_type)


def top(header: type[Message]) -> type[Message]:
    """The class people know a header by: the one that those with narrower bounds derive from.

    A class that dispatches (Kokaq) stands for headers of other shapes and reads none itself.
    """
    return [cls for cls in above(header) if "dispatch_hook" not in cls.__dict__][-1]


def message(layout: Layout, raw: bytes, body_class: str, mq: Seen) -> Message:
    """A message as it was seen; ``reading`` is the body's class."""
    if mq.flaw:
        packet = _flawed(layout, raw)
    elif layout.header is not None:
        packet = top(layout.header).read(raw, layout.direction, layout.name)
    else:
        packet = next(cls for cls in layout.messages() if cls.__name__ == body_class)(raw)
    packet.mq = mq
    packet.time = EDecimal(mq.ts_ns) / 1_000_000_000
    packet.original = raw
    return packet


def _flawed(layout: Layout, raw: bytes) -> Message:
    """A message with a flaw: its header and ``Raw`` behind it, as in the tables only the header has columns."""
    header = top(layout.header) if layout.header is not None else layout.messages()[0]
    packet: Message = header()
    packet.raw_packet_cache, packet.raw_packet_cache_fields = b"", {}  # it has no bytes of its own
    remainder = raw
    if layout.header is not None:
        with suppress(Broken):
            packet, remainder = header.begin(raw)
    packet.add_payload(conf.raw_layer(remainder))
    return packet
