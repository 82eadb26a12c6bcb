"""FlyMQ: the vectors, the document's examples, and what real clients logged; expected values are theirs."""

import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import end_of, scapy_row
from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

from mqpcap.decode.columns import ColumnReader, Spans, compiled
from mqpcap.protocols import flymq
from mqpcap.protocols.flymq import PROTOCOL, FlyMQ, FlyMQRequest
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import Claim, Direction, Opening, Verdict

HERE = Path(__file__).resolve().parents[1]
VECTORS = json.loads((HERE / "vectors" / "flymq.json").read_text())
BYTES = frozenset({"key", "value", "data", "schema"})
SDK_DIALECTS = {
    "PRODUCE_WITH_SCHEMA/sdk": "python",
    "RESET_OFFSET/java": "java",
    "DESCRIBE_GROUP/java": "java",
    "DELETE_GROUP/java": "java",
    "REPLAY_DLQ/by_offset": "python",
    "AUDIT_QUERY/sdk": "java",
    "AUDIT_EXPORT/sdk": "java",
}


READER = ColumnReader(PROTOCOL)


def tabled(frames: Sequence[tuple[bytes, str]]) -> tuple[pa.Table, list[Flaw], list[str | None]]:
    """Whole frames with their directions as one batch: columns, flaws and dialects."""
    program = READER.program
    layouts = [x.name for x in program.layouts]
    ends = np.cumsum([len(frame) for frame, _ in frames])
    records = READER.records(
        Spans(
            np.frombuffer(b"".join(frame for frame, _ in frames), np.uint8),
            ends - [len(frame) for frame, _ in frames],
            ends,
            np.array([layouts.index(direction) for _, direction in frames], np.int32),
            np.array([frame[2] for frame, _ in frames], np.int64),
            np.zeros(len(frames), np.uint8),
        )
    )
    dialects = [program.variant_dialect[r] if r >= 0 else None for r in records.variant.tolist()]
    said = [d or PROTOCOL.layout(direction).dialect for d, (_, direction) in zip(dialects, frames, strict=True)]
    return records.table, [Flaw(x) for x in records.flaw.tolist()], said


def read_all(frames: Sequence[tuple[bytes, str]]) -> list[tuple[dict[str, Any], Flaw, str | None]]:
    """Each frame's columns without nulls, decimals as the integers they equal; its flaw and dialect."""
    table, flaws, dialects = tabled(frames)
    rows = [{k: normal(v) for k, v in x.items() if v is not None} for x in table.to_pylist()]
    return list(zip(rows, flaws, dialects, strict=True))


def read(frame: bytes, direction: str) -> tuple[dict[str, Any], Flaw, str | None]:
    """One frame."""
    return read_all([(frame, direction)])[0]


def normal(value: Any) -> Any:
    if isinstance(value, list):
        return [normal(x) for x in value]
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items()}
    return int(value) if isinstance(value, Decimal) else value


def framed(op: int, body: bytes, flags: int = 1) -> bytes:
    return bytes([0xAF, 1, op, flags]) + len(body).to_bytes(4, "big") + body


def text(value: str, length: int = 2) -> bytes:
    return len(value.encode()).to_bytes(length, "big") + value.encode()


def u(size: int, value: int) -> bytes:
    return value.to_bytes(size, "big", signed=value < 0)


def expected(op: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A vector's values under the names and types of the columns."""
    values = dict(values)
    values |= values.pop("query", {})
    if op == "VALIDATE_SCHEMA" and "message" in values:
        values["data"] = values.pop("message")
    if op in ("FETCH", "FETCH_BINARY") and "messages" in values:
        values["records"] = values.pop("messages")
    if op == "ROLE_LIST" and "roles" in values:
        values["role_list"] = values["roles"]
        values["roles"] = [x["name"] for x in values["role_list"]]
    if op == "CLUSTER_METADATA" and "topics" in values:
        values["topic_partitions"] = values["topics"]
        values["topics"] = [x["topic"] for x in values["topic_partitions"]]
    if "definition" in values:
        values["definition"] = bytes.fromhex(values["definition"]).decode()
    if "events" in values:
        values["events"] = [x["event"] for x in values["events"]]
    return {name: unhexed(name, value) for name, value in values.items()}


def unhexed(name: str, value: Any) -> Any:
    """Hex to bytes where the conventions of the file say bytes; details of an audit event are text."""
    if isinstance(value, list):
        return [unhexed(name, x) for x in value]
    if isinstance(value, dict):
        return {k: v if name == "details" else unhexed(k, v) for k, v in value.items()}
    return bytes.fromhex(value) if name in BYTES and isinstance(value, str) else value


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda v: v["id"])
def test_request_vector(vector: dict[str, Any]) -> None:
    values = vector["values"]
    dialect = SDK_DIALECTS.get(vector["layout"], "go")
    if vector["id"] == "py_produce_with_schema_empty":
        # The server's layout fits too and is read first: the schema's name is taken for the data.
        values, dialect = {"topic": "orders", "schema_name": "", "data": b"orders".hex()}, "go"

    found = read(bytes.fromhex(vector["frame_hex"]), "c2s")

    assert found == ({"flags": vector["flags"]} | expected(vector["opcode_name"], values), Flaw.NONE, dialect)


