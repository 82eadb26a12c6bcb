"""The bytes of a message's row: its explanation, its secrets, and the bodies that are left out."""

from collections.abc import Sequence

from mqpcap.listing.explanation import Explanation, body_spans, explanation, reading, secret_spans
from mqpcap.listing.extra_columns import LAYOUT, VARIANT
from mqpcap.listing.message_row import MessageRow
from mqpcap.protocols import protocols
from mqpcap.reading import Choices
from mqpcap.schema.field_items import Attempt
from mqpcap.schema.protocol import ANY, Direction
from mqpcap.schema.secrets import SecretSpans, row_spans

Spans = Sequence[tuple[int, int]]


def row_secrets(row: MessageRow, choices: Choices) -> SecretSpans | None:
    """What must not be shown of the bytes of a row, None if all may be."""
    if choices.show_secrets:
        return None
    protocol = protocols()[row.protocol]

    def spans() -> SecretSpans:
        return secret_spans(protocol, row.data, best_attempt(row))

    return row_spans(protocol, row.message, row.fields, operation(row), bool(choices.decode_as), spans)


def left_out(row: MessageRow, choices: Choices) -> Spans:
    """The bytes of bodies that ``--bodies`` leaves out: all after the header where the bodies are not known."""
    if choices.bodies is None:
        return ()
    return body_spans(protocols()[row.protocol], best_attempt(row), choices.bodies)


def operation(row: MessageRow) -> int:
    """The number of a row's operation, ANY without one."""
    code = row.message["op_code"]
    return ANY if code is None else int(str(code))


def best_attempt(row: MessageRow) -> Attempt | None:
    """The attempt that a row's explanation has as its best; the other attempts are made only if that does not fit."""
    if row.message["flaw"] is None:
        read_as = str(row.message[LAYOUT]), str(row.message[VARIANT])
        attempt = reading(protocols()[row.protocol], row.data, str(row.message["dialect"]), read_as)
        if attempt is not None:
            return attempt
    return explanation_of(row, inside=False).best


def explanation_of(row: MessageRow, inside: bool = True) -> Explanation:
    """The explanation of a row's bytes that agrees with the row; ``inside`` as there."""
    direction: Direction = "c2s" if row.message["direction"] == "c2s" else "s2c"
    read_as = str(row.message[LAYOUT]), str(row.message[VARIANT])
    dialect = None if row.message["flaw"] is not None else str(row.message["dialect"])
    return explanation(protocols()[row.protocol], row.data, direction, dialect, read_as, inside)


def bytes_after_hole(row: MessageRow) -> int:
    """Number of captured bytes of a message after its first missing byte: the row does not have them."""
    return int(str(row.message["frame_len"])) - len(row.data)
