"""Compressed message bodies: inflated in bounded memory, and deflated."""

import zlib

MAX_INFLATED_BYTES = 64 << 20
"""A body that grows beyond this is not opened: the flaw is ``too_long``."""


def inflate(data: bytes, at_most: int = MAX_INFLATED_BYTES) -> tuple[bytes | None, bool]:
    """The joined members of a gzip stream, and whether it grew beyond ``at_most`` bytes.

    None if it is not gzip, truncated or damaged, or followed by bytes that are not a member.
    """
    parts: list[bytes] = []
    left_bytes = at_most
    if not data:
        return None, False
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(data, left_bytes + 1))
        except zlib.error:
            return None, False
        left_bytes -= len(parts[-1])
        if left_bytes < 0:
            return None, True
        if not member.eof:
            return None, False
        data = member.unused_data
    return b"".join(parts), False


def deflate(data: bytes) -> bytes:
    """The data as one gzip member that says no time: equal data give equal bytes."""
    return zlib.compress(data, wbits=31)
