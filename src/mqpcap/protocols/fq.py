"""fq, the message queue of Circonus.

Source: docs/fq_protocol.md of circonus-labs/fq (first revision); real behaviour from fqd, libfq, the Java client at
aa2bb01 (0.13.12) and node-fq 0.3.1 (68a6e65). Port 8765, all integers big-endian, HTTP shares the port.

A session is a command connection and data connections, tied by a random key alone. The first four bytes of
the client say what a connection is; on data connections they and the direction decide the layout, as no
frame says which it has. The server never sends first.

The broker's limits on commands are not part of their layout: an over-long user is still a login, refused by the
answer. Its limits on data frames are part of the layout: the broker closes at a violation, and no later byte can be
framed.

A data frame has no magic number, and message ids are full of zeros, which read as empty fields. In 1920 of 3300
mid-stream starts in real streams, two consecutive frames were first found at a wrong offset. So a search requires
plausible names: an exchange that is not empty, and text without control characters. Then no offset was wrong.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, dictionary, is_in, true_mask, with_list_values
from mqpcap.schema.fields import U8, U16, U32, Address, Array, Bytes, GreedyText, If, Kind, Nested, Text
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message, message_class
from mqpcap.schema.protocol import (
    ANY,
    DIRECTIONS,
    Claim,
    ConnectionFacts,
    Derived,
    Direction,
    Envelope,
    Evidence,
    EvidenceRule,
    FirstBytes,
    Layout,
    MessageQueue,
    Observation,
    Opening,
    Raw,
    Variant,
    Verdict,
)
from mqpcap.schema.requests import CorrelationRule, DeliveryRule, Fingerprints, Keys, RequestRule, Roles, ServerHabits

PORT = 8765  # fqd.c:80
MAX_KEY_LEN = 127  # fqd_dss.c:400-402
MAX_NAME_LEN = 127  # fq_utils.c:270, 280, 296: exchange, route and sender of a data frame
MAX_HOPS = 32  # fq_utils.c:306
MAX_PAYLOAD_LEN = 1 << 28  # fqd.h.in:48
MAX_SEARCHED_PAYLOAD_LEN = 1 << 24  # our limit: a search does not wait for more bytes of a possible frame
MAX_SEARCHED_NAME_LEN = (
    0x1F  # our limit: from 0x20 on a length is also a character, so any offset inside a key would fit
)
REFUSED = 0xFFFFFFFF  # fqd_config.c:238: a bind refused; fqd_ccs.c:345: nothing unbound


class Word(IntEnum):
    """The first four bytes of a connection, fq.h:41-44."""

    COMMAND = 0xCC50CAFE
    DATA = 0xCC50FACE
    PEER = 0xCC50FEED
    PEER_OLD = 0xCC50FADE


class Code(IntEnum):
    """The two bytes every command begins with, fq.h and the document's list of prefixes."""

    AUTH = 0xAAAA
    AUTH_RESPONSE = 0xAA00
    BIND_REQUEST = 0xB170
    BIND = 0xB171
    UNBIND_REQUEST = 0x071B
    UNBIND = 0x171B
    STATUS_REQUEST = 0xC7A7
    STATUS = 0x57A7
    HEARTBEAT_REQUEST = 0x4848
    HEARTBEAT = 0xBEA7
    ERROR = 0xEEEE


CODE_NAMES = {int(code): code.name.lower() for code in Code}
WORD_NAMES = {int(word): "connect" for word in Word}
KINDS = {int(word): word.name.lower() for word in Word}
VERBS = (b"GET ", b"PUT ", b"POST", b"HEAD")  # fq.h:45-49
BIND_FLAGS = {0: "none", 1: "peer", 0x0100: "transient", 0x0110: "permanent", 0x0111: "peer, permanent"}


_message = partial(message_class, __name__)
_CLIENT_KEY = Bytes("client_key", prefix=2, at_least=1, at_most=MAX_KEY_LEN, secret=True)
_WORDS = U32("word", Word.COMMAND, column=None, names={int(w): w.name for w in Word})

