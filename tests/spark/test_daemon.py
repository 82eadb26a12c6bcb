"""Workers are forked from a daemon that has loaded what their tasks need; they load nothing themselves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from rows import importable

from mqpcap.spark import session

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
WORKER = """
import json, pyspark.daemon, runpy, sys

def manager():
    '''Stands where workers are forked: what a job's tasks load from here on, all kinds of them.'''
    loaded = set(sys.modules)
    from mqpcap.spark import job, storage
    told.append(sorted(loaded))
    loaded = set(sys.modules)
    found = storage.captures(sys.argv[1:2]).captures
    made = job.export(None, found, sys.argv[2], job.Options(), share_count=3)
    told.append(sorted(set(sys.modules) - loaded))
    told.append(made.task_count)

told, pyspark.daemon.manager = [], manager
runpy.run_module("mqpcap.spark.daemon", run_name=sys.argv[3])
print(json.dumps(told))
"""


def run(out: Path, name: str) -> list[object]:
    """What is told by a process in which the daemon's module is loaded by a name."""
    command = [sys.executable, "-c", WORKER, str(PCAPS / "blipmq/synthetic_v2_plain.pcap"), str(out), name]
    ended = subprocess.run(command, capture_output=True, text=True, env=importable(dict(os.environ)), check=True)
    told: list[object] = json.loads(ended.stdout)
    return told


def test_tasks_load_no_module_that_the_daemon_has_not_loaded(tmp_path: Path) -> None:
    by_daemon, by_tasks, task_count = run(tmp_path / "tables", "__main__")

    assert isinstance(by_daemon, list)
    assert {"mqpcap.spark.tasks", "mqpcap.protocols.kokaq", "pyarrow.parquet"} <= {*by_daemon}
    assert by_tasks == []
    assert task_count == 6  # the packets' distribution, three shares, the row of captures, the join


def test_daemon_that_is_imported_forks_nothing(tmp_path: Path) -> None:
    assert run(tmp_path / "tables", "mqpcap.spark.daemon") == []


def test_sessions_on_one_machine_name_the_daemon() -> None:
    assert session._LOCAL["spark.python.daemon.module"] == "mqpcap.spark.daemon"
