"""Which reply answers which request where replies name their requests (msgq)."""

from collections.abc import Sequence

from mqpcap.correlate.conversation import Reply, Request
from mqpcap.correlate.dialogue import FIXED, NO_ROW, OPTIONAL, UNANSWERED, UNKNOWN, Found
from mqpcap.schema.requests import RequestTables

MAX_NAMES = 1 << 16
"""Names of requests that a connection remembers, to tell which are used again."""


class NamedRequests:
    """The open requests of a connection whose replies name them: in any order, the first one counts.

    A name that was used again before its reply came says nothing any more.
    """

    def __init__(self, tables: RequestTables, flow: int, started: bool, found: Found) -> None:
        self.tables, self.found = tables, found
        self.open: dict[int, tuple[int, int, bool, int]] = {}
        """By name: row, time, whether a reply is due, and how many gaps there were in the replies when it was asked."""
        self.used: dict[int, None] = {}
        self.gap_count = 0

    def request(self, q: Request, numbers: Sequence[int]) -> int:
        """Take a request in; returns its kind. ``numbers``: one, not 0 if several replies may come."""
        kind, tie = self.tables.kind[0][q.code], q.tie
        if kind not in (FIXED, OPTIONAL):
            return kind
        if tie == 0 or tie in self.used:
            self.found.states.append((q.row, UNKNOWN))
            self._drop(tie)
            return kind
        self.used[tie] = None
        if len(self.used) > MAX_NAMES:
            oldest = next(iter(self.used))
            del self.used[oldest]
            self._drop(oldest)
        self.open[tie] = (q.row, q.ts_ns, kind == FIXED, self.gap_count if numbers[0] else -1)
        return kind

    def _drop(self, tie: int) -> None:
        waiting = self.open.pop(tie, None)
        if waiting is not None:
            self.found.states.append((waiting[0], UNKNOWN))

    def reply(self, r: Reply) -> None:
        """Take a reply in; further ones have no row."""
        waiting = self.open.get(r.tie)
        if waiting is None or r.ts_ns < waiting[1]:
            self.found.states.append((r.row, NO_ROW))
        elif waiting[3] >= 0 and waiting[3] != self.gap_count:  # an earlier reply may lie in the gap
            self._drop(r.tie)
            self.found.states.append((r.row, NO_ROW))
        else:
            del self.open[r.tie]
            self.found.pairs.append((waiting[0], r.row))

    def gap(self, from_client: bool, offset: int) -> None:
        """Bytes of a side are missing."""
        self.gap_count += not from_client

    def close(self, ended: bool, whole_replies: bool) -> None:
        """The end of the connection."""
        sure = ended and whole_replies and not self.gap_count
        for row, _, due, _ in self.open.values():
            self.found.states.append((row, UNANSWERED if due and sure else UNKNOWN))
        self.open = {}
