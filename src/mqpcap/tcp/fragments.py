"""Joins IP fragments to datagrams.

In: the fragments of packets. Out: payloads of complete datagrams. Called by: `Dissector` in ``headers``.

Fragments are copied and buffered until their datagram is complete. The first copy of a byte wins. The limits below
bound the buffer; the oldest datagram is dropped first, and counted.
"""

import struct
from collections import Counter

from mqpcap.records import dataclass
from mqpcap.tcp.ranges import Block, RangeList

MAX_FRAGMENT_BYTES = 64 << 20
"""Memory for fragments of incomplete datagrams."""
FRAGMENT_COST_BYTES = 96
"""Memory that a fragment takes beside its bytes; without it many tiny fragments would exceed the limit."""
MAX_FRAGMENT_DATAGRAMS = 4096
"""Incomplete datagrams that are buffered."""
MAX_FRAGMENTS_PER_DATAGRAM = 8192
"""Pieces of a datagram that are buffered; IP counts in steps of eight bytes, so there cannot be more."""
FRAGMENT_TIMEOUT_NS = 60_000_000_000
"""Time between fragments; after a longer pause the same identification means another datagram."""
MAX_DATAGRAM_BYTES = 65_535 - 20
"""Payload of the longest datagram."""

_KEY, _KEY_NUMBERS = struct.Struct(">7q").pack, struct.Struct(">7q").unpack
"""A crafted capture could make keys of numbers collide; Python hashes bytes with a secret of the process."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a datagram's payload: its offset and end, and the captured bytes."""

    offset: int
    end: int
    has_more: bool
    captured: bytes

    def fits(self, datagram: "_Datagram | None") -> bool:
        """Whether it can be a part of the datagram, or of a new datagram if that is None."""
        if self.end > MAX_DATAGRAM_BYTES or self.end == self.offset or (self.has_more and (self.end - self.offset) % 8):
            return False
        if datagram is None:
            return True
        if not self.has_more and datagram.reach > self.end:
            return False
        return datagram.total is None or (self.end <= datagram.total and (self.has_more or self.end == datagram.total))


class _Datagram:
    """Pieces of one datagram."""

    __slots__ = ("_count", "_pieces", "cost_bytes", "last_ts_ns", "packet_count", "reach", "total")

    def __init__(self) -> None:
        self.last_ts_ns = 0
        self.total: int | None = None
        self.reach = 0
        self.cost_bytes = 0
        self.packet_count = self._count = 0
        self._pieces = RangeList[Block]()

    def add(self, offset: int, data: bytes) -> None:
        """Add the bytes that are new: the first copy of a byte wins."""
        for piece in self._pieces.free(Block(offset, data)):
            if self._count < MAX_FRAGMENTS_PER_DATAGRAM:
                self._count += 1
                self._pieces.add(piece)
                self.cost_bytes += len(piece.body) + FRAGMENT_COST_BYTES

    def whole(self) -> bytes | None:
        """All bytes; None if bytes are missing."""
        if self.cost_bytes - self._count * FRAGMENT_COST_BYTES != self.total:
            return None
        return b"".join([piece.body for piece in self._pieces])


class Fragments:
    """Incomplete datagrams, oldest first, within the limits."""

    def __init__(self) -> None:
        self._datagrams: dict[bytes, _Datagram] = {}
        self._bytes = 0
        self.dropped = 0
        self.dropped_packets: Counter[int] = Counter()
        """Fragments of dropped datagrams, by IP protocol."""
        self.malformed = 0

    def __len__(self) -> int:
        return len(self._datagrams)

    def add(self, datagram_key: tuple[int, ...], ts_ns: int, fragment: Fragment) -> bytes | None:
        """The payload of the fragment's datagram, if the fragment completes it."""
        key = _KEY(*datagram_key)
        datagram = self._datagrams.get(key)
        if datagram is not None and abs(ts_ns - datagram.last_ts_ns) > FRAGMENT_TIMEOUT_NS:
            self._drop(key)
            datagram = None
        if not fragment.fits(datagram):
            self.malformed += 1
            return None
        if datagram is None:
            datagram = self._datagrams[key] = _Datagram()
        datagram.last_ts_ns = ts_ns
        datagram.packet_count += 1
        datagram.reach = max(datagram.reach, fragment.end)
        if not fragment.has_more:
            datagram.total = fragment.end
        cost_before = datagram.cost_bytes
        datagram.add(fragment.offset, fragment.captured)
        self._bytes += datagram.cost_bytes - cost_before
        payload = datagram.whole()
        if payload is not None:
            self._forget(key)
            return payload
        while self._bytes > MAX_FRAGMENT_BYTES or len(self._datagrams) > MAX_FRAGMENT_DATAGRAMS:
            self._drop(next(iter(self._datagrams)))
        return None

    def _forget(self, key: bytes) -> None:
        self._bytes -= self._datagrams.pop(key).cost_bytes

    def drop_all(self) -> None:
        """Drop the incomplete datagrams: no fragment follows."""
        for key in [*self._datagrams]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        self.dropped_packets[_KEY_NUMBERS(key)[-1]] += self._datagrams[key].packet_count
        self._forget(key)
        self.dropped += 1


def plain_packet(key: tuple[int, ...], payload: bytes) -> bytes:
    """A datagram as an IP packet without options."""
    version, src_hi, src_lo, dst_hi, dst_lo, _, proto = key
    if version == 4:
        head = bytes((0x45, 0)) + (20 + len(payload)).to_bytes(2, "big") + bytes((0, 0, 0, 0, 64, proto, 0, 0))
        return head + src_lo.to_bytes(4, "big") + dst_lo.to_bytes(4, "big") + payload
    head = bytes((0x60, 0, 0, 0)) + len(payload).to_bytes(2, "big") + bytes((proto, 64))
    halves = (src_hi, src_lo, dst_hi, dst_lo)
    return head + b"".join(half.to_bytes(8, "big", signed=True) for half in halves) + payload
