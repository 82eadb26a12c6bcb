"""What ``stats`` is asked: what is counted for it, and the rows that tell it."""

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mqpcap.cli.console import plural
from mqpcap.cli.lines import clock
from mqpcap.cli.rows import Cells, Column, Form, sparkline
from mqpcap.statistics.counters import Counters
from mqpcap.statistics.delays import Delays
from mqpcap.statistics.groups import MAX_CELLS, PERCENTS, Groups, Key, Row, Sums
from mqpcap.statistics.latencies import Summary
from mqpcap.statistics.lists import Deliveries, Errors, Slowest, Talkers
from mqpcap.statistics.roles import BY as WHO
from mqpcap.statistics.roles import Consumers, Producers

MAX_EMPTY_INTERVALS = 100_000
"""Where there are so many intervals, those without a message have no row of zeros."""
LEAST_BARS, MOST_BARS = 10, 120
NUMBERS_WIDTH = 14
"""What a column takes beside the bars, about."""
LATENCY = (
    Column("answered", "answered", "number", is_spare=True),
    Column("latency_p50_ns", "p50 ms", "ms", is_spare=True),
    Column("latency_p95_ns", "p95 ms", "ms"),
    Column("latency_p99_ns", "p99 ms", "ms"),
    Column("latency_max_ns", "max ms", "ms", is_spare=True),
    Column("latency_exact", "", "flag"),
)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "count": (Column("messages", "messages", "number"),),
    "bytes": (Column("bytes", "bytes", "number", is_spare=True),),
    "errors": (Column("errors", "errors", "number"),),
    "latency": LATENCY,
}
FIRST = {"count": "messages", "bytes": "bytes", "errors": "errors", "latency": "latency_p99_ns"}
"""What a metric sorts by."""
TITLES = {"op": "operation", "name": "client name", "latency_p99_ns": "largest p99"}
METRICS = tuple(COLUMNS)
EXCHANGES_FOR = frozenset({"errors", "latency"})


class Question(ABC):
    """What is counted, and the rows that tell it."""

    counters: Counters

    @property
    @abstractmethod
    def columns(self) -> Sequence[Column]:
        """The columns of the rows."""

    @abstractmethod
    def rows(self) -> list[Cells]:
        """The rows in a total order."""

    def notes(self) -> list[str]:
        """What else the user has to know."""
        return []


def grouped(
    by: Sequence[str], metrics: Sequence[str], interval_ns: int | None, form: Form | None, utc: bool
) -> Question:
    """Metrics by group, all of them unless some are named; with an interval over time."""
    if interval_ns is None:
        return ByGroup(by, metrics or METRICS)
    if form is None and sys.stdout.isatty():
        return Bars(by, metrics or METRICS[:1], interval_ns, utc)  # more leave bars no room
    return ByInterval(by, metrics or METRICS, interval_ns)


def ready_made(asked: str, by: Sequence[str], most: int) -> Question:
    """A question that has a name."""
    match asked:
        case "producers":
            return OfRole(Producers(by or WHO))
        case "consumers":
            return OfRole(Consumers(by or WHO))
        case "errors":
            return OfErrors()
        case "deliveries":
            return OfDeliveries()
        case "delays":
            return OfDelays()
        case "talkers":
            return OfTalkers()
    return OfSlowest(most)


def key_columns(by: Sequence[str]) -> list[Column]:
    """The columns of a key."""
    return [Column(name, TITLES.get(name, name)) for name in by]


def _named(by: Sequence[str], key: Key) -> dict[str, object]:
    """The values of a key by name; of what belongs to no group that is told apart, the first says so."""
    return dict(zip(by, key, strict=False))


def _order(by: Sequence[str], row: Cells) -> list[tuple[bool, str]]:
    """What sorts rows that are equal otherwise: their keys, what is missing last."""
    return [(row.get(name) is None, str(row.get(name))) for name in by]


def _sorted(rows: Sequence[Cells], first: Sequence[str], by: Sequence[str]) -> list[Cells]:
    """The rows, those with the most in front."""
    return sorted(rows, key=lambda row: ([-_number(row, name) for name in first], _order(by, row)))


