"""The tables of a capture in memory, as the pipeline gives them: rows of each protocol apart, counts and failure."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from mqpcap.capture import Capture
from mqpcap.errors import CaptureError
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tables.messages import MessageTables
from mqpcap.tables.output import NamedTables, Output
from mqpcap.tables.schemas import TABLES


@dataclass(slots=True)
class Dissection(NamedTables):
    """A dissected capture in memory."""

    capture: Capture
    counts: dict[str, int] = field(default_factory=dict)
    """Packets that are not TCP, and limits that were reached."""
    failure: CaptureError | None = None
    """The reason why the capture could not be read to its end."""
    chunks: list[MessageTables] = field(default_factory=list)
    """The rows of ``messages`` and of the protocols' tables."""
    _tables: dict[str, list[pa.Table]] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """A table that all protocols share."""
        parts = [chunk.messages for chunk in self.chunks] if name == "messages" else self._tables.get(name, [])
        return pa.concat_tables([TABLES[name].empty_table(), *parts])

    def add(self, output: Output) -> None:
        """Add rows."""
        if output.fields is not None and output.protocol is not None:
            self.chunks.append(MessageTables(output.protocol, output.rows, output.fields))
        else:
            self._tables.setdefault(output.table, []).append(output.rows)


def dissect(
    capture: Capture, options: Options | None = None, progress: Callable[[int], None] | None = None
) -> Dissection:
    """The tables of a capture, in memory.

    ``progress`` gets the number of bytes that were read since its last call. Raises CaptureError if nothing could be
    read: a file is gone, or a pipe was read before. Flaws in the bytes are rows, not errors.
    """
    dissection = Dissection(capture)
    pipeline = CapturePipeline(capture, options or Options(), dissection.add)
    pipeline.run(progress)
    dissection.counts, dissection.failure = pipeline.stages.counts, pipeline.failure
    return dissection
