"""The vocabulary: the closed set of field kinds a protocol is described with.

A layer lists these kinds, and nothing else, in its message classes (``message.Message``). Each kind is a Scapy field,
so the classes build, dissect and print like any layer. Lengths, counts and conditions are *names of fields*, so
``compiler`` can compile the same classes for the interpreter. A kind's Scapy behaviour and its checks are here; its op
and its Arrow type are in ``compiler``.

Kinds: integers (``U8`` ... ``I64``, ``Bool``, ``VarUint``, ``Length``), ``Bits``, ``Text``, ``Bytes``, ``Address``,
``GreedyBytes``, ``Array``, ``If``, ``Nested``, ``Never``, and ``Late``, which only marks a span. ``Group`` and
``Choice`` are several fields with conditions.
Alternatives and switches are tables of classes in ``protocol``.

Strict: a declared length that overruns, a nested message that is not read to its last byte or a value out of its
bounds makes the whole message ``Raw``. Nothing is shortened, nothing guessed.
"""

import copyreg
import random
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from ipaddress import IPv4Address
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from mqpcap.errors import ProtocolError
from mqpcap.schema import secrets

if TYPE_CHECKING or "mqpcap.schema.scapy_stub" not in sys.modules:
    from scapy.fields import EnumField, Field
    from scapy.packet import Packet
    from scapy.volatile import RandNum
else:
    from mqpcap.schema.scapy_stub import EnumField, Field, Packet

    RandNum = object

if TYPE_CHECKING:
    from mqpcap.schema.message import Message

Buffer = bytes | memoryview
"""Bytes to read; of a view a slice is no copy, so reading field after field stays linear in the message's size."""

MAX_LIST_ITEMS = 16_777_216
MAX_DRAWN_BYTES = 255
"""Longest value drawn by fuzz(): the largest length in a single byte."""
EDGE_VALUE_ODDS = 4
"""fuzz() draws an edge of the bounds once in this many values, on average."""


class Broken(Exception):
    """The bytes do not fit the description; never leaves a Message.

    ``why`` is the reason, with ``{}`` for each of ``numbers``. These numbers are bytes of the message, so they may be
    part of a secret.
    """

    def __init__(self, why: str = "it does not fit", *numbers: int) -> None:
        super().__init__(why, *numbers)
        self.why = why
        self.numbers = numbers


class RandomValue(RandNum):
    """A random value: drawn again for each build. Made by fuzz()."""

    def __init__(self, kind: "Kind") -> None:
        self.kind = kind

    def _fix(self) -> Any:
        return self.kind.draw()

    def copy(self) -> "RandomValue":
        """Itself: Scapy would copy a value drawn."""
        return self


def _is_edge_case() -> bool:
    return random.randrange(EDGE_VALUE_ODDS) == 0


copyreg.pickle(struct.Struct, lambda packed: (struct.Struct, (packed.format,)))  # a kind of field has one


@dataclass(eq=False, repr=False)
class Kind(EnumField[Any]):  # an EnumField, so that ls(verbose=True) lists names of numbers
    """Base of all kinds.

    ``column``: name in the tables, by default the field's name without a trailing underscore; None for no column.
    ``secret``: masked unless --show-secrets is given.
    ``body``: user payload: ``payload`` in filters, truncated by --bodies; ``Envelope.body`` names the column of
    body_len.
    ``unit``: unit of its numbers.
    ``names``: names of its numbers, by number.
    ``words``: names for Scapy only, if the tables name the number by the connection's facts.
    """

    __slots__ = ["__dict__"]  # Scapy's metaclass gives fields no dict of their own

    name: str
    default: Any = None
    _: KW_ONLY
    column: str | None = ""
    secret: bool = False
    body: bool = False
    unit: str | None = None
    names: Mapping[int, str] | None = None
    words: Mapping[int, str] | None = None

    def __post_init__(self) -> None:
        Field.__init__(self, self.name, self.default, "!B")
        self.column = self.name.rstrip("_") if self.column == "" else self.column
        self.i2s = {int(number): name for number, name in (self.words or self.names or {}).items()}  # Scapy's word

    def named(self, pkt: Packet | None) -> Mapping[int, str]:
        """The names of numbers in a message."""
        return self.i2s if pkt is None else pkt.named.get(self.name, self.i2s)

    def number(self, pkt: Packet | None, name: str) -> int:
        """The number of a name in any case, or of a name joined by " or "; the first of the joined names goes first."""
        named = self.named(pkt)
        for part_limit in (1, None):
            for number, text in named.items():
                text, wanted = text.lower(), name.lower()
                if wanted == text or wanted in text.split(" or ")[:part_limit]:
                    return number
        raise ValueError(f"{name!r} is no {self.name}; there are {', '.join(named.values()) or 'only numbers'}")

    def numbers(self, pkt: Packet | None, value: Any) -> Any:
        """A value with numbers for names; Scapy makes a packet of each item of a list."""
        if isinstance(value, list):
            return [self.numbers(pkt, item) for item in value]
        return self.number(pkt, value) if isinstance(value, str) else value

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        """The bytes of a value, for building. Raises ValueError if it does not fit."""
        raise NotImplementedError

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        """Read a value: returns the remaining bytes of the region, and the value. Raises Broken."""
        raise NotImplementedError

    def draw(self) -> Any:
        """A random value that fits, sometimes at an edge of the bounds."""
        raise NotImplementedError

    def randval(self) -> Any:
        return RandomValue(self)

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        return s + self.build_bytes(pkt, val)

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """The value for people; a secret is masked."""
        return secrets.MASK if x and secrets.is_hidden(self, secrets.are_shown()) else self.value_text(pkt, x)

    def value_text(self, pkt: Packet | None, x: Any) -> str:
        """The value for people, also if it is secret."""
        name = self.named(pkt).get(x) if isinstance(x, int) else None
        return repr(x) if name is None else f"{name} ({x})"

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return x

    def is_last(self, value: Any, left: int) -> bool:
        """Whether all later fields are absent, given that it was read as ``value`` with ``left`` bytes remaining."""
        return False


