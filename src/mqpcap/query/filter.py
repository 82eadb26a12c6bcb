"""A parsed filter: the rows it selects, the columns it needs, the protocols and connections it can match."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import true_mask
from mqpcap.errors import MisuseError, QueryError
from mqpcap.query import evaluation, grammar, prefilter
from mqpcap.query.evaluation import BoundFilter, Condition, FilterInput, checked_pattern
from mqpcap.query.filter_columns import ColumnSource, FilterColumn, bodies, column, names, numbers_by_name
from mqpcap.query.grammar import Comparison, Logic, Tree
from mqpcap.query.values import Moment, Value, ValueKind, value
from mqpcap.query.wireshark_names import columns_test
from mqpcap.tcp.exclusion import ConnectionTest

_CONNECTION_COLUMNS = {"connection_id", "direction", "protocol", "client", "server"}
_CONNECTION_COLUMNS |= {f"{end}_{column}" for end in ("client", "server", "src", "dst") for column in ("ip", "port")}


@dataclass(frozen=True)
class Query:
    """A parsed filter."""

    tree: BoundFilter

    def mask(self, rows: FilterInput, first_ns: int = 0) -> pa.BooleanArray:
        """Whether each row is selected; null where that is unknown.

        ``first_ns``: the time of the capture's first packet. Times of day and ``+30s`` refer to it.
        """
        return evaluation.mask(self.tree, rows, first_ns)

    def selects(self, rows: FilterInput, first_ns: int = 0) -> NDArray[np.bool_]:
        """Whether each row is selected; False where that is unknown."""
        return true_mask(self.mask(rows, first_ns))

    def __and__(self, second: "Query") -> "Query":
        return Query(Logic("and", tuple(part.tree for part in (*self.parts, *second.parts))))

    @property
    def parts(self) -> "tuple[Query, ...]":
        """The filters that must all be true."""
        return tuple(map(Query, evaluation.and_parts(self.tree)))

    @property
    def conditions(self) -> Iterator[Condition]:
        """All conditions, at any depth."""
        return _conditions(self.tree)

    @cached_property
    def _sources(self) -> tuple[ColumnSource, ...]:
        return tuple(source for condition in self.conditions for source in condition.column.sources)

    def fields(self, protocol: str) -> frozenset[str]:
        """The columns of a protocol's table that the filter needs."""
        return frozenset(source.path[0] for source in self._sources if source.table == protocol)

    @cached_property
    def needs_exchanges(self) -> bool:
        """Whether the filter needs exchanges."""
        return any(source.table == "exchanges" for source in self._sources)

    @property
    def needs_endpoints_only(self) -> bool:
        """Whether the filter needs only columns that are also known of a connection (`_CONNECTION_COLUMNS`)."""
        return all(source.table == "messages" and source.path[0] in _CONNECTION_COLUMNS for source in self._sources)

    @property
    def connections(self) -> ConnectionTest | None:
        """A test for the connections that can match, for ``Options.connections``; None if all can."""
        return prefilter.connection_test(self.tree)

    @property
    def until(self) -> Callable[[int], int | None] | None:
        """The end of the matching time range, for ``Options.until``; None without a bound or with exchanges."""
        return None if self.needs_exchanges else prefilter.until(self.tree)

    @property
    def needs_bodies(self) -> bool:
        """Whether the filter needs user payload."""
        field_sources = (source for source in self._sources if source.table not in ("messages", "exchanges"))
        return any((source.path, source.kind) in bodies(source.table) for source in field_sources)

    def check_bodies(self, kept_bytes: int | None) -> None:
        """Raises MisuseError if the filter needs user payload, and bodies are cut to a length (None: whole bodies)."""
        if self.needs_bodies and kept_bytes is not None:
            raise MisuseError("--grep and filters on bodies need whole bodies: leave --bodies out")

    @property
    def needs_end(self) -> bool:
        """Whether a time counts from the end of the capture, so that `ending` must come first."""
        values = (value for condition in self.conditions for value in condition.values.get(ValueKind.TIME, ()))
        return any(isinstance(value, Moment) and value.origin == "end" for value in values)

    def ending(self, last_ns: int) -> "Query":
        """The same filter of a capture whose last packet has the time ``last_ns``."""
        return Query(_ending(self.tree, last_ns)) if self.needs_end else self

    @cached_property
    def protocols(self) -> frozenset[str] | None:
        """The protocols whose messages can match; None for all."""
        return _protocols(self.tree)


EVERYTHING = Query(Logic("and", ()))
"""The filter that selects every message."""


def query(text: str, utc: bool = False) -> Query:
    """Parses a filter; raises QueryError. ``utc``: times without a zone are UTC, else local.

    >>> query('op == "PUBLISH" and latency > 50ms').needs_exchanges
    True
    """
    return of_tree(grammar.parsed(text), utc)


