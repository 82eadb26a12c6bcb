"""``mqpcap info``: verdicts, numbers, connections, comments."""

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from running import run

from mqpcap.capture import FileFacts
from mqpcap.cli.info import Report
from mqpcap.pipeline import Output
from mqpcap.tables.schemas import NUMBER

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_info_tells_a_whole_capture_from_a_damaged_one() -> None:
    assert "verdict       whole" in run("info", "-q", QOS1).stdout
    assert "with care: 21 B were never captured" in run("info", "-q", "pcaps/faults/blipmq_lost.pcap").stdout
    assert "snap length cut" in run("info", "-q", "pcaps/faults/fq_snapped.pcap").stdout
    assert "nothing ours" in run("info", "-q", "pcaps/strangers/http_5555.pcap").stdout


def test_info_counts_other_content_among_what_was_sent_again() -> None:
    """A segment of 33 bytes comes again, the last 17 changed (pcaps/faults.py)."""
    told = run("info", "-q", "pcaps/faults/blipmq_conflict.pcap").stdout

    assert "sent again    33 B, 17 B of it with other content" in told


def test_the_name_of_a_connection_is_the_first_that_it_had() -> None:
    rows = [
        pa.table(
            {
                NUMBER: [1], "client_name": [name], "protocol": ["msgq"], "status": ["ok"], "flaw": pa.nulls(1),
                "frame_len": [1], "resynced": [False],
            }
        )
        for name in map(str, range(500))
    ]  # fmt: skip
    report = Report()
    report.take(Output("messages", pa.concat_tables(rows)))

    assert report._names == {1: "0"}


def test_info_as_json_agrees_with_the_capture() -> None:
    said = json.loads(run("info", "-q", "--json", QOS1).stdout)["captures"][0]

    assert said["files"][0]["format"] == "pcap"
    assert said["files"][0]["packet_count"] == 382
    assert said["connections"] == {"blipmq": 15}
    assert said["messages"] == {"blipmq": 242}
    assert said["decoded_bytes"] == said["payload_bytes"] > 0


def test_info_lists_connections_with_what_they_speak() -> None:
    """handshake.truth and qos1: 15 connections, 242 messages; the capture's own file counts them."""
    (report,) = json.loads(run("info", "--json", QOS1).stdout)["captures"]
    listed = report["connection_list"]

    assert [one["connection"] for one in listed] == [f"c{k}" for k in range(1, 16)]
    assert sum(one["messages"] for one in listed) == 242
    assert listed[0]["client"] == "127.0.0.1:39290" and listed[0]["server"] == "127.0.0.1:5555"
    shown = run("info", QOS1).stdout.splitlines()
    assert shown[1].startswith("  verdict       whole: ")
    assert [one.split()[0] for one in shown[-15:]] == [f"c{k}" for k in range(1, 16)]
    assert len({one.index("1:") for one in shown[-15:]}) == 1, "columns align"


def test_info_knows_client_names_and_errors() -> None:
    """fq: the login names the user of both connections; BlipMQ: a NACK is an error."""
    (fq,) = json.loads(run("info", "--json", "pcaps/fq/session.pcap").stdout)["captures"]
    (refused,) = json.loads(run("info", "--json", "pcaps/blipmq/errors.pcap").stdout)["captures"]
    rows = [json.loads(x) for x in run("show", "-q", "--json", "pcaps/blipmq/errors.pcap").stdout.splitlines()]

    assert {"watcher", "alice"} <= {one["client_name"] for one in fq["connection_list"]}
    answers = [x for x in rows if x["op"] == "NACK" and x["direction"] == "s2c"]
    assert sum(one["errors"] for one in refused["connection_list"]) == len(answers) > 0


def test_info_names_strangers() -> None:
    names = {
        "tls_9092": "TLS",
        "http_5555": "HTTP/1",
        "http_8765": "HTTP/1",
        "kafka_9092": "Kafka",
        "grpc_9944": "gRPC",
    }
    for file, name in names.items():
        (report,) = json.loads(run("info", "--json", f"pcaps/strangers/{file}.pcap").stdout)["captures"]
        assert report["strangers"] == {name: 1}
        assert report["verdict"] == f"nothing ours: connections are 1 {name}"


def test_max_loss_is_an_exit_code() -> None:
    """blipmq_lost: 21 bytes missing beside 5,185 captured, 0.4034 %."""
    lost = "pcaps/faults/blipmq_lost.pcap"
    said = run("info", "--max-loss", "0.1", lost)

    assert (said.exit_code, said.stderr) == (1, f"mqpcap: {lost}: 0.403 % lost, more than --max-loss 0.1\n")
    assert said.stdout == run("info", lost).stdout
    assert run("info", "--max-loss", "0.5", lost).exit_code == 0
    assert run("info", "--max-loss", "0", QOS1).exit_code == 0
    assert run("info", "--max-loss", "101", QOS1).exit_code == 2


def pcapng(order: str) -> bytes:
    """A section with a comment, an interface with one, a block of names, and two packets, the second with a comment."""

    def option(code: int, data: bytes) -> bytes:
        return struct.pack(order + "HH", code, len(data)) + data + bytes(-len(data) % 4)

    def block(kind: int, body: bytes) -> bytes:
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    head = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    names = struct.pack(order + "HH", 1, 11) + bytes([10, 0, 0, 1]) + b"broker\0" + b"\0" + bytes(4)
    packet = struct.pack(order + "IIIII", 0, 0, 0, 60, 60) + bytes(60)
    return b"".join(
        [
            block(0x0A0D0D0A, head + option(1, "début".encode()) + option(0, b"")),
            block(1, struct.pack(order + "HHI", 1, 0, 0) + option(1, b"tap") + option(0, b"")),
            block(4, names),
            block(6, packet),
            block(6, packet + option(1, b"odd\x1b[31m") + option(0, b"")),
        ]
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_info_shows_comments_and_names(order: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(order))

    said = run("info", path).stdout.splitlines()
    (report,) = json.loads(run("info", "--json", path).stdout)["captures"]

    assert [one for one in said if one.startswith(("  comment", "  name"))] == [
        '  comment       file: "début"', '  comment       interface: "tap"', '  comment       packet 2: "odd\\x1b[31m"',
        "  name          10.0.0.1 is broker",
    ]  # fmt: skip
    assert [one["text"] for one in report["comments"]] == ["début", "tap", "odd\x1b[31m"]
    assert report["names"] == {"10.0.0.1": ["broker"]}
    path.write_bytes(pcapng(order)[:-9])
    assert run("info", path).exit_code == 0


def report(packets: int, dropped: int | None, **sums: int) -> Report:
    """A report of one file with so many packets."""
    made = Report([FileFacts("a", "pcap", "little", None, 1000, 0, (1,), (), packets, 0, 0, 0, None, dropped)])
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
