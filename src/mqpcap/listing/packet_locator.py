"""Index of a capture's packets and messages: reads single ones again without a second pass.

In: the windows of a capture, through `PacketLocator.hooks`. Out: `PacketLocator`, which reads single packets and
gathers the bytes of a range of a stream from the packets that carried it. Called by: ``recording``.

In memory it keeps about 50 bytes per packet: the position in its file and the key of its connection. It also keeps the
sequence numbers where the streams of each connection begin. As in the tables, the first copy of a byte
whose checksum is not wrong wins.

A compressed file has no random access: the first read of a packet unpacks it to a temporary file. A pipe cannot be
read again.
"""

import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, file_text
from mqpcap.capture import Capture, Window
from mqpcap.capture.sources import PeekableStream, plain_bytes
from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError, let_go
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import WITH_LAYOUTS
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.tables.connections import EndedConnections
from mqpcap.tcp.flags import SYN
from mqpcap.tcp.headers import Dissector, Segments, endpoint_pairs, endpoints
from mqpcap.tcp.sequence_numbers import ahead, wrapped

COPY_BYTES = 1 << 20
"""Bytes of a compressed file that are unpacked at a time."""
FIRST_STEP = 16
"""Further packets of the connection to search on each side, if the packets of a message do not hold all of its bytes.
Each later step is four times as large."""


@dataclass(frozen=True, slots=True)
class CapturedPacket:
    """A packet as it was captured."""

    raw: bytes
    wire_len: int
    ts_ns: int
    link_type: int


def window_of(packets: Sequence[CapturedPacket], numbers: Int64Array) -> Window:
    """The packets as a window of a file without any other packets."""
    caplen = np.array([len(packet.raw) for packet in packets], np.int64)
    return Window(
        buffer=np.frombuffer(b"".join(packet.raw for packet in packets), np.uint8),
        offset=np.cumsum(caplen) - caplen,
        caplen=caplen,
        wirelen=np.array([packet.wire_len for packet in packets], np.int64),
        ts_ns=np.array([packet.ts_ns for packet in packets], np.int64),
        link_type=np.array([packet.link_type for packet in packets], np.int32),
        packet_number=np.asarray(numbers, np.int64),
        file=0,
    )


@dataclass(frozen=True, slots=True)
class StreamSide:
    """One direction of a connection: the key of its segments, its sender's hash, the sequence number of offset 0."""

    key: int
    sender: int
    base: int


