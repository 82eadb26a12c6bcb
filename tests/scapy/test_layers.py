"""The Scapy face: what users of Scapy see of the protocols."""

import collections
import copy
import gc
import importlib
import importlib.metadata
import io
import json
import keyword
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from dissection import Dissection, dissect
from examples import examples, one_in
from hypothesis import assume, given
from hypothesis import strategies as st
from reading import flaws
from scapy.config import conf
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import CookedLinux, Ether
from scapy.packet import Packet, Padding, Raw, bind_bottom_up, fuzz, split_bottom_up
from scapy.plist import PacketList
from scapy.sendrecv import AsyncSniffer, sniff
from scapy.sessions import TCPSession
from scapy.utils import rdpcap, wrpcap, wrpcapng
from scapy.volatile import RandBin, RandInt, RandIP, RandNum, RandString

import mqpcap
import mqpcap.scapy as face
from mqpcap import pipeline as pipeline_module
from mqpcap.capture import captures
from mqpcap.decode.detection import DecodeAs
from mqpcap.pipeline import Options
from mqpcap.protocols import protocols
from mqpcap.protocols.blipmq import BlipMQ, BlipMQPing, BlipMQPublish, BlipMQPublishV2, BlipMQSubscribeV2
from mqpcap.protocols.flymq import (
    FlyMQ,
    FlyMQAuth,
    FlyMQAuthResponse,
    FlyMQFetchReply,
    FlyMQListTopicsReply,
    FlyMQProduce,
    FlyMQRecord,
)
from mqpcap.protocols.fq import (
    FqAuth,
    FqCommand,
    FqConnect,
    FqConnectPeer,
    FqMessage,
    FqQueueDetail,
    FqStatus,
    FqStatusValue,
)
from mqpcap.protocols.kokaq import (
    Kokaq,
    KokaqAnswer,
    KokaqEntry,
    KokaqLEAnswer,
    KokaqLEPayload,
    KokaqLERequest,
    KokaqMetadata,
    KokaqPayload,
    KokaqRequest,
    KokaqRequestLsb,
)
from mqpcap.protocols.mqtt import Mqtt, Mqtt5Ack, MqttConnect
from mqpcap.protocols.msgq import MsgQ, MsgQGetlname, MsgQSend
from mqpcap.scapy import session as session_module
from mqpcap.scapy.session import MqSession, Seen, top
from mqpcap.schema import fields
from mqpcap.schema.message import Message
from mqpcap.schema.protocol import ANY, Layout, MessageQueue
from mqpcap.tables.schemas import protocol_schema

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = one_in(2, sorted((ROOT / "pcaps").glob("*/*.pcap")))
CLASSES = face.message_classes()
# PROTOCOL.md, Frame Layout: length 9 + 2 + 1 + 1 + 2, type 3, id 7; qos 1, topic "t", body "hi".
PUBLISH = bytes.fromhex("0000000f 03 0000000000000007 01 0001 74 6869".replace(" ", ""))
HELLO = bytes.fromhex("0000000b 01 0000000000000001 0001".replace(" ", ""))
PING = bytes.fromhex("00000009 07 0000000000000001".replace(" ", ""))


def packet(payload: bytes, dport: int, sport: int = 40000, seq: int = 1000, flags: str = "PA") -> Packet:
    return (
        Ether()
        / IP(src="10.0.0.1", dst="10.0.0.2")
        / TCP(sport=sport, dport=dport, seq=seq, flags=flags)
        / Raw(payload)
    )


def dissected(payload: bytes, dport: int, sport: int = 40000) -> Packet:
    """The packet as Scapy reads it from the wire."""
    return Ether(bytes(packet(payload, dport, sport)))


def stream(payload: bytes, size: int, dport: int = 5555) -> list[Packet]:
    """A SYN and the payload in segments of a size, a millisecond apart."""
    packets = [packet(b"", dport, seq=999, flags="S")]
    packets += [packet(payload[at : at + size], dport, seq=1000 + at) for at in range(0, len(payload), size)]
    for i, each in enumerate(packets):
        each.time = 1_700_000_000 + i / 1000
    return packets


def messages(source: object, session: MqSession | None = None) -> list[Packet]:
    return list(sniff(offline=source, session=session or MqSession(), quiet=True))


@cache
def messages_of(path: Path) -> PacketList:
    """What a session gives of a sample capture; tests do not change it."""
    return sniff(offline=str(path), session=MqSession(), quiet=True)


# -- names ---------------------------------------------------------------------------------------------


def test_star_import_gives_every_layer_class_and_the_session() -> None:
    names: dict[str, object] = {}
    exec("from mqpcap.scapy import *", names)

    for cls in (BlipMQ, BlipMQPublish, FlyMQ, FqCommand, FqMessage, KokaqRequest, MsgQ, MqSession, Seen):
        assert names[cls.__name__] is cls
    described = {c for p in protocols().values() for x in p.layouts for c in ([x.header] if x.header else [])}
    assert all(names[cls.__name__] is cls for cls in described)


def test_every_protocol_has_a_readable_layer_list(capsys: pytest.CaptureFixture[str]) -> None:
    from scapy.packet import ls

    ls(BlipMQPublish)

    assert "topic" in capsys.readouterr().out


def test_no_field_has_a_name_that_scapy_or_python_owns() -> None:
    owned = set(dir(Message)) | set(Packet.__slots__) | set(keyword.kwlist)

    for cls in CLASSES.values():
        assert not owned & {field.name for field in cls.fields_desc}, cls


# -- building ------------------------------------------------------------------------------------------


def test_built_message_has_the_bytes_of_the_document() -> None:
    assert bytes(BlipMQ(correlation_id=7) / BlipMQPublish(qos=1, topic=b"t", body=b"hi")) == PUBLISH


