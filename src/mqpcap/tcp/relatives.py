"""Connections whose packets count for another one: the other side of NAT, and subflows of Multipath TCP.

In: the `Segments` of a window. Out: the same, their packets with endpoints and numbers of the other one. Called by: the
pipeline, before and after `Reassembler.feed`.
"""

from collections.abc import Iterator

import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.tcp.headers import Segments
from mqpcap.tcp.multipath import Multipath
from mqpcap.tcp.reassembly import Reassembler
from mqpcap.tcp.views import Views


class Relatives:
    """``origins``: by connection, the id of the other one: for ``same_as``, and for ``subflow_of``."""

    def __init__(self) -> None:
        self._views, self.multipath = Views(), Multipath()
        self.origins: tuple[dict[int, int], dict[int, int]] = {}, {}

    def moved(self, segments: Segments) -> Segments:
        """The segments, those of relatives as packets of the other connection."""
        return self.multipath.joined(self._views.translated(segments))

    def resolve(self, assembler: Reassembler) -> None:
        """Find the connections of the relatives that the last segments showed."""
        new_relatives = self._views.new, self.multipath.new
        if not any(new_relatives):
            return
        numbers = assembler.live
        keys, base = assembler.flows.anchors(numbers)
        for origins, relatives in zip(self.origins, new_relatives, strict=True):
            for key, first_key, starts in relatives:
                fits = np.True_ if starts is None else (np.sort(base, axis=1) == sorted(starts)).all(axis=1)
                first_view, relative = (numbers[(keys == each) & fits] for each in (first_key, key))
                if len(first_view) and len(relative):
                    origins[int(relative[-1])] = int(assembler.flows.columns(first_view[-1:]).connection_ids()[0])
            relatives.clear()

    def forget(self, numbers: Int64Array) -> None:
        """Drop what is known of ended connections."""
        for origins in filter(None, self.origins):
            for number in numbers.tolist():
                origins.pop(number, None)

    def notes(self) -> Iterator[str]:
        """Which connections are relatives of others."""
        yield from (*self._views.notes(), *self.multipath.notes())
