"""The bulk job: captures to the tables of the contract, made by the tasks of a cluster.

The driver plans units of work, lets Spark run them, and publishes the files of tasks that came back; Spark
shuffles nothing and sees only the tasks' results. All is written below a staging directory beside the one asked
for (``.DIR.mqpcap-spark``), whose ``job.json`` names inputs, options and what else the plan follows from: a killed job
is taken up where it stopped if it is the same, and begun anew if not. Staging must be seen by driver and executors
alike.

How a row gets to be there once: a task writes under names that no other attempt has and its result last; of
each task one result counts, and only its files are published.
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
from mqpcap.decode.shared_facts import Fact
from mqpcap.errors import CaptureError, OutputError, one_line
from mqpcap.pipeline import Options
from mqpcap.spark import partitions, tasks
from mqpcap.spark.delivery_keys import DELIVERED
from mqpcap.spark.distribute import Distribution, RangeResult
from mqpcap.spark.partitions import WorkUnit
from mqpcap.spark.session import SparkError
from mqpcap.spark.share import Heard
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import Describe, Dissect, Distribute, Join, Result, Task, TaskFiles
from mqpcap.tables.captures import is_no_capture, unread_files
from mqpcap.tables.export import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Export,
    ExportSummary,
    TableFile,
    foreign,
    holds,
    is_running,
    manifest,
    stays,
    table_summaries,
)
from mqpcap.tables.messages import fingerprint_bases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "job.json"
LOOKS = 16
"""So many files of an object store are looked at side by side."""
_STEM = r"[\w-]+-[0-9a-f]{12}"
_WRITTEN = re.compile(
    rf"job\.json|(?:done/)?\.[0-9a-f]{{32}}|done/{_STEM}\.json|packets/{_STEM}|"
    rf"data/[^/.][^/]*/date=[\d-]+/part-{_STEM}-\d{{5,}}\.parquet"
)
"""What a job leaves in its staging directory; with anything else in it, it is none."""


@dataclass(slots=True)
class JobOutcome:
    """What a job came to; without a summary nothing was published."""

    summary: ExportSummary | None
    refusal: OutputError | None = None
    """Why it was not, where some captures could not be read and others were."""
    flaws: Counter[str] = field(default_factory=Counter)
    problem_bytes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    resumed_count: int = 0
    """Tasks that an earlier run had finished."""
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
    """The tables of captures below ``out``, a local path that all machines share, or a URI of pyarrow.fs.

    ``unread`` are other inputs, with the reason: they have rows of ``captures``.
    Nothing is published where no capture could be read, nor over an earlier export where one could not, or where
    ``is_missing`` says that an input is none of them, unless ``allow_missing``.
    Without a session the same tasks run here, one after the other.
    Raises OutputError before any work where ``out`` may not be written or replaced; SparkError where the job fails,
    and then running the same again goes on where it stopped.
    """
    storage = Storage(out)
    system, path = storage.opened()
    if isinstance(system, fs.LocalFileSystem):  # also behind file://
        storage = Storage(os.path.abspath(path))
    only_new = is_missing and not allow_missing
    keep = [Path(file.path) for capture in captures for file in capture._files if "://" not in file.name]
    is_local = storage.is_local
    publication = _Local(Path(path), only_new=only_new, keep=keep) if is_local else _Remote(storage, only_new)
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
                outcome.refusal = error  # what was made stays for the next run
                return outcome
    finally:
        publication.abort()
    staging.remove(_WRITTEN)
    return outcome


def slots(spark: "SparkSession | None") -> int:
    """Tasks that run at the same time."""
    if spark is None:
        return 1
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):  # Spark Connect has no context
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)


class _Job:
    """The stages of a job, from its plan to the files that are published."""

    def __init__(
        self, spark: "SparkSession | None", captures: Sequence[Capture], options: Options, staging: Storage
    ) -> None:
        self.spark, self.captures, self.options, self.staging = spark, captures, options, staging
        self.done: dict[str, Result] = {}
        self.kept: dict[str, Result] = {}
        self.outcome = JobOutcome(None)
        self.units: list[WorkUnit] = []
        self.failed: dict[int, dict[str, str]] = {}
        """Captures that could not be read, or not to their end, by number: their files left out, with the reasons."""

    def begin(self, share_count: int | None, slot_count: int) -> None:
        """Takes up an unfinished job of the same inputs and options, or begins a new one."""
        options, staging = self.options, self.staging
        named = _named(self.captures, options, share_count)
        found = _unfinished(staging)
        stranger = staging.stranger(_WRITTEN)
        if stranger is not None:
            raise holds(staging.name, stranger)
        if found.get("job") == named:
            slot_count, bases = int(found["slots"]), (found["bases"][0], found["bases"][1])
            self.done = _finished(staging)
            self.outcome.resumed_count = len(self.done)
        else:
            staging.remove(_WRITTEN)
            bases = fingerprint_bases()
        self.units = partitions.units(self.captures, slot_count, share_count)
        self.options = replace(options, policy=replace(options.policy, bases=bases))
        told = {
            "tool": "mqpcap", "state": "unfinished", "host": socket.gethostname(), "pid": os.getpid(),
            "job": named, "slots": slot_count, "bases": bases,
        }  # fmt: skip
        staging.write(JOB, json.dumps(told).encode())
        staging.hide()

    def run(self) -> JobOutcome:
        """All stages; what is to be published is in ``files`` then."""
        todo = [Dissect(f"dissect-{i:05d}", unit) for i, unit in self._distributed().items()]
        shares: dict[int, list[tuple[Dissect, Result]]] = {}
        for task, one in zip(todo, self._stage(todo), strict=True):
            shares.setdefault(task.unit.captures[0][0], []).append((task, one))
        again = [task for mine in shares.values() if len(mine) > 1 for task in _again(mine)]
        redone = {one.id: one for one in self._stage(again)}
        last: list[Task] = []
        for number, mine in shares.items():
            # What other shares made of a capture that one could not read is no result.
            is_lost = len(mine) > 1 and any(one.failed for _, one in mine)
            results = [redone.get(f"{one.id}-again", one) for _, one in mine]
            for one in results:
                self._keep(Result(one.id, failed=one.failed) if is_lost else one)
            if len(mine) > 1 and not is_lost:
                last += self._of_all_shares(number, results)
        for one in self._stage(last):
            self._keep(one)
        self.outcome.task_count = len(self.kept)
        return self.outcome

    def _of_all_shares(self, number: int, shares: Sequence[Result]) -> Iterator[Task]:
        """The tasks behind the shares of a capture: its rows of ``captures``, and a join for each protocol."""
        counts = sum((Counter(one.messages) for one in shares), Counter[str]())
        yield Describe(f"describe-{number:05d}", number, self.captures[number], counts)
        keys = sorted((file for one in shares for file in one.keys), key=lambda file: file.table)
        for name, of_protocol in groupby(keys, lambda file: file.table.partition(".")[0]):
            files = tuple(of_protocol)
            if any(file.table.endswith(DELIVERED) for file in files):
                yield Join(f"join-{number:05d}-{name}", self.captures[number].files[0], name, files)

    def _distributed(self) -> dict[int, WorkUnit]:
        """The units by number, those of captures in many shares with their packets; without what cannot be read."""
        distributions: dict[int, Distribution] = {}
        for unit in self.units:
            number, capture = unit.captures[0]
            if unit.cut.share_count < partitions.DISTRIBUTED_SHARES or unit.number:
                continue
            try:
                distributions[number] = Distribution(capture, unit.cut)
            except CaptureError as error:
                failed = number, one_line(error), [*capture.files]
                self._keep(Result(f"distribute-{number:05d}", failed=[failed]))
        for turn in count():
            todo = [
                Distribute(f"distribute-{number:05d}-{turn}-{i:05d}", number, one.capture, ranges, one.cut)
                for number, one in distributions.items() for i, ranges in enumerate(one.wanted)
            ]  # fmt: skip
            if not todo:
                break
            made: dict[int, list[RangeResult]] = {}
            for task, one in zip(todo, self._stage(todo), strict=True):
                self._keep(one)
                made.setdefault(task.number, []).extend(one.ranges)
            for number, ranges in made.items():
                if number in self.failed:
                    del distributions[number]
                else:
                    distributions[number].take(ranges)
        units: dict[int, WorkUnit] = {}
        for i, unit in enumerate(self.units):
            number = unit.captures[0][0]
            if number in distributions:
                share = distributions[number].share_capture(unit.number, self.staging)
                units[i] = replace(unit, captures=((number, share),))
            elif number not in self.failed:
                units[i] = unit
        return units

    def _stage(self, wanted: Sequence[Task]) -> list[Result]:
        """The results of tasks, in their order; those that an earlier run finished are taken."""
        todo = [task for task in wanted if task.id not in self.done]
        if todo:
            self.done |= {one.id: one for one in map(tasks.result, self._texts(todo))}
        return [self.done[task.id] for task in wanted]

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

    def _keep(self, one: Result) -> None:
        """Counts a result that is published."""
        for number, reason, files in one.failed:
            self.failed[number] = dict.fromkeys(files, reason) | self.failed.get(number, {})
            if (told := (self.captures[number].files[0], reason)) not in self.outcome.unreadable:
                self.outcome.unreadable.append(told)
        self.kept[one.id] = one
        self.outcome.flaws.update(one.flaws)
        self.outcome.problem_bytes.update(one.problem_bytes)
        self.outcome.notes += [text for text in one.notes if text not in self.outcome.notes]

    @property
    def has_read(self) -> bool:
        """Whether there is something to publish: a capture was read to its end, or rows of another."""
        return len(self.failed) < len(self.captures) or bool(self.files())

    def unread_files(self, unread: Iterable[tuple[str, str]]) -> list[TableFile]:
        """Files with the rows of what is no capture or could not be read: other inputs and files of captures."""
        rows = [(name, name, reason) for name, reason in unread]
        for number, failed in self.failed.items():
            rows += [(self.captures[number].files[0], file, reason) for file, reason in failed.items()]
        files = TaskFiles(self.staging, f"unread-{uuid.uuid4().hex[:12]}")
        for capture, path, reason in rows:
            status = "no capture" if is_no_capture(reason) else "unreadable"
            files.write("captures", unread_files(capture, [(path, reason)], status))
        return files.close()

    def files(self) -> list[TableFile]:
        """What is published: files of the results that count, but for captures that were not read to their end."""
        return [file for one in self.kept.values() for file in one.files]


def _again(shares: Sequence[tuple[Dissect, Result]]) -> Iterator[Dissect]:
    """Shares that asked for something which another share told."""
    servers = frozenset(server for _, one in shares for server in one.told.servers)
    facts: dict[str, tuple[Fact, ...]] = {}
    for name, told in (item for _, one in shares for item in one.told.facts.items()):
        facts[name] = facts.get(name, ()) + tuple(told)
    for task, one in shares:
        heard = Heard(servers, facts).without(one.told)
        if heard.answers(one.doubted, one.asked):
            yield Dissect(f"{task.id}-again", task.unit, heard)


# What an earlier run left


def _named(captures: Sequence[Capture], options: Options, share_count: int | None) -> dict[str, object]:
    """Inputs and options, as far as rows depend on them; as JSON reads them back."""
    files = [(f.name, f.path, *s) for c in captures for f, s in zip(c._files, partitions.written(c), strict=True)]
    policy = options.policy
    named: dict[str, object] = json.loads(json.dumps({
        "version": __version__, "inputs": files, "captures": [len(c.files) for c in captures],
        "decode_as": [[d.port, d.protocol] for d in options.decode_as], "bodies": policy.bodies,
        "show_secrets": policy.show_secrets, "memory": options.max_memory_bytes, "shares": share_count,
    }))  # fmt: skip
    return named


def _unfinished(staging: Storage) -> dict[str, Any]:
    """What the job that was begun there says of itself; nothing where there is none."""
    try:
        found: dict[str, Any] = json.loads(staging.read(JOB) or b"")
        host, pid = found["host"], int(found["pid"])
    except (ValueError, KeyError, TypeError):
        return {}
    if host == socket.gethostname() and pid != os.getpid() and is_running(pid):
        raise OutputError(f"process {pid} is writing there: {staging.name} is its staging directory")
    return found


def _finished(staging: Storage) -> dict[str, Result]:
    """Results of an earlier run whose files are all there."""
    sizes = staging.sizes()
    found: dict[str, Result] = {}
    for name in sorted(n for n in sizes if n.startswith("done/") and n.endswith(".json")):
        with suppress(ValueError, msgspec.ValidationError):
            one = tasks.result(staging.read(name) or b"")
            if one.is_whole(sizes) and not one.failed:
                found.setdefault(one.id, one)
    return found


def _cause(text: str) -> str:
    """What is worth telling of a Spark error: the last line of the Python traceback in it, or its first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        head = line.split(":", 1)[0]
        if head.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in head:
            return line[:300]
    return lines[0][:300] if lines else "no reason given"


