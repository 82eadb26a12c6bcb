"""Messages over time against a sum over every row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows_of

from mqpcap.statistics import timeline
from mqpcap.statistics.timeline import FIRST_STEP_NS, Timeline, Total

MS = 1_000_000
FEW = 8
messages = st.tuples(st.integers(0, 40 * MS) | st.integers(0, 10**13), st.booleans())


@given(st.lists(st.lists(messages, max_size=5), max_size=5), st.integers(1, 20))
def test_every_row_counts_in_the_step_of_its_time(batches: list[list[tuple[int, bool]]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "MAX_STEPS", FEW)
        made = Timeline()
        for batch in batches:
            said = ({"ts_ns": time, "status": "error" if failed else None} for time, failed in batch)
            made.take_messages(rows_of("messages", *said))
            assert len(made._steps) <= FEW
    rows = [row for batch in batches for row in batch]

    width_ns, series = made.series(most)

    begin_ns = min((row[0] for row in rows), default=0) // made.step_ns * made.step_ns
    of_steps = [[row for row in rows if i == (row[0] - begin_ns) // width_ns] for i in range(series.shape[1])]
    assert series.tolist() == [
        [len(step) for step in of_steps],
        [sum(failed for _, failed in step) for step in of_steps],
    ]
    assert sum(map(len, of_steps)) == len(rows)
    assert series.shape[1] <= most
    times = [row[0] for row in rows]
    step = FIRST_STEP_NS
    while rows and max(times) // step - min(times) // step >= FEW:
        step *= 2
    assert made.step_ns == step


def test_without_rows_there_are_no_steps() -> None:
    made = Timeline()
    made.take_messages(rows_of("messages"))
    step_ns, series = made.series(10)

    assert (step_ns, series.shape) == (FIRST_STEP_NS, (2, 0))


def test_the_total_has_all_messages_and_the_first_and_last_time() -> None:
    made = Total()
    made.take_messages(rows_of("messages"))
    assert (made.messages, made.first_ns, made.last_ns) == (0, None, None)

    for times in ([50, 20, 90], [10], [], [70, 30]):
        made.take_messages(rows_of("messages", *({"ts_ns": time} for time in times)))

    assert (made.messages, made.first_ns, made.last_ns) == (6, 10, 90)
