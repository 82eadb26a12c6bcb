"""Declarations of requests, replies and deliveries, and the tables that ``correlate`` runs them by.

In: the operations that a protocol names in a `CorrelationRule`. Out: `RequestGroup`, made by ``correlate.rules``.
Called by: the modules in ``protocols``, which declare; ``correlate``, which pairs.

If operations are not enough, a protocol makes its `RequestGroup` itself: the *code* of each message, the kind of
request that each code is in each state of the connection, and the replies that it accepts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array
from mqpcap.records import dataclass

NO_ECHO_KEY = -(1 << 63)
"""Echo key of a message that was not captured whole, so that the key is unknown."""
ANY_OPERATION = "*"
"""In `ServerHabits.early`: every operation."""


class State(IntEnum):
    """States of an exchange; the column holds the name in lower case."""

    ANSWERED = 0
    SILENT = 1
    NOT_EXPECTED = 2
    UNANSWERED = 3
    LOST = 4
    ORPHAN = 5
    UNKNOWN = 6
    LIKELY = 7


class Evidence(IntEnum):
    """Evidence for a pair; the column ``how`` holds the name in lower case."""

    ORDER = 0
    """Counted from a moment when the open requests were known."""
    ECHO = 1
    """The reply repeats a value of exactly one open request."""
    ID = 2
    """The reply repeats the id of a captured request, and the client never used an id twice."""
    ALTERNATION = 3
    """The client waits for each reply before it asks again."""
    PAUSE = 4
    """Both sides paused for longer than the server takes."""
    LENGTH = 5
    """The length of a hole says how many messages it held."""
    CLOSE = 6
    """The server closed the connection after the last request."""


class RequestKind(IntEnum):
    """Kinds of client messages."""

    SILENT_SUCCESS = 0
    """A request that gets no reply; success is silence."""
    ONE_REPLY = 1
    """Gets exactly one reply."""
    OPTIONAL_REPLY = 2
    """Gets one reply or none."""
    ONE_WAY = 3
    """No reply is expected, success or not."""
    CLOSES = 4
    """The server closes the connection: later requests are not handled."""
    NOT_A_REQUEST = 5
    """Not a request."""
    TRUNCATED = 6
    """Not captured whole, so that its operation or id is unknown: equivalent to missing bytes."""


@dataclass(frozen=True, slots=True)
class RequestRule:
    """How one operation of the client is answered.

    ``answer``: ``always``: one reply each. ``maybe``: one reply or none, without proof which. ``ignored``: no reply,
    success or not.
    ``by``: names of the server's operations that answer it; empty: any that answers at all.
    """

    answer: Literal["always", "maybe", "ignored"]
    by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServerHabits:
    """Properties of a server that decide which requests may be open; each needs a source in the protocol's module.

    ``shortest_bytes``: shortest message: a hole holds at most its length divided by this.
    ``all_count``: every message takes part in pairing, so that a hole holds at least a message.
    ``quiet_ns``: the server answers or drops each optional request within this time; None: no such bound.
    ``pause_ns``: a pause of both sides after which open requests are unlikely.
    ``holds_replies``: TCP may hold a reply until the client's next packet acknowledges the one before: the server does
    not set TCP_NODELAY.
    ``answers_all``: how far an orderly end proves that the server answered all requests: its FIN acknowledges the
    client's FIN, and there was no RST.
    ``once``: a client sends the operation once a connection.
    ``early``: operations that may be answered before their last byte arrived.
    ``opening``: operations that only open a connection: no request came before them.
    ``opening_id``: the id that they have then; None: any.
    """

    shortest_bytes: int = 1
    all_count: bool = False
    quiet_ns: int | None = None
    pause_ns: int | None = None
    holds_replies: bool = False
    answers_all: Literal["certainly", "likely", "no"] = "no"
    once: bool = False
    early: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()
    opening_id: int | None = None


class RequestTables(NamedTuple):
    """A rule as tables by *code*, a number for each kind of message.

    ``kind``: RequestKind as bytes, by state of the connection and code of a request.
    ``accepted_replies``: by state and code of a request: a bit for each reply that it accepts.
    ``reply_bits``: by code of a reply: its bit, 0 if it answers nothing.
    ``first_only``: by code of a reply: it answers only the first request of a connection.
    ``echoes_nothing``: by code of a reply: it repeats nothing of its request.
    ``next_state``: (state, code of a request, code of its reply) -> the state that follows.
    ``silence``: by code of a request: its state if it was handled and got no reply.
    ``echoes``: whether replies repeat values of their requests.
    ``awaited``: codes of optional requests whose success is a reply.
    ``initial_state``: the state of a connection whose start is known.
    ``midstream_state``: the state that is assumed of other connections.
    ``by_name``: whether replies come in any order, each to the request that it names.
    ``held``: see `CorrelationRule`.
    ``again``: codes of requests that an open request of their name makes the same request again.
    ``one_reply``: whether a request has one row for its reply; further replies have none, and no reply is an orphan.
    ``unreadable``: codes of replies that cannot be read: equivalent to missing bytes.
    ``state_after``: code of a server message -> {state: the state that it shows}.
    ``confirming``: codes of server messages that only come in the state ``midstream_state``, or one further on. If a
    protocol has them, the assumed state counts once such a message came, or at the connection's end if no reply is
    missing.
    ``contradicting``: codes of server messages that only come in other states.
    ``id_replies``: the bits of replies whose echo key is an id of the client, never a number of the server.
    ``habits``: properties of the server.
    ``early``: codes of requests that may be answered before their last byte arrived.
    """

    kind: Sequence[bytes]
    accepted_replies: Sequence[Sequence[int]]
    reply_bits: Sequence[int]
    first_only: Sequence[bool]
    echoes_nothing: Sequence[bool]
    next_state: Mapping[tuple[int, int, int], int]
    silence: Sequence[int]
    echoes: bool
    awaited: frozenset[int] = frozenset()
    initial_state: int = 0
    midstream_state: int = 0
    by_name: bool = False
    held: bool = False
    again: frozenset[int] = frozenset()
    one_reply: bool = False
    unreadable: frozenset[int] = frozenset()
    state_after: Mapping[int, Mapping[int, int]] = {}
    confirming: frozenset[int] = frozenset()
    contradicting: frozenset[int] = frozenset()
    id_replies: int = -1
    habits: ServerHabits = ServerHabits()
    early: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class RequestGroup:
    """Operations whose replies keep the order of their requests, as ``correlate`` runs them.

    The functions get a batch of rows; fields have ``f.`` in front.

    ``codes``: the code of each row.
    ``echo_keys``: the values that a reply copies from its request, as a number; NO_ECHO_KEY: not known.
    ``has_id``: whether the echo key of a request is an id of the client; with ``by_name``: whether several replies may
    come.
    ``payload_keys``: the message that a request gives the server or a reply returns (> 0), or the queue that a request
    reads (< 0); 0 for neither.
    ``side``: the side that asks.
    """

    tables: RequestTables
    codes: Callable[[pa.Table], Int64Array]
    echo_keys: "Callable[[pa.Table, Fingerprints], Int64Array]"
    has_id: Callable[[pa.Table], NDArray[np.bool_]]
    payload_keys: "Callable[[pa.Table, Fingerprints], Int64Array] | None" = None
    side: str = "c2s"


Fingerprints = Callable[[pa.Array | pa.ChunkedArray], Int64Array]
"""A number for each value of a column of text or bytes, equal for equal values; 0 for null."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Rows of a batch that publish or deliver: ``key`` is equal where a delivery may have come from a publish.

    ``note`` is for ``DeliveryRule.text``.
    """

    rows: Int64Array
    key: Int64Array
    note: Int64Array | None = None


def body_hash(rows: pa.Table, *_: Int64Array) -> pa.Array:
    """The SHA-256 of each body, as the text of a key."""
    return pa.array([sha256(x).hexdigest() for x in rows["f.body"].to_pylist()], pa.string())


@dataclass(frozen=True, slots=True)
class DeliveryRule:
    """Finds the publish of a delivery: the only earlier publish with its key at the same server.

    ``how``: the evidence, for the column ``how``.
    ``keys``: (publishes, deliveries) of a batch of rows. With ``of_pairs`` it gets the rows of requests and, row for
    row, of their replies; publishes are then rows of requests, deliveries rows of replies.
    ``text``: the key as text, given the rows of deliveries and their notes.
    ``whole``: completes that text from the notes of the publishes, if the key has a part there.
    ``across_servers``: publishes to other servers count, too (fq's peers).
    ``redelivered``: (column, value) of a delivery that its client was sent before, maybe on an earlier connection, with
    the same correlation id. None: further deliveries on a connection, or to a subscription.
    ``lifetime_ns``: for keys that two messages can share (hashes): how long a broker may still deliver a message. A
    publish that was missed within that time makes a delivery ambiguous. None if a key identifies a single message.
    """

    how: str
    keys: "Callable[..., tuple[Keys, Keys]]"
    text: "Callable[[pa.Table, Int64Array], pa.Array]"
    of_pairs: bool = False
    across_servers: bool = False
    whole: "Callable[[pa.Array, Int64Array], pa.Array] | None" = None
    lifetime_ns: int | None = None
    redelivered: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """How a client acknowledges a delivery on its connection, with an operation of ``Roles.ack``.

    ``column``: the column of the acknowledgement that names the delivery.
    ``tag``: columns of the delivery; the first that is not null is its tag, and ``column`` repeats it. Empty:
    ``column`` is a position, and acknowledges all messages of its partition with smaller offsets.
    ``due``: (column, value) of deliveries that are acknowledged; None: all are.
    ``scope``: the column of acknowledgements, and of the requests that deliveries answer, within which tags are unique;
    None: the connection.
    """

    column: str
    tag: tuple[str, ...] = ()
    due: tuple[str, int] | None = None
    scope: str | None = None

    def details(self) -> Mapping[str, str]:
        """Its part of `MessageQueue.details`, as SQL expressions."""
        if not self.tag:
            return {}
        tag = f"COALESCE({', '.join(self.tag)})"
        return {
            "tag": tag if self.due is None else f"CASE WHEN {self.due[0]} = {self.due[1]} THEN {tag} END",
            "acked_tag": self.column,
            **({} if self.scope is None else {"subscription": self.scope}),
        }


@dataclass(frozen=True, slots=True, eq=False)
class CorrelationRule:
    """Declares which server messages answer which requests.

    ``side``: the side that asks. A rule of the server is one of ``queues``; "client" and "server" are then exchanged.
    ``asks``: the client's operations that are requests, by name.
    ``otherwise``: for operations without a name, or not in ``asks``; None if they are no requests.
    ``errors``: server operations that answer any request.
    ``unasked``: server operations that answer nothing.
    ``first_only``: server operations that answer the first request of the connection, or a request that names them in
    ``by``, and nothing else (fq error).
    ``tie``: columns that a reply repeats from its request; empty: the order of messages pairs them.
    ``repeats``: by operations, columns of the request and the columns of its reply with the same value, if the server
    did what it was asked. They are evidence where bytes are missing. ``NAME.length`` is the length of a value.
    ``one_way``: (column, value): a request with that value expects no reply.
    ``columns``: further columns of the protocol's table that ``request_group`` and ``deliveries`` need, as read.
    ``records.offset`` is the list of a field of a list of structs.
    ``fingerprinted``: columns whose fingerprints ``request_group`` and ``deliveries`` both need: `print.NAME`.
    ``request_group``: builds the tables if operations are not enough.
    ``queues``: rules for groups of operations, each with an order of its own.
    ``by_name``: replies come in any order, each to the request whose ``tie`` it repeats.
    ``held``: with ``by_name``: a client uses the values of ``tie`` again only once the request with them was answered.
    ``again``: with ``by_name``: by operation the (column, value) of a request that is, while an earlier one with its
    ``tie`` waits, the same request again; None: any value. It is due no reply of its own.
    ``habits``: properties of the server. ``deliveries``: how deliveries find their publish.
    ``answers``: whether a Scapy message (first) answers another, for ``sr()``; None: operations and ``tie`` decide.
    """

    asks: Mapping[str, RequestRule]
    otherwise: RequestRule | None = None
    errors: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    first_only: frozenset[str] = frozenset()
    tie: tuple[str, ...] = ()
    repeats: Mapping[frozenset[str], Mapping[str, str]] = field(default_factory=dict)
    one_way: tuple[str, int] | None = None
    columns: tuple[str, ...] = ()
    fingerprinted: tuple[str, ...] = ()
    request_group: Callable[[], RequestGroup] | None = None
    queues: "tuple[CorrelationRule, ...]" = ()
    by_name: bool = False
    held: bool = False
    again: Mapping[str, tuple[str, int] | None] = field(default_factory=dict)
    habits: ServerHabits = ServerHabits()
    side: Literal["c2s", "s2c"] = "c2s"
    deliveries: DeliveryRule | None = None
    answers: "Callable[[Any, Any], bool] | None" = None

    def fits(self, request_op: str | None, reply_op: str | None) -> bool:
        """Whether the server's operation may answer the client's, None: an operation without a name."""
        ask = (self.asks.get(request_op) if request_op is not None else None) or self.otherwise
        if ask is None or reply_op in self.unasked:
            return False
        return not ask.by or reply_op in self.errors or reply_op in ask.by

    @property
    def needed(self) -> tuple[str, ...]:
        """The protocol's columns that the rule reads."""
        one_way = [mark[0] for mark in (self.one_way, *self.again.values()) if mark]
        of_queues = (name for queue in self.queues for name in queue.needed)
        repeated = (name for columns in self.repeats.values() for both in columns.items() for name in both)
        return tuple(dict.fromkeys((*self.tie, *self.columns, *one_way, *repeated, *of_queues)))


@dataclass(frozen=True, slots=True)
class Roles:
    """Purpose of operations, by name, and of errors, by text: for questions about any protocol.

    ``publish``: the client gives the broker a message.
    ``deferred``: publishes whose reply does not yet say where the message is.
    ``deliver``: the server gives a client a message.
    ``poll``: the client requests messages; a reply of that name brings them, if it has a body.
    ``peek``: polls that leave the message in the queue.
    ``subscribe``: the client requests future messages.
    ``ack``: the client reports the messages that it has handled.
    ``position``: the client asks for a group's offset, or resets it.
    ``lock``: the client reserves a message; ``unlock`` returns it, a poll that is no peek takes it.
    ``login``: the client identifies itself, or asks who it is. ``account``: about another user than the client.
    ``heartbeat``: the client is alive.
    ``empty``: errors: there is no message.
    ``denied``: errors: the login is refused; if there are none, every error that answers a login.
    ``outdated``: errors: the version is not supported.
    ``traits``: of the broker. ``numbered``: messages have offsets in a log. ``transient``: it keeps no messages.
    ``shared``: clients with the same group name share a queue. ``lasting``: a request id outlives its connection.
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
    traits: frozenset[str] = frozenset()
