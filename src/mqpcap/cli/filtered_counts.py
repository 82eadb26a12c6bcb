"""Messages and exchanges that a filter selects, to be counted.

An exchange is selected where its request or its reply is.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.cli.filters import Filter
from mqpcap.cli.held_rows import MAX_ASKING_BYTES
from mqpcap.query import SelectedMessages
from mqpcap.tables.places import message_places, reply_places, request_places

if TYPE_CHECKING:
    from mqpcap.cli.filters import Tally
    from mqpcap.pipeline import CapturePipeline, Output
    from mqpcap.statistics.counters import Counters

MAX_OPEN = 1 << 20
"""Selected messages whose exchange may still come; of older ones it is not counted."""


class SelectedCounts:
    """What a filter selects of one capture, given to ``counters``."""

    def __init__(self, tally: "Tally", counters: "Counters", pipeline: "CapturePipeline") -> None:
        self._tally, self._counters, self._pipeline = tally, counters, pipeline
        self._slim = Filter(tally.query, lambda protocol: ()).slim
        self._selected = SelectedMessages(tally.query, self._count, MAX_ASKING_BYTES)
        self._open: NDArray[np.int64] = np.empty(0, np.int64)
        self._pairs = "exchanges" in counters.optional_tables

    def take(self, output: "Output") -> None:
        """Take rows of any table."""
        first_ns = self._pipeline.first_ns or 0
        if output.table == "messages" and self._pairs:
            self._counters.count("others", output.rows)
        self._tally.look(output, first_ns)
        self._selected.take(self._slim(output), first_ns)
        if output.table == "exchanges":
            self._take_exchanges(output.rows)

    def _count(self, output: "Output") -> None:
        """Messages are selected."""
        self._tally.match_count += output.rows.num_rows
        self._counters.count("messages", output.rows)
        if self._pairs:
            self._open = np.concatenate([self._open, message_places(output.rows)])[-MAX_OPEN:]

    def _take_exchanges(self, rows: pa.Table) -> None:
        places = np.array([request_places(rows), reply_places(rows)])
        selected = np.isin(places, self._open).any(0)
        self._open = self._open[~np.isin(self._open, places[:, selected])]
        self._counters.count("exchanges", rows.filter(pa.array(selected)))
