"""Which BlipMQ frame answers which: the messages of a broker's connections in, exchanges and deliveries out.

Fed by ``exchanges`` with the rows of every BlipMQ connection of a capture. Promises: no wrong pair, no false
``unanswered``; what the capture does not prove is ``unknown``.

How it works. The server handles the frames of a connection one after the other, so pairs never cross. Frames are
*fixed* (one answer each, known from their bytes and the connection's state), *open* (POLL, ACK, PUBLISH with QoS1: an
answer or silence) or *never* answered. Fixed answers pair by counting; bytes that are missing end the counting, and it
starts again at an answer that agrees with one frame only. Each fixed pair is a barrier; between two of them the open
answers, in their order, belong to open frames: of all ways to place them (kind, id, topic and time must fit) those that
every way shares are certain. Where that leaves a choice the queues of the subscriptions are simulated over the
capture, with every frame handled at some moment between its capture and the next proof of its handling: ways that
the queues forbid are dropped. ``_Talk`` is one connection, ``_World`` all connections of one server, ``Search`` the
ways through the open frames of a connection, ``Queue`` what is known of one subscription (both in ``blipmq_queues``).

Source: net/src/connection.rs, net/src/server.rs, core/src/lib.rs of bravo1goingdark/blipmq at 1d563c3.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.correlate.rows import Rows
from mqpcap.protocols.blipmq.aside import LAST, Numbers, Sieve, Straight
from mqpcap.protocols.blipmq.columns import (
    ACK,
    AUTH,
    DELIVER,
    HELLO,
    NACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    Columns,
    Says,
    any_of,
    coded,
    numbers,
)
from mqpcap.protocols.blipmq.queues import MS, SILENT, UNSURE, Answer, Class, Published, Queue, Search, Stream
from mqpcap.schema.protocol import Aside, EndColumns, Ends, Matches, Pairing, State, end_columns

I64 = NDArray[np.int64]
HANDLING_NS = 10 * MS
"""A frame is taken as handled so long after its capture, or as long as the slowest certain answer of its connection."""
NARROW = 64
"""Where an answer may be that of more frames, all between are taken as such until the queues are asked."""
COUNTED_IDS = 8
"""So many ids in strict order show that a client does not repeat them."""
LATE_NS = 60 * MS
"""So long after a late start an answer may be to a request from before (a delayed TCP ACK holds answers for 40 ms)."""
DIFFERENT_BODIES = 16
"""So many messages of a topic with no body twice show that a publish which was not captured had another one."""
NEVER_NS = 1 << 62
MAX_SHAPE_FRAMES = 64
"""Connections of so few frames are compared as a whole with those already counted,"""
MAX_SHAPES = 4096
"""of which so many are remembered."""


# -- one connection: classes, counting, blocks -----------------------------------------------------------


_WIDE = int(Says.SUBSCRIBED | Says.BAD_QOS | Says.TOPIC | Says.GROUP | Says.OTHER)
"""What a SUBSCRIBE of version 2 may get: its flags are younger than some of its servers."""


def _tables(two: bool) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Class and answers of each operation in ``ready``."""
    kind = np.full(DELIVER + 1, Class.BREAKS, np.int8)
    mask = np.zeros(DELIVER + 1, np.int32)
    for op, says in ((HELLO, Says.PERFORMED), (AUTH, Says.ALREADY), (PING, Says.PONG), (SUBSCRIBE, Says.SUBSCRIBED)):
        kind[op], mask[op] = Class.FIXED, says
    kind[[NACK, PONG]] = Class.IGNORED
    kind[PUBLISH], kind[ACK], kind[POLL] = Class.PUBLISH, Class.ACK, Class.POLL
    if two:
        kind[POLL], kind[DELIVER], mask[SUBSCRIBE] = Class.NEVER, Class.NO_REQUEST, _WIDE
    return kind, mask


_TABLES = {1: _tables(False), 2: _tables(True)}


_ODD_ANSWER = bytes([Answer.ODD])


