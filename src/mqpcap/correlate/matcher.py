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

A protocol may have states (a login): see ``connection_state``. The kind of a request depends on the server's state
when it handles the request. A certain pair may lead to another state.

Facts that are kept beside the place:

| fact | begins with | ends with | while it holds |
|---|---|---|---|
| ``server_has_hole`` | missing bytes of the server | anchor, give up | a request without a pair is `lost` |
| ``has_unpaired`` | a reply without a request | | no request is `unanswered` |
| ``after_close`` | a request that closes the connection | | later requests are not handled |
| ``was_restarted`` | give up, ring full | | no reply is an `orphan`: its request may be forgotten |
| ``is_assumed`` | late start, if there are states | a reply that shows it | one-way requests wait for their state |
| ``is_contradicted`` | a reply of another state, missing bytes of the server | | the state is not confirmed |
"""

from array import array
from functools import lru_cache

import cython

from mqpcap.correlate.alignment import Alignment, Candidates, PlacedReply
from mqpcap.correlate.assumptions import Assumptions, Rounds
from mqpcap.correlate.client_keys import ClientKeys
from mqpcap.correlate.connection_state import ConnectionState
from mqpcap.correlate.messages import (
    ANY_NUMBER,
    LIKELY,
    NEVER,
    NO_ROW,
    ONE_REPLY,
    OPTIONAL_REPLY,
    UNKNOWN,
    MatchResults,
    Reply,
    Request,
    phantom_reply,
    phantom_request,
)
from mqpcap.correlate.open_requests import MAX_COMPARED, OpenRequests
from mqpcap.correlate.replay import MISSING
from mqpcap.correlate.span_alignment import MAX_MARGIN
from mqpcap.correlate.tcp_order import TcpOrder
from mqpcap.schema.requests import Evidence, RequestKind, RequestTables, State

MAX_OPEN_REQUESTS = 1 << 14
"""Requests of a group that are not settled, and replies as well; with more all of them are decided as they stand."""
MAX_PHANTOM_REQUESTS = 12
MAX_PHANTOM_REPLIES = 48
"""Phantoms of one hole; more are any number of requests or replies, which decides as much."""

_ORDER = cython.declare(cython.int, int(Evidence.ORDER))
_NO_KEYS = ClientKeys()
"""The keys of each client, if the protocol's replies repeat no key: it stays empty."""


@lru_cache(64)
def _awaited(codes: frozenset[int], code_count: int) -> bytes:
    """By code, whether it is one of these: a connection each asks."""
    return bytes(code in codes for code in range(code_count))


@cython.cfunc
def _was_captured(q: Request) -> cython.bint:
    """Whether bytes of a request, or of a phantom, were captured."""
    return q.row >= 0 or q.was_captured


