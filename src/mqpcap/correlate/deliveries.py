"""Finds the publish of each delivery, as deliveries complete.

In: publishes and deliveries, as messages or as pairs, and missing ranges of clients. Out: rows of ``deliveries``, with
the ``carried`` columns of both messages and of the request that a delivery answers. Called by: `Correlation`;
``spark.delivery_keys``.

`Deliveries` keeps the keys of the newest MAX_PUBLISHES publishes, by server. If exactly one publish has the key of a
delivery and was complete before the delivery began, the delivery came from it. With several publishes it is ambiguous
and has no row. Keys of evicted publishes stay for a while longer, so that the second of two equal publishes is not
taken for the only one. The table is sorted only when something is delivered: publishes without a delivery cost nothing.

A publish may be read after its delivery: bytes of its connection wait for others, or for evidence of their dialect. So
a delivery waits until no client of its server lags, and MAX_DELAY_NS longer. Rows do not depend on windows.

If a key is a content and no name (``DeliveryRule.lifetime_ns``), an equal publish may be among bytes that were not
captured. So a server has a doubtful time, from the first missing byte of its clients until the last missing message has
expired. A delivery in that time is ambiguous.

Clocks of two hosts, or a clock that is set back, may stamp a delivery before its publish. If a key is a name,
deliveries without an earlier publish are looked up once more at the end of the input, among all publishes.
"""

from dataclasses import field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import (
    ColumnBatch,
    Int64Array,
    append_columns,
    constant,
    factorize,
    group_ids,
    is_in,
    single_array,
    without_dictionary,
)
from mqpcap.correlate.batch import END_NS, Batch, Watermarks
from mqpcap.correlate.exchanges import Pairs, microseconds
from mqpcap.decode.proxy_header import Proxied
from mqpcap.records import dataclass
from mqpcap.schema.requests import DeliveryRule, Fingerprints, Keys

MAX_PUBLISHES = 1 << 19
"""Publishes that a delivery is looked up in; about 56 bytes each."""
MAX_EVICTED_KEYS = 1 << 21
"""Keys of evicted publishes, which make deliveries ambiguous; 8 bytes each."""
MAX_RUNS = 8
"""Sorted runs of publishes; with more, the small ones are merged."""
MAX_DELAY_NS = 200_000_000
"""The longest delay of a reply to a publish, and of a TCP acknowledgement.

Deliveries wait this long for publishes that are read later, and for clients that lag. A publish may be delivered before
its reply. A client may have sent bytes before the first message of a late start.
"""
MAX_WAITING_DELIVERIES = 1 << 17
"""Deliveries that wait; with more, the older half is looked up among the publishes that were read."""
MAX_WAITING_BYTES = 32 << 20
MAX_SERVERS = 1 << 16
"""Servers with a doubtful time of their own; further servers share one."""
MAX_DOUBTFUL_TIMES = 8
"""Times of a server that are far apart; with more, the first two become one."""
OTHER_SERVERS = 0
"""In place of the number of a server: all further servers."""
MAX_CLOCK_DIFFERENCE_NS = 3_600_000_000_000
"""Clocks of hosts differ by less: a name that is published later than that is another message."""
_PLACE = ["connection_id", "server_ip", "server_port"]
"""Columns that are read of a publish's row, beside its key."""
MISSING_RANGE = -1
"""In place of a publish's offset: a missing range that its client sent between ``ts_ns`` and ``end_ns``."""


@dataclass(frozen=True)
class Published(ColumnBatch):
    """Publishes that deliveries may come from; none is delivered before its ``end_ns``.

    note       a number of the protocol's.
    carried    columns that rows of ``deliveries`` carry of the publish, by END.TABLE.COLUMN.
    """

    key: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array
    connection_id: Int64Array
    offset: Int64Array
    note: Int64Array
    carried: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.key)

    def sorted_by_key(self) -> "Published":
        """These publishes in order of key and time."""
        return self.taken(np.lexsort((self.end_ns, self.key)))


