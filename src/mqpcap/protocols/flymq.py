"""FlyMQ's binary protocol, header version 1.

Source: docs/protocol.md of firefly-oss/flymq at 60a0b57; internal/protocol/binary.go, protocol.go and
internal/server/server.go at 4df79e0 (1.26.11). Port 9092, all integers big-endian, a request has at most 32 MiB
after its header.

Requests and replies share header and opcodes: the direction decides. The layout of the server's code is tried first.
Then follow the document's layout (dialect ``doc``) where it differs, requests that only an SDK writes (``python``,
``java``), and replies of older servers (``legacy``). A message that fits several layouts is ``go``.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, is_in, low_words, true_mask, with_list_values
from mqpcap.schema.fields import I32, I64, U8, U32, U64, Array, Bool, Bytes, GreedyText, If, Kind, Length, Nested, Text
from mqpcap.schema.message import Message, message_class
from mqpcap.schema.protocol import (
    DIRECTIONS,
    Claim,
    Derived,
    Direction,
    Envelope,
    FirstBytes,
    Layout,
    MessageQueue,
    Opening,
    Raw,
    Variant,
    Verdict,
)
from mqpcap.schema.requests import (
    Acknowledgement,
    CorrelationRule,
    DeliveryRule,
    Fingerprints,
    Keys,
    RequestRule,
    Roles,
    ServerHabits,
)

PORT = 9092
MAX_MESSAGE_SIZE = 33_554_432  # protocol.go:349: readers refuse more; exactly this much is taken
MAX_REPLY_SIZE = 256 << 20  # our limit: the server checks no length before writing (protocol.go:405-423)
MAX_REINJECTED_OFFSET = (1 << 48) - 1  # above it the server reads a message id out of the offset
WRAPPED_FROM = 65_536  # server.go:1651-1754: from this value length on a zero-copy reply carries the stored record
FLAG_BINARY = 0x01
FLAG_COMPRESSED = 0x02
FLAG_WORDS = {1: "BINARY", 2: "COMPRESSED", 3: "BINARY+COMPRESSED"}


class Op(IntEnum):
    """Operations under the document's names; CLUSTER_METADATA and AUDIT_* are the code's (protocol.go)."""

    PRODUCE = 0x01
    CONSUME = 0x02
    CREATE_TOPIC = 0x03
    METADATA = 0x04
    SUBSCRIBE = 0x05
    COMMIT = 0x06
    FETCH = 0x07
    LIST_TOPICS = 0x08
    DELETE_TOPIC = 0x09
    CONSUME_ZERO_COPY = 0x0A
    FETCH_BINARY = 0x0B
    REGISTER_SCHEMA = 0x10
    GET_SCHEMA = 0x11
    LIST_SCHEMAS = 0x12
    VALIDATE_SCHEMA = 0x13
    PRODUCE_WITH_SCHEMA = 0x14
    DELETE_SCHEMA = 0x15
    FETCH_DLQ = 0x20
    REPLAY_DLQ = 0x21
    PURGE_DLQ = 0x22
    PRODUCE_DELAYED = 0x30
    CANCEL_DELAYED = 0x31
    PRODUCE_WITH_TTL = 0x35
    TXN_BEGIN = 0x40
    TXN_COMMIT = 0x41
    TXN_ROLLBACK = 0x42
    TXN_PRODUCE = 0x43
    CLUSTER_JOIN = 0x50
    CLUSTER_LEAVE = 0x51
    CLUSTER_STATUS = 0x52
    CLUSTER_METADATA = 0x53
    GET_OFFSET = 0x60
    RESET_OFFSET = 0x61
    LIST_GROUPS = 0x62
    DESCRIBE_GROUP = 0x63
    GET_LAG = 0x64
    DELETE_GROUP = 0x65
    SEEK_TO_TIMESTAMP = 0x66
    AUTH = 0x70
    AUTH_RESPONSE = 0x71
    WHOAMI = 0x72
    USER_CREATE = 0x73
    USER_DELETE = 0x74
    USER_UPDATE = 0x75
    USER_LIST = 0x76
    USER_GET = 0x77
    ACL_SET = 0x78
    ACL_GET = 0x79
    ACL_DELETE = 0x7A
    ACL_LIST = 0x7B
    PASSWORD_CHANGE = 0x7C
    ROLE_LIST = 0x7D
    AUDIT_QUERY = 0x80
    AUDIT_EXPORT = 0x81
    SDK_AUDIT_QUERY = 0xA0
    SDK_AUDIT_EXPORT = 0xA1
    ERROR = 0xFF


# Python and Java number the audit operations 0xA0 and 0xA1; the name is the same.
NAMES = {int(op): op.name.removeprefix("SDK_") for op in Op}


class FlyMQ(Message):
    """The 8 bytes every message begins with."""

    name = "FlyMQ"
    fields_desc = [
        U8("magic", equals=0xAF, column=None),
        U8("version", equals=1, column=None),
        U8("opcode", names=NAMES),
        U8("flags", FLAG_BINARY, words=FLAG_WORDS),
        Length("length", at_most=MAX_REPLY_SIZE),
    ]


class FlyMQRequest(FlyMQ):
    """The same from a client: the server closes on a length above its limit."""

    name = "FlyMQ request"
    fields_desc = [*FlyMQ.fields_desc[:-1], Length("length", at_most=MAX_MESSAGE_SIZE)]


# -- how the bodies are described
#
# Each call makes a layer class: its operation, its title, its fields in wire order. The name of the class is that of
# the operation, then Reply for a reply, then the variant. Variants of an operation are tried in the order of this file:
# the server's, the SDKs', then the server's with extra bytes, which the server ignores.

Bodies = dict[int, list[Variant | type]]
_REQUESTS: Bodies = {}
_REPLIES: Bodies = {}
_CLIENT_ONLY = frozenset({Op.AUTH})
_SERVER_ONLY = frozenset({Op.AUTH_RESPONSE, Op.ERROR})
_VARIANTS = {
    "doc": ("Doc", " of the document"),
    "legacy": ("Legacy", " of an older server"),
    "python": ("Python", " of the SDKs"),
    "java": ("Java", " of Java"),
}
"""Suffixes for names and titles of a dialect's classes."""