def of_tree(tree: Tree, utc: bool = False) -> Query:
    """Resolves the names and values of a tree of comparisons; raises QueryError."""
    return Query(_bind(tree, utc))


def _bind(tree: Tree, utc: bool) -> BoundFilter:
    if isinstance(tree, Comparison):
        tree = columns_test(tree)
    if isinstance(tree, Comparison):
        return _condition(tree, utc)
    parts = [_bind(part, utc) for part in tree.parts]
    return Logic(tree.word, tuple(_alternatives(parts) if tree.word == "or" else parts))


def _ending(tree: BoundFilter, last_ns: int) -> BoundFilter:
    if not isinstance(tree, Condition):
        return Logic(tree.word, tuple(_ending(part, last_ns) for part in tree.parts))
    times = [
        Moment("epoch", last_ns, value.utc, value.ns + value.later_ns)
        if isinstance(value, Moment) and value.origin == "end"
        else value
        for value in tree.values.get(ValueKind.TIME, ())
    ]
    values = {**tree.values, ValueKind.TIME: tuple(times)} if times else tree.values
    return Condition(tree.column, tree.relation, values)


def _alternatives(parts: Sequence[BoundFilter]) -> list[BoundFilter]:
    """Merges the alternatives ``==`` and ``in`` of a column into a single condition: one pass over the rows."""
    values: dict[FilterColumn, dict[ValueKind, list[Value]]] = {}
    other_parts: list[BoundFilter] = []
    for part in parts:
        if not isinstance(part, Condition) or part.relation not in ("==", "in"):
            other_parts.append(part)
            continue
        column_values = values.setdefault(part.column, {})
        for kind, kind_values in part.values.items():
            column_values.setdefault(kind, []).extend(kind_values)
    merged = [Condition(x, "in", {kind: tuple(y) for kind, y in by_kind.items()}) for x, by_kind in values.items()]
    return [*merged, *other_parts]


def _condition(test: Comparison, utc: bool) -> Condition:
    tested, relations_by_kind = column(test.name), evaluation.RELATIONS_BY_KIND
    if test.relation in ("is", "exists"):
        return Condition(tested, test.relation if ValueKind.TRUTH in tested.kinds else "exists", {})
    kinds = [kind for kind in tested.kinds if test.relation in relations_by_kind[kind]]
    if not kinds:
        relations = sorted({relation for kind in tested.kinds for relation in relations_by_kind[kind]})
        raise QueryError(f"{test.name} cannot be asked with {test.relation!r}; it can with {', '.join(relations)}")
    values: dict[ValueKind, tuple[Value, ...]] = {}
    last_error: QueryError | None = None
    numbers = numbers_by_name(tested)
    for kind in kinds:
        words = test.values
        if kind is ValueKind.INTEGER:
            words = tuple(numbers.get(word.lower(), word) if isinstance(word, str) else word for word in words)
        try:
            values[kind] = tuple(_value(word, kind, test.relation, utc) for word in words)
        except QueryError as error:
            last_error = error
    if not values and last_error is not None:
        named = f"{test.name}_name"
        raise QueryError(f"{test.name}: {last_error}" + (f"; names are in {named}" if named in names() else ""))
    sources = tuple(source for source in tested.sources if source.kind in values)
    return Condition(FilterColumn(tested.name, sources), test.relation, values)


def _value(word: str | Moment, kind: ValueKind, relation: str, utc: bool) -> Value:
    if isinstance(word, Moment):
        return word
    if any("\ud800" <= character <= "\udfff" for character in word):  # bytes from a shell that are not UTF-8
        raise QueryError(f"{word!r} is no UTF-8; other bytes are written as 0xff")
    if relation == "matches":
        checked_pattern(word)
        return f"(?i){word}" if kind is ValueKind.WORD else word
    return value(word, kind, utc)


def _conditions(tree: BoundFilter) -> Iterator[Condition]:
    if isinstance(tree, Condition):
        yield tree
    else:
        for part in tree.parts:
            yield from _conditions(part)


def _protocols(tree: BoundFilter) -> frozenset[str] | None:
    """The protocols whose messages can match a tree; None for all."""
    if isinstance(tree, Condition):
        if tree.column.name == "protocol" and tree.relation in ("==", "in"):
            return frozenset(str(v) for v in tree.values[ValueKind.WORD])
        tables = frozenset(source.table for source in tree.column.sources)
        return None if tables & {"messages", "exchanges"} else tables
    part_protocols = [_protocols(part) for part in tree.parts]
    limited = [protocols for protocols in part_protocols if protocols is not None]
    if tree.word == "and":
        return frozenset.intersection(*limited) if limited else None
    return frozenset().union(*limited) if tree.word == "or" and len(limited) == len(part_protocols) else None
