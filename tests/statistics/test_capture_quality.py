"""What is counted of a capture, and what its verdict says."""

import pyarrow as pa
import pytest

from mqpcap.capture import FileFacts
from mqpcap.reading import Choices, Outcome, background, find_captures
from mqpcap.statistics.capture_quality import CaptureQuality, quality_of
from mqpcap.statistics.counters import Counters
from mqpcap.tables.output import Carried, Output
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
    report = CaptureQuality()
    report.take(Output("messages", pa.concat_tables(rows)))

    assert report._names == {1: "0"}


def report(packets: int, dropped: int | None, **sums: int) -> CaptureQuality:
    """A report of one file with so many packets."""
    made = CaptureQuality([FileFacts("a", "pcap", "little", None, 1000, 0, (1,), (), packets, 0, 0, None, dropped)])
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


def test_a_verdict_lists_every_fault_of_a_capture() -> None:
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


class Seen:
    """Counts nothing, and keeps the messages that it could count."""

    def __init__(self, reads: frozenset[Carried] | None) -> None:
        self.reads, self.outputs = reads, list[Output]()

    def take_fields(self, output: Output) -> None:
        self.outputs.append(output)


def report_and_rows(path: str, reads: frozenset[Carried] | None) -> tuple[CaptureQuality, list[Output]]:
    """The report of a capture, and the messages that were made for it."""
    seen = Seen(reads)
    outcome = Outcome(Choices())
    (capture,) = find_captures([path], outcome)
    with background(outcome.choices, 0) as worker:
        made = quality_of(capture, outcome, lambda size: None, worker, Counters(seen))
    assert made is not None
    return made, seen.outputs


@pytest.mark.parametrize("name", ["kokaq/go1_session", "fq/session", "flymq/fetch", "faults/blipmq_lost"])
def test_a_report_reads_only_the_columns_that_it_counts(name: str) -> None:
    """Columns that nobody reads took a sixth of the time of a capture of 960,000 messages."""
    path = f"pcaps/{name}.pcap"
    whole, _ = report_and_rows(path, None)
    made, messages = report_and_rows(path, frozenset())

    assert made.as_json() == whole.as_json()
    assert messages
    for output in messages:
        assert {"body_len", "partition_id", "group_name", "message_id"}.isdisjoint(output.rows.column_names)
        assert output.fields is not None
        assert {"body", "value", "route", "queue"}.isdisjoint(output.fields.column_names)


@pytest.mark.parametrize("are_spread", [False, True])
def test_pairs_are_counted_by_protocol_state_and_connection(are_spread: bool) -> None:
    """Ids of connections have 64 bits; replies without a request are no pairs."""
    ids = [5, 5, 5, 7, 7, 7, 7]
    states = ["answered", "unknown", "likely", "unknown", "orphan", "not_expected", "unanswered"]
    rows = pa.table(
        {
            "connection_id": [connection_id << (56 if are_spread else 0) for connection_id in ids],
            "protocol": ["kokaq"] * 7, "state": states, "request_offset": [0, 10, 20, 0, None, 30, 40],
        }
    )  # fmt: skip
    made = CaptureQuality()
    for _ in range(2):
        made.take(Output("exchanges", rows))

    assert made.pairs == {"kokaq": {"certain": 2, "likely": 2, "unanswered": 2, "unknown": 4}}
    assert [*made._unknown.values()] == [2, 2]
    assert [*made._unpaired.values()] == [2]
