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

Costs go forward over *places*, which are reached by *steps*, and then backward over these. A place is the number of
requests and holes that are settled, and of phantoms of the next hole. Places at more than MAX_EXCESS above the best
after the same reply are left out.
"""

import math
from collections import Counter

import cython
import numpy as np

from mqpcap.correlate.alignment import Alignment, PlacedReply
from mqpcap.correlate.messages import ANY_NUMBER, ONE_REPLY, Reply, Request, SideMessage, phantom_reply
from mqpcap.schema.requests import NO_ECHO_KEY
from mqpcap.tcp.flow_records import NO_OFFSET

MAX_PLACES = 1 << 20
"""Places of a span together; with more the span gives no likely pair."""
MAX_EXCESS = 40.0
MIN_MARGIN = 15.0
MAX_MARGIN = 1e3
"""The margin where no other alignment fits, in nats."""
SIZES_AROUND = 32
"""Whole messages on each side of a hole whose sizes say how many it held."""
MIN_SIZES = 8
"""With fewer whole messages around a hole, its length says nothing."""
MAX_TIED_COST = 3.0
"""A missing request may have the id of a reply at this cost."""

_IMPOSSIBLE = cython.declare(cython.double, 1e15)
_MAX_EXCESS = cython.declare(cython.double, MAX_EXCESS)
_SHIFT = cython.declare(cython.int, 32)
"""A place is an item, times two to this, plus phantoms of the item."""


@cython.cclass
class _Hole:
    """A run of missing bytes of a side, which ends at an offset, and what a number of messages in it costs.

    ``length``: 0 if a part of it is decided, so that it does not say how many messages are left: up to ``max_count``.
    ``included``: 1 if the message in front of it is truncated, and so is counted, too.
    ``size_index``: whole messages of the side in front of it.
    """

    end: cython.longlong
    length: cython.longlong
    max_count: cython.longlong
    included: cython.longlong
    size_index: cython.Py_ssize_t
    usual: cython.double
    spread: cython.double
    is_exact: cython.bint
    least: cython.double

    def __init__(self, phantom: SideMessage, previous: SideMessage | None, size_index: int) -> None:
        self.end, self.length, self.max_count, self.size_index = phantom.end, phantom.hole_length, 1, size_index
        self.included = previous is not None and previous.row >= 0 and previous.truncated
        if previous is not None and self.included:
            self.length = phantom.end - previous.offset

    @cython.cfunc
    def measure(self, sizes: list) -> cython.void:
        """Set costs by the sizes of the whole messages of the side."""
        if self.length:
            self.max_count = self.length // max(min(sizes, default=8), 1)
        sizes = sizes[max(self.size_index - SIZES_AROUND, 0) : self.size_index + SIZES_AROUND]
        mean = sum(sizes) / len(sizes) if sizes else 1.0
        variance = sum([(size - mean) ** 2 for size in sizes]) / max(len(sizes), 1)
        self.max_count = max(self.max_count - self.included, 0)
        self.usual, self.spread = self.length / mean, 1.5 * self.length * variance / mean**3 + 0.5
        is_known = self.length > 0 and len(sizes) >= MIN_SIZES
        self.is_exact = is_known and min(sizes) == max(sizes) and self.length % sizes[0] == 0
        self.least = 0.0
        if not is_known:
            self.spread = 1e12
        nearest = min(max(round(self.usual) - self.included, 0), self.max_count)
        self.least = min(self.cost(nearest), self.cost(max(nearest - 1, 0)))

    @cython.cfunc
    def cost(self, count: cython.longlong) -> cython.double:
        """Cost of that many messages, beside a truncated one."""
        off: cython.double = abs(count + self.included - self.usual)
        if self.is_exact:
            return (0.0 if off < 0.5 else 25.0 + 0.02 * off) - self.least
        return min(off * off / (2 * self.spread), 7.0 + 0.02 * off) - self.least


@cython.cfunc
def _with_holes(
    messages: list, start: cython.Py_ssize_t, end: cython.Py_ssize_t, is_last_open: cython.bint
) -> tuple:  # fmt: skip
    """Messages of a side from start to end, a `_Hole` for the phantoms of a hole, and the index of each in the list.

    ``is_last_open``: a hole at the end may go on.
    """
    m: SideMessage
    hole: _Hole | None = None
    previous: SideMessage | None = None
    items: list = []
    indexes: list = []
    sizes: list = []
    holes: list = []
    i: cython.Py_ssize_t
    for i in range(start, end):
        m = messages[i]
        if m.row >= 0:
            hole = None
            items.append(m)
            if not (m.truncated or m.is_unread):
                sizes.append(m.end - m.offset)
        elif m.offset == NO_OFFSET:
            continue
        elif hole is not None and hole.end == m.end:
            hole.max_count += 1
            continue
        else:
            hole = _Hole(m, previous, len(sizes))
            items.append(hole)
            holes.append(hole)
        indexes.append(i)
        previous = m
    if is_last_open and hole is not None:
        hole.length = 0
    for hole in holes:
        hole.measure(sizes)
    return items, indexes


@cython.cclass
class SpanAlignment:
    """The costs of one span.

    ``items``: its requests, and holes of the client. ``indexes``: by item the index in the ring.
    ``places``, ``costs``, ``tails``: the places, the cost of reaching each, and that from it to the end. The places
    after the last reply begin at ``begin``.
    ``sources``, ``targets``, ``step_costs``: by step the indexes of two places, the second -1 if it is left out.
    ``moves``: the replies, each with its first step and the step after its last.
    """

    certain: Alignment
    all_count: cython.bint
    is_late: cython.bint
    items: list
    indexes: list
    moves: list
    places: cython.longlong[::1]
    costs: cython.double[::1]
    tails: cython.double[::1]
    sources: cython.longlong[::1]
    targets: cython.longlong[::1]
    step_costs: cython.double[::1]
    begin: cython.Py_ssize_t
    count: cython.Py_ssize_t
    step_count: cython.Py_ssize_t

    def __init__(self, certain: Alignment, all_count: bool) -> None:
        self.certain, self.all_count, self.is_late, self.moves = certain, all_count, False, []
        self.places, self.costs, self.step_costs = np.zeros(256, np.int64), np.zeros(256), np.zeros(256)
        self.sources, self.targets = np.zeros(256, np.int64), np.zeros(256, np.int64)
        self.places[0], self.begin, self.count, self.step_count = -1, 0, 1, 0

    # -- costs ----------------------------------------------------------------------------------------------

    @cython.cfunc
    def _reply_cost(self, p: PlacedReply, place: cython.longlong) -> cython.double:
        """Cost of a reply at a place."""
        k: cython.Py_ssize_t = place >> _SHIFT
        i: cython.Py_ssize_t = self.indexes[k]
        item = self.items[k]
        if p.fixed >= 0:
            return 0.0 if p.fixed == i and not isinstance(item, _Hole) else _IMPOSSIBLE
        if i >= p.limit or not self.certain.fits(i, p.reply, p.named):
            return _IMPOSSIBLE
        if isinstance(item, _Hole):
            hole: _Hole = item
            return p.unseen_cost if place - (k << _SHIFT) < hole.max_count else _IMPOSSIBLE
        q: Request = item
        if q.is_unread:
            return p.unseen_cost
        is_other: cython.bint = q.echo_key != p.reply.echo_key and NO_ECHO_KEY not in (q.echo_key, p.reply.echo_key)
        return _IMPOSSIBLE if is_other and not self.certain.echoes else 0.0

    @cython.cfunc
    def _leave(self, index: cython.Py_ssize_t) -> cython.void:
        """Go on from a place without a reply: over a request, or out of a hole."""
        place: cython.longlong = self.places[index]
        k: cython.Py_ssize_t = place >> _SHIFT
        if k == len(self.items):
            return
        item = self.items[k]
        next_place: cython.longlong = (k + 1) << _SHIFT
        if isinstance(item, _Hole):
            hole: _Hole = item
            self._add_step(index, next_place, hole.cost(place - (k << _SHIFT)))
            return
        q: Request = item
        if (q.truncated or q.is_unread) and not self.all_count:
            self._add_step(index, next_place, 0.7)
        elif q.kind != ONE_REPLY:
            self._add_step(index, next_place, 0.3)

    # -- places ---------------------------------------------------------------------------------------------

    @cython.cfunc
    def _add_step(self, source: cython.Py_ssize_t, place: cython.longlong, cost: cython.double) -> cython.void:
        """Append a step to a place that `_put` makes."""
        n: cython.Py_ssize_t = len(self.sources)
        if self.step_count == n:
            self.sources, self.targets = np.resize(self.sources, 2 * n), np.resize(self.targets, 2 * n)
            self.step_costs = np.resize(self.step_costs, 2 * n)
        self.sources[self.step_count], self.targets[self.step_count] = source, place
        self.step_costs[self.step_count] = cost
        self.step_count += 1

    @cython.cfunc
    def _cost_after(self, step: cython.Py_ssize_t) -> cython.double:
        return self.costs[self.sources[step]] + self.step_costs[step]

    @cython.cfunc
    def _put(self, first_step: cython.Py_ssize_t) -> cython.bint:
        """Make the places of the steps from ``first_step`` on, in order, and those that `_leave` reaches from them."""
        best: cython.double = _IMPOSSIBLE
        i: cython.Py_ssize_t
        step: cython.Py_ssize_t
        end: cython.Py_ssize_t = self.step_count
        far: cython.longlong = 1 << 62
        for i in range(first_step, end):
            best = min(best, self._cost_after(i))
        if best >= _IMPOSSIBLE:
            return False
        self.begin, i = self.count, first_step
        j: cython.Py_ssize_t = end
        while i < end or j < self.step_count:
            place: cython.longlong = min(
                self.targets[i] if i < end else far, self.targets[j] if j < self.step_count else far
            )
            cost: cython.double = _IMPOSSIBLE
            first_step, first_left = i, j
            while i < end and self.targets[i] == place:
                cost = min(cost, self._cost_after(i))
                i += 1
            while j < self.step_count and self.targets[j] == place:
                cost = min(cost, self._cost_after(j))
                j += 1
            is_kept: cython.bint = cost <= best + _MAX_EXCESS
            for step in range(first_step, i):
                self.targets[step] = self.count if is_kept else -1
            for step in range(first_left, j):
                self.targets[step] = self.count if is_kept else -1
            if not is_kept:
                continue
            n: cython.Py_ssize_t = len(self.places)
            if self.count == n:
                if n >= MAX_PLACES:
                    return False
                self.places, self.costs = np.resize(self.places, 2 * n), np.resize(self.costs, 2 * n)
            self.places[self.count], self.costs[self.count] = place, cost
            self.count += 1
            self._leave(self.count - 1)
        return True

    @cython.cfunc
    def _add_reply(self, p: PlacedReply) -> cython.bint:
        """Append the places after a reply."""
        first_step: cython.Py_ssize_t = self.step_count
        index: cython.Py_ssize_t
        for index in range(self.begin, self.count):
            place: cython.longlong = self.places[index]
            k: cython.Py_ssize_t = place >> _SHIFT
            if place == 0 and self.is_late and not (self.certain.use_ids and p.named >= 0):
                self._add_step(index, 0, p.unseen_cost)
            if k == len(self.items):
                break
            cost: cython.double = self._reply_cost(p, place)
            if cost < _IMPOSSIBLE:
                self._add_step(index, place + 1 if isinstance(self.items[k], _Hole) else (k + 1) << _SHIFT, cost)
        self.moves.append((p, first_step, self.step_count))
        return self._put(first_step)

    @cython.cfunc
    def _add_hole(self, hole: _Hole) -> cython.bint:
        """Append the places after each number of replies in a hole of the server, and those after the hole."""
        free: PlacedReply = PlacedReply(phantom_reply(0, 0, 0, True), 1 << 62, -1, 0)
        ways: list = []
        while True:
            cost: cython.double = hole.cost(len(ways))
            ways.append((self.begin, self.count, cost))
            is_far: cython.bint = cost > _MAX_EXCESS and len(ways) > hole.usual + 1
            if is_far or len(ways) > hole.max_count or not self._add_reply(free):
                break
        first_step: cython.Py_ssize_t = self.step_count
        index: cython.Py_ssize_t
        for begin, end, cost in ways:
            for index in range(begin, end):
                self._add_step(index, self.places[index], cost)
        steps = [np.asarray(self.targets), np.asarray(self.sources), np.asarray(self.step_costs)]
        steps = [column[first_step : self.step_count] for column in steps]
        order = np.argsort(steps[0], kind="stable")
        for column in steps:
            column[:] = column[order]
        return self._put(first_step)

    # -- the best alignment and the next best -----------------------------------------------------------------

    @cython.ccall
    def likely(self, end: cython.Py_ssize_t, is_all: cython.bint, taken: dict) -> dict:
        """By row of a reply the index of its request and the margin, for likely pairs.

        ``end``: requests up to this index take part. ``is_all``: all of them are settled in the end, but for those of a
        hole that begins or goes on there. ``taken``: by index, the replies of certain pairs.
        """
        c: Alignment = self.certain
        q: Request
        is_open: cython.bint = False
        if end < len(c.ring):
            q = c.ring[end]
            if q.row < 0 and q.offset != NO_OFFSET:
                offset: cython.longlong = q.offset
                if q.kind == ANY_NUMBER:
                    is_open, end = True, end + 1
                elif end > c.start:
                    q = c.ring[end - 1]
                    is_open = q.row < 0 and q.offset == offset
        for q in c.ring[c.start : end]:
            self.is_late = self.is_late or (q.row < 0 and q.offset == NO_OFFSET)
        self.items, self.indexes = _with_holes(c.ring, c.start, end, False)
        result: dict[int, tuple[int, float]] = {}
        if not self._go_forward(taken):
            return result
        self.tails = np.full(self.count, 1e15)
        end_place: cython.longlong = (len(self.items) - is_open) << _SHIFT
        index: cython.Py_ssize_t
        for index in range(self.begin, self.count):
            if not is_all or self.places[index] >= end_place:
                self.tails[index] = 0.0
        following: cython.Py_ssize_t = self.step_count
        for p, first_step, end in reversed(self.moves):
            self._go_back(end, following, p, None)
            self._go_back(first_step, end, p, result)
            following = first_step
        return result

    @cython.cfunc
    def _go_forward(self, taken: dict) -> cython.bint:
        """Make all places; returns whether an alignment is left."""
        c: Alignment = self.certain
        p: PlacedReply
        r: Reply
        fixed: dict[int, int] = {}
        replies: list[Reply] = []
        kinds: Counter[tuple[int, int]] = Counter()
        max_cost: cython.double = MAX_TIED_COST if c.echoes else 1e3
        for index, r in taken.items():
            fixed[r.row] = index
        for p in c.placed:
            r = p.reply
            replies.append(r)
            p.fixed = fixed.get(r.row, -1)
            kinds[r.code, r.echo_key] += r.row >= 0
        for p in c.placed:
            share = kinds[p.reply.code, p.reply.echo_key] / max(kinds.total(), 1)
            p.unseen_cost = min(-math.log(share), max_cost) if p.fixed < 0 and share else _IMPOSSIBLE
        items, indexes = _with_holes(replies, 0, len(replies), True)
        self._add_step(0, 0, 0.0)
        is_left: cython.bint = self._put(0)
        for index, item in zip(indexes, items, strict=True):
            is_left = is_left and (
                self._add_hole(item) if isinstance(item, _Hole) else self._add_reply(c.placed[index])
            )
        return is_left

    @cython.cfunc
    def _go_back(
        self, first_step: cython.Py_ssize_t, end: cython.Py_ssize_t, p: PlacedReply, result: dict | None
    ) -> cython.void:  # fmt: skip
        """Costs from places to the end, over steps; and whether their reply has a likely request."""
        best: cython.double = _IMPOSSIBLE
        next_best: cython.double = _IMPOSSIBLE
        best_item: cython.Py_ssize_t = -1
        step: cython.Py_ssize_t
        for step in range(end - 1, first_step - 1, -1):
            source: cython.Py_ssize_t = self.sources[step]
            target: cython.Py_ssize_t = self.targets[step]
            if target < 0:
                continue
            cost: cython.double = self.step_costs[step] + self.tails[target]
            self.tails[source] = min(self.tails[source], cost)
            cost += self.costs[source]
            item: cython.Py_ssize_t = self.places[source] >> _SHIFT
            if cost < best and self.places[target] >> _SHIFT > item:
                next_best, best, best_item = min(next_best, best), cost, item
            else:
                next_best = min(next_best, cost)
        if result is None or p.reply.row < 0 or p.fixed >= 0 or best_item < 0 or next_best - best < MIN_MARGIN:
            return
        q: Request = self.items[best_item]
        if not (q.truncated or q.is_unread or p.reply.truncated):
            result[p.reply.row] = (self.indexes[best_item], min(next_best - best, MAX_MARGIN))
