"""FlyMQ's binary protocol, header version 1.

Source: docs/protocol.md of firefly-oss/flymq at 60a0b57; internal/protocol/binary.go, protocol.go and
internal/server/server.go at 4df79e0 (1.26.11). Port 9092, all integers big-endian, a request is at most 32 MiB
behind its header.

Requests and replies share header and opcodes: the direction decides. Where the document and the code differ the
code's layout is tried first and the document's (dialect ``doc``) next; so are the requests that only an SDK writes
(``python``, ``java``) and the replies of older servers (``legacy``). What fits several is ``go``.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqpcap.arrays import case_when, is_in, low_words, true
from mqpcap.schema.fields import (
    I32,
    I64,
    U8,
    U32,
    U64,
    Array,
    Bool,
    Bytes,
    GreedyText,
    If,
    Kind,
    Length,
    Message,
    Nested,
    Text,
)
from mqpcap.schema.protocol import (
    Claim,
    Derived,
    Direction,
    Envelope,
    Layout,
    MessageQueue,
    Opening,
    Raw,
    Variant,
    Verdict,
)
from mqpcap.schema.requests import DeliveryRule, Keys, Prints, RequestRule, Roles, Rule

PORT = 9092
MAX_MESSAGE_SIZE = 33_554_432  # protocol.go:349: readers refuse more; exactly this much is taken
MAX_REPLY_SIZE = 256 << 20  # ours: the server does not check what it writes (protocol.go:405-423)
MAX_REINJECTED_OFFSET = (1 << 48) - 1  # above it the server reads a message id out of the offset
WRAPPED_FROM = 65_536  # server.go:1651-1754: from this value length on a zero-copy reply carries the stored record
FLAG_COMPRESSED = 0x02


class OpCode(IntEnum):
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
NAMES = {int(op): op.name.removeprefix("SDK_") for op in OpCode}


class FlyMQ(Message):
    """The 8 bytes every message begins with."""

    name = "FlyMQ"
    server_ports = frozenset({PORT})
    fields_desc = [
        U8("magic", equals=0xAF, column=None),
        U8("version", equals=1, column=None),
        U8("opcode", names=NAMES),
        U8("flags", 1),
        Length("length", at_most=MAX_REPLY_SIZE),
    ]


class FlyMQRequest(FlyMQ):
    """The same from a client: the server closes on a length above its limit."""

    name = "FlyMQ request"
    fields_desc = [
        U8("magic", equals=0xAF, column=None),
        U8("version", equals=1, column=None),
        U8("opcode", names=NAMES),
        U8("flags", 1),
        Length("length", at_most=MAX_MESSAGE_SIZE),
    ]


class FlyMQEmpty(Message):
    """No fields; the server ignores a payload."""

    name = "FlyMQ empty"
    fields_desc: ClassVar[list[Kind]] = []


class FlyMQProduce(Message):
    """A message for a topic."""

    name = "FlyMQ PRODUCE"
    fields_desc = [
        Text("topic", prefix=2),
        Bytes("key", prefix=4),
        Bytes("value", prefix=4, body=True),
        I32("partition", -1),
    ]


class FlyMQProduceReply(Message):
    """RecordMetadata: where and when the message was stored."""

    name = "FlyMQ PRODUCE reply"
    fields_desc = [
        Text("topic", prefix=2),
        I32("partition"),
        U64("offset"),
        I64("timestamp_ms", unit="ms"),
        I32("key_size", -1),
        I32("value_size"),
    ]


class FlyMQProduceReplyLegacy(Message):
    """What servers before 60a0b57 answer: RecordMetadata is never this short."""

    name = "FlyMQ PRODUCE reply of an older server"
    fields_desc = [U64("offset"), I32("partition")]


class FlyMQConsume(Message):
    """Asks for the message at an offset."""

    name = "FlyMQ CONSUME"
    fields_desc = [Text("topic", prefix=2), I32("partition"), U64("offset")]


class FlyMQConsumeReply(Message):
    """The message; a key of no bytes is no key."""

    name = "FlyMQ CONSUME reply"
    fields_desc = [Bytes("key", prefix=4), Bytes("value", prefix=4, body=True)]


class FlyMQConsumeZeroCopy(FlyMQConsume):
    """CONSUME for large values."""

    name = "FlyMQ CONSUME_ZERO_COPY"


class FlyMQConsumeZeroCopyReply(FlyMQConsumeReply):
    """The message; from 65,536 bytes on the value holds the stored record, see ``derive``."""

    name = "FlyMQ CONSUME_ZERO_COPY reply"


class FlyMQCreateTopic(Message):
    """Makes a topic."""

    name = "FlyMQ CREATE_TOPIC"
    fields_desc = [Text("topic", prefix=2), I32("partitions", 1)]


class FlyMQSuccess(Message):
    """One byte; failures come as ERROR."""

    name = "FlyMQ success"
    fields_desc = [Bool("success", 1)]


class FlyMQCreateTopicReply(FlyMQSuccess):
    """One byte (binary.go:872-877)."""

    name = "FlyMQ CREATE_TOPIC reply"


class FlyMQCreateTopicReplyDoc(Message):
    """With the message that only the document has."""

    name = "FlyMQ CREATE_TOPIC reply of the document"
    fields_desc = [Bool("success", 1), Text("message", prefix=2)]


class FlyMQMetadata(Message):
    """No server handles it; its reply has no layout."""

    name = "FlyMQ METADATA"
    fields_desc = [Text("topic", prefix=2)]


class FlyMQSubscribe(Message):
    """Joins a group and asks where to start; nothing is pushed."""

    name = "FlyMQ SUBSCRIBE"
    fields_desc = [
        Text("topic", prefix=2),
        Text("group_id", prefix=2),
        I32("partition"),
        Text("mode", prefix=1),  # binary.go:920-922: one byte of length, the document has two
    ]


class FlyMQSubscribeDoc(Message):
    """With the two-byte length of the document; the server takes it as an empty mode and extra bytes."""

    name = "FlyMQ SUBSCRIBE of the document"
    fields_desc = [
        Text("topic", prefix=2),
        Text("group_id", prefix=2),
        I32("partition"),
        Text("mode", prefix=2),
    ]


class FlyMQSubscribeReply(Message):
    """Where to start fetching."""

    name = "FlyMQ SUBSCRIBE reply"
    fields_desc = [U64("offset")]


class FlyMQCommit(Message):
    """Stores a group's offset."""

    name = "FlyMQ COMMIT"
    fields_desc = [Text("topic", prefix=2), Text("group_id", prefix=2), I32("partition"), U64("offset")]


class FlyMQCommitReply(FlyMQSuccess):
    """One byte."""

    name = "FlyMQ COMMIT reply"


class FlyMQFetch(Message):
    """Asks for messages from an offset on; clients before d40a4ea send no filter."""

    name = "FlyMQ FETCH"
    fields_desc = [
        Text("topic", prefix=2),
        I32("partition"),
        U64("offset"),
        I32("max_messages", 10),
        If(Text("filter", prefix=2), left=2),
    ]


class FlyMQFetchUnfiltered(Message):
    """binary.go:688-695: a filter that overruns the payload is ignored."""

    name = "FlyMQ FETCH without a filter"
    fields_desc = [Text("topic", prefix=2), I32("partition"), U64("offset"), I32("max_messages", 10)]


