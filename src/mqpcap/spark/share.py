"""A share of a capture through the rooms, as a Spark task does it.

A share is a part of the connections, told by a hash of their endpoints: a task reads every packet, or those that
`mqpcap.spark.dealing` left it, and keeps those of its share. Three things join connections, so a share alone cannot say
them: servers that another connection told (``by peer``), fq's logins, and whatever `Rule.deliveries` and machines
compare. `Heard` carries the first two from elsewhere; the third is the bulk job's second stage.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.capture import Capture
from mqpcap.decode.columns import Records
from mqpcap.decode.framing import Frames, Told
from mqpcap.pipeline import CapturePipeline, Dissection, Options, Ready, taken
from mqpcap.schema.compiler import compiled
from mqpcap.schema.protocol import ConnectionFacts, Evidence
from mqpcap.spark.plan import Cut
from mqpcap.tables import arrow as tables
from mqpcap.tables.arrow import CONNECTION_ROWS, Chunk, Spool
from mqpcap.tcp.headers import Dissector, Segments, address_text, ends_of
from mqpcap.tcp.reassembly import Flow, columns

TASK_SPOOL_BYTES = 48 << 20
"""So much waits in memory of a task; a worker has several hundred MB, not the whole machine."""
TASK_MEMORY_BYTES = 192 << 20
"""Bound of what waits for missing bytes in a task."""
WIDEST = 2
"""A share reads windows so many times as large as usual: of two shares each has as many rows of one as are usual."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of a capture elsewhere: servers told, and connections of protocols that join them."""

    servers: frozenset[Told] = frozenset()
    connections: Mapping[str, Sequence[Evidence]] = field(default_factory=dict)


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


class Share(CapturePipeline):
    """One share of one capture.

    ``heard`` is what other shares know; ``wanted`` leaves unread what nobody asked for; only connections with one of
    ``keys`` are followed, where given; ``cut`` says which are of which share, their hash alone if it is not given.
    ``ready`` is given what no later packet of the share can change. ``torn`` has the servers, as `packets.endpoints`
    tells them, whose connections are not all where ``cut`` has the server.
    """

    def __init__(
        self,
        capture: Capture,
        options: Options,
        heard: Heard | None = None,
        wanted: Wanted | None = None,
        keys: NDArray[np.int64] | None = None,
        cut: Cut | None = None,
        ready: Ready | None = None,
    ) -> None:
        self.heard = heard or Heard()
        super().__init__(capture, replace(options, servers=options.servers | self.heard.servers), ready)
        self.spool = Spool(TASK_SPOOL_BYTES)
        self.wanted = wanted or Wanted()
        self.keys = keys
        self.cut = cut or Cut(options.share[1])
        self.torn: set[int] = set()

    @property
    def is_whole(self) -> bool:
        """Whether it holds all of the capture's connections."""
        return self.options.share[1] == 1

    def _window_times(self) -> int:
        return min(self.options.share[1], WIDEST)

    def _segments(self, segments: Segments) -> Segments:
        if not self.is_whole:
            ends = ends_of(segments)
            share, torn = self.cut.shares(ends)
            self.torn.update(np.unique(np.stack(ends)[:, torn]).tolist())
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
        if keep.all():
            return frames
        rows = np.flatnonzero(keep)
        names = [name for name in Frames.__slots__ if name not in ("protocol", "buffer")]
        return replace(frames, **{name: getattr(frames, name)[rows] for name in names})

    def _fits(self, flow: Flow) -> bool:
        return all({flow.a_ip, flow.b_ip} & ips for ips in self.wanted.ips) and all(
            {flow.a_port, flow.b_port} & ports for ports in self.wanted.ports
        )

    def as_read(self) -> Iterator[Chunk]:
        """The messages, as soon as no later packet can change their rows; nothing is kept for exchanges.

        Raises CaptureError, behind the last of them, where the capture could not be read to its end.
        """
        given: list[Chunk] = []
        self.ready, self.keep = given.append, lambda name, narrow: None
        for window in self.capture.windows(self._window_times()):
            self._take(self.messages(window))
            yield from given
            given.clear()
        self._take(self.last_messages())
        yield from given
        yield from self._result().chunks(for_ledgers=False)

    def joining(self, name: str) -> bool:
        """Whether facts of the protocol's connections may come from other shares."""
        evidence = self.protocols[name].evidence
        return evidence is not None and evidence.joins and not self.is_whole

    def _joined(self, name: str) -> dict[int, ConnectionFacts]:
        """As of the whole capture, where other shares were heard."""
        if name not in self.heard.connections:
            return super()._joined(name)
        mine = self.connections_of(name)
        known = settled_facts(name, [*self.heard.connections[name], *mine.values()])
        return {f: known[c.connection_id] for f, c in mine.items()}

    def connections_of(self, name: str) -> dict[int, Evidence]:
        """The protocol's connections in this share, by flow; where it does not join, only those that are not over."""
        return {f: self._connection(f) for f in self.speaking(name)}

    def flows_of(self, name: str) -> dict[int, Flow]:
        """The flows that go with `connections_of`."""
        return {f: self.assembler.flows[f] for f in self.connections_of(name)}

    def ids_of(self, name: str) -> set[int]:
        """The ids of all of the protocol's connections in this share."""
        protocol, ids = self.protocols[name], set[int]()
        numbers = np.fromiter((f for f, talk in self.talks.items() if talk.protocol is protocol), np.int64)
        for start in range(0, len(numbers), CONNECTION_ROWS):
            ids.update(self.assembler.flows.columns(numbers[start : start + CONNECTION_ROWS]).connection_ids().tolist())
        return ids


