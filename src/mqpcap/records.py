"""Dataclasses that are quick to define, for modules that every command imports.

Python compiles each method of a dataclass from text, up to six for each class. That takes a sixth of the start of a
command. Here it compiles ``__init__`` alone. ``frozen`` records are frozen for the type checker only.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
        """A decorator: see ``dataclasses.dataclass``."""

        def defined(cls: type) -> type:
            cls = dataclasses.dataclass(slots=slots, eq=False, repr=False)(cls)
            cls.__repr__ = _shown
            names = [field.name for field in dataclasses.fields(cls)]
            if eq and names:
                values = attrgetter(*names)
                cls.__eq__ = lambda self, value: _values_equal(values, self, value)
                cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
            return cls

        return defined


def _values_equal(values: Callable[[Any], Any], record: object, value: object) -> bool:
    return bool(values(record) == values(value)) if type(record) is type(value) else NotImplemented


def _shown(record: Any) -> str:
    values = (f"{field.name}={getattr(record, field.name)!r}" for field in dataclasses.fields(record))
    return f"{type(record).__qualname__}({', '.join(values)})"
