"""Selects rows of a capture with a filter, while the capture is read.

In: the outputs of a pipeline. Out: the selected rows, passed to ``emit`` as soon as they are decided.
Called by: ``recording``, the commands.

A message whose selection depends on its exchange is buffered until its exchange is known or its connection has ended.
`MessageSelection` selects messages and their fields. `Selection` also selects rows of the other tables. These are
exchanges with a selected request or reply, deliveries with both messages selected, and the rows of ``connections`` and
``problems`` for connections with a selected message.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, append_columns, single_array, true_mask, unify_dictionaries
from mqpcap.query.evaluation import FilterInput
from mqpcap.query.filter import Query
from mqpcap.tables.joining import exchanges_of
from mqpcap.tables.message_keys import message_keys, reply_keys, request_keys, stream_keys
from mqpcap.tables.output import SELECTED, Output
from mqpcap.tables.schemas import EXCHANGES

MAX_BUFFERED_BATCHES = 64
"""Batches that wait for exchanges; beyond this number they are concatenated by protocol."""


class MessageSelection:
    """Passes the selected messages of one capture to ``emit``.

    max_bytes: limit on messages that wait for their exchange; beyond it the oldest are dropped (``dropped_count``).
    """

    def __init__(self, query: Query, emit: Callable[[Output], None], max_bytes: int | None = None) -> None:
        self._query, self._emit, self._max_bytes = query, emit, max_bytes
        self._buffered: list[Output] = []
        self.dropped_count = 0

    def add(self, output: Output, first_ns: int) -> None:
        """Adds output of a pipeline; ``first_ns`` is the time of the capture's first packet."""
        if output.fields is not None and output.protocol is not None:
            mask = self._query.mask(FilterInput(output.protocol, output.rows, output.fields), first_ns)
            self._emit_rows(output, true_mask(mask))
            if self._query.needs_exchanges:
                self._buffer([select_rows(output, true_mask(pc.is_null(mask)))])
        elif output.table == "exchanges":
            self._resolve(output.rows, pa.array([], pa.int64()), first_ns)
        elif output.table == "connections":
            self._resolve(EXCHANGES.empty_table(), single_array(output.rows["connection_id"]), first_ns)

    def _emit_rows(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(select_rows(output, rows))

    def _resolve(self, exchanges: pa.Table, ended_ids: pa.Array, first_ns: int) -> None:
        """Decides the messages whose exchange is now known, or whose connection has ended without one."""
        remaining = []
        for output in self._buffered:
            assert output.fields is not None and output.protocol is not None
            paired = exchanges_of(output.rows, exchanges)
            is_ended = true_mask(pc.is_in(output.rows["connection_id"], ended_ids))
            unresolved = ~(true_mask(paired["is_request"].is_valid()) | is_ended)
            if not unresolved.all():
                rows = FilterInput(output.protocol, output.rows, output.fields, paired, unresolved)
                mask = self._query.mask(rows, first_ns)
                self._emit_rows(output, true_mask(mask))
                output = select_rows(output, true_mask(pc.is_null(mask)) & unresolved)
            remaining.append(output)
        self._buffered = []
        self._buffer(remaining)

    def _buffer(self, outputs: Sequence[Output]) -> None:
        self._buffered += [output for output in outputs if output.rows.num_rows]
        if len(self._buffered) > MAX_BUFFERED_BATCHES:
            by_protocol: dict[str | None, list[Output]] = {}
            for output in self._buffered:
                by_protocol.setdefault(output.protocol, []).append(output)
            self._buffered = [_concatenated(parts) for parts in by_protocol.values()]
        if self._max_bytes is not None:
            while len(self._buffered) > 1 and sum(map(_size_bytes, self._buffered)) > self._max_bytes:
                self.dropped_count += self._buffered.pop(0).rows.num_rows


def masked_rows(rows: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    """The rows that are True in a mask."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def select_rows(output: Output, mask: NDArray[np.bool_]) -> Output:
    """The output with the rows that are True in a mask."""
    fields = None if output.fields is None else masked_rows(output.fields, mask)
    return replace(output, rows=masked_rows(output.rows, mask), fields=fields)


def _size_bytes(output: Output) -> int:
    return int(output.rows.nbytes) + int(output.fields.nbytes if output.fields is not None else 0)


def _concatenated(outputs: Sequence[Output]) -> Output:
    """Several batches of a protocol as a single batch."""
    table_lists = [output.rows for output in outputs], [output.fields for output in outputs]
    rows, fields = (unify_dictionaries(pa.concat_tables(tables)).combine_chunks() for tables in table_lists)
    return replace(outputs[0], rows=rows, fields=fields)


class Selection:
    """Passes the selected rows of one capture, of all tables, to ``emit``. It keeps eight bytes per selected message.

    - max_keys: limit on remembered messages, as in `_KeySet`; None: no limit
    - max_bytes: as in `MessageSelection`
    - marks_ends: rows of ``exchanges`` get SELECTED of both of their messages, for `has_end`
    """

    def __init__(
        self, query: Query, emit: Callable[[Output], None], max_keys: int | None = None, max_bytes: int | None = None,
        marks_ends: bool = False,
    ) -> None:  # fmt: skip
        self._selected, self._emit = MessageSelection(query, self._emit_rows, max_bytes), emit
        self._marks_ends = marks_ends
        self._problems: list[Output] = []
        self._keys = _KeySet(max_keys)
        self._connections: set[int] = set()
        self._counts: Counter[str] = Counter()

    def add(self, output: Output, first_ns: int) -> None:
        """Adds output of a pipeline; ``first_ns`` is the time of the capture's first packet."""
        rows = output.rows
        self._selected.add(output, first_ns)
        if output.table == "exchanges":
            has_request, has_reply = (self._keys.contains(keys(rows)) for keys in (request_keys, reply_keys))
            if self._marks_ends:
                marks = {f"request.{SELECTED}": pa.array(has_request), f"reply.{SELECTED}": pa.array(has_reply)}
                output = replace(output, rows=append_columns(rows, marks))
            self._emit_selected(output, has_request | has_reply)
        elif output.table == "deliveries":
            self._emit_selected(output, self._has_both_messages(rows))
        elif output.table == "connections":
            self._emit_selected(output, self._of_selected_connections(rows))
        elif output.table == "problems":
            self._problems.append(output)
        elif output.fields is None:
            self._emit(self._with_message_counts(output))

    def finish(self) -> None:
        """Emits the selected rows of ``problems``: all connections with selected messages are known at the end."""
        for output in self._problems:
            self._emit_selected(output, self._of_selected_connections(output.rows))
        self._problems = []

    def _emit_selected(self, output: Output, rows: NDArray[np.bool_]) -> None:
        if rows.any():
            self._emit(select_rows(output, rows))

    def _emit_rows(self, output: Output) -> None:
        rows = output.rows
        self._keys.add(message_keys(rows))
        self._connections.update(rows["connection_id"].unique().to_pylist())
        for pair in rows["capture_file"].value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        self._emit(output)

    def _has_both_messages(self, rows: pa.Table) -> NDArray[np.bool_]:
        is_selected = np.ones(rows.num_rows, np.bool_)
        for end, by_server in (("publish", False), ("deliver", True)):
            from_server = np.full(rows.num_rows, by_server)
            is_selected &= self._keys.contains(
                stream_keys(rows[f"{end}_connection_id"], rows[f"{end}_offset"], from_server)
            )
        return is_selected

    def _of_selected_connections(self, rows: pa.Table) -> NDArray[np.bool_]:
        return np.array([x in self._connections for x in rows["connection_id"].to_pylist()], np.bool_)

    def _with_message_counts(self, output: Output) -> Output:
        """Rows of ``captures`` with the number of selected messages."""
        counts = pa.array([self._counts[path] for path in output.rows["path"].to_pylist()], pa.int64())
        column_index = output.rows.column_names.index("messages")
        return replace(output, rows=output.rows.set_column(column_index, "messages", counts))


class _KeySet:
    """A set of message keys as sorted runs, the oldest first, each at least twice as long as the next.

    Beyond ``max_keys`` the oldest run is dropped; the newest run always stays.
    """

    def __init__(self, max_keys: int | None) -> None:
        self._max_keys = max_keys
        self._runs: list[Int64Array] = []

    def add(self, keys: Int64Array) -> None:
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
        if self._max_keys is not None and sum(map(len, self._runs)) > self._max_keys and len(self._runs) > 1:
            del self._runs[0]

    def contains(self, keys: Int64Array) -> NDArray[np.bool_]:
        is_contained = np.zeros(len(keys), np.bool_)
        for run in self._runs:
            candidates = run[np.minimum(np.searchsorted(run, keys), len(run) - 1)]
            is_contained |= candidates == keys
        return is_contained
