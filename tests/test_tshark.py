"""A second opinion: the TCP segments of every sample capture, as tshark sees them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mqpcap.capture import captures
from mqpcap.tcp.headers import Dissector, address_text

TSHARK = shutil.which("tshark")
PCAPS = sorted((Path(__file__).resolve().parent.parent / "pcaps").glob("*/*.pcap"))
FIELDS = [
    "frame.number",
    "frame.time_epoch",
    "ip.src",
    "ip.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.len",
]

pytestmark = [
    pytest.mark.tshark,
    pytest.mark.skipif(TSHARK is None, reason="tshark is not installed: apt-get install tshark"),
]


def seen_by_tshark(path: Path) -> list[tuple[str, ...]]:
    asked = [part for field in FIELDS for part in ("-e", field)]
    command = [str(TSHARK), "-n", "-r", str(path), "-Y", "tcp", "-T", "fields"]
    out = subprocess.run([*command, *asked], capture_output=True, text=True, check=True).stdout
    return [tuple(line.split("\t")) for line in out.splitlines()]


def seen_by_us(path: Path) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    dissector = Dissector()
    for window in captures([str(path)]).captures[0].windows():
        s = dissector.segments(window)
        for i in range(len(s.seq)):
            version, ts = int(s.version[i]), int(s.ts_ns[i])
            rows.append(
                (
                    str(s.packet_number[i]),
                    f"{ts // 1_000_000_000}.{ts % 1_000_000_000:09d}",
                    address_text(version, int(s.src_hi[i]), int(s.src_lo[i])),
                    address_text(version, int(s.dst_hi[i]), int(s.dst_lo[i])),
                    str(s.sport[i]),
                    str(s.dport[i]),
                    str(s.seq[i]),
                    str(s.wire_length[i]),
                )
            )
    return rows


def test_segments_are_those_that_tshark_sees(tmp_path: Path) -> None:
    """Packet number, time, addresses, ports, raw sequence number and payload length on the wire.

    All captures are one file, as tshark takes a quarter of a second to start.
    """
    captured = [path.read_bytes() for path in PCAPS]
    assert {data[:4] + data[20:24] for data in captured} == {b"\xd4\xc3\xb2\xa1\1\0\0\0"}  # microseconds, Ethernet
    path = tmp_path / "all.pcap"
    path.write_bytes(captured[0][:24] + b"".join(data[24:] for data in captured))

    expected = seen_by_tshark(path)

    assert len(expected) > 10_000
    assert expected == seen_by_us(path)
