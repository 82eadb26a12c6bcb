"""msgq against its document and bytes of the real programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reading import end_of, row, scapy_row
from scapy.layers.inet import IP, TCP
from scapy.sendrecv import sniff

import mqpcap.scapy  # noqa: F401 - it binds the port
from mqpcap.decode.columns import ColumnReader, Records, Spans
from mqpcap.protocols.msgq import (
    PROTOCOL,
    MsgQ,
    MsgQFlat,
    MsgQGetlname,
    MsgQHeader,
    MsgQJson,
    MsgQLname,
    MsgQPing,
    MsgQPong,
    MsgQSend,
    MsgQSplit,
    MsgQStats,
    MsgQStatsReply,
    MsgQStop,
    MsgQSubscribe,
    MsgQUnsubscribe,
    claims,
    kinds,
)
from mqpcap.scapy import MqSession
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import Claim, Opening, Verdict
from mqpcap.tables.messages import truncate_bodies


def notation(text: str) -> bytes:
    """Bytes from hexadecimal digits, and text in quotes."""
    out = b""
    for i, part in enumerate(text.split('"')):
        out += part.encode() if i % 2 else bytes.fromhex(part)
    return out


GETLNAME_FLAT = notation('00 00 00 13 53 6b 61 6e 04 "type" 21 08 "getlname"')
GETLNAME_TYPED = notation('00 00 00 13 53 6b 61 6e 04 "type" 28 08 "getlname"')
GETLNAME_SPLIT = notation('00 00 00 15 00 13 53 6b 61 6e 04 "type" 28 08 "getlname"')
EXAMPLE_AS_PRINTED = notation(
    '00 00 00 64 53 6b 61 6e 04 "from" 21 0b "sender@host" 02 "to" 21 0e "recipient@host" 03 "seq" 21 04 "1234"'
    '04 "data" 22 04 "list" 23 21 01 "1" 21 01 "2" 04 21 04 "this" 0b "description" 0b "Fun for all"'
)
EXAMPLE = notation(
    "00000067 536b616e 0466726f6d 210b 73656e64657240686f7374 02746f 210e 726563697069656e7440686f7374"
    "03736571 2104 31323334 0464617461 222d 046c697374 230d 210131 210132 04 210474686973"
    "0b6465736372697074696f6e 210b 46756e20666f7220616c6c"
)
# flat_errors: the answer of the C daemon, both items DATA, lname first (msgq.c:568-577).
LNAME_FLAT = notation('00000033 536b616e 05 "lname" 21 18 "6b010a94_6b010a94@mqhost" 04 "type" 21 08 "getlname"')


def split(header: bytes, body: bytes = b"") -> bytes:
    return (2 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(2, "big") + header + body


def flat(content: bytes) -> bytes:
    return (4 + len(content)).to_bytes(4, "big") + b"Skan" + content


def columns(layout: str, frame: bytes) -> dict[str, Any]:
    found, flaw, _ = row(PROTOCOL, layout, frame)
    assert flaw is Flaw.NONE
    found.pop("has_stats")
    return found


def opening(c2s: bytes = b"", s2c: bytes = b"", **about: Any) -> Opening:
    base: dict[str, Any] = {
        "c2s_start": True, "s2c_start": True, "c2s_ended": False, "s2c_ended": False, "on_port": True,
        "decode_as": False, "find_run": lambda direction, layout, n: None,
    }  # fmt: skip
    return Opening(c2s, s2c, **(base | about))


def verdict(*sides: bytes, **about: Any) -> Verdict:
    return claims(opening(*sides, **about)).verdict


# All columns of a frame: layout, bytes, columns.
COLUMNS: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "flat getlname": ("flat_c2s", GETLNAME_FLAT, {"type": "getlname", "document": '{"type":"getlname"}'}),
    "split getlname": (
        "split_c2s", GETLNAME_SPLIT,
        {"type": "getlname", "document": '{"header":{"type":"getlname"},"body":null}'},
    ),
    "the document's example, corrected": (
        "flat_c2s", EXAMPLE,
        {"from": "sender@host", "to": "recipient@host", "seq": "1234",
         "document": '{"from":"sender@host","to":"recipient@host","seq":"1234",'
         '"data":{"list":["1","2",null,"this"],"description":"Fun for all"}}'},
    ),
    "lname in the body of a split answer": (
        "split_s2c", split(kinds.message({"type": "getlname"}, True), kinds.message({"lname": "1_1@h"}, True)),
        {"type": "getlname", "lname": "1_1@h", "msg": '{"lname":"1_1@h"}', "msg_len": 17,
         "document": '{"header":{"type":"getlname"},"body":{"lname":"1_1@h"}}'},
    ),
    "routing keys as text": (
        "flat_c2s",
        flat(kinds.encode({"type": "send", "seq": 7, "reply": -1, "to": None, "group": [1, {"a": True}],
                           "instance": b"\xff"}, True)),
        {"type": "send", "seq": "7", "reply": "-1", "group": '[1,{"a":true}]', "instance": '{"hex":"ff"}',
         "document": '{"type":"send","seq":7,"reply":-1,"to":null,"group":[1,{"a":true}],"instance":{"hex":"ff"}}'},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_a_frame(name: str) -> None:
    layout, frame, expected = COLUMNS[name]

    assert columns(layout, frame) == expected
    assert row(PROTOCOL, layout, frame)[2] == layout.partition("_")[0]


def test_the_documents_example_as_printed_is_malformed() -> None:
    """It is 100 bytes as it says, but lacks three: two lengths and a TyLen."""
    assert len(EXAMPLE_AS_PRINTED) == 4 + 100

    found, flaw, _ = row(PROTOCOL, "flat_c2s", EXAMPLE_AS_PRINTED)

    assert (found, flaw) == ({"has_stats": False}, Flaw.MALFORMED)


def test_the_example_is_what_encode_gives() -> None:
    value: dict[str, kinds.Value] = {
        "from": "sender@host",
        "to": "recipient@host",
        "seq": 1234,
        "data": {"list": [1, 2, None, "this"], "description": "Fun for all"},
    }

    assert bytes(MsgQ() / MsgQFlat(tree=kinds.encode(value))) == EXAMPLE


def test_scapy_builds_a_split_message() -> None:
    header = MsgQHeader(tree=kinds.encode({"type": "getlname"}, typed=True))

    assert bytes(MsgQ() / MsgQSplit(header=header)) == GETLNAME_SPLIT


def test_scapy_builds_a_json_message() -> None:
    frame = bytes(MsgQ() / MsgQJson(header=b'{"type":"ping"}', body=b"[1]"))

    assert frame == b"\0\0\0\x14\0\x0f" + b'{"type":"ping"}[1]'


@pytest.mark.parametrize(
    ("frame", "cls"),
    [(GETLNAME_FLAT, MsgQFlat), (GETLNAME_SPLIT, MsgQSplit), (split(b'{"type":"ping"}'), MsgQJson)],
)
def test_scapy_distinguishes_the_layouts(frame: bytes, cls: type) -> None:
    packet = MsgQ(frame)

    assert type(packet.payload) is cls
    assert bytes(packet) == frame


def item(text: str, kind: int = 0x21) -> bytes:
    """An item of up to 255 bytes: type and length code, length, bytes. DATA is 21, UTF8 28, INT 26, a hash 22."""
    return bytes([kind, len(text)]) + text.encode()


def pairs(kind: int = 0x21, **words: str) -> bytes:
    tags = {name.removesuffix("_"): text for name, text in words.items()}
    return b"".join(bytes([len(tag)]) + tag.encode() + item(text, kind) for tag, text in tags.items())


def as_json(header: str, body: str = "") -> bytes:
    return split(header.encode(), body.encode())


# The document's eight messages. Flat as it prints them, split (f28f0da30) and json (3797c1639) as the libraries write.
SENT = {"from_": "a@h", "to": "*", "group": "g", "instance": "*", "seq": "1"}
SPLIT_SENT = b"Skan" + pairs(0x28, type="send", **SENT)
JSON_SENT = '{"type": "send", "from": "a@h", "to": "*", "group": "g", "instance": "*", "seq": "1"'
DOCUMENT = {
    "getlname": (MsgQGetlname, {}, GETLNAME_FLAT, GETLNAME_SPLIT, as_json('{"type": "getlname"}')),
    "lname": (
        MsgQLname,
        {"lname": "x@h"},
        flat(pairs(lname="x@h")),
        split(b"Skan" + pairs(0x28, type="getlname"), b"Skan" + pairs(0x28, lname="x@h")),
        as_json('{"type": "getlname"}', '{"lname": "x@h"}'),
    ),
    "send": (
        MsgQSend,
        SENT | {"msg": {"k": "v"}},
        flat(pairs(type="send", **SENT) + b"\3msg\x21\x09Skan" + pairs(k="v")),
        split(SPLIT_SENT, b"Skan" + pairs(0x28, k="v")),
        as_json(JSON_SENT + "}", '{"k": "v"}'),
    ),
    "reply": (
        MsgQSend,
        SENT | {"repl": "7"},
        flat(pairs(type="send", **SENT, repl="7")),
        split(SPLIT_SENT + pairs(0x28, repl="7")),
        as_json(JSON_SENT + ', "repl": "7"}'),
    ),
    "subscribe": (
        MsgQSubscribe,
        {"group": "g", "instance": "*", "subtype": "normal"},
        flat(pairs(type="subscribe", group="g", instance="*", subtype="normal")),
        split(b"Skan" + pairs(0x28, type="subscribe", group="g", instance="*", subtype="normal")),
        as_json('{"type": "subscribe", "group": "g", "instance": "*", "subtype": "normal"}'),
    ),
    "unsubscribe": (
        MsgQUnsubscribe,
        {"group": "g", "instance": "*"},
        flat(pairs(type="unsubscribe", group="g", instance="*")),
        split(b"Skan" + pairs(0x28, type="unsubscribe", group="g", instance="*")),
        as_json('{"type": "unsubscribe", "group": "g", "instance": "*"}'),
    ),
    "stats": (
        MsgQStats,
        {},
        flat(pairs(type="stats")),
        split(b"Skan" + pairs(0x28, type="stats")),
        as_json('{"type": "stats"}'),
    ),
    "stats reply": (
        MsgQStatsReply,
        {"stats": "s"},
        flat(pairs(stats="s")),
        split(b"Skan" + pairs(0x28, type="stats"), b"Skan" + pairs(0x28, stats="s")),
        as_json('{"type": "stats"}', '{"stats": "s"}'),
    ),
}


@pytest.mark.parametrize("form", ["flat", "typed", "split", "json"])
@pytest.mark.parametrize("name", DOCUMENT)
def test_messages_of_the_document_are_built_and_read_by_their_words(name: str, form: str) -> None:
    cls, words, in_flat, in_split, in_json = DOCUMENT[name]
    # A typed library writes the same bytes with UTF8 for DATA; what is in msg stands in a DATA item all the same.
    in_typed = in_flat.replace(b"\x21", b"\x28").replace(b"msg\x28", b"msg\x21")
    wanted = {"flat": in_flat, "typed": in_typed, "split": in_split, "json": in_json}[form]

    assert bytes(MsgQ() / cls(form=form, **words)) == wanted

    read = MsgQ(wanted)
    assert {word: getattr(read.payload, word) for word in words} == words
    assert bytes(read) == wanted
    framed = IP(bytes(IP() / TCP(sport=40000, dport=9912) / wanted))
    assert {word: getattr(framed[MsgQ].payload, word) for word in words} == words
    alone = cls(wanted[4:])
    assert {word: getattr(alone, word) for word in words} == words
    assert (alone.form, bytes(alone)) == (form, wanted[4:])


def test_a_word_changed_in_a_message_read_alone_changes_its_bytes() -> None:
    message = MsgQSubscribe(flat(pairs(type="subscribe", group="g", instance="*"))[4:])

    message.group = "other"

    assert bytes(message) == flat(pairs(type="subscribe", group="other", instance="*"))[4:]


def test_a_message_of_another_type_is_not_read() -> None:
    assert bytes(MsgQSend(GETLNAME_FLAT[4:])) == GETLNAME_FLAT[4:]
    assert MsgQSend(GETLNAME_FLAT[4:]).haslayer("Raw")


def test_forms_take_a_dict() -> None:
    words: Any = {"type": "getlname"}
    example = {
        "from": "sender@host", "to": "recipient@host", "seq": 1234,
        "data": {"list": [1, 2, None, "this"], "description": "Fun for all"},
    }  # fmt: skip

    assert bytes(MsgQ() / MsgQFlat(tree=words)) == GETLNAME_FLAT
    assert bytes(MsgQ() / MsgQFlat(tree=example)) == EXAMPLE
    assert bytes(MsgQ() / MsgQSplit(header=MsgQHeader(tree=words))) == GETLNAME_SPLIT
    assert bytes(MsgQ() / MsgQJson(header=words, body={"a": [1]})) == as_json('{"type": "getlname"}', '{"a": [1]}')


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="no form 'xml'"):
        bytes(MsgQGetlname(form="xml"))


def test_a_word_of_no_message_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        _ = MsgQ(GETLNAME_FLAT).payload.colour


def test_scapy_shows_trees_as_json() -> None:
    shown = MsgQ(GETLNAME_SPLIT).show(dump=True)

    assert '{"type":"getlname"}' in shown


def test_lname_of_the_flat_daemon() -> None:
    found = columns("flat_s2c", LNAME_FLAT)

    assert (found["type"], found["lname"]) == ("getlname", "6b010a94_6b010a94@mqhost")


def test_lname_comes_from_the_body_of_a_json_answer() -> None:
    assert (
        columns("json_s2c", split(b'{"type": "getlname"}', b'{"x": {"lname": 2}, "lname": "1_\\u0041"}'))["lname"]
        == "1_A"
    )


def test_lname_of_any_other_body_is_no_column() -> None:
    frame = split(kinds.message({"type": "send"}, True), kinds.message({"lname": "x"}, True))

    assert "lname" not in columns("split_s2c", frame)


def test_sybtype_fills_subtype() -> None:
    assert columns("flat_c2s", flat(kinds.encode({"sybtype": "normal"})))["subtype"] == "normal"
    both = kinds.encode({"sybtype": "normal", "subtype": "meonly"})
    assert columns("flat_c2s", flat(both))["subtype"] == "meonly"


@pytest.mark.parametrize(
    ("item", "msg", "length"),
    [("04", "null", 0), ("2100", '""', 0), ("210161", '"a"', 1), ("2303210131", '["1"]', 3), ("2104536b616e", "{}", 4)],
)
def test_msg_of_a_flat_message(item: str, msg: str, length: int) -> None:
    found = columns("flat_c2s", flat(b"\x03msg" + bytes.fromhex(item)))

    assert (found["msg"], found["msg_len"]) == (msg, length)


@pytest.mark.parametrize(
    ("body", "msg"),
    [
        (b"Skan", "{}"),
        (b"Skan\x01a\x26\x0207", '{"a":7}'),
        (b'{"a": 1}', '{"a": 1}'),
        (b"this is no message \x00\xff", '{"hex":"74686973206973206e6f206d6573736167652000ff"}'),
        (b"Skan\x05a", '{"hex":"536b616e0561"}'),
    ],
)
def test_split_bodies(body: bytes, msg: str) -> None:
    found = columns("split_c2s", split(kinds.message({"type": "send"}), body))

    assert (found["msg"], found["msg_len"]) == (msg, len(body))
    assert found["document"] == '{"header":{"type":"send"},"body":' + msg + "}"


@pytest.mark.parametrize(
    ("body", "msg"),
    [
        (b'{"b": [1.50, "\\u20ac"]}', '{"b": [1.50, "\\u20ac"]}'),
        (b"null", "null"),
        (b" [1, 2]\n", " [1, 2]\n"),
        (b'"tab\there"', '"tab\there"'),  # the peers read with strict=False
        (b"not json \xff", '{"hex":"6e6f74206a736f6e20ff"}'),
        (b"Skan\x01a\x26\x011", '{"hex":"536b616e0161260131"}'),  # json_session: opaque, as it is no JSON
        (b"[1,]", '{"hex":"5b312c5d"}'),
        (b"NaN", '{"hex":"4e614e"}'),
        (b'"\xed\xa0\x80"', '{"hex":"22eda08022"}'),
    ],
)
def test_json_bodies_keep_their_own_text(body: bytes, msg: str) -> None:
    found = columns("json_c2s", split(b'{"type": "send"}', body))

    assert (found["msg"], found["msg_len"]) == (msg, len(body))
    assert found["document"] == '{"header":{"type":"send"},"body":' + msg + "}"


def test_json_header_loses_its_spaces_and_escapes() -> None:
    header = b'{ "type" : "s\\u0065nd", "seq": 12 ,"x":[ ] , "y": {"z": "\\ud83d\\ude00\\/\\n"}, "to": null, "b": true}'

    found = columns("json_c2s", split(header))

    assert found["document"] == (
        '{"header":{"type":"send","seq":12,"x":[],"y":{"z":"😀/\\n"},"to":null,"b":true},"body":null}'
    )
    assert (found["type"], found["seq"], "to" in found) == ("send", "12", False)


@pytest.mark.parametrize(
    "header", [b'{"type"', b"[1]", b'{"type": 01}', b'{"a":1,}', b'{"a" 1}', b"{}x", b'{"a":"\xff"}']
)
def test_json_header_that_is_no_object_is_malformed(header: bytes) -> None:
    assert row(PROTOCOL, "json_c2s", split(header))[1] is Flaw.MALFORMED


def test_json_nested_too_deep_is_too_long() -> None:
    deep = b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"

    assert row(PROTOCOL, "json_c2s", split(deep))[1] is Flaw.TOO_LONG
    assert row(PROTOCOL, "json_c2s", split(b"{}", deep))[1] is Flaw.TOO_LONG


@pytest.mark.parametrize(
    ("layout", "frame"),
    [
        ("flat_c2s", "00000000"),
        ("flat_c2s", "00000002536b"),
        ("flat_c2s", "000000044a554e4b"),
        ("flat_c2s", "00000005536b616e01"),
        ("split_c2s", "00000001ff"),
        ("split_c2s", "00000006 0000 536b616e"),
        ("split_c2s", "00000006 0009 536b616e"),
        # The C++ library of December 2009: both lengths are two short.
        ("split_c2s", "00000013 0013 536b616e 04 74797065 28 08 6765746c6e61"),
        ("json_c2s", "00000004 0003 7b7d"),
    ],
)
def test_frames_whose_content_is_wrong_are_malformed(layout: str, frame: str) -> None:
    assert row(PROTOCOL, layout, bytes.fromhex(frame))[1] is Flaw.MALFORMED


def test_magic_alone_is_an_empty_hash() -> None:
    assert columns("flat_c2s", bytes.fromhex("00000004536b616e")) == {"document": "{}"}


def test_length_over_the_limit_ends_the_framing() -> None:
    assert end_of(PROTOCOL, "flat_c2s", GETLNAME_FLAT + b"\x04\0\0\x01Skan") == [(0, 23)]
    assert end_of(PROTOCOL, "split_c2s", GETLNAME_SPLIT * 2) == [(0, 25), (25, 50)]


def records(direction: str, rows: list[bytes], layout: str = "flat") -> Records:
    reader = ColumnReader(PROTOCOL)
    ends = np.cumsum([len(x) for x in rows])
    index = [x.name for x in reader.program.layouts].index(f"{layout}_{direction}")
    return reader.records(
        Spans(
            np.array(bytearray(b"".join(rows)), np.uint8), np.concatenate([[0], ends[:-1]]), ends,
            np.full(len(rows), index, np.int32), np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.uint8),
        )
    )  # fmt: skip


def envelope(direction: str, rows: list[bytes], layout: str = "flat") -> list[dict[str, Any]]:
    table = records(direction, rows, layout).table.append_column("direction", pa.array([direction] * len(rows)))
    assert PROTOCOL.envelope.derive is not None
    found = PROTOCOL.envelope.derive(table)
    return [
        dict(zip(found, values, strict=True)) for values in zip(*(x.to_pylist() for x in found.values()), strict=True)
    ]


def test_a_message_delivered_to_several_clients_is_a_row_each() -> None:
    bad = flat(b"\x01")

    found = records("s2c", [GETLNAME_FLAT, bad, LNAME_FLAT, GETLNAME_FLAT, bad, LNAME_FLAT])

    assert found.flaw.tolist() == [Flaw.NONE, Flaw.MALFORMED, Flaw.NONE] * 2
    name = '{"lname":"6b010a94_6b010a94@mqhost","type":"getlname"}'
    assert found.table["document"].to_pylist() == ['{"type":"getlname"}', None, name] * 2


def test_msg_is_cut_at_a_character() -> None:
    msgs = pa.array(['"a€b"', '"ab"', None])

    assert [truncate_bodies(msgs, keep).to_pylist() for keep in (3, 0)] == [['"a', '"ab', None], [None, None, None]]


def test_op_status_and_body_len_of_replies() -> None:
    rows = [
        flat(kinds.encode({"lname": "c1@host"})),
        LNAME_FLAT,
        flat(kinds.encode({"stats": {"clients": 3}})),
        flat(kinds.encode({"type": "send", "msg": "abc"})),
        flat(kinds.encode({"type": "send", "reply": "2", "msg": None})),
        flat(kinds.encode({"type": "send", "repl": "2"})),
        EXAMPLE,
        EXAMPLE_AS_PRINTED,
    ]

    assert envelope("s2c", rows) == [
        {"op": "lname", "status": "ok", "body_len": None},
        {"op": "getlname", "status": "ok", "body_len": None},
        {"op": "stats", "status": "ok", "body_len": None},
        {"op": "send", "status": None, "body_len": 3},
        {"op": "send", "status": "ok", "body_len": 0},
        {"op": "send", "status": "ok", "body_len": None},
        {"op": None, "status": None, "body_len": None},
        {"op": None, "status": None, "body_len": None},
    ]
    assert {x["status"] for x in envelope("c2s", rows)} == {None}


@pytest.mark.parametrize(
    ("first", "layouts"),
    [
        (GETLNAME_FLAT, ("flat_c2s", "flat_s2c")),
        (GETLNAME_TYPED, ("typed_c2s", "typed_s2c")),
        (GETLNAME_SPLIT, ("split_c2s", "split_s2c")),
        (split(b'{"type": "getlname"}'), ("json_c2s", "json_s2c")),
        # Lengths two short (C++, December 2009): msgq, though its messages do not decode.
        (bytes.fromhex("00000013 0013 536b616e 04 74797065 28 08 6765746c6e616d65"), ("split_c2s", "split_s2c")),
    ],
)
def test_first_message_shows_the_layout_on_any_port(first: bytes, layouts: tuple[str, str]) -> None:
    for on_port in (True, False):
        claim = claims(opening(first, on_port=on_port))

        assert claim == Claim(Verdict.YES, *layouts)


def test_each_side_may_have_its_own_layout() -> None:
    claim = claims(opening(GETLNAME_FLAT, split(kinds.message({"type": "getlname"}), b"Skan")))

    assert (claim.c2s, claim.s2c) == ("flat_c2s", "split_s2c")


@pytest.mark.parametrize(
    "foreign",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303"),
        bytes.fromhex("00000023001200030000000100077264"),  # Kafka ApiVersions
        bytes.fromhex("0000000b0100000000000000010001"),  # BlipMQ HELLO
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes.fromhex("00000012 0009 7b2278223a317d20 2020202020202020"),
        b"\0\0\0\x40Skbn" + bytes(60),
    ],
)
def test_foreign_bytes_are_not_claimed(foreign: bytes) -> None:
    assert verdict(foreign, on_port=False) is Verdict.NO
    assert verdict(foreign, s2c_ended=True, c2s_ended=True) in (Verdict.NO, Verdict.LIKELY)


def test_json_without_a_type_is_weak_on_the_port_alone() -> None:
    frame = split(b'{"x": 1}')

    assert verdict(frame) is Verdict.LIKELY
    assert verdict(frame, on_port=False) is Verdict.NO


def test_too_few_bytes_wait_until_the_end() -> None:
    assert verdict(b"\0\0\0\x13Sk") is Verdict.WAIT
    assert verdict(b"") is Verdict.WAIT
    assert verdict(b"\0\0\0\x13Sk", c2s_ended=True, s2c_ended=True) is Verdict.NO
    assert verdict(b"", c2s_ended=True, s2c_ended=True) is Verdict.NO


def test_the_daemon_alone_is_enough() -> None:
    assert verdict(b"", LNAME_FLAT, c2s_start=False, c2s_ended=True) is Verdict.YES


def test_without_a_start_what_only_a_client_or_the_daemon_sends_decides() -> None:
    midway: dict[str, Any] = {
        "c2s_start": False,
        "s2c_start": False,
        "find_run": lambda d, layout, n: 3 if "flat" in layout else None,
    }

    assert verdict(b"xyz" + GETLNAME_FLAT, b"xyz" + LNAME_FLAT, **midway) is Verdict.YES
    assert verdict(b"xyz" + LNAME_FLAT, b"xyz" + GETLNAME_FLAT, **midway) is Verdict.NO


_FRAMES = [
    ("flat_c2s", GETLNAME_FLAT),
    ("flat_c2s", EXAMPLE),
    ("split_c2s", split(kinds.message({"type": "send", "seq": 1}, True), kinds.message({"a": [None]}))),
    ("json_c2s", split(b'{"type": "send"}', b"[1]")),
]


@given(st.sampled_from(_FRAMES), st.integers(4, 200), st.binary(min_size=1, max_size=3))
@examples(80)
def test_both_roads_agree_on_damaged_frames(which: tuple[str, bytes], at: int, bytes_: bytes) -> None:
    """Scapy reads the frame's outline; what is inside the trees only the tables tell."""
    layout, frame = which
    at %= len(frame)
    frame = frame[:4] + (frame[:at] + bytes_ + frame[at + len(bytes_) :])[4 : len(frame)]

    found, flaw, _ = row(PROTOCOL, layout, frame)
    outline, outer = scapy_row(MsgQ, frame, "c2s", layout)

    if outer is not Flaw.NONE:
        assert flaw is outer
    if flaw is Flaw.NONE:
        assert set(outline) & {"tree", "header"}
        json.loads(found["document"], strict=False)


