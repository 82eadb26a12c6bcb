"""Messages to exchanges, as they complete.

:class:`Exchanges` is fed with the rows of a protocol, window by window, and gives the rows of the table ``exchanges``
that became certain. The order in which a server handled requests is known by connection only, so each connection has a
:class:`~mqpcap.correlate.dialogue.Dialogue`; only requests that may get a reply and replies go through it, one by one.
Requests that never get one (BlipMQ publishes) are settled by whole columns: they were handled when a later request of
their connection was, or when the server closed behind them.

Rows that wait are kept in blocks of narrow columns; blocks beyond ``MAX_WAITING_BYTES`` wait in a temporary file.
"""

import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import ascend, constant, dictionary, factorize, unified, whole
from mqpcap.correlate.batch import KEPT, Batch, Closing, in_groups
from mqpcap.correlate.dialogue import NO_ROW, NO_TIE, Dialogue, Found, NamedRequests, Requests, converse
from mqpcap.correlate.rules import lanes
from mqpcap.errors import let_go
from mqpcap.schema.requests import I64, Lane, Prints, RequestKind, Rule, State

MAX_WAITING_BYTES = 16 << 20
"""Rows that wait for their state are in memory up to here; more wait in a temporary file."""
MAX_HELD_ROWS = 1 << 16
"""Rows of connections of which a side waits for missing bytes; with more the pairs are looked for all the same."""
FEW = 64
"""So many requests in a row are looked at one by one; more are taken in together."""
PENDING = -1
TEXTS = ("op", "destination", "client_name", "status", "client_ip", "server_ip")
STATES = pa.array([s.name.lower() for s in State], pa.string())


@dataclass(slots=True)
class _Answers:
    """What is known of the replies to some rows of a block: ``at`` are their places, ascending."""

    at: NDArray[np.intp]
    columns: dict[str, NDArray[np.int64]]


