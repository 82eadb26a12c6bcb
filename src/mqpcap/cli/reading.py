"""Inputs of a command for the call of its name, notes about them, printed at its end, and its exit code."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from mqpcap.cli.console import BarMeter, metered, print_note
from mqpcap.cli.other_words import input_hints
from mqpcap.reading import Inputs, Meter, Outcome, find_captures, size_bytes
from mqpcap.wording import plural

if TYPE_CHECKING:
    from mqpcap.capture import Capture
    from mqpcap.query import Query

NOT_COMPILED = "the byte loops are not compiled: about 8 times slower; an install with a C compiler compiles them"
MAX_NOTES = 20
"""Notes that are written; further notes are counted."""


def exit_code(outcome: Outcome, has_notes: bool = True) -> int:
    """The exit code, after printing what the user has to know; has_notes: False where the rows have the notes."""
    notes = outcome.final_notes() if has_notes else []
    for note in notes[:MAX_NOTES]:
        print_remark(outcome, note)
    if len(notes) > MAX_NOTES:
        print_remark(outcome, plural(len(notes) - MAX_NOTES, "more note"))
    if outcome.skipped:
        print_remark(outcome, f"skipped {plural(len(outcome.skipped), 'file that is', 'files that are')} no capture")
    for name, reason in outcome.unreadable:
        print_note(f"mqpcap: {name}: {reason}")
    strict = outcome.choices.strict and bool(outcome.flaws or outcome.skipped)
    if strict:
        causes = [plural(outcome.flaws.total(), "message") + " with a flaw"] if outcome.flaws else []
        causes += [plural(len(outcome.skipped), "skipped file")] if outcome.skipped else []
        print_note(f"mqpcap: --strict: {' and '.join(causes)}")
    return 1 if outcome.unreadable or strict else 0


def print_summary(outcome: Outcome, line: str) -> None:
    """A line on stderr, unless the user wants none of them."""
    if not outcome.choices.quiet:
        print_note(line)


def print_remark(outcome: Outcome, words: str) -> None:
    """A note on stderr, unless the user wants none."""
    print_summary(outcome, f"note: {words}")


def found(inputs: Sequence[str], outcome: Outcome) -> "list[Capture]":
    """The captures in the inputs, about to be read; what is none is the outcome's. Exits 2 for a count or a filter."""
    for hint in input_hints([name for name in inputs if not os.path.exists(name)]):
        raise click.UsageError(hint)
    if not outcome.file_count:  # once, also if inputs are searched separately
        tell_of_speed(outcome)
    return find_captures(inputs, outcome)


class CommandInputs(Inputs):
    """The inputs of a command: what is wrong with them is said at its end."""

    def __init__(
        self, names: Sequence[str], outcome: Outcome, wanted: "Query | None", passes: int, stack: ExitStack
    ) -> None:
        super().__init__(outcome, wanted)
        self._names, self._passes, self._stack = tuple(names), passes, stack
        self.meter = BarMeter(None, 0)

    @property
    def name(self) -> str:
        """The inputs, as they were given."""
        return ", ".join(self._names)

    @property
    def names(self) -> Sequence[str]:
        """The paths, as they were given."""
        return self._names

    def metered(self, captures: "Sequence[Capture]") -> Meter:
        """The bar of captures, which is drawn from now on."""
        total_bytes = self._passes * size_bytes(captures)
        self.progress = self.meter = self._stack.enter_context(metered(total_bytes, self.outcome.choices.quiet))
        return self.progress

    def say(self, line: str) -> None:
        """Write a line on what was done."""
        print_summary(self.outcome, line)

    def find(self) -> "Sequence[Capture]":
        """The captures in the inputs; their bar is drawn from now on."""
        captures = found(self._names, self.outcome)
        if self._passes:
            self.metered(captures)
        return captures

    def check(self, has_result: bool) -> None:
        """Ends the command where nothing could be read."""
        if not has_result:
            self._stack.close()
            finish(self.outcome)


@contextmanager
def reading(
    names: Sequence[str], outcome: Outcome, wanted: "Query | None" = None, passes: int = 1
) -> "Iterator[CommandInputs]":
    """The inputs of a call; each capture is read ``passes`` times; 0: without a bar."""
    with ExitStack() as stack:
        yield CommandInputs(names, outcome, wanted, passes, stack)


def tell_of_speed(outcome: Outcome) -> None:
    """Says so if the byte loops are not compiled."""
    from mqpcap.decode.bytecode import COMPILED

    if not COMPILED:
        print_remark(outcome, NOT_COMPILED)


def finish(outcome: Outcome, is_failed: bool = False, has_notes: bool = True) -> NoReturn:
    """Ends the command with the outcome's exit code; is_failed: it fails though all inputs were read."""
    sys.stdout.flush()
    code = exit_code(outcome, has_notes)
    click.get_current_context().exit(1 if is_failed else code)
