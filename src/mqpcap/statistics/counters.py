"""What is counted of a capture, and which tables that takes."""

from collections.abc import Collection

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture
from mqpcap.pipeline import OPTIONAL_TABLES, CapturePipeline, Emit, Options, Output
from mqpcap.tcp.headers import Segments


class Counters:
    """What counts rows: each is given those of the tables that it has a ``take_TABLE`` for."""

    tables = ("messages", "others", "exchanges", "deliveries", "connections", "problems", "segments")
    """``others`` are rows of ``messages`` that are not selected, though their exchange may be; ``segments`` those of
    the packets."""

    def __init__(self, *counters: object, without: Collection[str] = ()) -> None:
        names = [*(f"take_{table}" for table in self.tables if table not in without), "end_of_capture"]
        self._calls = {name: [getattr(x, name) for x in counters if hasattr(x, name)] for name in names}
        read = [getattr(x, "columns", None) for x in counters if hasattr(x, "take_messages")]
        known = [names for names in read if names is not None]
        self.columns: frozenset[str] | None = frozenset().union(*known) if len(known) == len(read) else None
        """The columns of ``messages`` that are read, None if not all counters say so."""

    def __add__(self, other: "Counters") -> "Counters":
        """Both."""
        both = Counters()
        both._calls = {name: [*self._calls.get(name, ()), *other._calls.get(name, ())] for name in both._calls}
        both.columns = None if self.columns is None or other.columns is None else self.columns | other.columns
        return both

    @property
    def optional_tables(self) -> frozenset[str]:
        """The tables of OPTIONAL_TABLES that somebody counts."""
        return frozenset(table for table in OPTIONAL_TABLES if self._calls.get(f"take_{table}"))

    def take(self, output: Output) -> None:
        """Have rows of any table counted."""
        self.count(output.table, output.rows)

    def count(self, table: str, rows: pa.Table | Segments) -> None:
        """The same."""
        for take in self._calls.get(f"take_{table}", ()):
            take(rows)

    def end_of_capture(self) -> None:
        """Tell that all rows of a capture were given."""
        for end in self._calls["end_of_capture"]:
            end()


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
