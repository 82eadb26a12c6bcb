"""What Scapy users do with any layer: lists of names, edits, other ports, lists of packets; secrets are masked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.config import conf
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, Raw, bind_layers, split_layers
from scapy.plist import PacketList
from scapy.sendrecv import sniff
from scapy.utils import rdpcap, wrpcap

import mqpcap.scapy
from mqpcap.protocols.blipmq import BlipMQ, BlipMQAuth, BlipMQPublish
from mqpcap.protocols.flymq import FlyMQ, FlyMQAuth, FlyMQProduce, FlyMQProduceReply
from mqpcap.protocols.fq import FqAuth, FqCommand, FqConnect, FqHeartbeatRequest
from mqpcap.protocols.msgq import MsgQSend
from mqpcap.scapy import MqDispatch, display
from mqpcap.scapy.field_names import similar_names
from mqpcap.scapy.session import MqSession
from mqpcap.schema.message import Message

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"


def session(name: str) -> PacketList:
    return sniff(offline=str(PCAPS / name), session=MqSession, quiet=True)


# -- lists of names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["PING", "PONG"], ["PING", 8], [7, 8]])
def test_a_list_of_names_is_a_packet_each(names: list[Any]) -> None:
    built, changed = BlipMQ(frame_type=names), BlipMQ()
    changed.frame_type = names

    for packets in (built, changed, TCP() / built):
        assert [packet[BlipMQ].frame_type for packet in packets] == [7, 8]
        assert [bytes(packet[BlipMQ])[4] for packet in packets] == [7, 8]


def test_a_wrong_name_in_a_list_is_reported() -> None:
    with pytest.raises(ValueError, match="'PINK' is no frame_type"):
        BlipMQ(frame_type=["PING", "PINK"])


# -- secrets -------------------------------------------------------------------------------------------

SECRETS: dict[str, Packet] = {
    "flymq": FlyMQ() / FlyMQAuth(username="me", password="sesame-sesame"),
    "blipmq": BlipMQ() / BlipMQAuth(api_key="sesame-sesame"),
    "fq": FqAuth(user="me", password="sesame-sesame"),
}


def shown(packet: Packet) -> str:
    """All that prints a packet."""
    return "".join(
        [repr(packet), packet.show(dump=True), packet.show2(dump=True), packet._repr_html_(), str(packet.summary())]
    )


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_masked_and_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packet = SECRETS[name]

    assert "sesame" not in shown(packet) + repr(IP() / TCP() / packet) + (IP() / TCP() / packet).show(dump=True)
    assert "***" in repr(packet)
    assert b"sesame-sesame" in bytes(packet)
    assert "sesame" in packet.command()
    monkeypatch.setattr(mqpcap.scapy, "show_secrets", True)
    assert "sesame-sesame" in repr(packet)
    assert "sesame-sesame" in packet.show(dump=True)
    assert "sesame-sesame" in packet._repr_html_()


@pytest.mark.parametrize("name", ["flymq", "blipmq"])
def test_secrets_of_a_message_that_is_not_whole_are_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packet = type(SECRETS[name])(bytes(SECRETS[name])[:-2])

    assert Raw in packet
    assert "sesame" not in shown(packet)
    assert b"sesame" in bytes(packet)
    assert b"sesame" in packet[Raw].load
    monkeypatch.setattr(mqpcap.scapy, "show_secrets", True)
    assert "sesame" in repr(packet)


def test_what_cannot_be_secret_is_shown() -> None:
    packet = BlipMQ(bytes(BlipMQ() / BlipMQPublish(topic="t", body=b"hello"))[:-1])

    assert "hell" in repr(BlipMQ() / BlipMQPublish(topic="t", body=b"hello"))
    assert Raw in packet
    assert "hell" in repr(packet)


def test_an_empty_password_is_shown_as_empty() -> None:
    assert "***" not in repr(FlyMQ() / FlyMQAuth(username="me", password=""))


# -- sprintf -------------------------------------------------------------------------------------------


def test_a_format_finds_the_newer_form_of_a_class() -> None:
    publishes = [m for m in session("blipmq/qos1.pcap") if BlipMQPublish in m]
    read = TCP(bytes(TCP(sport=1) / BlipMQ() / BlipMQPublish(topic="orders")))

    assert publishes
    assert all(m.sprintf("%BlipMQPublish.topic%") == repr(m[BlipMQPublish].topic) for m in publishes)
    assert read.sprintf("%BlipMQPublish.topic% {BlipMQPublish:yes}{!BlipMQPublish:no}") == "b'orders' yes"


# -- edits ---------------------------------------------------------------------------------------------

FORMS = ["flat_session", "flat_typed", "split_session", "json_session"]


def sends(name: str) -> list[Message]:
    found = [m for m in session(f"msgq/{name}.pcap") if m.mq.op == "send" and m.mq.flaw is None]
    assert found
    return found


@pytest.mark.parametrize("name", FORMS)
def test_edited_words_of_msgq_are_sent(name: str) -> None:
    message = sends(name)[0].copy()
    body = message.payload
    before = body.parts()

    body.group, body.to = "Elsewhere", "you@host"
    del message.length

    again = type(message)(bytes(message))
    assert (again.payload.group, again.payload.to) == ("Elsewhere", "you@host")
    assert {**before[0], "group": "Elsewhere", "to": "you@host"} == again.payload.parts()[0]
    assert again.payload.parts()[1] == before[1]
    body.group = None
    del message.length
    assert type(message)(bytes(message)).payload.group is None


def test_what_words_do_not_say_is_refused() -> None:
    message = sends("split_session")[0].copy()

    with pytest.raises(ValueError, match="set the field body"):
        message.payload.msg = {"a": 1}


def test_an_edited_message_is_written_as_it_is_now(tmp_path: Path) -> None:
    first, second = [m for m in session("blipmq/qos1.pcap") if BlipMQPublish in m][:2]
    edited = first.copy()
    edited[BlipMQPublish].topic = "edited"
    del edited.length, edited[BlipMQPublish].topic_len

    wrpcap(str(tmp_path / "a.pcap"), [edited, second])

    packets = rdpcap(str(tmp_path / "a.pcap"))
    assert [packet[BlipMQPublish].topic for packet in packets] == [b"edited", second[BlipMQPublish].topic]
    assert packets[0].time == first.time
    assert (packets[0][TCP].sport, packets[0][TCP].dport) == (first.mq.src_port, first.mq.dst_port)
    fresh = IP(bytes(packets[0][IP]))
    del fresh[IP].chksum, fresh[TCP].chksum
    assert bytes(fresh) == bytes(packets[0][IP])


# -- ports ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_what_only_a_server_sends_comes_from_its_port(inside: bool) -> None:
    reply = TCP() / (FlyMQ() / FlyMQProduceReply()) if inside else TCP() / FlyMQ() / FlyMQProduceReply()
    request = TCP() / (FlyMQ() / FlyMQProduce()) if inside else TCP() / FlyMQ() / FlyMQProduce()

    for packet in (reply, reply.copy(), (IP() / reply)[TCP]):
        assert (packet.sport, packet.dport) == (9092, 80)
    assert (request.sport, request.dport) == (20, 9092)


@pytest.fixture(params=["FlyMQ", "MqDispatch"])
def other_port(request: pytest.FixtureRequest) -> Iterator[int]:
    cls = FlyMQ if request.param == "FlyMQ" else MqDispatch
    bind_layers(TCP, cls, dport=7777)
    bind_layers(TCP, cls, sport=7777)
    yield 7777
    split_layers(TCP, cls, dport=7777)
    split_layers(TCP, cls, sport=7777)


def test_other_ports_keep_the_direction(other_port: int) -> None:
    """As in the tables, which have it from the connection."""
    messages = [m for m in session("flymq/groups.pcap") if m.mq.op == "GET_OFFSET"]
    assert {m.mq.direction for m in messages} == {"c2s", "s2c"}

    for message in messages:
        ports = (
            {"dport": other_port, "sport": 1} if message.mq.direction == "c2s" else {"sport": other_port, "dport": 1}
        )
        read = TCP(bytes(TCP(**ports) / Raw(message.original)))
        assert type(read[FlyMQ].payload) is type(message.payload)


def test_a_servers_socket_reads_on_after_fqs_connect() -> None:
    asked = FqCommand() / FqAuth(user="me", password="secret"), FqCommand() / FqHeartbeatRequest()
    data = b"".join(map(bytes, (FqConnect(), *asked)))
    state: dict[str, Any] = {"direction": "c2s"}
    found = []
    while data:
        message = FqConnect.tcp_reassemble(data, {}, state)
        assert message is not None
        padding = message.getlayer(conf.padding_layer)
        rest = padding.load if padding is not None else b""
        found.append(data[: len(data) - len(rest)])
        data = rest

    assert found == [bytes(FqConnect()), *map(bytes, asked)]


# -- pairs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blipmq/qos1", "flymq/pipelining", "fq/session", "kokaq/go1_session"])
def test_pairs_of_a_session_are_those_that_scapy_finds(name: str) -> None:
    messages = session(f"{name}.pcap")

    pairs, others = messages.sr()
    wanted, wanted_others = display._sr(messages)

    assert [(x.query.mq.key, x.answer.mq.key) for x in pairs] == [(x.query.mq.key, x.answer.mq.key) for x in wanted]
    assert [x.mq.key for x in others] == [x.mq.key for x in wanted_others]


def test_pairs_of_a_session_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = session("flymq/pipelining.pcap")
    asked = []
    monkeypatch.setattr(Message, "answers", lambda self, other: asked.append(1))

    pairs, _ = messages.sr()

    assert len(pairs) > 100
    assert not asked


def test_words_of_a_sent_message_are_still_its_fields() -> None:
    message = MsgQSend(group="g")
    message.group = "h"

    assert message.group == "h"


# -- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["PING", "ping", "Ping"])
def test_names_of_numbers_are_taken_in_any_case(word: str) -> None:
    assert BlipMQ(frame_type=word).frame_type == 7


@pytest.mark.parametrize(("word", "number"), [("BINARY", 1), ("compressed", 2), ("binary+compressed", 3)])
def test_flags_are_given_by_name(word: str, number: int) -> None:
    assert bytes(FlyMQ(flags=word))[3] == number  # spec/flymq.md: byte 3, 0x01 binary, 0x02 compressed


def test_a_name_that_is_no_field_suggests_the_right_one() -> None:
    reply = BlipMQ() / BlipMQPublish()

    for ask in (
        lambda: BlipMQPublish(topik=b"x"), lambda: reply.topik, lambda: setattr(reply, "topik", b"x"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=r"has no field 'topik'; did you mean topic\?"):
            ask()
    assert similar_names("code", ["length", "error_code"]) == ["error_code"]
    assert not hasattr(reply, "topik")


def test_a_session_takes_the_options_of_open() -> None:
    packets = rdpcap(str(PCAPS / "blipmq/qos1.pcap"))
    for packet in packets:
        for name in ("sport", "dport"):
            if getattr(packet[TCP], name) == 5555:
                setattr(packet[TCP], name, 6666)
        del packet[TCP].chksum

    messages = sniff(offline=packets, session=MqSession(decode_as={6666: "blipmq"}, bodies="none"), quiet=True)

    assert {m.mq.protocol for m in messages} == {"blipmq"}
    with pytest.raises(ValueError, match="'nope' is no protocol"):
        MqSession(decode_as={6666: "nope"})


def test_the_headers_below_a_message_are_those_of_its_first_packet() -> None:
    packets = rdpcap(str(PCAPS / "flymq/core.pcap"))

    for message in session("flymq/core.pcap"):
        first = packets[message.mq.first_packet - 1]
        assert (message[IP].ttl, message[IP].id) == (first[IP].ttl, first[IP].id)
        assert (message[TCP].seq, message[TCP].ack, message[TCP].options) == (
            first[TCP].seq, first[TCP].ack, first[TCP].options,
        )  # fmt: skip
        assert not message[TCP].payload
