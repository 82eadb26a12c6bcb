"""Collects the evidence of connections from their messages, and buffers messages until it decides.

In: framed messages of a protocol with an `EvidenceRule`. Out: messages whose reading no later message can change.
Called by: `MessageDecoder`, between `Framer` and `ColumnReader`.

The rule observes the messages of a connection until its evidence is fixed: its dialect, its login. Until then messages
that depend on the evidence are *unresolved* and wait, as copies, within the limits below. Beyond a limit, and when the
connection ends, the evidence at that time decides.

Rows must not depend on windows: the rule observes the messages of a connection in order of completion. While a side
waits for bytes, messages that were complete after it began to wait are *early*: they are buffered and not observed.

A connection may ask for a fact of another connection (``Evidence.lookup``). If its own server shared no fact, its
messages wait until ASK_NS more of the capture was read and no connection that may share the fact is stalled.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize
from mqpcap.decode.columns import ColumnReader, flaw_reader
from mqpcap.decode.frames import Frames
from mqpcap.decode.framing import ConnectionState
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.decode.waiting_messages import LAST_NS, Waiting, WaitingMessages
from mqpcap.records import dataclass
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ConnectionFacts, Evidence, EvidenceRule, MessageQueue, Observation, Raw

MAX_UNRESOLVED_MESSAGES = 256
"""Messages of a connection, from the first that is evidence, that are observed; if there are more, these decide."""
MAX_UNRESOLVED_BYTES = 1 << 20
"""The same limit in bytes of messages."""
ASK_NS = 200_000_000
"""After a connection asked for a fact, another connection may share it for this time of the capture."""
MAX_UNRESOLVED_TOTAL_BYTES = 64 << 20
"""Memory of the unresolved messages of all connections. Above it no further messages wait; buffered messages stay."""
RELEASED_BYTES = 8 << 20
"""Memory of unresolved messages that are released together."""
_NO_FACTS = ConnectionFacts()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the capture was read: the time of the newest packet, and since when connections wait for bytes."""

    now_ns: int = LAST_NS
    since_ns: Mapping[int, int] = field(default_factory=dict)


