"""Captures of real kernels (``captures``): the rows are those of the same dialogue, captured plainly.

corrupt_small: netem damaged packet 28 on its way; it was never acknowledged, and came again.
nat_both_sides_flymq: a container's connection on all interfaces of its host, which masquerades.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from combined_cases import conversation, write
from dissection import Dissection, dissect
from mutated_captures import Record, capture_bytes, records
from torture import MAKERS, Result, read

from mqpcap.capture import captures
from mqpcap.protocols import protocols
from mqpcap.tcp import views

CAPTURES = Path(__file__).parent / "captures"
PORT = protocols()["blipmq"].ports[0]
NUMBERS = ("capture", "capture_file", "connection_id", "first_packet", "last_packet")


def without_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what depends on other packets of the file."""
    return {
        name: without_numbers(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if name not in NUMBERS
    }


def plain(result: Result) -> list[dict[str, Any]]:
    return [without_numbers(row) for row in result.messages]


def test_a_damaged_segment_gives_way_where_the_card_makes_the_checksums(tmp_path: Path) -> None:
    source = CAPTURES / "corrupt_small.pcap"
    data = source.read_bytes()
    packets = records(data)
    (tmp_path / "good.pcap").write_bytes(capture_bytes(data[:24], packets[:27] + packets[28:]))
    damaged, good = read(source), read(tmp_path / "good.pcap")

    assert plain(damaged) == plain(good)
    assert [row["op"] for row in damaged.messages if row["first_packet"] in (29, 51)] == ["heartbeat", "bind"]
    assert damaged.problems == []
    assert damaged.connections[0]["conflict_bytes_s2c"] == 0


def test_a_packet_with_a_damaged_ip_header_opens_no_connection(tmp_path: Path) -> None:
    """The 20th packet again, with one bit of its sender's address changed on the way; a note has the count."""
    body = b"".join(MAKERS["blipmq"][1](k) for k in range(4))
    write(tmp_path / "plain.pcap", conversation([(True, body), (False, body)] * 10), PORT)
    data = (tmp_path / "plain.pcap").read_bytes()
    packets = records(data)
    ts, wire, frame = packets[19]
    ghost = frame[:29] + bytes([frame[29] ^ 4]) + frame[30:]
    ghosts = [*packets[:19], (ts, wire, ghost), *packets[19:]]
    (tmp_path / "ghost.pcap").write_bytes(capture_bytes(data[:24], ghosts))
    # All headers wrong: rewritten by a program, not damaged.
    wrong = [(ts, wire, frame[:24] + bytes([frame[24] ^ 0x55]) + frame[25:]) for ts, wire, frame in packets]
    (tmp_path / "wrong.pcap").write_bytes(capture_bytes(data[:24], wrong))
    base, seen, rewritten = (read(tmp_path / f"{name}.pcap") for name in ("plain", "ghost", "wrong"))

    assert plain(seen) == plain(base) == plain(rewritten)
    assert (len(seen.connections), seen.counts["damaged_strays"]) == (1, 1)
    assert [len(base.messages), len(base.connections), len(rewritten.connections)] == [80, 1, 1]


INSIDE = bytes([172, 17, 0, 2])
"""The container's own address: packets without it are on the outside of NAT."""


def of_nat(path: Path, packets: list[Record]) -> Dissection:
    path.write_bytes(capture_bytes((CAPTURES / "nat_both_sides_flymq.pcap").read_bytes()[:24], packets))
    (capture,) = captures([str(path)]).captures
    return dissect(capture)


def spans(found: Dissection) -> list[tuple[object, ...]]:
    names = "direction", "stream_offset", "frame_len", "op", "status", "flaw"
    return sorted(tuple(map(str, map(row.get, names))) for row in found.messages.to_pylist())


def test_both_sides_of_nat_are_one_connection(tmp_path: Path) -> None:
    """60 messages, 30 pairs and 7 deliveries: those of the outside alone."""
    packets = records((CAPTURES / "nat_both_sides_flymq.pcap").read_bytes())
    outside = [packet for packet in packets if INSIDE not in packet[2]]
    both, one = of_nat(tmp_path / "both.pcap", packets), of_nat(tmp_path / "one.pcap", outside)
    inner, outer = both.connections.to_pylist()

    assert spans(both) == spans(one)
    assert (len(spans(both)), both.exchanges["state"].to_pylist(), len(both.deliveries)) == (60, ["answered"] * 30, 7)
    assert (inner["client_ip"], inner["protocol"], inner["same_as"]) == ("172.17.0.2", None, outer["connection_id"])
    assert (outer["client_ip"], outer["same_as"]) == ("10.20.0.1", None)
    assert [outer[f"{name}_c2s"] for name in ("retransmitted_bytes", "missing_bytes")] == [0, 0]


def test_a_forgotten_handshake_has_no_other_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 60 messages of both sides, each side by itself."""
    monkeypatch.setattr(views, "MAX_VIEWS", 0)
    found = of_nat(tmp_path / "both.pcap", records((CAPTURES / "nat_both_sides_flymq.pcap").read_bytes()))

    assert (len(spans(found)), found.connections["same_as"].null_count) == (120, 2)


@pytest.mark.parametrize("seed", range(4))
def test_what_one_side_of_nat_lost_the_other_has(seed: int, tmp_path: Path) -> None:
    """A tenth of the packets after the handshake are lost; each that counts was captured twice or thrice."""
    dice = Random(seed)
    packets = records((CAPTURES / "nat_both_sides_flymq.pcap").read_bytes())
    whole = of_nat(tmp_path / "whole.pcap", packets)
    found = of_nat(tmp_path / "lost.pcap", [*packets[:9], *(x for x in packets[9:] if dice.random() > 0.1)])

    assert "unanswered" not in found.exchanges["state"].to_pylist()
    replies = {row["request_offset"]: row["reply_offset"] for row in whole.exchanges.to_pylist()}
    pairs = [row for row in found.exchanges.to_pylist() if row["state"] == "answered"]
    assert all(replies[row["request_offset"]] == row["reply_offset"] for row in pairs)
    assert len(pairs) >= 25
