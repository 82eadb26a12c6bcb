# cython: language_level=3, annotation_typing=False
"""The columns of msgq: routing words, ``msg`` and ``document`` as text.

``columns`` gets the spans of typed trees, JSON headers and bodies of a batch. ``tree`` reads the trees, msgspec most
JSON. Python's ``json`` reads the rest, which msgspec refuses and the peers read: control characters and halves of
surrogate pairs inside strings. Floats of headers, too, as they get Python's spelling. NaN is no JSON.

A JSON header is normalised: UTF-8 without spaces. A duplicate key keeps its first position and its last value. A number
that is not finite becomes a string. An integer of more digits than Python converts (4,300) makes the header malformed.
A JSON body keeps its own text.

The same file runs uncompiled.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.protocols.msgq.kinds import MAGIC, ROUTING
from mqpcap.protocols.msgq.tree import TooLong, TreeReader, to_json
from mqpcap.schema.flaws import Flaw

MAX_DEPTH = 500
"""Arrays and objects in one another, as in `tree`."""
MAX_TOKENS = 2_097_152
"""Strings, brackets and commas of a JSON text: each takes up to a hundred bytes of memory while it is read."""

Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def columns(
    buffer: NDArray[np.uint8],
    trees: Places,
    headers: Places,
    bodies: Places,
    flaw: NDArray[np.uint8],
    keep: int | None = None,
) -> dict[str, pa.Array]:
    """The columns of a batch: (starts, lengths) of the typed pairs, JSON headers and bodies of its rows, -1 for none.

    A row with pairs and no body is flat, with a body (of length 0, if need be) it is split. Rows whose ``flaw`` (uint8)
    is set are all null; MALFORMED or TOO_LONG is set where a row does not decode. In ``document`` a ``msg`` of more
    than ``keep`` bytes is null.
    """
    n, data = len(flaw), buffer.tobytes()
    values: dict[str, list[str | None]] = {name: [None] * n for name in (*ROUTING, "msg", "document")}
    words = {name: values[name] for name in ROUTING}
    lengths: list[int | None] = [None] * n
    wants_answer: list[bool | None] = [None] * n
    has_stats = [False] * n
    rows = np.flatnonzero((flaw == Flaw.NONE) & ((trees[1] >= 0) | (headers[1] >= 0)))
    places = (part[rows].tolist() for spans in (trees, headers, bodies) for part in spans)
    for row, tree, tree_len, header, header_len, body, body_len in zip(rows.tolist(), *places, strict=True):
        content = data[body : body + body_len] if body_len >= 0 else None
        try:
            if tree_len >= 0:
                value, msg, document, length = of_tree(data, tree, tree + tree_len, content, keep)
            else:
                value, msg, document, length = of_json(data[header : header + header_len], content or b"", keep)
        except (TooLong, RecursionError):
            flaw[row] = Flaw.TOO_LONG
            continue
        except ValueError:
            flaw[row] = Flaw.MALFORMED
            continue
        _put_words(words, row, value, _tree_text if tree_len >= 0 else _written)
        values["msg"][row], values["document"][row] = msg, document
        if msg is not None:
            lengths[row] = length
        has_stats[row] = "stats" in value
        if tree_len < 0 and value.get("want_answer") is True:
            wants_answer[row] = True
    parts = {name: _strings(column, name == "document") for name, column in values.items()}
    parts["msg_len"] = pa.array(lengths, pa.int64())
    parts["has_stats"] = pa.array(has_stats, pa.bool_())
    parts["want_answer"] = pa.array(wants_answer, pa.bool_())
    return parts


def _put_words(
    words: dict[str, list[str | None]], row: int, value: dict[str, Any], write: Callable[[object], str]
) -> None:  # fmt: skip
    """Set the routing words of a row."""
    if value.get("subtype") is None and "sybtype" in value:
        value["subtype"] = value["sybtype"]
    for name, word in value.items():
        column = words.get(name)
        if column is not None and word is not None:
            column[row] = word if type(word) is str else _word(word, write)


Message = tuple[dict[str, Any], str | None, str, int]
"""The words of a message, its ``msg`` and ``document``, and how many bytes the first of these has on the wire."""


def of_tree(data: bytes, offset: int, end: int, body: bytes | None, keep: int | None = None) -> Message:
    """A message that is one tree, or has one as its header and a body."""
    reader = TreeReader(data, offset, end)
    value = reader.read()
    if body is not None:
        return value, *_with_body(value, _tree_text(value), body, keep, may_be_tree=True)
    if "msg" not in value:
        return value, None, _tree_text(value), -1
    msg = to_json(value["msg"])
    value["msg"] = msgspec.Raw(msg) if keep is None or len(msg) <= keep else None
    return value, msg.decode(), _tree_text(value), reader.msg_len


def of_json(header: bytes, body: bytes, keep: int | None = None) -> Message:
    """A message with a JSON header."""
    value, text = rewritten(str(header, "utf-8"))
    if not isinstance(value, dict):
        raise ValueError("a header is an object")
    return value, *_with_body(value, text, body, keep, may_be_tree=False)


def _with_body(
    words: dict[str, Any], header: str, content: bytes, keep: int | None, may_be_tree: bool
) -> tuple[str | None, str, int]:
    """``msg``, ``document`` and the body's length. A reply to getlname takes its ``lname`` from the body."""
    asks_name = words.get("type") == "getlname" and words.get("lname") is None
    text, value, write = _body(content, may_be_tree, asks_name)
    if asks_name and isinstance(value, dict):
        name = value.get("lname")
        words["lname"] = name if name is None or type(name) is str else _word(name, write)
    shown = "null" if text is None or (keep is not None and len(text.encode()) > keep) else text
    return text, f'{{"header":{header},"body":{shown}}}', len(content)


