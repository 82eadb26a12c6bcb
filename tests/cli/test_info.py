"""``mqpcap info``: verdicts, numbers, connections, comments."""

import json
import struct
from pathlib import Path

import capture_files
import pyarrow.parquet as pq
import pytest
from running import ROOT, run
from torture import ACK, FIN, SYN, Segment, blipmq_message, packet, pcap

QOS1 = "pcaps/blipmq/qos1.pcap"


def test_info_distinguishes_whole_and_damaged_captures() -> None:
    assert "verdict       whole" in run("info", "-q", "pcaps/flymq/core.pcap").stdout
    assert "with care: 21 B were never captured" in run("info", "-q", "pcaps/faults/blipmq_lost.pcap").stdout
    assert "snap length cut" in run("info", "-q", "pcaps/faults/fq_snapped.pcap").stdout
    assert "nothing ours" in run("info", "-q", "pcaps/strangers/http_5555.pcap").stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [("mptcp_two_blipmq", "1 blipmq, 1 subflow"), ("nat_both_sides_flymq", "1 flymq, 1 other side of NAT")],
)
def test_a_connection_that_is_part_of_another_speaks_no_other_protocol(name: str, words: str) -> None:
    assert f"  connections   2: {words}\n" in run("info", "-q", f"tests/tcp/captures/{name}.pcap").stdout


def test_a_capture_in_which_pairs_could_not_be_made_is_not_whole(tmp_path: Path) -> None:
    """The capture has eight publishes of a connection that began earlier, and nothing of the server."""
    publishes = [blipmq_message(i) for i in range(1, 9)]
    offsets = [1000 + sum(map(len, publishes[:i])) for i in range(len(publishes))]
    path = tmp_path / "late.pcap"
    path.write_bytes(pcap([Segment(body, seq, 500) for body, seq in zip(publishes, offsets, strict=True)], 5555))

    shown = run("info", "-q", path).stdout
    (report,) = json.loads(run("info", "-q", "--json", path).stdout)["captures"]
    whole = json.loads(run("info", "-q", "--json", "pcaps/flymq/core.pcap").stdout)["captures"][0]

    assert "verdict       whole" not in shown
    assert "the connection began before the capture" in shown
    assert sum(report["unknown_pairs"].values()) == report["pairs"]["blipmq"]["unknown"] > 0
    assert whole["pairs"]["flymq"]["unknown"] == 0 and whole["unknown_pairs"] == {}


def test_info_counts_other_content_among_what_was_sent_again() -> None:
    """A segment of 33 bytes comes again, the last 17 changed (pcaps/faults.py)."""
    told = run("info", "-q", "pcaps/faults/blipmq_conflict.pcap").stdout

    assert "sent again    33 B, 17 B of it with other content" in told


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
    assert shown[1].startswith("  verdict       ")
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


def lossy(port: int, count: int, missing: int, speaks: bytes) -> bytes:
    """A client that sends so many segments of 100 bytes; of them ``missing`` were not captured."""
    segments = [Segment(seq=99, flags=SYN), Segment(seq=499, ack=100, flags=SYN | ACK, from_server=True)]
    stream = speaks.ljust(100 * count, b"x")
    lost = range(1, 2 * missing, 2)
    sent = [Segment(stream[100 * k : 100 * k + 100], 100 + 100 * k, 500) for k in range(count) if k not in lost]
    return pcap([*segments, *sent, Segment(seq=100 + 100 * count, ack=500, flags=FIN | ACK)], port)


def test_what_is_missing_of_a_foreign_protocol_is_missing(tmp_path: Path) -> None:
    """Six of twenty segments of an HTTP client: 600 of 2,000 bytes."""
    path = tmp_path / "a.pcap"
    path.write_bytes(lossy(80, 20, 6, b"POST / HTTP/1.1\r\n"))

    said, gated = run("info", path).stdout, run("info", "-q", "--max-loss", "0", path)

    assert "nothing ours: connections are 1 HTTP/1; 600 B of them were never captured" in said
    assert "  missing       600 B in 6 gaps of other protocols\n" in said
    assert gated.exit_code == 1 and "30 % lost" in gated.stderr
    path.write_bytes(lossy(80, 20, 0, b"POST / HTTP/1.1\r\n"))
    assert run("info", "-q", "--max-loss", "0", path).exit_code == 0


