# Types of the message classes, for mypy and editors. Written by tests/support/scapy_stubs.py, from the descriptions.
# ruff: noqa
# fmt: off

from typing import Any, Generic, TypeVar

from scapy.base_classes import Packet_metaclass
from scapy.utils import wrpcap

from mqpcap.scapy import display as display, field_names as field_names, session as session
from mqpcap.scapy.port_binding import MqDispatch as MqDispatch
from mqpcap.scapy.session import MqSession, Seen
from mqpcap.schema.message import Message

show_secrets: bool

def message_classes() -> dict[str, type[Message]]: ...
def bind() -> None: ...

_Read = TypeVar("_Read")
_Write = TypeVar("_Write")
_Integer = int | str | list[int | str] | None
_Octets = bytes | str | None

class _Field(Generic[_Read, _Write]):
    def __get__(self, message: object, owner: type | None = None) -> _Read: ...
    def __set__(self, message: object, value: _Write) -> None: ...

_Message = TypeVar("_Message")

class _MessageClass(Packet_metaclass):  # type: ignore[misc]  # Scapy has no types
    # Scapy's own gives Any for every class, so that pyright would check no field.
    def __call__(cls: type[_Message], *arguments: Any, **fields: Any) -> _Message: ...

__all__ = ["MqDispatch", "MqSession", "Seen", "BlipMQ", "BlipMQAck", "BlipMQAuth", "BlipMQDeliver", "BlipMQHello", "BlipMQNack", "BlipMQPing", "BlipMQPoll", "BlipMQPong", "BlipMQPublish", "BlipMQPublishV2", "BlipMQSubscribe", "BlipMQSubscribeV2", "FlyMQ", "FlyMQAcl", "FlyMQAclDelete", "FlyMQAclDeleteReply", "FlyMQAclGet", "FlyMQAclGetReply", "FlyMQAclList", "FlyMQAclListReply", "FlyMQAclSet", "FlyMQAclSetReply", "FlyMQAuditExport", "FlyMQAuditExportJava", "FlyMQAuditExportReply", "FlyMQAuditQuery", "FlyMQAuditQueryJava", "FlyMQAuditQueryReply", "FlyMQAuth", "FlyMQAuthRefused", "FlyMQAuthRefusedDoc", "FlyMQAuthResponse", "FlyMQAuthResponseDoc", "FlyMQClusterJoin", "FlyMQClusterLeave", "FlyMQClusterMetadata", "FlyMQClusterMetadataReply", "FlyMQCommit", "FlyMQCommitReply", "FlyMQConsume", "FlyMQConsumeReply", "FlyMQConsumeZeroCopy", "FlyMQConsumeZeroCopyReply", "FlyMQCreateTopic", "FlyMQCreateTopicReply", "FlyMQCreateTopicReplyDoc", "FlyMQDeadLetter", "FlyMQDeleteGroup", "FlyMQDeleteGroupJava", "FlyMQDeleteGroupReply", "FlyMQDeleteSchema", "FlyMQDeleteSchemaReply", "FlyMQDeleteTopic", "FlyMQDeleteTopicReply", "FlyMQDescribeGroup", "FlyMQDescribeGroupJava", "FlyMQDescribeGroupReply", "FlyMQDetail", "FlyMQEmpty", "FlyMQError", "FlyMQErrorCoded", "FlyMQErrorDoc", "FlyMQEvent", "FlyMQEventEntry", "FlyMQFetch", "FlyMQFetchBinary", "FlyMQFetchBinaryReply", "FlyMQFetchDlq", "FlyMQFetchDlqReply", "FlyMQFetchReply", "FlyMQFetchReplyDoc", "FlyMQFetchUnfiltered", "FlyMQGetLag", "FlyMQGetLagReply", "FlyMQGetOffset", "FlyMQGetOffsetReply", "FlyMQGetSchema", "FlyMQGetSchemaReply", "FlyMQGroup", "FlyMQGroupOffset", "FlyMQListGroups", "FlyMQListGroupsReply", "FlyMQListSchemas", "FlyMQListSchemasAll", "FlyMQListSchemasReply", "FlyMQListTopics", "FlyMQListTopicsReply", "FlyMQMetadata", "FlyMQOutcome", "FlyMQPartition", "FlyMQPasswordChange", "FlyMQPasswordChangeReply", "FlyMQPasswordChangeShort", "FlyMQProduce", "FlyMQProduceDelayed", "FlyMQProduceDelayedReply", "FlyMQProduceReply", "FlyMQProduceReplyLegacy", "FlyMQProduceWithSchema", "FlyMQProduceWithSchemaPython", "FlyMQProduceWithSchemaReply", "FlyMQProduceWithTtl", "FlyMQProduceWithTtlReply", "FlyMQPurgeDlq", "FlyMQPurgeDlqReply", "FlyMQRecord", "FlyMQRecordDoc", "FlyMQRegisterSchema", "FlyMQRegisterSchemaReply", "FlyMQReplayDlq", "FlyMQReplayDlqPython", "FlyMQReplayDlqReply", "FlyMQRequest", "FlyMQResetOffset", "FlyMQResetOffsetJava", "FlyMQResetOffsetReply", "FlyMQRole", "FlyMQRoleList", "FlyMQRoleListReply", "FlyMQSchema", "FlyMQSubscribe", "FlyMQSubscribeDoc", "FlyMQSubscribeReply", "FlyMQSuccess", "FlyMQTopicPartitions", "FlyMQTxnBegin", "FlyMQTxnBeginReply", "FlyMQTxnCommit", "FlyMQTxnCommitReply", "FlyMQTxnOutcome", "FlyMQTxnProduce", "FlyMQTxnProduceReply", "FlyMQTxnRollback", "FlyMQTxnRollbackReply", "FlyMQUser", "FlyMQUserCreate", "FlyMQUserCreateReply", "FlyMQUserCreateShort", "FlyMQUserDelete", "FlyMQUserDeleteReply", "FlyMQUserGet", "FlyMQUserGetReply", "FlyMQUserList", "FlyMQUserListReply", "FlyMQUserUpdate", "FlyMQUserUpdateReply", "FlyMQUserUpdateShort", "FlyMQValidateSchema", "FlyMQValidateSchemaReply", "FlyMQWhoAmI", "FlyMQWhoAmIReply", "FqAuth", "FqAuthResponse", "FqBind", "FqBindRequest", "FqCommand", "FqConnect", "FqConnectCommand", "FqConnectData", "FqConnectPeer", "FqConnectPeerOld", "FqError", "FqErrorKey", "FqHeartbeat", "FqHeartbeatRequest", "FqMessage", "FqMessageFound", "FqMessageShort", "FqMessageShortFound", "FqQueueDetail", "FqStatus", "FqStatusRequest", "FqStatusValue", "FqUnbind", "FqUnbindRequest", "Kokaq", "KokaqAnswer", "KokaqAnswer16", "KokaqAnswer16Lsb", "KokaqAnswerLsb", "KokaqEntries", "KokaqEntry", "KokaqLEAnswer", "KokaqLEAnswer16", "KokaqLEMetadata", "KokaqLEPayload", "KokaqLEPlainPayload", "KokaqLERequest", "KokaqLERequest16", "KokaqLean", "KokaqLeanAnswer", "KokaqLeanRequest", "KokaqMetadata", "KokaqMetadataBytes", "KokaqMetadataSwapped", "KokaqPayload", "KokaqPayloadSwapped", "KokaqRequest", "KokaqRequest16", "KokaqRequest16Lsb", "KokaqRequestLsb", "KokaqSimple", "KokaqSizedAnswer", "KokaqSizedRequest", "Mqtt", "Mqtt5Ack", "Mqtt5Connack", "Mqtt5Ending", "Mqtt5Publish", "Mqtt5Pubrel", "Mqtt5Suback", "Mqtt5Subscribe", "Mqtt5Unsuback", "Mqtt5Unsubscribe", "MqttAck", "MqttConnack", "MqttConnect", "MqttDisconnect", "MqttPingreq", "MqttPingresp", "MqttProperties", "MqttProperty", "MqttPublish", "MqttPubrel", "MqttSuback", "MqttSubscribe", "MqttSubscription", "MqttUnsubscribe", "MqttWillProperties", "MsgQ", "MsgQFlat", "MsgQForm", "MsgQGetlname", "MsgQHeader", "MsgQJson", "MsgQLname", "MsgQMessage", "MsgQPing", "MsgQPong", "MsgQSend", "MsgQSplit", "MsgQStats", "MsgQStatsReply", "MsgQStop", "MsgQSubscribe", "MsgQUnsubscribe", "wrpcap"]

