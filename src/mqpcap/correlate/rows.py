"""All messages of one protocol in a capture, as their rules read them, packed while they wait.

``tables`` gives the narrow columns of every message, a batch at a time; ``exchanges`` looks at all of them at once when
the capture is read. A capture may hold hundreds of millions of messages, so nothing is kept as wide as it came, and
what is more than a few megabytes waits in a temporary file.

How a column is packed. Per batch, by what is in it: nothing at all where every value is null or the same; numbers as
their distance from the least of the batch, in as few bytes as the greatest needs; text, where it repeats, as packed
numbers of a dictionary. A column is made whole again, in order of time, each time it is asked for, and never all of
them together; of some of the rows (``chosen``, ``blocks``) only those batches are looked at that they are in.
"""

import pickle
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import ascend, whole
from mqpcap.errors import let_go

I64 = NDArray[np.int64]
NO_ROWS: I64 = np.empty(0, np.int64)
ALL = slice(None)
KEYS = ("ts_ns", "first_packet", "stream_offset")
"""The order of rows."""
MAX_REPEATING = 4
"""Text counts as repeating where a batch has so many times fewer different values than rows."""
MAX_HELD_BYTES = 16 << 20
"""So much of the parts waits in memory; beyond it they wait in a temporary file."""
MIN_AWAY_BYTES = 256
"""Smaller parts stay: their place in a file is no smaller."""
MANY_MOVED = 4
"""Where one row of so many may be packed at another place than its own, the places of all are kept."""
SORTED_ROW_COUNT = 1 << 17
"""About so many rows are sorted at once."""
BLOCK_ROW_COUNT = 1 << 16
"""About so many rows are a block."""
_WORDS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Integers: ``base`` plus ``steps`` (None: all are the base); ``valid`` has the rows that are not null."""

    n: int
    base: int
    steps: NDArray[Any] | None
    valid: NDArray[np.uint8] | None

    def values(self, dtype: Any, rows: "_Which") -> NDArray[Any]:
        """The values of some rows; a null is the base."""
        if self.steps is None:
            return np.full(self.n if isinstance(rows, slice) else len(rows), self.base, dtype)
        # Distances of 64 bits wrap as their sums do.
        values: NDArray[Any] = np.add(self.steps[rows], np.dtype(dtype).type(self.base), dtype=dtype, casting="unsafe")
        return values

    @property
    def nothing(self) -> bool:
        """Whether every row is null."""
        return self.valid is not None and self.steps is None and not self.valid.any()

    def null(self, rows: "_Which") -> "NDArray[np.bool_] | None":
        """Which of some rows are null; None: none is."""
        if self.valid is None:
            return None
        null: NDArray[np.bool_] = np.unpackbits(self.valid, count=self.n, bitorder="little") == 0
        return null[rows]

    @property
    def nbytes(self) -> int:
        """What the values take."""
        return sum(array.nbytes for array in (self.steps, self.valid) if array is not None)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Values by their number in a dictionary; null as a number is null."""

    codes: _Numbers
    dictionary: pa.Array
    nothing = False

    @property
    def nbytes(self) -> int:
        """What the values take."""
        return self.codes.nbytes + int(self.dictionary.nbytes)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Values that do not pack."""

    array: pa.Array
    nothing = False

    @property
    def nbytes(self) -> int:
        """What the values take."""
        return int(self.array.nbytes)


_Part = _Numbers | _Texts | _Whole
_Which = slice | I64
"""Rows of a part: all, or by number."""


class _Shelf:
    """A temporary file of parts; gone with the last of them."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="mqpcap-rows-")  # noqa: SIM115 - closed with the shelf
        weakref.finalize(self, let_go, self._file)

    def put(self, part: _Part) -> tuple[int, int]:
        """Where the part is now, and how long."""
        return self._file.seek(0, 2), self._file.write(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))

    def part(self, at: int, length: int) -> _Part:
        """The part at a place."""
        self._file.seek(at)
        part: _Part = pickle.loads(self._file.read(length))  # written here; the file has no name
        return part


