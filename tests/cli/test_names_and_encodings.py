"""File names that are not UTF-8, and a stdout that does not have every character."""

import csv
import io
import json
import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from examples import one_in
from known import pings
from running import ROOT, run_bytes

NO_UTF8 = {"PYTHONIOENCODING": "ascii"}
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(folder: Path, *words: str | bytes, **variables: str) -> bytes:
    """What a command writes to stdout; it ends with 0 and writes nothing to stderr that is not a note."""
    ended = run_bytes(words[0], "-q", *words[1:], cwd=folder, **variables)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout


@pytest.fixture
def two_names(tmp_path: Path) -> Path:
    """A folder with two captures whose names differ in a byte that is not UTF-8."""
    for name in (b"\xfe.pcap", b"\xff.pcap"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(pings([1, 2], ["orders"]))
    return tmp_path


def test_json_escapes_bytes_of_names_that_are_not_utf8(two_names: Path) -> None:
    (capture,) = json.loads(run(two_names, "info", "--json", b"\xff.pcap"))["captures"]
    both = json.loads(run(two_names, "diff", "--json", b"\xfe.pcap", b"\xff.pcap"))

    assert capture["files"][0]["file"] == r"\xff.pcap"
    assert [both[side]["input"] for side in "ab"] == [r"\xfe.pcap", r"\xff.pcap"]
    assert {json.loads(line)["capture_file"] for line in run(two_names, "show", "--json", ".").splitlines()} == {
        r"./\xfe.pcap", r"./\xff.pcap",
    }  # fmt: skip


def test_two_names_that_are_not_utf8_are_two_captures_in_the_tables(two_names: Path) -> None:
    run(two_names, "export", b"\xfe.pcap", b"\xff.pcap", "--out", b"\xff\xfe")

    # pyarrow cannot be given the folder's name.
    (two_names / "tables").symlink_to(os.fsdecode(b"\xff\xfe"))
    for table in ("messages", "exchanges", "connections", "captures"):
        rows = ds.dataset(two_names / "tables" / table).to_table(columns=["capture"])["capture"].to_pylist()
        assert sorted(set(rows)) == [r"\xfe.pcap", r"\xff.pcap"], table


COMMANDS = (
    "show", "show -v", "show -x", "show --json", "stats --by topic", "stats --by topic --csv",
    "stats --by topic --json",
    "stats --producers", "follow --connection c1", "diff --all OTHER", "diff --all --json OTHER", "explain --at 10",
    "explain --json --at 10",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "variables"),
    [*((words, NO_UTF8) for words in one_in(2, COMMANDS)), ("show", C_LOCALE), ("stats --producers", C_LOCALE)],
)
def test_characters_that_stdout_lacks_are_escaped(words: str, variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pings([2], ["tópico🐇"]))
    (tmp_path / "b.pcap").write_bytes(pings([2]))
    command, *options = [word.replace("OTHER", "b.pcap") for word in words.split()]

    written = run(tmp_path, command, "a.pcap", *options, **variables)

    text = written.decode("ascii")
    if "--json" in options:
        for line in text.splitlines():
            json.loads(line)
        assert "tópico🐇" in json.dumps([json.loads(x) for x in text.splitlines()], ensure_ascii=False)
    else:
        assert r"t\u00f3pico\ud83d\udc07" in text
    if "--csv" in options:  # one field more or less would be a row that is broken
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1


def test_a_count_beyond_every_capture_shows_all() -> None:
    assert run(ROOT, "show", "-c", "99999999999999999999", "pcaps/fq/session.pcap") == run(
        ROOT, "show", "pcaps/fq/session.pcap"
    )
