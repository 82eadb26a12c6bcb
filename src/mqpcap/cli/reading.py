"""Notes about the inputs of a command, printed at its end, and its exit code."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from mqpcap.cli.console import BarMeter, metered, print_note
from mqpcap.cli.other_words import input_hints
from mqpcap.reading import Outcome, find_captures, size_bytes
from mqpcap.wording import plural

if TYPE_CHECKING:
    from mqpcap.capture import Capture

NOT_COMPILED = "the byte loops are not compiled: about 8 times slower; an install with a C compiler compiles them"
MAX_NOTES = 20
"""Notes that are written; further notes are counted."""


def exit_code(outcome: Outcome) -> int:
    """The exit code, after saying what the user has to know."""
    notes = outcome.final_notes() if outcome.tells_notes else []
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
    is_failed = strict or outcome.is_failed or (outcome.needs_match and not outcome.match_count)
    return 1 if outcome.unreadable or is_failed else 0


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


@contextmanager
def reading(inputs: Sequence[str], outcome: Outcome, passes: int = 1) -> "Iterator[tuple[list[Capture], BarMeter]]":
    """The captures in the inputs, and a meter of the bytes that are read of them; each is read ``passes`` times."""
    captures = found(inputs, outcome)
    with metered(passes * size_bytes(captures), outcome.choices.quiet) as meter:
        yield captures, meter


def tell_of_speed(outcome: Outcome) -> None:
    """Says so if the byte loops are not compiled."""
    from mqpcap.decode.bytecode import COMPILED

    if not COMPILED:
        print_remark(outcome, NOT_COMPILED)


def finish(outcome: Outcome) -> NoReturn:
    """Ends the command with the outcome's exit code."""
    sys.stdout.flush()
    click.get_current_context().exit(exit_code(outcome))
