"""Which request got which answer.

Fed with the narrow columns of every message once the capture is read; runs each protocol's declared
:class:`~mqpcap.schema.protocol.Rule` over them. Promises: a state is never a guess. Pairs are made where order or a
repeated field proves them; from a hole in the bytes on, or at a late start, only what stays proven is paired and the
rest is `unknown`.

How the generic engine proves a pair. By order: on a connection whose start was captured the k-th request that gets
an answer and the k-th answer belong together as long as neither direction has a hole before them and each answer fits
its request. A hole inside a message behind which the next one follows at once changes no order. Where only answers are
missing and just one place among the requests fits all the answers behind the hole, they belong there. By tie: requests
and answers that repeat the same values belong together where all requests are known and one alone of that value waits;
where requests are missing only if the client numbers them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap import memory
from mqpcap.arrays import Tally, compact, constant, factorize, group_ids, groups, unified
from mqpcap.correlate.rows import Rows
from mqpcap.decode.framing import ConnectionView, Problem
from mqpcap.schema.protocol import (
    Aside,
    EndColumns,
    Ends,
    Matches,
    MessageQueue,
    PackedEnds,
    Pairing,
    RequestRule,
    Rule,
    State,
    end_columns,
)
from mqpcap.tcp.reassembly import NONE, Flow, FlowColumns
from mqpcap.tcp.reassembly import columns as of_flows

I64 = NDArray[np.int64]
ENVELOPE = (
    "connection_id", "direction", "stream_offset", "frame_len", "ts_ns", "end_ts_ns", "op_code", "op", "destination",
    "client_name", "status", "error_code", "flaw", "first_packet", "gap_before_bytes", "resynced",
)  # fmt: skip
EXCHANGES = pa.schema(
    [
        ("connection_id", pa.int64()),
        ("protocol", pa.string()),
        ("op", pa.string()),
        ("destination", pa.string()),
        ("client_name", pa.string()),
        ("request_direction", pa.string()),
        ("request_offset", pa.int64()),
        ("reply_offset", pa.int64()),
        ("request_ts_ns", pa.int64()),
        ("reply_ts_ns", pa.int64()),
        ("latency_ns", pa.int64()),
        ("state", pa.string()),
        ("status", pa.string()),
        ("error_code", pa.int64()),
    ]
)
DELIVERIES = pa.schema(
    [
        ("protocol", pa.string()),
        ("destination", pa.string()),
        ("key", pa.string()),
        ("publish_connection_id", pa.int64()),
        ("publish_offset", pa.int64()),
        ("deliver_connection_id", pa.int64()),
        ("deliver_offset", pa.int64()),
        ("publish_ts_ns", pa.int64()),
        ("deliver_ts_ns", pa.int64()),
        ("latency_ns", pa.int64()),
        ("how", pa.string()),
    ]
)
NO_ROWS: I64 = np.empty(0, np.int64)
LAST = np.iinfo(np.int64).max
GROUP_ROW_COUNT = 1 << 20
"""About so many rows are looked at together, and always all of a connection."""
CONNECTION_ROW_COUNT = 8
"""What a connection takes beside its rows is as much as so many of them take."""
EDGE_ROWS = 1 << 14
"""Connections whose edges are looked at together."""
MAX_PLACES = 4096
"""So many places are tried for a run of answers behind a hole; with more it stays unproven."""
STEADY = 3
RISING = 8
"""So many equal steps, or so many steps up (connections may share a counter), show that a client numbers requests."""
_NO_PAIRS = Pairing(NO_ROWS, NO_ROWS, np.empty(0, np.int8))
STATES = pa.array([s.name.lower() for s in State], pa.string())
_TEXTS = ("protocol", "op", "destination", "client_name", "request_direction", "state", "status")
_COMPACT = compact(EXCHANGES, _TEXTS)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The exchanges and deliveries of one protocol; ``doubtful`` deliveries are left out of the table."""

    protocol: str
    deliveries: pa.Table
    doubtful: int
    _rows: Rows = field(repr=False)
    _pairs: Pairing = field(repr=False)

    @property
    def stands_apart(self) -> bool:
        """Whether it says the same as with rows of other connections of which this is so, too, together."""
        aside = self._pairs.aside
        if aside is None or self.deliveries.num_rows or self.doubtful:
            return False
        return bool(np.isin(self._rows.chosen(aside.seen)["connection_id"].to_numpy(), aside.connection).all())

    def blocks(self) -> Iterator[pa.Table]:
        """The table ``exchanges`` in pieces, in order: by time of the request, or of a reply without one.

        Text is dictionaries.
        """
        return _exchanges(self.protocol, self._rows, self._pairs)

    @property
    def exchanges(self) -> pa.Table:
        """All of ``blocks``."""
        return unified(pa.concat_tables([_COMPACT.empty_table(), *self.blocks()])).combine_chunks()


