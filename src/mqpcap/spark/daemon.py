"""Spark's Python daemon with the engine loaded: workers are forked from it and need not load it again.

``spark.python.daemon.module`` names it in the sessions that `mqpcap.spark.session` makes on one machine. Loading takes
a second of CPU, which each worker would pay for itself.
"""

from pyspark.daemon import manager

import mqpcap.spark.tasks  # noqa: F401 - for the workers
from mqpcap.protocols import protocols

if __name__ == "__main__":
    protocols()
    manager()
