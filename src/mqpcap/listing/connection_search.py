"""The connections that a filter selects, found by reading a capture once."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import constant, unify_dictionaries
from mqpcap.capture import Capture
from mqpcap.decode.shared_facts import SharedFact, SharedFacts
from mqpcap.errors import MqpcapError
from mqpcap.hooks import StageHooks
from mqpcap.listing.extra_columns import NUMBERED
from mqpcap.protocols import protocols
from mqpcap.query import Comparison, FilterInput, MatchTally, MessageSelection, Query, of_tree
from mqpcap.reading import Meter, Outcome, read, wired
from mqpcap.schema.protocol import Evidence
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.wording import endpoint, misuse_of, plural

MOST_NAMED = 8
"""Connections or files that a message names if several match."""


@dataclass(frozen=True, slots=True)
class SelectedConnection:
    """A connection: its row of ``connections``, with its number in the capture."""

    row: Mapping[str, object]

    @property
    def id(self) -> int:
        """Its connection_id."""
        return int(str(self.row["connection_id"]))

    @property
    def number(self) -> int:
        """Its number in the capture."""
        return int(str(self.row[CONNECTION_NUMBER]))

    def end(self, end: str) -> str:
        """Address and port of ``client`` or ``server``."""
        return endpoint(self.row[f"{end}_ip"], self.row[f"{end}_port"])

    def query(self) -> Query:
        """A filter for all of its messages."""
        tests = ("connection", str(self.id)), ("client", self.end("client")), ("server", self.end("server"))
        return reduce(and_, (of_tree(Comparison(name, "==", (value,))) for name, value in tests))


def connection_query(name: str, option: str) -> Query:
    """The messages of a connection: c7, IP:PORT of an end, a connection_id; alone also its number of tshark's streams.

    Raises MisuseError.
    """
    is_stream = option == "NAME" and re.fullmatch(r"\d{1,9}", name.strip())  # a connection_id is longer
    with misuse_of(option, "connection"):
        return of_tree(Comparison("tcp.stream" if is_stream else "connection", "==", (name.strip(),)))


def is_connection_name(text: str) -> bool:
    """Whether a text that may be a filter is the name of a connection.

    >>> [is_connection_name(x) for x in ("c2", "7", "[::1]:5555", "fq", "op==PING")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"c?\d+|[\[\]\w.:]+:\d+", text.strip()) is not None


def read_again(captures: Sequence[Capture]) -> None:
    """Raises MqpcapError if a capture can be read only once."""
    for name in (name for capture in captures for name in capture.files):
        if not os.path.isfile(name):
            raise MqpcapError(f"{name} is read more than once here; save it to a file")


