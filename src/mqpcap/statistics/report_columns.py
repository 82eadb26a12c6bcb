"""The columns of a report: a name for programs, a title with its unit for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Cells = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``name`` for machines, ``title`` with the unit for people.

    kind: text, number, ms (a number of nanoseconds, shown as milliseconds), clock (nanoseconds since 1970), packet
    (its number), plain (text as it is), file (for people only where several were read: see `with_files`), flag (for
    machines only), rare (a number, for people only where a row has one).
    """

    name: str
    title: str
    kind: Literal["text", "number", "ms", "clock", "packet", "plain", "file", "flag", "rare"] = "text"
    is_spare: bool = False
    """Left out where lines would not fit a terminal."""
