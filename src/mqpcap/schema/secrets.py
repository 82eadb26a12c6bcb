"""Secrets of messages, and their masks in tables, lines, dumps, Scapy, explanations and extracts.

A description says which fields are secret (``Kind.secret``, ``Derived.secret``), and which bytes may be a secret
(``MessageQueue.spare``). All else is decided here. After damage a secret may be anywhere, so more is hidden then.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import single_array, true_mask
from mqpcap.schema import fields
from mqpcap.schema.protocol import ANY, MessageQueue

if TYPE_CHECKING:
    from mqpcap.schema.field_items import Attempt, FieldItem
    from mqpcap.schema.message import Message

MASK = "***"
"""A secret value in tables and texts."""
STAR = "*"
"""A secret byte."""
NO_END = 1 << 62
"""After the end of every message."""


def _shows_none() -> bool:
    return False


are_shown: Callable[[], bool] = _shows_none
"""Whether Scapy shows the values of secret fields; ``mqpcap.scapy`` replaces it by its switch."""


class _Declared(Protocol):
    @property
    def secret(self) -> bool: ...


def is_hidden(declared: _Declared, shown: bool = False) -> bool:
    """Whether the value of a field, a column or a part must not be seen. ``shown``: secrets are asked for."""
    return declared.secret and not shown


# -- descriptions -----------------------------------------------------------------------------------------


def may_hold(kind: object) -> bool:
    """Whether a kind of field, or a class of messages, has something that must not be shown."""
    if isinstance(kind, fields.Kind):
        inner = getattr(kind, "message", None) or getattr(kind, "item", None)
        return kind.secret or (inner is not None and may_hold(inner))
    return isinstance(kind, type) and any(map(may_hold, fields.flat_fields(kind)))


@cache
def holds_secrets(protocol: MessageQueue, op: int | None = None) -> bool:
    """Whether the protocol has a field that must not be shown, in messages of one operation if ``op`` is given."""
    return any(
        may_hold(variant.message)
        for layout in protocol.layouts
        for number, variants in layout.variants.items()
        if op is None or number in (op, ANY)
        for variant in variants
    )


def unread_may_hold(message: "Message") -> bool:
    """Whether a message with an unread body may have a secret: by its operation if that is known."""
    protocol = message.of_protocol
    bodies: set[type[Message]] = set()
    for layout in protocol.layouts if protocol is not None else ():
        if layout.op is not None and layout in message.layouts and message.fields.get(layout.op) is not None:
            bodies.update(variant.message for variant in layout.variants_of(message.fields[layout.op]))
        elif layout.op is None or not message.fields:
            bodies.update(layout.messages())
    return any(map(may_hold, bodies))


# -- tables -----------------------------------------------------------------------------------------------


def masked(array: pa.Array) -> pa.Array:
    """Every value that is not null replaced by ``***``."""
    secret = pa.scalar(MASK.encode() if pa.types.is_binary(array.type) else MASK, array.type)
    return pc.if_else(pc.is_valid(array), secret, pa.scalar(None, array.type))


def misread_rows(protocol: MessageQueue, table: pa.Table) -> NDArray[np.bool_]:
    """The rows that may be a login with a damaged operation byte: they have bytes without a defined content."""
    rows: NDArray[np.bool_] = np.zeros(table.num_rows, np.bool_)
    for name, min_length in protocol.spare.items():
        array = single_array(table[name])
        is_long = pc.greater_equal(pc.binary_length(array), min_length)
        rows |= true_mask(pc.or_(is_long, pc.starts_with(array, b"\0")))
    return rows


def spare_columns(protocol: MessageQueue) -> Iterable[str]:
    """The columns that show whether a row may be misread."""
    return protocol.spare


# -- bytes of a message -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecretSpans:
    """Secret spans of a message: (start, end) in its bytes, and in its inflated body."""

    spans: tuple[tuple[int, int], ...] = ()
    inflated: tuple[tuple[int, int], ...] = ()

    def covers(self, item: "FieldItem") -> bool:
        """Whether a field has bytes that must not be shown, or is bits of a number that has.

        Bits have no bytes of their own: they follow their number.
        """
        spans = self.inflated if item.inflated else self.spans
        begin = item.offset - (item.length == 0 and isinstance(item.value, int))
        end = item.offset + max(item.length, 1)
        return item.secret or any(start < end and begin < stop for start, stop in spans)

    def why(self, attempt: "Attempt") -> str | None:
        """Why an interpretation does not fit, without its secrets; None if it fits."""
        return attempt.masked_why if self.spans else attempt.why


NO_SECRETS = SecretSpans()


def masked_reason(broken: "fields.Broken") -> str:
    """Why bytes do not fit, without numbers that are bytes of the message."""
    return broken.why.format(*[MASK] * len(broken.numbers))


def is_secret_spare(protocol: MessageQueue, item: "FieldItem") -> bool:
    """Whether bytes that the protocol does not describe may be a secret: ``MessageQueue.spare``."""
    least, spare = protocol.spare.get(item.column or ""), item.value
    return least is not None and isinstance(spare, bytes) and (len(spare) >= least or spare[:1] == b"\0")


def secret_spans(
    protocol: MessageQueue, best: "Attempt | None", attempts: "Callable[[], Iterable[Attempt]]"
) -> SecretSpans:
    """Secret spans of a message: the secrets of every variant that fits, not only of the best.

    If nothing fits, or the best variant leaves bytes that may be a secret, the span is all after the fixed header. What
    another variant leaves is described by the best one: a reply without roles fits its request, with its times left.
    """
    if best is None or best.message is None:
        return ALL
    header = protocol.layout(best.layout).header
    begin = 0 if header is None else fields.smallest(header)
    if not best.fits or any(i.secret and i.column in protocol.spare for i in best.items):
        return _after(begin)
    secrets = [
        item
        for attempt in (best, *attempts())
        if attempt.fits
        for item in attempt.items
        if item.secret and item.length and item.column not in protocol.spare
    ]
    spans = [(i.offset, i.offset + i.length) for i in secrets if not i.inflated]
    inflated = [(i.offset, i.offset + i.length) for i in secrets if i.inflated]
    return SecretSpans((*spans, (begin, NO_END)) if inflated else tuple(spans), tuple(inflated))


def after_header(protocol: MessageQueue, direction: str, op: int) -> SecretSpans:
    """Mask everything after the fixed header: after a lost segment or a corrupt byte, a secret may be anywhere.

    The header is hidden too where no layout has the operation, as those bytes may be no header.
    """
    layouts = [x for x in protocol.layouts if x.direction == direction and op in x.bodies]
    return _after(min((0 if x.header is None else fields.smallest(x.header) for x in layouts), default=0))


def row_spans(
    protocol: MessageQueue,
    message: Mapping[str, object],
    values: Mapping[str, object],
    op: int,
    is_named: bool,
    spans: Callable[[], SecretSpans],
) -> SecretSpans | None:
    """What must not be shown of the bytes of a row, None if all may be; ``spans``: those of a message without a flaw.

    A row with a flaw is masked after its header, if the protocol has secrets or if Decode As may have named
    (``is_named``) a wrong protocol.
    """
    has_flaw = message["flaw"] is not None
    is_doubtful = has_flaw and (is_named or holds_secrets(protocol))
    if is_doubtful or any(values.get(name) == MASK.encode() for name in protocol.spare):
        return after_header(protocol, str(message["direction"]), op)
    return None if has_flaw or not holds_secrets(protocol, op) else spans()


def _after(begin: int) -> SecretSpans:
    return SecretSpans(((begin, NO_END),), ((0, NO_END),))


ALL = _after(0)


def stars(length: int) -> bytes:
    """Secret bytes, hidden."""
    return STAR.encode() * length
