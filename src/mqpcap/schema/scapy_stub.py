"""Scapy's ``Field`` and ``Packet``, replaced where captures are only read.

Importing Scapy takes longer than reading a small capture. A process that needs none (the command line) imports this
module before any layer; ``fields`` and ``message`` then derive from these classes. The descriptions and their Programs
are the same, but nothing can be built or dissected.
"""

from copy import copy
from typing import Any, Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - Scapy's names: the internal and the machine value
M = TypeVar("M")


class Field(Generic[I, M]):
    """A field that knows its name and default."""

    __slots__ = ("default", "name")
    islist = 0
    holds_packets = 0

    def __init__(self, name: str, default: object, fmt: str) -> None:
        self.name = name
        self.default = default


class EnumField(Field[M, M]):
    """A field that may have names for its numbers."""

    __slots__ = ()


class Packet:
    """A class that lists its fields, and the values read of them."""

    fields_desc: list[Any] = []
    underlayer: "Packet | None" = None
    overloaded_fields: dict[str, Any] = {}
    name: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class attribute named as a field is the field's default in this class."""
        super().__init_subclass__(**kwargs)
        cls.fields_desc = [copy(field) if field.name in cls.__dict__ else field for field in cls.fields_desc]
        for field in cls.fields_desc:
            if field.name in cls.__dict__:
                field.default = cls.__dict__[field.name]
                delattr(cls, field.name)

    def __init__(self, *values: object, **fields: object) -> None:
        if values or fields:
            raise ImportError(f"{type(self).__name__} takes no values: this process has its layers without Scapy")
        self.name = self.name or type(self).__name__
        self.fields: dict[str, object] = {}

    def getfieldval(self, attr: str) -> Any:
        """The value read of a field, else its default."""
        if attr in self.fields:
            return self.fields[attr]
        for field in self.fields_desc:
            if field.name == attr:
                return field.default
        raise AttributeError(attr)


def bind_top_down(*classes: type, **fields: int) -> None:
    """Do nothing: only Scapy's dissection asks what follows what."""