class _Talk:
    """One connection. Positions count its frames per direction; ``c`` and ``s`` hold their rows.

    pair_c, pair_s     positions of fixed frames and of their answers
    c_block, s_block   block of each frame, -1 where nothing is counted
    closed             per block, whether a barrier or the end of the connection proves that all of it was handled
    ready_from         position from which on the connection was ready; behind the last frame if that is not proven
    broken             position of a frame that breaks framing, None if counting met none
    to_end             counting holds to the end of what was captured
    early_ns           when the last answer came that may be to a request from before a late start, -1 if none
    in_step            counting held without looking at times
    subscribed         places in ``pair_c`` of subscriptions made; ``uses`` positions of polls and acknowledgements;
                       ``open_answers`` positions of answers that several frames may have got
    """

    def __init__(self, x: Columns, edge: Ends, c: I64, s: I64, shapes: "_Shapes") -> None:
        self.x, self.edge, self.c, self.s = x, edge, c, s
        self.answer, self.says = x.answer[s], x.says[s]
        self.c_id, self.s_id = x.id[c], x.id[s]
        self.outcome: _Outcome | None = None
        shape = self._shape()
        if shape is not None and shape in shapes:
            self.__dict__.update(shapes[shape])
        else:
            self._read()
            if shape is not None and self.in_step and len(shapes) < MAX_SHAPES:
                self.outcome = None if (self.answer != Answer.FIXED).any() else _outcome(x, self, None)
                shapes[shape] = {name: getattr(self, name) for name in _STRUCTURE}

    def _shape(self) -> bytes | None:
        """All that counting looks at, where it looks at no time: a short connection, wholly captured from its start, of
        which nothing is odd."""
        x, edge, c = self.x, self.edge, self.c
        if len(c) + len(self.s) > MAX_SHAPE_FRAMES or not edge.start or edge.holes != ((), ()):
            return None
        answers = self.answer.tobytes()
        if b"\1" in x.odd[c].tobytes() or _ODD_ANSWER in answers:  # of so few bytes sooner than numpy
            return None
        flags = bytes((len(c), edge.reset, edge.server_fin, edge.client_fin, edge.covered))
        parts = (x.op[c], x.qos[c] == 0, x.version[c], self.c_id, self.s_id, self.says)
        return b"".join([flags, answers, *[part.tobytes() for part in parts]])

    def _read(self) -> None:
        """Count; sets what _STRUCTURE names."""
        x, c, s = self.x, self.c, self.s
        self.pairs: list[tuple[I64, I64]] = []
        self.in_step = True
        self.closed: list[bool] = []
        self.c_block = np.full(len(c), -1, np.int32)
        self.s_block = np.full(len(s), -1, np.int32)
        self.early_ns = -1
        self.lost: list[int] = []
        self.broken: int | None = None
        self.to_end = False
        self.version = 2 if (self.answer == Answer.PUSH).any() else 1
        self.c_holes = self._client_holes()
        self.s_holes = self._server_holes()
        self.start = self.edge.start or self._opens()
        self.ready_from = len(c) if self.start else 0
        self.kind, self.mask = np.empty(0, np.int8), np.empty(0, np.int32)
        self.in_order = _strictly_ordered(self.c_id[np.isin(x.op[c], (HELLO, AUTH, PUBLISH, SUBSCRIBE, PING, POLL))])
        self._count()
        none = np.empty(0, np.int64)
        self.pair_c = np.concatenate([none, *(a for a, _ in self.pairs)])
        self.pair_s = np.concatenate([none, *(b for _, b in self.pairs)])
        made = (x.op[c[self.pair_c]] == SUBSCRIBE) & (self.says[self.pair_s] == Says.SUBSCRIBED)
        self.subscribed = np.flatnonzero(made)
        self.uses = np.flatnonzero((self.kind == Class.POLL) | (self.kind == Class.ACK))
        open_s = np.isin(self.answer, (Answer.DELIVERY, Answer.NOT_FOUND, Answer.REFUSED))
        self.open_answers = np.flatnonzero(open_s & (self.s_block >= 0))

    @property
    def client_lost(self) -> bool:
        """Client frames of the captured time, or from before it, may be missing."""
        return not self.start or bool(self.c_holes) or (not self.to_end and not self.s_holes)

    def _client_holes(self) -> list[int]:
        """Positions in front of which client bytes are missing, a frame with a hole counting as missing.

        Bytes at the end that are no frame miss nothing: behind them no frame follows.
        """
        x, c = self.x, self.c
        offsets = [o for o in self.edge.holes[0] if o != self.edge.tails[0]]
        holes = {*np.searchsorted(x.offset[c], np.array(offsets, np.int64), "right").tolist()}
        for at in np.flatnonzero(x.cut[c]).tolist():
            if at < len(c) - 1 or max(offsets, default=-1) >= x.offset[c[at]]:
                holes |= {at, at + 1}
        return sorted(holes)

    def _server_holes(self) -> list[int]:
        offsets = np.array(self.edge.holes[1], np.int64)
        holes = {*np.searchsorted(self.x.offset[self.s], offsets, "right").tolist()}
        for at in np.flatnonzero(self.answer == Answer.ODD).tolist():
            holes |= {at, at + 1}
        return sorted(holes)

    def _opens(self) -> bool:
        """Whether a connection without its SYN begins with a HELLO that the server took."""
        x, c, s = self.x, self.c, self.s
        return bool(
            len(c) and len(s) and x.op[c[0]] == HELLO and x.offset[c[0]] == 0 and self.says[0] == Says.ZERO
            and self.c_id[0] == self.s_id[0] and x.end[c[0]] <= x.ts[s[0]]
            and 0 not in self.c_holes and 0 not in self.s_holes
        )  # fmt: skip

    def _classify(self) -> None:
        """Class of each frame as in ``ready``, and what a fixed one may be answered with."""
        x, c = self.x, self.c
        kinds, masks = _TABLES[self.version]
        op = x.op[c]
        slot = np.where((op >= HELLO) & (op <= DELIVER), op, 0)
        self.kind, self.mask = kinds[slot], masks[slot]
        self.kind[(op == PUBLISH) & (x.qos[c] == 0)] = Class.NEVER
        odd = np.flatnonzero(x.odd[c])
        if len(odd):
            self._classify_odd(odd)

    def _classify_odd(self, at: I64) -> None:
        """The same for frames with something to refuse; the later rules win as the server checks them first."""
        x, rows = self.x, self.c[at]
        op, bad, qos, two = x.op[rows], x.bad[rows], x.qos[rows], self.version == 2
        kind, mask = self.kind[at], self.mask[at]
        refused = Says.TOPIC | Says.OTHER if two else Says(0)
        publish, subscribe = op == PUBLISH, op == SUBSCRIBE
        rules = [((publish | subscribe) & (qos > 1), Says.BAD_QOS | refused)]
        if two:
            rules += [
                (publish & x.no_key[rows], Says.OTHER | Says.BAD_PUBLISH),
                (publish & x.nul[rows], Says.TOPIC | Says.BAD_QOS | Says.OTHER),
            ]
        rules += [
            ((publish | subscribe) & x.empty[rows], Says.EMPTY_TOPIC | refused),
            (publish & bad, Says.BAD_PUBLISH | refused),
            (subscribe & bad, Says.BAD_SUBSCRIBE | refused),
            (((op == ACK) | (op == POLL)) & (x.sub[rows] == 0), Says.ZERO_ID),
            ((op == ACK) & bad, Says.BAD_ACK),
            ((op == POLL) & bad, Says.BAD_POLL),
        ]
        for where, says in rules:
            kind[where] = Class.FIXED
            mask[where] = says | (_WIDE if two and says & (Says.BAD_QOS | Says.TOPIC) else 0) * subscribe[where]
        kind[x.cut[rows]] = Class.CUT
        self.kind[at], self.mask[at] = kind, mask

    def _count(self) -> None:
        """Fixed pairs, run by run, and the blocks between them."""
        at: tuple[int, int] | None = (0, 0)
        synced = self.start and 0 not in self.c_holes and 0 not in self.s_holes
        if synced:
            at, synced = self._handshake()
        else:
            self._classify()
        self._fixed_c = np.flatnonzero(self.kind == Class.FIXED)
        self._fixed_s = np.flatnonzero(self.answer == Answer.FIXED)
        greets, refused = self._unready()
        if not self.start and (greets >= 0 or refused >= 0 or not self._seems_ready()):
            self.ready_from = len(self.c)
        late = not self.start and not self.ready_from and 0 not in self.c_holes and 0 not in self.s_holes
        while at is not None:
            if not synced:
                self.in_step = False
                found = self._resynced(*at) or (self._first_fixed() if late else None)
                if late:
                    self._number_late(found)
                    late = False
                if found is None:
                    return
                self.pairs.append((np.array(found[:1], np.int64), np.array(found[1:], np.int64)))
                if found[0] >= greets and found[1] > refused and self.says[found[1]] != Says.PERFORMED:
                    self.ready_from = min(self.ready_from, found[0])
                at = found[0] + 1, found[1] + 1
            at = self._run(*at)
            synced = False

    def _seems_ready(self) -> bool:
        """Whether the server says something, and before any client byte is missing, that it says in ``ready`` only."""
        never = Says.ZERO | Says.PERFORMED | Says.OTHER
        proof = self.x.ts[self.s[(self.answer != Answer.ODD) & ((self.says & int(never)) == 0)]]
        if not self.c_holes:
            return bool(len(proof))
        before = self.x.end[self.c[self.c_holes[0] - 1]] if self.c_holes[0] else -1
        return bool((proof <= before).any())

    def _unready(self) -> tuple[int, int]:
        """The last frame of a greeting, and the last answer of a connection that is not ready; -1 if there is none."""
        greets = np.flatnonzero(np.isin(self.x.op[self.c], (HELLO, AUTH)))
        unready = Says.ZERO | Says.NOT_PERFORMED | Says.BAD_KEY | Says.BAD_VERSION | Says.BAD_HELLO | Says.BAD_AUTH
        refused = np.flatnonzero((self.says & int(unready | Says.UNAUTHENTICATED)) != 0)
        return int(greets.max(initial=-1)), int(refused.max(initial=-1))

    def _handshake(self) -> tuple[tuple[int, int] | None, bool]:
        """Pairs until the connection is ready: where counting goes on, None if nowhere, and whether it is in step."""
        x = self.x
        last = min(len(self.c), len(self.s), *self.c_holes, *self.s_holes)
        hello, at, ready, in_step, masks = False, 0, False, True, []
        while at < last and not ready:
            row = self.c[at]
            op = int(x.op[row])
            if x.cut[row] or not HELLO <= op <= (DELIVER if self.version == 2 else POLL):
                break
            may = _greeting(op, bool(x.bad[row]), hello)
            if self.answer[at] != Answer.FIXED or self.s_id[at] != self.c_id[at] or not self.says[at] & int(may):
                in_step = False
                break
            taken = self.says[at] == Says.ZERO
            if taken and op == HELLO:
                hello, self.version = True, 2 if x.version[row] == 2 else 1
            masks.append(int(may))
            ready = bool(taken and op == AUTH)
            at += 1
        self._classify()
        self.kind[:at], self.mask[:at] = Class.FIXED, masks
        self.pairs.append((np.arange(at), np.arange(at)))
        if ready:
            self.ready_from = at
            return (at, at), True
        if not in_step or self.c_holes or self.s_holes or (at < len(self.s) and at == len(self.c)):
            return (at, at), False
        self.to_end = True
        if at < len(self.c) and self.kind[at] == Class.BREAKS:
            self.broken = at
        return None, False

    def _run(self, c: int, s: int) -> tuple[int, int] | None:
        """Count from the positions on, as far as it holds: where it went wrong, None at the end."""
        c_end, gap_c = _next_hole(self.c_holes, c, len(self.c))
        s_end, gap_s = _next_hole(self.s_holes, s, len(self.s))
        breaks = np.flatnonzero(self.kind[c:c_end] == Class.BREAKS)
        live = c + int(breaks[0]) if len(breaks) else c_end
        a, b = _between(self._fixed_c, c, live), _between(self._fixed_s, s, s_end)
        n = min(len(a), len(b))
        agree = (self.c_id[a[:n]] == self.s_id[b[:n]]) & ((self.mask[a[:n]] & self.says[b[:n]]) != 0)
        n = n if agree.all() else int(np.argmin(agree))
        wrong = n < min(len(a), len(b)) or (len(b) > n and not gap_c)
        self.pairs.append((a[:n], b[:n]))
        at = (int(a[n - 1]) + 1, int(b[n - 1]) + 1) if n else (c, s)
        lost = wrong or gap_c or gap_s
        if wrong:  # somewhere behind the last pair bytes are missing
            live, s_end = at
        else:
            live = int(a[n]) if n < len(a) else live
            s_end = int(b[n]) if n < len(b) else s_end
        self._number(c, s, a[:n], b[:n], live, s_end, gap_c)
        all_handled = not lost and n == len(a) and self.edge.covered
        self.closed += [True] * n + [all_handled]
        if not lost:
            self.to_end = True
            self.broken = c + int(breaks[0]) if len(breaks) else None
        return at if lost else None

    def _number(self, c: int, s: int, a: I64, b: I64, c_end: int, s_end: int, gap: bool) -> None:
        """The blocks of a run, whose frames and answers end at ``c_end`` and ``s_end``."""
        base, n = len(self.closed), len(a)
        self.c_block[c:c_end] = base + np.searchsorted(a, np.arange(c, c_end), "right")
        block = base + np.searchsorted(b, np.arange(s, s_end), "right")
        if gap:
            # What came after the last frame in front of the gap may answer one in it.
            known = self.x.end[self.c[c_end - 1]] if c_end > 0 else -1
            block[(block == base + n) & (self.x.ts[self.s[s:s_end]] > known)] = -1
        self.s_block[s:s_end] = block

    def _first_fixed(self) -> tuple[int, int] | None:
        """After a late start the first fixed frame and the first fixed answer behind it, if that came late enough."""
        x, c, s = self.x, self._fixed_c, self._fixed_s
        if not len(c) or not len(s) or _next_hole(self.c_holes, 0, len(self.c))[0] <= c[0]:
            return None
        behind = s[x.ts[self.s[s]] >= x.end[self.c[c[0]]]]
        if not len(behind) or x.ts[self.s[behind[0]]] <= self.edge.first_ts_ns + LATE_NS:
            return None
        a = int(behind[0])
        fits = self.c_id[c[0]] == self.s_id[a] and self.mask[c[0]] & self.says[a]
        return (int(c[0]), a) if fits and _next_hole(self.s_holes, 0, len(self.s))[0] > a else None

    def _number_late(self, found: tuple[int, int] | None) -> None:
        """The block in front of the first fixed pair after a late start: its answers belong to captured frames once
        those to earlier requests have come."""
        x = self.x
        since = self.edge.first_ts_ns + LATE_NS
        c_end, gap_c = _next_hole(self.c_holes, 0, len(self.c))
        s_end, gap_s = _next_hole(self.s_holes, 0, len(self.s))
        breaks = np.flatnonzero(self.kind[:c_end] == Class.BREAKS)
        c_end = int(breaks[0]) if len(breaks) else c_end
        late = x.ts[self.s] > since
        first_c = self._fixed_c[0] if len(self._fixed_c) else len(self.c)
        asked = x.end[self.c[first_c]] if first_c < len(self.c) else NEVER_NS
        fixed_s = self._fixed_s[late[self._fixed_s] | (x.ts[self.s[self._fixed_s]] >= asked)]
        first_s = fixed_s[0] if len(fixed_s) else len(self.s)
        barrier = found is not None and found[0] == first_c and found[1] <= first_s and first_c < c_end
        if barrier and found is not None:
            first_s = found[1]
        c_to, s_to = min(c_end, int(first_c)), min(s_end, int(first_s))
        early = ~late[:s_to] & (self.answer[:s_to] != Answer.FIXED)
        self.early_ns = int(x.ts[self.s[:s_to]][early].max(initial=-1))
        if gap_c and c_to == c_end:
            # What came after the last frame in front of the gap may answer one in it.
            known = x.end[self.c[c_to - 1]] if c_to else -1
            late &= x.ts[self.s] <= known
        self.c_block[:c_to] = 0
        self.s_block[:s_to][late[:s_to]] = 0
        whole = c_to == len(self.c) and not gap_c and s_to == len(self.s) and not gap_s and self.edge.covered
        self.closed.append((barrier and s_to == first_s < s_end) or whole)

    @cached_property
    def _fixed_by_id(self) -> dict[int, list[int]]:
        """The fixed frames, in order, by their number."""
        by_id: dict[int, list[int]] = {}
        for f, number in zip(self._fixed_c.tolist(), self.c_id[self._fixed_c].tolist(), strict=True):
            by_id.setdefault(number, []).append(f)
        return by_id

    def _resynced(self, c: int, s: int) -> tuple[int, int] | None:
        """The next answer that agrees with exactly one fixed frame: the positions of both."""
        x = self.x
        client_lost = not self.start or bool(self.c_holes) or not self.s_holes
        if client_lost and not self.in_order:
            return None
        for at in self._fixed_s[np.searchsorted(self._fixed_s, s) :].tolist():
            row = self.s[at]
            alike = self._fixed_by_id.get(int(self.s_id[at]), [])
            fits = [
                f for f in alike[bisect_left(alike, c) :]
                if self.mask[f] & self.says[at] and x.end[self.c[f]] <= x.ts[row]
            ]  # fmt: skip
            if len(fits) == 1:
                self._give_up(c, fits[0], s, at)
                return fits[0], at
        return None

    def _give_up(self, c: int, c_to: int, s: int, s_to: int) -> None:
        """Note the frames whose answers must lie in a gap of the server's bytes."""
        if bisect_left(self.s_holes, s) == bisect_right(self.s_holes, s_to):
            return
        said: dict[int, int] = {}
        for a in _between(self._fixed_s, s, s_to).tolist():
            said[int(self.s_id[a])] = said.get(int(self.s_id[a]), 0) | int(self.says[a])
        odd = bool((self.answer[s:s_to] == Answer.ODD).any())
        for f in _between(self._fixed_c, max(c, self.ready_from), c_to).tolist():
            if not odd and not self.mask[f] & said.get(int(self.c_id[f]), 0):
                self.lost.append(f)

    @cached_property
    def slowest_ns(self) -> int:
        """How long the slowest answer took, at least HANDLING_NS."""
        took = self.x.ts[self.s[self.pair_s]] - self.x.end[self.c[self.pair_c]]
        return max(HANDLING_NS, int(took.max(initial=0)))

    @cached_property
    def handled_by(self) -> I64:
        """When each frame was handled at the latest: the next fixed answer, or the slowest answer's time later."""
        x = self.x
        late = x.end[self.c] + self.slowest_ns
        if self.edge.reset and not self.edge.covered:
            late[:] = NEVER_NS  # what stands behind the last answer may never have been handled
        if len(self.pair_c):
            after = np.searchsorted(self.pair_c, np.arange(len(self.c)), "left")
            answered = np.append(x.ts[self.s[self.pair_s]], NEVER_NS)
            # An answer captured in front of its request (packets in disorder) proves no time.
            late = np.minimum(late, np.maximum(answered[after], x.end[self.c]))
        return late


