"""Loads the package in the daemons from which Spark forks the workers of a source: each would load it anew.

A read of ``format("mqpcap")`` forks a worker for its schema and another for its plan, and each spends a second of CPU
on imports. No setting names the daemon of these workers (`mqpcap.spark.daemon` is that of tasks). Python runs this file
where ``PYTHONPATH`` has the folder, as in the session of ``tests/spark/conftest.py``.
"""

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv and sys.orig_argv[-1].startswith("pyspark.sql.worker."):
    importlib.import_module(sys.orig_argv[-1])
    importlib.import_module("mqpcap.spark.source")
    importlib.import_module("mqpcap.protocols").protocols()
