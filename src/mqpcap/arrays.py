"""Equal values found across rows, for the rules that tie messages together."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

I64 = NDArray[np.int64]
MAX_LOOKUP_SPAN = 1 << 16
"""Numbers this close together are told apart by a table of them; others, unless they are many, by sorting."""
MERGED = 1 << 18
"""Blocks of a tally are merged when they have so many keys, or as many as are known."""


CODED = pa.dictionary(pa.int32(), pa.string())


def compact(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema with some columns of text as dictionaries."""
    return pa.schema([field.with_type(CODED) if field.name in names else field for field in schema])


def constant(text: str, n: int) -> pa.DictionaryArray:
    """One text n times, as CODED."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([text]))


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array; what is in one piece is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def unified(table: pa.Table) -> pa.Table:
    """The table with one dictionary for each column of them.

    Unlike pyarrow's own, which looks up what stands in null slots too: outside of the dictionary, and of memory.

    >>> unified(pa.concat_tables([pa.table({"x": pa.array([t]).dictionary_encode()}) for t in "ab"]))["x"].to_pylist()
    ['a', 'b']
    """
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
            table = table.set_column(i, table.field(i), _one_dictionary(column))
    return table


def _one_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    first = column.chunk(0).dictionary
    if all(chunk.dictionary.equals(first) for chunk in column.chunks[1:]):
        return column
    values = pa.concat_arrays([chunk.dictionary for chunk in column.chunks]).unique()
    chunks = []
    for chunk in column.chunks:
        codes = pc.index_in(chunk.dictionary, values).take(chunk.indices)  # a null takes nothing
        chunks.append(pa.DictionaryArray.from_arrays(codes, values))
    return pa.chunked_array(chunks)


def is_in(column: pa.Array | pa.ChunkedArray, *values: object) -> NDArray[np.bool_]:
    """Where a column that repeats has one of the values; nowhere where it is null.

    >>> is_in(pa.array(["a", None, "b"]).dictionary_encode(), "b", "c").tolist()
    [False, False, True]
    """
    encoded = dictionary(column)
    hit = np.array([*(x in values for x in encoded.dictionary.to_pylist()), False])
    at: NDArray[np.int32] = pc.fill_null(encoded.indices, len(hit) - 1).to_numpy()
    return hit[at]


def case_when(words: Mapping[str, NDArray[np.bool_]]) -> pa.DictionaryArray:
    """For each row the word whose mask has it, the last of several, null if none has: as CODED.

    >>> case_when({"ok": np.array([True, True, False]), "error": np.array([True, False, False])}).to_pylist()
    ['error', 'ok', None]
    """
    n = len(next(iter(words.values())))
    at, null = np.zeros(n, np.int32), np.ones(n, np.bool_)
    for i, mask in enumerate(words.values()):
        at[mask], null[mask] = i, False
    return pa.DictionaryArray.from_arrays(pa.array(at, mask=null), pa.array(list(words), pa.string()))


def true(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a column of truths is true."""
    truths: NDArray[np.bool_] = pc.fill_null(whole(column), False).to_numpy(zero_copy_only=False)
    return truths


def dictionary(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as a dictionary, whatever it is."""
    array = whole(column)
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def group_ids(columns: Sequence[pa.Array | pa.ChunkedArray], n: int) -> I64:
    """A number per row (n of them), equal exactly where all columns are; nulls equal each other.

    >>> group_ids([pa.array(["a", "b", "a"]), pa.array([1, 1, 1])], 3).tolist()
    [0, 1, 0]
    """
    key = np.zeros(n, np.int64)
    for column in columns:
        encoded = dictionary(column)
        one = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        both = pa.array(key * (len(encoded.dictionary) + 1) + one)
        key = both.dictionary_encode().indices.to_numpy().astype(np.int64)
    return key


def factorize(values: I64) -> tuple[I64, I64]:
    """The different values in ascending order, and for each row which of them it has.

    >>> [x.tolist() for x in factorize(np.array([7, 5, 7]))]
    [[5, 7], [1, 0, 1]]
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= MAX_LOOKUP_SPAN + 4 * len(values):
        distinct, place = np.unique(values, return_inverse=True)
        return distinct, place.reshape(-1)
    at = values - low
    there = np.zeros(high - low + 1, np.bool_)
    there[at] = True
    return np.flatnonzero(there[: len(values) and len(there)]) + low, (np.cumsum(there) - 1)[at]


class Tally:
    """What is known of keys that come a block at a time, each block with each of its keys once.

    ``how``: for each column beside the key the ufunc that makes one value of those of a key.
    """

    def __init__(self, *how: np.ufunc) -> None:
        self._how = how
        self._known: I64 = np.empty((1 + len(how), 0), np.int64)
        self._seen: list[I64] = []

    def add(self, keys: I64, *columns: I64) -> None:
        """Take a block in."""
        self._seen.append(np.stack([keys, *columns]))
        if sum(part.shape[1] for part in self._seen) > max(MERGED, self._known.shape[1]):
            self._merge()

    def _merge(self) -> None:
        every = np.concatenate([self._known, *self._seen], axis=1)
        self._seen = []
        every = every[:, np.argsort(every[0], kind="stable")]
        at = np.flatnonzero(np.diff(every[0], prepend=every[0, :1] - 1))
        columns = [how.reduceat(column, at) for how, column in zip(self._how, every[1:], strict=True)]
        self._known = np.stack([every[0, at], *columns])

    def columns(self) -> I64:
        """The keys, ascending, and the columns, a row each."""
        self._merge()
        return self._known


def groups(first: I64, weights: I64, weight: int) -> NDArray[np.int32]:
    """The number of each one's group, in the order of ``first``, those of a group together about so heavy."""
    order = np.argsort(first, kind="stable")
    group = np.empty(len(order), np.int32)
    group[order] = np.maximum(np.cumsum(weights[order]) - 1, 0) // weight
    return group


def ascend(keys: Sequence[NDArray[np.generic]]) -> bool:
    """Whether rows are in order of the first key, where it is equal of the second, and so on."""
    equal = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if (equal & (key[1:] < key[:-1])).any():  # type: ignore[operator]  # arrays of integers
            return False
        equal &= key[1:] == key[:-1]
        if not equal.any():
            break
    return True


def sole_sources(key: I64, source: I64, sink: I64, ts_ns: I64) -> tuple[I64, I64, int]:
    """For each sink row the one source row of equal key that came no later.

    Returns source rows, their sink rows, and how many sinks were left out because several sources, or one that
    came later, have their key: which one is meant cannot be told. A sink without any source is not counted.
    """
    if not len(sink):
        return np.empty(0, np.int64), np.empty(0, np.int64), 0
    found, first, count = np.unique(key[source], return_index=True, return_counts=True)
    if not len(found) or not len(sink):
        return np.empty(0, np.int64), np.empty(0, np.int64), 0
    at = np.minimum(np.searchsorted(found, key[sink]), len(found) - 1)
    hit = found[at] == key[sink]
    one = source[first[at]]
    sure = hit & (count[at] == 1) & (ts_ns[one] <= ts_ns[sink])
    return one[sure], sink[sure], int((hit & ~sure).sum())
