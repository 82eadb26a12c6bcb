"""The kokaq layer: worked examples, how connections are told, and what the columns say."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dissection import dissect
from hypothesis import given
from hypothesis import strategies as st
from kokaq_frames import (
    CREATE,
    EXAMPLES,
    FAILED,
    GET,
    GO1_ANSWER,
    GO1_PUSH,
    LEAN_ANSWER,
    LEAN_CREATE,
    LONG_NAME,
    LONG_THEN_UUID,
    LONG_VALUE,
    NOP,
    POPPED,
    PUSH,
    SHORT_NAME,
    TABLE,
    UNKNOWN,
    UNSET,
    columns,
    h,
    split_at,
)
from reading import observe, row, scapy_row
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sniff
from scapy.utils import wrpcap

from mqpcap.capture import captures
from mqpcap.decode.columns import ColumnReader, Spans
from mqpcap.protocols import kokaq
from mqpcap.protocols.kokaq import PROTOCOL, SPLITS, claims
from mqpcap.scapy import MqSession
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import ConnectionFacts, Evidence, Opening, Verdict

# -- what the columns say ----------------------------------------------------------------------------------


def test_simple_request() -> None:
    assert columns(NOP) == {
        "version": 1, "message_type": 1, "rq": 2, "opaque": 1, "opcode": 0, "client": 2, "op_opaque": 7, "tag": 0,
        "client_name": "QueueService", "byte_order": "big", "numbering": "doc", "type_reading": "legend",
        "bit_order": "msb", "ambiguities": ["client:2"], "message_type_name": "Operational", "rq_name": "TwoWay",
    }  # fmt: skip


# Of each frame some columns; None where it has none.
COLUMNS: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "numeric names": (
        CREATE, "c2s",
        {"namespace": "42", "queue": "7", "body": b"", "namespace_raw": h("0000002a"), "component_opaque": 10},
    ),
    "push": (
        PUSH, "c2s",
        {"opaque": 0xCAFE0003, "opcode": 7, "client": 0, "client_name": "ProxyHttp", "namespace": "orders",
         "queue": "fast", "body": b"hello", "status": None},
    ),
    "its answer": (
        POPPED, "s2c", {"status": 0, "reason": 1, "op_opaque": 0x21, "body": b"hello", "client": None},
    ),
    "failure": (
        FAILED, "s2c",
        {"status": 1, "reason": 3, "status_name": "Fail", "reason_name": "Exists, NotAllowed or Infra"},
    ),
    "go1 push": (
        GO1_PUSH, "c2s",
        {"namespace": "42", "queue": "7", "body": b"hello", "trailer": bytes(12), "opaque": 3, "message_type": 1,
         "rq": 1, "client_name": "QueueService", "ambiguities": []},
    ),
    "go1 answer": (GO1_ANSWER, "s2c", {"status": 1, "reason": 1, "status_name": "Success"}),
    "go1 name of six bytes": (
        LONG_NAME, "c2s", {"namespace": "42", "queue": "7", "body": b"hello", "namespace_len": 6},
    ),
    "go1 name of one byte": (
        SHORT_NAME, "c2s", {"namespace": "42", "queue": "7", "body": b"hello", "namespace_len": 1},
    ),
    "go1 name of no length": (
        h("20040105 03000000 06030002 02200400 00040000 07000000") + bytes(12), "c2s",
        {"namespace": None, "queue": "7", "body": b""},
    ),
    "go1 value that runs on": (LONG_VALUE, "c2s", {"trailer": bytes(range(4, 16))}),
    "go1 value and UUID": (LONG_THEN_UUID, "c2s", {"trailer": h("3e3f404142434445464748 49")}),
    "lean request": (
        LEAN_CREATE, "c2s",
        {"opaque": 9, "op_opaque": 0x55, "opcode": 1, "client": 3, "namespace": "42", "queue": "7", "body": b"",
         "tag": None, "reason": None, "metadata": None, "component_opaque": None, "trailer": None},
    ),
    "lean answer": (
        LEAN_ANSWER, "s2c",
        {"status": 1, "body": b"42-7", "tag": None, "reason": None, "metadata": None, "component_opaque": None,
         "trailer": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_a_frame(name: str) -> None:
    frame, direction, expected = COLUMNS[name]

    found = columns(frame, direction)

    assert {column: found.get(column) for column in expected} == expected


def test_metadata_of_a_value_that_runs_on_has_its_lengths() -> None:
    assert [len(e["value"]) for e in columns(LONG_THEN_UUID)["metadata"]] == [44, 16]


def test_metadata_with_names() -> None:
    uuid = h("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf")

    assert columns(GET)["metadata"] == [
        {"tag": 1, "name": "TimeToLive", "value": h("0000ea60")},
        {"tag": 5, "name": "UUID", "value": uuid},
    ]
    assert "metadata" not in columns(NOP)
    assert columns(GET[:16] + bytes(4))["metadata"] == []


def test_metadata_names_follow_the_numbering() -> None:
    six = h("04200106 00000030 03020001 01042000 00000002 0600 c800")

    assert [e["name"] for e in columns(six)["metadata"]] == ["Source Info", None]
    codec = columns(six, numbering="codec", order="msb")
    assert [e["name"] for e in codec["metadata"]] == ["LastModificationTime", None]
    assert columns(LONG_VALUE)["metadata"] == [{"tag": 6, "name": "LastModificationTime", "value": h("00010203")}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"", ""),
        (b"a b", "a b"),
        ("grün".encode(), "grün"),
        (h("0000002a"), "42"),
        (h("ff00"), "ff00"),
        (b"a\nb", "610a62"),
    ],
)
def test_names_read_best(name: bytes, text: str) -> None:
    frame = h("04200106 00000010 01021102 0204200a") + bytes([len(name)]) + h("000000") + name

    assert columns(frame)["namespace"] == text


def test_sized_is_read_when_asked_for() -> None:
    """2.6: a message size at 4, the opaque at 8; never found by itself."""
    frame = PUSH[:4] + h("00000027") + PUSH[4:]
    found, flaw, dialect = row(PROTOCOL, "c2s_sized", frame)

    assert (flaw, dialect) == (Flaw.NONE, "sized")
    assert (found["size"], found["opaque"], found["body"]) == (39, 0xCAFE0003, b"hello")


def test_flaw_leaves_bytes_2_to_11() -> None:
    n = np.zeros(1, np.int64)
    reader = ColumnReader(PROTOCOL)
    layout = [x.name for x in reader.program.layouts].index("c2s_go1")
    found = reader.records(
        Spans(
            np.frombuffer(GO1_PUSH, np.uint8), n, n + 30, np.full(1, layout, np.int32), n + 6,
            np.full(1, Flaw.TRUNCATED, np.uint8),
        )
    ).table.to_pylist()[0]  # fmt: skip

    assert (found["opaque"], found["client"], found["op_opaque"], found["tag"]) == (3, 3, 0, 2)
    assert found["namespace"] is found["body"] is found["metadata"] is found["trailer"] is None


# -- evidence ----------------------------------------------------------------------------------------------


def connection(*frames: tuple[str, bytes]) -> Evidence:
    evidence = Evidence(1, "10.0.0.1", 9944, 0)
    assert PROTOCOL.evidence is not None
    for direction, frame in frames:
        found = split_at(frame, direction=direction)
        if found.layout in (PROTOCOL.evidence.layouts or ()):
            observe(PROTOCOL, evidence, direction, found.layout, frame, found.op)
    return evidence


def with_op(frame: bytes, op: int, byte_9: int | None = None) -> bytes:
    return frame[:8] + bytes([op, frame[9] if byte_9 is None else byte_9]) + frame[10:]


@pytest.mark.parametrize(
    ("direction", "frame", "numbering"),
    [
        ("c2s", NOP, "open"),
        ("c2s", with_op(NOP, 6), "codec"),
        ("c2s", with_op(NOP, 0, 5), "codec"),
        ("c2s", with_op(NOP, 1, 0), "doc"),
        ("c2s", with_op(PUSH, 7, 2), "doc"),  # a lock request carries no payload
        ("s2c", with_op(FAILED, 7, 0x11), "codec"),
        ("s2c", with_op(FAILED, 7, 0x01), "doc"),
        ("s2c", with_op(FAILED, 7, 0x42), "codec"),
        ("c2s", h("04200106 00000030 03020001 01042000 00000001 0a00"), "doc"),
        ("c2s", GO1_PUSH, "open"),  # 2.0: proves nothing
        ("c2s", LEAN_CREATE, "open"),
    ],
)
def test_what_proves_the_numbering(direction: str, frame: bytes, numbering: str) -> None:
    assert kokaq.numbering(connection((direction, frame))) == numbering


def test_fail_ok_of_the_document_does_not_outweigh_a_proof() -> None:
    fail_ok = ("s2c", with_op(FAILED, 7, 0x11))

    assert kokaq.numbering(connection(fail_ok, ("c2s", PUSH))) == "doc"


def test_opcode_6_renames_the_connection() -> None:
    names = [kokaq.resolve(connection(("c2s", frame))) for frame in (with_op(NOP, 6), NOP)]

    assert [f.op_names["c2s", 7] for f in names if f.op_names] == ["AcquirePeekLock", "Push"]
    assert names[1].op_names is not None
    assert ("c2s", 6) not in names[1].op_names


def test_type_0_proves_the_table() -> None:
    said = [kokaq.resolve(connection(("c2s", frame))) for frame in (TABLE, NOP, GO1_PUSH)]

    assert [f.columns.get("type_reading") for f in said] == ["table", "legend", None]


def test_bits_from_the_right_once_proven() -> None:
    """2.3: 0x81 is type 1, two-way when the bits are counted from the right."""
    frame = NOP[:3] + b"\x81" + NOP[4:]
    evidence = connection(("c2s", frame))

    assert kokaq.resolve(evidence).own == ("open", "lsb")
    assert kokaq.select_layout(evidence, "c2s_doc") == "c2s_doc_lsb"
    assert kokaq.select_layout(evidence, "c2s_go1") == "c2s_go1"
    found = columns(frame, order="lsb")
    assert (found["message_type"], found["rq"], found["bit_order"]) == (1, 2, "lsb")
    assert kokaq.bit_order(connection(("c2s", frame), ("c2s", NOP))) == "msb"


def test_only_what_moves_bytes_or_bits_is_a_layout() -> None:
    """The splitter's eight forms and ``sized``, big-endian ones that are not lean for both orders of bits."""
    names = {x.name for x in PROTOCOL.layouts}
    right = connection(("c2s", NOP[:3] + b"\x81" + NOP[4:]))
    found = {layout for layouts in SPLITS.values() for layout in layouts} | {"c2s_sized", "s2c_sized"}

    assert names == found | {kokaq.select_layout(right, layout) for layout in found if "doc" in layout}
    assert len(names) == 2 * (8 + 1 + 4)


