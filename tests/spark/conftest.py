"""One Spark session for all tests that need one; skipped with a reason where there is no pyspark."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rows import QUICK_SPARK, importable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMONS = Path(__file__).parents[1] / "support" / "spark_daemons"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with two slots."""
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    from mqpcap.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    environment = importable(dict(os.environ))
    os.environ.update(environment | {"PYTHONPATH": os.pathsep.join([str(DAEMONS), environment["PYTHONPATH"]])})
    made = session(
        "local[2]",
        {
            **QUICK_SPARK,
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield made
    made.stop()
