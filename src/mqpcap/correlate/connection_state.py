# cython: language_level=3
"""The state of a connection (a login): the kinds of its requests, and what messages show of it.

In: certain pairs, replies and holes. Out: kinds of requests by code. Called by: ``matcher``.
"""

import functools
import operator

import cython

from mqpcap.correlate.alignment import Alignment
from mqpcap.correlate.messages import ONE_REPLY, OPTIONAL_REPLY, UNKNOWN, MatchResults, Reply, Request
from mqpcap.schema.requests import RequestKind, RequestTables
from mqpcap.tcp.flow_records import NO_OFFSET


@cython.cclass
class ConnectionState:
    """The state of one connection; see the module.

    ``number``, ``kinds``: the state, and the kinds of requests in it, by code.
    ``following``: the state after the last certain pair, -1 if it stays.
    ``is_assumed``: the start was not captured, and nothing has shown the state.
    ``is_contradicted``: a message showed another state than the assumed one, or may have been missed.
    """

    def __init__(self, tables: RequestTables, started: bool) -> None:
        self.tables, self.following, self.is_contradicted = tables, -1, False
        self.is_assumed = not started and bool(tables.confirming)
        self.number = tables.initial_state if started else tables.midstream_state
        self.kinds = tables.kind[self.number]

    @cython.cfunc
    def is_midstream(self) -> cython.bint:
        """Whether the state is that of connections whose start was not captured."""
        return self.number == self.tables.midstream_state

    @cython.cfunc
    def enter(self, state: cython.int, certain: Alignment) -> cython.void:
        """Set the state, and with it the kinds of requests and the replies that they accept."""
        self.number, self.kinds, self.following = state, self.tables.kind[state], -1
        certain.accepted = self.tables.accepted_replies[state]

    @cython.cfunc
    def add_pair(self, q: Request, r: Reply) -> cython.void:
        """A certain pair may lead to another state."""
        if self.tables.next_state:
            state: cython.int = self.tables.next_state.get((self.number, q.code, r.code), self.number)
            if state != self.number:
                self.following = state

    @cython.cfunc
    def observe(self, r: Reply, flow: cython.longlong, read: cython.longlong, results: MatchResults) -> cython.int:
        """The state that a reply shows. ``read``: how far the client's bytes were read."""
        tables, code = self.tables, r.code
        if self.is_assumed:
            self.is_contradicted = self.is_contradicted or code in tables.contradicting
            if code in tables.confirming:
                self.is_assumed = False
                acknowledged: cython.longlong = read if r.ack == NO_OFFSET else r.ack
                results.confirmed_from[flow] = acknowledged if self.is_contradicted else NO_OFFSET
        if code not in tables.state_after:
            return self.number
        return tables.state_after[code].get(self.number, self.number)

    @cython.cfunc
    def reclassify(self, q: Request, old_kinds: bytes, is_certain: cython.bint, results: MatchResults) -> cython.bint:
        """Give an open request its kind after a change of the state; returns whether it may have a reply.

        If the change is not certain, it may have been earlier, in a hole: some were answered in the old state.
        """
        if q.is_unread:
            return True
        kind: cython.int = self.kinds[q.code]
        if kind != old_kinds[q.code]:
            results.kinds.extend((q.row, kind))
            if not is_certain and kind != ONE_REPLY:
                results.state(q.row, UNKNOWN)
                return False
        if kind not in (ONE_REPLY, OPTIONAL_REPLY):
            return False
        q.kind = kind
        return True

    @cython.cfunc
    def leave_open(self, certain: Alignment) -> cython.void:
        """A missing message may have changed the state: a request may be of its kind in any state.

        Kinds that get a reply prevail, OPTIONAL_REPLY over ONE_REPLY.
        """
        tables = self.tables
        q: Request
        if self.is_midstream():
            return
        may_get = {RequestKind.ONE_REPLY, RequestKind.OPTIONAL_REPLY}
        # By code: the kinds in all states.
        kinds = [{*kinds} for kinds in zip(*tables.kind, strict=True)]
        self.kinds = bytes(max(of_code & may_get or of_code) for of_code in kinds)
        accepted = zip(*tables.accepted_replies, strict=True)
        certain.accepted = [functools.reduce(operator.or_, bits) for bits in accepted]
        for i in range(certain.start, len(certain.ring)):
            q = certain.ring[i]
            if not q.is_unread:
                q.kind = self.kinds[q.code]
        certain.far = certain.high
