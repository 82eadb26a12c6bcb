"""``mqpcap.follow`` and ``mqpcap.trace``: one connection, and one message through its deliveries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Unpack

from mqpcap.api.inputs import Source, inputs_of, selected
from mqpcap.api.messages import to_end
from mqpcap.capture import Capture
from mqpcap.errors import CaptureError, MisuseError
from mqpcap.listing.connection_search import SelectedConnection, connection_query, find_connection, is_connection_name
from mqpcap.listing.conversation import Conversation
from mqpcap.listing.explained_messages import PacketName
from mqpcap.listing.message_lines import Style
from mqpcap.listing.message_row import MessageRow
from mqpcap.listing.shown_messages import ShownMessages
from mqpcap.listing.side_bytes import side_bytes
from mqpcap.listing.time_merge import merged_rows
from mqpcap.listing.tracing import ONE_MESSAGE, Trace, trace_messages
from mqpcap.query import EVERYTHING, Query
from mqpcap.reading import CallOptions, FilterOptions, Inputs
from mqpcap.schema.protocol import Direction


@dataclass(frozen=True, slots=True)
class FollowedConnection:
    """One connection: its row of ``connections``, and its messages in order of time, read as they are taken."""

    capture: Capture
    connection: SelectedConnection
    messages: Iterator[MessageRow]
    _bytes: Callable[[Direction], Iterator[bytes]]

    def lines(self, style: Style | None = None) -> Iterator[str]:
        """The conversation for people: takes ``messages``; each reply stands below its request."""
        talk = Conversation(self.connection, style or Style(utc=True))
        return chain(talk.head(), talk.lines(self.messages), talk.last_lines())

    def raw(self, direction: Direction) -> Iterator[bytes]:
        """The reassembled bytes of a side, in order, secrets as ``*``; bytes that were never captured are left out."""
        return self._bytes(direction)


def follow(path: Source, filter: str | Query | None = None, **options: Unpack[FilterOptions]) -> FollowedConnection:
    """One connection and its messages; the filter selects messages of this connection alone, as ``"connection == c2"``.

    A name will do, ``"c2"``, and words: ``connection="c2"``. Raises MqpcapError if not exactly one connection matches.

    >>> import mqpcap
    >>> len(list(mqpcap.follow("pcaps/blipmq/qos1.pcap", "connection == c2").messages))
    11
    """
    if isinstance(filter, str) and is_connection_name(filter):
        filter = connection_query(filter, "NAME")
    inputs = selected(path, filter, options)
    match = find_connection(inputs.captures, inputs.wanted or EVERYTHING, inputs.outcome, inputs.progress)
    inputs.check(match is not None)
    if match is None:
        raise CaptureError("there is no capture")
    capture, connection = match
    inputs.outcome.notes.clear()  # those of the second reading are the same
    rows = merged_rows([capture], ShownMessages(connection.query()), inputs.outcome, inputs.progress)
    return FollowedConnection(
        capture, connection, to_end(inputs, rows), partial(_side_bytes, inputs, capture, connection)
    )


def _side_bytes(
    inputs: Inputs, capture: Capture, connection: SelectedConnection, direction: Direction
) -> Iterator[bytes]:
    yield from side_bytes(capture, connection, direction, inputs.outcome, inputs.progress)
    inputs.finish()


def trace(
    path: Source,
    message: str | None = None,
    *,
    at: int | str | PacketName | None = None,
    **options: Unpack[CallOptions],
) -> list[Trace]:
    """Published messages with their deliveries, and the acknowledgements of these, with the times between.

    message: an id: ``message_id`` or ``correlation_id`` of a publish, or ``key`` of a delivery. at: a packet with the
    publish, a delivery or an answer to one, as in `explain`. Raises LookupError if there is no such message.

    >>> import mqpcap
    >>> [(d.latency_ns, d.acknowledged_after_ns) for d in mqpcap.trace("pcaps/blipmq/qos1.pcap", at=12)[0].deliveries]
    [(110000, 195000)]
    """
    if message is not None and at is not None:
        raise MisuseError(ONE_MESSAGE)
    if message is None and at is None:
        raise MisuseError("name the message by --message ID or by --at PACKET")
    inputs = inputs_of(path, options)
    name = message if message is not None else at if isinstance(at, PacketName) else PacketName.parsed(at or 0)
    traces = trace_messages(inputs.captures, name, inputs.outcome, inputs.progress)
    inputs.finish()
    return traces
