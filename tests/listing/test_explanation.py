"""A message read field by field: places typed from documents, why bytes do not fit, and what must not be shown."""

import gzip

import pytest
from shapes import message, protocol, protocol_of

from mqpcap.listing import explanation as explain
from mqpcap.listing.explanation import explanation, secret_spans
from mqpcap.protocols import protocols
from mqpcap.schema import fields
from mqpcap.schema.field_items import Attempt, FieldItem
from mqpcap.schema.fields import U8, U16, Array, Bits, Bytes, GreedyBytes, Nested
from mqpcap.schema.protocol import ANY, Layout, MessageQueue, Variant
from mqpcap.schema.secrets import after_header, holds_secrets

# PROTOCOL.md of BlipMQ, Frame Layout: length 9 + 2 + 1 + 1 + 2, type 3, id 7; qos 1, topic "t", body "hi".
PUBLISH = bytes.fromhex("0000000f 03 0000000000000007 01 0001 74 6869")
PAIR = message("Pair", U8("c"), U8("d"))
SECRET = message("Secret", U8("n"), Bytes("key", prefix=1, secret=True), U8("z"))


def best(toy: MessageQueue, data: bytes | str, **how: object) -> Attempt:
    found = explanation(toy, data if isinstance(data, bytes) else bytes.fromhex(data), **how).best  # type: ignore[arg-type]
    assert found is not None
    return found


def places(attempt: Attempt) -> list[tuple[int, int, int, str, object]]:
    return [(i.offset, i.length, i.depth, i.name, i.value) for i in attempt.items]


def test_a_message_of_a_document_is_read_byte_by_byte() -> None:
    found = explanation(protocols()["blipmq"], PUBLISH + b"xy", "c2s")

    assert found.best is not None and found.best.fits
    assert (found.best.operation, found.best.frame_len, found.left) == ("PUBLISH", 19, 2)
    assert [(i.offset, i.length, i.name, i.value) for i in found.best.items if i.length] == [
        (0, 4, "length", 15),
        (4, 1, "frame_type", 3),
        (5, 8, "correlation_id", 7),
        (13, 1, "qos_flags", 1),
        (14, 2, "topic_len", 1),
        (16, 1, "topic", b"t"),
        (17, 2, "body", b"hi"),
    ]


def test_a_truncated_message_shows_the_number_of_missing_bytes() -> None:
    assert best(protocols()["blipmq"], PUBLISH[:-1]).why == "its length says 19 bytes, 18 are here"
    none = explanation(protocols()["blipmq"], b"")
    assert none.best is not None
    assert (none.best.message, none.best.why) == (None, "length at offset 0: it has 4 bytes, 0 are left")
    assert explanation(protocols()["blipmq"], PUBLISH, dialect="v9").best is not None
    assert explanation(protocol(), b"").best is None


