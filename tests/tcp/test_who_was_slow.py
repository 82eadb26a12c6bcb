"""Closed windows, who closed a connection and after how long, and connections that never were.

closed_by_client (``captures``): a client of a real kernel that did not read for two seconds.
"""

from pathlib import Path

import pytest
from flows import Flow
from segments import ACK, FIN, RST, SYN, Packet, a, b
from streams import read

import mqpcap

CAPTURES = Path(__file__).parent / "captures"
WIDE, MS = 512, 1_000_000
SYN_WINDOW = 2 << 16 | 64240
"""Of a SYN without scale: the option is there, with a scale of 0."""
OPENED = [
    a(999, flags=SYN, window=SYN_WINDOW),
    b(4999, ack=1000, flags=SYN | ACK, window=SYN_WINDOW),
    a(1000, ack=5000, window=WIDE),
    b(5000, b"hello", ack=1000, window=WIDE),
]


def flow(packets: list[Packet], size: int = 0) -> Flow:
    """The connection of packets, one every millisecond; in windows of a size."""
    (found,) = read(packets, *([size] if size else [])).flows
    return found


CLOSED_WINDOWS = {
    "it opens again": ([a(1000, ack=5005), a(1000, ack=5005, window=WIDE)], (0, 1)),
    "closed to the end": (
        [a(1000, ack=5005), b(5005, b"x", ack=1000, window=WIDE), b(5005, ack=1000, window=WIDE)],
        (0, 2),
    ),
    "the server's": ([b(5005, ack=1000), a(1000, ack=5005, window=WIDE), b(5005, ack=1000, window=9)], (2, 0)),
    "said again": ([a(1000, ack=5005), a(1000, ack=5005), a(1000, ack=5005, window=1)], (0, 2)),
    "twice": ([a(1000, ack=5005), a(1000, ack=5005, window=1)] * 2, (0, 2)),
    "an older acknowledgement": ([a(1000, ack=5005, window=1), a(1000, ack=5000), a(1000, ack=5005, window=1)], (0, 0)),
    "a reset has no window": ([a(1000, ack=5005, window=1), a(1000, flags=RST), b(5005, ack=1000, window=1)], (0, 0)),
}


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", CLOSED_WINDOWS)
def test_time_with_a_closed_window_is_that_of_its_receiver(name: str, size: int) -> None:
    """(c2s, s2c): the window of what a side receives is closed by the other one."""
    packets, expected_ms = CLOSED_WINDOWS[name]

    assert flow([*OPENED, *packets], size).closed_window_ns == tuple(ms * MS for ms in expected_ms)


def test_a_window_that_never_was_open_is_not_closed() -> None:
    """Programs that make packets of records write 0 everywhere."""
    packets = [packet.but(window=0) for packet in OPENED]

    assert flow([*packets, a(1000, ack=5005), a(1000, b"x", ack=5005)]).closed_window_ns == (0, 0)


def test_a_real_client_that_does_not_read_is_named(tmp_path: Path) -> None:
    """tcpdump shows a window of 0 from 21:28:23.812477 on, and the next other one 1.956571 s later."""
    (report,) = mqpcap.info(CAPTURES / "closed_by_client.pcap")
    rows = mqpcap.export(CAPTURES / "closed_by_client.pcap", tmp_path / "out") and mqpcap.read(
        CAPTURES / "closed_by_client.pcap", "connections"
    )

    assert "  closed window no room to receive for 1.957 s by the client" in [*report.lines()]
    assert [rows[f"closed_window_ns_{d}"].to_pylist() for d in ("c2s", "s2c")] == [[0], [1_956_571_000]]


FINS = [a(1000, ack=5005, flags=FIN | ACK), b(5005, ack=1001, flags=FIN | ACK), a(1001, ack=5006)]
CLOSES = {
    "still open": ([], ("open", -1)),
    "both, the client first": (FINS, ("closed", 0)),
    "the server alone": ([b(5005, ack=1000, flags=FIN | ACK)], ("closed", 1)),
    "a reset": ([b(5005, ack=1000, flags=RST | ACK)], ("reset", 1)),
    "a reset after a FIN": ([*FINS[:1], b(5005, flags=RST)], ("reset", 0)),
    "a reset far outside": ([b(5005 + (1 << 24), flags=RST), *FINS], ("closed", 0)),
    "an exact reset that nobody accepted": ([b(5005, flags=RST), *FINS], ("closed", 0)),
    "a FIN that crossed a reset": ([b(5005, flags=RST), *FINS[:1]], ("reset", 1)),
    "a FIN of other numbers": ([a(1000 + (1 << 29), flags=FIN), b(5005, ack=1000, flags=FIN | ACK)], ("closed", 1)),
}


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", CLOSES)
def test_who_closed(name: str, size: int) -> None:
    packets, expected = CLOSES[name]
    found = flow([*OPENED, *packets], size)

    assert (found.end_state, found.closed_by) == expected


def test_the_time_before_the_close_had_no_packet() -> None:
    """The last packet before it came at 4 ms."""
    late = [FINS[0].but(ts_ns=9_004 * MS), FINS[1].but(ts_ns=9_100 * MS)]
    reset = b(5005, ack=1000, flags=RST | ACK, ts_ns=1_004 * MS)

    assert flow([*OPENED, *late]).idle_before_close_ns == 9_000 * MS
    assert flow([*OPENED, reset]).idle_before_close_ns == 1_000 * MS


SYN_A, REFUSAL = a(999, flags=SYN, window=SYN_WINDOW), b(0, ack=1000, flags=RST | ACK)
BEGINNINGS = {
    "opened": OPENED[:2],
    "refused": [SYN_A, REFUSAL],
    "not answered": [SYN_A, SYN_A],
    "inside": OPENED[2:],
}


@pytest.mark.parametrize("state", BEGINNINGS)
def test_how_a_connection_began(state: str) -> None:
    assert flow(BEGINNINGS[state]).tcp_state == state


def test_one_side_of_a_connection_was_opened() -> None:
    """The client acknowledges what the capture does not have."""
    assert flow([SYN_A, a(1000, ack=5000, window=WIDE)]).tcp_state == "opened"


def test_a_refused_connection_is_not_nothing() -> None:
    (report,) = mqpcap.info("pcaps/fq/peers.pcap")

    assert {row["speaks"] for row in report.listed.values()} == {"fq", "refused"}
