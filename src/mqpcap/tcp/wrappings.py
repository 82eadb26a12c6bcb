"""The headers in front of an IP packet, as a table: what announces a header, how long it is, and what follows.

In: nothing. Out: `WRAPPINGS` for people, `RULES` and `RULE_INDEX` (the same as arrays) for the walk in ``headers``, and
the names and counts of packets that the walk cannot read. Called by: ``headers``, ``tables.captures``, ``pipeline``.

A *kind* is a number that names the next header of a packet. Its upper bits are a namespace (Ethernet types, IP
protocols, UDP ports, ...), its lower 16 bits the number on the wire. A row without a condition applies to every packet
of its kinds; rows with conditions are tried in the order of the table.

Sources: IEEE 802.1Q, 802.1AE, 802.1BR, 802.3, 802.11; RFC 1332, 1661, 2003, 2516, 2637, 2661, 2784, 2890, 3032, 3378,
3931, 3948, 4302, 4303, 4380, 4385, 4448, 5415, 6325, 7348, 7510, 8086, 8200, 8300, 8926, 9300; 3GPP TS 29.281;
draft-foschiano-erspan; draft-ietf-intarea-gue; draft-ietf-nvo3-vxlan-gpe; tcpdump.org/linktypes.html; wireguard.com.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from mqpcap.records import dataclass

# Namespaces of kinds.
ETHERNET_TYPE, IP_PROTOCOL, UDP_PORT, PPP_PROTOCOL, LINK_TYPE, FAMILY, GTP_EXTENSION, GPE_PROTOCOL, STATE = (
    number << 16 for number in range(9)
)
NAMESPACE_COUNT = 9

# Kinds that no number on the wire names.
IP, LLC, MPLS, MPLS_PAYLOAD, PPP, PPP_NUMBER, WLAN, WLAN_SWAPPED, CAPWAP_WLAN, TEREDO, NFLOG_FIELD, TZSP_FIELD = (
    STATE + number for number in range(1, 13)
)
WLAN_QOS, WLAN_QOS_4, SUBFRAME, L2TPV3, ESP_CONTENT, TUNNEL_HINT = (STATE + number for number in range(13, 19))
WHOLE_IP, TUNNEL_GUESS = STATE + 64, STATE + 65
"""Guesses. A packet that does not fit counts as if there had been none."""
SUBFRAMES_LINK_TYPE = 0xFFFF
"""Link type, of no file, of one subframe of an aggregated frame."""
ENCRYPTED, PIECES, WLAN_MANAGEMENT, WLAN_CONTROL, WLAN_EMPTY, IKE = (STATE + number for number in range(101, 107))
IPV4, IPV6, BRIDGED = ETHERNET_TYPE + 0x0800, ETHERNET_TYPE + 0x86DD, ETHERNET_TYPE + 0x6558
ANY_UDP = UDP_PORT + 0
"""The payload of a UDP packet whose ports have no row."""
TCP, UDP, IPV6_FRAGMENT = IP_PROTOCOL + 6, IP_PROTOCOL + 17, IP_PROTOCOL + 44


@dataclass(frozen=True, slots=True)
class Field:
    """An unsigned number in a header. width: 1, 2, or -2 for little-endian. A negative offset counts from the header's
    end."""

    offset: int
    width: int
    namespace: int = 0


@dataclass(frozen=True, slots=True)
class Length:
    """Length of a header: ``plus`` and the masked field, shifted left (right if negative), rounded up to ``align``."""

    field: Field
    mask: int = 0xFFFF
    shift: int = 0
    plus: int = 0
    align: int = 1


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A row of the table.

    ``kinds``: the values that announce the header. ``head``: its fixed bytes.
    ``next_kind``: the kind that follows, or the field that names it.
    ``when``: (offset, mask, value) of the 32-bit word that the header must have.
    ``optional``: (mask, bytes) of parts that are there if the first 32-bit word has all bits of the mask.
    """

    name: str
    kinds: tuple[int, ...]
    head: int
    next_kind: int | Field
    when: tuple[int, int, int] = (0, 0, 0)
    length: Length | None = None
    optional: tuple[tuple[int, int], ...] = ()


def _kinds(namespace: int, *numbers: int | range) -> tuple[int, ...]:
    each = (number if isinstance(number, range) else (number,) for number in numbers)
    return tuple(namespace + number for group in each for number in group)


def _ethernet_type(offset: int) -> Field:
    return Field(offset, 2, ETHERNET_TYPE)


