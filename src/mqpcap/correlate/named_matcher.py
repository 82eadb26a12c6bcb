# cython: language_level=3
"""Pairs replies that name their requests, in any order: a reply takes the open request of its name.

In: the requests and replies of one connection, in TCP's order. Out: `MatchResults`. Called by: ``tcp_order``.

If several requests of a name are open, order gives likely pairs, provided that nothing is missing and no replies
crossed. They are not certain: requests of different names are answered in any order.

If the start is unknown or bytes of the client are missing, the request of a reply may be missing, too, and a captured
request have the same name.
It is not if the client uses each name once: three names, and no name twice, show that. Until then pairs are *early*.
With the third name they become certain. Otherwise they are likely if the client waited for the reply.
A name that is used again only once it was answered is *held*. Its pair is certain where no reply, or no request, is
missing since the request. A request may come *again* while it waits. The first reply answers the first of both; others
answer the later ones, which are due none.
"""

import cython

from mqpcap.correlate.messages import LIKELY, NO_ROW, ONE_REPLY, OPTIONAL_REPLY, UNKNOWN, MatchResults, Reply, Request
from mqpcap.correlate.replay import MISSING
from mqpcap.correlate.tcp_order import TcpOrder
from mqpcap.schema.requests import NO_ECHO_KEY, Evidence, RequestTables, State
from mqpcap.tcp.flow_records import NO_OFFSET

MAX_OPEN_REQUESTS = 1 << 14
"""Requests of a connection that have no reply yet; with more the older half is given up."""
MAX_NAMES = 1 << 12
"""Names of a client that show whether it uses each once; and names that were given up."""
MIN_NAMES = 3
"""Different names that show that a client does not use one name for all requests."""

_MAX_NAMES = cython.declare(cython.Py_ssize_t, MAX_NAMES)
_ECHO = cython.declare(cython.int, int(Evidence.ECHO))
_ID = cython.declare(cython.int, int(Evidence.ID))
_LIKELY_ORDER = cython.declare(cython.int, int(Evidence.ORDER) + LIKELY)
_LIKELY_ALTERNATION = cython.declare(cython.int, int(Evidence.ALTERNATION) + LIKELY)


