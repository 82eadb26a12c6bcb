"""SYNs: which connection one belongs to, who is the client, where a stream begins."""

import numpy as np
import pytest
from flows import flows_of
from segments import ACK, FIN, RST, SYN, A, Packet, a, b, segments
from streams import HANDSHAKE, read

from mqpcap.tcp.reassembly import Reassembler


def test_data_captured_before_its_own_syn(window: int) -> None:
    seen = read([a(1000, b"abc", ack=5000), *HANDSHAKE, a(1003, b"def")], window)

    assert seen.side() == [(0, b"abcdef")]
    assert len(seen.flows) == 1
    assert seen.flows[0].syn == (True, True)


def test_server_data_captured_before_the_handshake_turns_the_flow_round(window: int) -> None:
    seen = read([b(5000, b"hello", ack=1000), *HANDSHAKE, a(1000, b"hi", ack=5005)], window)

    assert (seen.flows[0].a_ip, seen.flows[0].a_is_client) == (A[0], True)
    assert seen.side(0) == [(0, b"hi")]
    assert seen.side(1) == [(0, b"hello")]


def test_a_conflict_of_server_data_captured_before_the_handshake_is_the_servers(window: int) -> None:
    early = [b(5000, b"hello", ack=1000), b(5000, b"hexlo", ack=1000, ts_ns=5)]
    seen = read([*early, *HANDSHAKE, a(1000, b"hi", ack=5005)], window)

    assert (seen.flows[0].a_ip, seen.side(1)) == (A[0], [(0, b"hello")])
    assert seen.conflicts() == [(0, 1, 2, 1)]


def test_later_server_data_captured_before_the_handshake_does_not_hide_the_syn_ack(window: int) -> None:
    later = b(5003, b"lo", ack=1002)
    seen = read([later, *HANDSHAKE, a(1000, b"hi", ack=5000), b(5000, b"hel", ack=1002)], window)

    assert (len(seen.flows), seen.flows[0].syn) == (1, (True, True))
    assert (seen.side(0), seen.side(1)) == ([(0, b"hi")], [(0, b"hello")])


def test_syn_and_answer_swapped(window: int) -> None:
    seen = read([HANDSHAKE[1], HANDSHAKE[0], HANDSHAKE[2], a(1000, b"hi")], window)

    assert len(seen.flows) == 1
    assert (seen.flows[0].a_ip, seen.flows[0].syn) == (A[0], (True, True))


def test_a_syn_ack_without_its_syn_shows_the_client() -> None:
    seen = read([HANDSHAKE[1], a(1003, b"lo")])

    assert (seen.flows[0].a_ip, seen.flows[0].a_is_client, seen.flows[0].syn_seen) == (A[0], True, True)
    assert seen.gaps() == [(0, 0, 0, 3)]


def test_data_with_the_syn(window: int) -> None:
    packets = [a(999, b"fast", flags=SYN), b(4999, flags=SYN | ACK, ack=1004), a(1004, b"open", ack=5000)]
    seen = read(packets, window)

    assert len(seen.flows) == 1
    assert seen.side() == [(0, b"fastopen")]


def test_data_with_the_syn_that_is_sent_again(window: int) -> None:
    packets = [a(999, b"fast", flags=SYN), b(4999, flags=SYN | ACK, ack=1000), a(1000, b"fastopen", ack=5000)]
    seen = read(packets, window)

    assert len(seen.flows) == 1
    assert seen.side() == [(0, b"fastopen")]
    assert seen.flows[0].retransmitted == (4, 0)