def test_a_proxy_header_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(
        pcap([Segment(seq=99, flags=SYN), Segment(b"PROXY UNKNOWN\r\n" + blipmq_message(0), 100, 500),
              Segment(seq=500, ack=115 + len(blipmq_message(0)), from_server=True, flags=ACK)], 5555)
    )  # fmt: skip

    said = run("info", "--max-loss", "0", path)

    assert said.exit_code == 0
    assert "verdict       with care: 1 request has no known outcome\n" in said.stdout, "and nothing else"
    assert f"100.0% of {len(blipmq_message(0))} B of payload" in said.stdout


def whole_connection(client: int = 99, server: int = 499) -> list[tuple[int, bytes]]:
    """(ns, frame) for a connection with two messages and a reply; its SYNs have these numbers."""
    body, c, s = blipmq_message(0) + blipmq_message(1), client + 1, server + 1
    segments = [
        Segment(seq=client, flags=SYN),
        Segment(seq=server, ack=c, flags=SYN | ACK, from_server=True),
        Segment(body, c, s),
        Segment(blipmq_message(0), s, c + len(body), from_server=True),
        Segment(seq=c + len(body), ack=s + len(blipmq_message(0)), flags=FIN | ACK),
    ]
    return [(k * 100_000, packet(segment, 5555)[0]) for k, segment in enumerate(segments)]


def test_a_capture_that_holds_every_packet_twice_is_not_sent_again(tmp_path: Path) -> None:
    """Copies of five packets, 10 us after each; then of the first packet with payload alone."""
    path, packets = tmp_path / "a.pcap", whole_connection()
    copies = [(ns + 10_000, frame) for ns, frame in packets]
    path.write_bytes(capture_files.pcap(sorted(packets + copies)))
    twice = run("info", "-q", path).stdout
    path.write_bytes(capture_files.pcap(sorted([*packets, copies[2]])))
    once = run("info", "-q", path).stdout

    assert "captured twice every packet is in the capture twice; 5 copies, not counted as sent again" in twice
    assert "\n  sent again" not in twice
    assert "captured twice 1 copy, not counted as sent again" in once


def test_two_captures_of_one_connection_with_rewritten_numbers_are_noted(tmp_path: Path) -> None:
    """A firewall rewrites the numbers of both sides, 50 us later in the same file; then two hours later."""
    path, inside = tmp_path / "a.pcap", whole_connection()
    outside = [(ns + 50_000, frame) for ns, frame in whole_connection(2_800_000_000, 1_200_000_000)]
    note = (
        "c1 and c2 have the same endpoints, times and bytes: two captures of one connection with a device between them "
        "that rewrites sequence numbers, or connections of two networks"
    )
    path.write_bytes(capture_files.pcap(sorted(inside + outside)))
    (report,) = json.loads(run("info", "-q", "--json", path).stdout)["captures"]

    assert report["notes"] == [note]
    assert f"note          {note}" in run("info", "-q", path).stdout
    assert (report["gap_bytes"], report["retransmitted_bytes"]) == (0, 0)
    path.write_bytes(capture_files.pcap(inside + [(7200 * 10**9 + ns, frame) for ns, frame in outside]))
    assert json.loads(run("info", "-q", "--json", path).stdout)["captures"][0]["notes"] == []


