"""Connections leave memory when there are too many, and no row is any different for it."""

from pathlib import Path
from typing import Any

import pytest
from torture import broken_laws, read

from mqpcap import pipeline
from mqpcap.capture import Capture, captures, windows
from mqpcap.decode import closed_connections
from mqpcap.pipeline import Options, dissect

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "blipmq/framing_errors", "blipmq/midstream", "flymq/login", "fq/session", "fq/midstream", "kokaq/doc_session",
    "msgq/split_session", "faults/fq_lost", "faults/flymq_no_syn", "faults/msgq_conflict", "strangers/tls_9092",
]  # fmt: skip
FEW_PACKETS = 1024


def tables(capture: Capture) -> dict[str, list[str]]:
    """All rows that an export writes."""
    found: dict[str, list[Any]] = {}

    def take(chunk: Any) -> None:
        found.setdefault("messages", []).extend(chunk.messages.to_pylist())
        found.setdefault(chunk.protocol, []).extend(chunk.fields.to_pylist())

    result = dissect(capture, Options(), ready=take)
    for chunk in result.chunks():
        take(chunk)
    for ledger in result.ledgers().values():
        found.setdefault("exchanges", []).extend(ledger.exchanges.to_pylist())
        found.setdefault("deliveries", []).extend(ledger.deliveries.to_pylist())
    found |= {"connections": result.connections.to_pylist(), "problems": result.problems.to_pylist()}
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


@pytest.fixture
def packed_away(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of connections that leave memory."""
    numbers: list[int] = []
    end = closed_connections.ConnectionRegistry.end

    def note(registry: closed_connections.ConnectionRegistry, flows: list[int]) -> None:
        numbers.extend(flows)
        end(registry, flows)

    monkeypatch.setattr(closed_connections.ConnectionRegistry, "end", note)
    return numbers


@pytest.mark.parametrize("name", NAMES)
def test_connections_that_closed_may_leave_memory_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch, packed_away: list[int]
) -> None:
    """Every one whose end was acknowledged does, after a few packets; nothing that is written changes."""
    (capture,) = captures([str(ROOT / f"pcaps/{name}.pcap")]).captures
    whole = tables(capture)
    assert packed_away == []

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_PACKETS)
    monkeypatch.setattr(pipeline, "CLOSED_SHARE", Options().max_memory_bytes)

    assert tables(capture) == whole
    assert len(packed_away) == len(set(packed_away))
    if name == "blipmq/framing_errors":  # twenty, one after the other
        assert len(packed_away) >= 18


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_where_open_connections_have_to_leave(
    name: str, monkeypatch: pytest.MonkeyPatch, packed_away: list[int]
) -> None:
    """No more than two are kept; one that goes on then is another connection, and it is counted."""
    path = ROOT / f"pcaps/{name}.pcap"
    before = read(path)
    bytes_ = sum(c["bytes_c2s"] + c["bytes_s2c"] for c in before.connections)

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_PACKETS)
    monkeypatch.setattr(pipeline, "FLOW_BYTES", Options().max_memory_bytes // 4)
    monkeypatch.setattr(pipeline, "CLOSED_SHARE", 4)
    after = read(path)

    assert broken_laws(after) == []
    assert len(after.connections) >= len(before.connections)
    packets = [sum(c["packets_c2s"] + c["packets_s2c"] for c in x.connections) for x in (before, after)]
    assert packets[0] == packets[1]
    if len(after.connections) == len(before.connections):
        assert sum(c["bytes_c2s"] + c["bytes_s2c"] for c in after.connections) == bytes_


def test_what_had_to_leave_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = captures([str(ROOT / "pcaps/fq/session.pcap")]).captures
    assert "crowded_out" not in dissect(capture).counts

    monkeypatch.setattr(windows, "WINDOW_BYTES", FEW_PACKETS)
    monkeypatch.setattr(pipeline, "FLOW_BYTES", Options().max_memory_bytes // 4)

    assert dissect(capture).counts["crowded_out"] > 0
