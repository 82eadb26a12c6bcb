"""The columns of the tables, as Arrow schemas that Spark accepts.

The tables have only types that Spark knows. Spark also wants no dictionaries, and list items named ``element``:
`batches` casts to the schema that Spark itself derives.
"""

from collections.abc import Iterator

import pyarrow as pa

from mqpcap.protocols import protocols
from mqpcap.tables import schemas as tables

BATCH_ROW_COUNT = 32_768
BATCH_BYTES = 16 << 20
"""A batch for Spark ends when it has BATCH_ROW_COUNT rows or BATCH_BYTES bytes."""
COMMON = tables.TABLES | {"messages": tables.MESSAGES, "exchanges": tables.EXCHANGES}


def table_names() -> tuple[str, ...]:
    """The names of all tables."""
    return (*COMMON, *protocols())


def table_schema(table: str) -> pa.Schema:
    """The columns of a table as `mqpcap export` writes them; raises KeyError for an unknown table."""
    if table in COMMON:
        return COMMON[table]
    return tables.plain(tables.protocol_schema(protocols()[table]))


def batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The table's rows with the columns of ``schema``, in batches for Spark."""
    chosen = table.select(schema.names).cast(schema)
    each = max(1, min(BATCH_ROW_COUNT, int(BATCH_BYTES / max(1, chosen.nbytes) * chosen.num_rows)))
    for start in range(0, chosen.num_rows, each):
        yield from chosen.slice(start, each).combine_chunks().to_batches()
