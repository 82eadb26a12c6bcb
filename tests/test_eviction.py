"""Connections leave memory when there are too many, and no row is any different for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rows import Rows, of_dissections
from torture import broken_laws, result_of

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import hostile
from dissection import dissect

from mqpcap import pipeline
from mqpcap.capture import Capture, captures, windows
from mqpcap.decode.frames import Frames
from mqpcap.pipeline import Options, Pipeline
from mqpcap.tcp.headers import Segments

ROOT = Path(__file__).resolve().parent.parent
NAMES = [
    "blipmq/framing_errors", "blipmq/midstream", "flymq/login", "fq/session", "fq/midstream", "kokaq/doc_session",
    "msgq/split_session", "faults/fq_lost", "faults/flymq_no_syn", "faults/msgq_conflict", "strangers/tls_9092",
]  # fmt: skip
FEW_BYTES = 1024


def capture_of(name: str) -> Capture:
    (capture,) = captures([str(ROOT / f"pcaps/{name}.pcap")]).captures
    return capture


def tables(name: str) -> Rows:
    """All rows."""
    return of_dissections([dissect(capture_of(name))])


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of connections that left memory before the end."""
    numbers: list[int] = []
    end = Pipeline.end

    def note(run: Pipeline, flows: np.ndarray) -> None:
        numbers.extend(flows.tolist())
        end(run, flows)

    monkeypatch.setattr(Pipeline, "end", note)
    return numbers


@pytest.mark.parametrize("name", NAMES[::2])
def test_connections_that_closed_may_leave_memory_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch, closed: list[int]
) -> None:
    """Every one whose end was acknowledged does, after a few packets; nothing that is written changes."""
    whole = tables(name)
    assert closed == []

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_BYTES)
    monkeypatch.setattr(pipeline, "CLOSED_DIVISOR", Options().max_memory_bytes)

    assert tables(name) == whole
    assert len(closed) == len(set(closed))
    if name == "blipmq/framing_errors":  # twenty, one after the other
        assert len(closed) >= 18


@pytest.mark.parametrize("name", NAMES[1::2])
def test_nothing_is_lost_where_open_connections_have_to_leave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than two are kept; one that goes on then is another connection, and it is counted."""
    before = result_of(dissect(capture_of(name)))
    bytes_ = sum(c["bytes_c2s"] + c["bytes_s2c"] for c in before.connections)

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_BYTES)
    monkeypatch.setattr(pipeline, "FLOW_BYTES", Options().max_memory_bytes // 4 - 4608)
    monkeypatch.setattr(pipeline, "CLOSED_DIVISOR", 4)
    after = result_of(dissect(capture_of(name)))

    assert broken_laws(after) == []
    assert len(after.connections) >= len(before.connections)
    packets = [sum(c["packets_c2s"] + c["packets_s2c"] for c in x.connections) for x in (before, after)]
    assert packets[0] == packets[1]
    if len(after.connections) == len(before.connections):
        assert sum(c["bytes_c2s"] + c["bytes_s2c"] for c in after.connections) == bytes_


def test_evicted_connections_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "evicted_open" not in dissect(capture_of("fq/session")).counts

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_BYTES)
    monkeypatch.setattr(pipeline, "FLOW_BYTES", Options().max_memory_bytes // 4 - 4608)

    assert dissect(capture_of("fq/session")).counts["evicted_open"] > 0


@pytest.mark.parametrize("name", ["flymq/malformed", "fq/errors", "kokaq/go1_session", "msgq/flat_errors"])
def test_an_unrecognised_connection_may_be_evicted_after_the_last_packet(
    name: str, monkeypatch: pytest.MonkeyPatch, closed: list[int]
) -> None:
    whole = tables(name)

    monkeypatch.setattr(pipeline, "CLOSED_DIVISOR", Options().max_memory_bytes)

    assert tables(name) == whole
    assert closed


@pytest.mark.parametrize("name", NAMES[::4])
def test_a_small_memory_reads_few_packets_at_once_and_changes_no_row(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections may be evicted after every seven packets of a window."""
    whole, counts = tables(name), list[int]()
    frames = Pipeline.frames

    def counted(run: Pipeline, window: windows.Window, segments: Segments) -> Iterator[list[Frames]]:
        counts.extend(rows.stop - rows.start for rows in segments.parts(1 << 30, 7))
        return frames(run, window, segments)

    monkeypatch.setattr(Pipeline, "frames", counted)
    monkeypatch.setattr(pipeline, "PACKET_BYTES", Options().max_memory_bytes // 7)

    assert tables(name) == whole
    assert max(counts) == 7
    assert sum(counts) > 7


def test_sides_that_wait_and_hellos_of_tls_count_besides(tmp_path: Path) -> None:
    """640 + 1,792 bytes for a side with a hole, 640 + 1,536 + 6,656 for a connection with a hello."""
    made = hostile.Capture()
    for k, (port, seq, body) in enumerate(
        [(5555, 9, b"after a hole"), (443, 1, bytes.fromhex("16030100c8010000c40303"))]
    ):
        made.opened(hostile.client(k), (hostile.SERVER[0], port))
        made.tcp(hostile.client(k), (hostile.SERVER[0], port), seq, 1, hostile.ACK, body)
    (tmp_path / "two.pcap").write_bytes(bytes(made))
    stages = Pipeline(Options(), lambda output: None)
    for window in captures([str(tmp_path / "two.pcap")]).captures[0].windows():
        stages.feed(window)

    assert (stages.assembler.flow_count, len(stages.framer.connections)) == (2, 1)
    assert stages.capacity == Options().max_memory_bytes * 2 // (640 + 1792 + 640 + 1536 + 6656)


def test_a_connection_counts_as_what_it_holds(tmp_path: Path) -> None:
    """One SYN, one foreign connection with payload, one of BlipMQ: 640, 640 + 1,536 and 640 + 1,536 + 3,072 bytes."""
    made = hostile.Capture()
    made.tcp(hostile.client(1), (hostile.SERVER[0], 443), 0, 0, hostile.SYN)
    for k, (port, body) in enumerate(
        [(443, b"GET / HTTP/1.1\r\n\r\n"), (5555, bytes.fromhex("0000000b0100000000000000010001"))]
    ):
        made.opened(hostile.client(2 + k), (hostile.SERVER[0], port))
        made.tcp(hostile.client(2 + k), (hostile.SERVER[0], port), 1, 1, hostile.ACK, body)
    (tmp_path / "three.pcap").write_bytes(bytes(made))
    stages = Pipeline(Options(), lambda output: None)
    for window in captures([str(tmp_path / "three.pcap")]).captures[0].windows():
        stages.feed(window)

    assert (stages.assembler.flow_count, len(stages.framer.connections), stages.framer.claimed_count) == (3, 2, 1)
    assert stages.capacity == Options().max_memory_bytes * 3 // (640 + 2176 + 5248)
    stages.end(stages.assembler.live)
    assert (stages.framer.claimed_count, stages.capacity) == (0, Options().max_memory_bytes // 640)
