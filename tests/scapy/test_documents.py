"""Every message of every document in Scapy: built from values, read alone and in TCP.

The documents are those of the five protocols; the bytes were made by hand from their tables, or are the upstream
encoders' (``tests/vectors/flymq.json``) where a document names an operation and no layout. ``python
tests/scapy/test_documents.py`` prints what is covered.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

import mqpcap.scapy
from mqpcap.protocols import flymq, protocols
from mqpcap.protocols.blipmq import (
    BlipMQ,
    BlipMQAck,
    BlipMQAuth,
    BlipMQHello,
    BlipMQNack,
    BlipMQPing,
    BlipMQPoll,
    BlipMQPong,
    BlipMQPublish,
    BlipMQSubscribe,
)
from mqpcap.protocols.fq import (
    FqAuth,
    FqAuthResponse,
    FqBind,
    FqBindRequest,
    FqCommand,
    FqConnect,
    FqConnectCommand,
    FqConnectData,
    FqConnectPeerOld,
    FqError,
    FqHeartbeat,
    FqHeartbeatRequest,
    FqMessage,
    FqMessageShort,
    FqQueueDetail,
    FqStatus,
    FqStatusRequest,
    FqStatusValue,
    FqUnbind,
    FqUnbindRequest,
)
from mqpcap.protocols.kokaq import (
    Kokaq,
    KokaqAnswer,
    KokaqEntry,
    KokaqMetadata,
    KokaqPayload,
    KokaqRequest,
    KokaqSimple,
)
from mqpcap.protocols.msgq import (
    MsgQ,
    MsgQFlat,
    MsgQGetlname,
    MsgQLname,
    MsgQSend,
    MsgQStats,
    MsgQStatsReply,
    MsgQSubscribe,
    MsgQUnsubscribe,
)
from mqpcap.schema import fields
from mqpcap.schema.message import Message

VECTORS = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "flymq.json").read_text())


class Said(NamedTuple):
    """A message of a document: its name, who sends it, how it is built, its bytes; or why it has no class."""

    protocol: str
    name: str
    direction: str
    message: Packet | None
    bytes_hex: str = ""
    why_not: str = ""

    @property
    def raw(self) -> bytes:
        """The bytes."""
        return bytes.fromhex(self.bytes_hex)


def blipmq(name: str, direction: str, number: int, body: Packet, bytes_hex: str) -> Said:
    return Said("blipmq", name, direction, BlipMQ(correlation_id=number) / body, bytes_hex)


# PROTOCOL.md: length (type, id and payload), type, id, payload; the samples at its end are the first five.
BLIPMQ = [
    blipmq("HELLO", "c2s", 1, BlipMQHello(protocol_version=1), "0000000b 01 0000000000000001 0001"),
    blipmq("AUTH", "c2s", 2, BlipMQAuth(api_key="dev-key"), "00000012 02 0000000000000002 0007 6465762d6b6579"),
    blipmq("SUBSCRIBE", "c2s", 3, BlipMQSubscribe(topic="demo", qos=1),
           "00000010 04 0000000000000003 0004 64656d6f 01"),
    blipmq(
        "PUBLISH", "c2s", 4, BlipMQPublish(qos=1, topic="demo", body="hi"),
        "00000012 03 0000000000000004 01 0004 64656d6f 6869",
    ),
    blipmq("ACK of a SUBSCRIBE", "s2c", 3, BlipMQAck(subscription_id=42),
           "00000011 05 0000000000000003 000000000000002a"),
    blipmq(
        "PUBLISH, delivered", "s2c", 9, BlipMQPublish(qos=0, topic="demo", body="hi"),
        "00000012 03 0000000000000009 00 0004 64656d6f 6869",
    ),
    blipmq("ACK of a delivery", "c2s", 7, BlipMQAck(subscription_id=42),
           "00000011 05 0000000000000007 000000000000002a"),
    blipmq(
        "NACK", "s2c", 5, BlipMQNack(error_code=404, error_text="no"), "0000000f 06 0000000000000005 0194 0002 6e6f",
    ),
    blipmq("PING", "c2s", 6, BlipMQPing(), "00000009 07 0000000000000006"),
    blipmq("PONG", "s2c", 6, BlipMQPong(), "00000009 08 0000000000000006"),
    blipmq("POLL", "c2s", 8, BlipMQPoll(subscription_id=42), "00000011 09 0000000000000008 000000000000002a"),
]  # fmt: skip


def fq(name: str, direction: str, message: Packet, bytes_hex: str) -> Said:
    return Said("fq", name, direction, message, bytes_hex)


# The document's prefixes and tables. Where it errs the source is followed (fq_client.c): the exchange of a bind has a
# length of its own, a status value has four bytes, an error a length of two.
FQ = [
    fq("command socket", "c2s", FqConnect(word="COMMAND") / FqConnectCommand(), "cc50cafe"),
    fq("data socket", "c2s", FqConnect() / FqConnectData(client_key="k1"), "cc50face 0002 6b31"),
    fq("peer socket", "c2s", FqConnect(word="PEER_OLD") / FqConnectPeerOld(client_key="k"),
       "cc50fade 0001 6b"),
    fq("error", "s2c", FqCommand() / FqError(error_text="no"), "eeee 0002 6e6f"),
    fq("heartbeat", "c2s", FqCommand() / FqHeartbeat(), "bea7"),
    fq(
        "plain auth", "c2s",
        FqCommand() / FqAuth(user="u", queue_detail=FqQueueDetail(queue="q", queue_type="mem"), password="pw"),
        "aaaa 0000 0001 75 0005 71 00 6d656d 0002 7077",
    ),
    fq("auth response", "s2c", FqCommand() / FqAuthResponse(client_key="abc"), "aa00 0003 616263"),
    fq("heartbeat request", "c2s", FqCommand() / FqHeartbeatRequest(interval_ms=500), "4848 01f4"),
    fq(
        "bind request", "c2s", FqCommand() / FqBindRequest(bind_flags=1, exchange="ex", program="prefix:a"),
        "b170 0001 0002 6578 0008 7072656669783a61",
    ),
    fq("bind", "s2c", FqCommand() / FqBind(binding_id=7), "b171 00000007"),
    fq("unbind request", "c2s", FqCommand() / FqUnbindRequest(binding_id=7, exchange="ex"), "071b 00000007 0002 6578"),
    fq("unbind", "s2c", FqCommand() / FqUnbind(binding_id=7), "171b 00000007"),
    fq("status request", "c2s", FqCommand() / FqStatusRequest(), "c7a7"),
    fq(
        "status", "s2c",
        FqCommand() / FqStatus(status_values=[FqStatusValue(name_="a", value=1), FqStatusValue(name_="bc", value=2)]),
        "57a7 0001 61 00000001 0002 6263 00000002 0000",
    ),
    fq(
        "message to the server", "c2s",
        FqMessageShort(exchange="ex", route_="r", message_id=bytes(range(16)), body="hi"),
        "02 6578 01 72 000102030405060708090a0b0c0d0e0f 00000002 6869",
    ),
    fq(
        "message in peer mode", "c2s",
        FqMessage(exchange="ex", route_="r", message_id=bytes(range(16)), sender="me", hops=["10.0.0.1"], body="hi"),
        "02 6578 01 72 000102030405060708090a0b0c0d0e0f 02 6d65 01 0a000001 00000002 6869",
    ),
    fq(
        "message from the server", "s2c",
        FqMessage(exchange="ex", route_="r", message_id=bytes(range(16)), sender="me", hops=["10.0.0.1"], body="hi"),
        "02 6578 01 72 000102030405060708090a0b0c0d0e0f 02 6d65 01 0a000001 00000002 6869",
    ),
]  # fmt: skip


def kokaq(name: str, direction: str, message: Packet, bytes_hex: str) -> Said:
    return Said("kokaq", name, direction, message, bytes_hex)


REQUEST = {"opaque": 0x10, "opcode": "Get", "client": "QueueService", "op_opaque": 0x11}
ANSWER = {"opaque": 0x10, "opcode": "Get", "status": "Success", "reason": "Ok", "op_opaque": 0x11}
ENTRY = KokaqEntry(tag="TimeToLive", value=b"\0\0\xea\x60")
# The pictures of the document; byte 3 is type and RQ, bits from the left; tag 1 metadata, 2 payload (its legend).
KOKAQ = [
    kokaq("simple request", "c2s", KokaqRequest(**REQUEST) / KokaqSimple(), "0420 01 06 00000010 03 02 11 00"),
    kokaq(
        "request with payload", "c2s", KokaqRequest(**REQUEST) / KokaqPayload(namespace="ns", queue="que", body="hi"),
        "0420 01 06 00000010 03 02 11 02  02 0420 00 02 03 0002 6e73 717565 6869",
    ),
    kokaq(
        "request with metadata", "c2s", KokaqRequest(**REQUEST) / KokaqMetadata(metadata=[ENTRY]),
        "0420 01 06 00000010 03 02 11 01  01 0420 00 00000001 01 04 0000ea60",
    ),
    kokaq("simple response", "s2c", KokaqAnswer(**ANSWER) / KokaqSimple(), "0420 01 05 00000010 03 01 11 00"),
    kokaq(
        "response with payload", "s2c", KokaqAnswer(**ANSWER) / KokaqPayload(namespace="ns", queue="que", body="hi"),
        "0420 01 05 00000010 03 01 11 02  02 0420 00 02 03 0002 6e73 717565 6869",
    ),
    kokaq(
        "response with metadata", "s2c", KokaqAnswer(**ANSWER) / KokaqMetadata(metadata=[ENTRY]),
        "0420 01 05 00000010 03 01 11 01  01 0420 00 00000001 01 04 0000ea60",
    ),
]  # fmt: skip


def msgq(name: str, direction: str, message: Packet, pairs_hex: str) -> Said:
    """The length and the magic are put in front of the pairs."""
    pairs = bytes.fromhex(pairs_hex)
    return Said("msgq", name, direction, MsgQ() / message, ((4 + len(pairs)).to_bytes(4) + b"Skan" + pairs).hex())


SEND = {"from_": "a", "to": "*", "group": "g", "instance": "*", "seq": 1, "msg": "hi"}
SENT = (
    "04 74797065 21 04 73656e64  04 66726f6d 21 01 61  02 746f 21 01 2a  05 67726f7570 21 01 67"
    " 08 696e7374616e6365 21 01 2a  03 736571 21 01 31  03 6d7367 21 02 6869"
)
# A tag with its length, then the item: 0x21 is data with a length of one byte.
MSGQ = [
    msgq("getlname", "c2s", MsgQGetlname(), "04 74797065 21 08 6765746c6e616d65"),
    msgq("getlname, the answer", "s2c", MsgQLname(lname="a@b"), "05 6c6e616d65 21 03 614062"),
    msgq("send", "c2s", MsgQSend(**SEND), SENT),
    msgq("send, received", "s2c", MsgQSend(**SEND), SENT),
    msgq(
        "subscribe", "c2s", MsgQSubscribe(group="g", instance="*", subtype="normal"),
        "04 74797065 21 09 737562736372696265  05 67726f7570 21 01 67  08 696e7374616e6365 21 01 2a"
        " 07 73756274797065 21 06 6e6f726d616c",
    ),
    msgq(
        "unsubscribe", "c2s", MsgQUnsubscribe(group="g", instance="*"),
        "04 74797065 21 0b 756e737562736372696265  05 67726f7570 21 01 67  08 696e7374616e6365 21 01 2a",
    ),
    msgq("stats", "c2s", MsgQStats(), "04 74797065 21 05 7374617473"),
    msgq("stats, the answer", "s2c", MsgQStatsReply(stats="x"), "05 7374617473 21 01 78"),
]  # fmt: skip


# -- FlyMQ -------------------------------------------------------------------------------------------------

# The layouts that the document draws: header (magic, version, operation, flags, length), payload.
FLYMQ_DRAWN = {
    ("PRODUCE", "c2s"): (
        flymq.FlyMQProduce(topic="test", value="hello"),
        "af010101 00000017 0004 74657374 00000000 00000005 68656c6c6f ffffffff",
    ),
    ("PRODUCE", "s2c"): (
        flymq.FlyMQProduceReply(topic="test", offset=42, timestamp_ms=0x018D5A3B2C00, key_size=-1, value_size=5),
        "af010101 00000022 0004 74657374 00000000 000000000000002a 0000018d5a3b2c00 ffffffff 00000005",
    ),
    ("CONSUME", "c2s"): (
        flymq.FlyMQConsume(topic="t", partition=1, offset=2), "af010201 0000000f 0001 74 00000001 0000000000000002",
    ),
    ("CONSUME", "s2c"): (
        flymq.FlyMQConsumeReply(key="k", value="hi"), "af010201 0000000b 00000001 6b 00000002 6869",
    ),
    ("FETCH", "c2s"): (
        flymq.FlyMQFetch(topic="t", partition=1, offset=2, max_messages=3),
        "af010701 00000013 0001 74 00000001 0000000000000002 00000003",
    ),
    ("FETCH", "s2c"): (
        flymq.FlyMQFetchReplyDoc(records=[flymq.FlyMQRecordDoc(key="k", value="hi", offset=7)], next_offset=8),
        "af010701 0000001f 00000001 00000001 6b 00000002 6869 0000000000000007 0000000000000008",
    ),
    ("CREATE_TOPIC", "c2s"): (flymq.FlyMQCreateTopic(topic="t", partitions=3), "af010301 00000007 0001 74 00000003"),
    ("CREATE_TOPIC", "s2c"): (
        flymq.FlyMQCreateTopicReplyDoc(success=True, message="ok"), "af010301 00000005 01 0002 6f6b",
    ),
    ("SUBSCRIBE", "c2s"): (
        flymq.FlyMQSubscribeDoc(topic="t", group_id="g", partition=1, mode="latest"),
        "af010501 00000012 0001 74 0001 67 00000001 0006 6c6174657374",
    ),
    ("SUBSCRIBE", "s2c"): (flymq.FlyMQSubscribeReply(offset=9), "af010501 00000008 0000000000000009"),
    ("AUTH", "c2s"): (flymq.FlyMQAuth(username="u", password="p"), "af017001 00000006 0001 75 0001 70"),
    ("AUTH_RESPONSE", "s2c"): (
        flymq.FlyMQAuthResponseDoc(success=True, error="", username="u", roles=["admin"]),
        "af017101 00000011 01 0000 0001 75 00000001 0005 61646d696e",
    ),
    ("ERROR", "s2c"): (flymq.FlyMQErrorDoc(success=False, message="no"), "af01ff01 00000005 00 0002 6e6f"),
    # Operations without a payload, and what no client of the repository sends: by the document's encodings.
    ("METADATA", "c2s"): (flymq.FlyMQMetadata(topic="t"), "af010401 00000003 0001 74"),
    ("CLUSTER_JOIN", "c2s"): (flymq.FlyMQClusterJoin(peer="b:1"), "af015001 00000005 0003 623a31"),
    ("CLUSTER_LEAVE", "c2s"): (flymq.FlyMQClusterLeave(), "af015101 00000000"),
    # The source's encoders (binary.go), where no vector has the operation.
    ("DELETE_TOPIC", "c2s"): (flymq.FlyMQDeleteTopic(topic="t"), "af010901 00000003 0001 74"),
    ("CONSUME_ZERO_COPY", "s2c"): (
        flymq.FlyMQConsumeZeroCopyReply(key="k", value="hi"), "af010a01 0000000b 00000001 6b 00000002 6869",
    ),
    ("FETCH_BINARY", "c2s"): (
        flymq.FlyMQFetchBinary(topic="t", partition=1, offset=2, max_messages=3),
        "af010b01 00000013 0001 74 00000001 0000000000000002 00000003",
    ),
    ("FETCH_BINARY", "s2c"): (
        flymq.FlyMQFetchBinaryReply(records=[flymq.FlyMQRecord(offset=7, key="k", value="hi")], next_offset=8),
        "af010b01 0000001f 00000001 0000000000000008 0000000000000007 00000001 6b 00000002 6869",
    ),
    ("GET_SCHEMA", "c2s"): (flymq.FlyMQGetSchema(topic="t", version=2), "af011101 00000007 0001 74 00000002"),
    ("DELETE_SCHEMA", "c2s"): (flymq.FlyMQDeleteSchema(topic="t", version=2), "af011501 00000007 0001 74 00000002"),
    ("REPLAY_DLQ", "s2c"): (flymq.FlyMQReplayDlqReply(success=True, message="ok"), "af012101 00000005 01 0002 6f6b"),
    ("TXN_COMMIT", "c2s"): (flymq.FlyMQTxnCommit(txn_id="x1"), "af014101 00000004 0002 7831"),
    ("TXN_COMMIT", "s2c"): (flymq.FlyMQTxnCommitReply(txn_id="x1", success=True), "af014101 00000005 0002 7831 01"),
    ("TXN_ROLLBACK", "c2s"): (flymq.FlyMQTxnRollback(txn_id="x1"), "af014201 00000004 0002 7831"),
    ("GET_OFFSET", "s2c"): (flymq.FlyMQGetOffsetReply(offset=9), "af016001 00000008 0000000000000009"),
    ("RESET_OFFSET", "s2c"): (flymq.FlyMQResetOffsetReply(success=True), "af016101 00000001 01"),
    ("DESCRIBE_GROUP", "s2c"): (
        flymq.FlyMQDescribeGroupReply(topic="t", group_id="g", members=2),
        "af016301 0000000e 0001 74 0001 67 00000002 00000000",
    ),
    ("GET_LAG", "c2s"): (
        flymq.FlyMQGetLag(topic="t", group_id="g", partition=1), "af016401 0000000a 0001 74 0001 67 00000001",
    ),
    ("GET_LAG", "s2c"): (
        flymq.FlyMQGetLagReply(current_offset=1, committed_offset=2, latest_offset=3, lag=4),
        "af016401 00000020 0000000000000001 0000000000000002 0000000000000003 0000000000000004",
    ),
    ("USER_UPDATE", "c2s"): (
        flymq.FlyMQUserUpdate(username="u", password="p", roles=["r"], enabled=True),
        "af017501 00000010 0001 75 0001 70 0000 00000001 0001 72 01",
    ),
    ("USER_UPDATE", "s2c"): (flymq.FlyMQUserUpdateReply(success=True, message="ok"), "af017501 00000005 01 0002 6f6b"),
    ("USER_LIST", "s2c"): (
        flymq.FlyMQUserListReply(users=[flymq.FlyMQUser(username="u", roles=["r"], enabled=True, created_at_s=5)]),
        "af017601 00000023 00000001 0001 75 00000001 0001 72 00000000 01 0000000000000005 0000000000000000",
    ),
    ("USER_GET", "c2s"): (flymq.FlyMQUserGet(username="u"), "af017701 00000003 0001 75"),
    ("USER_GET", "s2c"): (
        flymq.FlyMQUserGetReply(username="u", roles=["r"], enabled=True, created_at_s=5),
        "af017701 0000001f 0001 75 00000001 0001 72 00000000 01 0000000000000005 0000000000000000",
    ),
    ("ACL_SET", "s2c"): (flymq.FlyMQAclSetReply(success=True, topic="t"), "af017801 00000004 01 0001 74"),
    ("ACL_GET", "c2s"): (flymq.FlyMQAclGet(topic="t"), "af017901 00000003 0001 74"),
    ("ROLE_LIST", "c2s"): (flymq.FlyMQRoleList(), "af017d01 00000000"),
}  # fmt: skip
UNHANDLED = "no server handles it and no document draws it; its answer is ERROR"
FLYMQ_WITHOUT = {
    ("CANCEL_DELAYED", "c2s"): UNHANDLED, ("CLUSTER_STATUS", "c2s"): UNHANDLED, ("SEEK_TO_TIMESTAMP", "c2s"): UNHANDLED,
    ("METADATA", "s2c"): "no server handles METADATA: the answer is ERROR",
    ("CLUSTER_JOIN", "s2c"): "no server handles CLUSTER_JOIN: the answer is ERROR",
    ("CLUSTER_LEAVE", "s2c"): "no server handles CLUSTER_LEAVE: the answer is ERROR",
}  # fmt: skip
# The tables of "Operation Codes" of the document.
FLYMQ_OPERATIONS = """
    PRODUCE CONSUME CREATE_TOPIC METADATA SUBSCRIBE COMMIT FETCH LIST_TOPICS DELETE_TOPIC CONSUME_ZERO_COPY
    FETCH_BINARY REGISTER_SCHEMA GET_SCHEMA LIST_SCHEMAS VALIDATE_SCHEMA PRODUCE_WITH_SCHEMA DELETE_SCHEMA
    FETCH_DLQ REPLAY_DLQ PURGE_DLQ PRODUCE_DELAYED CANCEL_DELAYED PRODUCE_WITH_TTL TXN_BEGIN TXN_COMMIT
    TXN_ROLLBACK TXN_PRODUCE CLUSTER_JOIN CLUSTER_LEAVE CLUSTER_STATUS GET_OFFSET RESET_OFFSET LIST_GROUPS
    DESCRIBE_GROUP GET_LAG DELETE_GROUP SEEK_TO_TIMESTAMP AUTH AUTH_RESPONSE WHOAMI USER_CREATE USER_DELETE
    USER_UPDATE USER_LIST USER_GET ACL_SET ACL_GET ACL_DELETE ACL_LIST PASSWORD_CHANGE ROLE_LIST ERROR
