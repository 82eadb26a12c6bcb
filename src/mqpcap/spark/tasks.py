"""What a task of the bulk job does; runs in a Python worker of Spark and knows nothing of Spark.

`Distribute` reads a part of a capture and leaves each share its packets, where shares are many. `Describe` makes the
row of ``captures`` of a file whose packets no single task reads. `Dissect` runs a share of a capture, or some small
captures, through the pipeline, its rows to Parquet as they become final. `Join` brings the publishes and deliveries of
several shares together.

Each task ends by writing its result, after all of its files, under a name no other attempt has.
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
from mqpcap.decode.detection import Server
from mqpcap.errors import CaptureError, one_line
from mqpcap.pipeline import Options, Output, caps, with_capture
from mqpcap.schema.protocol import MessageQueue
from mqpcap.spark import delivery_keys, distribute
from mqpcap.spark.delivery_keys import KeyWriter
from mqpcap.spark.distribute import FileRange, RangeResult
from mqpcap.spark.partitions import SharePlan, WorkUnit
from mqpcap.spark.share import Heard, Share, told
from mqpcap.spark.storage import Storage
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.export import TableFile
from mqpcap.tables.messages import prints
from mqpcap.tables.parquet import DATES, MAX_GROUP_ROW_COUNT, DayPart, RowFiles, by_date, parquet_writer
from mqpcap.tcp.headers import Dissector

GROUP_BYTES = 16 << 20
"""A row group is written past it; tasks run side by side, so they hold less than an export does."""
WAITING_BYTES = 48 << 20
"""Rows waiting for their row group, over all tables and days."""


@dataclass(frozen=True, slots=True)
class Distribute:
    """Ranges of the files of a capture, whose packets go to its shares."""

    id: str
    number: int
    capture: Capture
    ranges: tuple[FileRange, ...]
    cut: SharePlan


@dataclass(frozen=True, slots=True)
class Describe:
    """A capture that is read in shares; its rows of ``captures`` are made by reading it once more.

    messages: how many messages the shares found in each file.
    """

    id: str
    number: int
    capture: Capture
    messages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Dissect:
    """A unit of captures; ``heard`` is what other shares of the same capture told."""

    id: str
    unit: WorkUnit
    heard: Heard | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """The publishes and deliveries of one protocol in all shares of a capture."""

    id: str
    capture: str
    protocol: str
    files: tuple[TableFile, ...]


Task = Distribute | Describe | Dissect | Join


@dataclass(slots=True)
class Result:
    """What a task came to; travels as JSON.

    told, doubted, asked: what a share knows for others, and asks of them. keys: what it left for joins. messages: how
    many began in each file. failed: captures that could not be read, by number, with the reason and their files of
    which nothing was.
    """

    id: str
    files: list[TableFile] = field(default_factory=list)
    keys: list[TableFile] = field(default_factory=list)
    ranges: list[RangeResult] = field(default_factory=list)
    told: Heard = field(default_factory=Heard)
    doubted: list[Server] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    messages: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, int] = field(default_factory=dict)
    problem_bytes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: list[tuple[int, str, list[str]]] = field(default_factory=list)

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Whether files with the sizes of its own are there, by path."""
        written = {file.path: file.size_bytes for file in (*self.files, *self.keys)}
        return sizes.items() >= written.items() and sizes.keys() >= {one.name for one in self.ranges if one.name}

    def text(self) -> str:
        """As JSON."""
        # Names of files may be no UTF-8, which msgspec's own JSON refuses.
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))


def result(text: str | bytes) -> Result:
    """A result out of its JSON; raises ValueError or msgspec.ValidationError if it is none."""
    return msgspec.convert(json.loads(text), Result)


