# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
# cython: legacy_implicit_noexcept=True
"""Runs a compiled description (Program) over captured bytes: the only interpreter.

``framing`` gives it stream bytes to find where messages end (:class:`Scanner`); ``columns`` gives it message spans to
read their fields (:class:`Decoder`). Any bytes give a result code, never an exception.

Theory of operation. A Program is rows of eight int32 words (see OP_* and W_*) over a pool of int64 constants. ``_run``
walks the rows. A list or a nested message calls it again for rows of its own, so the depth is that of the description,
not of the input. Integers that later rows refer to live in registers.
Values go to a *tape* of (column, row, a, b): a and b are a value, or start and length of a span, or first element and
count of a list. The entries of a message that fails are taken back, so a row decodes wholly or not at all.

The same file runs uncompiled; memoryviews are passed in so that elements are plain integers.
"""

from typing import Any

import cython

COMPILED: bool = cython.compiled

# Words of an op.
W_OP = cython.declare(cython.const[cython.int], 0)
W_COL = cython.declare(cython.const[cython.int], 1)
W_REG = cython.declare(cython.const[cython.int], 2)
W_X = cython.declare(cython.const[cython.int], 3)
W_Y = cython.declare(cython.const[cython.int], 4)
W_Z = cython.declare(cython.const[cython.int], 5)
W_JUMP = cython.declare(cython.const[cython.int], 6)
W_FLAGS = cython.declare(cython.const[cython.int], 7)
OP_WORDS = cython.declare(cython.const[cython.int], 8)

# Ops. END closes a body, an item or a nested message.
OP_END = cython.declare(cython.const[cython.int], 0)
OP_INT = cython.declare(cython.const[cython.int], 1)
OP_BITS = cython.declare(cython.const[cython.int], 2)
OP_SPAN = cython.declare(cython.const[cython.int], 3)
OP_LIST = cython.declare(cython.const[cython.int], 4)
OP_IF = cython.declare(cython.const[cython.int], 5)
OP_NESTED = cython.declare(cython.const[cython.int], 6)
OP_ABSENT = cython.declare(cython.const[cython.int], 7)  # register X is ABSENT, until a later op sets it
OP_NEVER = cython.declare(cython.const[cython.int], 8)  # no bytes are right here

# How an op learns a length or a count: word X, with Y as its parameter.
BY_FIXED = cython.declare(cython.const[cython.int], 0)  # Y bytes
BY_PREFIX = cython.declare(cython.const[cython.int], 1)  # an integer of Y bytes before the value
BY_REGISTER = cython.declare(cython.const[cython.int], 2)  # register Y
BY_REST = cython.declare(cython.const[cython.int], 3)  # the remaining bytes of the region
BY_UNTIL = cython.declare(cython.const[cython.int], 4)  # up to the byte Y, which is dropped; all bytes if absent
BY_ZERO = cython.declare(cython.const[cython.int], 5)  # lists: items until an integer of Y bytes is zero

# Flags of integers.
SIGNED = cython.declare(cython.const[cython.int], 1)
LITTLE = cython.declare(cython.const[cython.int], 2)
TRUTH = cython.declare(cython.const[cython.int], 4)  # exactly 1 is true
FRAME_LENGTH = cython.declare(cython.const[cython.int], 8)  # less word Y: number of bytes after the header
CHECKED = cython.declare(cython.const[cython.int], 16)  # const Z and Z + 1 bound the value

VARIABLE = cython.declare(cython.const[cython.int], 128)  # up to X bytes with seven bits each
ZIGZAG = cython.declare(cython.const[cython.int], 256)  # variable: 0, 1, 2, 3 are 0, -1, 1, -2
SHORTEST = cython.declare(cython.const[cython.int], 512)  # variable: no more bytes than needed

# Flags of spans.
UTF8 = cython.declare(cython.const[cython.int], 32)  # must be valid UTF-8
PRINTABLE = cython.declare(cython.const[cython.int], 64)  # no control character

# Tests of OP_IF: word X, with Y a register and Z a const.
IF_EQUALS = cython.declare(cython.const[cython.int], 0)
IF_HAS = cython.declare(cython.const[cython.int], 1)
IF_LEFT = cython.declare(cython.const[cython.int], 2)  # at least const Z bytes are left in the region
IF_FOLLOWS = cython.declare(cython.const[cython.int], 3)  # the next Y bytes are the big-endian const Z
IF_AMONG = cython.declare(cython.const[cython.int], 5)  # one of as many numbers as const Z says
IF_TEXT = cython.declare(cython.const[cython.int], 4)  # registers Y, Y + 1 span the text const Z + 1.. of const Z bytes

