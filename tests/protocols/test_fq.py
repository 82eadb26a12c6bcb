"""fq against its document, its code, and bytes typed by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reading import end_of, observe, row, scapy_row
from torture import ACK, CLIENT_PORT, SYN, Segment, pcap, read, read_bytes

from mqpcap.decode.columns import ColumnReader
from mqpcap.decode.shared_facts import SharedFacts
from mqpcap.protocols.fq import (
    MAX_KEY_LEN,
    PROTOCOL,
    REFUSED,
    Code,
    FqAuth,
    FqAuthResponse,
    FqBind,
    FqBindRequest,
    FqCommand,
    FqConnect,
    FqConnectCommand,
    FqConnectData,
    FqConnectPeer,
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
    Word,
)
from mqpcap.schema.compiler import compiled
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import Claim, Direction, Evidence, Opening, Verdict

KEY = bytes(range(1, 128))
ID = bytes(range(0x10, 0x20))
S16_KEY = b"\0\x7f" + KEY
MESSAGE = {"exchange": "ex", "route": "a.b", "message_id": ID, "body": b"hello"}
SHORT = b"\x02ex\x03a.b" + ID + b"\0\0\0\x05hello"
FULL = b"\x02ex\x03a.b" + ID + b"\x03bob\x02\x0a\xfe\xfe\x01\x7f\0\0\x01" + b"\0\0\0\x05hello"
AUTH = b"\xaa\xaa\0\0\0\x05alice\0\x23inbox\0mem:private,block,backlog=500\0\x06secret"
STATUS = b"\x57\xa7\0\x0adropped_in\0\0\0\0\0\x06routed\0\0\0\x0b\0\0"


def auth(detail: bytes, user: bytes = b"u", password: bytes = b"p") -> bytes:
    fields = [len(x).to_bytes(2, "big") + x for x in (user, detail, password)]
    return b"\xaa\xaa\0\0" + b"".join(fields)


CASES: list[tuple[str, bytes, dict[str, Any], Message]] = [
    ("connect_data", b"\xcc\x50\xca\xfe", {}, FqConnect() / FqConnectCommand()),
    (
        "connect_data",
        b"\xcc\x50\xfa\xce" + S16_KEY,
        {"client_key": KEY},
        FqConnect() / FqConnectData(client_key=KEY),
    ),
    (
        "connect_data",
        b"\xcc\x50\xfe\xed\x0a\0\0\x02" + S16_KEY,
        {"client_key": KEY, "node_id": "10.0.0.2"},
        FqConnect() / FqConnectPeer(node_id=b"\x0a\0\0\x02", client_key=KEY),
    ),
    (
        "connect_data",
        b"\xcc\x50\xfa\xde" + S16_KEY,
        {"client_key": KEY},
        FqConnect() / FqConnectPeerOld(client_key=KEY),
    ),
    (
        "command_c2s",
        AUTH,
        {
            "user": "alice", "queue": "inbox", "queue_type": "mem", "queue_params": "private,block,backlog=500",
            "password": "secret",
        },
        FqCommand() / FqAuth(
            user="alice", password="secret",
            queue_detail=FqQueueDetail(queue="inbox", queue_type="mem", queue_params="private,block,backlog=500"),
        ),
    ),
    ("command_s2c", b"\xaa\0" + S16_KEY, {"client_key": KEY}, FqCommand() / FqAuthResponse(client_key=KEY)),
    (
        "command_c2s",
        b"\xb1\x70\x01\x10\0\x06events\0\x0eprefix:\"tool.\"",
        {"bind_flags": 0x0110, "exchange": "events", "program": 'prefix:"tool."'},
        FqCommand() / FqBindRequest(bind_flags=0x0110, exchange="events", program='prefix:"tool."'),
    ),
    ("command_s2c", b"\xb1\x71\0\0\0\x02", {"binding_id": 2}, FqCommand() / FqBind(binding_id=2)),
    (
        "command_s2c",
        b"\xb1\x71\xff\xff\xff\xff",
        {"binding_id": 4294967295},
        FqCommand() / FqBind(binding_id=REFUSED),
    ),
    (
        "command_c2s",
        b"\x07\x1b\0\0\x10\x92\0\x03ex1",
        {"binding_id": 4242, "exchange": "ex1"},
        FqCommand() / FqUnbindRequest(binding_id=4242, exchange="ex1"),
    ),
    ("command_s2c", b"\x17\x1b\0\0\0\x02", {"binding_id": 2}, FqCommand() / FqUnbind(binding_id=2)),
    ("command_c2s", b"\xc7\xa7", {}, FqCommand() / FqStatusRequest()),
    ("command_c2s", b"\xc7\xa7\0\0", {}, FqCommand() / FqStatusRequest(spare=b"\0\0")),
    (
        "command_s2c",
        STATUS,
        {"status_values": [{"name": "dropped_in", "value": 0}, {"name": "routed", "value": 11}]},
        FqCommand() / FqStatus(
            status_values=[FqStatusValue(name_="dropped_in", value=0), FqStatusValue(name_="routed", value=11)]
        ),
    ),
    ("command_s2c", b"\x57\xa7\0\0", {"status_values": []}, FqCommand() / FqStatus()),
    (
        "command_c2s",
        b"\x48\x48\x27\x10",
        {"interval_ms": 10000},
        FqCommand() / FqHeartbeatRequest(interval_ms=10000),
    ),
    ("command_c2s", b"\xbe\xa7", {}, FqCommand() / FqHeartbeat()),
    ("command_s2c", b"\xbe\xa7", {}, FqCommand() / FqHeartbeat()),
    (
        "command_s2c",
        bytes.fromhex("eeee00156175746820636f6d6d616e64206578706563746564"),
        {"error_text": "auth command expected"},
        FqCommand() / FqError(error_text="auth command expected"),
    ),
    ("short", SHORT, MESSAGE, FqMessageShort(exchange="ex", route_="a.b", message_id=ID, body=b"hello")),
    (
        "full",
        FULL,
        MESSAGE | {"sender": "bob", "hops": ["10.254.254.1", "127.0.0.1"]},
        FqMessage(
            exchange="ex", route_="a.b", message_id=ID, sender="bob", body=b"hello",
            hops=[b"\x0a\xfe\xfe\x01", b"\x7f\0\0\x01"],
        ),
    ),
]  # fmt: skip
IDS = [f"{layout}-{frame[:4].hex()}" for layout, frame, _, _ in CASES]


def by_scapy(layout: str, frame: bytes) -> tuple[dict[str, Any], Flaw]:
    """What the Scapy classes read, with the addresses written as the table writes them."""
    root = {"connect_data": FqConnect, "short": FqMessageShort, "full": FqMessage, "full_c2s": FqMessage}
    direction = PROTOCOL.layout(layout).direction
    found, flaw = scapy_row(root.get(layout, FqCommand), frame, direction, layout)
    if flaw and layout not in ("connect_data", "command_c2s", "command_s2c"):
        return {}, flaw  # Scapy reads a message and leaves what is behind it; a row is the whole or nothing
    if "node_id" in found:
        found["node_id"] = ".".join(map(str, found["node_id"]))
    if "hops" in found:
        found["hops"] = [".".join(map(str, x)) for x in found["hops"]]
    return found, flaw


@pytest.mark.parametrize(("layout", "frame", "columns", "built"), CASES, ids=IDS)
class TestFrames:
    def test_is_read(self, layout: str, frame: bytes, columns: dict[str, Any], built: Message) -> None:
        names = {"bind_flags_name": "permanent"} if "bind_flags" in columns else {}

        assert row(PROTOCOL, layout, frame) == (columns | names, Flaw.NONE, "v1")

    def test_is_read_alike_by_scapy(self, layout: str, frame: bytes, columns: dict[str, Any], built: Message) -> None:
        assert by_scapy(layout, frame) == (columns, Flaw.NONE)

    def test_is_built(self, layout: str, frame: bytes, columns: dict[str, Any], built: Message) -> None:
        assert bytes(built) == frame

    def test_ends_where_its_fields_end(
        self, layout: str, frame: bytes, columns: dict[str, Any], built: Message
    ) -> None:
        if layout == "connect_data":
            pytest.skip("another layout follows")
        n = len(frame)

        assert end_of(PROTOCOL, layout, frame + frame) == [(0, n), (n, 2 * n)]

    def test_cut_short_has_no_end(self, layout: str, frame: bytes, columns: dict[str, Any], built: Message) -> None:
        if frame == b"\xc7\xa7\0\0":
            pytest.skip("the spare bytes may be missing")

        assert end_of(PROTOCOL, layout, frame[:-1]) == []


@given(case=st.sampled_from(CASES), data=st.data())
@examples(150)
def test_scapy_and_the_interpreter_agree_on_mutated_frames(case: Any, data: st.DataObject) -> None:
    layout, frame, _, _ = case
    head = {"connect_data": 4, "short": 0, "full": 0}.get(layout, 2)
    mutated = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(head, len(mutated)))
        how = data.draw(st.sampled_from(["set", "insert", "cut"]))
        value = data.draw(st.sampled_from([0, 1, 2, 0x3A, 0x7F, 0x80, 0xFF]))
        if how == "insert":
            mutated.insert(at, value)
        elif how == "set" and at < len(mutated):
            mutated[at] = value
        elif how == "cut":
            del mutated[max(at, head + 1) :]  # where nothing is left of a body, Scapy has nothing to show as Raw
    columns, flaw, _ = row(PROTOCOL, layout, bytes(mutated))
    scapy_columns, scapy_flaw = by_scapy(layout, bytes(mutated))

    assert (columns, flaw != Flaw.NONE) == (scapy_columns, scapy_flaw != Flaw.NONE)


@pytest.mark.parametrize(
    ("detail", "columns"),
    [
        (b"plainqueuenamenonul!", {"queue": "plainqueuenamenonul!"}),
        (b"q-notype\0", {"queue": "q-notype", "queue_type": ""}),
        (b"\0mem:public", {"queue": "", "queue_type": "mem", "queue_params": "public"}),
        (b"inbox\0mem", {"queue": "inbox", "queue_type": "mem"}),
        (b"q\0mem:", {"queue": "q", "queue_type": "mem", "queue_params": ""}),
        (b"q\0:drop", {"queue": "q", "queue_type": "", "queue_params": "drop"}),
        (b"q\0disk:a:b\0c", {"queue": "q", "queue_type": "disk", "queue_params": "a:b\0c"}),
        (b"a:b\0mem:x", {"queue": "a:b", "queue_type": "mem", "queue_params": "x"}),
        (b"", {"queue": ""}),
    ],
)
def test_queue_detail_splits_at_the_first_zero_byte_then_the_first_colon(
    detail: bytes, columns: dict[str, str]
) -> None:
    assert row(PROTOCOL, "command_c2s", auth(detail)) == (columns | {"user": "u", "password": "p"}, Flaw.NONE, "v1")


@pytest.mark.parametrize("detail", [b"", b"q", b"q\0", b"\0", b"q\0mem", b"q\0mem:", b"q\0:", b"\0mem:a:b", b"q\0:a"])
def test_queue_detail_is_built_again_as_it_came(detail: bytes) -> None:
    """A zero byte at the end is legal, and so is no zero byte (fqd_ccs.c:127-146)."""
    read = FqQueueDetail(detail)
    again = FqQueueDetail(**read.fields)

    assert (bytes(read), bytes(again)) == (detail, detail)


def test_text_that_is_not_utf8_is_replaced_and_nothing_else() -> None:
    columns, _, _ = row(PROTOCOL, "short", b"\x03a\xffb\x00" + ID + b"\0\0\0\0")

    assert columns["exchange"] == "a\ufffdb"
    assert columns["route"] == ""
    assert columns["body"] == b""


def frame(exchange: int = 1, route: int = 1, sender: int = 1, hops: int = 0, body: bytes = b"x") -> bytes:
    return (
        bytes([exchange]) + b"e" * exchange + bytes([route]) + b"r" * route + ID + bytes([sender]) + b"s" * sender
        + bytes([hops]) + b"\x0a\0\0\x01" * hops + len(body).to_bytes(4, "big") + body
    )  # fmt: skip


@pytest.mark.parametrize(
    "at_limit",
    [{"exchange": 127}, {"route": 127}, {"sender": 127}, {"hops": 32}, {"exchange": 0}, {"route": 0}, {"sender": 0}],
)
def test_frame_at_a_limit_is_read(at_limit: dict[str, int]) -> None:
    whole = frame(**at_limit)

    assert end_of(PROTOCOL, "full", whole) == [(0, len(whole))]


@pytest.mark.parametrize("over", [{"exchange": 128}, {"route": 200}, {"sender": 128}, {"hops": 33}])
def test_frame_past_a_limit_is_none(over: dict[str, int]) -> None:
    good = frame()

    assert end_of(PROTOCOL, "full", good + frame(**over)) == [(0, len(good))]
    assert row(PROTOCOL, "full", frame(**over))[1] == Flaw.MALFORMED


def test_payload_longer_than_128_kib_is_no_error() -> None:
    whole = frame(body=bytes(131_073))

    assert end_of(PROTOCOL, "full", whole) == [(0, len(whole))]
    assert len(row(PROTOCOL, "full", whole)[0]["body"]) == 131_073


def test_payload_length_past_2_to_the_28_is_refused() -> None:
    head = b"\x01e\x01r" + ID

    assert end_of(PROTOCOL, "short", head + b"\x10\0\0\x01x") == []
    assert row(PROTOCOL, "short", head + b"\x10\0\0\x01x")[1] == Flaw.MALFORMED


@pytest.mark.parametrize("length", [0, 128])
@pytest.mark.parametrize("word", [b"\xcc\x50\xfa\xce", b"\xcc\x50\xfa\xde", b"\xcc\x50\xfe\xed\x0a\0\0\x01"])
def test_key_is_1_to_127_bytes(word: bytes, length: int) -> None:
    assert end_of(PROTOCOL, "connect_data", word + length.to_bytes(2, "big") + b"K" * length) == []


def test_a_peer_without_a_node_id_is_a_malformed_connect_message() -> None:
    """A Go client writes the document's form after the new word: 22 bytes with a key of 16, then full frames."""
    opening = b"\xcc\x50\xfe\xed\0\x10" + b"0123456789abcdef"

    assert row(PROTOCOL, "connect_peer", opening) == ({}, Flaw.MALFORMED, "v1")
    assert scapy_row(FqConnect, opening, "c2s", "connect_peer")[1] is Flaw.MALFORMED
    result = read_bytes(pcap([Segment(seq=999, flags=SYN), Segment(opening + FULL, 1000)], 8765))
    assert [(m["op"], m["flaw"]) for m in result.messages] == [("connect", "malformed"), ("message", None)]
    assert result.problems == []