@pytest.mark.parametrize("vector", VECTORS["responses"], ids=lambda v: v["id"])
def test_reply_vector(vector: dict[str, Any]) -> None:
    found = read(bytes.fromhex(vector["frame_hex"]), "s2c")

    assert found == (
        {"flags": vector["flags"]} | expected(vector["opcode_name"], vector["values"]), Flaw.NONE, "go"
    )  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS["errors"], ids=lambda v: v["id"])
def test_error_vector(vector: dict[str, Any]) -> None:
    found = read(bytes.fromhex(vector["frame_hex"]), "s2c")

    assert found == ({"flags": vector["flags"]} | vector["values"], Flaw.NONE, "go")


@pytest.mark.parametrize("op", [0x01, 0x14, 0x30, 0x35, 0x43])
def test_older_servers_answer_a_produce_with_twelve_bytes(op: int) -> None:
    (vector,) = VECTORS["legacy"]

    found = read(framed(op, bytes.fromhex(vector["frame_hex"])[8:]), "s2c")

    assert found == ({"flags": 1, "offset": 42, "partition": 0}, Flaw.NONE, "legacy")


def test_large_zero_copy_value_keeps_its_record_and_is_unwrapped_once() -> None:
    large = VECTORS["zero_copy_large"]
    value = b"\x5a" * 65536
    record = u(4, 1) + b"k" + u(4, 65536) + value
    frame = framed(0x0A, u(4, 1) + b"k" + u(4, len(record)) + record)
    assert (len(frame), frame[:40].hex()) == (large["frame_length"], large["first_40_bytes_hex"])
    assert hashlib.sha256(frame).hexdigest() == large["frame_sha256"]

    columns, flaw, _ = read(frame, "s2c")

    assert flaw is Flaw.NONE
    assert columns == {"flags": 1, "key": b"k", "value": record, "inner_value": value}


@pytest.mark.parametrize(
    ("op", "value"),
    [
        (0x0A, u(4, 1) + b"j" + u(4, 65536) + bytes(65536)),
        (0x0A, u(4, 1) + b"k" + u(4, 65535) + bytes(65536)),
        (0x0A, u(4, 1) + b"k" + u(4, 65534) + bytes(65534)),
        (0x0A, u(4, 2**31) + bytes(65600)),
        (0x02, u(4, 1) + b"k" + u(4, 65536) + bytes(65536)),
    ],
    ids=["other key", "length does not fill it", "too small", "key overruns", "plain consume"],
)
def test_value_that_is_no_stored_record_has_no_inner_value(op: int, value: bytes) -> None:
    columns, flaw, _ = read(framed(op, u(4, 1) + b"k" + u(4, len(value)) + value), "s2c")

    assert flaw is Flaw.NONE
    assert "inner_value" not in columns


@pytest.mark.parametrize("name", ["bad_version", "too_long"])
def test_header_that_servers_refuse_is_no_request(name: str) -> None:
    data = bytes.fromhex(next(v["hex"] for v in VECTORS["malformed"] if v["id"] == name))

    assert end_of(PROTOCOL, "c2s", data + bytes(100)) == []
    assert Raw in FlyMQRequest(data + bytes(100))


def test_reply_may_be_longer_than_a_request() -> None:
    # The running server sent a FETCH reply with this header.
    header = bytes.fromhex("af01070102000275")

    assert end_of(PROTOCOL, "s2c", header + bytes(33_555_061)) == [(0, 33_555_069)]
    assert end_of(PROTOCOL, "c2s", header + bytes(33_555_061)) == []


@pytest.mark.parametrize("stream", VECTORS["streams"], ids=lambda v: v["id"])
def test_stream_vector_falls_into_its_pairs(stream: dict[str, Any]) -> None:
    sides = [("c2s", bytes.fromhex(stream["client_hex"])), ("s2c", bytes.fromhex(stream["server_hex"]))]

    ops = [[flymq.NAMES[data[at + 2]] for at, _ in end_of(PROTOCOL, side, data)] for side, data in sides]

    assert [list(pair) for pair in zip(*ops, strict=True)] == stream["pairs"]


def test_gzip_request_is_read_inflated() -> None:
    stream = next(s for s in VECTORS["streams"] if s["id"] == "gzip_request")

    found = read(bytes.fromhex(stream["client_hex"]), "c2s")

    # The reply beside it says 100 bytes of value without a key.
    columns, flaw, dialect = found
    assert (flaw, dialect, columns["flags"], columns["topic"]) == (Flaw.NONE, "go", 3, "test")
    assert (columns["key"], len(columns["value"]), columns["partition"]) == (b"", 100, -1)


PRODUCE_BODY = bytes.fromhex("000474657374000000000000000568656c6c6fffffffff")


@pytest.mark.parametrize("flags", [0x02, 0x03, 0x07, 0x0B, 0x0F])
def test_every_flag_with_the_gzip_bit_inflates(flags: int) -> None:
    two_members = gzip.compress(PRODUCE_BODY[:9]) + gzip.compress(PRODUCE_BODY[9:])

    for packed in (gzip.compress(PRODUCE_BODY), two_members):
        columns, flaw, _ = read(framed(1, packed, flags), "c2s")

        assert flaw is Flaw.NONE
        assert columns == {"flags": flags, "topic": "test", "key": b"", "value": b"hello", "partition": -1}


