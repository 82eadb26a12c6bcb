"""What a BlipMQ broker's queues allow: the ways through the open frames of a connection, followed side by side.

For ``blipmq_pairing``, which says what the open frames and answers of each connection are. A way is a choice of an
answer or silence for every open frame; with it goes what each subscription holds. ``Search`` drops the ways that the
queues forbid and says what all that are left agree on; ``Published`` and ``Stream`` are the messages a topic took.

Source: core/src/lib.rs, config/src/lib.rs, blipmqd/src/main.rs of bravo1goingdark/blipmq at 1d563c3.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mqpcap.protocols.blipmq.pairing import _Opens as Opens
    from mqpcap.protocols.blipmq.pairing import _World as World

I64 = NDArray[np.int64]
MS = 1_000_000
RETRY_NS = 100 * MS
"""config/src/lib.rs: the default of retry_backoff_ms; doubled with every delivery."""
TICK_NS = 200 * MS
"""blipmqd/src/main.rs:210: how often retries and expiry are looked at."""
JITTER_NS = 5 * MS
"""So much a tick may come early or late."""
TTL_NS = 60_000 * MS
"""blipmqd/src/main.rs:177: a message older than this is dropped."""
CAPACITY = 1024
"""core/src/lib.rs:340: messages waiting and in flight that a subscription holds."""
MAX_WAYS = 64
"""So many ways through a connection's open frames are followed at once; from there on order alone decides."""
MAX_STEPS = 400_000
"""And so many steps with more than one way; one that copies much counts for more."""
FREE_COPY = 16
MANY = 16
"""So many deliveries in flight are looked at one by one; of more, some may always have come back."""
MAX_SCAN = 4096
"""So far a queue is looked through for one message."""
SILENT, UNSURE = -1, -2


class Class(IntEnum):
    """What kind of answer a client frame gets."""

    NEVER = 0
    IGNORED = 1
    """NACK and PONG of a client in ``ready``: nothing is due, success or not."""
    FIXED = 2
    POLL = 3
    ACK = 4
    PUBLISH = 5
    BREAKS = 6
    """An unknown type: the server closes."""
    CUT = 7
    """Not all of its bytes were captured."""
    NO_REQUEST = 8


class Answer(IntEnum):
    """What a server frame is."""

    FIXED = 0
    DELIVERY = 1
    NOT_FOUND = 2
    REFUSED = 3
    PUSH = 4
    ODD = 5
    """Nothing a server says, or not readable."""


class Stream:
    """The messages a topic took, by the time they were captured; ``low``, ``high``: when they were handled.

    least, most   how many messages were surely, and possibly, handled in front of each
    certain       every delivery of the topic has a message here, and no message may have been refused

    What is asked for one message at a time is lists; with ``_`` behind the name it is an array.
    """

    def __init__(self, low: I64, high: I64, talk: I64, pos: I64, row: I64, body: I64, qos: I64, certain: bool) -> None:
        least, most = _ranks(low, high, talk)
        self.low_, self.high_, self.talk_, self.pos_, self.row_, self.body_ = low, high, talk, pos, row, body
        self.sure_ = least == most
        self.low, self.high, self.talk, self.pos = (x.tolist() for x in (low, high, talk, pos))
        self.row, self.body, self.qos = (x.tolist() for x in (row, body, qos))
        self.least, self.most = least.tolist(), most.tolist()
        self.certain = certain
        self.places: dict[int, list[int]] = {}

    def ranked(self, rank: int, body: int) -> list[int]:
        """The messages with a body that may have been the one of a rank."""
        if 0 <= rank < len(self.low) and self.least[rank] == self.most[rank]:
            return [rank] if self.body[rank] == body else []
        if not self.places:
            for k, one in enumerate(self.body):
                self.places.setdefault(one, []).append(k)
        at = self.places.get(body, [])
        near = at[bisect_left(at, rank - MAX_SCAN) : bisect_right(at, rank + MAX_SCAN)]
        return [k for k in near if self.least[k] <= rank <= self.most[k]]

    def sources(self, rank: I64, body: I64) -> I64:
        """The row of the one message that each rank and body can mean, -1 where there is none or a choice."""
        at = np.clip(rank, 0, max(len(self.row_) - 1, 0))
        sure = (rank == at) & self.sure_[at] if len(self.row_) else np.zeros(len(rank), np.bool_)
        found = np.full(len(rank), -1, np.int64)
        found[sure] = np.where(self.body_[at[sure]] == body[sure], self.row_[at[sure]], -1)
        for k in np.flatnonzero(~sure).tolist():
            fits = self.ranked(int(rank[k]), int(body[k]))
            if len(fits) == 1:
                found[k] = self.row[fits[0]]
        return found