FqConnect = _message("FqConnect", "fq", "The word a client opens a connection with (fqd_listener.c:80-139).", _WORDS)
_CONNECT: dict[int, tuple[type[Message] | Variant, ...]] = {}
_AFTER_CONNECT: dict[int, str] = {}


def _opening(word: Word, next_layout: str, title: str, about: str, *fields: Kind) -> type[Message]:
    """The class of the bytes after a word, which is added with the layout after them."""
    message = _message("FqConnect" + KINDS[word].title().replace("_", ""), title, about, *fields)
    _CONNECT[int(word)], _AFTER_CONNECT[int(word)] = (message,), next_layout
    return message


_opening(Word.COMMAND, "command_c2s", "fq connect command", "A command connection: the login follows.")
_opening(
    Word.DATA, "short", "fq connect data", "A data connection: the key its command connection was given.", _CLIENT_KEY
)
# fq_client.c:423-427: the peer's identity, an IPv4 address; not in the document.
_opening(
    Word.PEER, "full_c2s", "fq connect peer", "A data connection of another broker.", Address("node_id"), _CLIENT_KEY
)
_CONNECT_OLD = _opening(
    Word.PEER_OLD, "full_c2s", "fq connect old peer", "The document's form: it does not say which broker.", _CLIENT_KEY
)
# Go clients write the document's form after the new word; the server reads the key's length as a part of the node id.
_CONNECT[Word.PEER] += (Variant(_CONNECT_OLD, only_framed=True),)

# -- commands

FqCommand = _message(
    "FqCommand", "fq command", "The code every command begins with.", U16("code", column=None, names=CODE_NAMES)
)
_REQUESTS: dict[int, tuple[type[Message], ...]] = {}
_ANSWERS: dict[int, tuple[type[Message], ...]] = {}


def _command(bodies: dict[int, tuple[type[Message], ...]], code: Code, about: str, *fields: Kind) -> None:
    """Adds the class of the bytes after a code; the code gives the name."""
    name = CODE_NAMES[code]
    bodies[int(code)] = (_message("Fq" + name.title().replace("_", ""), f"fq {name}", about, *fields),)


