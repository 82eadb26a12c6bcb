"""Messages and exchanges that a filter selects, to be counted.

An exchange is selected where its request or its reply is.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.cli.filters import Filter, Tally
from mqpcap.cli.held_rows import HeldRows
from mqpcap.statistics.keys import message_places, reply_places, request_places

if TYPE_CHECKING:
    from mqpcap.pipeline import CapturePipeline, Output
    from mqpcap.query import Query
    from mqpcap.statistics.counters import Counters

MAX_OPEN = 1 << 20
"""Selected messages whose exchange may still come; of older ones it is not counted."""


class Selection:
    """What a filter selects of one capture, given to ``counters``."""

    def __init__(self, query: "Query", tally: Tally, counters: "Counters", pipeline: "CapturePipeline") -> None:
        self._counters, self._pipeline = counters, pipeline
        file_count = len(pipeline.capture.files)
        self._held = HeldRows(0, Filter(query, _NoFields(), (), tally), file_count)
        self._open: NDArray[np.int64] = np.empty(0, np.int64)
        self._pairs = "exchanges" in counters.optional_tables

    def take(self, output: "Output") -> None:
        """Take rows of any table."""
        self._held.first_ns = self._pipeline.first_ns or 0
        if output.table == "messages" and self._pairs:
            self._counters.count("others", output.rows)
        self._held.take(output)
        for chunk in self._held.chunks():
            self._counters.count("messages", chunk.messages)
            if self._pairs:
                self._open = np.concatenate([self._open, message_places(chunk.messages)])[-MAX_OPEN:]
        if output.table == "exchanges":
            self._take_exchanges(output.rows)

    def _take_exchanges(self, rows: pa.Table) -> None:
        places = np.array([request_places(rows), reply_places(rows)])
        selected = np.isin(places, self._open).any(0)
        self._open = self._open[~np.isin(self._open, places[:, selected])]
        self._counters.count("exchanges", rows.filter(pa.array(selected)))


class _NoFields(dict[str, tuple[str, ...]]):
    """No column of any protocol's table is kept."""

    def __missing__(self, protocol: str) -> tuple[str, ...]:
        return ()
