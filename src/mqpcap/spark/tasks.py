"""What a task of the bulk job does; runs in a Python worker of Spark and knows nothing of Spark.

First stage, `Dissect`: a share of a capture, or some small captures, through the engine, its rows to Parquet as they
become final; where shares are many, `Deal` has read the capture before them and left each its packets. Where a share
cannot say all of a row or what joins connections, it leaves what is needed in files of its own (``side``): narrow
columns, packed as the local export packs them, those of each group of servers in one file. What it has all connections
of, as the cut of the capture says, it joins itself.
Second stage: `Settle` finishes rows that waited for the logins of other shares (fq), `Join` makes ``exchanges`` and
``deliveries`` of a protocol that looks at more than one connection, for one group of servers. Where no share saw a
message delivered, it tries each share's rows alone first, and all together only where these turn out to need each
other. Each task ends by writing
its result, after all of its files, under a name no other attempt has.
"""

import json
import pickle
import struct
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap import memory
from mqpcap.arrays import factorize, is_in
from mqpcap.capture import Capture
from mqpcap.correlate.exchanges import Ledger, ledger
from mqpcap.correlate.rows import Rows
from mqpcap.decode.framing import ConnectionView, Server, Told
from mqpcap.errors import CaptureError, one_line
from mqpcap.pipeline import Dissection, Options
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import Ends, Evidence
from mqpcap.spark import dealing, engine
from mqpcap.spark.dealing import Dealt, Span
from mqpcap.spark.engine import Heard, Share
from mqpcap.spark.parts import PartFile, Parts
from mqpcap.spark.places import Place
from mqpcap.spark.plan import Cut, Unit
from mqpcap.tables.arrow import Chunk
from mqpcap.tcp.headers import endpoints
from mqpcap.tcp.flows import Flow, Flows

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_LENGTH = struct.Struct("<Q")
BLOCK_ROW_COUNT = 1 << 18
"""So many packed rows (30 to 60 bytes each) wait in the memory of a share before they go to its file."""
JOINED_BYTES = 64 << 20
"""So much of them waits in the memory of a join, which has nothing else to hold; the rest in a temporary file."""
MAX_OWN_ROWS = 1 << 20
"""A share joins no more rows of connections that concern each other: they take 200 bytes each beside all it has."""
MAX_GROUPS = 12
"""Groups of servers, at most: a share keeps a file open for each, and in an object store that takes 5 MB or more."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Spans of a capture, whose packets are dealt out to its shares."""

    id: str
    number: int
    capture: Capture
    spans: tuple[Span, ...]
    cut: Cut


@dataclass(frozen=True, slots=True)
class Dissect:
    """A unit of captures; ``servers`` are those that other shares of the same capture told."""

    id: str
    unit: Unit
    servers: frozenset[Told] = frozenset()


@dataclass(frozen=True, slots=True)
class Settle:
    """Rows of a protocol in one share that wait for facts; ``states`` are of all shares."""

    id: str
    protocol: str
    pending: str
    state: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """The narrow rows of a protocol in all shares of one capture, of one group of servers.

    alone: in one share, to see whether they need those of the others.
    """

    id: str
    protocol: str
    narrow: tuple[str, ...]
    alone: bool = False


Task = Deal | Dissect | Settle | Join


@dataclass(frozen=True, slots=True)
class Side:
    """What a share left of a protocol for the second stage; names of files, empty where there is none.

    narrow has the number of each group of servers and its file. related: groups in which messages were delivered, so
    that connections say something of each other. is_torn: a server that was the share's as a whole has connections in
    another, so that groups are to be joined with each other.
    """

    protocol: str
    state: str = ""
    pending: str = ""
    narrow: tuple[tuple[int, str], ...] = ()
    related: tuple[int, ...] = ()
    is_torn: bool = False

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        return [*filter(None, (self.state, self.pending)), *(name for _, name in self.narrow)]


