"""The vocabulary: the closed set of field kinds a protocol is described with.

A layer writes Scapy ``Packet`` classes (subclasses of :class:`Message`) from these kinds and nothing
else. Each kind is a Scapy field, so the classes build, dissect and list like any layer; lengths,
counts and conditions are *names of fields*, so ``compiler`` can read the same classes and compile them
for the interpreter. Here stands, per kind, its Scapy behaviour and its strictness; its op and its Arrow
type stand in ``compiler``. Where captures are only read the same classes do without Scapy: see ``scapy_stub``.

Kinds: integers (``U8`` ... ``I64``, ``Bool``, ``Length``), ``Bits``, ``Text``, ``Bytes``, ``Address``, ``GreedyBytes``,
``Array``, ``If``, ``Nested``, and ``Late``, which only marks a span.
Alternatives and switches are tables of classes in ``protocol``.

Strict: a declared length that overruns, a nested message that is not read to its last byte, a value out of its
bounds makes the whole message fall back to ``Raw``. Nothing is shortened, nothing guessed.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from ipaddress import IPv4Address
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from mqpcap.errors import ProtocolError
from mqpcap.schema.gzip_body import deflate, inflate

if TYPE_CHECKING or "mqpcap.schema.scapy_stub" not in sys.modules:
    from scapy.config import conf
    from scapy.fields import Field
    from scapy.packet import Packet, bind_top_down
    from scapy.volatile import RandNum, VolatileValue
else:
    from mqpcap.schema.scapy_stub import Field, Packet, bind_top_down

    RandNum = VolatileValue = object

if TYPE_CHECKING:
    from mqpcap.schema.protocol import Layout, MessageQueue

MAX_LIST_ITEMS = 16_777_216
MAX_DRAWN_BYTES = 255
"""Of a value drawn by fuzz(): what the shortest length field can say."""
HOSTILE_SHARE = 4
"""One value in so many that fuzz() draws lies at an edge."""


class Broken(Exception):
    """The bytes do not fit the description; never leaves a Message."""


class Drawn(RandNum):
    """What fuzz() gives a field: a value that it draws anew for each build."""

    def __init__(self, kind: "Kind") -> None:
        self.kind = kind

    def _fix(self) -> Any:
        return self.kind.draw()

    def copy(self) -> "Drawn":
        """Itself: Scapy would copy a value drawn."""
        return self

    def __repr__(self) -> str:
        return f"<{self.kind.name} drawn>"


def _hostile() -> bool:
    return random.randrange(HOSTILE_SHARE) == 0


class Kind(Field[Any, Any]):
    """What all kinds share: the column's name and what is said about it.

    ``column`` is the name in the tables (the field's own without a trailing underscore), None for a field
    that is no column. ``secret`` and ``body`` say what --show-secrets and --bodies act on.
    """

    __slots__ = ["__dict__"]  # Scapy's metaclass gives fields no dict of their own

    def __init__(
        self,
        name: str,
        default: Any = None,
        *,
        column: str | None = "",
        secret: bool = False,
        body: bool = False,
        unit: str | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(name, default, "!B")
        self.column = name.rstrip("_") if column == "" else column
        self.secret = secret
        self.body = body
        self.unit = unit
        self.names = names

    def takes(self, pkt: Packet, value: Any) -> bytes:
        """The bytes of a value, for building."""
        raise NotImplementedError

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        """What is left of the region and the value read; raises Broken."""
        raise NotImplementedError

    def draw(self) -> Any:
        """A random value that fits, now and then one at an edge."""
        raise NotImplementedError

    def randval(self) -> Any:
        return Drawn(self)

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        return s + self.takes(pkt, val)

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        return self.gives(pkt, s)

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        if self.names is not None and x in self.names:
            return f"{self.names[x]} ({x})"
        return repr(x)

    def i2m(self, pkt: Packet | None, x: Any) -> Any:
        return x

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return x

    def i2h(self, pkt: Packet | None, x: Any) -> Any:
        return x

    def m2i(self, pkt: Packet | None, x: Any) -> Any:
        return x


def said_by(pkt: Packet, name: str) -> int:
    """The length or count that an earlier field says; raises Broken where that is absent, or negative."""
    n = pkt.fields[name]
    if n is None or n < 0:
        raise Broken
    return int(n)


def _measured_by(pkt: Packet, name: str) -> Any:
    """The field whose length or count the field ``name`` holds, None if there is none."""
    for field in pkt.fields_desc:
        kind = field.kind if isinstance(field, If) else field
        if getattr(kind, "length", None) == name or getattr(kind, "count", None) == name:
            return field
    return None


class Number(Kind):
    """An integer of ``size`` bytes, in network order unless ``little``.

    ``equals``, ``at_least`` and ``at_most`` are part of the layout: another value is no such message.
    A number that another field names as its length or count is computed when left out.
    Built, none may pass ``at_most``.
    """

    size: ClassVar[int] = 0
    signed: ClassVar[bool] = False
    little: ClassVar[bool] = False
    truth: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        default: int | None = None,
        *,
        equals: int | None = None,
        at_least: int | None = None,
        at_most: int | None = None,
        **about: Any,
    ) -> None:
        super().__init__(name, default if equals is None else equals, **about)
        self.sz = self.size
        self.at_least = equals if equals is not None else at_least
        self.at_most = equals if equals is not None else at_most
        self.equals = equals

    def checks(self, value: int) -> None:
        if (self.at_least is not None and value < self.at_least) or (self.at_most is not None and value > self.at_most):
            raise Broken

    def up_to(self, value: int) -> None:
        """Refuses to build what passes ``at_most``; another value than ``equals`` is one's own will."""
        if self.at_most is not None and self.equals is None and value > self.at_most:
            raise ValueError(f"{self.name} is {value}, but goes up to {self.at_most}")

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        if len(s) < self.size:
            raise Broken
        value = int.from_bytes(s[: self.size], "little" if self.little else "big", signed=self.signed)
        self.checks(value)
        return s[self.size :], value

    def takes(self, pkt: Packet, value: Any) -> bytes:
        if value is None:
            measured = _measured_by(pkt, self.name)
            value = 0 if measured is None else measured.measure(pkt)
        self.up_to(value)
        return int(value).to_bytes(self.size, "little" if self.little else "big", signed=self.signed)

    def draw(self) -> Any:
        bits = 8 * self.size
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if self.signed else (0, (1 << bits) - 1)
        low = low if self.at_least is None else self.at_least
        high = high if self.at_most is None else self.at_most
        return random.choice((low, min(low + 1, high), high)) if _hostile() else random.randint(low, high)


class U8(Number):
    """An unsigned integer of one byte."""

    size = 1


class U16(Number):
    """An unsigned integer of two bytes."""

    size = 2


class U32(Number):
    """An unsigned integer of four bytes."""

    size = 4


class U64(Number):
    """An unsigned integer of eight bytes; its column is decimal(20,0), as the top bit may be used."""

    size = 8


class I32(Number):
    """A signed integer of four bytes."""

    size = 4
    signed = True


class I64(Number):
    """A signed integer of eight bytes."""

    size = 8
    signed = True


class U16LE(Number):
    """An unsigned integer of two bytes, least significant first."""

    size = 2
    little = True


class U32LE(Number):
    """An unsigned integer of four bytes, least significant first."""

    size = 4
    little = True


class Bool(Number):
    """One byte; exactly 1 is true."""

    size = 1
    truth = True

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        s, value = super().gives(pkt, s)
        return s, value == 1

    def draw(self) -> Any:
        return random.random() < 0.5


class Length(U32):
    """Four bytes that say where the message ends: ``less`` subtracted, the bytes behind the header."""

    def __init__(self, name: str, *, less: int = 0, at_most: int | None = None) -> None:
        super().__init__(name, at_least=less, at_most=at_most, column=None)
        self.less = less


class Bits(Kind):
    """Part of the integer ``of``: ``(of >> shift) & mask``, absent where that is.

    Takes no bytes of its own; built, it goes into ``of``.
    """

    def __init__(self, name: str, *, of: str, mask: int, shift: int = 0, **about: Any) -> None:
        super().__init__(name, None, **about)
        self.of = of
        self.mask = mask
        self.shift = shift

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        number = pkt.fields[self.of]
        return s, None if number is None else number >> self.shift & self.mask

    def takes(self, pkt: Packet, value: Any) -> bytes:
        return b""

    def into(self, number: int | None, value: Any) -> int | None:
        """The integer with these bits; None leaves it as it is."""
        if value is None:
            return number
        number = number or 0
        if not 0 <= value <= self.mask:
            raise ValueError(f"{self.name} is {value}, but goes from 0 to {self.mask}")
        return number & ~(self.mask << self.shift) | value << self.shift

    def randval(self) -> Any:
        return None


class Span(Kind):
    """Bytes with a length: from the field ``length``, from a ``prefix`` of so many bytes, or ``size`` fixed.

    ``until`` ends the span at that byte, which belongs to neither side; where it does not come, the span
    goes to the end of the region and the fields behind it are absent. ``at_least`` and ``at_most`` bound the length;
    built, none may pass ``at_most``. What an absent field would measure does not fit.
    """

    is_text: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        default: bytes = b"",
        *,
        length: str | None = None,
        prefix: int | None = None,
        size: int | None = None,
        until: int | None = None,
        little: bool = False,
        at_least: int | None = None,
        at_most: int | None = None,
        strict: bool = False,
        printable: bool = False,
        **about: Any,
    ) -> None:
        super().__init__(name, default, **about)
        if sum(x is not None for x in (length, prefix, size, until)) > 1:
            raise ProtocolError(f"{name} has two lengths; give one of length, prefix, size, until")
        self.length = length
        self.prefix = prefix
        self.size = size
        self.until = until
        self.little = little
        self.at_least = at_least
        self.at_most = at_most
        self.strict = strict
        self.printable = printable
        self.rest = length is None and prefix is None and size is None and until is None

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        return x.encode() if isinstance(x, str) else x

    def measure(self, pkt: Packet) -> int:
        """The length that the field named by ``length`` must hold."""
        return len(self.any2i(pkt, pkt.getfieldval(self.name)) or b"")

    def takes(self, pkt: Packet, value: Any) -> bytes:
        value = self.any2i(pkt, value) or b""
        if self.at_most is not None and len(value) > self.at_most:
            raise ValueError(f"{self.name} has {len(value)} bytes, but at most {self.at_most} may be")
        if self.prefix is not None:
            return len(value).to_bytes(self.prefix, "little" if self.little else "big") + value
        if self.size is not None:
            return cast(bytes, value[: self.size].ljust(self.size, b"\0"))
        if self.until is not None:
            following = pkt.fields_desc[[f.name for f in pkt.fields_desc].index(self.name) + 1 :]
            # Set and empty is not absent: the delimiter stood there.
            if any(pkt.fields.get(f.name, pkt.getfieldval(f.name) or None) is not None for f in following):
                return cast(bytes, value) + bytes([self.until])
        return cast(bytes, value)

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        if self.until is not None:
            value, _, rest = s.partition(bytes([self.until]))
            self._checks(value)
            return rest, value
        if self.prefix is not None:
            if len(s) < self.prefix:
                raise Broken
            n = int.from_bytes(s[: self.prefix], "little" if self.little else "big")
            s = s[self.prefix :]
        elif self.length is not None:
            n = said_by(pkt, self.length)
        else:
            n = len(s) if self.size is None else self.size
        if n > len(s):
            raise Broken
        value = s[:n]
        self._checks(value)
        return s[n:], value

    def _checks(self, value: bytes) -> None:
        if self.at_least is not None and len(value) < self.at_least:
            raise Broken
        if self.at_most is not None and len(value) > self.at_most:
            raise Broken
        if self.strict:
            try:
                value.decode()
            except UnicodeDecodeError:
                raise Broken from None
        if self.printable and any(c < 0x20 or c == 0x7F for c in value):
            raise Broken

    def draw(self) -> Any:
        least = self.at_least or 0
        most = max(least, MAX_DRAWN_BYTES if self.at_most is None else min(self.at_most, MAX_DRAWN_BYTES))
        n = random.choice((least, most)) if _hostile() else random.randint(least, min(most, least + 12))
        value = self._bytes(n if self.size is None else self.size)
        return value if self.until is None else value.replace(bytes([self.until]), b"_")

    def _bytes(self, n: int) -> bytes:
        """So many random bytes: of text printable ones, at times not of ASCII, or if need not be, no text at all."""
        if not self.is_text or (_hostile() and not (self.strict or self.printable)):
            return random.randbytes(n)
        if _hostile():
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

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        return str(IPv4Address(x)) if isinstance(x, bytes) and len(x) == self.size else repr(x)


