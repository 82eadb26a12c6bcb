"""What was going on in captures, by operation, topic and client."""

import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.statistics.groups import Groups


class Overview:
    """Messages, errors and latencies by operation, by topic and by client, and when the first and last message came.

    ``groups`` are counters of their own.
    """

    columns = frozenset({"ts_ns"})

    def __init__(self) -> None:
        self.operations = Groups(("protocol", "op"))
        self.topics = Groups(("protocol", "topic"))
        self.clients = Groups(("protocol", "client", "name"))
        self.groups = self.operations, self.topics, self.clients
        self.messages = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages`` in all, and keep their times."""
        self.messages += rows.num_rows
        if rows.num_rows:
            first_ns, last_ns = pc.min_max(rows["ts_ns"]).as_py().values()
            self.first_ns = first_ns if self.first_ns is None else min(first_ns, self.first_ns)
            self.last_ns = last_ns if self.last_ns is None else max(last_ns, self.last_ns)
