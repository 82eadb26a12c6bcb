"""Rows of ``problems``: who sent what is missing, where in the stream, and when."""

from torture import ACK, FIN, SYN, Segment, blipmq_message, pcap, read_bytes

HELLO, PUBLISH = len(blipmq_message(0)), len(blipmq_message(1))


def session(*said: Segment) -> list[Segment]:
    """A handshake, then these segments; the client's first byte has the number 100, the server's 500."""
    opened = [Segment(seq=99, flags=SYN), Segment(seq=499, ack=100, flags=SYN | ACK, from_server=True)]
    return [*opened, Segment(blipmq_message(0), 100, 500), *said]


def test_lost_bytes_are_a_row_of_their_sender() -> None:
    at = 100 + HELLO
    said = session(
        Segment(blipmq_message(1), at, 500),
        Segment(blipmq_message(3), at + 2 * PUBLISH, 500),
        Segment(seq=at + 3 * PUBLISH, ack=500, flags=FIN | ACK),
    )
    (row,) = read_bytes(pcap(said, 5555)).problems

    assert (row["direction"], row["stream_offset"], row["length"]) == ("c2s", HELLO + PUBLISH, PUBLISH)
    assert (row["kind"], row["reason"], row["protocol"]) == ("gap", "lost", "blipmq")
    assert (row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]) == ("10.0.0.1", 40000, "10.0.0.2", 5555)


def test_rows_are_in_order_of_time_and_each_direction_has_its_own() -> None:
    at = 100 + HELLO
    said = session(
        Segment(b"no frame of a server", 500, at, from_server=True),
        Segment(blipmq_message(2), at + PUBLISH, 520),
        Segment(seq=at + 2 * PUBLISH, ack=520, flags=FIN | ACK),
        Segment(seq=520, ack=at + 2 * PUBLISH + 1, flags=FIN | ACK, from_server=True),
    )
    rows = read_bytes(pcap(said, 5555)).problems

    assert [row["ts"] for row in rows] == sorted(row["ts"] for row in rows)
    ends = {(row["direction"], row["src_port"], row["dst_port"], row["kind"]) for row in rows}
    assert ends == {("c2s", 40000, 5555, "gap"), ("s2c", 5555, 40000, "undecoded")}
    assert sum(row["length"] for row in rows if row["direction"] == "s2c") == len(b"no frame of a server")


def test_without_problems_there_is_no_row() -> None:
    assert read_bytes(pcap(session(), 5555)).problems == []
