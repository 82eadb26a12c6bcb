# cython: language_level=3
"""Pairs the replies of a connection with its requests, as messages arrive.

In: the requests and replies of one connection, in capture order. Out: `MatchResults` with pairs and request states.
Called by: ``exchanges``, through `match_messages`. Promise: no wrong `answered` pair.

A server answers requests in order, so pairs never cross. An alignment gives each reply a request. Its pairs do not
cross, no request that must be answered is passed over, operations and ids fit, and acknowledgements allow it. Missing
messages take part as *phantoms*: a hole of the client is some requests, a hole of the server some replies, and a start
before the capture any number of requests (ANY). A pair is certain if every alignment contains it. It is likely if every
alignment that keeps an assumption with evidence contains it.

*Place* ``i``: all requests below index ``i`` of the ring are settled, and the next reply answers ``i`` or a later one.
An `Alignment` keeps the first and the last place. A place that every alignment passes is an *anchor*: requests before
it are decided and leave the ring. `src/mqpcap/README.md`, section Pairing, has rules and examples.
"""

import functools
import operator
from array import array
from collections import deque
from collections.abc import Sequence

import cython
import numpy as np

from mqpcap.correlate.batch import UNREAD, Messages
from mqpcap.correlate.replay import ANY as ANY_REQUESTS
from mqpcap.correlate.replay import MISSING
from mqpcap.schema.requests import NO_ECHO_KEY, Evidence, RequestKind, RequestTables, State

NO_ROW = len(State)
"""After the states: a reply that has no row of its own."""
LIKELY = 16
"""Added to the evidence of a pair whose state is `likely`."""
MAX_OPEN_REQUESTS = 1 << 14
"""Requests of a group that are not settled, and replies as well; with more all of them are decided as they stand."""
MAX_LOOKED_AT = 1024
"""Requests that are compared with one reply. With more, its first and last place stay as wide as they may be."""
MAX_PHANTOM_REQUESTS = 12
MAX_PHANTOM_REPLIES = 48
"""Phantoms of one hole; more are ANY number of requests or replies, which decides as much."""
MAX_ECHO_KEYS = 1 << 12
"""Ids of a client that are remembered, the last ones."""
MAX_OWN_PUBLISHES = 1 << 10
"""Messages of a client that are remembered, so that their delivery is recognised."""
MIN_IDS = 3
"""Different ids that show that a client does not use one id for all requests."""
MIN_ROUNDS = 3
MIN_SPREAD_ROUNDS = 6
MAX_ROUNDS = 64
"""Rounds (a reply, the next request, its reply) that are remembered as evidence."""
BURST_NS = 2_000_000
"""Optional requests that follow each other within this time were sent together."""

# Kinds, states and evidence for C.
_FIXED = cython.declare(cython.int, int(RequestKind.ONE_REPLY))
_OPTIONAL = cython.declare(cython.int, int(RequestKind.OPTIONAL_REPLY))
_ONE_WAY = cython.declare(cython.int, int(RequestKind.ONE_WAY))
_CLOSES = cython.declare(cython.int, int(RequestKind.CLOSES))
_TRUNCATED = cython.declare(cython.int, int(RequestKind.TRUNCATED))
_ANY = cython.declare(cython.int, len(RequestKind))
_SILENT = cython.declare(cython.int, int(State.SILENT))
_NOT_EXPECTED = cython.declare(cython.int, int(State.NOT_EXPECTED))
_UNANSWERED = cython.declare(cython.int, int(State.UNANSWERED))
_LOST = cython.declare(cython.int, int(State.LOST))
_ORPHAN = cython.declare(cython.int, int(State.ORPHAN))
_UNKNOWN = cython.declare(cython.int, int(State.UNKNOWN))
_NO_ROW = cython.declare(cython.int, NO_ROW)
_ORDER = cython.declare(cython.int, int(Evidence.ORDER))
_ECHO = cython.declare(cython.int, int(Evidence.ECHO))
_ID = cython.declare(cython.int, int(Evidence.ID))
_ALTERNATION = cython.declare(cython.int, int(Evidence.ALTERNATION))
_PAUSE = cython.declare(cython.int, int(Evidence.PAUSE))
_CLOSE = cython.declare(cython.int, int(Evidence.CLOSE))
_MAX_ECHO_KEYS = cython.declare(cython.Py_ssize_t, MAX_ECHO_KEYS)
_MAX_OWN_PUBLISHES = cython.declare(cython.Py_ssize_t, MAX_OWN_PUBLISHES)
_UNREAD = cython.declare(cython.int, UNREAD)
_NO_KEY = cython.declare(cython.longlong, NO_ECHO_KEY)
_NO_OFFSET = cython.declare(cython.longlong, -(1 << 62))
_DELIVERED = cython.declare(cython.longlong, -2)
_NEVER = cython.declare(cython.longlong, (1 << 62))


@cython.cclass
class Request:
    """A request, or a phantom (``row`` -1) that stands for one in a hole.

    ``reach``: a reply that acknowledges this offset may answer it. ``pause_ns``: how long both sides paused before it.
    ``asked``, ``after_replies``: awaited requests up to it, and replies before it. ``in_hole``: it acknowledges a part
    of a hole, so that the replies before it are unknown. ``is_unread``: nothing but its place was captured, so it fits
    everything.
    """

    row: cython.longlong
    code: cython.int
    kind: cython.int
    echo_key: cython.longlong
    payload_key: cython.longlong
    offset: cython.longlong
    end: cython.longlong
    reach: cython.longlong
    first_ack: cython.longlong
    last_ack: cython.longlong
    ts_ns: cython.longlong
    end_ns: cython.longlong
    pause_ns: cython.longlong
    asked: cython.longlong
    after_replies: cython.longlong
    has_id: cython.bint
    in_hole: cython.bint
    truncated: cython.bint
    is_unread: cython.bint


@cython.cclass
class Reply:
    """A reply, or a phantom (``row`` -1).

    ``may_be_missing``: a phantom that may stand for no reply; ``any_number``: for any number of them. A phantom stands
    where its hole ends, and acknowledges what the next reply does: the missing ones acknowledged that or less.
    ``publish_offset``: stream offset of this client's publish of the delivered message, -1 if there is none.
    """

    row: cython.longlong
    code: cython.int
    bit: cython.longlong
    echo_key: cython.longlong
    payload_key: cython.longlong
    offset: cython.longlong
    end: cython.longlong
    ack: cython.longlong
    ts_ns: cython.longlong
    publish_offset: cython.longlong
    hole_length: cython.longlong
    asked: cython.longlong
    echoes_nothing: cython.bint
    may_be_missing: cython.bint
    any_number: cython.bint


@cython.cclass
class Placed:
    """A reply in an alignment: its first and last place, the requests it acknowledges, the last that it names.

    ``own_from``: the first request after the client's own publish of the message that the reply returns, 0 without one.
    """

    reply: Reply
    low: cython.Py_ssize_t
    high: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    named: cython.Py_ssize_t
    own_from: cython.Py_ssize_t


@cython.cfunc
def _phantom_request(offset: cython.longlong, kind: cython.int) -> Request:
    q: Request = Request.__new__(Request)
    q.row, q.code, q.kind, q.echo_key, q.payload_key = -1, 0, kind, _NO_KEY, 0
    q.offset = q.end = offset
    q.reach = offset + 1
    q.first_ack = q.last_ack = _NO_OFFSET
    q.ts_ns = q.end_ns = q.pause_ns = q.asked = q.after_replies = 0
    q.has_id, q.truncated, q.is_unread, q.in_hole = False, False, True, False
    return q


@cython.cfunc
def _phantom_reply(end: cython.longlong, ack: cython.longlong, hole_length: cython.longlong) -> Reply:
    r: Reply = Reply.__new__(Reply)
    r.row, r.code, r.bit, r.echo_key, r.payload_key = -1, 0, -1, _NO_KEY, 0
    r.offset, r.end, r.ack, r.hole_length = end - 1, end, ack, hole_length
    r.ts_ns, r.publish_offset, r.asked = 0, -1, 0
    r.echoes_nothing, r.may_be_missing, r.any_number = True, True, False
    return r


@cython.cclass
class MatchResults:
    """Pairs of rows, states of rows and progress of servers since the results were last cleared.

    pairs            a request, its reply, the next request, and so on
    evidence         of each pair, plus LIKELY if it is likely
    states           a row, its state, the next row, and so on; the first state of a row counts
    kinds            rows and kinds of those whose kind changed after they were added
    handled_to       by flow: the stream offset up to which the server handled the client's bytes
    confirmed_from   by flow that began before the capture: the first row that is certainly in the assumed state
    """

    # Arrays take a quarter of the memory of lists: a flood of small requests gives a state to each.
    pairs = cython.declare(object, visibility="public")
    evidence = cython.declare(object, visibility="public")
    states = cython.declare(object, visibility="public")
    kinds = cython.declare(object, visibility="public")
    handled_to = cython.declare(dict, visibility="public")
    confirmed_from = cython.declare(dict, visibility="public")
    watched_flow = cython.declare(cython.longlong, visibility="public")  # whose matcher gets the replay, -1 for none
    replay = cython.declare(object, visibility="public")

    def __init__(self) -> None:
        self.watched_flow, self.replay = -1, None
        self.clear()

    def clear(self) -> None:
        """Forget all results."""
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


