"""What is counted of a capture, and which tables that takes."""

from collections.abc import Collection

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Emit, Options, Output
from mqpcap.tcp.headers import Segments


class Counters:
    """What counts rows: each is given those of the tables that it has a ``take_TABLE`` for."""

    tables = ("messages", "others", "exchanges", "deliveries", "connections", "problems")
    """``others`` are rows of ``messages`` that are not selected, though their exchange may be."""

    def __init__(self, *counters: object, without: Collection[str] = ()) -> None:
        self._takes = {
            table: [getattr(counter, f"take_{table}") for counter in counters if hasattr(counter, f"take_{table}")]
            for table in self.tables
            if table not in without
        }
        self._ends = [counter.end_of_capture for counter in counters if hasattr(counter, "end_of_capture")]
        read = [getattr(counter, "columns", None) for counter in counters if hasattr(counter, "take_messages")]
        known = [names for names in read if names is not None]
        self.columns: frozenset[str] | None = frozenset().union(*known) if len(known) == len(read) else None
        """The columns of ``messages`` that are read, None if not all counters say so."""
        self.segments = [counter.take_segments for counter in counters if hasattr(counter, "take_segments")]
        """Are given the packets' TCP segments, too."""

    def __add__(self, other: "Counters") -> "Counters":
        """Both."""
        both = Counters()
        both._takes = {table: [*self._takes.get(table, ()), *other._takes.get(table, ())] for table in self.tables}
        both._ends = [*self._ends, *other._ends]
        both.segments = [*self.segments, *other.segments]
        both.columns = None if self.columns is None or other.columns is None else self.columns | other.columns
        return both

    @property
    def optional_tables(self) -> frozenset[str]:
        """The tables of OPTIONAL_TABLES that somebody counts."""
        return OPTIONAL_TABLES & {table for table, takes in self._takes.items() if takes}

    def take(self, output: Output) -> None:
        """Have rows of any table counted."""
        self.count(output.table, output.rows)

    def count(self, table: str, rows: pa.Table) -> None:
        """The same."""
        for take in self._takes.get(table, ()):
            take(rows)

    def end_of_capture(self) -> None:
        """Tell that all rows of a capture were given."""
        for end in self._ends:
            end()


class SegmentPipeline(CapturePipeline):
    """A pipeline whose counters are given the segments, too."""

    def __init__(
        self, capture: Capture, options: Options, emit: Emit, background: Background | None, counters: Counters
    ) -> None:
        super().__init__(capture, options, emit, background)
        self._counters = counters

    def _segments(self, segments: Segments) -> Segments:
        for take in self._counters.segments:
            take(segments)
        return super()._segments(segments)

    def _window_times(self) -> int:
        """Larger ones, as a window costs a fixed time beside that of its bytes; with pairs they take more memory."""
        return 2 if self.options.pairs_up else 4
