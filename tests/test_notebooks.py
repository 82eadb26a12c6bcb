"""Every notebook runs from top to bottom, and is kept without outputs."""

import json
import math
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from notebook_outputs import ROOT, TRUTH, Frame, calls_of, shown, text_of_html
from scapy.layers.inet import TCP
from scapy.packet import Packet
from scapy.utils import rdpcap

nbformat = pytest.importorskip("nbformat", reason="nbformat is in the test extra")
pandas = pytest.importorskip("pandas", reason="pandas is in the test extra")
nbclient = pytest.importorskip("nbclient", reason="nbclient is in the test extra")

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def value_of(frame: Frame) -> bytes:
    """What was produced, after the topic, the key and their lengths of two and four bytes."""
    at = 2 + len(frame.fields["topic"].encode()) + 4 + frame.fields["key"]["len"] + 4
    return frame.payload[at : at + frame.fields["value"]["len"]]


def first_look() -> list[str]:
    """The first messages, counts by operation, the flaws (operations that there are none of), the slowest request."""
    calls = calls_of("pipelining")
    frames = sorted((f for pair in calls for f in pair), key=lambda f: (f.ts_us, f.packet))
    head = [
        (pandas.to_datetime(f.ts_us, unit="us", utc=True), f.direction, f.op, f.fields.get("topic"), math.nan,
         f.status if f.direction == "s2c" else None)
        for f in frames[:6]
    ]  # fmt: skip
    sizes = {
        key: [f.length for f in frames if (f.op, f.direction) == key] for key in {(f.op, f.direction) for f in frames}
    }
    most = sorted((key for key in sizes if key[0]), key=lambda key: (-len(sizes[key]), -sum(sizes[key])))[:8]
    index = pandas.MultiIndex.from_tuples(most, names=["op", "direction"])
    produced = [
        ("c2s", f.fields["topic"], value_of(f), f.fields["partition"], None, math.nan)
        for f in frames if (f.op, f.direction) == ("PRODUCE", "c2s")
    ][:4]  # fmt: skip
    asked, said = max(calls, key=lambda pair: pair[1].ts_us - pair[0].ts_us)
    topic = asked.fields["topic"]
    packets = rdpcap(str(ROOT / "pcaps" / "flymq" / "pipelining.pcap"))
    carriers = [packets[number - 1] for number in (asked.packet, said.packet)]
    # The reply's header and its body are segments of their own.
    carriers.append(next(p for p in packets[said.packet :] if p[TCP].dport == asked.port and len(p[TCP].payload)))
    ends = [f"127.0.0.1:{p[TCP].sport} > 127.0.0.1:{p[TCP].dport}  {len(p[TCP].payload)} bytes" for p in carriers]
    late = [f"{float(p.time - carriers[0].time) * 1000:.3f} ms" for p in carriers]
    return [
        shown(head, columns=["ts", "direction", "op", "destination", "body_len", "status"]),
        f"'with care: {sum(f.op is None for f, _ in calls)} messages have a flaw'",
        shown([(len(sizes[x]), sum(sizes[x])) for x in most], columns=["messages", "bytes"], index=index),
        shown(produced, columns=["direction", "topic", "value", "partition", "offset", "timestamp_ms"]),
        shown({"requests": [len(calls)]}, index=pandas.Index(["answered"], name="state")),
        f"127.0.0.1:{asked.port} > 127.0.0.1:9092 FlyMQ {asked.op} {topic} FlyMQ magic {0xAF} version 1"
        f" opcode {asked.op} (4) flags BINARY (1) length {2 + len(topic)} FlyMQ {asked.op} topic_len {len(topic)}"
        f" topic {topic.encode()!r}",
        " ".join(f"{when} {end}" for when, end in zip(late, ends, strict=True)).replace("  ", " "),
    ]


