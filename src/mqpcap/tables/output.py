"""Rows that are final, as the pipeline emits them, and the tables that they make in memory.

In: rows of one table at a time. Out: tables by name. Called by: ``pipeline`` and all that read captures.
"""

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import (
    append_columns,
    constant,
    dictionary,
    file_text,
    is_in,
    single_array,
    true_mask,
    without_dictionary,
)
from mqpcap.records import dataclass
from mqpcap.schema.protocol import MessageQueue, other_direction
from mqpcap.tables.schemas import TABLES, protocol_schema


@dataclass(frozen=True, slots=True)
class Output:
    """Final rows of one table. For ``messages``, ``fields`` has the protocol table's rows in the same order."""

    table: str
    rows: pa.Table
    protocol: str | None = None
    fields: pa.Table | None = None


Emit = Callable[[Output], None]
Carried: TypeAlias = tuple[str, str]
"""A table, ``messages`` or that of a protocol, and a column of it that pairs carry."""
CarriedByDeliveries: TypeAlias = tuple[Literal["publish", "deliver", "request"], str, str]
"""A message of a delivery (``request``: what the delivery answers), and a column as in `Carried`.

Rows of ``deliveries`` have it as ``END.TABLE.COLUMN``."""
End = Literal["request", "reply"]
SELECTED = "selected"
"""The column that pairs carry of messages which a filter selects."""
_OF_PAIRS = ("capture", "connection_id", "protocol")
_OF_ENDS = {"stream_offset": "offset", "ts_ns": "ts_ns", "first_packet": "packet"}


def of_messages(*names: str) -> frozenset[Carried]:
    """Columns of ``messages``."""
    return frozenset(("messages", name) for name in names)


KNOWN_OF_ENDS = of_messages(*_OF_PAIRS, *_OF_ENDS, "direction", "src_ip", "dst_ip", "src_port", "dst_port")
"""Columns that `end_rows` reads of the columns of ``exchanges``."""


def with_capture(table: str, rows: pa.Table, capture: str) -> pa.Table:
    """Rows of a table with the name of their capture, and the columns in the order of the table."""
    schema, columns = TABLES[table], rows.append_column("capture", constant(file_text(capture), rows.num_rows))
    named = pa.table({name: columns[name] for name in schema.names}).cast(schema)
    return append_columns(named, {name: rows[name] for name in rows.column_names if name not in schema.names})


def carried_columns(messages: Output, protocol: MessageQueue, carried: Iterable[Carried]) -> dict[str, pa.Array]:
    """The columns that pairs carry of these messages, by ``TABLE.COLUMN``; those of other protocols are left out."""
    columns = {}
    for table, name in carried:
        rows = messages.rows if table == "messages" else messages.fields
        if rows is not None and name in rows.column_names and table in ("messages", protocol.name):
            columns[f"{table}.{name}"] = single_array(rows[name])
        elif table == protocol.name:  # no message of the batch has a value
            columns[f"{table}.{name}"] = pa.nulls(messages.rows.num_rows, protocol_schema(protocol).field(name).type)
    return columns


def has_end(exchanges: pa.Table, end: End) -> NDArray[np.bool_]:
    """Whether exchanges have a request or a reply that counts: that is selected, where a filter selects messages."""
    is_there = exchanges[f"{end}_offset"].is_valid()
    name = f"{end}.{SELECTED}"
    return true_mask(pc.and_(is_there, exchanges[name]) if name in exchanges.column_names else is_there)


def end_rows(exchanges: pa.Table, end: End) -> Output:
    """The requests or the replies of exchanges, row for row: what rows of exchanges have of them, and carry."""
    directions = dictionary(exchanges["request_direction"])
    if end == "reply":
        others = pa.array(map(other_direction, directions.dictionary.to_pylist()), pa.string())
        directions = pa.DictionaryArray.from_arrays(directions.indices, others)
    columns = {name: exchanges[name] for name in _OF_PAIRS} | {"direction": directions}
    columns |= {name: exchanges[f"{end}_{of}"] for name, of in _OF_ENDS.items()}
    from_client = is_in(directions, "c2s")
    for part in ("ip", "port"):
        client, server = (single_array(exchanges[f"{side}_{part}"]) for side in ("client", "server"))
        columns |= {f"src_{part}": _either(from_client, client, server)}
        columns |= {f"dst_{part}": _either(~from_client, client, server)}
    protocol = exchanges["protocol"][0].as_py()
    rows, fields = (
        {x.removeprefix(start): exchanges[x] for x in exchanges.column_names if x.startswith(start)}
        for start in (f"{end}.messages.", f"{end}.{protocol}.")
    )
    return Output("messages", pa.table(columns | rows), protocol, pa.table(fields or {"op": columns["protocol"]}))


def _either(is_first: NDArray[np.bool_], first: pa.Array, second: pa.Array) -> pa.Array:
    """The first column for some rows, the second for the others."""
    if is_first.all() or not is_first.any():
        return first if is_first.all() else second
    return pc.if_else(pa.array(is_first), without_dictionary(first), without_dictionary(second))


class NamedTables:
    """The common tables as attributes, for a class that has tables by name."""

    def table(self, name: str) -> pa.Table:
        """A table by its name."""
        raise NotImplementedError

    @property
    def messages(self) -> pa.Table:
        """One row per message of any protocol."""
        return self.table("messages")

    @property
    def exchanges(self) -> pa.Table:
        """One row per request, and per reply without a request."""
        return self.table("exchanges")

    @property
    def deliveries(self) -> pa.Table:
        """One row per delivery whose publish was captured."""
        return self.table("deliveries")

    @property
    def connections(self) -> pa.Table:
        """One row per TCP connection."""
        return self.table("connections")

    @property
    def problems(self) -> pa.Table:
        """One row per range of a stream that did not become a message."""
        return self.table("problems")

    @property
    def captures(self) -> pa.Table:
        """One row per file."""
        return self.table("captures")