class BlipMQ(Message, metaclass=_MessageClass):
    length: _Field[int | None, _Integer]
    frame_type: _Field[int, _Integer]
    correlation_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, length: _Integer = ..., frame_type: _Integer = ..., correlation_id: _Integer = ...) -> None: ...

class BlipMQAck(Message, metaclass=_MessageClass):
    subscription_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, subscription_id: _Integer = ...) -> None: ...

class BlipMQAuth(Message, metaclass=_MessageClass):
    key_len: _Field[int, _Integer]
    api_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, key_len: _Integer = ..., api_key: _Octets = ...) -> None: ...

class BlipMQDeliver(Message, metaclass=_MessageClass):
    qos: _Field[int, _Integer]
    delivery_tag: _Field[int, _Integer]
    topic_len: _Field[int, _Integer]
    topic: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, qos: _Integer = ..., delivery_tag: _Integer = ..., topic_len: _Integer = ..., topic: _Octets = ..., body: _Octets = ...) -> None: ...

class BlipMQHello(Message, metaclass=_MessageClass):
    protocol_version: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, protocol_version: _Integer = ...) -> None: ...

class BlipMQNack(Message, metaclass=_MessageClass):
    error_code: _Field[int, _Integer]
    message_len: _Field[int, _Integer]
    error_text: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, error_code: _Integer = ..., message_len: _Integer = ..., error_text: _Octets = ...) -> None: ...

class BlipMQPing(Message, metaclass=_MessageClass):
    trailing_bytes: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, trailing_bytes: _Octets = ...) -> None: ...

class BlipMQPoll(Message, metaclass=_MessageClass):
    subscription_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, subscription_id: _Integer = ...) -> None: ...

class BlipMQPong(Message, metaclass=_MessageClass):
    trailing_bytes: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, trailing_bytes: _Octets = ...) -> None: ...

class BlipMQPublish(Message, metaclass=_MessageClass):
    qos: _Field[int, _Integer]
    topic_len: _Field[int, _Integer]
    topic: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, qos: _Integer = ..., topic_len: _Integer = ..., topic: _Octets = ..., body: _Octets = ...) -> None: ...

class BlipMQSubscribe(Message, metaclass=_MessageClass):
    topic_len: _Field[int, _Integer]
    topic: _Field[bytes, _Octets]
    qos: _Field[int, _Integer]
    trailing_bytes: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., qos: _Integer = ..., trailing_bytes: _Octets = ...) -> None: ...

class FlyMQ(Message, metaclass=_MessageClass):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    flags: _Field[int, _Integer]
    length: _Field[int | None, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., opcode: _Integer = ..., flags: _Integer = ..., length: _Integer = ...) -> None: ...

class FlyMQAcl(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    exists: _Field[bool, bool | None]
    public: _Field[bool, bool | None]
    allowed_users_count: _Field[int | None, _Integer]
    allowed_users: _Field[list[bytes], list[bytes] | None]
    allowed_roles_count: _Field[int | None, _Integer]
    allowed_roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., exists: bool | None = ..., public: bool | None = ..., allowed_users_count: _Integer = ..., allowed_users: list[bytes] | None = ..., allowed_roles_count: _Integer = ..., allowed_roles: list[bytes] | None = ...) -> None: ...

class FlyMQAclDelete(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQAclDeleteReply(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQAclGet(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQAclGetReply(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    exists: _Field[bool, bool | None]
    public: _Field[bool, bool | None]
    default_public: _Field[bool, bool | None]
    allowed_users_count: _Field[int | None, _Integer]
    allowed_users: _Field[list[bytes], list[bytes] | None]
    allowed_roles_count: _Field[int | None, _Integer]
    allowed_roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., exists: bool | None = ..., public: bool | None = ..., default_public: bool | None = ..., allowed_users_count: _Integer = ..., allowed_users: list[bytes] | None = ..., allowed_roles_count: _Integer = ..., allowed_roles: list[bytes] | None = ...) -> None: ...

class FlyMQAclListReply(Message, metaclass=_MessageClass):
    acls_count: _Field[int | None, _Integer]
    acls: _Field[list[FlyMQAcl], list[FlyMQAcl] | None]
    default_public: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, acls_count: _Integer = ..., acls: list[FlyMQAcl] | None = ..., default_public: bool | None = ...) -> None: ...

class FlyMQAclSet(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    public: _Field[bool, bool | None]
    allowed_users_count: _Field[int | None, _Integer]
    allowed_users: _Field[list[bytes], list[bytes] | None]
    allowed_roles_count: _Field[int | None, _Integer]
    allowed_roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., public: bool | None = ..., allowed_users_count: _Integer = ..., allowed_users: list[bytes] | None = ..., allowed_roles_count: _Integer = ..., allowed_roles: list[bytes] | None = ...) -> None: ...

class FlyMQAclSetReply(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQAuditExport(Message, metaclass=_MessageClass):
    query_len: _Field[int | None, _Integer]
    query: _Field[FlyMQAuditQuery, FlyMQAuditQuery | None]
    format_len: _Field[int | None, _Integer]
    format: _Field[bytes, _Octets]
    start_time_s: _Field[int, _Integer]
    end_time_s: _Field[int, _Integer]
    event_types_count: _Field[int | None, _Integer]
    event_types: _Field[list[bytes], list[bytes] | None]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    search_len: _Field[int | None, _Integer]
    search: _Field[bytes, _Octets]
    limit: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, query_len: _Integer = ..., query: FlyMQAuditQuery | None = ..., format_len: _Integer = ..., format: _Octets = ..., start_time_s: _Integer = ..., end_time_s: _Integer = ..., event_types_count: _Integer = ..., event_types: list[bytes] | None = ..., user_len: _Integer = ..., user: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., search_len: _Integer = ..., search: _Octets = ..., limit: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQAuditExportJava(Message, metaclass=_MessageClass):
    format_len: _Field[int | None, _Integer]
    format: _Field[bytes, _Octets]
    start_time_s: _Field[int, _Integer]
    end_time_s: _Field[int, _Integer]
    event_types_count: _Field[int | None, _Integer]
    event_types: _Field[list[bytes], list[bytes] | None]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    search_len: _Field[int | None, _Integer]
    search: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, format_len: _Integer = ..., format: _Octets = ..., start_time_s: _Integer = ..., end_time_s: _Integer = ..., event_types_count: _Integer = ..., event_types: list[bytes] | None = ..., user_len: _Integer = ..., user: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., search_len: _Integer = ..., search: _Octets = ...) -> None: ...

class FlyMQAuditExportReply(Message, metaclass=_MessageClass):
    format_len: _Field[int | None, _Integer]
    format: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, format_len: _Integer = ..., format: _Octets = ..., data_len: _Integer = ..., data: _Octets = ...) -> None: ...

class FlyMQAuditQuery(Message, metaclass=_MessageClass):
    start_time_s: _Field[int, _Integer]
    end_time_s: _Field[int, _Integer]
    event_types_count: _Field[int | None, _Integer]
    event_types: _Field[list[bytes], list[bytes] | None]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    search_len: _Field[int | None, _Integer]
    search: _Field[bytes, _Octets]
    limit: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, start_time_s: _Integer = ..., end_time_s: _Integer = ..., event_types_count: _Integer = ..., event_types: list[bytes] | None = ..., user_len: _Integer = ..., user: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., search_len: _Integer = ..., search: _Octets = ..., limit: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQAuditQueryJava(Message, metaclass=_MessageClass):
    start_time_s: _Field[int, _Integer]
    end_time_s: _Field[int, _Integer]
    event_types_count: _Field[int | None, _Integer]
    event_types: _Field[list[bytes], list[bytes] | None]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    search_len: _Field[int | None, _Integer]
    search: _Field[bytes, _Octets]
    limit: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, start_time_s: _Integer = ..., end_time_s: _Integer = ..., event_types_count: _Integer = ..., event_types: list[bytes] | None = ..., user_len: _Integer = ..., user: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., search_len: _Integer = ..., search: _Octets = ..., limit: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQAuditQueryReply(Message, metaclass=_MessageClass):
    events_count: _Field[int | None, _Integer]
    events: _Field[list[FlyMQEventEntry], list[FlyMQEventEntry] | None]
    total_count: _Field[int, _Integer]
    has_more: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, events_count: _Integer = ..., events: list[FlyMQEventEntry] | None = ..., total_count: _Integer = ..., has_more: bool | None = ...) -> None: ...

