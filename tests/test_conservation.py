"""Nothing is lost: the laws of the contract on every capture there is."""

import os
from pathlib import Path

import pytest
from torture import Result, broken_laws, read

from mqpcap.capture import captures
from mqpcap.pipeline import dissect
from mqpcap.tables.arrow import Chunk

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


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_rows_given_out_early_are_those_of_the_end(path: Path) -> None:
    late, early = read(path), read(path, early=True)

    def ordered(result: Result) -> list[dict[str, object]]:
        return sorted(result.messages, key=lambda m: (m["connection_id"], m["direction"], m["stream_offset"]))

    assert ordered(early) == ordered(late)
    assert (early.connections, early.problems) == (late.connections, late.problems)


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
    chunks: list[Chunk] = []

    dissection = dissect(capture, None, None, chunks.append)

    rows = [
        m | {"fields": f}
        for chunk in [*chunks, *dissection.chunks()]
        for m, f in zip(chunk.messages.to_pylist(), chunk.fields.to_pylist(), strict=True)
    ]
    assert "x_00002" in str(dissection.failure)
    assert len(rows) > 50
    assert broken_laws(Result(rows, dissection.connections.to_pylist(), dissection.problems.to_pylist(), {})) == []


def test_there_are_captures_of_every_protocol() -> None:
    assert {"blipmq", "flymq", "fq", "kokaq", "msgq", "faults", "strangers"} <= {p.parent.name for p in FILES}
