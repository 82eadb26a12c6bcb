"""Shows messages in Scapy: as a line, and as a table in a notebook. Secrets are masked.

In: messages. Out: text, HTML, and the layers of addresses and ports that Scapy's own methods look for.
Called by: Scapy, after ``install`` has set these functions as methods.

The line is that of ``mqpcap show`` without time and packet: ``BlipMQ PUBLISH q1 id=4 5 B``. For a message from a
session, its words are the columns of the tables (``message.mq``), and the addresses stand in front. For a message that
a user built or edited, its words come from its fields.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from scapy.config import conf
from scapy.packet import NoPayload, Packet, Raw
from scapy.plist import PacketList, QueryAnswer, SndRcvList

from mqpcap.schema import secrets
from mqpcap.schema.fields import Prefix
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY
from mqpcap.wording import endpoint

MAX_NAME_CHARACTERS = 60
"""Characters of a name shown in a line."""
MAX_ROWS = 100
"""Packets of a list, or fields of a message, shown in a notebook."""
MAX_VALUE_CHARACTERS = 200
"""Characters of a value shown in a notebook."""

_LABELS = (
    ("destination", ""), ("partition_id", "partition="), ("group_name", "group="), ("client_name", "client="),
    ("message_id", "message="), ("correlation_id", "id="),
)  # fmt: skip


def mysummary(message: Message) -> str:
    """A message as a line; empty for a class that is only a part of messages."""
    protocol = message.of_protocol
    if protocol is None:
        return ""
    if not message.explicit:
        message = next(iter(message))  # random fields get a value
    columns = _columns(message)
    operation = _operation(message, columns)
    parts = [protocol.title, *([] if operation is None else [operation])]
    for name, label in _LABELS:
        value = _column_value(message, name, columns)
        if value not in (None, "", b""):
            parts.append(label + _quoted(value))
    size = _column_value(message, "body_len", columns)
    parts += [] if size is None else [f"{size} B"]
    status = None if columns is None else columns.status
    if status == "ok":
        parts.append("ok")
    code, text = (_column_value(message, name, columns) for name in ("error_code", "error_text"))
    if code is not None or text is not None or status == "error":
        parts += ["error", *(_quoted(x) for x in (code, text) if x is not None)]
    return " ".join(parts)


def do_summary(message: Message) -> tuple[int, str, list[Any]]:
    """Scapy's ``_do_summary``: the line of the message, preceded by addresses and followed by later layers."""
    line = mysummary(message)
    if not line:
        is_relevant, text, needed = Packet._do_summary(message)
        return is_relevant, text, needed
    body = message.payload
    body = body.payload if isinstance(body, Message) and body.of_protocol is None else body
    _, body_line, needed = body._do_summary()
    mq = message.mq
    if mq is not None:
        line = f"{endpoint(mq.src_ip, mq.src_port)} > {endpoint(mq.dst_ip, mq.dst_port)} {line}"
    # 0: Scapy also adds the summary of the layers below.
    return 0, f"{line} / {body_line}" if body_line else line, needed


def _columns(message: Message) -> Any:
    """The columns of the tables (`Seen`); None if no session read the message, or if it was edited since."""
    return message.mq if message.mq is not None and bytes(message) == message.original else None


def _operation(message: Message, columns: Any) -> str | None:
    """The name of the operation: from the tables, else from its number or its class."""
    if columns is not None:
        return columns.op if columns.op is not None else f"operation {columns.op_code}"
    for direction in ("c2s", "s2c"):
        name = message.operation(direction) if message._may_be(direction) else None
        if name is not None:
            return name
    for layout in message.layouts:
        if layout.op is not None:
            number = message.getfieldval(layout.op)
            return str(message.get_field(layout.op).named(message).get(number, f"operation {number}"))
    layouts = message.of_protocol.layouts if message.of_protocol is not None else ()
    return next((layout.names[ANY] for layout in layouts if ANY in layout.names and layout.header is None), None)


