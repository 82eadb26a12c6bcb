# scapy.contrib.description = Message queues: fq, kokaq, FlyMQ, BlipMQ, BIND 10 msgq
# scapy.contrib.status = loads
"""The Scapy face: ``from mqpcap.scapy import *``.

Gives every layer class of every protocol, as the registry has them, and ``MqSession``; binds the protocols' TCP ports.
As a Scapy extension: ``conf.exts.load("mqpcap")``, then ``load_contrib("mqpcap")``.

Ports lie, so the binding goes by content (``MqDispatch``). Without a session each packet is read on
its own: messages that start in it are found, continuations are not. ``MqSession`` reassembles streams.
Several messages in a packet follow each other as
layers. A message that the packet does not end is its header with ``Raw`` behind it.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scapy.config import conf
from scapy.layers.inet import TCP
from scapy.packet import Packet, bind_bottom_up, bind_top_down
from scapy.sessions import streamcls
from scapy.utils import wrpcap

from mqpcap.decode import bytecode
from mqpcap.decode.scanning import LayoutScanner
from mqpcap.errors import ProtocolError
from mqpcap.protocols import names as protocol_names
from mqpcap.protocols import protocols
from mqpcap.scapy import display, session
from mqpcap.scapy.session import MqSession, Seen, top
from mqpcap.schema import fields
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import Broken
from mqpcap.schema.message import Message, MessageSlice
from mqpcap.schema.protocol import Direction, Layout, MessageQueue

show_secrets = False
"""Whether ``repr``, ``show`` and tables of notebooks show passwords and keys, instead of ``***``. Bytes have them."""
MAX_MESSAGES = 65536
"""Of one packet; an IP packet has no more bytes."""


def message_classes() -> dict[str, type[Message]]:
    """Every layer class of every protocol by name. Raises ProtocolError if two have one name."""
    classes: dict[str, type[Message]] = {}
    for name in protocol_names():
        module = importlib.import_module(f"mqpcap.protocols.{name}")
        for cls in vars(module).values():
            if not (isinstance(cls, type) and issubclass(cls, Message)) or cls.__module__ != module.__name__:
                continue
            if cls.__name__.startswith("_"):
                continue
            if classes.setdefault(cls.__name__, cls) is not cls:
                other_module = classes[cls.__name__].__module__
                raise ProtocolError(f"{name} names a class {cls.__name__} and so does {other_module}")
    return classes


class MqDispatch(Packet):
    """What the ports are bound to: never an instance, it gives the class that reads the payload."""

    name = "message queue"

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *args: Any, **fields: Any) -> type[Packet]:
        """The class of the message a payload begins with; without one that of another binding of the port, or Raw."""
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
        """The first message of a stream, None while it goes on: what Scapy's ``TCPSession`` asks of a port.

        What does not begin with a message goes to whatever else is bound to the port, else it is Raw.
        """
        # Scapy forgets the packet before it asks for the second message in it.
        tcp = session["mqpcap tcp"] = metadata["original"][TCP] if "original" in metadata else session["mqpcap tcp"]
        layout_by_direction: dict[str, str] = session.setdefault("mqpcap", {})
        is_ended = bool(metadata.get("tcp_end"))
        for protocol, direction, entries in _entries(tcp):
            entries = [layout for layout in entries if layout.name == layout_by_direction.get(direction, layout.name)]
            # Without a header any bytes may begin a message: such a one is waited for where the client said so.
            may_wait = [layout for layout in entries if layout_by_direction or layout.header is not None]
            first_slice = _first_slice(protocol, entries, may_wait, data, is_ended)
            if first_slice is not None:
                packet = _whole_message(first_slice, data, is_ended)
                if packet is not None and first_slice.then:
                    layout_by_direction[direction] = first_slice.then
                return packet
        return streamcls(cls.dispatch_hook(data, _underlayer=tcp))(data, metadata, session)


def payload_slices(payload: bytes, tcp: Packet) -> Sequence[MessageSlice]:
    """The messages that begin in a TCP payload, in order; none if it does not begin with one.

    The first layout whose messages fill the payload is taken, else the one with most of them. The last may go on in
    the next packet, if its header is here.
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
    """The protocols of a packet's ports, its direction and the layouts that a stream may be read with.

    On another port, a class that users bound there with ``bind_layers`` says which: ``MqDispatch`` means any protocol,
    ``dport`` a packet of the client.
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
            continue  # it was one of the above
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
    """The first message of a stream, None while it goes on: what Scapy's ``StreamSocket(sock, BlipMQ)`` asks.

    A client's socket receives what the server sends; a server says otherwise with
    ``socket.streamsession["direction"] = "c2s"``.
    """
    direction = session.get("direction", "s2c")
    protocol = cls.of_protocol
    if protocol is None or not data:
        return cls.read(data, direction) if data else None
    entry_layouts = _entry_layouts(protocol, direction)
    start_layouts = [
        candidate
        for candidate in entry_layouts
        if candidate.splitter or candidate in cls.layouts or (candidate.header is None and cls in candidate.messages())
    ]
    layout = session.get("mqpcap layout")  # fq's connect says what follows
    start_layouts = start_layouts if layout is None else [protocol.layout(layout)]
    first_slice = _first_slice(protocol, start_layouts, start_layouts, data, False)
    if first_slice is None:
        return cls.read(data, direction)
    packet = _whole_message(first_slice, data, False)
    if packet is not None and first_slice.then:
        session["mqpcap layout"] = first_slice.then
    return packet


def _first_slice(
    protocol: MessageQueue, entries: Sequence[Layout], may_wait: Sequence[Layout], data: bytes, is_ended: bool
) -> MessageSlice | None:
    """The first message in the bytes of a stream read with one of the layouts, None if there is none.

    One of those that are ``waiting`` may go on: its end is 0. A frame that only its successor would end (kokaq says no
    length) ends where the bytes received so far do, if they are a whole one.
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


