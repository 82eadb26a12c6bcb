"""Percentiles of groups: exact while there are few values, within the stated error beyond."""

import numpy as np
import pytest

from mqpcap.statistics import latencies
from mqpcap.statistics.latencies import STEP_BITS, Latencies, rounded

PERCENTS = (50, 95, 99, 100)


def latencies_of(*groups: list[int]) -> Latencies:
    made = Latencies()
    for number, values in enumerate(groups):
        made.add(np.full(len(values), number), np.array(values, np.int64))
    return made


def test_a_percentile_is_the_nearest_rank() -> None:
    """Of 1 to 20 the places are ceil(20 * 0.5) = 10, 19, ceil(19.8) = 20 and 20."""
    (found,) = latencies_of([*range(20, 0, -1)]).summaries(PERCENTS, 1)

    assert (found.count, found.percentiles) == (20, {50: 10, 95: 19, 99: 20, 100: 20})


def test_groups_are_kept_apart_and_an_empty_one_has_no_percentile() -> None:
    one, none, other = latencies_of([5], [], [7, 9]).summaries(PERCENTS, 3)

    assert one.percentiles == dict.fromkeys(PERCENTS, 5)
    assert none.percentiles == dict.fromkeys(PERCENTS)
    assert other.percentiles == {50: 7, 95: 9, 99: 9, 100: 9}


def test_values_given_a_few_at_a_time_are_one_group() -> None:
    made = latencies_of([3])
    made.add(np.array([0, 0]), np.array([1, 2]))

    (found,) = made.summaries(PERCENTS, 1)

    assert found.percentiles == {50: 2, 95: 3, 99: 3, 100: 3}


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latencies, "EXACT_VALUES", 100)
    monkeypatch.setattr(latencies, "MAX_EXACT_VALUES", 1000)


@pytest.mark.usefixtures("little_room")
def test_beyond_the_bound_large_groups_are_within_the_error_and_small_ones_exact() -> None:
    values = [1000 * n for n in range(1, 5001)]
    made = latencies_of([], [11, 12, 13])
    for at in range(0, 5000, 250):
        made.add(np.zeros(250, np.int64), np.array(values[at : at + 250], np.int64))

    large, small = made.summaries(PERCENTS, 2)

    assert (large.count, large.is_exact, small.is_exact) == (5000, False, True)
    assert small.percentiles == {50: 12, 95: 13, 99: 13, 100: 13}
    assert large.percentiles[100] == 5_000_000
    for percent, exact in ((50, 2_500_000), (95, 4_750_000), (99, 4_950_000)):
        found = large.percentiles[percent]
        assert found is not None
        assert abs(found - exact) <= exact / 2**STEP_BITS


@pytest.mark.usefixtures("little_room")
def test_memory_is_bounded_where_every_group_is_small() -> None:
    made = Latencies()
    for at in range(0, 20_000, 500):
        made.add(np.arange(at, at + 500), np.full(500, 1_000_000))

    found = made.summaries(PERCENTS, 20_000)

    assert made._held <= 1000
    assert {summary.count for summary in found} == {1}
    assert {summary.percentiles[100] for summary in found} == {1_000_000}


def test_a_bucket_is_no_wider_than_the_error() -> None:
    values = np.array([0, 1, 127, 128, 129, 999, 10**6, 10**9, 2**40 + 12345, 2**62 + 1], np.int64)

    middles = rounded(values).tolist()

    for middle, value in zip(middles, values.tolist(), strict=True):
        assert abs(middle - value) <= value / 2**STEP_BITS


def test_a_reply_before_its_request_counts_as_nothing_in_the_histogram() -> None:
    assert rounded(np.array([-5])).tolist() == [0]
