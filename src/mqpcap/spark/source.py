"""``spark.read.format("mqpcap")``: the tables of captures as DataFrames.

A partition is a capture, a share of a large capture, or several small captures. The pipeline of ``mqpcap export`` reads
it, and Spark gets Arrow batches. Rows are those of the export, whatever the partitions.

README.md in this directory lists the options. A file that disappears while it is read is an error in every mode.
A schema of your own selects columns by name, in its order. ``pushdown`` needs
``spark.sql.python.filterPushdown.enabled``, which `mqpcap.spark.register` sets.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from mqpcap.capture import Capture
from mqpcap.decode.detection import DecodeAs
from mqpcap.errors import CaptureError, QueryError
from mqpcap.pipeline import OPTIONAL_TABLES, Options
from mqpcap.protocols import protocols
from mqpcap.query import Comparison, FilterInput, Moment, Query, of_tree
from mqpcap.query.filter_columns import bodies
from mqpcap.spark import partitions, schemas, share, storage
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.share import NS, Share, SharedKnowledge
from mqpcap.spilled_rows import SpilledRows
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.schemas import KEYS

DEFAULT_SLOTS = 8
"""Task slots assumed when a large capture is split: a source cannot see the session."""
_OPTIONS = ("table", "decodeAs", "bodies", "showSecrets", "columns", "maxMemory", "mode")
_OF_BATCHES = ("pushdown", "shares")
_OF_STREAMS = ("maxFilesPerTrigger", "stateDir", "idleSeconds", "ignoreMissingFiles")
_ALL = {name.lower(): name for name in (*_OPTIONS, *_OF_BATCHES, *_OF_STREAMS)}
_OF_SPARK = frozenset({"path", "paths", "location", "owner", "provider", "comment"})
"""Options that Spark adds: paths, and properties of a catalog table (which repeat options with ``option.``)."""
_DECODE_AS = re.compile(r"tcp\.port\s*==\s*(\d{1,5})\s*,\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """The options, parsed."""

    inputs: tuple[str, ...]
    table: str
    options: Options
    columns: tuple[str, ...] | None
    permissive: bool
    pushdown: bool
    share_count: int | None
    state_dir: str
    idle_s: float
    max_files: int | None
    ignores_missing: bool


def reading(given: Mapping[str, str], allowed: Sequence[str] = tuple(_ALL.values())) -> Reading:
    """Parses the options; raises CaptureError that names the option that is wrong or not ``allowed``."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, allowed)
    table = options.get("table", "messages").lower()
    if table not in schemas.table_names():
        raise CaptureError(f"there is no table {table!r}{partitions.nearest_name(table, schemas.table_names())}")
    columns = tuple(name.strip() for name in options["columns"].split(",")) if options.get("columns") else None
    _check_columns(table, columns or ())
    mode, bodies = options.get("mode", "failfast").lower(), options.get("bodies", "full").lower()
    if mode not in ("failfast", "permissive"):
        raise CaptureError(f"option mode is failfast or permissive, not {options['mode']!r}")
    kept = None if bodies == "full" else 0 if bodies == "none" else int(_number(options, "bodies"))
    policy = RowPolicy(_flag(options, "showsecrets"), kept)
    memory_bytes = int(_number(options, "maxmemory", share.TASK_MEMORY_BYTES))
    return Reading(
        tuple(partitions.named_inputs(options)), table,
        Options(_decode_as(options.get("decodeas", "")), policy, memory_bytes), columns, mode == "permissive",
        _flag(options, "pushdown"), max(1, int(_number(options, "shares"))) if "shares" in options else None,
        options.get("statedir", ""), _number(options, "idleseconds", 60),
        max(1, int(_number(options, "maxfilespertrigger"))) if "maxfilespertrigger" in options else None,
        _flag(options, "ignoremissingfiles"),
    )  # fmt: skip


