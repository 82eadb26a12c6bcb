"""Which publish a delivery came from, as deliveries complete.

:class:`Deliveries` keeps the keys of publishes, server by server, in a bounded table: the newest ``MAX_PUBLISHES``. A
delivery that finds exactly one earlier publish with its key came from it; with several it is doubtful and has no row.
Keys of publishes that were pushed out stay for a while longer, so that the second of two equal publishes is not
taken for the only one. The table is sorted only when something is delivered: publishes nobody gets cost nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import constant
from mqpcap.correlate.exchanges import Batch, Pairs
from mqpcap.schema.requests import I64, DeliveryRule, Prints

MAX_PUBLISHES = 1 << 19
"""Publishes that a delivery is looked for among; about 48 bytes each."""
MAX_PUSHED_OUT = 1 << 21
"""Keys of older publishes, which make deliveries doubtful; 8 bytes each."""
MAX_RUNS = 8
"""Sorted runs of publishes; with more, the small ones are merged."""
_NARROW = ("connection_id", "destination", "server_ip", "server_port")
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


@dataclass(frozen=True, slots=True)
class Published:
    """Publishes as a delivery is looked for among them, a column each; ``note`` is the protocol's."""

    key: I64
    ts_ns: I64
    connection_id: I64
    offset: I64
    note: I64


@dataclass(frozen=True, slots=True)
class Delivered:
    """Deliveries whose publishes are looked for. ``text`` gives the key as text of some of them, by their places."""

    key: I64
    ts_ns: I64
    connection_id: I64
    offset: I64
    destination: pa.Array
    text: Callable[[pa.Array], pa.Array]


def keyed(
    rule: DeliveryRule, prints: Prints, batch: Batch | None, pairs: Pairs | None
) -> tuple[Published, Delivered, pa.Table, pa.Table] | None:
    """The publishes and deliveries among some rows, and connection, destination and server of both; None without."""
    if rule.of_pairs:
        if pairs is None:
            return None
        requests, replies = pairs.requests, pairs.replies
        place = replies[0].column_names.index("destination")
        named = replies[0].set_column(place, "destination", requests[0]["destination"])
        replies = named, *replies[1:]
        publishes, delivers = rule.keys(requests[0], replies[0], prints)
    elif batch is None:
        return None
    else:
        requests = replies = batch.table, batch.flow, batch.offset, batch.ts_ns
        publishes, delivers = rule.keys(batch.table, prints)
    out, back = (
        rows[0].select([*_NARROW]).take(pa.array(keys.rows))
        for rows, keys in ((requests, publishes), (replies, delivers))
    )
    note, own = (np.zeros(len(x.rows), np.int64) if x.note is None else x.note for x in (publishes, delivers))
    published, delivered = (
        (
            _with_server(rule, keys.key, some, prints),
            ts_ns[keys.rows],
            some["connection_id"].to_numpy(),
            offset[keys.rows],
        )
        for (_, _, offset, ts_ns), keys, some in ((requests, publishes, out), (replies, delivers, back))
    )

    def text(at: pa.Array) -> pa.Array:
        return rule.text(replies[0].take(pa.array(delivers.rows).take(at)), own[at.to_numpy()])

    return Published(*published, note), Delivered(*delivered, back["destination"], text), out, back


def _with_server(rule: DeliveryRule, key: I64, rows: pa.Table, prints: Prints) -> I64:
    """The keys with the server in them, where that counts."""
    if rule.across_servers:
        return key
    with np.errstate(over="ignore"):
        server = prints(rows["server_ip"]) * 65599 + rows["server_port"].to_numpy()
        mixed: I64 = key * np.int64(1_000_003) + server
        return mixed


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one protocol in the making; two counts tell what has no row."""

    protocol: str
    rule: DeliveryRule
    prints: Prints
    doubtful_count: int = 0
    pushed_out_count: int = 0
    _fresh: list[dict[str, I64]] = field(default_factory=list)
    _runs: list[_Run] = field(default_factory=list)
    _count: int = 0
    _pushed_out: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def feed(self, batch: Batch | None, pairs: Pairs | None) -> pa.Table | None:
        """Take rows in; returns the rows of ``deliveries`` among them."""
        found = keyed(self.rule, self.prints, batch, pairs)
        return None if found is None else self.look_up(*found[:2])

    def look_up(self, published: Published, delivered: Delivered) -> pa.Table | None:
        """The same of rows that have their keys."""
        if len(published.key):
            self._fresh.append({name: getattr(published, name) for name in _FIELDS})
            self._count += len(published.key)
            self._push_out()
        return self._matched(delivered) if len(delivered.key) and self._count else None

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
            while len(self._runs) > MAX_RUNS or (len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2])):
                two = [self._runs.pop(), self._runs.pop()]
                self._runs.append(_Run.of([run.columns for run in two]))
        return self._runs

    def _matched(self, delivered: Delivered) -> pa.Table | None:
        key, now = delivered.key, delivered.ts_ns
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
        sure = (count == 1) & (found["key"] == key)
        self.doubtful_count += int((count > 1).sum())
        at = np.flatnonzero(sure)
        return self._rows({name: values[at] for name, values in found.items()}, at, delivered) if len(at) else None

    def _rows(self, publish: Mapping[str, I64], at: NDArray[np.intp], delivered: Delivered) -> pa.Table:
        rows = pa.array(at)
        text = delivered.text(rows)
        return pa.table(
            {
                "protocol": constant(self.protocol, len(at)).cast(pa.string()),
                "destination": delivered.destination.take(rows).cast(pa.string()),
                "key": text if self.rule.whole is None else self.rule.whole(text, publish["note"]),
                "publish_connection_id": publish["connection_id"],
                "publish_offset": publish["offset"],
                "deliver_connection_id": delivered.connection_id[at],
                "deliver_offset": delivered.offset[at],
                "publish_ts_ns": publish["ts_ns"],
                "deliver_ts_ns": delivered.ts_ns[at],
                "latency_ns": delivered.ts_ns[at] - publish["ts_ns"],
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
