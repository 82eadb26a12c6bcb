"""What a description says of requests, replies and deliveries.

A protocol names its operations in a :class:`CorrelationRule`; ``correlate`` turns that into tables and pairs messages
as they come. Where operations are not enough, the protocol gives the tables itself (:class:`Lane`): the *code* of each
message, the kind of request that each code is in each state of the connection, and the replies it may get.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from mqpcap.arrays import Int64Array

NO_TIE = -(1 << 63)
"""Of a message that was not captured whole, so that it is not known what it repeats."""


class State(IntEnum):
    """States of an exchange; the column holds the name in lower case."""

    ANSWERED = 0
    SILENT = 1
    NOT_EXPECTED = 2
    UNANSWERED = 3
    LOST = 4
    ORPHAN = 5
    UNKNOWN = 6


class RequestKind(IntEnum):
    """What a message of a client is."""

    SILENT = 0
    """A request that gets no reply; success is silence."""
    FIXED = 1
    """Gets exactly one reply."""
    OPTIONAL = 2
    """Gets one reply or none."""
    IGNORED = 3
    """No reply is expected, success or not."""
    BREAKS = 4
    """The server closes: what follows is not handled."""
    NOTHING = 5
    """No request."""
    CUT = 6
    """Not all of it was captured: as good as missing bytes."""


@dataclass(frozen=True, slots=True)
class RequestRule:
    """How one operation of the client is answered.

    answer   ``always``: one reply each. ``maybe``: some get one, and nothing proves which. ``ignored``: none,
             success or not
    by       names of the server's operations that answer it; empty: any that answers at all
    """

    answer: Literal["always", "maybe", "ignored"]
    by: frozenset[str] = frozenset()


class RequestTables(NamedTuple):
    """A rule as tables by *code*, a number for each kind of message.

    kind, wants   by state of the connection and code of a request: its RequestKind, as bytes; a bit for each reply
                  it may get
    says          by code of a reply: its bit, 0 if it answers nothing
    first_only    by code of a reply: it answers only a request that wants it, or the first of the connection
    untied        by code of a reply: it repeats nothing of its request
    next_state    (state, code of a request, code of its reply) -> the state that follows
    silence       by code of a request: what became of one that was handled and got no reply
    ties          whether replies repeat values of their requests
    timed         whether an OPTIONAL request gets no reply any more once a much later one was captured
    start, late   the state of a connection whose start was captured, and was not
    named         whether replies come in any order, each to the request that it names
    gaps          codes of replies that cannot be read: as good as missing bytes
    moves         code of a message of the server -> {state: the state it shows}
    proofs        codes of messages of the server that only come in the state ``late``, or one further on. Where there
                  are some, a connection whose start was not captured is only taken for that when one came, or when it
                  ends and no reply is missing
    denials       codes of its messages that only come in other states
    numbered      the bits of replies that can only repeat a number by which clients count
    """

    kind: Sequence[bytes]
    wants: Sequence[Sequence[int]]
    says: Sequence[int]
    first_only: Sequence[bool]
    untied: Sequence[bool]
    next_state: Mapping[tuple[int, int, int], int]
    silence: Sequence[int]
    ties: bool
    timed: bool
    start: int = 0
    late: int = 0
    named: bool = False
    gaps: frozenset[int] = frozenset()
    moves: Mapping[int, Mapping[int, int]] = {}
    proofs: frozenset[int] = frozenset()
    denials: frozenset[int] = frozenset()
    numbered: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One rule as ``correlate`` runs it; the functions get a batch of rows, fields with ``f.`` in front.

    codes     the code of each row
    ties      what a reply repeats of its request as a number, 0 for nothing
    numbers   numbers by which a client may count its requests, -1 where there is none
    items     the message that a request gives the server or a reply brings (> 0), or the queue that a request reads
              (< 0), 0 for neither
    """

    tables: RequestTables
    codes: Callable[[pa.Table], Int64Array]
    ties: "Callable[[pa.Table, Prints], Int64Array]"
    numbers: Callable[[pa.Table], Sequence[Int64Array]]
    items: "Callable[[pa.Table, Prints], Int64Array] | None" = None


Prints = Callable[[pa.Array | pa.ChunkedArray], Int64Array]
"""A number for each value of a column of text or bytes, equal for equal values; 0 for null."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Rows of a batch that publish or deliver: ``key`` is equal where a delivery may have come from a publish.

    ``note`` is for ``DeliveryRule.text``.
    """

    rows: Int64Array
    key: Int64Array
    note: Int64Array | None = None


