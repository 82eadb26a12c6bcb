"""Every row against what the clients said they sent and received (see truths.py)."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from truths import Row, checked, export, pairs

from mqpcap.capture import captures

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ["MQPCAP_SHARED"]) / "captures" if os.environ.get("MQPCAP_SHARED") else None
OURS = list(pairs(ROOT / "pcaps", ROOT / "tests" / "truth"))
THEIRS = list(pairs(SHARED, SHARED)) if SHARED else []
CHAIN = SHARED / "rotated" / "tcpdump_c" if SHARED else None
needs_shared = pytest.mark.skipif(SHARED is None, reason="MQPCAP_SHARED names no folder of captures")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize(("pcap", "truth"), OURS, ids=[name(p) for p, _ in OURS])
def test_capture_says_what_its_truth_says(pcap: Path, truth: Path) -> None:
    verdict = checked(pcap, truth)

    assert not verdict.differences, verdict.text()


@needs_shared
@pytest.mark.parametrize(("pcap", "truth"), THEIRS, ids=[name(p) for p, _ in THEIRS])
def test_shared_capture_says_what_its_truth_says(pcap: Path, truth: Path) -> None:
    verdict = checked(pcap, truth)

    assert not verdict.differences, verdict.text()


def test_a_changed_truth_is_noticed(tmp_path: Path) -> None:
    """The comparison itself is tested: a payload, a length and an operation changed are three differences or more."""
    pcap, truth = next((p, t) for p, t in OURS if name(p) == "flymq/core")
    said = json.loads(truth.read_text())
    events = said["connections"][0]["events"]
    events[2]["fields"]["topic"] = "other"
    events[4]["payload_len"] += 1
    events[6]["op"] = "0x0B"
    (tmp_path / "flymq").mkdir()
    changed = tmp_path / "flymq" / truth.name
    changed.write_text(json.dumps(said))

    assert len(checked(pcap, changed).differences) >= 3


def rotated() -> list[Path]:
    assert CHAIN is not None
    return sorted(CHAIN.iterdir())


PLACE = {"capture", "capture_file", "first_packet", "last_packet", "request_packet", "reply_packet"}


def without_place(rows: list[Row]) -> list[Row]:
    """Rows without packet numbers and files, in an order that rests on neither."""
    out = []
    for row in rows:
        kept = {k: v for k, v in row.items() if k not in PLACE}
        kept["fields"] = {k: v for k, v in row.get("fields", {}).items() if k != "capture"}
        out.append(kept)
    return sorted(out, key=repr)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording before it was cut: the files without the headers of all but the first."""
    path = tmp_path_factory.mktemp("unbroken") / "broker.pcap"
    first, *rest = (p.read_bytes() for p in rotated())
    path.write_bytes(first + b"".join(x[24:] for x in rest))
    return path


@needs_shared
def test_rotated_files_are_one_capture() -> None:
    found = captures([str(CHAIN)])

    assert [[Path(f).name for f in c.files] for c in found.captures] == [[p.name for p in rotated()]]
    assert (found.unreadable, found.skipped) == ([], [])


@needs_shared
def test_rotated_files_give_the_rows_of_the_unbroken_recording(unbroken: Path) -> None:
    chain, one = export(*rotated()), export(unbroken)

    assert without_place(chain.messages) == without_place(one.messages)
    assert without_place(chain.connections) == without_place(one.connections)
    assert without_place(chain.problems) == without_place(one.problems)
    for table in ("exchanges", "deliveries"):
        found, expected = getattr(chain, table), getattr(one, table)
        assert {k: without_place(v) for k, v in found.items()} == {k: without_place(v) for k, v in expected.items()}


@needs_shared
def test_packets_of_rotated_files_are_numbered_by_file() -> None:
    counts = {}
    for path in rotated():
        content, at, n = path.read_bytes(), 24, 0
        while at < len(content):
            at += 16 + int.from_bytes(content[at + 8 : at + 12], "little")
            n += 1
        counts[path.name] = n

    for row in export(*rotated()).messages:
        assert 1 <= row["first_packet"] <= counts[Path(row["capture_file"]).name]


@needs_shared
def test_rotated_capture_says_what_its_truth_says() -> None:
    assert SHARED is not None
    said = json.loads((SHARED / "rotated" / "tcpdump_c.truth.json").read_text())
    found = export(*rotated())
    requests = Counter(r["op"] for r in found.messages if r["protocol"] == "flymq" and r["direction"] == "c2s")
    replies = Counter(r["op"] for r in found.messages if r["protocol"] == "flymq" and r["direction"] == "s2c")
    published = [
        r for r in found.messages if r["protocol"] == "blipmq" and r["op"] == "PUBLISH" and r["direction"] == "c2s"
    ]
    by_protocol = Counter(c["protocol"] for c in found.connections)

    assert requests == replies == said["flymq"]["requests"]
    assert by_protocol == {"flymq": said["flymq"]["connections"], "blipmq": said["blipmq"]["connections"]}
    # pub_bmq prints one more per task than it sends (notes of blipmq/bench.truth.json), here two tasks.
    assert len(published) == said["blipmq"]["publishes_printed"] - 2
    assert {(r["destination"], r["body_len"]) for r in published} == {("bench.rot", 256)}
    assert Counter(e["state"] for e in found.exchanges["flymq"]) == {"answered": sum(requests.values())}
    assert {r["flaw"] for r in found.messages} == {None}
    for k, (topic, values) in enumerate(sorted(by_topic(found.messages).items())):
        assert topic == f"orders{k}"
        assert values == [min(2 * (40 + i % 200), 300) for i in range(k, 2400, 4)]


def by_topic(rows: list[Row]) -> dict[str, list[int]]:
    """Lengths of the values produced, in order, by topic."""
    out: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda r: (r["ts_ns"], r["stream_offset"])):
        if row["protocol"] == "flymq" and row["op"] == "PRODUCE" and row["direction"] == "c2s":
            out.setdefault(row["destination"], []).append(row["body_len"])
    return out
