"""Rows that wait: whatever waits in the file, they are those of a dictionary."""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.correlate import waiting_rows
from mqpcap.correlate.waiting_rows import BLOCK_COLUMNS, PENDING, Block, WaitingRows

SETTLED, TAKEN = 1, 7
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 3), max_size=6)),
        st.tuples(st.just("take"), st.sets(st.integers(0, 40), min_size=1, max_size=5)),
        st.tuples(st.just("settle"), st.sets(st.integers(0, 3), max_size=2)),
        st.tuples(st.just("pickle"), st.just(())),
    ),
    max_size=25,
)


def block(first_row: int, flows: Sequence[int]) -> Block:
    """Pending rows of these connections; ``offset`` and ``op`` say their number."""
    n = len(flows)
    numbers = np.arange(first_row, first_row + n)
    own = pa.array(range(n), pa.int32()), pa.array(flows, pa.int32()), np.zeros(n, np.int8), np.ones(n, np.bool_)
    columns = dict(zip(BLOCK_COLUMNS, own, strict=True))
    op = pa.array([str(k) for k in numbers], pa.string()).dictionary_encode()
    table = pa.table({**columns, "offset": numbers, "op": op})
    return Block(first_row, np.zeros(n, np.int8), np.full(n, PENDING, np.int8), table)


def filled(*flows: Sequence[int]) -> WaitingRows:
    rows = WaitingRows()
    for some in flows:
        rows.add(block(rows.row_count, some))
    return rows


def rows_left(rows: WaitingRows, numbers: Sequence[int]) -> list[int]:
    """Which of these rows are still there."""
    return sorted(numbers[k] for _, _, which in rows.by_block(np.array(numbers, np.int64)) for k in which)


def in_memory(rows: WaitingRows) -> int:
    return sum(x.table.nbytes for x in rows._blocks.values() if x.table is not None)


@pytest.mark.parametrize("room", [0, 500, 1 << 20])
def test_rows_are_those_of_a_dictionary(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_rows, "MAX_WAITING_BYTES", room)

    @given(STEPS)
    def check(steps: list[tuple[str, Any]]) -> None:
        rows = WaitingRows()
        known: dict[int, int] = {}  # the connection of each row that waits
        for what, of in steps:
            if what == "add":
                known |= {rows.row_count + k: flow for k, flow in enumerate(of)}
                rows.add(block(rows.row_count, of))
            elif what == "take":
                wanted = [number for number in sorted(of, key=lambda k: k * 7 % 41) if number in known]
                if wanted:
                    taken = rows.take(np.array(wanted), TAKEN)
                    assert taken["offset"].to_pylist() == wanted
                    assert taken["op"].to_pylist() == [str(number) for number in wanted]
                    known = {number: flow for number, flow in known.items() if number not in of}
            elif what == "settle":
                gone = {number for number, flow in known.items() if flow in of}
                seen = set()
                for one in rows.blocks_with(of):
                    numbers, mine = one.column("offset"), np.isin(one.column("flow"), [*of])
                    is_free = one.state == PENDING
                    assert {*numbers[is_free].tolist()} <= known.keys()
                    seen.update(numbers[is_free & mine].tolist())
                    one.settle(mine, SETTLED)
                assert seen == gone
                assert in_memory(rows) <= room
                known = {number: flow for number, flow in known.items() if number not in gone}
            else:
                rows = pickle.loads(pickle.dumps(rows))
        list(rows.blocks_with(()))

        assert rows_left(rows, range(rows.row_count)) == sorted(known)

    check()


def test_the_oldest_rows_go_to_the_file_until_the_rest_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = filled([1], [2], [3])
    sizes = [x.size_bytes for x in rows._blocks.values()]
    monkeypatch.setattr(waiting_rows, "MAX_WAITING_BYTES", sum(sizes[1:]))

    list(rows.blocks_with(()))

    assert [x.table is None for x in rows._blocks.values()] == [True, False, False]
    assert rows.take(np.array([2, 0, 1]), TAKEN)["op"].to_pylist() == ["2", "0", "1"]


@pytest.mark.parametrize("is_copy", [True, False])
def test_rows_go_to_the_file_again_after_pickling(is_copy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_rows, "MAX_WAITING_BYTES", 0)
    rows = filled([1, 1], [2])
    list(rows.blocks_with(()))
    copy = pickle.loads(pickle.dumps(rows))

    rows = copy if is_copy else rows
    list(rows.blocks_with(()))

    assert in_memory(rows) == 0
    assert rows_left(rows, [0, 1, 2]) == [0, 1, 2]


def test_a_state_that_a_row_has_stays() -> None:
    one = block(0, [1, 1, 1])
    one.settle(np.array([True, False, False]), SETTLED)
    one.settle(np.array([True, True, False]), np.array([5, 6, 7], np.int8))

    assert one.state.tolist() == [SETTLED, 6, PENDING]


def test_only_blocks_of_the_connections_asked_for_are_opened() -> None:
    rows = filled([1, 2], [2], [3])
    list(rows.blocks_with(()))

    assert [one.first_row for one in rows.blocks_with([2])] == [0, 2]
    assert [one.first_row for one in rows.blocks_with([9])] == []


def test_rows_that_left_are_found_no_more() -> None:
    rows = filled([1, 2, 1])
    for one in rows.blocks_with([1]):
        one.settle(one.column("flow") == 1, SETTLED)

    assert rows_left(rows, [0, 1, 2, 3]) == [1]
    assert rows.take(np.array([1]), TAKEN)["offset"].to_pylist() == [1]
    assert list(WaitingRows().by_block(np.array([0, 5]))) == []


def test_a_row_that_left_or_never_came_is_not_here() -> None:
    """So that a pair of a row whose state was given out already makes no second row of it."""
    rows = filled([1, 2], [2, 1])
    for waiting in rows.blocks_with([1]):
        waiting.settle(waiting.column("flow") == 1, SETTLED)

    assert rows.has(np.array([3, 2, 1, 0, 2, 4])).tolist() == [False, True, True, False, True, False]
    assert rows.has(np.array([], np.int64)).tolist() == []


def test_texts_that_inflated_to_much_take_little_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_rows, "MAX_WAITING_BYTES", 0)
    rows = WaitingRows()
    some = block(0, [1] * 10)
    assert some.table is not None
    topics = pa.array([f"{k}".ljust(60_000, "a") for k in range(10)])
    some.table = some.table.append_column("destination", topics)
    rows.add(some)

    list(rows.blocks_with(()))

    assert some.table is None
    assert some.place is not None
    assert some.place[1] < 60_000
    assert rows.take(np.arange(10), TAKEN)["destination"].to_pylist() == topics.to_pylist()
