"""``mqpcap export``: the tables, and what becomes of what was there."""

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.dataset as ds
from rows import row_count
from running import COMMAND, ROOT, begun, environment, run

from mqpcap.tables.schemas import MESSAGES

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_export_writes_the_tables_and_says_so_on_stderr(tmp_path: Path) -> None:
    out = tmp_path / "tables"

    result = run("export", QOS1, "pcaps/strangers", "--out", out)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert {path.name for path in out.iterdir() if path.is_dir()} >= {"messages", "connections", "problems", "blipmq"}
    assert row_count(out, "messages") == row_count(out, "blipmq") == 242
    assert "242 rows" in result.stderr
    assert (out / "messages" / "date=2026-11-21").is_dir()
    assert ds.dataset(out / "messages", partitioning=None).schema.names == MESSAGES.names


def test_export_refuses_foreign_files(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")

    refused = run("export", "-q", QOS1, "--out", out)

    assert refused.exit_code == 1
    assert "thesis.txt" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert (out / "thesis.txt").exists()
    assert run("export", "-q", QOS1, "--out", out, "--overwrite").exit_code == 2


def test_export_replaces_an_earlier_export(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    first = run("export", "pcaps/fq/session.pcap", "pcaps/fq/errors.pcap", "--out", out)
    row_count_before = int(first.stderr.splitlines()[0].split()[1].replace(",", ""))

    second = run("export", QOS1, "--out", out)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert f"it replaces an earlier export of 2 files ({row_count_before:,} rows)\n" in second.stderr
    assert "it replaces" not in first.stderr
    assert not (out / "fq").exists()
    assert row_count(out, "blipmq") == 242


def test_export_of_nothing_leaves_the_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    run("export", "-q", QOS1, "--out", out)

    result = run("export", "-q", tmp_path / "missing.pcap", "--out", out)

    assert result.exit_code == 1
    assert row_count(out, "messages") == 242


def test_a_killed_export_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    fifo = tmp_path / "slow.pcap"
    os.mkfifo(fifo)
    exporting = subprocess.Popen(
        [*COMMAND, "export", "-q", QOS1, str(fifo), "--jobs", "1", "--out", str(out)], cwd=ROOT, env=environment()
    )
    with begun(fifo, (ROOT / QOS1).read_bytes()[:4000]):
        exporting.send_signal(signal.SIGKILL)
        exporting.wait(timeout=1200)

    assert not out.exists()
    assert run("export", "-q", QOS1, "--out", out).exit_code == 0
    assert not list(tmp_path.glob(".tables*"))


def test_files_without_a_time_have_rows_beside_files_that_are_no_capture(tmp_path: Path) -> None:
    """Both kinds are of the day 1970-01-01: the file of the second replaced the file of the first."""
    folder = tmp_path / "in"
    folder.mkdir()
    sample = (ROOT / "pcaps/blipmq/errors.pcap").read_bytes()
    for name, content in (("a", sample), ("begun", sample[:10]), ("empty", sample[:24]), ("foreign", b"hello, a text")):
        (folder / f"{name}.pcap").write_bytes(content)

    assert run("export", "-q", folder, "--out", tmp_path / "out").exit_code == 0

    rows = ds.dataset(tmp_path / "out" / "captures", format="parquet").to_table(["path", "status"]).to_pylist()
    assert {Path(row["path"]).stem: row["status"] for row in rows} == {
        "a": "read", "begun": "cut short", "empty": "read", "foreign": "no capture"
    }  # fmt: skip
