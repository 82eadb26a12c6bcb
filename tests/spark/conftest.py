"""One Spark session for all tests that need one; skipped with a reason where there is no pyspark."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from rows import QUICK_JAVA, importable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",  # tables this small are slower to plan again than to join
            "spark.default.parallelism": "2",
            # A query of a few hundred rows is read sooner than its code is compiled.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield made
    made.stop()