""".split()  # noqa: SIM905 - a list of words
# AUTH is answered by AUTH_RESPONSE; of what no server handles one row says why.
ONE_WAY = {
    "AUTH": "c2s", "AUTH_RESPONSE": "s2c", "ERROR": "s2c", "CANCEL_DELAYED": "c2s", "CLUSTER_STATUS": "c2s",
    "SEEK_TO_TIMESTAMP": "c2s",
}  # fmt: skip
ALIASES = {
    "records": "messages", "data": "message", "schema": "definition", "role_list": "roles",
    "topic_partitions": "topics",
}  # fmt: skip


def of_vector(vector: dict[str, Any], direction: str) -> Packet:
    """The message of an upstream vector, built from its values."""
    raw = bytes.fromhex(vector["frame_hex"])
    cls = type(flymq.FlyMQ.read(raw, direction).payload)
    return flymq.FlyMQ(flags=vector["flags"], opcode=vector["opcode"]) / built(cls, vector["values"])


def built(cls: type[Message], values: dict[str, Any]) -> Message:
    """A message with these values; hex where the file's conventions say bytes."""
    given = {}
    for kind in fields.flat_fields(cls):
        name = kind.name.rstrip("_")
        value = values.get(name, values.get(ALIASES.get(name, "")))
        if value is None:
            continue
        if isinstance(kind, fields.Nested):
            value = built(kind.message, value)
        elif isinstance(kind, fields.Array) and isinstance(kind.item, type):
            value = [built(kind.item, one) for one in value]
        elif (isinstance(kind, fields.Bytes) or name == "definition") and isinstance(value, str):
            value = bytes.fromhex(value)
        given[kind.name] = value
    return cls(**given)


