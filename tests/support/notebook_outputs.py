"""What notebooks print, from what the clients of FlyMQ logged and the packets of the captures."""

import html
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from scapy.layers.inet import TCP
from scapy.utils import rdpcap

ROOT = Path(__file__).resolve().parents[2]
TRUTH = ROOT / "tests" / "truth"


class Frame(NamedTuple):
    """A message of FlyMQ as its client logged it, and where the capture has its bytes."""

    port: int
    direction: str
    op: str | None
    fields: dict[str, Any]
    payload: bytes
    length: int
    ts_us: int
    packet: int

    @property
    def status(self) -> str:
        """As the table of messages has it for a reply."""
        return "error" if self.op == "ERROR" or self.fields.get("success") is False else "ok"


def frames_of(name: str) -> list[list[Frame]]:
    """Requests and replies of each connection of a capture, by the truth file; its packets say when and where."""
    truth = json.loads((TRUTH / "flymq" / f"{name}.truth.json").read_text())
    packets = rdpcap(str(ROOT / "pcaps" / "flymq" / f"{name}.pcap"))
    found = []
    for connection in truth["connections"]:
        port = connection["client_port"]
        for direction in ("c2s", "s2c"):
            sent = [
                (number, p) for number, p in enumerate(packets, 1)
                if len(p[TCP].payload) and port == (p[TCP].sport if direction == "c2s" else p[TCP].dport)
            ]  # fmt: skip
            by_seq = {p[TCP].seq: bytes(p[TCP].payload) for _, p in reversed(sent)}
            base, stream = min(by_seq), b"".join(by_seq[seq] for seq in sorted(by_seq))
            found.append([])
            at = 0
            for event in connection["events"]:
                if event["dir"] != direction:
                    continue
                number, first = next(
                    (n, p) for n, p in sent if p[TCP].seq - base <= at < p[TCP].seq - base + len(p[TCP].payload)
                )
                op = None if event["op"] == "0xEE" else event["op_name"]
                length = 8 + event["payload_len"]
                payload = stream[at + 8 : at + length]
                assert sha256(payload).hexdigest() == event["payload_sha256"]
                us = int(first.time * 1_000_000)
                found[-1].append(Frame(port, direction, op, event.get("fields", {}), payload, length, us, number))
                at += length
    return found


def calls_of(*names: str) -> list[tuple[Frame, Frame]]:
    """Requests with their replies, paired by order, as the truth files ask for."""
    found = [frames_of(name) for name in names]
    return [
        pair
        for x in found
        for asked, said in zip(x[::2], x[1::2], strict=True)
        for pair in zip(asked, said, strict=True)
    ]


def shown(rows: Any, **how: Any) -> str:
    """What a notebook says of a table with these rows."""
    import pandas

    return text_of_html(pandas.DataFrame(rows, **how)._repr_html_())


def text_of_html(source: str) -> str:
    """The words between the tags."""
    return " ".join(html.unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", source, flags=re.DOTALL)).split())
