"""Messages as people read them: summaries, notebooks, names."""

import html
import subprocess
import sys
from pathlib import Path

import pytest
from running import environment
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.plist import PacketList
from scapy.sendrecv import sniff

from mqpcap.protocols.blipmq import BlipMQ, BlipMQNack, BlipMQPing, BlipMQPoll, BlipMQPublish
from mqpcap.protocols.flymq import FlyMQ, FlyMQFetchReply, FlyMQListTopics, FlyMQProduce, FlyMQRecord
from mqpcap.protocols.fq import FqCommand, FqMessage, FqStatusRequest
from mqpcap.protocols.kokaq import Kokaq, KokaqAnswer, KokaqLEPayload, KokaqLERequest, KokaqPayload, KokaqRequest
from mqpcap.protocols.msgq import MsgQ, MsgQGetlname, MsgQLname, MsgQSend
from mqpcap.scapy import message_classes
from mqpcap.scapy.session import MqSession

ROOT = Path(__file__).resolve().parents[2]
PUBLISH = BlipMQ(correlation_id=4) / BlipMQPublish(topic="q1", body=b"first")

SUMMARIES: dict[str, tuple[Packet, str]] = {
    "publish": (PUBLISH, "BlipMQ PUBLISH q1 id=4 5 B"),
    "nothing but an id": (BlipMQ(correlation_id=9) / BlipMQPing(), "BlipMQ PING id=9"),
    "error": (
        BlipMQ(correlation_id=9) / BlipMQNack(error_code=400, error_text="empty topic"),
        "BlipMQ NACK id=9 error 400 'empty topic'",
    ),
    "flymq": (FlyMQ() / FlyMQProduce(topic="orders", value=b"abc"), "FlyMQ PRODUCE orders partition=-1 3 B"),
    "fq command": (FqCommand() / FqStatusRequest(), "fq status_request"),
    "fq message": (
        FqMessage(exchange="e", message_id=bytes(15) + b"\1", body=b"x"),
        f"fq message e message={'0' * 31}1 1 B",
    ),
    "kokaq": (
        KokaqRequest(opcode="Push", opaque=3) / KokaqPayload(namespace="ns", queue="q", body=b"x"),
        "kokaq Push ns/q id=3:0 1 B",
    ),
    "kokaq go1": (
        KokaqLERequest(opcode="Push") / KokaqLEPayload(namespace=42, queue=7, body=b"hello"),
        "kokaq Push 42/7 id=0:0 5 B",
    ),
    "msgq": (MsgQ() / MsgQSend(group="g", from_="a", seq=3), "BIND 10 msgq send g client=a id=3"),
    "msgq reply": (MsgQ() / MsgQLname(lname="x"), "BIND 10 msgq lname"),
    "two": (PUBLISH / BlipMQ() / BlipMQPing(), "BlipMQ PUBLISH q1 id=4 5 B / BlipMQ PING id=0"),
    "two, of which only the second has a topic": (
        FlyMQ() / FlyMQListTopics() / FlyMQ() / FlyMQProduce(topic="t", value="x"),
        "FlyMQ LIST_TOPICS / FlyMQ PRODUCE t partition=-1 1 B",
    ),
    "flaw": (BlipMQ(b"\0\0\0\x09\x03" + bytes(8)), "BlipMQ PUBLISH id=0 / Raw"),
    "a name with a space": (BlipMQ() / BlipMQPublish(topic="a b"), "BlipMQ PUBLISH 'a b' id=0 0 B"),
    "a number without a name": (BlipMQ(frame_type=77), "BlipMQ operation 77 id=0"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_message_says_what_it_is(name: str) -> None:
    message, wanted = SUMMARIES[name]

    assert message.summary() == wanted
    assert wanted.startswith(message.mysummary())


def test_a_part_of_a_message_is_called_by_its_class() -> None:
    assert BlipMQPublish(topic="a").summary() == "BlipMQPublish"


def test_in_a_packet_the_layers_below_show_the_endpoints() -> None:
    packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=40000) / PUBLISH

    assert packet.summary() == "Ether / IP / TCP 10.0.0.1:40000 > 10.0.0.2:5555 S / BlipMQ PUBLISH q1 id=4 5 B"


def test_a_message_of_a_session_shows_endpoints_and_table_values() -> None:
    found = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, quiet=True)

    # README.md, Commands: the lines of `mqpcap show`.
    assert [packet.summary() for packet in found[:2]] == [
        "127.0.0.1:39290 > 127.0.0.1:5555 BlipMQ HELLO id=1",
        "127.0.0.1:5555 > 127.0.0.1:39290 BlipMQ ACK id=1 ok",
    ]
    assert found[6].mysummary() == "BlipMQ PUBLISH q1 id=4 5 B"


@pytest.mark.parametrize(
    ("name", "field", "value", "line"),
    [
        ("blipmq/qos1", "topic", b"orders", "BlipMQ PUBLISH orders id=4 5 B"),
        ("blipmq/qos1", "body", b"longer than 5", "BlipMQ PUBLISH q1 id=4 13 B"),
    ],
)
def test_an_edited_message_shows_its_new_fields(name: str, field: str, value: bytes, line: str) -> None:
    message = sniff(offline=str(ROOT / f"pcaps/{name}.pcap"), session=MqSession, quiet=True)[6]

    message.payload.setfieldval(field, value)

    assert message.mysummary() == line
    assert message.summary() == f"{message.mq.src_ip}:{message.mq.src_port} > 127.0.0.1:5555 {line}"