class Sized(Kind):
    """A kind with a length or a count, from the field ``sized_by`` or from a ``prefix`` (its size in bytes or kind)."""

    sized_by: str | None
    prefix: "Prefixed"
    count_word: ClassVar[str] = "length"

    @property
    def prefix_kind(self) -> "Number | None":
        """The kind of a prefix that is not given by its size."""
        return None if self.prefix is None or isinstance(self.prefix, int) else self.prefix(prefix_name(self))

    @property
    def least_prefix(self) -> int:
        """The minimum size of the prefix in bytes, 0 without one."""
        return self.prefix if isinstance(self.prefix, int) else 0 if self.prefix is None else self.prefix("").size

    def read_size(self, pkt: Packet, s: Buffer) -> tuple[int | None, Buffer]:
        """The length or count (None without a source), and the bytes after its prefix. Raises Broken."""
        if isinstance(self.prefix, int):
            if len(s) < self.prefix:
                raise Broken(f"its {self.count_word} has {self.prefix} bytes, {len(s)} are left")
            return int.from_bytes(s[: self.prefix], "big"), s[self.prefix :]
        if (kind := self.prefix_kind) is not None:
            s, n = kind.getfield(pkt, s)
        elif self.sized_by is not None:
            n = pkt.getfieldval(self.sized_by)
        else:
            return None, s
        if n < 0:
            raise Broken(f"{self.sized_by or 'the ' + self.count_word}, which measures it, is {{}}", n)
        return n, s

    def with_prefix(self, pkt: Packet, n: int, body: bytes) -> bytes:
        """The bytes after their prefix: the length or count that was set, by default the right one."""
        if self.prefix is None:
            return body
        # An item of a list is no field of the message, whatever it is called.
        is_field = self.name in pkt.fieldtype and bare(pkt.fieldtype[self.name]) is self
        given = pkt.fields.get(prefix_name(self)) if is_field else None
        kind = self.prefix_kind
        if isinstance(self.prefix, int) or kind is None:
            return int(n if given is None else given).to_bytes(cast(int, self.prefix), "big") + body
        return kind.encode(kind.within(n) if given is None else int(given)) + body

    def measure(self, pkt: Packet) -> int:
        """The right value of the field that ``sized_by`` names."""
        raise NotImplementedError


def sized_field(pkt: Packet, name: str) -> Any:
    """The field whose length or count the field ``name`` holds, None if there is none."""
    return next((f for f in pkt.fields_desc if getattr(bare(f), "sized_by", None) == name), None)