def _column_value(message: Message, name: str, columns: Any) -> Any:
    """A column of ``messages``: from the tables, else from the fields."""
    if columns is not None:
        return getattr(columns, name)
    protocol = message.of_protocol
    assert protocol is not None
    if name == "body_len":
        values = (message.column(x) for x in _names(protocol.envelope.body))
        return next((len(x) for x in values if isinstance(x, bytes | str)), None)
    values = (message.column(x) for x in (*_names(getattr(protocol.envelope, name)), name))
    field_value = next((x for x in values if x not in (None, "")), None)
    return field_value.hex() if name == "message_id" and isinstance(field_value, bytes) else field_value


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _quoted(value: Any) -> str:
    """A value in a line, quoted if it is not a single printable word."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    text = text if len(text) <= MAX_NAME_CHARACTERS else f"{text[:MAX_NAME_CHARACTERS]}..."
    return text if text.isprintable() and " " not in text and '"' not in text else repr(text)


# -- notebooks ---------------------------------------------------------------------------------------------


def message_html(message: Message) -> str:
    """The fields of a message as an HTML table, with a heading per layer."""
    rows: list[str] = []
    layer: Packet
    message = _masked(message)
    layer = message
    while not isinstance(layer, NoPayload):
        rows.append(f'<tr><th colspan="2" style="text-align:left">{escape(str(layer.name))}</th></tr>')
        rows += list(_fields(layer, ""))
        layer = layer.payload
    return _table(message.summary(), rows, len(rows))


def _fields(layer: Packet, indent: str) -> Iterator[str]:
    for field in layer.fields_desc:
        value = layer.getfieldval(field.name)
        if value is None and not isinstance(field, Prefix):
            continue
        parts = value if isinstance(value, list) else [value]
        if parts and all(isinstance(part, Packet) for part in parts):
            for i, part in enumerate(parts):
                name = f"{field.name}[{i}]" if isinstance(value, list) else field.name
                yield _row(indent + name, "")
                yield from _fields(part, indent + "\u2003")
        else:
            yield _row(indent + field.name, str(field.i2repr(layer, value)))


def _row(name: str, value: str) -> str:
    shortened = value if len(value) <= MAX_VALUE_CHARACTERS else f"{value[:MAX_VALUE_CHARACTERS]}..."
    return f'<tr><td>{escape(name)}</td><td style="text-align:left">{escape(shortened)}</td></tr>'


def list_html(packets: "PacketList | SndRcvList") -> str | None:
    """A list as an HTML table; None if it has no message, so that the notebook shows Scapy's own line."""
    entries: Sequence[Any] = packets.res
    if not any(isinstance(packet, Message) for entry in entries[:MAX_ROWS] for packet in _packets_of(entry)):
        return None
    rows = []
    for number, entry in enumerate(entries[:MAX_ROWS]):
        cells = "".join(f'<td style="text-align:left">{escape(packet.summary())}</td>' for packet in _packets_of(entry))
        rows.append(f"<tr><td>{number}</td><td>{float(_packets_of(entry)[0].time):.6f}</td>{cells}</tr>")
    return _table(f"{packets.listname}: {len(entries)}", rows, len(entries))


def _table(caption: str, rows: list[str], count: int) -> str:
    footer = f'<tr><td colspan="4">and {count - MAX_ROWS} more</td></tr>' if count > MAX_ROWS else ""
    return f"<table><caption>{escape(caption)}</caption>{''.join(rows[:MAX_ROWS])}{footer}</table>"


def _packets_of(entry: Any) -> tuple[Packet, ...]:
    return (entry.query, entry.answer) if isinstance(entry, QueryAnswer) else (entry,)


# -- secrets ----------------------------------------------------------------------------------------------


def _masked(message: Message) -> Message:
    """The message; if its unread bytes may contain a secret, a copy with these bytes masked."""
    body = message.payload
    if secrets.are_shown() or not isinstance(body, Raw) or not secrets.unread_may_hold(message):
        return message
    masked = message.copy()
    masked.payload.load = secrets.MASK.encode()
    return masked


def message_repr(message: Message) -> str:
    """Scapy's ``repr``, secrets masked."""
    return str(Packet.__repr__(_masked(message)))


def show_or_dump(message: Message, *arguments: Any, **options: Any) -> str | None:
    """Scapy's ``show``, secrets masked."""
    return Packet._show_or_dump(_masked(message), *arguments, **options)  # type: ignore[no-any-return]


# -- pairs ------------------------------------------------------------------------------------------------