class GreedyBytes(Bytes):
    """What is left of the region, possibly nothing."""

    def __init__(self, name: str, default: bytes = b"", **about: Any) -> None:
        super().__init__(name, default, **about)


class GreedyText(Text):
    """What is left of the region, as text."""


class Inside(NamedTuple):
    """A part of a late kind's bytes for who explains them: ``length`` bytes from ``offset`` of its own.

    depth: how many parts it is inside. named: its name is bytes of the message.
    """

    offset: int
    length: int
    depth: int
    name: str
    value: object
    meaning: str | None
    named: bool


class Late(GreedyBytes):
    """Bytes with a form of their own, which the protocol's ``derive`` makes columns of.

    A protocol's package derives its kinds from this one and says there how they are shown.
    """

    def inside(self, data: bytes) -> Iterator[Inside]:
        """What the bytes consist of."""
        return iter(())


class Array(Kind):
    """A list of ``item`` (a kind or a Message class).

    Its count comes from the field ``count`` or a ``prefix`` of so many bytes; with ``until_zero`` the list ends
    at an integer of that many bytes that is zero and stands in place of an item; else it fills the region.
    """

    def __init__(
        self,
        name: str,
        item: "Kind | type[Message]",
        *,
        count: str | None = None,
        prefix: int | None = None,
        little: bool = False,
        until_zero: int | None = None,
        not_empty: bool = False,
        **about: Any,
    ) -> None:
        self.item = item  # first: Field.__init__ asks any2i
        super().__init__(name, [], **about)
        self.count = count
        self.prefix = prefix
        self.little = little
        self.until_zero = until_zero
        self.not_empty = not_empty
        self.islist = 1

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        if x is None:
            return None
        items = list(x) if isinstance(x, list | tuple) else [x]
        return [self.item.any2i(pkt, item) for item in items] if isinstance(self.item, Kind) else items

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        shown = isinstance(x, list) and isinstance(self.item, Address)
        return f"[{', '.join(self.item.i2repr(pkt, item) for item in x)}]" if shown else repr(x)

    def measure(self, pkt: Packet) -> int:
        """The count that the field named by ``count`` must hold."""
        return len(pkt.getfieldval(self.name) or [])

    def takes(self, pkt: Packet, value: Any) -> bytes:
        items = [bytes(x) if isinstance(x, Packet) else cast(Kind, self.item).takes(pkt, x) for x in (value or [])]
        body = b"".join(items)
        if self.prefix is not None:
            body = len(items).to_bytes(self.prefix, "little" if self.little else "big") + body
        if self.until_zero is not None:
            body += bytes(self.until_zero)
        return body

    def _one(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        if isinstance(self.item, Kind):
            return self.item.gives(pkt, s)
        item, left = self.item.begin(s)
        return left, item

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        n: int | None = None
        if self.prefix is not None:
            if len(s) < self.prefix:
                raise Broken
            n = int.from_bytes(s[: self.prefix], "little" if self.little else "big")
            s = s[self.prefix :]
        elif self.count is not None:
            n = said_by(pkt, self.count)
        if n is not None and (n > len(s) // max(smallest(self.item), 1) or n > MAX_LIST_ITEMS):
            raise Broken
        items: list[Any] = []
        while n is None or len(items) < n:
            if n is None and self.until_zero is None and not s:
                break
            if self.until_zero is not None:
                if len(s) < self.until_zero:
                    raise Broken
                if not any(s[: self.until_zero]):
                    s = s[self.until_zero :]
                    break
            s, value = self._one(pkt, s)
            items.append(value)
        if self.not_empty and not items:
            raise Broken
        return s, items

    def draw(self) -> Any:
        n = random.randint(1 if self.not_empty else 0, 3)
        if isinstance(self.item, Kind):
            kind = self.item
            return [kind.draw() for _ in range(n)]
        items = [self.item.random() for _ in range(n)]
        return [x for x in items if self.until_zero is None or any(bytes(x)[: self.until_zero])]


class Nested(Kind):
    """A region with a declared length whose bytes are one Message, read to the last of them."""

    def __init__(
        self,
        name: str,
        message: "type[Message]",
        *,
        length: str | None = None,
        prefix: int | None = None,
        at_most: int | None = None,
    ) -> None:
        super().__init__(name, message(), column=None)
        self.message = message
        self.length = length
        self.prefix = prefix
        self.at_most = at_most
        self.holds_packets = 1

    def measure(self, pkt: Packet) -> int:
        """The length that the field named by ``length`` must hold."""
        value = pkt.getfieldval(self.name)
        return len(b"" if value is None else bytes(value))

    def takes(self, pkt: Packet, value: Any) -> bytes:
        body = b"" if value is None else bytes(value)
        if self.at_most is not None and len(body) > self.at_most:
            raise ValueError(f"{self.name} has {len(body)} bytes, but at most {self.at_most} may be")
        return body if self.prefix is None else len(body).to_bytes(self.prefix, "big") + body

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        if self.prefix is not None:
            if len(s) < self.prefix:
                raise Broken
            n = int.from_bytes(s[: self.prefix], "big")
            s = s[self.prefix :]
        elif self.length is not None:
            n = said_by(pkt, self.length)
        else:
            n = len(s)
        if n > len(s) or (self.at_most is not None and n > self.at_most):
            raise Broken
        inner, left = self.message.begin(s[:n])
        if left:
            raise Broken
        return s[n:], inner

    def draw(self) -> Any:
        return self.message.random()


class If(Kind):
    """A field that is there only under a condition; otherwise its value is None and it takes no bytes.

    ``when`` names an earlier field: with ``equals`` (an integer or a text) its value must be that, with ``has``
    a bit of it must be set, alone it must not be zero; nothing holds of an absent one.
    ``left``: at least so many bytes of the region are left. ``follows``: these bytes come next.
    Built, a field that was given a value sets its bit, one given None clears it, unless the integer was given beside
    it: then both are sent as given.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        when: str | None = None,
        equals: int | bytes | None = None,
        has: int | None = None,
        left: int | None = None,
        follows: bytes | None = None,
    ) -> None:
        self.kind = kind
        default = kind.default or None if left is not None else None
        super().__init__(kind.name, default, column=kind.column, secret=kind.secret, body=kind.body)
        self.names = kind.names
        self.unit = kind.unit
        self.when = when
        self.equals = equals
        self.has = has
        self.left = left
        self.follows = follows

    def holds(self, pkt: Packet, s: bytes) -> bool:
        """Whether the field is there, from what was read before and the bytes ``s`` that are left."""
        if self.left is not None:
            return len(s) >= self.left
        if self.follows is not None:
            return s.startswith(self.follows)
        if self.has is not None:
            return bool((pkt.getfieldval(cast(str, self.when)) or 0) & self.has)
        value = pkt.fields[self.when] if self.when in pkt.fields else pkt.getfieldval(cast(str, self.when))
        return bool(value == self.equals) if self.equals is not None else bool(value)

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

    def takes(self, pkt: Packet, value: Any) -> bytes:
        if value is None and (self.left is not None or self.follows is not None):
            return b""
        told_otherwise = value is not None and self.when in pkt.as_given
        if self.when is not None and not self.holds(pkt, b"") and not told_otherwise:
            return b""
        return self.kind.takes(pkt, value)

    def gives(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        return self.kind.gives(pkt, s) if self.holds(pkt, s) else (s, None)

    def randval(self) -> Any:
        return None


def smallest(item: "Kind | type[Message]") -> int:
    """The fewest bytes an item of a list can take: what bounds a count from the wire."""
    if isinstance(item, Number):
        return item.size
    if isinstance(item, Span):
        return (item.prefix or 0) + (item.size or 0) + (item.at_least or 0)
    if isinstance(item, Array):
        return (item.prefix or 0) + (item.until_zero or 0)
    if isinstance(item, Nested):
        return (item.prefix or 0) + (0 if item.length else smallest(item.message))
    if isinstance(item, Kind):
        return 0
    total = 0
    for field in item.fields_desc:
        if isinstance(field, Span) and field.until is not None:
            break  # without the delimiter the fields behind it are absent
        total += smallest(field)
    return total


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


class Cut(NamedTuple):
    """A message in the payload of a TCP segment: its class and bytes, and how to read them."""

    message: "type[Message]"
    direction: str
    layout: str
    start: int
    end: int


def read_direction() -> str | None:
    """The direction that ``Message.read`` was told, None if it was not."""
    return _as.get()[0]


class Message(Packet):
    """Base of every layer class: reads wholly or not at all.

    Bytes that do not fit leave the fields unset and stand as ``Raw`` behind an empty message, as Scapy users
    expect of a broken layer; the flaw is then visible as ``Raw in packet``, be there bytes or not.
    """

    match_subclass = True  # packet[BlipMQPublish] also finds the newer form that derives from it

    layouts: "ClassVar[tuple[Layout, ...]]" = ()
    """The layouts whose messages begin with this class."""

    cuts: "ClassVar[Callable[[bytes, Packet], Sequence[Cut]] | None]" = None
    """Finds the messages in a TCP payload; set once the layers are bound to TCP (``mqpcap.scapy``)."""

    mq: Any = None
    """Where a session found the message (``session.Seen``), None for one from elsewhere."""

    _next_size = 0
    """Bytes of the messages behind this one, from when it was last built: no length of this one counts them."""

    _raw_behind = 0
    """Bytes of the packet behind its last message, where this is the last layer of it."""

    of_protocol: "ClassVar[MessageQueue | None]" = None
    """The protocol whose messages begin with this class."""

    front: "ClassVar[Callable[[type[Message], bytes, str], tuple[str | None, int]] | None]" = None
    """Finds the first message in a stream: its layout and end, (None, 0) while it goes on, end -1 if there is none. Set
    with ``cuts``."""

    announced: ClassVar[Mapping[str, int]] = {}
    """Fields of the header in front that say that this body follows, where the operation does not."""

    as_given: frozenset[str] = frozenset()
    """Integers given together with their parts: they are sent as given, whatever the parts say."""

    composed: "ClassVar[Mapping[str, Sequence[Bits | If]]]" = {}
    """The fields that are bits of an integer, or have one there that says whether they are."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        composed: dict[str, list[Bits | If]] = {}
        for field in cls.fields_desc:
            of = field.of if isinstance(field, Bits) else field.when if isinstance(field, If) and field.has else None
            if of is not None and any(f.name == of for f in cls.fields_desc):
                composed.setdefault(of, []).append(field)
        cls.composed = composed
        measured: set[str] = set()
        for field in cls.fields_desc:
            kind = field.kind if isinstance(field, If) else field
            measured.update(x for x in (getattr(kind, "length", None), getattr(kind, "count", None)) if x)
        for field in cls.fields_desc:
            kind = field.kind if isinstance(field, If) else field
            if isinstance(kind, Number) and kind.name in measured:
                kind.column = field.column = None
            elif isinstance(field, Number) and field.default is None and not isinstance(field, Length):
                field.default = False if field.truth else field.at_least or 0

    def __init__(self, *scapy: Any, **fields: Any) -> None:
        super().__init__(*scapy, **fields)
        if self.composed and fields:
            both = [of for of in self.composed if fields.get(of) is not None]
            self.__dict__["as_given"] = frozenset(
                of for of in both if any(part.name in fields for part in self.composed[of])
            )

    @classmethod
    def begin(cls, s: bytes) -> "tuple[Message, bytes]":
        """A message read from the front of ``s``, and the bytes behind it; raises Broken."""
        pkt = cls()
        left = pkt._read(s)
        return pkt, left

    @classmethod
    def random(cls) -> "Message":
        """A message with random fields, its lengths and counts left to be computed."""
        drawn = {f.name: f.randval() for f in cls.fields_desc if f.default is not None}
        return cls(**{name: value._fix() for name, value in drawn.items() if value is not None})

    def _read(self, s: bytes) -> bytes:
        whole = s
        for field in self.fields_desc:
            before = len(s)
            s, value = field.gives(self, s)
            self.fields[field.name] = value
            inner = field.kind if isinstance(field, If) else field
            if isinstance(inner, Span) and inner.until is not None and value is not None and before == len(value):
                break
        self.raw_packet_cache = whole[: len(whole) - len(s)]
        # As Packet does it: a list changed in place must make the cached bytes stale.
        self.raw_packet_cache_fields = {
            f.name: self._raw_packet_cache_field_value(f, self.fields[f.name], copy=True)
            for f in self.fields_desc
            if (f.islist or f.holds_packets) and self.fields.get(f.name) is not None
        }
        self.explicit = 1
        return s

    def getfieldval(self, attr: str) -> Any:
        """A field's value; of an integer made of others with what was given for those, and of its bits what it says."""
        return self._composed(attr, super().getfieldval(attr))

    def getfield_and_val(self, attr: str) -> tuple[Any, Any]:
        """The field and its value, as ``getfieldval`` has it: what attributes are."""
        field, value = super().getfield_and_val(attr)
        return field, self._composed(attr, value)

    def _composed(self, attr: str, value: Any) -> Any:
        if attr in self.as_given:
            return value
        if attr in self.composed:
            for part in self.composed[attr]:
                if part.name in self.fields:
                    value = part.into(value, self.fields[part.name])
        elif value is None:
            for of, parts in self.composed.items():
                for part in parts:
                    if part.name == attr and isinstance(part, Bits):
                        return self.getfieldval(of) >> part.shift & part.mask
        return value

    def setfieldval(self, attr: str, val: Any) -> None:
        """Set a field; one that others are bits of, or say whether they are there, takes theirs away."""
        if self.as_given:
            self.__dict__["as_given"] = frozenset()  # the last word counts
        for part in self.composed.get(attr, ()):
            if isinstance(part, Bits) or bool((val or 0) & (part.has or 0)) != (self.fields.get(part.name) is not None):
                self.fields.pop(part.name, None)
        super().setfieldval(attr, val)

    def copy(self) -> "Message":
        clone: Message = super().copy()
        # Scapy counts lists and parts as set where nobody set them; then fuzz() could not give them values.
        for kind in () if self.explicit else self.fields_desc:
            name = kind.name
            if (kind.islist or kind.holds_packets) and clone.fields.get(name, 0) == clone.default_fields.get(name):
                del clone.fields[name]
        clone.__dict__.update(self.__dict__)
        return clone

    def command(self) -> str:
        """An expression that builds the same bytes.

        What was not read is the bytes behind it; a body that came packed otherwise than we pack is its bytes.
        """
        if self.raw_packet_cache == b"" and not self.explicit:
            return cast(str, self.payload.command())
        came, packed = self.payload.__dict__.get("_packed", (b"", b"")) if self._is_packed() else (b"", b"")
        pay = self.do_build_payload() if packed else b""
        if not packed or not pay.startswith(packed) or deflate(came) == packed:
            return cast(str, super().command())
        head = f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._command())})"
        return f"{head}/{conf.raw_layer(pay).command()}"

    def _command(self, json: bool = False) -> list[tuple[str, Any]]:
        if not json:
            return cast("list[tuple[str, Any]]", super()._command())
        return [(f.name, _as_json(f, self.getfieldval(f.name))) for f in self.fields_desc]

    def clone_with(self, payload: Any = None, **fields: Any) -> "Message":
        """A message with these fields: each volatile value becomes one, so that lengths are right."""
        clone: Message = super().clone_with(payload, **{n: _fixed(self.get_field(n), x) for n, x in fields.items()})
        clone.__dict__.update(self.__dict__)
        return clone

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: read again, bytes alone would not say direction and layout."""
        drawn = [name for name, value in self.default_fields.items() if isinstance(value, Drawn)]
        state = {name: getattr(self, name) for name in _PICKLED}
        return type(self), (), (state, self.__dict__, drawn)

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Any], list[str]]) -> None:
        values, own, drawn = state
        self.__dict__.update(own)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if drawn:
            fresh = {name: self.get_field(name).randval() for name in drawn}
            object.__setattr__(self, "default_fields", {**type(self)().default_fields, **fresh})
        self.payload.add_underlayer(self)

    def dissect(self, s: bytes) -> None:
        cuts = Message.cuts
        if cuts is None or _as.get() != (None, None) or not hasattr(self.underlayer, "dport"):
            super().dissect(s)
            return
        first, *more = cuts(s, self.underlayer) or (Cut(type(self), "", "", 0, len(s)),)
        token = _as.set((first.direction or None, first.layout or None))
        try:
            super().dissect(s[: first.end])
        finally:
            _as.reset(token)
        for cut in more:
            self.add_payload(cut.message.read(s[cut.start : cut.end], cut.direction, cut.layout))
        behind = s[more[-1].end if more else first.end :]
        if behind:
            last = self.lastlayer()
            self.add_payload(conf.raw_layer(behind))
            if isinstance(last, Message):
                last.__dict__["_raw_behind"] = len(behind)

    def do_dissect(self, s: bytes) -> bytes:
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

        Without them the ports of an underlying TCP layer tell, else the first variant that fits is taken.
        """
        token = _as.set((direction, layout))
        try:
            return cls(raw)
        finally:
            _as.reset(token)

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: Mapping[str, Any], session: Mapping[str, Any]) -> "Message | None":
        """The first message of a stream, None while it goes on: what Scapy's ``StreamSocket(sock, BlipMQ)`` asks.

        A client's socket receives what the server sends; a server says otherwise with
        ``socket.streamsession["direction"] = "c2s"``. A frame that only its successor would end (kokaq says no length)
        ends where the bytes received so far do, if they are a whole one.
        """
        direction = session.get("direction", "s2c")
        if Message.front is None:
            return cls.read(data, direction) if data else None
        layout, end = Message.front(cls, data, direction)
        if end == 0:
            return None
        packet = cls.read(data[:end] if end > 0 else data, direction, layout)
        if 0 < end < len(data):
            packet.add_payload(conf.padding_layer(data[end:]))
        return packet

    def hashret(self) -> bytes:
        """The same for a request and its answer: what the rule's ties say, else one for all of a protocol."""
        protocol = self.of_protocol
        if protocol is None:
            return cast(bytes, super().hashret())
        return repr((protocol.name, self._ties())).encode()

    def answers(self, other: Packet) -> int:
        """Whether this is the server's answer to a message of the client.

        Of messages of a session its exchanges say it, else it may be by the protocol's rule.
        """
        if self.mq is not None and isinstance(other, Message) and other.mq is not None:
            told = self.mq.answers(other.mq)
            if told is not None:
                return int(told)
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
        return int(rule.fits(other.operation("c2s"), self.operation("s2c")) and self._ties() == other._ties())

    def _may_be(self, direction: str) -> bool:
        """Whether the message may be sent in a direction, by its header and body; one of no layout may be either."""
        said: dict[str, set[type]] = {}
        for layout in self.layouts:
            readings = (r for rs in layout.bodies.values() for r in rs)
            said.setdefault(layout.direction, set()).update(r if isinstance(r, type) else r.message for r in readings)
        body = type(self.payload)
        by_body = any(body in classes for classes in said.values())
        return not said or (body in said.get(direction, ()) if by_body else direction in said)

    def operation(self, direction: str) -> str | None:
        """The name of the operation, taken as sent in a direction; None without one."""
        for layout in self.layouts:
            if layout.direction == direction and layout.op is not None:
                return layout.names.get(self.getfieldval(layout.op))
        return None

    def column(self, name: str) -> Any:
        """The value of a column of the protocol's table in header or body, None if it is in neither."""
        layer: Packet = self
        while isinstance(layer, Message):
            for field in layer.fields_desc:
                if name in (field.column, field.name):
                    return layer.getfieldval(field.name)
            layer = layer.payload
        return None

    def _ties(self) -> tuple[Any, ...]:
        protocol = self.of_protocol
        rule = protocol.rule if protocol is not None else None
        if rule is None or rule.answers is not None:
            return ()
        ops = [layout.op for layout in self.layouts if layout.op is not None]
        return tuple(self.column(ops[0] if name == "op_code" and ops else name) for name in rule.tie)

    def _length(self) -> "tuple[Length, int] | None":
        """The field that says where the message ends, and its offset."""
        offset = 0
        for f in self.fields_desc:
            if isinstance(f, Length):
                return f, offset
            offset += smallest(f)
        return None

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        found = self._length()
        if found is None or found[0].name not in self.fields:
            return s, None
        n = self.fields[found[0].name] - found[0].less
        return s[:n], s[n:] or None

    def do_build(self) -> bytes:
        if self.explicit:
            return cast(bytes, super().do_build())
        one: Message = next(iter(self))
        built = one.do_build()
        self.__dict__["_next_size"] = one._next_size
        return built

    def do_build_payload(self) -> bytes:
        pay: bytes = super().do_build_payload()
        self.__dict__["_next_size"] = self._size_behind(pay)
        if not isinstance(self.payload, Message) or self.payload.of_protocol is not None or not self._is_packed():
            return pay
        own_size = len(pay) - self._next_size
        came, packed = self.payload.__dict__.get("_packed", (None, b""))
        own = pay[:own_size]
        return (packed if own == came else deflate(own)) + pay[own_size:]

    def _size_behind(self, pay: bytes) -> int:
        """How many of the bytes behind this layer, as just built, are not of its message."""
        if isinstance(self.payload, Message):
            return self.payload._next_size if self.payload.of_protocol is None else len(pay)
        following = self.payload.getlayer(Message, _subclass=True)
        if following is not None:
            return len(following.do_build())
        return self._raw_behind if pay else 0

    def _is_packed(self) -> bool:
        """Whether the header says that the body is gzip."""
        return any((self.getfieldval(x.packed[0]) or 0) & x.packed[1] for x in self.layouts if x.packed is not None)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        found = self._length()
        if found is not None and self.getfieldval(found[0].name) is None:
            at, length = found[1], len(pay) - self._next_size + found[0].less
            found[0].up_to(length)
            pkt = pkt[:at] + length.to_bytes(4, "big") + pkt[at + 4 :]
        return pkt + pay

    def _variants(self) -> "Iterator[tuple[Layout, type[Message], bool]]":
        """The classes that may read the body, in the order the interpreter tries them; which may leave bytes over."""
        direction, name = _as.get()
        if direction is None and isinstance(getattr(self.underlayer, "dport", None), int):
            ports = self.server_ports
            if self.underlayer.dport in ports or self.underlayer.sport in ports:
                direction = "c2s" if self.underlayer.dport in ports else "s2c"
        for layout in self.layouts:
            if (name and layout.name != name) or (direction and layout.direction != direction):
                continue
            op = self.fields.get(layout.op) if layout.op else -1
            for variant in layout.bodies.get(-1 if op is None else op, layout.bodies.get(-1, ())):
                yield layout, (variant if isinstance(variant, type) else variant.message), layout.may_leave(variant)

    server_ports: ClassVar[frozenset[int]] = frozenset()

    def _unpacked(self, layout: "Layout", s: bytes) -> bytes:
        if layout.packed is None or not self.fields[layout.packed[0]] & layout.packed[1]:
            return s
        inflated, _ = inflate(s)
        if inflated is None:
            raise Broken
        return inflated

    def do_dissect_payload(self, s: bytes) -> None:
        if not self.layouts:
            super().do_dissect_payload(s)
            return
        found = self._length()
        is_whole = bool(self.fields) and (found is None or len(s) >= self.fields[found[0].name] - found[0].less)
        for exact in (True, False) if is_whole else ():
            for layout, cls, may_leave in self._variants():
                if not exact and not may_leave:
                    continue
                try:
                    unpacked = self._unpacked(layout, s)
                    body, left = cls.begin(unpacked)
                except Broken:
                    continue
                if exact and left:
                    continue
                if left:
                    body.add_payload(conf.raw_layer(left))
                if unpacked is not s:
                    body.__dict__["_packed"] = unpacked, s  # unchanged, it is sent as it came
                self.add_payload(body)
                return
        # Even without bytes: that nothing reads the body must show.
        self.add_payload(conf.raw_layer(s))


