"""The message that ``explain`` is asked for: found, or why not."""

import json

import pytest
from running import run

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_explain_finds_a_message_by_its_place_in_the_stream() -> None:
    one = json.loads(run("explain", "-q", "--json", QOS1, "--at", "12").stdout)
    place = ["--connection", str(one["connection_id"]), "--direction", "c2s", "--offset", str(one["stream_offset"] + 5)]

    assert json.loads(run("explain", "-q", "--json", QOS1, *place).stdout) == one


@pytest.mark.parametrize(("packet", "said"), [("1", "has no TCP payload"), ("99999", "there is no packet 99999")])
def test_explain_says_why_a_packet_has_no_message(packet: str, said: str) -> None:
    result = run("explain", "-q", QOS1, "--at", packet)

    assert result.exit_code == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    ("capture", "said"),
    [
        ("strangers/tls_9092", "is TLS: encrypted, so nothing of it can be read"),
        ("flymq/tls", "is TLS: encrypted, so nothing of it can be read"),
        ("strangers/kafka_9092", "is Kafka, not ours"),
        ("strangers/http_8765", "is HTTP/1, not ours"),
        ("strangers/grpc_9944", "is gRPC, not ours"),
    ],
)
def test_explain_says_what_a_packet_of_a_stranger_is_of(capture: str, said: str) -> None:
    explained = run("explain", f"pcaps/{capture}.pcap", "--at", "4")

    assert explained.exit_code == 1
    assert explained.stderr == f"mqpcap: pcaps/{capture}.pcap: packet 4 is of a connection that {said}\n"
