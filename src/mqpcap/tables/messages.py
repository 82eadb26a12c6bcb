"""Decoded messages to rows of ``messages`` and of their protocol's table.

In: fields of each message, its packets and times, and the facts of its connection (dialect, login, names). Out: both
tables, row for row, and a batch for ``correlate`` with unmasked secrets and whole bodies.
Called by: ``pipeline``, through :func:`message_rows`.
"""

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import (
    DICTIONARY_TEXT,
    Int64Array,
    append_columns,
    codes_of,
    constant,
    factorize,
    file_text,
    single_array,
    with_list_values,
)
from mqpcap.correlate.batch import Batch
from mqpcap.decode import kernels
from mqpcap.decode.columns import Records, coalesced
from mqpcap.decode.frames import Frames
from mqpcap.records import dataclass
from mqpcap.schema.compiler import Program, ProgramColumn
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import DIRECTIONS, ConnectionFacts, MessageQueue
from mqpcap.schema.requests import Fingerprints
from mqpcap.schema.secrets import is_hidden, masked, misread_rows, spare_columns
from mqpcap.tables.schemas import KEYS, MESSAGES, REPEATING, TABLES, US, as_declared, protocol_schema
from mqpcap.tcp.flows import FlowColumns

ENVELOPE_TYPES: Mapping[str, pa.DataType] = {
    name: MESSAGES.field(name).type
    for name in (
        "destination", "group_name", "client_name", "message_id", "correlation_id", "partition_id", "body_len",
        "status", "error_code", "error_text",
    )
}  # fmt: skip
FLAW_NAMES = tuple(f.text for f in Flaw)


def fingerprint_seeds() -> tuple[int, int]:
    """Seeds of fingerprints: random, so that crafted input cannot collide; they never reach an output."""
    return secrets.randbelow(1 << 30) + (1 << 29), secrets.randbelow(1 << 30) + (1 << 29)


_SEEDS = fingerprint_seeds()


@cache
def _fingerprint_keys(seeds: tuple[int, int]) -> NDArray[np.uint64]:
    """The hash keys of these seeds."""
    # Not numpy.random: importing it takes longer than reading a small capture.
    return np.frombuffer(hashlib.shake_128(repr(seeds).encode()).digest(16 * (kernels.PRINT_WORDS + 1)), np.uint64)


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """Rules for rows: ``show_secrets``, and the number of bytes to keep of each body (None: all).

    Bodies can be compared by their fingerprints if ``seeds`` are equal. ``columns``: the columns of ``messages`` to
    build; the protocol's table then has its key columns, and those of ``fields``, by protocol. None: build all.
    """

    show_secrets: bool = False
    bodies: int | None = None
    seeds: tuple[int, int] = _SEEDS
    columns: frozenset[str] | None = None
    fields: frozenset[tuple[str, str]] = frozenset()

    def with_pairing_columns(self) -> "RowPolicy":
        """A policy that also has the columns for pairing requests and replies."""
        return self.with_columns((*_OF_BATCH, *ENDPOINTS))

    def with_columns(self, names: Collection[str]) -> "RowPolicy":
        """A policy with more columns."""
        return self if self.columns is None else replace(self, columns=self.columns.union(names))

    def fields_of(self, protocol: MessageQueue) -> frozenset[str]:
        """The columns of a protocol's table that are built where ``columns`` are named."""
        return frozenset(name for table, name in self.fields if table == protocol.name)

    def needs(self, names: Collection[str]) -> bool:
        """Whether any of these columns is to be built."""
        return self.columns is None or not self.columns.isdisjoint(names)


@dataclass(frozen=True, slots=True)
class MessageTables:
    """Rows of one protocol: ``messages`` (as MESSAGES) and ``fields`` (KEYS, the protocol's columns), row for row.

    Columns of both that are REPEATING are dictionaries.
    """

    protocol: str
    messages: pa.Table
    fields: pa.Table


@dataclass(frozen=True, slots=True)
class BatchConnections:
    """The connections of a batch of rows.

    - index: for each row, the index of its connection in the other attributes
    - flows: addresses, ports and ids
    - client: the side that is the client, 0 or 1
    - facts, fact_index: facts, and which of them each connection has
    - missing_ns: for each row, see `Batch`
    """

    index: Int64Array
    flows: FlowColumns
    client: Int64Array
    facts: Sequence[ConnectionFacts]
    fact_index: Int64Array
    missing_ns: Int64Array


