"""How far a capture has been read: connections that wait for bytes, or may still add older messages.

In: the state of reassembly, framing and evidence. Out: `Watermarks`, the limits within which `Correlation` decides.
Called by: ``pipeline``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.correlate.batch import Watermarks
from mqpcap.decode.evidence import EvidenceCollector, Progress
from mqpcap.decode.framing import Framer
from mqpcap.tcp.derived_streams import DerivedStreams
from mqpcap.tcp.exclusion import ConnectionTest, selected_flows
from mqpcap.tcp.reassembly import Reassembler


class ReadingProgress:
    """The progress of reading, connection by connection."""

    def __init__(
        self,
        assembler: Reassembler,
        derivations: Sequence[DerivedStreams[Any]],
        framer: Framer,
        evidence: EvidenceCollector,
    ) -> None:
        self._assembler, self._derivations, self._framer, self._evidence = assembler, derivations, framer, evidence
        self._undecided: set[int] = set()
        """Connections whose protocol is not decided."""
        self._lagging_since: dict[int, int] = {}

    def note_flows(self, flows: Iterable[int]) -> None:
        """Add connections with new bytes; drops connections whose protocol is decided."""
        states = self._framer.connections
        self._undecided.update(flows)
        self._undecided = {flow for flow in self._undecided if flow in states and not states[flow].decided}

    def forget(self, flows: Int64Array) -> None:
        """Drop ended connections."""
        self._undecided.difference_update(flows.tolist())

    def watermarks(self, first_ns: int, now_ns: int) -> Watermarks:
        """How far the messages of each server's clients have been read.

        first_ns, now_ns: times of the first packet of this step and of the newest packet that counts as read.
        """
        lagging = self._lagging_flows(first_ns)
        columns = self._assembler.flows.columns(np.fromiter(lagging, np.int64))
        since_ns: dict[tuple[str, int], int] = {}
        for side in (0, 1):
            sides = np.full(len(columns), side)
            servers = zip(columns.ips(sides), columns.ports(sides).tolist(), strict=True)
            for (flow, flow_since_ns), server in zip(lagging.items(), servers, strict=True):
                if self._may_be_client(flow, 1 - side):
                    since_ns[server] = min(since_ns.get(server, flow_since_ns), flow_since_ns)
        return Watermarks(since_ns, now_ns)

    def for_evidence(self, now_ns: int) -> Progress:
        """The time of the newest packet, and since when connections wait for bytes.

        Undecided connections count only at server ports where a connection asks for a fact.
        """
        since_ns: dict[int, int] = {}
        for (flow, _), ns in self.stalled_sides().items():
            since_ns[flow] = min(ns, since_ns.get(flow, ns))
        states, ports = self._framer.connections, list(self._evidence.asked_ports)
        undecided = [flow for flow in since_ns if flow not in states or not states[flow].decided]
        if undecided and ports:
            is_asked = np.isin(self._assembler.flows.columns(np.array(undecided)).port, ports).any(axis=1)
            for i in np.flatnonzero(~is_asked).tolist():
                del since_ns[undecided[i]]
        return Progress(now_ns, since_ns)

    def stalled_sides(self) -> dict[tuple[int, int], int]:
        """Sides (connection, 0 or 1) that wait for missing bytes, and since when (ns): the other side is ahead."""
        since_ns = self._assembler.stalled_sides()
        for waiting in (self._framer.undecided, *(stage.waiting_since for stage in self._derivations)):
            for side, ns in waiting.items():
                since_ns[side] = min(ns, since_ns.get(side, ns))
        return since_ns

    def _lagging_flows(self, first_ns: int) -> dict[int, int]:
        """Connections that may add messages older than those of another connection, and since when (ns)."""
        lagging = {*self._undecided, *self._evidence.unresolved_since_ns(), *self._framer.after_gaps}
        since_ns = {flow: self._lagging_since.get(flow, first_ns) for flow in lagging}
        unseen = self._assembler.flows.unseen_sides().items()
        unseen_ns = ((flow, ns) for (flow, side), ns in unseen if self._may_be_client(flow, side))
        for flow, ns in (*unseen_ns, *((flow, ns) for (flow, _), ns in self.stalled_sides().items())):
            since_ns[flow] = min(ns, since_ns.get(flow, ns))
        self._lagging_since = since_ns
        return since_ns

    def _may_be_client(self, flow: int, side: int) -> bool:
        state = self._framer.connections.get(flow)
        return state is None or not state.decided or (state.protocol is not None and state.client == side)

    def unresolved_flows(self) -> frozenset[int]:
        """Connections with messages that wait for evidence, or for missing bytes."""
        stalled = (flow for flow, _ in self._assembler.stalled_sides())
        return frozenset(self._evidence.unresolved_since_ns()).union(stalled)

    def has_open_message(self, before_ns: int, connections: ConnectionTest | None) -> bool:
        """Whether a message that began before a time, on a selected connection, may still be incomplete."""
        stalled = {flow for (flow, _), since_ns in self.stalled_sides().items() if since_ns < before_ns}
        unresolved = {flow for flow, since_ns in self._evidence.unresolved_since_ns().items() if since_ns < before_ns}
        undecided = {flow for flow, state in self._framer.connections.items() if not state.decided}
        flows = sorted(stalled | unresolved | undecided)
        if not flows:
            return False
        columns = self._assembler.flows.columns(np.array(flows, np.int64))
        is_open = columns.first_ts_ns < before_ns
        if connections is not None:
            is_open &= selected_flows(connections, columns)
        return bool(is_open.any())