# -- messages of a session by their classes ----------------------------------------------------------------


CLASSES = {
    "send": MsgQSend, "subscribe": MsgQSubscribe, "unsubscribe": MsgQUnsubscribe, "ping": MsgQPing, "pong": MsgQPong,
    "stop": MsgQStop,
}  # fmt: skip


@pytest.mark.parametrize("name", ["flat_session", "flat_typed", "split_session", "json_session", "by_document"])
def test_a_captured_message_is_found_by_its_class(pcaps: Path, name: str) -> None:
    messages = sniff(offline=str(pcaps / f"msgq/{name}.pcap"), session=MqSession, quiet=True)

    assert any(MsgQSend in message for message in messages)
    for message in messages:
        for op, cls in CLASSES.items():
            assert (cls in message) == (message.mq.op == op)
        if MsgQSend in message:
            assert message[MsgQSend] is message.payload
            assert message[MsgQSend].type == "send"


def test_a_reply_to_getlname_is_no_request() -> None:
    request, reply = MsgQ() / MsgQGetlname(form="split"), MsgQ() / MsgQLname(form="split", lname="a")
    request, reply = MsgQ(bytes(request)), MsgQ.read(bytes(reply), "s2c", "split_s2c")

    assert MsgQGetlname in request and MsgQLname not in request
    assert MsgQLname in reply and MsgQGetlname not in reply
