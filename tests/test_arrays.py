"""Dictionaries of several pieces become one, whatever stands in null slots."""

import numpy as np
import pyarrow as pa

from mqpcap.arrays import DICTIONARY_TEXT, unify_dictionaries


def test_what_stands_in_null_slots_is_never_looked_up() -> None:
    """Far outside of any dictionary: pyarrow's own way reads there, and ends the process sooner or later."""
    n = 50_000
    codes = np.where(np.arange(n) % 2 == 0, 0, np.iinfo(np.int32).max)
    wild = pa.DictionaryArray.from_buffers(
        DICTIONARY_TEXT, n, [pa.array(codes == 0).buffers()[1], pa.py_buffer(codes.astype(np.int32))], pa.array(["ok"])
    )
    nothing, other = pa.nulls(n, DICTIONARY_TEXT), pa.array(["x", "ok"] * (n // 2)).dictionary_encode()
    table = unify_dictionaries(pa.table({"s": pa.chunked_array([nothing, other, wild])}))
    again = unify_dictionaries(pa.concat_tables([table, pa.table({"s": pa.array(["y"]).dictionary_encode()})]))

    assert again["s"].to_pylist() == [None] * n + ["x", "ok"] * (n // 2) + ["ok", None] * (n // 2) + ["y"]
    assert all(chunk.dictionary.to_pylist() == ["x", "ok", "y"] for chunk in again["s"].chunks)
    again.validate(full=True)
