# cython: language_level=3
"""Likely pairs: every alignment that keeps an assumption contains them, and there is evidence for the assumption.

In: an alignment of one connection, its ring of requests, and what its messages have shown. Out: likely pairs.
Called by: ``matcher``, when it decides replies that several requests fit.

| assumption | at these places nothing is open | evidence |
|---|---|---|
| close | the end of the connection | the protocol's server answers all requests before an orderly end |
| alternation | each awaited request | `Rounds`: the client waits for each reply |
| pause | each request that follows a pause of both sides | the protocol's longest time for a reply |

A place that no alignment passes drops the assumption. If two assumptions give a reply different requests, it gets none.
"""

from array import array
from typing import Any

import cython
import numpy as np

from mqpcap.correlate.alignment import MAX_CANDIDATES, Alignment, PlacedReply
from mqpcap.correlate.messages import ONE_REPLY, Reply, Request
from mqpcap.correlate.replay import Replay
from mqpcap.correlate.span_alignment import SpanAlignment
from mqpcap.schema.requests import Evidence, RequestTables
from mqpcap.tcp.flow_records import NO_OFFSET

MIN_ROUNDS = 3
MIN_SPREAD_ROUNDS = 6
MAX_ROUNDS = 64
"""Rounds (a reply, the next request, its reply) that are remembered as evidence."""
NO_REPLY_NS = 50_000_000
"""An optional request got no reply if the next was sent this much later. No acknowledgement is delayed longer."""
BURST_NS = 100_000
"""Optional requests that follow each other within this time were sent together."""
PROMPT_NS = 500_000
"""A reply within this time is never slow."""
SERVED_NS = 2_000_000
"""After a request that was answered, those within this time are likely answered one after the other, too."""

_CLOSE = cython.declare(cython.int, int(Evidence.CLOSE))
_LENGTH = cython.declare(cython.int, int(Evidence.LENGTH))
_PAUSE = cython.declare(cython.int, int(Evidence.PAUSE))
_ALTERNATION = cython.declare(cython.int, int(Evidence.ALTERNATION))


