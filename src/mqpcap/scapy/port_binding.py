"""TCP ports to message classes: which class reads a payload, packet by packet or as a stream.

In: payloads of TCP segments, and streams of Scapy's ``TCPSession`` and ``StreamSocket``. Out: messages.
Called by: Scapy, through `MqDispatch` and the methods that ``mqpcap.scapy`` sets.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scapy.config import conf
from scapy.layers.inet import TCP
from scapy.packet import Packet, bind_top_down
from scapy.sessions import streamcls

from mqpcap.decode import bytecode
from mqpcap.decode.scanning import LayoutScanner
from mqpcap.protocols import protocols
from mqpcap.scapy.session import top
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import Broken
from mqpcap.schema.message import Message, MessageSlice
from mqpcap.schema.protocol import Direction, Evidence, Layout, MessageQueue, Opening, Verdict

MAX_MESSAGES = 65536
"""Messages read from a single packet; an IP packet has fewer bytes than that."""


class MqDispatch(Packet):
    """The class that ports are bound to. It is never an instance: its hooks choose the class that reads a payload."""

    name = "message queue"

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *args: Any, **fields: Any) -> type[Packet]:
        """The class of the message that a payload begins with; else another class bound to the port, or Raw."""
        tcp: Packet | None = fields.get("_underlayer")
        if tcp is None:
            return conf.raw_layer
        slices = payload_slices(_pkt, tcp)
        if slices:
            return slices[0].message
        for ports, other_class in tcp.payload_guess:
            if other_class is not cls and all(tcp.getfieldval(name) == value for name, value in ports.items()):
                hook = getattr(other_class, "dispatch_hook", None)
                return hook(_pkt, *args, **fields) if hook is not None else other_class
        return conf.raw_layer

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: dict[str, Any], session: dict[str, Any]) -> Packet | None:
        """The first message of a stream, None while it is incomplete. Called by Scapy's ``TCPSession``.

        Bytes that do not begin with a message go to another class that is bound to the port, or become Raw.
        """
        # For the second message of a packet, Scapy no longer passes the packet.
        tcp = session["mqpcap tcp"] = metadata["original"][TCP] if "original" in metadata else session["mqpcap tcp"]
        layout_by_direction: dict[str, str] = session.setdefault("mqpcap", {})
        is_ended = bool(metadata.get("tcp_end"))
        for protocol, direction, entries in _entries(tcp):
            entries = [layout for layout in entries if layout.name == layout_by_direction.get(direction, layout.name)]
            # Without a header, any bytes may begin a message. So such a layout waits only after a message named one.
            may_wait = [layout for layout in entries if layout_by_direction or layout.header is not None]
            first_slice = _first_slice(protocol, entries, may_wait, data, is_ended)
            if first_slice is not None:
                packet = _whole_message(first_slice, data, is_ended)
                if packet is not None and first_slice.next_layout:
                    layout_by_direction[direction] = first_slice.next_layout
                return packet
        return streamcls(cls.dispatch_hook(data, _underlayer=tcp))(data, metadata, session)


def payload_slices(payload: bytes, tcp: Packet) -> Sequence[MessageSlice]:
    """The messages that begin in a TCP payload, in order; empty if the payload does not begin with a message.

    The first layout whose messages fill the payload is used, else the layout with most messages. The last message may
    continue in the next packet, if its header is complete.
    """
    best: Sequence[MessageSlice] = ()
    for protocol, _, entries in _entries(tcp):
        for layout in entries:
            slices, is_filled = _slices(protocol, layout, payload)
            if is_filled:
                return slices
            if len(slices) > len(best):
                best = slices
    return best


def _entries(tcp: Packet) -> Iterator[tuple[MessageQueue, Direction, Sequence[Layout]]]:
    """The protocols of a packet's ports, with the packet's direction and the layouts that its stream may begin with.

    For other ports, the class that users bound with ``bind_layers`` decides. ``MqDispatch`` stands for any protocol,
    and a binding of ``dport`` means that the client sent the packet.
    """
    for protocol in protocols().values():
        if tcp.dport in protocol.ports or tcp.sport in protocol.ports:
            direction: Direction = "c2s" if tcp.dport in protocol.ports else "s2c"
            yield protocol, direction, _entry_layouts(protocol, direction)
    for ports, cls in tcp.payload_guess:
        if cls is not MqDispatch and not issubclass(cls, Message):
            continue
        if not ports or any(tcp.getfieldval(name) != port for name, port in ports.items()):
            continue
        if any(port in protocol.ports for protocol in protocols().values() for port in ports.values()):
            continue  # a protocol's own port: see above
        direction = "c2s" if "dport" in ports else "s2c"
        for protocol in protocols().values():
            if cls is MqDispatch or cls.of_protocol is protocol:
                yield protocol, direction, _entry_layouts(protocol, direction)


def _entry_layouts(protocol: MessageQueue, direction: str) -> Sequence[Layout]:
    layouts = [x for x in protocol.layouts if x.direction == direction]
    # A splitter assigns the layouts it names, so a stream can only start with its own layout.
    return [x for x in layouts if x.splitter] or layouts


def tcp_reassemble(
    cls: type[Message], data: bytes, metadata: Mapping[str, Any], session: dict[str, Any]
) -> Message | None:
    """The first message of a stream, None while it is incomplete. Called by Scapy's ``StreamSocket(sock, BlipMQ)``.

    The content says whether it is a client's or the server's; bytes that fit both count as the server's.
    ``socket.streamsession["direction"] = "c2s"`` sets it.
    """
    protocol = cls.of_protocol
    if protocol is None or not data:
        return cls.read(data, "s2c") if data else None
    directions: Sequence[Direction] = [session["direction"]] if "direction" in session else ["s2c", "c2s"]
    messages = {direction: _first_of_side(cls, protocol, direction, data, session) for direction in directions}
    fitting = [d for d, (packet, _) in messages.items() if packet is not None and _is_read(packet)]
    if len(fitting) > 1:
        verdicts = {d: _verdict(protocol, d, data) for d in fitting}
        fitting = [d for d in fitting if verdicts[d] is max(verdicts.values())]
    if len(fitting) == 1:
        session["direction"] = fitting[0]
    elif not fitting and any(packet is None for packet, _ in messages.values()):
        return None
    packet, next_layout = messages[fitting[0] if fitting else directions[0]]
    if not next_layout and "mqpcap layout" not in session and packet is not None and len(fitting) == 1:
        padding = packet.getlayer(conf.padding_layer)
        raw = data if padding is None else data[: -len(padding)]
        next_layout = _told_layout(protocol, fitting[0], packet, raw)
    if next_layout:
        session["mqpcap layout"] = next_layout
    return packet


def _first_of_side(
    cls: type[Message], protocol: MessageQueue, direction: Direction, data: bytes, session: Mapping[str, Any]
) -> tuple[Message | None, str]:
    """The first message of a stream, read in a direction; and the layout of later messages, if it changes."""
    entry_layouts = _entry_layouts(protocol, direction)
    start_layouts = [
        candidate
        for candidate in entry_layouts
        if candidate.splitter or candidate in cls.layouts or (candidate.header is None and cls in candidate.messages())
    ]
    if direction == "c2s":  # a stream of fq begins with a message of another class
        start_layouts += [candidate for candidate in entry_layouts if candidate not in start_layouts]
    layout = session.get("mqpcap layout")  # set by fq's connect message
    start_layouts = start_layouts if layout is None else [protocol.layout(layout)]
    first_slice = _first_slice(protocol, start_layouts, start_layouts, data, False)
    if first_slice is None:
        return cls.read(data, direction), ""
    return _whole_message(first_slice, data, False, may_wait=False), first_slice.next_layout


def _told_layout(protocol: MessageQueue, direction: Direction, message: Message, raw: bytes) -> str:
    """The layout of later messages if a message has the value that tells it, or is of one version only; else empty."""
    rule, (layout, *_) = protocol.evidence, _entry_layouts(protocol, direction)
    if rule is None or rule.told_by is None or rule.select_layout is None:
        return ""
    column, key = rule.told_by
    value = getattr(message, column, None)
    values = range(256) if value is None else (value,)
    names = {rule.select_layout(Evidence(0, "", 0, 0, {key: value}), layout.name) for value in values}
    reads = {name: type(message).read(raw, direction, name) for name in names}
    fitting = [name for name, read in reads.items() if _is_read(read)]
    return fitting[0] if len(fitting) == 1 else ""


def _is_read(message: Message) -> bool:
    """Whether all layers of a message were read. Bytes after it are padding, which is a kind of Raw."""
    return all(type(layer) is not conf.raw_layer for layer in message.iterpayloads())


def _verdict(protocol: MessageQueue, direction: Direction, data: bytes) -> Verdict:
    """The protocol's claim on the bytes of a direction, the start of the stream unknown."""

    def find_run(side: Direction, layout: str, min_consecutive: int) -> int | None:
        scanner = LayoutScanner(protocol, compiled(protocol), layout, np.zeros((5, 1), np.int64))
        offset, is_found = scanner.search(data, 0, len(data), True, min_consecutive)
        return offset if side == direction and is_found else None

    sides = (data, b"") if direction == "c2s" else (b"", data)
    return protocol.claims(Opening(*sides, False, False, True, True, True, False, find_run)).verdict


