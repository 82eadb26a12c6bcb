"""msgq's columns: JSON within its bounds, and batches of several generations."""

import json
import math
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from running import ended_if_hung

from mqpcap.protocols.msgq import kinds
from mqpcap.protocols.msgq.documents import MAX_DEPTH, MAX_TOKENS, checked, columns, rewritten
from mqpcap.schema.flaws import Flaw

Parts = dict[str, bytes | None]


def read(*rows: Parts, keep: int | None = None) -> list[dict[str, Any]]:
    """The columns of messages given as their ``tree``, ``header`` and ``body``, and their flaw; without nulls."""
    data, places = b"", {name: (np.zeros(len(rows), np.int64), np.full(len(rows), -1)) for name in _PARTS}
    for i, row in enumerate(rows):
        for name, content in row.items():
            if content is not None:
                places[name][0][i], places[name][1][i] = len(data), len(content)
                data += content
    flaw = np.zeros(len(rows), np.uint8)
    found = columns(np.frombuffer(data, np.uint8), *(places[name] for name in _PARTS), flaw, keep)
    texts = {name: column.to_pylist() for name, column in found.items()}
    return [
        {name: column[i] for name, column in texts.items() if column[i] is not None} | {"flaw": Flaw(int(flaw[i]))}
        for i in range(len(rows))
    ]


_PARTS = ("tree", "header", "body")


def header(text: bytes) -> dict[str, Any]:
    return read({"header": text, "body": b""})[0]


def body(text: bytes) -> dict[str, Any]:
    return read({"header": b'{"type":"send"}', "body": text})[0]


def arrays(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_depth_of_json_is_bounded() -> None:
    """The object of a header is a level."""
    assert header(b'{"a":' + arrays(MAX_DEPTH - 1) + b"}")["flaw"] is Flaw.NONE
    assert header(b'{"a":' + arrays(MAX_DEPTH) + b"}")["flaw"] is Flaw.TOO_LONG
    assert body(arrays(MAX_DEPTH))["flaw"] is Flaw.NONE
    for levels in (MAX_DEPTH + 1, 100_000):
        assert body(arrays(levels)) == {"has_stats": False, "flaw": Flaw.TOO_LONG}


def test_brackets_side_by_side_or_in_a_string_are_not_deep() -> None:
    for text in (b'"' + b"[" * 2000 + b'"', b"[" + b"[]," * 2000 + b"[]]", b'["\\"' + b"{" * 2000 + b'"]'):
        assert body(text)["msg"] == text.decode()


@pytest.mark.parametrize("text", [b"x" + b"[" * 2000, b"[1,]" + b"[" * 2000, b"[" * 3 + b"]" * 4 + b"[" * 2000])
def test_brackets_of_what_is_no_json_are_bytes(text: bytes) -> None:
    assert body(text)["msg"] == f'{{"hex":"{text.hex()}"}}'


def test_parts_of_json_are_bounded() -> None:
    assert body(b"[" + b"0," * (MAX_TOKENS + 1) + b"0]")["flaw"] is Flaw.TOO_LONG
    assert body(b'"' + b"," * (MAX_TOKENS + 1) + b'"')["flaw"] is Flaw.NONE


def test_hostile_strings_take_linear_time() -> None:
    """No end, and a quote after every backslash."""
    with ended_if_hung():
        found = body(b"[" * 600 + b'"' + b'\\"' * 500_000)

    assert found["flaw"] is Flaw.TOO_LONG


def test_integers_with_more_digits_than_python_converts() -> None:
    digits = b"9" * 5000

    assert header(b'{"seq":' + digits + b"}")["flaw"] is Flaw.MALFORMED
    assert body(digits)["msg"] == digits.decode()


def test_numbers_of_a_header() -> None:
    found = header(b'{"seq": 123456789012345678901234567890, "to": 1.50, "from": -1e400, "group": [1e400]}')

    assert found["document"] == (
        '{"header":{"seq":123456789012345678901234567890,"to":1.5,"from":"-1e400","group":["1e400"]},"body":null}'
    )
    assert (found["seq"], found["to"], found["from"]) == ("123456789012345678901234567890", "1.5", "-1e400")


def test_last_of_duplicate_keys_wins_at_the_place_of_the_first() -> None:
    assert header(b'{"to":1,"seq":2,"to":3}')["document"] == '{"header":{"to":3,"seq":2},"body":null}'


def test_half_of_a_surrogate_pair() -> None:
    found = header(b'{"to":"a\\ud800b"}')

    assert (found["to"], found["document"]) == ("a\ufffdb", '{"header":{"to":"a\\ud800b"},"body":null}')


def finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def no_json(word: str) -> None:
    raise ValueError(word)


def by_python(text: str) -> tuple[str, str] | None:
    """The value of a text and the text again, as Python's ``json`` alone has them; None for no JSON."""
    try:
        decoder = json.JSONDecoder(strict=False, parse_constant=no_json, parse_float=finite)
        value, end = decoder.raw_decode(text.strip(" \t\r\n"))
    except ValueError:
        return None
    if end < len(text.strip(" \t\r\n")):
        return None
    return repr(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))


NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.from_regex(r"-?[0-9]{0,25}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,4})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0e0", "1E400", "-1e999", "1e-400", "NaN", "Infinity", "-Infinity", "9" * 5000]),
)
ESCAPES = st.sampled_from(
    [
        r"\"",
        r"\\",
        r"\/",
        r"\b",
        r"\n",
        r"\u0000",
        r"\u001F",
        r"\ud800",
        r"\udc00",
        r"\ud83d\uDE00",
        r"\x",
        r"\u12",
        "\x7f",
        "\x01",
        "\t",
    ]
)
STRINGS = st.lists(st.one_of(ESCAPES, st.text(max_size=3).filter(lambda x: x.isprintable())), max_size=4).map(
    lambda parts: '"' + "".join(parts) + '"'
)
SPACES = st.sampled_from(["", "", "", " ", "\n", "\t\r", "\x0b", "\u00a0", "\ufeff"])
TEXTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null", "", "tru"])),
    lambda inner: st.one_of(
        st.tuples(SPACES, st.lists(inner, max_size=4)).map(lambda x: f"[{(',' + x[0]).join(x[1])}]"),
        # Few names, so that keys are there twice.
        st.tuples(
            SPACES, st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '"\\u0061"', '""']), inner), max_size=4)
        ).map(lambda x: "{" + ",".join(f"{x[0]}{key}:{value}{x[0]}" for key, value in x[1]) + "}"),
    ),
    max_leaves=8,
)
BROKEN = st.tuples(
    TEXTS, st.integers(0, 40), st.sampled_from(["", ",", "]", "}", '"', "\\", "-", "0", "\x00", ":", "x"])
).map(lambda x: x[0][: x[1]] + x[2] + x[0][x[1] + 1 :])


@given(st.one_of(TEXTS, BROKEN))
@examples(120)
@example('{"a":1,"b":2,"a":3}')
@example('["\\ud83dx", 1.0]')
@example('{"\\ud800":"\x01"}')
def test_the_two_readers_of_json_agree(text: str) -> None:
    """What msgspec reads is what Python reads: value, order of keys, and the text written again."""
    expected = by_python(text)

    try:
        value, again = rewritten(text)
        found = repr(value), again
    except ValueError:
        found = None
    assert found == expected


@given(st.one_of(TEXTS, BROKEN))
@examples(120)
def test_a_body_is_json_where_python_says_so(text: str) -> None:
    """Numbers of any size are, as they need not be converted."""
    try:
        json.JSONDecoder(strict=False, parse_constant=no_json, parse_int=str).decode(text.strip(" \t\r\n"))
        expected = True
    except ValueError:
        expected = False

    try:
        checked(text)
        found = True
    except ValueError:
        found = False
    assert found == expected


@pytest.mark.parametrize(
    "word", [b"NaN", b"Infinity", b"-Infinity", b"1.", b".5", b"+1", b"'a'", b"\xef\xbb\xbf1", b""]
)
def test_words_that_are_no_json_make_a_header_malformed(word: bytes) -> None:
    assert header(b'{"to":' + word + b"}")["flaw"] is Flaw.MALFORMED


def test_stats_may_be_null() -> None:
    assert [header(x)["has_stats"] for x in (b'{"stats":null}', b'{"stats":{}}', b"{}")] == [True, True, False]


def test_generations_side_by_side() -> None:
    inner = kinds.MAGIC + kinds.encode({"lname": "1_1@h"}, True)
    rows: list[Parts] = [
        {"tree": kinds.encode({"type": "send", "msg": "abc", "stats": 1})},
        {"tree": kinds.encode({"type": "getlname"}), "body": inner},
        {"header": b'{"type": "getlname", "want_answer": true, "stats": 2}', "body": b'{"lname": "2_2@h"}'},
        {"tree": b"\1"},
        {"tree": kinds.encode({"type": "getlname"}), "body": b"[1]"},
        {"tree": kinds.encode({"type": "send"}), "body": inner[:-1]},
        {"header": b"{", "body": b"1"},
    ]

    assert read(*rows, keep=9) == [
        {
            "type": "send", "msg": '"abc"', "msg_len": 3, "has_stats": True, "flaw": Flaw.NONE,
            "document": '{"type":"send","msg":"abc","stats":"1"}',
        },
        {
            "type": "getlname", "lname": "1_1@h", "msg": '{"lname":"1_1@h"}', "msg_len": 17, "has_stats": False,
            "document": '{"header":{"type":"getlname"},"body":null}', "flaw": Flaw.NONE,
        },
        {
            "type": "getlname", "lname": "2_2@h", "msg": '{"lname": "2_2@h"}', "msg_len": 18, "has_stats": True,
            "document": '{"header":{"type":"getlname","want_answer":true,"stats":2},"body":null}',
            "want_answer": True, "flaw": Flaw.NONE,
        },
        {"has_stats": False, "flaw": Flaw.MALFORMED},
        {
            "type": "getlname", "msg": "[1]", "msg_len": 3, "has_stats": False, "flaw": Flaw.NONE,
            "document": '{"header":{"type":"getlname"},"body":[1]}',
        },
        {
            "type": "send", "msg": f'{{"hex":"{inner[:-1].hex()}"}}', "msg_len": 16, "has_stats": False,
            "document": '{"header":{"type":"send"},"body":null}', "flaw": Flaw.NONE,
        },
        {"has_stats": False, "flaw": Flaw.MALFORMED},
    ]  # fmt: skip


def test_a_batch_without_rows_or_of_flawed_ones_has_its_columns() -> None:
    assert read() == []
    assert read({}) == [{"has_stats": False, "flaw": Flaw.NONE}]
