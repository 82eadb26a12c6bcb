"""What a task writes: the rows of its part, under names of its own, and last of all its result."""

import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from capture_files import pcap
from dissection import dissect
from rows import of_dissections, texts

from mqpcap.capture import Capture, captures
from mqpcap.pipeline import Options
from mqpcap.spark import partitions, tasks
from mqpcap.spark.ranges import FileRange
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import Describe, Dissect, Result, ShareWork, TaskFiles

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
DAY_NS = 86_400 * 10**9


def only(path: Path) -> Capture:
    (capture,) = captures([str(path)]).captures
    return capture


def written(folder: Path, table: str) -> list[str]:
    """The rows of a table among the files of tasks."""
    return texts([ds.dataset(folder / "data" / table, format="parquet").to_table()])


def dissected(capture: Capture, storage: Storage) -> Result:
    (unit,) = partitions.plan_units([capture], 1, 1)
    return tasks.run(Dissect(0, unit), Options(), storage)


def test_rows_are_in_a_file_for_each_day_and_reported_with_its_size(tmp_path: Path) -> None:
    files = TaskFiles(Storage(str(tmp_path)), "one")
    files.add("fq", pa.table({"ts_ns": [DAY_NS + 5, 3, DAY_NS + 1]}))
    files.add("fq", pa.table({"ts_ns": [4]}))
    files.add("fq", pa.table({"ts_ns": pa.array([], pa.int64())}))
    files.add("captures", pa.table({"first_ts_ns": pa.array([None], pa.int64())}))

    made = {file.path: file for file in files.close()}

    (stem,) = {path.rpartition("part-")[2] for path in made}
    names = [f"data/{x}/part-{stem}" for x in (
        "captures/date=1970-01-01", "fq/date=1970-01-01", "fq/date=1970-01-02",
    )]  # fmt: skip
    assert sorted(made) == names == sorted(Storage(str(tmp_path)).sizes())
    assert all(file.size_bytes == (tmp_path / path).stat().st_size for path, file in made.items())
    assert [pq.read_table(tmp_path / x, partitioning=None)["ts_ns"].to_pylist() for x in names[1:]] == [
        [3, 4], [DAY_NS + 1, DAY_NS + 5],
    ]  # fmt: skip
    assert [made[x].row_count for x in names] == [1, 2, 2]


def test_much_is_encoded_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand numbers are 8000 bytes."""
    monkeypatch.setattr(tasks, "GROUP_BYTES", 2000)
    files = TaskFiles(Storage(str(tmp_path)), "one")
    files.add("fq", pa.table({"ts_ns": [*range(1000)]}))

    (file,) = files.close()

    read = pq.ParquetFile(tmp_path / file.path)
    assert [read.metadata.row_group(i).num_rows for i in range(read.num_row_groups)] == [250] * 4
    assert read.read()["ts_ns"].to_pylist() == [*range(1000)]


@pytest.mark.parametrize("name", ["fq/errors", "faults/flymq_lost"])
def test_whole_capture_has_all_its_rows_and_counts(tmp_path: Path, name: str) -> None:
    capture = only(PCAPS / f"{name}.pcap")
    whole = dissect(capture)

    made = dissected(capture, Storage(str(tmp_path)))

    messages, problems = whole.table("messages").to_pylist(), whole.table("problems").to_pylist()
    for table, expected in of_dissections([whole]).items():
        assert written(tmp_path, table) == expected, table
    assert made.messages == {capture.files[0]: len(messages)}
    assert made.flaws == Counter(row["flaw"] for row in messages if row["flaw"] is not None)
    kinds = {row["kind"] for row in problems}
    assert made.problem_bytes == {k: sum(row["length"] for row in problems if row["kind"] == k) for k in kinds}
    assert (made.delivering, made.failed, made.notes) == ([], [], [])


def test_no_attempt_writes_what_another_does(tmp_path: Path) -> None:
    capture, storage = only(PCAPS / "fq/errors.pcap"), Storage(str(tmp_path))

    paths = [[file.path for file in dissected(capture, storage).files] for _ in range(2)]

    assert len({*paths[0], *paths[1]}) == 2 * len(paths[0]) == len(storage.sizes())


def test_packets_of_an_unknown_link_type_are_reported(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(pcap([(1, b"abc"), (2, b"def")], link_type=147))

    made = dissected(only(tmp_path / "x.pcap"), Storage(str(tmp_path)))

    assert made.notes == [f"{tmp_path}/x.pcap: 2 packets: link type 147 (user 0), not read"]


def test_file_that_is_gone_fails_its_capture_and_not_the_task(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes((PCAPS / "fq/errors.pcap").read_bytes())
    capture = only(tmp_path / "x.pcap")
    (tmp_path / "x.pcap").unlink()
    storage = Storage(str(tmp_path))

    for made in dissected(capture, storage), tasks.run(Describe(0, capture, {}), Options(), storage):
        ((number, reason, files),) = made.failed
        assert (number, files, made.files) == (0, [*capture.files], [])
        assert reason.startswith(f"{capture.files[0]} cannot be read")


def test_share_knows_which_ranges_cannot_be_read(tmp_path: Path) -> None:
    """All shares of the capture are told the reason, and write nothing."""
    (tmp_path / "x.pcap").write_bytes((PCAPS / "fq/errors.pcap").read_bytes())
    capture, storage = only(tmp_path / "x.pcap"), Storage(str(tmp_path / "tables"))
    shares = [Dissect(i, unit) for i, unit in enumerate(partitions.plan_units([capture], 1, 2))]
    work = ShareWork(shares, [[(0, 0, FileRange(0, 0))]], 1, Options(), storage)
    (tmp_path / "x.pcap").unlink()

    rows = [*tasks.read_ranges(0, work)]
    results = [pickle.loads(row.content) for row in tasks.dissect_shares(iter(rows), work)]

    assert [row.target for row in rows] == [0, 1]
    reasons = [reason for result in results for _, reason, _ in result.failed]
    assert reasons == [f"{capture.files[0]} cannot be read: No such file or directory"] * 2
    assert storage.sizes() == {}
