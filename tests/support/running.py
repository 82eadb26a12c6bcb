"""The command as a user runs it: a process of its own, in which Scapy is not loaded."""

import faulthandler
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import command_server

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "mqpcap"]
TIMEOUT_S = 300
"""Ends what hangs; nothing is slow enough to meet it. Other limits of tests are as long, but for Spark and brokers."""


@contextmanager
def ended_if_hung() -> Iterator[None]:
    """Ends the process, with all tracebacks, if the block hangs: its input would take quadratic time for hours."""
    faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def begun(fifo: Path, data: bytes) -> Iterator[None]:
    """While an export reads a pipe that has more to come, and has begun to write beside it."""
    with fifo.open("wb") as feeding:
        feeding.write(data)
        feeding.flush()
        deadline = time.monotonic() + 300
        while not list(fifo.parent.glob(".tables*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield


@dataclass(frozen=True)
class Ended:
    """What a command said, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


def environment(**variables: str) -> dict[str, str]:
    """Of a process that finds the package that is tested, from any folder."""
    return {**os.environ, "PYTHONPATH": command_server.START["PYTHONPATH"], "NO_COLOR": "1", **variables}


def run_bytes(
    *arguments: object, stdin: bytes = b"", cwd: Path = ROOT, **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """The command, run to its end."""
    words = [os.fsencode(x if isinstance(x, Path | bytes) else str(x)) for x in arguments]
    env = environment(**variables)
    if command_server.can_run(env):
        return command_server.run(words, cwd=cwd, environment=env, stdin=stdin, timeout_s=TIMEOUT_S)
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=env, input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S
    )


def run(*arguments: object, stdin: bytes = b"", cwd: Path = ROOT, **variables: str) -> Ended:
    """The same with text; fails where it ends in a traceback, whatever its exit code."""
    ended = run_bytes(*arguments, stdin=stdin, cwd=cwd, **variables)
    result = Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    assert "Traceback" not in result.stderr, result.stderr
    return result


def script(code: str, *arguments: object) -> Ended:
    """The same of Python code, for what takes a thousand commands in one process."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=environment(), capture_output=True,
        text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def on_terminal(width: int, *arguments: str, colours: bool = False) -> str:
    """What a command writes to a pseudo-terminal, its stdout and stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = environment(TERM="xterm", COLUMNS="", LINES="")
    if colours:
        del env["NO_COLOR"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    command = command_server.start([*arguments], env=env, cwd=ROOT, **streams)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # on Linux reading a terminal that nobody writes to any more is an error
        while some := os.read(ours, 65536):
            said += some
    os.close(ours)
    assert command.wait(300) == 0
    return said.decode()


def lines_on_terminal(width: int, *arguments: str, colours: bool = False) -> list[str]:
    """The same as lines."""
    return on_terminal(width, *arguments, colours=colours).replace("\r", "").splitlines()


def objects(ended: Ended) -> list[dict[str, object]]:
    """The rows of ``--json``."""
    return [json.loads(line) for line in ended.stdout.splitlines()]
