"""Groups of two captures compared: new, gone, slower, faster, failing."""

import pytest

from mqpcap.statistics.changes import changes

MS = 1_000_000
BY = ("protocol", "topic")
Row = dict[str, object]


def row(p95_ns: int | None = MS, answered: int = 20, errors: int = 0, topic: str | None = "orders") -> Row:
    return {"protocol": "flymq", "topic": topic, "errors": errors, "answered": answered, "latency_p95_ns": p95_ns}


def words(a: Row, b: Row) -> tuple[str, ...]:
    (change,) = changes(BY, [a], [b])
    return change.words


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


@pytest.mark.parametrize(("before", "after"), [(19, 20), (20, 19), (0, 20)])
def test_of_few_answers_nothing_is_said(before: int, after: int) -> None:
    """Without any there is no percentile."""
    assert words(row(MS if before else None, before), row(9 * MS, after)) == ()


def test_failures_that_begin_and_end() -> None:
    none, some, more = (row(errors=n) for n in (0, 1, 5))

    assert (words(none, some), words(some, none), words(some, more)) == (("fails",), ("fails no more",), ())


def test_groups_of_one_side_are_new_or_gone() -> None:
    here = row()

    (new,) = changes(BY, [], [here])
    (gone,) = changes(BY, [here], [])
    assert (new.key, new.a, new.b, new.words) == ({"protocol": "flymq", "topic": "orders"}, None, here, ("new",))
    assert (gone.a, gone.b, gone.words) == (here, None, ("gone",))


def test_groups_come_in_order_and_those_without_a_value_last() -> None:
    a, b = [row(topic="b"), row(topic=None)], [row(topic="c"), row(topic="a"), row(topic=None)]

    assert [(change.key["topic"], change.words) for change in changes(BY, a, b)] == [
        ("a", ("new",)),
        ("b", ("gone",)),
        ("c", ("new",)),
        (None, ()),
    ]
