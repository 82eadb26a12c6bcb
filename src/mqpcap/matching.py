"""Equal values found across rows, for the rules that tie messages together."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def codes(columns: Sequence[pa.Array | pa.ChunkedArray], n: int) -> I64:
    """A number per row (n of them), equal exactly where all columns are; nulls equal each other.

    >>> codes([pa.array(["a", "b", "a"]), pa.array([1, 1, 1])], 3).tolist()
    [0, 1, 0]
    """
    key = np.zeros(n, np.int64)
    for column in columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = whole.dictionary_encode()
        one = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        both = pa.array(key * (len(encoded.dictionary) + 1) + one)
        key = both.dictionary_encode().indices.to_numpy().astype(np.int64)
    return key


def sole_sources(key: I64, source: I64, sink: I64, ts_ns: I64) -> tuple[I64, I64, int]:
    """For each sink row the one source row of equal key that came no later.

    Returns source rows, their sink rows, and how many sinks were left out because several sources, or one that
    came later, have their key: which one is meant cannot be told. A sink without any source is not counted.
    """
    found, first, count = np.unique(key[source], return_index=True, return_counts=True)
    if not len(found) or not len(sink):
        return np.empty(0, np.int64), np.empty(0, np.int64), 0
    at = np.minimum(np.searchsorted(found, key[sink]), len(found) - 1)
    hit = found[at] == key[sink]
    one = source[first[at]]
    sure = hit & (count[at] == 1) & (ts_ns[one] <= ts_ns[sink])
    return one[sure], sink[sure], int((hit & ~sure).sum())