# Metadata tags that the document and the codec name differently, in the order of their first entries.
NINE_SIX_NINE = h("04200106 00000030 03020001 01042000 00000003 0900 0600 0900")


@pytest.mark.parametrize(
    ("direction", "numbering", "order", "frame", "ambiguous"),
    [
        ("c2s", "open", "open", with_op(NOP, 5), ["opcode:5", "client:2"]),
        ("c2s", "doc", "msb", with_op(NOP, 5), ["opcode:5"]),  # the document itself gives it twice
        ("c2s", "codec", "msb", with_op(NOP, 5), []),
        ("c2s", "open", "open", with_op(PUSH, 7), ["opcode:7"]),
        ("s2c", "open", "open", FAILED, ["status:1", "reason:3"]),
        ("s2c", "codec", "msb", FAILED, []),
        ("c2s", "open", "open", TABLE, ["client:2", "message_type:0", "rq:1"]),
        ("c2s", "open", "msb", TABLE, ["client:2"]),
        ("c2s", "open", "open", NINE_SIX_NINE, ["client:2", "metadata:9", "metadata:6"]),
        ("c2s", "codec", "msb", NINE_SIX_NINE, []),
        ("c2s", "open", "open", GO1_PUSH, []),
    ],
)
def test_ambiguities(direction: str, numbering: str, order: str, frame: bytes, ambiguous: list[str]) -> None:
    assert columns(frame, direction, numbering, order)["ambiguities"] == ambiguous


