"""Requests and answers in Scapy: ``answers``, ``hashret``, and ``sr`` on a stream socket."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from scapy.supersocket import StreamSocket

import mqpcap
import mqpcap.scapy  # it shows the classes what a stream holds
from mqpcap.protocols.blipmq import (
    BlipMQ,
    BlipMQAck,
    BlipMQAuth,
    BlipMQDeliver,
    BlipMQHello,
    BlipMQNack,
    BlipMQPing,
    BlipMQPoll,
    BlipMQPong,
    BlipMQPublish,
    BlipMQSubscribe,
)
from mqpcap.protocols.flymq import (
    FlyMQ,
    FlyMQCreateTopic,
    FlyMQCreateTopicReply,
    FlyMQErrorCoded,
    FlyMQListTopics,
    FlyMQListTopicsReply,
)
from mqpcap.protocols.fq import (
    FqAuth,
    FqBind,
    FqCommand,
    FqError,
    FqHeartbeat,
    FqMessage,
    FqStatus,
    FqStatusRequest,
)
from mqpcap.protocols.kokaq import (
    Kokaq,
    KokaqAnswer,
    KokaqEntry,
    KokaqLean,
    KokaqLeanAnswer,
    KokaqLeanRequest,
    KokaqLEAnswer,
    KokaqLEMetadata,
    KokaqLEPayload,
    KokaqLERequest,
    KokaqPayload,
    KokaqRequest,
    KokaqSimple,
)
from mqpcap.protocols.mqtt import Mqtt
from mqpcap.protocols.msgq import MsgQ, MsgQFlat, MsgQGetlname, MsgQJson, MsgQLname
from mqpcap.schema.message import Message

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300  # never waited for: sr() ends with the last answer


def ping(number: int) -> Packet:
    return BlipMQ(correlation_id=number) / BlipMQPing()


# -- what answers what ---------------------------------------------------------------------------------

BLIPMQ = {
    "ack-hello": (BlipMQ(correlation_id=1) / BlipMQAck(), BlipMQ(correlation_id=1) / BlipMQHello(), True),
    "ack-auth": (BlipMQ(correlation_id=1) / BlipMQAck(), BlipMQ(correlation_id=1) / BlipMQAuth(api_key=b"k"), True),
    "ack-subscribe": (BlipMQ(correlation_id=3) / BlipMQAck(), BlipMQ(correlation_id=3) / BlipMQSubscribe(), True),
    "ack of another id": (BlipMQ(correlation_id=2) / BlipMQAck(), BlipMQ(correlation_id=1) / BlipMQHello(), False),
    "ack-ping": (BlipMQ(correlation_id=1) / BlipMQAck(), ping(1), False),
    "pong-ping": (BlipMQ(correlation_id=1) / BlipMQPong(), ping(1), True),
    "nack-ping": (BlipMQ(correlation_id=1) / BlipMQNack(error_code=400), ping(1), True),
    "nack of another id": (BlipMQ(correlation_id=2) / BlipMQNack(error_code=400), ping(1), False),
    # PROTOCOL.md: a delivery with QoS 0 has the POLL's id, with QoS 1 its own tag.
    "publish-poll": (BlipMQ(correlation_id=9) / BlipMQPublish(qos=0), BlipMQ(correlation_id=9) / BlipMQPoll(), True),
    "other-poll": (BlipMQ(correlation_id=8) / BlipMQPublish(qos=0), BlipMQ(correlation_id=9) / BlipMQPoll(), False),
    "tag-poll": (BlipMQ(correlation_id=1) / BlipMQPublish(qos=1), BlipMQ(correlation_id=9) / BlipMQPoll(), True),
    "pushed": (BlipMQ(correlation_id=9) / BlipMQDeliver(), BlipMQ(correlation_id=9) / BlipMQPoll(), False),
    "publish-ping": (BlipMQ(correlation_id=1) / BlipMQPublish(qos=1), ping(1), False),
}
FLYMQ = {
    "same": (FlyMQ() / FlyMQCreateTopicReply(success=1), FlyMQ() / FlyMQCreateTopic(topic=b"t"), True),
    "another": (FlyMQ() / FlyMQListTopicsReply(), FlyMQ() / FlyMQCreateTopic(topic=b"t"), False),
    "error": (FlyMQ() / FlyMQErrorCoded(), FlyMQ() / FlyMQCreateTopic(topic=b"t"), True),
    "request-request": (FlyMQ() / FlyMQCreateTopic(topic=b"t"), FlyMQ() / FlyMQCreateTopic(topic=b"t"), False),
    "reply-reply": (FlyMQ() / FlyMQCreateTopicReply(), FlyMQ() / FlyMQCreateTopicReply(), False),
}
KOKAQ = {
    "same": (KokaqAnswer(opaque=7, op_opaque=1, opcode=7), KokaqRequest(opaque=7, op_opaque=1, opcode=7), True),
    "opaque": (KokaqAnswer(opaque=8, op_opaque=1, opcode=7), KokaqRequest(opaque=7, op_opaque=1, opcode=7), False),
    "op_opaque": (KokaqAnswer(opaque=7, op_opaque=2, opcode=7), KokaqRequest(opaque=7, op_opaque=1, opcode=7), False),
    "request": (KokaqRequest(opaque=7, op_opaque=1, opcode=7), KokaqRequest(opaque=7, op_opaque=1, opcode=7), False),
    "opcode": (KokaqAnswer(opaque=7, op_opaque=1, opcode=5), KokaqRequest(opaque=7, op_opaque=1, opcode=7), False),
}
FQ = {
    "status": (FqCommand() / FqStatus(), FqCommand() / FqStatusRequest(), True),
    "error-auth": (FqCommand() / FqError(), FqCommand() / FqAuth(user=b"u"), True),
    "error-status": (FqCommand() / FqError(), FqCommand() / FqStatusRequest(), False),
    "bind-status": (FqCommand() / FqBind(), FqCommand() / FqStatusRequest(), False),
    "heartbeat": (FqCommand() / FqHeartbeat(), FqCommand() / FqStatusRequest(), False),
}


def words(**said: str) -> Packet:
    """A flat message: per pair a name, the type and short length of an item (1 and 0x20), the text."""
    names = {"from_": "from"}
    pairs = b"".join(
        bytes([len(names.get(k, k))]) + names.get(k, k).encode() + b"\x21" + bytes([len(v)]) + v.encode()
        for k, v in said.items()
    )
    return MsgQ() / MsgQFlat(tree=pairs)


def header(text: bytes) -> Packet:
    return MsgQ() / MsgQJson(header=text)


MSGQ = {
    "lname": (words(lname="a"), words(type="getlname"), True),
    "stats": (words(lname="a"), words(type="stats"), False),
    "subscribe": (words(lname="a"), words(type="subscribe"), False),
    "send": (
        words(type="send", from_="b", to="a", seq="9", reply="1"), words(type="send", from_="a", to="*", seq="1"), True,
    ),
    "repl": (
        words(type="send", from_="b", to="a", seq="9", repl="1"), words(type="send", from_="a", to="*", seq="1"), True,
    ),
    "another number": (
        words(type="send", from_="b", to="a", reply="2"), words(type="send", from_="a", to="*", seq="1"), False,
    ),
    "forwarded": (
        words(type="send", from_="a", to="*", seq="1"), words(type="send", from_="a", to="*", seq="1"), False,
    ),
    "json": (
        header(b'{"type":"send","from":"b","to":"a","seq":5,"reply":1}'),
        header(b'{"type":"send","from":"a","to":"*","seq":1}'), True,
    ),
    "pong": (header(b'{"type":"pong"}'), header(b'{"type":"ping"}'), True),
}  # fmt: skip
CASES = {
    f"{protocol}-{name}": case
    for protocol, cases in (("blipmq", BLIPMQ), ("flymq", FLYMQ), ("kokaq", KOKAQ), ("fq", FQ), ("msgq", MSGQ))
    for name, case in cases.items()
}


@pytest.mark.parametrize(("reply", "request_", "fits"), CASES.values(), ids=CASES.keys())
def test_reply_answers_request_as_the_rule_says(reply: Packet, request_: Packet, fits: bool) -> None:
    assert bool(reply.answers(request_)) == fits
    assert not fits or reply.hashret() == request_.hashret()


def test_messages_of_different_protocols_never_answer() -> None:
    assert not (BlipMQ(correlation_id=1) / BlipMQPong()).answers(FlyMQ() / FlyMQListTopics())
    assert ping(1).hashret() != (FlyMQ() / FlyMQListTopics()).hashret()


def test_a_header_too_deep_to_read_answers_nothing() -> None:
    deep = header(b"[" * 60000)

    assert not deep.answers(words(type="getlname"))


def test_ties_spread_the_hash() -> None:
    assert KokaqRequest(opaque=1).hashret() != KokaqRequest(opaque=2).hashret()


# -- streams -------------------------------------------------------------------------------------------

PUSH = KokaqRequest(opaque=7, op_opaque=1, opcode=7, tag=2) / KokaqPayload(namespace=b"n", queue=b"q", body=b"hello")
WHOLE = {
    "blipmq": (BlipMQ, BlipMQ(correlation_id=1) / BlipMQNack(error_code=400, error_text=b"no")),
    "flymq": (FlyMQ, FlyMQ() / FlyMQCreateTopicReply(success=1)),
    "kokaq": (Kokaq, KokaqAnswer(opaque=7, op_opaque=1, opcode=5, status=1, tag=2) / KokaqPayload(body=b"hello")),
    "kokaq go1": (Kokaq, KokaqLEAnswer(opaque=7, opcode="Pop") / KokaqLEPayload(namespace=4, queue=2, body=b"hello")),
    "kokaq go1 metadata": (
        Kokaq,
        KokaqLEAnswer(opcode="Get") / KokaqLEMetadata(metadata=[KokaqEntry(tag=1, value=b"\0\0\0\3")]),
    ),
    "kokaq lean": (Kokaq, KokaqLean(opaque=3) / KokaqLeanAnswer(op_opaque=9, namespace=42, queue=7, body=b"42-7")),
    "fq": (FqCommand, FqCommand() / FqError(error_text=b"no")),
    "fq message": (FqMessage, FqMessage(exchange="logging", route_="a", sender="me", hops=["10.0.0.1"], body="hello")),
    "msgq": (MsgQ, MsgQ() / MsgQFlat(tree={"lname": "a"})),
    # As daemons of these forms answer (captures split_session, json_session): getlname, and the name in the body.
    "msgq split": (MsgQ, MsgQ(bytes(MsgQ() / MsgQLname(form="split", lname="a@b")))),
    "msgq json": (MsgQ, MsgQ(bytes(MsgQ() / MsgQLname(form="json", lname="a@b")))),
    "blipmq deliver": (BlipMQ, BlipMQ(correlation_id=1) / BlipMQDeliver(topic="t", body="hi")),
}


@pytest.mark.parametrize(("cls", "message"), WHOLE.values(), ids=WHOLE.keys())
def test_message_of_a_stream_waits_for_its_last_byte(cls: type[Message], message: Packet) -> None:
    raw = bytes(message)

    # A lean frame of which just 12 bytes came may be a Nop of another codec, after which nothing comes.
    ends = [n for n in range(1, len(raw)) if not (n == 12 and type(message) is KokaqLean)]
    assert [cls.tcp_reassemble(raw[:n], {}, {}) for n in ends] == [None] * len(ends)
    found = cls.tcp_reassemble(raw, {}, {})
    assert found is not None and bytes(found) == raw
    assert type(found.payload) is type(message.payload)


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "fq message"])
def test_message_in_two_segments_comes_whole_from_scapys_tcp_session(name: str) -> None:
    """But for a message that no header begins, wherever it is cut; those are known after a client's word only."""
    cls, message = WHOLE[name]
    raw = bytes(message)
    assert cls.of_protocol is not None
    ends = TCP(sport=cls.of_protocol.ports[0], dport=40000, flags="PA")

    for cut in range(1, len(raw)):
        packets = []
        for start, part in ((0, raw[:cut]), (cut, raw[cut:])):
            ends.seq = 1000 + start
            packets.append(Ether(bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / ends / Raw(part))))

        (found,) = sniff(offline=packets, session=TCPSession, quiet=True)

        assert bytes(found[TCP].payload) == raw
        assert type(found[TCP].payload.payload) is type(message.payload)