class Published:
    """Every message that the connections of a server published, by topic."""

    def __init__(self, world: "World") -> None:
        x = world.x
        parts: list[tuple[I64, ...]] = []
        said: list[I64] = []
        doubts: list[I64] = []
        for i, t in enumerate(world.talks):
            taken = (t.kind == Class.NEVER) | (t.kind == Class.PUBLISH)
            taken[t.broken if t.broken is not None else len(taken) :] = False
            o = world.opens[i]
            if o is not None:
                places, outcome = np.array(o.f_pos, np.int64), np.array(o.outcome, np.int64)
                refused = (t.kind[places] == Class.PUBLISH) & (outcome != SILENT)
                taken[places[refused]] = False
                doubts.append(x.topic[t.c[places[refused & (outcome == UNSURE)]]])
            if ((t.answer == Answer.REFUSED) & (t.s_block < 0)).any():
                doubts.append(x.topic[t.c[taken]])
            at = np.flatnonzero(taken)
            doubts.append(x.topic[t.c[at[at < t.ready_from]]])
            parts.append((x.topic[t.c[at]], x.end[t.c[at]], t.handled_by[at], np.full(len(at), i), at, t.c[at]))
            said.append(t.s[t.answer == Answer.DELIVERY])
        topic, low, high, talk, pos, row = (np.concatenate([p[k] for p in parts]) for k in range(6))
        order = np.lexsort((pos, talk, low, topic))
        self.topic, self.row = topic[order], row[order]
        self.low, self.high, self.talk, self.pos = low[order], high[order], talk[order], pos[order]
        delivered = np.concatenate(said)
        self.x, self.delivered = x, delivered[np.argsort(x.topic[delivered], kind="stable")]
        self.doubtful = set(np.unique(np.concatenate([np.empty(0, np.int64), *doubts])).tolist())

    def stream(self, topic: int) -> Stream:
        """What one topic took."""
        x = self.x
        a, b = np.searchsorted(self.topic, (topic, topic + 1))
        low, high, talk, pos, row = (part[a:b] for part in (self.low, self.high, self.talk, self.pos, self.row))
        c, d = np.searchsorted(x.topic[self.delivered], (topic, topic + 1))
        certain = topic not in self.doubtful and bool(np.isin(x.body[self.delivered[c:d]], x.body[row]).all())
        return Stream(low, high, talk, pos, row, x.body[row], x.qos[row], certain)


def _ranks(low: I64, high: I64, talk: I64) -> tuple[I64, I64]:
    """How many messages were surely and possibly handled in front of each; those of one connection keep their order."""
    least = np.searchsorted(np.sort(high), low, "right")
    most = np.searchsorted(low, high, "left")
    for one in np.unique(talk).tolist():
        own = np.flatnonzero(talk == one)
        place = np.arange(len(own))
        least[own] += place - np.searchsorted(np.sort(high[own]), low[own], "right")
        most[own] += place - np.searchsorted(low[own], high[own], "left")
    return least.astype(np.int64), most.astype(np.int64)


class Queue(NamedTuple):
    """A subscription whose whole life is known: its topic's messages, how many came before it, its QoS."""

    stream: Stream
    base: int
    qos: int


class _Flight(NamedTuple):
    """A QoS1 delivery: not handed out before ``low``, not later than ``high``; ``back``: surely returned."""

    low: int
    high: int
    times: int
    place: int
    back: bool


class _Held:
    """What one subscription holds on one way: messages before ``head`` and those in ``done`` are out of the queue."""

    __slots__ = ("acked", "done", "flight", "head", "quiet")

    def __init__(self, head: int) -> None:
        self.head = head
        self.done: set[int] = set()
        self.flight: dict[int, _Flight] = {}
        self.acked: set[int] = set()
        self.quiet = -1
        """The last POLL that found nothing though a delivery may have returned."""

    @property
    def size(self) -> int:
        """How much a copy costs."""
        return len(self.done) + len(self.flight) + len(self.acked)

    def copy(self) -> "_Held":
        new = _Held(self.head)
        new.done, new.flight, new.acked = set(self.done), dict(self.flight), set(self.acked)
        new.quiet = self.quiet
        return new

    def key(self) -> tuple[object, ...]:
        return self.head, frozenset(self.done), frozenset(self.flight.items()), frozenset(self.acked)

    def take(self, index: int, skipping: bool) -> None:
        """A message leaves the queue; ``skipping``: all older ones were dropped before."""
        if skipping:
            self.head = index
            self.done = {d for d in self.done if d > index}
        if index > self.head:
            self.done.add(index)
            return
        self.head += 1
        while self.head in self.done:
            self.done.discard(self.head)
            self.head += 1


