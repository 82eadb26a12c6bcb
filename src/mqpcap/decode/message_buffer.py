# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Packets of chunks and the messages found in them, as numbers.

``framing`` learns from them when and in which packets a message came, and collects rows here until a buffer is done.
A message begins with the packet of its first byte; it is whole with the packet that came last among those of its bytes,
which need not be the one of its last byte. The same file runs uncompiled.
"""

from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

# What is known of a packet's payload: rows of ``PacketIndex``.
AT = cython.declare(cython.const[cython.int], 0)  # its offset in the stream
SIZE = cython.declare(cython.const[cython.int], 1)
TS_NS = cython.declare(cython.const[cython.int], 2)
NUMBER = cython.declare(cython.const[cython.int], 3)
FILE = cython.declare(cython.const[cython.int], 4)
ORDER = cython.declare(cython.const[cython.int], 5)  # among all packets of the input

NAMES = (
    "start", "end", "layout", "op", "flaw", "flow", "side", "offset", "captured", "ts_ns", "end_ts_ns",
    "first_packet", "last_packet", "first_file", "last_file", "gap_before", "resynced",
)  # fmt: skip
"""What is known of a message: rows of ``MessageBuffer``."""
# Their places in NAMES.
M_START = cython.declare(cython.const[cython.int], 0)
M_END = cython.declare(cython.const[cython.int], 1)
M_LAYOUT = cython.declare(cython.const[cython.int], 2)
M_OP = cython.declare(cython.const[cython.int], 3)
M_FLAW = cython.declare(cython.const[cython.int], 4)
M_FLOW = cython.declare(cython.const[cython.int], 5)
M_SIDE = cython.declare(cython.const[cython.int], 6)
M_OFFSET = cython.declare(cython.const[cython.int], 7)
M_CAPTURED = cython.declare(cython.const[cython.int], 8)
M_TS_NS = cython.declare(cython.const[cython.int], 9)
M_END_TS_NS = cython.declare(cython.const[cython.int], 10)
M_FIRST_PACKET = cython.declare(cython.const[cython.int], 11)
M_LAST_PACKET = cython.declare(cython.const[cython.int], 12)
M_FIRST_FILE = cython.declare(cython.const[cython.int], 13)
M_LAST_FILE = cython.declare(cython.const[cython.int], 14)
M_GAP_BEFORE = cython.declare(cython.const[cython.int], 15)
M_RESYNCED = cython.declare(cython.const[cython.int], 16)
MESSAGE_ROWS = cython.declare(cython.const[cython.int], 17)
TYPES = {"layout": np.int32, "flaw": np.uint8, "side": np.int8, "resynced": np.bool_}
"""Their types; the others are int64."""
SOME = 256
"""Messages there is room for at first; it doubles."""
CACHE_LINE = 8
"""Numbers in a line of the processor's cache."""

globals().update({"AT": AT, "SIZE": SIZE, "TS_NS": TS_NS, "NUMBER": NUMBER, "FILE": FILE, "ORDER": ORDER})


