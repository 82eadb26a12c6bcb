"""Which BlipMQ frame answers which: what kind of request or reply each frame is.

Source: net/src/connection.rs, net/src/server.rs of bravo1goingdark/blipmq at 1d563c3.
"""

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import Int64Array, dictionary, is_in, low_words, single_array, true_mask
from mqpcap.correlate.rules import from_client, numbers
from mqpcap.schema.requests import Fingerprints, Keys, RequestGroup, RequestKind, RequestTables, ServerHabits, State

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)

LIFETIME_NS = 61_000_000_000
"""A message that nobody fetched for 60 s goes with the next tick, 0.2 s later at most."""


TEXTS = (
    "HELLO already performed", "invalid HELLO payload", "HELLO not performed", "already authenticated",
    "invalid AUTH payload", "invalid PUBLISH payload", "invalid SUBSCRIBE payload", "invalid ACK payload",
    "invalid POLL payload", "empty topic", "invalid QoS value", "subscription_id must be non-zero", "unauthenticated",
    "invalid API key", "unsupported protocol version", "topic contains NUL byte", "topic too long",
    "empty consumer group name",
)  # fmt: skip
"""The texts of NACKs that answer fixed frames (versions 1 and 2)."""
REPLIES = ("zero", "subscribed", "pong", "delivery", "tagged", "not found", "refused", "other", *TEXTS)
"""Replies by content; a request has a bit for each reply that it may get.

zero      ACK of HELLO or AUTH
delivery  a message under the id of its POLL (QoS 0)
tagged    a message under a tag of the broker's (QoS 1)
other     a NACK with another text
"""


class Code(IntEnum):
    """Kinds of frames: 1 to 10 are valid frames of the client, by type; further codes follow."""

    NONE = 0
    PUBLISH_ONCE = 11
    """PUBLISH with QoS 1: silence, or a refusal."""
    HELLO_TWO = 12
    BAD = 13
    """BAD + type: a payload that cannot be read."""
    EMPTY_TOPIC = 24
    BAD_QOS_PUBLISH = 25
    BAD_QOS_SUBSCRIBE = 26
    ZERO_ID = 27
    ODD_PUBLISH = 28
    """A topic with NUL or an empty key, which version 2 refuses."""
    CUT = 29
    UNKNOWN = 30
    REPLY = 32
    """REPLY + a place in REPLIES."""
    PUSH = 60
    ODD_REPLY = 61


CODES = 64
NEW, GREETED, GREETED_TWO, READY, READY_TWO = range(5)


def _bits(*words: str) -> int:
    """The bits of replies."""
    return sum(1 << REPLIES.index(word) for word in words)


# Replies on a connection in the state ready. Version 2 checks some faults in another order.
_TOPIC_FAULTS = ("topic contains NUL byte", "topic too long", "other")
_SUBSCRIBE_FAULTS = ("invalid QoS value", *_TOPIC_FAULTS, "empty consumer group name")
_FIXED: Mapping[int, str] = {
    HELLO: "HELLO already performed", Code.HELLO_TWO: "HELLO already performed",
    Code.BAD + HELLO: "HELLO already performed", AUTH: "already authenticated",
    Code.BAD + AUTH: "already authenticated",
    PING: "pong", Code.BAD + PING: "pong", SUBSCRIBE: "subscribed", Code.BAD + PUBLISH: "invalid PUBLISH payload",
    Code.BAD + SUBSCRIBE: "invalid SUBSCRIBE payload", Code.BAD + ACK: "invalid ACK payload",
    Code.BAD + POLL: "invalid POLL payload", Code.EMPTY_TOPIC: "empty topic",
    Code.BAD_QOS_PUBLISH: "invalid QoS value", Code.BAD_QOS_SUBSCRIBE: "invalid QoS value",
    Code.ZERO_ID: "subscription_id must be non-zero",
}  # fmt: skip
_FAULTS_TWO: Mapping[int, tuple[str, ...]] = {
    SUBSCRIBE: _SUBSCRIBE_FAULTS, Code.BAD_QOS_SUBSCRIBE: ("subscribed", *_SUBSCRIBE_FAULTS),
    Code.ODD_PUBLISH: ("invalid PUBLISH payload", "invalid QoS value", *_TOPIC_FAULTS),
} | dict.fromkeys(
    (Code.BAD + PUBLISH, Code.BAD + SUBSCRIBE, Code.EMPTY_TOPIC, Code.BAD_QOS_PUBLISH), _TOPIC_FAULTS
)  # fmt: skip
_OPTIONAL = {Code.PUBLISH_ONCE: _bits("refused"), ACK: _bits("not found"), POLL: _bits("delivery", "tagged")}


