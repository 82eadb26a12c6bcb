"""Counts the connections of each server, for a note on recognised servers with many unrecognised connections.

In: blocks of rows of ``connections``. Out: notes that name the ``-d`` that would read the unrecognised connections.
Called by ``pipeline`` when connections end.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import group_ids

MAX_SERVERS = 4096
"""Servers (address and port) whose connections are counted; connections of further servers are not."""
MIN_UNRECOGNISED = 3
"""If a server has this number of unrecognised connections, a note names the ``-d`` that would read them."""

_COLUMNS = "protocol", "syn_seen", "server_ip", "server_port", "client_ip", "client_port"


class UnrecognisedServers:
    """Connections by server and protocol; those of a named foreign protocol and those without payload do not count."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], Counter[str]] = {}
        """By server: connections by protocol, "" for unrecognised ones."""

    def add(self, rows: pa.Table, foreign_names: Sequence[str | None]) -> None:
        """Count connections, given the foreign protocol of each as far as it is known."""
        has_payload = (rows["bytes_c2s"].to_numpy() + rows["bytes_s2c"].to_numpy()) > 0
        is_unnamed = np.array([name is None for name in foreign_names], np.bool_)
        block = rows.filter(pa.array(has_payload & is_unnamed)).select(_COLUMNS)
        self._count(block, "server")
        # Without a SYN either end may be the server.
        is_either = pc.and_(pc.is_null(block["protocol"]), pc.invert(block["syn_seen"]))
        self._count(block.filter(is_either), "client")

    def _count(self, block: pa.Table, end: str) -> None:
        """Count connections for their server, or for their client."""
        columns = [block[name] for name in (f"{end}_ip", f"{end}_port", "protocol")]
        _, first_rows, counts = np.unique(group_ids(columns, len(block)), return_index=True, return_counts=True)
        order = np.argsort(first_rows)
        rows = zip(*(column.take(pa.array(first_rows[order])).to_pylist() for column in columns), strict=True)
        for (ip, port, protocol), count in zip(rows, counts[order].tolist(), strict=True):
            if (ip, port) in self._counts or len(self._counts) < MAX_SERVERS:
                self._counts.setdefault((ip, port), Counter())[protocol or ""] += count

    def notes(self, decoded_ports: Collection[int]) -> Iterator[str]:
        """Notes on recognised servers with many unrecognised connections; ``decoded_ports``: those of Decode As."""
        for (ip, port), counts in sorted(self._counts.items()):
            unrecognised, recognised = counts[""], Counter({name: n for name, n in counts.items() if name})
            if recognised and unrecognised >= MIN_UNRECOGNISED and port not in decoded_ports:
                ((protocol, count),) = recognised.most_common(1)
                server = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
                yield (
                    f"{unrecognised:,} connections of {server} are not recognised, "
                    f"{count:,} of the same server are {protocol}: -d tcp.port=={port},{protocol} reads them all"
                )
