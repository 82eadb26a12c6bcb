"""Starts commands fast: a process that has loaded the package forks one process for each command.

``start`` and ``program`` are for tests that need a process, such as terminals and shells (see ``forked_command``).
``run`` is ``subprocess.run([sys.executable, "-m", "mqpcap", ...])`` without the time in which Python loads modules. The
command is still a process of its own with its own streams, folder, environment, exit code and end. Each command is
tested as an installed process, too (``cli/test_endings.py``); what depends on a fresh interpreter belongs there.
"""

import array
import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import forked_command

import mqpcap

LOADED = (
    "api",
    "capture",
    "cli",
    "correlate",
    "decode",
    "listing",
    "protocols",
    "query",
    "schema",
    "statistics",
    "tables",
)
"""Packages whose modules the server loads."""
READ_AT_START = ("ARROW_", "GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON")
"""First letters of environment variables that Python and libraries read before a command begins."""
MESSENGER = forked_command.__file__
PACKAGE = str(Path(mqpcap.__file__).parent.parent)
START = os.environ | {"PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])}
"""The environment in which the server starts."""
FORKED_THREADS = {"jemalloc_bg_thd"}
"""Threads that their library handles when a process forks."""
REQUEST_BYTES = 1 << 18
"""Longest request: arguments, folder and environment."""
EXIT_CODE: list[int] = []
"""The command's, once it has ended."""


def can_run(environment: dict[str, str]) -> bool:
    """Whether a process that the server forks is as one started in this environment."""
    names = [name for name in environment.keys() | START.keys() if name.startswith(READ_AT_START)]
    return all(environment.get(name) == START.get(name) for name in names)


def run(
    arguments: list[bytes], *, cwd: Path, environment: dict[str, str], stdin: bytes, timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """The command, run to its end."""
    request = [[os.fsdecode(word) for word in arguments], str(cwd), environment]
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipes = [os.pipe() for _ in range(3)]
    given = [pipes[0][0], pipes[1][1], pipes[2][1], theirs.fileno()]
    with status, ThreadPoolExecutor(3) as pool:
        _server().sendmsg(
            [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))]
        )
        for descriptor in given[:3]:
            os.close(descriptor)
        theirs.close()
        writing = pool.submit(_write_all, pipes[0][1], stdin)
        outputs = [pool.submit(_read_all, pipe[0]) for pipe in pipes[1:]]
        status.settimeout(timeout_s)
        command = int(status.recv(20))
        try:
            code = int(status.recv(20))
        except TimeoutError:
            os.kill(command, signal.SIGKILL)
            raise
        writing.result()
        return subprocess.CompletedProcess(arguments, code, *(output.result() for output in outputs))


def start(arguments: list[str], *, env: dict[str, str], **options: Any) -> "subprocess.Popen[bytes]":
    """``Popen`` of the command. Not for tests that send signals or set limits: they would be those of a messenger."""
    messenger = [sys.executable, "-IS", MESSENGER, *arguments]
    return subprocess.Popen(messenger, **options, **connected(env))


def connected(environment: dict[str, str]) -> dict[str, Any]:
    """Options of a process that starts commands by ``forked_command``."""
    assert can_run(environment)
    number = _server().fileno()
    return {"env": environment | {forked_command.SERVER: str(number)}, "pass_fds": [number]}


def program(folder: Path) -> Path:
    """Write a program ``mqpcap`` for the shells of such a process."""
    path = folder / "mqpcap"
    path.write_text(f"#!{sys.executable} -IS\n{Path(MESSENGER).read_text()}")
    path.chmod(0o755)
    return path


def _write_all(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb", buffering=0) as stream:
        rest = memoryview(data)
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[stream.write(rest) :]


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


@cache
def _server() -> socket.socket:
    """The connection to a server that lives as long as this process.

    Its streams are pipes, as those of commands are, so that Python's stream objects fit both.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for connection in (ours, theirs):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
    server = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=START,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    theirs.close()
    atexit.register(lambda: (ours.close(), server.communicate()))
    return ours


def _load() -> None:
    """Import what commands import. No thread may run, since a fork would lose it."""
    from mqpcap.cli.process import NoPandas, configure_process

    configure_process()
    for name in LOADED:
        package = importlib.import_module(f"mqpcap.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"mqpcap.{name}."):
            importlib.import_module(module.name)
    importlib.import_module("mqpcap.parallel_export")
    sys.meta_path.remove(NoPandas)  # the command's own is put there when it begins
    with suppress(ImportError):
        for name in ("figure", "dates", "backends.backend_svg"):  # of reports
            importlib.import_module(f"matplotlib.{name}")
    gc.collect()
    gc.freeze()
    threads = [thread for thread in Path("/proc/self/task").iterdir() if int(thread.name) != os.getpid()]
    others = {(thread / "comm").read_text().strip() for thread in threads}
    assert others <= FORKED_THREADS, others


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    data, ancillary, _flags, _address = connection.recvmsg(REQUEST_BYTES, socket.CMSG_SPACE(4 * 4))
    descriptors = array.array("i")
    for _level, _kind, content in ancillary:
        descriptors.frombytes(content)
    return data, list(descriptors)


def _serve(connection: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Wait for requests; returns in the process of each command, with its streams open."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of processes that report ends, which nobody waits for
    while True:
        data, descriptors = _receive(connection)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = descriptors
    command = os.fork()
    if command:
        _report_end(command, streams, socket.socket(fileno=status))
    os.close(status)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    words, cwd, environment = json.loads(data)
    return words, cwd, environment


def _report_end(command: int, streams: list[int], status: socket.socket) -> None:
    """Send the number of the command's process, then its exit code; ends this process."""
    for descriptor in streams:
        os.close(descriptor)
    status.send(b"%d" % command)
    status.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
    os._exit(0)


def _skip_teardown() -> None:
    """End without taking apart all modules: that copies every page of memory shared with the server, half of the time.

    Called after the other functions that run at exit. Where the last output cannot be written, Python says so.
    """
    if EXIT_CODE:
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_CODE[0])


def main() -> None:
    atexit.register(_skip_teardown)  # before libraries, so it is the last to be called
    _load()
    words, cwd, environment = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(cwd)
    sys.path[0] = cwd
    sys.argv[1:] = words
    try:
        runpy.run_module("mqpcap", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            EXIT_CODE.append(end.code or 0)
        raise


if __name__ == "__main__":
    main()
