"""BlipMQ, protocol versions 1 and 2.

Source: docs/PROTOCOL.md of bravo1goingdark/blipmq at b8159bf; net/src/frame.rs at 1d563c3 (version 1), 7a553cb
(version 2). Port 5555, all integers big-endian, a frame has at most 16 MiB after its length.

The version is that of the HELLO answered by ACK; it decides whether the high bits of a qos byte are flags.
"""

import re
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
    FirstBytes,
    Layout,
    MessageQueue,
    Observation,
    Opening,
    Verdict,
)
from mqpcap.schema.requests import Acknowledgement, CorrelationRule, DeliveryRule, Roles, body_hash

MAX_FRAME_SIZE = 16 * 1024 * 1024  # frame.rs: the server closes on more
HEADER_BYTES = 13
ACK_BYTES = 21
MIN_CONSECUTIVE = 3
"""Frames in a row that prove a connection on any port."""
FRAMES_LOOKED_AT = 256
"""Frames of a side that are evidence."""
FITS_PER_MISFIT = 8
"""Fitting frames for each misfit, in a side that is evidence off the port."""
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


def _body(title: str, about: str, *fields: Kind, **options: Any) -> type[Message]:
    """The class of a body: of version 1 or of both, where the title does not say version 2."""
    name = f"BlipMQ{title.title().replace(' ', '')}"
    return message_class(__name__, name, f"BlipMQ {title}", about, *fields, **options)


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


class _SideEvidence(NamedTuple):
    """The evidence that the frames of a side give.

    frames       frames whose length and text fit their type exactly
    texts        those of them with a text: a topic, a key, an error
    neutral      frames that decode, but prove nothing
    misfits      frames whose length contradicts their type, or bytes where a frame should begin
    decoded      bytes in frames without a misfit
    client, server   whether the side sends what only a client, or only a server sends
    named        type and id of each frame that decodes
    """

    frames: int = 0
    texts: int = 0
    neutral: int = 0
    misfits: int = 0
    decoded: int = 0
    client: bool = False
    server: bool = False
    named: frozenset[tuple[int, bytes]] = frozenset()

    @property
    def is_sound(self) -> bool:
        """Whether nearly all frames fit, and none is the other side's."""
        return self.frames + self.neutral >= FITS_PER_MISFIT * self.misfits and not (self.client and self.server)

    @property
    def is_certain(self) -> bool:
        """Whether the side alone proves the connection, whatever the other side sends."""
        return (
            self.frames >= MIN_CONSECUTIVE
            and self.texts >= 2
            and not self.misfits
            and not (self.client and self.server)
        )


_FROM_CLIENT = (FrameType.HELLO, FrameType.AUTH, FrameType.SUBSCRIBE, FrameType.PING, FrameType.POLL)
_FROM_SERVER = (FrameType.NACK, FrameType.PONG, FrameType.DELIVER)
_PAYLOAD_BYTES = {FrameType.HELLO: 2, FrameType.ACK: 8, FrameType.POLL: 8, FrameType.PONG: 0}
"""Payload lengths of the types that have only one."""
_LEAST_PAYLOAD = {
    FrameType.AUTH: 2,
    FrameType.NACK: 4,
    FrameType.PUBLISH: 3,
    FrameType.SUBSCRIBE: 3,
    FrameType.DELIVER: 11,
}


class _Fit(IntEnum):
    """How a frame fits its type."""

    MISFIT = 0
    NEUTRAL = 1
    """It decodes, but so would much else: an empty topic, a PING with a payload."""
    EXACT = 2


def _text_fit(data: bytes, is_exact: bool = True) -> _Fit:
    """How the text of a frame fits, given all its bytes."""
    text = data.decode("utf-8", "replace")
    return _Fit.EXACT if is_exact and text and text.isprintable() and "\ufffd" not in text else _Fit.NEUTRAL


def _topic_fit(payload: bytes, offset: int) -> tuple[_Fit, int]:
    """How the topic at an offset fits, and where it ends."""
    end = offset + 2 + int.from_bytes(payload[offset : offset + 2], "big")
    if end > len(payload):
        return _Fit.MISFIT, end
    return _text_fit(payload[offset + 2 : end]), end


def _subscribe_fit(payload: bytes) -> _Fit:
    """The topic, then the qos; in version 2 a group and an offset follow if the qos has their bits."""
    fit, end = _topic_fit(payload, 0)
    if fit is _Fit.MISFIT or end >= len(payload):
        return _Fit.MISFIT
    flags, end = payload[end], end + 1
    optional = end + (2 + int.from_bytes(payload[end : end + 2], "big") if flags & 0x80 else 0) + (flags & 0x40) // 8
    return fit if len(payload) in (end, optional) else _Fit.NEUTRAL


