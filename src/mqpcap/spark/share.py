"""A share of a capture through the pipeline, as a Spark task does it.

A share is a part of the connections: a task reads every packet, or those that `mqpcap.spark.distribute` left it, and
keeps those of its share. Three things join connections, so a share alone cannot say them: servers that another
connection told (``by peer``), what connections tell each other by a key (fq's logins), and deliveries. `Heard` carries
the first two from other shares; keys of the third go to `mqpcap.spark.delivery_keys`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mqpcap.capture import Capture
from mqpcap.decode.columns import Records
from mqpcap.decode.detection import Server, Told
from mqpcap.decode.frames import Frames
from mqpcap.decode.shared_facts import Fact, SharedFacts
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output, Pipeline, taken, taken_frames
from mqpcap.protocols import protocols
from mqpcap.spark.partitions import SharePlan
from mqpcap.tcp.headers import Segments

TASK_MEMORY_BYTES = 192 << 20
"""Bound of what waits for missing bytes in a task."""
NS = np.iinfo(np.int64)
"""The times there are."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What other shares of a capture told: servers, and by protocol what connections tell each other."""

    servers: frozenset[Told] = frozenset()
    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)

    def without(self, mine: "Heard") -> "Heard":
        """What others told alone."""
        own = {(name, *fact[:4]) for name, facts in mine.facts.items() for fact in facts}
        facts = {n: tuple(f for f in told if (n, *f[:4]) not in own) for n, told in self.facts.items()}
        return Heard(self.servers, facts)

    def answers(self, doubted: Collection[Server], asked: Collection[tuple[str, str]]) -> bool:
        """Whether it says something of servers or keys that were asked for."""
        keys = {(name, fact[0]) for name, facts in self.facts.items() for fact in facts}
        return not {server for server, _ in self.servers}.isdisjoint(doubted) or not keys.isdisjoint(asked)


def told(pipeline: Pipeline) -> Heard:
    """What a pipeline knows for others."""
    facts = {name: tuple(shared.told()) for name, shared in pipeline.shared.items()}
    return Heard(frozenset(pipeline.framer.detector.servers.items()), facts)


def heard(capture: Capture, options: Options) -> Heard:
    """What all connections of a capture tell of each other, without reading their messages."""
    nobody = replace(options, optional_tables=frozenset(), connections=lambda ips, *_: np.zeros(len(ips), np.bool_))
    listener = CapturePipeline(capture, nobody, lambda output: None)
    listener.run()
    return told(listener)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages that a query asks for: of some protocols, None for all, that begin from a time up to another."""

    protocols: frozenset[str] | None = None
    from_ns: int = NS.min
    until_ns: int = NS.max

    def of(self, found: Sequence[Frames]) -> list[Frames]:
        """Those of the protocols."""
        return [frames for frames in found if self.protocols is None or frames.protocol in self.protocols]


def wanted_of(table: str) -> Wanted:
    """What one table needs: a protocol's own no other protocol's messages; two need none."""
    if table in ("connections", "problems"):
        return Wanted(frozenset())
    return Wanted(frozenset({table})) if table in protocols() else Wanted()


def drained(outputs: list[Output], table: str) -> Iterator[pa.Table]:
    """The rows of a table among outputs, all of which are taken out of their list."""
    given, outputs[:] = outputs[:], []
    for output in given:
        if output.table == table:
            yield output.rows
        elif output.protocol == table and output.fields is not None:
            yield output.fields


class Share(CapturePipeline):
    """One share of one capture: of what ``cut`` says the one with the number ``share``.

    ``heard`` is what other shares know; ``wanted`` leaves unread what nobody asked for.
    """

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        heard: Heard | None = None,
        wanted: Wanted | None = None,
        share: int = 0,
        cut: SharePlan | None = None,
    ) -> None:
        heard = heard or Heard()
        super().__init__(capture, replace(options, servers=options.servers | heard.servers), emit)
        for name, facts in heard.facts.items():
            self.shared[name] = SharedFacts()
            for fact in sorted(facts, key=lambda fact: fact[3]):
                self.shared[name].take(fact)
        self.wanted = wanted or Wanted()
        self.share, self.cut = share, cut or SharePlan(1)

    @property
    def is_whole(self) -> bool:
        """Whether it holds all of the capture's connections."""
        return self.cut.share_count == 1

    def _segments(self, segments: Segments) -> Segments:
        if not self.is_whole:
            segments = taken(segments, np.flatnonzero(self.cut.shares(segments.key) == self.share))
        return super()._segments(segments)

    def _read(self, found: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        return super()._read(self.wanted.of(found))

    def _wanted(self, frames: Frames) -> Frames:
        frames, wanted = super()._wanted(frames), self.wanted
        keep = (frames.ts_ns >= wanted.from_ns) & (frames.ts_ns <= wanted.until_ns)
        return frames if keep.all() else taken_frames(frames, np.flatnonzero(keep))

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Protocols and keys of which a connection asked what others told."""
        return sorted((name, key) for name, shared in self.shared.items() for key in shared.asked)

    @property
    def doubted(self) -> list[Server]:
        """Servers that a connection asked for and were not told."""
        return sorted(self.framer.detector.doubted)

    def rows(self, table: str) -> Iterator[pa.Table]:
        """The rows of one table as they become final.

        Raises CaptureError, behind the last of them, where the capture could not be read to its end.
        """
        outputs: list[Output] = []
        self.emit = outputs.append
        for _ in self.steps():
            yield from drained(outputs, table)
        if self.failure is not None:
            raise self.failure