# Flags of OP_IF.
UNLESS = cython.declare(cython.const[cython.int], 1)  # a field that is there must not pass the test
# The register of a number or text that is absent: no test of it passes.
ABSENT = cython.declare(cython.const[cython.longlong], -9223372036854775807)

# Results of a run.
COMPLETE = cython.declare(cython.const[cython.int], 0)
INCOMPLETE = cython.declare(cython.const[cython.int], 1)  # the bytes end first
MALFORMED = cython.declare(cython.const[cython.int], 2)  # the bytes break the layout
TOO_LONG = cython.declare(cython.const[cython.int], 3)  # a count passes its named limit

# Results of a scan.
SCAN_MORE = cython.declare(cython.const[cython.int], 0)  # all bytes are framed, except an incomplete message at the end
SCAN_FULL = cython.declare(cython.const[cython.int], 1)  # the output arrays are full, call again
SCAN_BAD = cython.declare(cython.const[cython.int], 2)  # there is no message at the position returned

# Results of a search at one position.
NOT_HERE = cython.declare(cython.const[cython.int], 0)
FOUND = cython.declare(cython.const[cython.int], 1)
UNDECIDED = cython.declare(cython.const[cython.int], 2)

MAX_I64 = cython.declare(cython.const[cython.longlong], 9223372036854775807)
GZIP_SMALLEST = cython.declare(cython.const[cython.int], 18)  # ten bytes of header, eight of trailer
MAX_LIST_ITEMS = cython.declare(cython.const[cython.int], 16_777_216)  # also bounded by the bytes left, see _list

# Compiled, the names above are C integers; this makes them the module's attributes too.
globals().update(
    {
        "W_COL": W_COL, "W_REG": W_REG, "W_JUMP": W_JUMP, "OP_WORDS": OP_WORDS,
        "OP_END": OP_END, "OP_INT": OP_INT, "OP_BITS": OP_BITS, "OP_SPAN": OP_SPAN, "OP_LIST": OP_LIST, "OP_IF": OP_IF,
        "OP_NESTED": OP_NESTED, "OP_ABSENT": OP_ABSENT, "OP_NEVER": OP_NEVER,
        "BY_FIXED": BY_FIXED, "BY_PREFIX": BY_PREFIX, "BY_REGISTER": BY_REGISTER,
        "BY_REST": BY_REST, "BY_UNTIL": BY_UNTIL,
        "BY_ZERO": BY_ZERO, "SIGNED": SIGNED, "LITTLE": LITTLE, "TRUTH": TRUTH, "FRAME_LENGTH": FRAME_LENGTH,
        "CHECKED": CHECKED, "VARIABLE": VARIABLE, "ZIGZAG": ZIGZAG, "SHORTEST": SHORTEST,
        "UTF8": UTF8, "PRINTABLE": PRINTABLE,
        "IF_EQUALS": IF_EQUALS, "IF_AMONG": IF_AMONG, "UNLESS": UNLESS, "IF_HAS": IF_HAS, "IF_LEFT": IF_LEFT,
        "IF_FOLLOWS": IF_FOLLOWS, "IF_TEXT": IF_TEXT, "COMPLETE": COMPLETE, "INCOMPLETE": INCOMPLETE,
        "MALFORMED": MALFORMED, "TOO_LONG": TOO_LONG, "SCAN_MORE": SCAN_MORE, "SCAN_FULL": SCAN_FULL,
        "SCAN_BAD": SCAN_BAD, "MAX_LIST_ITEMS": MAX_LIST_ITEMS,
    }
)  # fmt: skip

_NOTHING = memoryview(b"")
"""Replaces the buffer between calls, so that it can be freed."""


