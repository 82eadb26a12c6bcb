"""A message read field by field: where each stands, what it says, and why other readings do not fit.

The same classes that the interpreter is compiled from are walked here, slowly and with every offset kept. What
the walk says of a value comes from the kind's own ``gives``, so it is what a Scapy user gets. Fed by
``explain`` with the bytes of one message; bytes that fit nothing are an answer as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import cast

import numpy as np

from mqpcap.decode.columns import Reader, Spans
from mqpcap.schema import fields
from mqpcap.schema.compiler import compiled
from mqpcap.schema.gzip_body import MAX_INFLATED_BYTES, inflate
from mqpcap.schema.protocol import ANY, Direction, Layout, MessageQueue, Variant

MAX_ITEMS = 4096
"""Fields that one explanation lists; a list beyond it is cut, and says so."""
MAX_TREE_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Item:
    """A field: ``length`` bytes from ``offset`` of the message (of the inflated body, if ``inflated``).

    depth: how many lists and messages it is inside. meaning: the name of the number, what a length measures, or the
    unit. column: where the tables have it, None if nowhere.
    """

    offset: int
    length: int
    depth: int
    name: str
    value: object
    meaning: str | None = None
    column: str | None = None
    secret: bool = False
    body: bool = False
    inflated: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reading of the message: its items up to the end, or up to what did not fit (``why``).

    frame_len: bytes the message has by its own account, None where it does not say. operation: its name, or number.
    """

    layout: str
    direction: Direction
    header: str | None
    message: str | None
    dialect: str | None
    operation: str | None
    items: tuple[Item, ...]
    frame_len: int | None
    why: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the whole message was read."""
        return self.why is None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a protocol makes of bytes: the attempts, best first. ``left`` bytes follow the message."""

    protocol: str
    data: bytes
    attempts: tuple[Attempt, ...]

    @property
    def best(self) -> Attempt | None:
        """The reading to show, None if not even a header has its bytes."""
        return self.attempts[0] if self.attempts else None

    @property
    def left(self) -> int:
        """Bytes behind the end of the message as the best reading has it."""
        end = self.best.frame_len if self.best else None
        return 0 if end is None else max(len(self.data) - end, 0)


class _Misfit(Exception):
    """Why the walk stopped."""


def explanation(
    protocol: MessageQueue,
    data: bytes,
    direction: Direction | None = None,
    dialect: str | None = None,
    row: Mapping[str, object] | None = None,
) -> Explanation:
    """Every reading of one message's bytes, the best first.

    ``row`` is the message's row of the protocol's table: of several readings that fit, the one that gave it is the
    best. Without it the first that the interpreter would try is.

    >>> from mqpcap.protocols import protocols
    >>> found = explanation(protocols()["blipmq"], bytes.fromhex("0000000b01000000000000000100" "01"), "c2s")
    >>> [(i.offset, i.length, i.name, i.value) for i in found.best.items][-1]
    (13, 2, 'protocol_version', 1)
    """
    attempts = [
        attempt
        for layout in protocol.layouts
        if direction in (None, layout.direction) and layout.bodies
        for attempt in _attempts(protocol, layout, data)
        if dialect is None or attempt.dialect in (None, dialect)
    ]

    def rank(attempt: Attempt) -> tuple[bool, bool, int, bool, int]:
        differs = _differences(attempt, row) if row is not None else 0
        other = dialect is not None and attempt.dialect is None and not attempt.layout.endswith(f"_{dialect}")
        return not attempt.fits, attempt.message is None, differs, other, -_reach(attempt)

    return Explanation(protocol.name, data, tuple(_distinct(sorted(attempts, key=rank))))


def secret_spans(protocol: MessageQueue, data: bytes, best: Attempt | None) -> list[tuple[int, int]]:
    """(start, end) of what must not be shown of a message; its whole body where a secret's place in it is not known."""
    spans = []
    if best is not None and best.fits:
        for item in best.items:
            if item.secret and not item.inflated:
                spans.append((item.offset, item.offset + item.length))
            elif item.secret:
                spans.append((_header_len(best), len(data)))
        return spans
    if best is None:
        return []
    candidates = [layout for layout in protocol.layouts if layout.direction == best.direction]
    for layout in candidates:
        if any(_may_hold_secret(x) for x in _variants(layout, _operation_number(layout, data))):
            header = layout.header
            start = fields.smallest(header) if header is not None and issubclass(header, fields.Message) else 0
            spans.append((start, len(data)))
    return spans


