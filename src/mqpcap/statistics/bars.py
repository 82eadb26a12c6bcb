"""Reports over time as bars: one bar per interval and group.

In: what `by_group` takes, and the width of a line. Out: a `StatsReport` with a column of bars. Called by: ``stats``.
"""

from collections import defaultdict
from collections.abc import Sequence

from mqpcap.statistics.report_columns import Cells, Column
from mqpcap.statistics.reports import FIRST, TITLES, StatsReport, by_group, number, order
from mqpcap.wording import clock

LEAST_BARS, MOST_BARS = 10, 120
MOST_LINES = 30
"""Intervals that have a line each, with their numbers, if there are no groups; more have a bar each on one line."""
LONG_BAR = 20
"""Characters of the longest bar beside the numbers of an interval."""
BARS = " ▁▂▃▄▅▆▇█"
BARS_ASCII = " .:-=+*#@"
NUMBERS_WIDTH = 14
"""Width of a column beside the bars, about."""


def bars(
    key_names: Sequence[str], metrics: Sequence[str], interval_ns: int, utc: bool, width: int, is_ascii: bool
) -> StatsReport:  # fmt: skip
    """Metrics by group, followed by a bar for each interval."""
    groups, series = by_group(key_names, metrics), by_group(key_names, metrics, interval_ns)
    first_metric, columns = FIRST[metrics[0]], list(groups.columns)

    def rows() -> list[Cells]:
        group_rows, cells = groups.rows(), series.rows()
        if not group_rows:
            return group_rows
        times = [number(row, "start_ns") for row in cells]
        begin_ns, end_ns = min(times), max(times) + interval_ns
        count = (end_ns - begin_ns) // interval_ns
        if not key_names and count <= MOST_LINES:
            columns[:] = [*series.columns, _long_bars(cells, first_metric)]
            return [{**row, "bars": _long_bar(row, cells, first_metric, is_ascii)} for row in cells]
        room = width - NUMBERS_WIDTH * len(columns)
        together = -(-count // max(LEAST_BARS, min(MOST_BARS, room)))
        step_ns = together * interval_ns
        shown = slice(8 if interval_ns % 1_000_000_000 == 0 else 12)  # the fraction only where intervals have one
        ends = f"{clock(begin_ns, utc, False)[shown]} to {clock(end_ns, utc, False)[shown]}"
        heights: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (-(-count // together)))
        for row in cells:
            high, bar_index = heights[str(order(key_names, row))], (number(row, "start_ns") - begin_ns) // step_ns
            value = max(number(row, first_metric), 0)
            high[bar_index] = max(high[bar_index], value) if first_metric.endswith("_ns") else high[bar_index] + value
        largest = max((max(high) for high in heights.values()), default=0)
        title = f"{_amount(first_metric, largest)} per {_span(step_ns)} at most, {ends}"
        columns.append(Column("bars", title, "plain"))
        return [
            {**row, "bars": sparkline(heights[str(order(key_names, row))], is_ascii, largest)} for row in group_rows
        ]

    return StatsReport(groups.counters + series.counters, columns, rows, groups.sums)


def _long_bars(cells: Sequence[Cells], metric: str) -> Column:
    """The column of bars beside numbers; its title names the largest number."""
    return Column("bars", f"most {_amount(metric, max((number(row, metric) for row in cells), default=0))}", "plain")


def _long_bar(row: Cells, cells: Sequence[Cells], metric: str, is_ascii: bool) -> str:
    largest = max(number(other_row, metric) for other_row in cells)
    length = max(number(row, metric), 0) * LONG_BAR // largest if largest > 0 else 0
    return ("#" if is_ascii else "█") * max(length, int(number(row, metric) > 0))


def _amount(metric: str, value: int) -> str:
    """A number with the name of its metric; times in milliseconds."""
    name = TITLES.get(metric, metric).removeprefix("largest ")
    return f"{name} {value / 1e6:,.3f} ms" if metric.endswith("_ns") else f"{value:,} {name}"


def _span(time_ns: int) -> str:
    """A time as it is written in an option."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if time_ns % size == 0:
            return f"{time_ns // size:,}{unit}"
    return f"{time_ns:,}ns"


def sparkline(values: Sequence[int], is_ascii: bool = False, largest: int | None = None) -> str:
    """A bar for each value, as high as the largest allows; a blank for nothing.

    largest: that of a scale which several lines have in common.

    >>> sparkline([0, 1, 4, 8]), sparkline([4], largest=8)
    (' ▁▄█', '▄')
    """
    bars, largest = BARS_ASCII if is_ascii else BARS, max(values, default=0) if largest is None else largest
    return "".join(bars[0 if value <= 0 else max(1, value * 8 // largest)] for value in values)
