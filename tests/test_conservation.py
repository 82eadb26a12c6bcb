"""Nothing is lost: the laws of the contract on every capture there is."""

import os
from pathlib import Path

import pytest

from torture import broken_laws, read

ROOT = Path(__file__).resolve().parent.parent
SHARED = os.environ.get("MQPCAP_SHARED")
FILES = sorted((ROOT / "pcaps").rglob("*.pcap"))
MORE = sorted((Path(SHARED) / "captures").rglob("*.pcap")) if SHARED else []


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_captured_byte_is_accounted_for(path: Path) -> None:
    result = read(path)

    assert broken_laws(result) == []
    # The clock of these captures never steps back.
    assert all(m["ts_ns"] <= m["end_ts_ns"] for m in result.messages)


@pytest.mark.slow
@pytest.mark.parametrize("path", MORE, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_captured_byte_of_more_captures_is_accounted_for(path: Path) -> None:
    assert broken_laws(read(path)) == []


def test_there_are_captures_of_every_protocol() -> None:
    assert {"blipmq", "flymq", "fq", "kokaq", "msgq", "faults", "strangers"} <= {p.parent.name for p in FILES}
