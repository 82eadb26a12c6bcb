"""The capture room: what is found, what is read, and what is said of files that end badly."""

import bz2
import gzip
import io
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from capture_files import block, enhanced, interface, option, packets, pcap, section
from hypothesis import given, settings
from hypothesis import strategies as st

from mqpcap.capture import Capture, captures, windows
from mqpcap.capture.chains import rotated_name
from mqpcap.errors import CaptureError


def written(directory: Path, name: str, content: bytes) -> str:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def only(name: str) -> Capture:
    found = captures([name])
    assert not found.unreadable
    (capture,) = found.captures
    return capture


def read(directory: Path, content: bytes):
    capture = only(written(directory, "capture", content))
    return packets(list(capture.windows())), capture


T0 = 1_795_243_604_123_456_000
THREE = [(T0, b"one"), (T0 + 1000, b"second", 60), (T0 + 5_000_000_000, b"")]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tick_ns", [1000, 1])
def test_pcap_of_either_byte_order_and_precision(tmp_path, order, tick_ns):
    rows, capture = read(tmp_path, pcap([(T0 + 789, b"abc", 1500), (T0, b"")], order, tick_ns, link_type=113))

    assert rows == [(T0 + 789 // tick_ns * tick_ns, b"abc", 1500, 113), (T0, b"", 0, 113)]
    assert capture.notes == []
    (facts,) = capture.facts
    assert (facts.format, facts.tick_ns, facts.byte_order) == ("pcap", tick_ns, "little" if order == "<" else "big")
    assert (facts.packet_count, facts.captured_bytes, facts.snaplen) == (2, 3, 262144)


def test_link_type_is_read_without_the_check_sequence_bits(tmp_path):
    rows, _ = read(tmp_path, pcap([(T0, b"x")], link_type=0x24000001))

    assert rows[0][3] == 1


def test_time_after_2038_is_not_negative(tmp_path):
    rows, _ = read(tmp_path, pcap([(4_000_000_000 * 10**9, b"x")]))

    assert rows[0][0] == 4_000_000_000 * 10**9


def test_packet_numbers_count_from_one_over_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_BYTES", 100)
    capture = only(written(tmp_path, "x", pcap([(T0, bytes([n] * n)) for n in range(50)])))

    read_windows = list(capture.windows())

    assert len(read_windows) > 10
    assert np.concatenate([window.number for window in read_windows]).tolist() == list(range(1, 51))
    assert [row[1] for row in packets(read_windows)] == [bytes([n] * n) for n in range(50)]


def test_record_longer_than_a_window_gets_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_BYTES", 64)
    rows, capture = read(tmp_path, pcap([(T0, b"a"), (T0, b"b" * 1000), (T0, b"c")]))

    assert [row[1] for row in rows] == [b"a", b"b" * 1000, b"c"]
    assert capture.notes == []


def test_more_packets_than_a_window_may_hold_go_into_several(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 3)
    capture = only(written(tmp_path, "x", pcap([(T0, b"p")] * 7)))

    assert [len(window.number) for window in capture.windows()] == [3, 3, 1]


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_packets_of_all_three_kinds(tmp_path, order):
    obsolete = block(2, struct.pack(order + "HHIIII", 0, 7, 0, 2_000_000, 3, 9) + b"old", order)
    simple = block(3, struct.pack(order + "I", 70) + b"s" * 8, order)
    content = (
        section(order) + interface(1, order, snaplen=5) + enhanced(0, 1_000_000, b"new", order) + obsolete + simple
    )

    rows, capture = read(tmp_path, content)

    assert rows == [(10**9, b"new", 3, 1), (2 * 10**9, b"old", 9, 1), (2 * 10**9, b"s" * 5, 70, 1)]
    assert capture.facts[0].format == "pcapng"


def test_simple_packet_shorter_than_its_padding(tmp_path):
    rows, _ = read(tmp_path, section() + interface() + block(3, struct.pack("<I", 5) + b"12345"))

    assert rows == [(0, b"12345", 5, 1)]


@pytest.mark.parametrize(
    ("resolution", "ticks", "time_ns"),
    [
        (6, 1_500_000, 1_500_000_000),
        (9, 1_500_000_001, 1_500_000_001),
        (3, 1_500, 1_500_000_000),
        (0, 3, 3_000_000_000),
        (12, 1_500_000_001_999, 1_500_000_001),
        (0x80 | 10, 1024 + 512, 1_500_000_000),
        (0x80 | 32, (1 << 32) + (1 << 31), 1_500_000_000),
        (0x80 | 40, (1 << 40) + (1 << 39), 1_500_000_000),
        (0x80 | 0, 3, 3_000_000_000),
    ],
)
def test_pcapng_clock_resolution(tmp_path, resolution, ticks, time_ns):
    content = section() + interface(options=option(9, bytes([resolution]))) + enhanced(0, ticks, b"x")

    assert read(tmp_path, content)[0][0][0] == time_ns


def test_pcapng_clock_offset_is_in_seconds(tmp_path):
    options = option(14, struct.pack("<q", 1_700_000_000))

    assert (
        read(tmp_path, section() + interface(options=options) + enhanced(0, 7, b"x"))[0][0][0]
        == 1_700_000_000_000_007_000
    )


@pytest.mark.parametrize("resolution", [0, 6, 9, 19, 27, 28, 127, 0x80, 0x80 | 33, 0x80 | 63, 0xFF])
@pytest.mark.parametrize("offset_s", [0, 2**63 - 1, -(2**63)])
def test_absurd_clock_does_not_raise(tmp_path, resolution, offset_s):
    options = option(9, bytes([resolution])) + option(14, struct.pack("<q", offset_s))
    for ticks in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        assert len(read(tmp_path, section() + interface(options=options) + enhanced(0, ticks, b"x"))[0]) == 1


def test_pcapng_sections_have_their_own_interfaces_and_byte_order(tmp_path):
    content = section("<") + interface(1) + interface(113) + enhanced(1, 5, b"a") + enhanced(0, 6, b"b")
    content += section(">") + interface(101, ">") + enhanced(0, 7, b"c", ">")

    rows, capture = read(tmp_path, content)

    assert [(row[1], row[3]) for row in rows] == [(b"a", 113), (b"b", 1), (b"c", 101)]
    assert capture.facts[0].link_types == (1, 113, 101)


def test_interface_described_between_packets(tmp_path):
    content = section() + interface(1) + enhanced(0, 5, b"a") + interface(101) + enhanced(1, 6, b"b")

    assert [row[3] for row in read(tmp_path, content)[0]] == [1, 101]


def test_many_interfaces(tmp_path):
    content = section() + b"".join(interface(number) for number in range(100)) + enhanced(99, 5, b"a")

    assert read(tmp_path, content)[0][0][3] == 99


def test_unknown_blocks_are_passed_over(tmp_path):
    content = (
        section()
        + block(0x0BAD, b"whatever")
        + interface()
        + block(4, b"names")
        + enhanced(0, 5, b"a")
        + block(10, b"k" * 90)
    )

    rows, capture = read(tmp_path, content)

    assert [row[1] for row in rows] == [b"a"]
    assert capture.notes == []


def test_blocks_that_wireshark_counts_as_packets_are_counted(tmp_path):
    # tshark 4.0.17 -T fields -e frame.number gives 1, 5, 6 for the TCP packets of this file.
    counted = block(0xBAD, b"1234data") + block(9, b"__REALTIME_TIMESTAMP=1\n") + block(0x40000BAD, b"1234data")
    packet = enhanced(0, 5, b"a")
    capture = only(written(tmp_path, "x", section() + interface() + packet + counted + packet + packet))

    assert [window.number.tolist() for window in capture.windows()] == [[1, 5, 6]]
    assert capture.facts[0].packet_count == 3


def test_pcapng_statistics_and_names_are_facts(tmp_path):
    def statistics(received, dropped):
        options = option(4, struct.pack("<Q", received)) + option(5, struct.pack("<Q", dropped))
        return block(5, struct.pack("<III", 0, 0, 0) + options)

    content = (
        section() + interface(options=option(2, b"eth0")) + statistics(10, 1) + enhanced(0, 5, b"a") + statistics(99, 7)
    )
    _, capture = read(tmp_path, content)

    (facts,) = capture.facts
    assert (facts.interfaces, facts.received_count, facts.drop_count) == (("eth0",), 99, 7)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (enhanced(3, 5, b"a"), "interface 3"),
        (block(6, struct.pack("<IIIII", 0, 0, 0, 500, 500) + b"abcd"), "claims 500 captured bytes"),
        (struct.pack("<II", 6, 33) + bytes(60), "impossible length 33"),
        (struct.pack("<II", 6, 0xFFFFFFFC) + bytes(60), "claims 4294967292 bytes"),
        (enhanced(0, 5, b"abcd")[:-4] + struct.pack("<I", 99), "does not repeat its length"),
        (struct.pack("<II", 0x0A0D0D0A, 28) + bytes(20), "impossible length"),
    ],
)
def test_damaged_pcapng_ends_with_a_note(tmp_path, tail, said):
    start = section() + interface() + enhanced(0, 5, b"good")
    rows, capture = read(tmp_path, start + tail + enhanced(0, 6, b"never read"))

    assert [row[1] for row in rows] == [b"good"]
    (note,) = capture.notes
    assert (note.kind, note.offset) == ("damaged", len(start))
    assert said in note.text


