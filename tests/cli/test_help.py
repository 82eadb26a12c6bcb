"""Help: each command on one screen, whole sentences, and shared options explained once."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mqpcap.cli import main
from mqpcap.cli.command import COMMON, SELECT
from mqpcap.sample_captures import samples

SCREEN_LINES = 40
COMMANDS = [*main.commands, "spark export", ""]


def help_text(*words: str) -> str:
    result = CliRunner().invoke(main, list(words), env={"COLUMNS": "80"}, terminal_width=80)
    assert result.exit_code == 0
    return result.stdout


def options(name: str) -> list[click.Option]:
    entry: click.Command = main
    for word in name.split():
        assert isinstance(entry, click.Group)
        entry = entry.commands[word]
    return [param for param in entry.params if isinstance(param, click.Option)]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_a_screen(name: str) -> None:
    lines = help_text(*name.split(), "--help").splitlines()

    assert len(lines) <= SCREEN_LINES, f"{len(lines)} lines"
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines if "OPTIONS" not in line)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_option_and_explains_it_in_a_sentence(name: str) -> None:
    text = help_text(*name.split(), "--help")

    for option in options(name):
        assert re.search(rf"(^|\s|,){option.opts[0]}\b", text), option.opts
        sentence = re.sub(r"\s*\[default: .*\]$", "", option.help or "").strip()
        assert re.match(r"[A-Z-]", sentence), sentence
        assert sentence[-1] in ".,:", sentence


def test_shared_options_are_explained_once() -> None:
    select, common = help_text("help", "select"), help_text("help", "common")

    assert all(f"  {name}" in select for name in SELECT)
    assert all(f"  {name}" in common or f", {name}" in common for name in COMMON)
    assert "10.0.0.0/8 is many" in select
    assert "10.0.0.0/8 is many" not in help_text("show", "--help")
    assert "explained by mqpcap help select" in help_text("show", "--help")


def test_help_of_a_command_is_its_help() -> None:
    assert help_text("help", "show") == help_text("show", "--help")
    assert help_text("help") == help_text("--help")
    assert CliRunner().invoke(main, ["help", "nonsense"]).exit_code == 2


def test_the_captures_of_all_examples_come_with_the_package(tmp_path: Path) -> None:
    """After ``mqpcap samples pcaps`` the examples run wherever one is."""
    written = {path.relative_to(tmp_path).as_posix() for path in map(Path, samples(tmp_path / "pcaps"))}
    examples = " ".join(help_text(*name.split(), "--help") for name in COMMANDS)

    assert set(re.findall(r"pcaps/\S+\.pcap", examples)) <= written
