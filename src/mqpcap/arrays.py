"""Helpers for Arrow and NumPy columns: dictionaries, masks of rows, groups of equal values.

In: arrays. Out: arrays. Called by: all packages.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.records import dataclass

Int64Array = NDArray[np.int64]
MAX_LOOKUP_SPAN = 1 << 16
"""`factorize` uses a lookup table for integers within this range, and sorts wider ranges unless rows are many."""

DICTIONARY_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Type of text columns with few distinct values."""


def file_text(name: str) -> str:
    r"""A file's name as text: bytes that are not UTF-8 are escaped, so that different names have different texts.

    A backslash that looks like the beginning of an escape is escaped, too.

    >>> file_text("a\udcff.pcap"), file_text(r"a\xff.pcap"), file_text("tópico.pcap")
    ('a\\xff.pcap', 'a\\x5cxff.pcap', 'tópico.pcap')
    """
    raw = name.encode("utf-8", "surrogateescape")
    return _LIKE_ESCAPE.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


_LIKE_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")


def append_columns(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The rows with further columns after their own."""
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def constant(text: str, n: int) -> pa.DictionaryArray:
    """n rows with the same text, as DICTIONARY_TEXT."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([text]), safe=False)


def single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy if it has one chunk."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def without_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same values as plain ones.

    >>> without_dictionary(pa.array(["a", "b", "a"]).dictionary_encode()).to_pylist()
    ['a', 'b', 'a']
    """
    array = single_array(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def unify_dictionaries(table: pa.Table) -> pa.Table:
    """The table with one dictionary per dictionary column.

    pyarrow's ``unify_dictionaries`` also looks up the codes of null rows, which may lie outside of memory.

    >>> tables = [pa.table({"x": pa.array([text]).dictionary_encode()}) for text in "ab"]
    >>> unify_dictionaries(pa.concat_tables(tables))["x"].to_pylist()
    ['a', 'b']
    """
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
            table = table.set_column(i, table.field(i), _one_dictionary(column))
    return table


def _one_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    first_dictionary = column.chunk(0).dictionary
    if all(chunk.dictionary.equals(first_dictionary) for chunk in column.chunks[1:]):
        return column
    # All dictionaries are encoded together: a look-up per chunk would hash all values for each of them.
    encoded = pa.concat_arrays([chunk.dictionary for chunk in column.chunks]).dictionary_encode()
    chunks, first_code = [], 0
    for chunk in column.chunks:
        codes = encoded.indices.slice(first_code, len(chunk.dictionary)).take(chunk.indices)  # null rows stay null
        chunks.append(pa.DictionaryArray.from_arrays(codes, encoded.dictionary))
        first_code += len(chunk.dictionary)
    return pa.chunked_array(chunks)


def drop_unused_values(table: pa.Table) -> pa.Table:
    """The table with only those values in its dictionaries that its rows have.

    >>> table = pa.table({"x": pa.array(["a", "b", None, "b"]).dictionary_encode()})
    >>> drop_unused_values(table.slice(1))["x"].chunk(0).dictionary.to_pylist()
    ['b']
    """
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            codes, values = single_array(column).indices, single_array(column).dictionary
            used = pc.unique(codes.drop_null())
            column = pa.DictionaryArray.from_arrays(pc.index_in(codes, used), values.take(used))
            table = table.set_column(i, table.field(i), column)
    return table


def with_list_values(lists: pa.ListArray, items: pa.Array) -> pa.ListArray:
    """Lists of the same lengths with other values: ``items`` replace ``lists.flatten()``.

    >>> with_list_values(pa.array([[1, 2], None, [3]]), pa.array(["a", "b", "c"])).to_pylist()
    [['a', 'b'], None, ['c']]
    """
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pc.is_null(lists) if lists.null_count else None)


def is_in(column: pa.Array | pa.ChunkedArray, *values: object) -> NDArray[np.bool_]:
    """A mask of the rows with any of the values, for columns with few distinct values; False for null.

    >>> is_in(pa.array(["a", None, "b"]).dictionary_encode(), "b", "c").tolist()
    [False, False, True]
    """
    encoded = dictionary(column)
    hit = np.array([*(x in values for x in encoded.dictionary.to_pylist()), False])
    return hit.take(codes_of(encoded))


def case_when(words: Mapping[str, NDArray[np.bool_]]) -> pa.DictionaryArray:
    """For each row the last word whose mask is true, null without any, as DICTIONARY_TEXT.

    >>> case_when({"ok": np.array([True, True, False]), "error": np.array([True, False, False])}).to_pylist()
    ['error', 'ok', None]
    """
    n = len(next(iter(words.values())))
    codes, null = np.zeros(n, np.int32), np.ones(n, np.bool_)
    for i, mask in enumerate(words.values()):
        codes[mask], null[mask] = i, False
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=null), pa.array(list(words), pa.string()))


def true_mask(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """A column of booleans as a mask; null is False."""
    truths: NDArray[np.bool_] = pc.fill_null(single_array(column), False).to_numpy(zero_copy_only=False)
    return truths


def dictionary(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as one dictionary array."""
    array = single_array(column)
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def codes_of(column: pa.DictionaryArray) -> NDArray[np.integer]:
    """For each row the code of its value in the dictionary; null has the code after the last."""
    codes = column.indices
    filled: NDArray[np.integer] = (
        pc.fill_null(codes, len(column.dictionary)) if codes.null_count else codes
    ).to_numpy()
    return filled


def is_identity(rows: NDArray[np.intp], n: int) -> bool:
    """Whether row numbers are 0 to n - 1 in order, so that taking them changes nothing.

    >>> is_identity(np.array([0, 1]), 2), is_identity(np.array([1, 0]), 2), is_identity(np.array([0]), 2)
    (True, False, False)
    """
    return len(rows) == n and bool((np.diff(rows) == 1).all())


def group_ids(columns: Sequence[pa.Array | pa.ChunkedArray], n: int) -> Int64Array:
    """A number for each of n rows, equal if and only if all columns are equal; nulls equal each other.

    >>> group_ids([pa.array(["a", "b", "a"]), pa.array([1, 1, 1])], 3).tolist()
    [0, 1, 0]
    """
    key = np.zeros(n, np.int64)
    for column in columns:
        encoded = dictionary(column)
        both = pa.array(key * (len(encoded.dictionary) + 1) + codes_of(encoded))
        key = both.dictionary_encode().indices.to_numpy().astype(np.int64)
    return key


def factorize(values: NDArray[np.signedinteger]) -> tuple[Int64Array, Int64Array]:
    """The distinct values in ascending order, and for each row the index of its value.

    >>> [x.tolist() for x in factorize(np.array([7, 5, 7]))]
    [[5, 7], [1, 0, 1]]
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= MAX_LOOKUP_SPAN + 4 * len(values):
        distinct, codes = np.unique(values, return_inverse=True)
        return distinct, codes.reshape(-1)
    shifted = values - low
    is_present = np.zeros(high - low + 1, np.bool_)
    is_present[shifted] = True
    return np.flatnonzero(is_present[: len(values) and len(is_present)]) + low, (np.cumsum(is_present) - 1).take(
        shifted
    )


def is_sorted(keys: Iterable[NDArray[np.generic]]) -> bool:
    """Whether rows are sorted by the first key, rows with equal first keys by the second, and so on.

    ``keys`` is consumed lazily: once no two adjacent rows are equal, later keys are not computed.
    """
    equal: NDArray[np.bool_] | None = None
    for key in keys:
        falls = key[1:] < key[:-1]  # type: ignore[operator]  # arrays of integers
        if (falls if equal is None else equal & falls).any():
            return False
        equal_key = key[1:] == key[:-1]
        equal = equal_key if equal is None else equal & equal_key
        if not equal.any():
            break
    return True


def low_words(column: pa.Array | pa.ChunkedArray, null: int = 0) -> Int64Array:
    """The low 64 bits of a column of decimals.

    >>> low_words(pa.array([1, None], pa.decimal128(20, 0)), -1).tolist()
    [1, -1]
    """
    array = single_array(column)
    if array.null_count == len(array):
        return np.full(len(array), null, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), words, null) if array.null_count else words


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Columns of the same rows, a field each: arrays of NumPy or Arrow, or tables.

    ``SHARED`` names fields that all rows share, for example the buffer that offsets point into. A column may be None.
    """

    SHARED: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def column_names(cls) -> list[str]:
        """The fields with an entry per row."""
        return [x.name for x in fields(cls) if x.name not in cls.SHARED]

    def taken(self, rows: NDArray[np.intp] | slice) -> Self:
        """The rows with these numbers; the same object if they are all rows in order."""
        columns = {name: x for name in self.column_names() if (x := getattr(self, name)) is not None}
        if isinstance(rows, slice):
            return replace(self, **{name: column[rows] for name, column in columns.items()})
        if is_identity(rows, len(next(iter(columns.values())))):
            return self
        arrow_rows = None if all(isinstance(x, np.ndarray) for x in columns.values()) else pa.array(rows)
        return replace(
            self, **{name: x.take(rows if isinstance(x, np.ndarray) else arrow_rows) for name, x in columns.items()}
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in order; fields that rows share are those of the first part."""
        if len(parts) == 1:
            return parts[0]
        names = [name for name in cls.column_names() if getattr(parts[0], name) is not None]
        return replace(parts[0], **{name: _concatenated([getattr(part, name) for part in parts]) for name in names})


def _concatenated(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    if isinstance(columns[0], pa.Table):
        return unify_dictionaries(pa.concat_tables(columns, promote_options="default")).combine_chunks()
    return pa.concat_arrays(columns)