class EvidenceCollector:
    """The evidence of all connections, and their unresolved messages.

    ``connections``: those of the `Framer`; ``shared``: by protocol the facts that its connections share.
    """

    def __init__(self, connections: Mapping[int, ConnectionState]) -> None:
        self._connections = connections
        self.shared: dict[str, SharedFacts] = {}
        self._unresolved: dict[str, WaitingMessages] = {}
        """By protocol: messages that were observed and wait for evidence."""
        self._early: dict[str, WaitingMessages] = {}
        """By protocol: messages that must not be observed yet."""
        self._asking: dict[str, dict[int, None]] = {}
        """By protocol: connections that wait for a fact, in order of asking."""

    def evidence_of(self, flow: int) -> Evidence:
        """The evidence of a connection of a supported protocol."""
        evidence = self._connections[flow].evidence
        assert evidence is not None
        return evidence

    def facts(self, protocol: MessageQueue, flows: Sequence[int]) -> tuple[list[ConnectionFacts], Int64Array]:
        """Facts by the current evidence, and which of them each connection has: many share one object."""
        rule = protocol.evidence
        if rule is None:
            return [_NO_FACTS], np.zeros(len(flows), np.int64)
        facts = [rule.resolve(self.evidence_of(flow)) for flow in flows]
        distinct = {id(x): x for x in facts}
        places = dict(zip(distinct, range(len(distinct)), strict=True))
        return [*distinct.values()], np.array([places[id(x)] for x in facts], np.int64)

    def is_complete(self, flow: int) -> bool:
        """Whether no later message of a connection can prove anything that other connections depend on."""
        connection = self._connections[flow]
        rule = None if connection.protocol is None else connection.protocol.evidence
        return connection.decided and (rule is None or not rule.shares_facts or self.evidence_of(flow).is_final)

    # -- messages ------------------------------------------------------------------------------------------

    @property
    def waiting_protocols(self) -> frozenset[str]:
        """Protocols with messages that the next packets may release, also if none of theirs are among them."""
        early = (name for name, waiting in self._early.items() if waiting.flows)
        return frozenset(early).union(name for name, flows in self._asking.items() if flows)

    @property
    def unresolved_bytes(self) -> int:
        """Memory of the messages that wait."""
        return sum(waiting.memory_bytes for waiting in (*self._unresolved.values(), *self._early.values()))

    @property
    def asked_ports(self) -> frozenset[int]:
        """The server ports of the connections that ask."""
        return frozenset(self.evidence_of(flow).server_port for flows in self._asking.values() for flow in flows)

    def resolved(self, reader: ColumnReader, parts: list[Frames], progress: Callable[[], Progress]) -> Iterator[Frames]:
        """The messages of a window whose reading is final, in order within each connection.

        ``parts`` are the messages in the window's buffer and in copies. ``progress`` is asked if evidence is open.
        """
        rule, name = reader.protocol.evidence, reader.protocol.name
        if rule is None:
            yield from parts
            return
        parts = self._open_together(parts)
        is_open = any(
            not self.evidence_of(flow).is_final for part in parts for flow in factorize(part.flow)[0].tolist()
        )
        if is_open or name in self.waiting_protocols:
            parts = self._hold_early(name, parts, progress().since_ns)
        for frames in parts:
            yield from self._release_resolved(reader, rule, frames)
        if self._asking.get(name):
            yield from self._unresolved[name].take_in_parts(self._answered(name, rule, progress()), RELEASED_BYTES)

    def _hold_early(self, protocol: str, parts: list[Frames], since_ns: Mapping[int, int]) -> list[Frames]:
        """Buffer early messages; returns the others, and buffered messages that are not early any longer.

        ``since_ns``: by connection, the time since which a side waits for bytes. A message is early if it was complete
        at that time or later. Nothing is early once the evidence is fixed, or if waiting messages take too much memory.
        """
        early = self._early.setdefault(protocol, WaitingMessages())
        if not early.flows and not since_ns:
            return parts
        ready = []
        for frames in parts:
            flows, index = factorize(frames.flow)
            may_be_early = np.array(
                [f in early.flows or (f in since_ns and not self.evidence_of(f).is_final) for f in flows.tolist()],
                np.bool_,
            )
            if may_be_early.any():
                early.add(frames.copied(np.flatnonzero(may_be_early[index])))
                frames = frames.taken(np.flatnonzero(~may_be_early[index]))
            ready.append(frames)
        # By connection: buffered messages that were complete before this time are ready.
        until_ns: dict[int, int] = {}
        excess_bytes = self.unresolved_bytes - MAX_UNRESOLVED_TOTAL_BYTES
        for flow, waiting in early.flows.items():
            is_order_free = excess_bytes > 0 or self.evidence_of(flow).is_final
            flow_until_ns = LAST_NS if is_order_free else since_ns.get(flow, LAST_NS)
            if waiting.first_end_ns < flow_until_ns:
                until_ns[flow] = flow_until_ns
                excess_bytes -= waiting.memory_bytes
        if until_ns:
            frames = early.take(until_ns)
            flows, index = factorize(frames.flow)
            is_early = frames.end_ts_ns >= np.array([until_ns[flow] for flow in flows.tolist()])[index]
            early.add(frames.copied(np.flatnonzero(is_early)))
            ready.append(frames.copied(np.flatnonzero(~is_early)))
        return [frames for frames in ready if len(frames.start)]

    def _open_together(self, parts: list[Frames]) -> list[Frames]:
        """The messages of connections with open evidence as a part of their own, in order of time."""
        if len(parts) < 2:
            return parts
        flows = np.unique(np.concatenate([part.flow for part in parts])).tolist()
        is_open = [np.isin(part.flow, [f for f in flows if not self.evidence_of(f).is_final]) for part in parts]
        if sum(mask.any() for mask in is_open) < 2:
            return parts
        open_parts = [part.copied(np.flatnonzero(mask)) for part, mask in zip(parts, is_open, strict=True)]
        fixed_parts = [part.taken(np.flatnonzero(~mask)) for part, mask in zip(parts, is_open, strict=True)]
        return [Frames.merged(open_parts), *(part for part in fixed_parts if len(part.start))]

    def _release_resolved(self, reader: ColumnReader, rule: EvidenceRule, frames: Frames) -> Iterator[Frames]:
        """Observe the messages of a part; yields those that need not wait, and buffered messages that they resolve.

        The messages of a connection wait as soon as they contain evidence. If there are messages beyond the limits
        (they are not observed), or if all that wait take too much memory, the evidence is final as it stands.
        """
        flows, index = factorize(frames.flow)
        evidences = [self.evidence_of(flow) for flow in flows.tolist()]
        is_open = np.array([not evidence.is_final for evidence in evidences], np.bool_)
        unresolved = self._unresolved.setdefault(reader.protocol.name, WaitingMessages())
        if not unresolved.flows and not is_open.any():
            yield frames
            return
        is_evidence = _is_evidence(reader, rule, frames)
        depends = np.bincount(index[is_evidence], minlength=len(flows)) > 0
        is_beyond = self._beyond_limits(frames, index, flows, is_evidence & is_open[index], unresolved)
        is_full = np.bincount(index[is_beyond], minlength=len(flows)) > 0
        if is_open.any():
            self._observe(reader, rule, frames, is_evidence & is_open[index] & ~is_beyond)
        waits = np.zeros(len(flows), np.bool_)
        is_excess = self.unresolved_bytes > MAX_UNRESOLVED_TOTAL_BYTES
        for i in np.flatnonzero(is_open).tolist():
            evidence = evidences[i]
            if not evidence.is_final and (depends[i] or int(flows[i]) in unresolved.flows):
                evidence.is_final = is_excess or (bool(is_full[i]) and evidence.lookup is None)
                waits[i] = not evidence.is_final
        yield from unresolved.take_in_parts(flows[~waits].tolist(), RELEASED_BYTES)
        if not waits.any():
            yield frames
            return
        yield frames.taken(np.flatnonzero(~waits[index]))
        unresolved.add(frames.copied(np.flatnonzero(waits[index])))

    def _beyond_limits(
        self,
        frames: Frames,
        index: NDArray[np.int64],
        flows: Int64Array,
        is_evidence: NDArray[np.bool_],
        unresolved: WaitingMessages,
    ) -> NDArray[np.bool_]:
        """The messages that complete too late to be evidence, by number or size."""
        is_beyond = np.zeros(len(index), np.bool_)
        sizes = frames.end - frames.start
        totals = np.bincount(index, minlength=len(flows)), np.bincount(index, sizes, len(flows))
        may_be_full = (totals[0] > MAX_UNRESOLVED_MESSAGES) | (totals[1] > MAX_UNRESOLVED_BYTES)
        may_be_full |= np.isin(flows, [*unresolved.flows])
        for i in np.flatnonzero(may_be_full & (np.bincount(index[is_evidence], minlength=len(flows)) > 0)).tolist():
            if self.evidence_of(int(flows[i])).lookup is not None:
                continue  # its lookup was its last evidence
            waiting = unresolved.flows.get(int(flows[i]), Waiting())
            count, size = waiting.count, waiting.byte_count
            if totals[0][i] + count <= MAX_UNRESOLVED_MESSAGES and totals[1][i] + size <= MAX_UNRESOLVED_BYTES:
                continue
            rows = np.flatnonzero(index == i)
            rows = rows[np.lexsort((frames.offset[rows], frames.last_packet[rows], frames.end_ts_ns[rows]))]
            if not count:  # the limits count from the first message that is evidence
                rows = rows[int(np.argmax(is_evidence[rows])) :]
            is_beyond[rows] = np.arange(1, len(rows) + 1) + count > MAX_UNRESOLVED_MESSAGES
            is_beyond[rows] |= np.cumsum(sizes[rows]) + size > MAX_UNRESOLVED_BYTES
        return is_beyond

    def flush(
        self,
        readers: Callable[[str], ColumnReader],
        flows: Collection[int] | None = None,
        have_ended: bool = True,
    ) -> Iterator[Frames]:
        """The unresolved messages of connections (None: of all), to be read by the evidence at that time.

        If the connections have not ended, their later messages may be read otherwise. ``readers``: by protocol.
        """
        for protocol, early in self._early.items():
            reader = readers(protocol)
            released = [flow for flow in (early.flows if flows is None else flows) if flow in early.flows]
            if released and reader.protocol.evidence is not None:
                yield from self._release_resolved(reader, reader.protocol.evidence, early.take(released))
        for protocol, unresolved in self._unresolved.items():
            rule = readers(protocol).protocol.evidence
            if have_ended and rule is not None:
                self._answered(protocol, rule, Progress(), flows)  # the connections end: all of them are released
            released = [flow for flow in (unresolved.flows if flows is None else flows) if flow in unresolved.flows]
            for flow in released if have_ended else ():
                self.evidence_of(flow).is_final = True
            yield from unresolved.take_in_parts(released, RELEASED_BYTES)

    def unresolved_since_ns(self) -> dict[int, int]:
        """Connections with unresolved messages, and the time of the first of them."""
        since_ns: dict[int, int] = {}
        for messages in (*self._unresolved.values(), *self._early.values()):
            for flow, waiting in messages.flows.items():
                since_ns[flow] = min(waiting.first_ns, since_ns.get(flow, LAST_NS))
        return since_ns

    def with_layouts(self, reader: ColumnReader, frames: Frames) -> Frames:
        """The messages in the layouts that the evidence of their connections selects."""
        rule = reader.protocol.evidence
        if rule is None or rule.select_layout is None:
            return frames
        names = [layout.name for layout in reader.program.layouts]
        keys, index = factorize(frames.flow * len(names) + frames.layout)
        indexes = {name: i for i, name in enumerate(names)}
        pairs = zip(*(x.tolist() for x in np.divmod(keys, len(names))), strict=True)
        layouts = [indexes[rule.select_layout(self.evidence_of(flow), names[layout])] for flow, layout in pairs]
        return replace(frames, layout=np.array(layouts, np.int32)[index])

    # -- evidence ------------------------------------------------------------------------------------------

    def _observe(
        self, reader: ColumnReader, rule: EvidenceRule, frames: Frames, is_evidence: NDArray[np.bool_]
    ) -> None:
        """Pass the rule the messages that are evidence."""
        is_observed = is_evidence & (frames.flaw == Flaw.NONE)
        if rule.ops is not None:
            is_observed &= np.isin(frames.op, list(rule.ops))
        rows = np.flatnonzero(is_observed)
        if not len(rows):
            return
        for raw in reader.raw(frames.taken(rows).spans()):
            self._observe_batch(reader.protocol, rule, frames, rows[: raw.n], raw)
            rows = rows[raw.n :]

    def _observe_batch(
        self, protocol: MessageQueue, rule: EvidenceRule, frames: Frames, rows: NDArray[np.intp], raw: Raw
    ) -> None:
        sound: Int64Array = np.flatnonzero(raw.flaw == Flaw.NONE)
        rows = rows[sound]
        flows, index = factorize(frames.flow[rows])
        spans = frames.taken(rows).spans()

        def fits(suffix: str) -> NDArray[np.bool_]:
            index_by_name = {layout.name: i for i, layout in enumerate(protocol.layouts)}
            layouts = np.array([index_by_name.get(f"{name}{suffix}", -1) for name in index_by_name], np.int32)
            read = flaw_reader(protocol).records(replace(spans, layout=layouts[spans.layout]))
            is_read: NDArray[np.bool_] = read.flaw == Flaw.NONE
            return is_read

        client = np.array([self._connections[flow].client for flow in flows.tolist()], np.int8)
        shared = self.shared.setdefault(frames.protocol, SharedFacts())
        evidences = [self.evidence_of(flow) for flow in flows.tolist()]
        rule.observe(
            Observation(
                raw, sound, evidences, index, client[index] == frames.side[rows], frames.op[rows], frames.ts_ns[rows],
                shared.add_fact, fits,
            )
        )  # fmt: skip
        for flow, evidence in zip(flows.tolist(), evidences, strict=True):
            if (
                evidence.lookup is not None
                and not evidence.is_final
                and not self._answer(shared, rule, evidence, False)
            ):
                self._asking.setdefault(frames.protocol, {})[flow] = None

    def _answered(
        self, protocol: str, rule: EvidenceRule, progress: Progress, flows: Collection[int] | None = None
    ) -> list[int]:
        """Answer connections (of ``flows``, None: of all) that asked for a fact; returns those that wait no longer."""
        asking, shared = self._asking.get(protocol, {}), self.shared.get(protocol, SharedFacts())
        # Connections that may still share the fact. The two that stalled first are enough: a connection does not wait
        # for itself, and if it is the first of them, the second counts.
        stalled = nsmallest(
            2, [(ns, flow) for flow, ns in progress.since_ns.items() if asking and self._may_share(flow, protocol)]
        )
        answered = []
        for flow in [flow for flow in (asking if flows is None else flows) if flow in asking]:
            evidence = self.evidence_of(flow)
            assert evidence.lookup is not None
            until_ns = evidence.lookup[1] + ASK_NS
            is_last = until_ns < progress.now_ns and not any(
                ns < until_ns and stalled_flow != flow for ns, stalled_flow in stalled
            )
            if evidence.is_final or self._answer(shared, rule, evidence, is_last):
                del asking[flow]
                answered.append(flow)
        return answered

    def _answer(self, shared: SharedFacts, rule: EvidenceRule, evidence: Evidence, is_last: bool) -> bool:
        """Give a connection the fact that it asked for; False if a fact of its own server may still come."""
        assert evidence.lookup is not None and rule.answer is not None
        fact = shared.lookup_fact(evidence.lookup[0], evidence, evidence.lookup[1])
        if not is_last and (fact is None or fact[1:3] != (evidence.server_ip, evidence.server_port)):
            return False
        rule.answer(evidence, None if fact is None else fact[4])
        evidence.is_final, evidence.lookup = True, (b"", evidence.lookup[1])  # the key takes memory
        return True

    def _may_share(self, flow: int, protocol: str) -> bool:
        """Whether a connection may still share a fact of a protocol."""
        connection = self._connections.get(flow)
        if connection is None or not connection.decided:
            return True
        is_of_protocol = connection.protocol is not None and connection.protocol.name == protocol
        return is_of_protocol and not self.evidence_of(flow).is_final and self.evidence_of(flow).lookup is None


def _is_evidence(reader: ColumnReader, rule: EvidenceRule, frames: Frames) -> NDArray[np.bool_]:
    """By message, whether messages of its layout are evidence."""
    if rule.layouts is None:
        return np.ones(len(frames.layout), np.bool_)
    layouts = [i for i, layout in enumerate(reader.program.layouts) if layout.name in rule.layouts]
    return np.isin(frames.layout, layouts)