# Frames of BlipMQ and kokaq: their fields, and their bytes typed by hand.
PARTS = {
    "blipmq ttl and key": (
        BlipMQ(correlation_id=7) / BlipMQPublishV2(qos=1, ttl_ms=5000, partition_key=b"k", topic="demo", body=b"hi"),
        "00000019 03 0000000000000007 c1 00001388 0001 6b 0004 64656d6f 6869",
    ),
    "blipmq group and offset": (
        BlipMQ(correlation_id=3) / BlipMQSubscribeV2(qos=1, topic="demo", group="workers", from_offset=0),
        "00000021 04 0000000000000003 0004 64656d6f c1 0007 776f726b657273 0000000000000000",
    ),
    "kokaq create": (
        KokaqRequest(message_type=1, rq=2, opaque=16, opcode=1, client=2, op_opaque=17)
        / KokaqPayload(component_opaque=10, namespace=b"\0\0\0\x2a", queue=b"\0\0\0\7"),
        "04200106 00000010 01021102 0204200a 04040000 0000002a 00000007",
    ),
    "kokaq metadata": (
        KokaqRequest(opaque=0x30, opcode=3, client=2)
        / KokaqMetadata(metadata=[KokaqEntry(tag=1, value=b"\0\0\xea\x60"), KokaqEntry(tag=5, value=b"\xa0\xa1")]),
        "04200106 00000030 03020001 01042000 00000002 01040000ea60 0502a0a1",
    ),
    "kokaq error": (
        KokaqAnswer(opaque=16, opcode=1, status=1, reason=3, op_opaque=17),
        "04200105 00000010 01131100",
    ),
    "kokaq go1 push": (
        KokaqLERequest(opaque=3, opcode=6, client=3) / KokaqLEPayload(namespace=42, queue=7, body=b"hello"),
        "20040105 03000000 06030002 02200400 04040500 2a000000 07000000 68656c6c6f" + "00" * 12,
    ),
    "kokaq go1 answer": (KokaqLEAnswer(opaque=3, opcode=6, status=1, reason=1), "20040105 03000000 06110000"),
    "kokaq control, one-way": (KokaqRequest(message_type=3, rq=3), "0420010f 00000000 00000000"),
    "kokaq control, one-way, lsb": (KokaqRequestLsb(message_type=3, rq=3), "042001c3 00000000 00000000"),
}


@pytest.mark.parametrize("name", PARTS)
def test_bits_and_what_announces_a_body_need_not_be_given(name: str) -> None:
    built, wanted = PARTS[name]

    assert bytes(built) == bytes.fromhex(wanted)


# binary.go: list replies count their topics; FqMessage of the document: no exchange, route and sender, an id of zeros.
PLAIN_VALUES = {
    "list of texts": (FlyMQListTopicsReply(topics=["a", "bc"]), "00000002 0001 61 0002 6263"),
    "one text for a list": (FlyMQListTopicsReply(topics="bc"), "00000001 0002 6263"),
    "text that is not ascii": (FlyMQListTopicsReply(topics=["\u00fc"]), "00000001 0002 c3bc"),
    "hops": (
        FqMessage(hops=["10.0.0.1", b"\x01\x02\x03\x04"]),
        "00 00" + "00" * 16 + "00 02 0a000001 01020304 00000000",
    ),
    "node id": (FqConnectPeer(node_id="10.0.0.1", client_key="k"), "0a000001 0001 6b"),
}


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_values_are_given_as_people_write_them(name: str) -> None:
    built, wanted = PLAIN_VALUES[name]

    assert bytes(built) == bytes.fromhex(wanted)


def test_text_appended_to_a_list_is_built_as_text() -> None:
    reply = FlyMQListTopicsReply(bytes.fromhex("00000001 0001 61"))
    reply.topics.append("bc")

    assert bytes(reply) == bytes.fromhex("00000002 0001 61 0002 6263")


def test_a_text_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="localhost"):
        FqMessage(hops=["localhost"])


def test_addresses_read_as_dotted_text() -> None:
    assert "hops=[10.0.0.1]" in repr(FqMessage(hops=[b"\x0a\x00\x00\x01"]))


VOLATILE = {
    "text with its length field": BlipMQ() / BlipMQPublish(topic=RandString(5), body=RandBin(RandNum(0, 9))),
    "text with its prefix": FlyMQ() / FlyMQProduce(topic=RandString(RandNum(1, 9)), key=RandString(3), value="x"),
    "a flag of another field": BlipMQ() / BlipMQPublishV2(topic="t", ttl_ms=RandInt()),
    "items of a list": FlyMQListTopicsReply(topics=[RandString(RandNum(1, 9)), "b"]),
    "addresses": FqMessage(hops=[RandIP()]),
    "records of a list": FqStatus(status_values=[FqStatusValue(name_=RandString(RandNum(1, 9)), value=RandInt())]),
    "a part": FqAuth(user="u", queue_detail=FqQueueDetail(queue=RandString(RandNum(1, 9)), queue_type="mem")),
}


@pytest.mark.parametrize("name", VOLATILE)
def test_volatile_values_are_drawn_for_each_build(name: str) -> None:
    message = VOLATILE[name]

    built = [bytes(message) for _ in range(20)]

    assert len(set(built)) > 10
    for raw in built:
        read = type(message)(raw)
        assert Raw not in read
        assert bytes(read) == raw


def lengths_and_counts() -> Iterator[tuple[type[Message], str, fields.Kind]]:
    """Every field that says how long or how many another is: class, its name, and the other."""
    for cls in CLASSES.values():
        kinds = {kind.name: kind for kind in fields.flat_fields(cls)}
        for kind in kinds.values():
            said = getattr(kind, "length", None) or getattr(kind, "count", None)
            if getattr(kind, "prefix", None) is not None:
                said = fields.prefix_name(kind)
            if said is not None:
                yield cls, said, kind


def conditions(cls: type[Message], kind: fields.Kind) -> dict[str, int]:
    """Values of other fields with which a field is there."""
    field, values = cls().get_field(kind.name), {}
    while isinstance(field, fields.If):
        if field.when is not None and field.equals is not None:
            values[field.when] = field.equals if isinstance(field.equals, int) else next(iter(field.equals))
        field = field.kind
    return values


def test_every_length_can_be_lied_about() -> None:
    """The lie is in the bytes that say it, and changes no others."""
    for cls, length_field, kind in lengths_and_counts():
        name = f"{cls.__name__}.{length_field}"
        random.seed(7)
        right = cls(**{kind.name: kind.draw()} | conditions(cls, kind))

        lie = right.copy()
        lie.setfieldval(length_field, 77)

        before, after = bytes(right), bytes(lie)
        changed = [offset for offset in range(len(before)) if before[offset] != after[offset]]
        assert len(before) == len(after), name
        assert changed, name
        assert changed[-1] - changed[0] < 8, name
        assert after[changed[-1]] == 77 or after[changed[0]] == 77, name


def test_names_stand_for_their_numbers() -> None:
    assert bytes(BlipMQ(frame_type="PUBLISH"))[4] == 3
    assert BlipMQ(frame_type="PUBLISH") == BlipMQ(frame_type=3)
    with pytest.raises(ValueError, match="'PUBLIC' is no frame_type; there are HELLO, AUTH, "):
        BlipMQ(frame_type="PUBLIC")