def _header_len(attempt: Attempt) -> int:
    """Where a packed body begins: behind all that is not inflated."""
    return max((i.offset + i.length for i in attempt.items if not i.inflated), default=0)


def _may_hold_secret(cls: type) -> bool:
    for kind in fields.flat_fields(cls):
        if kind.secret:
            return True
        inner = getattr(kind, "message", None) or getattr(kind, "item", None)
        if isinstance(inner, type) and _may_hold_secret(inner):
            return True
    return False


def may_hold_secret(protocol: MessageQueue, direction: str, op: int | None) -> bool:
    """Whether a message of this operation has a field that must not be shown."""
    return any(
        _may_hold_secret(cls)
        for layout in protocol.layouts
        if layout.direction == direction
        for cls in _variants(layout, ANY if op is None else op)
    )


def _operation_number(layout: Layout, data: bytes) -> int:
    """The operation as the header's bytes say it, ANY if they do not."""
    if layout.header is None or layout.op is None:
        return ANY
    walk = _Walk(data, 0, False)
    try:
        walk.message(layout.header, 0)
    except _Misfit:
        return ANY
    value = walk.values.get(layout.op)
    return value if isinstance(value, int) else ANY


def _variants(layout: Layout, op: int) -> list[type]:
    variants: Sequence[Variant | type] = layout.bodies.get(op, layout.bodies.get(ANY, ()))
    return [x if isinstance(x, type) else x.message for x in variants]


