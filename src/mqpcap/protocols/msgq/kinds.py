"""The kinds of field that only msgq has, a typed tree and a JSON text: as they are written, shown, drawn and explained.

Every protocol is imported for every capture. So this module does without the readers and their library (``tree``,
``documents``), which are imported when the first msgq message is read.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from mqpcap.schema.fields import Form, InnerPart, Inside, Late
from mqpcap.schema.json_parts import json_parts

MAGIC = b"Skan"
ROUTING = ("type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype")
MAX_SHOWN_DEPTH = 32
_NUMBER = re.compile(rb"[+-]?[0-9][0-9.eE+-]*")
_BOOLS = (b"\0", b"\1", b"0", b"1")


class Tree(Late):
    """A typed tree; a hash given as a dict is written with scalars as text, or with items of their types.

    ``with_magic``: the tree is a message of its own, its magic in front: all of it is ``msg``.
    """

    def __init__(self, name: str, *, with_types: bool = False, with_magic: bool = False, **about: Any) -> None:
        self.with_types = with_types
        self.magic = MAGIC if with_magic else b""
        super().__init__(name, **about)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """The bytes of a tree given as a dict; other values are kept."""
        return self.magic + encode(x, self.with_types) if isinstance(x, dict) else super().any2i(pkt, x)

    def value_text(self, pkt: Any, x: Any) -> str:
        """The tree as JSON, its bytes where it does not decode."""
        from mqpcap.protocols.msgq.tree import text

        return (x and text(x.removeprefix(MAGIC))) or repr(x)

    def draw(self) -> Any:
        """A tree of two words."""
        return self.any2i(None, {"type": super().draw(), "group": super().draw()})

    def inside(self, data: bytes) -> Iterator[Inside]:
        """The pairs of the tree; they stop where none is."""
        return _parts(data, 0, len(data))

    def inner_parts(self, data: bytes) -> Iterator[InnerPart]:
        """The scalars of the tree by their outermost key, and its keys."""
        if self.magic and not data.startswith(MAGIC):
            return iter([InnerPart(0, len(data), "msg", "text")])
        return _tree_parts(data, len(self.magic), "msg" if self.magic else "")


class Json(Late):
    """A JSON text, which may be given as the value it stands for."""

    def any2i(self, pkt: Any, x: Any) -> Any:
        """The text of an object or a list; other values are kept."""
        return json.dumps(x).encode() if isinstance(x, dict | list) else super().any2i(pkt, x)

    def inner_parts(self, data: bytes) -> Iterator[InnerPart]:
        """The text if it is a body, else the parts of the header."""
        return iter([InnerPart(0, len(data), "msg", "text")]) if self.name == "body" else json_parts(data)

    def draw(self) -> Any:
        """An object of one word."""
        return self.any2i(None, {"type": super().draw().decode("latin-1")})


_TYPES = {1: "DATA", 2: "HASH", 3: "LIST", 4: "NULL", 5: "BOOL", 6: "INT", 7: "REAL", 8: "UTF8"}
_LENGTH_SIZES = {0x00: 4, 0x10: 2, 0x20: 1}
_DATA, _HASH, _LIST, _NULL, _BOOL, _INT, _REAL, _UTF8 = _TYPES


def _head(data: bytes, offset: int, end: int, long_null: bool = False) -> tuple[int, int, int] | None:
    """The type of the item at a place, and where its data begins and ends; None where no item is."""
    if offset >= end:
        return None
    kind, size = data[offset] & 0x0F, _LENGTH_SIZES.get(data[offset] & 0x30)
    if kind == _NULL and not (long_null and data[offset] & 0x30 in (0x10, 0x20)):
        return kind, offset + 1, offset + 1
    if kind not in _TYPES or size is None or offset + 1 + size > end:
        return None
    start = offset + 1 + size
    length = int.from_bytes(data[offset + 1 : start], "big")
    return (kind, start, start + length) if length <= (end - start if kind != _NULL else 0) else None


def _parts(data: bytes, offset: int, end: int, depth: int = 0, is_hash: bool = True) -> Iterator[Inside]:
    """The pairs of a hash or the items of a list between two places; they stop where none is."""
    for index in count():
        item = offset + 1 + data[offset] if is_hash and offset < end else offset
        head = _head(data, item, end)
        if head is None:
            return
        kind, start, stop = head
        name = data[offset + 1 : item].decode("utf-8", "replace") if is_hash else f"[{index}]"
        if is_hash:
            yield Inside(offset, item - offset, depth, "key", name, None, named=False)
        if kind in (_HASH, _LIST) and depth <= MAX_SHOWN_DEPTH:
            meaning = f"{_TYPES[kind]} of {stop - start} bytes"
            yield Inside(item, stop - item, depth, name, None, meaning, named=True)
            yield from _parts(data, start, stop, depth + 1, kind == _HASH)
        else:
            value = data[start:stop] if kind != _NULL else None
            yield Inside(item, stop - item, depth, name, value, _TYPES[kind], named=True)
        offset = stop


def _tree_parts(data: bytes, start: int, name: str) -> Iterator[InnerPart]:
    """The parts of a message after its magic, and of the messages in its strings."""
    yield InnerPart(0, start)
    regions = [(start, len(data), name)]
    for start, end, name in regions:  # it grows
        reading = _reading(data, start, end, name)
        if reading is None:
            yield InnerPart(start, end - start, name, "text")
            continue
        for part in reading:
            if part.form == "text" and data.startswith(MAGIC, part.offset, part.offset + part.length):
                yield InnerPart(part.offset, len(MAGIC))
                regions.append((part.offset + len(MAGIC), part.offset + part.length, part.name))
            else:
                yield part


def _reading(data: bytes, start: int, end: int, name: str) -> list[InnerPart] | None:
    """The parts of a message in the reading of `tree.TreeReader`: the first that fits."""
    explicit = _head(data, start, end)
    is_hash = explicit is not None and explicit[0] == _HASH and explicit[2] == end and data[start] < 0x40
    inner = explicit[1] if explicit is not None and is_hash else None
    for long_null in (False, True):
        for offset in (inner, start):
            parts = None if offset is None else _pairs(data, offset, end, name, long_null)
            if offset is not None and parts is not None:
                return [InnerPart(start, offset - start), *parts]
    return None


def _pairs(data: bytes, offset: int, end: int, name: str, long_null: bool) -> list[InnerPart] | None:
    """The parts of the pairs that fill a region, None if they do not; without a ``name`` by their outermost key."""
    parts: list[InnerPart] = []
    stack: list[tuple[int, bool]] = []
    is_hash, key = True, name
    while offset < end or stack:
        if offset == end:
            end, is_hash = stack.pop()
            continue
        item = offset + 1 + data[offset] if is_hash else offset
        head = _head(data, item, end, long_null)
        if head is None:
            return None
        kind, start, stop = head
        if is_hash:
            key = key if name or stack else data[offset + 1 : item].decode("utf-8", "replace")
            parts += InnerPart(offset, 1), InnerPart(offset + 1, item - offset - 1, key, "key")
        parts.append(InnerPart(item, start - item))
        if kind in (_HASH, _LIST):
            stack.append((end, is_hash))
            offset, end, is_hash = start, stop, kind == _HASH
            continue
        is_number = kind in (_INT, _REAL) and _NUMBER.fullmatch(data, start, stop) is not None
        is_bool = kind == _BOOL and data[start:stop] in _BOOLS
        form: Form = "structure" if is_bool else "number" if is_number else "text"
        parts.append(InnerPart(start, stop - start, key, form))
        offset = stop
    return parts


Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]


def encode(value: dict[str, Value], typed: bool = False) -> bytes:
    """The pairs of a hash, with the shortest lengths: the bytes after the magic.

    Untyped, every scalar is text in a DATA item, as the first generation wrote it; ``typed`` writes UTF8, INT, REAL
    and BOOL (one digit). Bytes are DATA, None is NULL.

    >>> encode({"type": "getlname"}).hex(" ")
    '04 74 79 70 65 21 08 67 65 74 6c 6e 61 6d 65'
    """
    written = b""
    for key, item in value.items():
        tag = key.encode()
        written += bytes([len(tag)]) + tag + _item(item, typed)
    return written


def with_word(pairs: bytes, word: str, value: Value, typed: bool) -> bytes:
    """The pairs of a hash with one pair replaced, or added at the end. None removes the pair; the others do not change.

    Raises ValueError if the pairs do not decode.
    """
    pair = b"" if value is None else encode({word: value}, typed)
    written, offset, is_written = b"", 0, False
    while offset < len(pairs):
        key_end = offset + 1 + pairs[offset]
        head = _head(pairs, key_end, len(pairs))
        if head is None:
            raise ValueError("the pairs of the message do not decode: set the field with its bytes")
        if pairs[offset + 1 : key_end] != word.encode():
            written += pairs[offset : head[2]]
        elif not is_written:
            written, is_written = written + pair, True
        offset = head[2]
    return written if is_written else written + pair


def message(value: dict[str, Value], typed: bool = False) -> bytes:
    """A whole message, for ``msg`` or a body: the magic and the pairs."""
    return MAGIC + encode(value, typed)


def _item(value: Value, typed: bool) -> bytes:
    if value is None:
        return bytes([_NULL])
    kind, content = _content(value, typed)
    for code, size in ((0x20, 1), (0x10, 2)):
        if len(content) < 1 << 8 * size:
            return bytes([kind | code]) + len(content).to_bytes(size, "big") + content
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def _content(value: Value, typed: bool) -> tuple[int, bytes]:
    if isinstance(value, bytes):
        return _DATA, value
    if isinstance(value, dict):
        return _HASH, encode(value, typed)
    if isinstance(value, list):
        return _LIST, b"".join(_item(x, typed) for x in value)
    if not typed:
        return _DATA, str(value).encode()
    if isinstance(value, bool):
        return _BOOL, b"1" if value else b"0"
    if isinstance(value, int):
        return _INT, str(value).encode()
    if isinstance(value, float):
        return _REAL, repr(value).encode()
    return _UTF8, str(value).encode()
