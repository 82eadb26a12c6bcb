"""A stream over rotated files: each finished file once, connections carried from file to file, restarts exact."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from rows import of_dissections, rotated, texts

from mqpcap.capture import captures
from mqpcap.dissection import dissect
from mqpcap.spark import schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def drained(spark: "SparkSession", folder: Path, files: int) -> int:
    """Everything that is finished, appended to a table; how many micro-batches it took."""
    query = (
        spark.readStream.format("mqpcap").option("stateDir", str(folder / "state")).option("idleSeconds", "0")
        .option("maxFilesPerTrigger", str(files)).load(str(folder / "captures"))
        .writeStream.format("parquet").option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(200)
    assert query.exception() is None
    return len([p for p in query.recentProgress if p.numInputRows])


def test_stream_reads_each_file_once_and_carries_connections(spark: "SparkSession", tmp_path: Path) -> None:
    """Three files, a restart from the checkpoint, then the rest: the rows of the whole chain."""
    (tmp_path / "all").mkdir()
    (tmp_path / "captures").mkdir()
    files = rotated(PCAPS / "flymq/pipelining.pcap", tmp_path / "all", 6)
    for file in files[:3]:
        shutil.copy(file, tmp_path / "captures")
    first = drained(spark, tmp_path, 2)
    for file in files[3:]:
        shutil.copy(file, tmp_path / "captures")
    drained(spark, tmp_path, 5)
    again = drained(spark, tmp_path, 5)

    found = spark.read.parquet(str(tmp_path / "table")).toArrow().cast(schemas.table_schema("messages"))
    expected = of_dissections([dissect(captures([str(tmp_path / "captures")]).captures[0])])["messages"]

    assert texts([found]) == expected
    assert (first, again) == (2, 0)


def test_stream_of_a_table_that_joins_connections_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="read it as a batch"):
        (spark.readStream.format("mqpcap").option("table", "deliveries").option("stateDir", str(tmp_path / "s"))
         .load(str(PCAPS / "flymq")).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
         .trigger(availableNow=True).start().awaitTermination(100))  # fmt: skip