@dataclass(frozen=True)
class Delivered(ColumnBatch):
    """Deliveries whose publishes are looked up; ``text`` is the key as text, ``carried`` as in `Published`."""

    key: Int64Array
    ts_ns: Int64Array
    connection_id: Int64Array
    offset: Int64Array
    server: Int64Array
    destination: pa.Array
    text: pa.Array
    carried: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.key)


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one protocol; counts say which deliveries have no row."""

    protocol: str
    rule: DeliveryRule
    prints: Fingerprints
    missed_count: int = 0
    ambiguous_count: int = 0
    early_count: int = 0
    contradiction_count: int = 0
    """Deliveries that are stamped before their publishes, by ``clock_difference_ns`` at most."""
    clock_difference_ns: int = 0
    ambiguous_ids: list[Int64Array] | None = None
    """If a list, it gets the connection_id of each ambiguous delivery."""
    proxied: Proxied = field(default_factory=Proxied)
    """Connections whose messages are published and delivered on another connection, behind a proxy."""
    carried: tuple[str, ...] = ()
    """The columns that rows carry: END.TABLE.COLUMN of the ends ``publish``, ``deliver`` and ``request``, the request
    that a delivery answers."""
    _unsorted: list[Published] = field(default_factory=list)
    _runs: list[Published] = field(default_factory=list)
    _count: int = 0
    _evicted: list[Int64Array] = field(default_factory=list)
    """Keys of publishes that were evicted together, in order."""
    _waiting: list[Delivered] = field(default_factory=list)
    _unmatched: list[Delivered] = field(default_factory=list)
    """Deliveries without an earlier publish; MAX_WAITING_DELIVERIES of the newest."""
    _doubtful: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By server, when its clients sent missing bytes: mostly one time; two if no message of the first was alive."""

    # -- rows in -------------------------------------------------------------------------------------------

    def feed(self, batch: Batch | None, pairs: Pairs | None, missing: pa.Table | None = None) -> None:
        """Add messages and pairs, and ``missing`` ranges of clients, as `ends.MISSING_RANGES`."""
        if missing is not None and missing.num_rows:
            self._publish(self._missing_ranges(missing))
        messages = self._of_rows(batch, pairs)
        if messages is not None:
            published, delivered = messages
            self._publish(published)
            if len(delivered):
                self._waiting.append(delivered)
        if pairs is not None and self._waiting and self._names("request"):
            self._carry_requests(pairs)

    def _of_rows(self, batch: Batch | None, pairs: Pairs | None) -> tuple[Published, Delivered] | None:
        """The publishes and the deliveries of some rows."""
        rule = self.rule
        if rule.of_pairs:
            if pairs is None:
                return None
            pairs = pairs.certain()
            requests, replies = _MessageRows.of(pairs.requests), _MessageRows.of(pairs.replies)
            place = replies.table.column_names.index("destination")
            named = replies.table.set_column(place, "destination", requests.table["destination"])
            publishes, delivers = rule.keys(requests.table, named, self.prints)
            # A message may be delivered before the reply that names it comes.
            available_ns = np.maximum(requests.end_ns, replies.end_ns - MAX_DELAY_NS)
            requests, replies = replace(requests, end_ns=available_ns), replace(replies, table=named)
        elif batch is None:
            return None
        else:
            requests = replies = _MessageRows(batch.table, batch.offset, batch.ts_ns, batch.end_ns)
            publishes, delivers = rule.keys(batch.table, self.prints)
        publishes, delivers = self._once(publishes, requests.table), self._once(delivers, replies.table)
        names = [name.removeprefix("publish.") for name in self._names("publish")]
        requests = replace(requests, table=requests.table.select([*_PLACE, *names])).taken(publishes.rows)
        # Without lists: each delivery of a message would get all lists of the message.
        flat = [field.name for field in replies.table.schema if not pa.types.is_list(field.type)]
        replies = replace(replies, table=replies.table.select(flat)).taken(delivers.rows)
        return self._published(publishes, requests), self._delivered(delivers, replies)

    def _once(self, keys: Keys, table: pa.Table) -> Keys:
        """The keys but for those of messages that a proxy passes on."""
        is_near = self.proxied.is_near(table)
        if not is_near.any():
            return keys
        rows = np.flatnonzero(~is_near[keys.rows])
        return Keys(keys.rows[rows], keys.key[rows], None if keys.note is None else keys.note[rows])

    def _published(self, keys: Keys, rows: "_MessageRows") -> Published:
        # One number for all rows takes no memory until something is delivered.
        note = np.broadcast_to(np.int64(0), len(keys.rows)) if keys.note is None else keys.note
        key, ids = self._with_server(keys.key, self._servers(rows.table)), rows.table["connection_id"].to_numpy()
        return Published(key, rows.ts_ns, rows.end_ns, ids, rows.offset, note, self._carried("publish", rows.table))

    def _delivered(self, keys: Keys, rows: "_MessageRows") -> Delivered:
        note = np.zeros(len(keys.rows), np.int64) if keys.note is None else keys.note
        server, destination = self._servers(rows.table), single_array(rows.table["destination"]).cast(pa.string())
        ids, text = rows.table["connection_id"].to_numpy(), self.rule.text(rows.table, note)
        key = self._with_server(keys.key, server)
        carried = self._carried("deliver", rows.table)
        return Delivered(key, rows.ts_ns, ids, rows.offset, server, destination, single_array(text), carried)

    def _names(self, end: str) -> list[str]:
        """The carried columns of an end, those of this protocol."""
        tables = "messages", self.protocol
        return [x for x in self.carried if x.startswith(tuple(f"{end}.{table}." for table in tables))]

    def _carried(self, end: str, rows: pa.Table) -> pa.Table | None:
        """The carried columns of publishes, or of deliveries, whose requests are not known yet."""
        columns = {name: rows[name.removeprefix(f"{end}.")] for name in self._names(end)}
        for name in self._names("request") if end == "deliver" else ():
            columns[name] = pa.nulls(rows.num_rows, without_dictionary(rows[name.removeprefix("request.")]).type)
        return pa.table(columns) if columns else None

    def _carry_requests(self, pairs: Pairs) -> None:
        """Give the deliveries that wait the columns of their requests."""
        waiting = Delivered.joined(self._waiting)
        rows = np.flatnonzero(is_in(pairs.replies["direction"], "s2c"))
        replies, n = pairs.replies.take(pa.array(rows)), len(waiting)
        ids = np.append(waiting.connection_id, replies["connection_id"].to_numpy())
        offsets = np.append(waiting.offset, replies["offset"].to_numpy())
        keys = pa.array(group_ids([pa.array(ids), pa.array(offsets)], len(ids)))
        index, table = pc.index_in(keys[:n], keys[n:]), waiting.carried
        assert table is not None
        for name in self._names("request"):
            column = without_dictionary(pairs.requests[name.removeprefix("request.")]).take(pa.array(rows)).take(index)
            filled = pc.coalesce(column, single_array(table[name]))
            table = table.set_column(table.column_names.index(name), name, filled)
        self._waiting = [replace(waiting, carried=table)]

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

    def _missing_ranges(self, ranges: pa.Table) -> Published:
        """Missing ranges as publishes that may lie in them."""
        since_ns, until_ns, ids = (ranges[name].to_numpy() for name in ("since_ns", "until_ns", "connection_id"))
        marks = np.full(ranges.num_rows, MISSING_RANGE)
        return Published(self._servers(ranges), since_ns, until_ns, ids, marks, np.zeros(ranges.num_rows, np.int64))

    # -- publishes and missing ranges ----------------------------------------------------------------------

    def _publish(self, published: Published) -> None:
        """Add publishes; evicts the oldest if there are too many."""
        is_missing = published.offset == MISSING_RANGE
        if is_missing.any():
            self._note_missing(published.taken(np.flatnonzero(is_missing)))
            published = published.taken(np.flatnonzero(~is_missing))
        if not len(published):
            return
        self._unsorted.append(published)
        self._count += len(published)
        if self._count > MAX_PUBLISHES + MAX_PUBLISHES // 4:
            self._evict()

    def _evict(self) -> None:
        """Keep the keys of the oldest publishes only."""
        end_ns = np.concatenate([part.end_ns for part in (*self._runs, *self._unsorted)])
        cutoff = np.partition(end_ns, len(end_ns) - MAX_PUBLISHES - 1)[len(end_ns) - MAX_PUBLISHES - 1]
        evicted = []
        for parts in (self._runs, self._unsorted):
            for i, part in enumerate(parts):
                old = part.end_ns <= cutoff
                if old.any():
                    evicted.append(part.key[old])
                    parts[i] = part.taken(np.flatnonzero(~old))
            parts[:] = [part for part in parts if len(part)]
        self._evicted.append(np.sort(np.concatenate(evicted)))
        self._count -= len(self._evicted[-1])
        while sum(map(len, self._evicted)) > MAX_EVICTED_KEYS:
            del self._evicted[0]

    def _sorted(self) -> list[Published]:
        if self._unsorted:
            self._runs.append(Published.joined(self._unsorted).sorted_by_key())
            self._unsorted = []
            while len(self._runs) > MAX_RUNS or (len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2])):
                self._runs.append(Published.joined([self._runs.pop(), self._runs.pop()]).sorted_by_key())
        return self._runs

    def _note_missing(self, ranges: Published) -> None:
        """Note when clients sent missing bytes. Times whose deliveries overlap become one."""
        lifetime_ns = self.rule.lifetime_ns or 0
        columns = (ranges.key, ranges.ts_ns, ranges.end_ns)
        for server, since_ns, until_ns in zip(*(x.tolist() for x in columns), strict=True):
            if server not in self._doubtful and len(self._doubtful) >= MAX_SERVERS:
                server = OTHER_SERVERS
            times: list[tuple[int, int]] = []
            for time in sorted([*self._doubtful.get(server, ()), (since_ns, until_ns)]):
                if times and (time[0] <= times[-1][1] + lifetime_ns):
                    times[-1] = times[-1][0], max(times[-1][1], time[1])
                else:
                    times.append(time)
            if len(times) > MAX_DOUBTFUL_TIMES:
                times[:2] = [(times[0][0], times[1][1])]
            self._doubtful[server] = times

    def _may_be_missing(self, delivered: Delivered) -> NDArray[np.bool_]:
        """Whether the publish of a delivery may be among missing bytes."""
        if not self._doubtful:
            return np.zeros(len(delivered), np.bool_)
        servers, codes = factorize(delivered.server)
        times = np.full((len(servers), MAX_DOUBTFUL_TIMES, 2), END_NS)
        for i, server in enumerate(servers.tolist()):
            doubtful = self._doubtful.get(server) or self._doubtful.get(OTHER_SERVERS, [])
            times[i, : len(doubtful)] = np.array(doubtful, np.int64).reshape(-1, 2)
        since_ns, until_ns = times[codes].T
        is_doubtful = since_ns < delivered.ts_ns
        is_doubtful &= delivered.ts_ns - until_ns <= (self.rule.lifetime_ns or 0)
        any_doubtful: NDArray[np.bool_] = is_doubtful.any(0)
        return any_doubtful

    # -- rows out ------------------------------------------------------------------------------------------

    def ready(self, watermarks: Watermarks) -> pa.Table | None:
        """Rows of deliveries that no later message can change."""
        rows = self._ready(watermarks) if self._waiting else None
        late = self.stamped_early() if watermarks.newest_ns == END_NS else None
        return late if rows is None else rows if late is None else pa.concat_tables([rows, late])

    def _ready(self, watermarks: Watermarks) -> pa.Table | None:
        waiting = Delivered.joined(self._waiting)
        until_ns = np.full(len(waiting), watermarks.newest_ns - (MAX_DELAY_NS if watermarks.newest_ns < END_NS else 0))
        if watermarks.lagging_since_ns:
            names, ports = zip(*watermarks.lagging_since_ns, strict=True)
            servers = self._servers(pa.table({"server_ip": pa.array(names), "server_port": pa.array(ports)}))
            since_ns = np.array(list(watermarks.lagging_since_ns.values()), np.int64)
            order = np.lexsort((since_ns, servers))
            servers, first_indexes = np.unique(servers[order], return_index=True)
            index = np.minimum(np.searchsorted(servers, waiting.server), len(servers) - 1)
            rows = np.flatnonzero(servers[index] == waiting.server)
            # A client that lags sent its missing bytes earlier than the packet that shows that they are missing.
            until_ns[rows] = np.minimum(until_ns[rows], since_ns[order][first_indexes][index[rows]] - MAX_DELAY_NS)
        ready = waiting.ts_ns < until_ns
        ready |= self._decided_early(waiting, ready)
        self._waiting = [] if ready.all() else [waiting.taken(np.flatnonzero(~ready))]
        return self._matched(waiting.taken(np.flatnonzero(ready)))

    def _decided_early(self, waiting: Delivered, ready: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The older half of the deliveries that wait, if they are too many."""
        waits = np.flatnonzero(~ready)
        size = sum(x.nbytes for x in (waiting.destination, waiting.text, waiting.carried) if x is not None)
        is_early = np.zeros(len(waiting), np.bool_)
        if len(waits) > MAX_WAITING_DELIVERIES or (size > MAX_WAITING_BYTES and len(waits)):
            is_early[waits[: -(-len(waits) // 2)]] = True
            self.early_count += int(is_early.sum())
        return is_early

    def look_up(self, published: Published, delivered: Delivered) -> pa.Table | None:
        """Rows of deliveries; all publishes before them were added."""
        self._publish(published)
        return self._matched(delivered)

    def _matched(self, delivered: Delivered) -> pa.Table | None:
        if not len(delivered):
            return None
        count, place, publishes = self._looked_up(delivered.key, delivered.ts_ns)
        count[self._may_be_missing(delivered) & (count > 0)] += 1
        self.ambiguous_count += int((count > 1).sum())
        if self.ambiguous_ids is not None:
            self.ambiguous_ids.append(delivered.connection_id[count > 1])
        is_gone = self._is_evicted(delivered.key)
        self.missed_count += int(is_gone.sum())
        if self.rule.lifetime_ns is None and not count.all():
            self._unmatched.append(delivered.taken(np.flatnonzero((count == 0) & ~is_gone)))
            while sum(map(len, self._unmatched[1:])) > MAX_WAITING_DELIVERIES:
                del self._unmatched[0]
        certain = np.flatnonzero((count == 1) & ~is_gone)
        if not len(certain):
            return None
        return self._rows(Published.joined(publishes).taken(place[certain]), delivered.taken(certain))

    def _looked_up(self, key: Int64Array, until_ns: Int64Array) -> tuple[Int64Array, Int64Array, list[Published]]:
        """By key the number of publishes that were complete at a time, and the place of the last in a list."""
        count, place = np.zeros((2, len(key)), np.int64)
        publishes: list[Published] = []
        for run in self._sorted():
            first_indexes, counts = _earlier(run, key, until_ns)
            count += counts
            rows = np.flatnonzero(counts > 0)
            place[rows] = np.arange(len(rows)) + sum(map(len, publishes))
            publishes += [run.taken(first_indexes[rows])] if len(rows) else []
        return count, place, publishes

    def _is_evicted(self, key: Int64Array) -> NDArray[np.bool_]:
        """Whether a publish of each key was evicted."""
        is_gone = np.zeros(len(key), np.bool_)
        for evicted in self._evicted:
            is_gone |= evicted[np.minimum(np.searchsorted(evicted, key), len(evicted) - 1)] == key
        return is_gone

    def stamped_early(self) -> pa.Table | None:
        """At the end of the input: rows of deliveries that are stamped before the only publish of their name."""
        if not self._unmatched:
            return None
        delivered, self._unmatched = Delivered.joined(self._unmatched), []
        count, place, found = self._looked_up(delivered.key, np.full(len(delivered), END_NS))
        certain = np.flatnonzero((count == 1) & ~self._is_evicted(delivered.key))
        if not len(certain):
            return None
        publishes, delivered = Published.joined(found).taken(place[certain]), delivered.taken(certain)
        difference_ns = publishes.ts_ns - delivered.ts_ns
        early = np.flatnonzero((difference_ns > 0) & (difference_ns < MAX_CLOCK_DIFFERENCE_NS))
        if not len(early):
            return None
        self.contradiction_count += len(early)
        self.clock_difference_ns = max(self.clock_difference_ns, int(difference_ns[early].max()))
        return self._rows(publishes.taken(early), delivered.taken(early))

    def _rows(self, publish: Published, delivered: Delivered) -> pa.Table:
        n, latency_ns = len(publish), delivered.ts_ns - publish.ts_ns
        rows = pa.table(
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
                "latency_ns": pa.array(latency_ns, mask=latency_ns < 0),
                "how": constant(self.rule.how, n).cast(pa.string()),
            }
        )
        carried = [table for table in (publish.carried, delivered.carried) if table is not None]
        return append_columns(rows, {name: table[name] for table in carried for name in table.column_names})


@dataclass(frozen=True)
class _MessageRows(ColumnBatch):
    """Rows that publish or deliver."""

    table: pa.Table
    offset: Int64Array
    ts_ns: Int64Array
    end_ns: Int64Array

    @staticmethod
    def of(table: pa.Table) -> "_MessageRows":
        """Rows whose places and times are columns."""
        return _MessageRows(table, *(table[name].to_numpy() for name in ("offset", "ts_ns", "end_ns")))


def _earlier(run: Published, key: Int64Array, deliver_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
    """By key, the index of its first publish in the run, and how many of its publishes were complete at a time."""
    start = np.searchsorted(run.key, key)
    end = np.searchsorted(run.key, key, "right")
    counts = end - start
    rows = np.flatnonzero(counts > 0)
    is_late = run.end_ns[end[rows] - 1] > deliver_ns[rows]
    for k in rows[is_late].tolist():  # equal publishes after the delivery, in one window: rare
        counts[k] = np.searchsorted(run.end_ns[start[k] : end[k]], deliver_ns[k], "right")
    return start, counts
