"""Groups of captures become the same files whether processes share the work or not."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import of_export, rotated

from mqpcap import parallel_export as groups
from mqpcap.capture import captures, windows
from mqpcap.errors import OutputError
from mqpcap.reading import Choices, Outcome
from mqpcap.tables.export import MANIFEST, Export

PCAPS = Path(__file__).parents[1] / "pcaps"
SOME = ["blipmq/qos1.pcap", "flymq/fetch.pcap", "fq/session.pcap", "kokaq/go1_session.pcap"]


def exported(out: Path, jobs: int, names: list[str]) -> tuple[dict[str, bytes], list[Outcome], list[int]]:
    read: list[int] = []
    each = [[capture] for capture in captures(names).captures]
    with Export(out) as tables:
        told = []
        for folder, one in groups.written_in_groups(each, Choices(jobs=jobs), tables.scratch, read.append):
            told.append(replace(one, choices=Choices()))
            tables.adopt_all(folder, f"{folder.name}-")
        tables.commit()
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*.parquet")}, told, read


def test_processes_write_what_one_writes(tmp_path: Path) -> None:
    names = [str(PCAPS / name) for name in SOME]
    alone, told, read = exported(tmp_path / "one", 1, names)
    together, told_together, read_together = exported(tmp_path / "two", 2, names)

    assert alone == together
    assert told == told_together
    assert sum(read) == sum(read_together) > 0
    assert sorted(os.listdir(tmp_path / "two")) == sorted({MANIFEST, *(name.split("/")[0] for name in alone)})


def test_all_groups_are_in_the_manifest_under_names_of_their_own(tmp_path: Path) -> None:
    files, told, _ = exported(tmp_path / "out", 2, [str(PCAPS / name) for name in SOME])

    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert {file["path"] for file in manifest["files"]} == set(files)
    assert {Path(name).name[:5] for name in files if name.startswith("messages/")} == {f"{k:05d}" for k in range(4)}
    assert [one.dissected_count for one in told] == [1, 1, 1, 1]


def test_a_missing_capture_is_reported_and_the_others_are_written(tmp_path: Path) -> None:
    copies = []
    for k, name in enumerate(SOME[:2]):
        copies.append(tmp_path / f"{k}.pcap")
        copies[-1].write_bytes((PCAPS / name).read_bytes())
    found = captures([str(copy) for copy in copies]).captures
    copies[0].unlink()

    done = list(groups.written_in_groups([[c] for c in found], Choices(jobs=2), tmp_path / "scratch", lambda n: None))

    assert [one.dissected_count for _, one in done] == [0, 1]
    assert [name for name, _ in done[0][1].unreadable] == [str(copies[0])]


class Death:
    """Ends the process that is given it."""

    files = ("death.pcap",)
    is_pipe = False

    def __reduce__(self) -> object:
        return os._exit, (3,)


def test_capture_that_ends_its_process_takes_no_other_with_it(tmp_path: Path) -> None:
    """Its group is read again capture by capture, so that the one to blame is known."""
    good = captures([str(PCAPS / name) for name in SOME[:3]]).captures
    tasks = [[good[0], Death()], [good[1]], [Death()], [good[2]]]

    done = list(groups.written_in_groups(tasks, Choices(jobs=2), tmp_path, lambda n: None))  # type: ignore[arg-type]

    assert sum(one.dissected_count for _, one in done) == 3
    reason = "exit code 3 of the process that read it"
    assert [failed for _, one in done for failed in one.failed] == [(("death.pcap",), reason)] * 2


@pytest.mark.parametrize("group_bytes", [1, 1 << 20])
def test_capture_that_fails_is_named_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    """A fault while the second of four captures is read, in a group of its own or with the others."""
    names = [str(PCAPS / name) for name in SOME]
    others = [name for name in names if name != names[1]]
    monkeypatch.setattr(groups, "GROUP_BYTES", group_bytes)
    groups.export_captures(captures(others).captures, tmp_path / "others", Outcome(Choices()), lambda n: None, False)
    make = groups._pipeline

    def with_fault(capture: Any, outcome: Any, write: Any, worker: Any) -> Any:
        pipeline, finished = make(capture, outcome, write, worker)
        return pipeline, (lambda: {}["x"]) if capture.files == (names[1],) else finished

    monkeypatch.setattr(groups, "_pipeline", with_fault)
    outcome = Outcome(Choices(jobs=1))
    assert groups.export_captures(captures(names).captures, tmp_path / "out", outcome, lambda n: None, False)

    reason = "a fault of mqpcap, KeyError: 'x'"
    assert outcome.unreadable == [(names[1], reason)]
    rows, expected = of_export(tmp_path / "out"), of_export(tmp_path / "others")
    (failed,) = {*rows.pop("captures")} - {*expected.pop("captures")}
    assert failed.count(f"'{names[1]}'") == 2 and "'unreadable'" in failed and reason in failed
    assert rows == expected


def test_a_full_or_forbidden_disk_is_reported_by_the_process_that_met_it(tmp_path: Path) -> None:
    found = captures([str(PCAPS / name) for name in SOME[:2]]).captures
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match="file"):
        list(groups.written_in_groups([[c] for c in found], Choices(jobs=2), tmp_path / "file", lambda n: None))


def test_captures_are_grouped_by_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = captures([str(PCAPS / name) for name in SOME]).captures
    sizes = [os.stat(c.files[0]).st_size for c in found]
    monkeypatch.setattr(groups, "GROUP_BYTES", sizes[0] + 1)

    assert [c for group in groups.grouped(found) for c in group] == list(found)
    assert [c.files for c in groups.grouped(found)[0]] == [found[0].files, found[1].files]
    monkeypatch.undo()
    assert len(groups.grouped(found)) == 1


@pytest.mark.parametrize(
    "name", ["fq/midstream.pcap", "flymq/core.pcap", "kokaq/go1_pipelined.pcap", "blipmq/wal500.pcap"]
)
def test_a_capture_is_written_the_same_with_and_without_a_background_thread(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2000)  # so that many pieces are given while others are read
    files = []
    for jobs in (1, 3):
        with Export(tmp_path / str(jobs), threads=jobs) as tables:
            groups.written(captures([str(PCAPS / name)]).captures, Outcome(Choices(jobs=jobs)), tables, lambda n: None)
            tables.commit()
        files.append({p.relative_to(tmp_path / str(jobs)): p.read_bytes() for p in tmp_path.rglob(f"{jobs}/*/*/*")})

    assert files[0] == files[1] and files[0]


def test_a_failure_in_the_background_ends_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: object, rows: object) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr("mqpcap.tables.parquet._write_group", full)
    monkeypatch.setattr("mqpcap.tables.export.MAX_BUFFERED_BYTES", 0)
    found = captures([str(PCAPS / "blipmq/wal500.pcap")]).captures
    with pytest.raises(OutputError, match="no space left"), Export(tmp_path / "out", threads=2) as tables:
        groups.written(found, Outcome(Choices(jobs=2)), tables, lambda n: None)
        tables.commit()
    assert not os.listdir(tmp_path)


def test_file_that_begins_inside_connections_of_a_file_beside_it_is_noted(tmp_path: Path) -> None:
    """Two connections in four files; the whole folder and the first file need no note."""
    (tmp_path / "in").mkdir()
    files = rotated(PCAPS / "fq/session.pcap", tmp_path / "in", 4)

    def notes(*names: Path) -> list[str]:
        outcome = Outcome(Choices())
        with Export(tmp_path / "out") as tables:
            groups.write_captures(captures([*map(str, names)]).captures, outcome, tables, lambda size_bytes: None)
        return [note for note in outcome.notes if "begins inside" in note]

    assert notes(files[2]) == [
        f"{files[2]}: begins inside 2 connections, and {files[1]} lies beside it; name the folder, or use --append"
    ]
    assert notes(files[0]) == notes(tmp_path / "in") == []
