"""A message as a class: Scapy's ``Packet``, read wholly or not at all.

A layer file derives its classes from :class:`Message` and lists kinds of ``fields`` in them. Scapy builds, dissects,
copies, prints and pairs them like any layer; ``compiler`` only reads the list. Processes that only read captures use
the same classes without Scapy: see ``scapy_stub``.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from ipaddress import IPv4Address
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from mqpcap.schema.fields import (
    Address,
    Bits,
    Broken,
    Buffer,
    If,
    Kind,
    Length,
    Number,
    Prefix,
    RandomValue,
    bare,
    offset,
    prefix_name,
    sized_field,
    wire_fields,
)
from mqpcap.schema.gzip_body import deflate, inflate

if TYPE_CHECKING or "mqpcap.schema.scapy_stub" not in sys.modules:
    from scapy.config import conf
    from scapy.packet import Packet, bind_top_down
    from scapy.volatile import VolatileValue
else:
    from mqpcap.schema.scapy_stub import Packet, bind_top_down

    VolatileValue = object

if TYPE_CHECKING:
    from mqpcap.schema.protocol import Layout, MessageQueue
    from mqpcap.schema.requests import CorrelationRule


Octets = TypeVar("Octets", bytes, memoryview)


def _as_json(field: Any, value: Any) -> Any:
    """A field's value for ``json()``: messages inside as objects, bytes as text."""
    if isinstance(value, Message):
        return dict(value._command(json=True))
    if isinstance(value, list):
        return [_as_json(getattr(field, "item", field), item) for item in value]
    if isinstance(value, bytes):
        return str(IPv4Address(value)) if isinstance(field, Address) else value.decode(errors="backslashreplace")
    return value


def _fixed(field: Any, value: Any) -> Any:
    """A field's value with one value for each that is volatile in it, as Scapy has it for those that stand alone."""
    if isinstance(value, VolatileValue):
        return field.any2i(None, value._fix())
    if isinstance(value, list) and not all(isinstance(item, bytes | int) for item in value):
        item_kind = getattr(field, "item", field)
        return [_fixed(item_kind, item) for item in value]
    return next(iter(value)) if isinstance(value, Message) and not value.explicit else value


_PICKLED = (
    "fields", "overloaded_fields", "payload", "explicit", "raw_packet_cache", "raw_packet_cache_fields", "original",
    "time", "sent_time", "direction", "sniffed_on", "wirelen", "comments", "post_transforms",
)  # fmt: skip
_as: ContextVar[tuple[str | None, str | None]] = ContextVar("mqpcap_reading_as", default=(None, None))


def _with_prefixes(kinds: Sequence[Kind]) -> Iterator[Kind]:
    """The fields of a class, and in front of each that has a prefix what says it."""
    names = {kind.name for kind in kinds}
    for kind in kinds:
        if getattr(bare(kind), "prefix", None) is not None and prefix_name(bare(kind)) not in names:
            yield Prefix(bare(kind))
        yield kind


HEADER = "header."
"""A body names fields of its header so."""


class MessageSlice(NamedTuple):
    """A message in the bytes of a TCP segment or stream: its class, its layout and its offsets.

    next_layout: name of the layout of later messages, if it changes.
    """

    message: "type[Message]"
    layout: "Layout"
    start: int
    end: int
    next_layout: str = ""

    def read(self, data: bytes) -> "Message":
        """The message, of the bytes it was found in."""
        return self.message.read(data[self.start : self.end], self.layout.direction, self.layout.name)


def read_direction() -> str | None:
    """The direction passed to ``Message.read``, None without one."""
    return _as.get()[0]