def test_no_hops_is_an_empty_list_as_messages_by_http_have_it() -> None:
    columns, _, _ = row(PROTOCOL, "full", frame(sender=4, hops=0))

    assert columns["hops"] == []
    assert columns["sender"] == "ssss"


def test_short_frame_has_neither_sender_nor_hops() -> None:
    columns, _, _ = row(PROTOCOL, "short", SHORT)

    assert "sender" not in columns
    assert "hops" not in columns


def test_login_with_a_method_other_than_plain_is_no_message() -> None:
    assert end_of(PROTOCOL, "command_c2s", bytes.fromhex("aaaa0001")) == []


@pytest.mark.parametrize(
    "sent",
    [auth(b"q\0mem", user=b"U" * 200), auth(b"q" * 1100), auth(b"q", password=b"p" * 20_000)],
    ids=["user", "queue", "password"],
)
def test_login_past_the_brokers_limits_is_still_a_login(sent: bytes) -> None:
    assert end_of(PROTOCOL, "command_c2s", sent) == [(0, len(sent))]
    assert row(PROTOCOL, "command_c2s", sent)[1] == Flaw.NONE


def test_bind_and_unbind_requests_with_an_exchange_of_128_bytes_are_read() -> None:
    bind = b"\xb1\x70\x01\0\0\x80" + b"e" * 128 + b"\0\x07prefix:"
    unbind = b"\x07\x1b\0\0\0\x01\0\x80" + b"e" * 128

    assert row(PROTOCOL, "command_c2s", bind)[0] == {
        "bind_flags": 256, "bind_flags_name": "transient", "exchange": "e" * 128, "program": "prefix:",
    }  # fmt: skip
    assert row(PROTOCOL, "command_c2s", unbind)[0] == {"binding_id": 1, "exchange": "e" * 128}


