"""Every notebook runs from top to bottom, and is kept without outputs."""

import html
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import TCP
from scapy.packet import Packet
from scapy.utils import rdpcap

nbformat = pytest.importorskip("nbformat", reason="nbformat is in the test extra")
nbclient = pytest.importorskip("nbclient", reason="nbclient is in the test extra")

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ROOT = FOLDER.parent
TRUTH = ROOT / "tests" / "truth"


def truth_of(*names: str) -> list[dict[str, Any]]:
    """The messages that clients of FlyMQ logged, as the truth files have them."""
    files = [json.loads((TRUTH / "flymq" / f"{name}.truth.json").read_text()) for name in names]
    return [event for file in files for connection in file["connections"] for event in connection["events"]]


def first_look() -> list[str]:
    """Messages and bytes by operation, the flaws (operations that there are none of), and the answered requests."""
    events = truth_of("pipelining")
    pairs = json.loads((TRUTH / "flymq" / "pipelining.truth.json").read_text())["pairs"]
    count = Counter((event["op_name"], event["dir"]) for event in events)
    sizes: Counter[tuple[str, str]] = Counter()
    for event in events:
        sizes[event["op_name"], event["dir"]] += 8 + event["payload_len"]
    most = sorted(count, key=lambda key: (-count[key], -sizes[key]))[:8]
    unknown = sum(event["op"] == "0xEE" for event in events)
    drawn = [f"{direction} {count[op, direction]} {sizes[op, direction]}" for op, direction in most]
    return [*drawn, f"with care: {unknown} messages have a flaw", f"answered {pairs['request_reply_pairs']}"]


def follow_a_message() -> list[str]:
    """The largest message: its bytes where the payloads of each side hold them, told by sequence numbers alone."""
    path = ROOT / "pcaps" / "msgq" / "split_cpp.pcap"
    streams: dict[tuple[int, int], dict[int, Packet]] = {}
    for packet in rdpcap(str(path)):
        if len(packet[TCP].payload):
            streams.setdefault((packet[TCP].sport, packet[TCP].dport), {}).setdefault(packet[TCP].seq, packet)
    size = 4 + 70110  # the length in front does not count itself
    said, times = [], []
    for ports, packets in streams.items():
        in_order = sorted(packets)
        payload = b"".join(bytes(packets[seq][TCP].payload) for seq in in_order)
        begin = payload.find((size - 4).to_bytes(4, "big") + b"\0\x5eSkan")
        if begin < 0:
            continue
        carry = [
            seq for seq in in_order
            if seq - in_order[0] < begin + size and seq - in_order[0] + len(packets[seq][TCP].payload) > begin
        ]  # fmt: skip
        said.append(f"127.0.0.1:{ports[0]} > 127.0.0.1:{ports[1]} BIND 10 msgq send Config")
        said.append(f"in {len(carry)} packets, {size} bytes")
        times.append(packets[carry[0]].time)
    took_ms = float(abs(times[0] - times[1]) * 1000)
    return [*said, f"{took_ms:.3f} ms through the broker", "in the packets of the publisher: True"]


def at_scale() -> list[str]:
    """Requests by operation, the first seven by name, as the clients logged them: all were answered."""
    events = truth_of("pipelining", "groups", "fetch")
    asked = Counter(x["op_name"] for x in events if x["dir"] == "c2s" and x["op"] != "0xEE")
    return [f"flymq {op} {n} {n} 0 0" for op, n in sorted(asked.items())[:7]]


def add_a_protocol() -> list[str]:
    return ["problems: 0"]


TOLD = {
    "first_look": first_look,
    "follow_a_message": follow_a_message,
    "at_scale": at_scale,
    "add_a_protocol": add_a_protocol,
}
"""What each one says, from what the clients logged or by arithmetic."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter of the tests, whose commands come first on the path."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)

    where = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()

    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in shown if out.output_type == "error"]
    assert any("image/png" in out.get("data", {}) for out in shown)
    told = " ".join(words(out) for out in shown)
    for said in TOLD[path.stem]():
        assert said in told


def words(out: Any) -> str:
    """What an output says, tables without their tags."""
    found = out.get("data", {})
    text = (
        re.sub(r"<style.*?</style>|<[^>]*>", " ", found["text/html"], flags=re.DOTALL) if "text/html" in found else ""
    )
    text = text or out.get("text") or found.get("text/plain", "")
    return " ".join(html.unescape(text).split())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tables_are_shown_as_tables(path: Path) -> None:
    """No wall of dicts: rows are given to pandas, which has HTML for them."""
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]

    assert not [source for source in code if source.rstrip().endswith("to_pylist()")]
