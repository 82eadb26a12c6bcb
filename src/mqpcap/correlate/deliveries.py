"""Which publish a delivery came from, as deliveries complete.

:class:`Deliveries` keeps the keys of publishes, server by server, in a bounded table: the newest ``MAX_PUBLISHES``. A
delivery that finds exactly one publish with its key that was complete before it began came from that one; with several
it is doubtful and has no row. Keys of publishes that were pushed out stay for a while longer, so that the second of two
equal publishes is not taken for the only one. The table is sorted only when something is delivered: publishes nobody
gets cost nothing.

Publishes may be read later than their deliveries: bytes of their connections wait for others, or for evidence of their
dialect. So deliveries are held until no client of their server is behind them, and ``LOOKAHEAD_NS`` longer. Thus it
changes nothing how much of a capture is read at once.

Where a key is no name but a content (``DeliveryRule.lifetime_ns``), an equal publish may be among bytes that were not
captured: with enough of them, not too long ago, a delivery is doubtful.
"""

from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import ColumnBatch, Int64Array, constant, single_array
from mqpcap.correlate.batch import END_NS, Batch, Behind
from mqpcap.correlate.exchanges import Pairs, microseconds
from mqpcap.schema.requests import DeliveryRule, Fingerprints, Keys

MAX_PUBLISHES = 1 << 19
"""Publishes that a delivery is looked for among; about 56 bytes each."""
MAX_PUSHED_OUT = 1 << 21
"""Keys of older publishes, which make deliveries doubtful; 8 bytes each."""
MAX_RUNS = 8
"""Sorted runs of publishes; with more, the small ones are merged."""
LOOKAHEAD_NS = 200_000_000
"""So much later a reply to the publish may come, or an acknowledgement of bytes that were not captured (TCP delays it
by 40 ms, or 200)."""
MAX_HELD = 1 << 17
"""Deliveries that are held; with more, the older half is looked up as far as publishes are known."""
MAX_HELD_BYTES = 32 << 20
MAX_STRETCHES = 256
"""Stretches of bytes that were not captured, of a server; with more, the older half becomes one."""
_WHERE = ["connection_id", "server_ip", "server_port"]
"""Columns that are read of a publish's row, beside its key."""
UNSEEN = -1
"""The offset of what is no publish but such a stretch: sent between ts_ns and end_ns, ``note`` bytes to the server
that ``key`` names."""


@dataclass(frozen=True)
class Published(ColumnBatch):
    """Publishes as a delivery is looked for among them, a column each; ``note`` is the protocol's.

    From ``end_ns`` on they may be delivered.
    """

    key: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array
    connection_id: Int64Array
    offset: Int64Array
    note: Int64Array

    def __len__(self) -> int:
        return len(self.key)

    def in_order(self) -> "Published":
        """The same in order of key and time."""
        return self.taken(np.lexsort((self.end_ns, self.key)))


