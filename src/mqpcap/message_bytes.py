"""A capture read with the bytes of its messages.

The tables say where in a stream a message stands but do not keep its bytes. :class:`BytesPipeline` gives them with each
row of ``messages``, in a column more, and says where the packet is that somebody asks for. Fed like any pipeline by the
commands that show bytes. Of a message with a hole it has the bytes in front of the hole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import Records, Spans
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import CapturePipeline, Emit, Options
from mqpcap.schema.compiler import Program
from mqpcap.tcp.headers import Segments, address_text

LAYOUT, VARIANT = "layout", "variant"
"""Columns of ``messages`` with the names of the layout and of the class of the body that one was read as."""
BYTES = "bytes"
"""The column of ``messages`` with what was captured of a message, up to its first hole."""


@dataclass(frozen=True, slots=True)
class PacketPayload:
    """Where a packet is: who sent it to whom, and the payload bytes it has; ports -1: no TCP."""

    file: int
    ts_ns: int
    src_ip: str = ""
    src_port: int = -1
    dst_ip: str = ""
    dst_port: int = -1
    payload_len: int = 0


class BytesPipeline(CapturePipeline):
    """One capture made into tables; ``messages`` have the columns BYTES, LAYOUT and VARIANT.

    packet: the number of a packet; ``places`` says where it is in each file read so far that has one.
    """

    def __init__(self, capture: Capture, options: Options, emit: Emit, packet: int | None = None) -> None:
        super().__init__(capture, options, emit)
        self.places: list[PacketPayload] = []
        self._packet = packet

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The bytes and how they were read, beside what others add."""
        read = read_as(self.readers[frames.protocol].program, frames, records)
        return {**super().more_columns(frames, records), BYTES: _bytes_of(frames), **read}

    def _dissected(self, window: Window) -> Segments:
        segments = super()._dissected(window)
        if self._packet is not None:
            self.places += _places(window, segments, self._packet)
        return segments


def _places(window: Window, segments: Segments, packet: int) -> Iterator[PacketPayload]:
    """Where a packet of a window is: once for each segment in it, or once without ports."""
    rows = np.flatnonzero(segments.number == packet).tolist()
    for i in rows:
        src, dst = (
            address_text(int(segments.version[i]), int(high[i]), int(low[i]))
            for high, low in ((segments.src_hi, segments.src_lo), (segments.dst_hi, segments.dst_lo))
        )
        file, ts_ns, sport, dport, size = (
            int(x[i]) for x in (segments.file, segments.ts_ns, segments.sport, segments.dport, segments.length)
        )
        yield PacketPayload(file, ts_ns, src, sport, dst, dport, size)
    for ts_ns in () if rows else window.ts_ns[window.number == packet].tolist():
        yield PacketPayload(window.file, ts_ns)


def _bytes_of(frames: Frames) -> pa.Array:
    """The bytes of each message."""
    spans = Spans(frames.buffer, frames.start, frames.end, frames.layout, frames.op, frames.flaw).gathered()
    offsets = np.append(spans.start, len(spans.buffer)).astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(frames.start), [None, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)]
    )


def read_as(program: Program, frames: Frames, records: Records) -> dict[str, pa.Array]:
    """The columns LAYOUT and VARIANT of messages; null where none was found."""
    words = {
        LAYOUT: ([x.name for x in program.layouts], frames.layout),
        VARIANT: (program.variant_class, records.variant),
    }
    return {
        name: pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32), mask=codes < 0), pa.array(list(known), pa.string())
        )
        for name, (known, codes) in words.items()
    }
