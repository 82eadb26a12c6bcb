"""Columns to the tables of the contract, as Arrow.

``records`` gives the fields of each message, ``frames`` its envelope; here they become ``messages`` and the
protocol's table, row for row. What only the whole connection can say (dialect, fq's user, kokaq's
names) is filled in at the end, so rows wait in a spool: in memory up to a bound, then on disk.
"""

import hashlib
import secrets
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import CODED, ascend, compact, constant, dictionary, factorize, is_in, unified, whole
from mqpcap.correlate.exchanges import ENVELOPE, needed
from mqpcap.decode import bytecode as ip
from mqpcap.decode.columns import Records, as_type, coalesced, column_type
from mqpcap.decode.framing import ConnectionView, Frames, Problem
from mqpcap.errors import let_go
from mqpcap.schema.compiler import Column, Program
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import DIRECTIONS, ConnectionFacts, MessageQueue
from mqpcap.tcp.reassembly import END_STATES, Flow, FlowColumns, Flows
from mqpcap.tcp.reassembly import columns as of_flows

SPOOL_BYTES = 48 << 20
"""So much waits in memory; beyond it rows wait in a temporary file."""
SECRET = "***"
US = pa.timestamp("us", tz="UTC")

MESSAGES = pa.schema(
    [
        ("capture_file", pa.string()),
        ("connection_id", pa.int64()),
        ("direction", pa.string()),
        ("stream_offset", pa.int64()),
        ("frame_len", pa.int64()),
        ("ts", US),
        ("ts_ns", pa.int64()),
        ("end_ts_ns", pa.int64()),
        ("first_packet", pa.int64()),
        ("last_packet", pa.int64()),
        ("src_ip", pa.string()),
        ("dst_ip", pa.string()),
        ("src_port", pa.int32()),
        ("dst_port", pa.int32()),
        ("protocol", pa.string()),
        ("dialect", pa.string()),
        ("op_code", pa.int64()),
        ("op", pa.string()),
        ("destination", pa.string()),
        ("group_name", pa.string()),
        ("client_name", pa.string()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("partition_id", pa.int32()),
        ("body_len", pa.int64()),
        ("status", pa.string()),
        ("error_code", pa.int64()),
        ("error_text", pa.string()),
        ("flaw", pa.string()),
        ("gap_before_bytes", pa.int64()),
        ("resynced", pa.bool_()),
    ]
)
REPEATING = frozenset(
    {
        "capture_file", "direction", "src_ip", "dst_ip", "protocol", "dialect", "op", "destination", "group_name",
        "client_name", "status", "flaw",
    }
)  # fmt: skip
"""Text of which a batch has few: dictionaries all the way to the file, where they are dictionaries too."""
CONNECTION_ROWS = 1 << 14
"""Rows of ``connections`` that are made at once: a flood may leave millions."""
KEYS = ("connection_id", "direction", "stream_offset", "ts", "ts_ns", "op", "flaw")
_COMPACT = compact(MESSAGES, REPEATING)
_SIDES = (
    "packets", "bytes", "retransmitted_bytes", "conflict_bytes", "missing_bytes", "messages",
)  # fmt: skip
CONNECTIONS = pa.schema(
    [
        ("connection_id", pa.int64()),
        ("community_id", pa.string()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("server_ip", pa.string()),
        ("server_port", pa.int32()),
        ("first_ts", US),
        ("last_ts", US),
        ("first_ts_ns", pa.int64()),
        ("last_ts_ns", pa.int64()),
        ("protocol", pa.string()),
        ("identified_by", pa.string()),
        ("syn_seen", pa.bool_()),
        ("end_state", pa.string()),
        *((f"{what}_{d}", pa.int64()) for d in DIRECTIONS for what in _SIDES),
    ]
)
PROBLEMS = pa.schema(
    [
        ("connection_id", pa.int64()),
        ("direction", pa.string()),
        ("stream_offset", pa.int64()),
        ("length", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("protocol", pa.string()),
        ("ts", US),
    ]
)
ENVELOPE_TYPES: Mapping[str, pa.DataType] = {
    name: MESSAGES.field(name).type
    for name in (
        "destination", "group_name", "client_name", "message_id", "correlation_id", "partition_id", "body_len",
        "status", "error_code", "error_text",
    )
}  # fmt: skip
FLAW_NAMES = tuple(f.text for f in Flaw)


def fingerprint_bases() -> tuple[int, int]:
    """Bases of fingerprints: random, so that no input can be made to collide; they never reach an output."""
    return secrets.randbelow(1 << 30) + (1 << 29), secrets.randbelow(1 << 30) + (1 << 29)


_BASES = fingerprint_bases()


@cache
def _print_keys(bases: tuple[int, int]) -> NDArray[np.uint64]:
    """The keys that go with the bases."""
    # Not numpy.random: importing it takes longer than reading a small capture.
    return np.frombuffer(hashlib.shake_128(repr(bases).encode()).digest(16 * (ip.PRINT_WORDS + 1)), np.uint64)


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be shown: ``show_secrets``, and how many bytes of each body are kept (None: all).

    Bodies can be compared by their fingerprints where ``bases`` are the same.
    """

    show_secrets: bool = False
    bodies: int | None = None
    bases: tuple[int, int] = _BASES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one protocol: ``messages`` (as MESSAGES) and ``fields`` (KEYS, the protocol's columns), row for row.

    Columns of both that are REPEATING are dictionaries. ``narrow`` is what ``exchanges`` reads of the rows, None for a
    protocol without a rule.
    """

    protocol: str
    messages: pa.Table
    fields: pa.Table
    narrow: pa.Table | None = None


class Spool:
    """Batches that wait for the end of the input; ``spilled_bytes`` counts what went to a file."""

    def __init__(self, memory_bytes: int = SPOOL_BYTES) -> None:
        self.memory_bytes = memory_bytes
        self.spilled_bytes = 0
        self._held: dict[str, list[pa.Table]] = {}
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._places: dict[str, list[tuple[int, int]]] = {}

    def add(self, protocol: str, table: pa.Table) -> None:
        """Take a batch in."""
        self._held.setdefault(protocol, []).append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes > self.memory_bytes:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="mqpcap-spool-")  # noqa: SIM115 - closed with the spool
            weakref.finalize(self, let_go, self._file)
        self._file.seek(0, 2)
        for protocol, tables in self._held.items():
            for table in tables:
                start = self._file.tell()
                # A stream of its own: dictionaries, and which columns hold nothing, differ from batch to batch.
                with pa.ipc.new_stream(self._file, table.schema) as writer:
                    writer.write_table(table)
                self._places.setdefault(protocol, []).append((start, self._file.tell() - start))
                self.spilled_bytes += table.nbytes
        self._held, self._held_bytes = {}, 0

    def batches(self) -> Iterator[tuple[str, pa.Table]]:
        """Every batch, as often as asked, in the order they came; one table a protocol where none was spilled."""
        for protocol in sorted({*self._held, *self._places}):
            for start, length in self._places.get(protocol, ()):
                assert self._file is not None
                self._file.seek(start)
                yield protocol, pa.ipc.open_stream(pa.py_buffer(self._file.read(length))).read_all()
            held = self._held.get(protocol, [])
            if protocol in self._places or len({tuple(table.column_names) for table in held}) > 1:
                yield from ((protocol, table) for table in held)
            else:
                yield protocol, _joined(held)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of many; a column that holds nothing in some of them takes its type from the others."""
    if len(tables) == 1:
        return tables[0]
    return unified(pa.concat_tables(tables, promote_options="default")).combine_chunks()


def waiting(
    protocol: MessageQueue,
    program: Program,
    frames: Frames,
    records: Records,
    from_client: NDArray[np.bool_],
    files: Sequence[str],
    policy: Policy,
) -> pa.Table:
    """A batch of rows as the spool keeps it, narrow: what repeats is a dictionary, what holds nothing is a null column.

    ``from_client``: whether each row is. Columns of ``messages``, of the protocol (``f.`` in front), of its rule
    (``r.``), flow and side. What ``settled`` can make of the others is left out.
    """
    columns: dict[str, pa.Array] = {
        "flow": pa.array(frames.flow),
        "side": pa.array(frames.side),
        "capture_file": _coded([_text(name) for name in files], pa.string(), frames.first_file),
        "direction": _coded(DIRECTIONS, pa.string(), np.where(from_client, 0, 1)),
        "stream_offset": pa.array(frames.offset),
        "frame_len": pa.array(frames.captured),
        "ts_ns": pa.array(frames.ts_ns),
        "end_ts_ns": pa.array(frames.end_ts_ns),
        "first_packet": pa.array(frames.first_packet),
        "last_packet": pa.array(frames.last_packet),
        "flaw": _coded(FLAW_NAMES, pa.string(), records.flaw),
        "gap_before_bytes": pa.array(frames.gap_before),
        "resynced": pa.array(frames.resynced),
    }
    columns |= _operations(protocol, program, frames, records)
    shown = _shown(protocol, program, records.table, policy)
    columns |= _envelope(protocol, columns, records.table, shown)
    columns |= {f"f.{name}": array for name, array in shown.items()}
    columns |= _for_rule(protocol, columns, records.table, shown, policy.bases)
    repeated = _repeated(protocol, _types(protocol, program))
    return pa.table({name: _narrowed(array, name in repeated) for name, array in columns.items()})


def _coded(values: Sequence[str | int | None], type_: pa.DataType, at: NDArray[np.integer]) -> pa.DictionaryArray:
    """For each row the value at its place in ``values``, as a dictionary without a null in it."""
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    place: dict[str | int | None, int] = {value: i for i, value in enumerate(distinct)}
    codes = np.array([place.get(value, -1) for value in values], np.int32)[at]
    null = codes < 0 if None in values else None
    return pa.DictionaryArray.from_arrays(pa.array(np.maximum(codes, 0), mask=null), pa.array(distinct, type_))


def _narrowed(array: pa.Array, repeats: bool) -> pa.Array:
    """A column that repeats as a dictionary, one that holds nothing as the type that takes no room."""
    if array.null_count == len(array):
        return pa.nulls(len(array))
    return dictionary(array) if repeats else array


def _for_rule(
    protocol: MessageQueue,
    columns: Mapping[str, pa.Array],
    table: pa.Table,
    shown: Mapping[str, pa.Array],
    bases: tuple[int, int],
) -> dict[str, pa.Array]:
    """What the protocol's rule reads, before any policy hides it (``r.`` in front); not what is shown as it is."""
    rule = protocol.rule
    if rule is None:
        return {}
    out = {
        f"r.{name}": _column(table, name)
        for name in needed(rule)
        if name.split(".")[0] in table.column_names and not _is_shown(table, shown, name)
    }
    if rule.body is not None:
        body = whole(table[rule.body]).cast(pa.binary())
        _, offsets, data = body.buffers()
        prints = np.zeros(len(body), np.int64)
        ip.fingerprints(
            memoryview(np.frombuffer(data, np.uint8)) if data is not None and data.size else b"\0",
            memoryview(np.frombuffer(offsets, np.int32)[body.offset : body.offset + len(body) + 1]),
            memoryview(_print_keys(bases)), *bases, memoryview(prints),
        )  # fmt: skip
        out["r.body_print"] = pa.array(prints, mask=pc.is_null(body).to_numpy(zero_copy_only=False))
        delivered = is_in(columns["direction"], DIRECTIONS[1]) & is_in(columns["op"], *rule.delivered)
        out["r.body_sha256"] = _digests(body, delivered)
    return out


def _digests(body: pa.Array, wanted: NDArray[np.bool_]) -> pa.Array:
    """SHA-256 of the bodies that are wanted, in hexadecimal; null elsewhere."""
    at = np.full(len(body), -1, np.int32)
    rows = np.flatnonzero(wanted)
    values = body.take(pa.array(rows)).to_pylist()
    digests = [None if value is None else hashlib.sha256(value).hexdigest() for value in values]
    at[rows] = np.arange(len(rows))
    return pa.array(digests, pa.string()).take(pa.array(at, mask=at < 0))


def _text(name: str) -> str:
    """A file's name as text; bytes of it that are no UTF-8 are replaced, as in every text column."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_shown(table: pa.Table, shown: Mapping[str, pa.Array], name: str) -> bool:
    """Whether the column is in the protocol's table as it was read: it is the same memory."""
    if name not in shown or name not in table.column_names:
        return False
    one, two = shown[name], whole(table[name])
    places = [(x.type, x.offset, [b and b.address for b in x.buffers()]) for x in (one, two)]
    return bool(places[0] == places[1])


def _endpoints(flows: FlowColumns, place: NDArray[np.int64], side: NDArray[np.int8]) -> dict[str, pa.Array]:
    n = len(flows)
    sender, receiver = pa.array(place + n * side.astype(np.int64)), pa.array(place + n * (1 - side.astype(np.int64)))
    ends = np.repeat(np.arange(2), n).reshape(2, n)
    ips = pa.array([*flows.ips(ends[0]), *flows.ips(ends[1])], pa.string()).dictionary_encode()
    ports = pa.array(flows.port.T.reshape(-1), pa.int64()).cast(pa.int32())
    return {
        "src_ip": ips.take(sender),
        "dst_ip": ips.take(receiver),
        "src_port": ports.take(sender),
        "dst_port": ports.take(receiver),
    }


def _operations(protocol: MessageQueue, program: Program, frames: Frames, records: Records) -> dict[str, pa.Array]:
    """op_code, op and dialect, from layout, operation and the reading taken."""
    ops, op_place = factorize(frames.op)
    readings = len(program.alt_dialect) + 1
    keys = (frames.layout.astype(np.int64) * readings + records.reading + 1) * max(len(ops), 1) + op_place
    unique, place = factorize(keys)
    codes: list[int | None] = []
    names: list[str | None] = []
    dialects: list[str | None] = []
    for key in unique.tolist():
        rest, op_index = divmod(key, len(ops))
        layout_index, reading = divmod(rest, readings)
        op = int(ops[op_index])
        layout = protocol.layout(program.layouts[layout_index].name)
        codes.append(None if op < 0 else op)
        names.append(layout.names.get(op))
        dialects.append((program.alt_dialect[reading - 1] if reading else None) or layout.dialect)
    return {
        name: _coded(values, type_, place)
        for name, values, type_ in (
            ("op_code", codes, pa.int64()), ("op", names, pa.string()), ("dialect", dialects, pa.string())
        )
    }  # fmt: skip


def _envelope(
    protocol: MessageQueue, columns: Mapping[str, pa.Array], table: pa.Table, shown: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """The columns of ``messages`` that come from the protocol's own; not those that a shown column says as it is."""
    envelope = protocol.envelope
    out: dict[str, pa.Array] = {
        name: coalesced(table, getattr(envelope, name), type_)
        for name, type_ in ENVELOPE_TYPES.items()
        if name not in ("body_len", "status") and not _is_shown(table, shown, _sole(getattr(envelope, name)) or "")
    }
    out["body_len"] = _body_len(table, envelope.body)
    out["status"] = pa.nulls(table.num_rows, pa.string())
    if envelope.derive is not None:
        for name in ("op", "op_code", "direction", "flaw"):
            table = table.append_column(name, columns[name])
        out |= envelope.derive(table)
    return {name: whole(array) for name, array in out.items()}


def _sole(names: str | Sequence[str]) -> str | None:
    """The one name, None where there is none or a choice."""
    wanted = [names] if isinstance(names, str) else list(names)
    return wanted[0] if len(wanted) == 1 else None


def _body_len(table: pa.Table, names: str | Sequence[str]) -> pa.Array:
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted:
        return pa.nulls(table.num_rows, pa.int64())
    lengths = [pc.binary_length(whole(table[name])).cast(pa.int64()) for name in wanted]
    return lengths[0] if len(lengths) == 1 else pc.coalesce(*lengths)


def _shown(protocol: MessageQueue, program: Program, table: pa.Table, policy: Policy) -> dict[str, pa.Array]:
    """The protocol's columns under the policy: secrets masked, bodies kept, cut or dropped."""
    out = {name: whole(table[name]) for name in table.column_names}
    for c, column in enumerate(program.columns):
        if column.parent < 0 and column.name in out:
            out[column.name] = _under_policy(program, c, column, out[column.name], policy)
    for derived in protocol.derived:
        if derived.hidden:
            del out[derived.name]
            continue
        if derived.secret and not policy.show_secrets:
            out[derived.name] = masked(out[derived.name])
        if derived.body:
            out[derived.name] = shortened(out[derived.name], policy.bodies)
    for name, least in {} if policy.show_secrets else protocol.spare.items():
        out[name] = veiled(out[name], least)
    return out


def _under_policy(program: Program, c: int, column: Column, array: pa.Array, policy: Policy) -> pa.Array:
    if column.secret and not policy.show_secrets:
        return masked(array)
    if column.body:
        return shortened(array, policy.bodies)
    if column.kind == "list" and _acts_inside(program, c, policy):
        # flatten() honours offsets and nulls; the lists keep their lengths.
        items = array.flatten()
        inner = [(i, x) for i, x in enumerate(program.columns) if x.parent == c]
        if pa.types.is_struct(items.type):
            fields = [_under_policy(program, i, x, items.field(x.name), policy) for i, x in inner]
            items = pa.StructArray.from_arrays(fields, names=[x.name for _, x in inner])
        else:
            items = _under_policy(program, *inner[0], items, policy)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pc.is_null(array) if array.null_count else None)
    return array


def _acts_inside(program: Program, c: int, policy: Policy) -> bool:
    """Whether the policy hides or cuts something in the elements of a list."""
    return any(
        (x.secret and not policy.show_secrets)
        or (x.body and policy.bodies is not None)
        or _acts_inside(program, i, policy)
        for i, x in enumerate(program.columns)
        if x.parent == c
    )


def masked(array: pa.Array) -> pa.Array:
    """Every value that is there replaced by ``***``."""
    secret = pa.scalar(SECRET.encode() if pa.types.is_binary(array.type) else SECRET, array.type)
    return pc.if_else(pc.is_valid(array), secret, pa.scalar(None, array.type))


def veiled(array: pa.Array, least: int) -> pa.Array:
    """``***`` for bytes that the protocol does not describe, where they may be a secret: see ``MessageQueue.spare``."""
    long_ = pc.greater_equal(pc.binary_length(array), least)
    doubtful = pc.fill_null(pc.or_(long_, pc.starts_with(array, b"\0")), False)
    return pc.if_else(doubtful, pa.scalar(SECRET.encode(), array.type), array)


def shortened(array: pa.Array, keep: int | None) -> pa.Array:
    """The first ``keep`` bytes of every value; None keeps all, 0 gives null."""
    if keep is None:
        return array
    if keep == 0:
        return pa.nulls(len(array), array.type)
    if pa.types.is_string(array.type):
        cut = pc.binary_slice(array.cast(pa.binary()), 0, keep)
        return pa.array([None if x is None else x.decode("utf-8", "ignore") for x in cut.to_pylist()], pa.string())
    return pc.binary_slice(array, 0, keep)


def flows_in(table: pa.Table) -> NDArray[np.int64]:
    """The numbers of the connections of a batch from the spool, ascending."""
    return factorize(table["flow"].to_numpy())[0]


def settled(
    protocol: MessageQueue, program: Program, table: pa.Table, facts: Mapping[int, ConnectionFacts], of: FlowColumns
) -> Chunk:
    """A batch from the spool with what its connections as a whole say, sorted by time.

    ``of``: its connections, those of ``flows_in`` in their order.
    """
    flow, place = factorize(table["flow"].to_numpy())
    ids = of.connection_ids()
    offsets = _offsets(table, of, place)
    order = _order(table, ids[place], offsets)
    if order is not None:
        table, place, offsets = table.take(pa.array(order)), place[order], offsets[order]
    types = _types(protocol, program)
    repeated = _repeated(protocol, types)
    columns = {
        name: whole(table[name]) if name in repeated else _wide(whole(table[name]), types.get(name))
        for name in table.column_names
    }
    columns |= _endpoints(of, place, table["side"].to_numpy())
    columns["connection_id"] = pa.array(ids[place])
    columns["stream_offset"] = pa.array(offsets)
    columns["ts"] = pa.array(columns["ts_ns"].to_numpy() // 1000).cast(US)
    columns["protocol"] = constant(protocol.name, len(place))
    for name, type_ in ENVELOPE_TYPES.items():
        if name not in columns:
            source = f"f.{_sole(getattr(protocol.envelope, name))}"
            columns[name] = columns[source] if source in repeated else as_type(columns[source], type_)
    columns |= _said(columns, [facts.get(f, ConnectionFacts()) for f in flow.tolist()], place)
    columns |= {name: _repeating(columns[name]) for name in repeated if name in columns}
    messages = pa.table({name: columns[name] for name in MESSAGES.names}, _COMPACT)
    fields = {name[2:]: array for name, array in columns.items() if name.startswith("f.")}
    narrow = _narrow(protocol, columns)
    return Chunk(protocol.name, messages, pa.table({name: columns[name] for name in KEYS} | fields), narrow)


def _said(
    columns: Mapping[str, pa.Array], known: Sequence[ConnectionFacts], place: NDArray[np.int64]
) -> dict[str, pa.Array]:
    """The columns in which the connections as a whole have a say."""
    at = pa.array(place)
    out: dict[str, pa.Array] = {}
    for name in ("dialect", "group_name", "client_name"):
        said = [getattr(k, name) for k in known]
        own = columns[name]
        if not own.null_count or all(x is None for x in said):
            continue
        texts = pa.array(said, pa.string()).dictionary_encode().take(at)
        if own.null_count < len(own):
            texts = pc.coalesce(*(x.cast(pa.string()) for x in (own, texts)))
        out[name] = texts if name in REPEATING else texts.cast(pa.string())
    for name in {name for k in known for name in k.columns}:
        out[f"f.{name}"] = pa.array([k.columns.get(name) for k in known], pa.string()).take(at)
        if not all(name in k.columns for k in known) and f"f.{name}" in columns:
            # A connection that says nothing leaves the rows' own value, whatever others in the batch say.
            speaks = pa.array([name in k.columns for k in known]).take(at)
            out[f"f.{name}"] = pc.if_else(speaks, out[f"f.{name}"], columns[f"f.{name}"].cast(pa.string()))
    if any(k.op_names is not None for k in known):
        out["op"] = _renamed(columns, known, place)
    return out


def _offsets(table: pa.Table, of: FlowColumns, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stream offsets, from the lowest sequence number of a side that was captured in the end."""
    offsets: NDArray[np.int64] = table["stream_offset"].to_numpy()
    return offsets + of.shift[place, table["side"].to_numpy()] if of.shift.any() else offsets


def _order(table: pa.Table, ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """The rows by time, packet, connection, direction and offset; None if they are in that order."""
    keys = (
        table["ts_ns"].to_numpy(),
        table["first_packet"].to_numpy(),
        ids,
        whole(table["direction"]).indices.to_numpy(),
        offsets,
    )
    return None if ascend(keys) else np.lexsort(keys[::-1])


def _repeated(protocol: MessageQueue, types: Mapping[str, pa.DataType]) -> frozenset[str]:
    """The spool's columns that are dictionaries: REPEATING, and text of the protocol's table that is one of them."""
    sources = (f"f.{_sole(getattr(protocol.envelope, name))}" for name in ("destination", "group_name", "client_name"))
    return REPEATING.union(name for name in sources if types.get(name) == pa.string())


def _repeating(array: pa.Array) -> pa.Array:
    """A column of text as a dictionary, whatever it waited as."""
    return pa.nulls(len(array), CODED) if pa.types.is_null(array.type) else dictionary(array)


def _wide(array: pa.Array, type_: pa.DataType | None) -> pa.Array:
    """A column of the spool as the tables have it."""
    if pa.types.is_null(array.type) and type_ is not None:
        return pa.nulls(len(array), type_)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _types(protocol: MessageQueue, program: Program) -> dict[str, pa.DataType]:
    """The types of the spool's columns."""
    own = {column.name: column_type(program, c) for c, column in enumerate(program.columns) if column.parent < 0}
    own |= {derived.name: derived.type for derived in protocol.derived}
    types = {field.name: field.type for field in MESSAGES} | {f"f.{name}": type_ for name, type_ in own.items()}
    for name in needed(protocol.rule) if protocol.rule is not None else ():
        outer, _, inner = name.partition(".")
        if outer in own:
            type_ = own[outer]
            types[f"r.{name}"] = pa.list_(type_.value_type.field(inner).type) if inner and type_ is not None else type_
    return types | {"r.body_print": pa.int64(), "r.body_sha256": pa.string()}


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column, or with a dot one field of the structs in a list column."""
    outer, _, inner = name.partition(".")
    array = whole(table[outer])
    if not inner:
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, array.flatten().field(inner), mask=pc.is_null(array))


def _narrow(protocol: MessageQueue, columns: Mapping[str, pa.Array]) -> pa.Table | None:
    """What the protocol's rule reads."""
    rule = protocol.rule
    if rule is None:
        return None
    out = {name: columns[name] for name in ENVELOPE}
    for name in needed(rule):
        if f"r.{name}" in columns or f"f.{name}" in columns or name in columns:
            out[f"f.{name}"] = columns.get(f"r.{name}", columns.get(f"f.{name}", columns.get(name)))
    for name in ("body_print", "body_sha256"):
        if f"r.{name}" in columns:
            out[name] = columns[f"r.{name}"]
    return pa.table(out)


def _renamed(columns: Mapping[str, pa.Array], known: Sequence[ConnectionFacts], place: NDArray[np.intp]) -> pa.Array:
    """Operation names where the connection's evidence says them."""
    said = {id(k.op_names): k.op_names or {} for k in known}
    mappings, index = list(said.values()), {one: i for i, one in enumerate(said)}
    # What the names are of: a mapping, a direction and a number; with one more for no number.
    which = np.array([index[id(k.op_names)] for k in known], np.int64)[place]
    encoded = columns["op_code"].dictionary_encode()
    codes = [*encoded.dictionary.to_pylist(), None]
    code = pc.fill_null(encoded.indices, len(codes) - 1).to_numpy().astype(np.int64)
    from_server = pc.equal(columns["direction"].cast(pa.string()), DIRECTIONS[1]).to_numpy(zero_copy_only=False)
    unique, at = factorize((which * 2 + from_server) * len(codes) + code)
    names: list[str | None] = []
    for key in unique.tolist():
        rest, i = divmod(key, len(codes))
        one, side = divmod(rest, 2)
        names.append(None if codes[i] is None else mappings[one].get((DIRECTIONS[side], codes[i])))
    return pc.coalesce(pa.array(names, pa.string()).take(pa.array(at)), columns["op"].cast(pa.string()))


def connections(flows: Flows, talks: Mapping[int, ConnectionView], numbers: NDArray[np.int64]) -> Iterator[pa.Table]:
    """The table ``connections`` of these, a block of rows at a time."""
    for start in range(0, len(numbers), CONNECTION_ROWS):
        some = numbers[start : start + CONNECTION_ROWS]
        yield _connections(flows.columns(some), some, talks)


def _connections(of: FlowColumns, numbers: NDArray[np.int64], talks: Mapping[int, ConnectionView]) -> pa.Table:
    known = [talks.get(number) for number in numbers.tolist()]
    client = np.array([talk.client if talk else 0 for talk in known], np.int64)
    columns: dict[str, object] = {
        "connection_id": of.connection_ids(),
        "community_id": of.community_ids(),
        "client_ip": of.ips(client),
        "client_port": of.ports(client),
        "server_ip": of.ips(1 - client),
        "server_port": of.ports(1 - client),
        "first_ts": of.first_ts_ns // 1000,
        "last_ts": of.last_ts_ns // 1000,
        "first_ts_ns": of.first_ts_ns,
        "last_ts_ns": of.last_ts_ns,
        "protocol": [talk.protocol.name if talk and talk.protocol else None for talk in known],
        "identified_by": [talk.identified_by if talk else None for talk in known],
        "syn_seen": of.syn.any(axis=1),
        "end_state": pa.array(END_STATES, pa.string()).take(pa.array(of.end_state)),
    }
    messages = np.array([talk.messages if talk else (0, 0) for talk in known], np.int64)
    row = np.arange(len(of))
    for side, d in ((client, "c2s"), (1 - client, "s2c")):
        counts = (of.packets, of.bytes, of.retransmitted, of.conflict, of.missing, messages.reshape(-1, 2))
        columns |= {f"{what}_{d}": count[row, side] for what, count in zip(_SIDES, counts, strict=True)}
    return pa.Table.from_arrays([pa.array(columns[f.name]).cast(f.type) for f in CONNECTIONS], schema=CONNECTIONS)


def problems(found: Sequence[Problem], flows: Sequence[Flow], talks: Mapping[int, ConnectionView]) -> pa.Table:
    """The table ``problems``, sorted by time."""
    found = sorted(found, key=lambda p: (p.ts_ns, p.flow, p.side, p.offset, p.kind))
    flow, place = factorize(np.array([p.flow for p in found], np.int64))
    known = [talks.get(number) for number in flow.tolist()]
    client = np.array([talk.client if talk else 0 for talk in known], np.int64)[place]
    protocol = pa.array([talk.protocol.name if talk and talk.protocol else None for talk in known], pa.string())
    of = of_flows(flows, flow)
    side = np.array([p.side for p in found], np.int64)
    columns = {
        "connection_id": pa.array(of.connection_ids()[place]),
        "direction": pa.array(DIRECTIONS, pa.string()).take(pa.array((side != client).astype(np.int8))),
        "stream_offset": pa.array(np.array([p.offset for p in found], np.int64) + of.shift[place, side]),
        "length": pa.array([p.length for p in found], pa.int64()),
        "kind": pa.array([p.kind for p in found], pa.string()),
        "reason": pa.array([p.reason for p in found], pa.string()),
        "protocol": protocol.take(pa.array(place)),
        "ts": pa.array([p.ts_ns // 1000 for p in found], pa.int64()).cast(US),
    }
    return pa.table(columns, PROBLEMS)
