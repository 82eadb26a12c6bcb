"""Scapy's ``Field`` and ``Packet``, replaced where captures are only read.

Importing Scapy takes longer than reading a small capture. A process that needs none (the command line) imports this
module before any layer; ``fields`` and ``message`` then derive from these classes. The descriptions and their Programs
are the same, but nothing can be built or dissected.

Three lists say what the descriptions use of either base class; a test checks them against ``fields``, ``message``,
Scapy and this module.
"""

from copy import copy
from typing import Any, Generic, Never, TypeVar

I = TypeVar("I")  # noqa: E741 - Scapy's names: the internal and the machine value
M = TypeVar("M")

FIELD = frozenset({"default", "holds_packets", "islist", "name"})
"""What a kind uses of ``Field``."""
PACKET = frozenset({"fields", "fields_desc", "getfieldval", "name"})
"""What a message uses of ``Packet`` to be read: it does the same here."""
SCAPY_ONLY = frozenset(
    {
        "_command", "_raw_packet_cache_field_value", "add_payload", "answers", "clone_with", "command", "copy",
        "default_fields", "dissect", "do_build", "do_build_payload", "do_dissect_payload", "explicit", "fieldtype",
        "get_field", "getfield_and_val", "getlayer", "hashret", "init_fields", "lastlayer", "payload",
        "raw_packet_cache", "raw_packet_cache_fields", "setfieldval", "underlayer",
    }
)  # fmt: skip
"""What a message uses of ``Packet`` to be built or dissected: here it raises ImportError."""


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


class _ScapyOnly:
    """An attribute that raises ImportError."""

    def __get__(self, packet: object, owner: type) -> Never:
        raise _without_scapy(owner)

    def __set__(self, packet: object, value: object) -> Never:
        raise _without_scapy(type(packet))


def _without_scapy(cls: type) -> ImportError:
    return ImportError(f"{cls.__name__} can do nothing here: this process has its layers without Scapy")


class Packet:
    """A class that lists its fields, and the values read of them."""

    fields_desc: list[Any] = []
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
            raise _without_scapy(type(self))
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


for _name in SCAPY_ONLY:
    setattr(Packet, _name, _ScapyOnly())


def bind_top_down(*classes: type, **fields: int) -> None:
    """Do nothing: only Scapy's dissection asks what follows what."""
