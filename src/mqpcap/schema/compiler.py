"""The compiler: the classes of a description to a Program, which is plain data.

:func:`compiled` reads the classes of a :class:`~mqpcap.schema.protocol.MessageQueue` and returns a :class:`Program`:
rows of int32 words, a pool of constants and a list of columns. ``decode.bytecode`` documents the words. The
compiler accepts a kind by its exact type. It refuses anything else at import, naming the field.
"""

import keyword
from collections.abc import Collection
from dataclasses import field, replace
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.decode import bytecode
from mqpcap.errors import ProtocolError
from mqpcap.records import dataclass
from mqpcap.schema import fields
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import Layout, MessageQueue
from mqpcap.schema.refusals import MAX_I64, columns_of, refusal, value_range

NUMBERS: dict[type, pa.DataType] = {
    fields.U8: pa.int32(),
    fields.U16: pa.int32(),
    fields.U32: pa.int64(),
    fields.U64: pa.decimal128(20, 0),
    fields.I32: pa.int32(),
    fields.I64: pa.int64(),
    fields.U16LE: pa.int32(),
    fields.U32LE: pa.int64(),
    fields.Bool: pa.bool_(),
    fields.Length: pa.int64(),
}
SPANS: dict[type, pa.DataType] = {
    fields.Text: pa.string(),
    fields.GreedyText: pa.string(),
    fields.Bytes: pa.binary(),
    fields.Address: pa.binary(),
    fields.GreedyBytes: pa.binary(),
}
MEASURES = {
    "prefix": bytecode.BY_PREFIX, "size": bytecode.BY_FIXED, "until": bytecode.BY_UNTIL, "until_zero": bytecode.BY_ZERO
}  # fmt: skip
MIN_I64 = -(1 << 63)
NO_ROOM = np.zeros((5, 0), np.int64)


@dataclass(frozen=True, slots=True)
class ProgramColumn:
    """A column of a protocol: where its values land on the tape and what they become.

    ``kind``: ``number``, ``span`` or ``list``; a list of plain values has a single child named ``item``.
    ``parent``: index of the list column whose elements it describes, -1 for a column of the table.
    ``names``: names of its numbers, by number.
    ``unit``: unit of its numbers.
    ``hidden``: only for ``derive``, not in the table.
    """

    name: str
    kind: str
    type: pa.DataType | None
    parent: int
    secret: bool
    body: bool
    names: tuple[tuple[int, str], ...]
    unit: str | None
    hidden: bool

    @property
    def name_column(self) -> str | None:
        """The column with the names of its numbers; None unless several of them have names."""
        has_names = self.parent < 0 and not self.hidden and len(self.names) > 1
        return f"{self.name}_name" if has_names else None


@dataclass(frozen=True, slots=True)
class CompiledLayout:
    """A layout as the interpreter takes it.

    ``header_pc``: first row of its header of ``header_len`` bytes, -1 without a header.
    ``op_reg``: register of the operation, -1 without an operation.
    ``table``: triples: operation (ANY: -1), first variant, count of variants.
    ``packed_at``: offset of the byte with a bit of ``packed_mask`` for gzip bodies, -1 if there are none.
    """

    name: str
    header_pc: int
    op_reg: int
    table: NDArray[np.int64]
    packed_at: int
    packed_mask: int
    header_len: int


@dataclass(frozen=True, slots=True)
class Program:
    """Code for the interpreter, and the meaning of its tape.

    ``ops``, ``consts``, ``register_count``: rows of int32 words, their int64 constants, and the number of registers.
    ``columns``, ``lists``: the column of a tape entry, and the column of each list counter.
    ``variant_*``: by variant its first row, the column of unread bytes (-1: none), its dialect and class name.
    """

    ops: NDArray[np.int32]
    consts: NDArray[np.int64]
    register_count: int
    columns: tuple[ProgramColumn, ...]
    lists: tuple[int, ...]
    layouts: tuple[CompiledLayout, ...]
    variant_pc: NDArray[np.int32]
    variant_extra: NDArray[np.int32]
    variant_dialect: tuple[str | None, ...]
    variant_class: tuple[str, ...]

    def scanner(self, layout: str, hits: NDArray[np.int64] = NO_ROOM) -> bytecode.Scanner:
        """Finds the messages of a layout and puts them into ``hits``: see ``bytecode.Scanner``."""
        words = next(x for x in self.layouts if x.name == layout)
        arguments = words, memoryview(self.variant_pc), memoryview(hits)
        return bytecode.Scanner(*self._bound(), *arguments)

    def decoder(self) -> bytecode.Decoder:
        """Reads the fields of messages."""
        variants = memoryview(self.variant_pc), memoryview(self.variant_extra)
        return bytecode.Decoder(*self._bound(), *variants)

    def only(self, names: Collection[str]) -> "Program":
        """A Program that writes only these columns of the table, with their elements, to the tape."""
        wanted: list[bool] = []
        for column in self.columns:
            wanted.append(column.name in names if column.parent < 0 else wanted[column.parent])
        ops = self.ops.reshape(-1, bytecode.OP_WORDS).copy()
        ops[np.isin(ops[:, bytecode.W_COL], np.flatnonzero(~np.array(wanted))), bytecode.W_COL] = -1
        return replace(self, ops=ops.reshape(-1))

    def _bound(self) -> tuple[memoryview, memoryview, memoryview, memoryview]:
        registers = np.zeros(self.register_count + 2, np.int64)
        lists = np.zeros(2 * len(self.lists), np.int64)
        return memoryview(self.ops), memoryview(self.consts), memoryview(registers), memoryview(lists)


