"""The tables of a lake: what counts, what a killed run leaves, and their upkeep."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")
from click.testing import CliRunner
from lakes import add, age, of_lake
from rows import of_export, rotated

import mqpcap
from mqpcap.cli import main
from mqpcap.delta import tables
from mqpcap.errors import OutputError
from mqpcap.protocols import protocols
from mqpcap.tables.schemas import TABLES

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of four runs."""
    for path in rotated(PCAPS / "flymq" / "groups.pcap", tmp_path, 4):
        add(tmp_path / "lake", age(path))
    add(tmp_path / "lake", finish=True)
    return tmp_path / "lake"


@pytest.mark.parametrize("table", [*TABLES, *protocols()])
def test_columns_have_comments_and_the_day(table: str) -> None:
    fields = json.loads(tables.delta_schema(table).to_json())["fields"]

    assert [field["name"] for field in fields][-1] == "date"
    assert all(field["metadata"]["comment"] for field in fields)


def test_days_are_partitions_and_files_know_their_times(lake: Path) -> None:
    actions = pa.table(deltalake.DeltaTable(lake / "messages").get_add_actions(flatten=True)).to_pylist()

    for action in actions:
        rows = pq.ParquetFile(lake / "messages" / action["path"]).read()
        assert action["partition.date"] == rows["ts"][0].as_py().date()
        assert action["num_records"] == rows.num_rows
        assert (action["min.ts_ns"], action["max.ts_ns"]) == (
            min(rows["ts_ns"].to_pylist()),
            max(rows["ts_ns"].to_pylist()),
        )


