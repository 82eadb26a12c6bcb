"""Nothing is lost: the laws of the contract on every capture there is."""

import os
from pathlib import Path

import pytest
from rows import of_dissections
from torture import broken_laws, made, read

from mqpcap.capture import captures, windows
from mqpcap.pipeline import dissect

ROOT = Path(__file__).resolve().parent.parent
SHARED = os.environ.get("MQPCAP_SHARED")
FILES = sorted((ROOT / "pcaps").rglob("*.pcap"))
WINDOW_BYTES = 4096
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


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_how_much_is_read_at_once_changes_no_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = captures([str(path)]).captures
    at_once = of_dissections([dissect(capture)])

    monkeypatch.setattr(windows, "WINDOW_BYTES", WINDOW_BYTES)

    assert of_dissections([dissect(capture)]) == at_once


def test_a_file_that_goes_while_its_capture_is_read_costs_only_what_it_held(tmp_path: Path) -> None:
    """The first of two rotated files is read; the rows of what it holds are there, and why the rest is not."""
    data = (ROOT / "pcaps/blipmq/qos1.pcap").read_bytes()
    half = 24
    for _ in range(150):
        half += 16 + int.from_bytes(data[half + 8 : half + 12], "little")
    (tmp_path / "x_00001.pcap").write_bytes(data[:half])
    (tmp_path / "x_00002.pcap").write_bytes(data[:24] + data[half:])
    (capture,) = captures([str(tmp_path)]).captures
    (tmp_path / "x_00002.pcap").unlink()

    found = dissect(capture)

    assert "x_00002" in str(found.failure)
    assert found.table("messages").num_rows > 50
    assert broken_laws(made(found)) == []


def test_there_are_captures_of_every_protocol() -> None:
    assert {"blipmq", "flymq", "fq", "kokaq", "msgq", "faults", "strangers"} <= {p.parent.name for p in FILES}
