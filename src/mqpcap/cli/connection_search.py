"""The connections that a filter selects, found by reading a capture once."""

import ipaddress
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import constant
from mqpcap.capture import Capture
from mqpcap.cli.connection_names import STRANGER
from mqpcap.cli.console import Meter, shown
from mqpcap.cli.filters import Tally
from mqpcap.cli.lines import endpoint
from mqpcap.cli.numbered_pipeline import NumberedPipeline
from mqpcap.cli.reading import Outcome, read
from mqpcap.decode.shared_facts import Fact, SharedFacts
from mqpcap.errors import MqpcapError
from mqpcap.pipeline import Emit, Options, Output
from mqpcap.protocols import protocols
from mqpcap.query import Comparison, Query, Rows, SelectedMessages, of_tree
from mqpcap.schema.protocol import Evidence
from mqpcap.tables.schemas import NUMBER
from mqpcap.tcp.headers import endpoints, keys_of

I64 = NDArray[np.int64]
MOST_NAMED = 8
"""So many connections are named where one was asked for."""
_OF_CONNECTIONS = frozenset(
    {"connection_id", "direction", "src_ip", "src_port", "dst_ip", "dst_port", "protocol", NUMBER}
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A connection: its row of ``connections``, and its number in the capture, 0 where nobody asked for it."""

    row: Mapping[str, object]
    number: int = 0

    @property
    def id(self) -> int:
        """Its connection_id."""
        return int(str(self.row["connection_id"]))

    def end(self, which: str) -> str:
        """Address and port of ``client`` or ``server``."""
        return endpoint(self.row[f"{which}_ip"], self.row[f"{which}_port"])

    def query(self) -> Query:
        """All of its messages."""
        tests = ("connection", str(self.id)), ("client", self.end("client")), ("server", self.end("server"))
        return reduce(and_, (of_tree(Comparison(name, "==", (value,))) for name, value in tests))


def read_again(captures: Sequence[Capture]) -> None:
    """Raises MqpcapError if one of the captures can be read only once."""
    for name in (name for capture in captures for name in capture.files):
        if not os.path.isfile(name):
            raise MqpcapError(f"{name} is read more than once here; save it to a file")


class Choice:
    """The connections of one capture with messages that a filter selects; ``keep`` is given those messages.

    Where the filter asks for ends only, also connections that are not ours.
    """

    def __init__(
        self,
        capture: Capture,
        query: Query,
        keep: Callable[[Output], None] | None = None,
        pipeline: Callable[[Capture, Options, Emit], NumberedPipeline] = NumberedPipeline,
    ) -> None:
        self.capture, self.query, self._pipeline = capture, query, pipeline
        self.tally = Tally(query)
        self.connection_count = 0
        self._keep = keep
        self._counts: Counter[int] = Counter()
        self._rows: list[tuple[int, Mapping[str, object]]] = []
        needs = query.needs
        self._by_ends = needs.messages <= _OF_CONNECTIONS and not needs.fields and not needs.exchanges
        self._first: dict[tuple[object, ...], Mapping[str, object]] = {}
        """By server and protocol the first connection that was recognised by itself."""
        self._telling: list[pa.Table] = []
        """Connections of protocols in which one tells another something."""
        self._asked = {name: _Asked() for name, p in protocols().items() if p.evidence is not None and p.evidence.tells}

    def run(self, outcome: Outcome, meter: Meter) -> "list[Chosen]":
        """Read the capture; the connections in order of their first packets."""
        selected = SelectedMessages(self.query, self._count)
        tables = frozenset({"exchanges"}) if self.query.needs.exchanges else frozenset[str]()
        options = replace(outcome.choices.dissection(only=tables), connections=self.query.connections)

        def take(output: Output) -> None:
            first_ns = pipeline.first_ns or 0
            self.tally.look(output, first_ns)
            if output.table == "connections":
                self._note(output.rows.drop_columns([NUMBER, STRANGER]), output.rows[NUMBER].to_pylist(), first_ns)
            selected.take(output, first_ns)

        pipeline = self._pipeline(self.capture, options, take)
        pipeline.shared.update(self._asked)
        read(pipeline, outcome, meter)
        ids = self._counts.keys()
        rows = [(n, row) for n, row in self._rows if self._by_ends or row["connection_id"] in ids]
        return [Chosen(row, number) for number, row in sorted(rows, key=lambda pair: pair[0])]

    def tellers(self, connections: Sequence[Chosen]) -> list[Chosen]:
        """Other connections without which rows of these would differ: by those they are recognised or named."""
        known, wanted = {one.id for one in connections}, set[int]()
        found: dict[int, Mapping[str, object]] = {}
        for one in connections:
            first = self._first.get(_server(one.row))
            if one.row["identified_by"] == "peer" and first is not None:
                found[int(str(first["connection_id"]))] = first
            wanted |= {asked.tellers[one.id] for asked in self._asked.values() if one.id in asked.tellers}
        for table in self._telling:
            for row in table.filter(pc.is_in(table["connection_id"], pa.array(wanted, pa.int64()))).to_pylist():
                found[row["connection_id"]] = row
        return [Chosen(row) for number, row in found.items() if number not in known]

    def _count(self, output: Output) -> None:
        for pair in output.rows["connection_id"].value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        if self._keep is not None:
            self._keep(output)

    def _note(self, rows: pa.Table, numbers: list[int], first_ns: int) -> None:
        """Take rows of ``connections`` with their numbers."""
        self.connection_count += rows.num_rows
        alone = rows.filter(pc.and_(pc.is_valid(rows["protocol"]), pc.not_equal(rows["identified_by"], "peer")))
        for row in alone.to_pylist():
            before = self._first.setdefault(_server(row), row)
            if row["first_ts_ns"] < before["first_ts_ns"]:
                self._first[_server(row)] = row
        self._telling.append(rows.filter(pc.is_in(rows["protocol"], pa.array(self._asked, pa.string()))))
        kept = np.arange(len(numbers))
        if self._by_ends:
            kept = np.flatnonzero(self.query.selects(_as_messages(rows, numbers), first_ns))
        self._rows += zip((numbers[i] for i in kept.tolist()), rows.take(pa.array(kept)).to_pylist(), strict=True)


class _Asked(SharedFacts):
    """What connections tell each other, with who told it: ``tellers`` by the connection that asked."""

    def __init__(self) -> None:
        super().__init__()
        self.tellers: dict[int, int] = {}

    def nearest(self, key: bytes, by: Evidence, ts_ns: int) -> Fact | None:
        """The fact that a connection finds."""
        fact = super().nearest(key, by, ts_ns)
        if fact is not None:
            self.tellers[by.connection_id] = fact[5]
        return fact


def _server(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["protocol"], row["server_ip"], row["server_port"]


def _as_messages(connections: pa.Table, numbers: Sequence[int]) -> Rows:
    """Connections as messages from their clients, as far as a filter on ends looks at those."""
    named = {"src_ip": "client_ip", "src_port": "client_port", "dst_ip": "server_ip", "dst_port": "server_port"}
    columns = {name: connections[mine] for name, mine in named.items()}
    columns |= {name: connections[name] for name in ("connection_id", "protocol")}
    columns |= {"direction": constant("c2s", len(numbers)), NUMBER: pa.array(numbers, pa.int64())}
    return Rows("", pa.table(columns), pa.table({}))


def listed(connections: Sequence[Chosen]) -> str:
    """Connections for people who asked for one, on one line."""
    names = [f"c{one.number} ({one.end('client')} -> {one.end('server')})" for one in connections[:MOST_NAMED]]
    more = f", and {len(connections) - MOST_NAMED:,} more" if len(connections) > MOST_NAMED else ""
    return shown(", ".join(names)) + more


def keys(connections: Sequence[Chosen]) -> I64:
    """``Segments.key`` of connections."""
    ends = []
    for end in ("client", "server"):
        ips = [int(ipaddress.ip_address(str(one.row[f"{end}_ip"]))) for one in connections]
        ports = np.array([int(str(one.row[f"{end}_port"])) for one in connections], np.int64)
        ends.append(endpoints(_halves([ip >> 64 for ip in ips]), _halves(ips), ports))
    return keys_of((ends[0], ends[1]))


def _halves(numbers: Sequence[int]) -> I64:
    return np.array([number & (1 << 64) - 1 for number in numbers], np.uint64).view(np.int64)
