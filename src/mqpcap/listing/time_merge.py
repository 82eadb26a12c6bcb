"""Captures to rows in order of time, while they are read.

Each capture is read window by window, the one that is behind the others first, so that rows of all of them come in one
order without a second look at any. A row waits for its look-ahead only (``held_rows``): one that completes later than
that comes out of order. The look-ahead of a pipe in which packets come as they happen is short, and goes by our own
clock where nothing comes.
"""

import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import attrgetter

from mqpcap.capture import Capture, InputWait
from mqpcap.listing.extra_columns import NUMBERED, WITH_BYTES
from mqpcap.listing.filters import Filter
from mqpcap.listing.reorder_buffer import LIVE_NS, HeldRows, MessageRow
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.reading import Meter, Outcome, first_packet_ns, size_bytes, steps
from mqpcap.tables.output import Output

HURRY_NS = LIVE_NS // 2
"""A message of a live capture waits at most twice as long until its connection's dialect or login is known."""
LEAD_NS = 500_000_000
"""By so much the time in a live capture may be ahead of ours."""
SMALL_BYTES = 1 << 20
"""A capture up to this size is read to its end at once, and its file is closed."""
MAX_OPEN = 256
"""Captures that are read at the same time. Where more overlap, the rest comes behind them."""
_BEGIN, _END = -(1 << 63), (1 << 63) - 1

Write = Callable[[Iterator[MessageRow]], None]
"""Is given rows in order; what it raises ends the reading."""


class Source:
    """One capture on its way, and its rows that wait."""

    def __init__(self, number: int, capture: Capture, wanted: Filter, begins_ns: int) -> None:
        self.capture = capture
        self.held = HeldRows(number, wanted, len(capture.files))
        self.until_ns = begins_ns
        """Rows before it have nothing to wait for."""
        self._is_pipe = capture.is_pipe  # which says nothing any more when it is read
        is_file = not self._is_pipe and all(map(os.path.isfile, capture.files))
        self._is_small = is_file and size_bytes([capture]) <= SMALL_BYTES
        self._begin: tuple[int, int] | None = None
        """Our own time and that of the capture when it was first looked at."""
        self._heard_ns = self._hurried_ns = 0
        self._waited = frozenset[int]()
        self._pipeline: CapturePipeline | None = None
        self.windows: Generator[None] = (_ for _ in ())
        """What is left to read, begun or not."""

    @property
    def is_open(self) -> bool:
        """Whether it is being read."""
        return self._pipeline is not None and self.until_ns != _END

    def read(self, options: Options, outcome: Outcome, meter: Meter, with_bytes: bool) -> Generator[None]:
        """Reads window by window, a small capture at once."""

        def take(output: Output) -> None:
            outcome.look(output)
            self.held.take(output, pipeline.first_ns or 0)

        hooks = WITH_BYTES if with_bytes else NUMBERED
        pipeline = self._pipeline = CapturePipeline(self.capture, options, take, hooks=hooks)
        now_ns = _BEGIN
        with closing(steps(pipeline, outcome, meter)) as windows:
            for _ in windows:
                now_ns = max(now_ns, pipeline.stages.read_ns)
                if not self._is_small or self.held.are_many:
                    is_live = self._is_live(now_ns)
                    if is_live:
                        self._hurry()
                    self.until_ns = self.held.horizon_ns(now_ns, is_live)
                    yield
        self.until_ns = _END
        if self.held.dropped_count:
            outcome.notes.append(
                f"{self.capture.files[0]}: {self.held.dropped_count:,} requests waited too long for their answers"
            )

    def _is_live(self, now_ns: int) -> bool:
        """Whether time in the capture goes no faster than ours: what was captured before rushes through a pipe."""
        self._heard_ns = time.monotonic_ns()
        self._begin = self._begin or (self._heard_ns, now_ns)
        return self._is_pipe and now_ns - self._begin[1] <= self._heard_ns - self._begin[0] + LEAD_NS

    def _hurry(self) -> None:
        """Have messages read that waited for a while until more is known of their connection."""
        if self._pipeline is None or time.monotonic_ns() - self._hurried_ns < HURRY_NS:
            return
        self._hurried_ns = time.monotonic_ns()
        stages = self._pipeline.stages
        early = self._waited & stages.progress.unresolved_flows()
        if early:
            stages.flush_unresolved(sorted(early))
        self._waited = stages.progress.unresolved_flows()

    def idle(self) -> None:
        """There is nothing more at hand for now."""
        self._hurry()
        if time.monotonic_ns() - self._heard_ns > LIVE_NS:
            self.until_ns = _END - 1
        else:
            self.until_ns = max(self.until_ns, self.held.overdue_ns())


def merge(
    captures: Sequence[Capture],
    wanted: Filter,
    outcome: Outcome,
    write: Write,
    meter: Meter,
    with_bytes: bool = False,
    is_over: Callable[[], bool] = bool,
) -> None:
    """Read captures to their ends; ``write`` is given their rows in order of time."""
    for _ in _merge_steps(captures, wanted, outcome, write, meter, with_bytes, is_over):
        pass


def merged_rows(
    captures: Sequence[Capture], wanted: Filter, outcome: Outcome, meter: Meter, with_bytes: bool = False
) -> Iterator[MessageRow]:
    """The rows of captures in order of time, while they are read."""
    ready: deque[MessageRow] = deque()
    for _ in _merge_steps(captures, wanted, outcome, ready.extend, meter, with_bytes):
        while ready:
            yield ready.popleft()


def _merge_steps(
    captures: Sequence[Capture],
    wanted: Filter,
    outcome: Outcome,
    write: Write,
    meter: Meter,
    with_bytes: bool,
    is_over: Callable[[], bool] = bool,
) -> Generator[None]:
    """Read captures step by step; rows that are due are written before each step ends."""
    jobs = max(1, min(len(captures), outcome.choices.core_count))
    options = outcome.choices.dissection(jobs, only=frozenset({"exchanges"}))
    if not outcome.choices.strict:  # which asks for the flaws of all
        # Of several captures rows wait for each other, and for what follows meanwhile.
        until = wanted.query.until if len(captures) == 1 else None
        options = replace(options, connections=wanted.query.connections, until=until)
    begins = [first_packet_ns([x]) or _BEGIN for x in captures] if len(captures) > 1 else [_BEGIN]
    sources = list(map(Source, range(len(captures)), captures, repeat(wanted), begins))

    def release() -> None:
        until_ns = min(source.until_ns for source in sources)
        rows = [some for source in sources for some in source.held.released(until_ns)]
        write(heapq.merge(*rows, key=attrgetter("order")))

    def idle(source: Source) -> None:
        source.idle()
        release()

    for source in sources:
        source.capture.wait = InputWait(partial(idle, source), is_over)
        source.windows = source.read(options, outcome, meter, with_bytes)
    try:
        while todo := [source for source in sources if source.until_ns != _END]:
            if sum(source.is_open for source in todo) >= MAX_OPEN:
                todo = [source for source in todo if source.is_open]
            next(min(todo, key=attrgetter("until_ns")).windows, None)
            release()
            sources[:] = [source for source in sources if source.until_ns != _END or len(source.held)]
            yield
    finally:
        for source in sources:
            source.windows.close()
