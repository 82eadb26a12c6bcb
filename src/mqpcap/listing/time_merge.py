"""Reads captures at the same time, and merges their rows in order of time.

In: captures and a filter. Out: `MessageRow` objects, passed on while the captures are read. Called by: ``api``.

Always reads the next window of the capture that is least far in time, so that no capture is read twice. A row waits
REPLY_WAIT_NS at most (``reorder_buffer``); a message that completes later comes out of order. For a live pipe the wait
is short, and ends by our own clock if no packet comes.
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
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.reorder_buffer import LIVE_WAIT_NS, ReorderBuffer
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.options import Options
from mqpcap.pipeline import CapturePipeline
from mqpcap.reading import Meter, Outcome, first_packet_ns, size_bytes, steps, wired
from mqpcap.tables.output import Output

MAX_CLOCK_LEAD_NS = 500_000_000
"""Time that the clock of a live capture may be ahead of ours."""
SMALL_BYTES = 1 << 20
"""A capture up to this size is read to its end at once, and its file is closed."""
MAX_OPEN_CAPTURES = 256
"""Captures that are read at the same time. If more overlap in time, later captures come after them."""
_BEGIN, _END = -(1 << 63), (1 << 63) - 1

Write = Callable[[Iterator[MessageRow]], None]
"""Receives rows in order; an exception ends the reading."""


class Source:
    """A capture that is being read, and its buffered rows."""

    def __init__(self, number: int, capture: Capture, wanted: ShownMessages, begins_ns: int) -> None:
        self.capture = capture
        self.buffer = ReorderBuffer(number, wanted, len(capture.files))
        self.until_ns = begins_ns
        """Rows before this time can be released."""
        self._is_pipe = capture.is_pipe  # cannot be asked any more once it is read
        is_file = not self._is_pipe and all(map(os.path.isfile, capture.files))
        self._is_small = is_file and size_bytes([capture]) <= SMALL_BYTES
        self._begin: tuple[int, int] | None = None
        """Our own time, and the time in the capture, at the first window."""
        self._last_window_ns = 0
        self._pipeline: CapturePipeline | None = None
        self.windows: Generator[None] = (_ for _ in ())
        """The generator that reads the windows."""

    @property
    def is_open(self) -> bool:
        """Whether it is being read."""
        return self._pipeline is not None and self.until_ns != _END

    def read(self, options: Options, outcome: Outcome, meter: Meter, with_bytes: bool) -> Generator[None]:
        """Read window by window, a small capture at once."""

        def take(output: Output, first_ns: int) -> None:
            outcome.look(output)
            self.buffer.add(output, first_ns)

        hooks = WITH_BYTES if with_bytes else NUMBERED
        pipeline = self._pipeline = wired(self.capture, options, take, hooks)
        now_ns = _BEGIN
        with closing(steps(pipeline, outcome, meter)) as windows:
            for _ in windows:
                now_ns = max(now_ns, pipeline.stages.read_ns)
                if not self._is_small or self.buffer.is_full:
                    is_live = self._is_live(now_ns)
                    if is_live:
                        pipeline.stages.flush_live()
                    self.until_ns = self.buffer.release_before_ns(now_ns, is_live)
                    yield
        self.until_ns, self._pipeline = _END, None  # there may be thousands of captures
        if self.buffer.dropped_count:
            outcome.notes.append(
                f"{self.capture.files[0]}: {self.buffer.dropped_count:,} requests waited too long for their answers"
            )

    def _is_live(self, now_ns: int) -> bool:
        """Whether packets come as they are captured: an old capture passes a pipe faster than its own clock."""
        self._last_window_ns = time.monotonic_ns()
        self._begin = self._begin or (self._last_window_ns, now_ns)
        return self._is_pipe and now_ns - self._begin[1] <= self._last_window_ns - self._begin[0] + MAX_CLOCK_LEAD_NS

    def idle(self) -> None:
        """Called while a pipe has no data."""
        if self._pipeline is not None:
            self._pipeline.stages.flush_live()
        if time.monotonic_ns() - self._last_window_ns > LIVE_WAIT_NS:
            self.until_ns = _END - 1
        else:
            self.until_ns = max(self.until_ns, self.buffer.live_deadline_ns())


def merge(
    captures: Sequence[Capture],
    wanted: ShownMessages,
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
    captures: Sequence[Capture], wanted: ShownMessages, outcome: Outcome, meter: Meter, with_bytes: bool = False
) -> Iterator[MessageRow]:
    """The rows of captures in order of time, while they are read."""
    ready: deque[MessageRow] = deque()
    for _ in _merge_steps(captures, wanted, outcome, ready.extend, meter, with_bytes):
        while ready:
            yield ready.popleft()


def _merge_steps(
    captures: Sequence[Capture],
    wanted: ShownMessages,
    outcome: Outcome,
    write: Write,
    meter: Meter,
    with_bytes: bool,
    is_over: Callable[[], bool] = bool,
) -> Generator[None]:
    """Read captures step by step; rows that are due are written before each step ends."""
    jobs = max(1, min(len(captures), outcome.choices.core_count))
    options = outcome.choices.dissection(jobs, only=frozenset({"exchanges"}))
    if not outcome.choices.strict:  # strict counts the flaws of all messages
        # With several captures, rows are buffered until all captures have reached their time.
        until = wanted.query.until if len(captures) == 1 else None
        options = replace(options, connections=wanted.query.connections, until=until)
    begins = [first_packet_ns([x]) or _BEGIN for x in captures] if len(captures) > 1 else [_BEGIN]
    sources = list(map(Source, range(len(captures)), captures, repeat(wanted), begins))

    def release() -> None:
        until_ns = min(source.until_ns for source in sources)
        rows = [sequence for source in sources for sequence in source.buffer.pop_until(until_ns)]
        write(heapq.merge(*rows, key=attrgetter("order")))

    def idle(source: Source) -> None:
        source.idle()
        release()

    for source in sources:
        source.capture.wait = InputWait(partial(idle, source), is_over)
        source.windows = source.read(options, outcome, meter, with_bytes)
    try:
        while todo := [source for source in sources if source.until_ns != _END]:
            if sum(source.is_open for source in todo) >= MAX_OPEN_CAPTURES:
                todo = [source for source in todo if source.is_open]
            next(min(todo, key=attrgetter("until_ns")).windows, None)
            release()
            sources[:] = [source for source in sources if source.until_ns != _END or len(source.buffer)]
            yield
    finally:
        for source in sources:
            source.windows.close()