def _part(title: str, about: str, *fields: Kind, name: str | None = None) -> type[Message]:
    """The class of a part of a body, or of a body that several operations share."""
    name = name or title.title().replace(" ", "")
    return message_class(__name__, f"FlyMQ{name}", f"FlyMQ {title}", about, *fields)


def _body(
    bodies: Bodies,
    ops: Op | Sequence[Op],
    about: str,
    *fields: Kind,
    dialect: str | None = None,
    variant: tuple[str, str] = ("", ""),
    name: str | None = None,
    **options: Any,
) -> type[Message]:
    """The class of a body, appended to the variants of its operations. The first operation gives the name."""
    ops = [ops] if isinstance(ops, Op) else ops
    word, title = NAMES[ops[0]].title().replace("_", ""), NAMES[ops[0]]
    if bodies is _REPLIES and ops[0] not in _SERVER_ONLY:
        word, title = f"{word}Reply", f"{title} reply"
    end, words = variant if any(variant) or dialect is None else _VARIANTS[dialect]
    body_class = message_class(
        __name__, name or f"FlyMQ{word}{end}", f"FlyMQ {title}{words}", about, *fields, **options
    )
    for op in ops:
        bodies.setdefault(op, []).append(body_class if dialect is None else Variant(body_class, dialect))
    return body_class


_request = partial(_body, _REQUESTS)
_reply = partial(_body, _REPLIES)
_python, _java = partial(_request, dialect="python"), partial(_request, dialect="java")

_TOPIC = Text("topic", prefix=2)
_GROUP = Text("group_id", prefix=2)
_PARTITION = I32("partition")
_OFFSET = U64("offset")
_MAX_MESSAGES = I32("max_messages", 10)
_KEY = Bytes("key", prefix=4)
_VALUE = Bytes("value", prefix=4, body=True)
_DATA = Bytes("data", prefix=4, body=True)
_SUCCESS, _REFUSED = Bool("success", 1), Bool("success", equals=0)
_MESSAGE = Text("message", prefix=2)
_ERROR = Text("error", prefix=2)
_MODE, _MODE_DOC = Text("mode", prefix=1), Text("mode", prefix=2)  # binary.go:920-922: one byte of length
_TXN_ID = Text("txn_id", prefix=2)
_VERSION = U32("version")
_ID, _NAME, _TYPE = Text("id", prefix=2), Text("name_", prefix=2), Text("type", prefix=1)
_USERNAME = Text("username", prefix=2)
_ROLES, _ROLES_SHORT = (Array("roles", Text("role", prefix=n), prefix=4) for n in (2, 1))
_PERMISSIONS = Array("permissions", Text("permission", prefix=2), prefix=4)
_ALLOWED = (
    Array("allowed_users", Text("user", prefix=2), prefix=4),
    Array("allowed_roles", Text("role", prefix=2), prefix=4),
)
_FORMAT = Text("format", prefix=2)

_EMPTY = _part("empty", "No fields; the server ignores a payload.")
_ONE_BYTE = _part("success", "One byte; failures come as ERROR.", _SUCCESS)
_OUTCOME = _part("outcome", "Whether it was done, and a word or a reason.", _SUCCESS, _MESSAGE)

for _op in Op.LIST_TOPICS, Op.TXN_BEGIN, Op.LIST_GROUPS, Op.USER_LIST, Op.ACL_LIST, Op.ROLE_LIST:
    _request(_op, "Asks without saying more.", like=_EMPTY)
_ONE_BYTE_REPLIES = (Op.CREATE_TOPIC, Op.COMMIT, Op.DELETE_TOPIC, Op.RESET_OFFSET, Op.DELETE_GROUP)
for _op in _ONE_BYTE_REPLIES:
    _reply(_op, "One byte (binary.go:872-877).", like=_ONE_BYTE)
for _op in Op.DELETE_SCHEMA, Op.REPLAY_DLQ, Op.PURGE_DLQ, Op.USER_DELETE, Op.USER_UPDATE, Op.PASSWORD_CHANGE:
    _reply(_op, "Done, or why not; the message of a change to a user is the user's name.", like=_OUTCOME)

# -- messages and topics

_request(Op.PRODUCE, "A message for a topic.", _TOPIC, _KEY, _VALUE, I32("partition", -1))
_STORED_AT = (_TOPIC, _PARTITION, _OFFSET, I64("timestamp_ms", unit="ms"), I32("key_size", -1), I32("value_size"))
_stored = _reply(Op.PRODUCE, "RecordMetadata: where and when the message was stored.", *_STORED_AT)
_consume = _request(Op.CONSUME, "Asks for the message at an offset.", _TOPIC, _PARTITION, _OFFSET)
_consumed = _reply(Op.CONSUME, "The message; a key of no bytes is no key.", _KEY, _VALUE)
_request(Op.CREATE_TOPIC, "Makes a topic.", _TOPIC, I32("partitions", 1))
_reply(Op.CREATE_TOPIC, "With the message that only the document has.", _SUCCESS, _MESSAGE, dialect="doc")
_request(Op.METADATA, "No server handles it; its reply has no layout.", _TOPIC)
_SUBSCRIBE = (_TOPIC, _GROUP, _PARTITION)
_request(Op.SUBSCRIBE, "Joins a group and asks where to start; nothing is pushed.", *_SUBSCRIBE, _MODE)
_request(Op.SUBSCRIBE, "For the server an empty mode and extra bytes.", *_SUBSCRIBE, _MODE_DOC, dialect="doc")
_reply(Op.SUBSCRIBE, "Where to start fetching.", _OFFSET)
_request(Op.COMMIT, "Stores a group's offset.", _TOPIC, _GROUP, _PARTITION, _OFFSET)