def message_class(
    module: str, name: str, title: str, about: str, *fields: Kind, like: type[Message] = Message, **own: Any
) -> type[Message]:
    """A layer class without a class statement: its name, title, docstring and fields in wire order.

    For protocols with families of classes, so that each says only what is its own. ``like`` is the class it derives
    from, and has the fields of if none are given; who looks for that one in a packet finds it, too. ``own`` are further
    class attributes.

    >>> message_class(__name__, "Ping", "my ping", "Says hello.", U8("count"))().name
    'my ping'
    """
    own |= {"__doc__": about, "__module__": module, "name": title}
    if fields or like is Message:
        own["fields_desc"] = list(fields)
    return new_class(name, (like,), exec_body=lambda body: body.update(own))


def attach(layout: "Layout") -> None:
    """Tell the header class of a layout what may follow it, and the bodies which operation they are.

    A header that derives from another (with a narrower bound) tells that one too: it is what people use.
    """
    if layout.header is None:
        return
    for header in layout.header.__mro__[: layout.header.__mro__.index(Message)]:
        header.layouts = (*header.__dict__.get("layouts", ()), layout)  # type: ignore[attr-defined]  # a Message class
        fields = {f.name for f in cast("type[Message]", header).fields_desc}
        if layout.op is None:
            continue
        for op, variants in layout.bodies.items():
            for variant in variants:
                cls = cast("type[Message]", variant if isinstance(variant, type) else variant.message)
                announced = {layout.op: op} if op >= 0 else {}
                announced |= {k: v for k, v in cls.announced.items() if k in fields}
                if announced and header not in cls.__dict__.get("_overload_fields", {}):
                    bind_top_down(header, cls, **announced)  # Message classes


def adopt(protocol: "MessageQueue") -> None:
    """Tell the classes that messages of a protocol begin with, and those they derive from, whose they are."""
    for layout in protocol.layouts:
        readings = [r if isinstance(r, type) else r.message for rs in layout.bodies.values() for r in rs]
        for front in readings if layout.header is None else [layout.header]:
            for cls in front.__mro__[: front.__mro__.index(Message)]:
                cls.of_protocol = protocol  # type: ignore[attr-defined]  # a Message class


def bare(field: Kind) -> Kind:
    """The kind with its condition taken off."""
    return field.kind if isinstance(field, If) else field


def flat_fields(cls: type[Message]) -> Iterator[Kind]:
    """The kinds of a class in wire order, conditions taken off, nested messages left as they are."""
    return map(bare, cls.fields_desc)
