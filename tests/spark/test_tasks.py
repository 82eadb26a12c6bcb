"""What a task writes: the rows of its part, under names of its own, and last of all its result."""

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from capture_files import pcap
from rows import of_dissections, texts

from mqpcap.capture import Capture, ResumePoint, captures
from mqpcap.pipeline import Options, dissect
from mqpcap.spark import partitions, tasks
from mqpcap.spark.distribute import FileRange, RangeResult
from mqpcap.spark.share import SharedKnowledge
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import Describe, Dissect, Join, Result, TaskFiles
from mqpcap.tables.export import TableFile

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
DAY_NS = 86_400 * 10**9
FILE = TableFile("data/fq/date=1970-01-01/part-a.parquet", "fq", 3, 700)


def only(path: Path) -> Capture:
    (capture,) = captures([str(path)]).captures
    return capture


def written(folder: Path, table: str) -> list[str]:
    """The rows of a table among the files of tasks."""
    return texts([ds.dataset(folder / "data" / table, format="parquet").to_table()])


def dissected(capture: Capture, storage: Storage, share_count: int = 1) -> list[Result]:
    units = partitions.plan_units([capture], 1, share_count)
    return [tasks.run(Dissect(f"dissect-{unit.number}", unit), Options(), storage) for unit in units]


def test_result_comes_out_of_its_json_as_it_was() -> None:
    """Also with the name of a file that is no UTF-8."""
    told = SharedKnowledge(
        frozenset({(("fq", "10.0.0.1", 8765), 12)}), {"fq": (("key", "10.0.0.1", 8765, 5, "user", 7),)}
    )
    ranges = [
        RangeResult(FileRange(0, 24), None, ResumePoint(99), "packets/x", 4, None, ("a note",), (((0, 7), (1, 0)),))
    ]
    one = Result("dissect-00000", [FILE], [], ranges, told, [("fq", "10.0.0.1", 8765)], [("fq", "key")])
    one.messages, one.failed = {"a\udcff.pcap": 3}, [(0, "gone", ["a\udcff.pcap"])]

    assert tasks.result(one.text()) == one
    assert tasks.result(one.text().encode()) == one


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"[]", b"\xff", b'{"id": 1}', b'{"id": "a", "files": [3]}'])
def test_what_is_no_result_is_an_error_of_two_kinds(text: bytes) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        tasks.result(text)


@pytest.mark.parametrize(("sizes", "is_whole"), [
    ({FILE.path: 700, "packets/x": 9, "done/of another": 1}, True), ({FILE.path: 700}, False),
    ({FILE.path: 699, "packets/x": 9}, False), ({"packets/x": 9}, False), ({}, False),
])  # fmt: skip
def test_result_is_whole_where_all_its_files_are(sizes: dict[str, int], is_whole: bool) -> None:
    """A range in which nothing was found has none."""
    ranges = [RangeResult(FileRange(0, 0), None, ResumePoint(24), name) for name in ("packets/x", "")]

    assert Result("a", keys=[FILE], ranges=ranges).is_whole(sizes) is is_whole


def test_rows_are_in_a_file_for_each_day_and_told_with_its_size(tmp_path: Path) -> None:
    files = TaskFiles(Storage(str(tmp_path)), "one-0123456789ab")
    files.write("fq", pa.table({"ts_ns": [DAY_NS + 5, 3, DAY_NS + 1]}))
    files.write("fq", pa.table({"ts_ns": [4]}))
    files.write("fq", pa.table({"ts_ns": pa.array([], pa.int64())}))
    files.write("captures", pa.table({"first_ts_ns": pa.array([None], pa.int64())}))

    made = {file.path: file for file in files.close()}

    names = [f"data/{x}/part-one-0123456789ab-00000.parquet" for x in (
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
    files.write("fq", pa.table({"ts_ns": [*range(1000)]}))

    (file,) = files.close()

    read = pq.ParquetFile(tmp_path / file.path)
    assert [read.metadata.row_group(i).num_rows for i in range(read.num_row_groups)] == [250] * 4
    assert read.read()["ts_ns"].to_pylist() == [*range(1000)]


@pytest.mark.parametrize("name", ["fq/errors", "faults/flymq_lost"])
def test_whole_capture_has_all_its_rows_and_counts(tmp_path: Path, name: str) -> None:
    capture = only(PCAPS / f"{name}.pcap")
    whole = dissect(capture)

    (made,) = dissected(capture, Storage(str(tmp_path)))

    messages, problems = whole.table("messages").to_pylist(), whole.table("problems").to_pylist()
    for table, expected in of_dissections([whole]).items():
        assert written(tmp_path, table) == expected, table
    assert made.messages == {capture.files[0]: len(messages)}
    assert made.flaws == Counter(row["flaw"] for row in messages if row["flaw"] is not None)
    kinds = {row["kind"] for row in problems}
    assert made.problem_bytes == {k: sum(row["length"] for row in problems if row["kind"] == k) for k in kinds}
    assert (made.keys, made.failed, made.notes) == ([], [], [])


def test_result_is_left_last_and_no_attempt_writes_what_another_does(tmp_path: Path) -> None:
    capture, storage = only(PCAPS / "fq/errors.pcap"), Storage(str(tmp_path))

    (one,), (two,) = dissected(capture, storage), dissected(capture, storage)

    paths = [[file.path for file in made.files] for made in (one, two)]
    assert len({*paths[0], *paths[1]}) == 2 * len(paths[0])
    done = sorted(path.read_text() for path in (tmp_path / "done").iterdir())
    assert done == sorted([one.text(), two.text()])
    assert one.is_whole(storage.sizes()) and two.is_whole(storage.sizes())
    assert len(storage.sizes()) == 2 * len(paths[0]) + 2


def test_packets_of_an_unknown_link_type_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(pcap([(1, b"abc"), (2, b"def")], link_type=147))

    (made,) = dissected(only(tmp_path / "x.pcap"), Storage(str(tmp_path)))

    assert made.notes == [f"{tmp_path}/x.pcap: 2 packets: link type 147 (user 0), not read"]


def test_file_that_is_gone_fails_its_capture_and_not_the_task(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes((PCAPS / "fq/errors.pcap").read_bytes())
    capture = only(tmp_path / "x.pcap")
    (tmp_path / "x.pcap").unlink()
    storage = Storage(str(tmp_path))

    made = [*dissected(capture, storage), tasks.run(Describe("describe", 0, capture, {}), Options(), storage)]

    for one in made:
        ((number, reason, files),) = one.failed
        assert (number, files, one.files) == (0, [*capture.files], [])
        assert reason.startswith(f"{capture.files[0]} cannot be read")


def test_shares_leave_keys_that_a_join_makes_deliveries_of(tmp_path: Path) -> None:
    """And no row of captures: that is made when all are done."""
    capture, storage = only(PCAPS / "blipmq/synthetic_v2_plain.pcap"), Storage(str(tmp_path))
    whole = of_dissections([dissect(capture)])

    shares = dissected(capture, storage, share_count=2)
    tables = {file.table for one in shares for file in one.files}
    counts = sum((Counter(one.messages) for one in shares), Counter[str]())
    keys = tuple(file for one in shares for file in one.keys)
    tasks.run(Join("join", capture.files[0], "blipmq", keys), Options(), storage)
    tasks.run(Describe("describe", 0, capture, counts), Options(), storage)

    assert not tables & {"captures", "deliveries"}
    assert {file.table for file in keys} == {"blipmq.published", "blipmq.delivered"}
    for table in ("messages", "exchanges", "deliveries", "captures"):
        assert written(tmp_path, table) == whole[table], table
