"""What is counted of a capture, and which tables that takes."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture, FileFacts
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Emit, Options, Output
from mqpcap.tcp.headers import Segments


class Counters:
    """What counts rows: each is given those of the tables that it has a ``take_TABLE`` for, ``without`` some.

    Beside the tables there are ``others``, rows of ``messages`` that are not selected, though their exchange may be,
    and ``segments``, those of the packets.
    """

    def __init__(self, *counters: Any, without: Collection[str] = ()) -> None:
        self._counters = [(counter, without) for counter in counters]

    def __add__(self, other: "Counters") -> "Counters":
        """Both."""
        both = Counters()
        both._counters = self._counters + other._counters
        return both

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns of ``messages`` that are read, None if not all counters say so."""
        read = [getattr(x, "columns", None) for x, _ in self._counters if hasattr(x, "take_messages")]
        known = [names for names in read if names is not None]
        return frozenset().union(*known) if len(known) == len(read) else None

    @property
    def optional_tables(self) -> frozenset[str]:
        """The tables of OPTIONAL_TABLES that somebody counts."""
        return frozenset(table for table in OPTIONAL_TABLES if self._takes(table))

    def _takes(self, table: str) -> list[Callable[[pa.Table | Segments], None]]:
        name = f"take_{table}"
        return [getattr(x, name) for x, without in self._counters if table not in without and hasattr(x, name)]

    def take(self, output: Output) -> None:
        """Have rows of any table counted."""
        self.count(output.table, output.rows)

    def count(self, table: str, rows: pa.Table | Segments) -> None:
        """The same."""
        for take in self._takes(table):
            take(rows)

    def end_of_capture(self, files: Sequence[FileFacts] = ()) -> None:
        """All rows of a capture were counted; ``files``: its files, in order of time."""
        for counter, _ in self._counters:
            if hasattr(counter, "end_of_capture"):
                counter.end_of_capture()
            if hasattr(counter, "take_files"):
                counter.take_files(files)


class SegmentPipeline(CapturePipeline):
    """A pipeline whose counters are given the segments, too."""

    def __init__(
        self, capture: Capture, options: Options, emit: Emit, background: Background | None, counters: Counters
    ) -> None:
        super().__init__(capture, options, emit, background)
        self._counters = counters

    def _segments(self, segments: Segments) -> Segments:
        self._counters.count("segments", segments)
        return super()._segments(segments)
