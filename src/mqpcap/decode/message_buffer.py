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

# Rows of ``PacketIndex``: properties of a packet's payload.
OFFSET = cython.declare(cython.const[cython.int], 0)  # stream offset
LENGTH = cython.declare(cython.const[cython.int], 1)
TS_NS = cython.declare(cython.const[cython.int], 2)
NUMBER = cython.declare(cython.const[cython.int], 3)
FILE = cython.declare(cython.const[cython.int], 4)
ORDER = cython.declare(cython.const[cython.int], 5)  # among all packets of the input
ACK = cython.declare(cython.const[cython.int], 6)  # the other side's stream offset that it acknowledges
LAST = cython.declare(cython.const[cython.int], 7)  # how many packets later its bytes are complete

NAMES = (
    "start", "end", "layout", "op", "flaw", "flow", "side", "offset", "captured", "ts_ns", "end_ts_ns",
    "first_packet", "last_packet", "first_file", "gap_before", "resynced", "first_ack", "last_ack",
)  # fmt: skip
"""Rows of ``MessageBuffer``: properties of a message."""
TYPES = {"layout": np.int32, "flaw": np.uint8, "side": np.int8, "resynced": np.bool_}
"""Types of the arrays by name; all other arrays are int64."""
INITIAL_CAPACITY = 256
"""Initial capacity in messages; it doubles."""
CACHE_LINE = 8
"""Numbers in a line of the processor's cache."""

globals().update(
    {
        "OFFSET": OFFSET, "LENGTH": LENGTH, "TS_NS": TS_NS, "NUMBER": NUMBER,
        "FILE": FILE, "ORDER": ORDER, "ACK": ACK, "LAST": LAST,
    }
)  # fmt: skip


@cython.final
@cython.cclass
class PacketIndex:
    """The packets that carried the chunks of a window: a column each, adjacent for a chunk, sorted by offset."""

    cells: cython.const[cython.longlong][:, ::1]
    array: object

    def __init__(self, array: NDArray[np.int64]) -> None:
        """``array`` has the rows OFFSET to LAST."""
        if len(array) != LAST + 1:
            raise IndexError(f"{len(array)} rows of packets instead of {ACK + 1}")
        self.array = array
        self.cells = memoryview(array)

    def __reduce__(self) -> tuple[object, ...]:
        return PacketIndex, (self.array,)