def _pseudowires(name: str, kinds: tuple[int, ...], *heads: int, next_kind: int = BRIDGED) -> Iterable[Wrapping]:
    """Ethernet after a header of unknown length, which the position of the Ethernet type shows."""
    for head in heads:
        for number in (0x0800, 0x86DD, 0x8100, 0x88A8, 0x8847, 0x8864):
            yield Wrapping(name, kinds, head, next_kind, (head + 10, 0xFFFF, number))


def _l2tp_with_offset() -> Iterable[Wrapping]:
    """L2TP data messages with padding; the optional fields precede its length."""
    for length_bit, length_size in ((0, 0), (0x4000, 2)):
        for sequence_bit, sequence_size in ((0, 0), (0x0800, 4)):
            head, bits = 8 + length_size + sequence_size, 0x0202 | length_bit | sequence_bit
            size = Length(Field(head - 2, 2), plus=head)
            yield Wrapping("L2TP", _L2TP, head, PPP, (0, 0xCA0F0000, bits << 16), size)


_MPLS = (
    MPLS, *_kinds(ETHERNET_TYPE, 0x8847, 0x8848), *_kinds(PPP_PROTOCOL, 0x0281, 0x0283), *_kinds(IP_PROTOCOL, 137),
    *_kinds(UDP_PORT, 6635), *_kinds(GPE_PROTOCOL, 5), *_kinds(LINK_TYPE, 219),
)  # fmt: skip
_PPP = (PPP, *_kinds(LINK_TYPE, 9), *_kinds(ETHERNET_TYPE, 0x880B))
_WLAN, _LLC = (WLAN, *_kinds(LINK_TYPE, 105)), (LLC, *_kinds(ETHERNET_TYPE, range(1501)))
_TEREDO = (TEREDO, *_kinds(UDP_PORT, 3544))
_L2TP, _GTP = _kinds(UDP_PORT, 1701), _kinds(UDP_PORT, 2152)
_GRE = (*_kinds(IP_PROTOCOL, 47), *_kinds(UDP_PORT, 4754))
_CAPWAP, _ERSPAN_3, _PPPOE = _kinds(UDP_PORT, 5247), _kinds(ETHERNET_TYPE, 0x22EB), _kinds(ETHERNET_TYPE, 0x8864)
_WLAN_DATA = (0x80000000, 2), (0x00030000, 6), (0x80800000, 4)  # QoS; a fourth address; both with HT control

