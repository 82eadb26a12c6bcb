"""The index of the sample captures is true, and the made ones can be made again."""

import hashlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
TRUTH = Path(__file__).resolve().parent / "truth"
ROW = re.compile(r"^\| `([a-z0-9_/]+\.pcap)` \| .+ \| ([0-9]+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
INDEX = {name: (int(packets), digest) for name, packets, digest in ROW.findall((PCAPS / "README.md").read_text())}
MADE_FROM_NOTHING_REAL = {"faults", "strangers"}


def packet_count(content: bytes) -> int:
    count, at = 0, 24
    while at < len(content):
        at += 16 + struct.unpack_from("<I", content, at + 8)[0]
        count += 1
    return count


def test_every_capture_is_in_the_index() -> None:
    assert {path.relative_to(PCAPS).as_posix() for path in PCAPS.rglob("*.pcap*")} == set(INDEX)


@pytest.mark.parametrize("name", sorted(INDEX))
def test_capture_is_the_one_in_the_index(name: str) -> None:
    content = (PCAPS / name).read_bytes()

    assert (packet_count(content), hashlib.sha256(content).hexdigest()) == INDEX[name]


def test_every_recorded_capture_has_its_truth() -> None:
    recorded = {name for name in INDEX if name.partition("/")[0] not in MADE_FROM_NOTHING_REAL}

    for name in recorded:
        truth = json.loads((TRUTH / name).with_suffix(".truth.json").read_text())
        assert Path(truth["capture"]).stem == Path(name).stem


def test_strangers_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, PCAPS / "strangers.py", tmp_path], check=True)

    assert contents(tmp_path) == contents(PCAPS / "strangers")


def test_faults_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    truth = tmp_path / "truth" / "faults.json"

    subprocess.run([sys.executable, PCAPS / "faults.py", tmp_path / "faults", truth], check=True)

    assert contents(tmp_path / "faults") == contents(PCAPS / "faults")
    assert truth.read_bytes() == (TRUTH / "faults.json").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