def test_fields_are_read_from_views_not_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field would copy all bytes after it: a message of a million short texts would take the square of them."""
    seen: list[type] = []
    read = Bytes.getfield

    def noted(kind: Bytes, pkt: object, s: fields.Buffer) -> tuple[fields.Buffer, object]:
        seen.append(type(s))
        return read(kind, pkt, s)

    monkeypatch.setattr(Bytes, "getfield", noted)
    part = message("part", Bytes("a", prefix=1), Bytes("b", prefix=1))
    shape = message("toy", Array("list", Bytes("x", prefix=1), prefix=1), Nested("part", part, prefix=1))

    assert best(protocol(toy=shape), "02 0161 0162 04 0163 0164").fits
    assert bytes(shape.read(bytes.fromhex("02 0161 0162 04 0163 0164"))).hex() == "0201610162040163" + "0164"
    assert set(seen) == {memoryview}
    assert len(seen) == 8


def test_fields_after_the_last_that_is_listed_are_read_and_masked() -> None:
    """They are read by the kinds themselves, without an item for each."""
    toy = message("toy", Array("keys", Bytes("key", prefix=1, secret=True), prefix=4), U8("end", equals=7))
    count = explain.MAX_ITEMS + 10
    data = count.to_bytes(4, "big") + b"\1k" * count

    listed = best(protocol(toy=toy), data + b"\7")

    assert (listed.fits, len(listed.items)) == (True, explain.MAX_ITEMS + 1)
    rest = listed.items[-1]
    assert (rest.secret, rest.offset + rest.length) == (True, len(data) + 1)
    assert best(protocol(toy=toy), data + b"\6").why == f"end at offset {len(data)}: it is 6, not 7"


def test_what_is_inside_of_lists_and_parts_is_deeper() -> None:
    toy = message(
        "toy", Array("pairs", PAIR, prefix=1), Nested("part", PAIR, prefix=1), Array("tags", U8("t"), until_zero=1)
    )

    assert places(best(protocol(toy=toy), "02 01020304 02 0506 07 00")) == [
        (0, 1, 0, "pairs count", 2),
        (1, 2, 0, "pairs[0]", None),
        (1, 1, 1, "c", 1),
        (2, 1, 1, "d", 2),
        (3, 2, 0, "pairs[1]", None),
        (3, 1, 1, "c", 3),
        (4, 1, 1, "d", 4),
        (5, 1, 0, "part length", 2),
        (6, 2, 0, "part", None),
        (6, 1, 1, "c", 5),
        (7, 1, 1, "d", 6),
        (8, 1, 1, "tags[0]", 7),
        (9, 1, 0, "tags end", 0),
    ]


def test_why_it_does_not_fit_has_no_number_that_may_be_a_secret() -> None:
    found = best(protocol(toy=message("toy", U8("a"), U8("n", equals=3))), "00 2a")

    assert (found.why, found.masked_why) == ("n at offset 1: it is 42, not 3", "n at offset 1: it is ***, not 3")
    assert places(found) == [(0, 1, 0, "a", 0)]


def test_bytes_after_the_last_field_belong_to_it_if_the_layout_has_a_column() -> None:
    one = message("one", U8("a"))
    strict, open_ = (protocol_of(Layout("toy", "c2s", {ANY: (one,)}, extra_column=x)) for x in (None, "rest"))

    assert best(strict, "01 0203").why == "2 bytes are left over at offset 1"
    assert places(best(open_, "01 0203"))[-1] == (1, 2, 0, "rest", b"\2\3")


def test_the_variant_that_was_read_comes_first_of_those_that_fit() -> None:
    one, two, no = message("one", U16("a")), message("two", U8("b"), U8("c")), message("no", U8("d", equals=9))
    toy = protocol_of(Layout("toy", "c2s", {ANY: (no, one, Variant(two, "new"))}))

    def order(**how: object) -> list[str | None]:
        return [x.variant for x in explanation(toy, b"\1\2", **how).attempts]  # type: ignore[arg-type]

    assert order() == ["one", "two", "no"]
    assert order(read_as=("toy", "two")) == ["two", "one", "no"]
    assert order(dialect="new")[0] == "two"
    assert order(dialect="old") == ["one", "no"]
    assert order(direction="s2c") == []


def test_a_packed_body_has_places_of_its_own() -> None:
    body = message("body", U8("a"), Bytes("key", prefix=1, secret=True))
    layout = Layout("toy", "c2s", {0x81: (body,)}, message("head", U8("op")), "op", packed=("op", 0x80))
    toy, data = protocol_of(layout), b"\x81" + gzip.compress(b"\5\2ab", mtime=0)
    found = best(toy, data)

    assert [(i.offset, i.name, i.inflated) for i in found.items] == [
        (0, "op", False),
        (0, "a", True),
        (1, "key length", True),
        (2, "key", True),
    ]
    veiled = secret_spans(toy, data, found)
    assert set(veiled.inflated) == {(2, 4)}
    assert veiled.covers(FieldItem(1, 1, 0, "packed", None))  # all that is packed
    assert best(toy, data[:-1]).why == "the body is no whole gzip stream"


def test_secrets_of_every_variant_that_fits_are_hidden() -> None:
    plain, other = message("plain", GreedyBytes("rest")), message("other", Bytes("key", prefix=1, secret=True))
    toy = protocol_of(Layout("toy", "c2s", {ANY: (plain, other)}))

    def spans(data: bytes) -> tuple[tuple[int, int], ...]:
        return secret_spans(toy, data, explanation(toy, data).best).spans

    assert spans(b"\2ab") == ((1, 3),)
    assert spans(b"\3ab") == ()  # as a key it does not fit


def test_a_reply_that_its_request_fits_with_bytes_left_hides_nothing() -> None:
    """FlyMQ's USER_CREATE reply without roles: its empty lists are two empty passwords there, its times are left."""
    flymq, data = (
        protocols()["flymq"],
        bytes.fromhex("af017301 00000020 0005 6361726f6c") + bytes(8) + b"\1" + bytes(16),
    )
    reply = explanation(flymq, data, "s2c").best
    assert reply is not None

    assert [(i.name, i.value) for i in reply.items][-2:] == [("created_at_s", 0), ("updated_at_s", 0)]
    assert secret_spans(flymq, data, reply).spans == ()