_STRUCTURE = (
    "pair_c", "pair_s", "c_block", "s_block", "closed", "ready_from", "broken", "to_end", "early_ns", "version",
    "c_holes", "s_holes", "start", "kind", "mask", "lost", "in_order", "in_step", "subscribed", "uses",
    "open_answers", "outcome",
)  # fmt: skip
_Shapes = dict[bytes, dict[str, Any]]
"""What was counted, by all that was looked at: many short connections say the same."""


def _next_hole(holes: Sequence[int], at: int, end: int) -> tuple[int, bool]:
    """The first hole from a position on, or the end, and whether there is a hole."""
    i = bisect_left(holes, at)
    return (holes[i], True) if i < len(holes) else (end, False)


def _between(positions: I64, low: int, high: int) -> I64:
    """Those of ascending positions in a range."""
    return positions[np.searchsorted(positions, low) : np.searchsorted(positions, high)]


def _greeting(op: int, bad: bool, hello: bool) -> Says:
    """What a frame may be answered with before the connection is ready."""
    if op == HELLO:
        if hello:
            return Says.PERFORMED
        return Says.BAD_HELLO if bad else Says.ZERO | Says.BAD_VERSION | Says.OTHER
    if op == AUTH:
        if not hello:
            return Says.NOT_PERFORMED
        return Says.BAD_AUTH if bad else Says.ZERO | Says.BAD_KEY | Says.OTHER
    return Says.UNAUTHENTICATED


