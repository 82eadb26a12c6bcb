"""The tables' columns, and what Spark takes of Arrow.

`spark_safe` is the one place that knows Spark's limits: no unsigned integers, no dictionaries, no views or large
types, no nanoseconds, times in the zone written ``UTC``, every field nullable, list items named ``element``.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from mqpcap.decode.columns import column_type
from mqpcap.protocols import protocols
from mqpcap.schema.compiler import compiled
from mqpcap.tables import schemas as tables

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ROW_COUNT = 32_768
BATCH_BYTES = 16 << 20
"""A batch for Spark ends at whichever is reached first."""
COMMON = {
    "messages": tables.MESSAGES,
    "exchanges": tables.EXCHANGES,
    "deliveries": tables.DELIVERIES,
    "connections": tables.CONNECTIONS,
    "problems": tables.PROBLEMS,
    "captures": tables.CAPTURES,
}


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


@cache
def body_columns(table: str) -> frozenset[str]:
    """The columns of a table that hold what users sent, lists of them among others."""
    if table in COMMON:
        return frozenset()
    program = compiled(protocols()[table])
    names = {derived.name for derived in protocols()[table].derived if derived.body}
    for column in program.columns:
        if column.body:
            while column.parent >= 0:
                column = program.columns[column.parent]
            names.add(column.name)
    return frozenset(names)


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
