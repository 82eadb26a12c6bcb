"""Inputs to dissections, and what the exit code must remember of them.

Captures are read side by side in threads, or one after the other for ``export`` (see ``groups``), and given in the
order of the inputs. What cannot be read is said when everything else is done.
"""

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from mqpcap.cli.console import Meter, error_line, metered, plural, say
from mqpcap.cli.options import Choices
from mqpcap.errors import CaptureError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from mqpcap.capture import Capture, Found
    from mqpcap.pipeline import Dissection, Ready
    from mqpcap.tables.arrow import Chunk

NOT_COMPILED = "the byte loops are not compiled: about 8 times slower; an install with a C compiler compiles them"
MAX_NOTES = 20
"""So many notes are said one by one; the rest is counted."""


@dataclass(slots=True)
class Outcome:
    """What happened to the inputs, for notes and exit code."""

    choices: Choices
    tells_notes: bool = True
    """False where the rows say them already."""
    utc: bool = False
    """Whether times are shown in UTC, else in local time."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    flaws: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    stdin_path: str | None = None
    """A copy of standard input, for commands that read a capture twice."""
    stdin_copies: list[BinaryIO] = field(default_factory=list)
    """Those that were opened."""
    capture_count: int = 0
    file_count: int = 0
    aside: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered to write rows while captures are still read: the progress bar is out of the way."""

    def take(self, chunk: "Chunk") -> None:
        """Count the flaws of a chunk."""
        for pair in chunk.messages["flaw"].value_counts().to_pylist():
            if pair["values"] is not None:
                self.flaws[pair["values"]] += pair["counts"]

    @property
    def flaw_count(self) -> int:
        """Messages with a flaw."""
        return sum(self.flaws.values())

    def close(self) -> int:
        """The exit code, after saying what the user has to know."""
        if not self.choices.quiet and self.tells_notes:
            for note in self.notes[:MAX_NOTES]:
                say(f"note: {note}")
            if len(self.notes) > MAX_NOTES:
                say(f"note: {plural(len(self.notes) - MAX_NOTES, 'more note')}")
        if not self.choices.quiet and self.skipped:
            say(f"note: skipped {plural(len(self.skipped), 'file that is', 'files that are')} no capture")
        for name, reason in self.unreadable:
            say(f"mqpcap: {name}: {reason}")
        strict = self.choices.strict and bool(self.flaws or self.skipped)
        if strict:
            found = [plural(self.flaw_count, "message") + " with a flaw"] if self.flaws else []
            found += [plural(len(self.skipped), "skipped file")] if self.skipped else []
            say(f"mqpcap: --strict: {' and '.join(found)}")
        return 1 if self.unreadable or strict else 0


def found(inputs: Sequence[str], outcome: Outcome) -> "Found":
    """The captures in the inputs; what is none is the outcome's."""
    from mqpcap.capture import captures

    found = captures(inputs, _stdin_copy(outcome))
    outcome.unreadable += found.unreadable
    outcome.skipped += found.skipped
    outcome.capture_count += len(found.captures)
    outcome.file_count += sum(len(capture.files) for capture in found.captures)
    return found


@contextmanager
def kept_stdin(inputs: Sequence[str], outcome: Outcome) -> Iterator[None]:
    """Standard input copied to a file for as long as it may be read again."""
    if "-" not in inputs:
        yield
        return
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="mqpcap-stdin-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        outcome.stdin_path = copy.name
        try:
            yield
        finally:
            for opened in outcome.stdin_copies:
                opened.close()


def _stdin_copy(outcome: Outcome) -> BinaryIO | None:
    if outcome.stdin_path is None:
        return None
    outcome.stdin_copies.append(open(outcome.stdin_path, "rb"))  # noqa: SIM115 - closed by kept_stdin
    return outcome.stdin_copies[-1]


def again(capture: "Capture", outcome: Outcome) -> "Capture":
    """The capture, to be read once more."""
    if capture.files != ("-",) or outcome.stdin_path is None:
        return capture
    from mqpcap.capture import captures

    return captures(["-"], _stdin_copy(outcome)).captures[0]


