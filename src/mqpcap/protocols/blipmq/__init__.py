"""BlipMQ, protocol versions 1 and 2.

Source: docs/PROTOCOL.md of bravo1goingdark/blipmq at b8159bf; net/src/frame.rs at 1d563c3 (version 1), 7a553cb
(version 2). Port 5555, all integers big-endian, a frame is at most 16 MiB behind its length.

The version is that of the HELLO answered by ACK; it decides whether the high bits of a qos byte are flags.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mqpcap.arrays import case_when, is_in
from mqpcap.protocols.blipmq import correlation
from mqpcap.schema.fields import U8, U16, U32, U64, Bits, Bytes, GreedyBytes, If, Kind, Length, Text
from mqpcap.schema.message import Message, message_class
from mqpcap.schema.protocol import (
    Claim,
    ConnectionFacts,
    Direction,
    Envelope,
    Evidence,
    EvidenceRule,
    Layout,
    MessageQueue,
    Observation,
    Opening,
    Verdict,
)
from mqpcap.schema.requests import CorrelationRule, DeliveryRule, Roles

MAX_FRAME_SIZE = 16 * 1024 * 1024  # frame.rs: the server closes on more
HEADER_BYTES = 13
ACK_BYTES = 21
IN_A_ROW = 3
"""So many frames in a row are ours anywhere."""
FRAMES_LOOKED_AT = 256
"""So many frames of a side are asked who says them."""
EARLY_ACKS = 16
"""ACKs remembered whose HELLO has not been read yet."""


class FrameType(IntEnum):
    """Frame types, net/src/frame.rs."""

    HELLO = 1
    AUTH = 2
    PUBLISH = 3
    SUBSCRIBE = 4
    ACK = 5
    NACK = 6
    PING = 7
    PONG = 8
    POLL = 9
    DELIVER = 10


NAMES = {int(t): t.name for t in FrameType}
QOS_NAMES = {0: "AtMostOnce", 1: "AtLeastOnce"}


class BlipMQ(Message):
    """The 13 bytes every frame begins with (PROTOCOL.md, Frame Layout)."""

    name = "BlipMQ"
    fields_desc = [
        # The length counts from after itself: type, id and payload (frame.rs, HEADER_FIXED_LEN).
        Length("length", less=9, at_most=MAX_FRAME_SIZE),
        U8("frame_type", column=None, names=NAMES),
        U64("correlation_id"),
    ]


def _body(title: str, about: str, *fields: Kind, **own: Any) -> type[Message]:
    """The class of a body: of version 1 or of both, where the title does not say version 2."""
    name = f"BlipMQ{title.title().replace(' ', '')}"
    return message_class(__name__, name, f"BlipMQ {title}", about, *fields, **own)


_TOPIC = (U16("topic_len"), Text("topic", length="topic_len", strict=True))
_BODY = GreedyBytes("body", body=True)
_TRAILING = GreedyBytes("trailing_bytes")
_QOS = U8("qos", names=QOS_NAMES)
# Version 2: the high bits say which fields follow.
_FLAGS = (U8("qos_flags"), Bits("qos", of="qos_flags", mask=0x03, names=QOS_NAMES))

BlipMQHello = _body("HELLO", "Opens the connection with the version the client speaks.", U16("protocol_version", 1))
BlipMQAuth = _body(
    "AUTH", "The API key, in the clear.", U16("key_len"), Text("api_key", length="key_len", strict=True, secret=True)
)
BlipMQPublish = _body(
    "PUBLISH", "A message, published or delivered; version 1 and every delivery.", _QOS, *_TOPIC, _BODY
)
BlipMQPublishV2 = _body(
    "PUBLISH v2", "A message published in version 2.",
    *_FLAGS, If(U32("ttl_ms", unit="ms"), when="qos_flags", has=0x80),
    If(Bytes("partition_key", prefix=2), when="qos_flags", has=0x40), *_TOPIC, _BODY, like=BlipMQPublish,
)  # fmt: skip
BlipMQSubscribe = _body(
    "SUBSCRIBE", "A subscription; the server ignores what follows the qos (frame.rs:278-297).", *_TOPIC, _QOS, _TRAILING
)
BlipMQSubscribeV2 = _body(
    "SUBSCRIBE v2", "A subscription, version 2.",
    *_TOPIC, *_FLAGS, If(Text("group", prefix=2, strict=True), when="qos_flags", has=0x80),
    If(U64("from_offset"), when="qos_flags", has=0x40), _TRAILING, like=BlipMQSubscribe,
)  # fmt: skip
BlipMQAck = _body(
    "ACK",
    "From the server: HELLO, AUTH (0) or SUBSCRIBE (the new id) succeeded. From the client: delivery processed.",
    U64("subscription_id"),
)
BlipMQNack = _body(
    "NACK", "An error; the id is the offending frame's.",
    U16("error_code"), U16("message_len"), Text("error_text", length="message_len", strict=True),
)  # fmt: skip
BlipMQPing = _body("PING", "Are you there; the server ignores a payload (server.rs:155-162).", _TRAILING)
BlipMQPong = _body("PONG", "The answer to PING.", _TRAILING)
BlipMQPoll = _body("POLL", "Asks for the next message of a subscription.", U64("subscription_id"))
BlipMQDeliver = _body("DELIVER", "A message pushed by a version 2 server.", _QOS, U64("delivery_tag"), *_TOPIC, _BODY)


_COMMON = {
    FrameType.HELLO: (BlipMQHello,),
    FrameType.AUTH: (BlipMQAuth,),
    FrameType.ACK: (BlipMQAck,),
    FrameType.NACK: (BlipMQNack,),
    FrameType.PING: (BlipMQPing,),
    FrameType.PONG: (BlipMQPong,),
    FrameType.POLL: (BlipMQPoll,),
}
# Version 1 has no type 0x0A: such a frame is unknown there.
_V1 = _COMMON | {FrameType.PUBLISH: (BlipMQPublish,), FrameType.SUBSCRIBE: (BlipMQSubscribe,)}
# Version 2, or version unknown: the flag bits apply if the whole payload then parses, else the byte stands as it is.
_V2 = _COMMON | {
    FrameType.PUBLISH: (BlipMQPublishV2, BlipMQPublish),
    FrameType.SUBSCRIBE: (BlipMQSubscribeV2, BlipMQSubscribe),
    FrameType.DELIVER: (BlipMQDeliver,),
}
_SERVER = _V1 | {FrameType.DELIVER: (BlipMQDeliver,)}


def _layout(name: str, direction: Direction, bodies: Mapping[Any, Any]) -> Layout:
    return Layout(
        name, direction, {int(t): classes for t, classes in bodies.items()}, header=BlipMQ, op="frame_type",
        names={t: text for t, text in NAMES.items() if t in bodies}, on_bad="stop",
    )  # fmt: skip


class _Side(NamedTuple):
    """What one side sends: how many frames in a row, whether only a client or rather a server says them."""

    frames: int
    client: bool
    server: bool


_FROM_CLIENT = (FrameType.HELLO, FrameType.AUTH, FrameType.SUBSCRIBE, FrameType.PING, FrameType.POLL)
_FROM_SERVER = (FrameType.NACK, FrameType.PONG, FrameType.DELIVER)


def _side(opening: Opening, direction: Direction) -> _Side:
    """The frames of a side that follow each other, and who says such (notes, Frame types and directions)."""
    data, _, ended = opening.side(direction)
    at = opening.find_run(direction, direction, 2 if opening.on_port else IN_A_ROW)
    if at is None and ended and not opening.on_port:
        # A lone frame, or one with another that is cut; strangers end in a chance frame now and then.
        at = opening.find_run(direction, direction, 2)
        at = at if at is not None and at <= len(data) - at else None
    frames, client, server = 0, False, False
    while at is not None and at + HEADER_BYTES <= len(data) and frames < FRAMES_LOOKED_AT:
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4]
        # A PONG is empty; the client's of 2025, which sent protobuf, begin with the same byte and are not.
        if not 9 <= length <= MAX_FRAME_SIZE or kind not in NAMES or (kind == FrameType.PONG and length > 9):
            break
        frames += 1
        client = client or kind in _FROM_CLIENT
        succeeded = kind == FrameType.ACK and data[at + 13 : at + 21] == bytes(8)
        server = server or succeeded or kind in _FROM_SERVER
        at += 4 + length
    return _Side(frames, client, server)


_HELLO = Claim(Verdict.YES, "c2s", "s2c")


def claims(opening: Opening) -> Claim:
    """HELLO alone on the port is enough; elsewhere the server's answer confirms (notes, Heuristic signature)."""
    client, server = opening.c2s, opening.s2c
    both = opening.c2s_start and opening.s2c_start
    hello = client[:5] == b"\0\0\0\x0b\x01" and len(client) >= 15
    if opening.c2s_start and hello and client[13:15] in (b"\0\1", b"\0\2"):
        return _HELLO
    answered = (
        (server[:5] == b"\0\0\0\x11\x05" and server[13:21] == bytes(8))
        or (server[4:5] == b"\x06" and len(server) >= 17 and server[:2] == b"\0\0")
    ) and server[5:13] == client[5:13]
    if both and len(client) >= HEADER_BYTES and answered:
        return Claim(Verdict.YES, "c2s", "s2c")
    if opening.c2s_start and hello:
        return Claim(Verdict.LIKELY, "c2s", "s2c")
    plausible = client[:1] in (b"\0", b"\1", b"") and server[:1] in (b"\0", b"\1", b"")
    if both and not plausible:
        return Claim(Verdict.NO)
    if both and not opening.decode_as and len(client) >= HEADER_BYTES and len(server) >= ACK_BYTES:
        return Claim(Verdict.NO)  # the first frame is answered whatever it is, and under its id
    return _late_claim(opening)


