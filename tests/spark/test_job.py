"""The bulk job gives the tables of ``mqpcap export``, whatever the shares, and goes on where it was killed."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

import in_process_spark
from click.testing import CliRunner, Result
from dissection import dissect
from examples import one_in
from in_process_spark import InProcessSpark
from rows import Rows, importable, merged, moved, of_export, rotated, schemas

from mqpcap import pipeline as dissection
from mqpcap.capture import Capture, captures, windows
from mqpcap.cli import main
from mqpcap.errors import OutputError
from mqpcap.pipeline import Options
from mqpcap.spark import delivery_keys, job, partitions, tasks
from mqpcap.spark.partitions import SharePlan
from mqpcap.spark.ranges import RangeReader
from mqpcap.spark.storage import Storage
from mqpcap.spark.tasks import TaskFiles
from mqpcap.tables.export import Export
from mqpcap.tables.messages import RowPolicy
from mqpcap.tables.parquet import DATES
from mqpcap.tcp.reassembly import Reassembler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
SPARK = InProcessSpark()
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def local(found: list[Capture], out: Path) -> Path:
    """The export of the local road."""
    with Export(out) as tables:
        for capture in found:
            made = dissect(capture)
            for chunk in made.chunks:
                tables.write("messages", chunk.messages, "ts_ns")
                tables.write(chunk.protocol, chunk.fields, "ts_ns")
            for name, date in DATES.items():
                tables.write(name, made.table(name), date)
        tables.commit()
    return out


@dataclass(frozen=True)
class Known:
    """Captures, and what the local road makes of them."""

    captures: list[Capture]
    rows: Rows
    schemas: dict[str, pa.Schema]


def known_files(found: list[Capture], folder: Path) -> Known:
    out = local(found, folder)
    return Known(found, of_export(out), schemas(out))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Known:
    found = [*one_in(3, captures([str(PCAPS)]).captures)]
    return known_files(found, tmp_path_factory.mktemp("samples") / "local")


@pytest.fixture(scope="module")
def of_twenty(twenty: Path, tmp_path_factory: pytest.TempPathFactory) -> Known:
    return known_files(captures([str(twenty)]).captures, tmp_path_factory.mktemp("of_twenty") / "local")


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of several servers in 20 rotated files, most connections across many of them."""
    folder = tmp_path_factory.mktemp("twenty")
    names = ["fq/session", "flymq/pipelining", "blipmq/qos1", "kokaq/go1_session", "msgq/split_session"]
    whole = merged([PCAPS / f"{name}.pcap" for name in names], folder / "whole")
    (folder / "rotated").mkdir()
    rotated(whole, folder / "rotated", 20)
    return folder / "rotated"


def test_samples_in_packs_are_the_local_export(spark: "SparkSession", samples: Known, tmp_path: Path) -> None:
    made = job.export(spark, samples.captures, str(tmp_path / "tables"), Options())

    assert made.task_count < len(samples.captures)
    assert of_export(tmp_path / "tables") == samples.rows
    assert schemas(tmp_path / "tables") == samples.schemas


def test_samples_in_shares_are_the_local_export(samples: Known, tmp_path: Path) -> None:
    """The job's tasks and stages for each of these samples, in this process: Spark only hands them out."""
    job.export(SPARK, samples.captures, str(tmp_path / "tables"), Options(), share_count=2)

    assert of_export(tmp_path / "tables") == samples.rows
    assert schemas(tmp_path / "tables") == samples.schemas


