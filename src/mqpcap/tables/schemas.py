"""The columns of the tables, as other programs rely on them.

Text with few distinct values is a dictionary in memory (``compact``) and plain text in the files.
"""

import pyarrow as pa

from mqpcap.arrays import DICTIONARY_TEXT
from mqpcap.schema.protocol import DIRECTIONS

US = pa.timestamp("us", tz="UTC")
SIDES = ("packets", "bytes", "retransmitted_bytes", "conflict_bytes", "missing_bytes", "messages", "duplicate_packets")
"""What ``connections`` counts for each side."""


def always(name: str, type_: pa.DataType) -> pa.Field:
    """A column that is never null: readers and writers of files have less to do."""
    return pa.field(name, type_, nullable=False)


MESSAGES = pa.schema(
    [
        always("capture", pa.string()),
        always("capture_file", pa.string()),
        always("connection_id", pa.int64()),
        always("direction", pa.string()),
        always("stream_offset", pa.int64()),
        always("frame_len", pa.int64()),
        always("ts", US),
        always("ts_ns", pa.int64()),
        always("end_ts_ns", pa.int64()),
        always("first_packet", pa.int64()),
        always("last_packet", pa.int64()),
        always("src_ip", pa.string()),
        always("dst_ip", pa.string()),
        always("src_port", pa.int32()),
        always("dst_port", pa.int32()),
        always("protocol", pa.string()),
        ("dialect", pa.string()),
        ("op_code", pa.int64()),
        ("op", pa.string()),
        ("destination", pa.string()),
        ("group_name", pa.string()),
        ("client_name", pa.string()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("partition_id", pa.int32()),
        ("body_len", pa.int64()),
        ("status", pa.string()),
        ("error_code", pa.int64()),
        ("error_text", pa.string()),
        ("flaw", pa.string()),
        always("gap_before_bytes", pa.int64()),
        always("resynced", pa.bool_()),
    ]
)
NUMBER = "connection_number"
"""The column of ``messages`` and ``connections`` with the number in the short name of the connection, which some
pipelines add: its place among those of its capture, from 1."""
EXCHANGES = pa.schema(
    [
        always("capture", pa.string()),
        always("connection_id", pa.int64()),
        always("protocol", pa.string()),
        ("op", pa.string()),
        ("destination", pa.string()),
        ("client_name", pa.string()),
        always("request_direction", pa.string()),
        ("request_offset", pa.int64()),
        ("reply_offset", pa.int64()),
        ("request_ts", US),
        ("reply_ts", US),
        ("request_ts_ns", pa.int64()),
        ("reply_ts_ns", pa.int64()),
        ("latency_ns", pa.int64()),
        ("server_ns", pa.int64()),
        always("state", pa.string()),
        ("how", pa.string()),
        ("status", pa.string()),
        ("error_code", pa.int64()),
        always("client_ip", pa.string()),
        always("client_port", pa.int32()),
        always("server_ip", pa.string()),
        always("server_port", pa.int32()),
        ("request_packet", pa.int64()),
        ("reply_packet", pa.int64()),
    ]
)
DELIVERIES = pa.schema(
    [
        ("capture", pa.string()),
        ("protocol", pa.string()),
        ("destination", pa.string()),
        ("key", pa.string()),
        ("publish_connection_id", pa.int64()),
        ("publish_offset", pa.int64()),
        ("deliver_connection_id", pa.int64()),
        ("deliver_offset", pa.int64()),
        ("publish_ts", US),
        ("deliver_ts", US),
        ("publish_ts_ns", pa.int64()),
        ("deliver_ts_ns", pa.int64()),
        ("latency_ns", pa.int64()),
        ("how", pa.string()),
    ]
)
CAPTURES = pa.schema(
    [
        ("capture", pa.string()),
        ("path", pa.string()),
        ("fingerprint", pa.string()),
        ("format", pa.string()),
        ("link_types", pa.list_(pa.string())),
        ("packets", pa.int64()),
        ("bytes", pa.int64()),
        ("first_ts_ns", pa.int64()),
        ("last_ts_ns", pa.int64()),
        ("dropped", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("messages", pa.int64()),
    ]
)
CONNECTIONS = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("community_id", pa.string()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("server_ip", pa.string()),
        ("server_port", pa.int32()),
        ("first_ts", US),
        ("last_ts", US),
        ("first_ts_ns", pa.int64()),
        ("last_ts_ns", pa.int64()),
        ("protocol", pa.string()),
        ("tls", pa.string()),
        ("identified_by", pa.string()),
        ("proxied_ip", pa.string()),
        ("proxied_port", pa.int32()),
        ("syn_seen", pa.bool_()),
        ("end_state", pa.string()),
        *((f"{what}_{d}", pa.int64()) for d in DIRECTIONS for what in SIDES),
    ]
)
PROBLEMS = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("direction", pa.string()),
        ("stream_offset", pa.int64()),
        ("length", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("protocol", pa.string()),
        ("ts", US),
        ("src_ip", pa.string()),
        ("src_port", pa.int32()),
        ("dst_ip", pa.string()),
        ("dst_port", pa.int32()),
        ("first_packet", pa.int64()),
    ]
)
KEYS = ("capture", "connection_id", "direction", "stream_offset", "ts", "ts_ns", "op", "flaw")
"""The first columns of a protocol's table."""
REPEATING = frozenset(
    {
        "capture", "capture_file", "direction", "src_ip", "dst_ip", "protocol", "dialect", "op", "destination",
        "group_name", "client_name", "status", "flaw", "request_direction", "state", "client_ip", "server_ip",
    }
)  # fmt: skip
"""Columns of text with few values in a batch: dictionaries, also in the files."""


def compact(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns of text that repeats as dictionaries."""
    return pa.schema([field.with_type(DICTIONARY_TEXT) if field.name in REPEATING else field for field in schema])


TABLES = {
    "messages": compact(MESSAGES),
    "exchanges": compact(EXCHANGES),
    "deliveries": DELIVERIES,
    "connections": CONNECTIONS,
    "problems": PROBLEMS,
    "captures": CAPTURES,
}
"""The tables that are not a protocol's, as batches have them."""