def test_spare_bytes_of_a_status_request_belong_to_it() -> None:
    stream = b"\xc7\xa7\0\0\xbe\xa7\xc7\xa7\x07\x1b\0\0\0\x01\0\x01e\xc7\xa7"

    assert end_of(PROTOCOL, "command_c2s", stream) == [(0, 4), (4, 6), (6, 8), (8, 17), (17, 19)]


def test_status_request_waits_for_what_may_be_spare_bytes() -> None:
    assert end_of(PROTOCOL, "command_c2s", b"\xc7\xa7", ended=False) == []
    assert end_of(PROTOCOL, "command_c2s", b"\xc7\xa7\xbe\xa7", ended=False) == [(0, 2), (2, 4)]


def test_nothing_is_read_after_an_unknown_code() -> None:
    assert end_of(PROTOCOL, "command_c2s", b"\xbe\xa7\0\0\xbe\xa7") == [(0, 2)]


@pytest.mark.parametrize("code", [Code.AUTH, Code.BIND_REQUEST, Code.STATUS_REQUEST, Code.UNBIND_REQUEST])
def test_servers_do_not_send_requests(code: Code) -> None:
    assert end_of(PROTOCOL, "command_s2c", int(code).to_bytes(2, "big") + bytes(20)) == []


def test_joined_answers_are_split() -> None:
    parts = [b"\xaa\0" + S16_KEY, b"\xbe\xa7", STATUS, b"\xb1\x71\0\0\0\x01", b"\xee\xee\0\x02no"]
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]

    assert [end for _, end in end_of(PROTOCOL, "command_s2c", b"".join(parts))] == ends


