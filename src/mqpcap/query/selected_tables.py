"""The tables of a capture, of the selected messages only, while they are made.

Fed with what a pipeline emits, gives out rows as they are decided. With a message come its fields, the exchange that it
is the request or the reply of, deliveries both messages of which are selected, and the row of its connection with the
problems there.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import I64
from mqpcap.pipeline import Output
from mqpcap.query.queries import Query
from mqpcap.query.selected_messages import SelectedMessages, some
from mqpcap.tables.places import message_places, places, reply_places, request_places


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
        self._runs: list[I64] = []

    def add(self, numbers: I64) -> None:
        run = np.sort(numbers)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
        if self._most is not None and sum(map(len, self._runs)) > self._most and len(self._runs) > 1:
            del self._runs[0]

    def have(self, numbers: I64) -> NDArray[np.bool_]:
        found = np.zeros(len(numbers), np.bool_)
        for run in self._runs:
            at = run[np.minimum(np.searchsorted(run, numbers), len(run) - 1)]
            found |= at == numbers
        return found
