"""Callbacks of the pipeline, one per stage: they select and observe.

In: the output of a stage. Out: a mask of rows, further columns, or nothing. Called by: ``pipeline``.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.capture import Window
from mqpcap.correlate import Correlation
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.records import dataclass
from mqpcap.schema.compiler import Program
from mqpcap.tables.connections import EndedConnections
from mqpcap.tcp.chunks import StreamChunks
from mqpcap.tcp.headers import Segments

SegmentFilter = Callable[[Segments], NDArray[np.bool_]]
"""A mask of segments."""
MessageColumns = Callable[[Program, Frames, Records], Mapping[str, pa.Array]]
"""Makes further columns of ``messages`` from decoded messages."""


@dataclass(frozen=True, slots=True)
class StageHooks:
    """Callbacks of the caller, in order of the stages; None: not called.

    A *filter* returns a mask: rows that are False go no further. An *observer* must change nothing. *Columns* are
    appended to rows before they are emitted. All run on the reading thread but ``message_columns``, which run where
    rows are made (`Background`).
    """

    packets: Callable[[Window, Segments], None] | None = None
    """Observer: a window, and all TCP segments in it."""
    segments: SegmentFilter | None = None
    """Filter: the segments that are reassembled."""
    chunks: Callable[[StreamChunks], None] | None = None
    """Observer: stream bytes before they are framed, with the packets that carried them."""
    message_columns: tuple[MessageColumns, ...] = ()
    """Columns: of ``messages``, row for row."""
    correlation: Callable[[str, Correlation], None] | None = None
    """Set-up: the `Correlation` of a protocol, before its first messages. May watch a connection or replace
    ``deliveries``."""
    ended: Callable[[EndedConnections], None] | None = None
    """Observer: connections that end now."""
    connection_columns: Callable[[EndedConnections], Mapping[str, pa.Array]] | None = None
    """Columns: of ``connections``, row for row."""
