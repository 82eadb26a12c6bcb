"""The kinds of field that only msgq has, a typed tree and a JSON text: as they are written, shown, drawn and explained.

Every protocol is imported for every capture. So this module does without the readers and their library (``tree``,
``documents``), which are imported when the first msgq message is read.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from mqpcap.schema.fields import InnerValue, Inside, Late

MAGIC = b"Skan"
ROUTING = ("type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype")
MAX_SHOWN_DEPTH = 32
_JSON_PAIR = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*"((?:[^"\\]|\\.)*)"')


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

    def inner_values(self, data: bytes) -> Iterator[InnerValue]:
        """The scalars of the tree by their key; keys, too, in ``msg``."""
        if not self.magic:
            return _inner_values(data, 0, len(data))
        is_tree = data.startswith(MAGIC)
        return _inner_values(data, len(MAGIC), len(data), "msg") if is_tree else iter([InnerValue(0, len(data), "msg")])


class Json(Late):
    """A JSON text, which may be given as the value it stands for."""

    def any2i(self, pkt: Any, x: Any) -> Any:
        """The text of an object or a list; other values are kept."""
        return json.dumps(x).encode() if isinstance(x, dict | list) else super().any2i(pkt, x)

    def inner_values(self, data: bytes) -> Iterator[InnerValue]:
        """The text if it is a body, else the strings in it by their key."""
        if self.name == "body":
            yield InnerValue(0, len(data), "msg")
            return
        for pair in _JSON_PAIR.finditer(data):
            yield InnerValue(pair.start(2), len(pair[2]), pair[1].decode("utf-8", "replace"))

    def draw(self) -> Any:
        """An object of one word."""
        return self.any2i(None, {"type": super().draw().decode("latin-1")})


_TYPES = {1: "DATA", 2: "HASH", 3: "LIST", 4: "NULL", 5: "BOOL", 6: "INT", 7: "REAL", 8: "UTF8"}
_LENGTH_SIZES = {0x00: 4, 0x10: 2, 0x20: 1}
_DATA, _HASH, _LIST, _NULL, _BOOL, _INT, _REAL, _UTF8 = _TYPES


def _head(data: bytes, offset: int, end: int) -> tuple[int, int, int] | None:
    """The type of the item at a place, and where its data begins and ends; None where no item is."""
    if offset >= end:
        return None
    kind, size = data[offset] & 0x0F, _LENGTH_SIZES.get(data[offset] & 0x30)
    if kind == _NULL:
        return kind, offset + 1, offset + 1
    if kind not in _TYPES or size is None or offset + 1 + size > end:
        return None
    start = offset + 1 + size
    length = int.from_bytes(data[offset + 1 : start], "big")
    return (kind, start, start + length) if start + length <= end else None


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


def _inner_values(
    data: bytes, offset: int, end: int, name: str = "", depth: int = 0, is_hash: bool = True
) -> Iterator[InnerValue]:
    """The scalars between two places, by their key; with a ``name`` all of them, and the keys, under that name."""
    while offset < end:
        item = offset + 1 + data[offset] if is_hash else offset
        head = _head(data, item, end)
        if head is None:
            return
        kind, start, stop = head
        own_name = name or data[offset + 1 : item].decode("utf-8", "replace")
        if name and is_hash:
            yield InnerValue(offset + 1, item - offset - 1, name)
        if kind in (_HASH, _LIST) and depth <= MAX_SHOWN_DEPTH:
            yield from _inner_values(data, start, stop, own_name, depth + 1, kind == _HASH)
        elif data[start : start + len(MAGIC)] == MAGIC and not name:
            yield from _inner_values(data, start + len(MAGIC), stop, own_name, depth + 1)
        elif kind not in (_NULL, _BOOL):
            yield InnerValue(start, stop - start, own_name, "number" if kind in (_INT, _REAL) else "text")
        offset = stop


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
