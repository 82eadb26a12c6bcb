"""A process of its own: its streams, signals and end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rows import row_count
from running import COMMAND, ROOT, begun, environment

from mqpcap.cli.process import NoPandas

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_ctrl_c_is_caught_as_soon_as_python_runs() -> None:
    """What is loaded before that: Ctrl-C meanwhile is a traceback."""
    code = (
        "import re, sys; before = set(sys.modules); from mqpcap.__main__ import main; print(*set(sys.modules) - before)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)

    assert set(loaded.stdout.split()) <= {"mqpcap", "mqpcap.errors", "mqpcap.__main__", "__future__"}


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGHUP, "terminated")])
def test_an_interrupted_export_ends_at_once_and_leaves_nothing(number: int, word: str, tmp_path: Path) -> None:
    fifo = tmp_path / "slow.pcap"
    os.mkfifo(fifo)
    # Tests that a shell runs in the background ignore SIGINT, and so would what they start.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    heeding += "; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    heeding += "; from mqpcap.cli import main; main()"
    exporting = subprocess.Popen(
        [sys.executable, "-c", heeding, "export", "-q", str(fifo), "--out", str(tmp_path / "tables")], cwd=ROOT,
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with begun(fifo, (ROOT / QOS1).read_bytes()[:4000]):
        exporting.send_signal(number)
        assert exporting.wait(timeout=300) == 1

    assert exporting.stderr is not None
    assert exporting.stderr.read() == f"mqpcap: {word}\n"
    exporting.stderr.close()
    assert {path.name for path in tmp_path.iterdir()} == {"slow.pcap"}


@pytest.mark.parametrize("arguments", [("--help",), ("show", "--help")], ids=" ".join)
@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
def test_a_stdout_that_takes_nothing_is_one_line(arguments: tuple[str, ...], stdout: str) -> None:
    command = ["sh", "-c", f'exec "$@" {stdout}', "sh", *COMMAND, *arguments]

    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)

    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("mqpcap: ")


def test_an_export_needs_no_standard_streams(tmp_path: Path) -> None:
    """A file that is opened must not get the number of one of them: what is said would be written into it."""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "export", QOS1, "--out", str(tmp_path / "out")]

    assert subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode == 0
    assert row_count(tmp_path / "out", "messages") == 242


def test_a_command_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    """It waits for the rest of a capture on standard input."""
    command = subprocess.Popen(
        [*COMMAND, "show", "-x", "-"], cwd=ROOT, env=environment(TMPDIR=str(tmp_path)), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert command.stdin is not None and command.stdout is not None
    command.stdin.write((ROOT / QOS1).read_bytes())
    command.stdin.flush()
    assert b"HELLO" in command.stdout.readline()

    command.terminate()

    assert command.communicate(timeout=300)[1] == b"mqpcap: terminated\n"
    assert (command.returncode, list(tmp_path.iterdir())) == (1, [])


def test_an_export_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    """A pipe that gives no more holds it up when its folder is there."""
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    command = subprocess.Popen(
        [*COMMAND, "export", str(pipe), "--out", str(tmp_path / "out")], cwd=ROOT, env=environment(),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    with pipe.open("wb", buffering=0) as writer:
        writer.write((ROOT / QOS1).read_bytes()[:20_000])
        deadline_s = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert len(list(tmp_path.iterdir())) == 2

        command.terminate()

        assert command.communicate(timeout=300)[1] == b"mqpcap: terminated\n"
    assert (command.returncode, list(tmp_path.iterdir())) == (1, [pipe])


@pytest.mark.parametrize("name", ["pandas", "dateutil"])
def test_what_costs_half_a_second_is_not_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        NoPandas.find_spec(name)

    assert NoPandas.find_spec(f"{name}s") is None  # others are asked


def run_script(script: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own that may end itself: what its signals do must not reach the tests."""
    return subprocess.run([sys.executable, "-c", script, *words], cwd=ROOT, env=environment(), capture_output=True,
                          text=True, check=False, timeout=300)  # fmt: skip


def test_sigterm_unwinds_once() -> None:
    script = (
        "import os, signal\nfrom mqpcap.cli.process import Terminated, unwind_on_signals\n"
        "unwind_on_signals()\n"
        "try:\n signal.raise_signal(signal.SIGTERM)\n"
        "except Terminated:\n signal.raise_signal(signal.SIGTERM)\n os.write(1, b'undisturbed')\n os._exit(1)"
    )
    ended = run_script(script)

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "undisturbed", "")


@pytest.mark.parametrize(("raised", "said"), [("Terminated", "terminated"), ("KeyboardInterrupt", "interrupted")])
def test_a_library_that_fails_on_its_way_out_hides_no_interruption(raised: str, said: str) -> None:
    """As pyspark's, where it connects: it closes what it has not opened yet."""
    script = (
        "import click\nfrom mqpcap.cli import Commands\nfrom mqpcap.cli.process import Terminated\n"
        "@click.group(cls=Commands)\ndef main(): pass\n"
        f"@main.command()\ndef connect():\n try: raise {raised}\n finally: not_opened.close()\n"
        "main()"
    )
    ended = run_script(script, "connect")

    assert (ended.returncode, ended.stderr) == (1, f"mqpcap: {said}\n")


def test_ctrl_c_while_options_are_read_is_one_line() -> None:
    """Where click would write its own: an empty line and "Aborted!"."""
    script = (
        "import click\nfrom mqpcap.cli import Commands\n"
        "def interrupt(*_): raise KeyboardInterrupt\n"
        "@click.group(cls=Commands)\n@click.option('--name', callback=interrupt)\ndef main(name): pass\n"
        "main()"
    )
    ended = run_script(script, "--name", "x")

    assert (ended.returncode, ended.stderr) == (1, "mqpcap: interrupted\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_that_python_drops_is_raised_again(number: str) -> None:
    """What the callback of a weak reference raises is dropped, and each import has such a callback."""
    script = (
        "import os, signal, time, weakref\nfrom mqpcap.cli.process import Interrupted, unwind_on_signals\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nclass Module: pass\n"
        f"def skip_final_cleanup(_):\n os.kill(os.getpid(), signal.{number})\n sum(range(1000))\n"
        "unwind_on_signals()\nmodule = Module()\nkept = weakref.ref(module, skip_final_cleanup)\n"
        "try:\n del module\n time.sleep(30)\n"
        f"except Interrupted as error:\n assert error.number == signal.{number}\n os.write(1, b'heard')\n os._exit(1)"
    )
    ended = run_script(script)

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "heard", "")
