"""The rows of one capture that wait for their turn, and what becomes of their requests meanwhile.

Messages come as they complete, rows of ``exchanges`` with them or after them. A row waits until its time is behind the
look-ahead; what is known of its exchange by then goes with it.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import Int64Array, codes_of, single_array, true_mask, unify_dictionaries
from mqpcap.listing.extra_columns import BYTES
from mqpcap.listing.filters import MAX_ASKING_BYTES, Filter
from mqpcap.query import MessageSelector, exchanges_of
from mqpcap.tables.json_lines import Json, is_exact, json_object, json_text, json_time
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import KEYS, MESSAGES

LOOKAHEAD_NS = 1_000_000_000
"""Rows wait until the capture is so much later."""
LIVE_NS = 100_000_000
"""Rows of a capture that comes as it happens wait so long, of the capture's time or ours."""
LOOKAHEAD_ROWS = 1 << 16
"""Rows of a capture that wait; with more the earliest do not wait any longer."""
LOOKAHEAD_BYTES = 32 << 20
"""The same in bytes."""
SLICE_ROWS = 1024
"""Rows that are made Python's at a time."""
SLICE_BYTES = 1 << 22
"""The same in bytes; a row is made in any case."""
_BEGIN = -(1 << 63)
_KNOWN = ["connection_id", "request_direction", "state", "latency_ns", "server_ns", "how", "status", "error_code"]
_KNOWN += [f"{end}_{what}" for end in ("request", "reply") for what in ("packet", "offset", "ts_ns")]


class Exchange(NamedTuple):
    """What is known of a message's exchange. packet, offset and file are of the other message, file only where it is
    not the message's own; status and error_code of the reply."""

    is_request: bool
    state: str
    latency_ns: int | None
    server_ns: int | None
    packet: int | None
    status: str | None
    error_code: int | None
    offset: int | None
    file: str | None
    how: str | None = None


def exchange_object(exchange: Exchange) -> dict[str, Json]:
    """What is known of an exchange as an object: state, times, the other packet, and its file if it is another."""
    other = "reply" if exchange.is_request else "request"
    known = {f"{other}_packet": exchange.packet, f"{other}_file": exchange.file}
    times = {"latency_ns": exchange.latency_ns, "server_ns": exchange.server_ns}
    return json_object({"state": exchange.state, **times, **known})


