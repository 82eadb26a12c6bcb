"""``mqpcap.show`` and ``mqpcap.messages``: messages in order of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from mqpcap.api.inputs import Source, selected
from mqpcap.listing.extra_columns import BYTES, LAYOUT, VARIANT
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.listing.time_merge import Write, merge, merged_rows
from mqpcap.protocols import protocols
from mqpcap.query import EVERYTHING, MatchTally, Query
from mqpcap.reading import FilterOptions, Inputs
from mqpcap.schema.protocol import other_direction

if TYPE_CHECKING:
    from mqpcap.schema.message import Message


def show(path: Source, filter: str | Query | None = None, **options: Unpack[FilterOptions]) -> Iterator[MessageRow]:
    """The messages in order of time, while the captures are read: columns, fields, and what became of each request.

    >>> import mqpcap
    >>> next(mqpcap.show("pcaps/blipmq/qos1.pcap", 'op == "PING"')).exchange.state
    'answered'
    """
    inputs = selected(path, filter, options)
    return _selected_rows(inputs)


def write_messages(
    inputs: Inputs, write: Write, columns: Callable[[str], tuple[str, ...]] | None, left_out: Sequence[str],
    with_bytes: bool, is_over: Callable[[], bool],
) -> None:  # fmt: skip
    """Give the messages to ``write`` as they come, with the columns that it needs; see `ShownMessages` and `merge`."""
    wanted = _counted(inputs, columns, left_out)
    merge(inputs.captures, wanted, inputs.outcome, write, inputs.progress, with_bytes, is_over)
    inputs.outcome.is_whole = inputs.wanted is None
    inputs.finish()


def _selected_rows(inputs: Inputs, with_bytes: bool = False) -> Iterator[MessageRow]:
    rows = merged_rows(inputs.captures, _counted(inputs), inputs.outcome, inputs.progress, with_bytes)
    return to_end(inputs, rows, inputs.wanted is None)


def to_end(inputs: Inputs, rows: Iterator[MessageRow], is_whole: bool = False) -> Iterator[MessageRow]:
    """The rows, then the notes."""
    yield from rows
    inputs.outcome.is_whole = is_whole
    inputs.finish()


def _counted(
    inputs: Inputs, columns: Callable[[str], tuple[str, ...]] | None = None, left_out: Sequence[str] = ()
) -> ShownMessages:
    """The filter of some inputs, whose matches the outcome counts."""
    tally = inputs.outcome.tally = None if inputs.wanted is None else MatchTally(inputs.wanted)
    return ShownMessages(inputs.wanted or EVERYTHING, columns, left_out, tally)


def messages(path: Source, filter: str | Query | None = None, **options: Unpack[FilterOptions]) -> "Iterator[Message]":
    """The messages as Scapy messages with ``.mq``, in order of time, while the captures are read.

    They have no packets; ``mqpcap.open(path).packets(row)`` has. Secrets are in the bytes, as in Scapy's own layers.

    >>> import mqpcap
    >>> next(mqpcap.messages("pcaps/blipmq/qos1.pcap", 'op == "PUBLISH"')).topic
    b'q1'
    """
    inputs = selected(path, filter, options)
    return map(_message, _selected_rows(inputs, with_bytes=True))


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