@dataclass(eq=False, repr=False)
class Number(Kind):
    """An integer of ``size`` bytes, in network order unless ``little``.

    ``equals``, ``at_least``, ``at_most`` and ``among`` (any of these values) are part of the layout: another value is
    no such message.
    A number that another field names as its length or count is computed if it is not set. A value that was set is built
    unchanged, even if the message can then not be read.
    """

    size: ClassVar[int] = 0
    signed: ClassVar[bool] = False
    little: ClassVar[bool] = False
    truth: ClassVar[bool] = False

    _: KW_ONLY
    equals: int | None = None
    at_least: int | None = None
    at_most: int | None = None
    among: Collection[int] | None = None

    def __post_init__(self) -> None:
        if self.equals is not None:
            self.default = self.at_least = self.at_most = self.equals
        super().__post_init__()
        self.sz = self.size

    def checks(self, value: int) -> None:
        """Raises Broken for a number out of its bounds."""
        if self.among is not None and value not in self.among:
            raise Broken("{} is none of its values", value)
        if (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most):
            return
        if self.equals is not None:
            raise Broken(f"it is {{}}, not {self.equals}", value)
        low, high = ("" if bound is None else bound for bound in (self.at_least, self.at_most))
        raise Broken(f"{{}} is not within {f'{low} to {high}'.strip()}", value)

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return self.numbers(pkt, x)

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        value, size = self.decode(s)
        self.checks(value)
        return s[size:], value

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        if value is None:
            measured = sized_field(pkt, self.name)
            value = 0 if measured is None else self.within(measured.measure(pkt))
        return self.encode(int(value))

    def within(self, value: int) -> int:
        """A number that was computed. Raises ValueError if it is out of the bounds."""
        low, high = self.value_range
        low, high = low if self.at_least is None else self.at_least, high if self.at_most is None else self.at_most
        if not low <= value <= high:
            raise ValueError(f"{self.name} is {value}, but goes from {low} to {high}")
        return value

    def decode(self, s: Buffer) -> tuple[int, int]:
        """The number at the start of the bytes, and its size. Raises Broken."""
        if len(s) < self.size:
            raise Broken(f"it has {self.size} bytes, {len(s)} are left")
        return int.from_bytes(s[: self.size], "little" if self.little else "big", signed=self.signed), self.size

    def encode(self, value: int) -> bytes:
        """The bytes of a number."""
        return value.to_bytes(self.size, "little" if self.little else "big", signed=self.signed)

    @property
    def value_range(self) -> tuple[int, int]:
        """The smallest and the largest number that its bytes can hold."""
        bits = 8 * self.size
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.signed else (0, (1 << bits) - 1)

    def draw(self) -> Any:
        if self.among is not None:
            return random.choice(list(self.among))
        low, high = self.value_range
        low = low if self.at_least is None else self.at_least
        high = high if self.at_most is None else self.at_most
        return random.choice((low, min(low + 1, high), high)) if _is_edge_case() else random.randint(low, high)


def _number(name: str, title: str, size: int, signed: bool = False, little: bool = False) -> type[Number]:
    """A class for integers of a size: the compiler knows the type of a column by it."""
    attributes = {"__doc__": title, "__module__": __name__, "size": size, "signed": signed, "little": little}
    return new_class(name, (Number,), exec_body=lambda body: body.update(attributes))


U8 = _number("U8", "An unsigned integer of one byte.", 1)
U16 = _number("U16", "An unsigned integer of two bytes.", 2)
U32 = _number("U32", "An unsigned integer of four bytes.", 4)
U64 = _number("U64", "An unsigned integer of eight bytes; its column is decimal(20,0), as the top bit may be used.", 8)
I32 = _number("I32", "A signed integer of four bytes.", 4, signed=True)
I64 = _number("I64", "A signed integer of eight bytes.", 8, signed=True)
U16LE = _number("U16LE", "An unsigned integer of two bytes, least significant first.", 2, little=True)
U32LE = _number("U32LE", "An unsigned integer of four bytes, least significant first.", 4, little=True)


class Untrue(int):
    """A byte of a ``Bool`` above 1: it counts as false, and is built as it is."""

    def __bool__(self) -> bool:
        return False


class Bool(Number):
    """One byte; exactly 1 is true."""

    size = 1
    truth = True

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return Untrue(x) if isinstance(x, int) and x not in (0, 1) else x

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        s, value = super().getfield(pkt, s)
        return s, value == 1 if value in (0, 1) else Untrue(value)

    def draw(self) -> Any:
        if self.equals is not None:
            return self.equals == 1
        return random.randint(0, 255) if _is_edge_case() else random.random() < 0.5


