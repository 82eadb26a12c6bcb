"""Finds the messages of a layout in a run of bytes.

The layout's Program says where messages end, or, where only a look at the neighbours can (kokaq), the protocol's
splitter. ``framing`` scans streams in step and searches after gaps; ``detection`` searches the first bytes of a
connection.
"""

import numpy as np
from numpy.typing import NDArray

from mqpcap.decode import bytecode
from mqpcap.decode.message_buffer import ScanHits
from mqpcap.schema.compiler import Program, compiled
from mqpcap.schema.protocol import MessageQueue

IN_A_ROW = 2
"""Messages in a row that a search must find. A single message is enough if another layout reads the next message."""
SCAN_ROOM = 4096
"""Messages found by one call of a scan."""


class LayoutScanner:
    """The messages of one layout, and by their places in the Program the layouts that go with it.

    then: by operation, index of the layout that reads the next message. searched: index of the layout for searches.
    """

    def __init__(self, protocol: MessageQueue, program: Program, name: str, hits: NDArray[np.int64]) -> None:
        index = {layout.name: i for i, layout in enumerate(program.layouts)}
        self.protocol = protocol.name
        self.described = protocol.layout(name)
        self.in_a_row = 1 if self.described.then else IN_A_ROW
        self.then = {op: index[following] for op, following in self.described.then.items()}
        self.place = index[name]
        self.searched = index[self.described.searched or name]
        # What follows an operation is read by another layout: the scan ends with each message.
        self._hits = np.zeros((5, 1), np.int64) if self.then else hits
        self._scanner = program.scanner(name, self._hits)
        self._splitter = self.described.splitter
        self._split_rows = tuple(memoryview(row) for row in self._hits)
        self._layouts = [index[x] for x in self.described.splits or [name]]
        self.hits = ScanHits(memoryview(self._hits), memoryview(np.array(self._layouts, np.int64)))

    def scan(self, view: memoryview | bytes, offset: int, stop: int, ended: bool) -> tuple[int, int, int, int, int]:
        """The messages from ``at`` on are then in ``hits``: see ``bytecode.Scanner.scan``; fifth the place of the next
        one's layout."""
        if self._splitter is None:
            n, code, offset, known_end = self._scanner.scan(view, offset, stop, ended)
            return n, code, offset, known_end, self.place
        n, code, offset, known_end, form = self._splitter(view, stop, ended).scan(offset, *self._split_rows)
        return n, code, offset, known_end, self._layouts[form] if form >= 0 else self.place

    def last_op(self, n: int) -> int:
        """The operation of the last of the ``n`` messages that the last scan found."""
        return int(self._hits[3, n - 1])

    def search(self, view: memoryview | bytes, offset: int, stop: int, ended: bool, in_a_row: int) -> tuple[int, bool]:
        """Offset from which ``in_a_row`` messages follow each other: see ``bytecode.Scanner.search``."""
        if self._splitter is not None:
            return self._splitter(view, stop, ended).search(offset, in_a_row)
        return self._scanner.search(view, offset, stop, ended, in_a_row)

    def header(self, view: memoryview | bytes, offset: int, stop: int) -> tuple[bool, int]:
        """Whether the whole header is there, and the operation, -1 without one."""
        result, op = self._scanner.header(view, offset, stop)
        return result == bytecode.DONE, op


class Scanners:
    """The scanners of all protocols, made when a connection first needs those of its protocol."""

    def __init__(self) -> None:
        self._hits = np.zeros((5, SCAN_ROOM), np.int64)
        self._made: dict[str, dict[str, LayoutScanner]] = {}
        self._in_order: dict[str, list[LayoutScanner]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as nothing: they are made anew."""
        return Scanners, ()

    def of(self, protocol: MessageQueue) -> dict[str, LayoutScanner]:
        """The scanners of a protocol's layouts by name, in the order of its Program."""
        scanners = self._made.get(protocol.name)
        if scanners is None:
            program = compiled(protocol)
            scanners = {x.name: LayoutScanner(protocol, program, x.name, self._hits) for x in program.layouts}
            self._made[protocol.name] = scanners
        return scanners

    def in_order(self, protocol: MessageQueue | None) -> list[LayoutScanner]:
        """The same by their places; none of no protocol."""
        name = "" if protocol is None else protocol.name
        if name not in self._in_order:
            self._in_order[name] = [*self.of(protocol).values()] if protocol is not None else []
        return self._in_order[name]
