"""Inputs and outputs behind URIs are those of local paths."""

import json
from pathlib import Path

import pytest
from rows import of_dissections, of_export, rotated

from mqpcap.capture import captures
from mqpcap.dissection import Options, dissect
from mqpcap.errors import OutputError
from mqpcap.spark import job, plan

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def without_names(rows: dict[str, list[str]], folder: str) -> dict[str, list[str]]:
    return {table: sorted(row.replace(folder, "") for row in found) for table, found in rows.items()}


def test_captures_behind_uris_are_chained_and_sorted_out(tmp_path: Path) -> None:
    rotated(PCAPS / "flymq/core.pcap", tmp_path, 3)
    (tmp_path / "notes.txt").write_text("no capture")

    found = plan.found([f"file://{tmp_path}", "file:///nowhere/x.pcap"])

    assert [capture.files for capture in found.captures] == [
        tuple(f"file://{tmp_path}/part.pcap{n}" for n in ("", "1", "2"))
    ]
    assert [name for name, _ in found.skipped] == [f"file://{tmp_path}/notes.txt"]
    assert [name for name, _ in found.unreadable] == ["file:///nowhere/x.pcap"]


def test_glob_in_a_uri() -> None:
    found = plan.found([f"file://{PCAPS}/flymq/[cf]*.pcap"])

    expected = sorted(path.name for path in (PCAPS / "flymq").glob("[cf]*.pcap"))
    assert [Path(capture.files[0]).name for capture in found.captures] == expected


def test_export_from_and_to_uris_is_the_local_one(tmp_path: Path) -> None:
    rotated(PCAPS / "fq/session.pcap", tmp_path, 3)
    out = f"file://{tmp_path}/out/tables"

    for _ in range(2):  # the second replaces the first
        made = job.export(None, plan.found([f"file://{tmp_path}"]).captures, out, Options(), share_count=2)

    expected = of_dissections([dissect(captures([str(tmp_path)]).captures[0])])
    assert without_names(of_export(tmp_path / "out/tables"), "file://") == expected
    manifest = json.loads((tmp_path / "out/tables/_mqpcap.json").read_text())
    assert made.summary is not None
    assert sum(file["row_count"] for file in manifest["files"]) == made.summary.row_count
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tables"]


def test_something_else_behind_the_uri_stays(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/thesis.txt").write_text("mine")

    with pytest.raises(OutputError, match="--overwrite"):
        job.export(None, plan.found([str(PCAPS / "flymq/core.pcap")]).captures, f"file://{tmp_path}/tables", Options())
