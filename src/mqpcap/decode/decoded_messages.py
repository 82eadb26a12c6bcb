"""Decodes messages as soon as no later message can change how they are read.

In: the messages that a window completes, as `Frames` over the window's buffer and over copies of earlier bytes. Out:
decoded batches of bounded size. Called by: ``pipeline``, which pairs the batches in steps.

Messages of one connection lie in several buffers. A step must not pair a reply before its request, so the next batch is
always of the buffer with the earliest message, and each batch names the earliest message that is not decoded yet.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from mqpcap.arrays import factorize
from mqpcap.decode.columns import ColumnReader, Records
from mqpcap.decode.evidence import EvidenceCollector, Progress
from mqpcap.decode.frames import Decoded, Frames, TimeKey
from mqpcap.decode.remembered import recalled
from mqpcap.schema.protocol import MessageQueue

AFTER_ALL: TimeKey = ((1 << 63) - 1, 0, 0)


class MessageDecoder:
    """Decodes the messages of a capture, protocol by protocol.

    ``columns``: by protocol, the fields to read. ``keep_bodies``: the bytes of a body to keep. None stands for all.
    """

    def __init__(
        self,
        protocols: Mapping[str, MessageQueue],
        columns: Mapping[str, Collection[str] | None],
        keep_bodies: int | None,
        evidence: EvidenceCollector,
    ) -> None:
        self._protocols, self._columns, self._keep_bodies = protocols, columns, keep_bodies
        self._evidence = evidence
        self._readers: dict[str, ColumnReader] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_readers": {}}

    def reader(self, name: str) -> ColumnReader:
        """The reader of a protocol's messages."""
        if name not in self._readers:
            self._readers[name] = ColumnReader(self._protocols[name], self._columns[name])
        return self._readers[name]

    def decode(
        self, parts: Sequence[Frames], select: Callable[[Frames], Frames], progress: Callable[[], Progress]
    ) -> Iterator[Decoded]:
        """The messages of a window whose reading is final, and buffered messages whose reading is final now.

        ``select``: the messages to decode; all others are only evidence. ``progress``: see `EvidenceCollector`.
        """
        parts_by_protocol: dict[str, list[Frames]] = {name: [] for name in self._evidence.waiting_protocols}
        for frames in parts:
            parts_by_protocol.setdefault(frames.protocol, []).append(frames)
        for name, protocol_parts in sorted(parts_by_protocol.items()):
            yield from self._decoded(self._evidence.resolved(self.reader(name), protocol_parts, progress), select)

    def flush(
        self, flows: Collection[int] | None, select: Callable[[Frames], Frames], have_ended: bool = True
    ) -> Iterator[Decoded]:
        """The buffered messages of connections (None: of all), by the evidence at that time."""
        return self._decoded(self._evidence.flush(self.reader, flows, have_ended), select)

    def _decoded(self, resolved: Iterator[Frames], select: Callable[[Frames], Frames]) -> Iterator[Decoded]:
        selected = [frames for frames in map(select, resolved) if len(frames.start)]
        for parts in sharing_connections(selected):
            decoded = [self._batches(frames) for frames in parts]
            batches, protocol = in_order_of_time(decoded), self._protocols[parts[0].protocol]
            if protocol.remembered:
                batches = recalled(protocol, [frames for frames, _ in decoded], batches, self._evidence.evidence_of)
            yield from batches

    def _batches(self, frames: Frames) -> tuple[Frames, Iterator[Records]]:
        protocol, reader = self._protocols[frames.protocol], self.reader(frames.protocol)
        frames = self._evidence.with_layouts(reader, frames)
        spans = frames.spans()
        if protocol.evidence is not None and protocol.derive is not None:
            flows, index = factorize(frames.flow)
            facts, places = self._evidence.facts(protocol, flows.tolist())
            spans = replace(spans, connection_index=places[index], facts=facts)
        return frames, reader.batches(spans, self._keep_bodies)


def sharing_connections(parts: Sequence[Frames]) -> list[list[Frames]]:
    """The parts in groups, so that all messages of a connection are in one group."""
    groups: list[tuple[set[int], list[Frames]]] = []
    for part in parts:
        flows, members = (set(factorize(part.flow)[0].tolist()) if len(parts) > 1 else set()), [part]
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
