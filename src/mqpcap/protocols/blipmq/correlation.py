"""Which BlipMQ frame answers which: what kind of request or reply each frame is.

Source: net/src/connection.rs, net/src/server.rs of bravo1goingdark/blipmq at 1d563c3.
"""

import hashlib
from collections.abc import Mapping
from enum import IntEnum, IntFlag

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import dictionary, is_in, low_words, true, whole
from mqpcap.correlate.rules import from_client, numbers
from mqpcap.schema.requests import I64, Keys, Lane, Prints, RequestKind, RequestTables, State

HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL, DELIVER = range(1, 11)

LIFETIME_NS = 61_000_000_000
"""A message that nobody fetched for 60 s goes with the next tick, 0.2 s later at most."""


class Says(IntFlag):
    """Contents of replies, one bit each; a request has those that it may get."""

    ZERO = 1
    """ACK of HELLO or AUTH."""
    SUBSCRIBED = 2
    PONG = 4
    OTHER = 8
    PERFORMED = 16
    BAD_HELLO = 32
    NOT_PERFORMED = 64
    ALREADY = 128
    BAD_AUTH = 256
    BAD_PUBLISH = 512
    BAD_SUBSCRIBE = 1024
    BAD_ACK = 2048
    BAD_POLL = 4096
    EMPTY_TOPIC = 8192
    BAD_QOS = 1 << 14
    ZERO_ID = 1 << 15
    UNAUTHENTICATED = 1 << 16
    BAD_KEY = 1 << 17
    BAD_VERSION = 1 << 18
    TOPIC = 1 << 19
    GROUP = 1 << 20
    NOT_FOUND = 1 << 21
    REFUSED = 1 << 22
    DELIVERY = 1 << 23
    """A delivery under the id of its POLL (QoS 0)."""
    TAGGED = 1 << 24
    """A delivery under a tag of the broker's (QoS 1)."""


TEXTS: Mapping[str, Says] = {
    "HELLO already performed": Says.PERFORMED,
    "invalid HELLO payload": Says.BAD_HELLO,
    "HELLO not performed": Says.NOT_PERFORMED,
    "already authenticated": Says.ALREADY,
    "invalid AUTH payload": Says.BAD_AUTH,
    "invalid PUBLISH payload": Says.BAD_PUBLISH,
    "invalid SUBSCRIBE payload": Says.BAD_SUBSCRIBE,
    "invalid ACK payload": Says.BAD_ACK,
    "invalid POLL payload": Says.BAD_POLL,
    "empty topic": Says.EMPTY_TOPIC,
    "invalid QoS value": Says.BAD_QOS,
    "subscription_id must be non-zero": Says.ZERO_ID,
    "unauthenticated": Says.UNAUTHENTICATED,
    "invalid API key": Says.BAD_KEY,
    "unsupported protocol version": Says.BAD_VERSION,
    "topic contains NUL byte": Says.TOPIC,
    "topic too long": Says.TOPIC,
    "empty consumer group name": Says.GROUP,
}
"""The texts of NACKs that answer fixed frames (versions 1 and 2)."""


class Code(IntEnum):
    """What a frame is: 1 to 10 are the client's frames of that type with nothing to refuse; others follow."""

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
    """REPLY + the number of a bit of Says."""
    PUSH = 60
    ODD_REPLY = 61


CODES = 64
NEW, GREETED, GREETED_TWO, READY, READY_TWO = range(5)


def _ready(two: bool) -> tuple[list[int], list[int]]:
    """RequestKind and possible replies of each code in a connection that is ready."""
    kind: list[int] = [RequestKind.NOTHING] * CODES
    wants = [0] * CODES
    wide = Says.TOPIC | Says.OTHER if two else Says(0)
    subscribe = Says.SUBSCRIBED | Says.BAD_QOS | Says.TOPIC | Says.GROUP | Says.OTHER if two else Says.SUBSCRIBED
    fixed = {
        HELLO: Says.PERFORMED, Code.HELLO_TWO: Says.PERFORMED, Code.BAD + HELLO: Says.PERFORMED,
        AUTH: Says.ALREADY, Code.BAD + AUTH: Says.ALREADY, PING: Says.PONG, SUBSCRIBE: subscribe,
        Code.BAD + PUBLISH: Says.BAD_PUBLISH | wide, Code.BAD + SUBSCRIBE: Says.BAD_SUBSCRIBE | wide,
        Code.BAD + ACK: Says.BAD_ACK, Code.BAD + POLL: Says.BAD_POLL, Code.BAD + PING: Says.PONG,
        Code.EMPTY_TOPIC: Says.EMPTY_TOPIC | wide, Code.BAD_QOS_PUBLISH: Says.BAD_QOS | wide,
        Code.BAD_QOS_SUBSCRIBE: Says.BAD_QOS | (wide | subscribe if two else Says(0)), Code.ZERO_ID: Says.ZERO_ID,
        Code.ODD_PUBLISH: Says.OTHER | Says.BAD_PUBLISH | Says.TOPIC | Says.BAD_QOS,
    }  # fmt: skip
    for code, says in fixed.items():
        kind[code], wants[code] = RequestKind.FIXED, int(says)
    if not two:
        kind[Code.ODD_PUBLISH], wants[Code.ODD_PUBLISH] = RequestKind.SILENT, 0
    kind[PUBLISH] = RequestKind.SILENT
    kind[Code.PUBLISH_ONCE], wants[Code.PUBLISH_ONCE] = RequestKind.OPTIONAL, int(Says.REFUSED)
    kind[ACK], wants[ACK] = RequestKind.OPTIONAL, int(Says.NOT_FOUND)
    kind[POLL], wants[POLL] = (
        (RequestKind.SILENT, 0) if two else (RequestKind.OPTIONAL, int(Says.DELIVERY | Says.TAGGED))
    )
    for code in (NACK, PONG, Code.BAD + NACK, Code.BAD + PONG):
        kind[code] = RequestKind.IGNORED
    kind[Code.UNKNOWN], kind[Code.CUT] = RequestKind.BREAKS, RequestKind.CUT
    if not two:
        kind[DELIVER] = RequestKind.BREAKS
    return kind, wants