def test_unrecognised_connections_of_a_recognised_server_are_noted_with_an_option(
    tmp_path: Path,
) -> None:
    """Three connections whose only bytes are half a frame of BlipMQ, on a port that is nobody's."""
    opened = [Segment(seq=99, flags=SYN), Segment(blipmq_message(0) + blipmq_message(1), 100, 1)]
    late = [Segment(blipmq_message(1)[9:], 700, 1, client_port=50001 + k) for k in range(3)]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([*opened, *late], 7777))
    note = (
        "3 connections of 10.0.0.2:7777 are not recognised, 1 of the same server are blipmq: "
        "-d tcp.port==7777,blipmq reads them all"
    )

    (report,) = json.loads(run("info", "--json", path).stdout)["captures"]
    (read,) = json.loads(run("info", "--json", "-d", "tcp.port==7777,blipmq", path).stdout)["captures"]

    assert (report["notes"], read["notes"]) == ([note], [])
    for command in (["show"], ["stats"], ["export", "--out", tmp_path / "out"]):
        assert f"note: {note}\n" in run(*command, path).stderr
    path.write_bytes(pcap([*opened, *late[:2]], 7777))
    (report,) = json.loads(run("info", "--json", path).stdout)["captures"]
    assert report["notes"] == []


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


def test_packets_that_are_not_read_are_named_and_counted_everywhere(tmp_path: Path) -> None:
    """IPsec (ESP, protocol 50) may carry TCP: that there is no connection is not said."""
    ip = b"\x45\0\0\x3c" + bytes(5) + b"\x32\0\0\x0a\0\0\1\x0a\0\0\2" + bytes(40)
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    path = tmp_path / "esp.pcap"
    path.write_bytes(capture_files.pcap([(n, bytes(12) + b"\x08\0" + ip) for n in range(12)] + [(99, arp)]))

    (told,) = json.loads(run("info", "-q", "--json", path).stdout)["captures"]
    shown = run("show", path)
    run("export", "-q", path, "--out", tmp_path / "out")

    assert (told["not_read"], told["not_tcp"]) == ({"ESP": 12}, {"ARP": 1})
    assert told["verdict"] == "nothing ours: 12 packets not read"
    assert f"note: {path}: 12 packets: ESP, not read" in shown.stderr
    (row,) = pq.read_table(tmp_path / "out/captures").to_pylist()
    assert (row["status"], row["reason"]) == ("read", "12 packets: ESP, not read")


def test_a_file_that_is_given_up_early_is_not_read_to_its_end(tmp_path: Path) -> None:
    path, content = tmp_path / "damaged.pcap", (ROOT / QOS1).read_bytes()
    path.write_bytes(content + b"\xff" * 40)

    (told,) = json.loads(run("info", "-q", "--json", path).stdout)["captures"]

    assert told["verdict"].startswith("not read to its end; ")


def test_a_pcap_shorter_than_its_header_has_a_verdict_and_a_row(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    path.write_bytes(capture_files.pcap([])[:10])

    (told,) = json.loads(run("info", "-q", "--json", path).stdout)["captures"]
    run("export", "-q", path, "--out", tmp_path / "out")

    assert told["verdict"] == "empty: there is no packet"
    (row,) = pq.read_table(tmp_path / "out/captures").to_pylist()
    assert (row["status"], row["packets"]) == ("cut short", 0)


def test_counts_of_zero_are_left_out() -> None:
    """qos1 has neither losses nor flaws; fq_snapped was cut at 128 bytes a packet."""
    whole, cut = run("info", "-q", QOS1).stdout, run("info", "-q", "pcaps/faults/fq_snapped.pcap").stdout

    assert "packets       382, all TCP\n" in whole
    assert not any(f"\n  {word}" in whole for word in ("dropped", "flaw", "missing", "undecoded", "sent again", "late"))
    assert all(f"\n  {word}" in cut for word in ("flaws", "flawed", "undecoded", "missing"))
    assert " 0 " not in whole.split("connection  client")[0]


@pytest.mark.parametrize(
    ("name", "colour"), [(QOS1, 32), ("pcaps/faults/blipmq_lost.pcap", 33), ("pcaps/strangers/http_5555.pcap", 31)]
)
def test_the_verdict_has_a_colour(name: str, colour: int) -> None:
    verdict = run("info", "-q", "--color", "always", name).stdout.splitlines()[1]

    assert verdict.startswith(f"  verdict       \x1b[{colour}m") and verdict.endswith("\x1b[0m")
    assert "\x1b" not in run("info", "-q", name).stdout