def test_record_that_claims_four_gigabytes_takes_no_memory(tmp_path):
    content = pcap(THREE)
    rows, capture = read(tmp_path, content + struct.pack("<IIII", 1, 2, 0xFFFFFFFF, 0xFFFFFFFF) + b"x" * 100)

    assert len(rows) == 3
    (note,) = capture.notes
    assert (note.kind, note.offset) == ("damaged", len(content))
    assert "4294967311" in note.text


@pytest.mark.parametrize("left", range(1, 16 + 3))
def test_file_cut_off_in_its_last_record_gives_all_before(tmp_path, left):
    whole = pcap(THREE[:1])
    rows, capture = read(tmp_path, whole + pcap([(T0, b"cut")])[24:][:left])

    assert rows == [(T0, b"one", 3, 1)] + ([(T0, b"cut", 3, 1)] if left == 19 else [])
    (note,) = capture.notes
    assert (note.kind, note.offset) == ("cut_short", len(whole))
    assert f"{left} are left" in note.text


def test_file_cut_off_inside_the_pcap_header_is_an_empty_capture(tmp_path):
    rows, capture = read(tmp_path, pcap([])[:10])

    assert rows == []
    assert [note.kind for note in capture.notes] == ["cut_short"]


def test_file_that_grew_meanwhile_is_read_anew(tmp_path):
    name = written(tmp_path, "x", pcap(THREE)[:-5])
    capture = only(name)
    first = packets(list(capture.windows()))
    Path(name).write_bytes(pcap(THREE))

    assert [len(first), len(packets(list(capture.windows())))] == [2, 3]
    assert capture.notes == []