def _publish_fit(payload: bytes) -> _Fit:
    """The topic after the qos byte, or after the fields of version 2 that its bits announce."""
    flags, offset = payload[0], 1
    offset += 4 if flags & 0x80 else 0
    offset += 2 + int.from_bytes(payload[offset : offset + 2], "big") if flags & 0x40 else 0
    fit = max(_topic_fit(payload, 1)[0], _topic_fit(payload, offset)[0])
    return fit if flags & 0x3C == 0 else min(fit, _Fit.NEUTRAL)


def _fit(kind: int, payload: bytes) -> _Fit:
    """How the payload of a frame fits its type."""
    if kind in _PAYLOAD_BYTES:
        if len(payload) != _PAYLOAD_BYTES[FrameType(kind)]:
            return _Fit.MISFIT
        return _Fit.EXACT if kind != FrameType.HELLO or payload in (b"\0\1", b"\0\2") else _Fit.NEUTRAL
    if kind == FrameType.PING:
        return _Fit.NEUTRAL if payload else _Fit.EXACT
    if kind not in _LEAST_PAYLOAD or len(payload) < _LEAST_PAYLOAD[FrameType(kind)]:
        return _Fit.MISFIT
    if kind == FrameType.PUBLISH:
        return _publish_fit(payload)
    if kind == FrameType.SUBSCRIBE:
        return _subscribe_fit(payload)
    if kind == FrameType.DELIVER:
        return _topic_fit(payload, 9)[0]
    start = 2 if kind == FrameType.AUTH else 4
    length = int.from_bytes(payload[start - 2 : start], "big")
    return _text_fit(payload[start:]) if length == len(payload) - start else _Fit.MISFIT


def _cut_fits(kind: int, payload_len: int) -> bool:
    """Whether a frame that is not all here may be one, by its length."""
    if kind in _PAYLOAD_BYTES:
        return payload_len == _PAYLOAD_BYTES[FrameType(kind)]
    return payload_len >= _LEAST_PAYLOAD.get(FrameType(kind), 0)


def _chain(data: bytes, offset: int) -> _SideEvidence:
    """The evidence of the frames that follow each other from ``offset`` on, FRAMES_LOOKED_AT at most."""
    start, fits, texts, client, server = offset, [0, 0, 0], 0, False, False
    named: set[tuple[int, bytes]] = set()
    for _ in range(FRAMES_LOOKED_AT):
        if offset + HEADER_BYTES > len(data):
            break
        length, kind, end = int.from_bytes(data[offset : offset + 4], "big"), data[offset + 4], offset + 4
        if not 9 <= length <= MAX_FRAME_SIZE or kind not in NAMES:
            fits[_Fit.MISFIT] += 1
            break
        end += length
        if end > len(data):
            fits[_Fit.MISFIT] += not _cut_fits(kind, length - 9)
            break
        fit = _fit(kind, data[offset + HEADER_BYTES : end])
        fits[fit] += 1
        texts += fit is _Fit.EXACT and kind in _LEAST_PAYLOAD
        if fit is not _Fit.MISFIT:
            named.add((kind, data[offset + 5 : offset + HEADER_BYTES]))
        succeeded = kind == FrameType.ACK and data[offset + HEADER_BYTES : end] == bytes(8)
        client, server = client or kind in _FROM_CLIENT, server or succeeded or kind in _FROM_SERVER
        offset = end
    counts = fits[_Fit.EXACT], texts, fits[_Fit.NEUTRAL], fits[_Fit.MISFIT]
    return _SideEvidence(*counts, offset - start, client, server, frozenset(named))


def _side_evidence(opening: Opening, direction: Direction) -> _SideEvidence:
    """The frames of a side that follow each other, from its first byte or from where a search finds some."""
    data, _, ended = opening.side(direction)
    from_start = _chain(data, 0)
    if not from_start.misfits and from_start.frames >= (2 if opening.on_port and not ended else 1):
        return from_start
    offset = opening.find_run(direction, direction, 2 if opening.on_port else MIN_CONSECUTIVE)
    if offset is None and ended and not opening.on_port:
        offset = opening.find_run(direction, direction, 2)
    if offset is None:
        return from_start if ended and from_start.frames > from_start.misfits else _SideEvidence()
    chain = _chain(data, offset)
    # A late start lies inside one message: less is skipped than is read, or many frames follow.
    is_near = offset <= chain.decoded or chain.frames >= FITS_PER_MISFIT
    return chain if is_near or not ended else _SideEvidence(misfits=chain.frames + 1)


