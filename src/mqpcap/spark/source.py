"""``spark.read.format("mqpcap")``: the tables of captures as DataFrames.

A partition is a capture, a share of a large capture, or several small captures. The pipeline of ``mqpcap export`` reads
it, and Spark gets Arrow batches. Rows are those of the export, whatever the partitions.

README.md in this directory lists the options. A file that disappears while it is read is an error in every mode.
A schema of your own selects columns by name, in its order. Filters are taken where Spark gives them to Python sources:
``spark.sql.python.filterPushdown.enabled``, which is off unless the user sets it. Spark 4.3 keeps the filters of one
query for all later uses of the same DataFrame (``PythonDataSourceV2.setReadInfo``), so that rows are missing there.
"""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from mqpcap.capture import Capture, captures
from mqpcap.errors import CaptureError, QueryError
from mqpcap.options import OPTIONAL_TABLES, Options
from mqpcap.protocols import protocols
from mqpcap.query import Comparison, Moment, Query, of_tree
from mqpcap.query.filter_columns import bodies
from mqpcap.spark import partitions, schemas, share
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.reading_options import Reading, check_columns, reading
from mqpcap.spark.share import NS, Share, SharedKnowledge
from mqpcap.spilled_rows import SpilledRows
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.schemas import KEYS

DEFAULT_SLOTS = 8
"""Task slots assumed when a large capture is split: a source cannot see the session."""


def spark_schema(schema: pa.Schema) -> StructType:
    """A table's columns for Spark, each with its meaning as its comment."""
    columns = zip(from_arrow_schema(schema), schema, strict=True)
    return StructType([StructField(c.name, c.dataType, c.nullable, _texts(field)) for c, field in columns])


def _texts(field: pa.Field) -> dict[str, str]:
    return {key.decode(): text.decode() for key, text in (field.metadata or {}).items()}


class CaptureSource(DataSource):
    """The format ``mqpcap``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "mqpcap"

    def schema(self) -> StructType:
        """The columns of the table, or the columns that option ``columns`` names."""
        asked = reading(self.options)
        schema = schemas.table_schema(asked.table)
        if asked.columns is not None:
            schema = pa.schema([schema.field(name) for name in asked.columns])
        return spark_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of captures."""
        asked = reading(self.options)
        check_columns(asked.table, schema.fieldNames())
        return CaptureReader(asked, schema)


class _PushFilters:
    """The reader's method that takes filters, which Spark takes for the base class's own.

    Spark refuses a reader with a method of its own while filters are off, which is its default.
    """

    def __init__(self, reader: "CaptureReader") -> None:
        self.reader, self.__func__ = reader, DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterator[Filter]:
        return self.reader.take_filters(filters)


