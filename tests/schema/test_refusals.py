"""The Scapy classes and the interpreter read a description alike, or it is refused at import."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from reading import by_classes, by_program
from shapes import message, protocol, protocol_of

from mqpcap.errors import ProtocolError
from mqpcap.listing.explanation import explanation
from mqpcap.schema import fields as wire
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import (
    I32,
    I64,
    U8,
    U16,
    U64,
    Array,
    Bits,
    Bool,
    Bytes,
    GreedyBytes,
    If,
    Kind,
    Late,
    Length,
    Nested,
    Text,
    VarUint,
)  # fmt: skip
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Derived, Layout, Remembered


class Maybe(Message):
    """A message of no bytes, or one."""

    name = "Maybe"
    fields_desc = [If(U8("m"), left=3)]


REFUSED: dict[str, tuple[Kind, ...]] = {
    "needs at_most up to 2..63 - 1": (U64("x", at_least=1),),
    "needs at_most up to 2..63 - 1 .too large": (U64("x", at_most=2**63 + 5),),
    "are not within 0 to 255": (U8("x", at_most=256),),
    "are not within 0 to 255 .among": (U8("x", among=(1, 256)),),
    "at_least is above at_most": (U8("x", at_least=9, at_most=3),),
    "its items may be empty": (Array("a", Maybe, prefix=1),),
    "its items may be empty .one kind": (Array("a", Text("t", until=0), prefix=1),),
    "its items may be empty .no count": (Array("a", Maybe),),
    "its items may be empty .until zero": (Array("a", Maybe, until_zero=1),),
    "it has two lengths or counts": (U8("n"), Array("a", U8("x"), count="n", prefix=1)),
    "it has two lengths or counts .until": (U8("n"), Array("a", U8("x"), count="n", until_zero=1)),
    "it has two lengths or counts .nested": (U8("n"), Nested("p", message("part", U8("y")), length="n", prefix=1)),
    "is a truth value": (Bool("n"), Bytes("b", length="n")),
    "prefix has one to eight bytes": (Bytes("b", prefix=9),),
    "until_zero has one to eight bytes": (Array("a", U8("x"), until_zero=9),),
    "size or delimiter": (Bytes("b", until=256),),
    "its bounds are no lengths": (Bytes("b", prefix=1, at_most=-1),),
    "has up to 31 bits": (U64("n"), Bits("b", of="n", mask=1 << 31)),
    "n is no unsigned number": (I32("n"), Bits("b", of="n", mask=1)),
    "it has bits that n has not": (U64("n"), Bits("b", of="n", mask=0xFF, shift=60)),
    "it has two conditions": (U8("n"), If(U8("x"), when="n", equals=1, has=1)),
    "it has two conditions .left": (U8("n"), If(U8("x"), when="n", left=1)),
    "follows has one to eight bytes": (If(U8("x"), follows=bytes(9)),),
    "n has no such bit": (U8("n"), If(U8("x"), when="n", has=256)),
    "n is never -1": (U64("n"), If(U8("x"), when="n", equals=-1)),
    "n is never 5": (Bool("n"), If(U8("x"), when="n", equals=5)),
    "an earlier field has the same column n": (U8("n"), U8("m", column="n")),
    "an earlier field has the same column n .nested": (U8("n"), Nested("p", message("part", U8("n")), prefix=1)),
    "only text and bytes can be secret": (U8("n", secret=True),),
    "only text and bytes can be secret.* its items can": (Array("a", Text("t", prefix=1), prefix=1, secret=True),),
    "only text and bytes can be a body": (U8("n", body=True),),
    "only a header has a Length": (Length("n"),),
    "it has one to 10 bytes": (VarUint("n", at_most_bytes=11),),
    "it has one to 10 bytes .big": (VarUint("n", at_most_bytes=10, order="big"),),
    "n is never 300": (U8("n"), If(U8("x"), when="n", equals=(1, 300))),
    "n may be absent, and has all 64 bits": (U8("a"), If(U64("n"), when="a"), If(U8("x"), when="n")),
    "Bool is no kind of a length or count": (Bytes("b", prefix=Bool),),
    "refers to header.n": (If(U8("x"), when="header.n"),),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_two_readers_would_read_differently_is_refused(why: str) -> None:
    with pytest.raises(ProtocolError, match=why.split(" .")[0]):
        compiled(protocol(toy=message("bad", *REFUSED[why])))


def test_two_fields_of_one_name_are_refused() -> None:
    bad = message("Bad")
    bad.fields_desc = [U8("n", column="one"), U8("n", column="two")]  # Scapy itself warns of them

    with pytest.raises(ProtocolError, match="an earlier field has the same name"):
        compiled(protocol(toy=bad))


def test_a_list_after_text_without_its_delimiter_is_absent() -> None:
    toy = protocol(toy=message("toy", Text("t", until=0), Array("a", U8("x"))))

    assert by_classes(toy, "toy", b"ab") == ({"t": "ab"}, Flaw.NONE) == by_program(toy, "toy", b"ab")


HEADERS = {
    "the operation op is no unsigned number": ((wire.I32("op"),), {"op": "op"}),
    "packed names flags": ((U16("flags"),), {"packed": ("flags", 1)}),
    "a header has one Length": ((Length("n"), Length("m")), {}),
    "the header has its column x": ((U8("x"),), {}),
    "head.n: a header's fields have a fixed size": ((VarUint("n"),), {}),
    "head.n: a header's fields have a fixed size .not last": ((Length("n", kind=VarUint), U8("y")), {}),
    "head.n: Bool is no kind of a length": ((Length("n", kind=Bool),), {}),
    "a header with packed bodies has a fixed size": ((U8("f"), Length("n", kind=VarUint)), {"packed": ("f", 1)}),
}


@pytest.mark.parametrize("why", HEADERS)
def test_a_header_that_two_readers_would_read_differently_is_refused(why: str) -> None:
    header, words = HEADERS[why]
    layout = Layout("toy", "c2s", {ANY: (message("body", U8("x")),)}, message("head", *header), **words)

    with pytest.raises(ProtocolError, match=why.split(" .")[0]):
        compiled(protocol_of(layout))


@pytest.mark.parametrize("hidden", [Late("tree", column=None), Bytes("tree", prefix=1)], ids=["late", "hidden column"])
def test_a_secret_made_of_bytes_that_are_shown_is_refused(hidden: Kind) -> None:
    """The table would mask the column, and ``explain`` print the bytes."""
    toy = protocol(toy=message("toy", hidden))
    with pytest.raises(ProtocolError, match="it is secret, but may be made of tree, which is not"):
        compiled(replace(toy, derived=(Derived("password", pa.string(), secret=True),), hidden=("tree",)))


@pytest.mark.parametrize(
    ("remembered", "why"),
    [
        (Remembered("topic", key="word"), "toy: remembered topic: its key word needs a number in word"),
        (Remembered("topic", key="tags.word"), "its key tags.word needs a number in word"),
        (Remembered("topic", key="tags.n", item=("word", 1)), "its key tags.n needs a number in word"),
        (Remembered("topic", key="lost"), "its key lost needs a number in lost"),
        (Remembered("alias", key="alias"), "alias is no column of text"),
        (Remembered("topic", key="alias", item=("alias", 1)), "item goes with a key in a list"),
    ],
)
def test_what_stands_for_a_text_is_a_number(remembered: Remembered, why: str) -> None:
    tag = message("tag", U8("n"), Text("word", prefix=1))
    toy = protocol(toy=message("toy", U8("alias"), Text("topic", prefix=1), Text("word", prefix=1), Array("tags", tag)))

    compiled(replace(toy, remembered=(Remembered("topic", key="tags.n"), Remembered("word", key="alias"))))
    with pytest.raises(ProtocolError, match=why):
        compiled(replace(toy, remembered=(remembered,)))


def test_a_condition_on_a_truth_value_takes_what_is_not_one_for_false() -> None:
    toy = protocol(toy=message("toy", Bool("n"), If(U8("x"), when="n", equals=0), GreedyBytes("rest")))
    raw = bytes([5, 7])

    assert by_program(toy, "toy", raw) == ({"n": False, "x": 7, "rest": b""}, Flaw.NONE) == by_classes(toy, "toy", raw)


# -- random descriptions -----------------------------------------------------------------------------------

VARIABLE = tuple(
    partial(VarUint, at_most_bytes=n, order=order, zigzag=zigzag, shortest=shortest)
    for n, order, zigzag, shortest in ((2, "little", False, False), (4, "big", False, True), (9, "big", True, False),
                                       (10, "little", False, False), (10, "little", True, True))
)  # fmt: skip
NUMBERS = (U8, U16, wire.U32, U64, I32, I64, wire.U16LE, wire.U32LE, Bool, *VARIABLE)
EDGES = (0, 1, 2, 3, 127, 128, 255, 256, 2**31, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1)
_NUMBER = count()


def random_field(draw: random.Random, earlier: list[str], depth: int = 0) -> Kind:
    """A field of any kind, mostly one that compiles."""
    name = f"x{next(_NUMBER)}"
    bounds = {word: draw.choice(EDGES) for word in ("at_least", "at_most") if draw.random() < 0.1}
    ways: list[Callable[[], Kind]] = [
        lambda: draw.choice(NUMBERS)(name, **bounds),
        lambda: draw.choice(NUMBERS)(name),
        lambda: U8(name, equals=draw.choice((0, 1, 2))),
        lambda: draw.choice(NUMBERS)(name, among=(0, 1, 3)),
        lambda: Text(name, among=(b"", b"\0", b"\1\2"), **measure(draw, earlier)),
        lambda: Text(name, strict=draw.random() < 0.3, printable=draw.random() < 0.3, **measure(draw, earlier)),
        lambda: Bytes(name, **bounds, **measure(draw, earlier)),
        lambda: Text(name, until=draw.choice((0, 1, 58))),
    ]
    if earlier:
        of = draw.choice(earlier)
        ways += [
            lambda: Bits(name, of=of, mask=draw.choice((1, 3, 7, 255, 2**31)), shift=draw.choice((0, 1, 4, 7, 60))),
            lambda: If(random_field(draw, earlier, 2), **condition(draw, of)),
        ]
    if depth < 2:
        part = lambda: message(name, *random_fields(draw, depth + 1))  # noqa: E731
        ways += [
            lambda: Nested(name, part(), **measure(draw, earlier, sizes=False)),
            lambda: Array(name, part(), **counted(draw, earlier)),
            lambda: Array(name, random_field(draw, [], 2), not_empty=draw.random() < 0.3, **counted(draw, earlier)),
        ]
    return draw.choice(ways)()


def measure(draw: random.Random, earlier: list[str], sizes: bool = True) -> dict[str, object]:
    word = draw.choice(["prefix", "length", "size", ""] if sizes else ["prefix", "length", ""])
    length = draw.choice(earlier or [""])
    values = {
        "prefix": draw.choice((1, 1, 2, 8, wire.U16LE, *VARIABLE)),
        "size": draw.choice((0, 1, 2)),
        "length": length,
    }
    return {word: values[word]} if word else {}


def counted(draw: random.Random, earlier: list[str]) -> dict[str, object]:
    word = draw.choice(["prefix", "count", "until_zero", ""])
    values = {
        "prefix": draw.choice((1, 2, *VARIABLE)),
        "count": draw.choice(earlier or [""]),
        "until_zero": draw.choice((1, 2)),
    }
    return {word: values[word]} if word else {}


def condition(draw: random.Random, when: str) -> dict[str, object]:
    return draw.choice((
        {"when": when}, {"when": when, "equals": draw.choice((-1, 0, 1, 2, 255))}, {"when": when, "equals": b"a"},
        {"when": when, "equals": frozenset((0, 2))}, {"when": when, "unless": draw.choice((0, 1, (1, 2), b"a"))},
        {"when": when, "has": draw.choice((1, 2, 128))}, {"left": draw.choice((0, 1, 2))}, {"follows": b"\0\1"},
    ))  # fmt: skip


def random_fields(draw: random.Random, depth: int = 0) -> list[Kind]:
    fields: list[Kind] = []
    for _ in range(draw.randint(1, 4)):
        fields.append(random_field(draw, [f.name for f in fields], depth))
    return fields


SMALL = st.binary(max_size=12).map(lambda raw: bytes(b % 4 for b in raw)) | st.binary(max_size=24)


@examples(150)
@example(seed=91721, frames=[b"\1"])  # the count of a list is -1
@given(seed=st.integers(0, 1 << 40), frames=st.lists(SMALL, min_size=6, max_size=6))
def test_roads_agree_on_any_description_that_is_not_refused(seed: int, frames: list[bytes]) -> None:
    try:
        toy = protocol(toy=message("toy", *random_fields(random.Random(seed))))
        compiled(toy)
    except ProtocolError:
        return

    for raw in frames:
        said = by_program(toy, "toy", raw)
        assert said == by_classes(toy, "toy", raw), raw.hex()
        best = explanation(toy, raw, "c2s").best
        assert best is not None
        assert best.fits == (said[1] is Flaw.NONE)


def test_many_random_descriptions_compile() -> None:
    """A property that refuses nearly all of its examples would show nothing."""
    compiled_count = 0
    for seed in range(300):
        try:
            compiled(protocol(toy=message("toy", *random_fields(random.Random(seed)))))
            compiled_count += 1
        except ProtocolError:
            pass

    assert compiled_count > 100