def dissections(captures: "Sequence[Capture]", outcome: Outcome) -> "Iterator[Dissection]":
    """Each capture dissected, in order; one that fails is the outcome's, and the others go on."""
    choices = outcome.choices
    # Uncompiled loops hold the interpreter lock: side by side they only take memory.
    jobs = choices.core_count if told_of_speed(outcome) else 1
    jobs = max(1, min(jobs, len(captures)))
    with metered(size_bytes(captures), choices.quiet) as meter, closing(_runs(captures, choices, jobs, meter)) as runs:
        outcome.aside = meter.aside
        for capture, dissected in runs:
            dissection = _noted(capture, dissected, outcome)
            if dissection is not None:
                yield dissection


def one_by_one(captures: "Sequence[Capture]", outcome: Outcome, meter: Meter, ready: "Ready") -> "Iterator[Dissection]":
    """The same one after the other; ``ready`` is given what is final on the way, behind the reading if jobs allow."""
    from mqpcap.background import Background
    from mqpcap.pipeline import dissect

    options = outcome.choices.dissection()
    thread: AbstractContextManager[Executor | None] = nullcontext()
    if outcome.choices.core_count > 1:
        from concurrent.futures import ThreadPoolExecutor

        thread = ThreadPoolExecutor(1, "mqpcap-finish")
    with thread as pool:
        behind = Background(pool)
        for capture in captures:
            dissection = _noted(capture, partial(dissect, capture, options, meter, ready, behind), outcome)
            if dissection is not None:
                yield dissection


def told_of_speed(outcome: Outcome) -> bool:
    """Whether the byte loops are compiled; says so if they are not."""
    from mqpcap.decode.bytecode import COMPILED

    if not COMPILED and not outcome.choices.quiet:
        say(f"note: {NOT_COMPILED}")
    return COMPILED


def _noted(capture: "Capture", dissected: "Callable[[], Dissection]", outcome: Outcome) -> "Dissection | None":
    """The dissection, after the outcome has heard of it; None if nothing could be read."""
    try:
        dissection = dissected()
    except CaptureError as error:
        outcome.unreadable.append((capture.files[0], error_line(error)))
        return None
    if dissection.failure is not None:
        outcome.unreadable.append((capture.files[0], error_line(dissection.failure)))
    outcome.notes += [str(note) for note in capture.notes]
    outcome.notes += caps(dissection)
    return dissection


def _runs(
    captures: "Sequence[Capture]", choices: Choices, jobs: int, meter: Meter
) -> "Generator[tuple[Capture, Callable[[], Dissection]], None, None]":
    """Captures and what gives their dissections, no more than ``jobs`` begun before the first of them is taken."""
    from mqpcap.pipeline import dissect

    options = choices.dissection(jobs)
    if jobs == 1:
        # A thread more would change nothing, and importing its pool costs more than reading a small capture.
        yield from ((capture, partial(dissect, capture, options, meter)) for capture in captures)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting = deque(captures)
    under_way: deque[tuple[Capture, Future[Dissection]]] = deque()
    pool = ThreadPoolExecutor(jobs, "mqpcap-read")
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                capture = waiting.popleft()
                under_way.append((capture, pool.submit(dissect, capture, options, meter)))
            capture, run = under_way.popleft()
            yield capture, run.result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def size_bytes(captures: "Sequence[Capture]") -> int:
    """Bytes of all files of the captures, as far as they have a size."""
    total = 0
    for capture in captures:
        for name in capture.files:
            with suppress(OSError):
                total += os.stat(name).st_size
    return total


# Words of Dissection.counts that say a cap bit: what is said of it, given the count.
_CAPS = {
    "held_cap": "out-of-order data passed the memory cap {} times; holes were given up early",
    "crowded_out": "{} open connections were ended to make room; what follows of them are connections of their own",
    "history_shrunk": "the history of sent bytes was shortened {} times; older retransmissions were not compared",
    "datagram_dropped": "{} fragmented datagrams were dropped for want of their pieces or room",
    "too_deep": "{} packets have more headers inside each other than are read",
    "unknown_link_type": "{} packets have a link type that is not read",
}


def caps(dissection: "Dissection") -> list[str]:
    """What was lost on the way to a bound, in words."""
    name = dissection.capture.files[0]
    return [f"{name}: {words.format(n)}" for key, words in _CAPS.items() if (n := dissection.counts.get(key, 0))]


def finish(outcome: Outcome) -> None:
    """Ends the command with the outcome's exit code."""
    import click

    sys.stdout.flush()
    click.get_current_context().exit(outcome.close())
