"""Packed rows give back what was put in, in order of time."""

import pickle
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.correlate.rows import Rows

COLUMNS = {
    "small": (pa.int64(), st.integers(0, 200)),
    "wide": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "signed": (pa.int8(), st.integers(-128, 127)),
    "port": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "id": (pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    "flag": (pa.bool_(), st.booleans()),
    "name": (pa.string(), st.sampled_from(["a", "bb", "", "ü"])),
    "body": (pa.binary(), st.binary(max_size=4)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
}


def table(times: list[int], values: dict[str, list[object]], coded: bool = False) -> pa.Table:
    n = len(times)
    columns = {
        "ts_ns": pa.array(times, pa.int64()),
        "first_packet": pa.array([0] * n, pa.int64()),
        "stream_offset": pa.array(range(n), pa.int64()),
    }
    for name, (kind, _) in COLUMNS.items():
        array = pa.array(values[name], kind)
        columns[name] = pa.nulls(n) if array.null_count == n else array
        if coded and name == "name" and array.null_count < n:
            columns[name] = array.dictionary_encode()
    return pa.table(columns)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[int], dict[str, list[object]], bool]]:
    out = []
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 8))
        times = sorted(draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)))
        values = {
            name: draw(st.lists(st.none() | values, min_size=n, max_size=n)) for name, (_, values) in COLUMNS.items()
        }
        out.append((times, values, draw(st.booleans())))
    return out


@pytest.fixture(params=["in memory", "in a file"], autouse=True)
def held(request: pytest.FixtureRequest) -> Iterator[None]:
    """Wherever the parts wait."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "in a file":
            patched.setattr("mqpcap.correlate.rows.MAX_HELD_BYTES", 0)
            patched.setattr("mqpcap.correlate.rows.MIN_AWAY_BYTES", 0)
            patched.setattr("mqpcap.correlate.rows.BLOCK_ROW_COUNT", 3)
            patched.setattr("mqpcap.correlate.rows.SORTED_ROW_COUNT", 3)
        yield


@given(batches())
def test_every_column_comes_back_in_order_of_time(given_batches) -> None:
    rows = Rows()
    for times, values, coded in given_batches:
        rows.add(table(times, values, coded))
    everything = [
        (t, k, {name: values[name][k] for name in COLUMNS})
        for times, values, _ in given_batches for k, t in enumerate(times)
    ]  # fmt: skip
    expected = [row for _, _, row in sorted(everything, key=lambda x: x[:2])]

    assert rows.num_rows == len(expected)
    for name, (kind, _) in COLUMNS.items():
        column = rows[name]
        assert column.to_pylist() == [row[name] for row in expected], name
        assert column.type == kind or column.null_count == len(column)
    assert rows.coded("name").to_pylist() == [row["name"] for row in expected]
    every_other = rows.chosen(np.arange(0, len(expected), 2))
    backwards = every_other.chosen(np.arange(every_other.num_rows)[::-1])
    for some, wanted in ((every_other, expected[::2]), (backwards, expected[::2][::-1])):
        for name in COLUMNS:
            assert some[name].to_pylist() == [row[name] for row in wanted], name
        assert some.coded("name").to_pylist() == [row["name"] for row in wanted]


@given(batches())
def test_blocks_are_all_rows_in_their_order(given_batches) -> None:
    rows = Rows()
    for times, values, coded in given_batches:
        rows.add(table(times, values, coded))
    some = rows.chosen(np.arange(0, rows.num_rows, 2))

    for whole in (rows, some):
        blocks = list(whole.blocks())
        starts = np.cumsum([0, *(block.num_rows for _, block in blocks)]).tolist()
        assert [start for start, _ in blocks] == starts[:-1]
        for name in COLUMNS:
            assert [x for _, block in blocks for x in block[name].to_pylist()] == whole[name].to_pylist()


@given(batches())
def test_rows_packed_elsewhere_are_joined(given_batches) -> None:
    """Every other batch by way of bytes, as from another process; the order in which they come is nothing."""
    here, there, together = Rows(), Rows(), Rows()
    for i, (times, values, coded) in enumerate(given_batches):
        together.add(table(times, values, coded))
        (there if i % 2 else here).add(table(times, values, coded))

    joined = Rows()
    for part in (there, here):
        joined.join(pickle.loads(pickle.dumps(part)))

    times = together["ts_ns"].to_pylist()
    assert joined["ts_ns"].to_pylist() == times
    for name in COLUMNS:
        rows = [sorted(map(repr, zip(times, r[name].to_pylist(), strict=True))) for r in (joined, together)]
        assert rows[0] == rows[1]


def test_bytes_of_a_large_batch_are_let_go() -> None:
    """What is kept of a batch is a few bytes a row, not the memory that its columns were cut from."""
    n = 100_000
    rows = Rows()
    before = pa.total_allocated_bytes()
    rows.add(pa.table({
        "ts_ns": pa.array(np.arange(n) * 1000), "first_packet": pa.array(np.arange(n)),
        "stream_offset": pa.array(np.arange(n) * 90), "body": pa.array([b"x" * 64] * n),
    }))  # fmt: skip

    assert pa.total_allocated_bytes() - before < n
    assert rows["body"][n - 1].as_py() == b"x" * 64


def test_an_unknown_column_is_an_error() -> None:
    with pytest.raises(KeyError):
        Rows()["nothing"]


def test_unsigned_numbers_come_as_their_bits() -> None:
    rows = Rows()
    ids = [2**64 - 1, None, 7, 2**63]
    rows.add(pa.table({
        "ts_ns": pa.array([1, 2, 3, 4]), "first_packet": pa.array([1, 1, 1, 1]),
        "stream_offset": pa.array([0, 1, 2, 3]),
        "id": pa.array([None if x is None else Decimal(x) for x in ids], pa.decimal128(20, 0)),
    }))  # fmt: skip

    assert rows.bits("id").tolist() == [-1, 0, 7, -(2**63)]


def test_no_row_at_all_is_no_error() -> None:
    rows = Rows()
    rows.add(table([], {name: [] for name in COLUMNS}))

    assert rows.num_rows == 0
    assert rows["wide"].to_pylist() == rows.coded("name").to_pylist() == []
    assert rows.chosen(np.empty(0, np.int64))["flag"].to_pylist() == []


def test_where_numbers_are_known() -> None:
    rows = Rows()
    for values in ([None, 7], [None, None], [1, 2]):
        n = len(values)
        rows.add(pa.table({
            "ts_ns": pa.array([9] * n), "first_packet": pa.array([1] * n), "stream_offset": pa.array(range(n)),
            "id": pa.array([None if x is None else Decimal(x) for x in values], pa.decimal128(20, 0)),
        }))  # fmt: skip

    assert rows.known("id").tolist() == rows["id"].is_valid().to_pylist()
    assert sorted(rows.known("id").tolist()) == [False] * 3 + [True] * 3
