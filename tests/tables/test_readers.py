"""The page of readers: its lines run, and each library that is installed reads every value of every table."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqpcap

duckdb, polars, pandas = (
    pytest.importorskip(name, reason=f"{name} is not installed") for name in ("duckdb", "polars", "pandas")
)

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("fq/peers", "flymq/fetch", "blipmq/qos1", "kokaq/go1_session", "msgq/json_session", "faults/flymq_lost")
PAGE = (ROOT / "src/mqpcap/tables/README.md").read_text()
READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyarrow": lambda folder: pq.read_table(folder),
    "DuckDB": lambda folder: duckdb.sql(f"SELECT * FROM '{folder}/*/*.parquet'").to_arrow_table(),
    "Polars": lambda folder: polars.read_parquet(folder).to_arrow(),
    "pandas": lambda folder: pa.Table.from_pandas(pandas.read_parquet(folder, dtype_backend="pyarrow")),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readers") / "tables"
    mqpcap.export([ROOT / f"pcaps/{name}.pcap" for name in SAMPLES], out)
    return out


def plain(value: Any) -> Any:
    """A value without the type that a reader gives it: lists of pairs, whole decimals, times as text."""
    if isinstance(value, dict):
        return [plain(x) for pair in value.items() for x in pair]
    if isinstance(value, list):
        return [plain(x) for x in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize("reader", READERS)
def test_every_value_of_every_table_is_read(tables: Path, reader: str) -> None:
    for folder in sorted(path for path in tables.iterdir() if path.is_dir()):
        files = [pq.ParquetFile(path).read() for path in sorted(folder.glob("*/*.parquet"))]
        rows = READERS[reader](folder)
        for name in files[0].column_names:
            expected = sorted(repr(plain(x)) for file in files for x in file[name].to_pylist())
            utc = rows[name].cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(rows[name].type) else rows[name]
            assert sorted(repr(plain(x)) for x in utc.to_pylist()) == expected, (folder.name, name)


def test_lines_of_the_page_run(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tables.parent)
    names: dict[str, Any] = {}
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    exec(block, names)

    assert sum(count for _, count in names["by_topic"]) == names["arrow"].num_rows > 1000
    assert set(names["errors"]["status"]) == {"error"}
    whole = [ns for ns in names["exact"]["reply_ts_ns"] if not pandas.isna(ns)]
    lost_ns = max(abs(int(float(ns)) - ns) for ns in whole)
    assert 0 < lost_ns <= 128 and names["floats"]["reply_ts_ns"].dtype == float