class TaskFiles(RowFiles):
    """The Parquet files of one attempt of one task, under names of its own.

    A task may be done twice at the same time, and a Python worker can outlive its executor: so no two attempts ever
    write the same name, and a file counts only when the driver takes it.
    """

    def __init__(self, storage: Storage, stem: str) -> None:
        super().__init__(GROUP_BYTES, WAITING_BYTES)
        self._storage = storage
        self.stem = stem
        self._streams: dict[str, pa.NativeFile] = {}
        self._files: list[TableFile] = []

    def write(self, table: str, rows: pa.Table) -> None:
        """Adds rows to a table, each to its day."""
        # A row group is encoded at once, so what is large comes in pieces; rows.slice copies nothing.
        piece_count = max(1, -(-rows.nbytes // GROUP_BYTES), -(-rows.num_rows // MAX_GROUP_ROW_COUNT))
        each = max(1, -(-rows.num_rows // piece_count))
        date_column = DATES.get(table, "ts_ns")
        for start in range(0, rows.num_rows, each):
            for date, batch in by_date(table, rows.slice(start, each), date_column):
                self._add(table, date, date_column, batch)

    def close(self) -> list[TableFile]:
        """All files, finished, by their paths in the staging directory."""
        self._close_all()
        return self._files

    def _create(self, part: DayPart, schema: pa.Schema) -> pq.ParquetWriter:
        part.path = f"data/{part.table}/date={part.date}/part-{self.stem}-{part.number:05d}.parquet"
        self._streams[part.path] = stream = self._storage.output(part.path)
        return parquet_writer(stream, schema)

    def _close_file(self, part: DayPart, writer: pq.ParquetWriter) -> None:
        writer.close()
        with self._streams.pop(part.path) as stream:
            size_bytes = stream.tell()
        self._files.append(TableFile(part.path, part.table, part.row_count, size_bytes))


def run(task: Task, options: Options, storage: Storage) -> Result:
    """Does a task and leaves its result in the staging directory, last of all."""
    stem = f"{task.id}-{uuid.uuid4().hex[:12]}"
    files = TaskFiles(storage, stem)
    made = Result(task.id)
    match task:
        case Distribute() | Describe():
            try:
                if isinstance(task, Describe):
                    _describe(task, files, made)
                else:
                    folder = f"packets/{stem}"
                    made.ranges = distribute.distribute(task.capture, task.ranges, task.cut, storage, folder)
            except CaptureError as error:
                made.failed.append((task.number, one_line(error), [*task.capture.files]))
        case Dissect():
            for number, capture in task.unit.captures:
                _TaskShare(task, capture, options, files, made).dissect(number)
        case Join():
            for rows in delivery_keys.deliveries(task.protocol, task.files, storage):
                files.write("deliveries", with_capture("deliveries", rows, task.capture))
    for file in files.close():
        (made.keys if "." in file.table else made.files).append(file)
    # The worker lives on for other tasks, of other sizes.
    memory.trim()
    storage.write(f"done/{stem}.json", made.text().encode())
    return made


def _describe(task: Describe, files: TaskFiles, made: Result) -> None:
    rows = CaptureRows(task.capture, task.messages)
    dissector = Dissector()
    for window in task.capture.windows():
        rows.take(window, dissector.segments(window).counts)
    files.write("captures", rows.table(None))
    made.notes = [*map(str, task.capture.notes)]


class _TaskShare(Share):
    """One capture of a task, or the task's share of it, to tables; of a share's deliveries only the keys."""

    def __init__(self, task: Dissect, capture: Capture, options: Options, files: TaskFiles, made: Result) -> None:
        unit = task.unit
        if unit.cut.share_count > 1:
            options = replace(options, optional_tables=options.optional_tables - {"captures"})
        super().__init__(capture, options, self._take, task.heard, share=unit.number, cut=unit.cut)
        self._files, self._made = files, made

    def dissect(self, number: int) -> None:
        """Read it, write its rows, and tell the result what there is to tell."""
        made, name = self._made, self.capture.files[0]
        try:
            self.run()
        except CaptureError as error:
            self.failure = error
            return
        finally:
            if self.failure is not None:
                read = {facts.file for facts in self.capture.facts if self.is_whole}
                unread = [file for file in self.capture.files if file not in read]
                made.failed.append((number, one_line(self.failure), unread))
        if self.is_whole:
            made.notes += map(str, self.capture.notes)
        else:
            made.told, made.doubted, made.asked = told(self), self.doubted, self.asked
        made.notes += caps(name, self.counts)

    def correlation(self, protocol: MessageQueue) -> Correlation:
        """As of the whole capture, but for what goes to other tasks."""
        is_new = protocol.name not in self.correlations
        made = super().correlation(protocol)
        if is_new and made.deliveries is not None and not self.is_whole:
            made.deliveries = KeyWriter(protocol.name, prints(self.options.policy.bases), self._files.write)
        return made

    def _take(self, output: Output) -> None:
        rows, made = output.rows, self._made
        if output.table == "messages":
            _count(made.flaws, *rows["flaw"].value_counts().flatten())
            _count(made.messages, *rows["capture_file"].value_counts().flatten())
        elif output.table == "problems":
            _count(made.problem_bytes, rows["kind"], rows["length"])
        self._files.write(output.table, rows)
        if output.fields is not None and output.protocol is not None:
            self._files.write(output.protocol, output.fields)


def _count(counts: dict[str, int], names: pa.Array, numbers: pa.Array) -> None:
    for name, number in zip(names.to_pylist(), numbers.to_pylist(), strict=True):
        if name is not None:
            counts[name] = counts.get(name, 0) + number
