"""What was going on in captures, by operation, topic and client."""

import numpy as np
import pyarrow as pa

from mqpcap.statistics.groups import Groups


class Overview:
    """Messages, errors and latencies by operation, by topic and by client, and when the first and last message came."""

    def __init__(self) -> None:
        self.operations = Groups(("protocol", "op"))
        self.topics = Groups(("protocol", "topic"))
        self.clients = Groups(("protocol", "client", "name"))
        self.messages = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    @property
    def groups(self) -> tuple[Groups, ...]:
        """All of them."""
        return self.operations, self.topics, self.clients

    def take_messages(self, rows: pa.Table) -> None:
        """Count rows of ``messages``."""
        for groups in self.groups:
            groups.take_messages(rows)
        times = rows["ts_ns"].to_numpy()
        self.messages += len(times)
        if len(times):
            first, last = int(np.min(times)), int(np.max(times))
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
            self.last_ns = last if self.last_ns is None else max(last, self.last_ns)

    def take_exchanges(self, rows: pa.Table) -> None:
        """Count rows of ``exchanges``."""
        for groups in self.groups:
            groups.take_exchanges(rows)

    def end_of_capture(self) -> None:
        """What has found no request finds none."""
        for groups in self.groups:
            groups.end_of_capture()