def _distinct(attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    """Attempts that differ in more than the name of their layout."""
    seen: set[tuple[object, ...]] = set()
    for attempt in attempts:
        key = attempt.direction, attempt.header, attempt.message, attempt.dialect, attempt.why
        if key not in seen:
            seen.add(key)
            yield attempt


def _reach(attempt: Attempt) -> int:
    return max((i.offset + i.length for i in attempt.items if not i.inflated), default=0)


def _differences(attempt: Attempt, row: Mapping[str, object]) -> int:
    """How many columns of the row the attempt contradicts."""
    shown = {i.column: i.value for i in attempt.items if i.column is not None and i.depth == 0 and not i.secret}
    return sum(
        column in shown and _plain(shown[column]) != _plain(value)
        for column, value in row.items()
        if value is not None and not isinstance(value, list | tuple)
    ) + sum(
        column not in shown for column, value in row.items() if value is not None and column in _columns_of(attempt)
    )


def _columns_of(attempt: Attempt) -> frozenset[str]:
    return frozenset(i.column for i in attempt.items if i.column is not None and not i.secret)


def _title(cls: type) -> str:
    return str(cls().name)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return int(value) if isinstance(value, Decimal | bool) else value


def _attempts(protocol: MessageQueue, layout: Layout, data: bytes) -> Iterator[Attempt]:
    """What the readings of a layout make of a message."""
    header = None if layout.header is None else _title(layout.header)
    walk = _Walk(data, 0, False)
    nothing = Attempt(layout.name, layout.direction, header, None, layout.dialect, None, (), None)
    op, frame_len, body_end = ANY, None, len(data)
    if layout.header is not None:
        try:
            walk.message(layout.header, 0)
        except _Misfit as misfit:
            yield replace(nothing, items=tuple(walk.items), why=str(misfit))
            return
        value = walk.values.get(layout.op or "")
        op = value if isinstance(value, int) else ANY
        frame_len = _frame_len(layout.header, walk)
        body_end = len(data) if frame_len is None else min(frame_len, len(data))
    operation = layout.names.get(op) or (None if op == ANY else f"operation {op}")
    begun = replace(nothing, operation=operation, items=tuple(walk.items), frame_len=frame_len)
    variants: Sequence[Variant | type] = layout.bodies.get(op, layout.bodies.get(ANY, ()))
    if not variants:
        yield replace(begun, why=f"the layout has no operation {op}")
    for variant in variants:
        cls, dialect = (variant, None) if isinstance(variant, type) else (variant.message, variant.dialect)
        attempt = replace(begun, message=_title(cls), dialect=dialect or layout.dialect)
        if frame_len is not None and frame_len > len(data):
            attempt = replace(attempt, why=f"its length says {frame_len} bytes, {len(data)} are here")
        body = _Walk(data[:body_end], walk.at, False)
        packed = layout.packed is not None and int(str(walk.values[layout.packed[0]])) & layout.packed[1]
        if packed:
            inflated, too_long = inflate(data[walk.at : body_end])
            if inflated is None:
                what = f"grows beyond {MAX_INFLATED_BYTES} bytes" if too_long else "is no whole gzip stream"
                yield replace(attempt, why=f"the body {what}")
                continue
            body = _Walk(inflated, 0, True)
        try:
            body.message(cls, 0)
            body.ends(layout, variant)
        except _Misfit as misfit:
            yield replace(attempt, items=(*begun.items, *body.items), why=attempt.why or str(misfit))
            continue
        attempt = replace(attempt, items=(*begun.items, *body.items))
        if attempt.why is None and protocol.derive is not None and not _decodes(protocol, layout, op, data[:body_end]):
            attempt = replace(attempt, why="what is inside a field does not decode")
        yield attempt


def _decodes(protocol: MessageQueue, layout: Layout, op: int, data: bytes) -> bool:
    """Whether the engine, late kinds included, reads the message in this layout."""
    index = [x.name for x in compiled(protocol).layouts].index(layout.name)
    one = np.zeros(1, np.int64)
    spans = Spans(
        np.frombuffer(data, np.uint8).copy(), one, one + len(data), np.array([index], np.int32),
        np.array([op], np.int64), np.zeros(1, np.uint8),
    )  # fmt: skip
    return not Reader(protocol).records(spans).flaw[0]


def _frame_len(header: type, walk: "_Walk") -> int | None:
    for field in header.fields_desc:  # type: ignore[attr-defined]  # a Message class
        if isinstance(field, fields.Length):
            return walk.at + int(str(walk.values[field.name])) - field.less
    return None


class _Walk:
    """Reads a region from ``at`` on and keeps where everything was."""

    def __init__(self, data: bytes, at: int, inflated: bool) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.inflated = inflated
        self.items: list[Item] = []
        self.values: dict[str, object] = {}

    @property
    def region(self) -> bytes:
        """What is left of the region."""
        return self.data[self.at : self.end]

    def add(self, item: Item) -> None:
        if len(self.items) < MAX_ITEMS:
            self.items.append(replace(item, inflated=self.inflated))
        elif len(self.items) == MAX_ITEMS:
            rest = Item(
                item.offset, self.end - item.offset, 0, "", None, "more fields, not listed", inflated=self.inflated
            )
            self.items.append(rest)

    def message(self, cls: type, depth: int) -> object:
        """Walks the fields of a class; ``values`` are then those of the message."""
        pkt = cls()
        for field in cls.fields_desc:  # type: ignore[attr-defined]  # a Message class
            kind = field
            if isinstance(field, fields.If):
                if not field.holds(pkt, self.region):
                    pkt.fields[field.name] = None
                    continue
                kind = field.kind
            before = len(self.region)
            value = self.kind(kind, pkt, depth)
            pkt.fields[field.name] = value
            if getattr(kind, "until", None) is not None and isinstance(value, bytes) and before == len(value):
                break
        self.values = pkt.fields
        return pkt

    def kind(self, kind: fields.Kind, pkt: object, depth: int) -> object:
        if isinstance(kind, fields.Nested):
            return self.nested(kind, pkt, depth)
        if isinstance(kind, fields.Array):
            return self.array(kind, pkt, depth)
        return self.leaf(kind, pkt, depth)

    def leaf(self, kind: fields.Kind, pkt: object, depth: int) -> object:
        start = self.at
        try:
            left, value = kind.gives(pkt, self.region)
        except fields.Broken:
            raise _Misfit(f"{kind.name} at offset {start}: {_why(kind, pkt, self.region)}") from None
        taken = self.end - start - len(left)
        prefix = getattr(kind, "prefix", None) or 0
        if prefix:
            self.add(Item(start, prefix, depth, f"{kind.name} length", taken - prefix, f"bytes of {kind.name}"))
        # The byte that ends a span belongs to it here.
        self.add(
            Item(
                start + prefix,
                taken - prefix,
                depth,
                kind.name,
                value,
                _meaning(kind, pkt, value),
                kind.column,
                kind.secret,
                kind.body,
            )
        )
        self.at = start + taken
        if isinstance(kind, fields.Tree):
            self.tree(start + prefix, self.at, depth + 1)
        return value

    def nested(self, kind: fields.Nested, pkt: object, depth: int) -> object:
        start, outer_end, outer_values = self.at, self.end, self.values
        length = self.length_of(kind, pkt, depth)
        if length > self.end - self.at or (kind.at_most is not None and length > kind.at_most):
            raise _Misfit(f"{kind.name} at offset {start}: {length} bytes are claimed, {self.end - self.at} are left")
        self.end = self.at + length
        self.add(Item(self.at, length, depth, kind.name, None, f"{length} bytes"))
        inner = self.message(kind.message, depth + 1)
        if self.at != self.end:
            raise _Misfit(f"{kind.name} at offset {start}: {self.end - self.at} of its bytes are left over")
        self.end, self.values = outer_end, outer_values
        return inner

    def length_of(self, kind: fields.Nested, pkt: object, depth: int) -> int:
        if kind.prefix is not None:
            n = self.prefix(kind.name, kind.prefix, "big", depth, "length", f"bytes of {kind.name}")
        elif kind.length is not None:
            n = int(pkt.fields[kind.length])  # type: ignore[attr-defined]  # a Message
        else:
            n = self.end - self.at
        return n

    def prefix(self, name: str, size: int, order: str, depth: int, word: str, meaning: str) -> int:
        if self.end - self.at < size:
            raise _Misfit(f"{name} at offset {self.at}: its {word} has {size} bytes, {self.end - self.at} are left")
        n = int.from_bytes(self.data[self.at : self.at + size], "little" if order == "little" else "big")
        self.add(Item(self.at, size, depth, f"{name} {word}", n, meaning))
        self.at += size
        return n

    def array(self, kind: fields.Array, pkt: object, depth: int) -> object:
        start = self.at
        count: int | None = None
        if kind.prefix is not None:
            order = "little" if kind.little else "big"
            count = self.prefix(kind.name, kind.prefix, order, depth, "count", f"elements of {kind.name}")
        elif kind.count is not None:
            count = int(pkt.fields[kind.count])  # type: ignore[attr-defined]  # a Message
        least = max(fields.smallest(kind.item), 1)
        if count is not None and (count > (self.end - self.at) // least or count > fields.MAX_LIST_ITEMS):
            raise _Misfit(
                f"{kind.name} at offset {start}: {count} elements are claimed, {self.end - self.at} bytes are left"
            )
        values: list[object] = []
        outer = self.values
        while count is None or len(values) < count:
            if count is None and kind.until_zero is None and self.at == self.end:
                break
            if kind.until_zero is not None:
                closing = self.region[: kind.until_zero]
                if len(closing) < kind.until_zero:
                    raise _Misfit(f"{kind.name} at offset {start}: the list has no end")
                if not any(closing):
                    self.add(Item(self.at, kind.until_zero, depth, f"{kind.name} end", 0, f"end of {kind.name}"))
                    self.at += kind.until_zero
                    break
            values.append(self.element(kind, pkt, len(values), depth))
        self.values = outer
        if kind.not_empty and not values:
            raise _Misfit(f"{kind.name} at offset {start}: the list is empty")
        return values

    def element(self, kind: fields.Array, pkt: object, index: int, depth: int) -> object:
        item = kind.item
        if isinstance(item, fields.Kind):
            known = len(self.items)
            value = self.kind(cast(fields.Kind, item), pkt, depth + 1)
            if len(self.items) > known:
                self.items[-1] = replace(self.items[-1], name=f"{kind.name}[{index}]")
            return value
        place = len(self.items)
        start = self.at
        value = self.message(item, depth + 1)
        if place < MAX_ITEMS:
            whole = Item(
                start,
                self.at - start,
                depth,
                f"{kind.name}[{index}]",
                None,
                f"{self.at - start} bytes",
                inflated=self.inflated,
            )
            self.items.insert(place, whole)
        return value

    def ends(self, layout: Layout, variant: Variant | type) -> None:
        """Takes what is behind the last field where the layout allows it; else nothing may be there."""
        left = self.end - self.at
        if not left:
            return
        if not layout.may_leave(variant):
            raise _Misfit(f"{left} bytes are left over at offset {self.at}")
        name = str(layout.extra_column)
        self.add(Item(self.at, left, 0, name, self.region, "bytes behind the last field", name))
        self.at = self.end

    def tree(self, start: int, end: int, depth: int) -> None:
        """The pairs of a typed tree; bytes that are none end the list, which the engine's verdict then explains."""
        for item in _pairs(self.data, start, end, depth):
            self.add(item)


def _why(kind: fields.Kind, pkt: object, left: bytes) -> str:
    """Why a kind cannot be read from what is left."""
    if isinstance(kind, fields.Number):
        if len(left) < kind.size:
            return f"it has {kind.size} bytes, {len(left)} are left"
        value = int.from_bytes(left[: kind.size], "little" if kind.little else "big", signed=kind.signed)
        if kind.equals is not None:
            return f"it is {value}, not {kind.equals}"
        bounds = f"{'' if kind.at_least is None else kind.at_least} to {'' if kind.at_most is None else kind.at_most}"
        return f"{value} is not within {bounds.strip()}"
    if isinstance(kind, fields.Span):
        if kind.prefix is not None and len(left) < kind.prefix:
            return f"its length has {kind.prefix} bytes, {len(left)} are left"
        n = len(left)
        if kind.prefix is not None:
            n = int.from_bytes(left[: kind.prefix], "little" if kind.little else "big")
        elif kind.length is not None:
            n = int(pkt.fields[kind.length])  # type: ignore[attr-defined]  # a Message
        elif kind.size is not None:
            n = kind.size
        here = len(left) - (kind.prefix or 0)
        if n > here:
            return f"{n} bytes are claimed, {here} are left"
        if kind.at_most is not None and n > kind.at_most:
            return f"{n} bytes are more than the {kind.at_most} there may be"
        if kind.at_least is not None and n < kind.at_least:
            return f"{n} bytes are fewer than the {kind.at_least} there must be"
        return "it is no UTF-8"
    return "it does not fit"


def _meaning(kind: fields.Kind, pkt: object, value: object) -> str | None:
    if kind.names is not None and isinstance(value, int):
        return kind.names.get(int(value))
    if isinstance(kind, fields.Bits):
        return f"bits {kind.mask << kind.shift:#x} of {kind.of}"
    if isinstance(kind, fields.Length):
        return f"bytes behind the header, and {kind.less}" if kind.less else "bytes behind the header"
    measured = fields._measured_by(pkt, kind.name) if isinstance(kind, fields.Number) else None
    if measured is not None:
        return f"{'elements' if hasattr(measured, 'count') else 'bytes'} of {measured.name}"
    return kind.unit


# The typed tree: pairs of a key behind its length, and an item: a byte of type and width of the length, the length,
# the data (msgq protocol notes; the engine's reader is ``msgq.tree``).
_TREE_TYPES = {1: "DATA", 2: "HASH", 3: "LIST", 4: "NULL", 5: "BOOL", 6: "INT", 7: "REAL", 8: "UTF8"}
_LENGTH_SIZES = {0x00: 4, 0x10: 2, 0x20: 1}
_HASH, _LIST, _NULL = 2, 3, 4


@dataclass(frozen=True, slots=True)
class _Head:
    """An item of a tree: its type, where its data begins and ends."""

    type: int
    start: int
    end: int


def _head(data: bytes, at: int, end: int) -> _Head | None:
    if at >= end:
        return None
    kind, size = data[at] & 0x0F, _LENGTH_SIZES.get(data[at] & 0x30)
    if kind == _NULL:
        return _Head(kind, at + 1, at + 1)
    if kind not in _TREE_TYPES or size is None or at + 1 + size > end:
        return None
    start = at + 1 + size
    length = int.from_bytes(data[at + 1 : start], "big")
    return _Head(kind, start, start + length) if start + length <= end else None


def _pairs(data: bytes, start: int, end: int, depth: int) -> Iterator[Item]:
    """The pairs between two places; stops where no pair is."""
    at = start
    while at < end:
        key_end = at + 1 + data[at]
        head = _head(data, key_end, end)
        if head is None:
            return
        name = data[at + 1 : key_end].decode("utf-8", "replace")
        yield Item(at, key_end - at, depth, "key", name)
        yield from _tree_item(data, key_end, head, depth, name)
        at = head.end


def _tree_item(data: bytes, at: int, head: _Head, depth: int, name: str) -> Iterator[Item]:
    word = _TREE_TYPES[head.type]
    if head.type not in (_HASH, _LIST) or depth > MAX_TREE_DEPTH:
        value = data[head.start : head.end] if head.type != _NULL else None
        yield Item(at, head.end - at, depth, name, value, word)
        return
    yield Item(at, head.end - at, depth, name, None, f"{word} of {head.end - head.start} bytes")
    if head.type == _HASH:
        yield from _pairs(data, head.start, head.end, depth + 1)
        return
    place, index = head.start, 0
    while (inner := _head(data, place, head.end)) is not None:
        yield from _tree_item(data, place, inner, depth + 1, f"[{index}]")
        place, index = inner.end, index + 1