def _number(row: Cells, name: str) -> int:
    value: Any = row.get(name)
    return -1 if value is None else int(value)


def _counted(row: Row) -> dict[str, object]:
    """The metrics of a group as cells."""
    return {**row.sums, "answered": row.latency.count, **_latencies(row.latency)}


def _latencies(of: Summary) -> dict[str, object]:
    words = {50: "p50", 95: "p95", 99: "p99", 100: "max"}
    latencies = {f"latency_{words[percent]}_ns": of.percentiles[percent] for percent in PERCENTS}
    return {**latencies, "latency_exact": None if of.is_exact else False}


def beyond(sums: Sums) -> list[str]:
    """What is said where there were too many groups."""
    if not sums.other_count:
        return []
    rows = plural(sums.other_count, "row")
    return [f"{len(sums) - 1:,} groups are told apart; {rows} of further ones count in (other)"]


class ByGroup(Question):
    """Metrics by group."""

    def __init__(self, by: Sequence[str], metrics: Sequence[str]) -> None:
        pairs = not EXCHANGES_FOR.isdisjoint(metrics)
        self._by, self._metrics, self._groups = by, metrics, Groups(by, errors=pairs)
        self.counters = Counters(self._groups, without=() if pairs else ("exchanges",))

    @property
    def columns(self) -> Sequence[Column]:
        """Key and metrics."""
        return [*key_columns(self._by), *(column for metric in self._metrics for column in COLUMNS[metric])]

    def rows(self) -> list[Cells]:
        """Sorted by the first metric, the most first."""
        # A filter may select a reply and not its request: then only its exchange is in the request's group.
        some = (row for row in self._groups.rows() if row.sums["messages"] or row.sums["errors"])
        rows = [_named(self._by, row.key) | _counted(row) for row in some]
        return _sorted(rows, [FIRST[metric] for metric in self._metrics], self._by)

    def notes(self) -> list[str]:
        """Groups beyond the bound."""
        return beyond(self._groups.sums)


class ByInterval(Question):
    """Metrics by interval and group."""

    def __init__(self, by: Sequence[str], metrics: Sequence[str], interval_ns: int) -> None:
        self._by, self._metrics, self._interval_ns = by, metrics, interval_ns
        pairs = not EXCHANGES_FOR.isdisjoint(metrics)
        self._cells = Groups(by, interval_ns, MAX_CELLS, errors=pairs)
        self.counters = Counters(self._cells, without=() if pairs else ("exchanges",))

    @property
    def columns(self) -> Sequence[Column]:
        """When the interval begins, key and metrics."""
        metrics = (column for metric in self._metrics for column in COLUMNS[metric])
        return [Column("start_ns", "from", "clock"), *key_columns(self._by), *metrics]

    def rows(self) -> list[Cells]:
        """In order of time; where nothing is grouped, intervals without a message are there, too."""
        names = (*self._by, "start_ns")
        rows: list[Cells] = [_named(names, row.key) | _counted(row) for row in self._cells.rows()]
        if not self._by:
            rows = self._with_empty(rows)
        return sorted(rows, key=lambda row: (_number(row, "start_ns"), _order(self._by, row)))

    def _with_empty(self, rows: list[Cells]) -> list[Cells]:
        there = {_number(row, "start_ns") for row in rows}
        if not there or (max(there) - min(there)) // self._interval_ns >= MAX_EMPTY_INTERVALS:
            return rows
        zeros = {"messages": 0, "bytes": 0, "errors": 0, "answered": 0}
        every = range(min(there), max(there), self._interval_ns)
        return rows + [{"start_ns": start_ns, **zeros} for start_ns in every if start_ns not in there]

    def notes(self) -> list[str]:
        """Intervals beyond the bound."""
        return beyond(self._cells.sums)


