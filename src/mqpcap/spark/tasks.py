"""The tasks of the bulk job. They run in Python workers of Spark, without any call to Spark.

`run` dissects small captures, several in a task, and makes the rows of ``captures`` of large ones.
A large capture takes three stages, between which Spark moves rows (`mqpcap.spark.shuffle`): `read_ranges` gives each
share its packets, `dissect_shares` makes the share's tables and the keys of its deliveries, `pair_deliveries` pairs the
keys of all shares.

Tasks write final rows to Parquet. The driver publishes the files of those attempts whose results it got.
"""

import pickle
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqpcap.arrays import Int64Array
from mqpcap.capture import Capture
from mqpcap.correlate import Correlation
from mqpcap.decode.detection import ServerProtocol
from mqpcap.errors import CaptureError, FailedCaptureError, one_line
from mqpcap.hooks import StageHooks
from mqpcap.options import Options
from mqpcap.protocols import protocols
from mqpcap.reading import blamed_on, limit_notes
from mqpcap.small_captures import SmallCapture, read_together, small_groups
from mqpcap.spark import delivery_keys, memory
from mqpcap.spark.delivery_keys import KeyBuffer
from mqpcap.spark.partitions import WorkUnit, size_of
from mqpcap.spark.ranges import FileRange, RangeReader, RangeResult, ShareCapture, SharePackets, check_borders
from mqpcap.spark.share import Share, SharedKnowledge, knowledge_of
from mqpcap.spark.shuffle import Row, read_table, result_row, table_bytes
from mqpcap.spark.storage import Storage
from mqpcap.tables.captures import CaptureRows
from mqpcap.tables.connections import EndedConnections
from mqpcap.tables.messages import fingerprints
from mqpcap.tables.output import Output, with_capture
from mqpcap.tables.parquet import DATES, MAX_GROUP_ROW_COUNT, DayPart, RowFiles, TableFile, parquet_writer
from mqpcap.tcp.headers import Dissector

GROUP_BYTES = 16 << 20
"""A row group is written when it is larger. Several tasks share a machine, so they buffer less than an export."""
WAITING_BYTES = 48 << 20
"""Rows that wait for their row group, over all tables and days."""
Failure = tuple[int, str, list[str]]
"""A capture that could not be read: its number, the reason, and the unread files."""
_BORDERS = -1
"""The order of the results of ranges: each share gets them before all packets."""


@dataclass(frozen=True, slots=True)
class Describe:
    """Makes the rows of ``captures`` of a capture in shares, by one more pass over it.

    messages: number of messages by file, as the shares counted them.
    """

    number: int
    capture: Capture
    messages: Mapping[str, int]

    @property
    def name(self) -> str:
        """The name of the task, for its files."""
        return f"describe-{self.number:05d}"


@dataclass(frozen=True, slots=True)
class Dissect:
    """Dissects a unit of work; ``knowledge`` comes from the other shares of the capture."""

    number: int
    unit: WorkUnit
    knowledge: SharedKnowledge | None = None

    @property
    def name(self) -> str:
        """The name of the task, for its files."""
        return f"dissect-{self.number:05d}"

    @property
    def capture_number(self) -> int:
        """Number of the first capture."""
        return self.unit.captures[0][0]


@dataclass(frozen=True, slots=True)
class ShareWork:
    """The work of the three stages of large captures.

    * shares: by number of the target
    * packs: by task, the ranges to read: number in order, number of the capture, range
    * target_count: tasks that pair deliveries
    """

    shares: Sequence[Dissect]
    packs: Sequence[Sequence[tuple[int, int, FileRange]]]
    target_count: int
    options: Options
    storage: Storage


