"""Messages to exchanges, as they complete.

:class:`Exchanges` is fed with the rows of a protocol, window by window, and gives the rows of the table ``exchanges``
that became certain. The order in which a server handled requests is known by connection only: each has a
:class:`~mqpcap.correlate.dialogue.Dialogue`, which takes its requests that may get a reply and its replies one by one.
Requests that never get one (BlipMQ publishes) are settled by whole columns: they were handled when a later
request of their connection was, or when the server closed behind them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import DICTIONARY_TEXT, Int64Array, constant, dictionary
from mqpcap.correlate.batch import KEPT, Batch, Closing, Messages, in_order
from mqpcap.correlate.dialogue import NO_ROW, Dialogue, Findings, converse
from mqpcap.correlate.rules import lanes
from mqpcap.correlate.waiting_rows import BLOCK_COLUMNS, PENDING, Block, WaitingRows
from mqpcap.schema.requests import CorrelationRule, Lane, Prints, RequestKind, State

MAX_HELD_ROWS = 1 << 16
"""Rows of connections of which a side waits for missing bytes; with more the pairs are looked for all the same."""
STATES = pa.array([s.name.lower() for s in State], pa.string())


@dataclass(frozen=True, slots=True)
class Pairs:
    """Requests and, row for row, their replies: the kept columns of each, its offset and times."""

    requests: pa.Table
    replies: pa.Table


class Exchanges:
    """The exchanges of one protocol in the making; see the module.

    ``prints`` makes numbers of text.
    """

    def __init__(self, protocol: str, rule: CorrelationRule, prints: Prints) -> None:
        self.protocol, self.prints = protocol, prints
        self.lanes = lanes(rule)
        self.found = Findings()
        self._talks: list[dict[int, Dialogue]] = [{} for _ in self.lanes]
        self._held: Batch | None = None
        """Rows of connections of which a side is behind."""
        self._rows = WaitingRows()
        self._unsure: set[int] = set()
        """Connections that began before the capture and have not shown their state."""
        needs_pairs = rule.deliveries is not None and rule.deliveries.of_pairs
        self._needed = tuple(f"f.{name}" for name in rule.needed) if needs_pairs else ()

    # -- rows in -------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, behind: Mapping[tuple[int, bool], int]) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Take rows in; returns rows of ``exchanges`` that are certain now, and the pairs that were found.

        ``behind``: sides (flow, whether the client's) that wait for bytes, and since when; the other is ahead of them.
        """
        batch = self._in_turn(batch, behind)
        if len(batch):
            self._take(batch)
        return self._settled()

    def _in_turn(self, batch: Batch, behind: Mapping[tuple[int, bool], int]) -> Batch:
        """The rows whose turn it is: not those of a connection from when on a side of it is ahead of the other."""
        if self._held is not None:
            batch, self._held = Batch.joined([self._held, batch]), None
        waits = np.zeros(len(batch), np.bool_)
        for of_client in (True, False):
            since = {flow: ns for (flow, client), ns in behind.items() if client == of_client}
            late = _from_then_on(batch, since)
            ahead = batch.flow[late[batch.from_client[late] != of_client]]
            waits[late[np.isin(batch.flow[late], ahead)]] = True
        if not 0 < np.count_nonzero(waits) <= MAX_HELD_ROWS:
            return batch
        self._held = batch.taken(np.flatnonzero(waits))
        return batch.taken(np.flatnonzero(~waits))

    def _take(self, batch: Batch) -> None:
        order = _causal(batch)
        for lane, talks in zip(self.lanes, self._talks, strict=True):
            codes = lane.codes(batch.table)
            rows = _taking_part(lane, codes, batch.from_client)
            if not len(rows) and not batch.broken.any():  # bytes are missing in front of rows of another lane, too
                continue
            block = self._block(batch, lane, codes, rows)
            place = np.full(len(batch), -1, np.int64)
            place[rows] = np.arange(len(rows))
            ties, numbers = lane.ties(batch.table, self.prints), lane.numbers(batch.table)
            items = np.zeros(len(batch), np.int64) if lane.items is None else lane.items(batch.table, self.prints)
            messages = Messages(
                order, place, batch.flow, codes, ties, items, batch.ts_ns, batch.end_ns, batch.offset,
                batch.from_client, batch.broken, batch.cut, batch.started, numbers, block.first_row, block.kind,
                block.state,
            )  # fmt: skip
            converse(talks, lane.tables, self.found, messages)
            self._rows.add(block)

    def _block(self, batch: Batch, lane: Lane, codes: Int64Array, rows: NDArray[np.intp]) -> Block:
        table = batch.table.select([*KEPT, *self._needed]).append_column("ts_ns", pa.array(batch.ts_ns))
        if self._needed:
            table = table.append_column("end_ns", pa.array(batch.end_ns))
        unsure, flow, offset, from_client = self._is_unsure(lane, batch), batch.flow, batch.offset, batch.from_client
        if len(rows) < len(batch):
            codes, flow, offset = codes[rows], flow[rows], offset[rows]
            unsure, from_client, table = unsure[rows], from_client[rows], table.take(pa.array(rows))
        kinds = np.frombuffer(lane.tables.kind[lane.tables.late], np.int8).take(codes)
        kinds[~from_client] = RequestKind.NOTHING
        state = np.full(len(rows), PENDING, np.int8)
        state[(kinds == RequestKind.IGNORED) & ~unsure] = State.NOT_EXPECTED
        silence = np.array(lane.tables.silence, np.int8).take(codes)
        own = np.arange(len(rows), dtype=np.int32), flow.astype(np.int32), silence, from_client
        for name, column in zip((*BLOCK_COLUMNS, "offset"), (*own, offset), strict=True):
            table = table.append_column(name, pa.array(column))
        return Block(self._rows.row_count, kinds, state, table)

    def _is_unsure(self, lane: Lane, batch: Batch) -> NDArray[np.bool_]:
        """Of which rows it is not known in what state their connections are."""
        if not lane.tables.proofs or (batch.started.all() and not self._unsure):
            return np.zeros(len(batch), np.bool_)
        begun = np.unique(batch.flow[~batch.started]).tolist()
        self._unsure.update(flow for flow in begun if flow not in self._talks[0])
        return np.isin(batch.flow, np.fromiter(self._unsure, np.int64))

    # -- the end of connections ----------------------------------------------------------------------------

    def close(
        self, closing: Closing, client_end: Int64Array, server_end: Int64Array
    ) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """The rest of some connections, and where their last messages end; returns what ``feed`` does."""
        if self._held is not None:
            over = np.isin(self._held.flow, closing.flow)
            if over.any():
                self._take(self._held.taken(np.flatnonzero(over)))
                self._held = None if over.all() else self._held.taken(np.flatnonzero(~over))
        covered = closing.covered.copy()
        whole_replies = closing.replies_missing_at < np.maximum(server_end, 0)
        requests_missing = closing.requests_missing_at >= client_end
        columns = (x.tolist() for x in (closing.flow, closing.ended, whole_replies, requests_missing))
        for i, (flow, *end) in enumerate(zip(*columns, strict=True)):
            denied = False
            for talks in self._talks:
                if (talk := talks.pop(flow, None)) is not None:
                    denied |= talk.close(*end)
            if flow in self._unsure:
                # All was handled, and nothing refused: so it was ready.
                covered[i] &= whole_replies[i] and not denied
                self._unsure.discard(flow)
                if covered[i]:
                    self.found.proved[flow] = 0
        return self._settled(replace(closing, covered=covered))

    # -- rows out ------------------------------------------------------------------------------------------

    def _settled(self, closing: Closing | None = None) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Give rows the states that were found; returns what ``feed`` does."""
        found, pairs = self.found, self._paired()
        if found.states:
            rows, states = np.array(found.states, np.int64).reshape(-1, 2).T
            rows, first = np.unique(rows, return_index=True)  # what was said first counts
            for block, at, which in self._rows.located(rows):
                is_free = block.state[at] == PENDING
                block.state[at[is_free]] = states[first[which[is_free]]]
        if found.kinds:
            rows, kinds = np.array(found.kinds, np.int64).reshape(-1, 2).T
            for block, at, which in self._rows.located(rows):
                block.kind[at] = kinds[which]
                is_free = (kinds[which] == RequestKind.IGNORED) & (block.state[at] == PENDING)
                block.state[at[is_free]] = State.NOT_EXPECTED
        self._unsure -= found.proved.keys()
        made = self._given_out(pairs, found.proved, found.handled, closing)
        found.clear()
        return made, pairs

    def _paired(self) -> Pairs | None:
        if not self.found.pairs:
            return None
        rows = np.array(self.found.pairs, np.int64).reshape(-1, 2)
        return Pairs(self._rows.take(rows[:, 0], NO_ROW), self._rows.take(rows[:, 1], NO_ROW))

    def _given_out(
        self, pairs: Pairs | None, proved: Mapping[int, int], handled: Mapping[int, int], closing: Closing | None
    ) -> Iterator[pa.Table]:
        """Rows that are certain, one block in memory after the other."""
        if pairs is not None:
            states = np.full(pairs.requests.num_rows, State.ANSWERED, np.int8)
            yield self._exchanges(pairs.requests, pairs.replies, states)
        over = [] if closing is None else closing.flow.tolist()
        for block in self._rows.opened([*proved, *handled, *over]):
            if proved:
                _settle_proved(block, proved)
            if handled:
                _settle_handled(block, handled)
            if closing is not None:
                _settle_closed(block, closing)
            shown, from_client = (block.state != PENDING) & (block.state != NO_ROW), block.column("from_client")
            asks = from_client & ~np.isin(block.kind, (RequestKind.NOTHING, RequestKind.BREAKS))
            asked, said = np.flatnonzero(shown & asks), np.flatnonzero(shown & ~from_client)
            if len(asked):
                yield self._exchanges(self._rows.columns(block, asked), None, block.state[asked])
            if len(said):
                yield self._exchanges(None, self._rows.columns(block, said), block.state[said])

    def _exchanges(self, asked: pa.Table | None, said: pa.Table | None, state: NDArray[np.int8]) -> pa.Table:
        """Rows of ``exchanges`` from requests and, row for row, their replies; one of both may be missing."""
        n, both = len(state), asked is not None and said is not None
        own = asked if asked is not None else said
        assert own is not None

        def of(side: pa.Table | None, name: str) -> pa.Array:
            return pa.nulls(n, pa.int64()) if side is None else side[name]

        columns = {
            "connection_id": own["connection_id"],
            "protocol": constant(self.protocol, n),
            "op": own["op"],
            "destination": own["destination"],
            "client_name": own["client_name"],
            "request_direction": constant("c2s", n),
            "request_offset": of(asked, "offset"),
            "reply_offset": of(said, "offset"),
            "request_ts_ns": of(asked, "ts_ns"),
            "reply_ts_ns": of(said, "ts_ns"),
            "latency_ns": pc.subtract(of(said, "ts_ns"), of(asked, "ts_ns")) if both else pa.nulls(n, pa.int64()),
            "state": pa.DictionaryArray.from_arrays(state.astype(np.int32), STATES, safe=False),
            "status": pa.nulls(n, DICTIONARY_TEXT) if said is None else dictionary(said["status"]),
            "error_code": of(said, "error_code"),
            "client_ip": own["client_ip"],
            "client_port": own["client_port"],
            "server_ip": own["server_ip"],
            "server_port": own["server_port"],
            "request_packet": of(asked, "first_packet"),
            "reply_packet": of(said, "first_packet"),
        }
        return pa.table(columns)


def _from_then_on(batch: Batch, since_ns: Mapping[int, int]) -> NDArray[np.intp]:
    """The rows of some flows from a time on, each flow's own."""
    if not since_ns:
        return np.empty(0, np.intp)
    late, times = _of_flows(batch.flow, since_ns)
    return np.flatnonzero(late & (batch.when >= times)) if late.any() else np.empty(0, np.intp)


