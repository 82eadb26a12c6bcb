"""What the matcher is given of each message, start and end: acknowledgement numbers by hand arithmetic.

The client's stream begins at sequence number 1001, the server's at 5001; each message has 24 bytes.
"""

from typing import Any

import numpy as np
import pytest
from torture import ACK, FIN, RST, SYN, Segment, broken_laws, pcap, read_bytes

from mqpcap.capture import captures, windows
from mqpcap.correlate import Batch, ConnectionEnds, Correlation, Watermarks
from mqpcap.hooks import StageHooks
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tcp.flow_records import NO_OFFSET

Q = bytes.fromhex("af011200 00000010 000e") + b"topic of fifty"
"""A request of FlyMQ, LIST_SCHEMAS: header, topic with its length."""
R = bytes.fromhex("af010800 00000010 00000001 000a") + b"topic of 5"
"""A reply of FlyMQ, LIST_TOPICS: header, number of topics, a topic with its length."""
SYN_SENT = Segment(b"", 1000, 0, SYN)
SYN_ACK = Segment(b"", 5000, 1001, SYN | ACK, from_server=True)
FIRST_ACK = Segment(b"", 1001, 5001, ACK)
OPEN = [SYN_SENT, SYN_ACK, FIRST_ACK]
"""Segments of a handshake."""


def client(offset: int, ack: int, body: bytes = Q, flags: int = ACK) -> Segment:
    """A segment of the client, its places as offsets of both streams."""
    return Segment(body, 1001 + offset, 5001 + ack, flags)


def server(offset: int, ack: int, body: bytes = R, flags: int = ACK) -> Segment:
    return Segment(body, 5001 + offset, 1001 + ack, flags, from_server=True)


@pytest.fixture(params=[1, 1 << 16], ids=["one packet a window", "one window"])
def window_packets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", request.param)


def given(segments: list[Segment], tmp_path: Any) -> tuple[list[tuple[int, ...]], list[ConnectionEnds]]:
    """Of each message: whether the client's, offset, first_ack, last_ack, started, acked_from; and the ends."""
    rows: list[tuple[int, ...]] = []
    ends: list[ConnectionEnds] = []

    def record(protocol: str, correlation: Correlation) -> None:
        feed, close = correlation.feed, correlation.close

        def record_batch(batch: Batch | None, behind: Watermarks) -> Any:
            columns = "from_client", "offset", "first_ack", "last_ack", "start_seen", "acked_from"
            if batch is not None:
                rows.extend(zip(*(getattr(batch, name).tolist() for name in columns), strict=True))
            return feed(batch, behind)

        def record_end(closing: ConnectionEnds) -> Any:
            ends.append(closing)
            return close(closing)

        correlation.feed, correlation.close = record_batch, record_end  # type: ignore[method-assign]

    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(segments, 9092))
    (capture,) = captures([str(path)]).captures
    CapturePipeline(capture, Options(), lambda output: None, hooks=StageHooks(correlation=record)).run()
    return sorted(rows, reverse=True), ends


@pytest.mark.usefixtures("window_packets")
def test_a_message_has_the_acknowledgements_of_its_first_and_its_last_segment(tmp_path: Any) -> None:
    segments = [
        *OPEN, client(0, 0), server(0, 24), client(24, 0, Q[:10]), server(24, 24), client(34, 48, Q[10:]),
    ]  # fmt: skip

    rows, _ = given(segments, tmp_path)

    assert rows == [
        (True, 24, 0, 48, True, 0), (True, 0, 0, 0, True, 0), (False, 24, 24, 24, True, 0), (False, 0, 24, 24, True, 0),
    ]  # fmt: skip


@pytest.mark.usefixtures("window_packets")
def test_the_segment_whose_bytes_were_kept_counts(tmp_path: Any) -> None:
    """Segment 24 to 48 comes late with the acknowledgement of 24; a copy that acknowledges 48 follows."""
    segments = [
        *OPEN, client(0, 0), server(0, 24), client(48, 24), client(24, 24), server(24, 72), client(24, 48),
        client(72, 48),
    ]  # fmt: skip

    rows, _ = given(segments, tmp_path)

    assert [row[1:4] for row in rows if row[0]] == [(72, 48, 48), (48, 24, 24), (24, 24, 24), (0, 0, 0)]


@pytest.mark.usefixtures("window_packets")
@pytest.mark.parametrize("order", ["SA", "AS", "S1", "A1", "1A", "1S"])
def test_two_of_three_opening_segments_make_the_start_known(order: str, tmp_path: Any) -> None:
    """S: the SYN, A: the SYN-ACK, 1: the client's first ACK. Recorded in either order, with the first reply lost."""
    by_name = dict(zip("SA1", OPEN, strict=True))
    segments = [*(by_name[name] for name in order), client(0, 0), server(24, 24), client(24, 48), server(48, 48)]
    if order == "1S":
        # An ACK in front of the SYN is where the connection began for who reads on; the SYN then names the start.
        segments = [FIRST_ACK, SYN_SENT, client(0, 0), server(24, 24), client(24, 48), server(48, 48)]

    rows, _ = given(segments, tmp_path)

    assert [row for row in rows if row[0]] == [(True, 24, 48, 48, True, 0), (True, 0, 0, 0, True, 0)]
    assert [row[1:] for row in rows if not row[0]] == [(48, 48, 48, True, 0), (24, 24, 24, True, 0)]


