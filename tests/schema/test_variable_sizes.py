"""Numbers of variable size, headers that end in one, and bodies that name fields of their header."""

from functools import partial
from typing import Any

import pytest
from reading import Said, by_classes, by_program, end_of
from scapy.packet import Raw
from shapes import message, protocol, protocol_of

from mqpcap.listing.explanation import explanation
from mqpcap.schema.compiler import compiled
from mqpcap.schema.fields import (
    U8,
    U16,
    U16LE,
    Array,
    Bits,
    Bytes,
    GreedyBytes,
    If,
    Kind,
    Length,
    Nested,
    Text,
    VarUint,
)
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import Layout, MessageQueue


def read(kind: Kind, raw: bytes) -> Said:
    toy = protocol(toy=message("toy", kind))
    said = by_program(toy, "toy", raw)
    assert said == by_classes(toy, "toy", raw)
    best = explanation(toy, raw, "c2s").best
    assert best is not None
    assert best.fits == (said[1] is Flaw.NONE)
    return said


# MQTT 3.1.1, table 2.4; protobuf's encoding page (150 is 96 01, -2 as sint is 03);
# SQLite's and MIDI's order: 0x81 0x00.
@pytest.mark.parametrize(
    ("raw", "value", "words"),
    [
        ("00", 0, {}),
        ("7f", 127, {}),
        ("8001", 128, {}),
        ("ff7f", 16_383, {}),
        ("80808001", 2_097_152, {}),
        ("ffffff7f", 268_435_455, {}),
        ("9601", 150, {"at_most_bytes": 10}),
        ("03", -2, {"zigzag": True}),
        ("8100", 128, {"order": "big"}),
        ("ff" * 8 + "7f", 2**63 - 1, {"at_most_bytes": 9}),
        ("ff" * 9 + "01", 2**64 - 1, {"at_most_bytes": 10}),
        ("ff" * 9 + "01", -(2**63), {"at_most_bytes": 10, "zigzag": True}),
    ],
)
def test_a_number_of_seven_bits_a_byte(raw: str, value: int, words: dict[str, Any]) -> None:
    kind = partial(VarUint, "n", **words)

    assert read(kind(), bytes.fromhex(raw)) == ({"n": value}, Flaw.NONE)
    assert bytes(message("built", kind())(n=value)).hex() == raw


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("8080", {}),
        ("8080808001", {}),
        ("ff" * 9 + "02", {"at_most_bytes": 10}),
        ("8000", {"shortest": True}),
        ("8001", {"shortest": True, "order": "big"}),
    ],
)
def test_what_is_no_such_number(raw: str, words: dict[str, Any]) -> None:
    assert read(VarUint("n", **words), bytes.fromhex(raw)) == ({}, Flaw.MALFORMED)


def test_a_number_that_has_too_many_bits_is_not_built() -> None:
    with pytest.raises(ValueError, match="n is 128, but goes from 0 to 127"):
        bytes(message("built", VarUint("n", at_most_bytes=1))(n=128))


@pytest.mark.parametrize(
    ("fields", "raw", "columns"),
    [
        ((VarUint("n"), Bytes("b", length="n")), "8001" + "61" * 128, {"b": b"a" * 128}),
        ((Bytes("b", prefix=VarUint),), "03 616263", {"b": b"abc"}),
        ((Array("b", U16("x"), prefix=U16LE),), "0200 0007 0008", {"b": [7, 8]}),
        ((Nested("p", message("part", Text("t", prefix=1)), prefix=VarUint),), "02 01 61", {"t": "a"}),
        (
            (U8("a"), Bits("n", of="a", mask=7, shift=1, column=None), Bytes("b", length="n")), "04 6161",
            {"a": 4, "b": b"aa"},
        ),
    ],
)  # fmt: skip
def test_any_number_is_a_length_and_is_computed(fields: tuple[Kind, ...], raw: str, columns: dict[str, object]) -> None:
    toy = protocol(toy=message("toy", *fields))
    data = bytes.fromhex(raw)

    assert by_program(toy, "toy", data) == (columns, Flaw.NONE) == by_classes(toy, "toy", data)
    body = toy.layouts[0].messages()[0]
    read_again = body.read(data, "c2s")
    given = {f.name: read_again.getfieldval(f.name) for f in body.fields_desc if f.column or f.holds_packets}
    assert bytes(body(**{name: value for name, value in given.items() if name != "a"})) == data