_FETCH = (_TOPIC, _PARTITION, _OFFSET, _MAX_MESSAGES)
_FETCHES = (Op.FETCH, Op.FETCH_BINARY)
_fetch = _request(Op.FETCH, "Clients before d40a4ea send no filter.", *_FETCH, If(Text("filter", prefix=2), left=2))
_request(Op.FETCH_BINARY, "FETCH under another number.", like=_fetch)
_request(
    _FETCHES, "A filter that overruns is ignored (binary.go:688-695).", *_FETCH,
    variant=("Unfiltered", " without a filter"),
)  # fmt: skip
_RECORD = _part("record", "A message of a fetch reply: its offset comes first.", _OFFSET, _KEY, _VALUE)
_RECORD_DOC = _part("record of the document", "Its offset comes last.", _KEY, _VALUE, _OFFSET, name="RecordDoc")
_COUNT, _NEXT_OFFSET = U32("message_count"), U64("next_offset")
_RECORDS, _RECORDS_DOC = (Array("records", record, count="message_count") for record in (_RECORD, _RECORD_DOC))
_fetched = _reply(Op.FETCH, "Where to go on comes first (binary.go:713-760).", _COUNT, _NEXT_OFFSET, _RECORDS)
_reply(Op.FETCH_BINARY, "Messages, as in FETCH.", like=_fetched)
_reply(_FETCHES, "In an order that no server writes.", _COUNT, _RECORDS_DOC, _NEXT_OFFSET, dialect="doc")

_reply(Op.LIST_TOPICS, "Names, sorted.", Array("topics", Text("topic", prefix=2), prefix=4))
_request(Op.DELETE_TOPIC, "Removes a topic.", _TOPIC)
_request(Op.CONSUME_ZERO_COPY, "CONSUME for large values.", like=_consume)
_reply(Op.CONSUME_ZERO_COPY, "From 65,536 bytes on the value holds the stored record, see ``derive``.", like=_consumed)
# By content, never by flags: the text form takes whatever the two with lengths do not fill.
_reply(Op.ERROR, "server.go:3341-3347.", I32("code", 1), _MESSAGE, variant=("Coded", " with a code"))
_reply(Op.ERROR, "As the document has it, from servers before 426e750.", _REFUSED, _MESSAGE, dialect="doc")
_reply(Op.ERROR, "An error as bare text: most are.", GreedyText("message"))

# -- schemas

_request(Op.REGISTER_SCHEMA, "Stores a schema under a name.", _NAME, _TYPE, Bytes("schema", prefix=4))
_reply(Op.REGISTER_SCHEMA, "What was stored, and its version.", _NAME, _TYPE, _VERSION)
_request(Op.GET_SCHEMA, "Asks for a version of a schema, 0 for the latest.", _TOPIC, _VERSION)
_DEFINITION = (Text("definition", prefix=4), Text("compatibility", prefix=1))
_reply(Op.GET_SCHEMA, "A schema.", _ID, _TOPIC, _VERSION, _TYPE, *_DEFINITION)
_request(Op.LIST_SCHEMAS, "Asks for the schemas of a topic, or all.", If(Text("topic", prefix=2), left=2))
_request(
    Op.LIST_SCHEMAS, "A topic that cannot be read means all (binary.go:1675-1684).", like=_EMPTY,
    variant=("All", " without a topic"),
)  # fmt: skip
_LISTED = _part("schema", "A schema of a list; the name is its id.", _NAME, _TYPE, _VERSION)
_reply(Op.LIST_SCHEMAS, "Schemas.", Array("schemas", _LISTED, prefix=4))
_request(Op.VALIDATE_SCHEMA, "Asks whether a message fits a schema.", _NAME, _DATA)
_ERRORS = Array("errors", Text("error", prefix=2), prefix=4)
_reply(Op.VALIDATE_SCHEMA, "Whether it fits, and why not.", Bool("valid"), _ERRORS)
_SCHEMA_NAME = Text("schema_name", prefix=2)
_request(Op.PRODUCE_WITH_SCHEMA, "A message to be checked first.", _TOPIC, _SCHEMA_NAME, _DATA)
_python(Op.PRODUCE_WITH_SCHEMA, "The server refuses it (py binary.py:920-933).", _TOPIC, _DATA, _SCHEMA_NAME)
_reply(Op.PRODUCE_WITH_SCHEMA, "RecordMetadata; the partition is always 0.", like=_stored)
_request(Op.DELETE_SCHEMA, "Removes a version of a schema.", _TOPIC, _VERSION)

# -- dead letters, delays, transactions

_request(Op.FETCH_DLQ, "Asks for the dead letters of a topic.", _TOPIC, _MAX_MESSAGES)
_DEAD_LETTER = _part("dead letter", "A message of a reply.", _ID, _DATA, _ERROR, I32("retries"))
_reply(Op.FETCH_DLQ, "Dead letters.", Array("messages", _DEAD_LETTER, prefix=4))
_request(Op.REPLAY_DLQ, "Sends a dead letter again.", _TOPIC, Text("message_id", prefix=2))
_python(
    Op.REPLAY_DLQ, "re_inject_dlq of Python and Java (py client.py:384-403), where the server reads an empty id.",
    _TOPIC, U64("offset", at_most=MAX_REINJECTED_OFFSET), variant=("Python", " by offset"),
)  # fmt: skip
_request(Op.PURGE_DLQ, "Drops the dead letters of a topic.", _TOPIC)
_request(Op.PRODUCE_DELAYED, "A message for later.", _TOPIC, _DATA, I64("delay_ms", unit="ms"))
_reply(Op.PRODUCE_DELAYED, "RecordMetadata; the offset is 0 while it is not known.", like=_stored)
_request(Op.PRODUCE_WITH_TTL, "A message that expires.", _TOPIC, _DATA, I64("ttl_ms", unit="ms"))
_reply(Op.PRODUCE_WITH_TTL, "RecordMetadata.", like=_stored)
_TXN_OUTCOME = _part("transaction outcome", "Whether a step was done.", _TXN_ID, _SUCCESS, name="TxnOutcome")
for _op in Op.TXN_BEGIN, Op.TXN_COMMIT, Op.TXN_ROLLBACK:
    _reply(_op, "A transaction, and whether the step was done.", like=_TXN_OUTCOME)
