"""Rows of ``exchanges`` that wait for their state: blocks of columns, the oldest in a temporary file."""

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, factorize, is_identity, unify_dictionaries
from mqpcap.errors import let_go
from mqpcap.records import dataclass

MAX_WAITING_BYTES = 4 << 20
"""Rows that wait for their state are in memory up to here; more wait in a temporary file."""
PENDING = -1
"""The state of a row that has none yet."""
LONG_ROW_BYTES = 256
"""Blocks whose rows are longer are compressed in the file: bodies that were compressed on the wire are long again."""
BLOCK_COLUMNS = ("row_offset", "flow", "silence", "from_client")
"""Columns of a block beside those of ``exchanges``.

``row_offset``: number of the row minus that of the block's first row. ``silence``: the state of a request that was
handled without a reply."""


@dataclass(slots=True)
class Block:
    """Rows that wait. ``first_row`` is the number of the first that came; ``kind`` and ``state`` stay in memory.

    ``table`` has BLOCK_COLUMNS, ``offset``, and what a row of ``exchanges`` is made of; None while it is in the file.
    """

    first_row: int
    kind: NDArray[np.int8]
    state: NDArray[np.int8]
    table: pa.Table | None
    size_bytes: int = 0
    """The size of ``table``, while it is in memory."""
    place: tuple[int, int] | None = None
    """Offset and length in the file."""

    def __len__(self) -> int:
        return len(self.state)

    def column(self, name: str) -> NDArray[Any]:
        """A column of numbers or truths of the table, which is in memory."""
        assert self.table is not None
        column: NDArray[Any] = self.table[name].to_numpy()
        return column

    def settle(self, selected: NDArray[np.bool_], state: int | NDArray[np.int8]) -> None:
        """Give some rows a state, those that have none yet."""
        selected = selected & (self.state == PENDING)
        self.state[selected] = state[selected] if isinstance(state, np.ndarray) else state

    def replace_silence(self, selected: NDArray[np.bool_], state: int) -> None:
        """Replace the state that some rows get if they were handled without a reply."""
        selected = selected & (self.state == PENDING)
        if not selected.any():
            return
        assert self.table is not None
        silence = np.where(selected, np.int8(state), self.column("silence"))
        self.table = self.table.set_column(self.table.schema.get_field_index("silence"), "silence", pa.array(silence))
        self.size_bytes, self.place = self.table.nbytes, None


class WaitingRows:
    """The blocks of a protocol. Rows are numbered as they come; ``touched`` blocks may have rows that are settled."""

    def __init__(self) -> None:
        self.row_count = 0
        self._blocks: dict[int, Block] = {}
        self._block_count = 0
        self._by_flow: dict[int, tuple[int, ...]] = {}
        """By connection the blocks with rows of it that waited: most connections of a window share one tuple."""
        self._touched: set[int] = set()
        self._file: IO[bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        tables = {number: self._table(block) for number, block in self._blocks.items()}
        blocks = {
            number: replace(self._blocks[number], table=table, size_bytes=table.nbytes, place=None)
            for number, table in tables.items()
        }
        return self.__dict__ | {"_blocks": blocks, "_file": None}

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
        alone, by_flow = (number,), self._by_flow
        for flow in factorize(block.column("flow")[block.state == PENDING])[0].tolist():
            by_flow[flow] = by_flow[flow] + alone if flow in by_flow else alone

    def by_block(self, rows: Int64Array) -> Iterator[tuple[Block, NDArray[np.intp], NDArray[np.intp]]]:
        """Rows by the block they are in: places in it, and which of ``rows`` they are, but for those that left."""
        numbers = list(self._blocks)
        firsts = np.array([block.first_row for block in self._blocks.values()], np.int64)
        places, group = factorize(np.searchsorted(firsts, rows, "right") - 1)
        for k, place in enumerate(places.tolist()):
            if place < 0:
                continue
            block, selected = self._blocks[numbers[place]], np.flatnonzero(group == k)
            waiting = self._table(block)["row_offset"].to_numpy()
            row_offsets = rows[selected] - block.first_row
            index = np.searchsorted(waiting, row_offsets)
            is_left = waiting[np.minimum(index, len(waiting) - 1)] == row_offsets
            if is_left.any():
                self._touched.add(numbers[place])
                yield block, index[is_left], selected[is_left]

    def has(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Whether each row is still here."""
        is_here = np.zeros(len(rows), np.bool_)
        for _, _, selected in self.by_block(rows):
            is_here[selected] = True
        return is_here

    def take(self, rows: Int64Array, state: int) -> pa.Table:
        """The columns of some rows, each once, in their order; they get a state."""
        tables, order = [], []
        for block, index, selected in self.by_block(rows):
            block.state[index] = state
            tables.append(self.columns(block, index))
            order.append(selected)
        if len(tables) == 1:
            return tables[0]
        table = unify_dictionaries(pa.concat_tables(tables, promote_options="default")).combine_chunks()
        return table.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    def columns(self, block: Block, index: NDArray[np.intp]) -> pa.Table:
        """The columns of some rows of a block, without BLOCK_COLUMNS."""
        table = self._table(block).drop_columns(BLOCK_COLUMNS)
        return table if is_identity(index, len(block)) else table.take(pa.array(index))

    def blocks_with(self, flows: Iterable[int]) -> Iterator[Block]:
        """Blocks that were touched or have rows of some connections; each is in memory when it is given.

        Rows that have a state then leave.
        """
        numbers = self._touched.union(*{self._by_flow.get(flow, ()) for flow in flows})
        self._touched = set()
        for number in sorted(numbers):
            block = self._blocks[number]
            block.table = self._table(block)
            yield block
            self._forget(number, block)
        self._spill()

    def _forget(self, number: int, block: Block) -> None:
        """Let the rows of a block go that have a state; what is in the file as it was leaves memory again."""
        assert block.table is not None
        left = np.flatnonzero(block.state == PENDING)
        if len(left) == len(block):
            block.table = None if block.place is not None else block.table
            return
        flow, alone = block.column("flow"), (number,)
        for gone in {*factorize(flow)[0].tolist()}.difference(factorize(flow[left])[0].tolist()):
            numbers = self._by_flow.pop(gone, alone)
            if numbers != alone and (others := tuple(x for x in numbers if x != number)):
                self._by_flow[gone] = others
        if not len(left):
            del self._blocks[number]
            return
        block.table, block.place = block.table.take(pa.array(left)).combine_chunks(), None
        block.size_bytes = block.table.nbytes
        block.kind, block.state = block.kind[left], block.state[left]

    def _table(self, block: Block) -> pa.Table:
        if block.table is not None:
            return block.table
        assert self._file is not None and block.place is not None
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
            codec = "lz4" if block.size_bytes > LONG_ROW_BYTES * len(block) else None
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_stream(self._file, block.table.schema, options=options) as writer:
                writer.write_table(block.table)
            size -= block.size_bytes
            block.table, block.size_bytes, block.place = None, 0, (start, self._file.tell() - start)
