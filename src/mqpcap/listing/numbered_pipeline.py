"""Reads a capture with columns that its tables do not have: numbers of connections, bytes of messages.

In: a `Capture`. Out: the rows of `CapturePipeline` with more columns. Called by: the commands, ``packet_locator``.

Connections are numbered by their first packet, over all TCP connections of the capture: ``c7`` is the same connection
in every command. `BytesPipeline` adds the bytes of each message, and finds a packet by its number. If a message has a
hole, its bytes end before the hole.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array
from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output
from mqpcap.tables.schemas import NUMBER
from mqpcap.tcp.headers import Segments, address_text

OTHER_PROTOCOL = "other_protocol"
"""Column of ``connections``: the name of the foreign protocol, null if it is not recognised."""
LAYOUT, VARIANT = "layout", "variant"
"""Columns of ``messages``: the names of the layout and of the body's class that the message was read with."""
BYTES = "bytes"
"""Column of ``messages``: the captured bytes of the message, up to its first hole."""


@dataclass(frozen=True, slots=True)
class PacketPayload:
    """A packet's file, time, addresses and TCP payload length. Ports are -1 if it is not a TCP segment."""

    file: int
    ts_ns: int
    src_ip: str = ""
    src_port: int = -1
    dst_ip: str = ""
    dst_port: int = -1
    payload_len: int = 0


class NumberedPipeline(CapturePipeline):
    """Adds the column NUMBER to ``messages``, and the columns NUMBER and OTHER_PROTOCOL to ``connections``."""

    def __init__(self, capture: Capture, options: Options, emit: Emit, background: Background | None = None) -> None:
        super().__init__(capture, options, emit, background)
        self._closed: deque[tuple[int, str | None]] = deque()
        self._emit_output = emit
        self.emit = self._numbered_connections

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The column NUMBER."""
        return {NUMBER: pa.array(frames.flow + 1)}

    def read_as(self, frames: Frames, records: Records) -> dict[str, pa.Array]:
        """The columns LAYOUT and VARIANT of messages; null if the message was not read with any."""
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
        """Notes the number and the foreign protocol of ended connections, for their rows."""
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
    """Adds the columns BYTES, LAYOUT and VARIANT to ``messages``, too.

    packet: the number of a packet to find. ``places`` gets the packet with this number of each file, as it is read.
    """

    def __init__(self, capture: Capture, options: Options, emit: Emit, packet: int | None = None) -> None:
        super().__init__(capture, options, emit)
        self.places: list[PacketPayload] = []
        self._packet = packet

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The columns BYTES, LAYOUT and VARIANT, in addition to those of the base class."""
        return {**super().more_columns(frames, records), BYTES: _message_bytes(frames), **self.read_as(frames, records)}

    def _dissected(self, window: Window) -> Segments:
        segments = super()._dissected(window)
        if self._packet is not None:
            self.places += _locate(window, segments, self._packet)
        return segments


def _locate(window: Window, segments: Segments, packet: int) -> Iterator[PacketPayload]:
    """The packet with a number in a window: an entry per TCP segment in it, or a single entry without ports."""
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
    spans = frames.spans().gathered()
    offsets = np.append(spans.start, len(spans.buffer)).astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(frames.start), [None, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)]
    )
