"""What can be wrong with a message: data, not exceptions."""

from enum import IntEnum


class Flaw(IntEnum):
    """Why a message did not decode to its last byte; the column ``flaw`` holds the name in lower case."""

    NONE = 0
    TRUNCATED = 1
    """Not all of its bytes were captured."""
    MALFORMED = 2
    """Its bytes break the layout."""
    TOO_LONG = 3
    """A length, count or depth passes a named limit."""
    UNKNOWN = 4
    """Its operation has no known layout."""

    @property
    def text(self) -> str | None:
        """The name in the tables, None for no flaw."""
        return None if self is Flaw.NONE else self.name.lower()
