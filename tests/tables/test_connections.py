"""Rows of ``connections``: what was counted of each side, counted by hand."""

from typing import Any

from torture import ACK, FIN, RST, SYN, Segment, blipmq_message, pcap, read_bytes

HELLO, PUBLISH = len(blipmq_message(0)), len(blipmq_message(1))
START_NS = 1_700_000_000_000_000_000
OPENED = [
    Segment(seq=99, flags=SYN),
    Segment(seq=499, ack=100, flags=SYN | ACK, from_server=True),
    Segment(blipmq_message(0), 100, 500),
]


def row_of(*said: Segment) -> dict[str, Any]:
    (row,) = read_bytes(pcap(said, 5555)).connections
    return row


def test_each_side_is_counted_for_itself() -> None:
    """A publish that came twice, one that was lost, one behind it."""
    at = 100 + HELLO
    row = row_of(
        *OPENED,
        *[Segment(blipmq_message(1), at, 500)] * 2,
        Segment(blipmq_message(3), at + 2 * PUBLISH, 500),
        Segment(seq=at + 3 * PUBLISH, ack=500, flags=FIN | ACK),
        Segment(seq=500, ack=at + 3 * PUBLISH + 1, flags=FIN | ACK, from_server=True),
    )

    counted = {name.removesuffix("_c2s"): row[name] for name in row if name.endswith("_c2s")}
    assert counted == {
        "packets": 6, "bytes": HELLO + 2 * PUBLISH, "retransmitted_bytes": PUBLISH, "conflict_bytes": 0,
        "missing_bytes": PUBLISH, "messages": 3, "duplicate_packets": 0, "tls_bytes": 0,
        "closed_window_ns": 0,
    }  # fmt: skip
    assert (row["packets_s2c"], row["bytes_s2c"], row["messages_s2c"]) == (2, 0, 0)
    assert (row["first_ts_ns"], row["last_ts_ns"]) == (START_NS, START_NS + 7_000_000)
    assert (row["syn_seen"], row["end_state"], row["protocol"]) == (True, "closed", "blipmq")


def test_the_client_is_the_sender_of_hello_whichever_packet_came_first() -> None:
    row = row_of(Segment(b"", 500, 100, ACK, from_server=True), Segment(blipmq_message(0), 100, 500))

    assert (row["client_ip"], row["client_port"], row["server_ip"], row["server_port"]) == (
        "10.0.0.1", 40000, "10.0.0.2", 5555,
    )  # fmt: skip
    assert (row["syn_seen"], row["end_state"], row["packets_c2s"], row["packets_s2c"]) == (False, "open", 1, 1)


def test_a_reset_is_reported_rather_than_a_close() -> None:
    end = 100 + HELLO
    closed = [Segment(seq=end, ack=500, flags=FIN | ACK), Segment(seq=500, ack=end, flags=RST, from_server=True)]

    assert row_of(*OPENED, *closed)["end_state"] == "reset"


def test_what_speaks_something_else_has_a_row_without_a_protocol() -> None:
    row = row_of(Segment(seq=99, flags=SYN), Segment(b"\x16\x03\x01\x02\x00\x01" + bytes(60), 100, 0))

    assert (row["protocol"], row["identified_by"], row["tls"]) == (None, None, "closed")
    assert row["bytes_c2s"] == 66
