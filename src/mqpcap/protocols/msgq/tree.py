# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""Typed trees, msgq's binary encoding of hashes, lists and scalars, read into values.

``TreeReader`` reads the bytes after a message's magic. Numbers keep their digits and bytes that are no text become
``{"hex": ...}``, so ``to_json`` can write every value.

A message is read in the first way that fits: an explicit HASH item after the magic, plain pairs, then both again with a
length field after NULL. Real libraries write plain pairs; writers by the document may write the other forms. A string
that begins with the magic is read after the message around it, and becomes an object if it decodes. So time and memory
are linear in the bytes. Nothing recurses. Depth counts hashes, lists and embedded messages together.

The same file runs uncompiled.
"""

import math
import re
from typing import Any

import cython
import msgspec

from mqpcap.protocols.msgq.kinds import MAGIC

MAX_DEPTH = cython.declare(cython.const[cython.int], 500)  # hashes, lists and messages; the Python peers read about 497
MAX_ITEMS = cython.declare(cython.const[cython.longlong], 2_097_152)  # each takes up to a hundred bytes of memory
MAX_REAL_BYTES = cython.declare(cython.const[cython.int], 400)  # a longer REAL stays a string

# Item types.
DATA = cython.declare(cython.const[cython.int], 1)
HASH = cython.declare(cython.const[cython.int], 2)
LIST = cython.declare(cython.const[cython.int], 3)
NULL = cython.declare(cython.const[cython.int], 4)
BOOL = cython.declare(cython.const[cython.int], 5)
INT = cython.declare(cython.const[cython.int], 6)
REAL = cython.declare(cython.const[cython.int], 7)
UTF8 = cython.declare(cython.const[cython.int], 8)

to_json = msgspec.json.Encoder().encode
_BOOLS = {b"\0": False, b"0": False, b"\1": True, b"1": True}
_INT = re.compile(rb"([+-]?)0*([0-9]+)")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?|[0-9]*\.[0-9]+)([eE][+-]?[0-9]+)?")
_JSON_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class TooLong(ValueError):
    """A message or JSON text that is nested too deep or has too many parts."""


@cython.final
@cython.cclass
class TreeReader:
    """One message, its magic left out: the bytes of ``data`` from ``start`` to ``end``. ``read`` returns its hash.

    ``msg_len`` is then how many bytes the item ``msg`` has, -1 without one, and ``kinds`` has a bit per item type.
    """

    data: bytes
    msg_len = cython.declare(cython.Py_ssize_t, visibility="readonly")
    kinds = cython.declare(cython.int, visibility="readonly")
    start: cython.Py_ssize_t  # where the data of an item begins and ends
    end: cython.Py_ssize_t
    met_long_null: cython.bint
    item_count: cython.longlong
    aside: list[tuple[Any, Any, Any]]  # container, key and place of each string that may be a message

    def __init__(self, data: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t):
        self.data = data
        self.start = start
        self.end = end
        self.msg_len = -1
        self.kinds = 0
        self.item_count = 0
        self.aside = []

    def read(self) -> dict[str, object]:
        """The hash. Raises ValueError where there is none, TooLong beyond the limits."""
        pairs = self._reading(self.start, self.end, 1)
        msg_len, kinds = self.msg_len, self.kinds
        for into, key, string in self.aside:  # it grows
            if into[key] is not string:
                continue  # a later item had the same tag
            start, end, level = string
            try:
                into[key] = self._reading(start + len(MAGIC), end, level)
            except TooLong:
                raise
            except ValueError:
                into[key] = self._text(start, end)
        self.msg_len, self.kinds = msg_len, kinds
        return pairs

    @cython.cfunc
    def _reading(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, level: cython.int) -> dict[str, Any]:
        """The hash in the first reading that fits."""
        explicit: cython.Py_ssize_t = -1
        aside: cython.Py_ssize_t = len(self.aside)
        item_count: cython.longlong = self.item_count
        i: cython.int
        p: cython.Py_ssize_t
        why: object = None
        self.met_long_null = False
        if start < end and self.data[start] in (0x22, 0x12, 0x02) and self._head(start, end, False) and self.end == end:
            explicit = self.start
        for i in range(4):
            p = start if i % 2 else explicit
            if p < 0 or (i >= 2 and not self.met_long_null):
                continue
            self.msg_len, self.kinds = -1, 0
            try:
                return self._hash(p, end, i >= 2, level)
            except ValueError as error:
                why = error if why is None or isinstance(error, TooLong) else why
                self.item_count = item_count
                del self.aside[aside:]
        raise why  # type: ignore[misc]  # an error: plain pairs are always tried

    @cython.cfunc
    def _hash(
        self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint, level: cython.int
    ) -> dict[str, Any]:  # fmt: skip
        """The hash whose pairs fill ``p`` to ``end``, at nesting depth ``level``."""
        pairs: dict[str, Any] = {}
        into: Any = pairs
        is_hash: cython.bint = True
        key: object = None
        stack: list[Any] = []
        kind: cython.int
        value: object
        if level > MAX_DEPTH:
            raise TooLong(f"more than {MAX_DEPTH} levels")
        while True:
            if p == end:
                if not stack:
                    return pairs
                into, is_hash, end = stack.pop()
                continue
            if is_hash:
                if p + 1 + self.data[p] >= end:
                    raise ValueError("a tag without an item")
                key = self._tag(p + 1, p + 1 + self.data[p])
                p += 1 + self.data[p]
            kind = self._head(p, end, long_null)
            self.item_count += 1
            if kind == 0:
                raise ValueError(f"no item at offset {p}")
            if self.item_count > MAX_ITEMS:
                raise TooLong(f"more than {MAX_ITEMS} items")
            p = self.end
            if kind == HASH or kind == LIST:
                if level + len(stack) >= MAX_DEPTH:
                    raise TooLong(f"more than {MAX_DEPTH} levels")
                value = {} if kind == HASH else []
            elif (kind == DATA or kind == UTF8) and self._has_magic():
                value = self.start, p, level + len(stack) + 1
                self.aside.append((into, key if is_hash else len(into), value))
            else:
                value = self._scalar(kind)
            if is_hash:
                cython.cast(dict, into)[key] = value
                if level == 1 and not stack and key == "msg":
                    self.msg_len = p - self.start
            else:
                cython.cast(list, into).append(value)
            if kind == HASH or kind == LIST:
                stack.append((into, is_hash, end))
                into, is_hash, end, p = value, kind == HASH, p, self.start

    @cython.cfunc
    @cython.exceptval(check=False)
    def _head(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint) -> cython.int:
        """The type of the item at ``p``, whose data is then from ``start`` to ``end``; 0 if there is none.

        A length may not pass its container.
        """
        if p >= end:
            return 0
        b: cython.int = self.data[p]
        kind: cython.int = b & 0x0F
        code: cython.int = b & 0x30
        size: cython.int = 1 if code == 0x20 else (2 if code == 0x10 else 4)
        n: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        if kind == NULL:
            # NULL is one byte whatever its length code; a writer by the document may add a length after it.
            is_long: cython.bint = code == 0x10 or code == 0x20
            self.met_long_null = self.met_long_null or is_long
            if not (is_long and long_null):
                size = 0
        elif kind == 0 or kind > UTF8 or code == 0x30:
            return 0
        p += 1
        if size > end - p:
            return 0
        for i in range(p, p + size):
            n = n * 256 + self.data[i]
        p += size
        if n > (0 if kind == NULL else end - p):
            return 0
        self.kinds |= 1 << kind
        self.start = p
        self.end = p + n
        return kind

    @cython.cfunc
    def _has_magic(self) -> cython.bint:
        return (
            self.end - self.start >= 4
            and self.data[self.start] == 0x53
            and self.data[self.start : self.start + 4] == MAGIC
        )

    @cython.cfunc
    def _tag(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> str:
        try:
            return self.data[start:end].decode("utf-8")
        except UnicodeDecodeError:
            return "hex:" + self.data[start:end].hex()

    @cython.cfunc
    def _text(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> object:
        try:
            return self.data[start:end].decode("utf-8")
        except UnicodeDecodeError:
            return _hex(self.data[start:end])

    @cython.cfunc
    def _scalar(self, kind: cython.int) -> object:
        """The value of the item that is no container."""
        number: bytes | None = None
        if kind == NULL:
            return None
        if kind == BOOL:
            content = self.data[self.start : self.end]
            return _BOOLS[content] if content in _BOOLS else _hex(content)
        if kind == INT:
            number = _integer(self.data[self.start : self.end])
        elif kind == REAL and self.end - self.start <= MAX_REAL_BYTES:
            number = _real(self.data[self.start : self.end])
        return self._text(self.start, self.end) if number is None else msgspec.Raw(number)


def _hex(content: bytes) -> dict[str, str]:
    """Bytes that are no text."""
    return {"hex": content.hex()}


def _integer(content: bytes) -> bytes | None:
    """Decimal digits of any number as JSON has them; None for anything else."""
    match = _INT.fullmatch(content)
    if match is None:
        return None
    sign, digits = match.groups()
    return b"-" + digits if sign == b"-" and digits != b"0" else digits


def _real(content: bytes) -> bytes | None:
    """A finite float: its text if that is JSON, else as Python spells it. None for anything else."""
    text = content.decode("latin-1")
    if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        return None
    return content if _JSON_FLOAT.fullmatch(text) else repr(float(text)).encode()


def text(pairs: bytes) -> str | None:
    """The JSON text of the pairs of one message (what follows the magic), None if they do not decode.

    >>> text(bytes.fromhex("0474797065 21 08 6765746c6e616d65"))
    '{"type":"getlname"}'
    """
    try:
        return to_json(TreeReader(pairs, 0, len(pairs)).read()).decode()
    except ValueError:
        return None


def has_typed_items(message: bytes) -> bool:
    """Whether a message (magic and all) holds an item of the types 5 to 8, which the first generation did not have."""
    if not message.startswith(MAGIC):
        return False
    reader = TreeReader(message, len(MAGIC), len(message))
    try:
        reader.read()
    except ValueError:
        return False
    return reader.kinds >> BOOL != 0
