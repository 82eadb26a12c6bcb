"""The protocols: one module or package each, and this folder is the registry.

A module here that defines ``PROTOCOL`` is a protocol of every command, table and session; nothing else has
to be touched. Order is that of the names.
"""

import importlib
import pkgutil
import sys
from functools import cache
from types import ModuleType
from typing import Any

from mqpcap.schema.protocol import MessageQueue
from mqpcap.schema.reference import operations_of


def names() -> tuple[str, ...]:
    """The names of the layer modules, sorted."""
    return _listed(tuple(__path__))


def protocols() -> dict[str, MessageQueue]:
    """Every protocol by name."""
    return _loaded(names())


def described(name: str | None = None) -> list[dict[str, Any]]:
    """The protocols, their ports, and how they are recognised: the array of ``mqpcap protocols --json``.

    The protocol with a name has its ``messages``, too: their fields, and what answers them. Raises ValueError if there
    is no such protocol.
    """
    facts = [
        {
            "name": p.name, "title": p.title, "ports": list(p.ports), "dialects": list(p.dialects),
            "operations": operations(p), "recognised": p.recognised,
        }
        for p in protocols().values()
    ]  # fmt: skip
    if name is None:
        return facts
    protocol = protocols().get(name.lower())
    if protocol is None:
        raise ValueError(f"{name!r} is no protocol; there are {', '.join(protocols())}")
    (entry,) = (entry for entry in facts if entry["name"] == protocol.name)
    return [entry | {"messages": operations_of(protocol)}]


def operations(protocol: MessageQueue) -> list[str]:
    """The names of the operations that have a layout, in order of their numbers."""
    named = {(op, layout.names[op]) for layout in protocol.layouts for op in layout.bodies if op in layout.names}
    return list(dict.fromkeys(name for _, name in sorted(named)))


@cache
def _listed(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(folders)))


@cache
def _loaded(modules: tuple[str, ...]) -> dict[str, MessageQueue]:
    loaded = (importlib.import_module(f"{__name__}.{name}") for name in modules)
    found: list[MessageQueue] = [module.PROTOCOL for module in loaded if hasattr(module, "PROTOCOL")]
    return {protocol.name: protocol for protocol in found}


class _CallablePackage(ModuleType):
    """This package as the call ``mqpcap.protocols()``, which has the name of the command."""

    def __call__(self, name: str | None = None) -> list[dict[str, Any]]:
        return described(name)


sys.modules[__name__].__class__ = _CallablePackage
