"""The fifteen questions of the commands' page: each command runs, and its output has the answer that the page shows."""

import re
import shlex
from pathlib import Path

import pytest
from running import ROOT, run

PAGE = ROOT / "src" / "mqpcap" / "cli" / "README.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| `mqpcap (.+?)` \| `(.+?)` \|$", re.MULTILINE)
QUESTIONS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_there_are_fifteen() -> None:
    assert [int(number) for number, *_ in QUESTIONS] == [*range(1, 16)]


@pytest.mark.parametrize(("number", "question", "command", "answer"), QUESTIONS, ids=lambda text: text[:30])
def test_the_command_answers(number: str, question: str, command: str, answer: str, tmp_path: Path) -> None:
    (tmp_path / "pcaps").symlink_to(ROOT / "pcaps")

    said = run(*shlex.split(command), cwd=tmp_path)

    assert said.exit_code == 0, said.stderr
    assert answer in " ".join(said.stdout.split())
