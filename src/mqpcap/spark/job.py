"""The bulk job: the tasks of a cluster write the tables of captures.

The driver plans units of work, lets Spark run them, and publishes the files of finished tasks. Small captures are
packed together, a task each pack. Large captures are cut into shares: tasks read ranges of their files, Spark's shuffle
brings the packets to their shares, and the keys of deliveries to the task that pairs them (`mqpcap.spark.tasks`).

Driver and tasks write to a staging directory beside the output directory (``.DIR.mqpcap-spark``), which all machines
must see. Each row is published once: every attempt of a task writes files under names of its own, and only the files
of an attempt whose result came to the driver are published. The next job removes the files of a killed job.
"""

import json
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mqpcap.capture import Capture
from mqpcap.capture.remote import redacted_error
from mqpcap.decode.detection import ProvenServer
from mqpcap.decode.shared_facts import SharedFact
from mqpcap.errors import CaptureError, FailedCaptureError, OutputError, one_line
from mqpcap.options import Options
from mqpcap.spark import executors, partitions, ranges, shuffle, tasks
from mqpcap.spark.ranges import FileRange
from mqpcap.spark.session import SparkError, cause, spark_errors
from mqpcap.spark.share import SharedKnowledge
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import Describe, Dissect, Result, ShareWork, TaskFiles
from mqpcap.tables.captures import is_no_capture, unread_files
from mqpcap.tables.export import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Export,
    ExportSummary,
    find_foreign_file,
    foreign_content_error,
    is_running,
    manifest,
    replace_error,
    table_summaries,
)
from mqpcap.tables.messages import fingerprint_seeds
from mqpcap.tables.parquet import TableFile
from mqpcap.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqpcap.delta.catalog import Recording
    from mqpcap.delta.growth import Addition, Lake
    from mqpcap.reading import Outcome

JOB = "job.json"
Packs = dict[int, list[tuple[FileRange, ...]]]
"""The ranges of captures, grouped by task, by number of the capture."""
PARALLEL_READS = 16
"""Files of an object store that are read at the same time."""
_WRITTEN = re.compile(r"job\.json|\.[0-9a-f]{32}|data/[^/.][^/]*/date=[\d-]+/part-[\w-]+-[0-9a-f]{12}-\d{5,}\.parquet")
"""Names of the files that a job writes; a directory with any other file is not a staging directory of ours."""


@dataclass(slots=True)
class JobOutcome:
    """The outcome of a job; without a summary nothing was published."""

    summary: ExportSummary | None
    refusal: OutputError | None = None
    """Why nothing was published although some captures were read."""
    flaws: Counter[str] = field(default_factory=Counter)
    problem_bytes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    task_count: int = 0


def export(
    spark: "SparkSession",
    captures: Sequence[Capture],
    out: str,
    options: Options,
    *,
    unread: Sequence[tuple[str, str]] = (),
    is_missing: bool = False,
    allow_missing: bool = False,
    share_count: int | None = None,
) -> JobOutcome:
    """Writes the tables of captures below ``out``, a local path that all machines share or a URI of pyarrow.fs.

    ``unread``: inputs that are not read, with the reason; each has a row in ``captures``.
    Nothing is published if no capture could be read. An earlier export is not replaced if a capture could not be read
    or an input is missing (``is_missing``), unless ``allow_missing``.
    Raises OutputError before any work if ``out`` may not be written or replaced, and SparkError if the job fails.
    """
    storage = Storage(out)
    system, path = storage.open_filesystem()
    if isinstance(system, fs.LocalFileSystem):  # a path or a file:// URI
        storage = Storage(os.path.abspath(path))
    elif "/" not in path.strip("/"):
        raise OutputError(f"{storage.name} is a whole bucket; name a folder in it")
    only_new = is_missing and not allow_missing
    protected = [Path(file.path) for capture in captures for file in capture.inputs if "://" not in file.name]
    is_local = storage.is_local
    publication = _Local(Path(path), only_new=only_new, protected=protected) if is_local else _Remote(storage, only_new)
    try:
        job = _Job(spark, captures, options, storage.beside(".", ".mqpcap-spark"))
        return _published(job, publication, share_count, unread, is_missing, allow_missing)
    except OSError as error:
        raise OutputError(f"cannot write {storage.name}: {redacted_error(error)}") from error
    finally:
        publication.abort()


