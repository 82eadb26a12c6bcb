"""Streams captures into a lake: one query for all tables, each file read once.

In: folders that a capture process writes to. Out: a running query, and the Delta tables of a lake. Spark's file source
finds new files and keeps the time; every micro-batch is a run of `mqpcap.delta.growth.append`, on the driver. So files
are known by their content, connections go on from file to file, and a batch that Spark repeats adds nothing.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqpcap.delta.catalog import FOLDER
from mqpcap.errors import CaptureError
from mqpcap.reading import Choices, Outcome, checked_choices

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
    **options: Any,
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
    files = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    writer = files.load(folders[0] if len(folders) == 1 else folders).select("path").writeStream.foreachBatch(add.run)
    writer = writer.option("checkpointLocation", str(Path(lake).absolute() / FOLDER / "spark"))
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

    def run(self, files: "DataFrame", number: int) -> None:
        """Add the files that are there, also those that an earlier batch left because somebody wrote to them."""
        self.add()

    def add(self, finish: bool = False) -> None:
        """One run. Raises CaptureError for a file that is refused, unless permissive; all others are taken then."""
        from mqpcap.delta.growth import append

        outcome = Outcome(self.choices)
        append(self.lake, self.folders, outcome, lambda _: nullcontext(lambda _: None), finish=finish)
        for note in outcome.notes:
            self.report(note)
        refused = [": ".join(file) for file in outcome.unreadable]
        if refused and not self.permissive:
            raise CaptureError("; ".join(refused))
        for line in refused:
            self.report(line)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"mqpcap: {line}\n")
