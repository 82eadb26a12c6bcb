"""Tables become visible whole or not at all, and nothing that no export wrote is touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exports import DAY_NS, batch, contents, export, names

from mqpcap.errors import OutputError
from mqpcap.tables import export as outputs
from mqpcap.tables.export import Export


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
        Export(tmp_path / "captures", protected=[capture])

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
        from mqpcap.tables.export import Export
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