def _first_slice(
    protocol: MessageQueue, entries: Sequence[Layout], may_wait: Sequence[Layout], data: bytes, is_ended: bool
) -> MessageSlice | None:
    """The first message of a stream in any of the layouts; None if no layout fits.

    If the message is incomplete in a layout of ``may_wait``, its end is 0. A kokaq frame has no length and ends where
    the next frame begins; without a next frame it ends with the received bytes, if these are a complete frame.
    """
    goes_on = None
    for layout in entries:
        split = _split(protocol, layout, data, 0, True)
        may_go_on = split.end < len(data) and _split(protocol, layout, data, 0, False).goes_on
        if not split.layout or (not is_ended and (may_go_on or split.end < 0)):
            if may_go_on and layout in may_wait:
                goes_on = MessageSlice(Message, layout, 0, 0)
            continue
        if (slice_ := _slice(protocol, layout, data, 0, split)) is not None:
            return slice_
    return goes_on


def _whole_message(first_slice: MessageSlice, data: bytes, is_ended: bool, may_wait: bool = True) -> Message | None:
    """The message at the front of a stream, with later bytes as padding; None while it is incomplete.

    may_wait: see `Message.is_cut`.
    """
    if not first_slice.end:
        return None
    message = first_slice.read(data)
    if first_slice.end < len(data):
        message.add_payload(conf.padding_layer(data[first_slice.end :]))
    return None if not is_ended and first_slice.end == len(data) and message.is_cut(may_wait) else message


