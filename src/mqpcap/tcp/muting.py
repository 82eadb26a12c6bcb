"""Connections that nobody asks for, left out before reassembly as soon as they can tell nothing any more.

A connection that is not wanted is followed until it is known whose it is: it may tell a server, by which others are
recognised, or a login, by which others are named. From then on its packets are dropped, but for those that open and
close connections. Rows of wanted connections are the same as if all had been followed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp.flows import FlowColumns
from mqpcap.tcp.headers import Segments, endpoints, keys_of

MAX_MUTED = 1 << 18
"""Connections that are left out so; with more the others are followed to their ends."""
_OPENS_OR_CLOSES = 1 | 2 | 4
"""FIN, SYN, RST."""


class End(NamedTuple):
    """One end of each of some connections: the halves of the address, as `Segments` has them, and the port."""

    hi: Int64Array
    lo: Int64Array
    port: NDArray[np.integer]


ConnectionTest = Callable[[NDArray[np.integer], End, End], NDArray[np.bool_]]
"""Given IP versions and both ends, in either order: which connections are wanted."""


def wanted_flows(test: ConnectionTest, of: FlowColumns) -> NDArray[np.bool_]:
    """Which of some connections are wanted."""
    return test(of.version, *_ends(of))


def _ends(of: FlowColumns) -> tuple[End, End]:
    one, other = (End(of.hi[:, i].copy(), of.lo[:, i].copy(), of.port[:, i]) for i in (0, 1))
    return one, other


class Muted:
    """The connections that are left out."""

    def __init__(self) -> None:
        self._keys: Int64Array = np.zeros(0, np.int64)

    def add(self, of: FlowColumns) -> None:
        """Leave these out from now on."""
        one, other = (endpoints(*end) for end in _ends(of))
        keys = np.union1d(self._keys, keys_of((one, other)))
        if len(keys) <= MAX_MUTED:
            self._keys = keys

    def left(self, segments: Segments, test: ConnectionTest) -> NDArray[np.intp]:
        """The rows of segments that are followed."""
        if not len(self._keys):
            return np.arange(len(segments.key))
        s = segments
        place = np.minimum(np.searchsorted(self._keys, s.key), len(self._keys) - 1)
        muted = self._keys[place] == s.key
        opened = s.key[muted & (s.flags & 2 != 0)]
        if len(opened):  # other connections between the same ends
            muted &= ~np.isin(s.key, opened)
            self._keys = np.setdiff1d(self._keys, opened)
        muted &= s.flags & _OPENS_OR_CLOSES == 0
        # Keys are hashes that a capture may choose: never one that is wanted.
        rows = np.flatnonzero(muted)
        some = End(s.src_hi[rows], s.src_lo[rows], s.sport[rows]), End(s.dst_hi[rows], s.dst_lo[rows], s.dport[rows])
        muted[rows[test(s.version[rows], *some)]] = False
        return np.flatnonzero(~muted)
