"""A Spark session that works as it is: with a Java, and with this very interpreter for the tasks."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING

from mqpcap.spark.java import SparkError, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = "there is no pyspark: pip install 'mqpcap[spark]'"
_LOGGING = Path(__file__).parent / "log4j2.properties"
_LOCAL = {
    # The JVM only hands out tasks: compiling it well and collecting in parallel cost more than they give.
    # With one compiler Java keeps 48 MB of code, too little for Spark: it would be swept out and compiled again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    f"-Dlog4j2.configurationFile={_LOGGING}",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "mqpcap.spark.daemon",
}
_ALWAYS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """The running session, or a new one; ``local[*]`` unless a master is named here or by spark-submit.

    Raises SparkError with what to do where Java or pyspark is missing.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError(NO_SPARK) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    local = not submitted and (master is None or master.startswith("local"))
    remote = master is not None and master.startswith("sc://")
    if not submitted and not remote:
        os.environ.update(environment())
    if local:
        # Spark would take whatever python3 is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("mqpcap")
    if remote:
        builder = builder.remote(master)
    elif not submitted:
        builder = builder.master(master or "local[*]")
    for name, value in {**(_LOCAL if local else {}), **_ALWAYS, **(conf or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except KeyboardInterrupt as error:
        # A JVM that is left while it starts would never end; nothing else knows of it yet. It has nothing to put away,
        # and told by SIGTERM it may say on stderr that its log is not ready.
        for frame, _ in walk_tb(error.__traceback__):
            if isinstance(starting := frame.f_locals.get("proc"), Popen):
                starting.kill()
        raise
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark does not start: {' '.join(str(error).split())[:300]}") from error
