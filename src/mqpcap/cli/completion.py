"""Completes words in a shell: folders, interfaces, protocols, operations, names of fields."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from click import Context, Parameter
from click.shell_completion import BashComplete, CompletionItem, FishComplete, add_completion_class

if TYPE_CHECKING:
    from mqpcap.schema.protocol import MessageQueue

Complete = Callable[[Context, Parameter, str], list[CompletionItem]]


@add_completion_class
class _Bash(BashComplete):
    """Bash takes ``tcp.port==9092,f`` for three words, and replaces the last."""

    name = "bash"
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words up to the completed word, as they were typed."""
        words: list[str] = []
        args, incomplete = super().get_completion_args()
        for word in (*args, incomplete):
            if words and (re.fullmatch("=+", word) or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        self._kept = words[-1][: words[-1].rfind("=") + 1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """The replacement of bash's last word."""
        # In --name=value only the value is completed.
        kept = self._kept if item.value.startswith(self._kept) else self._kept.partition("=")[2]
        return f"{item.type},{item.value.removeprefix(kept)}"


@add_completion_class
class _Fish(FishComplete):
    """Values as ``tcp.port==9092,flymq``, and descriptions, may have commas."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def folders(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, as the shell itself completes them."""
    return [CompletionItem(incomplete, type="dir")]


def rules(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules of Decode As: the protocols for a port; before that, the ports that protocols are known by."""
    port, comma, name = incomplete.rpartition(",")
    if comma:
        return [CompletionItem(f"{port},{x.value}") for x in protocols(ctx, param, name)]
    return _beginning((f"tcp.port=={port},{x.name}" for x in _known() for port in x.ports), incomplete)


def one_of(names: Sequence[str]) -> Complete:
    """Some names, each once in a list with commas between."""

    def offered(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
        earlier_words, comma, last_word = incomplete.rpartition(",")
        unused = (x for x in names if x not in earlier_words.split(","))
        return _beginning((f"{earlier_words}{comma}{x}" for x in unused), earlier_words + comma + last_word)

    return offered


def _offers(names: Callable[[Context], Iterable[str]]) -> Complete:
    return lambda ctx, param, incomplete: _beginning(names(ctx), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Names with this beginning; if there is none, in any case, as a shell would delete letters of another case."""
    sorted_names = sorted(names)
    exact = [name for name in sorted_names if name.startswith(incomplete)]
    return [CompletionItem(x) for x in exact or sorted_names if x.lower().startswith(incomplete.lower())]


def _known() -> "Iterable[MessageQueue]":
    from mqpcap.protocols import protocols

    return protocols().values()


def _named(ctx: Context) -> "list[MessageQueue]":
    """The protocols that ``--protocol`` names, one or several, or all."""
    named = ctx.params.get("protocol")
    return [x for x in _known() if not named or x.name in (named, *named)]


def _interfaces(ctx: Context) -> Iterable[str]:
    import socket

    return (name for _, name in socket.if_nameindex())


def _fields(ctx: Context) -> Iterable[str]:
    from mqpcap.query import names

    return names()


interfaces = _offers(_interfaces)
"""Network interfaces of this machine."""
protocols = _offers(lambda _: (x.name for x in _known()))
"""Names of protocols."""
dialects = _offers(lambda ctx: {name for x in _named(ctx) for name in x.dialects})
"""Names of dialects, of the protocol that ``--protocol`` names, or of all."""
operations = _offers(lambda ctx: {name for x in _named(ctx) for y in x.layouts for name in y.names.values() if name})
"""Names of operations, of the protocols that ``--protocol`` names, or of all."""
fields = _offers(_fields)
"""Names that a filter may use, as ``flymq.key``."""
