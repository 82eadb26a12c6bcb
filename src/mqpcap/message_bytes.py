"""A capture read with the bytes of its messages.

The tables say where in a stream a message stands but do not keep its bytes. :class:`BytesPipeline` gives them with each
row of ``messages``, in a column more, and says where the packet is that somebody asks for. Fed like any pipeline by the
commands that show bytes. Of a message with a hole it has the bytes in front of the hole.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import Records, Spans
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import CapturePipeline, Emit, Options
from mqpcap.tables.messages import Chunk
from mqpcap.tcp.headers import Segments, address_text

BYTES = "bytes"
"""The column of ``messages`` with what was captured of a message, up to its first hole."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a packet is: who sent it to whom, and the payload bytes it has; ports -1: no TCP."""

    file: int
    ts_ns: int
    src_ip: str = ""
    src_port: int = -1
    dst_ip: str = ""
    dst_port: int = -1
    payload_len: int = 0


class BytesPipeline(CapturePipeline):
    """One capture made into tables; ``messages`` have the column BYTES.

    packet: the number of a packet; ``places`` says where it is in each file read so far that has one.
    """

    def __init__(self, capture: Capture, options: Options, emit: Emit, packet: int | None = None) -> None:
        super().__init__(capture, options, emit)
        self.places: list[Place] = []
        self._packet = packet
        self._bytes: deque[pa.Array] = deque()

    def take(self, found: Iterator[tuple[Frames, Records]], files: Sequence[str]) -> None:
        """Have messages made into rows, with their bytes kept until then."""
        super().take(self._kept(found), files)

    def _kept(self, found: Iterator[tuple[Frames, Records]]) -> Iterator[tuple[Frames, Records]]:
        for frames, records in found:
            self._bytes.append(_bytes_of(frames))
            yield frames, records

    def give_messages(self, chunk: Chunk) -> None:
        """Rows of ``messages`` are final."""
        with_bytes = chunk.messages.append_column(BYTES, self._bytes.popleft())
        super().give_messages(replace(chunk, messages=with_bytes))

    def messages(self, window: Window) -> Iterator[tuple[Frames, Records]]:
        """The messages that the packets of a window complete, after a look for the packet."""
        here = np.flatnonzero(window.number == self._packet) if self._packet is not None else np.arange(0)
        before = len(self.places)
        yield from super().messages(window)
        if len(here) and len(self.places) == before:
            self.places.append(Place(window.file, int(window.ts_ns[here[0]])))

    def _segments(self, segments: Segments) -> Segments:
        rows = np.flatnonzero(segments.number == self._packet) if self._packet is not None else np.arange(0)
        for i in rows.tolist():
            self.places.append(
                Place(
                    int(segments.file[i]), int(segments.ts_ns[i]),
                    address_text(int(segments.version[i]), int(segments.src_hi[i]), int(segments.src_lo[i])),
                    int(segments.sport[i]),
                    address_text(int(segments.version[i]), int(segments.dst_hi[i]), int(segments.dst_lo[i])),
                    int(segments.dport[i]), int(segments.length[i]),
                )
            )  # fmt: skip
        return super()._segments(segments)


def _bytes_of(frames: Frames) -> pa.Array:
    """The bytes of each message."""
    spans = Spans(frames.buffer, frames.start, frames.end, frames.layout, frames.op, frames.flaw).gathered()
    offsets = np.append(spans.start, len(spans.buffer)).astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(frames.start), [None, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)]
    )
