"""MQTT 3.1, 3.1.1 and 5.0.

Source: OASIS, MQTT Version 5.0 (7 March 2019) and MQTT Version 3.1.1 (29 October 2014); IBM and Eurotech, MQTT V3.1.
Section numbers are those of 5.0. Port 1883, integers big-endian, packets of up to 268,435,455 bytes after the header.

The version is a connection's: the level of its CONNECT, or, without a CONNECT, the first packet that only one version
allows. A packet of 5.0 without properties is mostly a packet of 3.1.1, too. Until the version is known the dialect is
``unknown``, and rows are read as 3.1.1: the property length of a PUBLISH of 5.0 is then part of its body.

Choices, from what programs send. A bridge of mosquitto sets the top bit of the level. A CONNACK without properties
answers a CONNECT of 5.0, too (aedes, FlyMQ). Acknowledgements of 5.0 end anywhere after the packet id. In 3.1 a
SUBSCRIBE, UNSUBSCRIBE or PUBREL may have the DUP flag.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqpcap.arrays import case_when, is_in
from mqpcap.schema.fields import (
    U8,
    U16,
    U32,
    Array,
    Bits,
    Bytes,
    Choice,
    GreedyBytes,
    Group,
    If,
    Kind,
    Length,
    Nested,
    Never,
    Text,
    VarUint,
)
from mqpcap.schema.message import Message, message_class
from mqpcap.schema.protocol import (
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
    Remembered,
    Verdict,
)
from mqpcap.schema.requests import (
    CorrelationRule,
    DeliveryRule,
    Fingerprints,
    Keys,
    RequestRule,
    Roles,
    ServerHabits,
    body_hash,
)
from mqpcap.schema.secrets import MASK

NAMES = dict(enumerate((
    "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE",
    "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
), 1))  # fmt: skip
PROPERTIES = {
    1: "payload_format_indicator", 2: "message_expiry_interval", 3: "content_type", 8: "response_topic",
    9: "correlation_data", 11: "subscription_identifier", 17: "session_expiry_interval",
    18: "assigned_client_identifier", 19: "server_keep_alive", 21: "authentication_method", 22: "authentication_data",
    23: "request_problem_information", 24: "will_delay_interval", 25: "request_response_information",
    26: "response_information", 28: "server_reference", 31: "reason_string", 33: "receive_maximum",
    34: "topic_alias_maximum", 35: "topic_alias", 36: "maximum_qos", 37: "retain_available", 38: "user_property",
    39: "maximum_packet_size", 40: "wildcard_subscription_available", 41: "subscription_identifier_available",
    42: "shared_subscription_available",
}  # fmt: skip
"""Properties by identifier (2.2.2.2)."""
REASONS = {
    0x00: "success", 0x01: "granted QoS 1", 0x02: "granted QoS 2", 0x04: "disconnect with will message",
    0x10: "no matching subscribers", 0x11: "no subscription existed", 0x18: "continue authentication",
    0x19: "re-authenticate", 0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error",
    0x83: "implementation specific error", 0x84: "unsupported protocol version", 0x85: "client identifier not valid",
    0x86: "bad user name or password", 0x87: "not authorized", 0x88: "server unavailable", 0x89: "server busy",
    0x8A: "banned", 0x8B: "server shutting down", 0x8C: "bad authentication method", 0x8D: "keep alive timeout",
    0x8E: "session taken over", 0x8F: "topic filter invalid", 0x90: "topic name invalid",
    0x91: "packet identifier in use", 0x92: "packet identifier not found", 0x93: "receive maximum exceeded",
    0x94: "topic alias invalid", 0x95: "packet too large", 0x96: "message rate too high", 0x97: "quota exceeded",
    0x98: "administrative action", 0x99: "payload format invalid", 0x9A: "retain not supported",
    0x9B: "QoS not supported", 0x9C: "use another server", 0x9D: "server moved",
    0x9E: "shared subscriptions not supported", 0x9F: "connection rate exceeded", 0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported", 0xA2: "wildcard subscriptions not supported",
}  # fmt: skip
"""Reason codes of 5.0 (2.4)."""
RETURNS = (
    "success", "unacceptable protocol version", "identifier rejected", "server unavailable",
    "bad user name or password", "not authorized",
)  # fmt: skip
"""Return codes of a CONNACK of 3.1 and 3.1.1 (3.1.1, table 3.1)."""
TOPIC_ALIAS = 35
LEVELS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


class Mqtt(Message):
    """The fixed header (2.1): the type, its flags, and the remaining length."""

    name = "MQTT"
    fields_desc = [
        U8("first_byte", column=None),
        Bits("packet_type", of="first_byte", mask=15, shift=4, names=NAMES, column=None),
        Bits("flags", of="first_byte", mask=15, column=None),
        Bits("dup", of="first_byte", mask=1, shift=3, column=None),
        Bits("qos", of="first_byte", mask=3, shift=1, column=None),
        Bits("retain", of="first_byte", mask=1, column=None),
        Length("remaining_length", kind=VarUint),
    ]


class MqttProperty(Message):
    """A property (2.2.2): its identifier decides its type."""

    name = "MQTT property"
    fields_desc = [
        VarUint("id", names=PROPERTIES, among=PROPERTIES),
        *Choice("value", by="id", of={
            (1, 23, 25, 36, 37, 40, 41, 42): U8("byte", column="short"),
            (19, 33, 34, 35): U16("two_bytes", column="short"),
            (2, 17, 24, 39): U32("four_bytes", column="long"),
            11: VarUint("subscription_identifier", column="long"),
            (3, 8, 18, 21, 26, 28, 31): Text("text", prefix=2, strict=True),
            9: Bytes("correlation_data", prefix=2),
            22: Bytes("authentication_data", prefix=2, secret=True),
            38: Text("key", prefix=2, strict=True),
        }),
        If(Text("user_value", prefix=2, strict=True, column="text"), when="id", equals=38),
    ]  # fmt: skip


class MqttProperties(Message):
    """Properties, up to the end of their length."""

    name = "MQTT properties"
    fields_desc = [Array("properties", MqttProperty, column="property_items")]


class MqttWillProperties(Message):
    """Properties of a will (3.1.3.2)."""

    name = "MQTT will properties"
    fields_desc = [Array("will_properties", MqttProperty, column="will_property_items")]


def _flags(*allowed: int) -> Kind:
    """Flags that are reserved have these values, else the packet is malformed (2.1.3)."""
    return If(Never("reserved_flags"), when="header.flags", unless=allowed)


def _packet(name: str, about: str, *fields: Kind, flags: tuple[int, ...] = (0,)) -> type[Message]:
    title = name.replace("Mqtt5", "MQTT 5 ", 1).replace("Mqtt", "MQTT ", 1)
    built = {"flags": flags[0]} if flags else {}
    checked = [_flags(*flags)] if flags else []
    return message_class(__name__, name, title, about, *checked, *fields, binding_values=built)


ID = U16("packet_id")
REASON = U8("reason_code", words=REASONS)
HELD = (2, 10)
"""Flags of packets that are acknowledged (2.1.3), of 3.1 with DUP, too."""
BRIDGE = 0x80


def _properties(name: str = "property_part", message: type[Message] = MqttProperties) -> Nested:
    return Nested(name, message, prefix=VarUint)


ENDING = (If(REASON, left=1), If(_properties(), left=1))
"""Reason and properties of 5.0 may be left out (3.4.2.1)."""

MqttConnect = _packet(
    "MqttConnect", "The client opens a session (3.1).",
    Text("protocol_name", b"MQTT", prefix=2, at_most=6, among=(b"MQTT", b"MQIsdp"), column=None),
    U8("level", 4, column=None),
    Bits("protocol_level", of="level", mask=127),
    Bits("bridge", of="level", mask=1, shift=7),
    U8("connect_flags", among=range(0, 256, 2)),  # bit 0 is reserved
    Bits("clean_start", of="connect_flags", mask=1, shift=1),
    Bits("will_qos", of="connect_flags", mask=3, shift=3),
    Bits("will_retain", of="connect_flags", mask=1, shift=5),
    U16("keep_alive", unit="s"),
    If(_properties(), when="protocol_level", equals=5),
    Text("client_id", prefix=2, strict=True),
    *Group(
        If(_properties("will_property_part", MqttWillProperties), when="protocol_level", equals=5),
        Text("will_topic", prefix=2, strict=True),
        Bytes("will_body", prefix=2),
        when="connect_flags", has=4,
    ),
    If(Text("username", prefix=2, strict=True), when="connect_flags", has=0x80),
    If(Bytes("password", prefix=2, secret=True), when="connect_flags", has=0x40),
)  # fmt: skip
_CONNACK = (U8("acknowledge_flags", column=None), Bits("session_present", of="acknowledge_flags", mask=1))
MqttConnack = _packet("MqttConnack", "The server answers a CONNECT.", *_CONNACK, U8("reason_code"))
Mqtt5Connack = _packet(
    "Mqtt5Connack", "The server answers a CONNECT (3.2).", *_CONNACK, REASON, If(_properties(), left=1)
)
_PUBLISH = (
    Bits("dup", of="header.first_byte", mask=1, shift=3),
    Bits("qos", of="header.first_byte", mask=3, shift=1),
    Bits("retain", of="header.first_byte", mask=1),
    If(Never("no_qos"), when="header.qos", equals=3),
    Text("topic", prefix=2, strict=True),
    If(ID, when="header.qos"),
)
BODY = GreedyBytes("body", body=True)
MqttPublish = _packet("MqttPublish", "A message, to or from the server.", *_PUBLISH, BODY, flags=())
Mqtt5Publish = _packet(
    "Mqtt5Publish", "A message, to or from the server (3.3).", *_PUBLISH, _properties(), BODY, flags=()
)


class MqttSubscription(Message):
    """A filter and its options (3.8.3.1); 3.1.1 has the quality of service alone."""

    name = "MQTT subscription"
    fields_desc = [
        Text("filter", prefix=2, at_least=1, strict=True), U8("options", column=None), Bits("qos", of="options", mask=3)
    ]  # fmt: skip


SUBSCRIPTIONS = Array("subscriptions", MqttSubscription, not_empty=True)
FILTERS = Array("filters", Text("filter", prefix=2, at_least=1, strict=True), not_empty=True)
GRANTED = Array("reason_codes", U8("code", among=(0, 1, 2, 0x80)), not_empty=True)
CODES = Array("reason_codes", U8("code"), not_empty=True)
MqttSubscribe = _packet("MqttSubscribe", "The client asks for messages.", ID, SUBSCRIPTIONS, flags=HELD)
Mqtt5Subscribe = _packet(
    "Mqtt5Subscribe", "The client asks for messages (3.8).", ID, _properties(), SUBSCRIPTIONS, flags=HELD
)
MqttSuback = _packet("MqttSuback", "What each filter of a SUBSCRIBE was granted.", ID, GRANTED)
Mqtt5Suback = _packet("Mqtt5Suback", "What each filter of a SUBSCRIBE was granted (3.9).", ID, _properties(), CODES)
MqttUnsubscribe = _packet("MqttUnsubscribe", "The client ends subscriptions.", ID, FILTERS, flags=HELD)
Mqtt5Unsubscribe = _packet(
    "Mqtt5Unsubscribe", "The client ends subscriptions (3.10).", ID, _properties(), FILTERS, flags=HELD
)
MqttAck = _packet("MqttAck", "A packet that only acknowledges, or that only has an id.", ID)
MqttPubrel = _packet("MqttPubrel", "The message of a PUBREC may be delivered.", ID, flags=HELD)
Mqtt5Ack = _packet("Mqtt5Ack", "An acknowledgement (3.4, 3.5, 3.7).", ID, *ENDING)
Mqtt5Pubrel = _packet("Mqtt5Pubrel", "The message of a PUBREC may be delivered (3.6).", ID, *ENDING, flags=HELD)
Mqtt5Unsuback = _packet("Mqtt5Unsuback", "What each filter of an UNSUBSCRIBE was (3.11).", ID, _properties(), CODES)
MqttPingreq = _packet("MqttPingreq", "A client asks whether the server is there (3.12).")
MqttPingresp = _packet("MqttPingresp", "It is (3.13).")
MqttDisconnect = _packet("MqttDisconnect", "The last packet of a client of 3.1 or 3.1.1 (3.14).")
Mqtt5Ending = _packet("Mqtt5Ending", "DISCONNECT (3.14) and AUTH (3.15).", *ENDING)

_BOTH = {3: MqttPublish, 4: MqttAck, 5: MqttAck, 6: MqttPubrel, 7: MqttAck, 14: MqttDisconnect}
_BOTH5 = {3: Mqtt5Publish, 4: Mqtt5Ack, 5: Mqtt5Ack, 6: Mqtt5Pubrel, 7: Mqtt5Ack, 14: Mqtt5Ending, 15: Mqtt5Ending}
_V3: Mapping[str, Mapping[int, type[Message]]] = {
    "c2s": _BOTH | {1: MqttConnect, 8: MqttSubscribe, 10: MqttUnsubscribe, 12: MqttPingreq},
    "s2c": _BOTH | {2: MqttConnack, 9: MqttSuback, 11: MqttAck, 13: MqttPingresp},
}
_V5: Mapping[str, Mapping[int, type[Message]]] = {
    "c2s": _BOTH5 | {1: MqttConnect, 8: Mqtt5Subscribe, 10: Mqtt5Unsubscribe, 12: MqttPingreq},
    "s2c": _BOTH5 | {2: Mqtt5Connack, 9: Mqtt5Suback, 11: Mqtt5Unsuback, 13: MqttPingresp},
}


def _layouts(direction: Direction) -> Iterator[Layout]:
    """The packets of a direction while the version is unknown, of 3.1 and 3.1.1, and of 5.0."""
    old, new = _V3[direction], _V5[direction]
    unknown = {op: tuple(dict.fromkeys(x[op] for x in (old, new) if op in x)) for op in sorted({*old, *new})}
    for suffix, bodies in (
        ("", unknown),
        ("_3", {op: (old[op],) for op in old}),
        ("_5", {op: (new[op],) for op in new}),
    ):
        yield Layout(f"{direction}{suffix}", direction, bodies, Mqtt, "packet_type", NAMES)


# -- recognition ------------------------------------------------------------------------------------------

_OPENINGS = (b"\0\4MQTT", b"\0\6MQIsdp")


_FIRST_BYTES = tuple(
    FirstBytes(bytes([value]), bytes([mask]))
    for value, mask in (
        *((x, 0xFF) for x in (0x10, 0x40, 0x50, 0x70, 0xC0, 0xE0, 0xF0)),
        (0x30, 0xF0),
        *((x, 0xF7) for x in (0x62, 0x82, 0xA2)),
    )
)
"""Types that a client sends, with the flags that they must have (2.2.2, and DUP of MQTT 3.1)."""


def _opens(data: bytes) -> bool | None:
    """Whether a side begins with a CONNECT (3.1.2.1); None if more bytes decide."""
    size = next((i + 1 for i, byte in enumerate(data[1:5]) if byte < 0x80), 0)
    if data[:1] not in (b"\x10", b"") or (not size and len(data) >= 5):
        return False
    begin = data[1 + size : 9 + size] if size else b""
    if any(begin.startswith(x) for x in _OPENINGS):
        return True
    return None if any(x.startswith(begin) for x in _OPENINGS) else False


MIN_RUN = 4
"""Packets in a row that show MQTT on a port that is not its own."""


def claims(opening: Opening) -> Claim:
    """A CONNECT as the first packet decides, elsewhere packets in a row on both sides."""
    ended = opening.c2s_ended and opening.s2c_ended
    opens = _opens(opening.c2s)
    if opens:
        return Claim(Verdict.YES, "c2s", "s2c", opens=True)
    if opening.c2s_start:
        if opens is None and not opening.c2s_ended:
            return Claim(Verdict.WAIT)
        if not opening.on_port:
            # A server that is known may refuse it.
            fits_alone = opening.find_run("c2s", "c2s", 1) == 0
            return Claim(Verdict.NO if not fits_alone else Verdict.LIKELY if ended else Verdict.WAIT, "c2s", "s2c")
    if all(opening.find_run(d, d, MIN_RUN) is not None for d in DIRECTIONS):
        # Most packets go both ways: then either side is claimed as the client, and the server or the ports decide.
        return Claim(Verdict.YES, "c2s", "s2c")
    run = 2 if opening.on_port else MIN_RUN
    fits = any(opening.find_run(d, d, run) is not None for d in DIRECTIONS)
    if opening.on_port and fits:
        return Claim(Verdict.LIKELY, "c2s", "s2c")
    return Claim(Verdict.LIKELY if fits else Verdict.NO if ended else Verdict.WAIT, "c2s", "s2c")


# -- what a connection shows ------------------------------------------------------------------------------


def observe(observation: Observation) -> None:
    """The level and the client of a CONNECT, else the first packet that only one version allows."""
    fits = {suffix: observation.fits(suffix) for suffix in ("_3", "_5")}
    columns = ("protocol_level", "client_id", "property_items")
    for row, (connection, direction, _, _, (level, client, items)) in enumerate(observation.each(*columns)):
        if connection.is_final:
            continue
        state = connection.state
        if level is not None:
            state["level"], state["client"] = level, client
        elif direction == "s2c" and "level" in state:
            state["client"] = next((x["text"] for x in items or () if x["id"] == 18), "")
        elif "level" not in state and fits["_3"][row] != fits["_5"][row]:
            state["level"] = 5 if fits["_5"][row] else 4
        # A client without a name gets it from the server.
        connection.is_final = "level" in state and (state["level"] != 5 or level is None or client != "")


def select_layout(evidence: Evidence, layout: str) -> str:
    """The layout of the connection's version."""
    level = evidence.state.get("level")
    return layout if level is None else f"{layout[:3]}_5" if level == 5 else f"{layout[:3]}_3"


