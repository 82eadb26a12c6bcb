"""Where time goes: round trips by the handshake, reply times, and what clients think between them."""

import pyarrow as pa
import pytest
from segments import ACK, FIN, SYN, Packet, a, b, segments
from table_rows import rows_of

from mqpcap.statistics import delays
from mqpcap.statistics.delays import Delays

MS = 1_000_000
HANDSHAKE = (
    a(100, flags=SYN, ts_ns=0),
    b(500, flags=SYN | ACK, ack=101, ts_ns=3 * MS),
    a(101, flags=ACK, ack=501, ts_ns=5 * MS),
)


def told(made: Delays) -> dict[str, list[int | None]]:
    """By what it is of, the median of each group; only of what there is."""
    return {
        what: [summary.percentiles[50] for summary in summaries]
        for what, summaries in made.summaries().items()
        if what not in ("sending", "server") and any(summary.count for summary in summaries)
    }


def delays_of(*packets: Packet, at_once: int = 9) -> Delays:
    made = Delays()
    for i in range(0, len(packets), at_once):
        made.take_segments(segments(packets[i : i + at_once], first=i))
    return made


@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_a_handshake_shows_both_round_trips(at_once: int) -> None:
    """3 ms to the server and back, 2 ms to the client and back; what comes later says nothing."""
    later = a(101, b"hello", ack=501, ts_ns=90 * MS), b(501, ack=106, ts_ns=95 * MS)
    made = delays_of(*HANDSHAKE, *later, at_once=at_once)

    assert told(made) == {"to_server": [3 * MS], "to_client": [2 * MS]}
    assert made.summaries()["to_client"][0].count == 1
    assert made.sums.sums() == {("10.0.0.1", "10.0.0.2:5555"): {"connections": 1}}


def test_server_bytes_before_the_client_answers_show_no_round_trip() -> None:
    syn, answer, ack = HANDSHAKE

    made = delays_of(syn, answer, b(501, b"hi", ack=101, ts_ns=4 * MS), ack)

    assert told(made)["to_client"] == [2 * MS]


@pytest.mark.parametrize(
    "packets",
    [
        (HANDSHAKE[0], HANDSHAKE[0].but(ts_ns=MS), *HANDSHAKE[1:]),  # a SYN sent twice
        HANDSHAKE[1:],  # no SYN captured
        (HANDSHAKE[0], HANDSHAKE[1].but(ack=900), HANDSHAKE[2]),  # an answer to another SYN
        (HANDSHAKE[0], HANDSHAKE[2].but(flags=FIN)),
    ],
)
def test_other_handshakes_show_no_round_trip(packets: tuple[Packet, ...]) -> None:
    assert told(delays_of(*packets)) == {}


@pytest.mark.parametrize("at_once", [1, 6, 9])
def test_a_port_used_again_is_another_handshake(at_once: int) -> None:
    """What the client sent on the connection before does not answer the server; later, 40 ms is no round trip."""
    again = [packet.but(seq=packet.seq + 7000, ts_ns=packet.ts_ns + 50 * MS) for packet in HANDSHAKE]
    again[1] = again[1].but(ack=again[0].seq + 1)
    made = delays_of(*HANDSHAKE, *again, again[2].but(ts_ns=95 * MS), at_once=at_once)

    assert made.sums.sums() == {("10.0.0.1", "10.0.0.2:5555"): {"connections": 2}}
    (back,) = made.summaries()["to_client"]
    assert back.percentiles[100] == 2 * MS


def test_packets_of_the_next_file_are_later_than_the_last_ones_of_this() -> None:
    """Numbers begin with 1 in every file of a capture."""
    made = Delays()
    made.take_segments(segments(HANDSHAKE[:2], first=900))
    made.take_segments(segments([HANDSHAKE[2], a(101, b"late", ts_ns=90 * MS)]))

    assert told(made) == {"to_server": [3 * MS], "to_client": [2 * MS]}


def test_only_the_newest_handshakes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "MAX_TRACKED_FLOWS", 2)
    syns = [HANDSHAKE[0].but(src=("10.0.0.1", port)) for port in (1, 2, 3)]
    answers = [HANDSHAKE[1].but(dst=("10.0.0.1", port)) for port in (1, 2, 3)]

    assert delays_of(*syns, *answers).sums.sums() == {("10.0.0.1", "10.0.0.2:5555"): {"connections": 2}}


def exchange(asked_ns: int, replied_ns: int | None, connection: int = 1) -> dict[str, object]:
    latency_ns = None if replied_ns is None else replied_ns - asked_ns
    times = {"request_ts_ns": asked_ns, "reply_ts_ns": replied_ns, "latency_ns": latency_ns}
    return {"connection_id": connection, **times}


def test_a_client_thinks_from_a_reply_to_its_next_request() -> None:
    """Replies after 4 and 6; 10 to 17 is think_ns; what other connections do, and a request without reply, is not."""
    made = Delays()
    made.take_exchanges(rows_of("exchanges", exchange(17, 23), exchange(6, 10), exchange(50, None)))

    assert told(made) == {"reply": [4], "client": [7]}
    made.take_exchanges(rows_of("exchanges", exchange(30, 36, connection=2)))
    assert made.summaries()["client"][0].count == 1


def test_a_request_that_waits_for_a_delayed_ack_is_slow_to_send_and_not_slow_in_the_server() -> None:
    """43.028 ms from the first byte to the reply, which came 0.144 ms after the last byte."""
    rows = rows_of("exchanges", exchange(0, 43_028_000))
    if "server_ns" in rows.column_names:
        rows = rows.drop_columns(["server_ns"])
    delays_ = Delays()
    delays_.take_exchanges(rows.append_column("server_ns", pa.array([144_000], pa.int64())))

    medians = {kind: summaries[0].percentiles[50] for kind, summaries in delays_.summaries().items()}
    assert (medians["reply"], medians["sending"], medians["server"]) == (43_028_000, 42_884_000, 144_000)


def test_think_time_spans_batches_and_excludes_pipelined_requests() -> None:
    made = Delays()
    made.take_exchanges(rows_of("exchanges", exchange(1, 10), exchange(2, 11)))
    assert told(made) == {"reply": [9]}

    made.take_exchanges(rows_of("exchanges", exchange(16, 17)))

    assert told(made)["client"] == [5]


def test_only_the_newest_connections_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "MAX_TRACKED_FLOWS", 2)
    made = Delays()
    for at_ns in (10, 100):
        made.take_exchanges(rows_of("exchanges", *(exchange(at_ns, at_ns + 5, number) for number in (1, 2, 3))))

    assert made.summaries()["client"][0].count == 2
