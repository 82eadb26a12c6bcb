"""The contents of a lake: recordings, gaps between their files, rows, sizes and versions."""

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")
from lakes import add, age, of_lake
from rows import records, rotated

from mqpcap.delta.contents import lake_contents
from mqpcap.errors import OutputError

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def test_contents_are_those_of_the_tables_and_the_files(tmp_path: Path) -> None:
    paths = rotated(PCAPS / "blipmq" / "qos1.pcap", tmp_path, 3)
    for path in paths:
        add(tmp_path / "lake", age(path))

    contents = lake_contents(tmp_path / "lake")

    (recording,) = contents.recordings
    assert (contents.run, recording.capture, recording.file_count) == (3, str(paths[0]), 3)
    assert recording.packets == len(records(PCAPS / "blipmq" / "qos1.pcap")[1])
    assert recording.is_open and recording.state_bytes > 0
    assert recording.gap_ns is not None and recording.gap_ns >= 0
    rows = of_lake(tmp_path / "lake")
    assert {table.name: table.row_count for table in contents.tables if table.row_count} == {
        name: len(found) for name, found in rows.items()
    }
    add(tmp_path / "lake", finish=True)
    assert not lake_contents(tmp_path / "lake").recordings[0].is_open


def test_folder_that_is_no_lake_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is no lake"):
        lake_contents(tmp_path)
