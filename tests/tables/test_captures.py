"""The table ``captures`` against the files themselves."""

import struct
from pathlib import Path

import pytest
from dissection import dissect
from rows import records, rotated

from mqpcap.capture import captures, windows

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "pcaps/blipmq/qos1.pcap"


def rows_of(*paths: Path) -> list[dict[str, object]]:
    (capture,) = captures([str(p) for p in paths]).captures
    return dissect(capture).table("captures").to_pylist()


def test_a_row_says_what_the_file_holds() -> None:
    _, packets = records(SAMPLE)
    stamps = [struct.unpack_from("<II", one) for one in packets]
    times = [s * 10**9 + us * 1000 for s, us in stamps]
    (row,) = rows_of(SAMPLE)

    assert (row["capture"], row["path"], row["format"]) == (str(SAMPLE), str(SAMPLE), "pcap")
    assert (row["packets"], row["bytes"]) == (len(packets), sum(len(one) - 16 for one in packets))
    assert (row["first_ts_ns"], row["last_ts_ns"]) == (min(times), max(times))
    assert (row["link_types"], row["dropped"], row["status"], row["reason"]) == (["Ethernet"], None, "read", None)


def test_files_of_a_rotated_capture_have_a_row_each_and_count_their_messages(tmp_path: Path) -> None:
    rows = rows_of(*rotated(SAMPLE, tmp_path, 3))
    (capture,) = captures([str(SAMPLE)]).captures

    assert [Path(str(r["path"])).name for r in rows] == ["part.pcap", "part.pcap1", "part.pcap2"]
    assert {r["capture"] for r in rows} == {rows[0]["path"]}
    assert sum(int(str(r["messages"])) for r in rows) == dissect(capture).table("messages").num_rows


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    path.write_bytes(SAMPLE.read_bytes()[:-5])
    (row,) = rows_of(path)

    assert row["status"] == "cut short"
    assert row["reason"]


def test_fingerprints_are_of_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, other = tmp_path / "copy.pcap", tmp_path / "other.pcap"
    data = SAMPLE.read_bytes()
    copy.write_bytes(data)
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    first, same, changed = (rows_of(p)[0]["fingerprint"] for p in (SAMPLE, copy, other))
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2000)

    assert first == same == rows_of(SAMPLE)[0]["fingerprint"]
    assert changed != first