def message_rows(
    protocol: MessageQueue,
    program: Program,
    frames: Frames,
    records: Records,
    connections: BatchConnections,
    capture: str,
    file_name: Callable[[int], str],
    policy: RowPolicy,
    pairs_requests: bool,
) -> tuple[MessageTables, Batch | None]:
    """Rows of ``messages`` and of the protocol's table; also a batch for ``correlate`` if the protocol has a rule.

    Rows are in the order of the frames. ``file_name`` maps the index of a file to its name.
    """
    index, n = connections.index, len(frames.start)
    from_client: NDArray[np.bool_] = np.asarray(connections.client[index] == frames.side)
    if policy.needs(protocol.envelope.derives) or any(k.op_names is not None for k in connections.facts):
        policy = policy.with_columns(READ_BY_DERIVE)
    columns = _frame_columns(protocol, frames, records, connections, from_client, policy)
    texts: dict[str, Callable[[], pa.Array]] = {
        "capture": lambda: constant(file_text(capture), n),
        "capture_file": lambda: _file_names(frames.first_file, file_name),
    }
    columns |= {name: make() for name, make in texts.items() if policy.needs((name,))}
    if policy.needs(ENDPOINTS):
        columns |= _endpoints(connections.flows, index, frames.side)
    columns |= _operations(protocol, program, frames, records, policy)
    columns |= _envelope(protocol, columns, records.table, policy)
    named = None if policy.columns is None else policy.fields_of(protocol)
    if named is None or named:
        shown = _field_columns(protocol, program, records.table, policy)
        columns |= {f"f.{name}": array for name, array in shown.items() if named is None or name in named}
    columns |= _connection_columns(columns, *_facts_by_row(protocol, program, frames, connections))
    if not policy.show_secrets:
        columns |= _without_misread_secrets(protocol, columns, records.table)
    types = _declared_types(protocol)
    columns = {name: as_declared(array, types[name]) for name, array in columns.items()}
    chunk = _tables(protocol, columns, n, policy)
    if not pairs_requests:
        return chunk, None
    return chunk, _batch(protocol, columns, records.table, frames, from_client, connections)