def settled_facts(name: str, connections: Sequence[Evidence]) -> dict[int, ConnectionFacts]:
    """What connections of a protocol say of each other, by connection id; each counts once."""
    from mqpcap.protocols import protocols

    evidence = protocols()[name].evidence
    assert evidence is not None
    once = {c.connection_id: c for c in connections}
    ordered = sorted(once.values(), key=lambda c: (c.first_ts_ns, c.connection_id))
    return {c.connection_id: said for c, said in zip(ordered, evidence.resolve(ordered), strict=True)}


def settled_rows(name: str, table: pa.Table, flows: Mapping[int, Flow], facts: Mapping[int, ConnectionFacts]) -> Chunk:
    """Rows that waited for other shares, finished; facts by connection id."""
    from mqpcap.protocols import protocols

    of_flow = {f: facts[flow.connection_id] for f, flow in flows.items()}
    protocol = protocols()[name]
    return tables.settled(protocol, compiled(protocol), table, of_flow, columns(flows, tables.flows_in(table)))


class _Listener(CapturePipeline):
    """Follows connections for what they tell of each other, and reads no message else."""

    def _wanted(self, frames: Frames) -> Frames:
        nothing = np.empty(0, np.intp)
        names = [name for name in Frames.__slots__ if name not in ("protocol", "buffer")]
        return replace(frames, **{name: getattr(frames, name)[nothing] for name in names})

    def heard(self) -> Heard:
        joined = {
            name: [self._connection(f) for f in self.speaking(name)]
            for name, protocol in self.protocols.items()
            if protocol.evidence is not None and protocol.evidence.joins
        }
        return Heard(frozenset(self.framer.servers.items()), joined)


def heard(capture: Capture, options: Options) -> Heard:
    """What all connections of a capture tell of each other, without reading their messages."""
    listener = _Listener(capture, replace(options, share=(0, 1)))
    listener.run(None)
    return listener.heard()


def chunks(capture: Capture, options: Options, wanted: Wanted | None = None, cut: Cut | None = None) -> Iterator[Chunk]:
    """The messages of a share of a capture, with the rows of the whole one; raises CaptureError as `Share.as_read`."""
    if options.share[1] > 1:
        made = dissection(capture, options, wanted, cut)
        yield from made.chunks(for_ledgers=False) if made is not None else ()
        return
    keys = None
    if wanted is not None and wanted.by_connection:
        keys = _keys(capture, wanted)
    if keys is None or len(keys):
        yield from Share(capture, options, None, wanted, keys).as_read()


def dissection(
    capture: Capture, options: Options, wanted: Wanted | None = None, cut: Cut | None = None
) -> Dissection | None:
    """A share of a capture whose rows are those of the whole one; None if nothing that is wanted can be in it.

    Raises CaptureError where the capture could not be read to its end.
    """
    keys = None
    if wanted is not None and wanted.by_connection:
        keys = _keys(capture, wanted)
        if not len(keys):
            return None
    share = Share(capture, options, None, wanted, keys, cut)
    made = share.run(None)
    asks = share.framer.doubted or any(share.joining(name) and share.connections_of(name) for name in share.protocols)
    if not share.is_whole and asks:
        made = Share(capture, options, heard(capture, options), wanted, keys, cut).run(None)
    if made.failure is not None:
        raise made.failure
    return made


def _keys(capture: Capture, wanted: Wanted) -> NDArray[np.int64]:
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