def _late_claim(opening: Opening) -> Claim:
    """What frames in a row say; where no SYN tells who is the client, the types do."""
    one, two = _side(opening, "c2s"), _side(opening, "s2c")
    frames, ended = one.frames + two.frames, opening.c2s_ended and opening.s2c_ended
    if not frames or (frames < IN_A_ROW and not opening.on_port and not ended):
        return Claim(Verdict.NO if ended else Verdict.WAIT)
    verdict = Verdict.YES if frames >= IN_A_ROW else Verdict.LIKELY
    if not (opening.c2s_start or opening.s2c_start):
        told, not_so = one.client, two.client
        if told == not_so and verdict is Verdict.YES and not opening.on_port:
            told, not_so = two.server and not one.server, one.server and not two.server
        if not_so and not told:
            return Claim(Verdict.NO)
        if not told and not opening.on_port:
            if not ended:
                return Claim(Verdict.WAIT)
            # Only a publisher gets no answer at all.
            verdict = verdict if opening.c2s else Verdict.LIKELY
    return Claim(verdict, "c2s", "s2c")


def observe(seen: Observation) -> None:
    """The version of the HELLO that the server acknowledged, else of the last one sent."""
    opened = np.array([not evidence.is_fixed for evidence in seen.evidence], np.bool_)
    told = opened[seen.of] & np.where(seen.from_client, seen.op == FrameType.HELLO, seen.op == FrameType.ACK)
    rows = seen.rows[told]
    columns = [
        column[rows].tolist()
        for name in ("correlation_id", "subscription_id", "protocol_version")
        for column in seen.raw.numbers(name)
    ]
    # As lists: connections are many, and each has but few such rows.
    for of, asked, number, _, subscription, acknowledges, version, says_version in zip(
        seen.of[told].tolist(), seen.from_client[told].tolist(), *columns, strict=True
    ):
        evidence = seen.evidence[of]
        shown = evidence.shown
        if evidence.is_fixed:
            continue
        if asked and says_version:
            shown["last"] = shown.setdefault("hellos", {})[number] = version
            evidence.is_fixed = number in shown.get("early", ())
        elif not asked and acknowledges and subscription == 0:
            hello = shown.get("hellos", {}).get(number)
            if hello is not None:
                shown.clear()  # nothing else is asked any more, and connections are many
                shown["last"] = hello
                evidence.is_fixed = True
            elif len(shown.setdefault("early", set())) < EARLY_ACKS:
                # The other direction may be a search behind: the HELLO is yet to come.
                shown["early"].add(number)