def _strictly_ordered(ids: I64) -> bool:
    """Whether ids are enough, and only rise or only fall: then the client does not use one twice."""
    if len(ids) < COUNTED_IDS:
        return False
    unsigned = ids.view(np.uint64)
    return bool((unsigned[1:] > unsigned[:-1]).all() or (unsigned[1:] < unsigned[:-1]).all())


# -- all connections of a server ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Subscription:
    """A subscription whose SUBSCRIBE and its ACK are a certain pair; ``low``, ``high``: when it was made."""

    topic: int
    qos: int
    talk: int
    position: int
    low: int
    high: int


@dataclass(slots=True)
class _Opens:
    """The open frames (f_) and open answers (a_) of a connection, in order, and what is found out about them.

    f_row, a_row  their rows
    first, last   per answer the earliest and the latest frame that it may answer
    outcome       per frame: the answer, SILENT or UNSURE
    """

    f_row: I64
    a_row: I64

    f_pos: list[int]
    f_kind: list[int]
    f_id: list[int]
    f_sub: list[int]
    f_end: list[int]
    f_by: list[int]
    f_block: list[int]
    a_pos: list[int]
    a_kind: list[int]
    a_id: list[int]
    a_topic: list[int]
    a_qos: list[int]
    a_body: list[int]
    a_ts: list[int]
    a_block: list[int]
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    odd: set[int] = field(default_factory=set)
    """Blocks whose answers do not fit: bytes are missing."""


_ASKS: Mapping[int, int] = {
    Answer.DELIVERY: Class.POLL, Answer.NOT_FOUND: Class.ACK, Answer.REFUSED: Class.PUBLISH,
}  # fmt: skip
"""Which open frames an open answer may be to."""


