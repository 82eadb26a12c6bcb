"""A message read field by field: offsets, values, and why other variants do not fit.

``mqpcap explain`` gives it the bytes of one message. It walks the classes that the interpreter is compiled from,
slowly, and keeps every offset. Values, and why they do not fit, come from the kinds' own ``getfield``, so they are what
a Scapy user gets. Bytes that fit nothing get an answer too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

import numpy as np

from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.schema import fields, secrets
from mqpcap.schema.compiler import compiled
from mqpcap.schema.field_items import Attempt, FieldItem
from mqpcap.schema.gzip_body import MAX_INFLATED_BYTES, inflate
from mqpcap.schema.protocol import ANY, Direction, Layout, MessageQueue, Variant
from mqpcap.schema.secrets import SecretSpans

MAX_ITEMS = 4096
"""Fields that an explanation lists; an item for the remaining fields follows."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The attempts of a protocol to read bytes, best first."""

    protocol: str
    data: bytes
    attempts: tuple[Attempt, ...]

    @property
    def best(self) -> Attempt | None:
        """The attempt to show, None if no layout is of the direction and the dialect asked for."""
        return self.attempts[0] if self.attempts else None

    @property
    def left(self) -> int:
        """Bytes after the end of the message, by the best attempt."""
        end = self.best.frame_len if self.best else None
        return 0 if end is None else max(len(self.data) - end, 0)


class _Misfit(Exception):
    """Why the walk stopped; ``masked`` is the same without numbers that are bytes of the message."""

    def __init__(self, broken: fields.Broken, field: str = "", offset: int = 0) -> None:
        where = f"{field} at offset {offset}: " if field else ""
        super().__init__(where + broken.why.format(*broken.numbers))
        self.masked = where + secrets.masked_reason(broken)


def explanation(
    protocol: MessageQueue,
    data: bytes,
    direction: Direction | None = None,
    dialect: str | None = None,
    read_as: tuple[str, str] | None = None,
    inside: bool = True,
) -> Explanation:
    """Every attempt to read one message's bytes, the best first.

    ``read_as``: names of the layout and of the body's class that the engine read it as, the best of several that fit;
    without them it is the first that the interpreter tries. ``inside``: whether an attempt must also decode
    inside its fields, which takes most of the time.

    >>> from mqpcap.protocols import protocols
    >>> found = explanation(protocols()["blipmq"], bytes.fromhex("0000000b01000000000000000100" "01"), "c2s")
    >>> [(i.offset, i.length, i.name, i.value) for i in found.best.items][-1]
    (13, 2, 'protocol_version', 1)
    """
    attempts = [
        attempt
        for layout in protocol.layouts
        if direction in (None, layout.direction)
        for attempt in _attempts(protocol, layout, data, inside)
        if dialect is None or attempt.dialect in (None, dialect)
    ]

    def rank(attempt: Attempt) -> tuple[bool, bool, bool, bool, int]:
        differs = read_as is not None and (attempt.layout, attempt.variant) != read_as
        lacks_dialect = dialect is not None and attempt.dialect is None and not attempt.layout.endswith(f"_{dialect}")
        reach = max((i.offset + i.length for i in attempt.items if not i.inflated), default=0)
        return not attempt.fits, attempt.message is None, differs, lacks_dialect, -reach

    distinct: dict[tuple[object, ...], Attempt] = {}  # attempts may differ in the name of their layout alone
    for x in sorted(attempts, key=rank):
        distinct.setdefault((x.direction, x.header, x.message, x.dialect, x.why), x)
    return Explanation(protocol.name, data, tuple(distinct.values()))


def reading(protocol: MessageQueue, data: bytes, dialect: str, read_as: tuple[str, str]) -> Attempt | None:
    """The reading of a message that the engine chose: the best of `explanation`. None if it does not fit."""
    attempts = _attempts(protocol, protocol.layout(read_as[0]), data, False, read_as[1])
    fitting = (x for x in attempts if x.fits and x.variant == read_as[1] and x.dialect in (None, dialect))
    return next(fitting, None)


