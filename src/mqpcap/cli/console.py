"""What is said beside the rows: lines, notes and progress on stderr.

Names and texts from captures pass `shown` before a terminal sees them.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mqpcap.errors import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def shown(text: str) -> str:
    """The text with every character escaped that a terminal would obey instead of show.

    >>> shown("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def say(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(shown(line) + "\n")
    sys.stderr.flush()


def error_line(error: BaseException) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory; --max-memory and --jobs bound what is held"
    return one_line(error) or type(error).__name__


def plural(count: int, word: str, words: str | None = None) -> str:
    """A count with its noun, thousands set apart.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def size(size_bytes: int) -> str:
    """A number of bytes for people.

    >>> size(999), size(12_345_678)
    ('999 B', '12.3 MB')
    """
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def coloured(stream: object) -> bool:
    """Whether colours may be used: a terminal, and NO_COLOR is not set."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


Meter = Callable[[int], None]
"""Is told of bytes that were read."""


class Stopped(BaseException):
    """Raised in a thread that goes on although the user has left."""


class _Meter:
    """Counts bytes of all threads; ``stop`` makes each of them end at its next window."""

    def __init__(self, bar: "tuple[Progress, TaskID] | None" = None, total_bytes: int = 0) -> None:
        self._bar = bar
        self._total_bytes = total_bytes
        self._read_bytes = 0
        self._lock = threading.Lock()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def __call__(self, read_bytes: int) -> None:
        if self._stopping:
            raise Stopped
        if self._bar is None:
            return
        with self._lock:
            self._read_bytes += read_bytes
            progress, task = self._bar
            # A compressed file gives more bytes than it has: then nobody knows how many are to come.
            total = self._total_bytes if self._read_bytes <= self._total_bytes else None
            progress.update(task, completed=self._read_bytes, total=total)


@contextmanager
def metered(total_bytes: int, quiet: bool) -> Iterator[Meter]:
    """A meter that draws a bar when stderr is a terminal; leaving stops what still reads."""
    if quiet or not sys.stderr.isatty():
        meter = _Meter()
        try:
            yield meter
        finally:
            meter.stop()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("reading", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        meter = _Meter((progress, progress.add_task("reading", total=total_bytes or None)), total_bytes)
        try:
            yield meter
        finally:
            meter.stop()
