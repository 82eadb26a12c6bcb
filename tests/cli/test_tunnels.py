"""``-d udp.port==4799,vxlan``: a tunnel on a UDP port of one's own has the rows of its packets without the tunnel."""

import struct
from pathlib import Path

import pytest
from capture_files import packets, pcap
from running import run
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

import mqpcap
from mqpcap.capture import captures
from mqpcap.decode.detection import DecodeAs
from mqpcap.spark.partitions import SharePlan
from mqpcap.tcp.headers import connections_of

HANDSHAKE = "pcaps/blipmq/handshake.pcap"
RULE = "udp.port==4799,vxlan"


@pytest.fixture
def tunnelled(tmp_path: Path) -> Path:
    """The sample capture in VXLAN, which some clouds have on port 4799."""
    (capture,) = captures([HANDSHAKE]).captures
    plain = packets([*capture.windows()])
    outer = Ether() / IP(src="203.0.113.1", dst="203.0.113.2") / UDP(sport=50000, dport=4799)
    wrapped = [(ts_ns, bytes(outer / Raw(struct.pack(">II", 0x08000000, 7 << 8) + data))) for ts_ns, data, *_ in plain]
    path = tmp_path / "tunnelled.pcap"
    path.write_bytes(pcap(wrapped))
    return path


def test_a_tunnel_on_a_port_of_ones_own_is_read_as_without_it(tunnelled: Path) -> None:
    plain, read = run("show", "-q", "--utc", HANDSHAKE), run("show", "-q", "--utc", "-d", RULE, tunnelled)

    assert plain.stdout.count("\n") > 20
    assert read.stdout == plain.stdout


def test_without_the_rule_a_note_names_it(tunnelled: Path) -> None:
    report = run("info", tunnelled).stdout

    assert "nothing ours: 199 packets not read" in report
    assert f"VXLAN on UDP port 4799 (-d {RULE} reads it)" in report


def test_the_packets_of_a_message_are_found_in_the_tunnel(tunnelled: Path) -> None:
    plain, read = mqpcap.open(HANDSHAKE), mqpcap.open(tunnelled, decode_as={4799: "vxlan"})
    rows = zip(read.messages.to_pylist()[:9], plain.messages.to_pylist(), strict=False)

    assert all(bytes(read.packet(row)) == bytes(plain.packet(plain_row)) for row, plain_row in rows)

    shown = []
    for number, path in enumerate((HANDSHAKE, tunnelled)):
        out = tunnelled.with_name(f"extract-{number}.pcap")
        assert run("extract", "-q", "-d", RULE, path, "--out", out).exit_code == 0
        shown.append(run("show", "-q", "--utc", "-d", RULE, out).stdout)
    assert shown[0] == shown[1] != ""


def test_shares_of_a_capture_have_the_packets_of_the_tunnel(tunnelled: Path) -> None:
    (capture,) = captures([str(tunnelled)]).captures
    plan = SharePlan(2, rules=(DecodeAs(4799, "vxlan"),))
    (window,) = capture.windows()

    assert len(connections_of(window)[0]) == 0
    assert len(connections_of(window, plan.rules)[0]) == 199


@pytest.mark.parametrize(("rule", "text"), [
    ("udp.port==4799,flymq", "'flymq' is no tunnel; there are capwap, "),
    ("tcp.port==4799,vxlan", "'vxlan' is no protocol"),
    ("udp.port==0,vxlan", "0 is no UDP port"),
])  # fmt: skip
def test_a_rule_of_the_other_kind_is_refused(tunnelled: Path, rule: str, text: str) -> None:
    refused = run("show", "-d", rule, tunnelled)

    assert refused.exit_code == 2
    assert text in refused.stderr
