"""The generated dissectors, loaded into tshark: operations, ids, topics and body lengths equal the rows of samples."""

import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from examples import one_in

import mqpcap
from mqpcap.dissectors import FILE_NAME, NotExpressible, wireshark
from mqpcap.errors import OutputError

PCAPS = Path(__file__).resolve().parents[2] / "pcaps"
EXPRESSIBLE = {
    "blipmq": ("mqpcap.op", "mqpcap.body_len", "mqpcap.destination", "blipmq.correlation_id"),
    "flymq": ("mqpcap.op", "mqpcap.body_len", "mqpcap.destination"),
    "mqtt": ("mqpcap.op", "mqpcap.body_len", "mqpcap_mqtt.topic", "mqpcap_mqtt.packet_id"),
}
"""By protocol the fields with operations, body lengths, topics and ids. Wireshark has an MQTT of its own."""
WEBSOCKET = "ws_v311"
SAMPLES = [path for x in EXPRESSIBLE for path in sorted(PCAPS.glob(f"{x}/*.pcap")) if path.stem != WEBSOCKET]
Values = tuple[list[str], ...]


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    path = tmp_path_factory.mktemp("lua") / FILE_NAME
    path.write_text(wireshark(), "utf-8")
    return path


def dissected(
    lua: Path, capture: Path, protocol: str, ports: set[int], fields: tuple[str, ...], *options: str
) -> dict[int, Values]:
    """By packet: the values of each field, sorted; packets without an operation are left out."""
    protocol = {"mqtt": "mqpcap_mqtt"}.get(protocol, protocol)
    words = ["tshark", "-X", f"lua_script:{lua}", "-r", str(capture), "-Y", protocol, "-T", "fields", *options]
    words += [word for field in ("frame.number", "_ws.lua.error", *fields) for word in ("-e", field)]
    words += ["-E", "aggregator=\x01"]
    words += [word for port in ports for word in ("-d", f"tcp.port=={port},{protocol}")]
    home = {**os.environ, "HOME": str(lua.parent)}  # without what a user installed
    ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True, env=home)
    assert "Lua" not in ended.stderr
    found = {}
    for line in ended.stdout.splitlines():
        number, error, *values = line.split("\t")
        assert error == "", number
        lists = tuple(sorted(filter(None, value.split("\x01"))) for value in values)
        if lists[0]:
            found[int(number)] = lists
    return found


def opened(path: Path) -> tuple[mqpcap.Recording, list[dict[str, Any]], set[int]]:
    """A sample, its messages, and their server ports."""
    recording = mqpcap.open(path)
    rows = [row for row in recording.messages.to_pylist() if row["protocol"] == path.parent.name]
    return recording, rows, {row["dst_port" if row["direction"] == "c2s" else "src_port"] for row in rows}


