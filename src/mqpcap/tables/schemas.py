"""The columns of the tables, as other programs rely on them.

Each column has its meaning, unit and values in its metadata: see `column`. Text with few distinct values is a
dictionary in memory (``compact``) and plain text in the files.
"""

from collections.abc import Iterable
from functools import cache

import pyarrow as pa

from mqpcap.arrays import DICTIONARY_TEXT, dictionary
from mqpcap.decode.columns import column_type
from mqpcap.schema.compiler import compiled
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import DIRECTIONS, MessageQueue
from mqpcap.tcp.flows import END_STATES, TCP_STATES

US = pa.timestamp("us", tz="UTC")
SIDES = {
    "packets": "captured packets",
    "bytes": "distinct captured bytes of payload",
    "retransmitted_bytes": "bytes sent again",
    "conflict_bytes": "bytes sent again with other content",
    "missing_bytes": "bytes never captured",
    "messages": "messages",
    "duplicate_packets": "packets captured a second time, by another interface or a mirror",
    "tls_bytes": "bytes of opened TLS that are no plaintext: headers, handshakes, padding",
    "closed_window_ns": "time for which the receiver announced no room",
}
"""What ``connections`` counts for each side."""
TLS_FACTS = {
    "version": "version of TLS that the server chose",
    "cipher": "cipher suite that the server chose",
    "server_name": "name of the server that the client asked for (SNI)",
    "alpn": "protocol that the server chose (ALPN); in TLS 1.3 known of opened connections only",
}
"""What ``connections`` says of the hellos of TLS, with and without keys."""
STATES = ("answered", "likely", "silent", "not_expected", "unanswered", "lost", "orphan", "unknown")
EVIDENCE = ("order", "echo", "id", "alternation", "pause", "length", "close")
FLAWS = tuple(flaw.text for flaw in Flaw if flaw.text)
UNITS = {"_ns": "ns", "_us": "us", "_ms": "ms", "_s": "s", "_len": "bytes", "bytes": "bytes"}
"""The unit of a number, by the end of its column's name."""


def column(
    name: str, type_: pa.DataType, meaning: str, unit: str | None = None, values: Iterable[object] = (), **options: bool
) -> pa.Field:
    """A column with its meaning, unit and values in the metadata.

    The keys ``unit`` and ``values`` are there if the column has such; ``comment`` is all in one line, for people.
    """
    unit = unit or next(
        (word for end, word in UNITS.items() if name.endswith(end) and pa.types.is_integer(type_)), None
    )
    listed = ", ".join(map(str, values))
    described = {"comment": meaning + f"; in {unit}" * bool(unit) + f"; values: {listed}" * bool(listed)}
    extra = {key: text for key, text in (("unit", unit), ("values", listed)) if text}
    return pa.field(name, type_, metadata=described | extra, **options)


def always(name: str, type_: pa.DataType, meaning: str, values: Iterable[object] = ()) -> pa.Field:
    """A column that is never null: readers and writers of files have less to do."""
    return column(name, type_, meaning, values=values, nullable=False)


