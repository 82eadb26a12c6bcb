"""MQTT as it happens: mosquitto as the broker, paho as its clients, and what they saw beside what is shown."""

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_broker import until_listening
from running import COMMAND, ROOT, environment
from scapy.sendrecv import AsyncSniffer
from scapy.supersocket import StreamSocket

from mqpcap.scapy import (
    MqSession,
    Mqtt,
    MqttConnack,
    MqttConnect,
    MqttPingreq,
    MqttPublish,
    MqttSubscribe,
    MqttSubscription,
)

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is in the test extra")
MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
PATIENCE_S = 300
PER_BATCH = 100
"""Messages between two looks: they fit the kernel's buffer, however slow the reader is."""


def may_listen() -> str | None:
    """Why this cannot be tried here, None if it can."""
    if MOSQUITTO is None:
        return "mosquitto is not installed"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
        import scapy.libs.winpcapy  # noqa: F401 - libpcap itself
    except (OSError, AttributeError) as error:
        return f"interfaces cannot be listened to here: {error}"
    return None


needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
listens = pytest.mark.skipif(may_listen() is not None, reason=may_listen() or "")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [x.getsockname()[1] for x in sockets]
    for x in sockets:
        x.close()
    return ports


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[dict[str, int]]:
    """The ports of a mosquitto: of TCP, and of WebSocket."""
    ports = dict(zip(("tcp", "websockets"), free_ports(2), strict=True))
    lines = ["allow_anonymous true", "max_queued_messages 0", "persistence false", "user root"]
    lines += [
        line
        for transport, port in ports.items()
        for line in (f"listener {port} 127.0.0.1", "protocol " + transport.replace("tcp", "mqtt"))
    ]
    (tmp_path / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    assert MOSQUITTO is not None
    process = subprocess.Popen([MOSQUITTO, "-c", tmp_path / "mosquitto.conf"], stderr=subprocess.DEVNULL)
    try:
        for port in ports.values():
            until_open(process, port)
        yield ports
    finally:
        process.kill()
        process.wait()


def until_open(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("mosquitto did not start")


class Client:
    """A client of paho, with what it was told: ids that were acknowledged, and messages."""

    def __init__(self, name: str, port: int, transport: str = "tcp") -> None:
        self.acknowledged, self.messages = list[int](), list[tuple[str, int, int, bytes]]()
        self.changed = threading.Condition()
        self.own = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5, transport=transport)
        self.own.on_connect = self.own.on_subscribe = lambda *_: self.note(self.steps, 1)
        self.own.on_publish = lambda _, __, mid, *___: self.note(self.acknowledged, mid)
        self.own.on_message = lambda _, __, m: self.note(self.messages, (m.topic, m.qos, m.mid, m.payload))
        self.steps = list[int]()
        self.own.connect("127.0.0.1", port, keepalive=3600)
        self.own.loop_start()
        self.wait(self.steps, 1)

    def note(self, where: list[Any], what: Any) -> None:
        with self.changed:
            where.append(what)
            self.changed.notify_all()

    def wait(self, where: list[Any], count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(where) >= count, PATIENCE_S)

    def end(self) -> None:
        self.own.disconnect()
        self.own.loop_stop()


def talk(port: int, counts: dict[int, int], transport: str = "tcp") -> Iterator[tuple[Client, Client, int]]:
    """A publisher and a subscriber: after each batch both, and how many packets were on the wire since the last."""
    subscriber = Client("sub", port, transport)
    subscriber.own.subscribe("live/#", 2)
    subscriber.wait(subscriber.steps, 2)
    publisher = Client("pub", port, transport)
    packets, sent = 6, 0  # CONNECT, CONNACK of both, SUBSCRIBE, SUBACK
    for qos, count in counts.items():
        for start in range(0, count, PER_BATCH):
            size = min(PER_BATCH, count - start)
            for i in range(start, start + size):
                publisher.own.publish(f"live/{qos}", f"{i}".encode(), qos)
            sent += size
            publisher.wait(publisher.acknowledged, sent)
            subscriber.wait(subscriber.messages, sent)
            yield publisher, subscriber, packets + size * (2, 4, 8)[qos]
            packets = 0
    publisher.end()
    subscriber.end()


def shown(port: int, counts: dict[int, int], transport: str = "tcp") -> tuple[list[dict[str, Any]], Client, Client]:
    """The rows that ``show -i lo`` writes of a talk, and what both clients saw."""
    show = subprocess.Popen(
        [*COMMAND, "show", "-u", "--json", "-i", "lo", "-f", f"tcp port {port}"], cwd=ROOT, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    guard = threading.Timer(PATIENCE_S, show.kill)
    guard.start()
    rows: list[dict[str, Any]] = []
    try:
        until_listening(show.pid)
        assert show.stdout is not None
        for clients in talk(port, counts, transport):
            publisher, subscriber, packets = clients
            rows += [json.loads(show.stdout.readline()) for _ in range(packets)]
        show.send_signal(signal.SIGINT)
        rest, _ = show.communicate(timeout=PATIENCE_S)
        rows += [json.loads(line) for line in rest.splitlines()]
    finally:
        guard.cancel()
        show.kill()
        show.communicate()
    return rows, publisher, subscriber


def answered(rows: list[dict[str, Any]], client: str, direction: str, *ops: str) -> Counter[int]:
    """The ids of replies that have their request."""
    of_client = [x for x in rows if x.get("client_name") == client and x["direction"] == direction and x["op"] in ops]
    assert {x["exchange"]["state"] for x in of_client} <= {"answered"}
    return Counter(int(x["correlation_id"]) for x in of_client)


def check(rows: list[dict[str, Any]], publisher: Client, subscriber: Client) -> None:
    """Exchanges and messages are those that paho saw."""
    assert not [x for x in rows if "flaw" in x]
    of_qos_0 = sum(qos == 0 for _, qos, _, _ in subscriber.messages)
    assert answered(rows, "pub", "s2c", "PUBACK", "PUBCOMP") == Counter(publisher.acknowledged[of_qos_0:])
    acknowledged = answered(rows, "sub", "c2s", "PUBACK", "PUBREC")
    assert acknowledged == Counter(mid for _, qos, mid, _ in subscriber.messages if qos)
    delivered = [x for x in rows if x["op"] == "PUBLISH" and x["direction"] == "s2c"]
    found = [
        (x["destination"], x["fields"]["qos"], x["fields"].get("packet_id", 0), x["body"].encode()) for x in delivered
    ]
    assert sorted(found) == sorted(subscriber.messages)


@listens
def test_a_thousand_messages_of_each_quality_are_those_that_paho_saw(broker: dict[str, int]) -> None:
    rows, publisher, subscriber = shown(broker["tcp"], {0: 1000, 1: 1000, 2: 1000})

    assert len(subscriber.messages) == 3000
    assert Counter(x["op"] for x in rows if x["op"].startswith("PUB")) == {
        "PUBLISH": 6000, "PUBACK": 2000, "PUBREC": 2000, "PUBREL": 2000, "PUBCOMP": 2000
    }  # fmt: skip
    check(rows, publisher, subscriber)


@listens
def test_messages_in_websocket_are_those_that_paho_saw(broker: dict[str, int]) -> None:
    rows, publisher, subscriber = shown(broker["websockets"], {0: 50, 1: 50, 2: 50}, "websockets")

    assert len(subscriber.messages) == 150
    check(rows, publisher, subscriber)


@listens
def test_a_session_of_scapy_has_the_messages_that_paho_saw(broker: dict[str, int]) -> None:
    listening, changed, delivered = threading.Event(), threading.Condition(), list[bytes]()

    def note(message: Any) -> None:
        if (message.mq.op, message.mq.direction) == ("PUBLISH", "s2c"):
            with changed:
                delivered.append(bytes(message.payload.body))
                changed.notify_all()

    sniffer = AsyncSniffer(
        iface="lo", filter=f"tcp port {broker['tcp']}", session=MqSession(), store=False, quiet=True, prn=note,
        started_callback=listening.set,
    )  # fmt: skip
    sniffer.start()
    assert listening.wait(PATIENCE_S)
    *_, (_, subscriber, _) = talk(broker["tcp"], {0: 20, 1: 20, 2: 20})
    with changed:
        assert changed.wait_for(lambda: len(delivered) >= 60, PATIENCE_S)
    sniffer.stop()

    assert sorted(delivered) == sorted(x[3] for x in subscriber.messages)


@needs_mosquitto
def test_sr1_asks_the_broker(broker: dict[str, int]) -> None:
    client = StreamSocket(socket.create_connection(("127.0.0.1", broker["tcp"])), Mqtt)
    options = {"timeout": 60, "verbose": False}
    try:
        accepted = client.sr1(Mqtt() / MqttConnect(client_id="scapy"), **options)
        subscribed = client.sr1(
            Mqtt() / MqttSubscribe(packet_id=7, subscriptions=[MqttSubscription(filter="a/#", options=1)]), **options
        )
        taken = client.sr1(Mqtt(first_byte=0x32) / MqttPublish(topic="b", packet_id=8, body=b"hello"), **options)
        alive = client.sr1(Mqtt() / MqttPingreq(), **options)
    finally:
        client.close()

    assert accepted[MqttConnack].reason_code == 0
    assert (subscribed.payload.packet_id, subscribed.payload.reason_codes) == (7, [1])
    assert (taken.packet_type, taken.payload.packet_id) == (4, 8)
    assert alive.packet_type == 13
