"""The reports of ``stats``: their counters, columns and rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mqpcap.errors import QueryError
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.delays import Delays
from mqpcap.statistics.groups import MAX_GROUPS, MAX_TIME_GROUPS, Groups, LikelyPairs, Sums
from mqpcap.statistics.keys import OF_MESSAGES
from mqpcap.statistics.lists import (
    Conversations,
    DeliveriesByTopic,
    DeliveryList,
    Errors,
    Hosts,
    RowList,
    Slowest,
    Talkers,
)
from mqpcap.statistics.report_columns import MAX_CELL, Cells, Column
from mqpcap.statistics.roles import BY as WHO
from mqpcap.statistics.roles import Consumers, Producers
from mqpcap.wording import plural, shown

MAX_EMPTY_INTERVALS = 100_000
"""With this number of intervals, empty intervals have no row of zeros."""
LATENCY = (
    Column("answered", "answered", "number", is_spare=True),
    Column("likely", "likely", "rare", is_spare=True),
    Column("latency_p50_ns", "p50 ms", "ms"),
    Column("latency_p95_ns", "p95 ms", "ms"),
    Column("latency_p99_ns", "p99 ms", "ms", is_spare=True),
    Column("latency_max_ns", "max ms", "ms", is_spare=True),
    Column("latency_exact", "", "flag"),
)
SERVER = (
    Column("server_p50_ns", "server p50 ms", "ms", is_spare=True),
    Column("server_p95_ns", "server p95 ms", "ms", is_spare=True),
    Column("server_p99_ns", "server p99 ms", "ms", is_spare=True),
)
"""Times from the last byte of a request to the first byte of its reply."""
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "count": (
        Column("messages", "messages", "number"),
        Column("messages_c2s", "from client", "number", is_spare=True),
        Column("messages_s2c", "from server", "number", is_spare=True),
    ),
    "bytes": (Column("bytes", "bytes", "number", is_spare=True),),
    "errors": (Column("errors", "errors", "number"),),
    "latency": (*LATENCY, *SERVER),
}
METRICS = tuple(COLUMNS)
PERCENTILES: Mapping[str, tuple[Column, ...]] = {
    name: (replace(column, is_spare=False), LATENCY[-1])
    for name, column in zip(("p50", "p95", "p99", "max"), LATENCY[2:6], strict=True)
}
"""Metrics that are single columns of latencies."""
FIRST = {"count": "messages", "bytes": "bytes", "errors": "errors", "latency": "latency_p99_ns"}
FIRST |= {name: columns[0].name for name, columns in PERCENTILES.items()}
"""The column that each metric sorts by."""
TITLES = {
    "op": "operation", "name": "client name", "client_ip": "client", "latency_p99_ns": "largest p99",
    "body_bytes": "body bytes", "asked": "asked for", "how": "evidence",
}  # fmt: skip
DEFAULT_BY = ("protocol", "op")
DRAWN_LATENCIES = ("latency_p50_ns", "latency_p95_ns", "latency_p99_ns", "latency_max_ns")
"""Columns of operations that are drawn."""
OF_LATENCY = frozenset({"latency", *PERCENTILES})
EXCHANGES_FOR = frozenset({"errors", *OF_LATENCY})


@dataclass(frozen=True, slots=True)
class StatsReport:
    """Counters with the columns and rows of their result, in a total order, and the groups that are bounded."""

    counters: Counters
    columns: Sequence[Column]
    rows: Callable[[], list[Cells]]
    sums: Sums | None = None
    noted: LikelyPairs | RowList | None = None
    more_notes: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its rows and notes; it counts no more."""
        return StatsReport, (Counters(), self.columns, partial(list, self.rows()), None, None, tuple(self.notes()))

    def notes(self) -> list[str]:
        """Notes on groups that were too many, and on pairs that are only likely."""
        notes = [*self.more_notes, *([] if self.sums is None else overflow_notes(self.sums))]
        return notes if self.noted is None else notes + self.noted.notes()