@dataclass(slots=True)
class Result:
    """What a task came to; travels as JSON."""

    id: str
    files: list[PartFile] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)
    dealt: list[Dealt] = field(default_factory=list)
    servers: list[Told] = field(default_factory=list)
    doubted: list[Server] = field(default_factory=list)
    flaws: dict[str, int] = field(default_factory=dict)
    problem_bytes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    failed: list[tuple[int, str, str]] = field(default_factory=list)
    """(number, name, reason) of captures that could not be read."""
    needs_others: bool = False
    """Whether rows that were to be joined alone must not be; then none were."""

    @property
    def left(self) -> list[str]:
        """Names of the files it left for later stages."""
        return [*(name for side in self.sides for name in side.files), *{one.name for one in self.dealt if one.name}]

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def result(text: str | bytes) -> Result:
    """A result out of its JSON; raises ValueError if it is none."""
    try:
        found: dict[str, Any] = json.loads(text)
        found["files"] = [PartFile(**file) for file in found["files"]]
        found["sides"] = [
            Side(**{**side, "narrow": tuple(map(tuple, side["narrow"])), "related": tuple(side["related"])})
            for side in found["sides"]
        ]
        found["dealt"] = [dealing.dealt(one) for one in found["dealt"]]
        for name in ("doubted", "notes", "failed"):
            found[name] = [tuple(one) for one in found[name]]
        found["servers"] = [(tuple(server), ts_ns) for server, ts_ns in found["servers"]]
        return Result(**found)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no result of a task: {error}") from error


def run(task: Task, options: Options, place: Place) -> Result:
    """Does a task and leaves its result in the staging directory, last of all."""
    stem = f"{task.id}-{uuid.uuid4().hex[:12]}"
    parts = Parts(place, stem)
    made = Result(task.id)
    match task:
        case Deal():
            _deal(task, place, stem, made)
        case Dissect():
            _dissect(task, options, place, stem, parts, made)
        case Settle():
            _settle(task, place, stem, parts, made)
        case Join():
            _join(task, place, parts, made)
    made.files = parts.close()
    # The worker lives on for other tasks, of other sizes.
    memory.trim()
    place.write(f"done/{stem}.json", made.text().encode())
    return made


def _deal(task: Deal, place: Place, stem: str, made: Result) -> None:
    try:
        made.dealt = dealing.deal(task.capture, task.spans, task.cut, place, f"dealt/{stem}.packets")
    except CaptureError as error:
        made.failed.append((task.number, task.capture.files[0], one_line(error)))


def _dissect(task: Dissect, options: Options, place: Place, stem: str, parts: Parts, made: Result) -> None:
    problems: Counter[str] = Counter()
    for number, capture in task.unit.captures:
        share = Share(
            capture, replace(options, share=task.unit.share), Heard(task.servers), cut=task.unit.cut,
            ready=lambda chunk: _write(chunk, parts, made),
        )  # fmt: skip
        leavings = _Leavings(share, place, stem)
        if not share.is_whole:
            share.keep = leavings.keep
        try:
            dissection = share.run(None)
        except CaptureError as error:
            made.failed.append((number, capture.files[0], one_line(error)))
            continue
        if dissection.failure is not None:
            made.failed.append((number, capture.files[0], one_line(dissection.failure)))
            if not share.is_whole:
                continue
        if share.is_whole:
            _whole(dissection, parts, made)
        else:
            _shared(share, dissection, leavings, parts, made)
            made.servers += sorted(share.framer.servers.items())
            made.doubted += sorted(share.framer.doubted)
        for table in ("connections", "problems"):
            parts.write(table, getattr(dissection, table))
        for row in dissection.problems.group_by("kind").aggregate([("length", "sum")]).to_pylist():
            problems[row["kind"]] += row["length_sum"]
        if task.unit.share[0] == 0:
            made.notes += [(number, str(note)) for note in capture.notes]
        for name, count in dissection.counts.items():
            made.counts[name] = made.counts.get(name, 0) + count
        made.notes += [(number, words) for words in _caps(capture, dissection)]
    made.problem_bytes = dict(problems)


