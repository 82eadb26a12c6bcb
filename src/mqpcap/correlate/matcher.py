# cython: language_level=3
"""Pairs the replies of a connection with its requests, where replies keep the order of the requests.

In: the requests and replies of one connection, in TCP's order. Out: `MatchResults` with pairs and request states.
Called by: ``tcp_order``. Promise: no wrong `answered` pair.

A pair is certain if every alignment (``alignment``) contains it, and likely if every alignment that keeps an assumption
(``assumptions``) does. Missing messages take part as phantoms: a hole of the client is some requests, a hole of the
server some replies, and a start before the capture any number of requests. A *place* is an index in the ring of open
requests: an alignment that ends there has settled all requests below it. A place that every alignment passes is an
*anchor*: requests below it are decided and leave the ring. `src/mqpcap/README.md`, section Pairing, has examples.

| state | request | reply, one place | several places | no place | hole | anchor | ring full, end |
|---|---|---|---|---|---|---|---|
| settled: one place, no hole | waits | pair | span | give up, late | span | settled | settled |
| span: several places | waits | decide, settled | span | give up, late | span | decide, settled | decide, late |
| late: any number in front | waits | late | late | late | late | decide, settled | decide, late |

Where bytes are missing, ``span_alignment`` then aligns the undecided replies of a span by cost: likely pairs.

A protocol may have states (a login). The kind of a request depends on the state in which the server handles it. A
certain pair may lead to another state.
"""

import functools
import operator
from array import array

import cython

from mqpcap.correlate.alignment import ANY_NUMBER, Candidates
from mqpcap.correlate.messages import LIKELY, NO_ROW, phantom_reply, phantom_request
from mqpcap.correlate.replay import ANY as ANY_REQUESTS
from mqpcap.correlate.replay import MISSING
from mqpcap.correlate.span_alignment import SpanAlignment
from mqpcap.schema.requests import Evidence, RequestKind, RequestTables, State
from mqpcap.tcp.flow_records import NO_OFFSET

if cython.compiled:
    from cython.cimports.mqpcap.correlate.alignment import Alignment, PlacedReply
    from cython.cimports.mqpcap.correlate.assumptions import Assumptions, Rounds
    from cython.cimports.mqpcap.correlate.client_keys import ClientKeys
    from cython.cimports.mqpcap.correlate.messages import MatchResults, Reply, Request
    from cython.cimports.mqpcap.correlate.tcp_order import TcpOrder
else:
    from mqpcap.correlate.alignment import Alignment, PlacedReply
    from mqpcap.correlate.assumptions import Assumptions, Rounds
    from mqpcap.correlate.client_keys import ClientKeys
    from mqpcap.correlate.messages import MatchResults, Reply, Request
    from mqpcap.correlate.tcp_order import TcpOrder

MAX_OPEN_REQUESTS = 1 << 14
"""Requests of a group that are not settled, and replies as well; with more all of them are decided as they stand."""
MAX_COMPARED = 1024
"""Requests among which the client's own publish is looked for, and a request whose id another operation used later."""
MAX_PHANTOM_REQUESTS = 12
MAX_PHANTOM_REPLIES = 48
"""Phantoms of one hole; more are any number of requests or replies, which decides as much."""
MIN_DROPPED = 1024
"""Decided requests that leave the ring together."""

_ONE_REPLY = cython.declare(cython.int, int(RequestKind.ONE_REPLY))
_OPTIONAL_REPLY = cython.declare(cython.int, int(RequestKind.OPTIONAL_REPLY))
_ANY = cython.declare(cython.int, ANY_NUMBER)
_NO_OFFSET = cython.declare(cython.longlong, NO_OFFSET)
_NEVER = cython.declare(cython.longlong, 1 << 62)
_ORDER = cython.declare(cython.int, int(Evidence.ORDER))
_UNKNOWN = cython.declare(cython.int, int(State.UNKNOWN))
_NO_KEYS = ClientKeys()
"""The keys of each client, if the protocol's replies repeat no key: it stays empty."""


