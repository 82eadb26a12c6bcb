"""The pipeline on Spark: captures as DataFrames, as a stream, and exported by a cluster.

``spark.read.format("mqpcap").load(path)`` needs no call: Spark finds the module ``pyspark_mqpcap`` beside this
package. A broken ``pyspark_*`` package of another project ends that search; then call `register`. The bulk job is
`mqpcap.spark.job.export`, on the command line ``mqpcap spark export``. Only this package imports pyspark, and importing
it loads neither pyspark nor Scapy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqpcap.spark.streaming import stream_to_lake

__all__ = ["register", "stream_to_lake"]


def __getattr__(name: str) -> Any:
    if name == "stream_to_lake":
        from mqpcap.call_options import names_options
        from mqpcap.spark.streaming import stream_to_lake

        return names_options(stream_to_lake)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: "SparkSession") -> None:
    """Makes ``mqpcap`` a format of this session."""
    from mqpcap.spark.source import CaptureSource

    spark.dataSource.register(CaptureSource)