WRAPPINGS: tuple[Wrapping, ...] = (
    # Ethernet, and what stands between it and IP
    Wrapping("Ethernet", (BRIDGED, *_kinds(LINK_TYPE, 1), *_kinds(GPE_PROTOCOL, 3)), 14, _ethernet_type(12)),
    Wrapping("VLAN", _kinds(ETHERNET_TYPE, 0x8100, 0x88A8, 0x9100, 0x9200), 4, _ethernet_type(2)),
    Wrapping("LLC", _LLC, 8, _ethernet_type(6), (0, 0xFFFFFF00, 0xAAAA0300)),
    Wrapping("LLC", _LLC, 3, IP, (0, 0xFFFFFF00, 0x06060300)),
    Wrapping("Cisco metadata", _kinds(ETHERNET_TYPE, 0x8909), 4, _ethernet_type(-2),
             length=Length(Field(1, 1), shift=2, plus=4)),
    Wrapping("MACsec", _kinds(ETHERNET_TYPE, 0x88E5), 8, _ethernet_type(-2), (0, 0x8C000000, 0),
             optional=((0x20000000, 8),)),
    Wrapping("MACsec", _kinds(ETHERNET_TYPE, 0x88E5), 6, ENCRYPTED),
    Wrapping("802.1BR", _kinds(ETHERNET_TYPE, 0x893F), 8, _ethernet_type(6)),
    Wrapping("VN-tag", _kinds(ETHERNET_TYPE, 0x8926), 6, _ethernet_type(4)),
    Wrapping("HSR", _kinds(ETHERNET_TYPE, 0x892F, 0xF1C1), 6, _ethernet_type(4)),
    Wrapping("EDSA", _kinds(ETHERNET_TYPE, 0xDADA), 8, _ethernet_type(6)),
    Wrapping("PBB", _kinds(ETHERNET_TYPE, 0x88E7), 4, BRIDGED),
    Wrapping("FabricPath", _kinds(ETHERNET_TYPE, 0x8903), 2, BRIDGED),
    Wrapping("TRILL", _kinds(ETHERNET_TYPE, 0x22F3), 6, BRIDGED, length=Length(Field(0, 2), 0x07C0, -4, 6)),
    Wrapping("NSH", (*_kinds(ETHERNET_TYPE, 0x894F), *_kinds(GPE_PROTOCOL, 4)), 8, Field(3, 1, GPE_PROTOCOL),
             length=Length(Field(0, 2), 0x3F, 2)),
    # MPLS: labels up to the bottom of the stack
    Wrapping("MPLS", _MPLS, 4, MPLS, (0, 0x100, 0)),
    Wrapping("MPLS", _MPLS, 4, MPLS_PAYLOAD),
    Wrapping("MPLS", (MPLS_PAYLOAD,), 0, IP, (0, 0xF0000000, 0x40000000)),
    Wrapping("MPLS", (MPLS_PAYLOAD,), 0, IP, (0, 0xF0000000, 0x60000000)),
    *_pseudowires("MPLS", (MPLS_PAYLOAD,), 4, 0),  # with a control word, and without
    # PPP: address and control bytes may be left out, and so may the first byte of the protocol number
    Wrapping("PPPoE", (*_PPPOE, *_kinds(LINK_TYPE, 51)), 6, PPP_NUMBER, (0, 0x00FF0000, 0)),
    Wrapping("Cisco HDLC", _kinds(LINK_TYPE, 50), 4, _ethernet_type(2), (0, 0x7FFF0000, 0x0F000000)),
    Wrapping("PPP", _kinds(LINK_TYPE, 50), 0, PPP),
    Wrapping("PPP", _kinds(LINK_TYPE, 166), 2, PPP_NUMBER, (0, 0xFEFF0000, 0x00030000)),  # the direction, then 03
    Wrapping("PPP", _kinds(LINK_TYPE, 166), 0, PPP),
    Wrapping("Cisco HDLC", _PPP, 4, _ethernet_type(2), (0, 0x7FFF0000, 0x0F000000)),  # some files say PPP
    Wrapping("PPP", _PPP, 2, PPP_NUMBER, (0, 0xFFFF0000, 0xFF030000)),
    Wrapping("PPP", _PPP, 0, PPP_NUMBER),
    Wrapping("PPP", (PPP_NUMBER,), 1, Field(0, 1, PPP_PROTOCOL), (0, 0x01000000, 0x01000000)),
    Wrapping("PPP", (PPP_NUMBER,), 2, Field(0, 2, PPP_PROTOCOL)),
    Wrapping("PPP", _kinds(PPP_PROTOCOL, 0x21, 0x57), 0, IP),
    Wrapping("PPP bridging", _kinds(PPP_PROTOCOL, 0x31), 2, BRIDGED, (0, 0x00FF0000, 0x00010000),
             optional=((0x40000000, 4),)),
    # within IP
    Wrapping("IP in IP", _kinds(IP_PROTOCOL, 4, 41, 94), 0, IP),
    Wrapping("IPv6 extension", _kinds(IP_PROTOCOL, 0, 43, 60, 135, 139, 140), 8, Field(0, 1, IP_PROTOCOL),
             length=Length(Field(1, 1), shift=3, plus=8)),
    Wrapping("AH", _kinds(IP_PROTOCOL, 51), 8, Field(0, 1, IP_PROTOCOL), length=Length(Field(1, 1), shift=2, plus=8)),
    Wrapping("ESP", _kinds(IP_PROTOCOL, 50), 8, ESP_CONTENT),
    # a session id, then a cookie of 0, 4 or 8 bytes and a sublayer of 0 or 4
    *_pseudowires("L2TPv3", (*_kinds(IP_PROTOCOL, 115), L2TPV3), 8, 4, 12, 16),
    Wrapping("EtherIP", _kinds(IP_PROTOCOL, 97), 2, BRIDGED, (0, 0xF0000000, 0x30000000)),
    # GRE: ERSPAN I has no sequence number and no header of its own; EoIP and PPTP are version 1
    Wrapping("ERSPAN", _GRE, 4, BRIDGED, (0, 0x5007FFFF, 0x88BE), optional=((0x80000000, 4), (0x20000000, 4))),
    Wrapping("GRE", _GRE, 4, _ethernet_type(2), (0, 0x40070000, 0),
             optional=((0x80000000, 4), (0x20000000, 4), (0x10000000, 4))),
    Wrapping("EoIP", _GRE, 8, BRIDGED, (0, 0xFFFFFFFF, 0x20016400)),
    Wrapping("PPTP", _GRE, 8, PPP, (0, 0x0007FFFF, 0x0001880B), optional=((0x10000000, 4), (0x00800000, 4))),
    Wrapping("ERSPAN", _kinds(ETHERNET_TYPE, 0x88BE), 8, BRIDGED),
    Wrapping("ERSPAN", _ERSPAN_3, 12, BRIDGED, (8, 0x7C01, 0)),
    Wrapping("ERSPAN", _ERSPAN_3, 20, BRIDGED, (8, 0x7C01, 1)),
    Wrapping("ERSPAN", _ERSPAN_3, 12, IP, (8, 0x7C01, 0x0800)),
    Wrapping("ERSPAN", _ERSPAN_3, 20, IP, (8, 0x7C01, 0x0801)),
    Wrapping("WCCP", _kinds(ETHERNET_TYPE, 0x883E), 0, IP, (0, 0xF0000000, 0x40000000)),
    Wrapping("WCCP", _kinds(ETHERNET_TYPE, 0x883E), 4, IP),
    # within UDP
    Wrapping("VXLAN", _kinds(UDP_PORT, 4789, 8472), 8, BRIDGED, (0, 0x08000000, 0x08000000)),
    Wrapping("VXLAN-GPE", _kinds(UDP_PORT, 4790), 8, Field(3, 1, GPE_PROTOCOL), (0, 0x0C000000, 0x0C000000)),
    Wrapping("VXLAN-GPE", _kinds(UDP_PORT, 4790), 8, BRIDGED, (0, 0x0C000000, 0x08000000)),
    Wrapping("VXLAN-GPE", _kinds(GPE_PROTOCOL, 1, 2), 0, IP),
    Wrapping("Geneve", _kinds(UDP_PORT, 6081), 8, _ethernet_type(2), (0, 0xC0000000, 0),
             Length(Field(0, 1), 0x3F, 2, 8)),
    Wrapping("GTP-U", _GTP, 8, IP, (0, 0xF7FF0000, 0x30FF0000)),
    Wrapping("GTP-U", _GTP, 12, Field(11, 1, GTP_EXTENSION), (0, 0xF4FF0000, 0x34FF0000)),
    Wrapping("GTP-U", _GTP, 12, IP, (0, 0xF4FF0000, 0x30FF0000)),
    Wrapping("GTP-U", _kinds(GTP_EXTENSION, range(1, 256)), 4, Field(-1, 1, GTP_EXTENSION),
             length=Length(Field(0, 1), shift=2)),
    Wrapping("GTP-U", _kinds(GTP_EXTENSION, 0), 0, IP),
    *_l2tp_with_offset(),
    Wrapping("L2TP", _L2TP, 6, PPP, (0, 0x820F0000, 0x00020000), optional=((0x40000000, 2), (0x08000000, 4))),
    Wrapping("L2TPv3", _L2TP, 4, L2TPV3, (0, 0x800F0000, 0x00030000)),
    Wrapping("GUE", _kinds(UDP_PORT, 6080), 4, Field(1, 1, IP_PROTOCOL), (0, 0xE0000000, 0),
             Length(Field(0, 1), 0x1F, 2, 4)),
    Wrapping("GUE", _kinds(UDP_PORT, 6080), 0, IP, (0, 0xC0000000, 0x40000000)),
    Wrapping("IKE", _kinds(UDP_PORT, 4500), 4, IKE, (0, 0xFFFFFFFF, 0)),
    Wrapping("ESP", _kinds(UDP_PORT, 4500), 0, IP_PROTOCOL + 50),
    Wrapping("FOU", (ANY_UDP,), 0, WHOLE_IP, (0, 0xF0000000, 0x40000000)),
    Wrapping("FOU", (ANY_UDP,), 0, WHOLE_IP, (0, 0xF0000000, 0x60000000)),
    Wrapping("WireGuard", (ANY_UDP,), 0, ENCRYPTED, (0, 0xFFFFFFFF, 0x04000000)),
    Wrapping("VXLAN", (ANY_UDP,), 0, TUNNEL_GUESS, (0, 0xFFFFFFFF, 0x08000000)),
    *_pseudowires("VXLAN", (TUNNEL_GUESS,), 8, next_kind=TUNNEL_HINT),
    Wrapping("Teredo", _TEREDO, 0, IP, (0, 0xF0000000, 0x60000000)),
    Wrapping("Teredo", _TEREDO, 8, TEREDO, (0, 0xFFFF0000, 0)),
    Wrapping("Teredo", _TEREDO, 13, TEREDO, (0, 0xFFFFFFFF, 0x00010000)),
    Wrapping("LISP", _kinds(UDP_PORT, 4341), 8, IP),
    # version and payload type; K: keep-alive; F: fragment; T: a frame of 802.11 instead of 802.3
    Wrapping("CAPWAP", _CAPWAP, 4, ENCRYPTED, (0, 0xFF000000, 0x01000000)),
    Wrapping("CAPWAP", _CAPWAP, 8, PIECES, (0, 0xFF000080, 0x00000080)),
    Wrapping("CAPWAP", _CAPWAP, 8, BRIDGED, (0, 0xFF000188, 0), Length(Field(1, 1), 0xF8, -1)),
    Wrapping("CAPWAP", _CAPWAP, 8, CAPWAP_WLAN, (0, 0xFF000188, 0x00000100), Length(Field(1, 1), 0xF8, -1)),
    Wrapping("CAPWAP", (CAPWAP_WLAN,), 0, WLAN, (0, 0x0F000000, 0x08000000)),
    Wrapping("CAPWAP", (CAPWAP_WLAN,), 0, WLAN_SWAPPED),  # some controllers send both bytes in the wrong order
    Wrapping("TZSP", _kinds(UDP_PORT, 37008), 4, TZSP_FIELD, (0, 0xFF00FFFF, 0x01000001)),
    Wrapping("TZSP", (TZSP_FIELD,), 1, TZSP_FIELD, (0, 0xFF000000, 0)),
    Wrapping("TZSP", (TZSP_FIELD,), 1, BRIDGED, (0, 0xFF000000, 0x01000000)),
    Wrapping("TZSP", (TZSP_FIELD,), 2, TZSP_FIELD, length=Length(Field(1, 1), plus=2)),
    # 802.11, with what cards and drivers put in front of it
    Wrapping("802.11", _WLAN, 0, WLAN_QOS, (0, 0xCF440000, 0x88000000)),
    Wrapping("802.11", _WLAN, 24, LLC, (0, 0x4F440000, 0x08000000), optional=_WLAN_DATA),
    # Frames with QoS may be aggregates (A-MSDU); a fourth address stands before the bit that says so.
    Wrapping("802.11", (WLAN_QOS,), 0, WLAN_QOS_4, (0, 0x00030000, 0x00030000)),
    Wrapping("802.11", (WLAN_QOS,), 26, SUBFRAME, (22, 0x8000, 0x8000), optional=((0x00800000, 4),)),
    Wrapping("802.11", (WLAN_QOS,), 26, LLC, optional=((0x00800000, 4),)),
    Wrapping("802.11", (WLAN_QOS_4,), 32, SUBFRAME, (28, 0x8000, 0x8000), optional=((0x00800000, 4),)),
    Wrapping("802.11", (WLAN_QOS_4,), 32, LLC, optional=((0x00800000, 4),)),
    Wrapping("802.11", _WLAN, 24, ENCRYPTED, (0, 0x4F400000, 0x08400000)),
    Wrapping("802.11", _WLAN, 24, PIECES, (0, 0x4F440000, 0x08040000)),
    Wrapping("802.11", _WLAN, 0, WLAN_EMPTY, (0, 0x4F000000, 0x48000000)),
    Wrapping("802.11", _WLAN, 0, WLAN_MANAGEMENT, (0, 0x0F000000, 0)),
    Wrapping("802.11", _WLAN, 0, WLAN_CONTROL, (0, 0x0F000000, 0x04000000)),
    Wrapping("802.11", (WLAN_SWAPPED,), 24, LLC, (0, 0x444F0000, 0x00080000),
             optional=((0x00800000, 2), (0x03000000, 6), (0x80800000, 4))),
    Wrapping("radiotap", _kinds(LINK_TYPE, 127), 8, WLAN, (0, 0xFF000000, 0), Length(Field(2, -2))),
    Wrapping("PPI", _kinds(LINK_TYPE, 192), 8, Field(4, -2, LINK_TYPE), (0, 0xFF000000, 0), Length(Field(2, -2))),
    # other link types
    Wrapping("raw IP", _kinds(LINK_TYPE, 12, 14, 101, 228, 229), 0, IP),
    Wrapping("BSD loopback", _kinds(LINK_TYPE, 0, 108), 4, Field(2, 2, FAMILY), (0, 0xFFFF0000, 0)),
    Wrapping("BSD loopback", _kinds(LINK_TYPE, 0, 108), 4, Field(0, -2, FAMILY)),
    Wrapping("ENC", _kinds(LINK_TYPE, 109), 12, Field(2, 2, FAMILY), (0, 0xFFFF0000, 0)),
    Wrapping("ENC", _kinds(LINK_TYPE, 109), 12, Field(0, -2, FAMILY)),
    Wrapping("PFLOG", _kinds(LINK_TYPE, 117), 4, Field(1, 1, FAMILY), length=Length(Field(0, 1), align=4)),
    # AF_INET; AF_INET6 of Linux, NetBSD, FreeBSD and Darwin
    Wrapping("BSD loopback", _kinds(FAMILY, 2, 10, 24, 28, 30), 0, IP),
    Wrapping("Linux cooked", _kinds(LINK_TYPE, 113), 16, _ethernet_type(14)),
    Wrapping("Linux cooked", _kinds(LINK_TYPE, 276), 20, _ethernet_type(0)),
    Wrapping("Cisco HDLC", _kinds(LINK_TYPE, 104), 4, _ethernet_type(2)),
    Wrapping("PPP", _kinds(LINK_TYPE, 204), 1, PPP),
    Wrapping("FDDI", _kinds(LINK_TYPE, 10), 13, LLC),
    Wrapping("ATM", _kinds(LINK_TYPE, 100), 0, LLC),
    Wrapping("NFLOG", _kinds(LINK_TYPE, 239), 4, NFLOG_FIELD, (0, 0x00FF0000, 0)),
    Wrapping("NFLOG", (NFLOG_FIELD,), 4, IP, (0, 0xFFFF, 0x0900)),
    # The writer's byte order: little-endian, else big-endian.
    Wrapping("NFLOG", (NFLOG_FIELD,), 4, IP, (0, 0xFFFF, 0x0009)),
    Wrapping("NFLOG", (NFLOG_FIELD,), 4, NFLOG_FIELD, (0, 0xFF000000, 0), Length(Field(0, 2), align=4)),
    Wrapping("NFLOG", (NFLOG_FIELD,), 4, NFLOG_FIELD, length=Length(Field(0, -2), align=4)),
    Wrapping("PKTAP", _kinds(LINK_TYPE, 149, 258), 12, Field(8, -2, LINK_TYPE), (4, 0xFFFFFFFF, 0x01000000),
             Length(Field(0, -2))),
    Wrapping("IP over InfiniBand", _kinds(LINK_TYPE, 242), 44, _ethernet_type(40)),
    Wrapping("Broadcom tag", _kinds(LINK_TYPE, 281), 18, _ethernet_type(16)),
    Wrapping("Broadcom tag", _kinds(LINK_TYPE, 282), 4, BRIDGED),
    Wrapping("DSA", _kinds(LINK_TYPE, 283), 18, _ethernet_type(16)),
    Wrapping("EDSA", _kinds(LINK_TYPE, 284), 22, _ethernet_type(20)),
)  # fmt: skip

