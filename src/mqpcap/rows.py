"""All messages of one protocol in a capture, as their rules read them, packed while they wait.

``tables`` gives the narrow columns of every message, a batch at a time; ``exchanges`` looks at all of them at once when
the capture is read. A capture may hold hundreds of millions of messages, so nothing is kept as wide as it came.

How a column is packed. Per batch, by what is in it: nothing at all where every value is null or the same; numbers as
their distance from the least of the batch, in as few bytes as the greatest needs; text, where it repeats, as packed
numbers of a dictionary. A column is made whole again, in order of time, each time it is asked for, and never all of
them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.matching import ascend, whole

I64 = NDArray[np.int64]
NO_ROWS: I64 = np.empty(0, np.int64)
KEYS = ("ts_ns", "first_packet", "stream_offset")
"""The order of rows."""
MAX_REPEATING = 4
"""Text counts as repeating where a batch has so many times fewer different values than rows."""
_WORDS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Integers: ``base`` plus ``steps`` (None: all are the base); ``valid`` has the rows that are not null."""

    n: int
    base: int
    steps: NDArray[Any] | None
    valid: NDArray[np.uint8] | None

    def into(self, out: NDArray[Any]) -> None:
        """Write the values; a null becomes the base."""
        if self.steps is None:
            out[:] = self.base
        else:
            # Distances of 64 bits wrap as their sums do.
            np.add(self.steps, out.dtype.type(self.base), out=out, casting="unsafe")

    @property
    def nothing(self) -> bool:
        """Whether every row is null."""
        return self.valid is not None and self.steps is None and not self.valid.any()

    def mask(self) -> NDArray[np.bool_]:
        """Which rows are null."""
        if self.valid is None:
            return np.zeros(self.n, np.bool_)
        null: NDArray[np.bool_] = np.unpackbits(self.valid, count=self.n, bitorder="little") == 0
        return null


@dataclass(frozen=True, slots=True)
class _Texts:
    """Values by their number in a dictionary; null as a number is null."""

    codes: _Numbers
    dictionary: pa.Array


@dataclass(frozen=True, slots=True)
class _Whole:
    """Values that do not pack."""

    array: pa.Array