def test_the_list_of_fields_has_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    from scapy.packet import ls

    ls(BlipMQ, verbose=True)

    assert "PUBLISH: 3" in capsys.readouterr().out


def test_the_last_word_on_bits_counts() -> None:
    """``qos_flags`` is bits 0 and 1 for the QoS, 7 for a TTL and 6 for a key."""
    publish = BlipMQPublishV2(bytes(BlipMQPublishV2(qos=1, ttl_ms=5, topic="t")))
    assert (publish.qos_flags, publish.qos, publish.ttl_ms) == (0x81, 1, 5)

    publish.qos = 0
    assert bytes(publish) == b"\x80\0\0\0\5\0\1t"
    publish.ttl_ms = None
    assert bytes(publish) == b"\0\0\1t"
    publish.qos_flags = 0xC1
    assert (bytes(publish), publish.qos) == (b"\xc1\0\0\0\0\0\0\0\1t", 1)
    publish.qos_flags = 1
    assert bytes(publish) == b"\1\0\1t"


def test_a_value_too_great_for_its_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="status is 16, but goes from 0 to 15"):
        bytes(KokaqAnswer(status=16))


def test_bits_not_given_are_those_of_their_number() -> None:
    assert (Kokaq().message_type, Kokaq().rq, KokaqAnswer(status_reason=0x13).reason) == (1, 2, 3)


STACKED = {
    "blipmq": (BlipMQ(correlation_id=7) / BlipMQPublish(qos=1, topic="t", body="hi"), PUBLISH),
    "flymq": (FlyMQ(opcode=5) / FlyMQListTopicsReply(), bytes.fromhex("af010501 00000004 00000000")),
    "msgq": (MsgQ() / MsgQGetlname(), bytes.fromhex("00000013 536b616e 0474797065 2108 6765746c6e616d65")),
}


@pytest.mark.parametrize(("message", "raw"), STACKED.values(), ids=STACKED.keys())
def test_stacked_messages_have_lengths_of_their_own(message: Packet, raw: bytes) -> None:
    assert bytes(message / message / message) == raw * 3
    assert bytes(message / Raw(b"more")) != raw + b"more"  # what is no message belongs to the one in front of it
    assert bytes(message / Raw(b"more") / message) == bytes(message / Raw(b"more")) + raw


def test_first_message_of_a_segment_is_edited_alone() -> None:
    first = dissected(PUBLISH + PING, 5555)[BlipMQ]

    first.payload.body = b"hello"
    del first.length

    # PUBLISH with three bytes more.
    assert bytes(first) == b"\0\0\0\x12" + PUBLISH[4:-2] + b"hello" + PING


def test_bytes_after_the_last_message_of_a_segment_stay_there() -> None:
    produce = FlyMQ(flags=3) / FlyMQProduce(topic="t", value="hi")
    packed = bytes(produce)
    found = dissected(packed + b"tail", 9092)
    assert bytes(found[FlyMQ]) == packed + b"tail"

    found[FlyMQProduce].value = "ho"
    del found[FlyMQ].length

    edited = bytes(FlyMQ(flags=3) / FlyMQProduce(topic="t", value="ho"))
    assert bytes(found[FlyMQ]) == edited + b"tail"


@pytest.mark.parametrize("name", ["kokaq metadata", "kokaq error", "kokaq go1 push", "kokaq go1 answer"])
@pytest.mark.parametrize("tail", [b"garbage", b"\1", bytes.fromhex("04200106 00000010 01020000")])
def test_what_follows_a_kokaq_frame_is_not_of_it(name: str, tail: bytes) -> None:
    raw = bytes.fromhex(PARTS[name][1])

    found = Kokaq(raw + tail)

    assert found.getlayer("Padding").load == tail
    assert not getattr(found.payload, "trailer", b"") or found.payload.trailer == bytes(12)
    assert bytes(found) == raw + tail


def test_changed_field_changes_the_bytes() -> None:
    message = BlipMQ(PUBLISH)
    message[BlipMQPublish].body = b"ho"

    assert bytes(message) == PUBLISH[:-2] + b"ho"


def _bodies() -> Iterator[tuple[MessageQueue, Layout, int, type[Message]]]:
    for protocol in protocols().values():
        once: set[object] = set()
        for layout in protocol.layouts:
            for op, variants in layout.variants.items():
                for cls in [variant.message for variant in variants if not variant.only_framed]:
                    if (layout.header, cls) not in once:
                        once.add((layout.header, cls))
                        yield protocol, layout, op, cls


def test_fuzz_builds_what_the_interpreter_reads() -> None:
    for protocol, layout, op, cls in _bodies():
        frames = []
        for seed in range(10):
            random.seed(seed)
            body = fuzz(cls())
            if layout.header is not None:
                fixed = {} if op == ANY or layout.op is None else {layout.op: op}
                body = layout.header(**fixed) / body
            frames.append(bytes(body))

        flaw_of = dict(zip(frames, flaws(protocol, layout.name, frames), strict=True))

        assert {raw: flaw for raw, flaw in flaw_of.items() if flaw} == {}, (layout.name, cls)


def test_fuzz_draws_anew_for_each_build_and_copy() -> None:
    random.seed(1)
    drawn = (BlipMQ() / BlipMQPublish(), FqMessage(), FlyMQListTopicsReply(), MsgQ() / MsgQSend(), BlipMQ())
    for message in map(fuzz, drawn):
        assert message.summary()
        for one in (message, message.copy(), pickle.loads(pickle.dumps(message))):
            assert len({bytes(one) for _ in range(20)}) > 10


def test_fuzz_draws_edges_and_bytes_of_all_kinds() -> None:
    random.seed(2)
    drawn = [BlipMQ(bytes(fuzz(BlipMQ() / BlipMQPublish())))[BlipMQPublish] for _ in range(300)]

    assert {0, 255} <= {x.qos for x in drawn}
    assert {0, 255} <= {len(x.topic) for x in drawn}
    assert any(x.topic != x.topic.decode().encode("ascii", "ignore") for x in drawn)
    assert len({byte for x in drawn for byte in x.body}) == 256


def test_fuzz_leaves_what_was_given() -> None:
    built = BlipMQ(bytes(BlipMQ(correlation_id=7) / fuzz(BlipMQPublish(topic="t"))))

    assert (built.correlation_id, built.topic) == (7, b"t")


