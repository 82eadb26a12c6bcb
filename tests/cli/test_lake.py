"""``mqpcap export --append`` and ``mqpcap lake``: a lake on the command line."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("deltalake", reason="deltalake is not installed (extra lake)")
from lakes import age, of_lake
from rows import of_export, rotated

import mqpcap
from mqpcap.cli import main

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_a_lake_grows_is_shown_kept_and_emptied(tmp_path: Path) -> None:
    captures, lake = tmp_path / "captures", tmp_path / "lake"
    captures.mkdir()
    paths = [age(path) for path in rotated(PCAPS / "flymq" / "groups.pcap", captures, 3)]

    first, second = (run("export", path, "--append", lake) for path in paths[:2])
    last = run("export", captures, "--append", lake, "--finish", "-q")

    assert [done.exit_code for done in (first, second, last)] == [0, 0, 0]
    assert first.stderr.startswith(f"{lake}: 1 new file, ")
    assert (last.stdout, last.stderr) == ("", "")
    assert run("export", "-q", captures, "--out", tmp_path / "out").exit_code == 0
    assert of_lake(lake) == of_export(tmp_path / "out")
    shown, contents = run("lake", lake, "-u"), json.loads(run("lake", lake, "--json").stdout)
    assert shown.stdout.splitlines()[1].split()[:2] == [str(paths[0]), "3"]
    assert [(x["capture"], x["file_count"], x["is_open"]) for x in contents["recordings"]] == [
        (str(paths[0]), 3, False)
    ]
    kept = run("lake", lake, "--optimize", "--vacuum", "--keep", 0)
    assert "messages: 3 files became 1" in kept.stderr
    assert of_lake(lake) == of_export(tmp_path / "out")
    assert run("export", "--append", lake, "--remove", paths[1]).stderr == f"{lake}: removed {paths[1]} (3 files)\n"
    assert of_lake(lake) == {}


def test_bad_files_among_captures_are_named_and_all_others_are_there(tmp_path: Path) -> None:
    """One sample of each protocol; and one file unreadable, one cut in its last record, one foreign."""
    folder = tmp_path / "captures"
    folder.mkdir()
    names = (
        "fq/session",
        "kokaq/go1_session",
        "flymq/groups",
        "blipmq/qos1",
        "msgq/json_session",
        "faults/msgq_no_syn",
    )
    for name in names:
        age(Path(shutil.copy(PCAPS / f"{name}.pcap", folder / f"{name.replace('/', '_')}.pcap")))
    cut, foreign, unreadable = (folder / f"{name}.pcap" for name in ("cut", "foreign", "unreadable"))
    cut.write_bytes((PCAPS / "flymq" / "fetch.pcap").read_bytes()[:-30])
    foreign.write_text("no capture at all")
    unreadable.symlink_to(unreadable)
    inputs = sorted(folder.iterdir())

    exports = {jobs: run("export", *inputs, "--out", tmp_path / f"out{jobs}", "--jobs", jobs) for jobs in (1, 2)}
    grown = run("export", *inputs, "--append", tmp_path / "lake", "--finish")

    for done in (*exports.values(), grown):
        assert done.exit_code == 1
        for path in (cut, foreign, unreadable):
            assert [line for line in done.stderr.splitlines() if f"{path}: " in line], done.stderr
    rows = [of_export(tmp_path / "out1"), of_export(tmp_path / "out2"), of_lake(tmp_path / "lake")]
    assert len(rows[-1]["captures"]) == len(names) + 1
    for tables in rows:
        tables["captures"] = [
            row for row in tables["captures"] if "'no capture'" not in row and "'unreadable'" not in row
        ]
    assert rows[0] == rows[1] == rows[2]
    assert {*map(str, inputs)} - {str(foreign), str(unreadable)} == {
        name for name in map(str, inputs) if any(repr(name) in row for row in rows[0]["messages"])
    }


def test_call_is_the_command(tmp_path: Path) -> None:
    notes: list[str] = []
    paths = [age(path) for path in rotated(PCAPS / "flymq" / "groups.pcap", tmp_path, 2)]

    mqpcap.export(paths, append=tmp_path / "lake", finish=True)
    contents = mqpcap.export([tmp_path / "part.pcap"], append=tmp_path / "lake", notes=notes)

    assert contents == mqpcap.lake(tmp_path / "lake")
    assert contents.recordings[0].file_count == 2
    assert mqpcap.export([], append=tmp_path / "lake", remove=[str(paths[0])]).recordings == ()
    fresh = shutil.copyfile(PCAPS / "flymq" / "groups.pcap", tmp_path / "fresh.pcap")
    assert mqpcap.export(fresh, append=tmp_path / "later", notes=notes).recordings == ()
    assert "left for the next run" in notes[-1]
    assert not (tmp_path / "later").exists()
    with pytest.raises(mqpcap.QueryError, match="name captures, --finish or --remove"):
        mqpcap.export([], append=tmp_path / "lake")
    with pytest.raises(TypeError, match="a lake takes files by their paths"):
        mqpcap.export([b""], append=tmp_path / "lake")
    with pytest.raises(mqpcap.QueryError, match="name either --out DIR or --append DIR"):
        mqpcap.export(paths)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["x"], "name either --out DIR or --append DIR"),
        (["x", "--out", "o", "--append", "l"], "name either --out DIR or --append DIR"),
        (["x", "--append", "l", "--op", "PUBLISH"], "--append goes with files"),
        (["-i", "lo", "--append", "l"], "--append goes with files"),
        (["--append", "l"], "name captures, --finish or --remove"),
        (["x", "--out", "o", "--finish"], "--finish, --rebuild and --remove go with --append"),
    ],
)
def test_options_that_do_not_fit_are_misuse(words: list[str], line: str) -> None:
    result = run("export", *words)

    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert line in result.stderr


@pytest.mark.parametrize("words", [["lake", "DIR"], ["lake", "DIR", "--optimize"], ["export", "x", "--append", "DIR"]])
def test_folder_that_is_no_lake_is_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "notes.txt").touch()

    result = run(*(str(tmp_path) if word == "DIR" else word for word in words))

    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_without_the_table_format_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    for words in (["lake", tmp_path], ["export", "x", "--append", tmp_path]):
        result = run(*words)
        assert (result.exit_code, "pip install '.[lake]'" in result.stderr) == (1, True)
