"""The connections of a capture by name: the short names that lines have.

A short name is the connection's place among those of its capture, by their first packets, ours or not: ``c7`` is the
seventh. It is the same in every command and however the capture is read. What a user may call one, filters know.
"""

STRANGER = "stranger"
"""The column of ``connections`` with what one speaks that is not ours, as far as that is known."""


def short_name(number: int) -> str:
    """The short name of a connection.

    >>> short_name(7)
    'c7'
    """
    return f"c{number}"
