"""Groups of two captures compared: new, gone, slower, faster, failing."""

import pytest

from mqpcap.statistics.changes import Change, changes

MS = 1_000_000
BY = ("protocol", "topic")
Row = dict[str, object]


def row(p95_ns: int | None = MS, answered: int = 20, errors: int = 0, topic: str | None = "orders",
        messages: int = 40, p50_ns: int | None = MS) -> Row:  # fmt: skip
    return {
        "protocol": "flymq", "topic": topic, "messages": messages, "errors": errors, "answered": answered,
        "latency_p50_ns": p50_ns, "latency_p95_ns": p95_ns,
    }  # fmt: skip


def compared(a: Row, b: Row, compares_latencies: bool = True, is_trusted: bool = True) -> Change:
    (change,) = changes(BY, [a], [b], compares_latencies, is_trusted)
    return change


def words(a: Row, b: Row) -> tuple[str, ...]:
    return compared(a, b).words


def test_a_median_that_falls_is_faster_though_the_percentile_stays() -> None:
    """POLLs that waited 41 ms each, and then one in twenty."""
    assert words(row(43 * MS, p50_ns=41 * MS), row(43 * MS, p50_ns=70_000)) == ("faster",)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [(1051, 46, ("fewer",)), (46, 1051, ("more",)), (40, 20, ("fewer",)), (40, 21, ()), (38, 19, ()), (5, 15, ())],
)
def test_more_takes_twice_as_many_and_twenty(before: int, after: int, wanted: tuple[str, ...]) -> None:
    assert words(row(messages=before), row(messages=after)) == wanted


def test_latencies_of_another_mix_of_operations_are_not_compared() -> None:
    assert compared(row(MS), row(9 * MS), compares_latencies=False).words == ()


@pytest.mark.parametrize(
    ("a", "b", "is_trusted", "judgement"),
    [
        (row(), row(), True, "alike"),
        (row(), row(9 * MS), True, "different"),
        (row(), row(answered=19), True, "too few to judge"),
        (row(), row(p95_ns=None, answered=0), True, "too few to judge"),
        (row(messages=4), row(messages=9), True, "too few to judge"),
        (row(), row(), False, "not to be trusted"),
        (row(), row(9 * MS), False, "not to be trusted"),
    ],
)
def test_alike_different_few_and_untrusted_are_four_things(a: Row, b: Row, is_trusted: bool, judgement: str) -> None:
    assert compared(a, b, is_trusted=is_trusted).judgement == judgement


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "wanted"),
    [
        (2 * MS, 3 * MS, ("slower",)),  # 1.5 times as long, and a millisecond more
        (3 * MS, 2 * MS, ("faster",)),
        (2 * MS, 3 * MS - 1, ()),
        (4 * MS, 6 * MS - 1, ()),  # nearly 2 ms more, but less than 1.5 times
        (MS, 2 * MS - 1, ()),  # nearly twice, but less than a millisecond more
        (MS, MS, ()),
    ],
)
def test_slower_takes_a_ratio_and_a_difference(before_ns: int, after_ns: int, wanted: tuple[str, ...]) -> None:
    assert words(row(before_ns), row(after_ns)) == wanted


def test_slower_by_the_median_and_faster_by_the_95th_percentile_is_mixed() -> None:
    assert words(row(90 * MS, p50_ns=MS), row(9 * MS, p50_ns=9 * MS)) == ("mixed",)


@pytest.mark.parametrize(("before", "after"), [(19, 20), (20, 19), (0, 20)])
def test_of_few_answers_nothing_is_said(before: int, after: int) -> None:
    """Without any there is no percentile."""
    assert words(row(MS if before else None, before), row(9 * MS, after)) == ()


def test_failures_that_begin_and_end() -> None:
    none, some, more = (row(errors=n) for n in (0, 1, 5))

    assert (words(none, some), words(some, none), words(some, more)) == (("fails",), ("fails no more",), ())


def test_groups_of_one_side_are_new_or_gone() -> None:
    here = row()

    (new,) = changes(BY, [], [here], True, True)
    (gone,) = changes(BY, [here], [], True, True)
    assert (new.key, new.a, new.b, new.words) == ({"protocol": "flymq", "topic": "orders"}, None, here, ("new",))
    assert (gone.a, gone.b, gone.words) == (here, None, ("gone",))


def test_groups_come_in_order_and_those_without_a_value_last() -> None:
    a, b = [row(topic="b"), row(topic=None)], [row(topic="c"), row(topic="a"), row(topic=None)]

    assert [(change.key["topic"], change.words) for change in changes(BY, a, b, True, True)] == [
        ("a", ("new",)),
        ("b", ("gone",)),
        ("c", ("new",)),
        (None, ()),
    ]
