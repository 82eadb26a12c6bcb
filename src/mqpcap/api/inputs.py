"""The inputs of one call: captures that are found when they are first needed, and what happens to them."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

from mqpcap.capture import Capture
from mqpcap.errors import CaptureError
from mqpcap.query import WORDS, Query, query, shortcut_queries
from mqpcap.reading import Inputs, Meter, Outcome, checked_choices, no_progress, with_end
from mqpcap.wording import misuse_of

if TYPE_CHECKING:
    from mqpcap.recording import Paths


Source: TypeAlias = "Paths | Inputs"
"""Captures, or the inputs of a command, which has read its options."""


class _CallInputs(Inputs):
    """The inputs of a call, and temporary files that live as long as this object."""

    def __init__(self, path: "Paths", outcome: Outcome, progress: Meter, notes: list[str] | None) -> None:
        super().__init__(outcome, None, progress)
        self._path, self._notes = path, notes

    @property
    def name(self) -> str:
        """The inputs, as they were given."""
        return str(self._path)

    def find(self) -> Sequence[Capture]:
        """The captures in the inputs."""
        from mqpcap.recording import open_inputs

        captures, self._copies = open_inputs(self._path, self.outcome.choices.is_one)
        self.outcome.capture_count = len(captures)
        self.outcome.file_count = sum(len(capture.files) for capture in captures)
        return captures

    def check(self, has_result: bool = True) -> None:
        """Raises CaptureError if an input could not be read."""
        if self.outcome.unreadable:
            raise CaptureError(": ".join(self.outcome.unreadable[0]))

    def finish(self, *report_notes: str) -> None:
        """Give the notes out. Raises CaptureError if an input could not be read."""
        super().finish(*report_notes)
        self.check()
        if self._notes is not None:
            self._notes += self.outcome.final_notes()


def inputs_of(
    source: Source,
    options: Mapping[str, Any],
    progress: Callable[[int], None] = no_progress,
    notes: list[str] | None = None,
) -> Inputs:
    """The inputs of a call, its options checked. The inputs of a command are complete."""
    if isinstance(source, Inputs):
        return source
    return _CallInputs(source, Outcome(checked_choices(**options)), progress, notes)


def selected(
    source: Source,
    filter: str | Query | None,
    options: Mapping[str, Any],
    progress: Callable[[int], None] = no_progress,
    notes: list[str] | None = None,
) -> Inputs:
    """The inputs of a call with a filter, or with words for one among its options."""
    inputs = inputs_of(source, {name: options[name] for name in options if name not in WORDS}, progress, notes)
    if inputs is source:
        return inputs
    queries = shortcut_queries({name: value for name, value in options.items() if name in WORDS})
    with misuse_of("-Y"):
        queries += [] if filter is None else [query(filter) if isinstance(filter, str) else filter]
    if queries:
        wanted = reduce(and_, queries)
        wanted.check_bodies(inputs.outcome.choices.bodies)
        inputs.wanted = with_end(wanted, inputs.captures if wanted.needs_end else ())
    return inputs
