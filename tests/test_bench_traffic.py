"""The captures of the benchmark are what they say: every message decodes, and none is missing."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import traffic
from torture import broken_laws, read

BULK = {
    "blipmq": traffic.publishes, "flymq": traffic.flymq_fetches, "fq": traffic.fq_messages,
    "msgq": traffic.msgq_typed, "kokaq": traffic.kokaq_pushes,
}  # fmt: skip


@pytest.mark.parametrize("protocol", BULK)
def test_bulk_traffic_decodes_to_the_last_message(protocol: str, tmp_path: Path) -> None:
    count = BULK[protocol](tmp_path / "x.pcap", 400)

    result = read(tmp_path / "x.pcap")

    assert count >= 400
    assert len(result.messages) == count
    assert {(m["protocol"], m["flaw"], m["resynced"]) for m in result.messages} == {(protocol, None, False)}
    assert broken_laws(result) == []


@pytest.mark.parametrize("make", [lambda p: traffic.large(p, 2, 300_000), lambda p: traffic.short(p, 20)])
def test_hard_shapes_decode_to_the_last_message(make: Callable[[Path], int], tmp_path: Path) -> None:
    count = make(tmp_path / "x.pcap")

    result = read(tmp_path / "x.pcap")

    assert len(result.messages) == count
    assert {m["flaw"] for m in result.messages} == {None}


def test_no_connection_of_foreign_traffic_is_claimed(tmp_path: Path) -> None:
    count = traffic.foreign(tmp_path / "x.pcap", 200_000)

    result = read(tmp_path / "x.pcap")

    assert count > len(traffic.FOREIGN)
    assert [connection["protocol"] for connection in result.connections] == [None] * count
    assert broken_laws(result) == []


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_mqtt_has_the_same_publishes(tmp_path: Path) -> None:
    traffic.mqtt_publishes(tmp_path / "x.pcap", 400)
    fields = ("-T", "fields", "-E", "aggregator=|", "-e", "mqtt.topic", "-e", "mqtt.msg", "-e", "_ws.malformed")
    command = ("tshark", "-r", str(tmp_path / "x.pcap"), "-Y", "mqtt.msgtype == 3", *fields)

    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    topics, bodies, malformed = zip(*(line.split("\t") for line in said.splitlines()), strict=True)
    assert sum(len(x.split("|")) for x in topics) == 400
    assert {len(body) // 2 for x in bodies for body in x.split("|")} == set(range(60, 150))
    assert set(malformed) == {""}
