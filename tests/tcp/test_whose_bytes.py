"""Cases that users of other tools reported: which connection a packet belongs to, and what is counted of it.

Each case is a capture of a few packets of one conversation: a request of 10 bytes, a reply of 8, a request of 5, a
reply of 6. The table names the case, what other tools reported, and what is expected of each connection.
"""

from dataclasses import dataclass

import pytest
from case_table import case_rows
from segments import ACK, FIN, RST, SYN, Packet, a, b
from streams import HANDSHAKE, read

from mqpcap.tcp import out_of_order

MS = 1_000_000
START = 10_000 * MS


def conversation(client: int = 1000, server: int = 5000, start_ns: int = START, ident: int = 0) -> list[Packet]:
    """A whole connection, a packet each millisecond; ident counts up where it is given."""
    c, s = client + 1, server + 1
    packets = [
        a(client, flags=SYN),
        b(server, flags=SYN | ACK, ack=c),
        a(c, ack=s),
        a(c, b"request-01", ack=s),
        b(s, ack=c + 10),
        b(s, b"reply-01", ack=c + 10),
        a(c + 10, b"req-2", ack=s + 8),
        b(s + 8, b"reply2", ack=c + 15),
        a(c + 15, ack=s + 14),
        a(c + 15, flags=FIN | ACK, ack=s + 14),
        b(s + 14, flags=FIN | ACK, ack=c + 16),
        a(c + 16, ack=s + 15),
    ]
    return [
        packet.but(ts_ns=start_ns + k * MS, ident=(ident + k) << 16 | k + 1 if ident else k + 1)
        for k, packet in enumerate(packets)
    ]


BASE = conversation()
REQUESTS, REPLIES = [(0, b"request-01req-2")], [(0, b"reply-01reply2")]


def shifted(packets: list[Packet], ns: int) -> list[Packet]:
    return [packet.but(ts_ns=packet.ts_ns + ns) for packet in packets]


def split_handshake(first_seq: int) -> list[Packet]:
    """The server answers with an ACK, then a SYN, which the client answers with a SYN-ACK."""
    return [
        BASE[0],
        b(first_seq, ack=1001, ts_ns=START + 1),
        b(5000, flags=SYN, ts_ns=START + 2),
        a(1000, flags=SYN | ACK, ack=5001, ts_ns=START + 3),
        b(5001, ack=1001, ts_ns=START + 4),
        *BASE[3:],
    ]


def by_time(*parts: list[Packet]) -> list[Packet]:
    return sorted((packet for part in parts for packet in part), key=lambda packet: packet.ts_ns)


def insert(at: int, *packets: Packet) -> list[Packet]:
    more = [packet.but(ts_ns=BASE[at].ts_ns - 1000 + k) for k, packet in enumerate(packets)]
    return [*BASE[:at], *more, *BASE[at:]]


def bridged() -> list[Packet]:
    """Copies 3 ms later, among the next packets, with IP identifications that say so."""
    packets = conversation(ident=100)
    return by_time(packets, shifted(packets, 3 * MS))


def merged_copy() -> list[Packet]:
    """The request in two segments, and as the receiver's network card merged them."""
    one, two = BASE[3].but(body=b"reque", ident=7 << 16), BASE[3].but(seq=1006, body=b"st-01", ident=8 << 16)
    copy = BASE[3].but(ident=7 << 16, ts_ns=BASE[3].ts_ns + 20)
    return [*BASE[:3], one, two.but(ts_ns=BASE[3].ts_ns + 10), copy, *BASE[4:]]


def checked(*packets: Packet) -> list[Packet]:
    """The conversation with right checksums, and these packets, in order of time."""
    good = [packet.but(checksum=1) for packet in BASE if packet.ts_ns not in {packet.ts_ns for packet in packets}]
    return by_time(good, list(packets))


def damaged(packet: Packet, ns: int = 0, body: bytes = b"") -> Packet:
    """A copy with a wrong checksum, and other bytes of the same length or these."""
    wrong = bytes([packet.body[0] ^ 255]) + packet.body[1:]
    return packet.but(body=body or wrong, checksum=-1, ts_ns=packet.ts_ns + ns, ident=packet.ident ^ 0x5555)


REQUEST, REPLY = BASE[3].but(checksum=1), BASE[7].but(checksum=1)


