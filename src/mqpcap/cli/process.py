"""A process that is ours from begin to end, made ready for reading captures and nothing else."""

import codecs
import gc
import io
import os
import signal
import sys
import threading
from collections import defaultdict
from types import ModuleType

from mqpcap.cli.console import escape_unencodable

GARBAGE_OBJECTS = 300_000
"""New objects after which garbage is collected."""
RAISED_AGAIN_S = 0.01
"""Seconds after which the code that dropped an exception has ended; earlier it would be dropped again."""


def configure_process() -> None:
    """Do without what costs a short command more than its work.

    Scapy, pandas, documentation of functions, searches for garbage, idle threads.
    """
    import mqpcap.schema.scapy_stub  # noqa: F401 - that it is there is what counts

    # What imports make stays: looking through it again and again takes a tenth of a short command.
    gc.set_threshold(GARBAGE_OBJECTS)
    # numpy's threads would spin for a tenth of a second, waiting for matrices that nobody here multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow and numpy in one heap: what one frees the other takes, which saves 20 MB and a twentieth of the time.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, NoPandas)
    sys.modules.setdefault(_NO_DOCUMENTS.__name__, _NO_DOCUMENTS)


def skip_final_cleanup() -> None:
    """Let the process end without a last search for garbage, which takes a twentieth of a short command.

    All output is written, so signals that end it are ignored from here on.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()


def open_closed_streams() -> None:
    """Give a process that was started without standard streams some, so that it says so in one line.

    Without them a file opened later would take their number, and rows would be written into it.
    """
    for number, (name, mode, other_way) in enumerate(
        [("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)]
    ):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, other_way)  # the lowest number free, unless the streams were set to None
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for the life of the process


def escape_unencodable_output() -> None:
    """Have stdout escape the characters that its encoding does not have, instead of failing."""
    codecs.register_error("mqpcap.escape", escape_unencodable)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="mqpcap.escape")


class Interrupted(KeyboardInterrupt):
    """SIGINT: the user leaves, and what is temporary is taken away."""

    number = signal.SIGINT

    def __del__(self) -> None:
        """Send the signal again, a moment later: Python dropped this exception.

        It drops what is raised in the callback of a weak reference (the page of module weakref says so), and each
        import runs such a callback (importlib._bootstrap._get_module_lock).
        """
        unwind_on_signals()
        threading.Timer(RAISED_AGAIN_S, os.kill, (os.getpid(), self.number)).start()


class Terminated(Interrupted):
    """SIGTERM, or SIGHUP of a terminal that was closed: the same."""

    number = signal.SIGTERM


def unwind_on_signals() -> None:
    """Have Ctrl-C, SIGTERM and SIGHUP unwind the process; the latter two once.

    A command that a script runs in the background ignores Ctrl-C, and goes on to do so.
    """

    def leave(number: int, frame: object) -> None:
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
            raise Terminated
        signal.signal(number, signal.default_int_handler)
        raise Interrupted

    signal.signal(signal.SIGTERM, leave)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, leave)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = _hide_dropped


def _hide_dropped(dropped: "sys.UnraisableHookArgs") -> None:
    if not isinstance(dropped.exc_value, Interrupted):
        sys.__unraisablehook__(dropped)


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C or SIGTERM that made a command fail: what a library does on its way out may fail, too."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


class NoPandas:
    """A finder that says there is no pandas, and no dateutil.

    pyarrow imports them, where they are installed, as soon as a list becomes an array: half a second for nothing.
    (None in ``sys.modules`` does not do: what Cython compiled takes it for the module.)
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise for the packages that are hidden; other finders look up all other packages."""
        if name in ("pandas", "dateutil"):
            raise ModuleNotFoundError("the command line does without it", name=name)


def allow_pandas() -> None:
    """Have imports find the hidden packages again."""
    if NoPandas in sys.meta_path:
        sys.meta_path.remove(NoPandas)


# While it is imported, pyarrow.compute reads the docstrings of all options to write those of its functions: a tenth
# of a short command, for texts that nobody here asks for.
_NO_DOCUMENTS = ModuleType("pyarrow.vendored.docscrape")
_NO_DOCUMENTS.NumpyDocString = lambda text: defaultdict(tuple)  # type: ignore[attr-defined]  # no section has anything
