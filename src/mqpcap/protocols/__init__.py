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


def names() -> tuple[str, ...]:
    """The names of the layer modules, sorted."""
    return _listed(tuple(__path__))


def protocols() -> dict[str, MessageQueue]:
    """Every protocol by name."""
    return _loaded(names())


def described() -> list[dict[str, Any]]:
    """The protocols, their ports, and how they are recognised: the array of ``mqpcap protocols --json``."""
    return [
        {
            "name": p.name, "title": p.title, "ports": list(p.ports), "dialects": list(p.dialects),
            "operations": operations(p), "recognised": p.recognised,
        }
        for p in protocols().values()
    ]  # fmt: skip


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

    def __call__(self) -> list[dict[str, Any]]:
        return described()


sys.modules[__name__].__class__ = _CallablePackage
