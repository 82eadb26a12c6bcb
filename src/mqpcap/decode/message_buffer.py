# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False, cdivision=True
"""Packets of a chunk, and the messages found in it: rows of numbers.

``framing`` asks the packets when a message came, and collects the messages of a buffer here. A message begins with the
packet of its first byte. It is complete with the packet that was captured last among those that carry its bytes; after
a retransmission that need not be the packet of its last byte. The same file runs uncompiled.
"""

from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import is_sorted

# What is known of a packet's payload: rows of ``PacketIndex``.
AT = cython.declare(cython.const[cython.int], 0)  # its offset in the stream
SIZE = cython.declare(cython.const[cython.int], 1)
TS_NS = cython.declare(cython.const[cython.int], 2)
NUMBER = cython.declare(cython.const[cython.int], 3)
FILE = cython.declare(cython.const[cython.int], 4)
ORDER = cython.declare(cython.const[cython.int], 5)  # among all packets of the input
ACK = cython.declare(cython.const[cython.int], 6)  # the other side's stream offset that it acknowledges

NAMES = (
    "start", "end", "layout", "op", "flaw", "flow", "side", "offset", "captured", "ts_ns", "end_ts_ns",
    "first_packet", "last_packet", "first_file", "gap_before", "resynced", "first_ack", "last_ack",
)  # fmt: skip
"""What is known of a message: rows of ``MessageBuffer``."""
TYPES = {"layout": np.int32, "flaw": np.uint8, "side": np.int8, "resynced": np.bool_}
"""Types of the arrays by name; the others are int64."""
FIRST_ROOM = 256
"""Messages there is room for at first; it doubles."""
CACHE_LINE = 8
"""Numbers in a line of the processor's cache."""

globals().update({"AT": AT, "SIZE": SIZE, "TS_NS": TS_NS, "NUMBER": NUMBER, "FILE": FILE, "ORDER": ORDER, "ACK": ACK})


@cython.final
@cython.cclass
class PacketIndex:
    """The packets that carried the chunks of a window: a column each, those of one chunk side by side, by offset."""

    cells: cython.const[cython.longlong][:, ::1]
    array: object

    def __init__(self, array: NDArray[np.int64]):
        """Of an array with the rows AT to ACK."""
        if len(array) != ACK + 1:
            raise IndexError(f"{len(array)} rows of packets instead of {ACK + 1}")
        self.array = array
        self.cells = memoryview(array)

    def __reduce__(self):
        return PacketIndex, (self.array,)


