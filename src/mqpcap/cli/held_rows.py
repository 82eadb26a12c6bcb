"""The rows of one capture that wait for their turn, and what becomes of their requests meanwhile.

Chunks of messages come as they complete, rows of ``exchanges`` with them or after them. A row waits until its time is
behind the look-ahead; what is known of its exchange by then goes with it. Where only requests with a certain outcome
are asked for, a request waits until its own is known.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import dictionary, unified, whole
from mqpcap.message_bytes import BYTES
from mqpcap.tables.json_lines import Json, json_object
from mqpcap.tables.messages import Chunk
from mqpcap.tables.schemas import KEYS

if TYPE_CHECKING:
    from mqpcap.cli.filters import Filter
    from mqpcap.pipeline import Output

LOOKAHEAD_NS = 1_000_000_000
"""Rows wait until the capture is so much later."""
LIVE_NS = 100_000_000
"""Rows of a capture that comes as it happens wait so long, of the capture's time or ours."""
LOOKAHEAD_ROWS = 1 << 16
"""Rows of a capture that wait; with more the earliest do not wait any longer."""
LOOKAHEAD_BYTES = 64 << 20
"""The same in bytes."""
MAX_ASKING_BYTES = 256 << 20
"""Requests of a capture that wait for their outcome because only those with a certain one are asked for."""
MAX_ASKING_PARTS = 64
"""So many chunks of them, then they are made one."""
SLICE_ROWS = 1024
"""Rows that are made Python's at a time."""
I64 = NDArray[np.int64]
_NONE = -(1 << 63)
"""No number."""


class Exchange(NamedTuple):
    """What is known of a message's exchange. packet and file are of the other message, file only where it is not the
    message's own; status and error_code of the reply."""

    is_request: bool
    state: str
    latency_ns: int | None
    packet: int | None
    file: str | None
    status: str | None
    error_code: int | None
    offset: int | None = None
    """Where the other message begins."""


def exchange_object(exchange: Exchange) -> dict[str, Json]:
    """What is known of an exchange as an object: state, latency, the other packet, and its file if it is another."""
    other = "reply" if exchange.is_request else "request"
    return json_object(
        {
            "state": exchange.state, "latency_ns": exchange.latency_ns, f"{other}_packet": exchange.packet,
            f"{other}_file": exchange.file,
        }
    )  # fmt: skip


class Row(NamedTuple):
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


class _Exchanges:
    """Rows of ``exchanges`` as arrays."""

    def __init__(self, rows: pa.Table, words: dict[str, int]) -> None:
        ids = whole(rows["connection_id"]).to_numpy()
        numbers = {
            name: pc.fill_null(whole(rows[name]), _NONE).to_numpy()
            for name in (
                "request_offset", "reply_offset", "request_packet", "reply_packet", "request_ts_ns", "reply_ts_ns",
                "latency_ns", "error_code",
            )
        }  # fmt: skip
        from_server = pc.equal(rows["request_direction"].cast(pa.string()), "s2c").to_numpy()
        both = {"state": _coded(rows["state"], words), "status": _coded(rows["status"], words)}
        both |= {name: numbers[name] for name in ("latency_ns", "error_code")}
        self.sides = []
        for one, other, server in (("request", "reply", from_server), ("reply", "request", ~from_server)):
            there = np.flatnonzero(numbers[f"{one}_offset"] != _NONE)
            columns = both | {name: numbers[f"{other}_{name}"] for name in ("packet", "offset")}
            columns["packet_ts_ns"] = numbers[f"{other}_ts_ns"]
            keys = _keys(ids, numbers[f"{one}_offset"], server)[there]
            self.sides.append((keys, one == "request", {name: values[there] for name, values in columns.items()}))


def _coded(column: pa.ChunkedArray, words: dict[str, int]) -> I64:
    """Text as numbers, the same for the same text in all batches."""
    array = dictionary(column)
    codes = [*(words.setdefault(word, len(words)) for word in array.dictionary.to_pylist()), _NONE]
    rows: NDArray[np.int64] = pc.fill_null(array.indices, len(codes) - 1).to_numpy(zero_copy_only=False)
    return np.array(codes, np.int64)[rows]


def _keys(connection_id: I64, offset: I64, from_server: NDArray[np.bool_]) -> I64:
    """A number per place in a direction of a connection."""
    with np.errstate(over="ignore"):
        return connection_id ^ ((2 * offset + from_server) * np.int64(0x1E3779B97F4A7C15))


