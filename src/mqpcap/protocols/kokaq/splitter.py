# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the ends of kokaq's frames, and the variant that reads each frame.

A kokaq frame does not say how long it is. A rule lists variants in order: **the first that ends at a header or at the
end of the stream is taken**. The package declares the rule; this module has the words it is written in and the loops
over bytes.

Any bytes give a frame, a request for more bytes, or no frame; never an exception. The result does not depend on how the
stream was cut into packets. The limits below bound every search. The same file runs uncompiled.
"""

import cython

from mqpcap.schema.flaws import Flaw

FORMS = ("doc", "doc_swapped", "doc_bytes", "doc_simple16", "go1", "go1_plain", "go1_simple16", "lean")
"""The forms of frames; each direction has a layout for each form."""
END_RULES = ("header", "lean", "payload", "odd payload", "numbered", "entries", "block", "next header")
"""How the end of a variant is computed.

header        the frame is a header and nothing else
lean          28 bytes and a payload, if the bytes fit the second codec
payload       the payload component's lengths, which count bytes
odd payload   as ``payload``, if a name is not four bytes long
numbered      as ``payload``, but each name with a length above 0 has four bytes
entries       the metadata component's count of entries
block         the metadata component's size in bytes; whole entries must fill it
next header   unknown: the frame goes on up to the next header
"""
END_CONDITIONS = ("anything", "boundary", "three bytes", "boundary, uncut", "padding", "tail")
"""What must follow that end. A boundary is a header or the end of the stream.

