"""Counts rows by group: messages, bytes, errors, latencies. The number of groups is bounded.

A message counts in the group of its own columns. An error and a latency count in the group of their request, which the
exchange names; an error without a request counts in its own group. Rows beyond ``max_groups`` groups count in OTHER.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize, is_in, single_array, true_mask
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES, READ_OF_MESSAGES, Coded, Columns, Value, mixed
from mqpcap.statistics.latencies import Latencies, LatencySummary
from mqpcap.tables.message_keys import message_keys, reply_keys
from mqpcap.wording import plural

Key = tuple[Value, ...]
MAX_GROUPS = 1 << 16
"""Groups that are distinguished; about 300 bytes each."""
MAX_TIME_GROUPS = 1 << 17
"""The same limit for groups by time."""
MAX_KEY_CHARS = 1 << 23
"""Characters of the keys of all groups; beyond it rows of new groups count in OTHER."""
MAX_PENDING_REPLIES = 1 << 18
"""Replies that wait for their exchange. Beyond it the oldest count in their own group; an error is counted twice if its
exchange still comes."""
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
        return group

    def keys(self) -> Iterator[Key]:
        """The keys of the groups, in order of their numbers."""
        return iter(self._ids)

    def regrouped(self, group: int, name: str, value: Value) -> int:
        """The number of the group that differs from another in one value of its key."""
        key = next(islice(self._ids, group, None))
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


class PendingReplies:
    """Replies that wait for their request: message key, group if no request comes, and an amount."""

    def __init__(self) -> None:
        self._rows = np.empty((3, 0), np.int64)

    def add(self, places: Int64Array, groups: Int64Array, amounts: Int64Array) -> None:
        """Add replies; replies in the group NO_GROUP count only with their request."""
        self._rows = np.concatenate([self._rows, np.array([places, groups, amounts])], 1)

    def pop_matched(self, places: Int64Array) -> tuple[NDArray[np.intp], Int64Array]:
        """Remove the replies with these keys; returns the positions of these keys, and the amounts."""
        positions = pc.index_in(pa.array(self._rows[0]), pa.array(places))
        hit = true_mask(positions.is_valid())
        # A selected reply waits twice: see `Counters`.
        matched, first_indices = np.unique(positions.drop_null().to_numpy(), return_index=True)
        amounts = self._rows[2, hit][first_indices]
        self._rows = self._rows[:, ~hit]
        return matched, amounts

    def pop_oldest(self, max_count: int) -> tuple[Int64Array, Int64Array]:
        """Remove the oldest replies beyond ``max_count``; returns their groups and amounts."""
        _, groups, amounts = self._rows[:, : max(self._rows.shape[1] - max_count, 0)]
        self._rows = self._rows[:, len(groups) :]
        has_group = groups != NO_GROUP
        return groups[has_group], amounts[has_group]


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
    """Messages, bytes, errors and latencies by group."""

    def __init__(self, key_names: Sequence[str], interval_ns: int | None = None, max_groups: int = MAX_GROUPS,
                 errors: bool = True) -> None:  # fmt: skip
        self.sums = Sums(key_names, SUMS, interval_ns, max_groups)
        read = _COUNTED | _OF_ERRORS if errors else _COUNTED
        self.columns = read.union(*(READ_OF_MESSAGES[name] for name in key_names))
        """The columns of ``messages`` that are read."""
        self._counts_errors = errors
        self._latencies, self._server_times = Latencies(), Latencies()
        self._errors = PendingReplies()

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``."""
        if not rows.num_rows:
            return
        groups = self.sums.groups(OF_MESSAGES, rows, rows["ts_ns"].to_numpy())
        self.sums.add("messages", groups)
        self.sums.add("messages_c2s", groups[is_in(rows["direction"], "c2s")])
        self.sums.add("bytes", groups, rows["frame_len"].to_numpy())
        if self._counts_errors:
            failed = is_in(rows["status"], "error")
            errors = rows.filter(pa.array(failed))
            self._give_up(MAX_PENDING_REPLIES)
            self._errors.add(message_keys(errors), groups[failed], np.ones(errors.num_rows, np.int64))

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count errors and latencies of rows of ``exchanges``."""
        if not rows.num_rows:
            return
        begun_ns = pc.coalesce(single_array(rows["request_ts_ns"]), single_array(rows["reply_ts_ns"])).to_numpy()
        groups = self.sums.groups(OF_EXCHANGES, rows, begun_ns)
        taken = true_mask(rows["latency_ns"].is_valid())
        self._latencies.add(groups[taken], rows["latency_ns"].drop_null().to_numpy())
        self.sums.add("likely", groups[taken & is_in(rows["state"], "likely")])
        has_time = true_mask(rows["server_ns"].is_valid())
        self._server_times.add(groups[has_time], rows["server_ns"].drop_null().to_numpy())
        failed = is_in(rows["status"], "error")
        self.sums.add("errors", groups[failed])
        self._errors.pop_matched(reply_keys(rows)[failed])

    def end_of_capture(self) -> None:
        """Count errors without a request in their own group."""
        self._give_up(0)

    def _give_up(self, max_count: int) -> None:
        groups, _ = self._errors.pop_oldest(max_count)
        self.sums.add("errors", groups)

    def rows(self) -> list[GroupRow]:
        """The counts, in the order of the first row of each group."""
        return group_rows(self.sums, self._latencies, self._server_times)


def group_rows(sums: Sums, latencies: Latencies, server_times: Latencies) -> list[GroupRow]:
    """The counts and times of each group, in the order of the first row of each group."""
    summaries = (times.summaries(PERCENTS, len(sums)) for times in (latencies, server_times))
    groups = zip(sums.sums().items(), *summaries, strict=True)
    return [GroupRow(key, amounts, latency, server_time) for (key, amounts), latency, server_time in groups]
