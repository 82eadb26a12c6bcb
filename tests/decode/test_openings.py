"""The table of first bytes dismisses connections without asking, and changes no row."""

from pathlib import Path
from random import Random

import pytest
from examples import multiplied, one_in
from foreign_traffic import PROTOCOLS, conversations, segments
from torture import MAKERS, pcap, read, read_bytes

from mqpcap.capture import windows
from mqpcap.decode import openings
from mqpcap.decode.detection import Detector
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import FirstBytes, Opening, Verdict

OWN_PORTS = [port for protocol in protocols().values() for port in protocol.ports]
FIRST_BYTES = [x.value for protocol in protocols().values() for x in protocol.openings]


def random_conversation(dice: Random) -> list[tuple[bool, bytes]]:
    """First bytes near those of a supported protocol, and an answer that may repeat some of them."""
    begin = bytearray(dice.choice(FIRST_BYTES))
    for _ in range(dice.randrange(3)):
        begin[dice.randrange(len(begin))] = dice.choice((0, 1, 4, 5, 6, 0x30, 0x7B, dice.randrange(256)))
    client = bytes(begin) + dice.randbytes(dice.choice((0, 1, 4, 9, 40)))
    server = (client[: dice.randrange(14)] if dice.random() < 0.3 else b"") + dice.randbytes(dice.choice((1, 12, 30)))
    said = [(True, client[:3]), (True, client[3:])] if dice.random() < 0.2 and len(client) > 3 else [(True, client)]
    said += [(False, server), (True, dice.randbytes(20)), (False, dice.randbytes(20))]
    return said if dice.random() < 0.9 else [(False, server), *said]


def own_conversation(name: str) -> list[tuple[bool, bytes]]:
    return [(True, MAKERS[name][1](k)) for k in range(1, 9)]


def rows(path: Path) -> tuple[object, ...]:
    result = read(path)
    return result.messages, result.connections, result.problems


@pytest.mark.parametrize(
    ("port", "packets"), [(31337, 7), *((port, 65_536) for port in one_in(2, [31337, *OWN_PORTS]))]
)
def test_rows_are_those_of_asking_every_protocol(
    port: int, packets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", packets)
    said = [random_conversation(Random(seed)) for seed in range(multiplied(40))]
    said += [conversations(name, seed, False) for name in PROTOCOLS for seed in range(2)]
    said += [own_conversation(name) for name in MAKERS if name in protocols()]
    connections = [segment for k, x in enumerate(said) for segment in segments(x[:6], 10_000 + k, False)]

    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(connections, port))

    by_table = rows(path)

    monkeypatch.setattr(openings, "_TO_ASK", (FirstBytes(b""),))
    assert by_table == rows(path)


FOREIGN = ["modbus", "bittorrent", "thrift", "dns", "redis", "postgresql", "stomp", "tls"]


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_first_bytes_ask_no_protocol(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a protocol was asked")

    monkeypatch.setattr(Detector, "detect_first", asked)

    result = read_bytes(pcap([*segments(conversations(name, 3, False), 40_000, False)], 31337))

    assert [c["protocol"] for c in result.connections] == [None]
    reason = "tls" if name == "tls" else "foreign"
    assert {(p["direction"], p["reason"], p["stream_offset"]) for p in result.problems} == {
        ("c2s", reason, 0), ("s2c", reason, 0),
    }  # fmt: skip


HELLO = bytes.fromhex("0000000b 01 0000000000000001 0001")


@pytest.mark.parametrize("name", [name for name, x in protocols().items() if x.first_claim is not None])
def test_a_first_packet_that_decides_is_claimed_whatever_follows(name: str) -> None:
    protocol, dice = protocols()[name], Random(name)
    assert protocol.first_claim is not None
    claimed = 0
    for k in range(multiplied(400)):
        data = bytearray(HELLO * 2 if name == "blipmq" else MAKERS[name][1](1 + k % 9))
        for _ in range(dice.randrange(3)):
            data[dice.randrange(min(len(data), 24))] = dice.choice((0, 1, 2, 4, 0x20, dice.randrange(256)))
        client = bytes(data[: dice.choice((len(data), len(data), dice.randrange(len(data))))])
        answers = b"", dice.randbytes(30), client[: dice.randrange(30)]

        claim = protocol.first_claim(client)

        claimed += claim is not None
        for answer in answers if claim is not None else ():
            asked = Opening(client, answer, True, True, False, False, True, False, lambda *_: None)
            assert claim is not None and claim.verdict is Verdict.YES and protocol.claims(asked) == claim
    assert claimed