def append(
    spark: "SparkSession",
    lake: "Lake",
    additions: "Sequence[Addition]",
    options: Options,
    report: "Outcome",
    share_count: int | None = None,
) -> JobOutcome:
    """Adds recordings that are new to a lake, and finishes them.

    Files that cannot be read are set aside and reported, and the job is done again without them.
    Raises OutputError if the lake cannot be written, and SparkError if the job fails.
    """
    staging, outcome = Storage(os.path.abspath(lake.folder)).beside(".", ".mqpcap-spark"), JobOutcome(None)
    while additions:
        job = _Job(spark, [addition.capture for addition in additions], options, staging)
        outcome = _published(job, _Lake(lake, [addition.recording for addition in additions]), share_count)
        if not job.failed:
            return outcome
        for number, reasons in job.failed.items():
            error = FailedCaptureError(job.captures[number].files, next(iter(reasons.values())))
            additions = lake.without(additions, error, report, finish=True)
    lake.add([], report, lambda _: None)  # notes what was set aside
    return JobOutcome(None, notes=outcome.notes)


def _published(
    job: "_Job",
    publication: "_Local | _Remote | _Lake",
    share_count: int | None,
    unread: Sequence[tuple[str, str]] = (),
    is_missing: bool = False,
    allow_missing: bool = False,
) -> JobOutcome:
    """Run a job and publish what it wrote."""
    job.begin()
    try:
        outcome = job.run(share_count)
        publication.only_new = (is_missing or bool(outcome.unreadable)) and not allow_missing
        if job.has_read:
            outcome.summary = publication.publish(job.staging, [*job.files(), *job.unread_files(unread)])
    except OutputError as error:
        if not job.outcome.unreadable:
            raise
        outcome.refusal = error
    finally:
        job.end()
    return outcome