# Publication


def _final_names(files: Sequence[TableFile]) -> Iterator[tuple[TableFile, str]]:
    """Each file with its place below its table: numbered in the order of tasks."""
    for (_, date), of_day in groupby(sorted(files, key=lambda f: f.path), lambda f: f.path.split("/")[1:3]):
        for number, file in enumerate(of_day):
            yield file, f"{date}/part-{number:05d}.parquet"


class _Local(Export):
    """Publication on the file system: all at once, as an export does."""

    def publish(self, staging: Storage, files: Sequence[TableFile]) -> ExportSummary:
        self.check()  # before the files leave the staging directory
        for file, name in _final_names(files):
            self.adopt(file.table, staging.path(file.path), name, file.row_count)
        return self.commit()


class _Remote:
    """Publication where a directory cannot be renamed: file by file, the manifest last."""

    def __init__(self, storage: Storage, only_new: bool) -> None:
        self.only_new = only_new
        self._storage = storage
        self._earlier()

    def _earlier(self) -> list[str]:
        """The files of an earlier export; raises OutputError where anything else is, or it is to stay."""
        found = self._storage.sizes()
        manifest = (self._storage.read(MANIFEST) or b"") if 0 < found.get(MANIFEST, 0) <= MAX_MANIFEST_BYTES else b""
        with ThreadPoolExecutor(LOOKS) as pool:
            stranger = foreign(found, manifest, self._storage.input, pool.map)
        if stranger is not None:
            raise holds(self._storage.name, stranger)
        if found and self.only_new:
            raise stays(self._storage.name)
        return sorted(found, key=lambda name: name != MANIFEST)

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
        """Nothing was written yet under the name asked for."""