_request(Op.TXN_COMMIT, "Ends a transaction.", _TXN_ID)
_request(Op.TXN_ROLLBACK, "Takes a transaction back.", _TXN_ID)
_request(Op.TXN_PRODUCE, "A message of a transaction.", _TXN_ID, _TOPIC, _DATA)
_reply(Op.TXN_PRODUCE, "RecordMetadata; the offset is 0 until the commit.", like=_stored)
_PRODUCING = (Op.PRODUCE, Op.PRODUCE_WITH_SCHEMA, Op.PRODUCE_DELAYED, Op.PRODUCE_WITH_TTL, Op.TXN_PRODUCE)
_reply(_PRODUCING, "Servers before 60a0b57; RecordMetadata is longer.", _OFFSET, _PARTITION, dialect="legacy")

# -- cluster and groups

_request(Op.CLUSTER_JOIN, "No server handles it.", Text("peer", prefix=2))
_request(Op.CLUSTER_LEAVE, "Empty; no server handles it.", like=_EMPTY)
_request(Op.CLUSTER_METADATA, "Who leads what; an empty topic or none is all.", If(Text("topic", prefix=2), left=1))
_LEADER = (Text("leader_id", prefix=2), Text("leader_addr", prefix=2), U64("epoch"), Text("state", prefix=2))
_NODES = (Array(name, Text("node_id", prefix=2), prefix=4) for name in ("replicas", "isr"))
_NODES_OF = _part("partition", "A partition and its nodes.", _PARTITION, *_LEADER, *_NODES)
_PARTITIONS = Array("partitions", _NODES_OF, prefix=4)
_PARTITIONS_OF = _part("topic partitions", "A topic and its partitions.", _TOPIC, _PARTITIONS)
_TOPICS = Array("topic_partitions", _PARTITIONS_OF, prefix=4)  # names alone: topics, see ``derive``
_reply(Op.CLUSTER_METADATA, "Topics with their partitions.", Text("cluster_id", prefix=2), _TOPICS)
_request(Op.GET_OFFSET, "Asks for a group's offset.", _TOPIC, _GROUP, _PARTITION)
_reply(Op.GET_OFFSET, "The committed offset.", _OFFSET)
_RESET = (_TOPIC, _GROUP, _PARTITION, _MODE)
_request(Op.RESET_OFFSET, "Moves a group.", *_RESET, If(U64("offset"), when="mode", equals=b"offset"))
_java(Op.RESET_OFFSET, "The offset whatever the mode (BinaryProtocol.java:899-914); it is ignored.", *_RESET, _OFFSET)
_OFFSETS = Array("offsets", _part("group offset", "A committed offset.", _PARTITION, _OFFSET), prefix=4)
_GROUPS = _part("group", "A group; its members are open connections.", _TOPIC, _GROUP, U32("members"), _OFFSETS)
_reply(Op.LIST_GROUPS, "Groups.", Array("groups", _GROUPS, prefix=4))
_request(Op.DESCRIBE_GROUP, "Asks for one group.", _TOPIC, _GROUP)
_reply(Op.DESCRIBE_GROUP, "The group.", like=_GROUPS)
_request(Op.GET_LAG, "Asks how far a group is behind.", _TOPIC, _GROUP, _PARTITION)
_LAG = (U64("current_offset"), U64("committed_offset"), U64("latest_offset"), U64("lag"))
_reply(Op.GET_LAG, "How far a group is behind.", *_LAG)
_request(Op.DELETE_GROUP, "Removes a group.", _TOPIC, _GROUP)
for _op in Op.DESCRIBE_GROUP, Op.DELETE_GROUP:
    _java(_op, "Without a topic (BinaryProtocol.java:971-973, 1001-1003); the server refuses it.", _GROUP)

# -- logins

# The document lists the reply under AUTH; the code sends AUTH_RESPONSE (server.go:2602).
_LOGIN = (Op.AUTH_RESPONSE, Op.AUTH)
_login_reply = partial(_reply, binding_values={"opcode": Op.AUTH_RESPONSE})
_PASSWORD = Text("password", prefix=2, secret=True)
_request(Op.AUTH, "The password, in the clear.", _USERNAME, _PASSWORD)
_login_reply(
    _LOGIN, "It names no user. Tried first: the document's refusal would else give its error as a name.",
    _REFUSED, Text("username", prefix=2, at_most=0), _ROLES_SHORT, _ERROR,
    name="FlyMQAuthRefused", variant=("", ", refused"),
)  # fmt: skip
_login_reply(
    _LOGIN[::-1], "A refused login in the order of the document.", _REFUSED, _ERROR, _USERNAME, _ROLES,
    name="FlyMQAuthRefusedDoc", dialect="doc", variant=("", " of the document, refused"),
)  # fmt: skip
_auth_response = _login_reply(
    _LOGIN, "The error is the last field and the roles have lengths of one byte (binary.go:1364-1403).",
    _SUCCESS, _USERNAME, _ROLES_SHORT, _ERROR,
)  # fmt: skip
_login_reply(
    _LOGIN[::-1], "In an order that no server writes.", _SUCCESS, _ERROR, _USERNAME, _ROLES,
    name="FlyMQAuthResponseDoc", dialect="doc",
)  # fmt: skip
_request(Op.WHOAMI, "Asks without saying more.", name="FlyMQWhoAmI", like=_EMPTY)
_reply(
    Op.WHOAMI, "Who one is; no success means nobody.",
    name="FlyMQWhoAmIReply", like=_auth_response, binding_values={},
)  # fmt: skip

# -- accounts and rights