class _Part:
    """Rows of one protocol in order of time, with what is known of their exchanges."""

    COLUMNS = ("is_request", "state", "latency_ns", "packet", "packet_ts_ns", "status", "error_code", "offset")

    def __init__(self, chunk: Chunk) -> None:
        ts_ns = chunk.messages["ts_ns"].to_numpy()
        if (ts_ns[1:] < ts_ns[:-1]).any():
            order = pa.array(np.argsort(ts_ns, kind="stable"))
            chunk = Chunk(chunk.protocol, chunk.messages.take(order), chunk.fields.take(order))
        self.chunk = chunk
        self.at = 0
        """Rows in front of it are given out."""
        self.ts_ns: I64 = chunk.messages["ts_ns"].to_numpy()
        ids, offset = (chunk.messages[name].to_numpy() for name in ("connection_id", "stream_offset"))
        from_server = pc.equal(chunk.messages["direction"].cast(pa.string()), "s2c").to_numpy()
        keys = _keys(ids, offset, from_server)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self.known = {name: np.full(len(keys), _NONE, np.int64) for name in self.COLUMNS}
        self.row_bytes = (chunk.messages.nbytes + chunk.fields.nbytes) // max(len(keys), 1)
        self.arrived_ns = time.monotonic_ns()

    def __len__(self) -> int:
        return len(self.ts_ns)

    def note(self, exchanges: _Exchanges) -> None:
        """Take in what became of requests."""
        for keys, is_request, columns in exchanges.sides:
            at = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
            hit = np.flatnonzero(self._keys[at] == keys)
            rows = self._order[at[hit]]
            for name, values in columns.items():
                self.known[name][rows] = values[hit]
            self.known["is_request"][rows] = is_request

    def taken(self, rows: NDArray[np.intp]) -> "_Part":
        """Some of the rows."""
        at = pa.array(rows)
        part = _Part(Chunk(self.chunk.protocol, self.chunk.messages.take(at), self.chunk.fields.take(at)))
        part.known = {name: values[rows] for name, values in self.known.items()}
        part.arrived_ns = self.arrived_ns
        return part