@dataclass(eq=False, repr=False)
class VarUint(Number):
    """An integer of up to ``at_most_bytes``, seven bits in each; the top bit of a byte says that another one follows.

    ``order``: which seven bits come first, the least (``little``) or the most significant.
    ``zigzag``: 0, 1, 2, 3 stand for 0, -1, 1, -2. ``shortest``: refuses more bytes than are needed.
    When built, it has as few bytes as possible.
    """

    size = 1

    _: KW_ONLY
    at_most_bytes: int = 4
    order: Literal["little", "big"] = "little"
    zigzag: bool = False
    shortest: bool = False

    @property
    def value_range(self) -> tuple[int, int]:
        """The smallest and the largest number that its bytes can hold."""
        high = (1 << min(7 * self.at_most_bytes, 64)) - 1
        return (-(high >> 1) - 1, high >> 1) if self.zigzag else (0, high)

    def decode(self, s: Buffer) -> tuple[int, int]:
        size = next((i + 1 for i, byte in enumerate(s[: self.at_most_bytes]) if byte < 0x80), 0)
        if not size:
            if len(s) < self.at_most_bytes:
                raise Broken(f"it goes on, but has {len(s)} bytes")
            raise Broken(f"it goes on after {self.at_most_bytes} bytes")
        groups = [byte & 0x7F for byte in s[:size]]
        if self.order == "little":
            groups.reverse()
        if self.shortest and size > 1 and not groups[0]:
            raise Broken(f"it has {size} bytes, and needs fewer")
        value = 0
        for group in groups:
            value = value << 7 | group
        if value >> 64:
            raise Broken("it has more than 64 bits")
        return (value >> 1 ^ -(value & 1) if self.zigzag else value), size

    def encode(self, value: int) -> bytes:
        low, high = self.value_range
        if not low <= value <= high:
            raise ValueError(f"{self.name} is {value}, but goes from {low} to {high}")
        value = value << 1 ^ (-1 if value < 0 else 0) if self.zigzag else value
        groups = [value & 0x7F]
        while value := value >> 7:
            groups.append(value & 0x7F)
        if self.order == "big":
            groups.reverse()
        return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


Prefixed = int | Callable[[str], Number] | None
"""A prefix: its size in bytes, or the kind of its number, made by a name: ``VarUint``, ``U16LE``."""