class FlyMQAuth(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ...) -> None: ...

class FlyMQAuthRefused(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., error_len: _Integer = ..., error: _Octets = ...) -> None: ...

class FlyMQAuthRefusedDoc(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., error_len: _Integer = ..., error: _Octets = ..., username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ...) -> None: ...

class FlyMQAuthResponse(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., error_len: _Integer = ..., error: _Octets = ...) -> None: ...

class FlyMQAuthResponseDoc(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., error_len: _Integer = ..., error: _Octets = ..., username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ...) -> None: ...

class FlyMQClusterJoin(Message, metaclass=_MessageClass):
    peer_len: _Field[int | None, _Integer]
    peer: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, peer_len: _Integer = ..., peer: _Octets = ...) -> None: ...

class FlyMQClusterMetadata(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQClusterMetadataReply(Message, metaclass=_MessageClass):
    cluster_id_len: _Field[int | None, _Integer]
    cluster_id: _Field[bytes, _Octets]
    topic_partitions_count: _Field[int | None, _Integer]
    topic_partitions: _Field[list[FlyMQTopicPartitions], list[FlyMQTopicPartitions] | None]
    def __init__(self, _pkt: bytes = ..., *, cluster_id_len: _Integer = ..., cluster_id: _Octets = ..., topic_partitions_count: _Integer = ..., topic_partitions: list[FlyMQTopicPartitions] | None = ...) -> None: ...

class FlyMQCommit(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQConsume(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQConsumeReply(Message, metaclass=_MessageClass):
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ...) -> None: ...

class FlyMQCreateTopic(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partitions: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partitions: _Integer = ...) -> None: ...

class FlyMQCreateTopicReplyDoc(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQDeadLetter(Message, metaclass=_MessageClass):
    id_len: _Field[int | None, _Integer]
    id: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    retries: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, id_len: _Integer = ..., id: _Octets = ..., data_len: _Integer = ..., data: _Octets = ..., error_len: _Integer = ..., error: _Octets = ..., retries: _Integer = ...) -> None: ...

class FlyMQDeleteGroup(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ...) -> None: ...

class FlyMQDeleteGroupJava(Message, metaclass=_MessageClass):
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, group_id_len: _Integer = ..., group_id: _Octets = ...) -> None: ...

class FlyMQDeleteSchema(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    version: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., version: _Integer = ...) -> None: ...

class FlyMQDeleteTopic(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQDescribeGroup(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ...) -> None: ...

class FlyMQDescribeGroupJava(Message, metaclass=_MessageClass):
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, group_id_len: _Integer = ..., group_id: _Octets = ...) -> None: ...

class FlyMQDetail(Message, metaclass=_MessageClass):
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ...) -> None: ...

class FlyMQEmpty(Message, metaclass=_MessageClass):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQError(Message, metaclass=_MessageClass):
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, message: _Octets = ...) -> None: ...

class FlyMQErrorCoded(Message, metaclass=_MessageClass):
    code: _Field[int, _Integer]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, code: _Integer = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQErrorDoc(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQEvent(Message, metaclass=_MessageClass):
    id_len: _Field[int | None, _Integer]
    id: _Field[bytes, _Octets]
    timestamp_ms: _Field[int, _Integer]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    client_ip_len: _Field[int | None, _Integer]
    client_ip: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    action_len: _Field[int | None, _Integer]
    action: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    node_id_len: _Field[int | None, _Integer]
    node_id: _Field[bytes, _Octets]
    details_count: _Field[int | None, _Integer]
    details: _Field[list[FlyMQDetail], list[FlyMQDetail] | None]
    def __init__(self, _pkt: bytes = ..., *, id_len: _Integer = ..., id: _Octets = ..., timestamp_ms: _Integer = ..., type_len: _Integer = ..., type: _Octets = ..., user_len: _Integer = ..., user: _Octets = ..., client_ip_len: _Integer = ..., client_ip: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., action_len: _Integer = ..., action: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., node_id_len: _Integer = ..., node_id: _Octets = ..., details_count: _Integer = ..., details: list[FlyMQDetail] | None = ...) -> None: ...

class FlyMQEventEntry(Message, metaclass=_MessageClass):
    event_len: _Field[int | None, _Integer]
    event: _Field[FlyMQEvent, FlyMQEvent | None]
    id_len: _Field[int | None, _Integer]
    id: _Field[bytes, _Octets]
    timestamp_ms: _Field[int, _Integer]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    client_ip_len: _Field[int | None, _Integer]
    client_ip: _Field[bytes, _Octets]
    resource_len: _Field[int | None, _Integer]
    resource: _Field[bytes, _Octets]
    action_len: _Field[int | None, _Integer]
    action: _Field[bytes, _Octets]
    result_len: _Field[int | None, _Integer]
    result: _Field[bytes, _Octets]
    node_id_len: _Field[int | None, _Integer]
    node_id: _Field[bytes, _Octets]
    details_count: _Field[int | None, _Integer]
    details: _Field[list[FlyMQDetail], list[FlyMQDetail] | None]
    def __init__(self, _pkt: bytes = ..., *, event_len: _Integer = ..., event: FlyMQEvent | None = ..., id_len: _Integer = ..., id: _Octets = ..., timestamp_ms: _Integer = ..., type_len: _Integer = ..., type: _Octets = ..., user_len: _Integer = ..., user: _Octets = ..., client_ip_len: _Integer = ..., client_ip: _Octets = ..., resource_len: _Integer = ..., resource: _Octets = ..., action_len: _Integer = ..., action: _Octets = ..., result_len: _Integer = ..., result: _Octets = ..., node_id_len: _Integer = ..., node_id: _Octets = ..., details_count: _Integer = ..., details: list[FlyMQDetail] | None = ...) -> None: ...

class FlyMQFetch(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    max_messages: _Field[int, _Integer]
    filter_len: _Field[int | None, _Integer]
    filter: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., max_messages: _Integer = ..., filter_len: _Integer = ..., filter: _Octets = ...) -> None: ...

class FlyMQFetchDlq(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    max_messages: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., max_messages: _Integer = ...) -> None: ...

class FlyMQFetchDlqReply(Message, metaclass=_MessageClass):
    messages_count: _Field[int | None, _Integer]
    messages: _Field[list[FlyMQDeadLetter], list[FlyMQDeadLetter] | None]
    def __init__(self, _pkt: bytes = ..., *, messages_count: _Integer = ..., messages: list[FlyMQDeadLetter] | None = ...) -> None: ...

class FlyMQFetchReply(Message, metaclass=_MessageClass):
    message_count: _Field[int, _Integer]
    next_offset: _Field[int, _Integer]
    records: _Field[list[FlyMQRecord], list[FlyMQRecord] | None]
    def __init__(self, _pkt: bytes = ..., *, message_count: _Integer = ..., next_offset: _Integer = ..., records: list[FlyMQRecord] | None = ...) -> None: ...

class FlyMQFetchReplyDoc(Message, metaclass=_MessageClass):
    message_count: _Field[int, _Integer]
    records: _Field[list[FlyMQRecordDoc], list[FlyMQRecordDoc] | None]
    next_offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, message_count: _Integer = ..., records: list[FlyMQRecordDoc] | None = ..., next_offset: _Integer = ...) -> None: ...

class FlyMQFetchUnfiltered(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    max_messages: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., max_messages: _Integer = ...) -> None: ...

class FlyMQGetLag(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ...) -> None: ...

class FlyMQGetLagReply(Message, metaclass=_MessageClass):
    current_offset: _Field[int, _Integer]
    committed_offset: _Field[int, _Integer]
    latest_offset: _Field[int, _Integer]
    lag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, current_offset: _Integer = ..., committed_offset: _Integer = ..., latest_offset: _Integer = ..., lag: _Integer = ...) -> None: ...

class FlyMQGetOffset(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ...) -> None: ...

class FlyMQGetOffsetReply(Message, metaclass=_MessageClass):
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, offset: _Integer = ...) -> None: ...