def test_rows_of_one_batch_follow_their_own_connections() -> None:
    """Two connections, one layout: the facts of each name its own row."""
    reader = ColumnReader(PROTOCOL)
    layout = [x.name for x in reader.program.layouts].index("s2c_doc")
    start = np.array([0, 12])
    spans = Spans(
        np.frombuffer(FAILED * 2, np.uint8), start, start + 12, np.full(2, layout, np.int32), np.ones(2, np.int64),
        np.zeros(2, np.uint8), np.array([1, 0]),
        [ConnectionFacts(), ConnectionFacts(own=kokaq.Meaning("codec", "msb"))],
    )  # fmt: skip

    found = reader.records(spans).table.select(["status_name", "numbering", "ambiguities"]).to_pylist()

    assert found == [
        {"status_name": "Success", "numbering": "codec", "ambiguities": []},
        {"status_name": "Fail", "numbering": "doc", "ambiguities": ["status:1", "reason:3"]},
    ]


def test_envelope() -> None:
    import pyarrow as pa

    def said(frame: bytes, direction: str = "c2s", numbering: str = "open") -> dict[str, Any]:
        kept = dict.fromkeys(("namespace", "queue", "status", "status_name", "reason", "reason_name"))
        table = pa.Table.from_pylist([kept | columns(frame, direction, numbering)])
        for name, kind in (("status", pa.int32()), ("reason", pa.int32())):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
        for name in ("namespace", "queue", "status_name", "reason_name"):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
        return {k: v.to_pylist()[0] for k, v in kokaq.envelope(table).items()}

    failed = said(FAILED, "s2c")
    assert (failed["status"], failed["error_code"], failed["correlation_id"]) == ("error", 3, "16:17")
    assert failed["error_text"] == "Exists, NotAllowed or Infra"
    assert said(FAILED, "s2c", "codec")["status"] == "ok"  # the codec's 1 is Success
    push = said(PUSH)
    assert (push["destination"], push["status"], push["error_code"]) == ("orders/fast", None, None)
    assert said(NOP)["destination"] is None
    assert said(GO1_ANSWER, "s2c")["status"] == "ok"
    assert said(UNSET, "s2c")["status"] is None
    assert said(LEAN_ANSWER, "s2c")["status"] == "ok"


