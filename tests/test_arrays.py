"""Dictionaries of several pieces become one, whatever stands in null slots."""

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqpcap.arrays import DICTIONARY_TEXT, ColumnBatch, unify_dictionaries
from mqpcap.records import dataclass


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


@dataclass(frozen=True, slots=True)
class Bundle(ColumnBatch):
    """Two columns and a buffer that all rows share."""

    SHARED: ClassVar[frozenset[str]] = frozenset(("buffer",))

    buffer: bytes
    number: np.ndarray
    text: pa.Array
    spare: np.ndarray | None = None


def bundle(*numbers: int) -> Bundle:
    return Bundle(b"shared", np.array(numbers), pa.array(map(str, numbers)))


def test_rows_of_a_bundle_are_taken_from_all_columns() -> None:
    whole = bundle(3, 4, 5)

    for rows in (np.array([2, 0]), np.array([1]), np.array([], np.int64)):
        part = whole.taken(rows)

        assert part.number.tolist() == [int(text) for text in part.text.to_pylist()] == whole.number[rows].tolist()
        assert (part.buffer, part.spare) == (b"shared", None)
    assert whole.taken(np.s_[1:]).text.to_pylist() == ["4", "5"]
    assert whole.taken(np.arange(3)) is whole


def test_bundles_are_joined_in_order() -> None:
    joined = Bundle.joined([bundle(3), bundle(1, 2)])

    assert joined.number.tolist() == [3, 1, 2]
    assert joined.text.to_pylist() == ["3", "1", "2"]
    assert joined.buffer == b"shared"