@dataclass(frozen=True)
class Case:
    """A capture, what other tools made of it, and what is expected: connections, end, copies, bytes sent again."""

    packets: list[Packet]
    reported: str
    connections: int = 1
    end: str = "closed"
    copies: tuple[int, int] = (0, 0)
    again: tuple[int, int] = (0, 0)


def words_of_case(case: Case) -> str:
    """What a case gives, in the words of the table in README.md."""
    words = [f"{case.connections} connections"] if case.connections > 1 else []
    words += [f"{sum(case.copies)} copies"] if sum(case.copies) else []
    words += [f"{sum(case.again)} B sent again"] if sum(case.again) else []
    words += ["reset"] if case.end != "closed" else []
    return ", ".join(words) or "right"


CASES = {
    "two VLANs, two connections": Case(
        by_time(BASE, conversation(777_000, 888_000, START + 50_000)), "retransmissions, bytes missing", 2
    ),
    "two VLANs, SYNs far apart, one server number": Case(
        by_time(BASE, conversation(3_000_000_000, 5000, START + 50_000)), "2.8 GB lost (a firewall rewrites numbers)", 2
    ),
    "the same packets in two VLANs": Case(by_time(BASE, shifted(BASE, 900)), "every byte retransmitted", copies=(7, 5)),
    "a bridge, copies late and reordered": Case(bridged(), "out of order, retransmitted", copies=(7, 5)),
    "one direction twice": Case(
        by_time(BASE, shifted([p for p in BASE if p.src == BASE[0].src], 900)), "client retransmits all", copies=(7, 0)
    ),
    "a second tap a second later": Case([*BASE, *shifted(BASE, 1000 * MS)], "port reused", copies=(7, 5)),
    "a second tap a second later, SYN missing in both": Case(
        [*BASE[1:], *shifted(BASE[1:], 1000 * MS)], "the first acknowledgement sent again", copies=(6, 5)
    ),
    "two taps appended, client first": Case(
        [p for p in BASE if p.src == BASE[0].src] + [p for p in BASE if p.src != BASE[0].src], "two connections"
    ),
    "two taps appended, server first": Case(
        [p for p in BASE if p.src != BASE[0].src] + [p for p in BASE if p.src == BASE[0].src], "two connections"
    ),
    "stray SYN, lower": Case(
        insert(6, a(123_456_789, flags=SYN), b(5009, ack=1011)), "a connection opened by a challenge ACK"
    ),
    "stray SYN, higher": Case(insert(6, a(3_123_456_789, flags=SYN), b(5009, ack=1011)), "1.2 GB missing"),
    "stray SYN, the challenge repeats the last acknowledgement": Case(
        insert(5, a(123_456_789, flags=SYN), BASE[4]), "a packet captured twice"
    ),
    "stray SYN and its challenge twice": Case(
        by_time(
            challenged := insert(5, a(123_456_789, flags=SYN), BASE[4]),
            [p.but(ts_ns=p.ts_ns + 300) for p in challenged],
        ),
        "a challenge counted as copy",
        copies=(8, 6),
    ),
    "stray SYN and its challenge, a second tap later": Case(
        [*challenged, *shifted(challenged, 1000 * MS)], "a challenge counted as copy", copies=(8, 6)
    ),
    "a last byte alone, a second tap later": Case(
        [
            *(
                last := [
                    *BASE[:7],
                    BASE[7].but(body=b"reply"),
                    b(5014, b"2", ack=1016, ts_ns=BASE[7].ts_ns + 9),
                    *BASE[8:],
                ]
            ),
            *shifted(last, 1000 * MS),
        ],
        "a keep-alive, retransmitted",
        copies=(7, 6),
    ),
    "a SYN-ACK that acknowledges another number": Case(
        insert(1, b(900_000, flags=SYN | ACK, ack=1001 - 5_505_023)), "5.5 MB missing"
    ),
    "two SYN-ACKs, the first counts": Case(
        insert(2, b(900_000, flags=SYN | ACK, ack=1001)), "server bytes retransmitted"
    ),
    "two SYN-ACKs, the second counts": Case(
        insert(1, b(900_000, flags=SYN | ACK, ack=1001)), "server bytes retransmitted"
    ),
    "a second SYN-ACK after the client's ACK": Case(
        insert(3, b(900_000, flags=SYN | ACK, ack=1001)), "server bytes retransmitted"
    ),
    "blind RST": Case(insert(6, b(500_005_009, flags=RST)), "connection reset"),
    "RST in the window, answered by a challenge ACK": Case(
        insert(6, b(5009 + 1000, flags=RST), a(1011, ack=5009)), "connection reset"
    ),
    "far ACK": Case(insert(6, a(1011, ack=900_000_000)), "900 MB missing"),
    "far empty segment": Case(insert(6, a(900_001_011, ack=5009)), "900 MB missing"),
    "far FIN": Case(insert(6, a(900_001_011, ack=5009, flags=FIN | ACK)), "900 MB missing"),
    "half-open connection, RST": Case(
        [
            BASE[0].but(ts_ns=START - 3000),
            b(3_000_000_000, ack=900_001_000, ts_ns=START - 2000),
            a(900_001_000, flags=RST, ts_ns=START - 1000),
            *BASE,
        ],
        "976 MB missing",
    ),
    "keep-alive with a garbage byte": Case(
        insert(8, a(1015, b"\0", ack=5015), b(5015, ack=1016)), "conflict, retransmission"
    ),
    "keep-alive before any byte": Case(
        insert(3, a(1000, b"\0", ack=5001), b(5001, ack=1001)), "a byte below the start"
    ),
    "zero-window probe": Case(
        [*BASE[:6], BASE[6].but(body=b"r"), b(5009, ack=1011, ts_ns=BASE[6].ts_ns + 1), *shifted(BASE[6:], 300 * MS)],
        "a byte lost",
        again=(1, 0),
    ),
    "SYN sent again after a second": Case([BASE[0].but(ts_ns=START - 1000 * MS, ident=99), *BASE], "port reused"),
    "segments of one byte twice": Case(
        by_time(
            single := [
                *BASE[:6],
                BASE[6].but(body=b"r"),
                BASE[6].but(seq=1012, body=b"eq-2", ts_ns=BASE[6].ts_ns + 9),
                *BASE[7:],
            ],
            shifted(single, 2),
        ),
        "a keep-alive",
        copies=(8, 5),
    ),
    "a merged copy beside the segments": Case(merged_copy(), "retransmission", copies=(1, 0)),
    "sent again with another IP identification, at once": Case(
        [
            *(packets := conversation(ident=100))[:4],
            packets[3].but(ident=(packets[3].ident & 0xFFFF) | 900 << 16, ts_ns=packets[3].ts_ns + 100),
            *packets[4:],
        ],
        "duplicate",
        again=(10, 0),
    ),
    "sent again after 300 ms": Case(
        [*BASE[:4], BASE[3].but(ts_ns=BASE[3].ts_ns + 300 * MS), *shifted(BASE[4:], 300 * MS)], "", again=(10, 0)
    ),
    "server clock ahead": Case(
        by_time(*[[p] if p.src == BASE[0].src else shifted([p], 30 * MS) for p in BASE]), "two connections, all missing"
    ),
    "server clock behind": Case(
        by_time(*[[p] if p.src == BASE[0].src else shifted([p], -30 * MS) for p in BASE]), "two connections"
    ),
    "split handshake": Case(
        split_handshake(77_777),
        "client and server exchanged",
    ),
    "a damaged request, then the good one": Case(
        checked(damaged(REQUEST, -10), REQUEST), "the damaged bytes are read", again=(10, 0)
    ),
    "a damaged reply, sent again after 200 ms": Case(
        checked(
            *(packet.but(checksum=1) for packet in BASE[:7]),
            damaged(REPLY),
            *shifted([packet.but(checksum=1) for packet in BASE[7:]], 200 * MS),
        ),
        "the damaged bytes are read",
        again=(0, 6),
    ),
    "damaged twice, then good": Case(
        checked(damaged(REPLY, -20), damaged(REPLY, -10), REPLY), "the damaged bytes are read", again=(0, 12)
    ),
    "the good one, then a damaged one": Case(checked(REPLY, damaged(REPLY, 10)), "conflict", again=(0, 6)),
    "damaged, then good in two segments": Case(
        checked(
            damaged(REQUEST, -20),
            REQUEST.but(body=b"reque", ts_ns=REQUEST.ts_ns - 10),
            REQUEST.but(seq=1006, body=b"st-01"),
        ),
        "the damaged bytes are read",
        again=(10, 0),
    ),
    "two damaged segments, then one good": Case(
        checked(damaged(REQUEST, -20, b"REQUE"), damaged(REQUEST.but(seq=1006), -10, b"ST-01"), REQUEST),
        "the damaged bytes are read",
        again=(10, 0),
    ),
    "a damaged sequence number": Case(
        checked(damaged(REQUEST.but(seq=1001 + 2**31), -10, REQUEST.body), REQUEST), "another connection, 2 GB missing"
    ),
    "a damaged sequence number nearby": Case(
        checked(damaged(REPLY.but(seq=5009 + 2**20), -10, REPLY.body), REPLY), "1 MB missing"
    ),
    "damaged at the tap": Case(
        checked(damaged(BASE[6], body=BASE[6].body), damaged(REPLY, body=REPLY.body)), "bytes missing"
    ),
    "all checksums wrong": Case([packet.but(checksum=-1) for packet in BASE], "every packet damaged"),
    "checksums of the client wrong": Case(
        [packet.but(checksum=-1 if packet.src == BASE[0].src else 1) for packet in BASE], "every packet damaged"
    ),
    "split handshake, a near number first": Case(
        split_handshake(4000),
        "1,000 bytes missing",
    ),
    "a forged refusal before the SYN-ACK": Case(insert(1, b(0, flags=RST | ACK, ack=1001)), "two connections"),
    "a FIN with an old number before the SYN-ACK": Case(
        insert(1, b(4000, flags=FIN | ACK, ack=1001)), "1,000 bytes missing"
    ),
    "numbers wrap": Case(conversation(2**32 - 6, 2**32 - 4), "4 GB missing"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("packets_per_window", [1, 3, 1000])
def test_rows_are_those_that_the_two_ends_would_swear_to(name: str, packets_per_window: int) -> None:
    case = CASES[name]
    seen = read(case.packets, packets_per_window)

    assert len(seen.flows) == case.connections
    for flow in seen.flows:
        assert (seen.side(0, flow.index), seen.side(1, flow.index)) == (REQUESTS, REPLIES)
        assert (flow.end_state, flow.missing, flow.conflict) == (case.end, (0, 0), (0, 0))
        assert (flow.duplicates, flow.retransmitted) == (case.copies, case.again)
        assert (flow.a_ip, flow.bytes) == (BASE[0].src[0], (15, 14))
    assert sum(sum(flow.packets) for flow in seen.flows) == len(case.packets)


def test_each_case_has_a_row_with_what_it_gives() -> None:
    table = [(case, reported, is_now) for case, reported, _, is_now in case_rows("Whose bytes these are")]

    assert table == [(name, case.reported or "retransmission", words_of_case(case)) for name, case in CASES.items()]


@pytest.mark.parametrize("packets_per_window", [1, 1000])
def test_a_checksum_that_says_nothing_is_no_damage(packets_per_window: int) -> None:
    """As of a sender that leaves it to the network card: the first copy counts, though the second one has proof."""
    packets = [packet.but(checksum=1) for packet in [*HANDSHAKE, *[a(1000, ack=5000)] * 8]]
    packets += [a(1000, b"first", ack=5000, checksum=0), a(1000, b"other", ack=5000, checksum=1)]
    seen = read(packets, packets_per_window)

    assert seen.side() == [(0, b"first")]


WRONG = [packet.but(checksum=-1) for packet in BASE]
"""A capture whose checksums say nothing: all are wrong."""


def other(packet: Packet, ns: int) -> Packet:
    """A copy with another first byte, and a checksum that says as much as that of the packet."""
    return damaged(packet, ns).but(checksum=packet.checksum)


@pytest.mark.parametrize(
    ("packets", "conflict"),
    [
        # Sent again after 200 ms, as no acknowledgement came: the receiver took the second one.
        ([*WRONG[:3], other(WRONG[3], 0), *shifted(WRONG[3:], 200 * MS)], (1, 0)),
        ([*WRONG[:7], other(WRONG[7], 0), *shifted(WRONG[7:], 200 * MS)], (0, 1)),
        # Three copies, the last one before the acknowledgement counts.
        ([*WRONG[:3], other(WRONG[3], 0), WRONG[3], other(WRONG[3], 20), *shifted(WRONG[3:], 200 * MS)], (2, 0)),
        # The acknowledgement has moved before the second copy.
        ([*WRONG[:5], other(WRONG[3], 2 * MS), *WRONG[5:]], (1, 0)),
        # Both checksums are right, and bytes before them are missing until later.
        ([*BASE[:5], BASE[6], other(REPLY, -10), REPLY, BASE[5].but(ts_ns=REPLY.ts_ns), *BASE[8:]], (0, 1)),
        ([*BASE[:5], BASE[6], other(BASE[7], -10), BASE[7], BASE[5].but(ts_ns=REPLY.ts_ns), *BASE[8:]], (0, 1)),
    ],
)
@pytest.mark.parametrize("packets_per_window", [1, 3, 1000])
def test_the_copy_counts_that_was_acknowledged(
    packets: list[Packet], conflict: tuple[int, int], packets_per_window: int
) -> None:
    """No checksum decides between two copies of a byte."""
    seen = read(packets, packets_per_window)

    assert (seen.side(0), seen.side(1)) == (REQUESTS, REPLIES)
    assert (seen.flows[0].conflict, seen.flows[0].missing) == (conflict, (0, 0))


def test_copies_beyond_the_limit_leave_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_order, "MAX_COPIES", 1)
    copies = [other(WRONG[3], 0), WRONG[3], other(WRONG[3], 20)]
    seen = read([*WRONG[:3], *copies, *shifted(WRONG[4:], 200 * MS)])

    assert seen.side(0) == REQUESTS


@pytest.mark.parametrize("packets_per_window", [1, 3, 1000])
def test_damage_at_the_tap_delays_no_more_than_a_hole(packets_per_window: int) -> None:
    """Each fifth segment of a long side is damaged and acknowledged; the pieces keep their packets."""
    body = bytes(range(200)) * 4
    packets = [packet.but(checksum=1) for packet in HANDSHAKE]
    for k in range(0, len(body), 8):
        packets += [a(1000 + k, body[k : k + 8], ack=5000, checksum=1 if k % 40 else -1)]
        packets += [b(5000, ack=1000 + k + 8, checksum=1)]
    seen = read(packets, packets_per_window)

    assert seen.side() == [(0, body)]
    assert [seen.packet_of[0, 0, k] for k in range(0, len(body), 8)] == list(range(4, len(packets) + 1, 2))
    assert (seen.flows[0].missing, seen.flows[0].retransmitted, seen.gaps()) == ((0, 0), (0, 0), [])


def test_only_the_damaged_segments_up_to_the_limit_wait_for_a_good_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_order, "MAX_BUFFERED_SEGMENTS", 4)
    packets = [packet.but(checksum=1) for packet in [*HANDSHAKE, *[a(1000, ack=5000)] * 8]]
    packets += [a(1000 + k, b"x", ack=5000, checksum=-1) for k in range(6)]
    seen = read(packets)

    assert seen.side() == [(0, b"xxxxxx")]
    assert seen.reassembler.counts["reorder_cap"] == 2