def _caps(capture: Capture, dissection: Dissection) -> list[str]:
    from mqpcap.cli.reading import caps

    return caps(dissection)


def _write(chunk: Chunk, parts: Parts, made: Result) -> None:
    for pair in chunk.messages["flaw"].value_counts().to_pylist():
        if pair["values"] is not None:
            made.flaws[pair["values"]] = made.flaws.get(pair["values"], 0) + pair["counts"]
    parts.write("messages", chunk.messages)
    parts.write(chunk.protocol, chunk.fields)


def _whole(dissection: Dissection, parts: Parts, made: Result) -> None:
    for chunk in dissection.chunks():
        _write(chunk, parts, made)
    for one in dissection.ledgers().values():
        _write_ledger(one, parts)


def _write_ledger(one: Ledger, parts: Parts) -> None:
    for block in one.blocks():
        parts.write("exchanges", block)
    parts.write("deliveries", one.deliveries)


def _shared(share: Share, dissection: Dissection, leavings: "_Leavings", parts: Parts, made: Result) -> None:
    for name, table in dissection._spool.batches():
        if share.joining(name):
            leavings.of(name).wait(table)
            continue
        chunk = dissection._settle(name, table)
        _write(chunk, parts, made)
        if chunk.narrow is not None:
            leavings.keep(name, chunk.narrow)
    # A connection without a row may still be the login of others.
    for name in (n for n in share.protocols if share.joining(n) and share.connections_of(n)):
        leavings.of(name)
    for name, leaving in leavings.items():
        ids = share.ids_of(name)
        edges = {k: edge for k, edge in dissection._edges.items() if k in ids}
        leavings.of(name)
        state = State([], {}, edges)
        if share.joining(name):
            state = State(list(share.connections_of(name).values()), share.flows_of(name), edges)
        made.sides += leaving.close(state, parts, share.torn)


@dataclass(frozen=True, slots=True)
class State:
    """What a share knows of the connections of a protocol: as evidence, as flows by number, and their edges by id."""

    connections: list[Evidence]
    flows: dict[int, Flow]
    edges: dict[int, Ends]


def joins_connections(name: str) -> bool:
    """Whether exchanges or deliveries of a protocol look at more than one connection."""
    rule = protocols()[name].rule
    return rule is not None and (rule.machine is not None or rule.deliveries is not None)


_NO_CUT = Cut(1)


