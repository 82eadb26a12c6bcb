"""Columns to the tables of the contract, as Arrow.

``records`` gives the fields of each message, ``frames`` its envelope; here they become ``messages`` and the
protocol's table, row for row. What only the whole connection can say (dialect, fq's user, kokaq's
names) is filled in at the end, so rows wait in a spool: in memory up to a bound, then on disk.
"""

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap import interpreter as ip
from mqpcap.exchanges import ENVELOPE, needed
from mqpcap.flaws import Flaw
from mqpcap.frames import Frames, Problem, Talk
from mqpcap.program import Column, Program
from mqpcap.protocol import DIRECTIONS, Facts, MessageQueue
from mqpcap.records import Records, coalesced
from mqpcap.streams import Flow

SPOOL_BYTES = 192 << 20
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
KEYS = ("connection_id", "direction", "stream_offset", "ts", "ts_ns", "op", "flaw")
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
FLAW_NAMES = pa.array([f.text for f in Flaw], pa.string())


def fingerprint_bases() -> tuple[int, int]:
    """Bases of fingerprints: random, so that no input can be made to collide; they never reach an output."""
    return secrets.randbelow(1 << 30) + (1 << 29), secrets.randbelow(1 << 30) + (1 << 29)


_BASES = fingerprint_bases()


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
    """Rows of one protocol: ``messages`` (schema MESSAGES) and ``fields`` (KEYS and the protocol's columns), row for row;
    ``narrow`` is what ``exchanges`` reads of them, None for a protocol without a rule."""

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
        self._files: dict[str, tuple[IO[bytes], pa.RecordBatchStreamWriter]] = {}

    def add(self, protocol: str, table: pa.Table) -> None:
        """Take a batch in."""
        self._held.setdefault(protocol, []).append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes > self.memory_bytes:
            self._spill()

    def _spill(self) -> None:
        for protocol, tables in self._held.items():
            for table in tables:
                if protocol not in self._files:
                    file = tempfile.TemporaryFile(prefix="mqpcap-spool-")  # noqa: SIM115 - closed with the spool
                    self._files[protocol] = file, pa.ipc.new_stream(file, table.schema)
                self._files[protocol][1].write_table(table)
                self.spilled_bytes += table.nbytes
        self._held, self._held_bytes = {}, 0

    def batches(self) -> Iterator[tuple[str, pa.Table]]:
        """Every batch, as often as asked; batches of a protocol in the order they came, one table where none was spilled."""
        for _, writer in self._files.values():
            writer.close()
        for protocol in sorted({*self._held, *self._files}):
            if protocol in self._files:
                file, _ = self._files[protocol]
                file.seek(0)
                with pa.ipc.open_stream(file) as reader:
                    for batch in reader:
                        yield protocol, pa.Table.from_batches([batch])
                for table in self._held.get(protocol, ()):
                    yield protocol, table
            else:
                yield protocol, pa.concat_tables(self._held[protocol])


