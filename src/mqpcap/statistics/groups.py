"""Counts rows by group: messages, bytes, errors, latencies. The number of groups is bounded.

A message counts in the group of its own values; a reply without a topic has that of its request. An error and a latency
count in the group of their request, an error without a request in its own. Names that messages and exchanges both have
(for example ``error_code``) are those of the reply there. Rows beyond ``max_groups`` groups count in OTHER.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize, is_in, single_array, true_mask
from mqpcap.query.evaluation import FilterInput
from mqpcap.statistics.keys import (
    OF_MESSAGES,
    READ_OF_MESSAGES,
    Coded,
    Columns,
    Value,
    exchange_reader,
    message_column,
    message_sources,
    mixed,
    needs_numbers,
)
from mqpcap.statistics.latencies import Latencies, LatencySummary
from mqpcap.tables.message_keys import message_keys, reply_keys, request_keys
from mqpcap.tables.output import Output
from mqpcap.wording import plural

Key = tuple[Value, ...]
MAX_GROUPS = 1 << 16
"""Groups that are distinguished; about 300 bytes each."""
MAX_TIME_GROUPS = 1 << 17
"""The same limit for groups by time."""
MAX_KEY_CHARS = 1 << 23
"""Characters of the keys of all groups; beyond it rows of new groups count in OTHER."""
MAX_PENDING_REPLIES = 1 << 18
"""Messages that wait for their exchange. Beyond it the oldest count in their own group; an error is counted twice if
its exchange still comes."""
_COUNTED = frozenset({"frame_len", "ts_ns", "direction"})
_OF_ERRORS = frozenset({"connection_id", "direction", "stream_offset", "status"})
"""Columns of ``messages`` that every grouping reads, and columns that errors need."""
SUMS = ("messages", "messages_c2s", "bytes", "errors", "likely")
NO_GROUP = -1
OTHER: Key = ("(other)",)
"""The key of the rows beyond the largest number of groups."""
PERCENTS = (50, 95, 99, 100)


def chars(key: Key) -> int:
    """The number of characters in the texts of a key."""
    return sum(len(value) for value in key if isinstance(value, str))


class Sums:
    """Sums by group: ``names`` are the sums, ``key_names`` the columns that group rows, besides time if asked."""

    def __init__(self, key_names: Sequence[str], names: Sequence[str], interval_ns: int | None = None,
                 max_groups: int = MAX_GROUPS) -> None:  # fmt: skip
        self.by, self.names, self.interval_ns = tuple(key_names), tuple(names), interval_ns
        self.other_count = 0
        """Rows that count in OTHER."""
        self._most = max_groups
        self._ids: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._key_chars = 0
        self._sums = dict.fromkeys(names, np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self._ids)

    def groups(self, columns: Columns, rows: pa.Table, time_ns: Int64Array | None = None) -> Int64Array:
        """The number of each row's group."""
        coded = [columns[name](rows) for name in self.by]
        if self.interval_ns is not None and time_ns is not None:
            starts, place = factorize(time_ns // self.interval_ns)
            coded.append(Coded(place, (starts * self.interval_ns).tolist()))
        _, place = factorize(mixed(coded, rows.num_rows))
        row_indices = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
        row_indices[place] = np.arange(len(place))
        values = [[column.values[code] for code in column.code[row_indices].tolist()] for column in coded]
        keys = zip(*values, strict=True) if coded else [()] * len(row_indices)
        numbers = np.array([self.number(key) for key in keys], np.int64)
        row_groups: Int64Array = numbers[place] if len(numbers) else place
        if OTHER in self._ids:
            self.other_count += int((row_groups == self._ids[OTHER]).sum())
        return row_groups

    def number(self, key: Key) -> int:
        """The number of the group of a key."""
        group = self._ids.get(key)
        if group is None:
            key_chars = self._key_chars + chars(key)
            if len(self._ids) >= self._most or key_chars > MAX_KEY_CHARS:
                key = OTHER
            else:
                self._key_chars = key_chars
            group = self._ids.setdefault(key, len(self._ids))
            self._keys += [key] if group == len(self._keys) else []
        return group

    def key(self, group: int) -> Key:
        """The key of a group."""
        return self._keys[group]

    def regrouped(self, group: int, name: str, value: Value) -> int:
        """The number of the group that differs from another in one value of its key."""
        key = self._keys[group]
        if key == OTHER:
            return group
        i = self.by.index(name)
        return self.number((*key[:i], value, *key[i + 1 :]))

    def completed(
        self, own: "Sums", own_groups: Int64Array, exchanges: Mapping[str, Coded], rows: NDArray[np.intp]
    ) -> Int64Array:
        """Groups of messages, by the values of their own groups and of their exchanges: these rows of columns."""
        coded = {name: column.taken(rows) for name, column in exchanges.items()}
        _, place = factorize(mixed([Coded(own_groups, range(len(own))), *coded.values()], len(own_groups)))
        row_indices = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
        row_indices[place] = np.arange(len(place))
        numbers = []
        for i in row_indices.tolist():
            key = list(own.key(int(own_groups[i])))
            if tuple(key) != OTHER:
                for name, column in coded.items():
                    key[self.by.index(name)] = column.values[column.code[i]]
            numbers.append(self.number(tuple(key)))
        return np.array(numbers, np.int64)[place] if numbers else own_groups

    def add(self, name: str, groups: Int64Array, amounts: Int64Array | None = None) -> None:
        """Add amounts, or one each, to a sum of groups."""
        # As doubles: exact, for no window holds 2**53 bytes.
        sums = np.bincount(groups, amounts, len(self)).astype(np.int64)
        sums[: len(self._sums[name])] += self._sums[name]
        self._sums[name] = sums

    def sums(self) -> "dict[Key, dict[str, int]]":
        """The sums of each group, in the order of the first row of each group."""
        columns = (np.append(x, np.zeros(len(self) - len(x), np.int64)).tolist() for x in self._sums.values())
        rows = zip(*columns, strict=True)
        return {key: dict(zip(self.names, row, strict=True)) for key, row in zip(self._ids, rows, strict=True)}


class PendingMessages:
    """Messages that wait for their exchange: key, group if no exchange comes, and ``fact_count`` numbers of each."""

    def __init__(self, fact_count: int) -> None:
        self._rows = np.empty((2 + fact_count, 0), np.int64)

    def add(self, keys: Int64Array, groups: Int64Array, *facts: NDArray[np.generic]) -> None:
        """Add messages; those in the group NO_GROUP count only with their exchange."""
        self._rows = np.concatenate([self._rows, np.array([keys, groups, *facts], np.int64)], 1)

    def pop_matched(self, keys: Int64Array) -> tuple[NDArray[np.intp], Int64Array]:
        """Remove the messages with these keys; returns the positions of these keys, and rows of groups and facts."""
        if not self._rows.shape[1]:
            return np.empty(0, np.intp), self._rows[1:]
        positions = pc.index_in(pa.array(self._rows[0]), pa.array(keys))
        hit = true_mask(positions.is_valid())
        # A selected reply waits twice: see `Counters`.
        matched, first_indices = np.unique(positions.drop_null().to_numpy(), return_index=True)
        matched_rows = self._rows[1:, hit][:, first_indices]
        self._rows = self._rows[:, ~hit]
        return matched, matched_rows

    def pop_oldest(self, max_count: int) -> Int64Array:
        """Remove the oldest messages beyond ``max_count``; returns rows of their groups and facts."""
        oldest = self._rows[1:, : max(self._rows.shape[1] - max_count, 0)]
        self._rows = self._rows[:, oldest.shape[1] :]
        counted: Int64Array = oldest[:, oldest[0] != NO_GROUP]
        return counted


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The counts of a group; ``key`` has a value for each name, and the start of the interval, if any."""

    key: Key
    sums: Mapping[str, int]
    latency: LatencySummary
    """Latencies of answered requests, from the request's first byte on; percentile 100 is the largest."""
    server_time: LatencySummary
    """Times from the request's last byte to the reply's first."""


class LikelyPairs:
    """Counts latencies, and latencies of pairs that are likely and not certain."""

    def __init__(self) -> None:
        self.latency_count = self.likely_count = 0

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count rows of ``exchanges``."""
        has_latency = true_mask(rows["latency_ns"].is_valid())
        self.latency_count += int(has_latency.sum())
        self.likely_count += int((has_latency & is_in(rows["state"], "likely")).sum())

    def notes(self) -> list[str]:
        """A note if latencies are those of likely pairs."""
        if not self.likely_count:
            return []
        share = f"{self.likely_count:,} of {plural(self.latency_count, 'latency', 'latencies')}"
        return [f"{share} are of likely pairs; stats -Y 'state == answered' leaves them out"]


class Groups:
    """Messages, bytes, errors and latencies by any names. Raises QueryError for an unknown name.

    ``pairs``: whether exchanges come, too. Names of `OF_MESSAGES` are read of messages and of exchanges alike. A name
    of protocols is read of messages only, so messages wait for their exchange. A name of ``exchanges`` (for example
    ``state``) is read of exchanges only, so messages count when their exchange is known.
    """

    def __init__(self, key_names: Sequence[str], interval_ns: int | None = None, max_groups: int = MAX_GROUPS,
                 pairs: bool = True) -> None:  # fmt: skip
        self.needs_numbers = needs_numbers(key_names)
        self._sources = message_sources(key_names)
        """Columns of messages, by names that `OF_MESSAGES` lacks."""
        self._of_exchange: Columns = {name: x for name in key_names if (x := exchange_reader(name)) is not None}
        self._is_deferred = not all(self._sources.values())
        """Whether a message counts only when its exchange is known."""
        self.sums = Sums(key_names, SUMS, interval_ns, max_groups)
        self._own = Sums(key_names, (), interval_ns, max_groups) if self._is_deferred else self.sums
        """Groups by the values that messages have themselves."""
        self._pairs = pairs
        self._latencies, self._server_times = Latencies(), Latencies()
        self._pending = PendingMessages(4)
        """Messages with size, and whether the client sent them, whether they failed, and whether they are to count."""

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns of ``messages`` that are read, None for all."""
        if self._sources:
            return None
        read = _COUNTED | _OF_ERRORS if self._pairs else _COUNTED
        return read.union(*(READ_OF_MESSAGES[name] for name in self.sums.by))

    def field_columns(self, protocol: str) -> tuple[str, ...]:
        """The columns of a protocol's table that are read."""
        return tuple({x.path[0] for sources in self._sources.values() for x in sources if x.table == protocol})

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``, if no field is needed."""
        if not self._sources:
            self._take(rows, OF_MESSAGES)

    def take_fields(self, output: Output) -> None:
        """Count rows of ``messages`` with their fields."""
        if self._sources and output.fields is not None and output.protocol is not None:
            filter_input = FilterInput(output.protocol, output.rows, output.fields)
            fields = {x: partial(message_column, sources, filter_input) for x, sources in self._sources.items()}
            self._take(output.rows, {**OF_MESSAGES, **fields})

    def _take(self, rows: pa.Table, columns: Columns) -> None:
        if not rows.num_rows:
            return
        groups = self._own.groups(columns, rows, rows["ts_ns"].to_numpy())
        sizes, from_client = rows["frame_len"].to_numpy(), is_in(rows["direction"], "c2s")
        if not self._pairs:
            self._count(groups, sizes, from_client)
            return
        failed, waits = is_in(rows["status"], "error"), np.full(rows.num_rows, self._is_deferred)
        if "topic" in self.sums.by:  # that of a reply may be its request's
            waits |= true_mask(rows["destination"].is_null())
        self._count(groups[~waits], sizes[~waits], from_client[~waits])
        kept = np.flatnonzero(waits | failed | bool(self._sources))
        facts = (fact[kept] for fact in (sizes, from_client, failed, waits))
        self._pending.add(message_keys(rows)[kept], groups[kept], *facts)
        self._give_up(MAX_PENDING_REPLIES)

    def _count(self, groups: Int64Array, sizes: Int64Array, from_client: NDArray[np.bool_]) -> None:
        self.sums.add("messages", groups)
        self.sums.add("messages_c2s", groups[from_client])
        self.sums.add("bytes", groups, sizes)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors and latencies of rows of ``exchanges``, and messages that waited for them."""
        if not rows.num_rows:
            return
        coded = {name: read(rows) for name, read in self._of_exchange.items()}
        replied, replies = self._pending.pop_matched(reply_keys(rows))
        if self._sources:
            asked, requests = self._pending.pop_matched(request_keys(rows))
            own_groups = np.full(rows.num_rows, NO_GROUP)
            own_groups[replied], own_groups[asked] = replies[0], requests[0]
            chosen = np.flatnonzero(own_groups != NO_GROUP)
            groups = np.full(rows.num_rows, NO_GROUP)
            groups[chosen] = self.sums.completed(self._own, own_groups[chosen], coded, chosen)
            self._count_waiting(groups[asked] if self._is_deferred else requests[0], requests)
        else:
            begun_ns = pc.coalesce(single_array(rows["request_ts_ns"]), single_array(rows["reply_ts_ns"])).to_numpy()
            groups = self.sums.groups(self._of_exchange, rows, begun_ns)
        if self._is_deferred:
            self._count_waiting(groups[replied], replies)
        elif "topic" in coded:
            groups_by_topic = self.sums.completed(self._own, replies[0], {"topic": coded["topic"]}, replied)
            self._count_waiting(groups_by_topic, replies)
        is_known = groups != NO_GROUP
        self.sums.add("errors", groups[is_known & is_in(rows["status"], "error")])
        has_latency = is_known & true_mask(rows["latency_ns"].is_valid())
        self.sums.add("likely", groups[has_latency & is_in(rows["state"], "likely")])
        for name, latencies in (("latency_ns", self._latencies), ("server_ns", self._server_times)):
            has_time = is_known & true_mask(rows[name].is_valid())
            latencies.add(groups[has_time], rows[name].filter(pa.array(has_time)).to_numpy())

    def _count_waiting(self, groups: Int64Array, waiting: Int64Array) -> None:
        """Count messages that waited, and are to count, in their groups."""
        _, sizes, from_client, _, is_uncounted = waiting
        kept = is_uncounted > 0
        self._count(groups[kept], sizes[kept], from_client[kept] > 0)

    def end_of_capture(self) -> None:
        """Count messages and errors without an exchange in their own group."""
        self._give_up(0)

    def _give_up(self, max_count: int) -> None:
        waiting = self._pending.pop_oldest(max_count)
        groups = self.sums.completed(self._own, waiting[0], {}, waiting[0]) if self._is_deferred else waiting[0]
        self._count_waiting(groups, waiting)
        self.sums.add("errors", groups[waiting[3] > 0])

    def rows(self) -> list[GroupRow]:
        """The counts, in the order of the first row of each group."""
        summaries = (times.summaries(PERCENTS, len(self.sums)) for times in (self._latencies, self._server_times))
        groups = zip(self.sums.sums().items(), *summaries, strict=True)
        return [GroupRow(key, amounts, latency, server_time) for (key, amounts), latency, server_time in groups]
