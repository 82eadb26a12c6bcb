"""What a row says does not depend on how the input was cut: into windows, or into files."""

import struct
from pathlib import Path
from typing import Any

import pytest
from torture import Result, read

from mqpcap.capture import windows

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
SAMPLES = ["faults/flymq_snapped", "msgq/by_document"]
"""Small ones: all captures are read in small windows by ``test_variations.py``."""
WINDOW_BYTES = 4096


def rows(result: Result, *without: str) -> tuple[list[Any], ...]:
    def kept(row: dict[str, Any]) -> dict[str, Any]:
        return {k: kept(v) if k == "fields" else v for k, v in row.items() if k not in without}

    return tuple([kept(row) for row in table] for table in (result.messages, result.connections, result.problems))


@pytest.mark.parametrize("name", SAMPLES)
def test_windows_change_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of a few packets."""
    path = PCAPS / f"{name}.pcap"
    whole = read(path)

    monkeypatch.setattr(windows, "WINDOW_BYTES", WINDOW_BYTES)

    assert rows(read(path)) == rows(whole)


def rotated(path: Path, folder: Path, parts: int) -> None:
    """The capture in files as tcpdump -C names them: x.pcap, x.pcap1, x.pcap2."""
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    records, at = [], 24
    while at < len(data):
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        records.append(data[at : at + 16 + size])
        at += 16 + size
    each = -(-len(records) // parts)
    for i in range(parts):
        name = f"part.pcap{i or ''}"
        (folder / name).write_bytes(data[:24] + b"".join(records[i * each : (i + 1) * each]))


@pytest.mark.parametrize("name", ["blipmq/qos1", "flymq/core", "fq/session", "kokaq/doc_session", "msgq/split_session"])
def test_rotated_files_are_the_unbroken_capture(name: str, tmp_path: Path) -> None:
    path = PCAPS / f"{name}.pcap"
    rotated(path, tmp_path, 5)

    result = read(tmp_path)

    without = ("capture", "capture_file", "first_packet", "last_packet")
    assert rows(result, *without) == rows(read(path), *without)
    assert len({m["capture_file"] for m in result.messages}) > 1