def secret_spans(protocol: MessageQueue, data: bytes, best: Attempt | None) -> SecretSpans:
    """Secret spans of a message, by all of its readings."""
    return secrets.secret_spans(protocol, best, lambda: explanation(protocol, data, inside=False).attempts)


def body_spans(protocol: MessageQueue, best: Attempt | None, kept: int) -> list[tuple[int, int]]:
    """The (start, end) spans of bodies after their first ``kept`` bytes.

    All after the header is one span if the message does not fit, or its bodies are inflated or not all listed.
    """
    bodies = [] if best is None else [item for item in best.items if item.body]
    if best is None or not best.fits or any(item.inflated or item.is_rest for item in bodies):
        header = None if best is None else protocol.layout(best.layout).header
        return [(0 if header is None else fields.smallest(header), secrets.NO_END)]
    return [(item.offset + kept, item.offset + item.length) for item in bodies if item.length > kept]


def _title(cls: type) -> str:
    return str(cls().name)


def _attempts(
    protocol: MessageQueue, layout: Layout, data: bytes, inside: bool, only: str | None = None
) -> Iterator[Attempt]:
    """An attempt for each variant of a layout, or for the variant of one class."""
    header = None if layout.header is None else _title(layout.header)
    walk = _Walk(data)
    values: dict[str, Any] = {}
    frame_len = None
    begun = Attempt(layout.name, layout.direction, header, None, layout.dialect, None, (), None)
    if layout.header is not None:
        try:
            values = walk.message(layout.header, 0)
        except _Misfit as misfit:
            yield _failed(begun, misfit, walk.items)
            return
        lengths = (x for x in fields.wire_fields(layout.header) if isinstance(x, fields.Length))
        frame_len = next((walk.offset + values[x.name] - x.less for x in lengths), None)
    op = values.get(layout.op or "", ANY)
    operation = layout.names.get(op) or (None if op == ANY else f"operation {op}")
    begun = replace(begun, operation=operation, items=tuple(walk.items), frame_len=frame_len)
    variants = layout.variants_of(op)
    if not variants:
        yield _failed(begun, f"the layout has no operation {op}")
    packed = layout.packed is not None and bool(values[layout.packed[0]] & layout.packed[1])
    for variant in [x for x in variants if only is None or x.message.__name__ == only]:
        dialect = variant.dialect or layout.dialect
        attempt = replace(begun, message=_title(variant.message), dialect=dialect, variant=variant.message.__name__)
        if frame_len is not None and frame_len > len(data):
            attempt = _failed(attempt, f"its length says {frame_len} bytes, {len(data)} are here")
        attempt = _with_body(protocol, layout, variant, attempt, data[:frame_len], walk.offset, packed, values)
        derives = inside and attempt.fits and protocol.derive is not None
        if derives and not _decodes(protocol, layout, op, data[:frame_len]):
            attempt = _failed(attempt, "what is inside a field does not decode")
        yield attempt


def _with_body(
    protocol: MessageQueue,
    layout: Layout,
    variant: Variant,
    begun: Attempt,
    frame: bytes,
    offset: int,
    packed: bool,
    values: Mapping[str, Any],
) -> Attempt:
    """The attempt with the body, which begins at an offset of the frame after a header, read by a variant."""
    header = None if layout.header is None else layout.header()
    if header is not None:
        header.fields.update(values)
    body = _Walk(frame, offset)
    if packed:
        inflated, too_long = inflate(frame[offset:])
        if inflated is None:
            reason = f"grows beyond {MAX_INFLATED_BYTES} bytes" if too_long else "is no whole gzip stream"
            return _failed(begun, f"the body {reason}")
        body = _Walk(inflated, inflated=True)
    try:
        body.message(variant.message, 0, header)
        body.ends(layout, variant)
    except _Misfit as misfit:
        return _failed(begun, misfit if begun.fits else None, body.items)
    items = (replace(x, secret=True) if secrets.is_secret_spare(protocol, x) else x for x in body.items)
    return replace(begun, items=(*begun.items, *items))


def _failed(attempt: Attempt, why: "_Misfit | str | None", items: Sequence[FieldItem] = ()) -> Attempt:
    """The attempt with further items, and why it failed, unless that is known."""
    attempt = replace(attempt, items=(*attempt.items, *items))
    return attempt if why is None else replace(attempt, why=str(why), masked_why=getattr(why, "masked", str(why)))


