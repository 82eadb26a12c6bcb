"""Publishes of BlipMQ that no pair needs: most of a capture, perhaps, and so never all in memory.

A publish gets an answer only where it is refused. It matters to what consumers get, and to what is proven of a
connection in which something is missing or odd. ``Sieve`` finds the servers with none of that, a block of rows at a
time. What is left of a connection then is mostly a greeting and signs of life: ``Straight`` pairs those, however many
connections there are.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Tally, factorize, groups
from mqpcap.correlate.rows import Rows
from mqpcap.protocols.blipmq.columns import AUTH, HELLO, PING, SUBSCRIBE, Columns, Frames, Says
from mqpcap.schema.protocol import EndColumns

I64 = NDArray[np.int64]
Numbers = NDArray[np.signedinteger[Any]]
"""Of rows or connections: in 32 bits where those do."""
NO_ROWS: I64 = np.empty(0, np.int64)
LAST = np.iinfo(np.int64).max
GROUP_ROW_COUNT = 1 << 18
"""About so many rows that count are looked at together, and always all of a connection."""


class Sieve:
    """Which rows are such publishes, and of which connections.

    Arrays, by connection in the order of ``connection`` (ids, ascending): ``first``, the stream offset of the first
    such publish, LAST if there is none; ``ordinary``, whether there is a row that counts and nothing odd.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._masks: list[NDArray[np.uint8]] = []
        self._starts = [0]
        seen = Tally(np.minimum, np.minimum, np.add, np.maximum)
        for start, block in rows.blocks():
            self._look(start, Frames(block), seen)
        self.connection, first_row, self.first, counts, odd = seen.columns()
        self.ordinary = (counts > 0) & (odd == 0)
        self._group = groups(first_row, counts * self.ordinary, GROUP_ROW_COUNT)

    def _look(self, start: int, x: Frames, seen: Tally) -> None:
        aside = x.publishes()
        self._masks.append(np.packbits(aside))
        self._starts.append(start + x.n)
        ids, place = factorize(x.connection)
        first = np.full(len(ids), LAST)
        np.minimum.at(first, place[aside], x.offset[aside])
        counts = np.bincount(place[~aside], minlength=len(ids))
        odd = np.bincount(place[~x.ordinary()], minlength=len(ids))
        seen.add(ids, np.full(len(ids), start), first, counts, odd)

    def plain(self, ends: EndColumns) -> NDArray[np.bool_]:
        """The connections of servers all of whose connections are whole and have nothing odd.

        None where they have no such publish; ``ends`` are of ``connection``.
        """
        doubtful = np.zeros(int(ends.server.max(initial=0)) + 1, np.bool_)
        doubtful[ends.server[~self.ordinary | ~ends.start | ends.damaged]] = True
        plain = ~doubtful[ends.server]
        return plain & bool((self.first[plain] != LAST).any())

    def few(self, plain: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """The rows that count, of some connections, and each row's connection, by its place."""
        rows, places = [self._narrow(NO_ROWS)], [self._narrow(NO_ROWS)]
        for start, aside in self._aside():
            counting = start + np.flatnonzero(~aside)
            if len(counting):
                of = self._of(self._rows.chosen(counting))
                rows.append(self._narrow(counting[plain[of]]))
                places.append(self._narrow(of[plain[of]]))
        return np.concatenate(rows), np.concatenate(places)

    def _narrow(self, numbers: I64) -> Numbers:
        """Numbers of rows in no more room than they need."""
        return numbers.astype(np.int32 if self._rows.num_rows <= np.iinfo(np.int32).max else np.int64)

    def groups(self, of: Numbers) -> Iterator[I64]:
        """Rows of ``few`` by their place there, as many at a time as are looked at together."""
        group = self._group[of]
        for one in np.unique(group).tolist():
            yield np.flatnonzero(group == one)

    def all_of(self, connections: NDArray[np.bool_]) -> Numbers:
        """All rows of some connections."""
        if not connections.any():
            return self._narrow(NO_ROWS)
        rows = (start + np.flatnonzero(connections[self._of(block)]) for start, block in self._rows.blocks())
        return np.concatenate([self._narrow(some) for some in rows])

    def places(self, ids: I64) -> I64:
        """The places of connections."""
        return np.searchsorted(self.connection, ids)

    def _of(self, rows: Rows) -> I64:
        """The place of each row's connection."""
        ids, place = factorize(rows["connection_id"].to_numpy())
        return self.places(ids)[place]

    def _aside(self) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Block by block its first row, and which rows are publishes to be set aside."""
        for (start, end), mask in zip(pairwise(self._starts), self._masks, strict=True):
            yield start, np.unpackbits(mask, count=end - start).astype(np.bool_)


_SAYS = np.zeros(256, np.int32)
_SAYS[[HELLO, AUTH, PING, SUBSCRIBE]] = Says.ZERO, Says.ZERO, Says.PONG, Says.SUBSCRIBED
"""What a frame, which is told by a byte, is answered with where nothing goes wrong; 0: that is no answer."""


class Straight:
    """Connections that began with HELLO and AUTH, and asked only what has one answer, which they got, frame by frame.

    connection        their ids, ascending; ready, last: the stream offsets of AUTH and of the last frame
    request, reply    the pairs, by row of the columns
    """

    def __init__(self, x: Columns) -> None:
        order = np.lexsort((x.offset, ~x.client, x.connection))
        ids, start, count = np.unique(x.connection[order], return_index=True, return_counts=True)
        asked = np.bincount(np.repeat(np.arange(len(ids)), count)[x.client[order]], minlength=len(ids))
        even = (2 * asked == count) & (asked >= 2)
        of = np.repeat(np.arange(len(ids)), count)
        place = np.arange(len(order)) - start[of]
        request = order[even[of] & (place < asked[of])]
        reply = order[even[of] & (place >= asked[of])]
        place, of = place[even[of] & (place < asked[of])], of[even[of] & (place < asked[of])]
        op = x.op[request]
        fits = (x.id[request] == x.id[reply]) & (_SAYS[op & 255] == x.says[reply]) & (_SAYS[op & 255] != 0)
        fits &= ((op == HELLO) == (place == 0)) & ((op == AUTH) == (place == 1))
        good = even.copy()
        good[of[~fits]] = False
        self.connection = ids[good]
        self.request, self.reply = request[good[of]], reply[good[of]]
        self.ready = x.offset[request[good[of] & (place == 1)]]
        self.last = x.offset[request[good[of] & (place == asked[of] - 1)]]
