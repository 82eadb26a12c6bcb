"""The bytes of a message as people read them: offset, hex, text; secrets are ``**``, bodies left out are ``--``."""

from collections.abc import Iterator, Sequence

from mqpcap.schema.secrets import stars

WIDTH = 16
Spans = Sequence[tuple[int, int]]


def dump(data: bytes, hidden: Spans = (), indent: int = 4, left_out: Spans = ()) -> Iterator[str]:
    """Lines of 16 bytes; bytes of the (start, end) spans show as ``**`` if hidden, as ``--`` if left out.

    >>> list(dump(b"abc", [(1, 2)], indent=0, left_out=[(2, 3)]))
    ['0000  61 ** --                                         a*-']
    """
    marks = bytearray(len(data))
    for mark, spans in ((b"-", left_out), (stars(1), hidden)):
        for start, end in spans:
            marks[max(start, 0) : max(end, 0)] = mark * len(marks[max(start, 0) : max(end, 0)])
    for offset in range(0, len(data), WIDTH):
        pairs = zip(data[offset : offset + WIDTH], marks[offset : offset + WIDTH], strict=True)
        row = [(byte, chr(mark) if mark else "") for byte, mark in pairs]
        cells = [2 * mark if mark else f"{byte:02x}" for byte, mark in row]
        text = "".join(mark or (chr(byte) if 32 <= byte < 127 else ".") for byte, mark in row)
        left, right = " ".join(cells[:8]), " ".join(cells[8:])
        yield f"{' ' * indent}{offset:04x}  {left:<23}  {right:<23}  {text}"
