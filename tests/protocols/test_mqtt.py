"""MQTT: bytes typed from the standard, the recognition, and every packet that clients logged, in order."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from degraded_captures import packets, pairs, write
from reading import observe, row
from torture import ACK, FIN, SYN, Segment, pcap

import mqpcap
from mqpcap.capture import windows
from mqpcap.cli import main
from mqpcap.decode import columns
from mqpcap.decode.remembered import MAX_REMEMBERED, MAX_REMEMBERED_CHARS
from mqpcap.protocols.mqtt import (
    PROTOCOL,
    Mqtt,
    Mqtt5Ack,
    Mqtt5Publish,
    MqttConnect,
    MqttPublish,
    MqttSubscribe,
    claims,
    resolve,
    select_layout,
)
from mqpcap.schema.flaws import Flaw
from mqpcap.schema.protocol import Evidence, Opening, Verdict

ROOT = Path(__file__).resolve().parents[2]
TRUTH = ROOT / "tests" / "truth" / "mqtt"
NAMES = sorted(path.name.removesuffix(".truth.json") for path in TRUTH.glob("*.truth.json"))
REFUSED = {("CONNECT", 4, 0x03), ("CONNECT", 5, 0x02), ("PUBLISH", None, None)}
"""What the broker refused in refusals_keepalive: a reserved flag, a property that there is not, and QoS 3."""


def read(layout: str, raw: str) -> tuple[dict[str, Any], Flaw]:
    columns, flaw, _ = row(PROTOCOL, layout, bytes.fromhex(raw))
    columns.pop("resolved_topic", None)  # the envelope's
    return columns, flaw


# 3.1.1 has them as figures: 3.6 (CONNECT), 3.11 (PUBLISH a/b), 3.23 (SUBSCRIBE).
@pytest.mark.parametrize(
    ("layout", "raw", "columns"),
    [
        (
            "c2s_3", "10 1a 0004 4d515454 04 ce 000a 0000 0001 77 0002 6f66 0001 75 0001 70",
            {"protocol_level": 4, "bridge": 0, "connect_flags": 0xCE, "clean_start": 1, "will_qos": 1,
             "will_retain": 0, "keep_alive": 10, "client_id": "", "will_topic": "w", "will_body": b"of",
             "username": "u", "password": b"p"},
        ),
        (
            "c2s_3", "10 11 0006 4d5149736470 83 02 003c 0003 6d6964",
            {"protocol_level": 3, "bridge": 1, "connect_flags": 2, "clean_start": 1, "will_qos": 0, "will_retain": 0,
             "keep_alive": 60, "client_id": "mid"},
        ),
        ("s2c_3", "20 02 01 00", {"session_present": 1, "reason_code": 0}),
        ("s2c_5", "20 02 00 84", {"session_present": 0, "reason_code": 0x84}),
        (
            "c2s_3", "32 07 0003 612f62 000a",
            {"dup": 0, "qos": 1, "retain": 0, "topic": "a/b", "packet_id": 10, "body": b""},
        ),
        (
            "c2s_5", "3b 0d 0003 612f62 000a 03 23 0001 7879",
            {"dup": 1, "qos": 1, "retain": 1, "topic": "a/b", "packet_id": 10, "body": b"xy",
             "properties": [{"id": 35, "name": "topic_alias", "value": "1"}]},
        ),
        (
            "c2s_3", "82 0e 000a 0003 612f62 01 0003 632f64 02",
            {"packet_id": 10, "subscriptions": [{"filter": "a/b", "qos": 1}, {"filter": "c/d", "qos": 2}],
             "first_filter": "a/b"},
        ),
        (
            "c2s_5", "82 0a 000a 02 0b 07 0002 612f 2e",
            {"packet_id": 10, "subscriptions": [{"filter": "a/", "qos": 2}], "first_filter": "a/",
             "properties": [{"id": 11, "name": "subscription_identifier", "value": "7"}], "subscription_identifier": 7},
        ),
        ("s2c_3", "90 04 000a 00 80", {"packet_id": 10, "reason_codes": [0, 0x80]}),
        ("c2s_3", "a2 07 000a 0003 612f62", {"packet_id": 10, "filters": ["a/b"], "first_filter": "a/b"}),
        ("c2s_3", "62 02 0007", {"packet_id": 7}),
        ("c2s_5", "40 02 0007", {"packet_id": 7}),
        ("c2s_5", "40 03 0007 10", {"packet_id": 7, "reason_code": 16}),
        ("c2s_5", "40 04 0007 10 00", {"packet_id": 7, "reason_code": 16, "properties": []}),
        ("c2s_5", "e0 00", {}),
        ("s2c_5", "e0 01 8e", {"reason_code": 0x8E}),
        ("c2s_3", "c0 00", {}),
        (
            "s2c_5", "f0 13 18 11 15 0003 616263 16 0002 ffff 26 0001 6b 0000",
            {"reason_code": 0x18, "properties": [
                {"id": 21, "name": "authentication_method", "value": "abc"},
                {"id": 22, "name": "authentication_data", "value": "***"},
                {"id": 38, "name": "user_property", "value": "k="},
            ]},
        ),
    ],
)  # fmt: skip
def test_packets_of_the_standard(layout: str, raw: str, columns: dict[str, Any]) -> None:
    assert read(layout, raw) == (columns, Flaw.NONE)


@pytest.mark.parametrize(
    ("layout", "raw"),
    [
        ("c2s_3", "36 07 0003 612f62 000a"),  # QoS 3 (3.3.1.2)
        ("c2s_3", "30 04 0002 ffff"),  # a topic that is no UTF-8 (1.5.4)
        ("c2s_3", "40 01 00"),  # an id of one byte
        ("c2s_3", "40 03 0007 10"),  # 3.1.1 has no reason
        ("c2s_3", "80 0b 000a 0003 612f62 01 0001 61 00"),  # flags of SUBSCRIBE (3.8.1)
        ("c2s_3", "82 02 000a"),  # no filter (3.8.3)
        ("c2s_5", "e0 04 00 02 07 00"),  # there is no property 7
        ("c2s_5", "e0 03 00 05 1f"),  # a property length that overruns
        ("c2s_3", "10 0e 0004 4d515454 04 03 000a 0002 6161"),  # the reserved flag (3.1.2.3)
        ("c2s_3", "10 0d 0004 4d515453 04 02 000a 0001 61"),  # MQTS
    ],
)
def test_packets_that_the_standard_refuses(layout: str, raw: str) -> None:
    assert read(layout, raw)[1] is Flaw.MALFORMED


def test_scapy_builds_what_the_standard_says() -> None:
    publish = Mqtt(qos=1) / MqttPublish(topic="a/b", packet_id=10)
    aliased = Mqtt(qos=1) / Mqtt5Publish(
        topic="a/b", packet_id=10, property_part={"property_items": [{"id": 35, "two_bytes": 1}]}, body="xy"
    )
    will = Mqtt() / MqttConnect(keep_alive=10, will_topic="w", will_body="of")
    subscribe = Mqtt() / MqttSubscribe(packet_id=10, subscriptions=[{"filter": "a/b", "options": 1}])

    assert bytes(Mqtt(packet_type=4) / Mqtt5Ack(packet_id=7)) == bytes.fromhex("40 02 0007")
    assert bytes(publish).hex(" ") == "32 07 00 03 61 2f 62 00 0a"
    assert bytes(aliased) == bytes.fromhex("32 0d 0003 612f62 000a 03 23 0001 7879")
    assert bytes(will) == bytes.fromhex("10 13 0004 4d515454 04 04 000a 0000 0001 77 0002 6f66")
    assert bytes(subscribe) == bytes.fromhex("82 08 000a 0003 612f62 01")


GOOD = bytes.fromhex("30 06 0001 74 00 6f6b")  # PUBLISH t, no properties, ok


@pytest.mark.parametrize(
    ("raw", "flaw"),
    [
        ("30 06 0001 74 02 07 00", "malformed"),  # there is no property 7
        ("30 05 0001 74 05 01", "malformed"),  # five bytes of properties, one is left
        ("36 06 0001 74 0001 00", "malformed"),  # QoS 3
        ("30 04 0001 ff 00", "malformed"),  # a topic that is no UTF-8
        ("30 06 0000 03 23 0009", None),  # an alias that was never bound: no topic
        ("00 00", "unknown"),  # there is no type 0
        ("40 01 00", "malformed"),  # an id of one byte
        ("30 ff ff ff ff 7f", "undecoded"),  # a remaining length of five bytes
    ],
)
def test_after_a_bad_packet_the_others_go_on(raw: str, flaw: str | None, tmp_path: Path) -> None:
    segments, start = [Segment(b"", 99, 0, SYN)], 100
    for packet in (CONNECT, bytes.fromhex(raw), GOOD, GOOD):
        segments.append(Segment(packet, start))
        start += len(packet)
    path = tmp_path / "bad.pcap"
    path.write_bytes(pcap(segments, 1883))

    recording = mqpcap.open(path)
    rows = recording["messages"].sort_by("stream_offset").to_pylist()
    problems = [(x["kind"], x["length"]) for x in recording["problems"].to_pylist()]
    bad = len(bytes.fromhex(raw))
    assert [(x["destination"], x["body_len"], x["flaw"]) for x in rows[-2:]] == [("t", 2, None)] * 2
    assert [(x["flaw"], x["destination"], x["frame_len"]) for x in rows[1:-2]] == (
        [] if flaw == "undecoded" else [(flaw, None, bad)]
    )
    assert problems == ([("undecoded", bad)] if flaw == "undecoded" else [])


# -- which version ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "raw", "dialect"),
    [
        ("c2s", "10 0d 0004 4d515454 04 02 000a 0001 61", "3.1.1"),
        ("c2s", "10 0e 0004 4d515454 05 02 000a 00 0001 61", "5.0"),
        ("c2s", "10 0f 0006 4d5149736470 03 02 000a 0001 61", "3.1"),
        ("s2c", "20 03 00 00 00", "5.0"),  # longer than two bytes
        ("c2s", "40 03 0007 10", "5.0"),
        ("s2c", "90 04 0007 00 02", "unknown"),  # QoS 0 and 2 granted, or no properties and QoS 2
        ("s2c", "90 08 0007 04 1f 0001 61 02", "5.0"),
        ("s2c", "90 03 0007 02", "3.1.1"),
        ("c2s", "82 08 0007 00 0002 612f 01", "5.0"),
        ("c2s", "82 07 0007 0002 612f 01", "3.1.1"),
        ("c2s", "30 08 0003 612f62 00 7879", "unknown"),  # a body that begins with a zero, or no properties
        ("c2s", "30 07 0003 612f62 7879", "3.1.1"),  # no 120 bytes of properties follow
        ("c2s", "c0 00", "unknown"),
    ],
)
def test_the_first_packet_that_only_one_version_allows_decides(direction: str, raw: str, dialect: str) -> None:
    connection = Evidence(1, "", 1883, 0, layouts=["c2s", "s2c"])
    data = bytes.fromhex(raw)

    observe(PROTOCOL, connection, direction, direction, data, data[0] >> 4)

    assert resolve(connection).dialect == dialect
    suffix = {"unknown": "", "5.0": "_5"}.get(dialect, "_3")
    assert select_layout(connection, direction) == f"{direction}{suffix}"


def test_a_client_without_a_name_gets_the_name_that_the_server_assigns() -> None:
    connection = Evidence(1, "", 1883, 0, layouts=["c2s", "s2c"])

    observe(PROTOCOL, connection, "c2s", "c2s", bytes.fromhex("10 0d 0004 4d515454 05 02 000a 00 0000"), 1)
    waits = not connection.is_final
    observe(PROTOCOL, connection, "s2c", "s2c", bytes.fromhex("20 08 00 00 05 12 0002 4142"), 2)

    assert waits and connection.is_final
    assert resolve(connection).client_name == "AB"


# -- recognition ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "verdict"),
    [
        ("10 0d 0004 4d515454 04", Verdict.YES),
        ("10 8d01 0006 4d5149736470 03", Verdict.YES),
        ("10", Verdict.WAIT),
        ("10 0d 0004 4d51", Verdict.WAIT),
        ("10 0d 0004 4d515453", Verdict.NO),
        ("af 01 03 00 00000000", Verdict.NO),
    ],
)
def test_a_connect_decides(raw: str, verdict: Verdict) -> None:
    opening = Opening(bytes.fromhex(raw), b"", True, True, False, False, False, False, lambda *_: None)

    assert claims(opening).verdict is verdict


# -- captures ---------------------------------------------------------------------------------------------


@cache
def captured(name: str) -> tuple[dict[tuple[int, str], list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows of each client port and direction in stream order, and all rows of messages."""
    recording = mqpcap.open(ROOT / "pcaps" / "mqtt" / f"{name}.pcap")
    port = {x["connection_id"]: x["client_port"] for x in recording["connections"].to_pylist()}
    key = lambda x: (x["connection_id"], x["direction"], x["stream_offset"])  # noqa: E731
    messages = sorted(recording["messages"].to_pylist(), key=key)
    fields = {key(x): x for x in recording["mqtt"].to_pylist()} if messages else {}
    rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for message in messages:
        rows.setdefault((port[message["connection_id"]], message["direction"]), []).append(
            fields[key(message)] | message
        )
    return rows, messages


