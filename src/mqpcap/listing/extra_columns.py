"""Columns that the tables do not have: numbers of connections, bytes and layouts of messages.

In: decoded messages and ended connections. Out: `StageHooks` whose columns are appended to the rows.
Called by: the commands, ``packet_locator``, ``scapy.session``.

Connections are numbered by their first packet, over all TCP connections of the capture: ``c7`` is the same connection
in every command. If a message has a hole, its bytes end before the hole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mqpcap.capture import Window
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.hooks import StageHooks
from mqpcap.schema.compiler import Program
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.tcp.headers import Segments, address_text

OTHER_PROTOCOL = "other_protocol"
"""Column of ``connections``: the name of the foreign protocol, null if it is not recognised."""
LAYOUT, VARIANT = "layout", "variant"
"""Columns of ``messages``: the names of the layout and of the body's class that the message was read with."""
BYTES = "bytes"
"""Column of ``messages``: the captured bytes of the message, up to its first hole."""


def connection_numbers(program: Program, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
    """The column CONNECTION_NUMBER of messages."""
    return {CONNECTION_NUMBER: pa.array(frames.flow + 1)}


def numbered_connections(ended: EndedConnections) -> Mapping[str, pa.Array]:
    """The columns CONNECTION_NUMBER and OTHER_PROTOCOL of connections."""
    names = [None if state is None else state.foreign_protocol for state in ended.states]
    return {CONNECTION_NUMBER: pa.array(ended.numbers + 1), OTHER_PROTOCOL: pa.array(names, pa.string())}


def layouts_and_variants(program: Program, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
    """The columns LAYOUT and VARIANT of messages; null if the message was not read with any."""
    codes_by_column = {
        LAYOUT: ([layout.name for layout in program.layouts], frames.layout),
        VARIANT: (program.variant_class, records.variant),
    }
    return {
        name: pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32), mask=codes < 0), pa.array(list(names), pa.string())
        )
        for name, (names, codes) in codes_by_column.items()
    }


def message_bytes(program: Program, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
    """The column BYTES of messages."""
    spans = frames.spans().gathered()
    offsets = np.append(spans.start, len(spans.buffer)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(spans.buffer)]
    return {BYTES: pa.BinaryArray.from_buffers(pa.binary(), len(frames.start), buffers)}


NUMBERED = StageHooks(message_columns=(connection_numbers,), connection_columns=numbered_connections)
"""Adds the column CONNECTION_NUMBER to ``messages``, and this column and OTHER_PROTOCOL to ``connections``."""
WITH_LAYOUTS = replace(NUMBERED, message_columns=(connection_numbers, layouts_and_variants))
"""Adds the columns LAYOUT and VARIANT to ``messages``, too."""
WITH_BYTES = replace(NUMBERED, message_columns=(connection_numbers, message_bytes, layouts_and_variants))
"""Adds the columns BYTES, LAYOUT and VARIANT to ``messages``, too."""


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


class PacketFinder:
    """Finds the packet with a number in each file; ``payloads`` has those that were read."""

    def __init__(self, packet: int) -> None:
        self.payloads: list[PacketPayload] = []
        self._packet = packet

    def add(self, window: Window, segments: Segments) -> None:
        """Search a window: an entry per TCP segment in the packet, or a single entry without ports."""
        self.payloads += self._payloads(window, segments)

    def _payloads(self, window: Window, segments: Segments) -> Iterator[PacketPayload]:
        rows = np.flatnonzero(segments.packet_number == self._packet).tolist()
        for i in rows:
            src, dst = (
                address_text(int(segments.version[i]), int(high[i]), int(low[i]))
                for high, low in ((segments.src_hi, segments.src_lo), (segments.dst_hi, segments.dst_lo))
            )
            file, ts_ns, sport, dport, size = (
                int(x[i]) for x in (segments.file, segments.ts_ns, segments.sport, segments.dport, segments.length)
            )
            yield PacketPayload(file, ts_ns, src, sport, dst, dport, size)
        for ts_ns in () if rows else window.ts_ns[window.packet_number == self._packet].tolist():
            yield PacketPayload(window.file, ts_ns)