def _frame_columns(
    protocol: MessageQueue,
    frames: Frames,
    records: Records,
    connections: BatchConnections,
    from_client: NDArray[np.bool_],
    policy: RowPolicy,
) -> dict[str, pa.Array]:
    """The columns of ``messages`` that framing knows."""
    index, n = connections.index, len(frames.start)
    makers: dict[str, Callable[[], pa.Array]] = {
        "connection_id": lambda: pa.array(connections.flows.connection_ids()[index]),
        "direction": lambda: _coded(DIRECTIONS, pa.string(), np.where(from_client, 0, 1)),
        "stream_offset": lambda: pa.array(frames.offset),
        "frame_len": lambda: pa.array(frames.captured),
        "ts": lambda: pa.array(frames.ts_ns // 1000).cast(US),
        "ts_ns": lambda: pa.array(frames.ts_ns),
        "end_ts_ns": lambda: pa.array(frames.end_ts_ns),
        "first_packet": lambda: pa.array(frames.first_packet),
        "last_packet": lambda: pa.array(frames.last_packet),
        "protocol": lambda: constant(protocol.name, n),
        "flaw": lambda: (
            _coded(FLAW_NAMES, pa.string(), records.flaw) if records.flaw.any() else pa.nulls(n, DICTIONARY_TEXT)
        ),
        "gap_before_bytes": lambda: pa.array(frames.gap_before),
        "resynced": lambda: pa.array(frames.resynced),
    }
    return {name: make() for name, make in makers.items() if policy.needs((name,))}


def _tables(protocol: MessageQueue, columns: Mapping[str, pa.Array], n: int, policy: RowPolicy) -> MessageTables:
    """The columns as both tables; a column that was not made is null."""
    fields = {name[2:]: array for name, array in columns.items() if name.startswith("f.")}
    schema = pa.schema([field for field in TABLES["messages"] if policy.needs((field.name,))])
    every = [columns[field.name] if field.name in columns else pa.nulls(n, field.type) for field in schema]
    keys = {field.name: columns[field.name] for field in schema if field.name in KEYS}
    fields_schema = pa.schema([protocol_schema(protocol).field(name) for name in (*keys, *fields)])
    return MessageTables(protocol.name, pa.table(every, schema=schema), pa.table(keys | fields, schema=fields_schema))


@cache
def _declared_types(protocol: MessageQueue) -> Mapping[str, pa.DataType]:
    """The types of both tables, by name here: fields of the protocol begin with ``f.``."""
    fields = {f"f.{field.name}": field.type for field in protocol_schema(protocol)}
    return {field.name: field.type for field in TABLES["messages"]} | fields


READ_BY_DERIVE = ("op", "op_code", "direction", "flaw")
"""The columns of ``messages`` that an envelope's ``derive`` and operation names by connection need."""
ENDPOINTS = ("src_ip", "dst_ip", "src_port", "dst_port")
_OF_BATCH = (
    "connection_id", "direction", "first_packet", "op", "op_code", "destination", "client_name", "status",
    "error_code", "flaw",
)  # fmt: skip
"""The columns of ``messages`` that pairing needs and rows of exchanges repeat."""


def _batch(
    protocol: MessageQueue,
    columns: Mapping[str, pa.Array],
    table: pa.Table,
    frames: Frames,
    from_client: NDArray[np.bool_],
    connections: BatchConnections,
) -> Batch | None:
    """The rows that ``correlate`` pairs, with unmasked secrets and whole bodies."""
    rule = protocol.rule
    if rule is None:
        return None
    started = connections.flows.started
    acked_from = np.zeros(len(frames.flow), np.int64)
    if not started.all():
        acked_from = connections.flows.acked_from[connections.index, frames.side]
    client = pa.array(from_client)
    ends = {
        f"{end}_{part}": _either(client, columns[f"{if_client}_{part}"], columns[f"{if_server}_{part}"])
        for end, if_client, if_server in (("client", "src", "dst"), ("server", "dst", "src"))
        for part in ("ip", "port")
    }
    fields = {
        f"f.{name}": _column(table, name) if name.split(".")[0] in table.column_names else columns[name]
        for name in rule.needed
    }
    return Batch(
        pa.table({name: columns[name] for name in _OF_BATCH} | ends | fields),
        frames.flow, from_client, frames.offset, frames.captured, frames.ts_ns, frames.end_ts_ns,
        frames.resynced | (frames.gap_before > 0), frames.resynced & (frames.gap_before == 0),
        frames.flaw == Flaw.TRUNCATED, started[connections.index],
        frames.first_ack, frames.last_ack, acked_from, connections.missing_ns,
    )  # fmt: skip


def _either(client: pa.Array, if_client: pa.Array, if_server: pa.Array) -> pa.Array:
    """The first column for rows of clients, the second for rows of servers; both share one dictionary, if any."""
    if not pa.types.is_dictionary(if_client.type):
        return pc.if_else(client, if_client, if_server)
    indices = pc.if_else(client, if_client.indices, if_server.indices)
    return pa.DictionaryArray.from_arrays(indices, if_client.dictionary, safe=False)


def _endpoints(flow_columns: FlowColumns, index: Int64Array, side: NDArray[np.int8]) -> dict[str, pa.Array]:
    """Addresses and ports of sender and receiver."""
    n = len(flow_columns)
    sender, receiver = pa.array(index + n * side.astype(np.int64)), pa.array(index + n * (1 - side.astype(np.int64)))
    ends = np.repeat(np.arange(2), n).reshape(2, n)
    ips = pa.array([*flow_columns.ips(ends[0]), *flow_columns.ips(ends[1])], pa.string()).dictionary_encode()
    ports = pa.array(flow_columns.port.T.reshape(-1), pa.int64()).cast(pa.int32())
    return {
        "src_ip": ips.take(sender),
        "dst_ip": ips.take(receiver),
        "src_port": ports.take(sender),
        "dst_port": ports.take(receiver),
    }


def fingerprints(seeds: tuple[int, int]) -> Fingerprints:
    """A function that hashes each value of a column of text or bytes to a number; equal seeds give equal numbers."""
    return partial(_fingerprints, seeds)


def _fingerprints(seeds: tuple[int, int], column: pa.Array | pa.ChunkedArray) -> Int64Array:
    array = single_array(column)
    if pa.types.is_dictionary(array.type):
        return np.append(_fingerprints(seeds, array.dictionary), 0).take(codes_of(array))
    array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    numbers = np.zeros(len(array), np.int64)
    kernels.fingerprints(
        memoryview(np.frombuffer(data, np.uint8)) if data is not None and data.size else b"\0",
        memoryview(np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]),
        memoryview(_fingerprint_keys(seeds)), *seeds, memoryview(numbers),
    )  # fmt: skip
    if array.null_count:
        numbers[pc.is_null(array).to_numpy(zero_copy_only=False)] = 0
    return numbers