_ACCOUNT = (_USERNAME, _PASSWORD, Text("old_password", prefix=2, secret=True))
_SOME_ROLES = Array("roles", Text("role", prefix=2), prefix=4, not_empty=True)
_ENABLED = Bool("enabled", 1)
_TIMES = (I64("created_at_s", unit="s"), I64("updated_at_s", unit="s"))
_USER = _part("user", "An account.", _USERNAME, _ROLES, _PERMISSIONS, _ENABLED, *_TIMES)
_create = _request(Op.USER_CREATE, "A new account.", *_ACCOUNT, _ROLES, _ENABLED)
# binary.go:2131: the last byte may be absent, but only after a role.
_short = partial(_request, variant=("Short", " without enabled"))
_create_short = _short(Op.USER_CREATE, "Without the last byte.", *_ACCOUNT, _SOME_ROLES)
_reply(Op.USER_CREATE, "The account.", like=_USER)
_request(Op.USER_DELETE, "Removes an account.", _USERNAME)
_request(Op.USER_UPDATE, "Other roles, or switched on or off.", like=_create)
_short(Op.USER_UPDATE, "Without the last byte.", like=_create_short)
_reply(Op.USER_LIST, "Accounts.", Array("users", _USER, prefix=4))
_request(Op.USER_GET, "Asks for an account.", _USERNAME)
_reply(Op.USER_GET, "The account, with its permissions.", like=_USER)
_request(Op.ACL_SET, "Who may use a topic.", _TOPIC, Bool("public"), *_ALLOWED)
_reply(Op.ACL_SET, "Done.", _SUCCESS, _TOPIC)
_request(Op.ACL_GET, "Asks who may use a topic.", _TOPIC)
_FOUND = (_TOPIC, Bool("exists"), Bool("public"), Bool("default_public"), *_ALLOWED)
_reply(Op.ACL_GET, "Who may use a topic.", *_FOUND)
_request(Op.ACL_DELETE, "Back to the default.", _TOPIC)
_reply(Op.ACL_DELETE, "Done.", _SUCCESS, _TOPIC)
_ACL = _part("ACL", "The rights on a topic.", _TOPIC, Bool("exists", 1), Bool("public"), *_ALLOWED)
_ACLS = Array("acls", _ACL, prefix=4)
_reply(Op.ACL_LIST, "All rights that are stored, and the default.", _ACLS, Bool("default_public"))
_request(Op.PASSWORD_CHANGE, "``password`` is the new one.", like=_create)
_short(Op.PASSWORD_CHANGE, "Without the last byte.", like=_create_short)
_ROLE = _part("role", "A role and what it may.", _NAME, _PERMISSIONS, Text("description", prefix=2))
_ROLE_LIST = Array("role_list", _ROLE, prefix=4)
_reply(Op.ROLE_LIST, "Roles; the names alone are in ``roles``, see ``derive``.", _ROLE_LIST)

# -- the audit log

_PERIOD = (I64("start_time_s", unit="s"), I64("end_time_s", unit="s"))
_EVENT_TYPES, _EVENT_TYPES_JAVA = (Array("event_types", Text("type", prefix=2), prefix=n) for n in (4, 2))
_FILTER = (Text("user", prefix=2), Text("resource", prefix=2), Text("result", prefix=2), Text("search", prefix=2))
# The offset is shown as ``offset``, see derive. Java's limit is a u32, in the column of the server's i32.
_PAGE = (I32("limit"), I32("offset", column="page_offset"))
_query = _request(Op.AUDIT_QUERY, "Times are seconds, 0 is open.", *_PERIOD, _EVENT_TYPES, *_FILTER, *_PAGE)
# Java writes 0xA0 and 0xA1; Python builds the same bytes and fails before it sends them.
_java(
    Op.SDK_AUDIT_QUERY, "FlyMQClient.java:1370-1419; no server handles it.",
    *_PERIOD, _EVENT_TYPES_JAVA, *_FILTER, *_PAGE,
)  # fmt: skip
_DETAIL = _part("detail", "A detail of an event.", Text("key", prefix=2), Text("value", prefix=2))
_EVENT = _part(
    "event", "What happened.", _ID, I64("timestamp_ms", unit="ms"),
    *(Text(x, prefix=2) for x in ("type", "user", "client_ip", "resource", "action", "result", "node_id")),
    Array("details", _DETAIL, prefix=4),
)  # fmt: skip
_ENTRY = _part("event entry", "An event behind its length.", Nested("event", _EVENT, prefix=4))
_EVENTS = Array("events", _ENTRY, prefix=4)
_reply(Op.AUDIT_QUERY, "Events, newest first.", _EVENTS, I32("total_count"), Bool("has_more"))
_QUERY = Nested("query", _query, prefix=4)
_request(Op.AUDIT_EXPORT, "Asks for text; limit and offset of the query are ignored.", _QUERY, _FORMAT)
_java(
    Op.SDK_AUDIT_EXPORT, "FlyMQClient.java:1496-1546; no server handles it.",
    _FORMAT, *_PERIOD, _EVENT_TYPES_JAVA, *_FILTER,
)  # fmt: skip
_reply(Op.AUDIT_EXPORT, "Events as CSV or JSON.", _FORMAT, _DATA)


def _layout(direction: Direction, header: type[Message], bodies: Bodies) -> Layout:
    from_client = direction == "c2s"
    return Layout(
        direction, direction, {int(op): bodies[op] for op in Op if op in bodies}, header=header, op="opcode",
        names=NAMES, dialect="go", extra_column="extra" if from_client else None,
        on_bad="stop" if from_client else "search", packed=("flags", FLAG_COMPRESSED),
    )  # fmt: skip


_MAGIC = b"\xaf\x01"
_HEADER_SIZE = 8
_FLAGS_SEEN = (0, 1, 3)  # flags of the SDKs and the server; the server accepts further flags, which prove less
_EIGHT_BYTE_REPLIES = frozenset({Op.SUBSCRIBE, Op.GET_OFFSET})
_PLAUSIBLE_MS = range(946_684_800_000, 4_102_444_800_000)  # the years 2000 to 2099