# Packets that carry no TCP: counted by name, without a warning.
FOREIGN: dict[int, str] = {
    UDP: "UDP", IP_PROTOCOL + 1: "ICMP", IP_PROTOCOL + 2: "IGMP", IP_PROTOCOL + 46: "RSVP", IP_PROTOCOL + 58: "ICMPv6",
    IP_PROTOCOL + 59: "empty IPv6", IP_PROTOCOL + 88: "EIGRP", IP_PROTOCOL + 89: "OSPF", IP_PROTOCOL + 103: "PIM",
    IP_PROTOCOL + 112: "VRRP", IP_PROTOCOL + 132: "SCTP", IP_PROTOCOL + 33: "DCCP", IP_PROTOCOL + 136: "UDP-Lite",
    0x0806: "ARP", 0x8035: "RARP", 0x0842: "Wake-on-LAN", 0x809B: "AppleTalk", 0x80F3: "AppleTalk ARP", 0x8137: "IPX",
    0x8808: "Ethernet pause", 0x8809: "LACP", 0x8863: "PPPoE discovery", 0x888E: "EAPOL", 0x88CC: "LLDP",
    0x88E1: "HomePlug", 0x8912: "HomePlug", 0x88F7: "PTP", 0x8902: "CFM", 0x9000: "loopback test", 0x2000: "CDP",
    0x2003: "DTP", 0x2004: "UDLD", 0x010B: "PVST+", 0x8892: "PROFINET", 0x88A4: "EtherCAT", 0x88BA: "IEC 61850",
    0x88B8: "GOOSE", 0x891D: "TTE", 0x893A: "IEEE 1905", 0x6002: "DEC MOP", 0x6003: "DECnet", 0x6004: "DEC LAT",
    LLC: "LLC", PPP_PROTOCOL + 0xC021: "PPP LCP", PPP_PROTOCOL + 0xC023: "PPP PAP", PPP_PROTOCOL + 0xC223: "PPP CHAP",
    PPP_PROTOCOL + 0x8021: "PPP IPCP", PPP_PROTOCOL + 0x8057: "PPP IPV6CP", PPP_PROTOCOL + 0x80FD: "PPP CCP",
    PPP_PROTOCOL + 0x8281: "PPP MPLSCP", PPP_PROTOCOL + 0xC025: "PPP LQR",
    WLAN_MANAGEMENT: "802.11 management", WLAN_CONTROL: "802.11 control", WLAN_EMPTY: "empty 802.11", IKE: "IKE",
}  # fmt: skip