_DIALECTS = {1: "v1", 2: "v2"}


def _dialect(evidence: Evidence) -> str:
    return _DIALECTS.get(evidence.shown.get("last", 0), "unknown")


def select_layout(evidence: Evidence, layout: str) -> str:
    """Version 1 takes the qos byte whole and has no DELIVER."""
    return f"{layout[:3]}_v1" if _dialect(evidence) == "v1" else layout


_FACTS = {dialect: ConnectionFacts(dialect=dialect) for dialect in (*_DIALECTS.values(), "unknown")}


def resolve(evidence: Evidence) -> ConnectionFacts:
    """The dialect of a connection."""
    return _FACTS[_dialect(evidence)]


_REPLIES = tuple(t.name for t in (FrameType.ACK, FrameType.PONG, FrameType.PUBLISH))


def envelope(table: pa.Table) -> dict[str, pa.Array]:
    """A NACK is an error, what else answers a request is ok; DELIVER comes unasked."""
    from_server = is_in(table["direction"], "s2c")
    replies, refused = is_in(table["op"], *_REPLIES), is_in(table["op"], FrameType.NACK.name)
    return {"status": case_when({"ok": from_server & replies, "error": from_server & refused})}


_ANSWERED_BY = {
    FrameType.HELLO: FrameType.ACK,
    FrameType.AUTH: FrameType.ACK,
    FrameType.SUBSCRIBE: FrameType.ACK,
    FrameType.PING: FrameType.PONG,
    FrameType.POLL: FrameType.PUBLISH,
}