# -- recognition ---------------------------------------------------------------------------------------


def opening(
    c2s: bytes = b"", s2c: bytes = b"", *, start: bool = True, ended: bool = False, on_port: bool = True
) -> Opening:
    program = ColumnReader(PROTOCOL).program

    def find_run(direction: Direction, layout: str, n: int) -> int | None:
        side = c2s if direction == "c2s" else s2c
        at, found = program.scanner(layout).search(memoryview(side), 0, len(side), ended, n)
        return at if found else None

    return Opening(c2s, s2c, start, start, ended, ended, on_port, False, find_run)


def verdict(claim: Claim) -> tuple[Verdict, str | None, str | None]:
    return claim.verdict, claim.c2s, claim.s2c


@pytest.mark.parametrize("on_port", [True, False])
@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(
    ("word", "kind", "s2c"),
    [
        ("cafe", "command", "command_s2c"),
        ("face", "data", "full"),
        ("feed", "peer", "full"),
        ("fade", "peer_old", "full"),
    ],
)
def test_first_word_is_proof_on_any_port(word: str, kind: str, s2c: str, start: bool, on_port: bool) -> None:
    claim = PROTOCOL.claims(opening(bytes.fromhex("cc50" + word), start=start, on_port=on_port))

    assert verdict(claim) == (Verdict.YES, f"connect_{kind}", s2c)


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_word_in_pieces_is_waited_for(length: int) -> None:
    assert PROTOCOL.claims(opening(b"\xcc\x50\xfa\xce"[:length])).verdict is Verdict.WAIT