class _Way:
    """One way to place the answers so far: the next answer, and the subscriptions that differ from the common state."""

    __slots__ = ("answer", "held")

    def __init__(self, answer: int, held: dict[int, _Held]) -> None:
        self.answer, self.held = answer, held

    def key(self) -> tuple[object, ...]:
        return self.answer, tuple((s, h.key()) for s, h in sorted(self.held.items()))

    def join(self, other: "_Way") -> None:
        """Take in a way of equal key: the earlier empty POLL forbids less."""
        for sub, held in self.held.items():
            held.quiet = min(held.quiet, other.held[sub].quiet)


class _Effect(NamedTuple):
    """What an outcome does to a subscription: ``place`` is the message's in the topic's stream."""

    what: str
    tag: int = 0
    place: int = 0
    skipping: bool = False
    qos: int = 0


Key = tuple[object, ...]
Option = tuple[int, _Effect | None]


class Search:
    """All ways to place a connection's open answers that order, time and the queues allow."""

    def __init__(self, world: "World", talk: int, opens: "Opens", users: Mapping[int, int]) -> None:
        self.world, self.talk, self.o = world, talk, opens
        self.closed = world.talks[talk].closed
        self.queues: dict[int, Queue | None] = {}
        self.held: dict[int, _Held] = {}
        self.alone: set[int] = set()
        for sub in set(opens.f_sub):
            alone = users.get(sub) == talk
            queue = world.queue(sub) if alone else None
            self.queues[sub] = queue
            self.held[sub] = _Held(queue.base if queue is not None else 0)
            if alone:
                self.alone.add(sub)
        self.found = [SILENT] * len(opens.f_pos)
        self.steps = 0

    def outcome(self) -> list[int] | None:
        """What each frame got, UNSURE where ways differ; None if no way is left.

        With too many ways the rest is left as order alone has it.
        """
        ways: dict[Key, _Way] = {(): _Way(0, {})}
        window: list[tuple[int, dict[Key, list[tuple[Key, int]]]]] = []
        for f in range(len(self.found)):
            if len(ways) == 1:
                (way,) = ways.values()
                options = self._options(way, f)
                if len(options) == 1:
                    self.found[f] = options[0][0]
                    self._apply(way, f, options[0])
                    continue
            fresh: dict[Key, _Way] = {}
            edges: dict[Key, list[tuple[Key, int]]] = {}
            for old, way in ways.items():
                for option in self._options(way, f):
                    new = self._branch(way, f)
                    self._apply(new, f, option)
                    key = new.key()
                    fresh.setdefault(key, new).join(new)
                    edges.setdefault(key, []).append((old, option[0]))
            if not fresh:
                return None
            window.append((f, edges))
            if len(fresh) > MAX_WAYS or self.steps > MAX_STEPS:
                known = window[0][0]
                return self.found[:known] + self.o.outcome[known:]
            ways = fresh
            if len(ways) == 1:
                self._agree(window, set(ways))
                (way,) = ways.values()
                self.held.update(way.held)
                way.held = {}
        last = {key for key, way in ways.items() if way.answer == len(self.o.a_pos)}
        if not last:
            return None
        self._agree(window, last)
        return self.found

    def _agree(self, window: list[tuple[int, dict[Key, list[tuple[Key, int]]]]], reached: set[Key]) -> None:
        """Walk back from the ways that are left: where they agree a frame's outcome is certain."""
        for f, edges in reversed(window):
            outcomes, before = set(), set()
            for key in reached:
                for old, outcome in edges[key]:
                    outcomes.add(outcome)
                    before.add(old)
            self.found[f] = outcomes.pop() if len(outcomes) == 1 else UNSURE
            reached = before
        window.clear()

    def _branch(self, way: _Way, f: int) -> _Way:
        held = dict(way.held)
        sub = self.o.f_sub[f]
        held[sub] = self._of(way, sub).copy()
        self.steps += 1 + held[sub].size // FREE_COPY
        return _Way(way.answer, held)

    def _of(self, way: _Way, sub: int) -> _Held:
        return way.held.get(sub) or self.held[sub]

    def _apply(self, way: _Way, f: int, option: Option) -> None:
        """Change a way by what a frame got."""
        outcome, effect = option
        if outcome >= 0:
            way.answer = outcome + 1
        if effect is None:
            return
        o, held = self.o, self._of(way, self.o.f_sub[f])
        if effect.what == "quiet":
            held.quiet = f
        elif effect.what == "acked":
            held.flight.pop(effect.tag, None)
            held.acked.add(effect.tag)
            if self.queues[self.o.f_sub[f]] is not None:
                held.acked.clear()  # what is in flight says more
        elif effect.what == "refused":
            held.acked.add(effect.tag)
            if effect.tag in held.flight:
                held.flight[effect.tag] = held.flight[effect.tag]._replace(back=True)
        else:
            held.acked.discard(effect.tag)
            if effect.what == "again":
                old = held.flight.pop(effect.tag)
                low, high = o.f_end[o.first[outcome]], o.a_ts[outcome]
                held.flight[effect.tag] = _Flight(low, high, old.times + 1, old.place, False)
            elif effect.what == "fresh":
                held.take(effect.place, effect.skipping)
                if effect.qos:
                    low, high = o.f_end[o.first[outcome]], o.a_ts[outcome]
                    held.flight[effect.tag] = _Flight(low, high, 1, effect.place, False)

    def _options(self, way: _Way, f: int) -> list[Option]:
        """What a frame may get on a way; none if the way is impossible."""
        o, a = self.o, way.answer
        block = o.f_block[f]
        here = False
        if a < len(o.a_pos):
            if o.a_block[a] < block:
                return []
            here = o.a_block[a] == block
        if not here and not self.closed[block]:
            return [(UNSURE, None)]  # behind the last answer that was captured
        fits = here and o.first[a] <= f <= o.last[a] and self.world.may(self.talk, o, f, a)
        quiet = not here or o.last[a] > f
        kind = o.f_kind[f]
        if kind == Class.POLL:
            return self._poll(way, f, a if fits else -1, quiet)
        if kind == Class.ACK:
            return self._ack(way, f, a if fits else -1, quiet)
        options: list[Option] = [(a, None)] if fits else []
        if quiet:
            options.append((SILENT, None))
        return options

    def _poll(self, way: _Way, f: int, a: int, quiet: bool) -> list[Option]:
        sub = self.o.f_sub[f]
        queue = self.queues[sub]
        options: list[Option] = []
        if queue is None:
            if a >= 0:
                options.append((a, _Effect("unknown", self.o.a_id[a])))
            if quiet:
                options.append((SILENT, None))
            return options
        held = self._of(way, sub)
        self._expire(queue, held, f)
        if a >= 0:
            effect = self._next(queue, held, f, a)
            if effect is not None:
                options.append((a, effect))
        if quiet and not self._waits(queue, held, f):
            flights = held.flight
            back = len(flights) > MANY or any(self._may_be_back(queue, x, f) for x in flights.values())
            options.append((SILENT, _Effect("quiet") if back else None))
        return options

    def _ack(self, way: _Way, f: int, a: int, quiet: bool) -> list[Option]:
        o, sub = self.o, self.o.f_sub[f]
        tag, held = o.f_id[f], self._of(way, sub)
        silent = refused = True
        if self.queues[sub] is not None:
            flight = held.flight.get(tag)
            silent = flight is not None and not flight.back
            refused = flight is None or flight.back or self._may_be_back(self.queues[sub], flight, f)
        elif sub in self.alone:
            silent = tag not in held.acked
        options: list[Option] = []
        if a >= 0 and refused:
            options.append((a, _Effect("refused", tag)))
        if quiet and silent:
            options.append((SILENT, _Effect("acked", tag)))
        return options

    def _expire(self, queue: Queue, held: _Held, f: int) -> None:
        """Forget deliveries whose message is surely too old: they cannot come again."""
        old = self.o.f_end[f] - TTL_NS - TICK_NS - JITTER_NS
        while held.flight:
            tag, flight = next(iter(held.flight.items()))
            if queue.stream.high[flight.place] > old:
                return
            del held.flight[tag]

    def _may_be_back(self, queue: "Queue | None", flight: _Flight, f: int) -> bool:
        """Whether a delivery may have returned to the queue, or expired, when a frame was handled."""
        assert queue is not None
        due = flight.low + RETRY_NS * (1 << (flight.times - 1))
        return self.o.f_by[f] >= min(due, queue.stream.low[flight.place] + TTL_NS)

    def _surely_back(self, queue: Queue, flight: _Flight, f: int) -> bool:
        retry, at = self.world.retry_ns, self.o.f_end[f]
        if retry is None or flight.times >= self.world.most:
            return False
        due = flight.high + retry * (1 << (flight.times - 1)) + TICK_NS
        return at >= due and self.o.f_by[f] < queue.stream.low[flight.place] + TTL_NS

    def _came_back(self, quiet: int, flight: _Flight, f: int) -> bool:
        """Whether a delivery can have returned between a POLL that found nothing and the one that got it.

        Ticks have one period and one phase for all: if one fell between the two POLLs, the ticks at which other
        messages returned are known, and those must have been in time.
        """
        if quiet < 0 or self.o.f_end[quiet] < flight.high:
            return True
        early, late = self.o.f_end[quiet] - JITTER_NS, self.o.f_by[f] + JITTER_NS
        if late - early >= TICK_NS:
            return True
        # The tick before that one came too early: so long is the retry time at least.
        retry = (early - TICK_NS - flight.high) >> (flight.times - 1)
        for handed, times, again in self.world.returns:
            due = handed + max(retry, 0) * (1 << (times - 1))
            ticks = -((late - due) // TICK_NS)
            if max(due, early + ticks * TICK_NS) > again + JITTER_NS:
                return False
        return True

    def _waits(self, queue: Queue, held: _Held, f: int) -> bool:
        """Whether a message surely waited when a POLL was handled."""
        o, s = self.o, queue.stream
        end, by, pos = o.f_end[f], o.f_by[f], o.f_pos[f]
        k = held.head
        for k in range(held.head, min(len(s.low), held.head + MAX_SCAN)):
            if s.low[k] > end:
                break
            if k in held.done:
                continue
            arrived = s.pos[k] < pos if s.talk[k] == self.talk else s.high[k] <= end
            if arrived and by < s.low[k] + TTL_NS:
                return True
        if self.world.retry_ns is None:
            return False
        return any(self._surely_back(queue, x, f) for x in islice(held.flight.values(), MANY))

    def _next(self, queue: Queue, held: _Held, f: int, a: int) -> _Effect | None:
        """How an answer can be what a POLL takes from the queue; None if it cannot."""
        o = self.o
        if o.a_qos[a]:
            flight = held.flight.get(o.a_id[a])
            if flight is not None:
                same = queue.stream.body[flight.place] == o.a_body[a] and self._may_be_back(queue, flight, f)
                return _Effect("again", o.a_id[a]) if same and self._came_back(held.quiet, flight, f) else None
            return self._tagged(queue, held, f, a)
        s = queue.stream
        scanned = 0
        for k in range(held.head, len(s.low)):
            if s.low[k] > o.a_ts[a] or scanned > MAX_SCAN:
                return None
            if k in held.done:
                continue
            scanned += 1
            if s.body[k] == o.a_body[a] and min(s.qos[k], queue.qos) == 0 and self._arrived(s, k, f, a):
                return self._taken(queue, held, f, a, k)
        return None

    def _tagged(self, queue: Queue, held: _Held, f: int, a: int) -> _Effect | None:
        """The message that bears a tag: the k-th since the subscription, near its place by capture."""
        s = queue.stream
        for k in s.ranked(queue.base + self.o.a_id[a] - 1, self.o.a_body[a]):
            if (
                k >= held.head and k not in held.done and min(s.qos[k], queue.qos) == 1 and self._arrived(s, k, f, a)
            ):  # fmt: skip
                return self._taken(queue, held, f, a, k)
        return None

    def _arrived(self, s: Stream, k: int, f: int, a: int) -> bool:
        """Whether a message may have been in the queue when a POLL was handled."""
        if s.talk[k] == self.talk:
            return s.pos[k] < self.o.f_pos[f]
        return s.low[k] < self.o.f_by[f] and s.low[k] <= self.o.a_ts[a]

    def _taken(self, queue: Queue, held: _Held, f: int, a: int, k: int) -> _Effect | None:
        """Message k, unless one that surely waited in front of it was not dropped."""
        s, skipping = queue.stream, False
        for u in range(held.head, k):
            if u in held.done:
                continue
            first = s.talk[u] == s.talk[k] or s.high[u] <= s.low[k]
            if first and self.o.f_by[f] < s.low[u] + TTL_NS:
                arrived = bisect_right(s.low, self.o.a_ts[a])
                if arrived - held.head - len(held.done) + len(held.flight) <= CAPACITY:
                    return None
                if not self.o.a_qos[a] and s.body[held.head : arrived].count(self.o.a_body[a]) > 1:
                    return None  # which of them is left cannot be told
                skipping = True
        return _Effect("fresh", self.o.a_id[a], k, skipping, self.o.a_qos[a])