def sr(packets: PacketList, multi: bool = False, lookahead: int | None = None) -> tuple[SndRcvList, PacketList]:
    """Scapy's ``sr``; a single pass if all messages are from a session and their replies are decided."""
    messages = [packet for packet in packets.res if isinstance(packet, Message) and packet.mq is not None]
    index = {message.mq.key: i for i, message in enumerate(messages)}
    if lookahead or len(index) < len(packets.res) or not all(message.mq.pair.result()[1] for message in messages):
        pairs, unanswered = _sr(packets, multi, lookahead)
        return pairs, unanswered
    matched: set[int] = set()
    answers = []
    for i, message in enumerate(messages):
        reply = index.get(message.mq.reply, -1)
        if reply > i and i not in matched and reply not in matched:
            matched |= {i, reply}
            answers.append(QueryAnswer(message, messages[reply]))
    return SndRcvList(answers), PacketList([message for i, message in enumerate(messages) if i not in matched])


_sr = PacketList.sr


# -- who sent it -------------------------------------------------------------------------------------------


def endpoint_layers(message: Message) -> Packet:
    """The headers of the first packet that carried a session's message, without its payload.

    Headers outside of its IP header are left out, but for Ethernet. If that packet was evicted, or was an IP fragment,
    the headers have only addresses and ports.
    """
    from scapy.layers.inet import IP, TCP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    mq = message.mq
    if headers := mq.first_headers():
        return headers
    ip = (IPv6 if ":" in mq.src_ip else IP)(src=mq.src_ip, dst=mq.dst_ip)
    headers = Ether() / ip / TCP(sport=mq.src_port, dport=mq.dst_port)
    return headers


def haslayer(message: Message, cls: Any, _subclass: bool | None = None) -> Any:
    """Scapy's ``haslayer``; a session's message also has its `endpoint_layers`."""
    return Packet.haslayer(message, cls, _subclass) or (
        _has_endpoints(message) and endpoint_layers(message).haslayer(cls, _subclass)
    )


def getlayer(message: Message, cls: Any, nb: int = 1, _track: Any = None, _subclass: Any = None, **flt: Any) -> Any:
    """Scapy's ``getlayer``; a session's message also has its `endpoint_layers`."""
    layer = Packet.getlayer(message, cls, nb, _track, _subclass, **flt)
    if layer is None and _has_endpoints(message) and not isinstance(cls, int):
        return endpoint_layers(message).getlayer(cls, nb, _track, _subclass, **flt)
    return layer


_CLASS_NAME = re.compile(r"(?<=[%,{!])(\w+)(?=(?::\d+)?\.\w+%|:[^{}]*})")
"""Class names in a format of ``sprintf``."""


def sprintf(message: Message, fmt: str, relax: int = 1) -> str:
    """Scapy's ``sprintf``; a session's message also has its `endpoint_layers`.

    As in ``message[BlipMQPublish]``, the name of a class also stands for a newer form that derives from it.
    """
    names: dict[str, str] = {}
    for cls in message.layers():
        names.update(dict.fromkeys((base.__name__ for base in cls.__mro__), cls.__name__))
    names.update((cls.__name__, cls.__name__) for cls in message.layers())

    def own_name(match: re.Match[str]) -> str:
        return names.get(match[1], match[1])

    fmt = _CLASS_NAME.sub(own_name, fmt)
    if not _has_endpoints(message):
        return str(Packet.sprintf(message, fmt, relax))
    packet = endpoint_layers(message) / message
    packet.time = message.time
    return str(packet.sprintf(fmt, relax))


def _has_endpoints(message: Message) -> bool:
    return message.mq is not None and message.underlayer is None


def install() -> None:
    """Sets these functions as methods of `Message` and of Scapy's packet lists."""
    for name, function in (
        ("mysummary", mysummary), ("_do_summary", do_summary), ("_repr_html_", message_html), ("haslayer", haslayer),
        ("getlayer", getlayer), ("sprintf", sprintf), ("__repr__", message_repr), ("_show_or_dump", show_or_dump),
    ):  # fmt: skip
        setattr(Message, name, function)
    for cls in (PacketList, SndRcvList):
        cls._repr_html_ = list_html
    PacketList.sr = sr
    conf.layers.ldict["scapy.contrib.mqpcap"] = sorted(
        (x for x in conf.layers if issubclass(x, Message) and x is not Message), key=lambda x: str(x.__name__)
    )
