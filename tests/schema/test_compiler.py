"""Descriptions compiled: what is refused, and that both roads agree, message after message.

They do so on conditions, lengths with a sign and lists that may not be empty. Messages are read in one batch, as what
an earlier one leaves behind must not be seen in a later one.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import Said, by_classes, without_nulls
from scapy.fields import StrLenField
from shapes import message, protocol, protocol_of

from mqpcap.decode import bytecode
from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.errors import ProtocolError
from mqpcap.listing.explanation import explanation
from mqpcap.schema import fields as wire
from mqpcap.schema.compiler import RESERVED, compiled
from mqpcap.schema.fields import I32, U8, U32, Array, Bits, Bytes, Choice, GreedyBytes, Group, If, Nested, Text
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Layout, MessageQueue


class Pair(Message):
    """A part, and an item of a list, with a field that may be absent."""

    name = "Pair"
    fields_desc = [U8("c"), If(U8("d"), when="c"), If(U8("e"), when="c", equals=2)]


SHAPES = {
    "conditions": (
        U8("a"), If(U8("x"), when="a"), If(U8("y"), when="a", has=2), If(U8("z"), when="a", equals=1),
        GreedyBytes("rest"),
    ),
    "bits": (U8("a"), Bits("low", of="a", mask=3), If(U8("y"), when="low", equals=0), GreedyBytes("rest")),
    "items": (Array("pairs", Pair, prefix=1), GreedyBytes("rest")),
    "signed count": (I32("n"), Array("b", U8("b"), count="n"), GreedyBytes("rest")),
    "signed length": (I32("n"), Nested("p", Pair, length="n"), GreedyBytes("rest")),
    "absent": (U8("a"), If(U8("n"), when="a"), If(U8("x"), when="n", unless=3), If(U8("y"), when="n", equals=(3, 4))),
    "absent text": (
        U8("a"), If(Text("t", prefix=1), when="a"), If(U8("x"), when="t", unless=b"\1"),
        GreedyBytes("rest"),
    ),
    "group": (U8("a"), *Group(If(U8("x"), when="a", has=2), U8("y"), when="a", has=1)),
    "choice": (U8("a"), *Choice("c", by="a", of={1: U8("x"), (2, 3): Text("y", prefix=1), 4: wire.U16("z")})),
    "choice or": (U8("a"), *Choice("c", by="a", of={1: U8("x")}, otherwise=GreedyBytes("rest"))),
    "choice by text": (Text("a", size=1), *Choice("c", by="a", of={b"\1": U8("x"), b"\2": wire.U16("z")})),
    "some": (Array("b", Bytes("b", prefix=1), not_empty=True),),
    "some until zero": (Array("b", U8("b"), until_zero=1, not_empty=True), GreedyBytes("rest")),
    "some counted": (Array("b", U8("b"), prefix=1, not_empty=True), GreedyBytes("rest")),
}  # fmt: skip


# A protocol each: a column must not have two types.
TOYS = {shape: protocol(toy=message(shape, *fields)) for shape, fields in SHAPES.items()}


def batch(toy: MessageQueue, frames: list[bytes]) -> list[Said]:
    """What the interpreter says of messages that one run of it reads."""
    sizes = np.array([len(x) for x in frames], np.int64)
    ends = np.cumsum(sizes)
    n = len(frames)
    spans = Spans(
        np.frombuffer(b"".join(frames) + b"\0", np.uint8), ends - sizes, ends, np.zeros(n, np.int32),
        np.full(n, ANY, np.int64), np.zeros(n, np.uint8),
    )  # fmt: skip
    records = ColumnReader(toy).records(spans)
    rows = (without_nulls(row) for row in records.table.to_pylist())
    return [(row, Flaw(int(flaw))) for row, flaw in zip(rows, records.flaw, strict=True)]


SMALL = st.binary(max_size=8).map(lambda raw: bytes(b % 5 for b in raw))
"""Bytes of which many are conditions that hold, lengths that fit."""


@pytest.mark.parametrize("shape", SHAPES)
@given(frames=st.lists(SMALL | st.binary(max_size=6), min_size=1, max_size=6))
def test_roads_agree_message_after_message(shape: str, frames: list[bytes]) -> None:
    toy = TOYS[shape]

    said = batch(toy, frames)

    assert said == [by_classes(toy, "toy", raw) for raw in frames]
    for raw, (columns, flaw) in zip(frames, said, strict=True):
        best = explanation(toy, raw, "c2s").best
        assert best is not None
        assert best.fits == (flaw is Flaw.NONE)
        told = {i.column: i.value for i in best.items if i.column and i.depth == 0 and not isinstance(i.value, list)}
        assert not best.fits or set(told) == {k for k in columns if not isinstance(columns[k], list)} - {"c", "d", "e"}


HELD = {
    # shape: a message that leaves something behind, one in which the field is absent, and what that one says.
    "conditions": ("03 05 07", "00 09", {"a": 0, "rest": b"\x09"}),
    "bits": ("04 07", "01 09", {"a": 1, "low": 1, "rest": b"\x09"}),
    "absent": ("01 03 07", "00", {"a": 0}),
    "absent text": ("01 01 61 02", "00 09", {"a": 0, "rest": b"\x09"}),
    "choice": ("01 09", "05 00", None),
    "items": ("01 01 00", "02 00 00", {"pairs": [{"c": 0}, {"c": 0}], "rest": b""}),
    "some": ("01 61", "", None),
    "some until zero": ("05 00", "00 09", None),
    "some counted": ("01 61", "00 09", None),
}


@pytest.mark.parametrize("shape", HELD)
def test_what_an_earlier_message_said_is_not_said_of_the_next(shape: str) -> None:
    first, second, says = HELD[shape]

    before, after = batch(TOYS[shape], [bytes.fromhex(first), bytes.fromhex(second)])

    assert before[1] is Flaw.NONE
    assert after == (({}, Flaw.MALFORMED) if says is None else (says, Flaw.NONE))


def test_the_end_of_a_message_does_not_depend_on_an_earlier_message() -> None:
    """The scan that finds messages in a stream runs the same rows: one of three bytes, one of one, one of two."""
    toy = protocol(toy=message("stream", U8("a"), If(U8("x"), when="a"), If(U8("y"), when="a", has=2)))
    hits = np.zeros((5, 9), np.int64)
    stream = bytes.fromhex("030507 00 0100")

    n, *_ = compiled(toy).scanner("toy", hits).scan(memoryview(stream), 0, len(stream), True)

    assert hits[1, :n].tolist() == [3, 4, 6]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ((Text("t", prefix=1), Bytes("b", length="t")), "t, which is no number"),
        ((Text("t", prefix=1), If(U8("y"), when="t", has=1)), "t, which is no number"),
        ((Text("t", prefix=1), If(U8("y"), when="t", equals=1)), "t, which is no number"),
        ((U8("n"), If(U8("y"), when="n", equals=b"a")), "n, which is no text"),
        ((U8("a"), If(U8("n"), when="a"), Bytes("b", length="n")), "n, which is no earlier field that is always there"),
        ((U8("a"), If(U8("n"), when="a"), Bits("b", of="n", mask=1)), "n, which is no earlier field that is always"),
    ],
)
def test_what_refers_to_no_field_of_its_kind_is_refused(fields: tuple[wire.Kind, ...], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        compiled(protocol(toy=message("bad", *fields)))


def test_a_condition_of_another_class_is_refused() -> None:
    unknown = type("Unless", (If,), {})(U8("y"), when="n")

    with pytest.raises(ProtocolError, match="Unless is not in the vocabulary"):
        compiled(protocol(toy=message("bad", U8("n"), unknown)))


def test_a_header_of_no_fixed_size_is_refused() -> None:
    """The body is looked for after as many bytes as the header's fields take."""
    header = message("head", U8("a"), If(U8("op"), when="a"))
    layout = Layout("toy", "c2s", {ANY: (message("body", GreedyBytes("rest")),)}, header, "op")

    with pytest.raises(ProtocolError, match="a header's fields have a fixed size"):
        compiled(protocol_of(layout))


