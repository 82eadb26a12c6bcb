"""Captures of one conversation as real networks show it: losses, faults, taps and wrappings, alone and combined.

A *loss* takes packets away. A *change* adds, repeats, damages or wraps packets; it must not change a row: the rows of
a changed capture are those of the capture before. A change that cannot be applied (a handshake that is not there, a
header that carries only IP) leaves the packets as they are.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from random import Random
from zlib import crc32

from torture import ACK, FIN, PSH, RST, SYN

CLIENT, SERVER, CLIENT_PORT = "192.0.2.10", "198.51.100.20", 40000
START_NS, STEP_NS, SECOND_NS = 1_780_000_000 * 10**9, 100_000, 10**9
SEGMENT_BYTES = 1400
FROM_CLIENT, FROM_SERVER = b"\2\0\0\0\0\2\2\0\0\0\0\1", b"\2\0\0\0\0\1\2\0\0\0\0\2"
IPV4 = 0x0800

Payloads = Sequence[tuple[bool, bytes]]
"""What was sent, in order: (from the client, bytes)."""
Layer = tuple[int, bytes]
"""What an Ethernet frame carries: its type and the bytes after it."""


def checksum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source: str, destination: str, protocol: int, payload: bytes, ip_id: int = 0, place: int = 0x4000) -> bytes:
    """An IPv4 packet; place: the flags and the offset of a fragment."""
    ends = ip_address(source).packed + ip_address(destination).packed
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), ip_id, place, 64, protocol, 0) + ends
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


@dataclass(frozen=True)
class Packet:
    """A TCP segment; wraps: names of what is around its IP packet, the innermost first; network: of both hosts."""

    from_client: bool
    seq: int
    ack: int
    flags: int
    body: bytes = b""
    ts_ns: int = START_NS
    is_damaged: bool = False
    wraps: tuple[str, ...] = ()
    client_port: int = CLIENT_PORT
    network: int = 0

    def ip(self, server_port: int) -> bytes:
        client, server = (str(ip_address(host) + (self.network << 8)) for host in (CLIENT, SERVER))
        source, destination = (client, server) if self.from_client else (server, client)
        ports = (self.client_port, server_port) if self.from_client else (server_port, self.client_port)
        tcp = struct.pack(">HHIIBBHHH", *ports, self.seq % 2**32, self.ack % 2**32, 0x50, self.flags, 64000, 0, 0)
        pseudo = ip_address(source).packed + ip_address(destination).packed + struct.pack(">HH", 6, 20 + len(self.body))
        wrong = 0x5555 if self.is_damaged else 0
        tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp + self.body) ^ wrong) + tcp[18:] + self.body
        return ipv4(source, destination, 6, tcp)

    def frames(self, server_port: int) -> list[bytes]:
        """The Ethernet frames that it travels in."""
        macs, layers = FROM_CLIENT if self.from_client else FROM_SERVER, [(IPV4, self.ip(server_port))]
        for name in self.wraps:
            layers = [each for layer in layers for each in WRAPS[name](layer, macs)]
        return [_ethernet(layer, macs) for layer in layers]


# -- wrappings ---------------------------------------------------------------------------------------------


def _ethernet(layer: Layer, macs: bytes) -> bytes:
    return macs + struct.pack(">H", layer[0]) + layer[1]


def _tag(kind: int, head: bytes) -> "Wrap":
    """A header between Ethernet and what it carries, which begins with ``head`` and ends with the type."""
    return lambda layer, macs: [(kind, head + struct.pack(">H", layer[0]) + layer[1])]


def _of_ip(wrap: Callable[[bytes], Layer]) -> "Wrap":
    """A header that carries IP only."""
    return lambda layer, macs: [wrap(layer[1]) if layer[0] == IPV4 else layer]


def _of_frame(wrap: Callable[[bytes], Layer]) -> "Wrap":
    """A header that carries whole Ethernet frames."""
    return lambda layer, macs: [wrap(_ethernet(layer, macs))]


def _outer(protocol: int, payload: bytes) -> Layer:
    return IPV4, ipv4("203.0.113.1", "203.0.113.2", protocol, payload, crc32(payload) & 0xFFFF)


def _udp(port: int, payload: bytes) -> Layer:
    return _outer(17, struct.pack(">HHHH", 50000, port, 8 + len(payload), 0) + payload)


def _fragments(layer: Layer, macs: bytes, count: int = 3) -> list[Layer]:
    """The IP packet in so many fragments, the last one first."""
    kind, packet = layer
    payload = packet[20:]
    if kind != IPV4 or len(payload) < 8 * count or packet[6:8] not in (b"\0\0", b"\x40\0"):
        return [layer]
    size = (len(payload) // count + 7) // 8 * 8
    source, destination = str(ip_address(packet[12:16])), str(ip_address(packet[16:20]))
    starts = range(0, len(payload), size)
    places = [start // 8 | (0x2000 if start + size < len(payload) else 0) for start in starts]
    return [
        (IPV4, ipv4(source, destination, packet[9], payload[start : start + size], crc32(packet) & 0xFFFF, place))
        for start, place in zip(starts, places, strict=True)
    ][::-1]


Wrap = Callable[[Layer, bytes], list[Layer]]
PPP_IP = b"\0\x21"
WRAPS: dict[str, Wrap] = {
    "VLAN 10": _tag(0x8100, b"\0\x0a"),
    "VLAN 20": _tag(0x8100, b"\0\x14"),
    "QinQ": _tag(0x88A8, b"\0\x1e"),
    "Cisco metadata": _tag(0x8909, b"\1\1\0\1\0\5"),
    "VN-tag": _tag(0x8926, b"\0\1\0\1"),
    "GRE": lambda layer, macs: [_outer(47, b"\0\0" + struct.pack(">H", layer[0]) + layer[1])],
    "MPLS": _of_ip(lambda ip: (0x8847, b"\0\1\0\x40\0\2\1\x40" + ip)),
    "PPPoE": _of_ip(lambda ip: (0x8864, b"\x11\0\0\5" + struct.pack(">H", 2 + len(ip)) + PPP_IP + ip)),
    "GTP-U": _of_ip(lambda ip: _udp(2152, struct.pack(">BBHI", 0x30, 255, len(ip), 7) + ip)),
    "L2TP": _of_ip(lambda ip: _udp(1701, b"\0\2\0\1\0\1\xff\3" + PPP_IP + ip)),
    "IP in IP": _of_ip(lambda ip: _outer(4, ip)),
    "AH": _of_ip(lambda ip: _outer(51, b"\4\4\0\0\0\0\1\0\0\0\0\1" + bytes(12) + ip)),
    "VXLAN": _of_frame(lambda frame: _udp(4789, b"\x08\0\0\0\0\0\1\0" + frame)),
    "Geneve": _of_frame(lambda frame: _udp(6081, b"\0\0\x65\x58\0\0\1\0" + frame)),
    "ERSPAN": _of_frame(lambda frame: _outer(47, b"\x10\0\x88\xbe\0\0\0\1\x10\1\0\1\0\0\0\0" + frame)),
    "PBB": _of_frame(lambda frame: (0x88E7, b"\0\0\0\1" + frame)),
    "fragments": _fragments,
}


# -- the conversation --------------------------------------------------------------------------------------


def conversation(sent: Payloads, client: int = 1000, server: int = 5000, ts_ns: int = START_NS) -> list[Packet]:
    """A whole connection in order; each data segment is acknowledged."""
    packets: list[Packet] = []
    next_numbers = {True: client, False: server}

    def add(from_client: bool, flags: int, body: bytes = b"") -> None:
        ack = next_numbers[not from_client] if flags & ACK else 0
        time_ns = ts_ns + len(packets) * STEP_NS
        packets.append(Packet(from_client, next_numbers[from_client], ack, flags, body, time_ns))
        next_numbers[from_client] += len(body) + bool(flags & (SYN | FIN))

    add(True, SYN)
    add(False, SYN | ACK)
    add(True, ACK)
    for from_client, data in sent:
        for start in range(0, len(data), SEGMENT_BYTES):
            add(from_client, PSH | ACK, data[start : start + SEGMENT_BYTES])
            add(not from_client, ACK)
    add(True, FIN | ACK)
    add(False, FIN | ACK)
    add(True, ACK)
    return packets


def write(path: Path, packets: Sequence[Packet], server_port: int) -> None:
    """A capture of the packets, in their order."""
    records = [
        struct.pack("<IIII", packet.ts_ns // SECOND_NS, packet.ts_ns % SECOND_NS, len(frame), len(frame)) + frame
        for packet in packets
        for frame in packet.frames(server_port)
    ]
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1) + b"".join(records))


def together(conversations: Iterable[list[Packet]]) -> list[Packet]:
    """One capture of conversations, one after the other, each in the network of its number."""
    return [
        replace(packet, network=number, ts_ns=packet.ts_ns + 3 * SECOND_NS * number)
        for number, packets in enumerate(conversations)
        for packet in packets
    ]


# -- losses ------------------------------------------------------------------------------------------------

Alter = Callable[[list[Packet], Random], list[Packet]]


def _without_handshake(*indexes: int) -> Alter:
    return lambda packets, dice: [packet for k, packet in enumerate(packets) if k not in indexes]


def _late_start(packets: list[Packet], dice: Random) -> list[Packet]:
    return packets[dice.randrange(3, max(4, len(packets) // 2)) :]


def _cut_end(packets: list[Packet], dice: Random) -> list[Packet]:
    return packets[: dice.randrange(len(packets) // 2, len(packets) - 1)]


def _lost(packets: list[Packet], dice: Random) -> list[Packet]:
    """Without two data segments of one side."""
    from_client = dice.random() < 0.5
    data = [k for k, packet in enumerate(packets) if packet.body and packet.from_client == from_client]
    lost = set(dice.sample(data, min(2, max(len(data) - 2, 0))))
    return [packet for k, packet in enumerate(packets) if k not in lost]


def _one_side(packets: list[Packet], dice: Random) -> list[Packet]:
    from_client = dice.random() < 0.5
    return [packet for packet in packets if packet.from_client == from_client]


LOSSES: dict[str, Alter] = {
    "nothing lost": lambda packets, dice: packets,
    "no SYN": _without_handshake(0),
    "no SYN-ACK": _without_handshake(1),
    "no first ACK": _without_handshake(2),
    "late start": _late_start,
    "early end": _cut_end,
    "lost segments": _lost,
    "one side only": _one_side,
}


# -- changes -----------------------------------------------------------------------------------------------


def _middle(packets: list[Packet], dice: Random) -> int:
    """The index of a data segment after the handshake, not the first of its side; 0 if there is none."""
    first = {packet.from_client: k for k, packet in reversed(list(enumerate(packets))) if packet.body}
    data = [k for k, packet in enumerate(packets) if packet.body and k > first[packet.from_client]]
    return dice.choice(data) if data else 0


def _has_handshake(packets: list[Packet]) -> bool:
    return [packet.flags for packet in packets[:3]] == [SYN, SYN | ACK, ACK]


def _insert(packets: list[Packet], index: int, *more: Packet) -> list[Packet]:
    timed = [
        replace(packet, ts_ns=packets[index].ts_ns - STEP_NS // 2 + k, wraps=packets[index].wraps)
        for k, packet in enumerate(more)
    ]
    return [*packets[:index], *timed, *packets[index:]]


def _later(packets: list[Packet], ns: int) -> list[Packet]:
    return [replace(packet, ts_ns=packet.ts_ns + ns) for packet in packets]


def _by_time(*parts: list[Packet]) -> list[Packet]:
    return sorted((packet for part in parts for packet in part), key=lambda packet: packet.ts_ns)


def _wrapped(packets: list[Packet], dice: Random) -> list[Packet]:
    """All packets, those of one side, or those from one packet on."""
    wraps = tuple(dice.choices(list(WRAPS), k=dice.randint(1, 3)))
    how, start = dice.choice(("all", "client", "server", "from")), dice.randrange(len(packets))
    chosen = {
        "all": lambda k: True,
        "client": lambda k: packets[k].from_client,
        "server": lambda k: not packets[k].from_client,
        "from": lambda k: k >= start,
    }[how]
    return [replace(packet, wraps=packet.wraps + wraps) if chosen(k) else packet for k, packet in enumerate(packets)]


def _in_two_networks(packets: list[Packet], dice: Random) -> list[Packet]:
    ingress, egress = (
        [replace(packet, wraps=(*packet.wraps, name)) for packet in packets] for name in ("VLAN 10", "VLAN 20")
    )
    return _by_time(ingress, _later(egress, 900))


def _two_taps(packets: list[Packet], dice: Random) -> list[Packet]:
    """Two taps, each of which lost other packets, one after the other in the file."""
    lost = set(dice.sample(range(len(packets)), len(packets) // 3))
    one = [packet for k, packet in enumerate(packets) if k not in lost]
    return _by_time(one, _later(packets, 700)) if dice.random() < 0.5 else [*packets, *_later(one, SECOND_NS)]


def _challenged(packets: list[Packet], dice: Random) -> list[Packet]:
    index = _middle(packets, dice)
    if not index:
        return packets
    packet = packets[index]
    client, server = (packet.seq, packet.ack) if packet.from_client else (packet.ack, packet.seq)
    number = dice.choice((123_456_789, 3_123_456_789))
    return _insert(packets, index, Packet(True, number, 0, SYN), Packet(False, server, client, ACK))


def _blind_reset(packets: list[Packet], dice: Random) -> list[Packet]:
    index = _middle(packets, dice)
    packet = packets[index]
    number = packet.seq if not packet.from_client else packet.ack
    return _insert(packets, index, Packet(False, number + 500_000_000, 0, RST)) if index else packets


def _half_open(packets: list[Packet], dice: Random) -> list[Packet]:
    """The server still has an older connection: it answers the SYN with old numbers, and the client resets that."""
    if not _has_handshake(packets):
        return packets
    first = packets[0]
    old = Packet(True, first.seq, 0, SYN), Packet(False, 3 * 10**9, 9 * 10**8, ACK), Packet(True, 9 * 10**8, 0, RST)
    return [replace(packet, ts_ns=first.ts_ns - 3000 + 1000 * k, wraps=first.wraps) for k, packet in enumerate(old)] + [
        *packets
    ]


def _two_answers(packets: list[Packet], dice: Random) -> list[Packet]:
    """A second SYN-ACK with another number, before the right one, after it, or after the client's acknowledgement."""
    if not _has_handshake(packets):
        return packets
    answer = replace(packets[1], seq=packets[1].seq + 895_000)
    return _insert(packets, dice.choice((1, 2, 3)), answer)


