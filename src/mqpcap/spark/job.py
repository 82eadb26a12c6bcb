"""The bulk job: the tasks of a cluster write the tables of captures.

The driver plans units of work, lets Spark run them, and publishes the files of finished tasks. Spark shuffles nothing
and sees only the results of tasks. Driver and tasks write to a staging directory beside the output directory
(``.DIR.mqpcap-spark``), which all machines must see. Its ``job.json`` names the inputs and options of the plan. A job
that was killed resumes if inputs and options are the same; otherwise it starts again.

Each row is published once: every attempt of a task writes files under names of its own, and its result last. One result
of each task counts, and only the files of that result are published.
"""

import json
import os
import re
import socket
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import fs

from mqpcap import __version__
from mqpcap.capture import Capture
from mqpcap.decode.shared_facts import SharedFact
from mqpcap.errors import CaptureError, OutputError, one_line
from mqpcap.pipeline import Options
from mqpcap.spark import partitions, tasks
from mqpcap.spark.delivery_keys import DELIVERED
from mqpcap.spark.distribute import Distribution, RangeResult
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.session import SparkError
from mqpcap.spark.share import SharedKnowledge
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import Describe, Dissect, Distribute, Join, Result, Task, TaskFiles
from mqpcap.tables.captures import is_no_capture, unread_files
from mqpcap.tables.export import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Export,
    ExportSummary,
    TableFile,
    find_foreign_file,
    foreign_content_error,
    is_running,
    manifest,
    replace_error,
    table_summaries,
)
from mqpcap.tables.messages import fingerprint_seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "job.json"
PARALLEL_READS = 16
"""Files of an object store that are read at the same time."""
_STEM = r"[\w-]+-[0-9a-f]{12}"
_WRITTEN = re.compile(
    rf"job\.json|(?:done/)?\.[0-9a-f]{{32}}|done/{_STEM}\.json|packets/{_STEM}|"
    rf"data/[^/.][^/]*/date=[\d-]+/part-{_STEM}-\d{{5,}}\.parquet"
)
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
    resumed_count: int = 0
    """Tasks that an earlier run finished."""
    task_count: int = 0


