"""The tables of an export, read by Spark, DuckDB and Polars: the same types, counts and sums."""

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
duckdb = pytest.importorskip("duckdb", reason="duckdb is in the test extra")
pl = pytest.importorskip("polars", reason="polars is in the test extra")

from click.testing import CliRunner

from mqpcap.cli import main
from mqpcap.spark import schemas
from mqpcap.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",
                               "ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip
PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
NAMES = ("fq/peers", "flymq/fetch", "flymq/pipelining", "blipmq/qos1", "msgq/json_session", "kokaq/go1_session",
         "mqtt/v5_paho", "faults/flymq_lost", "faults/fq_snapped")  # fmt: skip
SPARK = {"quote": "`", "micros": "unix_micros", "text": "octet_length", "list": "size"}
DUCKDB = {"quote": '"', "micros": "epoch_us", "text": "strlen", "list": "len"}
Told = dict[str, tuple[int, int]]
"""By column: how many values are not null, and their sum, see `sums`."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readers") / "tables"
    done = CliRunner().invoke(main, ["export", "-q", *(f"{PCAPS}/{name}.pcap" for name in NAMES), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


def sums(schema: pa.Schema, words: dict[str, str]) -> list[str]:
    """For each column its count, and the sum of its numbers, microseconds, trues, bytes or list lengths, as SQL."""
    made = []
    for field in schema:
        name = f"{words['quote']}{field.name}{words['quote']}"
        if pa.types.is_timestamp(field.type):
            what = f"{words['micros']}({name})"
        elif pa.types.is_string(field.type):
            what = f"{words['text']}({name})"
        elif pa.types.is_binary(field.type):
            what = f"octet_length({name})"
        elif pa.types.is_list(field.type):
            what = f"{words['list']}({name})"
        else:
            what = f"CAST({name} AS INT)" if pa.types.is_boolean(field.type) else name
        made += [f"count({name})", f"coalesce(sum(CAST({what} AS DECIMAL(38, 0))), 0)"]
    return made


def printed(schema: pa.Schema, row: Sequence[int | Decimal]) -> Told:
    numbers = [int(x) for x in row]
    return {name: (numbers[2 * i], numbers[2 * i + 1]) for i, name in enumerate(schema.names)}


def polars_sums(schema: pa.Schema, frame: "pl.LazyFrame") -> Told:
    asked = []
    for field in schema:
        column = pl.col(field.name)
        what = column
        if pa.types.is_timestamp(field.type):
            what = column.dt.epoch("us")
        elif pa.types.is_string(field.type):
            what = column.str.len_bytes()
        elif pa.types.is_binary(field.type):
            what = column.bin.size()
        elif pa.types.is_list(field.type):
            what = column.list.len()
        wide = what if pa.types.is_decimal(field.type) else what.cast(pl.Int128)
        asked += [column.count().alias(f"{field.name} count"), wide.sum().alias(f"{field.name} sum")]
    return printed(schema, frame.select(asked).collect().row(0))


def spark_sums(frames: "dict[str, DataFrame]") -> dict[str, Told]:
    """Those of all tables by one job."""
    asked = [
        frame.selectExpr(f"'{name}' AS name", f"array({', '.join(sums(schemas.table_schema(name), SPARK))}) AS sums")
        for name, frame in frames.items()
    ]
    rows = reduce(lambda one, other: one.union(other), asked).collect()
    return {row["name"]: printed(schemas.table_schema(row["name"]), row["sums"]) for row in rows}


def test_spark_duckdb_and_polars_read_the_same(spark: "SparkSession", exported: Path) -> None:
    folders = [folder for folder in sorted(exported.iterdir()) if folder.is_dir()]

    assert {folder.name for folder in folders} == {*schemas.table_names()}
    frames = {folder.name: spark.read.parquet(str(folder)).drop("date") for folder in folders}
    in_spark = spark_sums(frames)
    for folder in folders:
        schema, files = schemas.table_schema(folder.name), f"{folder}/**/*.parquet"
        connection = duckdb.connect()
        connection.execute(f"CREATE VIEW files AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
        connection.register("empty", schema.empty_table())
        (row,) = connection.execute(f"SELECT {', '.join(sums(schema, DUCKDB))} FROM files").fetchall()
        of_duckdb = printed(schema, row)
        by_polars = pl.scan_parquet(files, hive_partitioning=False)

        # What each engine makes of the Arrow schema is what it finds in the files.
        may_be_null = pa.schema([field.with_nullable(True) for field in schema])  # as Spark reads any file
        assert frames[folder.name].schema == spark_schema(may_be_null), folder.name
        assert dict(by_polars.collect_schema()) == dict(pl.from_arrow(schema.empty_table()).schema), folder.name
        found, wanted = (connection.execute(f"DESCRIBE SELECT * FROM {x}").fetchall() for x in ("files", "empty"))
        assert [row[:2] for row in found] == [row[:2] for row in wanted], folder.name
        assert in_spark[folder.name] == of_duckdb == polars_sums(schema, by_polars), folder.name
        assert max(count for count, _ in of_duckdb.values()) > 0
