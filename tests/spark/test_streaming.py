"""A stream over rotated files: each finished file once, connections carried from file to file, restarts exact."""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from rows import of_dissections, records, rotated, texts

from mqpcap.capture import captures
from mqpcap.errors import CaptureError
from mqpcap.pipeline import dissect
from mqpcap.spark import schemas
from mqpcap.spark.source import CaptureSource
from mqpcap.spark.streaming import CaptureStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def drained(spark: "SparkSession", folder: Path, files: int, table: str = "messages") -> int:
    """Everything that is finished, appended to a table; how many micro-batches it took."""
    query = (
        spark.readStream.format("mqpcap").option("stateDir", str(folder / "state")).option("idleSeconds", "0")
        .option("table", table).option("maxFilesPerTrigger", str(files)).load(str(folder / "captures"))
        .writeStream.format("parquet").option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(200)
    assert query.exception() is None
    # A micro-batch may have no row.
    return sum(p.sources[0].endOffset != p.sources[0].startOffset for p in query.recentProgress)


def streamed(spark: "SparkSession", folder: Path, table: str = "messages") -> list[str]:
    """Everything that the stream has appended."""
    return texts([spark.read.parquet(str(folder / "table")).toArrow().cast(schemas.table_schema(table))])


def streaming(folder: Path, **options: str) -> CaptureStream:
    """A stream of the files in a folder, without Spark."""
    source = CaptureSource({"path": str(folder), "stateDir": str(folder / "state"), "idleSeconds": "0"} | options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, CaptureStream)
    return reader


def later(path: Path, hours: int) -> bytes:
    """The packets of a capture, so many hours later."""
    _, packets = records(path)
    seconds = [struct.unpack_from("<I", packet)[0] + hours * 3600 for packet in packets]
    return b"".join(struct.pack("<I", s) + packet[4:] for s, packet in zip(seconds, packets, strict=True))


def test_stream_reads_each_file_once_and_carries_connections(spark: "SparkSession", tmp_path: Path) -> None:
    """Three files at two a trigger, a restart from the checkpoint, then the rest: the rows of the whole chain."""
    (tmp_path / "all").mkdir()
    (tmp_path / "captures").mkdir()
    files = rotated(PCAPS / "flymq/pipelining.pcap", tmp_path / "all", 6)
    for file in files[:3]:
        shutil.copy(file, tmp_path / "captures")
    first = drained(spark, tmp_path, 2)
    for file in files[3:]:
        shutil.copy(file, tmp_path / "captures")
    second = drained(spark, tmp_path, 5)
    again = drained(spark, tmp_path, 5)

    expected = of_dissections([dissect(captures([str(tmp_path / "captures")]).captures[0])])["messages"]

    assert streamed(spark, tmp_path) == expected
    assert (first, second, again) == (2, 1, 0)


@pytest.mark.parametrize("table", ["flymq", "connections", "problems"])
def test_other_tables_of_a_stream(spark: "SparkSession", tmp_path: Path, table: str) -> None:
    """A capture with losses in six files; files of the next days show that its connections are over.

    Rows of connections and their gaps come when the connections are over, each once; messages do not wait.
    """
    (tmp_path / "captures").mkdir()
    files = rotated(PCAPS / "faults/flymq_lost.pcap", tmp_path / "captures", 6)
    expected = of_dissections([dissect(captures([str(tmp_path / "captures")]).captures[0])])[table]
    waiting = [file.rename(tmp_path / file.name) for file in files[3:]]
    drained(spark, tmp_path, 2, table)
    early = streamed(spark, tmp_path, table)
    for file in waiting:
        file.rename(tmp_path / "captures" / file.name)
    head, _ = records(files[0])
    (tmp_path / "captures/part.pcap6").write_bytes(head + later(PCAPS / "flymq/tls.pcap", 24))
    (tmp_path / "captures/part.pcap7").write_bytes(head + later(PCAPS / "flymq/tls.pcap", 48))
    drained(spark, tmp_path, 5, table)
    found = streamed(spark, tmp_path, table)

    assert [row for row in found if "datetime.datetime(2026, 11, 21" in row] == expected
    assert bool(early) == (table == "flymq")


def test_stream_begins_anew_where_a_state_is_lost(spark: "SparkSession", tmp_path: Path) -> None:
    """The state of the last batch is gone: the files before are read again, their rows not given again."""
    (tmp_path / "captures").mkdir()
    files = rotated(PCAPS / "flymq/pipelining.pcap", tmp_path / "captures", 6)
    expected = of_dissections([dissect(captures([str(tmp_path / "captures")]).captures[0])])["messages"]
    waiting = files[4].rename(tmp_path / files[4].name), files[5].rename(tmp_path / files[5].name)
    drained(spark, tmp_path, 2)
    for state in (tmp_path / "state/messages/state").iterdir():
        state.unlink()
    for file in waiting:
        file.rename(tmp_path / "captures" / file.name)
    drained(spark, tmp_path, 2)

    assert streamed(spark, tmp_path) == expected


def test_file_written_anew_before_it_was_read_is_told(tmp_path: Path) -> None:
    """A ring of files that is faster than the stream loses rows: never in silence."""
    path = tmp_path / "a.pcap"
    shutil.copy(PCAPS / "flymq/core.pcap", path)
    stream = streaming(tmp_path, path=str(path))
    (part,) = stream.partitions({"files": 0}, stream.latestOffset({"files": 0}, stream.getDefaultReadLimit()))
    os.utime(path, ns=(0, 0))

    with pytest.raises(CaptureError, match="deleted or written anew before it was read"):
        list(stream.read(part))
    assert list(streaming(tmp_path, path=str(path), ignoreMissingFiles="true").read(part)) == []


def test_growing_file_waits_until_nobody_writes_to_it(tmp_path: Path) -> None:
    """The newest file of a chain may still grow; those before it do not."""
    rotated(PCAPS / "flymq/core.pcap", tmp_path, 3)
    (tmp_path / "notes.txt").write_text("no capture")
    stream = streaming(tmp_path, idleSeconds="3600")

    assert stream.latestOffset({"files": 0}, stream.getDefaultReadLimit()) == {"files": 2}


@pytest.mark.parametrize("permissive", [False, True])
@pytest.mark.parametrize("kind", ["named", "matched", "not opened", "in a directory"])
def test_file_that_is_no_capture_stops_a_stream_unless_permissive(tmp_path: Path, kind: str, permissive: bool) -> None:
    shutil.copy(PCAPS / "flymq/core.pcap", tmp_path / "a.pcap")
    bad = tmp_path / "b.pcap"
    if kind == "not opened":
        bad.symlink_to("b.pcap")
    else:
        bad.write_text("no capture")
    named = {"paths": json.dumps([str(tmp_path / "a.pcap"), str(bad)])}
    inputs = {"named": named, "matched": {"path": str(tmp_path / "*.pcap")}}.get(kind, {})
    stream = streaming(tmp_path, mode="permissive" if permissive else "failfast", **inputs)

    def latest() -> dict[str, int]:
        return stream.latestOffset({"files": 0}, stream.getDefaultReadLimit())

    if permissive or kind == "in a directory":
        assert latest() == latest() == {"files": 1}
    else:
        with pytest.raises(CaptureError, match=r"b\.pcap: .*; option mode=permissive reads what can be read"):
            latest()


@pytest.mark.parametrize(("options", "words"), [
    ({"table": "captures"}, "captures counts whole files: read it as a batch"),
    ({"stateDir": ""}, "needs option stateDir"),
    ({"maxFilesPerTrigger": "few"}, "maxFilesPerTrigger is a number, not 'few'"),
    ({"path": "/nowhere"}, "/nowhere: no such file"),
    ({"path": "s3://bucket/day"}, "not s3://bucket/day"),
    ({"maxFilePerTrigger": "2"}, "no option 'maxfilepertrigger': did you mean maxFilesPerTrigger"),
    ({"shares": "2"}, "option shares is for spark.read only"),
])  # fmt: skip
def test_wrong_streams_are_refused(tmp_path: Path, options: dict[str, str], words: str) -> None:
    source = CaptureSource({"stateDir": str(tmp_path), "path": str(PCAPS / "flymq"), **options})

    with pytest.raises(CaptureError, match=words):
        source.streamReader(source.schema())
