"""Tables become visible whole or not at all, and equal rows make equal bytes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqpcap import __version__
from mqpcap.errors import OutputError
from mqpcap.tables import parquet as outputs
from mqpcap.tables.json_lines import json_object, json_text
from mqpcap.tables.parquet import Export

DAY_NS = 86_400_000_000_000
RECORDS = pa.list_(pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("connection_id", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("ts_ns", pa.int64(), metadata={b"unit": b"ns since 1970"}),
        pa.field("op", pa.string()),
        pa.field("src_port", pa.int32()),
        pa.field("resynced", pa.bool_()),
        pa.field("tag", pa.decimal128(20, 0)),
        pa.field("body", pa.binary()),
        pa.field("records", RECORDS),
    ]
)


def batch(*times_ns: int, op: str = "PUBLISH") -> pa.RecordBatch:
    rows = [
        {
            "connection_id": 7,
            "ts": time_ns // 1000,
            "ts_ns": time_ns,
            "op": op,
            "src_port": 5555,
            "resynced": False,
            "tag": Decimal(2**64 - 1),
            "body": b"\x00body",
            "records": [{"offset": 1, "key": None, "value": b"v"}],
        }
        for time_ns in times_ns
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def export(out: Path, *batches: pa.RecordBatch, threads: int = 1) -> outputs.ExportSummary:
    with Export(out, threads=threads) as tables:
        for rows in batches:
            tables.write("messages", rows, "ts_ns")
        return tables.commit()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def test_rows_lie_below_the_utc_day_of_their_time(tmp_path: Path) -> None:
    summary = export(tmp_path / "tables", batch(DAY_NS - 1, DAY_NS, -1, 5))

    assert names(tmp_path / "tables") == [
        "_mqpcap.json",
        "messages/date=1969-12-31/part-00000.parquet",
        "messages/date=1970-01-01/part-00000.parquet",
        "messages/date=1970-01-02/part-00000.parquet",
    ]
    first_day = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").read()
    assert first_day.column("ts_ns").to_pylist() == [5, DAY_NS - 1]
    assert (summary.row_count, summary.file_count) == (4, 3)


def test_values_and_field_metadata_come_back_without_a_date_column(tmp_path: Path) -> None:
    rows = batch(1, 2)

    export(tmp_path / "tables", rows)

    read = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").read()
    assert read.to_pylist() == rows.to_pylist()
    assert read.schema.equals(SCHEMA)
    assert read.schema.field("ts_ns").metadata[b"unit"] == b"ns since 1970"
    assert read.schema.metadata[b"mqpcap.version"] == __version__.encode()
    assert read.schema.metadata[b"mqpcap.schema_version"] == b"1"


def test_numbers_are_stored_as_differences_and_words_as_dictionaries(tmp_path: Path) -> None:
    export(tmp_path / "tables", batch(1, 2))

    group = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["ts_ns"].encodings
    assert "DELTA_BINARY_PACKED" in columns["ts"].encodings
    assert "DELTA_BINARY_PACKED" in columns["records.list.element.offset"].encodings
    assert not columns["tag"].has_dictionary_page
    assert columns["op"].has_dictionary_page
    assert columns["src_port"].has_dictionary_page
    assert columns["connection_id"].has_dictionary_page
    assert not columns["body"].has_dictionary_page
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert columns["ts_ns"].has_column_index


def test_ids_are_stored_as_what_differs_from_the_one_before(tmp_path: Path) -> None:
    sizes = {}
    for name in ("correlation_id", "other"):
        ids = [str(2**40 + number) for number in range(10_000)]
        rows = pa.RecordBatch.from_pydict({"ts_ns": range(10_000), name: ids})
        with Export(tmp_path / name) as tables:
            tables.write("messages", rows, "ts_ns")
            sizes[name] = tables.commit().size_bytes

        read = pq.ParquetFile(tmp_path / name / "messages/date=1970-01-01/part-00000.parquet").read()
        assert read.column(name).to_pylist() == ids

    assert sizes["correlation_id"] < sizes["other"] / 3


def test_equal_rows_make_equal_bytes_whatever_the_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_GROUP_ROW_COUNT", 3)
    rows = [batch(time_ns, time_ns + DAY_NS) for time_ns in range(20)]

    export(tmp_path / "one", *rows)
    export(tmp_path / "two", *rows)
    export(tmp_path / "four", *rows, threads=4)

    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "four")


def test_a_batch_of_a_whole_table_becomes_even_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_GROUP_ROW_COUNT", 4)
    rows = batch(*range(11))

    export(tmp_path / "tables", rows)

    file = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)] == [4, 4, 3]
    assert file.read().to_pylist() == rows.to_pylist()


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    export(tmp_path / "tables", *(batch(time_ns) for time_ns in range(50)))

    metadata = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata
    assert (metadata.num_rows, metadata.num_row_groups) == (50, 1)


def test_full_file_is_followed_by_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_GROUP_ROW_COUNT", 1)
    monkeypatch.setattr(outputs, "MAX_FILE_BYTES", 1)

    export(tmp_path / "tables", batch(1), batch(2))

    parts = sorted((tmp_path / "tables/messages/date=1970-01-01").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert [pq.ParquetFile(part).read().column("ts_ns").to_pylist() for part in parts] == [[1], [2]]


def test_open_files_are_bounded_and_no_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(outputs, "MAX_GROUP_ROW_COUNT", 1)
    days = [0, 1, 2, 3, 0, 1, 2, 3]

    summary = export(tmp_path / "tables", *(batch(day * DAY_NS) for day in days))

    assert summary.row_count == len(days)
    assert pq.read_table(tmp_path / "tables/messages").num_rows == len(days)


def test_waiting_rows_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_WAITING_BYTES", 1)

    export(tmp_path / "tables", batch(1), batch(2))

    metadata = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata
    assert metadata.num_row_groups == 2


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([1, 2, 3], "abc"),
        ([2, 1, 3], "bac"),
        ([5, 1, 9, 9, 7, 12], "bae" + "cdf"),  # two stretches, each in its place
        ([10, 7, 7, 3, 20], "dbcae"),  # one time: as they came
        ([], ""),
    ],
)
@pytest.mark.parametrize("stretch_count", [outputs.MAX_STRETCHES, 0])
def test_rows_of_a_group_are_in_time(
    times: list[int], wanted: str, stretch_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_STRETCHES", stretch_count)
    rows = pa.table({"ts_ns": pa.array(times, pa.int64()), "name": pa.array([*"abcdef"[: len(times)]], pa.string())})
    assert "".join(outputs.in_time(rows, "ts_ns")["name"].to_pylist()) == wanted


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60), st.integers(0, 40))
def test_rows_are_sorted_as_python_sorts_them(times: list[tuple[int, bool]], stretch_count: int) -> None:
    one = [None if late else time for time, late in times]
    columns = {"a": one, "b": [time for time, _ in times], "n": [*range(len(times))]}
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "MAX_STRETCHES", stretch_count)
        found = outputs.in_time(rows, ("a", "b"))["n"].to_pylist()
    assert found == sorted(range(len(times)), key=lambda n: times[n][0])


def test_what_comes_late_is_written_in_its_place(tmp_path: Path) -> None:
    export(tmp_path / "tables", batch(5, 6, 9), batch(8, 10), batch(7))
    (file,) = (tmp_path / "tables/messages").rglob("*.parquet")
    assert pq.read_table(file, partitioning=None)["ts_ns"].to_pylist() == [5, 6, 7, 8, 9, 10]


def test_first_date_column_that_is_not_null_counts(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "request_ts_ns": pa.array([None, 0], pa.int64()),
            "reply_ts_ns": pa.array([DAY_NS, 5 * DAY_NS], pa.int64()),
        }
    )

    with Export(tmp_path / "tables") as tables:
        tables.write("exchanges", rows, ("request_ts_ns", "reply_ts_ns"))
        tables.commit()

    assert sorted(path.name for path in (tmp_path / "tables/exchanges").iterdir()) == [
        "date=1970-01-01",
        "date=1970-01-02",
    ]


def test_row_without_a_date_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"ts_ns": pa.array([None], pa.int64())})

    with Export(tmp_path / "tables") as tables:
        with pytest.raises(OutputError, match="messages has a row without ts_ns"):
            tables.write("messages", rows, "ts_ns")
        with pytest.raises(OutputError, match="already"):
            tables.commit()

    assert list(tmp_path.iterdir()) == []


def test_table_with_other_columns_than_before_is_refused(tmp_path: Path) -> None:
    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(1), "ts_ns")
        with pytest.raises(OutputError, match="table messages"):
            tables.write("messages", batch(1).select(["ts_ns"]), "ts_ns")


def test_table_without_rows_is_not_written(tmp_path: Path) -> None:
    summary = export(tmp_path / "tables", batch())

    assert names(tmp_path / "tables") == ["_mqpcap.json"]
    assert summary.tables == ()


def test_nothing_is_visible_before_commit_nor_after_an_abort(tmp_path: Path) -> None:
    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(1), "ts_ns")
        assert not (tmp_path / "tables").exists()

    assert list(tmp_path.iterdir()) == []


def test_aborted_export_leaves_the_earlier_one(tmp_path: Path) -> None:
    export(tmp_path / "tables", batch(1))
    before = contents(tmp_path / "tables")

    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(2), "ts_ns")

    assert contents(tmp_path / "tables") == before
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


@pytest.mark.parametrize("exchange", [True, False])
def test_earlier_export_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    export(tmp_path / "tables", batch(1), batch(9 * DAY_NS))
    if not exchange:
        monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)

    export(tmp_path / "tables", batch(DAY_NS))

    assert names(tmp_path / "tables") == ["_mqpcap.json", "messages/date=1970-01-02/part-00000.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()

    assert export(tmp_path / "tables", batch(1)).row_count == 1


def other_file(tables: Path) -> None:
    (tables / "notes.txt").write_text("mine")


def file_beside_the_parts(tables: Path) -> None:
    (tables / "messages/date=1970-01-01/part-00001.parquet").write_bytes(b"PAR1")


def changed_part(tables: Path) -> None:
    with (tables / "messages/date=1970-01-01/part-00000.parquet").open("ab") as part:
        part.write(b"more")


def no_manifest(tables: Path) -> None:
    (tables / "_mqpcap.json").unlink()


def broken_manifest(tables: Path) -> None:
    (tables / "_mqpcap.json").write_text("[" * 100_000)


def link_to_elsewhere(tables: Path) -> None:
    (tables / "link").symlink_to(tables.parent)


def forged_manifest(tables: Path) -> None:
    """Of somebody else, or edited: it names his own file as ours."""
    (tables / "notes.txt").write_text("mine")
    name_in_manifest(tables, "notes.txt")


def forged_part(tables: Path) -> None:
    """A Parquet file of somebody else by a name of ours, and a manifest that names it."""
    pq.write_table(pa.table({"a": [1]}), tables / "messages/date=1970-01-01/part-00009.parquet")
    name_in_manifest(tables, "messages/date=1970-01-01/part-00009.parquet")


def part_elsewhere(tables: Path) -> None:
    """Ours in name, footer and manifest, but in no place where an export writes."""
    shutil.copy(tables / "messages/date=1970-01-01/part-00000.parquet", tables / "mine.parquet")
    name_in_manifest(tables, "mine.parquet")


def hidden_file(tables: Path) -> None:
    (tables / "messages/.notes").write_text("mine")


def empty_folder(tables: Path) -> None:
    (tables / "plans").mkdir()


def link_for_a_part(tables: Path) -> None:
    part = tables / "messages/date=1970-01-01/part-00000.parquet"
    part.rename(tables.parent / "elsewhere")
    part.symlink_to(tables.parent / "elsewhere")


def link_for_a_table(tables: Path) -> None:
    (tables / "messages").rename(tables.parent / "elsewhere")
    (tables / "messages").symlink_to(tables.parent / "elsewhere")


def pipe(tables: Path) -> None:
    os.mkfifo(tables / "messages/pipe")


def name_in_manifest(tables: Path, name: str) -> None:
    manifest = json.loads((tables / "_mqpcap.json").read_text())
    manifest["files"].append({"path": name, "row_count": 1, "size_bytes": (tables / name).stat().st_size})
    (tables / "_mqpcap.json").write_text(json.dumps(manifest, indent=1) + "\n")


def everything(folder: Path) -> list[tuple[str, int, bytes | None]]:
    """Every name below a folder, with its kind and bytes."""
    return sorted(
        (str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    )


CHANGES = {
    other_file: "notes.txt",
    file_beside_the_parts: "messages/date=1970-01-01/part-00001.parquet",
    changed_part: "messages/date=1970-01-01/part-00000.parquet",
    no_manifest: "messages/date=1970-01-01/part-00000.parquet",
    broken_manifest: "_mqpcap.json",
    link_to_elsewhere: "link",
    forged_manifest: "notes.txt",
    forged_part: "messages/date=1970-01-01/part-00009.parquet",
    part_elsewhere: "mine.parquet",
    hidden_file: "messages/.notes",
    empty_folder: "plans/",
    link_for_a_part: "messages/date=1970-01-01/part-00000.parquet",
    link_for_a_table: "messages",
    pipe: "messages/pipe",
}
"""What is no export, and the file that tells."""


@pytest.mark.parametrize("change", CHANGES)
def test_anything_else_in_the_directory_is_named_and_refused_before_any_work(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    export(tmp_path / "tables", batch(1))
    change(tmp_path / "tables")
    before = everything(tmp_path)

    with pytest.raises(OutputError) as refused:
        Export(tmp_path / "tables")

    assert f"holds {CHANGES[change]!r}," in str(refused.value)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_what_comes_when_all_was_looked_at_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], exchange: bool
) -> None:
    export(tmp_path / "tables", batch(1))
    if not exchange:
        monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)
    check = Export.check
    before: list[object] = []

    def changed(tables: Export) -> None:
        check(tables)
        change(tmp_path / "tables")
        before.extend(everything(tmp_path / "tables"))

    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(DAY_NS), "ts_ns")
        monkeypatch.setattr(Export, "check", changed)
        with pytest.raises(OutputError, match="holds"):
            tables.commit()

    assert everything(tmp_path / "tables") == before
    assert not list(tmp_path.glob(".tables*"))


@pytest.mark.parametrize("exchange", [True, False])
def test_link_that_comes_when_all_was_looked_at_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    export(tmp_path / "other", batch(1))
    export(tmp_path / "tables", batch(1))
    if not exchange:
        monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)
    check = Export.check

    def linked(tables: Export) -> None:
        check(tables)
        (tmp_path / "tables").rename(tmp_path / "moved")
        (tmp_path / "tables").symlink_to(tmp_path / "other")

    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(DAY_NS), "ts_ns")
        monkeypatch.setattr(Export, "check", linked)
        with pytest.raises(OutputError, match="something else"):
            tables.commit()

    assert (tmp_path / "tables").readlink() == tmp_path / "other"
    assert contents(tmp_path / "other") == contents(tmp_path / "moved") != {}


def test_file_that_comes_during_the_removal_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path / "tables", batch(1))
    remove = outputs.remove
    monkeypatch.setattr(outputs, "remove", lambda folder: ((folder / "messages/mine").write_text("m"), remove(folder)))

    export(tmp_path / "tables", batch(DAY_NS))

    (left,) = tmp_path.glob(".tables*")
    assert names(left) == ["messages/mine"]
    assert names(tmp_path / "tables") == ["_mqpcap.json", "messages/date=1970-01-02/part-00000.parquet"]


@pytest.mark.parametrize("target", ["empty", "export", "thesis", "nowhere"])
def test_directory_may_not_be_a_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "empty").mkdir()
    export(tmp_path / "export", batch(1))
    (tmp_path / "thesis").mkdir()
    other_file(tmp_path / "thesis")
    (tmp_path / "tables").symlink_to(tmp_path / target)
    before = everything(tmp_path)

    for name in ("tables", "tables/", "tables/."):
        with pytest.raises(OutputError, match="symbolic link"):
            Export(Path(f"{tmp_path}/{name}"))

    assert everything(tmp_path) == before


def test_parents_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    for time_ns in (1, DAY_NS):
        export(tmp_path / "link/tables", batch(time_ns))

    assert names(tmp_path / "real/tables") == ["_mqpcap.json", "messages/date=1970-01-02/part-00000.parquet"]


def test_export_of_which_files_were_taken_away_is_still_one(tmp_path: Path) -> None:
    export(tmp_path / "tables", batch(1), batch(DAY_NS))
    (tmp_path / "tables/messages/date=1970-01-02/part-00000.parquet").unlink()  # the day's folder stays

    export(tmp_path / "tables", batch(2 * DAY_NS))

    assert names(tmp_path / "tables") == ["_mqpcap.json", "messages/date=1970-01-03/part-00000.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_only_new_leaves_an_earlier_export_and_takes_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export(tmp_path / "tables", batch(1))
    before = contents(tmp_path / "tables")

    with pytest.raises(OutputError, match="--allow-missing"):
        Export(tmp_path / "tables", only_new=True)
    with Export(tmp_path / "tables") as tables:
        tables.only_new = True  # an input failed on the way
        with pytest.raises(OutputError, match="--allow-missing"):
            tables.commit()
    with Export(tmp_path / "empty", only_new=True) as tables:
        tables.commit()

    assert contents(tmp_path / "tables") == before
    assert names(tmp_path / "empty") == ["_mqpcap.json"]


def test_only_new_leaves_an_export_that_comes_when_all_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(tmp_path / "other", batch(1))
    check = Export.check

    def published(tables: Export) -> None:
        check(tables)
        (tmp_path / "other").rename(tmp_path / "tables")

    with Export(tmp_path / "tables", only_new=True) as tables:
        monkeypatch.setattr(Export, "check", published)
        with pytest.raises(OutputError, match="not empty"):
            tables.commit()

    assert names(tmp_path / "tables") == ["_mqpcap.json", "messages/date=1970-01-01/part-00000.parquet"]


def gone_process() -> int:
    """The number of a process that is no more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_what_a_killed_export_left_goes_but_for_what_it_did_not_write(tmp_path: Path) -> None:
    stale = tmp_path / f".tables.mqpcap-{outputs._host()}-{gone_process()}"
    export(Path(f"{stale}-0"), batch(1))
    export(Path(f"{stale}-1"), batch(1))
    other_file(Path(f"{stale}-1"))
    (tmp_path / "mine").mkdir()
    other_file(tmp_path / "mine")
    Path(f"{stale}-2").symlink_to(tmp_path / "mine")

    export(tmp_path / "tables", batch(2))

    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stale.name}-1", f"{stale.name}-2", "mine", "tables"]
    assert names(Path(f"{stale}-1")) == names(tmp_path / "mine") == ["notes.txt"]


