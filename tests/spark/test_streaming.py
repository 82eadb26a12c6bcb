"""A stream puts the files of a rotating capture into a lake: all tables by one query, each file once."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra spark)")
pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")

from click.testing import CliRunner
from lakes import age, of_lake
from rows import of_export, rotated

from mqpcap.cli import main
from mqpcap.delta import growth
from mqpcap.delta.catalog import FOLDER
from mqpcap.delta.contents import lake_contents
from mqpcap.errors import CaptureError
from mqpcap.reading import checked_choices
from mqpcap.spark.streaming import _Addition, stream_to_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A recording in four files, the last two of them elsewhere."""
    for name in ("captures", "later"):
        (tmp_path / name).mkdir()
    paths = [age(path) for path in rotated(PCAPS / "flymq" / "groups.pcap", tmp_path / "captures", 4)]
    return [*paths[:2], *(path.rename(tmp_path / "later" / path.name) for path in paths[2:])]


def arrive(path: Path) -> Path:
    return path.rename(path.parents[1] / "captures" / path.name)


def test_one_query_fills_all_tables_over_restarts_of_the_stream(
    spark: "SparkSession", parts: list[Path], tmp_path: Path
) -> None:
    folder, lake, notes = str(tmp_path / "captures"), tmp_path / "lake", list[str]()
    query = stream_to_lake(spark, folder, lake, every="0 seconds", report=notes.append)
    query.processAllAvailable()
    assert lake_contents(lake).recordings[0].file_count == 2
    arrive(parts[2])
    query.processAllAvailable()
    query.stop()
    assert lake_contents(lake).recordings[0].file_count == 3
    arrive(parts[3])

    stream_to_lake(spark, folder, lake, finish=True, report=notes.append)

    assert CliRunner().invoke(main, ["export", "-q", folder, "--out", str(tmp_path / "out")]).exit_code == 0
    assert of_lake(lake) == of_export(tmp_path / "out")
    assert notes == []


def test_last_file_of_a_ring_is_taken_after_a_time_of_quiet(
    spark: "SparkSession", parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file comes after it, in either of two folders."""
    monkeypatch.setattr(growth, "IDLE_S", 2)
    lake, folders = tmp_path / "lake", [str(tmp_path / name) for name in ("captures", "later")]
    os.utime(parts[3])  # now

    query = stream_to_lake(spark, folders, lake, every="0 seconds", report=[].append)
    try:
        until = time.monotonic() + 1200
        while not [*(lake / FOLDER).glob("*.json")] or _file_count(lake) < 4:
            assert query.isActive and time.monotonic() < until
            time.sleep(0.1)
    finally:
        query.stop()


def _file_count(lake: Path) -> int:
    return sum(recording.file_count for recording in lake_contents(lake).recordings)


def test_repeated_batch_adds_nothing_and_late_files_stop_it(parts: list[Path], tmp_path: Path) -> None:
    lake, notes = tmp_path / "lake", list[str]()
    arrive(parts[3])
    (tmp_path / "captures" / parts[1].name).rename(tmp_path / "later" / parts[1].name)
    strict, lenient = (
        _Addition([str(tmp_path / "captures")], lake, checked_choices(), permissive, notes.append)
        for permissive in (False, True)
    )
    strict.add()
    before = of_lake(lake)

    strict.add()

    assert of_lake(lake) == before
    (tmp_path / "later" / parts[1].name).rename(parts[1])
    with pytest.raises(CaptureError, match="older than those of"):
        strict.add()
    lenient.add()
    assert of_lake(lake) == before
    assert ["older than those of" in note for note in notes] == [True]
    lenient.add()
    assert len(notes) == 1  # said once
    arrive(parts[2])
    lenient.add()
    assert of_lake(lake) == before and len(notes) == 2


def test_file_after_a_late_one_is_taken(parts: list[Path], tmp_path: Path) -> None:
    lake, notes = tmp_path / "lake", list[str]()
    arrive(parts[2])
    parts[0].rename(tmp_path / "later" / parts[0].name)
    lenient = _Addition([str(tmp_path / "captures")], lake, checked_choices(), True, notes.append)
    lenient.add()
    (tmp_path / "later" / parts[0].name).rename(parts[0])
    arrive(parts[3])

    lenient.add()

    assert _file_count(lake) == 3
    assert [note.partition(":")[0] for note in notes] == [str(parts[0])]
