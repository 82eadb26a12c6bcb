"""A real cluster on loopback: a master and two workers, one of which is killed with its executor in mid-job."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from click.testing import CliRunner
from rows import QUICK_SPARK, importable, merged, of_export, rotated

from mqpcap.cli import main
from mqpcap.spark import session

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
BUDGET_S = 1200


@dataclass
class Cluster:
    url: str
    workers: list["subprocess.Popen[bytes]"]
    environment: dict[str, str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: Callable[[], Any], words: str, budget_s: float = 1200) -> Any:
    """The first true answer."""
    end = time.monotonic() + budget_s
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {words} within {budget_s} s")


def children(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _parent(path) == pid]
    return found + [inner for child in found for inner in children(child)]


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = importable(dict(os.environ)) | {
        "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": session._JVM, "SPARK_LAUNCHER_OPTS": session._JVM, "SPARK_NO_DAEMONIZE": "1",
        **session.environment(),
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        log = (folder / f"{name}.log").open("wb")
        started.append(
            subprocess.Popen(
                [str(SPARK_CLASS), *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=folder,
            )
        )
        log.close()
        return started[-1]

    def told(name: str, words: str) -> None:
        until(lambda: words in (folder / f"{name}.log").read_text(errors="replace"), f"{words!r} in {name}'s log")

    try:
        port = free_port()
        url = f"spark://127.0.0.1:{port}"
        start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
              "--webui-port", "0")  # fmt: skip
        told("master", "I have been elected leader")
        workers = [
            start(f"worker{i}", "org.apache.spark.deploy.worker.Worker", url, "--cores", "1", "--memory", "1g",
                  "--host", "127.0.0.1", "--work-dir", str(folder / f"work{i}"), "--webui-port", "0")
            for i in range(2)
        ]  # fmt: skip
        for i in range(2):
            told(f"worker{i}", "Successfully registered")
        yield Cluster(url, workers, environment)
    finally:
        for process in started:
            for child in (*children(process.pid), process.pid):
                try:
                    os.kill(child, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()


def test_job_survives_a_worker_killed_with_its_executor(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and output by names relative to the command: executors work in folders of their own.

    The export that is there is replaced by one of as many rows.
    """
    names = ["fq/session", "blipmq/qos1", "kokaq/go1_session"]
    whole = merged([PCAPS / f"{name}.pcap" for name in names], tmp_path / "whole")
    here, events = tmp_path / "here", tmp_path / "events"
    for folder in (here / "captures", events):
        folder.mkdir(parents=True)
    rotated(whole, here / "captures", 8)
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}", "spark.eventLog.compress": "false",
        "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false", **QUICK_SPARK,
        # Two executors before the first task, so that the killed one has work.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": "2",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }  # fmt: skip
    words = ["captures", "--out", "tables"]
    monkeypatch.chdir(here)
    assert CliRunner().invoke(main, ["export", "-q", *words]).exit_code == 0
    local = of_export(here / "tables")
    job = subprocess.Popen(
        [sys.executable, "-m", "mqpcap", "spark", "export", *words, "--master", cluster.url, "--shares", "4",
         *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))],
        cwd=here, env=cluster.environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    staging = here / ".tables.mqpcap-spark"
    try:
        until(lambda: job.poll() is not None or [*staging.glob("data/*/*/*.parquet")], "share")
        victim = cluster.workers[0].pid
        for pid in (*children(victim), victim):
            with suppress(ProcessLookupError):  # a task's process may end meanwhile
                os.kill(pid, signal.SIGKILL)
        _, told = job.communicate(timeout=BUDGET_S)
    finally:
        for pid in (*children(job.pid), job.pid):
            if job.poll() is None:
                os.kill(pid, signal.SIGKILL)

    assert job.returncode == 0, told
    assert of_export(here / "tables") == local
    assert sorted(path.name for path in here.iterdir()) == ["captures", "tables"]
    ended = list(_events(events))
    assert [e for e in ended if e["Event"] == "SparkListenerExecutorRemoved"]
    failed = [e for e in ended if e["Event"] == "SparkListenerTaskEnd" and e["Task Info"]["Failed"]]
    assert failed, "the executor was killed between tasks"
    assert {e["Task End Reason"]["Reason"] for e in failed} <= {"ExecutorLostFailure", "TaskKilled", "FetchFailed"}
    again = {(e["Stage ID"], e["Task Info"]["Index"]) for e in failed}
    redone = [
        e for e in ended
        if e["Event"] == "SparkListenerTaskEnd" and (e["Stage ID"], e["Task Info"]["Index"]) in again
        and e["Task Info"]["Attempt"] + e["Stage Attempt ID"] > 0 and e["Task End Reason"]["Reason"] == "Success"
    ]  # fmt: skip
    assert {(e["Stage ID"], e["Task Info"]["Index"]) for e in redone} == again


def failure(cluster: Cluster, folder: Path, *settings: str, **environment: str) -> list[str]:
    """What a job says that cannot be done."""
    words = ["flymq/core.pcap", "--out", str(folder / "tables"), "--master", cluster.url]
    done = subprocess.run(
        [sys.executable, "-m", "mqpcap", "spark", "export", *words, *(f"--conf={setting}" for setting in settings)],
        cwd=PCAPS, env=cluster.environment | environment, stderr=subprocess.PIPE, text=True, timeout=BUDGET_S,
        check=False,
    )  # fmt: skip
    assert (done.returncode, [*folder.iterdir()]) == (1, [])
    return [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]


def test_cluster_that_gives_no_executor_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    """As where all workers are dead: none of them has so much memory."""
    told = failure(cluster, tmp_path, "spark.executor.memory=900g", "spark.mqpcap.executorWait=1")

    assert told == [
        f"mqpcap: no executor for 1 s: {cluster.url} has no living worker with a free core and the memory of an "
        "executor (--conf spark.mqpcap.executorWait=3600 waits an hour)"
    ]


def test_workers_whose_python_lacks_the_package_are_one_line(cluster: Cluster, tmp_path: Path) -> None:
    """Before the job starts: a Python without the modules that are installed."""
    bare = tmp_path / "bare/python"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "out").mkdir()

    told = failure(
        cluster, tmp_path / "out", "spark.executor.memory=512m", PYSPARK_PYTHON=str(bare),
        PYSPARK_DRIVER_PYTHON=sys.executable, PYTHONPATH="",
    )  # fmt: skip

    advice = (
        "name a Python that has it on all machines by PYSPARK_PYTHON or --conf "
        "spark.sql.execution.pyspark.python=PYTHON"
    )
    missing = "pyarrow", "mqpcap"  # a checkout's mqpcap reaches the executors by their path
    error = "mqpcap: executors cannot load mqpcap: ModuleNotFoundError: No module named"
    assert told in [[f"{error} '{name}'; {advice}"] for name in missing]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    """The event log, one file or a folder of them."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith((".", "appstatus")):
            for line in path.read_text().splitlines():
                yield json.loads(line)
