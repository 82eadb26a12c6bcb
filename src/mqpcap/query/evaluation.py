"""A filter on columns of messages: which rows are true, which false, and of which it is not known.

Each test is one Arrow computation over a column, on the distinct values where the column is a dictionary. Logic has
three values: what is null is neither equal to anything nor unequal.
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

from mqpcap.arrays import dictionary, single_array
from mqpcap.errors import QueryError
from mqpcap.query.filter_columns import ColumnPlace, FilterColumn
from mqpcap.query.grammar import TreeOf
from mqpcap.query.values import ConnectionNumber, Endpoint, Moment, Network, Value, ValueKind
from mqpcap.tables.schemas import NUMBER

_COMPARED: Mapping[str, Callable[..., pa.Array]] = {
    "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_ORDERED = (*_COMPARED, "in")
RELATIONS_OF: Mapping[ValueKind, tuple[str, ...]] = {
    **dict.fromkeys((ValueKind.TEXT, ValueKind.WORD, ValueKind.BYTES), (*_ORDERED, "contains", "matches")),
    **dict.fromkeys((ValueKind.INTEGER, ValueKind.DURATION, ValueKind.TIME), _ORDERED),
    **dict.fromkeys((ValueKind.TRUTH, ValueKind.ADDRESS, ValueKind.ENDPOINT, ValueKind.CONNECTION), ("==", "!=", "in")),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages of one protocol, with what a filter may ask of them, row for row.

    exchanges: the exchange of each message, nulls where it has none (`exchanges_of`); None where they are not known.
    unsettled: rows of which the exchange is not known yet.
    """

    protocol: str
    messages: pa.Table
    fields: pa.Table
    exchanges: pa.Table | None = None
    unsettled: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return int(self.messages.num_rows)


@dataclass(frozen=True, slots=True)
class Condition:
    """A test whose column and values are understood; values by the kind of the place they are compared with."""

    column: FilterColumn
    relation: str
    values: Mapping[ValueKind, tuple[Value, ...]]

    def mask(self, rows: Rows, first_ns: int) -> pa.BooleanArray:
        """True, false or null for each row."""
        found = [self._at(place, rows, first_ns) for place in self.column.places if _has(rows, place)]
        if not found:
            is_open = self.relation != "exists" or any(place.table == "exchanges" for place in self.column.places)
            return pa.nulls(len(rows), pa.bool_()) if is_open else _constant(False, len(rows))
        return reduce(pc.or_kleene, found)

    def words(self, rows: Rows) -> list[str]:
        """The texts that its column has, for people who asked for another; none of numbers and bytes."""
        place = self.column.places[0]
        if place.kind is ValueKind.ENDPOINT:
            array = _of_end(rows, place.path[0], "ip")
        elif (
            place.kind in (ValueKind.TEXT, ValueKind.WORD, ValueKind.ADDRESS)
            and len(place.path) == 1
            and _has(rows, place)
        ):
            array = _loaded(place, rows)
        else:
            return []
        return [str(word) for word in array.unique().to_pylist() if word is not None and not isinstance(word, list)]

    def _at(self, place: ColumnPlace, rows: Rows, first_ns: int) -> pa.BooleanArray:
        if place.kind in (ValueKind.ENDPOINT, ValueKind.CONNECTION):
            return self._of_ends(place, rows)
        array = _loaded(place, rows)
        if self.relation == "exists" or (self.relation == "is" and place.kind is not ValueKind.TRUTH):
            there = pc.is_valid(array)
            if place.table == "exchanges" and rows.unsettled is not None:
                there = pc.if_else(pa.array(rows.unsettled), pa.scalar(None, pa.bool_()), there)
            return there
        values = [v.at(first_ns) if isinstance(v, Moment) else v for v in self.values.get(place.kind, ())]
        return _any_inside(array, place.path[1:], lambda leaf: _tested(leaf, place.kind, self.relation, values))

    def _of_ends(self, place: ColumnPlace, rows: Rows) -> pa.BooleanArray:
        if self.relation == "exists":
            return _constant(True, len(rows))
        values = self.values[place.kind]
        ids = pa.array([value for value in values if isinstance(value, int)], pa.int64())
        numbers = pa.array([value.number for value in values if isinstance(value, ConnectionNumber)], pa.int64())
        endpoints = [value for value in values if isinstance(value, Endpoint)]
        hits = _constant(False, len(rows))
        if len(ids):
            hits = pc.or_(hits, pc.is_in(single_array(rows.messages["connection_id"]), ids))
        if len(numbers) and NUMBER in rows.messages.column_names:
            hits = pc.or_(hits, pc.is_in(single_array(rows.messages[NUMBER]), numbers))
        for end in ((place.path[0],) if place.kind is ValueKind.ENDPOINT else ("src", "dst")) if endpoints else ():
            hits = pc.or_(hits, _are_ends(rows, end, endpoints))
        return pc.invert(hits) if self.relation == "!=" else hits