def expected(event: dict[str, Any]) -> dict[str, Any]:
    """What a packet's row must say, by what the client's parser said of it."""
    said = {k: event[k] for k in SAME if k in event} | {"op": event["name"], "frame_len": event["bytes"]}
    if said.get("reason_codes") == []:
        said["reason_codes"] = None  # an UNSUBACK of 3.1.1 has none
    said |= {k: int(event[k]) for k in ("dup", "retain", "will_retain") if k in event}
    if "protocol_level" in event:
        said |= {"protocol_level": event["protocol_level"] & 0x7F, "bridge": event["protocol_level"] >> 7}
    if "subscriptions" in event:
        said["subscriptions"] = [{"filter": topic, "qos": options & 3} for topic, options in event["subscriptions"]]
    if "properties" in event:
        said["properties"] = [{"id": n, "name": name, "value": text(x)} for n, name, x in event["properties"]]
    for name in ("body", "will_body"):
        if name in event:
            said[name] = event[name]["len"], event[name]["sha256"]
    return said


SAME = ("packet_id", "qos", "topic", "client_id", "username", "keep_alive", "will_topic", "will_qos", "reason_code",
        "reason_codes", "filters", "session_present")  # fmt: skip


def text(value: object) -> object:
    return "=".join(value) if isinstance(value, list) else None if isinstance(value, dict) else str(value)


