"""Lists every name that filters, ``--fields`` and ``--by`` take, and every column of the tables.

In: the schemas of the tables, whose metadata has meanings, units and values, and the names of `filter_columns`. Out:
`Field`. Called by: ``mqpcap fields``, the call ``mqpcap.fields``, and the page FIELDS.md.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache

import pyarrow as pa

from mqpcap.errors import QueryError
from mqpcap.protocols import protocols
from mqpcap.query.filter_columns import ALIASES, PAYLOAD, RELATIVE_TIME, STREAM, TIME_SINCE_LINE, column
from mqpcap.tables.schemas import (
    CAPTURES,
    CONNECTIONS,
    DELIVERIES,
    EXCHANGES,
    KEYS,
    MESSAGES,
    PROBLEMS,
    plain,
    protocol_schema,
)

TABLES = {
    "messages": MESSAGES, "exchanges": EXCHANGES, "deliveries": DELIVERIES, "connections": CONNECTIONS,
    "problems": PROBLEMS, "captures": CAPTURES,
}  # fmt: skip
COMPUTED = (
    ("client", "string", "address and port of the client"),
    ("client_ip", "string", "address of the client"),
    ("client_port", "int32", "port of the client"),
    ("server", "string", "address and port of the server"),
    ("server_ip", "string", "address of the server"),
    ("server_port", "int32", "port of the server"),
    ("connection", "string", "short name of the connection, for example c7, by its first packet"),
    (STREAM, "int64", "number of the connection from 0, as Wireshark counts: c7 is 6"),
    ("is_request", "bool", "whether the message is a request with a row in exchanges"),
    ("is_reply", "bool", "whether the message is a reply with a row in exchanges"),
    (RELATIVE_TIME, "string", "seconds since the first packet; not with --by"),
    (TIME_SINCE_LINE, "string", "seconds since the line before; with --fields only"),
    (PAYLOAD, "binary", "user payload in any protocol: the fields that --bodies acts on"),
)
"""Names of messages that are no columns of a table, with types and meanings."""


@dataclass(frozen=True, slots=True)
class Field:
    """A name and what it stands for.

    name          as filters, ``--fields`` and ``--by`` take it; of other tables the column
    table         the table with the column; ``message`` for values that are computed for each message
    in_filters    whether filters, ``--fields`` and ``--by`` take it
    """

    name: str
    table: str
    type: str
    unit: str | None
    values: tuple[str, ...]
    meaning: str
    aliases: tuple[str, ...]
    in_filters: bool

    def as_json(self) -> dict[str, object]:
        """The object that ``fields --json`` writes."""
        return asdict(self)


NAME_WIDTH = 26
"""Columns of the names that people are shown."""


class Fields(tuple[Field, ...]):
    """Fields, in the order of their tables."""

    __slots__ = ()

    def lines(self, width: int = 100) -> Iterator[str]:
        """The fields for people, below the names of their tables."""
        table = ""
        for field in self:
            if field.table != table:
                yield from [""] if table else []
                yield f"{field.table}{'' if field.in_filters else ' (columns of the table)'}"
                table = field.table
            notes = [field.meaning, f"in {field.unit}" if field.unit else ""]
            notes += [f"values: {', '.join(field.values)}" if field.values else ""]
            notes += [f"also {', '.join(field.aliases)}" if field.aliases else ""]
            kind = field.type if len(field.type) <= 18 else field.type.split("<")[0]
            head = f"  {field.name:<{NAME_WIDTH}} {kind:<18} "
            text = "; ".join(filter(None, notes)) or "-"
            yield textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * (NAME_WIDTH + 22))


def fields(name: str | None = None) -> Fields:
    """Every name, or those of a table or protocol; raises QueryError for another word.

    >>> [field.meaning for field in fields("messages") if field.name == "op"]
    ['name of the operation; null if unknown']
    """
    groups = dict(_groups())
    if name is None:
        return Fields(field for group in groups.values() for field in group)
    if name.lower() not in groups:
        raise QueryError(f"{name!r} is no table and no protocol; there are {', '.join(groups)}")
    return Fields(groups[name.lower()])


@cache
def _groups() -> Sequence[tuple[str, Sequence[Field]]]:
    computed = [
        Field(name, "message", type_, None, (), meaning, (), name != TIME_SINCE_LINE)
        for name, type_, meaning in COMPUTED
    ]
    tables = [(table, list(_of_schema(table, schema))) for table, schema in TABLES.items()]
    of_protocols = [
        (name, list(_of_schema(name, plain(protocol_schema(protocol)), prefix=f"{name}.")))
        for name, protocol in protocols().items()
    ]
    return [("message", computed), *tables, *of_protocols]


def _of_schema(table: str, schema: pa.Schema, prefix: str = "") -> Iterator[Field]:
    for field in schema:
        if prefix and field.name in KEYS:
            continue
        metadata = {key.decode(): text.decode() for key, text in (field.metadata or {}).items()}
        unit, values = metadata.get("unit"), metadata.get("values")
        meaning = metadata.get("comment", "")
        meaning = meaning.removesuffix(f"; values: {values}") if values else meaning
        meaning = meaning.removesuffix(f"; in {unit}") if unit else meaning
        name = prefix + field.name
        aliases = [x for x in _aliases(name) if table in {source.table for source in column(x).sources}]
        # A name of a number may have commas, as that of two flags: `273 peer, permanent`.
        between = r", (?=\d+ )" if values and values[0].isdigit() else ", "
        listed_values = tuple(re.split(between, values)) if values else ()
        type_name, is_taken = _type_name(field.type), _is_taken(table, name)
        yield Field(name, table, type_name, unit, listed_values, meaning, tuple(aliases), is_taken)
        for path, type_ in _leaves(name, field.type):
            yield Field(path, table, _type_name(type_), None, (), f"of each element of {field.name}", (), bool(prefix))


def _aliases(name: str) -> Iterator[str]:
    computed = {computed for computed, *_ in COMPUTED}
    return (alias for alias, target in ALIASES.items() if target == name and alias not in computed)


def _type_name(type_: pa.DataType) -> str:
    return str(type_).replace(", tz=UTC]", ", UTC]")


def _leaves(name: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The fields of the structs in a column, at any depth."""
    while pa.types.is_list(type_):
        type_ = type_.value_type
    for field in type_ if pa.types.is_struct(type_) else ():
        path, inner = f"{name}.{field.name}", list(_leaves(f"{name}.{field.name}", field.type))
        yield from inner or [(path, field.type)]


def _is_taken(table: str, name: str) -> bool:
    """Whether a filter takes a column of a table under this name."""
    try:
        return table in {source.table for source in column(name).sources}
    except QueryError:
        return False