class FlyMQGetSchema(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    version: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., version: _Integer = ...) -> None: ...

class FlyMQGetSchemaReply(Message, metaclass=_MessageClass):
    id_len: _Field[int | None, _Integer]
    id: _Field[bytes, _Octets]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    version: _Field[int, _Integer]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    definition_len: _Field[int | None, _Integer]
    definition: _Field[bytes, _Octets]
    compatibility_len: _Field[int | None, _Integer]
    compatibility: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, id_len: _Integer = ..., id: _Octets = ..., topic_len: _Integer = ..., topic: _Octets = ..., version: _Integer = ..., type_len: _Integer = ..., type: _Octets = ..., definition_len: _Integer = ..., definition: _Octets = ..., compatibility_len: _Integer = ..., compatibility: _Octets = ...) -> None: ...

class FlyMQGroup(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    members: _Field[int, _Integer]
    offsets_count: _Field[int | None, _Integer]
    offsets: _Field[list[FlyMQGroupOffset], list[FlyMQGroupOffset] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., members: _Integer = ..., offsets_count: _Integer = ..., offsets: list[FlyMQGroupOffset] | None = ...) -> None: ...

class FlyMQGroupOffset(Message, metaclass=_MessageClass):
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, partition: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQListGroupsReply(Message, metaclass=_MessageClass):
    groups_count: _Field[int | None, _Integer]
    groups: _Field[list[FlyMQGroup], list[FlyMQGroup] | None]
    def __init__(self, _pkt: bytes = ..., *, groups_count: _Integer = ..., groups: list[FlyMQGroup] | None = ...) -> None: ...

class FlyMQListSchemas(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQListSchemasReply(Message, metaclass=_MessageClass):
    schemas_count: _Field[int | None, _Integer]
    schemas: _Field[list[FlyMQSchema], list[FlyMQSchema] | None]
    def __init__(self, _pkt: bytes = ..., *, schemas_count: _Integer = ..., schemas: list[FlyMQSchema] | None = ...) -> None: ...

class FlyMQListTopicsReply(Message, metaclass=_MessageClass):
    topics_count: _Field[int | None, _Integer]
    topics: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, topics_count: _Integer = ..., topics: list[bytes] | None = ...) -> None: ...

class FlyMQMetadata(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQOutcome(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQPartition(Message, metaclass=_MessageClass):
    partition: _Field[int, _Integer]
    leader_id_len: _Field[int | None, _Integer]
    leader_id: _Field[bytes, _Octets]
    leader_addr_len: _Field[int | None, _Integer]
    leader_addr: _Field[bytes, _Octets]
    epoch: _Field[int, _Integer]
    state_len: _Field[int | None, _Integer]
    state: _Field[bytes, _Octets]
    replicas_count: _Field[int | None, _Integer]
    replicas: _Field[list[bytes], list[bytes] | None]
    isr_count: _Field[int | None, _Integer]
    isr: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, partition: _Integer = ..., leader_id_len: _Integer = ..., leader_id: _Octets = ..., leader_addr_len: _Integer = ..., leader_addr: _Octets = ..., epoch: _Integer = ..., state_len: _Integer = ..., state: _Octets = ..., replicas_count: _Integer = ..., replicas: list[bytes] | None = ..., isr_count: _Integer = ..., isr: list[bytes] | None = ...) -> None: ...

class FlyMQProduce(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ..., partition: _Integer = ...) -> None: ...

class FlyMQProduceDelayed(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    delay_ms: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., data_len: _Integer = ..., data: _Octets = ..., delay_ms: _Integer = ...) -> None: ...

class FlyMQProduceReply(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    timestamp_ms: _Field[int, _Integer]
    key_size: _Field[int, _Integer]
    value_size: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., timestamp_ms: _Integer = ..., key_size: _Integer = ..., value_size: _Integer = ...) -> None: ...

class FlyMQProduceReplyLegacy(Message, metaclass=_MessageClass):
    offset: _Field[int, _Integer]
    partition: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, offset: _Integer = ..., partition: _Integer = ...) -> None: ...

class FlyMQProduceWithSchema(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    schema_name_len: _Field[int | None, _Integer]
    schema_name: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., schema_name_len: _Integer = ..., schema_name: _Octets = ..., data_len: _Integer = ..., data: _Octets = ...) -> None: ...

class FlyMQProduceWithSchemaPython(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    schema_name_len: _Field[int | None, _Integer]
    schema_name: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., data_len: _Integer = ..., data: _Octets = ..., schema_name_len: _Integer = ..., schema_name: _Octets = ...) -> None: ...

class FlyMQProduceWithTtl(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    ttl_ms: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., data_len: _Integer = ..., data: _Octets = ..., ttl_ms: _Integer = ...) -> None: ...

class FlyMQPurgeDlq(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ...) -> None: ...

class FlyMQRecord(Message, metaclass=_MessageClass):
    offset: _Field[int, _Integer]
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, offset: _Integer = ..., key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ...) -> None: ...

class FlyMQRecordDoc(Message, metaclass=_MessageClass):
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ..., offset: _Integer = ...) -> None: ...

class FlyMQRegisterSchema(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    schema_len: _Field[int | None, _Integer]
    schema: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., type_len: _Integer = ..., type: _Octets = ..., schema_len: _Integer = ..., schema: _Octets = ...) -> None: ...

class FlyMQRegisterSchemaReply(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    version: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., type_len: _Integer = ..., type: _Octets = ..., version: _Integer = ...) -> None: ...

class FlyMQReplayDlq(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    message_id_len: _Field[int | None, _Integer]
    message_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., message_id_len: _Integer = ..., message_id: _Octets = ...) -> None: ...

class FlyMQReplayDlqPython(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., offset: _Integer = ...) -> None: ...

class FlyMQResetOffset(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    mode_len: _Field[int | None, _Integer]
    mode: _Field[bytes, _Octets]
    offset: _Field[int | None, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ..., mode_len: _Integer = ..., mode: _Octets = ..., offset: _Integer = ...) -> None: ...

class FlyMQResetOffsetJava(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    mode_len: _Field[int | None, _Integer]
    mode: _Field[bytes, _Octets]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ..., mode_len: _Integer = ..., mode: _Octets = ..., offset: _Integer = ...) -> None: ...

class FlyMQRole(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    permissions_count: _Field[int | None, _Integer]
    permissions: _Field[list[bytes], list[bytes] | None]
    description_len: _Field[int | None, _Integer]
    description: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., permissions_count: _Integer = ..., permissions: list[bytes] | None = ..., description_len: _Integer = ..., description: _Octets = ...) -> None: ...

class FlyMQRoleListReply(Message, metaclass=_MessageClass):
    role_list_count: _Field[int | None, _Integer]
    role_list: _Field[list[FlyMQRole], list[FlyMQRole] | None]
    def __init__(self, _pkt: bytes = ..., *, role_list_count: _Integer = ..., role_list: list[FlyMQRole] | None = ...) -> None: ...

class FlyMQSchema(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    type_len: _Field[int | None, _Integer]
    type: _Field[bytes, _Octets]
    version: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., type_len: _Integer = ..., type: _Octets = ..., version: _Integer = ...) -> None: ...

class FlyMQSubscribe(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    mode_len: _Field[int | None, _Integer]
    mode: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ..., mode_len: _Integer = ..., mode: _Octets = ...) -> None: ...

class FlyMQSubscribeDoc(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    mode_len: _Field[int | None, _Integer]
    mode: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., partition: _Integer = ..., mode_len: _Integer = ..., mode: _Octets = ...) -> None: ...

class FlyMQSubscribeReply(Message, metaclass=_MessageClass):
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, offset: _Integer = ...) -> None: ...

class FlyMQSuccess(Message, metaclass=_MessageClass):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQTopicPartitions(Message, metaclass=_MessageClass):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partitions_count: _Field[int | None, _Integer]
    partitions: _Field[list[FlyMQPartition], list[FlyMQPartition] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partitions_count: _Integer = ..., partitions: list[FlyMQPartition] | None = ...) -> None: ...

class FlyMQTxnCommit(Message, metaclass=_MessageClass):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ...) -> None: ...

class FlyMQTxnOutcome(Message, metaclass=_MessageClass):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ..., success: bool | None = ...) -> None: ...

