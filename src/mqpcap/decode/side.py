# cython: language_level=3
"""Frames one direction of a connection: finds the messages in its chunks.

The hard part is the state of a side. ``BEGIN``: it has a layout, but no bytes yet. ``SYNC``: the next byte starts a
message. ``SEARCH``: it looks for a message, after a gap, if the start is not known, or after bad framing if the
protocol allows a search. ``STOP``: all bytes are skipped.
A message interrupted by a gap is kept in ``partial``. If its length is known, bytes after the gap still belong to it,
and the next message starts at its end without a search.
"""

from collections.abc import Sequence
from enum import IntEnum

import cython

from mqpcap.decode import bytecode
from mqpcap.decode.frames import FoundMessages, Problem
from mqpcap.decode.scanning import LayoutScanner
from mqpcap.decode.stream_chunk import Packet, join
from mqpcap.records import dataclass
from mqpcap.schema.flaws import Flaw

if cython.compiled:
    from cython.cimports.mqpcap.decode.stream_chunk import StreamChunk
else:
    from mqpcap.decode.stream_chunk import StreamChunk

MAX_PARTIAL_BYTES = 32 << 20
"""Bytes of all partial messages; while there are more, a new partial message keeps its first HEAD_BYTES."""
HEAD_BYTES = 64 << 10
"""Bytes of a partial message that are always kept, to read its header."""


class Step(IntEnum):
    """The state of a side."""

    SYNC = 0
    SEARCH = 1
    STOP = 2
    BEGIN = 3


# A number is compared ten times as fast as a member of the class (Python 3.11).
SYNC, SEARCH, STOP, BEGIN = map(int, Step)


@dataclass(slots=True)
class _PartialMessage:
    """A message with a hole; ``row`` has its properties by the names of ``MessageBuffer``.

    end: stream offset of its end, -1 if unknown. head: its bytes before the hole. last_packet: the latest packet.
    """

    protocol: str
    end: int
    head: bytes
    last_packet: Packet
    row: dict[str, int]