@cython.final
@cython.cclass
class PacketIndex:
    """Packets that brought chunks: a column each, those of one chunk next to each other by offset."""

    cells: cython.const[cython.longlong][:, ::1]
    array: object

    def __init__(self, array: NDArray[np.int64]):
        """Of an array with the rows AT to ORDER."""
        self.array = array
        self.cells = memoryview(array)

    def __reduce__(self):
        return PacketIndex, (self.array,)

    def part(self, one: cython.Py_ssize_t, two: cython.Py_ssize_t) -> NDArray[np.int64]:
        """The packets from ``one`` to ``two``, in an array as this is made of."""
        return self.array[:, one:two]

    def value(self, row: cython.int, k: cython.Py_ssize_t) -> int:
        """What is known of the k-th packet."""
        return self.cells[row, k]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _when(self, offset: cython.longlong, one: cython.Py_ssize_t, two: cython.Py_ssize_t) -> cython.Py_ssize_t:
        low: cython.Py_ssize_t = one
        middle: cython.Py_ssize_t
        while two - low > 1:
            middle = (low + two) // 2
            if self.cells[AT, middle] <= offset:
                low = middle
            else:
                two = middle
        return low

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _newest(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
        best: cython.Py_ssize_t = last
        k: cython.Py_ssize_t = last - 1
        while k >= first:
            if self.cells[FILE, k] > self.cells[FILE, best] or (
                self.cells[FILE, k] == self.cells[FILE, best] and self.cells[NUMBER, k] > self.cells[NUMBER, best]
            ):
                best = k
            k -= 1
        return best

    def when(self, offset: cython.longlong, one: cython.Py_ssize_t, two: cython.Py_ssize_t) -> int:
        """The packet of ``one`` to ``two`` that holds the byte at a stream offset; ``one`` for what lies before it."""
        return self._when(offset, one, two)

    def newest(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> int:
        """The packet that came last among those from ``first`` to ``last``: the one that brought the missing bytes."""
        return self._newest(first, last)


@cython.final
@cython.cclass
class ScanHits:
    """Where a scan puts what it finds, as ``MessageBuffer`` takes it.

    starts, ends, ops: of each message. forms, flaws: its place in ``layouts``, and its flaw. Arrays are bound once, as
    binding them takes longer than a message.
    """

    starts: cython.const[cython.longlong][::1]
    ends: cython.const[cython.longlong][::1]
    forms: cython.const[cython.longlong][::1]
    ops: cython.const[cython.longlong][::1]
    flaws: cython.const[cython.longlong][::1]
    layouts: cython.const[cython.longlong][::1]

    def __init__(self, starts, ends, forms, ops, flaws, layouts) -> None:
        """Of memoryviews of int64."""
        self.starts, self.ends, self.forms = starts, ends, forms
        self.ops, self.flaws, self.layouts = ops, flaws, layouts


@cython.final
@cython.cclass
class MessageBuffer:
    """Messages found over one buffer, in the order in which they were found."""

    cells: cython.longlong[:, ::1]
    array: object
    count: cython.Py_ssize_t
    room: cython.Py_ssize_t

    def __init__(self) -> None:
        """None yet."""
        self.count = 0
        self.room = 0
        self._grow(SOME)

    def _grow(self, room: cython.Py_ssize_t):
        # A message is written to all rows at once; a power of two apart, they would share a place in the cache.
        grown = np.empty((MESSAGE_ROWS, room + CACHE_LINE), np.int64)
        if self.count:
            grown[:, : self.count] = self.array[:, : self.count]
        self.array = grown
        self.cells = memoryview(grown)
        self.room = room

    def put(
        self,
        hits: ScanHits,
        n: cython.Py_ssize_t,
        packets: PacketIndex,
        one: cython.Py_ssize_t,
        two: cython.Py_ssize_t,
        base: cython.longlong,
        shift: cython.longlong,
        flow: cython.longlong,
        side: cython.longlong,
        gap: cython.longlong,
        resynced: cython.longlong,
    ):
        """Take the first ``n`` messages found in a chunk in, which came with the packets ``one`` to ``two``.

        A place of ``starts`` and ``ends`` is a stream offset plus ``base``, and in the buffer of the rows it is
        ``shift`` further. Before the first are ``gap`` missing bytes, and it was found by a search if ``resynced``.
        """
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t
        last: cython.Py_ssize_t
        newest: cython.Py_ssize_t
        start: cython.longlong
        end: cython.longlong
        layout: cython.longlong
        op: cython.longlong
        flaw: cython.longlong
        if n > 0 and not 0 <= one < two <= packets.cells.shape[1]:
            raise IndexError(f"packets {one} to {two} of {packets.cells.shape[1]}")
        if self.count + n > self.room:
            self._grow(max(2 * self.room, self.count + n))
        with cython.nogil:
            i = self.count
            first = packets._when(hits.starts[0] - base, one, two) if n > 0 else one
            for k in range(n):
                start = hits.starts[k]
                end = hits.ends[k]
                layout = hits.layouts[hits.forms[k]]
                op = hits.ops[k]
                flaw = hits.flaws[k]
                with cython.boundscheck(False):  # the packets are there, and there is room for the messages
                    while first + 1 < two and packets.cells[AT, first + 1] <= start - base:
                        first += 1
                    last = first
                    while last + 1 < two and packets.cells[AT, last + 1] < end - base:
                        last += 1
                    newest = packets._newest(first, last) if last > first else last
                    self.cells[M_START, i] = start + shift
                    self.cells[M_END, i] = end + shift
                    self.cells[M_LAYOUT, i] = layout
                    self.cells[M_OP, i] = op
                    self.cells[M_FLAW, i] = flaw
                    self.cells[M_FLOW, i] = flow
                    self.cells[M_SIDE, i] = side
                    self.cells[M_OFFSET, i] = start - base
                    self.cells[M_CAPTURED, i] = end - start
                    self.cells[M_TS_NS, i] = packets.cells[TS_NS, first]
                    self.cells[M_END_TS_NS, i] = packets.cells[TS_NS, newest]
                    self.cells[M_FIRST_PACKET, i] = packets.cells[NUMBER, first]
                    self.cells[M_LAST_PACKET, i] = packets.cells[NUMBER, newest]
                    self.cells[M_FIRST_FILE, i] = packets.cells[FILE, first]
                    self.cells[M_LAST_FILE, i] = packets.cells[FILE, newest]
                    self.cells[M_GAP_BEFORE, i] = gap if k == 0 else 0
                    self.cells[M_RESYNCED, i] = resynced if k == 0 else 0
                i += 1
            self.count = i

    def add(self, row: tuple[int, ...]):
        """Take one message in, its values in the order of NAMES."""
        if self.count >= self.room:
            self._grow(2 * self.room)
        self.array[:, self.count] = row
        self.count += 1

    def __len__(self) -> int:
        return self.count

    def taken(self) -> dict[str, Any]:
        """All of them, by name; they are here no more, but their room is."""
        n = self.count
        self.count = 0
        return {name: self.array[i, :n].astype(TYPES.get(name, np.int64)) for i, name in enumerate(NAMES)}
