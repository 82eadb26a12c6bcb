"""Packets and stretches of streams read again: what the file has, wherever it is and however it was captured."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from combined_cases import conversation, write
from hypothesis import given
from hypothesis import strategies as st
from torture import ACK, CLIENT_PORT, SYN, Segment, packet, pcap, toy_layer

from mqpcap.capture import captures
from mqpcap.errors import CaptureError
from mqpcap.listing import packet_locator
from mqpcap.listing.packet_locator import CapturedPacket, PacketLocator, window_of
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tables.output import Output

PORT = 5000
START_NS, MS = 1_700_000_000_000_000_000, 1_000_000
STREAM = bytes(range(40)) * 5
SEQ = (1 << 32) - 30
"""Of the SYN: sequence numbers wrap in the stream."""


def segment(at: int, length: int, wire_bytes: int = -1, client_port: int = CLIENT_PORT) -> Segment:
    body = STREAM[at : at + length]
    return Segment(body, SEQ + 1 + at, 501, wire_bytes=wire_bytes, client_port=client_port)


OPENING = (Segment(b"", SEQ, flags=SYN), Segment(b"", 500, SEQ + 1, SYN | ACK, from_server=True))


def placed(path: Path, *segments: Segment, packed: bool = False) -> tuple[PacketLocator, int]:
    """Where packets of a capture are, and the id of its first connection."""
    data = pcap([*OPENING, *segments], PORT)
    path.write_bytes(gzip.compress(data) if packed else data)
    return located(path)


def located(path: Path) -> tuple[PacketLocator, int]:
    (capture,) = captures([str(path)]).captures
    ids: list[int] = []

    def take(output: Output) -> None:
        if output.table == "connections":
            ids.extend(output.rows["connection_id"].to_pylist())

    with toy_layer():
        locator = PacketLocator(capture)
        CapturePipeline(capture, Options(), take, hooks=locator.hooks()).run()
    return locator, ids[0]


@pytest.mark.parametrize("packed", [False, True])
def test_packets_are_those_of_the_file(tmp_path: Path, packed: bool) -> None:
    cut = segment(0, 20, wire_bytes=50)
    places, _ = placed(tmp_path / "a.pcap", cut, segment(50, 5), packed=packed)

    for _ in range(2):  # also when what is unpacked is there already
        found = places.packets(np.array([3, 2]))
        assert [one.raw for one in found] == [packet(segment(50, 5), PORT)[0], packet(cut, PORT)[0]]
        assert [one.wire_len - len(one.raw) for one in found] == [0, 30]
        assert [(one.ts_ns, one.link_type) for one in found] == [(START_NS + 3 * MS, 1), (START_NS + 2 * MS, 1)]


pieces = st.lists(st.tuples(st.integers(0, 199), st.integers(1, 60)), min_size=1, max_size=12)


@given(pieces, st.integers(0, 190), st.integers(1, 60), st.data())
def test_a_stretch_is_gathered_up_to_the_first_byte_that_is_missing(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[int, int]], offset: int, length: int, data: st.DataObject
) -> None:
    """From whichever packets it is begun; packets of both directions are between."""
    folder = tmp_path_factory.mktemp("places")
    segments = [segment(at, size) for at, size in sent]
    between = Segment(b"answer", 501, from_server=True)
    places, of = placed(folder / "a.pcap", *(x for one in segments for x in (one, between)))
    there = {at + i for (at, _), one in zip(sent, segments, strict=True) for i in range(len(one.body))}
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, 1 + 2 * len(sent))] * 2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packet_locator, "FIRST_STEP", 1)
        body, used = places.gather(places.side(of, "c2s"), offset, length, first, last)

    whole = next((i for i in range(length) if offset + i not in there), length)
    assert body == STREAM[offset : offset + whole]
    carried = [range(sent[row // 2 - 1][0], sum(sent[row // 2 - 1])) for row in used.tolist()]
    assert all(any(offset <= byte < offset + length for byte in one) for one in carried)
    assert all(any(offset + i in one for one in carried) for i in range(whole))


def test_the_first_copy_of_a_byte_wins(tmp_path: Path) -> None:
    other = Segment(b"?" * 20, SEQ + 1, 501)
    places, of = placed(tmp_path / "a.pcap", segment(0, 10), other)

    assert places.gather(places.side(of, "c2s"), 0, 20, 2, 3)[0] == STREAM[:10] + b"?" * 10


def test_a_copy_with_a_wrong_checksum_gives_way(tmp_path: Path) -> None:
    """As in the tables: another copy wins, also a later one; without another the damaged bytes are taken."""
    sent = conversation([(True, STREAM[:100]), (True, STREAM[100:])])
    first, second = (packet for packet in sent if packet.body)
    wrong = replace(first, body=b"?" * 100, is_damaged=True)
    index, alone = sent.index(first), replace(second, body=b"!" * 100, is_damaged=True)
    packets = [*sent[:index], wrong, *(alone if packet is second else packet for packet in sent[index:])]
    write(tmp_path / "a.pcap", packets, PORT)
    places, of = located(tmp_path / "a.pcap")

    assert places.gather(places.side(of, "c2s"), 0, 200, 0, len(packets) - 1)[0] == STREAM[:100] + b"!" * 100


def test_what_is_cut_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    places, of = placed(tmp_path / "a.pcap", segment(0, 10), segment(10, 10))
    side = places.side(of, "c2s")

    assert places.gather(side, 0, 20, 2, 2, is_truncated=True)[0] == STREAM[:10]
    assert places.gather(side, 0, 20, 2, 2)[0] == STREAM[:20]


def test_places_are_distinguished_by_file_time_and_connection(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    places, of = placed(path, segment(0, 10), segment(0, 10, client_port=41000), segment(10, 10))
    side = places.side(of, "s2c")

    assert places.first_index(str(path)) == 0
    assert places.index_at(4, START_NS) == 3
    assert places.connection_packets(side, START_NS, START_NS + 99 * MS).tolist() == [0, 1, 2, 4]
    assert places.connection_packets(side, START_NS + MS, START_NS + 3 * MS).tolist() == [1, 2]
    missing = (lambda: places.first_index("b.pcap"), lambda: places.index_at(9, 0), lambda: places.side(of + 1, "c2s"))
    for ask in missing:
        with pytest.raises(LookupError, match="the capture has no"):
            ask()


def test_a_file_that_became_shorter_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    places, _ = placed(path, segment(0, 10))
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(CaptureError, match=r"a\.pcap is shorter than when it was read"):
        places.packets(np.array([2]))


def test_packets_by_hand_are_a_window() -> None:
    window = window_of([CapturedPacket(b"abc", 9, 5, 1), CapturedPacket(b"de", 2, 7, 113)], np.array([4, 8]))

    assert bytes(window.buffer) == b"abcde"
    assert (window.offset.tolist(), window.caplen.tolist(), window.wirelen.tolist()) == ([0, 3], [3, 2], [9, 2])
    assert (window.packet_number.tolist(), window.link_type.tolist()) == ([4, 8], [1, 113])
