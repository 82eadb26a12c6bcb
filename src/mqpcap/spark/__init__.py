"""The pipeline on Spark: captures as DataFrames, as a stream, and exported by a cluster.

``spark.read.format("mqpcap").load(path)`` needs no call: Spark finds the module ``pyspark_mqpcap`` beside this
package. Where another ``pyspark_*`` package is broken and Spark's search with it, `register` does the same. The bulk
job is `mqpcap.spark.job.export`, as a command ``mqpcap spark export``. Only this package imports pyspark, and importing
it loads neither pyspark nor Scapy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Makes ``mqpcap`` a format of this session, and lets option ``pushdown`` work in it."""
    from mqpcap.spark.source import CaptureSource

    spark.dataSource.register(CaptureSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