class _Leaving:
    """What a share leaves of one protocol; narrow rows are added as to the rows of a dissection.

    Servers that are the share's as a whole, by its number and the cut, are a group that no other share has. Its rows
    stay here to be joined at the end, unless they are too many.
    """

    def __init__(self, place: Place, folder: str, name: str, number: int = 0, cut: Cut = _NO_CUT) -> None:
        rule = protocols()[name].rule
        self._place = place
        self._folder = folder
        self._name = name
        self._group_count = min(1 if rule is not None and rule.across_servers else cut.share_count, MAX_GROUPS)
        self._number, self._cut = number, cut
        self._own_group = self._group_count + number
        self._own: set[int] = set()
        self._holds = True
        self._rule = rule
        self._related: set[int] = set()
        self._groups: dict[int, int] = {}
        self._rows: dict[int, Rows] = {}
        self._files: dict[str, tuple[str, pa.NativeFile]] = {}
        self._narrow: dict[int, str] = {}

    @property
    def is_grouped(self) -> bool:
        """Whether its rows are told apart by their servers."""
        return self._group_count > 1 and joins_connections(self._name)

    def add(self, narrow: pa.Table) -> None:
        """Rows for the second stage, or for the end of this task."""
        if not self.is_grouped:
            self._take(0, narrow)
            return
        ids, place = factorize(narrow["connection_id"].to_numpy())
        known = [self._groups[one] for one in ids.tolist()]
        if len({*known}) == 1:
            self._take(known[0], narrow)
            return
        groups = np.array(known, np.uint8)[place]
        # Each group's rows together, in their order: one pass over the columns however many groups there are.
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(self._own_group + 2)).tolist()
        together = narrow.take(pa.array(order))
        for group, (start, end) in enumerate(pairwise(bounds)):
            if end > start:
                self._take(group, together.slice(start, end - start))

    def _take(self, group: int, narrow: pa.Table) -> None:
        rows = self._rows.setdefault(group, Rows())
        rows.add(narrow)
        if group not in self._related and self._relates(narrow):
            self._related.add(group)
        if self._holds and group == self._own_group:
            if group in self._related and rows.num_rows > MAX_OWN_ROWS:
                self._give_up()
        elif rows.num_rows >= BLOCK_ROW_COUNT and joins_connections(self._name):
            self._block(group, rows)
            self._rows[group] = Rows()

    def _relates(self, narrow: pa.Table) -> bool:
        rule = self._rule
        if rule is None or not rule.sets_aside:
            return True
        return bool((is_in(narrow["op"], *rule.delivered) & is_in(narrow["direction"], "s2c")).any())

    def know(self, flows: Flows, talks: Mapping[int, ConnectionView], numbers: NDArray[np.int64]) -> None:
        """The groups that connections belong to, by their servers."""
        of = flows.columns(numbers)
        server = 1 - np.array([talks[number].client for number in numbers.tolist()], np.int64)
        ids = of.connection_ids().tolist()
        for one, ip, port in zip(ids, of.ips(server), of.ports(server).tolist(), strict=True):
            self._groups[one] = _group(f"{ip} {port}", self._group_count)
        row = np.arange(len(of))
        ends = endpoints(of.hi[row, server], of.lo[row, server], of.ports(server))
        own = self._cut.of_servers(ends) == self._number
        self._own.update(ends[own].tolist())
        for k in np.flatnonzero(own).tolist():
            self._groups[ids[k]] = self._own_group

    def _give_up(self) -> None:
        """Leave to the second stage what was to be joined here."""
        self._holds = False
        for table in self._rows.pop(self._own_group, Rows()).tables():
            self._take(self._own_group, table)

    def wait(self, table: pa.Table) -> None:
        """Rows that other shares have a say in."""
        # A stream of its own: dictionaries, and which columns hold nothing, differ from batch to batch.
        with pa.ipc.new_stream(self._file("pending"), table.schema, options=_LZ4) as writer:
            writer.write_table(table)

    def close(self, state: State, parts: Parts, torn: Set[int] = frozenset()) -> list[Side]:
        """What was left. What is this share's alone becomes rows of ``exchanges`` and ``deliveries``.

        torn: servers whose connections turned out to be in several shares.
        """
        is_torn = not torn.isdisjoint(self._own)
        if is_torn:
            self._give_up()
        joins = joins_connections(self._name)
        for group in [*self._rows]:
            rows = self._rows.pop(group)
            if joins and (group != self._own_group or not self._holds):
                self._block(group, rows)
            elif rows.num_rows:
                _write_ledger(ledger(protocols()[self._name], rows, self._edges(state, group)), parts)
        for group in self._narrow:
            self._block(group, self._edges(state, group))
        for _, file in self._files.values():
            file.close()
        evidence = protocols()[self._name].evidence
        settles = evidence is not None and evidence.joins
        if not self._files and not settles:
            return []
        state_name = ""
        if settles:
            state_name = f"{self._folder}/{self._name}.state"
            self._place.write(state_name, pickle.dumps(state))
        pending = self._files["pending"][0] if "pending" in self._files else ""
        narrow = tuple(sorted(self._narrow.items()))
        return [Side(self._name, state_name, pending, narrow, tuple(sorted(self._related)), is_torn)]

    def _edges(self, state: State, group: int) -> Mapping[int, Ends]:
        if not self.is_grouped:
            return state.edges
        return {k: edge for k, edge in state.edges.items() if self._groups[k] == group}

    def _file(self, what: str) -> pa.NativeFile:
        if what not in self._files:
            name = f"{self._folder}/{self._name}.{what}"
            self._files[what] = name, self._place.output(name)
        return self._files[what][1]

    def _block(self, group: int, content: Rows | Mapping[int, Ends]) -> None:
        """Packed rows, or the edges of connections, with their length in front."""
        block = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
        file = self._file(f"narrow{group}")
        file.write(_LENGTH.pack(len(block)))
        file.write(block)
        self._narrow[group] = self._files[f"narrow{group}"][0]