class _Job:
    """A job, from its plan to the files that are published."""

    def __init__(self, spark: "SparkSession", captures: Sequence[Capture], options: Options, staging: Storage) -> None:
        self.spark, self.captures, self.staging = spark, captures, staging
        self.options = replace(options, policy=replace(options.policy, seeds=fingerprint_seeds()))
        self.kept: list[Result] = []
        self.persisted: list[DataFrame] = []
        """Data frames that Spark keeps on its disks until the job ends."""
        self.outcome = JobOutcome(None)
        self.failed: dict[int, dict[str, str]] = {}
        """By number of a capture that could not be read to its end: its files that are left out, with the reasons."""

    def begin(self) -> None:
        """Takes the staging directory; raises OutputError if it is in use or has files of others."""
        _check_idle(self.staging)
        foreign_file = self.staging.find_foreign_file(_WRITTEN)
        if foreign_file is not None:
            raise foreign_content_error(self.staging.name, foreign_file)
        self.staging.remove(_WRITTEN)
        job = {"tool": "mqpcap", "state": "unfinished", "host": socket.gethostname(), "pid": os.getpid()}
        self.staging.write(JOB, json.dumps(job).encode())
        self.staging.hide()

    def run(self, share_count: int | None) -> JobOutcome:
        """Runs all tasks; afterwards ``files`` has the files to publish."""
        executors.check_python(self.spark)
        units = partitions.plan_units(self.captures, executors.slots(self.spark), share_count, self.options.decode_as)
        todo = [Dissect(number, unit) for number, unit in enumerate(units)]
        for result in self._results([task for task in todo if task.unit.plan.share_count == 1]):
            self._keep(result)
        self._run_shares([task for task in todo if task.unit.plan.share_count > 1])
        self.outcome.task_count = len(self.kept)
        return self.outcome

    def end(self) -> None:
        """Removes what the job has written and not published, and what Spark keeps for it."""
        for rows in self.persisted:
            rows.unpersist()
        self.staging.remove(_WRITTEN)

    def _results(self, todo: Sequence[Dissect | Describe]) -> list[Result]:
        """The results of tasks that need no other, in their order."""
        if not todo:
            return []
        options, staging = self.options, self.staging
        rows = shuffle.started(
            self.spark, len(todo), lambda i: iter([shuffle.result_row(i, tasks.run(todo[i], options, staging))])
        )
        return [result for _, result in sorted(self.collected(rows).items())]

    def _run_shares(self, todo: Sequence[Dissect]) -> None:
        """Runs the shares of large captures, and keeps their results."""
        packs = self._ranges(sorted({task.capture_number for task in todo}))
        todo = [task for task in todo if task.capture_number in packs]
        if not todo:
            return
        shares = _ShareRows(self, packs)
        shares.run(todo)
        if wrong := shares.correct_borders():
            shares.run([task for task in todo if task.capture_number in wrong])
        shares.run([*_again(todo, shares.results)])
        results = [(task.capture_number, shares.results[task.number]) for task in todo]
        lost = {number for number, result in results if result.failed}
        results += shares.pair_deliveries(todo, [x for x in results if x[0] not in lost])
        lost |= {number for number, result in results if result.failed}
        counts: dict[int, Counter[str]] = {number: Counter() for number in packs.keys() - lost}
        for number, result in results:
            if number in counts:
                counts[number].update(result.messages)
        described = [Describe(number, self.captures[number], messages) for number, messages in sorted(counts.items())]
        results += zip(sorted(counts), self._results(described), strict=True)
        for number in sorted(counts):
            self.outcome.notes += _apart(
                self.captures[number], [x for capture_number, x in results if capture_number == number]
            )
        # If one task of a capture failed, the results of all are dropped.
        lost |= {number for number, result in results if result.failed}
        for number, result in results:
            self._keep(Result(failed=result.failed) if number in lost else result)

    def _ranges(self, numbers: Iterable[int]) -> Packs:
        """The ranges to read, by number of the capture; a capture with a file that is gone has failed."""
        packs: Packs = {}
        for number in numbers:
            capture = self.captures[number]
            try:
                packs[number] = ranges.plan_ranges(capture)
            except CaptureError as error:
                self._keep(Result(failed=[(number, one_line(error), [*capture.files])]))
        return packs

    def collected(self, rows: "DataFrame") -> dict[int, Any]:
        """The results among rows, by number of the task; Spark's errors become SparkError."""
        try:
            with executors.watched(self.spark):
                return shuffle.results(rows)
        except spark_errors() as error:
            raise SparkError(f"the job failed: {cause(str(error))}") from error

    def _keep(self, result: Result) -> None:
        """Keep a result for publication and add its counts."""
        for number, reason, files in result.failed:
            self.failed[number] = dict.fromkeys(files, reason) | self.failed.get(number, {})
            if (entry := (self.captures[number].files[0], reason)) not in self.outcome.unreadable:
                self.outcome.unreadable.append(entry)
        self.kept.append(result)
        self.outcome.flaws.update(result.flaws)
        self.outcome.problem_bytes.update(result.problem_bytes)
        self.outcome.notes += [text for text in result.notes if text not in self.outcome.notes]

    @property
    def has_read(self) -> bool:
        """Whether there is something to publish: a capture that was read to its end, or rows of a part."""
        return len(self.failed) < len(self.captures) or bool(self.files())

    def unread_files(self, unread: Iterable[tuple[str, str]]) -> list[TableFile]:
        """Files with rows of ``captures`` for inputs and files that are not captures or could not be read."""
        rows = [(name, name, reason) for name, reason in unread]
        for number, failed in self.failed.items():
            rows += [(self.captures[number].files[0], file, reason) for file, reason in failed.items()]
        files = TaskFiles(self.staging, "unread")
        for capture, path, reason in rows:
            status = "no capture" if is_no_capture(reason) else "unreadable"
            files.add("captures", unread_files(capture, [(path, reason)], status))
        return files.close()

    def files(self) -> list[TableFile]:
        """The files to publish: those of all kept results."""
        return [file for result in self.kept for file in result.files]


