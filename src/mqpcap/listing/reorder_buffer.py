"""Brings the messages of one capture into order of time, and adds their exchanges.

In: rows as messages complete, and rows of ``exchanges``, together or later. Out: `MessageRow` objects in order of time.
Called by: ``time_merge`` and ``message_search``.

A row is released when the capture is REPLY_WAIT_NS past it, with the exchange data that has arrived.
"""

import time
from collections.abc import Iterator
from itertools import islice, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array, codes_of, single_array, true_mask, unify_dictionaries
from mqpcap.listing.message_row import Exchange, MessageRow
from mqpcap.listing.shown_messages import MAX_ASKING_BYTES, ShownMessages
from mqpcap.query import MessageSelection, exchanges_of
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import KEYS

REPLY_WAIT_NS = 1_000_000_000
"""Time in the capture that a row waits for its exchange and for earlier rows."""
LIVE_WAIT_NS = 100_000_000
"""The same wait in a live capture, by the capture's clock or ours."""
MAX_BUFFERED_ROWS = 1 << 16
"""Buffered rows of a capture; beyond it the earliest are released."""
MAX_BUFFERED_BYTES = 32 << 20
"""The same limit in bytes."""
SLICE_ROWS = 1024
"""Rows converted to Python objects in one step."""
SLICE_BYTES = 1 << 22
"""The same limit in bytes; a step has at least one row."""
_BEGIN = -(1 << 63)
_KNOWN = ["connection_id", "request_direction", "state", "latency_ns", "server_ns", "how", "status", "error_code"]
_KNOWN += [f"{end}_{column}" for end in ("request", "reply") for column in ("packet", "offset", "ts_ns")]


class _Run:
    """Messages of one protocol in order of time, with their exchanges."""

    def __init__(self, output: Output) -> None:
        assert output.fields is not None and output.protocol is not None
        messages, fields = output.rows, output.fields
        ts_ns = messages["ts_ns"].to_numpy()
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = pa.array(np.argsort(ts_ns, kind="stable"))
            messages, fields = messages.take(order), fields.take(order)
        self.protocol, self.messages, self.fields = output.protocol, messages, fields
        self.next_row = 0
        """Earlier rows are released."""
        self.ts_ns: Int64Array = messages["ts_ns"].to_numpy()
        self.row_bytes = (messages.nbytes + fields.nbytes) // max(len(self), 1)
        self.arrived_ns = time.monotonic_ns()
        self.exchanges: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.ts_ns)

    def note(self, exchanges: pa.Table) -> None:
        """Add the exchanges of the messages."""
        matches = exchanges_of(self.messages, exchanges)
        has_match = true_mask(matches["is_request"].is_valid())
        if self.exchanges is not None and has_match.any():
            row = np.arange(len(self)) + np.where(has_match, 0, len(self))
            matches = (
                unify_dictionaries(pa.concat_tables([matches, self.exchanges])).combine_chunks().take(pa.array(row))
            )
        if has_match.any():
            self.exchanges = matches


