"""Exceptions of this package.

Bytes from the wire never raise: they become a :class:`~mqpcap.schema.flaws.Flaw`. These errors are about inputs,
outputs and arguments of the caller.
"""

TYPE_CHECKING = False  # see mqpcap/__init__.py
if TYPE_CHECKING:
    from typing import IO


def one_line(error: BaseException) -> str:
    """The message of an error, on one line."""
    return " ".join(str(error).split())


def let_go(file: "IO[bytes]") -> None:
    """Close a temporary file; a full disk no longer matters."""
    from contextlib import suppress

    with suppress(OSError):
        file.close()


class MqpcapError(Exception):
    """Base of every error this package raises on purpose."""


class CaptureError(MqpcapError):
    """An input is not a capture file, or cannot be read."""


class ProtocolError(MqpcapError):
    """A protocol description breaks the rules of the vocabulary; raised at import."""


class OutputError(MqpcapError):
    """The tables cannot be written where they were asked for."""


class RowError(OutputError):
    """Rows of an input cannot be stored, whatever the disk; other inputs' rows can."""


class FailedCaptureError(MqpcapError):
    """A capture that ended a reading of several: ``files`` are its files, the message is the reason."""

    def __init__(self, files: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.files = files


class QueryError(MqpcapError):
    """A filter or question cannot be understood; the message gives the position or valid alternatives."""


class MisuseError(QueryError, ValueError):
    """Options of a command or a call exclude each other, or an option is missing; named as on the command line."""
