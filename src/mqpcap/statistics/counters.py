"""Passes rows of a capture to counters, and names the tables and columns that they need."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture, FileFacts
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Emit, Options, Output
from mqpcap.tcp.headers import Segments


class Counters:
    """Several counters: each gets the rows of the tables that it has a ``take_TABLE`` for, ``without`` named tables.

    Two inputs are not tables: ``unfiltered``, all rows of ``messages`` while a filter selects the counted rows (the
    exchange of a message may be selected though the message is not), and ``segments`` of the packets.
    """

    def __init__(self, *counters: Any, without: Collection[str] = ()) -> None:
        self._counters = [(counter, without) for counter in counters]

    def __add__(self, added: "Counters") -> "Counters":
        """The counters of both."""
        both = Counters()
        both._counters = self._counters + added._counters
        return both

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns of ``messages`` that counters read, None if one of the counters does not name its columns."""
        read = [getattr(x, "columns", None) for x, _ in self._counters if hasattr(x, "take_messages")]
        named = [names for names in read if names is not None]
        return frozenset().union(*named) if len(named) == len(read) else None

    @property
    def optional_tables(self) -> frozenset[str]:
        """The tables of OPTIONAL_TABLES that a counter needs."""
        return frozenset(table for table in OPTIONAL_TABLES if self._takes(table))

    def _takes(self, table: str) -> list[Callable[[pa.Table | Segments], None]]:
        name = f"take_{table}"
        return [getattr(x, name) for x, without in self._counters if table not in without and hasattr(x, name)]

    def take(self, output: Output) -> None:
        """Count rows of any table."""
        self.count(output.table, output.rows)

    def count(self, table: str, rows: pa.Table | Segments) -> None:
        """Count rows of a table, by its name."""
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
