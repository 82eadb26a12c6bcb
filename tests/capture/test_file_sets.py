"""Which files are pieces of one recording."""

from pathlib import Path

import pytest
from capture_files import T0, pcap, seconds, written

from mqpcap.capture import captures
from mqpcap.capture.file_sets import rotated_name

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
    ["x-Mon.pcap", "x-Tue.pcap", "x-Sun.pcap"],
    ["Monday.pcap", "Wednesday.pcap"],
    ["node-261121-00000012.pcap", "node-261121-00000013.pcap", "node-261122-00000014.pcap"],
    ["1795243604123456", "1795243664123456"],
    # pcap_split of FMADIO, main.c, GenerateFileName: NS, SUB, TZ, HHMM, seconds, begin and end, ms, us, ns
    ["x_20261121_064644.123.456.789.pcap", "x_20261121_064744.000.000.001.pcap"],
    ["x_20261121_06-46-44.123456789.pcap", "x_20261121_06-47-44.000000001.pcap"],
    ["x_2026-11-21_06:46:44+09:00.pcap", "x_2026-11-21_06:47:44+09:00.pcap"],
    ["x_20261121_0646.pcap", "x_20261121_0647.pcap"],
    ["x_1795243604.pcap", "x_1795243664.pcap"],
    ["x_1795243604-1795243664.pcap", "x_1795243664-1795243724.pcap"],
    ["x_1795243604123.pcap", "x_1795243664123.pcap"],
    ["x_1795243604123456789.pcap", "x_1795243664123456789.pcap"],
    # n2disk with a timeline (ntop/n2disk issue 28)
    ["1795243604.507696.pcap", "1795243664.007696.pcap"],
    # Suricata, src/log-pcap.c, PcapLogOpenFileCtx: ts-format sec and usec (no zeros in front), lz4, a thread of multi
    ["log.pcap.1795243604", "log.pcap.1795243664"],
    ["log.pcap.1795243604.123456", "log.pcap.1795243664.99"],
    ["log.pcap.1795243604.lz4", "log.pcap.1795243664.lz4"],
    ["log.1.1795243604.pcap", "log.1.1795243664.pcap"],
    ["log.pcap.1.1795243604.5", "log.pcap.1.1795243664.123456"],
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
    ["Sundance.pcap", "Monitor.pcap"],
    ["x-10001.pcap", "x-10002.pcap"],
    ["log.pcap.1.1795243604", "log.pcap.2.1795243604"],
    ["log.1.1795243604.5.pcap", "log.2.1795243604.6.pcap"],
    ["10.0.0.1.1795243604.pcap", "10.0.0.2.1795243604.pcap"],
]


@pytest.mark.parametrize("names", ONE_RECORDING, ids=lambda names: names[0])
def test_names_of_one_recording(names):
    assert len({rotated_name(name).key for name in names}) == 1


@pytest.mark.parametrize("names", DIFFERENT, ids=lambda names: names[0])
def test_names_that_differ_in_more(names):
    assert len({rotated_name(name).key for name in names}) == len(names)


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


def test_borders_may_overlap_by_some_packets(tmp_path):
    """Two queues, or border packets that changed places: less than a second, and less than a tenth of each file."""
    written(tmp_path, "b.pcap", tenths(0, 90))
    written(tmp_path, "b.pcap1", tenths(86, 170))

    assert chained(tmp_path) == [["b.pcap", "b.pcap1"]]


@pytest.mark.parametrize("begin", [75, 0])
def test_larger_overlaps_keep_files_apart(tmp_path, begin):
    written(tmp_path, "b.pcap", tenths(0, 90))
    written(tmp_path, "b.pcap1", tenths(begin, 170))

    assert chained(tmp_path) == [["b.pcap"], ["b.pcap1"]]


def tenths(begin, end):
    """A capture with a packet every tenth of a second."""
    return pcap([(T0 + n * 100_000_000, b"x") for n in range(begin, end)])


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
