"""Formats of capture files beside pcap and pcapng as they are usually written: read, or named."""

import struct

import pytest
from capture_files import COMPRESSORS, T0, THREE, pcap, read, written

from mqpcap.capture import captures, windows

MANY = [(T0 + n * 1000, struct.pack(">I", n * 2654435761 % 2**32) * 20) for n in range(500)]


FORMATS = {
    "Kuznetsov": (0xA1B2CD34, struct.pack("<IHBx", 2, 0x800, 0)),
    "SuSE 6.3": (0xA1B2CD34, struct.pack("<IHBBB3x", 2, 0x800, 0, 1, 1)),
    "Red Hat 6.1": (0xA1B2C3D4, struct.pack("<IHBx", 2, 0x800, 0)),
    "Nokia": (0xA1B2C3D4, b"\1\2\3\4"),
}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_records_with_longer_headers_are_recognised_by_the_second_record(tmp_path, name, order, count):
    magic, more = FORMATS[name]
    content = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    for ts_ns, data in MANY[:count]:
        content += (
            struct.pack(order + "IIII", ts_ns // 10**9, ts_ns % 10**9 // 1000, len(data), len(data)) + more + data
        )
    rows, capture = read(tmp_path, content)

    assert [row[:2] for row in rows] == MANY[:count]
    assert capture.notes == []


@pytest.mark.parametrize("name", ["", *COMPRESSORS])
def test_files_joined_by_cat_are_all_read(tmp_path, name):
    other = [(T0 + 10**9 + 7, b"other"), (T0 + 10**9 + 9, b"")]
    parts = pcap(MANY[:9]), pcap(other, order=">", tick_ns=1, link_type=101), pcap(THREE)
    compress = COMPRESSORS.get(name, bytes)
    rows, capture = read(tmp_path, b"".join(map(compress, parts)))

    assert [row[:2] for row in rows] == MANY[:9] + other + [packet[:2] for packet in THREE]
    assert [row[3] for row in rows] == [1] * 9 + [101] * 2 + [1] * 3
    assert capture.notes == [] and capture.facts[0].link_types == (1, 101)


def test_files_joined_by_cat_are_read_however_windows_end(tmp_path, monkeypatch):
    content = b"".join(pcap([packet], tick_ns=1) for packet in MANY[:200])
    for size in (101, 128, 257):
        monkeypatch.setattr(windows, "WINDOW_BYTES", size)

        assert [row[:2] for row in read(tmp_path, content)[0]] == MANY[:200]


@pytest.mark.parametrize("length", range(4, 24))
def test_a_pcap_shorter_than_its_header_has_facts(tmp_path, length):
    rows, capture = read(tmp_path, pcap([])[:length])

    assert rows == [] and [note.kind for note in capture.notes] == ["cut_short"]
    assert (capture.facts[0].format, capture.facts[0].packet_count, capture.facts[0].link_types) == ("pcap", 0, ())


ERF = struct.pack("<Q", 1_795_243_604 << 32) + struct.pack(">BBHHH", 2, 4, 96, 0, 74) + bytes(80)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"snoop\0\0\0\0\0\0\2\0\0\0\4", "snoop"),
        (b"GMBU\0\2\1\0", "Network Monitor"),
        (b"RTSS\1\1\0\1", "Network Monitor"),
        (b"TRSNIFF data    \x1a", "Sniffer"),
        (b"XCP\0002.002\0", "Sniffer"),
        (ERF, "Endace ERF"),
    ],
)
def test_other_formats_are_named_with_what_would_do(tmp_path, head, name):
    found = captures([written(tmp_path, "x", head + bytes(100))])

    ((_, reason),) = found.unreadable
    assert reason == f"not a capture: a file of {name}; editcap -F pcap converts it"
