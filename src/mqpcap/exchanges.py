"""Which request got which answer.

Fed with the narrow columns of every message once the capture is read; runs each protocol's declared
:class:`~mqpcap.protocol.Rule` over them. Promises: a state is never a guess. Pairs are made where order or a
repeated field proves them; from a hole in the bytes on, or at a late start, only what stays proven is paired and the
rest is `unknown`.

How the generic engine proves a pair. By order: on a connection whose start was captured the k-th request that gets
an answer and the k-th answer belong together as long as neither direction has a hole before them and each
answer fits its request. By tie: requests and answers that repeat the same values belong together in
order; where bytes are missing only if the client never uses a value twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.frames import Problem, Talk
from mqpcap.matching import codes
from mqpcap.protocol import Ask, Ends, Matches, MessageQueue, Pairing, Rule, State
from mqpcap.streams import Flow

I64 = NDArray[np.int64]
ENVELOPE = (
    "connection_id", "direction", "stream_offset", "frame_len", "ts_ns", "end_ts_ns", "op_code", "op", "destination",
    "client_name", "status", "error_code", "flaw", "first_packet",
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
STATES = pa.array([s.name.lower() for s in State], pa.string())


@dataclass(frozen=True, slots=True)
class Ledger:
    """The exchanges and deliveries of one protocol; ``doubtful`` deliveries are left out of the table."""

    exchanges: pa.Table
    deliveries: pa.Table
    doubtful: int


def ends(flows: Sequence[Flow], talks: Mapping[int, Talk], problems: Sequence[Problem]) -> dict[int, Ends]:
    """The edges of every connection of a capture, by connection id."""
    holes: dict[tuple[int, int], list[int]] = {}
    loose: set[tuple[int, int, int]] = set()
    for p in problems:
        if p.kind != "conflict":
            offset = p.offset + flows[p.flow].shift[p.side]
            holes.setdefault((p.flow, p.side), []).append(offset)
            if p.kind == "undecoded" and p.reason in ("bad_framing", "truncated"):
                loose.add((p.flow, p.side, offset))
    found: dict[int, Ends] = {}
    for number, talk in talks.items():
        if talk.protocol is None:
            continue
        flow = flows[number]
        client, server = talk.client, 1 - talk.client
        fin, acked = flow.fin_offset[client], flow.acked[client]
        sent = flow.end_offset[client] if fin is None else fin
        covered = flow.fin_offset[server] is not None and acked is not None and acked >= sent
        sides = [tuple(sorted(holes.get((number, side), ()))) for side in (client, server)]
        tails = [
            h[-1] if h and (number, side, h[-1]) in loose else None for h, side in zip(sides, (client, server), strict=True)
        ]
        address = ((flow.a_ip, flow.a_port), (flow.b_ip, flow.b_port))[server]
        found[flow.connection_id] = Ends(
            flow.connection_id, f"{address[0]} {address[1]}", flow.syn[client] and flow.syn[server],
            (sides[0], sides[1]), any(flow.rst), flow.fin_offset[server] is not None,
            flow.fin_offset[client] is not None, covered, flow.first_ts_ns, (tails[0], tails[1]),
        )  # fmt: skip
    return found


def needed(rule: Rule) -> tuple[str, ...]:
    """The protocol's columns that a rule reads, beside ENVELOPE."""
    return tuple(dict.fromkeys((*rule.tie, *rule.columns, *([rule.one_way[0]] if rule.one_way else []))))


def ledger(protocol: MessageQueue, rows: pa.Table, edges: Mapping[int, Ends]) -> Ledger:
    """The exchanges and deliveries of all messages of a protocol in one capture.

    ``rows`` has the columns ENVELOPE, those that ``needed`` names with ``f.`` in front, and ``body_print`` where the
    rule names a body.
    """
    rule = protocol.rule
    assert rule is not None
    rows = rows.sort_by([("ts_ns", "ascending"), ("first_packet", "ascending"), ("stream_offset", "ascending")])
    rows = rows.combine_chunks()
    pairs = rule.machine(rows, edges) if rule.machine is not None else paired(rule, rows, edges)
    matches = None if rule.deliveries is None else rule.deliveries(rows, edges, pairs)
    return Ledger(
        _exchanges(protocol.name, rows, pairs), _deliveries(protocol.name, rows, matches),
        0 if matches is None else matches.doubtful,
    )  # fmt: skip


def paired(rule: Rule, rows: pa.Table, edges: Mapping[int, Ends]) -> Pairing:
    """The generic engine: pairs by order or by tie, connection by connection."""
    columns = _Columns(rule, rows)
    out = _Out()
    order = np.argsort(columns.connection, kind="stable")
    connection = columns.connection[order]
    borders = np.flatnonzero(np.diff(connection)) + 1
    for one in np.split(order, borders):
        if len(one):
            _connection(rule, columns, one, edges[int(columns.connection[one[0]])], out)
    return out.pairing()