def stats_report(
    name: str | None, key_names: Sequence[str] | None, metrics: Sequence[str], interval_ns: int | None, max_rows: int
) -> StatsReport:
    """The report that has a name; without one metrics, all by default, by group or by time, else by operation."""
    if name is not None:
        if name not in READY:
            raise QueryError(f"{name!r} is no report; there are {', '.join(READY)}, or by= and metric=")
        keys = tuple(key_names or ())
        return (HOSTS if name == "talkers" and keys == ("host",) else READY[name]).report(keys, max_rows)
    default = DEFAULT_BY if interval_ns is None else ()
    return by_group(default if key_names is None else tuple(key_names), metrics or METRICS, interval_ns)


def key_columns(key_names: Sequence[str]) -> list[Column]:
    """The columns of a key."""
    return [Column(name, TITLES.get(name, name)) for name in key_names]


def order(key_names: Sequence[str], row: Cells) -> list[tuple[bool, str]]:
    """What sorts rows that are equal otherwise: their keys, what is missing last."""
    return [(row.get(name) is None, str(row.get(name))) for name in key_names]


def _sorted(rows: Sequence[Cells], sort_names: Sequence[str], key_names: Sequence[str]) -> list[Cells]:
    """The rows, those with the most in front."""
    return sorted(rows, key=lambda row: ([-number(row, name) for name in sort_names], order(key_names, row)))


def number(row: Cells, name: str) -> int:
    """A number of a row; -1 where it is missing."""
    value: Any = row.get(name)
    return -1 if value is None else int(value)


def drawn_latencies(operations: Sequence[Cells], name_length: int = MAX_CELL) -> list[tuple[str, list[float]]]:
    """Operations as `charts.latencies` takes them: names of at most ``name_length`` characters, and milliseconds."""
    has_several = len({row["protocol"] for row in operations}) > 1
    points = []
    for row in operations:
        operation = row["op"] or "unknown operation"
        name = shown(f"{row['protocol']} {operation}" if has_several else str(operation))
        name = name if len(name) <= name_length else name[: name_length - 1] + "…"
        points.append((f"{name} ({row['answered']:,})", [number(row, x) / 1e6 for x in DRAWN_LATENCIES]))
    return points


def overflow_notes(sums: Sums) -> list[str]:
    """A note if there were too many groups."""
    if not sums.other_count:
        return []
    rows = plural(sums.other_count, "row")
    return [f"{len(sums) - 1:,} groups are distinguished; {rows} of further groups count in (other)"]


def metric_names(words: Sequence[str]) -> tuple[str, ...]:
    """Metrics in any case, each once. Raises QueryError for another word.

    >>> metric_names(["P99", "count", "p99"])
    ('p99', 'count')
    """
    names = tuple(dict.fromkeys(word.strip().lower() for word in words))
    for name in names:
        if name not in FIRST:
            raise QueryError(f"{name!r} is no metric; there are {', '.join(FIRST)}")
    return names


def by_group(key_names: Sequence[str], metrics: Sequence[str], interval_ns: int | None = None) -> StatsReport:
    """Metrics by group, sorted by the first metric, the most first.

    With an interval in order of time; ungrouped, intervals without a message are there, too.
    """
    metrics = metric_names(metrics)
    pairs = not EXCHANGES_FOR.isdisjoint(metrics) or "topic" in key_names or not set(key_names) <= OF_MESSAGES.keys()
    groups = Groups(key_names, interval_ns, MAX_GROUPS if interval_ns is None else MAX_TIME_GROUPS, pairs)
    names = key_names if interval_ns is None else (*key_names, "start_ns")

    def rows() -> list[Cells]:
        group_rows: list[Cells] = [
            {
                **dict(zip(names, row.key, strict=False)),
                **row.sums,
                "messages_s2c": row.sums["messages"] - row.sums["messages_c2s"],
                "answered": row.latency.count,
                **row.latency.cells(),
                **{f"server_p{p}_ns": row.server_time.percentiles[p] for p in (50, 95, 99)},
            }
            for row in groups.rows()
        ]
        # A filter may select a reply and not its request: then only its exchange is in the request's group.
        named = ("messages", "errors") if interval_ns is None else ("messages", "errors", "answered")
        group_rows = [row for row in group_rows if any(row[name] for name in named)]
        if interval_ns is None:
            return _sorted(group_rows, [FIRST[x] for x in metrics], key_names)
        group_rows += [] if key_names else _empty(group_rows, interval_ns)
        return sorted(group_rows, key=lambda row: (number(row, "start_ns"), order(key_names, row)))

    of_metrics = (column for metric in metrics for column in {**COLUMNS, **PERCENTILES}[metric])
    columns = [*key_columns(key_names), *dict.fromkeys(of_metrics)]
    times = [] if interval_ns is None else [Column("start_ns", "from", "clock")]
    # Exchanges count only where a metric takes them.
    likely = LikelyPairs()
    counters = Counters(groups, likely, without=() if pairs else ("exchanges",))
    return StatsReport(
        counters, [*times, *columns], rows, groups.sums, None if OF_LATENCY.isdisjoint(metrics) else likely
    )


