"""The command as a user runs it: a process of its own, in which Scapy is not loaded."""

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryFile
from threading import Thread

import mqpcap

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "mqpcap"]
TIMEOUT_S = 300


@dataclass(frozen=True)
class Ended:
    """What a command said, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


def environment(**variables: str) -> dict[str, str]:
    """Of a process that finds the package that is tested, from any folder."""
    path = os.pathsep.join([str(Path(mqpcap.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    given = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {**given, "PYTHONPATH": path, "NO_COLOR": "1", **variables}


def run(*arguments: object, stdin: bytes = b"", cwd: Path = ROOT, **variables: str) -> Ended:
    """The command, run to its end; fails where it ends in a traceback, whatever its exit code.

    Its process is a fork of one that has made the imports, unless variables of its environment are others.
    """
    forks = _forks()
    if environment(**variables) != forks.environment:
        return executed(*arguments, stdin=stdin, cwd=cwd, **variables)
    said = forks.run([os.fsdecode(x) if isinstance(x, Path) else str(x) for x in arguments], stdin, cwd)
    assert "Traceback" not in said.stderr, said.stderr
    return said


def executed(*arguments: object, stdin: bytes = b"", cwd: Path = ROOT, **variables: str) -> Ended:
    """The same by an interpreter that begins with nothing, as a shell starts it."""
    words = [os.fsencode(x) if isinstance(x, Path) else str(x) for x in arguments]
    ended = subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=environment(**variables), input=stdin, capture_output=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    said = Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    assert "Traceback" not in said.stderr, said.stderr
    return said


class _Forks:
    """The process that ``forks.py`` is, asked for one command at a time."""

    def __init__(self) -> None:
        self.environment = environment()
        self._link, theirs = socket.socketpair()
        self._link.settimeout(TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("forks.py"), str(theirs.fileno())], env=self.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def run(self, words: list[str], stdin: bytes, cwd: Path) -> Ended:
        with TemporaryFile() as out, TemporaryFile() as talk:
            theirs, ours = os.pipe()
            request = json.dumps([os.fspath(cwd), *words]).encode() + b"\n"
            socket.send_fds(self._link, [request], [theirs, out.fileno(), talk.fileno()])
            os.close(theirs)
            feeding = Thread(target=_feed, args=(ours, stdin))
            feeding.start()
            child = self._number()
            try:
                code = self._number()
            except TimeoutError:
                os.kill(child, SIGKILL)
                raise
            feeding.join()
            out.seek(0)
            talk.seek(0)
            return Ended(code, out.read().decode(), talk.read().decode())

    def _number(self) -> int:
        number: int = struct.unpack("i", self._link.recv(4, socket.MSG_WAITALL))[0]
        return number


def _feed(pipe: int, content: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(content)


@cache
def _forks() -> _Forks:
    return _Forks()


def script(code: str, *arguments: object) -> Ended:
    """The same of Python code, for what takes a thousand commands in one process."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=environment(), capture_output=True,
        text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)
