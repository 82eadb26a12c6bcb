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
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mqpcap.correlate.conversation import NO_TIE, Asked, Given, Reply, Request, Requests
from mqpcap.schema.requests import I64, RequestKind, RequestTables, State

_, FIXED, OPTIONAL, IGNORED, BREAKS, NOTHING, CUT = map(int, RequestKind)
ANSWERED, SILENT, NOT_EXPECTED, UNANSWERED, LOST, ORPHAN, UNKNOWN = map(int, State)
NO_ROW = len(State)
"""Behind the states: a reply that has no row of its own."""
STEP, RUN, TIED, OVER = range(4)
"""How replies find their request: by counting; in a row behind a gap; by what they repeat; not at all any more."""
MAX_CANDIDATES = 64
"""Requests considered for one ambiguous reply; beyond it the reply stays unpaired."""
MAX_AMBIGUOUS = 64
"""Replies that wait for the next barrier; beyond it they stay unpaired."""
MAX_OPEN = 1 << 14
"""Open requests of a connection that a reply is looked for among; older ones get no reply any more."""
MAX_PLACES = 4096
"""Places that are tried for the replies behind a gap; with more they stay unpaired."""
HANDLING_NS = 50_000_000
"""A request is given up where a later one came so much after it: TCP holds an answer back for 40 ms."""


_GAP = Reply(-1, 0, NO_TIE, 0, 0)
"""Stands among replies that wait for missing bytes between them."""


class Found:
    """What dialogues found since it was last emptied: pairs of rows, states of rows, and how far servers came."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty it."""
        self.pairs: list[tuple[int, int]] = []
        self.many: list[I64] = []
        """More pairs, a row each."""
        self.states: list[tuple[int, int]] = []
        self.kinds: list[tuple[int, int]] = []
        """Rows whose kind is another than it was when they were taken in."""
        self.handled: dict[int, int] = {}
        """By flow: the stream offset up to which the server handled the client's bytes."""
        self.proved: dict[int, int] = {}
        """By flow that began before the capture and showed its state: the row from which on it surely was in it."""


class _Later:
    """Requests that were taken in together; they are looked at when a reply comes."""

    def __init__(self) -> None:
        self.parts: list[Requests] = []
        self.count = 0

    def add(self, some: Requests, kinds: Sequence[int]) -> None:
        """More of them; the oldest go where they are too many and none of those must get a reply."""
        self.parts.append(some)
        self.count += len(some.rows)
        if self.count > 2 * MAX_OPEN and not _has_fixed(self.parts[0], kinds):
            self.count -= len(self.parts.pop(0).rows)

    def taken(self) -> list[Requests]:
        """All of them, which leave."""
        parts, self.parts, self.count = self.parts, [], 0
        return parts

    def has_fixed(self, kinds: Sequence[int]) -> bool:
        """Whether one must get a reply."""
        return any(_has_fixed(some, kinds) for some in self.parts)


def _has_fixed(some: Requests, kinds: Sequence[int]) -> bool:
    return bool((np.array(kinds)[some.codes] == FIXED).any())