@pytest.mark.parametrize("flags", [0x00, 0x05, 0x09, 0x11, 0xF0, 0xF9])
def test_other_flags_leave_the_payload_as_it_stands(flags: int) -> None:
    columns, flaw, _ = read(framed(1, PRODUCE_BODY, flags), "c2s")

    assert flaw is Flaw.NONE
    assert (columns["flags"], columns["value"]) == (flags, b"hello")


@pytest.mark.parametrize(
    "packed",
    [b"", b"plain", gzip.compress(PRODUCE_BODY)[:-4], gzip.compress(PRODUCE_BODY) + bytes(4)],
    ids=["empty", "not gzip", "cut", "bytes behind"],
)
def test_payload_that_cannot_be_inflated_is_malformed_and_keeps_its_flags(packed: bytes) -> None:
    assert read(framed(1, packed, 3), "c2s") == ({"flags": 3}, Flaw.MALFORMED, "go")


def test_worked_example_of_the_document_request() -> None:
    # spec: the header says 0x13, the payload is 0x17 bytes long: the four of the partition were not counted.
    said = bytes.fromhex("AF01010100000013") + PRODUCE_BODY
    right = bytes.fromhex("AF01010100000017") + PRODUCE_BODY

    assert read(right, "c2s") == (
        {"flags": 1, "topic": "test", "key": b"", "value": b"hello", "partition": -1}, Flaw.NONE, "go"
    )  # fmt: skip
    # Trusted as it is said, the first 19 bytes are a frame that fits nothing and four bytes are left.
    assert end_of(PROTOCOL, "c2s", said) == [(0, 27)]
    assert read(said[:27], "c2s") == ({"flags": 1}, Flaw.MALFORMED, "go")


def test_worked_example_of_the_document_reply() -> None:
    frame = bytes.fromhex("AF01010100000022 000474657374 00000000 000000000000002A 0000018D5A3B2C00 FFFFFFFF 00000005")

    found = read(frame, "s2c")

    # The document calls these bytes 1705123456000; they are 1706615843840.
    assert found == (
        {
            "flags": 1, "topic": "test", "partition": 0, "offset": 42, "timestamp_ms": 1_706_615_843_840,
            "key_size": -1, "value_size": 5,
        },
        Flaw.NONE,
        "go",
    )  # fmt: skip


def test_encoding_examples_of_the_document() -> None:
    name = flymq.FlyMQDeleteTopic.read(bytes.fromhex("0005 68656C6C6F"))
    data = flymq.FlyMQConsumeReply.read(bytes(4) + bytes.fromhex("00000004 DEADBEEF"))
    names = flymq.FlyMQListTopicsReply.read(bytes.fromhex("00000002 0001 61 0002 6263"))

    assert (name.topic, data.value, names.topics) == (b"hello", b"\xde\xad\xbe\xef", [b"a", b"bc"])


DOCUMENT = [
    (
        "s2c", 0x07,
        u(4, 2) + u(4, 1) + b"k" + u(4, 2) + b"bc" + u(8, 7) + u(4, 0) + u(4, 1) + b"a" + u(8, 8) + u(8, 9),
        {
            "records": [{"offset": 7, "key": b"k", "value": b"bc"}, {"offset": 8, "key": b"", "value": b"a"}],
            "next_offset": 9,
        },
    ),
    ("s2c", 0x03, b"\1" + text("made"), {"success": True, "message": "made"}),
    (
        "c2s", 0x05, text("orders") + text("g1") + u(4, 0) + text("latest"),
        {"topic": "orders", "group_id": "g1", "partition": 0, "mode": "latest"},
    ),
    (
        "s2c", 0x70, b"\1" + text("") + text("admin") + u(4, 2) + text("admin") + text("user"),
        {"success": True, "error": "", "username": "admin", "roles": ["admin", "user"]},
    ),
    (
        "s2c", 0x71, b"\1" + text("") + text("admin") + u(4, 1) + text("admin"),
        {"success": True, "error": "", "username": "admin", "roles": ["admin"]},
    ),
    (
        "s2c", 0x71, b"\0" + text("invalid username or password") + text("") + u(4, 0),
        {"success": False, "error": "invalid username or password", "username": "", "roles": []},
    ),
    ("s2c", 0xFF, b"\0" + text("authentication required"), {"success": False, "message": "authentication required"}),
]  # fmt: skip


@pytest.mark.parametrize(("direction", "op", "body", "values"), DOCUMENT)
def test_layout_that_only_the_document_has(direction: str, op: int, body: bytes, values: dict[str, Any]) -> None:
    assert read(framed(op, body), direction) == ({"flags": 1} | values, Flaw.NONE, "doc")


def test_empty_fetch_reply_fits_both_orders_and_is_the_servers() -> None:
    body = u(4, 0) + u(8, 5)

    assert read(framed(7, body), "s2c") == ({"flags": 1, "next_offset": 5, "records": []}, Flaw.NONE, "go")


