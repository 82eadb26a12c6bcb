"""The messages that ``show`` is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.cli.connections import ConnectionName, mask
from mqpcap.tables.messages import Chunk


@dataclass(frozen=True, slots=True)
class Filter:
    """What a message must be to be shown; what is empty or None asks for nothing. ``columns`` are those of the protocol
    that are kept, None for all, and ``left_out`` those of ``messages`` that nobody looks at."""

    protocols: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    connections: tuple[ConnectionName, ...] = ()
    flawed: bool = False
    unanswered: bool = False
    slower_than_ns: int | None = None
    columns: Mapping[str, tuple[str, ...]] | None = None
    left_out: Sequence[str] = ()

    @property
    def by_outcome(self) -> bool:
        """Whether it asks for what became of requests."""
        return self.unanswered or self.slower_than_ns is not None

    def __call__(self, chunk: Chunk) -> Chunk:
        """The rows and columns that are asked for, as far as the messages alone tell."""
        messages, fields = chunk.messages, chunk.fields
        if self.columns is not None:
            body = [name for name in self.columns[chunk.protocol] if name in fields.column_names]
            fields = fields.select(["op", *body])  # without a column a table does not know how many rows it has
        keep = list(self._masks(chunk))
        if keep:
            wanted = reduce(pc.and_, keep)
            messages, fields = messages.filter(wanted), fields.filter(wanted)
        return Chunk(chunk.protocol, messages, fields)

    def _masks(self, chunk: Chunk) -> "list[pa.ChunkedArray]":
        messages, keep = chunk.messages, []
        if self.protocols:
            keep.append(pa.array([chunk.protocol in self.protocols] * messages.num_rows, pa.bool_()))
        if self.operations:
            operation = pc.utf8_lower(messages["op"].cast(pa.string()))
            keep.append(pc.is_in(operation, pa.array(self.operations, pa.string())))
        if self.connections:
            keep.append(mask(self.connections, messages))
        if self.flawed:
            keep.append(pc.is_valid(messages["flaw"]))
        return keep

    def wants(self, known: Mapping[str, NDArray[np.int64]], words: Mapping[int, str]) -> NDArray[np.bool_]:
        """The rows whose exchange, as far as it is known, is one that is asked for."""
        wanted: NDArray[np.bool_] = known["is_request"] == 1
        if self.unanswered:
            wanted &= np.isin(known["state"], [code for code, word in words.items() if word == "unanswered"])
        if self.slower_than_ns is not None:
            wanted &= known["latency_ns"] > self.slower_than_ns
        return wanted
