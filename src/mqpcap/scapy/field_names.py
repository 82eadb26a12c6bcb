"""Suggests the right name where a message has no field of a name.

In: a message and the name that somebody wrote. Out: an AttributeError that lists similar names, or all.
Called by: Scapy, after ``display.install`` has set these functions as methods.

Scapy's error is the name alone. Documents and tables name some fields otherwise (``code`` for ``error_code``).
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from scapy.packet import NoPayload, Packet

from mqpcap.schema.fields import Nested, bare
from mqpcap.schema.message import Message


class UnknownField(AttributeError):
    """A message has no field of a name. The text is made when it is read: Scapy asks for many attributes in vain."""

    def __init__(self, message: Packet, wrong_name: str) -> None:
        super().__init__(wrong_name)
        self.message, self.wrong_name = message, wrong_name

    def __str__(self) -> str:
        layers, names = [], []
        layer = self.message
        while not isinstance(layer, NoPayload):
            layers.append(type(layer).__name__)
            names += [field.name for field in layer.fields_desc]
            layer = layer.payload
        text = f"{' / '.join(layers)} has no field {self.wrong_name!r}"
        similar = similar_names(self.wrong_name, names)
        return f"{text}; did you mean {' or '.join(similar)}?" if similar else f"{text}; there are {', '.join(names)}"


def similar_names(wrong_name: str, names: list[str]) -> list[str]:
    """Up to three of the names that a word may stand for: parts of each other first, then misspellings.

    >>> similar_names("code", ["length", "error_code"])
    ['error_code']
    """
    word = wrong_name.lower().strip("_")
    if f"{word}_" in names:  # Python or Scapy has the word itself
        return [f"{word}_"]
    related = [name for name in names if word and (word in name.lower().split("_") or name.strip("_") == word)]
    return (related or get_close_matches(word, names))[:3]


def init(message: Message, /, *arguments: Any, **fields: Any) -> None:
    """A new message; fields of a nested part are given by their names, too. Raises UnknownField for other names."""
    try:
        _init(message, *arguments, **fields)
    except AttributeError as error:
        unknown = {name for name in fields if name not in message.fieldtype}
        if not unknown or not error.args or error.args[0] not in unknown:
            raise
        for field, part, names in _parts(message):
            given = {name: fields.pop(name) for name in sorted(unknown & names)}
            if given and field not in fields:
                fields[field] = part(**given)
        if unknown & fields.keys():
            raise UnknownField(message, error.args[0]) from None
        _init(message, *arguments, **fields)


def missing_attribute(message: Message, name: str) -> Any:
    """A field of the message or of its payload, as Scapy has it. Raises UnknownField."""
    try:
        return Packet.__getattr__(message, name)
    except AttributeError:
        place = _part_with(message, name)
        if place is None:
            raise UnknownField(message, name) from None
        layer, field, _ = place
        value = layer.getfieldval(field)
        return None if value is None else getattr(value, name)


def set_attribute(message: Message, name: str, value: Any) -> None:
    """Sets a field of the message or of its payload, as Scapy does. Raises UnknownField, as for Scapy's own classes."""
    if name in message.__all_slots__:
        object.__setattr__(message, name, value)
        return
    if name in message.__dict__ or hasattr(type(message), name):
        Packet.__setattr__(message, name, value)
        return
    try:
        message.setfieldval(name, value)
    except AttributeError:
        place = _part_with(message, name)
        if place is None:
            raise UnknownField(message, name) from None
        layer, field, part = place
        if (given := layer.getfieldval(field)) is None:
            layer.setfieldval(field, part(**{name: value}))
        else:
            setattr(given, name, value)


def _parts(message: Packet) -> Iterator[tuple[str, type[Message], set[str]]]:
    """The nested parts of a message, also those under a condition: field, class, and names of its fields."""
    for field in message.fields_desc:
        kind = bare(field)
        if isinstance(kind, Nested):
            yield field.name, kind.message, {inner.name for inner in kind.message.fields_desc}


def _part_with(message: Packet, name: str) -> tuple[Packet, str, type[Message]] | None:
    """The layer, from the message on, with a nested part that has a field of a name; the part's field and class."""
    while not isinstance(message, NoPayload):
        for field, part, names in _parts(message):
            if name in names:
                return message, field, part
        message = message.payload
    return None


_init = Message.__init__


def install() -> None:
    """Sets these functions as methods of `Message`."""
    for name, function in (
        ("__init__", init), ("__getattr__", missing_attribute), ("__setattr__", set_attribute),
    ):  # fmt: skip
        setattr(Message, name, function)
