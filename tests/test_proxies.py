"""Both sides of a proxy that writes PROXY headers, in one capture: the same dialogue on two connections."""

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from dissection import Dissection, dissect
from running import run

from mqpcap.capture import captures
from mqpcap.decode import proxy_header

PCAPS = Path(__file__).parent.parent / "pcaps"
PROXY = ip_address("10.99.0.9").packed
OUTSIDE = ip_address("10.99.0.1").packed
"""Addresses of the proxy: to its servers, and to its clients."""
Record = tuple[int, bytes]


def records(path: Path) -> Iterator[Record]:
    """Time (ns) and frame of each packet of a pcap in microseconds."""
    data, position = path.read_bytes(), 24
    while position < len(data):
        seconds, micros, size, _ = struct.unpack_from("<IIII", data, position)
        yield seconds * 10**9 + micros * 1000, data[position + 16 : position + 16 + size]
        position += 16 + size


def version_1(client: bytes, client_port: int, server: bytes, port: int) -> bytes:
    """proxy-protocol.txt, 2.1."""
    return f"PROXY TCP4 {ip_address(client)} {ip_address(server)} {client_port} {port}\r\n".encode()


def version_2(client: bytes, client_port: int, server: bytes, port: int) -> bytes:
    """proxy-protocol.txt, 2.2: version 2 and PROXY, IPv4 and TCP, twelve bytes of addresses."""
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + client + server + struct.pack(">HH", client_port, port)


def changed(frame: bytes, at: int, source: tuple[bytes, int], target: tuple[bytes, int], **numbers: int) -> bytes:
    """A frame of Ethernet, IPv4 and TCP with other ends and numbers, without checksums."""
    tcp = at + (frame[at] & 15) * 4
    seq, ack = struct.unpack_from(">II", frame, tcp + 4)
    words = struct.pack(">HHII", source[1], target[1], numbers.get("seq", seq), numbers.get("ack", ack))
    head = frame[: at + 10] + b"\0\0" + source[0] + target[0] + frame[at + 20 : tcp]
    return head + words + frame[tcp + 12 : tcp + 16] + b"\0\0" + frame[tcp + 18 :]


def behind_a_proxy(path: Path, port: int, header: Any) -> list[Record]:
    """The packets of a capture from clients to a proxy, and those of the proxy to the server."""
    packets: list[Record] = []
    started: set[tuple[bytes, int]] = set()
    for ts_ns, frame in records(path):
        at = 14
        tcp = at + (frame[at] & 15) * 4
        ports = struct.unpack_from(">HH", frame, tcp)
        ends = list(zip((frame[at + 12 : at + 16], frame[at + 16 : at + 20]), ports, strict=True))
        is_client, is_syn = ports[1] == port, bool(frame[tcp + 13] & 2)
        client, server = ends if is_client else ends[::-1]
        near, far = (OUTSIDE, port), (PROXY, client[1] ^ 1)
        prefix = header(*client, *near)
        seq, ack = struct.unpack_from(">II", frame, tcp + 4)
        source, target = (client, near) if is_client else (near, client)
        packets.append((ts_ns, changed(frame, at, source, target)))
        if is_client and not is_syn and client not in started:
            started.add(client)
            empty = frame[: tcp + 12] + b"\x50\x18" + frame[tcp + 14 : tcp + 20]
            length = struct.pack(">H", tcp + 20 - at + len(prefix))
            begin = empty[: at + 2] + length + empty[at + 4 :] + prefix
            packets.append((ts_ns + 1, changed(begin, at, far, server)))
        move = 0 if is_syn else len(prefix)
        source, target = (far, server) if is_client else (server, far)
        numbers = {"seq": (seq + move) % 2**32} if is_client else {"ack": (ack + move) % 2**32}
        packets.append((ts_ns + (2 if is_client else -2), changed(frame, at, source, target, **numbers)))
    return sorted(packets)


def write(path: Path, packets: list[Record]) -> Dissection:
    rows = (struct.pack("<IIII", t // 10**9, t % 10**9, len(d), len(d)) + d for t, d in packets)
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1) + b"".join(rows))
    (capture,) = captures([str(path)]).captures
    return dissect(capture)


CASES = [("flymq/core.pcap", 9092), ("mqtt/v5_paho.pcap", 18833), ("blipmq/qos1.pcap", 5555), ("fq/session.pcap", 8765)]


@pytest.mark.parametrize("header", [version_1, version_2])
@pytest.mark.parametrize(("name", "port"), CASES, ids=[name for name, _ in CASES])
def test_both_sides_count_and_deliveries_once(name: str, port: int, header: Any, tmp_path: Path) -> None:
    (capture,) = captures([str(PCAPS / name)]).captures
    plain = dissect(capture)
    both = write(tmp_path / "both.pcap", behind_a_proxy(PCAPS / name, port, header))
    far = {row["connection_id"] for row in both.connections.to_pylist() if row["proxied_ip"] is not None}

    assert len(plain.deliveries) > 0
    assert [len(both.connections), len(far)] == [2 * len(plain.connections), len(plain.connections)]
    assert len(both.messages) == 2 * len(plain.messages)
    assert sorted(both.exchanges["state"].to_pylist()) == sorted(2 * plain.exchanges["state"].to_pylist())
    assert len(both.deliveries) == len(plain.deliveries)
    assert {*both.deliveries["publish_connection_id"].to_pylist()} <= far
    assert {*both.deliveries["deliver_connection_id"].to_pylist()} <= far


def test_notes_name_both_sides(tmp_path: Path) -> None:
    """Of the first eight; further ones are counted."""
    write(tmp_path / "both.pcap", behind_a_proxy(PCAPS / "blipmq/qos1.pcap", 5555, version_2))
    notes = [line for line in run("info", str(tmp_path / "both.pcap")).stdout.splitlines() if "a proxy" in line]
    (capture,) = captures([str(PCAPS / "blipmq/qos1.pcap")]).captures
    clients = [row["client_port"] for row in dissect(capture).connections.to_pylist()]

    assert len(notes) == 9
    assert notes[8].split(maxsplit=1)[1] == f"{len(clients) - 8} more connections go on behind a proxy"
    for note, port in zip(notes[:8], sorted(clients), strict=False):
        far = f"10.99.0.9:{port ^ 1} to 127.0.0.1:5555: both count, deliveries once"
        assert note.endswith(f"127.0.0.1:{port} to 10.99.0.1:5555 goes on behind a proxy as {far}")


def test_a_header_whose_client_is_elsewhere_changes_nothing(tmp_path: Path) -> None:
    """Captured between the proxy and the server only."""
    packets = behind_a_proxy(PCAPS / "blipmq/qos1.pcap", 5555, version_1)
    both = write(tmp_path / "both.pcap", packets)
    far = write(tmp_path / "far.pcap", [(ts_ns, frame) for ts_ns, frame in packets if PROXY in frame[26:34]])

    assert len(far.deliveries) == len(both.deliveries) > 0
    assert "behind a proxy" not in run("info", str(tmp_path / "far.pcap")).stdout


def test_connections_behind_a_proxy_beyond_the_limit_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_header, "MAX_BEHIND", 0)
    packets = behind_a_proxy(PCAPS / "blipmq/qos1.pcap", 5555, version_1)
    (capture,) = captures([str(PCAPS / "blipmq/qos1.pcap")]).captures

    assert len(write(tmp_path / "both.pcap", packets).deliveries) == 2 * len(dissect(capture).deliveries)
