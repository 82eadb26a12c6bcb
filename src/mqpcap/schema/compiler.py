"""The compiler: the classes of a description to a Program, which is plain data.

:func:`compiled` reads the classes of a :class:`~mqpcap.schema.protocol.MessageQueue` and returns a :class:`Program`:
rows of int32 words, a pool of constants and a list of columns. ``decode.bytecode`` documents the words. The
compiler accepts a kind by its exact type. It refuses anything else at import, naming the field.
"""

import keyword
from collections.abc import Collection, Iterator
from dataclasses import field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.decode import bytecode
from mqpcap.errors import ProtocolError
from mqpcap.records import dataclass
from mqpcap.schema import fields
from mqpcap.schema.message import HEADER, Message
from mqpcap.schema.protocol import Layout, MessageQueue
from mqpcap.schema.refusals import MAX_I64, MAX_U64, columns_of, refusal, value_range

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
    fields.VarUint: pa.int64(),
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

    ``header_pc``: first row of its header, -1 without a header.
    ``op_reg``: register of the operation, -1 without an operation.
    ``table``: triples: operation (ANY: -1), first variant, count of variants.
    ``header_len``: its size, -1 if it ends in a variable length.
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


class _Register(NamedTuple):
    """The register of a number, or the first of two registers of a span: its start and its length."""

    number: int
    is_span: bool
    may_be_absent: bool = False