def follow_a_message() -> list[str]:
    """The largest message: its bytes where the payloads of each side hold them, told by sequence numbers alone."""
    path = ROOT / "pcaps" / "msgq" / "split_cpp.pcap"
    streams: dict[tuple[int, int], dict[int, tuple[int, Packet]]] = {}
    for number, packet in enumerate(rdpcap(str(path)), 1):
        if len(packet[TCP].payload):
            streams.setdefault((packet[TCP].sport, packet[TCP].dport), {}).setdefault(packet[TCP].seq, (number, packet))
    truth = json.loads((TRUTH / "msgq" / "split_cpp.truth.json").read_text())["events"]
    event = max(truth, key=lambda x: x.get("length", 0))
    header, text = event["header"], "y" * event["body"]["data"]["len"]
    assert sha256(text.encode()).hexdigest() == event["body"]["data"]["sha256"]
    body, header_len = f'{{"data":"{text}"}}', event["header_length"]
    # A length of four bytes that does not count itself, one of two, the header, the body.
    size, body_len = 4 + event["length"], event["length"] - 2 - header_len
    name = f"BIND 10 msgq send {header['group']} client={header['from']} id={header['seq']} {body_len} B"
    said, times, carried = [], [], []
    for ports, packets in sorted(streams.items(), reverse=True):
        in_order = sorted(packets)
        payload = b"".join(bytes(packets[seq][1][TCP].payload) for seq in in_order)
        begin = payload.find((size - 4).to_bytes(4, "big") + b"\0\x5eSkan")
        if begin < 0:
            continue
        carry = [
            packets[seq] for seq in in_order
            if seq - in_order[0] < begin + size
            and seq - in_order[0] + len(packets[seq][1][TCP].payload) > begin
        ]  # fmt: skip
        carried.append(carry)
        said.append(f"127.0.0.1:{ports[0]} > 127.0.0.1:{ports[1]} {name}")
        times.append(carry[0][1].time)
    counts = [f"in {len(carry)} packets, {size} bytes" for carry in carried]
    took_ms = float((times[1] - times[0]) * 1000)
    tree = json.dumps(header, sort_keys=True, separators=(",", ":"))
    row = header | {"msg": body}
    columns = ["type", "from", "to", "group", "instance", "seq", "msg"]
    clock = [datetime.fromtimestamp(float(x), UTC).strftime("%H:%M:%S.%fZ") for x in times]
    (a, b), (c, d) = (re.findall(r":(\d+)", one)[:2] for one in said)
    line = f"msgq/split {name.removeprefix('BIND 10 msgq ')} [found by search]"
    return [
        f"{said[0]} {counts[0]} {said[1]} {counts[1]} {took_ms:.3f} ms through the broker",
        f"{said[0]} msgq length {size - 4} msgq split header_len {header_len} header magic {int.from_bytes(b'Skan')}"
        f" tree {tree} body {body[:200]}...",
        "in the packets of the publisher: True",
        shown([row[x] for x in columns], index=columns),
        f"{clock[0]} #1 c1 127.0.0.1:{a} -> 127.0.0.1:{b} {line} => unknown"
        f" {clock[1]} #{len(carried[0]) + 1} c2 127.0.0.1:{d} <- 127.0.0.1:{c} {line}",
    ]


