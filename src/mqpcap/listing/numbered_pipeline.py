"""A capture read with more columns than its tables keep: numbers of connections, bytes of messages.

Connections are numbered by their first packet, over all TCP connections of the capture: ``c7`` is the same connection
in every command. :class:`BytesPipeline` gives the bytes of each message, too,
and says where the packet is that somebody asks for. Of a message with a hole it has the bytes in front of the hole.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array
from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import Records, Spans
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output
from mqpcap.tables.schemas import NUMBER
from mqpcap.tcp.headers import Segments, address_text

OTHER_PROTOCOL = "other_protocol"
"""The column of ``connections`` with what one speaks that is not ours, as far as that is known."""
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


class NumberedPipeline(CapturePipeline):
    """One capture made into tables; ``messages`` have the column NUMBER, ``connections`` that and OTHER_PROTOCOL."""

    def __init__(self, capture: Capture, options: Options, emit: Emit, background: Background | None = None) -> None:
        super().__init__(capture, options, emit, background)
        self._closed: deque[tuple[int, str | None]] = deque()
        self._emit_output = emit
        self.emit = self._numbered_connections

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The numbers of the connections."""
        return {NUMBER: pa.array(frames.flow + 1)}

    def read_as(self, frames: Frames, records: Records) -> dict[str, pa.Array]:
        """The columns LAYOUT and VARIANT of messages; null where none was found."""
        program = self.readers[frames.protocol].program
        codes_by_column = {
            LAYOUT: ([x.name for x in program.layouts], frames.layout),
            VARIANT: (program.variant_class, records.variant),
        }
        return {
            name: pa.DictionaryArray.from_arrays(
                pa.array(codes.astype(np.int32), mask=codes < 0), pa.array(list(names), pa.string())
            )
            for name, (names, codes) in codes_by_column.items()
        }

    def close(self, flows: Int64Array, files: Sequence[str], of_others: bool) -> None:
        """Connections are over."""
        states = (self.framer.connections.get(number) for number in flows.tolist())
        names = [state.foreign_protocol if state is not None else None for state in states]
        self._closed.extend(zip((flows + 1).tolist(), names, strict=True))
        super().close(flows, files, of_others)

    def _numbered_connections(self, output: Output) -> None:
        if output.table == "connections":
            closed = [self._closed.popleft() for _ in range(output.rows.num_rows)]
            rows = output.rows.append_column(NUMBER, pa.array([number for number, _ in closed], pa.int64()))
            rows = rows.append_column(OTHER_PROTOCOL, pa.array([name for _, name in closed], pa.string()))
            output = replace(output, rows=rows)
        self._emit_output(output)


class BytesPipeline(NumberedPipeline):
    """The same with the bytes of messages: they have the columns BYTES, LAYOUT and VARIANT, too.

    packet: the number of a packet; ``places`` says where it is in each file read so far that has one.
    """

    def __init__(self, capture: Capture, options: Options, emit: Emit, packet: int | None = None) -> None:
        super().__init__(capture, options, emit)
        self.places: list[PacketPayload] = []
        self._packet = packet

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The bytes and how they were read, beside what others add."""
        return {**super().more_columns(frames, records), BYTES: _message_bytes(frames), **self.read_as(frames, records)}

    def _dissected(self, window: Window) -> Segments:
        segments = super()._dissected(window)
        if self._packet is not None:
            self.places += _locate(window, segments, self._packet)
        return segments


def _locate(window: Window, segments: Segments, packet: int) -> Iterator[PacketPayload]:
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


def _message_bytes(frames: Frames) -> pa.Array:
    """The bytes of each message."""
    spans = Spans(frames.buffer, frames.start, frames.end, frames.layout, frames.op, frames.flaw).gathered()
    offsets = np.append(spans.start, len(spans.buffer)).astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(frames.start), [None, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)]
    )
