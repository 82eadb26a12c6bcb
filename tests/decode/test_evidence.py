"""Messages wait for the evidence of their connection: within limits, and without a trace in the rows of others."""

from pathlib import Path

import pytest

from mqpcap.capture import captures, windows
from mqpcap.decode import evidence
from mqpcap.pipeline import CapturePipeline, Options
from mqpcap.tables.output import Output

PCAPS = Path(__file__).parents[2] / "pcaps"


def read(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int, int]:
    """The dialects of all messages, and the most unresolved messages of a connection and bytes of all connections."""
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 1)
    dialects: list[str] = []

    def take(output: Output) -> None:
        if output.table == "messages":
            dialects.extend(output.rows["dialect"].to_pylist())

    pipeline = CapturePipeline(captures([str(PCAPS / name)]).captures[0], Options(), take)
    most_messages = most_bytes = 0
    for _ in pipeline.steps():
        for parts in pipeline.stages.evidence._unresolved.get("blipmq", {}).values():
            most_messages = max(most_messages, sum(len(part.start) for part in parts))
        most_bytes = max(most_bytes, pipeline.stages.evidence._unresolved_bytes)
    assert pipeline.stages.evidence._unresolved_bytes == 0
    return dialects, most_messages, most_bytes


@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_UNRESOLVED_MESSAGES", 10), ("MAX_UNRESOLVED_BYTES", 400), ("MAX_UNRESOLVED_TOTAL_BYTES", 400)],
)
def test_unresolved_messages_are_bounded(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the evidence found so far decides: no message is lost, and fewer wait."""
    free_dialects, free_messages, free_bytes = read("blipmq/midstream.pcap", monkeypatch)
    monkeypatch.setattr(evidence, limit, value)

    dialects, messages, size_bytes = read("blipmq/midstream.pcap", monkeypatch)

    assert len(dialects) == len(free_dialects)
    assert messages < free_messages and size_bytes < free_bytes
    if limit == "MAX_UNRESOLVED_MESSAGES":
        assert messages <= value


def test_messages_of_a_connection_with_fixed_evidence_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """HELLO names the version, so only HELLO itself waits, for nothing but the end of its window."""
    _, messages, _ = read("blipmq/qos1.pcap", monkeypatch)

    assert messages <= 1
