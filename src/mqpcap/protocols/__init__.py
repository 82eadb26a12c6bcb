"""The protocols: one module or package each, and this folder is the registry. See README.md.

A module here that defines ``PROTOCOL`` is a protocol of every command, table and session; nothing else has
to be touched. So is a module that an installed package names as an entry point of ENTRY_POINTS. Order is that of the
names, those of packages last.
"""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from mqpcap.errors import ProtocolError
from mqpcap.schema.compiler import compiled
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import MessageQueue
from mqpcap.schema.reference import operations_of, remembered

ENTRY_POINTS = "mqpcap.protocols"
COMMON_TABLES = ("messages", "exchanges", "deliveries", "connections", "problems", "captures")
"""Tables of all protocols: no protocol has the name of one."""
_NAME = re.compile("[a-z][a-z0-9_]*")


def modules() -> dict[str, ModuleType]:
    """The module of each protocol, by the protocol's name."""
    return _loaded(_listed(tuple(__path__)))


def protocols() -> dict[str, MessageQueue]:
    """Every protocol by name."""
    return _described(_listed(tuple(__path__)))


def classes_of(module: ModuleType) -> Iterator[type[Message]]:
    """The layer classes that a module defines."""
    for cls in vars(module).values():
        is_own = isinstance(cls, type) and issubclass(cls, Message) and cls.__module__ == module.__name__
        if is_own and not cls.__name__.startswith("_"):
            yield cls


def described(name: str | None = None) -> list[dict[str, Any]]:
    """The protocols, their ports, and how they are recognised: the array of ``mqpcap protocols --json``.

    The protocol with a name has its ``messages``, too: their fields, and what answers them. Raises ValueError if there
    is no such protocol.
    """
    facts = [
        {
            "name": p.name, "title": p.title, "ports": list(p.ports), "dialects": list(p.dialects),
            "operations": operations(p), "recognised": p.recognised, "remembered": remembered(p),
        }
        for p in protocols().values()
    ]  # fmt: skip
    if name is None:
        return facts
    name = checked_protocol(name)
    return [entry | {"messages": operations_of(protocols()[name])} for entry in facts if entry["name"] == name]


def checked_protocol(name: str) -> str:
    """The name of a protocol, which may be written in any case. Raises ValueError for another name."""
    if name.lower() not in protocols():
        raise ValueError(f"{name!r} is no protocol; there are {', '.join(protocols())}")
    return name.lower()


def operations(protocol: MessageQueue) -> list[str]:
    """The names of the operations that have a layout, in order of their numbers."""
    named = {(op, layout.names[op]) for layout in protocol.layouts for op in layout.bodies if op in layout.names}
    return list(dict.fromkeys(name for _, name in sorted(named)))


@cache
def _listed(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(folders)))


@cache
def _loaded(names: tuple[str, ...]) -> dict[str, ModuleType]:
    loaded: dict[str, ModuleType] = {}
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "PROTOCOL"):
            _add(loaded, module)
    for name in _named_by_packages():
        try:
            module = importlib.import_module(name)
            compiled(module.PROTOCOL)
            _add(loaded, module)
        except Exception as error:  # whatever a package of somebody else raises
            import logging  # else a tenth of the time that `mqpcap --help` takes

            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            logging.getLogger("mqpcap").warning("the protocol of %s is left out: %s", name, reason)
    return loaded


@cache
def _described(names: tuple[str, ...]) -> dict[str, MessageQueue]:
    return {name: module.PROTOCOL for name, module in _loaded(names).items()}


@cache
def _named_by_packages() -> tuple[str, ...]:
    if not any(map(_names_protocols, sys.path)):
        return ()
    from importlib.metadata import entry_points  # takes as long as a tenth of `mqpcap show`

    return tuple(sorted({entry.module for entry in entry_points(group=ENTRY_POINTS)}))


def _names_protocols(folder: str) -> bool:
    """Whether a package in a folder, or in an archive, may have entry points of ENTRY_POINTS."""
    try:
        names = [x for x in os.listdir(folder or ".") if x.lower().endswith("-info")]
    except OSError:
        return os.path.isfile(folder)
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                if ENTRY_POINTS.encode() in file.read():
                    return True
        except OSError:
            continue
    return False


def _add(loaded: dict[str, ModuleType], module: ModuleType) -> None:
    """Add the protocol of a module. Raises ProtocolError if its name, or that of a class, cannot be used."""
    protocol: MessageQueue = module.PROTOCOL
    name = protocol.name
    if not _NAME.fullmatch(name) or name in COMMON_TABLES:
        raise ProtocolError(f"{module.__name__}: {name!r} cannot be the name of a protocol and its table")
    classes = {cls.__name__: owner.__name__ for owner in loaded.values() for cls in classes_of(owner)}
    classes |= {f"protocol {key}": owner.__name__ for key, owner in loaded.items()}
    for word in (f"protocol {name}", *(cls.__name__ for cls in classes_of(module))):
        if word in classes:
            raise ProtocolError(f"{word} is of {classes[word]} and of {module.__name__}")
    loaded[name] = module


class _CallablePackage(ModuleType):
    """This package as the call ``mqpcap.protocols()``, which has the name of the command."""

    def __call__(self, name: str | None = None) -> list[dict[str, Any]]:
        return described(name)


sys.modules[__name__].__class__ = _CallablePackage
