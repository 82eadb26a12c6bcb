"""Nothing is lost: the laws of the contract on every capture there is."""

import os
from pathlib import Path

import pytest
from dissection import dissect
from torture import ACK, SYN, Segment, broken_laws, flymq_message, pcap, read, read_bytes, result_of

from mqpcap.capture import captures

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


def test_a_file_removed_while_its_capture_is_read_costs_its_own_rows_only(tmp_path: Path) -> None:
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
    assert broken_laws(result_of(found)) == []


def test_bytes_that_come_too_late_for_their_message_are_counted_once() -> None:
    """Six bytes of the second message come when their hole is given up: inside its place, but not in its length."""
    size = len(flymq_message(0))
    stream = b"".join(map(flymq_message, range(4)))
    parts = [(0, size), (size, size + 10), (size + 16, 3 * size), (size + 10, size + 16), (3 * size, 4 * size)]
    data = [Segment(stream[begin:end], 1000 + begin, 5000) for begin, end in parts]
    opening = Segment(seq=999, flags=SYN), Segment(b"", 4999, 1000, SYN | ACK, from_server=True)
    acks = [Segment(b"", 5000, 1000 + 3 * size, ACK, from_server=True)] * 1100
    result = read_bytes(pcap([*opening, *data[:3], *acks, *data[3:]], 9092))

    assert [(m["stream_offset"], m["frame_len"], m["flaw"]) for m in result.messages] == [
        (0, size, None), (size, size - 6, "truncated"), (2 * size, size, None), (3 * size, size, None),
    ]  # fmt: skip
    late = [(p["stream_offset"], p["length"]) for p in result.problems if p["kind"] == "undecoded"]
    assert late == [(size + 10, 6)]
    assert result.connections[0]["bytes_c2s"] == len(stream)
    assert broken_laws(result) == []


def test_there_are_captures_of_every_protocol() -> None:
    assert {"blipmq", "flymq", "fq", "kokaq", "msgq", "faults", "strangers"} <= {p.parent.name for p in FILES}
