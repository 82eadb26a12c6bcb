# cython: language_level=3
"""Which reply answers which request, decided on one connection while its messages complete.

A :class:`Dialogue` holds the open requests of one connection (of one lane of it, where a protocol has several that keep
their own order). It is fed with requests and replies in the order in which they were captured and says of each request
what became of it as soon as that is certain. It promises: no wrong pair, and no `unanswered` that was answered.

How a pair becomes certain. A server answers the requests of a connection one after the other, so pairs never cross.
A request is FIXED (it gets exactly one reply), OPTIONAL (one or none) or SILENT (none); `RequestKind` has the others.
In STEP a reply that fits only one of the requests it may belong to, which are the OPTIONAL ones up to the first FIXED
one and that one, is its answer. Such a pair is a barrier: all requests in front of it were handled, and those without
a reply got none. A reply that fits several waits for the next barrier; then it is paired if the earliest and the
latest possible place agree.

Missing bytes end the counting. A reply that repeats values of its request (a tie) starts it again where it fits exactly
one FIXED request. Without ties the replies behind a gap are placed where they fit all in a row, if that is one place.

Whether replies can be told apart where bytes are missing depends on habits of the client: it may number its requests
(:class:`_Counter`), and give the server messages that come back to it (:class:`_Given`).

A connection costs little while nothing is unclear about it: what is rarely needed is made when it is.
"""

from array import array
from collections.abc import Sequence
from typing import TypeVar

import cython
import numpy as np

from mqpcap.arrays import Int64Array
from mqpcap.correlate.batch import Messages
from mqpcap.schema.requests import NO_TIE, RequestKind, RequestTables, State

T = TypeVar("T")

NO_ROW = len(State)
"""Behind the states: a reply that has no row of its own."""
MAX_CANDIDATES = 64
"""Requests considered for one ambiguous reply; beyond it the reply stays unpaired."""
MAX_AMBIGUOUS = 64
"""Replies that wait for the next barrier; beyond it they stay unpaired."""
MAX_OPEN = 1 << 14
"""Open requests of a connection that a reply is looked for among; older ones get no reply any more."""
MAX_PLACES = 4096
"""Places that are tried for the replies behind a gap; with more they stay unpaired."""
MAX_GIVEN = 1 << 10
"""Messages that a client gave the server, remembered to tell which request brought one of them back."""
MAX_TIES = 1 << 12
"""Ties of requests that a connection with missing requests remembers, to tell which replies nobody asked for."""
MAX_NAMES = 1 << 16
"""Names of requests that a connection remembers, to tell which are used again."""
STEADY = 3
RISING = 8
"""Equal steps, or steps upwards, that show that a client numbers its requests."""
HANDLING_NS = 50_000_000
"""A request is given up where a later one came so much after it: TCP holds an answer back for 40 ms."""
FEW = 64
"""So many requests in a row are looked at one by one; more are taken in together."""

# Kinds, states and modes for C. Modes are how replies find their request: by counting; in a row behind a gap; by what
# they repeat; not at all any more.
_FIXED = cython.declare(cython.int, int(RequestKind.FIXED))
_OPTIONAL = cython.declare(cython.int, int(RequestKind.OPTIONAL))
_IGNORED = cython.declare(cython.int, int(RequestKind.IGNORED))
_BREAKS = cython.declare(cython.int, int(RequestKind.BREAKS))
_CUT = cython.declare(cython.int, int(RequestKind.CUT))
_NOT_EXPECTED = cython.declare(cython.int, int(State.NOT_EXPECTED))
_UNANSWERED = cython.declare(cython.int, int(State.UNANSWERED))
_LOST = cython.declare(cython.int, int(State.LOST))
_ORPHAN = cython.declare(cython.int, int(State.ORPHAN))
_UNKNOWN = cython.declare(cython.int, int(State.UNKNOWN))
_NO_ROW = cython.declare(cython.int, NO_ROW)
_NO_TIE = cython.declare(cython.longlong, NO_TIE)
_STEP = cython.declare(cython.int, 0)
_RUN = cython.declare(cython.int, 1)
_TIED = cython.declare(cython.int, 2)
_OVER = cython.declare(cython.int, 3)
_FEW = cython.declare(cython.Py_ssize_t, FEW)


@cython.cclass
class Request:
    """A request: its row, what it is, and when it was captured. ``item``: see `Lane.items`.

    A spoiled one may have got a reply that was left unpaired, so it gets no other.
    """

    row: cython.longlong
    code: cython.int
    tie: cython.longlong
    item: cython.longlong
    ts_ns: cython.longlong
    end_ns: cython.longlong
    offset: cython.longlong
    cut: cython.bint
    spoiled: cython.bint
    numbers: Sequence[int]

    def __init__(
        self, row: int, code: int, tie: int, item: int, ts_ns: int, end_ns: int, offset: int, numbers: Sequence[int]
    ) -> None:
        self.row, self.code, self.tie, self.item = row, code, tie, item
        self.ts_ns, self.end_ns, self.offset, self.numbers = ts_ns, end_ns, offset, numbers
        self.cut = self.spoiled = False


