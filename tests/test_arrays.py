"""Dictionaries of several pieces become one, whatever stands in null slots."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

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


def test_dictionaries_of_many_pieces_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up of each piece's words in all of them costs the square of the pieces."""
    monkeypatch.setattr(pc, "index_in", None)
    words = [[f"{k}", None, "same", f"{k + 1}"] for k in range(300)]
    table = pa.concat_tables([pa.table({"s": pa.array(some).dictionary_encode()}) for some in words])

    column = unify_dictionaries(table)["s"]

    assert column.to_pylist() == [word for some in words for word in some]
    assert all(chunk.dictionary is not None and len(chunk.dictionary) == 302 for chunk in column.chunks)
