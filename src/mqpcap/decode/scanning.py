"""Finds the messages of a layout in a run of bytes.

The layout's Program finds the ends of messages. If they depend on neighbouring messages (kokaq), the protocol's
splitter finds them. ``framing`` scans streams, and searches after gaps; ``detection`` searches the first bytes of a
connection.
"""

import numpy as np
from numpy.typing import NDArray

from mqpcap.decode import bytecode
from mqpcap.decode.message_buffer import ScanHits
from mqpcap.schema.compiler import Program, compiled
from mqpcap.schema.protocol import MessageQueue

MIN_CONSECUTIVE = 2
"""Consecutive messages that a search must find. A single message is enough if another layout reads the next."""
SCAN_ROOM = 4096
"""Messages found by one call of a scan."""


class LayoutScanner:
    """Scans and searches bytes for the messages of a layout; layouts are named by their index in the Program.

    ``next_layouts``: by operation, the layout that reads the next message. ``searched``: the layout for searches.
    """

    def __init__(self, protocol: MessageQueue, program: Program, name: str, hits: NDArray[np.int64]) -> None:
        index = {layout.name: i for i, layout in enumerate(program.layouts)}
        self.protocol = protocol.name
        self.described = protocol.layout(name)
        self.min_consecutive = 1 if self.described.then else MIN_CONSECUTIVE
        self.next_layouts = {op: index[following] for op, following in self.described.then.items()}
        self.layout_index = index[name]
        self.searched = index[self.described.searched or name]
        # Another layout may read the next message: the scan ends with each message.
        self._hits = np.zeros((5, 1), np.int64) if self.next_layouts else hits
        self._scanner = program.scanner(name, self._hits)
        self._splitter = self.described.splitter
        self._split_rows = tuple(memoryview(row) for row in self._hits)
        self._layouts = [index[x] for x in self.described.splits or [name]]
        self.hits = ScanHits(memoryview(self._hits), memoryview(np.array(self._layouts, np.int64)))

    def scan(self, view: memoryview | bytes, offset: int, stop: int, ended: bool) -> tuple[int, int, int, int, int]:
        """Put the messages from ``offset`` on into ``hits``.

        Returns the result of ``bytecode.Scanner.scan``, and the index of the layout of the next message.
        """
        if self._splitter is None:
            n, code, offset, known_end = self._scanner.scan(view, offset, stop, ended)
            return n, code, offset, known_end, self.layout_index
        n, code, offset, known_end, form = self._splitter(view, stop, ended).scan(offset, *self._split_rows)
        return n, code, offset, known_end, self._layouts[form] if form >= 0 else self.layout_index

    def last_op(self, n: int) -> int:
        """The operation of the last of the ``n`` messages that the last scan found."""
        return int(self._hits[3, n - 1])

    def search(
        self, view: memoryview | bytes, offset: int, stop: int, ended: bool, min_consecutive: int
    ) -> tuple[int, bool]:
        """Offset of the first ``min_consecutive`` consecutive messages: see ``bytecode.Scanner.search``."""
        if self._splitter is not None:
            return self._splitter(view, stop, ended).search(offset, min_consecutive)
        return self._scanner.search(view, offset, stop, ended, min_consecutive)

    def header(self, view: memoryview | bytes, offset: int, stop: int) -> tuple[bool, int]:
        """Whether the whole header is there, and the operation, -1 without one."""
        result, op = self._scanner.header(view, offset, stop)
        return result == bytecode.COMPLETE, op


class Scanners:
    """The scanners of all protocols, made when a connection first needs them."""

    def __init__(self) -> None:
        self._hits = np.zeros((5, SCAN_ROOM), np.int64)
        self._by_name: dict[str, dict[str, LayoutScanner]] = {}
        self._by_index: dict[str, list[LayoutScanner]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without content: scanners are made again when needed."""
        return Scanners, ()

    def scanners_for(self, protocol: MessageQueue) -> dict[str, LayoutScanner]:
        """The scanners of a protocol's layouts by name, in the order of its Program."""
        scanners = self._by_name.get(protocol.name)
        if scanners is None:
            program = compiled(protocol)
            scanners = {x.name: LayoutScanner(protocol, program, x.name, self._hits) for x in program.layouts}
            self._by_name[protocol.name] = scanners
        return scanners

    def scanners_by_index(self, protocol: MessageQueue | None) -> list[LayoutScanner]:
        """The scanners of a protocol by layout index; empty without a protocol."""
        name = "" if protocol is None else protocol.name
        if name not in self._by_index:
            self._by_index[name] = [*self.scanners_for(protocol).values()] if protocol is not None else []
        return self._by_index[name]