FqQueueDetail = _message(
    "FqQueueDetail", "fq queue detail", "Without a delimiter the rest is absent (fqd_ccs.c:98-121).",
    Text("queue", until=0), Text("queue_type", until=ord(":")), GreedyText("queue_params"),
)  # fmt: skip
_command(
    _REQUESTS, Code.AUTH, "The login; the broker reads the password and ignores it (fqd_ccs.c:147-154).",
    U16("method", equals=0, column=None),  # "plain", the only one (fqd_ccs.c:78)
    Text("user", prefix=2), Nested("queue_detail", FqQueueDetail, prefix=2), Text("password", prefix=2, secret=True),
)  # fmt: skip
_command(
    _ANSWERS, Code.AUTH_RESPONSE, "Granted: the key for data connections, always 127 bytes (fqd_ccs.c:185-198).",
    _CLIENT_KEY,
)  # fmt: skip
_command(
    _REQUESTS, Code.BIND_REQUEST, "Asks for the messages of an exchange that a program selects.",
    U16("bind_flags", names=BIND_FLAGS),  # fq.h:51-53; the document calls it Peer Mode
    Text("exchange", prefix=2), Text("program", prefix=2),
)  # fmt: skip
REFUSAL = "refused"
_BINDING_ID = U32("binding_id", names={REFUSED: REFUSAL})
_command(_ANSWERS, Code.BIND, "The answer to a bind request; all bits set is a refusal.", _BINDING_ID)
_EXCHANGE = Text("exchange", prefix=2)
_command(_REQUESTS, Code.UNBIND_REQUEST, "Gives a binding up.", U32("binding_id"), _EXCHANGE)
_command(_ANSWERS, Code.UNBIND, "The same id, or all bits set when nothing was removed.", _BINDING_ID)
# node-fq lib/command.js:51, 355: its buffer is two bytes too long, and they are sent. No command is 0000.
_SPARE = If(Bytes("spare", size=2, column=None), follows=b"\0\0")
_command(_REQUESTS, Code.STATUS_REQUEST, "Asks for the counters of the session.", _SPARE)
FqStatusValue = _message("FqStatusValue", "fq status value", "One counter.", Text("name_", prefix=2), U32("value"))
_VALUES = Array("status_values", FqStatusValue, until_zero=2)
_command(_ANSWERS, Code.STATUS, "The counters, up to an empty name (fqd_ccs.c:226-243).", _VALUES)
_INTERVAL = U16("interval_ms", unit="ms")
_command(_REQUESTS, Code.HEARTBEAT_REQUEST, "Asks for heartbeats at an interval, 0 for none.", _INTERVAL)
_command(_REQUESTS, Code.HEARTBEAT, "A sign of life; nothing answers it.")
_ANSWERS[Code.HEARTBEAT] = _REQUESTS[Code.HEARTBEAT]
_ERROR_TEXT = Text("error_text", prefix=2)
_command(_ANSWERS, Code.ERROR, "Why the broker ends the session; not in the document (fqd.h.in:224-227).", _ERROR_TEXT)
# A text as long as a key may be the key of an AUTH_RESPONSE whose code was damaged.
_KEY_AS_ERROR = Bytes("client_key", prefix=2, at_least=MAX_KEY_LEN, at_most=MAX_KEY_LEN, secret=True)
_KEY_ERROR = _message("FqErrorKey", "fq error, maybe a key", "An error whose text is as long as a key.", _KEY_AS_ERROR)
_ANSWERS[Code.ERROR] = (_KEY_ERROR, *_ANSWERS[Code.ERROR])

# -- data frames


def _frame(name: str, title: str, about: str, is_full: bool, is_found: bool = False) -> type[Message]:
    """A data frame. ``is_full``: with sender and hops. ``is_found``: for a search, with plausible names only."""
    text = partial(Text, prefix=1, at_most=MAX_NAME_LEN, strict=is_found, printable=is_found)
    peer = [
        text("sender"),
        U8("hop_count", at_most=MAX_HOPS),
        Array("hops", Address("address"), count="hop_count"),  # IPv4, newest first (fqd_peer.c:166-185)
    ]
    fields = [
        text("exchange", at_least=1, at_most=MAX_SEARCHED_NAME_LEN) if is_found else text("exchange"),
        text("route_"),
        Bytes("message_id", size=16),
        *(peer if is_full else []),
        U32("payload_len", at_most=MAX_SEARCHED_PAYLOAD_LEN if is_found else MAX_PAYLOAD_LEN),
        Bytes("body", length="payload_len", body=True),
    ]
    return _message(name, title, about, *fields)


FqMessageShort = _frame("FqMessageShort", "fq message, short", "From the client of a data connection.", False)
FqMessage = _frame("FqMessage", "fq message", "From the broker to anybody (fqd_dss.c:348), or from a peer.", True)
FqMessageShortFound = _frame("FqMessageShortFound", "fq message, short, found", "For a search.", False, True)
FqMessageFound = _frame("FqMessageFound", "fq message, found", "For a search.", True, True)


def _commands(name: str, direction: Direction, bodies: Mapping[int, Sequence[type]]) -> Layout:
    return Layout(name, direction, bodies, header=FqCommand, op="code", names=CODE_NAMES, dialect="v1", on_bad="stop")


def _frames(name: str, direction: Direction, *variants: type) -> Layout:
    searched = None if name.endswith("found") else f"{name}_found"
    return Layout(
        name, direction, {ANY: variants}, names={ANY: "message"}, dialect="v1", on_bad="stop", searched=searched
    )


