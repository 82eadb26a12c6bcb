# cython: language_level=3
"""Aligns the replies of a connection with its requests: first and last place of each reply.

In: a ring of requests, and replies in order. Out: for each reply the first and the last request that it may answer.

An alignment gives each reply a request. Its pairs do not cross, and it passes over no request that must be answered.
Operations and ids fit, and acknowledgements allow it. *Place* ``i``: all requests below index ``i`` are settled, and
the next reply answers ``i`` or a later one.
"""

from collections.abc import Sequence

import cython

from mqpcap.correlate.messages import ANY_NUMBER, ONE_REPLY, Reply, Request
from mqpcap.correlate.replay import ANY, MISSING, Replay
from mqpcap.schema.requests import NO_ECHO_KEY

MAX_CANDIDATES = 1024
"""Requests that are compared with one reply. With more, its first and last place stay as wide as they may be."""

_MAX_CANDIDATES = cython.declare(cython.Py_ssize_t, MAX_CANDIDATES)


@cython.cclass
class PlacedReply:
    """A reply in an alignment: its first and last place, and what limits its candidates.

    ``limit``: the reply acknowledges the requests below this index.
    ``named``: the last captured request whose id the reply repeats, or -1.
    ``least``: the first captured request whose id it repeats, if no missing request may have had that id, or 0.
    ``own_from``: the first request after the client's own publish of the returned message, or 0.
    ``fixed``, ``unseen_cost``: see `SpanAlignment`: its certain request, or -1; what it costs at a missing request.
    """

    def __init__(
        self, reply: Reply, limit: cython.Py_ssize_t, named: cython.Py_ssize_t, own_from: cython.Py_ssize_t
    ) -> None:
        self.reply, self.limit, self.named, self.own_from = reply, limit, named, own_from
        self.low = self.high = self.least = 0
        self.fixed, self.unseen_cost = -1, 0.0


Candidates = tuple[Reply, int, int]
"""A reply, and the first and the last request that it may answer, as indexes."""


