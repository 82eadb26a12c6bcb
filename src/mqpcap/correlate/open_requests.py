# cython: language_level=3
"""The requests of a connection that are not decided: which of them a reply acknowledges, and which have its id.

In: requests and phantoms in TCP's order. Out: the ring that ``alignment`` places replies over, and limits of a reply's
candidates. Called by: ``matcher``.
"""

import cython

from mqpcap.correlate.alignment import Alignment, PlacedReply
from mqpcap.correlate.messages import ANY_NUMBER, ONE_REPLY, UNKNOWN, MatchResults, Reply, Request, phantom_request
from mqpcap.schema.requests import State
from mqpcap.tcp.flow_records import NO_OFFSET

MAX_COMPARED = 1024
"""Requests among which the client's own publish is looked for, and a request whose id another operation used later."""
MIN_DROPPED = 1024
"""Decided requests that leave the ring together."""


@cython.cclass
class OpenRequests:
    """The open requests of one connection; see the module.

    ``ring``: requests and phantoms, in order of their stream offsets.
    ``indexes_by_key``: by echo key the first and the last request with it, as indexes plus ``dropped_count``: requests
    that left the ring since the keys were last forgotten. ``keyed``: requests of the ring whose keys are there.
    ``acknowledged``: requests of the ring that the last reply acknowledged.
    ``last_phantom``, ``acknowledged_phantom``: index of the last phantom, and of the last among those, or -1.
    ``was_restarted``: a span was given up, so that captured requests are forgotten.
    """

    ring: list[Request]
    indexes_by_key: dict[int, tuple[int, int]]

    def __init__(self) -> None:
        self.ring, self.indexes_by_key, self.was_restarted = [], {}, False
        self.dropped_count = self.keyed = self.acknowledged = 0
        self.last_phantom = self.acknowledged_phantom = -1

    @cython.cfunc
    def at(self, i: cython.Py_ssize_t) -> Request:
        """The request at an index."""
        q: Request = self.ring[i]
        return q

    @cython.cfunc
    def add(self, q: Request) -> cython.void:
        """Append a request or a phantom."""
        if q.is_unread:
            self.last_phantom = len(self.ring)
        self.ring.append(q)

    @cython.cfunc
    def add_late_start(self) -> cython.void:
        """Append any number of requests before the capture."""
        self.add(phantom_request(NO_OFFSET, NO_OFFSET, ANY_NUMBER))

    @cython.cfunc
    def acknowledge(self, r: Reply) -> cython.void:
        """Count the requests that a reply acknowledges."""
        n: cython.Py_ssize_t = len(self.ring)
        q: Request
        while self.acknowledged < n:
            q = self.ring[self.acknowledged]
            if (r.ack != NO_OFFSET and q.reach > r.ack) or q.last_ack > r.offset:
                break
            if q.is_unread:
                self.acknowledged_phantom = self.acknowledged
            self.acknowledged += 1

    # -- limits of candidates ------------------------------------------------------------------------------

    @cython.cfunc
    def own_from(self, r: Reply, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The first request after the client's own publish of the message that a reply returns."""
        i: cython.Py_ssize_t = self.acknowledged
        least: cython.Py_ssize_t = max(start, i - MAX_COMPARED)
        if r.publish_offset < 0:
            return 0
        while i > least and self.at(i - 1).offset > r.publish_offset:
            i -= 1
        # Requests that were not looked at, or were given up, may follow the publish, too.
        is_unsure: cython.bint = i > start + 1 and i == least
        return 0 if is_unsure or (self.was_restarted and i <= start + 1) else i

    @cython.cfunc
    def look_up(self, p: PlacedReply, c: Alignment, max_keys: cython.Py_ssize_t) -> cython.void:
        """Limit the candidates of a reply that repeats an id to the captured requests with that id.

        A missing request may have any id: it remains a candidate, but for what `Alignment.fits` says of ``named``.
        """
        q: Request
        i: cython.Py_ssize_t
        if len(self.indexes_by_key) > max_keys:
            self.forget_keys()
        while self.keyed < self.acknowledged:
            q = self.ring[self.keyed]
            if not q.is_unread:
                i = self.keyed + self.dropped_count
                earliest, latest = self.indexes_by_key.get(q.echo_key, (i, i))
                self.indexes_by_key[q.echo_key] = (earliest if latest >= c.start + self.dropped_count else i, i)
            self.keyed += 1
        earliest, latest = self.indexes_by_key.get(p.reply.echo_key, (-1, -1))
        i = latest - self.dropped_count
        if i < c.start:
            return
        if i > self.acknowledged_phantom:
            p.limit = i + 1
        if self.acknowledged_phantom < c.low:
            p.least = earliest - self.dropped_count
        least: cython.Py_ssize_t = max(c.start, i - MAX_COMPARED)  # another operation may have used the id later
        while i >= least and (self.at(i).is_unread or not c.fits(i, p.reply, -1)):
            i -= 1
        p.named = i if i >= least else -1

    @cython.cfunc
    def forget_keys(self) -> cython.void:
        """Forget all keys, to make room."""
        self.indexes_by_key.clear()
        self.dropped_count = self.keyed = 0

    # -- requests out --------------------------------------------------------------------------------------

    @cython.cfunc
    def settle_below(self, place: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Requests below a place are decided, and leave the ring if they are many or all; returns the place then."""
        if place == len(self.ring) or (place > MIN_DROPPED and 2 * place > len(self.ring)):
            del self.ring[:place]
            self.dropped_count += place
            self.keyed = max(self.keyed - place, 0)
            self.acknowledged = max(self.acknowledged - place, 0)
            self.last_phantom -= place
            self.acknowledged_phantom -= place
            place = 0
        self.acknowledged = max(self.acknowledged, place)
        return place

    @cython.cfunc
    def take_from(self, place: cython.Py_ssize_t) -> list:
        """Empty the ring; returns the requests from a place on."""
        kept = self.ring[place:]
        del self.ring[:]
        self.forget_keys()
        self.acknowledged, self.last_phantom, self.acknowledged_phantom = 0, -1, -1
        return kept

    @cython.cfunc
    def restart_late(self, place: cython.Py_ssize_t) -> cython.void:
        """Begin again as after a late start, with the requests from a place on."""
        kept: list[Request] = self.take_from(place)
        q: Request
        self.was_restarted = True
        self.add_late_start()
        for q in kept:
            self.add(q)

    @cython.cfunc
    def forget_hole(self, place: cython.Py_ssize_t, latest: cython.Py_ssize_t) -> cython.void:
        """If a hole is decided in part, its length does not say how many of its requests are left after a place.

        latest: the last candidate of the last reply.
        """
        n: cython.Py_ssize_t = len(self.ring)
        if place == n or self.at(place).row >= 0:
            return
        offset: cython.longlong = self.at(place).offset
        is_split: cython.bint = place > 0 and self.at(place - 1).row < 0 and self.at(place - 1).offset == offset
        if self.at(place).kind == ANY_NUMBER:
            is_split = latest < 0 or latest == place
        while is_split and place < n and self.at(place).row < 0 and self.at(place).offset == offset:
            self.at(place).offset = NO_OFFSET
            place += 1

    @cython.cfunc
    def leave_unanswered(
        self, c: Alignment, results: MatchResults, lowest: cython.Py_ssize_t, highest: cython.Py_ssize_t, taken: dict,
        ambiguous: list, server_has_hole: cython.bint,
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
        for i in range(c.start, max(highest, doubt_to)):
            q = self.ring[i]
            if q.row < 0 or q.is_unread or i in taken:
                continue
            is_doubtful: cython.bint = doubt_from <= i < doubt_to and bool(c.accepted[q.code] & bits)
            if q.kind == ONE_REPLY:
                is_lost = server_has_hole and not is_doubtful and i < lowest
                results.state(q.row, State.LOST if is_lost else UNKNOWN)
            elif is_doubtful or server_has_hole:
                results.state(q.row, UNKNOWN)