def _connect(word: Word) -> Layout:
    """All words open alike; the layout's name keeps which it was, also where the rest was not captured."""
    return Layout(
        f"connect_{KINDS[word]}", "c2s", _CONNECT, header=FqConnect, op="word", names=WORD_NAMES, dialect="v1",
        on_bad="stop", then=_AFTER_CONNECT,
    )  # fmt: skip


LAYOUTS = (
    *map(_connect, Word),
    _commands("command_c2s", "c2s", _REQUESTS),
    _commands("command_s2c", "s2c", _ANSWERS),
    _frames("short", "c2s", FqMessageShort),
    _frames("full_c2s", "c2s", FqMessage),
    # The client of a connection whose start was not captured, before it has shown which of the two it sends.
    _frames("short_or_full", "c2s", FqMessageShort, FqMessage),
    _frames("full", "s2c", FqMessage),
    _frames("short_found", "c2s", FqMessageShortFound),
    _frames("full_c2s_found", "c2s", FqMessageFound),
    _frames("short_or_full_found", "c2s", FqMessageShortFound, FqMessageFound),
    _frames("full_found", "s2c", FqMessageFound),
)  # fmt: skip


def claims(opening: Opening) -> Claim:
    """The word decides; without the start of the stream two commands or frames in a row do, on the port or to a known
    server."""
    client, server = opening.c2s, opening.s2c
    word = int.from_bytes(client[:4], "big")
    if len(client) >= 4 and word in KINDS:
        answers = "command_s2c" if word == Word.COMMAND else "full"
        return Claim(Verdict.YES, f"connect_{KINDS[word]}", answers, opens=True)
    if opening.c2s_start and client:
        begun = len(client) < 4 and any(w.to_bytes(4, "big").startswith(client) for w in Word)
        return Claim(Verdict.WAIT if begun and not opening.c2s_ended else Verdict.NO)
    if opening.c2s_start and not opening.c2s_ended:
        return Claim(Verdict.WAIT)  # the server never sends first
    if not client and opening.s2c_start and server[:4] == b"\xaa\0\0\x7f" and server[131:133] == b"\xbe\xa7":
        return Claim(Verdict.YES, "command_c2s", "command_s2c")  # a key and a heartbeat: the server answers a login
    if client[:4] in VERBS or server[:5] == b"HTTP/":
        return Claim(Verdict.NO)
    if not opening.on_port and not (opening.c2s_ended and opening.s2c_ended):
        return Claim(Verdict.WAIT)  # most foreign connections: search them once, at the end
    return _late_claim(opening)


def _late_claim(opening: Opening) -> Claim:
    """Classify a mid-stream connection: the layout that fits from the earliest byte wins.

    A side that fits no layout may need more bytes; a side that has ended counts as silent.
    """
    commands = [offset for d in DIRECTIONS if (offset := _first_pair(opening, d, f"command_{d}")) is not None]
    short = _first_pair(opening, "c2s", "short_found")
    full_c2s = _first_pair(opening, "c2s", "full_c2s_found")
    frames = [offset for offset in (short, full_c2s, _first_pair(opening, "s2c", "full_found")) if offset is not None]
    if not commands and not frames:
        return Claim(Verdict.NO if opening.c2s_ended and opening.s2c_ended else Verdict.WAIT)
    # If both fit, the earlier byte wins: a misreading skips bytes.
    if commands and (not frames or min(commands) <= min(frames)):
        return Claim(Verdict.LIKELY, "command_c2s", "command_s2c")
    if short is None and full_c2s is None:
        sends = "short_or_full"
    elif full_c2s is None or (short is not None and short <= full_c2s):
        sends = "short"
    else:
        sends = "full_c2s"
    return Claim(Verdict.LIKELY, sends, "full")