class ConnectionSearch:
    """The connections of one capture with messages that a filter selects; ``keep`` is given those messages.

    If the filter tests ends only, connections of foreign protocols match, too.
    """

    def __init__(
        self, capture: Capture, query: Query, keep: Callable[[Output], None] | None = None, hooks: StageHooks = NUMBERED
    ) -> None:
        self.capture, self.query, self._hooks = capture, query, hooks
        self.tally = MatchTally(query)
        self.connection_count = 0
        self._keep = keep
        self._ids: set[int] = set()
        """Connections with selected messages."""
        self._rows: list[pa.Table] = []
        self._traced_facts = {
            name: _TracedFacts()
            for name, p in protocols().items()
            if p.evidence is not None and p.evidence.shares_facts
        }

    def run(self, outcome: Outcome, meter: Meter) -> "list[SelectedConnection]":
        """Read the capture; the connections in order of their first packets."""
        selected = MessageSelection(self.query, self._note)
        tables = frozenset({"exchanges"}) if self.query.needs_exchanges else frozenset[str]()
        options = replace(outcome.choices.dissection(only=tables), connections=self.query.connections)

        def take(output: Output, first_ns: int) -> None:
            self.tally.look(output, first_ns)
            if output.table == "connections":
                self.connection_count += output.rows.num_rows
                self._rows.append(output.rows)
            selected.add(output, first_ns)

        pipeline = wired(self.capture, options, take, self._hooks)
        pipeline.stages.evidence.shared.update(self._traced_facts)
        read(pipeline, outcome, meter)
        if not self.connection_count:
            return []
        rows = self._connections()
        if self.query.needs_endpoints_only:
            rows = rows.filter(pa.array(self.query.selects(_as_messages(rows), pipeline.first_ns or 0)))
        else:
            rows = rows.filter(pc.is_in(rows["connection_id"], pa.array(self._ids, pa.int64())))
        return list(map(SelectedConnection, rows.sort_by(CONNECTION_NUMBER).to_pylist()))

    def context_connections(self, connections: Sequence[SelectedConnection]) -> list[SelectedConnection]:
        """Other connections that rows of these depend on: those that proved their server or carry their login."""
        rows, connection_ids = self._connections(), {connection.id for connection in connections}
        wanted = {
            facts.sender_by_reader[x]
            for facts in self._traced_facts.values()
            for x in connection_ids & facts.sender_by_reader.keys()
        }
        first_rows: dict[tuple[object, ...], int] = {}  # by server and protocol, the first connection that proved it
        alone = rows.filter(pc.and_(pc.is_valid(rows["protocol"]), pc.not_equal(rows["identified_by"], "peer")))
        for row in alone.sort_by("first_ts_ns").to_pylist():
            first_rows.setdefault(_server(row), row["connection_id"])
        servers = {_server(connection.row) for connection in connections if connection.row["identified_by"] == "peer"}
        wanted |= {first_rows[server] for server in servers & first_rows.keys()}
        is_context = pc.is_in(rows["connection_id"], pa.array(wanted - connection_ids, pa.int64()))
        return list(map(SelectedConnection, rows.filter(is_context).to_pylist()))

    def with_subflows(self, connections: "Sequence[SelectedConnection]") -> "list[SelectedConnection]":
        """These connections, and the subflows of Multipath TCP that carry bytes of them, to the end of all."""
        rows, connection_ids = self._connections(), [connection.id for connection in connections]
        subflows = rows.filter(pc.is_in(rows["subflow_of"], pa.array(connection_ids, pa.int64()))).to_pylist()
        joined_ids = {row["subflow_of"] for row in subflows}
        together = [*(dict(connection.row) for connection in connections if connection.id in joined_ids), *subflows]
        last_ns = max((row["last_ts_ns"] for row in together), default=0)
        alone = [connection for connection in connections if connection.id not in joined_ids]
        return [*alone, *(SelectedConnection(row | {"last_ts_ns": last_ns}) for row in together)]

    def _connections(self) -> pa.Table:
        return unify_dictionaries(pa.concat_tables(self._rows)).combine_chunks()

    def _note(self, output: Output) -> None:
        self._ids.update(output.rows["connection_id"].unique().to_pylist())
        if self._keep is not None:
            self._keep(output)


class _TracedFacts(SharedFacts):
    """Shared facts that record their senders; ``sender_by_reader``: connection_ids."""

    def __init__(self) -> None:
        super().__init__()
        self.sender_by_reader: dict[int, int] = {}

    def lookup_fact(self, key: bytes, evidence: Evidence, ts_ns: int) -> SharedFact | None:
        """The fact that a connection looks up; records its sender."""
        fact = super().lookup_fact(key, evidence, ts_ns)
        if fact is not None:
            self.sender_by_reader[evidence.connection_id] = fact[5]
        return fact


def _server(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["protocol"], row["server_ip"], row["server_port"]


def _as_messages(connections: pa.Table) -> FilterInput:
    """Connections as messages from their clients, with the columns that a filter on endpoints tests."""
    named = {"src_ip": "client_ip", "src_port": "client_port", "dst_ip": "server_ip", "dst_port": "server_port"}
    named |= {name: name for name in ("connection_id", "protocol", CONNECTION_NUMBER)}
    columns = {name: connections[theirs] for name, theirs in named.items()}
    columns["direction"] = constant("c2s", connections.num_rows)
    return FilterInput("", pa.table(columns), pa.table({}))


def find_connection(
    captures: Sequence[Capture], query: Query, outcome: Outcome, meter: Meter
) -> tuple[Capture, SelectedConnection] | None:
    """The single connection with messages that a filter selects; None if a capture cannot be read.

    Raises MqpcapError if none matches, or several do.
    """
    read_again(captures)
    searches = [ConnectionSearch(capture, query) for capture in captures]
    matches = [(search.capture, connection) for search in searches for connection in search.run(outcome, meter)]
    if len(matches) == 1:
        return matches[0]
    if searches and not outcome.unreadable:
        raise MqpcapError(_why_not(searches, [connection for _, connection in matches]))
    return None


def _why_not(sought: Sequence[ConnectionSearch], all_found: Sequence[SelectedConnection]) -> str:
    if all_found:
        names = [f"c{x.number} ({x.end('client')} -> {x.end('server')})" for x in all_found[:MOST_NAMED]]
        more_words = f", and {len(all_found) - MOST_NAMED:,} more" if len(all_found) > MOST_NAMED else ""
        return f"{len(all_found):,} connections match; say which with --connection: {', '.join(names)}{more_words}"
    notes = [search.tally.note for search in sought if search.tally.note is not None]
    count = sum(search.connection_count for search in sought)
    return f"none of {plural(count, 'connection')} matches" + (f": {notes[0]}" if notes else "")