@cython.cclass
class NamedMatcher(TcpOrder):
    """The open requests of one connection, by name. The first reply counts if a request (``has_id``) may get several.

    ``due_count``: requests since the last reply that must be answered.
    ``names``: the first names of the client, and whether each was used again.
    ``repeats``: a name was used again.
    ``given_up``: names of requests that were given up. Replies to them may still come.
    ``all_given_up``: more names were given up than are remembered.
    ``has_unnamed``: the names of some requests were not captured, or not decoded.
    ``in_doubt``: names with a likely pair by order, and open requests from then.
    ``answered_to``: offset of the last request with a pair. ``has_crossed``: an earlier request had its reply later.
    ``unnamed_to``: end of the client's last hole, or of its last request without a name.
    """

    tables: RequestTables
    results: MatchResults
    flow: cython.longlong
    started: cython.bint
    open: dict[int, list[Request]]
    open_count: cython.longlong
    asked_count: cython.longlong
    due_count: cython.longlong
    names: dict[int, bool]
    repeats: cython.bint
    early: list[tuple[Request, Reply]]
    given_up: set[int]
    all_given_up: cython.bint
    in_doubt: set[int]
    answered_to: cython.longlong
    unnamed_to: cython.longlong
    has_crossed: cython.bint
    has_unnamed: cython.bint
    client_has_hole: cython.bint
    server_hole_count: cython.longlong

    def __init__(self, tables: RequestTables, flow: int, started: bool, results: MatchResults) -> None:
        TcpOrder.__init__(self)
        self.tables, self.flow, self.started, self.results = tables, flow, started, results
        self.open, self.names, self.given_up, self.early, self.in_doubt = {}, {}, set(), [], set()
        self.open_count = self.asked_count = self.due_count = self.server_hole_count = self.unnamed_to = 0
        self.client_has_hole = self.has_unnamed = self.repeats = self.all_given_up = self.has_crossed = False
        self.answered_to = -1

    @cython.cfunc
    def _add_request(self, q: Request) -> cython.void:
        if q.row < 0:
            self.client_has_hole, self.unnamed_to = True, q.end
            self.has_unnamed = self.has_unnamed or q.was_captured
            return
        kind: cython.int = self.tables.kind[0][q.code]
        if kind not in (ONE_REPLY, OPTIONAL_REPLY):
            return
        if q.echo_key == NO_ECHO_KEY and kind == OPTIONAL_REPLY and not q.truncated:
            self.results.state(q.row, self.tables.silence[q.code])  # it names nothing that a reply could repeat
            return
        if q.echo_key in (0, NO_ECHO_KEY):
            self.has_unnamed, self.unnamed_to = True, q.end
            self.results.state(q.row, UNKNOWN)
            return
        q.after_replies = self.server_hole_count
        requests = self.open.get(q.echo_key)
        if requests and kind == ONE_REPLY and q.code in self.tables.again:
            q.kind, q.asked = OPTIONAL_REPLY, self.asked_count
            self._open(q)
            return
        while requests and self._is_again(requests[0]):  # its first reply came before, and the name has a new use
            self._end_again(requests[0])
        self.asked_count += 1
        self.due_count += kind == ONE_REPLY
        q.kind, q.asked = kind, self.asked_count
        self._note_name(q.echo_key)
        self._open(q)

    @cython.cfunc
    def _open(self, q: Request) -> cython.void:
        self.open.setdefault(q.echo_key, []).append(q)
        self.open_count += 1
        if self.replay is not None:
            self.replay.add("request", q.offset, MISSING, MISSING, len(self.open[q.echo_key]))
        if self.open_count > MAX_OPEN_REQUESTS:
            for name in list(self.open)[: len(self.open) // 2 or 1]:  # each alone would pass all that left before
                self._give_up(name, True)

    @cython.cfunc
    def _is_again(self, q: Request) -> cython.bint:
        """Whether a request is an earlier one again."""
        return q.kind == OPTIONAL_REPLY and q.code in self.tables.again

    @cython.cfunc
    def _end_again(self, q: Request) -> cython.void:
        """No reply comes for a request that came again."""
        self._drop(q)
        self.results.state(q.row, State.NOT_EXPECTED if q.after_replies == self.server_hole_count else UNKNOWN)

    @cython.cfunc
    def _note_name(self, name: cython.longlong) -> cython.void:
        """Whether the client uses each name once, as far as the first ones tell."""
        if len(self.names) >= _MAX_NAMES:
            return
        is_again: cython.bint = name in self.names
        self.repeats = self.repeats or is_again
        self.names[name] = is_again
        if self.early and (self.repeats or self._are_names_unique()):
            self._pair_early()

    @cython.cfunc
    def _are_names_unique(self) -> cython.bint:
        return not self.repeats and len(self.names) >= MIN_NAMES

    @cython.cfunc
    def _pair_early(self) -> cython.void:
        q: Request
        r: Reply
        for q, r in self.early:
            if self._are_names_unique():
                self._pair(q, r, _ID)
            else:
                self._pair_if_waited(q, r)
        self.early = []

    @cython.cfunc
    def _pair_if_waited(self, q: Request, r: Reply) -> cython.void:
        """A likely pair, if the client used the name once, and waited for the reply before it asked again."""
        if q.asked == r.asked and not self.names.get(q.echo_key, True):
            self._pair(q, r, _LIKELY_ALTERNATION)
            return
        if self.replay is not None:
            self.replay.add("unpaired", r.offset, q.offset, q.offset, 1)
        self.results.state(q.row, UNKNOWN)
        self._leave_unpaired(r, True)

    @cython.cfunc
    def _pair(self, q: Request, r: Reply, evidence: cython.int) -> cython.void:
        self.results.pair(q.row, r.row, evidence)
        if self.replay is not None:
            self.replay.add("pair", r.offset, q.offset, q.offset, 1, evidence % LIKELY, evidence >= LIKELY)
            self.replay.settled(q.offset + 1)

    @cython.cfunc
    def _give_up(self, name: cython.longlong, is_full: cython.bint) -> cython.void:
        """Give up the open requests of a name, and its later requests."""
        q: Request
        if not self.all_given_up:
            self.given_up.add(name)
            self.all_given_up = len(self.given_up) >= MAX_NAMES
        self.in_doubt.discard(name)
        for q in self.open.pop(name):
            self.open_count -= 1
            is_one_way = q.kind == OPTIONAL_REPLY and self.tables.silence[q.code] == State.NOT_EXPECTED
            self.results.state(q.row, State.NOT_EXPECTED if is_full and is_one_way else UNKNOWN)

    @cython.cfunc
    def _add_reply(self, r: Reply) -> cython.void:
        q: Request
        request: Request
        if r.row < 0 or r.echo_key == NO_ECHO_KEY:
            self.server_hole_count += 1
        if r.row < 0:
            return
        r.asked = self.asked_count if self.due_count <= 1 else -1
        self.due_count = 0
        requests = self._fitting(r)
        is_whole: cython.bint = self.started and not self.client_has_hole
        if not requests:
            if self.replay is not None:
                self.replay.add("unpaired", r.offset)
            self._leave_unpaired(r, is_whole)
            return
        q = requests[0]
        if self.tables.held and q.after_replies != self.server_hole_count:
            # The name was used again, so a reply in a hole answered the earlier ones.
            for q in requests[:-1]:
                self._drop(q)
                self.results.state(q.row, UNKNOWN)
            requests = requests[-1:]
            q = requests[0]
        while len(requests) > 1 and self._is_again(requests[-1]):
            requests.pop()
        self.has_crossed = self.has_crossed or q.offset < self.answered_to
        is_in_doubt: cython.bint = len(requests) > 1 or r.echo_key in self.in_doubt
        in_order: cython.bint = is_whole and not (self.server_hole_count or self.tables.one_reply or self.has_crossed)
        for request in requests:
            in_order = in_order and request.kind == ONE_REPLY
        is_held: cython.bint = len(requests) == 1 and self._is_held(q)
        was_given_up: cython.bint = (self.all_given_up or r.echo_key in self.given_up) and not is_held
        if was_given_up or (is_in_doubt and not in_order) or (q.has_id and q.after_replies != self.server_hole_count):
            if self.replay is not None:
                self.replay.add("unpaired", r.offset, q.offset, q.offset, len(requests))
            self._give_up(r.echo_key, False)
            self._leave_unpaired(r, True)
            return
        self._drop(q)
        self.answered_to = max(self.answered_to, q.offset)
        if is_in_doubt and r.echo_key in self.open:
            self.in_doubt.add(r.echo_key)
        if is_whole:
            self._pair(q, r, _LIKELY_ORDER if is_in_doubt else _ECHO)
        elif is_held or self._are_names_unique():
            self._pair(q, r, _ID)
        elif self.repeats:
            self._pair_if_waited(q, r)
        else:
            self.early.append((q, r))

    @cython.cfunc
    def _fitting(self, r: Reply) -> list[Request]:
        """The open requests of a reply's name that it may answer, in order."""
        q: Request
        bit = self.tables.reply_bits[r.code]
        fitting: list[Request] = []
        for q in self.open.get(r.echo_key, ()):
            if (r.ack != NO_OFFSET and q.reach > r.ack) or q.last_ack > r.offset:
                break
            if self.tables.accepted_replies[0][q.code] & bit:
                fitting.append(q)
        return fitting

    @cython.cfunc
    def _is_held(self, q: Request) -> cython.bint:
        """Whether the name of a request had no other use up to now."""
        has_all_replies: cython.bint = q.after_replies == self.server_hole_count and not q.in_hole
        return self.tables.held and (has_all_replies or self.unnamed_to <= q.offset)

    @cython.cfunc
    def _drop(self, q: Request) -> cython.void:
        """A request is no longer open."""
        requests = self.open[q.echo_key]
        requests.remove(q)
        self.open_count -= 1
        if not requests:
            del self.open[q.echo_key]
            self.in_doubt.discard(q.echo_key)

    @cython.cfunc
    def _leave_unpaired(self, r: Reply, may_be_captured: cython.bint) -> cython.void:
        """A reply without a request: an orphan if no captured request can have had its name."""
        may_be_captured = may_be_captured or self.has_unnamed or r.echo_key == NO_ECHO_KEY
        may_be_captured = may_be_captured or r.acks_less or r.echo_key in self.names or len(self.names) >= MAX_NAMES
        state = UNKNOWN if may_be_captured else State.ORPHAN
        self.results.state(r.row, NO_ROW if self.tables.one_reply else state)

    @cython.cfunc
    def _open_count(self) -> cython.Py_ssize_t:
        return self.open_count

    @cython.cfunc
    def _key_count(self) -> cython.Py_ssize_t:
        return len(self.names) + len(self.given_up)

    @cython.cfunc
    def _forget(self) -> cython.void:
        self._pair_early()
        self.all_given_up = self.all_given_up or len(self.open) > 0
        for name in list(self.open):
            self._give_up(name, True)
        self.names.clear()
        self.given_up.clear()
        self.repeats = self.has_unnamed = True  # the names that were used are not known any more

    @cython.cfunc
    def _finish(
        self, ended: cython.bint, orderly: cython.bint, whole_requests: cython.bint, whole_replies: cython.bint
    ) -> cython.bint:
        q: Request
        is_due: cython.bint = ended and whole_replies and self.server_hole_count == 0
        self._pair_early()
        for requests in self.open.values():
            for q in requests:
                if self._is_again(q):
                    self.results.state(q.row, State.NOT_EXPECTED if is_due else UNKNOWN)
                elif q.kind == ONE_REPLY:
                    self.results.state(q.row, State.UNANSWERED if is_due and not q.truncated else UNKNOWN)
                elif q.after_replies != self.server_hole_count or self.tables.silence[q.code] != State.NOT_EXPECTED:
                    self.results.state(q.row, UNKNOWN)
        self.open = {}
        return False