# Packets that may carry TCP and are not read.
_UNREAD: dict[int, str] = {
    IP: "bytes that are not IP", MPLS_PAYLOAD: "unknown bytes", ENCRYPTED: "encrypted bytes", PIECES: "fragments",
    WLAN: "802.11 of an unknown type", IP_PROTOCOL + 50: "ESP", IP_PROTOCOL + 108: "IPComp",
    IP_PROTOCOL + 115: "L2TPv3", IP_PROTOCOL + 55: "minimal encapsulation", IP_PROTOCOL + 47: "GRE of an unknown kind",
    PPP_PROTOCOL + 0x2D: "compressed TCP", PPP_PROTOCOL + 0x2F: "compressed TCP", PPP_PROTOCOL + 0x3D: "PPP multilink",
    PPP_PROTOCOL + 0x53: "encrypted PPP", PPP_PROTOCOL + 0xFD: "compressed PPP", 0x4305: "B.A.T.M.A.N.",
}  # fmt: skip

LINK_TYPES: dict[int, str] = {
    0: "BSD loopback", 1: "Ethernet", 6: "token ring", 9: "PPP", 10: "FDDI", 12: "raw IP", 14: "raw IP", 50: "PPP",
    51: "PPPoE", 100: "ATM", 101: "raw IP", 104: "Cisco HDLC", 105: "802.11", 107: "frame relay", 108: "BSD loopback",
    109: "ENC", 113: "Linux cooked", 117: "PFLOG", 119: "Prism", 127: "radiotap", 147: "user 0", 149: "PKTAP",
    163: "AVS", 166: "PPP", 187: "Bluetooth", 189: "USB", 192: "PPI", 195: "802.15.4", 201: "Bluetooth", 204: "PPP",
    219: "MPLS", 220: "USB", 227: "CAN", 228: "IPv4", 229: "IPv6", 239: "NFLOG", 242: "IP over InfiniBand",
    247: "InfiniBand", 249: "USBPcap", 253: "netlink", 258: "PKTAP", 276: "Linux cooked 2", 281: "Broadcom tag",
    282: "Broadcom tag", 283: "DSA", 284: "EDSA",
}  # fmt: skip
_NUMBERED = {
    ETHERNET_TYPE: "Ethernet type 0x{:04x}", IP_PROTOCOL: "IP protocol {}", PPP_PROTOCOL: "PPP protocol 0x{:04x}",
    FAMILY: "address family {}", GPE_PROTOCOL: "VXLAN-GPE protocol {}", LINK_TYPE: "link type {}",
}  # fmt: skip
_PLAIN = frozenset(("Ethernet", "VLAN", "raw IP", "LLC"))
"""Wrappings that are left out of names."""


