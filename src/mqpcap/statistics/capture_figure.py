"""A figure of a capture for a notebook: messages and errors over time, and latencies by operation.

In: the tables ``messages`` and ``exchanges``. Out: a figure of matplotlib, which a notebook shows and any program can
change or save. Called by: ``Recording.plot``. The paper is white in light and dark notebooks.
"""

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa

from mqpcap.statistics.charts import WIDTH_INCHES, check_drawing, draw_latencies, draw_timeline
from mqpcap.statistics.reports import by_group, drawn_latencies, number
from mqpcap.statistics.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BARS = 160
MAX_OPERATIONS = 20
"""Operations with latencies that are drawn: those with most requests."""
MESSAGES, ERRORS = "#0969da", "#cf222e"
LATENCIES = ("#b8c0c8", "#0969da", "#9a6700", "#cf222e", "#1f2328")


def capture_figure(messages: pa.Table, exchanges: pa.Table) -> "Figure":
    """Messages and errors over time and, where requests were answered, latencies by operation.

    Raises OutputError if matplotlib is not installed.
    """
    check_drawing()
    from matplotlib.figure import Figure

    class Plot(Figure):  # type: ignore[misc]  # matplotlib's types are not used here
        """A figure that a notebook shows, also without pyplot."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    over_time = Timeline()
    over_time.take_messages(messages)
    step_ns, (message_counts, error_counts) = over_time.series(MAX_BARS)
    operations = _latencies(messages, exchanges)
    heights = [3.2, *([1.1 + 0.3 * len(operations)] if operations else [])]
    figure = Plot(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained", facecolor="white")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_timeline(parts[0], over_time.first_ns, step_ns, message_counts, error_counts, (MESSAGES, ERRORS))
    if operations:
        draw_latencies(parts[1], operations, LATENCIES)
    return figure


def _latencies(messages: pa.Table, exchanges: pa.Table) -> list[tuple[str, list[float]]]:
    """Operations, and p50, p95, p99 and the largest in milliseconds."""
    report = by_group(("protocol", "op"), ("latency",))
    report.counters.count("messages", messages)
    index = exchanges.column_names.index("status")  # errors, which move messages, are drawn over time
    report.counters.count("exchanges", exchanges.set_column(index, "status", pa.nulls(len(exchanges), pa.string())))
    groups = sorted((row for row in report.rows() if row["answered"]), key=lambda row: -number(row, "answered"))
    return drawn_latencies(groups[:MAX_OPERATIONS])
