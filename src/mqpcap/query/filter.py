"""A parsed filter: the rows it selects, the columns it needs, the protocols and connections it can match."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import true_mask
from mqpcap.errors import QueryError
from mqpcap.query import evaluation, grammar, prefilter
from mqpcap.query.evaluation import Bound, Condition, Rows, checked_pattern
from mqpcap.query.filter_columns import ColumnPlace, FilterColumn, bodies, column
from mqpcap.query.grammar import Comparison, Logic, Tree
from mqpcap.query.values import Moment, Value, ValueKind, value
from mqpcap.tcp.muting import ConnectionTest

_OF_CONNECTIONS = {"connection_id", "direction", "protocol", "client", "server"}
_OF_CONNECTIONS |= {f"{end}_{what}" for end in ("client", "server", "src", "dst") for what in ("ip", "port")}


@dataclass(frozen=True)
class Query:
    """A filter."""

    bound: Bound

    def mask(self, rows: Rows, first_ns: int = 0) -> pa.BooleanArray:
        """For each row whether it is selected, null where that is not known.

        ``first_ns``: the time of the capture's first packet, from which times of day are counted.
        """
        return evaluation.mask(self.bound, rows, first_ns)

    def selects(self, rows: Rows, first_ns: int = 0) -> NDArray[np.bool_]:
        """The rows that are selected: what is not known is not."""
        return true_mask(self.mask(rows, first_ns))

    def __and__(self, other: "Query") -> "Query":
        return Query(Logic("and", tuple(part.bound for part in (*self.parts, *other.parts))))

    @property
    def parts(self) -> "tuple[Query, ...]":
        """Filters all of which must be true."""
        return tuple(map(Query, evaluation.conjuncts(self.bound)))

    @property
    def conditions(self) -> Iterator[Condition]:
        """Every test, wherever it stands."""
        return _conditions(self.bound)

    @cached_property
    def _places(self) -> tuple[ColumnPlace, ...]:
        return tuple(place for condition in self.conditions for place in condition.column.places)

    def fields(self, protocol: str) -> frozenset[str]:
        """The columns of a protocol's table that it looks at."""
        return frozenset(place.path[0] for place in self._places if place.table == protocol)

    @cached_property
    def asks_exchanges(self) -> bool:
        """Whether it looks at exchanges."""
        return any(place.table == "exchanges" for place in self._places)

    @property
    def asks_ends_only(self) -> bool:
        """Whether it looks at nothing but what a connection has, too."""
        return all(place.table == "messages" and place.path[0] in _OF_CONNECTIONS for place in self._places)

    @property
    def connections(self) -> ConnectionTest | None:
        """Which connections it can be true of, for ``Options.connections``; None for all."""
        return prefilter.connection_test(self.bound)

    @property
    def until(self) -> Callable[[int], int | None] | None:
        """From when on no message that begins is selected, for ``Options.until``; None if it asks for exchanges."""
        return None if self.asks_exchanges else prefilter.until(self.bound)

    @property
    def asks_bodies(self) -> bool:
        """Whether it looks at what users sent."""
        of_protocols = (place for place in self._places if place.table not in ("messages", "exchanges"))
        return any((place.path, place.kind) in bodies(place.table) for place in of_protocols)

    @cached_property
    def protocols(self) -> frozenset[str] | None:
        """The protocols whose messages it can be true of, None for all."""
        return _protocols(self.bound)


EVERYTHING = Query(Logic("and", ()))
"""The filter that is true of every message."""


def query(text: str, utc: bool = False) -> Query:
    """The filter that a text says; raises QueryError. ``utc``: times without a zone are UTC, else local.

    >>> query('op == "PUBLISH" and latency > 50ms').asks_exchanges
    True
    """
    return of_tree(grammar.parsed(text), utc)


def of_tree(tree: Tree, utc: bool = False) -> Query:
    """The filter that a tree of tests says; raises QueryError."""
    return Query(_bound(tree, utc))


def _bound(tree: Tree, utc: bool) -> Bound:
    if isinstance(tree, Comparison):
        return _condition(tree, utc)
    parts = [_bound(part, utc) for part in tree.parts]
    return Logic(tree.word, tuple(_alternatives(parts) if tree.word == "or" else parts))


def _alternatives(parts: Sequence[Bound]) -> list[Bound]:
    """Merges the alternatives ``==`` and ``in`` of a column into one condition, which takes one pass over the rows."""
    values: dict[FilterColumn, dict[ValueKind, list[Value]]] = {}
    others: list[Bound] = []
    for part in parts:
        if not isinstance(part, Condition) or part.relation not in ("==", "in"):
            others.append(part)
            continue
        merged = values.setdefault(part.column, {})
        for kind, more in part.values.items():
            merged.setdefault(kind, []).extend(more)
    any_of = [Condition(x, "in", {kind: tuple(y) for kind, y in by_kind.items()}) for x, by_kind in values.items()]
    return [*any_of, *others]


def _condition(test: Comparison, utc: bool) -> Condition:
    found = column(test.name)
    if test.relation in ("is", "exists"):
        return Condition(found, test.relation if ValueKind.TRUTH in found.kinds else "exists", {})
    kinds = [kind for kind in found.kinds if test.relation in evaluation.RELATIONS_OF[kind]]
    if not kinds:
        there = sorted({relation for kind in found.kinds for relation in evaluation.RELATIONS_OF[kind]})
        raise QueryError(f"{test.name} cannot be asked with {test.relation!r}; it can with {', '.join(there)}")
    values: dict[ValueKind, tuple[Value, ...]] = {}
    wrong: QueryError | None = None
    for kind in kinds:
        try:
            values[kind] = tuple(_value(word, kind, test.relation, utc) for word in test.values)
        except QueryError as error:
            wrong = error
    if not values and wrong is not None:
        raise QueryError(f"{test.name}: {wrong}")
    places = tuple(place for place in found.places if place.kind in values)
    return Condition(FilterColumn(found.name, places), test.relation, values)


def _value(word: str | Moment, kind: ValueKind, relation: str, utc: bool) -> Value:
    if isinstance(word, Moment):
        return word
    if any("\ud800" <= c <= "\udfff" for c in word):  # what a shell gave that is no text
        raise QueryError(f"{word!r} is no UTF-8; other bytes are written as 0xff")
    if relation == "matches":
        checked_pattern(word)
        return f"(?i){word}" if kind is ValueKind.WORD else word
    return value(word, kind, utc)


def _conditions(bound: Bound) -> Iterator[Condition]:
    if isinstance(bound, Condition):
        yield bound
    else:
        for part in bound.parts:
            yield from _conditions(part)


def _protocols(bound: Bound) -> frozenset[str] | None:
    """The protocols of whose messages a condition can be true, None for all."""
    if isinstance(bound, Condition):
        if bound.column.name == "protocol" and bound.relation in ("==", "in"):
            return frozenset(str(v) for v in bound.values[ValueKind.WORD])
        tables = frozenset(place.table for place in bound.column.places)
        return None if tables & {"messages", "exchanges"} else tables
    each = [_protocols(part) for part in bound.parts]
    known = [some for some in each if some is not None]
    if bound.word == "and":
        return frozenset.intersection(*known) if known else None
    return frozenset().union(*known) if bound.word == "or" and len(known) == len(each) else None
