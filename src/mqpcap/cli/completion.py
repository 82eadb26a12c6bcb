"""What a shell offers where a word is completed: folders, interfaces, protocols, operations, names of fields."""

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
    """Bash takes ``tcp.port==9092,f`` for three words, of which it replaces the last."""

    name = "bash"
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is completed, and that one, as they were typed."""
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
        """What stands for the last of bash's words."""
        # Of --name=value the name is not part of what is completed.
        kept = self._kept if item.value.startswith(self._kept) else self._kept.partition("=")[2]
        return f"{item.type},{item.value.removeprefix(kept)}"


@add_completion_class
class _Fish(FishComplete):
    """Values as ``tcp.port==9092,flymq``, and descriptions, may have commas."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def folders(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, as the shell itself completes them."""
    return [CompletionItem(incomplete, type="dir")]


def interfaces(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Network interfaces of this machine."""
    import socket

    return _beginning((name for _, name in socket.if_nameindex()), incomplete)


def protocols(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of protocols."""
    from mqpcap import protocols as known

    return _beginning(known.protocols(), incomplete)


def rules(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules of Decode As: the protocols for a port; before that, the ports that protocols are known by."""
    from mqpcap import protocols as known

    port, comma, name = incomplete.rpartition(",")
    if comma:
        return [CompletionItem(f"{port},{x.value}") for x in protocols(ctx, param, name)]
    return _beginning(
        (f"tcp.port=={port},{x.name}" for x in known.protocols().values() for port in x.ports), incomplete
    )


def dialects(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of dialects, of the protocol that ``--protocol`` names, or of all."""
    return _beginning({name for protocol in _named(ctx) for name in protocol.dialects}, incomplete)


def one_of(names: Sequence[str]) -> Complete:
    """Some names, each once in a list with commas between."""

    def offered(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return _beginning((f"{before}{comma}{x}" for x in names if x not in before.split(",")), before + comma + last)

    return offered


def operations(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of operations, of the protocols that ``--protocol`` names, or of all."""
    layouts = [layout for protocol in _named(ctx) for layout in protocol.layouts]
    return _beginning({name for layout in layouts for name in layout.names.values() if name}, incomplete)


def fields(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that a filter may use, as ``flymq.key``."""
    from mqpcap.query import names

    return _beginning(names(), incomplete)


def _named(ctx: Context) -> "list[MessageQueue]":
    """The protocols that ``--protocol`` names, or all."""
    from mqpcap import protocols as known

    named = ctx.params.get("protocol") or known.names()  # one, or several
    return [x for x in known.protocols().values() if x.name in (named, *named)]


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those that begin so; whatever the case where none does, as a shell would take away what was typed in another."""
    some = sorted(names)
    same = [name for name in some if name.startswith(incomplete)]
    return [CompletionItem(x) for x in same or some if x.lower().startswith(incomplete.lower())]
