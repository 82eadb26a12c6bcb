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
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import constant, dictionary, factorize, unified, whole
from mqpcap.correlate.dialogue import NO_ROW, Dialogue, Found, NamedRequests
from mqpcap.correlate.rules import lanes
from mqpcap.errors import let_go
from mqpcap.schema.requests import I64, Lane, Prints, RequestKind, Rule, State

MAX_WAITING_BYTES = 16 << 20
"""Rows that wait for their state are in memory up to here; more wait in a temporary file."""
MAX_HELD_ROWS = 1 << 16
"""Rows of a connection whose other side waits for missing bytes; with more the pairs are looked for all the same."""
PENDING = -1
TEXTS = ("op", "destination", "client_name", "status", "client_ip", "server_ip")
KEPT = (
    "connection_id", "op", "destination", "client_name", "status", "error_code", "first_packet", "client_ip",
    "client_port", "server_ip", "server_port",
)  # fmt: skip
"""Columns of a row that waits, beside its arrays."""
STATES = pa.array([s.name.lower() for s in State], pa.string())


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one protocol: ``table`` has KEPT, what the rule needs with ``f.`` in front, ``direction`` and ``flaw``.

    flow, offset, length, ts_ns, end_ns (int64), from_client, broken (bytes are missing in front, or it was found by a
    search) and cut (not all of it was captured; bool) have an entry a row; rows are in order of time.
    """

    table: pa.Table
    flow: I64
    from_client: NDArray[np.bool_]
    offset: I64
    length: I64
    ts_ns: I64
    end_ns: I64
    broken: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    started: NDArray[np.bool_]
    """Whether the start of the row's connection was captured."""

    def __len__(self) -> int:
        return len(self.flow)

    def taken(self, rows: NDArray[np.intp]) -> "Batch":
        """Some of the rows."""
        return Batch(self.table.take(pa.array(rows)), *(getattr(self, name)[rows] for name in _ARRAYS))

    @staticmethod
    def joined(batches: "Sequence[Batch]") -> "Batch":
        """Several as one."""
        if len(batches) == 1:
            return batches[0]
        table = unified(pa.concat_tables([b.table for b in batches], promote_options="default")).combine_chunks()
        return Batch(table, *(np.concatenate([getattr(b, name) for b in batches]) for name in _ARRAYS))


_ARRAYS = ("flow", "from_client", "offset", "length", "ts_ns", "end_ns", "broken", "cut", "started")


@dataclass(frozen=True, slots=True)
class Closing:
    """How connections ended: an entry each of flow, and whether its end was captured, whether the server closed behind
    all bytes of the client, and the stream offsets behind which bytes of each side hold no message (-1: none do)."""

    flow: I64
    ended: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    requests_missing_at: I64
    replies_missing_at: I64