_HoleSides = tuple[tuple[int, ...], tuple[int, ...]]
_Damage = tuple[_HoleSides, tuple[int | None, int | None]]
"""Holes and tails of both directions, c2s first."""
_NO_HOLES: _HoleSides = ((), ())
_START, _RESET, _CLOSED, _LEFT, _COVERED = (1 << k for k in range(5))


class Edges(PackedEnds):
    """The edges of connections by connection id, packed: each record is made when it is asked for.

    first_ts_ns, marks and server (its number in ``servers``) go with the ids, row for row; ``damage`` has the holes and
    tails of those that have any.
    """

    def __init__(
        self,
        connection_id: I64,
        first_ts_ns: I64,
        marks: NDArray[np.uint8],
        server: NDArray[np.int32],
        servers: Sequence[str],
        damage: Mapping[int, _Damage],
    ) -> None:
        order = np.argsort(connection_id)
        self._of = connection_id[order], marks[order], server[order]
        # Views: what is taken out of them is a number.
        self._ids, self._marks, self._server = (memoryview(column) for column in self._of)
        self._first_ts_ns = memoryview(first_ts_ns[order])
        self._servers, self._damage = servers, damage

    def __getitem__(self, connection_id: int) -> Ends:
        k = bisect_left(self._ids, connection_id)
        if k == len(self._ids) or self._ids[k] != connection_id:
            raise KeyError(connection_id)
        marks = self._marks[k]
        holes, tails = self._damage.get(connection_id, (_NO_HOLES, (None, None)))
        return Ends(
            connection_id, self._servers[self._server[k]], bool(marks & _START), holes, bool(marks & _RESET),
            bool(marks & _CLOSED), bool(marks & _LEFT), bool(marks & _COVERED), self._first_ts_ns[k], tails,
        )  # fmt: skip

    def columns(self, ids: I64) -> EndColumns:
        """The ends of some connections as arrays."""
        known, marks, server = self._of
        at = np.searchsorted(known, ids)
        strange = ids[np.append(known, -1)[at] != ids]
        if len(strange):
            raise KeyError(strange.tolist())
        damaged = np.isin(ids, np.fromiter(self._damage, np.int64, len(self._damage)))
        start, ended, covered = (marks[at] & mark != 0 for mark in (_START, _RESET | _CLOSED, _COVERED))
        return EndColumns(server[at].astype(np.int64), start, damaged, ended, covered)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def ends(flows: Sequence[Flow], talks: Mapping[int, ConnectionView], problems: Sequence[Problem]) -> Edges:
    """The edges of every connection of a capture."""
    known = ((number, talk.client) for number, talk in talks.items() if talk.protocol is not None)
    both = np.fromiter((x for pair in known for x in pair), np.int64).reshape(-1, 2)
    damaged = dict(_damage(flows, talks, problems))
    names: dict[tuple[str, int], int] = {}
    damage: dict[int, _Damage] = {}
    parts: list[tuple[I64, I64, NDArray[np.uint8], NDArray[np.int32]]] = []
    for start in range(0, max(len(both), 1), EDGE_ROWS):
        numbers, client = both[start : start + EDGE_ROWS].T
        of = of_flows(flows, numbers)
        places = zip(of.ips(1 - client), of.ports(1 - client).tolist(), strict=True)
        place = np.array([names.setdefault(one, len(names)) for one in places], np.int32)
        ids = of.connection_ids()
        damage |= {
            one: damaged[flow] for one, flow in zip(ids.tolist(), numbers.tolist(), strict=True) if flow in damaged
        }
        parts.append((ids, of.first_ts_ns, _marks(of, client), place))
    ids, first_ts_ns, marks, place = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Edges(ids, first_ts_ns, marks, place, [f"{ip} {port}" for ip, port in names], damage)


def _marks(of: FlowColumns, client: I64) -> NDArray[np.uint8]:
    """How connections began and ended."""
    row, server = np.arange(len(of)), 1 - client
    fin, acked = of.fin_offset[row, client], of.acked[row, client]
    server_fin = of.fin_offset[row, server] != NONE
    covered = server_fin & (acked != NONE) & (acked >= np.where(fin == NONE, of.end_offset[row, client], fin))
    marks = np.zeros(len(of), np.uint8)
    for mark, told in (
        (_START, of.syn.all(1)), (_RESET, of.rst.any(1)), (_CLOSED, server_fin), (_LEFT, fin != NONE),
        (_COVERED, covered),
    ):  # fmt: skip
        marks[told] |= mark
    return marks