class PacketLocator:
    """The packets of one capture and the sides of its connections; filled while the capture is read.

    Packets are named by their index, from 0, over all files of the capture.
    """

    def __init__(self, capture: Capture, decode_as: Sequence[DecodeAs] = ()) -> None:
        self._capture, self._decode_as = capture, decode_as
        self._windows: list[dict[str, Int64Array]] = []
        self._closed: list[Sequence[Int64Array]] = []
        self._has_fragments = False
        self._unpacked: dict[int, BinaryIO] = {}
        self._lock = threading.RLock()
        """Held while columns are joined and while files are read: threads share the position in an unpacked file."""

    def hooks(self) -> StageHooks:
        """Callbacks that fill the index; ``messages`` has the columns LAYOUT and VARIANT."""
        return replace(WITH_LAYOUTS, packets=self.add_packets, ended=self.add_connections)

    def add_packets(self, window: Window, segments: Segments) -> None:
        """Adds the packets of a window."""
        key = np.zeros(len(window.packet_number), np.int64)
        key[np.searchsorted(window.packet_number, segments.packet_number)] = segments.key
        self._has_fragments |= bool(segments.counts.get("fragment"))
        columns: dict[str, NDArray[Any]] = {
            "file": np.full(len(key), window.file, np.int32),
            "packet_number": window.packet_number.copy(),
            "position": window.position + window.offset,
            "caplen": window.caplen.astype(np.int32),
            "wirelen": window.wirelen.astype(np.int32),
            "ts_ns": window.ts_ns.copy(),
            "link_type": window.link_type.copy(),
            "key": key,
        }
        self._windows.append(columns)

    def add_connections(self, ended: EndedConnections) -> None:
        """Adds ended connections: their ids, the keys of their segments, and of each side its base and sender."""
        columns, (keys, bases) = ended.flows.columns(ended.numbers), ended.flows.anchors(ended.numbers)
        senders = [
            endpoints(columns.hi[:, side].copy(), columns.lo[:, side].copy(), columns.port[:, side]) for side in (0, 1)
        ]
        self._closed.append((columns.connection_ids(), keys, bases, np.column_stack(senders), ended.client))

    def _table(self) -> dict[str, Int64Array]:
        """The packets of all files as columns, in order. Raises LookupError if there are none."""
        with self._lock:
            if len(self._windows) > 1:
                names = self._windows[0]
                self._windows = [{name: np.concatenate([x[name] for x in self._windows]) for name in names}]
            return self._windows[0]

    def side(self, connection_id: int, direction: str) -> StreamSide:
        """A direction of a connection. Raises LookupError if the capture does not have the connection."""
        with self._lock:
            if len(self._closed) > 1:
                self._closed = [[np.concatenate(parts) for parts in zip(*self._closed, strict=True)]]
        rows = np.flatnonzero(self._closed[0][0] == connection_id) if self._closed else np.arange(0)
        if not len(rows):
            raise LookupError(f"the capture has no connection {connection_id}")
        _, keys, bases, senders, clients = (column[rows[0]] for column in self._closed[0])
        side = int(clients) if direction == DIRECTIONS[0] else 1 - int(clients)
        return StreamSide(int(keys), int(senders[side]), int(bases[side]))

    def first_index(self, path: str) -> int:
        """The index of the first packet of a file. Raises LookupError if the file has no packet."""
        file = self._table()["file"]
        for row in np.unique(file, return_index=True)[1].tolist():
            if file_text(self._capture.files[file[row]]) == path:
                return int(row)
        raise LookupError(f"the capture has no packet of {path}")

    def index_at(self, number: int, ts_ns: int) -> int:
        """The index of a packet, by its number in its file and its time. Raises LookupError for an unknown number."""
        table = self._table()
        rows = np.flatnonzero(table["packet_number"] == number)
        if not len(rows):
            raise LookupError(f"the capture has no packet {number}")
        return int(rows[np.argmin(np.abs(table["ts_ns"][rows] - ts_ns))])

    def connection_packets(self, side: StreamSide, first_ts_ns: int, last_ts_ns: int) -> Int64Array:
        """The indexes of the packets of a connection, in both directions."""
        rows = self._with_key(side.key)
        times = self._table()["ts_ns"][rows]
        segments = self._segments(rows[(times >= first_ts_ns) & (times <= last_ts_ns)])
        return np.unique(segments.packet_number[segments.key == side.key])

    def _with_key(self, key: int) -> Int64Array:
        keys = self._table()["key"]
        return np.flatnonzero((keys == key) | (keys == 0) if self._has_fragments else keys == key)

    def gather(
        self, side: StreamSide, offset: int, length: int, first_index: int, last_index: int, is_truncated: bool = False
    ) -> tuple[bytes, Int64Array]:
        """The bytes of a range of a stream, up to the first missing byte, and the indexes of the packets with them.

        The packets from ``first_index`` to ``last_index`` are searched first, then more and more packets around them.
        If the message ``is_truncated``, only the former are searched.
        """
        rows = self._with_key(side.key)
        low, high = np.searchsorted(rows, (first_index, last_index + 1)).tolist()
        step = FIRST_STEP
        body, is_captured, used = self._read_range(side, offset, length, rows[low:high])
        while not (is_captured.all() or is_truncated or (low == 0 and high == len(rows))):
            low, high, step = max(0, low - step), min(len(rows), high + step), 4 * step
            body, is_captured, used = self._read_range(side, offset, length, rows[low:high])
        captured_length = length if is_captured.all() else int(np.argmin(is_captured))
        return body[:captured_length].tobytes(), used

    def _read_range(
        self, side: StreamSide, offset: int, length: int, rows: Int64Array
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_], Int64Array]:
        """The bytes, a mask of the captured bytes, and the indexes of the packets that have any of them."""
        segments = self._segments(rows)
        # A SYN takes a sequence number before the first byte of the stream.
        is_syn = ((segments.flags & SYN) // SYN).astype(np.int64)
        begin: Int64Array = ahead(segments.seq + is_syn - wrapped(side.base + offset), np.zeros(1, np.int64))
        is_sent = (segments.key == side.key) & (endpoint_pairs(segments)[0] == side.sender) & (segments.length > 0)
        hits = np.flatnonzero(is_sent & (begin < length) & (begin + segments.length > 0))
        # As in the tables, a damaged copy comes last.
        hits = hits[np.argsort(segments.checksum[hits] < 0, kind="stable")]
        body, is_captured = np.zeros(length, np.uint8), np.zeros(length, np.bool_)
        for i, first_offset in zip(hits.tolist(), begin[hits].tolist(), strict=True):
            low, high = max(first_offset, 0), min(first_offset + int(segments.length[i]), length)
            buffer_start = int(segments.start[i]) - first_offset
            is_new = ~is_captured[low:high]
            body[low:high][is_new] = segments.buffer[buffer_start + low : buffer_start + high][is_new]
            is_captured[low:high] = True
        return body, is_captured, np.unique(segments.packet_number[hits])

    def _segments(self, rows: Int64Array) -> Segments:
        """The TCP segments in packets; ``number`` is the index of the packet."""
        return Dissector(self._decode_as).segments(window_of(self.packets(rows), rows))

    def packets(self, rows: Int64Array) -> list[CapturedPacket]:
        """The packets with the given indexes, read from their files."""
        with self._lock:
            return self._read_packets(rows)

    def _read_packets(self, rows: Int64Array) -> list[CapturedPacket]:
        table, packets = self._table(), []
        files: dict[int, PeekableStream] = {}
        try:
            for row in rows.tolist():
                file, position, caplen, wirelen, ts_ns, link_type = (
                    int(table[name][row]) for name in ("file", "position", "caplen", "wirelen", "ts_ns", "link_type")
                )
                if file not in files:
                    files[file] = self._open(file)
                files[file].seek(position)
                raw = files[file].read(caplen)
                if len(raw) < caplen:
                    raise CaptureError(f"{self._capture.files[file]} is shorter than when it was read")
                packets.append(CapturedPacket(raw, wirelen, ts_ns, link_type))
        finally:
            for file, source in files.items():
                if file not in self._unpacked:
                    source.close()
        return packets

    def _open(self, file: int) -> PeekableStream:
        """The uncompressed bytes of a file, as a seekable stream."""
        if file in self._unpacked:
            return _plain_bytes(self._unpacked[file])
        source = self._capture.source(file)
        if source.size_bytes is not None:
            return source
        unpacked = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this lives
        while piece := source.read(COPY_BYTES):
            unpacked.write(piece)
        source.close()
        weakref.finalize(self, let_go, unpacked)
        self._unpacked[file] = unpacked
        return _plain_bytes(unpacked)


def _plain_bytes(file: BinaryIO) -> PeekableStream:
    file.flush()
    size = file.seek(0, 2)
    file.seek(0)
    return plain_bytes(file, size)
