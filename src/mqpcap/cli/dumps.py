"""Bytes as people read them: offset, hex, text; what must not be seen is ``**``."""

from collections.abc import Iterator, Sequence

WIDTH = 16


def dump(data: bytes, hidden: Sequence[tuple[int, int]] = (), offset: int = 0, indent: int = 4) -> Iterator[str]:
    """Lines of 16 bytes; the bytes of the (start, end) spans in ``hidden`` show as ``**``.

    >>> list(dump(b"ab", [(1, 2)], indent=0))
    ['0000  61 **                                            a*']
    """
    covered = bytearray(len(data))
    for start, end in hidden:
        covered[max(start, 0) : max(end, 0)] = b"\x01" * len(covered[max(start, 0) : max(end, 0)])
    for at in range(0, len(data), WIDTH):
        row = data[at : at + WIDTH]
        cells = ["**" if covered[at + i] else f"{byte:02x}" for i, byte in enumerate(row)]
        text = "".join("*" if covered[at + i] else chr(byte) if 32 <= byte < 127 else "." for i, byte in enumerate(row))
        left, right = " ".join(cells[:8]), " ".join(cells[8:])
        yield f"{' ' * indent}{offset + at:04x}  {left:<23}  {right:<23}  {text}"
