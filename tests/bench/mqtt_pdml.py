"""Compares the rows of MQTT with what tshark's own dissector says, value by value: ``-T pdml``.

    python tests/bench/mqtt_pdml.py [CAPTURE...]

Without captures: those of ``pcaps/mqtt``. Messages are compared packet by packet, in order; topics with aliases
resolved. Printed are the messages and values that are equal, and each difference with its count and an example.
"""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mqpcap
from mqpcap.protocols.mqtt import NAMES

PCAPS = Path(__file__).resolve().parents[2] / "pcaps" / "mqtt"
NUMBERS = {
    "packet_id": "mqtt.msgid", "keep_alive": "mqtt.kalive", "protocol_level": "mqtt.ver",
    "session_present": "mqtt.conack.flags.sp",
}  # fmt: skip
TEXTS = {"client_id": "mqtt.clientid", "username": "mqtt.username", "will_topic": "mqtt.willtopic"}
Message = dict[str, Any]


def of_tshark(path: Path) -> dict[int, list[Message]]:
    """The messages of each packet, as tshark has them."""
    ports = {str(row["server_port"]) for row in mqpcap.read(path, "connections").to_pylist() if row["protocol"]}
    words = ["tshark", "-r", str(path), "-T", "pdml", "-Y", "mqtt"]
    words += [word for port in ports for word in ("-d", f"tcp.port=={port},mqtt")]
    output = subprocess.run(words, capture_output=True, check=True).stdout
    found: dict[int, list[Message]] = defaultdict(list)
    for packet in ElementTree.fromstring(output).iter("packet"):
        number = next(int(f.get("show", "")) for f in packet.iter("field") if f.get("name") == "frame.number")
        for proto in packet.iter("proto"):
            if proto.get("name") == "mqtt":
                found[number].append(one_of_tshark(proto))
    return found


def one_of_tshark(proto: ElementTree.Element) -> Message:
    """A message by the names of our columns; what is absent is left out."""
    fields: dict[str, list[ElementTree.Element]] = defaultdict(list)
    for field in proto.iter("field"):
        fields[field.get("name", "")].append(field)

    def values(name: str) -> list[str]:
        return [field.get("show", "") for field in fields[name]]

    message: Message = {"op": NAMES.get(int((values("mqtt.msgtype") or ["0"])[0]))}
    message |= {ours: int(values(name)[0], 0) for ours, name in NUMBERS.items() if values(name)}
    message |= {ours: values(name)[0] for ours, name in TEXTS.items() if values(name)}
    if message["op"] == "PUBLISH":
        message |= {
            x: int(values(f"mqtt.{y}")[0], 0) for x, y in (("qos", "qos"), ("dup", "dupflag"), ("retain", "retain"))
        }
        message["topic"] = (values("mqtt.topic") or [None])[0]
        message["body_len"] = sum(int(field.get("size", 0)) for field in fields["mqtt.msg"])
    else:
        message["filters"] = values("mqtt.topic")
    codes = [
        int(x, 0) for name in fields for x in values(name) if name.endswith(("reason_code", "conack.val", "suback.qos"))
    ]
    message["codes"] = codes
    message["properties"] = sorted(int(x, 0) for x in values("mqtt.property_id"))
    return {name: value for name, value in message.items() if value not in (None, [])}


def ours(path: Path) -> dict[int, list[Message]]:
    """The messages by the packet that completes them, from the tables."""
    rows, fields = mqpcap.read(path).to_pylist(), mqpcap.read(path, "mqtt").to_pylist()
    found: dict[int, list[Message]] = defaultdict(list)
    for row, of_mqtt in sorted(
        zip(rows, fields, strict=True), key=lambda x: (x[0]["connection_id"], x[0]["stream_offset"])
    ):
        message: Message = {"op": row["op"]} | {name: of_mqtt[name] for name in (*NUMBERS, *TEXTS)}
        if row["op"] == "PUBLISH":
            message |= {name: of_mqtt[name] for name in ("qos", "dup", "retain")}
            message |= {"topic": row["destination"], "body_len": row["body_len"]}
        else:
            message["filters"] = [x["filter"] for x in of_mqtt["subscriptions"] or ()] or of_mqtt["filters"]
        code = of_mqtt["reason_code"]
        message["codes"] = of_mqtt["reason_codes"] if code is None else [code]
        listed = (of_mqtt["properties"] or []) + (of_mqtt["will_properties"] or [])
        message["properties"] = sorted(x["id"] for x in listed)
        if message["session_present"] is not None:
            message["session_present"] = int(message["session_present"])
        found[row["last_packet"]].append({name: value for name, value in message.items() if value not in (None, [])})
    return found


def differences(path: Path) -> Iterator[tuple[str, str]]:
    """What differs, and an example; an empty text for each value that is equal."""
    theirs, own = of_tshark(path), ours(path)
    for number in sorted({*theirs, *own}):
        a, b = theirs[number], own[number]
        if [x.get("op") for x in a] != [x.get("op") for x in b]:
            yield "messages", f"{path.name} #{number}: tshark {len(a)}, mqpcap {len(b)}"
            continue
        for x, y in zip(a, b, strict=True):
            for name in {*x, *y}:
                same = x.get(name) == y.get(name)
                about = f"{path.name} #{number} {x.get('op')}: tshark {x.get(name)!r}, mqpcap {y.get(name)!r}"
                yield ("", name) if same else (name, about)


def main(paths: list[Path]) -> None:
    """Print the counts."""
    equal, counts, examples = Counter[str](), Counter[str](), dict[str, str]()
    for path in paths:
        for what, about in differences(path):
            if not what:
                equal[about] += 1
                continue
            counts[what] += 1
            examples.setdefault(what, about)
    print(f"{equal['op']:,} messages and {equal.total():,} values are equal")
    for what, count in counts.most_common():
        print(f"{what}: {count:,}, for example {examples[what][:300]}")


if __name__ == "__main__":
    main([Path(x) for x in sys.argv[1:]] or sorted(PCAPS.glob("*.pcap")))
