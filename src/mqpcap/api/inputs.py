"""The inputs of one call: captures that are found when they are first needed, and what happens to them."""

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

from mqpcap.capture import Capture
from mqpcap.errors import CaptureError
from mqpcap.query import WORDS, Query, query, shortcut_queries
from mqpcap.reading import Inputs, Outcome, checked_choices, no_progress, with_end
from mqpcap.wording import misuse_of

if TYPE_CHECKING:
    from mqpcap.recording import Paths


Source: TypeAlias = "Paths | Inputs"
"""Captures, or the inputs of a command, which has read its options."""


class _CallInputs(Inputs):
    """The inputs of a call, and temporary files that live as long as this object."""

    def __init__(self, path: "Paths", options: dict[str, Any]) -> None:
        progress, self._notes = options.pop("progress", no_progress), options.pop("notes", None)
        super().__init__(Outcome(checked_choices(**options)), None, progress)
        self._path = path

    @property
    def name(self) -> str:
        """The inputs, as they were given."""
        return str(self._path)

    @property
    def names(self) -> Sequence[str]:
        """The paths, as they were given. Raises TypeError for bytes and files in their place."""
        from mqpcap.recording import is_content, listed

        paths = listed(self._path)
        if any(map(is_content, paths)):
            raise TypeError("a lake takes files by their paths")
        return [os.fspath(path) for path in paths]  # type: ignore[arg-type]  # a path

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


def inputs_of(source: Source, options: Mapping[str, Any]) -> Inputs:
    """The inputs of a call, its options checked. The inputs of a command are complete."""
    return source if isinstance(source, Inputs) else _CallInputs(source, {**options})


def selected(source: Source, filter: str | Query | None, options: Mapping[str, Any]) -> Inputs:
    """The inputs of a call with a filter, or with words for one among its options."""
    inputs = inputs_of(source, {name: options[name] for name in options if name not in WORDS})
    queries = shortcut_queries({name: value for name, value in options.items() if name in WORDS})
    with misuse_of("-Y"):
        queries += [] if filter is None else [query(filter) if isinstance(filter, str) else filter]
    if queries:
        inputs.wanted = reduce(and_, queries)
        inputs.wanted.check_bodies(inputs.outcome.choices.bodies)
    if inputs.wanted is not None and inputs.wanted.needs_end:
        with misuse_of("--since"):
            inputs.wanted = with_end(inputs.wanted, inputs.captures)
    return inputs