@dataclass(slots=True)
class _Block:
    """Rows that wait: ``row`` is their number for ever, ascending; ``reply`` what is known of the reply."""

    row: I64
    flow: I64
    offset: I64
    ts_ns: I64
    kind: NDArray[np.int8]
    silence: NDArray[np.int8]
    state: NDArray[np.int8]
    from_client: NDArray[np.bool_]
    table: pa.Table | None
    place: tuple[int, int] = (0, 0)
    replies: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    size_bytes: int = 0
    """Of ``table``, while it is in memory."""


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
        self._held: dict[int, list[Batch]] = {}
        self._blocks: dict[int, _Block] = {}
        self._first_rows: list[int] = []
        self._flow_blocks: dict[int, set[int]] = {}
        self._statuses: dict[str | None, int] = {None: 0}
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

    def feed(self, batch: Batch, behind: frozenset[int] | set[int] = frozenset()) -> "tuple[list[pa.Table], Pairs | None]":
        """Take rows in; returns rows of ``exchanges`` that are certain now, and the pairs that were found.

        ``behind``: flows a side of which waits for missing bytes, so that the other is ahead of it.
        """
        batch = self._in_turn(batch, behind)
        if len(batch):
            self._take(batch)
        return self._certain()

    def _in_turn(self, batch: Batch, behind: frozenset[int] | set[int]) -> Batch:
        """The rows whose turn it is: not those of connections of which a side is behind."""
        if not behind and not self._held:
            return batch
        flows = np.unique(batch.flow).tolist()
        late = np.array([f for f in flows if f in behind], np.int64)
        parts = []
        if len(late):
            waits = np.isin(batch.flow, late)
            for f in late.tolist():
                self._held.setdefault(f, []).append(batch.taken(np.flatnonzero(batch.flow == f)))
            batch = batch.taken(np.flatnonzero(~waits))
        for f in [f for f, some in self._held.items() if f not in behind or sum(map(len, some)) > MAX_HELD_ROWS]:
            parts += self._held.pop(f)
        return Batch.joined([*parts, batch]) if parts else batch

    def _take(self, batch: Batch) -> None:
        order = _causal(batch)
        taken: list[tuple[NDArray[np.intp], _Block]] = []
        for number, lane in enumerate(self.lanes):
            codes = lane.codes(batch.table)
            rows = _taking_part(lane, codes, batch.from_client)
            if len(rows):
                block = self._new_block(batch, lane, codes, rows)
                self._converse(number, lane, batch, codes, rows, block, order)
                taken.append((rows, block))
        self._note_ends(batch)

    def _new_block(self, batch: Batch, lane: Lane, codes: I64, rows: NDArray[np.intp]) -> _Block:
        n, number = len(rows), len(self._first_rows)
        kinds = np.array(lane.rules.kind[lane.rules.late], np.int8)[codes[rows]]
        kinds[~batch.from_client[rows]] = RequestKind.NOTHING
        state = np.full(n, PENDING, np.int8)
        state[kinds == RequestKind.IGNORED] = State.NOT_EXPECTED
        status = dictionary(batch.table["status"])
        words = [self._statuses.setdefault(x, len(self._statuses)) for x in [*status.dictionary.to_pylist(), None]]
        at = pa.array(rows)
        names = [*KEPT, *(f"f.{name}" for name in self._keeps)]
        table = batch.table.select(names).take(at)
        coded = np.array(words, np.int64)[
            pc.fill_null(status.indices, len(words) - 1).to_numpy(zero_copy_only=False)[rows]
        ]
        block = _Block(
            np.arange(self._row_count, self._row_count + n), batch.flow[rows], batch.offset[rows], batch.ts_ns[rows],
            kinds, np.array(lane.rules.silence, np.int8)[codes[rows]], state, batch.from_client[rows], table,
            size_bytes=table.nbytes,
        )  # fmt: skip
        error = whole(table["error_code"])
        block.replies = {
            "offset": np.full(n, -1, np.int64), "ts_ns": np.zeros(n, np.int64), "packet": np.zeros(n, np.int64),
            "status": coded, "error_code": pc.fill_null(error, 0).to_numpy().copy(),
            "has_error": pc.is_valid(error).to_numpy(zero_copy_only=False).astype(np.int64),
        }  # fmt: skip
        self._row_count += n
        self._blocks[number] = block
        self._first_rows.append(int(block.row[0]))
        for flow in np.unique(block.flow[state == PENDING]).tolist():
            self._flow_blocks.setdefault(flow, set()).add(number)
        return block

    def _converse(
        self, number: int, lane: Lane, batch: Batch, codes: I64, rows: NDArray[np.intp], block: _Block,
        order: NDArray[np.intp],
    ) -> None:  # fmt: skip
        """Rows that may be or get a reply through their dialogues, connection by connection."""
        rules = lane.rules
        dialogues = self._dialogues[number]
        ready = np.array([k in (RequestKind.FIXED, RequestKind.OPEN, RequestKind.BREAKS, RequestKind.CUT) for k in rules.kind[rules.late]], np.bool_)
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
        start_row = int(block.row[0])
        columns = (
            batch.flow[todo], batch.from_client[todo], codes[todo], batch.offset[todo], batch.ts_ns[todo],
            batch.end_ns[todo], batch.broken[todo], batch.cut[todo], place[todo], ties[todo], batch.started[todo],
        )  # fmt: skip
        counted = list(zip(*(x[todo].tolist() for x in numbers), strict=True)) if numbers else [()] * len(todo)
        kinds = block.kind
        make = NamedRequests if rules.named else Dialogue
        last, dialogue = -1, None
        for flow, client, code, offset, ts, end, broken, cut, at, tie, started, number_ in zip(
            *(x.tolist() for x in columns), counted, strict=True
        ):
            if flow != last:
                last, dialogue = flow, dialogues.get(flow)
                if dialogue is None:
                    dialogue = dialogues[flow] = make(rules, flow, started, self.found)
            if broken:
                dialogue.gap(client, offset)
            if at < 0:
                continue
            if client:
                kind = dialogue.request(start_row + at, code, tie, number_, ts, end, offset, cut)
                if kind != kinds[at]:
                    kinds[at] = kind
                    if kind == RequestKind.IGNORED:
                        block.state[at] = State.NOT_EXPECTED
            else:
                dialogue.reply(start_row + at, code, tie, ts)

    def _note_ends(self, batch: Batch) -> None:
        """Remember where the last message of each side ends."""
        side = batch.flow * 2 + ~batch.from_client
        last = batch.offset + batch.length
        order = np.lexsort((last, side))
        at = np.flatnonzero(np.diff(side[order], append=-1))
        for key, end in zip(side[order][at].tolist(), last[order][at].tolist(), strict=True):
            known = self._ends.setdefault(key >> 1, [-1, -1])
            known[key & 1] = max(known[key & 1], end)

    # -- the end of connections ----------------------------------------------------------------------------

    def close(self, closing: Closing) -> "tuple[list[pa.Table], Pairs | None]":
        """The rest of some connections; returns what ``feed`` does."""
        some = [batch for flow in closing.flow.tolist() for batch in self._held.pop(flow, ())]
        if some:
            self._take(Batch.joined(some))
        columns = (closing.flow, closing.ended, closing.requests_missing_at, closing.replies_missing_at)
        for flow, ended, no_request_at, no_reply_at in zip(*(x.tolist() for x in columns), strict=True):
            ends = self._ends.pop(flow, [-1, -1])
            for dialogues in self._dialogues:
                dialogue = dialogues.pop(flow, None)
                if dialogue is None:
                    continue
                if no_request_at >= ends[0] and no_request_at >= 0 and not isinstance(dialogue, NamedRequests):
                    dialogue.requests_missing = True
                dialogue.close(ended, not 0 <= ends[1] <= no_reply_at and (no_reply_at < 0 or ends[1] >= 0))
        return self._certain(closing)

    # -- rows out ------------------------------------------------------------------------------------------

    def _certain(self, closing: Closing | None = None) -> "tuple[list[pa.Table], Pairs | None]":
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
        if found.states:
            rows, states = (np.array(x, np.int64) for x in zip(*found.states, strict=True))
            for number, at, which in self._located(rows):
                block = self._blocks[number]
                free = block.state[at] == PENDING
                block.state[at[free]] = states[which[free]]
                touched.add(number)
        self._settle_handled(found.handled, touched)
        if closing is not None:
            self._settle_closed(closing, touched)
        found.clear()
        fresh = set(range(max(len(self._first_rows) - len(self.lanes), 0), len(self._first_rows))) & self._blocks.keys()
        tables = [t for number in sorted(touched | fresh) if (t := self._emit(number)) is not None]
        self._spill()
        return tables, pairs

    def _located(self, rows: I64) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp]]]:
        """Rows by the block they are in: its number, their places in it, and which of ``rows`` they are."""
        firsts = np.array(self._first_rows, np.int64)
        block = np.searchsorted(firsts, rows, "right") - 1
        numbers, group = factorize(block)
        for k, number in enumerate(numbers.tolist()):
            if number in self._blocks:
                which = np.flatnonzero(group == k)
                yield number, np.searchsorted(self._blocks[number].row, rows[which]), which

    def _note_pairs(self, touched: set[int]) -> "Pairs | None":
        if not self.found.pairs:
            return None
        request, reply = np.array(self.found.pairs, np.int64).T
        values = {name: np.zeros(len(reply), np.int64) for name in _REPLY}
        for number, at, which in self._located(reply):
            block = self._blocks[number]
            values["offset"][which], values["ts_ns"][which] = block.offset[at], block.ts_ns[at]
            assert block.table is not None or block.place
            packets = whole(self._table(block)["first_packet"]).to_numpy()
            values["packet"][which] = packets[at]
            for name in ("status", "error_code", "has_error"):
                values[name][which] = block.replies[name][at]
            block.state[at] = NO_ROW
            touched.add(number)
        pairs = Pairs(self._rows_of(request), self._rows_of(reply)) if self._keeps else None
        for number, at, which in self._located(request):
            block = self._blocks[number]
            block.state[at] = State.ANSWERED
            for name in _REPLY:
                block.replies[name][at] = values[name][which]
            touched.add(number)
        return pairs

    def _rows_of(self, rows: I64) -> tuple[pa.Table, I64, I64, I64]:
        """The kept columns of some rows, their flows, offsets and times."""
        tables, order = [], []
        arrays = [np.zeros(len(rows), np.int64) for _ in range(3)]
        for number, at, which in self._located(rows):
            block = self._blocks[number]
            tables.append(self._table(block).take(pa.array(at)))
            order.append(which)
            for array, values in zip(arrays, (block.flow, block.offset, block.ts_ns), strict=True):
                array[which] = values[at]
        table = unified(pa.concat_tables(tables, promote_options="default")).combine_chunks()
        table = table.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))
        return table, *arrays  # type: ignore[return-value]  # three arrays

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
        elif 2 * len(left) < len(done) or shown.any():
            self._shrink(block, left)
        return table

    def _shrink(self, block: _Block, left: NDArray[np.intp]) -> None:
        if len(left) == len(block.row):
            return
        block.table = self._table(block).take(pa.array(left)).combine_chunks()
        block.place, block.size_bytes = (0, 0), block.table.nbytes
        for name in ("row", "flow", "offset", "ts_ns", "kind", "silence", "state", "from_client"):
            setattr(block, name, getattr(block, name)[left])
        block.replies = {name: values[left] for name, values in block.replies.items()}

    def _rows_made(self, block: _Block, rows: NDArray[np.intp]) -> pa.Table:
        """Some rows of a block as rows of ``exchanges``."""
        n = len(rows)
        table = self._table(block).take(pa.array(rows))
        client, state = block.from_client[rows], block.state[rows]
        answered = state == State.ANSWERED
        has_reply = answered | ~client
        own = {name: values[rows] for name, values in block.replies.items()}
        packet = whole(table["first_packet"]).to_numpy()
        reply_offset = np.where(answered, own["offset"], block.offset[rows])
        reply_ts = np.where(answered, own["ts_ns"], block.ts_ns[rows])
        reply_packet = np.where(answered, own["packet"], packet)
        words = pa.array(list(self._statuses), pa.string())
        request_ts = block.ts_ns[rows]

        def where(mask: NDArray[np.bool_], values: I64) -> pa.Array:
            return pa.array(values, mask=~mask)

        columns = {
            "connection_id": table["connection_id"],
            "protocol": constant(self.protocol, n),
            "op": dictionary(table["op"]),
            "destination": dictionary(table["destination"]),
            "client_name": dictionary(table["client_name"]),
            "request_direction": constant("c2s", n),
            "request_offset": where(client, block.offset[rows]),
            "reply_offset": where(has_reply, reply_offset),
            "request_ts_ns": where(client, request_ts),
            "reply_ts_ns": where(has_reply, reply_ts),
            "latency_ns": where(answered, reply_ts - request_ts),
            "state": pa.DictionaryArray.from_arrays(pa.array(state.astype(np.int32)), STATES),
            "status": dictionary(words.take(pa.array(own["status"], mask=~has_reply))),
            "error_code": where(has_reply & (own["has_error"] != 0), own["error_code"]),
            "client_ip": dictionary(table["client_ip"]),
            "client_port": table["client_port"],
            "server_ip": dictionary(table["server_ip"]),
            "server_port": table["server_port"],
            "request_packet": where(client, packet),
            "reply_packet": where(has_reply, reply_packet),
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
    """Requests and, row for row, their replies: the kept columns of each, and its flow, offset and time."""

    requests: tuple[pa.Table, I64, I64, I64]
    replies: tuple[pa.Table, I64, I64, I64]


def _taking_part(lane: Lane, codes: I64, from_client: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows that are requests in some state of the connection, or replies."""
    rules = lane.rules
    request = np.array([any(kind[c] != RequestKind.NOTHING for kind in rules.kind) for c in range(len(rules.says))], np.bool_)
    reply = np.array([bool(s) or c in rules.gaps or c in rules.moves for c, s in enumerate(rules.says)], np.bool_)
    return np.flatnonzero(np.where(from_client, request[codes], reply[codes]))


def _is_ready(dialogue: Dialogue | NamedRequests | None, started: bool) -> bool:
    """Whether requests of a connection are of the kinds that they are in the state of a late start."""
    if dialogue is None:
        return not started
    return isinstance(dialogue, NamedRequests) or dialogue.state == dialogue.rules.late


def _causal(batch: Batch) -> NDArray[np.intp]:
    """The rows connection by connection, each in order of time; each side keeps the order of its bytes."""
    when = batch.ts_ns
    side = batch.flow * 2 + ~batch.from_client
    order = np.lexsort((batch.offset, side))
    ordered = when[order]
    back = np.flatnonzero((ordered[1:] < ordered[:-1]) & (side[order][1:] == side[order][:-1]))
    if len(back):
        when = when.copy()
        for k in np.unique(side[order][back]).tolist():
            rows = order[side[order] == k]
            when[rows] = np.maximum.accumulate(when[rows])
    return np.lexsort((batch.offset, ~batch.from_client, when, batch.flow))


def _ties(rule: Rule, lane: Lane, table: pa.Table, prints: Prints) -> I64:
    """What a reply repeats of its request, as one number a row."""
    if lane.ties is not None:
        return lane.ties(table, prints)
    tie = np.zeros(table.num_rows, np.int64)
    for name in rule.tie if lane.rules.ties else ():
        with np.errstate(over="ignore"):
            tie = tie * np.int64(0x9E3779B97F4A7C1) + _number(table[f"f.{name}"]) + 1
    return tie


def _numbers(rule: Rule, lane: Lane, table: pa.Table) -> Sequence[I64]:
    if lane.numbers is not None:
        return lane.numbers(table)
    return [_number(table[f"f.{name}"]) for name in rule.tie] if lane.rules.ties else []


def _number(column: pa.ChunkedArray) -> I64:
    """A column of integers, -1 for null."""
    numbers: I64 = pc.fill_null(whole(column).cast(pa.int64()), -1).to_numpy()
    return numbers