def _slices(protocol: MessageQueue, layout: Layout, payload: bytes) -> tuple[list[MessageSlice], bool]:
    """The messages from the front of the payload, and whether they fill it to its last byte."""
    offset = 0
    slices: list[MessageSlice] = []
    while offset < len(payload) and len(slices) < MAX_MESSAGES:
        split = _split(protocol, layout, payload, offset, True)
        slice_ = _slice(protocol, layout, payload, offset, split) if split.layout else None
        if slice_ is None:
            return slices, False
        slices.append(slice_)
        if split.end < 0:
            return slices, False
        layout = protocol.layout(slice_.next_layout or layout.name)
        offset = slice_.end
    return slices, True


class _SplitResult(NamedTuple):
    """A message at an offset: its end, its layout (empty if its header is incomplete or wrong), and its operation."""

    end: int = -1
    layout: str = ""
    op: int = -1
    goes_on: bool = False


def _slice(
    protocol: MessageQueue, layout: Layout, data: bytes, offset: int, split: _SplitResult
) -> MessageSlice | None:
    """The slice of a message. None for the first message of the bytes if it does not prove its layout."""
    end = split.end if split.end > 0 else len(data)
    read_layout, raw = protocol.layout(split.layout), data[offset:end]
    if offset == 0 and not _proves_layout(read_layout, split.op, raw):
        return None
    return MessageSlice(_first_class(read_layout, raw), read_layout, offset, end, layout.then.get(split.op, ""))


def _split(protocol: MessageQueue, layout: Layout, data: bytes, offset: int, is_ended: bool) -> _SplitResult:
    """The end and the layout of the message at an offset."""
    program, hits = compiled(protocol), np.zeros((5, 1), np.int64)
    scanner = LayoutScanner(protocol, program, layout.name, hits)
    count, code, end, _, layout_index = scanner.scan(data, offset, len(data), is_ended)
    if count:
        return _SplitResult(end, (layout.splits or (layout.name,))[hits[2, 0]], scanner.last_op(count))
    if code == bytecode.SCAN_BAD or layout.header is None:
        return _SplitResult(goes_on=code != bytecode.SCAN_BAD)
    header_layout = program.layouts[layout_index].name
    is_whole, op = LayoutScanner(protocol, program, header_layout, hits).header(data, offset, len(data))
    return _SplitResult(layout=header_layout if is_whole else "", op=op, goes_on=True)


def _proves_layout(layout: Layout, op: int, raw: bytes) -> bool:
    """Whether a message proves its layout: by a known operation, or by a body that can be read."""
    if layout.header is None:
        return True  # without a header, a message was read to its end
    if layout.op is not None:
        return bool(layout.variants_of(op))
    body = _remaining(top(layout.header), raw)
    return body is not None and any(_remaining(message, body) is not None for message in layout.messages())


def _remaining(cls: type[Message], raw: bytes) -> bytes | None:
    """The bytes after the message at the front; None if the bytes do not begin with such a message."""
    with suppress(Broken):
        return cls.begin(raw)[1]
    return None


def _first_class(layout: Layout, raw: bytes) -> type[Message]:
    """The class of the first layer of a message in the layout."""
    if layout.header is not None:
        return top(layout.header)
    classes = layout.messages()
    return next((cls for cls in classes if _remaining(cls, raw) == b""), classes[0])


def bind_port(cls: type[Message], port: int) -> None:
    """Above TCP, a message that only servers send sets the port as source; any other message sets it as destination."""
    from_server = {layout.direction for layout in cls.layouts} == {"s2c"}
    for form in (cls, *cls.__subclasses__()):
        bind_top_down(TCP, form, **{"sport" if from_server else "dport": port})


@cache
def _is_from_server(header: type[Message], body: type[Packet]) -> bool:
    """Whether only servers send a header with this body."""
    return {layout.direction for layout in header.layouts if body in layout.messages()} == {"s2c"}


def add_payload(message: Message, payload: Any) -> None:
    """Scapy's ``add_payload``; if only servers send the message, TCP gets the protocol's port as its source."""
    Packet.add_payload(message, payload)
    if not isinstance(payload, Message) or not _is_from_server(type(message), type(payload)):  # type: ignore[arg-type]  # classes have a hash
        return
    ports = message.overload_fields.get(TCP, {})
    if "dport" in ports:
        from_server = {"sport": ports["dport"]}
        message.overload_fields = {**message.overload_fields, TCP: from_server}
        if isinstance(message.underlayer, TCP):
            message.underlayer.overloaded_fields = from_server