_Part = _Numbers | _Texts | _Whole


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

    Batches come by ``add``, all with the same columns; a column may be a null column in some of them.
    """

    def __init__(self) -> None:
        self._types: dict[str, pa.DataType] = {}
        self._parts: dict[str, list[_Part]] = {}
        self._counts: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._moved: tuple[I64, I64] | None = None
        self._chosen: I64 | None = None

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
            if not pa.types.is_null(kind) or name not in self._types:
                self._types[name] = kind
            self._parts.setdefault(name, []).append(_packed(array))
        self._counts.append(table.num_rows)
        self._moved = None

    def join(self, other: "Rows") -> None:
        """Take in the rows of another, as they are packed there."""
        for name, kind in other._types.items():
            if not pa.types.is_null(kind) or name not in self._types:
                self._types[name] = kind
            self._parts.setdefault(name, []).extend(other._parts[name])
        self._counts += other._counts
        self._spans += other._spans
        self._moved = None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(self._counts) if self._chosen is None else len(self._chosen)

    def __getitem__(self, name: str) -> pa.Array:
        """A column, plain; KeyError if there is none."""
        kind, parts = self._types[name], self._parts[name]
        numbers = [part for part in parts if isinstance(part, _Numbers)]
        if all(part.nothing for part in numbers) and len(numbers) == len(parts):
            return pa.nulls(self.num_rows, kind)
        if len(numbers) == len(parts):
            return self._of_numbers(kind, numbers)
        if any(isinstance(part, _Whole) for part in parts):
            return self._taken(pa.concat_arrays([_plain(part, kind) for part in parts]))
        return self.coded(name).cast(kind)

    def bits(self, name: str) -> NDArray[np.int64]:
        """A column of 64-bit unsigned numbers as int64 with the same bits; null is 0."""
        parts = self._parts[name]
        out = np.zeros(sum(self._counts), np.int64)
        for part, at in zip(parts, self._places(), strict=True):
            if not isinstance(part, _Numbers):
                raise TypeError(f"column {name} holds numbers that are wider")
            part.into(out[at].view(np.uint64))
            if part.valid is not None:
                out[at][part.mask()] = 0
        return self._in_order(out)

    def known(self, name: str) -> NDArray[np.bool_]:
        """Where a column of numbers is not null."""
        out = np.zeros(sum(self._counts), np.bool_)
        for part, at in zip(self._parts[name], self._places(), strict=True):
            if not isinstance(part, _Numbers):
                raise TypeError(f"column {name} is not of numbers")
            if not part.nothing:
                out[at] = True if part.valid is None else ~part.mask()
        return self._in_order(out)

    def coded(self, name: str) -> pa.DictionaryArray:
        """A column of text as a dictionary."""
        kind, parts = self._types[name], self._parts[name]
        if any(isinstance(part, _Whole) for part in parts):
            return self[name].dictionary_encode()
        known: dict[object, int] = {}
        codes, null = np.empty(sum(self._counts), np.int32), np.zeros(sum(self._counts), np.bool_)
        for part, at in zip(parts, self._places(), strict=True):
            if isinstance(part, _Texts):
                part.codes.into(codes[at])
                null[at] = part.codes.mask()
                new = [known.setdefault(x, len(known)) for x in part.dictionary.to_pylist()]
                if new != list(range(len(new))):
                    codes[at] = np.array(new, np.int32)[codes[at]]
            else:
                codes[at], null[at] = 0, True
        return pa.DictionaryArray.from_arrays(
            self._array(codes, null, pa.int32()), pa.array(list(known), kind if len(known) else pa.string())
        )

    def chosen(self, rows: I64) -> "Rows":
        """Some of the rows, by their number here; ``add`` is over."""
        some = Rows()
        some._types, some._parts, some._counts, some._spans = self._types, self._parts, self._counts, self._spans
        some._moved = self._sorted()
        some._chosen = rows if self._chosen is None else self._chosen[rows]
        return some

    def _places(self) -> list[slice]:
        ends = np.cumsum([0, *self._counts]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def _of_numbers(self, kind: pa.DataType, parts: Sequence[_Numbers]) -> pa.Array:
        n = sum(self._counts)
        values: NDArray[Any] = np.empty(n, np.uint8 if pa.types.is_boolean(kind) else _dtype(kind))
        null = np.zeros(n, np.bool_) if any(part.valid is not None for part in parts) else None
        for part, at in zip(parts, self._places(), strict=True):
            part.into(values[at])
            if null is not None:
                null[at] = part.mask()
        return self._array(values, null, kind)

    def _array(self, values: NDArray[Any], null: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
        values, null = self._in_order(values), None if null is None else self._in_order(null)
        if null is not None and null.all():
            return pa.nulls(len(values), kind)
        mask = None if null is None or not null.any() else null
        if pa.types.is_boolean(kind):
            return pa.array(values.view(np.bool_), mask=mask)
        if pa.types.is_decimal128(kind):
            wide = np.zeros((len(values), 2), np.uint64)
            wide[:, 0] = values
            bits = None if mask is None else pa.array(~mask).buffers()[1]
            return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(wide)])
        return pa.array(values, mask=mask) if pa.types.is_integer(kind) else pa.nulls(len(values), kind)

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values, which are ours to change, by time."""
        to, source = self._sorted()
        if len(to):
            values[to] = values[source]
        return values if self._chosen is None else values.take(self._chosen)

    def _taken(self, array: pa.Array) -> pa.Array:
        to, _ = self._sorted()
        if not len(to) and self._chosen is None:
            return array
        return array.take(pa.array(self._in_order(np.arange(len(array)))))

    def _sorted(self) -> tuple[I64, I64]:
        """Places whose row is another, and which: batches are in order, but the next may begin before one ends."""
        if self._moved is None:
            self._moved = _NOWHERE
            places = self._places()
            later = np.minimum.accumulate([first for first, _ in self._spans][::-1])[::-1]
            earlier = np.maximum.accumulate([last for _, last in self._spans])
            ts_ns = self["ts_ns"].to_numpy()
            shared = [
                at.start + np.flatnonzero(_overlapping(ts_ns[at], earlier[i - 1 : i], later[i + 1 : i + 2]))
                for i, at in enumerate(places)
            ]
            to = np.concatenate([NO_ROWS, *shared])
            if len(to):
                keys = [self[name].to_numpy()[to] for name in KEYS[::-1]]
                self._moved = to, to[np.lexsort(keys)]
        return self._moved


_NOWHERE = NO_ROWS, NO_ROWS


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
    if pa.types.is_integer(kind):
        dtype: type = kind.to_pandas_dtype()
        return dtype
    return np.uint64 if pa.types.is_decimal128(kind) else np.int64


def _plain(part: _Part, kind: pa.DataType) -> pa.Array:
    """A part as Arrow."""
    if isinstance(part, _Whole):
        return part.array
    if isinstance(part, _Texts):
        codes = np.empty(part.codes.n, np.int32)
        part.codes.into(codes)
        return part.dictionary.take(pa.array(codes, mask=part.codes.mask()))
    one = Rows()
    one._counts, one._moved = [part.n], _NOWHERE
    return one._of_numbers(kind, [part])
