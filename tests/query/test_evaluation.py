"""Trees of tests on columns, against rows looked at one by one with a logic of three values."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from table_rows import rows_of

from mqpcap.errors import QueryError
from mqpcap.query import evaluation
from mqpcap.query.evaluation import BoundFilter, Condition, FilterInput, and_parts, checked_pattern, mask
from mqpcap.query.filter import query
from mqpcap.query.filter_columns import column
from mqpcap.query.grammar import Logic
from mqpcap.query.values import Value, ValueKind
from mqpcap.tables.schemas import TABLES

Row = dict[str, Any]
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
KINDS = {"body_len": ValueKind.INTEGER, "destination": ValueKind.TEXT, "op": ValueKind.WORD, "roles": ValueKind.TEXT}
numbers = st.integers(-2, 5) | st.just(1 << 70)
texts = st.sampled_from(["a", "b", "c"])
rows = st.fixed_dictionaries(
    {
        "body_len": st.none() | st.integers(0, 4),
        "destination": st.none() | texts,
        "op": st.none() | st.sampled_from(["A", "b"]),
        "roles": st.none() | st.lists(st.none() | texts, max_size=3),
    }
)


def condition(name: str, relation: str, *values: Value) -> Condition:
    return Condition(column(name), relation, {KINDS[name]: values} if values else {})


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    name, relation = draw(st.sampled_from(list(KINDS))), draw(st.sampled_from([*COMPARED, "in", "exists"]))
    values: st.SearchStrategy[Any] = numbers if KINDS[name] is ValueKind.INTEGER else texts
    most = {"in": 3, "exists": 0}.get(relation, 1)
    return condition(name, relation, *draw(st.lists(values, min_size=min(most, 1), max_size=most)))


trees = st.recursive(
    conditions(),
    lambda inner: (
        st.builds(lambda x: Logic("not", (x,)), inner)
        | st.builds(lambda word, parts: Logic(word, tuple(parts)), st.sampled_from(["and", "or"]), st.lists(inner))
    ),
    max_leaves=6,
)


def naive(tree: BoundFilter, row: Row) -> bool | None:
    if isinstance(tree, Condition):
        return said_of(tree, row.get(tree.column.name))
    parts = [naive(part, row) for part in tree.parts]
    if tree.word == "not":
        return None if parts[0] is None else not parts[0]
    decisive = tree.word == "or"
    return decisive if decisive in parts else None if None in parts else not decisive


def said_of(test: Condition, value: object) -> bool | None:
    if test.relation == "exists":
        return value is not None
    if value is None:
        return None
    if isinstance(value, list):
        return any(said_of(test, x) for x in value)
    (wanted,) = test.values.values()
    here = value.lower() if test.column.name == "op" and isinstance(value, str) else value
    return here in wanted if test.relation == "in" else COMPARED[test.relation](here, wanted[0])


def made(some: list[Row], **more: Any) -> FilterInput:
    return FilterInput(
        "flymq", rows_of("messages", *some),
        pa.table({"roles": pa.array([row.get("roles") for row in some], pa.list_(pa.string()))}), **more,
    )  # fmt: skip


@examples(60)
@example(condition("op", "==", "a"), [{"op": "A"}])
@given(trees | conditions(), st.lists(rows, min_size=4, max_size=12))
def test_a_tree_is_true_false_or_null_of_each_row(tree: BoundFilter, some: list[Row]) -> None:
    """Of a list a test is true where it is of any value inside."""
    assert mask(tree, made(some), 0).to_pylist() == [naive(tree, row) for row in some]


def test_conjuncts_are_the_parts_of_an_and_alone() -> None:
    one, two = condition("op", "exists"), condition("body_len", "exists")

    assert and_parts(Logic("and", (one, two))) == (one, two)
    either = Logic("or", (one, two))
    assert (and_parts(either), and_parts(one)) == ((either,), (one,))


def test_fields_of_another_protocol_are_not_known_and_do_not_exist() -> None:
    some = made([{"op": "a"}] * 2)
    equal = Condition(column("fq.user"), "==", {ValueKind.TEXT: ("ann",)})

    assert equal.mask(some, 0).to_pylist() == [None, None]
    assert Condition(column("fq.user"), "exists", {}).mask(some, 0).to_pylist() == [False, False]


def test_whether_an_exchange_exists_is_open_until_it_is_known() -> None:
    exists = Condition(column("latency_ns"), "exists", {})
    slow = Condition(column("latency_ns"), ">", {ValueKind.DURATION: (5,)})
    beside = pa.table({name: pa.nulls(3, pa.int64()) for name in TABLES["exchanges"].names})
    place = beside.column_names.index("latency_ns")
    beside = beside.set_column(place, "latency_ns", pa.array([9, None, None], pa.int64()))
    some = [{"op": "a"}] * 3

    assert exists.mask(made(some), 0).to_pylist() == [None] * 3
    known = made(some, exchanges=beside, unresolved=np.array([False, True, False]))
    assert exists.mask(known, 0).to_pylist() == [True, None, False]
    assert slow.mask(known, 0).to_pylist() == [True, None, None]


def test_words_are_those_of_texts_and_ends() -> None:
    some = made([{"destination": "b"}, {"destination": None}, {"destination": "a", "body_len": 3}])

    assert sorted(condition("destination", "exists").seen_values(some)) == ["a", "b"]
    assert condition("body_len", "exists").seen_values(some) == []
    assert Condition(column("client"), "exists", {}).seen_values(some) == ["10.0.0.1"]
    other = FilterInput("flymq", some.messages, pa.table({"user": ["ann"] * 3}))
    assert Condition(column("fq.user"), "exists", {}).seen_values(other) == []


def test_what_is_no_pattern_is_said() -> None:
    checked_pattern("^a+$")
    with pytest.raises(QueryError, match="is no regular expression: missing"):
        checked_pattern("(")


def addresses(count: int) -> list[str]:
    return [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(count)]


@pytest.mark.parametrize("text", ["client in ({})", "client in ({}) or client == 10.9.9.9", "client_ip in ({})"])
def test_many_addresses_take_no_pass_over_the_rows_each(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the addresses are no more look-ups: one for each address of the rows."""
    ends = [{"src_ip": address} for address in addresses(9)]
    messages = rows_of("messages", *ends)
    table = FilterInput("flymq", messages, messages)
    counts: list[int] = []
    contains = evaluation._Addresses.contains
    monkeypatch.setattr(evaluation._Addresses, "contains", lambda *given: counts.append(1) or contains(*given))
    totals = []
    for count in (225, 450):
        counts.clear()
        query(text.format(", ".join(addresses(count)))).mask(table)
        totals.append(len(counts))

    assert totals[0] == totals[1] > 0


def test_a_column_that_is_asked_for_several_values_is_one_condition() -> None:
    text = " or ".join(f"client == {address}" for address in addresses(450))

    (condition,) = query(text).conditions

    assert condition.relation == "in"


def test_a_regular_expression_is_bounded() -> None:
    with pytest.raises(QueryError, match="the most are 16,384"):
        query(f'topic matches "{"a" * 20_000}"')
