"""Who is the client: messages that only a client sends outweigh a registered port."""

import struct
from pathlib import Path

import pytest

import mqpcap

SYN, ACK = 2, 16
CLIENT_PORT = {"blipmq/qos1": 5555, "flymq/core": 9092, "fq/session": 8765, "msgq/flat_session": 9912}


def sides_swapped(content: bytes, client_port: int) -> bytes:
    """A capture whose clients have the registered port and whose servers do not, without the SYNs."""
    swapped, position = bytearray(content[:24]), 24
    servers: dict[tuple[int, ...], int] = {}
    while position < len(content):
        record = bytearray(content[position : position + 16])
        length = struct.unpack_from("<I", record, 8)[0]
        packet = bytearray(content[position + 16 : position + 16 + length])
        position += 16 + length
        tcp = 14 + (packet[14] & 15) * 4
        ports, flags = struct.unpack_from(">HH", packet, tcp), packet[tcp + 13]
        if flags & (SYN | ACK) == SYN:
            servers[ports] = 1000 + len(servers)
        elif not flags & SYN:
            new = (client_port, servers[ports]) if ports in servers else (servers[ports[::-1]], client_port)
            struct.pack_into(">HH", packet, tcp, *new)
            packet[tcp + 16 : tcp + 18] = b"\0\0"
            swapped += record + packet
    return bytes(swapped)


@pytest.mark.parametrize("name", CLIENT_PORT)
def test_messages_of_a_client_outweigh_a_registered_port(name: str, pcaps: Path) -> None:
    content, client_port = (pcaps / f"{name}.pcap").read_bytes(), CLIENT_PORT[name]

    read = mqpcap.read(sides_swapped(content, client_port), "connections")

    count = mqpcap.read(content, "connections")["protocol"].drop_null().length()
    assert read["protocol"].to_pylist() == [name.split("/")[0]] * count
    assert set(read["client_port"].to_pylist()) == {client_port}


def test_a_dialogue_written_by_text2pcap_has_its_client() -> None:
    """A real dialogue without a SYN, in which HELLO, AUTH, SUBSCRIBE and POLL come from port 5555."""
    path = Path(__file__).parent / "captures/text2pcap_sides.pcap"

    (connection,) = mqpcap.read(path, "connections").to_pylist()

    assert (connection["client_ip"], connection["client_port"], connection["protocol"]) == ("10.2.2.2", 5555, "blipmq")
    assert mqpcap.read(path, filter="direction == 'c2s'")["op"].to_pylist()[:3] == ["HELLO", "AUTH", "SUBSCRIBE"]