def flymq_messages() -> Iterator[Said]:
    """Each operation of the document in each direction."""
    by_op: dict[tuple[str, str], dict[str, Any]] = {}
    for direction, vectors in (("c2s", VECTORS["requests"]), ("s2c", VECTORS["responses"])):
        for vector in vectors:
            by_op.setdefault((vector["opcode_name"], direction), vector)
    for operation in FLYMQ_OPERATIONS:
        for direction in ("c2s", "s2c"):
            key = operation, direction
            if ONE_WAY.get(operation, direction) != direction:
                continue
            if key in FLYMQ_DRAWN:
                body, bytes_hex = FLYMQ_DRAWN[key]
                yield Said("flymq", operation, direction, flymq.FlyMQ(opcode=operation) / body, bytes_hex)
            elif key in by_op:
                vector = by_op[key]
                yield Said("flymq", operation, direction, of_vector(vector, direction), vector["frame_hex"])
            else:
                yield Said("flymq", operation, direction, None, why_not=FLYMQ_WITHOUT.get(key, ""))


ALL = [*FQ, *KOKAQ, *flymq_messages(), *BLIPMQ, *MSGQ]
WITH_CLASS = [one for one in ALL if one.message is not None]
TOPS = {"blipmq": BlipMQ, "flymq": flymq.FlyMQ, "kokaq": Kokaq, "msgq": MsgQ}


