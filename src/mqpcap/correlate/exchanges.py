"""Makes the rows of ``exchanges`` from messages, as they arrive.

In: batches of rows of one protocol, and how connections ended. Out: rows of ``exchanges`` that are final, and `Pairs`.
Called by: `Correlation`, window by window.

A server handles the requests of one connection in order, so each connection has a matcher of its own. A matcher gets
replies, and requests that may get a reply. Other requests (BlipMQ publishes) are decided by columns: the server handled
them if it handled a later request of the connection, or if it closed after them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import DICTIONARY_TEXT, Int64Array, constant, dictionary, is_in
from mqpcap.correlate.batch import KEPT, UNREAD, Batch, ConnectionEnds, Messages, sorted_rows
from mqpcap.correlate.matcher import RequestMatcher
from mqpcap.correlate.messages import LIKELY, NO_ROW, MatchResults
from mqpcap.correlate.named_matcher import NamedMatcher
from mqpcap.correlate.replay import Replay
from mqpcap.correlate.rules import request_groups
from mqpcap.correlate.tcp_order import TcpOrder, match_messages
from mqpcap.correlate.waiting_rows import BLOCK_COLUMNS, PENDING, Block, WaitingRows
from mqpcap.records import dataclass
from mqpcap.schema.protocol import other_direction
from mqpcap.schema.requests import (
    CorrelationRule,
    Evidence,
    Fingerprints,
    RequestGroup,
    RequestKind,
    ServerHabits,
    State,
)
from mqpcap.tcp.flow_records import NO_OFFSET

STATES = pa.array([s.name.lower() for s in State], pa.string())
EVIDENCE = pa.array([e.name.lower() for e in Evidence], pa.string())
MICROSECONDS = pa.timestamp("us", "UTC")
MAX_OPEN_BYTES = 64 << 20
"""Memory for open messages and stored keys of all connections of a protocol; with more, the connections with
the most give up theirs."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Requests and, row for row, their replies: the kept columns of each, its offset and times.

    evidence     what the pair rests on: an `Evidence`
    is_likely    whether it rests on an assumption
    """

    requests: pa.Table
    replies: pa.Table
    evidence: NDArray[np.int8]
    is_likely: NDArray[np.bool_]

    def certain(self) -> "Pairs":
        """The pairs that are certain."""
        rows = pa.array(np.flatnonzero(~self.is_likely))
        kept = self.evidence[~self.is_likely], self.is_likely[~self.is_likely]
        return Pairs(self.requests.take(rows), self.replies.take(rows), *kept)


class Exchanges:
    """The exchanges of one protocol; see the module.

    ``prints`` makes numbers of text. ``clock_difference_ns``: by how much a reply was stamped before its request, at
    most, and ``contradiction_count`` how many were.
    """

    def __init__(self, protocol: str, rule: CorrelationRule, prints: Fingerprints) -> None:
        self.protocol, self.prints = protocol, prints
        self.groups = request_groups(rule)
        self.results = MatchResults()
        self.contradiction_count = self.clock_difference_ns = 0
        self._matchers: list[dict[int, TcpOrder]] = [{} for _ in self.groups]
        self._watched_id: int | None = None
        self._replays: list[Replay] = []
        self._rows = WaitingRows()
        self._unconfirmed: set[int] = set()
        """Connections that began before the capture and have not shown their state."""
        needs_pairs = rule.deliveries is not None and rule.deliveries.of_pairs
        self._needed = tuple(f"f.{name}" for name in rule.columns) if needs_pairs else ()
        self._carried = "messages.", f"{protocol}."
        """Beginnings of the names of columns that rows carry of both of their messages."""

    def watch(self, connection_id: int) -> list[Replay]:
        """Record how the messages of one connection are paired, a replay for each request group."""
        self._watched_id, self._replays = connection_id, [Replay(x.tables.by_name, x.side) for x in self.groups]
        return self._replays

    # -- rows in -------------------------------------------------------------------------------------------

    def feed(self, batch: Batch) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Add rows; returns rows of ``exchanges`` that are final, and the pairs that were found."""
        order = _causal_order(batch)
        if self._watched_id is not None:
            rows_of_it = np.flatnonzero(batch.table["connection_id"].to_numpy() == self._watched_id)
            self.results.watched_flow = int(batch.flow[rows_of_it[0]]) if len(rows_of_it) else -1
        for number, (group, matchers) in enumerate(zip(self.groups, self._matchers, strict=True)):
            self.results.replay = self._replays[number] if self._replays else None
            self._note_unconfirmed(group, batch)
            codes = group.codes(batch.table)
            from_client = batch.from_client if group.side == "c2s" else ~batch.from_client
            rows = _relevant_rows(group, codes, from_client)
            block = self._block(batch, group, codes, rows, from_client)
            index = np.full(len(batch), -1, np.int64)
            if batch.truncated.any():
                index[batch.truncated & pc.is_null(batch.table["op"]).to_numpy()] = UNREAD
            index[rows] = np.arange(len(rows))
            payload_keys = np.zeros(len(batch), np.int64)
            if group.payload_keys is not None:
                payload_keys = group.payload_keys(batch.table, self.prints)
            echo_keys = group.echo_keys(batch.table, self.prints)
            messages = Messages(
                batch, order, index, codes, echo_keys, payload_keys, group.has_id(batch.table), from_client,
                _opens(batch, group.tables.habits, echo_keys), block.first_row,
            )  # fmt: skip
            matcher_type = NamedMatcher if group.tables.by_name else RequestMatcher
            match_messages(matchers, matcher_type, group.tables, self.results, messages)
            self._rows.add(block)
        if self.results.open_bytes > MAX_OPEN_BYTES:
            self._make_room()
        return self._apply_results()

    def _make_room(self) -> None:
        """Give up the open messages of the connections with the most, until half of MAX_OPEN_BYTES is left."""
        matchers = (matcher for by_flow in self._matchers for matcher in by_flow.values())
        for matcher in sorted(matchers, key=attrgetter("held_bytes"), reverse=True):
            if self.results.open_bytes <= MAX_OPEN_BYTES // 2:
                return
            self.results.open_bytes += matcher.give_up_all()

    def _block(
        self,
        batch: Batch,
        group: RequestGroup,
        codes: Int64Array,
        rows: NDArray[np.intp],
        from_client: NDArray[np.bool_],
    ) -> Block:
        carried = (name for name in batch.table.column_names if name.startswith(self._carried))
        table = batch.table.select([*KEPT, "direction", *self._needed, *carried])
        table = table.append_column("ts_ns", pa.array(batch.ts_ns)).append_column("end_ns", pa.array(batch.end_ns))
        flow, offset = batch.flow, batch.offset
        if len(rows) < len(batch):
            codes, flow, offset = codes[rows], flow[rows], offset[rows]
            from_client, table = from_client[rows], table.take(pa.array(rows))
        kinds = np.frombuffer(group.tables.kind[group.tables.midstream_state], np.int8).take(codes)
        kinds[~from_client] = RequestKind.NOT_A_REQUEST
        state = np.full(len(rows), PENDING, np.int8)
        if len(group.tables.kind) == 1:  # else the matcher knows the state
            state[kinds == RequestKind.ONE_WAY] = State.NOT_EXPECTED
        silence = np.array(group.tables.silence, np.int8).take(codes)
        message_rows = np.arange(len(rows), dtype=np.int32), flow.astype(np.int32), silence, from_client
        for name, column in zip((*BLOCK_COLUMNS, "offset"), (*message_rows, offset), strict=True):
            table = table.append_column(name, pa.array(column))
        return Block(self._rows.row_count, kinds, state, table)

    def _note_unconfirmed(self, group: RequestGroup, batch: Batch) -> None:
        """Note new connections whose state is only assumed."""
        if group.tables.confirming and not batch.start_seen.all():
            new = np.unique(batch.flow[~batch.start_seen]).tolist()
            self._unconfirmed.update(flow for flow in new if flow not in self._matchers[0])

    # -- the end of connections ----------------------------------------------------------------------------

    def close(
        self, ends: ConnectionEnds, client_end: Int64Array, server_end: Int64Array
    ) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Connections are over, whose last messages end at these offsets; returns what ``feed`` does."""
        all_acknowledged = ends.all_acknowledged.copy()
        whole_replies = ends.replies_missing_at < np.maximum(server_end, 0)
        whole_requests = ends.requests_missing_at < client_end
        columns = (
            x.tolist()
            for x in (
                ends.flow, ends.client_ended, ends.server_ended, ends.orderly, whole_requests, whole_replies,
                ends.requests_extent, ends.replies_extent,
            )
        )  # fmt: skip
        for i, (flow, *end) in enumerate(zip(*columns, strict=True)):
            contradicted = False
            client_ended, server_ended, is_orderly, requests, replies, requests_end, replies_end = end
            end_of_server = server_ended, is_orderly, requests, replies, requests_end, replies_end
            end_of_client = client_ended, False, replies, requests, replies_end, requests_end
            for group, matchers in zip(self.groups, self._matchers, strict=True):
                if (matcher := matchers.pop(flow, None)) is not None:
                    self.results.open_bytes -= matcher.held_bytes
                    contradicted |= matcher.close(*(end_of_server if group.side == "c2s" else end_of_client))
            if flow in self._unconfirmed:
                # All requests were handled, and nothing contradicted the assumed state.
                all_acknowledged[i] &= whole_replies[i] and not contradicted
                self._unconfirmed.discard(flow)
                if all_acknowledged[i]:
                    self.results.confirmed_from[flow] = NO_OFFSET
        return self._apply_results(replace(ends, all_acknowledged=all_acknowledged))

    # -- rows out ------------------------------------------------------------------------------------------

    def _apply_results(self, ends: ConnectionEnds | None = None) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Give rows the kinds and states of the matchers' results; returns what ``feed`` does."""
        results, pairs = self.results, self._paired()
        if results.kinds:
            rows, kinds = np.array(results.kinds, np.int64).reshape(-1, 2).T
            for block, index, row_indexes in self._rows.by_block(rows):
                block.kind[index] = kinds[row_indexes]
                is_reopened = (kinds[row_indexes] != RequestKind.ONE_WAY) & (block.state[index] == State.NOT_EXPECTED)
                block.state[index[is_reopened]] = PENDING
        if results.states:
            rows, states = np.array(results.states, np.int64).reshape(-1, 2).T
            rows, first_indexes = np.unique(rows, return_index=True)  # the first state counts
            for block, index, row_indexes in self._rows.by_block(rows):
                is_free = block.state[index] == PENDING
                block.state[index[is_free]] = states[first_indexes[row_indexes[is_free]]]
        if results.kinds:
            for block, index, _ in self._rows.by_block(np.array(results.kinds, np.int64)[::2]):
                block.state[index[(block.kind[index] == RequestKind.ONE_WAY) & (block.state[index] == PENDING)]] = (
                    State.NOT_EXPECTED
                )
        self._unconfirmed -= results.confirmed_from.keys()
        final = self._final_rows(pairs, results.confirmed_from, results.handled_to, ends)
        results.clear()
        return final, pairs

    def _paired(self) -> Pairs | None:
        """The pairs of the matchers' results, without those of rows that left with a state."""
        if not self.results.pairs:
            return None
        rows = np.array(self.results.pairs, np.int64).reshape(-1, 2)
        evidence = np.array(self.results.evidence, np.int8)
        is_here = self._rows.has(rows[:, 0]) & self._rows.has(rows[:, 1])
        if not is_here.all():
            rows, evidence = rows[is_here], evidence[is_here]
        if not len(rows):
            return None
        requests, replies = self._rows.take(rows[:, 0], NO_ROW), self._rows.take(rows[:, 1], NO_ROW)
        return Pairs(requests, replies, evidence % LIKELY, evidence >= LIKELY)

    def _final_rows(
        self, pairs: Pairs | None, confirmed: Mapping[int, int], handled: Mapping[int, int], ends: ConnectionEnds | None
    ) -> Iterator[pa.Table]:
        """Rows that are final, one block in memory after the other."""
        if pairs is not None:
            yield self._exchanges(
                pairs.requests, pairs.replies, np.where(pairs.is_likely, State.LIKELY, State.ANSWERED), pairs
            )
        ended = [] if ends is None else ends.flow.tolist()
        for block in self._rows.blocks_with([*confirmed, *handled, *ended]):
            if confirmed:
                _settle_confirmed(block, confirmed)
            if handled:
                _settle_handled(block, handled)
            if ends is not None:
                _settle_closed(block, ends)
            is_final, from_client = (block.state != PENDING) & (block.state != NO_ROW), block.column("from_client")
            asks = from_client & ~np.isin(block.kind, (RequestKind.NOT_A_REQUEST, RequestKind.CLOSES))
            requests, replies = np.flatnonzero(is_final & asks), np.flatnonzero(is_final & ~from_client)
            if len(requests):
                yield self._exchanges(self._rows.columns(block, requests), None, block.state[requests])
            if len(replies):
                yield self._exchanges(None, self._rows.columns(block, replies), block.state[replies])

    def _exchanges(
        self, requests: pa.Table | None, replies: pa.Table | None, state: NDArray[np.int8], pairs: Pairs | None = None
    ) -> pa.Table:
        """Rows of ``exchanges`` from requests and, row for row, their replies; either may be None."""
        n = len(state)
        message_rows = requests if requests is not None else replies
        assert message_rows is not None

        def column(side: pa.Table | None, name: str) -> pa.Array:
            return pa.nulls(n, pa.int64()) if side is None else side[name]

        directions = dictionary(message_rows["direction"])
        sides = directions.dictionary.to_pylist()
        asking = pa.array(sides if requests is not None else map(other_direction, sides), pa.string())
        asked = pa.DictionaryArray.from_arrays(directions.indices, asking)
        requested, replied = column(requests, "ts_ns"), column(replies, "ts_ns")
        latency = server = pa.nulls(n, pa.int64())
        if pairs is not None:
            latency, server = self._latencies(pairs)
        columns = {
            "connection_id": message_rows["connection_id"],
            "protocol": constant(self.protocol, n),
            "op": message_rows["op"],
            "destination": message_rows["destination"],
            "client_name": message_rows["client_name"],
            "request_direction": asked,
            "request_offset": column(requests, "offset"),
            "reply_offset": column(replies, "offset"),
            "request_ts": microseconds(requested),
            "reply_ts": microseconds(replied),
            "request_ts_ns": requested,
            "reply_ts_ns": replied,
            "latency_ns": latency,
            "server_ns": server,
            "state": pa.DictionaryArray.from_arrays(state.astype(np.int32), STATES, safe=False),
            "how": pa.nulls(n, pa.string()) if pairs is None else EVIDENCE.take(pa.array(pairs.evidence)),
            "status": pa.nulls(n, DICTIONARY_TEXT) if replies is None else dictionary(replies["status"]),
            "error_code": column(replies, "error_code"),
            "client_ip": message_rows["client_ip"],
            "client_port": message_rows["client_port"],
            "server_ip": message_rows["server_ip"],
            "server_port": message_rows["server_port"],
            "request_packet": column(requests, "first_packet"),
            "reply_packet": column(replies, "first_packet"),
        }
        for name in (x for x in message_rows.column_names if x.startswith(self._carried)):
            for end, side in (("request", requests), ("reply", replies)):
                columns[f"{end}.{name}"] = pa.nulls(n, message_rows[name].type) if side is None else side[name]
        return pa.table(columns)

    def _latencies(self, pairs: Pairs) -> tuple[pa.Array, pa.Array]:
        """From the first byte of each request to that of its reply, and from the request's last byte.

        Null where the clocks of the two directions contradict the order of the packets.
        """
        replied = pairs.replies["ts_ns"].to_numpy()
        latency = replied - pairs.requests["ts_ns"].to_numpy()
        server = replied - pairs.requests["end_ns"].to_numpy()
        if (latency < 0).any():
            self.contradiction_count += int((latency < 0).sum())
            self.clock_difference_ns = max(self.clock_difference_ns, int(-latency.min()))
        return pa.array(latency, mask=latency < 0), pa.array(server, mask=server < 0)


