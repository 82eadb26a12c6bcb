# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Where kokaq's frames end: stream bytes to spans, each with the form that reads it.

``kokaq`` names this in its layouts and ``framing`` feeds it. It promises for any bytes a frame, that more bytes are
needed, or that there is none; never an exception, and an end never depends on how the stream was cut into packets.

No frame says how long it is, so its neighbours are looked at: a frame ends where the next head stands, or the stream.
Every look is bounded, by the limits below. The same file runs uncompiled; memoryviews are passed in.
"""

import cython

from mqpcap.schema.flaws import Flaw

FORMS = ("doc", "doc_swapped", "doc_bytes", "doc_simple16", "go1", "go1_plain", "go1_simple16", "lean")
"""What a frame is read as, by the numbers that `Frames` gives."""

HEADER_BYTES = cython.declare(cython.int, 12)
COMPONENT_HEAD_BYTES = cython.declare(cython.int, 8)
TRAILER_BYTES = cython.declare(cython.int, 12)  # request.go:130,158: a component of 8 bytes is given 20
MAX_METADATA_ENTRIES = cython.declare(cython.longlong, 4096)
MAX_METADATA_BYTES = cython.declare(cython.longlong, 1 << 20)
MAX_UNKNOWN_BYTES = cython.declare(cython.longlong, 1 << 20)  # so far the end of what has no length is looked for
LEAN_HEADER_BYTES = cython.declare(cython.int, 28)
MAX_LEAN_PAYLOAD_BYTES = cython.declare(cython.longlong, 16 << 20)
MAX_OPCODE = cython.declare(cython.int, 8)  # of the lean layout, which has little else to be known by
VERSION = cython.declare(cython.int, 1)
METADATA = cython.declare(cython.int, 1)  # const.go:65-66 and the document's legend
PAYLOAD = cython.declare(cython.int, 2)

# The magic 0x0420, big-endian and, from go1, little-endian.
BIG_0 = cython.declare(cython.int, 0x04)
BIG_1 = cython.declare(cython.int, 0x20)

# Verdicts.
BAD = cython.declare(cython.int, 0)
MORE = cython.declare(cython.int, 1)
MESSAGE = cython.declare(cython.int, 2)

# Answers to a look at a place.
NO = cython.declare(cython.int, 0)
WAIT = cython.declare(cython.int, 1)
YES = cython.declare(cython.int, 2)

# Of an end that is being looked for.
WRONG = cython.declare(cython.longlong, -1)
LATER = cython.declare(cython.longlong, -2)

# Places in FORMS.
NONE = cython.declare(cython.int, -1)
DOC = cython.declare(cython.int, 0)
DOC_SWAPPED = cython.declare(cython.int, 1)
DOC_BYTES = cython.declare(cython.int, 2)
DOC_SIMPLE16 = cython.declare(cython.int, 3)
GO1 = cython.declare(cython.int, 4)
GO1_PLAIN = cython.declare(cython.int, 5)
GO1_SIMPLE16 = cython.declare(cython.int, 6)
LEAN = cython.declare(cython.int, 7)

NO_FLAW = cython.declare(cython.int, int(Flaw.NONE))
UNKNOWN = cython.declare(cython.int, int(Flaw.UNKNOWN))

# Compiled, the names above are C integers; this makes those that others use the module's attributes too.
globals().update(
    {
        "HEADER_BYTES": HEADER_BYTES, "TRAILER_BYTES": TRAILER_BYTES, "MAX_METADATA_ENTRIES": MAX_METADATA_ENTRIES,
        "MAX_METADATA_BYTES": MAX_METADATA_BYTES, "MAX_LEAN_PAYLOAD_BYTES": MAX_LEAN_PAYLOAD_BYTES,
        "MAX_UNKNOWN_BYTES": MAX_UNKNOWN_BYTES, "METADATA": METADATA, "PAYLOAD": PAYLOAD, "VERSION": VERSION,
        "BAD": BAD, "MORE": MORE, "MESSAGE": MESSAGE, "NO": NO, "WAIT": WAIT, "YES": YES,
    }
)  # fmt: skip


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _legal(byte_3: cython.int, little: cython.bint) -> cython.bint:
    return byte_3 <= 0x0F or (not little and byte_3 & 0x3C == 0)


def legal(byte_3: cython.int, little: cython.bint) -> bool:
    """Whether a byte 3 is one that the document allows: type 0 to 3 in either bit order.

    >>> [hex(b) for b in (0x0F, 0x10, 0x43) if legal(b, False)]
    ['0xf', '0x43']
    """
    return _legal(byte_3, little)


@cython.final
@cython.cclass
class Frames:
    """Bytes of one direction up to ``limit``, behind which none can follow if ``ended``, and the frame looked at.

    ``at`` is where it begins; a look leaves ``verdict``, and ``end``, ``known_end`` (of a frame that is not all here,
    -1 if unknown), ``form`` (a place in FORMS, -1 for none), ``op`` and ``flaw``.
    """

    buf: cython.const[cython.uchar][::1]
    limit: cython.longlong
    ended: cython.bint
    at: cython.longlong
    little: cython.bint
    verdict: cython.int
    end: cython.longlong
    known_end: cython.longlong
    form: cython.int
    op: cython.int
    flaw: cython.int

    def __init__(self, buf, limit: cython.longlong, ended: cython.bint):
        """Bind the bytes (a memoryview)."""
        self.buf = buf
        self.limit = limit
        self.ended = ended
        self.at = 0
        self.little = False
        self.verdict = BAD
        self.end = -1
        self.known_end = -1
        self.form = NONE
        self.op = -1
        self.flaw = NO_FLAW

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
        return YES if _legal(self.buf[at + 3], little) else NO

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
    def _empty(self, at: cython.longlong, end: cython.longlong) -> cython.bint:
        """Whether there is nothing but zeros."""
        while at < end:
            if self.buf[at] != 0:
                return False
            at += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, at: cython.longlong, size: cython.int) -> cython.longlong:
        value: cython.longlong = 0
        i: cython.int
        for i in range(size):
            value = value * 256 + self.buf[at + (size - 1 - i if self.little else i)]
        return value

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begins(self, at: cython.longlong, tag: cython.int) -> cython.int:
        """How many of a component's first three bytes (the tag, the head's magic) stand there; -1 if others do."""
        n: cython.int = 0
        if self.limit - at > 0:
            if self.buf[at] != tag:
                return -1
            n = 1
        if self.limit - at > 1:
            if self.buf[at + 1] != self.buf[self.at]:
                return -1
            n = 2
        if self.limit - at > 2:
            if self.buf[at + 2] != self.buf[self.at + 1]:
                return -1
            n = 3
        return n

    # -- verdicts

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _message(self, form: cython.int, end: cython.longlong) -> cython.void:
        self.verdict = MESSAGE
        self.form = form
        self.end = end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _more(self, form: cython.int, known_end: cython.longlong) -> cython.void:
        self.verdict = MORE
        self.form = form
        self.known_end = known_end

    # -- the frame at a place

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _split(self, at: cython.longlong) -> cython.void:
        """The frame at ``at``. MORE has a form once the 12 bytes of the header are here: cut, it is truncated."""
        here: cython.longlong = self.limit - at
        self.at = at
        self.verdict = BAD
        self.end = -1
        self.known_end = -1
        self.form = NONE
        self.op = -1
        self.flaw = NO_FLAW
        self.little = here > 0 and self.buf[at] == BIG_1
        if here > 0 and not self.little and self.buf[at] != BIG_0:
            return
        if here > 1 and self.buf[at + 1] != (BIG_0 if self.little else BIG_1):
            return
        if here < HEADER_BYTES:
            self._more(NONE, -1)
            return
        self.op = self.buf[at + 8]
        if self.little:
            self._tagged(GO1)
        elif not self._empty(at + 8, at + HEADER_BYTES) or not self._lean():
            self._tagged(DOC)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _lean(self) -> cython.bint:
        """The frame in the second codec's layout; False if it is none."""
        here: cython.longlong = self.limit - self.at
        op: cython.int = 0
        length: cython.longlong
        if here > 12:
            op = self.buf[self.at + 12]
        if here < 14:
            # A Nop without anything looks the same so far; where nothing follows it is one.
            if self.ended or op > MAX_OPCODE or (here == 13 and op == BIG_1):
                return False
            self._more(DOC, -1)
            return True
        if op > MAX_OPCODE or (op == BIG_0 and self.buf[self.at + 13] == BIG_1):
            return False
        if here < LEAN_HEADER_BYTES:
            self.op = op
            self._more(LEAN, -1)
            return True
        length = self._number(self.at + 24, 4)
        if length > MAX_LEAN_PAYLOAD_BYTES:
            return False
        self.op = op
        length += self.at + LEAN_HEADER_BYTES
        if length <= self.limit:
            self._message(LEAN, length)
        else:
            self._more(LEAN, length)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _tagged(self, form: cython.int) -> cython.void:
        """The frame by its tag: simple, with a component, or neither."""
        tag: cython.int = self.buf[self.at + 11]
        body: cython.longlong = self.at + HEADER_BYTES
        wide: cython.int = DOC_SIMPLE16 if form == DOC else GO1_SIMPLE16
        seen: cython.int
        following: cython.int
        if tag == 0:
            self._message(form, body)
            return
        seen = self._begins(body, tag)
        if seen == 3:
            self._component(form, tag)
        elif tag == METADATA or tag == PAYLOAD:
            following = self._head_at(body)
            if following == YES or (following == WAIT and self.ended and self.limit - body >= 3):
                self._message(wide, body)
            elif seen >= 0 or following == WAIT:
                self._more(form, -1)
            else:
                self._malformed(form)
        elif seen >= 0 and not self.ended:
            self._more(form, -1)
        else:
            self._message(wide, body)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _malformed(self, form: cython.int) -> cython.void:
        """What has no reading: Admin and Control messages may hold anything, so they go to the next head (2.14)."""
        kind: cython.int = self.buf[self.at + 3] >> 2
        if self.buf[self.at + 2] == VERSION and (kind == 2 or kind == 3):
            self._unknown(form)
        else:
            self.verdict = BAD
            self.form = NONE
            self.op = -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unknown(self, form: cython.int) -> cython.void:
        """Up to the next frame head or the end."""
        at: cython.longlong = self.at + HEADER_BYTES
        last: cython.longlong = min(self.limit, self.at + MAX_UNKNOWN_BYTES)
        answer: cython.int
        while at < last:
            if self.buf[at] == BIG_0 or self.buf[at] == BIG_1:
                answer = self._head_at(at)
                if answer == YES or (answer == WAIT and self.ended):
                    self.flaw = UNKNOWN
                    self._message(form, at)
                    return
                if answer == WAIT:
                    self._more(form, -1)
                    return
            at += 1
        if last < self.limit:
            self.verdict = BAD
            self.form = NONE
            self.op = -1
        elif self.ended:
            self.flaw = UNKNOWN
            self._message(form, self.limit)
        else:
            self._more(form, -1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _component(self, form: cython.int, tag: cython.int) -> cython.void:
        """The frame with the component that its tag announces."""
        if self.limit - self.at < HEADER_BYTES + COMPONENT_HEAD_BYTES:
            self._more(form, -1)
        elif tag != METADATA and tag != PAYLOAD:
            self._unknown(form)
        elif form == DOC:
            self._doc(tag)
        elif tag == PAYLOAD:
            self._go1_payload()
        else:
            self._go1_metadata()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _payload_end(self) -> cython.longlong:
        """Where a payload ends whose lengths count bytes."""
        at: cython.longlong = self.at + 16
        return self.at + 20 + self.buf[at] + self.buf[at + 1] + self._number(at + 2, 2)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _metadata_end(self) -> cython.longlong:
        """Where so many entries end; WRONG if they cannot, LATER if the bytes end first."""
        count: cython.longlong = self._number(self.at + 16, 4)
        at: cython.longlong = self.at + 20
        i: cython.longlong
        if count > MAX_METADATA_ENTRIES:
            return WRONG
        for i in range(count):
            if at + 2 > self.limit:
                return LATER
            at += 2 + self.buf[at + 1]
            if at - self.at > MAX_METADATA_BYTES:
                return WRONG
        return at if at <= self.limit else LATER

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _block_end(self) -> cython.longlong:
        """Where a metadata block of so many bytes ends; WRONG if it does not hold whole entries."""
        at: cython.longlong = self.at + 20
        end: cython.longlong = at + self._number(self.at + 16, 4)
        if end - at > MAX_METADATA_BYTES:
            return WRONG
        if end > self.limit:
            return LATER
        while at + 2 <= end:
            at += 2 + self.buf[at + 1]
        return end if at == end else WRONG

    # -- go1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _tail(self, end: cython.longlong, size: cython.longlong) -> cython.longlong:
        """Where the codec's tail behind ``end`` ends; ``end`` if there is none, LATER if it is not here yet."""
        behind: cython.int
        if self._head_at(end) == YES:
            return end
        if self.limit - end < size:
            if not self.ended:
                return LATER
            return self.limit if self._empty(end, self.limit) else end
        if self._empty(end, end + size):
            return end + size
        behind = self._clean(end + size)
        if behind == WAIT:
            return LATER
        return end + size if behind == YES else end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _go1_metadata(self) -> cython.void:
        end: cython.longlong = self._metadata_end()
        if end == WRONG:
            self._malformed(GO1)
            return
        if end != LATER:
            end = self._tail(end, TRAILER_BYTES)
        if end != LATER:
            self._message(GO1, end)
        else:
            self._more(GO1, -1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _go1_payload(self) -> cython.void:
        """Names of four bytes and the tail; without the tail, lengths that count bytes (2.11)."""
        plain: cython.longlong = self._payload_end()
        whole: cython.longlong = plain + TRAILER_BYTES  # the codec reserves what the length bytes say
        end: cython.longlong = plain
        tail: cython.longlong
        answer: cython.int
        i: cython.int
        for i in range(16, 18):
            if self.buf[self.at + i] != 0:
                end += 4 - self.buf[self.at + i]
        if min(end, plain) > self.limit:
            self._more(GO1, whole)
            return
        if end != plain and plain <= self.limit:
            # Names of other lengths than 0 and 4 are the codec's only if no frame begins where they would end.
            answer = self._clean(plain)
            if answer == YES:
                self._message(GO1_PLAIN, plain)
                return
            if answer == WAIT:
                self._more(GO1, whole)
                return
        if end > self.limit:
            self._more(GO1, whole)
            return
        tail = self._tail(end, whole - end)
        if tail == LATER:
            self._more(GO1, -1)
        elif tail > end:
            self._message(GO1, tail)
        elif plain <= self.limit:
            self._message(GO1_PLAIN, plain)
        else:
            self._more(GO1_PLAIN, plain)

    # -- doc

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _padded(self, end: cython.longlong) -> cython.int:
        """Whether a head or the end follows behind ``end`` and the zeros that belong to the frame; ``self.end``."""
        n: cython.longlong = 0
        answer: cython.int
        self.end = end
        # Zeros up to one more than a trailer has.
        while n <= TRAILER_BYTES and end + n < self.limit and self.buf[end + n] == 0:
            n += 1
        if end + n == self.limit and n <= TRAILER_BYTES and not self.ended:
            return WAIT
        if n > 0 and (n == (4 - (end - self.at) % 4) % 4 or n == TRAILER_BYTES):
            answer = self._clean(end + n)
            if answer == YES:
                self.end = end + n
            return answer
        return self._clean(end)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _exact(self, end: cython.longlong) -> cython.int:
        """Whether a reading that ends there ends at a head or the end."""
        if end == LATER:
            return NO if self.ended else WAIT
        return NO if end == WRONG else self._clean(end)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fallback(self, form: cython.int, other: cython.longlong, end: cython.longlong) -> cython.bint:
        """Another reading of a big-endian component, which ends at ``other``; False if it does not fit."""
        answer: cython.int = self._exact(other)
        if end == LATER and form == DOC_SWAPPED and other == self.limit:
            return False  # cut entries can look like a short payload that ends at the end
        if answer == NO:
            return False
        if answer == YES:
            self._message(form, other)
        else:
            self._more(DOC, -1)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _doc(self, tag: cython.int) -> cython.void:
        """Tags and counts as the legend has them; other readings only where that fails and they fit (2.8, 2.12)."""
        known: cython.longlong = -1
        end: cython.longlong
        other: cython.longlong
        answer: cython.int = NO
        if tag == PAYLOAD:
            known = self._payload_end()
            end = known if known <= self.limit else LATER
        else:
            end = self._metadata_end()
        if end == LATER and not self.ended:
            self._more(DOC, known)
            return
        if end >= 0:
            answer = self._padded(end)
        if answer == YES:
            self._message(DOC, self.end)
            return
        self.end = -1
        if answer == WAIT:
            self._more(DOC, -1)
            return
        if tag == METADATA:
            if self._fallback(DOC_BYTES, self._block_end(), end):
                return
            other = self._payload_end()
            if self._fallback(DOC_SWAPPED, other if other <= self.limit else LATER, end):
                return
        elif self._fallback(DOC_SWAPPED, self._metadata_end(), end):
            return
        if end >= 0:
            self._message(DOC, end)
        elif end == LATER:
            self._more(DOC, known)
        else:
            self._malformed(DOC)

    # -- what others ask

    def follows(self, at: cython.longlong) -> int:
        """Whether a frame head or the end stands at ``at``: YES, NO or WAIT."""
        return self._clean(at)

    def one(self, at: cython.longlong) -> tuple[int, int, int, int, int, int]:
        """The frame at ``at``, as ``stopped`` has it."""
        self._split(at)
        return self.stopped()

    def many(
        self,
        at: cython.longlong,
        starts: cython.longlong[::1],
        ends: cython.longlong[::1],
        forms: cython.longlong[::1],
        ops: cython.longlong[::1],
        flaws: cython.longlong[::1],
    ) -> tuple[int, int]:
        """The frames one after the other from ``at``: how many were put into the arrays, and where the next begins.

        It stops when the arrays are full, at the limit, or at what is no frame: ``stopped`` then tells of it.
        """
        n: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t = len(starts)
        self.verdict = MESSAGE
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
        return n, at

    def stopped(self) -> tuple[int, int, int, int, int, int]:
        """What the last look left: verdict, end, known_end, form, op and flaw."""
        return self.verdict, self.end, self.known_end, self.form, self.op, self.flaw

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