# -- Scapy and the interpreter -----------------------------------------------------------------------------

_CLASSES = {
    "c2s_doc": kokaq.KokaqRequest,
    "s2c_doc": kokaq.KokaqAnswer,
    "c2s_go1": kokaq.KokaqLERequest,
    "s2c_go1": kokaq.KokaqLEAnswer,
    "c2s_lean": kokaq.KokaqLean,
    "s2c_lean": kokaq.KokaqLean,
}
_FIELDS = (
    "version", "message_type", "rq", "opaque", "opcode", "client", "status", "reason", "op_opaque", "tag",
    "component_opaque", "namespace_raw", "queue_raw", "namespace_id", "queue_id", "body", "trailer",
)  # fmt: skip


def agree(layout: str, frame: bytes, direction: str) -> None:
    if frame[:2] != (kokaq.LITTLE if "go1" in layout else kokaq.BIG) or ("lean" in layout and any(frame[8:12])):
        return  # no header of this layout; the splitter never names it
    values, flaw, _ = row(PROTOCOL, layout, frame)
    fields, scapy_flaw = scapy_row(_CLASSES[layout], frame, direction, layout)

    assert (flaw is Flaw.NONE) == (scapy_flaw is Flaw.NONE)
    if flaw is Flaw.NONE:
        assert {k: values.get(k) for k in _FIELDS} == {k: fields.get(k) for k in _FIELDS}
        entries = [{k: e[k] for k in ("tag", "value")} for e in values.get("metadata", [])]
        assert entries == [{k: e[k] for k in ("tag", "value")} for e in fields.get("entries", [])]


@pytest.mark.parametrize(("direction", "layout", "frame"), EXAMPLES)
def test_scapy_and_interpreter_agree(direction: str, layout: str, frame: bytes) -> None:
    agree(layout, frame, direction)


@given(st.sampled_from(EXAMPLES), st.data())
def test_scapy_and_interpreter_agree_on_damaged_frames(example: tuple[str, str, bytes], data: st.DataObject) -> None:
    direction, layout, frame = example
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(2, len(frame) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(14, max(len(frame), 14)))

    agree(layout, bytes(damaged[:end]), direction)