def test_what_follows_a_message_of_a_stream_is_padding() -> None:
    raw = bytes(BlipMQ(correlation_id=1) / BlipMQPong())

    found = BlipMQ.tcp_reassemble(raw + raw[:7], {}, {})

    assert found is not None
    assert found.getlayer("Padding").load == raw[:7]


def test_a_servers_socket_reads_requests() -> None:
    raw = bytes(FlyMQ() / FlyMQListTopics())

    found = FlyMQ.tcp_reassemble(raw, {}, {"direction": "c2s"})

    assert found is not None and FlyMQListTopics in found


@pytest.mark.parametrize(
    "name", ["blipmq/qos1", "flymq/core", "fq/session", "kokaq/doc_session", "kokaq/go1_session", "msgq/json_session"]
)
def test_content_says_who_sent_what_a_socket_reads(name: str) -> None:
    """Both sides of captured connections, as a socket reads them that nobody told its direction."""
    sides: dict[tuple[int, str], list[Message]] = {}
    for message in mqpcap.messages(ROOT / "pcaps" / f"{name}.pcap"):
        sides.setdefault(message.mq.key[:2], []).append(message)

    for messages in sides.values():
        session: dict[str, object] = {}
        found = [ASKED[messages[0].mq.protocol][0].tcp_reassemble(m.original, {}, session) for m in messages]

        # A form of BlipMQ's version 2 derives from that of version 1.
        classes = [(type(each.payload), type(m.payload)) for each, m in zip(found, messages, strict=True)]
        assert [pair for pair in classes if not issubclass(*pair)] == []


