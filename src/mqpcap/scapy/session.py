"""A Scapy session that yields messages: ``sniff(offline="a.pcap", session=MqSession)``.

In: packets, read by Scapy. Out: messages; other bytes yield nothing. Called by: ``sniff``, ``AsyncSniffer``.

The packets go through the same stages as those of a capture. A message is its header layer followed by its body layer
(``BlipMQ / BlipMQPublish``), read in the direction and layout of its connection. A message with a flaw is its header
followed by ``Raw``. ``packet.time`` is the time of its first byte; ``packet.mq`` has its columns (:class:`Seen`).

Messages of a file come in order of time, and all open messages at its end. A live capture has no end: keep the session
and call ``flush``. Replies are all decided then, too. Before, ``answers`` may hold for any message of the other
direction that the protocol's rule allows.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np
from scapy.config import conf
from scapy.data import MTU
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.sessions import DefaultSession
from scapy.supersocket import IterSocket, SuperSocket
from scapy.utils import EDecimal, GenericRawPcapWriter, RawPcapReader

from mqpcap.call_options import names_options
from mqpcap.capture import Window
from mqpcap.capture.interface import RING_BYTES
from mqpcap.capture.sources import COALESCE_S, PIPE_IDLE_S
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT, layouts_and_variants, message_bytes
from mqpcap.listing.packet_locator import CapturedPacket, window_of
from mqpcap.listing.reorder_buffer import row_dicts
from mqpcap.options import Options
from mqpcap.pipeline import FLUSH_INTERVAL_NS, OPEN_DIVISOR, Pipeline
from mqpcap.reading import checked_choices
from mqpcap.schema.fields import Broken
from mqpcap.schema.message import Message, message_bases
from mqpcap.schema.protocol import Direction, Layout, other_direction
from mqpcap.tables.output import Output
from mqpcap.tcp.headers import Segments, address_text

BATCH_PACKETS = 512
"""Packets that are read at once; of a live capture those that come within COALESCE_S."""
MAX_FLUSHES = 3
"""Flushes of unresolved messages while no packet of a live capture comes; the third flush has all of them."""
MAX_BUFFERED_MESSAGES = 16384
"""Messages of a file that are buffered, so that messages come in order of time although some complete late."""
MAX_BUFFERED_PACKETS = 16384
"""Packets of a source that are kept for the messages that they carry."""
MAX_CLOSED_CONNECTIONS = 1024
"""Closed connections that are remembered; older closed connections are forgotten, with their late packets."""
MAX_PACKET_BYTES = 4 * MTU
"""Bytes of a packet that are read; a capture on a host may have packets above Scapy's default of 65535 bytes."""
RAW_IP = 101
"""LINKTYPE_RAW: the packet begins with its IP header."""
# Constants of Linux that the module `socket` does not have (asm-generic/socket.h, linux/if_packet.h, linux/if_arp.h).
SO_RCVBUFFORCE, SOL_PACKET, PACKET_IGNORE_OUTGOING, ARPHRD_LOOPBACK = 33, 263, 23, 772

_EXCHANGE_KEYS = ["connection_id", "request_direction", "request_offset", "reply_offset"]
_EXCHANGE_COLUMNS = [*_EXCHANGE_KEYS, "state", "how", "latency_ns"]

Key = tuple[int, Direction, int]
"""connection_id, direction and stream_offset: the key of a message within its capture."""


class Pair(NamedTuple):
    """The exchange of a message: the key of the reply, for a request that has one, and columns of ``exchanges``."""

    reply: Key | None = None
    state: str | None = None
    how: str | None = None
    latency_ns: int | None = None