def _whole_message(first_slice: MessageSlice, data: bytes, is_ended: bool) -> Message | None:
    """The message found at the front of a stream, what follows as padding; None while it goes on."""
    if not first_slice.end:
        return None
    message = first_slice.read(data)
    if first_slice.end < len(data):
        message.add_payload(conf.padding_layer(data[first_slice.end :]))
    return None if not is_ended and first_slice.end == len(data) and message.is_cut() else message


def _slices(protocol: MessageQueue, layout: Layout, payload: bytes) -> tuple[list[MessageSlice], bool]:
    """The messages from the front of the payload on, and whether they fill it whole."""
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
        layout = protocol.layout(slice_.then or layout.name)
        offset = slice_.end
    return slices, True


class _SplitResult(NamedTuple):
    """A message at a place: where it ends, the layout that reads it ("": not even a header is read), its operation."""

    end: int = -1
    layout: str = ""
    op: int = -1
    goes_on: bool = False


def _slice(
    protocol: MessageQueue, layout: Layout, data: bytes, offset: int, split: _SplitResult
) -> MessageSlice | None:
    """What was found at a place; the first message of all must prove its layout, else it is None."""
    end = split.end if split.end > 0 else len(data)
    read_layout, raw = protocol.layout(split.layout), data[offset:end]
    if offset == 0 and not _proves_layout(read_layout, split.op, raw):
        return None
    return MessageSlice(_first_class(read_layout, raw), read_layout, offset, end, layout.then.get(split.op, ""))


def _split(protocol: MessageQueue, layout: Layout, data: bytes, offset: int, is_ended: bool) -> _SplitResult:
    """The message at a place."""
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
    """Whether a message proves its layout: by an operation that it has, else by a body that reads."""
    if layout.header is None:
        return True  # it has been read to its end
    if layout.op is not None:
        return bool(layout.variants_of(op))
    body = _remaining(top(layout.header), raw)
    return body is not None and any(_remaining(message, body) is not None for message in layout.messages())


def _remaining(cls: type[Message], raw: bytes) -> bytes | None:
    """What is left behind a message that the bytes begin with, None if they do not begin with one."""
    with suppress(Broken):
        return cls.begin(raw)[1]
    return None


def _first_class(layout: Layout, raw: bytes) -> type[Message]:
    """The class a message of the layout begins with."""
    if layout.header is not None:
        return top(layout.header)
    classes = layout.messages()
    return next((cls for cls in classes if _remaining(cls, raw) == b""), classes[0])


def _bind_port(cls: type[Message], port: int) -> None:
    """Behind TCP a message that only a server sends has the port as its source, any other as its destination."""
    from_server = {layout.direction for layout in cls.layouts} == {"s2c"}
    for form in (cls, *cls.__subclasses__()):
        bind_top_down(TCP, form, **{"sport" if from_server else "dport": port})


@cache
def _is_from_server(header: type[Message], body: type[Packet]) -> bool:
    """Whether only servers send a header with this body."""
    return {layout.direction for layout in header.layouts if body in layout.messages()} == {"s2c"}


def add_payload(message: Message, payload: Any) -> None:
    """Scapy's ``add_payload``; below a message that only a server sends, TCP has its port as the source."""
    Packet.add_payload(message, payload)
    if not isinstance(payload, Message) or not _is_from_server(type(message), type(payload)):  # type: ignore[arg-type]  # classes have a hash
        return
    ports = message.overload_fields.get(TCP, {})
    if "dport" in ports:
        from_server = {"sport": ports["dport"]}
        message.overload_fields = {**message.overload_fields, TCP: from_server}
        if isinstance(message.underlayer, TCP):
            message.underlayer.overloaded_fields = from_server


def bind() -> None:
    """Bind the ports of every protocol. A second call does nothing."""
    if Message.payload_slices is payload_slices:
        return
    Message.payload_slices = payload_slices
    setattr(Message, "tcp_reassemble", classmethod(tcp_reassemble))  # noqa: B010 - to mypy it is no method
    setattr(Message, "add_payload", add_payload)  # noqa: B010
    fields.shows_secrets = lambda: show_secrets
    display.install()
    session.install()
    for protocol in protocols().values():
        fronts = ([top(x.header)] if x.header is not None else x.messages() for x in protocol.layouts)
        for cls in {cls for front in fronts for cls in front}:
            _bind_port(cls, protocol.ports[0])
    for port in sorted({port for protocol in protocols().values() for port in protocol.ports}):
        bind_bottom_up(TCP, MqDispatch, dport=port)
        bind_bottom_up(TCP, MqDispatch, sport=port)


if not issubclass(Message, Packet):
    raise ImportError("the command line ran in this process, whose layers are without Scapy: import mqpcap.scapy first")
_classes = message_classes()
globals().update(_classes)
__all__ = ["MqSession", "Seen", *sorted(_classes), "wrpcap"]
bind()
# For explore("mqpcap"), which loads what it shows.
sys.modules.setdefault("scapy.contrib.mqpcap", sys.modules[__name__])
