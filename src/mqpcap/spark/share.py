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
from numpy.typing import NDArray

from mqpcap.capture import Capture
from mqpcap.decode.columns import Records
from mqpcap.decode.detection import Server, Told
from mqpcap.decode.frames import Frames
from mqpcap.decode.shared_facts import Fact, SharedFacts
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Emit, Options, Output, taken, taken_frames
from mqpcap.protocols import protocols
from mqpcap.spark.partitions import Cut
from mqpcap.tcp.flows import Flow
from mqpcap.tcp.headers import Dissector, Segments, address_text

TASK_MEMORY_BYTES = 192 << 20
"""Bound of what waits for missing bytes in a task."""
WIDEST = 2
"""A share reads windows so many times as large as usual: of two shares each has as many rows of one as are usual."""


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a query asks for; None is everything.

    from_ns, until_ns: times of first bytes, both included. ips, ports: each a set of which one end of the connection
    must have a member.
    """

    protocols: frozenset[str] | None = None
    from_ns: int | None = None
    until_ns: int | None = None
    ips: tuple[frozenset[str], ...] = ()
    ports: tuple[frozenset[int], ...] = ()

    @property
    def by_connection(self) -> bool:
        """Whether it can spare whole connections."""
        return bool(self.ips or self.ports or self.from_ns is not None or self.until_ns is not None)

    def meets(self, first_ns: int, last_ns: int) -> bool:
        """Whether a time of the span is asked for."""
        return (self.from_ns is None or last_ns >= self.from_ns) and (
            self.until_ns is None or first_ns <= self.until_ns
        )


def wanted_of(table: str) -> Wanted:
    """What one table needs: a protocol's own no other protocol's messages; two need none."""
    if table in ("connections", "problems"):
        return Wanted(frozenset())
    return Wanted(frozenset({table})) if table in protocols() else Wanted()


def optional(table: str) -> frozenset[str]:
    """What is made beside what always is, for one table."""
    return OPTIONAL_TABLES & {table}


def rows_of(output: Output, table: str) -> pa.Table | None:
    """The rows of a table, if an output has any."""
    if output.table == table:
        return output.rows
    return output.fields if output.protocol == table else None


class Share(CapturePipeline):
    """One share of one capture.

    ``heard`` is what other shares know; ``wanted`` leaves unread what nobody asked for; only connections with one of
    ``keys`` are followed, where given; ``cut`` says which are of which share, their hash alone if it is not given.
    """

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        heard: Heard | None = None,
        wanted: Wanted | None = None,
        keys: NDArray[np.int64] | None = None,
        cut: Cut | None = None,
    ) -> None:
        heard = heard or Heard()
        super().__init__(capture, replace(options, servers=options.servers | heard.servers), emit)
        for name, facts in heard.facts.items():
            self.shared[name] = SharedFacts()
            for fact in sorted(facts, key=lambda fact: fact[3]):
                self.shared[name].take(fact)
        self.wanted = wanted or Wanted()
        self.keys = keys
        self.cut = cut or Cut(options.share[1])

    @property
    def is_whole(self) -> bool:
        """Whether it holds all of the capture's connections."""
        return self.options.share[1] == 1

    def _window_times(self) -> int:
        return min(self.options.share[1], WIDEST)

    def _segments(self, segments: Segments) -> Segments:
        if not self.is_whole:
            share = self.cut.shares(segments.key)
            segments = taken(segments, np.flatnonzero(share == self.options.share[0]))
        if self.keys is None:
            return segments
        return taken(segments, np.flatnonzero(np.isin(segments.key, self.keys)))

    def _read(self, found: Sequence[Frames]) -> Iterator[tuple[Frames, Records]]:
        names = self.wanted.protocols
        return super()._read([frames for frames in found if names is None or frames.protocol in names])

    def _wanted(self, frames: Frames) -> Frames:
        wanted = self.wanted
        keep = np.ones(len(frames.start), np.bool_)
        if wanted.from_ns is not None:
            keep &= frames.ts_ns >= wanted.from_ns
        if wanted.until_ns is not None:
            keep &= frames.ts_ns <= wanted.until_ns
        if wanted.ips or wanted.ports:
            flows, place = np.unique(frames.flow, return_inverse=True)
            fits = [self._fits(self.assembler.flows[f]) for f in flows.tolist()]
            keep &= np.array(fits, np.bool_)[place.reshape(-1)]
        return frames if keep.all() else taken_frames(frames, np.flatnonzero(keep))

    def _fits(self, flow: Flow) -> bool:
        return all({flow.a_ip, flow.b_ip} & ips for ips in self.wanted.ips) and all(
            {flow.a_port, flow.b_port} & ports for ports in self.wanted.ports
        )

    # -- what shares tell each other -----------------------------------------------------------------------

    @property
    def told(self) -> Heard:
        """What it knows for others."""
        facts = {name: tuple(shared.told()) for name, shared in self.shared.items()}
        return Heard(frozenset(self.framer.detector.servers.items()), facts)

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Protocols and keys of which a connection asked what others told."""
        return sorted((name, key) for name, shared in self.shared.items() for key in shared.asked)

    @property
    def doubted(self) -> list[Server]:
        """Servers that a connection asked for and were not told."""
        return sorted(self.framer.detector.doubted)

    # -- one table, as it is read --------------------------------------------------------------------------

    def rows(self, table: str) -> Iterator[pa.Table]:
        """The rows of one table as they become final.

        Raises CaptureError, behind the last of them, where the capture could not be read to its end.
        """
        given: list[Output] = []
        self.emit = given.append
        for _ in self.steps():
            yield from (rows for output in given if (rows := rows_of(output, table)) is not None)
            given.clear()
        if self.failure is not None:
            raise self.failure


class _Listener(CapturePipeline):
    """Follows connections for what they tell of each other, and reads no message else."""

    def _wanted(self, frames: Frames) -> Frames:
        return taken_frames(frames, np.empty(0, np.intp))


def heard(capture: Capture, options: Options) -> Heard:
    """What all connections of a capture tell of each other, without reading their messages."""
    alone = replace(options, share=(0, 1), optional_tables=frozenset())
    listener = _Listener(capture, alone, lambda output: None)
    listener.run()
    facts = {name: tuple(shared.told()) for name, shared in listener.shared.items()}
    return Heard(frozenset(listener.framer.detector.servers.items()), facts)


def connection_keys(capture: Capture, wanted: Wanted) -> NDArray[np.int64]:
    """Keys of the connections that a query may need, from a look at the headers only.

    Also of those that share an endpoint with one: they may tell which protocol it is, or who logged in.
    """
    ends: dict[int, set[tuple[str, int]]] = {}
    spans: dict[int, tuple[int, int]] = {}
    dissector = Dissector()
    for window in capture.windows():
        segments = dissector.segments(window)
        keys, first, place = np.unique(segments.key, return_index=True, return_inverse=True)
        low, high = np.full(len(keys), np.iinfo(np.int64).max), np.full(len(keys), np.iinfo(np.int64).min)
        np.minimum.at(low, place.reshape(-1), segments.ts_ns)
        np.maximum.at(high, place.reshape(-1), segments.ts_ns)
        for key, row, one, two in zip(keys.tolist(), first.tolist(), low.tolist(), high.tolist(), strict=True):
            before = spans.get(key, (one, two))
            spans[key] = min(before[0], one), max(before[1], two)
            if key not in ends:
                version = int(segments.version[row])
                src = address_text(version, int(segments.src_hi[row]), int(segments.src_lo[row]))
                dst = address_text(version, int(segments.dst_hi[row]), int(segments.dst_lo[row]))
                ends[key] = {(src, int(segments.sport[row])), (dst, int(segments.dport[row]))}
    near = {
        end
        for key, both in ends.items()
        if wanted.meets(*spans[key])
        and all({ip for ip, _ in both} & ips for ips in wanted.ips)
        and all({port for _, port in both} & ports for ports in wanted.ports)
        for end in both
    }
    return np.array(sorted(key for key, both in ends.items() if both & near), np.int64)