class FlyMQTxnProduce(Message, metaclass=_MessageClass):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ..., topic_len: _Integer = ..., topic: _Octets = ..., data_len: _Integer = ..., data: _Octets = ...) -> None: ...

class FlyMQTxnRollback(Message, metaclass=_MessageClass):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ...) -> None: ...

class FlyMQUser(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    permissions_count: _Field[int | None, _Integer]
    permissions: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    created_at_s: _Field[int, _Integer]
    updated_at_s: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., permissions_count: _Integer = ..., permissions: list[bytes] | None = ..., enabled: bool | None = ..., created_at_s: _Integer = ..., updated_at_s: _Integer = ...) -> None: ...

class FlyMQUserCreate(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., enabled: bool | None = ...) -> None: ...

class FlyMQUserCreateShort(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ...) -> None: ...

class FlyMQUserDelete(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ...) -> None: ...

class FlyMQUserGet(Message, metaclass=_MessageClass):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ...) -> None: ...

class FlyMQUserListReply(Message, metaclass=_MessageClass):
    users_count: _Field[int | None, _Integer]
    users: _Field[list[FlyMQUser], list[FlyMQUser] | None]
    def __init__(self, _pkt: bytes = ..., *, users_count: _Integer = ..., users: list[FlyMQUser] | None = ...) -> None: ...

class FlyMQValidateSchema(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    data_len: _Field[int | None, _Integer]
    data: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., data_len: _Integer = ..., data: _Octets = ...) -> None: ...

class FlyMQValidateSchemaReply(Message, metaclass=_MessageClass):
    valid: _Field[bool, bool | None]
    errors_count: _Field[int | None, _Integer]
    errors: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, valid: bool | None = ..., errors_count: _Integer = ..., errors: list[bytes] | None = ...) -> None: ...

class FqAuth(Message, metaclass=_MessageClass):
    method: _Field[int, _Integer]
    user_len: _Field[int | None, _Integer]
    user: _Field[bytes, _Octets]
    queue_detail_len: _Field[int | None, _Integer]
    queue_detail: _Field[FqQueueDetail, FqQueueDetail | None]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    queue: _Field[bytes, _Octets]
    queue_type: _Field[bytes, _Octets]
    queue_params: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, method: _Integer = ..., user_len: _Integer = ..., user: _Octets = ..., queue_detail_len: _Integer = ..., queue_detail: FqQueueDetail | None = ..., password_len: _Integer = ..., password: _Octets = ..., queue: _Octets = ..., queue_type: _Octets = ..., queue_params: _Octets = ...) -> None: ...

class FqAuthResponse(Message, metaclass=_MessageClass):
    client_key_len: _Field[int | None, _Integer]
    client_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, client_key_len: _Integer = ..., client_key: _Octets = ...) -> None: ...

class FqBind(Message, metaclass=_MessageClass):
    binding_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, binding_id: _Integer = ...) -> None: ...

class FqBindRequest(Message, metaclass=_MessageClass):
    bind_flags: _Field[int, _Integer]
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    program_len: _Field[int | None, _Integer]
    program: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, bind_flags: _Integer = ..., exchange_len: _Integer = ..., exchange: _Octets = ..., program_len: _Integer = ..., program: _Octets = ...) -> None: ...

class FqCommand(Message, metaclass=_MessageClass):
    code: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, code: _Integer = ...) -> None: ...

class FqConnect(Message, metaclass=_MessageClass):
    word: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, word: _Integer = ...) -> None: ...

class FqConnectCommand(Message, metaclass=_MessageClass):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FqConnectData(Message, metaclass=_MessageClass):
    client_key_len: _Field[int | None, _Integer]
    client_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, client_key_len: _Integer = ..., client_key: _Octets = ...) -> None: ...

class FqConnectPeer(Message, metaclass=_MessageClass):
    node_id: _Field[bytes, _Octets]
    client_key_len: _Field[int | None, _Integer]
    client_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, node_id: _Octets = ..., client_key_len: _Integer = ..., client_key: _Octets = ...) -> None: ...

class FqConnectPeerOld(Message, metaclass=_MessageClass):
    client_key_len: _Field[int | None, _Integer]
    client_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, client_key_len: _Integer = ..., client_key: _Octets = ...) -> None: ...

class FqError(Message, metaclass=_MessageClass):
    error_text_len: _Field[int | None, _Integer]
    error_text: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, error_text_len: _Integer = ..., error_text: _Octets = ...) -> None: ...

class FqErrorKey(Message, metaclass=_MessageClass):
    client_key_len: _Field[int | None, _Integer]
    client_key: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, client_key_len: _Integer = ..., client_key: _Octets = ...) -> None: ...

class FqHeartbeat(Message, metaclass=_MessageClass):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FqHeartbeatRequest(Message, metaclass=_MessageClass):
    interval_ms: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, interval_ms: _Integer = ...) -> None: ...

class FqMessage(Message, metaclass=_MessageClass):
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    route_len: _Field[int | None, _Integer]
    route_: _Field[bytes, _Octets]
    message_id: _Field[bytes, _Octets]
    sender_len: _Field[int | None, _Integer]
    sender: _Field[bytes, _Octets]
    hop_count: _Field[int, _Integer]
    hops: _Field[list[bytes], list[bytes] | None]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, exchange_len: _Integer = ..., exchange: _Octets = ..., route_len: _Integer = ..., route_: _Octets = ..., message_id: _Octets = ..., sender_len: _Integer = ..., sender: _Octets = ..., hop_count: _Integer = ..., hops: list[bytes] | None = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class FqMessageFound(Message, metaclass=_MessageClass):
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    route_len: _Field[int | None, _Integer]
    route_: _Field[bytes, _Octets]
    message_id: _Field[bytes, _Octets]
    sender_len: _Field[int | None, _Integer]
    sender: _Field[bytes, _Octets]
    hop_count: _Field[int, _Integer]
    hops: _Field[list[bytes], list[bytes] | None]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, exchange_len: _Integer = ..., exchange: _Octets = ..., route_len: _Integer = ..., route_: _Octets = ..., message_id: _Octets = ..., sender_len: _Integer = ..., sender: _Octets = ..., hop_count: _Integer = ..., hops: list[bytes] | None = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class FqMessageShort(Message, metaclass=_MessageClass):
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    route_len: _Field[int | None, _Integer]
    route_: _Field[bytes, _Octets]
    message_id: _Field[bytes, _Octets]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, exchange_len: _Integer = ..., exchange: _Octets = ..., route_len: _Integer = ..., route_: _Octets = ..., message_id: _Octets = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class FqMessageShortFound(Message, metaclass=_MessageClass):
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    route_len: _Field[int | None, _Integer]
    route_: _Field[bytes, _Octets]
    message_id: _Field[bytes, _Octets]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, exchange_len: _Integer = ..., exchange: _Octets = ..., route_len: _Integer = ..., route_: _Octets = ..., message_id: _Octets = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class FqQueueDetail(Message, metaclass=_MessageClass):
    queue: _Field[bytes, _Octets]
    queue_type: _Field[bytes, _Octets]
    queue_params: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, queue: _Octets = ..., queue_type: _Octets = ..., queue_params: _Octets = ...) -> None: ...

class FqStatus(Message, metaclass=_MessageClass):
    status_values: _Field[list[FqStatusValue], list[FqStatusValue] | None]
    def __init__(self, _pkt: bytes = ..., *, status_values: list[FqStatusValue] | None = ...) -> None: ...

class FqStatusRequest(Message, metaclass=_MessageClass):
    spare: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, spare: _Octets = ...) -> None: ...

class FqStatusValue(Message, metaclass=_MessageClass):
    name_len: _Field[int | None, _Integer]
    name_: _Field[bytes, _Octets]
    value: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, name_len: _Integer = ..., name_: _Octets = ..., value: _Integer = ...) -> None: ...

class FqUnbind(Message, metaclass=_MessageClass):
    binding_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, binding_id: _Integer = ...) -> None: ...

class FqUnbindRequest(Message, metaclass=_MessageClass):
    binding_id: _Field[int, _Integer]
    exchange_len: _Field[int | None, _Integer]
    exchange: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, binding_id: _Integer = ..., exchange_len: _Integer = ..., exchange: _Octets = ...) -> None: ...