_UNREAD_PREFIX, _FOREIGN_PREFIX = "not read: ", "other: "
_DAMAGED = {
    "truncated_header": "headers cut off by the snap length",
    "bad_header": "damaged headers",
    "fragment_malformed": "damaged fragments",
    "too_deep": "too many headers",
}

NAMES_SHOWN = 8
"""Kinds of packets named in a note; further kinds are counted together."""


def link_type_name(number: int) -> str:
    """The name of a link type.

    >>> link_type_name(1), link_type_name(300)
    ('Ethernet', 'link type 300')
    """
    return LINK_TYPES.get(number, f"link type {number}")


def may_carry_tcp(kind: int) -> bool:
    """Whether packets of a kind that is not read may hold TCP segments.

    >>> may_carry_tcp(UDP), may_carry_tcp(IP_PROTOCOL + 108)
    (False, True)
    """
    return kind not in FOREIGN


def kind_name(kind: int, rule: int = 0) -> str:
    """The name of a packet that ends with this kind; rule: the row of its last header, 0 for none.

    >>> kind_name(IP_PROTOCOL + 108), kind_name(0x1234, 1)
    ('IPComp', 'Ethernet type 0x1234')
    """
    namespace, number = kind & ~0xFFFF, kind & 0xFFFF
    wrapping = WRAPPINGS[rule - 1].name if rule else "Ethernet"
    if namespace == UDP_PORT:
        return f"{wrapping} on UDP port {number} (-d udp.port=={number},{wrapping.lower()} reads it)"
    name = FOREIGN.get(kind) or _UNREAD.get(kind)
    if name is None and namespace == LINK_TYPE and number in LINK_TYPES:
        name = f"link type {number} ({LINK_TYPES[number]})"
    if name is None:
        name = _NUMBERED.get(namespace, "unknown bytes").format(number)
    return name if wrapping in _PLAIN or wrapping in name else f"{name} in {wrapping}"