def _decodes(protocol: MessageQueue, layout: Layout, op: int, data: bytes) -> bool:
    """Whether the engine, late kinds included, reads the message in this layout."""
    index = [x.name for x in compiled(protocol).layouts].index(layout.name)
    zeros = np.zeros(1, np.int64)
    spans = Spans(
        np.frombuffer(data, np.uint8).copy(), zeros, zeros + len(data), np.array([index], np.int32),
        np.array([op], np.int64), np.zeros(1, np.uint8),
    )  # fmt: skip
    return not ColumnReader(protocol).records(spans).flaw[0]


class _Walk:
    """Reads the fields of a region, and lists them with their offsets."""

    def __init__(self, data: bytes, offset: int = 0, inflated: bool = False) -> None:
        self.data, self.offset, self.end, self.inflated = memoryview(data), offset, len(data), inflated
        self.items: list[FieldItem] = []
        self.is_cut = False

    @property
    def region(self) -> memoryview:
        """The unread part of the region, as a view: bytes would be copied for every field."""
        return self.data[self.offset : self.end]

    def add(self, item: FieldItem) -> None:
        """List a field; if the list is full, a single item stands for all further fields."""
        if len(self.items) < MAX_ITEMS:
            self.items.append(replace(item, inflated=True) if self.inflated else item)
            return
        if not self.is_cut:
            self.is_cut = True
            summary = FieldItem(item.offset, self.end - item.offset, 0, "", None, "more fields, not listed", body=True)
            self.items.append(replace(summary, inflated=self.inflated))
        if secrets.is_hidden(item):
            self.mask_unlisted()

    def mask_unlisted(self) -> None:
        """Mask all fields that are not listed: the positions of their secrets are not kept."""
        summary = self.items[-1]
        if not secrets.is_hidden(summary):
            self.items[-1] = replace(summary, length=len(self.data) - summary.offset, secret=True)

    def message(self, cls: type, depth: int, header: Any = None) -> dict[str, Any]:
        """Walk the fields of a class after its header; returns their values."""
        pkt = cls()
        pkt.underlayer = header
        for field in fields.wire_fields(cls):
            if isinstance(field, fields.If) and not field.holds(pkt, self.region):
                pkt.fields[field.name] = None
                continue
            kind = fields.bare(field)
            left = self.end - self.offset
            pkt.fields[field.name] = value = self.field(kind, pkt, depth)
            if kind.is_last(value, left):
                break
        return cast(dict[str, Any], pkt.fields)

    def field(self, kind: fields.Kind, pkt: object, depth: int) -> object:
        """Walk one field; returns its value. Raises _Misfit with the field's offset."""
        start = self.offset
        try:
            if self.is_cut:
                left, value = kind.getfield(pkt, self.region)
                self.offset = self.end - len(left)
                if secrets.may_hold(kind):
                    self.mask_unlisted()
                return value
            if isinstance(kind, fields.Nested):
                return self.nested(kind, pkt, depth)
            if isinstance(kind, fields.Array):
                return self.array(kind, pkt, depth)
            return self.leaf(kind, pkt, depth)
        except fields.Broken as broken:
            if isinstance(kind, fields.Sized) and self.offset == start and not self.is_cut:
                with suppress(fields.Broken):
                    self.size(kind, pkt, depth)  # the length is there, though its field is not
            raise _Misfit(broken, kind.name, start) from None

    def leaf(self, kind: fields.Kind, pkt: object, depth: int) -> object:
        left, value = kind.getfield(pkt, self.region)
        if value is None:
            return None  # bits of an absent integer
        end = self.end - len(left)
        if isinstance(kind, fields.Sized):
            self.size(kind, pkt, depth)
        start, self.offset = self.offset, end
        is_late = isinstance(kind, fields.Late)
        about = _meaning(kind, pkt, value), kind.column, kind.secret, kind.body or is_late  # bodies may be inside
        # The delimiter of a span belongs to it.
        self.add(FieldItem(start, end - start, depth, kind.name, value, *about, kind=kind))
        # The parts of a late kind; where they end too early the engine's verdict explains why.
        for part in kind.inside(bytes(self.data[start:end])) if isinstance(kind, fields.Late) else ():
            offset, inner = start + part.offset, depth + 1 + part.depth
            about_part = part.name, part.value, part.meaning
            self.add(FieldItem(offset, part.length, inner, *about_part, body=True, named=part.named))
        return value

    def size(self, kind: fields.Sized, pkt: object, depth: int) -> None:
        """The length or count in front of a field becomes an item. Raises Broken."""
        n, left = kind.read_size(pkt, self.region)
        if kind.prefix is not None:
            meaning, size = f"{_unit(kind)} of {kind.name}", self.end - len(left) - self.offset
            self.add(FieldItem(self.offset, size, depth, f"{kind.name} {kind.count_word}", n, meaning))
            self.offset = self.end - len(left)

    def nested(self, kind: fields.Nested, pkt: object, depth: int) -> object:
        region = self.region
        self.size(kind, pkt, depth)

        def read(_: object, s: fields.Buffer) -> tuple[fields.Buffer, object]:
            outer_end, self.end = self.end, self.offset + len(s)
            self.add(FieldItem(self.offset, len(s), depth, kind.name, None, f"{len(s)} bytes"))
            inner, left = self.message(kind.message, depth + 1), self.region
            self.end = outer_end
            return left, inner

        return kind.getfield(pkt, region, read)[1]

    def array(self, kind: fields.Array, pkt: object, depth: int) -> object:
        region, index = self.region, count()
        self.size(kind, pkt, depth)
        has_secret = secrets.may_hold(kind)

        def read(_: object, s: fields.Buffer) -> tuple[fields.Buffer, object]:
            if self.is_cut:
                if has_secret:
                    self.mask_unlisted()
                left, value = kind.read_item(pkt, s)
                self.offset = self.end - len(left)
                return left, value
            value = self.element(kind, pkt, next(index), depth)
            return self.region, value

        left, values = kind.getfield(pkt, region, read)
        ending = self.end - len(left) - self.offset
        if ending:
            self.add(FieldItem(self.offset, ending, depth, f"{kind.name} end", 0, f"end of {kind.name}"))
        self.offset += ending
        return values

    def element(self, kind: fields.Array, pkt: object, index: int, depth: int) -> object:
        item, name = kind.item, f"{kind.name}[{index}]"
        place, start = len(self.items), self.offset
        if isinstance(item, fields.Kind):
            value = self.field(cast(fields.Kind, item), pkt, depth + 1)
            if len(self.items) > place and not self.is_cut:
                self.items[-1] = replace(self.items[-1], name=name)
            return value
        value = self.message(item, depth + 1)
        if not self.is_cut:
            length = self.offset - start
            container = FieldItem(start, length, depth, name, None, f"{length} bytes", inflated=self.inflated)
            self.items.insert(place, container)
        return value

    def ends(self, layout: Layout, variant: Variant) -> None:
        """Lists the bytes after the last field if the layout allows them; else there may be none."""
        left = self.end - self.offset
        if not left:
            return
        if not layout.may_leave(variant):
            raise _Misfit(fields.Broken(f"{left} bytes are left over at offset {self.offset}"))
        name = str(layout.extra_column)
        self.add(FieldItem(self.offset, left, 0, name, bytes(self.region), "bytes after the last field", name))
        self.offset = self.end


def _meaning(kind: fields.Kind, pkt: object, value: object) -> str | None:
    if kind.names is not None and isinstance(value, int):
        return kind.names.get(int(value))
    if isinstance(kind, fields.Bits):
        return f"bits {kind.mask << kind.shift:#x} of {kind.of}"
    if isinstance(kind, fields.Length):
        word = "and" if kind.less > 0 else "but"
        return f"bytes after the header, {word} {abs(kind.less)}" if kind.less else "bytes after the header"
    measured = fields.sized_field(pkt, kind.name) if isinstance(kind, fields.Number) else None
    return kind.unit if measured is None else f"{_unit(fields.bare(measured))} of {measured.name}"


def _unit(kind: fields.Kind) -> str:
    return "elements" if isinstance(kind, fields.Array) else "bytes"