Bound: TypeAlias = TreeOf[Condition]
_LOGIC = {"and": pc.and_kleene, "or": pc.or_kleene}


def mask(tree: Bound, rows: Rows, first_ns: int) -> pa.BooleanArray:
    """True, false or null (not known) for each row."""
    if isinstance(tree, Condition):
        return tree.mask(rows, first_ns)
    parts = (mask(part, rows, first_ns) for part in tree.parts)
    if tree.word == "not":
        return pc.invert(*parts)
    return reduce(_LOGIC[tree.word], parts, _constant(tree.word == "and", len(rows)))


def conjuncts(tree: Bound) -> tuple[Bound, ...]:
    """Trees all of which must be true."""
    return tree.parts if not isinstance(tree, Condition) and tree.word == "and" else (tree,)


def _constant(truth: bool, n: int) -> pa.BooleanArray:
    return pa.array(np.full(n, truth))


def _has(rows: Rows, place: ColumnPlace) -> bool:
    if place.table == "exchanges":
        return rows.exchanges is not None
    return place.table in ("messages", rows.protocol)


def _loaded(place: ColumnPlace, rows: Rows) -> pa.Array:
    """The column of a place, one value for each row."""
    name = place.path[0]
    if place.table == "exchanges":
        assert rows.exchanges is not None
        if name == "is_reply":
            return pc.invert(single_array(rows.exchanges["is_request"]))
        return single_array(rows.exchanges[name])
    if place.table != "messages":
        # A column that no message of a batch has may be missing.
        there = name in rows.fields.column_names
        return single_array(rows.fields[name]) if there else pa.nulls(len(rows), pa.string())
    if name.startswith(("client_", "server_")) and name not in rows.messages.column_names:
        return _of_end(rows, *name.split("_"))
    return single_array(rows.messages[name])