@cython.cclass
class Alignment:
    """First and last place of the replies since the last anchor, over the requests of a ring.

    ``low``, ``high``: the first and last place after all replies so far. ``start``: the place of the last anchor.
    """

    tables: object
    ring: list
    evidence: cython.int
    is_active: cython.bint
    accepted: Sequence[int]  # replies, by code of a request
    echoes: cython.bint
    use_ids: cython.bint  # whether a reply that names a captured request answers no phantom in front of it
    use_publishes: cython.bint  # whether a message that the client published came from no one else
    handling_ns: cython.longlong  # the server settles an optional request within this time; 0: no such bound
    start: cython.Py_ssize_t
    low: cython.Py_ssize_t
    high: cython.Py_ssize_t
    far: cython.Py_ssize_t
    placed: list
    outcome: list  # of settle(): each reply with the first and the last request that it may answer, last reply first

    def __init__(self, ring: list, tables: RequestTables, accepted: Sequence[int], evidence: cython.int) -> None:
        self.ring, self.tables, self.accepted, self.evidence = ring, tables, accepted, evidence
        self.echoes, self.use_ids, self.use_publishes, self.handling_ns = tables.echoes, False, False, 0
        self.placed, self.outcome = [], []
        self.restart(0)

    @cython.cfunc
    def restart(self, place: cython.Py_ssize_t) -> cython.void:
        """Begin at an anchor."""
        self.start = self.low = self.high = self.far = place
        self.is_active = True
        if self.placed:
            self.placed = []

    @cython.cfunc
    def kind(self, i: cython.Py_ssize_t) -> cython.int:
        """The kind of request ``i``."""
        q: Request = self.ring[i]
        return q.kind

    @cython.cfunc
    def after(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The place after a reply to request ``i``."""
        return i if self.kind(i) == _ANY else i + 1

    @cython.cfunc
    def is_settled(self) -> cython.bint:
        """Whether all replies so far lead to one place."""
        return self.low == self.high

    @cython.cfunc
    def farthest(self) -> cython.Py_ssize_t:
        """The last place that is reached over requests that need no reply."""
        if self.far < self.high:
            self.far = self.high
        n: cython.Py_ssize_t = len(self.ring)
        while self.far < n and self.kind(self.far) != _FIXED:
            self.far += 1
        return self.far

    @cython.cfunc
    def fits(self, i: cython.Py_ssize_t, r: Reply, named: cython.Py_ssize_t) -> cython.bint:
        """Whether a reply may answer request ``i``; ``named``: the last captured request whose id it repeats."""
        q: Request = self.ring[i]
        if q.is_unread:
            return i > named or not self.use_ids
        if r.row < 0:
            return True
        if self.echoes and not r.echoes_nothing and (q.echo_key != r.echo_key or r.echo_key == _NO_KEY):
            return False
        return bool(self.accepted[q.code] & r.bit)

    @cython.cfunc
    def add(
        self, r: Reply, limit: cython.Py_ssize_t, named: cython.Py_ssize_t, own_from: cython.Py_ssize_t
    ) -> cython.bint:
        """Add a reply that acknowledges the requests below ``limit``; returns whether it has a place."""
        low: cython.Py_ssize_t = self.low
        far: cython.Py_ssize_t = self.farthest()
        top: cython.Py_ssize_t = min(far, limit - 1)
        first: cython.Py_ssize_t = -1
        last: cython.Py_ssize_t = -1
        i: cython.Py_ssize_t
        p: Placed = Placed.__new__(Placed)
        p.reply, p.low, p.high, p.limit, p.named, p.own_from = r, low, far, limit, named, own_from
        if self.use_publishes:
            low = max(low, own_from)
        if r.any_number:
            self.placed.append(p)
            self.high = max(far, limit)
            return True
        most: cython.Py_ssize_t = top if not self.placed else min(top, low + MAX_LOOKED_AT)
        for i in range(low, most + 1):
            if self.fits(i, r, named):
                first = i
                break
        if first < 0 and most < top:
            first, last = low, top
        elif first >= 0:
            last = first
            for i in range(top, max(first, top - MAX_LOOKED_AT), -1):
                if self.fits(i, r, named):
                    last = i
                    break
            else:
                last = max(first, top - MAX_LOOKED_AT) if top - first > MAX_LOOKED_AT else first
            if first < last and self.handling_ns > 0 and r.row >= 0:
                first = self._handled_in_time(first, last, r, named)
        if first < 0:
            if r.may_be_missing:
                self.placed.append(p)
                self.high = far
                return True
            return False
        self.placed.append(p)
        if r.may_be_missing:
            self.high = max(far, self.after(last))
            return True
        p.low = first
        self.low, self.high = self.after(first), self.after(last)
        return True

    @cython.cfunc
    def _handled_in_time(
        self, first: cython.Py_ssize_t, last: cython.Py_ssize_t, r: Reply, named: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """The first candidate that the server had not settled when the last one was sent.

        With many requests between them the server may not have come to the first one: nothing is known.
        """
        newest: Request = self.ring[last]
        q: Request
        i: cython.Py_ssize_t = first
        if newest.row < 0 or r.ts_ns - newest.ts_ns > self.handling_ns or last - first > MAX_LOOKED_AT:
            return first
        while i < last:
            q = self.ring[i]
            if q.kind != _OPTIONAL or q.row < 0:
                break
            if self.fits(i, r, named) and newest.ts_ns - q.end_ns < self.handling_ns:
                return i
            i += 1
        return i if i == last else first

    @cython.cfunc
    def settle(self, x: cython.Py_ssize_t, y: cython.Py_ssize_t) -> cython.bint:
        """Go back through the replies, as every alignment ends at a place in x..y; returns whether one is left."""
        p: Placed
        r: Reply
        a: cython.Py_ssize_t
        z: cython.Py_ssize_t
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        place: cython.Py_ssize_t
        first: cython.Py_ssize_t
        last: cython.Py_ssize_t
        self.outcome = []
        for k in range(len(self.placed) - 1, -1, -1):
            p = self.placed[k]
            r = p.reply
            while x > self.start and self.kind(x - 1) != _FIXED:
                x -= 1
            if r.any_number:
                x, y = p.low, min(p.high, y)
                self.outcome.append((r, -1, -1))
                continue
            a, z = max(p.low, x - 1), min(p.high, p.limit - 1, y)
            if self.use_publishes:
                a = max(a, p.own_from)
            first = last = -1
            for i in range(a, min(z, a + MAX_LOOKED_AT) + 1):
                place = self.after(i)
                if x <= place <= y and self.fits(i, r, p.named):
                    first = i
                    break
            if first < 0 and z > a + MAX_LOOKED_AT:
                first, last = a, z
            elif first >= 0:
                last = first
                for i in range(z, max(first, z - MAX_LOOKED_AT), -1):
                    place = self.after(i)
                    if x <= place <= y and self.fits(i, r, p.named):
                        last = i
                        break
                else:
                    last = max(first, z - MAX_LOOKED_AT) if z - first > MAX_LOOKED_AT else first
            if first < 0:
                if not r.may_be_missing:
                    return False
                x, y = max(p.low, x), min(p.high, y)
            elif r.may_be_missing:
                x, y = max(p.low, min(x, first)), min(p.high, max(y, last))
            else:
                x, y = first, last
            self.outcome.append((r, first, last))
        return True


@cython.cclass
class TcpOrder:
    """Gives the messages of a connection to a matcher in TCP's order, whatever the clocks of its directions say.

    A reply waits until the client's bytes that it acknowledges were read or given up. A request waits for the bytes of
    the server likewise.
    """

    client_read: cython.longlong  # stream offset up to which messages were read
    server_read: cython.longlong
    wake_at: cython.longlong  # ``client_read`` at which a reply that waits goes on
    last_ns: cython.longlong  # when the last byte of either side came
    pause_ns: cython.longlong  # the longest pause of both sides since the last reply
    skips_silent: cython.bint  # requests that get no reply need not be added; in some states they may get one
    client_truncated: cython.bint  # the last message was not captured whole, so a hole begins inside it
    server_truncated: cython.bint
    waiting_requests: object
    waiting_replies: object
    replay = cython.declare(object, visibility="public")  # a `Replay`, None unless somebody wants it

    def __init__(self) -> None:
        self.replay = None
        self.client_read = self.server_read = self.last_ns = self.pause_ns = 0
        self.client_truncated = self.server_truncated = False
        self.skips_silent = True
        self.wake_at = _NEVER
        self.waiting_requests, self.waiting_replies = deque(), deque()

    @cython.ccall
    def hole(self, from_client: cython.bint, end: cython.longlong, ack: cython.longlong) -> cython.void:
        """Bytes of a side up to an offset gave no message; ``ack``: what the next message acknowledges."""
        q: Request
        if from_client:
            q = _phantom_request(self.client_read, _OPTIONAL)
            q.end, q.truncated = end, self.client_truncated
            self.client_read = end
            self.request(q)
        else:
            r: Reply = _phantom_reply(end, ack, end - self.server_read)
            r.may_be_missing = self.server_truncated
            self.server_read = end
            self.reply(r)

    @cython.ccall
    def request(self, q: Request) -> cython.void:
        """Add a request, or a hole of the client."""
        if not self.waiting_requests and not self.waiting_replies and q.first_ack <= self.server_read:
            self._request(q)
        else:
            self.waiting_requests.append(q)
            self.release(len(self.waiting_requests) > MAX_OPEN_REQUESTS)

    @cython.ccall
    def reply(self, r: Reply) -> cython.void:
        """Add a reply, or a hole of the server."""
        if not self.waiting_requests and not self.waiting_replies and r.ack <= self.client_read:
            self._reply(r)
        else:
            self.waiting_replies.append(r)
            self.release(len(self.waiting_replies) > MAX_OPEN_REQUESTS)

    @cython.ccall
    def release(self, all_of_them: cython.bint) -> cython.void:
        """Go on with messages that waited, as far as both sides were read."""
        q: Request
        r: Reply
        requests, replies = self.waiting_requests, self.waiting_replies
        while requests or replies:
            q = requests[0] if requests else None
            r = replies[0] if replies else None
            if q is not None and q.first_ack <= self.server_read and (r is None or r.offset >= q.first_ack):
                q.in_hole = r is not None and q.first_ack > r.end - r.hole_length and r.hole_length > 0
                self._request(requests.popleft())
            elif r is not None and (
                (r.ack <= self.client_read and (q is None or q.offset >= r.ack))
                or (r.hole_length > 0 and q is not None and q.first_ack >= r.end)
            ):
                self._reply(replies.popleft())
            elif q is not None and (r is not None or all_of_them):  # each waits for the other: acknowledged later
                q.in_hole = q.in_hole or r is not None  # what the waiting reply answers is not known
                self._request(requests.popleft())
            elif all_of_them:
                self._reply(replies.popleft())
            else:
                break
        self.wake_at = _NEVER
        if replies:
            r = replies[0]
            self.wake_at = r.ack

    @cython.cfunc
    def _request(self, q: Request) -> cython.void:
        pass

    @cython.cfunc
    def _reply(self, r: Reply) -> cython.void:
        pass

    @cython.cfunc
    def one_way(self, row: cython.longlong, kind: cython.int) -> cython.void:
        """A request of a kind that gets no reply."""

    @cython.ccall
    def close(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint,
        requests_end: cython.longlong, replies_end: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """The connection is over; returns whether it was in another state than assumed, or may have been.

        ``ended``: its end was captured; ``orderly``: see `ConnectionEnds`. ``whole_requests``, ``whole_replies``: all
        bytes of the side after its last message are no message; else a hole reaches to ``requests_end``,
        ``replies_end``.
        """
        if not whole_requests:
            self.hole(True, max(requests_end, self.client_read + 1), _NO_OFFSET)
        if not whole_replies:
            self.hole(False, max(replies_end, self.server_read + 1), _NO_OFFSET)
        self.release(True)
        return self._close(ended, orderly, whole_requests, whole_replies)

    @cython.cfunc
    def _close(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        return False


@cython.cclass
class _Rounds:
    """Whether a client waits for each reply before it asks again: rounds of a reply, the next request and its reply."""

    is_denied: cython.bint
    waited_count: cython.longlong  # once denied: awaited requests before that, if there was evidence by then
    asked_count: cython.longlong
    open_count: cython.longlong  # awaited requests since the last reply
    round_count: cython.longlong
    habit_count: cython.longlong  # certain pairs whose request was the only open one
    is_whole: cython.bint  # no hole since the last reply
    reply_ns: cython.longlong
    reply_end: cython.longlong
    asked_ns: cython.longlong
    asked_end_ns: cython.longlong
    asked_fixed: cython.bint
    reply_to_reply: object
    request_to_reply: object

    def __init__(self) -> None:
        self.is_denied = self.is_whole = self.asked_fixed = False
        self.asked_count = self.open_count = self.round_count = self.habit_count = self.waited_count = 0
        self.reply_ns = self.asked_ns = self.asked_end_ns = 0
        self.reply_end = _NO_OFFSET
        self.reply_to_reply, self.request_to_reply = array("q"), array("q")

    @cython.cfunc
    def asked(self, q: Request) -> cython.void:
        """An awaited request."""
        is_second: cython.bint = self.open_count > 0 and (self.asked_fixed or q.ts_ns - self.asked_end_ns < 50_000_000)
        if not self.is_denied and (is_second or _NO_OFFSET < q.first_ack < self.reply_end):
            self.waited_count = self.asked_count if self.has_evidence() else 0
            self.is_denied = True
        self.open_count += 1
        self.asked_count += 1
        self.asked_ns, self.asked_end_ns, self.asked_fixed = q.ts_ns, q.end_ns, q.kind == _FIXED

    @cython.cfunc
    def replied(self, r: Reply) -> cython.void:
        """A captured reply."""
        if self.is_whole:
            if self.open_count == 0:
                self.is_denied = True
            elif self.open_count == 1:
                self.round_count += 1
                if len(self.reply_to_reply) < MAX_ROUNDS:
                    self.reply_to_reply.append(r.ts_ns - self.reply_ns)
                    self.request_to_reply.append(r.ts_ns - self.asked_ns)
                else:
                    k = self.round_count % MAX_ROUNDS
                    self.reply_to_reply[k], self.request_to_reply[k] = r.ts_ns - self.reply_ns, r.ts_ns - self.asked_ns
        self.reply_ns, self.reply_end, self.open_count, self.is_whole = r.ts_ns, r.end, 0, True

    @cython.cfunc
    def hole(self) -> cython.void:
        """Bytes of a side are missing."""
        self.is_whole, self.open_count = False, 0

    @cython.cfunc
    def paired(self, q: Request, r: Reply) -> cython.void:
        """A certain pair shows how many requests were open."""
        if r.asked > q.asked:
            self.is_denied = True
        elif r.asked == q.asked:
            self.habit_count += 1

    def words(self) -> str:
        """The evidence, for people."""
        if self.is_denied:
            return f"two requests were open at a time after {self.waited_count} requests"
        if self.round_count < MIN_ROUNDS:
            return f"{self.round_count} rounds, of at least {MIN_ROUNDS}"
        if self.habit_count >= MIN_ROUNDS:
            return f"the only open request in {self.habit_count} certain pairs"
        return f"{self.round_count} rounds, their pauses and how far times spread"

    @cython.cfunc
    def count_waited(self) -> cython.longlong:
        """How many awaited requests, from the first one on, were likely asked with nothing else open."""
        if self.is_denied:
            return self.waited_count
        return self.asked_count if self.has_evidence() else 0

    @cython.cfunc
    def has_evidence(self) -> cython.bint:
        """Whether the client waits, by something that a client with a constant number of open requests does not do."""
        if self.is_denied or self.round_count < MIN_ROUNDS:
            return False
        if self.habit_count >= MIN_ROUNDS:
            return True
        between, taken = np.array(self.reply_to_reply), np.array(self.request_to_reply)
        usual_between, usual_taken = np.median(between), np.median(taken)
        if ((between >= 4 * usual_between) & (taken <= 2 * usual_taken)).any():
            return True  # further replies would have come in the pause
        if len(between) < MIN_SPREAD_ROUNDS:
            return False
        return bool(np.abs(between - usual_between).mean() > 2 * np.abs(taken - usual_taken).mean())


@cython.cclass
class RequestMatcher(TcpOrder):
    """The requests and replies of one connection whose replies keep the order of the requests; see the module."""

    tables: object
    results: MatchResults
    echoes: cython.bint
    settles_in_time: cython.bint  # whether the server handles each optional request within some time
    awaited: bytes  # by code: whether the success of an optional request is a reply
    max_open: cython.Py_ssize_t
    flow: cython.longlong
    started: cython.bint
    state: cython.int
    kinds: bytes  # by code, in that state
    late_kinds: bytes
    state_assumed: cython.bint
    state_contradicted: cython.bint
    ring: list
    certain: Alignment
    limit: cython.Py_ssize_t  # requests that the last reply acknowledged
    last_phantom: cython.Py_ssize_t  # index of the last phantom, -1 without one
    reply_count: cython.longlong
    rounds: _Rounds
    waited_count: cython.longlong  # awaited requests that are assumed to have been asked with nothing else open
    keys: set  # echo keys of captured requests
    ids: dict  # the last ones, in order
    ids_repeat: cython.bint
    publishes: dict  # stream offsets by payload key, _DELIVERED once the message was delivered
    publish_count: cython.longlong
    publishes_repeat: cython.bint
    server_hole: cython.bint  # since the last anchor
    answered: cython.bint
    closes: cython.bint
    after_close: object
    has_unpaired: cython.bint
    was_restarted: cython.bint  # a span was given up, so that captured requests are forgotten
    handling_ns: cython.longlong
    state_next: cython.int  # that the last certain pair leads to, -1 for none

    def __init__(
        self, tables: RequestTables, flow: cython.longlong, started: cython.bint, results: MatchResults
    ) -> None:
        TcpOrder.__init__(self)
        self.tables, self.flow, self.started, self.results = tables, flow, started, results
        self.late_kinds = tables.kind[tables.midstream_state]
        self.echoes, self.settles_in_time = tables.echoes, tables.habits.quiet_ns is not None
        self.awaited = bytes(code in tables.awaited for code in range(len(self.late_kinds)))
        self.max_open = MAX_OPEN_REQUESTS
        self.ring = []
        self.certain = Alignment(self.ring, tables, tables.accepted_replies[0], _ORDER)
        self._enter(tables.initial_state if started else tables.midstream_state)
        self.state_assumed = not started and bool(tables.confirming)
        self.state_contradicted = self.ids_repeat = self.server_hole = self.answered = self.closes = False
        self.has_unpaired, self.was_restarted, self.state_next = False, False, -1
        self.publish_count, self.publishes_repeat, self.waited_count = 0, False, 0
        self.limit, self.last_phantom, self.reply_count = 0, -1, 0
        self.rounds = _Rounds()
        self.keys, self.ids, self.publishes, self.after_close = set(), {}, {}, array("q")
        self.handling_ns = tables.habits.quiet_ns or 0
        self.certain.handling_ns = self.handling_ns
        if not started:
            self._add_phantom(_phantom_request(_NO_OFFSET, _ANY))

    @cython.cfunc
    def _enter(self, state: cython.int) -> cython.void:
        self.state, self.kinds = state, self.tables.kind[state]
        self.certain.accepted = self.tables.accepted_replies[state]
        self.skips_silent = state == self.tables.midstream_state

    @cython.cfunc
    def _at(self, i: cython.Py_ssize_t) -> Request:
        return self.ring[i]

    @cython.cfunc
    def _add_phantom(self, q: Request) -> cython.void:
        self.last_phantom = len(self.ring)
        self.ring.append(q)

    # -- requests ------------------------------------------------------------------------------------------

    @cython.cfunc
    def _request(self, q: Request) -> cython.void:
        """Add the next request in TCP's order."""
        if q.row < 0:
            self._client_hole(q)
            return
        kind: cython.int = self.kinds[q.code]
        if kind != self.late_kinds[q.code]:
            self.results.kinds.extend((q.row, kind))
        if kind == _TRUNCATED:
            self.results.state(q.row, _UNKNOWN)
            q.is_unread, q.kind = True, _OPTIONAL
            self.rounds.hole()
            self._add_phantom(q)
            return
        if kind != _FIXED and kind != _OPTIONAL:
            self.closes = self.closes or kind == _CLOSES
            self.one_way(q.row, kind)
            return
        if self.closes:
            self.after_close.append(q.row)
            return
        q.kind = kind
        if self.echoes and q.payload_key > 0 and len(self.publishes) < _MAX_OWN_PUBLISHES:
            self.publishes_repeat = self.publishes_repeat or q.payload_key in self.publishes
            self.publishes[q.payload_key] = q.offset
            self.publish_count += 1
        if self.settles_in_time and q.pause_ns >= self.handling_ns and not q.in_hole:
            self._anchor(len(self.ring))
        if q.in_hole:
            self.rounds.hole()
        if kind == _FIXED or self.awaited[q.code]:
            self.rounds.asked(q)
        q.asked, q.after_replies = self.rounds.asked_count, self.reply_count
        if self.echoes and len(self.keys) < _MAX_ECHO_KEYS:
            self.keys.add(q.echo_key)
        if q.has_id and not self.ids_repeat:
            self.ids_repeat = q.echo_key in self.ids
            self.ids[q.echo_key] = True
            if len(self.ids) > _MAX_ECHO_KEYS:
                del self.ids[next(iter(self.ids))]
        self.ring.append(q)
        if self.replay is not None:
            self.replay.add("request", q.offset, MISSING, MISSING, len(self.ring) - self.certain.start)
        if len(self.ring) - self.certain.start > self.max_open:
            self._give_out()

    @cython.cfunc
    def one_way(self, row: cython.longlong, kind: cython.int) -> cython.void:
        """A request that gets no reply, if the state is what it is taken for."""
        if kind == _ONE_WAY and len(self.tables.kind) > 1 and not self.state_assumed:
            self.results.state(row, _NOT_EXPECTED)

    @cython.cfunc
    def _client_hole(self, hole: Request) -> cython.void:
        """Requests may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.end - hole.offset
        self.rounds.hole()
        if self.state != self.tables.midstream_state:
            self._leave_state_open()
        most: cython.longlong = length // habits.shortest_bytes
        if most > MAX_PHANTOM_REQUESTS:
            self._add_phantom(_phantom_request(hole.offset, _ANY))
        else:
            least: cython.longlong = 1 if habits.all_count and not hole.truncated else 0
            for k in range(most):
                self._add_phantom(_phantom_request(hole.offset, _FIXED if k < least else _OPTIONAL))
        if self.replay is not None:
            self.replay.add("hole", hole.offset, MISSING, MISSING, most, -1, False, f"client, {length} bytes")

    # -- replies -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _reply(self, r: Reply) -> cython.void:
        """Add the next reply in TCP's order."""
        if r.row < 0:
            self._server_hole(r)
            return
        tables, code, c = self.tables, r.code, self.certain
        q: Request
        if self.state_assumed:
            self.state_contradicted = self.state_contradicted or code in tables.contradicting
            if code in tables.confirming:
                self.state_assumed = False
                self.results.confirmed_from[self.flow] = r.row if self.state_contradicted else 0
        if code in tables.unreadable:
            self.results.state(r.row, _NO_ROW)
            self._add_reply(_phantom_reply(r.end, r.ack, 0))
            return
        if code in tables.state_after:
            state: cython.int = tables.state_after[code].get(self.state, self.state)
            if state != self.state:
                if c.placed:
                    rows = [self._at(i).row for i in range(c.start, len(self.ring))]
                    self._record("decision", "the state of the connection changes")
                    self._decide(c.low, c.farthest(), False)
                    for row in rows:
                        self.results.state(row, _UNKNOWN)
                    self._restart_late(len(self.ring))
                self._change_state(state, False)
        r.bit = tables.reply_bits[code]
        is_opening: cython.bint = self.started and not self.answered and r.offset == 0 and len(self.ring) > 0
        if not r.bit or (tables.first_only[code] and not is_opening):
            # If its acknowledgement is unknown, it may answer a request that was captured after it.
            self.has_unpaired = self.has_unpaired or (r.offset == 0 and tables.first_only[code])
            self.results.state(r.row, _NO_ROW)
            return
        if tables.first_only[code]:
            r.bit = -1  # whatever opens a connection, such a reply may be to it
        r.echoes_nothing = tables.echoes_nothing[code]
        if r.payload_key and self.publishes:
            r.publish_offset = self.publishes.get(r.payload_key, -1)
            if r.publish_offset >= 0:
                self.publishes[r.payload_key] = _DELIVERED  # a second delivery says nothing
        self.rounds.replied(r)
        r.asked = self.rounds.asked_count
        self.pause_ns = 0
        limit: cython.Py_ssize_t = self._acknowledged(r)
        if c.low == c.high and c.low < limit and not c.placed:
            q = self.ring[c.low]
            if q.kind == _FIXED and not q.is_unread and c.fits(c.low, r, -1):
                self._pair(q, r, _ORDER)
                self._pass(c.low + 1)
                return
        self._add_reply(r)
        self.answered = True

    @cython.cfunc
    def _add_reply(self, r: Reply) -> cython.void:
        c: Alignment = self.certain
        limit: cython.Py_ssize_t = self._acknowledged(r)
        named: cython.Py_ssize_t = self._named(r, limit) if self.last_phantom >= c.start else -1
        self._use_habits()
        if not c.add(r, limit, named, self._own_from(r, limit)):
            self._conflict(limit)
            limit = self._acknowledged(r)
            if not c.add(r, limit, -1, 0):  # ANY takes it
                self.results.state(r.row, _UNKNOWN)
                return
        self.reply_count += 1
        if self.replay is not None:
            self._record_reply(r)
        if len(c.placed) == 1 and r.publish_offset >= 0 and c.low < c.high:
            self._first_of_queue(r)
        if c.is_settled():
            self._record("decision", "one place is left")
            self._decide(c.low, c.low, False)
        elif len(c.placed) > self.max_open:
            self._give_out()

    @cython.cfunc
    def _use_habits(self) -> cython.void:
        """Whether ids and messages of this client are unique, as far as was seen."""
        self.certain.use_ids = not self.ids_repeat and len(self.ids) >= MIN_IDS
        self.certain.use_publishes = not self.publishes_repeat and self.publish_count >= MIN_IDS

    @cython.cfunc
    def _own_from(self, r: Reply, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The first request after the client's own publish of the message that a reply returns."""
        i: cython.Py_ssize_t = limit
        least: cython.Py_ssize_t = max(self.certain.start, limit - MAX_LOOKED_AT)
        if r.publish_offset < 0:
            return 0
        while i > least and self._at(i - 1).offset > r.publish_offset:
            i -= 1
        return i

    @cython.cfunc
    def _first_of_queue(self, r: Reply) -> cython.void:
        """All candidates read one queue, which had the message before the first of them: so that one gets it."""
        c: Alignment = self.certain
        p: Placed = c.placed[0]
        first: Request = self.ring[p.low]
        if r.publish_offset >= first.offset or first.is_unread:
            return
        for i in range(p.low, min(p.high, p.limit - 1) + 1):
            if c.fits(i, r, p.named) and self._at(i).payload_key != first.payload_key:
                return
        p.high = p.low
        c.high = c.far = c.low

    @cython.cfunc
    def _acknowledged(self, r: Reply) -> cython.Py_ssize_t:
        """How many requests of the ring a reply acknowledges."""
        n: cython.Py_ssize_t = len(self.ring)
        q: Request
        while self.limit < n:
            q = self.ring[self.limit]
            if (r.ack != _NO_OFFSET and q.reach > r.ack) or q.last_ack > r.offset:
                break
            self.limit += 1
        return self.limit

    @cython.cfunc
    def _named(self, r: Reply, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The last captured request whose id a reply repeats, -1 without one."""
        tables = self.tables
        if not tables.echoes or r.echoes_nothing or r.row < 0 or not (r.bit & tables.id_replies):
            return -1
        q: Request
        i: cython.Py_ssize_t
        for i in range(limit - 1, max(self.certain.start, limit - MAX_LOOKED_AT) - 1, -1):
            q = self.ring[i]
            if not q.is_unread and self.certain.fits(i, r, -1):
                return i
        return -1

    @cython.cfunc
    def _server_hole(self, hole: Reply) -> cython.void:
        """Replies may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.hole_length
        self.rounds.hole()
        self.server_hole = self.state_contradicted = True
        if self.state != self.tables.midstream_state:
            self._leave_state_open()
        most: cython.longlong = length // habits.shortest_bytes
        is_leading: cython.bint = not self.started and self.reply_count == 0
        most += is_leading
        least: cython.longlong = 1 if habits.all_count and not hole.may_be_missing and not is_leading else 0
        r: Reply
        if self.replay is not None:
            self.replay.add("hole", hole.end - length, MISSING, MISSING, most, -1, False, f"server, {length} bytes")
        for k in range(1 if most > MAX_PHANTOM_REPLIES else most):
            r = _phantom_reply(hole.end, hole.ack, length)
            r.any_number = most > MAX_PHANTOM_REPLIES
            r.may_be_missing = k >= least
            self._add_reply(r)

    @cython.cfunc
    def _leave_state_open(self) -> cython.void:
        """A missing message may have changed the state: requests are what they are in any state."""
        tables = self.tables
        q: Request
        kinds = [{*kinds} for kinds in zip(*tables.kind, strict=True)]
        may_get = {_FIXED, _OPTIONAL}
        self.kinds = bytes(max(of_code & may_get) if of_code & may_get else max(of_code) for of_code in kinds)
        accepted = zip(*tables.accepted_replies, strict=True)
        self.certain.accepted = [functools.reduce(operator.or_, bits) for bits in accepted]
        for i in range(self.certain.start, len(self.ring)):
            q = self.ring[i]
            if not q.is_unread:
                q.kind = self.kinds[q.code]
        self.certain.far = self.certain.high

    # -- decisions -----------------------------------------------------------------------------------------

    @cython.cfunc
    def _pair(self, q: Request, r: Reply, evidence: cython.int) -> cython.void:
        """Note a certain pair: all requests before it were handled."""
        self.results.pair(q.row, r.row, evidence)
        if self.replay is not None:
            self.replay.add("pair", r.offset, q.offset, q.offset, 1, evidence)
        self.answered = True
        if self.awaited[q.code] or q.kind == _FIXED:
            self.rounds.paired(q, r)
        if q.kind == _FIXED:
            self.publishes.clear()  # a queue that was made since has nothing of what was published before
        if self.settles_in_time:
            self.handling_ns = max(self.handling_ns, min(r.ts_ns - q.end_ns, 4 * int(self.tables.habits.quiet_ns)))
            self.certain.handling_ns = self.handling_ns
        if not self.state_assumed:
            self.results.handled_to[self.flow] = q.offset
        if self.tables.next_state:
            state: cython.int = self.tables.next_state.get((self.state, q.code, r.code), self.state)
            if state != self.state:
                self.state_next = state

    @cython.cfunc
    def _pass(self, place: cython.Py_ssize_t) -> cython.void:
        """All requests below a place are decided."""
        c: Alignment = self.certain
        self.server_hole = False
        if place == len(self.ring) or (place > 1024 and 2 * place > len(self.ring)):
            del self.ring[:place]
            self.limit = max(self.limit - place, 0)
            self.last_phantom -= place
            place = 0
        self.limit = max(self.limit, place)
        c.restart(place)
        if self.replay is not None:
            self.replay.settled(self._at(place).offset if place < len(self.ring) else _NEVER)
        if self.state_next >= 0:
            state: cython.int = self.state_next
            self.state_next = -1
            self._change_state(state, True)

    @cython.cfunc
    def _anchor(self, place: cython.Py_ssize_t) -> cython.void:
        """All requests below a place are settled, for certain."""
        c: Alignment = self.certain
        if c.low <= place <= c.farthest():
            self._record("decision", "both sides paused for longer than the server may take: nothing is open")
            self._decide(place, place, False)

    @cython.cfunc
    def _decide(self, x: cython.Py_ssize_t, y: cython.Py_ssize_t, orderly: cython.bint) -> cython.void:
        """Every alignment ends at a place in x..y: give out the pairs and the states of requests below."""
        c: Alignment = self.certain
        q: Request
        r: Reply
        first: cython.Py_ssize_t
        last: cython.Py_ssize_t
        start: cython.Py_ssize_t = c.start
        if not c.placed:
            self._pass_unanswered(start, x, y, {}, 0, 0, 0)
            self._pass(y)
            return
        self._use_habits()
        if not c.settle(x, y):
            self._conflict(len(self.ring))
            return
        taken: dict = {}
        unsure: list = []
        for r, first, last in reversed(c.outcome):
            if r.row < 0:
                continue
            if first == last >= 0:
                q = self.ring[first]
                if q.is_unread:
                    self._leave_unpaired(r, q.row < 0)
                else:
                    taken[first] = r
                    self._pair(q, r, self._evidence(r, first, start))
            else:
                unsure.append((r, first, last))
        bits: cython.longlong = 0
        doubt_from: cython.Py_ssize_t = 0
        doubt_to: cython.Py_ssize_t = 0
        if unsure:
            self._pair_likely(unsure, taken, y, orderly)
            doubt_from, doubt_to = len(self.ring), 0
            for r, first, last in unsure:
                bits |= r.bit
                doubt_from, doubt_to = min(doubt_from, first), max(doubt_to, last + 1)
        self._pass_unanswered(start, x, y, taken, bits, doubt_from, doubt_to)
        self._pass(y)

    @cython.cfunc
    def _evidence(self, r: Reply, index: cython.Py_ssize_t, start: cython.Py_ssize_t) -> cython.int:
        """Evidence of a certain pair."""
        if not self.echoes or r.echoes_nothing:
            return _ORDER
        return _ID if start <= self.last_phantom else _ECHO if self._at(start).kind != _FIXED else _ORDER

    @cython.cfunc
    def _leave_unpaired(self, r: Reply, is_orphan: cython.bint) -> cython.void:
        self.has_unpaired = True
        is_orphan = is_orphan and not self.was_restarted
        if self.echoes:  # the state may be another, in which a captured request accepts it
            is_orphan = is_orphan and not (self.state_assumed or r.echoes_nothing or r.echo_key in self.keys)
            is_orphan = is_orphan and len(self.keys) < MAX_ECHO_KEYS
        self.results.state(r.row, _ORPHAN if is_orphan else _UNKNOWN)

    @cython.cfunc
    def _pass_unanswered(
        self,
        start: cython.Py_ssize_t,
        x: cython.Py_ssize_t,
        y: cython.Py_ssize_t,
        taken: dict,
        bits: cython.longlong,
        doubt_from: cython.Py_ssize_t,
        doubt_to: cython.Py_ssize_t,
    ) -> cython.void:
        """States of requests that were passed without a pair. ``bits``: replies that may be theirs, in a range."""
        q: Request
        i: cython.Py_ssize_t
        is_doubtful: cython.bint
        for i in range(start, max(y, doubt_to)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread or i in taken:
                continue
            is_doubtful = doubt_from <= i < doubt_to and bool(self.certain.accepted[q.code] & bits)
            if q.kind == _FIXED:
                self.results.state(q.row, _LOST if self.server_hole and not is_doubtful and i < x else _UNKNOWN)
            elif is_doubtful or self.server_hole:
                self.results.state(q.row, _UNKNOWN)

    # -- likely pairs --------------------------------------------------------------------------------------

    @cython.cfunc
    def _pair_likely(self, unsure: list, taken: dict, y: cython.Py_ssize_t, orderly: cython.bint) -> cython.void:
        """Give replies the request that they have in every alignment that keeps an assumption."""
        habits = self.tables.habits
        likely: dict = {}
        r: Reply
        if orderly and habits.answers_all != "no":
            self._record_assumption(self._assume(_CLOSE, likely), "close", "the server answered all before it closed")
        self.waited_count = 1 if habits.once and self.rounds.asked_count == 1 else self.rounds.count_waited()
        if self.waited_count:
            self._record_assumption(
                self._assume(_ALTERNATION, likely),
                "alternation",
                f"the client waits for each reply; {self.rounds.words()}",
            )
        else:
            self._record("assumption", f"alternation: no evidence; {self.rounds.words()}")
        if habits.pause_ns is not None:
            self._record_assumption(self._assume(_PAUSE, likely), "pause", "nothing is open after a long pause")
        self._first_asked(unsure, taken, likely)
        for r, first, last in unsure:
            index, evidence = likely.get(r.row, (-1, 0))
            if index >= 0 and index not in taken:
                taken[index] = r
                self.results.pair(self._at(index).row, r.row, evidence + LIKELY)
                if self.replay is not None:
                    offset: cython.longlong = self._at(index).offset
                    self.replay.add("pair", r.offset, offset, offset, 1, evidence, True)
            else:
                if self.replay is not None and first >= 0:
                    self.replay.add(
                        "unpaired", r.offset, self._named_request(first), self._named_request(last), last - first + 1
                    )
                self._leave_unpaired(r, self._only_phantoms(first, last))

    @cython.cfunc
    def _only_phantoms(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.bint:
        for i in range(first, last + 1):
            if self._at(i).row >= 0:
                return False
        return first >= 0

    @cython.cfunc
    def _assume(self, evidence: cython.int, likely: dict) -> cython.bint:
        """Align the span again under an assumption; returns whether an alignment is left, else it is dropped."""
        c: Alignment = self.certain
        a: Alignment = Alignment(self.ring, self.tables, c.accepted, evidence)
        a.use_ids, a.use_publishes, a.handling_ns = c.use_ids, c.use_publishes, c.handling_ns
        a.restart(c.start)
        p: Placed
        q: Request
        found: dict = {}
        index: cython.Py_ssize_t = c.start
        n: cython.Py_ssize_t = len(self.ring)
        k: cython.longlong = self.reply_count - len(c.placed)  # replies before the span
        for p in c.placed:
            while index < n and self._at(index).after_replies <= k:
                q = self.ring[index]
                if q.after_replies >= self.reply_count - len(c.placed) and self._is_anchor(q, evidence):
                    if not self._place(a, index, found):
                        return False
                index += 1
            if not a.add(p.reply, p.limit, p.named, p.own_from):
                return False
            k += 1
        if evidence == _CLOSE:
            if not self._place(a, n, found):
                return False
        else:
            while index < n:
                if self._is_anchor(self._at(index), evidence):
                    if not self._place(a, index, found):
                        return False
                    break
                index += 1
            if a.placed and not a.settle(a.low, a.farthest()):
                return False
            self._collect(a, found)
        for row, index in found.items():
            if likely.get(row, (index, 0))[0] == index:
                likely.setdefault(row, (index, evidence))
            else:
                likely[row] = (-1, 0)
        return True

    @cython.cfunc
    def _is_anchor(self, q: Request, evidence: cython.int) -> cython.bint:
        """Whether nothing is open when a request is sent, by an assumption."""
        if q.row < 0 or q.in_hole:
            return False
        if evidence == _PAUSE:
            return q.pause_ns >= self.tables.habits.pause_ns
        is_awaited: cython.bint = q.kind == _FIXED or self.awaited[q.code]
        return evidence == _ALTERNATION and is_awaited and q.asked <= self.waited_count

    @cython.cfunc
    def _place(self, a: Alignment, place: cython.Py_ssize_t, found: dict) -> cython.bint:
        if not (a.low <= place <= a.farthest() and a.settle(place, place)):
            return False
        self._collect(a, found)
        a.restart(place)
        return True

    @cython.cfunc
    def _collect(self, a: Alignment, found: dict) -> cython.void:
        """The pairs that an alignment leaves."""
        r: Reply
        first: cython.Py_ssize_t
        for r, first, last in a.outcome:
            if r.row >= 0 and first == last and first >= 0 and not self._at(first).is_unread:
                found[r.row] = first
        a.outcome = []

    @cython.cfunc
    def _first_asked(self, unsure: list, taken: dict, likely: dict) -> cython.void:
        """A queue gives its messages in order to the first requests of a burst that read it."""
        if self.last_phantom >= self.certain.start or self.server_hole:
            return
        q: Request
        other: Request
        r: Reply
        last_index: cython.Py_ssize_t = -1
        for r, first, last in unsure:
            q = self.ring[first]
            other = self.ring[last]
            i: cython.Py_ssize_t = max(first, last_index + 1)
            while i <= last and (i in taken or not self.certain.fits(i, r, -1)):
                i += 1
            if i > last or q.payload_key >= 0 or q.payload_key != other.payload_key:
                return
            if other.ts_ns - q.end_ns > BURST_NS or r.row in likely:
                continue
            likely[r.row] = (i, _PAUSE)
            last_index = i

    # -- spans that are given up ---------------------------------------------------------------------------

    @cython.cfunc
    def _restart_late(self, keep_from: cython.Py_ssize_t) -> cython.void:
        """Begin again as after a late start, with the requests from an index on."""
        kept = self.ring[keep_from:]
        del self.ring[:]
        self.limit, self.last_phantom, self.server_hole, self.was_restarted = 0, -1, False, True
        self._add_phantom(_phantom_request(_NO_OFFSET, _ANY))
        self.ring.extend(kept)
        for i in range(1, len(self.ring)):
            if self._at(i).is_unread:
                self.last_phantom = i
        self.certain.restart(0)

    @cython.cfunc
    def _conflict(self, limit: cython.Py_ssize_t) -> cython.void:
        """No alignment is left: the span is unknown, up to the requests that were acknowledged."""
        q: Request
        p: Placed
        self._record("decision", "no alignment is left: all of the span is unknown")
        for p in self.certain.placed:
            self._leave_unpaired(p.reply, False)
        for i in range(self.certain.start, limit):
            q = self.ring[i]
            self.results.state(q.row, _UNKNOWN)
        self.has_unpaired = True
        self._restart_late(limit)

    @cython.cfunc
    def _give_out(self) -> cython.void:
        """The ring is full: decide what is certain or likely as it stands, and begin again as after a late start."""
        c: Alignment = self.certain
        self._record("decision", f"the ring is full with {self.max_open} messages")
        if c.placed:
            self._decide(c.low, c.farthest(), False)
        for i in range(c.start, len(self.ring)):
            q: Request = self.ring[i]
            if q.kind == _FIXED:
                self.results.state(q.row, _UNKNOWN)
        self._restart_late(len(self.ring))

    @cython.cfunc
    def _change_state(self, state: cython.int, is_certain: cython.bint) -> cython.void:
        """Reclassify open requests: those sent before the reply that changed the state are handled in the new one.

        If it is not certain, the change may have been earlier, in a hole: some were answered in the old state.
        """
        before, waiting = self.kinds, self.ring[self.certain.start :]
        q: Request
        self._enter(state)
        del self.ring[:]
        self.limit, self.last_phantom = 0, -1
        for q in waiting:
            kind: cython.int = q.kind
            if not q.is_unread:
                kind = self.kinds[q.code]
                if kind != before[q.code]:
                    self.results.kinds.extend((q.row, kind))
                    if not is_certain and kind != _FIXED:
                        self.results.state(q.row, _UNKNOWN)
                        continue
            if q.is_unread:
                self._add_phantom(q)
            elif kind in (_FIXED, _OPTIONAL):
                q.kind = kind
                self.ring.append(q)
        self.certain.restart(0)

    # -- the end -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _close(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        """Decide what is left."""
        c: Alignment = self.certain
        q: Request
        n: cython.Py_ssize_t = len(self.ring)
        is_settled: cython.bint = c.is_settled() and not c.placed
        if not is_settled:
            self._record(
                "decision", "the connection ends in order" if orderly else "the capture of the connection ends"
            )
            if orderly and self.tables.habits.answers_all == "certainly" and c.low <= n <= c.farthest():
                self._decide(n, n, orderly)
                is_settled = True
            else:
                self._decide(c.low, c.farthest(), orderly)
        sure: cython.bint = is_settled and whole_replies and not self.has_unpaired and self.last_phantom < c.start
        for i in range(c.start, len(self.ring)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread:
                continue
            if q.kind == _FIXED:
                is_due: cython.bint = sure and ended and not q.truncated
                self.results.state(q.row, _UNANSWERED if is_due else _UNKNOWN)
            elif not sure and not (whole_replies and self.tables.silence[q.code] == _NOT_EXPECTED):
                self.results.state(q.row, _UNKNOWN)
        for row in self.after_close:
            self.results.state(row, _UNANSWERED if sure and ended else _UNKNOWN)
        self.ring.clear()
        return self.state_contradicted

    # -- the replay ----------------------------------------------------------------------------------------

    @cython.cfunc
    def _record(self, kind: str, text: str) -> cython.void:
        """Record a step without a message."""
        if self.replay is not None:
            self.replay.add(kind, MISSING, MISSING, MISSING, 0, -1, False, text)

    @cython.cfunc
    def _named_request(self, i: cython.Py_ssize_t) -> cython.longlong:
        """Stream offset of a request of the ring, or what stands for it."""
        q: Request = self.ring[i]
        return q.offset if q.row >= 0 else ANY_REQUESTS if q.kind == _ANY else MISSING

    @cython.cfunc
    def _record_reply(self, r: Reply) -> cython.void:
        p: Placed = self.certain.placed[len(self.certain.placed) - 1]
        first: cython.Py_ssize_t = p.low
        last: cython.Py_ssize_t = min(p.high, p.limit - 1, len(self.ring) - 1)
        while first < last and not self.certain.fits(first, r, p.named):
            first += 1
        while first < last and not self.certain.fits(last, r, p.named):
            last -= 1
        offset: cython.longlong = r.offset if r.row >= 0 else MISSING
        if first > last:
            self.replay.add("reply", offset)
        else:
            self.replay.add("reply", offset, self._named_request(first), self._named_request(last), last - first + 1)

    @cython.cfunc
    def _record_assumption(self, is_kept: cython.bint, name: str, why: str) -> cython.void:
        if self.replay is not None:
            self.replay.add(
                "assumption", MISSING, MISSING, MISSING, 0, -1, is_kept,
                f"{name}: {why if is_kept else 'no alignment keeps it'}",
            )  # fmt: skip


@cython.cclass
class IdMatcher(TcpOrder):
    """The open requests of a connection whose replies name them: in any order, a reply takes the request of its name.

    If several requests of a name are open, order decides, provided that nothing is missing. If the start is unknown or
    bytes of the client are missing, a reply may be that of a missing request with the same name, unless the client uses
    each name once: three names and no name twice show that. Until then pairs are *early*. A request whose ``has_id`` is
    set may get several replies; the first counts.
    """

    tables: object
    results: MatchResults
    flow: cython.longlong
    started: cython.bint
    open: dict  # requests by name
    open_count: cython.longlong
    asked_count: cython.longlong
    names: dict  # the last ones that the client used, and whether it used them again
    repeats: cython.bint
    early: list
    has_unnamed: cython.bint  # requests whose name was not captured
    doubtful: set  # names of requests that were dropped while they were open
    client_hole: cython.bint
    hole_count: cython.longlong  # of the server

    def __init__(
        self, tables: RequestTables, flow: cython.longlong, started: cython.bint, results: MatchResults
    ) -> None:
        TcpOrder.__init__(self)
        self.tables, self.flow, self.started, self.results = tables, flow, started, results
        self.open, self.names, self.doubtful, self.early = {}, {}, set(), []
        self.open_count = self.asked_count = self.hole_count = 0
        self.client_hole = self.has_unnamed = self.repeats = False

    @cython.cfunc
    def _request(self, q: Request) -> cython.void:
        if q.row < 0:
            self.client_hole = True
            return
        kind: cython.int = self.tables.kind[0][q.code]
        if kind != _FIXED and kind != _OPTIONAL:
            return
        if q.echo_key == 0 or q.echo_key == _NO_KEY:
            self.has_unnamed = True
            self.results.state(q.row, _UNKNOWN)
            return
        self.asked_count += 1
        q.kind, q.after_replies, q.asked = kind, self.hole_count, self.asked_count
        self._note_name(q.echo_key)
        self.open.setdefault(q.echo_key, []).append(q)
        self.open_count += 1
        if self.replay is not None:
            self.replay.add("request", q.offset, MISSING, MISSING, len(self.open[q.echo_key]))
        if self.open_count > MAX_OPEN_REQUESTS:
            for name in list(self.open)[: len(self.open) // 2 or 1]:  # one by one, each would pass all that left
                self._drop(name, True)

    @cython.cfunc
    def _note_name(self, name: cython.longlong) -> cython.void:
        """Whether the client uses each name once, as far as the last ones tell."""
        is_again: cython.bint = name in self.names
        self.repeats = self.repeats or is_again
        self.names[name] = is_again
        if len(self.names) > _MAX_ECHO_KEYS:
            del self.names[next(iter(self.names))]
        if self.early and (self.repeats or len(self.names) >= MIN_IDS):
            self._pair_early()

    @cython.cfunc
    def _pair_early(self) -> cython.void:
        """Early pairs are certain if the client showed that it uses each name once, else likely if it waited."""
        q: Request
        r: Reply
        for q, r in self.early:
            if not self.repeats and len(self.names) >= MIN_IDS:
                self._pair(q, r, _ID)
            else:
                self._pair_if_waited(q, r)
        self.early = []

    @cython.cfunc
    def _pair_if_waited(self, q: Request, r: Reply) -> cython.void:
        """A likely pair, if the client used the name once, and waited for the reply before it asked again."""
        if q.asked == r.asked and not self.names.get(q.echo_key, True):
            self._pair(q, r, _ALTERNATION + LIKELY)
            return
        if self.replay is not None:
            self.replay.add("unpaired", r.offset, q.offset, q.offset, 1)
        self.results.state(q.row, _UNKNOWN)
        self._leave_unpaired(r, True)

    @cython.cfunc
    def _pair(self, q: Request, r: Reply, evidence: cython.int) -> cython.void:
        self.results.pair(q.row, r.row, evidence)
        if self.replay is not None:
            self.replay.add("pair", r.offset, q.offset, q.offset, 1, evidence % LIKELY, evidence >= LIKELY)
            self.replay.settled(q.offset + 1)

    @cython.cfunc
    def _drop(self, name: cython.longlong, is_full: cython.bint) -> cython.void:
        """Give up the open requests of a name, and further ones, too: replies to these may still come."""
        q: Request
        if len(self.doubtful) < MAX_ECHO_KEYS:
            self.doubtful.add(name)
        for q in self.open.pop(name):
            self.open_count -= 1
            is_one_way: cython.bint = is_full and q.kind == _OPTIONAL and self.tables.silence[q.code] == _NOT_EXPECTED
            self.results.state(q.row, _NOT_EXPECTED if is_one_way else _UNKNOWN)

    @cython.cfunc
    def _reply(self, r: Reply) -> cython.void:
        if r.row < 0:
            self.hole_count += 1
            return
        q: Request
        if r.echo_key == _NO_KEY:
            self.hole_count += 1
        asked = self.open.get(r.echo_key)
        count: cython.Py_ssize_t = 0
        certain: cython.bint = self.started and not self.client_hole
        in_order: cython.bint = certain and self.hole_count == 0 and not self.tables.one_reply
        if asked is not None:
            for q in asked:
                if (r.ack != _NO_OFFSET and q.reach > r.ack) or q.last_ack > r.offset:
                    break
                in_order = in_order and q.kind == _FIXED
                count += 1
        if count == 0 or not self.tables.reply_bits[r.code]:
            if self.replay is not None:
                self.replay.add("unpaired", r.offset)
            self._leave_unpaired(r, certain)
            return
        q = asked[0]
        is_doubtful: cython.bint = r.echo_key in self.doubtful or len(self.doubtful) >= MAX_ECHO_KEYS
        if is_doubtful or (count > 1 and not in_order) or (q.has_id and q.after_replies != self.hole_count):
            if self.replay is not None:
                self.replay.add("unpaired", r.offset, q.offset, q.offset, count)
            self._drop(r.echo_key, False)
            self._leave_unpaired(r, True)
            return
        asked.pop(0)
        self.open_count -= 1
        if not asked:
            del self.open[r.echo_key]
        r.asked = self.asked_count
        if certain:
            self._pair(q, r, _ORDER if count > 1 else _ECHO)
        elif not self.repeats and len(self.names) >= MIN_IDS:
            self._pair(q, r, _ID)
        elif not self.repeats:
            self.early.append((q, r))
        else:
            self._pair_if_waited(q, r)

    @cython.cfunc
    def _leave_unpaired(self, r: Reply, certain: cython.bint) -> cython.void:
        """A reply without a request: an orphan if no captured request can have had its name."""
        may_be_known: cython.bint = self.has_unnamed or r.echo_key == _NO_KEY or r.echo_key in self.names
        may_be_known = may_be_known or len(self.names) >= MAX_ECHO_KEYS
        state: cython.int = _UNKNOWN if certain or may_be_known else _ORPHAN
        self.results.state(r.row, _NO_ROW if self.tables.one_reply else state)

    @cython.cfunc
    def _close(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        """Decide what is open."""
        q: Request
        is_due: cython.bint = ended and whole_replies and self.hole_count == 0
        self._pair_early()
        for asked in self.open.values():
            for q in asked:
                if q.kind == _FIXED:
                    self.results.state(q.row, _UNANSWERED if is_due and not q.truncated else _UNKNOWN)
                elif q.after_replies != self.hole_count or self.tables.silence[q.code] != _NOT_EXPECTED:
                    self.results.state(q.row, _UNKNOWN)
        self.open = {}
        return False


@cython.boundscheck(False)
@cython.wraparound(False)
def match_messages(matchers: dict[int, TcpOrder], tables: RequestTables, results: MatchResults, rows: Messages) -> None:
    """Give messages to the matchers of their connections."""
    order: cython.const[cython.longlong][:] = memoryview(rows.order)
    index: cython.const[cython.longlong][:] = memoryview(rows.index)
    flow: cython.const[cython.longlong][:] = memoryview(rows.flow)
    code: cython.const[cython.longlong][:] = memoryview(rows.code)
    echo_key: cython.const[cython.longlong][:] = memoryview(rows.echo_key)
    payload_key: cython.const[cython.longlong][:] = memoryview(rows.payload_key)
    has_id: cython.const[cython.uchar][:] = memoryview(rows.has_id.view(np.uint8))
    ts_ns: cython.const[cython.longlong][:] = memoryview(rows.ts_ns)
    end_ns: cython.const[cython.longlong][:] = memoryview(rows.end_ns)
    offset: cython.const[cython.longlong][:] = memoryview(rows.offset)
    length: cython.const[cython.longlong][:] = memoryview(rows.length)
    first_ack: cython.const[cython.longlong][:] = memoryview(rows.first_ack)
    last_ack: cython.const[cython.longlong][:] = memoryview(rows.last_ack)
    acked_from: cython.const[cython.longlong][:] = memoryview(rows.acked_from)
    client: cython.const[cython.uchar][:] = memoryview(rows.client.view(np.uint8))
    truncated: cython.const[cython.uchar][:] = memoryview(rows.truncated.view(np.uint8))
    broken: cython.const[cython.uchar][:] = memoryview(rows.broken.view(np.uint8))
    started: cython.const[cython.uchar][:] = memoryview(rows.start_known.view(np.uint8))
    make = IdMatcher if tables.by_name else RequestMatcher
    late: bytes = tables.kind[tables.midstream_state]
    first_row: cython.longlong = rows.first_row
    matcher: TcpOrder = None
    now: cython.longlong = -1
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    end: cython.longlong
    pause: cython.longlong
    kind: cython.int
    q: Request
    r: Reply
    early = tables.early
    shortest: cython.longlong = tables.habits.shortest_bytes
    for i in range(len(order)):
        k = order[i]
        if flow[k] != now:
            now = flow[k]
            matcher = matchers.get(now)
            if matcher is None:
                matcher = matchers[now] = make(tables, now, started[k], results)
                matcher.last_ns = ts_ns[k]
                if now == results.watched_flow:
                    matcher.replay = results.replay
                    matcher.replay.add("start", MISSING, MISSING, MISSING, 0 if started[k] else 1)
                if not started[k]:
                    matcher.client_read = matcher.server_read = _NO_OFFSET
        end = offset[k] + length[k]
        pause = ts_ns[k] - matcher.last_ns
        if end_ns[k] > matcher.last_ns:
            matcher.last_ns = end_ns[k]
        if client[k]:
            if offset[k] > matcher.client_read:
                if matcher.client_read == 0 and started[k] and not broken[k]:
                    matcher.client_read = offset[k]  # the bytes in front are a header of the stream, no message
                elif matcher.client_read != _NO_OFFSET:
                    matcher.hole(True, offset[k], first_ack[k])
                    pause = matcher.pause_ns = 0  # nobody knows when the missing bytes were sent
                elif not started[k]:
                    matcher.client_read = offset[k]
            if end > matcher.client_read:
                matcher.client_read = end
            matcher.client_truncated = truncated[k]
            if pause > matcher.pause_ns:
                matcher.pause_ns = pause
            kind = late[code[k]]
            if index[k] >= 0 and (_may_get_reply(kind) or not matcher.skips_silent):
                q = Request.__new__(Request)
                q.row, q.code, q.kind, q.echo_key = first_row + index[k], code[k], kind, echo_key[k]
                q.payload_key, q.has_id = payload_key[k], has_id[k]
                q.offset, q.end, q.reach = offset[k], end, end
                q.first_ack, q.last_ack = first_ack[k], last_ack[k]
                q.truncated, q.is_unread, q.in_hole = truncated[k], False, False
                if q.truncated or (early and q.code in early):
                    q.reach, q.last_ack = offset[k] + 1, _NO_OFFSET
                q.ts_ns, q.end_ns, q.pause_ns, q.asked, q.after_replies = ts_ns[k], end_ns[k], matcher.pause_ns, 0, 0
                matcher.pause_ns = 0
                matcher.request(q)
            elif index[k] >= 0 and kind == _ONE_WAY:
                matcher.one_way(first_row + index[k], kind)
            elif index[k] == _UNREAD:
                q = _phantom_request(offset[k], _OPTIONAL)
                q.end, q.truncated = offset[k] + shortest, True
                matcher.request(q)
            if matcher.client_read >= matcher.wake_at:
                matcher.release(False)
            continue
        if offset[k] > matcher.server_read:
            if matcher.server_read == _NO_OFFSET:
                matcher.server_read = min(offset[k], acked_from[k]) if acked_from[k] != _NO_OFFSET else offset[k]
            if offset[k] > matcher.server_read:
                matcher.hole(False, offset[k], first_ack[k])
        if end > matcher.server_read:
            matcher.server_read = end
        matcher.server_truncated = truncated[k]
        if index[k] >= 0:
            r = Reply.__new__(Reply)
            r.row, r.code, r.bit, r.echo_key, r.payload_key = (
                first_row + index[k],
                code[k],
                0,
                echo_key[k],
                payload_key[k],
            )
            r.offset, r.end, r.ack, r.ts_ns = offset[k], end, first_ack[k], ts_ns[k]
            r.publish_offset, r.asked, r.hole_length = -1, 0, 0
            r.echoes_nothing = r.may_be_missing = r.any_number = False
            matcher.reply(r)
        elif index[k] == _UNREAD:
            matcher.reply(_phantom_reply(end, first_ack[k], shortest))
        if matcher.waiting_requests:
            matcher.release(False)


@cython.cfunc
def _may_get_reply(kind: cython.int) -> cython.bint:
    """Whether a matcher is given requests of the kind."""
    return kind in (_FIXED, _OPTIONAL, _CLOSES, _TRUNCATED)
