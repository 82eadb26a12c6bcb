"""Runs a share of a capture through the pipeline, in a Spark task.

A share is a part of the connections of a capture. A task reads all packets of the capture, or those that
`mqpcap.spark.distribute` wrote for it, and keeps the packets of its share. Three results depend on more than one
connection, so a share alone cannot compute them: servers proved by another connection, facts shared through a key
(fq's logins), and deliveries. `SharedKnowledge` brings servers and facts from other shares; the keys of deliveries go
to `mqpcap.spark.delivery_keys`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mqpcap.capture import Capture
from mqpcap.decode.columns import Records
from mqpcap.decode.detection import ProvenServer, ServerProtocol
from mqpcap.decode.frames import Frames
from mqpcap.decode.shared_facts import SharedFact, SharedFacts
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output, Pipeline
from mqpcap.protocols import protocols
from mqpcap.spark.partitions import SharePlan
from mqpcap.tcp.headers import Segments

TASK_MEMORY_BYTES = 192 << 20
"""Memory of a task for out-of-order data and open connections."""
NS = np.iinfo(np.int64)
"""The range of times in nanoseconds."""


@dataclass(frozen=True, slots=True)
class SharedKnowledge:
    """Servers that connections of a capture proved, and by protocol the facts that they share."""

    servers: frozenset[ProvenServer] = frozenset()
    facts: Mapping[str, tuple[SharedFact, ...]] = field(default_factory=dict)

    def minus(self, excluded: "SharedKnowledge") -> "SharedKnowledge":
        """This knowledge without the facts of ``known``."""
        known_facts = {(name, *fact[:4]) for name, facts in excluded.facts.items() for fact in facts}
        facts = {
            name: tuple(fact for fact in shared if (name, *fact[:4]) not in known_facts)
            for name, shared in self.facts.items()
        }
        return SharedKnowledge(self.servers, facts)

    def is_relevant(
        self, missing_servers: Collection[ServerProtocol], lookup_keys: Collection[tuple[str, str]]
    ) -> bool:
        """Whether it has a missing server or a fact for a key."""
        keys = {(name, fact[0]) for name, facts in self.facts.items() for fact in facts}
        return not {server for server, _ in self.servers}.isdisjoint(missing_servers) or not keys.isdisjoint(
            lookup_keys
        )


def knowledge_of(pipeline: Pipeline) -> SharedKnowledge:
    """Servers and facts that the connections of a pipeline proved."""
    facts = {name: tuple(shared.facts()) for name, shared in pipeline.evidence.shared.items()}
    return SharedKnowledge(frozenset(pipeline.framer.detector.servers.items()), facts)


def collect_knowledge(capture: Capture, options: Options) -> SharedKnowledge:
    """The shared knowledge of all connections of a capture, found without decoding messages into rows."""
    nobody = replace(options, optional_tables=frozenset(), connections=lambda ips, *_: np.zeros(len(ips), np.bool_))
    listener = CapturePipeline(capture, nobody, lambda output: None)
    listener.run()
    return knowledge_of(listener)


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """The messages that a query needs: of these protocols (None: of all), that begin in a range of time."""

    protocols: frozenset[str] | None = None
    from_ns: int = NS.min
    until_ns: int = NS.max

    def select(self, frames_by_layout: Sequence[Frames]) -> list[Frames]:
        """The messages of the protocols needed."""
        return [frames for frames in frames_by_layout if self.protocols is None or frames.protocol in self.protocols]


def table_needs(table: str) -> TableNeeds:
    """The messages that a table needs: a protocol's table those of its protocol, two tables none."""
    if table in ("connections", "problems"):
        return TableNeeds(frozenset())
    return TableNeeds(frozenset({table})) if table in protocols() else TableNeeds()


def drain(outputs: list[Output], table: str) -> Iterator[pa.Table]:
    """Empties a list of outputs; gives the rows of one table."""
    drained, outputs[:] = outputs[:], []
    for output in drained:
        if output.table == table:
            yield output.rows
        elif output.protocol == table and output.fields is not None:
            yield output.fields


class Share(CapturePipeline):
    """One share of a capture: share number ``share`` of the plan.

    ``knowledge``: servers and facts of other shares. ``needs``: messages that do not match are not decoded.
    """

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        knowledge: SharedKnowledge | None = None,
        needs: TableNeeds | None = None,
        share: int = 0,
        plan: SharePlan | None = None,
    ) -> None:
        knowledge = knowledge or SharedKnowledge()
        super().__init__(capture, replace(options, servers=options.servers | knowledge.servers), emit)
        for name, facts in knowledge.facts.items():
            shared = self.evidence.shared[name] = SharedFacts()
            for fact in sorted(facts, key=lambda fact: fact[3]):
                shared.add(fact)
        self.needs = needs or TableNeeds()
        self.share, self.plan = share, plan or SharePlan(1)

    @property
    def is_whole(self) -> bool:
        """Whether the share has all connections of the capture."""
        return self.plan.share_count == 1

    def _segments(self, segments: Segments) -> Segments:
        if not self.is_whole:
            segments = segments.taken(np.flatnonzero(self.plan.shares(segments.key) == self.share))
        return super()._segments(segments)

    def _read(self, frames_by_layout: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        return super()._read(self.needs.select(frames_by_layout))

    def _wanted(self, frames: Frames) -> Frames:
        frames, needs = super()._wanted(frames), self.needs
        keep = (frames.ts_ns >= needs.from_ns) & (frames.ts_ns <= needs.until_ns)
        return frames if keep.all() else frames.taken(np.flatnonzero(keep))

    @property
    def lookup_keys(self) -> list[tuple[str, str]]:
        """Protocol and key of each fact that a connection looked up."""
        return sorted((name, key) for name, shared in self.evidence.shared.items() for key in shared.lookups)

    @property
    def missing_servers(self) -> list[ServerProtocol]:
        """Servers that a connection needed and that no connection of the share proved."""
        return sorted(self.framer.detector.missing_servers)

    def rows(self, table: str) -> Iterator[pa.Table]:
        """The rows of one table as they become final.

        If the capture cannot be read to its end, raises CaptureError after the last row.
        """
        outputs: list[Output] = []
        self.emit = outputs.append
        for _ in self.steps():
            yield from drain(outputs, table)
        if self.failure is not None:
            raise self.failure