@dataclass(slots=True)
class _Block:
    """Rows that wait, with little of each in memory; ``first_row`` is the number of the first, ``rows`` of each where
    some have left."""

    first_row: int
    flow: NDArray[np.int32]
    offset: I64
    kind: NDArray[np.int8]
    silence: NDArray[np.int8]
    state: NDArray[np.int8]
    from_client: NDArray[np.bool_]
    table: pa.Table | None
    size_bytes: int
    """Of ``table``, while it is in memory."""
    place: tuple[int, int] = (0, 0)
    rows: I64 | None = None
    answers: list[_Answers] = field(default_factory=list)

    def places(self, rows: I64) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where rows are, by number, and whether they are: of a row that was given out nothing more is said."""
        if self.rows is None:
            at = rows - self.first_row
            return at, at < len(self.flow)
        at = np.searchsorted(self.rows, rows)
        return at, self.rows[np.minimum(at, len(self.rows) - 1)] == rows

    def answered(self, wanted: NDArray[np.intp]) -> dict[str, NDArray[np.int64]]:
        """What is known of the replies to some places; zeros elsewhere."""
        out = {name: np.zeros(len(wanted), np.int64) for name in _REPLY}
        for answers in self.answers:
            there = np.searchsorted(wanted, answers.at)
            there = np.minimum(there, max(len(wanted) - 1, 0))
            hit = wanted[there] == answers.at if len(wanted) else np.zeros(0, np.bool_)
            for name in _REPLY:
                out[name][there[hit]] = answers.columns[name][hit]
        return out


_REPLY = ("offset", "ts_ns", "packet", "status", "error_code", "has_error")


class Exchanges:
    """The exchanges of one protocol in the making; see the module.

    ``prints`` makes numbers of text.
    """

    def __init__(self, protocol: str, rule: Rule, prints: Prints) -> None:
        self.protocol, self.rule, self.prints = protocol, rule, prints
        self.lanes = lanes(rule)
        self.found = Found()
        self._dialogues: list[dict[int, Dialogue | NamedRequests]] = [{} for _ in self.lanes]
        self._ends: dict[int, list[int]] = {}
        self._held: Batch | None = None
        """Rows of connections of which a side is behind."""
        self._blocks: dict[int, _Block] = {}
        self._block_count = 0
        self._flow_blocks: dict[int, set[int]] = {}
        self._unsure: set[int] = set()
        """Connections that began before the capture and have not shown their state."""
        self._statuses: dict[str, int] = {"": 0}
        self._row_count = 0
        self._file: IO[bytes] | None = None
        self._keeps = rule.needed if rule.deliveries is not None and rule.deliveries.of_pairs else ()

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        for block in self._blocks.values():
            block.table = self._table(block)
        state["_file"] = None
        return state

    # -- rows in -------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, behind: Mapping[int, int]) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """Take rows in; returns rows of ``exchanges`` that are certain now, and the pairs that were found.

        ``behind``: flows a side of which waits for bytes, so that the other is ahead of it, and since when.
        """
        batch = self._in_turn(batch, behind)
        if len(batch):
            self._take(batch)
        return self._certain()

    def _in_turn(self, batch: Batch, behind: Mapping[int, int]) -> Batch:
        """The rows whose turn it is: where a side of a connection is behind, those before the bytes it waits for."""
        if self._held is not None:
            batch, self._held = Batch.joined([self._held, batch]), None
        flows = np.array([*behind], np.int64)
        late = np.flatnonzero(np.isin(batch.flow, flows))
        if not len(late):
            return batch
        order = np.argsort(flows)
        since = np.array([*behind.values()], np.int64)[order]
        late = late[batch.when[late] >= since[np.searchsorted(flows[order], batch.flow[late])]]
        if not 0 < len(late) <= MAX_HELD_ROWS:
            return batch
        waits = np.zeros(len(batch), np.bool_)
        waits[late] = True
        self._held = batch.taken(late)
        return batch.taken(np.flatnonzero(~waits))

    def _take(self, batch: Batch) -> None:
        order = _causal(batch)
        taken: list[tuple[NDArray[np.intp], _Block]] = []
        for number, lane in enumerate(self.lanes):
            codes = lane.codes(batch.table)
            rows = _taking_part(lane, codes, batch.from_client)
            if len(rows) or batch.broken.any():  # bytes are missing in front of rows of another lane, too
                block = self._new_block(batch, lane, codes, rows)
                self._converse(number, lane, batch, codes, rows, block, order)
                taken.append((rows, block))
        self._note_ends(batch)

    def _new_block(self, batch: Batch, lane: Lane, codes: I64, rows: NDArray[np.intp]) -> _Block:
        kinds = np.array(lane.rules.kind[lane.rules.late], np.int8)[codes[rows]]
        kinds[~batch.from_client[rows]] = RequestKind.NOTHING
        state = np.full(len(rows), PENDING, np.int8)
        state[(kinds == RequestKind.IGNORED) & ~self._is_unsure(lane, batch)[rows]] = State.NOT_EXPECTED
        names = [*KEPT, *(f"f.{name}" for name in self._keeps)]
        table = batch.table.select(names).append_column("ts_ns", pa.array(batch.ts_ns))
        for name in ("offset", "end_ns") if self._keeps else ():
            table = table.append_column(name, pa.array(getattr(batch, name)))
        if len(rows) < len(batch):
            table = table.take(pa.array(rows))
        block = _Block(
            self._row_count, batch.flow[rows].astype(np.int32), batch.offset[rows], kinds,
            np.array(lane.rules.silence, np.int8)[codes[rows]], state, batch.from_client[rows], table, table.nbytes,
        )  # fmt: skip
        number = self._block_count
        self._blocks[number] = block
        self._block_count += 1
        self._row_count += len(rows)
        for flow in np.unique(block.flow[state == PENDING]).tolist():
            self._flow_blocks.setdefault(flow, set()).add(number)
        return block

    def _is_unsure(self, lane: Lane, batch: Batch) -> NDArray[np.bool_]:
        """Of which rows it is not known in what state their connections are."""
        if not lane.rules.proofs or (batch.started.all() and not self._unsure):
            return np.zeros(len(batch), np.bool_)
        self._unsure.update(f for f in np.unique(batch.flow[~batch.started]).tolist() if f not in self._ends)
        return np.isin(batch.flow, np.fromiter(self._unsure, np.int64))

    def _converse(
        self, number: int, lane: Lane, batch: Batch, codes: I64, rows: NDArray[np.intp], block: _Block,
        order: NDArray[np.intp],
    ) -> None:  # fmt: skip
        """Rows that may be or get a reply through their dialogues, connection by connection."""
        rules = lane.rules
        dialogues = self._dialogues[number]
        ready = np.isin(np.array(rules.kind[rules.late]), _HEARD)
        place = np.full(len(batch), -1, np.int64)
        place[rows] = np.arange(len(rows))
        stateless = len(rules.kind) == 1
        needs = ready[codes] | ~batch.from_client | batch.broken
        if not stateless:
            flows, first = np.unique(batch.flow, return_index=True)
            begun = zip(flows.tolist(), batch.started[first].tolist(), strict=True)
            unready = [f for f, started in begun if not _is_ready(dialogues.get(f), started)]
            if unready:
                needs |= np.isin(batch.flow, np.array(unready, np.int64))
        needs &= (place >= 0) | batch.broken
        todo = order[needs[order]]
        if not len(todo):
            return
        ties = _ties(self.rule, lane, batch.table, self.prints)
        numbers = _numbers(self.rule, lane, batch.table)
        items = np.zeros(len(batch), np.int64) if lane.items is None else lane.items(batch.table, self.prints)
        talks = _Talks(batch, codes, ties, items, numbers, place, todo, block.first_row)
        for start, end, flow, is_quiet in talks.stretches():
            dialogue = dialogues.get(flow)
            if dialogue is None:
                make = NamedRequests if rules.named else Dialogue
                dialogue = dialogues[flow] = make(rules, flow, bool(batch.started[todo[start]]), self.found)
            if is_quiet and isinstance(dialogue, Dialogue) and dialogue.takes_many:
                dialogue.requests(talks.requests(start, end))
            else:
                talks.tell(dialogue, start, end, block)

    def _note_ends(self, batch: Batch) -> None:
        """Remember where the last message of each side ends."""
        first = np.append(0, batch.side_ends)[:-1]
        rows = batch.by_side[first]
        last = np.maximum.reduceat((batch.offset + batch.length)[batch.by_side], first)
        columns = (batch.flow[rows], batch.from_client[rows], last)
        for flow, from_client, end in zip(*(x.tolist() for x in columns), strict=True):
            known = self._ends.setdefault(flow, [-1, -1])
            known[not from_client] = max(known[not from_client], end)

    # -- the end of connections ----------------------------------------------------------------------------

    def close(self, closing: Closing) -> "tuple[Iterator[pa.Table], Pairs | None]":
        """The rest of some connections; returns what ``feed`` does."""
        if self._held is not None:
            over = np.isin(self._held.flow, closing.flow)
            if over.any():
                self._take(self._held.taken(np.flatnonzero(over)))
                self._held = None if over.all() else self._held.taken(np.flatnonzero(~over))
        covered = closing.covered.copy()
        columns = (closing.flow, closing.ended, closing.requests_missing_at, closing.replies_missing_at)
        for i, (flow, ended, no_request_at, no_reply_at) in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
            ends = self._ends.pop(flow, [-1, -1])
            has_all_replies = not 0 <= ends[1] <= no_reply_at and (no_reply_at < 0 or ends[1] >= 0)
            talks = [talk for dialogues in self._dialogues if (talk := dialogues.pop(flow, None)) is not None]
            for dialogue in talks:
                if no_request_at >= ends[0] and no_request_at >= 0 and not isinstance(dialogue, NamedRequests):
                    dialogue.requests_missing = True
                dialogue.close(ended, has_all_replies)
            if flow in self._unsure:
                # All was handled, and nothing refused: so it was ready.
                covered[i] &= has_all_replies and not any(isinstance(x, Dialogue) and x.denied for x in talks)
                self._unsure.discard(flow)
                if covered[i]:
                    self.found.proved[flow] = 0
        return self._certain(replace(closing, covered=covered))

    # -- rows out ------------------------------------------------------------------------------------------

    def _certain(self, closing: Closing | None = None) -> "tuple[Iterator[pa.Table], Pairs | None]":
        found = self.found
        touched: set[int] = set()
        pairs = self._note_pairs(touched)
        if found.kinds:
            rows, kinds = (np.array(x, np.int64) for x in zip(*found.kinds, strict=True))
            for number, at, which in self._located(rows):
                block = self._blocks[number]
                block.kind[at] = kinds[which]
                block.state[at[kinds[which] == RequestKind.IGNORED]] = State.NOT_EXPECTED
                touched.add(number)
        self._settle_proved(found.proved, touched)
        if found.states:
            rows, states = (np.array(x, np.int64) for x in zip(*found.states, strict=True))
            rows, first = np.unique(rows, return_index=True)  # what was said first counts
            states = states[first]
            for number, at, which in self._located(rows):
                block = self._blocks[number]
                free = block.state[at] == PENDING
                block.state[at[free]] = states[which[free]]
                touched.add(number)
        self._settle_handled(found.handled, touched)
        if closing is not None:
            self._settle_closed(closing, touched)
        found.clear()
        fresh = self._blocks.keys() & range(self._block_count - len(self.lanes), self._block_count)
        return self._emitted(sorted(touched | fresh)), pairs

    def _emitted(self, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """Rows of some blocks that are certain, one block in memory after the other."""
        for number in numbers:
            if (table := self._emit(number)) is not None:
                yield table
        self._spill()

    def _located(self, rows: I64) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp]]]:
        """Rows by the block they are in: its number, their places in it, and which of ``rows`` they are."""
        numbers = list(self._blocks)
        firsts = np.array([block.first_row for block in self._blocks.values()], np.int64)
        places, group = factorize(np.searchsorted(firsts, rows, "right") - 1)
        for k, place in enumerate(places.tolist()):
            if place >= 0:
                block, which = self._blocks[numbers[place]], np.flatnonzero(group == k)
                at, is_left = block.places(rows[which])
                if is_left.any():
                    yield numbers[place], at[is_left], which[is_left]

    def _note_pairs(self, touched: set[int]) -> "Pairs | None":
        if not self.found.pairs:
            return None
        request, reply = np.array(self.found.pairs, np.int64).T
        values = {name: np.zeros(len(reply), np.int64) for name in _REPLY}
        for number, at, which in self._located(reply):
            block = self._blocks[number]
            for name, column in self._as_replies(block, at).items():
                values[name][which] = column
            block.state[at] = NO_ROW
            touched.add(number)
        pairs = Pairs(self._rows_of(request), self._rows_of(reply)) if self._keeps else None
        for number, at, which in self._located(request):
            block = self._blocks[number]
            block.state[at] = State.ANSWERED
            order = np.argsort(at)
            block.answers.append(_Answers(at[order], {name: values[name][which[order]] for name in _REPLY}))
            touched.add(number)
        return pairs

    def _as_replies(self, block: _Block, at: NDArray[np.intp]) -> dict[str, NDArray[np.int64]]:
        """What an exchange says of its reply, of rows that are replies."""
        table = self._table(block).select(["ts_ns", "first_packet", "status", "error_code"]).take(pa.array(at))
        status, error = dictionary(table["status"]), whole(table["error_code"])
        texts = [*status.dictionary.to_pylist(), ""]
        words = [self._statuses.setdefault(x, len(self._statuses)) for x in texts]
        coded = np.array(words, np.int64)[pc.fill_null(status.indices, len(words) - 1).to_numpy(zero_copy_only=False)]
        return {
            "offset": block.offset[at], "ts_ns": table["ts_ns"].to_numpy(), "packet": table["first_packet"].to_numpy(),
            "status": coded, "error_code": pc.fill_null(error, 0).to_numpy(),
            "has_error": pc.is_valid(error).to_numpy(zero_copy_only=False).astype(np.int64),
        }  # fmt: skip

    def _rows_of(self, rows: I64) -> pa.Table:
        """The kept columns of some rows."""
        tables, order = [], []
        for number, at, which in self._located(rows):
            tables.append(self._table(self._blocks[number]).take(pa.array(at)))
            order.append(which)
        table = unified(pa.concat_tables(tables, promote_options="default")).combine_chunks()
        return table.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    def _settle_proved(self, proved: Mapping[int, int], touched: set[int]) -> None:
        """Connections showed their state: what came behind some row was in it, what came before perhaps in another."""
        self._unsure -= proved.keys()
        for flow, first_row in proved.items():
            for number in self._flow_blocks.get(flow, set()) & self._blocks.keys():
                block = self._blocks[number]
                mine = (block.flow == flow) & block.from_client & (block.state == PENDING)
                early = (block.first_row + np.arange(len(mine)) if block.rows is None else block.rows) < first_row
                block.state[mine & (block.kind == RequestKind.IGNORED)] = State.NOT_EXPECTED
                block.state[mine & early & (block.kind != RequestKind.FIXED)] = State.UNKNOWN
                touched.add(number)

    def _settle_handled(self, handled: Mapping[int, int], touched: set[int]) -> None:
        """Requests in front of one that was answered were handled: without a reply, that is their state."""
        numbers = {n for flow in handled for n in self._flow_blocks.get(flow, ())}
        if not numbers:
            return
        flows = np.array(sorted(handled), np.int64)
        until = np.array([handled[f] for f in flows.tolist()], np.int64)
        for number in numbers & self._blocks.keys():
            block = self._blocks[number]
            at = np.minimum(np.searchsorted(flows, block.flow), len(flows) - 1)
            done = (block.state == PENDING) & block.from_client & (flows[at] == block.flow)
            done &= (block.offset < until[at]) & (block.kind != RequestKind.FIXED)
            block.state[done] = block.silence[done]
            touched.add(number)

    def _settle_closed(self, closing: Closing, touched: set[int]) -> None:
        """What is left of connections that are over."""
        order = np.argsort(closing.flow)
        flows, covered = closing.flow[order], closing.covered[order]
        behind = closing.requests_missing_at[order]
        numbers = {n for flow in flows.tolist() for n in self._flow_blocks.pop(flow, ())}
        for number in numbers & self._blocks.keys():
            block = self._blocks[number]
            at = np.minimum(np.searchsorted(flows, block.flow), max(len(flows) - 1, 0))
            left = (block.state == PENDING) & (flows[at] == block.flow)
            handled = covered[at] & ((behind[at] < 0) | (block.offset < behind[at]))
            handled |= block.silence == State.NOT_EXPECTED
            quiet = left & block.from_client & (block.kind != RequestKind.FIXED)
            block.state[quiet] = np.where(handled, block.silence, np.int8(State.UNKNOWN))[quiet]
            block.state[left & ~quiet] = State.UNKNOWN
            block.state[left & ~block.from_client & (block.state == PENDING)] = State.UNKNOWN
            touched.add(number)

    def _emit(self, number: int) -> pa.Table | None:
        """Rows of a block that are certain; they leave it."""
        block = self._blocks[number]
        done = block.state != PENDING
        is_request = ~np.isin(block.kind, (RequestKind.NOTHING, RequestKind.BREAKS))
        shown = done & (block.state != NO_ROW) & (is_request | ~block.from_client)
        table = self._rows_made(block, np.flatnonzero(shown)) if shown.any() else None
        left = np.flatnonzero(~done)
        if not len(left):
            del self._blocks[number]
            self._forget(number, np.unique(block.flow))
        elif 2 * len(left) < len(done) or shown.any():
            self._shrink(number, block, left)
        return table

    def _forget(self, number: int, flows: NDArray[np.int32]) -> None:
        """A block has no more rows of some connections."""
        for flow in flows.tolist():
            numbers = self._flow_blocks.get(flow, set())
            numbers.discard(number)
            if not numbers:
                self._flow_blocks.pop(flow, None)

    def _shrink(self, number: int, block: _Block, left: NDArray[np.intp]) -> None:
        if len(left) == len(block.state):
            return
        self._forget(number, np.setdiff1d(block.flow, block.flow[left]))
        block.rows = block.first_row + left if block.rows is None else block.rows[left]
        block.table = self._table(block).take(pa.array(left)).combine_chunks()
        block.place, block.size_bytes, block.answers = (0, 0), block.table.nbytes, []
        for name in ("flow", "offset", "kind", "silence", "state", "from_client"):
            setattr(block, name, getattr(block, name)[left])

    def _rows_made(self, block: _Block, rows: NDArray[np.intp]) -> pa.Table:
        """Some rows of a block as rows of ``exchanges``."""
        n = len(rows)
        table = self._table(block)
        table = table if n == table.num_rows else table.take(pa.array(rows))
        client, state, offset = block.from_client[rows], block.state[rows], block.offset[rows]
        answered = state == State.ANSWERED
        alone = np.flatnonzero(~client)
        reply = block.answered(rows)
        if len(alone):
            for name, column in self._as_replies(block, rows[alone]).items():
                reply[name][alone] = column
        has_reply = answered | ~client
        request_ts, packet = table["ts_ns"].to_numpy(), table["first_packet"].to_numpy()
        words = pa.array(list(self._statuses), pa.string())

        def where(mask: NDArray[np.bool_], values: I64) -> pa.Array:
            if mask.all():
                return pa.array(values)
            return pa.array(values, mask=~mask) if mask.any() else pa.nulls(n, pa.int64())

        columns = {
            "connection_id": table["connection_id"],
            "protocol": constant(self.protocol, n),
            "op": table["op"],
            "destination": table["destination"],
            "client_name": table["client_name"],
            "request_direction": constant("c2s", n),
            "request_offset": where(client, offset),
            "reply_offset": where(has_reply, reply["offset"]),
            "request_ts_ns": where(client, request_ts),
            "reply_ts_ns": where(has_reply, reply["ts_ns"]),
            "latency_ns": where(answered, reply["ts_ns"] - request_ts),
            "state": pa.DictionaryArray.from_arrays(pa.array(state.astype(np.int32)), STATES),
            "status": pa.DictionaryArray.from_arrays(
                pa.array(reply["status"].astype(np.int32), mask=~has_reply | (reply["status"] == 0)), words
            ),
            "error_code": where(has_reply & (reply["has_error"] != 0), reply["error_code"]),
            "client_ip": table["client_ip"],
            "client_port": table["client_port"],
            "server_ip": table["server_ip"],
            "server_port": table["server_port"],
            "request_packet": where(client, packet),
            "reply_packet": where(has_reply, reply["packet"]),
        }
        return pa.table(columns)

    # -- rows that wait in a file --------------------------------------------------------------------------

    def _table(self, block: _Block) -> pa.Table:
        if block.table is not None:
            return block.table
        assert self._file is not None
        self._file.seek(block.place[0])
        return pa.ipc.open_stream(pa.py_buffer(self._file.read(block.place[1]))).read_all()

    def _spill(self) -> None:
        """Write the columns of the oldest blocks to a file while too many are in memory."""
        size = sum(block.size_bytes for block in self._blocks.values())
        for block in self._blocks.values():
            if size <= MAX_WAITING_BYTES:
                return
            if block.table is None:
                continue
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="mqpcap-exchanges-")  # noqa: SIM115 - closed with the room
                weakref.finalize(self, let_go, self._file)
            start = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, block.table.schema) as writer:
                writer.write_table(block.table)
            size -= block.size_bytes
            block.table, block.size_bytes, block.place = None, 0, (start, self._file.tell() - start)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Requests and, row for row, their replies: the kept columns of each, its offset and times."""

    requests: pa.Table
    replies: pa.Table