@pytest.mark.parametrize(
    ("packets", "flows"),
    [
        ([*HANDSHAKE, HANDSHAKE[0], HANDSHAKE[1], a(1000, b"x"), HANDSHAKE[0]], 1),
        ([HANDSHAKE[0], HANDSHAKE[0], *HANDSHAKE], 1),
        ([HANDSHAKE[0], b(0, flags=RST | ACK, ack=1000), HANDSHAKE[0]], 1),
        ([HANDSHAKE[0], b(0, flags=RST | ACK, ack=1000), a(777, flags=SYN)], 2),
        ([*HANDSHAKE, a(777, flags=SYN)], 1),
        ([*HANDSHAKE, a(777, flags=SYN), b(5000, ack=1000)], 1),
        ([*HANDSHAKE, a(777, flags=SYN), b(9999, flags=SYN | ACK, ack=778)], 2),
        ([*HANDSHAKE, a(777, flags=SYN), b(0, flags=RST | ACK, ack=778)], 2),
        ([*HANDSHAKE, a(777, flags=SYN), a(778, b"x")], 2),
        ([*HANDSHAKE, a(777, flags=SYN), a(1000, b"x")], 1),
        ([*HANDSHAKE, a(1000, flags=FIN | ACK, ack=5000), b(5000, flags=FIN | ACK, ack=1001), HANDSHAKE[0]], 1),
        ([*HANDSHAKE, a(1000, flags=FIN | ACK, ack=5000), b(5000, flags=FIN | ACK, ack=1001), a(7, flags=SYN)], 2),
        ([*HANDSHAKE, b(6000, flags=SYN)], 1),
        ([a(1000, b"old", ack=9)] * 3 + [a(70000, flags=SYN)], 1),
        ([a(1000, b"old", ack=9)] * 3 + [a(70000, flags=SYN), a(70001, b"new", ack=9)], 2),
        ([HANDSHAKE[0], b(4999, flags=SYN | ACK, ack=1000), b(8999, flags=SYN | ACK, ack=1000)], 1),
        ([*HANDSHAKE, b(8999, flags=SYN | ACK, ack=333)], 1),
        ([*HANDSHAKE, b(2**31, flags=SYN | ACK, ack=2**30), a(2**30, ack=2**31 + 1)], 2),
        ([HANDSHAKE[0], HANDSHAKE[1], b(5000, b"x", ack=1000), b(8999, flags=SYN | ACK, ack=1000)], 1),
        ([b(5000, b"x", ack=1000), a(999, flags=SYN)], 1),
        ([b(5000, b"x", ack=1000), a(777, flags=SYN)], 1),
    ],
)
def test_which_syn_opens_a_new_flow(packets: list[Packet], flows: int, window: int) -> None:
    assert len(read(packets, window).flows) == flows


def test_trailing_packets_of_a_closed_flow_stay_in_it(window: int) -> None:
    close = [a(1003, flags=FIN | ACK, ack=5000), b(5000, flags=FIN | ACK, ack=1004), a(1004, ack=5001)]
    seen = read([*HANDSHAKE, a(1000, b"abc", ack=5000), *close, a(1000, b"abc"), close[0], close[2]], window)

    assert len(seen.flows) == 1
    assert seen.flows[0].packets == (8, 2)
    assert seen.flows[0].retransmitted == (3, 0)


def test_holes_of_the_old_flow_are_given_up_when_its_ports_are_used_again(window: int) -> None:
    again = [a(70000, flags=SYN), a(70001, b"new")]
    seen = read([*HANDSHAKE, a(1000, b"abc"), a(1010, b"def"), *again], window)

    assert seen.side(flow=0) == [(0, b"abc"), (10, b"def")]
    assert seen.side(flow=1) == [(0, b"new")]
    assert seen.gaps() == [(0, 0, 3, 7)]


@pytest.mark.parametrize(
    ("times", "equal"),
    [
        ([1, 2, 3], [0, 0, 0]),
        ([5, 5, 5], [0, 1, 2]),
        ([3, 2, 1], [0, 0, 0]),
        ([5, 9, 3, 9, 5, 9], [0, 0, 0, 1, 1, 2]),
    ],
)
def test_flows_of_one_tuple_and_time_are_numbered_whatever_came_between(times: list[int], equal: list[int]) -> None:
    assembler = Reassembler()
    assembler.feed(segments([a(1000 * i, flags=SYN, ts_ns=ts) for i, ts in enumerate(times)]))

    assert [flow.duplicate for flow in flows_of(assembler)] == equal
    assert len({flow.connection_id for flow in flows_of(assembler)}) == len(times)


def test_numbers_stay_apart_when_some_are_forgotten() -> None:
    """Times 5, 9, 3 on one tuple, then the first is forgotten: the next at 9 is still the second at 9."""
    assembler = Reassembler()
    assembler.feed(segments([a(1000 * i, flags=SYN, ts_ns=ts) for i, ts in enumerate([5, 9, 3])]))
    assembler.end(np.array([0]))
    assembler.forget(np.array([0]))
    assembler.feed(segments([a(9000 + 1000 * i, flags=SYN, ts_ns=ts) for i, ts in enumerate([9, 9, 4])]))

    assert assembler.flows.columns(assembler.live).duplicate.tolist() == [0, 0, 1, 2, 0]