def _empty(rows: Sequence[Cells], interval_ns: int) -> list[Cells]:
    """Rows of zeros for the empty intervals."""
    start_times = {number(row, "start_ns") for row in rows}
    if not start_times or (max(start_times) - min(start_times)) // interval_ns >= MAX_EMPTY_INTERVALS:
        return []
    zeros = {"messages": 0, "messages_c2s": 0, "messages_s2c": 0, "bytes": 0, "errors": 0, "answered": 0, "likely": 0}
    every = range(min(start_times), max(start_times), interval_ns)
    return [{"start_ns": start_ns, **zeros} for start_ns in every if start_ns not in start_times]


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """A ready-made report: its counter, its columns besides the keys, and the columns that sort its rows.

    counter: of names to group by, and a number of rows; where ``order`` is empty its rows are in order. notes_likely:
    a note counts the latencies of likely pairs.
    """

    counter: Callable[[Sequence[str], int], Any]
    columns: tuple[Column, ...]
    order: tuple[str, ...] = ()
    notes_likely: bool = False

    def report(self, key_names: Sequence[str] = (), max_rows: int = 0) -> StatsReport:
        """The report, before anything is counted."""
        counter = self.counter(key_names, max_rows)
        keys, noted = getattr(counter, "key_names", ()), counter if hasattr(counter, "notes") else None
        noted = LikelyPairs() if self.notes_likely else noted
        counters = Counters(counter, *([noted] if self.notes_likely else []))
        columns = list({column.name: column for column in (*key_columns(keys), *self.columns)}.values())
        return StatsReport(
            counters, columns, lambda: _sorted(counter.rows(), self.order, keys), getattr(counter, "sums", None), noted
        )


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, TITLES.get(name, name), "number") for name in names)


_ARROWS = {"c2s": "->", "s2c": "<-"}


def _by_side(name: str, title: str, is_spare: bool) -> tuple[Column, ...]:
    """A number of each side of connections."""
    return tuple(Column(f"{name}_{x}", f"{title} {_ARROWS[x]}", "number", is_spare) for x in DIRECTIONS)