class Length(Number):
    """The length of the message: minus ``less`` and plus ``plus``, the number of bytes after the header.

    ``kind`` makes its number from a name. A length of a variable size is the last field of its header.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: Callable[[str], Number] = U32,
        less: int = 0,
        plus: int = 0,
        at_most: int | None = None,
    ) -> None:
        self.kind = kind(name)
        for word in ("size", "signed", "little"):
            setattr(self, word, getattr(self.kind, word))
        super().__init__(name, at_least=max(less - plus, 0), at_most=at_most, column=None)
        self.less = less - plus

    @property
    def value_range(self) -> tuple[int, int]:
        """The smallest and the largest number that its bytes can hold."""
        return self.kind.value_range

    def decode(self, s: Buffer) -> tuple[int, int]:
        return self.kind.decode(s)

    def encode(self, value: int) -> bytes:
        return self.kind.encode(value)

    def put(self, header: bytes, start: int, body_size: int) -> bytes:
        """The header, with the length of a body at the offset of the length."""
        end = len(header) if isinstance(self.kind, VarUint) else start + self.size
        return header[:start] + self.encode(self.within(body_size + self.less)) + header[end:]


@dataclass(eq=False, repr=False)
class Bits(Kind):
    """Part of the integer ``of``: ``(of >> shift) & mask``.

    It has no bytes of its own; when built, it is part of ``of``.
    """

    default: None = field(default=None, init=False)
    _: KW_ONLY
    of: str
    mask: int
    shift: int = 0

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        number = pkt.getfieldval(self.of)  # None: it is absent
        return s, None if number is None else number >> self.shift & self.mask

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        return b""

    def into(self, number: int | None, value: Any) -> int | None:
        """The integer with these bits; None leaves it as it is."""
        if value is None:
            return number
        number = number or 0
        if not 0 <= value <= self.mask:
            raise ValueError(f"{self.name} is {value}, but goes from 0 to {self.mask}")
        return number & ~(self.mask << self.shift) | value << self.shift

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return self.numbers(pkt, x)


class Prefix(Kind):
    """The length or count before a field, to set it when building: None is the right value.

    Each field with a prefix has a Prefix field before it. It is not read and has no bytes of its own: the field after
    it writes them.
    """

    def __init__(self, field: Kind) -> None:
        super().__init__(prefix_name(field), None, column=None)
        self.of = field.name

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        return s, None

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        return b""

    def value_text(self, pkt: Packet | None, x: Any) -> str:
        if x is not None or pkt is None or pkt.getfieldval(self.of) is None:
            return repr(x)
        return repr(pkt.get_field(self.of).measure(pkt))


def prefix_name(of: Kind) -> str:
    """Name of the length or count before a field."""
    return f"{of.name.rstrip('_')}_{'count' if isinstance(of, Array) else 'len'}"


@dataclass(eq=False, repr=False)
class Span(Sized):
    """Bytes with a length: from the field ``length``, from a ``prefix`` (its size in bytes), or fixed (``size``).

    ``until`` is a delimiter byte that belongs to neither side. If it is missing, the span extends to the end of the
    region, and all later fields are absent. ``at_least`` and ``at_most`` bound the length. ``among``: values that it
    may have.
    """

    is_text: ClassVar[bool] = False

    default: bytes = b""
    _: KW_ONLY
    length: InitVar[str | None] = None
    prefix: Prefixed = None
    size: int | None = None
    until: int | None = None
    at_least: int | None = None
    at_most: int | None = None
    strict: bool = False
    printable: bool = False
    among: Collection[bytes] | None = None

    def __post_init__(self, length: str | None) -> None:
        super().__post_init__()
        if sum(x is not None for x in (length, self.prefix, self.size, self.until)) > 1:
            raise ProtocolError(f"{self.name} has two lengths; give one of length, prefix, size, until")
        self.sized_by = length

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return x.encode() if isinstance(x, str) else x

    def measure(self, pkt: Packet) -> int:
        return len(self.any2i(pkt, pkt.getfieldval(self.name)) or b"")

    def is_last(self, value: Any, left: int) -> bool:
        # Without the delimiter the span took all there was.
        return self.until is not None and value is not None and left == len(value)

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        value = self.any2i(pkt, value) or b""
        if self.size is not None:
            return cast(bytes, value[: self.size].ljust(self.size, b"\0"))
        if self.until is not None:
            following = pkt.fields_desc[[f.name for f in pkt.fields_desc].index(self.name) + 1 :]
            # Set and empty is not absent: the delimiter stood there.
            if any(pkt.fields.get(f.name, pkt.getfieldval(f.name) or None) is not None for f in following):
                return cast(bytes, value) + bytes([self.until])
        return self.with_prefix(pkt, len(value), value)

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        if self.until is not None:
            delimiter = re.search(re.escape(bytes([self.until])), s)
            value = bytes(s[: delimiter.start()] if delimiter else s)
            self._checks(value)
            return s[delimiter.end() if delimiter else len(s) :], value
        n, s = self.read_size(pkt, s)
        if n is None:
            n = len(s) if self.size is None else self.size
        if n > len(s):
            raise Broken(f"{{}} bytes are claimed, {len(s)} are left", n)
        value = bytes(s[:n])
        self._checks(value)
        return s[n:], value

    def _checks(self, value: bytes) -> None:
        n = len(value)
        if self.among is not None and value not in self.among:
            raise Broken("it is none of its values")
        if self.at_most is not None and n > self.at_most:
            raise Broken(f"{{}} bytes are more than the {self.at_most} there may be", n)
        if self.at_least is not None and n < self.at_least:
            raise Broken(f"{{}} bytes are fewer than the {self.at_least} there must be", n)
        if self.strict:
            try:
                value.decode()
            except UnicodeDecodeError:
                raise Broken("it is no UTF-8") from None
        if self.printable and any(c < 0x20 or c == 0x7F for c in value):
            raise Broken("it has a control character")

    def draw(self) -> Any:
        if self.among is not None:
            return random.choice(list(self.among))
        least = self.at_least or 0
        longest = max(least, MAX_DRAWN_BYTES if self.at_most is None else min(self.at_most, MAX_DRAWN_BYTES))
        n = random.choice((least, longest)) if _is_edge_case() else random.randint(least, min(longest, least + 12))
        value = self._bytes(n if self.size is None else self.size)
        return value if self.until is None else value.replace(bytes([self.until]), b"_")

    def _bytes(self, n: int) -> bytes:
        """``n`` random bytes; of text mostly printable ASCII, now and then others or, where allowed, no text."""
        if not self.is_text or (_is_edge_case() and not (self.strict or self.printable)):
            return random.randbytes(n)
        if _is_edge_case():
            return ("\u00fc" * (n // 2)).encode() + b"%" * (n % 2)
        return bytes(random.choices(range(0x20, 0x7F), k=n))


class Text(Span):
    """Text: UTF-8, undecodable bytes replaced in the tables.

    ``strict`` refuses what is not UTF-8, ``printable`` the control characters of ASCII.
    """

    is_text = True


class Bytes(Span):
    """Opaque bytes."""


class Address(Bytes):
    """An IPv4 address: four bytes, which people write as dotted text."""

    def __init__(self, name: str, **about: Any) -> None:
        super().__init__(name, bytes(4), size=4, **about)

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return IPv4Address(x).packed if isinstance(x, str) else x

    def value_text(self, pkt: Packet | None, x: Any) -> str:
        return str(IPv4Address(x)) if isinstance(x, bytes) and len(x) == self.size else repr(x)


class GreedyBytes(Bytes):
    """All remaining bytes of the region, maybe none."""


class GreedyText(Text):
    """All remaining bytes of the region, as text."""


class Inside(NamedTuple):
    """A part of a late kind, for ``explain``: ``length`` bytes from ``offset`` of the kind's bytes.

    depth: number of parts around it. named: its name is bytes of the message, so it may be a secret.
    """

    offset: int
    length: int
    depth: int
    name: str
    value: object
    meaning: str | None
    named: bool


Form = Literal["structure", "key", "text", "number"]
"""The form of a part: ``structure`` are the bytes of the format itself, which say nothing of a user."""


class InnerPart(NamedTuple):
    """A part of a late kind: ``length`` bytes from ``offset``; name: the column that has it."""

    offset: int
    length: int
    name: str = ""
    form: Form = "structure"


class Late(GreedyBytes):
    """Bytes in a format of the protocol; its ``derive`` makes columns of them.

    A protocol's package derives its kinds from Late; ``inside`` lists the parts that ``explain`` shows.
    """

    def inside(self, data: bytes) -> Iterator[Inside]:
        """The parts of the bytes."""
        return iter(())

    def inner_parts(self, data: bytes) -> Iterator[InnerPart]:
        """The parts; keys, texts and numbers may be replaced by others of their length."""
        yield InnerPart(0, len(data), self.name, "text")


Read = Callable[[Packet, Buffer], tuple[Buffer, Any]]
"""Reads an item of a list or the content of a region, for ``explain``: the remaining bytes, and the value."""


def _from_row(cls: "type[Message]", value: Any) -> Any:
    """A message for a value as the tables have it, a dict by columns; any other value as it is."""
    kinds = [bare(kind) for kind in cls.fields_desc]
    names = {kind.column: kind.name for kind in kinds} | {kind.name: kind.name for kind in kinds}
    return cls(**{str(names.get(name, name)): x for name, x in value.items()}) if isinstance(value, dict) else value


@dataclass(eq=False, repr=False)
class Array(Sized):
    """A list of ``item`` (a kind or a Message class).

    Its count comes from the field ``count`` or a ``prefix`` (its size in bytes). With ``until_zero`` (a size in bytes)
    the list ends at an integer that is zero, in place of an item. Without any of these the list fills the region.
    """

    count_word = "count"

    islist = 1
    default: list[Any] = field(default_factory=list, init=False)
    item: "Kind | type[Message]"
    _: KW_ONLY
    count: InitVar[str | None] = None
    prefix: Prefixed = None
    until_zero: int | None = None
    not_empty: bool = False

    def __post_init__(self, count: str | None) -> None:
        super().__post_init__()
        self.sized_by = count
        self.holds_packets = int(not isinstance(self.item, Kind))

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        if x is None:
            return None
        items = list(x) if isinstance(x, list | tuple) else [x]
        if isinstance(self.item, Kind):
            return [self.item.any2i(pkt, item) for item in items]
        return [_from_row(self.item, item) for item in items]

    def value_text(self, pkt: Packet | None, x: Any) -> str:
        item = self.item if isinstance(x, list) else None
        if isinstance(item, Address) or (isinstance(item, Kind) and secrets.may_hold(item)):
            return f"[{', '.join(item.i2repr(pkt, value) for value in x)}]"
        return repr(x)

    def measure(self, pkt: Packet) -> int:
        return len(pkt.getfieldval(self.name) or [])

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        items = [
            bytes(x) if isinstance(x, Packet) else cast(Kind, self.item).build_bytes(pkt, x) for x in (value or [])
        ]
        return self.with_prefix(pkt, len(items), b"".join(items) + bytes(self.until_zero or 0))

    def read_item(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        """Read one item: the bytes after it, and its value. Raises Broken."""
        if isinstance(self.item, Kind):
            return self.item.getfield(pkt, s)
        item, left = self.item.begin(memoryview(s))
        return left, item

    def getfield(self, pkt: Packet, s: Buffer, read: Read | None = None) -> tuple[Buffer, Any]:
        n, s = self.read_size(pkt, s)
        if n is not None and (n > len(s) // max(smallest(self.item), 1) or n > MAX_LIST_ITEMS):
            raise Broken(f"{{}} elements are claimed, {len(s)} bytes are left", n)
        items: list[Any] = []
        while n is None or len(items) < n:
            if n is None and (end := self._ending(s)) is not None:
                s = s[end:]
                break
            s, value = (read or self.read_item)(pkt, s)
            items.append(value)
        if self.not_empty and not items:
            raise Broken("the list is empty")
        return s, items

    def _ending(self, s: Buffer) -> int | None:
        """Number of bytes that end a list without a count, if it ends here; None if an item follows."""
        if self.until_zero is None:
            return None if s else 0
        if len(s) < self.until_zero:
            raise Broken("the list has no end")
        return None if any(s[: self.until_zero]) else self.until_zero

    def draw(self) -> Any:
        n = random.randint(1 if self.not_empty else 0, 3)
        if isinstance(self.item, Kind):
            kind = self.item
            return [kind.draw() for _ in range(n)]
        items = [self.item.random() for _ in range(n)]
        return [x for x in items if self.until_zero is None or any(bytes(x)[: self.until_zero])]


class Nested(Sized):
    """A region with a declared length whose bytes are one Message, read to the last of them."""

    at_least = None

    def __init__(
        self,
        name: str,
        message: "type[Message]",
        *,
        length: str | None = None,
        prefix: Prefixed = None,
        at_most: int | None = None,
    ) -> None:
        self.message = message
        super().__init__(name, message(), column=None)
        self.sized_by = length
        self.prefix = prefix
        self.at_most = at_most
        self.holds_packets = 1

    def measure(self, pkt: Packet) -> int:
        value = pkt.getfieldval(self.name)
        return len(b"" if value is None else bytes(value))

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        body = b"" if value is None else bytes(value)
        return self.with_prefix(pkt, len(body), body)

    def getfield(self, pkt: Packet, s: Buffer, read: Read | None = None) -> tuple[Buffer, Any]:
        n, s = self.read_size(pkt, s)
        n = len(s) if n is None else n
        if n > len(s) or (self.at_most is not None and n > self.at_most):
            raise Broken(f"{{}} bytes are claimed, {len(s)} are left", n)
        left, inner = (read or self._one)(pkt, s[:n])
        if left:
            raise Broken(f"{len(left)} of its bytes are left over")
        return s[n:], inner

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return _from_row(self.message, x)

    def _one(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        inner, left = self.message.begin(memoryview(s))
        return left, inner

    def draw(self) -> Any:
        return self.message.random()


Value = int | bytes | Collection[int]
"""The value of a condition: a number, a text, or several numbers."""


class If(Kind):
    """A field with a condition; if it does not hold, the value is None and the field has no bytes.

    ``when`` names an earlier field: with ``equals`` its value must be that, with ``unless`` it must not, with ``has``
    a bit of it must be set, alone it must not be zero. If that field is absent, no condition on it holds.
    ``when="header.qos"`` names a field of the header. ``kind`` may be an If, too: then both must hold.
    ``left``: minimum number of bytes left in the region. ``follows``: these bytes come next.
    When built, a field given a value sets its bit and one given None clears it. If the integer was given too, both are
    sent as given.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        when: str | None = None,
        equals: Value | None = None,
        unless: Value | None = None,
        has: int | None = None,
        left: int | None = None,
        follows: bytes | None = None,
    ) -> None:
        self.kind = kind
        default = (kind.default or None) if left is not None and not isinstance(kind, Nested) else None
        shared = {word: getattr(kind, word) for word in ("column", "secret", "body", "unit", "names", "words")}
        super().__init__(kind.name, default, **shared)
        self.when = when
        self.equals = equals
        self.unless = unless
        self.has = has
        self.left = left
        self.follows = follows

    def holds(self, pkt: Packet, s: Buffer) -> bool:
        """Whether the field is present, from the earlier fields and the remaining bytes ``s``."""
        return self._holds(pkt, s) and (not isinstance(self.kind, If) or self.kind.holds(pkt, s))

    def _holds(self, pkt: Packet, s: Buffer) -> bool:
        if self.left is not None:
            return len(s) >= self.left
        if self.follows is not None:
            return bytes(s[: len(self.follows)]) == self.follows
        value = pkt.getfieldval(cast(str, self.when))
        value = 0 if isinstance(value, Untrue) else value
        if self.has is not None:
            return bool((value or 0) & self.has)
        if self.equals is not None:
            return _is_among(value, self.equals)
        return bool(value) if self.unless is None else value is not None and not _is_among(value, self.unless)

    def into(self, number: int | None, value: Any) -> int | None:
        """The integer of ``when`` with the bit that says whether there is a value."""
        bit = self.has or 0
        if value is None:
            return None if number is None else number & ~bit
        return (number or 0) | bit

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return None if x is None else self.kind.any2i(pkt, x)

    def measure(self, pkt: Packet) -> int:
        """The length or count of the field inside, 0 when it is absent."""
        value = pkt.getfieldval(self.name)
        return 0 if value is None else int(self.kind.measure(pkt))  # spans and lists have it

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        if value is None and (self.left is not None or self.follows is not None):
            return b""
        is_explicit = value is not None and self.when in pkt.explicit_integers
        if self.when is not None and not self._holds(pkt, b"") and not is_explicit:
            return b""
        return self.kind.build_bytes(pkt, value)

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        return self.kind.getfield(pkt, s) if self._holds(pkt, s) else (s, None)

    def randval(self) -> Any:
        return None


