"""What a caller may have to catch.

Bytes from the wire never raise: they become a :class:`~mqpcap.schema.flaws.Flaw`. Everything here is about
what the caller asked for.
"""

from contextlib import suppress
from typing import IO


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())


def let_go(file: IO[bytes]) -> None:
    """Close a temporary file; that its last bytes found no room on the disk matters no more."""
    with suppress(OSError):
        file.close()


class MqpcapError(Exception):
    """Base of every error this package raises on purpose."""


class CaptureError(MqpcapError):
    """An input is no capture, or cannot be read."""


class ProtocolError(MqpcapError):
    """A protocol description breaks the rules of the vocabulary; raised at import."""


class OutputError(MqpcapError):
    """The tables cannot be written where they were asked for."""


class QueryError(MqpcapError):
    """A filter cannot be understood; says where, and what would do."""