def test_login_without_roles_is_read_in_the_servers_order() -> None:
    body = b"\1" + text("alice") + u(4, 0) + text("")

    columns, _, dialect = read(framed(0x71, body), "s2c")

    assert (columns["username"], columns["error"], dialect) == ("alice", "", "go")


FETCH_BODY = text("orders") + u(4, 0) + u(8, 5) + u(4, 10)
EXTRA = [
    (0x01, PRODUCE_BODY, b"tail"),
    (0x01, PRODUCE_BODY, bytes.fromhex("af01080100000000")),
    (0x07, FETCH_BODY, b"\0"),
    (0x07, FETCH_BODY, u(2, 500) + b"short"),
    (0x07, FETCH_BODY + text("^ERR"), b"x"),
    (0x08, b"", b"ignored"),
    (0x40, b"", b"\1"),
    (0x12, b"", b"\1"),
    (0x12, b"", u(2, 500)),
    (0x63, text("orders") + text("g1"), b"!"),
    (0x73, text("a") + text("b") + text("") + u(4, 0) + b"\1", b"xy"),
]


@pytest.mark.parametrize(("op", "body", "extra"), EXTRA)
def test_bytes_after_the_last_field_of_a_request_are_extra(op: int, body: bytes, extra: bytes) -> None:
    plain, _, _ = read(framed(op, body), "c2s")

    assert read(framed(op, body + extra), "c2s") == (plain | {"extra": extra}, Flaw.NONE, "go")


def test_bytes_after_the_last_field_of_a_reply_are_a_flaw() -> None:
    assert read(framed(0x06, b"\1\1"), "s2c") == ({"flags": 1}, Flaw.MALFORMED, "go")


@pytest.mark.parametrize(
    ("direction", "op", "body"),
    [
        ("c2s", 0x73, text("u") + text("p") + text("") + u(4, 2**32 - 1)),
        ("c2s", 0x78, text("t") + b"\1" + u(4, 2**24 + 1)),
        ("s2c", 0x08, u(4, 2**32 - 1)),
        ("s2c", 0x07, u(4, 2**32 - 1) + u(8, 0)),
    ],
)
def test_count_above_the_bytes_left_is_malformed(direction: str, op: int, body: bytes) -> None:
    """The server allocates by the count before it checks it (binary.go:2138, 2293, 4235); no layout fits such bytes."""
    assert read(framed(op, body), direction) == ({"flags": 1}, Flaw.MALFORMED, "go")


def test_bytes_after_a_dialect_are_a_flaw() -> None:
    assert read(framed(0x63, text("group") + b"\xff\xff"), "c2s") == ({"flags": 1}, Flaw.MALFORMED, "go")


def test_enabled_may_be_absent_only_after_a_role() -> None:
    head = text("dave") + text("new") + text("")

    absent = read(framed(0x73, head + u(4, 2) + text("producer") + text("consumer")), "c2s")

    assert absent[0].get("roles") == ["producer", "consumer"]
    assert "enabled" not in absent[0]
    assert read(framed(0x7C, head + u(4, 0)), "c2s") == ({"flags": 1}, Flaw.MALFORMED, "go")


def test_offset_too_large_for_an_empty_message_id_is_no_dialect() -> None:
    below = read(framed(0x21, text("orders") + u(8, 2**48 - 1)), "c2s")
    above = read(framed(0x21, text("orders") + u(8, 2**48 * 7)), "c2s")

    assert below == ({"flags": 1, "topic": "orders", "offset": 2**48 - 1}, Flaw.NONE, "python")
    assert above == ({"flags": 1}, Flaw.MALFORMED, "go")


def test_message_id_of_six_letters_is_no_offset() -> None:
    columns, _, dialect = read(framed(0x21, text("orders") + text("abcdef")), "c2s")

    assert (columns["message_id"], dialect) == ("abcdef", "go")


def test_negative_page_offset_stays_negative() -> None:
    body = bytes(16) + u(4, 0) + 4 * text("") + u(4, -1) + u(4, -2)

    columns, _, _ = read(framed(0x80, body), "c2s")

    assert (columns["limit"], columns["offset"]) == (-1, -2)


def test_offset_may_use_its_top_bit() -> None:
    columns, _, _ = read(framed(0x02, text("t") + u(4, -1) + u(8, 2**64 - 1)), "c2s")

    assert (columns["partition"], columns["offset"]) == (-1, 2**64 - 1)


def test_topic_that_is_not_utf8_or_empty_is_kept() -> None:
    odd, _, _ = read(framed(0x09, bytes.fromhex("0003fffefd")), "c2s")
    empty, _, _ = read(framed(0x09, bytes(2)), "c2s")

    assert (odd["topic"], empty["topic"]) == ("\ufffd" * 3, "")


