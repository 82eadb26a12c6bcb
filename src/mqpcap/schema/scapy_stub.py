"""What stands in for Scapy's ``Field`` and ``Packet`` where captures are only read.

Importing Scapy takes longer than reading a small capture. A process that is ours from begin to end (the command
line) imports this module before any layer; then ``fields`` puts the kinds and the classes of the layers on these. The
descriptions are the same and so are their Programs, but nothing can be built or dissected with the classes.
"""

from typing import Any, Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - Scapy's names: the internal and the machine value
M = TypeVar("M")


class Field(Generic[I, M]):
    """A field that knows its name and default."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: object, fmt: str) -> None:
        self.name = name
        self.default = default


class Packet:
    """A class that lists its fields, and what was read of them."""

    fields_desc: list[Any] = []
    name: str | None = None

    def __init__(self, *values: object, **fields: object) -> None:
        if values or fields:
            raise ImportError(f"{type(self).__name__} can do nothing here: this process has its layers without Scapy")
        self.name = self.name or type(self).__name__
        self.fields: dict[str, object] = {}


def bind_top_down(*classes: type, **fields: int) -> None:
    """Nothing: what follows what is asked where bytes are dissected by classes."""
