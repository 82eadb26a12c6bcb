"""Pipelines whose ``messages`` and ``connections`` have the number in the short name of each row's connection."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.background import Background
from mqpcap.capture import Capture, Window
from mqpcap.cli.connection_names import STRANGER
from mqpcap.decode.columns import Records
from mqpcap.decode.frames import Frames
from mqpcap.message_bytes import BytesPipeline
from mqpcap.pipeline import CapturePipeline, Emit, Options, Output
from mqpcap.tables.schemas import NUMBER


class NumberedPipeline(CapturePipeline):
    """One capture made into tables; ``messages`` have the column NUMBER, ``connections`` that and STRANGER."""

    now_ns = -(1 << 63)
    """The time in the capture."""

    def __init__(self, capture: Capture, options: Options, emit: Emit, *others: Background | int | None) -> None:
        super().__init__(capture, options, emit, *others)  # type: ignore[arg-type]  # of the class behind this one
        self._closed: deque[tuple[int, str | None]] = deque()
        self._give = emit
        self.emit = self._numbered_connections

    def messages(self, window: Window) -> Iterator[tuple[Frames, Records]]:
        """The messages that the packets of a window complete."""
        self.now_ns = int(window.ts_ns.max(initial=self.now_ns))
        return super().messages(window)

    def more_columns(self, frames: Frames, records: Records) -> Mapping[str, pa.Array]:
        """The numbers of the connections, beside what others add."""
        return {**super().more_columns(frames, records), NUMBER: pa.array(frames.flow + 1)}

    def close(self, flows: NDArray[np.int64], files: Sequence[str], of_others: bool) -> None:
        """Connections are over."""
        states = (self.framer.connections.get(number) for number in flows.tolist())
        names = [state.stranger if state is not None else None for state in states]
        self._closed.extend(zip((flows + 1).tolist(), names, strict=True))
        super().close(flows, files, of_others)

    def _numbered_connections(self, output: Output) -> None:
        if output.table == "connections":
            ours = [self._closed.popleft() for _ in range(output.rows.num_rows)]
            rows = output.rows.append_column(NUMBER, pa.array([number for number, _ in ours], pa.int64()))
            rows = rows.append_column(STRANGER, pa.array([name for _, name in ours], pa.string()))
            output = replace(output, rows=rows)
        self._give(output)


class NumberedBytesPipeline(NumberedPipeline, BytesPipeline):
    """The same with the bytes of messages."""
