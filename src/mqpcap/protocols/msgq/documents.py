"""The columns of msgq: routing words, ``msg`` and ``document`` as text, made for whole batches.

``columns`` gets the spans of typed trees, JSON headers and bodies of a batch. ``tree`` reads the trees. The two parts
of a message are joined column by column.

msgspec reads most JSON. Python's ``json`` reads the rest, which msgspec refuses and the peers read: control characters
and halves of surrogate pairs inside strings. Floats of headers, too, as they get Python's spelling. NaN is no JSON.

A JSON header is written again as section 13 of the protocol notes has it: no spaces, UTF-8, of duplicate keys the last
value at the place of the first, a number that is not finite as a string. An integer of more digits than Python converts
(4,300) makes the header malformed. A JSON body keeps its own text.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.protocols.msgq import tree
from mqpcap.schema.flaws import Flaw

MAX_DEPTH = 500
"""Arrays and objects in one another, as in `tree`."""
MAX_TOKENS = 2_097_152
"""Strings, brackets and commas of a JSON text: each takes up to a hundred bytes of memory while it is read."""
ROUTING = ("type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype")
_WORDS = (*ROUTING, "sybtype")

Columns = dict[str, pa.Array]
Rows = NDArray[np.bool_]


def columns(
    buffer: NDArray[np.uint8],
    trees: tree.Places,
    headers: tree.Places,
    bodies: tree.Places,
    flaw: NDArray[np.uint8],
    keep: int | None = None,
) -> Columns:
    """The columns of a batch: (starts, lengths) of the typed pairs, JSON headers and bodies of its rows, -1 for none.

    A row with pairs and no body is flat, with a body (of length 0, if need be) it is split. Rows whose ``flaw`` (uint8)
    is set are all null; MALFORMED or TOO_LONG is set where a row does not decode. In ``document`` a ``msg`` of more
    than ``keep`` bytes is null.
    """
    is_read = flaw == Flaw.NONE
    is_flat, is_split = (is_read & (trees[1] >= 0) & has_body for has_body in (bodies[1] < 0, bodies[1] >= 0))
    is_json = is_read & (headers[1] >= 0)
    parts = []
    if is_flat.any() or not (is_split.any() or is_json.any()):
        parts.append(_of_trees(buffer, _only(trees, is_flat), flaw, keep))
    if is_split.any():
        heads = _of_trees(buffer, _only(trees, is_split), flaw)
        parts.append(_with_bodies(heads, buffer, _only(bodies, is_split), flaw, keep, may_be_trees=True))
    if is_json.any():
        heads = _of_json(buffer, _only(headers, is_json), flaw)
        parts.append(_with_bodies(heads, buffer, _only(bodies, is_json), flaw, keep, may_be_trees=False))
    found = parts[0] if len(parts) == 1 else {x: pc.coalesce(*(part[x] for part in parts)) for x in parts[0]}
    broken = is_read & (flaw != Flaw.NONE)
    if broken.any():
        found = {name: pc.if_else(broken, None, array) for name, array in found.items()}
    found["subtype"] = pc.coalesce(found["subtype"], found.pop("sybtype"))
    found["has_stats"] = pc.fill_null(found["has_stats"], False)
    return found


def _only(spans: tree.Places, rows: Rows) -> tree.Places:
    return spans[0], np.where(rows, spans[1], -1)


# -- typed trees


def _of_trees(
    buffer: NDArray[np.uint8], spans: tree.Places, flaw: NDArray[np.uint8], keep: int | None = None
) -> Columns:
    """The columns of messages that are one tree each."""
    texts = tree.read(buffer, spans, keep)
    np.maximum(flaw, texts.flaw, out=flaw)
    out = _tree_columns(texts, (spans[1] >= 0) & (texts.flaw == Flaw.NONE))
    out["msg_len"] = pa.array(texts.msg_wire, mask=texts.msg_wire < 0)
    has_stats = out.pop("stats").is_valid()
    out["has_stats"] = pc.if_else(has_stats, has_stats, None)
    out["want_answer"] = pa.nulls(len(flaw), pa.bool_())
    return out


def _tree_columns(texts: tree.Texts, is_there: Rows) -> Columns:
    """The texts of trees as ``document``, and their fields; UTF-8 by construction."""
    n, word_count = len(is_there), int(texts.places.max(initial=-1)) + 1
    words = _strings(texts.word_ends[: word_count + 1], texts.words, None)
    out = {
        name: words.take(pa.array(place, mask=place < 0)) for name, place in zip(tree.FIELDS, texts.places, strict=True)
    }
    valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    out["document"] = _strings(texts.ends[: n + 1], texts.out, valid)
    return out


def _strings(ends: NDArray[np.int32], data: NDArray[np.uint8], valid: pa.Buffer | None) -> pa.Array:
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data[: ends[-1]])]
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)


# -- JSON headers, and bodies


def _of_json(buffer: NDArray[np.uint8], spans: tree.Places, flaw: NDArray[np.uint8]) -> Columns:
    """The columns of messages by their JSON headers, the header itself as ``document``."""
    n = len(flaw)
    texts: list[str | None] = [None] * n
    said: list[list[str | None]] = [[None] * len(_WORDS)] * n
    has_stats, wants_answer = np.zeros((2, n), np.bool_)
    for row, data in _each(buffer, spans):
        try:
            value, text = rewritten(str(data, "utf-8"))
            if not isinstance(value, dict):
                raise ValueError("a header is an object")
        except (TooLong, RecursionError):
            flaw[row] = Flaw.TOO_LONG
            continue
        except ValueError:
            flaw[row] = Flaw.MALFORMED
            continue
        texts[row] = text
        said[row] = [x if x is None or type(x) is str else _word(x) for x in map(value.get, _WORDS)]
        if "stats" in value:
            has_stats[row] = True
        if value.get("want_answer") is True:
            wants_answer[row] = True
    columns = zip(*said, strict=True) if n else [()] * len(_WORDS)
    out = {name: _strings_of(column, False) for name, column in zip(_WORDS, columns, strict=True)}
    out["document"] = _strings_of(texts, True)
    out["has_stats"] = pa.array(has_stats, mask=~has_stats)
    out["want_answer"] = pa.array(wants_answer, mask=~wants_answer)
    return out


def _with_bodies(
    heads: Columns,
    buffer: NDArray[np.uint8],
    spans: tree.Places,
    flaw: NDArray[np.uint8],
    keep: int | None,
    may_be_trees: bool,
) -> Columns:
    """The columns of messages that have bodies: a message as its object, JSON in its own words, else the bytes."""
    asks_name = pc.and_(pc.equal(heads["type"], "getlname"), pc.is_null(heads["lname"]))
    asks_name = pc.fill_null(asks_name, False).to_numpy(zero_copy_only=False)
    start, length = _only(spans, (flaw == Flaw.NONE) & (spans[1] > 0))
    rest, found = length > 0, []
    if may_be_trees:
        is_tree = _begins(buffer, start, length, tree.MAGIC)
        texts = tree.read(buffer, (start + len(tree.MAGIC), np.where(is_tree, length - len(tree.MAGIC), -1)))
        flaw[texts.flaw == Flaw.TOO_LONG] = Flaw.TOO_LONG
        rest &= ~is_tree | (texts.flaw == Flaw.MALFORMED)
        found.append(_tree_columns(texts, is_tree & (texts.flaw == Flaw.NONE)))
    if rest.any() or not found:
        found.append(_of_other_bodies(buffer, _only((start, length), rest), flaw, asks_name))
    text, lname = (pc.coalesce(*(part[name] for part in found)) for name in ("document", "lname"))
    shown = text if keep is None else pc.if_else(pc.greater(pc.binary_length(text), keep), "null", text)
    document = pc.binary_join_element_wise(
        '{"header":', heads["document"], ',"body":', pc.fill_null(shown, "null"), "}", ""
    )
    return heads | {
        "lname": pc.coalesce(heads["lname"], pc.if_else(asks_name, lname, None)),
        "msg": text,
        "msg_len": pa.array(length, mask=length < 0),
        "document": document,
    }


def _of_other_bodies(
    buffer: NDArray[np.uint8], spans: tree.Places, flaw: NDArray[np.uint8], asks_name: Rows
) -> Columns:
    """Bodies that are no trees, as ``document``, and the ``lname`` in them where one is asked for."""
    texts: list[str | None] = [None] * len(flaw)
    names: list[str | None] = [None] * len(flaw)
    for row, data in _each(buffer, spans):
        try:
            text = str(data, "utf-8")
            value = rewritten(text)[0] if asks_name[row] else checked(text)
        except TooLong:
            flaw[row] = Flaw.TOO_LONG
            continue
        except ValueError:
            texts[row] = f'{{"hex":"{data.hex()}"}}'
            continue
        texts[row] = text
        if asks_name[row] and isinstance(value, dict) and value.get("lname") is not None:
            names[row] = _word(value["lname"])
    return {"document": pa.array(texts, pa.string()), "lname": _strings_of(names, False)}


def _each(buffer: NDArray[np.uint8], spans: tree.Places) -> Iterable[tuple[int, memoryview]]:
    """The rows that are there, and their bytes."""
    rows, view = np.flatnonzero(spans[1] >= 0), memoryview(buffer)
    for row, start, length in zip(rows.tolist(), spans[0][rows].tolist(), spans[1][rows].tolist(), strict=True):
        yield row, view[start : start + length]


def _begins(buffer: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64], word: bytes) -> Rows:
    """Which spans begin with a word."""
    out: Rows = length >= len(word)
    for i, byte in enumerate(word):
        rows = np.flatnonzero(out)
        out[rows] = buffer[start[rows] + i] == byte
    return out


# -- JSON


class TooLong(ValueError):
    """A JSON text that is nested too deep or has too many parts."""


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
    """Where a text is nested too deep or has too many parts; its length if nowhere."""
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


def _word(value: object) -> str:
    """A value of a routing word as text."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else _written(value)


def _strings_of(texts: Sequence[str | None], is_json: bool) -> pa.Array:
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
