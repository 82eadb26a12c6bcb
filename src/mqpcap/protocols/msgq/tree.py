# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Typed trees (msgq) and JSON headers: bytes to JSON text and the fields a broker routes by.

Fed by the msgq layer with spans of whole batches; promises for each message its JSON text and where the values
of its routing keys are, or a flaw. It never raises for bytes, and takes time and memory linear in them.

Theory of operation. A message is first *checked* in the readings that section 11 of the protocol notes lists
(an explicit HASH item after the magic, plain pairs, and both again with a length field behind NULL); the check
does not look into strings, so a string that holds a message of its own is checked only once, when it is written.
Then the reading that fits is *written*: one loop over a stack of frames, embedded messages among them, no
recursion. Depth is that of hashes, lists and embedded messages together. Duplicate tags: a walk over a hash's tags
when it is entered finds them; the value of the last stands at the place of the first, as in a Python dict.

What does not fit in the output or in the scratch space stops the batch at that row; the caller gives more room
and goes on. The same file runs uncompiled; memoryviews are passed in so that elements are plain integers.
"""

import math
import random
from dataclasses import dataclass
from functools import cache

import cython
import numpy as np
from numpy.typing import NDArray

MAGIC = b"Skan"
MAX_DEPTH = cython.declare(cython.const[cython.int], 500)  # hashes, lists and messages; the Python peers read about 497
MAX_TAGS = cython.declare(cython.const[cython.longlong], 1_048_576)  # pairs of one hash
MAX_SCRATCH_WORDS = cython.declare(cython.const[cython.longlong], 16_777_216)  # for finding duplicate tags
MAX_REAL_BYTES = cython.declare(cython.const[cython.int], 400)  # a longer REAL stays a string
LONG_COPY = cython.declare(cython.const[cython.int], 96)  # from here on copying by slices is faster
SMALL_HASH = cython.declare(cython.const[cython.int], 12)  # so many tags are compared pair by pair

# Item types.
DATA = cython.declare(cython.const[cython.int], 1)
HASH = cython.declare(cython.const[cython.int], 2)
LIST = cython.declare(cython.const[cython.int], 3)
NULL = cython.declare(cython.const[cython.int], 4)
BOOL = cython.declare(cython.const[cython.int], 5)
INT = cython.declare(cython.const[cython.int], 6)
REAL = cython.declare(cython.const[cython.int], 7)
UTF8 = cython.declare(cython.const[cython.int], 8)

# Results; WRONG and LONG are flaws of the row.
DONE = cython.declare(cython.const[cython.int], 0)
WRONG = cython.declare(cython.const[cython.int], 2)
LONG = cython.declare(cython.const[cython.int], 3)
FULL = cython.declare(cython.const[cython.int], 9)  # no room: the caller makes some

# Fields, in the order of FIELDS.
F_TYPE = cython.declare(cython.const[cython.int], 0)
F_SUBTYPE = cython.declare(cython.const[cython.int], 9)
F_LNAME = cython.declare(cython.const[cython.int], 8)
F_MSG = cython.declare(cython.const[cython.int], 10)
F_STATS = cython.declare(cython.const[cython.int], 11)
F_SYBTYPE = cython.declare(cython.const[cython.int], 12)
FIELDS = (
    "type", "from", "to", "group", "instance", "seq", "repl", "reply", "lname", "subtype", "msg", "stats", "sybtype",
)  # fmt: skip
FIELD_COUNT = cython.declare(cython.const[cython.int], 13)
WANT_HEADER = cython.declare(cython.const[cython.int], 0x1BFF)  # all but msg
WANT_FLAT = cython.declare(cython.const[cython.int], 0x1FFF)
WANT_LNAME = cython.declare(cython.const[cython.int], 0x100)
_AT = [sum(map(len, FIELDS[:i])) for i in range(FIELD_COUNT + 1)]

# Words of a frame on the stack.
W_POS = cython.declare(cython.const[cython.int], 0)
W_END = cython.declare(cython.const[cython.int], 1)
W_KIND = cython.declare(cython.const[cython.int], 2)
W_LONG_NULL = cython.declare(cython.const[cython.int], 3)
W_COUNT = cython.declare(cython.const[cython.int], 4)
W_TABLE = cython.declare(cython.const[cython.int], 5)
W_SLOTS = cython.declare(cython.const[cython.int], 6)
W_FIELD = cython.declare(cython.const[cython.int], 7)
W_VALUE = cython.declare(cython.const[cython.int], 8)
W_SCRATCH = cython.declare(cython.const[cython.int], 9)
FRAME_WORDS = cython.declare(cython.const[cython.int], 10)

# How a JSON string is written.
CHECK_ONLY = cython.declare(cython.const[cython.int], 0)
AS_JSON = cython.declare(cython.const[cython.int], 1)
AS_TEXT = cython.declare(cython.const[cython.int], 2)

HASH_PRIME = cython.declare(cython.const[cython.longlong], 2147483647)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
def _copied(
    source: cython.uchar[::1], at: cython.longlong, dest: cython.uchar[::1], to: cython.longlong, n: cython.longlong
) -> cython.void:
    """Copy ``n`` bytes whose bounds the caller has checked; apart, so that C sees that nothing else moves."""
    i: cython.longlong
    for i in range(n):
        dest[to + i] = source[at + i]


@cython.final
@cython.cclass
class Trees:
    """The reader of a batch: holds the buffers, the stacks and where the fields of the current row are."""

    buf: cython.uchar[::1]
    out: cython.uchar[::1]
    stack: cython.longlong[::1]
    ends: cython.longlong[::1]
    scratch: cython.longlong[::1]
    names: cython.uchar[::1]
    names_at: cython.longlong[::1]
    f_start: cython.longlong[::1]
    f_len: cython.longlong[::1]
    out_n: cython.longlong
    room: cython.longlong
    size: cython.longlong
    scratch_n: cython.longlong
    scratch_room: cython.longlong
    base: cython.longlong
    out_full: cython.bint
    scratch_full: cython.bint
    kind: cython.int
    at: cython.longlong
    n: cython.longlong
    seen: cython.int
    long_null: cython.bint
    m_start: cython.longlong
    m_long_null: cython.bint
    msg_wire: cython.longlong
    pending: cython.int

    def __init__(self, buf, stack, ends, names, names_at, f_start, f_len, base: cython.longlong):
        """Bind the captured bytes and working space (memoryviews); ``base`` seeds the hash of tags."""
        self.buf = buf
        self.size = len(buf)
        self.stack = stack
        self.ends = ends
        self.names = names
        self.names_at = names_at
        self.f_start = f_start
        self.f_len = f_len
        self.base = base
        self.out_n = 0
        self.room = 0
        self.scratch_n = 0
        self.scratch_room = 0
        self.out_full = False
        self.scratch_full = False
        self.kind = 0
        self.at = 0
        self.n = 0
        self.seen = 0
        self.long_null = False
        self.m_start = 0
        self.m_long_null = False
        self.msg_wire = -1
        self.pending = 0

    def output(self, out):
        """Give the output room; what was written before must stand at its front."""
        self.out = out
        self.room = len(out)
        self.out_full = False

    def working(self, scratch):
        """Give room for finding duplicate tags."""
        self.scratch = scratch
        self.scratch_room = len(scratch)
        self.scratch_full = False

    def written(self) -> int:
        """How many bytes of the output are in use."""
        return self.out_n

    def wants_output(self) -> bool:
        """Whether the last stop was for want of output room."""
        return self.out_full

    def wants_scratch(self) -> bool:
        """Whether the last stop was for want of scratch."""
        return self.scratch_full

    # -- items

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _head(self, p: cython.longlong, end: cython.longlong, long_null: cython.bint) -> cython.int:
        """The item at ``p``: kind, and where its data is. Every length is checked against its container."""
        b: cython.int
        code: cython.int
        i: cython.int
        size: cython.int
        n: cython.longlong = 0
        if p >= end:
            return WRONG
        b = self.buf[p]
        p += 1
        self.kind = b & 0x0F
        code = b & 0x30
        if self.kind == NULL:
            # NULL is one byte whatever its length code; a writer by the document may have put a length behind it.
            size = 0
            if code != 0 and code != 0x30:
                self.long_null = True
                if long_null:
                    size = 1 if code == 0x20 else 2
            if size > end - p:
                return WRONG
            for i in range(size):
                if self.buf[p + i] != 0:
                    return WRONG
            self.at = p + size
            self.n = 0
            return DONE
        if self.kind == 0 or self.kind > UTF8 or code == 0x30:
            return WRONG
        size = 1 if code == 0x20 else (2 if code == 0x10 else 4)
        if size > end - p:
            return WRONG
        for i in range(size):
            n = n * 256 + self.buf[p + i]
        p += size
        if n > end - p:
            return WRONG
        self.seen |= 1 << self.kind
        self.at = p
        self.n = n
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check(self, p: cython.longlong, end: cython.longlong, long_null: cython.bint, depth: cython.int) -> cython.int:
        """Whether pairs fill ``p`` to ``end``, items inside them included; ``depth`` levels are around them."""
        sp: cython.int = 0
        result: cython.int
        is_hash: cython.bint = True
        if depth + 1 > MAX_DEPTH:
            return LONG
        # An end is kept shifted by one bit, which says whether the container is a hash.
        self.ends[0] = 2 * end + 1
        while True:
            if p == end:
                sp -= 1
                if sp < 0:
                    return DONE
                is_hash = self.ends[sp] % 2 == 1
                end = self.ends[sp] // 2
                continue
            if is_hash:
                p = p + 1 + self.buf[p]
                if p >= end:
                    return WRONG
            result = self._head(p, end, long_null)
            if result != DONE:
                return result
            p = self.at
            if self.kind == HASH or self.kind == LIST:
                sp += 1
                if depth + sp + 1 > MAX_DEPTH:
                    return LONG
                is_hash = self.kind == HASH
                end = self.at + self.n
                self.ends[sp] = 2 * end + (1 if is_hash else 0)
            else:
                p += self.n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _reading(self, p: cython.longlong, end: cython.longlong, depth: cython.int) -> cython.int:
        """The reading of what follows a magic, in the order of section 11: m_start and m_long_null say which."""
        explicit: cython.longlong = -1
        worst: cython.int = WRONG
        result: cython.int
        with_length: cython.int
        b: cython.int
        seen: cython.int = self.seen
        self.long_null = False
        if p < end:
            b = self.buf[p]
            if (b == 0x22 or b == 0x12 or b == 0x02) and self._head(p, end, False) == DONE and self.at + self.n == end:
                explicit = self.at
        for with_length in range(2):
            if with_length and not self.long_null:
                break
            self.m_long_null = with_length == 1
            if explicit >= 0:
                self.seen = seen
                result = self._check(explicit, end, self.m_long_null, depth)
                if result == DONE:
                    self.m_start = explicit
                    return DONE
                worst = LONG if result == LONG else worst
            self.seen = seen
            result = self._check(p, end, self.m_long_null, depth)
            if result == DONE:
                self.m_start = p
                return DONE
            worst = LONG if result == LONG else worst
        return worst

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_magic(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        return (
            n >= 4
            and self.buf[at] == 0x53
            and self.buf[at + 1] == 0x6B
            and self.buf[at + 2] == 0x61
            and self.buf[at + 3] == 0x6E
        )

    # -- output

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(self, c: cython.int) -> cython.void:
        if self.out_n >= self.room:
            self.out_full = True
            return
        self.out[self.out_n] = cython.cast(cython.uchar, c)
        self.out_n += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex_digit(self, c: cython.int) -> cython.void:
        self._put(48 + c if c < 10 else 87 + c)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy_long(self, at: cython.longlong, to: cython.longlong, n: cython.longlong) -> cython.void:
        # Apart: slices cost their function room on the stack that is cleared at every call.
        self.out[to : to + n] = self.buf[at : at + n]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.boundscheck(False)
    def _copy(self, at: cython.longlong, n: cython.longlong) -> cython.void:
        to: cython.longlong = self.out_n
        # The bounds are checked here, once for all bytes.
        if n > self.room - to or at < 0 or n > self.size - at:
            self.out_full = True
            return
        if n >= LONG_COPY:
            self._copy_long(at, to, n)
        else:
            _copied(self.buf, at, self.out, to, n)
        self.out_n = to + n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex(self, at: cython.longlong, n: cython.longlong) -> cython.void:
        i: cython.longlong
        if 2 * n > self.room - self.out_n:
            self.out_full = True
            return
        for i in range(n):
            self._hex_digit(self.buf[at + i] >> 4)
            self._hex_digit(self.buf[at + i] & 15)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hex_object(self, at: cython.longlong, n: cython.longlong) -> cython.void:
        """``{"hex":"..."}``: bytes that are no text."""
        self._put(0x7B)
        self._put(0x22)
        self._put(0x68)
        self._put(0x65)
        self._put(0x78)
        self._put(0x22)
        self._put(0x3A)
        self._put(0x22)
        self._hex(at, n)
        self._put(0x22)
        self._put(0x7D)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _escaped(self, c: cython.int) -> cython.void:
        """An ASCII character inside a JSON string, escaped as json.dumps does."""
        if c >= 0x20 and c != 0x22 and c != 0x5C:
            self._put(c)
            return
        self._put(0x5C)
        if c == 0x22 or c == 0x5C:
            self._put(c)
        elif c == 10:
            self._put(0x6E)
        elif c == 13:
            self._put(0x72)
        elif c == 9:
            self._put(0x74)
        elif c == 8:
            self._put(0x62)
        elif c == 12:
            self._put(0x66)
        else:
            self._put(0x75)
            self._put(0x30)
            self._put(0x30)
            self._hex_digit(c >> 4)
            self._hex_digit(c & 15)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _utf8_at(self, at: cython.longlong, end: cython.longlong) -> cython.int:
        """How many bytes the character at ``at`` takes, 0 if there is none (RFC 3629: no overlong, no surrogate)."""
        c: cython.int = self.buf[at]
        d: cython.int
        more: cython.int
        i: cython.int
        if c < 0x80:
            return 1
        if 0xC2 <= c <= 0xDF:
            more = 1
        elif 0xE0 <= c <= 0xEF:
            more = 2
        elif 0xF0 <= c <= 0xF4:
            more = 3
        else:
            return 0
        if at + more >= end:
            return 0
        d = self.buf[at + 1]
        if (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F) or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
            return 0
        for i in range(1, more + 1):
            if self.buf[at + i] & 0xC0 != 0x80:
                return 0
        return more + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _utf8(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        end: cython.longlong = at + n
        size: cython.int
        while at < end:
            if self.buf[at] < 0x80:
                at += 1
                continue
            size = self._utf8_at(at, end)
            if size == 0:
                return False
            at += size
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _string(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        """A JSON string of the bytes, if they are UTF-8; else nothing is written and the answer is no."""
        mark: cython.longlong = self.out_n
        end: cython.longlong = at + n
        run: cython.longlong
        c: cython.int
        size: cython.int
        self._put(0x22)
        while at < end:
            run = at
            c = 0
            while run < end:
                c = self.buf[run]
                if not 0x20 <= c < 0x80 or c == 0x22 or c == 0x5C:
                    break
                run += 1
            if run > at:
                self._copy(at, run - at)
                at = run
            elif c < 0x80:
                self._escaped(c)
                at += 1
            else:
                size = self._utf8_at(at, end)
                if size == 0:
                    self.out_n = mark
                    return False
                self._copy(at, size)
                at += size
            if self.out_full:
                return True
        self._put(0x22)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _key(self, at: cython.longlong) -> cython.void:
        """The key of the tag whose length byte is at ``at``."""
        n: cython.int = self.buf[at]
        if not self._string(at + 1, n):
            self._put(0x22)
            self._put(0x68)
            self._put(0x65)
            self._put(0x78)
            self._put(0x3A)
            self._hex(at + 1, n)
            self._put(0x22)
        self._put(0x3A)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _word(self, which: cython.int) -> cython.void:
        """null, true or false."""
        if which == 0:
            self._put(0x6E)
            self._put(0x75)
            self._put(0x6C)
            self._put(0x6C)
        elif which == 1:
            self._put(0x74)
            self._put(0x72)
            self._put(0x75)
            self._put(0x65)
        else:
            self._put(0x66)
            self._put(0x61)
            self._put(0x6C)
            self._put(0x73)
            self._put(0x65)

    # -- scalars; they answer whether the value was written as a plain string of its bytes

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _text_or_hex(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        if self._string(at, n):
            return True
        self._hex_object(at, n)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _integer(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        """Decimal digits as a number, without needless zeros; anything else as a string."""
        p: cython.longlong = at
        end: cython.longlong = at + n
        minus: cython.bint = False
        if p < end and (self.buf[p] == 0x2D or self.buf[p] == 0x2B):
            minus = self.buf[p] == 0x2D
            p += 1
        first: cython.longlong = p
        while p < end and 48 <= self.buf[p] <= 57:
            p += 1
        if first == end or p < end:
            return self._text_or_hex(at, n)
        while first < end - 1 and self.buf[first] == 48:
            first += 1
        if minus and self.buf[first] != 48:
            self._put(0x2D)
        self._copy(first, end - first)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _number_end(self, p: cython.longlong, end: cython.longlong) -> cython.longlong:
        """Where the JSON number at ``p`` ends, -1 if there is none."""
        if p < end and self.buf[p] == 0x2D:
            p += 1
        if p >= end or not 48 <= self.buf[p] <= 57:
            return -1
        if self.buf[p] == 48:
            p += 1
        else:
            while p < end and 48 <= self.buf[p] <= 57:
                p += 1
        if p < end and self.buf[p] == 0x2E:
            p += 1
            if p >= end or not 48 <= self.buf[p] <= 57:
                return -1
            while p < end and 48 <= self.buf[p] <= 57:
                p += 1
        if p < end and (self.buf[p] == 0x65 or self.buf[p] == 0x45):
            p += 1
            if p < end and (self.buf[p] == 0x2B or self.buf[p] == 0x2D):
                p += 1
            if p >= end or not 48 <= self.buf[p] <= 57:
                return -1
            while p < end and 48 <= self.buf[p] <= 57:
                p += 1
        return p

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _real(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        """The text of a float as a number if it is finite; JSON's own spelling is kept, ``.5`` becomes ``0.5``."""
        i: cython.longlong
        c: cython.int
        as_text: cython.bint
        if n == 0 or n > MAX_REAL_BYTES:
            return self._text_or_hex(at, n)
        for i in range(at, at + n):
            c = self.buf[i]
            if not (48 <= c <= 57 or c == 0x2B or c == 0x2D or c == 0x2E or c == 0x65 or c == 0x45):
                return self._text_or_hex(at, n)
        # So short and with an exponent below 100 it cannot be too large for a double.
        if n <= 100 and self._number_end(at, at + n) == at + n and not self._may_overflow(at, n):
            self._copy(at, n)
            return False
        with cython.gil:
            as_text = self._odd_real(at, n)
        return as_text

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _may_overflow(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        """Whether the exponent of a JSON number has three digits or more."""
        i: cython.longlong
        digits: cython.int = -1
        for i in range(at, at + n):
            if self.buf[i] == 0x65 or self.buf[i] == 0x45:
                digits = 0
            elif digits >= 0 and 48 <= self.buf[i] <= 57:
                digits += 1
        return digits >= 3

    @cython.cfunc
    def _odd_real(self, at: cython.longlong, n: cython.longlong) -> cython.bint:
        """The rare spellings, as Python reads them."""
        text: str = "".join([chr(self.buf[i]) for i in range(at, at + n)])
        try:
            value = float(text)
        except ValueError:
            value = math.inf
        if not math.isfinite(value):
            return self._text_or_hex(at, n)
        if self._number_end(at, at + n) == at + n:
            self._copy(at, n)
            return False
        for c in repr(value).encode():
            self._put(c)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scalar(self, kind: cython.int, at: cython.longlong, n: cython.longlong) -> cython.bint:
        c: cython.int
        if kind == NULL:
            self._word(0)
            return False
        if kind == INT:
            return self._integer(at, n)
        if kind == REAL:
            return self._real(at, n)
        if kind == BOOL:
            c = self.buf[at] if n == 1 else -1
            if c == 1 or c == 0x31:
                self._word(1)
            elif c == 0 or c == 0x30:
                self._word(2)
            else:
                self._hex_object(at, n)
            return False
        return self._text_or_hex(at, n)

    # -- duplicate tags

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _same(self, a: cython.longlong, b: cython.longlong) -> cython.bint:
        """Whether the tags with their length bytes at ``a`` and ``b`` are the same."""
        i: cython.int
        n: cython.int = self.buf[a]
        if self.buf[b] != n:
            return False
        for i in range(1, n + 1):  # noqa: SIM110 - a generator is no C loop
            if self.buf[a + i] != self.buf[b + i]:
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _slot(self, table: cython.longlong, slots: cython.longlong, tag: cython.longlong) -> cython.longlong:
        """The slot of a tag in a table of (first, last) positions: its own or an empty one."""
        h: cython.longlong = self.base
        i: cython.int
        for i in range(self.buf[tag] + 1):
            h = (h * self.base + self.buf[tag + i] + 1) % HASH_PRIME
        h = h % slots
        while self.scratch[table + 2 * h] >= 0 and not self._same(self.scratch[table + 2 * h], tag):
            h = h + 1 if h + 1 < slots else 0
        return table + 2 * h

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _duplicates(self, frame: cython.Py_ssize_t) -> cython.int:
        """Look for duplicate tags in the hash of a frame; if there are any, leave it a table of them."""
        p: cython.longlong = self.stack[frame + W_POS]
        end: cython.longlong = self.stack[frame + W_END]
        first: cython.longlong = self.scratch_n
        count: cython.longlong = 0
        table: cython.longlong
        slots: cython.longlong
        i: cython.longlong
        k: cython.longlong
        found: cython.bint = False
        while p < end:
            if count >= MAX_TAGS or first + count >= MAX_SCRATCH_WORDS:
                return LONG
            if first + count >= self.scratch_room:
                self.scratch_full = True
                return FULL
            self.scratch[first + count] = p
            count += 1
            self._head(p + 1 + self.buf[p], end, self.stack[frame + W_LONG_NULL] != 0)
            p = self.at + self.n
        if count <= SMALL_HASH:
            for i in range(1, count):
                p = self.scratch[first + i]
                for k in range(i):
                    if self.buf[p] == self.buf[self.scratch[first + k]]:
                        found = found or self._same(p, self.scratch[first + k])
            if not found:
                return DONE
            found = False
        slots = 2 * count
        table = first + count
        if table + 2 * slots >= MAX_SCRATCH_WORDS:
            return LONG
        if table + 2 * slots >= self.scratch_room:
            self.scratch_full = True
            return FULL
        for i in range(2 * slots):
            self.scratch[table + i] = -1
        for i in range(count):
            k = self._slot(table, slots, self.scratch[first + i])
            if self.scratch[k] < 0:
                self.scratch[k] = self.scratch[first + i]
            else:
                found = True
            self.scratch[k + 1] = self.scratch[first + i]
        if found:
            self.stack[frame + W_TABLE] = table
            self.stack[frame + W_SLOTS] = slots
            self.scratch_n = table + 2 * slots
        return DONE

    # -- writing a message

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _field(self, at: cython.longlong, n: cython.longlong, want: cython.int) -> cython.int:
        """The field called so, of those wanted; -1 if it is none of them."""
        f: cython.int
        i: cython.longlong
        start: cython.longlong
        for f in range(FIELD_COUNT):
            start = self.names_at[f]
            if self.buf[at] != self.names[start] or self.names_at[f + 1] - start != n or not want >> f & 1:
                continue
            for i in range(1, n):
                if self.buf[at + i] != self.names[start + i]:
                    break
            else:
                return f
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _push(
        self,
        sp: cython.int,
        start: cython.longlong,
        end: cython.longlong,
        kind: cython.int,
        long_null: cython.bint,
        field: cython.int,
    ) -> cython.int:
        """Open a container as frame ``sp`` and write its bracket."""
        frame: cython.Py_ssize_t = sp * FRAME_WORDS
        self.stack[frame + W_POS] = start
        self.stack[frame + W_END] = end
        self.stack[frame + W_KIND] = kind
        self.stack[frame + W_LONG_NULL] = 1 if long_null else 0
        self.stack[frame + W_COUNT] = 0
        self.stack[frame + W_TABLE] = -1
        self.stack[frame + W_SLOTS] = 0
        self.stack[frame + W_FIELD] = field
        self.stack[frame + W_VALUE] = self.out_n
        self.stack[frame + W_SCRATCH] = self.scratch_n
        self._put(0x7B if kind == HASH else 0x5B)
        return self._duplicates(frame) if kind == HASH else DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(self, field: cython.int, start: cython.longlong, length: cython.longlong) -> cython.void:
        self.f_start[field] = start
        self.f_len[field] = length

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write(self, end: cython.longlong, want: cython.int) -> cython.int:
        """The JSON object of the message that ``_reading`` found to reach ``end``; keeps the fields wanted of its top.

        A field's place is one in the captured bytes, or -1 - p for one in the output.
        """
        sp: cython.int = 0
        frame: cython.Py_ssize_t = 0
        tag: cython.longlong = 0
        p: cython.longlong
        at: cython.longlong
        n: cython.longlong
        value: cython.longlong
        slot: cython.longlong
        kind: cython.int
        field: cython.int
        result: cython.int
        is_hash: cython.bint
        plain: cython.bint
        result = self._push(0, self.m_start, end, HASH, self.m_long_null, -1)
        while result == DONE:
            if self.out_full:
                return FULL
            is_hash = self.stack[frame + W_KIND] == HASH
            if self.stack[frame + W_POS] >= self.stack[frame + W_END]:
                self._put(0x7D if is_hash else 0x5D)
                self.scratch_n = self.stack[frame + W_SCRATCH]
                value = self.stack[frame + W_VALUE]
                if self.stack[frame + W_FIELD] >= 0:
                    self._keep(cython.cast(cython.int, self.stack[frame + W_FIELD]), -1 - value, self.out_n - value)
                sp -= 1
                if sp < 0:
                    break
                frame -= FRAME_WORDS
                continue
            p = self.stack[frame + W_POS]
            if is_hash:
                tag = p
                p = p + 1 + self.buf[p]
            self._head(p, self.stack[frame + W_END], self.stack[frame + W_LONG_NULL] != 0)
            self.stack[frame + W_POS] = self.at + self.n
            if is_hash and self.stack[frame + W_TABLE] >= 0:
                slot = self._slot(self.stack[frame + W_TABLE], self.stack[frame + W_SLOTS], tag)
                if self.scratch[slot] != tag:
                    continue
                p = self.scratch[slot + 1]
                self._head(p + 1 + self.buf[p], self.stack[frame + W_END], self.stack[frame + W_LONG_NULL] != 0)
            kind = self.kind
            at = self.at
            n = self.n
            if self.stack[frame + W_COUNT]:
                self._put(0x2C)
            self.stack[frame + W_COUNT] = 1
            field = -1
            if is_hash:
                self._key(tag)
                if sp == 0 and want and self.buf[tag]:
                    field = self._field(tag + 1, self.buf[tag], want)
                    if field == F_MSG:
                        self.msg_wire = n
            value = self.out_n
            if kind == HASH or kind == LIST:
                sp += 1
                frame += FRAME_WORDS
                result = self._push(sp, at, at + n, kind, self.stack[frame - FRAME_WORDS + W_LONG_NULL] != 0, field)
                continue
            if (kind == DATA or kind == UTF8) and self._has_magic(at, n):
                result = self._reading(at + 4, at + n, sp + 1)
                if result == LONG:
                    return LONG
                if result == DONE:
                    sp += 1
                    frame += FRAME_WORDS
                    result = self._push(sp, self.m_start, at + n, HASH, self.m_long_null, field)
                    continue
                result = DONE
            plain = self._scalar(kind, at, n)
            if field >= 0:
                if plain and field != F_MSG:
                    self._keep(field, at, n)
                elif kind == NULL and field != F_MSG and field != F_STATS:
                    self._keep(field, 0, -1)
                else:
                    self._keep(field, -1 - value, self.out_n - value)
        if result == DONE and self.out_full:
            return FULL
        return result

    # -- JSON

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _space(self, p: cython.longlong, end: cython.longlong) -> cython.longlong:
        while p < end and (self.buf[p] == 32 or self.buf[p] == 9 or self.buf[p] == 10 or self.buf[p] == 13):
            p += 1
        return p

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _quad(self, p: cython.longlong, end: cython.longlong) -> cython.int:
        """The four hexadecimal digits at ``p``, -1 if there are none."""
        value: cython.int = 0
        i: cython.int
        c: cython.int
        if end - p < 4:
            return -1
        for i in range(4):
            c = self.buf[p + i]
            if 48 <= c <= 57:
                c -= 48
            elif 97 <= c <= 102:
                c -= 87
            elif 65 <= c <= 70:
                c -= 55
            else:
                return -1
            value = value * 16 + c
        return value

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _character(self, c: cython.int, how: cython.int) -> cython.void:
        """A code point of a JSON string, written as UTF-8; half a pair keeps its escape or becomes U+FFFD."""
        if c < 0x80:
            if how == AS_JSON:
                self._escaped(c)
            else:
                self._put(c)
            return
        if 0xD800 <= c <= 0xDFFF:
            if how == AS_JSON:
                self._put(0x5C)
                self._put(0x75)
                self._hex_digit(c >> 12)
                self._hex_digit(c >> 8 & 15)
                self._hex_digit(c >> 4 & 15)
                self._hex_digit(c & 15)
                return
            c = 0xFFFD
        if c < 0x800:
            self._put(0xC0 | c >> 6)
        elif c < 0x10000:
            self._put(0xE0 | c >> 12)
            self._put(0x80 | c >> 6 & 63)
        else:
            self._put(0xF0 | c >> 18)
            self._put(0x80 | c >> 12 & 63)
            self._put(0x80 | c >> 6 & 63)
        self._put(0x80 | c & 63)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_string(self, p: cython.longlong, end: cython.longlong, how: cython.int) -> cython.longlong:
        """The string that opens at ``p``, of bytes known to be UTF-8, written as asked: its end, -1 for none."""
        c: cython.int
        low: cython.int
        if how == AS_JSON:
            self._put(0x22)
        p += 1
        while p < end:
            c = self.buf[p]
            p += 1
            if c == 0x22:
                if how == AS_JSON:
                    self._put(0x22)
                return p
            if c != 0x5C:
                if how == AS_JSON and c < 0x20:
                    self._escaped(c)  # the peers read with strict=False
                elif how != CHECK_ONLY:
                    self._put(c)
                continue
            if p >= end:
                return -1
            c = self.buf[p]
            p += 1
            if c == 0x62:
                c = 8
            elif c == 0x66:
                c = 12
            elif c == 0x6E:
                c = 10
            elif c == 0x72:
                c = 13
            elif c == 0x74:
                c = 9
            elif c == 0x75:
                c = self._quad(p, end)
                if c < 0:
                    return -1
                p += 4
                if 0xD800 <= c <= 0xDBFF and end - p >= 6 and self.buf[p] == 0x5C and self.buf[p + 1] == 0x75:
                    low = self._quad(p + 2, end)
                    if 0xDC00 <= low <= 0xDFFF:
                        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)
                        p += 6
            elif c != 0x22 and c != 0x5C and c != 0x2F:
                return -1
            if how != CHECK_ONLY:
                self._character(c, how)
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_word(self, p: cython.longlong, end: cython.longlong, how: cython.int) -> cython.longlong:
        """true, false or null at ``p``: its end, -1 for none."""
        c: cython.int = self.buf[p]
        n: cython.int = 5 if c == 0x66 else 4
        ok: cython.bint = False
        if end - p >= n:
            if c == 0x6E:
                ok = self.buf[p + 1] == 0x75 and self.buf[p + 2] == 0x6C and self.buf[p + 3] == 0x6C
            elif c == 0x74:
                ok = self.buf[p + 1] == 0x72 and self.buf[p + 2] == 0x75 and self.buf[p + 3] == 0x65
            elif c == 0x66:
                ok = (
                    self.buf[p + 1] == 0x61
                    and self.buf[p + 2] == 0x6C
                    and self.buf[p + 3] == 0x73
                    and self.buf[p + 4] == 0x65
                )
        if not ok:
            return -1
        if how == AS_JSON:
            self._copy(p, n)
        return p + n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json_key(self, p: cython.longlong, end: cython.longlong, how: cython.int, want: cython.int) -> cython.longlong:
        """A key and its colon: where the value may begin, -1 for none. The field it names goes to ``self.kind``."""
        start: cython.longlong = self._space(p, end)
        self.kind = -1
        if start >= end or self.buf[start] != 0x22:
            return -1
        p = self._json_string(start, end, how)
        if p < 0:
            return -1
        if want and p - start > 2:
            self.kind = self._field(start + 1, p - start - 2, want)
        p = self._space(p, end)
        if p >= end or self.buf[p] != 0x3A:
            return -1
        if how == AS_JSON:
            self._put(0x3A)
        return p + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_json(
        self,
        field: cython.int,
        first: cython.int,
        start: cython.longlong,
        end: cython.longlong,
        value: cython.longlong,
        how: cython.int,
    ) -> cython.void:
        """A field's value: ``start`` to ``end`` as captured, from ``value`` on as written; ``first`` its first byte."""
        i: cython.longlong
        self.pending &= ~(1 << field)
        if first == 0x22:
            for i in range(start + 1, end - 1):
                if self.buf[i] == 0x5C:
                    self.pending |= 1 << field  # to be unescaped when the document is complete
                    break
            self._keep(field, start + 1, end - start - 2)
        elif first == 0x6E and field != F_STATS:
            self._keep(field, 0, -1)
        elif how == AS_JSON:
            self._keep(field, -1 - value, self.out_n - value)
        else:
            self._keep(field, start, end - start)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _json(
        self, p: cython.longlong, end: cython.longlong, how: cython.int, want: cython.int, must_be_object: cython.bint
    ) -> cython.int:
        """One JSON value filling ``p`` to ``end``, checked or written without spaces; keeps the fields wanted."""
        sp: cython.int = -1
        c: cython.int
        field: cython.int = -1
        first: cython.int = 0
        here: cython.longlong
        start: cython.longlong = 0
        value: cython.longlong = 0
        if not self._utf8(p, end - p):
            return WRONG
        p = self._space(p, end)
        if must_be_object and (p >= end or self.buf[p] != 0x7B):
            return WRONG
        while True:
            p = self._space(p, end)
            if p >= end:
                return WRONG
            if self.out_full:
                return FULL
            c = self.buf[p]
            here = p
            if sp == 0:
                start = p
                value = self.out_n
                first = c
            if c == 0x7B or c == 0x5B:
                sp += 1
                if sp >= MAX_DEPTH:
                    return LONG
                self.ends[sp] = c
                if how == AS_JSON:
                    self._put(c)
                p = self._space(p + 1, end)
                if p >= end:
                    return WRONG
                if self.buf[p] != c + 2:  # } stands two behind {, ] two behind [
                    if c == 0x7B:
                        p = self._json_key(p, end, how, want if sp == 0 else 0)
                        if p < 0:
                            return WRONG
                        if sp == 0:
                            field = self.kind
                    continue
                if how == AS_JSON:
                    self._put(c + 2)
                p += 1
                sp -= 1
            elif c == 0x22:
                p = self._json_string(p, end, how)
            elif c == 0x2D or 48 <= c <= 57:
                p = self._number_end(p, end)
                if p >= 0 and how == AS_JSON:
                    self._copy(here, p - here)
            else:
                p = self._json_word(p, end, how)
            if p < 0:
                return WRONG
            while True:  # behind a value
                if sp == 0 and field >= 0:
                    self._keep_json(field, first, start, p, value, how)
                    field = -1
                p = self._space(p, end)
                if sp < 0:
                    if p != end:
                        return WRONG
                    return FULL if self.out_full else DONE
                if p >= end:
                    return WRONG
                c = self.buf[p]
                p += 1
                if c == self.ends[sp] + 2:
                    if how == AS_JSON:
                        self._put(c)
                    sp -= 1
                    continue
                if c != 0x2C:
                    return WRONG
                if how == AS_JSON:
                    self._put(c)
                if self.ends[sp] == 0x7B:
                    p = self._json_key(p, end, how, want if sp == 0 else 0)
                    if p < 0:
                        return WRONG
                    if sp == 0:
                        field = self.kind
                break

    # -- rows

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_getlname(self) -> cython.bint:
        at: cython.longlong = self.f_start[F_TYPE]
        return (
            self.f_len[F_TYPE] == 8
            and at >= 0
            and self.f_len[F_LNAME] < 0
            and self.buf[at] == 0x67
            and self.buf[at + 1] == 0x65
            and self.buf[at + 2] == 0x74
            and self.buf[at + 3] == 0x6C
            and self.buf[at + 4] == 0x6E
            and self.buf[at + 5] == 0x61
            and self.buf[at + 6] == 0x6D
            and self.buf[at + 7] == 0x65
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _body(self, at: cython.longlong, n: cython.longlong, binary: cython.bint) -> cython.int:
        """A body: a message (where the header is ``binary``) as its object, JSON in its own words, else its bytes."""
        want: cython.int = WANT_LNAME if self._is_getlname() else 0
        value: cython.longlong = self.out_n
        result: cython.int = WRONG
        if n == 0:
            self._word(0)
            return DONE
        if binary and self._has_magic(at, n):
            result = self._reading(at + 4, at + n, 0)
            if result == DONE:
                result = self._write(at + n, want)
        if result == WRONG:
            result = self._json(at, at + n, CHECK_ONLY, want, False)
            if result == DONE:
                self._copy(at, n)
        if result == WRONG:
            if want:
                self._keep(F_LNAME, 0, -1)
                self.pending &= ~(1 << F_LNAME)
            self._hex_object(at, n)
            result = DONE
        self._keep(F_MSG, -1 - value, self.out_n - value)
        self.msg_wire = n
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _label(self, which: cython.int) -> cython.void:
        """``{"header":`` or ``,"body":``."""
        if which == 0:
            self._put(0x7B)
            self._put(0x22)
            self._put(0x68)
            self._put(0x65)
            self._put(0x61)
            self._put(0x64)
            self._put(0x65)
            self._put(0x72)
        else:
            self._put(0x2C)
            self._put(0x22)
            self._put(0x62)
            self._put(0x6F)
            self._put(0x64)
            self._put(0x79)
        self._put(0x22)
        self._put(0x3A)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _row(
        self,
        tree: cython.longlong,
        tree_n: cython.longlong,
        header: cython.longlong,
        header_n: cython.longlong,
        body: cython.longlong,
        body_n: cython.longlong,
    ) -> cython.int:
        """The document of one message; a length of -1 says that the part is not there."""
        result: cython.int
        f: cython.int
        for f in range(FIELD_COUNT):
            self.f_len[f] = -1
        self.msg_wire = -1
        self.pending = 0
        self.scratch_n = 0
        if tree_n >= 0 and body_n < 0:
            result = self._reading(tree, tree + tree_n, 0)
            return self._write(tree + tree_n, WANT_FLAT) if result == DONE else result
        self._label(0)
        if tree_n >= 0:
            result = self._reading(tree, tree + tree_n, 0)
            if result == DONE:
                result = self._write(tree + tree_n, WANT_HEADER)
        else:
            result = self._json(header, header + header_n, AS_JSON, WANT_HEADER, True)
        if result != DONE:
            return result
        self._label(1)
        result = self._body(body, body_n, tree_n >= 0)
        self._put(0x7D)
        return FULL if result == DONE and self.out_full else result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unescaped(self) -> cython.void:
        """The text of JSON strings with escapes, behind the document."""
        f: cython.int
        value: cython.longlong
        for f in range(FIELD_COUNT):
            if self.pending >> f & 1 and self.f_len[f] >= 0:
                value = self.out_n
                self._json_string(self.f_start[f] - 1, self.f_start[f] + self.f_len[f] + 1, AS_TEXT)
                self._keep(f, -1 - value, self.out_n - value)

    def run(
        self,
        first_row: cython.Py_ssize_t,
        tree: cython.longlong[::1],
        tree_n: cython.longlong[::1],
        header: cython.longlong[::1],
        header_n: cython.longlong[::1],
        body: cython.longlong[::1],
        body_n: cython.longlong[::1],
        flaw: cython.uchar[::1],
        starts: cython.longlong[::1],
        lengths: cython.longlong[::1],
        documents: cython.longlong[::1],
        document_n: cython.longlong[::1],
        msg_wire: cython.longlong[::1],
    ) -> int:
        """Messages ``first_row`` .. n; returns the row to go on with when room is short.

        ``starts`` and ``lengths`` hold field f of row r at f * n + r.
        Rows with a flaw are left out, rows that turn out to have one get it.
        """
        n: cython.Py_ssize_t = len(flaw)
        row: cython.Py_ssize_t = first_row
        mark: cython.longlong
        end: cython.longlong
        result: cython.int
        f: cython.int
        with cython.nogil:
            while row < n:
                mark = self.out_n
                document_n[row] = -1
                msg_wire[row] = -1
                for f in range(FIELD_COUNT):
                    lengths[f * n + row] = -1
                if flaw[row] != 0 or (tree_n[row] < 0 and header_n[row] < 0):
                    row += 1
                    continue
                result = self._row(tree[row], tree_n[row], header[row], header_n[row], body[row], body_n[row])
                end = self.out_n
                if result == DONE:
                    self._unescaped()
                    if self.out_full:
                        result = FULL
                if result == FULL:
                    self.out_n = mark
                    break
                if result != DONE:
                    self.out_n = mark
                    flaw[row] = cython.cast(cython.uchar, result)
                    row += 1
                    continue
                for f in range(FIELD_COUNT):
                    starts[f * n + row] = self.f_start[f]
                    lengths[f * n + row] = self.f_len[f]
                if self.f_len[F_SUBTYPE] < 0:
                    starts[F_SUBTYPE * n + row] = self.f_start[F_SYBTYPE]
                    lengths[F_SUBTYPE * n + row] = self.f_len[F_SYBTYPE]
                documents[row] = mark
                document_n[row] = end - mark
                msg_wire[row] = self.msg_wire
                row += 1
        return row

    def kinds(self, start: cython.longlong, end: cython.longlong) -> int:
        """A bit per item type in the message whose magic is at ``start``; -1 if it is none."""
        self.seen = 0
        if not self._has_magic(start, end - start) or self._reading(start + 4, end, 0) != DONE:
            return -1
        return self.seen


def collect(
    buf: cython.uchar[::1],
    out: cython.uchar[::1],
    start: cython.longlong[::1],
    length: cython.longlong[::1],
    place: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    dest: cython.uchar[::1],
    offsets: cython.int[::1],
):
    """Copy ``n`` values from ``place`` on behind one another: from ``buf``, or ``out`` where the start is -1 - p."""
    i: cython.Py_ssize_t
    k: cython.longlong
    p: cython.longlong
    size: cython.longlong
    at: cython.longlong = 0
    offsets[0] = 0
    with cython.nogil:
        for i in range(n):
            p = start[place + i]
            size = length[place + i]
            if size > 0:
                if size >= LONG_COPY and p >= 0:
                    dest[at : at + size] = buf[p : p + size]
                elif size >= LONG_COPY:
                    dest[at : at + size] = out[-1 - p : -1 - p + size]
                elif p >= 0:
                    for k in range(size):
                        dest[at + k] = buf[p + k]
                else:
                    p = -1 - p
                    for k in range(size):
                        dest[at + k] = out[p + k]
                at += size
            offsets[i + 1] = cython.cast(cython.int, at)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of n messages, as places in two buffers.

    ``out`` holds what was written, ``document`` and ``document_n`` (int64) where each document stands in it, -1 for
    none. ``start`` and ``length`` (int64, field f of row r at f * n + r, see FIELDS) say where a field's text is: in
    the captured bytes, or at -1 - start in ``out``; length -1 is no value. ``msg_wire`` (int64): bytes of the msg or
    body as captured, -1 without one.
    """

    n: int
    buffer: NDArray[np.uint8]
    out: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    document_n: NDArray[np.int64]
    msg_wire: NDArray[np.int64]
    used: int
    """How many bytes of ``out`` are written."""

    def field(self, name: str) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
        """The texts of a field as Arrow wants them: n + 1 offsets, the bytes, and which rows have one."""
        place = FIELDS.index(name) * self.n
        return self._texts(self.start, self.length, place)

    def documents(self, keep: int | None = None) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
        """The documents, likewise, with null in the place of a msg of more than ``keep`` bytes.

        Where nothing is left out and nothing else was written they need no copy.
        """
        if keep is not None:
            return self._without_bodies(keep)
        there = self.document_n[: self.n] >= 0
        size = int(np.maximum(self.document_n[: self.n], 0).sum())
        if size == self.used:
            offsets = np.zeros(self.n + 1, np.int32)
            np.cumsum(np.maximum(self.document_n[: self.n], 0), out=offsets[1:], dtype=np.int32)
            return offsets, self.out[:size], there
        return self._texts(-1 - self.document, self.document_n, 0)

    def _without_bodies(self, keep: int) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
        """Each document as what stands before its msg, ``null`` where that is too long, and what stands behind."""
        n, there = self.n, self.document_n[: self.n] >= 0
        begin, end = self.document[:n], self.document[:n] + np.maximum(self.document_n[:n], 0)
        place = FIELDS.index("msg") * n
        msg_n = self.length[place : place + n]
        cut = there & (msg_n > keep)
        # A msg is always written: its start is -1 - p.
        msg = np.where(cut, -1 - self.start[place : place + n], end)
        behind = np.where(cut, msg + msg_n, end)
        start = np.stack([-1 - begin, np.zeros(n, np.int64), -1 - behind], axis=1).ravel()
        length = np.stack([msg - begin, np.where(cut, len(_NULL), 0), end - behind], axis=1).ravel()
        offsets, texts = _collected(_NULL, self.out, start, length)
        return offsets[::3].copy(), texts, there

    def _texts(
        self, start: NDArray[np.int64], length: NDArray[np.int64], place: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
        here = slice(place, place + self.n)
        offsets, texts = _collected(self.buffer, self.out, start[here], length[here])
        return offsets, texts, length[here] >= 0


def _collected(
    buffer: NDArray[np.uint8], out: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The values behind one another, with n + 1 offsets."""
    n = len(length)
    offsets = np.zeros(n + 1, np.int32)
    texts = np.empty(max(int(np.maximum(length, 0).sum()), 1), np.uint8)
    if n:
        collect(
            memoryview(buffer if len(buffer) else np.zeros(1, np.uint8)), memoryview(out), memoryview(start),
            memoryview(length), 0, n, memoryview(texts), memoryview(offsets),
        )  # fmt: skip
    return offsets, texts[: int(offsets[n])]


_NULL = np.array(bytearray(b"null"), np.uint8)
OUTPUT_BYTES = 4096
"""Room for documents beside twice the bytes read; doubled when it does not do."""
SCRATCH_WORDS = 4096
_NAMES = np.array(bytearray("".join(FIELDS).encode()), np.uint8)
_NAMES_AT = np.array(_AT, np.int64)
Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def _trees(buffer: NDArray[np.uint8]) -> Trees:
    fields = np.zeros(FIELD_COUNT, np.int64), np.full(FIELD_COUNT, -1, np.int64)
    return Trees(
        memoryview(buffer if len(buffer) else np.zeros(1, np.uint8)),
        memoryview(np.zeros((MAX_DEPTH + 2) * FRAME_WORDS, np.int64)),
        memoryview(np.zeros(MAX_DEPTH + 2, np.int64)), memoryview(_NAMES), memoryview(_NAMES_AT),
        *map(memoryview, fields), _base(),
    )  # fmt: skip


@cache
def _base() -> int:
    """What the hash of tags begins with: nobody can foresee it, so no input can make tags collide."""
    return random.SystemRandom().randrange(1 << 20, HASH_PRIME)


def documents(
    buffer: NDArray[np.uint8], tree: Places, header: Places, body: Places, flaw: NDArray[np.uint8]
) -> Documents:  # fmt: skip
    """The documents of a batch: (starts, lengths) of the typed pairs, JSON headers and bodies of its rows, -1 for none.

    A row with pairs and no body is flat, with a body (of length 0, if need be) it is split. Rows whose ``flaw`` (uint8)
    is set are left out; it gets MALFORMED or TOO_LONG where a row does not decode.
    """
    n = len(flaw)
    if not buffer.flags.writeable:
        buffer = buffer.copy()  # compiled loops take no other
    trees = _trees(buffer)
    size = sum(int(np.maximum(length, 0).sum()) for _, length in (tree, header, body))
    out = np.empty(2 * size + 16 * n + OUTPUT_BYTES, np.uint8)
    scratch = np.empty(SCRATCH_WORDS, np.int64)
    trees.output(memoryview(out))
    trees.working(memoryview(scratch))
    start, length = np.zeros(FIELD_COUNT * n + 1, np.int64), np.full(FIELD_COUNT * n + 1, -1, np.int64)
    found = [np.full(n + 1, -1, np.int64) for _ in range(3)]
    row = 0
    while row < n:
        row = trees.run(
            row, *(memoryview(np.ascontiguousarray(x)) for places in (tree, header, body) for x in places),
            memoryview(flaw), memoryview(start), memoryview(length), *map(memoryview, found),
        )  # fmt: skip
        if trees.wants_output():
            more = np.empty(2 * len(out), np.uint8)
            more[: trees.written()] = out[: trees.written()]
            out = more
            trees.output(memoryview(out))
        if trees.wants_scratch():
            scratch = np.empty(min(4 * len(scratch), MAX_SCRATCH_WORDS), np.int64)
            trees.working(memoryview(scratch))
    return Documents(n, buffer, out, start, length, *found, trees.written())


def text(pairs: bytes) -> str | None:
    """The JSON text of the pairs of one message (what follows the magic), None if they do not decode.

    >>> text(bytes.fromhex("0474797065 21 08 6765746c6e616d65"))
    '{"type":"getlname"}'
    """
    here = np.zeros(1, np.int64), np.full(1, len(pairs), np.int64)
    none = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    buffer = np.frombuffer(pairs, np.uint8)
    _, texts, there = documents(buffer, here, none, none, np.zeros(1, np.uint8)).documents()
    return texts.tobytes().decode() if there[0] else None


def has_typed_items(message: bytes) -> bool:
    """Whether a message (magic and all) holds an item of the types 5 to 8, which the first generation did not have."""
    kinds = _trees(np.array(bytearray(message), np.uint8)).kinds(0, len(message))
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
