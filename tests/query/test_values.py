"""What values mean: times, sizes, addresses."""

import os
import time
from collections.abc import Iterator

import pytest

from mqpcap.errors import QueryError
from mqpcap.query.values import DAY_NS, SECOND_NS, Moment, ValueKind, duration_ns, integer, moment, value

NOON = 1_700_000_000 // 86_400 * DAY_NS + DAY_NS // 2
"""12:00 UTC of 14 November 2023."""


@pytest.fixture
def zone() -> Iterator[None]:
    yield from _in_zone("Asia/Kathmandu")  # 5:45 ahead, the whole year


def _in_zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("word", "ns"),
    [("50ms", 50_000_000), ("1.5s", 1_500_000_000), ("3 us", 3000), ("7ns", 7), ("2min", 120 * SECOND_NS),
     ("1h", 3600 * SECOND_NS), ("0", 0), ("1.9ns", 1), ("40", 40 * SECOND_NS),
     ("0.04", 40_000_000), (".5", 500_000_000)],
)  # fmt: skip
def test_durations(word: str, ns: int) -> None:
    assert duration_ns(word) == ns


@pytest.mark.parametrize("word", ["50m", ".", "s", "fast", "-1ms", "", "9" * 30 + "s", "9" * 19 + "h"])
def test_no_durations(word: str) -> None:
    with pytest.raises(QueryError):
        duration_ns(word)


@pytest.mark.parametrize(
    ("word", "number"),
    [("17", 17), ("-1", -1), ("0xBEA7", 0xBEA7), ("10kB", 10_000), ("10KB", 10_000), ("1MiB", 1 << 20), ("5B", 5),
     ("1.5GB", 1_500_000_000)],
)  # fmt: skip
def test_numbers(word: str, number: int) -> None:
    assert integer(word) == number


@pytest.mark.parametrize("word", ["x", "1.5", "10k", "", "0x", "1e3", "٣"])
def test_no_numbers(word: str) -> None:
    with pytest.raises(QueryError):
        integer(word)


def test_a_time_of_day_is_of_the_captures_first_day() -> None:
    at = moment("05:24:10.25", utc=True)

    assert at.time_ns(NOON) == NOON - DAY_NS // 2 + (5 * 3600 + 24 * 60 + 10) * SECOND_NS + SECOND_NS // 4
    assert moment("05:24", utc=True).time_ns(NOON + DAY_NS) == at.time_ns(NOON) + DAY_NS - 10_250_000_000


def test_a_time_of_day_is_local_unless_utc_is_asked_for_or_said(zone: None) -> None:
    ahead_ns = (5 * 3600 + 45 * 60) * SECOND_NS

    assert moment("12:00", utc=False).time_ns(NOON) == NOON - ahead_ns
    assert moment("12:00", utc=True).time_ns(NOON) == NOON
    assert moment("12:00Z", utc=False).time_ns(NOON) == NOON
    assert moment("2023-11-14T12:00", utc=False).time_ns(0) == NOON - ahead_ns
    # 20:00 UTC is the next day there already.
    assert moment("00:00", utc=False).time_ns(NOON + 8 * 3600 * SECOND_NS) == NOON + DAY_NS // 2 - ahead_ns


@pytest.mark.parametrize(
    "word",
    ["2023-11-14T12:00:00Z", "2023-11-14 12:00Z", "2023-11-14T12:00:00.000000000Z", "2023-11-14T13:30:00+01:30",
     "2023-11-14T13:30:00+0130", "2023-11-14T11:00-01", str(NOON), "1699963200", "1699963200.0"],
)  # fmt: skip
def test_iso_times(word: str) -> None:
    assert moment(word, utc=False) == Moment("epoch", NOON)


def test_a_time_may_count_from_the_begin() -> None:
    assert moment("+1.5s", utc=False).time_ns(NOON) == NOON + 1_500_000_000


@pytest.fixture
def berlin() -> Iterator[None]:
    """Clocks there went from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC."""
    yield from _in_zone("Europe/Berlin")


def test_times_of_day_are_those_of_the_clock_where_it_skips_an_hour(berlin: None) -> None:
    skip = value_of("2026-03-29T01:00Z")
    first_ns = skip - 1800 * SECOND_NS

    assert moment("01:30", utc=False).time_ns(first_ns) == skip - 1800 * SECOND_NS
    assert moment("04:00", utc=False).time_ns(first_ns) == skip + 3600 * SECOND_NS


@pytest.mark.parametrize("word", ["02:00", "02:30", "02:59:59", "03:00", "2026-03-29T02:30", "2026-03-29 03:00"])
def test_a_time_that_the_clock_skips_is_the_moment_of_the_skip(word: str, berlin: None) -> None:
    skip = value_of("2026-03-29T01:00Z")

    assert moment(word, utc=False).time_ns(skip + 600 * SECOND_NS) == skip


def test_thirty_seconds_after_a_time_are_thirty_seconds(berlin: None) -> None:
    skip = value_of("2026-03-29T01:00Z")

    assert moment("01:59:50", utc=False).later(30 * SECOND_NS).time_ns(skip) == skip + 20 * SECOND_NS
    assert moment("01:59", utc=False).next_day().time_ns(skip) == skip + (23 * 3600 - 60) * SECOND_NS


def value_of(word: str) -> int:
    return moment(word, utc=True).ns


@pytest.mark.parametrize("word", ["25:00", "12:60", "noon", "2023-13-01", "2023-02-30T00:00Z", "+fast", "", "1:"])
def test_no_times(word: str) -> None:
    with pytest.raises(QueryError):
        moment(word, utc=True)


@pytest.mark.parametrize(
    ("kind", "word"),
    [(ValueKind.ADDRESS, "10.0.0"), (ValueKind.ADDRESS, "10.0.0.1:80"), (ValueKind.ENDPOINT, "10.0.0.1:70000"),
     (ValueKind.ENDPOINT, "host:80"), (ValueKind.CONNECTION, "x7"), (ValueKind.CONNECTION, str(1 << 63)),
     (ValueKind.TRUTH, "yes")],
)  # fmt: skip
def test_no_values(kind: ValueKind, word: str) -> None:
    with pytest.raises(QueryError):
        value(word, kind, utc=False)
