"""What the README shows is what the commands say.

Every ``console`` block is run from a copy of the repository's place: lines after ``$ mqpcap`` are what comes out,
stderr included. ``python tests/test_readme.py`` writes the blocks anew.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqpcap.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ mqpcap "


def blocks() -> list[str]:
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output that is shown."""
    for part in block.split(PROMPT)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def said(command: str) -> str:
    """What comes out, without what differs between machines: compiled loops, the size of files."""
    result = CliRunner().invoke(main, shlex.split(command))
    assert result.exit_code == 0, result.output
    return steady("".join(f"{line}\n" for line in result.output.splitlines() if "not compiled" not in line))


def steady(text: str) -> str:
    return re.sub(r"(rows in \d+ files), [0-9.]+ k?B", r"\1", text)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.partition("\n")[0])
def test_commands_say_what_the_readme_shows(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")
    monkeypatch.chdir(tmp_path)

    for command, shown in commands(block):
        assert said(command) == steady(shown)


def test_every_shell_example_is_tried() -> None:
    text = README.read_text(encoding="utf-8")

    assert len(blocks()) >= 5
    # The first block makes an environment from nothing; the container's run is its test.
    assert text.count("```sh\n") == 1


if __name__ == "__main__":

    def written(found: re.Match[str]) -> str:
        out = []
        for command, _ in commands(found[1]):
            result = CliRunner().invoke(main, shlex.split(command))
            lines = (line for line in result.output.splitlines() if "not compiled" not in line)
            out.append("\n".join([PROMPT + command, *lines]))
        return "```console\n" + "\n".join(out) + "\n```"

    README.write_text(BLOCK.sub(written, README.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