def test_a_misfit_is_masked_after_its_header() -> None:
    layout = Layout("toy", "c2s", {1: (SECRET,)}, message("head", U8("op")), "op")
    toy, data = protocol_of(layout), bytes.fromhex("01 05 02 6162")
    head, start, end = (FieldItem(at, 1, 0, "x", None) for at in (0, 1, 9999))
    veiled = secret_spans(toy, data, best(toy, data))

    assert [veiled.covers(item) for item in (head, start, end)] == [False, True, True]
    nothing = secret_spans(toy, b"", best(toy, b""))
    assert nothing.covers(head)
    assert [after_header(toy, "c2s", 1).covers(item) for item in (head, start)] == [False, True]
    assert after_header(toy, "c2s", 7).covers(head)
    assert after_header(toy, "s2c", 1).covers(head)


def test_bits_of_a_hidden_number_are_hidden() -> None:
    """They have no bytes of their own; what is empty after a secret hides nothing."""
    plain = message("plain", U8("n"), Bits("low", of="n", mask=3), Bytes("none", prefix=1), U8("z"))
    other = message("other", Bytes("key", size=1, secret=True), Bytes("empty", size=0), GreedyBytes("rest"))
    toy = protocol_of(Layout("toy", "c2s", {ANY: (plain, other)}))
    both = explanation(toy, bytes.fromhex("07 00 08"))
    veiled = secret_spans(toy, both.data, both.best)

    assert [(i.name, veiled.covers(i)) for attempt in both.attempts for i in attempt.items] == [
        ("n", True),
        ("low", True),
        ("none length", False),
        ("none", False),
        ("z", False),
        ("key", True),
        ("empty", False),
        ("rest", False),
    ]


def test_a_long_list_is_cut_and_its_secrets_are_hidden_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MAX_ITEMS", 3)
    data = bytes.fromhex("01 02 03 04 01 61 06")
    toy = protocol(toy=message("toy", U8("a"), U8("b"), U8("c"), U8("d"), Bytes("key", prefix=1, secret=True), U8("e")))
    found = best(toy, data)

    assert [i.name for i in found.items] == ["a", "b", "c", ""]
    assert (found.items[-1].offset, found.items[-1].length, found.items[-1].secret) == (3, 4, True)
    assert set(secret_spans(toy, data, found).spans) == {(3, 7)}


def test_whether_a_protocol_holds_secrets_by_operation() -> None:
    deep = message("deep", Array("list", message("item", Nested("part", SECRET, prefix=1)), prefix=1))
    toy = protocol_of(Layout("toy", "c2s", {1: (PAIR,), 2: (deep,)}, message("head", U8("op")), "op"))

    assert (holds_secrets(toy), holds_secrets(toy, 1), holds_secrets(toy, 2)) == (True, False, True)
    assert not holds_secrets(protocol(toy=message("pair", U8("c"))))