@cython.cclass
class Rounds:
    """Whether a client waits for each reply before it asks again: rounds of a reply, the next request and its reply.

    A client with a constant number of open requests alternates, too, so alternation is no evidence. There is evidence
    if the client had a single request open in three certain pairs. There is, if it paused for four times the usual
    round and the next reply came in usual time: other replies would have come in the pause. And there is, if times
    between replies spread twice as much as times from request to reply: a busy server has a beat of its own.

    With ``holds_replies`` TCP may hold a reply until the client's next packet, so that it comes in usual time after any
    pause. Then only rounds with a pause longer than a delayed acknowledgement are evidence.

    ``is_denied``: a request was sent while another was open.
    ``waited_count``: requests before the denial, if there was evidence.
    ``asked_count``: awaited requests: their success is a reply.
    ``open_count``: awaited requests since the last reply.
    ``lone_pair_count``: certain pairs without another open request.
    ``is_whole``: no hole since the last reply.
    """

    reply_to_reply: Any  # an array once a reply came
    request_to_reply: Any

    def __init__(self, holds_replies: bool) -> None:
        self.holds_replies = holds_replies
        self.is_denied = self.is_whole = self.asked_fixed = False
        self.asked_count = self.open_count = self.round_count = self.lone_pair_count = self.waited_count = 0
        self.reply_ns = self.asked_ns = self.asked_end_ns = 0
        self.reply_end = NO_OFFSET
        self.reply_to_reply = self.request_to_reply = None

    @cython.cfunc
    def ask(self, q: Request) -> cython.void:
        """An awaited request."""
        is_second: cython.bint = self.open_count > 0
        is_second = is_second and (self.asked_fixed or q.ts_ns - self.asked_end_ns < NO_REPLY_NS)
        if not self.is_denied and (is_second or NO_OFFSET < q.ack < self.reply_end):
            self.waited_count = self.asked_count if self._has_evidence() else 0
            self.is_denied = True
        self.open_count += 1
        self.asked_count += 1
        self.asked_ns, self.asked_end_ns, self.asked_fixed = q.ts_ns, q.end_ns, q.kind == ONE_REPLY

    @cython.cfunc
    def answer(self, r: Reply) -> cython.void:
        """A captured reply."""
        if self.is_whole and self.open_count == 0:
            self.is_denied = True
        elif self.is_whole and self.open_count == 1:
            if self.reply_to_reply is None:
                self.reply_to_reply, self.request_to_reply = array("q"), array("q")
            self.round_count += 1
            if len(self.reply_to_reply) < MAX_ROUNDS:
                self.reply_to_reply.append(r.ts_ns - self.reply_ns)
                self.request_to_reply.append(r.ts_ns - self.asked_ns)
            else:
                k = self.round_count % MAX_ROUNDS
                self.reply_to_reply[k], self.request_to_reply[k] = r.ts_ns - self.reply_ns, r.ts_ns - self.asked_ns
        self.reply_ns, self.reply_end, self.open_count, self.is_whole = r.ts_ns, r.end, 0, True

    @cython.cfunc
    def add_hole(self) -> cython.void:
        """Bytes of a side are missing."""
        self.is_whole, self.open_count = False, 0

    @cython.cfunc
    def add_pair(self, q: Request, r: Reply) -> cython.void:
        """A certain pair shows how many requests were open."""
        if r.asked > q.asked:
            self.is_denied = True
        elif r.asked == q.asked:
            self.lone_pair_count += 1

    @cython.cfunc
    def count_waited(self) -> cython.longlong:
        """How many awaited requests, from the first one on, were likely asked with nothing else open."""
        if self.is_denied:
            return self.waited_count
        return self.asked_count if self._has_evidence() else 0

    @cython.cfunc
    def _has_evidence(self) -> cython.bint:
        if self.round_count < MIN_ROUNDS:
            return False
        if self.lone_pair_count >= MIN_ROUNDS:
            return True
        between, taken = np.array(self.reply_to_reply), np.array(self.request_to_reply)
        usual_between, usual_taken = np.median(between), np.median(taken)
        if self.holds_replies:
            is_paused = between - taken > NO_REPLY_NS
            between, taken = between[is_paused], taken[is_paused]
        if ((between >= 4 * usual_between) & (taken <= 2 * usual_taken)).any():
            return True
        if len(between) < MIN_SPREAD_ROUNDS:
            return False
        return bool(np.abs(between - usual_between).mean() > 2 * np.abs(taken - usual_taken).mean())

    def words(self) -> str:
        """The evidence, for people."""
        if self.is_denied:
            return f"two requests were open at a time after {self.waited_count} requests"
        if self.round_count < MIN_ROUNDS:
            return f"{self.round_count} rounds, of at least {MIN_ROUNDS}"
        if self.lone_pair_count >= MIN_ROUNDS:
            return f"the only open request in {self.lone_pair_count} certain pairs"
        return f"{self.round_count} rounds, their pauses and how far times spread"