# -- a header with a length of variable size, as MQTT has it ----------------------------------------------------------


class Head(Message):
    """Operation and flags in one byte, then the length."""

    name = "Head"
    fields_desc = [
        U8("first", column=None), Bits("op", of="first", mask=15, shift=4, column=None),
        Bits("qos", of="first", mask=3, shift=1), Length("length", kind=VarUint),
    ]  # fmt: skip


class Put(Message):
    """A number that is there with a quality of service, and the rest."""

    name = "Put"
    fields_desc = [If(U16("number"), when="header.qos"), GreedyBytes("body")]


def toy(**words: int) -> MessageQueue:
    head = message("Head2", *Head.fields_desc[:3], Length("length", kind=VarUint, **words)) if words else Head
    return protocol_of(Layout("toy", "c2s", {3: (Put,)}, head, "op", {3: "PUT"}))


FRAMES = ["30 03 616263", "32 05 0007 616263", "30 8001" + "61" * 128, "30 00"]
COLUMNS: list[dict[str, object]] = [
    {"qos": 0, "body": b"abc"}, {"qos": 1, "number": 7, "body": b"abc"}, {"qos": 0, "body": b"a" * 128},
    {"qos": 0, "body": b""},
]  # fmt: skip


@pytest.mark.parametrize(("raw", "columns"), [*zip(FRAMES, COLUMNS, strict=True)])
def test_a_header_may_end_in_a_variable_length(raw: str, columns: dict[str, object]) -> None:
    data = bytes.fromhex(raw)

    assert by_program(toy(), "toy", data) == (columns, Flaw.NONE) == by_classes(toy(), "toy", data)
    attempt = explanation(toy(), data, "c2s").best
    assert attempt is not None and attempt.fits and attempt.frame_len == len(data)
    assert {i.column: i.value for i in attempt.items if i.column} == columns


def test_the_messages_of_a_stream_end_where_their_lengths_say() -> None:
    stream = bytes.fromhex("".join(FRAMES))

    assert [end - start for start, end in end_of(toy(), "toy", stream)] == [5, 7, 131, 2]
    assert end_of(toy(), "toy", bytes.fromhex("30 80"), ended=False) == []


def test_the_length_is_computed_and_follows_a_body_that_grows() -> None:
    toy()
    built = bytes(Head(qos=1) / Put(number=7, body=b"abc"))
    grown = Head.read(bytes.fromhex(FRAMES[0]), "c2s")
    grown.body = b"a" * 128
    kept = Head.read(bytes.fromhex("30 8300 616263"), "c2s")
    kept.body = b"xyz"

    assert built == bytes.fromhex(FRAMES[1])
    assert bytes(grown) == bytes.fromhex(FRAMES[2])
    assert bytes(kept) == bytes.fromhex("30 8300 78797a")  # more bytes than it needs, as it came


@pytest.mark.parametrize(("words", "length"), [({"less": 2}, 5), ({"plus": 1}, 2)])
def test_a_length_counts_more_or_fewer_bytes_than_follow(words: dict[str, int], length: int) -> None:
    counted = toy(**words)
    data = bytes([0x30, length]) + b"abc"

    assert by_program(counted, "toy", data) == (COLUMNS[0], Flaw.NONE) == by_classes(counted, "toy", data)
    header = counted.layouts[0].header
    assert header is not None
    assert bytes(header() / Put(body=b"abc")) == data


def test_a_message_that_is_longer_than_its_length_can_say_is_not_built() -> None:
    short = message("Short", U8("op"), Length("length", kind=VarUint, at_most=3))
    short_toy = protocol_of(Layout("toy", "c2s", {3: (message("Body", GreedyBytes("body")),)}, short, "op"))
    compiled(short_toy)

    with pytest.raises(ValueError, match="length is 4, but goes from 0 to 3"):
        bytes(short(op=3) / short_toy.layouts[0].messages()[0](body=b"abcd"))
    assert Raw in short.read(b"\x03\x04abcd", "c2s")


def test_a_class_behind_headers_without_the_field_is_refused() -> None:
    other = message("Other", U8("op", column=None))
    first = Layout("toy", "c2s", {3: (Put,)}, Head, "op")

    with pytest.raises(Exception, match=r"toy: Put\.number: refers to header\.qos, which is no earlier field"):
        compiled(protocol_of(first, Layout("other", "s2c", {3: (Put,)}, other, "op")))
