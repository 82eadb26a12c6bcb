"""Writes the types of all message classes: ``python tests/support/scapy_stubs.py --write``.

In: the message classes. Out: ``src/mqpcap/scapy/__init__.pyi``, which mypy and editors read for ``mqpcap.scapy``.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mqpcap.schema import fields
from mqpcap.schema.message import Message

STUBS = Path(__file__).resolve().parents[2] / "src" / "mqpcap" / "scapy" / "__init__.pyi"
HEAD = """\
# Types of the message classes, for mypy and editors. Written by tests/support/scapy_stubs.py, from the descriptions.
# ruff: noqa
# fmt: off

from typing import Any, Generic, TypeVar

from scapy.base_classes import Packet_metaclass
from scapy.utils import wrpcap

from mqpcap.scapy import display as display, field_names as field_names, session as session
from mqpcap.scapy.port_binding import MqDispatch as MqDispatch
from mqpcap.scapy.session import MqSession, Seen
from mqpcap.schema.message import Message

show_secrets: bool

def message_classes() -> dict[str, type[Message]]: ...
def bind() -> None: ...

_Read = TypeVar("_Read")
_Write = TypeVar("_Write")
_Integer = int | str | list[int | str] | None
_Octets = bytes | str | None

class _Field(Generic[_Read, _Write]):
    def __get__(self, message: object, owner: type | None = None) -> _Read: ...
    def __set__(self, message: object, value: _Write) -> None: ...

_Message = TypeVar("_Message")

class _MessageClass(Packet_metaclass):  # type: ignore[misc]  # Scapy has no types
    # Scapy's own gives Any for every class, so that pyright would check no field.
    def __call__(cls: type[_Message], *arguments: Any, **fields: Any) -> _Message: ...

"""


def stubs() -> str:
    """The text of the file: a class for each message class, bases first."""
    from mqpcap.scapy import message_classes

    classes = message_classes()
    parts = {cls for message in classes.values() for cls in _nested(message)}
    ordered = sorted({*classes.values(), *parts, *_bases(classes.values()), *_bases(parts)}, key=_order)
    names = ", ".join(f'"{name}"' for name in ["MqDispatch", "MqSession", "Seen", *sorted(classes), "wrpcap"])
    return f"{HEAD}__all__ = [{names}]\n\n" + "\n".join(_stub(cls) for cls in ordered)


def _bases(classes: Iterable[type[Message]]) -> Iterator[type[Message]]:
    for cls in classes:
        yield from (base for base in cls.__mro__ if issubclass(base, Message) and base is not Message)


def _nested(cls: type[Message]) -> Iterator[type[Message]]:
    for kind in map(fields.bare, cls.fields_desc):
        inner = kind.message if isinstance(kind, fields.Nested) else getattr(kind, "item", None)
        if isinstance(inner, fields.Nested):
            inner = inner.message
        if isinstance(inner, type) and issubclass(inner, Message):
            yield inner
            yield from _nested(inner)


def _order(cls: type[Message]) -> tuple[int, str, str]:
    return len(cls.__mro__), cls.__module__, cls.__name__


def _stub(cls: type[Message]) -> str:
    base = next(base for base in cls.__mro__[1:] if issubclass(base, Message))
    bases = "Message, metaclass=_MessageClass" if base is Message else base.__name__
    lines = [f"class {cls.__name__}({bases}):"]
    types = {kind.name: _types(kind) for kind in cls.fields_desc}
    for kind in cls.fields_desc:
        part = fields.bare(kind)
        for inner in part.message.fields_desc if isinstance(part, fields.Nested) else ():
            read, write = _types(inner)
            is_optional = part is not kind and not read.endswith("None")
            types.setdefault(inner.name, (f"{read} | None" if is_optional else read, write))
    lines += [f"    {name}: _Field[{read}, {write}]" for name, (read, write) in types.items()]
    arguments = [f"{name}: {write} = ..." for name, (_, write) in types.items()]
    keywords = f", *, {', '.join(arguments)}" if arguments else ""
    return "\n".join([*lines, f"    def __init__(self, _pkt: bytes = ...{keywords}) -> None: ...", ""])


def _types(kind: fields.Kind) -> tuple[str, str]:
    """The types of a field's value when it is read and when it is set."""
    read, write = _value_types(fields.bare(kind))
    return (f"{read} | None" if isinstance(kind, fields.If | fields.Prefix | fields.Length) else read), write


def _value_types(kind: object) -> tuple[str, str]:
    if isinstance(kind, fields.Nested):
        return kind.message.__name__, f"{kind.message.__name__} | None"
    if isinstance(kind, fields.Array):
        item = kind.item.__name__ if isinstance(kind.item, type) else _value_types(kind.item)[0]
        return f"list[{item}]", f"list[{item}] | None"
    if isinstance(kind, fields.Span):
        return "bytes", "_Octets"
    if isinstance(kind, fields.Bool):
        return "bool", "bool | None"
    return ("int", "_Integer") if isinstance(kind, fields.Number | fields.Bits | fields.Prefix) else ("Any", "Any")


if __name__ == "__main__":
    if "--write" in sys.argv:
        STUBS.write_text(stubs(), encoding="utf-8")
