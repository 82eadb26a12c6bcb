"""The house rules that tools can check, and what an installation must bring along."""

import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Written in two halves, so that this file does not name them either.
REGISTRY_HOSTS = [
    name + ending
    for name, ending in [
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("anaconda", ".org"),
        ("conda-forge", ".org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("crates", ".io"),
        ("docker", ".io"),
        ("ghcr", ".io"),
        ("quay", ".io"),
        ("proxy.golang", ".org"),
        ("repo1.maven", ".org"),
        ("repo.maven.apache", ".org"),
        ("rubygems", ".org"),
    ]
]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def tool(name: str) -> str:
    """The tool beside this Python, else on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def installed() -> importlib.metadata.Distribution:
    try:
        found = importlib.metadata.distribution("mqpcap")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mqpcap is not installed, only on the path")
    if found.read_text("top_level.txt") is None:
        pytest.skip("mqpcap is not installed by setuptools")
    return found


def tracked_files() -> list[Path]:
    listed = run(tool("git"), "ls-files", "-z")
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_types_are_right() -> None:
    pytest.importorskip("mypy")

    checked = run(sys.executable, "-m", "mypy")

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_style_is_kept() -> None:
    for command in (("check", "--output-format", "concise"), ("format", "--check")):
        checked = run(tool("ruff"), *command, "--no-cache")

        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rooms_import_only_rooms_below_them() -> None:
    checked = run(tool("lint-imports"), "--no-cache", PYTHONPATH=str(ROOT / "src"))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_scapy_finds_the_package_and_may_load_it() -> None:
    distribution = installed()

    assert "mqpcap" in (distribution.read_text("top_level.txt") or "").split()
    assert distribution.metadata["License-Expression"] == "GPL-2.0-or-later"


def test_scapy_loads_the_extension_without_a_word() -> None:
    installed()

    loaded = run(sys.executable, "-c", "from scapy.config import conf; conf.exts.load('mqpcap')")

    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (0, "", "")


def test_licence_and_type_marker_are_there() -> None:
    assert "GNU GENERAL PUBLIC LICENSE" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert importlib.resources.files("mqpcap").joinpath("py.typed").is_file()


def test_loops_are_all_compiled_or_none_and_keep_their_source() -> None:
    files = [Path(str(file.locate())) for file in installed().files or []]
    sources = {path for path in files if path.suffix == ".py"}
    compiled = {path.with_name(path.name.partition(".")[0] + ".py") for path in files if path.suffix in {".so", ".pyd"}}

    assert compiled in (set(), {path for path in sources if "\n# cython: " in "\n" + path.read_text(encoding="utf-8")})


def test_no_tracked_file_names_a_registry_host() -> None:
    hosts = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)).encode())

    naming = [path for path in tracked_files() if hosts.search(path.read_bytes())]

    assert naming == []


@pytest.mark.parametrize("arguments", ["--help", "export --help"])
def test_help_loads_neither_scapy_nor_arrow(arguments: str) -> None:
    script = (
        "import sys\n"
        "from mqpcap.cli import main\n"
        f"sys.argv = ['mqpcap', *{arguments.split()!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code, ended.code\n"
        "print([name for name in ('scapy', 'pyarrow', 'pyspark', 'numpy') if name in sys.modules], file=sys.stderr)\n"
    )

    ended = run(sys.executable, "-c", script)

    assert (ended.returncode, ended.stderr) == (0, "[]\n")


def test_pipelines_are_wired_in_one_function() -> None:
    """`reading.wired` gives rows to a caller with the time of the first packet."""
    wirings = [path.name for path in (ROOT / "src").rglob("*.py") if "CapturePipeline(" in path.read_text("utf-8")]

    assert wirings == ["reading.py"]