def _grouped(keys: I64) -> Iterator[tuple[int, I64]]:
    """Each of the different keys, ascending, with its places."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    for begin, end in pairwise([*begins.tolist(), len(order)]):
        yield int(keys[order[begin]]), order[begin:end]


class _World:
    """All connections of one server endpoint."""

    def __init__(self, x: Columns, talks: list[_Talk]) -> None:
        self.x, self.talks = x, talks
        self.whole = all((t.to_end or not t.start) and not t.c_holes and not t.s_holes for t in talks)
        self.two = any(t.version == 2 for t in talks)
        self.first_ts = min((t.edge.first_ts_ns for t in talks), default=0)
        self.subs: dict[int, list[_Subscription]] = {}
        self._own: dict[tuple[int, int, int], dict[int, _Subscription]] = {}
        """By connection, number and topic, and then by qos: the first subscription of them."""
        self._first: dict[tuple[int, int], dict[int, list[_Subscription]]] = {}
        """By number and topic, and then by qos: the first subscription, and the first of another connection."""
        self.restarted = False
        self._subscribe()
        self.opens = [self._opens(i) for i in range(len(talks))]
        for i, o in enumerate(self.opens):
            if o is not None:
                self._bound(i, o)
        self.retry_ns: int | None = None
        self.most = 1
        self.returns: list[tuple[int, int, int]] = []
        """Certain redeliveries: when the message was handed out before, at which count, and when it came again."""
        self._published: Published | None = None
        self._streams: dict[int, Stream] = {}
        self._queues: dict[int, Queue | None] = {}
        if not self.two:
            self._search()

    def _subscribe(self) -> None:
        """The subscriptions that the capture shows being made."""
        x = self.x
        made: list[tuple[int, int, _Subscription]] = []
        for i, t in enumerate(self.talks):
            for k in t.subscribed.tolist():
                at = int(t.pair_c[k])
                c, s = int(t.c[at]), int(t.s[t.pair_s[k]])
                one = _Subscription(int(x.topic[c]), int(x.qos[c]), i, at, int(x.end[c]), int(x.ts[s]))
                made.append((one.high, int(x.sub[s]), one))
        made.sort(key=lambda m: m[:2])
        for _, number, one in made:
            self.restarted |= number in self.subs
            self.subs.setdefault(number, []).append(one)
        if 1 not in self.subs and not self.two:
            # blipmqd/src/main.rs:35-131: the self-test at start-up subscribes to `test` with QoS1 and gets id 1.
            topic = x.topic_names.index("test") if "test" in x.topic_names else -2
            self.subs[1] = [_Subscription(topic, 1, -1, -1, -1, -1)]
        for number, subs in self.subs.items():
            for one in subs:
                self._tell(number, one)

    def _tell(self, number: int, one: _Subscription) -> None:
        """Let a subscription be among those that are looked at, if it says more than they do."""
        own = self._own.setdefault((one.talk, number, one.topic), {})
        if one.qos not in own or one.position < own[one.qos].position:
            own[one.qos] = one
        alike = self._first.setdefault((number, one.topic), {})
        first, *others = sorted([*alike.get(one.qos, ()), one], key=lambda s: s.low)
        alike[one.qos] = [first, *[s for s in others if s.talk != first.talk][:1]]

    def told(self, i: int, number: int, topic: int) -> list[_Subscription]:
        """The subscriptions of a number to a topic that say of a connection's frames as much as all of them do.

        Of those that differ only in time the first is enough: what was not before another was not before it.
        """
        alike = self._first.get((number, topic), {}).values()
        others = (next((s for s in first if s.talk != i), None) for first in alike)
        return [*self._own.get((i, number, topic), {}).values(), *(s for s in others if s is not None)]

    def _opens(self, i: int) -> _Opens | None:
        """The open frames and answers of a connection that are counted, None where no open answer is."""
        x, t = self.x, self.talks[i]
        a = t.open_answers
        if not len(a):
            return None
        rows = t.s[a]
        refused = t.s_id[a[t.answer[a] == Answer.REFUSED]]
        kind = t.kind
        wanted = (kind == Class.POLL) | (kind == Class.ACK)
        if len(refused):
            wanted |= (kind == Class.PUBLISH) & np.isin(t.c_id, refused)
        f = np.flatnonzero(wanted & (t.c_block >= 0) & (np.arange(len(t.c)) >= t.ready_from))
        c = t.c[f]
        return _Opens(
            c, rows, f.tolist(), kind[f].tolist(), x.id[c].tolist(), x.sub[c].tolist(), x.end[c].tolist(),
            t.handled_by[f].tolist(), t.c_block[f].tolist(), a.tolist(), t.answer[a].tolist(), x.id[rows].tolist(),
            x.topic[rows].tolist(), x.qos[rows].tolist(), x.body[rows].tolist(), x.ts[rows].tolist(),
            t.s_block[a].tolist(),
        )  # fmt: skip

    def may(self, i: int, o: _Opens, f: int, a: int) -> bool:
        """Whether an answer fits a frame by what both say and when."""
        kind = o.a_kind[a]
        if o.f_end[f] > o.a_ts[a]:
            return False
        if kind == Answer.DELIVERY:
            if o.f_kind[f] != Class.POLL or (o.a_qos[a] == 0 and o.f_id[f] != o.a_id[a]):
                return False
            for s in self.told(i, o.f_sub[f], o.a_topic[a]):
                if s.qos >= o.a_qos[a] and not self._before(i, o, f, s):
                    return True
            return o.f_sub[f] not in self.subs
        return o.f_kind[f] == _ASKS[kind] and o.f_id[f] == o.a_id[a]

    @staticmethod
    def _before(i: int, o: _Opens, f: int, s: _Subscription) -> bool:
        """Whether a frame was surely handled before the subscription was made."""
        return o.f_pos[f] < s.position if i == s.talk else o.f_by[f] <= s.low

    def _bound(self, i: int, o: _Opens) -> None:
        """First and last frame of each answer, in order within its block."""
        n, m = len(o.f_pos), len(o.a_pos)
        polls = self._all_delivered(i, o)
        if polls is not None:
            o.first = o.last = polls.tolist()
            outcome = np.full(n, SILENT)
            outcome[polls] = np.arange(m)
            o.outcome = outcome.tolist()
            return
        first, last, f = [-1] * m, [-1] * m, 0
        for a in range(m):
            b = o.a_block[a]
            if b in o.odd:
                continue
            while f < n and (o.f_block[f] < b or (o.f_block[f] == b and not self.may(i, o, f, a))):
                f += 1
            if f == n or o.f_block[f] != b:
                o.odd.add(b)
            else:
                first[a] = f
                f += 1
        f = n - 1
        for a in range(m - 1, -1, -1):
            b = o.a_block[a]
            if b in o.odd:
                continue
            while f >= 0 and (o.f_block[f] > b or not self.may(i, o, f, a)):
                f -= 1
            last[a] = f
            f -= 1
        o.first, o.last = first, last
        o.outcome = [SILENT] * n
        for f in range(n):
            if o.f_block[f] in o.odd:
                o.outcome[f] = UNSURE
        for a in range(m):
            if o.a_block[a] not in o.odd and first[a] == last[a]:
                o.outcome[first[a]] = a
        self._mark(i, o)

    def _all_delivered(self, i: int, o: _Opens) -> I64 | None:
        """The polls, where each got a delivery and nothing else was said: then order leaves one way."""
        x, t = self.x, self.talks[i]
        f_pos, a_pos = np.array(o.f_pos, np.int64), np.array(o.a_pos, np.int64)
        polls = np.flatnonzero(t.kind[f_pos] == Class.POLL)
        if len(polls) != len(a_pos) or (t.answer[a_pos] != Answer.DELIVERY).any():
            return None
        pos, f, a = f_pos[polls], o.f_row[polls], o.a_row
        fits = (t.c_block[pos] == t.s_block[a_pos]) & (x.end[f] <= x.ts[a])
        fits &= (x.qos[a] != 0) | (x.id[f] == x.id[a])
        for number, mine in _grouped(x.sub[f]):
            for topic, some in _grouped(x.topic[a[mine]]) if number in self.subs else ():
                at = mine[some]
                may = np.zeros(len(at), np.bool_)
                for s in self.told(i, number, topic):
                    before = pos[at] < s.position if i == s.talk else t.handled_by[pos[at]] <= s.low
                    may |= (x.qos[a[at]] <= s.qos) & ~before
                fits[at] &= may
        return polls if fits.all() else None

    def _mark(self, i: int, o: _Opens) -> None:
        """Note the frames that more than one way gives an answer."""
        wide = {kind: [0] * (len(o.f_pos) + 1) for kind in _ASKS.values()}
        for a, (first, last) in enumerate(zip(o.first, o.last, strict=True)):
            if first == last or o.a_block[a] in o.odd:
                continue
            if last - first > NARROW:
                wide[_ASKS[o.a_kind[a]]][first] += 1
                wide[_ASKS[o.a_kind[a]]][last + 1] -= 1
                continue
            for f in range(first, last + 1):
                if o.outcome[f] == SILENT and self.may(i, o, f, a):
                    o.outcome[f] = UNSURE
        for kind, steps in wide.items():
            for f, depth in enumerate(accumulate(steps[:-1])):
                if depth and o.f_kind[f] == kind and o.outcome[f] == SILENT:
                    o.outcome[f] = UNSURE

    # -- the queues ------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Follow the ways through every connection whose open answers are not all certain yet."""
        users = self._users()
        for _ in range(3):
            open_talks = [i for i, o in enumerate(self.opens) if o is not None and UNSURE in o.outcome and not o.odd]
            if not open_talks:
                return
            for i in open_talks:
                o = self.opens[i]
                assert o is not None
                found = Search(self, i, o, users).outcome() if self.whole else None
                if found is None:  # nothing is known of the queues, or the wire contradicts what is
                    found = Search(self, i, o, {}).outcome()
                o.outcome = found or o.outcome
            if not self._learn():
                return

    def _users(self) -> dict[int, int]:
        """The connection that polls or acknowledges a subscription, -1 if there are several."""
        users: dict[int, int] = {}
        for i, t in enumerate(self.talks):
            for sub in set(self.x.sub[t.c[t.uses]].tolist()) if len(t.uses) else ():
                users[sub] = i if sub not in users and t.start else -1
        return users

    def _learn(self) -> bool:
        """An upper bound of the retry time and the most deliveries of a message, from redeliveries that are certain."""
        before = self.retry_ns, self.most, len(self.returns)
        if self.restarted:
            return False
        self.returns = []
        for o in self.opens:
            if o is None:
                continue
            seen: dict[tuple[int, int], tuple[int, int]] = {}
            for f, a in enumerate(o.outcome):
                if a < 0 or o.a_kind[a] != Answer.DELIVERY or o.a_qos[a] != 1:
                    continue
                key = o.f_sub[f], o.a_id[a]
                if key in seen:
                    n, then = seen[key]
                    bound = (o.a_ts[a] - then) // (1 << (n - 1))
                    self.retry_ns = bound if self.retry_ns is None else min(self.retry_ns, bound)
                    self.most = max(self.most, n + 1)
                    self.returns.append((then, n, o.a_ts[a]))
                    seen[key] = n + 1, o.f_end[f]
                else:
                    seen[key] = 1, o.f_end[f]
        return before != (self.retry_ns, self.most, len(self.returns))

    def sources(self, publish: list[tuple[I64, I64]]) -> None:
        """QoS1 deliveries and their publishes, by row, where the tag counts the messages since the subscription."""
        if self.two:
            return
        x = self.x
        for o in self.opens:
            if o is None:
                continue
            outcome = np.array(o.outcome, np.int64)
            frame = o.f_row[outcome >= 0]
            answer = o.a_row[outcome[outcome >= 0]]
            delivered = (x.answer[answer] == Answer.DELIVERY) & (x.qos[answer] != 0)
            frame, answer = frame[delivered], answer[delivered]
            for number, of in _grouped(x.sub[frame]):
                queue = self.queue(number)
                if queue is not None:
                    mine = answer[of]
                    source = queue.stream.sources(queue.base + x.id[mine] - 1, x.body[mine])
                    known = source >= 0
                    if known.any():
                        publish.append((mine[known], source[known]))

    def stream(self, topic: int) -> "Stream":
        """What was published to a topic."""
        if topic not in self._streams:
            if self._published is None:
                self._published = Published(self)
            self._streams[topic] = self._published.stream(topic)
        return self._streams[topic]

    def queue(self, number: int) -> "Queue | None":
        """What is known of a subscription's queue from its beginning on; None if its life or its messages are not."""
        if number not in self._queues:
            self._queues[number] = self._queue(number)
        return self._queues[number]

    def _queue(self, number: int) -> "Queue | None":
        made = self.subs.get(number, [])
        if not self.whole or self.restarted or len(made) != 1 or made[0].talk < 0:
            return None
        one = made[0]
        if not all(t.start for t in self.talks) and one.low < self.first_ts + max(t.slowest_ns for t in self.talks):
            return None
        stream = self.stream(one.topic)
        if not stream.certain:
            return None
        same = stream.talk_ == one.talk
        before = np.where(same, stream.pos_ < one.position, stream.high_ <= one.low)
        behind = np.where(same, stream.pos_ > one.position, stream.low_ >= one.high)
        if not (before | behind).all():
            return None
        return Queue(stream, int(before.sum()), one.qos)