_Registers = dict[str, _Register]
"""By name of the field; a field of the header is `header.NAME`."""


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
    bodies: dict[tuple[type, type | None], int] = field(default_factory=dict)
    """First row of each class, by the header that it follows."""
    variants: list[tuple[int, int, str | None, str]] = field(default_factory=list)
    field_name: str = ""
    in_header: bool = False
    headers: "dict[type, tuple[int, _Registers]]" = field(default_factory=dict)
    """First row of each header, and the registers of its fields."""

    def layout(self, layout: Layout) -> CompiledLayout:
        """The rows of a layout's header and of its variants."""
        header_pc = op_reg = packed_at = extra = -1
        if layout.header is not None:
            header_pc, registers = self.header(layout.header)
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
                self.variants.append((self.body(v.message, layout.header), may_leave, v.dialect, v.message.__name__))
        packed_mask = layout.packed[1] if layout.packed else 0
        return CompiledLayout(
            layout.name, header_pc, op_reg, np.array(table, np.int64), packed_at, packed_mask,
            _header_size(layout),
        )  # fmt: skip

    def check_derived(self) -> None:
        """A column that is masked is made of masked bytes: else a dump would print what the table masks."""
        for derived in self.protocol.derived:
            self.field_name = derived.name
            if derived.secret and (source := self.shown_source()) is not None:
                raise self.refuse(f"it is secret, but may be made of {source}, which is not; give that secret=True")

    def check_remembered(self) -> None:
        """A remembered text is text, and its key a number."""
        for remembered in self.protocol.remembered:
            self.field_name = f"remembered {remembered.text}"
            outer, _, name = remembered.key.rpartition(".")
            numbers = (name, *(remembered.item or ())[:1])
            if not self.has_column(-1, remembered.text, pa.string()):
                raise self.refuse(f"{remembered.text} is no column of text")
            for number in map(str, numbers):
                if not self.has_column(
                    self.index.get((-1, outer), -2) if outer else -1, number, pa.int32(), pa.int64()
                ):
                    raise self.refuse(f"its key {remembered.key} needs a number in {number}")
            if remembered.item is not None and not outer:
                raise self.refuse("item goes with a key in a list")

    def has_column(self, parent: int, name: str, *types: pa.DataType) -> bool:
        """Whether a column is there with such a type."""
        return (parent, name) in self.index and self.columns[self.index[parent, name]].type in types

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
        last_field = layout.header.fields_desc[-1]
        for f in layout.header.fields_desc:
            self.field_name = f"{layout.header.__name__}.{f.name}"
            is_fixed = isinstance(f, fields.Number | fields.Bits) or getattr(f, "size", None) is not None
            if not is_fixed or (fields.is_variable(f) and not (f is last_field and isinstance(f, fields.Length))):
                raise self.refuse("a header's fields have a fixed size; what has none goes into the bodies")
            kinds[f.name] = f
        low, high = value_range(kinds.get(layout.op or "")) or (-1, -1)
        if layout.op is not None and not low == 0 <= high <= MAX_I64:
            raise self.refuse(f"the operation {layout.op} is no unsigned number of the header of up to seven bytes")
        if layout.packed is not None and getattr(kinds.get(layout.packed[0]), "size", 0) != 1:
            raise self.refuse(f"packed names {layout.packed[0]}, which is no byte of the header")
        if sum(isinstance(f, fields.Length) for f in kinds.values()) > 1:
            raise self.refuse("a header has one Length")
        if layout.packed is not None and fields.is_variable(last_field):
            raise self.refuse("a header with packed bodies has a fixed size")

    def header(self, cls: type[Message]) -> "tuple[int, _Registers]":
        """First row and registers of a header; a class of several layouts is compiled once."""
        if cls not in self.headers:
            begin = len(self.ops) * bytecode.OP_WORDS
            self.in_header = True
            self.headers[cls] = begin, self.message(cls, -1)
            self.in_header = False
            self.emit(bytecode.OP_END)
        return self.headers[cls]

    def body(self, cls: type[Message], header: type[Message] | None) -> int:
        """First row of a body after a header; a class of several layouts is compiled once."""
        if header is not None and not any(names_header(f) for f in cls.fields_desc):
            header = None
        if (cls, header) not in self.bodies:
            self.bodies[cls, header] = len(self.ops) * bytecode.OP_WORDS
            self.message(cls, -1, header)
            self.emit(bytecode.OP_END)
        return self.bodies[cls, header]

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

    def message(self, cls: type[Message], parent: int, header: type[Message] | None = None) -> _Registers:
        """Add the rows of a class, without its END; returns the registers of its fields by name."""
        registers: _Registers = {}
        earlier: dict[str, fields.Kind] = {}
        if header is not None:
            registers |= {f"{HEADER}{name}": register for name, register in self.header(header)[1].items()}
            earlier |= {f"{HEADER}{f.name}": f for f in fields.wire_fields(header)}
        asked = {name for f in cls.fields_desc for name in _asked(f)}
        for f in fields.wire_fields(cls):
            self.field_name = f"{cls.__name__}.{f.name}"
            self.check_name(f)
            if (why := refusal(f, earlier)) is not None:
                raise self.refuse(why)
            earlier[f.name] = f
            rows = list(self.conditions(f, registers, f.name in asked))
            self.kind(fields.bare(f), parent, registers, f.column)
            for row in rows:
                self.ops[row][bytecode.W_JUMP] = len(self.ops) * bytecode.OP_WORDS
            if rows and f.name in registers:
                registers[f.name] = registers[f.name]._replace(may_be_absent=True)
        return registers

    def check_name(self, f: object) -> None:
        name = getattr(f, "name", "")
        if not isinstance(f, fields.Kind) or (isinstance(f, fields.If) and type(f) is not fields.If):
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")
        if name in RESERVED:
            raise self.refuse(f"the name {name} is Scapy's or Python's; use {name}_")

    def register(self, registers: _Registers, name: str, is_span: bool = False) -> int:
        if name not in registers:
            registers[name] = _Register(self.registers, is_span)
            self.registers += 1 + is_span
        return registers[name].number

    def of(self, registers: _Registers, name: str | None, is_span: bool = False, may_be_absent: bool = False) -> int:
        register = registers.get(name or "")
        if register is None or (register.may_be_absent and not may_be_absent):
            raise self.refuse(f"refers to {name}, which is no earlier field that is always there")
        if register.is_span != is_span:
            raise self.refuse(f"refers to {name}, which is no {'text' if is_span else 'number'}")
        return register.number

    def conditions(self, f: fields.Kind, registers: _Registers, is_asked: bool) -> Iterator[int]:
        """Add the rows that skip a field where a condition fails; yields each of them."""
        if isinstance(f, fields.If) and is_asked:
            is_span = isinstance(fields.bare(f), fields.Span)
            self.emit(bytecode.OP_ABSENT, -1, -1, self.register(registers, f.name, is_span))
        while isinstance(f, fields.If):
            yield self.condition(f, registers)
            f = f.kind

    def condition(self, f: fields.If, registers: _Registers) -> int:
        if f.left is not None:
            return self.test(bytecode.IF_LEFT, 0, f.left)
        if f.follows is not None:
            return self.test(bytecode.IF_FOLLOWS, len(f.follows), int.from_bytes(f.follows, "big"))
        value = f.equals if f.unless is None else f.unless
        flags = 0 if f.unless is None else bytecode.UNLESS
        register = self.of(registers, f.when, isinstance(value, bytes), True)
        if isinstance(value, bytes):
            return self.test(bytecode.IF_TEXT, register, len(value), *value, flags=flags)
        if isinstance(value, int):
            return self.test(bytecode.IF_EQUALS, register, value, flags=flags)
        if value is not None:
            return self.test(bytecode.IF_AMONG, register, len(value), *value, flags=flags)
        return self.test(bytecode.IF_HAS, register, -1 if f.has is None else f.has)

    def test(self, kind: int, y: int, *consts: int, flags: int = 0) -> int:
        """Add a row that skips a field where a test fails."""
        return self.emit(bytecode.OP_IF, -1, -1, kind, y, self.const(*consts) if consts else 0, 0, flags)

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
        elif type(f) is fields.Never:
            self.emit(bytecode.OP_NEVER)
        else:
            raise self.refuse(f"{type(f).__name__} is not in the vocabulary")

    def number(self, f: fields.Number, parent: int, registers: _Registers, name: str | None) -> None:
        kind = f.kind if isinstance(f, fields.Length) else f
        if type(kind) not in NUMBERS or (kind is not f and kind.truth):
            raise self.refuse(f"{type(kind).__name__} is no kind of a length or count")
        type_ = fields.U64 if f.value_range == (0, MAX_U64) and f is kind else type(f)
        col = self.column(f, "number", NUMBERS[type_], parent, name)
        if isinstance(f, fields.Length) and not self.in_header:
            raise self.refuse("only a header has a Length")
        subtracted, frame_length = (f.less, bytecode.FRAME_LENGTH) if isinstance(f, fields.Length) else (0, 0)
        reg = self.register(registers, f.name)
        checked, bounds = self.bounds(f, min(f.value_range[0], 0))
        flags = checked | frame_length
        if isinstance(kind, fields.VarUint):
            flags |= bytecode.VARIABLE | bytecode.LITTLE * (kind.order == "little")
            flags |= bytecode.ZIGZAG * kind.zigzag | bytecode.SHORTEST * kind.shortest
            size = kind.at_most_bytes
        else:
            flags |= bytecode.SIGNED * f.signed | bytecode.LITTLE * f.little | bytecode.TRUTH * f.truth
            size = f.size
        self.emit(bytecode.OP_INT, col, reg, size, subtracted, bounds, 0, flags)
        if f.among is not None:
            self.only_among(reg, f.among)

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
        if (kind := f.prefix_kind) is not None:
            prefix: _Registers = {}
            self.number(kind, -1, prefix, None)
            return bytecode.BY_REGISTER, self.of(prefix, kind.name)
        for said_by, word in MEASURES.items():
            if (n := getattr(f, said_by, None)) is not None:
                return word, n
        return bytecode.BY_REST, 0

    def span(self, f: fields.Span, parent: int, registers: _Registers, name: str | None) -> None:
        col = self.column(f, "span", SPANS.get(type(f), pa.binary()), parent, name)
        x, y = self.measure(f, registers)
        checked, bounds = self.bounds(f, 0)
        flags = bytecode.UTF8 * f.strict | bytecode.PRINTABLE * f.printable | checked
        register = self.register(registers, f.name, is_span=True)
        self.emit(bytecode.OP_SPAN, col, register, x, y, bounds, 0, flags)
        if f.among is not None:
            self.only_among(register, f.among)

    def only_among(self, register: int, values: Collection[int] | Collection[bytes]) -> None:
        """Add the rows that refuse any other value of a field."""
        numbers = [value for value in values if isinstance(value, int)]
        texts = [value for value in values if isinstance(value, bytes)]
        tests = [(bytecode.IF_TEXT, len(text), *text) for text in texts]
        if numbers:
            tests.append((bytecode.IF_AMONG, len(numbers), *numbers))
        rows = [self.test(kind, register, *consts, flags=bytecode.UNLESS) for kind, *consts in tests]
        self.emit(bytecode.OP_NEVER)
        for row in rows:
            self.ops[row][bytecode.W_JUMP] = len(self.ops) * bytecode.OP_WORDS

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


