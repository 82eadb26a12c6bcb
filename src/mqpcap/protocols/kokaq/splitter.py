# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Where kokaq's frames end: stream bytes to spans, each with the variant that reads it.

No frame says how long it is. So a rule lists variants in order, and **the first that ends at a head or at the end of
the stream is taken**. ``kokaq`` declares the rule; here are the words it is written in, and the loops over bytes. Any
bytes give a frame, the wish for more bytes, or none; never an exception. An end never depends on how the stream was cut
into packets. Every look is bounded by the limits below. The same file runs uncompiled.
"""

import cython

from mqpcap.schema.flaws import Flaw

ENDS = ("header", "lean", "payload", "odd payload", "numbered", "entries", "block", "next head")
"""How the end of a variant is known.

header        the header is all
lean          28 bytes and the payload, if it is the second codec's
payload       lengths that count bytes
odd payload   the same where a name is not four bytes long
numbered      the same with names of four bytes, whatever their lengths say
entries       so many metadata entries
block         a metadata block of so many bytes, which holds whole entries
next head     a component of unknown length
"""
BEHIND = ("anything", "head", "three of a head", "head, uncut", "padding", "tail")
"""What must stand behind it.

anything          the variant is taken as it is
head              a head, or the end
three of a head   the same, and at least three bytes of the head
head, uncut       the same, but not the end where the first variant goes on behind it
padding           a head or the end, perhaps behind zeros that align the frame or are as long as a tail
tail              the first codec's tail
"""

HEADER_BYTES = cython.declare(cython.const[cython.int], 12)
COMPONENT_BYTES = cython.declare(cython.const[cython.int], 20)  # the header and a component's head
LEAN_BYTES = cython.declare(cython.const[cython.int], 28)
TRAILER_BYTES = cython.declare(cython.const[cython.int], 12)  # request.go:130,158: a component of 8 bytes is given 20
MAX_METADATA_ENTRIES = cython.declare(cython.const[cython.longlong], 4096)
MAX_METADATA_BYTES = cython.declare(cython.const[cython.longlong], 1 << 20)
MAX_UNKNOWN_BYTES = cython.declare(cython.const[cython.longlong], 1 << 20)  # so far the next head is looked for
MAX_LEAN_PAYLOAD_BYTES = cython.declare(cython.const[cython.longlong], 16 << 20)
MAX_LEAN_OPCODE = cython.declare(cython.const[cython.int], 8)  # lean frames have little else to be known by
VERSION = cython.declare(cython.const[cython.int], 1)
METADATA = cython.declare(cython.const[cython.int], 1)  # const.go:65-66 and the document's legend
PAYLOAD = cython.declare(cython.const[cython.int], 2)
OTHER = cython.declare(cython.const[cython.int], 3)
# The magic 0x0420, big-endian and, from go1, little-endian.
BIG_0 = cython.declare(cython.const[cython.int], 0x04)
BIG_1 = cython.declare(cython.const[cython.int], 0x20)

# Verdicts: numbers as those of SCAN_MORE, SCAN_FULL and SCAN_BAD.
MORE = cython.declare(cython.const[cython.int], 0)
MESSAGE = cython.declare(cython.const[cython.int], 1)
BAD = cython.declare(cython.const[cython.int], 2)

# Answers to a look at a place.
NO = cython.declare(cython.const[cython.int], 0)
WAIT = cython.declare(cython.const[cython.int], 1)
YES = cython.declare(cython.const[cython.int], 2)

# What an end may be instead of a place.
WRONG = cython.declare(cython.const[cython.longlong], -1)  # the variant does not fit
LATER = cython.declare(cython.const[cython.longlong], -2)  # the bytes to tell come later
CUT = cython.declare(cython.const[cython.longlong], -3)  # the same, and the variant is known to be this one
NEVER = cython.declare(cython.const[cython.longlong], -4)  # no variant fits

# Places in ENDS and BEHIND.
HEADER = cython.declare(cython.const[cython.int], 0)
LEAN = cython.declare(cython.const[cython.int], 1)
ODD_PAYLOAD = cython.declare(cython.const[cython.int], 3)
NUMBERED = cython.declare(cython.const[cython.int], 4)
ENTRIES = cython.declare(cython.const[cython.int], 5)
BLOCK = cython.declare(cython.const[cython.int], 6)
NEXT_HEAD = cython.declare(cython.const[cython.int], 7)
ANYTHING = cython.declare(cython.const[cython.int], 0)
THREE = cython.declare(cython.const[cython.int], 2)
UNCUT = cython.declare(cython.const[cython.int], 3)
PADDING = cython.declare(cython.const[cython.int], 4)
TAIL = cython.declare(cython.const[cython.int], 5)

FIRST_ROW = cython.declare(cython.const[cython.int], 11)  # of a rule; in front are nine places of rows and two forms
UNKNOWN = cython.declare(cython.int, int(Flaw.UNKNOWN))

# Compiled, the names above are C integers; this makes those that others use the module's attributes too.
globals().update(
    {
        "HEADER_BYTES": HEADER_BYTES, "TRAILER_BYTES": TRAILER_BYTES, "MAX_METADATA_ENTRIES": MAX_METADATA_ENTRIES,
        "MAX_METADATA_BYTES": MAX_METADATA_BYTES, "MAX_LEAN_PAYLOAD_BYTES": MAX_LEAN_PAYLOAD_BYTES,
        "METADATA": METADATA, "PAYLOAD": PAYLOAD, "OTHER": OTHER, "VERSION": VERSION, "FIRST_ROW": FIRST_ROW,
        "WAIT": WAIT, "YES": YES,
    }
)  # fmt: skip


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def legal(byte_3: cython.int, little: cython.bint) -> cython.bint:
    """Whether a byte 3 is one that the document allows: type 0 to 3 in either bit order.

    >>> [hex(b) for b in (0x0F, 0x10, 0x43) if legal(b, False)]
    ['0xf', '0x43']
    """
    return byte_3 <= 0x0F or (not little and byte_3 & 0x3C == 0)


@cython.final
@cython.cclass
class Frames:
    """Bytes of one direction up to ``limit``, behind which none can follow if ``ended``, and the frame looked at.

    ``rule`` (int32) is rows of a form, a place in ENDS and one in BEHIND. In front are where the rows of each magic and
    tag begin, where they all end, and the form that a big- and a little-endian frame has until it is decided.
    ``at`` is where it begins; a look leaves ``verdict``, and ``end``, ``known_end`` (of a frame that is not all here,
    -1 if unknown), ``form`` (-1 for none), ``op`` and ``flaw``.
    """

    rule: cython.const[cython.int][::1]
    buf: cython.const[cython.uchar][::1]
    limit: cython.longlong
    ended: cython.bint
    at: cython.longlong
    little: cython.bint
    is_cut: cython.bint
    tail: cython.longlong
    verdict: cython.int
    end: cython.longlong
    known_end: cython.longlong
    form: cython.int
    op: cython.int
    flaw: cython.int

    def __init__(self, rule, buf, limit: cython.longlong, ended: cython.bint):
        """Bind memoryviews of the rule and the bytes."""
        self.rule = rule
        self.buf = buf
        self.limit = limit
        self.ended = ended
        self._leave(BAD, -1, -1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _leave(self, verdict: cython.int, form: cython.int, known_end: cython.longlong) -> cython.void:
        """What is found; ``end`` and ``flaw`` say more of a message."""
        self.verdict = verdict
        self.form = form
        self.known_end = known_end
        if verdict == BAD:
            self.op = -1
        if verdict != MESSAGE:
            self.end = -1
            self.flaw = 0

    # -- looks at a place

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _head_at(self, at: cython.longlong) -> cython.int:
        """Whether a frame head stands there: magic, version 1 and a legal byte 3. WAIT: the bytes end too early."""
        n: cython.longlong = self.limit - at
        little: cython.bint
        if n <= 0:
            return WAIT
        little = self.buf[at] == BIG_1
        if not little and self.buf[at] != BIG_0:
            return NO
        if n > 1 and self.buf[at + 1] != (BIG_0 if little else BIG_1):
            return NO
        if n > 2 and self.buf[at + 2] != VERSION:
            return NO
        if n < 4:
            return WAIT
        return YES if legal(self.buf[at + 3], little) else NO

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _clean(self, at: cython.longlong) -> cython.int:
        """Whether a frame head or the end stands there; a head that the end cuts is one."""
        answer: cython.int
        if at > self.limit:
            return NO if self.ended else WAIT
        answer = self._head_at(at)
        return YES if answer == WAIT and self.ended else answer

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _zeros(self, at: cython.longlong, most: cython.longlong) -> cython.longlong:
        """How many zeros stand there, up to ``most``."""
        n: cython.longlong = 0
        while n < most and at + n < self.limit and self.buf[at + n] == 0:
            n += 1
        return n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, at: cython.longlong, size: cython.int) -> cython.longlong:
        value: cython.longlong = 0
        i: cython.int
        for i in range(size):
            value = value * 256 + self.buf[at + (size - 1 - i if self.little else i)]
        return value

    # -- where a variant ends

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _end(self, how: cython.int) -> cython.longlong:
        """The end by one of ENDS; else WRONG, LATER, CUT or NEVER. ``tail``: where the first codec's tail then ends."""
        i: cython.int
        self.known_end = -1
        if how == HEADER:
            return self.at + HEADER_BYTES
        if how == LEAN:
            return self._lean_end()
        # A component begins with the tag and the magic of the head.
        for i in range(3):
            if self.at + HEADER_BYTES + i >= self.limit:
                return LATER
            if self.buf[self.at + HEADER_BYTES + i] != self.buf[self.at + (11 if i == 0 else i - 1)]:
                return WRONG
        if self.limit - self.at < COMPONENT_BYTES:
            return CUT if how == NEXT_HEAD else LATER
        if how == NEXT_HEAD:
            return self._next_head()
        if how == ENTRIES:
            return self._entries_end()
        return self._block_end() if how == BLOCK else self._payload_end(how)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _lean_end(self) -> cython.longlong:
        here: cython.longlong = self.limit - self.at
        op: cython.int = self.buf[self.at + 12] if here > 12 else 0
        if self._number(self.at + 8, 4) != 0 or op > MAX_LEAN_OPCODE:
            return WRONG
        if here < 14:
            return LATER  # a Nop without anything looks the same so far
        if op == BIG_0 and self.buf[self.at + 13] == BIG_1:
            return WRONG
        if here >= LEAN_BYTES:
            self.known_end = self._number(self.at + 24, 4)
            if self.known_end > MAX_LEAN_PAYLOAD_BYTES:
                return WRONG
            self.known_end += self.at + LEAN_BYTES
        self.op = op
        return self.known_end if 0 <= self.known_end <= self.limit else CUT

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload_end(self, how: cython.int) -> cython.longlong:
        plain: cython.longlong = self.at + COMPONENT_BYTES + self._number(self.at + 18, 2)
        end: cython.longlong = plain
        size: cython.int
        i: cython.int
        for i in range(16, 18):
            size = self.buf[self.at + i]
            plain += size
            end += 4 if size else 0
        self.tail = plain + TRAILER_BYTES  # the codec reserves what the lengths say
        if how == NUMBERED:
            self.known_end = self.tail
            return end if end <= self.limit else CUT
        if how == ODD_PAYLOAD and end == plain:
            return WRONG
        self.known_end = plain
        return plain if plain <= self.limit else LATER

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _entries_end(self) -> cython.longlong:
        count: cython.longlong = self._number(self.at + 16, 4)
        at: cython.longlong = self.at + COMPONENT_BYTES
        i: cython.longlong
        if count > MAX_METADATA_ENTRIES:
            return WRONG
        for i in range(count):
            if at + 2 > self.limit:
                return LATER
            at += 2 + self.buf[at + 1]
            if at - self.at > MAX_METADATA_BYTES:
                return WRONG
        self.tail = at + TRAILER_BYTES
        return at if at <= self.limit else LATER

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _block_end(self) -> cython.longlong:
        at: cython.longlong = self.at + COMPONENT_BYTES
        end: cython.longlong = at + self._number(self.at + 16, 4)
        if end - at > MAX_METADATA_BYTES:
            return WRONG
        if end > self.limit:
            return LATER
        while at + 2 <= end:
            at += 2 + self.buf[at + 1]
        return end if at == end else WRONG

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _next_head(self) -> cython.longlong:
        at: cython.longlong = self.at + HEADER_BYTES
        last: cython.longlong = min(self.limit, self.at + MAX_UNKNOWN_BYTES)
        answer: cython.int = NO
        while at < last:
            if self.buf[at] == BIG_0 or self.buf[at] == BIG_1:
                answer = self._clean(at)
                if answer != NO:
                    break
            at += 1
        if at == last and last < self.limit:
            return NEVER
        if (answer if at < last else self._clean(at)) == WAIT:
            return LATER
        self.flaw = UNKNOWN
        return at

    # -- what stands behind it

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _behind(self, what: cython.int, end: cython.longlong) -> cython.int:
        """Whether one of BEHIND stands there; ``self.end`` is where the frame then ends."""
        n: cython.longlong
        self.end = end
        if what == ANYTHING:
            return YES
        if what == THREE and self.limit - end < 3:
            return WAIT if self._head_at(end) == WAIT else NO
        if what == UNCUT and self.is_cut and end == self.limit:
            return NO
        if what == TAIL:
            return self._tail(end)
        if what == PADDING:
            n = self._zeros(end, TRAILER_BYTES + 1)
            if end + n == self.limit and n <= TRAILER_BYTES and not self.ended:
                return WAIT
            if n > 0 and (n == (4 - (end - self.at) % 4) % 4 or n == TRAILER_BYTES):
                self.end = end + n
        return self._clean(self.end)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _tail(self, end: cython.longlong) -> cython.int:
        """Whether the codec's tail stands there: zeros, which a reset may cut, or bytes up to a head or the end."""
        if self._head_at(end) == YES:
            return NO
        if self.tail > self.limit:
            self.end = self.limit
            if not self.ended:
                return WAIT
            return YES if end < self.limit and self._zeros(end, self.limit - end) == self.limit - end else NO
        self.end = self.tail
        return YES if self._zeros(end, self.tail - end) == self.tail - end else self._clean(self.tail)

    # -- the frame at a place

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _split(self, at: cython.longlong) -> cython.void:
        """The frame at ``at``. MORE has a form once the 12 bytes of the header are here: cut, it is truncated."""
        here: cython.longlong = self.limit - at
        tag: cython.int
        row: cython.int
        last: cython.int
        undecided: cython.int
        behind: cython.int
        answer: cython.int
        end: cython.longlong = WRONG
        self.at = at
        self.is_cut = False
        self._leave(BAD, -1, -1)
        self.little = here > 0 and self.buf[at] == BIG_1
        if here > 0 and self.buf[at] != (BIG_1 if self.little else BIG_0):
            return
        if here > 1 and self.buf[at + 1] != (BIG_0 if self.little else BIG_1):
            return
        if here < HEADER_BYTES:
            self._leave(MORE, -1, -1)
            return
        self.op = self.buf[at + 8]
        tag = min(self.buf[at + 11], OTHER) + (OTHER + 1 if self.little else 0)
        undecided = self.rule[FIRST_ROW - (1 if self.little else 2)]
        row, last = self.rule[tag], self.rule[tag + 1]
        while row < last and end != NEVER:
            end, behind = self._end(self.rule[row + 1]), self.rule[row + 2]
            if end >= 0:
                answer = self._behind(behind, end)
                if answer == YES:
                    self._leave(MESSAGE, self.rule[row], -1)
                    return
                if answer == WAIT:
                    self._leave(MORE, undecided, -1)
                    return
            elif end == CUT:
                self._leave(MORE, self.rule[row], self.known_end)
                return
            elif end == LATER and not self.ended:
                # What is only tried where others fail does not say how many bytes are wanted.
                self._leave(MORE, undecided, self.known_end if behind == PADDING else -1)
                return
            elif end == LATER and behind == PADDING:
                self.is_cut = True
            row += 3
        if end == LATER:
            self._leave(MORE, undecided, self.known_end)
        else:
            self._malformed(undecided)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _malformed(self, form: cython.int) -> cython.void:
        """What no variant reads: Admin and Control messages may hold anything, so they go to the next head (2.14)."""
        kind: cython.int = self.buf[self.at + 3] >> 2
        end: cython.longlong = NEVER
        if self.buf[self.at + 2] == VERSION and (kind == 2 or kind == 3):
            end = self._next_head()
        if end >= 0:
            self.end = end
            self._leave(MESSAGE, form, -1)
        else:
            self._leave(MORE if end == LATER else BAD, form if end == LATER else -1, -1)

    # -- what others ask

    def follows(self, at: cython.longlong) -> int:
        """Whether a frame head or the end stands at ``at``: YES, NO or WAIT."""
        return self._clean(at)

    def one(self, at: cython.longlong) -> tuple[int, int, int, int, int, int]:
        """The frame at ``at``: verdict, end, known_end, form, op and flaw."""
        self._split(at)
        return self.verdict, self.end, self.known_end, self.form, self.op, self.flaw

    def scan(
        self,
        at: cython.longlong,
        starts: cython.longlong[::1],
        ends: cython.longlong[::1],
        forms: cython.longlong[::1],
        ops: cython.longlong[::1],
        flaws: cython.longlong[::1],
    ) -> tuple[int, int, int, int, int]:
        """The frames one after the other from ``at``, put into the arrays.

        It stops when these are full (MESSAGE), at the limit, or at what is no whole frame. Returns how many they are,
        the verdict, where the next begins, its known_end and form.
        """
        n: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t = len(starts)
        self._leave(MORE, -1, -1)
        with cython.nogil:
            while at < self.limit and n < room:
                self._split(at)
                if self.verdict != MESSAGE:
                    break
                starts[n] = at
                ends[n] = self.end
                forms[n] = self.form
                ops[n] = self.op
                flaws[n] = self.flaw
                n += 1
                at = self.end
        return n, self.verdict, at, self.known_end, self.form

    def search(self, at: cython.longlong, in_a_row: cython.int) -> tuple[int, bool]:
        """The first place from which ``in_a_row`` frames follow, or fewer that end exactly at the end.

        The last of them may be cut by the end. Not found: the place where a frame may begin, of which the bytes to
        tell are not here yet; before it is certainly none.
        """
        p: cython.longlong = at
        q: cython.longlong
        k: cython.int
        more: cython.bint = False
        found: cython.bint = False
        with cython.nogil:
            while p + 2 < self.limit:
                if self.buf[p + 2] != VERSION or not (
                    (self.buf[p] == BIG_0 and self.buf[p + 1] == BIG_1)
                    or (self.buf[p] == BIG_1 and self.buf[p + 1] == BIG_0)
                ):
                    p += 1
                    continue
                q = p
                k = 0
                more = False
                while True:
                    self._split(q)
                    if self.verdict == MORE and self.ended and k > 0 and k + 1 >= in_a_row and self.known_end >= 0:
                        found = True
                        break
                    if self.verdict != MESSAGE:
                        more = self.verdict == MORE
                        break
                    q = self.end
                    k += 1
                    if k >= in_a_row or (self.ended and q == self.limit):
                        found = True
                        break
                    if q >= self.limit:
                        more = True
                        break
                if found or (more and not self.ended):
                    break
                p += 1
        if found or (more and not self.ended):
            return p, found
        return (self.limit if self.ended else max(at, self.limit - 2)), False