@cython.cclass
class Reply:
    """A reply. ``since``: where the client gave the message that it brings, -1 if it did not; its request is behind.

    One whose row is -1 stands among replies that wait for missing bytes between them.
    """

    row: cython.longlong
    code: cython.int
    tie: cython.longlong
    item: cython.longlong
    ts_ns: cython.longlong
    since: cython.longlong
    says: object  # of the tables, as is `untied`: each is looked at for every request that may be the one
    untied: cython.bint

    def __init__(self, row: int, code: int, tie: int, item: int, ts_ns: int) -> None:
        self.row, self.code, self.tie, self.item, self.ts_ns, self.since = row, code, tie, item, ts_ns, -1


@cython.cclass
class Findings:
    """What dialogues found since it was last emptied: pairs of rows, states of rows, and how far servers came.

    pairs     a request, its reply, the next request, and so on
    states    a row, its state, the next row, and so on
    kinds     the same of rows whose kind is another than it was when they were taken in
    handled   by flow: the stream offset up to which the server handled the client's bytes
    proved    by flow that began before the capture and showed its state: the row from which on it surely was in it
    """

    # Arrays take a quarter of the memory of lists: a flood of small requests gives a state to each.
    pairs = cython.declare(object, visibility="public")
    states = cython.declare(object, visibility="public")
    kinds = cython.declare(object, visibility="public")
    handled = cython.declare(dict, visibility="public")
    proved = cython.declare(dict, visibility="public")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty it."""
        self.pairs, self.states, self.kinds = array("q"), array("q"), array("q")
        self.handled, self.proved = {}, {}

    @cython.cfunc
    def pair(self, q: Request, r: Reply) -> None:
        """Note a pair."""
        self.pairs.append(q.row)
        self.pairs.append(r.row)

    @cython.cfunc
    def state(self, row: cython.longlong, state: cython.int) -> None:
        """Note the state of a row; what is noted first counts."""
        self.states.append(row)
        self.states.append(state)


@cython.cclass
class _Counter:
    """Whether the numbers of a client's requests go up."""

    last: cython.longlong
    step: cython.longlong
    steps: cython.longlong
    even: cython.bint
    falls: cython.bint

    def __init__(self) -> None:
        self.last, self.step, self.steps = -1, 0, 0
        self.even, self.falls = True, False

    @cython.cfunc
    def add(self, number: cython.longlong) -> None:
        """The next number; -1 is none."""
        if number < 0:
            return
        if self.last >= 0:
            step: cython.longlong = number - self.last
            self.falls = self.falls or step <= 0
            self.even = self.even and (self.steps == 0 or step == self.step)
            self.step = step
            self.steps += 1
        self.last = number

    @cython.cfunc
    def rises(self) -> cython.bint:
        """Connections may share a counter, so equal steps are sooner a proof than steps upwards."""
        return not self.falls and (self.steps >= RISING or (self.even and self.steps >= STEADY))


@cython.cclass
class _Given:
    """Messages that a client gave the server, to tell which request brought one of them back.

    The server handles a connection's requests one after the other (BlipMQ: net/src/connection.rs), so a request that
    brings back what the client gave came behind it, and of several that read one queue the first gets what was in it.
    """

    at: dict
    repeats: cython.bint

    def __init__(self) -> None:
        self.at, self.repeats = {}, False

    @cython.cfunc
    def add(self, q: Request) -> None:
        """A request with a message."""
        if len(self.at) < MAX_GIVEN:
            self.repeats = self.repeats or q.item in self.at
            self.at[q.item] = q.offset

    @cython.cfunc
    def brought(self, item: cython.longlong) -> cython.longlong:
        """Where a message was given that now comes back for the first time; a second time says nothing."""
        since: cython.longlong = self.at.get(item, -1)
        if since >= 0:
            self.at[item] = -1
        return since

    @cython.cfunc
    def are_own(self) -> cython.bint:
        """Whether nobody else gives such messages: the client never gave one twice."""
        return not self.repeats and len(self.at) >= STEADY


