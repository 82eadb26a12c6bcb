"""The bytes of pcap and pcapng files to their packets, and what is said of files that end badly."""

import bz2
import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from capture_files import (
    T0,
    THREE,
    block,
    enhanced,
    interface,
    lz4,
    only,
    option,
    packets,
    pcap,
    read,
    section,
    written,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mqpcap.capture import captures, windows


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
    assert np.concatenate([window.packet_number for window in read_windows]).tolist() == list(range(1, 51))
    assert [row[1] for row in packets(read_windows)] == [bytes([n] * n) for n in range(50)]


def test_record_longer_than_a_window_gets_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_BYTES", 64)
    rows, capture = read(tmp_path, pcap([(T0, b"a"), (T0, b"b" * 1000), (T0, b"c")]))

    assert [row[1] for row in rows] == [b"a", b"b" * 1000, b"c"]
    assert capture.notes == []


def test_more_packets_than_a_window_may_hold_go_into_several(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", 3)
    capture = only(written(tmp_path, "x", pcap([(T0, b"p")] * 7)))

    assert [len(window.packet_number) for window in capture.windows()] == [3, 3, 1]


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

    assert [window.packet_number.tolist() for window in capture.windows()] == [[1, 5, 6]]
    assert capture.facts[0].packet_count == 3


@pytest.mark.parametrize(
    ("dropped", "sum_"), [((2**64 - 1,), None), ((2**63, 5), 2**63 - 1), ((2**62, 2**62), 2**63 - 1)]
)
def test_drop_counts_that_no_table_can_hold(tmp_path, dropped, sum_):
    """2^64-1 is what a counter of unknown value is written as; the sum of others is as large as a column can say."""
    content = section() + interface() + interface()
    for number, count in enumerate(dropped):
        content += block(5, struct.pack("<III", number, 0, 0) + option(5, struct.pack("<Q", count)))
    _, capture = read(tmp_path, content + enhanced(0, 5, b"a"))

    assert capture.facts[0].drop_count == sum_


def test_pcapng_statistics_and_names_are_facts(tmp_path):
    def statistics(received, dropped):
        options = option(4, struct.pack("<Q", received)) + option(5, struct.pack("<Q", dropped))
        return block(5, struct.pack("<III", 0, 0, 0) + options)

    content = (
        section() + interface(options=option(2, b"eth0")) + statistics(10, 1) + enhanced(0, 5, b"a") + statistics(99, 7)
    )
    _, capture = read(tmp_path, content)

    (facts,) = capture.facts
    assert (facts.interfaces, facts.drop_count) == (("eth0",), 7)


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


NG = section() + interface() + enhanced(0, 5, b"abc") + block(3, struct.pack("<I", 4) + b"abcd") + section(">")
NG += interface(101, ">", options=option(9, b"\x8a", ">")) + enhanced(0, 9, b"defg" * 9, ">")


@examples(60)
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