class ReorderBuffer:
    """The buffered rows of one capture."""

    def __init__(self, number: int, wanted: ShownMessages, file_count: int) -> None:
        self._number, self._wanted, self._file_count = number, wanted, file_count
        self._runs: list[_Run] = []
        self._times_ns: Int64Array = np.empty((2, 0), np.int64)
        """Two rows: the times of the first buffered row and of the last row of each run."""
        self._row_count = 0
        self.size_bytes = 0
        """Bytes of the buffered rows."""
        self._selected = MessageSelection(wanted.query, self._keep, MAX_ASKING_BYTES)
        self._first_ns = 0
        self._begins: dict[str, int] = {}
        """By file, the time of its first message."""

    def __len__(self) -> int:
        return self._row_count

    @property
    def is_full(self) -> bool:
        """Whether a limit is reached, so that the earliest rows are released."""
        return len(self) > MAX_BUFFERED_ROWS or self.size_bytes > MAX_BUFFERED_BYTES

    @property
    def dropped_count(self) -> int:
        """Messages that a filter dropped, as too many waited for their exchange."""
        return self._selected.dropped_count

    def add(self, output: Output, first_ns: int) -> None:
        """Add rows of any table; ``first_ns``: the first time of the capture."""
        self._first_ns = first_ns
        if self._wanted.tally is not None:
            self._wanted.tally.look(output, first_ns)
        if output.fields is not None:
            self._note_files(output.rows)
            output = self._wanted.drop_unused_columns(output)
        self._selected.add(output, first_ns)
        if output.table == "exchanges":
            self._note_exchanges(output.rows.select(_KNOWN))

    def _note_exchanges(self, exchanges: pa.Table) -> None:
        """Add exchanges to the runs whose times they overlap."""
        ends = (exchanges[f"{end}_ts_ns"].drop_null().to_numpy() for end in ("request", "reply"))
        times_ns = np.sort(np.concatenate(list(ends)))
        # All runs are compared at once: there may be as many runs as rows, if windows have a packet or two.
        first_ns, last_ns = self._times_ns
        has_times = np.searchsorted(times_ns, first_ns) < np.searchsorted(times_ns, last_ns, "right")
        for i in np.flatnonzero(has_times).tolist():
            self._runs[i].note(exchanges)

    def _keep(self, output: Output) -> None:
        run = _Run(output)
        self._runs.append(run)
        self._times_ns = np.append(self._times_ns, [run.ts_ns[:1], run.ts_ns[-1:]], axis=1)
        self._row_count += len(run)
        self.size_bytes += len(run) * run.row_bytes
        if self._wanted.tally is not None:
            self._wanted.tally.match_count += output.rows.num_rows

    def _note_files(self, messages: pa.Table) -> None:
        if self._file_count > 1:
            for row in messages.group_by("capture_file").aggregate([("ts_ns", "min")]).to_pylist():
                file, ts_ns = row["capture_file"], row["ts_ns_min"]
                self._begins[file] = min(ts_ns, self._begins.get(file, ts_ns))

    def live_deadline_ns(self) -> int:
        """Rows of a live capture before this time have waited LIVE_WAIT_NS by our own clock."""
        before_ns = time.monotonic_ns() - LIVE_WAIT_NS
        return max((int(run.ts_ns[-1]) + 1 for run in self._runs if run.arrived_ns <= before_ns), default=_BEGIN)

    def release_before_ns(self, now_ns: int, is_live: bool = False) -> int:
        """Rows before this time are released, given the current time in the capture."""
        until_ns = max(now_ns - LIVE_WAIT_NS, self.live_deadline_ns()) if is_live else now_ns - REPLY_WAIT_NS
        count, size = len(self), self.size_bytes
        capacity = (
            MAX_BUFFERED_ROWS
            if size <= MAX_BUFFERED_BYTES
            else min(MAX_BUFFERED_ROWS, count * MAX_BUFFERED_BYTES // size)
        )
        if count > capacity:
            # Releases a sixteenth more, so that the next windows need not look at all rows again.
            released_count = min(count - capacity + capacity // 16, count - 1)
            times_ns = np.concatenate([run.ts_ns[run.next_row :] for run in self._runs])
            until_ns = max(until_ns, int(np.partition(times_ns, released_count)[released_count]))
        return until_ns

    def pop_until(self, until_ns: int) -> list[Iterator[MessageRow]]:
        """The rows before a time, as several sorted sequences."""
        indices = np.flatnonzero(self._times_ns[0] < until_ns).tolist()
        due = [(self._runs[i], int(np.searchsorted(self._runs[i].ts_ns, until_ns))) for i in indices]
        slice_rows = max(SLICE_ROWS // max(len(due), 1), 32)
        fit = (SLICE_BYTES // (max(len(due), 1) * max(run.row_bytes, 1)) for run, _ in due)
        slices = [min(slice_rows, max(rows, 1)) for rows in fit]
        sequences = [self._rows(run, run.next_row, stop, rows) for (run, stop), rows in zip(due, slices, strict=True)]
        for i, (run, stop) in zip(indices, due, strict=True):
            self._row_count -= stop - run.next_row
            self.size_bytes -= (stop - run.next_row) * run.row_bytes
            run.next_row = stop
            if stop < len(run):
                self._times_ns[0, i] = run.ts_ns[stop]
        if any(stop == len(run) for run, stop in due):
            self._times_ns = self._times_ns[:, [run.next_row < len(run) for run in self._runs]]
            self._runs = [run for run in self._runs if run.next_row < len(run)]
        return sequences

    def _rows(self, run: _Run, start: int, stop: int, slice_rows: int) -> Iterator[MessageRow]:
        shown = run.messages.drop_columns(self._wanted.left_out)
        field_names = [name for name in run.fields.column_names if name not in KEYS]
        fields_shown = run.fields.select(field_names or ["op"])  # without a column it would have no rows
        exchanges = self._exchanges(run, start, stop - start)
        for a in range(start, stop, slice_rows):
            n = min(slice_rows, stop - a)
            messages, fields = row_dicts(shown.slice(a, n)), row_dicts(fields_shown.slice(a, n))
            for message, values, exchange in zip(messages, fields, islice(exchanges, n), strict=True):
                yield MessageRow(self._number, run.protocol, message, values, exchange, self._first_ns)

    def _exchanges(self, run: _Run, start: int, n: int) -> Iterator[Exchange | None]:
        """The exchange of each message, or None."""
        if run.exchanges is None:
            return repeat(None, n)
        exchanges = run.exchanges.slice(start, n)
        is_request = exchanges["is_request"]
        packet, offset, ts_ns = (
            pc.if_else(is_request, exchanges[f"reply_{column}"], exchanges[f"request_{column}"])
            for column in ("packet", "offset", "ts_ns")
        )
        times = (exchanges[name] for name in ("state", "latency_ns", "server_ns"))
        columns = is_request, *times, packet, exchanges["status"], exchanges["error_code"]
        listed = [values if isinstance(values := _values(x), list) else repeat(values) for x in (*columns, offset)]
        files: Iterator[str | None] = repeat(None, n)
        if self._begins:
            file_names = run.messages["capture_file"].slice(start, n)
            files = map(self._other_file, file_names.to_pylist(), ts_ns.to_pylist())
        how = exchanges["how"].to_pylist()
        return (None if row[0] is None else Exchange._make(row) for row in zip(*listed, files, how, strict=False))

    def _other_file(self, own_file: str, ts_ns: int | None) -> str | None:
        """The file of a packet, by its time, if it is another file than the message's."""
        if ts_ns is None:
            return None
        file = max((f for f, t in self._begins.items() if t <= ts_ns), key=self._begins.__getitem__, default=None)
        return None if file == own_file else file


def row_dicts(table: pa.Table) -> list[dict[str, object]]:
    """The rows as dictionaries, as ``to_pylist``."""
    names, columns = [], []
    constants: dict[str, object] = dict.fromkeys(table.column_names)
    """Values of columns that are equal in all rows."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = _values(column)
        if isinstance(values, list):
            names.append(name)
            columns.append(values)
        else:
            constants[name] = values
    rows = [constants.copy() for _ in range(table.num_rows)]
    for row, values_of_row in zip(rows, zip(*columns, strict=True), strict=bool(columns)):
        row.update(zip(names, values_of_row, strict=True))
    return rows


def _values(column: pa.ChunkedArray) -> object:
    """The values as a list, faster than ``to_pylist``; a single value if all values are easily seen to be equal."""
    type_ = column.type
    if column.null_count == len(column):
        return None
    if pa.types.is_dictionary(type_):
        array = single_array(column)
        words = [*array.dictionary.to_pylist(), None]
        return words[0] if len(words) == 2 and not array.null_count else [words[x] for x in codes_of(array).tolist()]
    if (pa.types.is_integer(type_) or pa.types.is_boolean(type_)) and not column.null_count:
        values = column.to_numpy()
        return values.tolist() if (values != values[0]).any() else values[0].item()
    if pa.types.is_integer(type_):
        values = pc.fill_null(column, 0).to_numpy().astype(object)
        values[true_mask(column.is_null())] = None
        return values.tolist()
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return column.to_numpy().tolist()
    return column.to_pylist()