def resolve(evidence: Evidence) -> ConnectionFacts:
    """The version and the client."""
    level = evidence.state.get("level")
    dialect = "unknown" if level is None else LEVELS.get(level, "3.1.1")
    return ConnectionFacts(dialect=dialect, client_name=evidence.state.get("client") or None)


# -- columns ----------------------------------------------------------------------------------------------


def derive(raw: Raw) -> Mapping[str, pa.Array]:
    """Properties with their names and their values as text, and the first filter, which stands for all of them."""
    items = raw.array("property_items")
    subscriptions, filters = raw.array("subscriptions"), raw.array("filters")
    return {
        "properties": _with_names(items),
        "will_properties": _with_names(raw.array("will_property_items")),
        "subscription_identifier": _first(items, "long", 11),
        "first_filter": pc.coalesce(_first(subscriptions, "filter"), pc.list_element(_not_empty(filters), 0)),
    }


def _not_empty(lists: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(pc.list_value_length(lists), 0), lists, pa.scalar(None, lists.type))


def _first(lists: pa.Array, name: str, identifier: int | None = None) -> pa.Array:
    """By row the first value of a field of a list, of the items with an identifier."""
    items, rows = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
    kept = np.ones(len(rows), np.bool_)
    if identifier is not None:
        kept = pc.equal(items.field("id"), identifier).to_numpy(zero_copy_only=False)
    first_rows, places = np.unique(rows[kept], return_index=True)
    index, present = np.zeros(len(lists), np.int64), np.zeros(len(lists), np.bool_)
    index[first_rows], present[first_rows] = np.flatnonzero(kept)[places], True
    return items.field(name).take(pa.array(index, mask=~present))