@cython.cclass
class Interpreter:
    """Runs the rows of a Program over a region of bytes. One per thread: it holds the registers and the tape.

    ``buf``, ``pos``: the bytes, and the position of the next byte to read.
    ``may_grow``: more bytes may follow the region, so a region that ends too early is INCOMPLETE, not MALFORMED.
    ``full``: the tape had no capacity left.
    ``known_end``: end of a region that is INCOMPLETE, -1 if unknown.
    ``frame_length``: value of a FRAME_LENGTH, -1 without it.
    ``lists``: number of elements in each list column.
    """

    # A memoryview is 208 bytes: as an argument it would be copied for every integer that is read.
    buf: cython.const[cython.uchar][::1]
    pos: cython.longlong
    ops: cython.int[::1]
    consts: cython.longlong[::1]
    regs: cython.longlong[::1]
    lists: cython.longlong[::1]
    tape_col: cython.int[::1]
    tape_row: cython.int[::1]
    tape_a: cython.longlong[::1]
    tape_b: cython.longlong[::1]
    tape_n: cython.Py_ssize_t
    tape_room: cython.Py_ssize_t
    full: cython.bint
    may_grow: cython.bint
    known_end: cython.longlong
    frame_length: cython.longlong

    def __init__(self, ops: object, consts: object, regs: object, lists: object) -> None:
        """Bind memoryviews: program rows (int32), constants, room for registers and for list counters (int64)."""
        self.ops = ops
        self.consts = consts
        self.regs = regs
        self.lists = lists
        self.tape_n = 0
        self.tape_room = 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _integer(self, position: cython.longlong, size: cython.int, flags: cython.int) -> cython.longlong:
        """The integer of ``size`` bytes at ``at``; 8 unsigned bytes keep their bits in a signed one."""
        first_byte: cython.longlong = self.buf[position]
        last_byte: cython.longlong = self.buf[position + size - 1]
        value: cython.longlong = last_byte if flags & LITTLE else first_byte
        i: cython.longlong
        if value >= 128 and (size == 8 or flags & SIGNED):
            value -= 256
        with cython.boundscheck(False):  # both ends are inside
            if flags & LITTLE:
                for i in range(position + size - 2, position - 1, -1):
                    value = value * 256 + self.buf[i]
            else:
                for i in range(position + 1, position + size):
                    value = value * 256 + self.buf[i]
        return value

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _utf8(self, position: cython.longlong, length: cython.longlong) -> cython.bint:
        """Whether the span is valid UTF-8 (RFC 3629: no overlong forms, no surrogates)."""
        end: cython.longlong = position + length
        c: cython.int
        d: cython.int
        continuation: cython.int
        while position < end:
            c = self.buf[position]
            position += 1
            if c < 0x80:
                continue
            continuation = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            if c < 0xC2 or c > 0xF4 or position + continuation > end:
                return False
            d = self.buf[position]
            if (
                (c == 0xE0 and d < 0xA0)
                or (c == 0xED and d > 0x9F)
                or (c == 0xF0 and d < 0x90)
                or (c == 0xF4 and d > 0x8F)
            ):
                return False
            while continuation:
                if self.buf[position] & 0xC0 != 0x80:
                    return False
                position += 1
                continuation -= 1
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)
    def _put(self, col: cython.int, row: cython.longlong, a: cython.longlong, b: cython.longlong) -> cython.void:
        if col < 0:
            return
        if self.tape_n >= self.tape_room:
            self.full = True  # or there is no tape
            return
        self.tape_col[self.tape_n] = col
        self.tape_row[self.tape_n] = row
        self.tape_a[self.tape_n] = a
        self.tape_b[self.tape_n] = b
        self.tape_n += 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _test(self, pc: cython.Py_ssize_t, end: cython.longlong) -> cython.int:
        """Whether the condition at ``pc`` holds: 1 or 0, or -1 if more bytes are needed."""
        kind: cython.int = self.ops[pc + W_X]
        reg: cython.int = self.ops[pc + W_Y]
        const: cython.int = self.ops[pc + W_Z]
        if kind == IF_LEFT:
            return end - self.pos >= self.consts[const]
        if kind == IF_FOLLOWS:
            if end - self.pos < reg:
                return -1 if self.may_grow else 0
            return self._integer(self.pos, reg, 0) == self.consts[const]
        if self.regs[reg] == ABSENT:
            return 0
        return self._equals(kind, reg, const) != (self.ops[pc + W_FLAGS] & UNLESS)

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _equals(self, kind: cython.int, reg: cython.int, const: cython.int) -> cython.int:
        """Whether a number or a text passes a test, 1 or 0."""
        i: cython.longlong
        if kind == IF_EQUALS:
            return self.regs[reg] == self.consts[const]
        if kind == IF_AMONG:
            for i in range(self.consts[const]):
                if self.regs[reg] == self.consts[const + 1 + i]:
                    return 1
            return 0
        if kind == IF_HAS:
            return (self.regs[reg] & self.consts[const]) != 0
        if self.regs[reg + 1] != self.consts[const]:
            return 0
        for i in range(self.regs[reg + 1]):
            if self.buf[self.regs[reg] + i] != self.consts[const + 1 + i]:
                return 0
        return 1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _measure(self, pc: cython.Py_ssize_t, end: cython.longlong) -> cython.longlong:
        """The length or count an op asks for, its prefix taken; -INCOMPLETE - 1 and so on for a failure."""
        size_kind: cython.int = self.ops[pc + W_X]
        param: cython.int = self.ops[pc + W_Y]
        value: cython.longlong
        if size_kind == BY_FIXED:
            return param
        if size_kind == BY_REGISTER:
            value = self.regs[param]
        elif size_kind == BY_PREFIX:
            if end - self.pos < param:
                return -1 - INCOMPLETE
            value = self._integer(self.pos, param, 0)
            self.pos += param
        else:
            value = end - self.pos  # BY_REST
        return -1 - MALFORMED if value < 0 else value  # the top bit of eight bytes is a sign here

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _span(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        length: cython.longlong = 0
        i: cython.longlong
        reg: cython.int = self.ops[pc + W_REG]
        outcome: cython.int = COMPLETE
        if self.ops[pc + W_X] == BY_UNTIL:
            while self.pos + length < end and self.buf[self.pos + length] != self.ops[pc + W_Y]:
                length += 1
            if self.pos + length == end:
                outcome = -1  # no delimiter: the following fields are absent
        else:
            length = self._measure(pc, end)
            if length < 0:
                return cython.cast(cython.int, -length - 1)
        if self.ops[pc + W_FLAGS] & CHECKED:
            if length < self.consts[self.ops[pc + W_Z]]:
                return MALFORMED
            if length > self.consts[self.ops[pc + W_Z] + 1]:
                return MALFORMED
        if length > end - self.pos:
            if self.ops[pc + OP_WORDS + W_OP] == OP_END:
                self.known_end = self.pos + length
            return INCOMPLETE
        if self.ops[pc + W_FLAGS] & UTF8 and not self._utf8(self.pos, length):
            return MALFORMED
        if self.ops[pc + W_FLAGS] & PRINTABLE:
            for i in range(self.pos, self.pos + length):
                if self.buf[i] < 0x20 or self.buf[i] == 0x7F:
                    return MALFORMED
        if reg >= 0:
            self.regs[reg] = self.pos
            self.regs[reg + 1] = length
        self._put(self.ops[pc + W_COL], row, self.pos, length)
        self.pos += length
        if self.ops[pc + W_X] == BY_UNTIL and outcome == COMPLETE:
            self.pos += 1
        return outcome

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _list(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """Items of a list: by count, to the end of the region, or until a zero."""
        size_kind: cython.int = self.ops[pc + W_X]
        smallest: cython.longlong = self.ops[pc + W_Z]
        counter: cython.int = self.ops[pc + W_REG]
        first_item: cython.longlong = self.lists[counter]
        count: cython.longlong = MAX_LIST_ITEMS
        i: cython.longlong = 0
        size: cython.int
        result: cython.int
        if size_kind != BY_REST and size_kind != BY_ZERO:
            count = self._measure(pc, end)
            if count < 0:
                return cython.cast(cython.int, -count - 1)
            # A count may not exceed the bytes left divided by the smallest element: then the bytes break the layout,
            # whatever our own limit is.
            if not self.may_grow and smallest > 0 and count > (end - self.pos) // smallest:
                return MALFORMED
            if count > MAX_LIST_ITEMS:
                return TOO_LONG
        while i < count:
            if size_kind == BY_REST and self.pos >= end:
                break
            if size_kind == BY_ZERO:
                size = self.ops[pc + W_Y]
                if end - self.pos < size:
                    return INCOMPLETE
                if self._integer(self.pos, size, 0) == 0:
                    self.pos += size
                    break
            self.lists[counter] += 1
            result = self._run(pc + OP_WORDS, end, first_item + i)
            if result != COMPLETE:
                return result
            i += 1
        if (size_kind == BY_REST or size_kind == BY_ZERO) and i >= MAX_LIST_ITEMS:
            return TOO_LONG
        if self.ops[pc + W_FLAGS] & CHECKED and i < 1:
            return INCOMPLETE if self.may_grow and size_kind == BY_REST else MALFORMED
        self._put(self.ops[pc + W_COL], row, first_item, i)
        return COMPLETE

    @cython.final
    @cython.cfunc
    @cython.nogil
    def _nested(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """A region with a declared length, which must be read to its last byte."""
        length: cython.longlong = self._measure(pc, end)
        inner: cython.longlong
        may_grow: cython.bint = self.may_grow
        result: cython.int
        if length < 0:
            return cython.cast(cython.int, -length - 1)
        if self.ops[pc + W_FLAGS] & CHECKED and length > self.consts[self.ops[pc + W_Z] + 1]:
            return MALFORMED
        if length > end - self.pos:
            return INCOMPLETE
        inner = self.pos + length
        self.may_grow = False
        result = self._run(pc + OP_WORDS, inner, row)
        self.may_grow = may_grow
        if result == INCOMPLETE:
            return MALFORMED
        if result == COMPLETE and self.pos != inner:
            return MALFORMED
        return result

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _number(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        size: cython.int = self.ops[pc + W_X]
        flags: cython.int = self.ops[pc + W_FLAGS]
        value: cython.longlong
        if flags & VARIABLE:
            size = self._variable_size(size, end)
            if size <= 0:
                return MALFORMED if size < 0 else INCOMPLETE
            if flags & SHORTEST and size > 1 and self.buf[self.pos + (size - 1 if flags & LITTLE else 0)] & 0x7F == 0:
                return MALFORMED
            value = self._variable(size, flags)
        elif end - self.pos < size:
            return INCOMPLETE
        else:
            value = self._integer(self.pos, size, flags)
        if flags & CHECKED:
            if value < self.consts[self.ops[pc + W_Z]] or value > self.consts[self.ops[pc + W_Z] + 1]:
                return MALFORMED
        self.pos += size
        if flags & TRUTH:
            value = 1 if value == 1 else 0
        if flags & FRAME_LENGTH:
            self.frame_length = value - self.ops[pc + W_Y]
        if self.ops[pc + W_REG] >= 0:
            self.regs[self.ops[pc + W_REG]] = value
        self._put(self.ops[pc + W_COL], row, value, 0)
        return COMPLETE

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _variable_size(self, at_most: cython.int, end: cython.longlong) -> cython.int:
        """Bytes of the integer of variable size at ``pos``; 0 if the region ends first, -1 if it has too many."""
        i: cython.int
        for i in range(at_most):
            if self.pos + i >= end:
                return 0
            if self.buf[self.pos + i] < 0x80:
                # The tenth byte holds a single bit.
                return -1 if i == 9 and self.buf[self.pos + i] > 1 else i + 1
        return -1

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _variable(self, size: cython.int, flags: cython.int) -> cython.longlong:
        """The integer of ``size`` bytes with seven bits each; 64 unsigned bits keep them in a signed one."""
        value: cython.longlong = 0
        top: cython.longlong = self.buf[self.pos + size - 1]
        i: cython.int
        for i in range(min(size, 9)):
            value = value * 128 + (self.buf[self.pos + (min(size, 9) - 1 - i if flags & LITTLE else i)] & 0x7F)
        if size == 10 and top:
            value = value - MAX_I64 - 1
        if flags & ZIGZAG:
            value = ((value >> 1) & MAX_I64) ^ -(value & 1)
        return value

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _run(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """Run rows from ``pc`` to their END over bytes from ``self.pos`` to ``end``."""
        op: cython.int
        result: cython.int
        value: cython.longlong
        while True:
            op = self.ops[pc + W_OP]
            if op == OP_END:
                return COMPLETE
            result = COMPLETE
            if op == OP_INT:
                result = self._number(pc, end, row)
            elif op == OP_SPAN:
                result = self._span(pc, end, row)
                if result == -1:
                    return COMPLETE
            elif op == OP_BITS:
                value = (self.regs[self.ops[pc + W_X]] >> self.ops[pc + W_Y]) & self.ops[pc + W_Z]
                if self.ops[pc + W_REG] >= 0:
                    self.regs[self.ops[pc + W_REG]] = value
                self._put(self.ops[pc + W_COL], row, value, 0)
            elif op == OP_IF:
                result = self._test(pc, end)
                if result < 0:
                    return INCOMPLETE
                pc = pc + OP_WORDS if result else self.ops[pc + W_JUMP]
                continue
            elif op == OP_ABSENT:
                self.regs[self.ops[pc + W_X]] = ABSENT
            elif op == OP_LIST:
                result = self._list(pc, end, row)
                if result == COMPLETE:
                    pc = self.ops[pc + W_JUMP]
                    continue
            elif op == OP_NESTED:
                result = self._nested(pc, end, row)
                if result == COMPLETE:
                    pc = self.ops[pc + W_JUMP]
                    continue
            else:
                return MALFORMED
            if result != COMPLETE:
                return result
            pc += OP_WORDS


@cython.final
@cython.cclass
class Decoder(Interpreter):
    """Reads the fields of messages onto a tape."""

    variant_pc: cython.int[::1]
    variant_extra: cython.int[::1]
    saved: cython.longlong[::1]
    list_count: cython.Py_ssize_t
    spans: cython.longlong[:, ::1]
    words: cython.int[:, ::1]
    chosen: cython.int[::1]
    flaw: cython.uchar[::1]

    def __init__(
        self, ops: object, consts: object, regs: object, lists: Any, variant_pc: object, variant_extra: object
    ) -> None:
        """As an Interpreter, with the Program's variants; ``lists`` has twice the room, to note the counters in."""
        super().__init__(ops, consts, regs, lists)
        self.variant_pc = variant_pc
        self.variant_extra = variant_extra
        self.list_count = len(lists) // 2
        self.saved = lists[self.list_count :]

    def tape(self, col: Any, row: Any, a: Any, b: Any, filled: cython.Py_ssize_t) -> None:
        """Set the arrays of the tape; ``filled`` entries of them are in use."""
        self.tape_col = col
        self.tape_row = row
        self.tape_a = a
        self.tape_b = b
        self.tape_room = len(col)
        self.tape_n = filled

    def filled(self) -> int:
        """How many tape entries are in use."""
        return self.tape_n

    def decode(
        self,
        buf: cython.const[cython.uchar][::1],
        spans: cython.longlong[:, ::1],
        words: cython.int[:, ::1],
        chosen: cython.int[::1],
        flaw: cython.uchar[::1],
        first_row: cython.Py_ssize_t,
    ) -> int:
        """Read messages ``first_row`` .. n onto the tape; returns n, or the row to continue with if the tape is full.

        ``spans`` (4 by n): start and end of the message, start and end of its body (its own or inflated bytes; -1: the
        header's end).
        ``words`` (3 by n): rows of its header (-1: none), first variant, number of variants.
        ``chosen`` gets the first variant that ends exactly at the end; if there is none, the first variant whose
        ``variant_extra`` column may hold the unread bytes, else -1. If no variant fits, ``flaw`` gets MALFORMED or
        TOO_LONG. If a message has -1 variants, only its header is read.
        """
        row: cython.Py_ssize_t = first_row
        n: cython.Py_ssize_t = len(flaw)
        mark: cython.Py_ssize_t
        self.may_grow = False
        self.buf, self.spans, self.words, self.chosen, self.flaw = buf, spans, words, chosen, flaw
        with cython.nogil:
            while row < n:
                mark = self.tape_n
                self._mark()
                self.full = False
                self._decode_row(row)
                if self.full:
                    self._rewind(mark)
                    break
                row += 1
        self.buf = _NOTHING
        return row

    @cython.cfunc
    @cython.nogil
    def _decode_row(self, row: cython.Py_ssize_t) -> cython.void:
        mark: cython.Py_ssize_t
        worst: cython.int = MALFORMED
        result: cython.int
        variant: cython.int
        may_leave: cython.int
        header_pc: cython.int = self.words[0, row]
        first: cython.int = self.words[1, row]
        count: cython.int = self.words[2, row]
        start: cython.longlong = self.spans[2, row]
        end: cython.longlong = self.spans[3, row]
        self.chosen[row] = -1
        if header_pc >= 0:
            self.pos = self.spans[0, row]
            self._run(header_pc, self.spans[1, row], row)
            if start < 0:
                start = self.pos  # the header has no fixed size
        if count < 0:
            return
        mark = self.tape_n
        self._mark()
        for may_leave in range(2):
            for variant in range(first, first + count):
                if may_leave and self.variant_extra[variant] < 0:
                    continue
                self.pos = start
                result = self._run(self.variant_pc[variant], end, row)
                if result == COMPLETE and (may_leave or self.pos == end):
                    if may_leave:
                        self._put(self.variant_extra[variant], row, self.pos, end - self.pos)
                    self.chosen[row] = variant
                    self.flaw[row] = COMPLETE
                    return
                if result == TOO_LONG:
                    worst = TOO_LONG
                self._rewind(mark)
        self.flaw[row] = worst

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _mark(self) -> cython.void:
        i: cython.Py_ssize_t
        for i in range(self.list_count):
            self.saved[i] = self.lists[i]

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    def _rewind(self, tape_n: cython.Py_ssize_t) -> cython.void:
        i: cython.Py_ssize_t
        self.tape_n = tape_n
        for i in range(self.list_count):
            self.lists[i] = self.saved[i]


@cython.final
@cython.cclass
class Scanner(Interpreter):
    """Finds where messages of one layout begin and end. It writes no tape.

    hits: a column for each message found, with its start, end, form (0), operation and flaw (0).
    """

    header_pc: cython.int
    op_reg: cython.int
    packed_at: cython.longlong
    packed_mask: cython.int
    table: cython.longlong[::1]
    variant_pc: cython.int[::1]
    hits: cython.longlong[:, ::1]

    def __init__(
        self, ops: object, consts: object, regs: object, lists: object, layout: Any, variant_pc: object, hits: object
    ) -> None:
        """As an Interpreter, with a CompiledLayout, the Program's variants and a memoryview of int64 (5 by room)."""
        super().__init__(ops, consts, regs, lists)
        self.header_pc = layout.header_pc
        self.op_reg = layout.op_reg
        self.packed_at = layout.packed_at
        self.packed_mask = layout.packed_mask
        self.table = memoryview(layout.table)
        self.variant_pc = variant_pc
        self.hits = hits

    def header(
        self, buf: cython.const[cython.uchar][::1], position: cython.longlong, limit: cython.longlong
    ) -> tuple[int, int]:
        """Read one header: COMPLETE, INCOMPLETE, MALFORMED or TOO_LONG, and the operation, -1 without one.

        A layout without a header is COMPLETE.
        """
        result: cython.int = COMPLETE
        self.buf = buf
        self.may_grow = True
        self.pos = position
        if self.header_pc >= 0:
            result = self._run(self.header_pc, limit, 0)
        self.buf = _NOTHING
        return result, self._op()

    def scan(
        self,
        buf: cython.const[cython.uchar][::1],
        position: cython.longlong,
        limit: cython.longlong,
        ended: cython.bint,
    ) -> tuple[int, int, int, int]:
        """Find consecutive messages from ``position`` on, until ``hits`` is full.

        Returns the number of messages put into ``hits`` (operation -1: none), a SCAN_* code, the start of the next
        message, and the end that it claims, -1 if unknown. ``ended``: no byte can follow ``limit``, so a look ahead
        past it finds nothing.
        """
        n: cython.Py_ssize_t = 0
        capacity: cython.Py_ssize_t = self.hits.shape[1]
        result: cython.int = COMPLETE
        code: cython.int = SCAN_MORE
        self.buf = buf
        with cython.nogil:
            while position < limit:
                if n >= capacity:
                    code = SCAN_FULL
                    break
                result = self._message(position, limit, ended, False)
                if result == INCOMPLETE:
                    break
                if result != COMPLETE or self.pos <= position:
                    code = SCAN_BAD
                    break
                self.hits[0, n] = position
                self.hits[1, n] = self.pos
                self.hits[2, n] = 0
                self.hits[3, n] = self._op()
                self.hits[4, n] = 0
                n += 1
                position = self.pos
        self.buf = _NOTHING
        return n, code, position, self.known_end if result == INCOMPLETE else -1

    def search(
        self,
        buf: cython.const[cython.uchar][::1],
        position: cython.longlong,
        limit: cython.longlong,
        ended: cython.bint,
        min_consecutive: cython.int,
    ) -> tuple[int, bool]:
        """The first position that starts ``min_consecutive`` messages, or fewer that end exactly at the end.

        The last of them may be truncated if its header gives its length; the first may not.
        Returns (position, found). If not found and position < ``limit``: a message may start there but more bytes
        are needed; nothing before it starts one.
        """
        match: cython.int = NOT_HERE
        self.buf = buf
        with cython.nogil:
            while position < limit:
                match = self._follow(position, limit, ended, min_consecutive)
                if match != NOT_HERE:
                    break
                position += 1
        self.buf = _NOTHING
        return position, match == FOUND

    @cython.cfunc
    @cython.nogil
    def _op(self) -> cython.longlong:
        """The operation of the message whose header was read last, -1 without one."""
        return self.regs[self.op_reg] if self.op_reg >= 0 else -1

    @cython.cfunc
    @cython.nogil
    def _follow(
        self, position: cython.longlong, limit: cython.longlong, ended: cython.bint, min_consecutive: cython.int
    ) -> cython.int:
        """Whether messages follow each other from ``at`` on: FOUND, NOT_HERE, or UNDECIDED until more bytes come."""
        result: cython.int
        k: cython.int = 0
        while True:
            result = self._message(position, limit, ended, True)
            if result == INCOMPLETE and ended and k > 0 and k + 1 >= min_consecutive and self.frame_length >= 0:
                return FOUND
            if result != COMPLETE or self.pos <= position:
                break
            position = self.pos
            k += 1
            if k >= min_consecutive or (ended and position == limit):
                return FOUND
            if position >= limit:
                result = INCOMPLETE
                break
        return UNDECIDED if result == INCOMPLETE and not ended else NOT_HERE

    @cython.cfunc
    @cython.nogil
    def _message(
        self, position: cython.longlong, limit: cython.longlong, ended: cython.bint, strict: cython.bint
    ) -> cython.int:
        """The result of reading one message at a position; if it is COMPLETE, ``self.pos`` is at its end.

        A header that says the length ends the message there; the body is then only read if ``strict``, as a search
        needs. Without a length the body's own fields say where it ends.
        """
        result: cython.int = self._read(position, limit, True, strict)
        if result == INCOMPLETE and ended and self.known_end < 0 and self.frame_length < 0:
            # A look ahead (IF_FOLLOWS) may only have wanted bytes that will never come.
            result = self._read(position, limit, False, strict)
        return result

    @cython.cfunc
    @cython.nogil
    def _read(
        self, position: cython.longlong, limit: cython.longlong, may_grow: cython.bint, strict: cython.bint
    ) -> cython.int:
        i: cython.Py_ssize_t
        first: cython.int
        count: cython.int
        result: cython.int
        body: cython.longlong
        finish: cython.longlong
        self.pos = position
        self.known_end = -1
        self.frame_length = -1
        self.may_grow = may_grow
        if self.header_pc >= 0:
            result = self._run(self.header_pc, limit, 0)
            if result != COMPLETE:
                self.known_end = -1
                return result
        body = self.pos
        finish = body + self.frame_length
        if self.frame_length >= 0 and not strict:
            if finish > limit:
                self.known_end = finish
                return INCOMPLETE
            self.pos = finish
            return COMPLETE
        i = 0
        while i < len(self.table) and self.table[i] != self._op() and self.table[i] != -1:
            i += 3
        if i >= len(self.table):
            return MALFORMED
        first = cython.cast(cython.int, self.table[i + 1])
        count = cython.cast(cython.int, self.table[i + 2])
        if self.frame_length < 0:
            return self._body(body, limit, first, count, False)
        if self.packed_mask and self.buf[position + self.packed_at] & self.packed_mask:
            return self._packed(body, limit)
        if finish > limit:
            # Not all here: still refuse what cannot become a message.
            result = self._body(body, limit, first, count, False)
            self.known_end = finish
            return INCOMPLETE if result == COMPLETE or result == INCOMPLETE else result
        self.may_grow = False
        result = self._body(body, finish, first, count, True)
        return MALFORMED if result == INCOMPLETE else result

    @cython.cfunc
    @cython.nogil
    def _body(
        self, position: cython.longlong, end: cython.longlong, first: cython.int, count: cython.int, exact: cython.bint
    ) -> cython.int:
        """The first variant of a body that fits; ``self.pos`` is then its end. INCOMPLETE: more bytes are needed."""
        variant: cython.int
        result: cython.int
        best: cython.int = MALFORMED
        best_end: cython.longlong = -1
        for variant in range(first, first + count):
            self.pos = position
            self.known_end = -1
            result = self._run(self.variant_pc[variant], end, 0)
            if result == COMPLETE and (not exact or self.pos == end):
                return COMPLETE
            if result == INCOMPLETE and best != INCOMPLETE:
                best = INCOMPLETE
                best_end = self.known_end
            if result == TOO_LONG and best == MALFORMED:
                best = TOO_LONG
        self.known_end = best_end
        return best

    @cython.cfunc
    @cython.nogil
    def _packed(self, body: cython.longlong, limit: cython.longlong) -> cython.int:
        """For a search: a compressed body is believed from its gzip header (RFC 1952), it is not opened here."""
        finish: cython.longlong = body + self.frame_length
        if self.frame_length < GZIP_SMALLEST:
            return MALFORMED
        self.known_end = finish
        if limit - body < 3:
            return INCOMPLETE
        if self.buf[body] != 0x1F or self.buf[body + 1] != 0x8B or self.buf[body + 2] != 8:
            self.known_end = -1
            return MALFORMED
        if finish > limit:
            return INCOMPLETE
        self.pos = finish
        return COMPLETE
