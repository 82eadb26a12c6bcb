"""Who takes a connection, and which servers that proves."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from mqpcap.decode import detection
from mqpcap.decode.detection import DecodeAs, Detection, Detector, FlowOrigin, PendingDetection
from mqpcap.decode.message_buffer import ChunkPackets, PacketIndex
from mqpcap.decode.scanning import Scanners
from mqpcap.decode.stream_chunk import StreamChunk
from mqpcap.protocols import protocols
from mqpcap.schema.protocol import Claim, MessageQueue, Opening, Verdict

HELLO = bytes.fromhex("0000000b 01 0000000000000001 0001")
BLIPMQ = protocols()["blipmq"]


def origin(port: int = 7878, a_is_client: bool = True) -> FlowOrigin:
    return FlowOrigin(1, 0, a_is_client, 4, (0, 0), (0x0A000001, 0x0A000002), (50000, port), (a_is_client, a_is_client))


def detected(data: bytes, side: int = 0, ts_ns: int = 5, offset: int = 0) -> StreamChunk:
    cells = np.array([[offset], [len(data)], [ts_ns], [1], [0], [0], [0], [0]], np.int64)
    packets = ChunkPackets(PacketIndex(cells), 0, 1)
    return StreamChunk(side, memoryview(data), 0, len(data), offset, packets, False, False)


def detector(*decode_as: DecodeAs, of: Mapping[str, MessageQueue] | None = None) -> Detector:
    return Detector(of or protocols(), decode_as, (), Scanners())


def test_the_first_packet_decides_nearly_always() -> None:
    choice, packet = detector().detect_first(origin(), [detected(HELLO)])

    assert isinstance(choice, Detection)
    assert (choice.protocol, choice.client, choice.identified_by, packet) == (BLIPMQ, 0, "content", (5, 1, 0))


def test_connections_that_begin_alike_are_asked_about_once_and_others_anew() -> None:
    """The same bytes say something else from the server, on another port, and where no SYN was captured."""
    shown: list[Opening] = []

    def claims(opening: Opening) -> Claim:
        shown.append(opening)
        return BLIPMQ.claims(opening)

    asked = detector(of={"blipmq": replace(BLIPMQ, claims=claims, first_claim=None)})
    assert asked.detect_first(origin(), [detected(HELLO)]) == asked.detect_first(
        origin(7879), [detected(HELLO, ts_ns=5)]
    )
    assert [(x.c2s, x.on_port, x.c2s_start) for x in shown] == [(HELLO, False, True)]

    asked.detect_first(origin(5555), [detected(HELLO)])
    assert (shown[-1].on_port, shown[-1].c2s_start) == (True, True)
    asked.detect_first(origin(5555, a_is_client=False), [detected(HELLO)])
    assert not shown[-1].c2s_start
    asked.detect_first(origin(5555), [detected(HELLO, side=1)])
    assert (shown[-1].c2s, shown[-1].s2c) == (b"", HELLO)

    asked_before = len(shown)
    one, two = (asked.detect_first(origin(5555), [detected(HELLO[:9])]) for _ in range(2))
    assert isinstance(one, PendingDetection) and isinstance(two, PendingDetection) and one is not two
    assert len(shown) == asked_before + 1


def test_a_connection_that_stays_undecided_is_asked_about_as_its_bytes_grow_by_a_quarter() -> None:
    """4,096 bytes in segments of one byte: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, ... 3,393 are 36 sizes."""
    sizes: list[int] = []

    def claims(opening: Opening) -> Claim:
        sizes.append(len(opening.c2s))
        return Claim(Verdict.WAIT)

    asked = detector(of={"blipmq": replace(BLIPMQ, claims=claims, first_claim=None)})
    hold = asked.detect_first(origin(), [detected(b"x")])
    assert isinstance(hold, PendingDetection)
    for offset in range(4096):
        assert asked.detect(hold, origin(), [detected(b"x", offset=offset)]) is None

    assert sizes[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18]
    assert len(sizes) == 36


def test_unclaimed_bytes_are_buffered_and_then_foreign() -> None:
    asked = detector()
    hold = asked.detect_first(origin(443), [detected(b"\x16\x03\x01")])
    assert isinstance(hold, PendingDetection)
    assert asked.detect(hold, origin(443), [detected(b"\x16\x03\x01")]) is None

    choice = asked.detect_buffered(hold, origin(443))

    assert choice is not None
    assert (choice.protocol, choice.foreign_protocol) == (None, "TLS")


def test_a_server_counts_only_from_the_packet_that_proved_it() -> None:
    """The rows must not depend on which connections of a window were searched at first."""
    asked, of = detector(), origin(9999)
    conditional = Detection(BLIPMQ, Claim(Verdict.LIKELY, "c2s", "s2c"), 0, "peer")
    hold = PendingDetection(conditional=[conditional])
    assert asked.detect_by_server(hold, of).protocol is None
    assert [*asked.missing_servers] == [("blipmq", "10.0.0.2", 9999)]

    asked.learn(of.server(conditional), 100)

    assert asked.detect_by_server(hold, of, until_ns=99).protocol is None
    assert asked.detect_by_server(hold, of, until_ns=100) is conditional
    assert asked.detect_by_server(hold, of) is conditional


def test_servers_are_bounded_and_the_oldest_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that were proved, and those that connections asked for and nobody proved."""
    monkeypatch.setattr(detection, "MAX_SERVERS", 3)
    asked = detector()
    conditional = Detection(BLIPMQ, Claim(Verdict.LIKELY, "c2s", "s2c"), 0, "peer")
    for port in range(9000, 9010):
        asked.learn(("blipmq", "10.0.0.2", port), port)
        asked.detect_by_server(PendingDetection(conditional=[conditional]), origin(port + 100))

    assert [port for _, _, port in asked.servers] == [9007, 9008, 9009]
    assert [port for _, _, port in asked.missing_servers] == [9107, 9108, 9109]


def test_decode_as_asks_that_protocol_alone() -> None:
    asked = detector(DecodeAs(7878, "flymq"))

    hold = asked.detect_first(origin(), [detected(HELLO)])

    assert isinstance(hold, PendingDetection) or hold[0].protocol is not BLIPMQ