def _with_names(lists: pa.Array) -> pa.Array:
    """Properties as (id, name, value); authentication data is masked."""
    if lists.null_count == len(lists):
        return pa.nulls(len(lists), PROPERTY_LIST)
    items = lists.values
    ids = items.field("id").cast(pa.int32())
    names = pa.array(PROPERTIES.values()).take(pc.index_in(ids, pa.array(PROPERTIES, pa.int32())))
    data = pa.array([None if x is None else x.hex() for x in items.field("correlation_data").to_pylist()], pa.string())
    text = pc.coalesce(pc.binary_join_element_wise(items.field("key"), items.field("text"), "="), items.field("text"))
    numbers = (items.field(name).cast(pa.string()) for name in ("short", "long"))
    values = pc.if_else(pc.equal(ids, 22), MASK, pc.coalesce(*numbers, text, data))
    named = pa.StructArray.from_arrays([ids, names, values], ["id", "name", "value"])
    return pa.Array.from_buffers(
        PROPERTY_LIST, len(lists), lists.buffers()[:2], lists.null_count, lists.offset, [named.cast(PROPERTY)]
    )


PROPERTY = pa.struct([("id", pa.int32()), ("name", pa.string()), ("value", pa.string())])
PROPERTY_LIST = pa.list_(PROPERTY)