@pytest.mark.parametrize(
    "sent",
    [
        b"\xde\xad\xbe\xef",
        b"GET / HTTP/1.0\r\n",
        b"POST",
        b"DELETE /",
        b"\x16\x03\x01\x02",
        b"\xcc\x51",
        b"\xbe\xa7\xbe\xa7",
    ],
)
def test_another_first_word_is_not_claimed(sent: bytes) -> None:
    assert PROTOCOL.claims(opening(sent)).verdict is Verdict.NO


def test_three_bytes_are_not_claimed() -> None:
    assert PROTOCOL.claims(opening(b"\xcc\x50\xca", ended=True)).verdict is Verdict.NO


@pytest.mark.parametrize(
    ("c2s", "s2c", "layouts"),
    [
        (b"\xbe\xa7\xc7\xa7\xbe\xa7", b"", ("command_c2s", "command_s2c")),
        (b"", STATUS + b"\xbe\xa7", ("command_c2s", "command_s2c")),
        (SHORT * 2, b"", ("short", "full")),
        (b"", FULL * 2, ("short_or_full", "full")),
        (FULL * 2, b"", ("full_c2s", "full")),
        (b"hello" + SHORT * 2, b"", ("short", "full")),
    ],
)
@pytest.mark.parametrize("on_port", [True, False])
def test_middle_of_a_connection_proves_little(c2s: bytes, s2c: bytes, layouts: tuple[str, str], on_port: bool) -> None:
    """On the port that is enough; elsewhere another connection to that server must have told more (``peer``)."""
    late = opening(c2s, s2c, start=False, ended=True, on_port=on_port)

    assert verdict(PROTOCOL.claims(late)) == (Verdict.LIKELY, *layouts)