def _greeting(state: int) -> tuple[list[int], list[int]]:
    """The same before the connection is ready: every frame gets one reply."""
    kind, wants = _ready(False)
    for code in range(Code.CUT):
        if kind[code] != RequestKind.NOTHING or code == DELIVER:
            kind[code], wants[code] = RequestKind.FIXED, int(Says.UNAUTHENTICATED)
    hellos = (HELLO, Code.HELLO_TWO)
    if state == NEW:
        says = dict.fromkeys(hellos, Says.ZERO | Says.BAD_VERSION | Says.OTHER) | {Code.BAD + HELLO: Says.BAD_HELLO}
        says |= {AUTH: Says.NOT_PERFORMED, Code.BAD + AUTH: Says.NOT_PERFORMED}
    else:
        says = dict.fromkeys((*hellos, Code.BAD + HELLO), Says.PERFORMED)
        says |= {AUTH: Says.ZERO | Says.BAD_KEY | Says.OTHER, Code.BAD + AUTH: Says.BAD_AUTH}
    for code, what in says.items():
        wants[code] = int(what)
    return kind, wants


_STATES = [_greeting(NEW), _greeting(GREETED), _greeting(GREETED_TWO), _ready(False), _ready(True)]
_ZERO = Code.REPLY + Says.ZERO.bit_length() - 1
_BITS = [1 << (c - Code.REPLY) if Code.REPLY <= c < Code.REPLY + len(Says) else 0 for c in range(CODES)]
_ONLY_READY = (
    Says.SUBSCRIBED | Says.PONG | Says.ALREADY | Says.BAD_PUBLISH | Says.BAD_SUBSCRIBE | Says.BAD_ACK | Says.BAD_POLL
    | Says.EMPTY_TOPIC | Says.BAD_QOS | Says.ZERO_ID | Says.TOPIC | Says.GROUP | Says.NOT_FOUND | Says.REFUSED
    | Says.DELIVERY | Says.TAGGED
)  # fmt: skip


def _says(bits: Says) -> list[int]:
    """The codes of replies."""
    return [Code.REPLY + i for i, bit in enumerate(Says) if bit & bits]


TABLES = RequestTables(
    kind=[bytes(kind) for kind, _ in _STATES],
    wants=[wants for _, wants in _STATES],
    says=_BITS,
    first_only=[False] * CODES,
    untied=[bit == Says.TAGGED for bit in _BITS],
    next_state={
        (NEW, HELLO, _ZERO): GREETED,
        (NEW, Code.HELLO_TWO, _ZERO): GREETED_TWO,
        (GREETED, AUTH, _ZERO): READY,
        (GREETED_TWO, AUTH, _ZERO): READY_TWO,
    },
    silence=[State.UNKNOWN if code == Code.CUT else State.SILENT for code in range(CODES)],
    ties=True,
    timed=True,
    start=NEW,
    late=READY,
    gaps=frozenset({Code.ODD_REPLY}),
    moves=(
        {code: {NEW: READY, GREETED: READY, GREETED_TWO: READY_TWO} for code in _says(_ONLY_READY)}
        | {code: {NEW: GREETED} for code in _says(Says.BAD_AUTH | Says.BAD_KEY)}
        | {Code.PUSH: dict.fromkeys((NEW, GREETED, GREETED_TWO, READY), READY_TWO)}
    ),
    proofs=frozenset({Code.PUSH, *_says(_ONLY_READY)}),
    denials=frozenset({Code.ODD_REPLY, *_says(~_ONLY_READY & ~Says.PERFORMED)}),
    # Any of the others may answer an ACK, whose id is the broker's.
    numbered=int(~(Says.BAD_ACK | Says.ZERO_ID | Says.UNAUTHENTICATED | Says.NOT_FOUND | Says.TAGGED | Says.OTHER)),
)


