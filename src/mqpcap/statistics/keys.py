"""Columns that rows can be grouped by, as codes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, codes_of, dictionary, factorize, group_ids, is_in, single_array
from mqpcap.listing.field_values import nested_value
from mqpcap.query import filter_columns
from mqpcap.query.evaluation import FilterInput, load_column
from mqpcap.query.filter_columns import ALIASES, STREAM, ColumnSource
from mqpcap.query.values import ValueKind
from mqpcap.tables.output import Carried, of_messages
from mqpcap.tables.schemas import CONNECTION_NUMBER, EXCHANGES, MESSAGES
from mqpcap.tables.value_lines import value_text
from mqpcap.wording import endpoint

Value = str | int | None
MAX_MIXED = 1 << 62
MAX_KEY_TEXT = 1024
"""Characters of a value that distinguish groups."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of n rows: ``values[code[i]]`` is the i-th."""

    code: Int64Array
    values: Sequence[Value]

    def taken(self, rows: NDArray[np.intp]) -> "Coded":
        """The values of these rows."""
        return Coded(self.code[rows], self.values)


Columns = Mapping[str, Callable[[pa.Table], Coded]]
"""Functions from the rows of a table to a column to group by, by its name."""


def mixed(columns: Sequence[Coded], n: int) -> Int64Array:
    """A number for each of n rows, equal exactly where all columns are.

    >>> mixed([Coded(np.array([0, 1, 0]), "ab"), Coded(np.array([2, 2, 2]), "xyz")], 3).tolist()
    [2, 5, 2]
    """
    total = 1
    for column in columns:
        total *= max(len(column.values), 1)
    if total >= MAX_MIXED:
        return group_ids([pa.array(column.code) for column in columns], n)
    numbers = np.zeros(n, np.int64)
    for column in columns:
        numbers = numbers * max(len(column.values), 1) + column.code
    return numbers


def text(name: str, rows: pa.Table) -> Coded:
    """A column of text."""
    array = dictionary(rows[name])
    return Coded(codes_of(array).astype(np.int64), [*array.dictionary.to_pylist(), None])


def _with_port(ip: Coded, port: NDArray[np.integer]) -> Coded:
    both, place = factorize(ip.code * 65536 + port)
    return Coded(place, [endpoint(ip.values[number // 65536], number % 65536) for number in both.tolist()])


def _of_table(name: str, rows: pa.Table) -> Coded:
    """``NAME_ip:NAME_port``, columns of the table."""
    return _with_port(text(f"{name}_ip", rows), rows[f"{name}_port"].to_numpy())


def _ip(side: str, rows: pa.Table) -> Coded:
    """The address of the client (c2s) or the server (s2c) of each message: of the sender where it sent it."""
    sources, targets = text("src_ip", rows), text("dst_ip", rows)
    code = np.where(is_in(rows["direction"], side), sources.code, targets.code + len(sources.values))
    return Coded(code, [*sources.values, *targets.values])


def _end(side: str, rows: pa.Table) -> Coded:
    """Address and port of the client or the server of each message."""
    sent = is_in(rows["direction"], side)
    port = np.where(sent, rows["src_port"].to_numpy(), rows["dst_port"].to_numpy())
    return _with_port(_ip(side, rows), port)


def _request_direction(rows: pa.Table) -> Coded:
    """The direction of each request; of a reply without one, that of requests."""
    return Coded(is_in(rows["request_direction"], "s2c").astype(np.int64), ("c2s", "s2c"))


_TEXTS = {"protocol": "protocol", "op": "op", "topic": "destination", "status": "status", "name": "client_name"}
_ALIKE = {name: partial(text, column) for name, column in _TEXTS.items()}
OF_MESSAGES: Columns = _ALIKE | {
    "client": partial(_end, "c2s"),
    "client_ip": partial(_ip, "c2s"),
    "server": partial(_end, "s2c"),
    "connection": partial(_end, "c2s"),
    "direction": partial(text, "direction"),
}
"""Columns to group rows of ``messages`` by."""
_BOTH_ENDS = frozenset({"direction", "src_ip", "dst_ip", "src_port", "dst_port"})
OF_EXCHANGES: Columns = _ALIKE | {
    "client": partial(_of_table, "client"),
    "client_ip": partial(text, "client_ip"),
    "server": partial(_of_table, "server"),
    "connection": partial(_of_table, "client"),
    "direction": _request_direction,
    "how": partial(text, "how"),
}
"""Columns to group rows of ``exchanges``, ``deliveries`` and ``connections`` by; no table has all of them."""
OF_CONNECTIONS: Columns = {
    **OF_EXCHANGES,
    "client": OF_EXCHANGES["client_ip"],
    "port": lambda rows: coded(rows["server_port"]),
}
"""The same, and ``port``; a client is an address, whatever its ports."""


def needs_numbers(key_names: Iterable[str]) -> bool:
    """Whether a name needs the numbers of connections."""
    return not {"connection_id", STREAM}.isdisjoint(ALIASES.get(name, name) for name in key_names)


def columns_read(key_names: Iterable[str]) -> frozenset[Carried]:
    """The columns of ``messages`` and of protocols' tables that names are read from."""
    sources = [(x.table, x.path[0]) for listed in message_sources(key_names).values() for x in listed]
    sources += [("messages", _TEXTS.get(name, "client_ip")) for name in key_names if name in OF_MESSAGES]
    is_end = {(table, name) for table, name in sources if table == "messages" and name not in MESSAGES.names}
    return frozenset(sources) - is_end | of_messages(*(_BOTH_ENDS if is_end else ()))


def message_sources(key_names: Iterable[str]) -> dict[str, list[ColumnSource]]:
    """The columns of messages by names that `OF_MESSAGES` lacks; none for names of exchanges. Raises QueryError."""
    sources = {name: filter_columns.column(name).sources for name in key_names if name not in OF_MESSAGES}
    return {name: [x for x in listed if x.table != "exchanges"] for name, listed in sources.items()}


def exchange_reader(name: str) -> Callable[[pa.Table], Coded] | None:
    """Reads a name from rows of ``exchanges``; None if they do not have it."""
    if name in OF_EXCHANGES:
        return OF_EXCHANGES[name]
    column_name = ALIASES.get(name, name).removeprefix("exchange.")
    if column_name not in EXCHANGES.names:
        return None
    return lambda rows: coded(rows[column_name])


def message_column(sources: Sequence[ColumnSource], filter_input: FilterInput, rows: pa.Table) -> Coded:
    """The values of a name, of the first source that these messages have."""
    for source in sources:
        if source.kind is ValueKind.STREAM:
            return coded(pa.array(rows[CONNECTION_NUMBER].to_numpy() - 1))
        if source.table in ("messages", filter_input.protocol):
            return coded(load_column(source, filter_input), source.path[1:])
    return Coded(np.zeros(rows.num_rows, np.int64), (None,))


def coded(array: pa.Array | pa.ChunkedArray, path: Sequence[str] = ()) -> Coded:
    """The distinct values as codes; text of lists and bytes as people read it."""
    array = single_array(array) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_nested(array.type) or pa.types.is_decimal(array.type):
        array = pa.array([None if value is None else _text(value, path) for value in array.to_pylist()], pa.string())
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = [_value(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(codes, [*values, None])


def _value(value: object) -> Value:
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else _text(value, ())


def _text(value: object, path: Sequence[str]) -> str:
    return value_text(nested_value(value, path), str)[:MAX_KEY_TEXT]