class _ShareRows:
    """The results of shares by number of the task, and the keys of their deliveries, which Spark keeps."""

    def __init__(self, job: _Job, packs: Packs) -> None:
        self.job, self.packs = job, packs
        self.results: dict[int, Result] = {}
        self._rows: DataFrame | None = None

    def run(self, shares: Sequence[Dissect]) -> None:
        """Run shares; the earlier results and keys of the same shares are dropped."""
        from pyspark import StorageLevel

        if not shares:
            return
        job, work = self.job, self._work(shares)
        packets = shuffle.started(job.spark, len(work.packs), partial(tasks.read_ranges, work=work))
        rows = shuffle.continued(packets, len(shares), partial(tasks.dissect_shares, work=work))
        rows = rows.persist(StorageLevel.DISK_ONLY)
        job.persisted.append(rows)
        self.results |= job.collected(rows)
        numbers = ", ".join(str(task.number) for task in shares)
        self._rows = rows if self._rows is None else self._rows.where(f"task not in ({numbers})").union(rows)

    def correct_borders(self) -> set[int]:
        """Replace ranges whose border was guessed wrong; the numbers of their captures."""
        corrected = {result.corrected[0]: result.corrected[1] for result in self.results.values() if result.corrected}
        self.packs |= {number: [(file_range,) for file_range in ranges] for number, ranges in corrected.items()}
        return {*corrected}

    def pair_deliveries(
        self, shares: Sequence[Dissect], results: Iterable[tuple[int, Result]]
    ) -> list[tuple[int, Result]]:
        """Pair the keys of shares, by their numbers of captures and results; the results of the tasks likewise."""
        pairs = {tasks.pair_number(number, protocol) for number, result in results for protocol in result.delivering}
        if not pairs:
            return []
        assert self._rows is not None
        work = self._work(shares)
        keys = self._rows.where(f"target >= 0 and major in ({', '.join(map(str, pairs))})")
        rows = shuffle.continued(keys, work.target_count, partial(tasks.pair_deliveries, work=work))
        return [item for _, of_target in sorted(self.job.collected(rows).items()) for item in of_target.items()]

    def _work(self, shares: Sequence[Dissect]) -> ShareWork:
        job, index, needed = self.job, count(), {task.capture_number for task in shares}
        packs = [
            [(next(index), number, file_range) for file_range in pack]
            for number, of_capture in self.packs.items() if number in needed for pack in of_capture
        ]  # fmt: skip
        return ShareWork(shares, packs, executors.slots(job.spark), job.options, job.staging)


def _apart(capture: Capture, results: Sequence[Result]) -> Iterator[str]:
    """A note if connections that the local export puts together may be in different shares of a capture."""
    starts = np.concatenate([result.starts for result in results])
    count = len(starts) - len(np.unique(starts)) + sum(result.missing_relatives for result in results)
    if count:
        yield (
            f"{capture.files[0]}: {plural(count, 'connection')} may have another side (of NAT, of a proxy, a subflow) "
            "in another share, and counted apart; shares=1 reads them together"
        )


def _again(shares: Sequence[Dissect], results: Mapping[int, Result]) -> Iterator[Dissect]:
    """Tasks for the shares whose rows the knowledge of other shares of their capture may change."""
    servers: dict[int, frozenset[ProvenServer]] = {}
    facts: dict[int, dict[str, tuple[SharedFact, ...]]] = {}
    for task in shares:
        number, knowledge = task.capture_number, results[task.number].knowledge
        servers[number] = servers.get(number, frozenset()) | knowledge.servers
        of_capture = facts.setdefault(number, {})
        for name, shared in knowledge.facts.items():
            of_capture[name] = of_capture.get(name, ()) + tuple(shared)
    for task in shares:
        number, result = task.capture_number, results[task.number]
        knowledge = SharedKnowledge(servers[number], facts[number]).minus(result.knowledge)
        if knowledge.is_relevant(result.missing_servers, result.lookup_keys):
            yield replace(task, knowledge=knowledge)


