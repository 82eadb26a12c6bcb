"""Drops the packets of excluded connections before reassembly.

An excluded connection is decoded until its protocol is known: it may prove which protocol a server speaks, or carry the
login that names another connection. After that its packets are dropped, except SYN, FIN and RST. Rows of selected
connections are the same as if all connections had been decoded.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.tcp.flags import FIN, RST, SYN
from mqpcap.tcp.flows import FlowColumns
from mqpcap.tcp.headers import Segments, endpoints, keys_of

MAX_EXCLUDED = 1 << 18
"""Excluded connections; further ones are decoded to their ends."""


class Endpoints(NamedTuple):
    """One endpoint of each connection: the halves of the address, as `Segments` has them, and the port."""

    hi: Int64Array
    lo: Int64Array
    port: NDArray[np.integer]


ConnectionTest = Callable[[NDArray[np.integer], Endpoints, Endpoints], NDArray[np.bool_]]
"""Given IP versions and both endpoints, in either order: which connections are selected."""


def selected_flows(test: ConnectionTest, flow_columns: FlowColumns) -> NDArray[np.bool_]:
    """Which connections are selected."""
    return test(flow_columns.version, *_both_endpoints(flow_columns))


def _both_endpoints(flow_columns: FlowColumns) -> tuple[Endpoints, Endpoints]:
    hi, lo, port = flow_columns.hi, flow_columns.lo, flow_columns.port
    endpoints_a, endpoints_b = (Endpoints(hi[:, i].copy(), lo[:, i].copy(), port[:, i]) for i in (0, 1))
    return endpoints_a, endpoints_b


class ExcludedConnections:
    """The connections whose packets are dropped."""

    def __init__(self) -> None:
        self._keys: Int64Array = np.zeros(0, np.int64)

    def add(self, flow_columns: FlowColumns) -> None:
        """Exclude these connections from now on."""
        endpoints_a, endpoints_b = (endpoints(*columns) for columns in _both_endpoints(flow_columns))
        keys = np.union1d(self._keys, keys_of((endpoints_a, endpoints_b)))
        if len(keys) <= MAX_EXCLUDED:
            self._keys = keys

    def kept_rows(self, segments: Segments, test: ConnectionTest) -> NDArray[np.intp]:
        """The rows of the segments that are not dropped."""
        if not len(self._keys):
            return np.arange(len(segments.key))
        s = segments
        index = np.minimum(np.searchsorted(self._keys, s.key), len(self._keys) - 1)
        is_excluded = self._keys[index] == s.key
        opened = s.key[is_excluded & (s.flags & SYN != 0)]
        if len(opened):  # other connections between the same endpoints
            is_excluded &= ~np.isin(s.key, opened)
            self._keys = np.setdiff1d(self._keys, opened)
        is_excluded &= s.flags & (FIN | SYN | RST) == 0
        # Keys are hashes, and a crafted capture can make them collide. Test the addresses again, so that no selected
        # connection loses a packet.
        rows = np.flatnonzero(is_excluded)
        senders = Endpoints(s.src_hi[rows], s.src_lo[rows], s.sport[rows])
        receivers = Endpoints(s.dst_hi[rows], s.dst_lo[rows], s.dport[rows])
        is_excluded[rows[test(s.version[rows], senders, receivers)]] = False
        return np.flatnonzero(~is_excluded)
