"""Which publish a delivery came from, as deliveries complete.

:class:`Deliveries` keeps the keys of publishes, server by server, in a bounded table: the newest ``MAX_PUBLISHES``. A
delivery that finds exactly one earlier publish with its key came from it; with several it is doubtful and has no row.
Keys of publishes that were pushed out stay for a while longer, so that the second of two equal publishes is not
taken for the only one. The table is sorted only when something is delivered: publishes nobody gets cost nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import constant
from mqpcap.correlate.exchanges import Batch, Pairs
from mqpcap.schema.requests import I64, DeliveryRule, Keys, Prints

MAX_PUBLISHES = 1 << 19
"""Publishes that a delivery is looked for among; about 48 bytes each."""
MAX_PUSHED_OUT = 1 << 21
"""Keys of older publishes, which make deliveries doubtful; 8 bytes each."""
MAX_RUNS = 8
"""Sorted runs of publishes; with more, the small ones are merged."""
_FIELDS = ("key", "ts_ns", "connection_id", "offset", "note")


@dataclass(slots=True)
class _Run:
    """Publishes in order of key, a column each."""

    columns: dict[str, I64]

    @staticmethod
    def of(parts: "Sequence[Mapping[str, I64]]") -> "_Run":
        columns = {name: np.concatenate([part[name] for part in parts]) for name in _FIELDS}
        order = np.lexsort((columns["ts_ns"], columns["key"]))
        return _Run({name: values[order] for name, values in columns.items()})

    def __len__(self) -> int:
        return len(self.columns["key"])


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one protocol in the making; ``doubtful_count`` and ``pushed_out_count`` tell what has no row."""

    protocol: str
    rule: DeliveryRule
    prints: Prints
    doubtful_count: int = 0
    pushed_out_count: int = 0
    _fresh: list[dict[str, I64]] = field(default_factory=list)
    _runs: list[_Run] = field(default_factory=list)
    _count: int = 0
    _pushed_out: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def feed(self, batch: Batch | None, pairs: "Pairs | None") -> pa.Table | None:
        """Take rows in; returns the rows of ``deliveries`` among them."""
        if self.rule.of_pairs:
            if pairs is None:
                return None
            requests, replies = pairs.requests, pairs.replies
            place = replies[0].column_names.index("destination")
            named = replies[0].set_column(place, "destination", requests[0]["destination"])
            replies = named, *replies[1:]
            publishes, delivers = self.rule.keys(requests[0], replies[0], self.prints)
        elif batch is None:
            return None
        else:
            requests = replies = batch.table, batch.flow, batch.offset, batch.ts_ns
            publishes, delivers = self.rule.keys(batch.table, self.prints)
        if len(publishes.rows):
            self._add(publishes, requests)
        return self._matched(delivers, replies) if len(delivers.rows) and self._count else None

    def _keyed(self, keys: Keys, table: pa.Table) -> I64:
        """The keys with the server in them, where that counts."""
        if self.rule.across_servers:
            return keys.key
        at = pa.array(keys.rows)
        with np.errstate(over="ignore"):
            server = self.prints(table["server_ip"].take(at)) * 65599 + table["server_port"].take(at).to_numpy()
            return keys.key * np.int64(1_000_003) + server

    def _add(self, keys: Keys, rows: tuple[pa.Table, I64, I64, I64]) -> None:
        table, _, offset, ts_ns = rows
        at = keys.rows
        note = np.zeros(len(at), np.int64) if keys.note is None else keys.note
        ids = table["connection_id"].take(pa.array(at)).to_numpy()
        part = {"key": self._keyed(keys, table), "ts_ns": ts_ns[at], "connection_id": ids, "offset": offset[at]}
        self._fresh.append(part | {"note": note})
        self._count += len(at)
        self._push_out()

    def _push_out(self) -> None:
        """Let the oldest publishes go when there are too many."""
        if self._count <= MAX_PUBLISHES + MAX_PUBLISHES // 4:
            return
        whole = _Run.of([*(run.columns for run in self._runs), *self._fresh]).columns
        order = np.argsort(whole["ts_ns"], kind="stable")
        gone, left = order[:-MAX_PUBLISHES], np.sort(order[-MAX_PUBLISHES:])
        self.pushed_out_count += len(gone)
        keys = np.concatenate([self._pushed_out, np.sort(whole["key"][gone])])[-MAX_PUSHED_OUT:]
        self._pushed_out = np.sort(keys)
        self._runs, self._fresh = [_Run({name: values[left] for name, values in whole.items()})], []
        self._count = len(left)

    def _sorted(self) -> list[_Run]:
        if self._fresh:
            self._runs.append(_Run.of(self._fresh))
            self._fresh = []
            while len(self._runs) > MAX_RUNS or (
                len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2])
            ):
                two = [self._runs.pop(), self._runs.pop()]
                self._runs.append(_Run.of([run.columns for run in two]))
        return self._runs

    def _matched(self, keys: Keys, rows: tuple[pa.Table, I64, I64, I64]) -> pa.Table | None:
        table, _, offset, ts_ns = rows
        key, now = self._keyed(keys, table), ts_ns[keys.rows]
        count = np.zeros(len(key), np.int64)
        found = {name: np.zeros(len(key), np.int64) for name in _FIELDS}
        for run in self._sorted():
            first, before = _earlier(run, key, now)
            count += before
            hit = np.flatnonzero(before > 0)
            for name in _FIELDS:
                found[name][hit] = run.columns[name][first[hit]]
        if len(self._pushed_out):
            at = np.minimum(np.searchsorted(self._pushed_out, key), len(self._pushed_out) - 1)
            count[self._pushed_out[at] == key] += 1
        sure = count == 1
        sure &= found["key"] == key
        self.doubtful_count += int((count > 1).sum())
        at = np.flatnonzero(sure)
        if not len(at):
            return None
        note = np.zeros(len(at), np.int64) if keys.note is None else keys.note[at]
        publish = {name: values[at] for name, values in found.items()}
        return self._rows(publish, keys.rows[at], note, table, offset, ts_ns)

    def _rows(
        self, publish: Mapping[str, I64], at: NDArray[np.intp], note: I64, table: pa.Table, offset: I64, ts_ns: I64
    ) -> pa.Table:
        some = table.take(pa.array(at))
        return pa.table(
            {
                "protocol": constant(self.protocol, len(at)).cast(pa.string()),
                "destination": some["destination"].cast(pa.string()),
                "key": self.rule.text(some, publish["note"], note),
                "publish_connection_id": publish["connection_id"],
                "publish_offset": publish["offset"],
                "deliver_connection_id": some["connection_id"],
                "deliver_offset": offset[at],
                "publish_ts_ns": publish["ts_ns"],
                "deliver_ts_ns": ts_ns[at],
                "latency_ns": ts_ns[at] - publish["ts_ns"],
                "how": constant(self.rule.how, len(at)).cast(pa.string()),
            }
        )


def _earlier(run: _Run, key: I64, now: I64) -> tuple[I64, I64]:
    """For each key its first place in the run, and how many publishes of it came no later."""
    keys = run.columns["key"]
    first = np.searchsorted(keys, key)
    last = np.searchsorted(keys, key, "right")
    before = last - first
    some = np.flatnonzero(before > 0)
    late = run.columns["ts_ns"][last[some] - 1] > now[some]
    for k in some[late].tolist():  # equal publishes behind the delivery, in one window: rare
        before[k] = np.searchsorted(run.columns["ts_ns"][first[k] : last[k]], now[k], "right")
    return first, before