def _headers(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Operation and payload of the whole messages that follow each other from ``at`` on."""
    while data[offset : offset + 2] == _MAGIC and len(data) >= offset + _HEADER_SIZE:
        end = offset + _HEADER_SIZE + int.from_bytes(data[offset + 4 : offset + 8], "big")
        if end > len(data):
            return
        yield data[offset + 2], data[offset + _HEADER_SIZE : end]
        offset = end


def _answers_produce(body: bytes) -> bool:
    """Whether a PRODUCE payload that may be a request or a reply is a plausible reply."""
    n = 2 + int.from_bytes(body[:2], "big")
    if len(body) != n + 28:
        return False
    partition, timestamp, key_size, value_size = (
        int.from_bytes(body[n + field_offset : n + field_offset + size], "big", signed=True)
        for field_offset, size in ((0, 4), (12, 8), (20, 4), (24, 4))
    )
    return partition >= 0 and timestamp in _PLAUSIBLE_MS and key_size >= -1 and value_size >= 0


def _speaker(data: bytes, offset: int) -> Direction | None:
    """Which direction the messages from ``offset`` on flow, by messages that only one side sends; None without them."""
    for op, body in _headers(data, offset):
        if op in _CLIENT_ONLY or not body:
            return "c2s"
        if op in _SERVER_ONLY:
            return "s2c"
        if (len(body) == 1 and op in _ONE_BYTE_REPLIES) or (len(body) == 8 and op in _EIGHT_BYTE_REPLIES):
            return "s2c"
        if op == Op.PRODUCE and _answers_produce(body):
            return "s2c"
    return None


def _direction(opening: Opening, side: Direction) -> tuple[Direction | None, bool]:
    """Which direction a side's bytes seem to flow, None if unknown, and whether they are FlyMQ at all.

    Both layouts are searched for. If both fit from the same offset, the message is taken for a request, unless all
    topics are empty. A reply fits a request's layout only with an empty topic, or as the reply to a PRODUCE whose key
    and value lengths add up to 16.
    """
    data, *_ = opening.side(side)
    offset_by_direction = {d: opening.find_run(side, d, 2) for d in DIRECTIONS} if data else {}
    found_offsets = {d: offset for d, offset in offset_by_direction.items() if offset is not None}
    if not found_offsets:
        return None, False
    first_offset = min(found_offsets.values())
    spoken = _speaker(data, first_offset)
    if spoken is not None:
        return spoken, True
    fitting = [d for d, offset in found_offsets.items() if offset == first_offset]
    if len(fitting) == 1:
        return fitting[0], True
    return ("c2s" if any(body[:2] != b"\0\0" for _, body in _headers(data, first_offset)) else "s2c"), True


def _first_bytes_verdict(data: bytes, limit: int, ended: bool) -> Verdict:
    """The verdict on the first bytes of a side whose start was captured."""
    if data[:2] != _MAGIC[: len(data)]:
        return Verdict.NO
    if len(data) < _HEADER_SIZE:
        if not ended:
            return Verdict.WAIT
        return Verdict.LIKELY if len(data) >= len(_MAGIC) else Verdict.NO
    if int.from_bytes(data[4:8], "big") > limit:
        return Verdict.NO
    return Verdict.YES if data[2] in NAMES and data[3] in _FLAGS_SEEN else Verdict.LIKELY


def claims(opening: Opening) -> Claim:
    """Content decides: 9092 is Kafka's port too, and TLS comes there as well.

    The first byte of a connection begins a header, so it decides at once. In connections that began earlier two
    messages in a row must fit, and what only one side sends says who is the client.
    """
    verdict = _verdict(opening)
    return Claim(Verdict.LIKELY if verdict is Verdict.NO and opening.decode_as else verdict, "c2s", "s2c")


def _verdict(opening: Opening) -> Verdict:
    if opening.c2s_start and opening.c2s:
        return _first_bytes_verdict(opening.c2s, MAX_MESSAGE_SIZE, opening.c2s_ended)
    if opening.s2c_start and opening.s2c:
        verdict = _first_bytes_verdict(opening.s2c, MAX_REPLY_SIZE, opening.s2c_ended)
        return Verdict.NO if verdict is Verdict.YES and opening.s2c[4:8] == bytes(4) else verdict  # no reply is empty
    client, client_fits = _direction(opening, "c2s")
    server, server_fits = _direction(opening, "s2c")
    if client == "s2c" or server == "c2s":
        return Verdict.NO
    if client_fits or server_fits:
        return Verdict.YES
    return Verdict.NO if opening.c2s_ended and opening.s2c_ended else Verdict.WAIT


def _inner_values(raw: Raw) -> pa.Array:
    """The values out of stored records: server.go sends the whole record, so its framing is inside the value.

    A nested record has the outer key, and its two lengths fill the value (record.go:55-75). Unwrapped once, not more.
    """
    op, _ = raw.numbers("opcode")
    start, length = raw.spans("value")
    key_start, key_length = raw.spans("key")
    replies = raw.layout == list(raw.layout_names).index("s2c")
    large = replies & (op == Op.CONSUME_ZERO_COPY) & (length >= WRAPPED_FROM + 8)
    rows = np.flatnonzero(large).tolist()
    if not rows:
        return pa.nulls(raw.n, pa.binary())
    values: list[bytes | None] = [None] * raw.n
    view = memoryview(raw.buffer)
    for row in rows:
        offset, end, n = int(start[row]), int(start[row] + length[row]), int(key_length[row])
        key = bytes(view[key_start[row] : key_start[row] + n])
        inner = offset + 4 + n + 4
        if view[offset : offset + 4 + n] != n.to_bytes(4, "big") + key or inner > end:
            continue
        if int.from_bytes(view[inner - 4 : inner], "big") == end - inner:
            values[row] = bytes(view[inner : end if raw.keep_bodies is None else min(end, inner + raw.keep_bodies)])
    return pa.array(values, pa.binary())


def derive(raw: Raw) -> Mapping[str, pa.Array]:
    """Columns made of others.

    ``inner_value``; ``topics`` and ``roles`` where the list holds more than names; ``offset``, which is a u64
    but for the i32 of the audit operations.
    """
    page = raw.array("page_offset").cast(pa.decimal128(20, 0))
    return {
        "offset": pc.coalesce(raw.array("offset"), page),
        "topics": pc.coalesce(raw.array("topics"), _names(raw.array("topic_partitions"), "topic")),
        "roles": pc.coalesce(raw.array("roles"), _names(raw.array("role_list"), "name")),
        "inner_value": _inner_values(raw),
    }


def _names(structs: pa.ListArray, field: str) -> pa.ListArray:
    return with_list_values(structs, structs.flatten().field(field))


def _record_bytes(records: pa.ListArray) -> pa.Array:
    """How many bytes the values of each list of records have together."""
    lengths = pc.fill_null(pc.binary_length(records.flatten().field("value")), 0)
    sums = np.bincount(pc.list_parent_indices(records), lengths, len(records)).astype(np.int64)
    return pa.array(sums, mask=pc.is_null(records).to_numpy(zero_copy_only=False))


def envelope(table: pa.Table) -> Mapping[str, pa.Array]:
    """status, error_text, and the bytes of the values carried."""
    columns = {name: table[name].combine_chunks() for name in ("value", "records", "message", "success")}
    replies = is_in(table["direction"], "s2c")
    is_error = replies & is_in(table["op_code"], int(Op.ERROR))
    refused = replies & true_mask(pc.invert(columns["success"]))
    return {
        "status": case_when({"ok": replies, "error": is_error | refused}),
        "error_text": pc.if_else(pa.array(is_error), columns["message"], pa.scalar(None, pa.string())),
        "body_len": pc.coalesce(pc.binary_length(columns["value"]).cast(pa.int64()), _record_bytes(columns["records"])),
    }


def keys(requests: pa.Table, replies: pa.Table, prints: Fingerprints) -> tuple[Keys, Keys]:
    """A PRODUCE is answered with the place of its message; CONSUME names a place, FETCH replies carry offsets.

    Only the reply of PRODUCE itself can be trusted: those of the other producing operations say partition 0 always
    (server.go:2186-2193). A place produced twice in one input (topic deleted and made again) is doubtful.
    """
    granted = is_in(replies["status"], "ok") & true_mask(pc.is_valid(requests["f.topic"]))
    topic = prints(requests["f.topic"])
    asked, stored = (
        pc.fill_null(side["f.partition"].combine_chunks(), -1).cast(pa.int64()).to_numpy()
        for side in (requests, replies)
    )

    def named(ops: Sequence[Op], side: pa.Table, offset: pa.ChunkedArray) -> NDArray[np.int64]:
        is_known = granted & true_mask(pc.is_valid(side["f.partition"])) & true_mask(pc.is_valid(offset))
        return np.flatnonzero(is_known & is_in(requests["op"], *_op_names(*ops)))

    produce = named([Op.PRODUCE], replies, replies["f.offset"])
    consume = named([Op.CONSUME, Op.CONSUME_ZERO_COPY], requests, requests["f.offset"])
    fetch = named([Op.FETCH, Op.FETCH_BINARY], requests, replies["f.records.offset"])
    records = replies["f.records.offset"].combine_chunks().take(pa.array(fetch))
    place = low_words(replies["f.offset"].combine_chunks().take(pa.array(produce)))
    consumed = low_words(requests["f.offset"].combine_chunks().take(pa.array(consume)))
    rows = np.concatenate([consume, np.repeat(fetch, pc.list_value_length(records).to_numpy(zero_copy_only=False))])
    offset = np.concatenate([consumed, low_words(records.flatten())])
    lane, lanes = ((topic * 1_000_003 + partition) * 1_000_003 for partition in (stored, asked))
    return Keys(produce, lane[produce] + place, stored[produce]), Keys(rows, lanes[rows] + offset, offset)


def offset_text(_: pa.Table, offset: NDArray[np.int64]) -> pa.Array:
    """The offset."""
    return pa.array(offset.view(np.uint64)).cast(pa.string())


def place_text(offset: pa.Array, partition: NDArray[np.int64]) -> pa.Array:
    """``partition:offset``."""
    return pc.binary_join_element_wise(pa.array(partition).cast(pa.string()), offset, ":")


def _op_names(*ops: Op) -> frozenset[str]:
    return frozenset(NAMES[op] for op in ops)


_REPEAT_TOPIC = (Op.ACL_SET, Op.ACL_GET, Op.ACL_DELETE, Op.GET_SCHEMA, Op.DESCRIBE_GROUP)

RULE = CorrelationRule(
    asks={name: RequestRule("always", frozenset({name})) for name in NAMES.values()}
    | {NAMES[Op.AUTH]: RequestRule("always", _op_names(*_LOGIN))},
    otherwise=RequestRule("always", frozenset({NAMES[Op.ERROR]})),
    errors=frozenset({NAMES[Op.ERROR]}),
    columns=("topic", "partition", "offset", "records.offset"),
    # Not the partition: the server may choose another one.
    repeats={
        _op_names(Op.PRODUCE): {"topic": "topic", "key.length": "key_size", "value.length": "value_size"},
        _op_names(*_PRODUCING[1:], *_REPEAT_TOPIC): {"topic": "topic"},
    },
    # The server reads requests to the end of the stream and answers each (server.go:1039-1071).
    habits=ServerHabits(shortest_bytes=8, all_count=True, pause_ns=200_000_000, answers_all="certainly"),
    deliveries=DeliveryRule("offset", keys, offset_text, of_pairs=True, whole=place_text),
)

MEANINGS = {
    "flags": "byte 3 of the header, as on the wire",
    "extra": "bytes after the last field of a request",
    "topic": "topic",
    "key": "key of a message",
    "value": "user payload",
    "partition": "partition; -1: the server chooses",
    "offset": "offset asked for, stored at, or committed",
    "partitions": "number of partitions of a new topic",
    "group_id": "consumer group",
    "mode": "where to start: earliest, latest, committed or offset",
    "max_messages": "most messages wanted",
    "filter": "filter on messages",
    "name": "name of a schema",
    "type": "type of a schema",
    "schema": "schema as bytes",
    "version": "version of a schema; 0: the latest",
    "data": "user payload of a delayed, expiring, checked or transactional message; exported text",
    "schema_name": "schema to check a message with",
    "message_id": "identifier of a dead letter",
    "delay_ms": "delay until a message can be read",
    "ttl_ms": "time until a message expires",
    "txn_id": "transaction",
    "peer": "address of a server that joins",
    "username": "user of a login or an account",
    "password": "password; a secret",
    "old_password": "password until now; a secret",
    "roles": "roles of an account; names of all roles",
    "enabled": "whether an account may log in",
    "public": "whether everybody may use a topic",
    "allowed_users": "users who may use a topic",
    "allowed_roles": "roles that may use a topic",
    "start_time_s": "begin of a period, since 1970; 0: open",
    "end_time_s": "end of a period, since 1970; 0: open",
    "event_types": "types of audit events wanted",
    "user": "user of audit events wanted",
    "resource": "resource of audit events wanted",
    "result": "result of audit events wanted",
    "search": "text to search audit events for",
    "limit": "most audit events wanted",
    "format": "format of exported audit events",
    "timestamp_ms": "time of storing, since 1970",
    "key_size": "length of the key; -1: none",
    "value_size": "length of the value",
    "success": "whether it was done",
    "message": "text of an error or an outcome",
    "next_offset": "offset where reading goes on",
    "records": "messages of a fetch reply",
    "topics": "names of topics",
    "id": "identifier of a schema",
    "definition": "schema as text",
    "compatibility": "compatibility rule of a schema",
    "schemas": "schemas of a list",
    "valid": "whether a message fits a schema",
    "errors": "why a message does not fit a schema",
    "messages": "dead letters",
    "cluster_id": "identifier of the cluster",
    "topic_partitions": "topics with their partitions and nodes",
    "groups": "consumer groups with their offsets",
    "members": "connections of a consumer group",
    "offsets": "committed offsets of a consumer group, by partition",
    "current_offset": "offset of the group's next read",
    "committed_offset": "offset that the group committed",
    "latest_offset": "highest offset of the partition",
    "lag": "messages between committed and latest offset",
    "error": "reason of a refused login",
    "permissions": "permissions of an account",
    "created_at_s": "time of creation, since 1970",
    "updated_at_s": "time of the last change, since 1970",
    "users": "accounts",
    "exists": "whether a topic has rights of its own",
    "default_public": "whether topics without rights of their own are public",
    "acls": "rights on topics",
    "role_list": "roles with their permissions",
    "events": "audit events",
    "total_count": "audit events that fit the query",
    "has_more": "whether more audit events fit",
    "code": "error as a number",
    "inner_value": "value without the framing that large values keep from storage",
}
"""The content of each column of the table."""

PROTOCOL = MessageQueue(
    name="flymq",
    title="FlyMQ",
    ports=(PORT,),
    dialects=("go", "doc", "legacy", "python", "java"),
    layouts=(_layout("c2s", FlyMQRequest, _REQUESTS), _layout("s2c", FlyMQ, _REPLIES)),
    claims=claims,
    spare={"extra": 1},
    openings=(FirstBytes(_MAGIC),),
    recognised="a connection that begins with AF 01, a known opcode and a plausible length, or two messages in a row",
    meanings=MEANINGS,
    details={
        "log_offset": '"offset"',
        "log_position": "CASE WHEN COALESCE(mode, 'offset') = 'offset' THEN \"offset\" END",
        **{name: name for name in ("next_offset", "committed_offset", "latest_offset", "lag")},
        "has_items": "records IS NOT NULL",
        "compressed": "(flags & 14) <> 0",
        "body": "value",
    },
    words={
        "mode": "earliest|latest|commit|offset",
        "compatibility": "none|backward|forward|full",
        "message": (
            "EOF|success|authentication required|unauthorized|topic not found"
            "|partition [0-9]{1,10} (not found|out of range)|username and password are required"
            "|invalid current password|cannot delete your own account"
            "|admin access required for audit (queries|export)|audit trail is not enabled|unknown opcode: [0-9]{1,3}"
        ),
    },
    acknowledgement=Acknowledgement("offset"),
    items="records.offset",
    envelope=Envelope(
        destination="topic",
        group_name="group_id",
        client_name="username",
        partition_id="partition",
        body="value",
        error_code="code",
        derive=envelope,
        derives=("status", "error_text", "body_len"),
        reads=("value", "records", "message", "success"),
    ),
    rule=RULE,
    roles=Roles(
        traits=frozenset({"numbered"}),
        publish=_op_names(*_PRODUCING),
        deferred=_op_names(Op.PRODUCE_DELAYED, Op.TXN_PRODUCE),
        poll=_op_names(Op.CONSUME, Op.CONSUME_ZERO_COPY, Op.FETCH, Op.FETCH_BINARY),
        subscribe=_op_names(Op.SUBSCRIBE),
        ack=_op_names(Op.COMMIT),
        position=_op_names(Op.GET_OFFSET, Op.RESET_OFFSET),
        login=_op_names(Op.AUTH),
        account=_op_names(Op.USER_CREATE, Op.USER_DELETE, Op.USER_UPDATE, Op.USER_GET, Op.PASSWORD_CHANGE),
        empty=frozenset({"EOF"}),
    ),
    derived=(
        Derived("offset", pa.decimal128(20, 0)),
        Derived("topics", pa.list_(pa.string())),
        Derived("roles", pa.list_(pa.string())),
        Derived("inner_value", pa.binary(), body=True),
    ),
    derive=derive,
    hidden=("opcode", "page_offset"),
)