class _Talks:
    """The rows of a batch that go through dialogues, connection by connection."""

    def __init__(
        self,
        batch: Batch,
        codes: I64,
        ties: I64,
        items: I64,
        numbers: Sequence[I64],
        place: I64,
        todo: NDArray[np.intp],
        first: int,
    ) -> None:
        self.first_row = first
        self.flow = batch.flow[todo]
        self.numbers = [x[todo] for x in numbers]
        self.columns: tuple[NDArray[Any], ...] = (
            place[todo], codes[todo], ties[todo], items[todo], batch.ts_ns[todo], batch.end_ns[todo],
            batch.offset[todo], batch.from_client[todo], batch.broken[todo], batch.cut[todo],
        )  # fmt: skip
        self.loud = ~batch.from_client[todo] | batch.broken[todo] | batch.cut[todo]
        """Rows that are no plain requests."""

    @cached_property
    def lists(self) -> tuple[list[list[int]], list[tuple[int, ...]]]:
        """The columns as lists, which are read one by one much faster than arrays."""
        numbers = list(zip(*(x.tolist() for x in self.numbers), strict=True)) or [()] * len(self.flow)
        return [column.tolist() for column in self.columns], numbers

    def stretches(self) -> Iterator[tuple[int, int, int, bool]]:
        """Where each connection's rows begin and end, its number, and whether they are requests behind whole bytes."""
        first = np.flatnonzero(np.diff(self.flow, prepend=-1))
        loud = np.add.reduceat(self.loud.astype(np.int64), first)
        ends = np.append(first[1:], len(self.flow))
        yield from zip(first.tolist(), ends.tolist(), self.flow[first].tolist(), (loud == 0).tolist(), strict=True)

    def requests(self, start: int, end: int) -> Requests:
        """Rows that are all requests."""
        # Copied: a slice keeps all of its window in memory for as long as no reply comes.
        place, *columns = (column[start:end].copy() for column in self.columns[:7])
        return Requests(self.first_row + place, *columns, [x[start:end].copy() for x in self.numbers])

    def tell(self, dialogue: Dialogue | NamedRequests, start: int, end: int, block: "_Block") -> None:
        """Take rows through a dialogue: one by one, but for long runs of requests in between."""
        if end - start > FEW:
            loud = np.concatenate([[start - 1], np.flatnonzero(self.loud[start:end]) + start, [end]])
            for k in np.flatnonzero(np.diff(loud) > FEW).tolist():
                one, two = int(loud[k]) + 1, int(loud[k + 1])
                self._each(dialogue, start, one, block)
                start = one
                if isinstance(dialogue, Dialogue) and dialogue.takes_many:
                    dialogue.requests(self.requests(one, two))
                    start = two
        self._each(dialogue, start, end, block)

    def _each(self, dialogue: Dialogue | NamedRequests, start: int, end: int, block: "_Block") -> None:
        if start == end:
            return
        columns, numbers = self.lists
        some = [column[start:end] for column in columns]
        for at, kind in converse(dialogue, self.first_row, some, numbers[start:end], block.kind):
            block.kind[at] = kind
            block.state[at] = State.NOT_EXPECTED if kind == RequestKind.IGNORED else PENDING


