"""Bytes of connections that `OpeningTable` found foreign: they become ranges without a message.

In: chunks of a window. Out: rows of ``problems``, when a range ends at a gap or with its side. Called by: `Framer`.
"""

from collections.abc import Iterable

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.decode.frames import FoundMessages, Problem
from mqpcap.tcp.chunks import StreamChunks


class ForeignStreams:
    """The ranges of foreign connections while they grow: a tuple for a side, and no object."""

    def __init__(self) -> None:
        self._ranges: dict[int, tuple[int, int, str, int, int]] = {}
        """By connection * 2 + side: stream offsets of begin and end, reason, time and number of the first packet."""

    def add(self, chunks: StreamChunks, rows: Int64Array, reasons: Iterable[str], output: FoundMessages) -> None:
        """Add the bytes of chunks, each with its reason."""
        ranges = self._ranges
        if not len(rows):
            return
        first_piece = np.minimum(chunks.piece_first[rows], max(len(chunks.piece_ts_ns) - 1, 0))
        has_pieces = len(chunks.piece_ts_ns) > 0
        ts_ns, numbers = (
            x[first_piece] if has_pieces else first_piece for x in (chunks.piece_ts_ns, chunks.piece_packet_number)
        )
        keys, offsets = chunks.flow[rows] * 2 + chunks.side[rows], chunks.offset[rows]
        columns = keys, offsets, offsets + chunks.length[rows], chunks.ended[rows], ts_ns, numbers
        for reason, (key, offset, end, ended, time_ns, number) in zip(
            reasons, zip(*(x.tolist() for x in columns), strict=True), strict=True
        ):
            growing = ranges.get(key)
            if growing is not None and growing[1] < offset:
                self._end(key, output)
                growing = None
            if end > offset:
                ranges[key] = (
                    (offset, end, reason, time_ns, number)
                    if growing is None
                    else (growing[0], end, reason, growing[3], growing[4])
                )
            if ended and key in ranges:
                self._end(key, output)

    def end(self, numbers: Iterable[int] | None, output: FoundMessages) -> None:
        """End the ranges of connections, None for all."""
        for key in [*self._ranges] if numbers is None else [2 * n + side for n in numbers for side in (0, 1)]:
            if key in self._ranges:
                self._end(key, output)

    def _end(self, key: int, output: FoundMessages) -> None:
        offset, end, reason, ts_ns, number = self._ranges.pop(key)
        output.problems.append(Problem(key >> 1, key & 1, offset, end - offset, "undecoded", reason, ts_ns, number))