def _is_among(value: object, wanted: Value) -> bool:
    return value == wanted if isinstance(wanted, int | bytes) else value in wanted


def Group(*kinds: Kind, **condition: Any) -> list[If]:
    """Several fields with one condition: ``*Group(Text("topic", prefix=2), Bytes("body", prefix=2), when="will")``."""
    return [If(kind, **condition) for kind in kinds]


class Never(Kind):
    """No bytes are right here: a message that comes to it is malformed."""

    def __init__(self, name: str) -> None:
        super().__init__(name, column=None)

    def getfield(self, pkt: Packet, s: Buffer) -> tuple[Buffer, Any]:
        raise Broken("no case fits")

    def build_bytes(self, pkt: Packet, value: Any) -> bytes:
        return b""


def Choice(name: str, *, by: str, of: Mapping[Any, Kind], otherwise: Kind | None = None) -> list[If]:
    """A field for each value of an earlier number or text: ``*Choice("value", by="id", of={1: U8("n"), (2, 3): ...})``.

    Each case is a field with a name and a column of its own. Without ``otherwise`` no other value of ``by`` may come.
    """
    default = Never(name) if otherwise is None else otherwise
    for value in of:
        default = If(default, when=by, unless=value)
    return [*(If(kind, when=by, equals=value) for value, kind in of.items()), cast(If, default)]