def _ready(is_version_2: bool) -> tuple[list[int], list[int]]:
    """RequestKind and possible replies of each code in a connection that is ready."""
    kind: list[int] = [RequestKind.NOT_A_REQUEST] * CODES
    accepted = [0] * CODES
    for code in _FIXED:
        kind[code], accepted[code] = RequestKind.ONE_REPLY, _bits(_FIXED[code])
    for code in _FAULTS_TWO if is_version_2 else ():
        kind[code], accepted[code] = RequestKind.ONE_REPLY, accepted[code] | _bits(*_FAULTS_TWO[code])
    for code, bits in _OPTIONAL.items():
        kind[code], accepted[code] = RequestKind.OPTIONAL_REPLY, bits
    if not is_version_2:  # the version of a connection that began earlier is not known
        kind[Code.ODD_PUBLISH] = RequestKind.OPTIONAL_REPLY
        accepted[Code.ODD_PUBLISH] = _bits(*_FAULTS_TWO[Code.ODD_PUBLISH])
    for code in (PUBLISH, POLL) if is_version_2 else (PUBLISH,):
        kind[code], accepted[code] = RequestKind.SILENT_SUCCESS, 0
    for code in (NACK, PONG, Code.BAD + NACK, Code.BAD + PONG):
        kind[code] = RequestKind.ONE_WAY
    for code in (Code.UNKNOWN,) if is_version_2 else (Code.UNKNOWN, DELIVER):
        kind[code] = RequestKind.CLOSES
    kind[Code.CUT] = RequestKind.TRUNCATED
    return kind, accepted


def _greeting(is_new: bool) -> tuple[list[int], list[int]]:
    """The same before the connection is ready: every frame gets one reply."""
    kind, accepted = _ready(False)
    for code in range(Code.CUT):
        if kind[code] != RequestKind.NOT_A_REQUEST:
            kind[code], accepted[code] = RequestKind.ONE_REPLY, _bits("unauthenticated")
    opening = ("zero", "unsupported protocol version", "other") if is_new else ("HELLO already performed",)
    accepted[HELLO] = accepted[Code.HELLO_TWO] = _bits(*opening)
    accepted[Code.BAD + HELLO] = _bits("invalid HELLO payload" if is_new else "HELLO already performed")
    accepted[AUTH] = _bits("HELLO not performed") if is_new else _bits("zero", "invalid API key", "other")
    accepted[Code.BAD + AUTH] = _bits("HELLO not performed" if is_new else "invalid AUTH payload")
    return kind, accepted


_STATES = [_greeting(True), _greeting(False), _greeting(False), _ready(False), _ready(True)]
_CODE_OF = {word: Code.REPLY + i for i, word in enumerate(REPLIES)}
_BITS = [1 << (c - Code.REPLY) if Code.REPLY <= c < Code.REPLY + len(REPLIES) else 0 for c in range(CODES)]
_ZERO = _CODE_OF["zero"]
_LOGIN = ("invalid AUTH payload", "invalid API key")
_NOT_READY = (
    "zero", "other", "unauthenticated", "HELLO not performed", "invalid HELLO payload", "unsupported protocol version",
    *_LOGIN,
)  # fmt: skip
_ONLY_READY = [_CODE_OF[word] for word in REPLIES if word not in (*_NOT_READY, "HELLO already performed")]
# Any of these may answer an ACK, whose id is the broker's.
_OF_ACKS = (
    "invalid ACK payload", "subscription_id must be non-zero", "unauthenticated", "not found", "tagged", "other",
)  # fmt: skip