def _check_names(options: Mapping[str, str], allowed: Sequence[str]) -> None:
    for name in options:
        if name in _OF_SPARK or name.startswith("option."):
            continue
        if name not in _ALL:
            raise CaptureError(f"there is no option {name!r}{partitions.nearest_name(name, tuple(_ALL.values()))}")
        if _ALL[name] not in allowed:
            raise CaptureError(f"option {_ALL[name]} is for spark.read{'Stream' * (_ALL[name] in _OF_STREAMS)} only")


def _check_columns(table: str, names: Sequence[str]) -> None:
    column_names = schemas.table_schema(table).names
    for name in names:
        if name not in column_names:
            raise CaptureError(f"table {table} has no column {name!r}{partitions.nearest_name(name, column_names)}")


def _flag(options: Mapping[str, str], name: str) -> bool:
    word = options.get(name, "false").lower()
    if word not in ("true", "false"):
        raise CaptureError(f"option {_ALL[name]} is true or false, not {word!r}")
    return word == "true"


def _number(options: Mapping[str, str], name: str, otherwise: float = 0) -> float:
    word = options.get(name, str(otherwise))
    if not re.fullmatch(r"\d+" + r"(\.\d+)?" * (name == "idleseconds"), word, re.ASCII):
        raise CaptureError(f"option {_ALL[name]} is a number, not {word!r}")
    return float(word)


def _decode_as(rules: str) -> tuple[DecodeAs, ...]:
    rules_read = []
    for rule in filter(None, (part.strip() for part in rules.split(";"))):
        match = _DECODE_AS.fullmatch(rule)
        if match is None or match[2].lower() not in protocols():
            raise CaptureError(f"{rule!r} is not a rule like tcp.port==9092,flymq")
        rules_read.append(DecodeAs(int(match[1]), match[2].lower()))
    return tuple(rules_read)


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
        """A reader of captures; with option ``pushdown``, a reader that takes filters."""
        asked = reading(self.options, (*_OPTIONS, *_OF_BATCHES))
        _check_columns(asked.table, schema.fieldNames())
        return (FilteringReader if asked.pushdown else CaptureReader)(asked, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of the finished files of a capture process."""
        from mqpcap.spark.streaming import CaptureStream

        asked = reading(self.options, (*_OPTIONS, *_OF_STREAMS))
        _check_columns(asked.table, schema.fieldNames())
        return CaptureStream(asked, schema)


class CaptureReader(DataSourceReader):
    """Reads one table of captures."""

    def __init__(self, asked: Reading, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema
        self.needs = share.table_needs(asked.table)
        self.query: Query | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """A partition per unit of work; raises CaptureError as `partitions.check_readable` does, before any work."""
        search = storage.captures(self.asked.inputs)
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

    def _share(
        self, unit: WorkUnit, capture: Capture, options: Options, knowledge: SharedKnowledge | None = None
    ) -> Share:
        return Share(capture, options, lambda output: None, knowledge, self.needs, unit.number, unit.plan)

    def _rows(self, share_pipeline: Share) -> Iterator[pa.Table]:
        for rows in share_pipeline.rows(self.asked.table):
            if self.query is None or self.asked.table == "connections":
                yield rows
            else:
                yield rows.filter(self.query.mask(FilterInput(self.asked.table, rows, rows)))

    def _policy(self) -> RowPolicy:
        """The policy of the options; without bodies if no selected column has one."""
        table, policy = self.asked.table, self.asked.options.policy
        held = {path[0] for path, _ in bodies(table)} if table in protocols() else set()
        return replace(policy, bodies=0) if held.isdisjoint(self.schema.fieldNames()) else policy


class FilteringReader(CaptureReader):
    """A reader that applies filters to packets.

    Spark gets all filters back and applies them, too. Here they only save work.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Returns every filter to Spark; also uses those that it understands."""
        names = _ENDS if self.asked.table == "connections" else _ENDS | {"ts", "ts_ns", "op", "protocol"}
        if self.asked.table in ("messages", "connections", *protocols()):
            columns = KEYS if self.asked.table in protocols() else schemas.table_schema(self.asked.table).names
            for test in (
                test for spark_filter in filters for test in _tests(spark_filter, names.intersection(columns))
            ):
                with suppress(QueryError):
                    self._select(test)
        yield from filters

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
