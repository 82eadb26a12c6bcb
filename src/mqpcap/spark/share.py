"""Runs a share of a capture through the pipeline, in a Spark task.

A share is a part of the connections of a capture. A task reads all packets of the capture, or those that
`mqpcap.spark.ranges` read for it, and keeps the packets of its share. Three results depend on more than one
connection, so a share alone cannot compute them: servers proved by another connection, facts shared through a key
(fq's logins), and deliveries. `SharedKnowledge` brings servers and facts from other shares; the keys of deliveries go
to `mqpcap.spark.delivery_keys`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.capture import Capture
from mqpcap.decode.detection import ProvenServer, ServerProtocol
from mqpcap.decode.shared_facts import SharedFact, SharedFacts
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.pipeline import Pipeline
from mqpcap.protocols import protocols
from mqpcap.reading import wired
from mqpcap.spark.partitions import SharePlan
from mqpcap.tables.output import Emit, Output
from mqpcap.tcp.headers import Segments

TASK_MEMORY_BYTES = 192 << 20
"""Memory of a task for out-of-order data and open connections."""


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
    pipeline = wired(capture, nobody, lambda output, _: None)
    pipeline.run()
    return knowledge_of(pipeline.stages)


def needed_protocols(table: str) -> frozenset[str] | None:
    """The protocols whose messages a table needs (None: all): its own, or none at all for two tables."""
    if table in ("connections", "problems"):
        return frozenset()
    return frozenset({table}) if table in protocols() else None


def drain(outputs: list[Output], table: str) -> Iterator[pa.Table]:
    """Empties a list of outputs; gives the rows of one table."""
    drained, outputs[:] = outputs[:], []
    for output in drained:
        if output.table == table:
            yield output.rows
        elif output.protocol == table and output.fields is not None:
            yield output.fields


class Share:
    """One share of a capture: share number ``share`` of the plan. ``pipeline`` reads it.

    ``knowledge``: servers and facts of other shares.
    """

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        knowledge: SharedKnowledge | None = None,
        share: int = 0,
        plan: SharePlan | None = None,
        hooks: StageHooks | None = None,
    ) -> None:
        knowledge = knowledge or SharedKnowledge()
        self.share, self.plan = share, plan or SharePlan(1)
        options = replace(options, servers=options.servers | knowledge.servers)
        hooks = replace(hooks or StageHooks(), segments=None if self.is_whole else self._of_share)
        self.pipeline = wired(capture, options, lambda output, _: emit(output), hooks)
        for name, facts in knowledge.facts.items():
            shared = self.pipeline.stages.evidence.shared[name] = SharedFacts()
            for fact in sorted(facts, key=lambda fact: fact[3]):
                shared.add(fact)

    @property
    def is_whole(self) -> bool:
        """Whether the share has all connections of the capture."""
        return self.plan.share_count == 1

    def _of_share(self, segments: Segments) -> NDArray[np.bool_]:
        return np.asarray(self.plan.shares(segments.key) == self.share)

    @property
    def lookup_keys(self) -> list[tuple[str, str]]:
        """Protocol and key of each fact that a connection looked up."""
        shared = self.pipeline.stages.evidence.shared
        return sorted((name, key) for name, facts in shared.items() for key in facts.lookups)

    @property
    def missing_servers(self) -> list[ServerProtocol]:
        """Servers that a connection needed and that no connection of the share proved."""
        return sorted(self.pipeline.stages.framer.detector.missing_servers)

    def rows(self, table: str) -> Iterator[pa.Table]:
        """The rows of one table as they become final; ``emit`` gets none.

        If the capture cannot be read to its end, raises CaptureError after the last row.
        """
        outputs: list[Output] = []
        self.pipeline.emit = outputs.append
        for _ in self.pipeline.steps():
            yield from drain(outputs, table)
        if self.pipeline.failure is not None:
            raise self.pipeline.failure
