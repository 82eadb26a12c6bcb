"""The connections that a filter selects, found by reading a capture once."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import constant
from mqpcap.capture import Capture
from mqpcap.cli.console import Meter, shown
from mqpcap.cli.filters import Tally
from mqpcap.cli.lines import endpoint
from mqpcap.cli.reading import Outcome, read
from mqpcap.pipeline import CapturePipeline, Output
from mqpcap.query import And, Comparison, Query, Rows, Selection, of_tree
from mqpcap.query.columns import NUMBER

MOST_NAMED = 8
"""So many connections are named where one was asked for."""
_OF_CONNECTIONS = frozenset(
    {"connection_id", "direction", "src_ip", "src_port", "dst_ip", "dst_port", "protocol", NUMBER}
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A connection with selected messages: its row of ``connections``, its number in the capture, their count."""

    row: Mapping[str, object]
    number: int
    message_count: int

    @property
    def id(self) -> int:
        """Its connection_id."""
        return int(str(self.row["connection_id"]))

    @property
    def ends(self) -> str:
        """Client and server."""
        client, server = (endpoint(self.row[f"{end}_ip"], self.row[f"{end}_port"]) for end in ("client", "server"))
        return f"{client} -> {server}"

    def query(self) -> Query:
        """All of its messages."""
        client = endpoint(self.row["client_ip"], self.row["client_port"])
        server = endpoint(self.row["server_ip"], self.row["server_port"])
        tests = (("connection", str(self.id)), ("client", client), ("server", server))
        return of_tree(And(tuple(Comparison(name, "==", (value,)) for name, value in tests)))


class _Numbered(CapturePipeline):
    """A pipeline that knows the numbers of the connections whose rows it gives."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # of the class above
        self.numbers: deque[int] = deque()

    def close(self, flows: NDArray[np.int64], files: Sequence[str], of_others: bool) -> None:
        """Connections are over."""
        self.numbers.extend((flows + 1).tolist())
        super().close(flows, files, of_others)


def chosen(
    captures: Sequence[Capture], query: Query, outcome: Outcome, meter: Meter
) -> tuple[list[tuple[Capture, Chosen]], Tally]:
    """The connections with selected messages; where the filter asks for ends only, also those that are not ours."""
    found: list[tuple[Capture, Chosen]] = []
    tally = Tally(query)
    for capture in captures:
        found += [(capture, one) for one in _of_capture(capture, query, outcome, meter, tally)]
    tally.match_count = len(found)
    return found, tally


def _of_capture(capture: Capture, query: Query, outcome: Outcome, meter: Meter, tally: Tally) -> Iterator[Chosen]:
    by_ends = query.needs.messages <= _OF_CONNECTIONS and not query.needs.fields and not query.needs.exchanges
    counts: Counter[int] = Counter()
    rows: list[tuple[int, Mapping[str, object]]] = []

    def count(output: Output) -> None:
        if output.fields is not None:
            for pair in output.rows["connection_id"].value_counts().to_pylist():
                counts[pair["values"]] += pair["counts"]

    def take(output: Output) -> None:
        first_ns = pipeline.first_ns or 0
        if output.protocol is not None and output.fields is not None:
            tally.look(Rows(output.protocol, output.rows, output.fields), first_ns)
        if output.table == "connections":
            tally.look_at_connections(output.rows)
            numbers = [pipeline.numbers.popleft() for _ in range(output.rows.num_rows)]
            wanted = query.selects(_as_messages(output.rows, numbers), first_ns) if by_ends else None
            some = output.rows if wanted is None else output.rows.filter(pa.array(wanted))
            kept = numbers if wanted is None else np.array(numbers)[wanted].tolist()
            rows.extend(zip(kept, some.to_pylist(), strict=True))
        selection.take(output, first_ns)

    selection = Selection(query, count)
    tables = frozenset({"exchanges"}) if query.needs.exchanges else frozenset[str]()
    options = replace(outcome.choices.dissection(only=tables), connections=query.connections)
    pipeline = _Numbered(capture, options, take)
    read(pipeline, outcome, meter)
    for number, row in sorted(rows, key=lambda pair: pair[0]):
        if by_ends or counts[row["connection_id"]]:  # type: ignore[index]  # of CONNECTIONS
            yield Chosen(row, number, counts[row["connection_id"]])  # type: ignore[index]


def _as_messages(connections: pa.Table, numbers: Sequence[int]) -> Rows:
    """Connections as messages from their clients, as far as a filter on ends looks at those."""
    named = {"src_ip": "client_ip", "src_port": "client_port", "dst_ip": "server_ip", "dst_port": "server_port"}
    columns = {name: connections[mine] for name, mine in named.items()}
    columns |= {name: connections[name] for name in ("connection_id", "protocol")}
    n = connections.num_rows
    columns |= {"direction": constant("c2s", n), NUMBER: pa.array(numbers, pa.int64())}
    return Rows("", pa.table(columns), pa.table({}))


def listed(found: Sequence[tuple[Capture, Chosen]]) -> str:
    """Connections for people who asked for one, on one line."""
    names = [f"{one.id} ({one.ends}, {one.row['protocol'] or 'not ours'})" for _, one in found[:MOST_NAMED]]
    more = f", and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
    return shown(", ".join(names)) + more