@cython.final
@cython.cclass
class ChunkPackets:
    """The packets of one chunk: those of an index from ``first`` to ``first + count``. Made once a chunk, so small."""

    index: PacketIndex
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t

    def __init__(self, index: PacketIndex, first: cython.Py_ssize_t, count: cython.Py_ssize_t):
        if first < 0 or count < 0 or first + count > index.cells.shape[1]:
            raise IndexError(f"{count} packets from {first} of {index.cells.shape[1]}")
        self.index = index
        self.first = first
        self.count = count

    def __reduce__(self):
        return ChunkPackets, (PacketIndex(self.array().copy()), 0, self.count)

    def __len__(self) -> int:
        return self.count

    def array(self, count: int | None = None) -> NDArray[np.int64]:
        """The rows AT to ACK of these packets, or of ``count`` from the first of them on: a view."""
        return self.index.array[:, self.first : self.first + (self.count if count is None else count)]

    def place(self) -> int:
        """Where in the index they begin."""
        return self.first

    def value(self, row: cython.int, k: cython.Py_ssize_t) -> int:
        """What is known of the k-th packet: ``row`` is one of AT to ACK."""
        return self.index.cells[row, self.first + k]

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def holding(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """The packet with the byte at a stream offset; the first for what lies before it."""
        low: cython.Py_ssize_t = self.first
        high: cython.Py_ssize_t = self.first + self.count
        middle: cython.Py_ssize_t
        while high - low > 1:
            middle = (low + high) // 2
            if self.index.cells[AT, middle] <= offset:
                low = middle
            else:
                high = middle
        return low - self.first

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def newest(self, one: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The packet captured last, by file and number, among those from ``one`` to ``last``."""
        best: cython.Py_ssize_t = self.first + last
        k: cython.Py_ssize_t
        for k in range(self.first + last - 1, self.first + one - 1, -1):
            if self.index.cells[FILE, k] > self.index.cells[FILE, best] or (
                self.index.cells[FILE, k] == self.index.cells[FILE, best]
                and self.index.cells[NUMBER, k] > self.index.cells[NUMBER, best]
            ):
                best = k
        return best - self.first


@cython.final
@cython.cclass
class ScanHits:
    """What a scan found: a column for each message, with its start, end, form (an index into ``layouts``), op, flaw.

    The arrays are bound once, as that takes longer than reading a message.
    """

    cells: cython.const[cython.longlong][:, ::1]
    layouts: cython.const[cython.longlong][::1]

    def __init__(self, cells, layouts) -> None:
        """Of memoryviews of int64."""
        self.cells = cells
        self.layouts = layouts


@cython.final
@cython.cclass
class MessageBuffer:
    """Messages found over one buffer, in the order found: a row for each of NAMES, a column for each message."""

    cells: cython.longlong[:, ::1]
    array: object
    count: cython.Py_ssize_t
    room: cython.Py_ssize_t

    def __init__(self) -> None:
        """Empty."""
        self.count = 0
        self.room = 0
        self._grow(FIRST_ROOM)

    def _grow(self, room: cython.Py_ssize_t):
        # A message is written to all rows at once. Rows a power of two apart would evict each other from the cache.
        grown = np.empty((len(NAMES), room + CACHE_LINE), np.int64)
        if self.count:
            grown[:, : self.count] = self.array[:, : self.count]
        self.array = grown
        self.cells = memoryview(grown)
        self.room = room

    def put(
        self,
        hits: ScanHits,
        n: cython.Py_ssize_t,
        packets: ChunkPackets,
        base: cython.longlong,
        shift: cython.longlong,
        flow: cython.longlong,
        side: cython.longlong,
    ):
        """Add the first ``n`` messages that a scan found in a chunk.

        A place of the scan less ``base`` is the stream offset, and plus ``shift`` the place in the rows' buffer.
        """
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t
        last: cython.Py_ssize_t
        newest: cython.Py_ssize_t
        two: cython.Py_ssize_t = packets.first + packets.count
        start: cython.longlong
        end: cython.longlong
        layout: cython.longlong
        op: cython.longlong
        flaw: cython.longlong
        index: PacketIndex = packets.index
        if n > 0 and not packets.count:
            raise IndexError(f"{n} messages came in no packet")
        if self.count + n > self.room:
            self._grow(max(2 * self.room, self.count + n))
        with cython.nogil:
            i = self.count
            first = packets.first + packets.holding(hits.cells[0, 0] - base) if n > 0 else 0
            for k in range(n):
                start = hits.cells[0, k]
                end = hits.cells[1, k]
                layout = hits.layouts[hits.cells[2, k]]
                op = hits.cells[3, k]
                flaw = hits.cells[4, k]
                with cython.boundscheck(False):  # the packets are there, and there is room for the messages
                    while first + 1 < two and index.cells[AT, first + 1] <= start - base:
                        first += 1
                    last = first
                    while last + 1 < two and index.cells[AT, last + 1] < end - base:
                        last += 1
                    newest = last
                    if last > first:
                        newest = packets.first + packets.newest(first - packets.first, last - packets.first)
                    # In the order of NAMES.
                    self.cells[0, i] = start + shift
                    self.cells[1, i] = end + shift
                    self.cells[2, i] = layout
                    self.cells[3, i] = op
                    self.cells[4, i] = flaw
                    self.cells[5, i] = flow
                    self.cells[6, i] = side
                    self.cells[7, i] = start - base
                    self.cells[8, i] = end - start
                    self.cells[9, i] = index.cells[TS_NS, first]
                    self.cells[10, i] = index.cells[TS_NS, newest]
                    self.cells[11, i] = index.cells[NUMBER, first]
                    self.cells[12, i] = index.cells[NUMBER, newest]
                    self.cells[13, i] = index.cells[FILE, first]
                    self.cells[14, i] = 0
                    self.cells[15, i] = 0
                    self.cells[16, i] = index.cells[ACK, first]
                    self.cells[17, i] = index.cells[ACK, last]
                i += 1
            self.count = i

    def mark(self, k: cython.Py_ssize_t, gap: cython.longlong, resynced: cython.longlong):
        """Say of the k-th message that ``gap`` bytes are missing before it, and whether a search found it."""
        if not 0 <= k < self.count:
            raise IndexError(f"message {k} of {self.count}")
        self.array[NAMES.index("gap_before"), k] = gap
        self.array[NAMES.index("resynced"), k] = resynced

    def add(self, row: dict[str, int]):
        """Add one message, its values by NAMES."""
        if self.count >= self.room:
            self._grow(2 * self.room)
        self.array[:, self.count] = [row[name] for name in NAMES]
        self.count += 1

    def __len__(self) -> int:
        return self.count

    def taken(self) -> dict[str, Any]:
        """All messages in order of time, an array for each of NAMES; the buffer is then empty."""
        n = self.count
        found = self.array[:, :n]
        ts_ns, packet, offset = (found[NAMES.index(name)] for name in ("ts_ns", "first_packet", "offset"))
        order = time_order(ts_ns, packet, offset)
        taken = {
            name: found[i].take(order).astype(TYPES.get(name, np.int64), copy=False) for i, name in enumerate(NAMES)
        }
        self.count = 0
        if self.room > 2 * n + FIRST_ROOM:
            self._grow(n + FIRST_ROOM)
        return taken


def time_order(ts_ns: NDArray[np.int64], packet: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.intp]:
    """Rows in order of time, then of packet, then of stream offset, so that what is read of them needs no sorting."""
    order = np.argsort(packet, kind="stable")
    # Some captures have packets out of order of time.
    return order if is_sorted(x.take(order) for x in (ts_ns, packet, offset)) else np.lexsort((offset, packet, ts_ns))