def test_export_killed_between_two_renames_gets_its_name_back(tmp_path: Path) -> None:
    """On file systems that cannot exchange two names, as NFS, the earlier export has no name for a moment."""
    export(tmp_path / "tables", batch(1))
    before = contents(tmp_path / "tables")
    (tmp_path / "tables").rename(tmp_path / f".tables.mqpcap-{outputs._host()}-{gone_process()}-0-old")

    with Export(tmp_path / "tables"):
        pass

    assert contents(tmp_path / "tables") == before
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_what_appears_during_the_export_is_not_overwritten(tmp_path: Path) -> None:
    with Export(tmp_path / "tables") as tables:
        tables.write("messages", batch(1), "ts_ns")
        (tmp_path / "tables").mkdir()
        other_file(tmp_path / "tables")
        with pytest.raises(OutputError, match="notes"):
            tables.commit()

    assert names(tmp_path) == ["tables/notes.txt"]


def test_inputs_are_never_overwritten(tmp_path: Path) -> None:
    capture = tmp_path / "captures/broker.pcap"
    capture.parent.mkdir()
    capture.write_bytes(b"capture")

    with pytest.raises(OutputError, match="holds the input"):
        Export(tmp_path / "captures", keep=[capture])

    assert capture.read_bytes() == b"capture"


