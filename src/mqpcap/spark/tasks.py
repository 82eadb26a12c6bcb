"""What a task of the bulk job does; runs in a Python worker of Spark and knows nothing of Spark.

First stage, `Dissect`: a share of a capture, or some small captures, through the engine, its rows to Parquet. Where a
share cannot say all of a row or what joins connections, it leaves what is needed in files of its own (``side``), narrow
columns only.
Second stage: `Settle` finishes rows that waited for the logins of other shares (fq), `Join` makes ``exchanges`` and
``deliveries`` of a protocol that looks at more than one connection. Each task ends by writing its result, after all of
its files, under a name no other attempt has.
"""

import json
import pickle
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from mqpcap.capture import Capture
from mqpcap.dissection import Dissection, Options
from mqpcap.errors import CaptureError
from mqpcap.exchanges import ledger
from mqpcap.frames import Server
from mqpcap.layers import protocols
from mqpcap.protocol import Connection, Ends
from mqpcap.rows import Rows
from mqpcap.spark import engine
from mqpcap.spark.engine import Heard, Share
from mqpcap.spark.parts import PartFile, Parts
from mqpcap.spark.places import Place
from mqpcap.spark.plan import Unit
from mqpcap.streams import Flow
from mqpcap.tables import Chunk

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")

@dataclass(frozen=True, slots=True)
class Dissect:
    """A unit of captures; ``servers`` are those that other shares of the same capture told."""

    id: str
    unit: Unit
    servers: frozenset[Server] = frozenset()


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
    """The narrow rows of a protocol in all shares of one capture."""

    id: str
    protocol: str
    narrow: tuple[str, ...]
    states: tuple[str, ...]


Task = Dissect | Settle | Join


@dataclass(frozen=True, slots=True)
class Side:
    """What a share left of a protocol for the second stage; names of files, empty where there is none."""

    protocol: str
    state: str
    pending: str = ""
    narrow: str = ""


@dataclass(slots=True)
class Result:
    """What a task came to; travels as JSON."""

    id: str
    files: list[PartFile] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    doubted: list[Server] = field(default_factory=list)
    flaws: dict[str, int] = field(default_factory=dict)
    problem_bytes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    failed: list[tuple[int, str, str]] = field(default_factory=list)
    """(number, name, reason) of captures that could not be read."""

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def result(text: str | bytes) -> Result:
    """A result out of its JSON; raises ValueError if it is none."""
    try:
        found: dict[str, Any] = json.loads(text)
        found["files"] = [PartFile(**file) for file in found["files"]]
        found["sides"] = [Side(**side) for side in found["sides"]]
        for name in ("servers", "doubted", "notes", "failed"):
            found[name] = [tuple(one) for one in found[name]]
        return Result(**found)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no result of a task: {error}") from error


def run(task: Task, options: Options, place: Place) -> Result:
    """Does a task and leaves its result in the staging directory, last of all."""
    stem = f"{task.id}-{uuid.uuid4().hex[:12]}"
    parts = Parts(place, stem)
    made = Result(task.id)
    match task:
        case Dissect():
            _dissect(task, options, place, stem, parts, made)
        case Settle():
            _settle(task, place, stem, parts, made)
        case Join():
            _join(task, place, parts)
    made.files = parts.close()
    place.write(f"done/{stem}.json", made.text().encode())
    return made


def _dissect(task: Dissect, options: Options, place: Place, stem: str, parts: Parts, made: Result) -> None:
    problems: Counter[str] = Counter()
    for number, capture in task.unit.captures:
        share = Share(capture, replace(options, share=task.unit.share), Heard(task.servers))
        try:
            dissection = share.run(None)
        except CaptureError as error:
            made.failed.append((number, capture.files[0], " ".join(str(error).split())))
            continue
        if share.is_whole:
            _whole(dissection, parts, made)
        else:
            _shared(share, dissection, place, stem, parts, made)
            made.servers += sorted(share.framer.servers)
            made.doubted += sorted(share.framer.doubted)
        for table in ("connections", "problems"):
            parts.write(table, getattr(dissection, table))
        for row in dissection.problems.select(["kind", "length"]).to_pylist():
            problems[row["kind"]] += row["length"]
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
        parts.write("exchanges", one.exchanges)
        parts.write("deliveries", one.deliveries)


