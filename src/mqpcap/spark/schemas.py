"""The tables' columns, and what Spark takes of Arrow.

`spark_safe` is the one place that knows Spark's limits: no unsigned integers, no dictionaries, no views or large
types, no nanoseconds, times in the zone written ``UTC``, every field nullable, list items named ``element``.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mqpcap.correlate.exchanges import DELIVERIES, EXCHANGES
from mqpcap.decode.columns import Reader, Spans, column_type
from mqpcap.decode.framing import Frames
from mqpcap.protocols import protocols
from mqpcap.tables import arrow as tables

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ROW_COUNT = 32_768
BATCH_BYTES = 16 << 20
"""A batch for Spark ends at whichever is reached first."""
COMMON = {
    "messages": tables.MESSAGES,
    "exchanges": EXCHANGES,
    "deliveries": DELIVERIES,
    "connections": tables.CONNECTIONS,
    "problems": tables.PROBLEMS,
}


def table_names() -> tuple[str, ...]:
    """Every table there can be."""
    return (*COMMON, *protocols())


@cache
def table_schema(table: str) -> pa.Schema:
    """The columns of a table as `mqpcap export` writes them; KeyError for a table there is none of."""
    return COMMON[table] if table in COMMON else _protocol_schema(table)


def _protocol_schema(name: str) -> pa.Schema:
    """The columns of a protocol's table: those of no rows at all."""
    protocol = protocols()[name]
    reader = Reader(protocol)
    buffer = np.zeros(1, np.uint8)
    none = np.empty(0, np.int64)
    spans = Spans(buffer, none, none, none.astype(np.int32), none, none.astype(np.uint8))
    frames = Frames(
        name, buffer, none, none, spans.layout, none, spans.flaw, none, none.astype(np.int8), none, none, none, none,
        none, none, none, none, none, none.astype(np.bool_),
    )  # fmt: skip
    records = reader.records(spans)
    rows = tables.waiting(protocol, reader.program, frames, records, np.empty(0, np.bool_), [""], tables.Policy())
    program = reader.program
    types = {c.name: column_type(program, i) for i, c in enumerate(program.columns) if c.parent < 0}
    types |= {derived.name: derived.type for derived in protocol.derived}
    names = [name[2:] for name in rows.column_names if name.startswith("f.")]
    return pa.schema([*(tables.MESSAGES.field(key) for key in tables.KEYS), *((name, types[name]) for name in names)])


def spark_safe(schema: pa.Schema) -> pa.Schema:
    """The nearest schema that Spark takes; casting to it loses nothing but the last three digits of nanoseconds."""
    return pa.schema([pa.field(field.name, safe_type(field.type)) for field in schema])


def safe_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark takes.

    >>> safe_type(pa.dictionary(pa.int32(), pa.large_string())), safe_type(pa.uint64())
    (DataType(string), Decimal128Type(decimal128(20, 0)))
    """
    if pa.types.is_dictionary(kind):
        return safe_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", safe_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, safe_type(field.type)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    return _SAFE.get(kind, pa.binary() if pa.types.is_fixed_size_binary(kind) else kind)


_SAFE: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}


def spark_schema(schema: pa.Schema) -> "StructType":
    """The same as Spark writes it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(spark_safe(schema))


def arrow_schema(schema: "StructType") -> pa.Schema:
    """The Arrow schema that Spark compares the first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    made: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return made


def batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The table's rows with the columns of ``schema``, in batches of a size that Spark takes well.

    Columns that the table has not are null.
    """
    row_count = table.num_rows
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(row_count, field.type)
        for field in schema
    ]
    chosen = pa.Table.from_arrays(columns, schema=schema)
    each = max(1, min(BATCH_ROW_COUNT, int(BATCH_BYTES / max(1, chosen.nbytes) * max(1, row_count))))
    for at in range(0, row_count, each):
        part = chosen.slice(at, each).combine_chunks()
        yield from part.to_batches()
