"""Typed trees: bytes to JSON text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import ended_if_hung

from mqpcap.protocols.msgq import kinds, tree
from mqpcap.protocols.msgq.documents import columns
from mqpcap.schema.flaws import Flaw

LEVELS = 500


def pairs(*items: tuple[bytes, str]) -> bytes:
    return b"".join(bytes([len(tag)]) + tag + bytes.fromhex(item) for tag, item in items)


def value(item: str) -> object:
    """The value of one item, as JSON, by way of a hash with it alone."""
    text = tree.text(pairs((b"k", item)))
    return None if text is None else json.loads(text)["k"]


def nested(levels: int) -> bytes:
    """One item: a list in a list and so on, all lengths of 32 bits."""
    out = b""
    for _ in range(levels):
        out = b"\x03" + len(out).to_bytes(4, "big") + out
    return out


def flaw_of(content: bytes) -> Flaw:
    here, none = ((np.zeros(1, np.int64), np.full(1, n, np.int64)) for n in (len(content), -1))
    flaw = np.zeros(1, np.uint8)
    columns(np.frombuffer(content, np.uint8), here, none, none, flaw)
    return Flaw(int(flaw[0]))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("2100", ""),
        ("2103616263", "abc"),
        ("110003616263", "abc"),
        ("0100000003616263", "abc"),
        ("e103616263", "abc"),  # bits 6-7 are ignored
        ("2803e282ac", "€"),
        ("2802ff00", {"hex": "ff00"}),
        ("2102c080", {"hex": "c080"}),  # overlong
        ("2103eda080", {"hex": "eda080"}),  # a surrogate
        ("2200", {}),
        ("2300", []),
        ("04", None),
        ("24", None),
        ("34", None),
        ("250101", True),
        ("250131", True),
        ("250100", False),
        ("250130", False),
        ("250102", {"hex": "02"}),
        ("2603303037", 7),
        ("26022d35", -5),
        ("26022d30", 0),
        ("26023561", "5a"),
        ("2600", ""),
        ("26012d", "-"),
        ("2703312e35", 1.5),
        ("270531652b3232", 1e22),
        ("27022e35", 0.5),
        ("2702352e", 5.0),
        ("2703696e66", "inf"),
        ("27036e616e", "nan"),
        ("27053165343030", "1e400"),
        ("2704312e3078", "1.0x"),
    ],
)
def test_item(item: str, expected: object) -> None:
    assert value(item) == expected


def test_list_of_mixed_items() -> None:
    assert value("230d210131210132042104 74686973") == ["1", "2", None, "this"]


def test_integers_of_any_size_keep_their_digits() -> None:
    digits = "9" * 5000

    text = tree.text(b"\x01k\x16" + len(digits).to_bytes(2, "big") + digits.encode())

    assert text == '{"k":' + digits + "}"


@pytest.mark.parametrize(
    "item", ["2f0161", "200161", "3103616263", "2105616263", "11000561", "1100", "21", "0100", "2302210561", "220261"]
)
def test_item_that_breaks_the_layout_is_malformed(item: str) -> None:
    assert flaw_of(pairs((b"k", item))) is Flaw.MALFORMED


@pytest.mark.parametrize("content", [b"\x05ab", b"\x01", b"\x01a", b"\x00"])
def test_tag_without_an_item_is_malformed(content: bytes) -> None:
    assert flaw_of(content) is Flaw.MALFORMED


def test_length_is_checked_against_its_container_not_the_message() -> None:
    """The list has two bytes left and the item in it wants three, which the message has."""
    assert flaw_of(pairs((b"a", "2304 21036162"), (b"b", "210163"))) is Flaw.MALFORMED


def test_tag_of_length_zero_is_a_key() -> None:
    assert tree.text(b"\x00\x21\x04zero") == '{"":"zero"}'


def test_tag_that_is_not_utf8() -> None:
    assert tree.text(pairs((b"\xff\x01", "04"))) == '{"hex:ff01":null}'


def test_last_of_duplicate_tags_wins_at_the_place_of_the_first() -> None:
    assert tree.text(pairs((b"a", "210131"), (b"b", "04"), (b"a", "210132"))) == '{"a":"2","b":null}'


def test_duplicates_among_many_tags() -> None:
    many = [(str(i % 700).encode(), "2604" + f"{i:04d}".encode().hex()) for i in range(1000)]

    text = tree.text(pairs(*many))

    assert text is not None and json.loads(text) == {str(i): i + 700 if i < 300 else i for i in range(700)}


def test_embedded_message_stands_as_its_object() -> None:
    inner = kinds.message({"q": "1"})

    assert tree.text(kinds.encode({"msg": inner, "n": "2"})) == '{"msg":{"q":"1"},"n":"2"}'


def test_embedded_message_that_is_broken_stands_as_text() -> None:
    assert tree.text(kinds.encode({"msg": b"Skan\x05ab"})) == '{"msg":"Skan\\u0005ab"}'


def test_explicit_top_hash_is_tried_first() -> None:
    content = pairs((b"v", "210131"))

    assert tree.text(b"\x22" + bytes([len(content)]) + content) == '{"v":"1"}'
    assert tree.text(b"\x12\x00" + bytes([len(content)]) + content) == '{"v":"1"}'
    assert tree.text(b"\x02\0\0\0" + bytes([len(content)]) + content) == '{"v":"1"}'


def test_tag_of_34_bytes_is_no_explicit_hash() -> None:
    assert tree.text(b"\x22" + b"t" * 34 + b"\x04") == '{"' + "t" * 34 + '":null}'


@pytest.mark.parametrize("null", ["2400", "140000"])
def test_null_with_a_length_where_nothing_else_decodes(null: str) -> None:
    assert tree.text(pairs((b"a", null), (b"b", "210131"))) == '{"a":null,"b":"1"}'


def test_null_with_a_length_code_is_one_byte_where_that_decodes() -> None:
    assert tree.text(pairs((b"a", "24"), (b"", "210131"))) == '{"a":null,"":"1"}'


def test_depth_is_bounded() -> None:
    """The outer hash is a level: 499 lists fit in it, 500 do not."""
    assert flaw_of(b"\x01k" + nested(LEVELS - 1)) is Flaw.NONE
    assert flaw_of(b"\x01k" + nested(LEVELS)) is Flaw.TOO_LONG
    assert flaw_of(b"\x01k" + nested(10_000)) is Flaw.TOO_LONG


def test_embedded_messages_count_in_the_depth() -> None:
    def inside(times: int) -> bytes:
        message = kinds.MAGIC
        for _ in range(times - 1):
            message = kinds.MAGIC + b"\x01k\x01" + len(message).to_bytes(4, "big") + message
        return message[4:]

    assert flaw_of(inside(LEVELS)) is Flaw.NONE
    assert flaw_of(inside(LEVELS + 1)) is Flaw.TOO_LONG


def test_hostile_messages_take_linear_time() -> None:
    """Embedded messages that each have four readings, and a hash of many equal tags."""
    message = kinds.MAGIC + b"\x01a\x24\x01"
    for _ in range(300):
        message = kinds.MAGIC + b"\x01n\x24\x01k\x01" + len(message).to_bytes(4, "big") + message
    same = b"\x01a\x04" * 20_000

    with ended_if_hung():
        tree.text(message[4:])
        text = tree.text(same)

    assert text == '{"a":null}'


def test_escapes_are_those_of_json_dumps() -> None:
    text = "".join(map(chr, range(0x100))) + "€😀"

    assert tree.text(kinds.encode({"k": text})) == json.dumps({"k": text}, ensure_ascii=False, separators=(",", ":"))


def test_items_of_a_message_are_bounded() -> None:
    nulls = b"\x04" * 2_097_153

    assert flaw_of(b"\x01k\x03" + len(nulls).to_bytes(4, "big") + nulls) is Flaw.TOO_LONG


def test_string_set_aside_gives_way_to_a_later_item_of_its_tag() -> None:
    content = kinds.encode({"k": kinds.message({"q": "1"})}) + kinds.encode({"k": "2"})

    assert tree.text(content) == '{"k":"2"}'


def test_documents_leave_a_long_msg_out_and_the_msg_stays_whole() -> None:
    """The msg is compared with others before it is cut; the second row is cut off, the third has no msg."""
    whole = kinds.encode({"msg": "a€b", "seq": 5}, typed=True)
    content = whole + whole[:-1] + kinds.encode({"seq": 6}, typed=True)
    ends = np.array([len(whole), 2 * len(whole) - 1, len(content)], np.int64)
    places = np.array([0, *ends[:-1]], np.int64), np.diff(ends, prepend=0)
    none = np.zeros(3, np.int64), np.full(3, -1, np.int64)

    def found(keep: int | None) -> dict[str, list[object]]:
        data = np.frombuffer(content, np.uint8)
        out = columns(data, places, none, none, np.zeros(3, np.uint8), keep)
        return {name: out[name].to_pylist() for name in ("msg", "seq", "document")}

    for keep, said in ((None, '"a€b"'), (7, '"a€b"'), (6, "null"), (0, "null")):
        assert found(keep) == {
            "msg": ['"a€b"', None, None],
            "seq": ["5", None, "6"],
            "document": [f'{{"msg":{said},"seq":5}}', None, '{"seq":6}'],
        }


def test_encode_takes_the_shortest_lengths() -> None:
    assert kinds.encode({"k": "x" * 255})[2:4] == b"\x21\xff"
    assert kinds.encode({"k": "x" * 256})[2:5] == b"\x11\x01\x00"
    assert kinds.encode({"k": "x" * 65536})[2:7] == b"\x01\x00\x01\x00\x00"
    assert kinds.encode({"a": None, "t": True, "i": -7, "r": 1.5, "s": "u"}, typed=True) == pairs(
        (b"a", "04"), (b"t", "250131"), (b"i", "26022d37"), (b"r", "2703312e35"), (b"s", "280175")
    )


def test_typed_items_are_seen_inside_lists() -> None:
    assert tree.has_typed_items(kinds.message({"a": [True]}, typed=True))
    assert not tree.has_typed_items(kinds.message({"a": [True, None, {"b": b"x"}]}))
    assert not tree.has_typed_items(b"no message")


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), _plain, max_size=5))
def test_what_is_encoded_typed_comes_back(value: dict[str, kinds.Value]) -> None:
    text = tree.text(kinds.encode(value, typed=True))

    assert text is not None and json.loads(text) == value


@given(st.binary(max_size=80))
def test_any_bytes_are_a_document_or_a_flaw(content: bytes) -> None:
    text = tree.text(content)

    assert (text is None) == (flaw_of(content) is not Flaw.NONE)
    if text is not None:
        json.loads(text)
