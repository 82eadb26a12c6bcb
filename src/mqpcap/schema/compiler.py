"""The compiler: Scapy classes in, plain data out.

:func:`compile` reads the classes of a :class:`~mqpcap.schema.protocol.MessageQueue` and gives a :class:`Program`: rows of
int32 words, a pool of constants and a list of columns. It accepts a kind by its exact type and refuses
anything else at import, naming the field.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.decode import bytecode as ip
from mqpcap.errors import ProtocolError
from mqpcap.schema import fields as wire
from mqpcap.schema.protocol import MessageQueue, Variant

NUMBERS: dict[type, pa.DataType] = {
    wire.U8: pa.int32(),
    wire.U16: pa.int32(),
    wire.U32: pa.int64(),
    wire.U64: pa.decimal128(20, 0),
    wire.I32: pa.int32(),
    wire.I64: pa.int64(),
    wire.U16LE: pa.int32(),
    wire.U32LE: pa.int64(),
    wire.Bool: pa.bool_(),
    wire.Length: pa.int64(),
}
SPANS: dict[type, pa.DataType] = {
    wire.Text: pa.string(),
    wire.GreedyText: pa.string(),
    wire.Bytes: pa.binary(),
    wire.Address: pa.binary(),
    wire.GreedyBytes: pa.binary(),
    wire.Tree: pa.binary(),
    wire.Json: pa.binary(),
}
MIN_I64, MAX_I64 = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a protocol: where its values land on the tape and what they become.

    ``parent`` is the list column whose elements it describes, -1 for a column of the table.
    ``kind`` is ``number``, ``span`` or ``list``; a list of plain values has one child named ``item``.
    """

    name: str
    kind: str
    type: pa.DataType | None
    parent: int
    secret: bool
    body: bool
    unit: str | None
    names: tuple[tuple[int, str], ...]
    hidden: bool


@dataclass(frozen=True, slots=True)
class CompiledLayout:
    """A layout as the interpreter takes it; ``table`` holds (op, first alternative, count) triples."""

    name: str
    direction: str
    header_pc: int
    op_reg: int
    table: NDArray[np.int64]
    packed_at: int
    packed_mask: int
    self_delimiting: bool
    header_len: int


@dataclass(frozen=True, slots=True)
class Program:
    """Plain data: what the interpreter runs, and what its tape means."""

    name: str
    ops: NDArray[np.int32]
    consts: NDArray[np.int64]
    register_count: int
    columns: tuple[Column, ...]
    lists: tuple[int, ...]
    """Column index of each list counter."""
    layouts: tuple[CompiledLayout, ...]
    alt_pc: NDArray[np.int32]
    alt_extra: NDArray[np.int32]
    alt_dialect: tuple[str | None, ...]
    alt_class: tuple[str, ...]

    def interpreter(self) -> ip.Interpreter:
        """A fresh interpreter bound to this program."""
        room = max(len(self.lists), 1)
        return ip.Interpreter(  # type: ignore[no-untyped-call]  # a compiled class; its attributes are its types
            memoryview(self.ops),
            memoryview(self.consts),
            memoryview(np.zeros(self.register_count + 2, np.int64)),
            memoryview(np.zeros(room, np.int64)),
            memoryview(np.zeros(room, np.int64)),
        )

    def target(self, layout: str, starts: memoryview, ends: memoryview, ops: memoryview) -> ip.Target:
        """A layout for scans that put starts, ends and operations of messages (int64) there."""
        words = next(x for x in self.layouts if x.name == layout)
        return ip.Target(
            words.header_pc, words.op_reg, memoryview(words.table), memoryview(self.alt_pc), starts, ends, ops
        )


