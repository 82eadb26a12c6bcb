"""Deliveries that clocks stamp before their publishes: two hosts whose clocks differ, a clock that is set back."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import mqpcap

SECOND_US = 1_000_000
Record = tuple[int, bytes, bytes]
"""Time in microseconds, lengths, and bytes of a packet."""


def records(content: bytes) -> list[Record]:
    found, position = [], 24
    while position < len(content):
        seconds, micros, length = struct.unpack_from("<III", content, position)
        end = position + 16 + length
        time_us, lengths = seconds * SECOND_US + micros, content[position + 8 : position + 16]
        found.append((time_us, lengths, content[position + 16 : end]))
        position = end
    return found


def written(path: Path, head: bytes, packets: list[Record]) -> Path:
    path.write_bytes(
        head + b"".join(struct.pack("<II", *divmod(us, SECOND_US)) + lengths + data for us, lengths, data in packets)
    )
    return path


def deliveries(path: Path, *columns: str) -> list[tuple[object, ...]]:
    """Keys and places of deliveries, and other columns, in order of the delivery."""
    names = "key", "publish_offset", "deliver_offset", *columns
    return sorted((tuple(row[name] for name in names) for row in mqpcap.read(path, "deliveries").to_pylist()), key=str)


def producers_ahead(packets: list[Record], publishing: set[int]) -> list[Record]:
    """The packets of two hosts, by time; the producers' clock is a second ahead."""

    def time_us(record: Record) -> int:
        return record[0] + SECOND_US * (not publishing.isdisjoint(struct.unpack_from(">HH", record[2], 34)))

    return sorted(((time_us(record), *record[1:]) for record in packets), key=lambda record: record[0])


def set_back(packets: list[Record], publishing: set[int]) -> list[Record]:
    """The packets of one host whose clock is set back by ten seconds in the middle of the capture."""
    middle = len(packets) // 2
    return [(us - 10 * SECOND_US * (number >= middle), *rest) for number, (us, *rest) in enumerate(packets)]  # type: ignore[misc]


@pytest.mark.parametrize("change", [producers_ahead, set_back])
def test_deliveries_stamped_before_their_publishes_keep_their_rows(
    change: Callable[[list[Record], set[int]], list[Record]], pcaps: Path, tmp_path: Path
) -> None:
    """fq names each message: the rows are those of the capture with one clock, without latencies that are no times."""
    source = pcaps / "fq/session.pcap"
    content = source.read_bytes()
    publishing = set(mqpcap.read(source, filter="op == 'message' and direction == 'c2s'")["src_port"].to_pylist())

    path = written(tmp_path / "a.pcap", content[:24], change(records(content), publishing))

    latencies = mqpcap.read(path, "deliveries")["latency_ns"]
    assert deliveries(path) == deliveries(source) != []
    assert latencies.null_count > 0
    assert all(latency >= 0 for latency in latencies.drop_null().to_pylist())


def test_a_note_and_the_verdict_name_the_clocks(pcaps: Path, tmp_path: Path) -> None:
    source = pcaps / "fq/session.pcap"
    publishing = set(mqpcap.read(source, filter="op == 'message' and direction == 'c2s'")["src_port"].to_pylist())
    packets = producers_ahead(records(source.read_bytes()), publishing)

    (report,) = mqpcap.info(written(tmp_path / "a.pcap", source.read_bytes()[:24], packets))

    count = len(deliveries(source))
    assert f"{count} deliveries are stamped before their publishes, so these have no latency" in "".join(report.notes)
    assert f"the clocks contradict the order of {count} pairs" in report.verdict()