# -- what comes out ----------------------------------------------------------------------------------------


class _Out:
    """Exchanges as they are found, by row number."""

    def __init__(self) -> None:
        self.parts: list[tuple[I64, I64, NDArray[np.int8]]] = []
        self.publish: list[tuple[I64, I64]] = []
        """Rows of deliveries, and of what was published."""

    def add(self, request: Numbers, reply: Numbers, state: NDArray[np.int8] | State) -> None:
        n = max(len(request), len(reply))
        none = np.full(n, -1, np.int64)
        states = np.full(n, state, np.int8) if isinstance(state, State) else state
        self.parts.append((request if len(request) else none, reply if len(reply) else none, states))

    def pairing(self) -> Pairing:
        empty = np.empty(0, np.int64)
        request = np.concatenate([empty, *(p[0] for p in self.parts)])
        reply = np.concatenate([empty, *(p[1] for p in self.parts)])
        state = np.concatenate([np.empty(0, np.int8), *(p[2] for p in self.parts)])
        publish = None
        if self.publish:
            known, rows = (np.concatenate([p[k] for p in self.publish]) for k in range(2))
            order = np.argsort(known)
            at = order[np.minimum(np.searchsorted(known, reply, sorter=order), len(known) - 1)]
            publish = np.where(known[at] == reply, rows[at], -1)
        return Pairing(request, reply, state, publish)


_Outcome = tuple[I64, I64, NDArray[np.int8], I64, NDArray[np.int8]]
"""Positions of requests, of their replies (-1: none), their states; positions of answers without one, their states."""


def _settle(t: _Talk, o: _Opens | None, out: _Out) -> None:
    """Every exchange of a connection."""
    asked, reply, state, left, left_state = t.outcome if t.outcome is not None else _outcome(t.x, t, o)
    if len(asked):
        out.add(t.c[asked], np.where(reply >= 0, t.s[reply], -1) if len(t.s) else reply, state)
    if len(left):
        out.add(np.empty(0, np.int64), t.s[left], left_state)


def _outcome(x: Columns, t: _Talk, o: _Opens | None) -> _Outcome:
    n = len(t.c)
    reply = np.full(n, -1, np.int64)
    reply[t.pair_c] = t.pair_s
    unsure = _unsure(t, o)
    handled = int(t.pair_c[-1]) if len(t.pair_c) else -1
    if o is not None:
        outcome = np.array(o.outcome, np.int64)
        pos = np.array(o.f_pos, np.int64)
        got = outcome >= 0
        reply[pos[got]] = np.array(o.a_pos, np.int64)[outcome[got]]
        unsure[pos[outcome == UNSURE]] = True
        first = np.array(o.first, np.int64)
        handled = max(handled, int(pos[got].max(initial=-1)), int(pos[first[first >= 0]].max(initial=-1)))
    if t.early_ns >= 0:  # those may have got an answer that may also be older
        unsure |= (t.c_block == 0) & (x.end[t.c] <= t.early_ns) & (reply < 0)
    for f, a in _by_id(x, t, reply):
        reply[f] = a
        handled = max(handled, f)
    state = _states(t, reply, unsure, handled)
    asked = (t.kind != Class.BREAKS) & (t.kind != Class.NO_REQUEST) & ~((t.kind == Class.CUT) & ~_requests(x.op[t.c]))
    asked |= reply >= 0
    left, left_state = _alone(x, t, reply)
    return np.flatnonzero(asked), reply[asked], state[asked], left, left_state


def _unsure(t: _Talk, o: _Opens | None) -> NDArray[np.bool_]:
    """The frames of blocks with an open end that may have an answer which was not captured."""
    if not t.closed:
        return np.zeros(len(t.c), np.bool_)
    known = np.where(np.array(t.closed, np.bool_), len(t.c), -1)
    if o is not None:
        for block, first in zip(o.a_block, o.first, strict=True):
            if first >= 0 and not t.closed[block]:
                known[block] = max(known[block], o.f_pos[first])
    return (t.c_block >= 0) & (np.arange(len(t.c)) > known[t.c_block])