@cython.cclass
class RequestMatcher(TcpOrder):
    """The requests and replies of one connection; see the module.

    ``ring``: requests and phantoms that are not decided; None before the first request or reply.
    ``certain``: the alignment of the replies since the last anchor, without assumptions.
    ``rounds``: evidence that the client waits for replies. ``client_keys``: ids and publishes of the client.
    ``indexes_by_key``: by echo key the first and the last request with it, as indexes plus ``dropped_count``: requests
    that left the ring since the keys were last forgotten. ``keyed``: requests of the ring whose keys are there.
    ``acknowledged``: requests of the ring that the last reply acknowledged. ``reply_count``: placed replies.
    ``last_phantom``, ``acknowledged_phantom``: index of the last phantom, and of the last among those, or -1.
    ``quiet_ns``: the longest time from an optional request to its reply, 0 without a bound.
    ``usual_ns``: its shortest time from a request to a reply, 0 without a pair.
    ``state``, ``kinds``: the state of the connection, and the kinds of requests in it, by code.
    ``state_next``: the state after the last certain pair, -1 if it stays.
    ``state_assumed``: the start was not captured, and nothing has shown the state.
    ``awaited``: by code: whether the success of an optional request is a reply.
    ``closed``: the server closes the connection. It does not handle the requests in ``after_close``.
    ``server_has_hole``: bytes of the server are missing since the last anchor. ``is_answered``: a reply was placed.
    ``has_unpaired``: a reply has no request, so no request is certainly `unanswered`.
    ``was_restarted``: a span was given up, so that captured requests are forgotten.
    """

    tables: RequestTables
    results: MatchResults
    flow: cython.longlong
    started: cython.bint
    ring: list[Request]
    certain: Alignment
    rounds: Rounds
    client_keys: ClientKeys
    indexes_by_key: dict[int, tuple[int, int]]
    dropped_count: cython.longlong
    keyed: cython.Py_ssize_t
    acknowledged: cython.Py_ssize_t
    last_phantom: cython.Py_ssize_t
    acknowledged_phantom: cython.Py_ssize_t
    reply_count: cython.longlong
    state: cython.int
    state_next: cython.int
    kinds: bytes
    midstream_kinds: bytes
    state_assumed: cython.bint
    state_contradicted: cython.bint
    awaited: bytes
    max_open: cython.Py_ssize_t
    quiet_ns: cython.longlong
    usual_ns: cython.longlong
    server_has_hole: cython.bint
    is_answered: cython.bint
    closed: cython.bint
    after_close: "array[int]"
    has_unpaired: cython.bint
    was_restarted: cython.bint

    def __init__(self, tables: RequestTables, flow: int, started: bool, results: MatchResults) -> None:
        TcpOrder.__init__(self)
        self.tables, self.flow, self.started, self.results = tables, flow, started, results
        self.midstream_kinds = tables.kind[tables.midstream_state]
        self.quiet_ns, self.usual_ns = tables.habits.quiet_ns or 0, 0
        self.state_assumed = not started and bool(tables.confirming)
        self.state_contradicted = self.server_has_hole = self.is_answered = self.closed = False
        self.has_unpaired = self.was_restarted = False
        self.acknowledged, self.last_phantom, self.acknowledged_phantom = 0, -1, -1
        self.reply_count, self.state_next = 0, -1
        self.skips_silent = not started or tables.initial_state == tables.midstream_state
        self.ring, self.indexes_by_key, self.dropped_count, self.keyed = None, {}, 0, 0

    @cython.cfunc
    def _begin(self) -> cython.void:
        """Prepare for the first request or reply; many connections have none."""
        tables = self.tables
        self.awaited = bytes(code in tables.awaited for code in range(len(self.midstream_kinds)))
        self.max_open = MAX_OPEN_REQUESTS
        self.ring, self.rounds, self.after_close = [], Rounds(tables.habits.holds_replies), array("q")
        self.client_keys = ClientKeys() if tables.echoes else _NO_KEYS
        self.certain = Alignment(self.ring, tables.echoes, tables.accepted_replies[0])
        self._enter(tables.initial_state if self.started else tables.midstream_state)
        if not self.started:
            self._add_phantom(phantom_request(NO_OFFSET, NO_OFFSET, ANY_NUMBER))

    @cython.cfunc
    def _at(self, i: cython.Py_ssize_t) -> Request:
        return self.ring[i]

    @cython.cfunc
    def _add_phantom(self, q: Request) -> cython.void:
        self.last_phantom = len(self.ring)
        self.ring.append(q)

    # -- requests ------------------------------------------------------------------------------------------

    @cython.cfunc
    def _add_request(self, q: Request) -> cython.void:
        if self.ring is None:
            self._begin()
        if q.row < 0:
            self._add_client_hole(q)
            return
        q.kind = self.kinds[q.code]
        if q.kind != self.midstream_kinds[q.code]:
            self.results.kinds.extend((q.row, q.kind))
        if q.kind not in (_ONE_REPLY, _OPTIONAL_REPLY):
            self._add_other(q)
            return
        if self.closed:
            if len(self.after_close) < self.max_open:
                self.after_close.append(q.row)
            else:
                self.results.state(q.row, _UNKNOWN)
            return
        if 0 < self.quiet_ns <= q.pause_ns and not q.in_hole:
            self._settle_quiet()
        if q.in_hole:
            self.rounds.add_hole()
        if q.kind == _ONE_REPLY or self.awaited[q.code]:
            self.rounds.ask(q)
        q.asked, q.after_replies = self.rounds.asked_count, self.reply_count
        if self.certain.echoes:
            self.client_keys.add(q)
        self.ring.append(q)
        if self.replay is not None:
            self.replay.add("request", q.offset, MISSING, MISSING, len(self.ring) - self.certain.start)
        if len(self.ring) - self.certain.start > self.max_open:
            self._give_up_ring()

    @cython.cfunc
    def _add_other(self, q: Request) -> cython.void:
        """A request that gets no reply, or whose operation is unknown."""
        if q.kind == RequestKind.TRUNCATED:
            self.results.state(q.row, _UNKNOWN)
            q.is_unread, q.kind = True, _OPTIONAL_REPLY
            self.rounds.add_hole()
            self._add_phantom(q)
        elif q.kind == RequestKind.ONE_WAY:
            self._add_one_way(q.row)
        self.closed = self.closed or q.kind == RequestKind.CLOSES

    @cython.cfunc
    def _add_one_way(self, row: cython.longlong) -> cython.void:
        """A request that gets no reply, if the state is what it is taken for."""
        if len(self.tables.kind) > 1 and not self.state_assumed:
            self.results.state(row, State.NOT_EXPECTED)

    @cython.cfunc
    def _add_client_hole(self, hole: Request) -> cython.void:
        """Put phantoms into the ring for the requests that may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.end - hole.offset
        max_count: cython.longlong = length // habits.shortest_bytes
        self.rounds.add_hole()
        self._leave_state_open()
        if max_count > MAX_PHANTOM_REQUESTS:
            self._add_phantom(phantom_request(hole.offset, hole.end, ANY_NUMBER))
        else:
            least: cython.longlong = 1 if habits.all_count and not hole.truncated else 0
            for k in range(max_count):
                kind: cython.int = _ONE_REPLY if k < least else _OPTIONAL_REPLY
                self._add_phantom(phantom_request(hole.offset, hole.end, kind))
        if self.replay is not None:
            self.replay.add("hole", hole.offset, MISSING, MISSING, max_count, -1, False, f"client, {length} bytes")

    # -- replies -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _add_reply(self, r: Reply) -> cython.void:
        if self.ring is None:
            self._begin()
        if r.row < 0:
            self._add_server_hole(r)
            return
        tables, code, c = self.tables, r.code, self.certain
        q: Request
        self._observe_state(r)
        if code in tables.unreadable:
            self.results.state(r.row, NO_ROW)
            self._align(phantom_reply(r.end, r.ack, 0, True))
            return
        r.bit = tables.reply_bits[code]
        is_opening: cython.bint = self.started and not (self.is_answered or self.server_has_hole) and r.offset == 0
        is_opening = is_opening and len(self.ring) > 0
        if not r.bit or (tables.first_only[code] and not is_opening):
            # If its acknowledgement is unknown, it may answer a request that was captured after it.
            self.has_unpaired = self.has_unpaired or (r.offset == 0 and tables.first_only[code])
            self.results.state(r.row, NO_ROW)
            return
        if tables.first_only[code]:
            r.bit = -1  # whatever opens a connection, such a reply may be to it
        r.echoes_nothing = tables.echoes_nothing[code]
        r.publish_offset = self.client_keys.publish_offset(r)
        self.rounds.answer(r)
        r.asked = self.rounds.asked_count
        self.pause_ns = 0
        self._acknowledge(r)
        if c.low == c.high and c.low < self.acknowledged and not c.placed:
            # The usual case: all requests before are settled, and the next must be answered.
            q = self.ring[c.low]
            if q.kind == _ONE_REPLY and not q.is_unread and c.fits(c.low, r, -1):
                self._pair(q, r, _ORDER)
                self._pass(c.low + 1)
                return
        self._align(r)
        self.is_answered = True

    @cython.cfunc
    def _acknowledge(self, r: Reply) -> cython.void:
        """Count the requests of the ring that a reply acknowledges."""
        n: cython.Py_ssize_t = len(self.ring)
        q: Request
        while self.acknowledged < n:
            q = self.ring[self.acknowledged]
            if (r.ack != _NO_OFFSET and q.reach > r.ack) or q.last_ack > r.offset:
                break
            if q.is_unread:
                self.acknowledged_phantom = self.acknowledged
            self.acknowledged += 1

    @cython.cfunc
    def _align(self, r: Reply) -> cython.void:
        """Place a reply, and decide if one place is left."""
        c: Alignment = self.certain
        self._acknowledge(r)
        self._use_unique_keys()
        p: PlacedReply = PlacedReply(r, self.acknowledged, -1, self._own_from(r))
        if c.low < c.high or self.acknowledged_phantom >= c.start or self.acknowledged - c.low > MAX_COMPARED:
            self._look_up(p)
        if not c.add(p):
            self._give_up_span(self.acknowledged)
            self._acknowledge(r)
            if not c.add(PlacedReply(r, self.acknowledged, -1, 0)):  # the late start accepts any reply
                self.results.state(r.row, _UNKNOWN)
                return
        self.reply_count += 1
        if self.replay is not None:
            self._record_reply(r)
        if len(c.placed) == 1 and r.publish_offset >= 0 and c.low < c.high:
            self._first_of_queue(r)
        if c.low == c.high:
            self._record("decision", "one place is left")
            self._decide(c.low, c.low, False)
        elif len(c.placed) > self.max_open:
            self._give_up_ring()

    @cython.cfunc
    def _use_unique_keys(self) -> cython.void:
        """Let ids and own publishes limit the candidates if the client, as far as is known, repeats none of them."""
        self.certain.use_ids = self.client_keys.has_unique_ids()
        self.certain.use_publishes = self.client_keys.has_unique_publishes()

    @cython.cfunc
    def _own_from(self, r: Reply) -> cython.Py_ssize_t:
        """The first request after the client's own publish of the message that a reply returns."""
        i: cython.Py_ssize_t = self.acknowledged
        least: cython.Py_ssize_t = max(self.certain.start, i - MAX_COMPARED)
        if r.publish_offset < 0:
            return 0
        while i > least and self._at(i - 1).offset > r.publish_offset:
            i -= 1
        # Requests that were not looked at, or were given up, may follow the publish, too.
        is_unsure: cython.bint = i > self.certain.start + 1 and i == least
        return 0 if is_unsure or (self.was_restarted and i <= self.certain.start + 1) else i

    @cython.cfunc
    def _first_of_queue(self, r: Reply) -> cython.void:
        """If all candidates of the only placed reply read one queue, the first of them gets the message.

        The client published the message before the first candidate, and the queue had it already.
        """
        c: Alignment = self.certain
        p: PlacedReply = c.placed[0]
        earliest: Request = self.ring[p.low]
        if r.publish_offset >= earliest.offset or earliest.is_unread:
            return
        for i in range(p.low, min(p.high, p.limit - 1) + 1):
            if c.fits(i, r, p.named) and self._at(i).payload_key != earliest.payload_key:
                return
        p.high = p.low
        c.high = c.far = c.low

    @cython.cfunc
    def _look_up(self, p: PlacedReply) -> cython.void:
        """Limit the candidates of a reply that repeats an id to the captured requests with that id.

        A missing request may have any id: it remains a candidate, but for what `Alignment.fits` says of ``named``.
        """
        tables, c, r = self.tables, self.certain, p.reply
        q: Request
        i: cython.Py_ssize_t
        if not tables.echoes or r.echoes_nothing or r.row < 0 or not (r.bit & tables.id_replies):
            return
        if len(self.indexes_by_key) > 2 * self.max_open:
            self._forget_keys()
        while self.keyed < self.acknowledged:
            q = self.ring[self.keyed]
            if not q.is_unread:
                i = self.keyed + self.dropped_count
                earliest, latest = self.indexes_by_key.get(q.echo_key, (i, i))
                self.indexes_by_key[q.echo_key] = (earliest if latest >= c.start + self.dropped_count else i, i)
            self.keyed += 1
        earliest, latest = self.indexes_by_key.get(r.echo_key, (-1, -1))
        i = latest - self.dropped_count
        if i < c.start:
            return
        if i > self.acknowledged_phantom:
            p.limit = i + 1
        if self.acknowledged_phantom < c.low:
            p.least = earliest - self.dropped_count
        least: cython.Py_ssize_t = max(c.start, i - MAX_COMPARED)  # another operation may have used the id later
        while i >= least and (self._at(i).is_unread or not c.fits(i, r, -1)):
            i -= 1
        p.named = i if i >= least else -1

    @cython.cfunc
    def _add_server_hole(self, hole: Reply) -> cython.void:
        """Align phantoms for the replies that may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.hole_length
        self.rounds.add_hole()
        self.server_has_hole = self.state_contradicted = True
        self._leave_state_open()
        is_leading: cython.bint = not self.started and self.reply_count == 0
        max_count: cython.longlong = length // habits.shortest_bytes + is_leading
        least: cython.longlong = 1 if habits.all_count and not hole.may_be_missing and not is_leading else 0
        if self.replay is not None:
            self.replay.add(
                "hole", hole.end - length, MISSING, MISSING, max_count, -1, False, f"server, {length} bytes"
            )
        for k in range(1 if max_count > MAX_PHANTOM_REPLIES else max_count):
            if k and not self.certain.placed:  # its earlier replies are decided
                length = 0
            r: Reply = phantom_reply(hole.end, hole.ack, length, k >= least)
            r.any_number = max_count > MAX_PHANTOM_REPLIES
            self._align(r)

    # -- decisions -----------------------------------------------------------------------------------------

    @cython.cfunc
    def _pair(self, q: Request, r: Reply, evidence: cython.int) -> cython.void:
        """Note a certain pair: all requests before it were handled."""
        self.results.pair(q.row, r.row, evidence)
        if self.replay is not None:
            self.replay.add("pair", r.offset, q.offset, q.offset, 1, evidence)
        self.is_answered = True
        if self.awaited[q.code] or q.kind == _ONE_REPLY:
            self.rounds.add_pair(q, r)
        if q.kind == _ONE_REPLY:
            self.client_keys.publishes.clear()  # a new queue has no earlier messages
        if self.quiet_ns > 0:  # a server that took this long may take it again: only a longer silence settles
            taken_ns = min(r.ts_ns - q.end_ns, 4 * (self.tables.habits.quiet_ns or 0))
            self.quiet_ns = max(self.quiet_ns, taken_ns)
            self.usual_ns = min(self.usual_ns or taken_ns, taken_ns)
        if not self.state_assumed:
            self.results.handled_to[self.flow] = q.offset
        if self.tables.next_state:
            state: cython.int = self.tables.next_state.get((self.state, q.code, r.code), self.state)
            if state != self.state:
                self.state_next = state

    @cython.cfunc
    def _pass(self, place: cython.Py_ssize_t) -> cython.void:
        """Move the anchor to a place: all requests below it are decided. Applies a change of the state."""
        c: Alignment = self.certain
        self.server_has_hole = False
        if place == len(self.ring) or (place > MIN_DROPPED and 2 * place > len(self.ring)):
            del self.ring[:place]
            self.dropped_count += place
            self.keyed = max(self.keyed - place, 0)
            self.acknowledged = max(self.acknowledged - place, 0)
            self.last_phantom -= place
            self.acknowledged_phantom -= place
            place = 0
        self.acknowledged = max(self.acknowledged, place)
        c.restart(place)
        if self.replay is not None:
            self.replay.settled(self._at(place).offset if place < len(self.ring) else _NEVER)
        if self.state_next >= 0:
            state: cython.int = self.state_next
            self.state_next = -1
            self._change_state(state, True)

    @cython.cfunc
    def _settle_quiet(self) -> cython.void:
        """Both sides paused for longer than the server takes: all requests are settled, for certain."""
        n: cython.Py_ssize_t = len(self.ring)
        if self.certain.low <= n <= self.certain.farthest():
            self._record("decision", "both sides paused for longer than the server may take: nothing is open")
            self._decide(n, n, False)

    @cython.cfunc
    def _decide(self, lowest: cython.Py_ssize_t, highest: cython.Py_ssize_t, orderly: cython.bint) -> cython.void:
        """Emit the pairs, and the states of requests below; every alignment ends at a place from lowest to highest.

        orderly: the connection ended in order.
        """
        c: Alignment = self.certain
        q: Request
        r: Reply
        earliest: cython.Py_ssize_t
        latest: cython.Py_ssize_t
        start: cython.Py_ssize_t = c.start
        taken: dict[int, Reply] = {}
        ambiguous: list[Candidates] = []
        self._use_unique_keys()
        candidates = c.settle(lowest, highest)
        if candidates is None:
            self._give_up_span(len(self.ring))
            return
        for r, earliest, latest in candidates:
            if r.row < 0:
                continue
            if earliest < 0 or earliest != latest:
                ambiguous.append((r, earliest, latest))
                continue
            q = self.ring[earliest]
            if q.is_unread:
                self._leave_unpaired(r, q.row < 0)
            else:
                taken[earliest] = r
                self._pair(q, r, self._evidence(r, start))
        if ambiguous:
            self._pair_likely(ambiguous, taken, orderly, lowest, highest)
        self._leave_unanswered(lowest, highest, taken, ambiguous)
        if candidates:
            self._forget_hole(highest, candidates[-1])
        self._pass(highest)

    @cython.cfunc
    def _forget_hole(self, place: cython.Py_ssize_t, final: Candidates) -> cython.void:
        """If a hole is decided in part, its length does not say how many of its requests are left after a place."""
        _, _, latest = final
        if place == len(self.ring) or self._at(place).row >= 0:
            return
        offset: cython.longlong = self._at(place).offset
        is_split: cython.bint = place > 0 and self._at(place - 1).row < 0 and self._at(place - 1).offset == offset
        if self._at(place).kind == _ANY:
            is_split = latest < 0 or latest == place
        while is_split and place < len(self.ring) and self._at(place).row < 0 and self._at(place).offset == offset:
            self._at(place).offset = _NO_OFFSET
            place += 1

    @cython.cfunc
    def _evidence(self, r: Reply, start: cython.Py_ssize_t) -> cython.int:
        """Evidence of a certain pair; start: the place of the anchor before it.

        If an acknowledged request since the anchor is missing or unread, only an id proves the pair. Else order does if
        the first request must be answered; if it need not be, the echo shows which request was answered.
        """
        if not self.tables.echoes or r.echoes_nothing:
            return _ORDER
        if start <= self.acknowledged_phantom:
            return Evidence.ID
        return _ORDER if self._at(start).kind == _ONE_REPLY else Evidence.ECHO

    @cython.cfunc
    def _leave_unpaired(self, r: Reply, is_orphan: cython.bint) -> cython.void:
        """A reply gets no request; is_orphan: all its candidates are phantoms."""
        self.has_unpaired = True
        is_orphan = is_orphan and not self.was_restarted
        if self.tables.echoes:  # a captured request may accept it in another state
            is_orphan = is_orphan and not (self.state_assumed or r.echoes_nothing)
            is_orphan = is_orphan and not self.client_keys.may_be_used(r.echo_key)
        self.results.state(r.row, State.ORPHAN if is_orphan else _UNKNOWN)

    @cython.cfunc
    def _leave_unanswered(
        self, lowest: cython.Py_ssize_t, highest: cython.Py_ssize_t, taken: dict[int, Reply],
        ambiguous: list[Candidates],
    ) -> cython.void:  # fmt: skip
        """States of requests without a pair, up to a place from lowest to highest.

        taken: by place, the reply. ambiguous: replies that may be theirs, each with its first and last place.
        """
        q: Request
        r: Reply
        i: cython.Py_ssize_t
        bits: cython.longlong = 0
        doubt_from: cython.Py_ssize_t = len(self.ring)
        doubt_to: cython.Py_ssize_t = 0
        for r, earliest, latest in ambiguous:
            bits |= r.bit
            doubt_from, doubt_to = min(doubt_from, earliest), max(doubt_to, latest + 1)
        for i in range(self.certain.start, max(highest, doubt_to)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread or i in taken:
                continue
            is_doubtful: cython.bint = doubt_from <= i < doubt_to and bool(self.certain.accepted[q.code] & bits)
            if q.kind == _ONE_REPLY:
                is_lost = self.server_has_hole and not is_doubtful and i < lowest
                self.results.state(q.row, State.LOST if is_lost else _UNKNOWN)
            elif is_doubtful or self.server_has_hole:
                self.results.state(q.row, _UNKNOWN)

    @cython.cfunc
    def _pair_likely(
        self, ambiguous: list[Candidates], taken: dict[int, Reply], orderly: cython.bint, lowest: cython.Py_ssize_t,
        highest: cython.Py_ssize_t,
    ) -> cython.void:  # fmt: skip
        """Give replies the request that they have in every alignment that keeps an assumption."""
        habits, c = self.tables.habits, self.certain
        waited: cython.longlong = self.rounds.count_waited()
        waited = 1 if habits.once and self.rounds.asked_count == 1 else waited
        a: Assumptions = Assumptions(c, self.tables, self.awaited, self.reply_count - len(c.placed), waited)
        a.use_publishes = self.client_keys.publishes_differ()
        r: Reply
        if orderly and habits.answers_all != "no":
            self._record_assumption(a.assume(Evidence.CLOSE), "close", "the server answered all before it closed")
        if waited:
            why = f"the client waits for each reply; {self.rounds.words()}"
            self._record_assumption(a.assume(Evidence.ALTERNATION), "alternation", why)
        else:
            self._record("assumption", f"alternation: no evidence; {self.rounds.words()}")
        if habits.pause_ns is not None:
            self._record_assumption(a.assume(Evidence.PAUSE), "pause", "nothing is open after a long pause")
        if self.last_phantom < c.start and not self.server_has_hole:
            a.assume_first_of_burst(ambiguous, taken, self.usual_ns)
        margins: dict[int, float] = self._align_by_cost(lowest, highest, orderly, taken, a)
        for r, earliest, latest in ambiguous:
            index, evidence = a.likely.get(r.row, (-1, 0))
            if index >= 0 and index not in taken:
                taken[index] = r
                self.results.pair(self._at(index).row, r.row, evidence + LIKELY)
                if self.replay is not None:
                    offset: cython.longlong = self._at(index).offset
                    margin = f"{margins[r.row]:.0f} nats" if r.row in margins else ""
                    self.replay.add("pair", r.offset, offset, offset, 1, evidence, True, margin)
                continue
            if self.replay is not None and earliest >= 0:
                places = self._named_request(earliest), self._named_request(latest)
                self.replay.add("unpaired", r.offset, *places, latest - earliest + 1)
            has_captured = any(self._at(i).row >= 0 for i in range(earliest, latest + 1))
            self._leave_unpaired(r, earliest >= 0 and not has_captured)

    @cython.cfunc
    def _align_by_cost(
        self, lowest: cython.Py_ssize_t, highest: cython.Py_ssize_t, orderly: cython.bint, taken: dict[int, Reply],
        a: Assumptions,
    ) -> dict[int, float]:  # fmt: skip
        """If bytes are missing, add pairs that are likely by the lengths of holes; returns by row of a reply how much
        the next best alignment costs more, in nats."""
        habits = self.tables.habits
        margins: dict[int, float] = {}
        if self.last_phantom < self.certain.start and not self.server_has_hole:
            return margins
        fixed: dict[int, int] = {}
        r: Reply
        for index, r in taken.items():
            fixed[r.row] = index
        is_closed: cython.bint = orderly and habits.answers_all != "no"
        span = SpanAlignment(self.certain, habits.all_count, fixed)
        for row, (index, margin) in span.likely(highest, lowest == highest or is_closed).items():
            if row not in a.likely and row not in fixed:
                a.likely[row], margins[row] = (index, int(Evidence.LENGTH)), margin
        self._record("assumption", f"length: lengths of holes, operations and values decide {len(margins)} more")
        return margins

    # -- spans that are given up ---------------------------------------------------------------------------

    @cython.cfunc
    def _give_up_span(self, place: cython.Py_ssize_t) -> cython.void:
        """No alignment is left: requests below a place, and replies since the last anchor, are unknown."""
        p: PlacedReply
        self._record("decision", "no alignment is left: all of the span is unknown")
        for p in self.certain.placed:
            self._leave_unpaired(p.reply, False)
        for i in range(self.certain.start, place):
            self.results.state(self._at(i).row, _UNKNOWN)
        self.has_unpaired = True
        self._restart_late(place)

    @cython.cfunc
    def _give_up_ring(self) -> cython.void:
        """The ring is full: decide what is certain or likely as it stands, and begin again as after a late start."""
        c: Alignment = self.certain
        self._record("decision", f"the ring is full with {self.max_open} messages")
        if c.placed:
            self._decide(c.low, c.farthest(), False)
        for i in range(c.start, len(self.ring)):
            if self._at(i).kind == _ONE_REPLY:
                self.results.state(self._at(i).row, _UNKNOWN)
        self._restart_late(len(self.ring))

    @cython.cfunc
    def _restart_late(self, place: cython.Py_ssize_t) -> cython.void:
        """Begin again as after a late start, with the requests from a place on."""
        kept = self.ring[place:]
        del self.ring[:]
        self._forget_keys()
        self.acknowledged, self.last_phantom, self.acknowledged_phantom = 0, -1, -1
        self.server_has_hole, self.was_restarted = False, True
        self._add_phantom(phantom_request(NO_OFFSET, NO_OFFSET, ANY_NUMBER))
        self.ring.extend(kept)
        for i in range(1, len(self.ring)):
            if self._at(i).is_unread:
                self.last_phantom = i
        self.certain.restart(0)

    # -- the state of the connection -----------------------------------------------------------------------

    @cython.cfunc
    def _enter(self, state: cython.int) -> cython.void:
        """Set the state of the connection, and with it the kinds of requests and the replies that they accept."""
        self.state, self.kinds = state, self.tables.kind[state]
        self.certain.accepted = self.tables.accepted_replies[state]
        self.skips_silent = state == self.tables.midstream_state

    @cython.cfunc
    def _observe_state(self, r: Reply) -> cython.void:
        """A reply may show the state."""
        tables, code, c = self.tables, r.code, self.certain
        if self.state_assumed:
            self.state_contradicted = self.state_contradicted or code in tables.contradicting
            if code in tables.confirming:
                self.state_assumed = False
                acknowledged: cython.longlong = self.client_read if r.ack == _NO_OFFSET else r.ack
                self.results.confirmed_from[self.flow] = acknowledged if self.state_contradicted else _NO_OFFSET
        if code not in tables.state_after:
            return
        state: cython.int = tables.state_after[code].get(self.state, self.state)
        if state == self.state:
            return
        if c.placed:
            rows = [self._at(i).row for i in range(c.start, len(self.ring))]
            self._record("decision", "the state of the connection changes")
            self._decide(c.low, c.farthest(), False)
            for row in rows:
                self.results.state(row, _UNKNOWN)
            self._restart_late(len(self.ring))
        self._change_state(state, False)

    @cython.cfunc
    def _change_state(self, state: cython.int, is_certain: cython.bint) -> cython.void:
        """Reclassify open requests: those sent before the reply that changed the state are handled in the new one.

        If it is not certain, the change may have been earlier, in a hole: some were answered in the old state.
        """
        old_kinds, waiting = self.kinds, self.ring[self.certain.start :]
        q: Request
        self._enter(state)
        del self.ring[:]
        self._forget_keys()
        self.acknowledged, self.last_phantom, self.acknowledged_phantom = 0, -1, -1
        for q in waiting:
            if q.is_unread:
                self._add_phantom(q)
                continue
            kind: cython.int = self.kinds[q.code]
            if kind != old_kinds[q.code]:
                self.results.kinds.extend((q.row, kind))
                if not is_certain and kind != _ONE_REPLY:
                    self.results.state(q.row, _UNKNOWN)
                    continue
            if kind in (_ONE_REPLY, _OPTIONAL_REPLY):
                q.kind = kind
                self.ring.append(q)
        self.certain.restart(0)

    @cython.cfunc
    def _leave_state_open(self) -> cython.void:
        """A missing message may have changed the state: a request may be of its kind in any state.

        Kinds that get a reply prevail, OPTIONAL_REPLY over ONE_REPLY.
        """
        tables = self.tables
        q: Request
        if self.state == tables.midstream_state:
            return
        may_get = {RequestKind.ONE_REPLY, RequestKind.OPTIONAL_REPLY}
        # By code: the kinds in all states.
        kinds = [{*kinds} for kinds in zip(*tables.kind, strict=True)]
        self.kinds = bytes(max(of_code & may_get or of_code) for of_code in kinds)
        accepted = zip(*tables.accepted_replies, strict=True)
        self.certain.accepted = [functools.reduce(operator.or_, bits) for bits in accepted]
        for i in range(self.certain.start, len(self.ring)):
            q = self.ring[i]
            if not q.is_unread:
                q.kind = self.kinds[q.code]
        self.certain.far = self.certain.high

    # -- the end -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _open_count(self) -> cython.Py_ssize_t:
        if self.ring is None:
            return 0
        # A connection whose requests were given up keeps a phantom.
        return len(self.ring) + len(self.certain.placed) - (self.last_phantom >= 0)

    @cython.cfunc
    def _key_count(self) -> cython.Py_ssize_t:
        if self.ring is None:
            return 0
        return self.client_keys.count() + len(self.indexes_by_key)

    @cython.cfunc
    def _forget(self) -> cython.void:
        if self.ring is None:
            return
        if len(self.ring) > self.certain.start or self.certain.placed:
            self._give_up_ring()
        self._forget_keys()
        self.client_keys.forget()

    @cython.cfunc
    def _forget_keys(self) -> cython.void:
        self.indexes_by_key.clear()
        self.dropped_count = self.keyed = 0

    @cython.cfunc
    def _finish(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        if self.ring is None:
            if self.replay is None:
                return False
            self._begin()
        c: Alignment = self.certain
        q: Request
        n: cython.Py_ssize_t = len(self.ring)
        is_settled: cython.bint = c.low == c.high and not c.placed
        if not is_settled:
            self._record(
                "decision", "the connection ends in order" if orderly else "the capture of the connection ends"
            )
            is_settled = orderly and self.tables.habits.answers_all == "certainly" and c.low <= n <= c.farthest()
            self._decide(n if is_settled else c.low, n if is_settled else c.farthest(), orderly)
        is_sure: cython.bint = is_settled and whole_replies and not self.has_unpaired and self.last_phantom < c.start
        for i in range(c.start, len(self.ring)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread:
                continue
            if q.kind == _ONE_REPLY:
                is_due = is_sure and ended and not q.truncated
                self.results.state(q.row, State.UNANSWERED if is_due else _UNKNOWN)
            elif not is_sure and not (whole_replies and self.tables.silence[q.code] == State.NOT_EXPECTED):
                self.results.state(q.row, _UNKNOWN)
        for row in self.after_close:
            self.results.state(row, State.UNANSWERED if is_sure and ended else _UNKNOWN)
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
        p: PlacedReply = self.certain.placed[len(self.certain.placed) - 1]
        earliest: cython.Py_ssize_t = p.low
        latest: cython.Py_ssize_t = min(p.high, p.limit - 1, len(self.ring) - 1)
        while earliest < latest and not self.certain.fits(earliest, r, p.named):
            earliest += 1
        while earliest < latest and not self.certain.fits(latest, r, p.named):
            latest -= 1
        offset: cython.longlong = r.offset if r.row >= 0 else MISSING
        if earliest > latest:
            self.replay.add("reply", offset)
        else:
            self.replay.add(
                "reply", offset, self._named_request(earliest), self._named_request(latest), latest - earliest + 1
            )

    @cython.cfunc
    def _record_assumption(self, is_kept: cython.bint, name: str, why: str) -> cython.void:
        if self.replay is not None:
            text = f"{name}: {why if is_kept else 'no alignment keeps it'}"
            self.replay.add("assumption", MISSING, MISSING, MISSING, 0, -1, is_kept, text)
