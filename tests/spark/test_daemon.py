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
SUPPORT = Path(__file__).resolve().parents[1] / "support"
DAEMON = """
import json, pyspark, pyspark.daemon, pyspark.errors, py4j.protocol, runpy, sys

def manager():
    '''Stands where workers are forked, and does the tasks of a job, all kinds of them.'''
    told.append(sorted(sys.modules))
    from mqpcap.capture import captures
    from mqpcap.spark import job
    sys.path.insert(0, sys.argv[3])
    from in_process_spark import InProcessSpark
    loaded = {*sys.modules}
    found = captures(sys.argv[1:2]).captures
    made = job.export(InProcessSpark(), found, sys.argv[2], job.Options(), share_count=3)
    told.extend([sorted({*sys.modules} - loaded), made.task_count])

told, pyspark.daemon.manager = [], manager
runpy.run_module("mqpcap.spark.daemon", run_name="mqpcap.spark.daemon")
told.append("imported")
runpy.run_module("mqpcap.spark.daemon", run_name="__main__")
print(json.dumps(told))
"""


def test_tasks_load_no_module_that_the_daemon_has_not_loaded(tmp_path: Path) -> None:
    """A daemon that is only imported forks nothing."""
    command = [
        sys.executable,
        "-c",
        DAEMON,
        str(PCAPS / "blipmq/synthetic_v2_plain.pcap"),
        str(tmp_path / "tables"),
        str(SUPPORT),
    ]

    ended = subprocess.run(command, capture_output=True, text=True, env=importable(dict(os.environ)), check=False)

    assert ended.returncode == 0, ended.stderr
    first, by_daemon, by_tasks, task_count = json.loads(ended.stdout)
    assert first == "imported"
    assert {"mqpcap.spark.tasks", "mqpcap.protocols.kokaq", "pyarrow.parquet"} <= {*by_daemon}
    assert by_tasks == []
    assert task_count == 6  # three read shares, two pair deliveries, one describes the file


def test_sessions_on_one_machine_name_the_daemon() -> None:
    assert session._LOCAL["spark.python.daemon.module"] == "mqpcap.spark.daemon"