def _requests(op: NDArray[np.int16]) -> NDArray[np.bool_]:
    return (op >= HELLO) & (op <= POLL)


def _states(t: _Talk, reply: I64, unsure: NDArray[np.bool_], handled: int) -> NDArray[np.int8]:
    """The state of each client frame."""
    n = len(t.c)
    at = np.arange(n)
    state = np.full(n, State.UNKNOWN, np.int8)
    ready = at >= t.ready_from
    front = at < (n if t.broken is None else t.broken)
    proven = at <= handled
    if t.to_end and t.edge.covered:
        proven |= front
    quiet = ready & proven & front & (t.kind == Class.NEVER)
    opened = (t.kind == Class.POLL) | (t.kind == Class.ACK) | (t.kind == Class.PUBLISH)
    quiet |= ready & proven & front & opened & ~unsure & (t.c_block >= 0)
    state[quiet] = State.SILENT
    state[ready & (t.kind == Class.IGNORED)] = State.NOT_EXPECTED
    due = t.kind == Class.FIXED
    last = t.pair_c[-1] if len(t.pair_c) else -1
    if t.to_end and (t.edge.reset or t.edge.server_fin):
        state[due & (at > last)] = State.UNANSWERED
        if t.edge.server_fin and t.edge.covered:
            state[opened & ~front] = State.UNANSWERED
    state[np.array(t.lost, np.int64)] = State.LOST
    state[reply >= 0] = State.ANSWERED
    return state


def _by_id(x: Columns, t: _Talk, reply: I64) -> Iterator[tuple[int, int]]:
    """Pairs of open frames and answers outside the counted runs, where the client uses no id twice."""
    if not t.in_order:
        return
    away = (t.s_block < 0) & ((t.answer == Answer.REFUSED) | ((t.answer == Answer.DELIVERY) & (x.qos[t.s] == 0)))
    if not away.any():
        return
    polls = {int(t.c_id[f]): int(f) for f in np.flatnonzero((t.kind == Class.POLL) & (reply < 0)).tolist()}
    publishes = {int(t.c_id[f]): int(f) for f in np.flatnonzero((t.kind == Class.PUBLISH) & (reply < 0)).tolist()}
    for a in np.flatnonzero(away).tolist():
        found = (publishes if t.answer[a] == Answer.REFUSED else polls).pop(int(t.s_id[a]), None)
        if found is not None and x.end[t.c[found]] <= x.ts[t.s[a]]:
            yield found, a


def _alone(x: Columns, t: _Talk, reply: I64) -> tuple[I64, NDArray[np.int8]]:
    """Positions of answers without a request, and their states."""
    taken = np.zeros(len(t.s), np.bool_)
    taken[reply[reply >= 0]] = True
    answers = np.isin(x.op[t.s], (PUBLISH, ACK, NACK, PONG)) & ~taken
    left = np.flatnonzero(answers)
    state = np.full(len(left), State.UNKNOWN, np.int8)
    if len(left) and (not t.start or t.c_holes):
        free = np.flatnonzero(reply < 0)
        by_id: dict[int, list[int]] = {}
        for f in free.tolist():
            by_id.setdefault(int(t.c_id[f]), []).append(f)
        ends = x.end[t.c[free[np.isin(t.kind[free], (Class.POLL, Class.CUT))]]]
        first_poll = int(ends.min()) if len(ends) else NEVER_NS
        for k, a in enumerate(left.tolist()):
            row = t.s[a]
            if t.answer[a] == Answer.ODD:
                continue
            if t.answer[a] == Answer.DELIVERY and x.qos[row] != 0:
                alone = first_poll > x.ts[row]
            else:
                alone = all(x.end[t.c[f]] > x.ts[row] for f in by_id.get(int(t.s_id[a]), ()))
            if alone:
                state[k] = State.ORPHAN
    return left, state


def _worlds(x: Columns, ends: Mapping[int, Ends], chosen: I64) -> list[list[_Talk]]:
    """The connections of some rows, server by server."""
    worlds: dict[str, list[_Talk]] = {}
    shapes: _Shapes = {}
    for number, c, s in _by_connection(x, chosen):
        talk = _Talk(x, ends[number], c, s, shapes)
        worlds.setdefault(talk.edge.server, []).append(talk)
    for talks in worlds.values():
        talks.sort(key=lambda t: (t.edge.first_ts_ns, t.edge.connection_id))
    return list(worlds.values())


def _by_connection(x: Columns, rows: I64) -> Iterator[tuple[int, I64, I64]]:
    """Of each connection the rows of client and server, by their places in the streams."""
    if not len(rows):
        return
    encoded = pa.array(x.connection[rows]).dictionary_encode()
    side = encoded.indices.to_numpy() * 2 + ~x.client[rows]
    count = 2 * len(encoded.dictionary)
    # numpy sorts 16 bits in linear time.
    order = np.argsort(side.astype(np.uint16) if count <= 1 << 16 else side, kind="stable")
    rows, side = rows[order], side[order]
    borders = np.append(0, np.cumsum(np.bincount(side, minlength=count)))
    offset = x.offset[rows]
    mixed = (offset[1:] <= offset[:-1]) & (side[1:] == side[:-1])
    for one in np.unique(side[1:][mixed]).tolist():
        of = slice(borders[one], borders[one + 1])
        rows[of] = rows[of][np.argsort(offset[of], kind="stable")]
    sides = np.split(rows, borders[1:-1])
    yield from zip(encoded.dictionary.to_pylist(), sides[::2], sides[1::2], strict=True)


def pairs(rows: Rows, ends: Mapping[int, Ends]) -> Pairing:
    """The exchanges of all BlipMQ connections of a capture.

    Of servers that no consumer is heard of publishes are set aside: how far such a server came on a connection tells
    of all of them.
    """
    sieve = Sieve(rows)
    edges = end_columns(ends, sieve.connection)
    few, of = sieve.few(sieve.plain(edges))
    found, end = _few(rows, sieve, few, of, edges, ends)
    told = end >= 0
    if not told.any():
        return _paired(Columns(rows), ends)
    others = sieve.all_of(~told)
    seen = np.sort(np.concatenate([few[told[of]], others]))
    if len(others):
        found = found.plus(_paired(Columns(rows.chosen(others)), ends).of(others))
    return replace(found, aside=Aside(seen, sieve.connection[told], end[told]))


def _few(
    rows: Rows, sieve: Sieve, few: Numbers, of: Numbers, edges: EndColumns, ends: Mapping[int, Ends]
) -> tuple[Pairing, I64]:
    """The exchanges of servers that tell of all their publishes; ``few`` and ``of`` are the rows that count.

    And per connection up to which stream offset its publishes are silent; -1 of other servers.
    """
    end = np.full(len(sieve.connection), -1)
    straight: list[tuple[Numbers, Numbers, Numbers]] = []
    for group in sieve.groups(of):
        x = Columns(rows.chosen(few[group]))
        one = Straight(x)
        place = sieve.places(one.connection)
        ready = one.ready < sieve.first[place]
        end[place[ready]] = np.where(edges.covered[place], NEVER_NS, one.last)[ready]
        request, reply = group[one.request], group[one.reply]
        good = end[of[request]] >= 0
        straight.append((few[request[good]], few[reply[good]], of[request[good]]))
    found = _not_straight(rows, sieve, few[end[of] < 0], edges, ends, end)
    out = _Out()
    for request, reply, place in straight:
        told = end[place] >= 0
        out.add(request[told], reply[told], State.ANSWERED)
    return found.plus(out.pairing()), end