class Kokaq(Message, metaclass=_MessageClass):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqEntries(Message, metaclass=_MessageClass):
    metadata: _Field[list[KokaqEntry], list[KokaqEntry] | None]
    def __init__(self, _pkt: bytes = ..., *, metadata: list[KokaqEntry] | None = ...) -> None: ...

class KokaqEntry(Message, metaclass=_MessageClass):
    tag: _Field[int, _Integer]
    size: _Field[int, _Integer]
    value: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, tag: _Integer = ..., size: _Integer = ..., value: _Octets = ...) -> None: ...

class KokaqLEMetadata(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    field_count: _Field[int, _Integer]
    metadata: _Field[list[KokaqEntry], list[KokaqEntry] | None]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., field_count: _Integer = ..., metadata: list[KokaqEntry] | None = ..., trailer: _Octets = ...) -> None: ...

class KokaqLEPayload(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    namespace_len: _Field[int, _Integer]
    queue_len: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    namespace: _Field[int | None, _Integer]
    queue: _Field[int | None, _Integer]
    body: _Field[bytes, _Octets]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., namespace_len: _Integer = ..., queue_len: _Integer = ..., payload_len: _Integer = ..., namespace: _Integer = ..., queue: _Integer = ..., body: _Octets = ..., trailer: _Octets = ...) -> None: ...

class KokaqLEPlainPayload(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    namespace_len: _Field[int, _Integer]
    queue_len: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    namespace: _Field[bytes, _Octets]
    queue: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., namespace_len: _Integer = ..., queue_len: _Integer = ..., payload_len: _Integer = ..., namespace: _Octets = ..., queue: _Octets = ..., body: _Octets = ...) -> None: ...

class KokaqLeanAnswer(Message, metaclass=_MessageClass):
    status: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    namespace: _Field[int, _Integer]
    queue: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, status: _Integer = ..., op_opaque: _Integer = ..., namespace: _Integer = ..., queue: _Integer = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class KokaqLeanRequest(Message, metaclass=_MessageClass):
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    namespace: _Field[int, _Integer]
    queue: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, client: _Integer = ..., op_opaque: _Integer = ..., namespace: _Integer = ..., queue: _Integer = ..., payload_len: _Integer = ..., body: _Octets = ...) -> None: ...

class KokaqMetadata(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    field_count: _Field[int, _Integer]
    metadata: _Field[list[KokaqEntry], list[KokaqEntry] | None]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., field_count: _Integer = ..., metadata: list[KokaqEntry] | None = ..., trailer: _Octets = ...) -> None: ...

class KokaqMetadataBytes(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    field_count: _Field[int, _Integer]
    block: _Field[KokaqEntries, KokaqEntries | None]
    metadata: _Field[list[KokaqEntry], list[KokaqEntry] | None]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., field_count: _Integer = ..., block: KokaqEntries | None = ..., metadata: list[KokaqEntry] | None = ...) -> None: ...

class KokaqMetadataSwapped(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    field_count: _Field[int, _Integer]
    metadata: _Field[list[KokaqEntry], list[KokaqEntry] | None]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., field_count: _Integer = ..., metadata: list[KokaqEntry] | None = ..., trailer: _Octets = ...) -> None: ...

class KokaqPayload(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    namespace_len: _Field[int, _Integer]
    queue_len: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    namespace: _Field[bytes, _Octets]
    queue: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., namespace_len: _Integer = ..., queue_len: _Integer = ..., payload_len: _Integer = ..., namespace: _Octets = ..., queue: _Octets = ..., body: _Octets = ..., trailer: _Octets = ...) -> None: ...

class KokaqPayloadSwapped(Message, metaclass=_MessageClass):
    component_tag: _Field[int, _Integer]
    component_magic: _Field[int, _Integer]
    component_opaque: _Field[int, _Integer]
    namespace_len: _Field[int, _Integer]
    queue_len: _Field[int, _Integer]
    payload_len: _Field[int, _Integer]
    namespace: _Field[bytes, _Octets]
    queue: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    trailer: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, component_tag: _Integer = ..., component_magic: _Integer = ..., component_opaque: _Integer = ..., namespace_len: _Integer = ..., queue_len: _Integer = ..., payload_len: _Integer = ..., namespace: _Octets = ..., queue: _Octets = ..., body: _Octets = ..., trailer: _Octets = ...) -> None: ...

class KokaqSimple(Message, metaclass=_MessageClass):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class Mqtt(Message, metaclass=_MessageClass):
    first_byte: _Field[int, _Integer]
    packet_type: _Field[int, _Integer]
    flags: _Field[int, _Integer]
    dup: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    retain: _Field[int, _Integer]
    remaining_length: _Field[int | None, _Integer]
    def __init__(self, _pkt: bytes = ..., *, first_byte: _Integer = ..., packet_type: _Integer = ..., flags: _Integer = ..., dup: _Integer = ..., qos: _Integer = ..., retain: _Integer = ..., remaining_length: _Integer = ...) -> None: ...

class Mqtt5Ack(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    reason_code: _Field[int | None, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties | None, MqttProperties | None]
    properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., reason_code: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Connack(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    acknowledge_flags: _Field[int, _Integer]
    session_present: _Field[int, _Integer]
    reason_code: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties | None, MqttProperties | None]
    properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., acknowledge_flags: _Integer = ..., session_present: _Integer = ..., reason_code: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Ending(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    reason_code: _Field[int | None, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties | None, MqttProperties | None]
    properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., reason_code: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Publish(Message, metaclass=_MessageClass):
    dup: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    retain: _Field[int, _Integer]
    no_qos: _Field[Any | None, Any]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    packet_id: _Field[int | None, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties, MqttProperties | None]
    body: _Field[bytes, _Octets]
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, dup: _Integer = ..., qos: _Integer = ..., retain: _Integer = ..., no_qos: Any = ..., topic_len: _Integer = ..., topic: _Octets = ..., packet_id: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., body: _Octets = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Pubrel(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    reason_code: _Field[int | None, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties | None, MqttProperties | None]
    properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., reason_code: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Suback(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties, MqttProperties | None]
    reason_codes: _Field[list[int], list[int] | None]
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., reason_codes: list[int] | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Subscribe(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties, MqttProperties | None]
    subscriptions: _Field[list[MqttSubscription], list[MqttSubscription] | None]
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., subscriptions: list[MqttSubscription] | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Unsuback(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties, MqttProperties | None]
    reason_codes: _Field[list[int], list[int] | None]
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., reason_codes: list[int] | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class Mqtt5Unsubscribe(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties, MqttProperties | None]
    filters: _Field[list[bytes], list[bytes] | None]
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., filters: list[bytes] | None = ..., properties: list[MqttProperty] | None = ...) -> None: ...

class MqttAck(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ...) -> None: ...

class MqttConnack(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    acknowledge_flags: _Field[int, _Integer]
    session_present: _Field[int, _Integer]
    reason_code: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., acknowledge_flags: _Integer = ..., session_present: _Integer = ..., reason_code: _Integer = ...) -> None: ...

class MqttConnect(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    protocol_name_len: _Field[int | None, _Integer]
    protocol_name: _Field[bytes, _Octets]
    level: _Field[int, _Integer]
    protocol_level: _Field[int, _Integer]
    bridge: _Field[int, _Integer]
    connect_flags: _Field[int, _Integer]
    clean_start: _Field[int, _Integer]
    will_qos: _Field[int, _Integer]
    will_retain: _Field[int, _Integer]
    keep_alive: _Field[int, _Integer]
    property_part_len: _Field[int | None, _Integer]
    property_part: _Field[MqttProperties | None, MqttProperties | None]
    client_id_len: _Field[int | None, _Integer]
    client_id: _Field[bytes, _Octets]
    will_property_part_len: _Field[int | None, _Integer]
    will_property_part: _Field[MqttWillProperties | None, MqttWillProperties | None]
    will_topic_len: _Field[int | None, _Integer]
    will_topic: _Field[bytes | None, _Octets]
    will_body_len: _Field[int | None, _Integer]
    will_body: _Field[bytes | None, _Octets]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes | None, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes | None, _Octets]
    properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    will_properties: _Field[list[MqttProperty] | None, list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., protocol_name_len: _Integer = ..., protocol_name: _Octets = ..., level: _Integer = ..., protocol_level: _Integer = ..., bridge: _Integer = ..., connect_flags: _Integer = ..., clean_start: _Integer = ..., will_qos: _Integer = ..., will_retain: _Integer = ..., keep_alive: _Integer = ..., property_part_len: _Integer = ..., property_part: MqttProperties | None = ..., client_id_len: _Integer = ..., client_id: _Octets = ..., will_property_part_len: _Integer = ..., will_property_part: MqttWillProperties | None = ..., will_topic_len: _Integer = ..., will_topic: _Octets = ..., will_body_len: _Integer = ..., will_body: _Octets = ..., username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., properties: list[MqttProperty] | None = ..., will_properties: list[MqttProperty] | None = ...) -> None: ...

class MqttDisconnect(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ...) -> None: ...

class MqttPingreq(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ...) -> None: ...

class MqttPingresp(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ...) -> None: ...

class MqttProperties(Message, metaclass=_MessageClass):
    properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, properties: list[MqttProperty] | None = ...) -> None: ...

class MqttProperty(Message, metaclass=_MessageClass):
    id: _Field[int, _Integer]
    byte: _Field[int | None, _Integer]
    two_bytes: _Field[int | None, _Integer]
    four_bytes: _Field[int | None, _Integer]
    subscription_identifier: _Field[int | None, _Integer]
    text_len: _Field[int | None, _Integer]
    text: _Field[bytes | None, _Octets]
    correlation_data_len: _Field[int | None, _Integer]
    correlation_data: _Field[bytes | None, _Octets]
    authentication_data_len: _Field[int | None, _Integer]
    authentication_data: _Field[bytes | None, _Octets]
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes | None, _Octets]
    value: _Field[Any | None, Any]
    user_value_len: _Field[int | None, _Integer]
    user_value: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, id: _Integer = ..., byte: _Integer = ..., two_bytes: _Integer = ..., four_bytes: _Integer = ..., subscription_identifier: _Integer = ..., text_len: _Integer = ..., text: _Octets = ..., correlation_data_len: _Integer = ..., correlation_data: _Octets = ..., authentication_data_len: _Integer = ..., authentication_data: _Octets = ..., key_len: _Integer = ..., key: _Octets = ..., value: Any = ..., user_value_len: _Integer = ..., user_value: _Octets = ...) -> None: ...