class Bars(ByGroup):
    """Metrics by group, with a bar for each interval behind them."""

    def __init__(self, by: Sequence[str], metrics: Sequence[str], interval_ns: int, utc: bool) -> None:
        super().__init__(by, metrics)
        self._series, self._interval_ns, self._utc = ByInterval(by, metrics, interval_ns), interval_ns, utc
        self._title = ""
        self.counters += self._series.counters

    @property
    def columns(self) -> Sequence[Column]:
        """Key, metrics and bars."""
        return [*super().columns, Column("bars", self._title, "plain")]

    def rows(self) -> list[Cells]:
        """Sorted by the first metric, the most first."""
        first = FIRST[self._metrics[0]]
        rows, cells = super().rows(), self._series.rows()
        if not rows:
            return rows
        times = [_number(row, "start_ns") for row in cells]
        begin_ns, end_ns = min(times), max(times) + self._interval_ns
        count = (end_ns - begin_ns) // self._interval_ns
        room = shutil.get_terminal_size().columns - NUMBERS_WIDTH * len(super().columns)
        together = -(-count // max(LEAST_BARS, min(MOST_BARS, room)))
        step_ns = together * self._interval_ns
        ends = f"{clock(begin_ns, self._utc, False)} to {clock(end_ns, self._utc, False)}"
        self._title = f"{TITLES.get(first, first)} per {_span(step_ns)}, {ends}"
        heights: dict[tuple[object, ...], list[int]] = {}
        for row in cells:
            bars = heights.setdefault(tuple(row.get(name) for name in self._by), [0] * (-(-count // together)))
            at = (_number(row, "start_ns") - begin_ns) // step_ns
            value = max(_number(row, first), 0)
            bars[at] = max(bars[at], value) if first.endswith("_ns") else bars[at] + value
        plain = "utf" not in (sys.stdout.encoding or "").lower()
        return [
            {**row, "bars": sparkline(heights.get(tuple(row.get(name) for name in self._by), []), plain)}
            for row in rows
        ]


def _span(time_ns: int) -> str:
    """A time as it is written in an option."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if time_ns % size == 0:
            return f"{time_ns // size:,}{unit}"
    return f"{time_ns:,}ns"


class OfRole(Question):
    """What producers or consumers do."""

    _TITLES = {"messages": "messages", "body_bytes": "body bytes", "errors": "errors", "asked": "asked for",
               "received": "received"}  # fmt: skip

    def __init__(self, role: Producers | Consumers) -> None:
        self._role = role
        self.counters = Counters(role)

    @property
    def columns(self) -> Sequence[Column]:
        """Key and counts."""
        counts = [Column(name, self._TITLES[name], "number") for name in self._role.names]
        return [*key_columns(self._role.sums.by), *counts]

    def rows(self) -> list[Cells]:
        """Those who do most first."""
        by, names = self._role.sums.by, self._role.names
        rows = [_named(by, key) | sums for key, sums in self._role.sums.sums().items() if any(sums.values())]
        return _sorted(rows, names, by)

    def notes(self) -> list[str]:
        """Groups beyond the bound."""
        return beyond(self._role.sums)


class OfErrors(Question):
    """What failed."""

    columns = (
        *key_columns(Errors.by), Column("error_code", "code"), Column("error_text", "text"),
        Column("errors", "errors", "number"), Column("capture_file", "file", "file"),
        Column("first_packet", "first", "packet"), Column("first_ts_ns", "at", "clock", is_spare=True),
    )  # fmt: skip

    def __init__(self) -> None:
        self._errors = Errors()
        self.counters = Counters(self._errors)

    def rows(self) -> list[Cells]:
        """The most frequent first."""
        names = (*Errors.by, "error_code", "error_text")
        rows = [
            _named(names, key)
            | {
                "errors": e.count,
                "capture_file": e.capture_file,
                "first_packet": e.packet,
                "first_ts_ns": e.first_ts_ns,
            }
            for key, e in self._errors.rows().items()
        ]
        return _sorted(rows, ["errors"], names)


class OfSlowest(Question):
    """The slowest requests."""

    columns = (
        Column("latency_ns", "latency ms", "ms"), Column("protocol", "protocol"), Column("op", "operation"),
        Column("destination", "topic"), Column("status", "status"), Column("error_code", "code"),
        Column("client", "client"), Column("server", "server"), Column("request_packet", "request", "packet"),
        Column("reply_packet", "reply", "packet"), Column("request_ts_ns", "asked at", "clock", is_spare=True),
        Column("capture", "capture", "file"), Column("connection_id", "", "flag"),
    )  # fmt: skip

    def __init__(self, most: int) -> None:
        self._slowest = Slowest(most)
        self.counters = Counters(self._slowest)

    def rows(self) -> list[Cells]:
        """The slowest first."""
        from mqpcap.statistics.keys import endpoint

        return [
            row | {end: endpoint(row[f"{end}_ip"], _number(row, f"{end}_port")) for end in ("client", "server")}
            for row in self._slowest.rows()
        ]


class OfTalkers(Question):
    """Who talks to whom."""

    columns = (
        *key_columns(("protocol", "client", "server")), Column("connections", "connections", "number", is_spare=True),
        Column("messages_c2s", "messages ->", "number", is_spare=True),
        Column("messages_s2c", "messages <-", "number", is_spare=True),
        Column("bytes_c2s", "bytes ->", "number"), Column("bytes_s2c", "bytes <-", "number"),
    )  # fmt: skip

    def __init__(self) -> None:
        self._talkers = Talkers()
        self.counters = Counters(self._talkers)

    def rows(self) -> list[Cells]:
        """Those with the most payload first."""
        by = self._talkers.sums.by
        rows = [
            _named(by, key) | sums | {"payload": sums["bytes_c2s"] + sums["bytes_s2c"]}
            for key, sums in self._talkers.sums.sums().items()
        ]
        return _sorted(rows, ["payload"], by)

    def notes(self) -> list[str]:
        """Groups beyond the bound."""
        return beyond(self._talkers.sums)


class OfDeliveries(Question):
    """How long messages take through the server."""

    columns = (
        *key_columns(("protocol", "topic")), Column("how", "told by"), Column("delivered", "delivered", "number"),
        Column("again", "again", "number"), *LATENCY[1:],
    )  # fmt: skip

    def __init__(self) -> None:
        self._deliveries = Deliveries()
        self.counters = Counters(self._deliveries)

    def rows(self) -> list[Cells]:
        """The topics with the most deliveries first."""
        by, sums = self._deliveries.sums.by, self._deliveries.sums.sums().items()
        both = zip(sums, self._deliveries.summaries(), strict=True)
        return _sorted([_named(by, key) | some | _latencies(of) for (key, some), of in both], ["delivered"], by)

    def notes(self) -> list[str]:
        """Groups beyond the bound."""
        return beyond(self._deliveries.sums)


class OfDelays(Question):
    """Where time goes."""

    columns = (
        *key_columns(("client", "server")), Column("connections", "handshakes", "number", is_spare=True),
        Column("rtt_to_client_ns", "client rtt ms", "ms"), Column("rtt_to_server_ns", "server rtt ms", "ms"),
        Column("answered", "answered", "number", is_spare=True), Column("reply_p50_ns", "reply ms", "ms"),
        Column("reply_p95_ns", "p95 ms", "ms", is_spare=True), Column("server_p50_ns", "server ms", "ms"),
        Column("client_p50_ns", "client ms", "ms"),
    )  # fmt: skip

    def __init__(self) -> None:
        self._delays = Delays()
        self.counters = Counters(self._delays)

    def rows(self) -> list[Cells]:
        """The slowest replies first. The server's part is the median reply without the median round trip to it."""
        by, some = self._delays.sums.by, self._delays.summaries()
        out: list[Cells] = []
        for i, (key, sums) in enumerate(self._delays.sums.sums().items()):
            medians = {what: of[i].percentiles[50] for what, of in some.items()}
            reply, trip = medians["reply"], medians["to_server"]
            delays = {
                "rtt_to_client_ns": medians["to_client"], "rtt_to_server_ns": trip,
                "answered": some["reply"][i].count, "reply_p50_ns": reply,
                "reply_p95_ns": some["reply"][i].percentiles[95], "client_p50_ns": medians["client"],
                "server_p50_ns": None if reply is None or trip is None else max(reply - trip, 0),
            }  # fmt: skip
            out.append(_named(by, key) | sums | delays)
        return _sorted(out, ["reply_p50_ns", "connections"], by)

    def notes(self) -> list[str]:
        """Groups beyond the bound."""
        return beyond(self._delays.sums)
