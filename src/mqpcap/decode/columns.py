"""Message spans to field columns.

``framing`` says where messages are and which layout reads them. Here the decoder reads them onto its tape, and the tape
becomes Arrow columns, one per field of the protocol. There is one row per message, in the order given. A message
decodes wholly or not at all: with a flaw it has only the fields of its header.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array, factorize
from mqpcap.decode import bytecode, kernels
from mqpcap.records import dataclass
from mqpcap.schema.compiler import Program, ProgramColumn, compiled
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.gzip_body import MAX_INFLATED_BYTES, inflate
from mqpcap.schema.protocol import ANY, ConnectionFacts, MessageQueue, Raw, Remembered

TAPE_ENTRIES = 1 << 16
"""Entries of a new tape; it doubles when a message does not fit."""
MAX_TAPE_ENTRIES = 1 << 19
"""Entries read at once, 40 bytes each; a batch ends where they are full. A single message may have more, on a tape that
is not kept."""
BATCH_ROWS = 1 << 16
"""Messages read at once."""
BATCH_BYTES = 12 << 20
"""Bytes of messages read at once; one message more may pass the limit."""
INFLATED_BYTES = 3 << 20
"""Inflated bytes that are read at once; one message more may pass the limit. They are copied more often than others."""
UNSIGNED = pa.decimal128(20, 0)


@dataclass(frozen=True, slots=True)
class Spans(ColumnBatch):
    """Messages to read: n rows over one buffer.

    * start, end (int64): offsets in ``buffer``
    * layout (int32): index into ``Program.layouts``
    * op (int64): the operation, ANY if there is none
    * flaw (uint8): if set, only the header of the row is read
    * connection_index (int64): index into ``facts``, which a layer's ``derive`` reads; None: all rows use the first
    * body_start, body_end (int64): offsets of the bodies in ``buffer``, None until they are inflated
    """

    SHARED: ClassVar[frozenset[str]] = frozenset(("buffer", "facts"))

    buffer: NDArray[np.uint8]
    start: Int64Array
    end: Int64Array
    layout: NDArray[np.int32]
    op: Int64Array
    flaw: NDArray[np.uint8]
    connection_index: Int64Array | None = None
    facts: Sequence[ConnectionFacts] = (ConnectionFacts(),)
    body_start: Int64Array | None = None
    body_end: Int64Array | None = None

    def gathered(self) -> "Spans":
        """The same rows over a buffer that holds nothing else."""
        buffer, offsets = gathered(self.buffer, self.start, self.end - self.start)
        ends = offsets.astype(np.int64)
        return replace(self, buffer=buffer, start=ends[:-1], end=ends[1:])


@lru_cache
def flaw_reader(protocol: MessageQueue) -> "ColumnReader":
    """A reader that makes no columns: only flaws count."""
    return ColumnReader(protocol, ())


@dataclass(frozen=True, slots=True)
class Records:
    """Decoded messages: ``table`` has one column per field.

    flaw (uint8) and variant (int32, index of the variant taken in the Program, -1 for none) have one entry a row.
    ``remembered_keys`` has the rows with a key in order, and their keys, by column.
    """

    table: pa.Table
    flaw: NDArray[np.uint8]
    variant: NDArray[np.int32]
    remembered_keys: Mapping[str, tuple[Int64Array, Int64Array]]


class ColumnReader:
    """A protocol's Program with its tape, reused from batch to batch."""

    def __init__(self, protocol: MessageQueue, columns: Collection[str] | None = None) -> None:
        """``columns``: those of the protocol's table that are made; None: all."""
        self.protocol = protocol
        self._made = columns
        self.program = compiled(protocol)
        # A layer's ``derive`` may read any column, so a protocol with one gets the full program.
        self._shortest = self.program
        if columns is not None and protocol.derive is None:
            numbers = {column.name for column in self.program.columns if column.name_column in columns}
            sources = {x for r in protocol.remembered if r.name in columns for x in (r.text, r.key.partition(".")[0])}
            self._shortest = self.program.only({*columns, *numbers, *sources})
        self._tape = _tape(TAPE_ENTRIES)
        self._by_column = _tape(TAPE_ENTRIES)[1:]
        layouts = self.program.layouts
        self._header_pc = np.array([x.header_pc for x in layouts], np.int32)
        self._header_len = np.array([x.header_len for x in layouts], np.int64)
        self._variants_by_op = [
            {
                op: (first_variant, count - sum(v.only_framed for v in protocol.layout(x.name).variants_of(op)))
                for op, first_variant, count in x.table.reshape(-1, 3).tolist()
            }
            for x in layouts
        ]
        self._packed_at = np.array([x.packed_at for x in layouts], np.int64)
        self._packed_mask = np.array([x.packed_mask for x in layouts], np.uint8)

    def records(self, spans: Spans, keep_bodies: int | None = None) -> Records:
        """The rows of the spans, in their order.

        ``keep_bodies``: bytes of each body that a layer needs to keep where it makes text of bodies (None: all).
        """
        return self._records(self._opened(spans), keep_bodies)

    def batches(self, spans: Spans, keep_bodies: int | None = None) -> Iterator[Records]:
        """The records in batches of bounded size."""
        for batch in self._bounded(spans):
            while len(batch.start):
                records = self._records(batch, keep_bodies, MAX_TAPE_ENTRIES)
                yield records
                batch = batch.taken(np.s_[len(records.flaw) :])

    def raw(self, spans: Spans) -> Iterator[Raw]:
        """The batches before they become Arrow. A column is made when it is asked for; ask before the next batch."""
        for batch in self._bounded(spans):
            while len(batch.start):
                raw, _, _ = self._read(self.program, batch, None, MAX_TAPE_ENTRIES)
                yield raw
                batch = batch.taken(np.s_[raw.n :])

    def _records(self, spans: Spans, keep_bodies: int | None, max_entries: int | None = None) -> Records:
        raw, columns, variant = self._read(self._shortest, spans, keep_bodies, max_entries)
        # ``derive`` may still find a flaw in a span; the row then loses its columns.
        late: Mapping[str, pa.Array] = {}
        if self.protocol.derive is not None:
            flaw_before = raw.flaw.copy()
            late = self.protocol.derive(raw)
            columns.dropped, columns.kept = np.flatnonzero(raw.flaw != flaw_before), self._header_columns()
        keys = {r.name: columns.remembered_keys(r) for r in self.protocol.remembered if self._makes(r.name)}
        return Records(self._table(columns, late), raw.flaw, variant, keys)

    def _read(
        self, program: Program, spans: Spans, keep_bodies: int | None, max_entries: int | None
    ) -> "tuple[Raw, _TapeColumns, NDArray[np.int32]]":
        """Decode all spans, or the first whose entries fit on a tape of ``max_entries``: at least one."""
        if len(self._tape[0]) > MAX_TAPE_ENTRIES:
            self._tape, self._by_column = _tape(TAPE_ENTRIES), _tape(TAPE_ENTRIES)[1:]
        variant, tape = self._run(program, spans, max_entries)
        n = len(variant)
        spans = spans.taken(np.s_[:n])
        if len(self._by_column[0]) < len(tape[0]):
            self._by_column = _tape(len(self._tape[0]))[1:]
        columns = _TapeColumns(program, spans.buffer, tape, self._by_column, n)
        connection_index = np.zeros(n, np.int64) if spans.connection_index is None else spans.connection_index
        raw = Raw(
            n, spans.buffer, spans.layout, [x.name for x in program.layouts], spans.flaw, columns.spans,
            columns.numbers, keep_bodies, columns.array, columns.items, spans.facts, connection_index,
        )  # fmt: skip
        return raw, columns, variant

    def _header_columns(self) -> frozenset[str]:
        names: set[str] = set()
        for layout in self.protocol.layouts:
            if layout.header is not None:
                names |= {f.column for f in layout.header.fields_desc if f.column}
        return frozenset(names)

    def _table(self, columns: "_TapeColumns", late: Mapping[str, pa.Array]) -> pa.Table:
        arrays: dict[str, pa.Array] = {}
        for column in self.program.columns:
            if column.parent < 0 and not column.hidden and self._makes(column.name):
                arrays[column.name] = columns.array(column.name)
            if column.name_column is not None and self._makes(column.name_column):
                arrays[column.name_column] = _named(columns.array(column.name), column.names)
        for derived in self.protocol.derived:
            if self._makes(derived.name):
                values = late[derived.name]
                arrays[derived.name] = values if derived.hidden else columns.without_dropped(values)
        arrays |= {r.name: columns.array(r.text) for r in self.protocol.remembered if self._makes(r.name)}
        return pa.table(arrays) if arrays else pa.table({"": pa.nulls(columns.n)}).drop_columns("")

    def _makes(self, name: str) -> bool:
        return self._made is None or name in self._made

    def _bounded(self, spans: Spans) -> Iterator[Spans]:
        """The spans in order, in batches of at most BATCH_ROWS, BATCH_BYTES and INFLATED_BYTES."""
        sizes = np.cumsum(spans.end - spans.start)
        begin = 0
        while begin < len(sizes):
            bytes_before = int(sizes[begin - 1]) if begin else 0
            fit = int(np.searchsorted(sizes, bytes_before + BATCH_BYTES, "right"))
            batch = self._opened(
                spans.taken(np.s_[begin : min(max(fit, begin + 1), begin + BATCH_ROWS)]), INFLATED_BYTES
            )
            yield batch
            begin += len(batch.start)

    def _opened(self, spans: Spans, at_most_bytes: int | None = None) -> Spans:
        """The spans with their bodies: the bytes after each header, or inflated bytes appended to the buffer.

        Returns fewer rows if more than ``at_most_bytes`` were inflated.
        """
        flaw = spans.flaw.copy()
        packed_at = self._packed_at[spans.layout]
        rows = np.flatnonzero((packed_at >= 0) & (flaw == Flaw.NONE))
        rows = rows[(spans.buffer[(spans.start + packed_at)[rows]] & self._packed_mask[spans.layout[rows]]) != 0]
        opened: list[tuple[int, bytes]] = []
        size = 0
        for row in rows.tolist():
            if at_most_bytes is not None and size > at_most_bytes:
                spans, flaw = spans.taken(np.s_[:row]), flaw[:row]
                break
            body = int(spans.start[row] + self._header_len[spans.layout[row]])
            inflated, is_too_long = inflate(spans.buffer[body : spans.end[row]].tobytes(), MAX_INFLATED_BYTES)
            if inflated is None:
                flaw[row] = Flaw.TOO_LONG if is_too_long else Flaw.MALFORMED
            else:
                opened.append((row, inflated))
                size += len(inflated)
        if opened:
            spans = spans.gathered()
        buffer, body_end = spans.buffer, spans.end.copy()
        header_len = self._header_len[spans.layout]
        body_start = np.where(header_len < 0, -1, np.minimum(spans.start + header_len, body_end))
        if opened:
            buffer = np.concatenate([buffer, np.frombuffer(b"".join(data for _, data in opened), np.uint8)])
            inflated_rows = np.array([row for row, _ in opened], np.int64)
            body_end[inflated_rows] = len(spans.buffer) + np.cumsum([len(data) for _, data in opened])
            body_start[inflated_rows] = body_end[inflated_rows] - [len(data) for _, data in opened]
        return replace(spans, buffer=buffer, body_start=body_start, body_end=body_end, flaw=flaw)

    def _variants(self, spans: Spans) -> NDArray[np.int32]:
        """First and count of the variants of each row (2 by n); count -1 for a row whose body is not read."""
        # A batch has few operations: each is looked up once a layout.
        ops, op_index = factorize(spans.op)
        variants_by_row = [
            variants_of_op.get(op, variants_of_op.get(ANY, (0, -1)))
            for variants_of_op in self._variants_by_op
            for op in ops.tolist()
        ]
        variants = (
            np.array(variants_by_row, np.int32).reshape(-1, 2).take(spans.layout * len(ops) + op_index, axis=0).T.copy()
        )
        spans.flaw[(variants[1] < 0) & (spans.flaw == Flaw.NONE)] = Flaw.UNKNOWN
        variants[1, spans.flaw != Flaw.NONE] = -1
        return variants

    def _run(self, program: Program, spans: Spans, max_entries: int | None) -> "tuple[NDArray[np.int32], _Tape]":
        """Decode rows; returns the variant of each decoded row, and the tape. ``spans.flaw`` gets their flaws."""
        decoder = program.decoder()
        decoder.tape(*_views(self._tape), 0)
        assert spans.body_start is not None and spans.body_end is not None
        words = np.vstack([self._header_pc[spans.layout], self._variants(spans)])
        places = np.vstack([spans.start, spans.end, spans.body_start, spans.body_end])
        row, n = 0, len(spans.start)
        variant, results = np.full(n, -1, np.int32), np.zeros(n, np.uint8)
        while row < n:
            row = decoder.decode(
                memoryview(spans.buffer), memoryview(places), memoryview(words), memoryview(variant),
                memoryview(results), row,
            )  # fmt: skip
            if row < n:
                if row and max_entries is not None and len(self._tape[0]) >= max_entries:
                    break
                filled = decoder.filled()
                grown = _tape(2 * len(self._tape[0]))
                for i in range(4):
                    grown[i][:filled] = self._tape[i][:filled]
                self._tape = grown
                decoder.tape(*_views(grown), filled)
        flaw = spans.flaw[:row]
        flaw[results[:row] == bytecode.MALFORMED] = Flaw.MALFORMED
        flaw[results[:row] == bytecode.TOO_LONG] = Flaw.TOO_LONG
        filled = decoder.filled()
        col, tape_rows, a, b = self._tape
        return variant[:row], (col[:filled], tape_rows[:filled], a[:filled], b[:filled])