def _damage(
    flows: Sequence[Flow], talks: Mapping[int, ConnectionView], problems: Sequence[Problem]
) -> Iterator[tuple[int, _Damage]]:
    """Holes and tails of the connections that have any, by flow."""
    holes: dict[tuple[int, int], list[int]] = {}
    loose: set[tuple[int, int, int]] = set()
    damaged = [
        p for p in problems if p.kind != "conflict" and p.flow in talks and talks[p.flow].protocol is not None
    ]  # fmt: skip
    shifts = of_flows(flows, np.array([p.flow for p in damaged], np.int64)).shift.tolist()
    for p, shift in zip(damaged, shifts, strict=True):
        offset = p.offset + shift[p.side]
        holes.setdefault((p.flow, p.side), []).append(offset)
        if p.kind == "undecoded" and p.reason in ("bad_framing", "truncated"):
            loose.add((p.flow, p.side, offset))
    for flow in dict.fromkeys(flow for flow, _ in holes):
        side = talks[flow].client
        c2s, s2c = (tuple(sorted(holes.get((flow, k), ()))) for k in (side, 1 - side))
        yield flow, ((c2s, s2c), (_tail(c2s, loose, flow, side), _tail(s2c, loose, flow, 1 - side)))


def _tail(holes: tuple[int, ...], loose: set[tuple[int, int, int]], number: int, side: int) -> int | None:
    """The last hole, if it misses nothing."""
    return holes[-1] if holes and (number, side, holes[-1]) in loose else None


def needed(rule: Rule) -> tuple[str, ...]:
    """The protocol's columns that a rule reads, beside ENVELOPE."""
    return tuple(dict.fromkeys((*rule.tie, *rule.columns, *([rule.one_way[0]] if rule.one_way else []))))


def ledger(protocol: MessageQueue, rows: Rows, edges: Mapping[int, Ends]) -> Ledger:
    """The exchanges and deliveries of all messages of a protocol in one capture.

    ``rows`` has the columns ENVELOPE, those that ``needed`` names with ``f.`` in front, and ``body_print`` where the
    rule names a body.
    """
    rule = protocol.rule
    assert rule is not None
    if not rows.num_rows:
        return Ledger(protocol.name, DELIVERIES.empty_table(), 0, rows, _NO_PAIRS)
    memory.trim()
    pairs = rule.machine(rows, edges) if rule.machine is not None else paired(rule, rows, edges)
    for queue in rule.queues:
        pairs = pairs.plus(_queued(queue, rows, edges))
    matches = None if rule.deliveries is None else rule.deliveries(rows, edges, pairs)
    memory.trim()
    doubtful = 0 if matches is None else matches.doubtful
    return Ledger(protocol.name, _deliveries(protocol.name, rows, matches), doubtful, rows, pairs)


def _queued(rule: Rule, rows: Rows, edges: Mapping[int, Ends]) -> Pairing:
    """The pairs of some operations alone, by row number of the whole."""
    named = pa.array(sorted({*rule.asks, *(n for a in rule.asks.values() for n in a.by)}), pa.string())
    chosen = np.flatnonzero(pc.is_in(rows["op"], named).to_numpy(zero_copy_only=False))
    return paired(rule, rows.chosen(chosen), edges).of(chosen)


def paired(rule: Rule, rows: Rows, edges: Mapping[int, Ends]) -> Pairing:
    """The generic engine: pairs by order or by tie. What happens on one connection says nothing of another."""
    if rows.num_rows * (CONNECTION_ROW_COUNT + 1) <= GROUP_ROW_COUNT:
        return _paired(rule, rows, edges)
    group = _groups(rows)
    if not group.any():
        return _paired(rule, rows, edges)
    found = _NO_PAIRS
    for one in range(int(group.max()) + 1):
        some = np.flatnonzero(group == one)
        found = found.plus(_paired(rule, rows.chosen(some), edges).of(some))
    return found


def _groups(rows: Rows) -> NDArray[np.int32]:
    """The number of each row's group: about GROUP_ROW_COUNT rows, those of a connection together.

    Connections go in the order of their first rows, so that a group's rows are near each other where connections are
    short.
    """
    seen = Tally(np.minimum, np.add)
    for start, block in rows.blocks():
        ids, place = factorize(block["connection_id"].to_numpy())
        seen.add(ids, np.full(len(ids), start), np.bincount(place, minlength=len(ids)))
    ids, first, counts = seen.columns()
    group_of = groups(first, counts + CONNECTION_ROW_COUNT, GROUP_ROW_COUNT)
    group = np.empty(rows.num_rows, np.int32)
    for start, block in rows.blocks():
        some, place = factorize(block["connection_id"].to_numpy())
        group[start : start + block.num_rows] = group_of[np.searchsorted(ids, some)][place]
    return group


def _paired(rule: Rule, rows: Rows, edges: Mapping[int, Ends]) -> Pairing:
    """Connections without a hole are done all at once; the others one by one."""
    columns = _Columns(rule, rows, edges)
    if rule.tie:
        _by_tie(columns)
    else:
        _by_order(columns)
    return columns.pairing()