class MqttPublish(Message, metaclass=_MessageClass):
    dup: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    retain: _Field[int, _Integer]
    no_qos: _Field[Any | None, Any]
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    packet_id: _Field[int | None, _Integer]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, dup: _Integer = ..., qos: _Integer = ..., retain: _Integer = ..., no_qos: Any = ..., topic_len: _Integer = ..., topic: _Octets = ..., packet_id: _Integer = ..., body: _Octets = ...) -> None: ...

class MqttPubrel(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ...) -> None: ...

class MqttSuback(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    reason_codes: _Field[list[int], list[int] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., reason_codes: list[int] | None = ...) -> None: ...

class MqttSubscribe(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    subscriptions: _Field[list[MqttSubscription], list[MqttSubscription] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., subscriptions: list[MqttSubscription] | None = ...) -> None: ...

class MqttSubscription(Message, metaclass=_MessageClass):
    filter_len: _Field[int | None, _Integer]
    filter: _Field[bytes, _Octets]
    options: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, filter_len: _Integer = ..., filter: _Octets = ..., options: _Integer = ..., qos: _Integer = ...) -> None: ...

class MqttUnsubscribe(Message, metaclass=_MessageClass):
    reserved_flags: _Field[Any | None, Any]
    packet_id: _Field[int, _Integer]
    filters: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, reserved_flags: Any = ..., packet_id: _Integer = ..., filters: list[bytes] | None = ...) -> None: ...

class MqttWillProperties(Message, metaclass=_MessageClass):
    will_properties: _Field[list[MqttProperty], list[MqttProperty] | None]
    def __init__(self, _pkt: bytes = ..., *, will_properties: list[MqttProperty] | None = ...) -> None: ...

class MsgQ(Message, metaclass=_MessageClass):
    length: _Field[int | None, _Integer]
    def __init__(self, _pkt: bytes = ..., *, length: _Integer = ...) -> None: ...

class MsgQForm(Message, metaclass=_MessageClass):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class MsgQHeader(Message, metaclass=_MessageClass):
    magic: _Field[int, _Integer]
    tree: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., tree: _Octets = ...) -> None: ...

class MsgQMessage(Message, metaclass=_MessageClass):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ...) -> None: ...

class BlipMQPublishV2(BlipMQPublish):
    qos_flags: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    ttl_ms: _Field[int | None, _Integer]
    partition_key_len: _Field[int | None, _Integer]
    partition_key: _Field[bytes | None, _Octets]
    topic_len: _Field[int, _Integer]
    topic: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, qos_flags: _Integer = ..., qos: _Integer = ..., ttl_ms: _Integer = ..., partition_key_len: _Integer = ..., partition_key: _Octets = ..., topic_len: _Integer = ..., topic: _Octets = ..., body: _Octets = ...) -> None: ...

class BlipMQSubscribeV2(BlipMQSubscribe):
    topic_len: _Field[int, _Integer]
    topic: _Field[bytes, _Octets]
    qos_flags: _Field[int, _Integer]
    qos: _Field[int, _Integer]
    group_len: _Field[int | None, _Integer]
    group: _Field[bytes | None, _Octets]
    from_offset: _Field[int | None, _Integer]
    trailing_bytes: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., qos_flags: _Integer = ..., qos: _Integer = ..., group_len: _Integer = ..., group: _Octets = ..., from_offset: _Integer = ..., trailing_bytes: _Octets = ...) -> None: ...

class FlyMQAclList(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQClusterLeave(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQCommitReply(FlyMQSuccess):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQConsumeZeroCopy(FlyMQConsume):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ...) -> None: ...

class FlyMQConsumeZeroCopyReply(FlyMQConsumeReply):
    key_len: _Field[int | None, _Integer]
    key: _Field[bytes, _Octets]
    value_len: _Field[int | None, _Integer]
    value: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, key_len: _Integer = ..., key: _Octets = ..., value_len: _Integer = ..., value: _Octets = ...) -> None: ...

class FlyMQCreateTopicReply(FlyMQSuccess):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQDeleteGroupReply(FlyMQSuccess):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQDeleteSchemaReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQDeleteTopicReply(FlyMQSuccess):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQDescribeGroupReply(FlyMQGroup):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    group_id_len: _Field[int | None, _Integer]
    group_id: _Field[bytes, _Octets]
    members: _Field[int, _Integer]
    offsets_count: _Field[int | None, _Integer]
    offsets: _Field[list[FlyMQGroupOffset], list[FlyMQGroupOffset] | None]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., group_id_len: _Integer = ..., group_id: _Octets = ..., members: _Integer = ..., offsets_count: _Integer = ..., offsets: list[FlyMQGroupOffset] | None = ...) -> None: ...

class FlyMQFetchBinary(FlyMQFetch):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    max_messages: _Field[int, _Integer]
    filter_len: _Field[int | None, _Integer]
    filter: _Field[bytes | None, _Octets]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., max_messages: _Integer = ..., filter_len: _Integer = ..., filter: _Octets = ...) -> None: ...

class FlyMQFetchBinaryReply(FlyMQFetchReply):
    message_count: _Field[int, _Integer]
    next_offset: _Field[int, _Integer]
    records: _Field[list[FlyMQRecord], list[FlyMQRecord] | None]
    def __init__(self, _pkt: bytes = ..., *, message_count: _Integer = ..., next_offset: _Integer = ..., records: list[FlyMQRecord] | None = ...) -> None: ...

class FlyMQListGroups(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQListSchemasAll(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQListTopics(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQPasswordChange(FlyMQUserCreate):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., enabled: bool | None = ...) -> None: ...

class FlyMQPasswordChangeReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQPasswordChangeShort(FlyMQUserCreateShort):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ...) -> None: ...

class FlyMQProduceDelayedReply(FlyMQProduceReply):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    timestamp_ms: _Field[int, _Integer]
    key_size: _Field[int, _Integer]
    value_size: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., timestamp_ms: _Integer = ..., key_size: _Integer = ..., value_size: _Integer = ...) -> None: ...

class FlyMQProduceWithSchemaReply(FlyMQProduceReply):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    timestamp_ms: _Field[int, _Integer]
    key_size: _Field[int, _Integer]
    value_size: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., timestamp_ms: _Integer = ..., key_size: _Integer = ..., value_size: _Integer = ...) -> None: ...

