"""Evaluates a filter on columns of messages: each row is true, false or unknown.

In: a `BoundFilter` and a `FilterInput`. Out: a boolean array, null where the result is unknown. Called by: `Query`.

Each condition is an Arrow computation over a whole column. A dictionary column is tested on its distinct values. Logic
has three values: a comparison with null is unknown, and so is ``not`` of it.
"""

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import dictionary, single_array, without_dictionary
from mqpcap.errors import QueryError
from mqpcap.query.filter_columns import ColumnSource, FilterColumn
from mqpcap.query.grammar import TreeOf
from mqpcap.query.values import ConnectionNumber, Endpoint, Moment, Network, Value, ValueKind
from mqpcap.tables.schemas import CONNECTION_NUMBER

_COMPARISONS: Mapping[str, Callable[..., pa.Array]] = {
    "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_ORDER_RELATIONS = (*_COMPARISONS, "in")
RELATIONS_BY_KIND: Mapping[ValueKind, tuple[str, ...]] = {
    **dict.fromkeys((ValueKind.TEXT, ValueKind.WORD, ValueKind.BYTES), (*_ORDER_RELATIONS, "contains", "matches")),
    **dict.fromkeys((ValueKind.INTEGER, ValueKind.DURATION, ValueKind.TIME), _ORDER_RELATIONS),
    **dict.fromkeys(
        (ValueKind.TRUTH, ValueKind.ADDRESS, ValueKind.ENDPOINT, ValueKind.CONNECTION, ValueKind.STREAM),
        ("==", "!=", "in"),
    ),
}


@dataclass(frozen=True, slots=True)
class FilterInput:
    """Messages of one protocol with their fields and exchanges, row for row.

    - exchanges: the exchange of each message, nulls where it has none (`exchanges_of`); None if exchanges are not known
    - unresolved: rows whose exchange is not known yet
    """

    protocol: str
    messages: pa.Table
    fields: pa.Table
    exchanges: pa.Table | None = None
    unresolved: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return int(self.messages.num_rows)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison with its column resolved and its values parsed, by the kind of the source."""

    column: FilterColumn
    relation: str
    values: Mapping[ValueKind, tuple[Value, ...]]

    def mask(self, rows: FilterInput, first_ns: int) -> pa.BooleanArray:
        """True, false or null for each row."""
        masks = [
            self._source_mask(source, rows, first_ns) for source in self.column.sources if _has_source(rows, source)
        ]
        if not masks:
            is_unknown = self.relation != "exists" or any(source.table == "exchanges" for source in self.column.sources)
            return pa.nulls(len(rows), pa.bool_()) if is_unknown else _constant(False, len(rows))
        return reduce(pc.or_kleene, masks)

    def seen_values(self, rows: FilterInput) -> list[str]:
        """The texts in its column, for a note if no row matched; empty for numbers and bytes."""
        source = self.column.sources[0]
        if source.kind in (ValueKind.CONNECTION, ValueKind.STREAM) and CONNECTION_NUMBER in rows.messages.column_names:
            return [f"c{number}" for number in rows.messages[CONNECTION_NUMBER].unique().to_pylist()]
        if source.kind is ValueKind.ENDPOINT:
            array = _end_column(rows, source.path[0], "ip")
        elif (
            source.kind in (ValueKind.TEXT, ValueKind.WORD, ValueKind.ADDRESS)
            and len(source.path) == 1
            and _has_source(rows, source)
        ):
            array = load_column(source, rows)
        else:
            return []
        return [str(word) for word in array.unique().to_pylist() if word is not None and not isinstance(word, list)]

    def _source_mask(self, source: ColumnSource, rows: FilterInput, first_ns: int) -> pa.BooleanArray:
        if source.kind in (ValueKind.ENDPOINT, ValueKind.CONNECTION, ValueKind.STREAM):
            return self._endpoint_mask(source, rows)
        array = load_column(source, rows)
        if self.relation == "exists" or (self.relation == "is" and source.kind is not ValueKind.TRUTH):
            is_present = pc.is_valid(array)
            if source.table == "exchanges" and rows.unresolved is not None:
                is_present = pc.if_else(pa.array(rows.unresolved), pa.scalar(None, pa.bool_()), is_present)
            return is_present
        values = [v.time_ns(first_ns) if isinstance(v, Moment) else v for v in self.values.get(source.kind, ())]
        return _any_element(array, source.path[1:], lambda leaf: _test_values(leaf, source.kind, self.relation, values))

    def _endpoint_mask(self, source: ColumnSource, rows: FilterInput) -> pa.BooleanArray:
        if self.relation == "exists":
            return _constant(True, len(rows))
        values = self.values[source.kind]
        ids = pa.array([value for value in values if isinstance(value, int)], pa.int64())
        numbers = pa.array([value.number for value in values if isinstance(value, ConnectionNumber)], pa.int64())
        endpoints = [value for value in values if isinstance(value, Endpoint)]
        hits = _constant(False, len(rows))
        if len(ids):
            hits = pc.or_(hits, pc.is_in(single_array(rows.messages["connection_id"]), ids))
        if len(numbers) and CONNECTION_NUMBER in rows.messages.column_names:
            hits = pc.or_(hits, pc.is_in(single_array(rows.messages[CONNECTION_NUMBER]), numbers))
        for end in ((source.path[0],) if source.kind is ValueKind.ENDPOINT else ("src", "dst")) if endpoints else ():
            hits = pc.or_(hits, _match_endpoints(rows, end, endpoints))
        return pc.invert(hits) if self.relation == "!=" else hits


BoundFilter: TypeAlias = TreeOf[Condition]
_LOGIC = {"and": pc.and_kleene, "or": pc.or_kleene}


def mask(tree: BoundFilter, rows: FilterInput, first_ns: int) -> pa.BooleanArray:
    """True, false or null (unknown) for each row."""
    if isinstance(tree, Condition):
        return tree.mask(rows, first_ns)
    parts = (mask(part, rows, first_ns) for part in tree.parts)
    if tree.word == "not":
        return pc.invert(*parts)
    return reduce(_LOGIC[tree.word], parts, _constant(tree.word == "and", len(rows)))


def and_parts(tree: BoundFilter) -> tuple[BoundFilter, ...]:
    """The trees that must all be true: the parts of an ``and``, else the tree itself."""
    return tree.parts if not isinstance(tree, Condition) and tree.word == "and" else (tree,)


def _constant(truth: bool, n: int) -> pa.BooleanArray:
    return pa.array(np.full(n, truth))


def _has_source(rows: FilterInput, source: ColumnSource) -> bool:
    if source.table == "exchanges":
        return rows.exchanges is not None
    return source.table in ("messages", rows.protocol)


def load_column(source: ColumnSource, rows: FilterInput) -> pa.Array:
    """The column of a source, a value per row."""
    name = source.path[0]
    if source.table == "exchanges":
        assert rows.exchanges is not None
        if name == "is_reply":
            return pc.invert(single_array(rows.exchanges["is_request"]))
        return single_array(rows.exchanges[name])
    if source.table != "messages":
        # The column is missing if no message of the batch has a value.
        is_present = name in rows.fields.column_names
        return single_array(rows.fields[name]) if is_present else pa.nulls(len(rows), pa.string())
    if name.startswith(("client_", "server_")) and name not in rows.messages.column_names:
        return _end_column(rows, *name.split("_"))
    return single_array(rows.messages[name])


def _end_column(rows: FilterInput, end: str, field: str) -> pa.Array:
    """Address or port of an end: ``src``, ``dst``, ``client`` or ``server``."""
    if end in ("src", "dst"):
        return single_array(rows.messages[f"{end}_{field}"])
    from_client = pc.equal(without_dictionary(rows.messages["direction"]), "c2s")
    src, dst = (without_dictionary(rows.messages[f"{side}_{field}"]) for side in ("src", "dst"))
    return pc.if_else(from_client, src, dst) if end == "client" else pc.if_else(from_client, dst, src)


def _match_endpoints(rows: FilterInput, end: str, endpoints: Sequence[Endpoint]) -> pa.BooleanArray:
    """Whether the address and port of an end match an endpoint; each distinct pair is looked up once."""
    wanted = _Addresses((endpoint.network, endpoint.port) for endpoint in endpoints)
    encoded, ports = dictionary(_end_column(rows, end, "ip")), _end_column(rows, end, "port")
    addresses = list(map(ipaddress.ip_address, encoded.dictionary.to_pylist()))
    pairs = encoded.indices.to_numpy().astype(np.int64) << 16 | ports.to_numpy(zero_copy_only=False).astype(np.int64)
    distinct, pair_index = np.unique(pairs, return_inverse=True)
    hits = [wanted.contains(addresses[pair >> 16], pair & 0xFFFF) for pair in distinct.tolist()]
    return pa.array(np.array(hits, np.bool_)[pair_index])


def _any_element(array: pa.Array, path: Sequence[str], test: Callable[[pa.Array], pa.BooleanArray]) -> pa.BooleanArray:
    """Whether each value passes a test; a list passes if any element does."""
    if not pa.types.is_list(array.type):
        if pa.types.is_struct(array.type):
            return _any_element(pc.struct_field(array, path[0]), path[1:], test)
        return test(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    element_hits = pc.fill_null(_any_element(array.flatten(), path, test), False).to_numpy(zero_copy_only=False)
    hits = np.zeros(len(array), np.bool_)
    hits[np.repeat(np.arange(len(array)), lengths)[element_hits]] = True
    return pa.array(hits, mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def _test_values(array: pa.Array, kind: ValueKind, relation: str, values: Sequence[Value]) -> pa.BooleanArray:
    if pa.types.is_null(array.type) or array.null_count == len(array):
        return pa.nulls(len(array), pa.bool_())
    if relation == "is":
        return array
    if kind is ValueKind.ADDRESS:
        hits = _in_networks(array, [v for v in values if isinstance(v, ipaddress.IPv4Network | ipaddress.IPv6Network)])
        return pc.invert(hits) if relation == "!=" else hits
    if pa.types.is_dictionary(array.type):
        return _test_values(array.dictionary, kind, relation, values).take(array.indices)
    if kind is ValueKind.WORD:
        array = pc.utf8_lower(array)
    if relation == "contains":
        return pc.match_substring(array, values[0])
    if relation == "matches":
        return pc.match_substring_regex(array, values[0])
    type_ = array.type
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        # A decimal holds every number that a filter may contain; int64 is faster if all values fit.
        small = pa.types.is_integer(type_) and all(isinstance(v, int) and abs(v) < 1 << 63 for v in values)
        type_ = pa.int64() if small else pa.decimal128(38, 0)
        array = array.cast(type_)
    scalars = [pa.scalar(Decimal(int(str(v))) if pa.types.is_decimal(type_) else v, type_) for v in values]
    if relation == "in":
        hits = pc.is_in(array, pa.array(scalars, type_))
        return pc.if_else(pc.is_valid(array), hits, pa.scalar(None, pa.bool_())) if array.null_count else hits
    return _COMPARISONS[relation](array, scalars[0])


def _in_networks(array: pa.Array, networks: Sequence[Network]) -> pa.BooleanArray:
    encoded = dictionary(array)
    wanted = _Addresses((network, None) for network in networks)
    hits = [wanted.contains(ipaddress.ip_address(address)) for address in encoded.dictionary.to_pylist()]
    return pa.array(hits, pa.bool_()).take(encoded.indices)


class _Addresses:
    """Networks, each with a port or any port (None). A look-up costs a probe per distinct prefix length."""

    def __init__(self, wanted: Iterable[tuple[Network | None, int | None]]) -> None:
        self._netmasks: set[tuple[int, int]] = set()
        self._ports: dict[tuple[int, int, int], set[int | None]] = {}
        self._ports_anywhere: set[int | None] = set()
        for network, port in wanted:
            if network is None:
                self._ports_anywhere.add(port)
                continue
            netmask = network.version, int(network.netmask)
            self._netmasks.add(netmask)
            self._ports.setdefault((*netmask, int(network.network_address)), set()).add(port)

    def contains(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None = None) -> bool:
        """Whether an address and port match; an IPv4-mapped IPv6 address also matches as IPv4."""
        if not self._ports_anywhere.isdisjoint((port, None)):
            return True
        ipv4_address = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        for candidate in (address,) if ipv4_address is None else (address, ipv4_address):
            for version, netmask in self._netmasks:
                if version == candidate.version:
                    ports = self._ports.get((version, netmask, int(candidate) & netmask), ())
                    if port in ports or None in ports:
                        return True
        return False


MAX_PATTERN_CHARACTERS = 1 << 14
"""Characters in a regular expression: RE2's time per character of text grows with this length."""


def checked_pattern(pattern: str) -> None:
    """Raises QueryError for a regular expression that is too long or that RE2 rejects."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise QueryError(
            f"a regular expression of {len(pattern):,} characters; the most are {MAX_PATTERN_CHARACTERS:,}"
        )
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise QueryError(f"{pattern!r} is no regular expression: {str(error).partition(': ')[2] or error}") from None
