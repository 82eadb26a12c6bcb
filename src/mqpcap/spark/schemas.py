"""The tables' columns, and what Spark takes of Arrow.

The tables have only types that Spark takes; of what it asks beside them (no dictionaries, list items named ``element``)
its own schema tells, to which `batches` casts.
"""

from collections.abc import Iterator
from functools import cache

import pyarrow as pa

from mqpcap.decode.columns import column_type
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled
from mqpcap.tables import schemas as tables

BATCH_ROW_COUNT = 32_768
BATCH_BYTES = 16 << 20
"""A batch for Spark ends at whichever is reached first."""
COMMON = tables.TABLES | {"messages": tables.MESSAGES, "exchanges": tables.EXCHANGES}


def table_names() -> tuple[str, ...]:
    """Every table there can be."""
    return (*COMMON, *protocols())


@cache
def table_schema(table: str) -> pa.Schema:
    """The columns of a table as `mqpcap export` writes them; KeyError for a table there is none of."""
    if table in COMMON:
        return COMMON[table]
    program = compiled(protocols()[table])
    types = {c.name: column_type(program, i) for i, c in enumerate(program.columns) if c.parent < 0 and not c.hidden}
    types |= {derived.name: derived.type for derived in protocols()[table].derived if not derived.hidden}
    return pa.schema([*(tables.MESSAGES.field(key) for key in tables.KEYS), *types.items()])


def batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The table's rows with the columns of ``schema``, in batches of a size that Spark takes well."""
    chosen = table.select(schema.names).cast(schema)
    each = max(1, min(BATCH_ROW_COUNT, int(BATCH_BYTES / max(1, chosen.nbytes) * chosen.num_rows)))
    for at in range(0, chosen.num_rows, each):
        yield from chosen.slice(at, each).combine_chunks().to_batches()