class Message(Packet):
    """Base of every layer class: reads wholly or not at all.

    If the bytes do not fit, all fields stay unset and the bytes follow as ``Raw``, as Scapy users expect of a broken
    layer. Test for a flaw with ``Raw in packet``; the ``Raw`` layer is there even if it is empty.
    """

    match_subclass = True  # packet[BlipMQPublish] also finds the newer form that derives from it

    layouts: "ClassVar[tuple[Layout, ...]]" = ()
    """The layouts whose messages begin with this class."""

    payload_slices: "ClassVar[Callable[[bytes, Packet], Sequence[MessageSlice]] | None]" = None
    """Finds the messages in a TCP payload; set once the layers are bound to TCP (``mqpcap.scapy``)."""

    mq: Any = None
    """The message in its capture (``session.Seen``), None outside of a session."""

    _following_size = 0
    """Size of the later messages in the last build: the length of this message does not count them."""

    _trailing_size = 0
    """Size of the bytes after the packet's last message, if this is its last layer but for bytes that no field has."""

    of_protocol: "ClassVar[MessageQueue | None]" = None
    """The protocol whose messages begin with this class."""

    binding_values: ClassVar[Mapping[str, int]] = {}
    """Header fields that announce this body, if the operation does not."""

    named: ClassVar[Mapping[str, Mapping[int, str]]] = {}
    """Names of numbers by field, if they differ from those of the shared fields."""

    explicit_integers: frozenset[str] = frozenset()
    """Integers given together with their parts: they are sent as given, whatever the parts say."""

    bit_fields: "ClassVar[Mapping[str, Sequence[Bits | If]]]" = {}
    """The fields that are bits of an integer, or have one there that says whether they are."""

    sizes: ClassVar[Mapping[str, str]] = {}
    """By field, the field before it that has its length or count."""

    _read_sizes: frozenset[str] = frozenset()
    """Lengths and counts that were read and not set since: they follow the fields that they measure."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.fields_desc = list(_with_prefixes(cls.fields_desc))
        bit_fields: dict[str, list[Bits | If]] = {}
        for field in cls.fields_desc:
            number_name = (
                field.of if isinstance(field, Bits) else field.when if isinstance(field, If) and field.has else None
            )
            if number_name is not None and any(f.name == number_name for f in cls.fields_desc):
                bit_fields.setdefault(number_name, []).append(field)
        cls.bit_fields = bit_fields
        cls.sizes = {f.name: bare(f).sized_by for f in cls.fields_desc if getattr(bare(f), "sized_by", None)}
        measured = set(cls.sizes.values())
        for field in cls.fields_desc:
            kind = bare(field)
            if isinstance(kind, Number) and kind.name in measured:
                kind.column = field.column = None
            elif isinstance(field, Number) and field.default is None and not isinstance(field, Length):
                field.default = False if field.truth else field.at_least or 0

    def __init__(self, *scapy: Any, **fields: Any) -> None:
        super().__init__(*scapy, **fields)
        if self.bit_fields and fields:
            both = [number_name for number_name in self.bit_fields if fields.get(number_name) is not None]
            self.__dict__["explicit_integers"] = frozenset(
                number_name for number_name in both if any(part.name in fields for part in self.bit_fields[number_name])
            )

    @classmethod
    def begin(cls, s: Octets, header: "Message | None" = None) -> "tuple[Message, Octets]":
        """A message read from the start of ``s`` after its header, and the bytes after it; raises Broken."""
        pkt = cls()
        pkt.underlayer = header
        left = pkt._read(s)
        return pkt, left

    @classmethod
    def random(cls) -> "Message":
        """A message with random fields, its lengths and counts left to be computed."""
        drawn = {f.name: f.randval() for f in cls.fields_desc if f.default is not None}
        return cls(**{name: value._fix() for name, value in drawn.items() if value is not None})

    def _read(self, s: Octets) -> Octets:
        # A view: with bytes each field would copy all bytes after it.
        view: Buffer = memoryview(s)
        fields = iter(wire_fields(type(self)))
        for field in fields:
            left = len(view)
            view, value = field.getfield(self, view)
            self.fields[field.name] = value
            if bare(field).is_last(value, left):
                break
        for absent in fields:
            self.fields.pop(absent.name, None)  # lists and parts have a value from the start
        read_size = len(s) - len(view)
        self.raw_packet_cache = bytes(s[:read_size])
        # As Packet does it: a list changed in place must make the cached bytes stale.
        self.raw_packet_cache_fields = {
            f.name: self._raw_packet_cache_field_value(f, self.fields[f.name], copy=True)
            for f in self.fields_desc
            if (f.islist or f.holds_packets) and self.fields.get(f.name) is not None
        }
        self.explicit = 1
        if self.sizes:
            self.__dict__["_read_sizes"] = frozenset(self.sizes.values())
        return s[read_size:]

    def getfieldval(self, attr: str) -> Any:
        """A field's value: an integer includes the bits that were set apart, and bits come from their integer.

        ``header.NAME`` is a field of the message's header, None without a header.
        """
        if attr.startswith(HEADER):
            return None if self.underlayer is None else self.underlayer.getfieldval(attr[len(HEADER) :])
        return self._combined(attr, super().getfieldval(attr))

    def getfield_and_val(self, attr: str) -> tuple[Any, Any]:
        """The field and its value, as ``getfieldval`` has it: what attributes are."""
        field, value = super().getfield_and_val(attr)
        return field, self._combined(attr, value)

    def _combined(self, attr: str, value: Any) -> Any:
        if attr in self.explicit_integers:
            return value
        if attr in self.bit_fields:
            given = self.fields if attr in self.fields else self.overloaded_fields | self.fields
            for part in self.bit_fields[attr]:
                if part.name in given and not self._shares_bit(attr, part, given):
                    value = part.into(value, given[part.name])
                elif part.name not in given and (measured := sized_field(self, part.name)) and attr not in self.fields:
                    value = part.into(value, measured.measure(self))
        elif value is None:
            for number_name, parts in self.bit_fields.items():
                for part in parts:
                    if part.name == attr and isinstance(part, Bits):
                        return (self.getfieldval(number_name) or 0) >> part.shift & part.mask
        return value

    def _shares_bit(self, attr: str, part: Bits | If, given: Mapping[str, Any]) -> bool:
        """Whether a field is None, and a field with the same bit of an integer is not, or is not read yet."""
        parts = (x for x in self.bit_fields[attr] if isinstance(part, If) and isinstance(x, If) and x.has == part.has)
        return given[part.name] is None and any(given.get(x.name, 0) is not None for x in parts)

    def setfieldval(self, attr: str, val: Any) -> None:
        """Set a field. Setting an integer clears its bit fields, and optional fields whose presence flag it changes."""
        if self.explicit_integers:
            self.__dict__["explicit_integers"] = frozenset()  # the last word counts
        if self.sizes.get(attr) in self._read_sizes:
            self.fields.pop(self.sizes[attr], None)
        self.__dict__["_read_sizes"] = self._read_sizes - {attr}
        for part in self.bit_fields.get(attr, ()):
            if isinstance(part, Bits) or bool((val or 0) & (part.has or 0)) != (self.fields.get(part.name) is not None):
                self.fields.pop(part.name, None)
        super().setfieldval(attr, val)

    def copy(self) -> "Message":
        """A copy with the facts of its session; fields that are not set stay unset."""
        clone: Message = super().copy()
        clone.overload_fields, clone.original = self.overload_fields, self.original
        # Scapy counts lists and parts as set where nobody set them; then fuzz() could not give them values.
        for kind in () if self.explicit else self.fields_desc:
            name = kind.name
            if (kind.islist or kind.holds_packets) and clone.fields.get(name, 0) == clone.default_fields.get(name):
                del clone.fields[name]
        clone.__dict__.update(self.__dict__)
        return clone

    def command(self) -> str:
        """An expression that builds the same bytes.

        Bytes that were not read are appended. A body that was compressed in another way is its compressed bytes.
        """
        if self.raw_packet_cache == b"" and not self.explicit:
            return self.payload.command()
        came, packed = self.payload.__dict__.get("_packed", (b"", b"")) if self._is_packed() else (b"", b"")
        pay = self.do_build_payload() if packed else b""
        if not packed or not pay.startswith(packed) or deflate(came) == packed:
            return super().command()
        head = f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._command())})"
        padding = self.getlayer(conf.padding_layer)
        return "/".join([head, conf.raw_layer(pay).command(), *([padding.command()] if padding else [])])

    def _command(self, json: bool = False) -> list[tuple[str, Any]]:
        if not json:
            return super()._command()
        shown_fields = [f for f in self.fields_desc if not isinstance(f, Prefix) or f.name in self.fields]
        return [(f.name, _as_json(f, self.getfieldval(f.name))) for f in shown_fields]

    def clone_with(self, payload: Any = None, **fields: Any) -> "Message":
        """A message with these fields: each volatile value becomes one, so that lengths are right."""
        clone: Message = super().clone_with(payload, **{n: _fixed(self.get_field(n), x) for n, x in fields.items()})
        clone.original = self.original
        clone.__dict__.update(self.__dict__)
        return clone

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: read again, bytes alone would not say direction and layout."""
        drawn = [name for name, value in self.default_fields.items() if isinstance(value, RandomValue)]
        state = {name: getattr(self, name) for name in _PICKLED}
        return type(self), (), (state, self.__dict__, drawn)

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Any], list[str]]) -> None:
        values, attributes, drawn = state
        self.__dict__.update(attributes)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if drawn:
            fresh = {name: self.get_field(name).randval() for name in drawn}
            object.__setattr__(self, "default_fields", {**type(self)().default_fields, **fresh})
        self.payload.add_underlayer(self)

    def dissect(self, s: bytes) -> None:
        """Read the bytes; in the payload of a TCP segment all messages that begin in it, in order."""
        is_payload = _as.get() == (None, None) and hasattr(self.underlayer, "dport")
        slices = Message.payload_slices(s, self.underlayer) if is_payload and Message.payload_slices is not None else ()
        if not slices:
            super().dissect(s)
            return
        front, *later = slices
        token = _as.set((front.layout.direction, front.layout.name))
        try:
            super().dissect(s[: front.end])
        finally:
            _as.reset(token)
        for later_slice in later:
            self.add_payload(later_slice.read(s))
        trailing = s[slices[-1].end :]
        if trailing:
            *_, last_message = (layer for layer in self.iterpayloads() if isinstance(layer, Message))
            self.add_payload(conf.raw_layer(trailing))
            last_message.__dict__["_trailing_size"] = len(trailing)

    def do_dissect(self, s: bytes) -> bytes:
        """Read the header; bytes that do not fit are all left over."""
        try:
            return self._read(s)
        except Broken:
            self.fields.clear()
            self.init_fields()  # lists of its own: those of the class are everybody's
            # A cache without bytes: left alone, the header builds as nothing and the bytes follow as Raw.
            self.raw_packet_cache, self.raw_packet_cache_fields = b"", {}
            return s

    @classmethod
    def read(cls, raw: bytes, direction: str | None = None, layout: str | None = None) -> "Message":
        """The message in ``raw``, read as sent in a direction (``c2s`` or ``s2c``) and in a named layout.

        Without them the first variant that fits is taken.
        """
        token = _as.set((direction, layout))
        try:
            return cls(raw)
        finally:
            _as.reset(token)

    def is_cut(self, may_wait: bool) -> bool:
        """Whether a message that ends at the last received byte continues: for certain, or if ``may_wait`` possibly."""
        return False

    def hashret(self) -> bytes:
        """Equal for a request and its reply: the values of the rule's ties, or the protocol alone."""
        protocol = self.of_protocol
        if protocol is None:
            return super().hashret()
        rule = protocol.rule
        return repr((protocol.name, () if rule is None or rule.answers is not None else self._ties(rule))).encode()

    def answers(self, other: Packet) -> int:
        """Whether this is the server's answer to a message of the client.

        For messages of a session its exchanges decide, else the protocol's rule.
        """
        if self.mq is not None and isinstance(other, Message) and other.mq is not None:
            known_answer = self.mq.answers(other.mq)
            if known_answer is not None:
                return int(known_answer)
        protocol = self.of_protocol
        if protocol is None:
            return int(super().answers(other))
        rule = protocol.rule
        if rule is None or not isinstance(other, Message) or other.of_protocol is not protocol:
            return 0
        if not (self._may_be("s2c") and other._may_be("c2s")):
            return 0
        if rule.answers is not None:
            return int(rule.answers(self, other))
        request, reply = other.operation("c2s"), self.operation("s2c")
        groups = (rule, *(group for group in rule.queues if group.side == "c2s"))
        return int(any(x.fits(request, reply) and self._ties(x) == other._ties(x) for x in groups))

    def _may_be(self, direction: str) -> bool:
        """Whether header and body fit a direction; a message without a layout fits both."""
        layouts = [x for x in self.layouts if type(self.payload) in x.messages()] or self.layouts
        return not layouts or any(x.direction == direction for x in layouts)

    def operation(self, direction: str) -> str | None:
        """The name of the operation, taken as sent in a direction; None without one."""
        for layout in self.layouts:
            if layout.direction == direction and layout.op is not None:
                return layout.names.get(self.getfieldval(layout.op))
        return None

    def column(self, name: str) -> Any:
        """The value of a column of the protocol's table in header or body, None if it is in neither."""
        layer: Packet = self
        while isinstance(layer, Message) and (layer is self or layer.of_protocol is None):
            for field in layer.fields_desc:
                if name in (field.column, field.name):
                    return layer.getfieldval(field.name)
            layer = layer.payload
        return None

    def _ties(self, rule: "CorrelationRule") -> tuple[Any, ...]:
        ops = [layout.op for layout in self.layouts if layout.op is not None]
        return tuple(self.column(ops[0] if name == "op_code" and ops else name) for name in rule.tie)

    def _length(self) -> Length | None:
        """The field that says where the message ends."""
        return next((f for f in self.fields_desc if isinstance(f, Length)), None)

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """The message's bytes after its header (without a length: all bytes), and the bytes after the message."""
        length = self._length()
        if length is None or length.name not in self.fields:
            return s, None
        n = self.fields[length.name] - length.less
        return s[:n], s[n:] or None

    def do_build(self) -> bytes:
        """Build the message from one value of each volatile field."""
        if self.explicit:
            return self._with_length(super().do_build())
        fixed: Message = next(iter(self))
        built = fixed.do_build()
        self.__dict__["_following_size"] = fixed._following_size
        return built

    def _with_length(self, built: bytes) -> bytes:
        """The bytes of a message, with its length as it is now if it was read with a whole body, and not set since."""
        length = self._length()
        if length is None or length.name not in self._read_sizes:
            return built
        header_size = len(self.self_build())
        n = len(built) - header_size - self._following_size
        if n + length.less == self.fields.get(length.name):
            return built  # its length may have more bytes than it needs
        return length.put(built[:header_size], offset(type(self), length.name), n) + built[header_size:]

    def do_build_payload(self) -> bytes:
        """Build the body; compressed where the header says so, and as it came where it was not changed."""
        pay: bytes = super().do_build_payload()
        self.__dict__["_following_size"] = self._size_of_following(pay)
        if not isinstance(self.payload, Message) or self.payload.of_protocol is not None or not self._is_packed():
            return pay
        own_size = len(pay) - self._following_size
        came, packed = self.payload.__dict__.get("_packed", (None, b""))
        body = pay[:own_size]
        return (packed if body == came else deflate(body)) + pay[own_size:]

    def _size_of_following(self, pay: bytes) -> int:
        """Number of bytes after this layer, as just built, that belong to later messages."""
        if isinstance(self.payload, Message):
            return self.payload._following_size if self.payload.of_protocol is None else len(pay)
        following = self.payload.getlayer(Message, _subclass=True)
        if following is not None:
            return len(following.do_build())
        return self._trailing_size if pay else 0

    def _is_packed(self) -> bool:
        """Whether the header says that the body is gzip."""
        return any((self.getfieldval(x.packed[0]) or 0) & x.packed[1] for x in self.layouts if x.packed is not None)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Header and body, the length computed where it was left out."""
        length = self._length()
        if length is not None and self.getfieldval(length.name) is None:
            pkt = length.put(pkt, offset(type(self), length.name), len(pay) - self._following_size)
        return pkt + pay

    def _variants(self) -> "Iterator[tuple[Layout, type[Message], bool]]":
        """The classes that may read the body, in the order the interpreter tries them; which may leave bytes over."""
        direction, name = _as.get()
        for layout in self.layouts:
            if (name and layout.name != name) or (direction and layout.direction != direction):
                continue
            op = self.fields.get(layout.op) if layout.op else -1
            for variant in layout.variants_of(-1 if op is None else op):
                if not variant.only_framed:
                    yield layout, variant.message, layout.may_leave(variant)

    def _unpacked(self, layout: "Layout", s: bytes) -> bytes:
        if layout.packed is None or not self.fields[layout.packed[0]] & layout.packed[1]:
            return s
        inflated, _ = inflate(s)
        if inflated is None:
            raise Broken
        return inflated

    def do_dissect_payload(self, s: bytes) -> None:
        """Read the body by the first variant that fits to the end, else by the first that may leave bytes."""
        if not self.layouts:
            super().do_dissect_payload(s)
            return
        length = self._length()
        is_whole = bool(self.fields) and (length is None or len(s) >= self.fields[length.name] - length.less)
        for exact in (True, False) if is_whole else ():
            for layout, cls, may_leave in self._variants():
                if not exact and not may_leave:
                    continue
                try:
                    unpacked = self._unpacked(layout, s)
                    body, left = cls.begin(unpacked, self)
                except Broken:
                    continue
                if exact and left:
                    continue
                if left:
                    body.add_payload(conf.raw_layer(left))
                if unpacked is not s:
                    body.__dict__["_packed"] = unpacked, s  # unchanged, it is sent as it came
                self.add_payload(body)
                if length is not None:
                    self.__dict__["_read_sizes"] = self._read_sizes | {length.name}
                return
        # Even without bytes: that nothing reads the body must show.
        self.add_payload(conf.raw_layer(s))


def message_class(
    module: str, name: str, title: str, about: str, *fields: Kind, like: type[Message] = Message, **attributes: Any
) -> type[Message]:
    """A layer class without a class statement: its name, title, docstring and fields in wire order.

    The class is an attribute of its module, for pickle and imports. ``like`` is its base class, with its fields if none
    are given; a packet that has the new class also has the base class. ``attributes``: further attributes.

    >>> from mqpcap.schema.fields import U8
    >>> message_class(__name__, "Ping", "my ping", "Says hello.", U8("count"))().name
    'my ping'
    """
    attributes |= {"__doc__": about, "__module__": module, "name": title}
    if fields or like is Message:
        attributes["fields_desc"] = list(fields)
    cls = new_class(name, (like,), exec_body=lambda body: body.update(attributes))
    setattr(sys.modules[module], name, cls)
    return cls


def message_bases(cls: type[Message]) -> "tuple[type[Message], ...]":
    """A class and those it derives from, short of Message."""
    return cls.__mro__[: cls.__mro__.index(Message)]


def register_protocol(protocol: "MessageQueue") -> None:
    """Bind the classes of a protocol: headers to the protocol and its bodies, bodies to their operation.

    If a header derives from another header (with a narrower bound), its base is bound, too: people use the base.
    """
    for layout in protocol.layouts:
        for front in layout.messages() if layout.header is None else [layout.header]:
            for cls in message_bases(front):
                cls.of_protocol = protocol
                if layout.header is not None:
                    cls.layouts = (*cls.__dict__.get("layouts", ()), layout)
                    _bind_bodies(cls, layout)


def _bind_bodies(header: type[Message], layout: "Layout") -> None:
    if layout.op is None:
        return
    fields = {f.name for f in header.fields_desc}
    for op, variants in layout.variants.items():
        for message in (variant.message for variant in variants if not variant.only_framed):
            binding_values = {layout.op: op} if op >= 0 else {}
            binding_values |= {k: v for k, v in message.binding_values.items() if k in fields}
            if binding_values and header not in message.__dict__.get("_overload_fields", {}):
                bind_top_down(header, message, **binding_values)