def _asked(f: fields.Kind) -> Iterator[str]:
    """The names of the fields that the conditions of a field test."""
    while isinstance(f, fields.If):
        yield f.when or ""
        f = f.kind


def names_header(f: fields.Kind) -> bool:
    """Whether a field names a field of the header."""
    names = [*_asked(f), getattr(fields.bare(f), "sized_by", None) or "", getattr(fields.bare(f), "of", "")]
    return any(name.startswith(HEADER) for name in names)


def _header_size(layout: Layout) -> int:
    """The size of a layout's header, -1 if it varies."""
    if layout.header is None:
        return 0
    return -1 if fields.is_variable(layout.header.fields_desc[-1]) else fields.smallest(layout.header)


RESERVED = frozenset(dir(Message)) | frozenset(keyword.kwlist)
"""Names that Scapy or Python own: a field called so would be silently shadowed (pkt.payload, pkt.time)."""


@cache
def compiled(protocol: MessageQueue) -> Program:
    """The Program of a protocol, compiled once. Raises ProtocolError naming the field that breaks the vocabulary."""
    c = _Compiler(protocol)
    c.check_derived()
    layouts = tuple(c.layout(layout) for layout in protocol.layouts)
    c.check_remembered()
    pc, extra, dialect, names = zip(*c.variants, strict=True) if c.variants else ((), (), (), ())
    return Program(
        np.array(c.ops, np.int32).reshape(-1), np.array(c.consts or [0], np.int64),
        c.registers, tuple(c.columns), tuple(c.lists), layouts, np.array(pc, np.int32), np.array(extra, np.int32),
        dialect, names,
    )  # fmt: skip
