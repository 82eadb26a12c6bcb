# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Typed trees, msgq's binary encoding of hashes, lists and scalars: read as JSON text, written from values.

``read`` takes the spans of a batch of messages. It gives the JSON text of each and the values of the keys in FIELDS, or
a flaw. It never raises for bytes; time and memory are linear in them. ``encode`` writes a tree.

A message is read in two steps. First it is *checked* in the readings of section 11 of the protocol notes: an explicit
HASH item after the magic, plain pairs, and both again with a length field behind NULL. The check does not look into
strings: a string that holds a message of its own is checked once, when it is written. Then the reading that fits is
*written* by one loop over a stack, embedded messages included; nothing recurses. Depth counts hashes, lists and
embedded messages together. Of duplicate tags the value of the last stands at the place of the first, as in a Python
dict.

The same file runs uncompiled; memoryviews are passed in so that elements are plain integers.
"""

import math
import re
from dataclasses import dataclass

import cython
import numpy as np
from numpy.typing import NDArray

MAGIC = b"Skan"
MAX_DEPTH = cython.declare(cython.const[cython.int], 500)  # hashes, lists and messages; the Python peers read about 497
MAX_TAGS = cython.declare(cython.const[cython.longlong], 1_048_576)  # pairs of one hash
MAX_REAL_BYTES = cython.declare(cython.const[cython.int], 400)  # a longer REAL stays a string
SMALL_HASH = cython.declare(cython.const[cython.int], 16)  # so many tags are compared pair by pair
GROWTH = 6
"""Bytes of JSON that a byte of a tree becomes at most: a control character is ``\\u0001``; every other item has a head
or a length byte that makes up for its quotes, comma and ``{"hex":""}``."""

# Item types.
DATA = cython.declare(cython.const[cython.int], 1)
HASH = cython.declare(cython.const[cython.int], 2)
LIST = cython.declare(cython.const[cython.int], 3)
NULL = cython.declare(cython.const[cython.int], 4)
BOOL = cython.declare(cython.const[cython.int], 5)
INT = cython.declare(cython.const[cython.int], 6)
REAL = cython.declare(cython.const[cython.int], 7)
UTF8 = cython.declare(cython.const[cython.int], 8)

# Results of a message; the last two are its flaw.
DONE = cython.declare(cython.const[cython.int], 0)
MALFORMED = cython.declare(cython.const[cython.int], 2)
TOO_LONG = cython.declare(cython.const[cython.int], 3)

FIELDS = (
    "type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype", "sybtype", "stats", "msg",
)  # fmt: skip
"""The keys of a message whose values are columns."""
FIELD_COUNT = cython.declare(cython.const[cython.int], 13)
F_STATS = cython.declare(cython.const[cython.int], 11)
F_MSG = cython.declare(cython.const[cython.int], 12)

# What the stack says of a container, beside where it goes on and ends.
IS_HASH = cython.declare(cython.const[cython.longlong], 1)
LONG_NULL = cython.declare(cython.const[cython.longlong], 2)  # a length field stands behind its NULLs

QUOTE = cython.declare(cython.const[cython.int], 0x22)
BACKSLASH = cython.declare(cython.const[cython.int], 0x5C)
OPEN_BRACE = cython.declare(cython.const[cython.int], 0x7B)
OPEN_BRACKET = cython.declare(cython.const[cython.int], 0x5B)
COMMA = cython.declare(cython.const[cython.int], 0x2C)
COLON = cython.declare(cython.const[cython.int], 0x3A)


@cython.cclass
class JsonText:
    """Writes JSON text from captured bytes into ``out``, which has GROWTH bytes for each of them."""

    buf: cython.const[cython.uchar][::1]
    source: object  # the same bytes, for Python
    out: cython.uchar[::1]
    out_n: cython.Py_ssize_t

    def __init__(self, buf, out):
        """Bind memoryviews of the captured bytes and of the output."""
        self.buf = buf
        self.source = buf
        self.out = out
        self.out_n = 0

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(self, c: cython.int) -> cython.void:
        self.out[self.out_n] = cython.cast(cython.uchar, c)
        self.out_n += 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _puts(self, text: cython.p_char, n: cython.int) -> cython.void:
        """ASCII text of ``n`` bytes."""
        i: cython.int
        for i in range(n):
            self._put(text[i])

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """``n`` captured bytes as they are."""
        i: cython.Py_ssize_t
        for i in range(at, at + n):
            self._put(self.buf[i])

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex_digit(self, c: cython.int) -> cython.void:
        self._put(48 + c if c < 10 else 87 + c)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        i: cython.Py_ssize_t
        for i in range(at, at + n):
            self._hex_digit(self.buf[i] >> 4)
            self._hex_digit(self.buf[i] & 15)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex_object(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """``{"hex":"..."}``: bytes that are no text."""
        self._puts(b'{"hex":"', 8)
        self._hex(at, n)
        self._puts(b'"}', 2)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _escaped(self, c: cython.int) -> cython.void:
        """A quote, a backslash or a control character, escaped as json.dumps does."""
        self._put(BACKSLASH)
        if c == QUOTE or c == BACKSLASH:
            self._put(c)
        elif c == 8:
            self._put(0x62)
        elif c == 9:
            self._put(0x74)
        elif c == 10:
            self._put(0x6E)
        elif c == 12:
            self._put(0x66)
        elif c == 13:
            self._put(0x72)
        else:
            self._puts(b"u00", 3)
            self._hex_digit(c >> 4)
            self._hex_digit(c & 15)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _utf8_size(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """How many bytes the character at ``at``, not of ASCII, takes; 0 if there is none (RFC 3629: no overlong, no
        surrogate)."""
        c: cython.int = self.buf[at]
        d: cython.int
        size: cython.int
        i: cython.int
        if 0xC2 <= c <= 0xDF:
            size = 2
        elif 0xE0 <= c <= 0xEF:
            size = 3
        elif 0xF0 <= c <= 0xF4:
            size = 4
        else:
            return 0
        if size > end - at:
            return 0
        d = self.buf[at + 1]
        if (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F) or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
            return 0
        for i in range(1, size):
            if self.buf[at + i] & 0xC0 != 0x80:
                return 0
        return size

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _string(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Write the bytes as a JSON string if they are UTF-8; else write nothing and return False."""
        mark: cython.Py_ssize_t = self.out_n
        end: cython.Py_ssize_t = at + n
        c: cython.int
        size: cython.int
        self._put(QUOTE)
        while at < end:
            c = self.buf[at]
            size = 1
            if c >= 0x80:
                size = self._utf8_size(at, end)
                if size == 0:
                    self.out_n = mark
                    return False
                self._copy(at, size)
            elif c < 0x20 or c == QUOTE or c == BACKSLASH:
                self._escaped(c)
            else:
                self._put(c)
            at += size
        self._put(QUOTE)
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _key(self, tag: cython.Py_ssize_t) -> cython.void:
        """The key of the tag whose length byte is at ``tag``."""
        n: cython.int = self.buf[tag]
        if not self._string(tag + 1, n):
            self._puts(b'"hex:', 5)
            self._hex(tag + 1, n)
            self._put(QUOTE)
        self._put(COLON)

    # -- scalars; they return whether the value was written as a string of its bytes

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scalar(self, kind: cython.int, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        real: cython.bint
        if kind == NULL:
            self._puts(b"null", 4)
        elif kind == BOOL:
            self._bool(self.buf[at] if n == 1 else -1, at, n)
        elif kind == INT and self._integer(at, n):
            pass
        elif kind == REAL and n <= MAX_REAL_BYTES:
            with cython.gil:
                real = self._real(at, n)
            return False if real else self._text_or_hex(at, n)
        else:
            return self._text_or_hex(at, n)
        return False

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _text_or_hex(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        if self._string(at, n):
            return True
        self._hex_object(at, n)
        return False

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _bool(self, c: cython.int, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        if c == 1 or c == 0x31:
            self._puts(b"true", 4)
        elif c == 0 or c == 0x30:
            self._puts(b"false", 5)
        else:
            self._hex_object(at, n)

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _integer(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Write decimal digits as a number of any size, without leading zeros; False for anything else."""
        p: cython.Py_ssize_t = at
        end: cython.Py_ssize_t = at + n
        first: cython.Py_ssize_t
        if p < end and (self.buf[p] == 0x2D or self.buf[p] == 0x2B):
            p += 1
        first = p
        while p < end and 48 <= self.buf[p] <= 57:
            p += 1
        if first == end or p < end:
            return False
        while first < end - 1 and self.buf[first] == 48:
            first += 1
        if self.buf[at] == 0x2D and self.buf[first] != 48:
            self._put(0x2D)
        self._copy(first, end - first)
        return True

    @cython.final
    @cython.cfunc
    def _real(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Write a finite float: its text if that is JSON, else as Python spells it. False for other text."""
        text = str(self.source[at : at + n], "latin-1")
        if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
            return False
        if not _JSON_FLOAT.fullmatch(text):
            text = repr(float(text))
        for c in text.encode():
            self._put(c)
        return True


_FLOAT = re.compile(r"[+-]?([0-9]+\.?|[0-9]*\.[0-9]+)([eE][+-]?[0-9]+)?")
_JSON_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@cython.final
@cython.cclass
class Trees(JsonText):
    """Reads a batch: writes texts to ``out`` and the values of FIELDS to ``words``. See Texts for where they are."""

    keep: cython.Py_ssize_t
    words: cython.uchar[::1]
    word_ends: cython.int[::1]
    word_n: cython.Py_ssize_t
    places: cython.int[::1]
    row: cython.Py_ssize_t
    row_count: cython.Py_ssize_t
    names: cython.const[cython.uchar][::1]
    names_at: cython.const[cython.int][::1]
    pos: cython.Py_ssize_t[::1]
    ends: cython.Py_ssize_t[::1]
    about: cython.Py_ssize_t[::1]
    check_ends: cython.Py_ssize_t[::1]
    tags: cython.Py_ssize_t[::1]
    last: dict
    has_duplicates: cython.bint
    kind: cython.int
    at: cython.Py_ssize_t
    n: cython.Py_ssize_t
    tag: cython.Py_ssize_t
    seen: cython.int
    met_long_null: cython.bint
    m_start: cython.Py_ssize_t
    m_long_null: cython.bint
    msg_wire: cython.Py_ssize_t

    def __init__(self, buf, out, words, word_ends, places, row_count, keep):
        """Bind memoryviews of the captured bytes and of the outputs."""
        JsonText.__init__(self, buf, out)
        self.keep = keep
        self.words = words
        self.word_ends = word_ends
        self.word_n = 0
        self.places = places
        self.row = 0
        self.row_count = row_count
        self.names = memoryview(_NAMES)
        self.names_at = memoryview(_NAMES_AT)
        stack = np.zeros((5, MAX_DEPTH + 2), np.intp)
        self.pos, self.ends, self.about, self.check_ends, self.tags = (memoryview(x) for x in stack)
        self.last = {}
        self.has_duplicates = False
        self.kind = 0
        self.at = 0
        self.n = 0
        self.tag = 0
        self.seen = 0
        self.met_long_null = False
        self.m_start = 0
        self.m_long_null = False
        self.msg_wire = -1

    # -- items

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _head(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint) -> cython.int:
        """Read the head of the item at ``p`` into ``kind``, ``at`` and ``n``. A length may not pass its container."""
        b: cython.int
        code: cython.int
        i: cython.int
        size: cython.int
        n: cython.Py_ssize_t = 0
        if p >= end:
            return MALFORMED
        b = self.buf[p]
        p += 1
        self.kind = b & 0x0F
        code = b & 0x30
        size = 1 if code == 0x20 else (2 if code == 0x10 else 4)
        if self.kind == NULL:
            # NULL is one byte whatever its length code; a writer by the document may have put a length behind it.
            if code != 0x10 and code != 0x20:
                size = 0
            else:
                self.met_long_null = True
                size = size if long_null else 0
        elif self.kind == 0 or self.kind > UTF8 or code == 0x30:
            return MALFORMED
        if size > end - p:
            return MALFORMED
        for i in range(size):
            n = n * 256 + self.buf[p + i]
        p += size
        if n > (0 if self.kind == NULL else end - p):
            return MALFORMED
        self.seen |= 1 << self.kind
        self.at = p
        self.n = n
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check(
        self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint, depth: cython.int
    ) -> cython.int:
        """Whether pairs fill ``p`` to ``end``, items inside them included; ``depth`` levels are around them."""
        sp: cython.int = 0
        result: cython.int
        is_hash: cython.bint = True
        if depth + 1 > MAX_DEPTH:
            return TOO_LONG
        # An end is kept shifted by one bit, which says whether the container is a hash.
        self.check_ends[0] = 2 * end + 1
        while True:
            if p == end:
                sp -= 1
                if sp < 0:
                    return DONE
                is_hash = self.check_ends[sp] % 2 == 1
                end = self.check_ends[sp] // 2
                continue
            if is_hash:
                p = p + 1 + self.buf[p]
            result = self._head(p, end, long_null)
            if result != DONE:
                return result
            p = self.at
            if self.kind == HASH or self.kind == LIST:
                sp += 1
                if depth + sp + 1 > MAX_DEPTH:
                    return TOO_LONG
                is_hash = self.kind == HASH
                end = self.at + self.n
                self.check_ends[sp] = 2 * end + (1 if is_hash else 0)
            else:
                p += self.n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _reading(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, depth: cython.int) -> cython.int:
        """The reading of what follows a magic, in the order of section 11: m_start and m_long_null say which."""
        explicit: cython.Py_ssize_t = -1
        worst: cython.int = MALFORMED
        result: cython.int
        i: cython.int
        b: cython.int
        seen: cython.int = self.seen
        self.met_long_null = False
        if p < end:
            b = self.buf[p]
            if (b == 0x22 or b == 0x12 or b == 0x02) and self._head(p, end, False) == DONE and self.at + self.n == end:
                explicit = self.at
        for i in range(4):
            if i == 2 and not self.met_long_null:
                break
            self.m_start = p if i % 2 else explicit
            self.m_long_null = i >= 2
            if self.m_start < 0:
                continue
            self.seen = seen
            result = self._check(self.m_start, end, self.m_long_null, depth)
            if result == DONE:
                return DONE
            if result == TOO_LONG:
                worst = TOO_LONG
        return worst

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_magic(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        return (
            n >= 4
            and self.buf[at] == 0x53
            and self.buf[at + 1] == 0x6B
            and self.buf[at + 2] == 0x61
            and self.buf[at + 3] == 0x6E
        )

    # -- duplicate tags

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _same(self, a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.bint:
        """Whether the tags with their length bytes at ``a`` and ``b`` are the same."""
        i: cython.int
        for i in range(self.buf[a] + 1):  # noqa: SIM110 - a generator is no C loop
            if self.buf[a + i] != self.buf[b + i]:
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _look_for_duplicates(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint) -> cython.int:
        """Search a hash for duplicate tags: a few tags are compared here; many, and duplicates, are left to Python."""
        start: cython.Py_ssize_t = p
        count: cython.int = 0
        k: cython.int
        result: cython.int = DONE
        found: cython.bint = False
        while p < end and count < SMALL_HASH and not found:
            for k in range(count):
                found = found or self._same(p, self.tags[k])
            self.tags[count] = p
            count += 1
            self._head(p + 1 + self.buf[p], end, long_null)
            p = self.at + self.n
        if found or p < end:
            with cython.gil:
                result = self._note_duplicates(start, end, long_null)
        return result

    @cython.cfunc
    def _note_duplicates(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t, long_null: cython.bint) -> cython.int:
        """Fill ``last``: of each duplicated tag the offset of its last copy, -1 for a copy that is not the first."""
        first: dict = {}
        count: cython.Py_ssize_t = 0
        while p < end:
            count += 1
            if count > MAX_TAGS:
                return TOO_LONG
            at: cython.Py_ssize_t = first.setdefault(self.source[p + 1 : p + 1 + self.buf[p]].tobytes(), p)
            if at != p:
                self.has_duplicates = True
                self.last[at] = p
                self.last[p] = -1
            self._head(p + 1 + self.buf[p], end, long_null)
            p = self.at + self.n
        return DONE

    @cython.cfunc
    def _last(self, tag: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self.last.get(tag, tag)

    # -- writing a message

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _field(self, tag: cython.Py_ssize_t) -> cython.int:
        """The field that a tag names, -1 for none."""
        f: cython.int
        i: cython.int
        at: cython.int
        n: cython.int = self.buf[tag]
        for f in range(FIELD_COUNT):
            at = self.names_at[f]
            if self.names_at[f + 1] - at != n:
                continue
            for i in range(n):
                if self.buf[tag + 1 + i] != self.names[at + i]:
                    break
            else:
                return f
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(
        self, field: cython.int, text: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.void:
        """Keep ``n`` bytes of ``text`` as the value of a field."""
        i: cython.Py_ssize_t
        to: cython.Py_ssize_t = self.word_ends[self.word_n]
        for i in range(n):
            self.words[to + i] = text[at + i]
        self.places[field * self.row_count + self.row] = cython.cast(cython.int, self.word_n)
        self.word_n += 1
        self.word_ends[self.word_n] = cython.cast(cython.int, to + n)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_json(self, field: cython.int, value: cython.Py_ssize_t) -> cython.void:
        """Keep what was written from ``value`` on; a msg that is longer than wanted is null in the text."""
        n: cython.Py_ssize_t = self.out_n - value
        self._keep(field, self.out, value, n)
        if field == F_MSG and n > self.keep:
            self.out_n = value
            self._puts(b"null", 4)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _open(
        self,
        sp: cython.int,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        is_hash: cython.bint,
        long_null: cython.bint,
    ) -> cython.int:
        """Put a container on the stack and write its bracket."""
        self.pos[sp] = start
        self.ends[sp] = end
        self.about[sp] = (IS_HASH if is_hash else 0) | (LONG_NULL if long_null else 0)
        self._put(OPEN_BRACE if is_hash else OPEN_BRACKET)
        return self._look_for_duplicates(start, end, long_null) if is_hash else DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _next_item(self, sp: cython.int) -> cython.bint:
        """Move to the next item of the container: ``kind``, ``at``, ``n``, in a hash ``tag``. False: it is left out.

        Of duplicate tags the first gets the value of the last; the others are left out.
        """
        p: cython.Py_ssize_t = self.pos[sp]
        end: cython.Py_ssize_t = self.ends[sp]
        last: cython.Py_ssize_t
        is_hash: cython.bint = self.about[sp] & IS_HASH != 0
        long_null: cython.bint = self.about[sp] & LONG_NULL != 0
        if is_hash:
            self.tag = p
            p = p + 1 + self.buf[p]
        self._head(p, end, long_null)
        self.pos[sp] = self.at + self.n
        if is_hash and self.has_duplicates:
            with cython.gil:
                last = self._last(self.tag)
            if last < 0:
                return False
            self._head(last + 1 + self.buf[last], end, long_null)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Write the object of a message; the fields of its own hash are kept."""
        sp: cython.int = 0
        field: cython.int = -1
        kind: cython.int
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        value: cython.Py_ssize_t = 0
        is_hash: cython.bint
        result: cython.int = self._reading(start, end, 0)
        if result == DONE:
            result = self._open(0, self.m_start, end, True, self.m_long_null)
        while result == DONE:
            is_hash = self.about[sp] & IS_HASH != 0
            if self.pos[sp] >= self.ends[sp]:
                self._put(OPEN_BRACE + 2 if is_hash else OPEN_BRACKET + 2)
                if sp == 0:
                    break
                sp -= 1
                if sp == 0 and field >= 0:
                    self._keep_json(field, value)
                continue
            if not self._next_item(sp):
                continue
            kind, at, n = self.kind, self.at, self.n
            if self.out[self.out_n - 1] != OPEN_BRACE and self.out[self.out_n - 1] != OPEN_BRACKET:
                self._put(COMMA)
            if is_hash:
                self._key(self.tag)
            if sp == 0:
                field = self._field(self.tag)
                value = self.out_n
                if field == F_MSG:
                    self.msg_wire = n
            if kind == HASH or kind == LIST:
                sp += 1
                result = self._open(sp, at, at + n, kind == HASH, self.about[sp - 1] & LONG_NULL != 0)
                continue
            if (kind == DATA or kind == UTF8) and self._has_magic(at, n):
                result = self._reading(at + 4, at + n, sp + 1)
                if result == DONE:
                    sp += 1
                    result = self._open(sp, self.m_start, at + n, True, self.m_long_null)
                    continue
                if result == TOO_LONG:
                    break
                result = DONE  # no message, so it is text
            self._value(kind, at, n, field if sp == 0 else -1)
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _value(self, kind: cython.int, at: cython.Py_ssize_t, n: cython.Py_ssize_t, field: cython.int) -> cython.void:
        """Write a scalar, and keep it if it is a field: text as it is, null as no value but of msg and stats."""
        value: cython.Py_ssize_t = self.out_n
        is_text: cython.bint = self._scalar(kind, at, n)
        if field < 0 or (kind == NULL and field != F_MSG and field != F_STATS):
            return
        if is_text and field != F_MSG:
            self._keep(field, self.buf, at, n)
        else:
            self._keep_json(field, value)

    def run(
        self,
        start: cython.const[cython.longlong][::1],
        length: cython.const[cython.longlong][::1],
        flaw: cython.uchar[::1],
        text_ends: cython.int[::1],
        msg_wire: cython.longlong[::1],
    ):
        """Read the rows whose length is not negative."""
        mark: cython.Py_ssize_t
        word_mark: cython.Py_ssize_t
        result: cython.int
        f: cython.int
        row: cython.Py_ssize_t
        with cython.nogil:
            for row in range(self.row_count):
                mark = self.out_n
                word_mark = self.word_n
                self.row = row
                self.msg_wire = -1
                if length[row] >= 0:
                    result = self._message(start[row], start[row] + length[row])
                    if result != DONE:
                        flaw[row] = cython.cast(cython.uchar, result)
                        self.out_n = mark
                        self.word_n = word_mark
                        self.msg_wire = -1
                        for f in range(FIELD_COUNT):
                            self.places[f * self.row_count + row] = -1
                    if self.has_duplicates:
                        with cython.gil:
                            self.last.clear()
                        self.has_duplicates = False
                text_ends[row + 1] = cython.cast(cython.int, self.out_n)
                msg_wire[row] = self.msg_wire

    def kinds(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> int:
        """A bit per item type in the message whose magic is at ``start``; -1 if it is none."""
        self.seen = 0
        if not self._has_magic(start, end - start) or self._reading(start + 4, end, 0) != DONE:
            return -1
        return self.seen


_NAMES = np.frombuffer("".join(FIELDS).encode(), np.uint8)
_NAMES_AT = np.cumsum([0, *map(len, FIELDS)], dtype=np.int32)
_EMPTY = np.zeros(1, np.uint8)
Places = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Texts:
    """What was read of n messages.

    Text r is ``out`` from ``ends[r]`` to ``ends[r + 1]``, empty where ``flaw`` (uint8) is set or none was asked for.
    Value k of a field is ``words`` from ``word_ends[k]`` to ``word_ends[k + 1]``, and ``places[f, r]`` the k of field f
    of FIELDS in row r, -1 for none: strings as they are, all else as JSON, and so is ``msg``. ``msg_wire`` (int64) is
    how many bytes the item of ``msg`` has, -1 without one.
    """

    out: NDArray[np.uint8]
    ends: NDArray[np.int32]
    flaw: NDArray[np.uint8]
    words: NDArray[np.uint8]
    word_ends: NDArray[np.int32]
    places: NDArray[np.int32]
    msg_wire: NDArray[np.int64]


def read(buffer: NDArray[np.uint8], spans: Places, keep: int | None = None) -> Texts:
    """The pairs of messages, (starts, lengths) behind their magic, -1 for no message.

    A ``msg`` of more than ``keep`` bytes is null in the text.
    """
    start, length = (np.ascontiguousarray(x) for x in spans)
    n = len(start)
    room = GROWTH * int(np.maximum(length, 0).sum()) + 2 * n + 1  # never touched where it is not needed
    out, words = np.empty(room, np.uint8), np.empty(room, np.uint8)
    places = np.full((FIELD_COUNT, n), -1, np.int32)
    word_ends, ends = np.zeros(FIELD_COUNT * n + 1, np.int32), np.zeros(n + 1, np.int32)
    flaw, msg_wire = np.zeros(n, np.uint8), np.empty(n, np.int64)
    trees = Trees(
        memoryview(buffer if len(buffer) else _EMPTY), memoryview(out), memoryview(words), memoryview(word_ends),
        memoryview(places.reshape(-1)), n, room if keep is None else keep,
    )  # fmt: skip
    trees.run(*map(memoryview, (start, length, flaw, ends, msg_wire)))
    return Texts(out, ends, flaw, words, word_ends, places, msg_wire)


def text(pairs: bytes) -> str | None:
    """The JSON text of the pairs of one message (what follows the magic), None if they do not decode.

    >>> text(bytes.fromhex("0474797065 21 08 6765746c6e616d65"))
    '{"type":"getlname"}'
    """
    found = read(np.frombuffer(pairs, np.uint8), (np.zeros(1, np.int64), np.full(1, len(pairs), np.int64)))
    return None if found.flaw[0] else found.out[: found.ends[1]].tobytes().decode()


def has_typed_items(message: bytes) -> bool:
    """Whether a message (magic and all) holds an item of the types 5 to 8, which the first generation did not have."""
    room, none = np.empty(1, np.uint8), np.zeros(1, np.int32)
    buffer = np.frombuffer(message or b"\0", np.uint8)
    kinds = Trees(*map(memoryview, (buffer, room, room, none, none)), 0, 0).kinds(0, len(message))
    return kinds >= 0 and kinds >> BOOL != 0


Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]


def encode(value: dict[str, Value], typed: bool = False) -> bytes:
    """The pairs of a hash, with the shortest lengths: what stands behind the magic.

    Untyped, every scalar is text in a DATA item, as the first generation wrote it; ``typed`` writes UTF8, INT, REAL
    and BOOL (one digit). Bytes are DATA, None is NULL.

    >>> encode({"type": "getlname"}).hex(" ")
    '04 74 79 70 65 21 08 67 65 74 6c 6e 61 6d 65'
    """
    out = b""
    for key, item in value.items():
        tag = key.encode()
        out += bytes([len(tag)]) + tag + _item(item, typed)
    return out


def message(value: dict[str, Value], typed: bool = False) -> bytes:
    """A whole message: the magic and the pairs; what stands in ``msg`` or in a body."""
    return MAGIC + encode(value, typed)


def _item(value: Value, typed: bool) -> bytes:
    if value is None:
        return bytes([NULL])
    kind, content = _content(value, typed)
    for code, size in ((0x20, 1), (0x10, 2)):
        if len(content) < 1 << 8 * size:
            return bytes([kind | code]) + len(content).to_bytes(size, "big") + content
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def _content(value: Value, typed: bool) -> tuple[int, bytes]:
    if isinstance(value, bytes):
        return DATA, value
    if isinstance(value, dict):
        return HASH, encode(value, typed)
    if isinstance(value, list):
        return LIST, b"".join(_item(x, typed) for x in value)
    if not typed:
        return DATA, str(value).encode()
    if isinstance(value, bool):
        return BOOL, b"1" if value else b"0"
    if isinstance(value, int):
        return INT, str(value).encode()
    if isinstance(value, float):
        return REAL, repr(value).encode()
    return UTF8, str(value).encode()
