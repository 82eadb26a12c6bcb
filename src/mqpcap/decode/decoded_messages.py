"""Decodes messages in several buffers in order of time.

In: the messages that a window completes, as `Frames` over the window's buffer and over copies of earlier bytes. Out:
decoded batches of bounded size. Called by: ``pipeline``, which pairs the batches in steps.

Messages of one connection lie in several buffers. A step must not pair a reply before its request, so the next batch is
always of the buffer with the earliest message, and each batch names the earliest message that is not decoded yet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames

TimeKey = tuple[int, int, int]
"""Time (ns), first packet and stream offset of a message. Messages are paired in this order."""
AFTER_ALL: TimeKey = ((1 << 63) - 1, 0, 0)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch of messages. Messages of its connections that are decoded later do not begin before ``next_key``."""

    frames: Frames
    records: Records
    next_key: TimeKey


def sharing_connections(parts: Sequence[Frames]) -> list[list[Frames]]:
    """The parts in groups, so that all messages of a connection are in one group."""
    groups: list[tuple[set[int], list[Frames]]] = []
    for part in parts:
        flows, members = (set(np.unique(part.flow).tolist()) if len(parts) > 1 else set()), [part]
        for group in [group for group in groups if not group[0].isdisjoint(flows)]:
            groups.remove(group)
            flows, members = flows | group[0], [*group[1], *members]
        groups.append((flows, members))
    return [members for _, members in groups]


def in_order_of_time(parts: Sequence[tuple[Frames, Iterator[Records]]]) -> Iterator[Decoded]:
    """The batches of parts; each part is in order of time."""
    heap = [(_time_key(frames, 0), number, 0) for number, (frames, _) in enumerate(parts)]
    heapify(heap)
    while heap:
        _, number, row = heappop(heap)
        frames, batches = parts[number]
        records = next(batches)
        end = row + len(records.flaw)
        if end < len(frames.start):
            heappush(heap, (_time_key(frames, end), number, end))
        yield Decoded(frames.taken(np.s_[row:end]), records, heap[0][0] if heap else AFTER_ALL)


def _time_key(frames: Frames, row: int) -> TimeKey:
    return int(frames.ts_ns[row]), int(frames.first_packet[row]), int(frames.offset[row])