def envelope(table: pa.Table) -> dict[str, pa.Array]:
    """The outcome of acknowledgements: a reason of 0x80 and more is an error, and any return code but zero."""
    code = pc.coalesce(table["reason_code"].combine_chunks(), _worst(table["reason_codes"].combine_chunks()))
    number = pc.fill_null(code, 0).to_numpy(zero_copy_only=False)
    connack = is_in(table["op"], "CONNACK")
    failed = (number >= 0x80) | (connack & (number > 0))
    replies = is_in(table["op"], *_REPLIES) & pc.is_null(table["flaw"]).to_numpy()
    texts = pa.array([*RETURNS, *REASONS.values()])
    old = connack & (number < len(RETURNS))
    place = np.where(old, number, _REASON_PLACES[np.clip(number, 0, 255)])
    return {
        "status": case_when({"ok": replies, "error": failed}),
        "error_code": pc.if_else(failed, pc.cast(code, pa.int64()), None),
        "error_text": texts.take(pa.array(place, mask=~failed | (place < 0))),
    }


def _worst(codes: pa.Array) -> pa.Array:
    """The largest code of each list."""
    items, rows = codes.flatten().to_numpy(), pc.list_parent_indices(codes).to_numpy()
    worst = np.full(len(codes), -1, np.int64)
    np.maximum.at(worst, rows, items)
    return pa.array(worst.astype(np.int32), mask=worst < 0)