@dataclass(slots=True)
class _Compiler:
    protocol: MessageQueue
    ops: list[list[int]] = field(default_factory=list)
    consts: list[int] = field(default_factory=list)
    registers: int = 0
    columns: list[Column] = field(default_factory=list)
    index: dict[tuple[int, str], int] = field(default_factory=dict)
    lists: list[int] = field(default_factory=list)
    at: str = ""

    def refuse(self, why: str) -> ProtocolError:
        return ProtocolError(f"{self.protocol.name}: {self.at}: {why}")

    def column(self, kind: wire.Kind, shape: str, type_: pa.DataType | None, parent: int, name: str | None) -> int:
        if name is None:
            return -1
        new = Column(
            name, shape, type_, parent, kind.secret, kind.body, kind.unit,
            tuple(sorted((kind.names or {}).items())), parent < 0 and name in self.protocol.hidden,
        )  # fmt: skip
        key = (parent, name)
        if key not in self.index:
            self.index[key] = len(self.columns)
            self.columns.append(new)
            return self.index[key]
        old = self.columns[self.index[key]]
        if (old.kind, old.type) != (new.kind, new.type):
            raise self.refuse(f"column {name} is {old.type} elsewhere and {new.type} here; give one of them column=")
        return self.index[key]

    def const(self, *values: int) -> int:
        self.consts.extend(v - (1 << 64) if v > MAX_I64 else v for v in values)
        return len(self.consts) - len(values)

    def emit(self, *words: int) -> int:
        self.ops.append([*words, *[0] * (ip.OP_WORDS - len(words))])
        return len(self.ops) - 1

    def message(self, cls: type, parent: int, registers: dict[str, int] | None = None) -> dict[str, int]:
        """The rows of a class without its END; returns where its fields' registers are."""
        registers = {} if registers is None else registers
        for f in cls.fields_desc:  # type: ignore[attr-defined]  # Message classes
            self.at = f"{cls.__name__}.{f.name}"
            self.check_name(f)
            if type(f) is wire.If:
                row = self.only(f, registers)
                self.kind(f.kind, parent, registers, f.kind.column)
                self.ops[row][ip.W_JUMP] = len(self.ops) * ip.OP_WORDS
            else:
                self.kind(f, parent, registers, f.column)
        return registers

    def check_name(self, f: object) -> None:
        name = getattr(f, "name", "")
        if not isinstance(f, wire.Kind):
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")
        if name in RESERVED:
            raise self.refuse(f"the name {name} is Scapy's or Python's; use {name}_")

    def register(self, registers: dict[str, int], name: str, size: int = 1) -> int:
        registers[name] = self.registers
        self.registers += size
        return registers[name]

    def of(self, registers: dict[str, int], name: str | None) -> int:
        if name is None or name not in registers:
            raise self.refuse(f"refers to {name}, which is not an earlier field")
        return registers[name]

    def only(self, f: wire.If, registers: dict[str, int]) -> int:
        if f.left is not None:
            return self.emit(ip.OP_ONLY, -1, -1, ip.IF_LEFT, 0, self.const(f.left))
        if f.follows is not None:
            value = int.from_bytes(f.follows, "big", signed=False)
            return self.emit(ip.OP_ONLY, -1, -1, ip.IF_FOLLOWS, len(f.follows), self.const(value))
        reg = self.of(registers, f.when)
        if f.has is not None:
            return self.emit(ip.OP_ONLY, -1, -1, ip.IF_HAS, reg, self.const(f.has))
        if isinstance(f.equals, bytes):
            return self.emit(ip.OP_ONLY, -1, -1, ip.IF_TEXT, reg, self.const(len(f.equals), *f.equals))
        if f.equals is not None:
            return self.emit(ip.OP_ONLY, -1, -1, ip.IF_EQUALS, reg, self.const(f.equals))
        return self.emit(ip.OP_ONLY, -1, -1, ip.IF_NOT_ZERO, reg, 0)

    def kind(self, f: wire.Kind, parent: int, registers: dict[str, int], name: str | None) -> None:
        if type(f) in NUMBERS:
            self.number(f, parent, registers, name)  # a Number, by exact type
        elif type(f) in SPANS:
            self.span(f, parent, registers, name)  # a Span, by exact type
        elif type(f) is wire.Bits:
            reg = self.register(registers, f.name)
            col = self.column(f, "number", pa.int32(), parent, name)
            self.emit(ip.OP_BITS, col, reg, self.of(registers, f.of), f.shift, f.mask)
        elif type(f) is wire.Array:
            self.many(f, parent, registers, name)
        elif type(f) is wire.Nested:
            self.part(f, parent, registers)
        else:
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")

    def number(self, f: wire.Number, parent: int, registers: dict[str, int], name: str | None) -> None:
        col = self.column(f, "number", NUMBERS[type(f)], parent, name)
        flags = ip.SIGNED * f.signed | ip.LITTLE * f.little | ip.TRUTH * f.truth
        low = high = -1
        if f.at_least is not None or f.at_most is not None:
            flags |= ip.CHECKED
            low = f.at_least if f.at_least is not None else (MIN_I64 if f.signed else 0)
            high = f.at_most if f.at_most is not None else MAX_I64
        less = 0
        if type(f) is wire.Length:
            flags |= ip.FRAME_LENGTH
            less = f.less
        reg = self.register(registers, f.name)
        self.emit(ip.OP_INT, col, reg, f.size, less, self.const(low, high) if flags & ip.CHECKED else -1, 0, flags)

    def measure(self, f: wire.Span | wire.Array | wire.Nested, registers: dict[str, int]) -> tuple[int, int]:
        """Words X and Y: how the length or count is learnt."""
        by = f.count if isinstance(f, wire.Array) else f.length
        if by is not None:
            return ip.BY_REGISTER, self.of(registers, by)
        if f.prefix is not None:
            return ip.BY_PREFIX, f.prefix
        if isinstance(f, wire.Span) and f.size is not None:
            return ip.BY_FIXED, f.size
        if isinstance(f, wire.Span) and f.until is not None:
            return ip.BY_UNTIL, f.until
        if isinstance(f, wire.Array) and f.until_zero is not None:
            return ip.BY_ZERO, f.until_zero
        return ip.BY_REST, 0

    def span(self, f: wire.Span, parent: int, registers: dict[str, int], name: str | None) -> None:
        col = self.column(f, "span", SPANS[type(f)], parent, name)
        x, y = self.measure(f, registers)
        flags = ip.UTF8 * f.strict | ip.PRINTABLE * f.printable | ip.LITTLE * f.little
        bounds = -1
        if f.at_least is not None or f.at_most is not None:
            flags |= ip.CHECKED
            bounds = self.const(f.at_least or 0, MAX_I64 if f.at_most is None else f.at_most)
        self.emit(ip.OP_SPAN, col, self.register(registers, f.name, 2), x, y, bounds, 0, flags)

    def many(self, f: wire.Array, parent: int, registers: dict[str, int], name: str | None) -> None:
        item = f.item
        if isinstance(item, wire.Array | wire.If | wire.Nested):
            raise self.refuse("an item must be a plain kind or a Message class")
        col = self.column(f, "list", None, parent, name)
        if col < 0:
            raise self.refuse("a list needs a column")
        if col not in self.lists:
            self.lists.append(col)
        x, y = self.measure(f, registers)
        flags = ip.LITTLE * f.little | (ip.CHECKED if f.not_empty else 0)
        row = self.emit(ip.OP_LIST, col, self.lists.index(col), x, y, wire.smallest(item), 0, flags)
        if isinstance(item, wire.Kind):
            self.kind(item, col, {}, "item")  # type: ignore[arg-type]  # to mypy, a Kind is Any
        else:
            self.message(item, col)
        self.emit(ip.OP_END)
        self.ops[row][ip.W_JUMP] = len(self.ops) * ip.OP_WORDS

    def part(self, f: wire.Nested, parent: int, registers: dict[str, int]) -> None:
        x, y = self.measure(f, registers)
        flags = 0 if f.at_most is None else ip.CHECKED
        bounds = -1 if f.at_most is None else self.const(0, f.at_most)
        row = self.emit(ip.OP_PART, -1, -1, x, y, bounds, 0, flags)
        self.message(f.message, parent)
        self.emit(ip.OP_END)
        self.ops[row][ip.W_JUMP] = len(self.ops) * ip.OP_WORDS


