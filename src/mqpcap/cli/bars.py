"""Reports over time as bars on a terminal: one bar per interval and group."""

import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence

from mqpcap.cli.rows import Form, sparkline
from mqpcap.statistics.report_columns import Cells, Column
from mqpcap.statistics.reports import FIRST, METRICS, TITLES, Question, by_group, number, order
from mqpcap.wording import clock

LEAST_BARS, MOST_BARS = 10, 120
NUMBERS_WIDTH = 14
"""Width of a column beside the bars, about."""


def grouped(
    key_names: Sequence[str], metrics: Sequence[str], interval_ns: int | None, form: Form | None, utc: bool
) -> Question:
    """Metrics by group, all metrics by default; with an interval by time, too."""
    if interval_ns is not None and form is None and sys.stdout.isatty():
        return bars(key_names, metrics or METRICS[:1], interval_ns, utc)  # more leave bars no room
    return by_group(key_names, metrics or METRICS, interval_ns)


def bars(key_names: Sequence[str], metrics: Sequence[str], interval_ns: int, utc: bool) -> Question:
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
        room = shutil.get_terminal_size().columns - NUMBERS_WIDTH * len(columns)
        together = -(-count // max(LEAST_BARS, min(MOST_BARS, room)))
        step_ns = together * interval_ns
        ends = f"{clock(begin_ns, utc, False)} to {clock(end_ns, utc, False)}"
        title = f"{TITLES.get(first_metric, first_metric)} per {_span(step_ns)}, {ends}"
        columns.append(Column("bars", title, "plain"))
        heights: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (-(-count // together)))
        for row in cells:
            high, bar_index = heights[str(order(key_names, row))], (number(row, "start_ns") - begin_ns) // step_ns
            value = max(number(row, first_metric), 0)
            high[bar_index] = max(high[bar_index], value) if first_metric.endswith("_ns") else high[bar_index] + value
        plain = "utf" not in (sys.stdout.encoding or "").lower()
        return [{**row, "bars": sparkline(heights[str(order(key_names, row))], plain)} for row in group_rows]

    return Question(groups.counters + series.counters, columns, rows, groups.sums)


def _span(time_ns: int) -> str:
    """A time as it is written in an option."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if time_ns % size == 0:
            return f"{time_ns // size:,}{unit}"
    return f"{time_ns:,}ns"