def test_middle_of_a_connection_elsewhere_is_searched_once() -> None:
    assert PROTOCOL.claims(opening(SHORT * 4, FULL * 4, start=False, on_port=False)).verdict is Verdict.WAIT


def test_one_frame_may_be_chance_until_its_side_has_ended() -> None:
    assert PROTOCOL.claims(opening(SHORT, start=False)).verdict is Verdict.WAIT
    assert PROTOCOL.claims(opening(SHORT, start=False, ended=True)).verdict is Verdict.LIKELY


def test_zeros_of_an_id_are_not_taken_for_frames() -> None:
    """From inside the first frame the zeros of its id read as an empty frame, and so on into the second."""
    sent = b"\x05burst\x08load.k.2" + bytes(16) + b"\0\0\0\x02hi"
    late = opening((sent * 4)[14:], start=False, ended=True)

    assert late.find_run("c2s", "short_found", 2) == len(sent) - 14
    assert PROTOCOL.layout("short").searched == "short_found"


@pytest.mark.parametrize(
    ("c2s", "s2c"),
    [
        (bytes(200), bytes(200)),
        (bytes(range(128, 230)) + SHORT, b""),
        (b"\x16\x03\x03\0\x50" + bytes(range(80)), b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"", b""),
    ],
    ids=["zeros", "one frame far behind", "tls", "http", "silence"],
)
def test_foreign_protocols_on_the_port_are_not_claimed(c2s: bytes, s2c: bytes) -> None:
    assert PROTOCOL.claims(opening(c2s, s2c, start=False, ended=True)).verdict is Verdict.NO


def test_a_reply_to_a_login_identifies_a_connection_without_its_client() -> None:
    sent = Opening(
        b"", b"\xaa\0" + S16_KEY + b"\xbe\xa7", False, True, True, False, False, False, lambda *_: None
    )  # fmt: skip

    assert verdict(PROTOCOL.claims(sent)) == (Verdict.YES, "command_c2s", "command_s2c")


# -- evidence ------------------------------------------------------------------------------------------


Row = tuple[int, str, int, bytes]
"""Time, layout, operation and bytes of a message."""
Talk = tuple[Evidence, list[Row]]


def connection(
    number: int, port: int = 8765, layouts: tuple[str, str] = ("connect_command", "command_s2c")
) -> Evidence:
    return Evidence(number, "10.0.0.9", port, 0, layouts=list(layouts))


def prefixed(*texts: bytes) -> bytes:
    return b"".join(len(text).to_bytes(2, "big") + text for text in texts)


def asked(ts_ns: int, user: str, queue: str) -> list[Row]:
    auth = b"\xaa\xaa\0\0" + prefixed(user.encode(), queue.encode() + b"\0mem:private", b"")
    return [
        (ts_ns, "connect_command", Word.COMMAND, Word.COMMAND.to_bytes(4, "big")),
        (ts_ns, "command_c2s", Code.AUTH, auth),
    ]  # fmt: skip


def login(number: int, user: str, queue: str, ts_ns: int, key: bytes = KEY, port: int = 8765) -> Talk:
    granted = ts_ns + 1, "command_s2c", Code.AUTH_RESPONSE, b"\xaa\0" + prefixed(key)
    return connection(number, port), [*asked(ts_ns, user, queue), granted]


def data(number: int, ts_ns: int, key: bytes = KEY, word: Word = Word.DATA, port: int = 8765) -> Talk:
    kind = {Word.DATA: "data", Word.PEER: "peer", Word.PEER_OLD: "peer_old"}[word]
    c = connection(number, port, (f"connect_{kind}", "full"))
    node = b"\x0a\0\0\1" if word == Word.PEER else b""
    return c, [(ts_ns, f"connect_{kind}", word, word.to_bytes(4, "big") + node + prefixed(key))]