@cython.cclass
class Side:
    """A side while its connection lives: ``index`` 0 is endpoint A.

    ``framed_to``: bytes before this stream offset are framed.
    ``layout``: index of the layout that reads the next message.
    ``gap``: bytes missing since the last message.
    ``resynced``: a search found the next message.
    ``buffered_chunk``: beginning of a message, buffered before the connection was decided.
    ``skipped_range``: range without a message, up to ``framed_to``; its length is not set yet.
    ``message_end``: end of the message that the unconsumed bytes begin, 0 if unknown.
    ``open_since_ns``: capture time of the first unconsumed byte, if those bytes may already be a whole message and only
    the next bytes can prove it; else None.
    """

    partial: _PartialMessage | None
    buffered_chunk: StreamChunk | None
    skipped_range: Problem | None
    open_since_ns: int | None

    def __init__(self, flow: int, index: int) -> None:
        self.flow, self.index = flow, index
        self.framed_to = self.gap = self.messages = self.message_end = 0
        self.layout, self.step, self.stop_reason, self.resynced = -1, SYNC, "bad_framing", False
        self.partial = self.buffered_chunk = self.skipped_range = self.open_since_ns = None

    @property
    def undecided_since_ns(self) -> int:
        """Capture time of the oldest bytes that may still become a message: ``partial`` or unconsumed bytes."""
        since = [self.open_since_ns, None if self.partial is None else self.partial.row["ts_ns"]]
        return min(ns for ns in since if ns is not None)

    def begin(self, layout: int, is_at_start: bool = False) -> None:
        """Set the layout. Unless the first byte starts a message (``is_at_start``), a search may be needed."""
        self.layout, self.step = layout, SYNC if is_at_start else BEGIN

    def give_up(self, reason: str) -> None:
        """Skip all further bytes."""
        self.step, self.stop_reason = STOP, reason

    def take(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], output: FoundMessages) -> int:
        """Frame a chunk; returns the number of bytes consumed."""
        if self.buffered_chunk is not None:
            return self._take_after_buffered(self.buffered_chunk, chunk, layouts, output)
        if self.step == BEGIN:
            self.step = SYNC if chunk.start_known else SEARCH
        stop: cython.longlong = chunk.offset + chunk.length
        if chunk.offset > self.framed_to:
            self._pass_gap(chunk, output)
        self.message_end = 0
        if self.partial is not None:
            self._extend_partial(self.partial, chunk, output)
        while self.framed_to < stop:
            if self.step == STOP:
                self._skip(chunk, stop, self.stop_reason)
            elif self.step == SEARCH:
                if not self._search(chunk, layouts, output):
                    break
            elif not self._scan(chunk, layouts, output):
                break
        if chunk.ended and (self.partial is not None or self.skipped_range is not None):
            self.end(output)
        return (stop if chunk.is_last else self.framed_to) - chunk.offset

    def _take_after_buffered(
        self, buffered_chunk: StreamChunk, chunk: StreamChunk, layouts: Sequence[LayoutScanner], output: FoundMessages
    ) -> int:
        """Frame a chunk that follows a buffered chunk; returns the number of its bytes consumed."""
        self.buffered_chunk = None
        if buffered_chunk.offset + buffered_chunk.length != chunk.offset:
            # Bytes are missing between the two chunks.
            buffered_chunk.is_last = True
            self.take(buffered_chunk, layouts, output)
            return self.take(chunk, layouts, output)
        chunk = join([buffered_chunk, chunk])
        done = self.take(chunk, layouts, output)
        if done < buffered_chunk.length:
            self.buffered_chunk = chunk.copy(done, buffered_chunk.length)
        return max(done - buffered_chunk.length, 0)

    def take_buffered(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], output: FoundMessages) -> None:
        """Frame a chunk that was buffered; unconsumed bytes are kept in ``buffered_chunk``."""
        done = self.take(chunk, layouts, output)
        if done < chunk.length:
            unframed = chunk.copy(done, chunk.length)
            self.buffered_chunk = unframed if self.buffered_chunk is None else join([self.buffered_chunk, unframed])

    def since_ns(self, chunk: StreamChunk, done: int) -> int:
        """Capture time of the first unconsumed byte of a chunk or of the buffered chunk before it."""
        if self.buffered_chunk is not None:
            return self.buffered_chunk.packet(0)[0]
        return chunk.first_packet(chunk.offset + done)[0]

    def end(self, output: FoundMessages) -> None:
        """End the side: emit the partial message and the skipped range."""
        self._end_partial(output)
        self._end_skip(output)

    # -- in step ---------------------------------------------------------------------------------------

    def _scan(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], output: FoundMessages) -> bool:
        """Frame messages in SYNC; False if the remaining bytes are not a whole message yet."""
        scanner = layouts[self.layout]
        base: cython.longlong = chunk.start - chunk.offset
        stop: cython.longlong = chunk.offset + chunk.length
        n, code, position, known_end, layout = scanner.scan(
            chunk.buffer, base + self.framed_to, base + stop, chunk.is_last
        )
        if n:
            rows, shift = output.buffer_for(scanner.protocol, chunk.buffer)
            rows.put(scanner.hits, n, chunk.packets, base, shift, self.flow, self.index)
            if self.gap or self.resynced:
                rows.mark(len(rows) - n, self.gap, self.resynced)
                self.gap, self.resynced = 0, False
            self.messages += n
            self.framed_to = position - base
            if scanner.next_layouts:
                self.layout = scanner.next_layouts.get(scanner.last_op(n), self.layout)
        if code == bytecode.SCAN_FULL:
            return True
        if code == bytecode.SCAN_BAD:
            self.step = STOP if scanner.described.on_bad == "stop" else SEARCH
            return True
        if known_end >= 0:
            self.message_end = known_end - base
        if chunk.is_last and self.framed_to < stop:
            self._begin_partial(layouts[layout], chunk, output)
        return False

    # -- a message with a hole -------------------------------------------------------------------------

    def _begin_partial(self, scanner: LayoutScanner, chunk: StreamChunk, output: FoundMessages) -> None:
        """A message ends in a hole or with the stream: a row if its header was captured, else undecoded bytes."""
        base, stop = chunk.start - chunk.offset, chunk.offset + chunk.length
        is_known, op = self.message_end > 0, -1
        if scanner.described.header is not None:
            is_known, op = scanner.header(chunk.buffer, base + self.framed_to, base + stop)
        if not is_known:
            self._skip(chunk, stop, "truncated")
            return
        end = min(stop, self.framed_to + HEAD_BYTES) if output.partial_bytes > MAX_PARTIAL_BYTES else stop
        head = bytes(chunk.buffer[base + self.framed_to : base + end])
        output.partial_bytes += len(head)
        ts_ns, packet, file = chunk.first_packet(self.framed_to)
        row = {
            "layout": scanner.layout_index, "op": op, "flaw": Flaw.TRUNCATED, "flow": self.flow, "side": self.index,
            "offset": self.framed_to, "captured": stop - self.framed_to, "ts_ns": ts_ns, "first_packet": packet,
            "first_file": file, "gap_before": self.gap, "resynced": self.resynced,
            "first_ack": chunk.ack(self.framed_to), "last_ack": chunk.ack(stop - 1),
        }  # fmt: skip
        self.partial = _PartialMessage(
            scanner.protocol, self.message_end or -1, head, chunk.last_packet(self.framed_to, stop), row
        )
        self.gap, self.resynced = 0, False
        self.framed_to = stop
        self.layout = scanner.next_layouts.get(op, self.layout)

    def _extend_partial(self, partial: _PartialMessage, chunk: StreamChunk, output: FoundMessages) -> None:
        """Add bytes after the hole that still belong to the partial message."""
        to = min(partial.end, chunk.offset + chunk.length)
        if to > self.framed_to:
            partial.last_packet = max(
                partial.last_packet, chunk.last_packet(self.framed_to, to), key=lambda packet: (packet[2], packet[1])
            )
            partial.row["captured"] += to - self.framed_to
            partial.row["last_ack"] = chunk.ack(to - 1)
            self.framed_to = to
        if self.framed_to >= partial.end:
            self._end_partial(output)

    def _end_partial(self, output: FoundMessages) -> None:
        """Emit the partial message."""
        partial, self.partial = self.partial, None
        if partial is None:
            return
        self.messages += 1
        output.partial_bytes -= len(partial.head)
        rows, start = output.buffer_for(partial.protocol, partial.head)
        end_ts_ns, last_packet, _ = partial.last_packet
        place = {"start": start, "end": start + len(partial.head)}
        rows.add(partial.row | place | {"end_ts_ns": end_ts_ns, "last_packet": last_packet})

    # -- after a gap -----------------------------------------------------------------------------------

    def _pass_gap(self, chunk: StreamChunk, output: FoundMessages) -> None:
        """Pass bytes before a chunk that were not captured."""
        self._end_skip(output)
        offset, partial = chunk.offset, self.partial
        if partial is not None and chunk.is_estimated:
            partial.end = -1
        if partial is not None and partial.end > offset:
            self.framed_to = offset
            return
        self._end_partial(output)
        missing = offset - (self.framed_to if partial is None else max(partial.end, self.framed_to))
        self.framed_to = offset
        if missing:
            self.gap += missing
            if self.step == SYNC:
                self.step = SEARCH

    def _search(self, chunk: StreamChunk, layouts: Sequence[LayoutScanner], output: FoundMessages) -> bool:
        """Search for a message; False if more bytes are needed."""
        layout = layouts[self.layout]
        base, stop = chunk.start - chunk.offset, chunk.offset + chunk.length
        position, is_match = layouts[layout.searched].search(
            chunk.buffer, base + self.framed_to, base + stop, chunk.is_last, layout.min_consecutive
        )
        to = position - base if is_match or not chunk.is_last else stop
        if to > self.framed_to:
            self._skip(chunk, to, "search")
        if is_match:
            self._end_skip(output)
            self.step, self.resynced = SYNC, True
        return is_match

    # -- bytes without a message ------------------------------------------------------------------------

    def _skip(self, chunk: StreamChunk, to: int, reason: str) -> None:
        """Skip bytes of a chunk that are not a message."""
        if self.skipped_range is None:
            ts_ns, number, _ = chunk.first_packet(self.framed_to)
            self.skipped_range = Problem(self.flow, self.index, self.framed_to, 0, "undecoded", reason, ts_ns, number)
        self.framed_to = to

    def _end_skip(self, output: FoundMessages) -> None:
        """Emit the skipped range as a problem."""
        skipped_range, self.skipped_range = self.skipped_range, None
        if skipped_range is not None:
            output.problems.append(skipped_range._replace(length=self.framed_to - skipped_range.offset))
