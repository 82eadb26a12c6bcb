"""A filter on columns of messages: which rows are true, which false, and of which it is not known.

Each test is one Arrow computation over a column, on the distinct values where the column is a dictionary. Logic has
three values: what is null is neither equal to anything nor unequal.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import dictionary, whole
from mqpcap.errors import QueryError
from mqpcap.query.columns import ColumnPlace, FilterColumn
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
        found = _constant(False, len(rows))
        for value in self.values[place.kind]:
            if isinstance(value, int):
                one = pc.equal(whole(rows.messages["connection_id"]), pa.scalar(value, pa.int64()))
            elif isinstance(value, ConnectionNumber):
                there = NUMBER in rows.messages.column_names
                one = pc.equal(whole(rows.messages[NUMBER]), value.number) if there else _constant(False, len(rows))
            else:
                assert isinstance(value, Endpoint)
                ends = (place.path[0],) if place.kind is ValueKind.ENDPOINT else ("src", "dst")
                one = reduce(pc.or_, (_is_end(rows, end, value) for end in ends))
            found = pc.or_(found, one)
        return pc.invert(found) if self.relation == "!=" else found


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
            return pc.invert(whole(rows.exchanges["is_request"]))
        return whole(rows.exchanges[name])
    if place.table != "messages":
        # A column that no message of a batch has may be missing.
        there = name in rows.fields.column_names
        return whole(rows.fields[name]) if there else pa.nulls(len(rows), pa.string())
    if name.startswith(("client_", "server_")) and name not in rows.messages.column_names:
        return _of_end(rows, *name.split("_"))
    return whole(rows.messages[name])


def _of_end(rows: Rows, end: str, what: str) -> pa.Array:
    """Address or port of an end: ``src``, ``dst``, ``client`` or ``server``."""
    if end in ("src", "dst"):
        return whole(rows.messages[f"{end}_{what}"])
    from_client = pc.equal(_plain(rows.messages["direction"]), "c2s")
    src, dst = (_plain(rows.messages[f"{side}_{what}"]) for side in ("src", "dst"))
    return pc.if_else(from_client, src, dst) if end == "client" else pc.if_else(from_client, dst, src)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = whole(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_end(rows: Rows, end: str, value: Endpoint) -> pa.BooleanArray:
    here = _constant(True, len(rows))
    if value.network is not None:
        here = _in_networks(_of_end(rows, end, "ip"), [value.network])
    if value.port is not None:
        here = pc.and_(here, pc.equal(_of_end(rows, end, "port"), value.port))
    return here


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
    addresses = map(ipaddress.ip_address, encoded.dictionary.to_pylist())
    hits = [any(map(partial(_is_inside, address), networks)) for address in addresses]
    return pa.array(hits, pa.bool_()).take(encoded.indices)


def _is_inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: Network) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address in network or (mapped is not None and mapped in network)


def checked_pattern(pattern: str) -> None:
    """Raises QueryError for what is no regular expression to RE2."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise QueryError(f"{pattern!r} is no regular expression: {str(error).partition(': ')[2] or error}") from None