def _taking_part(lane: Lane, codes: Int64Array, from_client: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows that are requests in some state of the connection, or replies."""
    tables = lane.tables
    request = (np.array([np.frombuffer(kind, np.int8) for kind in tables.kind]) != RequestKind.NOTHING).any(0)
    reply = np.array([bool(s) or c in tables.gaps or c in tables.moves for c, s in enumerate(tables.says)], np.bool_)
    return np.flatnonzero(np.where(from_client, request.take(codes), reply.take(codes)))


def _causal(batch: Batch) -> NDArray[np.intp]:
    """The rows connection by connection, each in order of time; each side keeps the order of its bytes."""
    return in_order(batch.flow, batch.when, ~batch.from_client, batch.offset)[0]


def _settle_proved(block: Block, proved: Mapping[int, int]) -> None:
    """Connections showed their state: what came behind some row was in it, what came before perhaps in another."""
    mine, first_row = _of_flows(block.column("flow"), proved)
    mine &= block.column("from_client")
    block.settle(mine & (block.kind == RequestKind.IGNORED), State.NOT_EXPECTED)
    before = block.first_row + block.column("behind") < first_row
    block.settle(mine & before & (block.kind != RequestKind.FIXED), State.UNKNOWN)


def _settle_handled(block: Block, handled: Mapping[int, int]) -> None:
    """Requests in front of one that was answered were handled: without a reply, that is their state."""
    mine, until = _of_flows(block.column("flow"), handled)
    mine &= block.column("from_client") & (block.kind != RequestKind.FIXED)
    block.settle(mine & (block.column("offset") < until), block.column("silence"))


def _settle_closed(block: Block, closing: Closing) -> None:
    """What is left of connections that are over."""
    order = np.argsort(closing.flow)
    at, mine = _place(block.column("flow"), closing.flow[order])
    covered, missing_at = closing.covered[order][at], closing.requests_missing_at[order][at]
    silence = block.column("silence")
    handled = covered & ((missing_at < 0) | (block.column("offset") < missing_at))
    handled |= silence == State.NOT_EXPECTED
    quiet = mine & block.column("from_client") & (block.kind != RequestKind.FIXED)
    block.settle(quiet & handled, silence)
    block.settle(mine, State.UNKNOWN)


def _of_flows(flow: NDArray[np.integer], by_flow: Mapping[int, int]) -> tuple[NDArray[np.bool_], Int64Array]:
    """Of which rows the connection has a number, and that number."""
    flows = np.array(sorted(by_flow), np.int64)
    at, mine = _place(flow, flows)
    return mine, np.array([by_flow[number] for number in flows.tolist()], np.int64)[at]


def _place(flow: NDArray[np.integer], flows: Int64Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Of each row the place of its connection among some, which ascend, and whether it is one of them."""
    at = np.minimum(np.searchsorted(flows, flow), len(flows) - 1)
    return at, flows[at] == flow