@cython.cclass
class _OpenRequests:
    """The requests of a connection that may still get a reply, what its client did so far, and its state.

    ``found`` is told what becomes of those that leave.
    """

    tables: object
    found: Findings
    flow: cython.longlong
    started: cython.bint
    has_ties: cython.bint
    is_timed: cython.bint
    state: cython.int
    kinds: bytes  # by code, in that state
    wants: object
    queue: list
    head: cython.Py_ssize_t
    later: Sequence[Int64Array]  # requests that were taken in together; they are looked at when a reply comes
    later_count: cython.Py_ssize_t
    counters: list
    ties: set  # of requests
    given: _Given
    replies_missing: cython.bint
    gap_until: cython.longlong  # stream offset of the last request that may have been answered in missing bytes
    doubtful_until: cython.longlong  # stream offset of the last request that may have been answered in an earlier state

    def __init__(self, tables: RequestTables, flow: cython.longlong, started: cython.bint, found: Findings) -> None:
        self.tables, self.flow, self.started, self.found = tables, flow, started, found
        self.has_ties, self.is_timed = tables.ties, tables.timed
        self._enter(tables.start if started else tables.late)
        self.queue, self.head, self.later, self.later_count = [], 0, (), 0
        self.counters, self.ties, self.given = [], set(), None
        self.replies_missing = False
        self.gap_until = self.doubtful_until = -1

    @cython.cfunc
    def _enter(self, state: cython.int) -> None:
        self.state, self.kinds, self.wants = state, self.tables.kind[state], self.tables.wants[state]

    @cython.cfunc
    def _at(self, place: cython.Py_ssize_t) -> Request:
        return self.queue[place]

    @cython.cfunc
    def is_settled(self) -> cython.bint:
        """Whether requests are of the kinds that they are in the state of a late start."""
        return self.state == self.tables.late

    @cython.cfunc
    def _enqueue(self, q: Request) -> None:
        self.queue.append(q)
        if q.item > 0:
            if self.given is None:
                self.given = _Given()
            self.given.add(q)

    def requests(self, some: Int64Array) -> None:
        """Take requests in, a column each: its first seven values and its numbers.

        Those of which no reply comes are never looked at one by one; the oldest of them go where they are too many.
        """
        cells: cython.const[cython.longlong][:, :] = some
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        counter: _Counter
        for k in range(7, cells.shape[0]):
            if k - 7 >= len(self.counters):
                self.counters.append(_Counter())
            counter = self.counters[k - 7]
            for i in range(cells.shape[1]):
                counter.add(cells[k, i])
        for i in range(cells.shape[1]):
            if len(self.ties) >= MAX_TIES:
                break
            self.ties.add(cells[2, i])
        self.later = _with(self.later, some)
        self.later_count += cells.shape[1]
        if self.later_count > 2 * MAX_OPEN and not self._has_fixed(self.later[0]):
            self.later_count -= self.later.pop(0).shape[1]

    def _has_fixed(self, some: object) -> cython.bint:
        """Whether one of them must get a reply."""
        return bool((np.frombuffer(self.kinds, np.int8)[some[1]] == _FIXED).any())

    @cython.cfunc
    def _count(self, numbers: Sequence[int]) -> None:
        """The numbers of one request."""
        counter: _Counter
        k: cython.Py_ssize_t
        while len(self.counters) < len(numbers):
            self.counters.append(_Counter())
        for k in range(len(numbers)):
            counter = self.counters[k]
            counter.add(numbers[k])

    @cython.cfunc
    def _counts_up(self) -> cython.bint:
        """Whether the client numbers its requests, so that a number is never used twice."""
        counter: _Counter
        for counter in self.counters:
            if counter.rises():
                return True
        return False

    @cython.cfunc
    def _names_one(self, r: Reply) -> cython.bint:
        """Whether no two requests can have what a reply repeats."""
        tables = self.tables
        return bool(r.says & tables.numbered) and not r.untied and self._counts_up()

    @cython.cfunc
    def _is_own(self, r: Reply) -> cython.bint:
        """Whether a reply brings what only this client gave: no request in front of that is its own."""
        return r.since >= 0 and self.given is not None and self.given.are_own()

    def _forget_given(self) -> None:
        if self.given is not None:
            self.given.at.clear()

    @cython.cfunc
    def _fits(self, q: Request, r: Reply) -> cython.bint:
        if (q.end_ns if self.is_timed else q.ts_ns) > r.ts_ns:
            return False
        if (q.tie != r.tie or r.tie == _NO_TIE) and not r.untied:
            return False
        return bool(self.wants[q.code] & r.says)

    def _spans(self, replies: list, end: cython.Py_ssize_t) -> list:
        """Replies with the earliest and the latest place of each in front of ``end``, as they keep their order."""
        earliest, latest = [], []
        at: cython.Py_ssize_t = self.head
        for r in replies:
            while at < end and not self._fits(self.queue[at], r):
                at += 1
            earliest.append(at)
            at += 1
        at = end - 1
        for r in reversed(replies):
            while at >= self.head and not self._fits(self.queue[at], r):
                at -= 1
            latest.append(at)
            at -= 1
        return list(zip(replies, earliest, reversed(latest), strict=True))

    @cython.cfunc
    def _give(self, q: Request, r: Reply) -> None:
        """Note a pair: the only way one leaves a dialogue."""
        if q.spoiled:  # its row was given out
            self.found.state(r.row, _UNKNOWN)
        else:
            self.found.pair(q, r)

    @cython.cfunc
    def _settle(self, to: cython.Py_ssize_t, state: cython.int, certain: cython.bint) -> None:
        """Leave requests behind: FIXED ones get the state; ``certain``: OPTIONAL ones got no reply."""
        q: Request
        for q in self.queue[self.head : to]:
            if self.kinds[q.code] == _FIXED:
                self.found.state(q.row, state if q.offset > self.doubtful_until else _UNKNOWN)
            elif not certain and not self._is_not_expected(q):
                self.found.state(q.row, _UNKNOWN)
        self.head = to

    def _is_not_expected(self, q: Request) -> cython.bint:
        """Whether a request that may get a reply, but need not, got none that could have been seen."""
        return self.tables.silence[q.code] == _NOT_EXPECTED and q.offset > self.gap_until

    @cython.cfunc
    def _spoil(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, r: Reply) -> None:
        """Requests that may have got a reply that stays unpaired: they get no other."""
        is_open: cython.bint = self.replies_missing and self.state != self.tables.late
        q: Request
        i: cython.Py_ssize_t
        for i in range(first, end):  # a slice of thousands would be copied for each reply
            q = self.queue[i]
            if not q.spoiled and (self._fits(q, r) or (is_open and q.tie == r.tie)):
                self.found.state(q.row, _UNKNOWN)
                q.spoiled = True

    def _is_state_open(self, r: Reply) -> cython.bint:
        """Whether a missing reply may have changed the state, so that another request of that tie gets such a reply."""
        if len(self.tables.kind) == 1 or (self.started and self.state == self.tables.late):
            return False
        count: cython.Py_ssize_t = 0
        q: Request
        i: cython.Py_ssize_t
        for i in range(self.head, len(self.queue)):
            q = self.queue[i]
            count += q.tie == r.tie and q.ts_ns <= r.ts_ns
        return count > 1


