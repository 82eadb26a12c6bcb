# cython: language_level=3
"""Requests and replies as matchers keep them, phantoms for missing ones, and the results of matchers.

In: what ``tcp_order`` reads of a window's rows. Out: `MatchResults`, which ``exchanges`` makes into rows.

A *phantom* stands for a message that was not captured: it has row -1, and it fits everything.
"""

from array import array
from typing import Any

import cython

from mqpcap.schema.requests import NO_ECHO_KEY, RequestKind, State
from mqpcap.tcp.flow_records import NO_OFFSET

# As plain integers: each compiled module declares the type of those that it imports in its .pxd file.
ONE_REPLY, OPTIONAL_REPLY = int(RequestKind.ONE_REPLY), int(RequestKind.OPTIONAL_REPLY)
UNKNOWN = int(State.UNKNOWN)
ANY_NUMBER = len(RequestKind)
"""After the kinds of requests: a phantom that stands for any number of requests."""
NEVER = 1 << 62
NO_ROW = len(State)
"""After the states: a reply that has no row of its own."""
LIKELY = 16
"""Added to the evidence of a pair whose state is `likely`."""


@cython.cclass
class SideMessage:
    """A request or a reply, or a phantom of one.

    ``offset``, ``end``: of a phantom those of its hole. ``hole_length``: of a phantom; 0 if a part of the hole is
    decided.
    ``ack``: bytes of the other side that its sender had received, as a stream offset; NO_OFFSET if that is not known.
    ``is_unread``: only its offset was captured, so that it fits everything.
    ``asked``: of a request: awaited requests up to it; of a reply: up to the reply.
    """

    def __init__(self) -> None:
        self.row, self.code, self.echo_key, self.payload_key = -1, 0, NO_ECHO_KEY, 0
        self.offset = self.end = self.ts_ns = self.end_ns = self.hole_length = self.ack = self.asked = 0
        self.truncated = self.is_unread = False


@cython.cclass
class Request(SideMessage):
    """A request, or a phantom.

    ``was_captured``: of a phantom: bytes of it were, so that a reply to it is no orphan.
    ``reach``: a reply that acknowledges this offset may answer it. ``pause_ns``: how long both sides paused before it.
    ``after_replies``: replies before it. ``in_hole``: it acknowledges a part of a hole, so that the replies before it
    are unknown.
    """

    def __init__(self) -> None:
        SideMessage.__init__(self)
        self.ack = self.last_ack = NO_OFFSET
        self.kind = self.reach = self.pause_ns = self.after_replies = 0
        self.was_captured = self.has_id = self.in_hole = False


@cython.cclass
class Reply(SideMessage):
    """A reply, or a phantom.

    ``may_be_missing``: a phantom that may stand for no reply; ``any_number``: for any number of them. A phantom stands
    where its hole ends, and acknowledges what the next reply does: the missing ones acknowledged that or less.
    ``publish_offset``: stream offset of this client's publish of the delivered message, -1 if there is none.
    ``acks_less``: an earlier reply acknowledged more: which bytes of the client the server had read is not known.
    """

    def __init__(self) -> None:
        SideMessage.__init__(self)
        self.bit, self.publish_offset = 0, -1
        self.acks_less = self.echoes_nothing = self.may_be_missing = self.any_number = False


def phantom_request(offset: int, end: int, kind: int, was_captured: bool = False) -> Request:
    """A request that may have been in a hole, which begins at an offset."""
    q = Request()
    q.offset, q.end, q.hole_length, q.reach = offset, end, end - offset, offset + 1
    q.kind, q.is_unread, q.was_captured = kind, True, was_captured
    return q


def phantom_reply(end: int, ack: int, hole_length: int, may_be_missing: bool) -> Reply:
    """A reply that was in a hole, or may have been; the hole ends at an offset."""
    r = Reply()
    r.offset, r.end, r.hole_length, r.ack, r.bit = end - 1, end, hole_length, ack, -1
    r.echoes_nothing, r.may_be_missing = True, may_be_missing
    return r


@cython.cclass
class MatchResults:
    """Pairs of rows, states of rows and progress of servers since the results were last cleared.

    ``pairs``: a request, its reply, the next request, and so on.
    ``evidence``: the evidence of each pair, plus LIKELY if it is likely.
    ``states``: a row, its state, the next row, and so on. The first state of a row counts.
    ``kinds``: a row, its new kind, the next row, and so on.
    ``handled_to``: by flow: the server handled the client's bytes below this stream offset.
    ``confirmed_from``: by flow that began before the capture: the server certainly handles the client's bytes in the
    assumed state after this stream offset.
    ``watched_flow``: the flow whose matcher gets ``replay``, -1 for none.
    ``open_bytes``: what the open messages and the keys of all matchers take. It stays when results are cleared.
    """

    handled_to: dict[int, int]
    confirmed_from: dict[int, int]
    replay: Any

    def __init__(self) -> None:
        self.watched_flow, self.replay, self.open_bytes = -1, None, 0
        self.clear()

    def clear(self) -> None:
        """Forget all results."""
        # Arrays take a quarter of the memory of lists: a flood of small requests gives a state to each.
        self.pairs, self.evidence, self.states, self.kinds = array("q"), array("b"), array("q"), array("q")
        self.handled_to, self.confirmed_from = {}, {}

    @cython.cfunc
    def pair(self, request_row: cython.longlong, reply_row: cython.longlong, evidence: cython.int) -> cython.void:
        """Note a pair."""
        self.pairs.append(request_row)
        self.pairs.append(reply_row)
        self.evidence.append(evidence)

    @cython.cfunc
    def state(self, row: cython.longlong, state: cython.int) -> cython.void:
        """Note the state of a row; phantoms have none."""
        if row >= 0:
            self.states.append(row)
            self.states.append(state)
