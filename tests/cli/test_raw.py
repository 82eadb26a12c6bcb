"""The reassembled bytes of one side of a connection, as ``mqpcap follow --raw`` writes them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from running import ROOT, run, run_bytes
from torture import ACK, SYN, Segment, pcap

QOS1 = "pcaps/blipmq/qos1.pcap"
CORE = "pcaps/flymq/core.pcap"


def raw(*arguments: str) -> tuple[bytes, str]:
    ended = run_bytes("follow", *arguments)
    ended.check_returncode()
    return ended.stdout, ended.stderr.decode()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark on PATH")
@pytest.mark.parametrize("path", [QOS1, CORE, "pcaps/faults/fq_reordered.pcap", "pcaps/faults/msgq_reordered.pcap"])
def test_raw_bytes_are_those_that_tshark_follows(path: str) -> None:
    told = subprocess.run(
        ["tshark", "-r", path, "-q", "-z", "follow,tcp,raw,0", "-o", "tcp.reassemble_out_of_order:TRUE"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = told.stdout.split("Node 1:")[1].splitlines()[1:-1]
    sides = {
        "c2s": b"".join(bytes.fromhex(line) for line in lines if not line.startswith("\t")),
        "s2c": b"".join(bytes.fromhex(line) for line in lines if line.startswith("\t")),
    }
    for direction, data in sides.items():
        assert raw(path, "--connection", "c1", "--raw", direction, "--show-secrets")[0] == data
        assert data


def test_raw_bytes_hide_secrets_unless_asked() -> None:
    veiled, said = raw(QOS1, "--connection", "c1", "--raw", "c2s")
    bare, _ = raw(QOS1, "--connection", "c1", "--raw", "c2s", "--show-secrets")

    assert b"dev-key" in bare
    assert veiled == bare.replace(b"dev-key", b"*******")
    assert "7 bytes may be secret" in said


def test_raw_bytes_of_multipath_tcp_are_those_of_all_subflows() -> None:
    """The sizes are those of the last data acknowledgements: ...2412 - ...1873 - 1, and ...6889 - ...6726 - 1."""
    path = "tests/tcp/captures/mptcp_two_blipmq.pcap"
    sides = [raw(path, "c1", "--show-secrets", "--raw", side)[0] for side in ("c2s", "s2c")]

    assert [len(side) for side in sides] == [538, 162]


def test_raw_bytes_go_on_after_a_gap_with_a_note() -> None:
    rows = [
        json.loads(line)
        for line in run(
            "show", "-q", "--json", "-Y", "gap_before_bytes > 0", "pcaps/faults/blipmq_lost.pcap"
        ).stdout.splitlines()
    ]
    (row,) = rows

    data, said = raw(
        "pcaps/faults/blipmq_lost.pcap",
        "--connection",
        row["connection_id"],
        "--raw",
        row["direction"],
        "--show-secrets",
    )

    assert "21 bytes were never captured" in said
    whole, _ = raw(
        "pcaps/blipmq/qos1.pcap", "--client", f"{row['src_ip']}:{row['src_port']}", "--raw", row["direction"],
        "--show-secrets",
    )  # fmt: skip
    at = row["stream_offset"]
    assert data == whole[: at - 21] + whole[at:]


def test_raw_bytes_of_an_unrecognised_connection_are_masked_by_default(tmp_path: Path) -> None:
    """It may be a login whose first bytes are damaged."""
    packets = [
        Segment(seq=999, flags=SYN), Segment(b"", 4999, 1000, SYN | ACK, from_server=True),
        Segment(b"\xcc\x51\xca\xfe", 1000, 5000), Segment(b"\xaa\xaa\0\0\0\5alice\0\1q\0\6secret", 1004, 5000),
    ]  # fmt: skip
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(packets, 8765))

    hidden, said = raw(str(path), "--connection", "c1", "--raw", "c2s")
    bare, _ = raw(str(path), "--connection", "c1", "--raw", "c2s", "--show-secrets")

    assert bare.endswith(b"\0\6secret")
    assert hidden == b"*" * len(bare)
    assert "--show-secrets" in said