class HeldRows:
    """The rows of one capture that wait."""

    def __init__(self, number: int, wanted: "Filter", file_count: int) -> None:
        self._number, self._wanted, self._file_count = number, wanted, file_count
        self._parts: list[_Part] = []
        self._asking: list[_Part] = []
        self._words: dict[str, int] = {}
        self._begins: dict[str, int] = {}
        """When the messages of each file begin."""
        self.first_ns = 0
        """When the capture begins."""
        self.dropped_count = 0
        """Requests that waited for their outcome and were too many."""

    def __len__(self) -> int:
        return sum(len(part) - part.at for part in self._parts)

    def take(self, output: "Output") -> None:
        """Take rows of any table in."""
        if output.protocol is not None and output.fields is not None:
            self._note_files(output.rows)
            found = self._wanted.sorted(Chunk(output.protocol, output.rows, output.fields), self.first_ns)
            for chunk, parts in zip(found, (self._parts, self._asking), strict=True):
                if chunk.messages.num_rows:
                    parts.append(_Part(chunk))
        elif output.table == "exchanges":
            exchanges = _Exchanges(output.rows, self._words)
            for part in (*self._asking, *self._parts):
                part.note(exchanges)
            self._settle_asking(None)
        elif output.table == "connections":
            if self._wanted.tally is not None:
                self._wanted.tally.look_at_connections(output.rows)
            if self._asking:
                self._settle_asking(output.rows["connection_id"].combine_chunks())

    def chunks(self) -> list[Chunk]:
        """The rows that are wanted so far; they are given out."""
        parts, self._parts = self._parts, []
        return [part.chunk for part in parts]

    def _settle_asking(self, over: pa.Array | None) -> None:
        """Sort out requests of which the outcome is known now; others of connections that are ``over`` have none."""
        left = []
        words = {code: word for word, code in self._words.items()}
        for part in self._asking:
            ended = np.zeros(len(part), np.bool_)
            if over is not None:
                ended = pc.is_in(part.chunk.messages["connection_id"], over).to_numpy()
            wanted, waits = self._wanted.told(part.chunk, part.known, words, ended, self.first_ns)
            if wanted.any():
                self._parts.append(part.taken(np.flatnonzero(wanted)))
                self._wanted.counted(self._parts[-1].chunk)
            if waits.any():
                left.append(part if waits.all() else part.taken(np.flatnonzero(waits)))
        self._asking = self._bounded(left)

    def _bounded(self, parts: list[_Part]) -> list[_Part]:
        if len(parts) > MAX_ASKING_PARTS:
            by_protocol: dict[str, list[_Part]] = {}
            for part in parts:
                by_protocol.setdefault(part.chunk.protocol, []).append(part)
            parts = [_Part(_joined([part.chunk for part in some])) for some in by_protocol.values()]
        while len(parts) > 1 and sum(len(part) * part.row_bytes for part in parts) > MAX_ASKING_BYTES:
            self.dropped_count += len(parts.pop(0))
        return parts

    def _note_files(self, messages: pa.Table) -> None:
        if self._file_count == 1 or not messages.num_rows:
            return
        begins = messages.select(["capture_file", "ts_ns"]).group_by("capture_file").aggregate([("ts_ns", "min")])
        for file, ts_ns in zip(begins["capture_file"].to_pylist(), begins["ts_ns_min"].to_pylist(), strict=True):
            self._begins[file] = min(ts_ns, self._begins.get(file, ts_ns))

    def overdue_ns(self) -> int:
        """The time before which no row of a live capture waits any longer, by our own clock; _NONE for none."""
        before_ns = time.monotonic_ns() - LIVE_NS
        return max((int(part.ts_ns[-1]) + 1 for part in self._parts if part.arrived_ns <= before_ns), default=_NONE)

    def horizon_ns(self, now_ns: int, is_live: bool = False) -> int:
        """The time before which no row waits any longer, given the time in the capture."""
        until_ns = max(now_ns - LIVE_NS, self.overdue_ns()) if is_live else now_ns - LOOKAHEAD_NS
        left = [part.ts_ns[part.at :] for part in self._parts]
        count = len(self)
        size = sum((len(part) - part.at) * part.row_bytes for part in self._parts)
        room = LOOKAHEAD_ROWS if size <= LOOKAHEAD_BYTES else min(LOOKAHEAD_ROWS, count * LOOKAHEAD_BYTES // size)
        if count > room:
            until_ns = max(until_ns, int(np.partition(np.concatenate(left), count - room)[count - room]))
        return until_ns

    def released(self, until_ns: int) -> list[Iterator[Row]]:
        """The rows before a time, in several sequences that are each in order."""
        due = [(part, int(np.searchsorted(part.ts_ns, until_ns))) for part in self._parts]
        due = [(part, stop) for part, stop in due if stop > part.at]
        at_once = max(SLICE_ROWS // max(len(due), 1), 32)
        out = [self._rows(part, part.at, stop, at_once) for part, stop in due]
        for part, stop in due:
            part.at = stop
        self._parts = [part for part in self._parts if part.at < len(part)]
        return out

    def _rows(self, part: _Part, start: int, stop: int, at_once: int) -> Iterator[Row]:
        protocol, shown = part.chunk.protocol, part.chunk.messages.drop_columns(self._wanted.left_out)
        own = [name for name in part.chunk.fields.column_names if name not in KEYS]
        its = part.chunk.fields.select(own or ["op"])  # without a column it would have no rows
        for a in range(start, stop, at_once):
            n = min(at_once, stop - a)
            messages, fields = _dicts(shown.slice(a, n)), _dicts(its.slice(a, n))
            exchanges = self._exchanges(messages, {name: part.known[name][a : a + n] for name in _Part.COLUMNS})
            for message, values, exchange in zip(messages, fields, exchanges, strict=True):
                yield Row(self._number, protocol, message, values, exchange)

    def _exchanges(
        self, messages: Sequence[Mapping[str, object]], known: Mapping[str, I64]
    ) -> Iterator[Exchange | None]:
        """What is known of the exchange of each message."""
        words: dict[int, str | None] = {code: word for word, code in self._words.items()} | {_NONE: None}
        columns = {name: [None if x == _NONE else x for x in values.tolist()] for name, values in known.items()}
        columns["is_request"] = (known["is_request"] == 1).tolist()
        columns |= {name: [words[code] for code in known[name].tolist()] for name in ("state", "status")}
        times = columns.pop("packet_ts_ns")
        columns["file"] = [None] * len(messages)
        if self._begins:
            columns["file"] = [self._other_file(*one) for one in zip(messages, times, strict=True)]
        rows = zip(*(columns[name] for name in Exchange._fields), strict=True)
        return (None if row[1] is None else Exchange._make(row) for row in rows)

    def _other_file(self, message: Mapping[str, object], ts_ns: int | None) -> str | None:
        """The file of a packet, by its time, if it is not the message's."""
        if ts_ns is None:
            return None
        file = max((f for f, t in self._begins.items() if t <= ts_ns), key=self._begins.__getitem__, default=None)
        return None if file == message["capture_file"] else file


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Chunks of a protocol as one."""
    parts = [c.messages for c in chunks], [c.fields for c in chunks]
    return Chunk(chunks[0].protocol, *(unified(pa.concat_tables(part)).combine_chunks() for part in parts))


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
    n, type_ = len(column), column.type
    if column.null_count == n:
        return None
    if pa.types.is_dictionary(type_):
        array = whole(column)
        words = [*array.dictionary.to_pylist(), None]
        codes = pc.fill_null(array.indices, len(words) - 1) if array.null_count else array.indices
        return words[0] if len(words) == 2 and not array.null_count else [words[x] for x in codes.to_numpy().tolist()]
    if (pa.types.is_integer(type_) or pa.types.is_boolean(type_)) and not column.null_count:
        values = column.to_numpy()
        return values.tolist() if (values != values[0]).any() else values[0].item()
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return column.to_numpy().tolist()
    return column.to_pylist()