def lane() -> Lane:
    """How the frames of a connection are taken; the id of a request is its tie, and clients count with it."""
    return Lane(TABLES, codes, lambda rows, prints: low_words(rows["f.correlation_id"]), _own_ids, _items)


def _items(rows: pa.Table, prints: Prints) -> I64:
    """The message of each QoS 1 publish or delivery, by topic and body, and the subscription that a POLL reads."""
    op, sub = numbers(rows["op_code"], 0), low_words(rows["f.subscription_id"])
    message = (op == PUBLISH) & (numbers(rows["f.qos"], 0) == 1)
    if not message.any():
        return np.where(op == POLL, -1 - sub, 0)
    number = np.abs(prints(rows["destination"]) * 31 + prints(rows["f.body"])) | 1
    return np.where(message, number, np.where(op == POLL, -1 - sub, 0))


def _own_ids(rows: pa.Table) -> list[I64]:
    """The ids of requests, -1 for frames whose id is a tag of the broker's."""
    op = numbers(rows["op_code"], 0)
    own = np.isin(op, (HELLO, AUTH, PUBLISH, SUBSCRIBE, PING, POLL))
    return [np.where(own, low_words(rows["f.correlation_id"]), -1)]


def codes(rows: pa.Table) -> I64:
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
    no_key = true(pc.equal(pc.binary_length(whole(rows["f.partition_key"])), 0))
    flaws = dictionary(rows["flaw"])
    cut = is_in(flaws, "truncated")
    bad = true(pc.is_valid(rows["flaw"])) & ~cut
    publish, subscribe = op == PUBLISH, op == SUBSCRIBE
    known = (op >= HELLO) & (op <= DELIVER)
    code = np.where(known, op, int(Code.UNKNOWN))
    # The later rules win, as the server checks them first.
    for where, what in (
        (publish & (qos == 1), Code.PUBLISH_ONCE),
        ((op == HELLO) & (version == 2), Code.HELLO_TWO),
        (publish & (qos > 1), Code.BAD_QOS_PUBLISH),
        (subscribe & (qos > 1), Code.BAD_QOS_SUBSCRIBE),
        (publish & (nul | no_key), Code.ODD_PUBLISH),
        ((publish | subscribe) & empty, Code.EMPTY_TOPIC),
        (((op == ACK) | (op == POLL)) & (sub == 0), Code.ZERO_ID),
    ):
        code[where] = what
    unread = bad & known & (op != DELIVER)
    code[unread] = Code.BAD + op[unread]
    code[cut] = Code.CUT
    code[~client] = _replies(rows, op, qos, sub, cut | bad)[~client]
    return code


def _replies(rows: pa.Table, op: I64, qos: I64, sub: I64, odd: NDArray[np.bool_]) -> I64:
    """The codes of rows as replies."""
    texts = dictionary(rows["f.error_text"])
    said = np.array([*(int(TEXTS.get(x, Says.OTHER)) for x in texts.dictionary.to_pylist()), int(Says.OTHER)], np.int64)
    error = numbers(rows["error_code"], -1)
    ack, nack, publish = op == ACK, op == NACK, op == PUBLISH
    bits = np.zeros(len(op), np.int64)
    for where, what in (
        (op == PONG, Says.PONG),
        (ack & (sub == 0), Says.ZERO),
        (ack & (sub != 0), Says.SUBSCRIBED),
        (publish & (qos != 1), Says.DELIVERY),
        (publish & (qos == 1), Says.TAGGED),
    ):
        bits[where] = int(what)
    bits[nack] = said[pc.fill_null(texts.indices, len(said) - 1).to_numpy(zero_copy_only=False)[nack]]
    bits[nack & (error == 404)] = int(Says.NOT_FOUND)
    bits[nack & ((error == 500) | (error == 503))] = int(Says.REFUSED)
    code = np.full(len(op), int(Code.ODD_REPLY), np.int64)
    some = (bits > 0) & ~odd
    code[some] = Code.REPLY + np.log2(bits[some]).astype(np.int64)
    code[(op == DELIVER) & ~odd] = Code.PUSH
    return code


def keys(rows: pa.Table, prints: Prints) -> tuple[Keys, Keys]:
    """Publishes and deliveries by topic and body: a delivery carries both unchanged."""
    message = is_in(rows["op"], "PUBLISH", "DELIVER") & ~true(pc.is_valid(rows["flaw"]))
    client = from_client(rows)
    out, back = (np.flatnonzero(message & side) for side in (client, ~client))
    # Bodies are only looked at where something is delivered or published with a topic.
    key = prints(rows["destination"]) * 31 + prints(rows["f.body"])
    return Keys(out, key[out]), Keys(back, key[back])


def body_hash(rows: pa.Table, *_: I64) -> pa.Array:
    """The SHA-256 of each body."""
    return pa.array([hashlib.sha256(x).hexdigest() for x in rows["f.body"].to_pylist()], pa.string())
