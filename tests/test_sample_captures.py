"""The captures that come with the package: equal to those of ``pcaps``, written as installed, nothing replaced."""

from pathlib import Path

import pytest
from running import run

import mqpcap
from mqpcap.errors import OutputError
from mqpcap.protocols import protocols

PCAPS = Path(__file__).resolve().parents[1] / "pcaps"


def test_each_protocol_has_a_sample(tmp_path: Path) -> None:
    assert set(protocols()) <= {path.parent.name for path in mqpcap.samples(tmp_path)}


def test_the_command_writes_the_captures_of_the_repository(tmp_path: Path) -> None:
    said = run("samples", "pcaps", cwd=tmp_path)

    assert (said.exit_code, said.stderr) == (0, "")
    names = [name.removeprefix("pcaps/") for name in said.stdout.splitlines()]
    assert names == sorted(names) != []
    for name in names:
        assert (tmp_path / "pcaps" / name).read_bytes() == (PCAPS / name).read_bytes()
    assert run("show", "-q", "-c", "1", "pcaps/blipmq/qos1.pcap", cwd=tmp_path).exit_code == 0


def test_a_second_call_changes_nothing_and_other_content_stays(tmp_path: Path) -> None:
    first = mqpcap.samples(tmp_path)
    assert mqpcap.samples(tmp_path) == first
    first[0].write_bytes(b"mine")

    with pytest.raises(OutputError, match="exists with other content; samples replaces no file"):
        mqpcap.samples(tmp_path)
    assert first[0].read_bytes() == b"mine"