def _check_idle(staging: Storage) -> None:
    """Raises OutputError if another process of this machine has a job in the staging directory."""
    with suppress(ValueError, KeyError, TypeError):
        job = json.loads(staging.read(JOB) or b"")
        host, pid = job["host"], int(job["pid"])
        if host == socket.gethostname() and pid != os.getpid() and is_running(pid):
            raise OutputError(f"process {pid} is writing there: {staging.name} is its staging directory")


# Publication


def _final_names(files: Sequence[TableFile]) -> Iterator[tuple[TableFile, str]]:
    """Each file with its final name below its table; files are numbered in the order of tasks."""
    for (_, date), of_day in groupby(sorted(files, key=lambda f: f.path), lambda f: f.path.split("/")[1:3]):
        for number, file in enumerate(of_day):
            yield file, f"{date}/part-{number:05d}.parquet"


class _Local(Export):
    """Publishes on a local file system, all files at once, as an export does."""

    def publish(self, staging: Storage, files: Sequence[TableFile]) -> ExportSummary:
        self.check()  # before the files leave the staging directory
        for file, name in _final_names(files):
            self.adopt(file.table, staging.path(file.path), name, file.row_count)
        return self.commit()


class _Lake:
    """Publishes into a lake, as a single run."""

    only_new = False

    def __init__(self, lake: "Lake", recordings: "Sequence[Recording]") -> None:
        self.lake, self.recordings = lake, recordings

    def publish(self, staging: Storage, files: Sequence[TableFile]) -> ExportSummary:
        if self.only_new:
            raise OutputError(f"{self.lake.folder} stays as it was, as not all inputs can be read")
        captures = [pq.ParquetFile(staging.path(file.path)).read() for file in files if file.table == "captures"]
        row_files = [
            (staging.path(x.path), replace(x, path=name)) for x, name in _final_names(files) if x.table != "captures"
        ]
        self.lake.add_written(self.recordings, pa.concat_tables(captures), row_files)
        return ExportSummary(self.lake.folder, tuple(table_summaries(files)))


class _Remote:
    """Publishes where a directory cannot be renamed: file by file, the manifest last."""

    def __init__(self, storage: Storage, only_new: bool) -> None:
        self.only_new = only_new
        self._storage = storage
        self._earlier()

    def _earlier(self) -> list[str]:
        """The files of an earlier export; raises OutputError for foreign files and an export that must stay."""
        file_sizes = self._storage.sizes()
        manifest = (
            (self._storage.read(MANIFEST) or b"") if 0 < file_sizes.get(MANIFEST, 0) <= MAX_MANIFEST_BYTES else b""
        )
        with ThreadPoolExecutor(PARALLEL_READS) as pool:
            foreign_file = find_foreign_file(file_sizes, manifest, self._storage.input, pool.map)
        if foreign_file is not None:
            raise foreign_content_error(self._storage.name, foreign_file)
        if file_sizes and self.only_new:
            raise replace_error(self._storage.name)
        return sorted(file_sizes, key=lambda name: name != MANIFEST)

    def publish(self, staging: Storage, files: Sequence[TableFile]) -> ExportSummary:
        for name in self._earlier():
            self._storage.remove_file(name)
        published = []
        for file, name in _final_names(files):
            published.append(replace(file, path=f"{file.table}/{name}"))
            staging.move(file.path, self._storage, published[-1].path)
        self._storage.write(MANIFEST, manifest(published))
        return ExportSummary(Path(self._storage.name), tuple(table_summaries(published)))

    def abort(self) -> None:
        """Does nothing: no file was written under the final name."""