@pytest.mark.usefixtures("window_packets")
def test_a_handshake_after_the_first_bytes_does_not_show_the_start(tmp_path: Any) -> None:
    """The client's first message is complete, and its row made, before the SYN-ACK.

    It acknowledges a reply, so it is not the client's first ACK, which would make the start known with the SYN.
    """
    segments = [SYN_SENT, server(0, 24, b""), client(0, 24), SYN_ACK, server(0, 24)]

    rows, _ = given(segments, tmp_path)

    assert [(is_client, offset, started) for is_client, offset, *_, started, _ in rows] == [
        (True, 0, False), (False, 0, False)
    ]  # fmt: skip


@pytest.mark.usefixtures("window_packets")
def test_a_syn_after_the_first_bytes_proves_nothing_new(tmp_path: Any) -> None:
    """The SYN-ACK made both starts known; the client's first bytes come in another order than they were sent."""
    segments = [SYN_ACK, client(24, 0), server(0, 48), SYN_SENT, client(0, 0)]

    rows, _ = given(segments, tmp_path)

    assert {row[4] for row in rows} == {True}


@pytest.mark.usefixtures("window_packets")
def test_a_late_capture_counts_from_its_first_bytes_and_names_what_was_acknowledged_before(tmp_path: Any) -> None:
    """The first reply (24 bytes) was not captured: the client acknowledged only what came before it.

    The client's first captured byte is its 240th, the server's its 504th; the server's first segment acknowledges all.
    """
    segments = [client(240, 480), server(504, 264), client(264, 528), server(528, 288), client(288, 552)]

    rows, _ = given(segments, tmp_path)

    assert rows == [
        (True, 48, 48, 48, False, 24), (True, 24, 24, 24, False, 24), (True, 0, -24, -24, False, 24),
        (False, 24, 48, 48, False, -24), (False, 0, 24, 24, False, -24),
    ]  # fmt: skip


def test_acknowledgements_across_the_wrap_of_sequence_numbers(tmp_path: Any) -> None:
    segments = [
        Segment(b"", 1000, 0, SYN), Segment(b"", 2**32 - 31, 1001, SYN | ACK, from_server=True),
        Segment(Q, 1001, 2**32 - 30), Segment(R, 2**32 - 30, 1025, from_server=True), Segment(Q, 1025, 2**32 - 6),
        Segment(R, 2**32 - 6, 1049, from_server=True), Segment(Q, 1049, 18),
    ]  # fmt: skip

    rows, _ = given(segments, tmp_path)

    assert [row[2] for row in rows if row[0]] == [48, 24, 0]


def test_one_side_alone_acknowledges_nothing_that_is_known(tmp_path: Any) -> None:
    rows, _ = given([client(24 * k, 7) for k in range(4)], tmp_path)

    assert {row[2:] for row in rows} == {(NO_OFFSET, NO_OFFSET, False, NO_OFFSET)}


END = [*OPEN, client(0, 0), server(0, 24)]
FINS = [client(24, 24, b"", FIN | ACK), server(24, 25, b"", FIN | ACK)]


@pytest.mark.usefixtures("window_packets")
@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([*END, *FINS, client(25, 25, b"")], (True, 24, 24)),
        # The server's FIN does not acknowledge the client's, or came first, or an RST follows.
        ([*END, FINS[0], server(24, 24, b"", FIN | ACK)], (False, 24, 24)),
        ([*END, server(24, 24, b"", FIN | ACK), client(24, 25, b"", FIN | ACK)], (False, 24, 24)),
        ([*END, *FINS, server(25, 25, b"", RST)], (False, 24, 24)),
        # The client's second message was not captured, but acknowledged by a FIN after the third reply.
        ([*END, client(48, 72, b"", FIN | ACK), server(72, 49, b"", FIN | ACK)], (True, 48, 72)),
        # No end: what was acknowledged, sent or not captured.
        ([*END, server(48, 72), client(24, 24, b"")], (False, 72, 72)),
        # One more than was sent is as likely a FIN.
        ([*END, server(24, 25, b"")], (False, 24, 24)),
    ],
)
def test_the_end_of_a_connection(segments: list[Segment], expected: tuple[int, ...], tmp_path: Any) -> None:
    _, (closing,) = given(segments, tmp_path)

    names = "orderly", "requests_extent", "replies_extent"
    assert tuple(np.asarray(getattr(closing, name)).item() for name in names) == expected


def test_the_fin_is_no_byte_of_what_the_snap_length_cut(tmp_path: Any) -> None:
    """The last segment has 14 of 24 bytes on file; the FIN and the last ACK come after it."""
    cut = Segment(Q[:14], 1025, 5025, ACK, wire_bytes=24)
    segments = [*OPEN, client(0, 0), server(0, 24), cut, client(48, 24, b"", FIN | ACK), server(24, 49, b"", FIN | ACK)]

    result = read_bytes(pcap([*segments, client(49, 25, b"")], 9092))

    assert broken_laws(result) == []
    assert [c["missing_bytes_c2s"] for c in result.connections] == [10]
    assert [(p["stream_offset"], p["length"]) for p in result.problems if p["kind"] == "gap"] == [(38, 10)]
