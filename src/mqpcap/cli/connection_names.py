"""The connections of a capture by name: what a user may call one, and the short names that lines have.

A short name is the connection's place among those of its capture, by their first packets, ours or not: ``c7`` is the
seventh. It is the same in every command and however the capture is read.
"""

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import pyarrow as pa

STRANGER = "stranger"
"""The column of ``connections`` with what one speaks that is not ours, as far as that is known."""
_SHORT = r"c(\d{1,18})"
_ID = r"\d{1,19}"
_END = r"\[?([0-9A-Fa-f:.]+?)\]?:(\d{1,5})"


@dataclass(frozen=True, slots=True)
class ConnectionName:
    """What a user called a connection: its short name's number, its id, or the address and port of an end."""

    number: int | None = None
    id: int | None = None
    ip: str = ""
    port: int = 0

    def __str__(self) -> str:
        end = f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"
        return short_name(self.number) if self.number is not None else end if self.id is None else str(self.id)

    def mask(self, messages: "pa.Table") -> "pa.ChunkedArray":
        """The rows of ``messages`` with NUMBER that are the connection's."""
        import pyarrow.compute as pc

        from mqpcap.query.columns import NUMBER

        if self.number is not None:
            return pc.equal(messages[NUMBER], self.number)
        if self.id is not None:
            return pc.equal(messages["connection_id"], self.id)
        ends = (
            pc.and_(pc.equal(messages[f"{end}_ip"], self.ip), pc.equal(messages[f"{end}_port"], self.port))
            for end in ("src", "dst")
        )
        return reduce(pc.or_, ends)


def short_name(number: int) -> str:
    """The short name of a connection.

    >>> short_name(7)
    'c7'
    """
    return f"c{number}"


def connection_name(ctx: click.Context, param: click.Parameter, word: str | None) -> ConnectionName | None:
    """``c7``, a connection_id or ``IP:PORT``; exits 2 with what would do."""
    if word is None:
        return None
    word = word.strip()
    if found := re.fullmatch(_SHORT, word):
        return ConnectionName(number=int(found[1]))
    if re.fullmatch(_ID, word) and int(word) < 1 << 63:
        return ConnectionName(id=int(word))
    if found := re.fullmatch(_END, word):
        from ipaddress import ip_address

        try:
            return ConnectionName(ip=str(ip_address(found[1])), port=int(found[2]))
        except ValueError:
            pass
    raise click.BadParameter(f"{word!r} is no connection; say c7, a connection_id or IP:PORT", ctx, param)