# Of FlyMQ's operations those by which a client produces and consumes.
def add_a_protocol() -> list[str]:
    """Kafka's sizes and ids, as the packets have them: one message each, the last byte of the session in one."""
    packets = [p for p in rdpcap(str(ROOT / "pcaps" / "strangers" / "kafka_9092.pcap")) if len(p[TCP].payload)]
    ops = {18: "ApiVersions", 3: "Metadata", 0: "Produce", 1: "Fetch"}
    rows, asked, offsets = [], [], {"c2s": 0, "s2c": 0}
    exchanges = []
    for packet in packets:
        raw = bytes(packet[TCP].payload)
        if packet[TCP].dport == 9092:
            client = raw[14 : 14 + int.from_bytes(raw[12:14])].decode()
            op = ops[int.from_bytes(raw[4:6])]
            rows.append(("c2s", op, client, str(int.from_bytes(raw[8:12])), len(raw) - 14 - len(client), None))
            asked.append((op, client, offsets["c2s"], packet.time))
            offsets["c2s"] += len(raw)
        else:
            op, client, offset, time = asked[int.from_bytes(raw[4:8]) - 1]
            rows.append(("s2c", "Reply", None, str(int.from_bytes(raw[4:8])), len(raw) - 8, None))
            exchanges.append((op, client, offset, offsets["s2c"], int((packet.time - time) * 10**9), "answered"))
            offsets["s2c"] += len(raw)
    return [
        "verdict nothing ours: connections are 1 Kafka connections 1 of other protocols"
        " connection client server speaks as messages errors community id",
        shown(rows, columns=["direction", "op", "client_name", "correlation_id", "body_len", "flaw"]),
        "problems: 0",
        shown(exchanges, columns=["op", "client_name", "request_offset", "reply_offset", "latency_ns", "state"]),
        # A size that does not count itself, key 0, version 1, id 7, a name of two bytes, a body of one.
        "00 00 00 0d 00 00 00 01 00 00 00 07 00 02 6d 65 3f ###[ Kafka request ]### size = 13 api_key = Produce (0)"
        " api_version= 1 correlation_id= 7 ###[ Kafka request body ]### client_id_len= 2 client_id = b'me' body = b'?'",
        " ".join(relay()),
    ]


def relay() -> Iterator[str]:
    """A packet a millisecond from the third on, each with one message; each reply answers the packet before it."""
    items = 'tools id={} 3 B "saw"', f'tools id=300 200 B "{"s" * 48}" and 152 more', "tools id=70000"
    gone = "toys id=1099511627776", 'REFUSED id=1099511627776 error 404 "no such shelf"'
    said = (
        ("PUT " + items[0].format(1), "DONE id=1", ""), ("PUT " + items[1], "DONE id=300", ""),
        ("GET " + items[2], "ITEM " + items[0].format(70000), ""), ("GET " + gone[0], gone[1], " 404"),
    )  # fmt: skip
    for i, (request, reply, error) in enumerate(said):
        ends, at = "c1 127.0.0.1:40000 {} 127.0.0.1:5400 relay/v1", 2 * i + 3
        yield f"22:13:20.00{at - 1}000Z #{at} {ends.format('->')} {request} => #{at + 1}{error} in 1.000 ms"
        yield f"22:13:20.00{at}000Z #{at + 1} {ends.format('<-')} {reply} <= #{at} in 1.000 ms"


TOLD = {
    "first_look": first_look,
    "follow_a_message": follow_a_message,
    "add_a_protocol": add_a_protocol,
}
"""All that each one prints, from what the clients logged and the packets of the captures, or by arithmetic.

``at_scale`` runs in the session of `spark/test_notebook.py`."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in TOLD], ids=lambda path: path.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter of the tests, whose commands are not on the path."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)

    where = {"metadata": {"path": str(FOLDER)}}
    # What a cell prints is one output, however slowly it comes.
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=where, coalesce_streams=True
    )
    client.execute()

    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error"]
    assert any("image/png" in out.get("data", {}) for out in outputs)
    printed = [out for out in outputs if out.get("name") != "stderr" and "image/png" not in out.get("data", {})]
    told = [said for said in map(words, printed) if not said.startswith("Writing ")]
    assert told == TOLD[path.stem]()


def words(out: Any) -> str:
    """What an output says, tables without their tags."""
    found = out.get("data", {})
    if "text/html" in found:
        return text_of_html(found["text/html"])
    return " ".join((out.get("text") or found.get("text/plain", "")).split())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tables_are_shown_as_tables(path: Path) -> None:
    """No wall of dicts: rows are given to pandas, which has HTML for them."""
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert not [source for source in code if source.rstrip().endswith("to_pylist()")]
