"""A kind says why bytes do not fit."""

import pytest

from mqpcap.schema.fields import U8, U16, Array, Broken, Kind, Nested, Text
from mqpcap.schema.message import Message


class Pair(Message):
    """Two bytes."""

    name = "pair"
    fields_desc = [U8("one"), U8("two")]


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        (U16("n"), "01", "it has 2 bytes, 1 are left"),
        (U8("n", equals=3), "04", "it is {}, not 3"),
        (U8("n", at_least=2, at_most=3), "04", "{} is not within 2 to 3"),
        (U8("n", at_most=3), "04", "{} is not within to 3"),
        (Text("t", prefix=2), "00", "its length has 2 bytes, 1 are left"),
        (Text("t", prefix=1), "0261", "{} bytes are claimed, 1 are left"),
        (Text("t", prefix=1, at_most=1), "026161", "{} bytes are more than the 1 there may be"),
        (Text("t", prefix=1, at_least=1), "00", "{} bytes are fewer than the 1 there must be"),
        (Text("t", prefix=1, strict=True), "01ff", "it is no UTF-8"),
        (Text("t", prefix=1, printable=True), "0107", "it has a control character"),
        (Array("a", U8("x"), prefix=1), "0201", "{} elements are claimed, 1 bytes are left"),
        (Array("a", U8("x"), until_zero=1), "01", "the list has no end"),
        (Array("a", U8("x"), not_empty=True), "", "the list is empty"),
        (Nested("p", Pair, prefix=1), "03010203", "1 of its bytes are left over"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_why_bytes_do_not_fit(kind: Kind, raw: str, why: str) -> None:
    """Numbers that are bytes of the message stay apart from the text: they may be those of a secret."""
    with pytest.raises(Broken) as broken:
        kind.getfield(Pair(), bytes.fromhex(raw))

    assert broken.value.why == why
    assert len(broken.value.numbers) == why.count("{}")