def alone(one: Said) -> Packet:
    """The bytes read by the class that messages of the protocol begin with, sent in the direction."""
    assert one.message is not None
    return TOPS.get(one.protocol, type(one.message)).read(one.raw, one.direction)


def in_tcp(one: Said) -> Packet:
    """The bytes in a packet to or from the protocol's port, as Scapy reads it."""
    port = protocols()[one.protocol].ports[0]
    ends = {"dport": port, "sport": 40000} if one.direction == "c2s" else {"dport": 40000, "sport": port}
    return Ether(bytes(Ether() / IP() / TCP(**ends) / Raw(one.raw)))


def is_read(one: Said, packet: Packet) -> bool:
    """Whether a packet has the classes of the message, or newer forms of them; msgq's words are read in their form."""
    assert one.message is not None
    found = [cls for cls in packet.layers() if issubclass(cls, Message) or cls is Raw]
    wanted = [MsgQ, MsgQFlat] if one.protocol == "msgq" else one.message.layers()
    return len(found) == len(wanted) and all(map(issubclass, found, wanted))


def test_values_build_the_bytes_of_the_document() -> None:
    for message in WITH_CLASS:
        assert bytes(message.message).hex(" ") == message.raw.hex(" "), message


def test_the_bytes_alone_are_read_and_rebuilt() -> None:
    for message in WITH_CLASS:
        read = alone(message)

        assert is_read(message, read), message
        assert bytes(read) == message.raw, message
        assert bytes(eval(read.command(), dict(mqpcap.scapy.message_classes()))) == message.raw, message


