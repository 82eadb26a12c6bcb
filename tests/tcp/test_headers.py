"""The headers: which bytes of a packet are TCP payload, and whose."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import GRE, IP, TCP, UDP, IPOption_RR, fragment
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import LLC, SNAP, CookedLinux, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from mqpcap.capture import Window
from mqpcap.tcp import fragments
from mqpcap.tcp.headers import COUNTS, Dissector, address_text
from mqpcap.tcp.reassembly import Reassembler
from mqpcap.tcp.wrappings import unread


def window(frames, link_type=1, wirelen=None, ts_ns=None):
    data = [bytes(frame) for frame in frames]
    caplen = np.array([len(frame) for frame in data], np.int64)
    count = len(data)
    return Window(
        buffer=np.frombuffer(b"".join(data), np.uint8).copy(),
        offset=np.cumsum(caplen) - caplen,
        caplen=caplen,
        wirelen=caplen if wirelen is None else np.array(wirelen, np.int64),
        ts_ns=np.arange(count, dtype=np.int64) * 1000 if ts_ns is None else np.array(ts_ns, np.int64),
        link_type=np.full(count, link_type, np.int32),
        packet_number=np.arange(1, count + 1, dtype=np.int64),
        file=0,
    )


def segments(*frames, link_type=1, wirelen=None):
    return Dissector().segments(window(frames, link_type, wirelen))


def payload(found, row=0):
    start = int(found.start[row])
    return found.buffer[start : start + int(found.length[row])].tobytes()


def payloads(found):
    return [payload(found, row) for row in range(len(found.start))]


def counted(found):
    return {word: count for word, count in found.counts.items() if count and word in COUNTS}


V4 = IP(src="10.1.2.3", dst="192.168.0.254")
V6 = IPv6(src="2001:db8::1", dst="fe80::ff")
SEGMENT = TCP(sport=40000, dport=9092, seq=0xFFFFFFF0, ack=0x80000001, flags="PA", window=65535) / Raw(b"payload")
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def test_every_column_of_a_segment():
    found = segments(ETHER / V4 / SEGMENT)

    assert (address_text(4, found.src_hi[0], found.src_lo[0]), address_text(4, 0, found.dst_lo[0])) == (
        "10.1.2.3",
        "192.168.0.254",
    )
    assert (found.version[0], found.sport[0], found.dport[0]) == (4, 40000, 9092)
    assert (found.seq[0], found.ack[0], found.flags[0]) == (0xFFFFFFF0, 0x80000001, 0x18)
    assert (payload(found), found.length[0], found.wire_length[0]) == (b"payload", 7, 7)
    assert (found.packet_number[0], found.file[0], found.counts["tcp"]) == (1, 0, 1)
    assert found.seq.dtype == np.int64 and found.version.dtype == np.int8 and found.file.dtype == np.int32


def test_ipv6_addresses_keep_their_top_bit():
    found = segments(ETHER / V6 / SEGMENT)

    assert found.dst_hi[0] < 0
    texts = [
        address_text(6, int(hi[0]), int(lo[0]))
        for hi, lo in ((found.src_hi, found.src_lo), (found.dst_hi, found.dst_lo))
    ]
    assert texts == ["2001:db8::1", "fe80::ff"]


def test_mapped_ipv4_has_one_text_in_every_python():
    assert address_text(6, 0, 0xFFFFC000020A) == "::ffff:192.0.2.10"  # RFC 5952, 5
    assert address_text(6, 0, 0xC000020A) == "::c000:20a"


@pytest.mark.parametrize(
    ("flags", "options", "captured", "upper"),
    [
        ("S", [("WScale", 7)], 99, 9),
        ("SA", [("MSS", 1460), ("NOP", None), ("WScale", 0), ("SAckOK", b"")], 99, 2),
        ("S", [("MSS", 1460), ("SAckOK", b"")], 99, 1),
        ("S", [], 99, 1),
        ("S", [("WScale", 200)], 99, 16),  # RFC 7323: 14 at most
        ("S", [("MSS", 1460), ("NOP", None), ("WScale", 7)], 14 + 20 + 24, 0),
        ("A", [("WScale", 7)], 99, 0),
    ],
)
def test_window_and_its_scale(flags, options, captured, upper):
    frame = bytes(Ether() / IP() / TCP(flags=flags, options=options, window=512))
    found = segments(frame[:captured], wirelen=[len(frame)])

    assert found.window.tolist() == [upper << 16 | 512]


def test_key_is_the_same_for_both_directions_and_differs_between_connections():
    back = IP(src="192.168.0.254", dst="10.1.2.3") / TCP(sport=9092, dport=40000)
    swapped_ports = V4 / TCP(sport=9092, dport=40000)
    key = segments(ETHER / V4 / SEGMENT, ETHER / back, ETHER / swapped_ports, ETHER / V6 / SEGMENT).key

    assert key[0] == key[1]
    assert len(set(key.tolist())) == 3


def test_ethernet_padding_is_no_payload():
    found = segments(bytes(ETHER / V4 / TCP() / Raw(b"hi")) + bytes(4))

    assert (payload(found), found.wire_length[0]) == (b"hi", 2)


def test_segment_without_payload():
    found = segments(bytes(ETHER / V4 / TCP()) + bytes(6))

    assert (found.length[0], found.wire_length[0]) == (0, 0)


LINKS = {
    "ethernet": (1, bytes(ETHER)[:12] + b"\x08\x00", bytes(ETHER)[:12] + b"\x86\xdd"),
    "cooked": (113, bytes(CookedLinux(proto=0x800)), bytes(CookedLinux(proto=0x86DD))),
    "cooked2": (
        276,
        struct.pack(">HHIHBB8s", 0x800, 0, 1, 1, 0, 6, b""),
        struct.pack(">HHIHBB8s", 0x86DD, 0, 1, 1, 0, 6, b""),
    ),
    "null little": (0, struct.pack("<I", 2), struct.pack("<I", 30)),
    "null big": (0, struct.pack(">I", 2), struct.pack(">I", 24)),
    "loop": (108, struct.pack(">I", 2), struct.pack(">I", 28)),
    "raw": (101, b"", b""),
    "raw of OpenBSD": (14, b"", b""),
    "raw of others": (12, b"", b""),
    "ppp": (9, b"\xff\x03\x00\x21", b"\x00\x57"),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name):
    link_type, before_v4, before_v6 = LINKS[name]
    found = segments(before_v4 + bytes(V4 / SEGMENT), before_v6 + bytes(V6 / SEGMENT), link_type=link_type)

    assert payloads(found) == [b"payload", b"payload"]
    assert found.version.tolist() == [4, 6]


def test_raw_link_types_of_one_version():
    assert payloads(segments(V4 / SEGMENT, link_type=228)) == [b"payload"]
    assert payloads(segments(V6 / SEGMENT, link_type=229)) == [b"payload"]


def test_unknown_link_type_is_counted():
    assert counted(segments(ETHER / V4 / SEGMENT, link_type=147)) == {"unknown_link_type": 1}


INNER = ETHER / V4 / SEGMENT
OUTER = Ether() / IP(src="1.1.1.1", dst="2.2.2.2")
STACKS = {
    "vlan": ETHER / Dot1Q(vlan=5) / V4 / SEGMENT,
    "qinq": ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=6) / V4 / SEGMENT,
    "old qinq": ETHER / Dot1Q(vlan=5, type=0x9100) / Dot1Q(vlan=5, type=0x800) / V4 / SEGMENT,
    "snap": Dot3() / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(code=0x800) / V4 / SEGMENT,
    "ip options": ETHER / IP(src="10.1.2.3", dst="192.168.0.254", options=[IPOption_RR(routers=["1.2.3.4"])]) / SEGMENT,
    "hop by hop": ETHER / V6 / IPv6ExtHdrHopByHop() / SEGMENT,
    "routing": ETHER / V6 / IPv6ExtHdrRouting(addresses=["::1", "::2"]) / SEGMENT,
    "several": ETHER
    / V6
    / IPv6ExtHdrHopByHop()
    / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrRouting()
    / IPv6ExtHdrDestOpt()
    / SEGMENT,
    "atomic fragment": ETHER / V6 / IPv6ExtHdrFragment(offset=0, m=0) / SEGMENT,
    "authentication": ETHER / V6 / AH(nh=6, payloadlen=4, icv=bytes(12)) / SEGMENT,
    "vxlan": OUTER / UDP(dport=4789) / VXLAN(vni=7) / INNER,
    "vxlan of linux": OUTER / UDP(dport=8472) / VXLAN(vni=7) / INNER,
    "vxlan over vlan over v6": Ether() / Dot1Q() / IPv6() / UDP(dport=4789) / VXLAN() / ETHER / Dot1Q() / V4 / SEGMENT,
    "geneve": OUTER / UDP(dport=6081) / GENEVE(vni=7) / INNER,
    "geneve with options": OUTER
    / UDP(dport=6081)
    / Raw(struct.pack(">BBHI", 2, 0, 0x6558, 0) + bytes(8) + bytes(INNER)),
    "geneve of ip": OUTER / UDP(dport=6081) / Raw(struct.pack(">BBHI", 0, 0, 0x800, 0) + bytes(V4 / SEGMENT)),
    "gre": OUTER / GRE(proto=0x800) / V4 / SEGMENT,
    "gre of v6": OUTER / GRE(proto=0x86DD) / V6 / SEGMENT,
    "gre with all": OUTER / GRE(chksum_present=1, key_present=1, seqnum_present=1, proto=0x800) / V4 / SEGMENT,
    "gre bridging": OUTER / GRE(proto=0x6558, key_present=1) / INNER,
    "ip in ip": OUTER / V4 / SEGMENT,
    "v6 in ip": OUTER / V6 / SEGMENT,
    "ip in v6": Ether() / IPv6() / V4 / SEGMENT,
    "tunnel in tunnel": OUTER / UDP(dport=4789) / VXLAN() / OUTER / GRE(proto=0x800) / V4 / SEGMENT,
}


@pytest.mark.parametrize("name", STACKS)
def test_headers_and_tunnels_are_opened(name):
    found = segments(STACKS[name])

    assert payloads(found) == [b"payload"]
    assert (found.sport[0], found.wire_length[0]) == (40000, 7)
    inner = address_text(int(found.version[0]), int(found.src_hi[0]), int(found.src_lo[0]))
    assert inner in ("10.1.2.3", "2001:db8::1")


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (ETHER / V4 / UDP(dport=53) / Raw(b"x" * 40), "not_tcp"),
        (ETHER / V4 / UDP(dport=4789) / Raw(bytes(40)), "not_tcp"),
        (ETHER / V4 / UDP(dport=4789) / Raw(b"abc"), "not_tcp"),
        (OUTER / GRE(proto=0x880B, version=2) / Raw(bytes(40)), "not_tcp"),
        (bytes(ETHER)[:12] + b"\x08\x06" + bytes(28), "not_ip"),
        (bytes(10), "bad_header"),
        (bytes(ETHER / V4 / SEGMENT)[:14] + b"\x41" + bytes(60), "bad_header"),
        (ETHER / V4 / TCP(dataofs=4), "bad_header"),
        (ETHER / V4 / TCP(dataofs=15), "bad_header"),
        (ETHER / IP(len=10) / TCP(), "bad_header"),
        (ETHER / IP(len=30) / TCP(), "bad_header"),
    ],
)
def test_what_is_no_segment_is_counted(frame, word):
    assert counted(segments(frame)) == {word: 1}


def test_every_packet_is_counted_once():
    found = segments(INNER, ETHER / V4 / UDP(), bytes(14), INNER)

    assert sum(found.counts[word] for word in COUNTS[:8]) == 4
    assert found.packet_number.tolist() == [1, 4]


@pytest.mark.parametrize("length", range(54))
def test_header_cut_by_the_snap_length_is_counted(length):
    frame = bytes(ETHER / V4 / SEGMENT)
    found = segments(frame[:length], wirelen=[len(frame)])

    assert counted(found) == {"truncated_header": 1}


def test_payload_cut_by_the_snap_length_keeps_its_wire_length():
    frame = bytes(ETHER / V4 / SEGMENT)
    found = segments(frame[:-3], frame[:-7], wirelen=[len(frame)] * 2)

    assert payloads(found) == [b"payl", b""]
    assert found.wire_length.tolist() == [7, 7]


def test_options_cut_by_the_snap_length_leave_a_segment_without_bytes():
    frame = bytes(ETHER / V4 / TCP(options=[("NOP", None)] * 8) / Raw(b"payload"))
    found = segments(frame[: 14 + 20 + 22], wirelen=[len(frame)])

    assert (found.length[0], found.wire_length[0]) == (0, 7)


def test_total_length_zero_takes_what_was_captured_and_the_wire_length_of_the_record():
    frame = bytes(ETHER / IP(len=0) / SEGMENT)
    found = segments(frame, frame[:-2], wirelen=[len(frame), len(frame)])

    assert payloads(found) == [b"payload", b"paylo"]
    assert found.wire_length.tolist() == [7, 7]


def test_ipv6_payload_length_zero_takes_what_was_captured():
    found = segments(ETHER / IPv6(plen=0) / SEGMENT)

    assert payloads(found) == [b"payload"]


BIG = bytes(range(256)) * 20
DATAGRAM = V4 / TCP(sport=1, dport=2) / Raw(BIG)
PIECES = fragment(DATAGRAM, fragsize=800)
PIECES6 = fragment6(V6 / IPv6ExtHdrFragment(id=77) / TCP(sport=1, dport=2) / Raw(BIG), 1000)


@pytest.mark.parametrize("pieces", [PIECES, PIECES6], ids=["v4", "v6"])
@pytest.mark.parametrize("order", [1, -1])
def test_fragments_become_one_segment_with_the_packet_that_completed_it(pieces, order):
    frames = [INNER, *(ETHER / piece for piece in pieces[::order]), INNER]
    found = segments(*frames)

    assert payloads(found) == [b"payload", BIG, b"payload"]
    assert found.packet_number.tolist() == [1, len(frames) - 1, len(frames)]
    assert found.ts_ns.tolist() == [0, (len(frames) - 2) * 1000, (len(frames) - 1) * 1000]
    assert found.wire_length[1] == len(BIG)
    assert (found.counts["fragment"], found.counts["datagram"], found.counts["tcp"]) == (len(pieces), 1, 3)


def test_fragments_are_kept_from_one_window_for_the_next():
    dissector = Dissector()
    rows = [len(dissector.segments(window([ETHER / piece])).start) for piece in PIECES]

    assert rows == [0] * (len(PIECES) - 1) + [1]
    assert len(dissector._fragments) == 0


def test_first_copy_of_a_fragment_wins():
    other = PIECES[1].copy()
    other[Raw].load = bytes(len(other[Raw].load))
    found = segments(*(ETHER / piece for piece in (PIECES[0], PIECES[1], other, *PIECES[2:])))

    assert payloads(found) == [BIG]


def test_overlapping_fragments_are_tolerated():
    raw = bytes(TCP(sport=1, dport=2) / Raw(BIG[:1004]))

    def piece(start, end):
        more = "MF" if end < len(raw) else 0
        return (
            ETHER / IP(src="1.2.3.4", dst="5.6.7.8", id=9, proto=6, flags=more, frag=start // 8) / Raw(raw[start:end])
        )

    found = segments(piece(0, 400), piece(800, 1024), piece(160, 320), piece(200, 960))

    assert payloads(found) == [BIG[:1004]]


def test_tunnelled_datagram_is_opened_after_it_is_whole():
    inner = [ETHER / piece for piece in PIECES]
    outer = fragment(IP(src="1.1.1.1", dst="2.2.2.2") / UDP(dport=4789) / VXLAN() / inner[0], fragsize=400)
    rest = [OUTER / UDP(dport=4789) / VXLAN() / piece for piece in inner[1:]]

    found = segments(*(ETHER / piece for piece in outer), *rest)

    assert payloads(found) == [BIG]


def test_number_of_unfinished_datagrams_is_bounded(monkeypatch):
    monkeypatch.setattr(fragments, "MAX_FRAGMENT_DATAGRAMS", 3)
    dissector = Dissector()
    first = [fragment(IP(src="1.1.1.1", dst="2.2.2.2", id=number) / TCP() / Raw(BIG), 800)[0] for number in range(5)]
    found = dissector.segments(window([ETHER / piece for piece in first]))

    assert len(dissector._fragments) == 3
    assert found.counts["datagram_dropped"] == 2
    assert unread(found.counts) == {"TCP fragments of incomplete datagrams": 2}
    assert unread(dissector.finish()) == {"TCP fragments of incomplete datagrams": 3}
    assert len(dissector._fragments) == 0


def test_bytes_of_unfinished_datagrams_are_bounded(monkeypatch):
    monkeypatch.setattr(fragments, "MAX_FRAGMENT_BYTES", 1000)
    found = segments(*(ETHER / piece for piece in PIECES))

    assert payloads(found) == []
    assert found.counts["datagram_dropped"] > 0


def test_identification_used_anew_after_a_minute_does_not_mix_datagrams():
    dissector = Dissector()
    frames = [ETHER / PIECES[0], *(ETHER / piece for piece in PIECES)]
    late = fragments.FRAGMENT_TIMEOUT_NS + 1
    found = dissector.segments(window(frames, ts_ns=[0, *([late] * len(PIECES))]))

    assert payloads(found) == [BIG]
    assert found.counts["datagram_dropped"] == 1


def test_fragment_cut_by_the_snap_length_leaves_its_datagram_unfinished():
    frames = [bytes(ETHER / piece) for piece in PIECES]
    wirelen = [len(frame) for frame in frames]
    frames[1] = frames[1][:-5]
    dissector = Dissector()
    found = dissector.segments(window(frames, wirelen=wirelen))

    assert payloads(found) == []
    assert len(dissector._fragments) == 1


def test_fragment_beyond_the_longest_datagram_is_malformed():
    found = segments(ETHER / IP(frag=8191, proto=6) / Raw(bytes(1400)))

    assert found.counts["fragment_malformed"] == 1


SEEDS = [bytes(frame) for frame in STACKS.values()] + [bytes(ETHER / piece) for piece in PIECES[-2:]]


@examples(80)
@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from(SEEDS),
            st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=6),
            st.integers(0, 90),
        ),
        min_size=1,
        max_size=6,
    ),
    link_type=st.sampled_from([0, 1, 9, 101, 108, 113, 276]),
    more=st.integers(0, 3000),
)
def test_mutated_packets_give_payload_within_the_packet_and_are_counted(frames, link_type, more):
    mutated = []
    for seed, changes, cut in frames:
        frame = bytearray(seed)
        for at, value in changes:
            if at < len(frame):
                frame[at] = value
        mutated.append(bytes(frame[: max(0, len(frame) - cut)]))
    given_window = window(mutated, link_type, wirelen=[len(frame) + more for frame in mutated])
    found = Dissector().segments(given_window)

    assert sum(found.counts[word] for word in COUNTS[:8]) == len(mutated) + found.counts["datagram"]
    assert (found.length >= 0).all() and (found.length <= found.wire_length).all()
    assert (found.start + found.length <= len(found.buffer)).all()
    if not found.counts["datagram"]:
        packet = found.packet_number - 1
        assert (found.start >= given_window.offset[packet]).all()
        assert (found.start + found.length <= given_window.offset[packet] + given_window.caplen[packet]).all()


@examples(20)
@given(data=st.binary(max_size=200), link_type=st.sampled_from([0, 1, 9, 12, 101, 108, 113, 147, 228, 276]))
def test_noise_never_raises(data, link_type):
    assert sum(segments(data, link_type=link_type).counts.values()) >= 1


def test_no_packets():
    found = segments()

    assert len(found.start) == 0 and len(found.key) == 0


def test_a_checksum_is_right_wrong_or_says_nothing() -> None:
    """The value a network card is to complete is the sum of the pseudo header: RFC 9293 3.1 names its fields."""
    good = Ether(bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, flags="A") / b"odd"))
    pseudo = sum(struct.unpack(">9H", bytes([10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 23, *bytes(6)])))

    def with_checksum(value: int) -> bytes:
        packet = good.copy()
        packet[TCP].chksum = value
        return bytes(packet)

    right = int(good[TCP].chksum)
    frames = [bytes(good), with_checksum(right ^ 0x5555), with_checksum(0), with_checksum(pseudo)]
    frames += [with_checksum(pseudo - 23), bytes(good) + bytes(9)]

    assert segments(*frames).checksum.tolist() == [1, -1, 1, 1, 1, 1]
    assert segments(bytes(good)[:-1], wirelen=[len(good)]).checksum.tolist() == [0]


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 1447])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: IP() / GRE() / x, lambda x: IP() / UDP() / VXLAN() / Ether() / x]
)
def test_a_checksum_is_that_of_the_inner_addresses(length: int, wrap: Callable[[Packet], Packet]) -> None:
    body = bytes(range(255, -1, -1)) * 6
    for ip in (IP(src="203.0.113.9", dst="192.0.2.1"), IPv6(src="2001:db8:ffff::1", dst="fe80::ffff:ffff:1")):
        inner = ip / TCP(sport=50_000, dport=5555, flags="PA") / body[:length]
        good = bytes(Ether() / wrap(inner))
        bad = good[:-1] + bytes([good[-1] ^ 1])
        assert segments(good, bad).checksum.tolist() == [1, -1]


def test_a_datagram_joined_of_fragments_has_a_checksum() -> None:
    pieces = fragment(IP(src="10.0.0.1", dst="10.0.0.2") / TCP() / Raw(bytes(range(200))), fragsize=64)

    assert segments(*(Ether() / piece for piece in pieces)).checksum.tolist() == [1]


def test_a_damaged_segment_gives_way_to_its_good_copy() -> None:
    """From frames to the stream: the checksums of the packets decide, not those that the test sets."""
    ends = Ether() / IP(src="10.0.0.1", dst="10.0.0.2")
    frames = [bytes(ends / TCP(seq=99, flags="S")), bytes(ends / TCP(seq=100, flags="A"))]
    good = bytes(ends / TCP(seq=100, flags="PA") / b"a message")
    damaged = good[:-9] + bytes([good[-9] ^ 255]) + good[-8:]

    def stream(*more: bytes) -> bytes:
        reassembler = Reassembler()
        reassembler.feed(segments(*frames, *more))
        return reassembler.finish().buffer.tobytes()

    chunks = [Reassembler().feed(segments(*frames, *more)) for more in ([damaged, good], [good, damaged])]
    assert [part.buffer.tobytes() for part in chunks] == [b"a message"] * 2
    assert stream(damaged) == damaged[-9:]