REQUEST_TABLES = RequestTables(
    kind=[bytes(kind) for kind, _ in _STATES],
    accepted_replies=[accepted for _, accepted in _STATES],
    reply_bits=_BITS,
    first_only=[False] * CODES,
    echoes_nothing=[c == _CODE_OF["tagged"] for c in range(CODES)],
    next_state={
        (NEW, HELLO, _ZERO): GREETED,
        (NEW, Code.HELLO_TWO, _ZERO): GREETED_TWO,
        (GREETED, AUTH, _ZERO): READY,
        (GREETED_TWO, AUTH, _ZERO): READY_TWO,
    },
    silence=[State.UNKNOWN if code == Code.CUT else State.SILENT for code in range(CODES)],
    echoes=True,
    awaited=frozenset({POLL}),
    initial_state=NEW,
    midstream_state=READY,
    unreadable=frozenset({Code.ODD_REPLY}),
    state_after=(
        {code: {NEW: READY, GREETED: READY, GREETED_TWO: READY_TWO} for code in _ONLY_READY}
        | {_CODE_OF[word]: {NEW: GREETED} for word in _LOGIN}
        | {Code.PUSH: dict.fromkeys((NEW, GREETED, GREETED_TWO, READY), READY_TWO)}
    ),
    confirming=frozenset({Code.PUSH, *_ONLY_READY}),
    contradicting=frozenset({Code.ODD_REPLY, *(_CODE_OF[word] for word in _NOT_READY)}),
    id_replies=~_bits(*_OF_ACKS),
    # It never holds a POLL, and TCP holds a segment for 40 ms: net/src sets no TCP_NODELAY.
    habits=ServerHabits(
        shortest_bytes=13,
        quiet_ns=50_000_000,
        pause_ns=200_000_000,
        holds_replies=True,
        answers_all="likely",
        opening=frozenset({"HELLO"}),
        opening_id=1,  # the shipped clients count up from 1
    ),
)


def request_group() -> RequestGroup:
    """The frames of a connection as requests and replies; a reply repeats the id of its request."""
    return RequestGroup(REQUEST_TABLES, codes, _echo_keys, _has_own_id, _payload_keys)


def _echo_keys(rows: pa.Table, _: Fingerprints) -> Int64Array:
    return low_words(rows["f.correlation_id"])


def _payload_keys(rows: pa.Table, prints: Fingerprints) -> Int64Array:
    """The message of each QoS 1 publish or delivery, by topic and body, and the subscription that a POLL reads."""
    op, sub = numbers(rows["op_code"], 0), low_words(rows["f.subscription_id"])
    message = (op == PUBLISH) & (numbers(rows["f.qos"], 0) == 1)
    if not message.any():
        return np.where(op == POLL, -1 - sub, 0)
    number = np.abs(_print(rows, prints)) | 1
    return np.where(message, number, np.where(op == POLL, -1 - sub, 0))


def _print(rows: pa.Table, prints: Fingerprints) -> Int64Array:
    """A number for the topic and the body of each row."""
    return prints(rows["destination"]) * 31 + numbers(rows["print.body"], 0)


def _has_own_id(rows: pa.Table) -> NDArray[np.bool_]:
    """Whether the id of a frame is the client's: that of an ACK is a tag of the broker."""
    return np.isin(numbers(rows["op_code"], 0), (HELLO, AUTH, PUBLISH, SUBSCRIBE, PING, POLL))


