"""The kinds of field that only msgq has: a typed tree and a JSON text, as they are shown, drawn and explained."""

import json
from collections.abc import Iterator
from typing import Any

from mqpcap.protocols.msgq import tree
from mqpcap.schema.fields import Inside, Late

MAX_SHOWN_DEPTH = 32


class Tree(Late):
    """A typed tree; a hash given as a dict is written with scalars as text, or with items of their types.

    ``with_magic``: the tree is a message of its own, its magic in front.
    """

    def __init__(self, name: str, *, with_types: bool = False, with_magic: bool = False, **about: Any) -> None:
        self.with_types = with_types
        self.magic = tree.MAGIC if with_magic else b""
        super().__init__(name, **about)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """The bytes of a tree given as a dict; other values are kept."""
        return self.magic + tree.encode(x, self.with_types) if isinstance(x, dict) else super().any2i(pkt, x)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """The tree as JSON, its bytes where it does not decode."""
        return (x and tree.text(x.removeprefix(tree.MAGIC))) or repr(x)

    def draw(self) -> Any:
        """A tree of two words."""
        return self.any2i(None, {"type": super().draw(), "group": super().draw()})

    def inside(self, data: bytes) -> Iterator[Inside]:
        """The pairs of the tree; they stop where none is."""
        return _pairs(data, 0, len(data), 0)


class Json(Late):
    """A JSON text, which may be given as the value it stands for."""

    def any2i(self, pkt: Any, x: Any) -> Any:
        """The text of an object or a list; other values are kept."""
        return json.dumps(x).encode() if isinstance(x, dict | list) else super().any2i(pkt, x)

    def draw(self) -> Any:
        """An object of one word."""
        return self.any2i(None, {"type": super().draw().decode("latin-1")})


_TYPES = {1: "DATA", 2: "HASH", 3: "LIST", 4: "NULL", 5: "BOOL", 6: "INT", 7: "REAL", 8: "UTF8"}
_LENGTH_SIZES = {0x00: 4, 0x10: 2, 0x20: 1}
_HASH, _LIST, _NULL = 2, 3, 4


_Head = tuple[int, int, int]
"""An item of a tree: its type, where its data begins and ends."""


def _head(data: bytes, at: int, end: int) -> _Head | None:
    if at >= end:
        return None
    kind, size = data[at] & 0x0F, _LENGTH_SIZES.get(data[at] & 0x30)
    if kind == _NULL:
        return kind, at + 1, at + 1
    if kind not in _TYPES or size is None or at + 1 + size > end:
        return None
    start = at + 1 + size
    length = int.from_bytes(data[at + 1 : start], "big")
    return (kind, start, start + length) if start + length <= end else None


def _pairs(data: bytes, at: int, end: int, depth: int) -> Iterator[Inside]:
    """The pairs between two places; stops where no pair is."""
    while at < end:
        key_end = at + 1 + data[at]
        head = _head(data, key_end, end)
        if head is None:
            return
        name = data[at + 1 : key_end].decode("utf-8", "replace")
        yield Inside(at, key_end - at, depth, "key", name, None, named=False)
        yield from _item(data, key_end, head, depth, name)
        at = head[2]


def _item(data: bytes, at: int, head: _Head, depth: int, name: str) -> Iterator[Inside]:
    kind, start, end = head
    if kind not in (_HASH, _LIST) or depth > MAX_SHOWN_DEPTH:
        value = data[start:end] if kind != _NULL else None
        yield Inside(at, end - at, depth, name, value, _TYPES[kind], named=True)
        return
    yield Inside(at, end - at, depth, name, None, f"{_TYPES[kind]} of {end - start} bytes", named=True)
    if kind == _HASH:
        yield from _pairs(data, start, end, depth + 1)
        return
    index = 0
    while (inner := _head(data, start, end)) is not None:
        yield from _item(data, start, inner, depth + 1, f"[{index}]")
        start, index = inner[2], index + 1
