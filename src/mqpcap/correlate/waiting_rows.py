"""Rows of ``exchanges`` that wait for their state: blocks of narrow columns, the oldest in a temporary file."""

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import are_all, factorize, unified
from mqpcap.errors import let_go
from mqpcap.schema.requests import I64

MAX_WAITING_BYTES = 4 << 20
"""Rows that wait for their state are in memory up to here; more wait in a temporary file."""
PENDING = -1
"""The state of a row that has none yet."""


@dataclass(slots=True)
class Block:
    """Rows that wait, with little of each in memory.

    ``first_row`` is the number of the first that came; ``behind`` how many came between it and each that waits.
    """

    first_row: int
    behind: NDArray[np.int32]
    flow: NDArray[np.int32]
    offset: I64
    kind: NDArray[np.int8]
    silence: NDArray[np.int8]
    state: NDArray[np.int8]
    from_client: NDArray[np.bool_]
    table: pa.Table | None
    size_bytes: int = 0
    """Of ``table``, while it is in memory."""
    place: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.behind)

    def settle(self, which: NDArray[np.bool_], state: int | NDArray[np.int8]) -> None:
        """Give some rows a state, those that have none yet."""
        which = which & (self.state == PENDING)
        self.state[which] = state[which] if isinstance(state, np.ndarray) else state


class WaitingRows:
    """The blocks of a protocol. Rows are numbered as they come; ``touched`` blocks may have rows that are settled."""

    def __init__(self) -> None:
        self.row_count = 0
        self._blocks: dict[int, Block] = {}
        self._block_count = 0
        self._by_flow: dict[int, set[int]] = {}
        self._touched: set[int] = set()
        self._file: IO[bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        for block in self._blocks.values():
            block.table = self._table(block)
        return self.__dict__ | {"_file": None}

    def add(self, block: Block) -> None:
        """Take a block in, with the next numbers."""
        assert block.table is not None
        block.size_bytes = block.table.nbytes
        if not len(block):
            return
        number, self._block_count = self._block_count, self._block_count + 1
        self._blocks[number] = block
        self.row_count += len(block)
        self._touched.add(number)
        for flow in factorize(block.flow[block.state == PENDING])[0].tolist():
            self._by_flow.setdefault(flow, set()).add(number)

    def of_flows(self, flows: Iterable[int]) -> Iterator[Block]:
        """The blocks with rows of some connections."""
        numbers = {number for flow in flows for number in self._by_flow.get(flow, ())}
        self._touched |= numbers
        return (self._blocks[number] for number in sorted(numbers))

    def located(self, rows: I64) -> Iterator[tuple[Block, NDArray[np.intp], NDArray[np.intp]]]:
        """Rows by the block they are in: places in it, and which of ``rows`` they are, but for those that left."""
        numbers = list(self._blocks)
        firsts = np.array([block.first_row for block in self._blocks.values()], np.int64)
        places, group = factorize(np.searchsorted(firsts, rows, "right") - 1)
        for k, place in enumerate(places.tolist()):
            if place < 0:
                continue
            block, which = self._blocks[numbers[place]], np.flatnonzero(group == k)
            behind = rows[which] - block.first_row
            at = np.searchsorted(block.behind, behind)
            is_left = block.behind[np.minimum(at, len(block) - 1)] == behind
            if is_left.any():
                self._touched.add(numbers[place])
                yield block, at[is_left], which[is_left]

    def take(self, rows: I64, state: int) -> pa.Table:
        """The columns of some rows, each once, in their order; they get a state."""
        tables, order = [], []
        for block, at, which in self.located(rows):
            block.state[at] = state
            tables.append(self.columns(block, at))
            order.append(which)
        if len(tables) == 1:
            return tables[0]
        table = unified(pa.concat_tables(tables, promote_options="default")).combine_chunks()
        return table.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    def columns(self, block: Block, at: NDArray[np.intp]) -> pa.Table:
        """The columns of some rows of a block."""
        table = self._table(block)
        table = table if are_all(at, len(block)) else table.take(pa.array(at))
        return table.append_column("offset", pa.array(block.offset.take(at)))

    def settled(self) -> Iterator[Block]:
        """Blocks with rows that were settled since the last time, which leave them behind; one in memory each time."""
        numbers, self._touched = sorted(self._touched), set()
        for number in numbers:
            block = self._blocks[number]
            if (block.state != PENDING).any():
                yield block
                self._leave(number, block)
        self._spill()

    def _leave(self, number: int, block: Block) -> None:
        left = np.flatnonzero(block.state == PENDING)
        for flow in {*factorize(block.flow)[0].tolist()}.difference(factorize(block.flow[left])[0].tolist()):
            numbers = self._by_flow.get(flow, set())
            numbers.discard(number)
            if not numbers:
                self._by_flow.pop(flow, None)
        if not len(left):
            del self._blocks[number]
            return
        block.table = self._table(block).take(pa.array(left)).combine_chunks()
        block.size_bytes = block.table.nbytes
        for name in ("behind", "flow", "offset", "kind", "silence", "state", "from_client"):
            setattr(block, name, getattr(block, name)[left])

    def _table(self, block: Block) -> pa.Table:
        if block.table is not None:
            return block.table
        assert self._file is not None
        self._file.seek(block.place[0])
        return pa.ipc.open_stream(pa.py_buffer(self._file.read(block.place[1]))).read_all()

    def _spill(self) -> None:
        """Write the columns of the oldest blocks to a file while too many are in memory."""
        size = sum(block.size_bytes for block in self._blocks.values())
        for block in self._blocks.values():
            if size <= MAX_WAITING_BYTES:
                return
            if block.table is None:
                continue
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="mqpcap-exchanges-")  # noqa: SIM115 - closed with the room
                weakref.finalize(self, let_go, self._file)
            start = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, block.table.schema) as writer:
                writer.write_table(block.table)
            size -= block.size_bytes
            block.table, block.size_bytes, block.place = None, 0, (start, self._file.tell() - start)
