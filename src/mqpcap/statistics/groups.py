"""Rows counted by group: messages, bytes, failures, latencies; groups are bounded.

A message counts in the group of its own columns. An error and a latency count in the group of the request that they
belong to, as the exchange says; an error that belongs to none, as one that comes unasked, in its own. At most ``most``
groups are told apart: what belongs to a further one counts in OTHER.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import I64, factorize, is_in, true, whole
from mqpcap.statistics.keys import OF_EXCHANGES, OF_MESSAGES, READ_OF_MESSAGES, Coded, Columns, Value, mixed
from mqpcap.statistics.latencies import Latencies, LatencySummary
from mqpcap.tables.places import message_places, reply_places

Key = tuple[Value, ...]
MAX_GROUPS = 1 << 16
"""Groups that are told apart; about 300 bytes each."""
MAX_CELLS = 1 << 17
"""The same where they are told apart by time, too."""
MAX_OPEN = 1 << 18
"""Replies that wait for the request that they belong to; the oldest of more count in their own group, and an error in
that of its request, too, if that is found after all."""
_COUNTED = frozenset({"frame_len", "ts_ns", "direction"})
_OF_ERRORS = frozenset({"connection_id", "direction", "stream_offset", "status"})
"""The columns of ``messages`` that are read whatever rows are grouped by, and those of errors."""
NO_GROUP = -1
OTHER: Key = ("(other)",)
"""The key of what belongs to no group that is told apart."""
PERCENTS = (50, 95, 99, 100)


class Sums:
    """Sums by group: ``names`` are what is summed, ``columns`` what rows are grouped by, and by time if asked."""

    def __init__(self, by: Sequence[str], names: Sequence[str], interval_ns: int | None = None,
                 most: int = MAX_GROUPS) -> None:  # fmt: skip
        self.by, self.names, self.interval_ns = tuple(by), tuple(names), interval_ns
        self.other_count = 0
        """Rows that count in OTHER."""
        self._most = most
        self._ids: dict[Key, int] = {}
        self._sums = dict.fromkeys(names, np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self._ids)

    def groups(self, columns: Columns, rows: pa.Table, time_ns: I64 | None = None) -> I64:
        """The number of each row's group."""
        coded = [columns[name](rows) for name in self.by]
        if self.interval_ns is not None and time_ns is not None:
            starts, place = factorize(time_ns // self.interval_ns)
            coded.append(Coded(place, (starts * self.interval_ns).tolist()))
        _, place = factorize(mixed(coded, rows.num_rows))
        first = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
        first[place] = np.arange(len(place))
        values = [[column.values[code] for code in column.code[first].tolist()] for column in coded]
        keys = zip(*values, strict=True) if coded else [()] * len(first)
        numbers = np.array([self.number(key) for key in keys], np.int64)
        found: I64 = numbers[place] if len(numbers) else place
        if OTHER in self._ids:
            self.other_count += int((found == self._ids[OTHER]).sum())
        return found

    def number(self, key: Key) -> int:
        """The number of the group of a key."""
        found = self._ids.get(key)
        if found is None:
            key = key if len(self._ids) < self._most else OTHER
            found = self._ids.setdefault(key, len(self._ids))
        return found

    def regrouped(self, group: int, name: str, value: Value) -> int:
        """The number of the group that differs from another in one value of its key."""
        key = next(islice(self._ids, group, None))
        if key == OTHER:
            return group
        i = self.by.index(name)
        return self.number((*key[:i], value, *key[i + 1 :]))

    def add(self, name: str, groups: I64, amounts: I64 | None = None) -> None:
        """Add amounts, or one each, to a sum of groups."""
        # As doubles: exact, for no window holds 2**53 bytes.
        sums = np.bincount(groups, amounts, len(self)).astype(np.int64)
        sums[: len(self._sums[name])] += self._sums[name]
        self._sums[name] = sums

    def sums(self) -> "dict[Key, dict[str, int]]":
        """The sums of each group, in the order in which groups were met."""
        columns = (np.append(x, np.zeros(len(self) - len(x), np.int64)).tolist() for x in self._sums.values())
        rows = zip(*columns, strict=True)
        return {key: dict(zip(self.names, row, strict=True)) for key, row in zip(self._ids, rows, strict=True)}


class WaitingReplies:
    """Replies that wait for their request: their place, the group that they are in without one, and an amount."""

    def __init__(self) -> None:
        self._rows = np.empty((3, 0), np.int64)

    def add(self, places: I64, groups: I64, amounts: I64) -> None:
        """Have more of them wait; those in the group NO_GROUP count only with their request."""
        self._rows = np.concatenate([self._rows, np.array([places, groups, amounts])], 1)

    def found(self, places: I64) -> tuple[NDArray[np.intp], I64]:
        """Which of some places are of those that wait, with their amounts; they wait no longer."""
        at = pc.index_in(pa.array(self._rows[0]), pa.array(places))
        hit = true(at.is_valid())
        found, first = np.unique(at.drop_null().to_numpy(), return_index=True)  # one that was selected waits twice
        amounts = self._rows[2, hit][first]
        self._rows = self._rows[:, ~hit]
        return found, amounts

    def given_up(self, most: int) -> tuple[I64, I64]:
        """The groups and amounts of the oldest that are more than ``most``."""
        _, groups, amounts = self._rows[:, : max(self._rows.shape[1] - most, 0)]
        self._rows = self._rows[:, len(groups) :]
        has_group = groups != NO_GROUP
        return groups[has_group], amounts[has_group]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What was counted of one group; ``key`` has a value for each name, and the begin of the interval, if any."""

    key: Key
    sums: Mapping[str, int]
    latency: LatencySummary
    """Of the requests that got a reply; percentile 100 is the largest."""


class Groups:
    """Messages, bytes, errors and latencies by group."""

    def __init__(self, by: Sequence[str], interval_ns: int | None = None, most: int = MAX_GROUPS,
                 errors: bool = True) -> None:  # fmt: skip
        self.sums = Sums(by, ("messages", "messages_c2s", "bytes", "errors"), interval_ns, most)
        read = _COUNTED | _OF_ERRORS if errors else _COUNTED
        self.columns = read.union(*(READ_OF_MESSAGES[name] for name in by))
        """The columns of ``messages`` that are read."""
        self._counts_errors = errors
        self._latencies = Latencies()
        self._errors = WaitingReplies()

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
            self._give_up(MAX_OPEN)
            self._errors.add(message_places(errors), groups[failed], np.ones(errors.num_rows, np.int64))

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count failures and latencies of rows of ``exchanges``."""
        if not rows.num_rows:
            return
        begun_ns = pc.coalesce(whole(rows["request_ts_ns"]), whole(rows["reply_ts_ns"])).to_numpy()
        groups = self.sums.groups(OF_EXCHANGES, rows, begun_ns)
        taken = true(rows["latency_ns"].is_valid())
        self._latencies.add(groups[taken], rows["latency_ns"].drop_null().to_numpy())
        failed = is_in(rows["status"], "error")
        self.sums.add("errors", groups[failed])
        self._errors.found(reply_places(rows)[failed])

    def end_of_capture(self) -> None:
        """What has found no request finds none."""
        self._give_up(0)

    def _give_up(self, most: int) -> None:
        groups, _ = self._errors.given_up(most)
        self.sums.add("errors", groups)

    def rows(self) -> list[GroupRow]:
        """What was counted, in the order in which groups were met."""
        latencies = self._latencies.summaries(PERCENTS, len(self.sums))
        return [GroupRow(key, sums, x) for (key, sums), x in zip(self.sums.sums().items(), latencies, strict=True)]