class _Columns:
    """The rows as arrays: which are requests, how they are answered, what a tie compares, and what was found.

    untold                  by row: whether a flaw hides a value that ties
    partner, lost, unsure   by row: the other half of the pair (-1 for none), whether the answer must lie in a hole, and
                            whether an answer came that several requests may have got
    """

    def __init__(self, rule: Rule, rows: Rows, edges: Mapping[int, Ends]) -> None:
        self.rule = rule
        encoded = rows["connection_id"].dictionary_encode()
        self.connection: I64 = encoded.indices.to_numpy().astype(np.int64)
        ids = encoded.dictionary.to_numpy()
        of = end_columns(edges, ids)
        self.connection_count, self.start, self._ended = len(ids), of.start, of.ended
        self._edges = {one: edges[int(ids[one])] for one in np.flatnonzero(of.damaged).tolist()}
        self.offset: I64 = rows["stream_offset"].to_numpy()
        self.length: I64 = rows["frame_len"].to_numpy()
        self.ts_ns: I64 = rows["ts_ns"].to_numpy()
        self.from_client = pc.equal(rows["direction"], "c2s").to_numpy(zero_copy_only=False)
        self.truncated = pc.fill_null(pc.equal(rows["flaw"], "truncated"), False).to_numpy(zero_copy_only=False)
        searched = rows["resynced"].to_numpy(zero_copy_only=False)
        self.found_by_search = searched | (rows["gap_before_bytes"].to_numpy() > 0)
        self._operations(rows)
        self.tie = group_ids([rows[f"f.{name}"] for name in rule.tie], rows.num_rows)
        self.numbers = [_numbers(rows[f"f.{name}"]) for name in rule.tie]
        self.untold = np.zeros(rows.num_rows, np.bool_)
        for name in rule.tie:
            self.untold |= pc.is_null(rows[f"f.{name}"]).to_numpy(zero_copy_only=False)
        self._by = np.argsort(self.connection, kind="stable")
        self._bounds = np.searchsorted(self.connection[self._by], np.arange(len(ids) + 1)).tolist()
        self._holes = {one: (self._breaks(one, True), self._breaks(one, False)) for one in self._edges}
        self._missing = np.zeros((2, len(ids)), np.bool_)
        for one, holes in self._holes.items():
            self._missing[:, one] = [len(side) > 0 for side in holes]
        self.intact = self.start & ~self._missing.any(axis=0)
        self.requests = self._in_order(self.is_request)
        self.replies = self._in_order(self.is_reply)
        self.partner = np.full(rows.num_rows, -1, np.int64)
        self.lost = np.zeros(rows.num_rows, np.bool_)
        self.unsure = np.zeros(rows.num_rows, np.bool_)

    def _operations(self, rows: Rows) -> None:
        rule = self.rule
        encoded = rows.coded("op")
        names: list[str | None] = [*encoded.dictionary.to_pylist(), None]
        self.op = pc.fill_null(encoded.indices, len(names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        none = RequestRule("never")
        asks = [(rule.asks.get(n) if n is not None else None) or rule.otherwise for n in names]
        self.is_request = self.from_client & np.array([a is not None for a in asks])[self.op]
        self.expects = np.array([(a or none).answer != "never" for a in asks])[self.op] & self.is_request
        self.always = np.array([(a or none).answer == "always" for a in asks])[self.op]
        if rule.one_way is not None:
            column, value = rule.one_way
            way = pc.fill_null(pc.equal(rows[f"f.{column}"], value), False).to_numpy(zero_copy_only=False)
            self.expects &= ~way
        quiet = np.array([n in rule.unasked for n in names])[self.op]
        self.is_reply = ~self.from_client & ~quiet
        self.first_only = np.array([n in rule.first_only for n in names])[self.op]
        self.may_answer: NDArray[np.bool_] = np.array(
            [[a is not None and (not a.by or n in rule.errors or n in a.by) for n in names] for a in asks], np.bool_
        )

    def holes(self, one: int) -> tuple[I64, I64]:
        """The holes of a connection that break the order."""
        return self._holes.get(one, (NO_ROWS, NO_ROWS))

    def _breaks(self, one: int, from_client: bool) -> I64:
        """Those of a direction: not inside a message behind which the next one follows at once."""
        rows = self._by[self._bounds[one] : self._bounds[one + 1]]
        edge, which = self._edges[one], 0 if from_client else 1
        holes = np.array([h for h in edge.holes[which] if h != edge.tails[which]], np.int64)
        side = rows[self.from_client[rows] == from_client]
        side = side[np.argsort(self.offset[side], kind="stable")]
        after = np.searchsorted(self.offset[side], holes, "right")
        inside = (after > 0) & (after < len(side))
        before, behind = side[after[inside] - 1], side[after[inside]]
        inside[inside] = self.truncated[before] & ~self.found_by_search[behind]
        return holes[~inside]

    def _in_order(self, wanted: NDArray[np.bool_]) -> I64:
        rows = np.flatnonzero(wanted)
        return rows[np.lexsort((self.offset[rows], self.connection[rows]))]

    def fits(self, request: I64, reply: I64) -> NDArray[np.bool_]:
        """Whether each reply is one that its request may get, and came after it."""
        fit: NDArray[np.bool_] = self.may_answer[self.op[request], self.op[reply]]
        fit = fit & (self.ts_ns[reply] >= self.ts_ns[request])
        return fit & (self.tie[request] == self.tie[reply]) if self.rule.tie else fit

    def each(self, some: I64, asked: I64) -> Iterator[tuple[int, I64, I64]]:
        """Some connections, each with its rows of ``asked`` (of ``requests``) and of ``replies``."""
        bounds = np.append(some, some + 1)
        places = [np.searchsorted(self.connection[rows], bounds).reshape(2, -1).T for rows in (asked, self.replies)]
        for one, (a, b), (c, d) in zip(some.tolist(), *(place.tolist() for place in places), strict=True):
            yield one, asked[a:b], self.replies[c:d]

    def pair(self, request: I64, reply: I64) -> None:
        """Note pairs."""
        self.partner[request] = reply
        self.partner[reply] = request

    def in_step(self, asked: I64) -> tuple[I64, I64, NDArray[np.bool_]]:
        """The k-th of ``asked`` and the k-th reply of intact connections; and where all fit and none is left over."""
        n = self.connection_count
        wanted = np.bincount(self.connection[asked], minlength=n)
        got = np.bincount(self.connection[self.replies], minlength=n)
        first_asked, first_got = np.cumsum(wanted) - wanted, np.cumsum(got) - got
        at = self.connection[asked]
        rank = np.arange(len(asked)) - first_asked[at]
        take = self.intact[at] & (rank < got[at])
        request = asked[take]
        reply = self.replies[first_got[at[take]] + rank[take]]
        good = self.intact & (got <= wanted)
        good[self.connection[request[~self.fits(request, reply)]]] = False
        good[self.connection[self.replies[self.first_only[self.replies]]]] = False
        return request, reply, good

    def pairing(self) -> Pairing:
        """Every request and every reply without one, with its state."""
        n = self.connection_count
        left = self.partner[self.replies] < 0
        alone = self.replies[left & ~self.first_only[self.replies]]
        in_step = np.ones(n, np.bool_)
        in_step[self.connection[alone]] = False
        # The first reply of a connection answers something: alone, it was captured before its request.
        at = self.connection[self.replies]
        in_step[at[left & np.diff(at, prepend=-1).astype(np.bool_)]] = False
        ended: NDArray[np.bool_] = self._ended & self.start & ~self._missing[1]
        first_hole = np.full(n, LAST)
        for one, (c2s, _) in self._holes.items():
            first_hole[one] = c2s.min(initial=LAST)
        q, at = self.requests, self.connection[self.requests]
        state = np.full(len(q), State.UNKNOWN, np.int8)
        # A message cut by the end of its stream was never a whole request.
        due = self.expects[q] & self.always[q] & ~self.truncated[q] & ~self.unsure[q]
        state[due & (ended & in_step)[at] & (self.offset[q] < first_hole[at])] = State.UNANSWERED
        state[self.lost[q]] = State.LOST
        state[~self.expects[q] & ~self.unsure[q]] = State.NOT_EXPECTED
        state[self.partner[q] >= 0] = State.ANSWERED
        orphan = self._orphans(alone)
        return Pairing(
            np.concatenate([q, np.full(len(alone), -1)]), np.concatenate([self.partner[q], alone]),
            np.concatenate([state, np.where(orphan, State.ORPHAN, State.UNKNOWN).astype(np.int8)]),
        )  # fmt: skip

    def _orphans(self, alone: I64) -> NDArray[np.bool_]:
        """Of replies without a request, those that no captured request can have got, where requests are missing."""
        unseen: NDArray[np.bool_] = ~self.start | self._missing[0]
        orphan = unseen[self.connection[alone]] & ~self.untold[alone]
        if not orphan.any():
            return orphan
        keys = [self.connection, self.tie] if self.rule.tie else [self.connection]
        key = group_ids([pa.array(column) for column in keys], len(self.connection))
        first = np.full(int(key.max(initial=0)) + 1, LAST, np.int64)
        np.minimum.at(first, key[self.requests], self.ts_ns[self.requests])
        return orphan & (self.ts_ns[alone] < first[key[alone]])


def _numbers(column: pa.Array) -> I64 | None:
    """An integer column as numbers, nulls as -1; None for another."""
    if not pa.types.is_integer(column.type):
        return None
    numbers: I64 = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return numbers


def _by_order(columns: _Columns) -> None:
    """Pairs of connections whose answers come in the order of the requests."""
    asked = columns.requests[columns.expects[columns.requests]]
    request, reply, good = columns.in_step(asked)
    sure = good[columns.connection[request]]
    columns.pair(request[sure], reply[sure])
    for one, some, replies in columns.each(np.flatnonzero(~good & columns.start), asked):
        _damaged_order(columns, one, some, replies)


def _damaged_order(columns: _Columns, one: int, asked: I64, replies: I64) -> None:
    """Pairs of a connection with holes: up to the first by counting, behind one in the answers by exhaustion."""
    c2s, s2c = columns.holes(one)
    known = asked[: int(np.searchsorted(columns.offset[asked], c2s[0]))] if len(c2s) else asked
    offsets = columns.offset[replies]
    run = np.searchsorted(s2c, offsets)
    head = replies[run == 0]
    done = _counted(columns, known, head)
    if done < 0 or len(c2s) or columns.first_only[replies].any():
        return
    at_least = at_most = done
    asked_by = np.maximum.accumulate(columns.ts_ns[asked])
    before = 0
    begins = np.flatnonzero(np.diff(run, prepend=0)).tolist()
    for begin, end in pairwise([*begins, len(run)]):
        part = replies[begin:end]
        hole, before = int(s2c[before]), int(run[begin])
        at_least += _missing_at_least(columns, replies[: int(np.searchsorted(offsets, hole))], hole)
        places, highest = _places(columns, asked, asked_by, part, at_least)
        if len(places) == 1:
            at_least = highest = places[0]
            columns.pair(asked[at_least : at_least + len(part)], part)
        columns.lost[asked[at_most:at_least]] = True
        at_least, at_most = at_least + len(part), highest + len(part)


def _counted(columns: _Columns, asked: I64, replies: I64) -> int:
    """Pair the k-th with the k-th as long as they fit; how many there were, -1 if replies are left over."""
    if not columns.first_only[replies].any():
        n = min(len(asked), len(replies))
        fit = columns.fits(asked[:n], replies[:n])
        good = n if fit.all() else int(np.argmin(fit))
        columns.pair(asked[:good], replies[:good])
        return good if good == len(replies) else -1
    k = 0
    for reply in replies:
        fits = k < len(asked) and bool(columns.fits(asked[k : k + 1], reply[None])[0])
        # Whatever opens a connection, such an answer may be to it: fq wants the login first and says so.
        first = k == 0 and len(asked) > 0 and columns.first_only[reply]
        opens = first and columns.ts_ns[asked[0]] <= columns.ts_ns[reply]
        if fits or opens:
            columns.pair(asked[k], reply)
            k += 1
        elif not columns.first_only[reply]:
            return -1
    return k


def _missing_at_least(columns: _Columns, before: I64, hole: int) -> int:
    """How many answers lie in a hole for sure: one if a message ends where it begins and every message is an answer.

    ``before`` are the replies that begin below it.
    """
    if columns.rule.unasked:
        return 0
    if not len(before):
        return 1 if hole == 0 else 0
    last = before[-1]
    return int(not columns.truncated[last] and columns.offset[last] + columns.length[last] == hole)


def _places(columns: _Columns, asked: I64, asked_by: I64, replies: I64, at_least: int) -> tuple[list[int], int]:
    """Where in ``asked`` a run of answers may begin: at most two places are told, and the highest that is thinkable.

    ``asked_by`` is for each the latest time of those up to it.
    """
    before = int(np.searchsorted(asked_by, columns.ts_ns[replies[0]], "right"))
    highest = min(before - 1, len(asked) - len(replies))
    found: list[int] = []
    if highest - at_least > MAX_PLACES:
        return [at_least, highest], highest
    for place in range(highest, at_least - 1, -1):
        few = min(len(replies), 256)
        if not columns.fits(asked[place : place + few], replies[:few]).all():
            continue
        if columns.fits(asked[place : place + len(replies)], replies).all():
            found.append(place)
        if len(found) == 2:
            break
    return found, max(found[0] if found else highest, at_least)


def _by_tie(columns: _Columns) -> None:
    """Pairs of connections whose replies repeat values of their request."""
    q = columns.requests
    one_way = np.zeros(columns.connection_count, np.bool_)
    one_way[columns.connection[q[~columns.expects[q]]]] = True
    request, reply, good = columns.in_step(q[columns.expects[q]])
    if not one_way.any():
        sure = good[columns.connection[request]]
        columns.pair(request[sure], reply[sure])
    else:
        good = _with_one_way(columns, one_way, request, reply, good)
    for one, asked, replies in columns.each(np.flatnonzero(~good), q):
        _damaged_tie(columns, one, asked, replies)


def _with_one_way(
    columns: _Columns, one_way: NDArray[np.bool_], request: I64, reply: I64, good: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """A server answers one-way requests too, or none: what both readings say, or the only one that fits."""
    every_request, every_reply, all_good = columns.in_step(columns.requests)
    first, second = good[columns.connection[request]], all_good[columns.connection[every_request]]
    by_first, by_second = np.full((2, len(columns.partner)), -1, np.int64)
    by_first[reply[first]] = request[first]
    by_second[every_reply[second]] = every_request[second]
    r = columns.replies
    both = (good & all_good)[columns.connection[r]]
    asker = np.where(good[columns.connection[r]], by_first[r], by_second[r])
    doubt = both & (by_first[r] != by_second[r])
    sure = (asker >= 0) & ~doubt
    columns.pair(asker[sure], r[sure])
    doubtful = np.zeros(columns.connection_count, np.bool_)
    doubtful[columns.connection[r[doubt]]] = True
    q = columns.requests
    columns.unsure[q[doubtful[columns.connection[q]] & (columns.partner[q] < 0)]] = True
    return good | all_good


def _damaged_tie(columns: _Columns, one: int, asked: I64, replies: I64) -> None:
    """Pairs of a connection with holes, a late start or answers out of order.

    Proven where all requests are known and one alone of that value waits; or, where requests are missing, where the
    client never uses a value twice.
    """
    c2s, s2c = columns.holes(one)
    complete = bool(columns.start[one]) and not len(c2s)
    if not len(asked) or not len(replies) or not (complete or _counts_up(columns, asked)):
        return
    waiting: dict[int, list[int]] = {}
    for row in asked.tolist():
        waiting.setdefault(int(columns.tie[row]), []).append(row)
    answers: dict[int, list[int]] = {}
    for row in replies.tolist():
        answers.setdefault(int(columns.tie[row]), []).append(row)
    for tie, got in answers.items():
        rows = waiting.get(tie, [])
        if complete and not len(s2c) and len(rows) == len(got):
            request, reply = np.array(rows), np.array(got)
            if columns.fits(request, reply).all():
                columns.pair(request, reply)
                continue
        _alone(columns, rows, got)
    _lost_between(columns, asked, s2c)


def _alone(columns: _Columns, rows: list[int], got: list[int]) -> None:
    """Pair replies of one value each with the only request of that value that waits."""
    open_: list[int] = []
    k = told = 0
    for reply in got:
        while k < len(rows) and columns.ts_ns[rows[k]] <= columns.ts_ns[reply]:
            open_.append(rows[k])
            k += 1
        if len(open_) == 1 and bool(columns.fits(np.array(open_), np.array([reply]))[0]):
            columns.pair(np.array(open_), np.array([reply]))
            open_, told = [], 0
        else:
            columns.unsure[open_[told:]] = True
            told = len(open_)


def _counts_up(columns: _Columns, asked: I64) -> bool:
    """Whether the client numbers its requests: always upwards, and so never a number twice."""
    follows = columns.offset[asked[1:]] == columns.offset[asked[:-1]] + columns.length[asked[:-1]]
    for numbers in columns.numbers:
        if numbers is None:
            continue
        step = np.diff(numbers[asked])
        steady = step[follows]
        if (step <= 0).any():
            continue
        if len(step) >= RISING or (len(steady) >= STEADY and (steady == steady[0]).all()):
            return True
    return False


def _lost_between(columns: _Columns, asked: I64, holes: I64) -> None:
    """Requests whose answer lies in a hole: a hole is between the answers to those before and behind."""
    if not columns.rule.answers_in_order or not len(holes):
        return
    places = np.flatnonzero(columns.partner[asked] >= 0)
    offsets = columns.offset[columns.partner[asked[places]]]
    if (np.diff(offsets) < 0).any():
        return  # Not answered in order after all.
    behind = np.searchsorted(places, np.arange(len(asked)))
    for k in np.flatnonzero((columns.partner[asked] < 0) & columns.expects[asked] & columns.always[asked]).tolist():
        if 0 < behind[k] < len(places):
            low, high = offsets[behind[k] - 1], offsets[behind[k]]
            if np.searchsorted(holes, low) < np.searchsorted(holes, high):
                columns.lost[asked[k]] = not columns.unsure[asked[k]]


def _exchanges(protocol: str, rows: Rows, pairs: Pairing) -> Iterator[pa.Table]:
    """The table ``exchanges``, a block of rows at a time: of the request, or of a reply without one."""
    found = _Found(pairs)
    for start, block in rows.blocks():
        at, pair, state = found.within(start, block)
        if not len(at):
            continue
        reply = found.reply[pair]
        answers = rows.chosen(reply[reply >= 0])
        replies = _At(np.where(reply >= 0, np.cumsum(reply >= 0) - 1, -1))
        either, asked = _At(at), _At(np.where(found.has_request[pair], at, -1))
        request_ts, reply_ts = asked.column(block["ts_ns"]), replies.column(answers["ts_ns"])
        columns = {
            "connection_id": either.column(block["connection_id"]),
            "protocol": constant(protocol, len(at)),
            "op": either.text(block.coded("op")),
            "destination": either.text(block.coded("destination")),
            "client_name": either.text(block.coded("client_name")),
            "request_direction": constant("c2s", len(at)),
            "request_offset": asked.column(block["stream_offset"]),
            "reply_offset": replies.column(answers["stream_offset"]),
            "request_ts_ns": request_ts,
            "reply_ts_ns": reply_ts,
            "latency_ns": pc.subtract(reply_ts, request_ts),
            "state": pa.DictionaryArray.from_arrays(state.astype(np.int32), STATES),
            "status": replies.text(answers.coded("status")),
            "error_code": replies.column(answers["error_code"]),
        }
        yield pa.table(columns, _COMPACT)


class _Found:
    """The pairs by the row whose place they take; a pair is told by its number here, a request set aside by -1.

    has_request, reply   by pair: whether there is a request, and the row of the reply or -1
    """

    def __init__(self, pairs: Pairing) -> None:
        row = np.where(pairs.request >= 0, pairs.request, pairs.reply)
        order = np.argsort(row, kind="stable")
        self._row, self._state, self._aside = row[order], pairs.state[order], pairs.aside
        self.has_request = np.append(pairs.request[order] >= 0, True)
        self.reply = np.append(pairs.reply[order], -1)

    def within(self, start: int, block: Rows) -> tuple[I64, I64, NDArray[np.int8]]:
        """The exchanges of a block of rows that begins at ``start``: row of the block, pair and state."""
        bounds = start, start + block.num_rows
        a, b = np.searchsorted(self._row, bounds).tolist()
        at, pair, state = self._row[a:b] - start, np.arange(a, b), self._state[a:b]
        if self._aside is None:
            return at, pair, state
        rows = np.ones(block.num_rows, np.bool_)
        # Of the same type as what is searched, which would be copied else.
        c, d = np.searchsorted(self._aside.seen, np.array(bounds, self._aside.seen.dtype)).tolist()
        rows[self._aside.seen[c:d] - start] = False
        quiet = np.flatnonzero(rows)
        none = np.full(len(quiet), -1)
        if len(quiet) == block.num_rows:  # most blocks of a capture that has any
            return quiet, none, _of_aside(self._aside, block)
        both = np.concatenate([at, quiet])
        order = np.argsort(both, kind="stable")
        states = np.concatenate([state, _of_aside(self._aside, block.chosen(quiet))])
        return both[order], np.concatenate([pair, none])[order], states[order]


def _of_aside(aside: Aside, rows: Rows) -> NDArray[np.int8]:
    """The states of requests that were set aside."""
    offset = rows["stream_offset"].to_numpy()
    at = np.searchsorted(aside.connection, rows["connection_id"].to_numpy())
    return np.where(offset < aside.end[at], State.SILENT, State.UNKNOWN).astype(np.int8)


class _At:
    """Values of columns at rows, null at -1."""

    def __init__(self, rows: I64) -> None:
        none = rows < 0
        self.none = none if none.any() else None
        self.rows = rows
        self.some = None if self.none is None else np.flatnonzero(~none)
        self.every = bool((rows == np.arange(len(rows))).all())

    def column(self, array: pa.Array) -> pa.Array:
        if self.every and len(array) == len(self.rows):
            return array
        if (self.some is not None and not len(self.some)) or array.null_count == len(array):
            return pa.nulls(len(self.rows), array.type)
        if array.null_count:
            return array.take(pa.array(self.rows, mask=self.none))
        # Of numbers without a null three times as fast.
        values = array.to_numpy()
        if self.some is None:
            return pa.array(values.take(self.rows), array.type)
        taken = np.zeros(len(self.rows), values.dtype)
        taken[self.some] = values[self.rows[self.some]]
        return pa.array(taken, array.type, mask=self.none)

    def text(self, coded: pa.DictionaryArray) -> pa.Array:
        return pa.DictionaryArray.from_arrays(self.column(coded.indices), coded.dictionary)


def _deliveries(protocol: str, rows: Rows, matches: Matches | None) -> pa.Table:
    """The table ``deliveries``, sorted by time of the delivery."""
    if matches is None or not len(matches.publish):
        return DELIVERIES.empty_table()
    publish, deliver = pa.array(matches.publish), pa.array(matches.deliver)

    def of(name: str, at: pa.Array) -> pa.Array:
        return rows[name].take(at)

    table = pa.table(
        {
            "protocol": pa.array([protocol] * len(publish), pa.string()),
            "destination": of("destination", publish),
            "key": pa.array(matches.key, pa.string()),
            "publish_connection_id": of("connection_id", publish),
            "publish_offset": of("stream_offset", publish),
            "deliver_connection_id": of("connection_id", deliver),
            "deliver_offset": of("stream_offset", deliver),
            "publish_ts_ns": of("ts_ns", publish),
            "deliver_ts_ns": of("ts_ns", deliver),
            "latency_ns": pc.subtract(of("ts_ns", deliver), of("ts_ns", publish)),
            "how": pa.array(matches.how, pa.string()),
        },
        DELIVERIES,
    )
    return table.sort_by([(name, "ascending") for name in ("publish_ts_ns", "deliver_ts_ns", "deliver_offset")])