@pytest.mark.parametrize("planned", [True, False])
def test_connections_that_leave_memory_are_those_of_the_local_export(
    of_twenty: Known, tmp_path: Path, planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection that closed leaves at once, so that its login is told later.

    Not planned: connections of one server are in all shares, whatever is best.
    """
    if not planned:
        monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))
    gone: list[int] = []
    forget = Reassembler.forget
    monkeypatch.setattr(Reassembler, "forget", lambda a, flows, **how: (gone.extend(flows), forget(a, flows, **how))[1])
    monkeypatch.setattr(windows, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(dissection, "CLOSED_DIVISOR", Options().max_memory_bytes)

    job.export(SPARK, of_twenty.captures, str(tmp_path / "tables"), Options(), share_count=2)

    assert len(gone) > 10
    assert of_export(tmp_path / "tables") == of_twenty.rows


def test_deliveries_of_many_servers_are_joined_protocol_by_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [PCAPS / f"{name}.pcap" for name in ("blipmq/qos1", "flymq/fetch", "msgq/split_session", "fq/session")]
    for path, port in zip(tuple(paths), (5555, 9092, 9912, 8765), strict=True):
        paths += [moved(path, tmp_path / f"{path.stem}{k}", port, port + k) for k in (1, 2, 3)]
    found = captures([str(merged(paths, tmp_path / "whole.pcap"))]).captures
    local(found, tmp_path / "local")
    done: list[str] = []
    pair = delivery_keys.deliveries
    monkeypatch.setattr(
        delivery_keys, "deliveries", lambda protocol, parts: (done.append(protocol), pair(protocol, parts))[1]
    )
    monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))

    job.export(SPARK, found, str(tmp_path / "tables"), Options(), share_count=4)

    assert of_export(tmp_path / "tables") == of_export(tmp_path / "local")
    assert {*done} == {"blipmq", "flymq", "fq", "msgq"}


def test_login_at_many_servers_is_known_on_each_road(tmp_path: Path) -> None:
    """Replayed sessions: one client key at 18 servers. Each has the logins that it has alone."""
    path = PCAPS / "fq/session.pcap"
    paths = [moved(path, tmp_path / f"{port}.pcap", 8765, port) for port in range(8765, 8783)]
    (alone,), found = captures([str(path)]).captures, captures([str(merged(paths, tmp_path / "all.pcap"))]).captures
    named_count = sum(name is not None for name in dissect(alone).table("messages")["client_name"].to_pylist())

    local(found, tmp_path / "local")
    job.export(SPARK, found, str(tmp_path / "tables"), Options(), share_count=3)

    names = pq.read_table(tmp_path / "local/messages")["client_name"].to_pylist()
    assert sum(name is not None for name in names) == 18 * named_count > 0
    assert of_export(tmp_path / "tables") == of_export(tmp_path / "local")


KERNELS = Path(__file__).resolve().parents[1] / "tcp/captures"


@pytest.mark.parametrize(("name", "column"), [("nat_both_sides_flymq", "same_as"), ("mptcp_two_blipmq", "subflow_of")])
def test_connections_that_belong_together_are_together_or_noted(
    name: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In up to five shares: one number of them has both sides apart, else this would say little."""
    monkeypatch.setattr(partitions, "make_plan", lambda capture, n, rules: SharePlan(n))
    together = []
    for share_count in range(1, 6):
        found = captures([str(KERNELS / f"{name}.pcap")]).captures
        out = tmp_path / str(share_count)
        notes = job.export(SPARK, found, str(out), Options(), share_count=share_count).notes
        joined = pq.read_table(out / "connections")[column].drop_null().to_pylist()
        together.append(bool(joined))

        is_noted = any("1 connection may have another side" in note and "shares=1" in note for note in notes)
        assert is_noted != bool(joined)
    assert together[0]
    assert not all(together)


@pytest.mark.parametrize("share_count", [1, 3])
def test_bodies_that_are_not_kept_change_no_delivery(tmp_path: Path, share_count: int) -> None:
    found = captures([str(PCAPS / "msgq/json_session.pcap")]).captures
    local(found, tmp_path / "local")

    job.export(SPARK, found, str(tmp_path / "tables"), Options(policy=RowPolicy(bodies=0)), share_count=share_count)

    made, expected = of_export(tmp_path / "tables"), of_export(tmp_path / "local")
    assert {name: rows for name, rows in made.items() if name != "msgq"} == {
        name: rows for name, rows in expected.items() if name != "msgq"
    }


def test_failed_job_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "pair_deliveries", lambda rows, work: 1 // 0)
    found = captures([str(PCAPS / "blipmq/synthetic_v2_plain.pcap")]).captures

    with pytest.raises(ZeroDivisionError):
        job.export(SPARK, found, str(tmp_path / "tables"), Options(), share_count=2)

    assert [*tmp_path.iterdir()] == []


def test_foreign_directory_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/thesis.txt").write_text("mine")

    with pytest.raises(OutputError, match="thesis"):
        job.export(SPARK, captures([str(PCAPS / "flymq/core.pcap")]).captures, str(tmp_path / "tables"), Options())

    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def two_captures(folder: Path) -> list[Capture]:
    """Two captures, found by names that hold only in the folder."""
    for name in ("flymq/core", "blipmq/qos1"):
        shutil.copy(PCAPS / f"{name}.pcap", folder)
    return captures(["core.pcap", "qos1.pcap"]).captures


def test_tasks_find_inputs_wherever_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names stay as given in the rows."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    found = two_captures(tmp_path)
    local(found, tmp_path / "local")
    monkeypatch.chdir(tmp_path / "elsewhere")

    made = job.export(SPARK, found, str(tmp_path / "tables"), Options())

    assert made.unreadable == []
    assert of_export(tmp_path / "tables") == of_export(tmp_path / "local")
    assert pq.read_table(tmp_path / "tables/blipmq").num_rows == 242
    assert {row for path in (tmp_path / "tables/messages").rglob("*.parquet")
            for row in pq.read_table(path)["capture_file"].to_pylist()} == {"core.pcap", "qos1.pcap"}  # fmt: skip


def test_input_behind_a_link_and_two_dots_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``link/../x`` is beside where the link leads, not beside the link."""
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away")
    shutil.copy(PCAPS / "blipmq/qos1.pcap", tmp_path / "far")
    monkeypatch.chdir(tmp_path)

    made = job.export(SPARK, captures(["link/../qos1.pcap"]).captures, "tables", Options())

    assert made.unreadable == []


@pytest.mark.parametrize("share_count", [1, 7])
@pytest.mark.parametrize("allow_missing", [False, True])
@pytest.mark.parametrize("is_earlier", [False, True])
def test_nothing_is_published_where_every_input_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int, allow_missing: bool, is_earlier: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    found = two_captures(tmp_path)
    if is_earlier:
        local(found, tmp_path / "tables")
    for capture in found:
        Path(capture.files[0]).unlink()
    before = everything(tmp_path)

    made = job.export(SPARK, found, "tables", Options(), share_count=share_count, allow_missing=allow_missing)

    assert (made.summary, made.refusal) == (None, None)
    assert [name for name, _ in made.unreadable] == ["core.pcap", "qos1.pcap"]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("share_count", [1, 2])
def test_earlier_export_stays_where_an_input_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    found = two_captures(tmp_path)
    expected = of_export(local(found, tmp_path / "local"))
    local(found[1:], tmp_path / "tables")
    before = everything(tmp_path / "tables")
    Path("core.pcap").rename("away")

    kept = job.export(SPARK, found, "tables", Options(), share_count=share_count)
    stayed = everything(tmp_path / "tables") == before
    again = job.export(SPARK, found, "tables", Options(), share_count=share_count, allow_missing=True)
    without, rows = of_export(tmp_path / "tables"), pq.read_table(tmp_path / "tables/captures").to_pylist()
    Path("away").rename("core.pcap")
    whole = job.export(SPARK, found, "tables", Options(), share_count=share_count)

    assert kept.summary is None and "--allow-missing" in str(kept.refusal)
    assert [name for name, _ in kept.unreadable] == [name for name, _ in again.unreadable] == ["core.pcap"]
    assert stayed
    assert "blipmq" in without and "flymq" not in without
    assert sorted((row["path"], row["status"]) for row in rows) == [("core.pcap", "unreadable"), ("qos1.pcap", "read")]
    assert whole.unreadable == [] and of_export(tmp_path / "tables") == expected
    assert not (tmp_path / ".tables.mqpcap-spark").exists()


def test_input_that_is_none_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before any work; where no export was, what can be read is published."""
    monkeypatch.chdir(tmp_path)
    found = two_captures(tmp_path)

    first = job.export(SPARK, found, "tables", Options(), is_missing=True)
    before = everything(tmp_path)
    with pytest.raises(OutputError, match="stays as it was"):
        job.export(SPARK, found, "tables", Options(), is_missing=True)
    after = everything(tmp_path)
    allowed = job.export(SPARK, found, "tables", Options(), is_missing=True, allow_missing=True)

    assert first.summary is not None and allowed.summary is not None
    assert after == before


def test_inputs_that_are_none_have_rows_as_in_the_local_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    shutil.copy(PCAPS / "flymq/core.pcap", "in")
    (tmp_path / "in/notes.txt").write_text("no capture")
    done = CliRunner().invoke(main, ["export", "-q", "in", "gone.pcap", "--out", "local"])
    found = captures(["in", "gone.pcap"])

    job.export(
        InProcessSpark(),
        found.captures,
        "tables",
        Options(),
        unread=[*found.unreadable, *found.skipped],
        is_missing=True,
    )

    assert done.exit_code == 1
    assert of_export(tmp_path / "tables") == of_export(tmp_path / "local")
    statuses = pq.read_table(tmp_path / "tables/captures")["status"].to_pylist()
    assert sorted(statuses) == ["no capture", "read", "unreadable"]


def everything(folder: Path) -> list[tuple[str, int, bytes | None]]:
    """Every name below a folder, with its kind and bytes."""
    return sorted(
        (str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    )


@pytest.mark.parametrize("name", ["thesis.txt", "data/mine.json", "data/messages/date=2026-11-21/part-00000.parquet"])
@pytest.mark.parametrize("is_job", [False, True])
def test_staging_directory_that_holds_something_else_is_refused(tmp_path: Path, name: str, is_job: bool) -> None:
    found = captures([str(PCAPS / "flymq/core.pcap")]).captures
    staging = tmp_path / ".tables.mqpcap-spark"
    if is_job:
        first = job._Job(SPARK, found, Options(), job.Storage(str(staging)))
        first.begin()
        first.run(None)
    (staging / name).parent.mkdir(parents=True, exist_ok=True)
    (staging / name).write_text("mine")
    before = everything(tmp_path)

    with pytest.raises(OutputError, match=re.escape(repr(name))):
        job.export(SPARK, found, str(tmp_path / "tables"), Options(policy=RowPolicy(bodies=0)))

    assert everything(tmp_path) == before


@pytest.mark.parametrize("place", [".tables.mqpcap-spark", ".tables.mqpcap-spark/data"])
def test_no_link_is_followed_in_the_staging_directory(tmp_path: Path, place: str) -> None:
    mine = tmp_path / "mine/fq/date=2026-11-21/part-dissect-00000-0123456789ab-00000.parquet"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "mine")
    before = everything(tmp_path)

    with pytest.raises(OutputError, match=r"link|'data'"):
        job.export(SPARK, captures([str(PCAPS / "flymq/core.pcap")]).captures, str(tmp_path / "tables"), Options())

    assert everything(tmp_path) == before


def test_file_that_comes_into_the_staging_directory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = job._Local.publish
    mine = tmp_path / ".tables.mqpcap-spark/data/mine"
    monkeypatch.setattr(job._Local, "publish", lambda *given: (mine.write_text("mine"), publish(*given))[1])

    job.export(SPARK, captures([str(PCAPS / "flymq/core.pcap")]).captures, str(tmp_path / "tables"), Options())

    assert [p for p in (tmp_path / ".tables.mqpcap-spark").rglob("*") if p.is_file()] == [mine]
    assert (tmp_path / "tables/_mqpcap.json").is_file()


def test_local_path_as_a_uri_is_published_as_a_local_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "tables").symlink_to("real")

    with pytest.raises(OutputError, match="symbolic link"):
        job.export(
            InProcessSpark(),
            captures([str(PCAPS / "flymq/core.pcap")]).captures,
            f"file://{tmp_path}/tables",
            Options(),
        )


