"""The same files without a compiler: an export of sample captures has the rows of the compiled one.

``.ci/run`` runs the quick tests uncompiled, too.
"""

import os
import shutil
from pathlib import Path

import pytest
from examples import one_in
from running import run

import mqpcap

duckdb = pytest.importorskip("duckdb", reason="duckdb is in the test extra")


def uncompiled(folder: Path) -> Path:
    """A copy of the package without compiled modules."""
    package = Path(mqpcap.__file__).parent
    shutil.copytree(package, folder / "mqpcap", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__"))
    return folder


def rows(out: Path, table: str) -> str:
    return f"select * from read_parquet('{out / table}/**/*.parquet', hive_partitioning = true)"


def test_an_export_of_sample_captures_is_the_same_uncompiled(tmp_path: Path, pcaps: Path) -> None:
    source = uncompiled(tmp_path / "source")
    samples = one_in(4, sorted(pcaps.glob("*/*.pcap")))
    compiled_out, plain_out = tmp_path / "compiled", tmp_path / "plain"
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])

    assert run("export", "-q", *samples, "--out", compiled_out).exit_code == 0
    ended = run("export", *samples, "--out", plain_out, PYTHONPATH=path)

    assert ended.exit_code == 0
    assert "not compiled" in ended.stderr
    names = sorted(place.name for place in compiled_out.iterdir() if place.is_dir())
    assert names == sorted(place.name for place in plain_out.iterdir() if place.is_dir())
    assert {"messages", "exchanges", "deliveries", "connections", "problems"} <= set(names)
    for name in names:
        one, other = rows(compiled_out, name), rows(plain_out, name)
        count = f"select count(*) from (({one} except all {other}) union all ({other} except all {one}))"
        assert (name, duckdb.sql(count).fetchall()) == (name, [(0,)])