def codes(rows: pa.Table) -> Int64Array:
    """The code of each row."""
    client = from_client(rows)
    op = numbers(rows["op_code"], 0)
    qos, version = numbers(rows["f.qos"], -1), numbers(rows["f.protocol_version"], -1)
    sub = low_words(rows["f.subscription_id"], -1)
    topics = dictionary(rows["destination"])
    texts = [*topics.dictionary.to_pylist(), None]
    topic = pc.fill_null(topics.indices, len(texts) - 1).to_numpy(zero_copy_only=False)
    empty = np.array([x == "" for x in texts], np.bool_)[topic]
    nul = np.array(["\0" in (x or "") for x in texts], np.bool_)[topic]
    no_key = true_mask(pc.equal(pc.binary_length(single_array(rows["f.partition_key"])), 0))
    flaws = dictionary(rows["flaw"])
    cut = is_in(flaws, "truncated")
    bad = true_mask(pc.is_valid(rows["flaw"])) & ~cut
    publish, subscribe = op == PUBLISH, op == SUBSCRIBE
    has_type = (op >= HELLO) & (op <= DELIVER)
    code = np.where(has_type, op, int(Code.UNKNOWN))
    # The later rules win, as the server checks them first.
    for where, value in (
        (publish & (qos == 1), Code.PUBLISH_ONCE),
        ((op == HELLO) & (version == 2), Code.HELLO_TWO),
        (publish & (qos > 1), Code.BAD_QOS_PUBLISH),
        (subscribe & (qos > 1), Code.BAD_QOS_SUBSCRIBE),
        (publish & (nul | no_key), Code.ODD_PUBLISH),
        ((publish | subscribe) & empty, Code.EMPTY_TOPIC),
        (((op == ACK) | (op == POLL)) & (sub == 0), Code.ZERO_ID),
    ):
        code[where] = value
    unread = bad & has_type & (op != DELIVER)
    code[unread] = Code.BAD + op[unread]
    code[cut] = Code.CUT
    code[~client] = _replies(rows, op, qos, sub, cut | bad)[~client]
    return code


def _replies(rows: pa.Table, op: Int64Array, qos: Int64Array, sub: Int64Array, odd: NDArray[np.bool_]) -> Int64Array:
    """The codes of rows as replies."""
    texts = dictionary(rows["f.error_text"])
    code_by_text = [_CODE_OF[text if text in TEXTS else "other"] for text in (*texts.dictionary.to_pylist(), None)]
    text = pc.fill_null(texts.indices, len(code_by_text) - 1).to_numpy(zero_copy_only=False)
    error = numbers(rows["error_code"], -1)
    nack, publish = op == NACK, op == PUBLISH
    code = np.where(nack, np.array(code_by_text, np.int64)[text], int(Code.ODD_REPLY))
    for where, value in (
        (nack & (error == 404), _CODE_OF["not found"]),
        (nack & ((error == 500) | (error == 503)), _CODE_OF["refused"]),
        (op == PONG, _CODE_OF["pong"]),
        ((op == ACK) & (sub == 0), _CODE_OF["zero"]),
        ((op == ACK) & (sub != 0), _CODE_OF["subscribed"]),
        (publish & (qos != 1), _CODE_OF["delivery"]),
        (publish & (qos == 1), _CODE_OF["tagged"]),
        (op == DELIVER, int(Code.PUSH)),
        (odd, int(Code.ODD_REPLY)),
    ):
        code[where] = value
    return code


def keys(rows: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """Publishes and deliveries by topic and body: a delivery carries both unchanged."""
    message = is_in(rows["op"], "PUBLISH", "DELIVER") & ~true_mask(pc.is_valid(rows["flaw"]))
    client = from_client(rows)
    published, delivered = (np.flatnonzero(message & side) for side in (client, ~client))
    key = _print(rows, prints)
    return Keys(published, key[published]), Keys(delivered, key[delivered])