@cython.cclass
class Dialogue(_OpenRequests):
    """The requests and replies of a connection; see the module."""

    unsure: cython.bint  # whether the connection is only taken to be in its state
    denied: cython.bint  # whether it was in another one, or may have been
    mode: cython.int
    waiting: Sequence[tuple[Reply, int, int]]  # with its first and last place in the queue
    frozen_at: cython.longlong  # stream offset of the first missing request; by order alone, none behind it is paired
    requests_missing: cython.bint
    unordered: cython.bint
    alone: cython.bint
    answered: cython.bint
    stopped: cython.bint
    slowest_ns: cython.longlong
    places: Sequence[int]
    run: Sequence[Reply]
    early: Sequence[Reply]
    lonely: Sequence[int]  # replies that nobody asked for, unless a gap turns out to lie in front of them
    behind_stop: Sequence[int]

    def __init__(self, tables: RequestTables, flow: cython.longlong, started: cython.bint, found: Findings) -> None:
        _OpenRequests.__init__(self, tables, flow, started, found)
        self.unsure = not started and bool(tables.proofs)
        self.frozen_at, self.slowest_ns = -1, HANDLING_NS
        self.mode = _STEP if started else (_TIED if tables.ties else _OVER)
        self.requests_missing = not started
        self.denied = self.unordered = self.alone = self.answered = self.stopped = False
        self.waiting = self.places = self.run = self.early = self.lonely = self.behind_stop = ()

    # -- requests ------------------------------------------------------------------------------------------

    @cython.ccall
    def request(self, q: Request) -> cython.int:
        """Take a request in; returns its kind."""
        if self.later_count:
            self._catch_up()
        if self.has_ties:
            self._count(q.numbers)
            if self.early and (self._counts_up() or not self.requests_missing or self._is_own(self.early[0])):
                self._look_again()
        self._no_more_requests()
        kind: cython.int = self.kinds[q.code]
        if kind == _CUT:
            self.gap(True, q.offset)
            return kind
        if len(self.ties) < MAX_TIES:
            self.ties.add(q.tie)
        if kind not in (_FIXED, _OPTIONAL):
            self.stopped = self.stopped or kind == _BREAKS
        elif self.stopped:
            self.behind_stop = _with(self.behind_stop, q.row)
        elif self.mode == _OVER or (self.frozen_at >= 0 and not self.has_ties):
            self.found.state(q.row, _UNKNOWN)
        else:
            self._enqueue(q)
            if len(self.queue) - self.head > MAX_OPEN:
                self._drop_oldest()
        return kind

    @cython.cfunc
    def _no_more_requests(self) -> None:
        """No bytes of the client are missing up to here, so no other request can have got the last replies."""
        if self.mode == _RUN and len(self.places) == 1:
            self._commit_run(self.places[0])
        elif self.mode == _STEP and self.waiting and self.waiting[-1][1] == self.waiting[-1][2]:
            r, at, _ = self.waiting.pop()
            self._pair(at, r)

    def _catch_up(self) -> None:
        """Look at requests that were taken in together, as a reply is there."""
        later, self.later, self.later_count = self.later, (), 0
        for some in later:
            for row, code, tie, item, ts_ns, end_ns, offset in some[:7].T.tolist():
                self._enqueue(Request(row, code, tie, item, ts_ns, end_ns, offset, ()))
        if len(self.queue) - self.head > MAX_OPEN:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Give up the older half of the open requests, and the replies that wait: one may have been for them."""
        to: cython.Py_ssize_t = self.head + MAX_OPEN // 2
        q: Request
        for q in self.queue[self.head : to]:
            if self.kinds[q.code] == _FIXED or self.mode == _RUN:
                self._lose_step()
                break
        self._drop_waiting()
        if to > self.head:
            self._settle(to, _UNKNOWN, False)
        if not self.places:
            self._trim()

    @cython.cfunc
    def _trim(self) -> None:
        """Let requests that were left behind leave memory, where no place in the queue is remembered."""
        if self.head == len(self.queue) or (self.head > 1024 and 2 * self.head > len(self.queue)):
            del self.queue[: self.head]
            self.head = 0

    @cython.cfunc
    def takes_many(self) -> cython.bint:
        """Whether requests may be taken in together: nothing that they say changes how others are read."""
        if self.mode != _STEP or self.stopped or self.early or self.waiting:
            return False
        return (self.frozen_at < 0 or self.has_ties) and self.state == self.tables.late

    # -- replies -------------------------------------------------------------------------------------------

    @cython.ccall
    def reply(self, r: Reply) -> None:
        """Take a reply in."""
        if self.later_count:
            self._catch_up()
        tables, code = self.tables, r.code
        r.says, r.untied = tables.says[code], tables.untied[code]
        if self.unsure:
            self.denied = self.denied or code in tables.denials
            if code in tables.proofs:
                self.unsure = False
                self.found.proved[self.flow] = r.row if self.denied else 0
        if code in tables.gaps:
            self.gap(False, 0)
            self.found.state(r.row, _NO_ROW)
            return
        if code in tables.moves:
            state: cython.int = tables.moves[code].get(self.state, self.state)
            if state != self.state:
                self.doubtful_until = self._at(len(self.queue) - 1).offset if self.head < len(self.queue) else -1
                self._move(state, False)
        if not r.says:
            self.found.state(r.row, _NO_ROW)
            return
        if r.item and self.given is not None:
            r.since = self.given.brought(r.item)
        if self.mode == _STEP:
            self._in_step(r)
        elif self.mode == _TIED:
            self._tied(r, False)
        elif self.mode == _RUN:
            self._in_run(r)
        else:
            self._alone(r)

    @cython.cfunc
    def _in_step(self, r: Reply) -> None:
        queue, head = self.queue, self.head
        q: Request
        i: cython.Py_ssize_t
        if not self.waiting and head < len(queue):
            q = queue[head]
            if self.kinds[q.code] == _FIXED and self._fits(q, r):
                self._pair(head, r)
                return
        last: cython.Py_ssize_t = self.waiting[-1][2] if self.waiting else head - 1
        first: cython.Py_ssize_t = self.waiting[-1][1] + 1 if self.waiting else head
        found: list = []
        is_open: cython.bint = True  # whether a request that is not here yet may be the one
        for i in range(first, len(queue)):
            q = queue[i]
            if self._fits(q, r):
                found.append(i)
                if len(found) > MAX_CANDIDATES:
                    break
            if self.kinds[q.code] == _FIXED and i > last:  # those up to there may have got the replies that wait
                is_open = False
                break
        if len(found) > 1 and self.is_timed:
            found = self._not_too_old(found, r)
        is_open = is_open and not self._names_one(r)
        if found and not self.waiting and self._is_first_in_queue(found, r):
            is_open, found = False, found[:1]
        if len(found) == 1 and not is_open:
            self._pair(found[0], r)
        elif (
            found
            and len(found) <= MAX_CANDIDATES
            and len(self.waiting) < (MAX_AMBIGUOUS if len(found) > 1 else MAX_OPEN)
        ):
            self.waiting = _with(self.waiting, (r, found[0], found[-1]))
        elif not found and self.tables.first_only[r.code]:
            self._first_only(r)
        else:
            self._lose_step()
            if self.mode == _TIED:
                self._tied(r, False)
            else:
                self._alone(r)

    @cython.cfunc
    def _is_first_in_queue(self, found: list, r: Reply) -> cython.bint:
        """Whether all candidates read one queue, which had the message before the first of them was handled."""
        q: Request = self.queue[found[0]]
        return 0 <= r.since < q.offset and all([self._at(i).item == q.item for i in found])

    @cython.cfunc
    def _not_too_old(self, found: list, r: Reply) -> list:
        """The candidates that can still be waiting: one is settled when the server had the time to handle it."""
        newest: cython.longlong = self._at(found[-1]).ts_ns
        if r.ts_ns - newest > self.slowest_ns:
            return found
        return [i for i in found if newest - self._at(i).end_ns < self.slowest_ns]

    def _first_only(self, r: Reply) -> None:
        """Whatever opens a connection, such a reply may be to it; later it answers nothing."""
        if not self.answered and self.head < len(self.queue) and self._at(self.head).ts_ns <= r.ts_ns:
            self._pair(self.head, r)
        else:
            self.found.state(r.row, _NO_ROW)
            self.alone = self.alone or not self.answered
            self.answered = True

    @cython.cfunc
    def _pair(self, at: cython.Py_ssize_t, r: Reply) -> None:
        """Note a pair that is a barrier: all in front of it is settled."""
        q: Request = self.queue[at]
        if self.waiting:
            self._resolve_waiting(at)
        self._give(q, r)
        self.answered = True
        if self.kinds[q.code] == _FIXED:
            self._forget_given()  # a queue that was made since has nothing of what was given before
        if self.is_timed:
            self.slowest_ns = max(self.slowest_ns, min(r.ts_ns - q.end_ns, 4 * HANDLING_NS))
        if at > self.head:
            self._settle(at, _UNKNOWN, True)
        self.head = at + 1
        if not self.unsure:
            self.found.handled[self.flow] = q.offset
        self._trim()
        if self.tables.next_state:
            state: cython.int = self.tables.next_state.get((self.state, q.code, r.code), self.state)
            if state != self.state:
                self._move(state, True)

    def _move(self, state: cython.int, is_sure: cython.bint) -> None:
        """Requests that were sent before the reply that changed the state are what they are in the new one.

        If it is not sure, the change may have been earlier, in missing bytes: some got their replies in the old one.
        """
        before, queue, self.queue = self.kinds, self.queue[self.head :], []
        q: Request
        self._enter(state)
        self.head = 0
        for q in queue:
            kind: cython.int = self.kinds[q.code]
            if kind != before[q.code]:
                self.found.kinds.extend((q.row, kind))
            if not is_sure and kind != _FIXED and kind != before[q.code]:
                self.found.state(q.row, _UNKNOWN)
            elif kind in (_FIXED, _OPTIONAL):
                self.queue.append(q)

    def _resolve_waiting(self, end: cython.Py_ssize_t) -> None:
        """Pair the replies that wait with requests in front of ``end`` where only one place is possible."""
        replies, self.waiting = [r for r, _, _ in self.waiting], ()
        taken: set = set()
        q: Request
        r: Reply
        for r, low, high in self._spans(replies, end):
            if low == high < end:
                self._give(self.queue[low], r)
                taken.add(low)
                continue
            self.found.state(r.row, _UNKNOWN)
            for i in range(low, min(high + 1, end)):
                q = self.queue[i]
                if i not in taken and self._fits(q, r):
                    self.found.state(q.row, _UNKNOWN)
                    taken.add(i)

    # -- missing bytes -------------------------------------------------------------------------------------

    @cython.ccall
    def gap(self, from_client: cython.bint, offset: cython.longlong) -> None:
        """Bytes of a side are missing, or hold no message."""
        if self.later_count:
            self._catch_up()
        self._let_early_go()
        self._forget_given()
        if from_client:
            self.requests_missing = True
            for row in self.lonely:
                self.found.state(row, _ORPHAN)
            self.lonely = ()
            if self.frozen_at < 0:
                self.frozen_at = offset
            if self.mode == _RUN:
                self._end_run()
                self._lose_step()
        else:
            self.replies_missing = self.denied = True
            if self.queue:
                self.gap_until = max(self.gap_until, self._at(len(self.queue) - 1).offset)
        if self.has_ties:
            self._drop_waiting()
            self.mode = _TIED
        elif not from_client:
            doubtful = bool(self.waiting)
            self._drop_waiting()
            if self.mode == _RUN:
                self._end_run()
            if self.frozen_at >= 0 or self.mode == _OVER or doubtful:
                self._lose_step()
            else:
                self.mode = _RUN
                self.places = self.run = ()

    def _drop_waiting(self) -> None:
        """Replies that wait stay unpaired, and whatever may have got one stays unknown."""
        r: Reply
        for r, first, last in self.waiting:
            self.found.state(r.row, _UNKNOWN)
            self._spoil(first, last + 1, r)
        self.waiting = ()

    def _lose_step(self) -> None:
        self._drop_waiting()
        self.unordered = True
        if self.has_ties:
            self.mode = _TIED
            return
        self._settle(len(self.queue), _UNKNOWN, False)
        self.mode = _OVER

    def _tied(self, r: Reply, is_last: cython.bint) -> None:
        """A reply out of step: it belongs to the only request that it repeats, if that cannot be another's.

        ``is_last``: no request can be missing in front of it that is not known to be.
        """
        is_own, is_one, fits = self._is_own(r), self._names_one(r), self._fitting(r)
        unsure = ((self.requests_missing and not is_own) or not is_last) and not is_one
        if ((len(fits) == 1 and unsure) or self.early) and len(self.early) < MAX_AMBIGUOUS:
            self.early = _with(self.early, r)
            return
        doubtful = len(fits) != 1 or unsure or self._is_state_open(r)
        at: cython.Py_ssize_t = fits[0] if fits else -1
        if doubtful or self._at(at).spoiled or not (is_own or is_one or self.kinds[self._at(at).code] == _FIXED):
            self._alone(r)
            return
        if self.unordered:
            self._give(self.queue.pop(at), r)
            return
        lost = _LOST if self.replies_missing and self.frozen_at < 0 and self.started else _UNKNOWN
        self._settle(at, lost, False)
        self._pair(at, r)
        self.mode = _STEP

    @cython.cfunc
    def _fitting(self, r: Reply) -> list:
        """The places of the requests that a reply out of step may belong to, two of them at most."""
        fits: list = []
        q: Request
        i: cython.Py_ssize_t
        for i in range(self.head, len(self.queue)):
            q = self.queue[i]
            if self._fits(q, r) and (not r.untied or 0 <= r.since < q.offset):
                fits.append(i)
                if len(fits) == 2:
                    break
        return fits

    def _let_early_go(self) -> None:
        """Of the replies that wait so, only those that name one request are of any use behind a gap."""
        if not self.early or self._last_early().row < 0:  # nothing came since the last gap
            return
        early, self.early = self.early, ()
        r: Reply
        for r in early:
            if r.row < 0 or (not r.untied and len(self._fitting(r)) == 1):
                self.early = _with(self.early, r)
            else:
                self._alone(r)
        if self.early and self._last_early().row >= 0:
            self.early.append(Reply(-1, 0, NO_TIE, 0, 0))

    @cython.cfunc
    def _last_early(self) -> Reply:
        return self.early[-1]

    def _look_again(self) -> None:
        """Replies that came before it was seen that the client numbers its requests."""
        early, self.early = self.early, ()
        r: Reply
        for r in early:
            if r.row < 0:
                self._drop_waiting()
                self.mode = _TIED
            elif self.mode == _TIED:
                self._tied(r, True)
            else:
                self._in_step(r)

    def _in_run(self, r: Reply) -> None:
        """A reply behind a gap, where only order tells: the places that all replies of the run fit."""
        queue: list = self.queue
        k: cython.Py_ssize_t = len(self.run)
        if k == 0:
            low: cython.Py_ssize_t = self.head
            high: cython.Py_ssize_t = len(queue)
            while high > low and self._at(high - 1).ts_ns > r.ts_ns:
                high -= 1
            if high - low > MAX_PLACES:
                self._lose_step()
                self._alone(r)
                return
            self.places = list(range(low, high))
        self.run = _with(self.run, r)
        self.places = [p for p in self.places if p + k < len(queue) and self._fits(queue[p + k], r)]
        if not self.places:
            self._end_run()
            self._lose_step()

    def _commit_run(self, place: cython.Py_ssize_t) -> None:
        run, self.run, self.places = self.run, (), ()
        self._settle(place, _LOST, False)
        self.mode = _STEP
        for r in run:
            self._pair(self.head, r)

    def _end_run(self) -> None:
        """A run with several places stays unpaired, and so does whatever it may belong to."""
        for r in self.run:
            self._alone(r)
        if self.run and self.places:
            self._settle(self.places[-1] + len(self.run), _UNKNOWN, False)
        self.run = self.places = ()

    def _alone(self, r: Reply) -> None:
        """A reply without a request: `orphan` where no captured request can have got it and requests are missing.

        That they are may be seen only later, at the next message of the client.
        """
        tables = self.tables
        if tables.first_only[r.code]:
            self.found.state(r.row, _NO_ROW)
            return
        self.alone = True
        if self.has_ties:
            self._spoil(self.head, len(self.queue), r)
        known = r.untied or r.tie == _NO_TIE or r.tie in self.ties or len(self.ties) >= MAX_TIES
        known = known or not any([wants & r.says for wants in self.wants])  # the state may be another
        if known or len(self.lonely) >= MAX_AMBIGUOUS:
            self.found.state(r.row, _UNKNOWN)
        elif self.requests_missing:
            self.found.state(r.row, _ORPHAN)
        else:
            self.lonely = _with(self.lonely, r.row)

    # -- the end -------------------------------------------------------------------------------------------

    @cython.ccall
    def close(self, ended: cython.bint, whole_replies: cython.bint, requests_missing: cython.bint) -> cython.bint:
        """The end of the connection; returns whether it was in another state than taken for, or may have been.

        ``ended``: its end was captured; ``whole_replies``: no byte behind the last reply is missing;
        ``requests_missing``: bytes behind the last request are.
        """
        q: Request
        r: Reply
        self.requests_missing = self.requests_missing or requests_missing
        if self.later_count and not (self.mode == _STEP and whole_replies and not self.alone and not self.waiting):
            self._catch_up()
        if not self.requests_missing:
            self._look_again()
            self._no_more_requests()
        if self.mode == _RUN:
            self._end_run()
        if self.requests_missing:
            self._drop_waiting()
        elif self.waiting:
            self._resolve_waiting(len(self.queue))
        for r in self.early:
            if r.row >= 0:
                self._alone(r)
        for row in self.lonely:
            self.found.state(row, _UNKNOWN)
        for some in self.later:
            if self._has_fixed(some):
                self._catch_up()
                break
        sure: cython.bint = self.mode == _STEP and whole_replies and not self.alone
        due = _UNANSWERED if sure and ended else _UNKNOWN
        for q in self.queue[self.head :]:
            if self.kinds[q.code] == _FIXED:
                behind: cython.bint = self.frozen_at >= 0 and q.offset >= self.frozen_at
                self.found.state(q.row, _UNKNOWN if behind or q.cut else due)
            elif not sure and not (whole_replies and self._is_not_expected(q)):
                self.found.state(q.row, _UNKNOWN)
        for row in self.behind_stop:
            self.found.state(row, due)
        self.queue, self.head = [], 0
        return self.denied


@cython.cclass
class NamedRequests(Dialogue):
    """The open requests of a connection whose replies name them (msgq): in any order, the first one counts.

    A name that was used again before its reply came says nothing any more. A request has one number, not 0 if several
    replies may come.
    """

    open: dict  # by name: row, time, whether a reply is due, and how many gaps of replies there were when it was asked
    used: dict
    gap_count: cython.longlong

    def __init__(self, tables: RequestTables, flow: cython.longlong, started: cython.bint, found: Findings) -> None:
        Dialogue.__init__(self, tables, flow, started, found)
        self.mode = _OVER
        self.open, self.used, self.gap_count = {}, {}, 0

    @cython.ccall
    def request(self, q: Request) -> cython.int:
        """Take a request in; returns its kind."""
        kind: cython.int = self.tables.kind[0][q.code]
        if kind not in (_FIXED, _OPTIONAL):
            return kind
        if q.tie == 0 or q.tie in self.used:
            self.found.state(q.row, _UNKNOWN)
            self._drop(q.tie)
            return kind
        self.used[q.tie] = None
        if len(self.used) > MAX_NAMES:
            oldest = next(iter(self.used))
            del self.used[oldest]
            self._drop(oldest)
        self.open[q.tie] = (q.row, q.ts_ns, kind == _FIXED, self.gap_count if q.numbers[0] else -1)
        return kind

    def _drop(self, tie: cython.longlong) -> None:
        waiting = self.open.pop(tie, None)
        if waiting is not None:
            self.found.state(waiting[0], _UNKNOWN)

    @cython.ccall
    def reply(self, r: Reply) -> None:
        """Take a reply in; further ones have no row."""
        waiting = self.open.get(r.tie)
        if waiting is None or r.ts_ns < waiting[1]:
            self.found.state(r.row, _NO_ROW)
        elif waiting[3] >= 0 and waiting[3] != self.gap_count:  # an earlier reply may lie in the gap
            self._drop(r.tie)
            self.found.state(r.row, _NO_ROW)
        else:
            del self.open[r.tie]
            self.found.pairs.extend((waiting[0], r.row))

    @cython.ccall
    def gap(self, from_client: cython.bint, offset: cython.longlong) -> None:
        """Bytes of a side are missing."""
        self.gap_count += not from_client

    @cython.ccall
    def close(self, ended: cython.bint, whole_replies: cython.bint, requests_missing: cython.bint) -> cython.bint:
        """The end of the connection."""
        sure = ended and whole_replies and not self.gap_count
        for row, _, due, _ in self.open.values():
            self.found.state(row, _UNANSWERED if due and sure else _UNKNOWN)
        self.open = {}
        return False


def _with(some: Sequence[T], one: T) -> list[T]:
    """One more, in the list that it is then."""
    if not some:
        return [one]
    some.append(one)
    return some


def converse(talks: dict[int, Dialogue], tables: RequestTables, found: Findings, some: Messages) -> None:
    """Tell messages to the dialogues of their connections, and put their requests' kinds right."""
    order: cython.const[cython.longlong][:] = memoryview(some.order)
    place: cython.const[cython.longlong][:] = memoryview(some.place)
    flow: cython.const[cython.longlong][:] = memoryview(some.flow)
    code: cython.const[cython.longlong][:] = memoryview(some.code)
    tie: cython.const[cython.longlong][:] = memoryview(some.tie)
    item: cython.const[cython.longlong][:] = memoryview(some.item)
    ts_ns: cython.const[cython.longlong][:] = memoryview(some.ts_ns)
    end_ns: cython.const[cython.longlong][:] = memoryview(some.end_ns)
    offset: cython.const[cython.longlong][:] = memoryview(some.offset)
    client: cython.const[cython.uchar][:] = memoryview(some.client.view(np.uint8))
    broken: cython.const[cython.uchar][:] = memoryview(some.broken.view(np.uint8))
    cut: cython.const[cython.uchar][:] = memoryview(some.cut.view(np.uint8))
    started: cython.const[cython.uchar][:] = memoryview(some.started.view(np.uint8))
    kinds: cython.schar[:] = memoryview(some.kinds)
    states: cython.schar[:] = memoryview(some.states)
    numbers = [memoryview(x) for x in some.numbers]
    make = NamedRequests if tables.named else Dialogue
    late: bytes = tables.kind[tables.late]
    first_row: cython.longlong = some.first_row
    counted: cython.bint = len(numbers) > 0
    talk: Dialogue = None
    now: cython.longlong = -1
    i: cython.Py_ssize_t = 0
    run_end: cython.Py_ssize_t = 0  # where requests follow each other up to
    n: cython.Py_ssize_t = len(order)
    k: cython.Py_ssize_t
    at: cython.longlong
    kind: cython.int
    count: cython.Py_ssize_t
    q: Request
    r: Reply
    while i < n:
        k = order[i]
        at = place[k]
        i += 1
        if at < 0 and not broken[k]:
            continue
        if flow[k] != now:
            now = flow[k]
            talk = talks.get(now)
        kind = late[code[k]]
        if client[k] and not broken[k] and not _may_get_reply(kind):  # settled by columns, if it is of that kind
            if talk.is_settled() if talk is not None else not started[k]:
                continue
        if talk is None:
            talk = talks[now] = make(tables, now, started[k], found)
        if broken[k]:
            talk.gap(client[k], offset[k])
            if at < 0:
                continue
        if not client[k]:
            r = Reply.__new__(Reply)
            r.row, r.code, r.tie, r.item, r.ts_ns, r.since = first_row + at, code[k], tie[k], item[k], ts_ns[k], -1
            talk.reply(r)
            continue
        if i > run_end and talk.takes_many() and kind in (_FIXED, _OPTIONAL) and not cut[k]:
            run_end, count = i, 1
            while run_end < n:
                k = order[run_end]
                if flow[k] != now or broken[k]:
                    break
                if place[k] >= 0:
                    kind = late[code[k]]
                    if not client[k] or cut[k] or kind in (_BREAKS, _CUT):
                        break
                    count += _may_get_reply(kind)
                run_end += 1
            if count > _FEW:
                talk.requests(some.columns(i - 1, run_end, late))
                i = run_end
                continue
            k = order[i - 1]
        q = Request.__new__(Request)
        q.row, q.code, q.tie, q.item, q.ts_ns = first_row + at, code[k], tie[k], item[k], ts_ns[k]
        q.end_ns, q.offset, q.cut, q.spoiled = end_ns[k], offset[k], cut[k], False  # uncompiled, nothing has set it
        q.numbers = tuple([x[k] for x in numbers]) if counted else ()
        kind = talk.request(q)
        if kind != kinds[at]:
            kinds[at] = kind
            states[at] = _NOT_EXPECTED if kind == _IGNORED else -1


@cython.cfunc
def _may_get_reply(kind: cython.int) -> cython.bint:
    """Whether a dialogue is told requests of the kind."""
    return kind in (_FIXED, _OPTIONAL, _BREAKS, _CUT)
