"""The tasks of the bulk job. They run in Python workers of Spark, without any call to Spark.

If a capture has many shares, `Distribute` reads a part of it and writes the packets of each share. `Describe` makes the
rows of ``captures`` for files whose packets no single task reads. `Dissect` runs a share of a capture, or several small
captures, through the pipeline and writes final rows to Parquet. `Join` pairs the publishes and deliveries of all shares
of a capture.

A task writes its result last, after all of its files, under a name that no other attempt has.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap import memory
from mqpcap.capture import Capture
from mqpcap.correlate import Correlation
from mqpcap.decode.detection import ServerProtocol
from mqpcap.errors import CaptureError, one_line
from mqpcap.hooks import StageHooks
from mqpcap.pipeline import Options
from mqpcap.reading import limit_notes
from mqpcap.spark import delivery_keys, distribute
from mqpcap.spark.delivery_keys import KeyWriter
from mqpcap.spark.distribute import FileRange, RangeResult
from mqpcap.spark.partitions import SharePlan, WorkUnit
from mqpcap.spark.share import Share, SharedKnowledge, knowledge_of
from mqpcap.spark.storage import Storage
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.export import TableFile
from mqpcap.tables.messages import fingerprints
from mqpcap.tables.output import Output, with_capture
from mqpcap.tables.parquet import DATES, MAX_GROUP_ROW_COUNT, DayPart, RowFiles, by_date, parquet_writer
from mqpcap.tcp.headers import Dissector

GROUP_BYTES = 16 << 20
"""A row group is written when it is larger. Several tasks share a machine, so they buffer less than an export."""
WAITING_BYTES = 48 << 20
"""Rows that wait for their row group, over all tables and days."""


@dataclass(frozen=True, slots=True)
class Distribute:
    """Distributes the packets of ranges of a capture to its shares."""

    id: str
    number: int
    capture: Capture
    ranges: tuple[FileRange, ...]
    plan: SharePlan


@dataclass(frozen=True, slots=True)
class Describe:
    """Makes the rows of ``captures`` of a capture in shares, by one more pass over it.

    messages: number of messages by file, as the shares counted them.
    """

    id: str
    number: int
    capture: Capture
    messages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dissect:
    """Dissects a unit of work; ``knowledge`` comes from the other shares of the capture."""

    id: str
    unit: WorkUnit
    knowledge: SharedKnowledge | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs the publishes and deliveries of one protocol in all shares of a capture."""

    id: str
    capture: str
    protocol: str
    files: tuple[TableFile, ...]


Task = Distribute | Describe | Dissect | Join


