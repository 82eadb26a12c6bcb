"""``spark.read.format("mqpcap")``: the tables of captures as DataFrames.

A partition is a capture, a share of a large capture, or several small captures. The pipeline of ``mqpcap export`` reads
it, and Spark gets Arrow batches. Rows are those of the export, whatever the partitions.

README.md in this directory lists the options. A file that disappears while it is read is an error in every mode.
A schema of your own selects columns by name, in its order. Filters are left to Spark: Spark 4.3 would keep the filters
that a source takes in one query for all later uses of the same DataFrame (``PythonDataSourceV2.setReadInfo``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from mqpcap.capture import Capture
from mqpcap.continued_files import captures
from mqpcap.errors import CaptureError
from mqpcap.options import OPTIONAL_TABLES, Options
from mqpcap.protocols import protocols
from mqpcap.query.filter_columns import bodies
from mqpcap.spark import partitions, schemas, share
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.reading_options import Reading, check_columns, reading
from mqpcap.spark.share import Share, SharedKnowledge
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.spilled_rows import SpilledRows

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that says what streams captures; Spark 4.3 loses an error that is raised here."""
        return NoStream()


class NoStream(DataSourceStreamReader):
    """Raises CaptureError as soon as a stream of the format is started."""

    def initialOffset(self) -> dict[str, int]:
        """The first call of a stream."""
        raise CaptureError(
            "format mqpcap has no streams: mqpcap.spark.stream_to_lake fills a lake, and "
            'spark.readStream.format("delta") reads it'
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never called, as a stream begins with its offset."""
        raise NotImplementedError


class CaptureReader(DataSourceReader):
    """Reads one table of captures."""

    def __init__(self, asked: Reading, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """A partition per unit of work; raises CaptureError as `partitions.check_readable` does, before any work."""
        search = captures(self.asked.inputs, self.asked.is_one)
        partitions.check_readable(search.unreadable, self.asked.permissive)
        if not search.captures:
            raise CaptureError("none of the inputs can be read")
        share_count = self.asked.share_count
        if self.asked.table in ("deliveries", "captures"):
            share_count = 1  # depends on all connections
        rules = self.asked.options.decode_as
        units = partitions.plan_units(search.captures, DEFAULT_SLOTS, share_count, rules)
        return [InputPartition(unit) for unit in units]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one unit, in batches."""
        unit: WorkUnit = partition.value
        table = self.asked.table
        options = replace(
            self.asked.options, policy=self._policy(), optional_tables=OPTIONAL_TABLES & {table},
            protocols=share.needed_protocols(table),
        )  # fmt: skip
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for _, capture in unit.captures:
            share_pipeline = self._share(unit, capture, options)
            tables_read = share_pipeline.rows(table)
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
                    tables_read = self._share(unit, capture, options, knowledge).rows(table)
            for rows in tables_read:
                yield from schemas.batches(rows, schema)
            if capture.notes and not self.asked.permissive:
                raise CaptureError(f"{capture.notes[0]}; option mode=permissive reads the packets before")

    def _share(
        self, unit: WorkUnit, capture: Capture, options: Options, knowledge: SharedKnowledge | None = None
    ) -> Share:
        return Share(capture, options, lambda output: None, knowledge, unit.number, unit.plan)

    def _policy(self) -> RowPolicy:
        """The policy of the options; without bodies if no selected column has one."""
        table, policy = self.asked.table, self.asked.options.policy
        held = {path[0] for path, _ in bodies(table)} if table in protocols() else set()
        return replace(policy, bodies=0) if held.isdisjoint(self.schema.fieldNames()) else policy
