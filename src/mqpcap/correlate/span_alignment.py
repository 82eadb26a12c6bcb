# cython: language_level=3
"""Aligns the replies of a span with its requests by cost, where bytes of both sides are missing: likely pairs.

In: an `Alignment` whose first and last places decide too little, and its certain pairs. Out: by row of a reply the
index of its request. Called by: ``matcher``, after all else, so that no certain pair changes.

A hole of the client of n bytes is 0 to n / s phantom requests, s the shortest message seen, and a hole of the server
likewise phantom replies. Costs of an alignment, in nats:

| what | cost |
|---|---|
| k messages in a hole, e by the mean size around it | (k - e)^2 / 2V, at most 7; of equal sizes 25 if k is not e |
| a reply at a captured request whose operation, id and repeated values agree | 0, else it is impossible |
| a reply at a phantom, or before a late start | minus the logarithm of the share of such replies |
| a request without a reply | 0.3, 0.7 if it is truncated; impossible if it must be answered |

A pair is likely if each alignment without the pair costs MIN_MARGIN more than the best alignment. Lengths exclude
nothing: a reply of unusual size moves a hole by many messages.

Costs go forward and backward over *places*, numbers of requests and phantoms that are settled. Each list holds those
places that are reached at no more than MAX_EXCESS above the best, in order.
"""

import math
from collections import Counter
from collections.abc import Sequence

import cython
import numpy as np

from mqpcap.correlate.alignment import ANY_NUMBER
from mqpcap.schema.requests import NO_ECHO_KEY, RequestKind
from mqpcap.tcp.flow_records import NO_OFFSET

if cython.compiled:
    from cython.cimports.mqpcap.correlate.alignment import Alignment, PlacedReply
    from cython.cimports.mqpcap.correlate.messages import Reply, Request
else:
    from mqpcap.correlate.alignment import Alignment, PlacedReply
    from mqpcap.correlate.messages import Reply, Request

MAX_PLACES = 1 << 20
"""Places of all lists of a span together; with more the span gives no likely pair."""
MAX_EXCESS = 40.0
MIN_MARGIN = 15.0
SIZES_AROUND = 32
"""Whole messages on each side of a hole whose sizes say how many it held."""
MIN_SIZES = 8
"""With fewer whole messages around a hole, its length says nothing."""
MAX_TIED_COST = 3.0
"""A missing request may have the id of a reply at this cost."""

_IMPOSSIBLE = cython.declare(cython.double, 1e15)
_MAX_EXCESS = cython.declare(cython.double, MAX_EXCESS)
_ONE_REPLY = cython.declare(cython.int, int(RequestKind.ONE_REPLY))
_ANY = cython.declare(cython.int, ANY_NUMBER)
_NO_OFFSET = cython.declare(cython.longlong, NO_OFFSET)
_NO_KEY = cython.declare(cython.longlong, NO_ECHO_KEY)


@cython.cfunc
def _first_at_least(
    values: cython.longlong[::1], low: cython.Py_ssize_t, high: cython.Py_ssize_t, least: cython.longlong
) -> cython.Py_ssize_t:
    """The index of the first value of at least ``least`` in an ascending range, ``high`` without one."""
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@cython.cclass
class _Hole:
    """A run of missing bytes of a side, of ``length`` bytes, and what a number of messages in it costs.

    ``length``: 0 if a part of it is decided, so that it does not say how many messages are left, at most ``max_count``.
    ``included``: 1 if the message in front of it is truncated, and so is counted, too.
    """

    max_count: cython.longlong
    included: cython.longlong
    usual: cython.double
    spread: cython.double
    is_exact: cython.bint
    least: cython.double

    def __init__(self, length: int, included: int, sizes: Sequence[int], max_count: int) -> None:
        mean = sum(sizes) / len(sizes) if sizes else 1.0
        variance = sum((size - mean) ** 2 for size in sizes) / max(len(sizes), 1)
        self.included, self.max_count = included, max(max_count - included, 0)
        self.usual, self.spread = length / mean, 1.5 * length * variance / mean**3 + 0.5
        is_known = length > 0 and len(sizes) >= MIN_SIZES
        self.is_exact = is_known and min(sizes) == max(sizes) and length % sizes[0] == 0
        self.least = 0.0
        if not is_known:
            self.spread = 1e12
        nearest = min(max(round(self.usual) - included, 0), self.max_count)
        self.least = min(self.cost(nearest), self.cost(max(nearest - 1, 0)))

    @cython.ccall
    def cost(self, count: cython.longlong) -> cython.double:
        """Cost of that many messages, beside a truncated one."""
        off: cython.double = abs(count + self.included - self.usual)
        if self.is_exact:
            return (0.0 if off < 0.5 else 25.0 + 0.02 * off) - self.least
        return min(off * off / (2 * self.spread), 7.0 + 0.02 * off) - self.least


