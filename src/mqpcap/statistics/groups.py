"""Counts rows by group: messages, bytes, errors, latencies. The number of groups is bounded.

A message counts in the group of its own values; a reply without a topic has that of its request. An error and a latency
count in the group of their request, an error without a request in its own. Names that messages and exchanges both have
(for example ``error_code``) are those of the reply there. Rows beyond ``max_groups`` groups count in OTHER.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize, is_in, single_array, true_mask
from mqpcap.query.evaluation import FilterInput
from mqpcap.query.selection import masked_rows
from mqpcap.statistics.keys import (
    OF_MESSAGES,
    Coded,
    Columns,
    Value,
    coded,
    columns_read,
    exchange_reader,
    message_column,
    message_sources,
    mixed,
    needs_numbers,
)
from mqpcap.statistics.latencies import PERCENTS, Latencies, LatencySummary
from mqpcap.statistics.report_columns import Cells
from mqpcap.tables.output import Carried, End, Output, end_rows, has_end, of_messages
from mqpcap.tables.schemas import CONNECTION_NUMBER
from mqpcap.wording import plural

Key = tuple[Value, ...]
MAX_GROUPS = 1 << 16
"""Groups that are distinguished; about 300 bytes each."""
MAX_TIME_GROUPS = 1 << 17
"""The same limit for groups by time."""
MAX_KEY_CHARS = 1 << 23
"""Characters of the keys of all groups; beyond it rows of new groups count in OTHER."""
_COUNTED = of_messages("frame_len", "ts_ns", "direction")
"""Columns of ``messages`` that every grouping reads."""
SUMS = ("messages", "messages_c2s", "bytes", "errors", "likely")
OTHER: Key = ("(other)",)
"""The key of the rows beyond the largest number of groups."""


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
        key_columns = [columns[name](rows) for name in self.by]
        if self.interval_ns is not None and time_ns is not None:
            starts, place = factorize(time_ns // self.interval_ns)
            key_columns.append(Coded(place, (starts * self.interval_ns).tolist()))
        _, place = factorize(mixed(key_columns, rows.num_rows))
        row_indices = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
        row_indices[place] = np.arange(len(place))
        values = [[column.values[code] for code in column.code[row_indices].tolist()] for column in key_columns]
        keys = zip(*values, strict=True) if key_columns else [()] * len(row_indices)
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


class SumCounter:
    """A counter of sums by group; ``cells`` are computed of all groups, in their order."""

    sums: Sums

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names that rows are grouped by."""
        return self.sums.by

    def cells(self, rows: Sequence[Cells]) -> Iterable[Cells]:
        """Further cells of each row."""
        return [{}] * len(rows)

    def rows(self) -> list[Cells]:
        """A row for each group; that of OTHER has the first value of a key only."""
        rows: list[Cells] = [
            {**dict(zip(self.key_names, key, strict=False)), **x} for key, x in self.sums.sums().items()
        ]
        return [{**row, **cells} for row, cells in zip(rows, self.cells(rows), strict=True)]


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
    of protocols is read of messages only, which exchanges carry. A name of ``exchanges`` (for example ``state``) is
    read of exchanges only. A message counts by its own values at once; where it counts by those of its exchange, it
    changes its group when that is known.
    """

    def __init__(self, key_names: Sequence[str], interval_ns: int | None = None, max_groups: int = MAX_GROUPS,
                 pairs: bool = True) -> None:  # fmt: skip
        self.needs_numbers = needs_numbers(key_names)
        self._sources = message_sources(key_names)
        """Columns of messages, by names that `OF_MESSAGES` lacks."""
        self._of_exchange: Columns = {name: x for name in key_names if (x := exchange_reader(name)) is not None}
        self._are_of_exchanges = not all(self._sources.values())
        """Whether messages count by the values of their exchange."""
        self.sums = Sums(key_names, SUMS, interval_ns, max_groups)
        self._pairs = pairs
        self._latencies, self._server_times = Latencies(), Latencies()

    @property
    def reads(self) -> frozenset[Carried]:
        """The columns of messages that are read."""
        return _COUNTED | columns_read(self.sums.by) | of_messages(*(("status",) if self._pairs else ()))

    @property
    def carried(self) -> frozenset[Carried]:
        """The columns of both ends of exchanges that are read."""
        numbers = (CONNECTION_NUMBER,) if self.needs_numbers else ()
        return columns_read(self.sums.by) | of_messages("frame_len", "status", *numbers)

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``, if no field is needed."""
        if not self._sources:
            self._take(Output("messages", rows))

    def take_fields(self, output: Output) -> None:
        """Count rows of ``messages`` with their fields."""
        if self._sources:
            self._take(output)

    def _take(self, messages: Output) -> None:
        if messages.rows.num_rows:
            rows = messages.rows
            groups = self.sums.groups(self._of_messages(messages), rows, rows["ts_ns"].to_numpy())
            self._count(rows, groups)
            if self._pairs:
                self.sums.add("errors", groups[is_in(rows["status"], "error")])

    def _of_messages(self, messages: Output) -> Columns:
        """Readers of the values that messages have themselves."""
        if not self._sources:
            return OF_MESSAGES
        assert messages.fields is not None and messages.protocol is not None
        filter_input = FilterInput(messages.protocol, messages.rows, messages.fields)
        return {**OF_MESSAGES, **{x: partial(message_column, y, filter_input) for x, y in self._sources.items()}}

    def _count(self, rows: pa.Table, groups: Int64Array, times: int = 1) -> None:
        """Count messages in their groups; with -1 they count there no more."""
        self.sums.add("messages", groups, np.full(len(groups), times))
        self.sums.add("messages_c2s", groups, is_in(rows["direction"], "c2s") * times)
        self.sums.add("bytes", groups, rows["frame_len"].to_numpy() * times)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors and latencies of rows of ``exchanges``, and move their messages to other groups."""
        if not rows.num_rows:
            return
        groups = self._groups_of_exchanges(rows)
        failed = is_in(rows["status"], "error")
        self.sums.add("errors", groups[failed])
        if self._are_of_exchanges:
            self._move(rows, "request", groups, has_end(rows, "request"))
        moves = failed | self._are_of_exchanges
        if "topic" in self.sums.by:
            moves |= true_mask(rows["reply.messages.destination"].is_null())
        self._move(rows, "reply", groups, has_end(rows, "reply") & moves)
        has_latency = true_mask(rows["latency_ns"].is_valid())
        self.sums.add("likely", groups[has_latency & is_in(rows["state"], "likely")])
        for name, latencies in (("latency_ns", self._latencies), ("server_ns", self._server_times)):
            has_time = true_mask(rows[name].is_valid())
            latencies.add(groups[has_time], rows[name].filter(pa.array(has_time)).to_numpy())

    def _groups_of_exchanges(self, rows: pa.Table) -> Int64Array:
        """The groups of exchanges, by the fields of their requests, or of replies where no request counts."""
        if not self._sources:
            begun_ns = pc.coalesce(single_array(rows["request_ts_ns"]), single_array(rows["reply_ts_ns"])).to_numpy()
            return self.sums.groups(self._of_exchange, rows, begun_ns)
        groups, is_requested = np.empty(rows.num_rows, np.int64), has_end(rows, "request")
        masks: Mapping[End, NDArray[np.bool_]] = {"request": is_requested, "reply": ~is_requested}
        for end, mask in masks.items():
            if mask.any():
                part = masked_rows(rows, mask)
                ends = end_rows(part, end)
                of_exchange = {name: partial(_of_exchange, read, part) for name, read in self._of_exchange.items()}
                columns: Columns = {**self._of_messages(ends), **of_exchange}
                groups[mask] = self.sums.groups(columns, ends.rows, ends.rows["ts_ns"].to_numpy())
        return groups

    def _move(self, rows: pa.Table, end: End, groups: Int64Array, mask: NDArray[np.bool_]) -> None:
        """Move messages from the groups of their own values to those of their exchange, or of its topic."""
        if not mask.any():
            return
        part = masked_rows(rows, mask)
        ends = end_rows(part, end)
        columns, ts_ns = self._of_messages(ends), ends.rows["ts_ns"].to_numpy()
        own_groups = self.sums.groups(columns, ends.rows, ts_ns)
        failed = own_groups[is_in(ends.rows["status"], "error")]
        self.sums.add("errors", failed, np.full(len(failed), -1))
        if self._are_of_exchanges:
            new_groups = groups[mask]
        elif "topic" in self.sums.by:
            topics = pc.coalesce(*(single_array(x["destination"]).cast(pa.string()) for x in (ends.rows, part)))
            new_groups = self.sums.groups({**columns, "topic": lambda _: coded(topics)}, ends.rows, ts_ns)
        else:
            return
        self._count(ends.rows, own_groups, -1)
        self._count(ends.rows, new_groups)

    def rows(self) -> list[GroupRow]:
        """The counts, in the order of the first row of each group."""
        summaries = (times.summaries(PERCENTS, len(self.sums)) for times in (self._latencies, self._server_times))
        groups = zip(self.sums.sums().items(), *summaries, strict=True)
        return [GroupRow(key, amounts, latency, server_time) for (key, amounts), latency, server_time in groups]


def _of_exchange(read: Callable[[pa.Table], Coded], exchanges: pa.Table, _: pa.Table) -> Coded:
    """A column of exchanges, row for row beside their requests or replies."""
    return read(exchanges)
