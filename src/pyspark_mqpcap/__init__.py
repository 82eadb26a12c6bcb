"""Found by Spark, which imports every top-level module named ``pyspark_*`` when it meets a format it does not know.

``scapy_ext`` is here because Scapy's extension loader asks every top-level module of a distribution for one; there
is nothing to load for it.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """``DefaultSource``, loaded when Spark asks: Scapy imports this module too, where there may be no Spark."""
    if name == "DefaultSource":
        from mqpcap.spark.source import CaptureSource

        return CaptureSource
    raise AttributeError(name)


def scapy_ext(ext: object) -> None:
    """Nothing: the layers are loaded by ``mqpcap`` itself."""