def _coded(values: Sequence[str | int | None], type_: pa.DataType, rows: NDArray[np.integer]) -> pa.DictionaryArray:
    """For each row the value at its index in ``values``, as a dictionary without a null in it."""
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    index: dict[str | int | None, int] = {value: i for i, value in enumerate(distinct)}
    indices = np.array([index.get(value, -1) for value in values], np.int32).take(rows)
    null = indices < 0 if None in values else None
    if null is not None:
        indices[null] = 0
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=null), pa.array(distinct, type_), safe=False)


def _file_names(files: Int64Array, file_name: Callable[[int], str]) -> pa.DictionaryArray:
    indexes, row_codes = factorize(files)
    return _coded([file_text(file_name(index)) for index in indexes.tolist()], pa.string(), row_codes)


def _operations(
    protocol: MessageQueue, program: Program, frames: Frames, records: Records, policy: RowPolicy
) -> dict[str, pa.Array]:
    """op_code, op and dialect, from layout, operation and the variant taken."""
    ops, op_numbers = factorize(frames.op)
    variants = len(program.variant_dialect) + 1
    keys = (frames.layout.astype(np.int64) * variants + records.variant + 1) * max(len(ops), 1) + op_numbers
    unique, index = factorize(keys)
    codes: list[int | None] = []
    names: list[str | None] = []
    dialects: list[str | None] = []
    for key in unique.tolist():
        layout_and_variant, op_index = divmod(key, len(ops))
        layout_index, variant = divmod(layout_and_variant, variants)
        op = int(ops[op_index])
        layout = protocol.layout(program.layouts[layout_index].name)
        codes.append(None if op < 0 else op)
        names.append(layout.names.get(op))
        dialects.append((program.variant_dialect[variant - 1] if variant else None) or layout.dialect)
    return {
        name: _coded(values, type_, index)
        for name, values, type_ in (
            ("op_code", codes, pa.int64()), ("op", names, pa.string()), ("dialect", dialects, pa.string())
        )
        if policy.needs((name,))
    }  # fmt: skip


def _envelope(
    protocol: MessageQueue, columns: Mapping[str, pa.Array], table: pa.Table, policy: RowPolicy
) -> dict[str, pa.Array]:
    """The columns of ``messages`` that come from the protocol's own."""
    envelope = protocol.envelope
    arrays: dict[str, pa.Array] = {
        name: coalesced(table, getattr(envelope, name), type_)
        for name, type_ in ENVELOPE_TYPES.items()
        if name not in ("body_len", "status") and policy.needs((name,))
    }
    if policy.needs(("body_len",)):
        arrays["body_len"] = _body_len(table, envelope.body)
    if policy.needs(("status",)):
        arrays["status"] = pa.nulls(table.num_rows, pa.string())
    if envelope.derive is not None and policy.needs(envelope.derives):
        derived = envelope.derive(append_columns(table, {name: columns[name] for name in READ_BY_DERIVE}))
        if derived.keys() != set(envelope.derives):
            raise ValueError(f"{protocol.name}: derive makes {sorted(derived)}, derives says {envelope.derives}")
        arrays |= {name: array for name, array in derived.items() if policy.needs((name,))}
    return {name: single_array(array) for name, array in arrays.items()}