def test_a_port_is_used_again_without_a_fin() -> None:
    """The second connection begins with a SYN that is answered; packets of both lie between each other."""
    again = conversation(70_000, 80_000, BASE[6].ts_ns + 1)
    seen = read(by_time(BASE, again))

    assert [seen.side(0, flow.index) for flow in seen.flows] == [REQUESTS, REQUESTS]
    assert seen.flows[1].first_ts_ns == again[0].ts_ns
    assert [flow.packets for flow in seen.flows] == [(7, 5), (7, 5)]


def test_a_port_used_again_within_the_hour_leaves_the_older_connection_its_last_time() -> None:
    """The SYN, sent twice, is counted at the older connection until the server answers it."""
    first = conversation()[:9]
    again = conversation(70_000, 80_000, START + 3_590_000 * MS)
    seen = read([*first, again[0].but(ts_ns=again[0].ts_ns - 1000 * MS, ident=7), *again])

    assert [(flow.first_ts_ns, flow.last_ts_ns) for flow in seen.flows] == [
        (first[0].ts_ns, first[-1].ts_ns),
        (again[0].ts_ns - 1000 * MS, again[-1].ts_ns),
    ]
    assert [flow.packets for flow in seen.flows] == [(5, 4), (8, 5)]


NO_SCALE, SCALE_7 = 1 << 16 | 256, 9 << 16 | 65_535
"""Windows of a SYN: `Segments.window`."""


