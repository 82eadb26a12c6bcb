"""The traces of ``follow --message``: a published message, its deliveries, and the acknowledgements of these."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mqpcap.cli.console import coloured, put, width_of
from mqpcap.cli.lines import ROOMY_WIDTH, Paint, Style, body_of, line
from mqpcap.listing.message_words import latency
from mqpcap.tables.json_lines import json_text
from mqpcap.wording import endpoint, plural

if TYPE_CHECKING:
    from mqpcap.listing.tracing import Step, Trace, TracedDelivery

STEP_WIDTH = 30
"""Columns of the words before a line: the step, and the time since the step before."""
INDENT = "    "


def write_traces(
    traces: "Sequence[Trace]", as_json: bool, times: Callable[[int], str] | None, utc: bool, filed: bool
) -> None:
    """Write the traces to stdout; ``filed``: lines name the files of their packets."""
    if as_json:
        for trace in traces:
            sys.stdout.writelines(f"{json_text(message)}\n" for message in trace.as_json())
        return
    style = Style(utc, False, filed, Paint(coloured(sys.stdout)), width_of(sys.stdout), times=times)
    for number, trace in enumerate(traces):
        if number:
            put("")
        for text in _lines(trace, style):
            put(text)


def _lines(trace: "Trace", style: Style) -> Iterator[str]:
    """The lines of a trace: a step each, and a summary."""
    is_wide = style.width is None or style.width >= ROOMY_WIDTH + STEP_WIDTH
    own_width = style.width and style.width - (STEP_WIDTH if is_wide else len(INDENT))
    common = None
    if not is_wide:  # no line repeats what all have in common
        publish = trace.publish.message
        common = f"{publish['protocol']}/{publish['dialect']}", endpoint(publish["dst_ip"], publish["dst_port"])
        yield " at ".join(common)
    style = Style(style.utc, False, style.filed, style.paint, own_width, common, style.times)
    for step, row, delivery in trace.steps():
        words = _step_words(step, delivery)
        text = line(row.message, body_of(row), style, row.exchange)
        if is_wide:
            yield f"{words:<{STEP_WIDTH}}{text}"
        else:
            yield style.paint("bold", words)
            yield INDENT + text
    yield _summary(trace)


def _step_words(step: "Step", delivery: "TracedDelivery | None") -> str:
    if delivery is None:
        return step
    if step == "delivered":
        return f"{step}{' again' if delivery.again else ''} in {latency(delivery.latency_ns)}"
    return f"{step} in {latency(delivery.acknowledged_after_ns or 0)}"


def _summary(trace: "Trace") -> str:
    if trace.note is not None:
        return trace.note
    deliveries = trace.deliveries
    consumers, again = sum(not x.again for x in deliveries), sum(bool(x.again) for x in deliveries)
    words = [f"{plural(len(deliveries), 'delivery', 'deliveries')} to {plural(consumers, 'consumer')}"]
    words += [f"{again:,} again"] if again else []
    if acknowledged := sum(x.acknowledgement is not None for x in deliveries):
        words.append(f"{acknowledged:,} acknowledged")
    if missing := sum(x.is_due and x.acknowledgement is None for x in deliveries):
        words.append(f"{missing:,} not acknowledged in the capture")
    return f"{', '.join(words)}; evidence: {deliveries[0].how}"