def _first_pair(opening: Opening, direction: Direction, layout: str) -> int | None:
    """The offset of the first two consecutive messages, None if more bytes are skipped than read.

    A mid-stream start lies inside one message, so a search skips less than one message. Foreign protocols sometimes end
    in bytes that look like a frame.
    """
    side, *_ = opening.side(direction)
    offset = opening.find_run(direction, layout, 2) if side else None
    return offset if offset is not None and offset <= len(side) - offset else None


def observe(observation: Observation) -> None:
    """The first login and its key; for a data connection, the login that was granted its key.

    Keys are random: a second login with the same key is the same traffic in another capture. The latest login wins;
    a login at the connection's own address goes first, as a broker may have several.
    """
    for evidence, direction, op, ts_ns, (user, queue, key) in observation.each("user", "queue", "client_key"):
        state = evidence.state
        if evidence.lookup is not None:
            continue
        if op == Code.AUTH and direction == "c2s" and user is not None and "user" not in state:
            state["user"], state["queue"] = user, queue
        elif key is not None and "key" not in state:
            state["key"] = True
            state["is_doubtful"] = op != Code.AUTH_RESPONSE and len(key) != MAX_KEY_LEN
            if op == Code.AUTH_RESPONSE:
                state["granted"] = key, ts_ns
            elif "user" in state:
                evidence.is_final = True
            else:
                evidence.lookup = key, ts_ns
        if "user" in state and "granted" in state:
            key, granted_ns = state.pop("granted")
            observation.add_fact(key, evidence, granted_ns, (state["user"], state["queue"]))
            evidence.is_final = True


def answer(evidence: Evidence, login: tuple[str, str] | None) -> None:
    """The login that a data connection's key was granted to."""
    if login is not None:
        evidence.state["user"], evidence.state["queue"] = login
        evidence.state["is_doubtful"] = False


_KINDS = {f"connect_{kind}": kind for kind in KINDS.values()} | {"command_c2s": "command", "short": "data"}
"""Kinds of connections, by the client's first layout. Full frames mid-stream have none: either peer sends them."""


def resolve(evidence: Evidence) -> ConnectionFacts:
    """User and queue of the login, on its command connection and on the data connections with its key."""
    # An empty queue name makes the broker invent one, which it tells nobody (fqd_ccs.c:127-146).
    return ConnectionFacts(
        group_name=evidence.state.get("queue") or None,
        client_name=evidence.state.get("user"),
        columns={"connection_kind": _KINDS.get(evidence.layouts[0])},
        own=evidence.state.get("is_doubtful", False),
    )