def said(fields: dict[str, Any], names: Iterator[str]) -> dict[str, Any]:
    """The same of a row; binary properties are in the truth by their hash alone."""
    found = {name: fields[name] for name in names}
    for name in {"body", "will_body"} & found.keys():
        found[name] = len(found[name]), hashlib.sha256(found[name]).hexdigest()
    if found.get("properties") is not None:
        found["properties"] = [x | {"value": None} if x["id"] in (9, 22) else x for x in found["properties"]]
    return found


@pytest.mark.parametrize("name", [x for x in NAMES if not x.startswith("js")])
def test_every_packet_that_the_clients_logged_is_a_row_in_order(name: str) -> None:
    rows, _ = captured(name)
    truth = json.loads((TRUTH / f"{name}.truth.json").read_text())

    for connection in truth["connections"]:
        for direction in ("c2s", "s2c"):
            events = [e for e in connection["events"] if e["dir"] == direction and "name" in e]
            found = rows.get((connection["client_port"], direction), [])
            assert [e["name"] for e in events] == [x["op"] for x in found if x["flaw"] != "truncated"][: len(events)]
            for event, fields in zip(events, found, strict=False):
                if fields["flaw"] is None:
                    assert said(fields, iter(expected(event))) == expected(event)
                else:
                    refused = fields["op"], event.get("protocol_level"), event.get("connect_flags")
                    assert name == "refusals_keepalive" and refused in REFUSED