def _shared(share: Share, dissection: Dissection, place: Place, stem: str, parts: Parts, made: Result) -> None:
    leavings: dict[str, _Leaving] = {}
    for name, table in dissection._spool.batches():
        if name not in leavings:
            leavings[name] = _Leaving(place, f"side/{stem}", name)
        if share.joining(name):
            leavings[name].add("pending", table)
            continue
        chunk = dissection._settle(name, table)
        _write(chunk, parts, made)
        leavings[name].take(chunk)
    # A connection without a row may still be the login of others.
    for name in (n for n in share.protocols if share.joining(n) and share.connections_of(n)):
        leavings.setdefault(name, _Leaving(place, f"side/{stem}", name))
    for name, leaving in leavings.items():
        connections = share.connections_of(name)
        ids = {c.connection_id for c in connections.values()}
        edges = {k: edge for k, edge in dissection._edges.items() if k in ids}
        made.sides += leaving.close(State(list(connections.values()), share.flows_of(name), edges), parts)


@dataclass(frozen=True, slots=True)
class State:
    """What a share knows of the connections of a protocol: as evidence, as flows by number, and their edges by id."""

    connections: list[Connection]
    flows: dict[int, Flow]
    edges: dict[int, Ends]


def joins_connections(name: str) -> bool:
    """Whether exchanges or deliveries of a protocol look at more than one connection."""
    rule = protocols()[name].rule
    return rule is not None and (rule.machine is not None or rule.deliveries is not None)


class _Leaving:
    """The files that a share leaves of one protocol."""

    def __init__(self, place: Place, folder: str, name: str) -> None:
        self._place = place
        self._folder = folder
        self._name = name
        self._files: dict[str, tuple[str, pa.NativeFile]] = {}
        self._own = Rows()

    def add(self, what: str, table: pa.Table) -> None:
        if what not in self._files:
            name = f"{self._folder}/{self._name}.{what}.arrow"
            self._files[what] = name, self._place.output(name)
        # A stream of its own: dictionaries, and which columns hold nothing, differ from batch to batch.
        with pa.ipc.new_stream(self._files[what][1], table.schema, options=_LZ4) as writer:
            writer.write_table(table)

    def take(self, chunk: Chunk) -> None:
        """The narrow rows of a chunk: for the second stage, or for the end of this task."""
        if chunk.narrow is None:
            return
        if joins_connections(self._name):
            self.add("narrow", chunk.narrow)
        else:
            self._own.add(chunk.narrow)

    def close(self, state: State, parts: Parts) -> list[Side]:
        if self._own.num_rows:
            one = ledger(protocols()[self._name], self._own, state.edges)
            parts.write("exchanges", one.exchanges)
        for _, file in self._files.values():
            file.close()
        names = {what: name for what, (name, _) in self._files.items()}
        evidence = protocols()[self._name].evidence
        if not names and not (evidence is not None and evidence.joins):
            return []
        state_name = f"{self._folder}/{self._name}.state"
        if evidence is None or not evidence.joins:
            state = replace(state, connections=[], flows={})
        self._place.write(state_name, pickle.dumps(state))
        return [Side(self._name, state_name, names.get("pending", ""), names.get("narrow", ""))]


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
        leaving.take(chunk)
    made.sides += leaving.close(own, parts)


def _join(task: Join, place: Place, parts: Parts) -> None:
    rows = Rows()
    for name in task.narrow:
        for table in _tables(place, name):
            rows.add(table)
    edges = {k: edge for name in task.states for k, edge in _state(place, name).edges.items()}
    one = ledger(protocols()[task.protocol], rows, edges)
    parts.write("exchanges", one.exchanges)
    parts.write("deliveries", one.deliveries)