class PairLookup:
    """The `Pair` of a message: set when its exchange is known, or found by ``find`` when it is needed."""

    def __init__(self, find: Callable[[], Pair] | None = None) -> None:
        self._find = find
        self._pair = Pair()
        self._is_decided = False

    def resolve(self, pair: Pair) -> None:
        """Sets the pair; an empty one if the message has no exchange."""
        self._pair, self._is_decided, self._find = pair, True, None

    def result(self) -> tuple[Pair, bool]:
        """The pair, and whether it is decided."""
        if self._find is not None:
            self.resolve(self._find())
        return self._pair, self._is_decided

    def __getstate__(self) -> dict[str, Any]:
        self.result()
        return self.__dict__


def as_scapy(packet: CapturedPacket, **scapy: Any) -> Packet:
    """A captured packet as a Scapy packet; ``scapy`` are arguments of its class."""
    scapy_packet: Packet = conf.l2types.num2layer.get(packet.link_type, conf.raw_layer)(packet.raw, **scapy)
    scapy_packet.time, scapy_packet.wirelen = EDecimal(packet.ts_ns) / 1_000_000_000, packet.wire_len
    return scapy_packet


@dataclass(frozen=True, slots=True)
class Seen:
    """The columns of ``messages`` of a message.

    ``first_packet`` and ``last_packet`` count the packets of the session's source, from 1.
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
    pair: PairLookup = field(default_factory=PairLookup, repr=False, compare=False)

    @property
    def packets(self) -> list[Packet]:
        """The packets that carried the message, but for those evicted before it was complete."""
        return [as_scapy(packet) for packet in self.packets_raw]

    def first_headers(self) -> Packet | None:
        """Ethernet, IP and TCP headers of the first packet that carried the message; None if it has no such headers."""
        if not self.packets_raw:
            return None
        packet = as_scapy(self.packets_raw[0], stop_dissection_after=TCP)
        layer = packet.lastlayer()
        while not isinstance(layer, TCP):
            if layer is None:
                return None
            layer = layer.underlayer
        tcp, ip = layer, layer.underlayer
        if not isinstance(ip, IP | IPv6) or (tcp.sport, tcp.dport) != (self.src_port, self.dst_port):
            return None
        tcp.remove_payload()
        ethernet = ip.underlayer
        return ethernet if isinstance(ethernet, Ether) else ip

    @property
    def key(self) -> Key:
        """The key of the message in the tables of its capture."""
        return self.connection_id, self.direction, self.stream_offset

    @property
    def reply(self) -> Key | None:
        """The key of the reply to this message; None if there is no reply, or if it is not known yet."""
        return self.pair.result()[0].reply

    @property
    def state(self) -> str | None:
        """The state of its exchange, as in the table: ``likely`` is not proved. None if it is not known yet."""
        return self.pair.result()[0].state

    @property
    def how(self) -> str | None:
        """The evidence for its pair."""
        return self.pair.result()[0].how

    @property
    def latency_ns(self) -> int | None:
        """The time from its request to its reply."""
        return self.pair.result()[0].latency_ns

    def answers(self, request: "Seen") -> bool | None:
        """Whether this message answers a request; None if only the protocol's rule can decide."""
        pair, is_decided = request.pair.result()
        if is_decided:
            return pair.reply == self.key
        return None if self.connection_id == request.connection_id and self.direction != request.direction else False


COLUMNS = [f.name for f in fields(Seen) if f.name not in ("packets_raw", "pair")]