def count_name(kind: int, rule: int) -> str:
    """The key of a packet in the counts of Segments; `unread` and `foreign` read it."""
    return (_UNREAD_PREFIX if may_carry_tcp(kind) else _FOREIGN_PREFIX) + kind_name(kind, rule)


def fragments_name(ip_protocol: int) -> str:
    """The key of fragments of incomplete datagrams in the counts of Segments.

    >>> fragments_name(6), fragments_name(17)
    ('not read: TCP fragments of incomplete datagrams', 'other: UDP fragments of incomplete datagrams')
    """
    kind = UDP if ip_protocol == 17 else IP_PROTOCOL + ip_protocol
    name = "TCP" if ip_protocol == 6 else kind_name(kind)
    return (_UNREAD_PREFIX if may_carry_tcp(kind) else _FOREIGN_PREFIX) + f"{name} fragments of incomplete datagrams"


def unread(counts: Mapping[str, int]) -> dict[str, int]:
    """From counts of Segments: packets that may be TCP and were not read, by name.

    >>> unread({"tcp": 5, "bad_header": 2, "not read: ESP": 1, "other: ARP": 7})
    {'damaged headers': 2, 'ESP': 1}
    """
    damaged = {name: counts[word] for word, name in _DAMAGED.items() if counts.get(word)}
    return damaged | _named(counts, _UNREAD_PREFIX)