CAPTURE = "capture", pa.string(), "path of the capture's first file, as given; joins tables"
CONNECTION_ID = "connection_id", pa.int64(), "hash of its ends and first time; unique within a capture"
"""Columns that several tables have; joined by them."""
MESSAGES = pa.schema(
    [
        always(*CAPTURE),
        always("capture_file", pa.string(), "the input it began in"),
        always(*CONNECTION_ID),
        always("direction", pa.string(), "side that sent it", values=DIRECTIONS),
        always("stream_offset", pa.int64(), "offset of its first byte in the byte stream of its direction"),
        always("frame_len", pa.int64(), "captured bytes of the message, header included; contiguous unless truncated"),
        always("ts", US, "time of its first byte"),
        always("ts_ns", pa.int64(), "time of its first byte, since 1970 in UTC"),
        always("end_ts_ns", pa.int64(), "time of the packet with its last missing byte, since 1970 in UTC"),
        always("first_packet", pa.int64(), "packet with its first byte, counted from 1 in capture_file"),
        always("last_packet", pa.int64(), "packet with its last missing byte, counted from 1 in its file"),
        always("src_ip", pa.string(), "address of the sender"),
        always("dst_ip", pa.string(), "address of the receiver"),
        always("src_port", pa.int32(), "port of the sender"),
        always("dst_port", pa.int32(), "port of the receiver"),
        always("protocol", pa.string(), "protocol of the connection"),
        column("dialect", pa.string(), "dialect in which it was decoded"),
        column("op_code", pa.int64(), "operation as a number on the wire"),
        column("op", pa.string(), "name of the operation; null if unknown"),
        column("destination", pa.string(), "topic, queue, exchange or group in the message"),
        column("group_name", pa.string(), "consumer group, or queue of the login"),
        column("client_name", pa.string(), "name of the client, from the message or its login"),
        column("message_id", pa.string(), "identifier of the published message, hexadecimal"),
        column("correlation_id", pa.string(), "value that joins a request with its reply"),
        column("partition_id", pa.int32(), "partition of the topic"),
        column("body_len", pa.int64(), "user payload, inflated; null if the operation has none"),
        column("status", pa.string(), "outcome in a reply; null in requests", values=("ok", "error")),
        column("error_code", pa.int64(), "error as a number, if the protocol has one"),
        column("error_text", pa.string(), "error as text, if the protocol has one"),
        column("flaw", pa.string(), "why it was not decoded to its last byte; null if it was", values=FLAWS),
        always("gap_before_bytes", pa.int64(), "missing bytes since the previous message of its direction"),
        always("resynced", pa.bool_(), "found by a search after a gap, a mid-stream start or bad framing"),
    ]
)
CONNECTION_NUMBER = "connection_number"
"""The column of ``messages`` and ``connections`` with the number in the short name of the connection, which some
pipelines add: its place among those of its capture, from 1."""
EXCHANGES = pa.schema(
    [
        always(*CAPTURE),
        always(*CONNECTION_ID),
        always("protocol", pa.string(), "protocol of the connection"),
        column("op", pa.string(), "operation of the request, or of a reply without one"),
        column("destination", pa.string(), "topic, queue, exchange or group of the request, else of the reply"),
        column("client_name", pa.string(), "name of the client, from the request or its login"),
        always("request_direction", pa.string(), "side that sent the request", values=DIRECTIONS),
        column("request_offset", pa.int64(), "stream_offset of the request; null without one"),
        column("reply_offset", pa.int64(), "stream_offset of the reply; null without one"),
        column("request_ts", US, "time of the request's first byte"),
        column("reply_ts", US, "time of the reply's first byte"),
        column("request_ts_ns", pa.int64(), "time of the request's first byte, since 1970 in UTC"),
        column("reply_ts_ns", pa.int64(), "time of the reply's first byte, since 1970 in UTC"),
        column("latency_ns", pa.int64(), "from the first byte of the request to that of the reply"),
        column("server_ns", pa.int64(), "from the last byte of the request to the first of the reply"),
        always("state", pa.string(), "what became of the request", values=STATES),
        column("how", pa.string(), "evidence for the pair; null without one", values=EVIDENCE),
        column("status", pa.string(), "outcome in the reply", values=("ok", "error")),
        column("error_code", pa.int64(), "error in the reply, as a number"),
        always("client_ip", pa.string(), "address of the client"),
        always("client_port", pa.int32(), "port of the client"),
        always("server_ip", pa.string(), "address of the server"),
        always("server_port", pa.int32(), "port of the server"),
        column("request_packet", pa.int64(), "first packet of the request, counted from 1 in its file"),
        column("reply_packet", pa.int64(), "first packet of the reply, counted from 1 in its file"),
    ]
)
DELIVERIES = pa.schema(
    [
        column(*CAPTURE),
        column("protocol", pa.string(), "protocol of both connections"),
        column("destination", pa.string(), "topic, queue, exchange or group of the publish"),
        column("key", pa.string(), "value that proves the delivery, as text; see how"),
        column("publish_connection_id", pa.int64(), "connection_id of the publish"),
        column("publish_offset", pa.int64(), "stream_offset of the publish, from client to server"),
        column("deliver_connection_id", pa.int64(), "connection_id of the delivery"),
        column("deliver_offset", pa.int64(), "stream_offset of the delivery, from server to client"),
        column("publish_ts", US, "time of the publish's first byte"),
        column("deliver_ts", US, "time of the delivery's first byte"),
        column("publish_ts_ns", pa.int64(), "time of the publish's first byte, since 1970 in UTC"),
        column("deliver_ts_ns", pa.int64(), "time of the delivery's first byte, since 1970 in UTC"),
        column("latency_ns", pa.int64(), "from the first byte of the publish to that of the delivery"),
        column("how", pa.string(), "evidence for the pair"),
    ]
)
CAPTURES = pa.schema(
    [
        column(*CAPTURE),
        column("path", pa.string(), "path of the file, as given"),
        column(
            "fingerprint",
            pa.string(),
            "SHA-256 of its packets and their times, hexadecimal; the same for a compressed copy",
        ),
        column("format", pa.string(), "file format and compression"),
        column("link_types", pa.list_(pa.string()), "link types of its packets"),
        column("packets", pa.int64(), "packets in the file"),
        column("bytes", pa.int64(), "captured bytes of its packets"),
        column("first_ts_ns", pa.int64(), "time of its first packet, since 1970 in UTC"),
        column("last_ts_ns", pa.int64(), "time of its last packet, since 1970 in UTC"),
        column("first_ts", US, "time of its first packet"),
        column("last_ts", US, "time of its last packet"),
        column(
            "dropped", pa.int64(), "packets that the capture process dropped, as the file says; null if it does not"
        ),
        column("status", pa.string(), "how far it was read", values=("read", "cut short", "unreadable", "no capture")),
        column("reason", pa.string(), "why it was not read, or not to its end"),
        column("messages", pa.int64(), "messages that begin in it"),
    ]
)
CONNECTIONS = pa.schema(
    [
        column(*CAPTURE),
        column(*CONNECTION_ID),
        column("community_id", pa.string(), "Community ID 1, as Zeek and Suricata print it"),
        column("client_ip", pa.string(), "address of the client"),
        column("client_port", pa.int32(), "port of the client"),
        column("server_ip", pa.string(), "address of the server"),
        column("server_port", pa.int32(), "port of the server"),
        column("first_ts", US, "time of its first packet"),
        column("last_ts", US, "time of its last packet"),
        column("first_ts_ns", pa.int64(), "time of its first packet, since 1970 in UTC"),
        column("last_ts_ns", pa.int64(), "time of its last packet, since 1970 in UTC"),
        column("protocol", pa.string(), "protocol; null if it is a foreign one"),
        column("tls", pa.string(), "encryption; null without", values=("opened", "closed")),
        *(column(f"tls_{name}", pa.string(), meaning) for name, meaning in TLS_FACTS.items()),
        column(
            "identified_by",
            pa.string(),
            "evidence for the protocol; null without one",
            values=("content", "port", "decode_as", "peer"),
        ),
        column(
            "proxied_ip",
            pa.string(),
            "address of the original client in a PROXY header, or of the server in a request to a proxy",
        ),
        column("proxied_port", pa.int32(), "port beside proxied_ip"),
        column("same_as", pa.int64(), "connection of which this is another view (NAT seen on both sides)"),
        column("subflow_of", pa.int64(), "connection whose stream this subflow carries (Multipath TCP)"),
        column("syn_seen", pa.bool_(), "whether a SYN was captured"),
        column("end_state", pa.string(), "how it ended", values=END_STATES),
        column("tcp_state", pa.string(), "how it began; inside: before the capture", values=TCP_STATES),
        column("closed_by", pa.string(), "side of the first FIN or accepted RST; null while open", values=DIRECTIONS),
        column("idle_before_close_ns", pa.int64(), "time without packets before closed_by; null while open"),
        *(
            column(f"{count}_{d}", pa.int64(), f"{meaning}, {d}", "bytes" if count.endswith("bytes") else None)
            for d in DIRECTIONS
            for count, meaning in SIDES.items()
        ),
    ]
)
PROBLEMS = pa.schema(
    [
        column(*CAPTURE),
        column(*CONNECTION_ID),
        column("direction", pa.string(), "side that sent the bytes", values=DIRECTIONS),
        column("stream_offset", pa.int64(), "offset of the first byte in the byte stream of its direction"),
        column("length", pa.int64(), "bytes"),
        column(
            "kind",
            pa.string(),
            "never captured; captured, but no message; sent again with other bytes",
            values=("gap", "undecoded", "conflict"),
        ),
        column("reason", pa.string(), "why the bytes are no message"),
        column("protocol", pa.string(), "protocol of the connection; null if it is a foreign one"),
        column("ts", US, "time of the first byte, or of the packet before it"),
        column("src_ip", pa.string(), "address of the sender"),
        column("src_port", pa.int32(), "port of the sender"),
        column("dst_ip", pa.string(), "address of the receiver"),
        column("dst_port", pa.int32(), "port of the receiver"),
        column("first_packet", pa.int64(), "packet at or before the first byte, counted from 1 in its file"),
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


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries as plain columns, as the files have it."""
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


TABLES = {
    "messages": compact(MESSAGES),
    "exchanges": compact(EXCHANGES),
    "deliveries": DELIVERIES,
    "connections": CONNECTIONS,
    "problems": PROBLEMS,
    "captures": CAPTURES,
}
"""The tables that are not a protocol's, as batches have them."""


@cache
def protocol_schema(protocol: MessageQueue) -> pa.Schema:
    """A protocol's table as batches have it: the columns of KEYS, then its fields.

    ``MessageQueue.meanings`` describes the fields.
    """
    program, meanings = compiled(protocol), protocol.meanings
    fields = []
    for i, c in enumerate(program.columns):
        if c.parent < 0 and not c.hidden:
            values = (f"{n} {text}" for n, text in c.names)
            fields.append(column(c.name, column_type(program, i), meanings.get(c.name, ""), c.unit, values))
        if c.name_column is not None:
            fields.append(column(c.name_column, DICTIONARY_TEXT, f"name of {c.name}"))
    derived = [column(d.name, d.type, meanings.get(d.name, "")) for d in protocol.derived if not d.hidden]
    by_name = {field.name: field for field in (*fields, *derived)}
    return pa.schema([*(TABLES["messages"].field(key) for key in KEYS), *by_name.values()])


def as_declared(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column of a batch in the type that its table declares, whatever values it has."""
    if array.type == type_:
        return array
    if pa.types.is_dictionary(type_) and array.null_count < len(array):
        return dictionary(array)
    return pa.nulls(len(array), type_) if array.null_count == len(array) else array.cast(type_)
