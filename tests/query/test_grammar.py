"""The text of a filter: its tree, and what is said of text that is none."""

import pytest

from mqpcap.errors import QueryError
from mqpcap.query.grammar import MAX_CHARACTERS, MAX_DEPTH, Comparison, Logic, parsed


def test_and_binds_closer_than_or_and_not_closest() -> None:
    a, b, c = (Comparison(name, "is") for name in "abc")

    assert parsed("not a and b or c") == Logic("or", (Logic("and", (Logic("not", (a,)), b)), c))
    assert parsed("!a && b || c") == parsed("NOT a AND b OR c")
    assert parsed("not (a and (b or c))") == Logic("not", (Logic("and", (a, Logic("or", (b, c)))),))


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("op == PUBLISH", Comparison("op", "==", ("PUBLISH",))),
        ("op=='PUBLISH'", Comparison("op", "==", ("PUBLISH",))),
        ('topic != "a b"', Comparison("topic", "!=", ("a b",))),
        (r'topic == "say \"x\" \\ \d"', Comparison("topic", "==", (r'say "x" \ \d',))),
        ("latency>50ms", Comparison("latency", ">", ("50ms",))),
        ("op in (a, 'b c',d)", Comparison("op", "in", ("a", "b c", "d"))),
        ("src_ip in 10.0.0.0/8", Comparison("src_ip", "in", ("10.0.0.0/8",))),
        ("client == [::1]:80", Comparison("client", "==", ("[::1]:80",))),
        ("op not in (a)", Logic("not", (Comparison("op", "in", ("a",)),))),
        ("key exists", Comparison("key", "exists")),
        ("key is not null", Comparison("key", "exists")),
        ("key is null", Logic("not", (Comparison("key", "exists"),))),
        ("flymq.records.value contains 'x'", Comparison("flymq.records.value", "contains", ("x",))),
        ("ts >= 2026-11-21T05:24:10Z", Comparison("ts", ">=", ("2026-11-21T05:24:10Z",))),
    ],
)
def test_tests(text: str, test: object) -> None:
    assert parsed(text) == test


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name is wanted, but it ends"),
        ("op ==", "a value is wanted after 'op ==', but it ends"),
        ("op = x", "'==' is wanted after 'op', not '='"),
        ("op == x y", "'and', 'or' or the end is wanted after 'op == x', not 'y'"),
        ("(op == x", "')' is wanted after '(op == x', but it ends"),
        ("op == x)", "'and', 'or' or the end is wanted after 'op == x', not ')'"),
        ('op == "x', "a quote that is not closed at character 7"),
        ("op == x &", "'&' at character 9"),
        ("op in (a b)", "',' or ')' is wanted after 'op in (a', not 'b'"),
        ("op is nul", "'null' or 'not null' is wanted after 'op is', not 'nul'"),
        ("op not x", "'in' is wanted after 'op not', not 'x'"),
        ("and", "a name is wanted, not 'and'"),
        ("== x", "a name is wanted, not '=='"),
        ('"op" == x', "a name is wanted, not 'op'"),
    ],
)
def test_what_is_no_filter_says_what_is_wanted_and_where(text: str, said: str) -> None:
    with pytest.raises(QueryError) as error:
        parsed(text)

    assert str(error.value) == said


def test_nesting_is_bounded() -> None:
    assert parsed("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == Comparison("a", "is")
    for text in ("(" * 100_000, "not " * 10_000 + "a", "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1)):
        with pytest.raises(QueryError):
            parsed(text)


def test_a_chain_is_not_nesting() -> None:
    tree = parsed(" or ".join(["op == x"] * 5000))

    assert isinstance(tree, Logic) and tree.word == "or"
    assert len(tree.parts) == 5000


def test_length_is_bounded() -> None:
    with pytest.raises(QueryError, match="the most are"):
        parsed("a" * (MAX_CHARACTERS + 1))


def test_relations_and_lists_are_also_read_as_wireshark_writes_them() -> None:
    relations = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "~": "matches"}

    for word, relation in relations.items():
        assert parsed(f"a {word} 1") == parsed(f"a {relation} 1")
    assert parsed("a in {1, 2}") == parsed("a in {1 2}") == parsed("a in (1, 2)")
    assert parsed("a == eq") == Comparison("a", "==", ("eq",))
    assert parsed("a matches x{2}") == Comparison("a", "matches", ("x{2}",))
    with pytest.raises(QueryError, match="'}' is wanted"):
        parsed("a in {1)")
