"""The protocols: one file each, and this folder is the registry.

A module here that defines ``PROTOCOL`` is a protocol of every command, table and session; nothing else has
to be touched. Order is that of the names.
"""

import importlib
import pkgutil
from functools import cache

from mqpcap.protocol import MessageQueue


def names() -> tuple[str, ...]:
    """The names of the layer modules, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def _loaded(modules: tuple[str, ...]) -> dict[str, MessageQueue]:
    loaded = (importlib.import_module(f"{__name__}.{name}") for name in modules)
    found: list[MessageQueue] = [module.PROTOCOL for module in loaded if hasattr(module, "PROTOCOL")]
    return {protocol.name: protocol for protocol in found}


def protocols() -> dict[str, MessageQueue]:
    """Every protocol by name."""
    return _loaded(names())