@pytest.mark.parametrize("name", [x for x in NAMES if x.startswith("js")])
def test_every_packet_of_mqtt_js_is_a_row(name: str) -> None:
    """Its log has no CONNECT."""
    rows, _ = captured(name)
    events = json.loads((TRUTH / f"{name}.truth.json").read_text())["events"]
    logged = [
        (e["dir"], e["packet"]["cmd"].upper(), e["packet"].get("messageId") or None) for e in events if "packet" in e
    ]
    found = [(d, x["op"], x["packet_id"]) for (_, d), of_side in rows.items() for x in of_side if x["op"] != "CONNECT"]

    assert sorted(map(str, logged)) == sorted(map(str, found))


@pytest.mark.parametrize(
    ("name", "dialects"),
    [("v31_paho", {"3.1"}), ("js_ping", {"3.1.1"}), ("v5_paho", {"5.0"}), ("bridge_v311", {"3.1.1", "5.0"})],
)
def test_the_dialect_is_the_version_of_the_connect(name: str, dialects: set[str]) -> None:
    assert {x["dialect"] for x in captured(name)[1]} == dialects


# -- exchanges --------------------------------------------------------------------------------------------

ANSWERS = {"PUBLISH": ("PUBACK", "PUBREC"), "PUBREL": ("PUBCOMP",), "SUBSCRIBE": ("SUBACK",),
           "UNSUBSCRIBE": ("UNSUBACK",)}  # fmt: skip


