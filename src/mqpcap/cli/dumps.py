"""The bytes of a message as people read them: offset, hex, text; what must not be seen is ``**``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mqpcap.cli.options import Choices

if TYPE_CHECKING:
    from mqpcap.cli.held_rows import MessageRow
    from mqpcap.explain import Explanation, Hidden
    from mqpcap.schema.protocol import Direction

WIDTH = 16


def dump(data: bytes, hidden: Sequence[tuple[int, int]] = (), indent: int = 4) -> Iterator[str]:
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
        yield f"{' ' * indent}{at:04x}  {left:<23}  {right:<23}  {text}"


def hidden(row: "MessageRow", choices: Choices) -> "Hidden | None":
    """What must not be shown of the bytes of a row, None if all may be.

    A row with a flaw is hidden behind its header in a protocol with secrets, and in any if Decode As may have named
    the wrong one.
    """
    from mqpcap import explain as explanation
    from mqpcap.protocols import protocols
    from mqpcap.schema.protocol import ANY
    from mqpcap.tables.messages import SECRET

    if choices.show_secrets:
        return None
    protocol = protocols()[row.protocol]
    code = row.message["op_code"]
    op = ANY if code is None else int(str(code))
    has_flaw = row.message["flaw"] is not None
    is_doubtful = has_flaw and (choices.decode_as or explanation.holds_secrets(protocol))
    if is_doubtful or any(row.fields.get(name) == SECRET.encode() for name in protocol.spare):
        return explanation.behind_header(protocol, str(row.message["direction"]), op)
    if has_flaw or not explanation.holds_secrets(protocol, op):
        return None
    return explanation.hidden(protocol, row.data, explained(row, inside=False).best)


def explained(row: "MessageRow", inside: bool = True) -> "Explanation":
    """The explanation of a row's bytes that agrees with the row; ``inside`` as there."""
    from mqpcap.explain import explanation
    from mqpcap.numbered_pipeline import LAYOUT, VARIANT
    from mqpcap.protocols import protocols

    direction: Direction = "c2s" if row.message["direction"] == "c2s" else "s2c"
    read_as = str(row.message[LAYOUT]), str(row.message[VARIANT])
    dialect = None if row.message["flaw"] is not None else str(row.message["dialect"])
    return explanation(protocols()[row.protocol], row.data, direction, dialect, read_as, inside)


def bytes_behind_a_hole(row: "MessageRow") -> int:
    """Bytes of a message that were captured behind the first that is missing, and are not in the row's."""
    return int(str(row.message["frame_len"])) - len(row.data)