@cython.cclass
class Alignment:
    """First and last place of the replies since the last anchor, over the requests of a ring.

    ``start``: the place of the last anchor, which every alignment passes.
    ``placed``: the replies since then. ``low``, ``high``: the first and the last place after all of them.
    ``far``: the last place that is known to be reached from ``high`` without a further reply: see `farthest`.
    ``accepted``: bits of the replies that a request accepts, by its code.
    ``use_ids``: whether a reply that names a captured request answers no phantom before it.
    ``use_publishes``: whether no other client published a message of this client.
    """

    placed: list[PlacedReply]

    def __init__(self, ring: list[Request], echoes: bool, accepted: Sequence[int]) -> None:
        self.ring, self.echoes, self.accepted = ring, echoes, accepted
        self.use_ids = self.use_publishes = False
        self.placed = []
        self.restart(0)

    @cython.ccall
    def restart(self, place: cython.Py_ssize_t) -> cython.void:
        """Begin at an anchor."""
        self.start = self.low = self.high = self.far = place
        if self.placed:
            self.placed = []

    @cython.cfunc
    def _kind(self, i: cython.Py_ssize_t) -> cython.int:
        q: Request = self.ring[i]
        return q.kind

    @cython.cfunc
    def _next(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The place after a reply to request ``i``."""
        return i if self._kind(i) == ANY_NUMBER else i + 1

    @cython.ccall
    def farthest(self) -> cython.Py_ssize_t:
        """The last place that is reached over requests that need no reply."""
        if self.far < self.high:
            self.far = self.high
        n: cython.Py_ssize_t = len(self.ring)
        while self.far < n and self._kind(self.far) != ONE_REPLY:
            self.far += 1
        return self.far

    @cython.ccall
    def fits(self, i: cython.Py_ssize_t, r: Reply, named: cython.Py_ssize_t) -> cython.bint:
        """Whether a reply may answer request ``i``; ``named``: the last captured request whose id it repeats."""
        q: Request = self.ring[i]
        if q.is_unread:
            return i > named or not self.use_ids
        if r.row < 0:
            return True
        if self.echoes and not r.echoes_nothing and (q.echo_key != r.echo_key or r.echo_key == NO_ECHO_KEY):
            return False
        return bool(self.accepted[q.code] & r.bit)

    @cython.cfunc
    def _first(
        self, p: PlacedReply, low: cython.Py_ssize_t, high: cython.Py_ssize_t, x: cython.Py_ssize_t,
        y: cython.Py_ssize_t, bound: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:  # fmt: skip
        """The first request in low..high that a reply may answer, so that the next place is in x..y; -1 if none is."""
        i: cython.Py_ssize_t
        low = max(low, p.least)
        if self.use_publishes and p.own_from > low:
            low = p.own_from
        if self.use_ids and p.named > low:
            low = p.named
        for i in range(low, min(high, low + bound) + 1):
            if x <= self._next(i) <= y and self.fits(i, p.reply, p.named):
                return i
        return low if high - low > bound else -1

    @cython.cfunc
    def _last(
        self, p: PlacedReply, earliest: cython.Py_ssize_t, high: cython.Py_ssize_t, x: cython.Py_ssize_t,
        y: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:  # fmt: skip
        """The last request in earliest..high likewise."""
        i: cython.Py_ssize_t
        least: cython.Py_ssize_t = max(earliest, high - _MAX_CANDIDATES)
        for i in range(high, least, -1):
            if x <= self._next(i) <= y and self.fits(i, p.reply, p.named):
                return i
        return least

    @cython.ccall
    def add(self, p: PlacedReply) -> cython.bint:
        """Place the next reply; returns whether it has a place."""
        r: Reply = p.reply
        n: cython.Py_ssize_t = len(self.ring)
        earliest: cython.Py_ssize_t
        latest: cython.Py_ssize_t
        p.low, p.high = self.low, self.farthest()
        if r.any_number:
            self.placed.append(p)
            self.high = max(p.high, p.limit)
            return True
        bound: cython.Py_ssize_t = min(p.high, p.limit - 1)
        earliest = self._first(p, self.low, bound, 0, n, _MAX_CANDIDATES if self.placed else n)
        if earliest < 0 and not r.may_be_missing:
            return False
        self.placed.append(p)
        if earliest < 0:
            self.high = p.high
            return True
        latest = self._last(p, earliest, bound, 0, n)
        if r.may_be_missing:
            self.high = max(p.high, self._next(latest))
            return True
        p.low = earliest
        self.low, self.high = self._next(earliest), self._next(latest)
        return True

    @cython.cfunc
    def take_first_of_queue(self) -> cython.void:
        """If all candidates of the only placed reply read one queue, the first of them gets the message.

        The client published the message before the first candidate, and the queue had it already.
        """
        p: PlacedReply = self.placed[0]
        q: Request
        earliest: Request = self.ring[p.low]
        if p.reply.publish_offset >= earliest.offset or earliest.is_unread:
            return
        for i in range(p.low, min(p.high, p.limit - 1) + 1):
            q = self.ring[i]
            if self.fits(i, p.reply, p.named) and q.payload_key != earliest.payload_key:
                return
        p.high = p.low
        self.high = self.far = self.low

    @cython.ccall
    def settle(self, x: cython.Py_ssize_t, y: cython.Py_ssize_t) -> list[Candidates] | None:
        """Each reply with the first and the last request that it may answer; None if no alignment is left.

        Goes back through the replies, as every alignment ends at a place in x..y.
        """
        p: PlacedReply
        r: Reply
        k: cython.Py_ssize_t
        earliest: cython.Py_ssize_t
        latest: cython.Py_ssize_t
        candidates: list[Candidates] = []
        for k in range(len(self.placed) - 1, -1, -1):
            p = self.placed[k]
            r = p.reply
            while x > self.start and self._kind(x - 1) != ONE_REPLY:
                x -= 1
            if r.any_number:
                x, y = p.low, min(p.high, y)
                candidates.append((r, -1, -1))
                continue
            high: cython.Py_ssize_t = min(p.high, p.limit - 1, y)
            earliest = latest = self._first(p, max(p.low, x - 1), high, x, y, _MAX_CANDIDATES)
            if earliest >= 0:
                latest = self._last(p, earliest, high, x, y)
            elif not r.may_be_missing:
                return None
            if earliest < 0:
                x, y = max(p.low, x), min(p.high, y)
            elif r.may_be_missing:
                x, y = max(p.low, min(x, earliest)), min(p.high, max(y, latest))
            else:
                x, y = earliest, latest
            candidates.append((r, earliest, latest))
        candidates.reverse()
        return candidates

    # -- the replay ----------------------------------------------------------------------------------------

    @cython.cfunc
    def offset_at(self, i: cython.Py_ssize_t) -> cython.longlong:
        """Stream offset of a request, or what stands for it in a replay."""
        q: Request = self.ring[i]
        return q.offset if q.row >= 0 else ANY if q.kind == ANY_NUMBER else MISSING

    @cython.cfunc
    def record(self, replay: Replay) -> cython.void:
        """Record the last reply that was placed, with the first and the last request that it may answer."""
        p: PlacedReply = self.placed[len(self.placed) - 1]
        earliest: cython.Py_ssize_t = p.low
        latest: cython.Py_ssize_t = min(p.high, p.limit - 1, len(self.ring) - 1)
        while earliest < latest and not self.fits(earliest, p.reply, p.named):
            earliest += 1
        while earliest < latest and not self.fits(latest, p.reply, p.named):
            latest -= 1
        offset: cython.longlong = p.reply.offset if p.reply.row >= 0 else MISSING
        places = (self.offset_at(earliest), self.offset_at(latest), latest - earliest + 1) if earliest <= latest else ()
        replay.add("reply", offset, *places)
