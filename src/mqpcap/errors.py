"""What a caller may have to catch.

Bytes from the wire never raise: they become a :class:`~mqpcap.schema.flaws.Flaw`. Everything here is about
what the caller asked for.
"""


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())


class MqpcapError(Exception):
    """Base of every error this package raises on purpose."""


class CaptureError(MqpcapError):
    """An input is no capture, or cannot be read."""


class ProtocolError(MqpcapError):
    """A protocol description breaks the rules of the vocabulary; raised at import."""


class OutputError(MqpcapError):
    """The tables cannot be written where they were asked for."""