@pytest.mark.parametrize(
    "name", ["payload", "time", "name", "original", "direction", "fields", "class", "from", "copy"]
)
def test_a_field_that_scapy_or_python_owns_is_refused(name: str) -> None:
    bad = message("Bad")
    bad.fields_desc = [U8(name)]  # Scapy itself refuses keywords, where it makes signatures

    with pytest.raises(ProtocolError, match=rf"Bad\.{name}: .*{name}"):
        compiled(protocol(toy=bad))
    assert name in RESERVED


def test_stock_scapy_fields_are_refused() -> None:
    bad = type("Bad", (Message,), {"fields_desc": [StrLenField("topic", b"")], "name": "bad"})

    with pytest.raises(ProtocolError, match="StrLenField is not in the vocabulary"):
        compiled(protocol(toy=bad))


@pytest.mark.parametrize(
    ("first", "other", "why"),
    [
        (U8("x"), U32("x"), "column x is int32 elsewhere and int64 here"),
        (Bytes("x", prefix=1), Text("x", prefix=1), "column x is binary elsewhere and string here"),
        (Bytes("x", prefix=1), Bytes("x", prefix=1, secret=True), "x is a secret in one message and none in another"),
    ],
    ids=["numbers", "spans", "secrets"],
)
def test_a_column_is_of_one_type_and_one_secrecy(first: wire.Kind, other: wire.Kind, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"toy: two.x: .*{why}"):
        compiled(protocol(one=message("one", first), two=message("two", other)))


def test_a_class_of_several_layouts_is_compiled_once() -> None:
    same = message("same", U8("a"))
    program = compiled(protocol(one=same, two=same, three=message("other", U8("b"))))

    one, two, three = program.variant_pc.tolist()
    assert one == two != three
    assert program.variant_class == ("same", "same", "other")


def test_a_program_of_some_columns_reads_those_and_what_is_inside() -> None:
    toy = protocol(toy=message("toy", U8("a"), Array("pairs", Pair, prefix=1), GreedyBytes("rest")))
    program = compiled(toy)
    names = [column.name for column in program.columns]
    to_tape = {names[col] for col in program.only({"pairs"}).ops[bytecode.W_COL :: bytecode.OP_WORDS] if col >= 0}

    assert to_tape == {"pairs", "c", "d", "e"}
    assert {"a", "rest"} <= {names[col] for col in program.ops[bytecode.W_COL :: bytecode.OP_WORDS] if col >= 0}