def foreign(counts: Mapping[str, int]) -> dict[str, int]:
    """From counts of Segments: packets of protocols that do not carry TCP, by name."""
    return _named(counts, _FOREIGN_PREFIX)


def _named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


def unread_text(counts: Mapping[str, int]) -> str:
    """The packets that were not read, in words; empty if all were.

    >>> unread_text({"not read: ESP": 1, "not read: IPComp": 12})
    '12 packets: IPComp, not read; 1 packet: ESP, not read'
    """
    kinds = sorted(unread(counts).items(), key=lambda kind: (-kind[1], kind[0]))
    if len(kinds) > NAMES_SHOWN:
        further = kinds[NAMES_SHOWN - 1 :]
        kinds[NAMES_SHOWN - 1 :] = [(f"{len(further)} other kinds", sum(count for _, count in further))]
    return "; ".join(f"{count:,} packet{'s' * (count != 1)}: {name}, not read" for name, count in kinds)


def _columns(wrapping: Wrapping) -> list[int]:
    length = wrapping.length or Length(Field(0, 0))
    next_kind = wrapping.next_kind if isinstance(wrapping.next_kind, Field) else Field(0, 0, wrapping.next_kind)
    optional = [number for part in (*wrapping.optional, *[(0, 0)] * 3)[:3] for number in part]
    size = (length.field.offset, length.field.width, length.mask, length.shift, length.plus, length.align)
    return [*wrapping.when, wrapping.head, *size, next_kind.offset, next_kind.width, next_kind.namespace, *optional]


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """A line of numbers for each row, from 1; and the first row of each kind.

    The last two numbers of a line: the row to try next if the condition is not met, and the kind to report if none is.
    """
    index = np.zeros(NAMESPACE_COUNT << 16, np.int16)
    last_row: dict[int, int] = {}
    lines = [[0] * 21]
    for number, wrapping in enumerate(WRAPPINGS, 1):
        is_udp = wrapping.kinds[0] & ~0xFFFF == UDP_PORT or TUNNEL_GUESS in wrapping.kinds
        reported = UDP if is_udp else wrapping.kinds[0]
        lines.append([*_columns(wrapping), 0, reported])
        for kind in wrapping.kinds:
            if kind in last_row:
                lines[last_row[kind]][-2] = number
            else:
                index[kind] = number
            last_row[kind] = number
    return np.array(lines, np.int64), index


RULES, RULE_INDEX = _tables()
TUNNELS = {x.name.lower(): kind for x in WRAPPINGS for kind in x.kinds if ANY_UDP < kind < ANY_UDP + 65536}
"""By name as Decode As takes it: the kind of a tunnel's UDP port."""


@lru_cache(8)
def rule_index(rules: Iterable[tuple[int, str]]) -> memoryview:
    """RULE_INDEX, with tunnels on UDP ports of one's own; other rules are of TCP ports, and no matter here."""
    index = RULE_INDEX.copy()
    for port, name in rules:
        if name in TUNNELS:
            index[UDP_PORT + port] = index[TUNNELS[name]]
    return memoryview(index)
