"""The messages of a capture that a filter selects, while they are made.

Fed with what a pipeline emits, gives out messages as they are decided. A message whose selection depends on its
exchange waits until that is known, or its connection is over.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import true, unified, whole
from mqpcap.pipeline import Output
from mqpcap.query.evaluation import Rows
from mqpcap.query.queries import Query
from mqpcap.tables.places import message_places, reply_places, request_places
from mqpcap.tables.schemas import EXCHANGES

MAX_PARTS = 64
"""So many batches wait for exchanges, then they are made one of each protocol."""


class SelectedMessages:
    """The selected messages of one capture; ``emit`` is given them.

    most_bytes: so many bytes of messages wait; of more the oldest are dropped, ``dropped_count`` of them. None: all.
    """

    def __init__(self, query: Query, emit: Callable[[Output], None], most_bytes: int | None = None) -> None:
        self._query, self._emit, self._most_bytes = query, emit, most_bytes
        self._waiting: list[Output] = []
        self.dropped_count = 0

    def take(self, output: Output, first_ns: int) -> None:
        """Take what a pipeline emits of a capture that begins at a time."""
        if output.fields is not None and output.protocol is not None:
            mask = self._query.mask(Rows(output.protocol, output.rows, output.fields), first_ns)
            self._give(output, true(mask))
            if self._query.asks_exchanges:
                self._wait([some(output, true(pc.is_null(mask)))])
        elif output.table == "exchanges":
            self._settle(output.rows, pa.array([], pa.int64()), first_ns)
        elif output.table == "connections":
            self._settle(EXCHANGES.empty_table(), whole(output.rows["connection_id"]), first_ns)

    def _give(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(some(output, rows))

    def _settle(self, exchanges: pa.Table, over: pa.Array, first_ns: int) -> None:
        """Decide on messages whose exchanges are known now, or that have none as their connections are over."""
        left = []
        for output in self._waiting:
            assert output.fields is not None and output.protocol is not None
            beside = exchanges_of(output.rows, exchanges)
            unsettled = ~(true(beside["is_request"].is_valid()) | true(pc.is_in(output.rows["connection_id"], over)))
            if not unsettled.all():
                mask = self._query.mask(Rows(output.protocol, output.rows, output.fields, beside, unsettled), first_ns)
                self._give(output, true(mask))
                output = some(output, true(pc.is_null(mask)) & unsettled)
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
    rows, fields = (unified(pa.concat_tables(tables)).combine_chunks() for tables in both)
    return replace(outputs[0], rows=rows, fields=fields)


def exchanges_of(messages: pa.Table, exchanges: pa.Table) -> pa.Table:
    """The exchange of each message, row for row: columns of ``exchanges`` and ``is_request``, nulls where it has none.

    Both tables are of one capture; where two rows are of one message, one of them is given.
    """
    theirs = np.concatenate([reply_places(exchanges), request_places(exchanges)])
    order = np.argsort(theirs, kind="stable")
    place, n = message_places(messages), exchanges.num_rows
    at = order[np.minimum(np.searchsorted(theirs, place, sorter=order), 2 * n - 1)] if n else np.zeros_like(place)
    hit = theirs[at] == place if n else np.zeros(len(place), np.bool_)
    found = exchanges.combine_chunks().take(pa.array(at % max(n, 1), mask=~hit))
    return found.append_column("is_request", pa.array(at >= n, mask=~hit))
