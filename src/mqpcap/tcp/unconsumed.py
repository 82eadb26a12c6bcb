"""Stores the bytes that the reader did not consume, until the next bytes of their side come."""

import os
import tempfile

import numpy as np
from numpy.typing import NDArray

from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.flow_records import PIECE
from mqpcap.tcp.flow_table import gather_pieces

FIRST_BYTES = 65536
"""Initial capacity, once there are unconsumed bytes."""
_EMPTY = memoryview(b"")


class UnconsumedBytes:
    """Unconsumed pieces and their bytes; above a cap the bytes live in a temporary file."""

    def __init__(self, cap: int, counts: dict[str, int]) -> None:
        self._cap = cap
        self._counts = counts
        self.pieces = np.zeros(0, PIECE)
        self.bytes: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._used = 0

    def __getstate__(self) -> dict[str, object]:
        """The state to pickle: bytes without spare capacity."""
        live = self.pieces.copy()
        live["start"] = np.cumsum(live["length"]) - live["length"]
        data = self._live(np.empty(self.byte_count, np.uint8))
        return self.__dict__ | {"pieces": live, "bytes": data, "_used": len(data)}

    @property
    def byte_count(self) -> int:
        """Unconsumed bytes."""
        return int(self.pieces["length"].sum())

    def add(self, pieces: NDArray[np.void], buffer: NDArray[np.uint8]) -> None:
        """Add pieces, and copy their bytes out of buffer."""
        if len(pieces) == 0:
            if len(self.pieces) == 0:
                self._used = 0
            return
        pieces = pieces.copy()
        length = np.ascontiguousarray(pieces["length"])
        total = int(length.sum())
        self._reserve(total)
        _copy(self.bytes[self._used : self._used + total], buffer, pieces["start"], length)
        pieces["start"] = self._used + np.cumsum(length) - length
        self._used += total
        self.pieces = np.concatenate([self.pieces, pieces])

    def add_tails(
        self, chunks: StreamChunks, rows: NDArray[np.int64], sides: NDArray[np.int64], first_kept: NDArray[np.int64]
    ) -> None:
        """Add the bytes of chunks from the offset ``first_kept`` of their side on."""
        counts = chunks.piece_first[rows + 1] - chunks.piece_first[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        piece = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        piece += chunks.piece_first[rows][owner]
        left = chunks.piece_offset[piece] + chunks.piece_length[piece] > first_kept[owner]
        owner, piece = owner[left], piece[left]
        pieces = np.zeros(len(piece), PIECE)
        skip = np.maximum(first_kept[owner] - chunks.piece_offset[piece], 0)
        pieces["side"] = sides[owner]
        pieces["offset"] = chunks.piece_offset[piece] + skip
        pieces["length"] = chunks.piece_length[piece] - skip
        pieces["start"] = chunks.start[rows][owner] + pieces["offset"] - chunks.offset[rows][owner]
        pieces["ts_ns"] = chunks.piece_ts_ns[piece]
        pieces["packet_number"] = chunks.piece_packet_number[piece]
        pieces["file"] = chunks.piece_file[piece]
        pieces["ack"] = chunks.piece_ack[piece]
        self.add(pieces, chunks.buffer)

    def _reserve(self, byte_count: int) -> None:
        if self._used + byte_count <= len(self.bytes):
            return
        used = self.byte_count
        size = max((used + byte_count) * 2, FIRST_BYTES)
        data: NDArray[np.uint8]
        if size > self._cap:
            self._counts["kept_in_file"] = self._counts.get("kept_in_file", 0) + 1
            with tempfile.TemporaryFile(prefix="mqpcap-") as file:
                if hasattr(os, "posix_fallocate"):  # a full disk would be a bus error later
                    os.posix_fallocate(file.fileno(), 0, size)
                data = np.memmap(file, np.uint8, "w+", shape=(size,))
        else:
            data = np.empty(size, np.uint8)
        self._live(data[:used])
        self.pieces["start"] = np.cumsum(self.pieces["length"]) - self.pieces["length"]
        self.bytes, self._used = data, used

    def _live(self, target: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Copy the unconsumed bytes into target without space between the pieces."""
        _copy(target, self.bytes, self.pieces["start"], self.pieces["length"])
        return target


def _copy(
    target: NDArray[np.uint8], source: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]
) -> None:
    """Copy runs of source into target without space between them."""
    order, starts, lengths = np.arange(len(start)), np.ascontiguousarray(start), np.ascontiguousarray(length)
    gather_pieces(
        memoryview(target), memoryview(source), _EMPTY, _EMPTY, memoryview(order), 0, memoryview(starts),
        memoryview(lengths),
    )  # fmt: skip