def test_scapy_builds_the_examples() -> None:
    request = kokaq.KokaqRequest(opaque=0xCAFE0003, opcode=7, client=0, tag=2)
    payload = kokaq.KokaqPayload(namespace="orders", queue="fast", body=b"hello")
    go1 = kokaq.KokaqLERequest(opaque=3, opcode=6, client=3, tag=2)
    numbers = kokaq.KokaqLEPayload(namespace=42, queue=7, body=b"hello", trailer=bytes(12))
    entries = [
        kokaq.KokaqEntry(tag=1, value=h("0000ea60")),
        kokaq.KokaqEntry(tag=5, value=h("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf")),
    ]
    lean = kokaq.KokaqLean(opaque=9, opcode=1) / kokaq.KokaqLeanAnswer(
        status=1, op_opaque=0x55, namespace=42, queue=7, body=b"42-7"
    )

    assert bytes(request / payload) == PUSH
    assert bytes(go1 / numbers) == GO1_PUSH
    assert bytes(lean) == LEAN_ANSWER
    get = kokaq.KokaqRequest(opaque=0x30, opcode=3, client=2, tag=1)
    assert bytes(get / kokaq.KokaqMetadata(metadata=entries)) == GET
    assert bytes(kokaq.KokaqAnswer(opaque=16, opcode=1, status_reason=0x13, op_opaque=0x11)) == FAILED


def test_scapy_reads_the_following_layout_by_itself() -> None:
    push = kokaq.KokaqRequest(PUSH)

    assert push[kokaq.KokaqPayload].queue == b"fast"
    assert kokaq.KokaqLERequest(GO1_PUSH)[kokaq.KokaqLEPayload].namespace == 42
    assert Raw in kokaq.KokaqRequest(PUSH[:-1])


# -- whose connection it is --------------------------------------------------------------------------------


def search(data: bytes, ended: bool, direction: Any, layout: str, n: int) -> int | None:
    """Opening.find_run as the framing has it: the first place from which n messages follow."""
    assert layout == f"{direction}_doc"
    for begin in range(len(data)):
        where, k = begin, 0
        while (found := split_at(data, where, ended, direction)).verdict == "message":
            where, k = found.end, k + 1
            if k == n or (ended and where == len(data)):
                return begin
    return None


def opening(
    c2s: bytes = b"", s2c: bytes = b"", start: bool = True, ended: bool = True, on_port: bool = False
) -> Opening:
    def find_run(direction: Any, layout: str, n: int) -> int | None:
        return search(c2s if direction == "c2s" else s2c, ended, direction, layout, n)

    return Opening(c2s, s2c, start, start, ended, ended, on_port, False, find_run)


@pytest.mark.parametrize("frame", [CREATE, PUSH, GET, GO1_PUSH, UNKNOWN])
def test_component_that_repeats_the_head_is_claimed_anywhere(frame: bytes) -> None:
    assert claims(opening(frame, ended=False)).verdict is Verdict.YES


ONE_WAY = h("20040107 02000000 02010000")


def test_a_component_further_on_claims_the_connection_too() -> None:
    """A one-way request without a component gets no answer and says little; the push behind it is unmistakable."""
    assert claims(opening(ONE_WAY)).verdict is Verdict.LIKELY
    assert claims(opening(ONE_WAY + GO1_PUSH)).verdict is Verdict.YES


def test_the_first_answer_may_be_to_a_later_request() -> None:
    one_way, answer = h("04200107 00000009 02000100"), h("04200105 00000001 00010700")

    assert claims(opening(one_way + NOP, answer)).verdict is Verdict.YES
    assert claims(opening(one_way, answer)).verdict is Verdict.LIKELY


@pytest.mark.parametrize(("request_", "answer"), [(NOP, h("04200105 00000001 00010700")), (LEAN_CREATE, LEAN_ANSWER)])
def test_an_answer_confirms_a_simple_request(request_: bytes, answer: bytes) -> None:
    assert claims(opening(request_, answer)).verdict is Verdict.YES
    assert claims(opening(request_)).verdict is Verdict.LIKELY
    assert claims(opening(request_, b"HTTP/1.1 200 OK\r\n")).verdict is not Verdict.YES


