"""Wrong options of calls, named as the user wrote them.

In: a call. Out: the same call, which raises TypeError for a keyword that it does not have, with the nearest that it
has, and all. Called by: `mqpcap` and `mqpcap.spark` for every call they give out; methods and classes of users.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any])


def names_options(call: Call) -> Call:
    """The call, with its options checked first; one that takes any keyword checks them itself."""

    @wraps(call)
    def checked(*arguments: Any, **options: Any) -> Any:
        names = _option_names(call)
        if names is not None and (wrong := [name for name in options if name not in names]):
            raise TypeError(wrong_option(wrong[0], names, call.__qualname__.removesuffix(".__init__")))
        return call(*arguments, **options)

    return checked  # type: ignore[return-value]  # the same parameters, refused by other words


def wrong_option(name: str, names: Iterable[str], owner: str) -> str:
    """The words for an option that is not there.

    >>> wrong_option("intervall", ["by", "interval"], "stats")
    "'intervall' is no option of stats; did you mean interval? There are by, interval"
    """
    names = list(names)
    meant = "".join(f"; did you mean {near}? There are " for near in get_close_matches(name, names, 1))
    return f"{name!r} is no option of {owner}{meant or '; there are '}{', '.join(names) or 'none'}"


@cache
def _option_names(call: Callable[..., Any]) -> tuple[str, ...] | None:
    """The keywords of a call, those of its typed dictionary included; None if it takes any."""
    names: list[str] = []
    for name, parameter in signature(call).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            dictionaries = getattr(parameter.annotation, "__args__", ())
            if not dictionaries:
                return None
            names += dictionaries[0].__annotations__
        elif parameter.kind is not Parameter.VAR_POSITIONAL and name != "self":
            names.append(name)
    return tuple(names)