def waiting(
    protocol: MessageQueue,
    program: Program,
    frames: Frames,
    records: Records,
    talks: Mapping[int, Talk],
    flows: Sequence[Flow],
    files: Sequence[str],
    policy: Policy,
) -> pa.Table:
    """A batch of rows as the spool keeps it: columns of ``messages``, of the protocol (``f.`` in front), flow and side."""
    n = len(frames.start)
    flow, place = np.unique(frames.flow, return_inverse=True)
    from_client = np.array([talks[f].client for f in flow.tolist()], np.int8)[place] == frames.side
    direction = pa.array(np.where(from_client, 0, 1).astype(np.int8))
    columns: dict[str, pa.Array] = {
        "capture_file": pa.array([_text(name) for name in files], pa.string()).take(pa.array(frames.first_file)),
        "direction": pa.array(DIRECTIONS, pa.string()).take(direction),
        "stream_offset": pa.array(frames.offset),
        "frame_len": pa.array(frames.captured),
        "ts": pa.array(frames.ts_ns // 1000).cast(US),
        "ts_ns": pa.array(frames.ts_ns),
        "end_ts_ns": pa.array(frames.end_ts_ns),
        "first_packet": pa.array(frames.first_packet),
        "last_packet": pa.array(frames.last_packet),
        "flaw": FLAW_NAMES.take(pa.array(records.flaw)),
        "gap_before_bytes": pa.array(frames.gap_before),
        "resynced": pa.array(frames.resynced),
        "protocol": pa.array([protocol.name], pa.string()).take(pa.array(np.zeros(n, np.int8))),
    }
    columns |= _endpoints([flows[f] for f in flow.tolist()], place, frames.side)
    columns |= _operations(protocol, program, frames, records)
    columns |= _envelope(protocol, columns, records.table)
    fields = {f"f.{name}": array for name, array in _shown(protocol, program, records.table, policy).items()}
    arrays = {name: columns[name] for name in MESSAGES.names if name in columns}
    flow_and_side = {"flow": pa.array(frames.flow), "side": pa.array(frames.side)}
    return pa.table(arrays | flow_and_side | fields | _for_rule(protocol, columns, records.table, policy.bases))


def _for_rule(
    protocol: MessageQueue, columns: Mapping[str, pa.Array], table: pa.Table, bases: tuple[int, int]
) -> dict[str, pa.Array]:
    """What the protocol's rule reads, before any policy hides it (``r.`` in front)."""
    rule = protocol.rule
    if rule is None:
        return {}
    out = {f"r.{name}": _column(table, name) for name in needed(rule) if name.split(".")[0] in table.column_names}
    if rule.body is not None:
        body = _plain(table[rule.body]).cast(pa.binary())
        _, offsets, data = body.buffers()
        prints = np.zeros(len(body), np.int64)
        ip.fingerprints(
            memoryview(np.frombuffer(data, np.uint8)) if data is not None and data.size else b"\0",
            memoryview(np.frombuffer(offsets, np.int32)[body.offset : body.offset + len(body) + 1]), *bases,
            memoryview(prints),
        )  # fmt: skip
        out["r.body_print"] = pa.array(prints, mask=pc.is_null(body).to_numpy(zero_copy_only=False))
        delivered = pc.and_(pc.equal(columns["direction"], "s2c"), pc.is_in(columns["op"], pa.array(rule.delivered, pa.string())))
        digests: list[str | None] = [None] * len(body)
        for row in np.flatnonzero(pc.fill_null(delivered, False).to_numpy(zero_copy_only=False)).tolist():
            value = body[row].as_py()
            digests[row] = None if value is None else hashlib.sha256(value).hexdigest()
        out["r.body_sha256"] = pa.array(digests, pa.string())
    return out


def _text(name: str) -> str:
    """A file's name as text; bytes of it that are no UTF-8 are replaced, as in every text column."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _endpoints(
    flows: Sequence[Flow], place: NDArray[np.intp], side: NDArray[np.int8]
) -> dict[str, pa.Array]:
    at = pa.array(place)
    a_sends = pa.array(side == 0)
    ips = [pa.array([getattr(f, x) for f in flows], pa.string()).take(at) for x in ("a_ip", "b_ip")]
    ports = [pa.array([getattr(f, x) for f in flows], pa.int32()).take(at) for x in ("a_port", "b_port")]
    return {
        "connection_id": pa.array([f.connection_id for f in flows], pa.int64()).take(at),
        "src_ip": pc.if_else(a_sends, ips[0], ips[1]),
        "dst_ip": pc.if_else(a_sends, ips[1], ips[0]),
        "src_port": pc.if_else(a_sends, ports[0], ports[1]),
        "dst_port": pc.if_else(a_sends, ports[1], ports[0]),
    }


def _operations(
    protocol: MessageQueue, program: Program, frames: Frames, records: Records
) -> dict[str, pa.Array]:
    """op_code, op and dialect, from layout, operation and the reading taken."""
    keys = np.stack([frames.layout.astype(np.int64), frames.op, records.reading.astype(np.int64)])
    unique, place = np.unique(keys, axis=1, return_inverse=True)
    codes: list[int | None] = []
    names: list[str | None] = []
    dialects: list[str | None] = []
    for layout_index, op, reading in unique.T.tolist():
        layout = protocol.layout(program.layouts[layout_index].name)
        codes.append(None if op < 0 else op)
        names.append(layout.names.get(op))
        dialects.append((program.alt_dialect[reading] if reading >= 0 else None) or layout.dialect)
    at = pa.array(place.reshape(-1))
    return {
        "op_code": pa.array(codes, pa.int64()).take(at),
        "op": pa.array(names, pa.string()).take(at),
        "dialect": pa.array(dialects, pa.string()).take(at),
    }


def _envelope(protocol: MessageQueue, columns: Mapping[str, pa.Array], table: pa.Table) -> dict[str, pa.Array]:
    """The columns of ``messages`` that come from the protocol's own."""
    envelope = protocol.envelope
    out: dict[str, pa.Array] = {
        name: coalesced(table, getattr(envelope, name), type_)
        for name, type_ in ENVELOPE_TYPES.items()
        if name not in ("body_len", "status")
    }
    out["body_len"] = _body_len(table, envelope.body)
    out["status"] = pa.nulls(table.num_rows, pa.string())
    if envelope.derive is not None:
        for name in ("op", "op_code", "direction", "flaw"):
            table = table.append_column(name, columns[name])
        out |= envelope.derive(table)
    return {name: _plain(array) for name, array in out.items()}


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _body_len(table: pa.Table, names: str | Sequence[str]) -> pa.Array:
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted:
        return pa.nulls(table.num_rows, pa.int64())
    lengths = [pc.binary_length(table[name].combine_chunks()).cast(pa.int64()) for name in wanted]
    return lengths[0] if len(lengths) == 1 else pc.coalesce(*lengths)


def _shown(protocol: MessageQueue, program: Program, table: pa.Table, policy: Policy) -> dict[str, pa.Array]:
    """The protocol's columns under the policy: secrets masked, bodies kept, cut or dropped."""
    out = {name: _plain(table[name]) for name in table.column_names}
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
    return out


def _under_policy(program: Program, c: int, column: Column, array: pa.Array, policy: Policy) -> pa.Array:
    if column.secret and not policy.show_secrets:
        return masked(array)
    if column.body:
        return shortened(array, policy.bodies)
    if column.kind == "list" and pa.types.is_struct(array.type.value_type) and policy.bodies is not None:
        # flatten() honours offsets and nulls; the lists keep their lengths.
        items = array.flatten()
        children = []
        for i in range(items.type.num_fields):
            name = items.type.field(i).name
            inner = next(x for x in program.columns if x.parent == c and x.name == name)
            children.append(shortened(items.field(i), policy.bodies) if inner.body else items.field(i))
        names = [items.type.field(i).name for i in range(items.type.num_fields)]
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        mask = pc.is_null(array) if array.null_count else None
        return pa.ListArray.from_arrays(
            pa.array(offsets), pa.StructArray.from_arrays(children, names=names), mask=mask
        )
    return array


def masked(array: pa.Array) -> pa.Array:
    """Every value that is there replaced by ``***``."""
    secret = pa.scalar(SECRET.encode() if pa.types.is_binary(array.type) else SECRET, array.type)
    return pc.if_else(pc.is_valid(array), secret, pa.scalar(None, array.type))


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


def settled(
    protocol: MessageQueue, table: pa.Table, facts: Mapping[int, Facts], flows: Sequence[Flow]
) -> Chunk:
    """A batch from the spool with what its connections as a whole say, sorted by time."""
    flow, place = np.unique(table["flow"].to_numpy(), return_inverse=True)
    at = pa.array(place)
    known = [facts.get(f, Facts()) for f in flow.tolist()]
    columns = {name: _plain(table[name]) for name in table.column_names}
    for name in ("dialect", "group_name", "client_name"):
        said = pa.array([getattr(k, name) for k in known], pa.string()).take(at)
        columns[name] = pc.coalesce(columns[name], said)
    for name in {name for k in known for name in k.columns}:
        columns[f"f.{name}"] = pa.array([k.columns.get(name) for k in known], pa.string()).take(at)
    if any(k.op_names is not None for k in known):
        columns["op"] = _renamed(columns, known, place)
    shifts = np.array([flows[f].shift for f in flow.tolist()], np.int64)[place, table["side"].to_numpy()]
    if shifts.any():
        columns["stream_offset"] = pc.add(columns["stream_offset"], pa.array(shifts))
    whole = pa.table(columns).sort_by(
        [("ts_ns", "ascending"), ("first_packet", "ascending"), ("connection_id", "ascending"),
         ("direction", "ascending"), ("stream_offset", "ascending")]
    )  # fmt: skip
    messages = whole.select(MESSAGES.names).cast(MESSAGES)
    names = [name for name in whole.column_names if name.startswith("f.")]
    fields = whole.select([*KEYS, *names]).rename_columns([*KEYS, *(name[2:] for name in names)])
    return Chunk(protocol.name, messages, fields, _narrow(protocol, whole))


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column, or with a dot one field of the structs in a list column."""
    outer, _, inner = name.partition(".")
    array = _plain(table[outer])
    if not inner:
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, array.flatten().field(inner), mask=pc.is_null(array))


def _narrow(protocol: MessageQueue, whole: pa.Table) -> pa.Table | None:
    rule = protocol.rule
    if rule is None:
        return None
    names = [*ENVELOPE, *(name for name in whole.column_names if name.startswith("r."))]
    table = whole.select(names).rename_columns([n.removeprefix("r.") if n.startswith("r.body_") else n.replace("r.", "f.", 1) if n.startswith("r.") else n for n in names])
    for name in needed(rule):
        if f"f.{name}" not in table.column_names:
            table = table.append_column(f"f.{name}", whole[name])
    return table


def _renamed(columns: Mapping[str, pa.Array], known: Sequence[Facts], place: NDArray[np.intp]) -> pa.Array:
    """Operation names where the connection's evidence says them."""
    names = columns["op"].to_pylist()
    codes = columns["op_code"].to_pylist()
    directions = columns["direction"].to_pylist()
    for row, k in enumerate(place.tolist()):
        mapping = known[k].op_names
        if mapping is not None and codes[row] is not None:
            names[row] = mapping.get((directions[row], codes[row]), names[row])
    return pa.array(names, pa.string())


def connections(flows: Sequence[Flow], talks: Mapping[int, Talk]) -> pa.Table:
    """The table ``connections``: one row per TCP connection, in order of the first packet."""
    rows = []
    for number, flow in enumerate(flows):
        talk = talks.get(number, Talk(number))
        client, server = talk.client, 1 - talk.client
        ips, ports = (flow.a_ip, flow.b_ip), (flow.a_port, flow.b_port)
        row: dict[str, object] = {
            "connection_id": flow.connection_id,
            "community_id": flow.community_id,
            "client_ip": ips[client],
            "client_port": ports[client],
            "server_ip": ips[server],
            "server_port": ports[server],
            "first_ts": flow.first_ts_ns // 1000,
            "last_ts": flow.last_ts_ns // 1000,
            "first_ts_ns": flow.first_ts_ns,
            "last_ts_ns": flow.last_ts_ns,
            "protocol": talk.protocol.name if talk.protocol else None,
            "identified_by": talk.identified_by,
            "syn_seen": flow.syn_seen,
            "end_state": flow.end_state,
        }
        for side, d in ((client, "c2s"), (server, "s2c")):
            row |= {
                f"packets_{d}": flow.packets[side],
                f"bytes_{d}": flow.bytes[side],
                f"retransmitted_bytes_{d}": flow.retransmitted[side],
                f"conflict_bytes_{d}": flow.conflict[side],
                f"missing_bytes_{d}": flow.missing[side],
                f"messages_{d}": talk.sides[side].messages,
            }
        rows.append(row)
    return pa.Table.from_pylist(rows, CONNECTIONS)


def problems(found: Sequence[Problem], flows: Sequence[Flow], talks: Mapping[int, Talk]) -> pa.Table:
    """The table ``problems``, sorted by time."""
    kinds: dict[str, list[object]] = {name: [] for name in PROBLEMS.names}
    for p in sorted(found, key=lambda p: (p.ts_ns, p.flow, p.side, p.offset, p.kind)):
        talk = talks.get(p.flow, Talk(p.flow))
        row = (
            flows[p.flow].connection_id, talk.direction(p.side), p.offset + flows[p.flow].shift[p.side], p.length,
            p.kind, p.reason, talk.protocol.name if talk.protocol else None, p.ts_ns // 1000,
        )  # fmt: skip
        for name, value in zip(PROBLEMS.names, row, strict=True):
            kinds[name].append(value)
    return pa.table(kinds, PROBLEMS)