@pytest.mark.parametrize(
    "stranger",
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\0", b"\0\0\0\x0b\1", bytes(64)],
)
def test_strangers_are_refused_at_once(stranger: bytes) -> None:
    assert claims(opening(stranger, ended=False, on_port=True)).verdict is Verdict.NO


def test_magic_alone_is_not_enough() -> None:
    noise = h("20040199 12345678 99778812 1234567890abcdef")

    assert claims(opening(noise, on_port=True)).verdict is Verdict.NO
    assert claims(opening(h("2004"), on_port=True)).verdict is Verdict.NO
    assert claims(opening(h("2004"), ended=False)).verdict is Verdict.WAIT


def test_on_the_port_any_opcode_of_the_codec_is_taken() -> None:
    odd = h("200401fd 01000000 63 00 00 00")

    assert claims(opening(odd, on_port=True)).verdict is Verdict.LIKELY
    assert claims(opening(odd)).verdict is Verdict.NO


def test_midstream_directions_are_recognised_by_content() -> None:
    requests, answers = GO1_PUSH[20:] + GO1_PUSH * 3, GO1_ANSWER[5:] + GO1_ANSWER * 3

    assert claims(opening(requests, answers, start=False)).verdict is Verdict.YES
    assert claims(opening(answers, requests, start=False)).verdict is Verdict.NO
    assert claims(opening(requests, start=False)).verdict is Verdict.YES
    assert claims(opening(b"", requests, start=False)).verdict is Verdict.NO
    assert claims(opening(b"x" * 100, b"y" * 100, start=False, on_port=True)).verdict is Verdict.NO


def test_claims_never_wait_when_both_sides_ended() -> None:
    for data in (b"", b"\x04", NOP[:11], NOP, PUSH[:30], LEAN_CREATE[:20], UNKNOWN[:15]):
        assert claims(opening(data)).verdict is not Verdict.WAIT


def test_layouts_a_connection_begins_in_have_a_splitter() -> None:
    claim = claims(opening(PUSH))

    assert [PROTOCOL.layout(str(name)).splits for name in (claim.c2s, claim.s2c)] == [SPLITS["c2s"], SPLITS["s2c"]]


# -- captures ----------------------------------------------------------------------------------------------

Row = dict[str, Any]


def dissected(path: Path) -> list[tuple[Row, Row]]:
    """Rows of messages with their fields, by time."""
    found = dissect(captures([str(path)], None).captures[0])
    rows: list[tuple[Row, Row]] = []
    for chunk in found.chunks:
        rows += zip(chunk.messages.to_pylist(), chunk.fields.to_pylist(), strict=True)
    return rows


def place(message: Row) -> tuple[Any, ...]:
    return message["src_port"], message["dst_port"], message["direction"], message["stream_offset"]


def expected_name(event: Row, name: str, dialect: str) -> str | None:
    if dialect != "doc":
        return str(event[name]) if event.get(f"{name}_len", 4) else None
    if event[name] is not None:
        return str(event[name])
    return str(event[f"{name}_number"]) if f"{name}_number" in event else str(event[f"{name}_hex"])


def event_columns(event: Row, dialect: str) -> Row:
    """The columns that a truth event speaks of."""
    renamed = {"message_type": "message_type", "request_type": "rq", "opaque": "opaque", "opcode": "opcode"}
    renamed |= {"client_id": "client", "status": "status", "reason": "reason", "tag": "tag", "opaque2": "op_opaque"}
    renamed |= {"op_opaque": "op_opaque", "component_opaque": "component_opaque"}
    found = {column: event[key] for key, column in renamed.items() if key in event}
    found["op"] = event["opcode_name"]
    if event.get("component", "payload") == "payload":
        found["body"] = event["payload_sha256"]
        found |= {name: expected_name(event, name, dialect) for name in ("namespace", "queue")}
    return found