anything          no condition
boundary          a boundary
three bytes       a boundary; a header that the stream's end truncates needs three bytes
boundary, uncut   a boundary, but not the end of a stream that ended before an earlier variant did
padding           a boundary, or zeros and a boundary: up to a multiple of four bytes, or as many as a tail has
tail              the first codec's tail: 12 bytes, zeros unless a value was too long (request.go:130,158)
"""

HEADER_BYTES = cython.declare(cython.const[cython.int], 12)
COMPONENT_BYTES = cython.declare(cython.const[cython.int], 20)  # the header and the first fields of a component
LEAN_BYTES = cython.declare(cython.const[cython.int], 28)
TRAILER_BYTES = cython.declare(cython.const[cython.int], 12)  # request.go:130,158: a component of 8 bytes is given 20
MAX_METADATA_ENTRIES = cython.declare(cython.const[cython.longlong], 4096)
MAX_METADATA_BYTES = cython.declare(cython.const[cython.longlong], 1 << 20)
MAX_UNKNOWN_BYTES = cython.declare(cython.const[cython.longlong], 1 << 20)  # how far the next header is searched for
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

# Whether a header or boundary is at an offset. WAIT: more bytes are needed.
NO = cython.declare(cython.const[cython.int], 0)
WAIT = cython.declare(cython.const[cython.int], 1)
YES = cython.declare(cython.const[cython.int], 2)

# Results of the functions that compute an end, besides offsets.
NO_FIT = cython.declare(cython.const[cython.longlong], -1)  # the variant does not fit
UNDECIDED = cython.declare(cython.const[cython.longlong], -2)  # more bytes are needed
TRUNCATED = cython.declare(cython.const[cython.longlong], -3)  # more bytes are needed, and the variant is decided
NO_VARIANT = cython.declare(cython.const[cython.longlong], -4)  # no variant fits

# Indices into FORMS, ENDS and FOLLOWED_BY. A frame is DOC or GO1, by its magic, until its variant is decided.
DOC = cython.declare(cython.const[cython.int], 0)
GO1 = cython.declare(cython.const[cython.int], 4)
HEADER = cython.declare(cython.const[cython.int], 0)
LEAN = cython.declare(cython.const[cython.int], 1)
ODD_PAYLOAD = cython.declare(cython.const[cython.int], 3)
NUMBERED = cython.declare(cython.const[cython.int], 4)
ENTRIES = cython.declare(cython.const[cython.int], 5)
BLOCK = cython.declare(cython.const[cython.int], 6)
NEXT_HEADER = cython.declare(cython.const[cython.int], 7)
ANYTHING = cython.declare(cython.const[cython.int], 0)
THREE = cython.declare(cython.const[cython.int], 2)
UNLESS_LONGER = cython.declare(cython.const[cython.int], 3)
PADDING = cython.declare(cython.const[cython.int], 4)
TAIL = cython.declare(cython.const[cython.int], 5)

UNKNOWN = cython.declare(cython.int, int(Flaw.UNKNOWN))

# Compiled, the names above are C integers. This adds those that the package imports to the module's attributes.
globals().update(
    {
        "HEADER_BYTES": HEADER_BYTES, "TRAILER_BYTES": TRAILER_BYTES, "MAX_METADATA_ENTRIES": MAX_METADATA_ENTRIES,
        "MAX_METADATA_BYTES": MAX_METADATA_BYTES, "MAX_LEAN_PAYLOAD_BYTES": MAX_LEAN_PAYLOAD_BYTES,
        "METADATA": METADATA, "PAYLOAD": PAYLOAD, "OTHER": OTHER, "VERSION": VERSION, "WAIT": WAIT, "YES": YES,
    }
)  # fmt: skip


@cython.ccall
def legal(byte_3: cython.int, little: cython.bint) -> cython.bint:
    """Whether the document allows this byte 3: type 0 to 3 in either bit order.

    >>> [hex(b) for b in (0x0F, 0x10, 0x43) if legal(b, False)]
    ['0xf', '0x43']
    """
    return byte_3 <= 0x0F or (not little and byte_3 & 0x3C == 0)


@cython.final
@cython.cclass
class SplitFrames:
    """The bytes of one direction up to ``limit``, and the last frame found in them.

    ended    no byte can follow ``limit``
    rule     int32: by magic and tag the variants: form, index into END_RULES, index into END_CONDITIONS; or -1

    The result of a search: ``verdict``, ``end``, ``known_end`` (of a frame that is not all here; -1 if unknown),
    ``form`` (-1 for none), ``op`` and ``flaw``. ``offset`` is the offset of the frame. No header is in the bytes from
    ``searched_from`` to ``searched_to``, as the searches of earlier frames have found.
    """

    rule: cython.const[cython.int][:, :, ::1]
    buf: cython.const[cython.uchar][::1]
    limit: cython.longlong
    ended: cython.bint
    offset: cython.longlong
    little: cython.bint
    is_longer_truncated: cython.bint
    tail_end: cython.longlong
    verdict: cython.int
    end: cython.longlong
    known_end: cython.longlong
    form: cython.int
    op: cython.int
    flaw: cython.int
    searched_from: cython.longlong
    searched_to: cython.longlong

    def __init__(self, rule: object, buf: object, limit: cython.longlong, ended: cython.bint) -> None:
        """Bind memoryviews of the rule and of the bytes."""
        self.rule = rule
        self.buf = buf
        self.limit = limit
        self.ended = ended
        self.searched_from = 0
        self.searched_to = -1
        self._set_result(BAD, -1, -1)

    @cython.cfunc
    def _set_result(self, verdict: cython.int, form: cython.int, known_end: cython.longlong) -> cython.void:
        """Sets the result. ``end`` and ``flaw`` of a message are set by the caller."""
        self.verdict = verdict
        self.form = form
        self.known_end = known_end
        if verdict == BAD:
            self.op = -1
        if verdict != MESSAGE:
            self.end = -1
            self.flaw = 0

    # -- bytes at an offset

    @cython.cfunc
    def _header_at(self, offset: cython.longlong) -> cython.int:
        """Whether a header stands there: magic, version 1 and a legal byte 3."""
        n: cython.longlong = self.limit - offset
        little: cython.bint
        if n <= 0:
            return WAIT
        little = self.buf[offset] == BIG_1
        if not little and self.buf[offset] != BIG_0:
            return NO
        if n > 1 and self.buf[offset + 1] != (BIG_0 if little else BIG_1):
            return NO
        if n > 2 and self.buf[offset + 2] != VERSION:
            return NO
        if n < 4:
            return WAIT
        return YES if legal(self.buf[offset + 3], little) else NO

    @cython.cfunc
    def _boundary_at(self, offset: cython.longlong) -> cython.int:
        """Whether a header or the end of the stream is there. A header that the end truncates counts."""
        answer: cython.int
        if offset > self.limit:
            return NO if self.ended else WAIT
        answer = self._header_at(offset)
        return YES if answer == WAIT and self.ended else answer

    @cython.cfunc
    def _zero_count(self, offset: cython.longlong, max_count: cython.longlong) -> cython.longlong:
        """The number of zero bytes there, at most ``max_count``."""
        n: cython.longlong = 0
        while n < max_count and offset + n < self.limit and self.buf[offset + n] == 0:
            n += 1
        return n

    @cython.cfunc
    def _integer(self, offset: cython.longlong, size: cython.int) -> cython.longlong:
        value: cython.longlong = 0
        i: cython.int
        for i in range(size):
            value = value * 256 + self.buf[offset + (size - 1 - i if self.little else i)]
        return value

    # -- the end of a variant

    @cython.cfunc
    def _variant_end(self, how: cython.int) -> cython.longlong:
        """The end by an END_RULES rule, or NO_FIT, UNDECIDED, TRUNCATED, NO_VARIANT. Sets ``tail_end``."""
        i: cython.int
        self.known_end = -1
        if how == HEADER:
            return self.offset + HEADER_BYTES
        if how == LEAN:
            return self._lean_end()
        # A component begins with the tag and the magic of the header.
        for i in range(3):
            if self.offset + HEADER_BYTES + i >= self.limit:
                return UNDECIDED
            if self.buf[self.offset + HEADER_BYTES + i] != self.buf[self.offset + (11 if i == 0 else i - 1)]:
                return NO_FIT
        if self.limit - self.offset < COMPONENT_BYTES:
            return TRUNCATED if how == NEXT_HEADER else UNDECIDED
        if how == NEXT_HEADER:
            return self._next_header()
        if how == ENTRIES:
            return self._entries_end()
        return self._block_end() if how == BLOCK else self._payload_end(how)

    @cython.cfunc
    def _lean_end(self) -> cython.longlong:
        available: cython.longlong = self.limit - self.offset
        op: cython.int = self.buf[self.offset + 12] if available > 12 else 0
        if self._integer(self.offset + 8, 4) != 0 or op > MAX_LEAN_OPCODE:
            return NO_FIT
        if available < 14:
            return UNDECIDED  # a Nop without a component begins with the same bytes
        if op == BIG_0 and self.buf[self.offset + 13] == BIG_1:
            return NO_FIT
        if available >= LEAN_BYTES:
            self.known_end = self._integer(self.offset + 24, 4)
            if self.known_end > MAX_LEAN_PAYLOAD_BYTES:
                return NO_FIT
            self.known_end += self.offset + LEAN_BYTES
        self.op = op
        return self.known_end if 0 <= self.known_end <= self.limit else TRUNCATED

    @cython.cfunc
    def _payload_end(self, how: cython.int) -> cython.longlong:
        plain: cython.longlong = self.offset + COMPONENT_BYTES + self._integer(self.offset + 18, 2)
        end: cython.longlong = plain
        size: cython.int
        i: cython.int
        for i in range(16, 18):
            size = self.buf[self.offset + i]
            plain += size
            end += 4 if size else 0
        self.tail_end = plain + TRAILER_BYTES  # the codec reserves what the lengths say
        if how == NUMBERED:
            self.known_end = self.tail_end
            return end if end <= self.limit else TRUNCATED
        if how == ODD_PAYLOAD and end == plain:
            return NO_FIT
        self.known_end = plain
        return plain if plain <= self.limit else UNDECIDED

    @cython.cfunc
    def _entries_end(self) -> cython.longlong:
        count: cython.longlong = self._integer(self.offset + 16, 4)
        offset: cython.longlong = self.offset + COMPONENT_BYTES
        i: cython.longlong
        if count > MAX_METADATA_ENTRIES:
            return NO_FIT
        for i in range(count):
            if offset + 2 > self.limit:
                return UNDECIDED
            offset += 2 + self.buf[offset + 1]
            if offset - self.offset > MAX_METADATA_BYTES:
                return NO_FIT
        self.tail_end = offset + TRAILER_BYTES
        return offset if offset <= self.limit else UNDECIDED

    @cython.cfunc
    def _block_end(self) -> cython.longlong:
        offset: cython.longlong = self.offset + COMPONENT_BYTES
        end: cython.longlong = offset + self._integer(self.offset + 16, 4)
        count: cython.longlong = 0
        if end - offset > MAX_METADATA_BYTES:
            return NO_FIT
        if end > self.limit:
            return UNDECIDED
        while offset + 2 <= end and count < MAX_METADATA_ENTRIES:
            offset += 2 + self.buf[offset + 1]
            count += 1
        return end if offset == end else NO_FIT

    @cython.cfunc
    def _next_header(self) -> cython.longlong:
        offset: cython.longlong = self.offset + HEADER_BYTES
        search_end: cython.longlong = min(self.limit, self.offset + MAX_UNKNOWN_BYTES)
        answer: cython.int = NO
        if self.searched_from <= offset <= self.searched_to:
            offset = min(self.searched_to, search_end)  # no byte is searched twice
        else:
            self.searched_from = offset
            self.searched_to = offset
        while offset < search_end:
            if self.buf[offset] == BIG_0 or self.buf[offset] == BIG_1:
                answer = self._boundary_at(offset)
                if answer != NO:
                    break
            offset += 1
        self.searched_to = max(self.searched_to, offset)
        if offset == search_end and search_end < self.limit:
            return NO_VARIANT
        if (answer if offset < search_end else self._boundary_at(offset)) == WAIT:
            return UNDECIDED
        self.flaw = UNKNOWN
        return offset

    # -- what follows it

    @cython.cfunc
    def _is_followed_by(self, condition: cython.int, end: cython.longlong) -> cython.int:
        """Whether a condition of END_CONDITIONS holds. Sets ``self.end``: padding and tail belong to the frame."""
        n: cython.longlong
        self.end = end
        if condition == ANYTHING:
            return YES
        if condition == THREE and self.limit - end < 3:
            return WAIT if self._header_at(end) == WAIT else NO
        if condition == UNLESS_LONGER and self.is_longer_truncated and end == self.limit:
            return NO
        if condition == TAIL:
            return self._tail_follows(end)
        if condition == PADDING:
            n = self._zero_count(end, TRAILER_BYTES + 1)
            if end + n == self.limit and n <= TRAILER_BYTES and not self.ended:
                return WAIT
            if n > 0 and (n == (4 - (end - self.offset) % 4) % 4 or n == TRAILER_BYTES):
                self.end = end + n
        return self._boundary_at(self.end)

    @cython.cfunc
    def _tail_follows(self, end: cython.longlong) -> cython.int:
        """Whether the codec's tail follows: zeros, which a reset may cut, or any bytes up to a boundary."""
        if self._header_at(end) == YES:
            return NO
        if self.tail_end > self.limit:
            self.end = self.limit
            if not self.ended:
                return WAIT
            return YES if end < self.limit and self._zero_count(end, self.limit - end) == self.limit - end else NO
        self.end = self.tail_end
        return (
            YES
            if self._zero_count(end, self.tail_end - end) == self.tail_end - end
            else self._boundary_at(self.tail_end)
        )

    # -- the frame at an offset

    @cython.cfunc
    def _find_frame(self, offset: cython.longlong) -> cython.void:
        """Finds the frame at an offset. MORE has a form once the 12 bytes of the header are there."""
        available: cython.longlong = self.limit - offset
        tag: cython.int
        k: cython.Py_ssize_t
        undecided: cython.int
        follower: cython.int
        answer: cython.int
        end: cython.longlong = NO_FIT
        self.offset = offset
        self.is_longer_truncated = False
        self._set_result(BAD, -1, -1)
        self.little = available > 0 and self.buf[offset] == BIG_1
        if available > 0 and self.buf[offset] != (BIG_1 if self.little else BIG_0):
            return
        if available > 1 and self.buf[offset + 1] != (BIG_0 if self.little else BIG_1):
            return
        if available < HEADER_BYTES:
            self._set_result(MORE, -1, -1)
            return
        self.op = self.buf[offset + 8]
        tag = min(self.buf[offset + 11], OTHER) + (OTHER + 1 if self.little else 0)
        undecided = GO1 if self.little else DOC
        for k in range(self.rule.shape[1]):
            if self.rule[tag, k, 0] < 0 or end == NO_VARIANT:
                break
            end, follower = self._variant_end(self.rule[tag, k, 1]), self.rule[tag, k, 2]
            if end >= 0:
                answer = self._is_followed_by(follower, end)
                if answer == YES:
                    self._set_result(MESSAGE, self.rule[tag, k, 0], -1)
                    return
                if answer == WAIT:
                    self._set_result(MORE, undecided, -1)
                    return
            elif end == TRUNCATED:
                self._set_result(MORE, self.rule[tag, k, 0], self.known_end)
                return
            elif end == UNDECIDED and not self.ended:
                # Only the first variant shows how many bytes are needed; the later variants are tried if it fails.
                self._set_result(MORE, undecided, self.known_end if follower == PADDING else -1)
                return
            elif end == UNDECIDED and follower == PADDING:
                self.is_longer_truncated = True
        if end == UNDECIDED:
            self._set_result(MORE, undecided, self.known_end)
        else:
            self._find_unknown(undecided)

    @cython.cfunc
    def _find_unknown(self, form: cython.int) -> cython.void:
        """A frame without a variant. Admin and Control messages have no defined content; they end at a header."""
        kind: cython.int = self.buf[self.offset + 3] >> 2
        end: cython.longlong = NO_VARIANT
        if self.buf[self.offset + 2] == VERSION and (kind == 2 or kind == 3):
            end = self._next_header()
        if end >= 0:
            self.end = end
            self._set_result(MESSAGE, form, -1)
        else:
            self._set_result(MORE if end == UNDECIDED else BAD, form if end == UNDECIDED else -1, -1)

    # -- for the package

    def follows(self, offset: cython.longlong) -> int:
        """Whether a header or the end of the stream is at ``at``: YES, NO or WAIT."""
        return self._boundary_at(offset)

    def one(self, offset: cython.longlong) -> tuple[int, int, int, int, int, int]:
        """The frame at ``at``: verdict, end, known_end, form, op and flaw."""
        self._find_frame(offset)
        return self.verdict, self.end, self.known_end, self.form, self.op, self.flaw

    def scan(
        self,
        offset: cython.longlong,
        starts: cython.longlong[::1],
        ends: cython.longlong[::1],
        forms: cython.longlong[::1],
        ops: cython.longlong[::1],
        flaws: cython.longlong[::1],
    ) -> tuple[int, int, int, int, int]:
        """Writes the frames that follow each other from ``at`` into the arrays.

        Stops when the arrays are full (MESSAGE), at the limit, or at what is not a whole frame. Returns the number of
        frames, the verdict, the offset of the next frame, its known_end and its form.
        """
        n: cython.Py_ssize_t = 0
        capacity: cython.Py_ssize_t = len(starts)
        self._set_result(MORE, -1, -1)
        while offset < self.limit and n < capacity:
            self._find_frame(offset)
            if self.verdict != MESSAGE:
                break
            starts[n] = offset
            ends[n] = self.end
            forms[n] = self.form
            ops[n] = self.op
            flaws[n] = self.flaw
            n += 1
            offset = self.end
        return n, self.verdict, offset, self.known_end, self.form

    @cython.cfunc
    def _run_at(self, offset: cython.longlong, min_consecutive: cython.int) -> cython.int:
        """Whether ``min_consecutive`` frames follow there, or fewer that end exactly at the end of the stream.

        The end may truncate the last frame.
        """
        k: cython.int = 0
        while offset < self.limit:
            self._find_frame(offset)
            k += 1
            if self.verdict == MORE and self.ended and k > 1 and min_consecutive <= k and self.known_end >= 0:
                return YES
            if self.verdict != MESSAGE:
                return WAIT if self.verdict == MORE else NO
            offset = self.end
            if k >= min_consecutive or (self.ended and offset == self.limit):
                return YES
        return WAIT

    def search(self, offset: cython.longlong, min_consecutive: cython.int) -> tuple[int, bool]:
        """The first offset where ``_run_at`` finds ``min_consecutive`` frames.

        If there is no such offset (False): the first offset where frames may begin once more bytes come.
        """
        answer: cython.int
        while offset + 2 < self.limit:
            if self.buf[offset + 2] == VERSION and (
                (self.buf[offset] == BIG_0 and self.buf[offset + 1] == BIG_1)
                or (self.buf[offset] == BIG_1 and self.buf[offset + 1] == BIG_0)
            ):
                answer = self._run_at(offset, min_consecutive)
                if answer == YES or (answer == WAIT and not self.ended):
                    return offset, answer == YES
            offset += 1
        return (self.limit if self.ended else offset), False