class MqSession(DefaultSession):
    """Yields messages instead of packets; see the module.

    Each source (file, interface) is a separate capture: packets of different sources never share a connection.
    The options are those of ``mqpcap.open``; ``options`` stands for all of them. A ``supersession`` processes the
    packets first. Raises ValueError or TypeError for a wrong option.
    """

    @names_options
    def __init__(
        self,
        options: Options | None = None,
        *,
        decode_as: Mapping[int, str] | None = None,
        show_secrets: bool = False,
        bodies: int | Literal["full", "none"] | None = None,
        max_memory_bytes: int | None = None,
        keylog: str | os.PathLike[str] | None = None,
        supersession: DefaultSession | None = None,
    ) -> None:
        super().__init__(supersession)
        choices = checked_choices(decode_as, show_secrets, bodies, max_memory_bytes, keylog=keylog)
        self.options = options or choices.dissection()
        self._sources: dict[int, _Source] = {}

    def recv(self, sock: SuperSocket) -> Iterator[Packet]:
        """The messages that the next packets of ``sock`` complete; at its end also the open messages."""
        source = self._sources.get(id(sock))
        if source is None:
            source = self._sources[id(sock)] = _Source(self.options, sock)
            _make_ready(sock)
        packets: list[CapturedPacket] = []
        until_s = time.monotonic() + COALESCE_S
        try:
            while len(packets) < BATCH_PACKETS:
                packet = self._packet(sock)
                if packet is not None:
                    packets.append(packet)
                if not source.is_file and not sock.select([sock], max(0, min(PIPE_IDLE_S, until_s - time.monotonic()))):
                    break
                if packet is None and source.is_file and self.supersession is None:
                    break
        except EOFError:
            del self._sources[id(sock)]
            yield from source.completed(packets)
            yield from source.finished()
            raise
        yield from source.completed(packets)
        # Scapy calls again only when packets come, and messages must not wait for those.
        for _ in range(MAX_FLUSHES if source.has_unresolved else 0):
            if any(sock.select([x.sock for x in self._sources.values() if not x.is_file], FLUSH_INTERVAL_NS / 1e9)):
                break
            yield from source.completed([])

    def _packet(self, sock: SuperSocket) -> CapturedPacket | None:
        if self.supersession is not None:
            packet = sock.recv()
            packet = None if packet is None else self.process(packet)
        elif isinstance(sock, IterSocket):
            packet = _next(sock)
        elif type(sock).recv is SuperSocket.recv:
            # Without an object of Scapy for each packet.
            cls, raw, time_s = sock.recv_raw(MAX_PACKET_BYTES)
            return _captured_raw(cls, raw, time_s or time.time()) if cls and raw else None
        else:
            # The stages read the headers, so Scapy need not dissect beyond the first layer.
            packet = sock.recv(MAX_PACKET_BYTES, stop_dissection_after=Packet)
        return None if packet is None else _captured(packet)

    def flush(self) -> list[Packet]:
        """The open messages, as at the end of a file; afterwards the session starts afresh."""
        sources, self._sources = self._sources, {}
        return [message for source in sources.values() for message in source.finished()]