@pytest.mark.parametrize(
    ("direction", "op"),
    [*(("c2s", op) for op in (0x00, 0x31, 0x52, 0x66, 0x71, 0xEE, 0xFF)), ("s2c", 0x04), ("s2c", 0x50)],
)
def test_opcode_without_a_layout_is_unknown(direction: str, op: int) -> None:
    assert read(framed(op, b"\0\1a"), direction) == ({"flags": 1}, Flaw.UNKNOWN, "go")


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        (b"EOF", {"message": "EOF"}),
        (b"", {"message": ""}),
        (u(4, 1) + text(""), {"code": 1, "message": ""}),
        (b"\0" + text("x") + b"y", {"message": "\0\0\x01xy"}),
        (b"\1" + text("four"), {"message": "\1\0\4four"}),
        (b"bad \xff", {"message": "bad \ufffd"}),
    ],
)
def test_error_form_is_recognised_by_content(payload: bytes, values: dict[str, Any]) -> None:
    assert read(framed(0xFF, payload, 0), "s2c") == ({"flags": 0} | values, Flaw.NONE, "go")


# What the clients logged: payloads of at most 48 bytes with the values that FlyMQ's own decoders gave.


def _truth_files() -> list[Path]:
    found = sorted((HERE / "truth" / "flymq").glob("*.truth.json"))
    if "MQPCAP_SHARED" in os.environ:
        more = Path(os.environ["MQPCAP_SHARED"]) / "captures" / "flymq"
        found += [p for p in sorted(more.glob("*.truth.json")) if p.name not in {q.name for q in found}]
    return found


RENAMED = {
    "timestamp": "timestamp_ms", "start_time": "start_time_s", "end_time": "end_time_s",
    "created_at": "created_at_s", "updated_at": "updated_at_s",
}  # fmt: skip
# The decoders give these a zero where they are absent from the wire.
MAY_BE_ABSENT = {"filter": "", "topic": "", "enabled": False, "offset": 0}


def truth_columns(event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an event under the names of the columns."""
    op, fields = event["op_name"], dict(event.get("fields", {}))
    fields.pop("form", None)
    if op in ("REGISTER_SCHEMA", "GET_SCHEMA", "LIST_SCHEMAS"):
        fields.pop("created_at", None)
        fields["schemas"] = [{k: v for k, v in x.items() if k != "created_at"} for x in fields.get("schemas", [])]
        if op != "LIST_SCHEMAS" or event["dir"] == "c2s":
            del fields["schemas"]
    if "value" in fields and op in ("USER_DELETE", "USER_GET", "ACL_GET", "ACL_DELETE"):
        fields["username" if op.startswith("USER") else "topic"] = fields.pop("value")
    fields |= fields.pop("query", {})
    if op == "VALIDATE_SCHEMA" and "message" in fields:
        fields["data"] = fields.pop("message")
    if op in ("FETCH", "FETCH_BINARY") and "messages" in fields:
        fields["records"] = fields.pop("messages")
    if op == "CLUSTER_METADATA" and "topics" in fields:
        fields["topic_partitions"] = fields["topics"]
        fields["topics"] = [x["topic"] for x in fields["topic_partitions"]]
    if op == "ROLE_LIST" and "roles" in fields:
        fields["role_list"] = fields["roles"]
        fields["roles"] = [x["name"] for x in fields["role_list"]]
    if "acls" in fields:  # the decoder's structure has it per entry, the wire does not
        fields["acls"] = [{k: v for k, v in x.items() if k != "default_public"} for x in fields["acls"]]
    payload = bytes.fromhex(event["payload_hex"])
    # The server takes these two to the end of what it knows and reads an empty word; a dialect reads them whole.
    if op == "REPLAY_DLQ" and fields.get("message_id") == "":
        del fields["message_id"]
        fields["offset"] = int.from_bytes(payload[-8:], "big")
    if op == "SUBSCRIBE" and fields.get("mode") == "" and len(payload) > 13:
        fields["mode"] = payload[14:].decode()
    return {RENAMED.get(name, name): value for name, value in fields.items()}


def equal(said: Any, found: Any) -> bool:
    """Whether a value is what the log says; byte strings are logged with length and text, hex or hash."""
    if isinstance(said, dict) and "len" in said:
        data = found.encode() if isinstance(found, str) else found
        if "sha256" in said:
            return len(data) == said["len"] and hashlib.sha256(data).hexdigest() == said["sha256"]
        if "hex" in said and isinstance(found, str):
            return bytes.fromhex(said["hex"]).decode("utf-8", "replace") == found
        return data == (bytes.fromhex(said["hex"]) if "hex" in said else said["text"].encode())
    if isinstance(said, list):
        return len(said) == len(found) and all(equal(x, y) for x, y in zip(said, found, strict=True))
    if isinstance(said, dict) and isinstance(found, list):  # details of an audit event
        return said == {x["key"]: x["value"] for x in found} and len(said) == len(found)
    if isinstance(said, dict):
        return {RENAMED.get(k, k) for k in said} == set(found) and all(
            equal(v, found[RENAMED.get(k, k)]) for k, v in said.items()
        )
    return bool(said == found)


@pytest.mark.parametrize("path", _truth_files(), ids=lambda p: p.name.split(".")[0])
def test_columns_equal_what_the_clients_logged(path: Path) -> None:
    truth = json.loads(path.read_text())
    events = [e for c in truth["connections"] for e in c["events"] if "payload_hex" in e]
    frames = [(framed(int(e["op"], 16), bytes.fromhex(e["payload_hex"]), e["flags"]), e["dir"]) for e in events]

    wrong = [x for x in zip(events, read_all(frames), strict=True) if not agrees(*x)]

    assert events
    assert not wrong


def agrees(event: Mapping[str, Any], found: tuple[dict[str, Any], Flaw, str | None]) -> bool:
    """Whether a frame was read as the client logged it."""
    columns, flaw, dialect = found
    if "not_in_server_layout" in event:
        return flaw is Flaw.MALFORMED or dialect != "go"
    if "fields" not in event and event["dir"] == "c2s":
        return flaw in (Flaw.NONE, Flaw.UNKNOWN) or event["op"] in ("0xA0", "0xA1")
    said = truth_columns(event)
    missing = {k for k, v in said.items() if k not in columns and MAY_BE_ABSENT.get(k, v is None) != v}
    more = set(columns) - set(said) - {"flags", "extra"}
    differs = {k for k, v in said.items() if k in columns and not equal(v, columns[k])}
    return flaw is Flaw.NONE and not (missing or more or differs)


# The two roads: the Scapy classes and the interpreter.

FRAMES: list[tuple[Direction, bytes]] = [
    *(("c2s", bytes.fromhex(v["frame_hex"])) for v in VECTORS["requests"]),
    *(("s2c", bytes.fromhex(v["frame_hex"])) for g in ("responses", "errors", "legacy") for v in VECTORS[g]),
    *((direction, framed(op, body)) for direction, op, body, _ in DOCUMENT),
    *(("c2s", framed(op, body + extra)) for op, body, extra in EXTRA),
    ("c2s", framed(1, gzip.compress(PRODUCE_BODY, mtime=0), 3)),
]  # fmt: skip


def by_scapy(frame: bytes, direction: Direction) -> tuple[dict[str, Any], Flaw]:
    """The columns that Scapy's classes give, and those that the layer makes of others."""
    columns, flaw = scapy_row(FlyMQRequest if direction == "c2s" else FlyMQ, frame, direction)
    op = columns.pop("opcode")
    body = FlyMQ.read(frame, direction).payload
    if direction == "c2s" and isinstance(body, Message) and Raw in body:
        columns["extra"], flaw = bytes(body[Raw].load), Flaw.NONE
    if "page_offset" in columns:
        columns["offset"] = columns.pop("page_offset")
    if "topic_partitions" in columns:
        columns["topics"] = [x["topic"] for x in columns["topic_partitions"]]
    if "role_list" in columns:
        columns["roles"] = [x["name"] for x in columns["role_list"]]
    if flaw is not Flaw.NONE and op not in PROTOCOL.layout(direction).bodies:
        flaw = Flaw.UNKNOWN
    return columns, flaw


def test_both_roads_agree() -> None:
    for direction, frame in FRAMES:
        columns, flaw, _ = read(frame, direction)

        assert by_scapy(frame, direction) == (columns, flaw), frame.hex(" ")


@given(st.sampled_from(FRAMES), st.data())
def test_both_roads_agree_on_damaged_payloads(sample: tuple[Direction, bytes], data: st.DataObject) -> None:
    direction, frame = sample
    body = bytearray(frame[8:])
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(body)))
    damaged = framed(frame[2], bytes(body[: len(body) - data.draw(st.sampled_from([0, 0, 1, cut]))]), frame[3])

    columns, flaw, _ = read(damaged, direction)

    assert by_scapy(damaged, direction) == (columns, flaw)


