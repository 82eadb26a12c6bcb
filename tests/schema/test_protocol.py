"""What a description says of its layouts, of a connection's first bytes, and of rows that are evidence."""

from dataclasses import replace
from typing import Any

import pytest
from reading import observe
from shapes import message, protocol_of

from mqpcap.schema.fields import U8, GreedyBytes
from mqpcap.schema.protocol import (
    ANY,
    ConnectionFacts,
    Direction,
    Evidence,
    EvidenceRule,
    Layout,
    Observation,
    Opening,
    Variant,
)

ONE, TWO, REST = message("one", U8("a")), message("two", U8("b")), message("rest", GreedyBytes("c"))
HEAD = message("head", U8("op"))


def layout(name: str = "toy", direction: Direction = "c2s", extra: str | None = None) -> Layout:
    bodies = {1: (ONE, Variant(TWO, "new")), 2: (TWO,), ANY: (REST,)}
    return Layout(name, direction, bodies, HEAD, "op", {1: "FIRST"}, "old", extra)


def test_an_operation_has_its_variants_or_those_of_any() -> None:
    toy = layout()

    assert toy.variants_of(1) == (Variant(ONE), Variant(TWO, "new"))
    assert toy.variants_of(9) == (Variant(REST),)
    assert Layout("strict", "c2s", {1: (ONE,)}).variants_of(9) == ()
    assert toy.messages() == [ONE, TWO, TWO, REST]


def test_only_variants_of_the_layouts_own_dialect_leave_bytes_over() -> None:
    open_, strict = layout(extra="extra"), layout()
    variants = [Variant(ONE), Variant(ONE, "old"), Variant(ONE, "new")]

    assert [open_.may_leave(x) for x in variants] == [True, True, False]
    assert [strict.may_leave(x) for x in variants] == [False] * 3


def test_layouts_are_found_by_name() -> None:
    there, back = layout("there"), layout("back", "s2c")
    toy = protocol_of(there, back)

    assert (toy.layout("there"), toy.layout("back")) == (there, back)
    with pytest.raises(KeyError):
        toy.layout("elsewhere")


def test_classes_know_the_protocol_that_they_begin_messages_of() -> None:
    head, body = message("front", U8("op")), message("behind", GreedyBytes("rest"))
    framed = Layout("framed", "c2s", {7: (body,)}, head, "op")
    toy = protocol_of(framed)

    assert (head.of_protocol, body.of_protocol) == (toy, None)
    assert head.layouts == (framed,)
    assert bytes(head() / body(rest=b"x")) == b"\x07x"  # the body says its operation
    bare = message("bare", U8("a"))
    assert protocol_of(Layout("bare", "c2s", {ANY: (bare,)})) is bare.of_protocol


def test_a_side_of_an_opening_says_whether_it_is_all() -> None:
    opening = Opening(b"ask", b"say", True, False, False, True, True, False, lambda *_: None)

    assert opening.side("c2s") == (b"ask", True, False)
    assert opening.side("s2c") == (b"say", False, True)


def test_evidence_is_given_row_by_row_with_its_connection() -> None:
    seen: list[tuple[Evidence, Direction, int, int, tuple[Any, ...]]] = []

    def keep(rows: Observation) -> None:
        seen.extend(rows.each("a", "b"))

    rule = EvidenceRule(None, keep, lambda _: ConnectionFacts())
    body = message("body", U8("a"), GreedyBytes("b"))
    toy = replace(protocol_of(Layout("toy", "s2c", {ANY: (body,)})), evidence=rule)
    connection = Evidence(1, "10.0.0.1", 5100, 0)

    observe(toy, connection, "s2c", "toy", b"\x05hi", 7, ts_ns=90)

    assert seen == [(connection, "s2c", 7, 90, (5, b"hi"))]