class _Source:
    """Runs the packets of a source through the stages, and makes messages of the rows."""

    def __init__(self, options: Options, sock: SuperSocket) -> None:
        hooks = StageHooks(packets=self._note_endpoints, message_columns=(message_bytes, layouts_and_variants))
        policy = replace(options.policy, columns=frozenset(COLUMNS))
        options = replace(options, policy=policy, optional_tables=frozenset({"exchanges"}))
        self._pipeline = Pipeline(options, self._add_output, file_name=lambda file: "", hooks=hooks)
        self.sock = sock  # referenced, so that no other object gets its id
        self.is_file = isinstance(sock, IterSocket | RawPcapReader)
        self.packet_count = 0
        self.ends: dict[int, tuple[str, int, str, int]] = {}
        """Addresses and ports of the latest packets with payload, by packet number."""
        self._packets_by_number: dict[int, CapturedPacket] = {}
        """The latest packets, by packet number."""
        self._buffered: list[tuple[int, int, Key, Packet]] = []
        self._pairs: WeakValueDictionary[Key, PairLookup] = WeakValueDictionary()
        """Undecided replies of messages that are still referenced."""

    def completed(self, packets: list[CapturedPacket]) -> list[Packet]:
        """The messages that the packets complete; those of a file are buffered for the order of time."""
        if len(packets):
            numbers = np.arange(len(packets), dtype=np.int64) + self.packet_count + 1
            self._packets_by_number.update(zip(numbers.tolist(), packets, strict=True))
            self.packet_count += len(packets)
            self._pipeline.feed(window_of(packets, numbers))
            self._evict(self.packet_count - len(packets))
        if not self.is_file:
            self._pipeline.flush_live()
        return self._release(MAX_BUFFERED_MESSAGES if self.is_file else 0)

    @property
    def has_unresolved(self) -> bool:
        """Whether messages of a live capture wait for packets of their connections."""
        return not self.is_file and bool(self._pipeline.progress.unresolved_flows())

    def _evict(self, previous_count: int) -> None:
        """Every BATCH_PACKETS packets, forgets ended connections and old packets."""
        if self.packet_count // BATCH_PACKETS == previous_count // BATCH_PACKETS:
            return
        max_open = self._pipeline.capacity // OPEN_DIVISOR
        self._pipeline.evict(MAX_CLOSED_CONNECTIONS, max(MAX_CLOSED_CONNECTIONS, max_open))
        for by_number in (self._packets_by_number, self.ends):
            for number in list(by_number)[: max(0, len(by_number) - MAX_BUFFERED_PACKETS)]:
                del by_number[number]

    def finished(self) -> list[Packet]:
        """The open messages, at the end of the source."""
        for _ in self._pipeline.finish():
            pass
        for pair in self._pairs.values():
            pair.resolve(Pair())
        return self._release(0)

    def _note_endpoints(self, window: Window, segments: Segments) -> None:
        for i in np.flatnonzero(segments.length).tolist():
            version, number = int(segments.version[i]), int(segments.packet_number[i])
            self.ends[number] = (
                address_text(version, int(segments.src_hi[i]), int(segments.src_lo[i])), int(segments.sport[i]),
                address_text(version, int(segments.dst_hi[i]), int(segments.dst_lo[i])), int(segments.dport[i]),
            )  # fmt: skip

    def _add_output(self, output: Output) -> None:
        if output.table == "messages":
            for packet in self._packets(output):
                heappush(self._buffered, (packet.mq.ts_ns, packet.mq.first_packet, packet.mq.key, packet))
        elif output.table == "exchanges":
            for row in output.rows.select(_EXCHANGE_COLUMNS).to_pylist():
                for key, pair in pairs_of(row):
                    if lookup := self._pairs.pop(key, None):
                        lookup.resolve(pair)

    def _release(self, buffered_count: int) -> list[Packet]:
        """The earliest buffered messages; ``buffered_count`` messages stay."""
        return [heappop(self._buffered)[-1] for _ in range(len(self._buffered) - buffered_count)]

    def _packets(self, output: Output) -> Iterator[Packet]:
        protocol = self._pipeline.protocols[output.protocol or ""]
        rows = row_dicts(output.rows.select([*COLUMNS, BYTES, LAYOUT, VARIANT]))
        for row in cast("list[dict[str, Any]]", rows):
            layout, variant, raw = protocol.layout(row.pop(LAYOUT)), row.pop(VARIANT), row.pop(BYTES)
            packet = message(layout, raw, variant, Seen(**row, packets_raw=self._packets_of(row)))
            self._pairs[packet.mq.key] = packet.mq.pair
            yield packet

    def _packets_of(self, row: Mapping[str, Any]) -> tuple[CapturedPacket, ...]:
        """The sender's packets from the first to the last packet of a message."""
        first_packet, last_packet = row["first_packet"], row["last_packet"]
        numbers: Iterable[int] = range(first_packet, last_packet + 1)
        if last_packet - first_packet > len(self._packets_by_number):
            numbers = [number for number in self._packets_by_number if first_packet <= number <= last_packet]
        ends = row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]
        sent = (number for number in numbers if self.ends.get(number) == ends)
        return tuple(self._packets_by_number[number] for number in sent if number in self._packets_by_number)