# A message that tells the version of MQTT (3.1.1 and 5.0, sections 3.1 and 3.2), a PUBLISH after it, and its body.
VERSIONS = {
    "CONNECT of 5.0": ("100e 00044d515454 05 02 003c 00 000161", "3007 000174 00 686921", b"hi!"),
    "CONNECT of 3.1.1": ("100d 00044d515454 04 02 003c 000161", "3007 000174 00 686921", b"\0hi!"),
    "CONNACK of 5.0": ("2003 00 00 00", "3007 000174 00 686921", b"hi!"),
    "CONNACK of 3.1.1": ("2002 00 00", "3007 000174 00 686921", b"\0hi!"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_socket_reads_mqtt_in_the_version_that_the_first_packet_tells(name: str) -> None:
    first, later, body = VERSIONS[name]
    for read in (first, first + later):
        session: dict[str, object] = {}

        Mqtt.tcp_reassemble(bytes.fromhex(read), {}, session)
        found = Mqtt.tcp_reassemble(bytes.fromhex(later), {}, session)

        assert found is not None and found.body == body


def test_a_servers_socket_reads_requests_that_come_together() -> None:
    lists, creates = bytes(FlyMQ() / FlyMQListTopics()), bytes(FlyMQ() / FlyMQCreateTopic(topic=b"t", partitions=1))
    session: dict[str, object] = {}

    found = FlyMQ.tcp_reassemble(creates + lists, {}, session)

    assert found is not None and FlyMQCreateTopic in found
    assert session["direction"] == "c2s"


def test_a_header_of_kokaq_that_ends_in_zeros_is_not_waited_for() -> None:
    """``sr1(timeout=2)`` never came back: no more bytes follow it."""
    raw = bytes(KokaqAnswer(opaque=7, op_opaque=0, opcode=0, status_reason=0) / KokaqSimple())
    assert raw[8:] == bytes(4)

    found = Kokaq.tcp_reassemble(raw, {}, {})

    assert found is not None and bytes(found) == raw


@contextmanager
def served(cls: type[Message], wanted_bytes: int, answers: Sequence[bytes]) -> Iterator[StreamSocket]:
    """A socket to a server on the loopback that takes so many bytes and then sends its answers, one write each."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            left = wanted_bytes
            while left and (some := connection.recv(left)):
                left -= len(some)
            for answer in answers:
                connection.sendall(answer)
            connection.recv(1)  # until the client closes

    server = threading.Thread(target=serve)
    server.start()
    client = StreamSocket(socket.create_connection(listener.getsockname()), cls)
    try:
        yield client
    finally:
        client.close()
        server.join()
        listener.close()


def paired(
    cls: type[Message], requests: Sequence[Packet], writes: Sequence[bytes]
) -> tuple[list[tuple[Packet, Packet]], list[Packet]]:
    size = sum(len(bytes(x)) for x in requests)
    with served(cls, size, writes) as client:
        answered, unanswered = client.sr(list(requests), timeout=TIMEOUT_S, verbose=0)
    return [(pair.query, pair.answer) for pair in answered], list(unanswered)


def test_blipmq_pairs_on_a_stream_socket() -> None:
    requests = [
        BlipMQ(correlation_id=1) / BlipMQHello(),
        BlipMQ(correlation_id=3) / BlipMQSubscribe(topic=b"t", qos=1),
        BlipMQ(correlation_id=50) / BlipMQPoll(subscription_id=1),
        ping(51),
    ]
    replies = [
        BlipMQ(correlation_id=1) / BlipMQAck(),
        BlipMQ(correlation_id=3) / BlipMQNack(error_code=400, error_text=b"empty topic"),
        BlipMQ(correlation_id=7) / BlipMQPublish(qos=1, topic=b"t", body=b"hi"),
        BlipMQ(correlation_id=51) / BlipMQPong(),
    ]
    stream = b"".join(map(bytes, replies))

    # Writes that end within messages.
    found, left = paired(BlipMQ, requests, [stream[:20], stream[20:55], stream[55:]])

    assert [(bytes(q), bytes(a)) for q, a in found] == [
        (bytes(q), bytes(a)) for q, a in zip(requests, replies, strict=True)
    ]
    assert left == []


def test_flymq_pairs_on_a_stream_socket_and_reads_replies() -> None:
    requests = [FlyMQ() / FlyMQListTopics(), FlyMQ() / FlyMQCreateTopic(topic=b"t", partitions=1)]
    replies = [FlyMQ() / FlyMQListTopicsReply(), FlyMQ() / FlyMQErrorCoded(code=1, message=b"no")]

    found, left = paired(FlyMQ, requests, [b"".join(map(bytes, replies))])

    assert [type(q.payload).__name__ for q, _ in found] == ["FlyMQListTopics", "FlyMQCreateTopic"]
    assert [bytes(a) for _, a in found] == [bytes(r) for r in replies]
    assert FlyMQListTopicsReply in found[0][1]
    assert left == []


def test_kokaq_pairs_on_a_stream_socket_by_its_opaques() -> None:
    requests = [PUSH, KokaqRequest(opaque=8, op_opaque=2, opcode=5) / KokaqSimple()]
    replies = [
        KokaqAnswer(opaque=8, op_opaque=2, opcode=5, status_reason=0x11, tag=2) / KokaqPayload(body=b"hello"),
        KokaqAnswer(opaque=7, op_opaque=1, opcode=7, status_reason=0x11) / KokaqSimple(),
    ]

    # The answers come in the other order.
    found, left = paired(Kokaq, requests, [b"".join(map(bytes, replies))])

    assert [(q.opaque, a.opaque, a.opcode) for q, a in found] == [(8, 8, 5), (7, 7, 7)]
    assert found[0][1][KokaqPayload].body == b"hello"
    assert left == []


def test_sr1_gives_the_answer() -> None:
    pong = bytes(BlipMQ(correlation_id=5) / BlipMQPong())

    with served(BlipMQ, len(bytes(ping(5))), [pong]) as client:
        answer = client.sr1(ping(5), timeout=TIMEOUT_S, verbose=0)

    assert bytes(answer) == pong


# Each request with the answer of its server, as the documents have them; go1's in the codec's layout.
ASKED: dict[str, tuple[type[Message], Packet, Packet]] = {
    "blipmq": (BlipMQ, ping(5), BlipMQ(correlation_id=5) / BlipMQPong()),
    "flymq": (FlyMQ, FlyMQ() / FlyMQListTopics(), FlyMQ() / FlyMQListTopicsReply(topics=["a"])),
    "fq": (FqCommand, FqCommand() / FqStatusRequest(), FqCommand() / FqStatus()),
    "kokaq": (Kokaq, PUSH, KokaqAnswer(opaque=7, op_opaque=1, opcode=7, status_reason=0x11) / KokaqSimple()),
    "kokaq go1": (
        Kokaq,
        KokaqLERequest(opaque=3, opcode="Pop") / KokaqLEPayload(namespace=42, queue=7),
        KokaqLEAnswer(opaque=3, opcode="Pop", status=1, reason=1)
        / KokaqLEPayload(namespace=42, queue=7, body=b"hello"),
    ),
    "kokaq lean": (
        Kokaq,
        KokaqLean(opaque=7, opcode="Pop") / KokaqLeanRequest(op_opaque=2),
        KokaqLean(opaque=7, opcode="Pop") / KokaqLeanAnswer(op_opaque=2, status=1, body=b"x:y"),
    ),
    "msgq": (MsgQ, MsgQ() / MsgQGetlname(), MsgQ() / MsgQLname(lname="a@b")),
    "msgq json": (MsgQ, MsgQ() / MsgQGetlname(form="json"), MsgQ() / MsgQLname(form="json", lname="a@b")),
}


@pytest.mark.parametrize("name", ASKED)
def test_every_protocol_is_asked_and_answers_on_a_stream_socket(name: str) -> None:
    """The answer comes in two writes that end in the middle of it."""
    cls, request, reply = ASKED[name]
    raw = bytes(reply)
    middle = len(raw) // 2

    with served(cls, len(bytes(request)), [raw[:middle], raw[middle:]]) as client:
        answer = client.sr1(request, timeout=TIMEOUT_S, verbose=0)

    assert bytes(answer) == raw
