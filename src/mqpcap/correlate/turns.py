"""The messages of a window, connection by connection: requests and replies as their dialogues take them.

A connection is *in step* where the k-th reply answers its k-th request. Most are all the time: they are paired here, a
window at once. The dialogue of each other one is told message by message, and long runs of requests together.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqpcap.correlate.batch import Batch
from mqpcap.correlate.conversation import NO_TIE, Requests, Talk, converse
from mqpcap.correlate.dialogue import FIXED, Dialogue, Found
from mqpcap.correlate.named_requests import NamedRequests
from mqpcap.correlate.waiting_rows import PENDING, Block
from mqpcap.schema.requests import I64, Lane, Prints, RequestKind, State

FEW = 64
"""So many requests in a row are looked at one by one; more are taken in together."""
Bools = NDArray[np.bool_]
Dialogues = dict[int, Dialogue | NamedRequests]


@dataclass(frozen=True, slots=True)
class InStep:
    """What connections in step need of a lane, by code: what is asked, what is said, and what may answer what."""

    asks: Bools
    says: Bools
    fits: Bools
    untied: Bools


@cache
def in_step(lane: Lane) -> InStep | None:
    """The tables of a lane, if its order alone can tell what answers what."""
    tables = lane.tables
    if len(tables.kind) > 1 or tables.named or tables.timed or tables.gaps or tables.moves:
        return None
    says = np.array(tables.says, object)
    fits = (np.array(tables.wants[0], object)[:, None] & says[None, :]).astype(np.bool_)
    replies = says.astype(np.bool_) & ~np.array(tables.first_only, np.bool_)
    return InStep(np.array(tables.kind[0]) == FIXED, replies, fits, np.array(tables.untied, np.bool_))


@dataclass(eq=False)
class Turns:
    """Rows in order of connection and time: an entry each. ``first`` is where each connection begins."""

    lane: Lane
    place: I64
    code: I64
    tie: I64
    item: I64
    ts_ns: I64
    end_ns: I64
    offset: I64
    client: Bools
    broken: Bools
    cut: Bools
    started: Bools
    flow: I64
    numbers: list[I64]
    first: NDArray[np.intp]

    @staticmethod
    def of(batch: Batch, rows: NDArray[np.intp], lane: Lane, codes: I64, place: I64, prints: Prints) -> "Turns":
        """Some rows of a batch; ``place``: where they are among those that take part, -1 for others."""
        flow = batch.flow[rows]
        item = np.zeros(len(rows), np.int64) if lane.items is None else lane.items(batch.table, prints)[rows]
        return Turns(
            lane, place[rows], codes[rows], lane.ties(batch.table, prints)[rows], item, batch.ts_ns[rows],
            batch.end_ns[rows], batch.offset[rows], batch.from_client[rows], batch.broken[rows], batch.cut[rows],
            batch.started[rows], flow, [x[rows] for x in lane.numbers(batch.table)],
            np.flatnonzero(np.diff(flow, prepend=-1)),
        )  # fmt: skip

    def tell(self, dialogues: Dialogues, block: Block, found: Found) -> None:
        """Take the rows through their dialogues; ``block`` has those that take part."""
        tables = self.lane.tables
        make = NamedRequests if tables.named else Dialogue
        talks: list[Dialogue | NamedRequests] = []
        columns = self.flow[self.first].tolist(), self.started[self.first].tolist()
        for flow, started in zip(*columns, strict=True):
            talk = dialogues.get(flow)
            if talk is None:
                talk = dialogues[flow] = make(tables, flow, started, found)
            talks.append(talk)
        ends = np.append(self.first[1:], len(self.flow))
        done = np.zeros(len(talks), np.bool_)
        step, plain = in_step(self.lane), [talk for talk in talks if isinstance(talk, Dialogue)]
        if step is not None and len(plain) == len(talks):
            done = self._pair_in_step(step, plain, np.diff(ends, prepend=0), block.first_row, found)
        first, until = self.first.tolist(), ends.tolist()
        loud = np.logical_or.reduceat(self._is_loud, self.first).tolist()
        for k in np.flatnonzero(~done).tolist():
            tell = self._tell_each if loud[k] and until[k] - first[k] <= FEW else self._tell_runs
            tell(talks[k], first[k], until[k], block)

    # -- connections in step -------------------------------------------------------------------------------

    def _pair_in_step(self, step: InStep, talks: list[Dialogue], counts: I64, first_row: int, found: Found) -> Bools:
        """Pair connections that are in step and stay so, and have replies; returns which."""
        is_asked, is_said = self.client & step.asks[self.code], ~self.client & step.says[self.code]
        odd = ~(is_asked | is_said) | self.broken | self.cut
        done = self.started[self.first] & np.logical_or.reduceat(is_said, self.first)
        done &= ~np.logical_or.reduceat(odd, self.first)
        for k in np.flatnonzero(done).tolist():
            done[k] = talks[k].is_in_step
        group = np.repeat(np.arange(len(talks)), counts)
        asked, said = np.flatnonzero(is_asked & done[group]), np.flatnonzero(is_said & done[group])
        requests = self._requests_of(talks, done, group[asked], asked, first_row)
        of = group[said]
        if not requests.size:
            return np.zeros(len(talks), np.bool_)
        begin = np.searchsorted(requests[0], np.arange(len(talks) + 1))
        match = begin[of] + np.arange(len(said)) - np.searchsorted(of, of)
        is_there = match < begin[of + 1]
        row, code, tie, ts_ns, at = requests[1:, np.where(is_there, match, 0)]
        codes = self.code[said]
        good = is_there & (at < said) & (ts_ns <= self.ts_ns[said]) & step.fits[code, codes]
        good &= step.untied[codes] | ((tie == self.tie[said]) & (tie != NO_TIE))
        done[of[~good]] = False
        sure = done[of]
        if sure.any():
            found.many.append(np.stack([row[sure], first_row + self.place[said[sure]]], 1))
        self._leave_open(talks, done, np.bincount(of, minlength=len(talks)), group[asked], asked, first_row)
        return done

    def _requests_of(self, talks: list[Dialogue], done: Bools, group: I64, asked: I64, first_row: int) -> I64:
        """Open requests and those of this window, by connection: connection, row, code, tie, time, place."""
        open_now = [(k, q) for k in np.flatnonzero(done).tolist() for q in talks[k].open_requests()]
        old = [(k, q.row, q.code, q.tie, q.ts_ns, -1) for k, q in open_now]
        columns = first_row + self.place[asked], self.code[asked], self.tie[asked], self.ts_ns[asked]
        both = np.concatenate([np.array(old, np.int64).reshape(-1, 6).T, np.stack([group, *columns, asked])], 1)
        found: I64 = both[:, np.argsort(both[0], kind="stable")]
        return found

    def _leave_open(
        self, talks: list[Dialogue], done: Bools, said_count: I64, group: I64, asked: I64, first_row: int
    ) -> None:
        """Let the dialogues of connections in step have what was asked, and what is left open of it."""
        begin = np.searchsorted(group, np.arange(len(talks) + 1)).tolist()
        told = np.stack([self.tie[asked], *(x[asked] for x in self.numbers)], 1)
        counts = said_count.tolist()
        for k in np.flatnonzero(done).tolist():
            start, end, talk = begin[k], begin[k + 1], talks[k]
            left = start + max(counts[k] - talk.open_count, 0)
            more = self._requests(asked[left:end], first_row).each() if left < end else ()
            talk.keep_step(counts[k], told[start:end].copy(), more)

    def _requests(self, at: NDArray[np.intp] | slice, first_row: int) -> Requests:
        """Some rows, which are all requests."""
        # Copied: a slice keeps all of its window in memory for as long as no reply comes.
        return Requests(
            first_row + self.place[at], self.code[at].copy(), self.tie[at].copy(), self.item[at].copy(),
            self.ts_ns[at].copy(), self.end_ns[at].copy(), self.offset[at].copy(), [x[at].copy() for x in self.numbers],
        )  # fmt: skip

    # -- all others ----------------------------------------------------------------------------------------

    @cached_property
    def _is_loud(self) -> Bools:
        """Rows that are no plain requests."""
        return ~self.client | self.broken | self.cut

    @property
    def _columns(self) -> list[NDArray[Any]]:
        """As `converse` takes them, and the numbers."""
        return [
            self.place, self.code, self.tie, self.item, self.ts_ns, self.end_ns, self.offset, self.client, self.broken,
            self.cut, *self.numbers,
        ]  # fmt: skip

    @cached_property
    def _lists(self) -> list[list[int]]:
        """The same as lists, which are read one by one much faster than arrays."""
        return [column.tolist() for column in self._columns]

    def _tell_runs(self, talk: Talk, start: int, end: int, block: Block) -> None:
        """Take rows through a dialogue: one by one, but for long runs of requests in between."""
        loud = np.concatenate([[start - 1], np.flatnonzero(self._is_loud[start:end]) + start, [end]])
        is_quiet = len(loud) == 2
        for k in np.flatnonzero(np.diff(loud) > (0 if is_quiet else FEW)).tolist():
            one, two = int(loud[k]) + 1, int(loud[k + 1])
            self._tell_each(talk, start, one, block)
            start = one
            if isinstance(talk, Dialogue) and talk.takes_many:
                talk.requests(self._requests(slice(one, two), block.first_row))
                start = two
        self._tell_each(talk, start, end, block)

    def _tell_each(self, talk: Talk, start: int, end: int, block: Block) -> None:
        if start == end:
            return
        if len(self.first) * FEW > len(self.flow):
            some = [column[start:end] for column in self._lists]
        else:  # few of many rows
            some = [column[start:end].tolist() for column in self._columns]
        numbers = list(zip(*some[10:], strict=True)) or [()] * (end - start)
        for at, kind in converse(talk, block.first_row, some[:10], numbers, block.kind):
            block.kind[at] = kind
            block.state[at] = State.NOT_EXPECTED if kind == RequestKind.IGNORED else PENDING
