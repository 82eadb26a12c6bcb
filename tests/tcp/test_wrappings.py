"""Each header that networks put in front of IP, built as its standard has it, in both directions."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from capture_files import pcap
from case_table import case_rows
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

import mqpcap
from mqpcap.capture import Window
from mqpcap.tcp import headers, wrappings
from mqpcap.tcp.headers import Dissector
from mqpcap.tcp.wrappings import WRAPPINGS

ETHERNET, PPP, WLAN, USER_2 = 1, 9, 105, 149
CARDS = b"\0\x1b\x21\0\0\2\0\x1b\x21\0\0\1"  # of a vendor: tshark tells Ethernet in MPLS by it
MACS = b"\2\0\0\0\0\2\2\0\0\0\0\1"
THERE = bytes(IP(src="192.0.2.10", dst="198.51.100.20") / TCP(sport=40000, dport=5555, flags="PA") / Raw(b"question"))
BACK = bytes(IP(src="198.51.100.20", dst="192.0.2.10") / TCP(sport=5555, dport=40000, flags="PA") / Raw(b"answer"))
SIX = bytes(IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP(sport=40000, dport=5555, flags="PA") / Raw(b"question"))


def ether(kind: int, rest: bytes) -> bytes:
    return MACS + struct.pack(">H", kind) + rest


def frame(ip: bytes) -> bytes:
    return ether(0x86DD if ip[0] >> 4 == 6 else 0x0800, ip)


def outer(protocol: int, rest: bytes) -> bytes:
    return ether(0x0800, bytes(IP(src="203.0.113.1", dst="203.0.113.2", proto=protocol) / Raw(rest)))


def udp(port: int, rest: bytes, source: int = 50000) -> bytes:
    return ether(0x0800, bytes(IP(src="203.0.113.1", dst="203.0.113.2") / UDP(sport=source, dport=port) / Raw(rest)))


def label(number: int, is_last: bool) -> bytes:
    return struct.pack(">I", number << 12 | is_last << 8 | 64)


def snap(ip: bytes) -> bytes:
    return b"\xaa\xaa\x03\0\0\0\x08\0" + ip


def pppoe(rest: bytes) -> bytes:
    return b"\x11\0\0\5" + struct.pack(">H", len(rest)) + rest


def gtp(first: int, more: bytes, ip: bytes) -> bytes:
    return udp(2152, struct.pack(">BBHI", first, 255, len(more + ip), 7) + more + ip)


def gre(flags: int, kind: int, more: bytes, rest: bytes) -> bytes:
    return outer(47, struct.pack(">HH", flags, kind) + more + rest)


def nflog(ip: bytes, order: str = "<") -> bytes:
    prefix = struct.pack(order + "HH", 9, 10) + b"drop\0" + bytes(3)
    return b"\2\0\0\0" + prefix + struct.pack(order + "HH", 4 + len(ip), 9) + ip + bytes(-len(ip) % 4)


def wlan(ip: bytes, control: bytes = b"\x08\1", more: bytes = b"", content: bytes = b"") -> bytes:
    return control + bytes(2) + MACS + b"\2\0\0\0\0\3" + bytes(2) + more + (content or snap(ip))


def aggregate(*ips: bytes) -> bytes:
    """Subframes of an A-MSDU: two addresses, a length, LLC; the next begins at a multiple of four bytes."""
    subframes = [MACS + struct.pack(">H", len(snap(ip))) + snap(ip) for ip in ips]
    return b"".join(part + bytes(-len(part) % 4) for part in subframes[:-1]) + subframes[-1]


def radiotap(rest: bytes) -> bytes:
    return b"\0\0\x09\0\2\0\0\0\0" + rest  # one field: flags


def capwap(rest: bytes, first: int = 0x00, second: int = 0x10, third: int = 0x02, fourth: int = 0) -> bytes:
    return udp(5247, bytes((first, second, third, fourth, 0, 0, 0, 0)) + rest)


def pktap(rest: bytes, link_type: int = 1) -> bytes:
    return struct.pack("<III", 108, 1, link_type) + bytes(96) + rest


WRAPPED = {
    "VLAN": (1, lambda p: ether(0x8100, b"\0\7\x08\0" + p)),
    "LLC below VLAN": (1, lambda p: ether(0x8100, b"\0\7" + struct.pack(">H", 8 + len(p)) + snap(p))),
    "LLC of IP": (1, lambda p: ether(3 + len(p), b"\6\6\3" + p)),
    "Cisco metadata": (1, lambda p: ether(0x8909, b"\1\1\0\1\0\5\x08\0" + p)),
    "Cisco metadata below VLAN": (1, lambda p: ether(0x8100, b"\0\7\x89\x09\1\1\0\1\0\5\x08\0" + p)),
    "MACsec not encrypted": (1, lambda p: ether(0x88E5, b"\x20\0\0\0\0\1" + bytes(8) + b"\x08\0" + p + bytes(16))),
    "802.1BR": (1, lambda p: ether(0x893F, b"\0\0\0\1\0\0\x08\0" + p)),
    "VN-tag": (1, lambda p: ether(0x8926, b"\0\1\0\1\x08\0" + p)),
    "HSR": (1, lambda p: ether(0x892F, b"\0\x20\0\1\x08\0" + p)),
    "PBB": (1, lambda p: ether(0x88E7, b"\0\0\0\1" + frame(p))),
    "FabricPath": (1, lambda p: ether(0x8903, b"\0\x40" + frame(p))),
    "TRILL": (1, lambda p: ether(0x22F3, b"\0\x41\0\1\0\2" + bytes(4) + frame(p))),
    "MPLS": (1, lambda p: ether(0x8847, label(16, True) + p)),
    "MPLS of three labels": (1, lambda p: ether(0x8847, label(16, False) + label(17, False) + label(18, True) + p)),
    "MPLS below VLAN": (1, lambda p: ether(0x8100, b"\0\7\x88\x47" + label(16, True) + p)),
    "MPLS in GRE": (1, lambda p: gre(0, 0x8847, b"", label(16, True) + p)),
    "MPLS in UDP": (1, lambda p: udp(6635, label(16, True) + p)),
    "MPLS in IP": (1, lambda p: outer(137, label(16, True) + p)),
    "MPLS in PPP": (9, lambda p: b"\xff\3\2\x81" + label(16, True) + p),
    "MPLS in HDLC": (104, lambda p: b"\x0f\0\x88\x47" + label(16, True) + p),
    "MPLS link type": (219, lambda p: label(16, True) + p),
    "Ethernet in MPLS": (1, lambda p: ether(0x8847, label(16, True) + bytes(4) + CARDS + frame(p)[12:])),
    "Ethernet in MPLS without a control word": (1, lambda p: ether(0x8847, label(16, True) + CARDS + frame(p)[12:])),
    "PPPoE": (1, lambda p: ether(0x8864, pppoe(b"\0\x21" + p))),
    "PPPoE below QinQ": (1, lambda p: ether(0x88A8, b"\0\7\x81\0\0\x08\x88\x64" + pppoe(b"\0\x21" + p))),
    "PPPoE with a short protocol number": (1, lambda p: ether(0x8864, pppoe(b"\x21" + p))),
    "PPP": (9, lambda p: b"\xff\3\0\x21" + p),
    "PPP with a short protocol number": (9, lambda p: b"\x21" + p),
    "PPP without address": (9, lambda p: b"\0\x21" + p),
    "PPP bridging": (9, lambda p: b"\xff\3\0\x31\0\1" + frame(p)),
    "PPP in HDLC": (50, lambda p: b"\xff\3\0\x21" + p),
    "Cisco HDLC in PPP": (50, lambda p: b"\x0f\0\x08\0" + p),
    "PPPoE link type": (51, lambda p: pppoe(b"\0\x21" + p)),
    "PPP with direction": (166, lambda p: b"\1\3\0\x21" + p),
    "PPP behind a direction": (204, lambda p: b"\1\xff\3\0\x21" + p),
    "Cisco HDLC": (104, lambda p: b"\x0f\0\x08\0" + p),
    "AH": (1, lambda p: outer(51, b"\4\4\0\0\0\0\1\0\0\0\0\1" + bytes(12) + p)),
    "AH in front of TCP": (1, lambda p: ether(0x0800, authenticated(p))),
    "EtherIP": (1, lambda p: outer(97, b"\x30\0" + frame(p))),
    "GRE with checksum": (1, lambda p: gre(0x8000, 0x0800, bytes(4), p)),
    "ERSPAN I": (1, lambda p: gre(0, 0x88BE, b"", frame(p))),
    "ERSPAN II": (1, lambda p: gre(0x1000, 0x88BE, b"\0\0\0\1\x10\1\0\1\0\0\0\0", frame(p))),
    "ERSPAN III": (1, lambda p: gre(0x1000, 0x22EB, b"\0\0\0\1\x20\1\0\1" + bytes(8), frame(p))),
    "ERSPAN III with a subheader": (
        1, lambda p: gre(0x1000, 0x22EB, b"\0\0\0\1\x20\1\0\1" + bytes(7) + b"\1\x08" + bytes(7), frame(p)),
    ),
    "WCCP": (1, lambda p: gre(0, 0x883E, bytes(4), p)),
    "WCCP of version 1": (1, lambda p: gre(0, 0x883E, b"", p)),
    "EoIP": (1, lambda p: gre(0x2001, 0x6400, struct.pack(">H", len(frame(p))) + b"\7\0", frame(p))),
    "PPTP": (1, lambda p: gre(0x3081, 0x880B, struct.pack(">HHII", 4 + len(p), 1, 1, 1), b"\xff\3\0\x21" + p)),
    "VXLAN": (1, lambda p: udp(4789, b"\x08\0\0\0\0\0\1\0" + frame(p))),
    "VXLAN by its other port": (1, lambda p: udp(50000, b"\x08\0\0\0\0\0\1\0" + frame(p), 4789)),
    "VXLAN-GPE": (1, lambda p: udp(4790, b"\x0c\0\0\1\0\0\5\0" + p)),
    "VXLAN-GPE of Ethernet": (1, lambda p: udp(4790, b"\x0c\0\0\3\0\0\5\0" + frame(p))),
    "NSH in VXLAN-GPE": (1, lambda p: udp(4790, b"\x0c\0\0\4\0\0\5\0\x0f\xc6\1\3" + bytes(20) + frame(p))),
    "Geneve by its other port": (1, lambda p: udp(50000, b"\0\0\x65\x58" + bytes(4) + frame(p), 6081)),
    "GTP-U": (1, lambda p: gtp(0x30, b"", p)),
    "GTP-U with a sequence number": (1, lambda p: gtp(0x32, b"\0\1\0\0", p)),
    "GTP-U with an extension": (1, lambda p: gtp(0x34, b"\0\0\0\x85\1\0\5\0", p)),
    "GTP-U with two extensions": (1, lambda p: gtp(0x34, b"\0\0\0\xc0\1\0\1\x85\1\0\5\0", p)),
    "L2TP": (1, lambda p: udp(1701, b"\0\2\0\1\0\1\xff\3\0\x21" + p)),
    "L2TP with length and sequence": (
        1, lambda p: udp(1701, struct.pack(">HHIIHH", 0x4802, 16 + len(p), 0x10001, 0, 0xFF03, 0x21) + p),
    ),
    "L2TP with an offset": (1, lambda p: udp(1701, b"\2\2\0\1\0\1\0\2\0\0\xff\3\0\x21" + p)),
    "Teredo": (1, lambda p: udp(3544, p), SIX),
    "Teredo with both headers": (1, lambda p: udp(3544, b"\0\1\0\0" + bytes(9) + b"\0\0" + bytes(6) + p), SIX),
    "L2TPv3": (1, lambda p: outer(115, b"\0\0\0\7" + bytes(4) + frame(p))),
    "L2TPv3 with a cookie": (1, lambda p: outer(115, b"\0\0\0\7" + b"cookie!!" + bytes(4) + frame(p))),
    "L2TPv3 without a sublayer": (1, lambda p: outer(115, b"\0\0\0\7" + frame(p))),
    "L2TPv3 in UDP": (1, lambda p: udp(1701, b"\0\3\0\0\0\0\0\7" + bytes(4) + frame(p))),
    "GRE in UDP": (1, lambda p: udp(4754, b"\0\0\x08\0" + p)),
    "GUE": (1, lambda p: udp(6080, b"\0\4\0\0" + p)),
    "GUE with a checksum": (1, lambda p: udp(6080, b"\1\4\x80\0" + bytes(4) + p)),
    "GUE without a header": (1, lambda p: udp(6080, p)),
    "FOU": (1, lambda p: udp(7777, p)),
    "FOU of IPv6": (1, lambda p: udp(7777, p), SIX),
    "ESP of IP, not encrypted": (1, lambda p: outer(50, esp(p, 4, 12))),
    "ESP of IPv6, not encrypted": (1, lambda p: outer(50, esp(p, 41, 16)), SIX),
    "ESP of TCP, not encrypted": (1, lambda p: ether(0x0800, secured(p))),
    "ESP in UDP, not encrypted": (1, lambda p: udp(4500, esp(p, 4, 16))),
    "LISP": (1, lambda p: udp(4341, b"\x80" + bytes(7) + p)),
    "CAPWAP": (1, lambda p: capwap(frame(p))),
    "CAPWAP of 802.11": (1, lambda p: capwap(wlan(p), third=0x03)),
    "CAPWAP of 802.11, bytes swapped": (1, lambda p: capwap(wlan(p, b"\1\x08"), third=0x03)),
    "TZSP": (1, lambda p: udp(37008, b"\1\0\0\1\x0a\1\5\1" + frame(p))),
    "802.11": (105, wlan),
    "802.11 with QoS": (105, lambda p: wlan(p, b"\x88\1", b"\0\0")),
    "802.11 A-MSDU": (105, lambda p: wlan(b"", b"\x88\1", b"\x80\0", aggregate(p))),
    "802.11 A-MSDU with HT control": (105, lambda p: wlan(b"", b"\x88\x81", b"\x80\0" + bytes(4), aggregate(p))),
    "802.11 A-MSDU with four addresses": (105, lambda p: wlan(b"", b"\x88\3", bytes(6) + b"\x80\0", aggregate(p))),
    "802.11 with QoS and four addresses": (105, lambda p: wlan(p, b"\x88\3", bytes(8))),
    "802.11 with four addresses": (105, lambda p: wlan(p, b"\x08\3", bytes(6))),
    "802.11 with HT control": (105, lambda p: wlan(p, b"\x88\x81", bytes(6))),
    "radiotap": (127, lambda p: radiotap(wlan(p))),
    "PPI": (192, lambda p: struct.pack("<BBHI", 0, 0, 8, 105) + wlan(p)),
    "ENC": (109, lambda p: struct.pack("<III", 2, 0x1234, 0) + p),
    "PFLOG": (117, lambda p: bytes((61, 2)) + bytes(62) + p),
    "Cisco HDLC in a file of PPP": (9, lambda p: b"\x0f\0\x08\0" + p),
    "NFLOG": (239, nflog),
    "NFLOG of a big-endian host": (239, lambda p: nflog(p, ">")),
    "PKTAP": (258, lambda p: pktap(frame(p))),
    "PKTAP of old": (149, lambda p: pktap(frame(p))),
    "PKTAP of raw IP": (258, lambda p: pktap(p, 12)),
    "IP over InfiniBand": (242, lambda p: bytes(40) + b"\x08\0\0\0" + p),
    "FDDI": (10, lambda p: b"\x50" + MACS + snap(p)),
    "ATM": (100, snap),
    "Broadcom tag": (281, lambda p: MACS + b"\0\0\0\1\x08\0" + p),
    "Broadcom tag in front": (282, lambda p: b"\0\0\0\1" + frame(p)),
    "DSA": (283, lambda p: MACS + b"\xc0\x08\0\1\x08\0" + p),
    "EDSA": (284, lambda p: MACS + b"\xda\xda\0\0\xc0\x08\0\1\x08\0" + p),
}  # fmt: skip


def authenticated(ip: bytes) -> bytes:
    """The same packet with an authentication header between IP and TCP."""
    packet = IP(ip)
    return bytes(IP(src=packet.src, dst=packet.dst, proto=51) / Raw(b"\6\4\0\0\0\0\1\0\0\0\0\1" + bytes(12) + ip[20:]))


def esp(content: bytes, protocol: int, integrity_len: int) -> bytes:
    """ESP with NULL encryption: padding 1, 2, ... to four bytes, its length, the protocol, the integrity value."""
    pad = bytes(range(1, 1 + -(len(content) + 2) % 4))
    return struct.pack(">II", 0x1000, 7) + content + pad + bytes((len(pad), protocol)) + b"\xa5" * integrity_len


def secured(ip: bytes) -> bytes:
    """The same packet in transport mode."""
    packet = IP(ip)
    return bytes(IP(src=packet.src, dst=packet.dst, proto=50) / Raw(esp(ip[20:], 6, 12)))


def window(packets, link_type):
    length = np.array([len(packet) for packet in packets], np.int64)
    count = len(packets)
    return Window(
        buffer=np.frombuffer(b"".join(packets), np.uint8).copy(), offset=np.cumsum(length) - length, caplen=length,
        wirelen=length.copy(), ts_ns=np.arange(count, dtype=np.int64), link_type=np.full(count, link_type, np.int32),
        packet_number=np.arange(1, count + 1, dtype=np.int64), file=0,
    )  # fmt: skip


def payloads(packets, link_type):
    segments = Dissector().segments(window(packets, link_type))
    spans = zip(segments.start.tolist(), segments.length.tolist(), strict=True)
    return [segments.buffer[start : start + length].tobytes() for start, length in spans]


def counts_of(packet, link_type=1):
    return Dissector().segments(window([packet], link_type)).counts


def both(name):
    link_type, wrap, *ips = WRAPPED[name]
    return link_type, [wrap(ip) for ip in (ips or (THERE, BACK))]


def test_wrapped_packets_are_read_in_both_directions():
    for name in WRAPPED:
        link_type, packets = both(name)

        assert payloads(packets, link_type) == [b"question", b"answer"][: len(packets)], name


def test_ipv6_behind_the_ethernet_type_of_ipv4_is_read_by_its_version():
    assert payloads([ether(0x0800, SIX), ether(0x86DD, THERE)], 1) == [b"question", b"question"]


def test_each_wrapping_has_a_row():
    assert [row[0] for row in case_rows("What wraps the packets")] == list(WRAPPED)


def test_all_subframes_of_an_aggregated_frame_are_read():
    odd = bytes(IP(src="192.0.2.10", dst="198.51.100.20") / TCP(sport=40000, dport=5555, flags="PA") / Raw(b"odd"))
    frames = [wlan(b"", b"\x88\1", b"\x80\0", aggregate(*ips)) for ips in ([THERE, odd, BACK, THERE], [BACK, odd])]
    segments = Dissector().segments(window(frames, 105))
    spans = zip(segments.start.tolist(), segments.length.tolist(), strict=True)

    assert [segments.buffer[start : start + length].tobytes() for start, length in spans] == [
        b"question", b"odd", b"answer", b"question", b"answer", b"odd",
    ]  # fmt: skip
    assert segments.packet_number.tolist() == [1, 1, 1, 1, 2, 2]
    assert segments.counts["tcp"] == 6


@pytest.mark.parametrize("name", ["GTP-U", "VXLAN", "L2TP", "ERSPAN II", "AH", "IP over GRE in GTP-U"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_tunnels_in_fragments_are_read(name, is_reversed):
    """The outer datagram of a tunnel is fragmented, in IPv4, as the path of the tunnel makes it."""
    wrap = WRAPPED[name][1] if name in WRAPPED else lambda p: gtp(0x30, b"", gre(0, 0x0800, b"", p)[14:])
    frames = [bytes(part) for ip in (THERE, BACK) for part in fragments_of(wrap(ip), is_reversed)]

    assert payloads(frames, 1) == [b"question", b"answer"]


def fragments_of(packet, is_reversed):
    """The Ethernet frames of a packet in fragments of 24 bytes."""
    whole = IP(packet[14:])
    whole.id = zlib.crc32(packet) & 0xFFFF
    parts = fragment(whole, 24)
    return [ether(0x0800, bytes(part)) for part in (parts[::-1] if is_reversed else parts)]


def test_subframes_are_cut_anywhere():
    frame = wlan(b"", b"\x88\1", b"\x80\0", aggregate(THERE, BACK, THERE))
    for length in range(len(frame)):
        cut = window([frame[:length]], 105)
        cut.wirelen[:] = len(frame)

        assert len(Dissector().segments(cut).start) <= 3


def test_wrapped_packets_cut_anywhere_are_counted():
    for name in WRAPPED:
        link_type, packets = both(name)
        for length in range(packets[0].rindex(b"question")):
            cut = window([packets[0][:length]], link_type)
            cut.wirelen[:] = len(packets[0])
            segments = Dissector().segments(cut)

            assert sum(segments.counts[word] for word in headers.COUNTS[:8]) == 1, (name, length)
            assert not segments.length.sum(), (name, length)


# tshark 4.0 does not know GUE and these link types, does not find Ethernet in L2TPv3, expects a check sequence after
# FabricPath, and the bytes of 802.11 in CAPWAP in the wrong order.
NOT_IN_TSHARK = {
    "MPLS link type", "PPP with direction", "PKTAP of old", "Broadcom tag", "Broadcom tag in front", "DSA", "EDSA",
    "FabricPath", "CAPWAP of 802.11", "NFLOG of a big-endian host", "GUE", "GUE with a checksum",
    "GUE without a header", "L2TPv3", "L2TPv3 with a cookie", "L2TPv3 without a sublayer", "L2TPv3 in UDP",
}  # fmt: skip
TSHARK_OPTIONS = "-d", "udp.port==7777,ip", "-o", "esp.enable_null_encryption_decode_heuristic:TRUE"


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_tshark_sees_the_same_payloads(tmp_path: Path):
    """One file for each link type, as tshark takes a quarter of a second to start."""
    wrapped: dict[int, list[tuple[str, bytes, bytes]]] = {}
    for name in WRAPPED:
        link_type, packets = both(name)
        if name not in NOT_IN_TSHARK:
            wrapped.setdefault(link_type, []).extend(zip([name] * 2, packets, (b"question", b"answer"), strict=False))
    differing = []
    for link_type, rows in wrapped.items():
        path = tmp_path / f"{link_type}.pcap"
        path.write_bytes(pcap([(k * 1000, packet) for k, (_, packet, _) in enumerate(rows)], link_type=link_type))
        command = [
            "tshark",
            "-r",
            str(path),
            *TSHARK_OPTIONS,
            "-T",
            "fields",
            "-e",
            "tcp.payload",
            "-E",
            "occurrence=l",
        ]
        seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        differing += [(name, said) for (name, _, body), said in zip(rows, seen, strict=True) if said != body.hex()]

    assert differing == []


UNREAD = {
    "IPComp": (1, outer(108, b"\6\0\0\1" + bytes(40))),
    "ESP": (1, outer(50, bytes(40))),
    "L2TPv3": (1, outer(115, bytes(40))),
    "ESP not encrypted, with another trailer": (1, outer(50, esp(THERE, 4, 12)[:-14] + b"\7\4" + bytes(12)), "ESP"),
    "ESP in UDP": (1, udp(4500, b"\0\0\x10\0" + bytes(range(40))), "ESP"),
    "encrypted bytes in WireGuard": (1, udp(3333, b"\4\0\0\0" + bytes(28))),
    "VXLAN on UDP port 4799 (-d udp.port==4799,vxlan reads it)": (1, udp(4799, b"\x08\0\0\0\0\0\1\0" + frame(THERE))),
    "encrypted bytes in MACsec": (1, ether(0x88E5, b"\x0c\0" + bytes(40))),
    "encrypted bytes in CAPWAP": (1, capwap(bytes(40), first=1)),
    "fragments in CAPWAP": (1, capwap(bytes(40), fourth=0x80)),
    "encrypted bytes in 802.11": (105, b"\x08\x41" + bytes(60)),
    "unknown bytes in MPLS": (1, ether(0x8847, label(16, True) + b"\x90" + bytes(40))),
    "bytes that are not IP in GTP-U": (1, gtp(0x30, b"", bytes(40))),
    "GRE of an unknown kind": (1, gre(0x4000, 0x0800, bytes(40), b"")),
    "Ethernet type 0x1234": (1, ether(0x1234, bytes(46))),
    "Ethernet type 0x1234 in GRE": (1, gre(0, 0x1234, bytes(40), b"")),
    "IP protocol 200": (1, outer(200, bytes(40))),
    "PPP protocol 0x0005": (9, b"\xff\3\0\5" + bytes(40)),
    "compressed PPP": (1, ether(0x8864, pppoe(b"\0\xfd" + bytes(40)))),
    "link type 147 (user 0)": (147, bytes(40)),
    "link type 300": (300, bytes(40)),
}
FOREIGN = {
    "ARP": (1, ether(0x0806, bytes(46))),
    "UDP": (1, udp(53, bytes(40))),
    "IKE": (1, udp(4500, bytes(40))),
    "UDP that begins as VXLAN": (1, udp(4799, b"\x08\0\0\0" + bytes(60)), "UDP"),
    "UDP that begins as IP": (1, udp(7777, THERE + b"!"), "UDP"),
    "UDP that holds a damaged IP header": (1, udp(7777, THERE[:10] + b"!!" + THERE[12:]), "UDP"),
    "UDP in GTP-U": (1, gtp(0x30, b"", bytes(IP() / UDP(dport=53)))),
    "ICMP": (1, outer(1, bytes(40))),
    "LLC": (1, ether(38, b"\x42\x42\3" + bytes(43))),
    "LLDP": (1, ether(0x88CC, bytes(46))),
    "802.11 management": (105, b"\x80\0" + bytes(40)),
    "PPP LCP": (9, b"\xff\3\xc0\x21" + bytes(8)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_may_carry_tcp_and_is_not_read_has_a_name(name):
    link_type, packet, *other_name = UNREAD[name]
    counts = counts_of(packet, link_type)

    assert (wrappings.unread(counts), wrappings.foreign(counts)) == ({(other_name or [name])[0]: 1}, {})


@pytest.mark.parametrize("name", FOREIGN)
def test_what_carries_no_tcp_has_a_name_and_no_warning(name):
    link_type, packet, *other_name = FOREIGN[name]
    counts = counts_of(packet, link_type)

    assert (wrappings.unread(counts), wrappings.foreign(counts)) == ({}, {(other_name or [name])[0]: 1})


def test_udp_packets_cut_anywhere_are_not_damaged():
    """Guesses at the payload of UDP need bytes that the snap length may have cut."""
    for packet in (udp(7777, THERE), udp(4799, b"\x08\0\0\0\0\0\1\0" + frame(THERE))):
        for length in range(14 + 20 + 8, len(packet)):
            cut = window([packet[:length]], 1)
            cut.wirelen[:] = len(packet)
            counts = Dissector().segments(cut).counts

            assert not counts["bad_header"], length
            assert length >= 14 + 20 + 8 + 40 or counts["not_tcp"] == 1, length


@pytest.mark.parametrize("name", ["gue", "fou_ipip"])
def test_tunnels_of_the_kernel_are_read(name):
    """blipmqd through a tunnel of Linux 6.12: 30 messages, six of which ask and are answered."""
    path = Path(__file__).parent / "captures" / f"{name}.pcap"

    assert mqpcap.read(path).num_rows == 30
    assert mqpcap.read(path, "exchanges")["state"].to_pylist().count("answered") == 6


def test_packets_of_more_kinds_than_are_named_are_counted():
    packets = [ether(0xA000 + number, bytes(46)) for number in range(2 * headers.MAX_KINDS)]
    unread = wrappings.unread(Dissector().segments(window(packets, 1)).counts)

    assert len(unread) == headers.MAX_KINDS and sum(unread.values()) == len(packets)


def test_headers_of_one_packet_are_limited():
    # Ethernet, IP headers and TCP; a walk that had no limit would read 9,000 labels.
    deepest = headers.MAX_HEADERS - 2
    packets = [
        ether(0x8847, label(16, False) * (n - 1) + label(16, True) + THERE) for n in (deepest - 2, deepest, 9000)
    ]
    counts = Dissector().segments(window(packets, 1)).counts

    assert (counts["tcp"], counts["too_deep"]) == (1, 2)


def test_rows_of_one_kind_are_tried_in_the_order_of_the_table():
    """A row names one row to try next, so rows that share a kind share all that follow."""
    chains = {}
    for number, wrapping in enumerate(WRAPPINGS, 1):
        for kind in wrapping.kinds:
            chains.setdefault(kind, []).append(number)
    for kind, chain in chains.items():
        tried = [int(wrappings.RULE_INDEX[kind])]
        while following := int(wrappings.RULES[tried[-1], 19]):
            tried.append(following)

        assert tried == chain
