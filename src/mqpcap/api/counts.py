"""``mqpcap.stats``: messages, bytes, errors and latencies of captures by group."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.capture import Capture
from mqpcap.errors import MisuseError
from mqpcap.query import Query
from mqpcap.query.values import duration_ns
from mqpcap.reading import FilterOptions, Inputs
from mqpcap.statistics.chosen_rows import checked, chosen
from mqpcap.statistics.counters import count_captures
from mqpcap.statistics.live_counts import renewed
from mqpcap.statistics.report_columns import Column, Metric, with_files
from mqpcap.statistics.reports import StatsReport
from mqpcap.statistics.row_lines import Answer
from mqpcap.statistics.stats_question import StatsQuestion, Words, checked_top
from mqpcap.wording import misuse_of, plural

ReportName = Literal[
    "producers", "consumers", "errors", "talkers", "connections", "deliveries", "delivery_list", "delays", "slowest"
]
SLOWEST = 10
"""Requests that the report ``slowest`` lists where no number is given."""


def stats(
    path: Source,
    report: ReportName | None = None,
    *,
    by: Sequence[str] | str | None = None,
    metric: Sequence[Metric] | str = (),
    interval: str | None = None,
    sort: str | None = None,
    reverse: bool = False,
    having: str | None = None,
    top: int | None = None,
    filter: str | Query | None = None,
    **options: Unpack[FilterOptions],
) -> Answer:
    """Messages, bytes, errors and latencies by group; with ``report`` a ready-made report.

    by: what to group by, ``("protocol", "op")`` if nothing is given; any names of `fields` will do, also as one text
    with commas. metric: what to count, all by default; rows are sorted by the first. sort, reverse, having: as the
    command's options. interval: over time, as ``"1s"``. top: only the first rows; ``slowest`` has ten by default.

    >>> import mqpcap
    >>> mqpcap.stats("pcaps/blipmq/qos1.pcap", by=["op"], top=1).to_pylist()[0]["messages"]
    68
    """
    inputs = selected(path, filter, options)
    count = Count(report, by, metric, interval, having, sort, reverse, top, inputs.wanted is not None)
    count.read(inputs)
    answer = count.answer()
    inputs.finish(*count.notes())
    return answer


class Count:
    """A question of `stats`: its words, checked; then the captures are counted, and there is an answer at any time."""

    def __init__(
        self, name: str | None, by: Words, metric: Words, interval: str | None, having: str | None, sort: str | None,
        reverse: bool, top: int | None, is_filtered: bool, slowest_count: int | None = None,
        report_of: Callable[[StatsQuestion, int], StatsReport] = StatsQuestion.report,
    ) -> None:  # fmt: skip
        asked = StatsQuestion.of_words(name, by, metric, interval, is_filtered)
        self._report = report_of(asked, slowest_count or checked_top(top) or SLOWEST)
        self._top, self._having, self._sort, self._reverse, self._is_filtered = top, having, sort, reverse, is_filtered
        checked_top(top)
        checked(self.columns, having, sort)
        self._row_count = self._file_count = 0

    @property
    def columns(self) -> Sequence[Column]:
        """The columns of the answer; those of bars are known with their rows."""
        return self._report.columns

    def read(self, inputs: Inputs, tick: Callable[[], None] = lambda: None) -> None:
        """Count the captures; ``tick`` is called after each window of packets."""
        captures, outcome = inputs.captures, inputs.outcome
        self._file_count = outcome.file_count
        count_captures(captures, outcome, self._report.counters, inputs.progress, inputs.wanted, tick)

    def answer(self) -> Answer:
        """The rows of the captures that were read."""
        rows = chosen(self.columns, self._report.rows(), self._having, self._sort, self._reverse)
        self._row_count = len(rows)
        return Answer(with_files(self.columns, self._file_count), rows[: self._top])

    def notes(self) -> list[str]:
        """Notes on the last answer."""
        notes = [] if self._row_count or self._is_filtered else ["nothing to count; info says what there is"]
        more_count = 0 if self._top is None else self._row_count - self._top
        return [*notes, *([plural(more_count, "more row")] if more_count > 0 else []), *self._report.notes()]


def live_stats(
    interface: str,
    report: ReportName | None = None,
    *,
    every: str = "5s",
    bpf: str | None = None,
    by: Sequence[str] | str | None = None,
    metric: Sequence[Metric] | str = (),
    top: int | None = None,
    filter: str | Query | None = None,
    **options: Unpack[FilterOptions],
) -> Iterator[Answer]:
    """The table of `stats` for a network interface, again after each time, until the iterator is closed.

    every: the time between tables, as ``"5s"``. bpf: a filter of tcpdump for the packets to capture. Further parameters
    are those of `stats`. Listening needs the rights that tcpdump needs. Raises CaptureError where the interface cannot
    be opened.
    """
    with misuse_of("--every"):
        every_ns = duration_ns(every.strip())
    if not every_ns:
        raise MisuseError("--every: a time is longer than nothing")
    inputs = selected((), filter, options)
    count = Count(report, by, metric, None, None, None, False, top, inputs.wanted is not None)

    def read(captures: Sequence[Capture], *, tick: Callable[[], None]) -> None:
        inputs.captures = captures
        count.read(inputs, tick)

    return _noted(renewed(interface, bpf, every_ns / 1e9, read, count.answer), inputs, count)


def _noted(answers: Iterator[Answer], inputs: Inputs, count: Count) -> Iterator[Answer]:
    """The answers; the notes are complete once they are closed."""
    try:
        yield from answers
    finally:
        inputs.finish(*count.notes())