READY: Mapping[str, ReadyReport] = {
    "producers": ReadyReport(lambda keys, _: Producers(keys or WHO), _numbers(*Producers.names), Producers.names),
    "consumers": ReadyReport(lambda keys, _: Consumers(keys or WHO), _numbers(*Consumers.names), Consumers.names),
    "slowest": ReadyReport(lambda _, max_rows: Slowest(max_rows), (
        Column("latency_ns", "latency ms", "ms"), Column("server_ns", "server ms", "ms"),
        Column("protocol", "protocol"), Column("op", "operation"),
        Column("destination", "topic"), Column("status", "status", is_spare=True),
        Column("error_code", "code", is_spare=True),
        Column("client", "client"), Column("server", "server"), Column("request_file", "file", "file"),
        Column("request_packet", "request", "packet"), Column("reply_file", "reply in", "file"),
        Column("reply_packet", "reply", "packet"), Column("state", "state", is_spare=True),
        Column("how", "evidence", "flag"), Column("request_ts_ns", "asked at", "clock", is_spare=True),
        Column("capture", "", "flag"), Column("connection_id", "", "flag"),
    ), notes_likely=True),
    "errors": ReadyReport(lambda *_: Errors(), (
        Column("error_code", "code"), Column("error_text", "text"),
        Column("errors", "errors", "number"), Column("capture_file", "file", "file"),
        Column("first_packet", "first", "packet"), Column("first_ts_ns", "at", "clock", is_spare=True),
    ), ("errors",)),
    "deliveries": ReadyReport(lambda *_: DeliveriesByTopic(), (*_numbers("delivered", "again"), *LATENCY[2:]), (
        "delivered",
    )),
    "delays": ReadyReport(lambda *_: Delays(), (
        Column("connections", "handshakes", "number", is_spare=True),
        Column("rtt_to_client_ns", "client rtt ms", "ms"), Column("rtt_to_server_ns", "server rtt ms", "ms"),
        Column("answered", "answered", "number", is_spare=True), Column("reply_p50_ns", "reply ms", "ms"),
        Column("reply_p95_ns", "p95 ms", "ms", is_spare=True),
        Column("sending_p50_ns", "sending ms", "ms", is_spare=True),
        Column("server_p50_ns", "server ms", "ms"), Column("client_p50_ns", "client ms", "ms"),
    ), ("reply_p50_ns", "connections"), notes_likely=True),
    "talkers": ReadyReport(lambda keys, _: Talkers(("protocol", *(keys or ("client", "server")))), (
        Column("connections", "connections", "number", is_spare=True),
        *_by_side("messages", "messages", True), *_by_side("bytes", "bytes", False),
    ), ("payload",)),
    "connections": ReadyReport(lambda *_: Conversations(), (
        Column("capture", "file", "file"), Column("connection", "connection", "plain"),
        Column("client", "client", "plain"), Column("server", "server", "plain"), Column("protocol", "protocol"),
        Column("first_ts_ns", "from", "clock", is_spare=True), Column("duration_ns", "duration ms", "ms"),
        *_by_side("packets", "packets", True), *_by_side("bytes", "bytes", False), *_by_side("rate", "bytes/s", True),
        *_by_side("retransmitted_bytes", "sent again", True), *_by_side("missing_bytes", "missing", True),
        Column("end_state", "end", is_spare=True), Column("connection_id", "", "flag"),
    )),
    "delivery_list": ReadyReport(lambda *_: DeliveryList(), (
        Column("deliver_ts_ns", "delivered at", "clock", is_spare=True), Column("latency_ns", "latency ms", "ms"),
        Column("protocol", "protocol"), Column("topic", "topic"),
        Column("publish_client", "publisher"), Column("publish_file", "file", "file"),
        Column("publish_packet", "publish", "packet"),
        Column("deliver_client", "consumer"), Column("deliver_file", "delivered in", "file"),
        Column("deliver_packet", "delivery", "packet"), Column("again", "again", "rare"),
        Column("server", "server", is_spare=True), Column("how", TITLES["how"], is_spare=True),
        Column("publish_connection", "from", "plain", is_spare=True),
        Column("deliver_connection", "to", "plain", is_spare=True), Column("key", "key", is_spare=True),
        Column("publish_ts_ns", "", "flag"), Column("publish_connection_id", "", "flag"),
        Column("publish_offset", "", "flag"), Column("deliver_connection_id", "", "flag"),
        Column("deliver_offset", "", "flag"), Column("capture", "", "flag"),
    )),
}  # fmt: skip
HOSTS = ReadyReport(lambda *_: Hosts(), (
    Column("connections", "connections", "number", is_spare=True),
    *(Column(f"messages_{name}", f"messages {name}", "number", is_spare=True) for name in ("sent", "received")),
    *(Column(f"bytes_{name}", f"bytes {name}", "number") for name in ("sent", "received")),
), ("payload",))  # fmt: skip
"""Talkers by host."""
