"""Selects what a caller wants of a capture: connections by `Options`, segments and messages by `StageHooks`.

In: segments, flows with new bytes, framed messages. Out: those that go on to the next stage. Called by: ``pipeline``.

A connection that is not selected is decoded until no other connection can depend on it; then its packets are dropped.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from mqpcap.arrays import Int64Array, factorize
from mqpcap.capture import Window
from mqpcap.decode.evidence import EvidenceCollector
from mqpcap.decode.frames import Frames
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.tcp.exclusion import ExcludedConnections, selected_flows
from mqpcap.tcp.headers import Segments
from mqpcap.tcp.reassembly import Reassembler


class StageSelection:
    """The selection of one capture, with the connections whose packets are dropped."""

    def __init__(
        self, options: Options, hooks: StageHooks, assembler: Reassembler, evidence: EvidenceCollector
    ) -> None:
        self._options, self._hooks = options, hooks
        self._assembler, self._evidence = assembler, evidence
        self._excluded = ExcludedConnections()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_hooks": StageHooks(), "_options": replace(self._options, keys=None)}

    def segments(self, window: Window, segments: Segments) -> Segments:
        """The segments of a window that are reassembled."""
        if self._hooks.packets is not None:
            self._hooks.packets(window, segments)
        if self._hooks.segments is not None:
            segments = segments.taken(np.flatnonzero(self._hooks.segments(segments)))
        if self._options.connections is not None:
            segments = segments.taken(self._excluded.kept_rows(segments, self._options.connections))
        return segments

    def exclude(self, flows: Int64Array) -> None:
        """Exclude those of these flows that are not selected, once no other connection can depend on them."""
        if self._options.connections is None or not len(flows):
            return
        numbers = np.array([flow for flow in np.unique(flows).tolist() if self._evidence.is_complete(flow)], np.int64)
        is_selected = selected_flows(self._options.connections, self._assembler.flows.columns(numbers))
        if not is_selected.all():
            self._excluded.add(self._assembler.flows.columns(numbers[~is_selected]))

    def of_protocols(self, parts: Iterable[Frames]) -> list[Frames]:
        """The messages of selected protocols."""
        wanted = self._options.protocols
        return [frames for frames in parts if wanted is None or frames.protocol in wanted]

    def frames(self, frames: Frames) -> Frames:
        """The messages that become rows."""
        if self._options.connections is not None:
            flows, index = factorize(frames.flow)
            is_selected = selected_flows(self._options.connections, self._assembler.flows.columns(flows))
            frames = frames if is_selected.all() else frames.taken(np.flatnonzero(is_selected[index]))
        return frames
