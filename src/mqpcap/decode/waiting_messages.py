"""Messages that wait, of many connections, as blocks of columns.

In: messages in buffers of their own. Out: all messages of some connections, in order of time. Called by: ``evidence``.

A connection with few messages takes few bytes: a block holds the messages of all connections that came together.
Messages that were taken stay in their block, without a connection, until they are more than half of it.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from mqpcap.arrays import factorize, is_identity
from mqpcap.decode.frames import Frames
from mqpcap.records import dataclass

BLOCK_BYTES = 4 << 20
"""Blocks of less than this are merged."""
ROW_BYTES = 128
"""Memory of a message beside its bytes."""
CONNECTION_BYTES = 256
"""Memory of a connection beside its messages."""
LAST_NS = (1 << 63) - 1
_TAKEN = -1
"""In place of the connection of a message that was taken."""


@dataclass(slots=True)
class Waiting:
    """The messages of one connection: how many, their bytes, when the first began and when the first was complete."""

    count: int = 0
    byte_count: int = 0
    first_ns: int = LAST_NS
    first_end_ns: int = LAST_NS

    @property
    def memory_bytes(self) -> int:
        """Memory of the messages."""
        return self.byte_count + self.count * ROW_BYTES + CONNECTION_BYTES


class WaitingMessages:
    """The waiting messages of one protocol; ``flows``: the connections that have any."""

    def __init__(self) -> None:
        self.flows: dict[int, Waiting] = {}
        self._blocks: list[Frames] = []

    @property
    def memory_bytes(self) -> int:
        """Memory of all messages, those that were taken but are still in a block included."""
        return sum(block.memory_bytes for block in self._blocks) + len(self.flows) * CONNECTION_BYTES

    def add(self, frames: Frames) -> None:
        """Add messages, whose buffer holds nothing else."""
        if not len(frames.start):
            return
        flows, index = factorize(frames.flow)
        first_ns, first_end_ns = np.full(len(flows), LAST_NS), np.full(len(flows), LAST_NS)
        np.minimum.at(first_ns, index, frames.ts_ns)
        np.minimum.at(first_end_ns, index, frames.end_ts_ns)
        byte_counts = np.bincount(index, frames.end - frames.start).astype(np.int64)
        columns = flows, np.bincount(index), byte_counts, first_ns, first_end_ns
        for flow, count, byte_count, *times in zip(*(column.tolist() for column in columns), strict=True):
            waiting = self.flows.setdefault(flow, Waiting())
            waiting.count += count
            waiting.byte_count += byte_count
            waiting.first_ns = min(waiting.first_ns, times[0])
            waiting.first_end_ns = min(waiting.first_end_ns, times[1])
        self._blocks.append(replace(frames, flow=frames.flow.copy()))
        # A block is merged with smaller ones only, so that a message is copied a few times at most.
        while len(self._blocks) > 1 and self._blocks[-2].memory_bytes <= min(
            2 * self._blocks[-1].memory_bytes, BLOCK_BYTES
        ):
            self._blocks[-2:] = [Frames.merged([_not_taken(block) for block in self._blocks[-2:]])]

    def take(self, flows: Collection[int]) -> Frames:
        """All messages of some connections, which have messages here; they have none afterwards."""
        for flow in flows:
            del self.flows[flow]
        blocks, self._blocks = self._blocks, []
        if not self.flows:
            return Frames.merged([_not_taken(block) for block in blocks])
        parts, wanted = [], np.array([*flows], np.int64)
        for block in blocks:
            rows = np.flatnonzero(np.isin(block.flow, wanted))
            if is_identity(rows, len(block.flow)):
                parts.append(block)
                continue
            parts.append(block.copied(rows))
            block.flow[rows] = _TAKEN
            left = int(np.count_nonzero(block.flow != _TAKEN))
            if left:
                self._blocks.append(block if 2 * left >= len(block.flow) else _not_taken(block))
        return Frames.merged([part for part in parts if len(part.start)])

    def take_in_parts(self, flows: Collection[int], part_bytes: int) -> Iterator[Frames]:
        """The messages of those of the connections that have any, in parts of about that memory.

        All messages of a connection are in one part.
        """
        part: list[int] = []
        size_bytes = 0
        for flow in [flow for flow in flows if flow in self.flows]:
            part.append(flow)
            size_bytes += self.flows[flow].memory_bytes
            if size_bytes >= part_bytes:
                yield self.take(part)
                part, size_bytes = [], 0
        if part:
            yield self.take(part)


def _not_taken(block: Frames) -> Frames:
    is_left = block.flow != _TAKEN
    return block if is_left.all() else block.copied(np.flatnonzero(is_left))
