"""What correlation is fed with: rows in order, some of them, several batches as one."""

from dataclasses import replace
from itertools import groupby

import numpy as np
from batches import batch, placed
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.correlate.batch import Batch, sorted_rows

ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["c2s", "s2c"]), st.integers(0, 9)), max_size=20)


def batch_of(rows: list[tuple[int, str, int]]) -> Batch:
    return batch(placed([{"connection": c, "direction": d, "op": "m", "ts_ns": ts} for c, d, ts in rows]), {}, {})


@given(st.lists(st.tuples(st.integers(-3, 3) | st.integers(-(1 << 62), 1 << 62), st.integers(0, 2), st.booleans())))
def test_rows_are_in_the_order_python_sorts_them_in(rows: list[tuple[int, int, bool]]) -> None:
    number, key, late = (np.array([row[k] for row in rows], dtype) for k, dtype in enumerate((np.int64, np.int64, "?")))
    order, ends = sorted_rows(number, key, late)

    assert order.tolist() == sorted(range(len(rows)), key=lambda k: rows[k])
    alike = [len([*group]) for _, group in groupby(sorted(row[0] for row in rows))]
    assert ends.tolist() == np.cumsum(alike).tolist()


@given(ROWS)
def test_no_row_came_before_those_in_front_of_it_on_its_side(rows: list[tuple[int, str, int]]) -> None:
    """A side's rows in order of its bytes, each at the latest time up to it."""
    latest: dict[tuple[int, str], int] = {}
    expected = []
    for connection, direction, ts_ns in rows:
        side = connection, direction
        latest[side] = max(latest.get(side, 0), ts_ns)
        expected.append(latest[side])

    assert batch_of(rows).monotonic_ts_ns.tolist() == expected


@given(ROWS, st.integers(0, 20))
def test_parts_that_are_joined_are_the_whole(rows: list[tuple[int, str, int]], at: int) -> None:
    whole = batch_of(rows)
    halves = [whole.taken(np.arange(at)[: len(rows)]), whole.taken(np.arange(at, max(len(rows), at)))]
    coded = [half.table.set_column(0, "op", half.table["op"].combine_chunks().dictionary_encode()) for half in halves]
    again = Batch.joined([replace(half, table=table) for half, table in zip(halves, coded, strict=True)])

    assert (again.flow.tolist(), again.ts_ns.tolist()) == (whole.flow.tolist(), whole.ts_ns.tolist())
    assert again.from_client.tolist() == whole.from_client.tolist()
    assert again.table.to_pylist() == whole.table.to_pylist()


def test_all_rows_as_they_stand_are_the_same_object() -> None:
    whole = batch_of([(1, "c2s", 1), (2, "c2s", 2)])

    assert whole.taken(np.arange(2)) is whole
    assert whole.taken(np.array([1, 0])).flow.tolist() == [2, 1]
    assert Batch.joined([whole]) is whole


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.integers(0, 30))
def test_the_rows_that_wait_for_the_next_step_have_only_their_own_texts(ops: list[str], place: int) -> None:
    """Else the texts of all steps so far are copied in each step."""
    rows = placed([{"connection": 1, "direction": "c2s", "op": op, "ts_ns": i} for i, op in enumerate(ops)])
    whole = batch(rows, {}, {})
    coded = whole.table.set_column(0, "op", whole.table["op"].combine_chunks().dictionary_encode())
    before, later = replace(whole, table=coded).split(place, 0, 0)

    assert before.table["op"].to_pylist() + later.table["op"].to_pylist() == ops
    assert sorted(later.table["op"].combine_chunks().dictionary.to_pylist()) == sorted({*ops[place:]})