class _Columns:
    """The rows as arrays: which are requests, how they are answered, and what a tie compares."""

    def __init__(self, rule: Rule, rows: pa.Table) -> None:
        self.connection: I64 = rows["connection_id"].to_numpy()
        self.offset: I64 = rows["stream_offset"].to_numpy()
        self.length: I64 = rows["frame_len"].to_numpy()
        self.ts_ns: I64 = rows["ts_ns"].to_numpy()
        self.end_ts_ns: I64 = rows["end_ts_ns"].to_numpy()
        self.from_client = pc.equal(rows["direction"], "c2s").to_numpy()
        self.truncated = pc.fill_null(pc.equal(rows["flaw"], "truncated"), False).to_numpy()
        encoded = rows["op"].combine_chunks().dictionary_encode()
        names: list[str | None] = [*encoded.dictionary.to_pylist(), None]
        self.op = pc.fill_null(encoded.indices, len(names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        self.names = names
        none = Ask("never")
        self.asks = [(rule.asks.get(n) if n is not None else None) or rule.otherwise for n in names]
        self.is_request = self.from_client & np.array([a is not None for a in self.asks])[self.op]
        self.expects = np.array([(a or none).answer != "never" for a in self.asks])[self.op] & self.is_request
        if rule.one_way is not None:
            column, value = rule.one_way
            way = pc.fill_null(pc.equal(rows[f"f.{column}"], value), False).to_numpy()
            self.expects &= ~way
        quiet = np.array([n in rule.unasked for n in names])[self.op]
        self.is_reply = ~self.from_client & ~quiet
        self.first_only = np.array([n in rule.first_only for n in names])[self.op]
        self.tie = codes([rows[f"f.{name}"] for name in rule.tie], rows.num_rows)

    def fits(self, rule: Rule, request: int, reply: int) -> bool:
        """Whether a reply is one that the request may get, and came after it."""
        ask = self.asks[self.op[request]]
        name = self.names[self.op[reply]]
        if ask is None or self.ts_ns[reply] < self.ts_ns[request]:
            return False
        return not ask.by or name in rule.errors or name in ask.by


class _Out:
    """Pairs as they are found."""

    def __init__(self) -> None:
        self.request: list[I64] = []
        self.reply: list[I64] = []
        self.state: list[NDArray[np.int8]] = []

    def add(self, request: object, reply: object, state: State) -> None:
        a, b = np.broadcast_arrays(np.asarray(request, np.int64), np.asarray(reply, np.int64))
        self.request.append(np.atleast_1d(a))
        self.reply.append(np.atleast_1d(b))
        self.state.append(np.full(a.size, state, np.int8))

    def pairing(self) -> Pairing:
        if not self.request:
            empty = np.empty(0, np.int64)
            return Pairing(empty, empty, np.empty(0, np.int8))
        return Pairing(np.concatenate(self.request), np.concatenate(self.reply), np.concatenate(self.state))


def _connection(rule: Rule, columns: _Columns, rows: I64, edge: Ends, out: _Out) -> None:
    """All exchanges of one connection; ``rows`` are its messages."""
    c2s, s2c = rows[columns.is_request[rows]], rows[columns.is_reply[rows]]
    c2s = c2s[np.argsort(columns.offset[c2s], kind="stable")]
    s2c = s2c[np.argsort(columns.offset[s2c], kind="stable")]
    if rule.tie:
        taken = _by_tie(rule, columns, c2s, s2c, edge, out)
    else:
        taken = _by_order(rule, columns, c2s, s2c, edge, out)
    _unpaired(rule, columns, c2s, s2c, taken, edge, out)


def _before(columns: _Columns, rows: I64, holes: Sequence[int]) -> int:
    """How many of the rows of a direction lie before its first hole."""
    if not holes:
        return len(rows)
    return int(np.searchsorted(columns.offset[rows], holes[0], "left"))


def _by_order(rule: Rule, columns: _Columns, c2s: I64, s2c: I64, edge: Ends, out: _Out) -> set[int]:
    """Pairs of a connection whose answers come in the order of the requests; returns the rows paired."""
    if not edge.start:
        return set()
    asked = c2s[columns.expects[c2s]]
    asked = asked[: _before(columns, asked, edge.holes[0])]
    replies = s2c[: _before(columns, s2c, edge.holes[1])]
    n = min(len(asked), len(replies))
    if not columns.first_only[replies].any() and all(
        columns.fits(rule, a, b) for a, b in zip(asked[:n].tolist(), replies[:n].tolist(), strict=True)
    ):
        out.add(asked[:n], replies[:n], State.ANSWERED)
        return {*asked[:n].tolist(), *replies[:n].tolist()}
    taken: set[int] = set()
    k = 0
    for reply in replies.tolist():
        fits = k < len(asked) and columns.fits(rule, int(asked[k]), reply)
        if not fits and columns.first_only[reply]:
            continue
        if not fits:
            break  # Out of step: nothing behind is proven.
        out.add(asked[k], reply, State.ANSWERED)
        taken |= {int(asked[k]), reply}
        k += 1
    return taken


def _by_tie(rule: Rule, columns: _Columns, c2s: I64, s2c: I64, edge: Ends, out: _Out) -> set[int]:
    """Pairs of a connection whose replies repeat a value of their request; returns the rows paired."""
    whole = edge.start and not edge.holes[0] and not edge.holes[1]
    waiting: dict[int, list[int]] = {}
    for row in c2s.tolist():
        waiting.setdefault(int(columns.tie[row]), []).append(row)
    once = all(len(rows) == 1 for rows in waiting.values()) and len(waiting) > 1
    taken: set[int] = set()
    if not whole and not once:
        return taken
    for reply in s2c.tolist():
        queue = waiting.get(int(columns.tie[reply]), [])
        if queue and columns.fits(rule, queue[0], reply):
            request = queue.pop(0)
            out.add(request, reply, State.ANSWERED)
            taken |= {request, reply}
    return taken


def _unpaired(
    rule: Rule, columns: _Columns, c2s: I64, s2c: I64, taken: set[int], edge: Ends, out: _Out
) -> None:
    """States of requests without an answer, and of answers without a request."""
    left = np.array([r not in taken for r in c2s.tolist()], np.bool_)
    alone = c2s[left] if len(c2s) else c2s
    expects = columns.expects[alone]
    out.add(alone[~expects], -1, State.NOT_EXPECTED)
    due = alone[expects]
    proven = c2s[: _before(columns, c2s, edge.holes[0])][-1:] if edge.start and edge.complete else c2s[:0]
    in_step = not any(r not in taken and not columns.first_only[r] for r in s2c.tolist())
    for row in due.tolist():
        ask = columns.asks[columns.op[row]]
        assert ask is not None
        # A message cut by the end of its stream was never a whole request.
        known = len(proven) and columns.offset[row] <= columns.offset[proven[0]] and not columns.truncated[row]
        if known and in_step and ask.answer == "always":
            out.add(row, -1, State.UNANSWERED)
        elif _in_gap(rule, columns, row, taken, s2c, c2s, edge):
            out.add(row, -1, State.LOST)
        else:
            out.add(row, -1, State.UNKNOWN)
    first = int(columns.ts_ns[c2s].min()) if len(c2s) else None
    for reply in s2c.tolist():
        if reply in taken or columns.first_only[reply]:
            continue
        early = not edge.start and (first is None or columns.ts_ns[reply] < first) and not edge.holes[0]
        out.add(-1, reply, State.ORPHAN if early else State.UNKNOWN)


def _in_gap(
    rule: Rule, columns: _Columns, request: int, taken: set[int], s2c: I64, c2s: I64, edge: Ends
) -> bool:
    """Whether an answer must lie in a hole: a later request's answer is there, this one's is not, and a hole lies between."""
    ask = columns.asks[columns.op[request]]
    if not rule.answers_in_order or not rule.tie or not edge.holes[1] or ask is None or ask.answer != "always":
        return False
    later = [r for r in s2c.tolist() if r in taken and columns.ts_ns[r] > columns.ts_ns[request]]
    after = [r for r in c2s.tolist() if r in taken and columns.offset[r] > columns.offset[request]]
    return bool(later and after)


def _exchanges(protocol: str, rows: pa.Table, pairs: Pairing) -> pa.Table:
    """The table ``exchanges``, sorted by time."""
    asked = pa.array(pairs.request, mask=pairs.request < 0)
    answered = pa.array(pairs.reply, mask=pairs.reply < 0)

    def of(name: str, at: pa.Array) -> pa.Array:
        return rows[name].combine_chunks().take(at)

    def either(name: str) -> pa.Array:
        """The request's, or of a reply without a request its own."""
        return rows[name].combine_chunks().take(pc.coalesce(asked, answered))

    request_ts, reply_ts = of("ts_ns", asked), of("ts_ns", answered)
    table = pa.table(
        {
            "connection_id": either("connection_id"),
            "protocol": pa.array([protocol] * len(asked), pa.string()),
            "op": either("op"),
            "destination": either("destination"),
            "client_name": either("client_name"),
            "request_direction": pa.array(["c2s"] * len(asked), pa.string()),
            "request_offset": of("stream_offset", asked),
            "reply_offset": of("stream_offset", answered),
            "request_ts_ns": request_ts,
            "reply_ts_ns": reply_ts,
            "latency_ns": pc.subtract(reply_ts, request_ts),
            "state": STATES.take(pa.array(pairs.state)),
            "status": of("status", answered),
            "error_code": of("error_code", answered),
        },
        EXCHANGES,
    )
    by = pc.coalesce(table["request_ts_ns"], table["reply_ts_ns"])
    order = pc.sort_indices(
        table.append_column("at", by), [("at", "ascending"), ("connection_id", "ascending"), ("request_offset", "ascending")]
    )
    return table.take(order)


def _deliveries(protocol: str, rows: pa.Table, matches: Matches | None) -> pa.Table:
    """The table ``deliveries``, sorted by time of the delivery."""
    if matches is None or not len(matches.publish):
        return DELIVERIES.empty_table()
    publish, deliver = pa.array(matches.publish), pa.array(matches.deliver)

    def of(name: str, at: pa.Array) -> pa.Array:
        return rows[name].combine_chunks().take(at)

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
    return table.sort_by([("publish_ts_ns", "ascending"), ("deliver_ts_ns", "ascending"), ("deliver_offset", "ascending")])