@cython.final
@cython.cclass
class ChunkPackets:
    """The packets of one chunk: those of an index from ``first`` to ``first + count``. Made once a chunk, so small."""

    index: PacketIndex
    first_column: cython.Py_ssize_t
    count: cython.Py_ssize_t

    def __init__(self, index: PacketIndex, first_column: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        if first_column < 0 or count < 0 or first_column + count > index.cells.shape[1]:
            raise IndexError(f"{count} packets from {first_column} of {index.cells.shape[1]}")
        self.index = index
        self.first_column = first_column
        self.count = count

    def __reduce__(self) -> tuple[object, ...]:
        return ChunkPackets, (PacketIndex(self.array().copy()), 0, self.count)

    def __len__(self) -> int:
        return self.count

    def array(self, count: int | None = None) -> NDArray[np.int64]:
        """The rows OFFSET to LAST of these packets, or of the first ``count``: a view."""
        return self.index.array[:, self.first_column : self.first_column + (self.count if count is None else count)]

    def first_index(self) -> int:
        """The index of the first packet."""
        return self.first_column

    def value(self, row: cython.int, k: cython.Py_ssize_t) -> int:
        """A property of the k-th packet; ``row``: OFFSET to LAST."""
        return self.index.cells[row, self.first_column + k]

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def packet_at(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """The packet with the byte at a stream offset; the first packet for earlier offsets."""
        low: cython.Py_ssize_t = self.first_column
        high: cython.Py_ssize_t = self.first_column + self.count
        middle: cython.Py_ssize_t
        while high - low > 1:
            middle = (low + high) // 2
            if self.index.cells[OFFSET, middle] <= offset:
                low = middle
            else:
                high = middle
        return low - self.first_column

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def completing(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """The packet that completes the byte at a stream offset."""
        k: cython.Py_ssize_t = self.packet_at(offset)
        return min(k + self.index.cells[LAST, self.first_column + k], self.count - 1)

    @cython.ccall
    @cython.nogil
    @cython.exceptval(check=False)
    def last_captured(self, first_packet: cython.Py_ssize_t, last_packet: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The packet captured last, by file and number, from ``first_packet`` to ``last_packet``."""
        best: cython.Py_ssize_t = self.first_column + last_packet
        k: cython.Py_ssize_t
        for k in range(self.first_column + last_packet - 1, self.first_column + first_packet - 1, -1):
            if self.index.cells[FILE, k] > self.index.cells[FILE, best] or (
                self.index.cells[FILE, k] == self.index.cells[FILE, best]
                and self.index.cells[NUMBER, k] > self.index.cells[NUMBER, best]
            ):
                best = k
        return best - self.first_column


@cython.final
@cython.cclass
class ScanHits:
    """The messages that a scan found: a column each, with start, end, form (index into ``layouts``), op, flaw.

    The arrays are bound once, as that takes longer than reading a message.
    """

    cells: cython.const[cython.longlong][:, ::1]
    layouts: cython.const[cython.longlong][::1]

    def __init__(self, cells: object, layouts: object) -> None:
        """``cells`` and ``layouts`` are memoryviews of int64."""
        self.cells = cells
        self.layouts = layouts


@cython.final
@cython.cclass
class MessageBuffer:
    """Messages found over one buffer, in the order found: a row for each of NAMES, a column for each message."""

    cells: cython.longlong[:, ::1]
    array: object
    count: cython.Py_ssize_t
    capacity: cython.Py_ssize_t

    def __init__(self) -> None:
        """Empty."""
        self.count = 0
        self.capacity = 0
        self._grow(INITIAL_CAPACITY)

    def _grow(self, capacity: cython.Py_ssize_t) -> None:
        # A message is written to all rows at once. Rows a power of two apart would evict each other from the cache.
        grown = np.empty((len(NAMES), capacity + CACHE_LINE), np.int64)
        if self.count:
            grown[:, : self.count] = self.array[:, : self.count]
        self.array = grown
        self.cells = memoryview(grown)
        self.capacity = capacity

    def put(
        self,
        hits: ScanHits,
        n: cython.Py_ssize_t,
        packets: ChunkPackets,
        base: cython.longlong,
        shift: cython.longlong,
        flow: cython.longlong,
        side: cython.longlong,
    ) -> None:
        """Add the first ``n`` messages that a scan found in a chunk.

        A position of the scan less ``base`` is the stream offset, plus ``shift`` the offset in the rows' buffer.
        """
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        first_column: cython.Py_ssize_t
        last_column: cython.Py_ssize_t
        latest: cython.Py_ssize_t
        columns_end: cython.Py_ssize_t = packets.first_column + packets.count
        start: cython.longlong
        end: cython.longlong
        layout: cython.longlong
        op: cython.longlong
        flaw: cython.longlong
        index: PacketIndex = packets.index
        if n > 0 and not packets.count:
            raise IndexError(f"{n} messages came in no packet")
        if self.count + n > self.capacity:
            self._grow(max(2 * self.capacity, self.count + n))
        with cython.nogil:  # one loop without calls: it runs for each message
            i = self.count
            first_column = packets.first_column + packets.packet_at(hits.cells[0, 0] - base) if n > 0 else 0
            for k in range(n):
                start = hits.cells[0, k]
                end = hits.cells[1, k]
                layout = hits.layouts[hits.cells[2, k]]
                op = hits.cells[3, k]
                flaw = hits.cells[4, k]
                with cython.boundscheck(False):  # the packets exist, and the capacity suffices
                    while first_column + 1 < columns_end and index.cells[OFFSET, first_column + 1] <= start - base:
                        first_column += 1
                    last_column = first_column
                    while last_column + 1 < columns_end and index.cells[OFFSET, last_column + 1] < end - base:
                        last_column += 1
                    last_column = min(last_column + index.cells[LAST, last_column], columns_end - 1)
                    latest = last_column
                    if last_column > first_column:
                        latest = packets.first_column + packets.last_captured(
                            first_column - packets.first_column, last_column - packets.first_column
                        )
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
                    self.cells[9, i] = index.cells[TS_NS, first_column]
                    self.cells[10, i] = index.cells[TS_NS, latest]
                    self.cells[11, i] = index.cells[NUMBER, first_column]
                    self.cells[12, i] = index.cells[NUMBER, latest]
                    self.cells[13, i] = index.cells[FILE, first_column]
                    self.cells[14, i] = 0
                    self.cells[15, i] = 0
                    self.cells[16, i] = index.cells[ACK, first_column]
                    self.cells[17, i] = index.cells[ACK, last_column]
                i += 1
            self.count = i

    def mark(self, k: cython.Py_ssize_t, gap: cython.longlong, resynced: cython.longlong) -> None:
        """Set the bytes missing before the k-th message, and whether a search found it."""
        if not 0 <= k < self.count:
            raise IndexError(f"message {k} of {self.count}")
        self.array[NAMES.index("gap_before"), k] = gap
        self.array[NAMES.index("resynced"), k] = resynced

    def add(self, row: dict[str, int]) -> None:
        """Add one message, its values by NAMES."""
        if self.count >= self.capacity:
            self._grow(2 * self.capacity)
        self.array[:, self.count] = [row[name] for name in NAMES]
        self.count += 1

    def __len__(self) -> int:
        return self.count

    def take_all(self) -> dict[str, Any]:
        """All messages in order of time, an array for each of NAMES; the buffer is then empty."""
        n = self.count
        rows = self.array[:, :n]
        ts_ns, packet, offset = (rows[NAMES.index(name)] for name in ("ts_ns", "first_packet", "offset"))
        order = time_order(ts_ns, packet, offset)
        taken = {
            name: rows[i].take(order).astype(TYPES.get(name, np.int64), copy=False) for i, name in enumerate(NAMES)
        }
        self.count = 0
        if self.capacity > 2 * n + INITIAL_CAPACITY:
            self._grow(n + INITIAL_CAPACITY)
        return taken


def time_order(ts_ns: NDArray[np.int64], packet: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.intp]:
    """Rows in order of time, then of packet, then of stream offset, so that decoded rows need no sorting."""
    order = np.argsort(packet, kind="stable")
    # Some captures have packets out of order of time.
    return order if is_sorted(x.take(order) for x in (ts_ns, packet, offset)) else np.lexsort((offset, packet, ts_ns))