class MessageRow(NamedTuple):
    """One message: its columns of ``messages``, those of its protocol's table, its exchange if known, and its bytes."""

    capture: int
    protocol: str
    message: Mapping[str, object]
    fields: Mapping[str, object]
    exchange: Exchange | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among the rows of all captures."""
        return self.message["ts_ns"], self.capture, self.message["first_packet"]  # type: ignore[return-value]  # of MESSAGES

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.message[BYTES]  # type: ignore[return-value]  # a column of bytes


EXACT = tuple(field.name for field in MESSAGES if is_exact(field.name))
"""Columns of ``messages`` whose numbers are strings in JSON."""


def json_line(row: MessageRow) -> str:
    """The message as one JSON object: its columns, the fields that they do not say, and its exchange."""
    out: dict[str, Json] = {name: value for name, value in row.message.items() if value is not None}  # type: ignore[misc]  # numbers and text
    for name in EXACT:
        out[name] = str(out[name])
    out["ts"] = json_time(row.message["ts_ns"])  # type: ignore[arg-type]  # of MESSAGES
    fields = json_object(row.fields).items()
    out["fields"] = {name: value for name, value in fields if name not in out or str(value) != str(out[name])}
    if row.exchange is not None:
        out["exchange"] = exchange_object(row.exchange)
    return json_text(out) + "\n"


class _Part:
    """Messages of one protocol in order of time, with what is known of their exchanges."""

    def __init__(self, output: Output) -> None:
        assert output.fields is not None and output.protocol is not None
        messages, fields = output.rows, output.fields
        ts_ns = messages["ts_ns"].to_numpy()
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = pa.array(np.argsort(ts_ns, kind="stable"))
            messages, fields = messages.take(order), fields.take(order)
        self.protocol, self.messages, self.fields = output.protocol, messages, fields
        self.at = 0
        """Rows in front of it are given out."""
        self.ts_ns: Int64Array = messages["ts_ns"].to_numpy()
        self.row_bytes = (messages.nbytes + fields.nbytes) // max(len(self), 1)
        self.arrived_ns = time.monotonic_ns()
        self.exchanges: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.ts_ns)

    def note(self, exchanges: pa.Table) -> None:
        """Take in what became of requests."""
        found = exchanges_of(self.messages, exchanges)
        hit = true_mask(found["is_request"].is_valid())
        if self.exchanges is not None and hit.any():
            at = np.arange(len(self)) + np.where(hit, 0, len(self))
            found = unify_dictionaries(pa.concat_tables([found, self.exchanges])).combine_chunks().take(pa.array(at))
        if hit.any():
            self.exchanges = found


class HeldRows:
    """The rows of one capture that wait."""

    def __init__(self, number: int, wanted: Filter, file_count: int) -> None:
        self._number, self._wanted, self._file_count = number, wanted, file_count
        self._parts: list[_Part] = []
        self._times_ns: Int64Array = np.empty((2, 0), np.int64)
        """Of each part, the times of its first row that is left and of its last."""
        self._row_count = 0
        self.size_bytes = 0
        """The bytes of the rows."""
        self._selected = MessageSelector(wanted.query, self._keep, MAX_ASKING_BYTES)
        self._begins: dict[str, int] = {}
        """When the messages of each file begin."""

    def __len__(self) -> int:
        return self._row_count

    @property
    def are_many(self) -> bool:
        """Whether the earliest rows wait no longer."""
        return len(self) > LOOKAHEAD_ROWS or self.size_bytes > LOOKAHEAD_BYTES

    @property
    def dropped_count(self) -> int:
        """Requests that waited for their outcome and were too many."""
        return self._selected.dropped_count

    def take(self, output: Output, first_ns: int) -> None:
        """Take rows of any table in, of a capture that begins at a time."""
        if self._wanted.tally is not None:
            self._wanted.tally.look(output, first_ns)
        if output.fields is not None:
            self._note_files(output.rows)
            output = self._wanted.slim(output)
        self._selected.add(output, first_ns)
        if output.table == "exchanges":
            self._note_exchanges(output.rows.select(_KNOWN))

    def _note_exchanges(self, exchanges: pa.Table) -> None:
        """Hand exchanges to the parts with messages of their times; others have none of their messages."""
        ends = (exchanges[f"{end}_ts_ns"].drop_null().to_numpy() for end in ("request", "reply"))
        times_ns = np.sort(np.concatenate(list(ends)))
        # All parts are asked together: there may be as many as rows, for each window of a packet or two.
        first_ns, last_ns = self._times_ns
        has_times = np.searchsorted(times_ns, first_ns) < np.searchsorted(times_ns, last_ns, "right")
        for i in np.flatnonzero(has_times).tolist():
            self._parts[i].note(exchanges)

    def _keep(self, output: Output) -> None:
        part = _Part(output)
        self._parts.append(part)
        self._times_ns = np.append(self._times_ns, [part.ts_ns[:1], part.ts_ns[-1:]], axis=1)
        self._row_count += len(part)
        self.size_bytes += len(part) * part.row_bytes
        if self._wanted.tally is not None:
            self._wanted.tally.match_count += output.rows.num_rows

    def _note_files(self, messages: pa.Table) -> None:
        if self._file_count > 1:
            for row in messages.group_by("capture_file").aggregate([("ts_ns", "min")]).to_pylist():
                file, ts_ns = row["capture_file"], row["ts_ns_min"]
                self._begins[file] = min(ts_ns, self._begins.get(file, ts_ns))

    def overdue_ns(self) -> int:
        """The time before which no row of a live capture waits any longer, by our own clock."""
        before_ns = time.monotonic_ns() - LIVE_NS
        return max((int(part.ts_ns[-1]) + 1 for part in self._parts if part.arrived_ns <= before_ns), default=_BEGIN)

    def horizon_ns(self, now_ns: int, is_live: bool = False) -> int:
        """The time before which no row waits any longer, given the time in the capture."""
        until_ns = max(now_ns - LIVE_NS, self.overdue_ns()) if is_live else now_ns - LOOKAHEAD_NS
        count, size = len(self), self.size_bytes
        room = LOOKAHEAD_ROWS if size <= LOOKAHEAD_BYTES else min(LOOKAHEAD_ROWS, count * LOOKAHEAD_BYTES // size)
        if count > room:
            # A sixteenth more goes, so that the next windows need not look at all rows again.
            released_count = min(count - room + room // 16, count - 1)
            times_ns = np.concatenate([part.ts_ns[part.at :] for part in self._parts])
            until_ns = max(until_ns, int(np.partition(times_ns, released_count)[released_count]))
        return until_ns

    def released(self, until_ns: int) -> list[Iterator[MessageRow]]:
        """The rows before a time, in several sequences that are each in order."""
        indices = np.flatnonzero(self._times_ns[0] < until_ns).tolist()
        due = [(self._parts[i], int(np.searchsorted(self._parts[i].ts_ns, until_ns))) for i in indices]
        at_once = max(SLICE_ROWS // max(len(due), 1), 32)
        fit = (SLICE_BYTES // (max(len(due), 1) * max(part.row_bytes, 1)) for part, _ in due)
        slices = [min(at_once, max(rows, 1)) for rows in fit]
        out = [self._rows(part, part.at, stop, rows) for (part, stop), rows in zip(due, slices, strict=True)]
        for i, (part, stop) in zip(indices, due, strict=True):
            self._row_count -= stop - part.at
            self.size_bytes -= (stop - part.at) * part.row_bytes
            part.at = stop
            if stop < len(part):
                self._times_ns[0, i] = part.ts_ns[stop]
        if any(stop == len(part) for part, stop in due):
            self._times_ns = self._times_ns[:, [part.at < len(part) for part in self._parts]]
            self._parts = [part for part in self._parts if part.at < len(part)]
        return out

    def _rows(self, part: _Part, start: int, stop: int, at_once: int) -> Iterator[MessageRow]:
        shown = part.messages.drop_columns(self._wanted.left_out)
        own = [name for name in part.fields.column_names if name not in KEYS]
        its = part.fields.select(own or ["op"])  # without a column it would have no rows
        exchanges = self._exchanges(part, start, stop - start)
        for a in range(start, stop, at_once):
            n = min(at_once, stop - a)
            messages, fields = _dicts(shown.slice(a, n)), _dicts(its.slice(a, n))
            for message, values, exchange in zip(messages, fields, islice(exchanges, n), strict=True):
                yield MessageRow(self._number, part.protocol, message, values, exchange)

    def _exchanges(self, part: _Part, start: int, n: int) -> Iterator[Exchange | None]:
        """What is known of the exchange of each message."""
        if part.exchanges is None:
            return repeat(None, n)
        known = part.exchanges.slice(start, n)
        asks = known["is_request"]
        packet, offset, ts_ns = (
            pc.if_else(asks, known[f"reply_{what}"], known[f"request_{what}"]) for what in ("packet", "offset", "ts_ns")
        )
        times = (known[name] for name in ("state", "latency_ns", "server_ns"))
        columns = asks, *times, packet, known["status"], known["error_code"]
        listed = [values if isinstance(values := _values(x), list) else repeat(values) for x in (*columns, offset)]
        files: Iterator[str | None] = repeat(None, n)
        if self._begins:
            own = part.messages["capture_file"].slice(start, n)
            files = map(self._other_file, own.to_pylist(), ts_ns.to_pylist())
        how = known["how"].to_pylist()
        return (None if row[0] is None else Exchange._make(row) for row in zip(*listed, files, how, strict=False))

    def _other_file(self, own: str, ts_ns: int | None) -> str | None:
        """The file of a packet, by its time, if it is not the message's."""
        if ts_ns is None:
            return None
        file = max((f for f, t in self._begins.items() if t <= ts_ns), key=self._begins.__getitem__, default=None)
        return None if file == own else file


def _dicts(table: pa.Table) -> list[dict[str, object]]:
    """What ``to_pylist`` gives."""
    names, columns = [], []
    same: dict[str, object] = dict.fromkeys(table.column_names)
    """What all rows have."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = _values(column)
        if isinstance(values, list):
            names.append(name)
            columns.append(values)
        else:
            same[name] = values
    out = [same.copy() for _ in range(table.num_rows)]
    for one, row in zip(out, zip(*columns, strict=True), strict=bool(columns)):
        one.update(zip(names, row, strict=True))
    return out


def _values(column: pa.ChunkedArray) -> object:
    """What ``to_pylist`` gives, without a scalar object for each value where that can be spared; one value, which is no
    list, that all of them are where that is seen at once."""
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