@cython.cclass
class Assumptions:
    """Likely pairs of the replies since the last anchor.

    ``certain``: the alignment without assumptions.
    ``awaited``: by code of a request: whether its success is a reply.
    ``replies_before``: replies before those of the alignment.
    ``waited_count``: awaited requests that the client is assumed to have waited for.
    ``use_publishes``: a message of the client answers no request that the client sent before it.
    ``likely``: by row of a reply: index of its request, and evidence.
    ``margins``: by row of a reply: how much the best alignment without the pair costs more, in nats.
    ``replay``: records the assumptions, if it is not None.
    """

    likely: dict[int, tuple[int, int]]
    margins: dict[int, float]

    def __init__(
        self, certain: Alignment, tables: RequestTables, awaited: bytes, replies_before: int, replay: Replay | None
    ) -> None:
        self.certain, self.ring, self.tables, self.awaited = certain, certain.ring, tables, awaited
        self.replies_before, self.waited_count, self.replay = replies_before, 0, replay
        self.likely, self.margins, self.use_publishes = {}, {}, certain.use_publishes

    @cython.cfunc
    def assume_all(self, rounds: Rounds, is_closed: cython.bint) -> cython.void:
        """Make each assumption that has evidence. ``is_closed``: the server likely answered all requests."""
        habits = self.tables.habits
        self.waited_count = 1 if habits.once and rounds.asked_count == 1 else rounds.count_waited()
        if is_closed:
            self._record(self.assume(_CLOSE), "close", "the server answered all before it closed")
        if self.waited_count:
            self._record(self.assume(_ALTERNATION), "alternation", f"the client waits for each reply; {rounds.words()}")
        elif self.replay is not None:
            self.replay.add("assumption", text=f"alternation: no evidence; {rounds.words()}")
        if habits.pause_ns is not None:
            self._record(self.assume(_PAUSE), "pause", "nothing is open after a long pause")

    @cython.cfunc
    def _record(self, is_kept: cython.bint, name: str, why: str) -> cython.void:
        if self.replay is not None:
            text = f"{name}: {why if is_kept else 'no alignment keeps it'}"
            self.replay.add("assumption", is_likely=is_kept, text=text)

    @cython.ccall
    def assume(self, evidence: cython.int) -> cython.bint:
        """Align again under an assumption; returns whether an alignment is left, else it is dropped."""
        c: Alignment = self.certain
        a: Alignment = Alignment(self.ring, c.echoes, c.accepted)
        p: PlacedReply
        q: Request
        indexes: dict[int, int] = {}
        index: cython.Py_ssize_t = c.start
        n: cython.Py_ssize_t = len(self.ring)
        k: cython.longlong = self.replies_before
        a.use_ids, a.use_publishes = c.use_ids, self.use_publishes
        a.restart(c.start)
        for p in c.placed:
            while index < n:
                q = self.ring[index]
                if q.after_replies > k:
                    break
                is_in_span: cython.bint = q.after_replies >= self.replies_before
                if is_in_span and self._is_anchor(q, evidence) and not self._place(a, index, indexes):
                    return False
                index += 1
            copy: PlacedReply = PlacedReply(p.reply, p.limit, p.named, p.own_from)
            copy.least = p.least
            if not a.add(copy):
                return False
            k += 1
        while index < n and not self._is_anchor(self.ring[index], evidence):
            index += 1
        if evidence == _CLOSE or index < n:
            if not self._place(a, n if evidence == _CLOSE else index, indexes):
                return False
        elif not self._collect(a.settle(a.low, a.farthest()), indexes):
            return False
        for row, index in indexes.items():
            is_alike = self.likely.get(row, (index, 0))[0] == index
            self.likely[row] = self.likely.get(row, (index, evidence)) if is_alike else (-1, 0)
        return True

    @cython.cfunc
    def _is_anchor(self, q: Request, evidence: cython.int) -> cython.bint:
        """Whether nothing is open when a request is sent, by an assumption."""
        if q.row < 0 or q.in_hole:
            return False
        if evidence == _PAUSE:
            pause_ns = self.tables.habits.pause_ns
            return pause_ns is not None and q.pause_ns >= pause_ns
        is_awaited: cython.bint = q.kind == ONE_REPLY or self.awaited[q.code]
        return evidence == _ALTERNATION and is_awaited and q.asked <= self.waited_count

    @cython.cfunc
    def _place(self, a: Alignment, place: cython.Py_ssize_t, indexes: dict) -> cython.bint:
        """Nothing is open at a place; returns whether an alignment passes it."""
        if not (a.low <= place <= a.farthest() and self._collect(a.settle(place, place), indexes)):
            return False
        a.restart(place)
        return True

    @cython.cfunc
    def _collect(self, candidates: list | None, indexes: dict) -> cython.bint:
        """Note the request of each reply that has one candidate."""
        r: Reply
        q: Request
        earliest: cython.Py_ssize_t
        if candidates is None:
            return False
        for r, earliest, latest in candidates:
            if r.row >= 0 and earliest == latest and earliest >= 0:
                q = self.ring[earliest]
                if not q.is_unread:
                    indexes[r.row] = earliest
        return True

    @cython.cfunc
    def align_by_cost(self, highest: cython.Py_ssize_t, is_all: cython.bint, taken: dict) -> cython.void:
        """Add pairs that are likely by the lengths of holes. ``taken``: by index, the replies of certain pairs.

        ``highest``, ``is_all``: see `SpanAlignment.likely`.
        """
        span = SpanAlignment(self.certain, self.tables.habits.all_count)
        for row, (index, margin) in span.likely(highest, is_all, taken).items():
            if row not in self.likely:
                self.likely[row], self.margins[row] = (index, _LENGTH), margin
        why = f"lengths of holes, operations and values decide {len(self.margins)} more"
        self._record(True, "length", why)

    @cython.cfunc
    def assume_first_of_burst(self, ambiguous: list, taken: dict, usual_ns: cython.longlong) -> cython.void:
        """A queue gives its messages in order to the first requests of a burst that read it, in usual time.

        A reply that comes later may be to a later request: the queue was empty before. ``taken``: requests that have a
        reply, by index. ``usual_ns``: a usual time from a request to its reply.
        """
        q: Request
        newest: Request
        r: Reply
        last_index: cython.Py_ssize_t = -1
        undecided_to: cython.Py_ssize_t = -1
        last_ns: cython.longlong = 0
        lag_ns: cython.longlong = 0
        own_from: dict[int, int] = {}
        p: PlacedReply
        for p in self.certain.placed if self.use_publishes else ():
            r = p.reply
            own_from[r.row] = p.own_from
        for r, earliest, latest in ambiguous:
            earliest = max(earliest, own_from.get(r.row, 0))
            i: cython.Py_ssize_t = self._untaken(r, max(earliest, last_index + 1), latest, taken)
            if i < 0:
                return
            q, newest = self.ring[i], self.ring[latest]
            if q.payload_key >= 0 or not self._is_one_queue(r, i, latest):
                return
            since_ns: cython.longlong = q.end_ns
            max_burst_ns: cython.longlong = BURST_NS
            max_taken_ns: cython.longlong = max(2 * usual_ns, PROMPT_NS)
            if last_index >= 0 and self._untaken(r, last_index + 1, i - 1, taken) < 0:
                # The request before was answered, so the server answers one after the other.
                since_ns, max_burst_ns, max_taken_ns = max(since_ns, last_ns), SERVED_NS, max(max_taken_ns, lag_ns)
            is_burst: cython.bint = newest.ts_ns - q.end_ns <= max_burst_ns and r.ts_ns - since_ns <= max_taken_ns
            if earliest <= undecided_to or not is_burst or r.row in self.likely:
                undecided_to = max(undecided_to, latest)
                continue
            self.likely[r.row] = (i, _PAUSE)
            last_index, last_ns, lag_ns = i, r.ts_ns, r.ts_ns - q.end_ns

    @cython.cfunc
    def _is_one_queue(self, r: Reply, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> cython.bint:
        """Whether all requests in low..high that a reply fits read the same queue."""
        i: cython.Py_ssize_t
        q: Request = self.ring[low]
        payload_key: cython.longlong = q.payload_key
        for i in range(low + 1, min(high, low + MAX_CANDIDATES) + 1):
            q = self.ring[i]
            if q.payload_key != payload_key and self.certain.fits(i, r, -1):
                return False
        q = self.ring[high]
        return q.payload_key == payload_key

    @cython.cfunc
    def _untaken(
        self, r: Reply, low: cython.Py_ssize_t, high: cython.Py_ssize_t, taken: dict
    ) -> cython.Py_ssize_t:  # fmt: skip
        """The first request in low..high without a reply that a reply fits, -1 if there is none."""
        i: cython.Py_ssize_t
        for i in range(low, min(high, low + MAX_CANDIDATES) + 1):
            if i not in taken and self.certain.fits(i, r, -1):
                return i
        return -1