def test_rebuilding_gives_the_bytes() -> None:
    for direction, frame in FRAMES:
        packet = FlyMQ.read(frame, direction)
        body = packet.payload
        if frame[3] & 2:
            continue  # compression is read, not written
        if not isinstance(body, Raw):
            again = type(body)(**body.fields)
            packet = FlyMQ(flags=frame[3]) / again / bytes(body.payload)
            packet.opcode = frame[2]

        assert bytes(packet) == frame, frame.hex(" ")


def test_compressed_request_with_extra_bytes_builds_as_it_came() -> None:
    """The server ignores bytes after the last field: it only checks that there are enough (binary.go:144-147)."""
    frame = framed(0x09, gzip.compress(text("t") + b"tail"), 3)
    packet = FlyMQ.read(frame, "c2s")

    assert (packet.topic, packet[Raw].load) == (b"t", b"tail")
    assert bytes(packet) == frame


def test_building_fills_opcode_and_lengths() -> None:
    request = FlyMQ() / flymq.FlyMQProduce(topic="test", value=b"hello")
    reply = FlyMQ() / flymq.FlyMQFetchReply(
        next_offset=3,
        records=[
            flymq.FlyMQRecord(offset=0, value=b"a"),
            flymq.FlyMQRecord(offset=2, key=b"k", value=b"bc"),
        ],
    )

    assert bytes(request).hex() == next(v["frame_hex"] for v in VECTORS["requests"] if v["id"] == "py_produce_nokey")
    assert bytes(reply).hex() == next(v["frame_hex"] for v in VECTORS["responses"] if v["id"] == "fetch_resp")