def facts(*talks: Talk) -> list[tuple[str | None, str | None, str | None]]:
    """User, queue and kind of each connection, when all messages were seen in order of time."""
    assert PROTOCOL.evidence is not None
    shared = SharedFacts()
    rows = sorted(((c, each) for c, some in talks for each in some), key=lambda x: x[1][0])
    for c, (ts_ns, layout, op, frame) in rows:
        direction = "s2c" if layout.endswith("s2c") else "c2s"
        observe(PROTOCOL, c, direction, layout, frame, int(op), ts_ns, shared)
    assert PROTOCOL.evidence.answer is not None
    for c, _ in talks:
        if c.lookup is not None:
            fact = shared.lookup_fact(c.lookup[0], c, c.lookup[1])
            PROTOCOL.evidence.answer(c, None if fact is None else fact[4])
    known = [PROTOCOL.evidence.resolve(c) for c, _ in talks]
    return [(f.client_name, f.group_name, f.columns["connection_kind"]) for f in known]


def test_key_ties_data_connections_to_their_login() -> None:
    other = b"O" * 127
    alice, bob = login(2, "alice", "inbox", 10), login(3, "bob", "q-1", 12, other)

    assert facts(data(1, 30), alice, bob, data(4, 31, other)) == [
        ("alice", "inbox", "data"), ("alice", "inbox", "command"), ("bob", "q-1", "command"), ("bob", "q-1", "data"),
    ]  # fmt: skip


def test_one_session_may_have_several_data_connections() -> None:
    assert facts(login(1, "a", "q", 10), data(2, 20), data(3, 30))[1:] == [("a", "q", "data")] * 2


def test_key_ties_at_another_address_of_the_broker() -> None:
    """The key is the only link of the connections: addresses and ports are not compared (fqd_dss.c:400-418)."""
    assert facts(login(1, "a", "q", 10), data(2, 20, port=8766))[1] == ("a", "q", "data")


def test_login_at_the_same_address_goes_before_a_later_one_elsewhere() -> None:
    assert facts(login(1, "a", "q1", 10), login(2, "b", "q2", 15, port=8766), data(3, 20))[2] == ("a", "q1", "data")


def test_key_granted_later_is_not_the_one_used() -> None:
    assert facts(data(1, 5), login(2, "a", "q", 10))[0] == (None, None, "data")


def test_latest_login_before_the_connection_is_its_login() -> None:
    assert facts(login(1, "old", "q1", 10), login(2, "new", "q2", 20), data(3, 30), data(4, 15))[2:] == [
        ("new", "q2", "data"), ("old", "q1", "data"),
    ]  # fmt: skip


def test_unknown_key_has_no_login() -> None:
    assert facts(login(1, "a", "q", 10), data(2, 20, b"K" * 127))[1] == (None, None, "data")


@pytest.mark.parametrize(("word", "kind"), [(Word.PEER, "peer"), (Word.PEER_OLD, "peer_old")])
def test_peers_are_recognised_by_their_word(word: Word, kind: str) -> None:
    assert facts(login(1, "fqd-A", "peerq-A", 10), data(2, 20, word=word))[1] == ("fqd-A", "peerq-A", kind)


def test_refused_login_still_names_its_user() -> None:
    assert facts((connection(1), asked(1, "u1", "q1"))) == [("u1", "q1", "command")]


def test_queue_name_the_broker_makes_up_is_unknown() -> None:
    assert facts(login(1, "u", "", 10)) == [("u", None, "command")]


@pytest.mark.parametrize(
    ("layouts", "kind"),
    [
        (("command_c2s", "command_s2c"), "command"),
        (("short", "full"), "data"),
        (("short_or_full", "full"), None),
        (("full_c2s", "full"), None),
    ],
)
def test_late_connection_is_of_a_kind_when_only_one_fits(layouts: tuple[str, str], kind: str | None) -> None:
    assert facts((connection(1, layouts=layouts), [])) == [(None, None, kind)]


# -- the envelope --------------------------------------------------------------------------------------


def enveloped(rows: list[tuple[str | None, int | None, bytes | None]]) -> dict[str, list[Any]]:
    columns = [
        ("op", pa.string()),
        ("binding_id", pa.int64()),
        ("message_id", pa.binary()),
        ("error_text", pa.string()),
    ]
    rows = [(*row, "why" if row[0] == "error" else None) for row in rows]
    table = pa.table({name: pa.array([r[i] for r in rows], t) for i, (name, t) in enumerate(columns)})
    assert PROTOCOL.envelope.derive is not None
    return {name: array.to_pylist() for name, array in PROTOCOL.envelope.derive(table).items()}