def test_the_bytes_in_tcp_are_read_and_rebuilt() -> None:
    for message in WITH_CLASS:
        packet = in_tcp(message)

        assert is_read(message, packet), message
        assert bytes(packet[TCP].payload) == message.raw, message


def test_what_has_no_class_says_why() -> None:
    without = [one for one in ALL if one.message is None]

    assert all(one.why_not for one in without)
    assert {(one.name, one.direction) for one in without} == set(FLYMQ_WITHOUT)


def test_every_operation_of_the_tables_is_here() -> None:
    """Operations of the source that the document does not list: CLUSTER_METADATA and the audit log."""
    known = set(protocols()["flymq"].layouts[0].names.values())

    assert known - set(FLYMQ_OPERATIONS) <= {"CLUSTER_METADATA", "AUDIT_QUERY", "AUDIT_EXPORT"}
    assert len(FLYMQ_OPERATIONS) == 52


if __name__ == "__main__":
    print("protocol  messages  with class  alone  in TCP")
    counts = Counter(one.protocol for one in ALL)
    for protocol in counts:
        some = [one for one in WITH_CLASS if one.protocol == protocol]
        read = sum(bytes(alone(one)) == one.raw and is_read(one, alone(one)) for one in some)
        carried = sum(bytes(in_tcp(one)[TCP].payload) == one.raw and is_read(one, in_tcp(one)) for one in some)
        print(f"{protocol:8}  {counts[protocol]:8}  {len(some):10}  {read:5}  {carried:6}")