@pytest.mark.parametrize("form", ["flat", "typed", "split", "json"])
def test_fuzz_draws_the_words_of_a_message(form: str) -> None:
    random.seed(4)
    drawn = [bytes(MsgQ() / fuzz(MsgQSend(form=form, to="*"))) for _ in range(50)]
    read = [MsgQ(raw) for raw in drawn]

    assert not any(Raw in message for message in read)
    assert {(message.payload.type, message.payload.to) for message in read} == {("send", "*")}
    assert len({message.payload.group for message in read}) > 40


def test_random_keeps_the_bounds() -> None:
    class Bounded(Message):
        name = "bounded"
        fields_desc = [
            fields.U8("number", at_least=5, at_most=6),
            fields.Bytes("key", prefix=1, at_least=20, at_most=21),
            fields.Bytes("none", prefix=1, at_most=0),
            fields.Bool("no", equals=0),
        ]

    random.seed(3)
    for _ in range(200):
        drawn = Bounded.random()
        assert (drawn.number in (5, 6), len(drawn.key) in (20, 21), drawn.none, drawn.no) == (True, True, b"", False)


def test_flags_given_beside_their_parts_are_sent_as_given() -> None:
    """Bit 7 says that there is a TTL; a sender that lies about it can be built."""
    assert bytes(BlipMQPublishV2(qos_flags=0x01, ttl_ms=5, topic="t")) == b"\x01" + b"\0\0\0\5" + b"\0\1t"
    assert bytes(BlipMQPublishV2(qos_flags=0x82, qos=1, topic="t")) == b"\x82" + bytes(4) + b"\0\1t"
    assert bytes(KokaqAnswer(status_reason=0x13, reason=1))[9] == 0x13


def test_json_has_the_messages_inside_as_objects() -> None:
    reply = FlyMQFetchReply(next_offset=2, records=[FlyMQRecord(offset=1, key="k", value="v")])

    said = json.loads((FlyMQ(opcode=7) / reply).json())

    assert said["payload"]["records"] == [{"offset": 1, "key": "k", "value": "v"}]
    assert json.loads(FqMessage(hops=["10.0.0.1"]).json())["hops"] == ["10.0.0.1"]


def test_a_login_is_answered_under_the_opcode_of_the_server() -> None:
    """0x70 comes from clients only, its answer is 0x71 (protocol.go)."""
    assert bytes(FlyMQ() / FlyMQAuthResponse())[2] == 0x71
    assert bytes(FlyMQ() / FlyMQAuth())[2] == 0x70


def test_the_face_is_not_without_scapy() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import mqpcap.schema.scapy_stub\nfrom mqpcap.scapy import *"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert "import mqpcap.scapy first" in said.stderr


MISFITS = {
    "a header cut short": (BlipMQ, b"\0\0\0\1"),
    "a length below its least": (BlipMQ, bytes.fromhex("00000001 03 0000000000000007".replace(" ", ""))),
    "a wrong magic": (FlyMQ, b"\xaf\3"),
    "an odd byte": (FqCommand, b"\xa7"),
    "a name that overruns": (FqMessage, b"\xff" + bytes(40)),
    "a foreign frame": (Kokaq, b"GET / HTTP/1.1\r\n\r\n"),
}


@pytest.mark.parametrize(("cls", "raw"), MISFITS.values(), ids=MISFITS.keys())
def test_bytes_that_do_not_fit_build_as_they_came(cls: type[Message], raw: bytes) -> None:
    found = cls(raw)

    assert bytes(found) == raw
    assert bytes(found.copy()) == raw
    assert found[Raw].load == raw


def test_command_of_bytes_that_do_not_fit_is_that_of_the_bytes() -> None:
    assert BlipMQ(b"\0\0\0\1").command() == "Raw(load=b'\\x00\\x00\\x00\\x01')"
    assert BlipMQ(PING).command().endswith("/BlipMQPing(trailing_bytes=b'')")