def _reserved() -> frozenset[str]:
    """Names that Scapy or Python own: a field called so would be silently shadowed (pkt.payload, pkt.time)."""
    import keyword

    return frozenset(dir(wire.Message)) | frozenset(keyword.kwlist)


RESERVED = _reserved()


def compile(protocol: MessageQueue) -> Program:
    """The Program of a protocol. Raises ProtocolError naming the field that breaks the vocabulary."""
    c = _Compiler(protocol)
    bodies: dict[type, int] = {}
    alt_pc: list[int] = []
    alt_extra: list[int] = []
    alt_dialect: list[str | None] = []
    alt_class: list[str] = []
    layouts: list[CompiledLayout] = []
    for layout in protocol.layouts:
        header_pc, op_reg, packed_at, header_len, delimited = -1, -1, -1, 0, False
        if layout.header is not None:
            header_pc = len(c.ops) * ip.OP_WORDS
            registers = c.message(layout.header, -1)
            c.emit(ip.OP_END)
            op_reg = registers[layout.op] if layout.op else -1
            for f in layout.header.fields_desc:  # type: ignore[attr-defined]  # a Message class
                if layout.packed and f.name == layout.packed[0]:
                    packed_at = header_len
                header_len += wire.smallest(f)
                delimited = delimited or type(f) is wire.Length
        extra = -1
        if layout.extra_column:
            extra = c.column(wire.GreedyBytes(layout.extra_column), "span", pa.binary(), -1, layout.extra_column)
        table: list[int] = []
        for op, readings in layout.bodies.items():
            table += [op, len(alt_pc), len(readings)]
            for reading in readings:
                r = reading if isinstance(reading, Variant) else Variant(reading)
                if r.message not in bodies:
                    bodies[r.message] = len(c.ops) * ip.OP_WORDS
                    c.message(r.message, -1)
                    c.emit(ip.OP_END)
                alt_pc.append(bodies[r.message])
                alt_extra.append(extra if layout.may_leave(r) else -1)
                alt_dialect.append(r.dialect)
                alt_class.append(r.message.__name__)
        layouts.append(
            CompiledLayout(
                layout.name, layout.direction, header_pc, op_reg, np.array(table, np.int64),
                packed_at, layout.packed[1] if layout.packed else 0, not delimited, header_len,
            )
        )  # fmt: skip
    ops: Sequence[int] = [word for row in c.ops for word in row]
    return Program(
        protocol.name, _words(ops), np.array(c.consts or [0], np.int64), c.registers, tuple(c.columns),
        tuple(c.lists), tuple(layouts), _words(alt_pc), _words(alt_extra), tuple(alt_dialect), tuple(alt_class),
    )  # fmt: skip


@cache
def compiled(protocol: MessageQueue) -> Program:
    """The protocol's Program, compiled once."""
    return compile(protocol)


def _words(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)
