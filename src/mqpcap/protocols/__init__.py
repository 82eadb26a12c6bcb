"""The protocols: one module or package each, and this folder is the registry.

A module here that defines ``PROTOCOL`` is a protocol of every command, table and session; nothing else has
to be touched. Order is that of the names.
"""

import importlib
import pkgutil
from functools import cache

from mqpcap.schema.protocol import MessageQueue


def names() -> tuple[str, ...]:
    """The names of the layer modules, sorted."""
    return _listed(tuple(__path__))


def protocols() -> dict[str, MessageQueue]:
    """Every protocol by name."""
    return _loaded(names())


@cache
def _listed(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(folders)))


@cache
def _loaded(modules: tuple[str, ...]) -> dict[str, MessageQueue]:
    loaded = (importlib.import_module(f"{__name__}.{name}") for name in modules)
    found: list[MessageQueue] = [module.PROTOCOL for module in loaded if hasattr(module, "PROTOCOL")]
    return {protocol.name: protocol for protocol in found}
