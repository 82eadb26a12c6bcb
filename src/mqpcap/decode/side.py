"""One direction of a connection: its chunks to messages.

The hard part is its state. A side has a layout but no byte yet (``BEGIN``), is in step (``SYNC``), searching
(``SEARCH``: after a gap, where the start is not known, after bad framing where the protocol allows it) or given up
(``STOP``). A message cut by a gap waits as ``cut``: where its length is known, the bytes after the gap still belong to
it, and the next message begins at its end without a search.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from mqpcap.decode import bytecode
from mqpcap.decode.frames import FoundMessages, Problem
from mqpcap.decode.scanning import LayoutScanner
from mqpcap.decode.stream_chunk import Packet, StreamChunk, join
from mqpcap.schema.flaws import Flaw

HEAD_BYTES = 64 << 10
"""Bytes of a message cut by a gap that are kept to read its header."""


class Step(IntEnum):
    """What a side is doing."""

    SYNC = 0
    SEARCH = 1
    STOP = 2
    BEGIN = 3


# A name of its own is read five times as fast as a member of its class (Python 3.11).
SYNC, SEARCH, STOP, BEGIN = Step


@dataclass(slots=True)
class _CutMessage:
    """A message with a hole; ``row`` is what is known of it, as in ``MessageBuffer``.

    end: its stream offset, -1 if its length is not known. head: its first bytes. last: the packet captured last.
    """

    protocol: str
    end: int
    head: bytes
    last: Packet
    row: dict[str, int]


@dataclass(slots=True)
class Side:
    """A side while its connection lives: ``number`` 0 is endpoint A.

    at        the stream offset up to which it is framed
    layout    the place of the layout that reads what comes next
    gap       bytes missing since the last message; ``resynced``: the next one was found by a search
    left      the beginning of a message that was held before the connection was decided
    skipped   a range that is no message, up to ``at``; its length is not set yet
    until     where the message ends whose beginning is left over, 0 if unknown
    open_since_ns   when the first byte was captured of what is left over and may be a whole message, as the next bytes
                    tell; None if nothing is
    """

    flow: int
    number: int
    at: int = 0
    layout: int = -1
    step: Step = SYNC
    stop_reason: str = "bad_framing"
    gap: int = 0
    resynced: bool = False
    messages: int = 0
    cut: _CutMessage | None = None
    left: StreamChunk | None = None
    skipped: Problem | None = None
    until: int = 0
    open_since_ns: int | None = None

    @property
    def unsettled_since_ns(self) -> int:
        """Since when it holds bytes that may become a message older than others given out: ``cut``, or what is open."""
        since = [self.open_since_ns, None if self.cut is None else self.cut.row["ts_ns"]]
        return min(ns for ns in since if ns is not None)

    def begin(self, layout: int, is_at_start: bool = False) -> None:
        """Read what comes in a layout; unless the first byte is known to begin a message, it must be searched for."""
        self.layout, self.step = layout, SYNC if is_at_start else BEGIN

    def give_up(self, reason: str) -> None:
        """Skip whatever comes."""
        self.step, self.stop_reason = STOP, reason

    def take(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], found: FoundMessages) -> int:
        """Frame a chunk; returns how many of its bytes are done with."""
        if self.left is not None:
            return self._take_behind(self.left, chunk, layouts, found)
        if self.step is BEGIN:
            self.step = SYNC if chunk.start_known else SEARCH
        stop = chunk.offset + chunk.length
        if chunk.offset > self.at:
            self._pass_gap(chunk.offset, found)
        self.until = 0
        if self.cut is not None:
            self._pass_cut(self.cut, chunk, found)
        while self.at < stop:
            if self.step is STOP:
                self._skip(chunk, stop, self.stop_reason)
            elif self.step is SEARCH:
                if not self._search(chunk, layouts, found):
                    break
            elif not self._scan(chunk, layouts, found):
                break
        if chunk.ended and (self.cut is not None or self.skipped is not None):
            self.end(found)
        return (stop if chunk.is_last else self.at) - chunk.offset

    def _take_behind(
        self, left: StreamChunk, chunk: StreamChunk, layouts: Sequence[LayoutScanner], found: FoundMessages
    ) -> int:
        """The same behind what was held."""
        self.left = None
        if left.offset + left.length != chunk.offset:
            self.take(replace(left, is_last=True), layouts, found)  # bytes are missing behind what was left
            return self.take(chunk, layouts, found)
        chunk = join([left, chunk])
        done = self.take(chunk, layouts, found)
        if done < left.length:
            self.left = chunk.copy(done, left.length)
        return max(done - left.length, 0)

    def take_held(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], found: FoundMessages) -> None:
        """Frame a chunk that was held; what is not done with stays here."""
        done = self.take(chunk, layouts, found)
        if done < chunk.length:
            rest = chunk.copy(done, chunk.length)
            self.left = rest if self.left is None else join([self.left, rest])

    def since_ns(self, chunk: StreamChunk, done: int) -> int:
        """When the first byte was captured of what is left over of a chunk, or of what is held in front of it."""
        return chunk.first_packet(chunk.offset + done)[0] if self.left is None else self.left.packet(0)[0]

    def end(self, found: FoundMessages) -> None:
        """Nothing more comes: give out the message with a hole and the range that is none."""
        self._end_cut(found)
        self._end_skip(found)

    # -- in step ---------------------------------------------------------------------------------------

    def _scan(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], found: FoundMessages) -> bool:
        """Frame what is in step; False when the rest of the chunk is no whole message yet."""
        scanner = layouts[self.layout]
        base, stop = chunk.start - chunk.offset, chunk.offset + chunk.length
        n, code, at, known_end, layout = scanner.scan(chunk.buffer, base + self.at, base + stop, chunk.is_last)
        if n:
            rows, shift = found.rows(scanner.protocol, chunk.buffer)
            rows.put(scanner.hits, n, chunk.packets, base, shift, self.flow, self.number)
            if self.gap or self.resynced:
                rows.mark(len(rows) - n, self.gap, self.resynced)
                self.gap, self.resynced = 0, False
            self.messages += n
            self.at = at - base
            if scanner.then:
                self.layout = scanner.then.get(scanner.last_op(n), self.layout)
        if code == bytecode.SCAN_FULL:
            return True
        if code == bytecode.SCAN_BAD:
            self.step = STOP if scanner.described.on_bad == "stop" else SEARCH
            return True
        if known_end >= 0:
            self.until = known_end - base
        if chunk.is_last and self.at < stop:
            self._cut_off(layouts[layout], chunk)
        return False

    # -- a message with a hole -------------------------------------------------------------------------

    def _cut_off(self, scanner: LayoutScanner, chunk: StreamChunk) -> None:
        """A message ends in a hole or with the stream: a row if its header was captured, else undecoded bytes."""
        base, stop = chunk.start - chunk.offset, chunk.offset + chunk.length
        is_known, op = self.until > 0, -1
        if scanner.described.header is not None:
            is_known, op = scanner.header(chunk.buffer, base + self.at, base + stop)
        if not is_known:
            self._skip(chunk, stop, "truncated")
            return
        head = bytes(chunk.buffer[base + self.at : base + min(stop, self.at + HEAD_BYTES)])
        ts_ns, packet, file = chunk.first_packet(self.at)
        row = {
            "layout": scanner.place, "op": op, "flaw": Flaw.TRUNCATED, "flow": self.flow, "side": self.number,
            "offset": self.at, "captured": stop - self.at, "ts_ns": ts_ns, "first_packet": packet, "first_file": file,
            "gap_before": self.gap, "resynced": self.resynced, "first_ack": chunk.ack(self.at),
            "last_ack": chunk.ack(stop - 1),
        }  # fmt: skip
        self.cut = _CutMessage(scanner.protocol, self.until or -1, head, chunk.last_packet(self.at, stop), row)
        self.gap, self.resynced = 0, False
        self.at = stop
        self.layout = scanner.then.get(op, self.layout)

    def _pass_cut(self, cut: _CutMessage, chunk: StreamChunk, found: FoundMessages) -> None:
        """Bytes behind the hole that still belong to the message with it."""
        to = min(cut.end, chunk.offset + chunk.length)
        if to > self.at:
            cut.last = max(cut.last, chunk.last_packet(self.at, to), key=lambda packet: (packet[2], packet[1]))
            cut.row["captured"] += to - self.at
            cut.row["last_ack"] = chunk.ack(to - 1)
            self.at = to
        if self.at >= cut.end:
            self._end_cut(found)

    def _end_cut(self, found: FoundMessages) -> None:
        """Give out the message with a hole."""
        cut, self.cut = self.cut, None
        if cut is None:
            return
        self.messages += 1
        rows, start = found.rows(cut.protocol, cut.head)
        end_ts_ns, last_packet, _ = cut.last
        place = {"start": start, "end": start + len(cut.head)}
        rows.add(cut.row | place | {"end_ts_ns": end_ts_ns, "last_packet": last_packet})

    # -- after a gap -----------------------------------------------------------------------------------

    def _pass_gap(self, offset: int, found: FoundMessages) -> None:
        """Bytes up to ``offset`` were never captured."""
        self._end_skip(found)
        cut = self.cut
        if cut is not None and cut.end > offset:
            self.at = offset
            return
        self._end_cut(found)
        missing = offset - (self.at if cut is None else max(cut.end, self.at))
        self.at = offset
        if missing:
            self.gap += missing
            if self.step is SYNC:
                self.step = SEARCH

    def _search(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], found: FoundMessages) -> bool:
        """Search for a message; False when the bytes to tell are not here yet."""
        layout = layouts[self.layout]
        base, stop = chunk.start - chunk.offset, chunk.offset + chunk.length
        at, is_found = layouts[layout.searched].search(
            chunk.buffer, base + self.at, base + stop, chunk.is_last, layout.in_a_row
        )
        to = at - base if is_found or not chunk.is_last else stop
        if to > self.at:
            self._skip(chunk, to, "search")
        if is_found:
            self._end_skip(found)
            self.step, self.resynced = SYNC, True
        return is_found

    # -- what is no message ----------------------------------------------------------------------------

    def _skip(self, chunk: StreamChunk, to: int, reason: str) -> None:
        """Pass bytes of a chunk that are no message."""
        if self.skipped is None:
            ts_ns, number, _ = chunk.first_packet(self.at)
            self.skipped = Problem(self.flow, self.number, self.at, 0, "undecoded", reason, ts_ns, number)
        self.at = to

    def _end_skip(self, found: FoundMessages) -> None:
        """Give out the range that is no message."""
        skipped, self.skipped = self.skipped, None
        if skipped is not None:
            found.problems.append(replace(skipped, length=self.at - skipped.offset))