@pytest.mark.parametrize("path", one_in(2, SAMPLES), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_messages_of_samples_are_those_of_the_tables(lua: Path, path: Path) -> None:
    """But for what the file names as not expressible.

    Left out are packets with compressed bodies, with operations that the version of the connection does not have, of
    connections whose version is not told, and those where undecoded bytes begin; a text ends at a NUL.
    """
    protocol = path.parent.name
    recording, rows, ports = opened(path)
    fields = mqpcap.read(path, table=protocol).to_pylist()
    left_out = {row["first_packet"] for row in recording.problems.to_pylist() if row["kind"] == "undecoded"}
    for row, of_protocol in zip(rows, fields, strict=True):
        is_packed = protocol == "flymq" and (of_protocol["flags"] or 0) & 2
        if is_packed or row["flaw"] == "unknown" or (protocol == "mqtt" and row["dialect"] == "unknown"):
            left_out.add(row["last_packet"])
    expected: dict[int, list[list[str]]] = defaultdict(lambda: [[] for _ in EXPRESSIBLE[protocol]])
    for row, of_protocol in zip(rows, fields, strict=True):
        if row["flaw"] != "truncated":
            body = None if row["body_len"] is None else str(row["body_len"])
            topic = of_protocol["topic"] if protocol == "mqtt" else row["destination"]
            values = row["op"], body, (topic or "").partition("\0")[0], row["correlation_id"]
            for column, value in zip(expected[row["last_packet"]], values, strict=False):
                column += [value] if value else []

    found = dissected(lua, path, protocol, ports, EXPRESSIBLE[protocol])

    wanted = {k: tuple(map(sorted, values)) for k, values in expected.items() if values[0] and k not in left_out}
    assert wanted
    assert {number: values for number, values in found.items() if number not in left_out} == wanted


def test_a_topic_alias_stands_for_the_topic_of_its_side(lua: Path) -> None:
    """As in the tables, whose topics a client's log has."""
    path = PCAPS / "mqtt" / "js_v5.pcap"
    _, rows, ports = opened(path)
    expected: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        expected[row["last_packet"]] += [row["destination"]] if row["op"] == "PUBLISH" else []

    found = dissected(lua, path, "mqtt", ports, ("mqpcap.op", "mqpcap.destination", "mqpcap_mqtt.topic"))

    assert {number: values[1] for number, values in found.items() if values[1]} == {
        number: sorted(topics) for number, topics in expected.items() if topics
    }
    assert sum(len(values[2]) for values in found.values()) < sum(map(len, expected.values()))


def test_numbers_of_a_column_have_their_field_whatever_their_size(lua: Path) -> None:
    """Packet 30 of js_v5: 23 0004 and 23 0001 are topic aliases of two bytes, beside properties of one."""
    path = PCAPS / "mqtt" / "js_v5.pcap"
    _, _, ports = opened(path)
    found = dissected(lua, path, "mqtt", ports, ("mqpcap.op", "mqpcap_mqtt.property_part.property_items.short"))

    rows = {x["stream_offset"]: x for x in mqpcap.read(path, table="mqtt").to_pylist() if x["direction"] == "c2s"}
    aliases = [
        p["value"]
        for row in mqpcap.open(path).messages.to_pylist()
        if row["last_packet"] == 30
        for p in rows[row["stream_offset"]]["properties"]
        if p["name"] == "topic_alias"
    ]
    assert "4" in aliases
    assert found[30][1] == sorted(aliases)


LINKED = [path for path in SAMPLES if path.parent.name != "blipmq"]


@pytest.mark.parametrize("path", one_in(3, LINKED), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_requests_and_replies_are_linked_as_the_tables_pair_them(lua: Path, path: Path) -> None:
    """These samples miss nothing, so that all pairs are certain."""
    recording, rows, ports = opened(path)
    last = {(row["connection_id"], row["direction"], row["stream_offset"]): row["last_packet"] for row in rows}
    expected = Counter[tuple[int, int]]()
    for row in recording.exchanges.to_pylist():
        asked, answered = ("c2s", "s2c") if row["request_direction"] == "c2s" else ("s2c", "c2s")
        if row["request_packet"] and row["reply_packet"] and row["protocol"] == path.parent.name:
            request = last[row["connection_id"], asked, row["request_offset"]]
            expected[request, last[row["connection_id"], answered, row["reply_offset"]]] += 1
            assert row["state"] == "answered"

    fields = "tcp.stream", "mqpcap.response_to", "mqpcap.response_in", "mqpcap.response_time"
    found = dissected(lua, path, path.parent.name, ports, fields, "-2")

    assert Counter((int(to), number) for number, values in found.items() for to in values[1]) == expected
    assert Counter((number, int(x)) for number, values in found.items() for x in values[2]) == expected
    assert all(float(x) >= 0 for values in found.values() for x in values[3])


@pytest.mark.parametrize(("path", "of_wireshark"), [("flymq/core.pcap", "kafka"), ("mqtt/v5_paho.pcap", "mqtt")])
def test_other_ports_are_recognised_by_the_first_message(
    lua: Path, path: str, of_wireshark: str, tmp_path: Path
) -> None:
    """Ours are registered at no port, and Wireshark's own dissector of the port is off.

    BlipMQ stays unknown: its messages have no fixed bytes.
    """
    elsewhere = tmp_path / FILE_NAME
    elsewhere.write_text(re.sub(r"ports = \{ [\d, ]+ \}", "ports = { }", lua.read_text("utf-8")), "utf-8")
    capture = PCAPS / path
    fields = EXPRESSIBLE[capture.parent.name]

    found = dissected(elsewhere, capture, capture.parent.name, set(), fields, "--disable-protocol", of_wireshark)

    assert found == dissected(lua, capture, capture.parent.name, opened(capture)[2], fields)
    assert not dissected(elsewhere, PCAPS / "blipmq" / "qos1.pcap", "blipmq", set(), EXPRESSIBLE["blipmq"])


def test_what_cannot_be_expressed_is_refused_with_the_reason() -> None:
    with pytest.raises(NotExpressible, match=r"kokaq has no dissector: .* a splitter finds it"):
        wireshark("kokaq")
    with pytest.raises(NotExpressible, match="fq has no dissector: the form of its messages depends on earlier"):
        wireshark("fq")
    with pytest.raises(ValueError, match="'nats' is no protocol; there are blipmq"):
        wireshark("nats")

    everything = wireshark()
    assert "-- kokaq has no dissector" in everything
    assert "blipmq: not expressible here" in everything


def test_installed_file_replaces_only_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    path = tmp_path / ".local" / "lib" / "wireshark" / "plugins" / FILE_NAME

    assert wireshark("BlipMQ", install=True) == str(path)
    assert wireshark("flymq", install=True) == str(path)
    assert 'name = "flymq"' in path.read_text("utf-8")

    path.write_text("-- mine")
    with pytest.raises(OutputError, match="is not a file of mqpcap"):
        wireshark("blipmq", install=True)
