"""One published message, through its deliveries to their acknowledgements.

Packets and times are those of the captures: what `show -t u` prints, subtracted by hand.
"""

import struct
from pathlib import Path

import pytest
from torture import ACK, SYN, Segment, pcap

import mqpcap

HELLO, PUBLISH, SUBSCRIBE, ACKED, PING, PONG, POLL = 1, 3, 4, 5, 7, 8, 9
"""Frame types of BlipMQ (frame.rs)."""
QOS1 = "pcaps/blipmq/qos1.pcap"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def packets(capture: str, **name: object) -> list[tuple[object, list[tuple[object, ...]]]]:
    """By publish its packet, and of each delivery packet, latency in us, again, packet of the acknowledgement."""
    return [
        (
            trace.publish.message["first_packet"],
            [
                (
                    x.row.message["first_packet"],
                    x.latency_ns // 1000,
                    x.again,
                    x.acknowledgement and x.acknowledgement.message["first_packet"],
                )
                for x in trace.deliveries
            ],
        )
        for trace in mqpcap.trace(capture, **name)  # type: ignore[arg-type]  # of either name
    ]


@pytest.mark.parametrize("packet", [12, "#15", 16])
def test_publish_delivery_and_acknowledgement_name_the_same_message(packet: int | str) -> None:
    assert packets(QOS1, at=packet) == [(12, [(15, 110, 0, 16)])]
    assert mqpcap.trace(QOS1, at=packet)[0].deliveries[0].acknowledged_after_ns == 195_000


def test_redelivery_is_marked_and_only_the_acknowledged_delivery_has_an_acknowledgement() -> None:
    assert packets(QOS1, at=85) == [(85, [(88, 87, 0, None), (93, 650_726, 1, 94)])]


def test_refused_acknowledgement_is_none() -> None:
    """The server answers packet 121, which came after its time, with NACK 404."""
    assert packets(QOS1, at=116) == [(116, [(119, 87, 0, None), (125, 650_891, 1, 126)])]


def test_deliveries_to_other_connections_are_fan_out_not_redeliveries() -> None:
    (trace,) = mqpcap.trace("pcaps/fq/session.pcap", at=214)

    assert [x.again for x in trace.deliveries] == [0, 0]
    assert len({x.row.message["connection_id"] for x in trace.deliveries}) == 2


def test_commit_of_a_later_position_acknowledges_what_was_read_before_it() -> None:
    """FlyMQ: offset 0 of partition 0 is published in 17, read in 84, and position 1 is committed in 91."""
    (found,) = packets("pcaps/flymq/groups.pcap", at=17)

    assert found == (17, [(84, 6284, 0, 91)])


def test_id_names_messages_by_any_of_its_columns() -> None:
    assert packets("pcaps/fq/session.pcap", message="02" + 30 * "0")[0][0] == 216
    assert [publish for publish, _ in packets("pcaps/flymq/groups.pcap", message="0:0")] == [17]
    assert [publish for publish, _ in packets(QOS1, message="4")][:3] == [12, 40, 60]


def test_why_there_is_no_delivery() -> None:
    (kokaq,) = mqpcap.trace("pcaps/kokaq/lean_session.pcap", at=14)
    (refused,) = (x for x in mqpcap.trace(QOS1, at=210) if x.publish.message["first_packet"] == 210)

    assert (kokaq.deliveries, kokaq.note) == ((), "kokaq: nothing that a client receives says which publish it is of")
    assert (refused.deliveries, refused.note) == ((), "the publish was refused")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ({"at": 5}, "packet 5 has no TCP payload"),
        ({"at": 17}, "packet 17 has no message that is published, delivered or acknowledged"),
        ({"at": "other.pcap#17"}, "there is no file other.pcap"),
        ({"message": "nothing"}, "no message is published with the id nothing"),
    ],
)
def test_what_cannot_be_traced_is_said(name: dict[str, object], words: str) -> None:
    with pytest.raises(LookupError, match=words):
        packets(QOS1, **name)


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), kind, number) + payload


def subscribed(topic: bytes) -> bytes:
    return struct.pack(">H", len(topic)) + topic + b"\1"


def published(topic: bytes, body: bytes) -> bytes:
    return b"\1" + struct.pack(">H", len(topic)) + topic + body


def test_tags_of_two_subscriptions_on_one_connection_are_not_confused(tmp_path: Path) -> None:
    """Tags count from 1 in each subscription, so tag 1 is delivered twice; the first is acknowledged last."""
    u64 = struct.Struct(">Q").pack
    talk = [
        (frame(HELLO, 1, b"\0\1"), frame(ACKED, 1, u64(0))),
        (frame(SUBSCRIBE, 2, subscribed(b"a")), frame(ACKED, 2, u64(1))),
        (frame(SUBSCRIBE, 3, subscribed(b"b")), frame(ACKED, 3, u64(2))),
        (frame(PUBLISH, 4, published(b"a", b"first")), b""),
        (frame(PUBLISH, 5, published(b"b", b"second")), b""),
        (frame(POLL, 6, u64(1)), frame(PUBLISH, 1, published(b"a", b"first"))),
        (frame(POLL, 7, u64(2)), frame(PUBLISH, 1, published(b"b", b"second"))),
        (frame(ACKED, 1, u64(2)), b""),
        (frame(ACKED, 1, u64(1)), b""),
        (frame(PING, 8), frame(PONG, 8)),
    ]
    segments, client, server = [Segment(b"", 999, 0, SYN), Segment(b"", 499, 1000, SYN | ACK, True)], 1000, 500
    for request, reply in talk:
        segments.append(Segment(request, client, server))
        client += len(request)
        if reply:
            segments.append(Segment(reply, server, client, from_server=True))
            server += len(reply)
    path = tmp_path / "tags.pcap"
    path.write_bytes(pcap(segments, 5555))
    rows = {(row["op"], row["direction"], row["stream_offset"]): row for row in mqpcap.read(str(path)).to_pylist()}
    acks = [row["first_packet"] for (op, way, _), row in rows.items() if (op, way) == ("ACK", "c2s")]
    publishes = [row["first_packet"] for (op, way, _), row in rows.items() if (op, way) == ("PUBLISH", "c2s")]

    found = [packets(str(path), at=packet)[0][1][0][3] for packet in publishes]

    assert found == acks[::-1]
