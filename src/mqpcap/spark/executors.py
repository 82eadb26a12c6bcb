"""Watches the executors of a cluster, so that a job that cannot go on ends with a line that says why.

In: a session. Called by: ``job``. A session on one machine has no executors to wait for. A session of Spark Connect
does not show its executors.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqpcap.spark.session import SparkError, cause, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTOR_WAIT_S = 120
"""Time without an executor after which a job on a standalone cluster is given up."""
WAIT_SETTING = "spark.mqpcap.executorWait"
"""The setting of Spark that replaces it: seconds."""
LOOK_S = 0.5
"""Time between two looks at the executors."""


def check_python(spark: "SparkSession") -> None:
    """Raises SparkError if the Python of the executors cannot load this package."""
    context = _context(spark)
    if context is not None and str(context.master).startswith("local"):
        return
    try:
        with watched(spark):
            spark.range(0, 1, 1, 1).mapInArrow(_nothing, "task INT").collect()
    except spark_errors() as error:
        raise SparkError(
            f"executors cannot load mqpcap: {cause(str(error))}; name a Python that has it on all machines by "
            "PYSPARK_PYTHON or --conf spark.sql.execution.pyspark.python=PYTHON"
        ) from error


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Gives no rows; to call it, a Python worker loads this package."""
    yield from ()


@contextmanager
def watched(spark: "SparkSession") -> Iterator[None]:
    """Cancels the jobs of a standalone cluster that has no executor for some time, and raises SparkError then."""
    context = _context(spark)
    if context is None or not str(context.master).startswith("spark://"):
        yield
        return
    word = spark.conf.get(WAIT_SETTING, str(EXECUTOR_WAIT_S)) or ""
    if not re.fullmatch(r"\d{1,9}", word, re.ASCII):
        raise SparkError(f"{WAIT_SETTING} is a number of seconds, not {word!r}")
    wait_s = int(word)
    has_ended, is_given_up = threading.Event(), threading.Event()

    def watch() -> None:
        seen_s = time.monotonic()
        while not has_ended.wait(LOOK_S):
            if context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one
                seen_s = time.monotonic()
            elif time.monotonic() - seen_s > wait_s:
                is_given_up.set()
                context.cancelAllJobs()  # again and again: the job may not have begun

    watcher = threading.Thread(target=watch, name="mqpcap-executors", daemon=True)
    watcher.start()
    try:
        yield
    except spark_errors() as error:
        if not is_given_up.is_set():
            raise
        raise SparkError(
            f"no executor for {wait_s} s: {context.master} has no living worker with a free core and the memory of "
            f"an executor (--conf {WAIT_SETTING}=3600 waits an hour)"
        ) from error
    finally:
        has_ended.set()
        watcher.join()


def slots(spark: "SparkSession") -> int:
    """Number of tasks that run at the same time."""
    context = _context(spark)
    return int(spark.conf.get("spark.default.parallelism", "8") or 8 if context is None else context.defaultParallelism)


def _context(spark: "SparkSession") -> Any:
    """The context of a session; None where there is none, as in Spark Connect."""
    try:
        return spark.sparkContext
    except spark_errors(AttributeError):
        return None
