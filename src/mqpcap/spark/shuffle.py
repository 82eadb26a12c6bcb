"""Rows that Spark moves between the stages of the bulk job: to a partition, sorted there.

In: functions from rows to rows. Out: data frames of rows. Called by: ``job``; ``tasks`` makes and reads the rows.

A stage runs in Python workers of Spark (``mapInArrow``). A row is some megabytes of packets or keys, or a small result,
so that Spark's own cost per row does not matter. No RDD is used, as Spark Connect has none.
"""

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "task INT, target INT, major LONG, minor LONG, content BINARY"
RESULT = -1
"""The target of a row that is a result for the driver."""


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""Spark copies a row some eight times, which costs more than to compress it once (measured)."""


class Row(NamedTuple):
    """A row that task number ``task`` made for partition ``target``, which gets its rows by ``major`` and ``minor``."""

    task: int
    target: int
    major: int
    minor: int
    content: bytes | pa.Buffer


def result_row(task: int, value: object) -> Row:
    """A row that carries an object to the driver."""
    return Row(task, RESULT, 0, 0, pickle.dumps(value))


def table_bytes(rows: pa.Table) -> pa.Buffer:
    """The content of a row that is a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write(rows)
    return sink.getvalue()


def read_table(content: bytes | pa.Buffer) -> pa.Table:
    """The table that is the content of a row."""
    return pa.ipc.open_stream(content).read_all()


def started(spark: "SparkSession", count: int, work: Callable[[int], Iterator[Row]]) -> "DataFrame":
    """The rows of tasks number 0 to ``count``, a partition each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from map(_batch, work(number))

    return spark.range(0, count, 1, count).mapInArrow(run, SCHEMA)


def continued(rows: "DataFrame", count: int, work: Callable[[Iterator[Row]], Iterator[Row]]) -> "DataFrame":
    """The rows that ``work`` makes of the rows of each of ``count`` targets."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(_batch, work(row for batch in batches for row in _rows(batch)))

    moved = rows.repartitionById(count, "target").sortWithinPartitions("target", "major", "minor")
    return moved.mapInArrow(run, SCHEMA)


def results(rows: "DataFrame") -> dict[int, Any]:
    """The results among rows, by the number of the task."""
    result_rows = rows.where(f"target = {RESULT}").select("task", "content").collect()
    return {row.task: pickle.loads(row.content) for row in result_rows}  # our own tasks wrote it


def _batch(row: Row) -> pa.RecordBatch:
    content = pa.py_buffer(row.content)
    ends = pa.py_buffer(np.array([0, content.size], np.int32))
    numbers = zip(row[:4], (pa.int32(), pa.int32(), pa.int64(), pa.int64()), strict=True)
    columns = [pa.array([number], kind) for number, kind in numbers]
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, content]))
    return pa.RecordBatch.from_arrays(columns, [*Row._fields])


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    for task, target, major, minor, content in zip(*batch.columns, strict=True):
        yield Row(task.as_py(), target.as_py(), major.as_py(), minor.as_py(), content.as_buffer())
