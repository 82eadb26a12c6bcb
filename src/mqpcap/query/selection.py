"""The rows of a capture that a filter selects, while they are made.

Fed with what a pipeline emits, gives out rows as they are decided. A message whose selection depends on its exchange
waits until that is known, or its connection is over. `Selection` gives rows of the other tables, too: with a message
come its fields, the exchange that it is the request or the reply of, deliveries both messages of which are selected,
and the row of its connection with the problems there.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, single_array, true_mask, unify_dictionaries
from mqpcap.pipeline import Output
from mqpcap.query.evaluation import Rows
from mqpcap.query.filter import Query
from mqpcap.tables.places import message_places, places, reply_places, request_places
from mqpcap.tables.schemas import EXCHANGES

MAX_PARTS = 64
"""So many batches wait for exchanges, then they are made one of each protocol."""


class SelectedMessages:
    """The selected messages of one capture; ``emit`` is given them.

    most_bytes: limit on messages that wait for their exchange; beyond it the oldest are dropped (``dropped_count``).
    """

    def __init__(self, query: Query, emit: Callable[[Output], None], most_bytes: int | None = None) -> None:
        self._query, self._emit, self._most_bytes = query, emit, most_bytes
        self._waiting: list[Output] = []
        self.dropped_count = 0

    def take(self, output: Output, first_ns: int) -> None:
        """Take what a pipeline emits of a capture that begins at a time."""
        if output.fields is not None and output.protocol is not None:
            mask = self._query.mask(Rows(output.protocol, output.rows, output.fields), first_ns)
            self._give(output, true_mask(mask))
            if self._query.asks_exchanges:
                self._wait([some(output, true_mask(pc.is_null(mask)))])
        elif output.table == "exchanges":
            self._settle(output.rows, pa.array([], pa.int64()), first_ns)
        elif output.table == "connections":
            self._settle(EXCHANGES.empty_table(), single_array(output.rows["connection_id"]), first_ns)

    def _give(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(some(output, rows))

    def _settle(self, exchanges: pa.Table, over: pa.Array, first_ns: int) -> None:
        """Decide on messages whose exchanges are known now, or that have none as their connections are over."""
        left = []
        for output in self._waiting:
            assert output.fields is not None and output.protocol is not None
            beside = exchanges_of(output.rows, exchanges)
            unsettled = ~(
                true_mask(beside["is_request"].is_valid()) | true_mask(pc.is_in(output.rows["connection_id"], over))
            )
            if not unsettled.all():
                mask = self._query.mask(Rows(output.protocol, output.rows, output.fields, beside, unsettled), first_ns)
                self._give(output, true_mask(mask))
                output = some(output, true_mask(pc.is_null(mask)) & unsettled)
            left.append(output)
        self._waiting = []
        self._wait(left)

    def _wait(self, outputs: Sequence[Output]) -> None:
        self._waiting += [output for output in outputs if output.rows.num_rows]
        if len(self._waiting) > MAX_PARTS:
            by_protocol: dict[str | None, list[Output]] = {}
            for output in self._waiting:
                by_protocol.setdefault(output.protocol, []).append(output)
            self._waiting = [_joined(parts) for parts in by_protocol.values()]
        if self._most_bytes is not None:
            while len(self._waiting) > 1 and sum(map(_size_bytes, self._waiting)) > self._most_bytes:
                self.dropped_count += self._waiting.pop(0).rows.num_rows


def some(output: Output, rows: NDArray[np.bool_]) -> Output:
    """Some of the rows."""
    if rows.all():
        return output
    mask = pa.array(rows)
    fields = None if output.fields is None else output.fields.filter(mask)
    return replace(output, rows=output.rows.filter(mask), fields=fields)


def _size_bytes(output: Output) -> int:
    return int(output.rows.nbytes) + int(output.fields.nbytes if output.fields is not None else 0)


def _joined(outputs: Sequence[Output]) -> Output:
    """Messages of a protocol in one batch."""
    both = [output.rows for output in outputs], [output.fields for output in outputs]
    rows, fields = (unify_dictionaries(pa.concat_tables(tables)).combine_chunks() for tables in both)
    return replace(outputs[0], rows=rows, fields=fields)


def exchanges_of(messages: pa.Table, exchanges: pa.Table) -> pa.Table:
    """The exchange of each message, row for row: columns of ``exchanges`` and ``is_request``, nulls where it has none.

    Both tables are of one capture; where two rows are of one message, one of them is given.
    """
    theirs, n = np.concatenate([reply_places(exchanges), request_places(exchanges)]), exchanges.num_rows
    at = pc.index_in(pa.array(message_places(messages)), pa.array(theirs))
    is_request = pc.greater_equal(at, n)
    found = exchanges.combine_chunks().take(pc.if_else(is_request, pc.subtract(at, n), at))
    return found.append_column("is_request", is_request)


class Selection:
    """The selected rows of one capture; ``emit`` is given them. Of each selected message it keeps eight bytes.

    most: so many selected messages are remembered, or up to twice as many; None: all. most_bytes: as in
    `SelectedMessages`.
    """

    def __init__(
        self, query: Query, emit: Callable[[Output], None], most: int | None = None, most_bytes: int | None = None
    ) -> None:
        self._selected, self._emit = SelectedMessages(query, self._give, most_bytes), emit
        self._problems: list[Output] = []
        self._places = _Places(most)
        self._connections: set[int] = set()
        self._counts: Counter[str] = Counter()

    def take(self, output: Output, first_ns: int) -> None:
        """Take what a pipeline emits of a capture that begins at a time."""
        rows = output.rows
        self._selected.take(output, first_ns)
        if output.table == "exchanges":
            self._pass(output, self._places.have(request_places(rows)) | self._places.have(reply_places(rows)))
        elif output.table == "deliveries":
            self._pass(output, self._delivered(rows))
        elif output.table == "connections":
            self._pass(output, self._of_connections(rows))
        elif output.table == "problems":
            self._problems.append(output)
        elif output.fields is None:
            self._emit(self._counted(output))

    def finish(self) -> None:
        """Give out what stands at the end."""
        for output in self._problems:
            self._pass(output, self._of_connections(output.rows))
        self._problems = []

    def _pass(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(some(output, rows))

    def _give(self, output: Output) -> None:
        rows = output.rows
        self._places.add(message_places(rows))
        self._connections.update(rows["connection_id"].unique().to_pylist())
        for pair in rows["capture_file"].value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        self._emit(output)

    def _delivered(self, rows: pa.Table) -> NDArray[np.bool_]:
        both = np.ones(rows.num_rows, np.bool_)
        for end, by_server in (("publish", False), ("deliver", True)):
            side = np.full(rows.num_rows, by_server)
            both &= self._places.have(places(rows[f"{end}_connection_id"], rows[f"{end}_offset"], side))
        return both

    def _of_connections(self, rows: pa.Table) -> NDArray[np.bool_]:
        return np.array([x in self._connections for x in rows["connection_id"].to_pylist()], np.bool_)

    def _counted(self, output: Output) -> Output:
        """Rows of ``captures`` with the number of selected messages."""
        counts = pa.array([self._counts[path] for path in output.rows["path"].to_pylist()], pa.int64())
        place = output.rows.column_names.index("messages")
        return replace(output, rows=output.rows.set_column(place, "messages", counts))


class _Places:
    """A set of numbers as sorted arrays, each at least twice as long as the next."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._runs: list[Int64Array] = []

    def add(self, numbers: Int64Array) -> None:
        run = np.sort(numbers)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
        if self._most is not None and sum(map(len, self._runs)) > self._most and len(self._runs) > 1:
            del self._runs[0]

    def have(self, numbers: Int64Array) -> NDArray[np.bool_]:
        found = np.zeros(len(numbers), np.bool_)
        for run in self._runs:
            at = run[np.minimum(np.searchsorted(run, numbers), len(run) - 1)]
            found |= at == numbers
        return found