@pytest.mark.parametrize(
    ("capture", "count"),
    [("doc_session", 149), ("go1_midstream", 132), ("go1_pipelined", 336), ("go1_session", 104), ("lean_session", 104)],
)
def test_captures_give_what_their_programs_said(pcaps: Path, truth: Path, capture: str, count: int) -> None:
    told = json.loads((truth / "kokaq" / f"{capture}.truth.json").read_text())
    rows = dissected(pcaps / "kokaq" / f"{capture}.pcap")
    by_place = {place(m): (m, f) for m, f in rows}
    assert len(rows) == len(by_place) == count

    for talk in told["connections"]:
        offsets = {"c2s": 0, "s2c": 0}
        ports = {"c2s": (talk["client_port"], talk["server_port"]), "s2c": (talk["server_port"], talk["client_port"])}
        for event in talk["events"]:
            direction = event["dir"]
            message, fields = by_place[*ports[direction], direction, offsets[direction]]
            offsets[direction] += event["frame_len"]
            got = fields | {"body": None if fields["body"] is None else hashlib.sha256(fields["body"]).hexdigest()}
            expected = event_columns(event, told["dialect"])
            assert message["frame_len"] == event["frame_len"]
            assert (message["dialect"], message["flaw"]) == (told["dialect"], None)
            assert {name: got[name] for name in expected} == expected
            assert message["client_name"] == (event.get("client_name") or message["client_name"])


def test_grpc_is_not_claimed(pcaps: Path) -> None:
    assert dissected(pcaps / "kokaq" / "grpc_negative.pcap") == []


@pytest.mark.parametrize("fault", ["lost", "snapped", "reordered", "conflict"])
def test_whole_frames_of_a_damaged_capture_are_frames_of_the_whole_one(pcaps: Path, fault: str) -> None:
    """What was held when a gap showed used to be joined with the bytes after the gap."""
    rows = dissected(pcaps / "kokaq" / "doc_session.pcap")
    whole = {place(m): (m["frame_len"], f["opcode"]) for m, f in rows}
    damaged = dissected(pcaps / "faults" / f"kokaq_{fault}.pcap")

    assert damaged
    for message, fields in damaged:
        if message["flaw"] is None:
            assert whole[place(message)] == (message["frame_len"], fields["opcode"])


def test_evidence_of_a_connection_names_all_its_rows(tmp_path: Path) -> None:
    """2.9: any opcode 6 switches to the codec's numbers; 2.3: so does a high bit the order of bits."""
    lock = with_op(NOP, 7)
    right = bytes([0x81])
    frames = [lock[:3] + right + lock[4:], with_op(CREATE, 6)[:3] + right + CREATE[4:8] + b"\x06" + CREATE[9:]]
    client = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=40000, dport=9944, seq=99, flags="S")
    packets = [Ether() / client]
    sent = 100
    for frame in frames:
        packets.append(
            Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=40000, dport=9944, seq=sent, flags="PA") / frame
        )
        sent += len(frame)
    path = tmp_path / "codec.pcap"
    wrpcap(str(path), packets)

    first, second = dissected(path)

    assert (first[0]["op"], first[0]["client_name"], second[0]["op"]) == ("AcquirePeekLock", "ProxyAmqp", "Push")
    assert (first[1]["message_type"], first[1]["rq"], first[1]["numbering"]) == (1, 2, "codec")
    assert first[1]["ambiguities"] == second[1]["ambiguities"] == []
    assert first[1]["type_reading"] == "legend"
    packets = sniff(offline=str(path), session=MqSession)
    assert [(type(p), p.mq.op, p.message_type, p.rq) for p in packets] == [
        (kokaq.KokaqRequestLsb, "AcquirePeekLock", 1, 2), (kokaq.KokaqRequestLsb, "Push", 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "cls"),
    [
        ("04 20 01 06  00 00 00 01  00 02 07 00", kokaq.KokaqRequest),
        ("04 20 01 05  00 00 00 10  01 13 11 00", kokaq.KokaqAnswer),
        ("20 04 01 05  03 00 00 00  06 11 00 00", kokaq.KokaqLEAnswer),
        ("20 04 01 05 16 10 00 00  03 00 16 00", kokaq.KokaqLERequest),
    ],
)
def test_kokaq_from_bytes_is_the_class_that_reads_them(frame: str, cls: type) -> None:
    """Answers have a status and reason in byte 9, or RQ 1; the last frame has neither, so it reads as a request."""
    packet = kokaq.Kokaq(bytes.fromhex(frame))

    assert type(packet) is cls
    assert kokaq.Kokaq in packet
    assert type(kokaq.Kokaq(opcode=1)) is kokaq.KokaqRequest