_HELLO = Claim(Verdict.YES, "c2s", "s2c", opens=True)
_OPENINGS = (
    FirstBytes(b"\0\0\0\x0b\x01"),
    # Any other first frame is refused (frame.rs limits its length to 16 MiB).
    FirstBytes(
        bytes(HEADER_BYTES),
        b"\xfe" + bytes(HEADER_BYTES - 1),
        ((b"\0\0\0\0\x06" + bytes(8), bytes(4) + b"\xff" + bytes(8)),),
    ),
)


def first_claim(client: bytes) -> Claim | None:
    """A HELLO with version 1 or 2 decides."""
    return _HELLO if client[:5] == b"\0\0\0\x0b\x01" and client[13:15] in (b"\0\1", b"\0\2") else None


def claims(opening: Opening) -> Claim:
    """A HELLO with version 1 or 2 decides; any other first frame needs an answer of the server under its id."""
    client, server = opening.c2s, opening.s2c
    both = opening.c2s_start and opening.s2c_start
    hello = client[:5] == b"\0\0\0\x0b\x01" and len(client) >= 15
    # Only a HELLO is accepted as the first frame.
    accepted = hello and server[:5] == b"\0\0\0\x11\x05" and server[13:21] == bytes(8)
    is_first = opening.c2s_start or opening.on_port or (accepted and server[5:13] == client[5:13])
    if is_first and (claim := first_claim(client)):
        return claim
    refused = server[4:5] == b"\x06" and len(server) >= 17 and server[:2] == b"\0\0"
    may_answer = server[4:5] in (b"\x05"[:hello], b"\x06") and server[5:13] == client[5:13]
    if both and len(client) >= HEADER_BYTES and may_answer and (accepted or refused):
        return Claim(Verdict.YES, "c2s", "s2c")
    # The first frame is answered whatever it is, and under its id.
    is_unanswered = len(server) >= (ACK_BYTES if may_answer else HEADER_BYTES)
    if both and not opening.decode_as and len(client) >= HEADER_BYTES and is_unanswered:
        return Claim(Verdict.NO)
    if opening.c2s_start and hello:  # of a version that the server refuses, or of another protocol
        return Claim(Verdict.LIKELY, "c2s", "s2c") if opening.s2c_ended else Claim(Verdict.WAIT)
    plausible = client[:1] in (b"\0", b"\1", b"") and server[:1] in (b"\0", b"\1", b"")
    if both and not plausible:
        return Claim(Verdict.NO)
    return _late_claim(opening)


def _late_claim(opening: Opening) -> Claim:
    """What frames in a row prove; where no SYN shows who is the client, the types do."""
    client_side, server_side = _side_evidence(opening, "c2s"), _side_evidence(opening, "s2c")
    frames, ended = client_side.frames + server_side.frames, opening.c2s_ended and opening.s2c_ended
    if (
        ended
        and not frames
        and client_side.neutral + server_side.neutral
        and not client_side.misfits + server_side.misfits
    ):
        return Claim(Verdict.LIKELY, "c2s", "s2c")
    if not frames or (frames < MIN_CONSECUTIVE and not opening.on_port and not ended):
        return Claim(Verdict.NO if ended else Verdict.WAIT)
    verdict = _soundness(opening, client_side, server_side, frames)
    if verdict in (Verdict.NO, Verdict.WAIT):
        return Claim(Verdict.NO if ended else Verdict.WAIT)
    if not (opening.c2s_start or opening.s2c_start):
        client_proved, server_proved = client_side.client, server_side.client
        if client_proved == server_proved and verdict is Verdict.YES:
            client_proved, server_proved = (
                server_side.server and not client_side.server,
                client_side.server and not server_side.server,
            )
        if server_proved and not client_proved:
            return Claim(Verdict.NO)
        if not client_proved and not opening.on_port:
            if not ended:
                return Claim(Verdict.WAIT)
            # Only a publisher gets no answer at all.
            verdict = verdict if opening.c2s else Verdict.LIKELY
    return Claim(verdict, "c2s", "s2c")


def _answer_count(client: _SideEvidence, server: _SideEvidence) -> int:
    """Frames of a server that answer a frame of its client under the same id."""
    kinds = {number: kind for kind, number in client.named}
    return sum(
        number in kinds and kind in (FrameType.NACK, _ANSWERED_BY.get(FrameType(kinds[number])))
        for kind, number in server.named
    )