def export(
    spark: "SparkSession | None",
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
    Without a session the same tasks run in this process, one after the other.
    Raises OutputError before any work if ``out`` may not be written or replaced, and SparkError if the job fails; the
    same call then resumes the job.
    """
    storage = Storage(out)
    system, path = storage.open_filesystem()
    if isinstance(system, fs.LocalFileSystem):  # a path or a file:// URI
        storage = Storage(os.path.abspath(path))
    only_new = is_missing and not allow_missing
    protected = [Path(file.path) for capture in captures for file in capture._files if "://" not in file.name]
    is_local = storage.is_local
    publication = _Local(Path(path), only_new=only_new, protected=protected) if is_local else _Remote(storage, only_new)
    staging = storage.beside(".", ".mqpcap-spark")
    try:
        job = _Job(spark, captures, options, staging)
        job.begin(share_count, slots(spark))
        outcome = job.run()
        publication.only_new = (is_missing or bool(outcome.unreadable)) and not allow_missing
        if job.has_read:
            try:
                outcome.summary = publication.publish(staging, [*job.files(), *job.unread_files(unread)])
            except OutputError as error:
                if not outcome.unreadable:
                    raise
                outcome.refusal = error  # the staging directory stays for the next run
                return outcome
    finally:
        publication.abort()
    staging.remove(_WRITTEN)
    return outcome


def slots(spark: "SparkSession | None") -> int:
    """Number of tasks that run at the same time."""
    if spark is None:
        return 1
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):  # Spark Connect has no context
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)


class _Job:
    """A job, from its plan to the files that are published."""

    def __init__(
        self, spark: "SparkSession | None", captures: Sequence[Capture], options: Options, staging: Storage
    ) -> None:
        self.spark, self.captures, self.options, self.staging = spark, captures, options, staging
        self.done: dict[str, Result] = {}
        self.kept: dict[str, Result] = {}
        self.outcome = JobOutcome(None)
        self.units: list[WorkUnit] = []
        self.failed: dict[int, dict[str, str]] = {}
        """By number of a capture that could not be read to its end: its files that are left out, with the reasons."""

    def begin(self, share_count: int | None, slot_count: int) -> None:
        """Resumes an unfinished job with the same inputs and options, or starts a new job."""
        options, staging = self.options, self.staging
        named = _named(self.captures, options, share_count)
        unfinished = _unfinished(staging)
        foreign_file = staging.find_foreign_file(_WRITTEN)
        if foreign_file is not None:
            raise foreign_content_error(staging.name, foreign_file)
        if unfinished.get("job") == named:
            slot_count, seeds = int(unfinished["slots"]), (unfinished["bases"][0], unfinished["bases"][1])
            self.done = _finished(staging)
            self.outcome.resumed_count = len(self.done)
        else:
            staging.remove(_WRITTEN)
            seeds = fingerprint_seeds()
        self.units = partitions.plan_units(self.captures, slot_count, share_count)
        self.options = replace(options, policy=replace(options.policy, seeds=seeds))
        job = {
            "tool": "mqpcap", "state": "unfinished", "host": socket.gethostname(), "pid": os.getpid(),
            "job": named, "slots": slot_count, "bases": seeds,
        }  # fmt: skip
        staging.write(JOB, json.dumps(job).encode())
        staging.hide()

    def run(self) -> JobOutcome:
        """Runs all stages; afterwards ``files`` has the files to publish."""
        todo = [Dissect(f"dissect-{i:05d}", unit) for i, unit in self._distributed().items()]
        shares: dict[int, list[tuple[Dissect, Result]]] = {}
        for task, result in zip(todo, self._stage(todo), strict=True):
            shares.setdefault(task.unit.captures[0][0], []).append((task, result))
        again = [task for share_results in shares.values() if len(share_results) > 1 for task in _again(share_results)]
        redone = {result.id: result for result in self._stage(again)}
        final_tasks: list[Task] = []
        for number, share_results in shares.items():
            # If one share could not be read, the results of all shares of the capture are dropped.
            is_lost = len(share_results) > 1 and any(result.failed for _, result in share_results)
            results = [redone.get(f"{result.id}-again", result) for _, result in share_results]
            for result in results:
                self._keep(Result(result.id, failed=result.failed) if is_lost else result)
            if len(share_results) > 1 and not is_lost:
                final_tasks += self._of_all_shares(number, results)
        for result in self._stage(final_tasks):
            self._keep(result)
        self.outcome.task_count = len(self.kept)
        return self.outcome

    def _of_all_shares(self, number: int, shares: Sequence[Result]) -> Iterator[Task]:
        """The tasks after the shares of a capture: its rows of ``captures``, and a join for each protocol."""
        counts = sum((Counter(result.messages) for result in shares), Counter[str]())
        yield Describe(f"describe-{number:05d}", number, self.captures[number], counts)
        keys = sorted((file for result in shares for file in result.keys), key=lambda file: file.table)
        for name, of_protocol in groupby(keys, lambda file: file.table.partition(".")[0]):
            files = tuple(of_protocol)
            if any(file.table.endswith(DELIVERED) for file in files):
                yield Join(f"join-{number:05d}-{name}", self.captures[number].files[0], name, files)

    def _distributed(self) -> dict[int, WorkUnit]:
        """The units by number, without unreadable captures; captures in many shares are distributed first."""
        distributions: dict[int, Distribution] = {}
        for unit in self.units:
            number, capture = unit.captures[0]
            if unit.plan.share_count < partitions.DISTRIBUTED_SHARES or unit.number:
                continue
            try:
                distributions[number] = Distribution(capture, unit.plan)
            except CaptureError as error:
                failed = number, one_line(error), [*capture.files]
                self._keep(Result(f"distribute-{number:05d}", failed=[failed]))
        for turn in count():
            todo = [
                Distribute(f"distribute-{number:05d}-{turn}-{i:05d}", number, work.capture, ranges, work.plan)
                for number, work in distributions.items() for i, ranges in enumerate(work.pending)
            ]  # fmt: skip
            if not todo:
                break
            results: dict[int, list[RangeResult]] = {}
            for task, result in zip(todo, self._stage(todo), strict=True):
                self._keep(result)
                results.setdefault(task.number, []).extend(result.ranges)
            for number, ranges in results.items():
                if number in self.failed:
                    del distributions[number]
                else:
                    distributions[number].add(ranges)
        units: dict[int, WorkUnit] = {}
        for i, unit in enumerate(self.units):
            number = unit.captures[0][0]
            if number in distributions:
                share = distributions[number].share_capture(unit.number, self.staging)
                units[i] = replace(unit, captures=((number, share),))
            elif number not in self.failed:
                units[i] = unit
        return units

    def _stage(self, stage_tasks: Sequence[Task]) -> list[Result]:
        """Runs the tasks that no earlier run has finished; the results of all, in their order."""
        todo = [task for task in stage_tasks if task.id not in self.done]
        if todo:
            self.done |= {result.id: result for result in map(tasks.result, self._texts(todo))}
        return [self.done[task.id] for task in stage_tasks]

    def _texts(self, todo: Sequence[Task]) -> list[str]:
        if self.spark is None:
            return [tasks.run(task, self.options, self.staging).text() for task in todo]
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        count, options, staging = len(todo), self.options, self.staging

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_pydict({"result": [tasks.run(todo[number], options, staging).text()]})

        try:
            # One row, so one task, in each partition; no RDD, so that it runs over Spark Connect too.
            rows = self.spark.range(0, count, 1, count).mapInArrow(work, "result string").collect()
        except (PySparkException, Py4JError) as error:
            raise SparkError(f"the job failed: {_cause(str(error))}; run it again to go on") from error
        return [row.result for row in rows]

    def _keep(self, result: Result) -> None:
        """Keep a result for publication and add its counts."""
        for number, reason, files in result.failed:
            self.failed[number] = dict.fromkeys(files, reason) | self.failed.get(number, {})
            if (entry := (self.captures[number].files[0], reason)) not in self.outcome.unreadable:
                self.outcome.unreadable.append(entry)
        self.kept[result.id] = result
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
        files = TaskFiles(self.staging, f"unread-{uuid.uuid4().hex[:12]}")
        for capture, path, reason in rows:
            status = "no capture" if is_no_capture(reason) else "unreadable"
            files.write("captures", unread_files(capture, [(path, reason)], status))
        return files.close()

    def files(self) -> list[TableFile]:
        """The files to publish: those of all kept results."""
        return [file for result in self.kept.values() for file in result.files]


def _again(shares: Sequence[tuple[Dissect, Result]]) -> Iterator[Dissect]:
    """Tasks for the shares whose rows the knowledge of other shares may change."""
    servers = frozenset(server for _, result in shares for server in result.knowledge.servers)
    facts: dict[str, tuple[SharedFact, ...]] = {}
    for name, shared in (item for _, result in shares for item in result.knowledge.facts.items()):
        facts[name] = facts.get(name, ()) + tuple(shared)
    for task, result in shares:
        knowledge = SharedKnowledge(servers, facts).minus(result.knowledge)
        if knowledge.is_relevant(result.missing_servers, result.lookup_keys):
            yield Dissect(f"{task.id}-again", task.unit, knowledge)


# Results of an earlier run


def _named(captures: Sequence[Capture], options: Options, share_count: int | None) -> dict[str, object]:
    """The inputs and options that rows depend on, as JSON reads them back."""
    files = [(f.name, f.path, *s) for c in captures for f, s in zip(c._files, partitions.written(c), strict=True)]
    policy = options.policy
    named: dict[str, object] = json.loads(json.dumps({
        "version": __version__, "inputs": files, "captures": [len(c.files) for c in captures],
        "decode_as": [[d.port, d.protocol] for d in options.decode_as], "bodies": policy.bodies,
        "show_secrets": policy.show_secrets, "memory": options.max_memory_bytes, "shares": share_count,
    }))  # fmt: skip
    return named


def _unfinished(staging: Storage) -> dict[str, Any]:
    """The description of the unfinished job in a staging directory; empty if there is none."""
    try:
        job: dict[str, Any] = json.loads(staging.read(JOB) or b"")
        host, pid = job["host"], int(job["pid"])
    except (ValueError, KeyError, TypeError):
        return {}
    if host == socket.gethostname() and pid != os.getpid() and is_running(pid):
        raise OutputError(f"process {pid} is writing there: {staging.name} is its staging directory")
    return job


def _finished(staging: Storage) -> dict[str, Result]:
    """Results of an earlier run with all of their files."""
    sizes = staging.sizes()
    results: dict[str, Result] = {}
    for name in sorted(n for n in sizes if n.startswith("done/") and n.endswith(".json")):
        with suppress(ValueError, msgspec.ValidationError):
            result = tasks.result(staging.read(name) or b"")
            if result.is_whole(sizes) and not result.failed:
                results.setdefault(result.id, result)
    return results


def _cause(text: str) -> str:
    """The line of a Spark error that names its cause: the last line of the Python traceback, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        head = line.split(":", 1)[0]
        if head.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in head:
            return line[:300]
    return lines[0][:300] if lines else "no reason given"


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