COMMANDS = {
    # Exactly 1 is true. The reply of TXN_BEGIN ends with a Bool, here 2.
    "a truth above 1": "af014001 00000005 0002 7831 02",
    # LIST_TOPICS with flags for gzip: an empty body as gzip of level 0 (RFC 1952), then a byte of no message.
    "padding behind a body that came packed otherwise": (
        "af010803 00000017 1f8b0800 00000000 0003 0100 00ff ff00 0000 0000 0000 00 01"
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_builds_the_same_bytes(name: str) -> None:
    raw = bytes.fromhex(COMMANDS[name])

    assert bytes(rebuilt(FlyMQ(raw))) == raw


def test_a_truth_above_1_is_false_and_kept() -> None:
    reply = FlyMQ(bytes.fromhex(COMMANDS["a truth above 1"])).payload

    assert (reply.success == 2, bool(reply.success)) == (True, False)
    assert bytes(type(reply)(txn_id="x1", success=2)) == bytes(reply)
    assert bool(pickle.loads(pickle.dumps(reply)).success) is False


def test_lists_of_a_message_that_does_not_fit_are_its_own() -> None:
    FqMessage(b"\xff").hops.append(b"\1\2\3\4")

    assert FqMessage().hops == []
    assert FqMessage(b"\xff").hops == []


@cache
def corpus() -> list[tuple[type[Message], bytes]]:
    """Some messages of every sample capture: the class that reads them and their bytes."""
    return [(type(m), m.original) for path in CAPTURES for m in messages_of(path)[:20]]


def rebuilt(message: Packet) -> Packet:
    """What the message's command builds."""
    made: Packet = eval(message.command(), {"Raw": Raw, "Padding": Padding, **CLASSES})
    return made


@examples(40)
@given(data=st.data())
def test_any_bytes_build_as_they_came(data: st.DataObject) -> None:
    """Bytes changed, cut, put in and appended: alone, under another class, in a packet."""
    cls, raw = data.draw(st.sampled_from(corpus()))
    at, size = data.draw(st.tuples(st.integers(0, len(raw)), st.integers(0, 4)))
    mutant = raw[:at] + data.draw(st.binary(max_size=4)) + raw[at + size :]
    mutant = mutant[: data.draw(st.sampled_from((len(mutant), at)))] + data.draw(st.sampled_from((b"", b"\0", raw)))
    assume(mutant)

    other = data.draw(st.sampled_from(list(CLASSES.values())))
    protocol = cls.of_protocol
    assert bytes(cls(mutant)) == bytes(cls(mutant).copy()) == bytes(other(mutant)) == mutant
    assert bytes(rebuilt(cls(mutant))) == bytes(rebuilt(other(mutant))) == mutant
    if protocol is not None:
        ports = data.draw(st.permutations((protocol.ports[0], 40000)))
        framed = bytes(packet(mutant[:60000], *ports))
        assert bytes(Ether(framed)) == framed


# -- one packet ----------------------------------------------------------------------------------------


def test_message_in_a_packet_is_found_by_its_class() -> None:
    found = dissected(PUBLISH, 5555)

    assert found[BlipMQ].correlation_id == 7
    assert found[BlipMQPublish].topic == b"t"
    assert Raw not in found


def test_messages_in_a_packet_follow_each_other_as_layers() -> None:
    found = dissected(PUBLISH + PING + PUBLISH, 5555)

    assert [type(x).__name__ for x in found[TCP].payload.iterpayloads()] == [
        "BlipMQ", "BlipMQPublishV2", "BlipMQ", "BlipMQPing", "BlipMQ", "BlipMQPublishV2",
    ]  # fmt: skip
    assert found[BlipMQ:3].correlation_id == 7
    assert bytes(found[TCP].payload) == PUBLISH + PING + PUBLISH


def test_message_that_the_packet_does_not_end_keeps_its_header() -> None:
    found = dissected(PING + PUBLISH[:-1], 5555)

    assert found[BlipMQ:2].length == 15
    assert found[Raw].load == PUBLISH[13:-1]


def test_direction_is_that_of_the_ports() -> None:
    # A first octet of 8 is 'success' plus seven unread bytes for a request's layout; a reply is 8 bytes of offset.
    reply = bytes.fromhex("af 01 05 01 00000008 0000000000000011".replace(" ", ""))

    assert type(dissected(reply, 40000, 9092)[FlyMQ].payload).__name__ == "FlyMQSubscribeReply"


def test_layout_changes_after_the_first_word_of_a_connection() -> None:
    login = bytes.fromhex("cc50cafe aaaa 0000 0001 75 0002 7100 0001 70".replace(" ", ""))

    found = dissected(login, 8765)

    assert [type(x).__name__ for x in found[TCP].payload.iterpayloads()] == [
        "FqConnect", "FqConnectCommand", "FqCommand", "FqAuth",
    ]  # fmt: skip
    assert found[FqConnect].word == 0xCC50CAFE


STRANGERS = {
    "kafka": (9092, bytes.fromhex("00000020 0012 0003 00000001 0006 636f6e736f6c 00".replace(" ", ""))),
    "tls": (9092, bytes.fromhex("1603010200010001fc0303") + bytes(100)),
    "grpc": (9944, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "http request": (8765, b"GET /stats HTTP/1.1\r\nHost: a\r\n\r\n"),
    "http": (5555, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "adb": (5555, b"CNXN\x00\x00\x00\x01\x00\x00\x10\x00"),
}


@pytest.mark.parametrize(("port", "payload"), STRANGERS.values(), ids=STRANGERS.keys())
def test_foreign_content_on_a_supported_port_stays_raw(port: int, payload: bytes) -> None:
    assert type(dissected(payload, port)[TCP].payload) is Raw
    assert type(dissected(payload, 40000, port)[TCP].payload) is Raw


@pytest.mark.parametrize("path", sorted((ROOT / "pcaps" / "strangers").glob("*.pcap")), ids=lambda p: p.stem)
def test_captured_strangers_stay_raw(path: Path) -> None:
    layers = {type(x) for p in rdpcap(str(path)) if TCP in p for x in p[TCP].payload.iterpayloads()}

    assert not {x for x in layers if issubclass(x, Message)}


def test_foreign_content_goes_to_what_else_is_bound_to_the_port() -> None:
    class Kafka(Packet):
        name = "Kafka"
        fields_desc = []

    bind_bottom_up(TCP, Kafka, dport=9092)
    try:
        found = dissected(STRANGERS["kafka"][1], 9092)
    finally:
        split_bottom_up(TCP, Kafka, dport=9092)

    assert Kafka in found


def test_binding_twice_binds_once() -> None:
    before = list(TCP.payload_guess)

    face.bind()

    assert before == TCP.payload_guess


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_packets_build_as_they_came(path: Path) -> None:
    for each in rdpcap(str(path), count=200):  # the messages of later ones: see the tests of the session
        assert bytes(each) == each.original


# -- Scapy's own session ---------------------------------------------------------------------------------

# Captures on the protocols' own ports, with all their bytes.
WHOLE = (
    "blipmq/qos1", "flymq/core", "flymq/gzip", "flymq/users", "fq/session", "fq/node_client", "kokaq/doc_session",
    "kokaq/go1_session", "kokaq/lean_session", "msgq/flat_session", "msgq/json_session", "msgq/split_session",
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_scapys_tcp_session_finds_the_messages(name: str) -> None:
    path = ROOT / "pcaps" / f"{name}.pcap"
    found = collections.defaultdict(list)
    for each in sniff(offline=str(path), session=TCPSession, quiet=True):
        for layer in each[TCP].payload.iterpayloads() if TCP in each else ():
            if isinstance(layer, Message) and layer.of_protocol is not None:
                found[each[TCP].sport, each[TCP].dport].append(type(layer))

    wanted = collections.defaultdict(list)
    for message in sorted(messages_of(path), key=lambda m: m.mq.stream_offset):
        wanted[message.mq.src_port, message.mq.dst_port].append(type(message))

    assert found == wanted


@pytest.mark.parametrize("port", [5555, 9092, 9944, 9912, 8765])
def test_foreign_streams_stay_raw_in_scapys_tcp_session(port: int) -> None:
    found = sniff(offline=stream(b"GET / HTTP/1.1\r\n\r\n", 7, port), session=TCPSession, quiet=True)

    assert b"".join(each[Raw].load for each in found if Raw in each) == b"GET / HTTP/1.1\r\n\r\n"
    assert not any(isinstance(layer, Message) for each in found for layer in each.iterpayloads())


# -- the session ---------------------------------------------------------------------------------------


def test_messages_come_whole_with_the_time_of_their_first_byte() -> None:
    found = messages(stream(PUBLISH + PING, 5))

    assert [bytes(m) for m in found] == [PUBLISH, PING]
    # Segments of five bytes, from a millisecond on: the second message begins in the fourth, as its fifth byte.
    assert [float(m.time) for m in found] == pytest.approx([1_700_000_000.001, 1_700_000_000.004])
    assert [(m.mq.first_packet, m.mq.last_packet) for m in found] == [(2, 5), (5, 8)]


def test_busy_segments_lose_and_invent_nothing() -> None:
    """Scapy's own session finds 58 of 3,000 where segments hold several messages and a part of one."""
    bodies = [i.to_bytes(4, "big") * 2 for i in range(1000)]
    payload = b"".join(bytes(BlipMQ() / BlipMQPublish(topic=b"t", body=body)) for body in bodies)

    assert [m[BlipMQPublish].body for m in messages(stream(payload, 1400))] == bodies


def test_order_of_capture_does_not_matter() -> None:
    packets = stream(PUBLISH * 10 + PING, 7)
    packets[2:] = [p for pair in zip(packets[3::2], packets[2::2], strict=False) for p in pair]

    assert [bytes(m) for m in messages(packets)] == [PUBLISH] * 10 + [PING]


def test_lost_segment_costs_only_the_messages_it_touched() -> None:
    packets = stream(PUBLISH * 10, len(PUBLISH))
    del packets[4]

    found = messages(packets)

    assert [bytes(m) for m in found] == [PUBLISH] * 9
    assert [m.mq.gap_before_bytes for m in found] == [0, 0, 0, len(PUBLISH), *[0] * 5]


def test_retransmission_yields_nothing_new() -> None:
    packets = stream(PUBLISH * 4, 30)

    assert len(messages([*packets[:3], packets[2], *packets[3:], packets[1]])) == 4


def test_message_with_a_flaw_is_its_header_with_raw() -> None:
    bad = PUBLISH[:14] + b"\x00\xff" + PUBLISH[16:]  # a topic of 255 bytes

    _, found = messages(stream(HELLO + bad, 100))

    assert found.mq.flaw == "malformed"
    assert (type(found), found.length) == (BlipMQ, 15)
    assert found[Raw].load == bad[13:]


def test_what_is_open_at_the_end_comes_out() -> None:
    _, found = messages(stream(HELLO + PUBLISH[:-1], 100))

    assert found.mq.flaw == "truncated"
    assert bytes(found) == PUBLISH[:-1]


def test_seen_says_where_the_message_was() -> None:
    _, found = messages(stream(PUBLISH + PING, 100))

    assert isinstance(found.mq, Seen)
    assert (found.mq.protocol, found.mq.op, found.mq.op_code, found.mq.direction) == ("blipmq", "PING", 7, "c2s")
    assert (found.mq.stream_offset, found.mq.frame_len) == (len(PUBLISH), len(PING))
    assert (found.mq.src_ip, found.mq.src_port, found.mq.dst_ip, found.mq.dst_port) == (
        "10.0.0.1",
        40000,
        "10.0.0.2",
        5555,
    )


def test_files_are_captures_of_their_own(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")
    wrpcap(first, stream(HELLO + PUBLISH[:-1], 100))
    wrpcap(second, stream(PUBLISH, 100))

    found = messages([first, second])

    assert sorted(m.mq.flaw or "" for m in found) == ["", "", "truncated"]


def test_open_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    wrpcap(str(path), stream(PUBLISH, 100))

    assert len(messages(io.BytesIO(path.read_bytes()))) == 1


def test_filter_count_and_prn_see_messages() -> None:
    taken: list[Packet] = []

    found = sniff(
        offline=stream((PUBLISH + PING) * 5, 50),
        session=MqSession,
        lfilter=lambda m: BlipMQPing in m,
        count=3,
        prn=taken.append,
    )

    assert len(found) == 3 == len(taken)
    assert all(BlipMQPing in m for m in found)


def test_decode_as_reads_another_port() -> None:
    packets = stream(PING + PUBLISH, 5, dport=7000)
    session = MqSession(Options(decode_as=(DecodeAs(7000, "blipmq"),)))

    assert [bytes(m) for m in messages(packets, session)] == [PING, PUBLISH]


def test_linux_cooked_and_bare_ip_packets_are_read() -> None:
    packets = stream(PUBLISH, 5)

    assert len(messages([p[IP] for p in packets])) == 1
    assert len(messages([CookedLinux() / p[IP] for p in packets])) == 1


@pytest.mark.parametrize("protocol", protocols().values(), ids=protocols())
def test_fields_have_the_names_of_their_columns(protocol: MessageQueue) -> None:
    """A field of a hidden column is one of which a column of its name is made: ``namespace`` of kokaq as text."""
    columns = set(protocol_schema(protocol).names)
    classes = {cls for layout in protocol.layouts for cls in (*layout.messages(), layout.header) if cls is not None}
    named = [(kind.name.rstrip("_"), kind.column) for cls in classes for kind in map(fields.bare, cls.fields_desc)]

    assert [x for x in named if x[1] in columns and x[0] != x[1] and not (x[0] in columns and "_" in x[1])] == []
    lists = [x for x in named if x[1] in columns and pa.types.is_list(protocol_schema(protocol).field(x[1]).type)]
    assert [x for x in lists if x[0] != x[1]] == []


def test_lengths_of_a_captured_message_follow_its_edits() -> None:
    """But for those that are set, and of a message whose body could not be read."""
    captured = next(m for m in messages_of(ROOT / "pcaps" / "blipmq" / "qos1.pcap") if m.mq.op == "PUBLISH").copy()
    raw = bytes(captured)

    captured.topic = b"orders"
    assert bytes(captured) == bytes(BlipMQ(correlation_id=4) / BlipMQPublish(qos=1, topic="orders", body="first"))
    captured.topic_len, captured.length = 99, 7
    captured.topic = b"q1"
    assert bytes(captured) == b"\0\0\0\7" + raw[4:14] + b"\0\x63q1first"
    cut = BlipMQ(raw[:-2])
    cut.correlation_id = 5
    assert bytes(cut)[:4] == raw[:4]


def test_rows_of_tables_build_messages() -> None:
    """Fields of a part have their columns' names on the message, and items of lists may be dicts."""
    login = FqAuth(user="u", queue="q", queue_type="mem", password="p")
    again = FqCommand.read(bytes(FqCommand() / login), "c2s")

    # fq.md, section 2: the name of the queue, a zero, its type.
    assert bytes(login) == b"\0\0\0\1u\0\5q\0mem\0\1p"
    assert (again.queue, again.queue_type) == (b"q", b"mem")
    again.queue = "longer"
    assert b"\0\x0alonger\0mem" in bytes(again)
    with pytest.raises(AttributeError, match="FqAuth has no field 'quue'"):
        FqAuth(quue="q")
    by_row = FqStatus(status_values=[{"name": "drops", "value": 3}])
    assert bytes(by_row) == bytes(FqStatus(status_values=[FqStatusValue(name_="drops", value=3)]))


def test_a_part_under_a_condition_has_its_fields_on_the_message() -> None:
    ack = Mqtt(packet_type="PUBACK") / Mqtt5Ack(packet_id=1, reason_code=0)
    plain, absent = bytes(ack), ack.properties
    ack.properties = [{"id": "reason_string", "text": "no"}]
    connect = MqttConnect(protocol_level=5, properties=[{"id": 17, "four_bytes": 5}])

    # MQTT 5.0, 3.4.2: packet identifier, reason code, length of the properties, reason string (31).
    assert (plain, absent) == (bytes.fromhex("40030001 00"), None)
    assert bytes(ack) == bytes.fromhex("40090001 00 05 1f 0002") + b"no"
    # 3.1.2.11: session expiry interval (17), four bytes.
    assert bytes.fromhex("05 11 00000005") in bytes(connect)
    assert Mqtt.read(bytes(ack), "c2s").properties[0].text == b"no"
    with pytest.raises(AttributeError, match="Mqtt5Ack has no field 'propertis'"):
        Mqtt5Ack(propertis=[])


@pytest.mark.parametrize("layout", [x for p in protocols().values() for x in p.layouts if x.header and x.op])
def test_a_body_goes_out_under_an_operation_that_has_it(layout: Layout) -> None:
    operations: dict[type[Message], set[int]] = {}
    for operation, variants in layout.variants.items():
        for variant in variants:
            operations.setdefault(variant.message, set()).add(operation)

    built = {cls: (top(layout.header)() / cls()).getfieldval(layout.op) for cls in operations}

    assert {cls: op for cls, op in built.items() if op not in operations[cls] and -1 not in operations[cls]} == {}


def test_a_truncated_message_has_all_its_captured_bytes() -> None:
    whole = bytes(BlipMQ() / BlipMQPublish(topic="t", body=bytes(200_000)))

    _, message = messages(stream(HELLO + whole[:180_000], 30_000))

    assert (message.mq.flaw, message.mq.frame_len) == ("truncated", 180_000)
    assert bytes(message) == message.original == whole[:180_000]


def test_packets_that_are_no_tcp_yield_nothing() -> None:
    assert messages([Ether() / Raw(b"x"), Ether() / IP() / Raw(b"y"), Raw(b"z")]) == []


class Wire:
    """A source that never ends."""

    nonblocking_socket = False

    def __init__(self, packets: list[Packet]) -> None:
        self.packets = packets

    def select(self, sources: list["Wire"], remain_s: float) -> list["Wire"]:
        return [source for source in sources if source.packets]

    def recv(self, size: int, **_: object) -> Packet | None:
        if not self.packets:
            return None
        each = self.packets.pop(0)
        again = Ether(bytes(each))
        again.time = each.time
        return again


def test_live_capture_gives_the_rest_when_flushed() -> None:
    source, session = Wire(stream(PUBLISH + PING + PUBLISH[:-1], 5)), MqSession()

    found = [m for _ in range(len(source.packets)) for m in session.recv(source)]

    assert [bytes(m) for m in [*found, *session.flush()]] == [PUBLISH, PING, PUBLISH[:-1]]
    assert session.flush() == []


@pytest.mark.parametrize(
    "name", ["blipmq/midstream", "flymq/core", "fq/session", "kokaq/doc_session", "msgq/flat_session"],
)  # fmt: skip
def test_messages_of_open_connections_do_not_wait_for_packets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``show -i``, only the last message of a side may wait: the frames of kokaq have no length."""
    path = str(ROOT / "pcaps" / f"{name}.pcap")
    monkeypatch.setattr(pipeline_module, "FLUSH_INTERVAL_NS", 0)
    source, session = Wire([p for p in rdpcap(path) if not p[TCP].flags & 5]), MqSession()

    found = [m for _ in range(len(source.packets)) for m in session.recv(source)]

    last = {m.mq.key[:2]: m.mq.key for m in sorted(mqpcap.messages(path), key=lambda m: m.mq.stream_offset)}
    whole, given = {m.mq.key for m in mqpcap.messages(path)}, {m.mq.key for m in found}
    assert given <= whole
    assert whole - given <= set(last.values())
    assert given | {m.mq.key for m in session.flush()} == whole


def test_live_capture_keeps_nothing_of_messages_without_a_reference() -> None:
    source, session = Wire(list(rdpcap(str(ROOT / "pcaps" / "flymq" / "pipelining.pcap"), count=200))), MqSession()
    last = [m for _ in range(len(source.packets)) for m in session.recv(source)][-1]
    gc.collect()

    (kept,) = session._sources.values()
    assert set(kept._pairs) <= {last.mq.key}


def test_messages_are_written_as_the_packets_that_carried_them(tmp_path: Path) -> None:
    """Each packet once, with its time, also those that hold two messages or a part of one."""
    whole = stream(PUBLISH + PING + PUBLISH * 3, 30)
    found = messages(whole)
    path = tmp_path / "written.pcap"

    wrpcap(str(path), found)  # Scapy's own
    again = rdpcap(str(path))

    assert [bytes(p) for p in again] == [bytes(p) for p in whole[1:]]  # not the SYN
    assert [p.time for p in again] == [p.time for p in whole[1:]]
    assert [bytes(m) for m in messages(again)] == [bytes(m) for m in found]
    # Bytes 0-19, 19-32, 32-51, 51-70, 70-89 of segments that end at 30, 60 and 89.
    assert [len(m.mq.packets) for m in found] == [1, 2, 1, 2, 1]
    wrpcap(str(path), [found[0], IP() / TCP()])
    assert len(rdpcap(str(path))) == 2
    wrpcapng(str(path), found[:2])
    assert [bytes(p) for p in rdpcap(str(path))] == [bytes(p) for p in whole[1:3]]
    assert face.wrpcap is wrpcap


def test_closed_connections_leave_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred connections of a message each: few are known at the end, and no message is lost."""
    monkeypatch.setattr(session_module, "MAX_CLOSED_CONNECTIONS", 32)
    monkeypatch.setattr(session_module, "BATCH_PACKETS", 16)
    packets = []
    for port in range(1024, 1224):
        packets += [packet(b"", 5555, port, 999, "S"), packet(HELLO, 5555, port), packet(b"", port, 5555, 1, "R")]
        packets[-1][IP].src, packets[-1][IP].dst = "10.0.0.2", "10.0.0.1"
    for i, one in enumerate(packets):
        one.time = 1_700_000_000 + i
    source, session = Wire(packets), MqSession()

    found = [m for _ in range(len(packets)) for m in session.recv(source)]

    (kept,) = session._sources.values()
    assert len(kept._pipeline.assembler.live) < 50
    assert len(kept._pipeline.framer.connections) < 50
    assert [bytes(m) for m in [*found, *session.flush()]] == [HELLO] * 200


def test_sniffer_in_the_background_yields_messages() -> None:
    sniffer = AsyncSniffer(offline=stream(PUBLISH * 3, 5), session=MqSession)
    sniffer.start()
    sniffer.join()

    assert len(sniffer.results) == 3


def test_supersession_sees_the_packets_first() -> None:
    from scapy.layers.inet import fragment
    from scapy.sessions import IPSession

    packets = stream(bytes(BlipMQ() / BlipMQPublish(topic=b"t", body=bytes(3000))), 5000)
    whole = [Ether(bytes(p)) for p in packets]

    found = messages([f for p in whole for f in fragment(p, fragsize=500)], MqSession(supersession=IPSession))

    assert [m.mq.flaw for m in found] == [None]


KEYS = (
    "connection_id", "direction", "stream_offset", "frame_len", "ts_ns", "end_ts_ns", "first_packet", "last_packet",
    "src_ip", "src_port", "dst_ip", "dst_port", "protocol", "dialect", "op_code", "op", "flaw", "gap_before_bytes",
    "resynced",
)  # fmt: skip


@cache
def tables_of(path: Path) -> Dissection:
    (capture,) = captures([str(path)], sys.stdin.buffer).captures
    return dissect(capture)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_session_agrees_with_the_tables(path: Path) -> None:
    found, tables = messages_of(path), tables_of(path)
    rows = [r for chunk in tables.chunks for r in chunk.messages.select(KEYS).to_pylist()]

    said = [{key: getattr(m.mq, key) for key in KEYS} for m in found]
    order = ("ts_ns", "first_packet", "connection_id", "direction", "stream_offset")
    assert said == sorted(rows, key=lambda r: [r[k] for k in order])
    for message in found:
        assert (Raw in message) >= (message.mq.flaw is not None and message.mq.frame_len > len(message))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_messages_build_as_they_came_and_from_their_command(path: Path) -> None:
    for message in messages_of(path):
        assert bytes(message) == bytes(rebuilt(message)) == message.original


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_pairs_of_a_session_are_the_exchanges(path: Path) -> None:
    found, tables = messages_of(path), tables_of(path)
    answered = {
        (r["connection_id"], r["request_offset"], r["reply_offset"])
        for r in tables.exchanges.to_pylist()
        if r["state"] in ("answered", "likely")
    }

    pairs, left = found.sr()

    assert {(q.mq.connection_id, q.mq.stream_offset, a.mq.stream_offset) for q, a in pairs} == answered
    assert all({q.mq.direction, a.mq.direction} == {"c2s", "s2c"} for q, a in pairs)
    assert all(q.mq.reply == a.mq.key for q, a in pairs)
    assert not any(m.mq.reply for m in left)


WAYS = {
    "filter": lambda found: list(found.filter(lambda m: m.mq is not None)),
    "copy": lambda found: [m.copy() for m in found],
    "copy.copy": lambda found: [copy.copy(m) for m in found],
    "copy.deepcopy": lambda found: [copy.deepcopy(m) for m in found],
    "iteration": lambda found: [one for m in found for one in m],
    "pickle": lambda found: [pickle.loads(pickle.dumps(m)) for m in found],
    "pickled list": lambda found: list(pickle.loads(pickle.dumps(found))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["flymq/gzip", "fq/errors", "kokaq/go1_session", "msgq/json_session", "blipmq/errors"])
def test_messages_keep_what_the_session_said(way: str, name: str) -> None:
    found = messages_of(ROOT / "pcaps" / f"{name}.pcap")[:60]

    again = WAYS[way](found)

    assert [(m.mq, m.mq.reply, bytes(m), m.summary(), m.time) for m in again] == [
        (m.mq, m.mq.reply, bytes(m), m.summary(), m.time) for m in found
    ]
    assert [m.show(dump=True) for m in again] == [m.show(dump=True) for m in found]


def test_pickled_messages_still_pair() -> None:
    found = messages_of(ROOT / "pcaps" / "flymq" / "pipelining.pcap")

    pairs, _ = pickle.loads(pickle.dumps(found)).sr()

    assert [(q.mq, a.mq) for q, a in pairs] == [(q.mq, a.mq) for q, a in found.sr()[0]]


def test_table_of_messages_by_what_the_session_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = sniff(offline=stream(HELLO + PUBLISH, 100), session=MqSession(), quiet=True)

    found.make_table(lambda m: (m.mq.direction, m.mq.op, m.mq.stream_offset))

    assert "PUBLISH 15" in capsys.readouterr().out


def test_pairs_of_a_session_that_was_stopped_keep_to_their_connection() -> None:
    """Not all exchanges are known before the end of a source; here nobody reads on to it."""
    path = str(ROOT / "pcaps" / "flymq" / "pipelining.pcap")

    pairs, _ = sniff(offline=path, session=MqSession(), quiet=True, count=100).sr()

    assert pairs
    assert all(q.mq.connection_id == a.mq.connection_id for q, a in pairs)
    assert all({q.mq.direction, a.mq.direction} == {"c2s", "s2c"} for q, a in pairs)


# -- the extension -------------------------------------------------------------------------------------


def test_every_top_level_package_answers_scapys_extension_loader() -> None:
    """Scapy calls ``scapy_ext`` of each package in top_level.txt and gives up at one without."""
    for path in (ROOT / "src").iterdir():
        if (path / "__init__.py").exists():
            assert callable(importlib.import_module(path.name).scapy_ext)


def test_extension_is_registered_as_a_contribution() -> None:
    from scapy.config import ScapyExt

    import mqpcap

    ext = ScapyExt()
    mqpcap.scapy_ext(ext)

    assert (ext.name, ext.version) == ("mqpcap", mqpcap.__version__)
    origin = Path(mqpcap.__file__).parent / "scapy" / "__init__.py"
    assert [Path(s.spec.origin) for s in ext.specs.values()] == [origin]
    assert conf.exts is not None


def test_installed_distribution_loads_as_extension() -> None:
    try:
        top_level = importlib.metadata.distribution("mqpcap").read_text("top_level.txt")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mqpcap is not installed here: conf.exts.load reads the distribution's metadata")
    if not top_level:
        pytest.skip("this installation of mqpcap has no top_level.txt")
    said = subprocess.run(
        [
            sys.executable, "-c",
            "from scapy.all import *; conf.exts.load('mqpcap'); load_contrib('mqpcap')\n"
            "import mqpcap.scapy; assert BlipMQ is mqpcap.scapy.BlipMQ; print(conf.exts)",
        ],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip

    assert "scapy.contrib.mqpcap" in said.stdout
    assert "WARNING" not in said.stderr
