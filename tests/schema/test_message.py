"""Messages are built as asked, lengths computed where they are left out, and read wholly or not at all."""

import pytest
from scapy.packet import Raw
from shapes import message

from mqpcap.schema import fields as wire
from mqpcap.schema.fields import U8, Array, Bytes, GreedyBytes, If, Nested, Text

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


def test_a_length_that_is_computed_keeps_its_bound_and_one_that_is_set_may_pass_it() -> None:
    cls = message("computed", U8("n", at_most=2), Bytes("b", length="n"))

    assert bytes(cls(b=b"ab")) == b"\x02ab"
    assert bytes(cls(b=b"abc", n=3)) == b"\x03abc"
    with pytest.raises(ValueError, match="n is 3, but goes from 0 to 2"):
        bytes(cls(b=b"abc"))


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
