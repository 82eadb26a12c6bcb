"""A capture read for counting: nothing is decoded, paired or kept that nobody asked for."""

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.decode.framing import Framer
from mqpcap.errors import CaptureError
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output
from mqpcap.schema.protocol import MessageQueue
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.schemas import CAPTURES


class CountingPipeline(CapturePipeline):
    """One capture made into those of the tables ``messages``, ``exchanges``, ``deliveries``, ``connections`` and
    ``problems`` that are wanted; ``captures`` is left out, as its fingerprint costs a tenth of the reading."""

    def __init__(
        self,
        capture: Capture,
        options: Options,
        emit: Emit,
        wanted: Collection[str],
        background: Background | None = None,
    ) -> None:
        super().__init__(capture, options, emit, background)
        self.rows_of_captures = _NoCaptureRows(capture)
        if "deliveries" not in wanted:
            pairs = "exchanges" in wanted
            self.protocols = {name: _paired(protocol, pairs) for name, protocol in self.protocols.items()}
            self.framer = Framer(self.protocols, options.decode_as, options.servers)


def _paired(protocol: MessageQueue, pairs: bool) -> MessageQueue:
    """The protocol without deliveries; without pairs of requests and replies, too."""
    if protocol.rule is None:
        return protocol
    return replace(protocol, rule=replace(protocol.rule, deliveries=None) if pairs else None)


class _NoCaptureRows(CaptureRows):
    """Counts no files."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    def take(self, window: Window) -> None:
        """Leaves the packets alone."""

    def count(self, files: pa.ChunkedArray) -> None:
        """Counts nothing."""

    def table(self, failure: CaptureError | None) -> pa.Table:
        """No row."""
        return CAPTURES.empty_table()


class Counters:
    """What counts rows: each is given those of the tables that it has a ``take_TABLE`` for."""

    tables = ("messages", "exchanges", "connections", "problems")

    def __init__(self, *counters: object, without: Collection[str] = ()) -> None:
        self._takes = {
            table: [getattr(counter, f"take_{table}") for counter in counters if hasattr(counter, f"take_{table}")]
            for table in self.tables
            if table not in without
        }
        self._ends = [counter.end_of_capture for counter in counters if hasattr(counter, "end_of_capture")]

    def __add__(self, other: "Counters") -> "Counters":
        """Both."""
        both = Counters()
        both._takes = {table: [*self._takes.get(table, ()), *other._takes.get(table, ())] for table in self.tables}
        both._ends = [*self._ends, *other._ends]
        return both

    @property
    def wanted(self) -> frozenset[str]:
        """The tables that somebody counts."""
        return frozenset(table for table, takes in self._takes.items() if takes)

    def take(self, output: Output) -> None:
        """Have rows of any table counted."""
        for take in self._takes.get(output.table, ()):
            take(output.rows)

    def end_of_capture(self) -> None:
        """Tell that all rows of a capture were given."""
        for end in self._ends:
            end()
