"""Formats of capture files beside pcap and pcapng as they are usually written: read, or named."""

import struct
from pathlib import Path

import pytest
from capture_files import COMPRESSORS, T0, THREE, block, enhanced, interface, option, pcap, read, section, written

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


COMMVIEW = struct.pack("<HHBHBBBBBI", 74, 74, 0, 2026, 11, 28, 11, 38, 26, 24159)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"snoop\0\0\0\0\0\0\2\0\0\0\4", "snoop"),
        (b"GMBU\0\2\1\0", "Network Monitor"),
        (b"RTSS\1\1\0\1", "Network Monitor"),
        (b"TRSNIFF data    \x1a", "Sniffer"),
        (b"XCP\0002.002\0", "Sniffer"),
        (b"\xaa\xaa\xaa\xaa \0\0\0\0\0\1\0\x18", "5View"),
        (COMMVIEW, "CommView"),
        (b"J\0\0\0" + COMMVIEW[5:], "CommView"),
        (b"+---------+---------------+----------+\r\n11:38:26,024,159   ETHER", "K12 text"),
        (b"\1\x10L\0\1\5Trace Display Trace File", "LANalyzer"),
        (b"TR\0d\0\0\0\0\0\0\0\x80/tmp/wireshark.TRC000", "HP-UX nettl"),
        (b"ObserverPktBufferVersion=15.00\0\0", "Observer"),
    ],
)
def test_other_formats_are_named_with_what_would_do(tmp_path, head, name):
    found = captures([written(tmp_path, "x", head + bytes(100))])

    ((_, reason),) = found.unreadable
    assert reason == f"not a capture: a file of {name}; editcap -F pcap converts it"


def erf(kind, content, second=1_795_243_604):
    """A record; its length is no multiple of eight where the card does not pad."""
    head = struct.pack("<Q", second << 32) + struct.pack(">BBHHH", kind, 4, 16 + len(content), 0, len(content))
    return head + content


@pytest.mark.parametrize(
    "content",
    [
        erf(2, bytes(80)),
        erf(2, bytes(79)) + erf(2, bytes(61)),
        erf(0x80 | 27, bytes(117), 0) * 3,  # extension headers; provenance, before the card has a time
        erf(21, bytes(60)) * 9,
    ],
)
def test_records_of_erf_are_recognised_as_a_chain(tmp_path, content):
    ((_, reason),) = captures([written(tmp_path, "x", content)]).unreadable

    assert reason == "not a capture: a file of Endace ERF; editcap -F pcap converts it"


@pytest.mark.parametrize("text", [b"time  ip  10.0.0.1\n" * 900, b"time  ip  10.0.0.1\n", b"Jul 8 12: x(\n" * 2000])
def test_a_text_file_is_no_erf(tmp_path, text):
    ((_, reason),) = captures([written(tmp_path, "x", text)]).unreadable

    assert reason == f"not a capture: it begins with {text[:4].hex(' ')}"


def test_the_format_of_netsniff_ng_is_read():
    """A real capture: 60 packets in Ethernet, with nanoseconds and 24 bytes before each."""
    (capture,) = captures([str(Path(__file__).parent / "captures/netsniff_a1e2cb12.pcap")]).captures
    (window,) = capture.windows()

    assert (len(window.offset), capture.notes, capture.facts[0].tick_ns) == (60, [], 1)
    assert set(window.caplen.tolist()) == set(window.wirelen.tolist())
    assert {bytes(window.buffer[at + 12 : at + 14]) for at in window.offset.tolist()} == {b"\x08\0"}
    assert int(window.ts_ns[0]) == 0x6B0AB91B * 10**9 + 0x1A8681D3


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_compressed_file_that_ends_inside_its_first_block_is_said_to(tmp_path, name):
    packed = COMPRESSORS[name](pcap(MANY))
    ((_, reason),) = captures([written(tmp_path, "x", packed[:12])]).unreadable

    assert reason.startswith("it ends inside its first block, so nothing of it can be unpacked: the ")


@pytest.mark.parametrize("order", ["<", ">"])
def test_counts_of_packets_lost_before_single_packets_are_summed(tmp_path, order):
    """epb_dropcount, after a comment and in a block whose packet is padded; and the count of the older block."""
    head = struct.pack(order + "IIIII", 0, 0, 7, 5, 5) + b"hello" + bytes(3)
    counts = [
        block(6, head + option(1, b"comment", order) + option(4, struct.pack(order + "Q", count), order), order)
        for count in (3, 0, 39)
    ]
    older = block(2, struct.pack(order + "HHIIII", 0, 8, 0, 7, 5, 5) + b"hello" + bytes(3), order)
    content = section(order) + interface(1, order) + b"".join(counts) + older + block(6, head, order)
    rows, capture = read(tmp_path, content)

    assert (len(rows), capture.facts[0].drop_count) == (5, 50)


def test_a_capture_without_such_counts_has_none(tmp_path):
    _, capture = read(tmp_path, section() + interface() + enhanced(0, 7, b"hello"))

    assert capture.facts[0].drop_count is None