def _body(content: bytes, may_be_tree: bool, is_read: bool) -> tuple[str | None, object, Callable[[object], str]]:
    """A body as text: a message as its object, JSON unchanged, else the bytes. Its value, if ``is_read``."""
    if not content:
        return None, None, _written
    if may_be_tree and content.startswith(MAGIC):
        try:
            value = TreeReader(content, len(MAGIC), len(content)).read()
            return _tree_text(value), value, _tree_text
        except TooLong:
            raise
        except ValueError:
            pass  # no message
    try:
        text = str(content, "utf-8")
        return text, rewritten(text)[0] if is_read else checked(text), _written
    except TooLong:
        raise
    except ValueError:
        return f'{{"hex":"{content.hex()}"}}', None, _written


def _tree_text(value: object) -> str:
    return to_json(value).decode()


def _word(value: object, write: Callable[[object], str]) -> str:
    """A value of a routing word, no string, as text."""
    return str(value) if type(value) is int else write(value)


# -- JSON


def rewritten(text: str) -> tuple[object, str]:
    """The value of a JSON text, and its text without spaces. Raises ValueError if it is none, TooLong; RecursionError.

    >>> rewritten('{"a": 1.50, "a": [1e999]}')
    ({'a': ['1e999']}, '{"a":["1e999"]}')
    """
    if _is_small(text):
        try:
            value = _FAST_VALUES.decode(text)
            return value, _FAST_ENCODER.encode(value).decode()
        except _REFUSED:
            pass  # what only Python's reader takes, or nobody
    value = _parsed(text, _VALUES)
    return value, _written(value)


def checked(text: str) -> object:
    """Something if a text is JSON, numbers of any size included. Raises ValueError if it is none, TooLong."""
    if _is_small(text):
        try:
            return _FAST_CHECK.decode(text)
        except _REFUSED:
            pass
    return _parsed(text, _OUTLINE)


def _is_small(text: str) -> bool:
    """Whether a text is surely within the bounds."""
    size = len(text)
    return size <= MAX_DEPTH or (size <= MAX_TOKENS and text.count("[") + text.count("{") <= MAX_DEPTH)


def _parsed(text: str, decoder: json.JSONDecoder) -> object:
    """What Python reads in a text."""
    text = text.strip(" \t\r\n")
    cut = len(text) if _is_small(text) else _bounded(text)
    try:
        value, end = decoder.raw_decode(text[:cut])
    except json.JSONDecodeError as error:
        if cut < len(text) and error.pos >= cut:
            raise TooLong from None
        raise
    except RecursionError:
        raise TooLong from None  # little was left of the interpreter's stack
    if end < len(text):
        raise ValueError("there is more behind the value")
    return value


def _bounded(text: str) -> int:
    """The offset where a text exceeds a limit of nesting or parts, else its length."""
    depth = 0
    for count, token in enumerate(_TOKENS.finditer(text)):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > MAX_DEPTH or count >= MAX_TOKENS:
            return token.end()
    return len(text)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _strings(texts: Sequence[str | None], is_json: bool) -> pa.Array:
    """A column of texts; half of a surrogate pair, which UTF-8 has not, is an escape in JSON, else U+FFFD."""
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        clean = (lambda half: f"\\u{ord(half[0]):04x}") if is_json else "\ufffd"
        return pa.array([x and _HALVES.sub(clean, x) for x in texts], pa.string())


def _no_float(digits: str) -> None:
    raise ValueError(f"Python spells {digits}")


_FAST_VALUES = msgspec.json.Decoder(float_hook=_no_float)
_FAST_CHECK = msgspec.json.Decoder(msgspec.Raw)
_FAST_ENCODER = msgspec.json.Encoder()
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
_VALUES = json.JSONDecoder(strict=False, parse_constant=_refused, parse_float=_finite)
_OUTLINE = json.JSONDecoder(strict=False, parse_constant=_refused, parse_float=str, parse_int=str)
"""For what need only be JSON: numbers are not converted."""
_written = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)  # a string without an end is one to the end
_HALVES = re.compile("[\ud800-\udfff]")