def _soundness(opening: Opening, client_side: _SideEvidence, server_side: _SideEvidence, frames: int) -> Verdict:
    """How far the frames of both sides prove a connection that is not seen from its start.

    On the port half of the bytes must be in frames. Elsewhere nearly all frames of both sides must fit, and a side with
    bytes but without frames is waited for.
    """
    enough = Verdict.YES if frames >= MIN_CONSECUTIVE else Verdict.LIKELY
    sides = ((client_side, opening.c2s), (server_side, opening.s2c))
    if (
        client_side.is_certain
        or server_side.is_certain
        or (not server_side.misfits and _answer_count(client_side, server_side) >= 2)
    ):
        return enough
    is_sound = client_side.is_sound and server_side.is_sound
    if opening.on_port:
        is_half = 2 * (client_side.decoded + server_side.decoded) >= len(opening.c2s) + len(opening.s2c)
        return enough if is_sound else Verdict.LIKELY if is_half else Verdict.NO
    if not is_sound:
        return Verdict.NO
    if any(len(data) >= 2 * HEADER_BYTES and not side.frames + side.neutral for side, data in sides):
        return Verdict.WAIT
    # A side of frames without a payload is a length, a number and an id: so are many others' messages.
    has_payload = any(side.decoded > HEADER_BYTES * (side.frames + side.neutral) for side, _ in sides)
    return enough if has_payload or (client_side.frames and server_side.frames) else Verdict.LIKELY


def observe(observation: Observation) -> None:
    """The version of the HELLO that the server acknowledged, else of the last one sent."""
    opened = np.array([not evidence.is_final for evidence in observation.evidence], np.bool_)
    is_evidence = opened[observation.connection_index] & np.where(
        observation.from_client, observation.op == FrameType.HELLO, observation.op == FrameType.ACK
    )
    rows = observation.rows[is_evidence]
    columns = [
        column[rows].tolist()
        for name in ("correlation_id", "subscription_id", "protocol_version")
        for column in observation.raw.numbers(name)
    ]
    # As lists: connections are many, and each has but few such rows.
    for connection, asked, number, _, subscription, acknowledges, version, says_version in zip(
        observation.connection_index[is_evidence].tolist(),
        observation.from_client[is_evidence].tolist(),
        *columns,
        strict=True,
    ):
        evidence = observation.evidence[connection]
        state = evidence.state
        if evidence.is_final:
            continue
        if asked and says_version:
            state["last"] = state.setdefault("hellos", {})[number] = version
            evidence.is_final = number in state.get("early", ())
        elif not asked and acknowledges and subscription == 0:
            hello = state.get("hellos", {}).get(number)
            if hello is not None:
                state.clear()  # the version is final; little memory per connection
                state["last"] = hello
                evidence.is_final = True
            elif len(state.setdefault("early", set())) < EARLY_ACKS:
                # The other direction may still be searching for its first frame: the HELLO follows.
                state["early"].add(number)


_DIALECTS = {1: "v1", 2: "v2"}


def _dialect(evidence: Evidence) -> str:
    return _DIALECTS.get(evidence.state.get("last", 0), "unknown")


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


MEANINGS = {
    "correlation_id": "request number, or delivery tag of version 1",
    "protocol_version": "version in HELLO",
    "api_key": "API key; a secret",
    "subscription_id": "subscription; 0 in the ACK of HELLO and AUTH",
    "error_code": "error of a NACK, as a number",
    "error_text": "error of a NACK, as text",
    "trailing_bytes": "bytes after the last field of SUBSCRIBE, PING and PONG",
    "qos_flags": "byte that qos was taken from, version 2",
    "qos": "quality of service",
    "ttl_ms": "time until the message expires, version 2",
    "partition_key": "key that chooses the partition, version 2",
    "topic": "topic",
    "body": "user payload",
    "group": "consumer group, version 2",
    "from_offset": "offset to start from; 0: earliest, version 2",
    "delivery_tag": "tag of a DELIVER, version 2; 0 with qos 0",
}
"""The content of each column of the table."""

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
    first_claim=first_claim,
    spare={"trailing_bytes": HEADER_BYTES},  # fewer are no frame that a wrong length has swallowed
    openings=_OPENINGS,
    recognised="HELLO of version 1 or 2, or a first frame answered under its id, or three frames in a row that fit",
    meanings=MEANINGS,
    details={"body": "body"},
    words={
        "error_text": "|".join(
            [
                *map(re.escape, correlation.TEXTS),
                "unknown subscription or delivery tag",
                "(durable publish failed: |wal_busy: )?(wal overload: wal channel full|wal writer stopped)",
            ]
        )
    },
    acknowledgement=Acknowledgement(
        "correlation_id", tag=("delivery_tag", "correlation_id"), due=("qos", 1), scope="subscription_id"
    ),
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
        columns=("correlation_id", "qos", "subscription_id", "error_text", "protocol_version", "partition_key", "body"),
        fingerprinted=("body",),
        request_group=correlation.request_group,
        deliveries=DeliveryRule("body_hash", correlation.keys, body_hash, lifetime_ns=correlation.LIFETIME_NS),
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
