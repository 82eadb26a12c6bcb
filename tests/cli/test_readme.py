"""What README.md and the pages beside the source show is what the commands say.

Every ``console`` block is run from a folder with the samples in it, each command in a process of its own: lines after
``$ mqpcap`` are what comes out, stderr included. ``PYTHONPATH=tests/support python tests/cli/test_readme.py`` writes
the blocks anew.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from live_broker import Broker
from running import ROOT, environment, run

README = ROOT / "README.md"
MOST_LINES = 150
PAGES = [README, *sorted((ROOT / "src").rglob("README.md")), *sorted((ROOT / "tests").rglob("README.md"))]
LINK = re.compile(r"\]\(([^)#:]+)\)")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ mqpcap "


def blocks() -> list[str]:
    return [block for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output that is shown."""
    for part in block.split(PROMPT)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def comparable_output(command: str, folder: Path) -> str:
    """What comes out, without what differs between machines: compiled loops."""
    ended = run(*shlex.split(command), cwd=folder)
    assert ended.exit_code == 0, ended.stderr
    lines = (ended.stdout + ended.stderr).splitlines()
    return "".join(f"{line}\n" for line in lines if "not compiled" not in line)


def steady(text: str) -> str:
    """The text without the size of files, which differs between machines."""
    return re.sub(r"(rows in \d+ files), [0-9.]+ k?B", r"\1", text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder from which the samples are where they are from the repository's."""
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
    return tmp_path


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.partition("\n")[0])
def test_commands_say_what_the_pages_show(block: str, place: Path) -> None:
    for command, shown in commands(block):
        assert steady(comparable_output(command, place)) == steady(shown)


def test_every_console_block_is_tried() -> None:
    assert len(blocks()) >= 5
    assert all(block.startswith(PROMPT) for block in blocks())


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_shell_example_exports(place: Path) -> None:
    """The block makes an environment from nothing, of which a container is the test; here what it runs there."""
    (shell,) = re.findall(r"^```sh\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"\.venv/bin/mqpcap ([^&\n]*)", shell)

    assert "rows in" in comparable_output(command, place)
    assert any((place / "tables" / "messages").iterdir())


LISTENING = [
    code
    for page in PAGES
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if re.search(r"sniff\(iface|StreamSocket\(", code)
]
"""Examples that listen to an interface, or ask a server."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_and_scapy_examples_run(page: Path, place: Path) -> None:
    """Each with names of its own; what listens or asks a server needs a broker, see below."""
    examples = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    for code in examples:
        compile(code, str(page), "exec")
    whole = [x for x in examples if re.search(r"^(import mqpcap|from mqpcap.scapy import \*)$", x, re.MULTILINE)]
    whole = [x for x in whole if x not in LISTENING]
    each = "import sys\nfor code in sys.argv[1:]:\n    exec(code, {'__name__': '__main__'})"
    if whole:
        subprocess.run([sys.executable, "-c", each, *whole], cwd=place, env=environment(), check=True, timeout=300)


@pytest.mark.parametrize("code", LISTENING, ids=lambda code: re.search("sniff|StreamSocket", code)[0])
def test_examples_that_listen_and_ask_run(code: str, place: Path) -> None:
    """With a broker. It answers the first request, however long that takes; the second one waits for a second."""
    if "iface=" in code and os.geteuid() != 0:
        pytest.skip("to listen on an interface needs rights")
    with Broker() as broker:
        lines = re.sub(r"timeout=\d+", "timeout=1", code.replace("5555", str(broker.port)))
        lines = re.sub(r"(sr1\(.*timeout=)1", r"\g<1>300", lines)
        ended = subprocess.run(
            [sys.executable, "-c", lines], cwd=place, env=environment(), check=True, stdout=subprocess.PIPE, text=True
        )

    assert ("got 1 answers" in ended.stdout) == ("sr1(" in code)


if __name__ == "__main__":

    def written(found: re.Match[str]) -> str:
        with TemporaryDirectory() as folder:
            (Path(folder) / "pcaps").symlink_to(ROOT / "pcaps")
            out = [
                PROMPT + command + "\n" + comparable_output(command, Path(folder)) for command, _ in commands(found[1])
            ]
        return "```console\n" + "".join(out) + "```"

    for page in PAGES:
        page.write_text(BLOCK.sub(written, page.read_text(encoding="utf-8")), encoding="utf-8")