def test_ports_distinguish_requests_and_replies() -> None:
    # Key and value lengths add up to 16, so the request has the length of its reply, and both layouts fit.
    frame = bytes.fromhex(next(v["frame_hex"] for v in VECTORS["requests"] if v["id"] == "py_produce_key"))

    request = IP() / TCP(sport=40000, dport=9092) / FlyMQ()
    reply = IP() / TCP(sport=9092, dport=40000) / FlyMQ()
    for packet, cls in ((request, flymq.FlyMQProduce), (reply, flymq.FlyMQProduceReply)):
        layer = FlyMQ(frame, _underlayer=packet[TCP])
        assert type(layer.payload) is cls


# What is a FlyMQ connection.


def opening(
    c2s: bytes = b"",
    s2c: bytes = b"",
    *,
    start: bool = True,
    ended: bool = False,
    on_port: bool = True,
    decode_as: bool = False,
) -> Opening:
    """The first bytes of a connection; ``find_run`` searches as framing does."""
    sides = {"c2s": c2s, "s2c": s2c}

    def find_run(direction: Direction, layout: str, n: int) -> int | None:
        program = compiled(PROTOCOL)
        data = sides[direction]
        at, found = program.scanner(layout).search(memoryview(data), 0, len(data), ended, n)
        return at if found else None

    return Opening(c2s, s2c, start, start, ended, ended, on_port, decode_as, find_run)


def vector(name: str) -> bytes:
    return next(
        bytes.fromhex(v["frame_hex"])
        for g in ("requests", "responses", "errors")
        for v in VECTORS[g]
        if v["id"] == name
    )


@pytest.mark.parametrize("on_port", [True, False])
def test_a_known_request_header_is_enough(on_port: bool) -> None:
    claim = flymq.claims(opening(vector("py_list_topics"), on_port=on_port))

    assert claim == Claim(Verdict.YES, "c2s", "s2c")


@pytest.mark.parametrize("cut", range(8))
def test_part_of_a_header_waits_until_the_end(cut: int) -> None:
    head = bytes.fromhex("af01010100000017")[:cut]

    assert flymq.claims(opening(head)).verdict is Verdict.WAIT
    ended = flymq.claims(opening(head, ended=True)).verdict
    assert ended is (Verdict.LIKELY if cut >= 2 else Verdict.NO)


STRANGERS = {
    "kafka": bytes.fromhex("00000023001200040000000100076b61666b612d70"),
    "tls": bytes.fromhex("1603010200010001fc0303"),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "grpc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "raft": bytes.fromhex("01000000477b227465726d223a31"),
    "bad version": bytes.fromhex("af02080100000000"),
    "bad magic": bytes.fromhex("ae01010100000000"),
    "too long": bytes.fromhex("af01010102000001"),
    "random": bytes(range(7, 250, 3)),
}


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS)
def test_strangers_are_declined_at_once_but_for_decode_as(data: bytes) -> None:
    assert flymq.claims(opening(data)).verdict is Verdict.NO
    assert flymq.claims(opening(data, decode_as=True)).verdict is Verdict.LIKELY


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS)
def test_strangers_from_the_middle_are_declined_at_the_end(data: bytes) -> None:
    assert flymq.claims(opening(data, data[3:], start=False, ended=True)).verdict is Verdict.NO


def test_largest_length_is_a_request() -> None:
    data = bytes.fromhex(next(v["hex"] for v in VECTORS["malformed"] if v["id"] == "max_length_ok"))

    assert flymq.claims(opening(data, ended=True)).verdict is Verdict.YES


MIDDLES: dict[str, tuple[bytes, bytes]] = {
    "auth": (vector("py_auth_ok") + vector("py_auth_ok"), b""),
    "auth answered": (b"", 2 * vector("auth_response_ok")),
    "errors": (b"", 2 * vector("text_unknown_opcode")),
    "empty requests": (2 * vector("py_list_topics"), b""),
    "one byte": (b"", vector("commit_resp") + vector("delete_topic_resp")),
    "eight bytes": (b"", 2 * vector("subscribe_resp")),
    "produce like its reply": (2 * vector("py_produce_key"), b""),
    "produce replies": (b"", 2 * vector("produce_key_resp")),
    "consume": (2 * vector("py_enc_consume_zero_copy"), b""),
    "consume replies": (b"", 2 * vector("consume_resp")),
    "fetch": (2 * vector("py_fetch"), 2 * vector("fetch_resp")),
}


@pytest.mark.parametrize("lead", [b"", b"the end of a message before"], ids=["at a message", "in a message"])
@pytest.mark.parametrize("name", MIDDLES)
def test_messages_in_the_middle_of_a_connection_show_the_client(name: str, lead: bytes) -> None:
    c2s, s2c = (lead + x if x else x for x in MIDDLES[name])

    for ended in (False, True):
        right = flymq.claims(opening(c2s, s2c, start=False, ended=ended, on_port=False)).verdict
        wrong = flymq.claims(opening(s2c, c2s, start=False, ended=ended, on_port=False)).verdict
        assert (right, wrong) == (Verdict.YES, Verdict.NO)


