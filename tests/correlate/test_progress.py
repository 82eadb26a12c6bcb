"""Progress of reading: which sides wait for bytes, and whether an older message may still come."""

from pathlib import Path

import pytest
from torture import ACK, SYN, Segment, blipmq_message, pcap

from mqpcap.capture import captures, windows
from mqpcap.pipeline import CapturePipeline, Options

START_NS = 1_700_000_000_000_000_000
MESSAGES = [blipmq_message(i) for i in range(3)]
STREAM = b"".join(MESSAGES)
OPENING = [Segment(seq=0, flags=SYN), Segment(seq=0, ack=1, flags=SYN | ACK, from_server=True)]


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CapturePipeline:
    """A client's message, a hole, and a message after it; packets are 1 ms apart, a window each."""
    first, second = len(MESSAGES[0]), len(MESSAGES[0]) + len(MESSAGES[1])
    pieces = [Segment(STREAM[a:b], 1 + a, 1) for a, b in ((0, first), (second, len(STREAM)), (first, second))]
    path = tmp_path / "hole.pcap"
    path.write_bytes(pcap([*OPENING, *pieces], 5555))
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    return CapturePipeline(captures([str(path)]).captures[0], Options(), lambda output: None)


def test_a_side_with_a_hole_is_stalled_from_its_next_packet_on(pipeline: CapturePipeline) -> None:
    stalled = [pipeline.stages.progress.stalled_sides() for _ in pipeline.steps()]

    since_ns = START_NS + 3_000_000
    assert [sorted(sides.values()) for sides in stalled[:5]] == [[], [], [], [since_ns], []]


def test_only_a_message_that_began_before_the_time_is_open(pipeline: CapturePipeline) -> None:
    progress = pipeline.stages.progress
    states = [
        (progress.has_open_message(START_NS + 4_000_000, None), progress.has_open_message(START_NS, None))
        for _ in pipeline.steps()
    ]

    assert states[3] == (True, False)
    assert states[-1] == (False, False)


def test_a_stalled_connection_is_unresolved(pipeline: CapturePipeline) -> None:
    flows = [len(pipeline.stages.progress.unresolved_flows()) for _ in pipeline.steps()]

    assert flows[3] == 1
    assert flows[-1] == 0
