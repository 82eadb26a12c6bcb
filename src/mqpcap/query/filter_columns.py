"""Resolves the names in a filter to the columns that hold their values.

A name is a column of ``messages`` or ``exchanges``, or a field of a protocol. ``flymq.key`` is a field of FlyMQ;
``key`` is the field of that name in the protocol of each message.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

import pyarrow as pa

from mqpcap.decode.columns import column_type
from mqpcap.errors import QueryError
from mqpcap.protocols import protocols
from mqpcap.query.values import ValueKind
from mqpcap.schema.compiler import Program, compiled
from mqpcap.tables.schemas import EXCHANGES, MESSAGES


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A column that holds values of a name.

    - table: ``messages``, ``exchanges`` or a protocol
    - path: the column, then the nested fields if it is a list of structs
    """

    table: str
    path: tuple[str, ...]
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """A name and its sources; a message has its values in the sources of its own protocol."""

    name: str
    sources: tuple[ColumnSource, ...]

    @property
    def kinds(self) -> frozenset[ValueKind]:
        """The kinds of its values."""
        return frozenset(source.kind for source in self.sources)


_WORD_COLUMNS = ("direction", "request_direction", "protocol", "dialect", "op", "status", "flaw", "state", "how")
_KINDS = {
    "connection_id": ValueKind.CONNECTION, "ts": ValueKind.TIME, "latency_ns": ValueKind.DURATION,
    "server_ns": ValueKind.DURATION,
    **dict.fromkeys(_WORD_COLUMNS, ValueKind.WORD),
}  # fmt: skip
ALIASES = {
    "topic": "destination", "latency": "latency_ns", "connection": "connection_id", "packet": "first_packet",
    "frame.number": "first_packet", "frame.time": "ts", "frame.time_epoch": "ts", "ip.src": "src_ip",
    "ip.dst": "dst_ip", "tcp.srcport": "src_port", "tcp.dstport": "dst_port",
}  # fmt: skip
"""Further names of columns, those of Wireshark among them.

``topic`` is ``destination``: the topic, queue, exchange or group. FlyMQ's field is ``flymq.topic``.
"""
_EXCHANGE_COLUMNS = (
    "state", "how", "latency_ns", "server_ns", "request_packet", "reply_packet", "request_ts_ns", "reply_ts_ns",
    "status", "error_code",
)  # fmt: skip
STREAM = "tcp.stream"
RELATIVE_TIME = "frame.time_relative"
"""Seconds since the first packet."""
TIME_SINCE_LINE = "frame.time_delta_displayed"
"""Seconds since the line before: a value of lines, which no filter can test."""
PAYLOAD = "payload"
"""The name for user payload in any protocol: the fields that ``--bodies`` acts on."""


def _kind(type_: pa.DataType, name: str = "") -> ValueKind:
    if name in _KINDS:
        return _KINDS[name]
    if name.endswith("_ip"):
        return ValueKind.ADDRESS
    if name.endswith("ts_ns"):
        return ValueKind.TIME
    if pa.types.is_boolean(type_):
        return ValueKind.TRUTH
    if pa.types.is_string(type_):
        return ValueKind.TEXT
    return ValueKind.BYTES if pa.types.is_binary(type_) else ValueKind.INTEGER


@cache
def _common_columns() -> Mapping[str, FilterColumn]:
    """Columns that messages of every protocol have."""
    source_by_name: dict[str, ColumnSource] = {}
    for name in _EXCHANGE_COLUMNS:
        source = ColumnSource("exchanges", (name,), _kind(EXCHANGES.field(name).type, name))
        source_by_name[f"exchange.{name}"] = source_by_name[name] = source
    for name in ("is_request", "is_reply"):
        source_by_name[name] = ColumnSource("exchanges", (name,), ValueKind.TRUTH)
    for field in MESSAGES:  # a name in both tables is the column of ``messages``
        name = "ts_ns" if field.name == "ts" else field.name
        source_by_name[field.name] = ColumnSource("messages", (name,), _kind(field.type, field.name))
    for end in ("client", "server"):
        for name, kind in (
            (end, ValueKind.ENDPOINT),
            (f"{end}_ip", ValueKind.ADDRESS),
            (f"{end}_port", ValueKind.INTEGER),
        ):
            source_by_name[name] = ColumnSource("messages", (name,), kind)
    source_by_name |= {alias: source_by_name[name] for alias, name in ALIASES.items()}
    source_by_name[STREAM] = ColumnSource("messages", ("connection_id",), ValueKind.STREAM)
    return {name: FilterColumn(name, (source,)) for name, source in source_by_name.items()}