class FlyMQRecord(Message):
    """A message of a fetch reply: its offset comes first (binary.go:713-760)."""

    name = "FlyMQ record"
    fields_desc = [U64("offset"), Bytes("key", prefix=4), Bytes("value", prefix=4, body=True)]


class FlyMQRecordDoc(Message):
    """A message of a fetch reply as the document has it: its offset comes last."""

    name = "FlyMQ record of the document"
    fields_desc = [Bytes("key", prefix=4), Bytes("value", prefix=4, body=True), U64("offset")]


class FlyMQFetchReply(Message):
    """Messages; where to go on comes before them (binary.go:713-760)."""

    name = "FlyMQ FETCH reply"
    fields_desc = [
        U32("message_count"),
        U64("next_offset"),
        Array("records", FlyMQRecord, count="message_count"),
    ]


class FlyMQFetchReplyDoc(Message):
    """Messages in the order of the document, which no server writes."""

    name = "FlyMQ FETCH reply of the document"
    fields_desc = [
        U32("message_count"),
        Array("records", FlyMQRecordDoc, count="message_count"),
        U64("next_offset"),
    ]


class FlyMQFetchBinary(FlyMQFetch):
    """FETCH under another number."""

    name = "FlyMQ FETCH_BINARY"


class FlyMQFetchBinaryReply(FlyMQFetchReply):
    """Messages, as in FETCH."""

    name = "FlyMQ FETCH_BINARY reply"


