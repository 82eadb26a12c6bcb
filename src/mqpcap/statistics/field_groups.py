"""Counts messages by any field that filters know: of messages, exchanges and protocols.

In: messages with the fields of their protocol, and exchanges. Out: `GroupRow`, as of `Groups`, which is faster and is
used where the names are its own. Called by: ``reports``.

A message counts in the group of its values. An error and a latency count in the group of their request. Names that
both tables have (for example ``error_code``) are those of the reply there. A message with a name of ``exchanges`` (for
example ``state``) counts when its exchange is known, and without a value if it has none.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mqpcap.arrays import Int64Array, is_in, single_array
from mqpcap.query.evaluation import FilterInput, load_column
from mqpcap.query.filter_columns import ALIASES, STREAM, ColumnSource, column
from mqpcap.query.values import ValueKind
from mqpcap.statistics.groups import MAX_GROUPS, MAX_PENDING_REPLIES, OTHER, SUMS, GroupRow, Key, Sums, group_rows
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES, Coded, Value
from mqpcap.statistics.latencies import Latencies
from mqpcap.tables.message_keys import message_keys, reply_keys, request_keys
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import CONNECTION_NUMBER, EXCHANGES

MAX_KEY_TEXT = 1024
"""Characters of a value that distinguish groups."""


class _Message(NamedTuple):
    """A counted message whose exchange may still come: group of its own values, size, sender, whether it failed."""

    partial_group: int
    size_bytes: int
    from_client: bool
    failed: bool


class FieldGroups:
    """Messages, bytes, errors and latencies by the values of any names. Raises QueryError for an unknown name."""

    def __init__(self, key_names: Sequence[str], interval_ns: int | None = None, max_groups: int = MAX_GROUPS) -> None:
        self._names = tuple(key_names)
        self.needs_numbers = not {"connection_id", STREAM}.isdisjoint(ALIASES.get(name, name) for name in key_names)
        sources = {name: column(name).sources for name in key_names if name not in OF_MESSAGES}
        self._sources = {name: [x for x in listed if x.table != "exchanges"] for name, listed in sources.items()}
        self._of_exchange = {name: reader for name in key_names if (reader := _exchange_reader(name)) is not None}
        own_names = [name for name in key_names if name in OF_MESSAGES or self._sources[name]]
        self._is_deferred = len(own_names) < len(self._names)
        """Whether a message counts only when its exchange is known."""
        self.sums = Sums(key_names, SUMS, interval_ns, max_groups)
        self._partials = Sums(own_names, (), interval_ns, max_groups) if self._is_deferred else self.sums
        self._partial_keys: list[Key] = []
        self._pending: dict[int, _Message] = {}
        self._latencies, self._server_times = Latencies(), Latencies()

    def field_columns(self, protocol: str) -> tuple[str, ...]:
        """The columns of a protocol's table that are read."""
        return tuple({x.path[0] for sources in self._sources.values() for x in sources if x.table == protocol})

    def take_fields(self, output: Output) -> None:
        """Count messages, rows of ``messages`` with their fields."""
        rows = output.rows
        if not rows.num_rows or output.fields is None or output.protocol is None:
            return
        filter_input = FilterInput(output.protocol, rows, output.fields)
        columns = {
            name: OF_MESSAGES[name] if name in OF_MESSAGES else partial(_message_column, name, sources, filter_input)
            for name, sources in {**dict.fromkeys(self._partials.by, ()), **self._sources}.items()
        }
        groups = self._partials.groups(columns, rows, rows["ts_ns"].to_numpy())
        from_client, failed = is_in(rows["direction"], "c2s"), is_in(rows["status"], "error")
        sizes = rows["frame_len"].to_numpy()
        if not self._is_deferred:
            self._count(groups, groups[from_client], sizes)
        facts = map(_Message, groups.tolist(), sizes.tolist(), from_client.tolist(), failed.tolist())
        self._pending.update(zip(message_keys(rows).tolist(), facts, strict=True))
        self._settle(MAX_PENDING_REPLIES)

    def _count(self, groups: Int64Array, groups_from_client: Int64Array, sizes: Int64Array) -> None:
        self.sums.add("messages", groups)
        self.sums.add("messages_c2s", groups_from_client)
        self.sums.add("bytes", groups, sizes)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors and latencies, rows of ``exchanges``, and the messages that waited for them."""
        if not rows.num_rows:
            return
        coded = {name: reader(rows) for name, reader in self._of_exchange.items()}
        values = {name: [x.values[code] for code in x.code.tolist()] for name, x in coded.items()}
        failed, likely = (is_in(rows[name], word) for name, word in (("status", "error"), ("state", "likely")))
        counted: list[tuple[int, _Message]] = []
        indices, groups = [], []
        for i, keys in enumerate(zip(request_keys(rows).tolist(), reply_keys(rows).tolist(), strict=True)):
            messages = [message for key in keys if (message := self._pending.pop(key, None)) is not None]
            if not messages:
                continue
            group = self.sums.number(self._key(messages[0].partial_group, {x: y[i] for x, y in values.items()}))
            indices.append(i)
            groups.append(group)
            counted += [(group, message) for message in messages]
        if not indices:
            return
        if self._is_deferred:
            self._count_messages(counted)
        chosen, group_array = np.array(indices), np.array(groups, np.int64)
        self.sums.add("errors", group_array[failed[chosen]])
        has_latency = rows["latency_ns"].is_valid().to_numpy()[chosen]
        self.sums.add("likely", group_array[has_latency & likely[chosen]])
        for name, latencies in (("latency_ns", self._latencies), ("server_ns", self._server_times)):
            times = single_array(rows[name]).take(pa.array(chosen))
            is_there = times.is_valid().to_numpy(zero_copy_only=False)
            latencies.add(group_array[is_there], times.drop_null().to_numpy())

    def _count_messages(self, counted: Sequence[tuple[int, _Message]]) -> None:
        groups = np.array([group for group, _ in counted], np.int64)
        from_client = np.array([message.from_client for _, message in counted], np.bool_)
        sizes = np.array([message.size_bytes for _, message in counted], np.int64)
        self._count(groups, groups[from_client], sizes)

    def _key(self, partial_group: int, values: Mapping[str, Value]) -> Key:
        """The key of a message whose own values are those of a partial group, with the values of its exchange."""
        keys = self._partial_keys
        if partial_group >= len(keys):
            keys += islice(self._partials.keys(), len(keys), None)
        partial_key = keys[partial_group]
        if partial_key == OTHER:
            return OTHER
        own_values = dict(zip(self._partials.by, partial_key, strict=False))
        start_time = partial_key[len(self._partials.by) :]
        return (*(values.get(name, own_values.get(name)) for name in self._names), *start_time)

    def _settle(self, max_count: int) -> None:
        """Count the oldest messages beyond ``max_count`` without an exchange."""
        more_count = len(self._pending) - max_count
        if more_count <= 0:
            return
        oldest = list(islice(self._pending, more_count))
        alone = [self._pending.pop(key) for key in oldest]
        without: Mapping[str, Value] = dict.fromkeys(set(self._names) - set(self._partials.by))
        counted = [(self.sums.number(self._key(x.partial_group, without)), x) for x in alone]
        if self._is_deferred:
            self._count_messages(counted)
        self.sums.add("errors", np.array([group for group, message in counted if message.failed], np.int64))

    def end_of_capture(self) -> None:
        """Count messages without an exchange."""
        self._settle(0)

    def rows(self) -> list[GroupRow]:
        """The counts, in the order of the first row of each group."""
        return group_rows(self.sums, self._latencies, self._server_times)


def _exchange_reader(name: str) -> Callable[[pa.Table], Coded] | None:
    """Reads a name from rows of ``exchanges``; None if they do not have it."""
    if name in OF_EXCHANGES:
        return OF_EXCHANGES[name]
    column_name = ALIASES.get(name, name).removeprefix("exchange.")
    if column_name not in EXCHANGES.names:
        return None
    return lambda rows: _coded(rows[column_name])


def _message_column(name: str, sources: Sequence[ColumnSource], filter_input: FilterInput, rows: pa.Table) -> Coded:
    """The values of a name, of the first source that these messages have."""
    for source in sources:
        if source.kind is ValueKind.STREAM:
            return _coded(pa.array(rows[CONNECTION_NUMBER].to_numpy() - 1))
        if source.table in ("messages", filter_input.protocol):
            return _coded(load_column(source, filter_input), source.path[1:])
    return Coded(np.zeros(rows.num_rows, np.int64), (None,))


def _coded(array: pa.Array | pa.ChunkedArray, path: Sequence[str] = ()) -> Coded:
    """The distinct values as codes; text of lists and bytes as people read it."""
    array = single_array(array) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_nested(array.type) or pa.types.is_decimal(array.type):
        array = pa.array([None if value is None else _text(value, path) for value in array.to_pylist()], pa.string())
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = [_value(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(codes, [*values, None])


def _value(value: object) -> Value:
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else _text(value, ())


def _text(value: object, path: Sequence[str]) -> str:
    if isinstance(value, list):
        return ",".join(_text(item, path) for item in value)[:MAX_KEY_TEXT]
    if isinstance(value, dict) and path:
        return _text(value.get(path[0]), path[1:])
    if isinstance(value, bytes):
        try:
            return value.decode()[:MAX_KEY_TEXT]
        except UnicodeDecodeError:
            return value.hex()[:MAX_KEY_TEXT]
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)[:MAX_KEY_TEXT]