def smallest(item: "Kind | type[Message]") -> int:
    """Minimum size of an item in bytes; it bounds a count from the wire."""
    if isinstance(item, Number):
        return item.size
    if isinstance(item, Span):
        return item.least_prefix + max(item.size or 0, item.at_least or 0)
    if isinstance(item, Array):
        return item.least_prefix + (item.until_zero or 0)
    if isinstance(item, Nested):
        return item.least_prefix + (0 if item.sized_by else smallest(item.message))
    if isinstance(item, Kind):
        return 0
    total = 0
    for kind in item.fields_desc:
        if isinstance(kind, Span) and kind.until is not None:
            break  # without the delimiter all later fields are absent
        total += smallest(kind)
    return total


def is_variable(field: Kind) -> bool:
    """Whether a number has a variable size."""
    return isinstance(field, VarUint) or (isinstance(field, Length) and is_variable(field.kind))


def offset(cls: "type[Message]", name: str) -> int:
    """Offset of a field after fields of a fixed size."""
    names = [field.name for field in cls.fields_desc]
    return sum(map(smallest, cls.fields_desc[: names.index(name)]))


def bare(field: Kind) -> Kind:
    """The kind with its conditions taken off."""
    while isinstance(field, If):
        field = field.kind
    return field


def wire_fields(cls: "type[Message]") -> list[Kind]:
    """The fields of a class that take bytes, or bits of them, in wire order."""
    return [field for field in cls.fields_desc if not isinstance(field, Prefix)]


def flat_fields(cls: "type[Message]") -> Iterator[Kind]:
    """The kinds of a class in wire order, conditions taken off, nested messages left as they are."""
    return map(bare, wire_fields(cls))


def every_field(cls: "type[Message]") -> Iterator[Kind]:
    """The kinds of a class, conditions taken off, with those in its lists and nested messages."""
    for kind in flat_fields(cls):
        yield kind
        if isinstance(kind, Nested):
            yield from every_field(kind.message)
        elif isinstance(kind, Array):
            yield from [cast(Kind, kind.item)] if isinstance(kind.item, Kind) else every_field(kind.item)
