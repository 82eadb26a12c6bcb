"""The bytes of a message as people read them: offset, hex, text; secrets are ``**``, bodies left out are ``--``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mqpcap.cli.options import Choices
from mqpcap.protocols import protocols

if TYPE_CHECKING:
    from mqpcap.cli.held_rows import MessageRow
    from mqpcap.explain import Explanation, SecretSpans
    from mqpcap.schema.protocol import Direction

WIDTH = 16
Spans = Sequence[tuple[int, int]]


def dump(data: bytes, hidden: Spans = (), indent: int = 4, left_out: Spans = ()) -> Iterator[str]:
    """Lines of 16 bytes; bytes of the (start, end) spans show as ``**`` if hidden, as ``--`` if left out.

    >>> list(dump(b"abc", [(1, 2)], indent=0, left_out=[(2, 3)]))
    ['0000  61 ** --                                         a*-']
    """
    marks = bytearray(len(data))
    for mark, spans in ((b"-", left_out), (b"*", hidden)):
        for start, end in spans:
            marks[max(start, 0) : max(end, 0)] = mark * len(marks[max(start, 0) : max(end, 0)])
    for at in range(0, len(data), WIDTH):
        row = [(byte, chr(marks[at + i]) if marks[at + i] else "") for i, byte in enumerate(data[at : at + WIDTH])]
        cells = [2 * mark if mark else f"{byte:02x}" for byte, mark in row]
        text = "".join(mark or (chr(byte) if 32 <= byte < 127 else ".") for byte, mark in row)
        left, right = " ".join(cells[:8]), " ".join(cells[8:])
        yield f"{' ' * indent}{at:04x}  {left:<23}  {right:<23}  {text}"


def row_secrets(row: "MessageRow", choices: Choices) -> "SecretSpans | None":
    """What must not be shown of the bytes of a row, None if all may be.

    A row with a flaw is masked after its header, if the protocol has secrets or if Decode As may name a wrong protocol.
    """
    from mqpcap import explain as explanation
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
        return explanation.after_header(protocol, str(row.message["direction"]), op)
    if has_flaw or not explanation.holds_secrets(protocol, op):
        return None
    return explanation.secret_spans(protocol, row.data, explanation_of(row, inside=False).best)


def left_out(row: "MessageRow", choices: Choices) -> Spans:
    """The bytes of bodies that ``--bodies`` leaves out: all after the header where the bodies are not known."""
    from mqpcap.explain import body_spans

    if choices.bodies is None:
        return ()
    return body_spans(protocols()[row.protocol], explanation_of(row, inside=False).best, choices.bodies)


def explanation_of(row: "MessageRow", inside: bool = True) -> "Explanation":
    """The explanation of a row's bytes that agrees with the row; ``inside`` as there."""
    from mqpcap.explain import explanation
    from mqpcap.numbered_pipeline import LAYOUT, VARIANT

    direction: Direction = "c2s" if row.message["direction"] == "c2s" else "s2c"
    read_as = str(row.message[LAYOUT]), str(row.message[VARIANT])
    dialect = None if row.message["flaw"] is not None else str(row.message["dialect"])
    return explanation(protocols()[row.protocol], row.data, direction, dialect, read_as, inside)


def bytes_after_hole(row: "MessageRow") -> int:
    """Number of captured bytes of a message after its first missing byte: the row does not have them."""
    return int(str(row.message["frame_len"])) - len(row.data)