@dataclass(slots=True)
class Result:
    """The result of a task."""

    files: list[TableFile] = field(default_factory=list)
    corrected: tuple[int, list[FileRange]] | None = None
    """The number of the capture and its ranges, if a border was guessed wrong; there is nothing else then."""
    knowledge: SharedKnowledge = field(default_factory=SharedKnowledge)
    """Servers and facts that this share proves."""
    missing_servers: list[ServerProtocol] = field(default_factory=list)
    lookup_keys: list[tuple[str, str]] = field(default_factory=list)
    """The keys that the share looked up; knowledge of other shares may change its rows."""
    starts: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    """Both sequence numbers where the streams of each connection of a share begin, as one number."""
    missing_relatives: int = 0
    """Connections of a share that name another connection that it does not have."""
    delivering: list[str] = field(default_factory=list)
    """Protocols with keys of deliveries."""
    messages: dict[str, int] = field(default_factory=dict)
    """Messages by the file they began in."""
    flaws: dict[str, int] = field(default_factory=dict)
    problem_bytes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


class TaskFiles(RowFiles):
    """The Parquet files of one attempt of task ``task``, under names of its own.

    A task may run twice at the same time, and a Python worker can outlive its executor. So no two attempts write the
    same name, and a file counts only if the driver publishes it.
    """

    def __init__(self, storage: Storage, task: str) -> None:
        super().__init__(GROUP_BYTES, WAITING_BYTES)
        self._storage = storage
        self._stem = f"{task}-{uuid.uuid4().hex[:12]}"
        self._streams: dict[str, pa.NativeFile] = {}

    def add(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table; each row goes to the files of its day."""
        # A row group is encoded at once, so large tables are added in slices, which copy nothing.
        piece_count = max(1, -(-rows.nbytes // GROUP_BYTES), -(-rows.num_rows // MAX_GROUP_ROW_COUNT))
        each = max(1, -(-rows.num_rows // piece_count))
        for start in range(0, rows.num_rows, each):
            self.write(table, rows.slice(start, each), DATES.get(table, "ts_ns"))

    def drop(self) -> None:
        """Close all files, which nobody publishes."""
        self._drop_all()

    def close(self) -> list[TableFile]:
        """Finish all files; gives them with their paths in the staging directory."""
        self._close_all()
        return self.files

    def _create(self, part: DayPart, rows: pa.Table) -> pq.ParquetWriter:
        part.path = f"data/{part.table}/date={part.date}/part-{self._stem}-{part.number:05d}.parquet"
        self._streams[part.path] = stream = self._storage.output(part.path)
        return parquet_writer(stream, rows, part.date_column)

    def _close_file(self, part: DayPart, writer: pq.ParquetWriter) -> None:
        writer.close()
        with self._streams.pop(part.path) as stream:
            size_bytes = stream.tell()
        self.files.append(TableFile(part.path, part.table, part.row_count, size_bytes))


def run(task: Dissect | Describe, options: Options, storage: Storage) -> Result:
    """Dissects whole captures, or describes one. If a capture fails, starts again without it."""
    captures = task.unit.captures if isinstance(task, Dissect) else ((task.number, task.capture),)
    failed: dict[int, Failure] = {}
    while True:
        files, result = TaskFiles(storage, task.name), Result(failed=[*failed.values()])
        left = [(number, capture) for number, capture in captures if number not in failed]
        for number, capture in left if isinstance(task, Describe) else _left_of_small(left, options, files, result):
            try:
                with blamed_on(capture.files):
                    if isinstance(task, Describe):
                        _describe(task, files, result, options)
                    else:
                        deque(_TaskShare(task, capture, options, files, result).dissect(number), 0)
            except FailedCaptureError as error:
                failed[number] = number, str(error), [*error.files]
                files.drop()
                break
        else:
            return _ended(files, result)


def _left_of_small(
    captures: Sequence[tuple[int, Capture]], options: Options, files: TaskFiles, result: Result
) -> list[tuple[int, Capture]]:
    """Writes the rows of small captures that can be read together; gives all others."""

    def note(part: SmallCapture) -> None:
        result.notes += part.notes()

    left = set[int]()
    for group in small_groups([capture for _, capture in captures], size_of):
        left.update(map(id, read_together(group, options, partial(_add_output, files, result), note)))
    return [(number, capture) for number, capture in captures if id(capture) in left]


def _add_output(files: TaskFiles, result: Result, output: Output) -> None:
    rows = output.rows
    if output.table == "messages":
        _count(result.flaws, *rows["flaw"].value_counts().flatten())
        _count(result.messages, *rows["capture_file"].value_counts().flatten())
    elif output.table == "problems":
        _count(result.problem_bytes, rows["kind"], rows["length"])
    files.add(output.table, rows)
    if output.fields is not None and output.protocol is not None:
        files.add(output.protocol, output.fields)


def _ended(files: TaskFiles, result: Result) -> Result:
    result.files += files.close()
    # The worker process runs further tasks, which may need less memory.
    memory.trim()
    return result


def read_ranges(pack: int, work: ShareWork) -> Iterator[Row]:
    """The packets of some ranges for each share, and for every share their results or why they cannot be read."""
    for index, number, file_range in work.packs[pack]:
        units = {target: task.unit for target, task in enumerate(work.shares) if task.capture_number == number}
        unit = next(iter(units.values()))
        reader = RangeReader(unit.captures[0][1], file_range, unit.plan)
        failure = None
        try:
            with blamed_on(unit.captures[0][1].files):
                for part, tables in enumerate(reader.packets()):
                    for target, unit in units.items():
                        if tables[unit.number].num_rows:
                            yield Row(pack, target, index, part, table_bytes(tables[unit.number]))
        except FailedCaptureError as error:
            failure = str(error)
        outcome = pickle.dumps(failure or reader.result)
        for target in units:
            yield Row(pack, target, _BORDERS, index, outcome)


def dissect_shares(rows: Iterator[Row], work: ShareWork) -> Iterator[Row]:
    """The keys of the deliveries of shares, and a result of each share."""
    for target, share_rows in groupby(rows, attrgetter("target")):
        task, result = work.shares[target], Result()
        number, capture = task.unit.captures[0]
        try:
            with blamed_on(capture.files):
                yield from _dissect_share(target, share_rows, work, result)
        except FailedCaptureError as error:
            result = Result(failed=[(number, str(error), [*error.files])])
        yield result_row(task.number, result)


def _dissect_share(target: int, rows: Iterator[Row], work: ShareWork, result: Result) -> Iterator[Row]:
    task = work.shares[target]
    number, capture = task.unit.captures[0]
    by_kind = groupby(rows, lambda row: row.major != _BORDERS)
    outcomes: dict[int, RangeResult | str] = {row.minor: pickle.loads(row.content) for row in next(by_kind)[1]}
    ranges = [outcome for outcome in outcomes.values() if isinstance(outcome, RangeResult)]
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, str)]
    if failures:
        result.failed.append((number, failures[0], [*capture.files]))
        return
    borders = check_borders(ranges)
    if borders.corrected:
        result.corrected = number, borders.corrected
        return
    valid = {index: borders.valid[i] for i, index in enumerate(outcomes) if i in borders.valid}
    packets = (
        SharePackets(*valid[row.major], read_table(row.content))
        for row in chain.from_iterable(packet_rows for _, packet_rows in by_kind) if row.major in valid
    )  # fmt: skip
    files = TaskFiles(work.storage, task.name)
    share = _TaskShare(task, ShareCapture(capture.inputs, packets=packets), work.options, files, result)
    for protocol, keys, at_end in share.dissect(number):
        for to, begin_ns, table in keys.flush(work.target_count, at_end):
            yield Row(task.number, to, pair_number(number, protocol), begin_ns, table_bytes(table))
    _ended(files, result)


def pair_number(number: int, protocol: str) -> int:
    """A number for a capture and a protocol."""
    names = [*protocols()]
    return number * len(names) + names.index(protocol)


def pair_deliveries(rows: Iterator[Row], work: ShareWork) -> Iterator[Row]:
    """Writes the rows of ``deliveries`` whose keys came here; gives a result of each capture, by its number."""
    names = [*protocols()]
    captures = dict(task.unit.captures[0] for task in work.shares)
    for target, key_rows in groupby(rows, attrgetter("target")):
        results: dict[int, Result] = {}
        for number, capture_rows in groupby(key_rows, lambda row: row.major // len(names)):
            files, capture_files = (
                TaskFiles(work.storage, f"deliveries-{target:05d}-{number:05d}"),
                captures[number].files,
            )
            try:
                with blamed_on(capture_files):
                    for pair, parts in groupby(capture_rows, attrgetter("major")):
                        keys = ((row.minor, read_table(row.content)) for row in parts)
                        for deliveries in delivery_keys.deliveries(names[pair % len(names)], keys):
                            files.add("deliveries", with_capture("deliveries", deliveries, capture_files[0]))
                    results[number] = _ended(files, Result())
            except FailedCaptureError as error:
                files.drop()
                results[number] = Result(failed=[(number, str(error), [*error.files])])
        yield result_row(target, results)


def _describe(task: Describe, files: TaskFiles, result: Result, options: Options) -> None:
    rows = CaptureRows(task.capture, task.messages)
    dissector = Dissector(options.decode_as)
    for window in task.capture.windows():
        rows.take(window, dissector.segments(window).counts)
    files.add("captures", rows.table(None))
    result.notes = [*map(str, task.capture.notes)]


class _TaskShare:
    """Dissects one capture of a task, or its share of one, to tables; a share gives only the keys of deliveries."""

    def __init__(self, task: Dissect, capture: Capture, options: Options, files: TaskFiles, result: Result) -> None:
        unit, hooks = task.unit, StageHooks()
        self._keys: dict[str, KeyBuffer] = {}
        if unit.plan.share_count > 1:
            options = replace(options, optional_tables=options.optional_tables - {"captures"})
            hooks = StageHooks(correlation=self._buffer_keys, ended=self._note_starts)
        self._share = Share(
            capture, options, partial(_add_output, files, result), task.knowledge,
            share=unit.number, plan=unit.plan, hooks=hooks,
        )  # fmt: skip
        self._result = result

    def _note_starts(self, ended: EndedConnections) -> None:
        """Note where streams begin: views of a connection begin at the same numbers, maybe in another share."""
        base = np.sort(ended.flows.anchors(ended.numbers)[1], axis=1)
        base = base[(base >= 0).all(axis=1)]
        self._result.starts = np.union1d(self._result.starts, base[:, 0] << 32 | base[:, 1])

    def _buffer_keys(self, protocol: str, correlation: Correlation) -> None:
        """A share gives the keys of deliveries instead of pairing them."""
        if correlation.deliveries is not None:
            prints = fingerprints(self._share.pipeline.stages.options.policy.seeds)
            correlation.deliveries = self._keys[protocol] = KeyBuffer(protocol, prints)

    def dissect(self, number: int) -> Iterator[tuple[str, KeyBuffer, bool]]:
        """Read the capture, write its rows and fill the result; gives buffers of keys, and whether it is the end."""
        result, share, pipeline = self._result, self._share, self._share.pipeline
        capture, stages, failure = pipeline.capture, pipeline.stages, None
        try:
            for _ in pipeline.steps():
                for protocol, keys in self._keys.items():
                    yield protocol, keys, False
            failure = pipeline.failure
        except CaptureError as error:
            failure = error
            return
        finally:
            if failure is not None:
                read = {facts.file for facts in capture.facts if share.is_whole}
                unread = [file for file in capture.files if file not in read]
                result.failed.append((number, one_line(failure), unread))
        for protocol, keys in self._keys.items():
            yield protocol, keys, True
        result.delivering = [protocol for protocol, keys in self._keys.items() if keys.delivers]
        if share.is_whole:
            result.notes += [*map(str, capture.notes), *stages.server_notes()]
        else:
            result.knowledge = knowledge_of(stages)
            result.missing_servers, result.lookup_keys = share.missing_servers, share.lookup_keys
            result.missing_relatives = stages.missing_relatives
        result.notes += limit_notes(capture.files[0], stages.counts)


def _count(counts: dict[str, int], names: pa.Array, numbers: pa.Array) -> None:
    for name, number in zip(names.to_pylist(), numbers.to_pylist(), strict=True):
        if name is not None:
            counts[name] = counts.get(name, 0) + number
