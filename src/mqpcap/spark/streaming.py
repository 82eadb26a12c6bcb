"""Streams captures into a lake: one query for all tables, each file read once.

In: folders that a capture process writes to. Out: a running query, and the Delta tables of a lake. Spark's file source
finds new files and keeps the time; every micro-batch is a run of `mqpcap.delta.growth.append`, on the driver. So files
are known by their content, connections go on from file to file, and a batch that Spark repeats adds nothing.

A batch leaves the newest file to the next one, as somebody may write to it, and Spark runs no batch without a new file.
So each batch has a *tick* written after a time of quiet: an empty file in a folder of the lake that is streamed, too.
"""

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Unpack
from uuid import uuid4

from mqpcap.delta.catalog import FOLDER
from mqpcap.errors import CaptureError
from mqpcap.reading import Choices, Outcome, ReadingOptions, checked_choices, no_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FILES = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The columns of Spark's format ``binaryFile``; none of them is read."""


def stream_to_lake(
    spark: "SparkSession",
    inputs: str | Sequence[str],
    lake: str | Path,
    *,
    finish: bool = False,
    permissive: bool = False,
    every: str = "1 minute",
    report: Callable[[str], None] | None = None,
    **options: Unpack[ReadingOptions],
) -> "StreamingQuery":
    """A query that adds the captures in folders to a lake, as ``mqpcap export INPUT... --append LAKE`` does.

    - finish: takes the files that are there, ends their recordings, and returns when it is done.
    - permissive: files that are late, damaged or gone are reported; else they stop the query.
    - every: the time between two looks for files.
    - report: is given each note, as a line; by default it goes to stderr.
    - options: as in ``mqpcap.open``.
    """
    folders = [inputs] if isinstance(inputs, str) else list(inputs)
    add = _Addition(folders, Path(lake), checked_choices(**options), permissive, report or _to_stderr)
    lake_folder = Path(lake).absolute() / FOLDER
    add.tick()
    files = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    streams = [files.load(folder).select("path") for folder in (*folders, str(lake_folder / "ticks"))]
    writer = reduce(lambda a, b: a.union(b), streams).writeStream.foreachBatch(add.run)
    # A checkpoint holds for a number of folders.
    writer = writer.option("checkpointLocation", str(lake_folder / f"stream-{len(folders)}"))
    if not finish:
        return writer.trigger(processingTime=every).start()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    add.add(finish=True)
    return query


class _Addition:
    """The work of a micro-batch."""

    def __init__(
        self, folders: Sequence[str], lake: Path, choices: Choices, permissive: bool, report: Callable[[str], None]
    ) -> None:
        self.folders, self.lake, self.choices = folders, lake, choices
        self.permissive, self.report = permissive, report
        self._ticks = lake / FOLDER / "ticks"
        self._timer: Timer | None = None
        self._reported: set[str] = set()
        """The lines of the last run."""

    def run(self, files: "DataFrame", number: int) -> None:
        """Add the files that are there, also those that an earlier batch left because somebody wrote to them."""
        from mqpcap.delta.growth import IDLE_S

        if self._timer is not None:
            self._timer.cancel()
        self.add()
        self._timer = Timer(IDLE_S + 1, self.tick)
        self._timer.daemon = True
        self._timer.start()

    def tick(self) -> None:
        """Make Spark run a batch."""
        self._ticks.mkdir(parents=True, exist_ok=True)
        for old in self._ticks.iterdir():
            old.unlink()
        (self._ticks / uuid4().hex).touch()

    def add(self, finish: bool = False) -> None:
        """One run. Unless permissive, raises CaptureError for a refused file, after the good files are taken."""
        from mqpcap.delta.growth import append

        outcome = Outcome(self.choices)
        append(self.lake, self.folders, outcome, lambda _: no_progress, finish=finish)
        refused = [": ".join(file) for file in outcome.unreadable]
        lines = dict.fromkeys([*outcome.notes, *(refused if self.permissive else [])])
        for line in lines:
            if line not in self._reported:
                self.report(line)
        self._reported = {*lines}
        if refused and not self.permissive:
            raise CaptureError("; ".join(refused))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"mqpcap: {line}\n")
