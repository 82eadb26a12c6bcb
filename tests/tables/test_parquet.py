"""Rows lie in files by table and day, and equal rows make equal bytes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exports import DAY_NS, SCHEMA, batch, contents, export, names
from hypothesis import given
from hypothesis import strategies as st

from mqpcap import __version__
from mqpcap.errors import OutputError
from mqpcap.tables import parquet
from mqpcap.tables.export import Export


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
    monkeypatch.setattr(parquet, "MAX_GROUP_ROW_COUNT", 3)
    rows = [batch(time_ns, time_ns + DAY_NS) for time_ns in range(20)]

    export(tmp_path / "one", *rows)
    export(tmp_path / "two", *rows)
    export(tmp_path / "four", *rows, threads=4)

    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "four")


def test_a_batch_of_a_whole_table_becomes_even_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_GROUP_ROW_COUNT", 4)
    rows = batch(*range(11))

    export(tmp_path / "tables", rows)

    file = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)] == [4, 4, 3]
    assert file.read().to_pylist() == rows.to_pylist()


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    export(tmp_path / "tables", *(batch(time_ns) for time_ns in range(50)))

    metadata = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata
    assert (metadata.num_rows, metadata.num_row_groups) == (50, 1)


def test_small_batches_are_merged_while_they_wait_and_the_files_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of a batch take memory beside its rows, which no count of bytes has."""
    rows = [batch(*range(k, k + 3)) for k in range(1000)]

    with Export(tmp_path / "merged") as tables:
        for some in rows:
            tables.write("messages", some, "ts_ns")
        (part,) = tables._parts.values()
        assert len(part.buffered) <= 1000 // parquet.SMALL_BATCHES + parquet.SMALL_BATCHES
        assert part.buffered_bytes == sum(some.nbytes for some in part.buffered)
        tables.commit()
    monkeypatch.setattr(parquet, "MAX_MERGED_ROW_COUNT", 0)
    export(tmp_path / "apart", *rows)
    assert contents(tmp_path / "merged") == contents(tmp_path / "apart")


def test_full_file_is_followed_by_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_GROUP_ROW_COUNT", 1)
    monkeypatch.setattr(parquet, "MAX_FILE_BYTES", 1)

    export(tmp_path / "tables", batch(1), batch(2))

    parts = sorted((tmp_path / "tables/messages/date=1970-01-01").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert [pq.ParquetFile(part).read().column("ts_ns").to_pylist() for part in parts] == [[1], [2]]


def test_open_files_are_bounded_and_no_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(parquet, "MAX_GROUP_ROW_COUNT", 1)
    days = [0, 1, 2, 3, 0, 1, 2, 3]

    summary = export(tmp_path / "tables", *(batch(day * DAY_NS) for day in days))

    assert summary.row_count == len(days)
    assert pq.read_table(tmp_path / "tables/messages").num_rows == len(days)


def test_open_days_are_bounded_and_a_day_that_comes_again_gets_a_file_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row a day, for years, must not fill the memory."""
    monkeypatch.setattr(parquet, "MAX_OPEN_DAYS", 2)
    days = [0, 1, 2, 3, 0, 1]

    with Export(tmp_path / "tables") as made:
        for day in days:
            made.write("messages", batch(day * DAY_NS), "ts_ns")
            assert len(made._parts) <= 2
        made.commit()

    files = sorted(str(x.relative_to(tmp_path / "tables/messages")) for x in tmp_path.rglob("*.parquet"))
    assert files == [
        f"date=1970-01-0{day}/part-0000{part}.parquet" for day, part in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (4, 0))
    ]
    assert sorted(pq.read_table(tmp_path / "tables/messages")["ts_ns"].to_pylist()) == sorted(d * DAY_NS for d in days)


def test_rows_of_many_days_in_one_batch_keep_their_order_within_each() -> None:
    rows = pa.RecordBatch.from_pydict({"ts_ns": [d * DAY_NS + d for d in (3, 1, 3, 2, 1)], "n": [0, 1, 2, 3, 4]})

    found = [(date, part["n"].to_pylist()) for date, part in parquet.by_date("messages", rows, "ts_ns")]

    assert found == [("1970-01-02", [1, 4]), ("1970-01-03", [3]), ("1970-01-04", [0, 2])]


def test_waiting_rows_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqpcap.tables.export.MAX_BUFFERED_BYTES", 1)

    export(tmp_path / "tables", batch(1), batch(2))

    metadata = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata
    assert metadata.num_row_groups == 2


def test_row_groups_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqpcap.tables.export.MAX_GROUP_BYTES", batch(1).nbytes + 1)

    export(tmp_path / "tables", *(batch(time_ns) for time_ns in range(5)))

    metadata = pq.ParquetFile(tmp_path / "tables/messages/date=1970-01-01/part-00000.parquet").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 2, 1]


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
@pytest.mark.parametrize("stretch_count", [parquet.MAX_SORTED_RUNS, 0])
def test_rows_of_a_group_are_in_time(
    times: list[int], wanted: str, stretch_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "MAX_SORTED_RUNS", stretch_count)
    rows = pa.table({"ts_ns": pa.array(times, pa.int64()), "name": pa.array([*"abcdef"[: len(times)]], pa.string())})
    assert "".join(parquet.sort_by_time(rows, "ts_ns")["name"].to_pylist()) == wanted


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60), st.integers(0, 40))
def test_rows_are_sorted_as_python_sorts_them(times: list[tuple[int, bool]], stretch_count: int) -> None:
    one = [None if late else time for time, late in times]
    columns = {"a": one, "b": [time for time, _ in times], "n": [*range(len(times))]}
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "MAX_SORTED_RUNS", stretch_count)
        found = parquet.sort_by_time(rows, ("a", "b"))["n"].to_pylist()
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