class CaptureReader(DataSourceReader):
    """Reads one table of captures."""

    @property
    def pushFilters(self) -> _PushFilters:
        """Takes filters, if Spark gives some."""
        return _PushFilters(self)

    def __init__(self, asked: Reading, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema
        self.needs = share.table_needs(asked.table)
        self.query: Query | None = None
        self.mask: pc.Expression | None = None
        """The filters that Spark does not apply itself."""

    def partitions(self) -> Sequence[InputPartition]:
        """A partition per unit of work; raises CaptureError as `partitions.check_readable` does, before any work."""
        search = captures(self.asked.inputs)
        partitions.check_readable(search.unreadable, self.asked.permissive)
        if not search.captures:
            raise CaptureError("none of the inputs can be read")
        share_count = self.asked.share_count
        if self.asked.table in ("deliveries", "captures"):
            share_count = 1  # depends on all connections
        return [InputPartition(unit) for unit in partitions.plan_units(search.captures, DEFAULT_SLOTS, share_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one unit, in batches."""
        unit: WorkUnit = partition.value
        tables = OPTIONAL_TABLES & {self.asked.table}
        options = replace(self.asked.options, policy=self._policy(), optional_tables=tables)
        if self.query is not None:
            options = replace(options, connections=self.query.connections, until=self.query.until)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for _, capture in unit.captures:
            share_pipeline = self._share(unit, capture, options)
            tables_read = self._rows(share_pipeline)
            if not share_pipeline.is_whole:
                # Rows are buffered until it is clear that no other share changes them.
                waiting = SpilledRows(schema)
                for rows in tables_read:
                    waiting.append(rows.select(schema.names).cast(schema))
                tables_read = iter([waiting.table()])
                knowledge = (
                    share.collect_knowledge(capture, self.asked.options)
                    if share_pipeline.missing_servers or share_pipeline.lookup_keys
                    else SharedKnowledge()
                )
                if knowledge.minus(share.knowledge_of(share_pipeline.pipeline.stages)).is_relevant(
                    share_pipeline.missing_servers, share_pipeline.lookup_keys
                ):
                    tables_read = self._rows(self._share(unit, capture, options, knowledge))
            for rows in tables_read:
                yield from schemas.batches(rows, schema)
            if capture.notes and not self.asked.permissive:
                raise CaptureError(f"{capture.notes[0]}; option mode=permissive reads the packets before")

    def _share(
        self, unit: WorkUnit, capture: Capture, options: Options, knowledge: SharedKnowledge | None = None
    ) -> Share:
        return Share(capture, options, lambda output: None, knowledge, self.needs, unit.number, unit.plan)

    def _rows(self, share_pipeline: Share) -> Iterator[pa.Table]:
        for rows in share_pipeline.rows(self.asked.table):
            yield rows if self.mask is None else rows.filter(self.mask)

    def _policy(self) -> RowPolicy:
        """The policy of the options; without bodies if no selected column has one."""
        table, policy = self.asked.table, self.asked.options.policy
        held = {path[0] for path, _ in bodies(table)} if table in protocols() else set()
        return replace(policy, bodies=0) if held.isdisjoint(self.schema.fieldNames()) else policy

    def take_filters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Takes the filters that it can apply exactly, and returns all others; ends and times also spare work."""
        table = self.asked.table
        schema = schemas.table_schema(table)
        names = _ENDS if table == "connections" else _ENDS | {"ts", "ts_ns", "op", "protocol"}
        columns = KEYS if table in protocols() else schema.names
        for spark_filter in filters:
            expression = _expression(spark_filter, schema)
            if expression is None:
                yield spark_filter
                continue
            self.mask = expression if self.mask is None else self.mask & expression
            if table in ("messages", "connections", *protocols()):
                for test in _tests(spark_filter, names.intersection(columns)):
                    with suppress(QueryError):
                        self._select(test)

    def _select(self, test: Comparison) -> None:
        self.query = of_tree(test) if self.query is None else self.query & of_tree(test)
        if self.query.protocols is not None and self.asked.table == "messages":
            self.needs = replace(self.needs, protocols=self.query.protocols)
        if isinstance(moment := test.values[0], Moment):
            bound_ns = max(NS.min, min(moment.ns, NS.max))
            if test.relation == ">=":
                self.needs = replace(self.needs, from_ns=max(bound_ns, self.needs.from_ns))
            else:
                self.needs = replace(self.needs, until_ns=min(bound_ns, self.needs.until_ns))


_ENDS = frozenset(f"{end}_{part}" for end in ("src", "dst", "client", "server") for part in ("ip", "port"))
_RELATIONS: dict[type, str] = {
    EqualTo: "==", In: "in", GreaterThan: ">=", GreaterThanOrEqual: ">=", LessThan: "<=", LessThanOrEqual: "<=",
}  # fmt: skip
"""By filter of Spark: the relation that all rows it selects fulfil."""


_COMPARE: dict[type, Callable[[pc.Expression, Any], pc.Expression]] = {
    EqualTo: operator.eq, GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge, LessThan: operator.lt,
    LessThanOrEqual: operator.le, In: pc.Expression.isin,
}  # fmt: skip


def _expression(spark_filter: Filter, schema: pa.Schema) -> pc.Expression | None:
    """The filter for Arrow; None if the column or the kind of filter is not for it."""
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names or pa.types.is_nested(schema.field(path[0]).type):
        return None
    field, kind = pc.field(path[0]), schema.field(path[0]).type
    if isinstance(spark_filter, IsNull | IsNotNull):
        return field.is_null() if isinstance(spark_filter, IsNull) else field.is_valid()
    if type(spark_filter) not in _COMPARE or (value := spark_filter.value) is None:
        return None
    try:
        operand = pa.array(value, kind) if isinstance(spark_filter, In) else pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return _COMPARE[type(spark_filter)](field, operand)


def _tests(spark_filter: Filter, names: Collection[str]) -> Iterator[Comparison]:
    """Comparisons that hold for all rows that a filter selects; none for columns that are not in ``names``."""
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    relation, value = _RELATIONS.get(type(spark_filter)), getattr(spark_filter, "value", None)
    values: tuple[Any, ...] = tuple(spark_filter.value) if isinstance(spark_filter, In) else (value,)
    if relation is None or len(path) != 1 or path[0] not in names or None in values or not values:
        return
    if path[0] not in ("ts", "ts_ns"):
        if relation in ("==", "in"):
            yield Comparison(path[0], relation, tuple(map(str, values)))
        return
    # ts has microseconds: it covers 1,000 nanoseconds.
    times = [(_ns(x), _ns(x) + 999) if isinstance(x, datetime) else (int(x), int(x)) for x in values]
    if relation != "<=":
        yield Comparison("ts_ns", ">=", (Moment("epoch", min(low for low, _ in times)),))
    if relation != ">=":
        yield Comparison("ts_ns", "<=", (Moment("epoch", max(high for _, high in times)),))


def _ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exactly."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