def lz4(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def zstd(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


COMPRESSORS = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": zstd, "lz4": lz4}
MANY = [(T0 + n * 1000, struct.pack(">I", n * 2654435761 % 2**32) * 20) for n in range(5000)]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compression_is_known_by_content(tmp_path, name):
    rows, capture = read(tmp_path, COMPRESSORS[name](pcap(MANY)))

    assert [row[:2] for row in rows] == MANY
    assert capture.facts[0].compression == name
    assert capture.notes == []


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_members_one_after_the_other(tmp_path, name):
    content, compress = pcap(MANY), COMPRESSORS[name]
    rows, capture = read(tmp_path, compress(content[:1000]) + compress(content[1000:]))

    assert [row[:2] for row in rows] == MANY
    assert capture.notes == []


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_stream_cut_off_gives_what_is_before(tmp_path, name):
    # A first member that is whole, then one that is not: what the first holds must be there.
    content, compress = pcap(MANY), COMPRESSORS[name]
    cut = 24 + 96 * 4000
    second = compress(content[cut:])
    rows, capture = read(tmp_path, compress(content[:cut]) + second[: len(second) // 2])

    assert len(rows) >= 3950
    assert [row[:2] for row in rows] == MANY[: len(rows)]
    assert [note.kind for note in capture.notes] == ["cut_short"]


def test_damaged_gzip_gives_what_is_before(tmp_path):
    content = bytearray(gzip.compress(pcap(MANY)))
    content[len(content) // 2] ^= 0xFF
    rows, capture = read(tmp_path, bytes(content))

    assert len(rows) > 1000
    assert capture.notes


def test_what_follows_a_gzip_stream_is_noted_unless_it_is_padding(tmp_path):
    padded = read(tmp_path, gzip.compress(pcap(THREE)) + bytes(512))
    followed = read(tmp_path, gzip.compress(pcap(THREE)) + b"stranger")

    assert len(padded[0]) == len(followed[0]) == 3
    assert [len(padded[1].notes), len(followed[1].notes)] == [0, 1]


def test_small_gzip_of_much_does_not_fill_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 << 16)
    capture = only(written(tmp_path, "x", gzip.compress(pcap([(T0, bytes(60_000))] * 500))))

    assert max(len(window.buffer) for window in capture.windows()) == 1 << 16


def test_stdin_is_read_once(tmp_path):
    found = captures(["-"], io.BytesIO(gzip.compress(pcap(THREE))))
    (capture,) = found.captures

    assert capture.files == ("-",)
    assert len(packets(list(capture.windows()))) == 3
    with pytest.raises(CaptureError, match="pipe"):
        list(capture.windows())


def test_named_strangers_are_unreadable_each_with_a_reason(tmp_path):
    names = [written(tmp_path, "empty", b""), written(tmp_path, "text", b"hello there"), str(tmp_path / "absent")]
    names.append(written(tmp_path, "text.gz", gzip.compress(b"hello there")))
    good = written(tmp_path, "good", pcap(THREE))

    found = captures([*names, good])

    assert [capture.files for capture in found.captures] == [(good,)]
    assert [name for name, _ in found.unreadable] == names
    assert "empty" in found.unreadable[0][1]
    assert "68 65 6c 6c" in found.unreadable[1][1]
    assert "no such file" in found.unreadable[2][1]
    assert "gzip" in found.unreadable[3][1]
    assert found.skipped == []


def test_directory_is_searched_below_and_strangers_are_skipped(tmp_path):
    written(tmp_path, "b/x.bin", pcap(THREE))
    written(tmp_path, "a.txt", pcap(THREE))
    written(tmp_path, "b/readme", b"hello there")
    written(tmp_path, "b/c/deep", gzip.compress(section() + interface()))

    found = captures([str(tmp_path)])

    names = [f"{tmp_path}/a.txt", f"{tmp_path}/b/c/deep", f"{tmp_path}/b/x.bin"]
    assert [capture.files for capture in found.captures] == [(name,) for name in names]
    assert [name for name, _ in found.skipped] == [f"{tmp_path}/b/readme"]
    assert found.unreadable == []


def test_directory_is_named_as_given(tmp_path, monkeypatch):
    written(tmp_path, "d/x", pcap(THREE))
    monkeypatch.chdir(tmp_path)

    assert [captures([name]).captures[0].files for name in ("d", "d/", ".", "./d")] == [
        ("d/x",),
        ("d/x",),
        ("./d/x",),
        ("./d/x",),
    ]


def test_directory_without_captures_is_unreadable(tmp_path):
    written(tmp_path, "readme", b"hello there")

    found = captures([str(tmp_path)])

    assert [name for name, _ in found.unreadable] == [str(tmp_path)]
    assert len(found.skipped) == 1


def test_directory_that_links_to_itself_is_entered_once(tmp_path):
    written(tmp_path, "d/x", pcap(THREE))
    (tmp_path / "d" / "again").symlink_to(tmp_path / "d")

    assert len(captures([str(tmp_path)]).captures) == 1


def test_link_to_nowhere_and_pipe_in_a_directory_are_skipped(tmp_path):
    written(tmp_path, "x", pcap(THREE))
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")

    assert len(captures([str(tmp_path)]).skipped) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_unreadable_also_in_a_directory(tmp_path):
    written(tmp_path, "good", pcap(THREE))
    Path(written(tmp_path, "closed", pcap(THREE))).chmod(0)

    assert len(captures([str(tmp_path)]).unreadable) == 1


def test_file_reached_twice_is_read_once_under_its_first_name(tmp_path):
    name = written(tmp_path, "d/x", pcap(THREE))
    (tmp_path / "link").symlink_to(name)
    os.link(name, tmp_path / "hard")

    found = captures([str(tmp_path / "link"), name, str(tmp_path / "d"), str(tmp_path / "hard")])

    assert [capture.files for capture in found.captures] == [(str(tmp_path / "link"),)]
    assert found.unreadable == []


def test_glob(tmp_path):
    for name in ("a.one", "b.one", "c.two"):
        written(tmp_path, name, pcap(THREE))

    found = captures([str(tmp_path / "*.one"), str(tmp_path / "*.none")])

    assert [capture.files for capture in found.captures] == [(str(tmp_path / "a.one"),), (str(tmp_path / "b.one"),)]
    assert found.unreadable == [(str(tmp_path / "*.none"), "no file matches")]


def test_file_whose_name_looks_like_a_glob(tmp_path):
    name = written(tmp_path, "x[1].pcap", pcap(THREE))

    assert captures([name]).captures[0].files == (name,)


ONE_RECORDING = [
    ["broker.pcap", "broker.pcap1", "broker.pcap2", "broker.pcap10"],
    ["x.pcap00", "x.pcap01", "x.pcap11"],
    ["broker", "broker1", "broker2"],
    ["b_00001_20261121064644.pcapng", "b_00002_20261121064650.pcapng", "b_100000_20261122000000.pcapng"],
    ["b_00000_20261121064644.pcap.gz", "b_00001_20261121064650.pcap"],
    ["b_20261121064644_00001.pcapng", "b_20261121064650_00002.pcapng"],
    ["b_00000.pcap", "b_00001.pcap"],
    ["x-2026-11-21_06:46:44.pcap", "x-2026-11-21_06:47:44.pcap", "x-2027-01-01_00:00:00.pcap"],
    ["x-20261121-064644.pcap", "x-20261121-064744.pcap"],
    ["20261121064644.pcap", "20261121064744.pcap"],
    ["x_2026-11-21T06.46.44Z.pcap.zst", "x_2026-11-21T06.47.44Z.pcap.zst"],
    ["x-20261121_0646.cap", "x-20261121_0647.cap"],
    ["x-2026-11-21.pcap", "x-2026-11-22.pcap"],
    ["x_06:46:44.pcap", "x_06:47:44.pcap"],
    ["trace.1795243604", "trace.1795243664"],
    ["x-20261121064644.pcap", "x-20261121064644.pcap1", "x-20261121064744.pcap"],
]
DIFFERENT = [
    ["a1.pcap", "b1.pcap"],
    ["run1.pcap", "run2.pcap"],
    ["qos0.pcap", "qos1.pcap"],
    ["10.0.0.12", "10.0.0.13"],
    ["10.20.30.40.pcap", "10.20.31.40.pcap"],
    ["host-10.0.0.12-443.pcap", "host-10.0.0.13-443.pcap"],
    ["port_9092.pcap", "port_9093.pcap"],
    ["legacy_87345e7.pcap", "legacy_87345e8.pcap"],
    ["broker.pcap", "broker.pcapng"],
    ["x_00001.pcap", "y_00002.pcap"],
    ["a-20261121064644.pcap", "b-20261121064744.pcap"],
]


@pytest.mark.parametrize("names", ONE_RECORDING, ids=lambda names: names[0])
def test_names_of_one_recording(names):
    assert len({rotated_name(name).key for name in names}) == 1


@pytest.mark.parametrize("names", DIFFERENT, ids=lambda names: names[0])
def test_names_that_differ_in_more(names):
    assert len({rotated_name(name).key for name in names}) == len(names)


def seconds(*times):
    return pcap([(T0 + second * 10**9, b"x") for second in times])


def chained(directory, *names):
    return sorted(
        [[Path(name).name for name in capture.files] for capture in captures(names or [str(directory)]).captures]
    )


def test_rotated_files_are_one_capture_in_order_of_time(tmp_path):
    for number in range(11):
        written(tmp_path, f"b.pcap{number or ''}", seconds(number * 2, number * 2 + 1))

    assert chained(tmp_path) == [[f"b.pcap{number or ''}" for number in range(11)]]


def test_ring_that_began_anew_is_ordered_by_time(tmp_path):
    for name, content in (("b.pcap0", seconds(8, 9)), ("b.pcap1", seconds(0, 1)), ("b.pcap2", seconds(2, 3))):
        written(tmp_path, name, content)

    assert chained(tmp_path) == [["b.pcap1", "b.pcap2", "b.pcap0"]]


def test_order_of_inputs_does_not_matter(tmp_path):
    names = [written(tmp_path, f"b.pcap{number}", seconds(number)) for number in range(4)]

    assert chained(tmp_path, *names) == chained(tmp_path, *reversed(names)) == [[Path(name).name for name in names]]


def test_overlap_in_time_keeps_files_apart(tmp_path):
    written(tmp_path, "b.pcap", seconds(0, 5))
    written(tmp_path, "b.pcap1", seconds(4, 8))

    assert chained(tmp_path) == [["b.pcap"], ["b.pcap1"]]


def test_equal_times_at_the_border_are_no_overlap(tmp_path):
    written(tmp_path, "b.pcap", seconds(0, 5))
    written(tmp_path, "b.pcap1", seconds(5, 8))

    assert chained(tmp_path) == [["b.pcap", "b.pcap1"]]


def test_files_in_different_directories_stay_apart(tmp_path):
    written(tmp_path, "d/b.pcap", seconds(0))
    written(tmp_path, "e/b.pcap1", seconds(1))

    assert chained(tmp_path) == [["b.pcap"], ["b.pcap1"]]


def test_rotated_file_without_packets_keeps_its_place(tmp_path):
    written(tmp_path, "b.pcap", seconds(0))
    written(tmp_path, "b.pcap1", seconds())
    written(tmp_path, "b.pcap2", seconds(2))

    assert chained(tmp_path) == [["b.pcap", "b.pcap1", "b.pcap2"]]


def test_overlapping_files_stand_alone_within_a_chain(tmp_path):
    for name, times in (
        ("b.pcap", (0, 1)),
        ("b.pcap1", (2, 3)),
        ("b.pcap2", (4, 8)),
        ("b.pcap3", (5, 6)),
        ("b.pcap4", (9,)),
    ):
        written(tmp_path, name, seconds(*times))

    assert chained(tmp_path) == [["b.pcap", "b.pcap1"], ["b.pcap2"], ["b.pcap3"], ["b.pcap4"]]


def test_windows_of_a_chain_say_their_file(tmp_path):
    for number in range(3):
        written(tmp_path, f"b.pcap{number}", seconds(number, number))
    capture = captures([str(tmp_path)]).captures[0]

    assert [(window.file, window.number.tolist()) for window in capture.windows()] == [
        (file, [1, 2]) for file in range(3)
    ]
    assert [facts.packet_count for facts in capture.facts] == [2, 2, 2]


NG = section() + interface() + enhanced(0, 5, b"abc") + block(3, struct.pack("<I", 4) + b"abcd") + section(">")
NG += interface(101, ">", options=option(9, b"\x8a", ">")) + enhanced(0, 9, b"defg" * 9, ">")


@settings(max_examples=150, deadline=None)
@given(
    base=st.sampled_from(
        [pcap(THREE * 4), pcap(THREE, ">", 1), NG, gzip.compress(NG), lz4(pcap(THREE)), bz2.compress(NG)]
    ),
    changes=st.lists(st.tuples(st.integers(4, 400), st.binary(min_size=1, max_size=5)), max_size=4),
    cut=st.integers(0, 400),
)
def test_mutated_capture_gives_windows_and_notes_never_an_exception(base, changes, cut):
    content = bytearray(base)
    for at, change in changes:
        content[at : at + len(change)] = change
    found = captures(["-"], io.BytesIO(bytes(content[: len(content) - cut])))

    for capture in found.captures:
        for window in capture.windows():
            ends = window.offset + window.caplen
            assert (window.offset >= 0).all()
            assert (ends <= len(window.buffer)).all()
        assert all(str(note) for note in capture.notes)