def _of_end(rows: Rows, end: str, what: str) -> pa.Array:
    """Address or port of an end: ``src``, ``dst``, ``client`` or ``server``."""
    if end in ("src", "dst"):
        return single_array(rows.messages[f"{end}_{what}"])
    from_client = pc.equal(_plain(rows.messages["direction"]), "c2s")
    src, dst = (_plain(rows.messages[f"{side}_{what}"]) for side in ("src", "dst"))
    return pc.if_else(from_client, src, dst) if end == "client" else pc.if_else(from_client, dst, src)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = single_array(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _are_ends(rows: Rows, end: str, endpoints: Sequence[Endpoint]) -> pa.BooleanArray:
    """Whether an end of each row is one of some; each pair of address and port is looked up once."""
    wanted = _Addresses((endpoint.network, endpoint.port) for endpoint in endpoints)
    encoded, ports = dictionary(_of_end(rows, end, "ip")), _of_end(rows, end, "port")
    addresses = list(map(ipaddress.ip_address, encoded.dictionary.to_pylist()))
    pairs = encoded.indices.to_numpy().astype(np.int64) << 16 | ports.to_numpy(zero_copy_only=False).astype(np.int64)
    distinct, place = np.unique(pairs, return_inverse=True)
    hits = [wanted.contain(addresses[pair >> 16], pair & 0xFFFF) for pair in distinct.tolist()]
    return pa.array(np.array(hits, np.bool_)[place])


def _any_inside(array: pa.Array, path: Sequence[str], test: Callable[[pa.Array], pa.BooleanArray]) -> pa.BooleanArray:
    """Where the test is true of a value, or of any inside of a list."""
    if not pa.types.is_list(array.type):
        if pa.types.is_struct(array.type):
            return _any_inside(pc.struct_field(array, path[0]), path[1:], test)
        return test(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    inside = pc.fill_null(_any_inside(array.flatten(), path, test), False).to_numpy(zero_copy_only=False)
    found = np.zeros(len(array), np.bool_)
    found[np.repeat(np.arange(len(array)), lengths)[inside]] = True
    return pa.array(found, mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def _tested(array: pa.Array, kind: ValueKind, relation: str, values: Sequence[Value]) -> pa.BooleanArray:
    if pa.types.is_null(array.type) or array.null_count == len(array):
        return pa.nulls(len(array), pa.bool_())
    if relation == "is":
        return array
    if kind is ValueKind.ADDRESS:
        found = _in_networks(array, [v for v in values if isinstance(v, ipaddress.IPv4Network | ipaddress.IPv6Network)])
        return pc.invert(found) if relation == "!=" else found
    if pa.types.is_dictionary(array.type):
        return _tested(array.dictionary, kind, relation, values).take(array.indices)
    if kind is ValueKind.WORD:
        array = pc.utf8_lower(array)
    if relation == "contains":
        return pc.match_substring(array, values[0])
    if relation == "matches":
        return pc.match_substring_regex(array, values[0])
    type_ = array.type
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        # Wide enough for any number that may be written; narrower where that does.
        small = pa.types.is_integer(type_) and all(isinstance(v, int) and abs(v) < 1 << 63 for v in values)
        type_ = pa.int64() if small else pa.decimal128(38, 0)
        array = array.cast(type_)
    scalars = [pa.scalar(Decimal(int(str(v))) if pa.types.is_decimal(type_) else v, type_) for v in values]
    if relation == "in":
        found = pc.is_in(array, pa.array(scalars, type_))
        return pc.if_else(pc.is_valid(array), found, pa.scalar(None, pa.bool_())) if array.null_count else found
    return _COMPARED[relation](array, scalars[0])


def _in_networks(array: pa.Array, networks: Sequence[Network]) -> pa.BooleanArray:
    encoded = dictionary(array)
    wanted = _Addresses((network, None) for network in networks)
    hits = [wanted.contain(ipaddress.ip_address(address)) for address in encoded.dictionary.to_pylist()]
    return pa.array(hits, pa.bool_()).take(encoded.indices)


class _Addresses:
    """Networks, each with a port or with any (None); a look-up costs a probe for each length of prefix among them."""

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

    def contain(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None = None) -> bool:
        """Whether an end is one of them; an IPv4 address written as IPv6 is, too."""
        if not self._ports_anywhere.isdisjoint((port, None)):
            return True
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        for written in (address,) if mapped is None else (address, mapped):
            for version, netmask in self._netmasks:
                if version == written.version:
                    ports = self._ports.get((version, netmask, int(written) & netmask), ())
                    if port in ports or None in ports:
                        return True
        return False


MAX_PATTERN_CHARACTERS = 1 << 14
"""The longest regular expression: RE2 takes time in proportion to it, for each character of a text."""


def checked_pattern(pattern: str) -> None:
    """Raises QueryError for a regular expression that is too long, or that RE2 does not read."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise QueryError(
            f"a regular expression of {len(pattern):,} characters; the most are {MAX_PATTERN_CHARACTERS:,}"
        )
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise QueryError(f"{pattern!r} is no regular expression: {str(error).partition(': ')[2] or error}") from None