_REPLIES = ("CONNACK", "PUBACK", "PUBREC", "PUBCOMP", "SUBACK", "UNSUBACK", "PINGRESP")
_REASON_PLACES = np.full(256, -1, np.int64)
_REASON_PLACES[list(REASONS)] = np.arange(len(RETURNS), len(RETURNS) + len(REASONS))

LIFETIME_NS = 86_400_000_000_000
"""Brokers keep messages for clients that are away, and retained ones for good; after a day none is expected."""


def keys(rows: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """Publishes and deliveries by topic and body, which the broker leaves as they are.

    A PUBLISH with DUP is the same publish again. The topic is what an alias stands for.
    """
    has_topic = is_in(rows["op"], "PUBLISH") & pc.is_valid(rows["destination"]).to_numpy()
    client, again = is_in(rows["direction"], "c2s"), is_in(rows["f.dup"], 1)
    with np.errstate(over="ignore"):
        key = prints(rows["destination"]) * np.int64(1_000_003) + prints(rows["f.body"])
    published, delivered = (np.flatnonzero(has_topic & x) for x in (client & ~again, ~client))
    return Keys(published, key[published]), Keys(delivered, key[delivered])


MEANINGS = {
    "packet_id": "id that a packet and its acknowledgements share; each side has ids of its own",
    "qos": "quality of service of a PUBLISH: 0 at most once, 1 at least once, 2 exactly once",
    "dup": "whether the PUBLISH was sent before",
    "retain": "whether the message is, or was, kept for later subscribers",
    "topic": "topic",
    "body": "user payload",
    "client_id": "client identifier in CONNECT",
    "username": "user name",
    "password": "password; a secret",
    "protocol_level": "version in CONNECT: 3 is 3.1, 4 is 3.1.1, 5 is 5.0; without the bit of a bridge",
    "bridge": "whether the client is a bridge between brokers, as mosquitto says it",
    "connect_flags": "byte that clean_start, will_qos and will_retain were taken from",
    "clean_start": "whether an earlier session of the client ends",
    "keep_alive": "time after which a silent client is gone",
    "will_topic": "topic of the message that the server publishes when the client is gone",
    "will_body": "payload of that message",
    "will_qos": "its quality of service",
    "will_retain": "whether it is kept",
    "will_properties": "its properties",
    "session_present": "whether the server continues an earlier session",
    "reason_code": "reason code, or return code of 3.1.1",
    "reason_codes": "reason of each filter, in order",
    "subscription_identifier": "number of the subscription, the first if there are several",
    "subscriptions": "filters and the quality of service asked for",
    "filters": "filters of an UNSUBSCRIBE",
    "properties": "properties of 5.0; a user property has its key in front of its value",
}
"""The content of each column of the table."""
_HABITS = ServerHabits(opening=frozenset({"CONNECT"}))
"""A second CONNECT ends the connection (3.1.0-2)."""

_REPLIES_TO = {
    "PUBLISH": ("PUBACK", "PUBREC"), "PUBREL": ("PUBCOMP",), "SUBSCRIBE": ("SUBACK",), "UNSUBSCRIBE": ("UNSUBACK",)
}  # fmt: skip
_ASKS = {request: RequestRule("always", frozenset(replies)) for request, replies in _REPLIES_TO.items()}
_AGAIN = {"PUBLISH": ("dup", 1), "PUBREL": None}
"""Packets that are sent again while they wait, in 3.1 and 3.1.1 also without a new connection (3.1.1, 4.4)."""
PROTOCOL = MessageQueue(
    name="mqtt",
    title="MQTT",
    ports=(1883,),
    dialects=("3.1", "3.1.1", "5.0", "unknown"),
    layouts=tuple(layout for direction in DIRECTIONS for layout in _layouts(direction)),
    claims=claims,
    openings=_FIRST_BYTES,
    searches_on_port=True,
    recognised="a CONNECT as the first packet, or packets in a row on both sides",
    meanings=MEANINGS,
    details={"body": "body"},
    envelope=Envelope(
        destination=("resolved_topic", "first_filter"),
        correlation_id="packet_id",
        body="body",
        derive=envelope,
        reads=("reason_code", "reason_codes"),
        derives=("status", "error_code", "error_text"),
    ),
    evidence=EvidenceRule(None, observe, resolve, select_layout, told_by=("protocol_level", "level")),
    rule=CorrelationRule(
        asks=_ASKS,
        one_way=("qos", 0),
        columns=("body", "dup"),
        deliveries=DeliveryRule("body_hash", keys, body_hash, lifetime_ns=LIFETIME_NS, redelivered=("dup", 1)),
        unasked=frozenset({"PUBLISH", "PUBREL", "DISCONNECT", "AUTH", "CONNACK", "PINGRESP"}),
        tie=("packet_id",),
        by_name=True,
        held=True,  # 2.2.1
        again=_AGAIN,
        habits=_HABITS,
        queues=(
            CorrelationRule(  # the server answers nothing before the CONNECT (3.1.4)
                asks={
                    "CONNECT": RequestRule("always", frozenset({"CONNACK"})),
                    "PINGREQ": RequestRule("always", frozenset({"PINGRESP"})),
                },
                habits=_HABITS,
            ),
            CorrelationRule(
                asks={name: _ASKS[name] for name in ("PUBLISH", "PUBREL")},
                one_way=("qos", 0),
                tie=("packet_id",),
                by_name=True,
                held=True,
                again=_AGAIN,
                unasked=frozenset({"PUBLISH", "PUBREL"}),
                habits=_HABITS,
                side="s2c",
            ),
        ),
    ),
    roles=Roles(
        publish=frozenset({"PUBLISH"}),
        deliver=frozenset({"PUBLISH"}),
        subscribe=frozenset({"SUBSCRIBE"}),
        ack=frozenset({"PUBACK", "PUBREC"}),
        login=frozenset({"CONNECT"}),
        heartbeat=frozenset({"PINGREQ"}),
        outdated=frozenset({"unacceptable protocol version", "unsupported protocol version"}),
    ),
    remembered=(Remembered("topic", key="property_items.short", item=("id", TOPIC_ALIAS)),),
    derived=(
        Derived("properties", PROPERTY_LIST),
        Derived("will_properties", PROPERTY_LIST),
        Derived("subscription_identifier", pa.int64()),
        Derived("first_filter", pa.string(), hidden=True),
    ),
    derive=derive,
    hidden=("property_items", "will_property_items"),
)
