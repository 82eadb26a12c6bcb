"""Dataclasses out of the JSON that ``dataclasses.asdict`` became."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints


def typed(kind: Any, found: Any) -> Any:
    """What JSON gave as a value of a type; raises ValueError where it is none.

    >>> typed(tuple[tuple[int, str], ...], [[1, "a"], [2, "b"]]), typed(frozenset[int] | None, None)
    (((1, 'a'), (2, 'b')), None)
    """
    try:
        return _typed(kind, found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no {kind}: {error}") from error


def _typed(kind: Any, found: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _typed(hints[name], value) for name, value in found.items()})  # type: ignore[operator]
    if origin in (Union, types.UnionType):
        return None if found is None else _typed(inner[0], found)
    if origin in (dict, Mapping):
        return {name: _typed(inner[1], value) for name, value in found.items()}
    if origin is tuple and inner[-1] is not ...:
        return tuple(_typed(one, value) for one, value in zip(inner, found, strict=True))
    if origin in (list, tuple, frozenset):
        return origin(_typed(inner[0], value) for value in found)
    return found