@dataclass(frozen=True)
class Delivered(ColumnBatch):
    """Deliveries whose publishes are looked for: ``length`` is that of the message, ``text`` the key as text."""

    key: Int64Array
    ts_ns: Int64Array
    connection_id: Int64Array
    offset: Int64Array
    server: Int64Array
    length: Int64Array
    destination: pa.Array
    text: pa.Array

    def __len__(self) -> int:
        return len(self.key)


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one protocol in the making; counts tell what has no row."""

    protocol: str
    rule: DeliveryRule
    prints: Fingerprints
    doubtful_count: int = 0
    pushed_out_count: int = 0
    missed_count: int = 0
    hurried_count: int = 0
    _fresh: list[Published] = field(default_factory=list)
    _runs: list[Published] = field(default_factory=list)
    _count: int = 0
    _pushed_out: list[Int64Array] = field(default_factory=list)
    """The keys of publishes that went together, in order."""
    _held: list[Delivered] = field(default_factory=list)
    _stretches: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    # -- rows in -------------------------------------------------------------------------------------------

    def feed(self, batch: Batch | None, pairs: Pairs | None, stretches: pa.Table | None = None) -> None:
        """Take rows in, and stretches of what clients sent that was not captured, as `ends.STRETCHES`."""
        if stretches is not None and stretches.num_rows:
            self._publish(self._unseen(stretches))
        found = self._of_rows(batch, pairs)
        if found is not None:
            self._publish(found[0])
            if len(found[1]):
                self._held.append(found[1])

    def _of_rows(self, batch: Batch | None, pairs: Pairs | None) -> tuple[Published, Delivered] | None:
        """The publishes and the deliveries of some rows."""
        rule = self.rule
        if rule.of_pairs:
            if pairs is None:
                return None
            pairs = pairs.certain()
            requests, replies = _Rows.of(pairs.requests), _Rows.of(pairs.replies)
            place = replies.table.column_names.index("destination")
            named = replies.table.set_column(place, "destination", requests.table["destination"])
            publishes, delivers = rule.keys(requests.table, named, self.prints)
            # What is published may be delivered before the reply that names it comes.
            known_ns = np.maximum(requests.end_ns, replies.end_ns - LOOKAHEAD_NS)
            requests, replies = replace(requests, end_ns=known_ns), replace(replies, table=named)
        elif batch is None:
            return None
        else:
            requests = replies = _Rows(batch.table, batch.offset, batch.ts_ns, batch.end_ns, batch.length)
            publishes, delivers = rule.keys(batch.table, self.prints)
        requests = replace(requests, table=requests.table.select(_WHERE)).taken(publishes.rows)
        # Without lists: each delivery of a message would get all lists of the message.
        flat = [field.name for field in replies.table.schema if not pa.types.is_list(field.type)]
        replies = replace(replies, table=replies.table.select(flat)).taken(delivers.rows)
        return self._published(publishes, requests), self._delivered(delivers, replies)

    def _published(self, keys: Keys, rows: "_Rows") -> Published:
        # One number for all rows takes no memory until something is delivered.
        note = np.broadcast_to(np.int64(0), len(keys.rows)) if keys.note is None else keys.note
        key, ids = self._with_server(keys.key, self._servers(rows.table)), rows.table["connection_id"].to_numpy()
        return Published(key, rows.ts_ns, rows.end_ns, ids, rows.offset, note)

    def _delivered(self, keys: Keys, rows: "_Rows") -> Delivered:
        note = np.zeros(len(keys.rows), np.int64) if keys.note is None else keys.note
        server, destination = self._servers(rows.table), single_array(rows.table["destination"]).cast(pa.string())
        ids, text = rows.table["connection_id"].to_numpy(), self.rule.text(rows.table, note)
        key = self._with_server(keys.key, server)
        return Delivered(key, rows.ts_ns, ids, rows.offset, server, rows.length, destination, single_array(text))

    def _servers(self, rows: pa.Table) -> Int64Array:
        """A number for the server of each row, one for all where publishes to any count."""
        if self.rule.across_servers:
            return np.zeros(rows.num_rows, np.int64)
        with np.errstate(over="ignore"):
            numbers: Int64Array = self.prints(rows["server_ip"]) * 65599 + rows["server_port"].to_numpy()
        return numbers

    def _with_server(self, key: Int64Array, server: Int64Array) -> Int64Array:
        with np.errstate(over="ignore"):
            mixed: Int64Array = key * np.int64(1_000_003) + server
        return mixed

    def _unseen(self, stretches: pa.Table) -> Published:
        """Stretches of bytes that were not captured: a publish may lie in each."""
        names = ("since_ns", "until_ns", "connection_id", "length")
        since_ns, until_ns, ids, length = (stretches[name].to_numpy() for name in names)
        none = np.full(stretches.num_rows, UNSEEN)
        return Published(self._servers(stretches), since_ns, until_ns, ids, none, length)

    # -- what publishes and what was not captured ----------------------------------------------------------

    def _publish(self, published: Published) -> None:
        """Take publishes in; the oldest go when there are too many."""
        unseen = published.offset == UNSEEN
        if unseen.any():
            self._note_stretches(published.taken(np.flatnonzero(unseen)))
            published = published.taken(np.flatnonzero(~unseen))
        if not len(published):
            return
        self._fresh.append(published)
        self._count += len(published)
        if self._count > MAX_PUBLISHES + MAX_PUBLISHES // 4:
            self._push_out()

    def _push_out(self) -> None:
        """Let the oldest publishes go."""
        end_ns = np.concatenate([part.end_ns for part in (*self._runs, *self._fresh)])
        cut = np.partition(end_ns, len(end_ns) - MAX_PUBLISHES - 1)[len(end_ns) - MAX_PUBLISHES - 1]
        gone = []
        for parts in (self._runs, self._fresh):
            for i, part in enumerate(parts):
                old = part.end_ns <= cut
                if old.any():
                    gone.append(part.key[old])
                    parts[i] = part.taken(np.flatnonzero(~old))
            parts[:] = [part for part in parts if len(part)]
        self._pushed_out.append(np.sort(np.concatenate(gone)))
        self._count -= len(self._pushed_out[-1])
        self.pushed_out_count += len(self._pushed_out[-1])
        while sum(map(len, self._pushed_out)) > MAX_PUSHED_OUT:
            del self._pushed_out[0]

    def _sorted(self) -> list[Published]:
        if self._fresh:
            self._runs.append(Published.joined(self._fresh).in_order())
            self._fresh = []
            while len(self._runs) > MAX_RUNS or (len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2])):
                self._runs.append(Published.joined([self._runs.pop(), self._runs.pop()]).in_order())
        return self._runs

    def _note_stretches(self, unseen: Published) -> None:
        columns = (unseen.key, unseen.ts_ns, unseen.end_ns, unseen.note)
        for server, *stretch in zip(*(x.tolist() for x in columns), strict=True):
            known = self._stretches.setdefault(server, [])
            known.append((stretch[0], stretch[1], stretch[2]))
            if len(known) > MAX_STRETCHES:
                since_ns, until_ns, length = zip(*known[: MAX_STRETCHES // 2], strict=True)
                known[: MAX_STRETCHES // 2] = [(min(since_ns), max(until_ns), max(length))]

    def _may_be_unseen(self, delivered: Delivered) -> NDArray[np.bool_]:
        """Whether the publish of a delivery may be among bytes that were not captured."""
        doubtful = np.zeros(len(delivered), np.bool_)
        if not self._stretches:
            return doubtful
        order = np.argsort(delivered.server, kind="stable")
        servers, starts = np.unique(delivered.server[order], return_index=True)
        for server, rows in zip(servers.tolist(), np.split(order, starts[1:]), strict=True):
            for since_ns, until_ns, length in self._stretches.get(server, ()):
                ts_ns = delivered.ts_ns[rows]
                alive = (since_ns < ts_ns) & (ts_ns - until_ns <= (self.rule.lifetime_ns or 0))
                doubtful[rows] |= alive & (delivered.length[rows] <= length)
        return doubtful

    # -- rows out ------------------------------------------------------------------------------------------

    def ready(self, behind: Behind) -> pa.Table | None:
        """The rows of deliveries that nothing can change that is read later."""
        if not self._held:
            return None
        held = Delivered.joined(self._held)
        until_ns = np.full(len(held), behind.now_ns - (LOOKAHEAD_NS if behind.now_ns < END_NS else 0))
        if behind.since_ns:
            names, ports = zip(*behind.since_ns, strict=True)
            servers = self._servers(pa.table({"server_ip": pa.array(names), "server_port": pa.array(ports)}))
            since_ns = np.array(list(behind.since_ns.values()), np.int64)
            order = np.lexsort((since_ns, servers))
            servers, first = np.unique(servers[order], return_index=True)
            index = np.minimum(np.searchsorted(servers, held.server), len(servers) - 1)
            rows = np.flatnonzero(servers[index] == held.server)
            until_ns[rows] = np.minimum(until_ns[rows], since_ns[order][first][index[rows]])
        ready = held.ts_ns < until_ns
        ready |= self._hurried(held, ready)
        self._held = [] if ready.all() else [held.taken(np.flatnonzero(~ready))]
        return self._matched(held.taken(np.flatnonzero(ready)))

    def _hurried(self, held: Delivered, ready: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The older half of those that are held when they are too many."""
        waits = np.flatnonzero(~ready)
        size = sum(x.nbytes for x in (held.destination, held.text))
        hurried = np.zeros(len(held), np.bool_)
        if len(waits) > MAX_HELD or (size > MAX_HELD_BYTES and len(waits)):
            hurried[waits[: -(-len(waits) // 2)]] = True
            self.hurried_count += int(hurried.sum())
        return hurried

    def look_up(self, published: Published, delivered: Delivered) -> pa.Table | None:
        """The rows of deliveries behind which no publish comes that is older."""
        self._publish(published)
        return self._matched(delivered)

    def _matched(self, delivered: Delivered) -> pa.Table | None:
        if not len(delivered) or not (self._count or self._pushed_out):
            return None
        key, now = delivered.key, delivered.ts_ns
        count = np.zeros(len(key), np.int64)
        columns = {x.name: np.zeros(len(key), np.int64) for x in fields(Published)}
        for run in self._sorted():
            first, before = _earlier(run, key, now)
            count += before
            hit = np.flatnonzero(before > 0)
            for name, column in columns.items():
                column[hit] = getattr(run, name)[first[hit]]
        for gone in self._pushed_out:
            is_gone = gone[np.minimum(np.searchsorted(gone, key), len(gone) - 1)] == key
            self.missed_count += int(is_gone.sum())
            count[is_gone] += 1
        count[self._may_be_unseen(delivered) & (count > 0)] += 1
        sure = np.flatnonzero((count == 1) & (columns["key"] == key))
        self.doubtful_count += int((count > 1).sum())
        return self._rows(Published(**columns).taken(sure), delivered.taken(sure)) if len(sure) else None

    def _rows(self, publish: Published, delivered: Delivered) -> pa.Table:
        n = len(publish)
        return pa.table(
            {
                "protocol": constant(self.protocol, n).cast(pa.string()),
                "destination": delivered.destination,
                "key": delivered.text if self.rule.whole is None else self.rule.whole(delivered.text, publish.note),
                "publish_connection_id": publish.connection_id,
                "publish_offset": publish.offset,
                "deliver_connection_id": delivered.connection_id,
                "deliver_offset": delivered.offset,
                "publish_ts": microseconds(pa.array(publish.ts_ns)),
                "deliver_ts": microseconds(pa.array(delivered.ts_ns)),
                "publish_ts_ns": publish.ts_ns,
                "deliver_ts_ns": delivered.ts_ns,
                "latency_ns": delivered.ts_ns - publish.ts_ns,
                "how": constant(self.rule.how, n).cast(pa.string()),
            }
        )


@dataclass(frozen=True)
class _Rows(ColumnBatch):
    """Rows that publish or deliver."""

    table: pa.Table
    offset: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array
    length: Int64Array

    @staticmethod
    def of(table: pa.Table) -> "_Rows":
        """Rows whose places and times are columns."""
        return _Rows(table, *(table[name].to_numpy() for name in ("offset", "ts_ns", "end_ns", "offset")))


def _earlier(run: Published, key: Int64Array, now: Int64Array) -> tuple[Int64Array, Int64Array]:
    """For each key its first place in the run, and how many publishes of it were complete by then."""
    first = np.searchsorted(run.key, key)
    last = np.searchsorted(run.key, key, "right")
    before = last - first
    some = np.flatnonzero(before > 0)
    late = run.end_ns[last[some] - 1] > now[some]
    for k in some[late].tolist():  # equal publishes behind the delivery, in one window: rare
        before[k] = np.searchsorted(run.end_ns[first[k] : last[k]], now[k], "right")
    return first, before