class FlyMQListTopics(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ LIST_TOPICS"


class FlyMQListTopicsReply(Message):
    """Names, sorted."""

    name = "FlyMQ LIST_TOPICS reply"
    fields_desc = [Array("topics", Text("topic", prefix=2), prefix=4)]


class FlyMQDeleteTopic(Message):
    """Removes a topic."""

    name = "FlyMQ DELETE_TOPIC"
    fields_desc = [Text("topic", prefix=2)]


class FlyMQDeleteTopicReply(FlyMQSuccess):
    """One byte."""

    name = "FlyMQ DELETE_TOPIC reply"


class FlyMQError(Message):
    """An error as bare text: most are."""

    name = "FlyMQ ERROR"
    fields_desc = [GreedyText("message")]


class FlyMQErrorCoded(Message):
    """An error with a code (server.go:3341-3347)."""

    name = "FlyMQ ERROR with a code"
    fields_desc = [I32("code", 1), Text("message", prefix=2)]


class FlyMQErrorDoc(Message):
    """An error as the document has it, from servers before 426e750."""

    name = "FlyMQ ERROR of the document"
    fields_desc = [Bool("success", equals=0), Text("message", prefix=2)]


class FlyMQRegisterSchema(Message):
    """Stores a schema under a name."""

    name = "FlyMQ REGISTER_SCHEMA"
    fields_desc = [Text("name_", prefix=2), Text("type", prefix=1), Bytes("schema", prefix=4)]


class FlyMQRegisterSchemaReply(Message):
    """What was stored, and its version."""

    name = "FlyMQ REGISTER_SCHEMA reply"
    fields_desc = [Text("name_", prefix=2), Text("type", prefix=1), U32("version")]


class FlyMQGetSchema(Message):
    """Asks for a version of a schema, 0 for the latest."""

    name = "FlyMQ GET_SCHEMA"
    fields_desc = [Text("topic", prefix=2), U32("version")]


class FlyMQGetSchemaReply(Message):
    """A schema."""

    name = "FlyMQ GET_SCHEMA reply"
    fields_desc = [
        Text("id", prefix=2),
        Text("topic", prefix=2),
        U32("version"),
        Text("type", prefix=1),
        Text("definition", prefix=4),
        Text("compatibility", prefix=1),
    ]


class FlyMQListSchemas(Message):
    """Asks for the schemas of a topic, or all."""

    name = "FlyMQ LIST_SCHEMAS"
    fields_desc = [If(Text("topic", prefix=2), left=2)]


class FlyMQListSchemasAll(FlyMQEmpty):
    """binary.go:1675-1684: a topic that cannot be read means all."""

    name = "FlyMQ LIST_SCHEMAS without a topic"


class FlyMQSchema(Message):
    """A schema of a list; the name is its id."""

    name = "FlyMQ schema"
    fields_desc = [Text("name_", prefix=2), Text("type", prefix=1), U32("version")]


class FlyMQListSchemasReply(Message):
    """Schemas."""

    name = "FlyMQ LIST_SCHEMAS reply"
    fields_desc = [Array("schemas", FlyMQSchema, prefix=4)]


class FlyMQValidateSchema(Message):
    """Asks whether a message fits a schema."""

    name = "FlyMQ VALIDATE_SCHEMA"
    fields_desc = [Text("name_", prefix=2), Bytes("message", prefix=4, column="data", body=True)]


class FlyMQValidateSchemaReply(Message):
    """Whether it fits, and why not."""

    name = "FlyMQ VALIDATE_SCHEMA reply"
    fields_desc = [Bool("valid"), Array("errors", Text("error", prefix=2), prefix=4)]


class FlyMQProduceWithSchema(Message):
    """A message to be checked first."""

    name = "FlyMQ PRODUCE_WITH_SCHEMA"
    fields_desc = [Text("topic", prefix=2), Text("schema_name", prefix=2), Bytes("data", prefix=4, body=True)]


class FlyMQProduceWithSchemaPython(Message):
    """As the Python and Java SDKs write it (py binary.py:920-933); the server refuses it."""

    name = "FlyMQ PRODUCE_WITH_SCHEMA of the SDKs"
    fields_desc = [Text("topic", prefix=2), Bytes("data", prefix=4, body=True), Text("schema_name", prefix=2)]


class FlyMQProduceWithSchemaReply(FlyMQProduceReply):
    """RecordMetadata; the partition is always 0."""

    name = "FlyMQ PRODUCE_WITH_SCHEMA reply"


class FlyMQDeleteSchema(Message):
    """Removes a version of a schema."""

    name = "FlyMQ DELETE_SCHEMA"
    fields_desc = [Text("topic", prefix=2), U32("version")]


class FlyMQOutcome(Message):
    """Whether it was done, and a word or a reason."""

    name = "FlyMQ outcome"
    fields_desc = [Bool("success", 1), Text("message", prefix=2)]


class FlyMQDeleteSchemaReply(FlyMQOutcome):
    """Done."""

    name = "FlyMQ DELETE_SCHEMA reply"


class FlyMQFetchDlq(Message):
    """Asks for the dead letters of a topic."""

    name = "FlyMQ FETCH_DLQ"
    fields_desc = [Text("topic", prefix=2), I32("max_messages", 10)]


class FlyMQDeadLetter(Message):
    """A dead letter."""

    name = "FlyMQ dead letter"
    fields_desc = [Text("id", prefix=2), Bytes("data", prefix=4), Text("error", prefix=2), I32("retries")]


class FlyMQFetchDlqReply(Message):
    """Dead letters."""

    name = "FlyMQ FETCH_DLQ reply"
    fields_desc = [Array("messages", FlyMQDeadLetter, prefix=4)]


class FlyMQReplayDlq(Message):
    """Sends a dead letter again."""

    name = "FlyMQ REPLAY_DLQ"
    fields_desc = [Text("topic", prefix=2), Text("message_id", prefix=2)]


class FlyMQReplayDlqPython(Message):
    """re_inject_dlq of Python and Java (py client.py:384-403): by offset, where the server reads an empty id."""

    name = "FlyMQ REPLAY_DLQ by offset"
    fields_desc = [Text("topic", prefix=2), U64("offset", at_most=MAX_REINJECTED_OFFSET)]


class FlyMQReplayDlqReply(FlyMQOutcome):
    """Done, or why not."""

    name = "FlyMQ REPLAY_DLQ reply"


class FlyMQPurgeDlq(Message):
    """Drops the dead letters of a topic."""

    name = "FlyMQ PURGE_DLQ"
    fields_desc = [Text("topic", prefix=2)]


class FlyMQPurgeDlqReply(FlyMQOutcome):
    """Done, or why not."""

    name = "FlyMQ PURGE_DLQ reply"


class FlyMQProduceDelayed(Message):
    """A message for later."""

    name = "FlyMQ PRODUCE_DELAYED"
    fields_desc = [Text("topic", prefix=2), Bytes("data", prefix=4, body=True), I64("delay_ms", unit="ms")]


class FlyMQProduceDelayedReply(FlyMQProduceReply):
    """RecordMetadata; the offset is 0 while it is not known."""

    name = "FlyMQ PRODUCE_DELAYED reply"


class FlyMQProduceWithTtl(Message):
    """A message that expires."""

    name = "FlyMQ PRODUCE_WITH_TTL"
    fields_desc = [Text("topic", prefix=2), Bytes("data", prefix=4, body=True), I64("ttl_ms", unit="ms")]


class FlyMQProduceWithTtlReply(FlyMQProduceReply):
    """RecordMetadata."""

    name = "FlyMQ PRODUCE_WITH_TTL reply"


class FlyMQTxnBegin(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ TXN_BEGIN"


class FlyMQTxnOutcome(Message):
    """A transaction, and whether the step was done."""

    name = "FlyMQ transaction outcome"
    fields_desc = [Text("txn_id", prefix=2), Bool("success", 1)]


class FlyMQTxnBeginReply(FlyMQTxnOutcome):
    """The new transaction."""

    name = "FlyMQ TXN_BEGIN reply"


class FlyMQTxnCommit(Message):
    """Ends a transaction."""

    name = "FlyMQ TXN_COMMIT"
    fields_desc = [Text("txn_id", prefix=2)]


class FlyMQTxnCommitReply(FlyMQTxnOutcome):
    """Whether it was committed."""

    name = "FlyMQ TXN_COMMIT reply"


class FlyMQTxnRollback(Message):
    """Takes a transaction back."""

    name = "FlyMQ TXN_ROLLBACK"
    fields_desc = [Text("txn_id", prefix=2)]


class FlyMQTxnRollbackReply(FlyMQTxnOutcome):
    """Whether it was taken back."""

    name = "FlyMQ TXN_ROLLBACK reply"


class FlyMQTxnProduce(Message):
    """A message of a transaction."""

    name = "FlyMQ TXN_PRODUCE"
    fields_desc = [Text("txn_id", prefix=2), Text("topic", prefix=2), Bytes("data", prefix=4, body=True)]


class FlyMQTxnProduceReply(FlyMQProduceReply):
    """RecordMetadata; the offset is 0 until the commit."""

    name = "FlyMQ TXN_PRODUCE reply"


class FlyMQClusterJoin(Message):
    """No server handles it."""

    name = "FlyMQ CLUSTER_JOIN"
    fields_desc = [Text("peer", prefix=2)]


class FlyMQClusterLeave(FlyMQEmpty):
    """Empty; no server handles it."""

    name = "FlyMQ CLUSTER_LEAVE"


class FlyMQClusterMetadata(Message):
    """Asks who leads what; an empty topic or none is all."""

    name = "FlyMQ CLUSTER_METADATA"
    fields_desc = [If(Text("topic", prefix=2), left=1)]


class FlyMQPartition(Message):
    """A partition and its nodes."""

    name = "FlyMQ partition"
    fields_desc = [
        I32("partition"),
        Text("leader_id", prefix=2),
        Text("leader_addr", prefix=2),
        U64("epoch"),
        Text("state", prefix=2),
        Array("replicas", Text("node_id", prefix=2), prefix=4),
        Array("isr", Text("node_id", prefix=2), prefix=4),
    ]


class FlyMQTopicPartitions(Message):
    """A topic and its partitions."""

    name = "FlyMQ topic partitions"
    fields_desc = [Text("topic", prefix=2), Array("partitions", FlyMQPartition, prefix=4)]


class FlyMQClusterMetadataReply(Message):
    """Topics with their partitions; the names alone are in ``topics``, see ``derive``."""

    name = "FlyMQ CLUSTER_METADATA reply"
    fields_desc = [
        Text("cluster_id", prefix=2),
        Array("topics", FlyMQTopicPartitions, prefix=4, column="topic_partitions"),
    ]


class FlyMQGetOffset(Message):
    """Asks for a group's offset."""

    name = "FlyMQ GET_OFFSET"
    fields_desc = [Text("topic", prefix=2), Text("group_id", prefix=2), I32("partition")]


class FlyMQGetOffsetReply(Message):
    """The committed offset."""

    name = "FlyMQ GET_OFFSET reply"
    fields_desc = [U64("offset")]


class FlyMQResetOffset(Message):
    """Moves a group."""

    name = "FlyMQ RESET_OFFSET"
    fields_desc = [
        Text("topic", prefix=2),
        Text("group_id", prefix=2),
        I32("partition"),
        Text("mode", prefix=1),
        If(U64("offset"), when="mode", equals=b"offset"),
    ]


class FlyMQResetOffsetJava(Message):
    """With the offset whatever the mode (java BinaryProtocol.java:899-914); the server ignores it."""

    name = "FlyMQ RESET_OFFSET of Java"
    fields_desc = [
        Text("topic", prefix=2),
        Text("group_id", prefix=2),
        I32("partition"),
        Text("mode", prefix=1),
        U64("offset"),
    ]


class FlyMQResetOffsetReply(FlyMQSuccess):
    """One byte."""

    name = "FlyMQ RESET_OFFSET reply"


class FlyMQListGroups(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ LIST_GROUPS"


class FlyMQGroupOffset(Message):
    """A committed offset."""

    name = "FlyMQ group offset"
    fields_desc = [I32("partition"), U64("offset")]


class FlyMQGroup(Message):
    """A group; its members are open connections."""

    name = "FlyMQ group"
    fields_desc = [
        Text("topic", prefix=2),
        Text("group_id", prefix=2),
        U32("members"),
        Array("offsets", FlyMQGroupOffset, prefix=4),
    ]


class FlyMQListGroupsReply(Message):
    """Groups."""

    name = "FlyMQ LIST_GROUPS reply"
    fields_desc = [Array("groups", FlyMQGroup, prefix=4)]


class FlyMQDescribeGroup(Message):
    """Asks for one group."""

    name = "FlyMQ DESCRIBE_GROUP"
    fields_desc = [Text("topic", prefix=2), Text("group_id", prefix=2)]


class FlyMQDescribeGroupJava(Message):
    """Without a topic (java BinaryProtocol.java:971-973); the server refuses it."""

    name = "FlyMQ DESCRIBE_GROUP of Java"
    fields_desc = [Text("group_id", prefix=2)]


class FlyMQDescribeGroupReply(FlyMQGroup):
    """The group."""

    name = "FlyMQ DESCRIBE_GROUP reply"


class FlyMQGetLag(Message):
    """Asks how far a group is behind."""

    name = "FlyMQ GET_LAG"
    fields_desc = [Text("topic", prefix=2), Text("group_id", prefix=2), I32("partition")]


class FlyMQGetLagReply(Message):
    """How far a group is behind."""

    name = "FlyMQ GET_LAG reply"
    fields_desc = [U64("current_offset"), U64("committed_offset"), U64("latest_offset"), U64("lag")]


class FlyMQDeleteGroup(Message):
    """Removes a group."""

    name = "FlyMQ DELETE_GROUP"
    fields_desc = [Text("topic", prefix=2), Text("group_id", prefix=2)]


class FlyMQDeleteGroupJava(Message):
    """Without a topic (java BinaryProtocol.java:1001-1003); the server refuses it."""

    name = "FlyMQ DELETE_GROUP of Java"
    fields_desc = [Text("group_id", prefix=2)]


class FlyMQDeleteGroupReply(FlyMQSuccess):
    """One byte."""

    name = "FlyMQ DELETE_GROUP reply"


class FlyMQAuth(Message):
    """The password, in the clear."""

    name = "FlyMQ AUTH"
    fields_desc = [Text("username", prefix=2), Text("password", prefix=2, secret=True)]


class FlyMQAuthResponse(Message):
    """Who one is now; the error is the last field and the roles have lengths of one byte (binary.go:1364-1403)."""

    name = "FlyMQ AUTH_RESPONSE"
    announced = {"opcode": OpCode.AUTH_RESPONSE}
    fields_desc = [
        Bool("success", 1),
        Text("username", prefix=2),
        Array("roles", Text("role", prefix=1), prefix=4),
        Text("error", prefix=2),
    ]


class FlyMQAuthRefused(Message):
    """A refused login names no user. Tried first: the document's refusal would else give its error as a name."""

    name = "FlyMQ AUTH_RESPONSE, refused"
    announced = {"opcode": OpCode.AUTH_RESPONSE}
    fields_desc = [
        Bool("success", equals=0),
        Text("username", prefix=2, at_most=0),
        Array("roles", Text("role", prefix=1), prefix=4),
        Text("error", prefix=2),
    ]


class FlyMQAuthResponseDoc(Message):
    """In the order of the document, which no server writes."""

    name = "FlyMQ AUTH reply of the document"
    announced = {"opcode": OpCode.AUTH_RESPONSE}
    fields_desc = [
        Bool("success", 1),
        Text("error", prefix=2),
        Text("username", prefix=2),
        Array("roles", Text("role", prefix=2), prefix=4),
    ]


class FlyMQAuthRefusedDoc(Message):
    """A refused login in the order of the document."""

    name = "FlyMQ AUTH reply of the document, refused"
    announced = {"opcode": OpCode.AUTH_RESPONSE}
    fields_desc = [
        Bool("success", equals=0),
        Text("error", prefix=2),
        Text("username", prefix=2),
        Array("roles", Text("role", prefix=2), prefix=4),
    ]


class FlyMQWhoAmI(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ WHOAMI"


class FlyMQWhoAmIReply(FlyMQAuthResponse):
    """Who one is; no success means nobody."""

    name = "FlyMQ WHOAMI reply"


class FlyMQUserCreate(Message):
    """A new account."""

    name = "FlyMQ USER_CREATE"
    fields_desc = [
        Text("username", prefix=2),
        Text("password", prefix=2, secret=True),
        Text("old_password", prefix=2, secret=True),
        Array("roles", Text("role", prefix=2), prefix=4),
        Bool("enabled", 1),
    ]


class FlyMQUserCreateShort(Message):
    """binary.go:2131: the last byte may be absent, but only behind a role."""

    name = "FlyMQ USER_CREATE without enabled"
    fields_desc = [
        Text("username", prefix=2),
        Text("password", prefix=2, secret=True),
        Text("old_password", prefix=2, secret=True),
        Array("roles", Text("role", prefix=2), prefix=4, not_empty=True),
    ]


class FlyMQUser(Message):
    """An account."""

    name = "FlyMQ user"
    fields_desc = [
        Text("username", prefix=2),
        Array("roles", Text("role", prefix=2), prefix=4),
        Array("permissions", Text("permission", prefix=2), prefix=4),
        Bool("enabled", 1),
        I64("created_at_s", unit="s"),
        I64("updated_at_s", unit="s"),
    ]


class FlyMQUserCreateReply(FlyMQUser):
    """The account."""

    name = "FlyMQ USER_CREATE reply"


class FlyMQUserDelete(Message):
    """Removes an account."""

    name = "FlyMQ USER_DELETE"
    fields_desc = [Text("username", prefix=2)]


class FlyMQUserDeleteReply(FlyMQOutcome):
    """The message is the user's name."""

    name = "FlyMQ USER_DELETE reply"


class FlyMQUserUpdate(FlyMQUserCreate):
    """Other roles, or switched on or off."""

    name = "FlyMQ USER_UPDATE"


class FlyMQUserUpdateShort(FlyMQUserCreateShort):
    """As FlyMQUserCreateShort."""

    name = "FlyMQ USER_UPDATE without enabled"


class FlyMQUserUpdateReply(FlyMQOutcome):
    """The message is the user's name."""

    name = "FlyMQ USER_UPDATE reply"


class FlyMQUserList(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ USER_LIST"


class FlyMQUserListReply(Message):
    """Accounts."""

    name = "FlyMQ USER_LIST reply"
    fields_desc = [Array("users", FlyMQUser, prefix=4)]


class FlyMQUserGet(Message):
    """Asks for an account."""

    name = "FlyMQ USER_GET"
    fields_desc = [Text("username", prefix=2)]


class FlyMQUserGetReply(FlyMQUser):
    """The account, with its permissions."""

    name = "FlyMQ USER_GET reply"


class FlyMQAclSet(Message):
    """Who may use a topic."""

    name = "FlyMQ ACL_SET"
    fields_desc = [
        Text("topic", prefix=2),
        Bool("public"),
        Array("allowed_users", Text("user", prefix=2), prefix=4),
        Array("allowed_roles", Text("role", prefix=2), prefix=4),
    ]


class FlyMQAclSetReply(Message):
    """Done."""

    name = "FlyMQ ACL_SET reply"
    fields_desc = [Bool("success", 1), Text("topic", prefix=2)]


class FlyMQAclGet(Message):
    """Asks who may use a topic."""

    name = "FlyMQ ACL_GET"
    fields_desc = [Text("topic", prefix=2)]


class FlyMQAclGetReply(Message):
    """Who may use a topic."""

    name = "FlyMQ ACL_GET reply"
    fields_desc = [
        Text("topic", prefix=2),
        Bool("exists"),
        Bool("public"),
        Bool("default_public"),
        Array("allowed_users", Text("user", prefix=2), prefix=4),
        Array("allowed_roles", Text("role", prefix=2), prefix=4),
    ]


class FlyMQAclDelete(Message):
    """Back to the default."""

    name = "FlyMQ ACL_DELETE"
    fields_desc = [Text("topic", prefix=2)]


class FlyMQAclDeleteReply(Message):
    """Done."""

    name = "FlyMQ ACL_DELETE reply"
    fields_desc = [Bool("success", 1), Text("topic", prefix=2)]


class FlyMQAclList(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ ACL_LIST"


class FlyMQAcl(Message):
    """The rights on a topic."""

    name = "FlyMQ ACL"
    fields_desc = [
        Text("topic", prefix=2),
        Bool("exists", 1),
        Bool("public"),
        Array("allowed_users", Text("user", prefix=2), prefix=4),
        Array("allowed_roles", Text("role", prefix=2), prefix=4),
    ]


class FlyMQAclListReply(Message):
    """All rights that are stored, and the default."""

    name = "FlyMQ ACL_LIST reply"
    fields_desc = [Array("acls", FlyMQAcl, prefix=4), Bool("default_public")]


class FlyMQPasswordChange(FlyMQUserCreate):
    """``password`` is the new one."""

    name = "FlyMQ PASSWORD_CHANGE"


class FlyMQPasswordChangeShort(FlyMQUserCreateShort):
    """As FlyMQUserCreateShort."""

    name = "FlyMQ PASSWORD_CHANGE without enabled"


class FlyMQPasswordChangeReply(FlyMQOutcome):
    """The message is the user's name."""

    name = "FlyMQ PASSWORD_CHANGE reply"


class FlyMQRoleList(FlyMQEmpty):
    """Asks without saying more."""

    name = "FlyMQ ROLE_LIST"


class FlyMQRole(Message):
    """A role and what it may."""

    name = "FlyMQ role"
    fields_desc = [
        Text("name_", prefix=2),
        Array("permissions", Text("permission", prefix=2), prefix=4),
        Text("description", prefix=2),
    ]


class FlyMQRoleListReply(Message):
    """Roles; the names alone are in ``roles``, see ``derive``."""

    name = "FlyMQ ROLE_LIST reply"
    fields_desc = [Array("roles", FlyMQRole, prefix=4, column="role_list")]


class FlyMQAuditQuery(Message):
    """Asks for events; times are seconds, 0 is open."""

    name = "FlyMQ AUDIT_QUERY"
    fields_desc = [
        I64("start_time_s", unit="s"),
        I64("end_time_s", unit="s"),
        Array("event_types", Text("type", prefix=2), prefix=4),
        Text("user", prefix=2),
        Text("resource", prefix=2),
        Text("result", prefix=2),
        Text("search", prefix=2),
        I32("limit"),
        I32("offset", column="page_offset"),  # shown as ``offset``, see derive
    ]


class FlyMQAuditQueryJava(Message):
    """As Java numbers and writes it (java FlyMQClient.java:1370-1419); no server handles it."""

    name = "FlyMQ AUDIT_QUERY of Java"
    fields_desc = [
        I64("start_time_s", unit="s"),
        I64("end_time_s", unit="s"),
        Array("event_types", Text("type", prefix=2), prefix=2),
        Text("user", prefix=2),
        Text("resource", prefix=2),
        Text("result", prefix=2),
        Text("search", prefix=2),
        I32("limit"),  # u32 there, in the column of the server's i32
        I32("offset", column="page_offset"),
    ]


class FlyMQDetail(Message):
    """A detail of an event."""

    name = "FlyMQ detail"
    fields_desc = [Text("key", prefix=2), Text("value", prefix=2)]


class FlyMQEvent(Message):
    """What happened."""

    name = "FlyMQ event"
    fields_desc = [
        Text("id", prefix=2),
        I64("timestamp_ms", unit="ms"),
        Text("type", prefix=2),
        Text("user", prefix=2),
        Text("client_ip", prefix=2),
        Text("resource", prefix=2),
        Text("action", prefix=2),
        Text("result", prefix=2),
        Text("node_id", prefix=2),
        Array("details", FlyMQDetail, prefix=4),
    ]


class FlyMQEventEntry(Message):
    """An event behind its length."""

    name = "FlyMQ event entry"
    fields_desc = [Nested("event", FlyMQEvent, prefix=4)]


class FlyMQAuditQueryReply(Message):
    """Events, newest first."""

    name = "FlyMQ AUDIT_QUERY reply"
    fields_desc = [Array("events", FlyMQEventEntry, prefix=4), I32("total_count"), Bool("has_more")]


class FlyMQAuditExport(Message):
    """Asks for events as text; limit and offset of the query are ignored."""

    name = "FlyMQ AUDIT_EXPORT"
    fields_desc = [Nested("query", FlyMQAuditQuery, prefix=4), Text("format", prefix=2)]


class FlyMQAuditExportJava(Message):
    """As Java numbers and writes it (java FlyMQClient.java:1496-1546); no server handles it."""

    name = "FlyMQ AUDIT_EXPORT of Java"
    fields_desc = [
        Text("format", prefix=2),
        I64("start_time_s", unit="s"),
        I64("end_time_s", unit="s"),
        Array("event_types", Text("type", prefix=2), prefix=2),
        Text("user", prefix=2),
        Text("resource", prefix=2),
        Text("result", prefix=2),
        Text("search", prefix=2),
    ]


class FlyMQAuditExportReply(Message):
    """Events as CSV or JSON."""

    name = "FlyMQ AUDIT_EXPORT reply"
    fields_desc = [Text("format", prefix=2), Bytes("data", prefix=4, body=True)]


# The server's layout first, then the SDKs', then the server's with bytes behind (protocol notes, section 9).
_REQUESTS: Mapping[OpCode, Sequence[Variant | type]] = {
    OpCode.PRODUCE: (FlyMQProduce,),
    OpCode.CONSUME: (FlyMQConsume,),
    OpCode.CREATE_TOPIC: (FlyMQCreateTopic,),
    OpCode.METADATA: (FlyMQMetadata,),
    OpCode.SUBSCRIBE: (FlyMQSubscribe, Variant(FlyMQSubscribeDoc, "doc")),
    OpCode.COMMIT: (FlyMQCommit,),
    OpCode.FETCH: (FlyMQFetch, FlyMQFetchUnfiltered),
    OpCode.LIST_TOPICS: (FlyMQListTopics,),
    OpCode.DELETE_TOPIC: (FlyMQDeleteTopic,),
    OpCode.CONSUME_ZERO_COPY: (FlyMQConsumeZeroCopy,),
    OpCode.FETCH_BINARY: (FlyMQFetchBinary, FlyMQFetchUnfiltered),
    OpCode.REGISTER_SCHEMA: (FlyMQRegisterSchema,),
    OpCode.GET_SCHEMA: (FlyMQGetSchema,),
    OpCode.LIST_SCHEMAS: (FlyMQListSchemas, FlyMQListSchemasAll),
    OpCode.VALIDATE_SCHEMA: (FlyMQValidateSchema,),
    OpCode.PRODUCE_WITH_SCHEMA: (FlyMQProduceWithSchema, Variant(FlyMQProduceWithSchemaPython, "python")),
    OpCode.DELETE_SCHEMA: (FlyMQDeleteSchema,),
    OpCode.FETCH_DLQ: (FlyMQFetchDlq,),
    OpCode.REPLAY_DLQ: (FlyMQReplayDlq, Variant(FlyMQReplayDlqPython, "python")),
    OpCode.PURGE_DLQ: (FlyMQPurgeDlq,),
    OpCode.PRODUCE_DELAYED: (FlyMQProduceDelayed,),
    OpCode.PRODUCE_WITH_TTL: (FlyMQProduceWithTtl,),
    OpCode.TXN_BEGIN: (FlyMQTxnBegin,),
    OpCode.TXN_COMMIT: (FlyMQTxnCommit,),
    OpCode.TXN_ROLLBACK: (FlyMQTxnRollback,),
    OpCode.TXN_PRODUCE: (FlyMQTxnProduce,),
    OpCode.CLUSTER_JOIN: (FlyMQClusterJoin,),
    OpCode.CLUSTER_LEAVE: (FlyMQClusterLeave,),
    OpCode.CLUSTER_METADATA: (FlyMQClusterMetadata,),
    OpCode.GET_OFFSET: (FlyMQGetOffset,),
    OpCode.RESET_OFFSET: (FlyMQResetOffset, Variant(FlyMQResetOffsetJava, "java")),
    OpCode.LIST_GROUPS: (FlyMQListGroups,),
    OpCode.DESCRIBE_GROUP: (FlyMQDescribeGroup, Variant(FlyMQDescribeGroupJava, "java")),
    OpCode.GET_LAG: (FlyMQGetLag,),
    OpCode.DELETE_GROUP: (FlyMQDeleteGroup, Variant(FlyMQDeleteGroupJava, "java")),
    OpCode.AUTH: (FlyMQAuth,),
    OpCode.WHOAMI: (FlyMQWhoAmI,),
    OpCode.USER_CREATE: (FlyMQUserCreate, FlyMQUserCreateShort),
    OpCode.USER_DELETE: (FlyMQUserDelete,),
    OpCode.USER_UPDATE: (FlyMQUserUpdate, FlyMQUserUpdateShort),
    OpCode.USER_LIST: (FlyMQUserList,),
    OpCode.USER_GET: (FlyMQUserGet,),
    OpCode.ACL_SET: (FlyMQAclSet,),
    OpCode.ACL_GET: (FlyMQAclGet,),
    OpCode.ACL_DELETE: (FlyMQAclDelete,),
    OpCode.ACL_LIST: (FlyMQAclList,),
    OpCode.PASSWORD_CHANGE: (FlyMQPasswordChange, FlyMQPasswordChangeShort),
    OpCode.ROLE_LIST: (FlyMQRoleList,),
    OpCode.AUDIT_QUERY: (FlyMQAuditQuery,),
    OpCode.AUDIT_EXPORT: (FlyMQAuditExport,),
    # Java writes these; Python builds the same bytes and fails before it sends them.
    OpCode.SDK_AUDIT_QUERY: (Variant(FlyMQAuditQueryJava, "java"),),
    OpCode.SDK_AUDIT_EXPORT: (Variant(FlyMQAuditExportJava, "java"),),
}
_LEGACY = Variant(FlyMQProduceReplyLegacy, "legacy")
_LOGIN = (
    FlyMQAuthRefused,
    Variant(FlyMQAuthRefusedDoc, "doc"),
    FlyMQAuthResponse,
    Variant(FlyMQAuthResponseDoc, "doc"),
)
_REPLIES: Mapping[OpCode, Sequence[Variant | type]] = {
    OpCode.PRODUCE: (FlyMQProduceReply, _LEGACY),
    OpCode.CONSUME: (FlyMQConsumeReply,),
    OpCode.CREATE_TOPIC: (FlyMQCreateTopicReply, Variant(FlyMQCreateTopicReplyDoc, "doc")),
    OpCode.SUBSCRIBE: (FlyMQSubscribeReply,),
    OpCode.COMMIT: (FlyMQCommitReply,),
    OpCode.FETCH: (FlyMQFetchReply, Variant(FlyMQFetchReplyDoc, "doc")),
    OpCode.LIST_TOPICS: (FlyMQListTopicsReply,),
    OpCode.DELETE_TOPIC: (FlyMQDeleteTopicReply,),
    OpCode.CONSUME_ZERO_COPY: (FlyMQConsumeZeroCopyReply,),
    OpCode.FETCH_BINARY: (FlyMQFetchBinaryReply, Variant(FlyMQFetchReplyDoc, "doc")),
    OpCode.REGISTER_SCHEMA: (FlyMQRegisterSchemaReply,),
    OpCode.GET_SCHEMA: (FlyMQGetSchemaReply,),
    OpCode.LIST_SCHEMAS: (FlyMQListSchemasReply,),
    OpCode.VALIDATE_SCHEMA: (FlyMQValidateSchemaReply,),
    OpCode.PRODUCE_WITH_SCHEMA: (FlyMQProduceWithSchemaReply, _LEGACY),
    OpCode.DELETE_SCHEMA: (FlyMQDeleteSchemaReply,),
    OpCode.FETCH_DLQ: (FlyMQFetchDlqReply,),
    OpCode.REPLAY_DLQ: (FlyMQReplayDlqReply,),
    OpCode.PURGE_DLQ: (FlyMQPurgeDlqReply,),
    OpCode.PRODUCE_DELAYED: (FlyMQProduceDelayedReply, _LEGACY),
    OpCode.PRODUCE_WITH_TTL: (FlyMQProduceWithTtlReply, _LEGACY),
    OpCode.TXN_BEGIN: (FlyMQTxnBeginReply,),
    OpCode.TXN_COMMIT: (FlyMQTxnCommitReply,),
    OpCode.TXN_ROLLBACK: (FlyMQTxnRollbackReply,),
    OpCode.TXN_PRODUCE: (FlyMQTxnProduceReply, _LEGACY),
    OpCode.CLUSTER_METADATA: (FlyMQClusterMetadataReply,),
    OpCode.GET_OFFSET: (FlyMQGetOffsetReply,),
    OpCode.RESET_OFFSET: (FlyMQResetOffsetReply,),
    OpCode.LIST_GROUPS: (FlyMQListGroupsReply,),
    OpCode.DESCRIBE_GROUP: (FlyMQDescribeGroupReply,),
    OpCode.GET_LAG: (FlyMQGetLagReply,),
    OpCode.DELETE_GROUP: (FlyMQDeleteGroupReply,),
    OpCode.AUTH: _LOGIN,  # the document lists the reply under AUTH; the code sends AUTH_RESPONSE (server.go:2602)
    OpCode.AUTH_RESPONSE: _LOGIN,
    OpCode.WHOAMI: (FlyMQWhoAmIReply,),
    OpCode.USER_CREATE: (FlyMQUserCreateReply,),
    OpCode.USER_DELETE: (FlyMQUserDeleteReply,),
    OpCode.USER_UPDATE: (FlyMQUserUpdateReply,),
    OpCode.USER_LIST: (FlyMQUserListReply,),
    OpCode.USER_GET: (FlyMQUserGetReply,),
    OpCode.ACL_SET: (FlyMQAclSetReply,),
    OpCode.ACL_GET: (FlyMQAclGetReply,),
    OpCode.ACL_DELETE: (FlyMQAclDeleteReply,),
    OpCode.ACL_LIST: (FlyMQAclListReply,),
    OpCode.PASSWORD_CHANGE: (FlyMQPasswordChangeReply,),
    OpCode.ROLE_LIST: (FlyMQRoleListReply,),
    OpCode.AUDIT_QUERY: (FlyMQAuditQueryReply,),
    OpCode.AUDIT_EXPORT: (FlyMQAuditExportReply,),
    # By content, never by flags: the text form takes whatever the two with lengths do not fill.
    OpCode.ERROR: (FlyMQErrorCoded, Variant(FlyMQErrorDoc, "doc"), FlyMQError),
}


def _layout(direction: Direction, header: type[Message], bodies: Mapping[OpCode, Sequence[Variant | type]]) -> Layout:
    from_client = direction == "c2s"
    return Layout(
        direction, direction, {int(op): variants for op, variants in bodies.items()}, header=header, op="opcode",
        names=NAMES, dialect="go", extra_column="extra" if from_client else None,
        on_bad="stop" if from_client else "search", packed=("flags", FLAG_COMPRESSED),
    )  # fmt: skip


_MAGIC = b"\xaf\x01"
_HEADER_SIZE = 8
_FLAGS_SEEN = (0, 1, 3)  # the SDKs' and the server's; others are served too, but prove less
_CLIENT_ONLY = frozenset({OpCode.AUTH})
_SERVER_ONLY = frozenset({OpCode.AUTH_RESPONSE, OpCode.ERROR})
_ONE_BYTE_REPLIES = frozenset(
    {OpCode.CREATE_TOPIC, OpCode.COMMIT, OpCode.DELETE_TOPIC, OpCode.RESET_OFFSET, OpCode.DELETE_GROUP}
)
_EIGHT_BYTE_REPLIES = frozenset({OpCode.SUBSCRIBE, OpCode.GET_OFFSET})
_PLAUSIBLE_MS = range(946_684_800_000, 4_102_444_800_000)  # the years 2000 to 2099


def _headers(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Operation and payload of the whole messages that follow each other from ``at`` on."""
    while data[at : at + 2] == _MAGIC and len(data) >= at + _HEADER_SIZE:
        end = at + _HEADER_SIZE + int.from_bytes(data[at + 4 : at + 8], "big")
        if end > len(data):
            return
        yield data[at + 2], data[at + _HEADER_SIZE : end]
        at = end


def _answers_produce(body: bytes) -> bool:
    """Whether a PRODUCE payload that may be a request or a reply is a plausible reply."""
    n = 2 + int.from_bytes(body[:2], "big")
    if len(body) != n + 28:
        return False
    partition, timestamp, key_size, value_size = (
        int.from_bytes(body[n + at : n + at + size], "big", signed=True)
        for at, size in ((0, 4), (12, 8), (20, 4), (24, 4))
    )
    return partition >= 0 and timestamp in _PLAUSIBLE_MS and key_size >= -1 and value_size >= 0


def _speaker(data: bytes, at: int) -> Direction | None:
    """Which direction the messages from ``at`` on flow, by what only one side sends; None if they do not say."""
    for op, body in _headers(data, at):
        if op in _CLIENT_ONLY or not body:
            return "c2s"
        if op in _SERVER_ONLY:
            return "s2c"
        if (len(body) == 1 and op in _ONE_BYTE_REPLIES) or (len(body) == 8 and op in _EIGHT_BYTE_REPLIES):
            return "s2c"
        if op == OpCode.PRODUCE and _answers_produce(body):
            return "s2c"
    return None


def _flow(opening: Opening, side: Direction) -> tuple[Direction | None, bool]:
    """Which direction a side's bytes seem to flow, None if unknown, and whether they are FlyMQ at all.

    Both layouts are searched for; where both fit from the same place on, only an empty topic or a PRODUCE whose
    lengths add up makes a reply fit a request (protocol notes, Direction), so the request is believed there.
    """
    data = opening.c2s if side == "c2s" else opening.s2c
    found = {d: opening.find_run(side, d, 2) for d in ("c2s", "s2c")} if data else {}
    places = {d: at for d, at in found.items() if at is not None}
    if not places:
        return None, False
    first = min(places.values())
    spoken = _speaker(data, first)
    if spoken is not None:
        return spoken, True
    fitting = [d for d, at in places.items() if at == first]
    if len(fitting) == 1:
        return ("c2s" if fitting[0] == "c2s" else "s2c"), True
    return ("c2s" if any(body[:2] != b"\0\0" for _, body in _headers(data, first)) else "s2c"), True


def _begins(data: bytes, limit: int, ended: bool) -> Verdict:
    """What the first bytes of a side say, when they are the first of the connection."""
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
    verdict, reason = _verdict(opening)
    if verdict is Verdict.NO and opening.decode_as:
        verdict = Verdict.LIKELY
    return Claim(verdict, "c2s", "s2c", reason)


def _verdict(opening: Opening) -> tuple[Verdict, str]:
    if opening.c2s_start and opening.c2s:
        return _begins(opening.c2s, MAX_MESSAGE_SIZE, opening.c2s_ended), "the first request's header"
    if opening.s2c_start and opening.s2c:
        verdict = _begins(opening.s2c, MAX_REPLY_SIZE, opening.s2c_ended)
        if verdict is not Verdict.YES or opening.s2c[4:8] != bytes(4):
            return verdict, "the first reply's header"
        return Verdict.NO, "an empty first reply"
    client, client_fits = _flow(opening, "c2s")
    server, server_fits = _flow(opening, "s2c")
    if client == "s2c" or server == "c2s":
        return Verdict.NO, "the other side is the client"
    if client_fits or server_fits:
        return Verdict.YES, "messages in a row"
    if opening.c2s_ended and opening.s2c_ended:
        return Verdict.NO, "no messages in a row"
    return Verdict.WAIT, "no messages in a row yet"


def _names_in(structs: pa.ListArray, field: str) -> pa.ListArray:
    """The lists of one text field of lists of structs."""
    lengths = pc.fill_null(pc.list_value_length(structs), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    names = structs.flatten().field(field)
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pc.is_null(structs))


def _inner_values(raw: Raw) -> pa.Array:
    """The values out of stored records: server.go sends the whole record, so its framing is inside the value.

    A nested record has the outer key, and its two lengths fill the value (record.go:55-75). Unwrapped once, not more.
    """
    op, _ = raw.numbers("opcode")
    start, length = raw.spans("value")
    key_start, key_length = raw.spans("key")
    replies = raw.layout == list(raw.layout_names).index("s2c")
    large = replies & (op == OpCode.CONSUME_ZERO_COPY) & (length >= WRAPPED_FROM + 8)
    rows = np.flatnonzero(large).tolist()
    if not rows:
        return pa.nulls(raw.n, pa.binary())
    values: list[bytes | None] = [None] * raw.n
    view = memoryview(raw.buffer)
    for row in rows:
        at, end, n = int(start[row]), int(start[row] + length[row]), int(key_length[row])
        key = bytes(view[key_start[row] : key_start[row] + n])
        inner = at + 4 + n + 4
        if view[at : at + 4 + n] != n.to_bytes(4, "big") + key or inner > end:
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
        "topics": pc.coalesce(raw.array("topics"), _names_in(raw.array("topic_partitions"), "topic")),
        "roles": pc.coalesce(raw.array("roles"), _names_in(raw.array("role_list"), "name")),
        "inner_value": _inner_values(raw),
    }


def _record_bytes(records: pa.ListArray) -> pa.Array:
    """The sum of the values' lengths of each list of records."""
    lengths = pc.fill_null(pc.binary_length(records.flatten().field("value")), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
    counts = pc.fill_null(pc.list_value_length(records), 0).to_numpy(zero_copy_only=False)
    places = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
    sums = ends[places[1:]] - ends[places[:-1]]
    return pa.array(sums, pa.int64(), mask=pc.is_null(records).to_numpy(zero_copy_only=False))


def envelope(table: pa.Table) -> Mapping[str, pa.Array]:
    """status, error_text, and the bytes of the values carried."""
    columns = {name: table[name].combine_chunks() for name in ("value", "records", "message", "success")}
    replies = is_in(table["direction"], "s2c")
    is_error = replies & is_in(table["op_code"], int(OpCode.ERROR))
    refused = replies & true(pc.invert(columns["success"]))
    return {
        "status": case_when({"ok": replies, "error": is_error | refused}),
        "error_text": pc.if_else(pa.array(is_error), columns["message"], pa.scalar(None, pa.string())),
        "body_len": pc.coalesce(pc.binary_length(columns["value"]).cast(pa.int64()), _record_bytes(columns["records"])),
    }


def keys(requests: pa.Table, replies: pa.Table, prints: Prints) -> tuple[Keys, Keys]:
    """A PRODUCE is answered with the place of its message; CONSUME names a place, FETCH replies carry offsets.

    Only the reply of PRODUCE itself can be trusted: those of the other producing operations say partition 0 always
    (server.go:2186-2193). A place produced twice in one input (topic deleted and made again) is doubtful.
    """
    granted = is_in(replies["status"], "ok") & true(pc.is_valid(requests["f.topic"]))
    topic = prints(requests["f.topic"])

    def lanes(wanted: Sequence[OpCode], partitions: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        known = true(pc.is_valid(partitions["f.partition"]))
        rows = np.flatnonzero(granted & known & is_in(requests["op"], *(NAMES[op] for op in wanted)))
        number = pc.fill_null(partitions["f.partition"].combine_chunks(), -1).cast(pa.int64()).to_numpy()
        return rows, (topic * 1_000_003 + number)[rows]

    produce, produced = lanes([OpCode.PRODUCE], replies)
    consume, consumed = lanes([OpCode.CONSUME, OpCode.CONSUME_ZERO_COPY], requests)
    fetch, fetched = lanes([OpCode.FETCH, OpCode.FETCH_BINARY], requests)
    place, asked = replies["f.offset"].combine_chunks(), requests["f.offset"].combine_chunks()
    records = replies["f.records.offset"].combine_chunks().take(pa.array(fetch))
    counts = pc.fill_null(pc.list_value_length(records), 0).to_numpy(zero_copy_only=False)
    offsets = [low_words(place.take(pa.array(produce))), low_words(asked.take(pa.array(consume)))]
    published = np.flatnonzero(true(pc.is_valid(place.take(pa.array(produce)))))
    named = np.flatnonzero(true(pc.is_valid(asked.take(pa.array(consume)))))
    partition = pc.fill_null(replies["f.partition"].combine_chunks(), 0).cast(pa.int64()).to_numpy()
    out = Keys(produce[published], _placed(produced, offsets[0])[published], partition[produce[published]])
    fetched_at = low_words(records.flatten())
    rows = np.concatenate([consume[named], np.repeat(fetch, counts)])
    key = np.concatenate([_placed(consumed, offsets[1])[named], _placed(np.repeat(fetched, counts), fetched_at)])
    return out, Keys(rows, key, np.concatenate([offsets[1][named], fetched_at]))


def _placed(lane: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.int64]:
    return lane * 1_000_003 + offset


def offset_text(_: pa.Table, offset: NDArray[np.int64]) -> pa.Array:
    """The offset."""
    return pa.array(offset.view(np.uint64)).cast(pa.string())


def place_text(offset: pa.Array, partition: NDArray[np.int64]) -> pa.Array:
    """``partition:offset``."""
    return pc.binary_join_element_wise(pa.array(partition).cast(pa.string()), offset, ":")


def _names(*ops: OpCode) -> frozenset[str]:
    return frozenset(NAMES[op] for op in ops)


_AUTH_REPLIES = _names(OpCode.AUTH_RESPONSE, OpCode.AUTH)
RULE = Rule(
    asks={name: RequestRule("always", frozenset({name})) for name in NAMES.values()}
    | {NAMES[OpCode.AUTH]: RequestRule("always", _AUTH_REPLIES)},
    otherwise=RequestRule("always", frozenset({NAMES[OpCode.ERROR]})),
    errors=frozenset({NAMES[OpCode.ERROR]}),
    columns=("topic", "partition", "offset", "records.offset"),
    deliveries=DeliveryRule("offset", keys, offset_text, of_pairs=True, whole=place_text),
)

PROTOCOL = MessageQueue(
    name="flymq",
    title="FlyMQ",
    ports=(PORT,),
    dialects=("go", "doc", "legacy", "python", "java"),
    layouts=(_layout("c2s", FlyMQRequest, _REQUESTS), _layout("s2c", FlyMQ, _REPLIES)),
    claims=claims,
    spare={"extra": 1},
    recognised="a connection that begins with AF 01, a known opcode and a plausible length, or two messages in a row",
    envelope=Envelope(
        destination="topic",
        group_name="group_id",
        client_name="username",
        partition_id="partition",
        body="value",
        error_code="code",
        derive=envelope,
    ),
    rule=RULE,
    roles=Roles(
        publish=_names(
            OpCode.PRODUCE,
            OpCode.PRODUCE_WITH_SCHEMA,
            OpCode.PRODUCE_DELAYED,
            OpCode.PRODUCE_WITH_TTL,
            OpCode.TXN_PRODUCE,
        ),
        deferred=_names(OpCode.PRODUCE_DELAYED, OpCode.TXN_PRODUCE),
        poll=_names(OpCode.CONSUME, OpCode.CONSUME_ZERO_COPY, OpCode.FETCH, OpCode.FETCH_BINARY),
        subscribe=_names(OpCode.SUBSCRIBE),
        ack=_names(OpCode.COMMIT),
        position=_names(OpCode.GET_OFFSET, OpCode.RESET_OFFSET),
        login=_names(OpCode.AUTH),
        account=_names(
            OpCode.USER_CREATE, OpCode.USER_DELETE, OpCode.USER_UPDATE, OpCode.USER_GET, OpCode.PASSWORD_CHANGE
        ),
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