def _dotted(addresses: pa.Array) -> pa.Array:
    """IPv4 addresses of four bytes as text; each distinct address is formatted once."""
    encoded = addresses.dictionary_encode()
    texts = [".".join(map(str, address)) for address in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _refuse_keys(raw: Raw) -> None:
    """Messages that may be bytes of a key are malformed.

    The broker grants keys of 127 bytes only, and closes a connection with another key (fqd_ccs.c:185-198,
    fqd_dss.c:400-418). If the key of a connection is shorter, and no login was granted it, its length may be damaged.
    Then messages need plausible names, as in a search.
    """
    is_doubtful = np.array([fact.own is True for fact in raw.facts], np.bool_)[raw.connection_index]
    if not is_doubtful.any():
        return
    sends = np.array([name in ("short", "full_c2s") for name in raw.layout_names], np.bool_)[raw.layout]
    rows = np.flatnonzero(is_doubtful & sends & (raw.flaw == Flaw.NONE))
    for column, at_least, at_most in (("exchange", 1, MAX_SEARCHED_NAME_LEN), ("route", 0, MAX_NAME_LEN)):
        names = dictionary(raw.array(column)).take(pa.array(rows)).to_pylist()
        is_plausible = np.array([_is_plausible(name, at_least, at_most) for name in names], np.bool_)
        raw.flaw[rows[~is_plausible]] = Flaw.MALFORMED
        rows = rows[is_plausible]


def _is_plausible(name: str, at_least: int, at_most: int) -> bool:
    return name.isprintable() and "\ufffd" not in name and at_least <= len(name.encode()) <= at_most


def derive(raw: Raw) -> dict[str, pa.Array]:
    """Addresses as dotted text. ``connection_kind`` comes from the connection's evidence, so it is null here."""
    _refuse_keys(raw)
    hops = raw.array("hops")
    return {
        "connection_kind": pa.nulls(raw.n, pa.string()),
        "node_id": _dotted(raw.array("node_id")),
        "hops": with_list_values(hops, _dotted(hops.flatten())),
    }


def _hex(ids: pa.Array) -> pa.Array:
    """Ids as hex digits."""
    return pa.array([x if x is None else x.hex() for x in ids.to_pylist()], pa.string())


_REPLIES = tuple(CODE_NAMES[code] for code in _ANSWERS if code not in (Code.HEARTBEAT, Code.ERROR))


def envelope(table: pa.Table) -> dict[str, pa.Array]:
    """The id as text; whether a reply grants or refuses, and the error text. A refusal is named by its binding id."""
    op, binding_id = table["op"], table["binding_id"]
    binds = is_in(op, "bind", "unbind")
    refused = binds & true_mask(pc.equal(binding_id, REFUSED))
    # A reply whose id was not captured may be either.
    granted = is_in(op, *_REPLIES) & ~(binds & true_mask(pc.is_null(binding_id)))
    error_text = table["error_text"].combine_chunks()
    return {
        "status": case_when({"ok": granted, "error": refused | is_in(op, "error")}),
        "error_text": pc.if_else(pa.array(refused), REFUSAL, error_text),
        "message_id": _hex(table["message_id"].combine_chunks()),
    }


def keys(rows: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """A delivery carries its publish's id, exchange, route and body; a disk queue rewrites the id's last 8 bytes.

    Publishers repeat ids (fq_bench, the lua client): where several publishes are alike in all, none is taken.
    """
    ids = rows["f.message_id"].combine_chunks()
    is_message = is_in(rows["op"], "message") & true_mask(pc.is_valid(ids))
    client = is_in(rows["direction"], "c2s")
    key = prints(pc.binary_slice(ids, 0, 8))
    for name in ("destination", "f.route", "f.body"):
        key = key * 1_000_003 + prints(rows[name])
    published, delivered = np.flatnonzero(is_message & client), np.flatnonzero(is_message & ~client)
    # A disk queue may rewrite the last 8 bytes of a message id, so the id shown is that of the publish.
    tail = pc.binary_slice(ids.take(pa.array(published)), 8, 16).cast(pa.binary(8))
    note = np.frombuffer(tail.buffers()[1] or b"", np.int64, len(published), 8 * tail.offset)
    return Keys(published, key[published], note), Keys(delivered, key[delivered])


def id_head(rows: pa.Table, _: NDArray[np.int64]) -> pa.Array:
    """The part of the ids that no disk queue rewrites, in hexadecimal."""
    return pa.array([x.hex() for x in pc.binary_slice(rows["f.message_id"], 0, 8).to_pylist()], pa.string())


def publish_id(heads: pa.Array, note: NDArray[np.int64]) -> pa.Array:
    """The ids of the publishes, in hexadecimal."""
    both = zip(heads.to_pylist(), note, strict=True)
    return pa.array([head + end.tobytes().hex() for head, end in both], pa.string())


RULE = CorrelationRule(
    asks={
        "auth": RequestRule("always", frozenset({"auth_response", "error"})),
        "bind_request": RequestRule("always", frozenset({"bind"})),
        "unbind_request": RequestRule("always", frozenset({"unbind"})),
        "status_request": RequestRule("always", frozenset({"status"})),
        "heartbeat_request": RequestRule("ignored"),
        "message": RequestRule("ignored"),
    },
    unasked=frozenset({"heartbeat", "message"}),
    # After the login an error answers nothing: it ends the session.
    first_only=frozenset({"error"}),
    # The first message is answered before it is whole (fqd_ccs.c:85-104).
    habits=ServerHabits(
        shortest_bytes=2,
        pause_ns=500_000_000,
        holds_replies=True,  # fqd_listener.c sets no TCP_NODELAY
        answers_all="likely",
        early=frozenset({"auth"}),
        opening=frozenset({"connect"}),  # fqd_listener.c:80-139
    ),
    columns=("message_id", "route", "body"),
    deliveries=DeliveryRule("message_id", keys, id_head, across_servers=True, whole=publish_id),
)

MEANINGS = {
    "connection_kind": "command, data, peer or peer_old; null if the capture does not show it",
    "node_id": "address of the broker that connects as a peer",
    "client_key": "key that joins the two connections of a client; a secret",
    "user": "user of the login",
    "queue": "queue of the login",
    "queue_type": "type of that queue",
    "queue_params": "its parameters, as sent",
    "password": "password of the login; a secret",
    "exchange": "exchange of a message or a bind",
    "route": "route of a message",
    "program": "filter program of a bind",
    "bind_flags": "flags of a bind",
    "binding_id": "binding that was made or removed",
    "interval_ms": "interval of heartbeats that is asked for",
    "status_values": "counters of the broker",
    "message_id": "identifier of a message, 16 bytes",
    "sender": "sender of a message, as peers repeat it",
    "hops": "addresses of the brokers that it passed, in wire order",
    "body": "user payload",
    "error_text": "error as text",
}
"""The content of each column of the table."""

_PARAM = "(private|public|drop|block|permanent|transient|backlog=-?[0-9]{1,10})"

PROTOCOL = MessageQueue(
    name="fq",
    title="fq",
    ports=(PORT,),
    dialects=("v1",),
    layouts=LAYOUTS,
    claims=claims,
    openings=tuple(FirstBytes(word.to_bytes(4, "big")) for word in Word),
    recognised="the client's first four bytes: cc50cafe, cc50face, cc50feed or cc50fade",
    meanings=MEANINGS,
    details={"sender": "sender", "body": "body"},
    words={
        "queue_type": "mem|disk",  # fqd_queue.c:279-286
        "queue_params": f"{_PARAM}(,{_PARAM})*",
        # fqd_ccs.c:231-242
        "name": "dropped_in|no_exchange|no_route|routed|dropped|size_dropped|(msgs|octets)_(in|out)",
        "error_text": (
            "auth command expected|auth method read failed|(user|queue) name is too long|queue detail is too long"
            "|pass field is too long|unsupported auth method|can't generate random key|can't add you to queue"
            "|requested queue is private and in use\n|requested private, queue is public"
            "|request block, queue is drop|initialization of disk queue failed|(client )?heartbeat failed"
        ),
    },
    envelope=Envelope(
        destination="exchange",
        body="body",
        derive=envelope,
        derives=("status", "error_text", "message_id"),
        reads=("binding_id", "error_text", "message_id"),
    ),
    rule=RULE,
    roles=Roles(
        traits=frozenset({"shared"}),
        publish=frozenset({"message"}),
        deliver=frozenset({"message"}),
        subscribe=frozenset({CODE_NAMES[Code.BIND_REQUEST]}),
        login=frozenset({CODE_NAMES[Code.AUTH]}),
        heartbeat=frozenset({CODE_NAMES[Code.HEARTBEAT]}),
    ),
    evidence=EvidenceRule(
        frozenset({*map(int, Word), Code.AUTH, Code.AUTH_RESPONSE}), observe, resolve, shares_facts=True, answer=answer
    ),
    derived=(
        Derived("connection_kind", pa.string()),
        Derived("node_id", pa.string()),
        Derived("hops", pa.list_(pa.string())),
    ),
    derive=derive,
    hidden=("node_id", "hops"),
)