@cython.cclass
class RequestMatcher(TcpOrder):
    """The requests and replies of one connection; see the module.

    ``requests``: those that are not decided, and ``ring``, their list; None before the first request or reply.
    ``certain``: the alignment of the replies since the last anchor, without assumptions.
    ``rounds``: evidence that the client waits for replies. ``client_keys``: ids and publishes of the client.
    ``state``: the state of the connection. ``midstream_kinds``: the kinds of requests in `midstream_state`, by code.
    ``reply_count``: placed replies. ``awaited``: by code: whether the success of an optional request is a reply.
    ``quiet_ns``: the longest time from an optional request to its reply, 0 without a bound.
    ``usual_ns``: its shortest time from a request to a reply, 0 without a pair.
    ``server_has_hole``, ``has_unpaired``, ``after_close``: see the module.
    """

    tables: RequestTables
    results: MatchResults
    flow: cython.longlong
    started: cython.bint
    requests: OpenRequests
    ring: list[Request]
    certain: Alignment
    rounds: Rounds
    client_keys: ClientKeys
    state: ConnectionState
    midstream_kinds: bytes
    reply_count: cython.longlong
    awaited: bytes
    max_open: cython.Py_ssize_t
    quiet_ns: cython.longlong
    usual_ns: cython.longlong
    server_has_hole: cython.bint
    has_unpaired: cython.bint
    after_close: "array[int]"

    def __init__(self, tables: RequestTables, flow: int, started: bool, results: MatchResults) -> None:
        TcpOrder.__init__(self)
        self.tables, self.flow, self.started, self.results = tables, flow, started, results
        self.midstream_kinds = tables.kind[tables.midstream_state]
        self.state, self.quiet_ns, self.reply_count = ConnectionState(tables, started), tables.habits.quiet_ns or 0, 0
        self.server_has_hole, self.has_unpaired, self.usual_ns = False, False, 0
        self.skips_silent = self.state.is_midstream()
        self.ring = self.after_close = None

    @cython.cfunc
    def _begin(self) -> cython.void:
        """Prepare for the first request or reply; many connections have none."""
        tables = self.tables
        self.awaited = _awaited(tables.awaited, len(self.midstream_kinds))
        self.max_open = MAX_OPEN_REQUESTS
        self.requests, self.rounds = OpenRequests(), Rounds(tables.habits.holds_replies)
        self.ring = self.requests.ring
        self.client_keys = ClientKeys() if tables.echoes else _NO_KEYS
        self.certain = Alignment(self.ring, tables.echoes, tables.accepted_replies[self.state.number])
        if not self.started:
            self.requests.add_late_start()

    # -- requests ------------------------------------------------------------------------------------------

    @cython.cfunc
    def _add_request(self, q: Request) -> cython.void:
        if self.ring is None:
            self._begin()
        if q.row < 0:
            self._add_client_hole(q)
            return
        q.kind = self.state.kinds[q.code]
        if q.kind != self.midstream_kinds[q.code]:
            self.results.kinds.extend((q.row, q.kind))
        if q.kind not in (ONE_REPLY, OPTIONAL_REPLY):
            self._add_other(q)
            return
        if self.after_close is not None:
            if len(self.after_close) < self.max_open:
                self.after_close.append(q.row)
            else:
                self.results.state(q.row, UNKNOWN)
            return
        if 0 < self.quiet_ns <= q.pause_ns and not q.in_hole:
            self._settle_quiet()
        if q.in_hole:
            self.rounds.add_hole()
        if q.kind == ONE_REPLY or self.awaited[q.code]:
            self.rounds.ask(q)
        q.asked, q.after_replies = self.rounds.asked_count, self.reply_count
        if self.certain.echoes:
            self.client_keys.add(q)
        self.requests.add(q)
        if self.replay is not None:
            self.replay.add("request", q.offset, MISSING, MISSING, len(self.ring) - self.certain.start)
        if len(self.ring) - self.certain.start > self.max_open:
            self._give_up_ring()

    @cython.cfunc
    def _add_other(self, q: Request) -> cython.void:
        """A request that gets no reply, or whose operation is unknown."""
        if q.kind == RequestKind.TRUNCATED:
            self.results.state(q.row, UNKNOWN)
            q.is_unread, q.kind = True, OPTIONAL_REPLY
            self.rounds.add_hole()
            self.requests.add(q)
        elif q.kind == RequestKind.ONE_WAY:
            self._add_one_way(q.row)
        elif q.kind == RequestKind.CLOSES and self.after_close is None:
            self.after_close = array("q")

    @cython.cfunc
    def _add_one_way(self, row: cython.longlong) -> cython.void:
        """A request that gets no reply, if the state is what it is taken for."""
        if len(self.tables.kind) > 1 and not self.state.is_assumed:
            self.results.state(row, State.NOT_EXPECTED)

    @cython.cfunc
    def _add_client_hole(self, hole: Request) -> cython.void:
        """Put phantoms into the ring for the requests that may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.end - hole.offset
        max_count: cython.longlong = length // habits.shortest_bytes
        self.rounds.add_hole()
        self.state.leave_open(self.certain)
        if max_count > MAX_PHANTOM_REQUESTS:
            self.requests.add(phantom_request(hole.offset, hole.end, ANY_NUMBER, hole.was_captured))
        else:
            least: cython.longlong = 1 if habits.all_count and not hole.truncated else 0
            for k in range(max_count):
                kind: cython.int = ONE_REPLY if k < least else OPTIONAL_REPLY
                self.requests.add(phantom_request(hole.offset, hole.end, kind, hole.was_captured))
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
        is_opening: cython.bint = self.started and not self.server_has_hole and r.offset == 0
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
        self.requests.acknowledge(r)
        if c.low == c.high and c.low < self.requests.acknowledged and not c.placed:
            # The usual case: all requests before are settled, and the next must be answered.
            q = self.ring[c.low]
            if q.kind == ONE_REPLY and not q.is_unread and c.fits(c.low, r, -1):
                self._pair(q, r, _ORDER)
                self._pass(c.low + 1)
                return
        self._align(r)

    @cython.cfunc
    def _align(self, r: Reply) -> cython.void:
        """Place a reply, and decide if one place is left."""
        c: Alignment = self.certain
        self.requests.acknowledge(r)
        self._use_unique_keys()
        p: PlacedReply = PlacedReply(r, self.requests.acknowledged, -1, self.requests.own_from(r, c.start))
        is_wide: cython.bint = c.low < c.high or self.requests.acknowledged - c.low > MAX_COMPARED
        if self._repeats_id(r) and (is_wide or self.requests.acknowledged_phantom >= c.start):
            self.requests.look_up(p, c, 2 * self.max_open)
        if not c.add(p):
            self._give_up_span(self.requests.acknowledged)
            self.requests.acknowledge(r)
            if not c.add(PlacedReply(r, self.requests.acknowledged, -1, 0)):  # the late start accepts any reply
                self.results.state(r.row, UNKNOWN)
                return
        self.reply_count += 1
        if self.replay is not None:
            c.record(self.replay)
        if len(c.placed) == 1 and r.publish_offset >= 0 and c.low < c.high:
            c.take_first_of_queue()
        if c.low == c.high:
            self._record("decision", "one place is left")
            self._decide(c.low, c.low, False)
        elif len(c.placed) > self.max_open:
            self._give_up_ring()

    @cython.cfunc
    def _repeats_id(self, r: Reply) -> cython.bint:
        """Whether a reply repeats an id of the client."""
        return self.tables.echoes and not r.echoes_nothing and r.row >= 0 and r.bit & self.tables.id_replies != 0

    @cython.cfunc
    def _use_unique_keys(self) -> cython.void:
        """Let ids and own publishes limit the candidates if the client, as far as is known, repeats none of them."""
        self.certain.use_ids = self.client_keys.has_unique_ids()
        self.certain.use_publishes = self.client_keys.has_unique_publishes()

    @cython.cfunc
    def _add_server_hole(self, hole: Reply) -> cython.void:
        """Align phantoms for the replies that may be missing."""
        habits = self.tables.habits
        length: cython.longlong = hole.hole_length
        self.rounds.add_hole()
        self.server_has_hole = self.state.is_contradicted = True
        self.state.leave_open(self.certain)
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
        if self.awaited[q.code] or q.kind == ONE_REPLY:
            self.rounds.add_pair(q, r)
        if q.kind == ONE_REPLY:
            self.client_keys.publishes.clear()  # a new queue has no earlier messages
        if self.quiet_ns > 0:  # a server that took this long may take it again: only a longer silence settles
            taken_ns = min(r.ts_ns - q.end_ns, 4 * (self.tables.habits.quiet_ns or 0))
            self.quiet_ns = max(self.quiet_ns, taken_ns)
            self.usual_ns = min(self.usual_ns or taken_ns, taken_ns)
        if not self.state.is_assumed:
            self.results.handled_to[self.flow] = q.offset
        self.state.add_pair(q, r)

    @cython.cfunc
    def _pass(self, place: cython.Py_ssize_t) -> cython.void:
        """Move the anchor to a place: all requests below it are decided. Applies a change of the state."""
        c: Alignment = self.certain
        self.server_has_hole = False
        place = self.requests.settle_below(place)
        c.restart(place)
        if self.replay is not None:
            self.replay.settled(self.requests.at(place).offset if place < len(self.ring) else NEVER)
        if self.state.following >= 0:
            self._change_state(self.state.following, True)

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
                self._leave_unpaired(r, not _was_captured(q))
            else:
                taken[earliest] = r
                self._pair(q, r, self._evidence(r, start))
        if ambiguous:
            self._pair_likely(ambiguous, taken, orderly, lowest, highest)
        self.requests.leave_unanswered(c, self.results, lowest, highest, taken, ambiguous, self.server_has_hole)
        if candidates:
            _, _, latest = candidates[-1]
            self.requests.forget_hole(highest, latest)
        self._pass(highest)

    @cython.cfunc
    def _evidence(self, r: Reply, start: cython.Py_ssize_t) -> cython.int:
        """Evidence of a certain pair; start: the place of the anchor before it.

        If an acknowledged request since the anchor is missing or unread, only an id proves the pair. Else order does if
        the first request must be answered; if it need not be, the echo shows which request was answered.
        """
        if not self.tables.echoes or r.echoes_nothing:
            return _ORDER
        if start <= self.requests.acknowledged_phantom:
            return Evidence.ID
        return _ORDER if self.requests.at(start).kind == ONE_REPLY else Evidence.ECHO

    @cython.cfunc
    def _leave_unpaired(self, r: Reply, is_orphan: cython.bint) -> cython.void:
        """A reply gets no request; is_orphan: no byte of any candidate was captured."""
        self.has_unpaired = True
        is_orphan = is_orphan and not (self.requests.was_restarted or r.acks_less)
        if self.tables.echoes:  # a captured request may accept it in another state
            is_orphan = is_orphan and not (self.state.is_assumed or r.echoes_nothing)
            is_orphan = is_orphan and not self.client_keys.may_be_used(r.echo_key)
        self.results.state(r.row, State.ORPHAN if is_orphan else UNKNOWN)

    @cython.cfunc
    def _pair_likely(
        self, ambiguous: list[Candidates], taken: dict[int, Reply], orderly: cython.bint, lowest: cython.Py_ssize_t,
        highest: cython.Py_ssize_t,
    ) -> cython.void:  # fmt: skip
        """Give replies the request that they have in every alignment that keeps an assumption."""
        habits, c = self.tables.habits, self.certain
        a: Assumptions = Assumptions(c, self.tables, self.awaited, self.reply_count - len(c.placed), self.replay)
        a.use_publishes = self.client_keys.publishes_differ()
        is_closed: cython.bint = orderly and habits.answers_all != "no"
        a.assume_all(self.rounds, is_closed)
        r: Reply
        if self.requests.last_phantom >= c.start or self.server_has_hole:
            a.align_by_cost(highest, lowest == highest or is_closed, taken)
        else:
            a.assume_first_of_burst(ambiguous, taken, self.usual_ns)
        for r, earliest, latest in ambiguous:
            index, evidence = a.likely.get(r.row, (-1, 0))
            if index >= 0 and index not in taken:
                taken[index] = r
                self.results.pair(self.requests.at(index).row, r.row, evidence + LIKELY)
                if self.replay is not None:
                    offset: cython.longlong = self.requests.at(index).offset
                    margin = a.margins.get(r.row, 0.0)
                    words = "no other fits" if margin >= MAX_MARGIN else f"{margin:.0f} nats before the next best"
                    self.replay.add("pair", r.offset, offset, offset, 1, evidence, True, words if margin else "")
                continue
            if self.replay is not None and earliest >= 0:
                places = c.offset_at(earliest), c.offset_at(latest)
                self.replay.add("unpaired", r.offset, *places, latest - earliest + 1)
            candidates = self.ring[max(earliest, 0) : latest + 1]
            self._leave_unpaired(r, earliest >= 0 and not any(_was_captured(q) for q in candidates))

    # -- spans that are given up ---------------------------------------------------------------------------

    @cython.cfunc
    def _give_up_span(self, place: cython.Py_ssize_t) -> cython.void:
        """No alignment is left: requests below a place, and replies since the last anchor, are unknown."""
        p: PlacedReply
        self._record("decision", "no alignment is left: all of the span is unknown")
        for p in self.certain.placed:
            self._leave_unpaired(p.reply, False)
        for i in range(self.certain.start, place):
            self.results.state(self.requests.at(i).row, UNKNOWN)
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
            if self.requests.at(i).kind == ONE_REPLY:
                self.results.state(self.requests.at(i).row, UNKNOWN)
        self._restart_late(len(self.ring))

    @cython.cfunc
    def _restart_late(self, place: cython.Py_ssize_t) -> cython.void:
        """Begin again as after a late start, with the requests from a place on."""
        self.requests.restart_late(place)
        self.server_has_hole = False
        self.certain.restart(0)

    # -- the state of the connection -----------------------------------------------------------------------

    @cython.cfunc
    def _observe_state(self, r: Reply) -> cython.void:
        """A reply may show the state."""
        c: Alignment = self.certain
        q: Request
        state: cython.int = self.state.observe(r, self.flow, self.client_read, self.results)
        if state == self.state.number:
            return
        if c.placed:
            waiting: list[Request] = self.ring[c.start :]
            self._record("decision", "the state of the connection changes")
            self._decide(c.low, c.farthest(), False)
            for q in waiting:
                self.results.state(q.row, UNKNOWN)
            self._restart_late(len(self.ring))
        self._change_state(state, False)

    @cython.cfunc
    def _change_state(self, state: cython.int, is_certain: cython.bint) -> cython.void:
        """Reclassify open requests: those sent before the reply that changed the state are handled in the new one."""
        old_kinds, waiting = self.state.kinds, self.requests.take_from(self.certain.start)
        q: Request
        self.state.enter(state, self.certain)
        self.skips_silent = self.state.is_midstream()
        for q in waiting:
            if self.state.reclassify(q, old_kinds, is_certain, self.results):
                self.requests.add(q)
        self.certain.restart(0)

    # -- the end -------------------------------------------------------------------------------------------

    @cython.cfunc
    def _open_count(self) -> cython.Py_ssize_t:
        if self.ring is None:
            return 0
        # A connection whose requests were given up keeps a phantom.
        return len(self.ring) + len(self.certain.placed) - (self.requests.last_phantom >= 0)

    @cython.cfunc
    def _key_count(self) -> cython.Py_ssize_t:
        if self.ring is None:
            return 0
        return self.client_keys.count() + len(self.requests.indexes_by_key)

    @cython.cfunc
    def _forget(self) -> cython.void:
        if self.ring is None:
            return
        if len(self.ring) > self.certain.start or self.certain.placed:
            self._give_up_ring()
        self.requests.forget_keys()
        self.client_keys.forget()

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
        is_sure: cython.bint = (
            is_settled and whole_replies and not self.has_unpaired and self.requests.last_phantom < c.start
        )
        for i in range(c.start, len(self.ring)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread:
                continue
            if q.kind == ONE_REPLY:
                is_due = is_sure and ended and not q.truncated
                self.results.state(q.row, State.UNANSWERED if is_due else UNKNOWN)
            elif not is_sure and not (whole_replies and self.tables.silence[q.code] == State.NOT_EXPECTED):
                self.results.state(q.row, UNKNOWN)
        for row in self.after_close or ():
            self.results.state(row, State.UNANSWERED if is_sure and ended else UNKNOWN)
        self.ring.clear()
        return self.state.is_contradicted

    # -- the replay ----------------------------------------------------------------------------------------

    @cython.cfunc
    def _record(self, kind: str, text: str) -> cython.void:
        """Record a step without a message."""
        if self.replay is not None:
            self.replay.add(kind, MISSING, MISSING, MISSING, 0, -1, False, text)