def test_server_alone_is_recognised_by_its_first_reply() -> None:
    assert flymq.claims(opening(s2c=vector("list_topics_resp"))).verdict is Verdict.YES
    assert flymq.claims(opening(s2c=b"SSH-2.0-OpenSSH_9.6\r\n")).verdict is Verdict.NO


# The columns of ``messages``.


def envelope(frame: bytes, direction: Direction) -> dict[str, Any]:
    table, _, _ = tabled([(frame, direction)])
    for name, value in (("op", flymq.NAMES.get(frame[2])), ("direction", direction), ("flaw", None)):
        table = table.append_column(name, pa.array([value], pa.string()))
    table = table.append_column("op_code", pa.array([frame[2]], pa.int64()))
    return {name: array[0].as_py() for name, array in flymq.envelope(table).items()}


@pytest.mark.parametrize(
    ("name", "direction", "status", "error_text", "body_len"),
    [
        ("py_produce_nokey", "c2s", None, None, 5),
        ("produce_key_resp", "s2c", "ok", None, None),
        ("consume_resp", "s2c", "ok", None, 5),
        ("fetch_resp", "s2c", "ok", None, 3),
        ("text_unknown_opcode", "s2c", "error", "unknown opcode: 4", None),
        ("struct_unauthorized", "s2c", "error", "unauthorized", None),
        ("auth_response_bad", "s2c", "error", None, None),
        ("auth_response_ok", "s2c", "ok", None, None),
        ("txn_rollback_failed_resp", "s2c", "error", None, None),
        ("purge_dlq_off_resp", "s2c", "error", None, None),
        ("delete_schema_resp", "s2c", "ok", None, None),
        ("py_produce_with_schema", "c2s", None, None, None),
    ],
)
def test_envelope(
    name: str, direction: Direction, status: str | None, error_text: str | None, body_len: int | None
) -> None:
    found = envelope(vector(name), direction)

    assert found == {"status": status, "error_text": error_text, "body_len": body_len}


def test_secrets_and_bodies_are_marked() -> None:
    columns = compiled(PROTOCOL).columns
    path = {i: c.name if c.parent < 0 else f"{columns[c.parent].name}.{c.name}" for i, c in enumerate(columns)}

    assert {path[i] for i, c in enumerate(columns) if c.secret} == {"password", "old_password"}
    assert {path[i] for i, c in enumerate(columns) if c.body} == {"value", "data", "records.value", "messages.data"}
    assert {d.name for d in PROTOCOL.derived if d.body} == {"inner_value"}


def test_every_operation_of_the_table_has_its_readings() -> None:
    without_request = {0x31, 0x52, 0x66, 0x71, 0xFF}
    without_reply = {0x04, 0x31, 0x50, 0x51, 0x52, 0x66, 0xA0, 0xA1}

    assert set(PROTOCOL.layout("c2s").bodies) == set(flymq.NAMES) - without_request
    assert set(PROTOCOL.layout("s2c").bodies) == set(flymq.NAMES) - without_reply


def test_compressed_requests_are_found_in_the_middle() -> None:
    packed = framed(1, gzip.compress(PRODUCE_BODY), 3)
    plain = framed(1, PRODUCE_BODY, 3)  # the flag without gzip proves nothing
    scanner = compiled(PROTOCOL).scanner("c2s")

    for data, found in ((b"tail" + 2 * packed, (4, True)), (b"tail" + 2 * plain, (4 + 2 * len(plain), False))):
        assert found == scanner.search(memoryview(data), 0, len(data), True, 2)


# -- gzip by classes -----------------------------------------------------------------------------------

PRODUCED = bytes.fromhex("0001 74 00000000 00000002 6869 ffffffff")  # topic, no key, value, partition -1


def test_a_body_that_the_flags_say_is_packed_is_built_packed() -> None:
    built = bytes(FlyMQ(flags=3) / flymq.FlyMQProduce(topic="t", value="hi"))

    assert gzip.decompress(built[8:]) == PRODUCED
    assert built[:8] == b"\xaf\x01\x01\x03" + (len(built) - 8).to_bytes(4, "big")
    assert bytes(FlyMQ(flags=1) / flymq.FlyMQProduce(topic="t", value="hi"))[8:] == PRODUCED


def test_an_edited_packed_message_stays_packed() -> None:
    packed = gzip.compress(PRODUCED, 1)  # not the bytes that we would make
    raw = b"\xaf\x01\x01\x03" + len(packed).to_bytes(4, "big") + packed
    message = FlyMQ(raw)
    assert bytes(message) == bytes(message.copy()) == raw

    message.payload.value = b"ho"
    del message.length

    assert gzip.decompress(bytes(message)[8:]) == PRODUCED.replace(b"hi", b"ho")


def test_a_packed_message_whose_flag_is_taken_is_sent_plain() -> None:
    message = FlyMQ(bytes(FlyMQ(flags=3) / flymq.FlyMQProduce(topic="t", value="hi")))

    message.flags = 1
    del message.length

    assert bytes(message) == b"\xaf\x01\x01\x01" + len(PRODUCED).to_bytes(4, "big") + PRODUCED


def test_bytes_of_a_user_are_not_packed() -> None:
    assert bytes(FlyMQ(flags=3, opcode=1) / b"as is")[8:] == b"as is"