_HEARD = [RequestKind.FIXED, RequestKind.OPTIONAL, RequestKind.BREAKS, RequestKind.CUT]
"""Kinds of request that go through a dialogue."""


def _taking_part(lane: Lane, codes: I64, from_client: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows that are requests in some state of the connection, or replies."""
    rules = lane.rules
    request = (np.array(rules.kind) != RequestKind.NOTHING).any(0)
    reply = np.array([bool(s) or c in rules.gaps or c in rules.moves for c, s in enumerate(rules.says)], np.bool_)
    return np.flatnonzero(np.where(from_client, request[codes], reply[codes]))


def _is_ready(dialogue: Dialogue | NamedRequests | None, started: bool) -> bool:
    """Whether requests of a connection are of the kinds that they are in the state of a late start."""
    if dialogue is None:
        return not started
    return isinstance(dialogue, NamedRequests) or dialogue.state == dialogue.rules.late


def _causal(batch: Batch) -> NDArray[np.intp]:
    """The rows connection by connection, each in order of time; each side keeps the order of its bytes."""
    order = in_groups(batch.flow)
    keys = batch.flow, batch.when, ~batch.from_client, batch.offset
    return order if ascend([key[order] for key in keys]) else np.lexsort(keys[::-1])


def _ties(rule: Rule, lane: Lane, table: pa.Table, prints: Prints) -> I64:
    """What a reply repeats of its request, as one number a row."""
    if lane.ties is not None:
        return lane.ties(table, prints)
    tie, null = np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.bool_)
    for name in rule.tie if lane.rules.ties else ():
        with np.errstate(over="ignore"):
            tie = tie * np.int64(0x9E3779B97F4A7C1) + _number(table[f"f.{name}"]) + 1
        null |= pc.is_null(table[f"f.{name}"]).to_numpy()
    tie[null] = NO_TIE
    return tie


def _numbers(rule: Rule, lane: Lane, table: pa.Table) -> Sequence[I64]:
    if lane.numbers is not None:
        return lane.numbers(table)
    return [_number(table[f"f.{name}"]) for name in rule.tie] if lane.rules.ties else []


def _number(column: pa.ChunkedArray) -> I64:
    """A column of integers, -1 for null."""
    numbers: I64 = pc.fill_null(whole(column).cast(pa.int64()), -1).to_numpy()
    return numbers