def test_status_and_id_of_the_envelope() -> None:
    rows: list[tuple[str | None, int | None, bytes | None, str | None]] = [
        ("error", None, None, "error"),
        ("bind", 1, None, "ok"),
        ("bind", REFUSED, None, "error"),
        ("bind", None, None, None),  # its id was not captured
        ("unbind", 1, None, "ok"),
        ("unbind", REFUSED, None, "error"),
        ("auth_response", None, None, "ok"),
        ("status", None, None, "ok"),
        ("heartbeat", None, None, None),
        ("unbind_request", REFUSED, None, None),
        ("message", None, ID, None),
        (None, None, None, None),
    ]
    made = enveloped([r[:3] for r in rows])

    assert made["status"] == [r[3] for r in rows]
    assert made["error_text"] == ["why", None, "refused", None, None, "refused"] + [None] * 6
    assert made["message_id"] == [None] * 10 + ["101112131415161718191a1b1c1d1e1f", None]


def test_an_error_as_long_as_a_key_may_be_one() -> None:
    """An AUTH_RESPONSE whose code was damaged; errors of the broker are sentences of other lengths."""
    key, text = (b"\xee\xee" + len(x).to_bytes(2, "big") + x for x in (b"k" * MAX_KEY_LEN, b"e" * (MAX_KEY_LEN - 1)))

    assert row(PROTOCOL, "command_s2c", key)[0] == {"client_key": b"k" * MAX_KEY_LEN}
    assert row(PROTOCOL, "command_s2c", text)[0] == {"error_text": "e" * (MAX_KEY_LEN - 1)}


def test_a_search_takes_no_message_out_of_a_key_of_characters() -> None:
    """Ids have zeros in them, so the end of a key and the first message may read as one: "0" is 48, "@" is 64."""
    end_of_key = b"0" + b"k" * 48 + b"@" + b"k" * 64
    frame = b"\x08maryland\0" + bytes(9) + b"\x0a" + bytes(6) + bytes(4)
    stream = end_of_key + 3 * frame

    found = compiled(PROTOCOL).scanner("short_found").search(memoryview(stream), 0, len(stream), True, 2)

    assert found == (len(end_of_key), True)


def test_envelope_of_no_rows() -> None:
    assert enveloped([]) == {"status": [], "error_text": [], "message_id": []}


@pytest.mark.parametrize(
    ("exchange", "is_granted", "flaw"),
    [
        (b"events", False, None),
        (b"e" * 31, False, None),
        (b"e" * 32, False, "malformed"),
        (b"\x01", False, "malformed"),
        (b"", False, "malformed"),
        (b"e" * 127, True, None),
        (b"", True, None),
    ],
)
def test_messages_after_a_shorter_key_need_a_plausible_exchange_or_a_login(
    exchange: bytes, is_granted: bool, flaw: str | None, tmp_path: Path
) -> None:
    """The document allows keys of 1 to 126 bytes. fqd grants 127 only, so that a shorter length may be damaged."""
    key = b"k" * 16
    message = bytes([len(exchange)]) + exchange + b"\1r" + bytes(16) + b"\0\0\0\1x"
    login = auth(b"q\0mem")
    talks = [(CLIENT_PORT, b"\xcc\x50\xfa\xce" + prefixed(key) + message, b"")]
    if is_granted:
        talks.insert(0, (CLIENT_PORT + 1, b"\xcc\x50\xca\xfe" + login, b"\xaa\0" + prefixed(key)))
    segments = []
    for port, sent, answer in talks:
        opening = Segment(seq=9, flags=SYN), Segment(seq=99, ack=10, flags=SYN | ACK, from_server=True)
        talk = Segment(sent, 10, 100), Segment(answer, 100, 10 + len(sent), from_server=True)
        segments += [replace(segment, client_port=port) for segment in (*opening, *talk)]
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(segments, 8765))

    (row,) = [row for row in read(path).messages if row["op"] == "message"]

    assert (row["flaw"], row["client_name"]) == (flaw, "u" if is_granted else None)
    assert row["destination"] == (None if flaw else exchange.decode())
