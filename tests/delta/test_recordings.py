"""A recording that is read file by file, with its state as bytes between them, has the rows of one reading."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dissection import Dissection, dissect
from rows import of_dissections, rotated

from mqpcap.background import Background
from mqpcap.capture import captures
from mqpcap.delta.recordings import RecordingPipeline, full_fingerprint, state_of_packets
from mqpcap.errors import CaptureError
from mqpcap.pipeline import Options
from mqpcap.tls import KeyLog

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SAMPLES = (
    "fq/session", "fq/peers", "kokaq/go1_session", "kokaq/go1_midstream", "flymq/fetch", "flymq/pipelining",
    "blipmq/qos1", "blipmq/midstream", "msgq/json_session", "faults/flymq_lost", "faults/msgq_no_syn",
)  # fmt: skip


def read_in_parts(paths: list[Path], dissection: Dissection, options: Options | None = None) -> list[int]:
    """Read the files one by one; the sizes of the states between them."""
    sizes: list[int] = []
    state: bytes | None = None
    for path in paths:
        (capture,) = captures([str(path)]).captures
        ends = path == paths[-1]
        pipeline = RecordingPipeline(state, capture, options or Options(), dissection.add, Background(), ends=ends)
        pipeline.run()
        state = pipeline.state()
        sizes.append(len(state))
    return sizes


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_are_those_of_one_reading(tmp_path: Path, name: str) -> None:
    paths = rotated(PCAPS / f"{name}.pcap", tmp_path, 6)
    (whole,) = captures([str(tmp_path)]).captures
    in_parts = Dissection(whole)

    read_in_parts(paths, in_parts)

    rows, expected = of_dissections([in_parts]), of_dissections([dissect(whole)])
    for tables in (rows, expected):
        tables.pop("captures")  # the lake writes them
    assert rows == expected


def test_rows_of_opened_tls_are_those_of_one_reading(tmp_path: Path) -> None:
    """The state has no key log, and none is read that it names: each run is given its own."""
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra tls)")
    sample = PCAPS.parent / "tests/tls/captures/t13_aes256_gcm.pcap"
    options = Options(keys=KeyLog.opened(str(sample.with_suffix(".keylog"))))
    paths = rotated(sample, tmp_path, 4)
    (whole,) = captures([str(tmp_path)]).captures
    in_parts = Dissection(whole)

    read_in_parts(paths, in_parts, options)

    rows, expected = of_dissections([in_parts]), of_dissections([dissect(whole, options)])
    assert len(rows["messages"]) > 100
    for tables in (rows, expected):
        tables.pop("captures")
    assert rows == expected


def test_state_has_no_connection_of_files_that_are_over(tmp_path: Path) -> None:
    """After the end the state has no connection, whatever was read."""
    dissection = Dissection(captures([str(PCAPS / "fq" / "session.pcap")]).captures[0])
    sizes = read_in_parts(rotated(PCAPS / "fq" / "session.pcap", tmp_path, 4), dissection)

    assert sizes[-1] < max(sizes[:-1])


def test_fingerprint_is_that_of_the_table(tmp_path: Path) -> None:
    path = str(PCAPS / "kokaq" / "doc_session.pcap")
    made = dissect(captures([path]).captures[0])

    assert made.captures["fingerprint"].to_pylist() == [full_fingerprint(path)]


@pytest.mark.parametrize("damage", ["offset", "length", "type"])
def test_damaged_packets_of_a_state_are_one_error(damage: str) -> None:
    """Another user may have written the state: no packet lies outside of its buffer."""
    (capture,) = captures([str(PCAPS / "blipmq" / "qos1.pcap")]).captures
    (window,) = capture.windows()
    if damage == "offset":
        window.offset[3] = -8
    elif damage == "length":
        window.caplen[-1] += len(window.buffer)
    else:
        window = replace(window, ts_ns=window.ts_ns.astype(np.float64))
    state = state_of_packets(window, capture.files)

    with pytest.raises(CaptureError, match="its state is damaged"):
        RecordingPipeline(state, capture, Options(), lambda output: None, Background(), ends=True)