@cython.cclass
class SpanAlignment:
    """The costs of one span.

    ``groups``: requests, each a place, and holes of the client: a place for each number of phantoms that have a reply.
    ``first_place``: by group; one more is the place after all. ``indexes``: by group the index in the ring.
    ``fixed``: by row of a reply the request of a certain pair. ``unseen_cost``: by row, that of a request not captured.
    ``reply``, ``fixed_index``, ``unseen``: the reply that costs are asked of, and both for it.
    ``start``: by list where it begins in ``places``, ``costs`` and ``tail_costs`` (from there to the end).
    ``moves``: by list the reply that follows (None: a reply in a hole), the list after it, the list after the hole, and
    the cost of leaving the hole.
    """

    certain: Alignment
    all_count: cython.bint
    is_late: cython.bint
    groups: list
    indexes: list
    steps: list
    fixed: dict
    unseen_cost: dict
    start: list
    moves: list
    reply: PlacedReply | None
    fixed_index: cython.Py_ssize_t
    unseen: cython.double
    is_hole: cython.uchar[::1]
    first_place: cython.longlong[::1]
    skip: cython.double[::1]
    places: cython.longlong[::1]
    costs: cython.double[::1]
    tail_costs: cython.double[::1]
    raw_places: cython.longlong[::1]
    raw_costs: cython.double[::1]
    count: cython.Py_ssize_t
    group_count: cython.Py_ssize_t

    def __init__(self, certain: Alignment, all_count: bool, fixed: dict[int, int]) -> None:
        self.certain, self.all_count, self.fixed = certain, all_count, fixed
        self.is_late = False

    # -- requests, holes and replies ------------------------------------------------------------------------

    @cython.cfunc
    def _read_requests(self, end: cython.Py_ssize_t) -> cython.void:
        """Requests and holes of the client up to an index of the ring."""
        ring: list[Request] = self.certain.ring
        q: Request
        previous: Request | None = None
        sizes: list[int] = []
        holes: list[tuple[int, int, int, int]] = []
        self.groups, self.indexes = [], []
        i: cython.Py_ssize_t = self.certain.start
        while i < end:
            q = ring[i]
            if q.row >= 0:
                if not (q.truncated or q.is_unread):
                    sizes.append(q.end - q.offset)
                self.groups.append(q)
                self.indexes.append(i)
                previous = q
            elif q.offset == _NO_OFFSET:
                self.is_late = True
            elif previous is None or previous.row >= 0 or previous.offset != q.offset:
                included: cython.longlong = previous is not None and previous.truncated
                begin: cython.longlong = previous.offset if previous is not None and included else q.offset
                holes.append((len(self.groups), q.end - begin, included, len(sizes)))
                self.groups.append(None)
                self.indexes.append(i)
                previous = q
            i += 1
        shortest = max(min(sizes, default=8), 1)
        for k, length, included, index in holes:
            around = sizes[max(index - SIZES_AROUND, 0) : index + SIZES_AROUND]
            self.groups[k] = _Hole(length, included, around, length // shortest)
        self.group_count = n = len(self.groups)
        self.is_hole, self.first_place = np.zeros(n, np.uint8), np.zeros(n + 1, np.int64)
        self.skip = np.full(n, 1e15)
        hole: _Hole
        for k in range(n):
            self.first_place[k + 1] = self.first_place[k] + 1
            if isinstance(self.groups[k], _Hole):
                hole = self.groups[k]
                self.is_hole[k] = True
                self.first_place[k + 1] += hole.max_count
            else:
                self.skip[k] = self._skip_cost(self.groups[k])

    @cython.cfunc
    def _skip_cost(self, q: Request) -> cython.double:
        if (q.truncated or q.is_unread) and not self.all_count:
            return 0.7
        return _IMPOSSIBLE if q.kind == _ONE_REPLY else 0.3

    @cython.cfunc
    def _read_replies(self) -> cython.void:
        """Replies and holes of the server, as ``steps``."""
        p: PlacedReply
        r: Reply
        previous: Reply | None = None
        sizes: list[int] = []
        holes: list[list[int]] = []
        kinds: Counter[tuple[int, int]] = Counter()
        captured: list[Reply] = []
        self.steps, self.unseen_cost = [], {}
        for p in self.certain.placed:
            r = p.reply
            if r.row >= 0:
                if not r.truncated:
                    sizes.append(r.end - r.offset)
                kinds[r.code, r.echo_key] += 1
                captured.append(r)
                self.steps.append(p)
            elif previous is None or previous.row >= 0 or previous.end != r.end:
                included: cython.longlong = previous is not None and previous.row >= 0 and previous.truncated
                length: cython.longlong = (
                    r.end - previous.offset if previous is not None and included else r.hole_length
                )
                holes.append([len(self.steps), length, included, len(sizes), 1])
                self.steps.append(None)
            else:
                holes[len(holes) - 1][4] += 1
            previous = r
        if previous is not None and previous.row < 0:
            holes[len(holes) - 1][1] = 0  # its other replies may follow
        shortest = max(min(sizes, default=8), 1)
        for k, length, included, index, count in holes:
            around = sizes[max(index - SIZES_AROUND, 0) : index + SIZES_AROUND]
            self.steps[k] = _Hole(length, included, around, length // shortest if length else count)
        max_cost: cython.double = MAX_TIED_COST if self.certain.echoes else 1e3
        for r in captured:
            share = kinds[r.code, r.echo_key] / len(captured)
            self.unseen_cost[r.row] = min(-math.log(share), max_cost)

    @cython.cfunc
    def _select(self, p: PlacedReply | None) -> cython.void:
        """Ask costs of a reply; None: a reply in a hole, which fits everything."""
        self.reply, self.fixed_index, self.unseen = p, -1, 0.0
        if p is not None:
            r: Reply = p.reply
            self.fixed_index = self.fixed.get(r.row, -1)
            self.unseen = self.unseen_cost[r.row] if self.fixed_index < 0 else _IMPOSSIBLE

    @cython.cfunc
    def _reply_cost(self, k: cython.Py_ssize_t, place: cython.longlong) -> cython.double:
        """Cost of the reply at a place of a group."""
        i: cython.Py_ssize_t = self.indexes[k]
        p: PlacedReply | None = self.reply
        if self.is_hole[k] and place + 1 >= self.first_place[k + 1]:
            return _IMPOSSIBLE
        if p is None:
            return 0.0
        if self.fixed_index >= 0:
            return 0.0 if self.fixed_index == i else _IMPOSSIBLE
        r: Reply = p.reply
        if i >= p.limit or not self.certain.fits(i, r, p.named):
            return _IMPOSSIBLE
        if self.is_hole[k]:
            return self.unseen
        q: Request = self.groups[k]
        if q.is_unread:
            return self.unseen
        is_known: cython.bint = not self.certain.echoes and q.echo_key != _NO_KEY and r.echo_key != _NO_KEY
        return _IMPOSSIBLE if is_known and q.echo_key != r.echo_key else 0.0

    @cython.cfunc
    def _early_cost(self) -> cython.double:
        """Cost of the reply as one to a request before a late start."""
        p: PlacedReply | None = self.reply
        return _IMPOSSIBLE if p is not None and self.certain.use_ids and p.named >= 0 else self.unseen

    # -- lists of places ------------------------------------------------------------------------------------

    @cython.cfunc
    def _group_of(self, place: cython.longlong, k: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The group of a place, which is that of an earlier place or later."""
        while k < self.group_count and self.first_place[k + 1] <= place:
            k += 1
        return k

    @cython.cfunc
    def _group_at(self, place: cython.longlong) -> cython.Py_ssize_t:
        """The group of a place."""
        return _first_at_least(self.first_place, 1, self.group_count + 1, place + 1) - 1

    @cython.cfunc
    def _put(self, count: cython.Py_ssize_t) -> cython.bint:
        """Append a list: the raw places, and those reached over requests without a reply and out of holes."""
        best: cython.double = _IMPOSSIBLE
        i: cython.Py_ssize_t
        hole: _Hole
        for i in range(count):
            best = min(best, self.raw_costs[i])
        if best >= _IMPOSSIBLE:
            return False
        far: cython.longlong = 1 << 62
        skipped: cython.longlong = far
        exit_place: cython.longlong = far
        skipped_cost: cython.double = 0.0
        exit_cost: cython.double = 0.0
        k: cython.Py_ssize_t = self._group_at(self.raw_places[0])
        i = 0
        self.start.append(self.count)
        while True:
            place: cython.longlong = min(self.raw_places[i] if i < count else far, skipped, exit_place)
            if place == far:
                return True
            cost: cython.double = _IMPOSSIBLE
            if i < count and self.raw_places[i] == place:
                cost = self.raw_costs[i]
                i += 1
            if skipped == place:
                cost, skipped = min(cost, skipped_cost), far
            if exit_place == place:
                cost, exit_place = min(cost, exit_cost), far
            if cost > best + _MAX_EXCESS:
                continue
            if self.count == len(self.places) and not self._grow():
                return False
            self.places[self.count], self.costs[self.count] = place, cost
            self.count += 1
            k = self._group_of(place, k)
            if k == self.group_count:
                continue
            if self.skip[k] < _IMPOSSIBLE:
                skipped, skipped_cost = place + 1, cost + self.skip[k]
            elif self.is_hole[k]:
                hole = self.groups[k]
                cost += hole.cost(place - self.first_place[k])
                exit_cost = cost if exit_place == far else min(exit_cost, cost)
                exit_place = self.first_place[k + 1]

    @cython.cfunc
    def _step(self, index: cython.Py_ssize_t, p: PlacedReply | None) -> cython.bint:
        """Append the list after a reply to a list."""
        count: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        begin: cython.Py_ssize_t = self.start[index]
        k: cython.Py_ssize_t = self._group_at(self.places[begin])
        self._select(p)
        self._make_room(self._end(index) - begin + 1)
        for i in range(begin, self._end(index)):
            place: cython.longlong = self.places[i]
            if place == 0 and self.is_late:
                self.raw_places[count], self.raw_costs[count] = 0, self.costs[i] + self._early_cost()
                count += 1
            k = self._group_of(place, k)
            if k == self.group_count:
                break
            cost: cython.double = self._reply_cost(k, place)
            if cost < _IMPOSSIBLE:
                self.raw_places[count], self.raw_costs[count] = place + 1, self.costs[i] + cost
                count += 1
        return count > 0 and self._put(count)

    @cython.cfunc
    def _grow(self) -> cython.bint:
        """Make room for twice the places; returns whether it may be made."""
        room: cython.Py_ssize_t = min(2 * len(self.places), MAX_PLACES)
        if room <= len(self.places):
            return False
        self.places, self.costs = np.resize(self.places, room), np.resize(self.costs, room)
        return True

    @cython.cfunc
    def _make_room(self, count: cython.Py_ssize_t) -> cython.void:
        """Make room for a raw list."""
        if count > len(self.raw_places):
            self.raw_places, self.raw_costs = np.zeros(2 * count, np.int64), np.zeros(2 * count)

    @cython.cfunc
    def _end(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self.start[index + 1] if index + 1 < len(self.start) else self.count

    @cython.cfunc
    def _pass_hole(self, hole: _Hole) -> cython.bint:
        """Append a list for each number of replies in a hole of the server, and the list after it."""
        index: cython.Py_ssize_t = len(self.start) - 1
        start: cython.Py_ssize_t = index
        place: cython.longlong
        i: cython.Py_ssize_t
        least: dict[int, float] = {}
        leaving: list[float] = []
        while True:
            cost: cython.double = hole.cost(index - start)
            leaving.append(cost)
            for i in range(self.start[index], self._end(index)):
                place = self.places[i]
                least[place] = min(least.get(place, 1e15), self.costs[i] + cost)
            is_far: cython.bint = cost > _MAX_EXCESS and index - start > hole.usual
            if is_far or index - start >= hole.max_count or not self._step(index, None):
                break
            index += 1
        self._make_room(len(least))
        for i, (place, at_place) in enumerate(sorted(least.items())):
            self.raw_places[i], self.raw_costs[i] = place, at_place
        for i in range(start, index + 1):
            self.moves.append((None, i + 1 if i < index else -1, index + 1, leaving[i - start]))
        return self._put(len(least))

    # -- the best alignment and the next best -----------------------------------------------------------------

    @cython.ccall
    def likely(self, end: cython.Py_ssize_t, is_all: cython.bint) -> dict:
        """By row of a reply the index of its request and the margin, for likely pairs.

        ``end``: requests up to this index take part. ``is_all``: all of them are settled in the end, but for those of a
        hole that begins or goes on there.
        """
        q: Request
        is_open: cython.bint = False
        if end < len(self.certain.ring):
            q = self.certain.ring[end]
            is_open = q.row < 0 and q.offset != _NO_OFFSET
            is_large: cython.bint = is_open and q.kind == _ANY
            if is_open and not is_large:
                previous: Request = self.certain.ring[end - 1] if end > self.certain.start else q
                is_open = previous is not q and previous.row < 0 and previous.offset == q.offset
            end += is_large
        self._read_requests(end)
        self._read_replies()
        self.start, self.moves, self.count = [], [], 0
        self.places, self.costs = np.zeros(256, np.int64), np.zeros(256)
        self.raw_places, self.raw_costs = np.zeros(64, np.int64), np.zeros(64)
        result: dict[int, tuple[int, float]] = {}
        index: cython.Py_ssize_t
        if not self._put(1):
            return result
        for step in self.steps:
            if isinstance(step, _Hole):
                if not self._pass_hole(step):
                    return result
            else:
                self.moves.append((step, len(self.start), -1, 0.0))
                if not self._step(len(self.start) - 1, step):
                    return result
        index = len(self.start) - 1
        self.tail_costs = np.zeros(self.count)
        end_place: cython.longlong = self.first_place[self.group_count - is_open]
        for i in range(self.start[index], self.count):
            self.tail_costs[i] = _IMPOSSIBLE if is_all and self.places[i] < end_place else 0.0
        self._leave_unanswered(index)
        while index > 0:
            index -= 1
            self._go_back(index, result)
        return result

    @cython.cfunc
    def _rest_at(self, index: cython.Py_ssize_t, place: cython.longlong) -> cython.double:
        """Cost from a place of a list to the end."""
        end: cython.Py_ssize_t = self._end(index)
        i: cython.Py_ssize_t = _first_at_least(self.places, self.start[index], end, place)
        return self.tail_costs[i] if i < end and self.places[i] == place else _IMPOSSIBLE

    @cython.cfunc
    def _leave_unanswered(self, index: cython.Py_ssize_t) -> cython.void:
        """Costs to the end of a list, over requests without a reply and out of holes."""
        begin: cython.Py_ssize_t = self.start[index]
        i: cython.Py_ssize_t
        for i in range(self._end(index) - 1, begin - 1, -1):
            place: cython.longlong = self.places[i]
            k: cython.Py_ssize_t = self._group_at(place)
            if k == self.group_count:
                continue
            if self.skip[k] < _IMPOSSIBLE:
                self.tail_costs[i] = min(self.tail_costs[i], self.skip[k] + self._rest_at(index, place + 1))
            elif self.is_hole[k]:
                hole: _Hole = self.groups[k]
                leaving: cython.double = hole.cost(place - self.first_place[k])
                self.tail_costs[i] = min(self.tail_costs[i], leaving + self._rest_at(index, self.first_place[k + 1]))

    @cython.cfunc
    def _go_back(self, index: cython.Py_ssize_t, result: dict) -> cython.void:
        """Costs to the end of a list, and whether the reply after it has a likely request."""
        p: PlacedReply | None
        p, following, outside, leaving = self.moves[index]
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        best_index: cython.Py_ssize_t = -1
        best: cython.double = _IMPOSSIBLE
        next_best: cython.double = _IMPOSSIBLE
        self._select(p)
        for i in range(self.start[index], self._end(index)):
            place: cython.longlong = self.places[i]
            tail_cost: cython.double = _IMPOSSIBLE
            cost: cython.double
            if outside >= 0:
                tail_cost = leaving + self._rest_at(outside, place)
            if following >= 0 and place == 0 and self.is_late:
                tail_cost = min(tail_cost, self._early_cost() + self._rest_at(following, 0))
                next_best = min(next_best, self.costs[i] + tail_cost)
            k = self._group_at(place)
            if following >= 0 and k < self.group_count:
                cost = self._reply_cost(k, place)
                if cost < _IMPOSSIBLE:
                    cost += self._rest_at(following, place + 1)
                tail_cost = min(tail_cost, cost)
                cost += self.costs[i]
                if cost < best and not self.is_hole[k]:
                    next_best, best, best_index = min(next_best, best), cost, k
                else:
                    next_best = min(next_best, cost)
            self.tail_costs[i] = tail_cost
        self._leave_unanswered(index)
        if p is None or best_index < 0 or next_best - best < MIN_MARGIN:
            return
        q: Request = self.groups[best_index]
        r: Reply = p.reply
        if not (q.truncated or q.is_unread or r.truncated):
            result[r.row] = (self.indexes[best_index], min(next_best - best, 1e3))