def test_staging_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    found = captures([str(PCAPS / "flymq/core.pcap")]).captures
    staging = tmp_path / ".tables.mqpcap-spark"
    job._Job(SPARK, found, Options(), job.Storage(str(staging))).begin()
    manifest = staging / job.JOB
    manifest.write_text(manifest.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {os.getppid()}'))

    with pytest.raises(OutputError, match=f"process {os.getppid()} is writing there"):
        job.export(SPARK, found, str(tmp_path / "tables"), Options())


def command(*arguments: str) -> Result:
    """Spark's part is done by the session of all tests: a Java takes seconds to start."""
    return CliRunner().invoke(main, ["spark", "export", *arguments])


def test_command_reports_unreadable_names_first_and_flaws_at_the_end(spark: "SparkSession", tmp_path: Path) -> None:
    """A capture cut short is a note and no failure; a name that is none is."""
    short = tmp_path / "short.pcap"
    short.write_bytes((PCAPS / "flymq/core.pcap").read_bytes()[:-7])
    (tmp_path / "short.txt").write_text("no capture")

    made = command(str(tmp_path), "--out", str(tmp_path / "tables"), "--strict")
    none = command(str(tmp_path / "gone.pcap"), "--out", str(tmp_path / "none"))

    told = made.stderr.splitlines()
    assert made.exit_code == 1, made.stderr
    assert any("short.pcap: at byte" in line for line in told)
    assert told[-1].startswith("mqpcap: --strict:") and "1 skipped file" in told[-1]
    assert of_export(tmp_path / "tables")["messages"]
    assert (none.exit_code, none.stderr) == (1, f"mqpcap: {tmp_path}/gone.pcap: no such file\n")


def test_command_leaves_an_earlier_export_where_an_input_cannot_be_read(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the road of a cluster: the command is where its inputs are, Spark and its workers are not."""
    shutil.copy(PCAPS / "blipmq/qos1.pcap", tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["-q", "qos1.pcap", "--out", "good"]

    first = command(*arguments, "gone.pcap")
    before = everything(tmp_path)
    kept = command(*arguments, "gone.pcap")
    after = everything(tmp_path)
    misused = command(*arguments, "--overwrite")

    assert first.exit_code == 1 and len(of_export(tmp_path / "good")["blipmq"]) == 242
    assert kept.exit_code == 1
    told = [line for line in kept.stderr.splitlines() if line.startswith("mqpcap:")]
    assert told[0] == "mqpcap: gone.pcap: no such file"
    assert told[1].startswith("mqpcap: good stays as it was")
    assert after == before
    assert misused.exit_code == 2


KILLED = """
import sys
from in_process_spark import InProcessSpark
from mqpcap.capture import captures
from mqpcap.pipeline import Options
from mqpcap.spark import job
job.export(InProcessSpark(), captures(sys.argv[1:2]).captures, sys.argv[2], Options(), share_count=2)
"""


def test_command_after_a_killed_one_gives_the_same_rows(
    spark: "SparkSession", twenty: Path, of_twenty: Known, tmp_path: Path
) -> None:
    """In shares of rotated files. The killed driver hands its tasks to its own process; the second one is Spark's."""
    out, staging = tmp_path / "tables", tmp_path / ".tables.mqpcap-spark"
    paths = importable({"PYTHONPATH": str(Path(in_process_spark.__file__).parent)})
    running = subprocess.Popen([sys.executable, "-c", KILLED, twenty, out], env=dict(os.environ) | paths)
    until = time.monotonic() + 1200
    while time.monotonic() < until and not (left := [*staging.glob("data/*/*/*.parquet")]):
        time.sleep(0.01)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    assert not out.exists()

    finished = command(str(twenty), "--out", str(out), "--shares", "2")

    assert finished.exit_code == 0, finished.stderr
    assert [len(capture.files) for capture in of_twenty.captures] == [20]
    assert of_export(out) == of_twenty.rows
    assert not any(path.exists() for path in left)
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


FAULT = "a fault of mqpcap, KeyError: 'x'"


def with_fault(monkeypatch: pytest.MonkeyPatch, place: object, name: str, is_bad: Callable[..., bool]) -> None:
    """Have a function of tasks raise what no capture should."""
    work = getattr(place, name)

    def failing(*given: object, **named: object) -> object:
        return {}["x"] if is_bad(*given, **named) else work(*given, **named)

    monkeypatch.setattr(place, name, failing)


@pytest.mark.parametrize(("share_count", "place", "name", "is_bad"), [
    (None, TaskFiles, "add", lambda files, table, rows: table == "flymq"),  # after rows of its messages
    (3, TaskFiles, "add", lambda files, table, rows: table == "flymq"),
    (3, RangeReader, "packets", lambda reader: "fetch" in reader.capture.files[0]),
    (3, delivery_keys, "deliveries", lambda protocol, parts: protocol == "flymq"),
    (3, tasks, "_describe", lambda task, files, result, options: "fetch" in task.capture.files[0]),
])  # fmt: skip
def test_capture_that_fails_is_named_and_the_others_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_count: int | None, place: object, name: str,
    is_bad: Callable[..., bool],
) -> None:  # fmt: skip
    """In a task with the others, and in each stage of shares."""
    names = [str(PCAPS / f"{name}.pcap") for name in ("blipmq/qos1", "flymq/fetch", "fq/session")]
    local(captures([names[0], names[2]]).captures, tmp_path / "others")
    with_fault(monkeypatch, place, name, is_bad)

    made = job.export(SPARK, captures(names).captures, str(tmp_path / "out"), Options(), share_count=share_count)

    assert made.unreadable == [(names[1], FAULT)]
    rows, expected = of_export(tmp_path / "out"), of_export(tmp_path / "others")
    (failed,) = {*rows.pop("captures")} - {*expected.pop("captures")}
    assert failed.count(f"'{names[1]}'") == 2 and "'unreadable'" in failed and FAULT in failed
    assert rows == expected


def test_full_disk_is_no_fault_of_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(storage: Storage, name: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Storage, "output", full)
    monkeypatch.setattr(Storage, "write", lambda storage, name, content: None)
    monkeypatch.setattr(Storage, "hide", lambda storage: None)

    with pytest.raises(OutputError, match="No space left on device"):
        job.export(SPARK, captures([str(PCAPS / "flymq/core.pcap")]).captures, str(tmp_path / "out"), Options())