def test_working_directory_home_and_what_holds_them_are_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/user").mkdir(parents=True)
    (tmp_path / "work/here").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home/user"))
    monkeypatch.chdir(tmp_path / "work/here")

    for refused in (".", "..", str(tmp_path / "home"), str(tmp_path / "home/user")):
        with pytest.raises(OutputError, match="never replaced"):
            Export(Path(refused))


def test_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("mine")

    with pytest.raises(OutputError, match="is a file"):
        Export(tmp_path / "tables")

    assert (tmp_path / "tables").read_text() == "mine"


def test_parent_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    with pytest.raises(OutputError) as refused:
        Export(tmp_path / "file/tables")

    assert "cannot write in" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_parents_are_made(tmp_path: Path) -> None:
    export(tmp_path / "a/b/tables", batch(1))

    assert (tmp_path / "a/b/tables/_mqpcap.json").is_file()


def test_killed_export_leaves_the_earlier_one_and_the_next_cleans_up(tmp_path: Path) -> None:
    export(tmp_path / "tables", batch(1))
    before = contents(tmp_path / "tables")
    script = f"""
        import os, signal
        from pathlib import Path
        import pyarrow as pa
        from mqpcap.tables.parquet import Export
        tables = Export(Path({str(tmp_path / "tables")!r}))
        tables.write("messages", pa.RecordBatch.from_pydict({{"ts_ns": pa.array([1], pa.int64())}}), "ts_ns")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, check=False)

    assert ended.returncode == -signal.SIGKILL
    assert contents(tmp_path / "tables") == before
    assert len(list(tmp_path.glob(".tables.mqpcap-*"))) == 1
    export(tmp_path / "tables", batch(2))
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_running_exports_to_one_directory_leave_each_other_alone(tmp_path: Path) -> None:
    with Export(tmp_path / "tables") as one, Export(tmp_path / "tables") as other:
        one.write("messages", batch(1), "ts_ns")
        other.write("messages", batch(2), "ts_ns")
        one.commit()
        other.commit()

    assert pq.read_table(tmp_path / "tables/messages").column("ts_ns").to_pylist() == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_manifest_names_every_file_with_its_size(tmp_path: Path) -> None:
    summary = export(tmp_path / "tables", batch(1), batch(DAY_NS))

    manifest = json.loads((tmp_path / "tables/_mqpcap.json").read_text())
    assert {file["path"]: file["size_bytes"] for file in manifest["files"]} == {
        name: (tmp_path / "tables" / name).stat().st_size
        for name in names(tmp_path / "tables")
        if name != "_mqpcap.json"
    }
    assert summary.size_bytes == sum(file["size_bytes"] for file in manifest["files"])


def one_line(**columns: pa.Array) -> str:
    (row,) = pa.RecordBatch.from_pydict(columns).to_pylist()
    return json_text(json_object(row))


def test_line_holds_text_numbers_times_and_bytes() -> None:
    time = datetime(2026, 11, 21, 7, 0, 0, 120, tzinfo=UTC)

    line = one_line(
        ts=pa.array([time], pa.timestamp("us", tz="UTC")),
        tag=pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)),
        text=pa.array(["zażółć\n"]),
        body=pa.array([b"plain\ttext"]),
        binary=pa.array([b"\x00\xff"]),
        control=pa.array([b"\x1b[31m"]),
        nothing=pa.array([None], pa.binary()),
        hops=pa.array([["10.0.0.1"]]),
        records=pa.array([[{"offset": 1, "key": None, "value": b"\xfe"}]], RECORDS),
    )

    assert line == (
        '{"ts":"2026-11-21T07:00:00.000120Z","tag":18446744073709551615,"text":"zażółć\\n",'
        '"body":"plain\\ttext","binary_hex":"00ff","control":"\\u001b[31m",'
        '"hops":["10.0.0.1"],"records":[{"offset":1,"value_hex":"fe"}]}'
    )


def test_no_character_that_a_terminal_obeys_is_in_a_line() -> None:
    hostile = "".join(map(chr, range(0xA0))) + "\u202e\u2028\u2066"

    line = one_line(text=pa.array([hostile]))

    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or ord(char) > 0x2000 for char in line)
    assert json.loads(line) == {"text": hostile}
