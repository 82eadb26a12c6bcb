"""Columns of Arrow and numpy: their dictionaries, masks of rows, and equal values found across rows."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
MAX_LOOKUP_SPAN = 1 << 16
"""Numbers this close together are told apart by a table of them; others, unless they are many, by sorting."""

DICTIONARY_TEXT = pa.dictionary(pa.int32(), pa.string())


def file_text(name: str) -> str:
    r"""A file's name as text: bytes that are not UTF-8 are escaped, so that different names have different texts.

    A backslash that would look like the begin of such an escape is escaped, too.

    >>> file_text("a\udcff.pcap"), file_text(r"a\xff.pcap"), file_text("tópico.pcap")
    ('a\\xff.pcap', 'a\\x5cxff.pcap', 'tópico.pcap')
    """
    raw = name.encode("utf-8", "surrogateescape")
    return _LIKE_ESCAPE.sub(rb"\\x5c", raw).decode("utf-8", "backslashreplace")


_LIKE_ESCAPE = re.compile(rb"\\(?=x[0-9a-f]{2})")


def constant(text: str, n: int) -> pa.DictionaryArray:
    """One text n times, as DICTIONARY_TEXT."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([text]), safe=False)


def single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array; what is in one piece is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def unify_dictionaries(table: pa.Table) -> pa.Table:
    """The table with one dictionary for each column of them.

    Unlike pyarrow's own, which looks up what stands in null slots too: outside of the dictionary, and of memory.

    >>> tables = [pa.table({"x": pa.array([text]).dictionary_encode()}) for text in "ab"]
    >>> unify_dictionaries(pa.concat_tables(tables))["x"].to_pylist()
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
    # All dictionaries are encoded together: a look-up per chunk would hash all values for each of them.
    encoded = pa.concat_arrays([chunk.dictionary for chunk in column.chunks]).dictionary_encode()
    chunks, first_code = [], 0
    for chunk in column.chunks:
        codes = encoded.indices.slice(first_code, len(chunk.dictionary)).take(chunk.indices)  # a null takes nothing
        chunks.append(pa.DictionaryArray.from_arrays(codes, encoded.dictionary))
        first_code += len(chunk.dictionary)
    return pa.chunked_array(chunks)


def with_list_values(lists: pa.ListArray, items: pa.Array) -> pa.ListArray:
    """The same lists with other items: ``items`` stand for those of ``lists.flatten()``.

    >>> with_list_values(pa.array([[1, 2], None, [3]]), pa.array(["a", "b", "c"])).to_pylist()
    [['a', 'b'], None, ['c']]
    """
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pc.is_null(lists) if lists.null_count else None)


def is_in(column: pa.Array | pa.ChunkedArray, *values: object) -> NDArray[np.bool_]:
    """Where a column that repeats has one of the values; nowhere where it is null.

    >>> is_in(pa.array(["a", None, "b"]).dictionary_encode(), "b", "c").tolist()
    [False, False, True]
    """
    encoded = dictionary(column)
    hit = np.array([*(x in values for x in encoded.dictionary.to_pylist()), False])
    return hit.take(codes_of(encoded))


def case_when(words: Mapping[str, NDArray[np.bool_]]) -> pa.DictionaryArray:
    """For each row the word whose mask has it, the last of several, null if none has: as DICTIONARY_TEXT.

    >>> case_when({"ok": np.array([True, True, False]), "error": np.array([True, False, False])}).to_pylist()
    ['error', 'ok', None]
    """
    n = len(next(iter(words.values())))
    at, null = np.zeros(n, np.int32), np.ones(n, np.bool_)
    for i, mask in enumerate(words.values()):
        at[mask], null[mask] = i, False
    return pa.DictionaryArray.from_arrays(pa.array(at, mask=null), pa.array(list(words), pa.string()))


def true_mask(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a column of truths is true."""
    truths: NDArray[np.bool_] = pc.fill_null(single_array(column), False).to_numpy(zero_copy_only=False)
    return truths


def dictionary(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as a dictionary, whatever it is."""
    array = single_array(column)
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def codes_of(column: pa.DictionaryArray) -> NDArray[np.integer]:
    """For each row the place of its value in the dictionary; a null is behind all others."""
    at = column.indices
    filled: NDArray[np.integer] = (pc.fill_null(at, len(column.dictionary)) if at.null_count else at).to_numpy()
    return filled


def is_identity(rows: NDArray[np.intp], n: int) -> bool:
    """Whether rows, given by number, are all of n as they stand.

    >>> is_identity(np.array([0, 1]), 2), is_identity(np.array([1, 0]), 2), is_identity(np.array([0]), 2)
    (True, False, False)
    """
    return len(rows) == n and bool((np.diff(rows) == 1).all())


def group_ids(columns: Sequence[pa.Array | pa.ChunkedArray], n: int) -> Int64Array:
    """A number per row (n of them), equal exactly where all columns are; nulls equal each other.

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
    return np.flatnonzero(there[: len(values) and len(there)]) + low, (np.cumsum(there) - 1).take(at)


def is_sorted(keys: Iterable[NDArray[np.generic]]) -> bool:
    """Whether rows are in order of the first key, where it is equal of the second, and so on.

    Keys are asked for one by one: the rest decide nothing where one tells all rows apart.
    """
    equal: NDArray[np.bool_] | None = None
    for key in keys:
        falls = key[1:] < key[:-1]  # type: ignore[operator]  # arrays of integers
        if (falls if equal is None else equal & falls).any():
            return False
        same = key[1:] == key[:-1]
        equal = same if equal is None else equal & same
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