def _not_straight(
    rows: Rows, sieve: Sieve, left: Numbers, edges: EndColumns, ends: Mapping[int, Ends], end: I64
) -> Pairing:
    """The same for the rows of the other connections; ``end`` is told of them, and of servers that do not tell."""
    out, x = _Out(), Columns(rows.chosen(left))
    for talks in _worlds(x, ends, np.arange(x.n)):
        places = sieve.places(np.array([t.edge.connection_id for t in talks], np.int64))
        firsts = sieve.first[places].tolist()
        if all(_tells_of_aside(t, first) for t, first in zip(talks, firsts, strict=True)):
            end[places] = [_silent_to(t) for t in talks]
            for talk in talks:
                _settle(talk, None, out)
        else:
            end[edges.server == edges.server[places[0]]] = -1
    return out.pairing().of(left)


def _paired(x: Columns, ends: Mapping[int, Ends]) -> Pairing:
    out = _Out()
    for talks in _worlds(x, ends, np.arange(x.n)):
        world = _World(x, talks)
        for talk, opens in zip(talks, world.opens, strict=True):
            _settle(talk, opens, out)
        world.sources(out.publish)
    return out.pairing()


def _tells_of_aside(t: _Talk, first: int) -> bool:
    """Whether the publishes of a connection, the first at a stream offset, are all silent as far as the server came."""
    k = t.ready_from - 1
    ready = 0 <= k < len(t.s) and t.x.op[t.c[k]] == AUTH and t.says[k] == Says.ZERO
    answered = len(t.pair_c) == np.count_nonzero(t.kind == Class.FIXED)
    counted = t.in_step and t.broken is None and (answered or not t.edge.covered)
    return first == LAST or (counted and ready and bool(t.x.offset[t.c[k]] < first))


def _silent_to(t: _Talk) -> int:
    """The stream offset up to which the server surely handled what it did not answer."""
    if t.to_end and t.edge.covered:
        return NEVER_NS
    return int(t.x.offset[t.c[t.pair_c[-1]]]) if len(t.pair_c) else 0


def deliveries(rows: Rows, ends: Mapping[int, Ends], pairs: Pairing) -> Matches:
    """The publish of each delivery: by tag where the subscription's life is known, else by a body sent only once."""
    none = np.empty(0, np.int64)
    seen = np.arange(rows.num_rows) if pairs.aside is None else pairs.aside.seen
    if pairs.aside is not None:  # nothing was delivered of what was set aside
        rows = rows.chosen(seen)
    if not any(_delivers(block) for _, block in rows.blocks()):
        return Matches(none, none, (), ())
    x = Columns(rows)
    state = np.full(x.n, -1, np.int8)
    asked = pairs.request >= 0
    state[np.searchsorted(seen, pairs.request[asked])] = pairs.state[asked]
    whole, server = _captured(x, ends)
    delivered = np.flatnonzero((x.answer == Answer.DELIVERY) | ((x.answer == Answer.PUSH) & ~x.bad & ~x.cut))
    published = np.flatnonzero(
        x.client & (x.op == PUBLISH) & ((state == State.SILENT) | (state == State.UNKNOWN)) & ~x.bad & ~x.cut
    )
    if not len(delivered):
        return Matches(none, none, (), ())
    source = np.full(x.n, -1, np.int64)
    if pairs.publish is not None:
        known = pairs.publish >= 0
        source[np.searchsorted(seen, pairs.reply[known])] = np.searchsorted(seen, pairs.publish[known])
    tagged = delivered[source[delivered] >= 0]
    rest = delivered[source[delivered] < 0]
    place = server * (len(x.topic_names) + 1) + x.topic + 1
    one, count, sure = _only(x, place, published, rest)
    sure &= whole[rest] | _all_differ(x, place, published, rest)
    hashed = rest[sure]
    tags = x.id[tagged].view(np.uint64).tolist()
    digests = rows["body_sha256"].take(pa.array(hashed)).to_pylist()
    return Matches(
        seen[np.concatenate([source[tagged], one[sure]])], seen[np.concatenate([tagged, hashed])],
        ["tag"] * len(tagged) + ["body_hash"] * len(hashed), [*map(str, tags), *digests],
        int(((count > 0) & ~sure).sum()),
    )  # fmt: skip


def _delivers(rows: Rows) -> bool:
    """Whether a server sends a message."""
    op, (side, sides) = numbers(rows["op_code"], -1), coded(rows.coded("direction"))
    from_server = any_of(side, [i for i, x in enumerate(sides) if x == "s2c"])
    return bool((((op == PUBLISH) | (op == DELIVER)) & from_server).any())


def _keys(x: Columns, place: I64, rows: I64) -> I64:
    """A number for server, topic and body; bodies have 60-bit fingerprints, so different ones differ here too."""
    return np.asarray(x.body[rows] ^ (place[rows] * np.int64(0x1E3779B97F4A7C15)), np.int64)


def _only(x: Columns, place: I64, published: I64, delivered: I64) -> tuple[I64, I64, NDArray[np.bool_]]:
    """Per delivery the first publish of its topic and body, how many there are, and whether it alone came before."""
    if not len(published) or not len(delivered):
        n = len(delivered)
        return np.full(n, -1, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    key = _keys(x, place, published)
    order = np.lexsort((x.ts[published], key))
    published, key = published[order], key[order]
    wanted = _keys(x, place, delivered)
    first = np.searchsorted(key, wanted, "left")
    count = np.searchsorted(key, wanted, "right") - first
    one = published[np.minimum(first, len(published) - 1)]
    second = published[np.minimum(first + 1, len(published) - 1)]
    sure = (count > 0) & (x.ts[one] <= x.ts[delivered]) & ((count == 1) | (x.ts[second] > x.ts[delivered]))
    return one, count, sure


def _captured(x: Columns, ends: Mapping[int, Ends]) -> tuple[NDArray[np.bool_], I64]:
    """Per row whether all connections of its server were captured without a gap, and a number for the server."""
    connection, place = np.unique(x.connection, return_inverse=True)
    edges = [ends[c] for c in connection.tolist()]
    servers = sorted({e.server for e in edges})
    gaps = {e.server for e in edges if not e.start or e.holes[1] or any(h != e.tails[0] for h in e.holes[0])}
    place_of = {server: k for k, server in enumerate(servers)}
    number = np.array([place_of[e.server] for e in edges], np.int64)
    whole = np.array([e.server not in gaps for e in edges], np.bool_)
    return whole[place.reshape(-1)], number[place.reshape(-1)]


def _all_differ(x: Columns, place: I64, published: I64, rest: I64) -> NDArray[np.bool_]:
    """Per delivery whether its topic never saw a body twice, in enough messages to tell."""
    topics, at, count = np.unique(place[published], return_inverse=True, return_counts=True)
    if not len(topics) or not len(rest):
        return np.zeros(len(rest), np.bool_)
    different = np.zeros(len(topics), np.int64)
    _, once = np.unique(_keys(x, place, published), return_index=True)
    np.add.at(different, at.reshape(-1)[once], 1)
    fine = (different == count) & (count >= DIFFERENT_BODIES)
    found = np.minimum(np.searchsorted(topics, place[rest]), len(topics) - 1)
    return np.asarray(fine[found] & (topics[found] == place[rest]), np.bool_)
