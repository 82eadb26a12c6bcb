"""Bytes of connections that `OpeningTable` found foreign: they become ranges without a message.

In: chunks of a window. Out: rows of ``problems``, when a range ends at a gap or with its side. Called by: `Framer`.
Ranges are rows of numbers (see ``frames.FOREIGN_COLUMNS``), those of all connections of a window together.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.decode.frames import FOREIGN_COLUMNS, FoundMessages
from mqpcap.tcp.chunks import StreamChunks

_FLOW, _SIDE, _OFFSET, _LENGTH = range(4)


class ForeignStreams:
    """The ranges of foreign connections while they grow."""

    def __init__(self) -> None:
        self._growing = np.zeros((0, len(FOREIGN_COLUMNS)), np.int64)

    def add(self, chunks: StreamChunks, rows: Int64Array, is_tls: NDArray[np.bool_], output: FoundMessages) -> None:
        """Add the bytes of chunks; ``is_tls``: whether the connection of each is TLS."""
        if not len(rows):
            return
        flow, side, ended = chunks.flow[rows], chunks.side[rows], chunks.ended[rows]
        last_piece = len(chunks.piece_ts_ns) - 1  # below 0 if all sides only end
        piece = np.minimum(chunks.piece_first[rows], last_piece)
        ts_ns, number = (
            x[piece] if last_piece >= 0 else piece for x in (chunks.piece_ts_ns, chunks.piece_packet_number)
        )
        new = np.column_stack([flow, side, chunks.offset[rows], chunks.length[rows], ts_ns, number, is_tls])
        ranges = np.concatenate([self._growing, new[new[:, _LENGTH] > 0]])
        sides = ranges[:, _FLOW] * 2 + ranges[:, _SIDE]
        order = np.argsort(sides, kind="stable")
        ranges, sides = ranges[order], sides[order]
        ends = ranges[:, _OFFSET] + ranges[:, _LENGTH]
        is_new_side = sides[1:] != sides[:-1]
        firsts = np.flatnonzero(np.append(True, is_new_side | (ends[:-1] < ranges[1:, _OFFSET]))[: len(ranges)])
        lasts = np.append(firsts[1:], len(ranges))[: len(firsts)] - 1
        joined = ranges[firsts]
        joined[:, _LENGTH] = ends[lasts] - joined[:, _OFFSET]
        # Only the last range of a side can grow.
        grows = np.append(is_new_side, True)[lasts] & ~np.isin(sides[lasts], (flow * 2 + side)[ended])
        self._growing = joined[grows]
        output.foreign.append(joined[~grows])

    def end(self, numbers: Collection[int] | None, output: FoundMessages) -> None:
        """End the ranges of connections, None for all."""
        flows = self._growing[:, _FLOW]
        ends = np.isin(flows, [*numbers]) if numbers is not None else np.ones(len(flows), np.bool_)
        output.foreign.append(self._growing[ends])
        self._growing = self._growing[~ends]