def _damaged(packets: list[Packet], dice: Random) -> list[Packet]:
    index = _middle(packets, dice)
    packet = packets[index]
    wrong = bytes([packet.body[0] ^ 255]) + packet.body[1:] if packet.body else b""
    is_evident = index > 0 and not any(packet.is_damaged for packet in packets)
    return _insert(packets, index, replace(packet, body=wrong, is_damaged=True)) if is_evident else packets


def _wrong_checksums(packets: list[Packet], dice: Random) -> list[Packet]:
    """As captured before a network card sets them; a damaged segment can then not be told."""
    if any(packet.is_damaged for packet in packets):
        return packets
    return [replace(packet, is_damaged=True) for packet in packets]


def _sent_again(packets: list[Packet], dice: Random) -> list[Packet]:
    """A data segment again, 24 packets later."""
    index = _middle(packets, dice)
    place = min(index + 24, len(packets) - 1)
    return _insert(packets, place, packets[index]) if index else packets


def _kept_alive(packets: list[Packet], dice: Random) -> list[Packet]:
    index = _middle(packets, dice)
    packet = packets[index]
    probe = replace(packet, seq=packet.seq - 1, body=b"\0"), Packet(not packet.from_client, packet.ack, packet.seq, ACK)
    has_byte = any(
        each.from_client == packet.from_client and each.body and each.seq + len(each.body) == packet.seq
        for each in packets[:index]
    )
    return _insert(packets, index, *probe) if has_byte else packets


