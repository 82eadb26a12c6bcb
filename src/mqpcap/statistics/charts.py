"""Numbers to charts: static SVG, drawn by matplotlib, to stand in a page.

Colours are CSS variables of the page, so that a drawing fits light and dark. matplotlib draws with stand-ins for them.
Names of operations may come from a capture: they are text and nothing else.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mqpcap.errors import OutputError
from mqpcap.wording import extra_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Stand-ins for colours: in no colour map, and all different.
INK, LINE, MESSAGES, ERRORS, P50, P95, P99 = (f"#0102{n:02x}" for n in range(1, 8))
VARIABLES = {INK: "ink", LINE: "line", MESSAGES: "messages", ERRORS: "errors", P50: "p50", P95: "p95", P99: "p99"}
DAY_NS = 86_400 * 10**9
WIDTH_INCHES = 9.6
Width = Literal["wide", "narrow"]
WIDTHS: Mapping[Width, float] = {"wide": WIDTH_INCHES, "narrow": 4.4}
"""Drawings for wide and narrow screens: inches. A wide drawing on a telephone is too small to read."""
NO_DRAWING = f"there is no matplotlib to draw with: {extra_line('report')}"
_SETTINGS = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check_drawing() -> None:
    """Raises OutputError if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise OutputError(NO_DRAWING) from error


def timeline(
    first_ns: int, step_ns: int, messages: NDArray[np.int64], errors: NDArray[np.int64], width: Width = "wide"
) -> str:
    """Messages and, below, errors of each step from ``first_ns`` on."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTHS[width], 3.2), layout="constrained")
        draw_timeline(figure, first_ns, step_ns, messages, errors, (MESSAGES, ERRORS))
        return _svg(figure, "timeline", width)


def draw_timeline(
    figure: "Figure | SubFigure",
    first_ns: int,
    step_ns: int,
    messages: NDArray[np.int64],
    errors: NDArray[np.int64],
    colours: tuple[str, str],
) -> None:
    """Draws bars of messages and, below, of errors into an empty figure, over the time of day in UTC."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    day, begin_s = first_ns // DAY_NS, first_ns % DAY_NS / 1e9
    step_s = step_ns / 1e9
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    middles_s = begin_s + (np.arange(len(messages)) + 0.5) * step_s
    for axes, values, colour, word in zip(
        (upper, lower), (messages, errors), colours, ("messages", "errors"), strict=True
    ):
        axes.bar(middles_s, values, step_s, color=colour)
        axes.set_ylabel(word)
        axes.set_ylim(0, max(1, int(values.max(initial=0))) * 1.05)
        axes.yaxis.get_major_locator().set_params(integer=True, nbins=4)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    span_s = max(len(messages), 1) * step_s
    upper.set_xlim(begin_s, begin_s + span_s)
    lower.xaxis.set_major_locator(MaxNLocator(nbins=max(int(figure.bbox.width / 140), 2)))
    lower.xaxis.set_major_formatter(FuncFormatter(lambda x, _: tick_text(day, x, span_s)))
    lower.set_xlabel(f"UTC, {datetime.fromtimestamp(first_ns // 10**9, UTC):%Y-%m-%d}")


def tick_text(day: int, seconds: float, span_s: float) -> str:
    """A time of day in UTC for an axis that spans a time; ``seconds``: since the midnight of a day since 1970.

    >>> tick_text(0, 3661.25, 1), tick_text(0, 90000, 600), tick_text(1, 90000, 200_000)
    ('01:01:01.250', '01:00:00', '01-03 01:00')
    """
    when = datetime.fromtimestamp(day * 86_400, UTC) + timedelta(seconds=seconds)
    if span_s > 86_400:
        return f"{when:%m-%d %H:%M}"
    return f"{when:%H:%M:%S}" if span_s >= 20 else f"{when:%H:%M:%S.%f}"[: -3 if span_s >= 0.02 else None]


def latencies(operations: Sequence[tuple[str, Sequence[float]]], width: Width = "wide") -> str:
    """A line from the median to the largest latency of each operation, on a logarithmic scale.

    operations: names, and p50, p95, p99 and the largest in milliseconds.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTHS[width], 1.1 + 0.3 * len(operations)), layout="constrained")
        draw_latencies(figure, operations, (LINE, P50, P95, P99, INK))
        return _svg(figure, "latencies", width)


def draw_latencies(
    figure: "Figure | SubFigure", operations: Sequence[tuple[str, Sequence[float]]], colours: Sequence[str]
) -> None:
    """Draws latencies into an empty figure; colours: of the line, p50, p95, p99 and the largest."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes: Axes = figure.subplots()
    least = 0.001  # a microsecond: a logarithm needs more than nothing
    for y, (_, values) in enumerate(operations):
        points = [max(x, least) for x in values]
        axes.plot([points[0], points[-1]], [y, y], color=colours[0], linewidth=2, zorder=1)
        for x, colour, marker, word in zip(points, colours[1:], "osD|", ("p50", "p95", "p99", "largest"), strict=True):
            axes.plot([x], [y], marker, color=colour, markersize=6, label=word if y == 0 else None, zorder=2)
    axes.set_xscale("log")
    axes.set_xlim(*_decades([x for _, values in operations for x in values], least))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(operations)), [name for name, _ in operations])
    axes.set_ylim(len(operations) - 0.5, -0.5)
    axes.set_xlabel("milliseconds from request to reply")
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper left", ncols=4, frameon=False, borderaxespad=0, columnspacing=1)


def _decades(values: Sequence[float], least: float) -> tuple[float, float]:
    """The powers of ten around some values, not the same one twice.

    >>> _decades([2, 30], 0.001), _decades([1, 1], 0.001)
    ((1.0, 100.0), (1.0, 10.0))
    """
    smallest, largest = max(min(values), least), max(max(values), least)
    low, high = math.floor(math.log10(smallest)), math.ceil(math.log10(largest))
    low -= 10.0**low > smallest  # the logarithm of a value just below a power of ten may be rounded up
    high += 10.0**high < largest
    return 10.0**low, 10.0 ** max(high, low + 1)


def _svg(figure: "Figure", name: str, width: Width) -> str:
    """The drawing as an element of a page, with the width as its class and ids that no other drawing has."""
    import matplotlib

    file = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^<>]*>", lambda tag: _of_the_page(tag[0], f"{name}-{width}"), svg)
    element = rf'<svg class="{width}" viewBox="\1" role="img" aria-label="{name}">'
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', element, svg, count=1)


def _of_the_page(tag: str, name: str) -> str:
    """A tag with ids of its drawing and colours of the page."""
    tag = re.sub(r'(\sid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", tag)
    for stand_in, variable in VARIABLES.items():
        tag = tag.replace(stand_in, f"var(--{variable})")
    return tag
