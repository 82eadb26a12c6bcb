"""The page of the lake: its commands and its lines of Python run, as a reader would run them."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

for _library in ("deltalake", "duckdb", "polars", "pandas"):
    pytest.importorskip(_library, reason=f"{_library} is not installed")
from lakes import age
from rows import rotated

from mqpcap.cli import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "src/mqpcap/delta/README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_commands_and_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("captures").mkdir()
    for path in rotated(ROOT / "pcaps/flymq/groups.pcap", Path("captures"), 2, "broker.pcap"):
        age(path)
    names: dict[str, Any] = {}

    for kind, text in BLOCKS:
        if kind == "python":
            exec(text, names)
        for line in text.splitlines() if kind == "sh" else ():
            done = CliRunner().invoke(main, shlex.split(line)[1:])
            assert done.exit_code == 0, (line, done.output)

    shutil.rmtree("captures")
    ((message_count,),) = names["count"]
    assert names["topics"]["len"].sum() == message_count > 0
    assert len(names["slow"]) == 3
    assert names["talkers"].fetchall()
    assert CliRunner().invoke(main, ["ask", "slowest", "tables"]).exit_code == 0


def test_pandas_reads_times_beside_integers_with_nulls_without_loss(tmp_path: Path) -> None:
    """Nullable integers become floats, so each such time has a timestamp of the same microsecond."""
    from mqpcap.tables.schemas import TABLES

    for table in ("exchanges", "deliveries"):
        for field in TABLES[table]:
            if field.name.endswith("ts_ns") and field.nullable:
                assert field.name.removesuffix("_ns") in TABLES[table].names, field.name
