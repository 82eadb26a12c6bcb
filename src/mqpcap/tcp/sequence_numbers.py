"""Sequence numbers, which wrap at 2**32, to stream offsets, which never do.

All code outside ``flow_table`` wraps sequence numbers by these functions; ``flow_table`` has copies for C. They take
numbers and int64 arrays alike.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SEQUENCE_MASK = 0xFFFFFFFF
MAX_WINDOW = 1 << 30
"""The largest TCP window: nothing older is retransmitted."""

Number = TypeVar("Number", int, NDArray[np.int64])


def wrapped(number: Number) -> Number:
    """The sequence number, from 0 to 2**32 - 1, of a number that may be outside that range."""
    return number & SEQUENCE_MASK


def ahead(seq: Number, expected: Number) -> Number:
    """How far a sequence number is ahead of the expected one, from -2**30 to 3 * 2**30 - 1.

    TCP retransmits nothing older than its largest window, 2**30 bytes; all other numbers count as new.
    Whether a number that is far ahead belongs to the connection at all is decided by ``handshake.Handshakes.fit``.

    >>> ahead(5, 0xFFFFFFFF)
    6
    """
    return ((seq - expected + MAX_WINDOW) & SEQUENCE_MASK) - MAX_WINDOW


def unwrapped(seq: Number, base: Number, near: Number) -> Number:
    """The stream offset of a sequence number; ``base`` has offset 0, and the offset is close to ``near``.

    >>> unwrapped(5, 0xFFFFFFFF, 1 << 32)
    4294967302
    """
    return near + ahead(seq, base + near)
