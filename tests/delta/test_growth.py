"""A lake that grows has the rows of one export of everything, whatever happens on the way."""

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")
from click.testing import CliRunner
from lakes import add, age, of_lake
from rows import Rows, of_export, records, rotated

from mqpcap.cli import main
from mqpcap.delta import catalog, growth
from mqpcap.delta import tables as delta_tables
from mqpcap.delta.growth import Lake
from mqpcap.errors import OutputError

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def export_of(*inputs: Path, out: Path) -> Rows:
    done = CliRunner().invoke(main, ["export", "-q", *map(str, inputs), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return of_export(out)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A recording in five files, long finished."""
    folder = tmp_path / "captures"
    folder.mkdir()
    return [age(path) for path in rotated(PCAPS / "blipmq" / "qos1.pcap", folder, 5)]


@pytest.fixture
def whole(parts: list[Path], tmp_path: Path) -> Rows:
    """The rows of one export of the whole recording."""
    return export_of(parts[0].parent, out=tmp_path / "whole")


@pytest.mark.parametrize("steps", [[1, 2, 3, 4, 5], [3, 5], [5]])
def test_rows_are_those_of_the_whole(parts: list[Path], whole: Rows, tmp_path: Path, steps: list[int]) -> None:
    """The folder grows; each run names the whole folder, as a cron job does."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for path in parts:
        path.rename(hidden / path.name)
    for count in steps:
        for path in parts[:count]:
            if not path.exists():
                (hidden / path.name).rename(path)
        outcome = add(tmp_path / "lake", parts[0].parent, finish=count == 5)
        assert outcome.unreadable == []

    assert of_lake(tmp_path / "lake") == whole


def test_all_captures_of_the_samples_are_those_of_one_export(tmp_path: Path) -> None:
    add(tmp_path / "lake", PCAPS / "fq", PCAPS / "kokaq", finish=True)
    add(tmp_path / "lake", PCAPS / "fq", PCAPS / "msgq", finish=True)

    inputs = [PCAPS / name for name in ("fq", "kokaq", "msgq")]
    assert of_lake(tmp_path / "lake") == export_of(*inputs, out=tmp_path / "out")


def test_small_captures_that_are_read_together_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first packets of samples come in one run and keep their packets as state; the next packets come later."""
    folder, later = tmp_path / "captures", tmp_path / "later"
    kept: list[int] = []
    state_of_packets = growth.state_of_packets
    monkeypatch.setattr(
        growth, "state_of_packets", lambda window, files: kept.append(len(files)) or state_of_packets(window, files)
    )
    for number, sample in enumerate(sorted(PCAPS.glob("*/*.pcap"))[::2]):
        head, packets = records(sample)
        (begun := folder / f"{number:02}").mkdir(parents=True)
        (hidden := later / f"{number:02}").mkdir(parents=True)
        (begun / "c.pcap").write_bytes(head + b"".join(packets[:23]))
        age(begun / "c.pcap", 7200)
        if number % 3:
            (hidden / "c.pcap1").write_bytes(head + b"".join(packets[23:50]))
            age(hidden / "c.pcap1")

    add(tmp_path / "lake", folder)
    for path in later.glob("*/*"):
        path.rename(folder / path.relative_to(later))
    add(tmp_path / "lake", folder)
    add(tmp_path / "lake", finish=True)

    assert len(kept) > 10
    assert of_lake(tmp_path / "lake") == export_of(folder, out=tmp_path / "whole")


def test_small_captures_with_bytes_missing_at_their_end_go_on(tmp_path: Path) -> None:
    """What waits for missing bytes holds rows back: they were written twice, by the run that ended the recordings."""
    for sample in PCAPS.glob("faults/*.pcap"):
        (tmp_path / "captures").mkdir(exist_ok=True)
        age(Path(shutil.copy(sample, tmp_path / "captures")), 7200)

    add(tmp_path / "lake", tmp_path / "captures")
    add(tmp_path / "lake", finish=True)

    assert of_lake(tmp_path / "lake") == export_of(tmp_path / "captures", out=tmp_path / "whole")


def test_small_captures_of_an_archive_leave_no_state(tmp_path: Path) -> None:
    """More captures than are read together, with --finish: the rows of an export in one run."""
    head, packets = records(PCAPS / "blipmq" / "qos1.pcap")
    for number in range(9):
        (folder := tmp_path / "captures" / str(number)).mkdir(parents=True)
        (folder / "c.pcap").write_bytes(head + b"".join(packets[number : 30 + number]))

    add(tmp_path / "lake", tmp_path / "captures", finish=True)

    assert [*(tmp_path / "lake" / catalog.FOLDER).glob("*.state")] == []
    assert of_lake(tmp_path / "lake") == export_of(tmp_path / "captures", out=tmp_path / "whole")


def test_file_is_taken_once_whatever_its_name(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "lake", *parts[:3])
    before = of_lake(tmp_path / "lake")
    packed = parts[1].with_name("other.gz")
    packed.write_bytes(gzip.compress(parts[1].read_bytes()))
    copy = parts[2].with_name("copy")
    shutil.copy(parts[2], copy)
    age(parts[0], 10)  # touched

    outcome = add(tmp_path / "lake", packed, copy, *parts[:3])

    assert of_lake(tmp_path / "lake") == before
    assert outcome.unreadable == []
    expected = {packed: parts[1], copy: parts[2], parts[0]: parts[0]}
    assert outcome.notes == [f"{path}: was taken as {taken}" for path, taken in expected.items()]
    again = add(tmp_path / "lake", packed, copy, *parts[:3])
    assert (again.notes, again.unreadable) == ([], [])  # they are known by path, size and time, too


def test_two_copies_of_a_new_file_are_one(parts: list[Path], tmp_path: Path) -> None:
    copy = parts[0].with_name("copy")
    shutil.copy(parts[0], copy)

    outcome = add(tmp_path / "lake", parts[0], age(copy))

    assert outcome.notes == [f"{copy}: has the packets of {parts[0]}"]
    assert outcome.file_count == 1


def test_late_file_is_refused_until_its_recording_is_taken_anew(parts: list[Path], whole: Rows, tmp_path: Path) -> None:
    add(tmp_path / "lake", parts[0], parts[2])
    before = of_lake(tmp_path / "lake")

    outcome = add(tmp_path / "lake", *parts[:3])

    ((_, reason),) = [x for x in outcome.unreadable if x[0] == str(parts[1])]
    assert "older than those of" in reason and "--rebuild" in reason
    assert of_lake(tmp_path / "lake") == before
    add(tmp_path / "lake", *parts, rebuild=True)
    add(tmp_path / "lake", finish=True)
    assert of_lake(tmp_path / "lake") == whole


def test_recording_with_a_file_that_is_gone_is_not_taken_anew(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "lake", parts[0], parts[2])
    before = of_lake(tmp_path / "lake")
    parts[0].unlink()

    with pytest.raises(OutputError, match="is gone"):
        add(tmp_path / "lake", parts[1], rebuild=True)

    assert of_lake(tmp_path / "lake") == before


def test_later_files_of_a_recording_are_taken_beside_a_late_one(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "lake", parts[0], parts[2])

    outcome = add(tmp_path / "lake", *parts)

    reason = f"its packets are older than those of {parts[2]}, which was taken before it"
    assert outcome.unreadable == [(str(parts[1]), f"{reason}; --rebuild takes that recording anew")]
    with Lake(tmp_path / "lake") as lake:
        (recording,) = lake.catalog.recordings
    assert [file.path for file in recording.files] == [str(parts[k]) for k in (0, 2, 3, 4)]


def cut_at_a_record(path: Path, keep: int) -> bytes:
    """The first packets of a capture, and nothing after them."""
    data, end = path.read_bytes(), 24
    for _ in range(keep):
        end += 16 + int.from_bytes(data[end + 8 : end + 12], "little")
    return data[:end]


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("keep", [20, 80])
def test_recording_of_a_file_that_grew_is_taken_anew(
    parts: list[Path], whole: Rows, tmp_path: Path, keep: int, rebuild: bool
) -> None:
    """The third file was quiet for an hour after ``keep`` packets; the fourth came meanwhile."""
    content = parts[2].read_bytes()
    parts[2].write_bytes(cut_at_a_record(parts[2], keep))
    add(tmp_path / "lake", *parts[:2], age(parts[2]), parts[3])
    parts[2].write_bytes(content)
    age(parts[2])

    outcome = add(tmp_path / "lake", *parts, rebuild=rebuild)

    assert outcome.unreadable == []
    add(tmp_path / "lake", finish=True)
    assert of_lake(tmp_path / "lake") == whole


def test_file_that_was_renamed_and_grew_replaces_its_begin(parts: list[Path], whole: Rows, tmp_path: Path) -> None:
    old = parts[4].with_name("part.pcap9")
    old.write_bytes(cut_at_a_record(parts[4], 70))
    content = parts[4].read_bytes()
    parts[4].unlink()
    add(tmp_path / "lake", *parts[:4], age(old))
    old.unlink()
    parts[4].write_bytes(content)

    assert add(tmp_path / "lake", age(parts[4])).unreadable == []

    add(tmp_path / "lake", finish=True)
    assert of_lake(tmp_path / "lake") == whole


def test_grown_file_of_a_recording_with_a_file_that_is_gone_is_refused(parts: list[Path], tmp_path: Path) -> None:
    content = parts[1].read_bytes()
    parts[1].write_bytes(cut_at_a_record(parts[1], 70))
    add(tmp_path / "lake", parts[0], age(parts[1]))
    before = of_lake(tmp_path / "lake")
    parts[1].write_bytes(content)
    parts[0].unlink()

    outcome = add(tmp_path / "lake", age(parts[1]))

    assert outcome.unreadable == [(str(parts[1]), f"grew after it was taken, but {parts[0]} of its recording is gone")]
    assert of_lake(tmp_path / "lake") == before


def test_copy_of_the_begin_of_a_taken_file_is_refused(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "lake", parts[0])
    copy = parts[0].with_name("begin.pcap")
    copy.write_bytes(cut_at_a_record(parts[0], 70))

    outcome = add(tmp_path / "lake", age(copy))

    reason = f"begins as {parts[0]}, which was taken, but has other packets; --remove takes {parts[0]} out"
    assert outcome.unreadable == [(str(copy), reason)]


def test_newest_file_whose_last_record_is_cut_is_left_until_the_end(
    parts: list[Path], whole: Rows, tmp_path: Path
) -> None:
    """A program's buffer has the rest of the record, however long ago it wrote."""
    content = parts[2].read_bytes()
    parts[2].write_bytes(content[:-200])

    outcome = add(tmp_path / "lake", *parts[:2], age(parts[2]))

    note = f"{parts[2]}: left until it is longer, as its last record is cut; --finish takes it"
    assert (outcome.notes, outcome.file_count) == ([note], 2)
    parts[2].write_bytes(content)
    age(parts[2])
    add(tmp_path / "lake", *parts, finish=True)
    assert of_lake(tmp_path / "lake") == whole


def test_file_that_may_still_be_written_is_left(parts: list[Path], tmp_path: Path) -> None:
    age(parts[2], 5)

    outcome = add(tmp_path / "lake", *parts[:3])

    assert outcome.notes == [f"{parts[2]}: left for the next run, as it was written 5 s ago"]
    assert outcome.file_count == 2
    assert add(tmp_path / "lake", *parts[:3], finish=True).file_count == 1  # the archive ends, so it is complete


def test_earlier_files_are_not_needed_any_more(parts: list[Path], whole: Rows, tmp_path: Path) -> None:
    """A run reads its new files and the state, nothing else: so its cost does not grow with the history."""
    for path in parts:
        add(tmp_path / "lake", path, finish=path == parts[-1])
        path.unlink()

    assert of_lake(tmp_path / "lake") == whole


def test_old_states_and_catalogs_go(parts: list[Path], tmp_path: Path) -> None:
    for path in parts:
        add(tmp_path / "lake", path)

    own = sorted(path.name for path in (tmp_path / "lake" / catalog.FOLDER).glob("[0-9]*"))
    assert [name for name in own if name.endswith(".json")] == ["000004.json", "000005.json"]
    assert [name[:6] for name in own if name.endswith(".state")] == ["000004", "000005"]


def test_removed_capture_has_no_row_and_may_come_again(parts: list[Path], whole: Rows, tmp_path: Path) -> None:
    add(tmp_path / "lake", PCAPS / "fq" / "session.pcap", *parts[:2])
    with Lake(tmp_path / "lake") as lake:
        assert lake.remove(str(parts[0])) == 2
    assert of_lake(tmp_path / "lake").keys() == {"captures", "fq", "messages", "exchanges", "deliveries"}

    with Lake(tmp_path / "lake") as lake:
        lake.remove(str(PCAPS / "fq" / "session.pcap"))
        with pytest.raises(OutputError, match="has no capture"):
            lake.remove("x")
    assert of_lake(tmp_path / "lake") == {}

    add(tmp_path / "lake", *parts, finish=True)
    assert of_lake(tmp_path / "lake") == whole


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake"), pytest.raises(OutputError, match="another process writes to"):
        Lake(tmp_path / "lake")
    Lake(tmp_path / "lake").__exit__(None, None, None)  # and the first has let go


@pytest.mark.parametrize("kind", ["new file", "taken file", "no file", "late file"])
def test_other_options_are_refused_and_nothing_changes(parts: list[Path], tmp_path: Path, kind: str) -> None:
    add(tmp_path / "lake", parts[1])
    before = of_lake(tmp_path / "lake")
    inputs = {"new file": parts[2:], "taken file": parts[1:2], "no file": [], "late file": parts[:1]}[kind]

    with pytest.raises(OutputError, match="begun with another --bodies"):
        add(tmp_path / "lake", *inputs, bodies=0, rebuild=kind == "late file")

    assert of_lake(tmp_path / "lake") == before


@pytest.mark.parametrize("kind", ["file", "export", "foreign"])
def test_folder_that_is_no_lake_is_refused_and_stays(parts: list[Path], tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "other"
    if kind == "export":
        export_of(parts[0], out=folder)
    elif kind == "foreign":
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
    else:
        folder.write_text("mine")
    before = sorted(path.name for path in tmp_path.rglob("*"))

    with pytest.raises(OutputError):
        add(folder, parts[0])

    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_export_does_not_replace_a_lake(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "lake", parts[0])
    before = of_lake(tmp_path / "lake")

    done = CliRunner().invoke(main, ["export", "-q", str(parts[1]), "--out", str(tmp_path / "lake")])

    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert of_lake(tmp_path / "lake") == before


def test_damaged_capture_among_good_ones_hides_none(parts: list[Path], tmp_path: Path) -> None:
    bad = parts[0].with_name("bad.pcap")
    bad.write_bytes(b"no capture at all")
    age(bad)

    outcome = add(tmp_path / "lake", bad, parts[0], PCAPS / "fq" / "session.pcap")

    assert [name for name, _ in outcome.unreadable] == [str(bad)]
    assert {"blipmq", "fq"} <= of_lake(tmp_path / "lake").keys()


@pytest.mark.parametrize("begun", [0, 2])
def test_file_that_fails_while_it_is_read_is_set_aside_until_it_changes(
    parts: list[Path], whole: Rows, tmp_path: Path, begun: int
) -> None:
    """The disk fails in the third file of five; whole again, it is late, and its recording is taken anew."""
    lake, folder, bad = tmp_path / "lake", parts[0].parent, str(parts[2])
    add(lake, *parts[:begun])
    read, fingerprint = growth.read, growth.full_fingerprint

    def failing_read(pipeline: Any, *others: Any) -> bool:
        return fingerprint("/nowhere") if bad in pipeline.capture.files else read(pipeline, *others)  # type: ignore[return-value]

    def failing_fingerprint(path: str) -> str:
        return fingerprint("/nowhere" if path == bad else path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "read", failing_read)
        patch.setattr(growth, "full_fingerprint", failing_fingerprint)
        outcome = add(lake, folder)

    reason = "/nowhere cannot be read: No such file or directory"
    assert outcome.unreadable == [(bad, reason)]
    with Lake(lake) as grown:
        assert [file.path for _, file in grown.catalog.files()] == [str(path) for path in parts if str(path) != bad]
    again = add(lake, folder)
    assert (again.unreadable, again.notes) == ([], [f"{bad}: set aside until it changes; {reason}"])
    age(parts[2], 1000)
    assert [name for name, _ in add(lake, folder).unreadable] == [bad]
    add(lake, folder, rebuild=True)
    add(lake, finish=True)
    assert of_lake(lake) == whole


def test_file_that_is_no_capture_is_named_once(parts: list[Path], tmp_path: Path) -> None:
    bad = parts[0].with_name("bad.pcap")
    bad.write_bytes(b"no capture at all")
    age(bad)

    first, second = (add(tmp_path / "lake", bad, parts[0]) for _ in range(2))

    ((name, reason),) = first.unreadable
    assert (name, second.unreadable) == (str(bad), [])
    assert second.notes == [f"{bad}: set aside until it changes; {reason}"]


def test_fault_while_a_capture_is_read_takes_no_other_with_it(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = PCAPS / "fq" / "session.pcap"
    read = growth.read

    def with_fault(pipeline: Any, *others: Any) -> bool:
        return {}["x"] if pipeline.capture.files[-1] == str(bad) else read(pipeline, *others)

    monkeypatch.setattr(growth, "read", with_fault)
    outcome = add(tmp_path / "lake", *parts[:2], bad, finish=True)

    assert outcome.unreadable == [(str(bad), "a fault of mqpcap, KeyError: 'x'")]
    assert of_lake(tmp_path / "lake") == export_of(*parts[:2], out=tmp_path / "out")


def test_inputs_that_all_fail_leave_no_lake(tmp_path: Path) -> None:
    outcome = add(tmp_path / "lake", tmp_path / "nowhere.pcap")

    assert outcome.unreadable == [(str(tmp_path / "nowhere.pcap"), "no such file")]
    assert not (tmp_path / "lake").exists()


class Killed(BaseException):
    """The process ends here; nothing behind it runs but what an operating system does."""


class Steps:
    """Ends the process at its n-th step that changes the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        for owner, name in (
            (os, "fsync"), (Path, "rename"), (Path, "unlink"), (delta_tables.LakeTables, "_create"),
            (delta_tables.LakeTables, "_close_file"), (delta_tables.LakeTables, "_commit"),
            (delta_tables, "remove_rows"), (growth.Lake, "_forget_old"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self._step(getattr(owner, name)))

    def _step(self, function: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return function(*args, **kwargs)

        return step


def killed_at_each_step(begun: Path, run: Callable[[Path], None]) -> Iterator[tuple[int, Path]]:
    """Copies of a lake in which a run was killed at its first step, its second, and so on; in the last it was not."""
    for step in range(200):
        lake = begun.with_name(f"lake{step}")
        shutil.copytree(begun, lake)
        with pytest.MonkeyPatch.context() as patch:
            Steps(patch, step)
            try:
                run(lake)
            except Killed:
                is_killed = True
            else:
                is_killed = False
        Lake(lake).__exit__(None, None, None)  # what a next run finds
        yield step, lake
        shutil.rmtree(lake)
        if not is_killed:
            return


def test_killed_at_any_step_and_run_again_has_the_rows_of_the_whole(
    parts: list[Path], whole: Rows, tmp_path: Path
) -> None:
    """The second run is killed at its first step, its second, and so on until it is not killed; then one more run."""
    add(tmp_path / "begun", *parts[:2])
    begun = of_lake(tmp_path / "begun")
    for step, lake in killed_at_each_step(tmp_path / "begun", lambda lake: add(lake, *parts[:4])):
        if delta_tables.committed_run(lake) == 1:
            assert of_lake(lake) == begun, step
        add(lake, *parts, finish=True)
        assert of_lake(lake) == whole, step
    assert step > 10


def test_removal_that_is_killed_is_done_by_the_next_run(parts: list[Path], tmp_path: Path) -> None:
    add(tmp_path / "begun", *parts[:2], PCAPS / "fq" / "session.pcap", finish=True)
    begun = of_lake(tmp_path / "begun")

    def remove(lake: Path) -> None:
        with Lake(lake) as growing:
            growing.remove(str(parts[0]))

    for step, lake in killed_at_each_step(tmp_path / "begun", remove):
        rows = of_lake(lake)
        assert ("blipmq" not in rows and len(rows["captures"]) == 1) or rows == begun, step
    assert step > 3


@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize("place", ["mqpcap.tables.parquet.parquet_writer", "mqpcap.delta.tables.paths_of_days"])
def test_disk_that_is_full_is_one_line_and_loses_nothing(
    parts: list[Path], whole: Rows, tmp_path: Path, begun: int, place: str
) -> None:
    add(tmp_path / "lake", *parts[:begun])
    before = of_lake(tmp_path / "lake")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, full)
        with pytest.raises(OutputError, match="No space left on device"):
            add(tmp_path / "lake", *parts)

    Lake(tmp_path / "lake").__exit__(None, None, None)
    assert of_lake(tmp_path / "lake") == before
    add(tmp_path / "lake", *parts, finish=True)
    assert of_lake(tmp_path / "lake") == whole