class Dialogue:
    """The open requests of a connection; see the module."""

    def __init__(self, tables: RequestTables, flow: int, started: bool, found: Found) -> None:
        self.tables, self.flow, self.started, self.found = tables, flow, started, found
        self.state = tables.start if started else tables.late
        self.kinds, self.wants = tables.kind[self.state], tables.wants[self.state]  # by code, in that state
        self.unsure = not started and bool(tables.proofs)  # whether it is only taken to be in that state
        self.gap_until = -1  # stream offset of the last request that may have been answered in missing bytes
        self.doubtful_until = -1  # stream offset of the last request that may have been answered in an earlier state
        self.denied = False  # whether it was in another one, or may have been
        self.mode = STEP if started else (TIED if tables.ties else OVER)
        self.queue: list[Request] = []
        self.head = 0
        self.waiting: list[tuple[Reply, int, int]] = []  # with its first and last place in the queue
        self.frozen_at = -1  # stream offset of the first missing request; by order alone, none behind it is paired
        self.requests_missing = not started
        self.replies_missing = False
        self.unordered = False
        self.alone = False
        self.answered = False
        self.slowest_ns = HANDLING_NS
        self.places: list[int] = []
        self.run: list[Reply] = []
        self.spoiled: set[int] = set()  # rows of open requests that may have got a reply that was left unpaired
        self.asked = Asked()
        self.early: list[Reply] = []
        self.later = _Later()
        self.lonely: list[int] = []  # replies that nobody asked for, unless a gap turns out to lie in front of them
        self.stopped = False
        self.behind_stop: list[int] = []
        self.given = Given()

    # -- requests --------------------------------------------------------------------------------------------

    def request(self, q: Request, numbers: Sequence[int]) -> int:
        """Take a request in; returns its kind."""
        if self.later.parts:
            self._catch_up()
        tables = self.tables
        if tables.ties:
            self.asked.count(numbers)
            if self.early and (self.asked.counts_up or not self.requests_missing or self._is_own(self.early[0])):
                self._look_again()
        self._no_more_requests()
        kind = self.kinds[q.code]
        if kind == CUT:
            self.gap(True, q.offset)
            return kind
        self.asked.note(q.tie)
        if kind != FIXED and kind != OPTIONAL:
            self.stopped = self.stopped or kind == BREAKS
        elif self.stopped:
            self.behind_stop.append(q.row)
        elif self.mode == OVER or (self.frozen_at >= 0 and not tables.ties):
            self.found.states.append((q.row, UNKNOWN))
        else:
            self._enqueue(q)
            if len(self.queue) - self.head > MAX_OPEN:
                self._drop_oldest()
        return kind

    def _enqueue(self, q: Request) -> None:
        self.queue.append(q)
        if q.item > 0:
            self.given.add(q)

    def _no_more_requests(self) -> None:
        """No bytes of the client are missing up to here, so no other request can have got the last replies."""
        if self.mode == RUN and len(self.places) == 1:
            self._commit_run(self.places[0])
        elif self.mode == STEP and self.waiting and self.waiting[-1][1] == self.waiting[-1][2]:
            r, at, _ = self.waiting.pop()
            self._pair(at, r)

    def _drop_oldest(self) -> None:
        gone = self.queue[self.head : self.head + MAX_OPEN // 2]
        if any(self.kinds[q.code] == FIXED for q in gone) or self.mode == RUN:
            self._lose_step()
        self._settle(self.head + len(gone), UNKNOWN, certain=False)

    @property
    def is_in_step(self) -> bool:
        """Whether the next reply simply answers the oldest open request, and the one behind it the next."""
        plain = self.takes_many and self.frozen_at < 0 and not self.spoiled
        return plain and all(self.kinds[q.code] == FIXED for q in self.open_requests())

    def open_requests(self) -> list[Request]:
        """The requests that have no reply yet."""
        if self.later.parts:
            self._catch_up()
        return self.queue[self.head :]

    @property
    def open_count(self) -> int:
        """How many they are."""
        return len(self.queue) - self.head

    def keep_step(self, said_count: int, told: I64, left: Iterable[Request]) -> None:
        """Requests were asked, and so many of the oldest answered; ``told``: ties and numbers, ``left``: still open."""
        self.queue = [*self.queue[self.head + said_count :], *left]
        self.head = 0
        self.answered = True
        if len(told):
            self.asked.add_all(told)

    @property
    def takes_many(self) -> bool:
        """Whether requests may be taken in together: nothing that they say changes how others are read."""
        plain = self.mode == STEP and not self.stopped and not self.early and not self.waiting
        return plain and (self.frozen_at < 0 or self.tables.ties) and self.state == self.tables.late

    def requests(self, some: Requests) -> None:
        """Take requests in; those of which no reply comes are never looked at one by one."""
        self.asked.add_all(np.stack([some.ties, *some.numbers], 1))
        self.later.add(some, self.kinds)

    def _catch_up(self) -> None:
        """Look at requests that were taken in together, as a reply is there."""
        for some in self.later.taken():
            for q in some.each():
                self._enqueue(q)
        if len(self.queue) - self.head > MAX_OPEN:
            self._drop_oldest()

    # -- replies ---------------------------------------------------------------------------------------------

    def reply(self, r: Reply) -> None:
        """Take a reply in."""
        if self.later.parts:
            self._catch_up()
        tables = self.tables
        code = r.code
        if self.unsure:
            self.denied = self.denied or code in tables.denials
            if code in tables.proofs:
                self.unsure = False
                self.found.proved[self.flow] = r.row if self.denied else 0
        if code in tables.gaps:
            self.gap(False, 0)
            self.found.states.append((r.row, NO_ROW))
            return
        state = tables.moves[code].get(self.state, self.state) if code in tables.moves else self.state
        if state != self.state:
            self.doubtful_until = self.queue[-1].offset if self.head < len(self.queue) else -1
            self._move(state, is_sure=False)
        if not tables.says[code]:
            self.found.states.append((r.row, NO_ROW))
            return
        if r.item:
            r = r._replace(since=self.given.brought(r.item))
        if self.mode == STEP:
            self._in_step(r)
        elif self.mode == TIED:
            self._tied(r)
        elif self.mode == RUN:
            self._in_run(r)
        else:
            self._alone(r)

    def _fits(self, q: Request, r: Reply) -> bool:
        tables = self.tables
        asked_ns = q.end_ns if tables.timed else q.ts_ns
        ties = tables.untied[r.code] or (q.tie == r.tie and r.tie != NO_TIE)
        return ties and asked_ns <= r.ts_ns and bool(self.wants[q.code] & tables.says[r.code])

    def _is_own(self, r: Reply) -> bool:
        """Whether a reply brings what only this client gave: no request in front of that is its own."""
        return r.since >= 0 and self.given.are_own

    def _in_step(self, r: Reply) -> None:
        queue, head = self.queue, self.head
        if not self.waiting and head < len(queue):
            q = queue[head]
            if self.kinds[q.code] == FIXED and self._fits(q, r):
                self._pair(head, r)
                return
        _, first, last = self.waiting[-1] if self.waiting else (r, head - 1, head - 1)
        first += 1
        found: list[int] = []
        is_open = True  # whether a request that is not here yet may be the one
        for i in range(first, len(queue)):
            q = queue[i]
            if self._fits(q, r):
                found.append(i)
                if len(found) > MAX_CANDIDATES:
                    break
            if self.kinds[q.code] == FIXED and i > last:  # those up to there may have got the replies that wait
                is_open = False
                break
        if len(found) > 1 and self.tables.timed:
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
            self.waiting.append((r, found[0], found[-1]))
        elif not found and self.tables.first_only[r.code]:
            self._first_only(r)
        else:
            self._lose_step()
            self._tied(r) if self.mode == TIED else self._alone(r)

    def _is_first_in_queue(self, found: list[int], r: Reply) -> bool:
        """Whether all candidates read one queue, which had the message before the first of them was handled."""
        return 0 <= r.since < self.queue[found[0]].offset and len({self.queue[i].item for i in found}) == 1

    def _not_too_old(self, found: list[int], r: Reply) -> list[int]:
        """The candidates that can still be waiting: one is settled when the server had the time to handle it."""
        newest = self.queue[found[-1]].ts_ns
        if r.ts_ns - newest > self.slowest_ns:
            return found
        return [i for i in found if newest - self.queue[i].end_ns < self.slowest_ns]

    def _first_only(self, r: Reply) -> None:
        """Whatever opens a connection, such a reply may be to it; later it answers nothing."""
        if not self.answered and self.head < len(self.queue) and self.queue[self.head].ts_ns <= r.ts_ns:
            self._pair(self.head, r)
        else:
            self.found.states.append((r.row, NO_ROW))
            self.alone = self.alone or not self.answered
            self.answered = True

    def _give(self, q: Request, r: Reply) -> None:
        """Note a pair: the only way one leaves a dialogue."""
        if q.row in self.spoiled:  # its row was given out
            self.found.states.append((r.row, UNKNOWN))
        else:
            self.found.pairs.append((q.row, r.row))

    def _pair(self, at: int, r: Reply) -> None:
        """Note a pair that is a barrier: all in front of it is settled."""
        q = self.queue[at]
        if self.waiting:
            self._resolve_waiting(at)
        self._give(q, r)
        self.answered = True
        if self.kinds[q.code] == FIXED:
            self.given.at.clear()  # a queue that was made since has nothing of what was given before
        if self.tables.timed:
            self.slowest_ns = max(self.slowest_ns, min(r.ts_ns - q.end_ns, 4 * HANDLING_NS))
        if at > self.head:
            self._settle(at, UNKNOWN, certain=True)
        self.head = at + 1
        if not self.unsure:
            self.found.handled[self.flow] = q.offset
        if self.head > 1024 and 2 * self.head > len(self.queue):
            del self.queue[: self.head]
            self.head = 0
        state = self.tables.next_state.get((self.state, q.code, r.code), self.state)
        if state != self.state:
            self._move(state)

    def _move(self, state: int, is_sure: bool = True) -> None:
        """Requests that were sent before the reply that changed the state are what they are in the new one.

        If it is not sure, the change may have been earlier, in missing bytes: some got their replies in the old one.
        """
        before, kinds = self.kinds, self.tables.kind[state]
        self.state, self.kinds, self.wants = state, kinds, self.tables.wants[state]
        left = []
        for q in self.queue[self.head :]:
            kind = kinds[q.code]
            if kind != before[q.code]:
                self.found.kinds.append((q.row, kind))
            if not is_sure and kind != FIXED and kind != before[q.code]:
                self.found.states.append((q.row, UNKNOWN))
            elif kind in (FIXED, OPTIONAL):
                left.append(q)
        self.queue, self.head = left, 0

    def _settle(self, to: int, state: int, certain: bool) -> None:
        """Leave requests behind: FIXED ones get the state; ``certain``: OPTIONAL ones got no reply."""
        states = self.found.states
        for q in self.queue[self.head : to]:
            if self.kinds[q.code] == FIXED:
                states.append((q.row, state if q.offset > self.doubtful_until else UNKNOWN))
            elif not certain and not self._is_not_expected(q):
                states.append((q.row, UNKNOWN))
        self.head = to

    def _is_not_expected(self, q: Request) -> bool:
        """Whether a request that may get a reply, but need not, got none that could have been seen."""
        return self.tables.silence[q.code] == NOT_EXPECTED and q.offset > self.gap_until

    def _resolve_waiting(self, end: int) -> None:
        """Pair the replies that wait with requests in front of ``end`` where only one place is possible."""
        replies, self.waiting = [r for r, _, _ in self.waiting], []
        taken: set[int] = set()
        for r, low, high in _spans(replies, self.queue, self.head, end, self._fits):
            if low == high < end:
                self._give(self.queue[low], r)
                taken.add(low)
                continue
            self.found.states.append((r.row, UNKNOWN))
            for i in range(low, min(high + 1, end)):
                if i not in taken and self._fits(self.queue[i], r):
                    self.found.states.append((self.queue[i].row, UNKNOWN))
                    taken.add(i)

    # -- missing bytes ---------------------------------------------------------------------------------------

    def gap(self, from_client: bool, offset: int) -> None:
        """Bytes of a side are missing, or hold no message."""
        if self.later.parts:
            self._catch_up()
        self._let_early_go()
        self.given.at.clear()
        if from_client:
            self.requests_missing = True
            self.found.states += [(row, ORPHAN) for row in self.lonely]
            self.lonely = []
            if self.frozen_at < 0:
                self.frozen_at = offset
            if self.mode == RUN:
                self._end_run()
                self._lose_step()
        else:
            self.replies_missing = self.denied = True
            self.gap_until = max(self.gap_until, self.queue[-1].offset if self.queue else -1)
        if self.tables.ties:
            self._lose_step(by_gap=True)
        elif not from_client:
            doubtful = bool(self.waiting)
            self._drop_waiting()
            if self.mode == RUN:
                self._end_run()
            if self.frozen_at >= 0 or self.mode == OVER or doubtful:
                self._lose_step()
            else:
                self.mode = RUN
                self.places = []
                self.run = []

    def _drop_waiting(self) -> None:
        """Replies that wait stay unpaired, and whatever may have got one stays unknown."""
        for r, first, last in self.waiting:
            self.found.states.append((r.row, UNKNOWN))
            self._spoil(range(first, last + 1), r)
        self.waiting = []

    def _spoil(self, places: Iterable[int], r: Reply) -> None:
        """Requests that may have got a reply that stays unpaired: they get no other."""
        is_open = self.replies_missing and self.state != self.tables.late
        for q in (self.queue[i] for i in places):
            if self._fits(q, r) or (is_open and q.tie == r.tie):
                self.found.states.append((q.row, UNKNOWN))
                self.spoiled.add(q.row)

    def _lose_step(self, by_gap: bool = False) -> None:
        self._drop_waiting()
        if not by_gap:
            self.unordered = True
        if self.tables.ties:
            self.mode = TIED
            return
        self._settle(len(self.queue), UNKNOWN, certain=False)
        self.mode = OVER

    def _tied(self, r: Reply, is_last: bool = False) -> None:
        """A reply out of step: it belongs to the only request that it repeats, if that cannot be another's.

        ``is_last``: no request can be missing in front of it that is not known to be.
        """
        is_own, untied = self._is_own(r), self.tables.untied[r.code]
        fits = [i for i in range(self.head, len(self.queue)) if self._fits(self.queue[i], r)]
        if untied:
            fits = [i for i in fits if 0 <= r.since < self.queue[i].offset]
        unsure = ((self.requests_missing and not is_own) or not is_last) and not self._names_one(r)
        if ((len(fits) == 1 and unsure) or self.early) and len(self.early) < MAX_AMBIGUOUS:
            self.early.append(r)
            return
        doubtful = len(fits) != 1 or unsure or self._is_state_open(r)
        at = fits[0] if fits else -1
        is_sure = not doubtful and self.queue[at].row not in self.spoiled
        if not is_sure or not (is_own or self.kinds[self.queue[at].code] == FIXED or self._names_one(r)):
            self._alone(r)
            return
        if self.unordered:
            self._give(self.queue.pop(at), r)
            return
        lost = LOST if self.replies_missing and self.frozen_at < 0 and self.started else UNKNOWN
        self._settle(at, lost, certain=False)
        self._pair(at, r)
        self.mode = STEP

    def _is_state_open(self, r: Reply) -> bool:
        """Whether a missing reply may have changed the state, so that another request of that tie gets such a reply."""
        if len(self.tables.kind) == 1 or (self.started and self.state == self.tables.late):
            return False
        return sum(q.tie == r.tie and q.ts_ns <= r.ts_ns for q in self.queue[self.head :]) > 1

    def _let_early_go(self) -> None:
        """Of the replies that wait so, only those that name one request are of any use behind a gap."""
        early, self.early = self.early, []
        for r in early:
            if r is _GAP or (
                not self.tables.untied[r.code] and sum(self._fits(q, r) for q in self.queue[self.head :]) == 1
            ):
                self.early.append(r)
            else:
                self._alone(r)
        if self.early and self.early[-1] is not _GAP:
            self.early.append(_GAP)

    def _look_again(self) -> None:
        """Replies that came before it was seen that the client numbers its requests."""
        early, self.early = self.early, []
        for r in early:
            if r is _GAP:
                self._lose_step(by_gap=True)
            elif self.mode == TIED:
                self._tied(r, is_last=True)
            else:
                self._in_step(r)

    def _names_one(self, r: Reply) -> bool:
        """Whether no two requests can have what a reply repeats."""
        tables = self.tables
        return bool(tables.says[r.code] & tables.numbered) and not tables.untied[r.code] and self.asked.counts_up

    def _in_run(self, r: Reply) -> None:
        """A reply behind a gap, where only order tells: the places that all replies of the run fit."""
        queue, k = self.queue, len(self.run)
        if k == 0:
            low, high = self.head, len(queue)
            while high > low and queue[high - 1].ts_ns > r.ts_ns:
                high -= 1
            if high - low > MAX_PLACES:
                self._lose_step()
                self._alone(r)
                return
            self.places = list(range(low, high))
        self.run.append(r)
        self.places = [p for p in self.places if p + k < len(queue) and self._fits(queue[p + k], r)]
        if not self.places:
            self._end_run()
            self._lose_step()

    def _commit_run(self, place: int) -> None:
        run, self.run, self.places = self.run, [], []
        self._settle(place, LOST, certain=False)
        self.mode = STEP
        for r in run:
            self._pair(self.head, r)

    def _end_run(self) -> None:
        """A run with several places stays unpaired, and so does whatever it may belong to."""
        for r in self.run:
            self._alone(r)
        if self.run and self.places:
            self._settle(self.places[-1] + len(self.run), UNKNOWN, certain=False)
        self.run, self.places = [], []

    def _alone(self, r: Reply) -> None:
        """A reply without a request: `orphan` where no captured request can have got it and requests are missing.

        That they are may be seen only later, at the next message of the client.
        """
        if self.tables.first_only[r.code]:
            self.found.states.append((r.row, NO_ROW))
            return
        self.alone = True
        if self.tables.ties:
            self._spoil(range(self.head, len(self.queue)), r)
        known = self.tables.untied[r.code] or self.asked.may_have(r.tie)
        says = self.tables.says[r.code]
        known = known or not any(wants & says for wants in self.wants)  # the state may be another
        if known or len(self.lonely) >= MAX_AMBIGUOUS:
            self.found.states.append((r.row, UNKNOWN))
        elif self.requests_missing:
            self.found.states.append((r.row, ORPHAN))
        else:
            self.lonely.append(r.row)

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self, ended: bool, whole_replies: bool) -> None:
        """The end of the connection.

        ``ended``: its end was captured; ``whole_replies``: no byte behind the last reply is missing."""
        if self.later.parts and not (self.mode == STEP and whole_replies and not self.alone and not self.waiting):
            self._catch_up()
        if not self.requests_missing:
            self._look_again()
            self._no_more_requests()
        if self.mode == RUN:
            self._end_run()
        if self.requests_missing:
            self._drop_waiting()
        elif self.waiting:
            self._resolve_waiting(len(self.queue))
        for r in self.early:
            if r is not _GAP:
                self._alone(r)
        self.found.states += [(row, UNKNOWN) for row in self.lonely]
        if self.later.has_fixed(self.kinds):
            self._catch_up()
        sure = self.mode == STEP and whole_replies and not self.alone
        due = UNANSWERED if sure and ended else UNKNOWN
        for q in self.queue[self.head :]:
            if self.kinds[q.code] == FIXED:
                behind = self.frozen_at >= 0 and q.offset >= self.frozen_at
                self.found.states.append((q.row, UNKNOWN if behind or q.cut else due))
            elif not sure and not (whole_replies and self._is_not_expected(q)):
                self.found.states.append((q.row, UNKNOWN))
        self.found.states += [(row, due) for row in self.behind_stop]
        self.queue, self.head = [], 0


def _spans(
    replies: Sequence[Reply], queue: Sequence[Request], head: int, end: int, fits: Callable[[Request, Reply], bool]
) -> list[tuple[Reply, int, int]]:
    """Replies with the earliest and the latest place of each from ``head`` to ``end``, as they keep their order."""
    earliest, at = [], head
    for r in replies:
        while at < end and not fits(queue[at], r):
            at += 1
        earliest.append(at)
        at += 1
    latest, at = [], end - 1
    for r in reversed(replies):
        while at >= head and not fits(queue[at], r):
            at -= 1
        latest.append(at)
        at -= 1
    return list(zip(replies, earliest, reversed(latest), strict=True))
