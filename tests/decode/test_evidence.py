"""Messages wait for the evidence of their connection: within limits, and without a trace in the rows of others."""

import gc
import itertools
import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from dissection import dissect
from torture import ACK, SYN, Segment, pcap

from mqpcap.capture import captures, windows
from mqpcap.decode import evidence
from mqpcap.decode.waiting_messages import WaitingMessages
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tables.output import Output

PCAPS = Path(__file__).parents[2] / "pcaps"


def read(path: Path, monkeypatch: pytest.MonkeyPatch, window_packets: int) -> tuple[list[str], int, int]:
    """The dialects of all messages, and the most unresolved messages of a connection and bytes of all connections."""
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", window_packets)
    dialects: list[str] = []

    def take(output: Output) -> None:
        if output.table == "messages":
            dialects.extend(output.rows["dialect"].to_pylist())

    pipeline = CapturePipeline(captures([str(path)]).captures[0], Options(), take)
    most_messages = most_bytes = 0
    for _ in pipeline.steps():
        collector = pipeline.stages.evidence
        counts = [waiting.count for x in collector._unresolved.values() for waiting in x.flows.values()]
        most_messages = max(most_messages, *counts, 0)
        most_bytes = max(most_bytes, collector.unresolved_bytes)
    assert pipeline.stages.evidence.unresolved_bytes == 0
    return dialects, most_messages, most_bytes


@pytest.fixture(scope="module")
def free() -> tuple[list[str], int, int]:
    """What is read with the limits as they are."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return read(PCAPS / "blipmq/midstream.pcap", monkeypatch, 4)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_UNRESOLVED_MESSAGES", 10), ("MAX_UNRESOLVED_BYTES", 400), ("MAX_UNRESOLVED_TOTAL_BYTES", 400)],
)
def test_unresolved_messages_are_bounded(
    limit: str, value: int, free: tuple[list[str], int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a limit the evidence found so far decides: no message is lost, and fewer wait."""
    free_dialects, free_messages, free_bytes = free
    monkeypatch.setattr(evidence, limit, value)

    dialects, messages, size_bytes = read(PCAPS / "blipmq/midstream.pcap", monkeypatch, 4)

    assert len(dialects) == len(free_dialects)
    assert messages < free_messages and size_bytes < free_bytes
    if limit == "MAX_UNRESOLVED_MESSAGES":
        assert messages <= value


def test_unresolved_messages_are_counted_with_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of 13 bytes takes 100 more for its row; windows of few packets make few blocks."""
    monkeypatch.setattr(evidence, "RELEASED_BYTES", 1)
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    rows: list[dict[str, object]] = []

    def take(output: Output) -> None:
        if output.table == "messages":
            rows.extend(output.rows.select(["connection_id", "direction", "stream_offset", "dialect"]).to_pylist())

    pipeline = CapturePipeline(captures([str(PCAPS / "blipmq/midstream.pcap")]).captures[0], Options(), take)
    for _ in pipeline.steps():
        waiting = pipeline.stages.evidence._unresolved.get("blipmq", WaitingMessages())
        assert len(waiting._blocks) <= 8
        count, byte_count = (sum(getattr(x, name) for x in waiting.flows.values()) for name in ("count", "byte_count"))
        assert pipeline.stages.evidence.unresolved_bytes >= 100 * count + byte_count
    expected = dissect(captures([str(PCAPS / "blipmq/midstream.pcap")]).captures[0]).messages

    assert len(rows) == expected.num_rows
    key = ("connection_id", "direction", "stream_offset")
    by_key = {tuple(row[name] for name in key): row for row in rows}
    assert by_key == {tuple(row[name] for name in key): row for row in expected.select([*key, "dialect"]).to_pylist()}


def test_messages_of_a_connection_with_fixed_evidence_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """HELLO names the version, so only HELLO itself waits, for nothing but the end of its window."""
    _, messages, _ = read(PCAPS / "blipmq/qos1.pcap", monkeypatch, 1)

    assert messages <= 1


KEY = bytes(range(1, 128))
DATA_CONNECT = b"\xcc\x50\xfa\xce\0\x7f" + KEY
MESSAGE = b"\2ex\3a.b" + bytes(16) + struct.pack(">I", 1000) + bytes(1000)
"""What an fq client publishes: exchange, route, id, body."""
OPENING = [Segment(seq=999, flags=SYN), Segment(b"", 4999, 1000, SYN | ACK, from_server=True)]


def sent(bodies: Sequence[bytes]) -> list[Segment]:
    ends = itertools.accumulate(map(len, bodies), initial=1000)
    return [Segment(body, seq, 5000) for body, seq in zip(bodies, ends, strict=False)]


@pytest.mark.parametrize("is_stalled", [False, True])
def test_messages_that_wait_for_a_login_or_for_bytes_are_bounded(
    is_stalled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is granted the key that the connection sends; if it is stalled, the server's first bytes are missing."""
    server = [Segment(b"x", 5010, 1000, from_server=True)] if is_stalled else []
    segments = [*OPENING, *server, *sent([DATA_CONNECT, *[MESSAGE] * 100])]
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(segments, 8765))
    _, _, free_bytes = read(path, monkeypatch, 1)
    monkeypatch.setattr(evidence, "MAX_UNRESOLVED_TOTAL_BYTES", 30_000)

    dialects, _, size_bytes = read(path, monkeypatch, 1)

    assert dialects == ["v1"] * 101
    assert size_bytes < 30_000 + 10_000  # and one message
    assert free_bytes > 100 * len(MESSAGE)


def test_a_connection_takes_little_memory(tmp_path: Path) -> None:
    """5 kB (uncompiled 6) with the packets of its window: addresses, counts, latest bytes, how far both were read."""
    taken: list[int] = []
    for count in (500, 2500):
        segments = []
        for port in range(20_000, 20_000 + count):
            opening = [replace(segment, client_port=port) for segment in OPENING]
            segments += [*opening, Segment(DATA_CONNECT, 1000, 5000, client_port=port)]
        path = tmp_path / f"{count}.pcap"
        path.write_bytes(pcap(segments, 8765))
        pipeline = CapturePipeline(captures([str(path)]).captures[0], Options(), lambda output: None)
        tracemalloc.start()
        steps = pipeline.steps()
        next(steps)
        while pipeline.stages.newest_ns == 0:
            next(steps)
        gc.collect()
        taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        for _ in steps:
            pass

    assert (taken[1] - taken[0]) / 2000 < 7000