def answers(reply: Any, request: Any) -> bool:
    """Whether a frame may answer another: an answer has its id, but a delivery with QoS 1 has its tag there."""
    if reply.frame_type == FrameType.PUBLISH and request.frame_type == FrameType.POLL and reply.column("qos") == 1:
        return True
    fits = reply.frame_type in (_ANSWERED_BY.get(request.frame_type), FrameType.NACK)
    return bool(fits and reply.correlation_id == request.correlation_id)


PROTOCOL = MessageQueue(
    name="blipmq",
    title="BlipMQ",
    ports=(5555,),
    dialects=("v1", "v2", "unknown"),
    layouts=(
        _layout("c2s", "c2s", _V2),
        _layout("c2s_v1", "c2s", _V1),
        _layout("s2c", "s2c", _SERVER),
        _layout("s2c_v1", "s2c", _V1),
    ),
    claims=claims,
    spare={"trailing_bytes": HEADER_BYTES},  # fewer are no frame that a wrong length has swallowed
    recognised="HELLO of version 1 or 2, or a first frame answered under its id, or three frames in a row",
    envelope=Envelope(
        destination="topic",
        group_name="group",
        correlation_id="correlation_id",
        body="body",
        error_code="error_code",
        error_text="error_text",
        derive=envelope,
        derives=("status",),
    ),
    evidence=EvidenceRule(frozenset({FrameType.HELLO, FrameType.ACK}), observe, resolve, select_layout),
    # What answers what depends on the state of the connection.
    rule=CorrelationRule(
        asks={},
        columns=(
            "correlation_id",
            "qos",
            "subscription_id",
            "error_text",
            "protocol_version",
            "partition_key",
            "body",
        ),
        printed=("body",),
        lane=correlation.lane,
        deliveries=DeliveryRule(
            "body_hash", correlation.keys, correlation.body_hash, lifetime_ns=correlation.LIFETIME_NS
        ),
        answers=answers,
    ),
    roles=Roles(
        publish=frozenset({NAMES[FrameType.PUBLISH]}),
        deliver=frozenset({NAMES[FrameType.PUBLISH], NAMES[FrameType.DELIVER]}),
        poll=frozenset({NAMES[FrameType.POLL]}),
        subscribe=frozenset({NAMES[FrameType.SUBSCRIBE]}),
        ack=frozenset({NAMES[FrameType.ACK]}),
        login=frozenset({NAMES[FrameType.AUTH]}),
        heartbeat=frozenset({NAMES[FrameType.PING]}),
        denied=frozenset({"invalid API key"}),
        outdated=frozenset({"unsupported protocol version"}),
    ),
)
