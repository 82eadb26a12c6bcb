"""Conditions, lengths with a sign and lists that may not be empty: both roads agree, message after message.

Its messages are read in one batch, as what an earlier one leaves behind must not be seen in a later one. What refers to
a field that may be absent is refused.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import Said, by_classes, without_nulls
from scapy.packet import Raw

from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.errors import ProtocolError
from mqpcap.explain import explanation
from mqpcap.schema import fields as wire
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import I32, U8, Array, Bits, Bytes, GreedyBytes, If, Nested, Text
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Claim, Envelope, Layout, MessageQueue, Verdict


def message(shape: str, *fields: wire.Kind) -> type[Message]:
    return type(shape, (Message,), {"name": shape, "fields_desc": list(fields)})


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
    "some": (Array("b", Bytes("b", prefix=1), not_empty=True),),
    "some until zero": (Array("b", U8("b"), until_zero=1, not_empty=True), GreedyBytes("rest")),
    "some counted": (Array("b", U8("b"), prefix=1, not_empty=True), GreedyBytes("rest")),
}  # fmt: skip


def protocol(**bodies: type[Message]) -> MessageQueue:
    layouts = tuple(Layout(name, "c2s", {ANY: (cls,)}) for name, cls in bodies.items())
    return MessageQueue("toy", "Toy", (1,), ("v",), layouts, lambda _: Claim(Verdict.NO), "", Envelope())


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


def test_where_a_message_ends_is_not_told_by_an_earlier_one() -> None:
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
        ((U8("a"), If(U8("n"), when="a"), If(U8("y"), when="n")), "n, which is no earlier field that is always there"),
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
    """The body is looked for behind as many bytes as the header's fields take."""
    header = message("head", U8("a"), If(U8("op"), when="a"))
    layout = Layout("toy", "c2s", {ANY: (message("body", GreedyBytes("rest")),)}, header, "op")

    with pytest.raises(ProtocolError, match="a header's fields have a fixed size"):
        compiled(MessageQueue("toy", "Toy", (1,), ("v",), (layout,), lambda _: Claim(Verdict.NO), "", Envelope()))


# -- building --------------------------------------------------------------------------------------------

BOUNDED: dict[str, tuple[wire.Kind, object, object]] = {
    "number": (U8("x", at_most=7), 7, 8),
    "text": (Text("x", prefix=1, at_most=3), b"abc", b"abcd"),
    "item": (Array("x", Text("i", prefix=1, at_most=1), prefix=1), [b"a"], [b"a", b"bb"]),
    "part": (Nested("x", message("inner", GreedyBytes("rest")), prefix=1, at_most=2), None, None),
    "only": (If(U8("x", at_most=7), left=1), 7, 8),
}


@pytest.mark.parametrize("kind", BOUNDED)
def test_what_passes_a_bound_is_built_as_asked_and_not_read(kind: str) -> None:
    field, most, over = BOUNDED[kind]
    if isinstance(field, Nested):
        most, over = (field.message(rest=b"a" * n) for n in (2, 3))
    cls = message(f"bounded {kind}", field)

    assert cls.read(bytes(cls(x=most)), "c2s").fields["x"] is not None
    assert Raw in cls.read(bytes(cls(x=over)), "c2s")


def test_a_length_that_is_computed_may_pass_its_bound() -> None:
    cls = message("computed", U8("n", at_most=2), Bytes("b", length="n"))

    assert bytes(cls(b=b"ab")) == b"\x02ab"
    assert bytes(cls(b=b"abc")) == b"\x03abc"


LIES: dict[str, tuple[wire.Kind, dict[str, object], str]] = {
    "text": (Text("x", prefix=2), {"x": "ab", "x_len": 99}, "0063 6162"),
    "list": (Array("x", U8("i"), prefix=4), {"x": [7], "x_count": 3}, "00000003 07"),
    "part": (Nested("x", message("of lies", U8("n")), prefix=2), {"x_len": 0}, "0000 00"),
    "under a condition": (If(Text("x", prefix=1), left=1), {"x": b"a", "x_len": 0}, "00 61"),
    "word of Python's": (Text("from_", prefix=1), {"from_": "a", "from_len": 9}, "09 61"),
    "zero is a value": (Text("x", prefix=1), {"x": "a", "x_len": 0}, "00 61"),
}


@pytest.mark.parametrize("name", LIES)
def test_every_prefix_can_be_lied_about(name: str) -> None:
    field, values, wanted = LIES[name]
    cls = message("Lies", field)
    lie = cls(**values)

    assert bytes(lie) == bytes.fromhex(wanted)
    assert bytes(lie.copy()) == bytes.fromhex(wanted)
    if not isinstance(field, Nested):
        assert bytes(eval(lie.command(), {"Lies": cls})) == bytes.fromhex(wanted)


def test_a_prefix_that_is_not_given_follows_the_field() -> None:
    cls = message("follows", Text("x", prefix=1), U8("behind"))
    read = cls(b"\x02ab\x07")

    assert "x_len" not in read.command()
    assert "x_len     = 2" in read.show(dump=True)
    read.x = b"abc"
    assert bytes(read) == b"\x03abc\x07"
    read.x_len = 9
    read.x = b""
    assert bytes(read) == b"\x09\x07"
    read.x_len = None
    assert bytes(read) == b"\x00\x07"


def test_items_of_a_list_keep_their_own_lengths() -> None:
    """An item that is called as a field of the message is none."""
    cls = message("items", Text("x", prefix=1), Array("list", Text("x", prefix=1), prefix=1))

    assert bytes(cls(x="a", x_len=5, list=["bc"])) == b"\x05a\x01\x02bc"


@pytest.mark.parametrize("field", [Text("x", prefix=1, at_most=0), Text("x", prefix=1, at_least=20)])
def test_random_values_keep_the_bounds(field: wire.Kind) -> None:
    cls = message("random", field)

    for _ in range(20):
        assert cls.begin(bytes(cls(x=field.randval())))[1] == b""
