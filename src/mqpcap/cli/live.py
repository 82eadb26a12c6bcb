"""Inputs that come as they happen: an interface, a file that grows, a pipe. Ctrl-C is their end."""

import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqpcap.cli.completion import interfaces
from mqpcap.cli.options import P, R
from mqpcap.cli.other_words import is_capture_filter
from mqpcap.cli.reading import found, print_remark, tell_of_speed
from mqpcap.reading import Outcome
from mqpcap.wording import counted, plural

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.capture.interface import Interface

DRAIN_S = 2.0
"""A pipe is read this long after Ctrl-C: its writer got Ctrl-C, too, and may write its last packets."""


class EndOfInput:
    """Ctrl-C, or another of ``signals``, as the end of input while it is entered; the second one interrupts."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.heard_s: float | None = None
        self.at_once = False
        """Whether nothing is waited for any more."""
        self._signals = signals or (signal.SIGINT,)
        self._told: Callable[[], None] | None = None
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> "EndOfInput":
        self._before = [(number, signal.signal(number, self._hear)) for number in self._signals]
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def tell(self, callback: Callable[[], None]) -> None:
        """Call this when it comes, at once if it came. It ends the input after all that is queued."""
        self._told = callback
        if self.heard_s is not None:
            callback()

    def _hear(self, number: int, frame: object) -> None:
        if self.heard_s is not None:
            raise KeyboardInterrupt
        self.heard_s = time.monotonic()
        if self._told is not None:
            self._told()

    def is_over(self) -> bool:
        """Whether what comes later is not wanted."""
        if self.heard_s is None or self._told is not None:
            return False
        return self.at_once or time.monotonic() - self.heard_s > DRAIN_S


def input_options(command: Callable[P, R]) -> Callable[P, R]:
    """The command with INPUT, ``-i`` and ``-f``, given to it as ``inputs``, ``interface`` and ``bpf``."""
    inputs = click.argument("inputs", nargs=-1, metavar="INPUT...", type=click.Path(readable=False))
    listen = click.option("-i", "--interface", metavar="IFACE", shell_complete=interfaces,
                          help="Listen to a network interface until Ctrl-C.")  # fmt: skip
    packets = click.option("-f", "--bpf", metavar="BPF", help="With -i: capture only what tcpdump's BPF selects.")
    return inputs(listen(packets(command)))


def check_sources(inputs: Sequence[str], interface: str | None, bpf: str | None, follow: bool = False) -> None:
    """Exits 2 where what is to be read is not one thing."""
    if interface is not None and is_capture_filter(inputs):
        raise click.UsageError(f"-f '{' '.join(inputs)}' captures only these packets; -i goes with no INPUT")
    if interface is not None and inputs:
        raise click.UsageError("-i listens to an interface; it goes with no INPUT")
    if interface is None and not inputs:
        raise click.UsageError("Missing argument 'INPUT...'.")
    if bpf is not None and interface is None:
        raise click.UsageError("-f goes with -i; -Y selects messages of a capture, and --fields chooses their columns")
    if follow and (interface is not None or len(inputs) != 1 or inputs[0] == "-"):
        raise click.UsageError("--follow goes with one file or directory; -i and pipes are followed as they are")


def comes_live(inputs: Sequence[str], interface: str | None, follow: bool) -> bool:
    """Whether Ctrl-C is the end of input: an interface, a file that grows, a pipe."""
    return interface is not None or follow or any(map(_is_pipe, inputs))


def _is_pipe(name: str) -> bool:
    if name == "-":
        return not sys.stdin.isatty()
    with suppress(OSError, ValueError):
        return stat.S_ISFIFO(Path(name).stat().st_mode)
    return False


@contextmanager
def listening(interface: str, bpf: str | None, end: EndOfInput, outcome: Outcome) -> "Iterator[Interface]":
    """The interface, which the end of input stops; exits 2 where the filter is none. Dropped packets are noted."""
    from mqpcap.capture.interface import Interface

    tell_of_speed(outcome)
    try:
        listener = Interface(interface, bpf)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'-f'") from error
    end.tell(listener.stop)
    print_remark(outcome, f"listening on {interface}; Ctrl-C ends it")
    try:
        yield listener
        if listener.failure is not None:
            outcome.unreadable.append((interface, listener.failure))
        if dropped := listener.dropped_count():
            outcome.notes.append(f"{interface}: {plural(dropped, 'packet')} came too fast and were dropped")
    finally:
        listener.close()


@contextmanager
def open_captures(
    inputs: Sequence[str], interface: str | None, bpf: str | None, follow: bool, end: EndOfInput, outcome: Outcome
) -> "Iterator[Sequence[Capture]]":
    """The captures to read; what is none is the outcome's."""
    if outcome.choices.keys is not None:
        outcome.choices.keys.grows = comes_live(inputs, interface, follow)
    if interface is not None:
        with listening(interface, bpf, end, outcome) as listener:
            yield [listener.capture()]
    elif follow:
        from mqpcap.capture import InputWait
        from mqpcap.capture.rotation import follow_rotation

        tell_of_speed(outcome)
        end.at_once = True
        yield [follow_rotation(inputs[0], InputWait(lambda: None, end.is_over), partial(print_remark, outcome))]
    else:
        yield found(inputs, outcome)


class Renewal:
    """Writes counts again and again while packets come: on a terminal over the last ones, else after their time."""

    def __init__(self, every_s: int | None, form: str, write: Callable[[], object]) -> None:
        self._every_s, self._form, self._write = every_s, form, write
        self._next_s = time.monotonic() + (every_s or 0)
        self._is_terminal = sys.stdout.isatty()

    def tick(self) -> None:
        """Write if it is time; called whenever packets came, and while none come."""
        if self._every_s is None or time.monotonic() < self._next_s:
            return
        self._next_s += self._every_s * (1 + int((time.monotonic() - self._next_s) // self._every_s))
        self.finish()
        self._write()
        sys.stdout.flush()

    def finish(self) -> None:
        """Make place for other counts."""
        if self._every_s is None:
            return
        if self._is_terminal:
            sys.stdout.write("\x1b[H\x1b[2J\x1b[3J")
        elif self._form == "text":
            sys.stdout.write(f"-- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n")


def summary(outcome: Outcome, captures: "Sequence[Capture]") -> str:
    """Numbers of packets and messages, in one line."""
    packets = sum(facts.packet_count for capture in captures for facts in capture.facts)
    kinds = f": {counted(sorted(outcome.messages.items()))}" if outcome.messages else ""
    dropped = [facts.drop_count for capture in captures for facts in capture.facts if facts.drop_count is not None]
    counts = [
        plural(outcome.messages.total(), "message") + kinds,
        f"flaws: {counted(sorted(outcome.flaws.items()))}",
        plural(packets, "packet") + (f", {sum(dropped):,} dropped" if dropped else ""),
    ]
    return "; ".join(counts)
