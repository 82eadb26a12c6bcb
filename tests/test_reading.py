"""What is known of inputs when they have been read."""

from collections import Counter
from pathlib import Path

import pytest
from message_rows import capture_of
from running import ROOT

from mqpcap.capture import Capture
from mqpcap.errors import FailedCaptureError
from mqpcap.reading import _LIMIT_NOTES, Choices, Outcome, blamed_on, limit_notes, size_bytes

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_parts_of_an_export_add_up() -> None:
    whole, part = Outcome(Choices(), flaws=Counter(truncated=1)), Outcome(Choices(), notes=["n"], dissected_count=2)
    part.flaws, part.unreadable = Counter(truncated=2, malformed=1), [("a", "gone")]

    whole.add(part)
    whole.add(part)

    assert (whole.flaws, whole.dissected_count) == (Counter(truncated=5, malformed=2), 4)
    assert (whole.notes, whole.unreadable) == (["n", "n"], [("a", "gone")] * 2)


def test_a_bound_that_was_reached_is_reported_with_its_count() -> None:
    assert limit_notes("a.pcap", {"reorder_cap": 0, "too_deep": 7, "tcp": 9}) == [
        "a.pcap: 7 packets: too many headers, not read"
    ]


def test_a_note_on_one_has_the_words_of_one() -> None:
    for key in _LIMIT_NOTES:
        of_one, of_two = (limit_notes("a", {key: count})[0] for count in (1, 2))
        assert of_one.replace("1", "2") != of_two or key.endswith("_ns"), key
        assert "|" not in of_one + of_two, key

    assert limit_notes("a", {"ambiguous_deliveries": 1}) == ["a: 1 delivery fits several publishes, so it has no row"]
    assert limit_notes("a", {"ambiguous_deliveries": 2}) == [
        "a: 2 deliveries fit several publishes, so they have no row"
    ]


def test_what_is_gone_has_no_size(tmp_path: Path) -> None:
    path = tmp_path / "gone.pcap"
    path.write_bytes((ROOT / QOS1).read_bytes())
    some: list[Capture] = [capture_of(path), capture_of("blipmq/qos1")]
    assert size_bytes(some) == 2 * (ROOT / QOS1).stat().st_size

    path.unlink()

    assert size_bytes(some) == (ROOT / QOS1).stat().st_size


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("can't start new thread"), "out of memory; --max-memory and --jobs bound what is held"),
        (MemoryError(), "out of memory; --max-memory and --jobs bound what is held"),
        (RuntimeError("else"), "a fault of mqpcap, RuntimeError: else"),
    ],
)
def test_a_lack_of_memory_is_no_fault(error: Exception, reason: str) -> None:
    with pytest.raises(FailedCaptureError) as failed, blamed_on(("a.pcap",)):
        raise error

    assert (str(failed.value), failed.value.files) == (reason, ("a.pcap",))
