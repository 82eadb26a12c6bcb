"""The reports of ``stats``: their counters, columns and rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mqpcap.errors import QueryError
from mqpcap.schema.protocol import DIRECTIONS
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.delays import Delays
from mqpcap.statistics.groups import (
    MAX_GROUPS,
    MAX_TIME_GROUPS,
    PERCENTS,
    Groups,
    Key,
    LikelyPairs,
    Sums,
)
from mqpcap.statistics.keys import OF_MESSAGES
from mqpcap.statistics.latencies import LatencySummary
from mqpcap.statistics.lists import Conversations, DeliveriesByTopic, DeliveryList, Errors, Hosts, Slowest, Talkers
from mqpcap.statistics.report_columns import MAX_CELL, Cells, Column
from mqpcap.statistics.roles import BY as WHO
from mqpcap.statistics.roles import Consumers, Producers
from mqpcap.tables.schemas import CONNECTION_NUMBER
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
    noted: LikelyPairs | Conversations | DeliveryList | None = None
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
        return named_report(name, tuple(key_names or ()), max_rows)
    default = DEFAULT_BY if interval_ns is None else ()
    return by_group(default if key_names is None else tuple(key_names), metrics or METRICS, interval_ns)


def named_report(asked: str, key_names: Sequence[str], max_rows: int) -> StatsReport:
    """The report that has a name."""
    reports: dict[str, Callable[[], StatsReport]] = {
        "producers": lambda: of_role(Producers(key_names or WHO)),
        "consumers": lambda: of_role(Consumers(key_names or WHO)),
        "slowest": lambda: of_slowest(max_rows), "errors": of_errors, "deliveries": of_deliveries, "delays": of_delays,
        "talkers": lambda: of_talkers(key_names), "connections": of_connections, "delivery_list": of_delivery_list,
    }  # fmt: skip
    if asked not in reports:
        raise QueryError(f"{asked!r} is no report; there are {', '.join(reports)}, or by= and metric=")
    return reports[asked]()


def key_columns(key_names: Sequence[str]) -> list[Column]:
    """The columns of a key."""
    return [Column(name, TITLES.get(name, name)) for name in key_names]


def _named(key_names: Sequence[str], key: Key) -> dict[str, object]:
    """The values of a key by name; the key of rows beyond the largest number of groups has a first value only."""
    return dict(zip(key_names, key, strict=False))


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


def _latencies(summary: LatencySummary) -> dict[str, object]:
    names = (column.name for column in LATENCY if column.kind == "ms")
    latencies = {name: summary.percentiles[percent] for name, percent in zip(names, PERCENTS, strict=True)}
    return {**latencies, "latency_exact": None if summary.is_exact else False}


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
                **_named(names, row.key),
                **row.sums,
                "messages_s2c": row.sums["messages"] - row.sums["messages_c2s"],
                "answered": row.latency.count,
                **_latencies(row.latency),
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


def _of_sums(
    counter: Producers | Consumers | Talkers | Hosts | DeliveriesByTopic | Delays,
    columns: Sequence[Column],
    sort_names: Sequence[str],
    extra_cells: Callable[[Sequence[Cells]], Iterable[Cells]] = lambda rows: [{}] * len(rows),
) -> StatsReport:
    """Sums by group, those with the most in front. ``more`` gives further cells of all groups."""
    sums = counter.sums

    def rows() -> list[Cells]:
        group_rows: list[Cells] = [_named(sums.by, key) | amounts for key, amounts in sums.sums().items()]
        pairs = zip(group_rows, extra_cells(group_rows), strict=True)
        return _sorted([{**row, **cells} for row, cells in pairs], sort_names, sums.by)

    return StatsReport(Counters(counter), [*key_columns(sums.by), *columns], rows, sums)


def of_role(role: Producers | Consumers) -> StatsReport:
    """What producers or consumers do, those who do most first."""
    names = role.names
    report = _of_sums(role, [Column(name, TITLES.get(name, name), "number") for name in names], names)
    return replace(report, rows=lambda: [row for row in report.rows() if any(row[name] for name in names)])


def of_errors() -> StatsReport:
    """What failed, the most frequent first."""
    errors, names = Errors(), (*Errors.by, "error_code", "error_text")

    def rows() -> list[Cells]:
        error_rows = [
            _named(names, key) | {
                "errors": e.count, "capture_file": e.capture_file, "first_packet": e.packet,
                "first_ts_ns": e.first_ts_ns,
            } for key, e in errors.rows().items()
        ]  # fmt: skip
        return _sorted(error_rows, ["errors"], names)

    columns = (
        *key_columns(Errors.by), Column("error_code", "code"), Column("error_text", "text"),
        Column("errors", "errors", "number"), Column("capture_file", "file", "file"),
        Column("first_packet", "first", "packet"), Column("first_ts_ns", "at", "clock", is_spare=True),
    )  # fmt: skip
    return StatsReport(Counters(errors), columns, rows)


def of_slowest(max_rows: int) -> StatsReport:
    """The slowest requests, the slowest first."""
    slowest = Slowest(max_rows)
    columns = (
        Column("latency_ns", "latency ms", "ms"),
        Column("server_ns", "server ms", "ms"),
        Column("protocol", "protocol"), Column("op", "operation"),
        Column("destination", "topic"), Column("status", "status", is_spare=True),
        Column("error_code", "code", is_spare=True),
        Column("client", "client"), Column("server", "server"), Column("request_file", "file", "file"),
        Column("request_packet", "request", "packet"), Column("reply_file", "reply in", "file"),
        Column("reply_packet", "reply", "packet"), Column("state", "state", is_spare=True),
        Column("how", "evidence", "flag"), Column("request_ts_ns", "asked at", "clock", is_spare=True),
        Column("capture", "", "flag"), Column("connection_id", "", "flag"),
    )  # fmt: skip
    likely = LikelyPairs()
    return StatsReport(Counters(slowest, likely), columns, slowest.rows, noted=likely)


def of_talkers(key_names: Sequence[str] = ()) -> StatsReport:
    """Traffic by client and server, or by host or port; the most payload first."""
    if tuple(key_names) == ("host",):
        names = ("sent", "received")
        columns = [Column("connections", "connections", "number", is_spare=True)]
        columns += [Column(f"messages_{name}", f"messages {name}", "number", is_spare=True) for name in names]
        columns += [Column(f"bytes_{name}", f"bytes {name}", "number") for name in names]
        return _of_sums(Hosts(), columns, ["payload"], partial(_payload, names))
    columns = [
        Column("connections", "connections", "number", is_spare=True),
        Column("messages_c2s", "messages ->", "number", is_spare=True),
        Column("messages_s2c", "messages <-", "number", is_spare=True),
        Column("bytes_c2s", "bytes ->", "number"), Column("bytes_s2c", "bytes <-", "number"),
    ]  # fmt: skip
    keys = ("protocol", "port") if tuple(key_names) == ("port",) else ("protocol", "client", "server")
    return _of_sums(Talkers(keys), columns, ["payload"], partial(_payload, DIRECTIONS))


def _payload(names: Sequence[str], rows: Sequence[Cells]) -> Iterator[Cells]:
    return ({"payload": sum(number(row, f"bytes_{name}") for name in names)} for row in rows)


def of_connections() -> StatsReport:
    """Single connections, the most payload first."""
    conversations = Conversations()

    def place(row: Cells) -> tuple[int, str, int]:
        size_bytes = sum(number(row, f"bytes_{side}") for side in DIRECTIONS)
        return -size_bytes, str(row["capture"]), number(row, CONNECTION_NUMBER)

    def rows() -> list[Cells]:
        return sorted(conversations.rows(), key=place)

    arrows = (("c2s", "->"), ("s2c", "<-"))
    sums = (("packets", "packets", True), ("bytes", "bytes", False), ("rate", "bytes/s", True),
            ("retransmitted_bytes", "sent again", True), ("missing_bytes", "missing", True))  # fmt: skip
    columns = (
        Column("capture", "file", "file"), Column("connection", "connection", "plain"),
        Column("client", "client", "plain"), Column("server", "server", "plain"), Column("protocol", "protocol"),
        Column("first_ts_ns", "from", "clock", is_spare=True), Column("duration_ns", "duration ms", "ms"),
        *(Column(f"{name}_{side}", f"{title} {arrow}", "number", is_spare=is_spare)
          for name, title, is_spare in sums for side, arrow in arrows),
        Column("end_state", "end", is_spare=True), Column("connection_id", "", "flag"),
    )  # fmt: skip
    return StatsReport(Counters(conversations), columns, rows, noted=conversations)


def of_deliveries() -> StatsReport:
    """How long messages take through the server, the topics with the most deliveries first."""
    deliveries = DeliveriesByTopic()
    columns = Column("delivered", "delivered", "number"), Column("again", "again", "number"), *LATENCY[2:]
    return _of_sums(deliveries, columns, ["delivered"], lambda _: map(_latencies, deliveries.summaries()))


def of_delivery_list() -> StatsReport:
    """Single deliveries, in order of time."""
    deliveries = DeliveryList()

    def rows() -> list[Cells]:
        return sorted(
            ({**row, "topic": row["destination"]} for row in deliveries.rows()),
            key=lambda row: (row["deliver_ts_ns"], row["capture"], row["deliver_connection_id"], row["deliver_offset"]),
        )

    columns = (
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
    )  # fmt: skip
    return StatsReport(Counters(deliveries), columns, rows, noted=deliveries)


def of_delays() -> StatsReport:
    """Delays by client and server, the slowest replies first.

    The server's part is the median time from a request's last byte to its reply, without the round trip.
    """
    delays = Delays()

    def more(rows: Sequence[Cells]) -> Iterator[Cells]:
        summaries = delays.summaries()
        for i in range(len(rows)):
            medians = {kind: kind_summaries[i].percentiles[50] for kind, kind_summaries in summaries.items()}
            server, trip = medians["server"], medians["to_server"]
            yield {
                "rtt_to_client_ns": medians["to_client"], "rtt_to_server_ns": trip, "reply_p50_ns": medians["reply"],
                "answered": summaries["reply"][i].count, "reply_p95_ns": summaries["reply"][i].percentiles[95],
                "sending_p50_ns": medians["sending"],
                "server_p50_ns": None if server is None or trip is None else max(server - trip, 0),
                "client_p50_ns": medians["client"],
            }  # fmt: skip

    columns = (
        Column("connections", "handshakes", "number", is_spare=True),
        Column("rtt_to_client_ns", "client rtt ms", "ms"), Column("rtt_to_server_ns", "server rtt ms", "ms"),
        Column("answered", "answered", "number", is_spare=True), Column("reply_p50_ns", "reply ms", "ms"),
        Column("reply_p95_ns", "p95 ms", "ms", is_spare=True),
        Column("sending_p50_ns", "sending ms", "ms", is_spare=True),
        Column("server_p50_ns", "server ms", "ms"),
        Column("client_p50_ns", "client ms", "ms"),
    )  # fmt: skip
    likely = LikelyPairs()
    report = _of_sums(delays, columns, ["reply_p50_ns", "connections"], more)
    return replace(report, counters=report.counters + Counters(likely), noted=likely)