@cache
def _protocol_fields() -> Mapping[str, FilterColumn]:
    """Fields of protocols, by their names with and without the protocol."""
    sources_by_name: dict[str, list[ColumnSource]] = {}
    for protocol in protocols():
        for path, kind in _paths(protocol):
            name, source = ".".join(path), ColumnSource(protocol, path, kind)
            sources_by_name.setdefault(f"{protocol}.{name}", []).append(source)
            sources_by_name.setdefault(name, []).append(source)
        sources_by_name.setdefault(PAYLOAD, []).extend(ColumnSource(protocol, *body) for body in bodies(protocol))
    return {name: FilterColumn(name, tuple(sources)) for name, sources in sources_by_name.items()}


def _paths(protocol: str) -> Iterator[tuple[tuple[str, ...], ValueKind]]:
    program = compiled(protocols()[protocol])
    for i, column in enumerate(program.columns):
        if column.parent < 0 and not column.hidden:
            yield from _leaf_paths((column.name,), column_type(program, i))
        if column.name_column is not None:
            yield from _leaf_paths((column.name_column,), pa.string())
    for derived in protocols()[protocol].derived:
        if not derived.hidden:
            yield from _leaf_paths((derived.name,), derived.type)


def _leaf_paths(path: tuple[str, ...], type_: pa.DataType) -> Iterator[tuple[tuple[str, ...], ValueKind]]:
    """The paths of the values in a column, including fields of list elements."""
    while pa.types.is_list(type_):
        type_ = type_.value_type
    if not pa.types.is_struct(type_):
        yield path, _kind(type_)
        return
    for field in type_:
        yield from _leaf_paths((*path, field.name), field.type)


@cache
def bodies(protocol: str) -> Sequence[tuple[tuple[str, ...], ValueKind]]:
    """The fields of a protocol that hold user payload."""
    program = compiled(protocols()[protocol])
    body_paths = {_path(program, i) for i, column in enumerate(program.columns) if column.body}
    body_paths |= {(derived.name,) for derived in protocols()[protocol].derived if derived.body}
    return [(path, kind) for path, kind in _paths(protocol) if path in body_paths]


def _path(program: Program, i: int) -> tuple[str, ...]:
    column = program.columns[i]
    parent_path = () if column.parent < 0 else _path(program, column.parent)
    return parent_path if column.name == "item" and parent_path else (*parent_path, column.name)


@cache
def numbers_by_name(column: FilterColumn) -> Mapping[str, str]:
    """The numbers that have a name, by the name in lower case: ``{"atleastonce": "1"}`` of ``blipmq.qos``."""
    return {
        name.lower(): str(number)
        for source in column.sources
        if source.table in protocols()
        for field in compiled(protocols()[source.table]).columns
        if (field.name,) == source.path
        for number, name in field.names
    }


_ELSEWHERE = {
    RELATIVE_TIME: "filters and --fields have it",
    TIME_SINCE_LINE: "--fields has it: it is of lines, which no filter tests",
    "frame.time_delta": "it is of packets; frame.time_delta_displayed of --fields counts from the line before",
    "tcp.analysis": "stats --connections counts bytes that were sent again or are missing",
    "tcp.flags": "rows are messages; table connections has how a connection ended",
}
"""Beginnings of Wireshark's names that no column has, and where the answer is."""
_MEANT = {
    "time": ["ts"], "timestamp": ["ts"], "src": ["src_ip"], "dst": ["dst_ip"], "source": ["src_ip"],
    "length": ["frame_len", "body_len"],
    "opcode": ["op", "op_code"], "op_code": ["op", "op_code"], "latency_ms": ["latency"], "duration": ["latency"],
}  # fmt: skip
"""Usual names for what columns hold."""


def names() -> list[str]:
    """All names that a filter may use."""
    return sorted({*_common_columns(), *_protocol_fields(), RELATIVE_TIME})


def column(name: str) -> FilterColumn:
    """The column of a name; raises QueryError with the nearest names if the name is unknown."""
    named_column = _common_columns().get(name) or _protocol_fields().get(name)
    if named_column is not None:
        return named_column
    if elsewhere := next((hint for start, hint in _ELSEWHERE.items() if name.lower().startswith(start)), None):
        raise QueryError(f"there is no column {name!r}; {elsewhere}")
    table, _, field_name = name.lower().rpartition(".")
    if table in protocols() and field_name == "op":  # as tshark's users write it; of messages of any protocol
        return _common_columns()["op"]
    fields = [x.removeprefix(f"{table}.") for x in names() if table and x.startswith(f"{table}.")]
    near = [f"{table}.{x}" for x in get_close_matches(field_name, fields, 3)] or get_close_matches(
        name.lower(), names(), 3
    )
    near = _MEANT.get(name.lower()) or (_MEANT.get(field_name, near) if table in protocols() else near)
    hint = (
        f"; did you mean {' or '.join(near)}?" if near else "; names are columns of messages and exchanges, and fields"
    )
    raise QueryError(f"there is no column {name!r}{hint}")