def _split_handshake(packets: list[Packet], dice: Random) -> list[Packet]:
    if not _has_handshake(packets):
        return packets
    syn, answer, _ = packets[:3]
    split = [
        replace(answer, seq=77_777, flags=ACK),
        replace(answer, ack=0, flags=SYN),
        replace(syn, ack=answer.seq + 1, flags=SYN | ACK),
        replace(answer, seq=answer.seq + 1, flags=ACK),
    ]
    return [syn, *(replace(packet, ts_ns=syn.ts_ns + k + 1) for k, packet in enumerate(split)), *packets[3:]]


def _swapped(packets: list[Packet], dice: Random) -> list[Packet]:
    """Two neighbours out of order, each with its time."""
    index = _middle(packets, dice)
    pair = packets[index : index + 2][::-1]
    return [*packets[:index], *pair, *packets[index + 2 :]] if index else packets


def _appended(client_first: bool) -> Alter:
    """Two taps, each of one direction, one after the other; a server's lone SYN would then look like a client's."""

    def alter(packets: list[Packet], dice: Random) -> list[Packet]:
        if any(packet.flags == SYN and not packet.from_client for packet in packets):
            return packets
        return sorted(packets, key=lambda packet: packet.from_client is not client_first)

    return alter


CHANGES: dict[str, Alter] = {
    "wrapped": _wrapped,
    "each packet twice": lambda packets, dice: _by_time(packets, _later(packets, 900)),
    "a second tap later": lambda packets, dice: [*packets, *_later(packets, SECOND_NS)],
    "copies in two networks": _in_two_networks,
    "two taps with losses": _two_taps,
    "client first": _appended(True),
    "server first": _appended(False),
    "challenge": _challenged,
    "blind RST": _blind_reset,
    "half-open connection": _half_open,
    "two SYN-ACKs": _two_answers,
    "damaged, then good": _damaged,
    "all checksums wrong": _wrong_checksums,
    "sent again": _sent_again,
    "keep-alive": _kept_alive,
    "split handshake": _split_handshake,
    "swapped": _swapped,
}
