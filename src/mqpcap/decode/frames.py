"""The output of framing: messages as rows over one buffer, and ranges of streams that are not messages.

``framing`` collects both here; ``pipeline`` takes them from here to ``columns`` and to the table ``problems``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array
from mqpcap.decode.columns import Records, Spans
from mqpcap.decode.message_buffer import MessageBuffer, time_order
from mqpcap.records import dataclass


class Problem(NamedTuple):
    """A range of a stream that did not become a message; ``ts_ns`` is when its first byte was captured.

    A tuple, as a damaged capture has many, and a frozen dataclass takes five times as long.
    """

    flow: int
    side: int
    offset: int
    length: int
    kind: str
    reason: str
    ts_ns: int
    first_packet: int
    """The packet at or before its first byte."""


FOREIGN_COLUMNS = ("flow", "side", "offset", "length", "ts_ns", "first_packet", "is_tls")
"""The numbers of a problem of a foreign connection: its kind is undecoded, its reason foreign or tls."""
ARRAY_BYTES = 128
"""Memory of an array beside its values."""


@dataclass(frozen=True, slots=True)
class Frames(ColumnBatch):
    """Spans of messages of one protocol, not decoded yet, over one buffer: n rows in order of time.

    ``start``, ``end``: offsets in ``buffer``. ``offset``: in the stream. ``captured``, ``gap_before``: bytes.
    ``layout``: index into the Program's layouts. ``side``: 0 is endpoint A.
    ``first_ack``, ``last_ack``: acknowledgement numbers of the packets with the first and the last byte, as stream
    offsets of the other side; NO_OFFSET (tcp.flow_records) if unknown.
    """

    SHARED: ClassVar[frozenset[str]] = frozenset(("protocol", "buffer"))

    protocol: str
    buffer: NDArray[np.uint8]
    start: Int64Array
    end: Int64Array
    layout: NDArray[np.int32]
    op: Int64Array
    flaw: NDArray[np.uint8]
    flow: Int64Array
    side: NDArray[np.int8]
    offset: Int64Array
    captured: Int64Array
    ts_ns: Int64Array
    end_ts_ns: Int64Array
    first_packet: Int64Array
    last_packet: Int64Array
    first_file: Int64Array
    gap_before: Int64Array
    resynced: NDArray[np.bool_]
    first_ack: Int64Array
    last_ack: Int64Array

    @property
    def memory_bytes(self) -> int:
        """Memory of the rows, with a buffer of their own."""
        column_bytes: int = sum(getattr(self, name).nbytes + ARRAY_BYTES for name in self.column_names())
        return len(self.buffer) + column_bytes

    def spans(self) -> Spans:
        """The messages as input of a `ColumnReader`."""
        return Spans(self.buffer, self.start, self.end, self.layout, self.op, self.flaw)

    def copied(self, rows: NDArray[np.intp]) -> "Frames":
        """The rows with these numbers, over a buffer that holds nothing else."""
        frames = self.taken(rows)
        spans = frames.spans().gathered()
        return replace(frames, buffer=spans.buffer, start=spans.start.copy(), end=spans.end.copy())

    @classmethod
    def merged(cls, parts: Sequence["Frames"]) -> "Frames":
        """The rows of parts with buffers of their own, in order of time."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.array([len(part.buffer) for part in parts], np.int64)
        shift = np.repeat(np.cumsum(sizes) - sizes, [len(part.start) for part in parts])
        frames = cls.joined(parts)
        buffer = np.concatenate([part.buffer for part in parts])
        frames = replace(frames, buffer=buffer, start=frames.start + shift, end=frames.end + shift)
        return frames.taken(time_order(frames.ts_ns, frames.first_packet, frames.offset))


class FoundMessages:
    """Collects messages and problems until they are taken; ``foreign``: those of foreign connections, in blocks.

    Messages lie in the buffer of the window or in copies of earlier bytes, which are joined by ``take_all``.
    """

    def __init__(
        self, problems: list[Problem] | None = None, foreign: list[Int64Array] | None = None, partial_bytes: int = 0
    ) -> None:
        self.problems: list[Problem] = problems or []
        self.foreign: list[Int64Array] = foreign or []
        self.partial_bytes = partial_bytes
        """Bytes of the partial messages of all sides."""
        self._in_window: dict[str, MessageBuffer] = {}
        self._in_copies: dict[str, MessageBuffer] = {}
        self._copies: list[bytes] = []
        self._copied_bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled between two windows, when all messages were taken."""
        return FoundMessages, (self.problems, self.foreign, self.partial_bytes)

    @property
    def problem_count(self) -> int:
        """Problems that were not taken."""
        return len(self.problems) + sum(map(len, self.foreign))

    def take_problems(self) -> tuple[list[Problem], Int64Array]:
        """All problems; those of foreign connections as rows of FOREIGN_COLUMNS."""
        taken = self.problems, np.concatenate([np.zeros((0, len(FOREIGN_COLUMNS)), np.int64), *self.foreign])
        self.problems, self.foreign = [], []
        return taken

    def buffer_for(self, protocol: str, buffer: bytes | memoryview) -> tuple[MessageBuffer, int]:
        """The `MessageBuffer` for messages in ``buffer``, and the offset of ``buffer`` in the buffer of its rows."""
        is_copy = isinstance(buffer, bytes)
        buffers = self._in_copies if is_copy else self._in_window
        rows = buffers.get(protocol)
        if rows is None:
            rows = buffers[protocol] = MessageBuffer()
        if not is_copy:
            return rows, 0
        if not self._copies or self._copies[-1] is not buffer:
            self._copies.append(bytes(buffer))
            self._copied_bytes += len(buffer)
        return rows, self._copied_bytes - len(buffer)

    def take_all(self, buffer: NDArray[np.uint8]) -> list[Frames]:
        """All messages by protocol: those in the window's ``buffer``, then those in copies."""
        copied = np.frombuffer(b"".join(self._copies), np.uint8)
        self._copies, self._copied_bytes = [], 0
        return [
            Frames(protocol, data, **rows.take_all())
            for data, buffers in ((buffer, self._in_window), (copied, self._in_copies))
            for protocol, rows in buffers.items()
            if len(rows)
        ]


TimeKey = tuple[int, int, int]
"""Time (ns), first packet and stream offset of a message. Messages are paired in this order."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch of messages. Messages of its connections that are decoded later do not begin before ``next_key``."""

    frames: Frames
    records: Records
    next_key: TimeKey