def fields_read(protocol: MessageQueue, policy: RowPolicy, pairs_requests: bool) -> frozenset[str] | None:
    """The protocol's columns that the rows are built from; None: all."""
    if policy.columns is None:
        return None
    envelope, rule = protocol.envelope, protocol.rule
    names = ("body" if name == "body_len" else name for name in policy.columns & ENVELOPE_TYPES.keys() - {"status"})
    named = (getattr(envelope, name) for name in names)
    paired = (name.split(".")[0] for name in rule.needed) if rule is not None and pairs_requests else ()
    read = envelope.reads if policy.needs(envelope.derives) else ()
    return policy.fields_of(protocol).union(read, paired, spare_columns(protocol), *map(_names, named))


def _body_len(table: pa.Table, names: str | Sequence[str]) -> pa.Array:
    wanted = _names(names)
    if not wanted:
        return pa.nulls(table.num_rows, pa.int64())
    lengths = [pc.binary_length(single_array(table[name])).cast(pa.int64()) for name in wanted]
    return lengths[0] if len(lengths) == 1 else pc.coalesce(*lengths)


def _field_columns(protocol: MessageQueue, program: Program, table: pa.Table, policy: RowPolicy) -> dict[str, pa.Array]:
    """The protocol's columns under the policy: secrets masked, bodies kept, cut or dropped."""
    arrays = {name: single_array(table[name]) for name in table.column_names}
    for c, column in enumerate(program.columns):
        if column.parent < 0 and column.name in arrays:
            arrays[column.name] = _under_policy(program, c, column, arrays[column.name], policy)
    for name in (*(x.name for x in protocol.remembered), *(x.name for x in protocol.derived if x.hidden)):
        arrays.pop(name, None)
    for derived in (x for x in protocol.derived if x.name in arrays):
        if is_hidden(derived, policy.show_secrets):
            arrays[derived.name] = masked(arrays[derived.name])
        if derived.body:
            arrays[derived.name] = truncate_bodies(arrays[derived.name], policy.bodies)
    return arrays


def _under_policy(program: Program, c: int, column: ProgramColumn, array: pa.Array, policy: RowPolicy) -> pa.Array:
    if is_hidden(column, policy.show_secrets):
        return masked(array)
    if column.body:
        return truncate_bodies(array, policy.bodies)
    if column.kind == "list" and _acts_inside(program, c, policy):
        # flatten() honours offsets and nulls; the lists keep their lengths.
        items = array.flatten()
        inner = [(i, x) for i, x in enumerate(program.columns) if x.parent == c]
        if pa.types.is_struct(items.type):
            fields = [_under_policy(program, i, x, items.field(x.name), policy) for i, x in inner]
            items = pa.StructArray.from_arrays(fields, names=[x.name for _, x in inner])
        else:
            items = _under_policy(program, *inner[0], items, policy)
        return with_list_values(array, items)
    return array


def _acts_inside(program: Program, c: int, policy: RowPolicy) -> bool:
    """Whether the policy hides or cuts something in the elements of a list."""
    return any(
        is_hidden(x, policy.show_secrets) or (x.body and policy.bodies is not None) or _acts_inside(program, i, policy)
        for i, x in enumerate(program.columns)
        if x.parent == c
    )


def _without_misread_secrets(
    protocol: MessageQueue, columns: Mapping[str, pa.Array], table: pa.Table
) -> dict[str, pa.Array]:
    """Text and bytes of rows that may be a misread login: masked, except destination and client."""
    may_be_secret = misread_rows(protocol, table)
    if not may_be_secret.any():
        return {}
    rows, arrays = pa.array(may_be_secret), {}
    kept = {"destination", "client_name"}
    for names in (protocol.envelope.destination, protocol.envelope.client_name):
        kept.update(f"f.{name}" for name in _names(names))
    read = {name for name in ENVELOPE_TYPES if name != "status"} | {f"f.{name}" for name in table.column_names}
    for name in (columns.keys() & read) - kept:
        text = columns[name]
        if pa.types.is_dictionary(text.type):
            text = text.cast(text.type.value_type)
        if pa.types.is_string(text.type) or pa.types.is_binary(text.type):
            arrays[name] = pc.if_else(rows, masked(text), text)
    return arrays


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def truncate_bodies(array: pa.Array, keep: int | None) -> pa.Array:
    """The first ``keep`` bytes of every value; None keeps all, 0 gives null."""
    if keep is None:
        return array
    if keep == 0:
        return pa.nulls(len(array), array.type)
    if pa.types.is_string(array.type):
        cut = pc.binary_slice(array.cast(pa.binary()), 0, keep)
        return pa.array([None if x is None else x.decode("utf-8", "ignore") for x in cut.to_pylist()], pa.string())
    return pc.binary_slice(array, 0, keep)


