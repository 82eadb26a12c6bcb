"""What a shell offers where a word is completed: files, interfaces, protocols, operations, names of fields."""

from collections.abc import Iterable

from click import Context, Parameter
from click.shell_completion import CompletionItem


def files(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell itself completes them."""
    return [CompletionItem(incomplete, type="file")]


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


def operations(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of operations, of the protocols that ``--protocol`` names, or of all."""
    from mqpcap import protocols as known

    only = ctx.params.get("only_protocol") or ()
    some = [x for x in known.protocols().values() if not only or x.name in only]
    names = {name for x in some for layout in x.layouts for name in layout.names.values() if name}
    return _beginning(names, incomplete)


def fields(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
    """Columns of ``messages`` and of ``exchanges``, and fields of the protocols, as ``flymq.key``."""
    from mqpcap import protocols as known
    from mqpcap.schema.compiler import compiled
    from mqpcap.tables.schemas import TABLES

    names = {*TABLES["messages"].names, *TABLES["exchanges"].names}
    for name, protocol in known.protocols().items():
        names |= {f"{name}.{column.name}" for column in compiled(protocol).columns if column.parent < 0}
        names |= {f"{name}.{column.name}" for column in protocol.derived if not column.hidden}
    return _beginning(names, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those that begin so, whatever the case."""
    return [CompletionItem(name) for name in sorted(names) if name.lower().startswith(incomplete.lower())]