def logged_pairs(events: list[dict[str, Any]]) -> dict[tuple[str, int], int | None]:
    """By side and index of a request the index of its reply on the other side: the next one with its id."""
    counts = {"c2s": 0, "s2c": 0}
    waiting: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
    pairs: dict[tuple[str, int], int | None] = {}
    for event in events:
        side, name, packet_id = event["dir"], event["name"], event.get("packet_id")
        index, counts[side] = counts[side], counts[side] + 1
        if name in ANSWERS and packet_id is not None:
            waiting.setdefault((side, name, packet_id), []).append((side, index))
            pairs[side, index] = None
        for asked in (request for request, replies in ANSWERS.items() if name in replies):
            requests = waiting.get(("s2c" if side == "c2s" else "c2s", asked, packet_id or 0))
            if requests:
                pairs[requests.pop(0)] = index
    return pairs


@pytest.mark.parametrize("name", [x for x in NAMES if not x.startswith(("js", "refusals"))])
def test_exchanges_of_both_sides_are_those_that_the_clients_saw(name: str) -> None:
    """Both sides use the same ids at once."""
    rows, _ = captured(name)
    recording = mqpcap.open(ROOT / "pcaps" / "mqtt" / f"{name}.pcap")
    exchanges = {
        (x["connection_id"], x["request_direction"], x["request_offset"]): x["reply_offset"]
        for x in recording["exchanges"].to_pylist()
    }
    pair_count = 0

    for connection in json.loads((TRUTH / f"{name}.truth.json").read_text())["connections"]:
        sides = {d: rows.get((connection["client_port"], d), []) for d in ("c2s", "s2c")}
        events = [e for e in connection["events"] if "name" in e]
        for (side, index), reply in logged_pairs(events).items():
            request = sides[side][index]
            found = exchanges[request["connection_id"], side, request["stream_offset"]]
            other = sides["s2c" if side == "c2s" else "c2s"]
            assert found == (None if reply is None else other[reply]["stream_offset"])
            pair_count += reply is not None
    assert pair_count


@pytest.mark.parametrize(
    ("lost", "there", "unpaired"),
    [
        ({25, 27}, {(18, 23), (30, 31), (38, 39)}, {24, 29}),  # a PUBCOMP answers no PUBLISH
        ({24}, {(27, 29), (30, 31), (38, 39)}, {25}),
    ],
)
def test_pairs_are_certain_where_packets_are_missing(
    lost: set[int], there: set[tuple[int, int]], unpaired: set[int], tmp_path: Path
) -> None:
    """An id is used again only once it was answered (2.2.1)."""
    whole = (ROOT / "pcaps" / "mqtt" / "js_v5.pcap").read_bytes()
    kept = [packet for packet in packets(whole) if packet.number not in lost]
    write(tmp_path / "lossy.pcap", whole[:24], kept)
    found = list(pairs(tmp_path / "lossy.pcap"))
    numbers = {tuple(kept[m["first_packet"] - 1].number for m in row["messages"]) for row in found}

    assert {row["state"] for row in found} == {"answered"}
    assert there <= numbers
    assert not unpaired & {number for pair in numbers for number in pair}


