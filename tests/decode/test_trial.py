"""A claim to a connection that began before the capture is withdrawn if it reads less than half of the bytes."""

import pytest
from torture import MAKERS, Segment, broken_laws, pcap, read_bytes

from mqpcap.decode.scanning import Scanners
from mqpcap.decode.trial import read_on_trial
from mqpcap.protocols import protocols

TEXT = b"no message of any protocol here; "
SUPPORTED = [name for name in MAKERS if name in protocols()]


def transfer(protocol: str, before: int, count: int, after: int) -> list[Segment]:
    """A client that sends messages within other bytes, captured from its middle on, in segments of 700 bytes."""
    messages = b"".join(MAKERS[protocol][1](k) for k in range(1, count + 1))
    stream = TEXT * before + messages + TEXT * after
    return [Segment(stream[k : k + 700], 1001 + k, 5001) for k in range(0, len(stream), 700)]


@pytest.mark.parametrize("protocol", SUPPORTED)
def test_few_messages_within_other_bytes_claim_nothing(protocol: str) -> None:
    """As a file with a capture in it, copied by another protocol."""
    result = read_bytes(pcap(transfer(protocol, 300, 4, 300), 31337))

    assert broken_laws(result) == []
    assert [c["protocol"] for c in result.connections] == [None]


@pytest.mark.parametrize("protocol", [name for name in SUPPORTED if name not in ("fq", "mqtt")])
def test_many_messages_after_the_tail_of_one_are_claimed(protocol: str) -> None:
    """However long the tail is. MQTT off its port needs messages of both sides."""
    result = read_bytes(pcap(transfer(protocol, 300, 40, 0), 31337))

    assert broken_laws(result) == []
    assert [c["protocol"] for c in result.connections] == [protocol]


def test_bytes_that_decode_and_other_bytes() -> None:
    """Two PRODUCE, one whose topic (its length is at byte 8) exceeds its message, and three bytes of the next."""
    maker, protocol = MAKERS["flymq"][1], protocols()["flymq"]
    broken = maker(3)[:8] + b"\xff\xff" + maker(3)[10:]
    data = maker(1) + maker(2) + broken + maker(4)[:3]

    trial = read_on_trial(data, protocol, "c2s", Scanners(), True, False)

    assert (trial.decoded_bytes, trial.other_bytes, trial.message_count) == (len(maker(1)) * 2, len(broken), 2)
