"""Publishes of BlipMQ that no pair needs: most of a capture, perhaps, and so never all in memory.

A publish gets an answer only where it is refused. It matters to what consumers get, and to what is proven of a
connection in which something is missing or odd. ``Sieve`` finds the servers with none of that, a block of rows at a
time. What is left of a connection then is mostly a greeting and signs of life: ``Straight`` pairs those, however many
connections there are.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mqpcap.layers.blipmq_columns import AUTH, HELLO, PING, SUBSCRIBE, Columns, Frames, Says
from mqpcap.matching import numbered
from mqpcap.protocol import Ends
from mqpcap.rows import Rows

I64 = NDArray[np.int64]
NO_ROWS: I64 = np.empty(0, np.int64)
LAST = np.iinfo(np.int64).max


class Sieve:
    """Which rows are such publishes, and of which connections.

    first   per connection that has any the stream offset of the first
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._masks: list[NDArray[np.uint8]] = []
        self._odd: set[int] = set()
        self._connections: set[int] = set()
        self._counted: set[int] = set()
        self.first: dict[int, int] = {}
        for _, block in rows.blocks():
            self._look(Frames(block))

    def _look(self, x: Frames) -> None:
        aside = x.publishes()
        self._masks.append(np.packbits(aside))
        self._connections.update(numbered(x.connection)[0].tolist())
        self._counted.update(numbered(x.connection[~aside])[0].tolist())
        self._odd.update(np.unique(x.connection[~x.ordinary()]).tolist())
        ids, place = numbered(x.connection[aside])
        first = np.full(len(ids), LAST)
        np.minimum.at(first, place, x.offset[aside])
        for one, offset in zip(ids.tolist(), first.tolist(), strict=True):
            self.first[one] = min(offset, self.first.get(one, LAST))

    def few(self, ends: Mapping[int, Ends]) -> I64:
        """The rows that count, of servers all of whose connections are whole and have nothing odd."""
        doubtful = {
            edge.server for one, edge in ((one, ends[one]) for one in self._connections)
            if one in self._odd or one not in self._counted or not edge.start or edge.holes != ((), ())
        }  # fmt: skip
        plain = {one for one in self._connections if not doubtful or ends[one].server not in doubtful}
        if plain.isdisjoint(self.first):
            return NO_ROWS
        return self._numbers((start + np.flatnonzero(mine & ~aside) for start, mine, aside in self._split(plain)))

    def others(self, connections: Collection[int]) -> I64:
        """All rows of other connections."""
        if self._connections.issubset(connections):
            return NO_ROWS
        return self._numbers((start + np.flatnonzero(~mine) for start, mine, _ in self._split(connections)))

    def _split(self, connections: Collection[int]) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.bool_]]]:
        """Per block its first row, which rows are of some connections, and which are publishes to be set aside."""
        for (start, block), mask in zip(self._rows.blocks(), self._masks, strict=True):
            ids, place = numbered(block["connection_id"].to_numpy())
            mine = np.array([one in connections for one in ids.tolist()], np.bool_)[place]
            yield start, mine, np.unpackbits(mask, count=block.num_rows).astype(np.bool_)

    @staticmethod
    def _numbers(parts: Iterator[I64]) -> I64:
        return np.concatenate([NO_ROWS, *parts])


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