def microseconds(nanoseconds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Times as timestamps, rounded down."""
    if nanoseconds.null_count == len(nanoseconds):
        return pa.nulls(len(nanoseconds), MICROSECONDS)
    # Rounded without a time zone, which Arrow would look up for each value.
    return pc.floor_temporal(nanoseconds.cast(pa.timestamp("ns")), unit="microsecond").cast(MICROSECONDS)


def _relevant_rows(group: RequestGroup, codes: Int64Array, from_client: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows that are requests in some state of the connection, or replies."""
    tables = group.tables
    request = (np.array([np.frombuffer(kind, np.int8) for kind in tables.kind]) != RequestKind.NOT_A_REQUEST).any(0)
    reply = np.array(
        [bool(bit) or c in tables.unreadable or c in tables.state_after for c, bit in enumerate(tables.reply_bits)],
        np.bool_,
    )
    return np.flatnonzero(np.where(from_client, request.take(codes), reply.take(codes)))


def _opens(batch: Batch, habits: ServerHabits, echo_keys: Int64Array) -> NDArray[np.bool_]:
    """Whether a message is the first of its connection, whatever was captured before it."""
    if not habits.opening or batch.start_seen.all():
        return batch.start_seen
    opens = batch.from_client & is_in(batch.table["op"], *habits.opening)
    if habits.opening_id is not None:
        opens &= echo_keys == habits.opening_id
    return batch.start_seen | opens


def _causal_order(batch: Batch) -> NDArray[np.intp]:
    """The rows connection by connection, each in order of time; each side keeps the order of its bytes."""
    return sorted_rows(batch.flow, batch.monotonic_ts_ns, ~batch.from_client, batch.offset)[0]


def _settle_confirmed(block: Block, proved: Mapping[int, int]) -> None:
    """Connections showed their state: requests from an offset on were in it, earlier ones perhaps in another.

    An earlier request may still get its reply, but without a reply its state is unknown.
    """
    is_listed, first_offset = _values_by_flow(block.column("flow"), proved)
    is_listed &= block.column("from_client")
    block.settle(is_listed & (block.kind == RequestKind.ONE_WAY), State.NOT_EXPECTED)
    is_before = block.column("offset") < first_offset
    block.replace_silence(is_listed & is_before & (block.kind != RequestKind.ONE_REPLY), State.UNKNOWN)


def _settle_handled(block: Block, handled: Mapping[int, int]) -> None:
    """Requests before an answered request were handled: without a reply, their state is final."""
    is_listed, until = _values_by_flow(block.column("flow"), handled)
    is_listed &= block.column("from_client") & (block.kind != RequestKind.ONE_REPLY)
    block.settle(is_listed & (block.column("offset") < until), block.column("silence"))


def _settle_closed(block: Block, ends: ConnectionEnds) -> None:
    """Decide the remaining rows of ended connections."""
    order = np.argsort(ends.flow)
    index, is_listed = _index_of_flow(block.column("flow"), ends.flow[order])
    all_acknowledged, missing_at = ends.all_acknowledged[order][index], ends.requests_missing_at[order][index]
    silence = block.column("silence")
    handled = all_acknowledged & ((missing_at < 0) | (block.column("offset") < missing_at))
    handled |= silence == State.NOT_EXPECTED
    quiet = is_listed & block.column("from_client") & (block.kind != RequestKind.ONE_REPLY)
    block.settle(quiet & handled, silence)
    block.settle(is_listed, State.UNKNOWN)


def _values_by_flow(flow: NDArray[np.integer], by_flow: Mapping[int, int]) -> tuple[NDArray[np.bool_], Int64Array]:
    """Whether a row's connection has a number, and that number."""
    flows = np.array(sorted(by_flow), np.int64)
    index, is_listed = _index_of_flow(flow, flows)
    return is_listed, np.array([by_flow[number] for number in flows.tolist()], np.int64)[index]


def _index_of_flow(flow: NDArray[np.integer], flows: Int64Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The index of each row's connection in a list, which ascends, and whether it is listed."""
    index = np.minimum(np.searchsorted(flows, flow), len(flows) - 1)
    return index, flows[index] == flow
