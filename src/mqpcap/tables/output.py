"""Rows that are final, as the pipeline emits them, and the tables that they make in memory.

In: rows of one table at a time. Out: tables by name. Called by: ``pipeline`` and all that read captures.
"""

from collections.abc import Callable

import pyarrow as pa

from mqpcap.arrays import constant, file_text
from mqpcap.records import dataclass
from mqpcap.tables.schemas import TABLES


@dataclass(frozen=True, slots=True)
class Output:
    """Final rows of one table. For ``messages``, ``fields`` has the protocol table's rows in the same order."""

    table: str
    rows: pa.Table
    protocol: str | None = None
    fields: pa.Table | None = None


Emit = Callable[[Output], None]


def with_capture(table: str, rows: pa.Table, capture: str) -> pa.Table:
    """Rows of a table with the name of their capture, and the columns in the order of the table."""
    schema, columns = TABLES[table], rows.append_column("capture", constant(file_text(capture), rows.num_rows))
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


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