@dataclass(slots=True)
class Result:
    """The result of a task; sent as JSON.

    * keys: files for joins
    * knowledge: what this share can prove to others
    * missing_servers, lookup_keys: what it looked up; knowledge of other shares may change its rows
    * messages: number of messages that began in each file
    * failed: captures that could not be read: number, reason, and the unread files
    """

    id: str
    files: list[TableFile] = field(default_factory=list)
    keys: list[TableFile] = field(default_factory=list)
    ranges: list[RangeResult] = field(default_factory=list)
    knowledge: SharedKnowledge = field(default_factory=SharedKnowledge)
    missing_servers: list[ServerProtocol] = field(default_factory=list)
    lookup_keys: list[tuple[str, str]] = field(default_factory=list)
    messages: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, int] = field(default_factory=dict)
    problem_bytes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: list[tuple[int, str, list[str]]] = field(default_factory=list)

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Whether all files of the result exist with the right sizes; ``sizes`` are those found, by path."""
        written = {file.path: file.size_bytes for file in (*self.files, *self.keys)}
        return sizes.items() >= written.items() and sizes.keys() >= {read.name for read in self.ranges if read.name}

    def text(self) -> str:
        """The result as JSON."""
        # File names need not be UTF-8; msgspec's JSON refuses others.
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))


def result(text: str | bytes) -> Result:
    """Reads a result from JSON; raises ValueError or msgspec.ValidationError for anything else."""
    return msgspec.convert(json.loads(text), Result)


class TaskFiles(RowFiles):
    """The Parquet files of one attempt of one task, under names of its own.

    A task may run twice at the same time, and a Python worker can outlive its executor. So no two attempts write the
    same name, and a file counts only if the driver publishes it.
    """

    def __init__(self, storage: Storage, stem: str) -> None:
        super().__init__(GROUP_BYTES, WAITING_BYTES)
        self._storage = storage
        self.stem = stem
        self._streams: dict[str, pa.NativeFile] = {}
        self._files: list[TableFile] = []

    def write(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table; each row goes to the files of its day."""
        # A row group is encoded at once, so large tables are added in slices, which copy nothing.
        piece_count = max(1, -(-rows.nbytes // GROUP_BYTES), -(-rows.num_rows // MAX_GROUP_ROW_COUNT))
        each = max(1, -(-rows.num_rows // piece_count))
        date_column = DATES.get(table, "ts_ns")
        for start in range(0, rows.num_rows, each):
            for date, batch in by_date(table, rows.slice(start, each), date_column):
                self._add(table, date, date_column, batch)

    def close(self) -> list[TableFile]:
        """Finish all files; gives them with their paths in the staging directory."""
        self._close_all()
        return self._files

    def _create(self, part: DayPart, rows: pa.Table) -> pq.ParquetWriter:
        part.path = f"data/{part.table}/date={part.date}/part-{self.stem}-{part.number:05d}.parquet"
        self._streams[part.path] = stream = self._storage.output(part.path)
        return parquet_writer(stream, rows, part.date_column)

    def _close_file(self, part: DayPart, writer: pq.ParquetWriter) -> None:
        writer.close()
        with self._streams.pop(part.path) as stream:
            size_bytes = stream.tell()
        self._files.append(TableFile(part.path, part.table, part.row_count, size_bytes))


def run(task: Task, options: Options, storage: Storage) -> Result:
    """Runs a task; its result is the last file that it writes to the staging directory."""
    stem = f"{task.id}-{uuid.uuid4().hex[:12]}"
    files = TaskFiles(storage, stem)
    task_result = Result(task.id)
    match task:
        case Distribute() | Describe():
            try:
                if isinstance(task, Describe):
                    _describe(task, files, task_result)
                else:
                    folder = f"packets/{stem}"
                    task_result.ranges = distribute.distribute(task.capture, task.ranges, task.plan, storage, folder)
            except CaptureError as error:
                task_result.failed.append((task.number, one_line(error), [*task.capture.files]))
        case Dissect():
            for number, capture in task.unit.captures:
                _TaskShare(task, capture, options, files, task_result).dissect(number)
        case Join():
            for rows in delivery_keys.deliveries(task.protocol, task.files, storage):
                files.write("deliveries", with_capture("deliveries", rows, task.capture))
    for file in files.close():
        (task_result.keys if "." in file.table else task_result.files).append(file)
    # The worker process runs further tasks, which may need less memory.
    memory.trim()
    storage.write(f"done/{stem}.json", task_result.text().encode())
    return task_result


def _describe(task: Describe, files: TaskFiles, result: Result) -> None:
    rows = CaptureRows(task.capture, task.messages)
    dissector = Dissector()
    for window in task.capture.windows():
        rows.take(window, dissector.segments(window).counts)
    files.write("captures", rows.table(None))
    result.notes = [*map(str, task.capture.notes)]


class _TaskShare:
    """Dissects one capture of a task, or its share of one, to tables; a share writes only the keys of deliveries."""

    def __init__(self, task: Dissect, capture: Capture, options: Options, files: TaskFiles, result: Result) -> None:
        unit, hooks = task.unit, StageHooks()
        if unit.plan.share_count > 1:
            options = replace(options, optional_tables=options.optional_tables - {"captures"})
            hooks = StageHooks(correlation=self._write_keys)
        self._share = Share(
            capture, options, self._add_output, task.knowledge, share=unit.number, plan=unit.plan, hooks=hooks
        )
        self._files, self._result = files, result

    def _write_keys(self, protocol: str, correlation: Correlation) -> None:
        """A share writes the keys of deliveries for a join instead of pairing them."""
        if correlation.deliveries is not None:
            prints = fingerprints(self._share.pipeline.stages.options.policy.seeds)
            correlation.deliveries = KeyWriter(protocol, prints, self._files.write)

    def dissect(self, number: int) -> None:
        """Read the capture, write its rows and fill the result."""
        result, share, pipeline = self._result, self._share, self._share.pipeline
        capture, stages, failure = pipeline.capture, pipeline.stages, None
        try:
            pipeline.run()
            failure = pipeline.failure
        except CaptureError as error:
            failure = error
            return
        finally:
            if failure is not None:
                read = {facts.file for facts in capture.facts if share.is_whole}
                unread = [file for file in capture.files if file not in read]
                result.failed.append((number, one_line(failure), unread))
        if share.is_whole:
            result.notes += [*map(str, capture.notes), *stages.server_notes()]
        else:
            result.knowledge = knowledge_of(stages)
            result.missing_servers, result.lookup_keys = share.missing_servers, share.lookup_keys
        result.notes += limit_notes(capture.files[0], stages.counts)

    def _add_output(self, output: Output) -> None:
        rows, result = output.rows, self._result
        if output.table == "messages":
            _count(result.flaws, *rows["flaw"].value_counts().flatten())
            _count(result.messages, *rows["capture_file"].value_counts().flatten())
        elif output.table == "problems":
            _count(result.problem_bytes, rows["kind"], rows["length"])
        self._files.write(output.table, rows)
        if output.fields is not None and output.protocol is not None:
            self._files.write(output.protocol, output.fields)


def _count(counts: dict[str, int], names: pa.Array, numbers: pa.Array) -> None:
    for name, number in zip(names.to_pylist(), numbers.to_pylist(), strict=True):
        if name is not None:
            counts[name] = counts.get(name, 0) + number
