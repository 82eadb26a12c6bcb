"""Twenty-six protocols that are not ours: nobody takes them, but for the port alone and on that port."""

from pathlib import Path

import pytest
from examples import multiplied
from foreign_traffic import PROTOCOLS, conversations, counted_rpc, segments
from torture import MAKERS, Segment, broken_laws, pcap, read, read_bytes

from mqpcap.capture import windows
from mqpcap.protocols import protocols

SEEDS = multiplied(2)
OWN_PORTS = {port: name for name, protocol in protocols().items() for port in protocol.ports}
OTHER_PORT = 31337
PORTS = {False: [*OWN_PORTS][::2], True: [*[*OWN_PORTS][1::2], OTHER_PORT]}
"""The server's ports, by whether a connection begins before the capture."""


@pytest.mark.parametrize("late", [False, True], ids=["whole", "late"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_foreign_protocols_are_claimed_by_their_port_only(name: str, late: bool) -> None:
    """On ports of ours and of nobody's, from the SYN on and from a random segment on."""
    for port in PORTS[late]:
        connections = [
            segment
            for seed in range(SEEDS)
            for segment in segments(conversations(name, seed, late), 40000 + seed, late)
        ]

        result = read_bytes(pcap(connections, port))

        assert broken_laws(result) == []
        taken = [(c["protocol"], c["identified_by"]) for c in result.connections if c["protocol"]]
        assert set(taken) <= {(OWN_PORTS.get(port), "port")}


@pytest.mark.parametrize("name", ["bittorrent", "thrift", "numbers", "telemetry"])
def test_many_late_foreign_conversations_are_unclaimed(name: str) -> None:
    """What used to be BlipMQ most often."""
    connections = [
        segment
        for seed in range(multiplied(50))
        for segment in segments(conversations(name, seed, True), 20000 + seed, True)
    ]

    result = read_bytes(pcap(connections, 31337))

    assert [c["protocol"] for c in result.connections if c["protocol"]] == []


@pytest.mark.parametrize("size", [70, 1400])
@pytest.mark.parametrize("protocol", ["blipmq", "flymq", "kokaq", "msgq"])
def test_late_starts_of_supported_protocols_are_taken(
    protocol: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured from each of ten segments on, nearly all inside a message; in windows of one packet, too."""
    stream = b"".join(MAKERS[protocol][1](i) for i in range(1, size))
    late = [
        Segment(stream[start : start + size], 1001 + start, 5001, client_port=2000 + first)
        for first in range(1, 11)
        for start in range(first * size, min(len(stream), (first + 12) * size), size)
    ]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(late, 31337))

    result = read(path)

    assert broken_laws(result) == []
    assert {c["protocol"] for c in result.connections} == {protocol}
    assert all(m["flaw"] in (None, "truncated") for m in result.messages)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    again = read(path)
    assert (again.messages, again.connections, again.problems) == (result.messages, result.connections, result.problems)


def test_an_rpc_with_the_header_of_blipmq_is_not_taken_on_its_port() -> None:
    """u32 length, u8 kind 1 to 5, u64 id: as BlipMQ, but what follows is not."""
    result = read_bytes(pcap([x for seed in range(60) for x in segments(counted_rpc(seed), 40000 + seed, False)], 5555))

    assert [c["protocol"] for c in result.connections if c["protocol"]] == []
