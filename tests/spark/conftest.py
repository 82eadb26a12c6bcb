"""One Spark session for all tests that need one; skipped with a reason where there is no pyspark."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).resolve().parents[2] / "src"


def importable(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which a worker finds what this process imports."""
    paths = [p for p in sys.path if p and Path(p).is_dir() and "site-packages" not in p and "lib/python" not in p]
    paths = [p for p in paths if (Path(p) / "mqpcap").is_dir() or (Path(p) / "pyspark_mqpcap").is_dir()]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, environment.get("PYTHONPATH", "")]).strip(os.pathsep)}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with two slots."""
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    from mqpcap.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    os.environ.update(importable(dict(os.environ)))
    made = session(
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield made
    made.stop()