_Tape = tuple[NDArray[np.int32], NDArray[np.int32], Int64Array, Int64Array]
"""Column, row, a and b of each entry."""
_Sorted = tuple[NDArray[np.int32], Int64Array, Int64Array]
"""Row, a and b of each entry, by column."""


def _views(tape: _Tape) -> tuple[memoryview, memoryview, memoryview, memoryview]:
    return memoryview(tape[0]), memoryview(tape[1]), memoryview(tape[2]), memoryview(tape[3])


def _tape(entries: int) -> _Tape:
    narrow, wide = np.empty((2, entries), np.int32), np.empty((2, entries), np.int64)
    return narrow[0], narrow[1], wide[0], wide[1]


def _named(numbers: pa.Array, names: Sequence[tuple[int, str]]) -> pa.DictionaryArray:
    """The names of numbers; null for a number without a name."""
    known_numbers = pa.array([number for number, _ in names], numbers.type)
    return pa.DictionaryArray.from_arrays(pc.index_in(numbers, known_numbers), [name for _, name in names])


class _TapeColumns:
    """The tape by column, turned into arrays on demand; ``sorted_tape`` is filled.

    dropped: rows without values but in the columns ``kept``.
    """

    def __init__(self, program: Program, buffer: NDArray[np.uint8], tape: _Tape, sorted_tape: _Sorted, n: int) -> None:
        self.program = program
        self.buffer = buffer
        self.n = n
        self.first = np.zeros(len(program.columns) + 1, np.int64)
        self.row, self.a, self.b = sorted_tape
        if len(tape[0]):
            views = (memoryview(x) for x in sorted_tape)
            kernels.group(*_views(tape), len(tape[0]), memoryview(self.first), *views)
        self.dropped: Int64Array = np.empty(0, np.int64)
        self.kept: frozenset[str] = frozenset()
        self.index = {(c.parent, c.name): i for i, c in enumerate(program.columns)}

    def entries(self, c: int) -> tuple[NDArray[np.int32], Int64Array, Int64Array]:
        """Rows, a and b of a column's entries, in the order of rows. Copy them before the next batch is read."""
        column_entries = slice(self.first[c], self.first[c + 1])
        rows, a, b = self.row[column_entries], self.a[column_entries], self.b[column_entries]
        column = self.program.columns[c]
        if len(self.dropped) and column.parent < 0 and column.name not in self.kept:
            stays = ~np.isin(rows, self.dropped)
            return rows[stays], a[stays], b[stays]
        return rows, a, b

    def without_dropped(self, values: pa.Array) -> pa.Array:
        """A derived column; null in dropped rows."""
        if not len(self.dropped):
            return values
        rows = np.arange(self.n)
        return values.take(pa.array(rows, mask=np.isin(rows, self.dropped)))

    def spans(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Starts and lengths of a byte column of the table; length -1 where it is absent."""
        start, length = np.zeros(self.n, np.int64), np.full(self.n, -1, np.int64)
        rows, a, b = self.entries(self.index[-1, name])
        start[rows], length[rows] = a, b
        return start, length

    def numbers(self, name: str) -> tuple[Int64Array, NDArray[np.bool_]]:
        """Values of an integer column of the table, and where they are present."""
        value, present = np.zeros(self.n, np.int64), np.zeros(self.n, np.bool_)
        rows, a, _ = self.entries(self.index[-1, name])
        value[rows], present[rows] = a, True
        return value, present

    def array(self, name: str) -> pa.Array:
        """A column of the table by its name."""
        return self._array(self.index[-1, name], self.n)

    def items(self, name: str, field: str) -> tuple[Int64Array, Int64Array]:
        """The row of every item of a list column, and the value of an integer field that all items have."""
        outer = self.index[-1, name]
        rows, first_item, count = self.entries(outer)
        item_rows, values, _ = self.entries(self.index[outer, field])
        by_item = np.zeros(int(item_rows.max(initial=-1)) + 1, np.int64)
        by_item[item_rows] = values
        return np.repeat(rows.astype(np.int64), count), by_item[_ranges(first_item, count)]

    def remembered_keys(self, remembered: Remembered) -> tuple[Int64Array, Int64Array]:
        """The rows with a key, and their keys; of a list the first item with one."""
        outer, _, name = remembered.key.rpartition(".")
        if not outer:
            rows, keys, _ = self.entries(self.index[-1, name])
            return rows.astype(np.int64), keys.copy()
        of_list = self.index[-1, outer]
        items, keys, _ = self.entries(self.index[of_list, name])
        if remembered.item is not None:
            tested, values, _ = self.entries(self.index[of_list, remembered.item[0]])
            is_kept = np.isin(items, tested[values == remembered.item[1]])
            items, keys = items[is_kept], keys[is_kept]
        rows, first_item, count = self.entries(of_list)
        place = np.searchsorted(items, first_item)
        place_or_last = np.minimum(place, len(items) - 1)
        has_key = (place < len(items)) & (count > 0)
        has_key[has_key] = items[place_or_last[has_key]] < (first_item + count)[has_key]
        return rows[has_key].astype(np.int64), keys[place[has_key]]

    def _array(self, c: int, n: int) -> pa.Array:
        column = self.program.columns[c]
        rows, a, b = self.entries(c)
        if column.kind == "list":
            return self._list(c, n, rows, a, b)
        if column.kind == "span":
            return span_array(self.buffer, n, rows, a, b, column.type)
        return number_array(n, rows, a, column)

    def _list(self, c: int, n: int, rows: NDArray[np.int32], first_item: Int64Array, count: Int64Array) -> pa.Array:
        if not len(rows):
            return pa.nulls(n, column_type(self.program, c))
        elements = int((first_item + count).max(initial=0))
        children = [i for i, x in enumerate(self.program.columns) if x.parent == c]
        names = [self.program.columns[i].name for i in children]
        arrays = [self._array(i, elements) for i in children]
        items = arrays[0] if names == ["item"] else pa.StructArray.from_arrays(arrays, names=names)
        if int(count.sum()) != elements:
            # Elements of dropped rows stay on the tape: take those of the rows that are left.
            items = items.take(pa.array(_ranges(first_item, count)))
        lengths = np.zeros(n + 1, np.int64)
        lengths[rows + 1] = count
        offsets = pa.py_buffer(np.cumsum(lengths).astype(np.int32))
        buffers = [_valid(n, rows), offsets]
        return pa.Array.from_buffers(pa.list_(items.type), n, buffers, n - len(rows), children=[items])


def _ranges(starts: Int64Array, count: Int64Array) -> Int64Array:
    """Concatenated ranges: ``count`` numbers from each of ``starts``."""
    count_before = np.cumsum(count) - count
    numbers: Int64Array = np.repeat(starts - count_before, count) + np.arange(int(count.sum()))
    return numbers


def number_array(n: int, rows: NDArray[np.int32], values: Int64Array, column: ProgramColumn) -> pa.Array:
    """n values of a number column, null in rows not given."""
    if not len(rows) and n:
        return pa.nulls(n, column.type)
    absent = None
    if len(rows) < n:
        full, absent = np.zeros(n, np.int64), np.ones(n, np.bool_)
        full[rows], absent[rows] = values, False
    else:
        full = values.copy()  # the tape is used again
    if column.type == UNSIGNED:
        # 16 bytes, little-endian: what is unsigned on the wire has an upper half of zero.
        words = np.zeros((n, 2), np.int64)
        words[:, 0] = full
        return pa.Array.from_buffers(column.type, n, [_valid(n, rows), pa.py_buffer(words)], n - len(rows))
    assert column.type is not None  # only lists have none; it is as wide as the wire's numbers (compiler.NUMBERS)
    return pa.array(full.astype(column.type.to_pandas_dtype()), column.type, mask=absent)


def _valid(n: int, rows: NDArray[np.int32]) -> pa.Buffer | None:
    """Arrow's validity bitmap: 1 for the rows given; None where all are."""
    if len(rows) == n:
        return None
    present = np.zeros(n, np.bool_)
    present[rows] = True
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def gathered(
    buffer: NDArray[np.uint8], start: Int64Array, length: Int64Array, rows: NDArray[np.int32] | None = None, n: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Concatenated spans, and the offset of each row's value; ``rows``: the rows of n that have a span (None: all)."""
    if rows is None:
        rows, n = np.arange(len(start), dtype=np.int32), len(start)
    target, offsets = np.empty(int(length.sum()), np.uint8), np.empty(n + 1, np.int32)
    kernels.gather(
        memoryview(buffer), memoryview(rows), memoryview(np.ascontiguousarray(start)), memoryview(length),
        memoryview(target) if len(target) else _NOTHING, memoryview(offsets),
    )  # fmt: skip
    return target, offsets


def span_array(
    buffer: NDArray[np.uint8],
    n: int,
    rows: NDArray[np.int32],
    start: Int64Array,
    length: Int64Array,
    type_: pa.DataType | None,
) -> pa.Array:
    """n byte strings gathered from the buffer, null in rows not given; undecodable bytes of text are replaced."""
    if not len(rows) and n:
        return pa.nulls(n, type_)
    data, offsets = gathered(buffer, start, length, rows, n)
    buffers = [_valid(n, rows), pa.py_buffer(offsets), pa.py_buffer(data)]
    binary = pa.Array.from_buffers(pa.binary(), n, buffers, n - len(rows))
    return as_text(binary) if type_ == pa.string() else binary


_NOTHING = memoryview(bytearray(1))


def as_text(binary: pa.Array) -> pa.Array:
    """Bytes as text; bytes that are not UTF-8 become U+FFFD."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if x is None else x.decode("utf-8", "replace") for x in binary.to_pylist()], pa.string())


def coalesced(table: pa.Table, names: str | Sequence[str], type_: pa.DataType) -> pa.Array:
    """Per row the first value that is not null among the named columns, as ``type_``; without names, nulls."""
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted:
        return pa.nulls(table.num_rows, type_)
    arrays = [as_type(table[name].combine_chunks(), type_) for name in wanted]
    return arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays)


def as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values cast to another type; numbers of 64 bits without sign become text faster than ``cast`` does it."""
    if array.type == UNSIGNED and type_ == pa.string() and not array.offset and len(array):
        valid, values = array.buffers()
        words = np.frombuffer(values, np.int64)[: 2 * len(array)]
        if not words[1::2].any():
            low = pa.py_buffer(np.ascontiguousarray(words[::2]))
            array = pa.Array.from_buffers(pa.uint64(), len(array), [valid, low], array.null_count)
    return array.cast(type_)


def column_type(program: Program, c: int) -> pa.DataType | None:
    """The Arrow type of a column, lists included."""
    column = program.columns[c]
    if column.kind != "list":
        return column.type
    children = [(x.name, column_type(program, i)) for i, x in enumerate(program.columns) if x.parent == c]
    return pa.list_(children[0][1] if [name for name, _ in children] == ["item"] else pa.struct(children))