class _Leavings(dict[str, _Leaving]):
    """What a share leaves, by protocol."""

    def __init__(self, share: Share, place: Place, stem: str) -> None:
        self._share = share
        self._place = place
        self._folder = f"side/{stem}"
        self._known: dict[str, set[int]] = {}

    def of(self, name: str) -> _Leaving:
        """What is left of a protocol; its connections known by now are told to it."""
        if name not in self:
            self[name] = _Leaving(self._place, self._folder, name, self._share.options.share[0], self._share.cut)
        if not self[name].is_grouped:
            return self[name]
        known = self._known.setdefault(name, set())
        talks = self._share.talks
        protocol = self._share.protocols[name]
        new = [f for f, talk in talks.items() if f not in known and talk.protocol is protocol]
        if new:
            self[name].know(self._share.assembler.flows, talks, np.array(new, np.int64))
            known.update(new)
        return self[name]

    def keep(self, name: str, narrow: pa.Table) -> None:
        """Leave what the ledgers of a protocol need of some rows."""
        self.of(name).add(narrow)


def _group(server: str, group_count: int) -> int:
    return zlib.crc32(server.encode()) % group_count


def _blocks(place: Place, name: str) -> Iterator[Rows | dict[int, Ends]]:
    with place.input(name) as file:
        while head := file.read(_LENGTH.size):
            # Written by a task of this job into a directory that only its user can write.
            yield pickle.loads(file.read(_LENGTH.unpack(head)[0]))


def _state(place: Place, name: str) -> State:
    content = place.read(name)
    if content is None:
        raise CaptureError(f"{name} is gone from the staging directory")
    # Written by a task of this job into a directory that only its user can write.
    state: State = pickle.loads(content)
    return state


def _tables(place: Place, name: str) -> Iterator[pa.Table]:
    with place.input(name) as file:
        size_bytes = file.size()
        while file.tell() < size_bytes:
            yield pa.ipc.open_stream(file).read_all()


def _settle(task: Settle, place: Place, stem: str, parts: Parts, made: Result) -> None:
    connections = [c for name in task.states for c in _state(place, name).connections]
    facts = engine.settled_facts(task.protocol, connections)
    own = _state(place, task.state)
    leaving = _Leaving(place, f"side/{stem}", task.protocol)
    for table in _tables(place, task.pending):
        chunk = engine.settled_rows(task.protocol, table, own.flows, facts)
        _write(chunk, parts, made)
        if chunk.narrow is not None:
            leaving.add(chunk.narrow)
    made.sides += leaving.close(own, parts)


def _join(task: Join, place: Place, parts: Parts, made: Result) -> None:
    rows, edges = Rows(JOINED_BYTES), dict[int, Ends]()
    for name in task.narrow:
        for block in _blocks(place, name):
            if isinstance(block, Rows):
                rows.join(block)
            else:
                edges.update(block)
    one = ledger(protocols()[task.protocol], rows, edges)
    del rows, edges
    memory.trim()
    made.needs_others = task.alone and not one.stands_apart
    if not made.needs_others:
        _write_ledger(one, parts)
