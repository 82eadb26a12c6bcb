# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""The one interpreter: a Program run over captured bytes.

``framing`` feeds it stream bytes to find where messages end, ``columns`` feeds it message spans to
read their fields. It promises a result for any bytes: a code, never an exception.

Theory of operation. A Program is rows of eight int32 words (see OP_* and W_*) over a pool of int64
constants. ``_run`` walks the rows; a list or a nested message calls it again for its own rows, so the depth is
that of the description, not of the input. Integers that later rows refer to live in registers; a row
IF says in word REG, where later rows refer to its field, whether that is there, and makes the register
behind, which is the field's, -1 where it is not: no length and no count is. What
is read goes to a *tape* of (column, row, a, b): a and b are a value, or start and length of a span,
or first element and count of a list. A message that fails has its entries taken back, so a row
decodes wholly or not at all.

The same file runs uncompiled; memoryviews are passed in so that elements are plain integers.
"""

import sys

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

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

# How an op learns a length or a count: word X, with Y as its parameter.
BY_FIXED = cython.declare(cython.const[cython.int], 0)  # Y bytes
BY_PREFIX = cython.declare(cython.const[cython.int], 1)  # an integer of Y bytes in front
BY_REGISTER = cython.declare(cython.const[cython.int], 2)  # register Y
BY_REST = cython.declare(cython.const[cython.int], 3)  # what is left of the region
BY_UNTIL = cython.declare(cython.const[cython.int], 4)  # up to the byte Y, which is dropped; without one the rest
BY_ZERO = cython.declare(cython.const[cython.int], 5)  # lists: items until an integer of Y bytes is zero; it is taken

# Flags of integers.
SIGNED = cython.declare(cython.const[cython.int], 1)
LITTLE = cython.declare(cython.const[cython.int], 2)
TRUTH = cython.declare(cython.const[cython.int], 4)  # exactly 1 is true
FRAME_LENGTH = cython.declare(cython.const[cython.int], 8)  # so many bytes follow the header, less word Y
CHECKED = cython.declare(cython.const[cython.int], 16)  # const Z and Z + 1 bound the value

# Flags of spans.
UTF8 = cython.declare(cython.const[cython.int], 32)  # must be valid UTF-8
PRINTABLE = cython.declare(cython.const[cython.int], 64)  # no control character

# Tests of OP_IF: word X, with Y a register and Z a const.
IF_EQUALS = cython.declare(cython.const[cython.int], 0)
IF_HAS = cython.declare(cython.const[cython.int], 1)
IF_LEFT = cython.declare(cython.const[cython.int], 2)  # at least const Z bytes are left in the region
IF_FOLLOWS = cython.declare(cython.const[cython.int], 3)  # the next Y bytes are the big-endian const Z
IF_TEXT = cython.declare(cython.const[cython.int], 4)  # registers Y, Y + 1 span the text const Z + 1.. of const Z bytes
IF_NOT_ZERO = cython.declare(cython.const[cython.int], 5)

# Results of a run.
DONE = cython.declare(cython.const[cython.int], 0)
SHORT = cython.declare(cython.const[cython.int], 1)  # the bytes end first
WRONG = cython.declare(cython.const[cython.int], 2)  # the bytes break the layout
LONG = cython.declare(cython.const[cython.int], 3)  # a count passes its named limit

# Results of a scan, and of one look at a message.
SCAN_MORE = cython.declare(cython.const[cython.int], 0)  # all is framed but what is no whole message yet
SCAN_FULL = cython.declare(cython.const[cython.int], 1)  # the output arrays are full, call again
SCAN_BAD = cython.declare(cython.const[cython.int], 2)  # at the position returned there is no message

GZIP_SMALLEST = cython.declare(cython.const[cython.int], 18)  # ten bytes of header, eight of trailer
MAX_LIST_ITEMS = cython.declare(cython.const[cython.int], 16_777_216)  # also bounded by the bytes left, see _list

# Compiled, the names above are C integers; this makes them the module's attributes too.
globals().update(
    {
        "W_OP": W_OP, "W_COL": W_COL, "W_REG": W_REG, "W_X": W_X, "W_Y": W_Y, "W_Z": W_Z, "W_JUMP": W_JUMP,
        "W_FLAGS": W_FLAGS, "OP_WORDS": OP_WORDS, "OP_END": OP_END, "OP_INT": OP_INT, "OP_BITS": OP_BITS,
        "OP_SPAN": OP_SPAN, "OP_LIST": OP_LIST, "OP_IF": OP_IF, "OP_NESTED": OP_NESTED, "BY_FIXED": BY_FIXED,
        "BY_PREFIX": BY_PREFIX, "BY_REGISTER": BY_REGISTER, "BY_REST": BY_REST, "BY_UNTIL": BY_UNTIL,
        "BY_ZERO": BY_ZERO, "SIGNED": SIGNED, "LITTLE": LITTLE, "TRUTH": TRUTH, "FRAME_LENGTH": FRAME_LENGTH,
        "CHECKED": CHECKED, "UTF8": UTF8, "PRINTABLE": PRINTABLE,
        "IF_EQUALS": IF_EQUALS, "IF_HAS": IF_HAS, "IF_LEFT": IF_LEFT,
        "IF_FOLLOWS": IF_FOLLOWS, "IF_TEXT": IF_TEXT, "IF_NOT_ZERO": IF_NOT_ZERO, "DONE": DONE, "SHORT": SHORT,
        "WRONG": WRONG, "LONG": LONG, "SCAN_MORE": SCAN_MORE, "SCAN_FULL": SCAN_FULL, "SCAN_BAD": SCAN_BAD,
        "MAX_LIST_ITEMS": MAX_LIST_ITEMS,
    }
)  # fmt: skip

_NOTHING = memoryview(b"")
"""What is held between calls: no buffer, so that it can go."""


@cython.final
@cython.cclass
class Target:
    """What a scan looks for, and where it puts what it finds: its arrays are bound once, which takes as long as a scan.

    A layout's header and register of the operation, its ``table``, the alternatives of its Program; room for the start,
    the end and the operation of each message.
    """

    header_pc: cython.int
    op_reg: cython.int
    table: cython.longlong[::1]
    alt_pc: cython.int[::1]
    starts: cython.longlong[::1]
    ends: cython.longlong[::1]
    ops: cython.longlong[::1]

    def __init__(self, header_pc: cython.int, op_reg: cython.int, table, alt_pc, starts, ends, ops):
        """Of memoryviews."""
        self.header_pc = header_pc
        self.op_reg = op_reg
        self.table = table
        self.alt_pc = alt_pc
        self.starts = starts
        self.ends = ends
        self.ops = ops


@cython.final
@cython.cclass
class Interpreter:
    """A Program bound to its tape. One per thread: it holds registers, the tape's fill and what a call works on."""

    # A memoryview is 208 bytes: as an argument it would be copied for every integer that is read.
    buf: cython.const[cython.uchar][::1]
    table: cython.longlong[::1]
    alt_pc: cython.int[::1]
    alt_extra: cython.int[::1]
    chosen: cython.int[::1]
    flaw: cython.uchar[::1]
    ops: cython.int[::1]
    consts: cython.longlong[::1]
    regs: cython.longlong[::1]
    lists: cython.longlong[::1]
    tape_col: cython.int[::1]
    tape_row: cython.int[::1]
    tape_a: cython.longlong[::1]
    tape_b: cython.longlong[::1]
    saved: cython.longlong[::1]
    tape_n: cython.Py_ssize_t
    tape_room: cython.Py_ssize_t
    list_count: cython.Py_ssize_t
    emit: cython.bint
    full: cython.bint
    soft: cython.bint
    pos: cython.longlong
    known_end: cython.longlong
    frame_length: cython.longlong
    packed_at: cython.longlong
    packed_mask: cython.int

    def __init__(self, ops, consts, regs, lists, saved):
        """Bind program rows, constants, register and list-counter space (int32, int64 ... memoryviews)."""
        self.ops = ops
        self.consts = consts
        self.regs = regs
        self.lists = lists
        self.saved = saved
        self.list_count = len(lists)
        self.tape_n = 0
        self.tape_room = 0
        self.emit = False
        self.full = False
        self.soft = False
        self.pos = 0
        self.known_end = -1
        self.frame_length = -1
        self.packed_at = 0
        self.packed_mask = 0

    def packing(self, at: cython.longlong, mask: cython.int):
        """Bodies are gzip where the byte ``at`` behind a message's start has a bit of ``mask``; 0 for none."""
        self.packed_at = at
        self.packed_mask = mask

    def tape(self, col, row, a, b, filled: cython.Py_ssize_t):
        """Give the tape its arrays; ``filled`` entries of them are in use."""
        self.tape_col = col
        self.tape_row = row
        self.tape_a = a
        self.tape_b = b
        self.tape_room = len(col)
        self.tape_n = filled

    def filled(self) -> int:
        """How many tape entries are in use."""
        return self.tape_n

    def register(self, index: cython.int) -> int:
        """A register as the last run left it."""
        return self.regs[index]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _put(self, col: cython.int, row: cython.longlong, a: cython.longlong, b: cython.longlong) -> cython.void:
        if col < 0 or not self.emit:
            return
        if self.tape_n >= self.tape_room:
            self.full = True
            return
        self.tape_col[self.tape_n] = col
        self.tape_row[self.tape_n] = row
        self.tape_a[self.tape_n] = a
        self.tape_b[self.tape_n] = b
        self.tape_n += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _integer(self, at: cython.longlong, size: cython.int, flags: cython.int) -> cython.longlong:
        """The integer of ``size`` bytes at ``at``; 8 unsigned bytes keep their bits in a signed one."""
        first: cython.longlong = self.buf[at]
        last: cython.longlong = self.buf[at + size - 1]
        value: cython.longlong = last if flags & LITTLE else first
        i: cython.longlong
        if value >= 128 and (size == 8 or flags & SIGNED):
            value -= 256
        with cython.boundscheck(False):  # both ends are inside
            if flags & LITTLE:
                for i in range(at + size - 2, at - 1, -1):
                    value = value * 256 + self.buf[i]
            else:
                for i in range(at + 1, at + size):
                    value = value * 256 + self.buf[i]
        return value

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _utf8(self, at: cython.longlong, length: cython.longlong) -> cython.bint:
        """Whether the span is valid UTF-8 (RFC 3629: no overlong forms, no surrogates)."""
        end: cython.longlong = at + length
        c: cython.int
        d: cython.int
        more: cython.int
        while at < end:
            c = self.buf[at]
            at += 1
            if c < 0x80:
                continue
            if 0xC2 <= c <= 0xDF:
                more = 1
            elif 0xE0 <= c <= 0xEF:
                more = 2
            elif 0xF0 <= c <= 0xF4:
                more = 3
            else:
                return False
            if at + more > end:
                return False
            d = self.buf[at]
            if (
                (c == 0xE0 and d < 0xA0)
                or (c == 0xED and d > 0x9F)
                or (c == 0xF0 and d < 0x90)
                or (c == 0xF4 and d > 0x8F)
            ):
                return False
            while more:
                if self.buf[at] & 0xC0 != 0x80:
                    return False
                at += 1
                more -= 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _printable(self, at: cython.longlong, length: cython.longlong) -> cython.bint:
        """Whether the span has no control character."""
        end: cython.longlong = at + length
        while at < end and self.buf[at] >= 0x20 and self.buf[at] != 0x7F:
            at += 1
        return at >= end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _until(self, end: cython.longlong, byte: cython.int) -> cython.longlong:
        """How many bytes there are before the first ``byte``, or before ``end``."""
        i: cython.longlong = self.pos
        while i < end and self.buf[i] != byte:
            i += 1
        return i - self.pos

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _test(self, pc: cython.Py_ssize_t, end: cython.longlong) -> cython.int:
        """Whether the condition at ``pc`` holds: 1 or 0, or -1 when the bytes to tell are not here yet."""
        kind: cython.int = self.ops[pc + W_X]
        reg: cython.int = self.ops[pc + W_Y]
        const: cython.int = self.ops[pc + W_Z]
        i: cython.longlong
        if kind == IF_EQUALS:
            return self.regs[reg] == self.consts[const]
        if kind == IF_HAS:
            return (self.regs[reg] & self.consts[const]) != 0
        if kind == IF_NOT_ZERO:
            return self.regs[reg] != 0
        if kind == IF_LEFT:
            return end - self.pos >= self.consts[const]
        if kind == IF_FOLLOWS:
            if end - self.pos < reg:
                return -1 if self.soft else 0
            return self._integer(self.pos, reg, 0) == self.consts[const]
        if self.regs[reg + 1] != self.consts[const]:
            return 0
        for i in range(self.regs[reg + 1]):
            if self.buf[self.regs[reg] + i] != self.consts[const + 1 + i]:
                return 0
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _measure(self, pc: cython.Py_ssize_t, end: cython.longlong) -> cython.longlong:
        """The length or count an op asks for, its prefix taken; -SHORT - 1 and so on for a failure."""
        by: cython.int = self.ops[pc + W_X]
        param: cython.int = self.ops[pc + W_Y]
        value: cython.longlong
        if by == BY_FIXED:
            return param
        if by == BY_REGISTER:
            value = self.regs[param]
            return -1 - WRONG if value < 0 else value
        if by == BY_PREFIX:
            if end - self.pos < param:
                return -1 - SHORT
            value = self._integer(self.pos, param, self.ops[pc + W_FLAGS] & LITTLE)
            self.pos += param
            return value
        return end - self.pos  # BY_REST

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _span(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        length: cython.longlong
        taken: cython.longlong
        reg: cython.int = self.ops[pc + W_REG]
        found: cython.int = DONE
        if self.ops[pc + W_X] == BY_UNTIL:
            length = self._until(end, self.ops[pc + W_Y])
            taken = length
            if self.pos + length < end:
                taken += 1
            else:
                found = -1  # no delimiter: the fields behind it are absent
        else:
            length = self._measure(pc, end)
            if length < 0:
                return cython.cast(cython.int, -length - 1)
            taken = length
        if self.ops[pc + W_FLAGS] & CHECKED:
            if length < self.consts[self.ops[pc + W_Z]]:
                return WRONG
            if length > self.consts[self.ops[pc + W_Z] + 1]:
                return WRONG
        if length > end - self.pos:
            if self.ops[pc + OP_WORDS + W_OP] == OP_END:
                self.known_end = self.pos + length
            return SHORT
        if self.ops[pc + W_FLAGS] & UTF8 and not self._utf8(self.pos, length):
            return WRONG
        if self.ops[pc + W_FLAGS] & PRINTABLE and not self._printable(self.pos, length):
            return WRONG
        if reg >= 0:
            self.regs[reg] = self.pos
            self.regs[reg + 1] = length
        self._put(self.ops[pc + W_COL], row, self.pos, length)
        self.pos += taken
        return found

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _list(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """Items of a list: by count, to the end of the region, or until a zero."""
        by: cython.int = self.ops[pc + W_X]
        smallest: cython.longlong = self.ops[pc + W_Z]
        counter: cython.int = self.ops[pc + W_REG]
        first: cython.longlong = self.lists[counter]
        count: cython.longlong = MAX_LIST_ITEMS
        i: cython.longlong = 0
        size: cython.int
        result: cython.int
        if by != BY_REST and by != BY_ZERO:
            count = self._measure(pc, end)
            if count < 0:
                return cython.cast(cython.int, -count - 1)
            # A count may not exceed the bytes left divided by the smallest element: then the bytes break the layout,
            # whatever our own limit is.
            if not self.soft and smallest > 0 and count > (end - self.pos) // smallest:
                return WRONG
            if count > MAX_LIST_ITEMS:
                return LONG
        while i < count:
            if by == BY_REST and self.pos >= end:
                break
            if by == BY_ZERO:
                size = self.ops[pc + W_Y]
                if end - self.pos < size:
                    return SHORT
                if self._integer(self.pos, size, 0) == 0:
                    self.pos += size
                    break
            self.lists[counter] += 1
            result = self._run(pc + OP_WORDS, end, first + i)
            if result != DONE:
                return result
            i += 1
        if (by == BY_REST or by == BY_ZERO) and i >= MAX_LIST_ITEMS:
            return LONG
        if self.ops[pc + W_FLAGS] & CHECKED and i < 1:
            return SHORT if self.soft and by == BY_REST else WRONG
        self._put(self.ops[pc + W_COL], row, first, i)
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _nested(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """A region with a declared length, which must be read to its last byte."""
        length: cython.longlong = self._measure(pc, end)
        inner: cython.longlong
        soft: cython.bint = self.soft
        result: cython.int
        if length < 0:
            return cython.cast(cython.int, -length - 1)
        if self.ops[pc + W_FLAGS] & CHECKED and length > self.consts[self.ops[pc + W_Z] + 1]:
            return WRONG
        if length > end - self.pos:
            return SHORT
        inner = self.pos + length
        self.soft = False
        result = self._run(pc + OP_WORDS, inner, row)
        self.soft = soft
        if result == SHORT:
            return WRONG
        if result == DONE and self.pos != inner:
            return WRONG
        return result

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _number(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        size: cython.int = self.ops[pc + W_X]
        flags: cython.int = self.ops[pc + W_FLAGS]
        value: cython.longlong
        if end - self.pos < size:
            return SHORT
        value = self._integer(self.pos, size, flags)
        if flags & CHECKED:
            if value < self.consts[self.ops[pc + W_Z]] or value > self.consts[self.ops[pc + W_Z] + 1]:
                return WRONG
        self.pos += size
        if flags & TRUTH:
            value = 1 if value == 1 else 0
        if flags & FRAME_LENGTH:
            self.frame_length = value - self.ops[pc + W_Y]
        if self.ops[pc + W_REG] >= 0:
            self.regs[self.ops[pc + W_REG]] = value
        self._put(self.ops[pc + W_COL], row, value, 0)
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _run(self, pc: cython.Py_ssize_t, end: cython.longlong, row: cython.longlong) -> cython.int:
        """Run rows from ``pc`` to their END over bytes from ``self.pos`` to ``end``."""
        op: cython.int
        reg: cython.int
        result: cython.int
        value: cython.longlong
        while True:
            op = self.ops[pc + W_OP]
            if op == OP_END:
                return DONE
            result = DONE
            if op == OP_INT:
                result = self._number(pc, end, row)
            elif op == OP_SPAN:
                result = self._span(pc, end, row)
                if result == -1:
                    return DONE
            elif op == OP_BITS:
                value = (self.regs[self.ops[pc + W_X]] >> self.ops[pc + W_Y]) & self.ops[pc + W_Z]
                if self.ops[pc + W_REG] >= 0:
                    self.regs[self.ops[pc + W_REG]] = value
                self._put(self.ops[pc + W_COL], row, value, 0)
            elif op == OP_IF:
                result = self._test(pc, end)
                if result < 0:
                    return SHORT
                reg = self.ops[pc + W_REG]
                if reg >= 0:
                    self.regs[reg] = result
                    if not result:
                        self.regs[reg + 1] = -1
                pc = pc + OP_WORDS if result else self.ops[pc + W_JUMP]
                continue
            elif op == OP_LIST:
                result = self._list(pc, end, row)
                if result == DONE:
                    pc = self.ops[pc + W_JUMP]
                    continue
            elif op == OP_NESTED:
                result = self._nested(pc, end, row)
                if result == DONE:
                    pc = self.ops[pc + W_JUMP]
                    continue
            else:
                return WRONG
            if result != DONE:
                return result
            pc += OP_WORDS

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _mark(self) -> cython.void:
        i: cython.Py_ssize_t
        for i in range(self.list_count):
            self.saved[i] = self.lists[i]

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)
    @cython.exceptval(check=False)
    def _rewind(self, tape_n: cython.Py_ssize_t) -> cython.void:
        i: cython.Py_ssize_t
        self.tape_n = tape_n
        for i in range(self.list_count):
            self.lists[i] = self.saved[i]

    def decode(
        self,
        buf: cython.const[cython.uchar][::1],
        first_row: cython.Py_ssize_t,
        start: cython.longlong[::1],
        end: cython.longlong[::1],
        header_pc: cython.int[::1],
        body_start: cython.longlong[::1],
        body_end: cython.longlong[::1],
        alt_first: cython.int[::1],
        alt_count: cython.int[::1],
        alt_pc: cython.int[::1],
        alt_extra: cython.int[::1],
        chosen: cython.int[::1],
        flaw: cython.uchar[::1],
    ) -> int:
        """Read messages ``first_row`` .. n onto the tape; returns the row to go on with when the tape is full.

        A row is a header (``start`` to ``end``) and a body (``body_start`` to ``body_end``: the same bytes,
        or inflated ones). ``alt_first`` and ``alt_count`` name its variants in ``alt_pc``; the first that ends
        exactly at the end is taken and put into ``chosen``; failing that, the first whose ``alt_extra``
        column may hold the bytes left over. ``flaw`` gets WRONG or LONG where none fits; a row that comes
        with ``alt_count`` -1 has its header read and no more.
        """
        row: cython.Py_ssize_t
        n: cython.Py_ssize_t = len(start)
        mark: cython.Py_ssize_t
        self.emit = True
        self.soft = False
        self.buf = buf
        self.alt_pc, self.alt_extra = alt_pc, alt_extra
        self.chosen, self.flaw = chosen, flaw
        row = first_row
        with cython.nogil:
            while row < n:
                mark = self.tape_n
                self._mark()
                self.full = False
                self._decode_row(
                    row, start[row], end[row], header_pc[row], body_start[row], body_end[row],
                    alt_first[row], alt_count[row],
                )  # fmt: skip
                if self.full:
                    self._rewind(mark)
                    break
                row += 1
        self.buf = _NOTHING
        return row

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _decode_row(
        self,
        row: cython.Py_ssize_t,
        start: cython.longlong,
        end: cython.longlong,
        header_pc: cython.int,
        body_start: cython.longlong,
        body_end: cython.longlong,
        alt_first: cython.int,
        alt_count: cython.int,
    ) -> cython.void:
        mark: cython.Py_ssize_t
        worst: cython.int = WRONG
        result: cython.int
        alt: cython.int
        self.chosen[row] = -1
        if header_pc >= 0:
            self.pos = start
            self._run(header_pc, end, row)
        if alt_count < 0:
            return
        mark = self.tape_n
        self._mark()
        for alt in range(alt_first, alt_first + alt_count):
            self.pos = body_start
            result = self._run(self.alt_pc[alt], body_end, row)
            if result == DONE and self.pos == body_end:
                self.chosen[row] = alt
                self.flaw[row] = DONE
                return
            if result == LONG:
                worst = LONG
            self._rewind(mark)
        for alt in range(alt_first, alt_first + alt_count):
            if self.alt_extra[alt] < 0:
                continue
            self.pos = body_start
            if self._run(self.alt_pc[alt], body_end, row) == DONE:
                self._put(self.alt_extra[alt], row, self.pos, body_end - self.pos)
                self.chosen[row] = alt
                self.flaw[row] = DONE
                return
            self._rewind(mark)
        self.flaw[row] = worst

    def header(
        self, buf: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong, pc: cython.int
    ) -> int:
        """Read one header without the tape; DONE, SHORT, WRONG or LONG. Registers hold what it said."""
        result: cython.int
        self.buf = buf
        self.emit = False
        self.soft = True
        self.pos = at
        self.frame_length = -1
        result = self._run(pc, end, 0)
        self.buf = _NOTHING
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _body_soft(
        self,
        at: cython.longlong,
        end: cython.longlong,
        first: cython.int,
        count: cython.int,
        exact: cython.bint,
    ) -> cython.int:
        """The first variant of a body that fits; ``self.pos`` is then its end. SHORT if one may fit yet."""
        alt: cython.int
        result: cython.int
        best: cython.int = WRONG
        known: cython.longlong = -1
        for alt in range(first, first + count):
            self.pos = at
            self.known_end = -1
            result = self._run(self.alt_pc[alt], end, 0)
            if result == DONE and (not exact or self.pos == end):
                return DONE
            if result == SHORT and best != SHORT:
                best = SHORT
                known = self.known_end
            if result == LONG and best == WRONG:
                best = LONG
        self.known_end = known
        return best

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _packed(self, body: cython.longlong, limit: cython.longlong) -> cython.int:
        """For a search: a compressed body is believed from its gzip header (RFC 1952), it is not opened here."""
        finish: cython.longlong = body + self.frame_length
        if self.frame_length < GZIP_SMALLEST:
            return WRONG
        self.known_end = finish
        if limit - body < 3:
            return SHORT
        if self.buf[body] != 0x1F or self.buf[body + 1] != 0x8B or self.buf[body + 2] != 8:
            self.known_end = -1
            return WRONG
        if finish > limit:
            return SHORT
        self.pos = finish
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _entry(self, op: cython.longlong) -> cython.Py_ssize_t:
        """Where in a table of (op, first alternative, count) an operation stands, -1 if nowhere."""
        i: cython.Py_ssize_t
        for i in range(0, len(self.table), 3):
            if self.table[i] == op or self.table[i] == -1:
                return i
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(
        self,
        at: cython.longlong,
        limit: cython.longlong,
        header_pc: cython.int,
        op_reg: cython.int,
        strict: cython.bint,
    ) -> cython.int:
        """One message at ``at``: DONE with ``self.pos`` at its end, SHORT (known_end may say more), WRONG, LONG.

        ``table`` holds (op, first alternative, count) per operation, (-1, ...) for a body without one.
        A header that says the length ends the message there; only ``strict`` then looks at the body too,
        which a search needs. Without a length the body's own fields say where it ends.
        """
        i: cython.Py_ssize_t
        first: cython.int
        count: cython.int
        result: cython.int
        body: cython.longlong
        finish: cython.longlong
        self.pos = at
        self.known_end = -1
        self.frame_length = -1
        self.soft = True
        if header_pc >= 0:
            result = self._run(header_pc, limit, 0)
            if result != DONE:
                self.known_end = -1
                self.frame_length = -1
                return result
        body = self.pos
        if self.frame_length >= 0 and not strict:
            finish = body + self.frame_length
            if finish > limit:
                self.known_end = finish
                return SHORT
            self.pos = finish
            return DONE
        i = self._entry(self.regs[op_reg] if op_reg >= 0 else -1)
        if i < 0:
            return WRONG
        first = cython.cast(cython.int, self.table[i + 1])
        count = cython.cast(cython.int, self.table[i + 2])
        if self.frame_length >= 0 and self.packed_mask and self.buf[at + self.packed_at] & self.packed_mask:
            return self._packed(body, limit)
        if self.frame_length >= 0:
            finish = body + self.frame_length
            if finish > limit:
                # Not all here: still refuse what cannot become a message.
                result = self._body_soft(body, limit, first, count, False)
                self.known_end = finish
                return SHORT if result == DONE or result == SHORT else result
            self.soft = False
            result = self._body_soft(body, finish, first, count, True)
            if result == DONE:
                self.pos = finish
                return DONE
            return LONG if result == LONG else WRONG
        return self._body_soft(body, limit, first, count, False)

    def scan(
        self,
        target: Target,
        buf: cython.const[cython.uchar][::1],
        at: cython.longlong,
        limit: cython.longlong,
        ended: cython.bint,
        stop_after_one: cython.bint,
    ) -> tuple[int, int, int, int]:
        """Messages one after the other from ``at``.

        Returns how many were put into the target (an operation is -1 where there is none), one of SCAN_*, where the
        next one begins, and the end it claims when it is known (-1 otherwise).
        ``ended``: no byte can follow ``limit``, so a look ahead that finds the end finds nothing.
        """
        n: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t = len(target.starts)
        header_pc: cython.int = target.header_pc
        op_reg: cython.int = target.op_reg
        result: cython.int = DONE
        code: cython.int = SCAN_MORE
        self.buf, self.table, self.alt_pc = buf, target.table, target.alt_pc
        self.emit = False
        with cython.nogil:
            while at < limit:
                if n >= room:
                    code = SCAN_FULL
                    break
                result = self._message(at, limit, header_pc, op_reg, False)
                if result == SHORT and ended and self.known_end < 0:
                    # A look ahead (IF_FOLLOWS) may only have wanted bytes that will never come.
                    result = self._message_at_end(at, limit, header_pc, op_reg)
                if result == SHORT:
                    break
                if result != DONE or self.pos <= at:
                    code = SCAN_BAD
                    break
                target.starts[n] = at
                target.ends[n] = self.pos
                target.ops[n] = self.regs[op_reg] if op_reg >= 0 else -1
                n += 1
                at = self.pos
                if stop_after_one:
                    code = SCAN_FULL
                    break
        self.buf = _NOTHING
        return n, code, at, self.known_end if result == SHORT else -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message_at_end(
        self,
        at: cython.longlong,
        limit: cython.longlong,
        header_pc: cython.int,
        op_reg: cython.int,
    ) -> cython.int:
        """As _message, where ``limit`` is the end for good: look-aheads past it find nothing."""
        i: cython.Py_ssize_t
        first: cython.int
        count: cython.int
        result: cython.int
        self.pos = at
        self.soft = False
        if header_pc >= 0:
            result = self._run(header_pc, limit, 0)
            if result != DONE:
                return result
        i = self._entry(self.regs[op_reg] if op_reg >= 0 else -1)
        if i < 0:
            return SHORT
        first = cython.cast(cython.int, self.table[i + 1])
        count = cython.cast(cython.int, self.table[i + 2])
        return self._body_soft(self.pos, limit, first, count, False)

    def search(
        self,
        buf: cython.const[cython.uchar][::1],
        at: cython.longlong,
        limit: cython.longlong,
        header_pc: cython.int,
        op_reg: cython.int,
        table: cython.longlong[::1],
        alt_pc: cython.int[::1],
        ended: cython.bint,
        in_a_row: cython.int,
    ) -> tuple[int, bool]:
        """The first position from which ``in_a_row`` messages follow, or fewer that end exactly at the end.

        The last of them may be cut by the end, if its header is there and says how long it is; the first may not.
        Returns (position, found). Not found with a position before ``limit``: there a message may begin, the
        bytes to tell are not here yet; what lies before it is certainly none.
        """
        result: cython.int = WRONG
        p: cython.longlong = at
        q: cython.longlong
        k: cython.int
        found: cython.bint = False
        self.buf, self.table, self.alt_pc = buf, table, alt_pc
        self.emit = False
        with cython.nogil:
            while p < limit and not found:
                q = p
                k = 0
                while True:
                    result = self._message(q, limit, header_pc, op_reg, True)
                    if result == SHORT and ended and self.known_end < 0 and self.frame_length < 0:
                        result = self._message_at_end(q, limit, header_pc, op_reg)
                    if result == SHORT and ended and k > 0 and k + 1 >= in_a_row and self.frame_length >= 0:
                        found = True
                        break
                    if result != DONE or self.pos <= q:
                        break
                    q = self.pos
                    k += 1
                    if k >= in_a_row or (ended and q == limit):
                        found = True
                        break
                    if q >= limit:
                        result = SHORT
                        break
                if found:
                    break
                if result == SHORT and not ended:
                    break
                p += 1
        self.buf = _NOTHING
        return p, found


@cython.boundscheck(False)
def gather(
    buf: cython.const[cython.uchar][::1],
    rows: cython.const[cython.int][::1],
    start: cython.const[cython.longlong][::1],
    length: cython.const[cython.longlong][::1],
    out: cython.uchar[::1],
    offsets: cython.int[::1],
):
    """Copy spans of ``buf`` behind one another into ``out``; ``offsets`` gets where the value of each row begins.

    ``rows``, ascending, are those that have a value; the others are empty. ``offsets`` has one place more than there
    are rows, and ``out`` must have room for all values.
    """
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    at: cython.longlong = 0
    n: cython.Py_ssize_t = len(offsets) - 1
    count: cython.Py_ssize_t = len(rows)
    if n < 0 or count > len(start) or count > len(length):
        raise IndexError(f"{count} rows of {n} with {len(start)} starts and {len(length)} lengths")
    with cython.nogil:
        for i in range(count):
            if rows[i] < row or rows[i] >= n:
                with cython.gil:
                    raise IndexError(f"row {rows[i]} comes after row {row - 1} of {n}")
            while row <= rows[i]:
                offsets[row] = cython.cast(cython.int, at)
                row += 1
            if length[i] > 0:
                _copy(out, at, buf, start[i], length[i])
                at += length[i]
        while row <= n:
            offsets[row] = cython.cast(cython.int, at)
            row += 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.boundscheck(False)
@cython.exceptval(-1)
def _copy(
    out: cython.uchar[::1],
    to: cython.longlong,
    source: cython.const[cython.uchar][::1],
    start: cython.longlong,
    length: cython.longlong,
) -> cython.int:
    if cython.compiled:
        if to < 0 or start < 0 or length > out.shape[0] - to or length > source.shape[0] - start:
            with cython.gil:
                raise IndexError(f"{length} bytes from {start} of {source.shape[0]} to {to} of {out.shape[0]}")
        memcpy(cython.address(out[to]), cython.address(source[start]), length)
    else:
        out[to : to + length] = source[start : start + length]
    return 0


@cython.boundscheck(False)
def group(
    col: cython.const[cython.int][::1],
    row: cython.const[cython.int][::1],
    a: cython.const[cython.longlong][::1],
    b: cython.const[cython.longlong][::1],
    filled: cython.Py_ssize_t,
    first: cython.longlong[::1],
    to_row: cython.int[::1],
    to_a: cython.longlong[::1],
    to_b: cython.longlong[::1],
):
    """A counting sort of tape entries by column: those of column c come from ``first[c]`` on.

    ``first`` has one place more than there are columns; entries keep their order within a column.
    """
    i: cython.Py_ssize_t
    c: cython.Py_ssize_t
    to: cython.Py_ssize_t
    n: cython.Py_ssize_t = len(first) - 1
    before: cython.longlong = 0
    count: cython.longlong
    if n < 0 or filled > min(map(len, (col, row, a, b, to_row, to_a, to_b))):
        raise IndexError(f"{filled} entries are more than there is room for")
    with cython.nogil:
        for c in range(n + 1):
            first[c] = 0
        for i in range(filled):
            first[col[i]] += 1
        for c in range(n + 1):
            count = first[c]
            first[c] = before
            before += count
        for i in range(filled):
            to = first[col[i]]
            to_row[to] = row[i]
            to_a[to] = a[i]
            to_b[to] = b[i]
            first[col[i]] = to + 1
        for c in range(n, 0, -1):
            first[c] = first[c - 1]
        first[0] = 0


_PRIME_A = cython.declare(cython.const[cython.longlong], 2147483647)
_PRIME_B = cython.declare(cython.const[cython.longlong], 2147483629)
_HIGH = cython.declare(cython.const[cython.longlong], 4294967296)
_WORD = cython.declare(cython.const[cython.ulonglong], 0xFFFFFFFFFFFFFFFF)
PRINT_WORDS = 256
"""Words of four bytes that are summed up at a time; the keys of ``fingerprints`` are twice as many."""
_BLOCK = cython.declare(cython.const[cython.longlong], 1024)


def fingerprints(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    keys: cython.const[cython.ulonglong][::1],
    base_a: cython.longlong,
    base_b: cython.longlong,
    out: cython.longlong[::1],
):
    """A number per value, equal for equal bytes; two differ in it unless by chance, one in 2**60, whatever they are.

    Multilinear hashing (sums of words, each times a secret key of its own) makes two numbers of 31 bits of each block,
    and two polynomials over two primes, at secret bases, one of each of a value's blocks.
    """
    i: cython.Py_ssize_t
    k: cython.longlong
    end: cython.longlong
    stop: cython.longlong
    j: cython.Py_ssize_t
    a: cython.longlong
    b: cython.longlong
    one: cython.ulonglong
    two: cython.ulonglong
    four: cython.uint = 0
    word: cython.ulonglong
    n: cython.Py_ssize_t = len(out)
    size: cython.Py_ssize_t = len(data)
    half: cython.Py_ssize_t = len(keys) // 2
    if 4 * half <= _BLOCK:
        raise IndexError(f"{half} keys are fewer than a block has words")
    with cython.nogil:
        for i in range(n):
            k = offsets[i]
            end = offsets[i + 1]
            a = end - k + 1
            b = a
            while k < end:
                stop = end if end - k < _BLOCK else k + _BLOCK
                if k < 0 or stop > size:
                    with cython.gil:
                        raise IndexError(f"bytes {k} to {stop} of {size}")
                one = two = 0
                j = 0
                with cython.boundscheck(False):  # the block is inside, and so are its keys
                    while k + 4 <= stop:
                        if cython.compiled:
                            memcpy(cython.address(four), cython.address(data[k]), 4)
                        else:
                            four = int.from_bytes(data[k : k + 4], sys.byteorder)
                        one = (one + keys[j] * four) & _WORD
                        two = (two + keys[half + j] * four) & _WORD
                        j += 1
                        k += 4
                word = 0
                while k < stop:
                    word = word << 8 | data[k]
                    k += 1
                one = (one + keys[j] * word) & _WORD
                two = (two + keys[half + j] * word) & _WORD
                a = (a * base_a + cython.cast(cython.longlong, one >> 33) + 1) % _PRIME_A
                b = (b * base_b + cython.cast(cython.longlong, two >> 33) + 1) % _PRIME_B
            out[i] = a * _HIGH + b
