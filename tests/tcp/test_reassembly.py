"""Reassembly: every row of the reassembly torture table at the level of bytes, and properties against a model."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from segments import ACK, FIN, RST, SYN, A, B, Packet, a, b, segments
from streams import HANDSHAKE, Seen, cut, read

from mqpcap.tcp import out_of_order
from mqpcap.tcp.flow_table import MAX_HOLE
from mqpcap.tcp.reassembly import Reassembler

# Five messages of 24 bytes: four of length, twenty of body.
MESSAGES = [b"\0\0\0\x14" + bytes([65 + i]) * 20 for i in range(5)]
STREAM = b"".join(MESSAGES)


# No byte is lost in these orders of the segments: all five messages must come out, as one run.


def swapped(packets: list[Packet], one: int, two: int) -> list[Packet]:
    packets = list(packets)
    packets[one], packets[two] = packets[two], packets[one]
    return packets


WHOLE = {
    "clean, one per segment": cut(STREAM, 24),
    "exact retransmission of one": [*cut(STREAM, 24)[:2], cut(STREAM, 24)[1], *cut(STREAM, 24)[2:]],
    "two whole messages swapped": swapped(cut(STREAM, 24), 2, 3),
    "17-byte segments": cut(STREAM, 17),
    "17-byte segments, two swapped": swapped(cut(STREAM, 17), 2, 3),
    "one segment late duplicate": [*cut(STREAM, 24), cut(STREAM, 24)[1]],
    "five in one segment": cut(STREAM, 120),
    "five in one segment, retransmitted": cut(STREAM, 120) * 2,
    "1 and 2 resent in one overlapping segment": [*cut(STREAM, 24)[:2], a(1000, STREAM[:48]), *cut(STREAM, 24)[2:]],
    "resent with new data behind": [*cut(STREAM, 24)[:2], a(1024, STREAM[24:96]), cut(STREAM, 24)[4]],
    "resent around what came too early": [cut(STREAM, 24)[0], cut(STREAM, 24)[2], a(1024, STREAM[24:])],
    "segments of 2 messages and 6 bytes": cut(STREAM, 54),
    "segments of 2 messages and 2 bytes": cut(STREAM, 50),
    "all backwards": cut(STREAM, 17)[::-1],
}


@pytest.mark.parametrize("with_syn", [True, False])
@pytest.mark.parametrize("name", WHOLE)
def test_all_that_was_captured_comes_out_in_order(name: str, with_syn: bool, window: int) -> None:
    seen = read([*HANDSHAKE, *WHOLE[name]] if with_syn else WHOLE[name], window, left_over=5)

    assert seen.side() == [(0, STREAM)]
    assert seen.gaps() == seen.late() == seen.conflicts() == []


@pytest.mark.parametrize("one", range(8))
def test_first_segments_swapped_without_a_syn(one: int, window: int) -> None:
    seen = read(swapped(cut(STREAM, 17), one % 3, 3 + one % 5), window)

    assert seen.side() == [(0, STREAM)]


@pytest.mark.parametrize("size", [24, 17])
@pytest.mark.parametrize("before", [1, 16, 24, 30, 100, 119])
def test_sequence_numbers_wrap(size: int, before: int, window: int) -> None:
    seen = read(swapped(cut(STREAM, size, 2**32 - before), 1, 2), window)

    assert seen.side() == [(0, STREAM)]


def test_one_segment_lost_leaves_its_gap(window: int) -> None:
    packets = cut(STREAM, 17)
    seen = read([*packets[:2], *packets[3:]], window)

    assert seen.side() == [(0, STREAM[:34]), (51, STREAM[51:])]
    assert seen.gaps() == [(0, 0, 34, 17)]
    assert seen.flows[0].missing == (17, 0)


def test_port_reuse_with_a_stale_partial_buffer(window: int) -> None:
    body = [packet.but(ack=80001) for packet in cut(STREAM[:72], 24, 70001)]
    again = [a(70000, flags=SYN), b(80000, flags=SYN | ACK, ack=70001), *body]
    seen = read([*HANDSHAKE, a(1000, STREAM[:10]), *again], window, left_over=3)

    assert seen.side(flow=0) == [(0, STREAM[:10])]
    assert seen.side(flow=1) == [(0, STREAM[:72])]
    assert len(seen.flows) == 2


def test_capture_that_starts_inside_a_message(window: int) -> None:
    seen = read(cut(STREAM[10:], 24), window)

    assert seen.side() == [(0, STREAM[10:])]
    assert not seen.flows[0].a_is_client


@pytest.mark.parametrize("size", [1400, 536, 100, 240])
def test_three_thousand_messages(size: int) -> None:
    body = b"".join(b"\0\0\0\x14" + i.to_bytes(4, "big") * 5 for i in range(3000))
    seen = read([*HANDSHAKE, *cut(body, size)], 97, left_over=11)

    assert seen.side() == [(0, body)]


# Holes


def test_late_bytes_are_counted_and_shrink_their_gap(window: int) -> None:
    packets = [
        *HANDSHAKE,
        a(1000, b"one"),
        a(1009, b"two"),
        *[b(5000, ack=1012)] * 39,
        b(5000, ack=1012, ts_ns=3 * 10**9),
        a(1004, b"LATE"),
        a(1004, b"LATE"),
    ]
    seen = read(packets, window)

    assert seen.side() == [(0, b"one"), (9, b"two")]
    assert seen.late() == [(0, 0, 4, 4)]
    assert seen.gaps() == [(0, 0, 3, 1), (0, 0, 8, 1)]
    assert seen.flows[0].bytes == (10, 0)
    assert seen.flows[0].missing == (2, 0)
    assert seen.flows[0].retransmitted == (4, 0)


def test_a_second_late_copy_with_other_bytes_is_a_conflict(window: int) -> None:
    packets = [
        *HANDSHAKE,
        a(1000, b"one"),
        a(1009, b"two"),
        *[b(5000, ack=1012)] * 40,
        a(1004, b"LATE"),
        a(1004, b"LaTE"),
    ]
    seen = read(packets, window)

    assert seen.conflicts() == [(0, 0, 5, 1)]


def test_what_was_acknowledged_at_the_end_but_never_captured_is_missing(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"one", ack=5000), b(5000, ack=1013)], window)

    assert seen.gaps() == [(0, 0, 3, 10)]


def test_an_acknowledged_fin_is_no_missing_byte(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"one", ack=5000), b(5000, ack=1004)], window)

    assert seen.gaps() == []


def test_a_fin_after_lost_bytes_shows_their_number(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"one"), a(1010, flags=FIN | ACK)], window)

    assert seen.gaps() == [(0, 0, 3, 7)]
    assert (0, 0, 3) in seen.broken


def test_a_side_never_captured_is_missing_as_far_as_it_was_acknowledged(window: int) -> None:
    seen = read([a(1000, b"ask", ack=5000), a(1003, b"ask", ack=5100), a(1006, b"ask", ack=5250)], window)

    assert seen.gaps() == [(0, 1, 0, 250)]
    assert seen.flows[0].missing == (0, 250)


def test_streams_of_many_gigabytes_do_not_wrap() -> None:
    step = MAX_HOLE
    packets = list(HANDSHAKE)
    seq = 1000
    for _ in range(300):  # the largest holes that windows allow: 4.7 GiB
        seq += step
        packets += [a(seq, b"abcd", ack=5000), *[b(5000, ack=seq + 4)] * 40]
        seq += 4
    seen = read(packets, 100)

    assert [offset for offset, _ in seen.side()] == [step * i + 4 * (i - 1) for i in range(1, 301)]
    assert seen.flows[0].missing[0] == 300 * step


# Copies


@pytest.mark.parametrize("early", [False, True])
def test_the_first_copy_of_a_byte_wins(early: bool, window: int) -> None:
    head = [] if early else [a(1000, STREAM[:24])]
    packets = [*HANDSHAKE, *head, a(1024, b"FIRST!"), a(1024, b"fIRSt!new")]
    packets += [a(1000, STREAM[:24])] if early else []
    seen = read(packets, window)

    assert seen.side() == [(0, STREAM[:24] + b"FIRST!new")]
    assert seen.conflicts() == [(0, 0, 24, 1), (0, 0, 28, 1)]
    assert seen.flows[0].conflict == (2, 0)
    assert seen.flows[0].retransmitted == (4, 0)


def test_a_keep_alive_probe_of_an_acknowledged_byte_is_no_retransmission(window: int) -> None:
    probe = a(1119, b"\0", ack=5000)
    seen = read([*HANDSHAKE, *cut(STREAM, 24), probe, b(5000, ack=1120), a(1119, ack=5000), probe], window)

    assert seen.side() == [(0, STREAM)]
    assert seen.flows[0].retransmitted == (1, 0)
    assert seen.conflicts() == seen.gaps() == []


def test_a_zero_window_probe_carries_a_byte_of_the_stream(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, STREAM[:24]), a(1024, STREAM[24:25]), a(1024, STREAM[24:25]), a(1024, STREAM[24:])]
    seen = read(packets, window)

    assert seen.side() == [(0, STREAM)]
    assert seen.flows[0].retransmitted == (2, 0)


def test_a_segment_below_the_syn_is_no_part_of_the_stream(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"abc"), a(990, b"0123456789abcdef")], window)

    assert seen.side() == [(0, b"abcdef")]


# Snap length


def test_a_snapped_tail_is_a_gap_of_its_own_kind(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"head", wire_length=10), a(1010, b"next"), *[b(5000, ack=1014)] * 40]
    seen = read(packets, window, left_over=2)

    assert seen.side() == [(0, b"head"), (10, b"next")]
    assert seen.gaps() == [(0, 0, 4, 6)]
    assert [(row.offset, row.snapped) for row in seen.reassembler.gaps()] == [(4, True)]


def test_a_snapped_last_segment_is_a_gap(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"head", wire_length=10)], window)

    assert seen.side() == [(0, b"head")]
    assert seen.gaps() == [(0, 0, 4, 6)]
    assert [(row.offset, row.snapped) for row in seen.reassembler.gaps()] == [(4, True)]


def test_a_snapped_tail_is_filled_when_it_is_sent_again_in_time(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"head", wire_length=8), a(1008, b"next"), a(1000, b"headtail"), b(5000, ack=1012)]
    seen = read(packets, window)

    assert seen.side() == [(0, b"headtailnext")]
    assert seen.gaps() == []


def test_headers_alone_hold_nothing() -> None:
    packets = [*HANDSHAKE, *(a(1000 + 100 * i, b"", wire_length=100) for i in range(5000))]
    seen = read(packets, 500)

    assert seen.side() == []
    assert seen.gaps() == [(0, 0, 0, 500_000)]


# Starts


def test_bytes_below_a_released_start_are_late_and_have_negative_offsets(window: int) -> None:
    packets = [a(1000 + i, b"x", ack=5000) for i in range(100)] + [a(980, b"early", ack=5000)]
    seen = read(packets, window)

    assert seen.side() == [(0, b"x" * 100)]
    assert seen.late() == [(0, 0, -20, 5)]
    assert seen.gaps() == [(0, 0, -15, 15)]


# Ends and new beginnings


def test_data_with_the_fin(window: int) -> None:
    packets = [
        *HANDSHAKE,
        a(1000, b"bye", flags=FIN | ACK, ack=5000),
        b(5000, flags=FIN | ACK, ack=1004),
        a(1004, ack=5001),
    ]
    seen = read(packets, window)

    assert seen.side() == [(0, b"bye")]
    assert seen.flows[0].end_state == "closed"
    assert seen.flows[0].fin_offset == (3, 0)
    assert seen.flows[0].acked == (4, 1)
    assert seen.gaps() == []


def test_a_side_ends_when_its_fin_is_reached() -> None:
    reassembler = Reassembler()
    chunks = reassembler.feed(segments([*HANDSHAKE, a(1003, b"bye", flags=FIN | ACK), a(1000, b"---")]))

    assert chunks.ended.tolist() == [True]
    assert len(reassembler.finish()) == 0


def test_bytes_after_a_fin_are_late(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"bye", flags=FIN | ACK), a(1003, b"more"), a(1003, b"more")], window)

    assert seen.side() == [(0, b"bye")]
    assert seen.late() == [(0, 0, 3, 4)]
    assert seen.flows[0].bytes == (7, 0)


def test_buffered_bytes_after_a_fin_are_late(window: int) -> None:
    seen = read([*HANDSHAKE, a(1005, b"more"), a(1003, flags=FIN | ACK), a(1000, b"bye")], window)

    assert seen.side() == [(0, b"bye")]
    assert seen.late() == [(0, 0, 5, 4)]


def test_a_reset(window: int) -> None:
    seen = read([*HANDSHAKE, a(1000, b"abc"), b(5000, b"why", flags=RST | ACK, ack=1003), a(1003, b"def")], window)

    assert seen.side() == [(0, b"abcdef")]
    assert len(seen.flows) == 1
    assert seen.flows[0].end_state == "reset"
    assert seen.flows[0].rst == (False, True)


def test_nothing_may_follow_finish() -> None:
    reassembler = Reassembler()
    reassembler.finish()

    with pytest.raises(ValueError, match="finish"):
        reassembler.feed(segments([]))


# Properties: conversations with everything that can happen to them, against a model that knows which byte came first.


@st.composite
def conversations(draw: st.DrawFn) -> list[Packet]:
    """Packets of one connection: cut, lost, doubled, altered, cut short, out of order, acknowledged; it may wrap."""
    size = draw(st.integers(0, 120))
    body = bytes(draw(st.integers(0, 255)) for _ in range(4)) * 30
    seq = draw(st.sampled_from([1000, 0, 2**32 - 1, 2**32 - 30, 2**32 - 120, 2**31 - 5]))
    packets: list[tuple[int, Packet]] = []
    count = draw(st.integers(0, 14))
    for i in range(count):
        low = draw(st.integers(0, size))
        length = draw(st.integers(2, 25))
        part = body[low : min(low + length, size)]
        if draw(st.integers(0, 5)) == 0 and len(part) > 1:
            at = draw(st.integers(0, len(part) - 1))
            part = part[:at] + bytes([part[at] ^ 0x55]) + part[at + 1 :]
        wire = len(part)
        if draw(st.integers(0, 7)) == 0:
            part = part[: draw(st.integers(0, len(part)))]
        packets.append((i, a(seq + low, part, ack=5000, wire_length=wire)))
        if draw(st.booleans()):
            packets.append((i, b(5000, ack=seq + draw(st.integers(0, size)))))
    step = draw(st.integers(1, 12))
    clean = [a(seq + i, body[i : min(i + step, size)], ack=5000) for i in range(0, size, step)]
    lost = draw(st.sets(st.integers(0, max(len(clean) - 1, 0)), max_size=4))
    places = [(draw(st.integers(-3, 3)) + i, packet) for i, packet in enumerate(clean) if i not in lost]
    mixed = sorted([*places, *((i * 3, packet) for i, packet in packets)], key=lambda item: item[0])
    result = [packet for _, packet in mixed]
    result += [b(5000, ack=seq + size)] * draw(st.integers(0, 6))
    result += draw(st.lists(st.sampled_from(result), max_size=4)) if result else []
    if draw(st.booleans()):
        result = [a(seq - 1, flags=SYN), b(4999, flags=SYN | ACK, ack=seq), *result]
    if draw(st.integers(0, 3)) == 0:
        result.append(a(seq + size, flags=FIN | ACK, ack=5000))
    if draw(st.integers(0, 5)) == 0:
        result.insert(draw(st.integers(min(2, len(result)), len(result))), a(seq + size, flags=RST))
    return result


def places(packets: list[Packet]) -> Iterator[tuple[int, int]]:
    """Each captured byte of A, as (distance from A's first sequence number, value), in order of capture."""
    data = [packet for packet in packets if packet.src == A and not packet.flags & RST]
    for packet in data:
        distance = (packet.seq - data[0].seq + 2**31) % 2**32 - 2**31
        for i, byte in enumerate(packet.body):
            yield distance + i + (1 if packet.flags & SYN else 0), byte


def first_copies(packets: list[Packet]) -> dict[int, int]:
    first: dict[int, int] = {}
    for place, byte in places(packets):
        first.setdefault(place, byte)
    return first


def acknowledged_copies(packets: list[Packet]) -> dict[int, int]:
    """Of each byte the latest copy before the first acknowledgement that moves past it, or the latest of all."""
    latest: dict[int, int] = {}
    counted: dict[int, int] = {}
    start = next((packet.seq for packet in packets if packet.src == A), 0)
    for k, packet in enumerate(packets):
        latest |= dict(places([a(start), *packets[k : k + 1]]))
        if packet.src != A:
            end = (packet.ack - start + 2**31) % 2**32 - 2**31
            counted = {place: byte for place, byte in latest.items() if place < end} | counted
    return latest | counted


def side_of_a(seen: Seen) -> int:
    return 0 if seen.flows[0].a_ip == A[0] else 1


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Limits so small that conversations of a few packets meet them."""

    def tighten() -> None:
        for name, value in (
            ("SETTLE_PACKETS", 3),
            ("LOOKAHEAD_NS", 3_000_000),
            ("MAX_BUFFERED_SEGMENTS", 5),
            ("START_SEGMENTS", 4),
            ("START_PACKETS", 9),
        ):
            monkeypatch.setattr(out_of_order, name, value)

    return tighten


@pytest.mark.parametrize("tight", [False, True])
def test_every_captured_byte_comes_out_once_with_its_first_or_acknowledged_value(
    tight: bool, small_bounds: Callable[[], None]
) -> None:
    if tight:
        small_bounds()

    @examples(50)
    @given(packets=conversations())
    def check(packets: list[Packet]) -> None:
        first, acknowledged = first_copies(packets), acknowledged_copies(packets)
        seen = read(packets, 7)
        if not first:
            return
        flow, side = seen.flows[0], side_of_a(seen)
        delivered = {offset + i: byte for offset, run in seen.side(side) for i, byte in enumerate(run)}
        late = {row[2] + i for row in seen.late() if row[1] == side for i in range(row[3])}
        missing = {row[2] + i for row in seen.gaps() if row[1] == side for i in range(row[3])}
        moved = min(first) - min([*delivered, *late])
        captured = {place - moved for place in first}

        assert flow.bytes[side] == len(first)
        assert set(delivered) | late == captured
        assert not set(delivered) & late
        assert not missing & captured
        assert set(range(min(captured), max(captured) + 1)) <= captured | missing
        assert all(byte in (first[k + moved], acknowledged[k + moved]) for k, byte in delivered.items())

    check()


@pytest.mark.parametrize("tight", [False, True])
def test_windows_do_not_matter(tight: bool, small_bounds: Callable[[], None]) -> None:
    if tight:
        small_bounds()

    @examples(25)
    @given(packets=conversations(), left_over=st.integers(0, 30), wanted=st.sampled_from([0, 20]))
    def check(packets: list[Packet], left_over: int, wanted: int) -> None:
        results = []
        for size, left, want in ((1, left_over, 0), (2, 0, 0), (7, left_over, wanted), (1000, 0, 0)):
            seen = read(packets, size, left, want)
            reassembler = seen.reassembler
            results.append(
                (
                    seen.runs, seen.packet_of, seen.flows, seen.gaps(), seen.late(), seen.conflicts(), seen.ended,
                    reassembler.gaps(), reassembler.conflicts(), reassembler.counts,
                )
            )  # fmt: skip

        assert results[0] == results[1] == results[2] == results[3]

    check()


@examples(80)
@given(packets=conversations())
def test_conflicts_are_the_bytes_that_differ_from_their_first_copy(packets: list[Packet]) -> None:
    """No acknowledgement moves: the first copy of each byte counts."""
    packets = [packet for packet in packets if not packet.flags & (RST | FIN) and len(packet.body) != 1]
    packets = [packet for packet in packets if packet.src == A or packet.flags & SYN]
    if not any(packet.src == A for packet in packets):
        return
    seen = read(packets, 3)
    first: dict[int, int] = {}
    differ: list[int] = []
    again = 0
    for place, byte in places(packets):
        differ += [place] if first.get(place, byte) != byte else []
        again += place in first and first[place] == byte
        first.setdefault(place, byte)

    side = side_of_a(seen)
    conflicts = [row[2] + i for row in seen.conflicts() for i in range(row[3])]
    moved = min(differ, default=0) - min(conflicts, default=0)
    assert seen.flows[0].conflict[side] == len(differ)
    assert sorted(offset + moved for offset in conflicts) == sorted(differ)
    assert seen.flows[0].retransmitted[side] == again


def test_a_conflict_before_the_first_captured_byte_has_its_place_in_the_stream() -> None:
    """The connection began before the capture, and the second packet is before the first: its byte is offset 0."""
    bodies = [(1001, b"ab"), (1000, b"Xa"), (1000, b"Ya"), (1003, b"cd"), (1004, b"Zd")]
    packets = [Packet(A, B, seq, 5000, ACK, body) for seq, body in bodies]

    seen = read(packets, 100)

    assert [row[2:4] for row in seen.conflicts()] == [(0, 1), (4, 1)]


@examples(50)
@given(
    data=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**32 - 1), st.integers(0, 31), st.binary(max_size=9)))
)
def test_nonsense_neither_raises_nor_loses_a_byte(data: list[tuple[int, int, int, bytes]]) -> None:
    ends = [(A, B), (B, A), (("10.0.0.3", 1), B), (B, ("10.0.0.3", 1))]
    packets = [Packet(*ends[way], seq, seq ^ 0xFFFF, flags, body) for way, seq, flags, body in data]

    one, two = read(packets, 1, 2), read(packets, 1000)

    assert one.runs == two.runs
    assert one.flows == two.flows


HOUR_NS = 3600 * 10**9


def later(packets: list[Packet], pause_ns: int) -> list[Packet]:
    """The last packet comes so much later."""
    return [*packets[:-1], replace(packets[-1], ts_ns=packets[-2].ts_ns + pause_ns)]


def test_a_hole_is_given_up_after_an_idle_hour_whatever_else_is_captured(window: int) -> None:
    """A sweep would have given it up, had others sent enough packets; the result is the same without one."""
    packets = [*HANDSHAKE, a(1000, b"one"), a(1006, b"two"), a(1003, b"gap")]
    timed = [replace(p, ts_ns=10**18 + i) for i, p in enumerate(packets)]

    soon, late = read(later(timed, HOUR_NS - 9), window), read(later(timed, HOUR_NS + 9), window)

    assert soon.side() == [(0, b"onegaptwo")]
    assert late.side() == [(0, b"one"), (6, b"two")]
    assert late.late() == [(0, 0, 3, 3)]


def test_holes_of_every_side_are_given_up_after_an_idle_hour(window: int) -> None:
    other = Packet(("10.0.0.3", 1), B, 9, flags=SYN)
    early = [other, *HANDSHAKE, a(1000, b"one"), a(1006, b"two"), b(5000, b"one"), b(5006, b"two")]
    late = [a(1003, b"gap"), b(5003, b"gap")]
    times = [*range(len(early)), HOUR_NS + 20, HOUR_NS + 21]
    packets = [replace(packet, ts_ns=10**18 + time) for packet, time in zip([*early, *late], times, strict=True)]

    seen = read(packets, window)

    assert seen.side(0, 1) == seen.side(1, 1) == [(0, b"one"), (6, b"two")]


def test_bytes_sent_again_after_an_idle_hour_are_not_compared(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"one"), a(1000, b"oNe")]
    timed = [replace(p, ts_ns=10**18 + i) for i, p in enumerate(packets)]

    assert read(later(timed, HOUR_NS - 9), window).conflicts() == [(0, 0, 1, 1)]
    assert read(later(timed, HOUR_NS + 9), window).conflicts() == []


def test_a_pause_alone_changes_nothing(window: int) -> None:
    packets = [*HANDSHAKE, a(1000, b"one"), a(1003, b"two")]
    timed = [replace(p, ts_ns=10**18 + i) for i, p in enumerate(packets)]
    seen = read(later(timed, 5 * HOUR_NS), window)

    assert seen.side() == [(0, b"onetwo")]
    assert len(seen.flows) == 1
    assert seen.late() == seen.gaps() == []
