"""The fields of a message that was read, and the attempts to read it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqpcap.schema.protocol import Direction

if TYPE_CHECKING:
    from mqpcap.schema.fields import Kind


@dataclass(frozen=True, slots=True)
class FieldItem:
    """A field: ``length`` bytes from ``offset`` of the message (of the inflated body, if ``inflated``)."""

    offset: int
    length: int
    depth: int
    """Number of lists and messages around it."""
    name: str
    value: object
    meaning: str | None = None
    """The name of the number, the field that a length measures, or the unit."""
    column: str | None = None
    """Its column in the protocol's table, None without a column."""
    secret: bool = False
    body: bool = False
    inflated: bool = False
    named: bool = False
    """Whether its name is bytes of the message."""
    kind: "Kind | None" = None
    """None for parts of a field."""

    @property
    def is_rest(self) -> bool:
        """Whether it stands for the fields that are not listed."""
        return not (self.name or self.named)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One variant tried on the message: its items up to the end, or up to what did not fit (``why``).

    - operation: its name, or number
    - variant: the class of its body
    - frame_len: length in bytes that the message claims, None without a length
    - masked_why: ``why`` with ``***`` for numbers that are bytes of the message: they may be part of a secret
    """

    layout: str
    direction: Direction
    header: str | None
    message: str | None
    dialect: str | None
    operation: str | None
    items: tuple[FieldItem, ...]
    frame_len: int | None
    why: str | None = None
    masked_why: str | None = None
    variant: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the whole message was read."""
        return self.why is None