def _facts_by_row(
    protocol: MessageQueue, program: Program, frames: Frames, connections: BatchConnections
) -> tuple[Sequence[ConnectionFacts], NDArray[np.int64]]:
    """Facts of connections, and the index of each row's facts.

    Messages in layouts that are no evidence have none: they do not wait for it.
    """
    rule, index = protocol.evidence, connections.fact_index[connections.index]
    if rule is None or rule.layouts is None:
        return connections.facts, index
    depends = np.array([layout.name in rule.layouts for layout in program.layouts], np.bool_)[frames.layout]
    return [*connections.facts, ConnectionFacts()], np.where(depends, index, len(connections.facts))


def _connection_columns(
    columns: Mapping[str, pa.Array], facts: Sequence[ConnectionFacts], index: NDArray[np.int64]
) -> dict[str, pa.Array]:
    """Columns with the facts of connections."""
    rows = pa.array(index)
    arrays: dict[str, pa.Array] = {}
    for name in {"dialect", "group_name", "client_name"} & columns.keys():
        values = [getattr(k, name) for k in facts]
        row_values = columns[name]
        if not row_values.null_count or all(x is None for x in values):
            continue
        texts = pa.array(values, pa.string()).dictionary_encode().take(rows)
        if row_values.null_count < len(row_values):
            texts = pc.coalesce(*(x.cast(pa.string()) for x in (row_values, texts)))
        arrays[name] = texts if name in REPEATING else texts.cast(pa.string())
    for name in {name for k in facts for name in k.columns}:
        arrays[f"f.{name}"] = pa.array([k.columns.get(name) for k in facts], pa.string()).take(rows)
        if not all(name in k.columns for k in facts) and f"f.{name}" in columns:
            # A connection without the fact keeps the rows' own values, also if other connections have it.
            has_fact = pa.array([name in k.columns for k in facts]).take(rows)
            arrays[f"f.{name}"] = pc.if_else(has_fact, arrays[f"f.{name}"], columns[f"f.{name}"].cast(pa.string()))
    if "op" in columns and any(k.op_names is not None for k in facts):
        arrays["op"] = _renamed(columns, facts, index)
    return arrays


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column, or with a dot the length of its values, or one field of the structs in a list column."""
    outer, _, inner = name.partition(".")
    array = single_array(table[outer])
    if inner == "length":
        return pc.binary_length(array)
    return with_list_values(array, array.flatten().field(inner)) if inner else array


def _renamed(columns: Mapping[str, pa.Array], facts: Sequence[ConnectionFacts], index: NDArray[np.intp]) -> pa.Array:
    """Operation names, for connections whose evidence defines them."""
    names_by_id = {id(k.op_names): k.op_names or {} for k in facts}
    mappings, index_by_id = list(names_by_id.values()), {mapping: i for i, mapping in enumerate(names_by_id)}
    # Key of a name: a mapping, a direction and a number; the last number means null.
    mapping_index = np.array([index_by_id[id(k.op_names)] for k in facts], np.int64)[index]
    encoded = columns["op_code"].dictionary_encode()
    codes = [*encoded.dictionary.to_pylist(), None]
    code = codes_of(encoded)
    from_server = pc.equal(columns["direction"].cast(pa.string()), DIRECTIONS[1]).to_numpy(zero_copy_only=False)
    unique, name_index = factorize((mapping_index * 2 + from_server) * len(codes) + code)
    names: list[str | None] = []
    for key in unique.tolist():
        mapping_and_side, i = divmod(key, len(codes))
        mapping, side = divmod(mapping_and_side, 2)
        names.append(None if codes[i] is None else mappings[mapping].get((DIRECTIONS[side], codes[i])))
    return pc.coalesce(pa.array(names, pa.string()).take(pa.array(name_index)), columns["op"].cast(pa.string()))