CONNECT4, CONNACK = bytes.fromhex("10 0d 0004 4d515454 04 02 000a 0001 61"), bytes.fromhex("20 02 0000")


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        ("P1 D1 a1", {"P1": "a1", "D1": "not_expected"}),
        ("P1 D1 a1 a1", {"P1": "a1", "D1": "a1"}),
        ("P1 P2 a2 D1 a1", {"P1": "a1", "P2": "a2", "D1": "not_expected"}),
        ("P1 D1 a1 P1 a1", {"P1": "a1", "D1": "not_expected"}),  # the id is used again once it was answered
        ("Q1 E1 r1 r1 L1 c1", {"Q1": "r1", "E1": "r1", "L1": "c1"}),
        ("Q1 r1 E1 r1 L1 c1", {"Q1": "r1", "E1": "r1", "L1": "c1"}),
        ("Q1 r1 L1 L1 c1", {"Q1": "r1", "L1": "c1 not_expected"}),
        ("P1 D1", {"P1": "unanswered", "D1": "not_expected"}),
        ("D1 a1", {"D1": "a1"}),  # the first was sent on an earlier connection
        ("D1", {"D1": "unanswered"}),
    ],
)
@pytest.mark.parametrize("side", ["c2s", "s2c"])
def test_a_packet_id_that_waits_is_the_same_request_again(
    steps: str, states: dict[str, str], side: str, tmp_path: Path
) -> None:
    """A PUBLISH (P, Q: QoS 1, 2; D, E: with DUP) or PUBREL (L) is answered by a PUBACK (a), PUBREC (r), PUBCOMP (c)."""
    first = {"P": 0x32, "D": 0x3A, "Q": 0x34, "E": 0x3C, "L": 0x62, "a": 0x40, "r": 0x50, "c": 0x70}
    sent = [("c2s", CONNECT4), ("s2c", CONNACK)]
    for kind, number in map(tuple, steps.split()):
        body = bytes([0, 1, 97, 0, int(number)]) if kind in "PDQE" else bytes([0, int(number)])
        asks = kind.isupper()
        sent.append((side if asks else {"c2s": "s2c", "s2c": "c2s"}[side], bytes([first[kind], len(body)]) + body))
    seq = {"c2s": 100, "s2c": 500}
    segments = [Segment(b"", 99, 0, SYN), Segment(b"", 499, 100, SYN | ACK, from_server=True)]
    for direction, data in [*sent, ("c2s", b""), ("s2c", b"")]:
        ack = seq["s2c" if direction == "c2s" else "c2s"]
        flags = ACK if data else FIN | ACK
        segments.append(Segment(data, seq[direction], ack, flags, direction == "s2c"))
        seq[direction] += len(data) or 1
    path = tmp_path / "again.pcap"
    path.write_bytes(pcap(segments, 1883))

    words = dict(enumerate(steps.split(), 5))  # the handshake, CONNECT and CONNACK are packets 1 to 4
    found: dict[str, list[str]] = {}
    for pair in mqpcap.open(path)["exchanges"].sort_by("request_packet").to_pylist():
        if pair["op"] != "CONNECT":
            assert pair["state"] != "answered" or pair["how"] == "echo"
            said = words[pair["reply_packet"]] if pair["reply_packet"] else pair["state"]
            found.setdefault(words[pair["request_packet"]], []).append(said)
    assert {name: " ".join(dict.fromkeys(said)) for name, said in found.items()} == states


def test_what_a_broker_never_answers_is_unanswered_and_no_flaw() -> None:
    """FlyMQ answers neither a PUBLISH nor an UNSUBSCRIBE."""
    recording = mqpcap.open(ROOT / "pcaps" / "mqtt" / "flymq_mqtt_bridge.pcap")
    states = {x["op"]: set() for x in recording["exchanges"].to_pylist()}  # type: dict[str, set[str]]
    for x in recording["exchanges"].to_pylist():
        states[x["op"]].add(x["state"])

    assert states["UNSUBSCRIBE"] == {"unanswered"}
    assert states["PUBLISH"] == {"unanswered", "not_expected"}
    assert {x["flaw"] for x in recording["messages"].to_pylist()} == {None}


def test_the_pairing_of_both_sides_is_shown_with_their_packets() -> None:
    result = CliRunner().invoke(main, ["explain", str(ROOT / "pcaps/mqtt/v31_paho.pcap"), "--pairing", "c2"])

    of_server = re.split(r"group \d of \d: .*\n", result.stdout)[-1]
    assert result.exit_code == 0
    assert "requests of the server" in result.stdout
    assert re.search(r"=> #\d+ (PUBACK|PUBREC|PUBCOMP)( \S+)* answers #\d+ (PUBLISH|PUBREL)", of_server)
    assert not re.search("a (request|reply) at", result.stdout)


def test_the_pairing_of_a_packet_is_that_of_all_its_messages() -> None:
    """The packet holds a PUBLISH of QoS 0, which takes no part in pairing, and one of QoS 1."""
    command = ["explain", str(ROOT / "pcaps/mqtt/js_v5.pcap"), "--pairing", "c2", "--at", "30"]
    result = CliRunner().invoke(main, command)

    assert "=> #31 PUBACK answers #30 PUBLISH j/t0: certain (echo)\n" in result.stdout


# -- deliveries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v31_paho", "v5_paho", "v5_properties", "v311_offline_dup", "amqtt_both"])
def test_deliveries_are_those_that_the_clients_saw(name: str) -> None:
    """A delivery is of the only publish before it with its topic and body; with none or several it has no row."""
    rows, _ = captured(name)
    recording = mqpcap.open(ROOT / "pcaps" / "mqtt" / f"{name}.pcap")
    key = lambda x: (x["connection_id"], x["stream_offset"])  # noqa: E731
    published: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
    for (_, direction), found in rows.items():
        for fields in found:
            if direction == "c2s" and fields["op"] == "PUBLISH" and fields["destination"] and not fields["dup"]:
                published.setdefault((fields["destination"], fields["body"]), []).append(fields)
    expected_pairs = {
        key(fields): key(published[fields["destination"], fields["body"]][0])
        for (_, direction), found in rows.items()
        for fields in found
        if direction == "s2c" and fields["op"] == "PUBLISH" and fields["destination"]
        and len(published.get((fields["destination"], fields["body"]), ())) == 1
    }  # fmt: skip

    pairs = {
        (x["deliver_connection_id"], x["deliver_offset"]): (x["publish_connection_id"], x["publish_offset"])
        for x in recording["deliveries"].to_pylist()
    }

    assert len(pairs) > 5
    assert pairs == expected_pairs


