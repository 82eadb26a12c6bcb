"""TLS with a key log on Spark: the rows of the local reading, in any number of shares."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from opened_tls import CAPTURES, capture_with_secrets

import mqpcap
from mqpcap.spark import register
from mqpcap.spark.streaming import stream_to_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["go_t12_resumed", "flymq_go_t13"])
def test_shares_open_what_one_reading_opens(spark: "SparkSession", name: str) -> None:
    """The second and third connection of Go are resumed: no share needs the first for them."""
    register(spark)
    path, key_log = CAPTURES / f"{name}.pcap", CAPTURES / f"{name}.keylog"
    reader = spark.read.format("mqpcap").option("keylog", str(key_log)).option("shares", "3")
    rows = reader.option("table", "connections").load(str(path)).toArrow()
    local = mqpcap.read(path, "connections", keylog=key_log)

    assert rows["tls"].unique().to_pylist() == ["opened"]
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, local.select(rows.column_names).to_pylist()))


def test_secrets_in_a_capture_open_it_in_shares_and_in_a_stream(spark: "SparkSession", tmp_path: Path) -> None:
    from deltalake import DeltaTable

    register(spark)
    (tmp_path / "in").mkdir()
    path = capture_with_secrets("t13_aes256_gcm", tmp_path / "in" / "x.pcapng")
    rows = spark.read.format("mqpcap").option("shares", "2").load(str(path)).toArrow()
    stream_to_lake(spark, str(path.parent), tmp_path / "lake", finish=True)

    assert rows.num_rows == 112
    assert DeltaTable(tmp_path / "lake" / "messages").to_pyarrow_table().num_rows == 112