def test_an_edited_operation_is_shown() -> None:
    message = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, quiet=True)[0]

    message.frame_type = "PING"

    assert message.mysummary().startswith("BlipMQ PING")


# -- ends ----------------------------------------------------------------------------------------------


def test_messages_of_a_session_have_their_ends() -> None:
    found = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, quiet=True)
    one = found[0]

    assert (one[IP].src, one[IP].dst, one[TCP].sport, one[TCP].dport) == ("127.0.0.1", "127.0.0.1", 39290, 5555)
    assert TCP in one and "IP" in one and Raw not in one
    assert one.sprintf("%IP.src%:%r,TCP.sport% %BlipMQ.frame_type%") == "127.0.0.1:39290 HELLO (1)"
    assert bytes(one) == one.original  # they are not of its bytes
    with pytest.raises(IndexError):
        one[BlipMQPoll]


def test_sessions_of_a_list_are_its_connections() -> None:
    found = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, quiet=True)
    ends = {(p.mq.src_ip, p.mq.src_port, p.mq.dst_ip, p.mq.dst_port) for p in found}

    assert set(found.sessions()) == {f"TCP {a}:{b} > {c}:{d}" for a, b, c, d in ends}
    assert sum(map(len, found.sessions().values())) == len(found)


def test_a_message_that_was_built_has_no_ends() -> None:
    assert TCP not in PUBLISH
    assert list(PacketList([PUBLISH]).sessions()) == ["Other"]


PORTS = {
    "request": (BlipMQ() / BlipMQPing(), "dport", 5555),
    "fq message": (FqMessage(), "dport", 8765),
    "kokaq": (KokaqRequest(), "dport", 9944),
    "answer": (KokaqAnswer(), "sport", 9944),
    "any kokaq": (Kokaq(), "dport", 9944),
    "msgq": (MsgQ() / MsgQGetlname(), "dport", 9912),
}


@pytest.mark.parametrize("name", PORTS)
def test_a_message_on_tcp_has_its_port(name: str) -> None:
    message, field, port = PORTS[name]

    assert (TCP() / message).getfieldval(field) == port
    assert (TCP(dport=1, sport=2) / message).getfieldval(field) in (1, 2)


# -- notebooks and lists -------------------------------------------------------------------------------


def test_a_message_is_a_table_in_a_notebook() -> None:
    message = FlyMQ() / FlyMQFetchReply(records=[FlyMQRecord(key="<k>", value=b"v"), FlyMQRecord()])

    shown = message._repr_html_()

    assert shown.startswith("<table><caption>FlyMQ FETCH")
    assert "records[1]" in shown and html.escape("b'<k>'") in shown
    assert "<k>" not in shown


def test_a_list_of_messages_is_a_table_in_a_notebook() -> None:
    found = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, quiet=True)
    answered, _ = found.sr()

    assert found._repr_html_().count("<tr>") == 101  # a hundred, and how many more
    assert f"and {len(found) - 100} more" in found._repr_html_()
    assert answered._repr_html_().count("127.0.0.1:39290 BlipMQ ACK id=1 ok") == 1
    assert PacketList([IP()])._repr_html_() is None


def test_tables_in_a_notebook_have_its_colours() -> None:
    """What sets no colour of its own is read in light and in dark."""
    messages = sniff(offline=str(ROOT / "pcaps/blipmq/qos1.pcap"), session=MqSession, count=3, quiet=True)

    for shown in (messages[0]._repr_html_(), messages._repr_html_()):
        assert "color" not in shown and "background" not in shown and 'style="text-align:left"' in shown


def test_lists_inside_a_message_are_laid_out() -> None:
    shown = FlyMQFetchReply(records=[FlyMQRecord(key="a"), FlyMQRecord(key="b")]).show(dump=True)

    assert shown.count("###[ FlyMQ record ]###") == 2


def test_numbers_of_kokaq_have_names() -> None:
    """The document's and the codec's, where only a connection shows whose they are; go1 is the codec's."""
    request = KokaqRequest(opcode="AcquirePeekLock", client="HealthService", rq="OneWay", message_type="Control")

    assert (request.opcode, request.client, request.rq, request.message_type) == (8, 4, 3, 3)
    assert (KokaqLERequest(opcode="Push").opcode, KokaqRequest(opcode="Push").opcode) == (6, 7)
    assert "opcode    = Push or AcquirePeekLock (7)" in KokaqRequest(opcode=7).show(dump=True)
    assert "opcode    = AcquirePeekLock (7)" in KokaqLERequest(opcode=7).show(dump=True)
    answer = KokaqAnswer(status="Fail", reason="NotAllowed")
    assert (answer.status, answer.reason, bytes(answer)[9]) == (1, 4, 0x14)


def test_explore_lists_every_class() -> None:
    code = (
        "from scapy.all import explore, ls; from mqpcap.scapy import *; explore('mqpcap'); ls('BlipMQ');"
        "ls(BlipMQ, verbose=True)"
    )
    said = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)

    assert "BlipMQPublish" in said.stdout and "PUBLISH: 3" in said.stdout
    assert said.stderr == ""
    for name in message_classes():
        assert f"{name} " in said.stdout or f"{name}|" in said.stdout