@pytest.mark.parametrize(("name", "count"), [("v311_offline_dup", 16), ("v5_properties", 0)])
def test_what_a_client_was_sent_before_is_delivered_again(name: str, count: int) -> None:
    """The client's log has it with DUP, on later connections. Deliveries of overlapping subscriptions are the first."""
    truth = json.loads((TRUTH / f"{name}.truth.json").read_text())
    events = [e for x in truth["connections"] for e in x["events"] if e["dir"] == "s2c" and e.get("dup")]
    path = str(ROOT / "pcaps" / "mqtt" / f"{name}.pcap")

    lines = CliRunner().invoke(main, ["stats", "--deliveries", "--json", path]).stdout.splitlines()
    traced = [x for trace in mqpcap.trace(path, at=23) for x in trace.deliveries] if count else []

    assert len(events) == count
    assert {x["topic"]: x["again"] for x in map(json.loads, lines) if x["again"]} == Counter(e["topic"] for e in events)
    assert sum(bool(x.again) for x in traced) == count  # packet 23 has all publishes


def sent(topic: str, body: str, qos: int = 0, subscription: int = 0, retain: int = 0, packet_id: int = 1) -> bytes:
    """A PUBLISH of 5.0 (3.3)."""
    properties = bytes([2, 11, subscription]) if subscription else b"\0"
    head = len(topic).to_bytes(2, "big") + topic.encode() + (packet_id.to_bytes(2, "big") if qos else b"")
    rest = head + properties + body.encode()
    return bytes([0x30 | qos << 1 | retain, len(rest)]) + rest


@pytest.mark.parametrize(
    ("steps", "pairs"),
    [
        # Two subscriptions of client 1 match (3.3.4): both deliveries are of the publish.
        (["0> t ab", "1< t ab s=1", "1< t ab s=2"], [(0, 1), (0, 2)]),
        # A shared subscription gives each message to one of its clients (4.8.2).
        (["0> t a", "0> t b", "0> t c", "2< t a", "1< t b", "3< t c"], [(0, 3), (1, 4), (2, 5)]),
        # amqtt gives QoS 0 as QoS 1, and the granted QoS may be lower.
        (["0> t a", "1< t a q=1", "0> t b q=2", "2< t b", "3< t b q=1"], [(0, 1), (2, 3), (2, 4)]),
        # The message is kept for who subscribes later, with the flag (3.3.1.3).
        (["0> t a r=1", "1< t a", "2< t a r=1"], [(0, 1), (0, 2)]),
        # A bridge (client 1) gives it on under another topic: a publish of its own.
        (["0> t a", "1< t a", "1> far/t a", "2< far/t a"], [(0, 1), (2, 3)]),
        # The same topic and body twice: which it is of is not known.
        (["0> t a", "0> t a", "1< t a"], []),
        # A packet id is no evidence.
        (["0> t a q=1", "1< t b q=1", "1< u a q=1"], []),
    ],
    ids=["overlapping", "shared", "raised QoS", "retained", "bridge", "equal", "packet id"],
)
def test_deliveries_are_told_by_topic_and_body(steps: list[str], pairs: list[tuple[int, int]], tmp_path: Path) -> None:
    """Clients (0 to 3) send to the server (>) and get from it (<); packets are a millisecond apart."""
    ports = range(40000, 40004)
    segments = [Segment(b"", 99, 0, SYN, client_port=port) for port in ports]
    segments += [Segment(CONNECT, 100, 0, client_port=port) for port in ports]
    places = {(port, False): 100 + len(CONNECT) for port in ports} | {(port, True): 500 for port in ports}
    for step in steps:
        end, topic, body, *flags = step.split()
        side = ports[int(end[0])], end[1] == "<"
        words = {"q": "qos", "s": "subscription", "r": "retain"}
        packet = sent(topic, body, **{words[flag[0]]: int(flag[2:]) for flag in flags})
        segments.append(Segment(packet, places[side], 0, from_server=side[1], client_port=side[0]))
        places[side] += len(packet)
    path = tmp_path / "made.pcap"
    path.write_bytes(pcap(segments, 1883))

    recording = mqpcap.open(path)
    step_of = {
        (x["connection_id"], x["direction"], x["stream_offset"]): x["first_packet"] - 2 * len(ports) - 1
        for x in recording["messages"].to_pylist()
    }
    rows = [
        (
            step_of[x["publish_connection_id"], "c2s", x["publish_offset"]],
            step_of[x["deliver_connection_id"], "s2c", x["deliver_offset"]],
            x["latency_ns"],
        )
        for x in recording["deliveries"].to_pylist()
    ]
    assert sorted(rows) == [(publish, delivery, (delivery - publish) * 1_000_000) for publish, delivery in pairs]


