"""What is counted of a capture, and what its verdict says."""

import pyarrow as pa
import pytest

from mqpcap.capture import FileFacts
from mqpcap.statistics.capture_quality import Report
from mqpcap.tables.output import Output
from mqpcap.tables.schemas import CONNECTION_NUMBER


def test_the_name_of_a_connection_is_the_first_that_it_had() -> None:
    rows = [
        pa.table(
            {
                CONNECTION_NUMBER: [1], "client_name": [name], "protocol": ["msgq"], "status": ["ok"],
                "flaw": pa.nulls(1), "frame_len": [1], "resynced": [False],
            }
        )
        for name in map(str, range(500))
    ]  # fmt: skip
    report = Report()
    report.take(Output("messages", pa.concat_tables(rows)))

    assert report._names == {1: "0"}


def report(packets: int, dropped: int | None, **sums: int) -> Report:
    """A report of one file with so many packets."""
    made = Report([FileFacts("a", "pcap", "little", None, 1000, 0, (1,), (), packets, 0, 0, None, dropped)])
    made.sums.update(sums)
    return made


@pytest.mark.parametrize(
    ("packets", "dropped", "sums", "percent"),
    [
        (0, None, {}, 0), (10, None, {"payload_bytes": 100}, 0),
        (10, None, {"payload_bytes": 75, "gap_bytes": 25}, 25),  # of 100 sent
        (10, None, {"payload_bytes": 100, "undecoded_bytes": 10, "flawed_bytes": 5}, 15),
        (75, 25, {"payload_bytes": 75, "gap_bytes": 25, "flawed_bytes": 5}, 30), (75, 25, {"payload_bytes": 9}, 25),
    ],
)  # fmt: skip
def test_loss_is_the_larger_of_bytes_and_packets(
    packets: int, dropped: int | None, sums: dict[str, int], percent: float
) -> None:
    assert report(packets, dropped, **sums).loss_percent == pytest.approx(percent)


def test_a_verdict_tells_all_that_stands_against_a_capture() -> None:
    damaged = report(
        10,
        2,
        payload_bytes=100,
        gap_bytes=30,
        snapped_bytes=10,
        conflict_bytes=1,
        late_start_count=1,
        one_sided_count=2,
    )

    assert damaged.verdict() == (
        "with care: the capturing system dropped 2 packets, the snap length cut 10 B, 20 B were never captured, "
        "1 B were sent again with other content, 1 connection began before the capture, "
        "2 connections were captured on one side only"
    )
    assert report(0, None).verdict() == "empty: there is no packet"
    assert report(3, None).verdict() == "nothing ours: there is no TCP connection"
    assert (report(3, None).decoded_share, report(3, None).dropped_count, damaged.dropped_count) == (None, None, 2)