@pytest.mark.parametrize(
    ("client_syn", "server_syn", "window", "distance", "is_gap"),
    [
        (NO_SCALE, NO_SCALE, 256, 100_000, False),
        (NO_SCALE, NO_SCALE, 256, 60_000, True),
        (SCALE_7, SCALE_7, 12_759, 1_048_576, True),
        (SCALE_7, SCALE_7, 12_759, 12_759 * 128 + 1, False),
        (SCALE_7, NO_SCALE, 12_759, 1_048_576, False),  # both SYNs must have the option
        (0, SCALE_7, 12_759, 1_048_576, True),  # the options of a SYN are cut off: nothing is known
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_no_gap_is_larger_than_the_windows(
    client_syn: int, server_syn: int, window: int, distance: int, is_gap: bool, is_empty: bool
) -> None:
    """A segment beyond what its receiver allows, and nothing that acknowledges it: its bytes count as late ones."""
    handshake = [a(999, flags=SYN, window=client_syn), b(4999, flags=SYN | ACK, ack=1000, window=server_syn)]
    handshake += [a(1000, ack=5000, window=window), b(5000, ack=1000, window=window)]
    far = a(1000 + distance, b"" if is_empty else b"far away", ack=5000, window=window)
    seen = read([*handshake, far])

    assert len(seen.flows) == 1
    assert seen.flows[0].missing == (distance if is_gap else 0, 0)
    assert seen.late() == ([] if is_gap or is_empty else [(0, 0, distance, 8)])


def test_an_acknowledged_gap_may_be_larger_than_the_window() -> None:
    """Packets of both sides are lost between two that were captured."""
    packets = [a(999, flags=SYN, window=NO_SCALE), b(4999, flags=SYN | ACK, ack=1000, window=NO_SCALE)]
    packets += [a(1000, ack=5000), a(1_001_000, b"after", ack=5000), b(5000, ack=1_001_005)]
    seen = read(packets)

    assert (seen.flows[0].missing, seen.side()) == ((1_000_000, 0), [(1_000_000, b"after")])


def test_a_reset_that_its_sender_ignores_is_none_and_a_refusal_is_one() -> None:
    assert read([*BASE[:6], b(5009, flags=RST)]).flows[0].end_state == "reset"
    assert read([*BASE[:6], b(5009 + 1000, flags=RST)]).flows[0].end_state == "reset"
    assert read([*BASE[:6], b(5009 + 1000, flags=RST), *BASE[7:8]]).flows[0].end_state == "open"
    assert read([BASE[0], b(0, flags=RST | ACK, ack=1001)]).flows[0].end_state == "reset"
    assert read([BASE[0], b(0, flags=RST | ACK, ack=999_001)]).flows[0].end_state == "open"


@pytest.mark.parametrize("packets_per_window", [1, 7, 1000])
def test_two_connections_of_one_5_tuple_keep_their_bytes_where_their_numbers_overlap(packets_per_window: int) -> None:
    """Two tenants with equal addresses; the second stream begins 100 kB into the first one, each sends 160 kB."""
    size, count = 2000, 80
    starts, marks = (1000, 5000), (101_000, 105_000)
    packets = []
    for client, server in (starts, marks):
        packets += [a(client - 1, flags=SYN), b(server - 1, flags=SYN | ACK, ack=client), a(client, ack=server)]
    for k in range(count):
        for value, (client, server) in enumerate((starts, marks)):
            packets += [a(client + k * size, bytes([value]) * size, ack=server + k * size)]
            packets += [b(server + k * size, bytes([value + 2]) * size, ack=client + (k + 1) * size)]
    seen = read(packets, packets_per_window)

    assert [seen.side(side, flow) for flow in (0, 1) for side in (0, 1)] == [
        [(0, bytes([value]) * size * count)] for value in (0, 2, 1, 3)
    ]
    assert [flow.retransmitted + flow.missing for flow in seen.flows] == [(0, 0, 0, 0)] * 2
