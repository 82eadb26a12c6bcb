"""What an export may replace, as a user runs it: in processes of their own."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import COMMAND, Ended, environment, run

QOS1 = Path(__file__).resolve().parents[2] / "pcaps/blipmq/qos1.pcap"
STRANGER = b"no capture, however it is called"


def export(folder: Path, *arguments: str) -> Ended:
    """``mqpcap export`` of names in the folder."""
    return run("export", "-q", *arguments, cwd=folder)


def everything(folder: Path) -> list[tuple[str, int, bytes | None]]:
    """Every name below a folder, with its kind and bytes."""
    return sorted(
        (str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(folder: Path) -> dict[str, bytes]:
    """The files of all tables but ``captures``, which also names what could not be read."""
    return {name: data for name, data in contents(folder).items() if "captures" not in name and "/" in name}


def statuses(folder: Path) -> dict[str, str]:
    """What became of each file."""
    table = pq.ParquetDataset(folder / "captures").read(["path", "status"])
    return dict(zip(table["path"].to_pylist(), table["status"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture, a stranger, and an export of the capture; tests copy it."""
    folder = tmp_path_factory.mktemp("exported")
    shutil.copy(QOS1, folder / "a.pcap")
    (folder / "text.pcap").write_bytes(STRANGER)
    (folder / "captures").mkdir()
    shutil.copy(QOS1, folder / "captures/b.pcap")
    (folder / "captures/notes.txt").write_bytes(STRANGER)
    (folder / "none").mkdir()
    assert export(folder, "a.pcap", "--out", "good").exit_code == 0
    return folder


@pytest.fixture
def place(exported: Path, tmp_path: Path) -> Path:
    """The same for one test."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("missing", ["gone.pcap", "text.pcap", "gone*.pcap", "none"])
def test_earlier_export_stays_where_a_named_input_cannot_be_read(place: Path, missing: str) -> None:
    before = everything(place)

    kept = export(place, "captures", missing, "--out", "good")

    assert kept.exit_code == 1
    named, why = kept.stderr.splitlines()
    assert named.startswith(f"mqpcap: {missing}: ")
    assert why.startswith("mqpcap: good stays as it was") and "--allow-missing" in why
    assert everything(place) == before


def test_missing_input_is_allowed_with_the_option(place: Path) -> None:
    made = export(place, "captures", "gone.pcap", "--out", "good", "--allow-missing")
    alone = export(place, "captures", "--out", "alone")

    assert (made.exit_code, made.stderr) == (1, "mqpcap: gone.pcap: no such file\n")
    assert alone.exit_code == 0
    assert rows(place / "good") == rows(place / "alone")
    assert statuses(place / "good") == {
        "captures/b.pcap": "read",
        "captures/notes.txt": "no capture",
        "gone.pcap": "unreadable",
    }


@pytest.mark.parametrize("out", ["new", "empty"])
def test_what_can_be_read_is_published_where_no_export_was(place: Path, out: str) -> None:
    (place / "empty").mkdir()

    made = export(place, "a.pcap", "gone.pcap", "--out", out)

    assert (made.exit_code, made.stderr) == (1, "mqpcap: gone.pcap: no such file\n")
    assert rows(place / out) == rows(place / "good")
    assert statuses(place / out) == {"a.pcap": "read", "gone.pcap": "unreadable"}


def test_a_foreign_file_in_a_directory_is_no_missing_input(place: Path) -> None:
    assert export(place, "captures", "--out", "good").exit_code == 0


@pytest.mark.parametrize("allowed", [[], ["--allow-missing"]])
@pytest.mark.parametrize("missing", [["gone.pcap"], ["text.pcap", "gone.pcap"], ["none"]])
@pytest.mark.parametrize("out", ["good", "new"])
def test_nothing_is_published_where_every_input_failed(
    place: Path, out: str, missing: list[str], allowed: list[str]
) -> None:
    before = everything(place)

    failed = export(place, *missing, "--out", out, *allowed)

    assert failed.exit_code == 1
    assert all(f"mqpcap: {name}: " in failed.stderr for name in missing)
    assert everything(place) == before


@pytest.mark.parametrize(("allowed", "is_kept"), [([], True), (["--allow-missing"], False)])
def test_capture_that_goes_away_before_it_is_read_is_missing(place: Path, allowed: list[str], is_kept: bool) -> None:
    """The first is a pipe, and the second is deleted while that is read."""
    os.mkfifo(place / "pipe.pcap")
    shutil.copy(QOS1, place / "b.pcap")
    before = contents(place / "good")
    exporting = subprocess.Popen(
        [*COMMAND, "export", "-q", "pipe.pcap", "b.pcap", "--out", "good", *allowed], cwd=place, env=environment(),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    feeding = os.open(place / "pipe.pcap", os.O_RDWR)  # waits for nobody
    os.write(feeding, QOS1.read_bytes()[:4000])
    until = time.monotonic() + 1200
    while not list(place.glob(".good*")) and exporting.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    (place / "b.pcap").unlink()
    os.close(feeding)
    _, told = exporting.communicate(timeout=1200)

    assert exporting.returncode == 1
    assert told.startswith("mqpcap: b.pcap: ")
    assert ("mqpcap: good stays as it was" in told) == is_kept
    assert (contents(place / "good") == before) == is_kept
    assert not list(place.glob(".good*"))


def test_there_is_no_overwrite(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "mine/thesis.txt").write_text("years of work")
    before = everything(place)

    told = export(place, "a.pcap", "--out", "mine", "--overwrite")
    refused = export(place, "a.pcap", "--out", "mine")

    assert told.exit_code == 2
    assert refused.exit_code == 1
    (told_why,) = refused.stderr.splitlines()
    assert told_why.startswith("mqpcap: mine holds 'thesis.txt', which no export wrote")
    assert everything(place) == before


@pytest.mark.parametrize("target", ["good", "captures", "none", "nowhere"])
@pytest.mark.parametrize("name", ["link", "link/"])
def test_directory_may_not_be_a_link(place: Path, name: str, target: str) -> None:
    (place / "link").symlink_to(target)
    before = everything(place)

    refused = export(place, "a.pcap", "--out", name)

    assert refused.exit_code == 1
    assert refused.stderr == "mqpcap: link is a symbolic link; name the directory it leads to\n"
    assert everything(place) == before


def test_export_into_which_something_was_put_stays(place: Path) -> None:
    (place / "good/messages/query.sql").write_text("mine")
    before = everything(place)

    refused = export(place, "a.pcap", "--out", "good", "--allow-missing")

    assert refused.exit_code == 1
    assert "'messages/query.sql'" in refused.stderr
    assert everything(place) == before