class FlyMQProduceWithTtlReply(FlyMQProduceReply):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    timestamp_ms: _Field[int, _Integer]
    key_size: _Field[int, _Integer]
    value_size: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., timestamp_ms: _Integer = ..., key_size: _Integer = ..., value_size: _Integer = ...) -> None: ...

class FlyMQPurgeDlqReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQReplayDlqReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQRequest(FlyMQ):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    flags: _Field[int, _Integer]
    length: _Field[int | None, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., opcode: _Integer = ..., flags: _Integer = ..., length: _Integer = ...) -> None: ...

class FlyMQResetOffsetReply(FlyMQSuccess):
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ...) -> None: ...

class FlyMQRoleList(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQTxnBegin(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQTxnBeginReply(FlyMQTxnOutcome):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ..., success: bool | None = ...) -> None: ...

class FlyMQTxnCommitReply(FlyMQTxnOutcome):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ..., success: bool | None = ...) -> None: ...

class FlyMQTxnProduceReply(FlyMQProduceReply):
    topic_len: _Field[int | None, _Integer]
    topic: _Field[bytes, _Octets]
    partition: _Field[int, _Integer]
    offset: _Field[int, _Integer]
    timestamp_ms: _Field[int, _Integer]
    key_size: _Field[int, _Integer]
    value_size: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, topic_len: _Integer = ..., topic: _Octets = ..., partition: _Integer = ..., offset: _Integer = ..., timestamp_ms: _Integer = ..., key_size: _Integer = ..., value_size: _Integer = ...) -> None: ...

class FlyMQTxnRollbackReply(FlyMQTxnOutcome):
    txn_id_len: _Field[int | None, _Integer]
    txn_id: _Field[bytes, _Octets]
    success: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, txn_id_len: _Integer = ..., txn_id: _Octets = ..., success: bool | None = ...) -> None: ...

class FlyMQUserCreateReply(FlyMQUser):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    permissions_count: _Field[int | None, _Integer]
    permissions: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    created_at_s: _Field[int, _Integer]
    updated_at_s: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., permissions_count: _Integer = ..., permissions: list[bytes] | None = ..., enabled: bool | None = ..., created_at_s: _Integer = ..., updated_at_s: _Integer = ...) -> None: ...

class FlyMQUserDeleteReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQUserGetReply(FlyMQUser):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    permissions_count: _Field[int | None, _Integer]
    permissions: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    created_at_s: _Field[int, _Integer]
    updated_at_s: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., permissions_count: _Integer = ..., permissions: list[bytes] | None = ..., enabled: bool | None = ..., created_at_s: _Integer = ..., updated_at_s: _Integer = ...) -> None: ...

class FlyMQUserList(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQUserUpdate(FlyMQUserCreate):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    enabled: _Field[bool, bool | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., enabled: bool | None = ...) -> None: ...

class FlyMQUserUpdateReply(FlyMQOutcome):
    success: _Field[bool, bool | None]
    message_len: _Field[int | None, _Integer]
    message: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., message_len: _Integer = ..., message: _Octets = ...) -> None: ...

class FlyMQUserUpdateShort(FlyMQUserCreateShort):
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    password_len: _Field[int | None, _Integer]
    password: _Field[bytes, _Octets]
    old_password_len: _Field[int | None, _Integer]
    old_password: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    def __init__(self, _pkt: bytes = ..., *, username_len: _Integer = ..., username: _Octets = ..., password_len: _Integer = ..., password: _Octets = ..., old_password_len: _Integer = ..., old_password: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ...) -> None: ...

class FlyMQWhoAmI(FlyMQEmpty):
    def __init__(self, _pkt: bytes = ...) -> None: ...

class FlyMQWhoAmIReply(FlyMQAuthResponse):
    success: _Field[bool, bool | None]
    username_len: _Field[int | None, _Integer]
    username: _Field[bytes, _Octets]
    roles_count: _Field[int | None, _Integer]
    roles: _Field[list[bytes], list[bytes] | None]
    error_len: _Field[int | None, _Integer]
    error: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, success: bool | None = ..., username_len: _Integer = ..., username: _Octets = ..., roles_count: _Integer = ..., roles: list[bytes] | None = ..., error_len: _Integer = ..., error: _Octets = ...) -> None: ...

class KokaqAnswer(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqAnswer16(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqAnswer16Lsb(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqAnswerLsb(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqLEAnswer(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqLEAnswer16(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqLERequest(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqLERequest16(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqLean(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    zeros: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., zeros: _Integer = ..., opcode: _Integer = ...) -> None: ...

class KokaqRequest(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqRequest16(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqRequest16Lsb(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ...) -> None: ...

class KokaqRequestLsb(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqSizedAnswer(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    size: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    status_reason: _Field[int, _Integer]
    status: _Field[int, _Integer]
    reason: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., size: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., status_reason: _Integer = ..., status: _Integer = ..., reason: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class KokaqSizedRequest(Kokaq):
    magic: _Field[int, _Integer]
    version: _Field[int, _Integer]
    type_rq: _Field[int, _Integer]
    message_type: _Field[int, _Integer]
    rq: _Field[int, _Integer]
    size: _Field[int, _Integer]
    opaque: _Field[int, _Integer]
    opcode: _Field[int, _Integer]
    client: _Field[int, _Integer]
    op_opaque: _Field[int, _Integer]
    tag: _Field[int, _Integer]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., version: _Integer = ..., type_rq: _Integer = ..., message_type: _Integer = ..., rq: _Integer = ..., size: _Integer = ..., opaque: _Integer = ..., opcode: _Integer = ..., client: _Integer = ..., op_opaque: _Integer = ..., tag: _Integer = ...) -> None: ...

class MsgQFlat(MsgQForm):
    magic: _Field[int, _Integer]
    tree: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, magic: _Integer = ..., tree: _Octets = ...) -> None: ...

class MsgQGetlname(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ...) -> None: ...

class MsgQJson(MsgQForm):
    header_len: _Field[int, _Integer]
    header: _Field[bytes, _Octets]
    body: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, header_len: _Integer = ..., header: _Octets = ..., body: _Octets = ...) -> None: ...

class MsgQLname(MsgQMessage):
    form: _Field[Any, Any]
    lname: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., lname: Any = ..., type: Any = ...) -> None: ...

class MsgQPing(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    msg: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ..., msg: Any = ...) -> None: ...

class MsgQPong(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    msg: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ..., msg: Any = ...) -> None: ...

class MsgQSend(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    from_: _Field[Any, Any]
    to: _Field[Any, Any]
    group: _Field[Any, Any]
    instance: _Field[Any, Any]
    seq: _Field[Any, Any]
    repl: _Field[Any, Any]
    reply: _Field[Any, Any]
    want_answer: _Field[Any, Any]
    msg: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ..., from_: Any = ..., to: Any = ..., group: Any = ..., instance: Any = ..., seq: Any = ..., repl: Any = ..., reply: Any = ..., want_answer: Any = ..., msg: Any = ...) -> None: ...

class MsgQSplit(MsgQForm):
    header_len: _Field[int, _Integer]
    header: _Field[MsgQHeader, MsgQHeader | None]
    body: _Field[bytes, _Octets]
    magic: _Field[int, _Integer]
    tree: _Field[bytes, _Octets]
    def __init__(self, _pkt: bytes = ..., *, header_len: _Integer = ..., header: MsgQHeader | None = ..., body: _Octets = ..., magic: _Integer = ..., tree: _Octets = ...) -> None: ...

class MsgQStats(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ...) -> None: ...

class MsgQStatsReply(MsgQMessage):
    form: _Field[Any, Any]
    stats: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., stats: Any = ..., type: Any = ...) -> None: ...

class MsgQStop(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ...) -> None: ...

class MsgQSubscribe(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    group: _Field[Any, Any]
    instance: _Field[Any, Any]
    subtype: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ..., group: Any = ..., instance: Any = ..., subtype: Any = ...) -> None: ...

class MsgQUnsubscribe(MsgQMessage):
    form: _Field[Any, Any]
    type: _Field[Any, Any]
    group: _Field[Any, Any]
    instance: _Field[Any, Any]
    def __init__(self, _pkt: bytes = ..., *, form: Any = ..., type: Any = ..., group: Any = ..., instance: Any = ...) -> None: ...
