"""What is said beside the rows: folded, escaped, coloured, with a bar or without."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from running import lines_on_terminal, on_terminal, run

from mqpcap.cli.console import BarMeter, coloured, width_of, wrapped

QOS1 = "pcaps/blipmq/qos1.pcap"
ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def screen(data: str) -> list[str]:
    """What a terminal shows of these bytes: the escapes that a progress bar uses, and lines longer than no screen."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", data):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            rows[row] = ""
        elif not part.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
    return rows


def test_nothing_of_the_bar_stays_in_reports_on_a_terminal() -> None:
    """The progress bar is drawn in between."""
    names = ("pcaps/faults/blipmq_lost.pcap", QOS1, "pcaps/fq/session.pcap")

    said = on_terminal(120, "info", *names)

    assert "reading" in said
    without = screen(on_terminal(120, "info", "-q", *names))
    assert "\n".join(screen(said)).rstrip("\n") == "\n".join(without).rstrip("\n")
    assert all(any(line.startswith(name) for line in without) for name in names)


def test_output_of_a_process_is_plain_and_quiet_is_quiet() -> None:
    said = run("show", "-q", "-c", "2", QOS1)

    assert (said.exit_code, said.stderr) == (0, "")
    assert len(said.stdout.splitlines()) == 2
    assert "\x1b" not in said.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("info", "-q", "-u", QOS1), ("protocols",), ("explain", "-q", "-u", "pcaps/flymq/core.pcap", "--at", "10"),
        ("stats", "-q", "--delays", "pcaps/flymq/core.pcap"), ("stats", "-q", "--talkers", "pcaps/flymq"),
        ("stats", "-q", "--by", "op,topic,client,status", "pcaps/flymq/core.pcap"),
        ("show", "--op", "PUBLIS", QOS1),
    ],
    ids=lambda command: " ".join(command[:3]),
)  # fmt: skip
def test_every_screen_fits_80_columns(command: tuple[str, ...]) -> None:
    """What is wider a terminal breaks inside of words."""
    said = lines_on_terminal(80, *command)

    assert said
    assert max(map(len, said)) <= 80


@pytest.mark.parametrize(
    "command", [("show", "-q", "-u", "-c", "5", QOS1), ("explain", "-q", "-u", QOS1, "--at", "12")]
)
def test_colour_is_always_auto_or_never(command: tuple[str, ...]) -> None:
    plain = run(*command).stdout
    coloured = run(*command, "--color", "always").stdout

    assert "\x1b[" not in plain
    assert "\x1b[" in coloured and ESCAPES.sub("", coloured) == plain
    assert "\x1b[" in "".join(lines_on_terminal(120, *command, colours=True))
    assert "\x1b[" not in "".join(lines_on_terminal(120, *command))  # NO_COLOR
    assert "\x1b[" not in "".join(lines_on_terminal(120, *command, "--color", "never", colours=True))


@pytest.mark.parametrize(
    "command", [("explain", "-q", "-u", "--readings", QOS1, "--at", "12"), ("info", "-q", "-u", QOS1),
                ("show", "-q", "-u", "-c", "5", QOS1)], ids=lambda command: command[0],
)  # fmt: skip
def test_coloured_lines_break_where_plain_ones_do(command: tuple[str, ...]) -> None:
    coloured = lines_on_terminal(60, *command, colours=True)
    plain = lines_on_terminal(60, *command)

    assert "\x1b[" in "".join(coloured) and "\x1b[" not in "".join(plain)
    assert [ESCAPES.sub("", line).rstrip() for line in coloured] == [line.rstrip() for line in plain]
    assert max(map(len, plain)) <= 60


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@given(st.lists(st.text("ab,", min_size=1, max_size=12), min_size=1), st.integers(10, 30))
def test_a_line_is_folded_between_words_and_none_is_lost(words: list[str], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        bold = " ".join(f"\x1b[1m{word}\x1b[0m" for word in words)
        plain, coloured_ = wrapped(" ".join(words), Terminal()), wrapped(bold, Terminal())

    assert plain.split() == words
    assert max(map(len, plain.split("\n"))) <= max(width, 2 + max(map(len, words)))
    assert ESCAPES.sub("", coloured_) == plain
    assert all(line.startswith("  ") for line in plain.split("\n")[1:])


def test_what_is_no_terminal_has_no_width_and_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert (width_of(io.StringIO()), width_of(None), width_of(Terminal())) == (None, None, 20)
    assert wrapped("x " * 20, io.StringIO()) == "x " * 20
    assert [coloured(stream) for stream in (io.StringIO(), Terminal())] == [False, True]
    monkeypatch.setenv("TERM", "dumb")
    assert [coloured(Terminal(), when) for when in ("auto", "always", "never")] == [False, True, False]


def test_a_bar_has_no_end_beyond_the_expected_size() -> None:
    """A compressed file gives more bytes than it has."""
    bar = Progress(disable=True)
    meter, told = BarMeter(bar, 10), []
    for _ in range(3):
        meter(5)
        told.append((bar.tasks[0].description, bar.tasks[0].completed, bar.tasks[0].total))

    assert told == [("reading", 5, 10), ("finishing", 10, None), ("reading", 15, None)]