_Registers = dict[str, tuple[int, bool]]
"""The register of each number, or (True) the first of two registers of a span: its start and its length."""


@dataclass(slots=True)
class _Compiler:
    """Builds a Program; ``field_name`` is the current field, for refusals."""

    protocol: MessageQueue
    ops: list[list[int]] = field(default_factory=list)
    consts: list[int] = field(default_factory=list)
    registers: int = 0
    columns: list[ProgramColumn] = field(default_factory=list)
    index: dict[tuple[int, str], int] = field(default_factory=dict)
    lists: list[int] = field(default_factory=list)
    bodies: dict[type, int] = field(default_factory=dict)
    """First row of each class."""
    variants: list[tuple[int, int, str | None, str]] = field(default_factory=list)
    field_name: str = ""
    in_header: bool = False

    def layout(self, layout: Layout) -> CompiledLayout:
        """The rows of a layout's header and of its variants."""
        header_pc = op_reg = packed_at = extra = -1
        if layout.header is not None:
            header_pc = len(self.ops) * bytecode.OP_WORDS
            self.in_header = True
            registers = self.message(layout.header, -1)
            self.in_header = False
            self.emit(bytecode.OP_END)
            self.check_header(layout)
            op_reg = registers[layout.op][0] if layout.op else -1
            packed_at = fields.offset(layout.header, layout.packed[0]) if layout.packed else -1
        if layout.extra_column:
            kind = fields.GreedyBytes(layout.extra_column)
            extra = self.column(kind, "span", pa.binary(), -1, layout.extra_column)
        table: list[int] = []
        for op, variants in layout.variants.items():
            table += [op, len(self.variants), len(variants)]
            for v in variants:
                may_leave = extra if layout.may_leave(v) else -1
                self.field_name = v.message.__name__
                if layout.header is not None and (both := columns_of(layout.header) & columns_of(v.message)):
                    raise self.refuse(f"the header has its column {min(both)}, too; give one of them column=")
                self.variants.append((self.body(v.message), may_leave, v.dialect, v.message.__name__))
        packed_mask = layout.packed[1] if layout.packed else 0
        return CompiledLayout(
            layout.name, header_pc, op_reg, np.array(table, np.int64), packed_at, packed_mask,
            fields.smallest(layout.header) if layout.header is not None else 0,
        )  # fmt: skip

    def check_derived(self) -> None:
        """A column that is masked is made of masked bytes: else a dump would print what the table masks."""
        for derived in self.protocol.derived:
            self.field_name = derived.name
            if derived.secret and (source := self.shown_source()) is not None:
                raise self.refuse(f"it is secret, but may be made of {source}, which is not; give that secret=True")

    def shown_source(self) -> str | None:
        """A field that only ``derive`` reads, and that is not secret."""
        for layout in self.protocol.layouts:
            for f in (f for cls in layout.messages() for f in fields.every_field(cls)):
                if (isinstance(f, fields.Late) or f.column in self.protocol.hidden) and not f.secret:
                    return f.name
        return None

    def check_header(self, layout: Layout) -> None:
        kinds: dict[str, fields.Kind] = {}
        assert layout.header is not None
        for f in layout.header.fields_desc:
            self.field_name = f"{layout.header.__name__}.{f.name}"
            if not isinstance(f, fields.Number | fields.Bits) and getattr(f, "size", None) is None:
                raise self.refuse("a header's fields have a fixed size; what has none goes into the bodies")
            kinds[f.name] = f
        low, high = value_range(kinds.get(layout.op or "")) or (-1, -1)
        if layout.op is not None and not low == 0 <= high <= MAX_I64:
            raise self.refuse(f"the operation {layout.op} is no unsigned number of the header of up to seven bytes")
        if layout.packed is not None and getattr(kinds.get(layout.packed[0]), "size", 0) != 1:
            raise self.refuse(f"packed names {layout.packed[0]}, which is no byte of the header")
        if sum(isinstance(f, fields.Length) for f in kinds.values()) > 1:
            raise self.refuse("a header has one Length")

    def body(self, cls: type) -> int:
        """First row of a body; a class of several layouts is compiled once."""
        if cls not in self.bodies:
            self.bodies[cls] = len(self.ops) * bytecode.OP_WORDS
            self.message(cls, -1)
            self.emit(bytecode.OP_END)
        return self.bodies[cls]

    def refuse(self, why: str) -> ProtocolError:
        return ProtocolError(f"{self.protocol.name}: {self.field_name}: {why}")

    def column(self, kind: fields.Kind, shape: str, type_: pa.DataType | None, parent: int, name: str | None) -> int:
        if name is None:
            return -1
        new = ProgramColumn(
            name, shape, type_, parent, kind.secret, kind.body, tuple(sorted((kind.names or {}).items())), kind.unit,
            parent < 0 and name in self.protocol.hidden,
        )  # fmt: skip
        key = (parent, name)
        if key not in self.index:
            self.index[key] = len(self.columns)
            self.columns.append(new)
        old = self.columns[self.index[key]]
        if (old.kind, old.type) != (new.kind, new.type):
            raise self.refuse(f"column {name} is {old.type} elsewhere and {new.type} here; give one of them column=")
        if old.secret != new.secret:
            raise self.refuse(f"column {name} is a secret in one message and none in another; give one of them column=")
        if not old.names:
            self.columns[self.index[key]] = replace(old, names=new.names)
        return self.index[key]

    def const(self, *values: int) -> int:
        self.consts.extend(v - (1 << 64) if v > MAX_I64 else v for v in values)
        return len(self.consts) - len(values)

    def emit(self, *words: int) -> int:
        self.ops.append([*words, *[0] * (bytecode.OP_WORDS - len(words))])
        return len(self.ops) - 1

    def message(self, cls: type, parent: int) -> _Registers:
        """Add the rows of a class, without its END; returns the registers of its fields by name."""
        registers: _Registers = {}
        earlier: dict[str, fields.Kind] = {}
        for f in fields.wire_fields(cls):
            self.field_name = f"{cls.__name__}.{f.name}"
            self.check_name(f)
            if (why := refusal(f, earlier)) is not None:
                raise self.refuse(why)
            earlier[f.name] = f
            row = self.condition(f, registers) if isinstance(f, fields.If) else -1
            self.kind(fields.bare(f), parent, registers, f.column)
            if row >= 0:
                self.ops[row][bytecode.W_JUMP] = len(self.ops) * bytecode.OP_WORDS
                registers.pop(f.name, None)  # what may be absent is not referred to
        return registers

    def check_name(self, f: object) -> None:
        name = getattr(f, "name", "")
        if not isinstance(f, fields.Kind) or (isinstance(f, fields.If) and type(f) is not fields.If):
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")
        if name in RESERVED:
            raise self.refuse(f"the name {name} is Scapy's or Python's; use {name}_")

    def register(self, registers: _Registers, name: str, is_span: bool = False) -> int:
        register = self.registers
        registers[name] = register, is_span
        self.registers += 1 + is_span
        return register

    def of(self, registers: _Registers, name: str | None, is_span: bool = False) -> int:
        if name is None or name not in registers:
            raise self.refuse(f"refers to {name}, which is no earlier field that is always there")
        register, is_text = registers[name]
        if is_text != is_span:
            raise self.refuse(f"refers to {name}, which is no {'text' if is_span else 'number'}")
        return register

    def condition(self, f: fields.If, registers: _Registers) -> int:
        if f.left is not None:
            return self.test(bytecode.IF_LEFT, 0, f.left)
        if f.follows is not None:
            return self.test(bytecode.IF_FOLLOWS, len(f.follows), int.from_bytes(f.follows, "big"))
        if isinstance(f.equals, bytes):
            return self.test(bytecode.IF_TEXT, self.of(registers, f.when, True), len(f.equals), *f.equals)
        if f.equals is not None:
            return self.test(bytecode.IF_EQUALS, self.of(registers, f.when), f.equals)
        return self.test(bytecode.IF_HAS, self.of(registers, f.when), -1 if f.has is None else f.has)

    def test(self, kind: int, y: int, *consts: int) -> int:
        """Add a row that skips a field where a test fails."""
        return self.emit(bytecode.OP_IF, -1, -1, kind, y, self.const(*consts) if consts else 0)

    def kind(self, f: fields.Kind, parent: int, registers: _Registers, name: str | None) -> None:
        if type(f) in NUMBERS:
            self.number(f, parent, registers, name)  # a Number, by exact type
        elif type(f) in SPANS or isinstance(f, fields.Late):
            self.span(f, parent, registers, name)  # a Span, by exact type but for late ones
        elif type(f) is fields.Bits:
            reg = self.register(registers, f.name)
            col = self.column(f, "number", pa.int32(), parent, name)
            self.emit(bytecode.OP_BITS, col, reg, self.of(registers, f.of), f.shift, f.mask)
        elif type(f) is fields.Array:
            self.array(f, parent, registers, name)
        elif type(f) is fields.Nested:
            self.nested(f, parent, registers)
        else:
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")

    def number(self, f: fields.Number, parent: int, registers: _Registers, name: str | None) -> None:
        col = self.column(f, "number", NUMBERS[type(f)], parent, name)
        if isinstance(f, fields.Length) and not self.in_header:
            raise self.refuse("only a header has a Length")
        subtracted, frame_length = (f.less, bytecode.FRAME_LENGTH) if isinstance(f, fields.Length) else (0, 0)
        reg = self.register(registers, f.name)
        checked, bounds = self.bounds(f, MIN_I64 if f.signed else 0)
        flags = bytecode.SIGNED * f.signed | bytecode.LITTLE * f.little | bytecode.TRUTH * f.truth
        self.emit(bytecode.OP_INT, col, reg, f.size, subtracted, bounds, 0, flags | checked | frame_length)

    def bounds(self, f: fields.Number | fields.Span | fields.Nested, low: int) -> tuple[int, int]:
        """Flag and constants for the bounds of a number or length, which is at least ``low`` anyway."""
        if f.at_least is None and f.at_most is None:
            return 0, -1
        least_value, high = (
            (f.at_least if f.at_least is not None else low),
            (MAX_I64 if f.at_most is None else f.at_most),
        )
        return bytecode.CHECKED, self.const(least_value, high)

    def measure(self, f: fields.Sized, registers: _Registers) -> tuple[int, int]:
        """Words X and Y: the source of the length or count."""
        if f.sized_by is not None:
            return bytecode.BY_REGISTER, self.of(registers, f.sized_by)
        for said_by, word in MEASURES.items():
            if (n := getattr(f, said_by, None)) is not None:
                return word, n
        return bytecode.BY_REST, 0

    def span(self, f: fields.Span, parent: int, registers: _Registers, name: str | None) -> None:
        col = self.column(f, "span", SPANS.get(type(f), pa.binary()), parent, name)
        x, y = self.measure(f, registers)
        checked, bounds = self.bounds(f, 0)
        flags = bytecode.UTF8 * f.strict | bytecode.PRINTABLE * f.printable | checked
        self.emit(bytecode.OP_SPAN, col, self.register(registers, f.name, is_span=True), x, y, bounds, 0, flags)

    def array(self, f: fields.Array, parent: int, registers: _Registers, name: str | None) -> None:
        item = f.item
        if isinstance(item, fields.Array | fields.If | fields.Nested):
            raise self.refuse("an item must be a plain kind or a Message class")
        col = self.column(f, "list", None, parent, name)
        if col < 0:
            raise self.refuse("a list needs a column")
        if col not in self.lists:
            self.lists.append(col)
        x, y = self.measure(f, registers)
        flags = bytecode.CHECKED if f.not_empty else 0
        row = self.emit(bytecode.OP_LIST, col, self.lists.index(col), x, y, fields.smallest(item), 0, flags)
        if isinstance(item, fields.Kind):
            self.kind(item, col, {}, "item")  # type: ignore[arg-type]  # to mypy, a Kind is Any
        else:
            self.message(item, col)
        self.emit(bytecode.OP_END)
        self.ops[row][bytecode.W_JUMP] = len(self.ops) * bytecode.OP_WORDS

    def nested(self, f: fields.Nested, parent: int, registers: _Registers) -> None:
        x, y = self.measure(f, registers)
        checked, bounds = self.bounds(f, 0)
        row = self.emit(bytecode.OP_NESTED, -1, -1, x, y, bounds, 0, checked)
        self.message(f.message, parent)
        self.emit(bytecode.OP_END)
        self.ops[row][bytecode.W_JUMP] = len(self.ops) * bytecode.OP_WORDS


RESERVED = frozenset(dir(Message)) | frozenset(keyword.kwlist)
"""Names that Scapy or Python own: a field called so would be silently shadowed (pkt.payload, pkt.time)."""


@cache
def compiled(protocol: MessageQueue) -> Program:
    """The Program of a protocol, compiled once. Raises ProtocolError naming the field that breaks the vocabulary."""
    c = _Compiler(protocol)
    c.check_derived()
    layouts = tuple(c.layout(layout) for layout in protocol.layouts)
    pc, extra, dialect, names = zip(*c.variants, strict=True) if c.variants else ((), (), (), ())
    return Program(
        np.array(c.ops, np.int32).reshape(-1), np.array(c.consts or [0], np.int64),
        c.registers, tuple(c.columns), tuple(c.lists), layouts, np.array(pc, np.int32), np.array(extra, np.int32),
        dialect, names,
    )  # fmt: skip