def test_the_day_is_a_date_as_in_an_export(lake: Path, tmp_path: Path) -> None:
    """So filters and unions carry over; DuckDB and Polars take the type from the folders of an export."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    mqpcap.export(str(PCAPS / "flymq" / "groups.pcap"), tmp_path / "out")
    grown, exported = polars.scan_delta(lake / "messages"), polars.scan_parquet(tmp_path / "out/messages")

    assert deltalake.DeltaTable(lake / "messages").schema().to_arrow().field("date").type == pa.date32()
    both = polars.concat([grown.select("date", "op"), exported.select("date", "op")])
    day = both.collect()["date"][0]
    assert both.filter(polars.col("date") == day).collect().height == 2 * exported.collect().height
    types = duckdb.sql(
        f"SELECT DISTINCT typeof(date) FROM read_parquet('{tmp_path}/out/messages/*/*.parquet')"
    ).fetchall()
    assert types == [("DATE",)]


def test_file_of_a_table_that_cannot_be_read_is_one_line(lake: Path, tmp_path: Path) -> None:
    """A missing file and a damaged one, for ``lake --optimize`` and ``ask``; a newer table format and a damaged log."""
    for number, damage in enumerate((Path.unlink, lambda path: path.write_bytes(b"PAR1 no more PAR1"))):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(lake, copy)
        damage(sorted((copy / "exchanges").glob("*/*.parquet"))[0])
        for words in (["lake", copy, "--optimize"], ["ask", "slowest", copy]):
            done = CliRunner().invoke(main, [*map(str, words)])
            assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
            assert "exchanges" in done.stderr and "cannot write" not in done.stderr
    log = sorted((lake / "exchanges" / "_delta_log").glob("*.json"))[-1]
    newer = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}
    log.write_text(log.read_text() + json.dumps(newer) + "\n")
    for words in (["lake", lake], ["ask", "slowest", lake]):
        done = CliRunner().invoke(main, [*map(str, words)])
        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), (words, done.output)
    log.write_text("no JSON\n")
    for words in (["lake", lake], ["ask", "slowest", lake]):
        done = CliRunner().invoke(main, [*map(str, words)])
        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), (words, done.output)


def test_symbolic_link_to_a_lake_is_asked_and_not_written(lake: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(lake, target_is_directory=True)

    asked = CliRunner().invoke(main, ["ask", "slowest", str(link), "--json"])
    grown = CliRunner().invoke(main, ["export", "--finish", "--append", str(link)])

    assert (asked.exit_code, len(asked.stdout.splitlines())) == (0, 10)
    assert CliRunner().invoke(main, ["lake", str(link)]).exit_code == 0
    line = f"mqpcap: {link} is a symbolic link; name the directory it leads to\n"
    assert (grown.exit_code, grown.stderr.splitlines(keepends=True)[-1]) == (
        1,
        line,
    )  # a note where nothing is compiled


def test_run_that_does_not_count_is_undone(lake: Path) -> None:
    before = of_lake(lake)
    run = tables.committed_run(lake)
    later = tables.LakeTables(lake, run + 1)
    rows = pq.ParquetFile(next((lake / "messages").glob("*/*.parquet"))).read()
    later.write("messages", rows, "ts_ns")
    later.close()
    later._commit("messages", later.files, [])
    (lake / "messages" / "date=2026-01-01").mkdir()
    orphan = lake / "messages" / "date=2026-01-01" / f"part-{run + 1:06d}-00000000-00000.parquet"
    orphan.touch()
    assert of_lake(lake) != before

    tables.undo(lake, run)

    assert of_lake(lake) == before
    assert not orphan.exists()
    assert not (lake / "messages" / later.files[0].path).exists()


def test_optimizing_keeps_the_rows_and_sorts_them(lake: Path) -> None:
    before = of_lake(lake)

    changed = {name: (old, new) for name, old, new in tables.optimize(lake, tables.committed_run(lake))}

    assert changed["messages"][0] > changed["messages"][1] == 1
    assert of_lake(lake) == before
    (path,) = [path for path, _ in tables._active(tables.opened(lake, "messages"))]  # type: ignore[arg-type]
    times = pq.ParquetFile(lake / "messages" / path).read()["ts_ns"].to_pylist()
    assert times == sorted(times)
    assert [*tables.optimize(lake, 9)] == []


def test_vacuum_deletes_what_no_version_needs(lake: Path) -> None:
    before = of_lake(lake)
    list(tables.optimize(lake, tables.committed_run(lake)))

    assert tables.vacuum(lake, 168) == 0
    assert tables.vacuum(lake, 0) > 0

    assert of_lake(lake) == before
    assert len([*(lake / "messages").glob("*/*.parquet")]) == 1


def test_rows_of_a_capture_are_removed(tmp_path: Path) -> None:
    for name in ("fq/session", "fq/errors"):
        add(tmp_path / "lake", PCAPS / f"{name}.pcap", finish=True)

    tables.remove_rows(tmp_path / "lake", str(PCAPS / "fq" / "errors.pcap"))

    main.main(
        ["export", "-q", str(PCAPS / "fq" / "session.pcap"), "--out", str(tmp_path / "out")], standalone_mode=False
    )
    rows, expected = of_lake(tmp_path / "lake"), of_export(tmp_path / "out")
    assert {name: rows[name] for name in expected if name != "captures"} == {
        name: rows for name, rows in expected.items() if name != "captures"
    }


def test_files_that_a_removal_rewrote_are_optimized(tmp_path: Path) -> None:
    """What is left of a file of two captures has the table format's own types, as string_view."""
    lake = tmp_path / "lake"
    for path in (PCAPS / "fq" / "session.pcap", PCAPS / "fq" / "errors.pcap", PCAPS / "blipmq" / "qos1.pcap"):
        add(lake, path)
    add(lake, finish=True)
    tables.remove_rows(lake, str(PCAPS / "fq" / "errors.pcap"))
    before = of_lake(lake)

    changed = {name: (old, new) for name, old, new in tables.optimize(lake, tables.committed_run(lake))}

    assert changed["messages"][0] > changed["messages"][1] == 1
    assert of_lake(lake) == before


def test_errors_of_the_table_format_are_one_line(lake: Path) -> None:
    log = next((lake / "messages" / "_delta_log").glob("*.json"))
    log.write_text("{")

    with pytest.raises(OutputError) as error, tables.declared_errors(lake):
        tables.opened(lake, "messages")

    assert len(str(error.value).splitlines()) == 1