@dataclass(frozen=True, slots=True)
class DeliveryRule:
    """Which publish a delivery came from: the only earlier one with its key at the same server.

    how       the evidence, as the column ``how`` says it
    keys      of a batch of rows: those that publish and those that deliver. With ``of_pairs`` it gets the rows of
              requests and, row for row, of their replies; publishes are then rows of requests, deliveries of replies
    text      the key as text, of rows that deliver and their notes
    whole     the same of that text and the notes of the publishes, where they have a part in it
    across_servers   whether publishes to other servers count (fq's peers)
    lifetime_ns      how long after it was sent a message may be delivered, where different ones may have equal keys: so
                     long one that was not captured makes deliveries doubtful. None where a key names its message
    """

    how: str
    keys: "Callable[..., tuple[Keys, Keys]]"
    text: "Callable[[pa.Table, Int64Array], pa.Array]"
    of_pairs: bool = False
    across_servers: bool = False
    whole: "Callable[[pa.Array, Int64Array], pa.Array] | None" = None
    lifetime_ns: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CorrelationRule:
    """Which request got which answer, declared.

    asks        the client's operations that are requests, by name
    otherwise   for an operation without a name, or not in ``asks``; None when it is no request
    errors      server operations that answer any request
    unasked     server operations that answer nothing
    first_only  server operations that answer a request that allows them, or the first of the connection, whatever it
                is, and nothing else (fq error)
    tie         columns that a reply repeats from its request; empty: order on the connection ties them
    one_way     (column, value): a request with that value expects nothing
    columns     further columns of the protocol's table that ``lane`` and ``deliveries`` need, as they were read;
                ``records.offset`` is the list of one field of a list of structs
    printed     those of them of whose values ``lane`` and ``deliveries`` both want the numbers, made once: `print.NAME`
    lane        gives the tables where operations are not enough
    queues      rules for some operations each, which keep their order among themselves
    deliveries  which publish came out as which delivery
    answers     whether a Scapy message (first) may answer another, where operation and ties are not all: for ``sr()``
    """

    asks: Mapping[str, RequestRule]
    otherwise: RequestRule | None = None
    errors: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    first_only: frozenset[str] = frozenset()
    tie: tuple[str, ...] = ()
    one_way: tuple[str, int] | None = None
    columns: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    lane: Callable[[], Lane] | None = None
    queues: "tuple[CorrelationRule, ...]" = ()
    deliveries: DeliveryRule | None = None
    answers: "Callable[[Any, Any], bool] | None" = None

    def fits(self, asked: str | None, said: str | None) -> bool:
        """Whether the server's operation may answer the client's, None being one without a name."""
        ask = (self.asks.get(asked) if asked is not None else None) or self.otherwise
        if ask is None or said in self.unasked:
            return False
        return not ask.by or said in self.errors or said in ask.by

    @property
    def needed(self) -> tuple[str, ...]:
        """The protocol's columns that the rule reads."""
        one_way = [self.one_way[0]] if self.one_way else []
        more = (name for queue in self.queues for name in queue.needed)
        return tuple(dict.fromkeys((*self.tie, *self.columns, *one_way, *more)))


@dataclass(frozen=True, slots=True)
class Roles:
    """What operations are for, by name, and what errors mean, by their text: for questions about any protocol.

    publish     the client gives the broker a message
    deferred    those publishes whose reply does not yet say where the message is
    deliver     the server gives a client a message
    poll        the client asks for messages; a reply of that name brings them, if it has a body
    peek        those polls that leave the message where it is
    subscribe   the client asks for messages to come
    ack         the client says what it has dealt with
    position    the client asks where a group reads, or sets it otherwise
    lock        the client keeps a message from others; ``unlock`` gives it back, a poll that is no peek takes it
    login       the client says who it is, or asks
    account     what is said of another user than the client
    heartbeat   the client is still there
    empty       errors: there is no message
    denied      errors: the login is refused; where there are none, every error that answers a login
    outdated    errors: the version is not spoken
    """

    publish: frozenset[str] = frozenset()
    deferred: frozenset[str] = frozenset()
    deliver: frozenset[str] = frozenset()
    poll: frozenset[str] = frozenset()
    peek: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()
    ack: frozenset[str] = frozenset()
    position: frozenset[str] = frozenset()
    lock: frozenset[str] = frozenset()
    unlock: frozenset[str] = frozenset()
    login: frozenset[str] = frozenset()
    account: frozenset[str] = frozenset()
    heartbeat: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()