class _Away:
    """A part on the shelf; of what kind it is, is known without reading it."""

    __slots__ = ("_place", "_shelf", "kind", "nothing")

    def __init__(self, part: _Part, shelf: _Shelf) -> None:
        self.kind, self.nothing = type(part), part.nothing
        self._shelf, self._place = shelf, shelf.put(part)

    def part(self) -> _Part:
        """The part, read again."""
        return self._shelf.part(*self._place)


def _kind(part: _Part | _Away) -> type:
    return part.kind if isinstance(part, _Away) else type(part)


def _here(part: _Part | _Away) -> _Part:
    return part.part() if isinstance(part, _Away) else part


def _numbers(values: NDArray[Any], null: NDArray[np.bool_] | None) -> _Numbers:
    n = len(values)
    if null is not None and not null.any():
        null = None
    some = values if null is None else values[~null]
    if not len(some):
        return _Numbers(n, 0, None, np.zeros((n + 7) // 8, np.uint8))
    low, high = int(some.min()), int(some.max())
    valid = None if null is None else np.packbits(~null, bitorder="little")
    if low == high:
        return _Numbers(n, low, None, valid)
    word = next((w for w in _WORDS if high - low <= np.iinfo(w).max), None)
    if word is None:
        return _Numbers(n, 0, values.copy() if null is None else np.where(null, 0, values), valid)
    steps = np.subtract(values, low, dtype=values.dtype)
    if null is not None:
        steps[null] = 0
    return _Numbers(n, low, steps.astype(word), valid)


def _packed(array: pa.Array) -> _Part:
    n, kind = len(array), array.type
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if array.null_count == n:
        return _numbers(np.zeros(n, np.int64), np.ones(n, np.bool_))
    if pa.types.is_boolean(kind):
        return _numbers(pc.fill_null(array, False).cast(pa.uint8()).to_numpy(), null)
    if pa.types.is_integer(kind):
        return _numbers(_values(array), null)
    if pa.types.is_decimal128(kind):
        low, high = _words(array)
        return _Whole(_owned(array)) if high[~null if null is not None else slice(None)].any() else _numbers(low, null)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        encoded = array.dictionary_encode()
        if len(encoded.dictionary) * MAX_REPEATING > n:
            return _Whole(_owned(array))
        array = encoded
    if pa.types.is_dictionary(array.type):
        codes = array.indices
        null = codes.is_null().to_numpy(zero_copy_only=False) if codes.null_count else None
        return _Texts(_numbers(_values(codes), null), _owned(array.dictionary))
    return _Whole(_owned(array))


def _values(array: pa.Array) -> NDArray[Any]:
    """The values of an integer column, whatever they are where it is null."""
    dtype = array.type.to_pandas_dtype()
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    return values


def _words(array: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The low and the high half of decimals."""
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    return words[::2], words[1::2]


def _owned(array: pa.Array) -> pa.Array:
    """A copy that keeps no larger memory alive."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], ["x"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch().column(0)


class Rows:
    """The rows of one protocol by time, packet and stream offset; ``rows[name]`` is one column of them.

    Batches come by ``add``, all with the same columns; a column may be a null column in some of them. What is more than
    ``held_bytes`` (MAX_HELD_BYTES unless told) waits in a temporary file.
    """

    def __init__(self, held_bytes: int | None = None) -> None:
        self._max_held_bytes = MAX_HELD_BYTES if held_bytes is None else held_bytes
        self._types: dict[str, pa.DataType] = {}
        self._parts: dict[str, list[_Part | _Away]] = {}
        self._counts: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._held_bytes = 0
        self._shelf: _Shelf | None = None
        self._moved: tuple[I64, I64] | None = None
        self._every: NDArray[np.signedinteger[Any]] | None = None
        self._chosen: _Chosen | None = None

    def add(self, table: pa.Table) -> None:
        """Take a batch in."""
        if not table.num_rows:
            for field in table.schema:
                self._types.setdefault(field.name, field.type)
                self._parts.setdefault(field.name, [])
            return
        table = _ascending(table)
        ts_ns = table["ts_ns"]
        self._spans.append((ts_ns[0].as_py(), ts_ns[-1].as_py()))
        for name in table.column_names:
            array = whole(table[name])
            kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
            self._take(name, kind, [_packed(array)])
        self._counts.append(table.num_rows)
        self._added()

    def join(self, other: "Rows") -> None:
        """Take in the rows of another, as they are packed there."""
        for name, kind in other._types.items():
            self._take(name, kind, other._parts[name])
        self._counts += other._counts
        self._spans += other._spans
        self._added()

    def _take(self, name: str, kind: pa.DataType, parts: "Sequence[_Part | _Away]") -> None:
        if not pa.types.is_null(kind) or name not in self._types:
            self._types[name] = kind
        self._parts.setdefault(name, []).extend(parts)
        self._held_bytes += sum(part.nbytes for part in parts if not isinstance(part, _Away))

    def _added(self) -> None:
        self._moved = self._every = None
        if self._held_bytes <= self._max_held_bytes:
            return
        self._shelf = self._shelf or _Shelf()
        for parts in self._parts.values():
            for i, part in enumerate(parts):
                if not isinstance(part, _Away) and part.nbytes >= MIN_AWAY_BYTES:
                    parts[i] = _Away(part, self._shelf)
        self._held_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for another process."""
        parts = {name: [_here(part) for part in parts] for name, parts in self._parts.items()}
        return self.__dict__ | {"_parts": parts, "_shelf": None}

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(self._counts) if self._chosen is None else len(self._chosen.rows)

    def __getitem__(self, name: str) -> pa.Array:
        """A column, plain; KeyError if there is none."""
        kind, kinds = self._types[name], {_kind(part) for part in self._parts[name]}
        if all(part.nothing for part in self._parts[name]):
            return pa.nulls(self.num_rows, kind)
        if _Whole in kinds:
            return self._joined(name)
        if _Texts in kinds:
            return self.coded(name).cast(kind)
        return self._of_numbers(name, kind)

    def bits(self, name: str) -> NDArray[np.int64]:
        """A column of 64-bit unsigned numbers as int64 with the same bits; null is 0."""
        out = np.zeros(self.num_rows, np.int64)
        for part, rows, at in self._visits(name):
            if not isinstance(part, _Numbers):
                raise TypeError(f"column {name} holds numbers that are wider")
            if part.nothing:
                continue
            values, null = part.values(np.uint64, rows), part.null(rows)
            if null is not None:
                values[null] = 0
            out[at] = values.view(np.int64)
        return self._in_order(out)

    def known(self, name: str) -> NDArray[np.bool_]:
        """Where a column of numbers is not null."""
        out = np.zeros(self.num_rows, np.bool_)
        for part, rows, at in self._visits(name):
            if not isinstance(part, _Numbers):
                raise TypeError(f"column {name} is not of numbers")
            null = part.null(rows)
            out[at] = True if null is None else ~null
        return self._in_order(out)

    def coded(self, name: str) -> pa.DictionaryArray:
        """A column of text as a dictionary."""
        kind, n = self._types[name], self.num_rows
        if any(_kind(part) is _Whole for part in self._parts[name]):
            return self._joined(name).dictionary_encode()
        known: dict[object, int] = {}
        codes, null = np.zeros(n, np.int32), _Nulls(n)
        for part, rows, at in self._visits(name):
            if not isinstance(part, _Texts):
                null.put(at, True)
                continue
            values = part.codes.values(np.int32, rows)
            null.put(at, part.codes.null(rows))
            new = [known.setdefault(x, len(known)) for x in part.dictionary.to_pylist()]
            codes[at] = values if new == list(range(len(new))) else np.array(new, np.int32)[values]
        return pa.DictionaryArray.from_arrays(
            self._array(codes, null, pa.int32()), pa.array(list(known), kind if len(known) else pa.string())
        )

    def chosen(self, rows: I64) -> "Rows":
        """Some of the rows, by their number here; ``add`` is over."""
        return self._some(self._packed_at(rows) if self._chosen is None else self._chosen.rows[rows])

    def _some(self, packed: I64) -> "Rows":
        """Some of the rows, by the places at which they are packed."""
        # Only the parts that they are in, so that a block costs the same however many there are.
        ends = np.cumsum(self._counts)
        span = (packed.min(), packed.max()) if len(packed) else (0, 0)
        first, last = np.searchsorted(ends, span, "right").tolist()
        some = Rows()
        some._types, some._counts = self._types, self._counts[first : last + 1]
        some._parts = {name: parts[first : last + 1] for name, parts in self._parts.items()}
        some._chosen = _Chosen(packed - (ends[first - 1] if first else 0))
        return some

    def _packed_at(self, rows: I64) -> I64:
        """The places at which rows are packed."""
        to, source = self._sorted()
        if self._every is not None:
            return self._every[rows].astype(np.int64)
        packed = rows.copy()
        if len(to):
            at = np.minimum(np.searchsorted(to, packed), len(to) - 1)
            moved = to[at] == packed
            packed[moved] = source[at[moved]]
        return packed

    def _stretch(self, start: int, end: int) -> "Rows":
        """The rows from one number to another."""
        if self._chosen is not None:
            return self._some(self._chosen.rows[start:end])
        to, source = self._sorted()
        if self._every is not None:
            return self._some(self._every[start:end].astype(np.int64))
        packed = np.arange(start, end)
        first, last = np.searchsorted(to, (start, end)).tolist()
        packed[to[first:last] - start] = source[first:last]
        return self._some(packed)

    def blocks(self) -> "Iterator[tuple[int, Rows]]":
        """All rows, a stretch of them at a time, each with the number of its first."""
        start = 0
        cut = range(0, self.num_rows, BLOCK_ROW_COUNT)
        for end in cut if self._chosen is not None else np.cumsum(self._counts).tolist():
            if end - start >= BLOCK_ROW_COUNT:
                yield start, self._stretch(start, end)
                start = end
        if start < self.num_rows:
            yield start, self._stretch(start, self.num_rows)

    def tables(self) -> Iterator[pa.Table]:
        """All rows as they were added, about as many at a time as a block has."""
        for _, block in self.blocks():
            yield pa.table({name: block[name] for name in self._types})

    def _places(self) -> list[slice]:
        ends = np.cumsum([0, *self._counts]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def _visits(self, name: str) -> Iterator[tuple[_Part, _Which, _Which]]:
        """The parts that the rows are in: of each the rows, and their places in a result not yet in order."""
        places = self._places()
        if self._chosen is None:
            yield from ((_here(part), ALL, at) for part, at in zip(self._parts[name], places, strict=True))
            return
        for i, rows, at in self._chosen.visits(places):
            yield _here(self._parts[name][i]), rows, at

    def _joined(self, name: str) -> pa.Array:
        """A column some parts of which do not pack."""
        kind = self._types[name]
        arrays, at = [pa.array([], kind)], [NO_ROWS]
        for part, rows, places in self._visits(name):
            array = _plain(part, kind)
            arrays.append(array if isinstance(rows, slice) else array.take(pa.array(rows)))
            at.append(np.arange(places.start, places.stop) if isinstance(places, slice) else places)
        array, place = pa.concat_arrays(arrays), np.concatenate(at)
        order = np.empty(len(place), np.int64)
        order[place] = np.arange(len(place))
        order = self._in_order(order)
        return array if (order[1:] > order[:-1]).all() else array.take(pa.array(order))

    def _of_numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        n = self.num_rows
        dtype = _dtype(kind)
        values: NDArray[Any] = np.empty(n, dtype)
        null = _Nulls(n)
        for part, rows, at in self._visits(name):
            assert isinstance(part, _Numbers)
            values[at] = part.values(dtype, rows)
            null.put(at, part.null(rows))
        return self._array(values, null, kind)

    def _array(self, values: NDArray[Any], null: "_Nulls", kind: pa.DataType) -> pa.Array:
        return _arrow(self._in_order(values), None if null.mask is None else self._in_order(null.mask), kind)

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values, which are ours to change, by time."""
        to, source = self._sorted()
        if self._every is not None and self._chosen is None:
            ordered: NDArray[Any] = values[self._every]
            return ordered
        if len(to):
            values[to] = values[source]
        return values

    def _sorted(self) -> tuple[I64, I64]:
        """Places whose row is another, and which: batches are in order, but the next may begin before one ends.

        None where they are many: then ``_every`` has the places of all.
        """
        if self._chosen is not None:
            return NO_ROWS, NO_ROWS
        if self._moved is None:
            shared = list(self._overlapping())
            if sum(len(rows) for _, rows in shared) * MANY_MOVED >= max(self.num_rows, 1):
                self._moved, self._every = (NO_ROWS, NO_ROWS), self._merged()
                return self._moved
            starts = [at.start for at in self._places()]
            to = np.concatenate([NO_ROWS, *(starts[i] + rows for i, rows in shared)])
            self._moved = to, to[self._by_keys(shared)]
        return self._moved

    def _overlapping(self) -> Iterator[tuple[int, I64]]:
        """The batches that begin before one in front of them ends, or end behind the next, and which of their rows."""
        later = np.minimum.accumulate([first for first, _ in self._spans][::-1])[::-1]
        earlier = np.maximum.accumulate([last for _, last in self._spans])
        for i, (first, last) in enumerate(self._spans):
            before, behind = earlier[i - 1 : i], later[i + 1 : i + 2]
            if (before >= first).any() or (behind <= last).any():
                ts_ns = _never_null(self._parts[KEYS[0]][i])
                yield i, np.flatnonzero(_overlapping(ts_ns, before, behind))

    def _by_keys(self, some: Sequence[tuple[int, I64]]) -> I64:
        """The order of rows of some batches, by KEYS."""
        keys = [np.empty((len(KEYS), 0), np.int64)]
        keys += [np.stack([_never_null(self._parts[name][i], rows) for name in KEYS]) for i, rows in some]
        return np.lexsort(np.concatenate(keys, axis=1)[::-1])

    def _merged(self) -> NDArray[np.signedinteger[Any]]:
        """The place at which each row is packed, a stretch of time after the other."""
        n, filled = self.num_rows, 0
        every: NDArray[np.signedinteger[Any]] = np.empty(n, np.int32 if n <= np.iinfo(np.int32).max else np.int64)
        starts, done = [at.start for at in self._places()], [0] * len(self._counts)
        for until in self._stretches():
            some = []
            for i, (first, last) in enumerate(self._spans):
                if (until is None or first < until) and done[i] < self._counts[i]:
                    end = self._counts[i]
                    if until is not None and last >= until:
                        end = int(np.searchsorted(_never_null(self._parts[KEYS[0]][i]), until))
                    some.append((i, np.arange(done[i], end)))
                    done[i] = end
            places = np.concatenate([NO_ROWS, *(starts[i] + rows for i, rows in some)])
            every[filled : filled + len(places)] = places[self._by_keys(some)]
            filled += len(places)
        return every

    def _stretches(self) -> Iterator[int | None]:
        """The ends of stretches of time in which there are about SORTED_ROW_COUNT rows; None for the last."""
        row_count = 0
        for (first, _), count in sorted(zip(self._spans, self._counts, strict=True)):
            if row_count >= SORTED_ROW_COUNT:
                yield first
                row_count = 0
            row_count += count
        yield None


class _Nulls:
    """Where n rows are null; ``mask`` is None as long as none is."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.mask: NDArray[np.bool_] | None = None

    def put(self, at: _Which, null: "NDArray[np.bool_] | bool | None") -> None:
        """Rows at some places."""
        if null is not None:
            if self.mask is None:
                self.mask = np.zeros(self._n, np.bool_)
            self.mask[at] = null


class _Chosen:
    """Some rows, by their number in the order in which they are packed."""

    def __init__(self, rows: I64) -> None:
        self.rows = rows
        ascending = bool((rows[1:] > rows[:-1]).all())
        self._order = None if ascending else np.argsort(rows, kind="stable")
        self._ascending = rows if self._order is None else rows[self._order]
        self._visits: list[tuple[int, _Which, _Which]] | None = None

    def visits(self, places: Sequence[slice]) -> list[tuple[int, _Which, _Which]]:
        """The parts that hold any: the number of the part, rows of it, and their places here."""
        if self._visits is None:
            self._visits = list(self._found(places))
        return self._visits

    def _found(self, places: Sequence[slice]) -> Iterator[tuple[int, _Which, _Which]]:
        if not len(self.rows):
            return
        starts = np.array([at.start for at in places])
        bounds = np.append(np.searchsorted(self._ascending, starts), len(self.rows)).tolist()
        for i, (a, b) in enumerate(pairwise(bounds)):
            if a == b:
                continue
            if self._order is not None:
                yield i, self._ascending[a:b] - places[i].start, self._order[a:b]
            elif b - a == places[i].stop - places[i].start:
                yield i, ALL, slice(a, b)
            else:
                yield i, self._ascending[a:b] - places[i].start, slice(a, b)


def _overlapping(ts_ns: I64, earlier: I64, later: I64) -> NDArray[np.bool_]:
    """Which rows of a batch are not behind the end of those before it and in front of the start of those behind."""
    rows = np.zeros(len(ts_ns), np.bool_)
    if len(earlier):
        rows[: np.searchsorted(ts_ns, earlier[0], "right")] = True
    if len(later):
        rows[np.searchsorted(ts_ns, later[0], "left") :] = True
    return rows


def _ascending(table: pa.Table) -> pa.Table:
    """The rows of a batch by KEYS."""
    keys = [table[name].to_numpy() for name in KEYS]
    return table if ascend(keys) else table.take(pa.array(np.lexsort(keys[::-1])))


def _dtype(kind: pa.DataType) -> type:
    if pa.types.is_boolean(kind):
        return np.uint8
    if pa.types.is_integer(kind):
        dtype: type = kind.to_pandas_dtype()
        return dtype
    return np.uint64 if pa.types.is_decimal128(kind) else np.int64


def _arrow(values: NDArray[Any], mask: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """Numbers as a column of their type, null where the mask says."""
    if mask is not None and mask.all():
        return pa.nulls(len(values), kind)
    if pa.types.is_boolean(kind):
        return pa.array(values.view(np.bool_), mask=mask)
    if pa.types.is_decimal128(kind):
        wide = np.zeros((len(values), 2), np.uint64)
        wide[:, 0] = values
        bits = None if mask is None else pa.array(~mask).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(wide)])
    return pa.array(values, mask=mask)


def _never_null(part: _Part | _Away, rows: _Which = ALL) -> I64:
    """The values of a column that is never null."""
    part = _here(part)
    assert isinstance(part, _Numbers)
    return part.values(np.int64, rows)


def _plain(part: _Part, kind: pa.DataType) -> pa.Array:
    """A part as Arrow."""
    if isinstance(part, _Whole):
        return part.array
    numbers, dtype = (part.codes, np.int32) if isinstance(part, _Texts) else (part, _dtype(kind))
    if numbers.nothing:
        return pa.nulls(numbers.n, kind)
    values, null = numbers.values(dtype, ALL), numbers.null(ALL)
    if isinstance(part, _Texts):
        return part.dictionary.take(pa.array(values, mask=null))
    return _arrow(values, null, kind)
