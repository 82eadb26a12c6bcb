"""Collects the evidence of connections from their messages, and buffers messages until it decides.

In: framed messages of a protocol with an `EvidenceRule`. Out: messages whose reading no later message can change.
Called by: ``pipeline``, between `Framer` and `ColumnReader`.

The rule observes the messages of a connection until its evidence is fixed: its dialect, its login. Until then messages
that depend on the evidence are *unresolved* and wait, as copies, within the limits below. Beyond a limit, and when the
connection ends, the evidence at that time decides. So rows do not depend on windows: they are observed in order of
time, all of a connection before any of them is released.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize
from mqpcap.decode.columns import ColumnReader
from mqpcap.decode.frames import Frames
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ConnectionFacts, Evidence, EvidenceRule, MessageQueue, Observation, Raw

MAX_UNRESOLVED_MESSAGES = 256
"""Messages of a connection that wait for its evidence; beyond it the current evidence decides."""
MAX_UNRESOLVED_BYTES = 1 << 20
"""The same limit in bytes of messages."""
MAX_UNRESOLVED_TOTAL_BYTES = 64 << 20
"""Bytes of unresolved messages of all connections. Above it no further messages wait; buffered messages stay."""
_NO_FACTS = ConnectionFacts()


class EvidenceCollector:
    """The evidence of all connections, and their unresolved messages.

    ``connections``: those of the `Framer`; ``shared``: by protocol the facts that its connections share.
    """

    def __init__(self, connections: Mapping[int, ConnectionState]) -> None:
        self._connections = connections
        self.shared: dict[str, SharedFacts] = {}
        self._unresolved: dict[str, dict[int, list[Frames]]] = {}
        """By protocol and connection, in order of time."""
        self._unresolved_bytes = 0

    def of(self, flow: int) -> Evidence:
        """The evidence of a connection of a supported protocol."""
        evidence = self._connections[flow].evidence
        assert evidence is not None
        return evidence

    def facts(self, protocol: MessageQueue, flows: Sequence[int]) -> list[ConnectionFacts]:
        """The facts of each connection, by the current evidence."""
        rule = protocol.evidence
        return [_NO_FACTS if rule is None else rule.resolve(self.of(flow)) for flow in flows]

    def is_complete(self, flow: int) -> bool:
        """Whether no later message of a connection can prove anything that other connections depend on."""
        connection = self._connections[flow]
        rule = None if connection.protocol is None else connection.protocol.evidence
        return connection.decided and (rule is None or not rule.tells or self.of(flow).is_fixed)

    # -- messages ------------------------------------------------------------------------------------------

    def resolved(self, reader: ColumnReader, parts: list[Frames]) -> Iterator[Frames]:
        """The messages of a protocol in a window whose reading is final; those of a connection in order of time.

        ``parts`` are the messages in the window's buffer and in copies.
        """
        rule = reader.protocol.evidence
        for frames in parts if rule is None else self._open_together(parts):
            yield from [frames] if rule is None else self._release_resolved(reader, rule, frames)

    def _open_together(self, parts: list[Frames]) -> list[Frames]:
        """The messages of connections with open evidence as one part, in order of time; other messages unchanged."""
        if len(parts) == 1:
            return parts
        flows = np.unique(np.concatenate([part.flow for part in parts])).tolist()
        is_open = [np.isin(part.flow, [f for f in flows if not self.of(f).is_fixed]) for part in parts]
        if sum(mask.any() for mask in is_open) < 2:
            return parts
        open_parts = [part.copied(np.flatnonzero(mask)) for part, mask in zip(parts, is_open, strict=True)]
        fixed_parts = [part.taken(np.flatnonzero(~mask)) for part, mask in zip(parts, is_open, strict=True)]
        return [Frames.merged(open_parts), *(part for part in fixed_parts if len(part.start))]

    def _release_resolved(self, reader: ColumnReader, rule: EvidenceRule, frames: Frames) -> Iterator[Frames]:
        flows, index = factorize(frames.flow)
        evidences = [self.of(flow) for flow in flows.tolist()]
        is_open = np.array([not evidence.is_fixed for evidence in evidences], np.bool_)
        if is_open.any():
            self._observe(reader, rule, frames, is_open[index])
        unresolved = self._unresolved.setdefault(reader.protocol.name, {})
        if not unresolved and not is_open.any():
            yield frames
            return
        depends = np.bincount(index[_is_evidence(reader, rule, frames)], minlength=len(flows)) > 0
        counts = np.bincount(index, minlength=len(flows)).tolist()
        sizes = np.bincount(index, frames.end - frames.start, len(flows)).astype(np.int64).tolist()
        waits = np.zeros(len(flows), np.bool_)
        for i, (flow, evidence) in enumerate(zip(flows.tolist(), evidences, strict=True)):
            if not evidence.is_fixed and (depends[i] or flow in unresolved):
                evidence.is_fixed = self._is_full(unresolved.get(flow, ()), counts[i], sizes[i])
                waits[i] = not evidence.is_fixed
        yield from self._release(reader.protocol.name, [f for f in flows[~waits].tolist() if f in unresolved])
        if not waits.any():
            yield frames
            return
        yield frames.taken(np.flatnonzero(~waits[index]))
        for i in np.flatnonzero(waits).tolist():
            part = frames.copied(np.flatnonzero(index == i))
            unresolved.setdefault(int(flows[i]), []).append(part)
            self._unresolved_bytes += len(part.buffer)

    def _is_full(self, buffered: Sequence[Frames], count: int, size_bytes: int) -> bool:
        """Whether a connection cannot wait with further messages, by their number and size."""
        count += sum(len(part.start) for part in buffered)
        size_bytes += sum(len(part.buffer) for part in buffered)
        return (
            count > MAX_UNRESOLVED_MESSAGES
            or size_bytes > MAX_UNRESOLVED_BYTES
            or self._unresolved_bytes > MAX_UNRESOLVED_TOTAL_BYTES
        )

    def _release(self, protocol: str, flows: Sequence[int]) -> Iterator[Frames]:
        """The unresolved messages of connections, which wait no longer."""
        unresolved = self._unresolved.get(protocol, {})
        parts = [part for flow in flows for part in unresolved.pop(flow, ())]
        self._unresolved_bytes -= sum(len(part.buffer) for part in parts)
        if parts:
            yield Frames.merged(parts)

    def flush(self, flows: Collection[int] | None = None, have_ended: bool = True) -> Iterator[Frames]:
        """The unresolved messages of connections (None: of all), to be read by the current evidence.

        If the connections have not ended, their later messages may be read otherwise.
        """
        for protocol, unresolved in self._unresolved.items():
            released = [flow for flow in (unresolved if flows is None else flows) if flow in unresolved]
            for flow in released if have_ended else ():
                self.of(flow).is_fixed = True
            yield from self._release(protocol, released)

    def unresolved_since_ns(self) -> dict[int, int]:
        """Connections with unresolved messages, and the time of the first of them."""
        waiting = (connection for unresolved in self._unresolved.values() for connection in unresolved.items())
        return {flow: int(parts[0].ts_ns[0]) for flow, parts in waiting}

    def with_layouts(self, reader: ColumnReader, frames: Frames) -> Frames:
        """The messages in the layouts that the evidence of their connections selects."""
        rule = reader.protocol.evidence
        if rule is None or rule.select_layout is None:
            return frames
        names = [layout.name for layout in reader.program.layouts]
        keys, index = factorize(frames.flow * len(names) + frames.layout)
        pairs = [divmod(key, len(names)) for key in keys.tolist()]
        layouts = [names.index(rule.select_layout(self.of(flow), names[layout])) for flow, layout in pairs]
        return replace(frames, layout=np.array(layouts, np.int32)[index])

    # -- evidence ------------------------------------------------------------------------------------------

    def _observe(self, reader: ColumnReader, rule: EvidenceRule, frames: Frames, is_open: NDArray[np.bool_]) -> None:
        """Pass the rule the messages that are evidence, of connections whose evidence is open."""
        is_observed = is_open & (frames.flaw == Flaw.NONE) & _is_evidence(reader, rule, frames)
        if rule.ops is not None:
            is_observed &= np.isin(frames.op, list(rule.ops))
        rows = np.flatnonzero(is_observed)
        if not len(rows):
            return
        for raw in reader.raw(frames.taken(rows).spans()):
            self._observe_batch(rule, frames, rows[: raw.n], raw)
            rows = rows[raw.n :]

    def _observe_batch(self, rule: EvidenceRule, frames: Frames, rows: NDArray[np.intp], raw: Raw) -> None:
        sound: Int64Array = np.flatnonzero(raw.flaw == Flaw.NONE)
        rows = rows[sound]
        flows, index = factorize(frames.flow[rows])
        client = np.array([self._connections[flow].client for flow in flows.tolist()], np.int8)
        shared = self.shared.setdefault(frames.protocol, SharedFacts())
        rule.observe(
            Observation(
                raw, sound, [self.of(flow) for flow in flows.tolist()], index, client[index] == frames.side[rows],
                frames.op[rows], frames.ts_ns[rows], shared.add_fact, shared.lookup,
            )
        )  # fmt: skip


def _is_evidence(reader: ColumnReader, rule: EvidenceRule, frames: Frames) -> NDArray[np.bool_]:
    """By message, whether messages of its layout are evidence."""
    if rule.layouts is None:
        return np.ones(len(frames.layout), np.bool_)
    layouts = [i for i, layout in enumerate(reader.program.layouts) if layout.name in rule.layouts]
    return np.isin(frames.layout, layouts)