# -- topic aliases ----------------------------------------------------------------------------------------


def publish(topic: str, alias: int, body: bytes = b"x") -> bytes:
    part = {"property_items": [{"id": 35, "two_bytes": alias}]}
    return bytes(Mqtt() / Mqtt5Publish(topic=topic, property_part=part, body=body))


CONNECT = bytes.fromhex("10 0e 0004 4d515454 05 02 000a 00 0001 61")


def destinations(
    tmp_path: Path, packets: list[bytes], missing: int = -1, order: list[int] | None = None
) -> list[str | None]:
    """The destinations of the PUBLISHes of a client; a packet may be missing, or be captured in another order."""
    segments, start = [], 100
    for number, packet in enumerate(packets):
        if number != missing:
            segments.append(Segment(packet, start))
        start += len(packet)
    path = tmp_path / "made.pcap"
    path.write_bytes(pcap([segments[i] for i in order] if order else segments, 1883))
    rows = mqpcap.open(path)["messages"].sort_by("stream_offset").to_pylist()
    return [x["destination"] for x in rows if x["op"] == "PUBLISH"]


def test_an_alias_stands_for_the_last_topic_that_its_side_sent_with_it(tmp_path: Path) -> None:
    packets = [CONNECT, publish("a", 1), publish("", 1), publish("b", 1), publish("", 1), publish("", 2)]

    assert destinations(tmp_path, packets) == ["a", "a", "b", "b", None]


def test_behind_a_gap_no_alias_is_known(tmp_path: Path) -> None:
    packets = [
        CONNECT,
        publish("a", 1),
        publish("b", 1),
        publish("", 1),
        publish("", 1),
        publish("c", 1),
        publish("", 1),
    ]

    assert destinations(tmp_path, packets, missing=2) == ["a", None, None, "c", "c"]


def test_aliases_are_bounded(tmp_path: Path) -> None:
    last, long = MAX_REMEMBERED + 1, "l" * (MAX_REMEMBERED_CHARS + 1)
    many = [publish(f"t{i}", i) for i in range(1, last + 1)]
    packets = [CONNECT, *many, publish("", 1), publish("", 2), publish("", last), publish(long, 7), publish("", 7)]

    assert destinations(tmp_path, packets)[-5:] == [None, "t2", f"t{last}", long, None]


@pytest.mark.parametrize("window_packets", [1, 2, 9])
@pytest.mark.parametrize("order", [[0, 1, 3, 2, 5, 4], [0, 5, 4, 3, 2, 1], [5, 4, 0, 1, 2, 3]])
def test_aliases_are_those_of_the_stream_whatever_the_order_of_capture(
    order: list[int], window_packets: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packets = [CONNECT, publish("a", 1), publish("b", 1), publish("", 1), publish("c", 1), publish("", 1)]
    monkeypatch.setattr(windows, "MAX_WINDOW_PACKETS", window_packets)
    monkeypatch.setattr(columns, "BATCH_ROWS", window_packets)

    assert destinations(tmp_path, packets, order=order) == ["a", "b", "b", "c", "c"]


def test_aliases_of_mqtt_js_are_the_topics_that_it_published() -> None:
    rows, _ = captured("js_v5")
    events = json.loads((TRUTH / "js_v5.truth.json").read_text())["events"]
    logged = [e["packet"] for e in events if e.get("dir") == "c2s" and e["packet"]["cmd"] == "publish"]
    found = [x for (_, d), of_side in rows.items() if d == "c2s" for x in of_side if x["op"] == "PUBLISH"]

    assert {x["destination"] for x in found} == {x["topic"] for x in logged} - {""}