def pairs_of(row: Mapping[str, Any]) -> list[tuple[Key, Pair]]:
    """The pairs of a row of ``exchanges`` by the keys of its messages."""
    flow, direction, *offsets = (row[name] for name in _EXCHANGE_KEYS)
    request, reply = (
        None if offset is None else (flow, side, offset)
        for side, offset in zip((direction, other_direction(direction)), offsets, strict=True)
    )
    columns = row["state"], row["how"], row["latency_ns"]
    ends = (request, Pair(reply, *columns)), (reply, Pair(None, *columns))
    return [(key, pair) for key, pair in ends if key is not None]


def install() -> None:
    """Makes Scapy's writers (``wrpcap``, ``wireshark``) write the packets that carried a session's messages."""
    GenericRawPcapWriter.write = _write


_write_packets = GenericRawPcapWriter.write


def _write(writer: GenericRawPcapWriter, packets: Any) -> None:
    """Scapy's ``write``; a session's message is written as the packets that carried it, each packet once.

    An edited message is written as a single packet, with the headers of its first packet.
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
    """An edited message of a session, in the headers of its first packet."""
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
    """The next packet of a list, built anew; unlike Scapy's ``recv`` it keeps the time of the packet."""
    source_packet = next(packets.iter, None)
    if source_packet is None:
        raise EOFError
    if isinstance(source_packet, bytes):
        return conf.raw_layer(source_packet)
    packet = type(source_packet)(bytes(source_packet), stop_dissection_after=Packet)
    packet.time, packet.wirelen = source_packet.time, source_packet.wirelen
    return packet


def _captured(packet: Packet) -> CapturedPacket:
    """A packet as it was captured."""
    return _captured_raw(type(packet), packet.original or bytes(packet), packet.time, packet.wirelen or 0)


def _captured_raw(cls: type[Packet], raw: bytes, time_s: Any, wire_len: int = 0) -> CapturedPacket:
    """A packet of a class; its link type is -1 if Scapy knows no link type for it and it has no IP layer."""
    link_type = conf.l2types.layer2num.get(cls, -1)
    if link_type == -1:
        dissected, raw = cls(raw), b""
        for layer in ("IPv6", "IP"):
            if layer in dissected:
                raw, link_type = bytes(dissected[layer]), RAW_IP
    return CapturedPacket(raw, max(wire_len, len(raw)), round(EDecimal(time_s) * 1_000_000_000), link_type)


def _make_ready(sock: SuperSocket) -> None:
    """Sets a larger buffer for a packet socket of Linux; Scapy's holds some milliseconds of traffic.

    Packets of loopback come once, as in libpcap (pcap-linux.c): the copies that go out are left out.
    """
    packet_socket: Any = getattr(sock, "ins", None)
    if getattr(packet_socket, "family", None) != getattr(socket, "AF_PACKET", -1):
        return
    with suppress(OSError):  # the kernel is old, or the user may only have what rmem_max says
        if packet_socket.getsockname()[3] == ARPHRD_LOOPBACK:
            packet_socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        packet_socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RING_BYTES)


def top(header: type[Message]) -> type[Message]:
    """The public class of a header: the base class of headers with narrower bounds.

    A class that dispatches (Kokaq) stands for several header classes and reads no header itself.
    """
    return [cls for cls in message_bases(header) if "dispatch_hook" not in cls.__dict__][-1]


def message(layout: Layout, raw: bytes, body_class: str | None, mq: Seen) -> Message:
    """A captured message as a Scapy packet; ``body_class`` is the name of its body's class."""
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
    """A message with a flaw: its header followed by ``Raw``, as in the tables only header columns are filled."""
    header = top(layout.header) if layout.header is not None else layout.messages()[0]
    packet: Message = header()
    packet.raw_packet_cache, packet.raw_packet_cache_fields = b"", {}  # an empty header: all bytes follow as Raw
    remainder = raw
    if layout.header is not None:
        with suppress(Broken):
            packet, remainder = header.begin(raw)
    packet.add_payload(conf.raw_layer(remainder))
    return packet
