"""Recordings that Spark adds to a lake have the rows of ``mqpcap export --append --finish``, once each."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")

from click.testing import CliRunner, Result
from in_process_spark import InProcessSpark
from lakes import add, age, of_lake
from rows import Rows, merged, of_export, rotated

from mqpcap.cli import main
from mqpcap.delta import tables as delta_tables
from mqpcap.delta.contents import lake_contents
from mqpcap.spark import session, tasks

pytestmark = pytest.mark.spark
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
FAULT, KOKAQ = PCAPS / "faults" / "flymq_lost.pcap", PCAPS / "kokaq" / "go1_session.pcap"


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark only hands out tasks: it is done in this process."""
    monkeypatch.setattr(session, "session", lambda master, conf: InProcessSpark())


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A recording of several servers in five files, most connections across some of them."""
    folder = tmp_path / "captures"
    folder.mkdir()
    names = ["fq/session", "flymq/pipelining", "blipmq/qos1", "kokaq/go1_session", "msgq/split_session"]
    whole = merged([PCAPS / f"{name}.pcap" for name in names], tmp_path / "merged")
    return [age(path) for path in rotated(whole, folder, 5)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["spark", "export", *map(str, arguments)])


def export_of(*inputs: Path, out: Path) -> Rows:
    done = CliRunner().invoke(main, ["export", "-q", *map(str, inputs), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return of_export(out)


@pytest.mark.parametrize("share_count", [1, 3])
def test_recording_has_the_rows_of_the_local_export(parts: list[Path], tmp_path: Path, share_count: int) -> None:
    lake, folder = tmp_path / "lake", parts[0].parent
    rows = export_of(folder, out=tmp_path / "out")

    done = run(folder, "--append", lake, "--shares", share_count)
    again = run(folder, "--append", lake, "-q")

    assert (done.exit_code, again.exit_code) == (0, 0), done.output
    assert f"from 1 capture ({len(parts)} files)" in done.stderr
    assert again.output == ""
    assert of_lake(lake) == rows
    assert delta_tables.committed_run(lake) == 1
    assert not (tmp_path / ".lake.mqpcap-spark").exists()


def test_lake_grows_by_either_command(parts: list[Path], tmp_path: Path) -> None:
    """What Spark added is not open; what is open goes on by the local command."""
    lake = tmp_path / "lake"
    add(lake, FAULT, finish=True)
    add(lake, *parts[:2])
    before = of_lake(lake)

    refused = run(*parts, KOKAQ, "--append", lake)

    assert refused.exit_code == 1
    told = [line for line in refused.stderr.splitlines() if "takes it" in line]
    reason = f"continues {parts[0]}, which is open; mqpcap export --append {lake} takes it"
    assert told == [f"mqpcap: {path}: {reason}" for path in parts[2:]]
    assert of_lake(lake)["kokaq"] and of_lake(lake)["flymq"] == before["flymq"]
    outcome = add(lake, *parts, KOKAQ, finish=True)
    assert outcome.unreadable == []
    inputs = [parts[0].parent, KOKAQ, FAULT]
    assert of_lake(lake) == export_of(*inputs, out=tmp_path / "out")
    assert not any(recording.is_open for recording in lake_contents(lake).recordings)


def test_run_that_ends_in_its_publication_is_undone_and_done_again(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, adopt, count = tmp_path / "lake", delta_tables.LakeTables.adopt, 0

    def adopt_until_full(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        adopt(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(delta_tables.LakeTables, "adopt", adopt_until_full)
        full = run(parts[0].parent, "--append", lake)
    left = [*lake.glob("*/date=*/*.parquet")]

    assert (full.exit_code, full.stderr) == (1, f"mqpcap: cannot write {lake}: No space left on device\n")
    assert left and of_lake(lake) == {}
    assert run(parts[0].parent, "--append", lake).exit_code == 0
    assert of_lake(lake) == export_of(parts[0].parent, out=tmp_path / "out")
    assert not any(path.exists() for path in left)


def test_input_that_cannot_be_read_to_its_end_takes_no_other_with_it(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files of its recording are added, too."""
    lake, read = tmp_path / "lake", tasks.RangeReader
    add(lake, FAULT, finish=True)

    def of_a_file_that_is_gone(*arguments: object) -> object:
        parts[4].unlink(missing_ok=True)
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "RangeReader", of_a_file_that_is_gone)
    done = run(parts[0].parent, KOKAQ, "--append", lake, "--shares", 2)

    assert done.exit_code == 1
    assert f"mqpcap: {parts[4]}: " in done.stderr and "Traceback" not in done.stderr
    assert of_lake(lake) == export_of(FAULT, *parts[:4], KOKAQ, out=tmp_path / "out")


def test_file_that_fails_is_set_aside_until_it_changes(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, add = tmp_path / "lake", tasks.TaskFiles.add

    def failing(files: tasks.TaskFiles, table: str, rows: pa.Table) -> None:
        return {}["x"] if table == "kokaq" and rows.num_rows else add(files, table, rows)

    with monkeypatch.context() as patch:
        patch.setattr(tasks.TaskFiles, "add", failing)
        done = run(KOKAQ, FAULT, "--append", lake)
    again = run(KOKAQ, FAULT, "--append", lake)

    assert (done.exit_code, again.exit_code) == (1, 0)
    assert f"mqpcap: {KOKAQ}: a fault of mqpcap, KeyError: 'x'" in done.stderr
    assert f"{KOKAQ}: set aside until it changes" in again.stderr
    assert of_lake(lake) == export_of(FAULT, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "name either --out DIR or --append DIR"),
        (["x", "--out", "o", "--append", "l"], "name either --out DIR or --append DIR"),
        (["x", "--append", "l", "--allow-missing"], "--allow-missing goes with --out"),
        (["x", "--append", "s3://bucket/lake"], "s3://bucket/lake is no path of this machine"),
        (["x", "--append", "CAPTURES"], "is not empty and no lake"),
        (["CAPTURES", "--append", "LAKE", "--bodies", "none"], "was begun with another --bodies"),
    ],
)
def test_wrong_words_are_one_line(parts: list[Path], tmp_path: Path, words: list[str], message: str) -> None:
    lake = tmp_path / "lake"
    if "LAKE" in words:
        add(lake, parts[0])
    paths = {"CAPTURES": str(parts[0].parent), "LAKE": str(lake)}

    done = run(*(paths.get(word, word) for word in words))

    assert done.exit_code in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.output
