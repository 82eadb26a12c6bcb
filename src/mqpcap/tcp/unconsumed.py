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
MIN_BLOCK_PIECES = 1024
"""A block of waiting pieces that has fewer is joined with the next one."""
_EMPTY = memoryview(b"")


class UnconsumedBytes:
    """Unconsumed pieces and their bytes; above a cap the bytes live in a temporary file.

    ``pieces``: those that the next bytes of their side return. ``waiting``: by side, in blocks, those that wait until a
    long message is whole; a feed that does not return them does not look at them.
    """

    def __init__(self, cap: int, counts: dict[str, int]) -> None:
        self._cap = cap
        self._counts = counts
        self.pieces = np.zeros(0, PIECE)
        self.waiting: dict[int, list[NDArray[np.void]]] = {}
        self.bytes: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._used = 0

    def __getstate__(self) -> dict[str, object]:
        """The state to pickle: bytes without spare capacity."""
        data = np.empty(self.byte_count, np.uint8)
        self._move(data)
        return self.__dict__ | {"bytes": data}

    @property
    def byte_count(self) -> int:
        """Unconsumed bytes."""
        return sum(int(block["length"].sum()) for block in self._blocks())

    def take(self, is_taken: NDArray[np.bool_]) -> list[NDArray[np.void]]:
        """Remove the pieces of the sides that ``is_taken`` marks; returns them, each side's in order of its stream."""
        rows = is_taken[self.pieces["side"]]
        taken = [self.pieces[rows]]
        self.pieces = self.pieces[~rows]
        for side in [side for side in self.waiting if is_taken[side]]:
            taken += self.waiting.pop(side)
        return taken

    def add(self, pieces: NDArray[np.void], waits: NDArray[np.bool_], buffer: NDArray[np.uint8]) -> None:
        """Add pieces, sorted by side, and copy their bytes out of buffer; changes where they start.

        ``waits``: whether it waits for a long message, by piece.
        """
        if len(pieces) == 0:
            if len(self.pieces) == 0 and not self.waiting:
                self._used = 0
            return
        length = np.ascontiguousarray(pieces["length"])
        total = int(length.sum())
        self._reserve(total)
        _copy(self.bytes[self._used : self._used + total], buffer, pieces["start"], length)
        pieces["start"] = self._used + np.cumsum(length) - length
        self._used += total
        self.pieces = np.concatenate([self.pieces, pieces[~waits]])
        waiting = pieces[waits]
        bounds = np.flatnonzero(np.diff(waiting["side"])) + 1
        for block in np.split(waiting, bounds) if len(waiting) else ():
            blocks = self.waiting.setdefault(int(block["side"][0]), [])
            if blocks and len(blocks[-1]) < MIN_BLOCK_PIECES:
                blocks.append(np.concatenate([blocks.pop(), block]))
            else:
                blocks.append(block if len(block) == len(waiting) else block.copy())

    def add_tails(
        self,
        chunks: StreamChunks,
        rows: NDArray[np.int64],
        sides: NDArray[np.int64],
        first_kept: NDArray[np.int64],
        waits: NDArray[np.bool_],
    ) -> None:
        """Add the bytes of chunks from the offset ``first_kept`` of their side on. ``waits``: as in add, by chunk."""
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
        self.add(pieces, waits[owner], chunks.buffer)

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
        self._move(data)

    def _blocks(self) -> list[NDArray[np.void]]:
        return [self.pieces, *(block for blocks in self.waiting.values() for block in blocks)]

    def _move(self, target: NDArray[np.uint8]) -> None:
        """Let the unconsumed bytes live in target, without space between the pieces."""
        used = 0
        for block in self._blocks():
            length = np.ascontiguousarray(block["length"])
            _copy(target[used:], self.bytes, block["start"], length)
            block["start"] = used + np.cumsum(length) - length
            used += int(length.sum())
        self.bytes, self._used = target, used


def _copy(
    target: NDArray[np.uint8], source: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]
) -> None:
    """Copy runs of source into target without space between them."""
    order, starts, lengths = np.arange(len(start)), np.ascontiguousarray(start), np.ascontiguousarray(length)
    gather_pieces(
        memoryview(target), memoryview(source), _EMPTY, _EMPTY, memoryview(order), 0, memoryview(starts),
        memoryview(lengths),
    )  # fmt: skip
