"""``mqpcap.show`` and ``mqpcap.messages``: messages in order of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.capture import Capture
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT
from mqpcap.listing.filters import Filter
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.time_merge import merged_rows
from mqpcap.protocols import protocols
from mqpcap.query import EVERYTHING, Query
from mqpcap.reading import FilterOptions, Inputs, no_progress
from mqpcap.schema.protocol import other_direction

if TYPE_CHECKING:
    from mqpcap.schema.message import Message


def show(
    path: Source,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = no_progress,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> Iterator[MessageRow]:
    """The messages in order of time, while the captures are read: columns, fields, and what became of each request.

    >>> import mqpcap
    >>> next(mqpcap.show("pcaps/blipmq/qos1.pcap", 'op == "PING"')).exchange.state
    'answered'
    """
    inputs = selected(path, filter, options, progress, notes)
    return rows_of(inputs, inputs.captures, inputs.wanted)


def rows_of(
    inputs: Inputs, captures: Sequence[Capture], wanted: Query | None, with_bytes: bool = False
) -> Iterator[MessageRow]:
    """The messages of captures in order of time, then the notes."""
    yield from merged_rows(captures, Filter(wanted or EVERYTHING), inputs.outcome, inputs.progress, with_bytes)
    inputs.finish()


def messages(
    path: Source,
    filter: str | Query | None = None,
    *,
    progress: Callable[[int], None] = no_progress,
    notes: list[str] | None = None,
    **options: Unpack[FilterOptions],
) -> "Iterator[Message]":
    """The messages as Scapy messages with ``.mq``, in order of time, while the captures are read.

    They have no packets; ``mqpcap.open(path).packets(row)`` has. Secrets are in the bytes, as in Scapy's own layers.

    >>> import mqpcap
    >>> next(mqpcap.messages("pcaps/blipmq/qos1.pcap", 'op == "PUBLISH"')).topic
    b'q1'
    """
    inputs = selected(path, filter, options, progress, notes)
    return map(_message, rows_of(inputs, inputs.captures, inputs.wanted, with_bytes=True))


def _message(row: MessageRow) -> "Message":
    from mqpcap.scapy.session import COLUMNS, Pair, PairLookup, Seen, message

    columns: Mapping[str, Any] = row.message
    pair, exchange = PairLookup(), row.exchange
    if exchange is not None:
        reply_offset = exchange.offset if exchange.is_request else None
        side = columns["connection_id"], other_direction(columns["direction"])
        key = None if reply_offset is None else (*side, reply_offset)
        pair.resolve(Pair(key, exchange.state, exchange.how, exchange.latency_ns))
    mq = Seen(**{name: columns[name] for name in COLUMNS}, pair=pair)
    return message(protocols()[row.protocol].layout(columns[LAYOUT]), columns[BYTES], columns[VARIANT], mq)
